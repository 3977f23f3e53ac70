//! What of a run is shown, declared once for tables, JSON and pages.

use crate::lab::result::{FlowResult, RunResult};
use crate::lab::statistics::over_time::longest_settling_s;
use crate::lab::statistics::{quantile, worst_second};

/// A flow has settled within ± so large a part of its fair share.
pub const SETTLING_TOLERANCE: f64 = 0.25;

/// Which values of a measure are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Greater ones.
    More,
    /// Smaller ones.
    Less,
}

/// One quantity of a run.
pub struct Measure {
    /// Its key in JSON.
    pub key: &'static str,
    /// Its heading in tables, in two lines: what, and unit.
    pub heading: [&'static str; 2],
    /// What it is, for legends.
    pub about: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// What is better.
    pub better: Better,
    /// Its value; `None` if the run has none.
    pub of: fn(&RunResult) -> Option<f64>,
}

/// All measures, in the order of tables.
pub const MEASURES: [Measure; 18] = [
    Measure {
        key: "use_percent",
        heading: ["use", "%"],
        about: "goodput over what the path carries net of headers and random loss",
        digits: 1,
        better: Better::More,
        of: |run| Some(run.total.use_run? * 100.0),
    },
    Measure {
        key: "goodput_mbps",
        heading: ["goodput", "Mbit/s"],
        about: "payload at the receivers over the whole run",
        digits: 2,
        better: Better::More,
        of: |run| Some(run.total.goodput_mbps),
    },
    Measure {
        key: "rtt_p50_ms",
        heading: ["RTT50", "ms"],
        about: "median of TCP's smoothed RTT",
        digits: 1,
        better: Better::Less,
        of: |run| run.total.rtt_ms.map(|rtt| rtt.p50),
    },
    Measure {
        key: "rtt_p95_ms",
        heading: ["RTT95", "ms"],
        about: "95th percentile of the same",
        digits: 1,
        better: Better::Less,
        of: |run| run.total.rtt_ms.map(|rtt| rtt.p95),
    },
    Measure {
        key: "rtt_p99_ms",
        heading: ["RTT99", "ms"],
        about: "99th percentile of the same",
        digits: 1,
        better: Better::Less,
        of: |run| run.total.rtt_ms.map(|rtt| rtt.p99),
    },
    Measure {
        key: "owd_p95_ms",
        heading: ["OWD95", "ms"],
        about: "95th percentile of the packets' one-way delay",
        digits: 1,
        better: Better::Less,
        of: |run| run.total.owd_ms.map(|owd| owd.p95),
    },
    Measure {
        key: "retransmitted_percent",
        heading: ["retr", "%"],
        about: "segments sent again per delivered segment",
        digits: 2,
        better: Better::Less,
        of: |run| Some(run.total.retransmission_ratio * 100.0),
    },
    Measure {
        key: "loss_percent",
        heading: ["loss", "%"],
        about: "packets dropped or lost over packets sent",
        digits: 2,
        better: Better::Less,
        of: |run| run.total.loss.map(|loss| loss * 100.0),
    },
    Measure {
        key: "jain",
        heading: ["Jain", ""],
        about: "Jain's index of the flows' goodputs",
        digits: 3,
        better: Better::More,
        of: |run| (under_test(run).count() > 1).then_some(run.total.jain),
    },
    Measure {
        key: "share_beside_percent",
        heading: ["share", "%"],
        about: "part of all TCP goodput that the flows under test have beside other schemes",
        digits: 1,
        better: Better::More,
        of: |run| {
            let rate = |tested: bool| -> f64 {
                let flows = run.flows.iter().filter(|flow| flow.under_test == tested);
                flows.filter(|flow| !is_udp(flow)).map(bytes).sum()
            };
            let (own, others) = (rate(true), rate(false));
            (others > 0.0).then(|| own / (own + others) * 100.0)
        },
    },
    Measure {
        key: "completion_p50_s",
        heading: ["done50", "s"],
        about: "median time of a transfer, until its last byte is at the receiver; an unfinished one counts as longest",
        digits: 2,
        better: Better::Less,
        of: |run| completion_s(run, 0.5),
    },
    Measure {
        key: "completion_p95_s",
        heading: ["done95", "s"],
        about: "95th percentile of the same",
        digits: 2,
        better: Better::Less,
        of: |run| completion_s(run, 0.95),
    },
    Measure {
        key: "cpu_percent",
        heading: ["CPU", "%"],
        about: "CPU time of senders and agent over the run's time, 100 is one CPU",
        digits: 1,
        better: Better::Less,
        of: |run| {
            let sender = run.cpu.sender_s?;
            let all = sender + run.cpu.agent_s.unwrap_or(0.0);
            Some(all / seconds(run) * 100.0)
        },
    },
    Measure {
        key: "min_flow_mbps",
        heading: ["least", "Mbit/s"],
        about: "goodput of the slowest flow under test",
        digits: 3,
        better: Better::More,
        of: |run| {
            let rates = under_test(run).map(|flow| flow.goodput_mbps);
            rates.min_by(f64::total_cmp)
        },
    },
    Measure {
        key: "settling_s",
        heading: ["settled", "s"],
        about: "longest time from a flow's start from which it stays within 25 % of its fair share until flows come or go; never if one does not",
        digits: 1,
        better: Better::Less,
        of: |run| longest_settling_s(run, SETTLING_TOLERANCE),
    },
    Measure {
        key: "worst_second_percent",
        heading: ["worst s", "%"],
        about: "least use in any second of the second half of the run",
        digits: 1,
        better: Better::More,
        of: |run| {
            let seconds = seconds(run);
            let worst = worst_second(run, seconds / 2.0, seconds)?;
            Some(worst / run.inputs.capacity_mbps?.max(1e-9) * 100.0)
        },
    },
    Measure {
        key: "agent_cpu_percent",
        heading: ["agent", "% CPU"],
        about: "CPU time of the agent over the run's time",
        digits: 2,
        better: Better::Less,
        of: |run| Some(run.cpu.agent_s? / seconds(run) * 100.0),
    },
    Measure {
        key: "emulator_cpu_percent",
        heading: ["emul.", "% CPU"],
        about: "CPU time of the emulator over the run's time",
        digits: 1,
        better: Better::Less,
        of: |run| Some(run.cpu.emulator_s? / seconds(run) * 100.0),
    },
];

/// The measure with a key.
pub fn measure(key: &str) -> Option<&'static Measure> {
    MEASURES.iter().find(|measure| measure.key == key)
}

