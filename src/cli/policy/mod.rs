//! `pk3c-ccp policy`: which connections get what, asked without a connection; and what experiments have found.

mod read;
mod report;
mod write;

pub(in crate::cli) use read::{Written, read};
pub(in crate::cli) use write::{EXAMPLE, annotated};

use super::config::Configuration;
use anyhow::{Context, Result, anyhow, bail};
use pk3c_ccp::policy::{Action, By, Cgroups, Connection, Policy, cgroup_path};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tracing::warn;

/// The configuration of the packages' service.
const CONFIG: &str = "/etc/pk3c-ccp/config.toml";

/// What can be asked about policies.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum PolicyVerb {
    /// Say which policy a connection would get, and why the others before it did not match
    Test(TestArgs),
    /// List the policies of a configuration file, in the order in which they are looked at
    List(ListArgs),
    /// Compare the two arms of a running agent's experiments
    Report(report::ReportArgs),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct FileArgs {
    /// The configuration file, as for `run`
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Options of `pk3c-ccp policy test`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TestArgs {
    /// The other end, as ADDRESS:PORT; [ADDRESS]:PORT for IPv6
    #[arg(value_name = "ADDRESS:PORT", value_parser = destination)]
    destination: SocketAddr,
    /// Our port; without it, no policy with `local-port` matches
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    local_port: Option<u16>,
    /// Our address: with both, the arm of an experiment is known
    #[arg(long, value_name = "ADDRESS")]
    local_address: Option<IpAddr>,
    /// The socket's cgroup below /sys/fs/cgroup; without it, no policy with `cgroup` matches
    #[arg(long, value_name = "PATH", value_parser = |text: &str| cgroup_path(text).map(|path| path.to_string()))]
    cgroup: Option<String>,
    #[command(flatten)]
    file: FileArgs,
}

/// Options of `pk3c-ccp policy list`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    file: FileArgs,
}

fn destination(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not ADDRESS:PORT: write it as in 10.0.0.1:443 or [2001:db8::1]:443")
    })
}

/// Asks about policies.
pub(crate) fn run(verb: &PolicyVerb) -> Result<()> {
    match verb {
        PolicyVerb::Test(args) => test(args),
        PolicyVerb::List(args) => list(args),
        PolicyVerb::Report(args) => report::run(args),
    }
}

/// Whether an agent with this datapath can keep the policies.
///
/// # Errors
/// Name the first policy that it cannot keep, why not, and what to do.
pub(in crate::cli) fn check(configuration: &Configuration, has_enforcer: bool) -> Result<()> {
    let policies = configuration.policies.all();
    if let Some(policy) = policies.first()
        && configuration.args.params.0.is_exp()
    {
        bail!(
            "--algorithm exp decides in the datapath and knows no policies: leave it out, or the policy `{}` and all others",
            policy.name
        );
    }
    for policy in policies {
        let asks_cgroup = !policy.conditions.cgroups.is_empty();
        if !has_enforcer && (policy.needs_governance() || asks_cgroup) {
            bail!(
                "the policy `{}` {}, which the kernel module cannot: use the eBPF datapath (--datapath bpf), or leave the policy out",
                policy.name,
                need(policy)
            );
        }
        let cgroups = Cgroups::default();
        for path in &policy.conditions.cgroups {
            if !cgroups.exists(path) {
                warn!(
                    policy = &*policy.name,
                    cgroup = &**path,
                    "there is no such cgroup yet"
                );
            }
        }
    }
    Ok(())
}

/// What a policy wants of a datapath.
fn need(policy: &Policy) -> &'static str {
    match policy.action {
        Action::Kernel => "leaves connections to the kernel's Cubic",
        Action::Shadow => "watches connections under the kernel's Cubic",
        Action::Compare(_) => "keeps some connections under the kernel's Cubic",
        Action::Drive if !policy.limits.is_empty() => "has limits that the datapath is to enforce",
        Action::Drive => "asks for a connection's cgroup",
    }
}

fn configuration(args: &FileArgs) -> Result<Configuration> {
    let mut line = ["pk3c-ccp", "run", "--config"].map(OsString::from).to_vec();
    line.push(args.config.clone().into());
    let configuration = Configuration::read(line).map_err(|error| {
        if args.config.exists() {
            error
        } else {
            anyhow!("{error:#}: name the configuration file with --config FILE")
        }
    })?;
    // Over eBPF, which keeps every policy.
    check(&configuration, true).with_context(|| args.config.display().to_string())?;
    Ok(configuration)
}

