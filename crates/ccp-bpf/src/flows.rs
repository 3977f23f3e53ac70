//! The agent's view of the flows: what they are, how they fare, and the mailboxes.

use crate::governance::{Governance, Mode};
use crate::layout::{Control, FlowSlot, FlowStats, MBOX_PENDING, MBOX_STEP, MBOX_WRITING, Mailbox};
use crate::sys::{SharedArray, monotonic_us};
use ccp_vm::Updates;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*, fence};
use std::time::Duration;

const AF_INET6: u16 = libc::AF_INET6 as u16;

/// A flow as the datapath knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Id of the cgroup v2 that the socket belongs to (the inode number of its directory), a listener's for the
    /// connections it accepts; 0 = not known.
    pub cgroup_id: u64,
    /// How it may be driven.
    pub governance: Governance,
    /// How long the fallback will keep it because it lost more than [`crate::Limits::max_loss_ppm`]; zero = it does
    /// not.
    pub barred_for: Duration,
    /// Time since the flow came under this congestion control, or its whole time if it ended.
    pub age: Duration,
    /// How long of that the agent drove it.
    pub driven: Duration,
    /// Whether the agent drives it now, or will with the next ACK; otherwise the fallback does.
    pub is_driven: bool,
    /// Whether a program watches the fallback, under [`Mode::Observe`].
    pub is_observed: bool,
    /// Program runs given up: overflow, underflow, division by 0.
    pub program_errors: u64,
    /// The counters.
    pub stats: FlowStats,
}

/// Counters of the whole datapath since its maps were made. They only count up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// CREATE records lost to a full ring (and offered again).
    pub creates_dropped: u64,
    /// CLOSE records lost to a full ring (and found by a scan).
    pub closes_dropped: u64,
    /// Flows that found no free slot and stay under the fallback.
    pub no_slot: u64,
    /// Times that a flow went from the agent to the fallback, for any reason.
    pub fallbacks: u64,
    /// Those of them because it lost more than [`crate::Limits::max_loss_ppm`].
    pub fallbacks_loss: u64,
    /// ACKs that found their program gone.
    pub missing_programs: u64,
    /// Updates for flows that had ended or were no longer driven.
    pub stale_updates: u64,
    /// Reports lost to a full ring, of flows that have ended since this agent began.
    pub reports_dropped: u64,
    /// Program runs given up (overflow, underflow, division by 0), of the same flows.
    pub program_errors: u64,
    /// Records that this agent did not understand.
    pub malformed_records: u64,
    /// Messages of this agent that were refused.
    pub rejected_messages: u64,
}

/// The flow table and the control block, mapped into this process.
pub(crate) struct Flows {
    pub(crate) slots: SharedArray<FlowSlot>,
    pub(crate) control: SharedArray<Control>,
    /// Last words of flows whose CLOSE the agent is just being told, by slot.
    closed: Mutex<Vec<Option<(u32, FlowInfo)>>>,
    /// One writer of a slot's governance at a time.
    governing: Mutex<()>,
    /// The agent gives no sign of life although it lives: all flows are to run under the fallback.
    pub(crate) drained: AtomicBool,
    pub(crate) reports_dropped: AtomicU64,
    pub(crate) program_errors: AtomicU64,
    pub(crate) malformed_records: AtomicU64,
    pub(crate) rejected_messages: AtomicU64,
}

impl Flows {
    pub(crate) fn new(slots: SharedArray<FlowSlot>, control: SharedArray<Control>) -> Self {
        let closed = Mutex::new(vec![None; slots.len()]);
        Self {
            slots,
            control,
            closed,
            governing: Mutex::new(()),
            drained: AtomicBool::new(false),
            reports_dropped: AtomicU64::new(0),
            program_errors: AtomicU64::new(0),
            malformed_records: AtomicU64::new(0),
            rejected_messages: AtomicU64::new(0),
        }
    }

    pub(crate) fn control(&self) -> &Control {
        self.control.get(0).expect("the control map has one value")
    }

