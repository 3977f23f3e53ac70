//! What determines a run, in words and as a hash: runs with equal hashes and seeds need not be made twice.

use pathsim::{
    Jitter, Loss, MSS, PathSpec, QueueDiscipline, QueueLimit, RateSchedule, Scenario, WIRE,
};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::path::Path;

use super::result::Inputs;
use super::run::{FlowScheme, Run};
use crate::scenario::Scheme;

/// Hex digits of a hash: 64 bits, enough for millions of runs.
const DIGITS: usize = 16;
const NS_PER_S: f64 = 1e9;

/// What a scenario says of itself, beside what is run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Its title.
    pub title: Option<String>,
    /// Where it comes from.
    pub source: Option<String>,
    /// What was changed to make it possible here.
    pub scaled: Option<String>,
    /// Whether this is its short form.
    pub quick: bool,
}

/// What carries a run, as far as its results depend on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carrier {
    /// `host`, `guest` or `sim`.
    pub backend: String,
    /// The kernel that carries TCP, release and build; empty in the simulator.
    pub kernel: String,
    /// State of the emulator, the senders and the simulator: a hash of their sources.
    pub sources: String,
    /// The agents' program and their arguments: a hash of its file.
    pub program: String,
    /// CPUs online; 0 where results do not depend on them.
    pub cpus: usize,
    /// Time from a packet's ACK to the answer of the simulator's agent, ns; real agents take the time that they take.
    pub agent_latency_ns: u64,
}

impl Inputs {
    /// What determines `run`.
    pub fn of(run: &Run, about: &About, carrier: &Carrier) -> Self {
        let Scenario {
            path, duration_ns, ..
        } = &run.scenario;
        Self {
            scenario: run.id.clone(),
            title: about.title.clone(),
            source: about.source.clone(),
            scaled: about.scaled.clone(),
            quick: about.quick,
            scheme: run.scheme.clone(),
            backend: carrier.backend.clone(),
            seed: run.scenario.seed,
            duration_s: *duration_ns as f64 / NS_PER_S,
            path: match run.settings.loopback {
                true => "loopback".to_owned(),
                false => path_in_words(path),
            },
            capacity_mbps: (!run.settings.loopback).then(|| capacity_mbps(path, 0, *duration_ns)),
            rtt_ms: path.rtt_ns as f64 / 1e6,
            queue_packets: match path.queue {
                QueueLimit::Packets(packets) => Some(packets).filter(|_| !run.settings.loopback),
                QueueLimit::Bytes(_) => None,
            },
            loss: path.loss.ratio(),
            settings: run.settings.clone(),
            hash: hash(run, carrier),
        }
    }
}

/// What a path carries at most between two times, net of headers and random loss, Mbit/s of payload.
pub fn capacity_mbps(path: &PathSpec, from_ns: u64, to_ns: u64) -> f64 {
    let bytes = path.capacity_bytes(from_ns, to_ns) * (MSS as f64 / WIRE as f64);
    let seconds = to_ns.saturating_sub(from_ns).max(1) as f64 / NS_PER_S;
    bytes * (1.0 - path.wasted()) * 8e-6 / seconds
}

/// A path as people say it: `50 Mbit/s, 40 ms, 167 packets, 1 % loss`.
pub fn path_in_words(path: &PathSpec) -> String {
    let rate = match &path.rate {
        RateSchedule::Constant(bps) => rate_in_words(*bps as f64),
        RateSchedule::Steps(steps) => {
            let rates: Vec<_> = steps.iter().map(|(_, bps)| *bps as f64).collect();
            let (low, high) = rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| {
                (low.min(*rate), high.max(*rate))
            });
            format!("{} to {}", rate_in_words(low), rate_in_words(high))
        }
        varying => {
            let mean = varying.capacity_bytes(0, 60 * 1_000_000_000) * 8.0 / 60.0;
            format!("{} on average", rate_in_words(mean))
        }
    };
    let mut words = format!("{rate}, {} ms", round(path.rtt_ns as f64 / 1e6));
    // Writing to a string cannot fail.
    let _ = match path.queue {
        QueueLimit::Packets(1) => write!(words, ", 1 packet"),
        QueueLimit::Packets(packets) => write!(words, ", {packets} packets"),
        QueueLimit::Bytes(bytes) => write!(words, ", {} kB", round(bytes as f64 / 1e3)),
    };
    if path.discipline != QueueDiscipline::DropTail {
        // The name alone; its figures are in the scenario.
        let name = format!("{:?}", path.discipline);
        let name = name.split(['(', ' ', '{']).next().unwrap_or_default();
        let _ = write!(words, ", {name}");
    }
    let _ = match path.jitter {
        Jitter::None => Ok(()),
        Jitter::Uniform { max_ns, reorder } => write!(
            words,
            ", jitter to {} ms{}",
            round(max_ns as f64 / 1e6),
            if reorder { " with reordering" } else { "" }
        ),
        Jitter::Exponential { mean_ns } => {
            write!(words, ", jitter of {} ms", round(mean_ns as f64 / 1e6))
        }
    };
    for (bucket, done) in [(path.policer, "policed"), (path.shaper, "shaped")] {
        if let Some(bucket) = bucket {
            let _ = write!(
                words,
                ", {done} to {} with bursts of {} kB",
                rate_in_words(bucket.rate_bps as f64),
                round(bucket.burst_bytes as f64 / 1e3)
            );
        }
    }
    for (loss, of) in [(&path.loss, "loss"), (&path.ack_loss, "loss of ACKs")] {
        let _ = match loss {
            Loss::None => Ok(()),
            Loss::Bursts { mean_length, .. } => write!(
                words,
                ", {} % {of} in bursts of {}",
                round(loss.ratio() * 100.0),
                round(*mean_length)
            ),
            _ => write!(words, ", {} % {of}", round(loss.ratio() * 100.0)),
        };
    }
    words
}

