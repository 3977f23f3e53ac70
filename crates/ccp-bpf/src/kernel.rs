//! What the running kernel offers, read from its type information (BTF).

use crate::error::Error;
use libbpf_rs::btf::types::{Func, FuncProto, MemberAttr, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the fallback calls.
const CUBIC: [&str; 5] = [
    "cubictcp_init",
    "cubictcp_recalc_ssthresh",
    "cubictcp_cong_avoid",
    "cubictcp_state",
    "cubictcp_acked",
];
/// And when a transmission begins after idle time: up to 7.0, and since 7.1.
const CUBIC_TX_START: [&str; 2] = ["cubictcp_cwnd_event", "cubictcp_cwnd_event_tx_start"];

/// Index of the word of `icsk_ca_priv` that holds the flow's slot + 1.
const SLOT_WORD: u32 = 12;

/// How long a name may take to leave the list.
const LEAVING: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Facts about the running kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// BTF id of `struct tcp_congestion_ops`.
    pub(crate) ops_btf_id: u32,
    /// Index of its member `cong_control`.
    pub(crate) cong_control: u32,
    /// `cong_control(sk, rs)` as up to 6.9, not `(sk, ack, flag, rs)`.
    pub(crate) two_arguments: bool,
    /// `cwnd_event_tx_start` in place of `cwnd_event(CA_EVENT_TX_START)`, since 7.1.
    pub(crate) has_tx_start: bool,
    /// Offset in `struct sock` of the flow's slot.
    pub(crate) slot_offset: i16,
    /// A struct_ops can be registered through a link (6.4).
    pub(crate) has_links: bool,
    /// BPF programs can call Cubic.
    pub(crate) has_cubic: bool,
}

impl Kernel {
    pub(crate) fn probe() -> Result<Self, Error> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(Error::NoBtf);
        }
        let btf = Btf::from_vmlinux().map_err(Error::bpf("reading the kernel's BTF"))?;
        let structure = |name, missing| {
            btf.type_by_name::<Struct<'_>>(name)
                .ok_or(Error::Kernel { missing })
        };
        structure(
            "bpf_struct_ops_tcp_congestion_ops",
            "no struct_ops for tcp_congestion_ops",
        )?;
        let ops = structure("tcp_congestion_ops", "no tcp_congestion_ops")?;
        let no_cong_control = Error::Kernel {
            missing: "no cong_control in tcp_congestion_ops",
        };
        let (cong_control, member) = ops
            .iter()
            .enumerate()
            .find(|(_, member)| member.name.is_some_and(|name| name == "cong_control"))
            .ok_or(no_cong_control)?;
        let arguments = btf
            .type_by_id::<Ptr<'_>>(member.ty)
            .map(|pointer| pointer.referenced_type().skip_mods_and_typedefs())
            .and_then(|function| FuncProto::try_from(function).ok())
            .map(|function| function.len());
        let two_arguments = match arguments {
            Some(2) => true,
            Some(4) => false,
            _ => {
                return Err(Error::Kernel {
                    missing: "cong_control takes neither 2 nor 4 arguments",
                });
            }
        };
        let icsk = structure("inet_connection_sock", "no inet_connection_sock")?;
        let slot_offset = icsk
            .iter()
            .find(|member| member.name.is_some_and(|name| name == "icsk_ca_priv"))
            .and_then(|member| match member.attr {
                MemberAttr::Normal { offset } => i16::try_from(offset / 8 + SLOT_WORD * 8).ok(),
                MemberAttr::BitField { .. } => None,
            })
            .ok_or(Error::Kernel {
                missing: "no icsk_ca_priv",
            })?;
        let ops_btf_id = type_id(&ops);
        let has_links = btf
            .type_by_name::<Struct<'_>>("bpf_struct_ops_link")
            .is_some();
        let has_tx_start = ops.iter().any(|member| {
            member
                .name
                .is_some_and(|name| name == "cwnd_event_tx_start")
        });
        let has_cubic = has_cubic(has_tx_start, |name| {
            btf.type_by_name::<Func<'_>>(name).is_some()
        });
        Ok(Self {
            ops_btf_id,
            cong_control: cong_control as u32,
            two_arguments,
            has_tx_start,
            slot_offset,
            has_links,
            has_cubic,
        })
    }
}

fn has_cubic(has_tx_start: bool, has: impl Fn(&str) -> bool) -> bool {
    let tx_start = CUBIC_TX_START[usize::from(has_tx_start)];
    CUBIC.into_iter().chain([tx_start]).all(has)
}

fn type_id(ty: &BtfType<'_>) -> u32 {
    ty.type_id().into()
}

/// The congestion controls that sockets can choose now.
pub(crate) fn available() -> Result<Vec<String>, Error> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let list = fs::read_to_string(path).map_err(Error::io(format!("reading {path}")))?;
    Ok(list.split_whitespace().map(str::to_owned).collect())
}

/// Waits until a congestion control has left the list, but not for long; returns whether it has. Where a link cannot be
/// told to unregister (6.4 to 6.10) the kernel does it some time after the pin is gone.
pub(crate) fn leaves(name: &str) -> Result<bool, Error> {
    let began = Instant::now();
    loop {
        if !available()?.iter().any(|listed| listed == name) {
            return Ok(true);
        }
        if began.elapsed() >= LEAVING {
            return Ok(false);
        }
        sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubic_is_found_before_and_after_7_1() {
        for (has_tx_start, event) in [false, true].into_iter().zip(CUBIC_TX_START) {
            let has = |name: &str| CUBIC.contains(&name) || name == event;
            assert!(has_cubic(has_tx_start, has));
            assert!(!has_cubic(!has_tx_start, has));
            assert!(!has_cubic(has_tx_start, |name| name != "cubictcp_init"));
        }
    }

    #[test]
    fn this_kernel_is_understood() {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            eprintln!("SKIPPED this_kernel_is_understood: this kernel has no BTF");
            return;
        }
        let kernel = Kernel::probe().unwrap();
        assert!(kernel.ops_btf_id > 0);
        assert!(kernel.slot_offset > 96, "{kernel:?}");
        assert!(available().unwrap().contains(&"reno".to_owned()));
    }
}
