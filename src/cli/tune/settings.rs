//! What PK3C wants of the kernel's settings, and what it does not, each with its reason.
//!
//! A window-based algorithm backs off long before the buffers of a fast, long path are used up; PK3C keeps its rate
//! through random loss, so that on such paths the buffer is what limits it. Everything else here is about cost, or is
//! listed because guides recommend it although it does nothing for PK3C.

use serde::Serialize;

/// Room for 1 Gbit/s over 100 ms (12.5 MB) twice, because TCP wants a buffer of two windows: the sender to go on while
/// it repairs a loss (`tcp_sndbuf_expand`), the receiver for its own overhead (`tcp_adv_win_scale`). 25 MB, rounded up
/// to a power of two.
const BUFFER_BYTES: u64 = 32 << 20;
/// `SO_SNDBUF` and `SO_RCVBUF` are doubled by the kernel (`sock_setsockopt`), so that half of it asks for the whole.
const ASKED_BYTES: u64 = BUFFER_BYTES / 2;
/// What kernels and distributions choose; anything else somebody has chosen.
const DEFAULT_QDISCS: [&str; 2] = ["pfifo_fast", "fq_codel"];

/// How a setting is judged.
#[derive(Clone, Copy, Debug)]
enum Want {
    /// A number of bytes, at least.
    Bytes(u64),
    /// The last of three numbers of bytes, at least; the others stay.
    LargestBytes(u64),
    /// Queueing that paces, in the place of a default.
    Fq,
    /// Nothing: only shown.
    Nothing,
}

/// One setting of the kernel.
#[derive(Debug)]
pub(super) struct Setting {
    /// As `sysctl` names it.
    pub(super) name: &'static str,
    want: Want,
    /// What it does to PK3C.
    pub(super) why: &'static str,
    /// Where that is written.
    pub(super) source: &'static str,
}

/// What is to be done about a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "status", content = "wanted")]
pub(super) enum Verdict {
    /// As PK3C wants it, or larger.
    Ok,
    /// This value would be better.
    Change(String),
    /// Left as it is: it does not matter, or is the operator's decision.
    Leave,
    /// This kernel does not have it, or it cannot be read or understood.
    Unknown,
}

/// All settings, those that `--apply` changes first.
pub(super) const ALL: [Setting; 9] = [
    Setting {
        name: "net.ipv4.tcp_wmem",
        want: Want::LargestBytes(BUFFER_BYTES),
        why: "the largest send buffer limits the window: 4 MiB are 168 Mbit/s over 100 ms, 32 MiB 1.3 Gbit/s; memory \
              is taken as the window grows, not before",
        source: "Documentation/networking/ip-sysctl.rst; net/ipv4/tcp_input.c: tcp_sndbuf_expand",
    },
    Setting {
        name: "net.ipv4.tcp_rmem",
        want: Want::LargestBytes(BUFFER_BYTES),
        why: "the same at the receiving end, for what this machine takes in: a PK3C sender cannot go beyond the window \
              that the receiver offers",
        source: "Documentation/networking/ip-sysctl.rst: tcp_rmem, tcp_adv_win_scale",
    },
    Setting {
        name: "net.core.wmem_max",
        want: Want::Bytes(ASKED_BYTES),
        why: "limits programs that set SO_SNDBUF themselves, which turns the growing buffer off: 208 KiB hold them at \
              17 Mbit/s over 100 ms",
        source: "Documentation/admin-guide/sysctl/net.rst; net/core/sock.c: sock_setsockopt",
    },
    Setting {
        name: "net.core.rmem_max",
        want: Want::Bytes(ASKED_BYTES),
        why: "the same for SO_RCVBUF",
        source: "Documentation/admin-guide/sysctl/net.rst; net/core/sock.c: sock_setsockopt",
    },
    Setting {
        name: "net.core.default_qdisc",
        want: Want::Fq,
        why: "fq paces for TCP with one timer per device; without it every socket has its own, which costs more with \
              thousands of flows. For devices that appear from now on; for others: tc qdisc replace dev DEV root fq",
        source: "Linux commit 218af599fa63; tc-fq(8)",
    },
    Setting {
        name: "net.ipv4.tcp_notsent_lowat",
        want: Want::Nothing,
        why: "how much unsent data a socket takes. A server that chooses what to send late (HTTP/2, adaptive video) \
              gains by 131072 or so; one that fills the socket seldom would starve the flow. It concerns all TCP, and \
              programs can set TCP_NOTSENT_LOWAT instead",
        source: "Documentation/networking/ip-sysctl.rst; tcp(7)",
    },
    Setting {
        name: "net.ipv4.tcp_min_tso_segs",
        want: Want::Nothing,
        why: "below 12 Mbit/s TCP sends so many packets at once, two unless told otherwise: on a line of some 100 kbit/s \
              1 takes one packet off the queue. It concerns all TCP, and costs CPU time per byte",
        source: "Documentation/networking/ip-sysctl.rst; net/ipv4/tcp_output.c: tcp_tso_autosize",
    },
    Setting {
        name: "net.ipv4.tcp_slow_start_after_idle",
        want: Want::Nothing,
        why: "does nothing for PK3C: the kernel skips it for a congestion control that sets the rate itself",
        source: "include/net/tcp.h: tcp_slow_start_after_idle_check",
    },
    Setting {
        name: "net.ipv4.tcp_no_metrics_save",
        want: Want::Nothing,
        why: "PK3C does not use the threshold that the kernel remembers of a destination; its RTT, for the first \
              retransmission timer, is useful. Measurements set 1, to be independent of each other",
        source: "net/ipv4/tcp_metrics.c: tcp_init_metrics",
    },
];

