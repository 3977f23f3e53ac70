//! The agent over portus' own run loop and CCP's messages as bytes: a scripted datapath creates flows, sends reports,
//! and sees what comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pk3c_ccp::agent::{Config, Enforcer, FlowFact, FlowFacts, Pk3c};
use pk3c_ccp::params::Params;
use pk3c_ccp::policy::{
    self, Action, Arm, By, Conditions, Experiment, Limits, Policies, Policy, Role,
};
use pk3c_ccp::program::{self, RawReport};
use pk3c_ccp::record::{Recorder, Replay};
use pk3c_ccp::stats::Stats;
use pk3c_ccp::units::{Micros, Rate, Ratio};
use portus::RunBuilder;
use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::{Reg, Scope, compile};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// The socket of the one test that reads the log.
const LOGGED: u32 = 9;
const INSTALL: u16 = 2;
const UPDATE: u16 = 3;
const CHANGE: u16 = 4;

type Act = Box<dyn FnOnce() + Send>;

/// What the datapath does next.
enum Step {
    Create { sid: u32, cwnd: u32 },
    Report { sid: u32, raw: RawReport },
    Close { sid: u32 },
    Do(Act),
}

/// A message from the agent: (type, socket, field name → value).
type Told = (u16, u32, BTreeMap<String, u64>);

/// An `Ipc` that plays a script and decodes what it is sent.
struct Script {
    steps: Mutex<VecDeque<Step>>,
    uid: Mutex<u32>,
    told: Arc<Mutex<Vec<Told>>>,
    names: BTreeMap<(u8, u32), String>,
    running: Arc<AtomicBool>,
}

/// Names of the fields that may be written, by (register type, index) on the wire.
fn names(scope: &Scope) -> BTreeMap<(u8, u32), String> {
    let fields = [
        "plan", "r1", "r2", "r3", "r4", "hold", "mi", "tx", "Rate", "Cwnd",
    ];
    let at = |name: &str| match scope.get(name) {
        Some(Reg::Control(index, ..)) => (0, u32::from(*index)),
        Some(Reg::Implicit(index, _)) => (2, u32::from(*index)),
        other => panic!("{name}: {other:?}"),
    };
    fields
        .iter()
        .map(|name| (at(name), (*name).to_owned()))
        .collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn message(kind: u16, sid: u32, u32s: &[u32], u64s: &[u64], rest: &[u8]) -> Vec<u8> {
    let body: Vec<u8> = u32s
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .chain(u64s.iter().flat_map(|value| value.to_le_bytes()))
        .chain(rest.iter().copied())
        .collect();
    let mut out = kind.to_le_bytes().to_vec();
    out.extend((8 + body.len() as u16).to_le_bytes());
    out.extend(sid.to_le_bytes());
    out.extend(body);
    out
}

impl Ipc for Script {
    type Addr = ();

    fn name() -> String {
        "script".to_owned()
    }

    fn send(&self, bytes: &[u8], (): &()) -> portus::Result<()> {
        let (kind, sid) = (u16::from_le_bytes([bytes[0], bytes[1]]), u32_at(bytes, 4));
        let entries = match kind {
            INSTALL => {
                *self.uid.lock().unwrap() = u32_at(bytes, 8);
                return Ok(());
            }
            UPDATE => 12,
            CHANGE => 16,
            other => panic!("unexpected message {other}"),
        };
        let fields = bytes[entries..].chunks_exact(13).map(|entry| {
            let value = u64::from_le_bytes(entry[5..].try_into().unwrap());
            (self.names[&(entry[0], u32_at(entry, 1))].clone(), value)
        });
        self.told
            .lock()
            .unwrap()
            .push((kind, sid, fields.collect()));
        Ok(())
    }

    fn recv(&self, buffer: &mut [u8]) -> portus::Result<(usize, ())> {
        let step = self.steps.lock().unwrap().pop_front();
        let uid = *self.uid.lock().unwrap();
        let bytes = match step {
            Some(Step::Create { sid, cwnd }) => {
                message(0, sid, &[cwnd, 1000, 7, 1234, 9, 80], &[], &[0; 64])
            }
            Some(Step::Report { sid, raw }) => message(1, sid, &[uid, 16], &raw.fields(), &[]),
            Some(Step::Close { sid }) => message(1, sid, &[uid, 0], &[], &[]),
            Some(Step::Do(act)) => {
                act();
                return Ok((0, ()));
            }
            None => {
                self.running.store(false, Ordering::SeqCst);
                return Ok((0, ()));
            }
        };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok((bytes.len(), ()))
    }

    fn close(&mut self) -> portus::Result<()> {
        Ok(())
    }
}

/// What the agent logged, of all tests of this file: a subscriber of one thread only would miss lines, because
/// `tracing` remembers a callsite as disabled when a thread without a subscriber comes first.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .with_max_level(tracing::Level::DEBUG)
        .init();
    log
});

