//! The agent's end of the datapath, as portus wants it.
//!
//! portus' run loop calls [`Ipc::recv`] for ever. Each call gives a sign of life to the datapath
//! (so an agent that hangs anywhere is noticed), then hands out CCP messages made from the ring's
//! records. With few reports every record wakes it (tens of µs); where they are many the agent looks
//! for them now and then, see [`crate::load`].
//!
//! Which flows portus has been told of is kept here, by slot. So a slot's new tenant closes the old
//! one, and the closes that a full ring lost are found by looking over the slots. A flow that is
//! offered again after a fallback is created anew; portus then drops the old one without a close.

use crate::error::Error;
use crate::flows::Flows;
use crate::layout::{EV_CLOSE, EV_CLOSE_LEN, EV_CREATE, EV_CREATE_LEN, EV_MEASURE, FlowStats};
use crate::load::{Counted, Load};
use crate::programs::Programs;
use crate::sys::monotonic_us;
use ccp_vm::Message;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use portus::ipc::Ipc;
use std::cell::RefCell;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tracing::{info, warn};

/// Longest sleep without a message; well below the silence that means the agent is gone.
const WAIT: Duration = Duration::from_millis(25);
/// The datapath may look at the sign of life so long after it took the ACK's time.
const LATE_LOOK_US: u64 = 10_000;
/// Records taken from the ring at once.
const BATCH: usize = 256;

/// `bpf_ringbuf_output` flag: do not wake the reader.
const NO_WAKEUP: u64 = 1;

const READY: [u8; 12] = [5, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0, 0];
const CREATE_LEN: usize = 96;
const CLOSE_LEN: usize = 16;

/// What is known of a slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The flow that portus knows in it, 0 = none.
    announced: u32,
    counted: Counted,
}

/// What the records of the ring become.
struct Inbox {
    flows: Arc<Flows>,
    /// CCP messages not yet handed to portus.
    messages: Vec<u8>,
    read: usize,
    slots: Vec<Slot>,
    load: Load,
}

impl Inbox {
    fn malformed(&self) {
        self.flows.malformed_records.fetch_add(1, Relaxed);
    }

    fn record(&mut self, bytes: &[u8]) {
        let Some((header, _)) = bytes.split_at_checked(8) else {
            self.malformed();
            return;
        };
        let kind = u16::from_ne_bytes([header[0], header[1]]);
        let sid = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        let Some(slot) = self.flows.slot_of(sid) else {
            self.malformed();
            return;
        };
        self.load.count(&mut self.slots[slot].counted);
        let announced = self.slots[slot].announced;
        match kind {
            EV_CREATE if bytes.len() >= EV_CREATE_LEN => {
                // The same flow, offered again after a fallback, is created anew without a close. Offered again
                // while we were slow, it is the same offer.
                if announced != sid {
                    self.close(slot);
                } else if self.flows.is_taken(sid) || self.has_unread_create(sid) {
                    return;
                }
                self.create(slot, sid, &bytes[8..16], &bytes[16..EV_CREATE_LEN]);
            }
            EV_MEASURE if announced == sid => self.messages.extend_from_slice(bytes),
            EV_MEASURE => {}
            EV_CLOSE if bytes.len() >= EV_CLOSE_LEN => {
                if announced == sid {
                    if let Some(stats) = FlowStats::decode(&bytes[8..EV_CLOSE_LEN]) {
                        self.flows.keep_closed(sid, stats);
                    }
                    self.close(slot);
                }
            }
            _ => self.malformed(),
        }
    }

    /// Whether portus has yet to read that this flow was offered.
    fn has_unread_create(&self, sid: u32) -> bool {
        let mut rest = &self.messages[self.read..];
        while let [kind, _, low, high, id @ ..] = rest {
            if u16::from(*kind) == EV_CREATE && id.starts_with(&sid.to_le_bytes()) {
                return true;
            }
            let len = usize::from(u16::from_le_bytes([*low, *high]));
            rest = rest.get(len.max(4)..).unwrap_or_default();
        }
        false
    }

