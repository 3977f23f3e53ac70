//! The configuration of `run`: flags, and a TOML file whose keys are the flags' names.
//!
//! The flags as clap knows them are the one table: a file's values are checked and taken by the flags' own parsers, and
//! what `--print-config` prints are the flags' help texts, values and where these come from. A flag on the command line
//! beats the file, the file beats the default.

use super::policy;
use super::run::RunArgs;
use super::scenario::reader::Source;
use anyhow::{Context, Error, Result, anyhow};
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use pk3c_ccp::policy::Policies;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;

const VERB: &str = "run";
/// Key of the policies: they are not flags.
pub(crate) const POLICY: &str = "policy";
/// Flags that a file cannot have: they are about files.
const NOT_IN_FILES: [&str; 3] = ["config", "print-config", "help"];

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line.
    Flag,
    /// A line of the file, from 1.
    File(usize),
    /// Nobody said anything.
    Default,
}

/// One option and its value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The flag's name, without dashes.
    pub(crate) name: String,
    /// As text; `None` if it has no value.
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
    /// Whether it is on or off, rather than having a value.
    switch: bool,
}

/// What `run` was told, by whatever means.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    command_line: Vec<OsString>,
    /// The file, if one was named.
    pub(crate) file: Option<PathBuf>,
    /// The options, as the agent uses them.
    pub(crate) args: RunArgs,
    /// All options that a file may have, in the order of the help text.
    pub(crate) settings: Vec<Setting>,
    /// Which connections get something else.
    pub(crate) policies: Policies,
    /// The lines of the file on which they begin.
    policy_lines: Vec<usize>,
}