/// Runs a script to its end and returns what the datapath was told.
fn play(agent: &Pk3c, steps: Vec<Step>) -> Vec<Told> {
    LazyLock::force(&LOG);
    let told = Arc::new(Mutex::new(Vec::new()));
    let running = Arc::new(AtomicBool::new(true));
    let (_, scope) = compile(program::text().as_bytes(), &[]).unwrap();
    let script = Script {
        steps: Mutex::new(steps.into()),
        uid: Mutex::new(0),
        told: told.clone(),
        names: names(&scope),
        running: running.clone(),
    };
    RunBuilder::new(BackendBuilder { sock: script })
        .default_alg(agent.clone())
        .with_stop_handle(running)
        .run()
        .unwrap();
    let told = told.lock().unwrap();
    told.clone()
}

/// A report of 20 packets sent within 20 ms, RTT 40 ms.
fn report(plan: u64, slot: u64, at_us: u64) -> RawReport {
    let times: Vec<u64> = (0..20).map(|i| i * 1000).collect();
    let rtt = 40_000;
    RawReport {
        tag: plan * 32 + slot,
        sdur: 20_000,
        dlv: 20,
        lost: 0,
        n: 20,
        st: times.iter().sum(),
        sr: 20 * rtt,
        srt: times.iter().sum::<u64>() * rtt,
        stt: times.iter().map(|t| t * t).sum(),
        srr: 20 * rtt * rtt,
        rmin: rtt,
        rmax: rtt,
        srl: 0,
        a0: at_us,
        a1: at_us + 19_000,
        nl: 0,
    }
}

struct Facts(Mutex<FlowFact>);

impl FlowFacts for Facts {
    fn lookup(&self, sock_id: u32) -> Option<FlowFact> {
        let fact = *self.0.lock().unwrap();
        [5, LOGGED].contains(&sock_id).then_some(fact)
    }
}

fn facts(age_s: u64) -> Arc<Facts> {
    Arc::new(Facts(Mutex::new(fact(age_s))))
}

fn fact(age_s: u64) -> FlowFact {
    FlowFact {
        local: SocketAddr::from(([10, 0, 0, 1], 4000)),
        remote: SocketAddr::from(([10, 0, 0, 2], 443)),
        age: Duration::from_secs(age_s),
        driven: Duration::from_secs(age_s * 3 / 4),
        fallback_episodes: 2,
        bytes_acked: 30_000_000,
        srtt: Some(Micros::new(40_000)),
        pacing_rate: Some(3_000_000),
        packets_delivered: 21_000,
        packets_lost: 210,
        cgroup: None,
    }
}

/// A datapath that notes what it is told to do with flows.
#[derive(Default)]
struct Noted(Mutex<Vec<(u32, Role, Limits)>>);

impl Enforcer for Noted {
    fn enforce(&self, sock_id: u32, role: Role, limits: &Limits) -> bool {
        self.0.lock().unwrap().push((sock_id, role, *limits));
        true
    }
}

/// A policy for flows to the other end of [`fact`].
fn policy(name: &str, action: Action) -> Policy {
    Policy {
        name: name.into(),
        conditions: Conditions {
            destinations: vec![policy::network("10.0.0.2").unwrap()],
            ..Conditions::default()
        },
        action,
        overrides: Vec::new(),
        limits: Limits::default(),
    }
}

