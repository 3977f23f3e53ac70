# PK3C's datapath program: monitor intervals attributed by send time.
#
# It runs once per ACK. The agent writes plan, r1..r4, hold, mi, tx=0 in one update. Then
#   tx side: the next ACK starts slot 1 (rate r1); each ACK more than mi after the last boundary starts
#            the next slot, after slot 4 the rate is hold. b0..b4 are the five boundaries, in us.
#   rx side: a packet acknowledged now was sent at Ack.now - rtt. The first ACK of a packet sent after
#            boundary b_k closes slot k: it is reported and slot k+1 opens. cur is the open slot's start.
# Slot 0 is what was sent before the plan took hold, slot 5 what is sent after it, reported every mi.
# tx = rx = 9 is the state before the first plan; it measures like slot 5. The rate then is r1, or hold after the ACK of all that was
# written, which is reported as slot 10: what an application writes next leaves as one burst, and tells the path's rate by its ACKs.
# The chains run from the last slot to the first, so that one ACK moves each side by one slot at most.
# Every difference is written so that it cannot underflow, because that would silence the flow.
(def
  (Report
    (volatile tag 0) (volatile sdur 0) (volatile dlv 0) (volatile lost 0)
    (volatile n 0) (volatile st 0) (volatile sr 0) (volatile srt 0) (volatile stt 0) (volatile srr 0)
    (volatile rmin +infinity) (volatile rmax 0) (volatile srl 0)
    (volatile a0 0) (volatile a1 0) (volatile nl 0)
  )
  (plan 0) (r1 0) (r2 0) (r3 0) (r4 0) (hold 0) (mi 10000)
  (b0 0) (b1 0) (b2 0) (b3 0) (b4 0) (cur 0)
  (tx 9) (rx 9) (marked 0)
)
# A retransmission timeout: report at once. This ACK's counters, with all that the timeout declared lost, are deliberately left out.
(when (&& Flow.was_timeout true)
  (:= Report.tag (+ (* plan 32) (+ 16 rx)))
  (report)
)
# packets_acked alone may wrap below zero; the sum is exact modulo 2^32.
(when true
  (:= Report.dlv (+ Report.dlv (+ Ack.packets_acked Ack.packets_misordered)))
  (:= lost Ack.lost_pkts_sample)
  (:= rtt Flow.rtt_sample_us)
  (fallthrough)
)
# A mark (ECN) says what a loss says, and counts as one: a packet lost and not delivered. The receiver repeats it in every ACK
# for an RTT, until it hears that it was heard, so the number of packets means nothing. marked: none counts before.
(when (&& (> Ack.ecn_packets 0) (&& (> Ack.now marked) (< rtt 2000000000)))
  (:= lost (+ lost 1))
  (:= Report.dlv (- (max Report.dlv 1) 1))
  (:= marked (+ Ack.now (+ rtt (/ rtt 2))))
  (fallthrough)
)
(when true (:= Report.lost (+ Report.lost lost)) (fallthrough))
# The RTT of a repeated packet is its timestamp's: whole milliseconds, and up to one too low. It tells when the packet was sent,
# but below 20 ms it is no measure of a queue: 0.
(when (&& (< Flow.rtt_sample_us 20000) (== Flow.rtt_sample_us (* 1000 (/ Flow.rtt_sample_us 1000))))
  (:= rtt 0)
  (fallthrough)
)
# RTT samples of packets sent in the open slot. A missing sample reads 4294967295.
# Both factors are below 2^22, so that a million products fit 64 bits.
(when (&& (&& (> rtt 0) (< rtt 2000000000)) (> Ack.now (+ cur rtt)))
  (:= rtt (min rtt 4194303))
  (:= t (min (- Ack.now (+ cur rtt)) 4194303))
  (:= Report.n (+ Report.n 1))
  (:= Report.st (+ Report.st t))
  (:= Report.sr (+ Report.sr rtt))
  (:= Report.srt (+ Report.srt (* t rtt)))
  (:= Report.stt (+ Report.stt (* t t)))
  (:= Report.srr (+ Report.srr (* rtt rtt)))
  (:= Report.srl (+ Report.srl (* lost rtt)))
  (:= Report.nl (+ Report.nl lost))
  (:= Report.rmin (min Report.rmin rtt))
  (:= Report.rmax (max Report.rmax rtt))
  (:= Report.a1 Ack.now)
  (:= Report.a0 (if (== Report.n 1) Ack.now))
  (fallthrough)
)
(when (&& (== tx 4) (> Ack.now (+ b3 mi))) (:= b4 Ack.now) (:= Rate hold) (:= tx 5) (fallthrough))
(when (&& (== tx 3) (> Ack.now (+ b2 mi))) (:= b3 Ack.now) (:= Rate r4) (:= tx 4) (fallthrough))
(when (&& (== tx 2) (> Ack.now (+ b1 mi))) (:= b2 Ack.now) (:= Rate r3) (:= tx 3) (fallthrough))
(when (&& (== tx 1) (> Ack.now (+ b0 mi))) (:= b1 Ack.now) (:= Rate r2) (:= tx 2) (fallthrough))
(when (== tx 9) (:= Rate r1) (fallthrough))
(when (&& (== tx 9) (== Flow.bytes_pending 0))
  (:= Rate hold) (:= Report.tag (+ (* plan 32) 10)) (:= Report.sdur Micros) (:= Micros 0) (report))
(when (== tx 0) (:= b0 Ack.now) (:= Rate r1) (:= tx 1) (:= rx 0) (fallthrough))
(when (&& (== rx 4) (&& (> tx 4) (> Ack.now (+ b4 Flow.rtt_sample_us))))
  (:= Report.tag (+ (* plan 32) 4)) (:= Report.sdur (- (max b4 b3) b3)) (:= rx 5) (:= cur b4) (:= Micros 0) (report))
(when (&& (== rx 3) (&& (> tx 3) (> Ack.now (+ b3 Flow.rtt_sample_us))))
  (:= Report.tag (+ (* plan 32) 3)) (:= Report.sdur (- (max b3 b2) b2)) (:= rx 4) (:= cur b3) (report))
(when (&& (== rx 2) (&& (> tx 2) (> Ack.now (+ b2 Flow.rtt_sample_us))))
  (:= Report.tag (+ (* plan 32) 2)) (:= Report.sdur (- (max b2 b1) b1)) (:= rx 3) (:= cur b2) (report))
(when (&& (== rx 1) (&& (> tx 1) (> Ack.now (+ b1 Flow.rtt_sample_us))))
  (:= Report.tag (+ (* plan 32) 1)) (:= Report.sdur (- (max b1 b0) b0)) (:= rx 2) (:= cur b1) (report))
(when (&& (== rx 0) (> Ack.now (+ b0 Flow.rtt_sample_us)))
  (:= Report.tag (* plan 32)) (:= rx 1) (:= cur b0) (report))
# Opening the next hold slot just before now - rtt keeps RTT samples in it even when mi is below the RTT, and those of a whole
# burst that was sent at one time, as the initial window is.
(when (&& (> rx 4) (&& (> Micros mi) (< Flow.rtt_sample_us 2000000000)))
  (:= Report.tag (+ (* plan 32) rx)) (:= Report.sdur Micros) (:= Micros 0)
  (:= cur (- (max Ack.now (+ Flow.rtt_sample_us 1)) (+ Flow.rtt_sample_us 1))) (report))