    /// The slot number of a socket id; `None` if it is not one of this table's.
    pub(crate) fn slot_of(&self, sid: u32) -> Option<usize> {
        let slot = (sid & 0xffff) as usize;
        (1..=self.slots.len()).contains(&slot).then(|| slot - 1)
    }

    /// The slot, if the flow with this id is in it and lives.
    pub(crate) fn live(&self, sid: u32) -> Option<&FlowSlot> {
        let slot = self.slots.get(self.slot_of(sid)?)?;
        (slot.live.load(Acquire) == 1 && slot.sid.load(Acquire) == sid).then_some(slot)
    }

    /// Sets how a flow may be driven; false if it has ended.
    pub(crate) fn govern(&self, sid: u32, governance: &Governance) -> bool {
        let _one = self.governing.lock().unwrap_or_else(|e| e.into_inner());
        let Some(flow) = self.live(sid) else {
            return false;
        };
        let ceiling = self.control().max_flow_rate.load(Relaxed);
        flow.governance.store(governance, ceiling);
        // The datapath resets a slot's governance after it has named its new tenant. If that happened before the store
        // above, this sees the name, and the new tenant has not been governed yet.
        fence(SeqCst);
        let ours = flow.sid.load(Acquire) == sid;
        if !ours {
            flow.governance.store(&Governance::default(), ceiling);
        }
        ours
    }

    /// Whether this agent's program runs on the flow, or waits to be taken.
    pub(crate) fn is_taken(&self, sid: u32) -> bool {
        self.live(sid).is_some_and(|flow| {
            let runs = flow.prog.load(Relaxed) != 0;
            let ours = flow.epoch.load(Relaxed) == self.control().epoch.load(Relaxed);
            (runs && ours) || flow.mbox.holds_program(sid)
        })
    }

    /// What is known of a flow that lives or has just closed.
    pub(crate) fn info(&self, sid: u32) -> Option<FlowInfo> {
        let index = self.slot_of(sid)?;
        if let Some((closed_sid, info)) =
            &self.closed.lock().unwrap_or_else(|e| e.into_inner())[index]
            && *closed_sid == sid
        {
            return Some(info.clone());
        }
        let slot = self.slots.get(index)?;
        let info = self.describe(slot, slot.stats.load());
        (slot.sid.load(Acquire) == sid).then_some(info)
    }

    /// The segment size of a live flow in bytes, as of its last ACK.
    pub(crate) fn mss(&self, sid: u32) -> Option<u32> {
        let mss = self.live(sid)?.mss.load(Relaxed);
        (mss > 0).then_some(mss)
    }

    /// Keeps what is known of a flow that has closed, for the agent's last look.
    pub(crate) fn keep_closed(&self, sid: u32, stats: FlowStats) {
        let Some(index) = self.slot_of(sid) else {
            return;
        };
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        self.reports_dropped
            .fetch_add(stats.reports_dropped.into(), Relaxed);
        // The slot may have a new tenant; then only its counters are known.
        let mut info = self.describe(slot, stats);
        if slot.sid.load(Acquire) != sid {
            info.program_errors = 0;
        }
        self.program_errors.fetch_add(info.program_errors, Relaxed);
        self.closed.lock().unwrap_or_else(|e| e.into_inner())[index] = Some((sid, info));
    }

    /// All live flows, by socket id.
    pub(crate) fn all(&self) -> Vec<(u32, FlowInfo)> {
        let slots = (0..self.slots.len()).filter_map(|index| self.slots.get(index));
        slots
            .filter(|slot| slot.live.load(Acquire) == 1)
            .map(|slot| {
                let sid = slot.sid.load(Acquire);
                (sid, self.describe(slot, slot.stats.load()), slot)
            })
            // A slot that changed hands meanwhile has told of two flows.
            .filter(|(sid, _, slot)| slot.sid.load(Acquire) == *sid)
            .map(|(sid, info, _)| (sid, info))
            .collect()
    }

