//! What carries the runs of a suite, and whether it can.

use super::lineup::{Subject, agent_command, own_program};
use super::sim;
use crate::cli::doctor;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use pathlab::Interrupt;
use pathlab::guest::{Config, KernelVersion};
use pathlab::lab::guest::{self, Order};
use pathlab::lab::host::{self, HostOptions, LATENESS_BOUND, LineKind};
use pathlab::lab::inputs::{Carrier, hash_of_file, path_in_words};
use pathlab::lab::result::{Conditions, Inputs, RunResult, SelfCheck};
use pathlab::lab::run::{FlowScheme, Run};
use pathlab::lab::suite::{ATTEMPTS, Task};
use pathlab::requirements::{self, LoadedModules};
use pathlab::scenario::Scheme;
use pathlab::self_check;
use pathsim::PathSpec;
use pk3c_ccp::params::Params;
use pk3c_ccp::simulate::Simulator;
use std::fs;
use std::num::NonZero;
use std::path::Path;

/// What carries runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// The TCP of this machine's kernel over an emulated path, in real time (root)
    Host,
    /// The TCP of a Debian kernel in a QEMU guest, in virtual time: repeatable, slower, no root
    Guest,
    /// The simulator: virtual time, no root
    Sim,
}

impl Backend {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Guest => "guest",
            Self::Sim => "sim",
        }
    }

    /// Whether a run takes as long as it says, and cannot have others beside it.
    pub(super) fn is_real_time(self) -> bool {
        self == Self::Host
    }

    /// What results depend on besides the run.
    ///
    /// # Errors
    /// If this program's own file or the kernel cannot be read, or a guest's kernel is not there and cannot be fetched.
    pub(super) fn carrier(self, guest: KernelVersion) -> Result<Carrier> {
        let program = hash_of_file(Path::new("/proc/self/exe"));
        let of_kernel = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        let carrier = Carrier {
            backend: self.name().to_owned(),
            sources: env!("PK3C_CARRIERS").to_owned(),
            program: program.context("cannot read this program's own file")?,
            ..Carrier::default()
        };
        match self {
            Self::Sim => Ok(carrier),
            Self::Guest => Ok(Carrier {
                kernel: pathlab::guest::kernel_release(&Config {
                    kernel: guest,
                    ..Config::default()
                })?,
                ..carrier
            }),
            Self::Host => Ok(Carrier {
                kernel: [of_kernel("osrelease")?.trim(), of_kernel("version")?.trim()].join(" "),
                cpus: cpus(),
                ..carrier
            }),
        }
    }

    /// The kernel, for results.
    pub(super) fn kernel(self, guest: KernelVersion) -> String {
        match self {
            Self::Sim => "simulator".to_owned(),
            Self::Guest => guest.to_string(),
            Self::Host => {
                let release = fs::read_to_string("/proc/sys/kernel/osrelease");
                release.unwrap_or_default().trim().to_owned()
            }
        }
    }
}

/// CPUs online.
pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// A backend that is ready to carry runs.
pub(super) struct Ready<'a> {
    backend: Backend,
    guest: KernelVersion,
    subjects: &'a [Subject<'a>],
    agent_args: &'a str,
    params: &'a Params,
    conditions: Conditions,
    interrupt: &'a Interrupt,
    simulator: Simulator,
    /// Unloaded again at the end.
    _modules: LoadedModules,
}

