//! The doctor's questions, in the order in which an agent meets them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::host::{self, capability};
use super::{Check, Finding, Status};
use crate::cli::{NAME, PIN_DIR};

const BTF: &str = "/sys/kernel/btf/vmlinux";
const CUBIC_MODULE_BTF: &str = "/sys/kernel/btf/tcp_cubic";
/// Oldest kernel that runs the datapath: it has every helper and writable field that the programs use.
const KERNEL_MIN: (u32, u32) = (6, 1);
/// Programs, maps and a few files: more would be a leak.
const OPEN_FILES_MIN: u64 = 256;
/// The path that buffers are judged by: 1 Gbit/s at 100 ms.
const BDP_BYTES: u64 = 12_500_000;
/// TCP needs twice the window as a buffer: the sender to fill it while it repairs a loss (`tcp_sndbuf_expand`), the
/// receiver because half of it is kept for overhead (`tcp_adv_win_scale`).
const BUFFER_MIN_BYTES: u64 = 2 * BDP_BYTES;

pub(super) const ALL: &[Check] = &[
    check("module", module),
    check("kernel", || for_bpf(kernel())),
    check("btf", || for_bpf(btf())),
    check("struct_ops", || for_bpf(struct_ops())),
    check("fallback", || for_bpf(fallback())),
    check("jit", || for_bpf(jit())),
    check("lockdown", || for_bpf(lockdown())),
    check("privileges", privileges),
    check("bpffs", || for_bpf(bpffs())),
    check("limits", limits),
    check("name", name),
    check("default", default),
    check("unprivileged", unprivileged),
    check("pacing", pacing),
    check("send buffer", || buffer("tcp_wmem")),
    check("receive buffer", || buffer("tcp_rmem")),
    check("offloads", offloads),
    check("demo", demo),
];

const fn check(name: &'static str, run: fn() -> Finding) -> Check {
    Check { name, run }
}

fn ipv4_sysctl(name: &str) -> Option<String> {
    host::read(format!("/proc/sys/net/ipv4/{name}"))
}

fn is_module_loaded() -> bool {
    Path::new(ccp_char::DEVICE).exists()
}

/// The other datapath, for where eBPF cannot be had.
fn module() -> Finding {
    let version = host::read("/sys/module/tcp_ccp/version");
    match (is_module_loaded(), version) {
        (true, Some(version)) => Finding::ok(format!(
            "the kernel module tcp_ccp {version} is loaded: the agent uses it instead of eBPF"
        )),
        (true, None) => Finding::ok(format!(
            "a kernel module has {}: the agent uses it instead of eBPF",
            ccp_char::DEVICE
        )),
        (false, _) => Finding::ok("no kernel module is loaded: the agent uses eBPF"),
    }
}

/// What only the eBPF datapath needs.
fn for_bpf(finding: Finding) -> Finding {
    if finding.status != Status::Ok && is_module_loaded() {
        Finding::ok(format!(
            "{}; the kernel module does not need it",
            finding.found
        ))
    } else {
        finding
    }
}

fn kernel() -> Finding {
    let release = host::read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (major, minor) = KERNEL_MIN;
    match host::kernel_version(&release) {
        Some(version) if version >= KERNEL_MIN => Finding::ok(format!("Linux {release}")),
        _ => Finding::failed(
            format!("Linux {release:?} is older than {major}.{minor}"),
            format!("boot Linux {major}.{minor} or newer; Debian 12 ships it"),
        ),
    }
}

fn btf() -> Finding {
    if Path::new(BTF).exists() {
        Finding::ok(format!("the kernel describes its types in {BTF}"))
    } else {
        Finding::failed(
            format!("{BTF} does not exist"),
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y; those of Debian, Ubuntu and Fedora have it",
        )
    }
}

/// The kernel's own BTF says what it was built with, also where its configuration is not installed.
fn struct_ops() -> Finding {
    let Ok(btf) = fs::read(BTF) else {
        return Finding::failed("cannot tell without BTF", "see btf");
    };
    if host::btf_names(&btf, "bpf_struct_ops_tcp_congestion_ops") {
        Finding::ok("BPF programs can be TCP congestion controls")
    } else {
        Finding::failed(
            "this kernel cannot run a congestion control in BPF",
            "use a kernel with CONFIG_BPF_SYSCALL=y, CONFIG_BPF_JIT=y and CONFIG_TCP_CONG_ADVANCED=y",
        )
    }
}

