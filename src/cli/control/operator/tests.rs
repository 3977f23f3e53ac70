use super::*;
use pk3c_ccp::agent;
use pk3c_ccp::stats::{DatapathCounts, DatapathView, FlowSample, Stats};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A datapath without flows.
struct Empty;

impl DatapathView for Empty {
    fn flows(&self) -> Vec<FlowSample> {
        Vec::new()
    }
    fn counts(&self) -> DatapathCounts {
        DatapathCounts::default()
    }
    fn drain(&self, _: bool) -> bool {
        false
    }
    fn is_draining(&self) -> bool {
        false
    }
    fn agent_silence(&self) -> Option<Duration> {
        None
    }
}

/// An agent's operator, and the agent's file.
struct Started {
    operator: Operator,
    file: PathBuf,
}

impl Started {
    fn with(text: &str) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("pk3c-operator-{}-{number}.toml", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text).unwrap();
        let line = ["pk3c-ccp", "run", "--config"].map(Into::into);
        let operator = Self::operator(line.into_iter().chain([file.clone().into()]));
        Self { operator, file }
    }

    /// What a command line makes.
    fn operator(line: impl IntoIterator<Item = OsString>) -> Operator {
        let configuration = Configuration::read(line).unwrap();
        let (params, stats) = (configuration.args.params.0.clone(), Arc::<Stats>::default());
        let algorithm = (!params.is_exp()).then(|| {
            Pk3c::new(agent::Config {
                params,
                stats: stats.clone(),
                ..agent::Config::default()
            })
        });
        let monitor = Arc::new(Monitor::new(stats, Arc::new(Empty), Instant::now()));
        let log = LogLevel::deaf();
        Operator::new(algorithm, monitor, log, configuration, true)
    }

    /// What a reload of this text says: what changed, and what waits.
    fn reload(&self, text: &str) -> (Value, Value) {
        std::fs::write(&self.file, text).unwrap();
        let done = self.operator.reload().unwrap();
        (done["changed"].clone(), done["at_next_start"].clone())
    }

    fn set(&self, name: &str, value: &str) -> Result<Value> {
        self.operator
            .set(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    fn is(&self, name: &str) -> String {
        self.operator
            .algorithm()
            .unwrap()
            .params()
            .get(name)
            .unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

#[test]
fn what_waits_for_the_next_start_is_told_until_it_waits_no_more() {
    let agent = Started::with("hb-loss = \"6%\"\n");
    let waiting = "hb-loss = \"7%\"\nmax-flows = 9\nmax-reports = 5000\n";
    let waits = json!(["max-flows", "max-reports"]);
    assert_eq!(agent.reload(waiting), (json!(["hb-loss"]), waits.clone()));
    assert_eq!(agent.reload(waiting), (json!([]), waits));
    assert_eq!(
        agent.is("max-reports"),
        "100000",
        "the governor has this one"
    );
    assert_eq!(
        agent.reload("hb-loss = \"6%\"\n"),
        (json!(["hb-loss"]), json!([]))
    );
}

#[test]
fn a_reload_tells_what_was_in_force_and_not_what_was_read() {
    let agent = Started::with("");
    agent.set("hb-loss", "9%").unwrap();
    agent.operator.log("debug").unwrap();
    assert_eq!(agent.reload(""), (json!(["log", "hb-loss"]), json!([])));
    assert_eq!(agent.reload(""), (json!([]), json!([])));
}

#[test]
fn a_start_rate_that_nobody_gave_follows_the_bounds() {
    let agent = Started::with("");
    let default = agent.is("start-rate");
    agent.set("max-rate", "1mbit").unwrap();
    assert_eq!(agent.is("start-rate"), "1mbit");
    agent.set("max-rate", "1gbit").unwrap();
    assert_eq!(agent.is("start-rate"), default);
    agent.set("min-rate", "5mbit").unwrap();
    assert_eq!(agent.is("start-rate"), "5mbit");
    assert_eq!(
        agent.operator.parameters().unwrap()["start-rate"]["origin"],
        "the default"
    );
    agent.set("min-rate", "1mbit").unwrap();
    // One that was given stays, and must fit.
    agent.set("start-rate", &default).unwrap();
    let refused = agent.set("max-rate", "1mbit").unwrap_err().to_string();
    assert!(refused.contains("--start-rate"), "{refused}");
    let agent = Started::with("start-rate = \"2mbit\"\n");
    assert!(agent.set("max-rate", "1mbit").is_err());
}

#[test]
fn what_is_wrong_with_a_value_is_said_once() {
    let wrong = Started::with("").set("max-rate", "500").unwrap_err();
    let said = format!("{wrong:#}");
    assert_eq!(said.matches("500").count(), 1, "{said}");
}

#[test]
fn without_a_file_there_is_nothing_to_read_again() {
    let operator = Started::operator(["pk3c-ccp", "run"].map(Into::into));
    let values = BTreeMap::from([("hb-loss".to_owned(), "7%".to_owned())]);
    operator.set(&values).unwrap();
    let refused = operator.reload().unwrap_err().to_string();
    assert!(refused.contains("--config"), "{refused}");
    let hb_loss = &operator.parameters().unwrap()["hb-loss"];
    assert_eq!(hb_loss["value"], "7%", "{refused}");
}

#[test]
fn what_the_datapath_does_not_let_go_so_fast_waits() {
    let agent = Started::with("max-rate = \"1gbit\"\n");
    assert!(agent.set("max-rate", "2gbit").is_err());
    assert_eq!(
        agent.reload("max-rate = \"2gbit\"\n"),
        (json!([]), json!(["max-rate"]))
    );
    assert_eq!(
        agent.reload("max-rate = \"1gbit\"\n"),
        (json!([]), json!([]))
    );
    assert_eq!(
        agent.reload("max-rate = \"9mbit\"\n"),
        (json!(["max-rate"]), json!([]))
    );
    let policy = |rate: &str| {
        format!(
            "max-rate = \"9mbit\"\n[[policy]]\nname = \"fast\"\nlocal-port = 80\nmax-rate = \"{rate}\"\n"
        )
    };
    assert_eq!(
        agent.reload(&policy("1gbit")),
        (json!(["policy"]), json!([]))
    );
    let beyond = (json!(["policy"]), json!(["policy"]));
    assert_eq!(
        agent.reload(&policy("2gbit")),
        beyond,
        "all but what is beyond"
    );
}

#[test]
fn no_agent_begins_or_ceases_to_decide_in_the_datapath() {
    let agent = Started::with("algorithm = \"vivace\"\n");
    let refused = agent.set("algorithm", "exp").unwrap_err().to_string();
    assert!(refused.contains("start the agent again"), "{refused}");
    let exp = "algorithm = \"exp\"\nhb-loss = \"7%\"\n";
    assert_eq!(
        agent.reload(exp),
        (json!(["hb-loss"]), json!(["algorithm"]))
    );
    assert_eq!(agent.is("algorithm"), "vivace");
    let upstream = "algorithm = \"upstream\"\nhb-loss = \"7%\"\n";
    assert_eq!(agent.reload(upstream), (json!(["algorithm"]), json!([])));

    let agent = Started::with("algorithm = \"exp\"\n");
    let other = "hb-loss = \"7%\"\nlog = \"warn\"\n";
    let (changed, waits) = agent.reload(other);
    assert_eq!(
        (changed, waits),
        (json!(["log"]), json!(["hb-loss", "algorithm"]))
    );
}
