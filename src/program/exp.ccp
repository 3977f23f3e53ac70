# exp: Reno that starts faster and yields less.
#
# It runs once per ACK and decides by itself; the agent writes mss, w and ssthresh when it installs it, and later
# mss alone when that changes. w is the congestion window, in bytes, and may be below the four segments that a datapath keeps
# at least.
# recovery: bytes that must be acknowledged before another loss is a new one. after_rto: they are those of a timeout,
# during which the window grows. credit: bytes acknowledged towards the next segment of congestion avoidance.
(def
  (Report (volatile acked 0) (volatile lost 0))
  (mss 1448) (w 14480) (ssthresh +infinity) (credit 0) (recovery 0) (after_rto 0)
)
# A retransmission timeout: one segment, and slow start. Another one meanwhile says nothing new of the path.
(when (&& Flow.was_timeout true)
  (:= ssthresh (if (== recovery 0) (max (/ (* w 3) 4) (* 2 mss))))
  (:= recovery (max (min w Flow.bytes_pending) 1))
  (:= after_rto 1)
  (:= w mss)
  (:= credit 0)
  (:= Cwnd (* 4 mss))
  (report)
)
# The first loss of a window, or mark (ECN). The receiver repeats a mark until all that is in flight now is acknowledged.
(when (&& (== recovery 0) (|| (> Ack.lost_pkts_sample 0) (> Ack.ecn_packets 0)))
  (:= recovery (max (min w Flow.bytes_pending) 1))
  (:= recovery (if (> Ack.ecn_packets 0) (max recovery (+ Flow.bytes_in_flight mss))))
  (:= after_rto 0)
  (:= ssthresh (max (/ (* w 3) 4) (* 2 mss)))
  (:= w ssthresh)
  (:= credit 0)
  (:= Report.acked (+ Report.acked Ack.bytes_acked))
  (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
  (:= Cwnd (max w (* 4 mss)))
  (report)
)
# A window that is not what limits the flow does not grow.
(when true
  (:= grows (&& (|| (== recovery 0) (== after_rto 1)) (< w (* 2 (+ Flow.bytes_in_flight Ack.bytes_acked)))))
  (fallthrough)
)
# Congestion avoidance: a segment per window.
(when (&& grows (> (+ w 1) ssthresh))
  (:= credit (+ credit Ack.bytes_acked))
  (fallthrough)
)
(when (> credit w)
  (:= credit (- credit w))
  (:= w (+ w mss))
  (fallthrough)
)
# Slow start: two bytes more for each byte acknowledged, so three times the window per RTT.
(when (&& grows (< w ssthresh))
  (:= w (min (+ w (* 2 Ack.bytes_acked)) ssthresh))
  (fallthrough)
)
(when true
  (:= recovery (- (max recovery Ack.bytes_acked) Ack.bytes_acked))
  (:= after_rto (if (== recovery 0) 0))
  (:= Report.acked (+ Report.acked Ack.bytes_acked))
  (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
  (:= Cwnd (max w (* 4 mss)))
  (fallthrough)
)
(when (> Micros 200000)
  (:= Micros 0)
  (report)
)
