//! Policies of a configuration file: `[[policy]]`.

use crate::cli::config::POLICY;
use crate::cli::scenario::reader::{Source, Table};
use anyhow::Result;
use pk3c_ccp::params::{Params, SPECS};
use pk3c_ccp::policy::{
    Action, By, Conditions, Experiment, Limits, NOT_PER_POLICY, POLICIES_MAX, Policy, cgroup_path,
    check_name, network,
};
use pk3c_ccp::units::Ratio;
use std::ops::Range;

const ALGORITHM: &str = "algorithm";
/// Of `algorithm`: no algorithm of ours.
const KERNEL: &str = "kernel";
/// Keys of a policy besides parameters.
const KEYS: [&str; 7] = [
    "name",
    "cgroup",
    "local-port",
    "destination",
    "mode",
    "ab",
    "max-loss",
];
const AB_KEYS: [&str; 3] = ["share", "by", "key"];

/// A policy and where it is written.
pub(in crate::cli) struct Written {
    pub(in crate::cli) policy: Policy,
    at: Range<usize>,
    /// Line, from 1.
    pub(in crate::cli) line: usize,
}

impl Written {
    /// Checks its parameters over those of the file and the command line.
    pub(in crate::cli) fn check(&self, source: Source<'_>, base: &Params) -> Result<()> {
        let name = &self.policy.name;
        let params = self.policy.params(base);
        params.map(drop).map_err(|error| {
            source.wrong(
                self.at.clone(),
                format_args!("[[{POLICY}]] `{name}`: {error}"),
            )
        })
    }
}

/// Takes the policies out of a file's table, in their order.
pub(in crate::cli) fn read(source: Source<'_>, file: &mut Table<'_>) -> Result<Vec<Written>> {
    let mut all: Vec<Written> = Vec::new();
    for table in file.tables(POLICY)?.unwrap_or_default() {
        let at = table.place();
        let wrong = |what: String| source.wrong(at.clone(), format_args!("[[{POLICY}]]: {what}"));
        if all.len() == POLICIES_MAX {
            return Err(wrong(format!(
                "there are more than {POLICIES_MAX} policies: join some"
            )));
        }
        let policy = one(table)?;
        if let Some(other) = all.iter().find(|other| other.policy.name == policy.name) {
            return Err(wrong(format!(
                "the name `{}` is that of the policy in line {}: choose another",
                policy.name, other.line
            )));
        }
        if let Some(other) = all.iter().find(|other| other.policy.conditions.is_empty()) {
            return Err(wrong(format!(
                "is never reached: the policy `{}` in line {} has no conditions, so it is for all connections; write it last",
                other.policy.name, other.line
            )));
        }
        let line = source.line(&at);
        all.push(Written { policy, at, line });
    }
    Ok(all)
}

