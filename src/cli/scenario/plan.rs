//! A scenario of a file: its flows and path, what is to be compared on it, and how it becomes a run.

use super::scheme::{CommandLines, Scheme};
use anyhow::{Result, bail};
use pathlab::lab::run::{FlowScheme, Run, Settings};
use pathlab::scenario as lab;
use pathsim::{Scenario, Transport};
use pk3c_ccp::params::Algorithm;
use std::str::FromStr;

/// What has what the simulator lacks.
const INSTEAD: &str = "use `pk3c-ccp lab run --backend host` or `guest`";

/// Which part of a run counts for a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) enum Measure {
    /// The second half: how the scheme does once it has settled.
    #[default]
    SecondHalf,
    /// All of it: for paths that change.
    Run,
}

impl FromStr for Measure {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "second-half" => Ok(Self::SecondHalf),
            "run" => Ok(Self::Run),
            _ => Err(format!(
                "`{text}` is not a part of a run: write second-half or run"
            )),
        }
    }
}

/// A scenario, and what drives its flows.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Plan {
    pub(in crate::cli) id: String,
    pub(in crate::cli) title: Option<String>,
    /// Where it comes from, in words.
    pub(in crate::cli) source: Option<String>,
    /// Short name of the document that it comes from, or of its file.
    pub(in crate::cli) document: Option<String>,
    /// What was changed to make it possible on one machine.
    pub(in crate::cli) scaled: Option<String>,
    pub(in crate::cli) measure: Measure,
    pub(in crate::cli) scenario: Scenario,
    /// One for each flow; `None` for the scheme under test.
    pub(in crate::cli) schemes: Vec<Option<Scheme>>,
    pub(in crate::cli) settings: Settings,
    /// What is compared unless something else is asked for.
    pub(in crate::cli) compared: Vec<Scheme>,
    pub(in crate::cli) agent_latency_ns: u64,
    /// The form that takes seconds.
    pub(in crate::cli) quick: Option<Box<Form>>,
}

/// What a short form has of its own.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Form {
    pub(in crate::cli) scenario: Scenario,
    pub(in crate::cli) schemes: Vec<Option<Scheme>>,
    pub(in crate::cli) rounds: u32,
}

impl Plan {
    /// A scenario in which every flow is under test.
    pub(in crate::cli) fn under_comparison(
        id: String,
        scenario: Scenario,
        agent_latency_ns: u64,
    ) -> Self {
        let schemes = vec![None; scenario.flows.len()];
        Self::new(id, scenario, schemes, agent_latency_ns)
    }

    /// A scenario without anything special.
    pub(super) fn new(
        id: String,
        scenario: Scenario,
        schemes: Vec<Option<Scheme>>,
        agent_latency_ns: u64,
    ) -> Self {
        Self {
            id,
            title: None,
            source: None,
            document: None,
            scaled: None,
            measure: Measure::default(),
            scenario,
            schemes,
            settings: Settings::default(),
            compared: usual_comparison(),
            agent_latency_ns,
            quick: None,
        }
    }

    /// The short form; of a scenario that has none, itself.
    pub(in crate::cli) fn in_short(&self) -> Self {
        let mut plan = self.clone();
        if let Some(form) = plan.quick.take() {
            plan.scenario = form.scenario;
            plan.schemes = form.schemes;
            plan.settings.rounds = form.rounds;
        }
        plan
    }

    /// Gives the flows under test their scheme.
    pub(in crate::cli) fn under_test(&self, scheme: &Scheme) -> (Scenario, Vec<Scheme>) {
        let given = self.schemes.iter().cloned();
        let schemes: Vec<_> = given
            .map(|given| given.unwrap_or_else(|| scheme.clone()))
            .collect();
        let mut scenario = self.scenario.clone();
        for (spec, scheme) in scenario.flows.iter_mut().zip(&schemes) {
            spec.scheme = scheme.to_string();
            spec.transport = match scheme {
                Scheme::Udp(_) => Transport::Udp,
                _ => Transport::Tcp,
            };
        }
        (scenario, schemes)
    }

    /// Whether the simulator has all that this scenario needs under a scheme.
    ///
    /// # Errors
    /// What it lacks, and what has it.
    pub(in crate::cli) fn check_simulated(&self, scheme: &Scheme) -> Result<()> {
        let schemes = self.schemes.iter();
        let mut schemes = schemes.map(|given| given.as_ref().unwrap_or(scheme));
        if let Some(lacking) = schemes.find(|scheme| !scheme.is_simulated()) {
            let remedy = match lacking.probably_meant() {
                Some(name) => format!("did you mean `{name}`? "),
                None if lacking.is_of_linux() => format!("{INSTEAD}; "),
                None => String::new(),
            };
            bail!(
                "the simulator has no {lacking}: {remedy}it has cubic, bbr, reno, udp and, of the agent, {}",
                Algorithm::names()
            );
        }
        let lacking = match &self.settings {
            settings if settings.loopback => "path without a bottleneck",
            settings if !settings.sack => "TCP without SACK",
            settings if settings.reordering.is_some() => "tcp_reordering",
            settings if settings.ecn => "ECN",
            _ => return Ok(()),
        };
        bail!("the simulator has no {lacking}: {INSTEAD}");
    }

    /// The run of this scenario under a scheme with a seed. `agent` starts the agent with the project's algorithm: a
    /// program and its arguments, the verb and log format among them.
    ///
    /// # Errors
    /// Flows with different algorithms of the agent: they would register the same name.
    pub(in crate::cli) fn run(&self, scheme: &Scheme, agent: &[String], seed: u64) -> Result<Run> {
        let (mut scenario, schemes) = self.under_test(scheme);
        scenario.seed = seed;
        let mut algorithms = schemes.iter().filter_map(|scheme| match scheme {
            Scheme::Agent(algorithm) => Some(*algorithm),
            _ => None,
        });
        if let Some(first) = algorithms.next()
            && let Some(other) = algorithms.find(|other| *other != first)
        {
            bail!(
                "{first} and {other} cannot run beside each other: one agent serves all flows of a machine; \
                 simulate this scenario, or test {first} beside a congestion control of the kernel"
            );
        }
        Ok(Run {
            id: self.id.clone(),
            scheme: scheme.to_string(),
            scenario,
            schemes: schemes.iter().map(|s| flow_scheme(s, agent)).collect(),
            under_test: self.schemes.iter().map(Option::is_none).collect(),
            settings: self.settings.clone(),
        })
    }
}

/// The schemes that every document is compared on.
pub(super) fn usual_comparison() -> Vec<Scheme> {
    vec![Scheme::kernel("cubic"), Scheme::kernel("bbr"), Scheme::PK3C]
}

fn flow_scheme(scheme: &Scheme, agent: &[String]) -> FlowScheme {
    match scheme {
        Scheme::Udp(bps) => FlowScheme::Udp(*bps),
        Scheme::Kernel(name) => FlowScheme::Tcp(lab::Scheme::Kernel(name.clone())),
        Scheme::Agent(algorithm) => {
            let mut command = agent.to_vec();
            if *algorithm != Algorithm::Pk3c {
                command.extend(["--algorithm".to_owned(), algorithm.to_string()]);
            }
            FlowScheme::Tcp(lab::Scheme::Agent {
                name: crate::cli::NAME.to_owned(),
                command,
            })
        }
        Scheme::Command(CommandLines {
            name,
            sender,
            receiver,
        }) => FlowScheme::Command {
            name: name.clone(),
            sender: sender.clone(),
            receiver: receiver.clone(),
        },
    }
}
