//! `pk3c-ccp policy` without an agent: which connections would get what, and what is said of a configuration that is
//! wrong. None of this needs root.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

const FILE: &str = r#"max-rate = "1gbit"

[[policy]]
name = "backup"
destination = ["10.0.0.0/8", "fd00::/8"]
algorithm = "kernel"

[[policy]]
name = "video"
cgroup = "/system.slice/video.service"
local-port = [443, "8000-8099"]
max-rate = "50mbit"
max-loss = "10%"
hb-queue = "10%"

[[policy]]
name = "web"
local-port = 443
[policy.ab]
share = "30%"
by = "host"

[[policy]]
name = "rest"
mode = "shadow"
algorithm = "vivace"
"#;

/// A file of this test, removed at its end.
struct File(PathBuf);

impl File {
    fn with(text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pk3c-policy-{}-{number}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        std::fs::write(&file.0, text).unwrap();
        file
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pk3c-ccp"));
        command.arg("policy").args(arguments).arg("--config");
        command.arg(&self.0).output().unwrap()
    }

    /// What was answered; fails the test if it was refused.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.replace(self.0.to_str().unwrap(), "FILE")
    }

    /// Why it was refused; fails the test if it was not.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(!output.status.success(), "{arguments:?} was not refused");
        let said = String::from_utf8(output.stderr).unwrap();
        said.replace(self.0.to_str().unwrap(), "FILE")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_connection_s_policy_is_told_with_why_not_the_others() {
    let file = File::with(FILE);
    assert_eq!(
        file.told(&["test", "10.0.0.1:443"]),
        "backup (FILE:3): yes: left to the kernel's Cubic\n"
    );
    let video = file.told(&[
        "test",
        "[2001:db8::1]:50000",
        "--local-port",
        "8042",
        "--cgroup",
        "/system.slice/video.service/worker",
    ]);
    assert_eq!(
        video,
        "backup (FILE:3): no, its destination 2001:db8::1 is not in 10.0.0.0/8, fd00::/8\n\
         video (FILE:8): yes: driven\n    \
         max-rate = 50mbit (enforced by the datapath)\n    \
         hb-queue = 10%\n    \
         max-loss = 10% (enforced by the datapath: beyond, Cubic takes over for a while)\n"
    );
    // An IPv4 address in IPv6's clothes is the IPv4 one.
    assert!(
        file.told(&["test", "[::ffff:10.1.2.3]:1"])
            .contains("backup (FILE:3): yes")
    );
    let rest = file.told(&["test", "192.0.2.7:1", "--cgroup", "/"]);
    assert!(
        rest.contains("video (FILE:8): no, its cgroup / is not within"),
        "{rest}"
    );
    assert!(
        rest.contains("web (FILE:16): no, its local port is not known"),
        "{rest}"
    );
    assert!(
        rest.contains("rest (FILE:23): yes: watched in a shadow"),
        "{rest}"
    );
    assert!(rest.contains("algorithm = vivace"), "{rest}");
}

#[test]
fn json_has_the_same_and_an_experiment_by_host_has_its_arm() {
    let file = File::with(FILE);
    let arms: Vec<_> = (1..=60)
        .map(|host| {
            let remote = format!("198.51.100.{host}:50000");
            let told = file.told(&["test", &remote, "--local-port", "443", "--json"]);
            let told: Value = serde_json::from_str(&told).unwrap();
            assert_eq!(
                (&told["policy"], &told["place"]),
                (&"web".into(), &"FILE:16".into())
            );
            let before = told["passed_over"].as_array().unwrap();
            assert_eq!(before.len(), 2);
            assert_eq!(before[1]["policy"], "video");
            assert_eq!(told["settings"]["ab"]["share"], "30%");
            let role = &told["role"];
            match told["arm"].as_str().unwrap() {
                "treatment" => assert_eq!(role, "driven"),
                "control" => assert_eq!(role, "control"),
                other => panic!("{other}"),
            }
            told["arm"].clone()
        })
        .collect();
    // 60 draws of 30 %: four standard deviations of 3.5 about 18.
    let treated = arms.iter().filter(|arm| *arm == "treatment").count();
    assert!((4..=32).contains(&treated), "{treated}");
}

#[test]
fn an_experiment_by_connection_needs_both_of_our_ends() {
    let file = File::with("[[policy]]\nname = \"web\"\nab = 0.5\n");
    let unsaid = file.told(&["test", "192.0.2.7:1", "--local-port", "443"]);
    assert!(
        unsaid.contains("50% of connections") && unsaid.contains("--local-address"),
        "{unsaid}"
    );
    let ends = ["--local-port", "443", "--local-address", "192.0.2.1"];
    let said = file.told(&[&["test", "192.0.2.7:1"][..], &ends].concat());
    assert!(said.contains(" arm)"), "{said}");
}

#[test]
fn the_list_has_all_policies_in_their_order() {
    let file = File::with(FILE);
    let text = file.told(&["list"]);
    let heads: Vec<_> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(
        heads,
        [
            "backup (FILE:3): left to the kernel's Cubic",
            "video (FILE:8): driven",
            "web (FILE:16): 30% of hosts driven, compared with the others under the kernel's Cubic",
            "rest (FILE:23): watched in a shadow, under the kernel's Cubic",
            "all others: driven, with the parameters of the top of the file",
        ]
    );
    assert!(text.contains("    local-port: 443, 8000-8099\n"), "{text}");
    let json: Value = serde_json::from_str(&file.told(&["list", "--json"])).unwrap();
    assert_eq!(json["policies"][1]["max-rate"], "50mbit");
    assert_eq!(json["policies"][3]["mode"], "shadow");
}