impl Setting {
    /// Judges a value, as the kernel's file shows it.
    pub(super) fn judge(&self, current: &str) -> Verdict {
        let words: Vec<_> = current.split_whitespace().collect();
        let enough = match (self.want, words.as_slice()) {
            (Want::Nothing, _) => return Verdict::Leave,
            (Want::Fq, ["fq"]) => Some(true),
            (Want::Fq, [qdisc]) if DEFAULT_QDISCS.contains(qdisc) => Some(false),
            (Want::Fq, [_]) => return Verdict::Leave,
            (Want::Bytes(least), [bytes]) => at_least(bytes, least),
            (Want::LargestBytes(least), [_, _, largest]) => at_least(largest, least),
            _ => None,
        };
        let better = || match (self.want, words.as_slice()) {
            (Want::Bytes(least), _) => least.to_string(),
            (Want::LargestBytes(least), [small, usual, ..]) => format!("{small} {usual} {least}"),
            _ => "fq".to_owned(),
        };
        match enough {
            Some(true) => Verdict::Ok,
            Some(false) => Verdict::Change(better()),
            None => Verdict::Unknown,
        }
    }
}

/// `None` if the text is no number.
fn at_least(text: &str, least: u64) -> Option<bool> {
    text.parse().ok().map(|bytes: u64| bytes >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(name: &str, current: &str) -> Verdict {
        let setting = ALL.iter().find(|setting| setting.name == name).unwrap();
        setting.judge(current)
    }

    #[test]
    fn only_what_is_too_small_changes_and_only_the_largest_of_three() {
        let wmem = "net.ipv4.tcp_wmem";
        assert_eq!(
            judge(wmem, "4096\t16384\t4194304"),
            Verdict::Change("4096 16384 33554432".to_owned())
        );
        assert_eq!(judge(wmem, "4096 16384 33554432"), Verdict::Ok);
        assert_eq!(judge(wmem, "8192 65536 67108864"), Verdict::Ok);
        let asked = "net.core.wmem_max";
        assert_eq!(
            judge(asked, "212992"),
            Verdict::Change("16777216".to_owned())
        );
        assert_eq!(judge(asked, "20971520"), Verdict::Ok);
    }

    #[test]
    fn a_chosen_qdisc_stays() {
        let qdisc = "net.core.default_qdisc";
        assert_eq!(judge(qdisc, "fq"), Verdict::Ok);
        assert_eq!(judge(qdisc, "pfifo_fast"), Verdict::Change("fq".to_owned()));
        assert_eq!(judge(qdisc, "fq_codel"), Verdict::Change("fq".to_owned()));
        assert_eq!(judge(qdisc, "cake"), Verdict::Leave);
    }

    #[test]
    fn what_is_no_value_of_the_setting_is_not_touched() {
        assert_eq!(judge("net.ipv4.tcp_wmem", "4096 16384"), Verdict::Unknown);
        assert_eq!(judge("net.core.rmem_max", "many"), Verdict::Unknown);
        assert_eq!(judge("net.core.default_qdisc", ""), Verdict::Unknown);
        assert_eq!(judge("net.ipv4.tcp_notsent_lowat", ""), Verdict::Leave);
    }
}
