//! What the doctor reads of the machine: small parsers of kernel files, each free of I/O, and two that look around.

use std::fs;
use std::path::Path;

/// Bits of the kernel's capability sets, `include/uapi/linux/capability.h`.
pub(super) mod capability {
    pub(crate) const NET_ADMIN: u32 = 12;
    pub(crate) const SYS_ADMIN: u32 = 21;
    pub(crate) const PERFMON: u32 = 38;
    pub(crate) const BPF: u32 = 39;
}

/// A file's text without surrounding white space; `None` if it is absent or this user may not read it.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// Major and minor version of a kernel release such as `6.12.8-cloud-amd64`.
pub(super) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Type of the file system that is visible at `mount_point`, from the text of `/proc/self/mounts`.
pub(super) fn mounted_type<'a>(mounts: &'a str, mount_point: &str) -> Option<&'a str> {
    let mut visible = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        if fields.next() == Some(mount_point) {
            visible = fields.next();
        }
    }
    visible
}

/// Effective capabilities from the text of `/proc/self/status`.
pub(super) fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Whether a capability is in a set.
pub(super) fn has_capability(set: u64, capability: u32) -> bool {
    set >> capability & 1 == 1
}

/// The chosen value of a file that lists all with the chosen one in brackets: `none [integrity] confidentiality`.
pub(super) fn bracketed(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// The largest buffer, in bytes, of a `tcp_rmem` or `tcp_wmem` triple.
pub(super) fn largest_buffer_bytes(triple: &str) -> Option<u64> {
    triple.split_whitespace().nth(2)?.parse().ok()
}

/// Soft limit of open files from the text of `/proc/self/limits`; unlimited is `u64::MAX`.
pub(super) fn open_files(limits: &str) -> Option<u64> {
    match limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
    {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Interface of the IPv4 default route, from the text of `/proc/net/route`.
pub(super) fn default_interface(route: &str) -> Option<&str> {
    route.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000" && fields.nth(5)? == "00000000").then_some(interface)
    })
}

/// Whether a feature is on in the output of `ethtool -k`.
pub(super) fn offload(features: &str, name: &str) -> Option<bool> {
    let state = features
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    Some(state.trim().starts_with("on"))
}

/// Whether BTF names a type or function: its names are NUL-terminated strings in one section.
pub(super) fn btf_names(btf: &[u8], name: &str) -> bool {
    let needle: Vec<u8> = [b"\0", name.as_bytes(), b"\0"].concat();
    btf.windows(needle.len()).any(|window| window == needle)
}

/// Whether a process's command line (NUL-separated) is that of a running agent.
pub(super) fn is_agent(command_line: &[u8]) -> bool {
    let mut words = command_line.split(|&byte| byte == 0);
    let program = words
        .next()
        .and_then(|path| path.rsplit(|&byte| byte == b'/').next());
    program == Some(b"pk3c-ccp") && words.next() == Some(b"run")
}

/// Process ids of the running agents that this user can see.
pub(super) fn agents() -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_agent(&line))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_real_release_strings() {
        assert_eq!(kernel_version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(kernel_version("6.1.0-27-cloud-amd64"), Some((6, 1)));
        assert_eq!(kernel_version("6.12-rc3"), Some((6, 12)));
        assert_eq!(kernel_version("6"), None);
        assert_eq!(kernel_version("next"), None);
    }

    #[test]
    fn the_last_mount_hides_earlier_ones() {
        let mounts = "sysfs /sys sysfs rw 0 0\nbpf /sys/fs/bpf bpf rw,relatime 0 0\n";
        assert_eq!(mounted_type(mounts, "/sys/fs/bpf"), Some("bpf"));
        assert_eq!(mounted_type(mounts, "/sys/fs"), None);
        let hidden = format!("{mounts}tmpfs /sys/fs/bpf tmpfs rw 0 0\n");
        assert_eq!(mounted_type(&hidden, "/sys/fs/bpf"), Some("tmpfs"));
    }

    #[test]
    fn capabilities_of_root_and_of_a_user() {
        let root =
            effective_capabilities("Name:\tx\nCapPrm:\t0\nCapEff:\t000001fffeffffff\n").unwrap();
        assert!(
            has_capability(root, capability::BPF) && has_capability(root, capability::NET_ADMIN)
        );
        assert!(!has_capability(root, 24));
        assert_eq!(
            effective_capabilities("CapEff:\t0000000000000000\n"),
            Some(0)
        );
        assert_eq!(effective_capabilities("CapEff:\tx\n"), None);
    }

    #[test]
    fn small_kernel_files() {
        assert_eq!(
            bracketed("none [integrity] confidentiality"),
            Some("integrity")
        );
        assert_eq!(bracketed("none"), None);
        assert_eq!(
            largest_buffer_bytes("4096\t131072\t33554432"),
            Some(33_554_432)
        );
        assert_eq!(largest_buffer_bytes("4096 131072"), None);
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files("Max open files            unlimited            unlimited            files"),
            Some(u64::MAX)
        );
    }

    #[test]
    fn the_default_route_is_the_one_without_a_mask() {
        let route = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth1\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        assert_eq!(default_interface(route), Some("eth0"));
        assert_eq!(default_interface("Iface\tDestination\n"), None);
    }

    #[test]
    fn offloads_of_ethtool() {
        let features = "Features for eth0:\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\n\
                        generic-receive-offload: off [fixed]\n";
        assert_eq!(offload(features, "tcp-segmentation-offload"), Some(true));
        assert_eq!(offload(features, "generic-receive-offload"), Some(false));
        assert_eq!(offload(features, "tx-udp-segmentation"), None);
    }

    #[test]
    fn btf_names_are_whole_names() {
        let section = b"\0int\0cubictcp_init\0tcp_congestion_ops\0";
        assert!(btf_names(section, "cubictcp_init"));
        assert!(!btf_names(section, "cubictcp"));
        assert!(!btf_names(section, "congestion_ops"));
    }

    #[test]
    fn an_agent_is_the_run_verb_of_our_program() {
        assert!(is_agent(b"/usr/bin/pk3c-ccp\0run\0--default\0"));
        assert!(is_agent(b"pk3c-ccp\0run\0"));
        assert!(!is_agent(b"pk3c-ccp\0doctor\0"));
        assert!(!is_agent(b"vim\0pk3c-ccp\0run\0"));
        assert!(!is_agent(b""));
    }
}
