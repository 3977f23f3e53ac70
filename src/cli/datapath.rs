//! `--datapath`: which datapath the agent drives, and what each knows of its flows.

use super::NAME;
use super::config::Configuration;
use anyhow::{Context, Result, anyhow, bail};
use ccp_bpf::{Config, Datapath, Governance, Mode};
use ccp_char::CharIpc;
use clap::ValueEnum;
use pk3c_ccp::agent::{Enforcer, FlowFact, FlowFacts};
use pk3c_ccp::policy::{Limits, Role};
use pk3c_ccp::units::{Micros, Rate};
use std::path::Path;
use tracing::info;

/// What `--datapath` takes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Choice {
    /// The kernel module if it is loaded (it has the name then), else eBPF
    Auto,
    /// eBPF: nothing to load, Linux 6.1 or later with BTF
    Bpf,
    /// The kernel module tcp_ccp, or any other that speaks CCP over /dev/ccpkp
    Char,
}

/// The datapath that was chosen, ready to be driven.
pub(crate) enum Opened {
    Bpf(Box<Datapath>),
    Char(CharIpc),
}

/// Opens the datapath; `auto` says in the log what it took, and why.
///
/// # Errors
/// If the chosen one, or under `auto` neither, can be used here; the message says what to do.
pub(crate) fn open(choice: Choice, config: Config, device: &Path) -> Result<Opened> {
    let bpf = |config| {
        let datapath = Datapath::start(config).context("cannot start the eBPF datapath")?;
        Ok(Opened::Bpf(Box::new(datapath)))
    };
    let module = || {
        let sock = CharIpc::open(device).context("cannot use the kernel module")?;
        if module_names().is_empty() {
            bail!(
                "cannot use {}: no kernel module has registered {NAME} or ccp, so it is no CCP device, or its module \
                 is not ready: load the module (insmod ccp-kernel/ccp.ko), or name its device with --device",
                device.display()
            );
        }
        Ok(sock)
    };
    match choice {
        Choice::Bpf => bpf(config),
        Choice::Char => module().map(Opened::Char),
        Choice::Auto if device.exists() => {
            info!(device = %device.display(), "the kernel module is loaded, so it is the datapath");
            module().map(Opened::Char)
        }
        Choice::Auto => match bpf(config) {
            Ok(opened) => {
                info!(device = %device.display(), "no kernel module is loaded, so eBPF is the datapath");
                Ok(opened)
            }
            Err(error) if needs_another_kernel(&error) => Err(anyhow!(
                "{error:#}; where eBPF cannot be had, the kernel module can: \
                 make -C ccp-kernel && insmod ccp-kernel/ccp.ko, then start again"
            )),
            error => error,
        },
    }
}

/// Whether this kernel can run no datapath in eBPF, whatever its user does.
fn needs_another_kernel(error: &anyhow::Error) -> bool {
    use ccp_bpf::Error;
    let of_bpf = error.downcast_ref();
    of_bpf.is_some_and(|error| matches!(error, Error::Kernel { .. } | Error::NoBtf))
}

/// The fastest that any connection may go under a configuration, bytes/s. The datapath keeps it, whatever the agent
/// asks for, and what it loads with it keeps until the next start.
pub(crate) fn max_rate(configuration: &Configuration) -> u64 {
    let base = &configuration.args.params.0;
    let policies = configuration.policies.all().iter();
    let rates =
        policies.filter_map(|policy| policy.params(base).ok().map(|params| params.max_rate));
    let fastest = rates.fold(base.max_rate, Rate::max);
    let smallest = Config::new(NAME).min_rate;
    u64::from(fastest.to_wire()).max(smallest)
}

/// The names under which sockets can choose a module's congestion control.
pub(crate) fn module_names() -> String {
    let listed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default();
    let names: Vec<_> = listed
        .split_whitespace()
        .filter(|name| [NAME, "ccp"].contains(name))
        .map(|name| format!("'{name}'"))
        .collect();
    names.join(" and ")
}

/// What the eBPF datapath knows of a flow, in the agent's terms.
pub(crate) struct BpfFacts(pub(crate) ccp_bpf::Observer);

impl FlowFacts for BpfFacts {
    fn lookup(&self, sock_id: u32) -> Option<FlowFact> {
        let flow = self.0.flow(sock_id)?;
        Some(FlowFact {
            local: flow.local,
            remote: flow.remote,
            age: flow.age,
            driven: flow.driven,
            fallback_episodes: flow.stats.fallbacks,
            bytes_acked: flow.stats.bytes_acked,
            srtt: (flow.stats.srtt_us > 0).then(|| Micros::new(flow.stats.srtt_us.into())),
            pacing_rate: None,
            packets_delivered: flow.stats.packets_delivered,
            packets_lost: flow.stats.packets_lost,
            cgroup: (flow.cgroup_id > 0).then_some(flow.cgroup_id),
        })
    }

    fn mss(&self, sock_id: u32) -> Option<u32> {
        self.0.mss(sock_id)
    }
}

/// The eBPF datapath as what keeps policies.
pub(crate) struct BpfEnforcer(pub(crate) ccp_bpf::Observer);

impl Enforcer for BpfEnforcer {
    fn enforce(&self, sock_id: u32, role: Role, limits: &Limits) -> bool {
        let mode = match role {
            Role::Driven => Mode::Drive,
            Role::Shadow | Role::Control => Mode::Observe,
            Role::Kernel => Mode::Leave,
        };
        let none = ccp_bpf::Limits::NONE;
        let bytes = |rate: Rate| rate.bytes_per_sec() as u64;
        let limits = ccp_bpf::Limits {
            min_rate: limits.min_rate.map_or(none.min_rate, bytes),
            max_rate: limits.max_rate.map_or(none.max_rate, bytes),
            max_loss_ppm: limits.max_loss.map_or(none.max_loss_ppm, |share| {
                (share.get() * 1e6).round() as u32
            }),
        };
        self.0.govern(sock_id, Governance { mode, limits })
    }
}

/// What the kernel module says of a flow; nothing, if it is not this project's.
pub(crate) struct CharFacts(pub(crate) ccp_char::Observer);

impl FlowFacts for CharFacts {
    fn lookup(&self, sock_id: u32) -> Option<FlowFact> {
        let flow = self.0.flow(sock_id)?;
        Some(FlowFact {
            local: flow.local,
            remote: flow.remote,
            age: flow.age,
            driven: flow.driven,
            fallback_episodes: flow.fallbacks,
            bytes_acked: flow.bytes_acked,
            srtt: (flow.srtt_us > 0).then(|| Micros::new(flow.srtt_us.into())),
            pacing_rate: None,
            packets_delivered: flow.packets_delivered,
            packets_lost: flow.packets_lost,
            cgroup: None,
        })
    }

    fn mss(&self, sock_id: u32) -> Option<u32> {
        self.0.flow(sock_id)?.mss
    }
}
