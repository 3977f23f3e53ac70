//! `suite.json`: what was asked for, under which conditions it ran, and what went wrong.

use serde::{Deserialize, Serialize};

use crate::lab::result::{Conditions, FORMAT, SelfCheck};

/// Name of its file in the folder of results.
pub const FILE: &str = "suite.json";

/// A suite. Its results are in files of their own, beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuiteRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The command, word by word.
    pub command: Vec<String>,
    /// `host`, `guest` or `sim`.
    pub backend: String,
    /// Whether these are the short forms.
    pub quick: bool,
    /// Ids of the scenarios.
    pub scenarios: Vec<String>,
    /// Schemes in the order of each repetition.
    pub order: Vec<Vec<String>>,
    /// Machine and program.
    pub conditions: Conditions,
    /// When it ended, RFC 3339, UTC; absent while it runs, and if it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Whether the emulator was not checked, on the user's wish.
    #[serde(default)]
    pub self_check_skipped: bool,
    /// What a null sender found, one for each path.
    #[serde(default)]
    pub self_checks: Vec<SelfCheck>,
    /// What became of the runs.
    pub counts: Counts,
    /// Runs without a good result.
    #[serde(default)]
    pub failures: Vec<Failure>,
}

impl SuiteRecord {
    /// A suite of which nothing is known yet.
    pub fn new() -> Self {
        Self {
            format: FORMAT,
            ..Self::default()
        }
    }
}

/// What became of a suite's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// All of the suite.
    pub total: usize,
    /// Made by this suite, with a good result.
    pub made: usize,
    /// Found in the folder: an earlier suite with the same inputs was interrupted, or was smaller.
    pub kept: usize,
    /// Found in the cache.
    pub reused: usize,
    /// Made without a good result.
    pub failed: usize,
}

impl Counts {
    /// Runs that have a good result.
    pub fn good(&self) -> usize {
        self.made + self.kept + self.reused
    }
}

/// A run without a good result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// Id of the scenario.
    pub scenario: String,
    /// Scheme under test.
    pub scheme: String,
    /// Seed.
    pub seed: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether there is a file with a void result.
    pub void: bool,
    /// What went wrong the last time.
    pub error: String,
}
