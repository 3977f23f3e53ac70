use super::*;
use crate::plan::PhaseName;
use crate::policy::Role;
use crate::units::{Bytes, Micros, Rate};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(super) fn sample(sock_id: u32) -> FlowSample {
    let end = |port| SocketAddr::from(([192, 0, 2, 1], port));
    FlowSample {
        sock_id,
        local: end(1000),
        remote: end(2000),
        age: Duration::from_secs(10),
        driven: Duration::from_secs(9),
        is_driven: true,
        fallback_episodes: 1,
        carried: Some(Carried::default()),
        reports_dropped: 0,
        program_errors: 0,
        srtt: Some(Duration::from_millis(30)),
    }
}

/// A datapath that says what it is told to say.
#[derive(Default)]
struct Scripted {
    flows: Mutex<Vec<FlowSample>>,
    draining: AtomicBool,
}

impl DatapathView for Scripted {
    fn flows(&self) -> Vec<FlowSample> {
        self.flows.lock().unwrap().clone()
    }
    fn counts(&self) -> DatapathCounts {
        DatapathCounts {
            fallbacks: 3,
            ..DatapathCounts::default()
        }
    }
    fn drain(&self, drain: bool) -> bool {
        self.draining.store(drain, Relaxed);
        true
    }
    fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
    fn agent_silence(&self) -> Option<Duration> {
        None
    }
}

fn monitor() -> (Monitor, Arc<Stats>, Arc<Scripted>, Instant) {
    let (stats, datapath, now) = (
        Arc::<Stats>::default(),
        Arc::<Scripted>::default(),
        Instant::now(),
    );
    let monitor = Monitor::new(stats.clone(), datapath.clone(), now);
    (monitor, stats, datapath, now)
}

#[test]
fn names_are_unique_and_fit_for_prometheus() {
    let mut names = BTreeSet::new();
    for spec in SPECS {
        assert!(names.insert(spec.name), "{} twice", spec.name);
        let fits = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(spec.name.chars().all(fits), "{}", spec.name);
        let unit = match spec.unit {
            Unit::Seconds => "_seconds",
            Unit::Bytes => "_bytes",
            Unit::BytesPerSecond => "_bytes_per_second",
            Unit::BitsPerSecond => "_bits_per_second",
            Unit::Ratio => "_ratio",
            Unit::Count | Unit::Id | Unit::Text => "",
        };
        assert!(
            spec.name.ends_with(unit),
            "{} has the unit {unit}",
            spec.name
        );
    }
    let mut names = BTreeSet::new();
    assert!(FLOW_FIELDS.iter().all(|field| names.insert(field.name)));
}

#[test]
fn flows_are_put_together_from_both_sides() {
    let (monitor, stats, datapath, start) = monitor();
    let second = Duration::from_secs(1);
    for (sock_id, role) in [(1, Role::Driven), (2, Role::Shadow)] {
        let policy = "default".into();
        stats.policies.assign(sock_id, Assigned { policy, role });
    }
    *datapath.flows.lock().unwrap() = vec![
        sample(1),
        FlowSample {
            is_driven: false,
            ..sample(2)
        },
    ];
    monitor.tick(start + second);
    assert_eq!(monitor.flows()[0].lately, None, "one look is not enough");
    stats.live.publish(
        1,
        FlowLive {
            phase: PhaseName::Vivace,
            reason: Reason::MoveUp,
            rate: Rate::from_mbit(8.0),
            cwnd: Bytes::new(50_000),
            srtt: Micros::from_millis(40),
            rtt_min: Micros::from_millis(20),
            reports: 5,
        },
    );
    datapath.flows.lock().unwrap()[0].carried = Some(Carried {
        bytes_acked: 1_000_000,
        packets_delivered: 690,
        packets_lost: 0,
    });
    monitor.tick(start + 2 * second);
    let flows = monitor.flows();
    let json = flow_json(&flows[0]);
    for (name, value) in [
        ("flow", 1.into()),
        ("local", "192.0.2.1:1000".into()),
        ("state", "driven".into()),
        ("reason", "move-up".into()),
        ("rate_bits_per_second", 8_000_000.into()),
        ("goodput_bits_per_second", 8_000_000.into()),
        ("rtt_seconds", serde_json::Value::from(0.04)),
        ("loss_ratio", 0.into()),
        ("driven_ratio", serde_json::Value::from(0.9)),
    ] {
        assert_eq!(json[name], value, "{name}");
    }
    let other = flow_json(&flows[1]);
    assert_eq!(
        (&other["state"], &other["policy"]),
        (&"shadow".into(), &"default".into())
    );
    assert!(other["phase"].is_null() && other["rate_bits_per_second"].is_null());
    assert_eq!(other["rtt_seconds"], 0.03, "the kernel's");

    let all = monitor.snapshot(start + 3 * second).json();
    assert_eq!(
        all["flows"],
        serde_json::json!({"driven": 1, "fallback": 0, "shadow": 1, "control": 0, "kernel": 0})
    );
    assert_eq!(all["fallback_episodes"], 3);
    assert_eq!(all["uptime_seconds"], 3);
    assert_eq!(
        all["flow_rtt_seconds"]["default"]["count"], 4,
        "two flows, two looks"
    );
    assert_eq!(
        all["flow_goodput_bytes_per_second"]["default"]["count"], 2,
        "two flows, between two looks"
    );
}

