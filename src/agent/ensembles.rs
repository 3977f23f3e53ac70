//! The ensembles of an agent's flows, by the addresses of both ends.

use crate::ensemble::{Ensemble, Member};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

/// Ensembles before those without flows are looked for; then when there are twice as many as were left.
const FEW: usize = 64;

/// All of them. Those whose flows have left go when others come, so that there are never more than twice those that
/// have flows, and [`FEW`].
#[derive(Default)]
pub(super) struct Ensembles(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_ends: HashMap<(IpAddr, IpAddr), Ensemble>,
    /// How many were left when it was last looked.
    left: usize,
}

impl Ensembles {
    /// A place for a flow between these ends; in an ensemble of its own if the datapath does not tell the other one.
    pub(super) fn join(&self, (local, remote): (SocketAddr, SocketAddr)) -> Member {
        let ends = (local.ip().to_canonical(), remote.ip().to_canonical());
        if ends.1.is_unspecified() {
            return Ensemble::default().join();
        }
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.by_ends.len() >= FEW.max(table.left * 2) {
            table.by_ends.retain(|_, ensemble| !ensemble.is_empty());
            table.left = table.by_ends.len();
        }
        table.by_ends.entry(ends).or_default().join()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(host: u8) -> (SocketAddr, SocketAddr) {
        let end = |host| SocketAddr::from(([10, 0, 0, host], 80));
        (end(0), end(host))
    }

    #[test]
    fn there_are_no_more_than_have_flows_and_a_few() {
        let ensembles = Ensembles::default();
        let count = || ensembles.0.lock().unwrap().by_ends.len();
        let stays = ensembles.join(ends(1));
        for host in 0..=255 {
            drop(ensembles.join(ends(host)));
            assert!(count() <= FEW, "{}", count());
        }
        let flows: Vec<_> = (0..=255).map(|host| ensembles.join(ends(host))).collect();
        assert_eq!(count(), 256, "one for each address");
        drop((flows, stays));
        drop(ensembles.join(ends(1)));
        assert!(count() <= 256);
    }

    #[test]
    fn an_address_that_is_not_known_is_nobody_s() {
        let ensembles = Ensembles::default();
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        drop(ensembles.join((unknown, unknown)));
        assert_eq!(ensembles.0.lock().unwrap().by_ends.len(), 0);
        let [v4, v6]: [SocketAddr; 2] =
            ["10.0.0.1:80", "[::ffff:10.0.0.1]:80"].map(|end| end.parse().unwrap());
        drop([v4, v6].map(|end| ensembles.join((end, end))));
        assert_eq!(ensembles.0.lock().unwrap().by_ends.len(), 1, "the same");
    }
}