#[test]
fn what_is_printed_reads_back_the_same() {
    let file = File::with(FILE);
    let printed = Command::new(env!("CARGO_BIN_EXE_pk3c-ccp"))
        .args(["run", "--print-config", "--config"])
        .arg(&file.0)
        .output()
        .unwrap();
    assert!(printed.status.success());
    let again = File::with(&String::from_utf8(printed.stdout).unwrap());
    let without_places = |file: &File| {
        let mut json: Value = serde_json::from_str(&file.told(&["list", "--json"])).unwrap();
        for policy in json["policies"].as_array_mut().unwrap() {
            policy["place"] = Value::Null;
        }
        json
    };
    assert_eq!(without_places(&again), without_places(&file));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_remedy() {
    let policy = |rest: &str| format!("\n[[policy]]\nname = \"one\"\n{rest}\n");
    let many: String = (0..33)
        .map(|n| format!("[[policy]]\nname = \"p{n}\"\nlocal-port = {}\n", n + 1))
        .collect();
    for (text, said) in [
        (
            policy("local_port = 443"),
            "FILE:4: key `local_port` of [[policy]]: unknown; did you mean `local-port`?",
        ),
        (
            policy("local-port = [443, \"9-8\"]"),
            "FILE:4: key `local-port` of [[policy]]: `9-8` is neither a port nor a range",
        ),
        (
            policy("local-port = []"),
            "FILE:4: key `local-port` of [[policy]]: is an empty list",
        ),
        (
            policy("destination = \"10.0.0.1/8\""),
            "FILE:4: key `destination` of [[policy]]: `10.0.0.1/8` has bits behind its prefix: write 10.0.0.0/8",
        ),
        (
            policy("cgroup = \"video.service\""),
            "FILE:4: key `cgroup` of [[policy]]: `video.service` is not the path",
        ),
        (
            policy("algorithm = \"bbr\""),
            "FILE:4: key `algorithm` of [[policy]]: `bbr` is not an algorithm: write pk3c",
        ),
        (policy("algorithm = \"exp\""), "for a whole agent"),
        (
            policy("mode = \"observe\""),
            "FILE:4: key `mode` of [[policy]]: `observe` is not a mode: write drive or shadow",
        ),
        (
            policy("max-loss = \"100%\""),
            "FILE:4: key `max-loss` of [[policy]]: `100%` is out of range",
        ),
        (
            policy("hb-loss = \"60%\""),
            "FILE:4: key `hb-loss` of [[policy]]: --hb-loss 60% is out of range: allowed is 0% to 50%",
        ),
        (
            policy("max-reports = 5000"),
            "FILE:4: key `max-reports` of [[policy]]: unknown",
        ),
        (
            policy("max-rate = \"2mbit\"\nstart-rate = \"3mbit\""),
            "FILE:2: [[policy]] `one`: --start-rate 3mbit must not exceed --max-rate 2mbit",
        ),
        (
            policy("max-rate = \"1mbit\"\nmin-rate = \"5mbit\""),
            "FILE:2: [[policy]] `one`: --min-rate 5mbit must not exceed --max-rate 1mbit",
        ),
        (
            policy("algorithm = \"kernel\"\nmode = \"shadow\""),
            "FILE:2: [[policy]]: `algorithm = \"kernel\"` leaves",
        ),
        (
            policy("algorithm = \"kernel\"\nhb-loss = \"5%\""),
            "has no parameters and no limits",
        ),
        (policy("mode = \"shadow\"\nab = \"50%\""), "`ab` compares"),
        (
            policy("ab = \"100%\""),
            "FILE:4: key `ab` of [[policy]]: `100%` leaves one side empty",
        ),
        (
            policy("[policy.ab]\nkey = \"x\""),
            "the key `share` is missing: write share = \"50%\"",
        ),
        (
            policy("[policy.ab]\nshare = \"50%\"\nby = \"user\""),
            "`user`: write connection or host",
        ),
        (
            "[[policy]]\nlocal-port = 1\n".to_owned(),
            "FILE:1: [[policy]]: the key `name` is missing",
        ),
        (
            "[[policy]]\nname = \"Big\"\n".to_owned(),
            "FILE:2: key `name` of [[policy]]: `Big` is no name",
        ),
        (
            policy("") + &policy("local-port = 1"),
            "the name `one` is that of the policy in line 2",
        ),
        (
            policy("") + "[[policy]]\nname = \"two\"\n",
            "is never reached: the policy `one` in line 2",
        ),
        (many, "more than 32 policies"),
        (
            "[policy]\nname = \"one\"\n".to_owned(),
            "write `[[policy]]`",
        ),
    ] {
        let file = File::with(&text);
        for verb in [&["list"][..], &["test", "10.0.0.1:443"]] {
            let refusal = file.refused(verb);
            assert!(refusal.contains(said), "{said} is not in: {refusal}");
        }
    }
}

#[test]
fn what_run_refuses_is_refused() {
    let file = File::with(&format!("algorithm = \"exp\"\n{FILE}"));
    for verb in [&["list"][..], &["test", "192.0.2.7:1"]] {
        let said = file.refused(verb);
        assert!(
            said.contains("FILE: --algorithm exp") && said.contains("backup"),
            "{said}"
        );
    }
}

#[test]
fn a_connection_that_is_none_and_a_missing_file_are_told() {
    let file = File::with(FILE);
    assert!(
        file.refused(&["test", "example.org"])
            .contains("10.0.0.1:443")
    );
    assert!(
        file.refused(&["test", "10.0.0.1:1", "--cgroup", "video"])
            .contains("/system.slice")
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_pk3c-ccp"));
    let output = command
        .args(["policy", "list", "--config", "/nowhere/pk3c.toml"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success()
            && said.contains("/nowhere/pk3c.toml")
            && said.contains("--config"),
        "{said}"
    );
}
