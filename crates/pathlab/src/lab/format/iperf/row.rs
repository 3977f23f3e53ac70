//! Single rows of iperf, column by column.

use std::fmt::Write;

use crate::lab::format::printf::{bits_per_second, bytes, g};

/// Heading of iperf3's summary.
pub(super) const HEAD_3: &str = "[ ID] Interval           Transfer     Bitrate         Retr\n";
/// Heading of iperf2.
pub(super) const HEAD_2: &str = "[ ID] Interval       Transfer     Bandwidth\n";

/// A row of iperf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// Number of the stream; `None` for the sum.
    pub(super) id: Option<u32>,
    /// Begin and end, s.
    pub(super) interval: [f64; 2],
    /// Bytes.
    pub(super) bytes: f64,
    /// Rate, Mbit/s.
    pub(super) mbps: f64,
}

/// Whose row of iperf3 it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Side {
    /// With its retransmissions.
    Sender(u64),
    /// At the end.
    Receiver,
    /// In an interval.
    Interval,
}

fn id(id: Option<u32>) -> String {
    id.map_or("[SUM]".to_owned(), |id| format!("[{id:3}]"))
}

/// As iperf3 prints it.
pub(super) fn row_3(row: &Row, side: Side) -> String {
    // Numbers take four columns.
    let padded = |text: String| {
        format!(
            "{}{text}",
            " ".repeat(4usize.saturating_sub(text.find(' ').unwrap_or(0)))
        )
    };
    let [from, to] = row.interval;
    let mut text = format!(
        "{} {from:6.2}-{to:<6.2} sec  {}  {}",
        id(row.id),
        padded(bytes(row.bytes)),
        padded(bits_per_second(row.mbps))
    );
    let _ = match (side, row.id) {
        (Side::Sender(retransmissions), _) => {
            write!(text, "  {retransmissions:3}             sender")
        }
        (Side::Receiver, _) => write!(text, "                  receiver"),
        (Side::Interval, _) => Ok(()),
    };
    text + "\n"
}

/// As iperf2 prints it.
pub(super) fn row_2(row: &Row) -> String {
    let [from, to] = row.interval;
    format!(
        "{} {from:.1}-{to:.1} sec  {}  {}\n",
        id(row.id),
        bytes(row.bytes),
        bits_per_second(row.mbps)
    )
}

/// The report of a server of UDP, as iperf2 prints it.
pub(super) fn row_udp(row: &Row, jitter_ms: f64, lost: u64, sent: u64) -> String {
    let percent = lost as f64 / (sent as f64).max(1.0) * 100.0;
    let line = row_2(row);
    format!(
        "{}  {jitter_ms:.3} ms {lost:>4}/{sent:>5} ({}%)\n",
        line.trim_end(),
        g(percent, 2)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBYTE: f64 = 1_048_576.0;

    #[test]
    fn rows_have_the_columns_of_iperf3() {
        let row = |id, to, mbytes: f64, mbps| Row {
            id,
            interval: [0.0, to],
            bytes: mbytes * MBYTE,
            mbps,
        };
        let text = HEAD_3.to_owned()
            + &row_3(&row(Some(5), 60.0, 48.8, 6.82), Side::Sender(748))
            + &row_3(&row(Some(5), 60.16, 43.2, 6.03), Side::Receiver)
            + &row_3(&row(None, 60.0, 748.0, 105.0), Side::Sender(11_728))
            + &row_3(&row(None, 60.16, 697.0, 97.1), Side::Receiver);
        let expected = "\
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-60.00  sec  48.8 MBytes  6.82 Mbits/sec  748             sender
[  5]   0.00-60.16  sec  43.2 MBytes  6.03 Mbits/sec                  receiver
[SUM]   0.00-60.00  sec   748 MBytes   105 Mbits/sec  11728             sender
[SUM]   0.00-60.16  sec   697 MBytes  97.1 Mbits/sec                  receiver
";
        assert_eq!(text, expected);
    }

    #[test]
    fn rows_have_the_columns_of_iperf2() {
        let row = |to, mbytes: f64, mbps| Row {
            id: Some(3),
            interval: [0.0, to],
            bytes: mbytes * MBYTE,
            mbps,
        };
        assert_eq!(
            row_2(&row(60.0, 674.0, 94.2)),
            "[  3] 0.0-60.0 sec  674 MBytes  94.2 Mbits/sec\n"
        );
        assert_eq!(
            row_udp(&row(60.1, 141.0, 19.6), 0.416, 431, 100_735),
            "[  3] 0.0-60.1 sec  141 MBytes  19.6 Mbits/sec  0.416 ms  431/100735 (0.43%)\n"
        );
    }
}