/// An agent with a policy whose flows are that of [`fact`].
fn agent_with(policy: Policy) -> (Pk3c, Arc<Noted>, Arc<Stats>) {
    let (noted, stats) = (Arc::<Noted>::default(), Arc::<Stats>::default());
    let agent = Pk3c::new(Config {
        facts: Some(facts(0)),
        enforcer: Some(noted.clone()),
        stats: stats.clone(),
        ..Config::default()
    });
    agent.set_policies(Policies::new(vec![policy])).unwrap();
    (agent, noted, stats)
}

fn create() -> Step {
    Step::Create {
        sid: 5,
        cwnd: 10_000,
    }
}

fn first_report() -> Step {
    let raw = RawReport {
        n: 1,
        dlv: 2,
        sr: 40_000,
        rmin: 40_000,
        ..report(0, 9, 50_000)
    };
    Step::Report { sid: 5, raw }
}

#[test]
fn a_flow_left_to_the_kernel_is_sent_nothing_until_a_reload_takes_it() {
    let (agent, noted, stats) = agent_with(policy("lan", Action::Kernel));
    let control = agent.clone();
    let told = play(
        &agent,
        vec![
            create(),
            Step::Do(Box::new(move || {
                control.set_policies(Policies::default()).unwrap();
            })),
            // The datapath offers it.
            create(),
            first_report(),
            Step::Close { sid: 5 },
        ],
    );
    let noted = noted.0.lock().unwrap();
    let mut roles: Vec<_> = noted
        .iter()
        .map(|(sock_id, role, _)| (*sock_id, *role))
        .collect();
    // Saying it again does no harm.
    roles.dedup();
    assert_eq!(roles, [(5, Role::Kernel), (5, Role::Driven)]);
    let kinds: Vec<_> = told.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds[0], CHANGE, "the program is installed once it is ours");
    assert!(kinds[1..].iter().all(|kind| *kind == UPDATE), "{kinds:?}");
    assert!(stats.policies.assigned().is_empty());
}

#[test]
fn a_shadow_s_program_is_installed_and_commanded_as_ever() {
    let limits = Limits {
        max_rate: Some(Rate::from_mbit(50.0)),
        ..Limits::default()
    };
    let shadow = Policy {
        overrides: vec![("start-rate", "3mbit".to_owned())],
        limits,
        ..policy("web", Action::Shadow)
    };
    let (agent, noted, _) = agent_with(shadow);
    let told = play(&agent, vec![create(), first_report()]);
    assert_eq!(*noted.0.lock().unwrap(), [(5, Role::Shadow, limits)]);
    assert_eq!(told[0].0, CHANGE);
    let rate = Rate::from_mbit(3.0).to_wire();
    assert_eq!(
        told[0].2["Rate"],
        u64::from(rate),
        "the policy's own parameter"
    );
    assert_eq!(told[1].0, UPDATE, "a plan");
}

#[test]
fn a_reload_changes_running_flows_and_a_shadow_is_taken_over_from_what_it_sends() {
    let (agent, noted, _) = agent_with(policy("web", Action::Shadow));
    let control = agent.clone();
    let told = play(
        &agent,
        vec![
            create(),
            first_report(),
            Step::Do(Box::new(move || {
                let drive = policy("web", Action::Drive);
                control.set_policies(Policies::new(vec![drive])).unwrap();
            })),
            // What came before a plan does not tell for how long it was sent.
            Step::Report {
                sid: 5,
                raw: RawReport {
                    sdur: 0,
                    ..report(1, 0, 110_000)
                },
            },
            Step::Report {
                sid: 5,
                raw: report(1, 1, 120_000),
            },
        ],
    );
    let roles: Vec<_> = noted
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|(_, role, _)| *role)
        .collect();
    assert_eq!(roles, [Role::Shadow, Role::Driven]);
    let (kind, _, fields) = told.last().unwrap();
    // 20 packets of a 1000-byte segment and its headers in 20 ms.
    let sent = 20.0 * 1000.0 / 0.02;
    let rate = fields["Rate"] as f64;
    assert_eq!(*kind, UPDATE);
    assert!(
        (0.9 * sent..1.2 * sent).contains(&rate),
        "{rate} is not near {sent}"
    );
}

