//! Keys of `[path]`.

use super::aqm::Aqm;
use super::reader::Table;
use super::values;
use super::{PathParts, bucket, losses, uniform_jitter};
use anyhow::Result;
use pathsim::{
    Jitter, LossPlace, PathSpec, QueueDiscipline, QueueLimit, RateSchedule, RouteChange, SECOND,
    TokenBucket,
};
use std::path::Path;

pub(super) const PATH_KEYS: &[&str] = &[
    "rate",
    "rate-swing",
    "rate-wander",
    "poisson",
    "steps",
    "trace",
    "rtt",
    "rtt-steps",
    "queue",
    "aqm",
    "codel-target",
    "codel-interval",
    "pie-target",
    "loss",
    "loss-burst",
    "loss-place",
    "ack-loss",
    "ack-loss-burst",
    "police",
    "police-burst",
    "shape",
    "shape-burst",
    "jitter",
    "jitter-distribution",
    "reorder",
    "delay-limit",
    "loopback",
];
pub(super) const SWING_KEYS: &[&str] = &["by", "period"];
pub(super) const WANDER_KEYS: &[&str] = &["by", "every", "memory"];

/// Deliveries are drawn for at least so long, so that a short run's queue of bandwidth-delay products is that of a long
/// one.
const DRAWN_NS: u64 = 60 * SECOND;

/// What a path's keys mean depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    /// Where a trace without a full path is looked for.
    pub(super) folder: &'a Path,
    /// How long a rate that is drawn lasts, at least.
    pub(super) length_ns: u64,
    pub(super) seed: u64,
}

/// The path, and whether it is the loopback device.
pub(super) fn read(mut table: Table<'_>, setting: Setting<'_>) -> Result<(PathSpec, bool)> {
    table.expect(PATH_KEYS)?;
    if table.take("loopback", values::yes_or_no)?.unwrap_or(false) {
        if let Some(key) = PATH_KEYS.iter().find(|key| table.has(key)) {
            return Err(table.wrong_here(format_args!(
                "the loopback device has no bottleneck: leave out `{key}`, or `loopback`"
            )));
        }
        return Ok((unlimited(), true));
    }
    let rate = read_rate(&mut table, setting)?;
    let (rtt_ns, route_changes) = read_delay(&mut table)?;
    let aqm = table.take("aqm", Aqm::named)?.unwrap_or(Aqm::None);
    let queue = table.take("queue", str::parse)?;
    let parts = PathParts {
        rate,
        rtt_ns,
        queue: queue.unwrap_or(aqm.usual_queue()),
        loss: table.take("loss", values::loss)?.unwrap_or(0.0),
        loss_burst: table.take("loss-burst", values::burst)?,
        jitter: read_jitter(&mut table)?,
        policer: read_bucket(&mut table, "police", "police-burst")?,
        shaper: read_bucket(&mut table, "shape", "shape-burst")?,
    };
    // A state that loses everything is entered from the other one: the bursts must be long enough for the ratio.
    if parts
        .loss_burst
        .is_some_and(|burst| parts.loss > burst / (burst + 1.0))
    {
        return Err(table.wrong_here(
            "loss-burst is too short for so much loss: loss may be loss-burst / (loss-burst + 1)",
        ));
    }
    let mut path = parts.path();
    path.route_changes = route_changes;
    path.discipline = read_discipline(&mut table, aqm)?;
    path.loss_place = table.take("loss-place", loss_place)?.unwrap_or_default();
    let ack_loss = table.take("ack-loss", values::loss)?.unwrap_or(0.0);
    path.ack_loss = losses(ack_loss, table.take("ack-loss-burst", values::burst)?);
    path.delay_limit_packets = table.take("delay-limit", values::packets)?;
    path.check().map_err(|error| table.wrong_here(error))?;
    Ok((path, false))
}

/// What stands for a path without a bottleneck.
fn unlimited() -> PathSpec {
    PathSpec {
        queue: QueueLimit::Packets(10_000_000),
        ..PathSpec::clean(100_000_000_000, 0)
    }
}

fn read_rate(table: &mut Table<'_>, setting: Setting<'_>) -> Result<RateSchedule> {
    let length_ns = setting.length_ns.max(DRAWN_NS);
    let rate = table.take("rate", values::rate)?;
    let poisson = table.take("poisson", values::rate)?;
    let steps = table.tables("steps")?;
    let file = table.take("trace", values::line)?;
    let only = rate.filter(|_| poisson.is_none() && steps.is_none() && file.is_none());
    if let Some(mut wander) = table.table("rate-wander")? {
        wander.expect(WANDER_KEYS)?;
        let by = wander.need("by", "a ratio as in \"50%\"", values::loss)?;
        let every_ns = wander.need("every", "a time as in \"200ms\"", values::duration)?;
        let memory_ns = wander.need("memory", "a time as in \"3s\"", values::duration)?;
        let Some(median) = only.filter(|_| !table.has("rate-swing")) else {
            return Err(wander.wrong_here("only what the key `rate` gives can wander"));
        };
        return RateSchedule::wander(median, by, every_ns, memory_ns, length_ns, setting.seed)
            .map_err(|error| wander.wrong_here(error));
    }
    if let Some(mut swing) = table.table("rate-swing")? {
        swing.expect(SWING_KEYS)?;
        let by = swing.need("by", "a part of the rate as in \"15%\"", values::loss)?;
        let period_ns = swing.need("period", "a time as in \"5s\"", values::duration)?;
        let Some(mean) = only else {
            return Err(swing.wrong_here("only what the key `rate` gives can swing"));
        };
        let amplitude = (mean as f64 * by).round() as u64;
        return RateSchedule::swing(mean, amplitude, period_ns, length_ns)
            .map_err(|error| swing.wrong_here(error));
    }
    match (rate, poisson, steps, file) {
        (Some(bps), None, None, None) => Ok(RateSchedule::Constant(bps)),
        (None, Some(bps), None, None) => RateSchedule::poisson(bps, length_ns, setting.seed)
            .map_err(|error| table.wrong_here(error)),
        (None, None, Some(steps), None) => Ok(RateSchedule::Steps(read_steps(
            steps,
            table,
            "rate",
            "a rate as in 50mbit",
            values::rate,
        )?)),
        (None, None, None, Some(file)) => super::trace(&setting.folder.join(file))
            .map_err(|error| table.wrong_here(format_args!("{error:#}"))),
        _ => Err(table.wrong_here("give one of the keys rate, steps, trace and poisson")),
    }
}

