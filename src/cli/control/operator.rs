//! What can be asked of a running agent, by whatever means: signals, the control socket, the metrics endpoint.

mod reload;

use super::protocol::{Kind, Refusal, Request, VERSION};
use crate::cli::config::{Configuration, Origin, Setting};
use crate::cli::datapath;
use crate::cli::log::LogLevel;
use crate::cli::replay::explain;
use anyhow::{Result, anyhow, bail};
use pk3c_ccp::agent::Pk3c;
use pk3c_ccp::params::{Params, SPECS, START_RATE};
use pk3c_ccp::policy::Arm;
use pk3c_ccp::record::Decided;
use pk3c_ccp::stats::{Cell, FLOW_FIELDS, FlowField, FlowView, Monitor, Outcome, Trial, flow_json};
use pk3c_ccp::units::Rate;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::info;

/// Flows in one answer, unless asked for otherwise.
const FLOWS_LIMIT: usize = 1000;
/// The limit on reports is the governor's, from the start on.
const FIXED: &str = "max-reports";

/// Everything an operator may reach.
pub(crate) struct Operator {
    /// `None` for an algorithm that decides in the datapath.
    algorithm: Option<Pk3c>,
    monitor: Arc<Monitor>,
    log: LogLevel,
    /// Whether the datapath can keep flows from the agent, and the agent within limits.
    has_enforcer: bool,
    /// What the agent was started with: what a reload cannot change is as here.
    start: Configuration,
    /// What the datapath was started with, bytes/s.
    max_rate: u64,
    state: Mutex<State>,
}

struct State {
    /// As read last.
    configuration: Configuration,
    /// What is logged.
    level: String,
    /// Parameters that were set since the configuration was read.
    set: BTreeMap<&'static str, String>,
}

impl Operator {
    pub(crate) fn new(
        algorithm: Option<Pk3c>,
        monitor: Arc<Monitor>,
        log: LogLevel,
        configuration: Configuration,
        has_enforcer: bool,
    ) -> Self {
        let state = State {
            configuration: configuration.clone(),
            level: configuration.args.log.clone(),
            set: BTreeMap::new(),
        };
        Self {
            algorithm,
            monitor,
            log,
            has_enforcer,
            max_rate: datapath::max_rate(&configuration),
            start: configuration,
            state: Mutex::new(state),
        }
    }

    /// The statistics.
    pub(crate) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is asked.
    pub(crate) fn answer(&self, request: Request) -> Result<Value, Refusal> {
        let done = match request {
            Request::Version {} => Ok(self.version()),
            Request::Status {} => Ok(self.status()),
            Request::Flows {
                sort,
                filter,
                limit,
            } => self.flows(sort.as_deref(), filter.as_deref(), limit),
            Request::Explain { flow, after } => self.explain(&flow, after),
            Request::Parameters {} => self.parameters(),
            Request::Set { values } => self.set(&values),
            Request::Reload {} => self.reload(),
            Request::Log { level } => self.log(&level),
            Request::Drain { drain } => self.drain(drain),
            Request::Experiments {} => Ok(self.experiments()),
        };
        done.map_err(|error| Refusal::new(Kind::Refused, format!("{error:#}")))
    }

    fn version(&self) -> Value {
        let mut about = json!({
            "program": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION"),
            "protocol": VERSION, "pid": std::process::id(),
        });
        about["config"] = json!(self.state().configuration.file);
        about
    }

    fn status(&self) -> Value {
        json!({ "agent": self.version(), "stats": self.monitor.snapshot(Instant::now()).json() })
    }

