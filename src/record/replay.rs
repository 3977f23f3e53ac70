//! Taking a record's decisions again.
//!
//! Fresh controllers with the recorded parameters and seeds get the recorded inputs in their order. Unless the
//! algorithm or a parameter has changed, every decision comes out as recorded.
//!
//! After the first decision that differs, a replay is *open loop*: the path in the record answered the recorded rates,
//! not the new ones. To keep it meaningful, a report is given the number of the plan that the replayed controller
//! is at, if it was current when it was recorded; else everything after one plan more or less would count as stale.
//! What a changed algorithm would have *reached* is a question for the simulator, not for a record.
//!
//! A changed *parameter* is therefore not left to run on its own. At every decision the controller that follows the
//! record is copied, and the copy decides once with the changed value. What it remembers of the path it has measured
//! with the changed value from the beginning; everything else before the decision is as recorded.

use super::{Decided, Line, Reader, RecordError, Texts, params, resume};
use crate::controller::{Controller, FlowStart};
use crate::ensemble::Known;
use crate::estimate::{Estimator, LossClass, Mi};
use crate::params::{ParamError, Params};
use crate::plan::{Command, Decision};
use crate::program::RawReport;
use crate::units::{Bytes, Micros, Rate};
use std::collections::HashMap;
use std::io::BufRead;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a decision answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A flow came.
    Start {
        /// The datapath's number of its socket.
        sock_id: u32,
        /// Our end and the other.
        ends: (SocketAddr, SocketAddr),
        /// Segment size.
        mss: Bytes,
        /// The window that the datapath had.
        init_cwnd: Bytes,
        /// Rate and RTT of a flow that ran already.
        resume: Option<(Rate, Micros)>,
    },
    /// The agent took a flow over again.
    Readopt {
        /// Rate and RTT that it had then.
        resume: Option<(Rate, Micros)>,
    },
    /// A report.
    Report(Box<Measured>),
}

/// What a report told the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Number of its plan, as recorded.
    pub plan: u32,
    /// Whether a retransmission timeout caused it.
    pub timeout: bool,
    /// The interval.
    pub mi: Mi,
    /// Where its losses happened.
    pub class: LossClass,
    /// Loss that the path is taken to have anyway, 0 to 1.
    pub loss_floor: f64,
    /// Smallest RTT that is remembered.
    pub rtt_min: Micros,
}

impl Measured {
    /// What a report says, with what the estimator knows after it.
    #[must_use]
    pub fn new(raw: &RawReport, mi: Mi, est: &Estimator) -> Self {
        Self {
            plan: raw.plan(),
            timeout: raw.timeout(),
            class: est.class(&mi),
            loss_floor: est.loss_floor(),
            rtt_min: est.rtt_min(),
            mi,
        }
    }
}

/// One decision, taken again.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Line in the record, from 1.
    pub line: usize,
    /// Flow number.
    pub flow: u64,
    /// Seconds since the record began. Of a report: when its last ACK came, by the datapath's clock, which is laid on
    /// the agent's where the flow begins.
    pub at_s: f64,
    /// What was answered.
    pub input: Input,
    /// The answer in the record.
    pub recorded: Decided,
    /// The answer now.
    pub replayed: Decided,
    /// The answer now with changed parameters, if there are any.
    pub changed: Option<Decided>,
    /// The central rate before.
    pub rate_before: Rate,
}

impl Step {
    /// Whether the answer is not the recorded one.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.recorded != self.replayed
    }

    /// Whether the changed parameters make another answer.
    #[must_use]
    pub fn would_change(&self) -> bool {
        self.changed
            .as_ref()
            .is_some_and(|changed| *changed != self.replayed)
    }
}

/// What a flow has with changed parameters.
struct WhatIf {
    params: Arc<Params>,
    /// What is remembered when it is measured with them.
    remembered: Estimator,
}

impl WhatIf {
    fn decide(
        &mut self,
        controller: &Controller,
        input: impl FnOnce(&mut Controller) -> Decision,
    ) -> Decided {
        let mut copy = controller.clone();
        copy.set_params(self.params.clone());
        copy.remember(self.remembered.clone());
        let decision = input(&mut copy);
        self.remembered = copy.estimator().clone();
        Decided::from(&decision)
    }
}

/// The report as a controller must see it that is at another plan than the recorded one was: current if it was current,
/// stale if it was stale. `plan` is the number of the plan that the controller is at.
#[must_use]
pub fn align(mut raw: RawReport, stale: bool, plan: u32) -> RawReport {
    let current = raw.plan() == plan;
    if current == stale {
        let number = if stale { plan.wrapping_sub(1) } else { plan };
        raw.tag = u64::from(number) * 32 + raw.tag % 32;
    }
    raw
}

