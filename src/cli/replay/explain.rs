//! A record for people: what was measured in each interval, and what was made of it.

use super::ReplayArgs;
use super::difference::{command, describe, mbps};
use pk3c_ccp::estimate::LossClass;
use pk3c_ccp::plan::Reason;
use pk3c_ccp::program::Slot;
use pk3c_ccp::record::{Decided, Input, Measured, Step, Told};
use pk3c_ccp::units::{Micros, Rate};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Before what is told of a row beside its figures.
pub(in crate::cli) const ANSWER: &str = "                ";
/// Rows between two headings.
const ROWS: usize = 40;
pub(in crate::cli) const HEADING: [&str; 2] = [
    "  time s  flow  plan slot      asked     sent  arrived  lost                     usual RTT min    mean   slope   queue  decision",
    "                              Mbit/s   Mbit/s   Mbit/s                               %      ms      ms       %      ms",
];
pub(in crate::cli) const NOTE: &str = "\
Rates are on the sender's scale, with headers. `lost`: packets of those sent, share, and where: at a full queue
(congestive), elsewhere (random), or not known. `usual`: the loss that the path is taken to have anyway. `slope`: growth
of the RTT per time of sending. `queue`: smallest RTT of the interval over the smallest remembered. `before`: packets
sent before the plan took hold; they, and others with `-` under `asked`, were not sent at a rate that is judged.
`=>`: what the datapath was told, and why.";

/// Tells the decisions that were asked for.
pub(super) struct Explanation {
    flows: Vec<u64>,
    from_s: f64,
    to_s: f64,
    json: bool,
    rows: usize,
}

impl Explanation {
    pub(super) fn new(args: &ReplayArgs) -> Self {
        Self {
            flows: args.flows.clone(),
            from_s: args.from.unwrap_or(0.0),
            to_s: args.to.unwrap_or(f64::MAX),
            json: args.json,
            rows: 0,
        }
    }

    pub(super) fn tell(&mut self, step: &Step, out: &mut impl Write) -> io::Result<()> {
        if let Input::Start { sock_id, .. } = step.input
            && self.flows.contains(&sock_id.into())
        {
            self.flows.push(step.flow);
        }
        let flow = self.flows.is_empty() || self.flows.contains(&step.flow);
        if !flow || !(self.from_s..=self.to_s).contains(&step.at_s) {
            return Ok(());
        }
        if self.json {
            return writeln!(out, "{}", object(step));
        }
        if self.rows == 0 {
            writeln!(out, "{NOTE}\n")?;
        }
        if self.rows.is_multiple_of(ROWS) {
            writeln!(out, "{}", HEADING.join("\n"))?;
        }
        self.rows += 1;
        writeln!(out, "{}", row(step))?;
        if let Some(answer) = answer(step.rate_before, &step.replayed) {
            writeln!(out, "{ANSWER}=> {answer}")?;
        }
        if step.differs() {
            writeln!(
                out,
                "{ANSWER}differs; recorded: {}",
                describe(&step.recorded)
            )?;
        }
        if let Some(changed) = step.changed.as_ref().filter(|_| step.would_change()) {
            writeln!(
                out,
                "{ANSWER}with the changed parameters: {}",
                describe(changed)
            )?;
        }
        Ok(())
    }
}

fn row(step: &Step) -> String {
    let measured = match &step.input {
        Input::Start { .. } | Input::Readopt { .. } => beginning(&step.input),
        Input::Report(measured) => columns(measured),
    };
    format!(
        "{:>8.3}  {:>4}  {measured}  {}",
        step.at_s, step.flow, step.replayed.reason
    )
}

fn beginning(input: &Input) -> String {
    let running = |resume: &Option<(Rate, Micros)>| {
        resume.map_or_else(String::new, |(rate, srtt)| {
            format!(
                ", runs at {:.3} Mbit/s, RTT {} ms",
                rate.mbit(),
                millis(srtt)
            )
        })
    };
    match input {
        Input::Start {
            ends: (local, remote),
            mss,
            resume,
            ..
        } => format!(
            "begins: {local} to {remote}, segments of {} B{}",
            mss.get(),
            running(resume)
        ),
        Input::Readopt { resume } => format!("is driven by the agent again{}", running(resume)),
        Input::Report(_) => String::new(),
    }
}

