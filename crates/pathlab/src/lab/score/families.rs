//! What is asked of each family of scenarios.

use super::figures::{Facts, Outcome, packets, payload};
use super::{Goal, Line};
use Line::{AtLeast, AtMost, Between};

/// Families that have goals.
pub(super) const FAMILIES: [&str; 17] = [
    "clean",
    "loss",
    "shallow1",
    "shallow6",
    "deep",
    "many",
    "staggered",
    "newcomer",
    "coexist",
    "rtts",
    "start",
    "change",
    "low",
    "near",
    "jitter",
    "satellite",
    "video",
];

/// Packets that may always be lost, whatever Cubic loses.
const FREE_LOSSES: f64 = 10.0;

/// The scheme under judgement, and those that draw lines.
pub(super) struct Schemes<'a> {
    pub(super) own: Outcome<'a>,
    pub(super) cubic: Option<Outcome<'a>>,
    pub(super) bbr: Option<Outcome<'a>>,
}

type Figure<'f, 'a> = &'f dyn Fn(&Outcome<'a>) -> Option<f64>;

impl<'a> Schemes<'a> {
    fn goal(&self, what: &'static str, figure: Figure<'_, 'a>, line: Option<Line>) -> Goal {
        Goal {
            what,
            figure: figure(&self.own),
            line,
            cubic: self.of_cubic(figure),
            bbr: self.bbr.as_ref().and_then(figure),
        }
    }

    fn of_cubic(&self, figure: Figure<'_, 'a>) -> Option<f64> {
        self.cubic.as_ref().and_then(figure)
    }

    /// The least of what Cubic and BBR show; of Cubic alone where BBR did not run.
    fn least_of_others(&self, figure: Figure<'_, 'a>) -> Option<f64> {
        let cubic = self.of_cubic(figure)?;
        let bbr = self.bbr.as_ref().and_then(figure);
        Some(bbr.map_or(cubic, |bbr| bbr.min(cubic)))
    }

    /// Loss that is allowed where Cubic's is.
    fn as_cubic_loses(&self, factor: f64) -> Option<Line> {
        let cubic = self.of_cubic(&Outcome::loss)?;
        let free = FREE_LOSSES / self.own.sent()?;
        Some(AtMost(cubic.max(free) * factor))
    }

    fn used(&self, least: f64) -> Goal {
        self.goal("use", &Outcome::used, Some(AtLeast(least)))
    }

    fn loss(&self, line: Option<Line>) -> Goal {
        self.goal("loss", &Outcome::loss, line)
    }

    fn jain(&self, least: f64) -> Goal {
        self.goal("Jain", &Outcome::jain, Some(AtLeast(least)))
    }

    fn rtt_p95(&self, most: Option<f64>) -> Goal {
        self.goal("RTT p95, ms", &Outcome::rtt_p95_ms, most.map(AtMost))
    }
}