fn rate_in_words(bps: f64) -> String {
    if bps >= 1e9 {
        format!("{} Gbit/s", round(bps / 1e9))
    } else if bps >= 1e6 {
        format!("{} Mbit/s", round(bps / 1e6))
    } else {
        format!("{} kbit/s", round(bps / 1e3))
    }
}

/// Four figures at most behind the point, none if they are 0.
fn round(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

/// Hash of all that determines the result but the seed.
fn hash(run: &Run, carrier: &Carrier) -> String {
    let mut scenario = run.scenario.clone();
    scenario.seed = 0;
    scenario.series = false;
    let mut hash = Sha256::new();
    // The text that Rust derives has every field by name, so new fields count by themselves.
    hash.update(format!(
        "{scenario:?}\n{:?}\n{:?}\n",
        run.settings, run.under_test
    ));
    for scheme in &run.schemes {
        let scheme = match scheme {
            // Where its program lies does not matter, but what it is.
            FlowScheme::Tcp(Scheme::Agent { name, command }) => {
                let arguments = command.get(1..).unwrap_or_default();
                format!("{name} {arguments:?} {}", carrier.program)
            }
            other => format!("{other:?}"),
        };
        hash.update(scheme);
        hash.update("\n");
    }
    hash.update(format!(
        "{} {} {} {}",
        carrier.backend, carrier.kernel, carrier.sources, carrier.cpus
    ));
    // The simulator's own senders are part of the program.
    if carrier.backend == "sim" {
        hash.update(format!("{} {}", carrier.program, carrier.agent_latency_ns));
    }
    hex(&hash.finalize())
}

/// Hash of a file's content.
///
/// # Errors
/// If it cannot be read.
pub fn hash_of_file(file: &Path) -> io::Result<String> {
    let mut content = File::open(file)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut content, &mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'));
    digits.take(DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::run::Settings;
    use pathsim::{FlowSpec, MILLISECOND, SECOND};

    fn run() -> Run {
        let mut path = PathSpec::clean(50_000_000, 40 * MILLISECOND);
        path.loss = Loss::Random(0.01);
        Run {
            id: "x".into(),
            scheme: "pk3c".into(),
            scenario: Scenario {
                path,
                flows: vec![FlowSpec::new("pk3c")],
                duration_ns: 10 * SECOND,
                seed: 1,
                series: false,
            },
            schemes: vec![FlowScheme::Tcp(Scheme::Agent {
                name: "pk3c".into(),
                command: vec!["/a/pk3c-ccp".into(), "run".into()],
            })],
            under_test: vec![true],
            settings: Settings::default(),
        }
    }

    fn carrier() -> Carrier {
        Carrier {
            backend: "host".into(),
            program: "1".into(),
            ..Carrier::default()
        }
    }

    #[test]
    fn a_path_reads_as_people_say_it() {
        assert_eq!(
            path_in_words(&run().scenario.path),
            "50 Mbit/s, 40 ms, 167 packets, 1 % loss"
        );
        let inputs = Inputs::of(&run(), &About::default(), &carrier());
        assert!((inputs.capacity_mbps.unwrap() - 47.784).abs() < 0.001);
    }

    #[test]
    fn the_loopback_device_has_no_path_to_tell_of() {
        let mut run = run();
        run.settings.loopback = true;
        let inputs = Inputs::of(&run, &About::default(), &carrier());
        assert_eq!(inputs.path, "loopback");
        assert_eq!((inputs.capacity_mbps, inputs.queue_packets), (None, None));
    }

    #[test]
    fn the_hash_knows_what_matters_and_nothing_else() {
        let base = hash(&run(), &carrier());
        assert_eq!(base.len(), DIGITS);
        let changed = |change: fn(&mut Run, &mut Carrier)| {
            let (mut run, mut carrier) = (run(), carrier());
            change(&mut run, &mut carrier);
            hash(&run, &carrier)
        };
        assert_eq!(base, changed(|run, _| run.scenario.seed = 9));
        assert_eq!(
            base,
            changed(|run, _| {
                let command = vec!["/b/pk3c-ccp".into(), "run".into()];
                let name = "pk3c".into();
                run.schemes = vec![FlowScheme::Tcp(Scheme::Agent { name, command })];
            })
        );
        let others = [
            changed(|run, _| run.scenario.path.rtt_ns += 1),
            changed(|run, _| run.settings.gso_max_segs = 0),
            changed(|_, carrier| carrier.program = "2".into()),
            changed(|_, carrier| carrier.kernel = "6.12".into()),
            changed(|_, carrier| carrier.backend = "sim".into()),
            changed(|_, carrier| {
                carrier.backend = "sim".into();
                carrier.agent_latency_ns = 1;
            }),
        ];
        assert!(others.iter().all(|other| *other != base), "{others:?}");
        assert_ne!(others[4], others[5]);
        assert_eq!(base, changed(|_, carrier| carrier.agent_latency_ns = 1));
    }
}