    fn describe(&self, slot: &FlowSlot, stats: FlowStats) -> FlowInfo {
        let now = monotonic_us();
        let end = if stats.ended_us > 0 {
            stats.ended_us
        } else {
            now
        };
        let governance = slot.governance.load();
        let program = slot.prog.load(Relaxed) != 0;
        let runs = program && governance.mode == Mode::Drive;
        let waits =
            slot.mbox.holds_program(slot.sid.load(Relaxed)) && governance.mode == Mode::Drive;
        let since = if runs {
            stats.mode_since_us
        } else if waits {
            stats.mode_since_us.max(slot.mbox.staged_us.load(Relaxed))
        } else {
            end
        };
        let current = if stats.ended_us == 0 {
            end.saturating_sub(since)
        } else {
            0
        };
        let v6 = slot.family.load(Relaxed) == AF_INET6;
        let address = |bytes: &[AtomicU8; 16], port| {
            let bytes: [u8; 16] = std::array::from_fn(|i| bytes[i].load(Relaxed));
            let ip = if v6 {
                Ipv6Addr::from(bytes).to_canonical()
            } else {
                IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
            };
            SocketAddr::new(ip, port)
        };
        let lives = stats.ended_us == 0;
        let barred_us = slot.barred_until_us.load(Relaxed).saturating_sub(end);
        FlowInfo {
            local: address(&slot.laddr, slot.lport.load(Relaxed)),
            remote: address(&slot.raddr, slot.rport.load(Relaxed)),
            cgroup_id: slot.cgroup_id.load(Relaxed),
            governance,
            barred_for: Duration::from_micros(if lives { barred_us } else { 0 }),
            age: Duration::from_micros(end.saturating_sub(stats.born_us)),
            driven: Duration::from_micros(stats.driven_us + current),
            is_driven: lives && (runs || (waits && !self.drained.load(Relaxed))),
            is_observed: lives && program && governance.mode == Mode::Observe,
            program_errors: slot.errors.load(Acquire),
            stats,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let c = self.control();
        Counters {
            creates_dropped: c.creates_dropped.load(Relaxed),
            closes_dropped: c.closes_dropped.load(Relaxed),
            no_slot: c.no_slot.load(Relaxed),
            fallbacks: c.fallbacks.load(Relaxed),
            fallbacks_loss: c.fallbacks_loss.load(Relaxed),
            missing_programs: c.missing_programs.load(Relaxed),
            stale_updates: c.stale_updates.load(Relaxed),
            reports_dropped: self.reports_dropped.load(Relaxed),
            program_errors: self.program_errors.load(Relaxed),
            malformed_records: self.malformed_records.load(Relaxed),
            rejected_messages: self.rejected_messages.load(Relaxed),
        }
    }

    /// Forgets what a previous agent had staged, and how it governed. Only while no agent is running.
    pub(crate) fn begin_anew(&self, max_flow_rate: u64) {
        self.control().max_flow_rate.store(max_flow_rate, Release);
        for slot in (0..self.slots.len()).filter_map(|i| self.slots.get(i)) {
            let seq = slot.mbox.seq.load(Acquire) & !(MBOX_WRITING | MBOX_PENDING);
            slot.mbox.seq.store(seq.wrapping_add(MBOX_STEP), Release);
            slot.governance.store(&Governance::default(), max_flow_rate);
        }
    }
}

impl Mailbox {
    /// A program for this flow waits to be taken.
    fn holds_program(&self, sid: u32) -> bool {
        self.seq.load(Acquire) & MBOX_PENDING != 0
            && self.sid.load(Relaxed) == sid
            && self.prog.load(Relaxed) != 0
    }

