//! Records of what went in and out of the controllers, for `--record`.
//!
//! A record is a text file of JSON lines. The first line is [`Line::Header`]; every later line is one of the other
//! kinds, told apart by its `"line"` member. **Version 1**:
//!
//! | `line` | members |
//! |---|---|
//! | `header` | `format` "pk3c-record", `version`, `params` (flag → value), `fields` (names of `raw`, in order) |
//! | `start` | `flow` (number, unique in the file), `at_s` (s since the record began), `sock_id`, `mss` and `init_cwnd` (bytes), `seed`, `resume` ([bytes/s, srtt µs], or null for a new flow), and `decision` |
//! | `readopt` | `flow`, `at_s`, `init_cwnd`, `resume` as above, `decision`: the same controller goes on after a fallback |
//! | `report` | `flow`, `raw` (the 16 fields of [`crate::program::RawReport`]), `decision` |
//! | `params` | `flow`, `params`: the flow's parameters change; with `flow` null, those of the flows that start later |
//! | `end` | `flow`, `at_s` |
//!
//! A `decision` holds `phase`, `reason`, `rate` (bytes/s), `cwnd` (bytes), and `told`: null, `{"run": {plan, rates, hold,
//! mi_us}}`, `{"steer": {rate, mi_us}}` or `"window"`. Rates are rounded to whole bytes per second, as they are sent.
//!
//! Since a controller is a function of parameters, seed and reports, [`replay`] repeats every decision of a record.
//! Readers ignore members they do not know; a change of meaning raises the version.

use crate::controller::{Controller, FlowStart};
use crate::params::{ParamError, Params};
use crate::plan::{Command, Decision};
use crate::program::{REPORT_FIELDS, RawReport};
use crate::units::{Bytes, Micros, Rate};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

/// Version of the format.
pub const VERSION: u32 = 1;
const FORMAT: &str = "pk3c-record";

/// A decision as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Name of the phase after it.
    pub phase: Cow<'static, str>,
    /// Name of its reason.
    pub reason: Cow<'static, str>,
    /// Central rate, bytes/s.
    pub rate: u32,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// What the datapath was told.
    pub told: Option<Told>,
}

/// A command as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// A new plan.
    Run {
        /// Its number.
        plan: u32,
        /// The four rates, bytes/s.
        rates: [u32; 4],
        /// The rate afterwards, bytes/s.
        hold: u32,
        /// Length of each interval, µs.
        mi_us: u32,
    },
    /// One rate at once.
    Steer {
        /// Bytes/s.
        rate: u32,
        /// Length of the intervals, µs.
        mi_us: u32,
    },
    /// The window only.
    Window,
}

impl From<&Decision> for Decided {
    fn from(decision: &Decision) -> Self {
        Self {
            phase: decision.phase.name().into(),
            reason: decision.reason.name().into(),
            rate: decision.rate.to_wire(),
            cwnd: decision.cwnd.get(),
            told: decision.command.map(|command| match command {
                Command::Run { plan, .. } => Told::Run {
                    plan: plan.number,
                    rates: plan.rates.map(Rate::to_wire),
                    hold: plan.hold.to_wire(),
                    mi_us: plan.length.to_wire(),
                },
                Command::Steer { rate, length, .. } => Told::Steer {
                    rate: rate.to_wire(),
                    mi_us: length.to_wire(),
                },
                Command::Window { .. } => Told::Window,
            }),
        }
    }
}

/// Rate (bytes/s) and smoothed RTT (µs) of a flow that was running.
pub type Resumed = Option<(u32, u64)>;

/// Parameters, flag → value.
pub type Texts = BTreeMap<Cow<'static, str>, String>;

/// Parameters as recorded.
#[must_use]
pub fn texts(params: &Params) -> Texts {
    params
        .to_text()
        .map(|(flag, value)| (flag.into(), value))
        .collect()
}

fn read_params(texts: &Texts) -> Result<Arc<Params>, ParamError> {
    let mut params = Params::default();
    for (flag, value) in texts {
        params.set(flag, value)?;
    }
    Ok(Arc::new(params))
}

