//! Runs of scenarios, on as many cores as wanted. A run depends on its scenario, scheme, seed and parameters alone; the
//! clock on the wall only tells how long it will take.

use crate::cli::scenario::{Plan, Scheme};
use anyhow::{Context, Result, bail};
use pathsim::{Bbr, Controller, Cubic, FixedRate, Reno, Results, SECOND, Simulation, WIRE};
use pk3c_ccp::ensemble::Ensemble;
use pk3c_ccp::params::{Algorithm, Params};
use pk3c_ccp::simulate::{Decided, DecisionLog, Simulator};
use pk3c_ccp::units::Micros;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(2);
/// What a run costs besides its packets, in packets per flow and second.
const IDLE_COST: f64 = 100.0;

/// One run.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Job<'a> {
    pub(in crate::cli) plan: &'a Plan,
    /// What the flows under test get.
    pub(in crate::cli) scheme: Scheme,
    pub(in crate::cli) seed: u64,
}

impl Job<'_> {
    /// Packets that the path can carry: what the time of a run goes with.
    fn cost(&self) -> f64 {
        let scenario = &self.plan.scenario;
        let packets = scenario.path.rate.capacity_bytes(0, scenario.duration_ns) / WIRE as f64;
        packets
            + IDLE_COST
                * scenario.flows.len() as f64
                * (scenario.duration_ns as f64 / SECOND as f64)
    }
}

/// What to keep of a run besides its results.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct Keep {
    /// Series over time.
    pub(in crate::cli) series: bool,
    /// Decisions of each flow, at most.
    pub(in crate::cli) decisions: usize,
}

/// Decisions of one flow, and how many more there were.
pub(super) type Decisions = (Vec<Decided>, u64);

/// What a run gave.
pub(in crate::cli) struct Outcome {
    pub(in crate::cli) results: Results,
    /// One entry for each flow, empty for those without an agent; no entry at all if not asked for.
    pub(super) decisions: Vec<Decisions>,
}