    /// Stages updates, and a program to change to, for the flow `sid`.
    ///
    /// What was staged before and not yet taken stays and is taken together with this, except
    /// that a change of program drops it (as libccp does). There is one writer: the agent.
    pub(crate) fn stage(&self, sid: u32, program: Option<u32>, updates: &Updates) {
        // Claim the mailbox; only the datapath competes, and it only clears PENDING.
        let before = self.seq.fetch_or(MBOX_WRITING, AcqRel);
        fence(SeqCst);
        let pending = before & MBOX_PENDING != 0 && self.sid.load(Relaxed) == sid;
        let (mut mask, mut prog) = (0, 0);
        if pending {
            (mask, prog) = (self.mask.load(Relaxed), self.prog.load(Relaxed));
        }
        if let Some(program) = program {
            (mask, prog) = (0, program);
        }
        self.sid.store(sid, Relaxed);
        self.prog.store(prog, Relaxed);
        if !pending {
            self.staged_us.store(monotonic_us(), Relaxed);
        }
        self.mask.store(mask | updates.mask(), Relaxed);
        for (i, value) in updates.values().iter().enumerate() {
            if updates.mask() & 1 << i != 0 {
                self.value[i].store(*value, Relaxed);
            }
        }
        let next = (before & !(MBOX_WRITING | MBOX_PENDING)).wrapping_add(MBOX_STEP);
        self.seq.store(next | MBOX_PENDING, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn updates(entries: &[(usize, u64)]) -> Updates {
        let mut updates = Updates::default();
        for (entry, value) in entries {
            updates.set(*entry, *value);
        }
        updates
    }

    /// What the BPF side does: copy, then claim.
    fn take(mailbox: &Mailbox) -> Option<(u32, u32, u32, Vec<u64>)> {
        let seq = mailbox.seq.load(Acquire);
        if seq & (MBOX_WRITING | MBOX_PENDING) != MBOX_PENDING {
            return None;
        }
        let sid = mailbox.sid.load(Relaxed);
        let prog = mailbox.prog.load(Relaxed);
        let mask = mailbox.mask.load(Relaxed);
        let value = mailbox.value.iter().map(|v| v.load(Relaxed)).collect();
        fence(SeqCst);
        mailbox
            .seq
            .compare_exchange(seq, seq & !MBOX_PENDING, AcqRel, Acquire)
            .ok()?;
        Some((sid, prog, mask, value))
    }

    #[test]
    fn untaken_updates_are_merged_and_taken_once() {
        let mailbox = Mailbox::default();
        mailbox.stage(7, Some(3), &updates(&[(0, 1), (1, 2)]));
        mailbox.stage(7, None, &updates(&[(1, 5), (16, 6)]));
        let (sid, prog, mask, value) = take(&mailbox).unwrap();
        assert_eq!((sid, prog, mask), (7, 3, 1 | 2 | 1 << 16));
        assert_eq!((value[0], value[1], value[16]), (1, 5, 6));
        assert_eq!(take(&mailbox), None);
        mailbox.stage(7, None, &updates(&[(2, 9)]));
        assert_eq!(
            take(&mailbox).map(|(_, prog, mask, _)| (prog, mask)),
            Some((0, 4))
        );
    }

    #[test]
    fn a_change_of_program_or_flow_drops_what_was_staged() {
        let mailbox = Mailbox::default();
        mailbox.stage(7, None, &updates(&[(0, 1)]));
        mailbox.stage(7, Some(2), &updates(&[(1, 2)]));
        assert_eq!(
            take(&mailbox).map(|(_, prog, mask, _)| (prog, mask)),
            Some((2, 2))
        );
        mailbox.stage(7, None, &updates(&[(0, 1)]));
        mailbox.stage(8, None, &updates(&[(3, 4)]));
        assert_eq!(
            take(&mailbox).map(|(sid, _, mask, _)| (sid, mask)),
            Some((8, 8))
        );
    }

    #[test]
    fn a_concurrent_reader_sees_whole_updates_only() {
        const ENOUGH: u64 = 2_000;
        let mailbox = Arc::new(Mailbox::default());
        let reader = {
            let mailbox = mailbox.clone();
            std::thread::spawn(move || {
                let (mut taken, mut last) = (0u64, 0);
                while taken < ENOUGH {
                    if let Some((_, _, mask, value)) = take(&mailbox) {
                        assert_eq!(mask, 0b11);
                        assert_eq!(value[0], value[1], "a torn update");
                        assert!(value[0] > last, "an update taken twice");
                        (taken, last) = (taken + 1, value[0]);
                    }
                }
            })
        };
        let mut staged = 0;
        while !reader.is_finished() {
            staged += 1;
            mailbox.stage(1, None, &updates(&[(0, staged), (1, staged)]));
        }
        reader.join().unwrap();
        assert!(staged >= ENOUGH);
    }
}
