//! Whether losses are congestion: the climber's test, and the cruise's.
//!
//! An interval of many packets tells by itself: its losses stand out from what the path loses, or they do not. A small
//! window has lost a tenth of its packets when it has lost one, whatever the path loses. There losses are weighed over
//! intervals (Wald's sequential test): each counts by how much likelier it is where the path is shared and full than
//! where it loses by itself what it is known to lose, and each packet that arrives counts against. A loss at a full
//! queue needs little more.
//!
//! Above 25 packets per RTT it bears as much loss as the loss handbrake lets flows of Vivace bear: one that yields
//! where they do not leaves them the path, and they never learn that it is shared. Not so with many packets at a small
//! buffer, where flows of Vivace come to climb, too, and where a full buffer shows in a few losses of hundreds of
//! packets and in nothing else.

use super::is_wide;
use crate::estimate::LossClass;
use crate::handbrake::View;

/// Packets per RTT below which losses are weighed.
pub(super) const SMALL_PKTS: f64 = 16.0;
/// Deviations of the loss floor beyond which losses at a full queue count. Random losses meet a full queue, too, when
/// others fill it: a climber that takes them for its own falls to some 25 packets, whatever its share, and leaves the
/// path to those who learn. Source: simulated, 2 to 50 flows with 2 to 5 % random loss: at 0.5 Jain .36 to .72, at 2
/// .69 to .90, at 2.5 .78 to .93, at 3 .83 to .95, but ten flows at 10 packets .93 for .98.
const CLEAR_SIGMAS: f64 = 2.5;
/// With few packets in the window: what a full, shared path loses beyond the floor; and the evidence for it, as the
/// logarithm of the likelihoods' ratio, that is enough if the last loss met a full queue, or another. Source:
/// simulated, 81 crowds and 60 short paths: Jain .734 to .768, .885 to .905 against half a deviation of the floor in
/// each interval; with 2 and 5 .761, .908, but a twentieth more is lost; with .2 for .1 the same.
const SHARED_LOSS: f64 = 0.1;
const FULL_EVIDENCE: f64 = 1.0;
const OTHER_EVIDENCE: f64 = 4.0;
/// A path that loses nothing is believed to lose this much.
const LEAST_FLOOR: f64 = 1e-4;
/// Loss beyond the floor that counts as congestive without a known queue.
const LOSS_LIMIT: f64 = 0.02;
/// The same in a wide window at a small buffer, beyond so many deviations of what may be the path's; and what is borne
/// there at a full queue. Source: simulated, 40 paths with 2 to 8 wide flows at 5 to 25 packets: Jain's index .894 with
/// this, .881 with .005.
const WIDE_LOSS_LIMIT: f64 = 0.003;
const WIDE_SIGMAS: f64 = 3.0;
const WIDE_BORNE: f64 = 0.002;
/// Loss beyond the floor that a flow may have that does not use its rate. Source: twice the loss handbrake's.
const IDLE_LOSS: f64 = 0.10;

/// That losses are not the path's own, as far as nothing outweighs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence(f64);

impl Evidence {
    /// Whether more is lost in this interval than the path does by itself, and than is borne. `answered` says that what
    /// was lost before is of a rate before a cut.
    pub fn counts(&mut self, view: &View<'_>, answered: bool) -> bool {
        let excess = if view.window_pkts() < SMALL_PKTS {
            self.weigh(view, answered)
        } else {
            self.0 = 0.0;
            stands_out(view)
        };
        excess && !(view.is_idle() && view.est.excess_loss(view.mi) < IDLE_LOSS)
    }

    /// Weighs what a small window lost and what arrived; whether that is enough.
    fn weigh(&mut self, view: &View<'_>, answered: bool) -> bool {
        let &View { mi, est, .. } = view;
        if answered {
            self.0 = 0.0;
        }
        let own = est.loss_floor().max(LEAST_FLOOR);
        let shared = own + SHARED_LOSS;
        let lost = mi.lost_pkts * libm::log(shared / own);
        let arrived = mi.delivered_pkts * libm::log((1.0 - shared) / (1.0 - own));
        self.0 = (self.0 + lost + arrived).max(0.0);
        match est.class(mi) {
            LossClass::None => false,
            LossClass::Congestive => self.0 >= FULL_EVIDENCE,
            LossClass::Random | LossClass::Unknown => self.0 >= OTHER_EVIDENCE,
        }
    }
}

/// Whether the losses of one interval stand out from the path's own, and from what is borne.
fn stands_out(view: &View<'_>) -> bool {
    let &View { mi, est, .. } = view;
    let wide = is_wide(view);
    let borne = if view.window_pkts() < view.params.low_exit {
        0.0
    } else if wide {
        WIDE_BORNE.min(view.params.hb_loss_congestive.get())
    } else {
        view.params.hb_loss_congestive.get()
    };
    match est.class(mi) {
        LossClass::None => false,
        LossClass::Congestive => est.loss_beyond(mi, CLEAR_SIGMAS) > borne,
        _ if wide => est.clear_loss(mi, WIDE_SIGMAS) > WIDE_LOSS_LIMIT,
        LossClass::Random | LossClass::Unknown => est.excess_loss(mi) > LOSS_LIMIT,
    }
}
