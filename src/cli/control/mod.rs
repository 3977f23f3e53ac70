//! The control plane of a running agent: its control socket and metrics endpoint, on a thread of their own, so that
//! nobody who looks can hold up a decision.

mod client;
mod metrics;
mod operator;
mod protocol;
mod server;
pub(crate) mod supervised;
mod view;

pub(crate) use client::{AgentArgs, Client, Refused};
pub(crate) use metrics::address;
pub(crate) use operator::Operator;
pub(crate) use protocol::Request;
pub(crate) use server::remove_abandoned;
pub(crate) use view::{BpfView, CharView};

use super::privileges;
use anyhow::{Context, Result};
use server::Socket;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::{error, info};

/// Where the control socket is, unless another place is named.
pub(crate) const SOCKET: &str = "/run/pk3c-ccp/control.sock";
/// How often flows are looked at; a second is the unit of the histograms over flows.
const TICK: Duration = Duration::from_secs(1);

/// The path of the control socket from a flag.
pub(crate) fn place(text: &str) -> Option<PathBuf> {
    (text != "none").then(|| text.into())
}

/// Where the control plane will answer: bound, so that it is this agent's place and no other's.
pub(crate) struct Sockets {
    control: Option<Socket>,
    metrics: Option<TcpListener>,
}

impl Sockets {
    /// Listens where it is told to.
    pub(crate) fn bind(control: Option<PathBuf>, metrics: Option<SocketAddr>) -> Result<Self> {
        Ok(Self {
            control: control.map(|path| Socket::bind(&path)).transpose()?,
            metrics: metrics.map(metrics::bind).transpose()?,
        })
    }
}

/// The running control plane; dropped, it ends.
pub(crate) struct Service {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Answers from now on.
    pub(crate) fn start(operator: Arc<Operator>, sockets: Sockets) -> Result<Self> {
        let Sockets {
            control: socket,
            metrics: listener,
        } = sockets;
        if let Some(socket) = &socket {
            info!(socket = %socket.path().display(), "control");
        }
        if let Some(listener) = &listener {
            info!(address = %listener.local_addr()?, "metrics");
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the control plane")?;
        let (stop, stopped) = oneshot::channel();
        let (confined, is_confined) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                let given_up = privileges::keep_only(&[]);
                let may_go_on = given_up.is_ok();
                let _ = confined.send(given_up);
                if !may_go_on {
                    return;
                }
                runtime.block_on(async {
                    if let Some(listener) = listener {
                        let operator = operator.clone();
                        tokio::spawn(async move {
                            if let Err(error) = metrics::serve(listener, operator).await {
                                error!("the metrics endpoint has ended: {error}");
                            }
                        });
                    }
                    if let Some(socket) = socket {
                        let operator = operator.clone();
                        tokio::spawn(async move {
                            if let Err(error) = socket.serve(operator).await {
                                error!("the control socket has ended: {error}");
                            }
                        });
                    }
                    tokio::spawn(supervised::watch(operator.clone()));
                    tokio::spawn(tick(operator));
                    let _ = stopped.await;
                });
            })
            .context("cannot start the control plane")?;
        let confined = is_confined.recv().context("the control plane has ended");
        confined
            .flatten()
            .context("cannot start the control plane")?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

async fn tick(operator: Arc<Operator>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        operator.monitor().tick(Instant::now());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
