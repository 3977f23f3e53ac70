//! The memory and the ring records shared with the BPF programs: `bpf/intf.h` in Rust.
//!
//! Everything that the other side may write at any moment is an atomic, so that plain shared
//! references to it are sound.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Raised with every change of layout or meaning.
pub(crate) const LAYOUT_VERSION: u32 = 4;

pub(crate) const REG_REPORT: u8 = 0;
pub(crate) const NUM_REPORT: u8 = ccp_vm::NUM_REPORT;
pub(crate) const REG_CONTROL: u8 = 16;
pub(crate) const NUM_CONTROL: u8 = ccp_vm::NUM_CONTROL;
pub(crate) const REG_IMPLICIT: u8 = 32;
pub(crate) const REG_LOCAL: u8 = 38;
pub(crate) const REG_TMP: u8 = 44;
pub(crate) const REG_PRIM: u8 = 52;
pub(crate) const NUM_REGS: usize = 67;
pub(crate) const NUM_DEF: usize = 32;

pub(crate) const MBOX_WRITING: u32 = 1;
pub(crate) const MBOX_PENDING: u32 = 2;
pub(crate) const MBOX_STEP: u32 = 4;

/// Entries of the program array; entry 0 is the epilogue.
pub(crate) const MAX_PROGS: usize = 64;

/// A program reads `Flow.rate_incoming` or `Flow.rate_outgoing`.
pub(crate) const USES_RATES: u32 = 1;

/// `ccp_governance.mode`, and what is being done with a flow.
pub(crate) const LEAVE: u32 = 0;
pub(crate) const DRIVE: u32 = 1;
pub(crate) const OBSERVE: u32 = 2;

/// A share of lost packets that no flow exceeds.
pub(crate) const ANY_LOSS_PPM: u32 = 1_000_000;

pub(crate) const EV_CREATE: u16 = 0;
pub(crate) const EV_MEASURE: u16 = 1;
pub(crate) const EV_CLOSE: u16 = 16;

pub(crate) const FLOW_ERRORS_OFF: i16 = 8;
pub(crate) const FLOW_TIME_ZERO_OFF: i16 = 16;
pub(crate) const FLOW_REGS_OFF: i16 = 440;
pub(crate) const FLOW_SIZE: usize = 976;

pub(crate) const EV_CREATE_LEN: usize = 32;
pub(crate) const EV_CLOSE_LEN: usize = 8 + FLOW_STATS_LEN;
pub(crate) const FLOW_STATS_LEN: usize = 72;

/// `struct ccp_mailbox`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Mailbox {
    pub(crate) seq: AtomicU32,
    pub(crate) sid: AtomicU32,
    pub(crate) prog: AtomicU32,
    pub(crate) mask: AtomicU32,
    pub(crate) staged_us: AtomicU64,
    pub(crate) value: [AtomicU64; NUM_CONTROL as usize + 2],
}

/// `struct ccp_governance`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SharedGovernance {
    pub(crate) mode: AtomicU32,
    pub(crate) max_loss_ppm: AtomicU32,
    pub(crate) min_rate: AtomicU64,
    pub(crate) max_rate: AtomicU64,
}

/// What the datapath counted of one flow: `struct ccp_flow_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// When the flow came under this congestion control, µs of CLOCK_MONOTONIC.
    pub born_us: u64,
    /// When it ended, 0 while it lives.
    pub ended_us: u64,
    /// Time that the agent drove the flow, up to `mode_since_us`.
    pub driven_us: u64,
    /// When the present mode (agent or fallback) began.
    pub mode_since_us: u64,
    /// Payload bytes acknowledged.
    pub bytes_acked: u64,
    /// Program runs.
    pub invocations: u64,
    /// Reports sent.
    pub reports: u32,
    /// Reports lost to a full ring.
    pub reports_dropped: u32,
    /// Times that the flow went from the agent to the fallback: the agent fell silent, governed it otherwise, or the
    /// flow lost too much.
    pub fallbacks: u32,
    /// Packets delivered, including retransmitted ones, modulo 2^32.
    pub packets_delivered: u32,
    /// Packets marked lost, modulo 2^32.
    pub packets_lost: u32,
    /// Smoothed RTT in µs at the last report or offer, 0 = not known.
    pub srtt_us: u32,
}

