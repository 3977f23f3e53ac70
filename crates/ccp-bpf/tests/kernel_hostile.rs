//! An agent that has gone mad writes whatever it can into the memory it shares with the kernel.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccp_bpf::{Config, Error, Origin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use support::agent::{Running, Steering};
use support::maps::Words;
use support::talk::Talk;
use support::{Guard, can_run, is_listed, maps, wait_until};

const NAME: &str = "ccphostile";
const FLOWS: usize = 12;
const MIN_RATE: u64 = 100_000;
const MAX_RATE: u64 = 4_000_000;
const MIN_CWND: u64 = 4;
/// Of each kind of madness.
const LASTS: Duration = Duration::from_secs(2);

/// `struct ccp_flow` in 32-bit words.
const FLOW_WORDS: usize = 976 / 4;
const SID: usize = 0;
const LIVE: usize = 1;
/// Errors and the zero of Micros: the first words that are the program's to spoil.
const ERRORS: std::ops::Range<usize> = 2..6;
const MBOX: usize = (976 - 67 * 8 - 16 - 168) / 4;
const MBOX_VALUES: usize = MBOX + 6;
/// What the datapath enforces of the agent's own making, before the flow's 18 words of counters, and the end of a bar.
const GOVERNANCE: usize = MBOX - 18 - 6;
const BARRED_UNTIL: usize = GOVERNANCE - 6;
/// The message header and all registers.
const MESSAGE: std::ops::Range<usize> = MBOX_VALUES + 36..FLOW_WORDS;
/// `beat_us` in the control block.
const BEAT: usize = 2;

/// xorshift64: enough to spoil memory with, and the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// What an agent might send by mistake.
    fn value(&mut self) -> u64 {
        let edges = [0, 1, 1447, 1 << 31, u64::from(u32::MAX), 1 << 62, u64::MAX];
        match self.below(2 * edges.len()) {
            edge if edge < edges.len() => edges[edge],
            _ => self.next() >> self.below(64),
        }
    }
}

fn put(words: &Words, at: usize, value: u64) {
    words.word(at).store(value as u32, Relaxed);
    words.word(at + 1).store((value >> 32) as u32, Relaxed);
}

/// What the mad agent can write to.
struct Memory {
    flows: Words,
    tables: Words,
    control: Words,
}

impl Memory {
    fn map(config: &Config) -> Self {
        let map = |name| Words::map(&maps::open(&config.pin_dir, name));
        Self {
            flows: map("flows"),
            tables: map("program_tables"),
            control: map("control"),
        }
    }

    fn beat(&self) {
        put(&self.control, BEAT, maps::monotonic_us());
    }

    /// An update that is well-formed and mad, for some flow, and rubbish where programs work.
    fn mislead(&self, random: &mut Random) {
        let flow = random.below(self.flows.len() / FLOW_WORDS) * FLOW_WORDS;
        let word = |at: usize| self.flows.word(flow + at);
        let seq = word(MBOX).load(Acquire);
        word(MBOX).store(seq | 1, Release);
        word(MBOX + 1).store(word(SID).load(Relaxed), Relaxed);
        word(MBOX + 2).store(random.below(2) as u32, Relaxed); // the installed program or none
        word(MBOX + 3).store(random.next() as u32, Relaxed);
        for value in 0..18 {
            put(&self.flows, flow + MBOX_VALUES + 2 * value, random.value());
        }
        word(MBOX).store((seq & !3).wrapping_add(4) | 2, Release);
        for _ in 0..8 {
            let at = MESSAGE.start + random.below(MESSAGE.len());
            word(at).store(random.value() as u32, Relaxed);
            let at = ERRORS.start + random.below(ERRORS.len());
            word(at).store(random.value() as u32, Relaxed);
        }
        let table = random.below(self.tables.len());
        self.tables
            .word(table)
            .store(random.value() as u32, Relaxed);
    }

    /// The rubbish may say that flows are to be left alone; this says that they are not.
    fn allow(&self) {
        for flow in (0..self.flows.len()).step_by(FLOW_WORDS) {
            put(&self.flows, flow + GOVERNANCE, 1 | 1_000_000 << 32);
            put(&self.flows, flow + GOVERNANCE + 2, 0);
            put(&self.flows, flow + GOVERNANCE + 4, u64::MAX);
            put(&self.flows, flow + BARRED_UNTIL, 0);
        }
    }

    /// No socket holds a slot any more. Only if each slot has had one since the last rubbish.
    fn all_free(&self) -> bool {
        let mut slots = (0..self.flows.len()).step_by(FLOW_WORDS);
        slots.all(|flow| self.flows.word(flow + LIVE).load(Acquire) == 0)
    }

    /// Rubbish anywhere.
    fn scribble(&self, random: &mut Random) {
        for words in [&self.flows, &self.tables, &self.control] {
            let at = random.below(words.len());
            words.word(at).store(random.value() as u32, Relaxed);
        }
    }
}

