//! Many runs, one after the other or side by side: in a fair order, resumable, and none of them in vain.
//!
//! The schemes take turns: their order is another one in every repetition, so that what drifts (a warming machine, a
//! neighbour's load) meets all of them. All scenarios have had their first repetition before the second begins. Each
//! result is written as soon as it is there; a suite that is interrupted, killed or out of disk loses the run that was
//! going on and nothing else, and the same command goes on where it ended. A run that fails is recorded and the suite
//! continues; a void result is tried again where time is the wall clock's, because what made it void is usually a
//! neighbour.

mod cache;
mod progress;
mod record;
mod store;

pub use cache::Cache;
pub use progress::{Progress, words};
pub use record::{Counts, FILE, Failure, SuiteRecord};
pub use store::{Found, Store, StoreError};

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::result::{Conditions, Inputs, RunResult, SelfCheck};
use crate::process::Interrupt;

/// How often a run in the wall clock's time is tried whose result is void; in virtual time it would be the same again.
pub const ATTEMPTS: u32 = 3;

/// A run of a suite.
#[derive(Clone, Debug)]
pub struct Task {
    /// What determines it.
    pub inputs: Inputs,
    /// Whether its result may come from the cache.
    pub reusable: bool,
    /// What the null sender found on its path.
    pub self_check: Option<SelfCheck>,
}

/// The order of `count` schemes in so many repetitions: each time another one begins, so that over `count` repetitions
/// every scheme has had every place.
pub fn order(count: usize, repetitions: u32) -> Vec<Vec<usize>> {
    let places = |repetition| (0..count).map(move |place| (place + repetition) % count);
    (0..repetitions as usize)
        .map(|repetition| places(repetition).collect())
        .collect()
}

/// Now, RFC 3339, UTC.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// How a suite is carried out.
#[derive(Debug)]
pub struct Suite<'a> {
    /// The runs, in their order.
    pub tasks: &'a [Task],
    /// Where results go.
    pub store: &'a Store,
    /// Where earlier results may come from.
    pub cache: Option<&'a Cache>,
    /// Runs side by side. On real time more than one would disturb each other.
    pub jobs: NonZeroUsize,
    /// Whether a run takes as long as it says.
    pub real_time: bool,
    /// Raised, the suite ends with the runs that are going on.
    pub interrupt: &'a Interrupt,
}

/// What happens during a suite.
struct State<'a> {
    record: &'a mut SuiteRecord,
    progress: Progress,
    tell: &'a mut (dyn FnMut(&str) + Send),
    broken: Option<StoreError>,
}

/// What became of one task.
enum Made {
    Good(Box<RunResult>),
    Failed(Failure),
    Interrupted,
}

