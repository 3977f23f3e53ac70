//! Does the simulator agree with real TCP? The same scenarios in a QEMU guest under virtual time and in
//! the simulator, as a Markdown table; exit status 1 if a figure is beyond its tolerance.
//!
//! ```text
//! cargo build --release && cargo run --release --example validate -- --agent target/release/pk3c-ccp --save results.jsonl
//! cargo run --release --example validate -- --guest results.jsonl    # the simulator again, against the same guests
//! ```
//!
//! The simulator is told what the guest is: netem loses packets in front of the bottleneck, TCP sends packet by
//! packet through fq, and iperf3 reads the smoothed RTT every 200 ms.

use anyhow::{Context, Result, bail};
use clap::Parser;
use pathlab::Interrupt;
use pathlab::guest::{self, AGENT_BINARY, Config, GuestRun, KernelVersion};
use pathlab::scenario::{PathSpec as LabPath, Scheme};
use pathsim::{
    Bbr, Controller, Cubic, FlowSpec, Loss, LossPlace, MILLISECOND, PathSpec, QueueLimit, SECOND,
    Scenario, Simulation,
};
use pk3c_ccp::ensemble::Ensemble;
use pk3c_ccp::params::Params;
use pk3c_ccp::simulate::Simulator;
use pk3c_ccp::units::Micros;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Path, flows, and guests with different seeds, where chance has a say. At 200 Mbit/s packet by packet the guest's
/// CPU is the limit.
const CASES: [(&str, u32, u64); 13] = [
    ("rate=50mbit,rtt=40ms,queue=1bdp", 1, 1),
    ("rate=50mbit,rtt=40ms,queue=1bdp", 4, 1),
    ("rate=50mbit,rtt=40ms,queue=10", 1, 1),
    ("rate=50mbit,rtt=40ms,queue=10", 4, 1),
    ("rate=50mbit,rtt=40ms,queue=1bdp,loss=1%", 1, 3),
    ("rate=50mbit,rtt=40ms,queue=1bdp,loss=1%", 4, 1),
    ("rate=5mbit,rtt=40ms,queue=8bdp", 1, 1),
    ("rate=10mbit,rtt=100ms,queue=10", 1, 1),
    ("rate=20mbit,rtt=100ms,queue=1bdp,loss=0.5%", 1, 3),
    ("rate=20mbit,rtt=30ms,queue=2bdp,loss=2%", 10, 1),
    ("rate=100mbit,rtt=10ms,queue=2bdp", 4, 1),
    ("rate=150mbit,rtt=20ms,queue=1bdp", 1, 1),
    ("rate=100mbit,rtt=40ms,queue=8bdp", 10, 1),
];
const SECS: u32 = 30;
/// Runs of the simulator, whose mean is compared.
const SIMULATIONS: u64 = 10;
/// Flows of iperf3 start together; a little apart, they are not in lockstep.
const STAGGER_NS: u64 = MILLISECOND;
/// From an ACK to the agent's answer in the guest, where both share a slow core.
const AGENT_LATENCY: Micros = Micros::new(100);

/// A figure agrees if it is within either of these of the guest's.
struct Tolerance {
    part: f64,
    absolute: f64,
}
/// Goodput: relative, and as a part of the path's rate.
const GOODPUT: Tolerance = Tolerance {
    part: 0.05,
    absolute: 0.02,
};
/// Retransmissions as % of the packets: relative, and percentage points.
const AGAIN: Tolerance = Tolerance {
    part: 0.25,
    absolute: 0.25,
};
/// Jain's index: absolute only.
const JAIN: Tolerance = Tolerance {
    part: 0.0,
    absolute: 0.1,
};
/// RTT: relative, and ms.
const RTT: Tolerance = Tolerance {
    part: 0.05,
    absolute: 2.0,
};

/// Compares the simulator with real TCP in QEMU guests.
#[derive(Parser)]
struct Options {
    /// The agent's binary, of the same source as this comparison; needed for pk3c in guests that are yet to run.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Schemes to compare: cubic, bbr, pk3c.
    #[arg(long, value_delimiter = ',', default_value = "cubic,pk3c")]
    schemes: Vec<String>,
    /// Kernel of the guest: 6.1 or 6.12.
    #[arg(long, default_value_t)]
    kernel: KernelVersion,
    /// Results of guests that ran before, saved by --save; only what is missing is run.
    #[arg(long, value_name = "FILE")]
    guest: Option<PathBuf>,
    /// Append each guest's results to this file as it ends.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// What a guest showed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Real {
    path: String,
    scheme: String,
    flows: u32,
    seed: u64,
    goodput_mbps: f64,
    rtt_p95_ms: f64,
    retransmits: f64,
    jain: f64,
}