/// A flow of the record.
struct Flow {
    controller: Controller,
    what_if: Option<WhatIf>,
    /// The plan that the controller is at.
    plan: u32,
    rate: Rate,
    /// When it began, s since the record began.
    start_s: f64,
    /// The same on the datapath's clock, known with the first report.
    start: Option<Micros>,
    at_s: f64,
}

impl Flow {
    fn note(&mut self, decision: &Decision) -> Rate {
        if let Some(Command::Run { plan, .. }) = decision.command {
            self.plan = plan.number;
        }
        std::mem::replace(&mut self.rate, decision.rate)
    }

    fn set_mss(&mut self, mss: Option<u64>) {
        if let Some(mss) = mss {
            self.controller.set_mss(Bytes::new(mss));
        }
    }

    fn what_if(&mut self, input: impl FnOnce(&mut Controller) -> Decision) -> Option<Decided> {
        let what_if = self.what_if.as_mut()?;
        Some(what_if.decide(&self.controller, input))
    }

    fn tick(&mut self, raw: &RawReport) {
        if raw.n == 0 {
            return;
        }
        let rtt = Micros::new(raw.rmin);
        let start = *self.start.get_or_insert(Micros::new(raw.a0) - rtt);
        let at_s = self.start_s + (Micros::new(raw.a1) - start).as_secs();
        self.at_s = self.at_s.max(at_s);
    }
}

/// The recorded parameters, and with the changes.
#[derive(Clone, Default)]
struct Both {
    recorded: Arc<Params>,
    changed: Option<Arc<Params>>,
}

/// What a line of a record came to.
pub(super) enum Advance {
    End,
    Other,
    Step(Box<Step>),
}

/// The decisions of a record, taken again one by one. Holds one line and the controllers of the flows that run.
pub struct Replay<R> {
    reader: Reader<R>,
    changes: Vec<(String, String)>,
    params: Both,
    flows: HashMap<u64, Flow>,
    failed: bool,
}

impl<R: BufRead> Replay<R> {
    /// Reads the header. With `changes`, parameters as flag and value, every [`Step`] also has the answer that they
    /// make; they take the place of the recorded ones from the beginning to the end.
    ///
    /// # Errors
    /// If this is no record, one that cannot be read here, or its parameters do not go with the changes.
    pub fn new(input: R, changes: &[(String, String)]) -> Result<Self, RecordError> {
        let mut replay = Self {
            reader: Reader::new(input)?,
            changes: changes.to_vec(),
            params: Both::default(),
            flows: HashMap::new(),
            failed: false,
        };
        let header = replay.reader.params().clone();
        replay.params = replay.both(header)?;
        Ok(replay)
    }

    pub(super) fn reader(&self) -> &Reader<R> {
        &self.reader
    }

    fn both(&self, recorded: Params) -> Result<Both, RecordError> {
        let line = self.reader.number();
        recorded
            .validate()
            .map_err(|source| RecordError::Params { line, source })?;
        let mut changed = recorded.clone();
        let mut change = || -> Result<(), ParamError> {
            for (flag, value) in &self.changes {
                changed.set(flag, value)?;
            }
            changed.validate()
        };
        change().map_err(|source| RecordError::Change { line, source })?;
        Ok(Both {
            recorded: Arc::new(recorded),
            changed: (!self.changes.is_empty()).then(|| Arc::new(changed)),
        })
    }

    fn read_params(&self, texts: &Texts) -> Result<Both, RecordError> {
        let line = self.reader.number();
        let read = params(texts).map_err(|source| RecordError::Params { line, source })?;
        self.both(read)
    }

    fn flow(&mut self, flow: u64) -> Result<&mut Flow, RecordError> {
        let line = self.reader.number();
        self.flows
            .get_mut(&flow)
            .ok_or(RecordError::UnknownFlow { line, flow })
    }