impl Suite<'_> {
    /// Carries out what is not there yet. `conduct` makes the run of a task's number; its error is a sentence. What
    /// happens goes to `record`, and as lines to `tell`.
    ///
    /// # Errors
    /// [`StoreError`] if a result or the record cannot be written; what was written before is kept.
    pub fn carry_out(
        &self,
        record: &mut SuiteRecord,
        conduct: &(dyn Fn(usize) -> Result<RunResult, String> + Sync),
        tell: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), StoreError> {
        record.counts = Counts {
            total: self.tasks.len(),
            ..Counts::default()
        };
        record.failures.clear();
        self.store.keep_other(FILE, record)?;
        let runs = self
            .tasks
            .iter()
            .map(|task| (kind(&task.inputs), task.inputs.duration_s));
        let state = Mutex::new(State {
            record,
            progress: Progress::new(runs, self.jobs.get(), self.real_time),
            tell,
            broken: None,
        });
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((index, task)) = self.next(&next, &state) {
                let began = Instant::now();
                let made = match self.find(task, &state) {
                    Ok(true) => continue,
                    Ok(false) => self.make(index, task, conduct, &state),
                    Err(error) => Err(error),
                };
                lock(&state).note(self, index, made, began.elapsed());
            }
        };
        thread::scope(|scope| {
            (1..self.jobs.get().min(self.tasks.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let State { record, broken, .. } =
            state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(broken) = broken {
            return Err(broken);
        }
        if !self.interrupt.is_raised() {
            record.ended = Some(now());
        }
        self.store.keep_other(FILE, record)
    }

    /// The next task, unless the suite is to end.
    fn next(&self, next: &AtomicUsize, state: &Mutex<State<'_>>) -> Option<(usize, &Task)> {
        if self.interrupt.is_raised() || lock(state).broken.is_some() {
            return None;
        }
        let index = next.fetch_add(1, Ordering::Relaxed);
        Some((index, self.tasks.get(index)?))
    }

    /// Whether the result of a task is there already, in the folder or in the cache.
    fn find(&self, task: &Task, state: &Mutex<State<'_>>) -> Result<bool, StoreError> {
        match self.store.find(&task.inputs) {
            Found::Result(result) => {
                lock(state).found(&result.inputs, |counts| &mut counts.kept, "is there");
                return Ok(true);
            }
            Found::Useless(why) => lock(state).say(&task.inputs, &format!("once more: {why}")),
            Found::Other => lock(state).say(&task.inputs, "anew: what is there has other inputs"),
            Found::Nothing => {}
        }
        let cached = self.cache.filter(|_| task.reusable);
        let Some(mut result) = cached.and_then(|cache| cache.find(&task.inputs)) else {
            return Ok(false);
        };
        // What a scenario says of itself may have changed since.
        let capacity_mbps = result.inputs.capacity_mbps;
        result.inputs = Inputs {
            capacity_mbps,
            ..task.inputs.clone()
        };
        result.conditions.reused = true;
        self.store.keep(&result)?;
        lock(state).found(&result.inputs, |counts| &mut counts.reused, "reused");
        Ok(true)
    }

    fn make(
        &self,
        index: usize,
        task: &Task,
        conduct: &(dyn Fn(usize) -> Result<RunResult, String> + Sync),
        state: &Mutex<State<'_>>,
    ) -> Result<Made, StoreError> {
        let conditions = lock(state).record.conditions.clone();
        let mut failure = Failure {
            scenario: task.inputs.scenario.clone(),
            scheme: task.inputs.scheme.clone(),
            seed: task.inputs.seed,
            ..Failure::default()
        };
        let attempts = match task.inputs.backend.as_str() {
            "host" => ATTEMPTS,
            _ => 1,
        };
        loop {
            let began = now();
            failure.attempts += 1;
            let result = conduct(index);
            if self.interrupt.is_raised() {
                return Ok(Made::Interrupted);
            }
            let mut result = match result {
                Ok(result) => result,
                Err(error) => {
                    failure.error = error;
                    return Ok(Made::Failed(failure));
                }
            };
            complete(&mut result.conditions, &conditions, began);
            result.conditions.self_check.clone_from(&task.self_check);
            self.store.keep(&result)?;
            let Some(why) = &result.void else {
                // The result is there; only later suites have to do without it.
                if let Some(cache) = self.cache.filter(|_| task.reusable)
                    && let Err(error) = cache.keep(&result)
                {
                    lock(state).say(&task.inputs, &error.to_string());
                }
                return Ok(Made::Good(Box::new(result)));
            };
            if failure.attempts >= attempts {
                failure.void = true;
                failure.error.clone_from(why);
                return Ok(Made::Failed(failure));
            }
            lock(state).say(&task.inputs, &format!("void, once more: {why}"));
        }
    }
}

/// What the backend does not know, or does not say.
fn complete(run: &mut Conditions, suite: &Conditions, began: String) {
    run.began = began;
    run.version.clone_from(&suite.version);
    run.revision.clone_from(&suite.revision);
    run.algorithm.clone_from(&suite.algorithm);
    run.cpus = suite.cpus;
    run.agent_args.clone_from(&suite.agent_args);
    if run.kernel.is_empty() {
        run.kernel.clone_from(&suite.kernel);
    }
}

fn lock<'a, 'b>(state: &'a Mutex<State<'b>>) -> std::sync::MutexGuard<'a, State<'b>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `C10-1 pk3c, seed 2`
fn label(inputs: &Inputs) -> String {
    format!(
        "{} {}, seed {}",
        inputs.scenario, inputs.scheme, inputs.seed
    )
}

impl State<'_> {
    fn say(&mut self, inputs: &Inputs, what: &str) {
        let count = self.progress.count();
        (self.tell)(&format!("{count} {}: {what}", label(inputs)));
    }

    fn found(&mut self, inputs: &Inputs, count: fn(&mut Counts) -> &mut usize, how: &str) {
        *count(&mut self.record.counts) += 1;
        self.progress.skipped(&kind(inputs), inputs.duration_s);
        self.say(inputs, how);
    }

    fn note(
        &mut self,
        suite: &Suite<'_>,
        index: usize,
        made: Result<Made, StoreError>,
        took: Duration,
    ) {
        let inputs = &suite.tasks[index].inputs;
        let failure = match made {
            Ok(Made::Interrupted) => return,
            Err(error) => {
                self.broken.get_or_insert(error);
                return;
            }
            Ok(Made::Good(result)) => {
                self.record.counts.made += 1;
                self.progress.made(&kind(inputs), inputs.duration_s, took);
                let shown = shown(&result);
                let left = self.progress.left();
                let took = words(took.as_secs_f64());
                self.say(inputs, &format!("{shown} ({took}{left})"));
                return;
            }
            Ok(Made::Failed(failure)) => failure,
        };
        self.record.counts.failed += 1;
        self.progress.made(&kind(inputs), inputs.duration_s, took);
        self.say(inputs, &format!("FAILED: {}", failure.error));
        self.record.failures.push(failure);
        if let Err(error) = suite.store.keep_other(FILE, &*self.record) {
            self.broken.get_or_insert(error);
        }
    }
}

/// Runs that take equally long.
fn kind(inputs: &Inputs) -> String {
    format!("{} {}", inputs.scenario, inputs.scheme)
}

/// A result in a few words.
fn shown(result: &RunResult) -> String {
    let total = &result.total;
    let mut text = format!("{:.1} Mbit/s", total.goodput_mbps);
    if let Some(rtt) = &total.rtt_ms {
        text += &format!(", RTT p95 {:.1} ms", rtt.p95);
    }
    text
}

#[cfg(test)]
mod tests;