/// A thread that does one kind of damage until it is told to end.
struct Mad {
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Mad {
    fn start(memory: &Arc<Memory>, act: fn(&Memory, &mut Random)) -> Self {
        let (stop, writes) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let thread = spawn({
            let (stop, writes) = (Arc::clone(&stop), Arc::clone(&writes));
            let memory = Arc::clone(memory);
            move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15);
                while !stop.load(Relaxed) {
                    for _ in 0..64 {
                        act(&memory, &mut random);
                    }
                    writes.fetch_add(64, Relaxed);
                    sleep(Duration::from_micros(50));
                }
            }
        });
        Self {
            stop,
            writes,
            thread,
        }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap();
        self.writes.load(Relaxed)
    }
}

#[test]
fn kernel_a_mad_agent_stays_within_the_limits() {
    if !can_run("kernel_a_mad_agent_stays_within_the_limits") {
        return;
    }
    let config = Config {
        max_flows: FLOWS as u32,
        min_rate: MIN_RATE,
        max_rate: MAX_RATE,
        min_cwnd: MIN_CWND as u32,
        silence: Duration::from_secs(2),
        ..Config::new(NAME)
    };
    let _guard = Guard::new(&config);
    let talk = Talk::new(3_000);
    // An honest agent installs a program and takes the flows; then the mad one is alone.
    let rule = |_: &portus::DatapathInfo| (1_000_000, 100_000);
    let agent = Running::steering(support::start(&config), &Steering::new(rule));
    let observer = agent.observer().clone();
    let ports = talk.open(NAME, FLOWS);
    talk.wait_paced(&ports, 1_000_000);
    agent.leave();
    let memory = Arc::new(Memory::map(&config));
    let layout = memory.control.word(0).load(Relaxed);
    memory.beat();

    let mad = Mad::start(&memory, |memory, random| {
        memory.beat();
        memory.mislead(random);
    });
    sleep(Duration::from_millis(200));
    let fallbacks = observer.counters().fallbacks;
    let (start, mut looks) = (Instant::now(), 0);
    let (mut rates, mut windows) = ((u64::MAX, 0), (u64::MAX, 0));
    while start.elapsed() < LASTS {
        for port in &ports {
            let info = talk.info(*port);
            let (rate, cwnd) = (info.pacing_rate(), info.snd_cwnd());
            rates = (rates.0.min(rate), rates.1.max(rate));
            if !info.in_loss() {
                windows = (windows.0.min(cwnd), windows.1.max(cwnd));
            }
            looks += 1;
        }
        sleep(Duration::from_millis(1));
    }
    let updates = mad.end();
    println!("{updates} mad updates; in {looks} looks rates {rates:?}, windows {windows:?}");
    assert!(updates > 10_000, "{updates} updates");
    // Within the limits, and up to both ends of them: the madness did arrive.
    assert_eq!(rates, (MIN_RATE, MAX_RATE));
    assert_eq!(windows.0, MIN_CWND);
    assert!(windows.1 > 1_000_000, "windows up to {}", windows.1);
    assert_eq!(
        observer.counters().fallbacks,
        fallbacks,
        "the agent drove them all the time"
    );

    let mad = Mad::start(&memory, Memory::scribble);
    let start = Instant::now();
    let acked = |port: &u16| talk.info(*port).bytes_acked();
    while start.elapsed() < LASTS {
        let then: Vec<_> = ports.iter().map(acked).collect();
        wait_until("all connections go on", || {
            ports
                .iter()
                .zip(&then)
                .all(|(port, then)| acked(port) > *then)
        });
    }
    let rubbish = mad.end();
    println!("{rubbish} times rubbish; {:?}", observer.counters());
    assert!(rubbish > 10_000, "{rubbish} times");
    assert!(is_listed(NAME));

    // It takes the flows once more, and then pretends to live for ever.
    memory.allow();
    let mad = Mad::start(&memory, |memory, random| {
        memory.beat();
        memory.mislead(random);
    });
    let fast = |port: &u16| talk.info(*port).pacing_rate() > MAX_RATE;
    wait_until("the mad agent has all flows", || !ports.iter().any(fast));
    mad.end();
    put(&memory.control, BEAT, u64::MAX / 2);
    wait_until("the fallback takes over", || ports.iter().all(fast));
    talk.finish();
    // Their last bytes have arrived; the sockets themselves end a little later.
    wait_until("all sockets are gone", || memory.all_free());

    // What is left is refused, or taken over; both leave a sound datapath in the end.
    put(&memory.control, 0, 77);
    let refused = ccp_bpf::Datapath::start(config.clone()).err();
    assert!(
        matches!(refused, Some(Error::Layout { found: 77, .. })),
        "{refused:?}"
    );
    put(&memory.control, 0, layout.into());
    drop(memory);
    let datapath = support::start(&config);
    assert_eq!(datapath.origin(), Origin::Upgraded);
    let steering = Steering::new(rule);
    let agent = Running::steering(datapath, &steering);
    // Every slot, as none has been lost.
    let ports = talk.open(NAME, FLOWS);
    talk.wait_paced(&ports, 1_000_000);
    steering.assert_right();
    talk.finish();
    wait_until("portus knows no flow", || steering.open().is_empty());
    maps::assert_all_free(&config.pin_dir, config.max_flows);
    agent.stop();
    support::assert_gone(&config);
}
