//! A path made by the kernel: netem as the bottleneck, fq at the sender.
//!
//! ```text
//!   client (fq) ─── router: netem rate, limit ─── router: netem loss ─── server: netem delay, on the way back
//! ```
//!
//! The whole RTT is a delay line on the way back: data meets the bottleneck at once, as with a short access link.
//! Segmentation offload is off on all devices, so that the bottleneck's queue holds packets that fit the MTU. netem
//! counts the packet in transmission, so its limit is the queue and one more; the link header (14 bytes) is taken off,
//! so that the rate is one of IP packets. Loss has a router of its own, behind the bottleneck or in front of it as the
//! path says, and so the two ways to get lost are counted apart.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pathsim::{Jitter, Loss, LossPlace, PathSpec, QueueDiscipline, QueueLimit, RateSchedule};

use serde::Deserialize;

use super::result::LinkResult;
use super::run::Run;
use crate::netns::{Netns, NetnsError};
use crate::path::{CLIENT, SERVER};
use crate::traffic::Bins;
use crate::tun::{self, EndSettings};

/// Packets of a delay line: more than any path here has on its way.
const LINE_PACKETS: &str = "1000000";

/// The device towards the server, and the one towards the client.
const RIGHT: &str = "right";
const LEFT: &str = "left";

/// Why there is no such path.
#[derive(Debug, thiserror::Error)]
pub enum NetemError {
    /// A namespace or a command in one.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A thread.
    #[error("cannot start the thread that changes the path's rate: {0}")]
    Start(io::Error),
    /// A change of the rate.
    #[error("the path's rate did not change as it should have: {0}")]
    Step(NetnsError),
}

/// The path. All of it ends with the value.
#[derive(Debug)]
pub(super) struct Netem {
    steps: Steps,
    client: Netns,
    server: Netns,
}

/// What changes the rate, in a thread.
#[derive(Debug)]
pub(super) struct Steps {
    begins: Option<Sender<Instant>>,
    thread: Option<JoinHandle<Result<Routers, NetnsError>>>,
}

impl Netem {
    /// Whether netem can make the path of a run just as it is meant.
    pub(super) fn can_make(run: &Run) -> bool {
        let path = &run.scenario.path;
        let rate = matches!(
            path.rate,
            RateSchedule::Constant(_) | RateSchedule::Steps(_)
        );
        rate && matches!(path.queue, QueueLimit::Packets(_))
            && path.discipline == QueueDiscipline::DropTail
            && path.policer.is_none()
            && path.shaper.is_none()
            && matches!(path.loss, Loss::None | Loss::Random(_))
            && path.ack_loss == Loss::None
            && path.jitter == Jitter::None
            && path.route_changes.is_empty()
            && path.delay_limit_packets.is_none()
            && run.scenario.flows.iter().all(|flow| flow.extra_rtt_ns == 0)
    }

    pub(super) fn open(path: &PathSpec, ends: &EndSettings) -> Result<Self, NetemError> {
        let lossy = path.loss != Loss::None;
        let mut hops = Vec::new();
        for _ in 0..if lossy { 4 } else { 3 } {
            hops.push(Netns::new()?);
        }
        // Places among the hops; the loss is in none of them if there is none.
        let (rates, loses) = match path.loss_place {
            LossPlace::InFront if lossy => (2, 1),
            _ => (1, 2),
        };
        for netns in &hops {
            // No router solicitations among the counted packets; absent where IPv6 is not built in.
            if let Err(error) = netns.sysctl("net/ipv6/conf/default/disable_ipv6", "1") {
                tracing::debug!(%error, "IPv6 stays as it is");
            }
        }
        for (cable, pair) in hops.windows(2).enumerate() {
            connect(&pair[0], &pair[1], cable, ends)?;
        }
        let (own, peer) = (CLIENT.to_string(), SERVER.to_string());
        let last = hops.len() - 1;
        for (hop, netns) in hops.iter().enumerate() {
            if hop > 0 && hop < last {
                netns.sysctl("net/ipv4/ip_forward", "1")?;
                netns.configure("ip", &["route", "add", &own, "dev", LEFT])?;
                netns.configure("ip", &["route", "add", &peer, "dev", RIGHT])?;
                continue;
            }
            let (address, device) = if hop == 0 {
                (&own, RIGHT)
            } else {
                (&peer, LEFT)
            };
            netns.configure("ip", &["address", "add", address, "dev", device])?;
            netns.configure("ip", &["route", "add", "default", "dev", device])?;
            tun::set_up_tcp(netns, ends)?;
        }
        // tc knows no ns, but fractions.
        let delay = format!("{}us", path.rtt_ns as f64 / 1e3);
        qdisc(
            &hops[last],
            LEFT,
            &["netem", "delay", &delay, "limit", LINE_PACKETS],
        )?;
        qdisc(&hops[0], RIGHT, &["fq"])?;
        if lossy {
            let ratio = percent(path.loss.ratio());
            qdisc(
                &hops[loses],
                RIGHT,
                &["netem", "loss", "random", &ratio, "limit", LINE_PACKETS],
            )?;
        }
        let steps = match &path.rate {
            RateSchedule::Steps(steps) => steps.clone(),
            constant => vec![(0, (constant.capacity_bytes(0, 1_000_000_000) * 8.0) as u64)],
        };
        let commands: Vec<_> = steps
            .iter()
            .map(|(at_ns, bps)| (Duration::from_nanos(*at_ns), bottleneck(path, *bps)))
            .collect();
        configure(&hops[rates], "add", &commands[0].1)?;
        let server = hops.remove(last);
        let client = hops.remove(0);
        let routers = Routers {
            rates: rates - 1,
            loses: lossy.then_some(loses - 1),
            netns: hops,
        };
        Ok(Self {
            steps: Steps::start(routers, commands)?,
            client,
            server,
        })
    }

