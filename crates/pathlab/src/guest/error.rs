//! What can go wrong with a guest.

use std::io;
use std::path::{Path, PathBuf};

use super::stream::StreamError;
use crate::iperf::IperfError;

/// Why a guest could not be made or its run not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Packages that guests need are not installed.
    #[error("guests need {}: apt-get install --no-install-recommends {}", .0.join(", "), .0.join(" "))]
    Missing(Vec<&'static str>),
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no place to keep kernels: set XDG_CACHE_HOME or HOME")]
    NoCache,
    /// apt knows no kernel of the series.
    #[error(
        "apt offers no kernel for {0}: run apt-get update, with Debian 12 and its security archive among the sources"
    )]
    NoKernelPackage(String),
    /// The cached kernel is not what a package unpacks to.
    #[error("{} is not a whole kernel: delete the folder of that version and try again", .0.display())]
    BrokenKernel(PathBuf),
    /// A module that a run needs is not in the kernel's package.
    #[error("no module {module} in {}", modules.display())]
    NoModule {
        /// The module.
        module: String,
        /// The package's modules.
        modules: PathBuf,
    },
    /// A program could not be run or failed.
    #[error("{command}: {problem}")]
    Command {
        /// The command line.
        command: String,
        /// What went wrong.
        problem: String,
    },
    /// A file or folder could not be used.
    #[error("cannot {what} {}: {cause}", path.display())]
    Io {
        /// The attempt.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A run that makes no sense.
    #[error("{run}: {problem}")]
    BadRun {
        /// The run.
        run: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The guest could not make the run.
    #[error(
        "{run}: the guest gave up: {reason}{}",
        context("agent's log", agent_log)
    )]
    Guest {
        /// The run.
        run: String,
        /// The guest's reason.
        reason: String,
        /// The end of the agent's log, if it wrote one.
        agent_log: String,
    },
    /// The guest's output was cut short, is corrupt, or takes too long.
    #[error("{run}: {cause}{}", context("console", console))]
    Stream {
        /// The run.
        run: String,
        /// What is wrong with the output.
        cause: StreamError,
        /// The guest's console from the fault of its kernel on, or its last lines.
        console: String,
    },
    /// iperf3's report cannot be used.
    #[error("{run}: {cause}{}", context("iperf3's complaints", complaints))]
    Iperf {
        /// The run.
        run: String,
        /// What is wrong with it.
        cause: IperfError,
        /// What iperf3 wrote to standard error, and how it ended.
        complaints: String,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(super) fn io(what: &'static str, path: impl AsRef<Path>) -> impl Fn(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |cause| Self::Io {
            what,
            path: path.clone(),
            cause,
        }
    }
}

fn context(what: &str, text: &str) -> String {
    if text.trim().is_empty() {
        String::new()
    } else {
        format!("; {what}:\n{}", text.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_packages_come_with_the_line_that_installs_them() {
        assert_eq!(
            Error::Missing(vec!["qemu-system-x86", "iperf3"]).to_string(),
            "guests need qemu-system-x86, iperf3: \
             apt-get install --no-install-recommends qemu-system-x86 iperf3"
        );
    }
}