/// The columns of [`HEADING`] behind time and flow, up to the decision.
pub(in crate::cli) fn columns(measured: &Measured) -> String {
    let Measured {
        plan,
        timeout,
        mi,
        class,
        loss_floor,
        rtt_min,
    } = measured;
    let slot = match mi.slot {
        _ if *timeout => "rto".to_owned(),
        Slot::Before => "before".to_owned(),
        Slot::Trial(index) => format!("trial{}", index + 1),
        Slot::Hold => "hold".to_owned(),
    };
    let (lost, pkts) = (mi.lost_pkts, mi.pkts());
    let lost = if lost < 1.0 {
        format!("0/{pkts:.0}")
    } else {
        let (share, place) = (100.0 * mi.loss(), class_name(*class));
        format!("{lost:.0}/{pkts:.0} {share:.1}% {place}")
    };
    let rtt = mi.rtt.as_ref();
    let ms = |time: Option<Micros>| time.map_or_else(|| "-".to_owned(), millis);
    format!(
        "{plan:>4} {slot:<7} {:>8} {:>8} {:>8}  {lost:<24} {:>5} {:>7} {:>7} {:>7} {:>7}",
        rate(mi.asked),
        rate(Some(mi.send_rate).filter(|rate| *rate > Rate::ZERO)),
        rate(Some(mi.goodput).filter(|rate| *rate > Rate::ZERO)),
        format!("{:.1}", 100.0 * loss_floor),
        ms(rtt.map(|rtt| rtt.min)),
        ms(rtt.map(|rtt| rtt.mean)),
        rtt.map_or_else(
            || "-".to_owned(),
            |rtt| format!("{:+.1}", 100.0 * rtt.slope)
        ),
        ms(rtt.map(|rtt| rtt.min - *rtt_min)),
    )
}

fn class_name(class: LossClass) -> &'static str {
    match class {
        LossClass::None => "none",
        LossClass::Random => "random",
        LossClass::Congestive => "congestive",
        LossClass::Unknown => "unknown",
    }
}

fn rate(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.3}", rate.mbit()))
}

fn millis(time: Micros) -> String {
    format!("{:.1}", time.as_secs() * 1e3)
}

/// What was done, and why, if something was.
pub(in crate::cli) fn answer(rate_before: Rate, decided: &Decided) -> Option<String> {
    let before = mbps(rate_before.to_wire());
    let now = mbps(decided.rate);
    if matches!(decided.told, None | Some(Told::Window)) && before == now {
        return None;
    }
    let change = if before > 0.0 && before != now {
        format!(
            "{before:.3} to {now:.3} Mbit/s ({:+.1}%)",
            100.0 * (now / before - 1.0)
        )
    } else {
        format!("{now:.3} Mbit/s")
    };
    let reason = &decided.reason;
    let known = Reason::ALL.iter().find(|known| known.name() == *reason);
    let help = known.map_or("", |known| known.help());
    let told = decided
        .told
        .as_ref()
        .map(|told| format!("; {}", command(told)));
    Some(format!(
        "{}: {change}. {help} ({reason}{})",
        decided.phase,
        told.unwrap_or_default()
    ))
}

fn object(step: &Step) -> Value {
    let ms = |time: Micros| time.as_secs() * 1e3;
    let measured = match &step.input {
        Input::Start {
            sock_id,
            ends: (local, remote),
            mss,
            init_cwnd,
            resume,
        } => json!({
            "input": "start", "sock_id": sock_id, "local": local, "remote": remote, "mss_bytes": mss.get(), "init_cwnd_bytes": init_cwnd.get(),
            "resume_mbps": resume.map(|(rate, _)| rate.mbit()), "resume_rtt_ms": resume.map(|(_, rtt)| ms(rtt)),
        }),
        Input::Readopt { resume } => json!({
            "input": "readopt",
            "resume_mbps": resume.map(|(rate, _)| rate.mbit()), "resume_rtt_ms": resume.map(|(_, rtt)| ms(rtt)),
        }),
        Input::Report(measured) => measured_object(measured),
    };
    let mut object = json!({
        "line": step.line, "flow": step.flow, "at_s": step.at_s, "measured": measured,
        "rate_before_mbps": step.rate_before.mbit(), "decision": step.replayed,
    });
    if step.differs() {
        object["recorded"] = json!(step.recorded);
    }
    if step.would_change() {
        object["changed"] = json!(step.changed);
    }
    object
}

/// What a report said, as one object.
pub(in crate::cli) fn measured_object(measured: &Measured) -> Value {
    let ms = |time: Micros| time.as_secs() * 1e3;
    let Measured {
        plan,
        timeout,
        mi,
        class,
        loss_floor,
        rtt_min,
    } = measured;
    json!({
        "input": "report", "plan": plan, "timeout": timeout,
        "slot": match mi.slot { Slot::Before => 0, Slot::Trial(index) => index + 1, Slot::Hold => 5 },
        "asked_mbps": mi.asked.map(Rate::mbit), "sent_mbps": mi.send_rate.mbit(), "arrived_mbps": mi.goodput.mbit(),
        "sent_for_ms": ms(mi.sent_for), "delivered_pkts": mi.delivered_pkts, "lost_pkts": mi.lost_pkts,
        "loss": mi.loss(), "loss_class": class_name(*class), "loss_floor": loss_floor,
        "rtt_min_ms": mi.rtt.map(|rtt| ms(rtt.min)), "rtt_mean_ms": mi.rtt.map(|rtt| ms(rtt.mean)),
        "rtt_slope": mi.rtt.map(|rtt| rtt.slope), "rtt_slope_se": mi.rtt.map(|rtt| rtt.slope_se),
        "queue_ms": mi.rtt.map(|rtt| ms(rtt.min - *rtt_min)), "limited": mi.limited, "stalled": mi.stalled,
    })
}