    pub(super) fn client(&self) -> &Netns {
        &self.client
    }

    pub(super) fn server(&self) -> &Netns {
        &self.server
    }

    pub(super) fn split(&mut self) -> (&Netns, &Netns, &mut Steps) {
        (&self.client, &self.server, &mut self.steps)
    }

    /// Ends the path, and says what it carried.
    pub(super) fn close(mut self) -> Result<LinkResult, NetemError> {
        let routers = self.steps.join().map_err(NetemError::Step)?;
        Ok(routers
            .map(|routers| routers.counters())
            .transpose()?
            .unwrap_or_default())
    }
}

/// The hops between the ends.
#[derive(Debug)]
struct Routers {
    netns: Vec<Netns>,
    /// Which of them is the bottleneck.
    rates: usize,
    /// Which loses packets, if one does.
    loses: Option<usize>,
}

/// What tc says of a queueing discipline.
#[derive(Debug, Default, Deserialize)]
struct Counted {
    /// Packets that left it.
    packets: u64,
    drops: u64,
    qlen: u64,
}

impl Routers {
    fn counted(&self, router: usize) -> Result<Counted, NetnsError> {
        let command = ["-statistics", "-json", "qdisc", "show", "dev", RIGHT];
        let printed = self.netns[router].configure("tc", &command)?;
        let parsed: Result<[Counted; 1], _> = serde_json::from_str(&printed);
        let [counted] = parsed.map_err(|error| NetnsError::Command {
            command: format!("tc {}", command.join(" ")),
            message: format!("{error} in what it printed: {printed}"),
        })?;
        Ok(counted)
    }

    fn counters(&self) -> Result<LinkResult, NetnsError> {
        let bottleneck = self.counted(self.rates)?;
        let loss = self.loses.map(|router| self.counted(router)).transpose()?;
        let in_front = self.loses.is_some_and(|router| router < self.rates);
        let at_bottleneck = bottleneck.packets + bottleneck.drops + bottleneck.qlen;
        let losses = loss.as_ref().map_or(0, |loss| loss.drops);
        Ok(LinkResult {
            arrived: at_bottleneck + if in_front { losses } else { 0 },
            queue_drops: bottleneck.drops,
            random_losses: losses,
            delivered: match loss {
                Some(loss) if !in_front => loss.packets,
                _ => bottleneck.packets,
            },
            bin_s: Bins::LENGTH.as_secs_f64(),
            ..LinkResult::default()
        })
    }
}

impl Steps {
    /// The first command is in force already.
    fn start(routers: Routers, commands: Vec<(Duration, Vec<String>)>) -> Result<Self, NetemError> {
        let (begins, begun) = channel::<Instant>();
        let change = move || {
            let Ok(epoch) = begun.recv() else {
                return Ok(routers);
            };
            for (at, command) in commands.iter().skip(1) {
                let wait = (epoch + *at).saturating_duration_since(Instant::now());
                // The path ends with its sender.
                match begun.recv_timeout(wait) {
                    Err(RecvTimeoutError::Timeout) => {
                        configure(&routers.netns[routers.rates], "change", command)?;
                    }
                    _ => return Ok(routers),
                }
            }
            // The routers last as long as the path.
            let _ = begun.recv();
            Ok(routers)
        };
        let thread = thread::Builder::new()
            .name("rate-steps".into())
            .spawn(change)
            .map_err(NetemError::Start)?;
        Ok(Self {
            begins: Some(begins),
            thread: Some(thread),
        })
    }