#[test]
fn the_exposition_is_well_formed() {
    let (monitor, stats, _, now) = monitor();
    let arrived = stats.counters.report_arrived();
    stats.counters.report_answered(Reason::QueueCut, arrived);
    let text = exposition(&monitor.snapshot(now));
    for line in [
        "# TYPE pk3c_decisions_total counter",
        "pk3c_decisions_total{reason=\"queue-cut\"} 1",
        "pk3c_handbrake_actions_total{handbrake=\"queue\"} 1",
        "pk3c_handbrake_actions_total{handbrake=\"loss\"} 0",
        "# TYPE pk3c_flow_rtt_seconds histogram",
        "pk3c_flow_rtt_seconds_bucket{policy=\"default\",le=\"+Inf\"} 0",
        "pk3c_flow_rtt_seconds_sum{policy=\"default\"} 0",
        "pk3c_report_time_seconds_count 1",
        "pk3c_flows{state=\"driven\"} 0",
    ] {
        assert!(
            text.lines().any(|is| is == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(text.ends_with('\n'));
    // Bounded: what flows do changes no series.
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series < 200, "{series} series");
}

#[test]
fn the_documentation_has_every_statistic() {
    let page = include_str!("../../docs/operations.md");
    let between = |from: &str| {
        let (_, rest) = page.split_once(from).unwrap();
        let (text, _) = rest.split_once("<!-- end -->").unwrap();
        text.trim().to_owned()
    };
    let row = |spec: &Spec| {
        let label = spec.label.unwrap_or("");
        format!(
            "| `{}` | {} | {label} | {} |",
            spec.name,
            spec.kind.name(),
            spec.help
        )
    };
    let table: Vec<_> = SPECS.iter().map(row).collect();
    let table = format!(
        "| name | kind | label | meaning |\n|---|---|---|---|\n{}",
        table.join("\n")
    );
    assert_eq!(
        between("<!-- statistics -->"),
        table,
        "write into docs/operations.md:\n{table}"
    );
    let fields = FLOW_FIELDS.iter();
    let fields: Vec<_> = fields
        .map(|field| format!("| `{}` | {} |", field.name, field.help))
        .collect();
    let fields = format!("| name | meaning |\n|---|---|\n{}", fields.join("\n"));
    assert_eq!(
        between("<!-- flow fields -->"),
        fields,
        "write into docs/operations.md:\n{fields}"
    );

    let (monitor, _, _, now) = monitor();
    let text = exposition(&monitor.snapshot(now));
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(
        page.contains(&format!("never changes ({series})")),
        "{series} series"
    );
}

#[test]
fn bytes_are_counted_once_by_policy_also_of_flows_that_end_between_looks() {
    let (monitor, stats, datapath, start) = monitor();
    let second = Duration::from_secs(1);
    let carrying = |sock_id, bytes_acked, packets_lost| FlowSample {
        age: second,
        carried: Some(Carried {
            bytes_acked,
            packets_delivered: 100,
            packets_lost,
        }),
        ..sample(sock_id)
    };
    let assign = |sock_id| {
        let assigned = Assigned {
            policy: "default".into(),
            role: Role::Driven,
        };
        stats.policies.assign(sock_id, assigned);
    };
    let count = |after: u32, name: &str| {
        monitor.snapshot(start + after * second).json()[name]["default"].clone()
    };
    // Began before the agent: what it had carried by then is not the agent's.
    let old = FlowSample {
        age: 60 * second,
        ..carrying(9, 1_000_000, 0)
    };
    *datapath.flows.lock().unwrap() = vec![carrying(1, 1_000, 1), old];
    assign(1);
    assign(9);
    monitor.tick(start + 2 * second);
    assert_eq!(count(2, "policy_acked_bytes"), 1_000);
    assert_eq!(count(2, "policy_flows"), 2);
    // One goes on, one has come and gone between two looks.
    let older = FlowSample {
        carried: Some(Carried {
            bytes_acked: 1_000_500,
            packets_delivered: 101,
            packets_lost: 2,
        }),
        ..old
    };
    *datapath.flows.lock().unwrap() = vec![older];
    let last = |bytes_acked| Carried {
        bytes_acked,
        packets_delivered: 110,
        packets_lost: 3,
    };
    stats.policies.end(1, last(1_700), None);
    assign(2);
    stats.policies.end(2, last(40), None);
    monitor.tick(start + 3 * second);
    assert_eq!(count(3, "policy_acked_bytes"), 1_700 + 500 + 40);
    assert_eq!(count(3, "policy_packets_lost"), 3 + 2 + 3);
    assert_eq!(count(3, "policy_packets_delivered"), 110 + 1 + 110);
    monitor.tick(start + 4 * second);
    assert_eq!(count(4, "policy_acked_bytes"), 2_240, "nothing twice");
    // The datapath has let go of a flow whose end the agent hears two looks later, with counts by reports only.
    datapath.flows.lock().unwrap().clear();
    monitor.tick(start + 5 * second);
    monitor.tick(start + 6 * second);
    let by_reports = Carried {
        bytes_acked: 1_000_700,
        packets_delivered: 90,
        packets_lost: 1,
    };
    stats.policies.end(9, by_reports, None);
    monitor.tick(start + 7 * second);
    assert_eq!(count(7, "policy_acked_bytes"), 2_240 + 200);
    assert_eq!(count(7, "policy_packets_delivered"), 221);
    assert_eq!(count(7, "policy_packets_lost"), 8);
    // Another flow has the number of one that has just ended.
    *datapath.flows.lock().unwrap() = vec![carrying(3, 600, 0)];
    assign(3);
    monitor.tick(start + 8 * second);
    stats.policies.end(3, last(700), None);
    assign(3);
    *datapath.flows.lock().unwrap() = vec![carrying(3, 30, 0)];
    monitor.tick(start + 9 * second);
    monitor.tick(start + 10 * second);
    assert_eq!(count(10, "policy_acked_bytes"), 2_440 + 700 + 30);
}