#[test]
fn an_experiment_notes_how_its_flows_fared() {
    let experiment = Experiment {
        share: Ratio::new(0.5),
        by: By::Connection,
        key: "k".to_owned(),
    };
    let (agent, noted, stats) = agent_with(policy("web", Action::Compare(experiment)));
    play(
        &agent,
        vec![create(), first_report(), Step::Close { sid: 5 }],
    );
    let trial = &stats.policies.trials()[0];
    let (_, role, _) = noted.0.lock().unwrap()[0];
    let arm = match role {
        Role::Driven => Arm::Treatment,
        Role::Control => Arm::Control,
        other => panic!("{other}"),
    };
    let collected = &trial.arms[arm as usize];
    assert_eq!(collected.flows, 1);
    let outcome = collected.outcomes[0];
    assert_eq!((outcome.bytes, outcome.rtt_s), (30_000_000, Some(0.04)));
    assert!((outcome.loss.unwrap() - 210.0 / 21_210.0).abs() < 1e-9);
}

#[test]
fn parameters_that_do_not_fit_a_policy_change_nothing() {
    let slow = Policy {
        overrides: vec![("max-rate", "5mbit".to_owned())],
        ..policy("slow", Action::Drive)
    };
    let (agent, _, _) = agent_with(slow);
    let fast = Params {
        min_rate: Rate::from_mbit(8.0),
        start_rate: Rate::from_mbit(8.0),
        ..Params::default()
    };
    let said = agent.set_params(fast).unwrap_err().to_string();
    assert!(
        said.contains("`slow`") && said.contains("--max-rate"),
        "{said}"
    );
    assert_eq!(agent.params(), Params::default());
}

#[test]
fn a_new_flow_starts_with_the_first_rate_and_plans_after_the_first_rtt() {
    let agent = Pk3c::new(Config::default());
    let told = play(
        &agent,
        vec![
            Step::Create {
                sid: 5,
                cwnd: 10_000,
            },
            Step::Report {
                sid: 5,
                raw: RawReport {
                    n: 1,
                    dlv: 2,
                    sr: 40_000,
                    rmin: 40_000,
                    ..report(0, 9, 50_000)
                },
            },
            Step::Report {
                sid: 5,
                raw: report(0, 9, 60_000),
            },
            Step::Close { sid: 5 },
            Step::Report {
                sid: 5,
                raw: report(1, 1, 70_000),
            },
        ],
    );
    let [(CHANGE, 5, start), (UPDATE, 5, first), (UPDATE, 5, plan)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (start["Rate"], start["Cwnd"], start["mi"]),
        (393_216, 10_000, 20)
    );
    assert!(!start.contains_key("tx"), "no plan before the first RTT");
    assert!(
        !first.contains_key("tx"),
        "nor while the window's ACKs come"
    );
    assert_eq!(
        (first["Rate"], first["Cwnd"]),
        (750_000, 10_000),
        "three initial windows in the second RTT, with what ACKs let out"
    );
    assert_eq!(
        (first["r1"], first["hold"]),
        (750_000, 1_250_000_000),
        "what an application writes after a pause leaves as one burst"
    );
    assert_eq!(
        (plan["plan"], plan["tx"], plan["mi"]),
        (1, 0, 10_667),
        "eight packets: {plan:?}"
    );
    assert_eq!(
        (plan["r1"], plan["Rate"]),
        (750_000, 750_000),
        "two ACKs tell no rate: {plan:?}"
    );
    assert!(
        plan["r1"] < plan["r2"] && plan["r2"] < plan["r3"] && plan["r4"] < plan["hold"],
        "then a ramp: {plan:?}"
    );
}