/// One line of a record. The members are explained at the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
#[allow(missing_docs)] // the table above is their documentation
pub enum Line {
    Header {
        format: Cow<'static, str>,
        version: u32,
        params: Texts,
        fields: Vec<Cow<'static, str>>,
    },
    Start {
        flow: u64,
        at_s: f64,
        sock_id: u32,
        mss: u64,
        init_cwnd: u64,
        seed: u64,
        resume: Resumed,
        decision: Decided,
    },
    Readopt {
        flow: u64,
        at_s: f64,
        init_cwnd: u64,
        resume: Resumed,
        decision: Decided,
    },
    Params {
        flow: Option<u64>,
        params: Texts,
    },
    Report {
        flow: u64,
        raw: [u64; 16],
        decision: Decided,
    },
    End {
        flow: u64,
        at_s: f64,
    },
}

/// Rounds to what a record holds, so that a replay starts from the same value.
#[must_use]
pub fn resumed(resume: Option<(Rate, Micros)>) -> Resumed {
    resume.map(|(rate, srtt)| (rate.to_wire(), srtt.us()))
}

/// The inverse of [`resumed`].
#[must_use]
pub fn resume(resumed: Resumed) -> Option<(Rate, Micros)> {
    resumed.map(|(rate, srtt)| (Rate::from_bytes_per_sec(f64::from(rate)), Micros::new(srtt)))
}

struct Open {
    file: BufWriter<File>,
    written: u64,
}

/// Writes a record, buffered, up to a size. Shared by all flows of an agent.
pub struct Recorder {
    path: PathBuf,
    limit_bytes: u64,
    open: Mutex<Option<Open>>,
}

impl Recorder {
    /// Creates the file, or truncates it, and writes the header.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(path: &Path, limit_bytes: u64, params: &Params) -> io::Result<Self> {
        let open = Open {
            file: BufWriter::with_capacity(1 << 16, File::create(path)?),
            written: 0,
        };
        let recorder = Self {
            path: path.to_owned(),
            limit_bytes,
            open: Mutex::new(Some(open)),
        };
        let header = Line::Header {
            format: FORMAT.into(),
            version: VERSION,
            params: texts(params),
            fields: REPORT_FIELDS.map(Cow::from).into(),
        };
        let mut guard = recorder.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = guard.as_mut() {
            open.append(&header, limit_bytes)?;
            open.file.flush()?;
        }
        drop(guard);
        Ok(recorder)
    }

    /// Appends a line. When the size limit is reached or the disk refuses, recording ends with one warning; flows are
    /// never disturbed.
    pub fn write(&self, line: &Line) {
        let mut guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = guard.as_mut() else { return };
        let result = open.append(line, self.limit_bytes);
        let result = match line {
            Line::End { .. } => result.and_then(|more| open.file.flush().map(|()| more)),
            _ => result,
        };
        let problem = match result {
            Ok(true) => return,
            Ok(false) => "the size limit is reached".to_owned(),
            Err(error) => error.to_string(),
        };
        let flushed = open.file.flush().is_ok();
        tracing::warn!(target: "record", path = %self.path.display(), limit_bytes = self.limit_bytes, flushed, "recording stopped: {problem}");
        *guard = None;
    }

    /// Whether lines are still written.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }
}

impl Open {
    /// False if the line would exceed the limit; nothing is written then.
    fn append(&mut self, line: &Line, limit_bytes: u64) -> io::Result<bool> {
        let text = serde_json::to_vec(line)?;
        let size = text.len() as u64 + 1;
        if self.written + size > limit_bytes {
            return Ok(false);
        }
        self.file.write_all(&text)?;
        self.file.write_all(b"\n")?;
        self.written += size;
        Ok(true)
    }
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("line {line}: cannot read: {source}")]
    Io {
        /// Line number, from 1.
        line: usize,
        /// The cause.
        source: io::Error,
    },
    /// A line is not what the format says.
    #[error("line {line} is not a line of a pk3c record: {source}")]
    Malformed {
        /// Line number, from 1.
        line: usize,
        /// The cause.
        source: serde_json::Error,
    },
    /// The file does not begin with the header of a version known here.
    #[error("not a pk3c record of version {VERSION}: the first line must be its header")]
    NoHeader,
    /// The header holds parameters that this version refuses.
    #[error("the record's parameters are not valid here: {0}")]
    Params(#[from] ParamError),
    /// A line names a flow that never started.
    #[error("line {line} belongs to flow {flow}, which has no start line")]
    UnknownFlow {
        /// Line number, from 1.
        line: usize,
        /// Flow number.
        flow: u64,
    },
    /// A decision came out different.
    #[error("line {line}, flow {flow}: recorded {recorded:?}, replayed {replayed:?}")]
    Diverged {
        /// Line number, from 1.
        line: usize,
        /// Flow number.
        flow: u64,
        /// What the record says.
        recorded: Box<Decided>,
        /// What the controller decided now.
        replayed: Box<Decided>,
    },
}

