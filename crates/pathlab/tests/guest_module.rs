//! The kernel module of `ccp-kernel/` on Debian's kernels 6.1 and 6.12, in guests. `scripts/test-module.sh` builds what
//! they run and calls this:
//!
//! - `PK3C_AGENT` is the agent's binary, `CCP_MODULE_TESTS` that of ccp-char's kernel tests,
//! - `CCP_MODULES` and `CCP_PLAIN_MODULES` are the module and the test's own bare datapath for each kernel, as
//!   `6.1=FILE:6.12=FILE`,
//! - `CCP_FORM` is `short` or `long`.
//!
//! Every guest fails the test if its kernel's log speaks of a fault (BUG, WARNING, lockdep).

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathlab::guest::{
    self, AGENT_BINARY, Action, Config, Error, Event, GuestRun, KernelVersion, Outcome,
};
use pathlab::scenario::{PathSpec, Scheme};

/// Wall time for one script.
const LIMIT: Duration = Duration::from_secs(900);
/// What the module must reach of the eBPF datapath's share.
const AS_GOOD: f64 = 0.95;
/// Seeds of the guests' randomness: it is judged by the sum over the first, over two and over all, until one is good
/// enough.
const SEEDS: u64 = 3;

/// What the script has built.
struct Built {
    agent: PathBuf,
    tests: PathBuf,
    modules: Vec<(KernelVersion, PathBuf, PathBuf)>,
    long: bool,
}

/// `None` where the script has not been used, which is said aloud.
fn built(test: &str) -> Option<Built> {
    let variable = |name| {
        let value = std::env::var(name).ok();
        if value.is_none() {
            println!("SKIPPED {test}: {name} is not set (scripts/test-module.sh sets it)");
        }
        value
    };
    let modules = |text: &str| -> HashMap<String, PathBuf> {
        let pairs = text.split(':').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(kernel, file)| (kernel.to_owned(), file.into()))
            .collect()
    };
    let (agent, tests) = (variable("PK3C_AGENT")?, variable("CCP_MODULE_TESTS")?);
    let (ours, plain) = (
        modules(&variable("CCP_MODULES")?),
        modules(&variable("CCP_PLAIN_MODULES")?),
    );
    let modules = [KernelVersion::V6_1, KernelVersion::V6_12].map(|kernel| {
        let name = kernel.to_string();
        (kernel, ours[&name].clone(), plain[&name].clone())
    });
    Some(Built {
        agent: agent.into(),
        tests: tests.into(),
        modules: modules.into(),
        long: std::env::var("CCP_FORM").is_ok_and(|form| form == "long"),
    })
}

fn config(kernel: KernelVersion, agent: &Path, module: Option<&Path>) -> Config {
    Config {
        kernel,
        agent: Some(agent.to_owned()),
        // Both kernels' guests run side by side.
        jobs: NonZeroUsize::MIN,
        modules: module.into_iter().map(Path::to_owned).collect(),
        ..Config::default()
    }
}

