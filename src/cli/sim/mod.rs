//! `pk3c-ccp sim`: flows over a bottleneck, in virtual time.

mod plot;
mod scenario;
mod summary;

use super::params::ParamArgs;
use anyhow::{Context, Result};
use pathsim::{Controller, Cubic, FixedRate, Reno, Results, SECOND, Simulation};
use pk3c_ccp::simulate::Simulator;
use pk3c_ccp::units::{Micros, Rate, Ratio};
use scenario::{Plan, Scheme};
use std::path::PathBuf;
use std::sync::Arc;
use summary::Summary;

/// Options of `pk3c-ccp sim`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    /// Read path and flows from a TOML file instead of flags
    #[arg(long, value_name = "FILE", conflicts_with_all = PATH_FLAGS)]
    scenario: Option<PathBuf>,
    /// Rate of the bottleneck, counted on IP packets
    #[arg(long, value_name = "RATE", default_value = "50mbit")]
    rate: Rate,
    /// Use the capacity of a mahimahi trace instead of a constant rate
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<PathBuf>,
    /// Two-way propagation delay
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    rtt: Micros,
    /// Drop-tail queue: packets, bytes as in 64kB, or bandwidth-delay products as in 0.5bdp
    #[arg(long, value_name = "SIZE", default_value = "1bdp")]
    queue: scenario::Queue,
    /// Random loss behind the bottleneck
    #[arg(long, value_name = "RATIO", default_value = "0%")]
    loss: Ratio,
    /// Lose packets in bursts of this mean length (Gilbert-Elliott)
    #[arg(long, value_name = "PACKETS")]
    loss_burst: Option<f64>,
    /// Random extra delay of each packet, from 0 to this
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    jitter: Micros,
    /// Jitter may reorder packets
    #[arg(long)]
    reorder: bool,
    /// Schemes and how many flows of each: pk3c, cubic, reno, or udp:RATE; they start 100 ms apart
    #[arg(long, value_name = "LIST", default_value = "pk3c,cubic")]
    flows: scenario::Flows,
    /// Time from a packet's ACK to the agent's answer
    #[arg(long, value_name = "TIME", default_value = "100us")]
    agent_latency: Micros,
    /// Length of the run [default: 30s]
    #[arg(long, value_name = "TIME")]
    duration: Option<Micros>,
    /// Seed of all chance [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Runs, with seeds from the first one on; the table shows means
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print one JSON object, and nothing else, on standard output
    #[arg(long)]
    json: bool,
    /// With --json: goodput, RTT and queue of every run in bins of 100 ms, too
    #[arg(long, requires = "json")]
    series: bool,
    /// Draw goodput, RTT and queue of the first run over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    params: ParamArgs,
}

const PATH_FLAGS: [&str; 10] = [
    "rate",
    "trace",
    "rtt",
    "queue",
    "loss",
    "loss_burst",
    "jitter",
    "reorder",
    "flows",
    "agent_latency",
];

const EXAMPLES: &str = "\
Examples:
  pk3c-ccp sim --loss 1% --flows pk3c*2,cubic --duration 30s --seed 7
  pk3c-ccp sim --rate 100mbit --rtt 20ms --queue 10 --flows pk3c*10 --seeds 5
  pk3c-ccp sim --scenario FILE.toml --json
A scenario file:
  duration = \"30s\"
  seed = 7
  agent-latency = \"100us\"
  [path]
  rate = \"50mbit\"                 # or: steps = [{ at = \"0s\", rate = \"50mbit\" }, { at = \"10s\", rate = \"20mbit\" }]
  rtt = \"40ms\"                    # or: trace = \"FILE\" (mahimahi)
  queue = \"1bdp\"
  loss = \"1%\"                     # also loss-burst = 5.0, jitter = \"3ms\", reorder = true
  [[flows]]
  scheme = \"pk3c\"                 # cubic, reno, udp:5mbit
  count = 2                       # also start, stop, extra-rtt, size = \"1MB\", app-rate = \"5mbit\",
  start = \"1s\"                    # ack-every = 2, ack-delay = \"40ms\", ack-aggregation = \"5ms\"";

pub(crate) fn run(args: &SimArgs) -> Result<()> {
    let mut plan = match &args.scenario {
        Some(file) => scenario::read(file)?,
        None => from_flags(args)?,
    };
    if let Some(duration) = args.duration {
        plan.scenario.duration_ns = scenario::nanos(duration);
    }
    plan.scenario.seed = args.seed.unwrap_or(plan.scenario.seed);
    plan.scenario.series = args.series || args.plot.is_some();
    let simulator = Simulator::new()?;
    let mut runs = Vec::new();
    for number in 0..args.seeds {
        let mut plan = plan.clone();
        plan.scenario.seed = plan.scenario.seed.wrapping_add(number);
        let title = format!("run {} of {}", number + 1, args.seeds);
        runs.push(simulate(&simulator, &plan, args, &title)?);
    }
    if let (Some(file), Some(first)) = (&args.plot, runs.first()) {
        std::fs::write(file, plot::svg(first))
            .with_context(|| format!("cannot write the plot to {}", file.display()))?;
    }
    if !args.series {
        for run in &mut runs {
            run.link_series.clear();
            run.flows.iter_mut().for_each(|flow| flow.series.clear());
        }
    }
    let summary = Summary::of(runs);
    if args.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        print!("{summary}");
    }
    Ok(())
}

fn from_flags(args: &SimArgs) -> Result<Plan> {
    scenario::plan(scenario::Parts {
        rate: args.rate,
        trace: args.trace.as_deref(),
        rtt: args.rtt,
        queue: args.queue,
        loss: args.loss,
        loss_burst: args.loss_burst,
        jitter: args.jitter,
        reorder: args.reorder,
        flows: &args.flows,
        agent_latency: args.agent_latency,
    })
}

/// One run, with a line of progress on a terminal or every ten seconds of virtual time.
fn simulate(simulator: &Simulator, plan: &Plan, args: &SimArgs, title: &str) -> Result<Results> {
    let params = Arc::new(args.params.0.clone());
    let seed = plan.scenario.seed;
    let flows = plan.schemes.iter().zip(&plan.scenario.flows).zip(1u64..);
    let controllers = flows.map(|((scheme, spec), number)| -> Box<dyn Controller> {
        match scheme {
            Scheme::Pk3c => {
                let start = Micros::new(spec.start_ns / 1000);
                let seed = seed.wrapping_mul(1_000_003).wrapping_add(number);
                Box::new(simulator.flow(params.clone(), seed, start, plan.agent_latency))
            }
            Scheme::Cubic => Box::new(Cubic::default()),
            Scheme::Reno => Box::new(Reno::default()),
            Scheme::Udp(rate) => Box::new(FixedRate {
                rate: u64::from(rate.to_wire()),
            }),
        }
    });
    let controllers = controllers.collect();
    let simulation = Simulation::new(plan.scenario.clone(), controllers).with_context(|| {
        match &args.scenario {
            Some(file) => format!("scenario {} cannot be simulated", file.display()),
            None => "this cannot be simulated".to_owned(),
        }
    })?;
    let total = plan.scenario.duration_ns.div_ceil(SECOND);
    let results = simulation.run_with_progress(|second| {
        if second % 10 == 0 {
            eprintln!("{title}: {second} of {total} s");
        }
    });
    Ok(results)
}