impl<'a> Ready<'a> {
    /// Checks that the backend has what the runs need.
    ///
    /// # Errors
    /// All that is missing, with remedies.
    pub(super) fn new(
        (backend, guest): (Backend, KernelVersion),
        subjects: &'a [Subject<'a>],
        (agent_args, params): (&'a str, &'a Params),
        conditions: Conditions,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let modules = match backend {
            Backend::Host => {
                let mut schemes = Vec::new();
                for subject in subjects {
                    let run = subject.run(&agent_command(agent_args))?;
                    schemes.extend(run.schemes.into_iter().filter_map(|scheme| match scheme {
                        FlowScheme::Tcp(scheme) => Some(scheme),
                        _ => None,
                    }));
                    // Thousands of flows have few schemes.
                    schemes.sort_by(|a, b| a.name().cmp(b.name()));
                    schemes.dedup();
                }
                if schemes
                    .iter()
                    .any(|scheme| matches!(scheme, Scheme::Agent { .. }))
                {
                    doctor::no_agent_runs().context("cannot measure the agent on this machine")?;
                }
                requirements::check(&schemes)
                    .context("use sudo where root is missing, or `--backend sim`")?
            }
            Backend::Guest | Backend::Sim => LoadedModules::default(),
        };
        Ok(Self {
            backend,
            guest,
            subjects,
            agent_args,
            params,
            conditions,
            interrupt,
            simulator: Simulator::new()?,
            _modules: modules,
        })
    }

    /// Carries out the run with this number.
    pub(super) fn conduct(&self, index: usize, task: &Task) -> Result<RunResult> {
        let subject = &self.subjects[index];
        match self.backend {
            Backend::Sim => sim::conduct(
                &self.simulator,
                (subject.plan, &subject.scheme),
                &task.inputs,
                self.params,
                self.interrupt,
            ),
            Backend::Host => self.on_host(subject, &task.inputs),
            Backend::Guest => self.in_guest(subject, &task.inputs),
        }
    }

    /// The run, with an agent whose order of trials is as repeatable as the path's losses.
    fn seeded(&self, subject: &Subject<'_>) -> Result<Run> {
        let mut agent = agent_command(self.agent_args);
        agent.extend(["--seed".to_owned(), subject.seed.to_string()]);
        subject.run(&agent)
    }

    fn in_guest(&self, subject: &Subject<'_>, inputs: &Inputs) -> Result<RunResult> {
        let order = Order {
            run: self.seeded(subject)?,
            inputs: inputs.clone(),
            conditions: self.conditions.clone(),
            line: LineKind::Netem,
        };
        let config = Config {
            kernel: self.guest,
            interrupt: self.interrupt.clone(),
            ..Config::default()
        };
        Ok(guest::run(&order, &config, Path::new(&own_program()))?)
    }

    fn on_host(&self, subject: &Subject<'_>, inputs: &Inputs) -> Result<RunResult> {
        let run = self.seeded(subject)?;
        let options = HostOptions {
            conditions: self.conditions.clone(),
            ..HostOptions::new(inputs.clone())
        };
        Ok(host::run(&run, &options, self.interrupt)?)
    }
}

/// Finds out what the emulator does to a null sender on each path, and gives each task what was found on its own.
///
/// # Errors
/// A path on which the emulator does not do what it should: nothing that it carries would be worth anything.
pub(super) fn check_paths(
    subjects: &[Subject<'_>],
    tasks: &mut [Task],
    is_pending: &[bool],
    interrupt: &Interrupt,
) -> Result<Vec<SelfCheck>> {
    let mut found: Vec<(&PathSpec, SelfCheck)> = Vec::new();
    for ((subject, task), _) in subjects
        .iter()
        .zip(tasks.iter_mut())
        .zip(is_pending)
        .filter(|(_, is_pending)| **is_pending)
    {
        let path = &subject.plan.scenario.path;
        if subject.plan.settings.loopback {
            continue;
        }
        let check = match found.iter().find(|(other, _)| *other == path) {
            Some((_, check)) => check.clone(),
            None => {
                let check = check_path(path, interrupt)?;
                found.push((path, check.clone()));
                check
            }
        };
        task.self_check = Some(check);
    }
    Ok(found.into_iter().map(|(_, check)| check).collect())
}

fn check_path(path: &PathSpec, interrupt: &Interrupt) -> Result<SelfCheck> {
    let words = path_in_words(path);
    let bound_us = u64::try_from(LATENESS_BOUND.as_micros()).unwrap_or(u64::MAX);
    let mut attempt = 1;
    loop {
        let check = self_check::run(&words, path, bound_us, u64::from(attempt), interrupt)
            .with_context(|| format!("self-check of {words}"))?;
        let verdict = verdict(&check);
        if check.passed {
            tell!("self-check of {words}: {verdict}");
            return Ok(check);
        }
        tell!("self-check of {words} FAILED: {verdict}");
        if attempt == ATTEMPTS {
            bail!(
                "the emulator does not do what it should on {words}, in {ATTEMPTS} attempts ({verdict}): end what else \
                 runs on this machine, or choose a slower path; --no-self-check measures all the same, and says so"
            );
        }
        attempt += 1;
    }
}

fn verdict(check: &SelfCheck) -> String {
    let SelfCheck {
        capacity_mbps,
        delay_ms,
        loss,
        late_p99_us,
        ..
    } = check;
    format!(
        "{:.2} of {:.2} Mbit/s, delay {:.2} of {:.2} ms, loss {:.2} of {:.2} %, {:.0} us late (p99, {:.0} at most)",
        capacity_mbps.measured,
        capacity_mbps.asked,
        delay_ms.measured,
        delay_ms.asked,
        loss.measured * 100.0,
        loss.asked * 100.0,
        late_p99_us.measured,
        late_p99_us.asked
    )
}
