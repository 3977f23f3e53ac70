//! Policies for people and for programs: in `--print-config`, and in the answers of `policy`.

use pk3c_ccp::policy::{Action, Policy, Role, Verdict};
use serde_json::{Value, json};
use std::fmt::Write;

/// What `--print-config` says of policies where there are none.
pub(in crate::cli) const EXAMPLE: &str = "
# Policies: which connections get something else than the above. They are looked at in this order, after all other
# options; the first of which all conditions hold decides. Conditions: cgroup (with those below it), local-port,
# destination. A list holds if one of its values does.
#
# [[policy]]
# name = \"video\"                             # 1 to 32 of a-z, 0-9, - and _; the label of its metrics
# cgroup = \"/system.slice/video.service\"     # below /sys/fs/cgroup
# local-port = [443, \"8000-8099\"]
# destination = [\"10.0.0.0/8\", \"2001:db8::/32\"]
# algorithm = \"pk3c\"                         # pk3c, vivace, upstream; kernel leaves them to the kernel's Cubic
# mode = \"drive\"                             # shadow: they stay with Cubic, and the agent says what it would do
# max-rate = \"50mbit\"                        # as above, and enforced by the datapath; min-rate too
# max-loss = \"10%\"                           # a flow that loses more goes to Cubic for a while
# hb-queue = \"10%\"                           # any parameter of the algorithm
#
# [policy.ab]                                # drives some of them, and compares them with the others
# share = \"50%\"
# by = \"connection\"                          # or host: all connections of a remote address together
# key = \"fall\"                               # another key, another choice; the policy's name without it
";

fn list(values: &[impl ToString]) -> Value {
    values.iter().map(ToString::to_string).collect()
}

/// All that a policy says, by the keys of the file.
pub(super) fn settings(policy: &Policy) -> Value {
    let mut settings = json!({ "name": &*policy.name });
    let conditions = &policy.conditions;
    for (key, values) in [
        ("cgroup", list(&conditions.cgroups)),
        ("local-port", list(&conditions.local_ports)),
        ("destination", list(&conditions.destinations)),
    ] {
        if values != json!([]) {
            settings[key] = values;
        }
    }
    match &policy.action {
        Action::Kernel => settings["algorithm"] = "kernel".into(),
        Action::Shadow => settings["mode"] = "shadow".into(),
        Action::Drive => {}
        Action::Compare(experiment) => {
            settings["ab"] = json!({
                "share": experiment.share.to_string(), "by": experiment.by.name(), "key": experiment.key,
            });
        }
    }
    if let Some(share) = policy.limits.max_loss {
        settings["max-loss"] = share.to_string().into();
    }
    for (flag, text) in &policy.overrides {
        settings[*flag] = text.as_str().into();
    }
    settings
}

/// As `[[policy]]` in TOML, for `--print-config`.
pub(in crate::cli) fn annotated(policy: &Policy, place: &str) -> String {
    let mut text = format!("\n# {}; this policy: {place}\n[[policy]]\n", action(policy));
    let settings = settings(policy);
    let (mut plain, mut tables) = (String::new(), String::new());
    for (key, value) in settings.as_object().into_iter().flatten() {
        // JSON's strings and lists of strings are TOML's.
        let _ = match value.as_object() {
            None => writeln!(plain, "{key} = {value}"),
            Some(inner) => {
                let keys = inner
                    .iter()
                    .map(|(key, value)| format!("{key} = {value}\n"));
                writeln!(
                    tables,
                    "[policy.{key}]\n{}",
                    keys.collect::<String>().trim_end()
                )
            }
        };
    }
    text += &plain;
    text + &tables
}

/// What happens to the connections of a policy.
pub(super) fn action(policy: &Policy) -> String {
    match &policy.action {
        Action::Kernel => "left to the kernel's Cubic".to_owned(),
        Action::Shadow => "watched in a shadow, under the kernel's Cubic".to_owned(),
        Action::Drive => "driven".to_owned(),
        Action::Compare(experiment) => format!(
            "{} of {}s driven, compared with the others under the kernel's Cubic",
            experiment.share,
            experiment.by.name()
        ),
    }
}

/// What happens to one connection.
pub(super) fn role(verdict: &Verdict) -> String {
    let what = match verdict.role {
        Role::Driven => "driven",
        Role::Shadow => "watched in a shadow, under the kernel's Cubic",
        Role::Control => "left to the kernel's Cubic and measured",
        Role::Kernel => "left to the kernel's Cubic",
    };
    match verdict.arm {
        Some((arm, _)) => format!("{what} ({} arm)", arm.name()),
        None => what.to_owned(),
    }
}

/// The conditions, one line each.
pub(super) fn conditions(policy: &Policy) -> Vec<String> {
    let settings = settings(policy);
    let keys = ["cgroup", "local-port", "destination"];
    let lines = keys.iter().filter_map(|key| {
        let values = settings[*key].as_array()?;
        let values: Vec<_> = values.iter().filter_map(Value::as_str).collect();
        Some(format!("{key}: {}", values.join(", ")))
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() {
        return vec!["all connections".to_owned()];
    }
    lines
}

/// Parameters and limits, one line each.
pub(super) fn details(policy: &Policy) -> Vec<String> {
    let limited = |flag: &str| match flag {
        "min-rate" | "max-rate" => " (enforced by the datapath)",
        _ => "",
    };
    let overrides = policy.overrides.iter();
    let mut lines: Vec<_> = overrides
        .map(|(flag, text)| format!("{flag} = {text}{}", limited(flag)))
        .collect();
    if let Some(share) = policy.limits.max_loss {
        lines.push(format!(
            "max-loss = {share} (enforced by the datapath: beyond, Cubic takes over for a while)"
        ));
    }
    lines
}
