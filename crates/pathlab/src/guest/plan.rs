//! What the guest is told: a shell fragment with the path and the run, and the list of events.

use std::fmt::Write;
use std::time::Duration;

use crate::scenario::{PathSpec, Scheme};

/// One run in a guest.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestRun {
    /// The path.
    pub path: PathSpec,
    /// The congestion control. An agent's command names its binary as the guest sees it,
    /// [`AGENT_BINARY`](super::AGENT_BINARY).
    pub scheme: Scheme,
    /// Flows that start together and share the path, at least 1.
    pub flows: u32,
    /// How long they send, in whole seconds of the guest's time.
    pub secs: u32,
    /// What happens to the agent meanwhile; none for a kernel scheme.
    pub events: Vec<Event>,
}

impl GuestRun {
    /// `loss1, pk3c, 4 flows`: how messages name the run.
    pub fn label(&self) -> String {
        let plural = if self.flows == 1 { "" } else { "s" };
        format!(
            "{}, {}, {} flow{plural}",
            self.path.name,
            self.scheme.name(),
            self.flows
        )
    }
}

/// Something that befalls the agent during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, after the flows' start.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What can befall an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It dies at once (SIGKILL).
    Kill,
    /// It stands still (SIGSTOP).
    Stop,
    /// It goes on (SIGCONT).
    Continue,
    /// A new agent starts with the same command.
    Restart,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Continue => "continue",
            Self::Restart => "restart",
        }
    }
}

/// The guest's `/plan`. With `bursts`, the sender's device takes segmentation bursts.
pub(super) fn render(run: &GuestRun, bursts: bool) -> String {
    let agent = match &run.scheme {
        Scheme::Kernel(_) => String::new(),
        Scheme::Agent { command, .. } => command
            .iter()
            .map(|word| quote(word))
            .collect::<Vec<_>>()
            .join(" "),
    };
    let settings = [
        ("CC", quote(run.scheme.name())),
        ("FLOWS", run.flows.to_string()),
        ("SECS", run.secs.to_string()),
        ("RATE_BPS", run.path.rate_bps.to_string()),
        ("RTT_US", run.path.rtt.as_micros().to_string()),
        // netem counts the packet in transmission, the path's queue does not.
        (
            "QUEUE_LIMIT",
            run.path.queue_packets.saturating_add(1).to_string(),
        ),
        ("LOSS_PERCENT", (run.path.loss * 100.0).to_string()),
        (
            "GSO_MAX_SEGS",
            if bursts { "65535" } else { "1" }.to_owned(),
        ),
        ("AGENT", quote(&agent)),
    ];
    settings
        .iter()
        .fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name}={value}");
            text
        })
}

/// The guest's `/events`: in time order, each with the delay since the one before.
pub(super) fn render_events(events: &[Event]) -> String {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.at);
    let mut text = String::new();
    let mut last = Duration::ZERO;
    for event in events {
        let delay = event.at - last;
        let _ = writeln!(
            text,
            "{}.{:03} {}",
            delay.as_secs(),
            delay.subsec_millis(),
            event.action.word()
        );
        last = event.at;
    }
    text
}

/// A word that the shell reads back unchanged.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scheme: Scheme) -> GuestRun {
        let [_, path, _] = <[PathSpec; 3]>::try_from(PathSpec::demo()).unwrap();
        GuestRun {
            path,
            scheme,
            flows: 4,
            secs: 30,
            events: Vec::new(),
        }
    }

    #[test]
    fn plan_of_a_kernel_scheme() {
        let run = run(Scheme::Kernel("bbr".into()));
        assert_eq!(
            render(&run, false),
            "CC='bbr'\nFLOWS=4\nSECS=30\nRATE_BPS=50000000\nRTT_US=40000\nQUEUE_LIMIT=168\nLOSS_PERCENT=1\n\
             GSO_MAX_SEGS=1\nAGENT=''\n"
        );
        assert_eq!(run.label(), "loss1, bbr, 4 flows");
    }

    #[test]
    fn shell_reads_the_agent_command_back() {
        let words = ["/bin/pk3c-ccp", "run", "--label", "it's $HOME; `x`", "a b"];
        let command = words.map(str::to_owned).to_vec();
        let plan = render(
            &run(Scheme::Agent {
                name: "pk3c".into(),
                command,
            }),
            true,
        );
        let script = format!("{plan}sh -c \"printf '%s|' $AGENT\"");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            words.map(|word| format!("{word}|")).concat()
        );
    }

    #[test]
    fn events_become_delays_in_time_order() {
        let event = |millis, action| Event {
            at: Duration::from_millis(millis),
            action,
        };
        let events = [event(12_500, Action::Restart), event(10_000, Action::Kill)];
        assert_eq!(render_events(&events), "10.000 kill\n2.500 restart\n");
        let events = [event(250, Action::Stop), event(250, Action::Continue)];
        assert_eq!(render_events(&events), "0.250 stop\n0.000 continue\n");
    }
}
