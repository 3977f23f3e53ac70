//! The agent's log on standard error, whose level can change while it runs.

use super::nearest;
use anyhow::{Result, anyhow};
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// Changes what is logged.
pub(crate) struct LogLevel(Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>);

impl LogLevel {
    /// Logs what a filter selects from now on.
    ///
    /// # Errors
    /// If the text is no filter; then nothing changes.
    pub(crate) fn set(&self, text: &str) -> Result<()> {
        (self.0)(EnvFilter::new(
            filter(text).map_err(|error| anyhow!(error))?,
        ))
    }

    /// Of a log that nobody reads.
    #[cfg(test)]
    pub(crate) fn deaf() -> Self {
        Self(Box::new(|_| Ok(())))
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A flag's text, if it is a filter.
pub(crate) fn filter(text: &str) -> Result<String, String> {
    // A word alone would be a target, and silence all others.
    if !text.contains(['=', ',']) && !LEVELS.iter().any(|level| text.eq_ignore_ascii_case(level)) {
        let hint = match nearest(&text.to_lowercase(), LEVELS) {
            Some(level) => format!("did you mean `{level}`?"),
            None => format!(
                "give {}, or a filter such as info,decision=debug",
                LEVELS.join(", ")
            ),
        };
        return Err(format!("`{text}` is not a level: {hint}"));
    }
    let checked = EnvFilter::try_new(text).map(|_| text.to_owned());
    let levels = LEVELS.join(", ");
    checked.map_err(|e| format!("{e}; give a level ({levels}) or a filter"))
}

/// Begins to log.
pub(crate) fn start(level: &str, format: LogFormat) -> LogLevel {
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let log = log.with_ansi(std::io::stderr().is_terminal());
            let log = log.with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            LogLevel(Box::new(move |filter| Ok(handle.reload(filter)?)))
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            LogLevel(Box::new(move |filter| Ok(handle.reload(filter)?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for (text, hint) in [
            ("warning", "did you mean `warn`?"),
            ("Debgu", "did you mean `debug`?"),
            ("nope", "off, error, warn, info, debug, trace"),
            ("", "off, error"),
            ("info,decision=loud", "give a level"),
        ] {
            let said = filter(text).unwrap_err();
            assert!(said.contains(hint), "{text}: {said}");
        }
        for text in ["off", "WARN", "trace", "info,decision=debug", "flow=off"] {
            assert_eq!(filter(text).as_deref(), Ok(text));
        }
    }
}
