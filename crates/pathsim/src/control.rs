//! What decides how fast a flow sends.

use crate::{MSS, SECOND};

/// What one ACK showed. Packets are segments of [`MSS`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Now, ns.
    pub now_ns: u64,
    /// Packets newly delivered, in or out of order.
    pub delivered: u64,
    /// Those of them above a hole.
    pub misordered: u64,
    /// Packets newly found lost.
    pub lost: u64,
    /// Earlier ones newly found to have been late only: the packet arrived before it was sent again, or a D-SACK says
    /// that sending it again was needless.
    pub spurious: u64,
    /// Packets that arrived though their segment had arrived before, as D-SACKs tell.
    pub duplicates: u64,
    /// Packets sent so far, retransmissions included.
    pub sent: u64,
    /// RTT of the newest packet delivered, ns; `None` if all were retransmissions.
    pub rtt_ns: Option<u64>,
    /// Smoothed RTT, ns; 0 before the first sample.
    pub srtt_ns: u64,
    /// Packets in flight after this ACK.
    pub in_flight: u64,
    /// Packets in flight before it.
    pub prior_in_flight: u64,
    /// Data written and not acknowledged, bytes.
    pub pending_bytes: u64,
    /// Delivery rate over the flight of the newest packet, bytes/s; 0 if not known.
    pub delivery_rate: u64,
    /// Send rate over the same flight, bytes/s; 0 if not known.
    pub send_rate: u64,
    /// The same as the kernel samples it; `None` if the newest packet's flight tells nothing.
    pub sample: Option<RateSample>,
    /// Packets delivered so far.
    pub total_delivered: u64,
    /// Highest segment that is acknowledged together with all before it.
    pub acked_to: u64,
    /// The segment to be sent next.
    pub next_segment: u64,
    /// Whether losses of a reduction that was made already are being repaired.
    pub in_recovery: bool,
    /// Whether what a timeout declared lost is being repaired.
    pub after_timeout: bool,
    /// Whether the congestion window held the flow back within the last RTT; the receive window, pacing or a
    /// lack of data do not count.
    pub window_limited: bool,
}

/// What was delivered while the newest packet was on its way (Linux, `tcp_rate.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Packets.
    pub delivered: u64,
    /// Packets that had been delivered when it was sent.
    pub prior_delivered: u64,
    /// What that took, or sending it if that took longer, ns; never 0.
    pub interval_ns: u64,
    /// Whether it was sent while the application had nothing more to send.
    pub app_limited: bool,
}

impl RateSample {
    /// Packets/s.
    pub fn rate(&self) -> f64 {
        self.delivered as f64 * SECOND as f64 / self.interval_ns.max(1) as f64
    }
}

/// How a flow may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Packets in flight at most.
    pub cwnd: u64,
    /// Pacing rate in payload bytes/s; `None` sends as the window allows.
    pub rate: Option<u64>,
}

/// A congestion control. Called by the flow's sender, in order of time.
pub trait Controller {
    /// Window and rate. Asked before every burst.
    fn sending(&self) -> Sending;

    /// Every ACK, after loss detection.
    fn on_ack(&mut self, ack: &Ack);

    /// The first loss since the last reduction was repaired: time to reduce. Comes before the ACK that showed it, if
    /// one did. `in_flight` packets are on their way.
    fn on_loss(&mut self, _now_ns: u64, _in_flight: u64) {}

    /// All packets since the last reduction arrived after all: what was reduced may be taken back.
    fn on_spurious_loss(&mut self) {}

    /// A retransmission timeout.
    fn on_timeout(&mut self, now_ns: u64);

    /// When to be called without an ACK, ns; `None` for never.
    fn wake_at_ns(&self) -> Option<u64> {
        None
    }

    /// The time of [`Controller::wake_at_ns`] has come.
    fn wake(&mut self, _now_ns: u64) {}
}

/// The pacing rate that Linux gives a flow with a window: twice what slow start needs, 1.2 times later.
pub(crate) fn paced(cwnd: u64, ssthresh: u64, srtt_ns: u64) -> Option<u64> {
    let bytes = u128::from(cwnd) * u128::from(MSS) * u128::from(SECOND);
    let rate = bytes.checked_div(u128::from(srtt_ns))?;
    let rate = if cwnd < ssthresh / 2 {
        rate * 2
    } else {
        rate + rate / 5
    };
    Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
}

/// Below this rate a burst is one segment, bytes/s.
const SLOW_RATE: u64 = 150_000;
const BURSTS_PER_SECOND: u64 = 1000;

/// Segments that a paced flow sends at a time, as Linux does: a millisecond of the rate, two at least, one where it is
/// slow.
pub(crate) fn burst(rate: u64) -> u64 {
    if rate < SLOW_RATE {
        1
    } else {
        (rate / BURSTS_PER_SECOND / MSS).max(2)
    }
}

/// Sends at one rate, whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedRate {
    /// Payload, bytes/s.
    pub rate: u64,
}

impl Controller for FixedRate {
    fn sending(&self) -> Sending {
        Sending {
            cwnd: u64::MAX,
            rate: Some(self.rate.max(1)),
        }
    }

    fn on_ack(&mut self, _: &Ack) {}

    fn on_timeout(&mut self, _: u64) {}
}
