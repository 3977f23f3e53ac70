//! Recorded decisions beside those taken now.

use pk3c_ccp::record::{Decided, Input, Step, Told};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Kinds of difference that are shown.
const KINDS: usize = 8;

/// What a comparison of one record came to: recorded decisions beside those of now, or with changed parameters those
/// of now beside those that they make.
#[derive(Serialize)]
pub(super) struct Comparison {
    pub(super) decisions: u64,
    pub(super) differ: u64,
    /// Those that are not as recorded even without changed parameters.
    drifted: u64,
    first: Vec<Difference>,
    /// What became what, and how often.
    kinds: Vec<Kind>,
    flows: BTreeMap<u64, FlowComparison>,
    #[serde(skip)]
    show: usize,
}

/// One decision that differs.
#[derive(Serialize)]
struct Difference {
    line: usize,
    flow: u64,
    at_s: f64,
    input: &'static str,
    before: Decided,
    after: Decided,
}

/// Decisions that differ in the same way.
#[derive(PartialEq, Serialize)]
struct Kind {
    before: String,
    after: String,
    count: u64,
}

/// The decisions of one flow.
#[derive(Default, Serialize)]
struct FlowComparison {
    decisions: u64,
    differ: u64,
    /// Means of the central rate over the flow's time.
    mean_before_mbps: f64,
    mean_after_mbps: f64,
    #[serde(skip)]
    seconds: f64,
    #[serde(skip)]
    last: Option<(f64, f64, f64)>,
}

impl FlowComparison {
    fn take(&mut self, at_s: f64, before: &Decided, after: &Decided) {
        self.decisions += 1;
        self.differ += u64::from(before != after);
        if let Some((since_s, before, after)) = self.last {
            let seconds = (at_s - since_s).max(0.0);
            self.mean_before_mbps += before * seconds;
            self.mean_after_mbps += after * seconds;
            self.seconds += seconds;
        }
        self.last = Some((at_s, mbps(before.rate), mbps(after.rate)));
    }

    fn finish(&mut self) {
        if self.seconds > 0.0 {
            self.mean_before_mbps /= self.seconds;
            self.mean_after_mbps /= self.seconds;
        } else if let Some((_, before, after)) = self.last {
            (self.mean_before_mbps, self.mean_after_mbps) = (before, after);
        }
    }
}

impl Comparison {
    pub(super) fn new(show: usize) -> Self {
        Self {
            decisions: 0,
            differ: 0,
            drifted: 0,
            first: Vec::new(),
            kinds: Vec::new(),
            flows: BTreeMap::new(),
            show,
        }
    }

    pub(super) fn take(&mut self, step: &Step) {
        self.decisions += 1;
        let (before, after) = match &step.changed {
            Some(changed) => (&step.replayed, changed),
            None => (&step.recorded, &step.replayed),
        };
        self.drifted += u64::from(step.changed.is_some() && step.differs());
        let flow = self.flows.entry(step.flow).or_default();
        flow.take(step.at_s, before, after);
        if before == after {
            return;
        }
        self.differ += 1;
        self.count(kind(before), kind(after));
        if self.first.len() < self.show {
            self.first.push(Difference {
                line: step.line,
                flow: step.flow,
                at_s: step.at_s,
                input: match step.input {
                    Input::Start { .. } => "start",
                    Input::Readopt { .. } => "readopt",
                    Input::Report(_) => "report",
                },
                before: before.clone(),
                after: after.clone(),
            });
        }
    }

    fn count(&mut self, before: String, after: String) {
        let same = |kind: &&mut Kind| kind.before == before && kind.after == after;
        match self.kinds.iter_mut().find(same) {
            Some(kind) => kind.count += 1,
            None => self.kinds.push(Kind {
                before,
                after,
                count: 1,
            }),
        }
    }

    /// Turns sums into means, and puts the most frequent kinds first.
    pub(super) fn finish(&mut self) {
        self.flows.values_mut().for_each(FlowComparison::finish);
        self.kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
    }

