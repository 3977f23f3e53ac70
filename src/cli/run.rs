//! `pk3c-ccp run`: the agent, from its start to SIGINT or SIGTERM, or to SIGHUP if it has no configuration file.
//! SIGUSR2 ends it as `--keep` would, for an upgrade.

use super::adopt::{self, Names, Ports};
use super::config::Configuration;
use super::control::{self, BpfView, CharView, Operator, Service, Sockets, supervised};
use super::datapath::{self, BpfEnforcer, BpfFacts, CharFacts, Choice, Opened};
use super::default_cc::DefaultCc;
use super::log::{self, LogFormat, LogLevel};
use super::params::ParamArgs;
use super::policy;
use super::privileges::{self, Confined};
use super::{NAME, PIN_DIR, show};
use anyhow::{Context, Result, anyhow, bail};
use caps::Capability;
use ccp_bpf::{Config, Datapath, Origin};
use ccp_char::CharIpc;
use pk3c_ccp::agent::{self, Enforcer, FlowFacts, Pk3c};
use pk3c_ccp::exp::Exp;
use pk3c_ccp::record::Recorder;
use pk3c_ccp::stats::{DatapathView, Monitor, Stats};
use portus::RunBuilder;
use portus::ipc::{BackendBuilder, Ipc};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Instant;
use tracing::{Level, enabled, error, info};

/// Options of `pk3c-ccp run`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Read options from FILE (TOML, with the names of these flags) unless they are given here;
    /// SIGHUP reads it again, and does not end the agent then
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print all options with what they mean, their values and where these come from, in the form
    /// that --config reads, and do nothing else
    #[arg(long)]
    print_config: bool,
    /// What runs in the kernel for this agent
    #[arg(long, value_enum, value_name = "KIND", default_value = "auto")]
    datapath: Choice,
    /// Make it the congestion control of every new connection (net.ipv4.tcp_congestion_control),
    /// and restore the old one at the end
    #[arg(long)]
    default: bool,
    /// Take running connections over, too: those with these local ports (as in 80,443), or all
    #[arg(long, value_name = "PORTS|all", num_args = 0..=1, default_missing_value = "all",
          value_parser = adopt::ports)]
    adopt: Option<Ports>,
    /// The congestion controls whose connections --adopt takes (as in cubic,bbr), instead of the
    /// machine's default; pk3c are those that an agent before this one left when it was stopped
    #[arg(long, value_name = "NAMES", requires = "adopt", value_parser = adopt::names)]
    adopt_from: Option<Names>,
    /// At the end, leave the datapath (and the default) in place for the next start: connections go
    /// on under the kernel's Cubic until then, and the next agent takes the same ones over. SIGUSR2
    /// ends the agent in this way, too
    #[arg(long)]
    keep: bool,
    /// Write every report and decision to FILE, as JSON lines, for `pk3c-ccp replay`; what is there
    /// already is kept as FILE.old, in the place of an older one. Costs about a microsecond and 260
    /// bytes per report
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Recording stops, with a warning, when FILE has this many MB: 1 to 1000000
    #[arg(long, value_name = "MB", default_value_t = 1_000, requires = "record",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    record_limit: u64,
    /// Seed of the algorithm's chance (the order of trials); random unless given
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// What is logged: error, warn, info (a line when a flow starts or ends), debug (every
    /// decision), or a filter such as info,decision=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log::filter)]
    pub(crate) log: String,
    /// How the log, on standard error, is written
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Flows that can be driven at once, 1 to 65535; others run under the kernel's Cubic. Each takes
    /// 0.9 KB
    #[arg(long, value_name = "COUNT", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=65_535))]
    max_flows: u32,
    /// Directory of the pins, in a BPF file system
    #[arg(long, value_name = "DIR", default_value = PIN_DIR)]
    pin_dir: PathBuf,
    /// The kernel module's device
    #[arg(long, value_name = "FILE", default_value = ccp_char::DEVICE)]
    device: PathBuf,
    /// Unix socket of the control plane (pk3c-ccp status, top, set ...), for root and the agent's
    /// user; `none` for no socket
    #[arg(long, value_name = "PATH|none", default_value = control::SOCKET)]
    control: String,
    /// Serve Prometheus metrics at this address under /metrics; a port alone is on loopback
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = control::address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) params: ParamArgs,
}