    /// Tells portus of a flow: `cwnd_mss` are the two words as they go into the message, `name` is
    /// the congestion control that the socket chose.
    fn create(&mut self, slot: usize, sid: u32, cwnd_mss: &[u8], name: &[u8]) {
        let Some(flow) = self.flows.live(sid) else {
            return; // it has ended since
        };
        let v4 = |bytes: &[std::sync::atomic::AtomicU8; 16]| -> [u8; 4] {
            let whole: [u8; 16] = std::array::from_fn(|i| bytes[i].load(Relaxed));
            let [a, b, c, d, ..] = whole;
            if flow.family.load(Relaxed) == libc::AF_INET6 as u16 {
                // CREATE has room for IPv4 only; `Observer::flow` knows IPv6 too.
                let v6 = std::net::Ipv6Addr::from(whole);
                v6.to_ipv4_mapped().map_or([0; 4], |v4| v4.octets())
            } else {
                [a, b, c, d]
            }
        };
        let (local, remote) = (v4(&flow.laddr), v4(&flow.raddr));
        let ports = [flow.lport.load(Relaxed), flow.rport.load(Relaxed)].map(u32::from);
        let start = self.messages.len();
        self.messages
            .extend_from_slice(&[0, 0, CREATE_LEN as u8, 0]);
        self.messages.extend_from_slice(&sid.to_le_bytes());
        self.messages.extend_from_slice(cwnd_mss);
        self.messages.extend_from_slice(&local);
        self.messages.extend_from_slice(&ports[0].to_le_bytes());
        self.messages.extend_from_slice(&remote);
        self.messages.extend_from_slice(&ports[1].to_le_bytes());
        self.messages.extend_from_slice(name);
        self.messages.resize(start + CREATE_LEN, 0);
        self.slots[slot].announced = sid;
    }

    /// Tells portus that the flow it knows in this slot is over.
    fn close(&mut self, slot: usize) {
        let sid = std::mem::take(&mut self.slots[slot].announced);
        if sid == 0 {
            return;
        }
        // A report without fields is how CCP says close.
        self.messages.extend_from_slice(&[1, 0, CLOSE_LEN as u8, 0]);
        self.messages.extend_from_slice(&sid.to_le_bytes());
        self.messages.extend_from_slice(&[0; 8]);
    }

    /// Closes the flows whose CLOSE was lost.
    fn close_lost(&mut self) -> usize {
        let is_lost = |sid: u32| sid != 0 && self.flows.live(sid).is_none();
        let lost: Vec<usize> = (0..self.slots.len())
            .filter(|slot| is_lost(self.slots[*slot].announced))
            .collect();
        for slot in &lost {
            self.close(*slot);
        }
        lost.len()
    }

    /// Moves whole messages into `out`.
    fn take(&mut self, out: &mut [u8]) -> usize {
        let mut taken = 0;
        while let Some(header) = self.messages.get(self.read..self.read + 4) {
            let len = usize::from(u16::from_le_bytes([header[2], header[3]]));
            let Some(message) = self.messages.get(self.read..self.read + len) else {
                break;
            };
            let Some(room) = out.get_mut(taken..taken + len) else {
                break;
            };
            room.copy_from_slice(message);
            (taken, self.read) = (taken + len, self.read + len);
        }
        if self.read == self.messages.len() {
            self.messages.clear();
            self.read = 0;
        }
        taken
    }
}

/// The time to give as sign of life. An agent that is drained or leaves looks as if it had just fallen silent, also to
/// an ACK that took its time before `now` and looks after it.
pub(crate) fn sign_of_life(now_us: u64, wants_none: bool, silence_us: u64) -> u64 {
    if wants_none {
        now_us.saturating_sub(silence_us + LATE_LOOK_US)
    } else {
        now_us
    }
}

struct State {
    ready: bool,
    programs: Programs,
    closes_dropped: u64,
    creates_dropped: u64,
    beat_us: u64,
    /// How long ago the last sign of life must be to count as none, µs.
    silence_us: u64,
}

/// The datapath as a transport for portus; see the module's text.
pub struct BpfIpc {
    flows: Arc<Flows>,
    ring: RingBuffer<'static>,
    inbox: Arc<Mutex<Inbox>>,
    state: RefCell<State>,
}