/// The flows under test.
pub fn under_test(run: &RunResult) -> impl Iterator<Item = &FlowResult> {
    run.flows.iter().filter(|flow| flow.under_test)
}

/// How long a run was, s: less than planned if all its transfers were complete.
pub fn seconds(run: &RunResult) -> f64 {
    run.total.seconds.unwrap_or(run.inputs.duration_s).max(1e-9)
}

/// Whether a flow sends datagrams.
pub fn is_udp(flow: &FlowResult) -> bool {
    flow.datagrams_sent.is_some() || flow.scheme.starts_with("udp")
}

fn bytes(flow: &FlowResult) -> f64 {
    flow.received_bytes as f64
}

/// Times of the transfers under test, s; infinite for unfinished ones.
pub fn completions_s(run: &RunResult) -> Vec<f64> {
    let transfers = under_test(run).flat_map(|flow| &flow.completions);
    transfers
        .map(|transfer| transfer.seconds.unwrap_or(f64::INFINITY))
        .collect()
}

fn completion_s(run: &RunResult, part: f64) -> Option<f64> {
    quantile(&completions_s(run), part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::report::sample::measured;
    use crate::lab::result::Completion;

    #[test]
    fn keys_are_unique_and_found() {
        for (index, one) in MEASURES.iter().enumerate() {
            let found = MEASURES.iter().position(|other| other.key == one.key);
            assert_eq!(found, Some(index), "{}", one.key);
            assert!(measure(one.key).is_some());
        }
        assert!(measure("speed").is_none());
    }

    #[test]
    fn an_unfinished_transfer_is_the_longest() {
        let mut run = measured("fct", "cubic", 1, 40.0);
        let transfer = |seconds| Completion {
            round: 1,
            start_s: 0.0,
            seconds,
            bytes: 10_000_000,
        };
        run.flows[0].completions = vec![transfer(Some(2.0)), transfer(None), transfer(Some(1.0))];
        let of = |key: &str| measure(key).and_then(|measure| (measure.of)(&run));
        assert_eq!(of("completion_p50_s"), Some(2.0));
        assert_eq!(of("completion_p95_s"), Some(f64::INFINITY));
        assert_eq!(
            (of("jain"), of("cpu_percent"), of("owd_p95_ms")),
            (None, None, None)
        );
    }

    #[test]
    fn what_stands_beside_others_has_a_share() {
        let mut run = measured("coexist", "pk3c", 1, 30.0);
        let of =
            |run: &RunResult| measure("share_beside_percent").and_then(|measure| (measure.of)(run));
        assert_eq!(of(&run), None);
        let mut other = run.flows[0].clone();
        (other.under_test, other.received_bytes) = (false, other.received_bytes * 3);
        run.flows.push(other);
        assert!((of(&run).unwrap() - 25.0).abs() < 1e-6);
    }
}