fn one(mut table: Table<'_>) -> Result<Policy> {
    let flags = || {
        let flags = SPECS.iter().map(|spec| spec.flag);
        flags.filter(|flag| !NOT_PER_POLICY.contains(flag))
    };
    let known: Vec<_> = KEYS.into_iter().chain(flags()).collect();
    table.expect(&known)?;
    let name = table.need("name", "name = \"video\"", |text| {
        check_name(text).map(|()| text.to_owned())
    })?;
    let conditions = Conditions {
        cgroups: table.values("cgroup", cgroup_path)?.unwrap_or_default(),
        local_ports: table.values("local-port", str::parse)?.unwrap_or_default(),
        destinations: table.values("destination", network)?.unwrap_or_default(),
    };
    let is_kernel = algorithm(&mut table)?;
    let is_shadow = table.take("mode", |text| match text {
        "drive" => Ok(false),
        "shadow" => Ok(true),
        _ => Err(format!("`{text}` is not a mode: write drive or shadow")),
    })?;
    let experiment = experiment(&mut table, &name)?;
    let action = match (is_kernel, is_shadow, experiment) {
        (Some(true), None, None) => Action::Kernel,
        (Some(true), _, _) => {
            return Err(table.wrong_here(
                "`algorithm = \"kernel\"` leaves the connections alone: leave out `mode` and `ab`",
            ));
        }
        (_, Some(true), Some(_)) => {
            return Err(table.wrong_here(
                "`ab` compares connections that are driven with others: leave out `mode = \"shadow\"`, or `ab`",
            ));
        }
        (_, _, Some(experiment)) => Action::Compare(experiment),
        (_, Some(true), None) => Action::Shadow,
        (_, _, None) => Action::Drive,
    };
    let max_loss = table.take("max-loss", |text| {
        let share: Ratio = text.parse().map_err(|error| format!("{error}"))?;
        if (0.001..1.0).contains(&share.get()) {
            Ok(share)
        } else {
            Err(format!("`{text}` is out of range: write 0.1% to 99.9%"))
        }
    })?;
    let mut limits = Limits {
        max_loss,
        ..Limits::default()
    };
    let mut overrides = Vec::new();
    for flag in flags() {
        let mut value = Params::default();
        let taken = table.take(flag, |text| value.set(flag, text).map(|()| text.to_owned()))?;
        let Some(text) = taken else { continue };
        match flag {
            "min-rate" => limits.min_rate = Some(value.min_rate),
            "max-rate" => limits.max_rate = Some(value.max_rate),
            _ => {}
        }
        overrides.push((flag, text));
    }
    if action == Action::Kernel && !(overrides.is_empty() && limits.is_empty()) {
        return Err(table.wrong_here(
            "`algorithm = \"kernel\"` has no parameters and no limits: leave them out",
        ));
    }
    Ok(Policy {
        name: name.into(),
        conditions,
        action,
        overrides,
        limits,
    })
}

/// Whether the connections are the kernel's; a name of ours stays where it is, as a parameter.
fn algorithm(table: &mut Table<'_>) -> Result<Option<bool>> {
    let Some(text) = table.peek(ALGORITHM) else {
        return Ok(None);
    };
    if text != KERNEL && ["pk3c", "vivace", "upstream"].contains(&text.as_str()) {
        return Ok(Some(false));
    }
    table.take(ALGORITHM, |text| match text {
        KERNEL => Ok(true),
        "exp" => Err(
            "`exp` decides in the datapath and is for a whole agent: run --algorithm exp".to_owned(),
        ),
        _ => Err(format!(
            "`{text}` is not an algorithm: write pk3c, vivace, upstream, or kernel for the kernel's Cubic"
        )),
    })
}

fn experiment(table: &mut Table<'_>, name: &str) -> Result<Option<Experiment>> {
    let share = |text: &str| {
        let share: Ratio = text.parse().map_err(|error| format!("{error}"))?;
        if share.get() > 0.0 && share.get() < 1.0 {
            Ok(share)
        } else {
            Err(format!(
                "`{text}` leaves one side empty: write a share between 0 and 1, as in 50%"
            ))
        }
    };
    let plain = |share| Experiment {
        share,
        by: By::default(),
        key: name.to_owned(),
    };
    table.value_or_table(
        "ab",
        |text| share(text).map(plain),
        |mut ab| {
            ab.expect(&AB_KEYS)?;
            let share = ab.need("share", "share = \"50%\"", share)?;
            let by = ab.take("by", |text| match text {
                "connection" => Ok(By::Connection),
                "host" => Ok(By::Host),
                _ => Err(format!("`{text}`: write connection or host")),
            })?;
            let key = ab.take("key", |text| match text {
                "" => Err("is empty: write any text, or leave it out for the policy's name"),
                _ => Ok(text.to_owned()),
            })?;
            Ok(Experiment {
                by: by.unwrap_or_default(),
                key: key.unwrap_or_else(|| name.to_owned()),
                ..plain(share)
            })
        },
    )
}
