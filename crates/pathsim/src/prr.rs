//! Proportional rate reduction (RFC 6937): how a window comes down while losses are repaired.
//!
//! A window that were cut at once would send nothing until half the flight has drained. Instead, for
//! every packet delivered a part of one is sent, so that the flight reaches the new window with the
//! end of the recovery; and from below, as fast as in slow start.

use crate::control::Ack;

/// A recovery in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prr {
    /// Window before and after.
    prior: u64,
    target: u64,
    delivered: u64,
    /// Packets that had been sent when the recovery began; `None` before its first ACK.
    sent_before: Option<u64>,
    acked_to: u64,
}

impl Prr {
    pub(crate) fn new(prior: u64, target: u64) -> Self {
        Self {
            prior: prior.max(1),
            target,
            delivered: 0,
            sent_before: None,
            acked_to: 0,
        }
    }

    /// The window after an ACK, or `None` if that changes nothing.
    pub(crate) fn window(&mut self, ack: &Ack) -> Option<u64> {
        let sent_before = *self.sent_before.get_or_insert(ack.sent);
        let advanced = ack.acked_to > self.acked_to;
        self.acked_to = ack.acked_to;
        if ack.delivered == 0 {
            return None;
        }
        self.delivered += ack.delivered;
        let sent = ack.sent - sent_before;
        let room = self.target.saturating_sub(ack.in_flight);
        let more = if room == 0 {
            let proportional = (self.target * self.delivered).div_ceil(self.prior);
            proportional.saturating_sub(sent)
        } else {
            // Slow start only while nothing more is lost (RFC 6937 §3, and Linux).
            let safe = u64::from(advanced && ack.lost == 0);
            let owed = self.delivered.saturating_sub(sent);
            (owed.max(ack.delivered) + safe).min(room)
        };
        // The first retransmission goes at once.
        Some(ack.in_flight + more.max(u64::from(sent == 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 packets in flight, one lost, 70 to stay: seven packets go out for ten that arrive.
    #[test]
    fn the_window_comes_down_with_the_deliveries() {
        let mut prr = Prr::new(100, 70);
        let (mut in_flight, mut sent) = (99, 1000);
        let mut out = 0;
        for number in 0..99 {
            in_flight -= 1;
            let ack = Ack {
                delivered: 1,
                lost: u64::from(number == 0),
                in_flight,
                sent,
                ..Ack::default()
            };
            let window = prr.window(&ack).unwrap();
            let burst = window.saturating_sub(in_flight);
            assert!(burst <= 1, "{number}: {burst}");
            (in_flight, sent, out) = (in_flight + burst, sent + burst, out + burst);
        }
        assert!((69..=71).contains(&out), "{out}");
        assert!((69..=71).contains(&in_flight), "{in_flight}");
    }

    /// Most of the flight is lost: from below, one packet more than arrived goes out for each that arrives.
    #[test]
    fn from_below_it_is_slow_start() {
        let mut prr = Prr::new(100, 70);
        let ack = |in_flight, sent, acked_to| Ack {
            delivered: 1,
            lost: 0,
            in_flight,
            sent,
            acked_to,
            ..Ack::default()
        };
        assert_eq!(
            prr.window(&Ack {
                lost: 60,
                ..ack(20, 500, 0)
            }),
            Some(21)
        );
        assert_eq!(prr.window(&ack(20, 501, 1)), Some(22));
        assert_eq!(prr.window(&ack(69, 503, 2)), Some(70));
    }
}