/// Carries out all runs and hands each outcome to `reduce`, so that no more is kept than wanted. Results come in the
/// order of the jobs, whatever the number of threads.
///
/// # Errors
/// The first scenario that cannot be simulated.
pub(in crate::cli) fn carry_out<T: Send>(
    jobs: &[Job<'_>],
    params: &Params,
    keep: Keep,
    threads: Option<NonZero<usize>>,
    reduce: impl Fn(&Job<'_>, Outcome) -> T + Sync,
) -> Result<Vec<T>> {
    let simulator = Simulator::new()?;
    let progress = Progress::new(jobs);
    // The longest first, so that none is left for the end alone.
    let mut order: Vec<_> = jobs.iter().enumerate().collect();
    order.sort_by(|a, b| b.1.cost().total_cmp(&a.1.cost()));
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        while !failed.load(Ordering::Relaxed)
            && let Some((index, job)) = order.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let outcome =
                one(&simulator, job, params, keep, &progress).map(|outcome| reduce(job, outcome));
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            outcomes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((*index, outcome));
        }
    };
    let threads = threads.map_or_else(std::thread::available_parallelism, Ok);
    let threads = threads.map_or(1, NonZero::get).min(jobs.len());
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let mut outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn one(
    simulator: &Simulator,
    job: &Job<'_>,
    params: &Params,
    keep: Keep,
    progress: &Progress,
) -> Result<Outcome> {
    let (simulation, logs) = prepare(simulator, job, params, keep)?;
    let part = job.cost() * SECOND as f64 / job.plan.scenario.duration_ns as f64;
    let results = simulation.run_with_progress(|_| progress.add(part, 0));
    progress.add(0.0, 1);
    let decisions = logs.iter().map(|log| {
        log.as_ref()
            .map_or_else(Decisions::default, DecisionLog::take)
    });
    let mut decisions: Vec<_> = decisions.collect();
    if keep.decisions == 0 {
        decisions.clear();
    }
    Ok(Outcome { results, decisions })
}

/// A run that is about to begin, and the log of each flow whose decisions are kept.
///
/// # Errors
/// A scenario that cannot be simulated.
pub(in crate::cli) fn prepare<'a>(
    simulator: &Simulator,
    job: &Job<'_>,
    params: &Params,
    keep: Keep,
) -> Result<(Simulation<'a>, Vec<Option<DecisionLog>>)> {
    let id = &job.plan.id;
    job.plan
        .check_simulated(&job.scheme)
        .with_context(|| format!("scenario {id} cannot be simulated"))?;
    let (mut scenario, schemes) = job.plan.under_test(&job.scheme);
    scenario.seed = job.seed;
    scenario.series = keep.series;
    let latency = Micros::new(job.plan.agent_latency_ns / 1000);
    let mut logs = Vec::new();
    let mut controllers: Vec<Box<dyn Controller>> = Vec::new();
    // Flows with one RTT go to one address.
    let mut ensembles: HashMap<u64, Ensemble> = HashMap::new();
    // Shared by the flows of an algorithm.
    let mut tuned: Vec<(Algorithm, Arc<Params>)> = Vec::new();
    for ((scheme, spec), number) in schemes.iter().zip(&scenario.flows).zip(1u64..) {
        let mut log = None;
        controllers.push(match scheme {
            Scheme::Kernel(name) if name == "cubic" => Box::new(Cubic::default()),
            Scheme::Kernel(name) if name == "reno" => Box::new(Reno::default()),
            Scheme::Kernel(name) if name == "bbr" => Box::new(Bbr::new(flow_seed(job, number))),
            Scheme::Udp(bps) => Box::new(FixedRate { rate: bps / 8 }),
            Scheme::Agent(algorithm) => {
                let known = tuned.iter().find(|(known, _)| known == algorithm);
                let params = match known {
                    Some((_, params)) => params.clone(),
                    None => {
                        let params = Arc::new(params_of(*algorithm, params)?);
                        tuned.push((*algorithm, params.clone()));
                        params
                    }
                };
                let start = Micros::new(spec.start_ns / 1000);
                if params.is_exp() {
                    Box::new(simulator.exp_flow(start))
                } else {
                    log = (keep.decisions > 0).then(|| DecisionLog::new(keep.decisions));
                    let seed = flow_seed(job, number);
                    let ensemble = ensembles.entry(spec.extra_rtt_ns).or_default();
                    Box::new(simulator.logged_flow(
                        params,
                        seed,
                        start,
                        latency,
                        ensemble,
                        log.clone(),
                    ))
                }
            }
            Scheme::Kernel(_) | Scheme::Command(_) => bail!("the simulator has no {scheme}"),
        });
        logs.push(log);
    }
    let simulation = Simulation::new(scenario, controllers)
        .with_context(|| format!("scenario {id} cannot be simulated"))?;
    Ok((simulation, logs))
}

/// Chance of the flow with this number.
fn flow_seed(job: &Job<'_>, number: u64) -> u64 {
    job.seed.wrapping_mul(1_000_003).wrapping_add(number)
}

/// The parameters of flows under an algorithm; `pk3c` is what the given ones choose.
fn params_of(algorithm: Algorithm, given: &Params) -> Result<Params> {
    let mut params = given.clone();
    if algorithm != Algorithm::Pk3c {
        params.set("algorithm", &algorithm.to_string())?;
    }
    Ok(params)
}

/// How far all runs are, on standard error, for those that take longer than [`EVERY`].
struct Progress {
    runs: usize,
    cost: f64,
    began: Instant,
    done: Mutex<Done>,
}

struct Done {
    runs: usize,
    cost: f64,
    told: Instant,
}

impl Progress {
    fn new(jobs: &[Job<'_>]) -> Self {
        let began = Instant::now();
        Self {
            runs: jobs.len(),
            cost: jobs.iter().map(Job::cost).sum(),
            began,
            done: Mutex::new(Done {
                runs: 0,
                cost: 0.0,
                told: began,
            }),
        }
    }

    fn add(&self, cost: f64, runs: usize) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.cost += cost;
        done.runs += runs;
        if done.told.elapsed() < EVERY || done.runs == self.runs {
            return;
        }
        done.told = Instant::now();
        let part = (done.cost / self.cost).clamp(0.001, 1.0);
        let left = self.began.elapsed().as_secs_f64() * (1.0 / part - 1.0);
        tell!(
            "simulated {:.0} % ({} of {} runs done), about {left:.0} s left",
            part * 100.0,
            done.runs,
            self.runs
        );
    }
}
