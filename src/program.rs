//! The CCP program that runs on every ACK, and the meaning of what it reports.
//!
//! The program (`program/pk3c.ccp`) measures up to four rates one after the other without an agent round trip and
//! attributes every ACK to the interval in which its packet was *sent* (`now - rtt`). An agent that answers late
//! delays the next plan, but never blurs a measurement. One [`RawReport`] comes back per interval ("slot").
//!
//! A datapath gives room for 16 report fields, 16 control fields and 255 instructions; the tests below hold the
//! program to it.

/// Name under which the program is installed.
pub const NAME: &str = "pk3c";

/// The program's text with its comments.
const SOURCE: &str = include_str!("program/pk3c.ccp");

/// The program as the portus compiler takes it, which knows comments only in some places.
#[must_use]
pub fn text() -> String {
    without_comments(SOURCE)
}

pub(crate) fn without_comments(source: &str) -> String {
    let lines: Vec<_> = source.lines().filter(|l| !l.starts_with('#')).collect();
    lines.join("\n")
}

/// One report of the program: sums over the ACKs of one slot. Where `n` is 0 no ACK carried an RTT sample, and only
/// `tag`, `sdur`, `dlv` and `lost` mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawReport {
    /// `plan * 32 + slot`, plus 16 if a retransmission timeout caused the report. The slot is 0 for what was sent
    /// before the plan, 1 to 4, 5 for the holding rate, and before the first plan 9, or 10 with the ACK of all that was
    /// written.
    pub tag: u64,
    /// How long packets of this slot were being sent, µs. 0 in slot 0, and where a timeout caused the report.
    pub sdur: u64,
    /// Packets that arrived (acknowledged, selectively acknowledged, or twice by a D-SACK), modulo 2^32, less those
    /// that `lost` has for marks.
    pub dlv: u64,
    /// Packets found lost, less earlier ones found to have been late only, and one for every RTT with ECN marks.
    pub lost: u64,
    /// Number of RTT samples (ACKs that carried one).
    pub n: u64,
    /// Σ t, µs; t = send time since the slot began, clamped below 2^22.
    pub st: u64,
    /// Σ rtt, µs; rtt is clamped below 2^22.
    pub sr: u64,
    /// Σ t·rtt, µs².
    pub srt: u64,
    /// Σ t², µs².
    pub stt: u64,
    /// Σ rtt², µs².
    pub srr: u64,
    /// Smallest RTT, µs.
    pub rmin: u64,
    /// Largest RTT, µs.
    pub rmax: u64,
    /// Σ lost·rtt over ACKs with a sample, µs·packets.
    pub srl: u64,
    /// Time of the first ACK with a sample, µs of the datapath's clock.
    pub a0: u64,
    /// Time of the last ACK with a sample, µs of the datapath's clock.
    pub a1: u64,
    /// Packets counted in `srl`.
    pub nl: u64,
}

/// Names of the report fields, in the order of [`RawReport::from_fields`].
pub const REPORT_FIELDS: [&str; 16] = [
    "Report.tag",
    "Report.sdur",
    "Report.dlv",
    "Report.lost",
    "Report.n",
    "Report.st",
    "Report.sr",
    "Report.srt",
    "Report.stt",
    "Report.srr",
    "Report.rmin",
    "Report.rmax",
    "Report.srl",
    "Report.a0",
    "Report.a1",
    "Report.nl",
];

impl RawReport {
    /// Takes the values of [`REPORT_FIELDS`], in that order.
    #[must_use]
    pub fn from_fields(fields: [u64; 16]) -> Self {
        let [
            tag,
            sdur,
            dlv,
            lost,
            n,
            st,
            sr,
            srt,
            stt,
            srr,
            rmin,
            rmax,
            srl,
            a0,
            a1,
            nl,
        ] = fields;
        Self {
            tag,
            sdur,
            dlv,
            lost,
            n,
            st,
            sr,
            srt,
            stt,
            srr,
            rmin,
            rmax,
            srl,
            a0,
            a1,
            nl,
        }
    }

    /// The inverse of [`RawReport::from_fields`].
    #[must_use]
    pub fn fields(&self) -> [u64; 16] {
        [
            self.tag, self.sdur, self.dlv, self.lost, self.n, self.st, self.sr, self.srt, self.stt,
            self.srr, self.rmin, self.rmax, self.srl, self.a0, self.a1, self.nl,
        ]
    }

    /// Number of the plan this report belongs to.
    #[must_use]
    pub fn plan(&self) -> u32 {
        u32::try_from(self.tag / 32).unwrap_or(u32::MAX)
    }

    /// Whether a retransmission timeout caused this report. Its slot is then incomplete.
    #[must_use]
    pub fn timeout(&self) -> bool {
        self.tag & 16 != 0
    }

    /// Whether it came, before the first plan, with the ACK of all that was written: what comes next is a flight of its
    /// own.
    #[must_use]
    pub fn ends_flight(&self) -> bool {
        self.tag & 15 == 10
    }