/// What both sides showed, means over seeds.
struct Figures {
    goodput_mbps: f64,
    rtt_p95_ms: f64,
    /// Retransmissions, % of the packets that arrived.
    again: f64,
    jain: f64,
}

impl Figures {
    fn mean(all: &[Self]) -> Self {
        let mean = |value: fn(&Self) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
        Self {
            goodput_mbps: mean(|f| f.goodput_mbps),
            rtt_p95_ms: mean(|f| f.rtt_p95_ms),
            again: mean(|f| f.again),
            jain: mean(|f| f.jain),
        }
    }

    /// Part of the packets that were retransmissions.
    fn part_again(retransmits: f64, goodput_mbps: f64) -> f64 {
        let packets = goodput_mbps * 1e6 / 8.0 * f64::from(SECS) / pathsim::MSS as f64;
        retransmits / packets.max(1.0) * 100.0
    }
}

impl Tolerance {
    fn allows(&self, real: f64, simulated: f64, unit: f64) -> bool {
        let off = (simulated - real).abs();
        off <= self.part * real || off <= self.absolute * unit
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let simulator = Simulator::new()?;
    let interrupt = Interrupt::on_signals()?;
    let mut known = known(&options)?;
    let needs_agent = options.schemes.iter().any(|scheme| scheme == "pk3c");
    if needs_agent && options.agent.is_none() && known.is_empty() {
        bail!("pk3c in guests needs --agent FILE; or compare --schemes cubic,bbr alone");
    }
    let mut disagree = 0;
    println!(
        "| path | flows | scheme | goodput: guest, sim (Mbit/s) | RTT p95: guest, sim (ms) | retransmitted: guest, sim (%) | Jain: guest, sim | agree |\n|---|---|---|---|---|---|---|---|"
    );
    for scheme in &options.schemes {
        for (text, flows, seeds) in CASES {
            let path = guest::parse_path(text)?;
            let mut real = Vec::new();
            for seed in 1..=seeds {
                real.push(match find(&known, text, scheme, flows, seed) {
                    Some(real) => real.clone(),
                    None => {
                        let real =
                            run_guest(&options, &interrupt, text, &path, scheme, flows, seed)?;
                        known.push(real.clone());
                        real
                    }
                });
            }
            let real: Vec<_> = real.iter().map(Real::figures).collect();
            let simulated: Result<Vec<_>> = (1..=SIMULATIONS)
                .map(|seed| simulate(&simulator, &path, scheme, flows, seed))
                .collect();
            let (real, simulated) = (Figures::mean(&real), Figures::mean(&simulated?));
            let rate_mbps = path.rate_bps as f64 / 1e6;
            let (of, at) = (&real, &simulated);
            let verdicts = [
                (
                    "goodput",
                    GOODPUT.allows(of.goodput_mbps, at.goodput_mbps, rate_mbps),
                ),
                ("RTT", RTT.allows(of.rtt_p95_ms, at.rtt_p95_ms, 1.0)),
                ("retransmissions", AGAIN.allows(of.again, at.again, 1.0)),
                ("Jain", JAIN.allows(of.jain, at.jain, 1.0)),
            ];
            let beyond = verdicts.iter().filter(|(_, agrees)| !agrees);
            let beyond: Vec<_> = beyond.map(|(figure, _)| *figure).collect();
            disagree += u32::from(!beyond.is_empty());
            let agree = match beyond.as_slice() {
                [] => "yes".to_owned(),
                figures => format!("**no: {}**", figures.join(", ")),
            };
            println!(
                "| {text} | {flows} | {scheme} | {:.2}, {:.2} | {:.1}, {:.1} | {:.2}, {:.2} | {:.3}, {:.3} | {agree} |",
                real.goodput_mbps,
                simulated.goodput_mbps,
                real.rtt_p95_ms,
                simulated.rtt_p95_ms,
                real.again,
                simulated.again,
                real.jain,
                simulated.jain,
            );
        }
    }
    println!(
        "\nTolerance: goodput within {:.0} % or {:.0} % of the rate, RTT p95 within {:.0} % or {} ms, retransmissions \
         within {:.0} % or {} percentage points, Jain's index within {}. {disagree} of {} disagree.",
        GOODPUT.part * 100.0,
        GOODPUT.absolute * 100.0,
        RTT.part * 100.0,
        RTT.absolute,
        AGAIN.part * 100.0,
        AGAIN.absolute,
        JAIN.absolute,
        CASES.len() * options.schemes.len(),
    );
    Ok(ExitCode::from(u8::from(disagree > 0)))
}

fn known(options: &Options) -> Result<Vec<Real>> {
    let Some(file) = &options.guest else {
        return Ok(Vec::new());
    };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the guests' results {}", file.display()))?;
    let line = |(number, line)| {
        serde_json::from_str(line).with_context(|| {
            format!(
                "{}, line {number} is not a guest's result: make the file with --save",
                file.display()
            )
        })
    };
    (1..).zip(text.lines()).map(line).collect()
}

fn find<'a>(
    known: &'a [Real],
    path: &str,
    scheme: &str,
    flows: u32,
    seed: u64,
) -> Option<&'a Real> {
    known.iter().find(|real| {
        (
            real.path.as_str(),
            real.scheme.as_str(),
            real.flows,
            real.seed,
        ) == (path, scheme, flows, seed)
    })
}

