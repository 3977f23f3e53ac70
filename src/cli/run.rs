//! `pk3c-ccp run`: the agent, from its start to SIGINT or SIGTERM.

use super::default_cc::DefaultCc;
use super::params::ParamArgs;
use super::{NAME, PIN_DIR};
use anyhow::{Context, Result, anyhow};
use ccp_bpf::{Config, Datapath, Observer};
use clap::ValueEnum;
use pk3c_ccp::agent::{self, FlowFact, FlowFacts, Pk3c};
use pk3c_ccp::record::Recorder;
use pk3c_ccp::units::Micros;
use portus::RunBuilder;
use portus::ipc::BackendBuilder;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tracing::{error, info};
use tracing_subscriber::EnvFilter;

/// Options of `pk3c-ccp run`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Make it the congestion control of every new connection (net.ipv4.tcp_congestion_control),
    /// and restore the old one at the end
    #[arg(long)]
    default: bool,
    /// At the end, leave the datapath (and the default) in place for the next start: connections go
    /// on under the kernel's Cubic until then, and the next agent takes the same ones over
    #[arg(long)]
    keep: bool,
    /// Write every report and decision to FILE, as JSON lines, for `pk3c-ccp replay`. Costs about a
    /// microsecond and 260 bytes per report
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Recording stops, with a warning, when FILE has this many MB
    #[arg(long, value_name = "MB", default_value_t = 1_000, requires = "record",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    record_limit: u64,
    /// Seed of the algorithm's chance (the order of trials); random unless given
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// What is logged: error, warn, info (a line when a flow starts or ends), debug (every
    /// decision), or a filter such as info,decision=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_filter)]
    log: String,
    /// How the log, on standard error, is written
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Flows that can be driven at once; others run under the kernel's Cubic. Each takes 0.9 KB
    #[arg(long, value_name = "COUNT", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=65_535))]
    max_flows: u32,
    /// Directory of the pins, in a BPF file system
    #[arg(long, value_name = "DIR", default_value = PIN_DIR)]
    pin_dir: PathBuf,
    #[command(flatten)]
    params: ParamArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// Runs the agent until it is told to stop.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    start_log(args);
    // Before anything that would have to be put back.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let go_on = Arc::new(AtomicBool::new(true));

    let config = Config {
        pin_dir: args.pin_dir.clone(),
        max_flows: args.max_flows,
        ..Config::new(NAME)
    };
    let recorder = args
        .record
        .as_ref()
        .map(|file| Recorder::create(file, args.record_limit * 1_000_000, &args.params.0))
        .transpose()
        .with_context(|| format!("cannot record to {}", name_of(args.record.as_ref())))?;
    let datapath = Datapath::start(config).context("cannot start the eBPF datapath")?;
    let default = DefaultCc::new();
    let result = serve(args, &datapath, recorder, &go_on, &mut signals, &default);
    if let Err(error) = &result {
        error!("{error:#}");
    }

    let observer = datapath.observer();
    let live_flows = observer.live_flows();
    let counters = observer.counters();
    if args.keep {
        drop(datapath);
        info!(
            live_flows,
            ?counters,
            "stopped; '{NAME}' stays and waits for the next agent"
        );
        return result;
    }
    let restored = default.restore();
    match &restored {
        Ok(Some(name)) => info!("{name} is the system's congestion control again"),
        Ok(None) => {}
        Err(error) => error!("the system's congestion control is not restored: {error:#}"),
    }
    datapath.stop().context("cannot stop the datapath")?;
    info!(
        live_flows,
        ?counters,
        "stopped; live flows go on under the kernel's Cubic"
    );
    result.and(restored.map(drop))
}

fn serve(
    args: &RunArgs,
    datapath: &Datapath,
    recorder: Option<Recorder>,
    go_on: &Arc<AtomicBool>,
    signals: &mut Signals,
    default: &DefaultCc,
) -> Result<()> {
    let algorithm = Pk3c::new(agent::Config {
        params: args.params.0.clone(),
        seed: args.seed.unwrap_or_else(random_seed),
        facts: Some(Arc::new(Facts(datapath.observer()))),
        recorder: recorder.map(Arc::new),
    });
    let sock = datapath.ipc().context("cannot connect to the datapath")?;
    let handle = RunBuilder::new(BackendBuilder { sock })
        .default_alg(algorithm)
        .with_stop_handle(go_on.clone())
        .spawn_thread()
        .run()
        .map_err(|e| anyhow!("cannot start the agent: {}", e.0))?;
    if args.default {
        default.take()?;
    }
    info!(datapath = ?datapath.origin(), "ready: sockets can choose '{NAME}'");

    // The agent's own end (an error) must end the wait for signals too.
    let closer = signals.handle();
    let watcher = thread::spawn(move || {
        let result = handle.wait();
        closer.close();
        result
    });
    if let Some(signal) = signals.forever().next() {
        info!(signal, "stopping");
    }
    go_on.store(false, Ordering::SeqCst);
    match watcher.join() {
        Ok(result) => result.map_err(|e| anyhow!("the agent ended: {}", e.0)),
        Err(_) => Err(anyhow!("the agent panicked")),
    }
}

/// What the datapath knows of a flow, in the agent's terms.
struct Facts(Observer);

impl FlowFacts for Facts {
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
        })
    }
}

/// A number that no two starts share.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

fn log_filter(text: &str) -> Result<String, String> {
    let checked = EnvFilter::try_new(text).map(|_| text.to_owned());
    checked.map_err(|e| format!("{e}; give a level (error, warn, info, debug) or a filter"))
}

fn start_log(args: &RunArgs) {
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&args.log))
        .with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

fn name_of(file: Option<&PathBuf>) -> String {
    file.map(|file| file.display().to_string())
        .unwrap_or_default()
}
