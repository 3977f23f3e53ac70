use super::super::flows::{COMMAND_KEYS, FLOW_KEYS};
use super::super::path::{PATH_KEYS, SWING_KEYS, WANDER_KEYS};
use super::*;
use pathlab::lab::run::FlowScheme;
use pathsim::{
    CoDel, Jitter, Loss, MILLISECOND, Pie, QueueDiscipline, QueueLimit, RateSchedule, SECOND, Sfq,
    Source as Data, TokenBucket,
};

const FILE: &str = r#"
duration = "10s"
seed = 7
[path]
steps = [{ at = "0s", rate = "50mbit" }, { at = "5s", rate = "20mbit" }]
rtt-steps = [{ at = "0s", rtt = "40ms" }, { at = "5s", rtt = "80ms" }]
queue = "64kB"
aqm = "codel"
loss = "1%"
loss-burst = 3.0
ack-loss = 0.02
jitter = "3ms"
reorder = true
[[flows]]
scheme = "pk3c"
count = 2
receive-window = "64kB"
[[flows]]
scheme = "udp:5mbit"
start = "1s"
stop = "2s"
extra-rtt = "10ms"
ack-aggregation = "5ms"
[[flows]]
count = 2
start = "3s"
stagger = "1s"
size = "1MB"
"#;

fn plan(text: &str) -> Result<Plan> {
    let source = Source {
        name: "f.toml",
        text,
    };
    parse(source, Path::new(""), "f", None).map(|mut plans| plans.remove(0))
}

#[test]
fn a_file_with_everything_is_understood() {
    let plan = plan(FILE).unwrap();
    let scenario = &plan.scenario;
    assert_eq!((scenario.duration_ns, scenario.seed), (10 * SECOND, 7));
    let path = &scenario.path;
    assert_eq!(
        path.rate,
        RateSchedule::Steps(vec![(0, 50_000_000), (5 * SECOND, 20_000_000)])
    );
    assert_eq!(
        (path.rtt_ns, path.route_changes.len()),
        (40 * MILLISECOND, 1)
    );
    assert_eq!(path.queue, QueueLimit::Bytes(64_000));
    assert_eq!(path.discipline, QueueDiscipline::CoDel(CoDel::default()));
    let loss = Loss::Bursts {
        ratio: 0.01,
        mean_length: 3.0,
    };
    assert_eq!((path.loss, path.ack_loss), (loss, Loss::Random(0.02)));
    let udp = Scheme::Udp(5_000_000);
    assert_eq!(
        plan.schemes,
        [
            Some(Scheme::PK3C),
            Some(Scheme::PK3C),
            Some(udp),
            None,
            None
        ]
    );
    let flows = &scenario.flows;
    assert_eq!(
        (flows[1].start_ns, flows[1].receive_window),
        (100 * MILLISECOND, Some(64_000))
    );
    assert_eq!(
        (flows[2].start_ns, flows[2].stop_ns),
        (SECOND, Some(2 * SECOND))
    );
    assert_eq!(flows[2].acks.aggregation_ns, 5 * MILLISECOND);
    assert_eq!(
        (flows[4].start_ns, flows[4].source),
        (4 * SECOND, Data::Bytes(1_000_000))
    );
}