fn read_jitter(table: &mut Table<'_>) -> Result<Jitter> {
    let jitter_ns = table.take("jitter", values::time)?.unwrap_or(0);
    let reorder = table.take("reorder", values::yes_or_no)?.unwrap_or(false);
    match table.take("jitter-distribution", distribution)? {
        Some(Distribution::Exponential) if reorder => Err(table
            .wrong_here("exponential jitter keeps the order: leave out reorder, or use uniform")),
        Some(Distribution::Exponential) if jitter_ns > 0 => {
            Ok(Jitter::Exponential { mean_ns: jitter_ns })
        }
        _ => Ok(uniform_jitter(jitter_ns, reorder)),
    }
}

fn read_bucket(
    table: &mut Table<'_>,
    of_rate: &'static str,
    of_burst: &'static str,
) -> Result<Option<TokenBucket>> {
    let rate = table.take(of_rate, values::rate)?;
    let burst = table.take(of_burst, values::size)?;
    if rate.is_none() && burst.is_some() {
        return Err(table.wrong_here(format_args!(
            "{of_burst} needs {of_rate}, the rate that passes"
        )));
    }
    Ok(bucket(rate, burst))
}

enum Distribution {
    Uniform,
    Exponential,
}

fn distribution(text: &str) -> Result<Distribution, String> {
    match text {
        "uniform" => Ok(Distribution::Uniform),
        "exponential" => Ok(Distribution::Exponential),
        _ => Err(format!(
            "`{text}` is not a distribution: write uniform or exponential"
        )),
    }
}

/// One RTT, or several from times on.
fn read_delay(table: &mut Table<'_>) -> Result<(u64, Vec<RouteChange>)> {
    const FORM: &str = "a time as in \"40ms\"";
    let Some(steps) = table.tables("rtt-steps")? else {
        return Ok((table.need("rtt", FORM, values::time)?, Vec::new()));
    };
    if table.has("rtt") {
        return Err(table.wrong_here("give one of the keys rtt and rtt-steps"));
    }
    let steps = read_steps(steps, table, "rtt", FORM, values::time)?;
    let changes = steps.iter().skip(1);
    let changes = changes.map(|&(at_ns, rtt_ns)| RouteChange { at_ns, rtt_ns });
    Ok((steps[0].1, changes.collect()))
}

fn read_discipline(table: &mut Table<'_>, aqm: Aqm) -> Result<QueueDiscipline> {
    let target_ns = table.take("codel-target", values::duration)?;
    let interval_ns = table.take("codel-interval", values::duration)?;
    let pie_target_ns = table.take("pie-target", values::duration)?;
    if target_ns.or(interval_ns).is_some() && aqm != Aqm::CoDel {
        return Err(table.wrong_here("codel-target and codel-interval need aqm = \"codel\""));
    }
    if pie_target_ns.is_some() && aqm != Aqm::Pie {
        return Err(table.wrong_here("pie-target needs aqm = \"pie\""));
    }
    let mut discipline = aqm.discipline();
    match &mut discipline {
        QueueDiscipline::CoDel(codel) => {
            codel.target_ns = target_ns.unwrap_or(codel.target_ns);
            codel.interval_ns = interval_ns.unwrap_or(codel.interval_ns);
        }
        QueueDiscipline::Pie(pie) => pie.target_ns = pie_target_ns.unwrap_or(pie.target_ns),
        QueueDiscipline::DropTail | QueueDiscipline::Sfq(_) => {}
    }
    Ok(discipline)
}

fn loss_place(text: &str) -> Result<LossPlace, String> {
    match text {
        "behind" => Ok(LossPlace::Behind),
        "in-front" => Ok(LossPlace::InFront),
        _ => Err(format!(
            "`{text}` is not a place for loss: write behind or in-front (of the bottleneck)"
        )),
    }
}

/// Values from times on: `[{ at = "0s", key = … }, …]`.
fn read_steps<T>(
    steps: Vec<Table<'_>>,
    path: &Table<'_>,
    key: &'static str,
    form: &str,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(u64, T)>> {
    let mut read: Vec<(u64, T)> = Vec::new();
    for mut step in steps {
        step.expect(&["at", key])?;
        let at = step.need("at", "a time as in \"10s\"", values::time)?;
        let in_order = read.last().map_or(at == 0, |last| last.0 < at);
        if !in_order {
            return Err(step.wrong_here("the times `at` must ascend, the first one be 0s"));
        }
        read.push((at, step.need(key, form, &value)?));
    }
    if read.is_empty() {
        return Err(path.wrong_here("there are no steps: write at least the one at 0s"));
    }
    Ok(read)
}