/// Without an agent the datapath calls the kernel's Cubic, or its Reno if there is no Cubic.
fn fallback() -> Finding {
    let cubic_in =
        |btf: &str| fs::read(btf).is_ok_and(|btf| host::btf_names(&btf, "cubictcp_cong_avoid"));
    if cubic_in(BTF) || cubic_in(CUBIC_MODULE_BTF) {
        Finding::ok("without an agent, connections run the kernel's Cubic")
    } else {
        Finding::warning(
            "without an agent, connections would run the kernel's Reno, because Cubic is not loaded",
            "modprobe tcp_cubic, before the agent starts",
        )
    }
}

fn jit() -> Finding {
    match host::read("/proc/sys/net/core/bpf_jit_enable").as_deref() {
        Some("0") => Finding::failed("BPF is interpreted", "sysctl -w net.core.bpf_jit_enable=1"),
        Some(_) => Finding::ok("BPF is compiled to machine code"),
        None => Finding::unknown("net.core.bpf_jit_enable is for root to read"),
    }
}

fn lockdown() -> Finding {
    // Without the file the kernel has no lockdown.
    let modes = host::read("/sys/kernel/security/lockdown").unwrap_or_default();
    match host::bracketed(&modes).unwrap_or("none") {
        "confidentiality" => Finding::failed(
            "lockdown=confidentiality keeps BPF from reading kernel memory",
            "boot with lockdown=integrity or without lockdown",
        ),
        mode => Finding::ok(format!("lockdown is {mode}")),
    }
}

fn privileges() -> Finding {
    let status = host::read("/proc/self/status").unwrap_or_default();
    let set = host::effective_capabilities(&status).unwrap_or(0);
    let all_powerful = host::has_capability(set, capability::SYS_ADMIN);
    let missing: Vec<_> = [
        (
            "CAP_BPF",
            host::has_capability(set, capability::BPF) || all_powerful,
        ),
        (
            "CAP_PERFMON",
            host::has_capability(set, capability::PERFMON) || all_powerful,
        ),
        (
            "CAP_NET_ADMIN",
            host::has_capability(set, capability::NET_ADMIN),
        ),
    ]
    .into_iter()
    .filter_map(|(name, held)| (!held).then_some(name))
    .collect();
    if missing.is_empty() {
        Finding::ok("may load BPF programs and register a congestion control")
    } else {
        Finding::failed(
            format!("this process lacks {}", missing.join(", ")),
            "run as root, or with sudo",
        )
    }
}

fn bpffs() -> Finding {
    let mounts = host::read("/proc/self/mounts").unwrap_or_default();
    match host::mounted_type(&mounts, "/sys/fs/bpf") {
        Some("bpf") => Finding::ok("mounted on /sys/fs/bpf"),
        _ => Finding::failed(
            "/sys/fs/bpf is no bpffs: the agent could not pin its maps",
            "mount -t bpf bpf /sys/fs/bpf",
        ),
    }
}

/// Locked memory does not count since Linux 5.11: BPF is charged to the memory cgroup.
fn limits() -> Finding {
    let limits = host::read("/proc/self/limits").unwrap_or_default();
    match host::open_files(&limits) {
        Some(files) if files >= OPEN_FILES_MIN => Finding::ok(format!(
            "{files} open files; locked memory is not limited for BPF"
        )),
        Some(files) => Finding::warning(
            format!("only {files} open files"),
            format!("ulimit -n {OPEN_FILES_MIN}"),
        ),
        None => Finding::unknown("cannot read /proc/self/limits"),
    }
}

fn is_listed(file: &str) -> bool {
    ipv4_sysctl(file).is_some_and(|names| names.split_whitespace().any(|listed| listed == NAME))
}

fn name() -> Finding {
    let registered = is_listed("tcp_available_congestion_control");
    let pinned = Path::new(PIN_DIR).exists();
    match (host::agents().as_slice(), registered, pinned) {
        ([], false, false) => Finding::ok(format!("{NAME} is free")),
        ([pid, ..], true, _) => Finding::ok(format!(
            "an agent runs as process {pid}; a second one is refused"
        )),
        ([pid, ..], false, _) => Finding::warning(
            format!("process {pid} runs, but {NAME} is not registered"),
            format!("look at the agent's log, or end it: kill {pid}"),
        ),
        ([], _, true) => Finding::warning(
            format!("an agent that did not stop cleanly left its pins in {PIN_DIR}"),
            "start the agent: it adopts them and the running flows; or remove them: pk3c-ccp detach",
        ),
        ([], true, false) if is_module_loaded() => {
            Finding::ok(format!("the kernel module has {NAME}"))
        }
        ([], true, false) => Finding::failed(
            format!("{NAME} is registered, but not by an agent with pins in {PIN_DIR}"),
            format!(
                "if an agent was started with another --pin-dir, start it so again, or: pk3c-ccp detach --pin-dir DIR; \
                 else find the owner with `bpftool struct_ops` or `lsmod` and unregister {NAME} there"
            ),
        ),
    }
}