    pub(super) fn begin(&mut self) -> Instant {
        let now = Instant::now();
        if let Some(begins) = &self.begins {
            // The thread waits for it, unless it failed, which `close` tells.
            let _ = begins.send(now);
        }
        now
    }

    /// Ends the thread; `None` if it had ended before.
    fn join(&mut self) -> Result<Option<Routers>, NetnsError> {
        self.begins = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.map(Some),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(None),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::debug!(%error, "a path ends with an error");
        }
    }
}

/// What the bottleneck is at a rate, in words of tc.
fn bottleneck(path: &PathSpec, bps: u64) -> Vec<String> {
    let queue = match path.queue {
        QueueLimit::Packets(packets) => packets,
        // `can_make` asks for packets.
        QueueLimit::Bytes(_) => u32::MAX,
    };
    let limit = u64::from(queue) + 1;
    let mut words = vec![
        "netem".into(),
        "rate".into(),
        format!("{bps}bit"),
        "-14".into(),
    ];
    words.extend(["limit".to_owned(), limit.to_string()]);
    words
}

/// A ratio as tc reads it: seven figures behind the point, as many as it keeps.
fn percent(ratio: f64) -> String {
    format!("{:.7}%", ratio * 100.0)
}

fn configure(router: &Netns, verb: &str, words: &[String]) -> Result<(), NetnsError> {
    let mut command = vec!["qdisc", verb, "dev", RIGHT, "root"];
    command.extend(words.iter().map(String::as_str));
    router.configure("tc", &command).map(drop)
}

fn qdisc(netns: &Netns, device: &str, words: &[&str]) -> Result<(), NetnsError> {
    let command = ["qdisc", "add", "dev", device, "root"];
    netns
        .configure("tc", &[&command[..], words].concat())
        .map(drop)
}

/// A cable between two namespaces, without offloads and without ARP, whose questions would take round trips: both of
/// its ends have the same address, and so each takes what the other sends.
fn connect(
    here: &Netns,
    there: &Netns,
    cable: usize,
    ends: &EndSettings,
) -> Result<(), NetnsError> {
    let address = format!("02:00:00:00:00:{cable:02x}");
    let location = there.location();
    let mut link = vec!["link", "add", RIGHT, "address", &address, "type", "veth"];
    link.extend([
        "peer", "name", LEFT, "address", &address, "netns", &location,
    ]);
    here.configure("ip", &link)?;
    let segments = ends.gso_max_segs.to_string();
    for (netns, device) in [(here, RIGHT), (there, LEFT)] {
        netns.configure(
            "ethtool",
            &["-K", device, "tso", "off", "gso", "off", "gro", "off"],
        )?;
        let mut link = vec!["link", "set", device, "arp", "off"];
        if ends.gso_max_segs > 0 {
            link.extend(["gso_max_segs", &segments]);
        }
        link.push("up");
        netns.configure("ip", &link)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottleneck_counts_ip_packets_and_the_one_in_transmission() {
        let mut path = PathSpec::clean(50_000_000, 40_000_000);
        assert_eq!(
            bottleneck(&path, 50_000_000).join(" "),
            "netem rate 50000000bit -14 limit 168"
        );
        path.queue = QueueLimit::Packets(10);
        let words = bottleneck(&path, 1_000_000).join(" ");
        assert!(words.ends_with("limit 11"), "{words}");
        assert_eq!(percent(0.0001), "0.0100000%");
    }

    #[test]
    fn counters_are_read_from_what_tc_prints() {
        // tc of iproute2 6.1.
        let printed = r#"[{"kind":"netem","handle":"8001:","root":true,"options":{"limit":168,"loss-random":
            {"loss":0.01,"correlation":0},"ecn":false,"gap":0},"bytes":1514,"packets":10,"drops":3,"overlimits":0,
            "requeues":0,"backlog":0,"qlen":2}]"#;
        let [counted]: [Counted; 1] = serde_json::from_str(printed).unwrap();
        assert_eq!((counted.packets, counted.drops, counted.qlen), (10, 3, 2));
    }
}