/// Reads a record line by line. Empty lines are skipped; a last line cut off by a crash is an error.
pub fn lines(reader: impl BufRead) -> impl Iterator<Item = Result<(usize, Line), RecordError>> {
    let numbered = reader
        .lines()
        .enumerate()
        .map(|(index, text)| (index + 1, text));
    numbered.filter_map(|(line, text)| match text {
        Err(source) => Some(Err(RecordError::Io { line, source })),
        Ok(text) if text.trim().is_empty() => None,
        Ok(text) => Some(
            serde_json::from_str(&text)
                .map(|parsed| (line, parsed))
                .map_err(|source| RecordError::Malformed { line, source }),
        ),
    })
}

/// Feeds a record's reports to fresh controllers with the recorded parameters and seeds. Returns how many decisions
/// came out as recorded, which is all of them unless the algorithm has changed.
///
/// # Errors
/// If the record cannot be read, or at the first decision that differs.
pub fn replay(reader: impl BufRead) -> Result<usize, RecordError> {
    let mut lines = lines(reader);
    let Some(Ok((
        _,
        Line::Header {
            format,
            version: VERSION,
            params: header,
            ..
        },
    ))) = lines.next()
    else {
        return Err(RecordError::NoHeader);
    };
    if format != FORMAT {
        return Err(RecordError::NoHeader);
    }
    let mut params = read_params(&header)?;
    let mut flows: HashMap<u64, Controller> = HashMap::new();
    let mut same = 0;
    for item in lines {
        let (line, parsed) = item?;
        let (flow, recorded, replayed) = match parsed {
            Line::Header { .. } => return Err(RecordError::NoHeader),
            Line::Start {
                flow,
                mss,
                init_cwnd,
                seed,
                resume: resumed,
                decision,
                ..
            } => {
                let start = FlowStart {
                    mss: Bytes::new(mss),
                    init_cwnd: Bytes::new(init_cwnd),
                    resume: resume(resumed),
                };
                let (controller, first) = Controller::new(params.clone(), seed, start);
                flows.insert(flow, controller);
                (flow, decision, first)
            }
            Line::Readopt {
                flow,
                init_cwnd,
                resume: resumed,
                decision,
                ..
            } => {
                let controller = flows
                    .get_mut(&flow)
                    .ok_or(RecordError::UnknownFlow { line, flow })?;
                let again = controller.readopt(Bytes::new(init_cwnd), resume(resumed));
                (flow, decision, again)
            }
            Line::Report {
                flow,
                raw,
                decision,
            } => {
                let controller = flows
                    .get_mut(&flow)
                    .ok_or(RecordError::UnknownFlow { line, flow })?;
                (
                    flow,
                    decision,
                    controller.on_report(&RawReport::from_fields(raw)),
                )
            }
            Line::Params {
                flow: None,
                params: texts,
            } => {
                params = read_params(&texts)?;
                continue;
            }
            Line::Params {
                flow: Some(flow),
                params: texts,
            } => {
                let controller = flows
                    .get_mut(&flow)
                    .ok_or(RecordError::UnknownFlow { line, flow })?;
                controller.set_params(read_params(&texts)?);
                continue;
            }
            Line::End { flow, .. } => {
                flows.remove(&flow);
                continue;
            }
        };
        let replayed = Decided::from(&replayed);
        if replayed != recorded {
            let (recorded, replayed) = (Box::new(recorded), Box::new(replayed));
            return Err(RecordError::Diverged {
                line,
                flow,
                recorded,
                replayed,
            });
        }
        same += 1;
    }
    Ok(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::report;
    use std::io::BufReader;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pk3c-record-{name}-{}", std::process::id()))
    }

    /// Records a flow fed by hand-made reports and returns the file's path and the decisions.
    fn record(name: &str, limit_bytes: u64) -> (PathBuf, usize) {
        let path = temporary(name);
        let params = Params {
            start_rate: Rate::from_mbit(8.0),
            ..Params::default()
        };
        let recorder = Recorder::create(&path, limit_bytes, &params).unwrap();
        let start = FlowStart {
            mss: Bytes::new(1000),
            init_cwnd: Bytes::new(10_000),
            resume: None,
        };
        let (mut controller, first) = Controller::new(Arc::new(params), 7, start);
        let decision = Decided::from(&first);
        recorder.write(&Line::Start {
            flow: 1,
            at_s: 0.0,
            sock_id: 5,
            mss: 1000,
            init_cwnd: 10_000,
            seed: 7,
            resume: None,
            decision,
        });
        let mut plan = 0;
        for round in 0..60_u64 {
            let acks: Vec<_> = (0..30)
                .map(|i| {
                    (
                        i * 1000,
                        20_000 + 30 * i * (round % 3),
                        u64::from(i == round),
                    )
                })
                .collect();
            let raw = report(
                u64::from(plan) * 32 + 1 + round % 4,
                round * 50_000,
                &acks,
                30_000,
            );
            let decision = controller.on_report(&raw);
            if let Some(Command::Run { plan: new, .. }) = decision.command {
                plan = new.number;
            }
            recorder.write(&Line::Report {
                flow: 1,
                raw: raw.fields(),
                decision: Decided::from(&decision),
            });
        }
        let slower = Params {
            max_rate: Rate::from_mbit(6.0),
            ..Params::default()
        };
        recorder.write(&Line::Params {
            flow: Some(1),
            params: texts(&slower),
        });
        controller.set_params(Arc::new(slower));
        let again = controller.readopt(
            Bytes::new(50_000),
            Some((Rate::from_mbit(4.0), Micros::new(30_000))),
        );
        let resume = Some((500_000, 30_000));
        recorder.write(&Line::Readopt {
            flow: 1,
            at_s: 3.0,
            init_cwnd: 50_000,
            resume,
            decision: Decided::from(&again),
        });
        recorder.write(&Line::End { flow: 1, at_s: 3.0 });
        (path, 62)
    }

    #[test]
    fn a_record_replays_to_the_same_decisions() {
        let (path, decisions) = record("replay", 1 << 20);
        assert_eq!(
            replay(BufReader::new(File::open(&path).unwrap())).unwrap(),
            decisions
        );
        // And a record that was tampered with does not.
        let text = std::fs::read_to_string(&path).unwrap();
        let at = text.rfind("\"cwnd\":").unwrap();
        let tampered = format!("{}\"cwnd\":1{}", &text[..at], &text[at + 7..]);
        assert!(matches!(
            replay(tampered.as_bytes()),
            Err(RecordError::Diverged { .. })
        ));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_limit_stops_the_record_and_leaves_whole_lines() {
        let (path, _) = record("limit", 8000);
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(size <= 8000 && size > 4000, "{size}");
        let text = std::fs::read(&path).unwrap();
        assert!(lines(&text[..]).all(|line| line.is_ok()) && text.ends_with(b"\n"));
        assert!(replay(&text[..]).unwrap() > 5);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        assert!(matches!(replay(&b"{}"[..]), Err(RecordError::NoHeader)));
        let (path, _) = record("refuse", 1 << 20);
        let text = std::fs::read_to_string(&path).unwrap();
        let header = text.lines().next().unwrap();
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        assert!(matches!(
            replay(newer.as_bytes()),
            Err(RecordError::NoHeader)
        ));
        let cut = format!("{header}\n{{\"line\":\"rep");
        assert!(
            replay(cut.as_bytes())
                .unwrap_err()
                .to_string()
                .starts_with("line 2")
        );
        let orphan = format!(
            "{header}\n{{\"line\":\"end\",\"flow\":3,\"at_s\":1}}\n{}",
            text.lines().nth(2).unwrap()
        );
        assert!(matches!(
            replay(orphan.as_bytes()),
            Err(RecordError::UnknownFlow { line: 3, flow: 1 })
        ));
        std::fs::remove_file(path).unwrap();
    }
}