fn default() -> Finding {
    let current = ipv4_sysctl("tcp_congestion_control").unwrap_or_default();
    if current == NAME && host::agents().is_empty() {
        Finding::warning(
            format!(
                "{NAME} is the default although no agent runs: new connections run its fallback"
            ),
            "start the agent, or put the default of before back: pk3c-ccp detach",
        )
    } else {
        Finding::ok(format!(
            "new connections run {current}; `pk3c-ccp run --default` changes that"
        ))
    }
}

/// The agent registers its name as non-restricted, which needs neither the allowed list nor unprivileged BPF.
fn unprivileged() -> Finding {
    if is_listed("tcp_available_congestion_control") && !is_listed("tcp_allowed_congestion_control")
    {
        return Finding::warning(
            format!("{NAME} is registered, but only root may choose it"),
            format!("add {NAME} to net.ipv4.tcp_allowed_congestion_control, or restart the agent"),
        );
    }
    Finding::ok(format!(
        "any user's sockets may choose {NAME}; kernel.unprivileged_bpf_disabled does not matter"
    ))
}

fn pacing() -> Finding {
    match host::read("/proc/sys/net/core/default_qdisc").as_deref() {
        Some("fq") => Finding::ok("fq paces"),
        Some(qdisc) => Finding::ok(format!(
            "TCP paces itself (default qdisc {qdisc}); fq does it cheaper for many flows"
        )),
        None => Finding::unknown("cannot read net.core.default_qdisc"),
    }
}

fn buffer(sysctl: &str) -> Finding {
    let triple = ipv4_sysctl(sysctl).unwrap_or_default();
    let Some(bytes) = host::largest_buffer_bytes(&triple) else {
        return Finding::unknown(format!("cannot read net.ipv4.{sysctl}"));
    };
    // Half of the buffer per 100 ms.
    let mbps_at_100_ms = bytes / 2 * 8 * 10 / 1_000_000;
    let found = format!(
        "{sysctl} allows {} KiB: {mbps_at_100_ms} Mbit/s per connection at 100 ms",
        bytes / 1024
    );
    if bytes >= BUFFER_MIN_BYTES {
        return Finding::ok(found);
    }
    let smaller: Vec<_> = triple.split_whitespace().take(2).collect();
    Finding::warning(
        found,
        format!(
            "for 1 Gbit/s: sysctl -w net.ipv4.{sysctl}='{} 33554432'",
            smaller.join(" ")
        ),
    )
}

fn offloads() -> Finding {
    let route = host::read("/proc/net/route").unwrap_or_default();
    let Some(interface) = host::default_interface(&route) else {
        return Finding::ok("no default route, so no interface to look at");
    };
    let output = Command::new("ethtool").args(["-k", interface]).output();
    let features = match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => {
            return Finding::warning(
                format!("cannot tell for {interface}"),
                "apt-get install ethtool",
            );
        }
    };
    let off: Vec<_> = [
        ("tcp-segmentation-offload", "tso"),
        ("generic-receive-offload", "gro"),
    ]
    .into_iter()
    .filter_map(|(name, short)| (host::offload(&features, name) == Some(false)).then_some(short))
    .collect();
    match off.as_slice() {
        [] => Finding::ok(format!(
            "{interface} has TSO and GRO on: few, large bursts and few ACKs to handle"
        )),
        off => Finding::warning(
            format!(
                "{interface} has {} off: more CPU time per Gbit/s",
                off.join(" and ")
            ),
            format!(
                "if the hardware allows it: ethtool -K {interface} {} on",
                off.join(" on ")
            ),
        ),
    }
}

/// `pk3c-ccp demo` needs more than the agent.
fn demo() -> Finding {
    let iperf3 = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join("iperf3").is_file())
    });
    if !iperf3 {
        Finding::warning("the comparison needs iperf3", "apt-get install iperf3")
    } else if !Path::new("/dev/net/tun").exists() {
        Finding::warning(
            "the comparison emulates paths with TUN devices, and there are none",
            "modprobe tun",
        )
    } else if let Some(pid) = host::agents().first() {
        Finding::warning(
            format!("the comparison starts an agent of its own, and one runs as process {pid}"),
            format!("end it before: kill {pid}"),
        )
    } else {
        Finding::ok("iperf3 and TUN devices are there for `pk3c-ccp demo`")
    }
}
