//! The smallest agent: every flow of `ccpfixed` gets the same pacing rate and window.
//!
//! `cargo run -p ccp-bpf --example fixed -- 12500000 64000` paces at 12.5 MB/s, then
//! `iperf3 -c HOST -C ccpfixed`.

use portus::ipc::{BackendBuilder, Ipc};
use portus::lang::Scope;
use portus::{CongAlg, Datapath, DatapathInfo, DatapathTrait, Flow, Report, RunBuilder};
use std::collections::HashMap;

const PROGRAM: &str = "
    (def (Report (volatile acked 0) (volatile lost 0) (volatile rtt +infinity)))
    (when true
        (:= Report.acked (+ Report.acked Ack.bytes_acked))
        (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
        (:= Report.rtt (min Report.rtt Flow.rtt_sample_us))
        (fallthrough))
    (when (> Micros 1000000) (:= Micros 0) (report))";

struct Fixed {
    rate: u32,
    cwnd: u32,
}

struct FixedFlow(Scope);

impl<I: Ipc> CongAlg<I> for Fixed {
    type Flow = FixedFlow;

    fn name() -> &'static str {
        "fixed"
    }

    fn datapath_programs(&self) -> HashMap<&'static str, String> {
        HashMap::from([("fixed", PROGRAM.to_owned())])
    }

    fn new_flow(&self, mut control: Datapath<I>, info: DatapathInfo) -> FixedFlow {
        println!("{info:?}");
        let fields = [("Rate", self.rate), ("Cwnd", self.cwnd)];
        FixedFlow(
            control
                .set_program("fixed", Some(&fields))
                .expect("the program is installed"),
        )
    }
}

impl Flow for FixedFlow {
    fn on_report(&mut self, sock_id: u32, report: Report) {
        let get = |field: &str| report.get_field(field, &self.0).unwrap_or(0);
        let (acked, lost, rtt) = (get("Report.acked"), get("Report.lost"), get("Report.rtt"));
        println!("{sock_id:#x}: {acked} bytes acked, {lost} packets lost, RTT {rtt} us");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u32>());
    let rate = arguments
        .next()
        .ok_or("usage: fixed RATE(bytes/s) CWND(bytes)")??;
    let cwnd = arguments
        .next()
        .ok_or("usage: fixed RATE(bytes/s) CWND(bytes)")??;
    let datapath = ccp_bpf::Datapath::start(ccp_bpf::Config::new("ccpfixed"))?;
    let backend = BackendBuilder {
        sock: datapath.ipc()?,
    };
    RunBuilder::new(backend)
        .default_alg(Fixed { rate, cwnd })
        .run()
        .map_err(|e| e.0)?;
    datapath.stop()?;
    Ok(())
}
