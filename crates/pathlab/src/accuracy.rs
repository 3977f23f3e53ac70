//! Paths on which the emulator's accuracy is stated: rates from 12 to 500 Mbit/s, loss, jitter, small queues, traces,
//! and what else a path can do. `docs/lab.md` shows what [`crate::self_check`] finds on them.

use pathsim::{
    CoDel, InvalidScenario, Jitter, Loss, MILLISECOND, PathSpec, QueueDiscipline, QueueLimit,
    RateSchedule, SECOND, Sfq, Trace,
};
use std::sync::Arc;

/// Opportunities of a varying link, ms: 6 in 10 ms, with an outage of 4 ms, which is 7.2 Mbit/s.
const OUTAGES: &str = "1\n1\n1\n2\n3\n10\n";

/// The paths, each with its description in words.
///
/// # Errors
/// None: the paths are possible.
pub fn paths() -> Result<Vec<(&'static str, PathSpec)>, InvalidScenario> {
    let clean = |mbit: u64| PathSpec::clean(mbit * 1_000_000, 40 * MILLISECOND);
    let with = |change: &dyn Fn(&mut PathSpec)| {
        let mut path = clean(50);
        change(&mut path);
        path
    };
    let uniform = |reorder| Jitter::Uniform {
        max_ns: 10 * MILLISECOND,
        reorder,
    };
    let burst = Loss::Bursts {
        ratio: 0.02,
        mean_length: 4.0,
    };
    let swing = RateSchedule::swing(50_000_000, 20_000_000, SECOND, 60 * SECOND)?;
    let poisson = RateSchedule::poisson(12_000_000, 60 * SECOND, 1)?;
    let outages = RateSchedule::Trace(Arc::new(Trace::parse(OUTAGES)?));
    let steps = vec![(0, 50_000_000), (300 * MILLISECOND, 10_000_000)];
    Ok(vec![
        ("12 Mbit/s", clean(12)),
        ("50 Mbit/s", clean(50)),
        ("100 Mbit/s", clean(100)),
        ("200 Mbit/s", clean(200)),
        ("500 Mbit/s", clean(500)),
        (
            "50 Mbit/s, 1 % loss",
            with(&|path| path.loss = Loss::Random(0.01)),
        ),
        (
            "50 Mbit/s, 5 % loss",
            with(&|path| path.loss = Loss::Random(0.05)),
        ),
        (
            "50 Mbit/s, 2 % loss in bursts of 4",
            with(&|path| path.loss = burst),
        ),
        (
            "50 Mbit/s, jitter to 10 ms",
            with(&|path| path.jitter = uniform(false)),
        ),
        (
            "50 Mbit/s, reordering jitter to 10 ms",
            with(&|path| path.jitter = uniform(true)),
        ),
        (
            "50 Mbit/s, exponential jitter, mean 3 ms",
            with(&|path| {
                path.jitter = Jitter::Exponential {
                    mean_ns: 3 * MILLISECOND,
                };
            }),
        ),
        (
            "50 Mbit/s, queue of 10 packets",
            with(&|path| path.queue = QueueLimit::Packets(10)),
        ),
        (
            "50 Mbit/s, CoDel",
            with(&|path| path.discipline = QueueDiscipline::CoDel(CoDel::default())),
        ),
        (
            "50 Mbit/s, sfq",
            with(&|path| path.discipline = QueueDiscipline::Sfq(Sfq::default())),
        ),
        (
            "50 to 10 Mbit/s, a step",
            with(&|path| path.rate = RateSchedule::Steps(steps.clone())),
        ),
        (
            "50 Mbit/s, swinging by 20",
            with(&|path| path.rate = swing.clone()),
        ),
        (
            "trace with outages, 7.2 Mbit/s",
            with(&|path| path.rate = outages.clone()),
        ),
        (
            "Poisson deliveries, 12 Mbit/s",
            with(&|path| path.rate = poisson.clone()),
        ),
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_paths_are_possible() {
        let paths = super::paths().unwrap();
        paths.iter().for_each(|(words, path)| {
            path.check()
                .unwrap_or_else(|error| panic!("{words}: {error}"));
        });
        let mbps = paths[16].1.rate.capacity_bytes(0, 10_000_000_000) * 8.0 / 1e7;
        assert!((mbps - 7.2).abs() < 0.01, "{mbps}");
    }
}
