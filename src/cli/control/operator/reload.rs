//! Reading the configuration again: what of it a running agent takes, and what waits for its next start.
//!
//! What is told as changed is the difference of what was in force before and after. What is told to wait is the
//! difference of the file and the start, every time anew: an option does not cease to wait because it was told before,
//! and one that is back at its old value does not begin to. Three things that look like parameters wait with the
//! options: the limit on reports, a choice between an algorithm of the agent and one of the datapath, and what is
//! faster than the datapath lets any connection go since it was loaded.

use super::{FIXED, Operator};
use crate::cli::config::{Configuration, POLICY};
use crate::cli::policy;
use anyhow::{Result, bail};
use pk3c_ccp::agent::Pk3c;
use pk3c_ccp::params::{Params, SPECS};
use pk3c_ccp::units::Rate;
use serde_json::{Value, json};
use tracing::{error, info, warn};

const LOG: &str = "log";
const MAX_RATE: &str = "max-rate";
/// What makes an algorithm the datapath's.
const WHERE: [&str; 2] = ["algorithm", "upstream-compat"];

impl Operator {
    /// Reads the configuration again. Parameters, policies and the log level take effect at once, and replace what was
    /// set; other options at the next start. If anything is wrong, everything stays as it is.
    pub(crate) fn reload(&self) -> Result<Value> {
        let done = self.try_reload();
        match &done {
            Ok(done) => {
                let [changed, later] = ["changed", "at_next_start"].map(|key| &done[key]);
                info!(%changed, at_next_start = %later, "the configuration was read again");
            }
            Err(error) => {
                error!("the configuration is not read again, the old one stays: {error:#}");
            }
        }
        done
    }

    fn try_reload(&self) -> Result<Value> {
        let mut state = self.state();
        if state.configuration.file.is_none() {
            bail!("the agent was started without --config: there is no file to read again");
        }
        let next = state.configuration.read_again()?;
        policy::check(&next, self.has_enforcer)?;
        self.log.set(&next.args.log)?;
        let level = std::mem::replace(&mut state.level, next.args.log.clone());
        let mut changed: Vec<_> = (level != state.level).then_some(LOG).into_iter().collect();
        if let Some(algorithm) = &self.algorithm {
            changed.extend(self.put_in_force(algorithm, &next)?);
        }
        let later = self.at_next_start(&next);
        if !later.is_empty() {
            warn!(
                options = later.join(", "),
                "these changes take effect at the next start"
            );
        }
        let dropped: Vec<_> = state.set.keys().copied().collect();
        let done = json!({ "changed": changed, "at_next_start": later, "no_longer_set": dropped });
        state.configuration = next;
        state.set.clear();
        Ok(done)
    }

    /// Gives the algorithm what it takes of a configuration, and names what has changed by that.
    fn put_in_force(&self, algorithm: &Pk3c, next: &Configuration) -> Result<Vec<&'static str>> {
        let (was, policies) = (algorithm.params(), algorithm.policies());
        let mut is = next.args.params.0.clone();
        is.max_reports = was.max_reports;
        if is.is_exp() {
            (is.algorithm, is.upstream_compat) = (was.algorithm, was.upstream_compat);
        }
        // Those that are as they were keep their flows, and what their experiments have collected.
        algorithm.configure(is.clone(), Some(next.policies.clone()))?;
        let [was, is] = [was, is].map(|params| self.enforced(params));
        let pairs = was.to_text().zip(is.to_text());
        let parameters = pairs
            .filter(|(was, is)| was != is)
            .map(|((name, _), _)| name);
        let policies = (*policies != next.policies).then_some(POLICY);
        Ok(parameters.chain(policies).collect())
    }

    /// As the datapath lets connections go.
    fn enforced(&self, mut params: Params) -> Params {
        if self.is_beyond(params.max_rate) {
            params.max_rate = Rate::from_bytes_per_sec(self.max_rate as f64);
        }
        params
    }

    /// Names of the options of which the running agent has not the configuration's values, or not all of them.
    fn at_next_start<'a>(&self, next: &'a Configuration) -> Vec<&'a str> {
        let params = &next.args.params.0;
        let waits = |name: &str| {
            if name == LOG {
                return false;
            }
            if self.algorithm.is_none() {
                return true;
            }
            match name {
                FIXED => true,
                MAX_RATE => self.is_beyond(params.max_rate),
                POLICY => {
                    let mut rates = next
                        .policies
                        .all()
                        .iter()
                        .map(|policy| policy.limits.max_rate);
                    rates.any(|rate| rate.is_some_and(|rate| self.is_beyond(rate)))
                }
                _ if WHERE.contains(&name) => params.is_exp(),
                _ => SPECS.iter().all(|spec| spec.flag != name),
            }
        };
        let mut names = next.changed_from(&self.start);
        names.retain(|name| waits(name));
        names
    }
}