impl Configuration {
    /// Reads the file that the command line names, if it does. The command line is that of `pk3c-ccp run`, with the
    /// program's name.
    ///
    /// # Errors
    /// Say file, line, key and what to write instead.
    pub(crate) fn read(command_line: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let command_line: Vec<_> = command_line.into_iter().collect();
        let given = parse(&command_line).map_err(|error| anyhow!(plain(&error)))?;
        let file = given.get_one::<PathBuf>("config").cloned();
        let Some(path) = &file else {
            let args = RunArgs::from_arg_matches(&given).map_err(|error| anyhow!(plain(&error)))?;
            let settings = settings(&given, (&given, &args), &BTreeMap::new());
            return Ok(Self {
                command_line,
                file,
                args,
                settings,
                policies: Policies::default(),
                policy_lines: Vec::new(),
            });
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let name = path.display().to_string();
        let source = Source {
            name: &name,
            text: &text,
        };
        let (in_file, written) = entries(source)?;
        let mut merged: Vec<OsString> = command_line.iter().take(2).cloned().collect();
        for arg in options() {
            let entry = arg.get_long().and_then(|key| in_file.get_key_value(key));
            // What is the default anyway must not need or exclude other options.
            let default = arg.get_default_values().first();
            let idle = |entry: &Entry| default.is_some_and(|default| *default == *entry.text);
            if let Some((key, entry)) = entry.filter(|(_, entry)| !idle(entry))
                && !is_given(&given, arg.get_id().as_str())
            {
                merged.extend(entry.as_argument(key).map(OsString::from));
            }
        }
        merged.extend(command_line.iter().skip(2).cloned());
        let wrong = |error: clap::Error| blame(source, &in_file, &error);
        let matches = parse(&merged).map_err(wrong)?;
        let args = RunArgs::from_arg_matches(&matches).map_err(wrong)?;
        let lines = in_file.iter();
        let lines = lines.map(|(key, entry)| (key.as_str(), source.line(&entry.at)));
        let settings = settings(&given, (&matches, &args), &lines.collect());
        for policy in &written {
            policy.check(source, &args.params.0)?;
        }
        let (policies, policy_lines): (Vec<_>, _) = written
            .into_iter()
            .map(|one| (one.policy, one.line))
            .unzip();
        Ok(Self {
            command_line,
            file,
            args,
            settings,
            policies: Policies::new(policies),
            policy_lines,
        })
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// As for [`Configuration::read`].
    pub(crate) fn read_again(&self) -> Result<Self> {
        Self::read(self.command_line.clone())
    }

    /// Names of the options that have other values than `other`.
    pub(crate) fn changed_from(&self, other: &Self) -> Vec<&str> {
        let pairs = self.settings.iter().zip(&other.settings);
        let changed = pairs
            .filter(|(one, other)| one.value != other.value)
            .map(|(one, _)| one.name.as_str());
        let policies = (self.policies != other.policies).then_some(POLICY);
        changed.chain(policies).collect()
    }

    /// File and line of a policy.
    pub(crate) fn policy_place(&self, index: usize) -> String {
        let file = self.file.clone().unwrap_or_default();
        let line = self.policy_lines.get(index).copied().unwrap_or_default();
        format!("{}:{line}", file.display())
    }

    /// A TOML file of this configuration, with what each value means, what is allowed, and where it comes from.
    pub(crate) fn annotated(&self) -> String {
        let mut text = format!(
            "# The configuration of {} {}; `pk3c-ccp run --config FILE` reads it.\n\
             # A flag on the command line beats the file. SIGHUP reads the file again.\n",
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
        );
        for (arg, setting) in options().iter().zip(&self.settings) {
            self.annotate(arg, setting, &mut text)
                .expect("writing to a string does not fail");
        }
        if self.policies.is_empty() {
            return text + policy::EXAMPLE;
        }
        for (index, policy) in self.policies.all().iter().enumerate() {
            text += &policy::annotated(policy, &self.policy_place(index));
        }
        text
    }

    fn annotate(&self, arg: &Arg, setting: &Setting, text: &mut String) -> std::fmt::Result {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        writeln!(text)?;
        for line in wrap(&help, 110) {
            writeln!(text, "# {line}")?;
        }
        let form = if setting.switch {
            "true or false".to_owned()
        } else {
            let choices: Vec<_> = arg
                .get_possible_values()
                .iter()
                .map(|value| value.get_name().to_owned())
                .collect();
            if choices.is_empty() {
                let names = arg.get_value_names().unwrap_or_default();
                names.iter().map(ToString::to_string).collect()
            } else {
                choices.join(" or ")
            }
        };
        let default = match arg.get_default_values().first() {
            Some(value) if !setting.switch => value.to_string_lossy().into_owned(),
            _ if setting.switch => "false".to_owned(),
            _ => "none".to_owned(),
        };
        let origin = match (setting.origin, &self.file) {
            (Origin::Flag, _) => "the command line".to_owned(),
            (Origin::File(line), Some(file)) => format!("{}:{line}", file.display()),
            (Origin::File(_) | Origin::Default, _) => "the default".to_owned(),
        };
        writeln!(text, "# {form}; default: {default}; this value: {origin}")?;
        let (key, value) = (&setting.name, setting.value.as_deref());
        match value {
            None => writeln!(text, "# {key} = \"\""),
            Some(value) if setting.switch || value.parse::<i64>().is_ok() => {
                writeln!(text, "{key} = {value}")
            }
            // A JSON string is a TOML string, too.
            Some(value) => writeln!(text, "{key} = {}", serde_json::Value::from(value)),
        }
    }
}

/// All options in force: `given` on the command line, `matches` with what the file says, on these lines, and what they
/// come to.
fn settings(
    given: &ArgMatches,
    (matches, args): (&ArgMatches, &RunArgs),
    lines: &BTreeMap<&str, usize>,
) -> Vec<Setting> {
    let setting = |arg: &Arg| {
        let name = arg.get_long()?.to_owned();
        let id = arg.get_id().as_str();
        let origin = match lines.get(name.as_str()) {
            _ if is_given(given, id) => Origin::Flag,
            Some(line) => Origin::File(*line),
            None => Origin::Default,
        };
        let switch = is_switch(arg);
        let value = if switch {
            Some(matches.get_flag(id).to_string())
        } else {
            let raw = matches.get_raw(id).and_then(|mut raw| raw.next());
            let raw = || raw.map(|raw| raw.to_string_lossy().into_owned());
            // The default of one parameter may follow from others.
            let is_default = origin == Origin::Default;
            let parameter = is_default.then(|| args.params.0.get(&name).ok());
            parameter.flatten().or_else(raw)
        };
        Some(Setting {
            name,
            value,
            origin,
            switch,
        })
    };
    options().iter().filter_map(setting).collect()
}

/// The options of `run` that a file may have.
fn options() -> Vec<Arg> {
    let command = verb();
    let in_files = |arg: &&Arg| {
        arg.get_long()
            .is_some_and(|long| !NOT_IN_FILES.contains(&long))
    };
    command.get_arguments().filter(in_files).cloned().collect()
}

fn verb() -> Command {
    let mut command = super::Cli::command();
    command.build();
    let verb = command.find_subcommand(VERB).cloned();
    verb.expect("the command line has a verb `run`")
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn parse(command_line: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let mut matches = super::Cli::command().try_get_matches_from(command_line)?;
    match matches.remove_subcommand() {
        Some((name, matches)) if name == VERB => Ok(matches),
        _ => Err(clap::Error::raw(ErrorKind::MissingSubcommand, "not `run`")),
    }
}

/// A value of the file, and where it is.
struct Entry {
    at: Range<usize>,
    switch: bool,
    text: String,
}

impl Entry {
    /// As a flag.
    fn as_argument(&self, key: &str) -> Option<String> {
        match (self.switch, self.text.as_str()) {
            (true, "true") => Some(format!("--{key}")),
            (true, _) => None,
            (false, text) => Some(format!("--{key}={text}")),
        }
    }
}

/// All values of a file and its policies, each checked by itself.
fn entries(source: Source<'_>) -> Result<(BTreeMap<String, Entry>, Vec<policy::Written>)> {
    let mut table = source.table()?;
    let options = options();
    let flags = options.iter().filter_map(Arg::get_long);
    let known: Vec<_> = flags.chain([POLICY]).collect();
    table.expect(&known)?;
    let policies = policy::read(source, &mut table)?;
    let mut entries = BTreeMap::new();
    for arg in &options {
        let Some(key) = arg.get_long() else { continue };
        let Some(at) = table.span(key) else { continue };
        let switch = is_switch(arg);
        let text = table.take(key, |text| {
            if switch {
                return match text {
                    "true" | "false" => Ok(text.to_owned()),
                    _ => Err(format!(
                        "`{text}` is neither true nor false: write one of them"
                    )),
                };
            }
            check(key, text).map(|()| text.to_owned())
        })?;
        let entry = text.map(|text| Entry { at, switch, text });
        entries.extend(entry.map(|entry| (key.to_owned(), entry)));
    }
    Ok((entries, policies))
}

/// Whether a flag takes the value, as far as it can be said of one flag alone.
fn check(key: &str, text: &str) -> Result<(), String> {
    let command = verb().no_binary_name(true);
    match command.try_get_matches_from([format!("--{key}={text}")]) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => Ok(()),
        Err(error) if is_conflict(&error) => Ok(()),
        Err(error) => Err(plain(&error)),
        Ok(matches) => match RunArgs::from_arg_matches(&matches) {
            Err(error) if !is_conflict(&error) => Err(plain(&error)),
            _ => Ok(()),
        },
    }
}

fn is_conflict(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::ArgumentConflict
}

/// The options together are wrong: names the line of one of them, if it is the file's.
fn blame(source: Source<'_>, entries: &BTreeMap<String, Entry>, error: &clap::Error) -> Error {
    let what = plain(error);
    let named = |key: &&String| {
        let flag = format!("--{key}");
        let words = what.split(|c: char| !(c.is_alphanumeric() || c == '-'));
        words.into_iter().any(|word| word == flag)
    };
    if let Some(entry) = entries.keys().find(named).map(|key| &entries[key]) {
        return source.wrong(entry.at.clone(), what);
    }
    // What is missing is named, and not who misses it: that one is refused alone, too.
    let misses = |(key, entry): &(&String, &Entry)| {
        let alone = entry.as_argument(key).map(|flag| {
            let command = verb().no_binary_name(true);
            command.try_get_matches_from([flag])
        });
        alone.is_some_and(|alone| alone.is_err_and(|alone| plain(&alone) == what))
    };
    match entries.iter().find(misses) {
        Some((key, entry)) => {
            let what = format_args!("key `{key}` of the file: {what}");
            source.wrong(entry.at.clone(), what)
        }
        None => anyhow!("{}: {what}", source.name),
    }
}

/// clap's message on one line, without its usage.
fn plain(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let message = text.split("\n\n").next().unwrap_or(text);
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    // A flag's own parser has said it all.
    let own = error.kind() == ErrorKind::ValueValidation
        && error.get(ContextKind::InvalidValue).is_some();
    match message.split_once(">': ") {
        Some((_, told)) if own => told.to_owned(),
        _ => message,
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines
            .last_mut()
            .filter(|line| line.len() + word.len() < width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests;