    /// Reads one more line.
    pub(super) fn advance(&mut self) -> Result<Advance, RecordError> {
        let Some(parsed) = self.reader.next_line()? else {
            return Ok(Advance::End);
        };
        let line = self.reader.number();
        match parsed {
            // The reader lets none through.
            Line::Header { .. } => return Err(RecordError::SecondHeader { line }),
            Line::Params { flow: None, params } => self.params = self.read_params(&params)?,
            Line::Params {
                flow: Some(flow),
                params,
            } => {
                let both = self.read_params(&params)?;
                let running = self.flow(flow)?;
                running.controller.set_params(both.recorded);
                if let (Some(what_if), Some(params)) = (&mut running.what_if, both.changed) {
                    what_if.params = params;
                }
            }
            Line::End { flow, .. } => {
                self.flow(flow)?;
                self.flows.remove(&flow);
            }
            decided => {
                let step = self.decide(decided, line)?;
                return Ok(step.map_or(Advance::Other, |step| Advance::Step(Box::new(step))));
            }
        }
        Ok(Advance::Other)
    }

    fn decide(&mut self, parsed: Line, line: usize) -> Result<Option<Step>, RecordError> {
        Ok(Some(match parsed {
            Line::Start {
                flow,
                at_s,
                sock_id,
                local,
                remote,
                mss,
                init_cwnd,
                seed,
                resume: resumed,
                decision: recorded,
            } => {
                if self.flows.contains_key(&flow) {
                    return Err(RecordError::RunningFlow { line, flow });
                }
                let start = FlowStart {
                    mss: Bytes::new(mss),
                    init_cwnd: Bytes::new(init_cwnd),
                    resume: resume(resumed),
                };
                let Both {
                    recorded: params,
                    changed,
                } = self.params.clone();
                let (controller, first) = Controller::new(params, seed, start);
                let changed = changed.map(|params| {
                    let (controller, first) = Controller::new(params.clone(), seed, start);
                    let remembered = controller.estimator().clone();
                    (WhatIf { params, remembered }, Decided::from(&first))
                });
                let (what_if, changed) = changed.unzip();
                let mut began = Flow {
                    controller,
                    what_if,
                    plan: 0,
                    rate: Rate::ZERO,
                    start_s: at_s,
                    start: None,
                    at_s,
                };
                let rate_before = began.note(&first);
                self.flows.insert(flow, began);
                let input = Input::Start {
                    sock_id,
                    ends: (local, remote),
                    mss: start.mss,
                    init_cwnd: start.init_cwnd,
                    resume: start.resume,
                };
                Step {
                    line,
                    flow,
                    at_s,
                    input,
                    recorded,
                    replayed: Decided::from(&first),
                    changed,
                    rate_before,
                }
            }
            Line::Readopt {
                flow,
                at_s,
                mss,
                init_cwnd,
                resume: resumed,
                decision: recorded,
            } => {
                let resume = resume(resumed);
                let kept = self.flow(flow)?;
                kept.at_s = kept.at_s.max(at_s);
                let at_s = kept.at_s;
                kept.set_mss(mss);
                let readopt =
                    |controller: &mut Controller| controller.readopt(Bytes::new(init_cwnd), resume);
                let changed = kept.what_if(readopt);
                let again = readopt(&mut kept.controller);
                let rate_before = kept.note(&again);
                Step {
                    line,
                    flow,
                    at_s,
                    input: Input::Readopt { resume },
                    recorded,
                    replayed: Decided::from(&again),
                    changed,
                    rate_before,
                }
            }
            Line::Report {
                flow,
                raw,
                mss,
                stale,
                known,
                active,
                carries,
                decision: recorded,
            } => {
                let running = self.flow(flow)?;
                let raw = RawReport::from_fields(raw);
                running.tick(&raw);
                running.set_mss(mss);
                let aligned = align(raw, stale, running.plan);
                let known = known.map(|known| Known::from((known, active.unwrap_or(0), carries)));
                let changed = running.what_if(|controller| {
                    controller.hear(known);
                    controller.on_report(&aligned)
                });
                running.controller.hear(known);
                let (mi, decision) = running.controller.on_report_measured(&aligned);
                let measured = Measured::new(&raw, mi, running.controller.estimator());
                let rate_before = running.note(&decision);
                Step {
                    line,
                    flow,
                    at_s: running.at_s,
                    input: Input::Report(Box::new(measured)),
                    recorded,
                    replayed: Decided::from(&decision),
                    changed,
                    rate_before,
                }
            }
            Line::Header { .. } | Line::Params { .. } | Line::End { .. } => return Ok(None),
        }))
    }
}

impl<R: BufRead> Iterator for Replay<R> {
    type Item = Result<Step, RecordError>;

    /// The next decision; an error is the last item.
    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.advance() {
                Ok(Advance::End) => return None,
                Ok(Advance::Other) => {}
                Ok(Advance::Step(step)) => return Some(Ok(*step)),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