#[test]
fn a_running_flow_resumes_at_its_rate() {
    let agent = Pk3c::new(Config {
        facts: Some(facts(9)),
        ..Config::default()
    });
    let told = play(
        &agent,
        vec![
            Step::Create {
                sid: 5,
                cwnd: 100_000,
            },
            Step::Create {
                sid: 6,
                cwnd: 100_000,
            },
        ],
    );
    let [(CHANGE, 5, resumed), (CHANGE, 6, fresh)] = &told[..] else {
        panic!("{told:?}")
    };
    // 100 kB per 40 ms.
    assert_eq!(
        (resumed["hold"], resumed["plan"], resumed["tx"]),
        (2_500_000, 1, 0)
    );
    assert!(
        [2_425_000, 2_575_000].contains(&resumed["r1"]),
        "a trial 3 % off: {resumed:?}"
    );
    assert_eq!(fresh["Rate"], 393_216, "a flow without facts starts afresh");
}

/// What a flow is told that the fallback had for so long, and whose window it has cut to a tenth; and the whole record.
fn told_after(alone: Duration) -> (BTreeMap<String, u64>, String) {
    let name = format!("pk3c-agent-test-{}-{}", std::process::id(), alone.as_secs());
    let path = std::env::temp_dir().join(name);
    let params = Params::default();
    let recorder = Arc::new(Recorder::create(&path, 1 << 20, &params).unwrap());
    let facts = facts(9);
    let agent = Pk3c::new(Config {
        facts: Some(facts.clone()),
        recorder: Some(recorder),
        params,
        ..Config::default()
    });
    let mut steps = vec![Step::Create {
        sid: 5,
        cwnd: 100_000,
    }];
    steps.extend((0..5).map(|slot| Step::Report {
        sid: 5,
        raw: report(1, slot, 100_000 * (slot + 1)),
    }));
    steps.extend([
        Step::Do(Box::new(move || facts.0.lock().unwrap().age += alone)),
        Step::Create {
            sid: 5,
            cwnd: 10_000,
        },
        Step::Close { sid: 5 },
    ]);
    let mut told = play(&agent, steps);
    drop(agent);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let Some((CHANGE, 5, again)) = told.pop() else {
        panic!("{told:?}")
    };
    (again, text)
}

#[test]
fn a_flow_that_comes_back_from_the_fallback_keeps_what_it_knew() {
    let (again, text) = told_after(Duration::from_secs(25));
    assert!(
        again["hold"] >= 1_200_000,
        "half of its own rate, not a tenth: {again:?}"
    );
    assert!(
        again["plan"] > 1,
        "plans are not numbered again, so that old reports stay old"
    );
    assert!(
        text.contains("\"line\":\"readopt\"") && text.contains("\"line\":\"end\""),
        "{text}"
    );
    let replay = Replay::new(text.as_bytes(), &[]).unwrap();
    let repeated = replay.filter(|step| !step.as_ref().unwrap().differs());
    assert_eq!(repeated.count(), 7, "every decision is repeated");
}

#[test]
fn a_flow_that_the_fallback_had_for_long_goes_on_as_one_that_is_found() {
    let (again, text) = told_after(Duration::from_secs(35));
    // 10 kB per 40 ms.
    assert_eq!((again["hold"], again["plan"]), (250_000, 1));
    let lines = |kind: &str| text.matches(&format!("\"line\":\"{kind}\"")).count();
    assert_eq!((lines("start"), lines("readopt"), lines("end")), (2, 0, 2));
    let replay = Replay::new(text.as_bytes(), &[]).unwrap();
    let repeated = replay.filter(|step| !step.as_ref().unwrap().differs());
    assert_eq!(repeated.count(), 7, "every decision is repeated");
}

/// Facts of a flow whose segments have this size now.
struct Segments(AtomicU32);

impl FlowFacts for Segments {
    fn lookup(&self, _: u32) -> Option<FlowFact> {
        Some(fact(9))
    }