/// What came of it, or `None` if this machine cannot make guests, which is said aloud.
fn possible<T>(test: &str, kernel: KernelVersion, result: Result<T, Error>) -> Option<T> {
    match result {
        Err(error @ (Error::Missing(_) | Error::NoKernelPackage(_))) => {
            println!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("Linux {kernel}: {error}"),
        Ok(value) => Some(value),
    }
}

fn outcomes(test: &str, config: &Config, runs: &[GuestRun]) -> Option<Vec<Outcome>> {
    let outcomes = guest::run(config, runs, &mut |progress| eprintln!("{progress}"));
    let outcomes = possible(test, config.kernel, outcomes)?;
    for (run, outcome) in runs.iter().zip(&outcomes) {
        assert_eq!(
            outcome.kernel_trouble,
            "",
            "{} on {}",
            run.label(),
            outcome.kernel
        );
        assert_eq!(outcome.remarks, "", "{} on {}", run.label(), outcome.kernel);
    }
    Some(outcomes)
}

/// Runs a script that says `ok WHAT` for everything it has shown, each of `expected`. It skips nothing: a guest has all
/// that its tests need.
fn script(
    test: &str,
    config: &Config,
    binaries: &[(PathBuf, String)],
    text: &str,
    expected: &[&str],
) {
    let executed = guest::exec(config, binaries, &format!("{HELPERS}\n{text}"), LIMIT);
    let Some(executed) = possible(test, config.kernel, executed) else {
        return;
    };
    let (output, kernel) = (&executed.output, &executed.kernel);
    println!("Linux {kernel}:\n{}", executed.quoted());
    assert_eq!(executed.kernel_trouble, "", "Linux {kernel}");
    assert!(
        !output.contains("SKIPPED "),
        "a test was skipped on {kernel}"
    );
    for what in expected {
        assert!(
            output.lines().any(|line| line == format!("ok {what}")),
            "not shown on {kernel}: {what}"
        );
    }
}

const HELPERS: &str = r#"
ip() { /bin/ip "$@"; }
tc() { /bin/tc "$@"; }
ok() { echo "ok $*"; }
agent() { pk3c-ccp run --log-format json "$@" 2>>/tmp/agent.log & AGENT=$!; }
log_has() { tries=50; until grep -q "$1" /tmp/agent.log; do tries=$((tries - 1)); [ $tries -gt 0 ] || return 1; sleep 0.1; done; }
tests() { # LEAST [ARGUMENTS...]: ccp-char's kernel tests, of which so many must pass
	least=$1; shift
	kernel_module kernel_ --nocapture --test-threads=1 "$@" >/tmp/tests 2>&1; status=$?
	cat /tmp/tests
	passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' /tmp/tests)
	[ $status = 0 ] && [ ${passed:-0} -ge $least ]
}
counter() { cat /sys/class/misc/ccpkp/counters/$1; }
path() { # RATE RTT QUEUE: from the namespace c to s
	ip netns add c; ip netns add s
	ip link add c0 netns c type veth peer name s0 netns s
	for end in c:c0:1 s:s0:2; do
		ns=${end%%:*} rest=${end#*:}
		ip -n $ns addr add 10.1.0.${rest#*:}/24 dev ${rest%:*}
		ip -n $ns addr add fd00::${rest#*:}/64 dev ${rest%:*} nodad
		ip netns exec $ns ethtool -K ${rest%:*} tso off gso off gro off >/dev/null 2>&1
		ip -n $ns link set ${rest%:*} up
	done
	ip -n c link set c0 gso_max_segs 1
	tc -n c qdisc add dev c0 root netem rate $1 limit $3
	tc -n s qdisc add dev s0 root netem delay $2 limit 100000
	ip netns exec s iperf3 -s >/dev/null 2>&1 & SERVER=$!
	sleep 0.3
}
flow() { ip netns exec c iperf3 -c 10.1.0.2 -l 16K -i 1 "$@"; }
average() { # FROM TO FILE: mean of iperf3's interval rates, Mbit/s
	sed -n 's/^\[ *[0-9]*\] *\([0-9]*\)\.[0-9]*-\([0-9.]*\) *sec .* \([0-9.]*\) Mbits\/sec .*/\1 \3/p' $3 |
		while read -r at rate; do [ $at -ge $1 ] && [ $at -lt $2 ] && echo ${rate%.*}; done |
		{ sum=0 n=0; while read -r rate; do sum=$((sum + rate)) n=$((n + 1)); done; echo $((n ? sum / n : 0)); }
}
"#;

/// Loaded, used, guarded and unloaded, as an operator would.
const LIFE: &str = r#"
insmod /bin/other.ko 2>/tmp/other || grep -qiE "invalid (module )?format|exec format" /tmp/other &&
	ok "a module for another kernel is refused" || { cat /tmp/other; dmesg | tail -n 3; }
echo 'func tcp_register_congestion_control +p' >/proc/dynamic_debug/control
agent --datapath bpf; log_has '"message":"ready'
insmod /bin/ccp.ko 2>&1 | grep -q "File exists" && dmesg | grep -q "'pk3c' is there already" && ok "a name that is taken is told"
# What a socket has chosen of a module that then fails to load is freed under it.
dmesg | grep -q "pk3c registered" && ! dmesg | grep "ccp registered" && ok "a load that fails has had no name"
kill $AGENT; wait $AGENT; busybox rm /tmp/agent.log
insmod /bin/ccp.ko && ok "insmod ccp.ko loads it"
insmod /bin/ccp.ko 2>&1 | grep -q "File exists" && ok "a second insmod says that it is loaded"
[ "$(stat -c %a /dev/ccpkp)" = 600 ] && ok "the device is for root"
tests 10 && ok "ccp-char's kernel tests"
agent; log_has '"message":"ready' && ok "the agent takes the module by itself"
pk3c-ccp run 2>&1 | grep -q "another agent has /dev/ccpkp open: stop it first" && ok "a second agent is turned away"
pk3c-ccp detach 2>&1 | grep -q "another agent has /dev/ccpkp open" && ok "detach is refused beside it"
pk3c-ccp run --datapath bpf 2>&1 | grep -q "already registered by something else" && ok "eBPF cannot take the name too"
rmmod tcp_ccp 2>/dev/null || ok "rmmod is refused while the agent has it"
path 50mbit 20ms 200
flow -C pk3c -t 3 | tail -n 4
flow -6 -c fd00::2 -C ccp -t 2 | tail -n 4
sleep 0.5
grep '"flow start"' /tmp/agent.log | grep -q 'fd00::2' && ok "a flow over IPv6 is known by its addresses"
flow -C pk3c -t 14 >/tmp/flow & FLOW=$!
sleep 3; pk3c-ccp status --json >/tmp/status; sleep 1.2; pk3c-ccp status --json >/tmp/status
live=$(grep -o '"goodput_bits_per_second":[1-9][0-9]*' /tmp/status | head -n 1)
if [ "${live##*:}" -gt 30000000 ]; then ok "status tells a live flow's goodput"; else cat /tmp/status; fi
before=$(counter fallbacks); pk3c-ccp drain && sleep 0.5
[ $(counter fallbacks) -gt $before ] && ok "drain hands the flow to CUBIC"
before=$(counter adoptions); pk3c-ccp drain --undo && sleep 0.5
[ $(counter adoptions) -gt $before ] && ok "drain --undo takes it back"
kill $AGENT; wait $AGENT && ok "the agent stops cleanly"
rmmod tcp_ccp 2>/dev/null || ok "rmmod is refused while a socket uses it"
wait $FLOW; tail -n 4 /tmp/flow
[ $(average 8 14 /tmp/flow) -ge 35 ] && ok "the flow goes on under CUBIC"
kill $SERVER; sleep 1
[ $(counter flows_begun) = $(counter flows_ended) ] && ok "no flow is left"
pk3c-ccp detach | grep -q "the kernel module has the names" && ok "detach says what is there"
rmmod tcp_ccp && ok "rmmod unloads it"
pk3c-ccp run --datapath char 2>&1 | grep -q "there is no /dev/ccpkp: load the kernel module" && ok "a missing module is named with its remedy"
"#;

const LIFE_SHOWS: &[&str] = &[
    "a module for another kernel is refused",
    "status tells a live flow's goodput",
    "drain hands the flow to CUBIC",
    "drain --undo takes it back",
    "detach says what is there",
    "a name that is taken is told",
    "a load that fails has had no name",
    "insmod ccp.ko loads it",
    "a second insmod says that it is loaded",
    "the device is for root",
    "ccp-char's kernel tests",
    "the agent takes the module by itself",
    "a second agent is turned away",
    "detach is refused beside it",
    "eBPF cannot take the name too",
    "rmmod is refused while the agent has it",
    "a flow over IPv6 is known by its addresses",
    "the agent stops cleanly",
    "rmmod is refused while a socket uses it",
    "the flow goes on under CUBIC",
    "no flow is left",
    "rmmod unloads it",
    "a missing module is named with its remedy",
];

/// The same live connection under three agents with other limits, the module untouched.
const ITERATE: &str = r#"
insmod /bin/ccp.ko
path 50mbit 40ms 170
agent; log_has '"message":"ready'
flow -C pk3c -t 18 >/tmp/flow & FLOW=$!
sleep 6; kill -9 $AGENT; wait $AGENT 2>/dev/null; agent --max-rate 8mbit
sleep 6; kill $AGENT; wait $AGENT; agent
wait $FLOW; cat /tmp/flow
[ $(average 3 6 /tmp/flow) -ge 25 ] && ok "the first agent uses the path"
capped=$(average 8 12 /tmp/flow)
[ $capped -ge 5 ] && [ $capped -le 8 ] && ok "the second holds the connection at its limit"
[ $(average 15 18 /tmp/flow) -ge $((2 * capped)) ] && ok "the third lets it go again"
[ $(counter flows_begun) -le 4 ] && [ $(counter agents) = 3 ] && ok "the connection and the module are the same"
kill $AGENT; wait $AGENT; sleep 1; rmmod tcp_ccp && ok "rmmod unloads it"

release=$(uname -r)
busybox mkdir -p /sbin /lib/modules/$release
busybox ln -s /bin/busybox /sbin/modprobe
busybox cp /bin/ccp.ko /lib/modules/$release/tcp_ccp.ko
busybox depmod
flow -C pk3c -t 1
grep '^tcp_ccp ' /proc/modules || ok "the choice of pk3c does not load it"
/sbin/modprobe tcp_ccp && grep '^tcp_ccp ' /proc/modules && ok "modprobe loads it"
"#;

const ITERATE_SHOWS: &[&str] = &[
    "the first agent uses the path",
    "the second holds the connection at its limit",
    "the third lets it go again",
    "the connection and the module are the same",
    "rmmod unloads it",
    "the choice of pk3c does not load it",
    "modprobe loads it",
];

/// Nothing but libccp and CCP's messages.
const PLAIN: &str = r#"
insmod /bin/ccp_plain.ko
path 50mbit 20ms 200
agent; log_has "ready: sockets can choose 'ccp'" && ok "the agent is ready"
flow -C ccp -t 6 >/tmp/flow; tail -n 4 /tmp/flow
sleep 0.5; kill $AGENT; wait $AGENT && ok "it stops cleanly"
[ $(average 2 6 /tmp/flow) -ge 40 ] && ok "it drives a flow"
grep '"flow end"' /tmp/agent.log
grep '"flow end"' /tmp/agent.log | grep -Eq '"reports":[0-9]{3,},"decisions":"[^"]*wait=' && ok "with decisions of its own"
kill $SERVER; sleep 1; rmmod ccp_plain && ok "rmmod unloads it"
"#;

const PLAIN_SHOWS: &[&str] = &[
    "the agent is ready",
    "it stops cleanly",
    "it drives a flow",
    "with decisions of its own",
    "rmmod unloads it",
];

/// What the scripts use of busybox beside what the guest has as programs.
fn applets() -> String {
    let names = ["dmesg", "head", "rmmod", "sed", "stat", "tail"];
    let functions = names.map(|name| format!("{name}() {{ busybox {name} \"$@\"; }}\n"));
    functions.concat()
}

/// Runs one script on both kernels side by side.
fn on_both(test: &str, text: &str, expected: &[&str]) {
    let Some(built) = built(test) else { return };
    std::thread::scope(|scope| {
        for (i, (kernel, module, plain)) in built.modules.iter().enumerate() {
            let (_, other, _) = &built.modules[1 - i];
            let binaries = [
                (module, "ccp.ko"),
                (other, "other.ko"),
                (plain, "ccp_plain.ko"),
                (&built.tests, "kernel_module"),
            ];
            let binaries = binaries.map(|(file, name)| (file.clone(), name.to_owned()));
            let config = config(*kernel, &built.agent, None);
            let text = format!("{}{text}", applets());
            scope.spawn(move || script(test, &config, &binaries, &text, expected));
        }
    });
}

#[test]
#[ignore = "boots QEMU"]
fn the_module_lives_as_an_operator_expects() {
    on_both("the_module_lives_as_an_operator_expects", LIFE, LIFE_SHOWS);
}

#[test]
#[ignore = "boots QEMU"]
fn agents_change_under_a_live_connection_and_the_module_stays() {
    on_both(
        "agents_change_under_a_live_connection_and_the_module_stays",
        ITERATE,
        ITERATE_SHOWS,
    );
}

#[test]
#[ignore = "boots QEMU"]
fn the_agent_runs_on_nothing_but_ccp() {
    on_both("the_agent_runs_on_nothing_but_ccp", PLAIN, PLAIN_SHOWS);
}

/// No clock: this kernel is slow, and its guest runs in the wall clock's time.
const HUNT: &str = r#"
insmod /bin/ccp.ko silence_ms=1000 && ok "it loads"
tests 7 --skip exact_sums --skip five_hundred --skip drained && ok "ccp-char's kernel tests"
path 50mbit 20ms 200
ended=0
for round in 1 2 3 4; do
	# A server that still waits for what its last client lost would turn these away.
	ip netns exec s iperf3 -s -1 -p 531$round >/dev/null 2>&1 &
	ip netns exec s iperf3 -s -1 -p 532$round >/dev/null 2>&1 &
	agent; sleep 4
	flow -p 531$round -C pk3c -t 12 -P 40 >/tmp/flow 2>&1 & FLOW=$!
	flow -p 532$round -6 -c fd00::2 -C ccp -t 6 -P 10 >/tmp/flow6 2>&1 & FLOW6=$!
	sleep 5; kill -STOP $AGENT; sleep 3; kill -CONT $AGENT; sleep 2; kill -9 $AGENT; agent; sleep 5
	for flow in $FLOW $FLOW6; do wait $flow && ended=$((ended + 1)); done
	for file in /tmp/flow /tmp/flow6; do grep -E 'SUM.*receiver|error' $file; done
	kill $AGENT; wait $AGENT
done
[ $ended = 8 ] && ok "all transfers end"
for name in flows_begun flows_ended adoptions fallbacks agents; do echo "$name $(counter $name)"; done
[ $(counter adoptions) -gt 100 ] && [ $(counter fallbacks) -gt 100 ] && ok "flows have changed hands"
kill $SERVER; sleep 5
rmmod tcp_ccp && ok "rmmod unloads it"
"#;

#[test]
#[ignore = "boots QEMU"]
fn a_kernel_that_looks_for_faults_finds_none() {
    let test = "a_kernel_that_looks_for_faults_finds_none";
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let all = [
        "CCP_DEBUG_KERNEL",
        "CCP_DEBUG_MODULE",
        "CCP_MODULE_TESTS",
        "PK3C_AGENT",
    ]
    .map(variable);
    let [Some(kernel), Some(module), Some(tests), Some(agent)] = all else {
        println!(
            "SKIPPED {test}: CCP_DEBUG_KERNEL is not set (scripts/test-module-debug.sh sets it)"
        );
        return;
    };
    let config = Config {
        unpacked_kernel: Some(kernel),
        racing: true,
        ..config(KernelVersion::V6_1, &agent, None)
    };
    let binaries = [(module, "ccp.ko"), (tests, "kernel_module")];
    let binaries = binaries.map(|(file, name)| (file, name.to_owned()));
    let shows = [
        "it loads",
        "ccp-char's kernel tests",
        "all transfers end",
        "flows have changed hands",
        "rmmod unloads it",
    ];
    script(
        test,
        &config,
        &binaries,
        &format!("{}{HUNT}", applets()),
        &shows,
    );
}

fn pk3c() -> Scheme {
    Scheme::Agent {
        name: "pk3c".into(),
        command: [AGENT_BINARY, "run", "--log-format", "json"]
            .map(str::to_owned)
            .to_vec(),
    }
}

/// The demo's paths over the module and over eBPF, and in the long form cubic and bbr beside them. The module must be
/// as good within [`SEEDS`] seeds.
#[test]
#[ignore = "boots QEMU"]
fn the_module_is_as_good_as_ebpf() {
    let test = "the_module_is_as_good_as_ebpf";
    let Some(built) = built(test) else { return };
    // One run of each is a matter of luck, and in virtual time the same seed brings the same luck again.
    let mut seen: Vec<Pair> = Vec::new();
    for seed in 1..=SEEDS {
        let pairs = on_each(&built, |kernel, module| {
            compare(test, &built, kernel, module, seed)
        })
        .concat();
        for pair in pairs {
            match seen.iter_mut().find(|other| other.label == pair.label) {
                Some(other) => other.add(&pair),
                None => seen.push(pair),
            }
        }
        let worse: Vec<_> = seen.iter().filter(|pair| pair.is_worse()).collect();
        if worse.is_empty() {
            return;
        }
        println!("less than {AS_GOOD} of eBPF with {seed} of {SEEDS} seeds: {worse:#?}");
    }
    panic!("less than {AS_GOOD} of eBPF with all {SEEDS} seeds");
}

/// The shares of one path that the module and eBPF used, summed over seeds.
#[derive(Clone, Debug)]
struct Pair {
    label: String,
    module: f64,
    bpf: f64,
}

impl Pair {
    fn add(&mut self, other: &Self) {
        self.module += other.module;
        self.bpf += other.bpf;
    }

    fn is_worse(&self) -> bool {
        self.module < AS_GOOD * self.bpf
    }
}

/// Does something with each kernel and its module, side by side; what all of it gave.
fn on_each<T: Send>(built: &Built, work: impl Fn(KernelVersion, &Path) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = built
            .modules
            .iter()
            .map(|(kernel, module, _)| scope.spawn(move || work(*kernel, module)))
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Says what one kernel shows with a seed; what the module and eBPF used of each path.
fn compare(
    test: &str,
    built: &Built,
    kernel: KernelVersion,
    module: &Path,
    seed: u64,
) -> Vec<Pair> {
    let (secs, flows): (u32, &[u32]) = if built.long {
        (30, &[1, 4])
    } else {
        (10, &[1])
    };
    let paths = PathSpec::demo();
    let seeded = |module| Config {
        seed,
        ..config(kernel, &built.agent, module)
    };
    let (over_ebpf, over_module) = (seeded(None), seeded(Some(module)));
    let of = |config: &Config, schemes: &[Scheme]| {
        outcomes(test, config, &guest::matrix(&paths, schemes, flows, secs))
    };
    let runs = guest::matrix(&paths, &[pk3c()], flows, secs);
    let (Some(over_module), Some(over_bpf)) =
        (of(&over_module, &[pk3c()]), of(&over_ebpf, &[pk3c()]))
    else {
        return Vec::new();
    };
    let mut others = Vec::new();
    if built.long {
        let schemes = ["cubic", "bbr"].map(|name| Scheme::Kernel(name.into()));
        let Some(outcomes) = of(&over_ebpf, &schemes) else {
            return Vec::new();
        };
        others = outcomes;
    }
    let cell = |outcome: &Outcome| {
        let row = &outcome.row;
        format!(
            "{:.1} %, {:.0} ms, {}",
            100.0 * row.share,
            row.rtt_p95_ms,
            row.retransmits
        )
    };
    let mut pairs = Vec::new();
    for (i, (run, (module, bpf))) in runs
        .iter()
        .zip(over_module.iter().zip(&over_bpf))
        .enumerate()
    {
        let beside = others.get(2 * i..2 * i + 2).unwrap_or_default();
        let cells: Vec<_> = [module, bpf].into_iter().chain(beside).map(cell).collect();
        // A line of the table in docs/kernel-module.md.
        println!(
            "| {} | {} | {} | {} |",
            module.kernel,
            run.path.name,
            run.flows,
            cells.join(" | ")
        );
        assert!(
            module.row.agent_driven.is_some_and(|driven| driven > 0.95),
            "{} on {kernel}: driven {:?}",
            run.label(),
            module.row.agent_driven
        );
        pairs.push(Pair {
            label: format!("{} on {kernel}", run.label()),
            module: module.row.share,
            bpf: bpf.row.share,
        });
    }
    pairs
}

/// What befalls agents, with the bounds of the eBPF datapath's test in `guest_kernels.rs`.
#[test]
#[ignore = "boots QEMU"]
fn the_agent_is_killed_stopped_and_replaced() {
    let test = "the_agent_is_killed_stopped_and_replaced";
    let Some(built) = built(test) else { return };
    let run = |path: &str, flows, secs, events: &[(u64, Action)]| GuestRun {
        path: guest::parse_path(path).expect("a path"),
        scheme: pk3c(),
        flows,
        secs,
        events: events
            .iter()
            .map(|&(millis, action)| Event {
                at: Duration::from_millis(millis),
                action,
            })
            .collect(),
    };
    let path = "name=short,rate=20mbit,rtt=20ms";
    let mut runs = vec![
        run(
            path,
            4,
            8,
            &[(2000, Action::Stop), (4000, Action::Continue)],
        ),
        run(path, 4, 8, &[(2000, Action::Kill), (4000, Action::Restart)]),
    ];
    if built.long {
        runs.push(run(path, 1, 6, &[]));
        runs.push(run("name=many,rate=100mbit,rtt=20ms", 128, 4, &[]));
    }
    on_each(&built, |kernel, module| {
        let config = config(kernel, &built.agent, Some(module));
        for (run, outcome) in runs
            .iter()
            .zip(outcomes(test, &config, &runs).unwrap_or_default())
        {
            let stall = outcome.longest_stall();
            let row = &outcome.row;
            println!(
                "Linux {}, {}: share {:.2}, driven {:?}, longest stall {stall:?}",
                outcome.kernel,
                run.label(),
                row.share,
                row.agent_driven
            );
            assert!(stall < Duration::from_secs(1), "{}: {stall:?}", run.label());
            assert!(row.share > 0.5, "{}: {}", run.label(), row.share);
            let driven = row.agent_driven.expect("an agent's run");
            let least = if run.events.is_empty() { 0.95 } else { 0.6 };
            assert!(driven > least, "{}: driven {driven}", run.label());
        }
    });
}
