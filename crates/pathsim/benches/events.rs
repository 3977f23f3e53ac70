//! How fast the simulator is: virtual seconds of whole scenarios, in events per second of real time.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pathsim::{
    CoDel, Controller, Cubic, FlowSpec, MILLISECOND, PathSpec, QueueDiscipline, Results, SECOND,
    Scenario, Simulation,
};

/// So many Cubic flows over a path of 40 ms and a queue of one BDP.
fn scenario(flows: u64, rate_bps: u64, discipline: QueueDiscipline) -> Scenario {
    let mut path = PathSpec::clean(rate_bps, 40 * MILLISECOND);
    path.discipline = discipline;
    let flow = |number| FlowSpec {
        start_ns: number * MILLISECOND,
        ..FlowSpec::new("cubic")
    };
    Scenario {
        path,
        flows: (0..flows).map(flow).collect(),
        duration_ns: 5 * SECOND,
        seed: 1,
        series: false,
    }
}

fn run(scenario: &Scenario) -> Option<Results> {
    let controllers = scenario.flows.iter();
    let controllers = controllers.map(|_| -> Box<dyn Controller> { Box::new(Cubic::default()) });
    let simulation = Simulation::new(scenario.clone(), controllers.collect());
    Some(simulation.ok()?.run())
}

fn events(criterion: &mut Criterion) {
    let codel = QueueDiscipline::CoDel(CoDel::default());
    let cases = [
        ("drop-tail", 1, 100_000_000, QueueDiscipline::DropTail),
        ("drop-tail", 10, 100_000_000, QueueDiscipline::DropTail),
        ("drop-tail", 1000, 1_000_000_000, QueueDiscipline::DropTail),
        ("codel", 10, 100_000_000, codel),
    ];
    let mut group = criterion.benchmark_group("simulator events");
    group.sample_size(10);
    for (name, flows, rate_bps, discipline) in cases {
        let scenario = scenario(flows, rate_bps, discipline);
        // The same in every run.
        let Some(results) = run(&scenario) else {
            continue;
        };
        group.throughput(Throughput::Elements(results.events));
        let id = BenchmarkId::new(
            name,
            format!("{flows} flows, {} Mbit/s", rate_bps / 1_000_000),
        );
        group.bench_function(id, |bencher| bencher.iter(|| run(&scenario)));
    }
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
