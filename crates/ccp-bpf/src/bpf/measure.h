/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What an ACK tells: the primitives of CCP, in libccp's order. */
#ifndef CCP_MEASURE_H
#define CCP_MEASURE_H

#include "state.h"

#define NO_RTT_SAMPLE 0xffffffffULL /* what libccp's machine reads then */

/*
 * Packets that arrived though what they carry had arrived before (RFC 3708). The
 * kernel believes no more D-SACKs than there were repetitions, either.
 */
static __always_inline __u32 duplicates(const struct tcp_sock *tp)
{
	return min_u32(tp->dsack_dups, tp->total_retrans);
}

/*
 * How many of tp->lost were not lost, as far as it is known: they were late.
 * Whatever was marked waits for its repetition, was sent again, or has arrived in
 * between; and of what was sent again, so many arrived twice. A tail loss probe
 * is sent without a mark: needless, it comes to nothing here; needed, it makes
 * this less by one.
 */
static __always_inline __u32 spurious_losses(const struct tcp_sock *tp, __u32 twice)
{
	__u32 waits = tp->lost_out - tp->retrans_out;

	return tp->lost - waits - tp->total_retrans + twice;
}

/*
 * Losses less those that were none. That one was none is known an RTT later, and
 * is set off against the next ones: where packets overtake each other, they come
 * in turn. Against no more than are in flight, so that those of one late train
 * do not hide what is lost long after.
 */
static __always_inline __u32 real_losses(const struct tcp_sock *tp, struct ccp_flow *f,
					 __u32 twice, __u32 in_flight)
{
	__u32 lost = tp->lost - f->last_lost, set_off;
	__s32 found = spurious_losses(tp, twice) - f->last_spurious;

	if (found > 0) {
		f->last_spurious += found;
		f->spurious += found;
	}
	set_off = min_u32(lost, f->spurious);
	f->spurious = min_u32(f->spurious - set_off, in_flight);
	return lost - set_off;
}

/*
 * The primitives, as differences against what the flow has accounted for, so
 * that nothing is lost or counted twice whatever ran in between.
 * tp->lost counts every packet once when it is marked lost (and again when its
 * retransmission is), also outside of this ACK's rate sample. The split of the
 * delivered packets into acked and misordered is bounded so that their sum is
 * exact; duplicates have arrived out of order, too, so that all that was sent is
 * in the end acked, misordered or lost.
 */
static __always_inline void load_primitives(struct tcp_sock *tp, struct ccp_flow *f,
					    const struct rate_sample *rs, __u64 now)
{
	__u64 *prim = &f->regs[CCP_REG_PRIM];
	__u32 mss = tp->mss_cache;
	__u32 delivered = tp->delivered - f->last_delivered;
	__u32 ce = tp->delivered_ce - f->last_ce, in_flight = packets_in_flight(tp);
	__u32 twice = duplicates(tp), lost = real_losses(tp, f, twice, in_flight);
	__u32 sacked = tp->sacked_out, misordered = 0, acked;
	__u64 bytes_acked = tp->bytes_acked - f->last_bytes_acked;
	__u64 snd_rate = 0, rcv_rate = 0;

	if (sacked > f->last_sacked)
		misordered = min_u32(sacked - f->last_sacked, delivered);
	acked = delivered - misordered;
	misordered += twice - f->last_duplicates;
	if ((f->uses & CCP_USES_RATES) && rs->delivered > 0 && rs->interval_us > 0) {
		__u64 scaled = (__u64)rs->delivered * mss * USEC_PER_SEC;
		__u64 interval = rs->interval_us;
		__u64 snd = rs->snd_interval_us, rcv = rs->rcv_interval_us;

		/* The send interval is 0 when the pipe was empty. */
		snd_rate = scaled / (snd ? snd : interval);
		rcv_rate = scaled / (rcv ? rcv : interval);
	}
	f->last_delivered = tp->delivered;
	f->last_lost = tp->lost;
	f->last_duplicates = twice;
	f->last_sacked = sacked;
	f->last_ce = tp->delivered_ce;
	f->last_bytes_acked = tp->bytes_acked;
	f->mss = mss;
	f->stats.packets_delivered += delivered;
	f->stats.packets_lost += lost;
	f->stats.bytes_acked += bytes_acked;

	prim[0] = bytes_acked;
	prim[1] = (__u64)misordered * mss;
	prim[2] = (__u64)ce * mss;
	prim[3] = ce;
	prim[4] = lost;
	prim[5] = now;
	prim[6] = acked;
	prim[7] = misordered;
	prim[8] = (__u64)in_flight * mss;
	prim[9] = tp->write_seq - tp->snd_una;
	prim[10] = in_flight;
	prim[11] = rcv_rate;
	prim[12] = snd_rate;
	prim[13] = rs->rtt_us > 0 ? rs->rtt_us : NO_RTT_SAMPLE;
	prim[14] = f->was_timeout;
	f->was_timeout = 0;
}

#endif /* CCP_MEASURE_H */
