//! What guests take of this machine, checked before anything is started.

use std::env;
use std::path::PathBuf;

use super::Error;

/// The programs of this machine that guests are made of or made with.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) busybox: PathBuf,
    pub(super) ip: PathBuf,
    pub(super) tc: PathBuf,
    pub(super) iperf3: PathBuf,
    pub(super) ethtool: PathBuf,
}

impl Host {
    /// Looks for everything at once, so that one message names all that is missing.
    pub(super) fn probe() -> Result<Self, Error> {
        let mut missing = Vec::new();
        let mut need = |program: &'static str, package: &'static str| {
            let found = find_program(program);
            if found.is_none() && !missing.contains(&package) {
                missing.push(package);
            }
            found.unwrap_or_default()
        };
        let host = Self {
            busybox: need("busybox", "busybox-static"),
            ip: need("ip", "iproute2"),
            tc: need("tc", "iproute2"),
            iperf3: need("iperf3", "iperf3"),
            ethtool: need("ethtool", "ethtool"),
        };
        for (program, package) in [
            ("qemu-system-x86_64", "qemu-system-x86"),
            ("setpriv", "util-linux"),
            ("xz", "xz-utils"),
            ("ldd", "libc-bin"),
            ("dpkg-deb", "dpkg"),
            ("apt-get", "apt"),
        ] {
            need(program, package);
        }
        if missing.is_empty() {
            Ok(host)
        } else {
            Err(Error::Missing(missing))
        }
    }
}

/// A program of this machine, or the package that it is in as an error.
pub(super) fn need_program(name: &str, package: &'static str) -> Result<PathBuf, Error> {
    find_program(name).ok_or(Error::Missing(vec![package]))
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut dirs = env::split_paths(&path).chain(admin);
    dirs.find_map(|dir| Some(dir.join(name)).filter(|file| file.is_file()))
}
