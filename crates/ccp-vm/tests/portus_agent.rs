//! An unmodified portus algorithm drives a flow of [`Datapath`]: portus' run loop on one side, a
//! window's worth of ACKs per round trip on the other, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccp_vm::{Datapath, FlowInfo, Limits, Primitives};
use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::Scope;
use portus::{CongAlg, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Halves its window on a loss, else adds a segment per report.
struct Aimd;

struct AimdFlow<I: Ipc> {
    datapath: portus::Datapath<I>,
    scope: Scope,
    mss: u32,
    cwnd: u32,
}

impl<I: Ipc> CongAlg<I> for Aimd {
    type Flow = AimdFlow<I>;

    fn name() -> &'static str {
        "aimd"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        let program = "
            (def (Report (volatile acked 0) (volatile lost 0)))
            (when true
                (:= Report.acked (+ Report.acked Ack.bytes_acked))
                (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
                (fallthrough))
            (when (> Micros Flow.rtt_sample_us) (report) (:= Micros 0))";
        HashMap::from([("aimd", program.to_owned())])
    }

    fn new_flow(&self, mut datapath: portus::Datapath<I>, info: DatapathInfo) -> AimdFlow<I> {
        let cwnd = info.init_cwnd;
        let scope = datapath
            .set_program("aimd", Some(&[("Cwnd", cwnd)]))
            .unwrap();
        AimdFlow {
            datapath,
            scope,
            mss: info.mss,
            cwnd,
        }
    }
}

impl<I: Ipc> Flow for AimdFlow<I> {
    fn on_report(&mut self, _sock_id: u32, report: Report) {
        if report.get_field("Report.lost", &self.scope).unwrap() > 0 {
            self.cwnd /= 2;
        } else {
            self.cwnd += self.mss;
        }
        let update = [("Cwnd", self.cwnd)];
        self.datapath.update_field(&self.scope, &update).unwrap();
    }
}

struct Channel {
    from_datapath: Receiver<Vec<u8>>,
    to_datapath: Sender<Vec<u8>>,
}

impl Ipc for Channel {
    type Addr = ();

    fn name() -> String {
        "channel".into()
    }

    fn send(&self, message: &[u8], _: &()) -> portus::Result<()> {
        // The test may have ended.
        let _ = self.to_datapath.send(message.to_vec());
        Ok(())
    }

    fn recv(&self, out: &mut [u8]) -> portus::Result<(usize, ())> {
        let next = self.from_datapath.recv_timeout(Duration::from_millis(10));
        let message = next.unwrap_or_default();
        out[..message.len()].copy_from_slice(&message);
        Ok((message.len(), ()))
    }

    fn close(&mut self) -> portus::Result<()> {
        Ok(())
    }
}

#[test]
fn a_portus_algorithm_drives_a_flow() {
    let (to_agent, from_datapath) = channel();
    let (to_datapath, from_agent) = channel();
    let sock = Channel {
        from_datapath,
        to_datapath,
    };
    let agent = RunBuilder::new(BackendBuilder { sock })
        .default_alg(Aimd)
        .spawn_thread()
        .run()
        .unwrap();
    let mut datapath = Datapath::new(Limits::default());
    // Sends, and delivers the one message that the agent answers with.
    let exchange = |datapath: &mut Datapath, message: &[u8]| {
        to_agent.send(message.to_vec()).unwrap();
        let answer = from_agent.recv_timeout(Duration::from_secs(10)).unwrap();
        datapath.deliver(&answer).unwrap();
    };
    let ready = datapath.ready(1);
    exchange(&mut datapath, &ready);
    let (info, mut out) = (FlowInfo::default(), Vec::new());
    let sid = datapath.open(&info, &mut out).unwrap();
    exchange(&mut datapath, &out);

    let mss = u64::from(info.mss);
    let rtt_us = 20_000;
    let (mut now_us, mut cwnd, mut rounds) = (0, 0, Vec::new());
    while rounds.len() < 50 {
        now_us += 1000;
        out.clear();
        let ack = Primitives {
            bytes_acked: mss,
            rtt_sample_us: rtt_us,
            lost_pkts_sample: u64::from(rounds.len() == 25 && cwnd > 30 * mss),
            ..Primitives::default()
        };
        let outcome = datapath
            .invoke(sid, now_us, &ack, cwnd, 0, &mut out)
            .unwrap();
        assert_eq!((outcome.error, outcome.rate), (None, None));
        cwnd = outcome.cwnd.unwrap();
        if let Some(report) = outcome.report {
            assert!(now_us - rounds.last().map_or(0, |(at, _)| *at) > rtt_us);
            assert_eq!(report.fields()[0] % mss, 0);
            rounds.push((now_us, cwnd / mss));
            exchange(&mut datapath, &out);
        }
    }
    let windows: Vec<_> = rounds.iter().map(|(_, window)| *window).collect();
    assert_eq!(windows[..26], (10..=35).collect::<Vec<_>>());
    assert_eq!(windows[26..], (17..=40).collect::<Vec<_>>());
    agent.kill();
    agent.wait().unwrap();
}