impl FlowStats {
    /// Decodes the record of a CLOSE event; `bytes` has [`FLOW_STATS_LEN`] bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != FLOW_STATS_LEN {
            return None;
        }
        let long = |i: usize| Some(u64::from_ne_bytes(bytes[i * 8..][..8].try_into().ok()?));
        let int = |i: usize| {
            Some(u32::from_ne_bytes(
                bytes[48 + i * 4..][..4].try_into().ok()?,
            ))
        };
        Some(Self {
            born_us: long(0)?,
            ended_us: long(1)?,
            driven_us: long(2)?,
            mode_since_us: long(3)?,
            bytes_acked: long(4)?,
            invocations: long(5)?,
            reports: int(0)?,
            reports_dropped: int(1)?,
            fallbacks: int(2)?,
            packets_delivered: int(3)?,
            packets_lost: int(4)?,
            srtt_us: int(5)?,
        })
    }
}

/// [`FlowStats`] where the datapath keeps counting.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SharedStats {
    long: [AtomicU64; 6],
    int: [AtomicU32; 6],
}

impl SharedStats {
    pub(crate) fn load(&self) -> FlowStats {
        let long = |i: usize| self.long[i].load(Relaxed);
        let int = |i: usize| self.int[i].load(Relaxed);
        FlowStats {
            born_us: long(0),
            ended_us: long(1),
            driven_us: long(2),
            mode_since_us: long(3),
            bytes_acked: long(4),
            invocations: long(5),
            reports: int(0),
            reports_dropped: int(1),
            fallbacks: int(2),
            packets_delivered: int(3),
            packets_lost: int(4),
            srtt_us: int(5),
        }
    }
}

/// `struct ccp_flow`.
#[repr(C)]
pub(crate) struct FlowSlot {
    pub(crate) sid: AtomicU32,
    pub(crate) live: AtomicU32,
    pub(crate) errors: AtomicU64,
    pub(crate) time_zero_us: AtomicU64,
    pub(crate) prog: AtomicU32,
    pub(crate) epoch: AtomicU32,
    accounted: [AtomicU32; 8],
    last_bytes_acked: AtomicU64,
    last_create_us: AtomicU64,
    was_timeout: AtomicU32,
    pub(crate) mss: AtomicU32,
    pub(crate) family: AtomicU16,
    pub(crate) lport: AtomicU16,
    pub(crate) rport: AtomicU16,
    uses: AtomicU16,
    pub(crate) laddr: [AtomicU8; 16],
    pub(crate) raddr: [AtomicU8; 16],
    pub(crate) cgroup_id: AtomicU64,
    pub(crate) barred_until_us: AtomicU64,
    loss_window: [AtomicU64; 2],
    pub(crate) governance: SharedGovernance,
    pub(crate) stats: SharedStats,
    pub(crate) mbox: Mailbox,
    msg_header: [AtomicU32; 4],
    pub(crate) regs: [AtomicU64; NUM_REGS],
}

/// `struct ccp_prog`.
#[repr(C)]
pub(crate) struct ProgramTable {
    pub(crate) uid: AtomicU32,
    pub(crate) num_report: AtomicU32,
    pub(crate) volatile_mask: AtomicU32,
    pub(crate) defined_mask: AtomicU32,
    pub(crate) uses: AtomicU32,
    reserved: AtomicU32,
    pub(crate) initial: [AtomicU64; NUM_DEF],
}

/// `struct ccp_control`.
#[repr(C)]
pub(crate) struct Control {
    pub(crate) layout_version: AtomicU32,
    pub(crate) epoch: AtomicU32,
    pub(crate) beat_us: AtomicU64,
    pub(crate) ring_flags: AtomicU64,
    pub(crate) object_hash: AtomicU64,
    pub(crate) creates_dropped: AtomicU64,
    pub(crate) closes_dropped: AtomicU64,
    pub(crate) no_slot: AtomicU64,
    pub(crate) fallbacks: AtomicU64,
    pub(crate) missing_programs: AtomicU64,
    pub(crate) stale_updates: AtomicU64,
    pub(crate) max_flow_rate: AtomicU64,
    pub(crate) fallbacks_loss: AtomicU64,
}

/// `struct ccp_config` as bytes, for the read-only section.
pub(crate) struct LoadConfig<'a> {
    pub(crate) silence_us: u32,
    pub(crate) create_retry_us: u32,
    pub(crate) min_cwnd: u32,
    pub(crate) have_cubic: bool,
    pub(crate) min_rate: u64,
    pub(crate) max_rate: u64,
    pub(crate) name: &'a str,
}