/// The goals of a family; `None` if it has none.
pub(super) fn goals(
    family: &str,
    id: &str,
    facts: &Facts,
    schemes: &Schemes<'_>,
) -> Option<Vec<Goal>> {
    let rtt_ms = facts.rtt_s * 1e3;
    let rate = facts.rate();
    Some(match family {
        "clean" => vec![
            schemes.used(0.97),
            schemes.rtt_p95(Some(rtt_ms + (0.1 * rtt_ms).max(3.0))),
            schemes.loss(schemes.as_cubic_loses(1.0 / 3.0)),
        ],
        "loss" => {
            let table = [(0.001, 0.97), (0.02, 0.96), (0.05, 0.95)];
            let least = table.iter().find(|(loss, _)| facts.loss <= *loss);
            let path_lost = schemes.own.sent().map(|sent| sent * facts.loss);
            let most = path_lost.map(|lost| AtMost(1.2 * lost));
            vec![
                schemes.used(least.map_or(0.93, |(_, least)| *least)),
                schemes.goal("retransmissions", &Outcome::sent_again, most),
            ]
        }
        "shallow1" => {
            let mut goals = vec![
                schemes.used(if rate >= 200.0 { 0.90 } else { 0.95 }),
                schemes.loss(Some(AtMost(0.01))),
            ];
            if let Some(bbr) = &schemes.bbr {
                let line = bbr.used().map(AtLeast);
                goals.push(schemes.goal("use beside BBR's", &Outcome::used, line));
            }
            goals
        }
        "shallow6" => {
            let mut goals = vec![schemes.used(0.96), schemes.jain(0.95)];
            if let Some(bbr) = &schemes.bbr {
                let line = bbr.loss().map(|loss| AtMost(loss / 3.0));
                goals.push(schemes.loss(line));
            }
            goals
        }
        "deep" => vec![
            schemes.used(0.97),
            schemes.rtt_p95(Some(rtt_ms + (0.25 * rtt_ms).max(5.0))),
        ],
        "many" => {
            let least = match facts.flows {
                ..20 => 0.97,
                20..=50 => 0.95,
                _ => 0.93,
            };
            vec![
                schemes.used(0.97),
                schemes.jain(least),
                schemes.loss(schemes.as_cubic_loses(1.0)),
            ]
        }
        "staggered" => vec![schemes.jain(0.95)],
        "newcomer" => {
            let fair = payload(rate) / facts.flows as f64;
            let from_s = facts.last_start_s + 4.0;
            let share = |it: &Outcome<'_>| Some(it.of_last(from_s, from_s + 1.0)? / fair);
            vec![schemes.goal("share after 4 to 5 s", &share, Some(AtLeast(0.7)))]
        }
        "coexist" => {
            let line = Some(Between(0.40, 0.57));
            vec![schemes.goal("own share", &Outcome::own_share, line)]
        }
        "rtts" => {
            let line = Some(AtMost(2.0));
            vec![schemes.goal("highest over lowest", &Outcome::spread, line)]
        }
        "start" => start(facts, schemes),
        "change" => change(facts, schemes),
        "low" => {
            let cubic = schemes.of_cubic(&Outcome::rtt_p95_ms);
            vec![
                schemes.used(0.92),
                schemes.rtt_p95(cubic.map(|ms| 0.5 * ms)),
            ]
        }
        "near" => vec![schemes.used(0.95), schemes.loss(Some(AtMost(0.001)))],
        "jitter" => vec![schemes.used(if id.contains("50ms") { 0.80 } else { 0.85 })],
        "satellite" => {
            let full = 0.8 * payload(rate) * (1.0 - facts.loss);
            let start = |it: &Outcome<'_>| it.reached_s(0.0, full);
            let most = schemes.of_cubic(&start).map(AtMost);
            let after = &Outcome::used_second_half;
            vec![
                schemes.goal("use after the start", after, Some(AtLeast(0.9))),
                schemes.goal("start, s", &start, most),
            ]
        }
        "video" => {
            let least = if rate > 105.0 { 4.5 } else { 4.2 };
            let first = (facts.last_start_s + 5.0).ceil() as u32;
            let worst = |it: &Outcome<'_>| it.worst_second(first, facts.duration_s as u32);
            vec![schemes.goal("worst second, Mbit/s", &worst, Some(AtLeast(least)))]
        }
        _ => return None,
    })
}

/// Downloads.
fn start(facts: &Facts, schemes: &Schemes<'_>) -> Vec<Goal> {
    let seconds = &Outcome::completion_s;
    let queue = |it: &Outcome<'_>| Some(it.peak_queue()? / facts.bdp_packets());
    let best = schemes.least_of_others(seconds);
    vec![
        schemes.goal("seconds", seconds, best.map(|best| AtMost(0.95 * best))),
        schemes.goal("peak queue, BDP", &queue, Some(AtMost(1.5))),
        schemes.loss(Some(AtMost(0.01))),
    ]
}

/// After a change at half time: RTTs until 80 % of a higher rate, or until the queue of a lower one is gone; use of a
/// longer route.
fn change(facts: &Facts, schemes: &Schemes<'_>) -> Vec<Goal> {
    let at_s = facts.duration_s / 2.0;
    let to = facts.rates.last().copied().unwrap_or(0.0);
    if facts.longer_rtt_s.is_some() {
        let settled = |it: &Outcome<'_>| Some(it.of_first(at_s + 1.0, at_s + 10.0)? / payload(to));
        return vec![schemes.goal("use, 1 to 10 s after", &settled, Some(AtLeast(0.9)))];
    }
    // What ends within a bin counts as ending with it.
    let within = |rtts: f64| Some(AtMost(rtts + schemes.own.bin_s() / facts.rtt_s));
    if to > facts.rate() {
        let reached = |it: &Outcome<'_>| Some(it.reached_s(at_s, 0.8 * payload(to))? / facts.rtt_s);
        return vec![schemes.goal("RTTs to 80 %", &reached, within(10.0))];
    }
    let small = (0.25 * packets(to, facts.rtt_s)).max(10.0);
    let drained = |it: &Outcome<'_>| Some(it.drained_s(at_s, small)? / facts.rtt_s);
    vec![schemes.goal("RTTs to drain", &drained, within(8.0))]
}