impl Real {
    fn figures(&self) -> Figures {
        Figures {
            goodput_mbps: self.goodput_mbps,
            rtt_p95_ms: self.rtt_p95_ms,
            again: Figures::part_again(self.retransmits, self.goodput_mbps),
            jain: self.jain,
        }
    }
}

fn run_guest(
    options: &Options,
    interrupt: &Interrupt,
    text: &str,
    path: &LabPath,
    scheme: &str,
    flows: u32,
    seed: u64,
) -> Result<Real> {
    let config = Config {
        kernel: options.kernel,
        agent: options.agent.clone(),
        seed,
        interrupt: interrupt.clone(),
        ..Config::default()
    };
    let kind = match scheme {
        "cubic" | "bbr" => Scheme::Kernel(scheme.to_owned()),
        _ if options.agent.is_none() => bail!("scheme {scheme} needs --agent FILE"),
        _ => Scheme::Agent {
            name: scheme.to_owned(),
            command: [AGENT_BINARY, "run", "--log-format", "json"]
                .map(str::to_owned)
                .to_vec(),
        },
    };
    let run = GuestRun {
        path: path.clone(),
        scheme: kind,
        flows,
        secs: SECS,
        events: Vec::new(),
    };
    let outcomes = guest::run(&config, &[run], &mut |progress| eprintln!("{progress}"))?;
    let row = &outcomes.first().context("the guest had no outcome")?.row;
    if row.is_void() {
        bail!("{text}, {flows} flows: the agent did not drive them all the time: look at its log");
    }
    let real = Real {
        path: text.to_owned(),
        scheme: scheme.to_owned(),
        flows,
        seed,
        goodput_mbps: row.goodput_mbps,
        rtt_p95_ms: row.rtt_p95_ms,
        retransmits: row.retransmits as f64,
        jain: row.jain,
    };
    if let Some(file) = &options.save {
        let cannot = || format!("cannot write {}", file.display());
        let mut open = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file)
            .with_context(cannot)?;
        writeln!(open, "{}", serde_json::to_string(&real)?).with_context(cannot)?;
    }
    Ok(real)
}

fn simulate(
    simulator: &Simulator,
    lab: &LabPath,
    scheme: &str,
    flows: u32,
    seed: u64,
) -> Result<Figures> {
    let mut path = PathSpec::clean(lab.rate_bps, lab.rtt.as_nanos() as u64);
    path.queue = QueueLimit::Packets(lab.queue_packets);
    path.loss = Loss::Random(lab.loss);
    path.loss_place = LossPlace::InFront;
    let specs = (0..u64::from(flows)).map(|number| FlowSpec {
        // Seeds differ in more than their losses, of which a clean path has none.
        start_ns: number * STAGGER_NS + seed * STAGGER_NS / 7,
        burst_segments: 1,
        ..FlowSpec::new(scheme)
    });
    let scenario = Scenario {
        path,
        flows: specs.collect(),
        duration_ns: u64::from(SECS) * SECOND,
        seed,
        series: false,
    };
    let params = Arc::new(Params::default());
    let controllers = scenario.flows.iter().zip(0u64..);
    let ensemble = Ensemble::default();
    let controllers = controllers.map(|(spec, number)| -> Result<Box<dyn Controller>> {
        Ok(match scheme {
            "cubic" => Box::new(Cubic::default()),
            "bbr" => Box::new(Bbr::new(seed * 1000 + number)),
            "pk3c" => {
                let start = Micros::new(spec.start_ns / 1000);
                let seed = seed * 1000 + number;
                Box::new(simulator.flow(params.clone(), seed, start, AGENT_LATENCY, &ensemble))
            }
            other => bail!("the simulator has no scheme {other}: compare cubic, bbr and pk3c"),
        })
    });
    let controllers = controllers.collect::<Result<_>>()?;
    let results = Simulation::new(scenario, controllers)?.run();
    let again: u64 = results.flows.iter().map(|flow| flow.retransmissions).sum();
    Ok(Figures {
        goodput_mbps: results.goodput_mbps,
        rtt_p95_ms: results.srtt_p95_ms.context("no RTT sample")?,
        again: Figures::part_again(again as f64, results.goodput_mbps),
        jain: pathsim::jain(results.flows.iter().map(|flow| flow.goodput_mbps)),
    })
}