    fn flows(
        &self,
        sort: Option<&str>,
        filter: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Value> {
        let mut flows = self.monitor.flows();
        let total = flows.len();
        if let Some(filter) = filter.filter(|filter| !filter.is_empty()) {
            flows.retain(|flow| matches(flow, filter));
        }
        let matching = flows.len();
        if let Some(name) = sort {
            sort_by(&mut flows, field(name)?);
        }
        flows.truncate(limit.unwrap_or(FLOWS_LIMIT));
        let flows: Vec<_> = flows.iter().map(flow_json).collect();
        Ok(json!({ "total": total, "matching": matching, "flows": flows }))
    }

    fn explain(&self, name: &str, after: Option<f64>) -> Result<Value> {
        let flow = self.find(name)?;
        let sock_id = flow.sample.sock_id;
        let intervals = self.monitor.stats().live.explain(sock_id, Instant::now());
        let mut before: Option<Rate> = None;
        let mut told = Vec::new();
        for interval in &intervals {
            let decided = Decided::from(&interval.decision);
            let rate_before = before.replace(interval.decision.rate);
            if after.is_some_and(|after| interval.at_s <= after) {
                continue;
            }
            told.push(json!({
                "at_s": interval.at_s,
                "measured": explain::measured_object(&interval.measured),
                "decision": decided,
                "row": format!(
                    "{:>8.3}  {:>4}  {}  {}",
                    interval.at_s, sock_id, explain::columns(&interval.measured), interval.decision.reason
                ),
                "answer": explain::answer(rate_before.unwrap_or(Rate::ZERO), &decided),
            }));
        }
        Ok(json!({ "flow": flow_json(&flow), "intervals": told }))
    }

    /// The one flow of that number, or with that end.
    fn find(&self, name: &str) -> Result<FlowView> {
        let flows = self.monitor.flows();
        let is_it = |flow: &&FlowView| {
            let sample = &flow.sample;
            name.parse() == Ok(sample.sock_id)
                || [sample.local, sample.remote]
                    .iter()
                    .any(|end| end.to_string() == name || format!(":{}", end.port()) == name)
        };
        let found: Vec<_> = flows.iter().filter(is_it).collect();
        match found[..] {
            [flow] => Ok(flow.clone()),
            [] => bail!(
                "no live flow has the number or end `{name}` (of {}): `pk3c-ccp status` lists them; a new one is known after a second",
                flows.len()
            ),
            _ => {
                let some = found.iter().take(4).map(|flow| {
                    let sample = &flow.sample;
                    format!("{} ({} to {})", sample.sock_id, sample.local, sample.remote)
                });
                bail!(
                    "{} flows have the end `{name}`: name one by its number: {}",
                    found.len(),
                    some.collect::<Vec<_>>().join(", ")
                )
            }
        }
    }

    fn algorithm(&self) -> Result<&Pk3c> {
        let algorithm = self.algorithm.as_ref();
        algorithm.ok_or_else(|| anyhow!("this algorithm decides in the datapath and has no parameters: start the agent with another --algorithm"))
    }

    fn parameters(&self) -> Result<Value> {
        let params = self.algorithm()?.params();
        let state = self.state();
        let entry = |spec: &pk3c_ccp::params::Spec| {
            let mut settings = state.configuration.settings.iter();
            let setting = settings.find(|setting| setting.name == spec.flag);
            let origin = match setting.map(|setting| setting.origin) {
                _ if state.set.contains_key(spec.flag) => "set".to_owned(),
                Some(Origin::Flag) => "the command line".to_owned(),
                Some(Origin::File(line)) => {
                    let file = state.configuration.file.clone().unwrap_or_default();
                    format!("{}:{line}", file.display())
                }
                Some(Origin::Default) | None => "the default".to_owned(),
            };
            let value = json!({
                "value": params.get(spec.flag).ok(), "origin": origin, "default": spec.default_value(),
                "range": spec.range(), "help": spec.help,
            });
            (spec.flag.to_owned(), value)
        };
        Ok(Value::Object(SPECS.iter().map(entry).collect()))
    }

    fn set(&self, values: &BTreeMap<String, String>) -> Result<Value> {
        let mut state = self.state();
        let algorithm = self.algorithm()?;
        let old = algorithm.params();
        let mut params = old.clone();
        for (name, value) in values {
            params.set(name, value)?;
            if name == FIXED {
                bail!(
                    "--{FIXED} takes effect at the start only: change the configuration and start the agent again"
                );
            }
        }
        let is_given =
            |setting: &Setting| setting.name == START_RATE && setting.origin != Origin::Default;
        let is_set = values.contains_key(START_RATE) || state.set.contains_key(START_RATE);
        if !is_set && !state.configuration.settings.iter().any(is_given) {
            params.start_rate = Params::default().start_rate;
            params.bound_start_rate();
        }
        params.validate()?;
        if params.is_exp() {
            bail!(
                "--algorithm exp decides in the datapath from the start on: change the configuration and start the agent again"
            );
        }
        if self.is_beyond(params.max_rate) {
            bail!(
                "the datapath lets no connection go faster than {} since its start: put --max-rate into the configuration and start the agent again",
                Rate::from_bytes_per_sec(self.max_rate as f64)
            );
        }
        algorithm.set_params(params.clone())?;
        let mut changed = Map::new();
        for ((name, was), (_, is)) in old.to_text().zip(params.to_text()) {
            if was != is {
                info!(parameter = name, was, is, "set");
                changed.insert(name.to_owned(), json!([was, is]));
            }
            if values.contains_key(name) {
                state.set.insert(name, is);
            }
        }
        Ok(json!({ "changed": changed }))
    }

    /// Whether the datapath lets no connection go so fast.
    fn is_beyond(&self, rate: Rate) -> bool {
        self.has_enforcer && u64::from(rate.to_wire()) > self.max_rate
    }

    /// What experiments have collected: the samples themselves, so that whoever asks can calculate what he likes.
    fn experiments(&self) -> Value {
        let trials = self.monitor.stats().policies.trials();
        let outcome = |one: &Outcome| {
            json!({
                "unit": format!("{:016x}", one.unit), "duration_s": one.duration.as_secs_f64(), "bytes": one.bytes,
                "goodput_bps": one.goodput() * 8.0, "rtt_s": one.rtt_s, "rtt_min_s": one.rtt_min_s, "loss": one.loss,
            })
        };
        let trial = |trial: &Trial| {
            let arm = |arm: &Arm| {
                let collected = &trial.arms[*arm as usize];
                let outcomes: Vec<_> = collected.outcomes.iter().map(outcome).collect();
                let about = json!({
                    "flows": collected.flows, "left_out_late": collected.met_late, "left_out_empty": collected.empty,
                    "outcomes": outcomes,
                });
                (arm.name().to_owned(), about)
            };
            let arms: Map<_, _> = Arm::ALL.iter().map(arm).collect();
            json!({
                "policy": &*trial.policy, "share": trial.experiment.share.get(), "by": trial.experiment.by.name(),
                "key": trial.experiment.key, "arms": arms,
            })
        };
        json!({ "experiments": trials.iter().map(trial).collect::<Vec<_>>() })
    }

    fn log(&self, level: &str) -> Result<Value> {
        self.log.set(level)?;
        level.clone_into(&mut self.state().level);
        info!(level, "what is logged has changed");
        Ok(json!({ "level": level }))
    }

    fn drain(&self, drain: bool) -> Result<Value> {
        let datapath = self.monitor.datapath();
        if !datapath.drain(drain) {
            return Err(anyhow!(
                "this datapath cannot hand flows over: stop the agent instead, its flows go on in the fallback"
            ));
        }
        if drain {
            info!("drained: all flows go on in the datapath's fallback");
        } else {
            info!("no longer drained: flows are offered to the agent again");
        }
        Ok(json!({ "draining": drain }))
    }
}

fn field(name: &str) -> Result<&'static FlowField> {
    let found = FLOW_FIELDS.iter().find(|field| field.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = FLOW_FIELDS.iter().map(|field| field.name).collect();
        anyhow!(
            "flows have no field `{name}`: there are {}",
            names.join(", ")
        )
    })
}

fn matches(flow: &FlowView, filter: &str) -> bool {
    let texts = FLOW_FIELDS.iter().filter_map(|field| field.read(flow));
    texts
        .into_iter()
        .any(|cell| matches!(cell, Cell::Text(text) if text.contains(filter)))
}

/// Largest first, words in their order, what is not known last.
fn sort_by(flows: &mut [FlowView], field: &FlowField) {
    flows.sort_by(|a, b| match (field.read(a), field.read(b)) {
        (Some(Cell::Number(a)), Some(Cell::Number(b))) => b.total_cmp(&a),
        (Some(Cell::Text(a)), Some(Cell::Text(b))) => a.cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
}

#[cfg(test)]
mod tests;