    /// The slot within the plan.
    #[must_use]
    pub fn slot(&self) -> Slot {
        match self.tag & 15 {
            0 => Slot::Before,
            k @ 1..=4 => Slot::Trial(usize::try_from(k - 1).unwrap_or(0)),
            _ => Slot::Hold,
        }
    }
}

/// Which part of a plan a report describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Packets sent before the plan took hold: telemetry without a rate.
    Before,
    /// One of the plan's four rates, counted from 0.
    Trial(usize),
    /// Packets sent after the four, at the plan's holding rate; reported every interval until the next plan.
    Hold,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ccp_vm::{Machine, Primitives, Program, Updates};
    use portus::lang::{Reg, compile};
    use std::sync::Arc;

    /// A machine that is about to run this program.
    pub(crate) fn machine(text: &str) -> Machine {
        let (bin, scope) = compile(text.as_bytes(), &[]).unwrap();
        let mut install = scope.program_uid.to_le_bytes().to_vec();
        install.extend((bin.events.len() as u32).to_le_bytes());
        install.extend((bin.instrs.len() as u32).to_le_bytes());
        install.extend(bin.serialize().unwrap());
        let mut machine = Machine::new();
        let program = Program::parse(&install).unwrap();
        machine.change_program(Arc::new(program), &Updates::default());
        machine
    }

    /// An ACK of two packets of 1448 bytes, 30 ms after they were sent, in a window of 20.
    pub(crate) fn ack(marked: bool) -> Primitives {
        Primitives {
            bytes_acked: 2 * 1448,
            packets_acked: 2,
            ecn_packets: if marked { 2 } else { 0 },
            rtt_sample_us: 30_000,
            bytes_in_flight: 18 * 1448,
            packets_in_flight: 18,
            bytes_pending: 1 << 20,
            ..Primitives::default()
        }
    }

    #[test]
    fn marks_count_as_one_loss_per_rtt() {
        // An ACK per 3 ms. The queue marks once; then it marks everything.
        for (marked, losses) in [(10..20, 1), (10..100, 6)] {
            let mut machine = machine(&text());
            let mut reports: Vec<RawReport> = Vec::new();
            for i in 0..110 {
                let at_us = 1_000_000 + 3000 * i;
                let out = machine.invoke(at_us, &ack(marked.contains(&i)), 20 * 1448, 1_000_000);
                assert_eq!(out.error, None);
                let fields = out.report.as_ref().map(|r| r.fields().try_into().unwrap());
                reports.extend(fields.map(RawReport::from_fields));
            }
            let sum = |field: fn(&RawReport) -> u64| reports.iter().map(field).sum::<u64>();
            assert_eq!((sum(|r| r.lost), sum(|r| r.nl)), (losses, losses));
            assert_eq!(sum(|r| r.srl), losses * 30_000, "at their RTT");
            assert_eq!(
                sum(|r| r.dlv) + losses,
                2 * sum(|r| r.n),
                "not delivered, either"
            );
        }
    }

    #[test]
    fn compiles_within_the_limits_of_a_datapath() {
        let (bin, scope) = compile(text().as_bytes(), &[]).unwrap();
        assert!(bin.instrs.len() <= 255, "{} instructions", bin.instrs.len());
        let mut reports = 0;
        for (index, name) in REPORT_FIELDS.iter().enumerate() {
            match scope.get(name) {
                Some(Reg::Report(at, _, true)) => {
                    assert_eq!(usize::from(*at), index, "{name}");
                    reports += 1;
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(reports, 16);
        let highest = bin
            .instrs
            .iter()
            .flat_map(|i| [&i.res, &i.left, &i.right])
            .fold((0, 0, 0), |(control, tmp, local), reg| match *reg {
                Reg::Control(at, ..) => (control.max(at), tmp, local),
                Reg::Tmp(at, _) => (control, tmp.max(at), local),
                Reg::Local(at, _) => (control, tmp, local.max(at)),
                _ => (control, tmp, local),
            });
        assert!(
            highest.0 <= 15 && highest.1 <= 7 && highest.2 <= 5,
            "{highest:?}"
        );
        bin.serialize().unwrap();
    }

    #[test]
    fn tags_split_into_plan_slot_and_timeout() {
        let report = |tag| RawReport {
            tag,
            ..RawReport::default()
        };
        assert_eq!(report(7 * 32).slot(), Slot::Before);
        assert_eq!(report(7 * 32 + 4).slot(), Slot::Trial(3));
        assert_eq!(report(7 * 32 + 5).slot(), Slot::Hold);
        assert_eq!(report(9).slot(), Slot::Hold);
        assert_eq!(report(7 * 32 + 5).plan(), 7);
        assert!(report(16 + 2).timeout() && !report(32 + 2).timeout());
    }

    #[test]
    fn fields_keep_their_order() {
        let fields = std::array::from_fn(|i| i as u64 + 100);
        assert_eq!(RawReport::from_fields(fields).fields(), fields);
    }
}
