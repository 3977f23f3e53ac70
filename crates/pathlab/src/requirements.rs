//! What a machine must have for runs on emulated paths, checked before anything is started.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;

use crate::agent;
use crate::scenario::Scheme;

/// Tools by Debian package.
const TOOLS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
];
const TRAFFIC: (&str, &str) = ("iperf3", "iperf3");

/// Everything that is missing, each with its remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Missing(
    /// One sentence each, never empty.
    pub Vec<String>,
);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "emulated paths do not work here:")?;
        self.0.iter().try_for_each(|item| write!(f, "\n  - {item}"))
    }
}

/// Kernel modules that the check loaded; unloaded again when dropped.
#[derive(Debug, Default)]
pub struct LoadedModules(Vec<String>);

impl Drop for LoadedModules {
    fn drop(&mut self) {
        for module in &self.0 {
            if !modprobe(&["--remove", module]) {
                tracing::warn!(
                    module,
                    "a kernel module that was loaded for the runs stays loaded"
                );
            }
        }
    }
}

/// Checks this machine for emulated paths.
///
/// # Errors
/// [`Missing`] lists all that is missing, not only the first.
pub fn check_path() -> Result<(), Missing> {
    let missing = missing(&TOOLS);
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Missing(missing)),
    }
}

/// Checks this machine for runs of `schemes`; loads the kernel's congestion controls among them
/// that are modules.
///
/// # Errors
/// [`Missing`] lists all that is missing, not only the first.
pub fn check(schemes: &[Scheme]) -> Result<LoadedModules, Missing> {
    let mut missing = missing(&[&TOOLS[..], &[TRAFFIC]].concat());
    let mut loaded = LoadedModules::default();
    for scheme in schemes {
        match scheme {
            Scheme::Kernel(name) if !agent::is_available(name) => {
                let module = module(name);
                if modprobe(&[&module]) && agent::is_available(name) {
                    loaded.0.push(module);
                } else {
                    missing.push(lacks(name));
                }
            }
            Scheme::Agent { command, .. } if !command.first().is_some_and(|it| on_path(it)) => {
                let program = command.first().map_or("", String::as_str);
                missing.push(format!("the agent's program `{program}`: not found"));
            }
            _ => {}
        }
    }
    if missing.is_empty() {
        Ok(loaded)
    } else {
        Err(Missing(missing))
    }
}

/// Why this kernel cannot run a congestion control; `None` if it can, at most with a module that is there.
pub fn lacks_congestion_control(name: &str) -> Option<String> {
    let there = agent::is_available(name) || modprobe(&["--dry-run", "--quiet", &module(name)]);
    (!there).then(|| lacks(name))
}

fn module(congestion_control: &str) -> String {
    format!("tcp_{congestion_control}")
}

fn lacks(name: &str) -> String {
    let module = module(name);
    format!(
        "congestion control {name}: the kernel does not have it and `modprobe {module}` does not bring it"
    )
}

fn missing(tools: &[(&str, &str)]) -> Vec<String> {
    let mut missing = Vec::new();
    if !geteuid().is_root() {
        missing.push("not root: network namespaces and TUN devices need it; use sudo".to_owned());
    } else if let Err(error) = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        missing.push(format!("/dev/net/tun: {error}; try `modprobe tun`"));
    }
    for (tool, package) in tools {
        if !on_path(tool) {
            missing.push(format!(
                "{tool}: not found; try `apt-get install {package}`"
            ));
        }
    }
    missing
}

fn on_path(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

fn modprobe(arguments: &[&str]) -> bool {
    Command::new("modprobe")
        .arg("--quiet")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_has_not_is_named_before_it_is_needed() {
        assert_eq!(lacks_congestion_control("reno"), None);
        let lacks = lacks_congestion_control("nosuch").unwrap();
        assert!(lacks.contains("modprobe tcp_nosuch"), "{lacks}");
    }

    #[test]
    fn everything_missing_is_listed_with_its_remedy() {
        let schemes = [
            Scheme::Kernel("no_such_cc".into()),
            Scheme::Agent {
                name: "x".into(),
                command: vec!["/no/such/agent".into()],
            },
            Scheme::Kernel("reno".into()),
        ];
        let text = check(&schemes).unwrap_err().to_string();
        assert!(text.contains("modprobe tcp_no_such_cc"), "{text}");
        assert!(text.contains("/no/such/agent"), "{text}");
        assert!(!text.contains("reno"), "{text}");
    }
}