/// Runs the agent until it is told to stop.
pub(crate) fn run() -> Result<ExitCode> {
    let configuration = Configuration::read(std::env::args_os())?;
    if configuration.args.print_config {
        show(&configuration.annotated())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (log, _written) = log::start(&configuration.args.log, configuration.args.log_format)?;
    match serve(configuration, log) {
        // In the log's form, unless nothing is logged.
        Err(error) if enabled!(Level::ERROR) => {
            error!("{error:#}");
            Ok(ExitCode::FAILURE)
        }
        ended => ended.map(|()| ExitCode::SUCCESS),
    }
}

/// The same, once there is a log.
fn serve(configuration: Configuration, log: LogLevel) -> Result<()> {
    let args = &configuration.args.clone();
    if args.record.is_some() && args.params.0.is_exp() {
        bail!(
            "--algorithm exp decides in the datapath, so there are no decisions to record: leave out --record"
        );
    }
    // Before anything that would have to be put back.
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR2]).context("cannot handle signals")?;
    let go_on = Arc::new(AtomicBool::new(true));

    let config = Config {
        pin_dir: args.pin_dir.clone(),
        max_flows: args.max_flows,
        max_flow_rate: datapath::max_rate(&configuration),
        ..Config::new(NAME)
    };
    let agent = Agent {
        args,
        stays: false,
        surface: Some((configuration, log)),
        recorder: None,
        go_on,
        default: DefaultCc::new(),
    };
    match datapath::open(args.datapath, config, &args.device)? {
        Opened::Bpf(datapath) => agent.over_bpf(*datapath, &mut signals),
        Opened::Char(sock) => agent.over_char(sock, &mut signals),
    }
}

/// The agent, whatever its datapath.
struct Agent<'a> {
    args: &'a RunArgs,
    /// Whether the datapath and the default stay for the next agent if this one ends now.
    stays: bool,
    /// What the control plane needs of the start.
    surface: Option<(Configuration, LogLevel)>,
    /// Kept to the end, so that a slow disk does not hold up what the end puts back.
    recorder: Option<Arc<Recorder>>,
    go_on: Arc<AtomicBool>,
    default: DefaultCc,
}