#[test]
fn an_error_names_line_key_and_remedy() {
    let cases = [
        (
            "rtt = \"40ms\"",
            "rtt = \"40\"",
            "f.toml:6: key `rtt`",
            "such as 500us",
        ),
        (
            "scheme = \"pk3c\"",
            "scheme = \"BBR\"",
            "f.toml:15: key `scheme` of [[flows]]",
            "pk3c, vivace",
        ),
        (
            "jitter",
            "jiter",
            "f.toml:12: key `jiter` of [path]",
            "did you mean `jitter`?",
        ),
        (
            "queue = \"64kB\"",
            "queue = \"many\"",
            "f.toml:7: key `queue`",
            "0.5bdp",
        ),
        (
            "steps = [{ at = \"0s\", rate",
            "rate = \"1mbit\"\nsteps = [{ at = \"0s\", rate",
            "f.toml:4: [path]",
            "one of the keys rate, steps",
        ),
        (
            "size = \"1MB\"",
            "size = \"1MB\"\napp-rate = \"1mbit\"",
            "f.toml:24: [[flows]]",
            "not both",
        ),
        (
            "at = \"5s\", rtt",
            "at = \"0s\", rtt",
            "f.toml:6: [[rtt-steps]]",
            "ascend",
        ),
        (
            "stop = \"2s\"",
            "stop = \"1s\"",
            "f.toml:18: [[flows]]",
            "after the start",
        ),
        (
            "aqm = \"codel\"",
            "codel-target = \"5ms\"",
            "f.toml:4: [path]",
            "aqm = \"codel\"",
        ),
        (
            "aqm = \"codel\"",
            "aqm = \"codel\"\npie-target = \"15ms\"",
            "f.toml:4: [path]",
            "aqm = \"pie\"",
        ),
        (
            "seed = 7",
            "seed = [7]",
            "f.toml:3: key `seed`",
            "write one value",
        ),
        (
            "reorder = true",
            "reorder = true\nrate =",
            "f.toml:14: not TOML",
            "",
        ),
        (
            "jitter = \"3ms\"",
            "police-burst = \"64kB\"",
            "f.toml:4: [path]",
            "police-burst needs police",
        ),
        (
            "loss = \"1%\"",
            "loss = \"90%\"",
            "f.toml:4: [path]",
            "loss-burst",
        ),
        (
            "count = 2",
            "count = 0",
            "f.toml:16: key `count`",
            "1 to 100000",
        ),
    ];
    for (good, bad, place, remedy) in cases {
        assert!(FILE.contains(good), "{good}");
        let said = format!("{:#}", plan(&FILE.replacen(good, bad, 1)).unwrap_err());
        assert!(
            said.starts_with(place) && said.contains(remedy),
            "{bad}: {said}"
        );
    }
}

#[test]
fn several_scenarios_in_a_file_need_ids() {
    let two = "[[scenario]]\nid = \"a\"\npath = { rate = \"1mbit\", rtt = \"1ms\" }\nflows = [{}]\n[[scenario]]\n";
    let source = |text| Source {
        name: "f.toml",
        text,
    };
    let said = format!(
        "{:#}",
        parse(source(two), Path::new(""), "f", None).unwrap_err()
    );
    assert!(
        said.starts_with("f.toml:5: [[scenario]]: the key `id`"),
        "{said}"
    );
    let one = two.rsplit_once("[[").unwrap().0;
    assert_eq!(
        parse(source(one), Path::new(""), "f", None).unwrap()[0].id,
        "a"
    );
}