impl LoadConfig<'_> {
    pub(crate) fn encode(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[0..4].copy_from_slice(&self.silence_us.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.create_retry_us.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.min_cwnd.to_ne_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.have_cubic).to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.min_rate.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.max_rate.to_ne_bytes());
        bytes[32..32 + self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes
    }
}

const _: () = assert!(size_of::<FlowSlot>() == FLOW_SIZE);
const _: () = assert!(size_of::<SharedStats>() == FLOW_STATS_LEN);
const _: () = assert!(std::mem::offset_of!(FlowSlot, errors) == FLOW_ERRORS_OFF as usize);
const _: () = assert!(std::mem::offset_of!(FlowSlot, time_zero_us) == FLOW_TIME_ZERO_OFF as usize);
const _: () = assert!(std::mem::offset_of!(FlowSlot, regs) == FLOW_REGS_OFF as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use ccp_vm::{NUM_IMPLICIT, NUM_LOCAL, NUM_PRIMITIVE, NUM_TMP, Updates};
    use std::collections::HashMap;

    #[test]
    fn constants_agree_with_the_c_header() {
        let header: HashMap<&str, i64> = include_str!("bpf/intf.h")
            .lines()
            .filter_map(|line| line.strip_prefix("#define CCP_"))
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?, words.next()?.parse().ok()?))
            })
            .collect();
        let ours: &[(&str, i64)] = &[
            ("LAYOUT_VERSION", LAYOUT_VERSION.into()),
            ("REG_REPORT", REG_REPORT.into()),
            ("NUM_REPORT", NUM_REPORT.into()),
            ("REG_CONTROL", REG_CONTROL.into()),
            ("NUM_CONTROL", NUM_CONTROL.into()),
            ("REG_IMPLICIT", REG_IMPLICIT.into()),
            ("NUM_IMPLICIT", NUM_IMPLICIT.into()),
            ("REG_LOCAL", REG_LOCAL.into()),
            ("NUM_LOCAL", NUM_LOCAL.into()),
            ("REG_TMP", REG_TMP.into()),
            ("NUM_TMP", NUM_TMP.into()),
            ("REG_PRIM", REG_PRIM.into()),
            ("NUM_PRIM", NUM_PRIMITIVE.into()),
            ("NUM_REGS", NUM_REGS as i64),
            ("NUM_DEF", NUM_DEF as i64),
            ("MBOX_CWND", Updates::CWND as i64),
            ("MBOX_RATE", Updates::RATE as i64),
            ("MBOX_WRITING", MBOX_WRITING.into()),
            ("MBOX_PENDING", MBOX_PENDING.into()),
            ("MBOX_STEP", MBOX_STEP.into()),
            ("MAX_PROGS", MAX_PROGS as i64),
            ("USES_RATES", USES_RATES.into()),
            ("LEAVE", LEAVE.into()),
            ("DRIVE", DRIVE.into()),
            ("OBSERVE", OBSERVE.into()),
            ("ANY_LOSS_PPM", ANY_LOSS_PPM.into()),
            ("EV_CREATE", EV_CREATE.into()),
            ("EV_MEASURE", EV_MEASURE.into()),
            ("EV_CLOSE", EV_CLOSE.into()),
            ("FLOW_ERRORS_OFF", FLOW_ERRORS_OFF.into()),
            ("FLOW_TIME_ZERO_OFF", FLOW_TIME_ZERO_OFF.into()),
            ("FLOW_REGS_OFF", FLOW_REGS_OFF.into()),
            ("FLOW_SIZE", FLOW_SIZE as i64),
        ];
        for (name, value) in ours {
            assert_eq!(header.get(name), Some(value), "CCP_{name}");
        }
        assert_eq!(
            header.len(),
            ours.len(),
            "a define of intf.h is not mirrored"
        );
    }

    #[test]
    fn stats_decode_in_order() {
        let bytes: Vec<u8> = (1u64..=6)
            .flat_map(u64::to_ne_bytes)
            .chain((7u32..=12).flat_map(u32::to_ne_bytes))
            .collect();
        let stats = FlowStats::decode(&bytes).unwrap();
        assert_eq!((stats.born_us, stats.invocations), (1, 6));
        assert_eq!((stats.reports, stats.srtt_us), (7, 12));
        assert_eq!(FlowStats::decode(&bytes[1..]), None);
    }
}
