use super::super::app::Input;
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

fn flow(number: u64, state: &str, goodput: f64) -> Value {
    let driven = state == "driven";
    json!({
        "flow": number, "local": "192.0.2.1:443", "remote": format!("198.51.100.{number}:5{number:04}"),
        "age_seconds": 12.5, "state": state, "driven_ratio": 0.99, "fallback_episodes": 1,
        "phase": driven.then_some("vivace"), "reason": driven.then_some("move-up"),
        "rate_bits_per_second": driven.then_some(48.2e6), "goodput_bits_per_second": goodput,
        "cwnd_bytes": 250_000, "rtt_seconds": 0.0421, "rtt_min_seconds": 0.04, "loss_ratio": 0.0123,
        "acked_bytes": 60_000_000, "reports": 300, "reports_dropped": 0,
    })
}

fn look(app: &mut App, second: u64, intervals: Option<anyhow::Result<Value>>) {
    let stats = json!({
        "uptime_seconds": second, "reports": 4_200 * second, "fallback_episodes": 2, "draining": 0,
        "flows": {"driven": 2, "fallback": 1},
        "handbrake_actions": {"loss": 3, "queue": 17, "compete": 0, "restart": 1},
        "report_time_seconds": {"count": 1_000, "sum": 0.0023},
    });
    let status = json!({"agent": {"version": "1.2.3"}, "stats": stats});
    let goodput = 10e6 * second as f64;
    let flows = [
        flow(1, "driven", goodput),
        flow(2, "driven", 5e6),
        flow(30, "fallback", 0.0),
    ];
    app.on_look(status, &json!({"total": 7, "flows": flows}), intervals);
}

fn screen(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let lines = (0..height).map(|y| {
        let line: String = (0..width)
            .map(|x| buffer[(x, y)].symbol().to_owned())
            .collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[test]
fn the_list_fits_into_80_by_24() {
    let mut app = App::default();
    for second in 1..=4 {
        look(&mut app, second, None);
    }
    app.on_input(Input::Char('s'));
    let expected = "\
pk3c-ccp 1.2.3  up 4.00s  flows 2 driven, 1 in fallback
reports 4200/s, 2.30us each  fallback episodes 2  drops and errors 0
handbrakes: loss 3, queue 17, compete 0, restart 1
remote                  rate goodput    rtt  loss phase   reason      lately
198.51.100.1:50001     48.2M   40.0M 42.1ms  1.2% vivace  move-up     ▃▅▆█
198.51.100.2:50002     48.2M   5.00M 42.1ms  1.2% vivace  move-up     ████
198.51.100.30:50030        -   0.00b 42.1ms  1.2% -       -           ▁▁▁▁";
    let screen = screen(&app, 80, 24);
    assert!(screen.starts_with(expected), "{screen}");
    assert!(screen.ends_with("3 of 7 flows by goodput"), "{screen}");
    assert_eq!(screen.lines().count(), 24);
    let page = include_str!("../../../../docs/operations.md");
    assert!(page.contains(expected), "docs/operations.md shows another");
}

#[test]
fn a_shadow_s_rate_is_marked_as_what_would_be() {
    let mut app = App::default();
    let mut shadow = flow(1, "driven", 5e6);
    shadow["state"] = "shadow".into();
    let flows = json!({"total": 2, "flows": [shadow, flow(2, "driven", 5e6)]});
    let states = json!({"driven": 1, "fallback": 0, "shadow": 1});
    let status = json!({"stats": {"flows": states}});
    app.on_look(status, &flows, None);
    let screen = screen(&app, 80, 24);
    assert!(
        screen.contains("flows 1 driven, 0 in fallback, 1 with Cubic by policy"),
        "{screen}"
    );
    let row = |end: &str| screen.lines().find(|line| line.contains(end)).unwrap();
    assert!(row(":50001").contains(" ~48.2M   5.00M "), "{screen}");
    assert!(row(":50002").contains("  48.2M   5.00M "), "{screen}");
}

#[test]
fn a_flow_has_its_page() {
    let mut app = App::default();
    look(&mut app, 1, None);
    app.on_input(Input::Enter);
    let interval = json!({
        "at_s": 12.345,
        "measured": {"slot": 2, "asked_mbps": 48.5, "sent_mbps": 48.1, "loss": 0.01, "rtt_mean_ms": 42.2, "queue_ms": 2.2},
        "decision": {"reason": "move-up", "rate": 6_000_000, "phase": "vivace"},
    });
    look(&mut app, 2, Some(Ok(json!({"intervals": [interval]}))));
    let page = screen(&app, 80, 24);
    for part in [
        "remote   198.51.100.1:50001",
        "rtt min  40.0ms",
        "acked    60.0MB",
        "goodput, up to 20.0M",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let row = page.lines().find(|line| line.contains("12.345")).unwrap();
    for part in [
        "trial2",
        "48.50",
        "48.10",
        "1.0%",
        "42.2",
        "2.2",
        "move-up, 48.00",
    ] {
        assert!(row.contains(part), "{part} is not in {row}");
    }
    app.on_error("the agent does not answer".to_owned());
    assert!(screen(&app, 80, 24).ends_with("the agent does not answer"));
}

#[test]
fn no_size_of_terminal_panics() {
    let mut app = App::default();
    for second in 1..=2 {
        look(
            &mut app,
            second,
            Some(Ok(json!({"intervals": [{}, {"measured": 3}]}))),
        );
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
            screen(&app, width, height);
        }
        app.on_input(Input::Enter);
    }
}