    /// One line; `with` names the changed parameters, if there are any.
    pub(super) fn headline(&self, with: &str) -> String {
        let plural = |count, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        let flows = plural(self.flows.len() as u64, "flow");
        let decisions = plural(self.decisions, "decision");
        match (self.differ, with) {
            (0, "") => format!("{decisions} of {flows}, all as recorded"),
            (0, _) => format!("{decisions} of {flows}, none would change with {with}"),
            (differ, "") => format!("{differ} of {decisions} of {flows} differ"),
            (differ, _) => format!("{differ} of {decisions} of {flows} would change with {with}"),
        }
    }

    /// The first differences, what kinds there are, and the flows that have any.
    pub(super) fn details(&self, with: &str, out: &mut impl Write) -> io::Result<()> {
        if self.drifted > 0 {
            writeln!(
                out,
                "  note: {} decisions are not as recorded even without that: this version decides differently",
                self.drifted
            )?;
        }
        if self.differ == 0 {
            return Ok(());
        }
        let now = if with.is_empty() { "now" } else { "with it" };
        for Difference {
            line,
            flow,
            at_s,
            input,
            before,
            after,
        } in &self.first
        {
            writeln!(
                out,
                "  line {line}, flow {flow}, {at_s:.3} s: answer to a {input}"
            )?;
            writeln!(out, "    recorded  {}", describe(before))?;
            writeln!(out, "    {now:<9} {}", describe(after))?;
        }
        for Kind {
            before,
            after,
            count,
        } in self.kinds.iter().take(KINDS)
        {
            writeln!(out, "  {count:>6} x {before} -> {after}")?;
        }
        if let Some(hidden) = self
            .kinds
            .len()
            .checked_sub(KINDS)
            .filter(|hidden| *hidden > 0)
        {
            writeln!(out, "         and {hidden} rarer kinds of difference")?;
        }
        for (number, flow) in self.flows.iter().filter(|(_, flow)| flow.differ > 0) {
            writeln!(
                out,
                "  flow {number}: {} of {} decisions; mean rate {:.3} -> {:.3} Mbit/s",
                flow.differ, flow.decisions, flow.mean_before_mbps, flow.mean_after_mbps
            )?;
        }
        Ok(())
    }
}

/// What a decision is told apart by in a summary.
fn kind(decision: &Decided) -> String {
    format!("{} {}", decision.phase, decision.reason)
}

/// Bytes per second in the unit of tables.
pub(super) fn mbps(rate: u32) -> f64 {
    f64::from(rate) * 8e-6
}

/// A decision on one line.
pub(super) fn describe(decision: &Decided) -> String {
    let Decided {
        phase,
        reason,
        rate,
        cwnd,
        told,
    } = decision;
    let told = told.as_ref().map(|told| format!("; {}", command(told)));
    format!(
        "{phase:<8} {reason:<12} {:>9.3} Mbit/s, window {:.1} kB{}",
        mbps(*rate),
        *cwnd as f64 * 1e-3,
        told.unwrap_or_default()
    )
}

/// What the datapath was told.
pub(super) fn command(told: &Told) -> String {
    match told {
        Told::Run {
            plan,
            rates,
            hold,
            mi_us,
        } => {
            let length = f64::from(*mi_us) * 1e-3;
            if rates.iter().all(|rate| rate == hold) {
                return format!("plan {plan}: this rate, {length:.1} ms each");
            }
            let rates: Vec<_> = rates
                .iter()
                .map(|rate| format!("{:.3}", mbps(*rate)))
                .collect();
            format!("plan {plan}: try {}, {length:.1} ms each", rates.join(" "))
        }
        Told::Steer { mi_us, .. } => {
            format!("this rate at once, {:.1} ms each", f64::from(*mi_us) * 1e-3)
        }
        Told::Window => "window only".to_owned(),
    }
}
