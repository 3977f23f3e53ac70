//! Which runs a suite is made of: the scenarios that are meant, the schemes of each, and in which order they take
//! turns.

use super::backend::Backend;
use super::scenarios::{self, SourceArgs};
use crate::cli::scenario::{Plan, Scheme};
use anyhow::{Context, Result, bail};
use pathlab::lab::inputs::{About, Carrier};
use pathlab::lab::result::Inputs;
use pathlab::lab::run::Run;
use pathlab::lab::suite::{Task, order};
use pathlab::requirements::lacks_congestion_control;
use std::collections::BTreeSet;

/// A scenario, and the schemes that it is run under.
pub(super) struct Lineup {
    pub(super) plan: Plan,
    pub(super) schemes: Vec<Scheme>,
}

/// One run as a backend needs it.
pub(super) struct Subject<'a> {
    pub(super) plan: &'a Plan,
    pub(super) scheme: Scheme,
    pub(super) seed: u64,
}

impl Subject<'_> {
    /// As a run of the lab, with this command as agent.
    pub(super) fn run(&self, agent: &[String]) -> Result<Run> {
        let Self { plan, scheme, seed } = self;
        let run = plan.run(scheme, agent, *seed);
        run.with_context(|| format!("scenario {} under {scheme}", plan.id))
    }
}

/// The scenarios that are meant, with their schemes.
///
/// # Errors
/// What does not exist, and what the backend lacks, if it was asked for by name.
pub(super) fn read(
    source: &SourceArgs,
    ids: &[String],
    wanted: &[Scheme],
    (backend, quick): (Backend, bool),
) -> Result<Vec<Lineup>> {
    let all = source.read()?;
    let selected = if ids.is_empty() && source.is_limited() {
        all.into_iter().map(|plan| (plan, false)).collect()
    } else {
        scenarios::select(all, ids)?
    };
    let mut left_out = BTreeSet::new();
    let mut lineups = Vec::new();
    for (plan, is_named) in selected {
        let all: Vec<Scheme> = if wanted.is_empty() {
            plan.compared.clone()
        } else {
            wanted.iter().map(|wanted| known(&plan, wanted)).collect()
        };
        let mut schemes = Vec::new();
        for scheme in all {
            match lacks(&plan, &scheme, backend, !wanted.is_empty()) {
                None => schemes.push(scheme),
                // What was asked for by name shall not be missed.
                Some(lacks) if is_named && !wanted.is_empty() => {
                    return Err(lacks.context(format!("scenario {}", plan.id)));
                }
                Some(lacks) => {
                    left_out.insert(format!("{} under {scheme}: {lacks}", plan.id));
                }
            }
        }
        if !schemes.is_empty() {
            let plan = if quick { plan.in_short() } else { plan };
            lineups.push(Lineup { plan, schemes });
        }
    }
    left_out.iter().for_each(|what| tell!("left out: {what}"));
    if lineups.is_empty() {
        bail!("no run is left: choose other scenarios or schemes, or another --backend");
    }
    Ok(lineups)
}

/// What the backend lacks for a scenario under a scheme. A host without a congestion control that was asked for is
/// refused as a whole, with all else that it lacks.
fn lacks(
    plan: &Plan,
    scheme: &Scheme,
    backend: Backend,
    is_asked_for: bool,
) -> Option<anyhow::Error> {
    match (backend, scheme) {
        (Backend::Sim, _) => plan.check_simulated(scheme).err(),
        (Backend::Host, Scheme::Kernel(name)) if !is_asked_for => {
            lacks_congestion_control(name).map(anyhow::Error::msg)
        }
        _ => None,
    }
}

/// A scenario may give a name to commands that send and receive.
fn known(plan: &Plan, wanted: &Scheme) -> Scheme {
    let commands = plan.compared.iter();
    let mut commands = commands.filter(|scheme| matches!(scheme, Scheme::Command(_)));
    let same = commands.find(|scheme| scheme.to_string() == wanted.to_string());
    same.unwrap_or(wanted).clone()
}

/// All runs: repetition by repetition, in each all scenarios, for each all schemes in the repetition's order. Seeds are
/// the scenario's own and those that follow, unless there is a first one.
pub(super) fn subjects(lineups: &[Lineup], reps: u32, first: Option<u64>) -> Vec<Subject<'_>> {
    let mut subjects = Vec::new();
    for repetition in 0..reps {
        for Lineup { plan, schemes } in lineups {
            let first = first.unwrap_or(plan.scenario.seed);
            let seed = first.wrapping_add(u64::from(repetition));
            let orders = order(schemes.len(), reps);
            let schemes = orders[repetition as usize]
                .iter()
                .map(|place| &schemes[*place]);
            subjects.extend(schemes.map(|scheme| Subject {
                plan,
                scheme: scheme.clone(),
                seed,
            }));
        }
    }
    subjects
}

/// What determines each run, and whether an earlier result of it may be used.
///
/// # Errors
/// Schemes that cannot run beside each other.
pub(super) fn tasks(
    subjects: &[Subject<'_>],
    carrier: &Carrier,
    agent_args: &str,
    quick: bool,
) -> Result<Vec<Task>> {
    let agent = agent_command(agent_args);
    let task = |subject: &Subject<'_>| {
        let plan = subject.plan;
        let about = About {
            title: plan.title.clone(),
            source: plan.source.clone(),
            scaled: plan.scaled.clone(),
            quick,
        };
        let carrier = Carrier {
            agent_latency_ns: plan.agent_latency_ns,
            ..carrier.clone()
        };
        let others = plan.schemes.iter().flatten();
        let is_own = |scheme: &Scheme| matches!(scheme, Scheme::Agent(_) | Scheme::Command(_));
        Ok(Task {
            inputs: Inputs::of(&subject.run(&agent)?, &about, &carrier),
            reusable: !is_own(&subject.scheme) && !others.into_iter().any(is_own),
            self_check: None,
        })
    };
    subjects.iter().map(task).collect()
}

/// This program's file; by its process, so that a new build meanwhile does not change what runs.
pub(super) fn own_program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// This program as an agent.
pub(super) fn agent_command(agent_args: &str) -> Vec<String> {
    let mut command = vec![
        own_program(),
        "run".into(),
        "--log-format".into(),
        "json".into(),
    ];
    command.extend(agent_args.split_whitespace().map(str::to_owned));
    command
}

/// The order of each repetition, of the first scenario: others with the same schemes have the same.
pub(super) fn orders(lineups: &[Lineup], reps: u32) -> Vec<Vec<String>> {
    let schemes = lineups.first().map_or(&[][..], |lineup| &lineup.schemes);
    let orders = order(schemes.len(), reps);
    let names = orders.iter().map(|places| {
        let schemes = places.iter().map(|place| schemes[*place].to_string());
        schemes.collect()
    });
    names.collect()
}
