//! The emulated paths of the tests.

use std::time::Duration;

use pathlab::path::Path;
use pathlab::scenario::PathSpec;
use pathlab::tun::EndSettings;

/// Seed of the random losses: the same in every run.
const SEED: u64 = 20_250_901;
/// Payload of a full-size segment over its IP packet: 1448 of 1500 bytes.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// A path of `mbit` Mbit/s and `rtt_ms` ms with a queue of one bandwidth-delay product, which
/// loses a share of `loss` (0..1) of the data packets at random.
pub(crate) fn spec(mbit: u64, rtt_ms: u64, loss: f64) -> PathSpec {
    let mut spec = PathSpec {
        name: format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss}"),
        rate_bps: mbit * 1_000_000,
        rtt: Duration::from_millis(rtt_ms),
        queue_packets: 0,
        loss,
    };
    spec.queue_packets = spec.bdp_packets();
    spec
}

/// Opens a path.
pub(crate) fn open(spec: &PathSpec) -> Path {
    Path::open(&spec.to_path(), &EndSettings::default(), SEED)
        .unwrap_or_else(|error| panic!("{}: {error}", spec.name))
}

/// Ends a path and fails the test if it did not do what it promised.
pub(crate) fn close(path: Path) {
    let report = path.close().unwrap();
    assert_eq!(
        report.emulator.refused, 0,
        "a device refused packets: {report:?}"
    );
}

/// What the path can carry at most for one receiver, in Mbit/s of payload.
pub(crate) fn capacity_mbps(spec: &PathSpec) -> f64 {
    spec.rate_bps as f64 / 1e6 * PAYLOAD_SHARE * (1.0 - spec.loss)
}