impl BpfIpc {
    pub(crate) fn new(
        flows: Arc<Flows>,
        events: &MapHandle,
        programs: Programs,
        silence: Duration,
    ) -> Result<Self, Error> {
        let inbox = Arc::new(Mutex::new(Inbox {
            slots: vec![Slot::default(); flows.slots.len()],
            flows: flows.clone(),
            messages: Vec::with_capacity(64 << 10),
            read: 0,
            load: Load::default(),
        }));
        let mut builder = RingBufferBuilder::new();
        let sink = inbox.clone();
        builder
            .add(events, move |bytes| {
                sink.lock().unwrap_or_else(|e| e.into_inner()).record(bytes);
                0
            })
            .map_err(Error::bpf("opening the ring of events"))?;
        let ring = builder
            .build()
            .map_err(Error::bpf("opening the ring of events"))?;
        // What is in the ring was meant for an agent before this one.
        while ring.consume_raw() > 0 {}
        let counters = flows.counters();
        {
            let mut inbox = inbox.lock().unwrap_or_else(|e| e.into_inner());
            inbox.messages.clear();
            inbox.slots.fill(Slot::default());
        }
        let state = RefCell::new(State {
            ready: false,
            programs,
            closes_dropped: counters.closes_dropped,
            creates_dropped: counters.creates_dropped,
            beat_us: 0,
            silence_us: silence.as_micros() as u64,
        });
        Ok(Self {
            flows,
            ring,
            inbox,
            state,
        })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The sign of life; at most one write per ms.
    fn beat(&self, state: &mut State) -> u64 {
        let now = monotonic_us();
        if now >= state.beat_us + 1_000 {
            state.beat_us = now;
            let drained = self.flows.drained.load(Acquire);
            let sign = sign_of_life(now, drained, state.silence_us);
            self.flows.control().beat_us.store(sign, Release);
        }
        now
    }

    fn wait(&self, now: u64) {
        let look = self.inbox().load.judge(now);
        let flags = if look.is_some() { NO_WAKEUP } else { 0 };
        let control = self.flows.control();
        if control.ring_flags.swap(flags, AcqRel) != flags {
            info!(
                polling = look.is_some(),
                "how the datapath wakes the agent has changed"
            );
        }
        // Where nothing woke us there may be records all the same: the look.
        if self.ring.poll_raw(look.unwrap_or(WAIT)) == 0 {
            self.ring.consume_raw_n(BATCH);
        }
    }

    /// Notices what a full ring has lost.
    fn check_losses(&self, state: &mut State) {
        let counters = self.flows.counters();
        if counters.closes_dropped != state.closes_dropped {
            let lost = counters.closes_dropped - state.closes_dropped;
            state.closes_dropped = counters.closes_dropped;
            let found = self.inbox().close_lost();
            warn!(
                lost,
                found, "the ring was full: closes were lost and found by a scan"
            );
        }
        if counters.creates_dropped != state.creates_dropped {
            let lost = counters.creates_dropped - state.creates_dropped;
            state.creates_dropped = counters.creates_dropped;
            warn!(lost, "the ring was full: new flows will be offered again");
        }
    }

    fn handle(&self, message: Message) -> Result<(), Error> {
        let programs = &mut self.state.borrow_mut().programs;
        match message {
            Message::Install(program) => programs.install(&program)?,
            Message::Update { sid, updates } => {
                // A flow may end before the agent hears of it: no error.
                if let Some(flow) = self.flows.live(sid) {
                    flow.mbox.stage(sid, None, &updates);
                }
            }
            Message::ChangeProgram { sid, uid, updates } => {
                let index = programs
                    .index_of(uid)
                    .ok_or(Error::UnknownProgram { uid })?;
                if let Some(flow) = self.flows.live(sid) {
                    flow.mbox.stage(sid, Some(index), &updates);
                }
            }
        }
        Ok(())
    }
}

impl Ipc for BpfIpc {
    type Addr = ();

    fn name() -> String {
        "bpf".into()
    }

    fn send(&self, message: &[u8], _: &()) -> portus::Result<()> {
        Message::parse(message)
            .map_err(Error::from)
            .and_then(|m| self.handle(m))
            .map_err(|error| {
                self.flows.rejected_messages.fetch_add(1, Relaxed);
                warn!(%error, "a message of the agent was not applied");
                portus::Error(error.to_string())
            })
    }

    fn recv(&self, out: &mut [u8]) -> portus::Result<(usize, ())> {
        let state = &mut *self.state.borrow_mut();
        let now = self.beat(state);
        if !state.ready {
            state.ready = true;
            out[..READY.len()].copy_from_slice(&READY);
            return Ok((READY.len(), ()));
        }
        let staged = self.inbox().take(out);
        if staged > 0 {
            return Ok((staged, ()));
        }
        self.check_losses(state);
        if self.ring.consume_raw_n(BATCH) == 0 {
            self.wait(now);
            self.beat(state);
        }
        Ok((self.inbox().take(out), ()))
    }

    fn close(&mut self) -> portus::Result<()> {
        let malformed = self.flows.malformed_records.load(Relaxed);
        if malformed > 0 {
            warn!(malformed, "records that the agent did not understand");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `agent_alive()` of the datapath.
    fn looks_alive(sign_us: u64, silence_us: u64, now_us: u64) -> bool {
        now_us.wrapping_sub(sign_us).wrapping_add(silence_us) < 2 * silence_us
    }

    #[test]
    fn a_drained_agent_is_gone_for_acks_from_before_its_sign_too() {
        const SILENCE: u64 = 100_000;
        let now = 5_000_000;
        for ack in [now - 10_000, now - 1, now, now + 25_000] {
            let alive = |drained| looks_alive(sign_of_life(now, drained, SILENCE), SILENCE, ack);
            assert!(alive(false) && !alive(true), "{ack}");
        }
    }
}
