//! What the application has written by when.
//!
//! A server whose client answers its handshake writes that much first, and the rest when the answer is there: with the
//! ACK of it all.

use crate::scenario::{FlowSpec, Source};
use crate::{MSS, SECOND};

/// An application, and the send buffer that it writes into. It never blocks, except that an endless one
/// writes as far ahead as Linux' buffer lets it: twice the window.
pub(super) struct Application {
    source: Source,
    start_ns: u64,
    /// Segments in all.
    total: u64,
    /// Of which so many are a handshake.
    handshake: u64,
}

impl Application {
    pub(super) fn new(spec: &FlowSpec) -> Self {
        let FlowSpec {
            source, start_ns, ..
        } = *spec;
        let total = match source {
            Source::Bytes(bytes) => bytes.div_ceil(MSS),
            Source::Endless | Source::Rate(_) | Source::Chunks { .. } => u64::MAX,
        };
        Self {
            source,
            start_ns,
            total,
            handshake: spec
                .handshake
                .map_or(0, |bytes| bytes.div_ceil(MSS).min(total)),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Segments written by now, of which `acked` are acknowledged; all there will be, for an endless application.
    pub(super) fn written(&self, now_ns: u64, acked: u64) -> u64 {
        if acked < self.handshake {
            return self.handshake;
        }
        let elapsed = now_ns.saturating_sub(self.start_ns);
        match self.source {
            Source::Endless => u64::MAX,
            Source::Bytes(_) => self.total,
            Source::Rate(bps) => {
                let bits = u128::from(elapsed) * u128::from(bps);
                (bits / u128::from(8 * SECOND * MSS)) as u64
            }
            Source::Chunks { bytes, period_ns } => (elapsed / period_ns + 1) * bytes.div_ceil(MSS),
        }
    }

    /// Segments written of which `acked` are acknowledged and `sent` have been sent, with a window of so many. An
    /// application reads the answer to its handshake when TCP is done with the ACK that it came with.
    pub(super) fn pending(&self, now_ns: u64, acked: u64, sent: u64, window: u64) -> u64 {
        match self.source {
            _ if sent <= self.handshake && self.handshake > 0 => sent - acked,
            Source::Endless => window.saturating_mul(2).max(sent - acked),
            _ => self.written(now_ns, acked).max(sent) - acked,
        }
    }

    /// When segment `number` will be written, for one that is not.
    pub(super) fn written_at_ns(&self, number: u64) -> Option<u64> {
        match self.source {
            Source::Endless | Source::Bytes(_) => None,
            Source::Rate(bps) => {
                let bits = u128::from(number + 1) * u128::from(8 * SECOND * MSS);
                Some(self.start_ns + bits.div_ceil(u128::from(bps)) as u64)
            }
            Source::Chunks { bytes, period_ns } => {
                let chunk = number / bytes.div_ceil(MSS);
                Some(self.start_ns + chunk * period_ns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_written_when_it_is_said_to_be() {
        let chunks = Source::Chunks {
            bytes: 3 * MSS - 1,
            period_ns: SECOND / 3,
        };
        for source in [Source::Rate(1_234_567), chunks] {
            let application = Application::new(&FlowSpec {
                source,
                start_ns: 5,
                ..FlowSpec::new("")
            });
            for number in 0..1000 {
                let at_ns = application.written_at_ns(number).unwrap();
                assert!(
                    application.written(at_ns, 0) > number,
                    "{source:?} {number}"
                );
                assert!(at_ns == 5 || application.written(at_ns - 1, 0) <= number);
            }
        }
    }

    #[test]
    fn the_rest_is_written_when_the_handshake_is_answered() {
        for (source, all) in [(Source::Endless, u64::MAX), (Source::Bytes(10 * MSS), 10)] {
            let application = Application::new(&FlowSpec {
                source,
                handshake: Some(2 * MSS + 1),
                ..FlowSpec::new("")
            });
            assert_eq!(application.written(SECOND, 2), 3);
            assert_eq!(application.pending(SECOND, 1, 3, 10), 2, "all is sent");
            assert_eq!(application.pending(SECOND, 3, 3, 10), 0, "not yet read");
            assert_eq!(application.written(SECOND, 3), all);
        }
    }
}