#[test]
fn a_rate_that_swings_does_so_for_as_long_as_the_run() {
    let source = Source {
        name: "f.toml",
        text: "flows = [{}]\npath = { rate = \"10mbit\", rate-swing = { by = \"50%\", period = \"5s\" }, rtt = \"1ms\" }",
    };
    let swings_until = |length_ns| {
        let plan = parse(source, Path::new(""), "f", length_ns)
            .unwrap()
            .remove(0);
        assert_eq!(plan.scenario.duration_ns, DURATION_NS);
        match plan.scenario.path.rate {
            RateSchedule::Steps(steps) => steps.last().unwrap().0 / SECOND,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(swings_until(None), 59);
    assert_eq!(swings_until(Some(200 * SECOND)), 199);
}

#[test]
fn a_rate_that_wanders_is_drawn_with_the_seed() {
    let rates = |seed: u32| {
        let text = format!(
            "seed = {seed}\nflows = [{{}}]\npath = {{ rate = \"10mbit\", rate-wander = {{ by = \"50%\", every = \"200ms\", memory = \"3s\" }}, rtt = \"1ms\" }}"
        );
        match plan(&text).unwrap().scenario.path.rate {
            RateSchedule::Steps(steps) => steps,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rates(1), rates(1));
    assert_ne!(rates(1), rates(2));
    assert_eq!((rates(1)[0], rates(1).len()), ((0, 10_000_000), 300));
}

#[test]
fn managed_queues_have_targets() {
    let discipline = |keys: &str| {
        let path = format!("[path]\nrate = \"50mbit\"\nrtt = \"40ms\"\n{keys}\n[[flows]]");
        plan(&path).unwrap().scenario.path.discipline
    };
    let pie = |target_ms| {
        QueueDiscipline::Pie(Pie {
            target_ns: target_ms * MILLISECOND,
        })
    };
    assert_eq!(discipline("aqm = \"pie\""), pie(15));
    assert_eq!(discipline("aqm = \"pie\"\npie-target = \"10ms\""), pie(10));
    let codel = discipline("aqm = \"codel\"\ncodel-target = \"1ms\"");
    let expected = CoDel {
        target_ns: MILLISECOND,
        ..CoDel::default()
    };
    assert_eq!(codel, QueueDiscipline::CoDel(expected));
}

#[test]
fn what_is_asked_of_the_lab_is_understood() {
    let plan = plan(
        r#"
document = "pantheon"
source = "a report"
scaled = "less of it"
schemes = ["cubic", "agent:exp", { name = "quic", sender = "client {address} {port}", receiver = "server" }]
duration = "30s"
rounds = 9
traffic = "iperf3"
gso = 0
sack = false
reordering = 100
ecn = true
quick = { duration = "8s", rounds = 2, count = 2, stagger = "1s", size = "1MB" }
[path]
rate = "100mbit"
rate-swing = { by = "15%", period = "5s" }
rtt = "20ms"
aqm = "sfq"
jitter = "3ms"
jitter-distribution = "exponential"
police = "80mbit"
police-burst = "2MB"
shape = "90mbit"
delay-limit = 1000
[[flows]]
count = 3
start = "0s"
stagger = "10s"
size = "10MB"
[[flows]]
scheme = { name = "quic", sender = "client {address} {port}", receiver = "server" }
"#,
    )
    .unwrap();
    assert_eq!(plan.document.as_deref(), Some("pantheon"));
    assert_eq!(plan.scaled.as_deref(), Some("less of it"));
    assert_eq!(plan.compared.len(), 3);
    let settings = Settings {
        traffic: Traffic::Iperf3,
        gso_max_segs: 0,
        sack: false,
        reordering: Some(100),
        ecn: true,
        rounds: 9,
        loopback: false,
    };
    assert_eq!(plan.settings, settings);
    let path = &plan.scenario.path;
    assert_eq!(path.discipline, QueueDiscipline::Sfq(Sfq::default()));
    assert_eq!(path.queue, QueueLimit::Packets(127));
    let mean_ns = 3 * MILLISECOND;
    assert_eq!(path.jitter, Jitter::Exponential { mean_ns });
    assert_eq!(path.delay_limit_packets, Some(1000));
    let policer = TokenBucket {
        rate_bps: 80_000_000,
        burst_bytes: 2_000_000,
    };
    assert_eq!(path.policer, Some(policer));
    let shaper = TokenBucket {
        rate_bps: 90_000_000,
        burst_bytes: 1_125_000,
    };
    assert_eq!(path.shaper, Some(shaper), "100 ms of it");
    assert_eq!(path.capacity_bytes(0, SECOND), 1e7, "the least of both");
    let RateSchedule::Steps(steps) = &path.rate else {
        panic!("{:?}", path.rate)
    };
    let greatest = steps.iter().map(|step| step.1).max().unwrap();
    assert!(
        (114_000_000..=115_000_000).contains(&greatest),
        "{greatest}"
    );

    let short = plan.in_short();
    assert_eq!(
        (short.scenario.duration_ns, short.settings.rounds),
        (8 * SECOND, 2)
    );
    let starts: Vec<_> = short.scenario.flows.iter().map(|f| f.start_ns).collect();
    assert_eq!(starts, [0, SECOND, 200 * MILLISECOND]);
    assert_eq!(short.scenario.flows[0].source, Data::Bytes(1_000_000));

    let agent = ["pk3c-ccp".to_owned(), "run".to_owned()];
    let run = plan.run(&plan.compared[1], &agent, 3).unwrap();
    let FlowScheme::Tcp(pathlab::scenario::Scheme::Agent { name, command }) = &run.schemes[0]
    else {
        panic!("{:?}", run.schemes)
    };
    assert_eq!(name, "pk3c");
    assert_eq!(command, &["pk3c-ccp", "run", "--algorithm", "exp"]);
    let FlowScheme::Command { sender, .. } = &run.schemes[3] else {
        panic!("{:?}", run.schemes)
    };
    assert_eq!(sender, &["client", "{address}", "{port}"]);
    assert_eq!((run.scheme.as_str(), run.scenario.seed), ("exp", 3));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let flow = "\n[[flows]]\n";
    for (text, remedy) in [
        (
            "path = { loopback = true, rtt = \"1ms\" }",
            "leave out `rtt`",
        ),
        (
            "path = { rtt = \"1ms\", poisson = \"1mbit\", rate-swing = { by = \"5%\", period = \"1s\" } }",
            "only what the key `rate`",
        ),
        (
            "path = { rate = \"1mbit\", rtt = \"1ms\", rate-swing = { by = \"5%\", period = \"1s\" }, rate-wander = { by = \"5%\", every = \"1s\", memory = \"2s\" } }",
            "only what the key `rate` gives can wander",
        ),
        (
            "path = { rate = \"1mbit\", rtt = \"1ms\", rate-wander = { by = \"5%\", every = \"3s\", memory = \"2s\" } }",
            "1 ms to the memory",
        ),
        (
            "path = { rtt = \"1ms\", poisson = \"1mbit\", rate = \"1mbit\" }",
            "one of the keys",
        ),
        (
            "path = { rate = \"1mbit\", rtt = \"1ms\", jitter = \"1ms\", reorder = true, jitter-distribution = \"exponential\" }",
            "keeps the order",
        ),
        (
            "path = { rate = \"1mbit\", rtt = \"1ms\", rate-swing = { by = \"5%\" } }",
            "the key `period` is missing",
        ),
        (
            "path = { rate = \"1mbit\", rtt = \"1ms\", delay-limit = 0 }",
            "1 to 10000000",
        ),
        (
            "schemes = \"cubic\"\npath = { rate = \"1mbit\", rtt = \"1ms\" }",
            "in brackets",
        ),
        (
            "schemes = [\"cubic\", \"cubic\"]\npath = { rate = \"1mbit\", rtt = \"1ms\" }",
            "twice",
        ),
        (
            "quick = { lenght = \"1s\" }\npath = { rate = \"1mbit\", rtt = \"1ms\" }",
            "unknown",
        ),
        (
            "traffic = \"curl\"\npath = { rate = \"1mbit\", rtt = \"1ms\" }",
            "own or iperf3",
        ),
        (
            "rounds = 0\npath = { rate = \"1mbit\", rtt = \"1ms\" }",
            "1 to 10000",
        ),
    ] {
        let said = format!("{:#}", plan(&format!("{text}{flow}")).unwrap_err());
        assert!(
            said.starts_with("f.toml:") && said.contains(remedy),
            "{text}: {said}"
        );
    }
    let late = "quick = { duration = \"5s\" }\npath = { rate = \"1mbit\", rtt = \"1ms\" }\n[[flows]]\ncount = 2\nstagger = \"10s\"\n";
    let said = format!("{:#}", plan(late).unwrap_err());
    assert!(said.contains("shorten stagger"), "{said}");
}

#[test]
fn two_algorithms_of_the_agent_do_not_run_beside_each_other() {
    let text =
        "path = { rate = \"1mbit\", rtt = \"1ms\" }\nflows = [{ scheme = \"vivace\" }, {}]\n";
    let plan = plan(text).unwrap();
    let agent = ["pk3c-ccp".to_owned()];
    let said = plan.run(&Scheme::PK3C, &agent, 1).unwrap_err().to_string();
    assert!(said.contains("vivace and pk3c"), "{said}");
    assert!(plan.run(&Scheme::kernel("bbr"), &agent, 1).is_ok());
}

/// What can be written is explained, and what is explained can be written.
#[test]
fn every_key_is_documented() {
    let text = include_str!("../../../../docs/scenarios.md");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: Vec<_> = rows.collect();
    for key in [
        SCENARIO_KEYS,
        QUICK_KEYS,
        PATH_KEYS,
        SWING_KEYS,
        WANDER_KEYS,
        FLOW_KEYS,
        COMMAND_KEYS,
    ]
    .concat()
    {
        assert!(
            documented.contains(&key),
            "{key} is not in docs/scenarios.md"
        );
    }
}