    fn mss(&self, _: u32) -> Option<u32> {
        Some(self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn another_segment_size_is_taken_with_the_next_report_and_recorded() {
    let segments = Arc::new(Segments(AtomicU32::new(1000)));
    let path = std::env::temp_dir().join(format!("pk3c-agent-mss-{}", std::process::id()));
    let params = Params::default();
    let recorder = Arc::new(Recorder::create(&path, 1 << 20, &params).unwrap());
    let agent = Pk3c::new(Config {
        facts: Some(segments.clone()),
        recorder: Some(recorder),
        params,
        ..Config::default()
    });
    let report = |slot| Step::Report {
        sid: 5,
        raw: report(1, slot, 100_000 * (slot + 1)),
    };
    let told = play(
        &agent,
        vec![
            Step::Create {
                sid: 5,
                cwnd: 100_000,
            },
            report(1),
            Step::Do(Box::new(move || segments.0.store(500, Ordering::SeqCst))),
            report(2),
            report(3),
            Step::Close { sid: 5 },
        ],
    );
    let (UPDATE, 5, window) = &told[told.len() - 1] else {
        panic!("{told:?}")
    };
    assert!(
        window.keys().eq(["Cwnd"]),
        "the window is told again, and nothing else: {window:?}"
    );
    drop(agent);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("\"mss\":500").count(), 1, "{text}");
    let replay = Replay::new(text.as_bytes(), &[]).unwrap();
    let repeated = replay.filter(|step| !step.as_ref().unwrap().differs());
    assert_eq!(repeated.count(), 4, "every decision is repeated");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn parameters_change_while_flows_run() {
    let agent = Pk3c::new(Config::default());
    let control = agent.clone();
    let slower = Params {
        max_rate: Rate::from_bytes_per_sec(400e3),
        ..Params::default()
    };
    let told = play(
        &agent,
        vec![
            Step::Create {
                sid: 5,
                cwnd: 10_000,
            },
            Step::Do(Box::new(move || control.set_params(slower).unwrap())),
            Step::Report {
                sid: 5,
                raw: report(0, 9, 50_000),
            },
        ],
    );
    let (UPDATE, 5, plan) = &told[1] else {
        panic!("{told:?}")
    };
    assert_eq!(plan["r1"], 400_000);
}

#[test]
fn flows_log_one_line_at_the_start_and_one_at_the_end() {
    let agent = Pk3c::new(Config {
        facts: Some(facts(8)),
        ..Config::default()
    });
    play(
        &agent,
        vec![
            Step::Create {
                sid: LOGGED,
                cwnd: 100_000,
            },
            Step::Report {
                sid: LOGGED,
                raw: RawReport {
                    lost: 5,
                    ..report(1, 1, 50_000)
                },
            },
            Step::Close { sid: LOGGED },
        ],
    );
    let text = String::from_utf8(LOG.0.lock().unwrap().clone()).unwrap();
    let of = |target: &str| -> Vec<serde_json::Value> {
        let parsed = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        parsed
            .filter(|line| line["target"] == target && line["fields"]["sock_id"] == LOGGED)
            .map(|line| line["fields"].clone())
            .collect()
    };
    let flow = of("flow");
    assert_eq!(flow.len(), 2, "{text}");
    assert_eq!(flow[0]["message"], "flow start");
    assert_eq!(flow[0]["local"], "10.0.0.1:4000");
    assert_eq!(flow[0]["remote"], "10.0.0.2:443");
    let end = &flow[1];
    assert_eq!(end["message"], "flow end");
    assert_eq!(end["agent_driven"], 0.75);
    assert_eq!(
        (
            &end["reports"],
            &end["fallback_episodes"],
            &end["duration_s"]
        ),
        (&1.into(), &2.into(), &8.0.into())
    );
    assert_eq!(end["goodput_mbit"], 30.0);
    let loss = end["loss"].as_f64().unwrap();
    assert!(
        (loss - 210.0 / 21_210.0).abs() < 1e-9,
        "{loss} is the reports', which miss what a timeout declares lost"
    );
    assert_eq!(
        (&end["rtt_min_ms"], &end["rtt_mean_ms"]),
        (&40.0.into(), &40.0.into())
    );
    assert_eq!(end["bytes_acked"], 30_000_000);
    let decisions = of("decision");
    assert_eq!(decisions.len(), 1);
    assert_eq!(
        end["decisions"],
        format!("{}=1", decisions[0]["reason"].as_str().unwrap())
    );
    assert!(decisions[0]["rate_mbit"].is_f64() && decisions[0]["phase"] == "vivace");
}