fn test(args: &TestArgs) -> Result<()> {
    let configuration = configuration(&args.file)?;
    let connection = Connection {
        local_ip: args.local_address.map(|ip| ip.to_canonical()),
        local_port: args.local_port,
        remote: SocketAddr::new(
            args.destination.ip().to_canonical(),
            args.destination.port(),
        ),
        cgroup: args.cgroup.as_deref().map(Into::into),
    };
    let policies = &configuration.policies;
    let verdict = policies.decide(&connection);
    let policy = verdict.policy.map(|index| &policies.all()[index]);
    let place = |index: usize| configuration.policy_place(index);
    // Without both of our ends a hash of the connection says nothing.
    let known = args.local_port.is_some() && args.local_address.is_some();
    let by_hash = policy.and_then(|policy| match &policy.action {
        Action::Compare(experiment) if experiment.by == By::Connection && !known => {
            Some(experiment)
        }
        _ => None,
    });
    let passed: Vec<_> = policies
        .passed_over(&connection)
        .into_iter()
        .map(|(index, why)| (index, policies.all()[index].name.clone(), why.to_string()))
        .collect();
    let mut out = io::stdout().lock();
    if args.file.json {
        let before = passed.iter().map(|(index, name, why)| {
            json!({ "policy": &**name, "place": place(*index), "why_not": why })
        });
        let role = by_hash.map_or(verdict.role.name(), |_| "by hash");
        let arm = verdict
            .arm
            .filter(|_| by_hash.is_none())
            .map(|(arm, _)| arm.name());
        let told = json!({
            "destination": args.destination.to_string(),
            "policy": &*verdict.name,
            "place": verdict.policy.map(place),
            "role": role,
            "arm": arm,
            "passed_over": before.collect::<Vec<_>>(),
            "settings": policy.map_or(Value::Null, write::settings),
        });
        writeln!(out, "{told}")?;
        return Ok(());
    }
    for (index, name, why) in &passed {
        writeln!(out, "{name} ({}): no, {why}", place(*index))?;
    }
    let Some((index, policy)) = verdict.policy.zip(policy) else {
        writeln!(
            out,
            "no policy matches: driven, with the parameters of the top of the file"
        )?;
        return Ok(());
    };
    let role = match by_hash {
        Some(experiment) => format!(
            "{} of connections are driven, the others are left to the kernel's Cubic and measured; \
             --local-address and --local-port say which this is",
            experiment.share
        ),
        None => write::role(&verdict),
    };
    writeln!(out, "{} ({}): yes: {role}", policy.name, place(index))?;
    for line in write::details(policy) {
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

fn list(args: &ListArgs) -> Result<()> {
    let configuration = configuration(&args.file)?;
    let policies = configuration.policies.all();
    let mut out = io::stdout().lock();
    if args.file.json {
        let told = policies.iter().enumerate().map(|(index, policy)| {
            let mut settings = write::settings(policy);
            settings["place"] = configuration.policy_place(index).into();
            settings
        });
        writeln!(out, "{}", json!({ "policies": told.collect::<Vec<_>>() }))?;
        return Ok(());
    }
    for (index, policy) in policies.iter().enumerate() {
        let place = configuration.policy_place(index);
        writeln!(out, "{} ({place}): {}", policy.name, write::action(policy))?;
        for line in write::conditions(policy)
            .iter()
            .chain(&write::details(policy))
        {
            writeln!(out, "    {line}")?;
        }
    }
    writeln!(
        out,
        "all others: driven, with the parameters of the top of the file"
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an agent over this datapath says of a policy that is otherwise `rest`.
    fn checked(rest: &str, has_enforcer: bool) -> Result<(), String> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("pk3c-policy-check-{}-{number}.toml", std::process::id());
        let config = std::env::temp_dir().join(name);
        std::fs::write(&config, format!("{rest}\n")).unwrap();
        let line = ["pk3c-ccp", "run", "--config"].map(OsString::from);
        let read = Configuration::read(line.into_iter().chain([config.clone().into()]));
        std::fs::remove_file(&config).unwrap();
        check(&read.unwrap(), has_enforcer).map_err(|error| error.to_string())
    }

    #[test]
    fn a_datapath_without_governance_refuses_what_it_cannot_keep() {
        let policy = |rest: &str| format!("[[policy]]\nname = \"one\"\n{rest}");
        for (rest, said) in [
            ("algorithm = \"kernel\"", "leaves connections"),
            ("mode = \"shadow\"", "watches connections"),
            ("ab = \"50%\"", "keeps some"),
            ("max-rate = \"50mbit\"", "has limits"),
            ("cgroup = \"/system.slice\"", "cgroup"),
        ] {
            let text = policy(rest);
            assert_eq!(checked(&text, true), Ok(()), "{rest}");
            let refusal = checked(&text, false).unwrap_err();
            let parts = ["`one`", said, "--datapath bpf"];
            assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        }
        let text = policy("local-port = 443\nhb-loss = \"7%\"");
        assert_eq!(checked(&text, false), Ok(()));
    }

    #[test]
    fn an_algorithm_in_the_datapath_knows_no_policies() {
        let text = "algorithm = \"exp\"\n[[policy]]\nname = \"one\"";
        let refusal = checked(text, true).unwrap_err();
        assert!(
            refusal.contains("exp") && refusal.contains("`one`"),
            "{refusal}"
        );
    }
}
