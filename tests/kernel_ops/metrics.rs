//! The metrics, scraped by a real Prometheus.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{File, Guarded};
use crate::common::agent::Agent;
use crate::common::load::{Demand, Load};
use crate::common::machine::{self, KernelTest};
use crate::common::{NAME, eventually, path};
use serde_json::Value;

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// The body of what a server on loopback answers to a GET, if it does.
fn get(port: u16, target: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let request = format!("GET {target} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

#[test]
fn kernel_ops_prometheus_scrapes_the_metrics() {
    let name = "kernel_ops_prometheus_scrapes_the_metrics";
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("prometheus") || !has("promtool") {
        return machine::skipped(
            name,
            "needs prometheus and promtool (Debian's package prometheus)",
        );
    }
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    let (port, api) = (free_port(), free_port());
    let agent = Agent::start(&["--metrics", &port.to_string()]);
    let path = path::open(&path::spec(20, 20, 0.02));
    let load = Load::over(&path, NAME, 2, Demand::Greedy);

    let (head, body) = get(port, "/metrics").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("version=0.0.4"),
        "{head}"
    );
    assert!(get(port, "/").unwrap().0.starts_with("HTTP/1.1 404 "));
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(body.as_bytes())
        .unwrap();
    let checked = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(
        checked.status.success() && said.is_empty(),
        "promtool: {said}\n{body}"
    );

    let config = File::with(
        "prometheus.yml",
        &format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: pk3c, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
        ),
    );
    let data = File::new("prometheus-data");
    let arguments = [
        format!("--config.file={}", config.name()),
        format!("--storage.tsdb.path={}", data.name()),
        format!("--web.listen-address=127.0.0.1:{api}"),
    ];
    let server = Guarded(
        Command::new("prometheus")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let ask = |query: &str| -> Option<f64> {
        let (_, body) = get(api, &format!("/api/v1/query?query={query}"))?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        answer["data"]["result"][0]["value"][1]
            .as_str()?
            .parse()
            .ok()
    };
    let scraped = |query: &str, holds: fn(f64) -> bool| {
        let ok = eventually(Duration::from_secs(40), || ask(query).is_some_and(holds));
        assert!(
            ok,
            "{query}: {:?}\n{}",
            ask(query),
            get(port, "/metrics").unwrap().1
        );
    };
    scraped("up", |up| up == 1.0);
    scraped("pk3c_flows%7Bstate=%22driven%22%7D", |flows| flows >= 2.0);
    scraped("sum(rate(pk3c_decisions_total[10s]))", |per_s| per_s > 10.0);
    scraped(
        "histogram_quantile(0.5,rate(pk3c_flow_rtt_seconds_bucket[10s]))",
        |s| (0.001..0.5).contains(&s),
    );
    scraped("increase(pk3c_flow_loss_ratio_sum[10s])", |loss| loss > 0.0);
    drop(server);
    fs::remove_dir_all(&data.0).unwrap();

    // The series are those of the beginning: nothing is per flow.
    let names = |text: &str| -> Vec<String> {
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series
            .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
            .collect()
    };
    assert_eq!(names(&get(port, "/metrics").unwrap().1), names(&body));
    load.finish().assert_intact();
    path::close(path);
    agent.stop();
    test.end();
}
