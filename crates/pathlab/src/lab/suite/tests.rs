use super::*;
use crate::lab::result::{Cpu, FORMAT, Total};
use crate::lab::run::Settings;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("pathlab-suite-{test}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn task(scheme: &str, seed: u64) -> Task {
    Task {
        inputs: Inputs {
            scenario: "x".into(),
            title: None,
            source: None,
            scaled: None,
            quick: false,
            scheme: scheme.into(),
            backend: "host".into(),
            seed,
            duration_s: 1.0,
            path: "50 Mbit/s".into(),
            capacity_mbps: Some(48.0),
            rtt_ms: 40.0,
            queue_packets: None,
            loss: 0.0,
            settings: Settings::default(),
            hash: format!("hash-{scheme}"),
        },
        reusable: scheme == "cubic",
        self_check: None,
    }
}

fn result(task: &Task, void: Option<&str>) -> RunResult {
    RunResult {
        format: FORMAT,
        inputs: task.inputs.clone(),
        conditions: Conditions::default(),
        void: void.map(str::to_owned),
        total: Total::default(),
        flows: Vec::new(),
        link: None,
        agent: None,
        cpu: Cpu::default(),
    }
}

fn carry_out(
    folder: &Folder,
    tasks: &[Task],
    interrupt: &Interrupt,
    conduct: &(dyn Fn(usize) -> Result<RunResult, String> + Sync),
) -> (SuiteRecord, Vec<String>) {
    let store = Store::open(&folder.0.join("out")).unwrap();
    let cache = Cache::new(&folder.0.join("cache"));
    let suite = Suite {
        tasks,
        store: &store,
        cache: Some(&cache),
        jobs: NonZeroUsize::MIN,
        real_time: true,
        interrupt,
    };
    let (mut record, mut said) = (SuiteRecord::new(), Vec::new());
    let mut tell = |line: &str| said.push(line.to_owned());
    suite.carry_out(&mut record, conduct, &mut tell).unwrap();
    (record, said)
}

#[test]
fn every_scheme_has_every_place_in_turn() {
    assert_eq!(order(3, 4), [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    assert_eq!(order(0, 2), [[0; 0], [0; 0]]);
}

#[test]
fn a_void_run_is_tried_again_and_kept_only_for_the_reader() {
    let folder = Folder::new("void");
    let tasks = [task("pk3c", 1), task("cubic", 1)];
    let tries = AtomicU32::new(0);
    let conduct = |index: usize| {
        let task = &tasks[index];
        if task.inputs.scheme == "cubic" {
            return Ok(result(task, Some("late")));
        }
        // Good at the second attempt.
        let number = tries.fetch_add(1, Ordering::Relaxed);
        Ok(result(task, (number == 0).then_some("late")))
    };
    let interrupt = Interrupt::default();
    let (record, said) = carry_out(&folder, &tasks, &interrupt, &conduct);
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    assert_eq!((record.counts.made, record.counts.failed), (1, 1));
    let failure = &record.failures[0];
    assert_eq!((failure.attempts, failure.void), (ATTEMPTS, true));
    assert!(
        said.iter()
            .any(|line| line.contains("void, once more: late")),
        "{said:?}"
    );
    // Neither the folder nor the cache has it for the next suite.
    let good = |index: usize| Ok(result(&tasks[index], None));
    let (record, _) = carry_out(&folder, &tasks, &interrupt, &good);
    let counts = record.counts;
    assert_eq!((counts.made, counts.kept, counts.reused), (1, 1, 0));
}

#[test]
fn a_void_run_in_virtual_time_would_be_void_again() {
    let folder = Folder::new("void-guest");
    let mut tasks = [task("pk3c", 1)];
    tasks[0].inputs.backend = "guest".into();
    let late = |index: usize| Ok(result(&tasks[index], Some("late")));
    let (record, _) = carry_out(&folder, &tasks, &Interrupt::default(), &late);
    let failure = &record.failures[0];
    assert_eq!((failure.attempts, failure.void), (1, true));
}

#[test]
fn a_failed_run_does_not_end_the_suite() {
    let folder = Folder::new("failed");
    let tasks = [task("pk3c", 1), task("pk3c", 2)];
    let conduct = |index: usize| match index {
        0 => Err("the agent died".to_owned()),
        _ => Ok(result(&tasks[index], None)),
    };
    let (record, said) = carry_out(&folder, &tasks, &Interrupt::default(), &conduct);
    assert_eq!((record.counts.made, record.counts.failed), (1, 1));
    assert_eq!(record.failures[0].error, "the agent died");
    assert!(!record.failures[0].void && record.ended.is_some());
    assert!(said[0].contains("FAILED: the agent died"), "{said:?}");
}

#[test]
fn an_interrupt_ends_the_suite_and_is_no_failure() {
    let folder = Folder::new("interrupt");
    let tasks = [task("pk3c", 1), task("pk3c", 2), task("pk3c", 3)];
    let interrupt = Interrupt::default();
    let conduct = |index: usize| {
        if index == 1 {
            interrupt.raise();
            return Err("interrupted".to_owned());
        }
        Ok(result(&tasks[index], None))
    };
    let (record, _) = carry_out(&folder, &tasks, &interrupt, &conduct);
    assert_eq!((record.counts.made, record.counts.failed), (1, 0));
    assert_eq!(record.ended, None);
}

#[test]
fn what_may_be_reused_is_and_nothing_else() {
    let folder = Folder::new("reuse");
    let tasks = [task("cubic", 1), task("pk3c", 1)];
    let good = |index: usize| Ok(result(&tasks[index], None));
    let interrupt = Interrupt::default();
    carry_out(&folder, &tasks, &interrupt, &good);
    fs::remove_dir_all(folder.0.join("out")).unwrap();
    let (record, _) = carry_out(&folder, &tasks, &interrupt, &good);
    assert_eq!((record.counts.made, record.counts.reused), (1, 1));
    // Another kernel, program or path has another hash.
    fs::remove_dir_all(folder.0.join("out")).unwrap();
    let mut others = tasks.clone();
    others[0].inputs.hash = "other".into();
    let good = |index: usize| Ok(result(&others[index], None));
    let (record, _) = carry_out(&folder, &others, &interrupt, &good);
    assert_eq!((record.counts.made, record.counts.reused), (2, 0));
}