impl Agent<'_> {
    fn over_bpf(mut self, datapath: Datapath, signals: &mut Signals) -> Result<()> {
        let facts = Arc::new(BpfFacts(datapath.observer()));
        let enforcer = Arc::new(BpfEnforcer(datapath.observer()));
        let view = Arc::new(BpfView(datapath.observer()));
        // What an agent before this one has left is not lost by a start that fails.
        self.stays = datapath.origin() != Origin::Loaded;
        let sock = datapath.ipc().context("cannot connect to the datapath");
        let result = sock.and_then(|sock| {
            self.serve(sock, facts, Some(enforcer), view, signals, || {
                info!(datapath = ?datapath.origin(), "ready: sockets can choose '{NAME}'");
            })
        });

        let observer = datapath.observer();
        let live_flows = observer.live_flows();
        let counters = observer.counters();
        if self.stays {
            drop(datapath);
            info!(
                live_flows,
                ?counters,
                "stopped; '{NAME}' stays and waits for the next agent (pk3c-ccp detach removes it)"
            );
            return result;
        }
        let restored = self.restore_default();
        let stopped = datapath.stop().context("cannot stop the datapath");
        match &stopped {
            Ok(()) => info!(
                live_flows,
                ?counters,
                "stopped; live flows go on under the kernel's Cubic"
            ),
            Err(error) => error!("{error:#}"),
        }
        result.and(restored).and(stopped)
    }

    /// The names are the module's, so they stay; without an agent they mean CUBIC.
    fn over_char(mut self, sock: CharIpc, signals: &mut Signals) -> Result<()> {
        let observer = sock.observer();
        let facts = Arc::new(CharFacts(observer.clone()));
        let view = Arc::new(CharView::new(observer.clone()));
        let result = self.serve(sock, facts, None, view, signals, || {
            let names = datapath::module_names();
            info!(datapath = "Module", "ready: sockets can choose {names}");
        });
        let restored = if self.stays {
            Ok(())
        } else {
            self.restore_default()
        };
        let counters: Vec<_> = ccp_char::counters()
            .into_iter()
            .filter(|counter| counter.value > 0)
            .map(|counter| format!("{}={}", counter.name, counter.value))
            .collect();
        info!(
            live_flows = observer.len(),
            counters = counters.join(" "),
            "stopped; live flows go on under the module's CUBIC until the next agent"
        );
        result.and(restored)
    }

    /// Takes running connections over, if that is asked for.
    fn adopt(&self) -> Result<()> {
        let (ports, from) = (&self.args.adopt, self.args.adopt_from.as_ref());
        ports
            .as_ref()
            .map_or(Ok(()), |ports| adopt::take_over(ports, from, &self.default))
    }

    /// Begins the record, if there is to be one.
    fn record(&self) -> Result<Option<Arc<Recorder>>> {
        let Some(file) = &self.args.record else {
            return Ok(None);
        };
        let limit_bytes = self.args.record_limit * 1_000_000;
        let recorder = Recorder::create(file, limit_bytes, &self.args.params.0)
            .with_context(|| format!("cannot record to {}", file.display()))?;
        Ok(Some(Arc::new(recorder)))
    }

    fn restore_default(&self) -> Result<()> {
        let restored = self.default.restore();
        match &restored {
            Ok(Some(name)) => info!("{name} is the system's congestion control again"),
            Ok(None) => {}
            Err(error) => error!("the system's congestion control is not restored: {error:#}"),
        }
        restored.map(drop)
    }

    /// Runs the algorithm over a datapath until a signal, or until it ends by itself. Without an enforcer, policies
    /// that need one are refused.
    fn serve<I: Ipc>(
        &mut self,
        sock: I,
        facts: Arc<dyn FlowFacts>,
        enforcer: Option<Arc<dyn Enforcer>>,
        view: Arc<dyn DatapathView>,
        signals: &mut Signals,
        ready: impl FnOnce(),
    ) -> Result<()> {
        let stats = Arc::<Stats>::default();
        let mut controlled = None;
        let (configuration, log) = self
            .surface
            .take()
            .context("the agent serves one datapath, once")?;
        let has_enforcer = enforcer.is_some();
        policy::check(&configuration, has_enforcer)?;
        let sockets = Sockets::bind(control::place(&self.args.control), self.args.metrics)?;
        // No agent runs with the same datapath or sockets, so none that was started by mistake displaces its record.
        self.recorder = self.record()?;
        let refusal = privileges::Refusal::default();
        let builder = RunBuilder::new(BackendBuilder {
            sock: Confined::new(sock, self.go_on.clone(), refusal.clone()),
        })
        .with_stop_handle(self.go_on.clone())
        .spawn_thread();
        let started = if self.args.params.0.is_exp() {
            builder.default_alg(Exp::new(Some(facts))).run()
        } else {
            let algorithm = Pk3c::new(agent::Config {
                params: self.args.params.0.clone(),
                seed: self.args.seed.unwrap_or_else(random_seed),
                facts: Some(facts),
                recorder: self.recorder.clone(),
                stats: stats.clone(),
                enforcer,
            });
            if !configuration.policies.is_empty() {
                algorithm.set_policies(configuration.policies.clone())?;
            }
            controlled = Some(algorithm.clone());
            builder.default_alg(algorithm).run()
        };
        let handle = started.map_err(|e| anyhow!("cannot start the agent: {}", e.0))?;
        let monitor = Arc::new(Monitor::new(stats, view, Instant::now()));
        let operator = Arc::new(Operator::new(
            controlled,
            monitor,
            log,
            configuration,
            has_enforcer,
        ));
        let _service = Service::start(operator.clone(), sockets)?;
        if self.args.default {
            self.default.take()?;
        } else if self.default.is_taken() {
            // An agent before this one was asked to. The log says what came of it.
            drop(self.restore_default());
        }
        // Last, because a start that fails must not have touched them; but it takes all privileges.
        self.adopt()?;
        self.stays |= self.args.adopt.is_some();
        // Putting the default back, this agent's or one's before it, is network administration. The pins are this
        // user's own files.
        privileges::keep_only(&[Capability::CAP_NET_ADMIN])?;
        // From here on an error is like a crash: connections wait in the fallback for the next agent.
        self.stays = true;
        ready();
        supervised::ready();

        // The agent's own end (an error) must end the wait for signals too.
        let closer = signals.handle();
        let watcher = thread::spawn(move || {
            let ended = privileges::keep_only(&[]).and_then(|()| {
                handle
                    .wait()
                    .map_err(|e| anyhow!("the agent ended: {}", e.0))
            });
            closer.close();
            ended
        });
        let mut is_told = false;
        for signal in signals.forever() {
            // Without a file there is nothing to read again: a terminal has closed.
            if signal == SIGHUP && self.args.config.is_some() {
                // The log says what came of it.
                supervised::reloading(|| drop(operator.reload()));
            } else {
                info!(signal, "stopping");
                is_told = true;
                self.stays = self.args.keep || signal == SIGUSR2;
                supervised::stopping();
                break;
            }
        }
        self.go_on.store(false, Ordering::SeqCst);
        let ended = watcher.join();
        if let Some(error) = refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            return Err(error);
        }
        match ended {
            // A service manager starts again what failed.
            Ok(Ok(())) if !is_told => Err(anyhow!("the agent ended by itself")),
            Ok(result) => result,
            Err(_) => Err(anyhow!("the agent panicked")),
        }
    }
}

/// A number that no two starts share.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
