// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What an ACK has shown, as CCP's primitives, and what they decide: cwnd, rate.
 *
 * The primitives are differences against what the flow has accounted for, so
 * that nothing is lost or counted twice whatever ran in between (a fallback, an
 * ACK without a valid rate sample, GRO). tp->lost counts every packet once when
 * it is marked lost (and again when its retransmission is), also outside of this
 * ACK's rate sample. The split of the delivered packets into acked and
 * misordered is bounded so that their sum is exact; duplicates have arrived out
 * of order, too, so that all that was sent is in the end acked, misordered or
 * lost.
 */
#include <linux/math64.h>

#include "ccp_kernel.h"

static u32 ccp_bytes(u32 packets, u32 mss)
{
	return min_t(u64, (u64)packets * mss, U32_MAX);
}

/*
 * Packets that arrived though what they carry had arrived before (RFC 3708). The
 * kernel believes no more D-SACKs than there were repetitions, either.
 */
static u32 ccp_duplicates(const struct tcp_sock *tp)
{
	return min(tp->dsack_dups, tp->total_retrans);
}

/*
 * How many of tp->lost were not lost, as far as it is known: they were late.
 * Whatever was marked waits for its repetition, was sent again, or has arrived in
 * between; and of what was sent again, so many arrived twice. A tail loss probe
 * is sent without a mark: needless, it comes to nothing here; needed, it makes
 * this less by one.
 */
static u32 ccp_spurious_losses(const struct tcp_sock *tp, u32 twice)
{
	u32 waits = tp->lost_out - tp->retrans_out;

	return tp->lost - waits - tp->total_retrans + twice;
}

/*
 * Losses less those that were none. That one was none is known an RTT later, and
 * is set off against the next ones: where packets overtake each other, they come
 * in turn. Against no more than are in flight, so that those of one late train
 * do not hide what is lost long after.
 */
static u32 ccp_real_losses(struct ccp_flow *f, const struct tcp_sock *tp, u32 twice, u32 in_flight)
{
	u32 lost = tp->lost - f->last_lost, set_off;
	s32 found = ccp_spurious_losses(tp, twice) - f->last_spurious;

	if (found > 0) {
		f->last_spurious += found;
		f->spurious += found;
	}
	set_off = min(lost, f->spurious);
	f->spurious = min(f->spurious - set_off, in_flight);
	return lost - set_off;
}

static void ccp_account(struct ccp_flow *f, const struct tcp_sock *tp, u32 twice)
{
	f->last_delivered = tp->delivered;
	f->last_duplicates = twice;
	f->last_lost = tp->lost;
	f->last_sacked = tp->sacked_out;
	f->last_ce = tp->delivered_ce;
	f->last_bytes_acked = tp->bytes_acked;
}

void ccp_measure_from_now(struct ccp_flow *f, const struct tcp_sock *tp)
{
	u32 twice = ccp_duplicates(tp);

	ccp_account(f, tp, twice);
	f->last_spurious = ccp_spurious_losses(tp, twice);
	f->spurious = 0;
}

void ccp_measure(struct ccp_flow *f, const struct tcp_sock *tp, const struct rate_sample *rs,
		 struct ccp_primitives *prims)
{
	const struct sock *sk = (const struct sock *)tp;
	u32 mss = tp->mss_cache;
	u32 delivered = tp->delivered - f->last_delivered;
	u32 ce = tp->delivered_ce - f->last_ce, in_flight = tcp_packets_in_flight(tp);
	u32 twice = ccp_duplicates(tp), lost = ccp_real_losses(f, tp, twice, in_flight);
	u32 sacked = tp->sacked_out, misordered = 0, acked;
	u64 bytes_acked = tp->bytes_acked - f->last_bytes_acked;
	u64 snd_rate = 0, rcv_rate = 0;

	if (sacked > f->last_sacked)
		misordered = min(sacked - f->last_sacked, delivered);
	acked = delivered - misordered;
	misordered += twice - f->last_duplicates;
	if (rs->delivered > 0 && rs->interval_us > 0) {
		u64 scaled = (u64)rs->delivered * mss * USEC_PER_SEC;

		/* The send interval is 0 when the pipe was empty. */
		snd_rate = div64_ul(scaled, rs->snd_interval_us ?: rs->interval_us);
		rcv_rate = div64_ul(scaled, rs->rcv_interval_us ?: rs->interval_us);
	}
	ccp_account(f, tp, twice);
	f->stats.packets_delivered += delivered;
	f->stats.packets_lost += lost;
	f->stats.bytes_acked += bytes_acked;

	*prims = (struct ccp_primitives){
		.bytes_acked = min_t(u64, bytes_acked, U32_MAX),
		.packets_acked = acked,
		.bytes_misordered = ccp_bytes(misordered, mss),
		.packets_misordered = misordered,
		.ecn_bytes = ccp_bytes(ce, mss),
		.ecn_packets = ce,
		.lost_pkts_sample = lost,
		.was_timeout = f->was_timeout,
		.rtt_sample_us = rs->rtt_us > 0 ? rs->rtt_us : 0, /* reads as none */
		.rate_outgoing = snd_rate,
		.rate_incoming = rcv_rate,
		.bytes_in_flight = ccp_bytes(in_flight, mss),
		.packets_in_flight = in_flight,
		.snd_cwnd = ccp_bytes(tcp_snd_cwnd(tp), mss),
		.snd_rate = min_t(u64, READ_ONCE(sk->sk_pacing_rate), CCP_UNLIMITED_RATE),
		.bytes_pending = tp->write_seq - tp->snd_una,
	};
	f->was_timeout = false;
}

/* 0 leaves the window as it is. */
void ccp_set_cwnd(struct tcp_sock *tp, u64 bytes)
{
	u64 packets;

	if (!bytes || !tp->mss_cache)
		return;
	packets = clamp_t(u64, div_u64(bytes, tp->mss_cache), CCP_MIN_CWND, S32_MAX);
	ccp_ca((struct sock *)tp)->cwnd = min_t(u32, packets, tp->snd_cwnd_clamp);
	tcp_snd_cwnd_set(tp, ccp_ca((struct sock *)tp)->cwnd);
}

/*
 * 0 leaves the rate as it is; CCP_UNLIMITED_RATE leaves only the socket's own
 * limit, and without one does not pace. Says whether the rate is another now.
 */
bool ccp_set_rate(struct sock *sk, u64 rate)
{
	unsigned long limit = READ_ONCE(sk->sk_max_pacing_rate), old = sk->sk_pacing_rate;

	if (!rate)
		return false;
	rate = max_t(u64, rate, CCP_MIN_RATE);
	if (rate >= CCP_UNLIMITED_RATE || rate > limit)
		rate = limit;
	WRITE_ONCE(sk->sk_pacing_rate, rate);
	return rate != old;
}

/* As the kernel's tcp_update_pacing_rate() with its default ratios, 200 % and 120 %. */
void ccp_pace_by_window(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 srtt_us = tp->srtt_us >> 3, cwnd = tcp_snd_cwnd(tp);
	u64 rate;

	if (!srtt_us)
		return;
	rate = (u64)tp->mss_cache * max(cwnd, tp->packets_out) * USEC_PER_SEC;
	rate = div_u64(rate, srtt_us);
	rate += cwnd < tp->snd_ssthresh / 2 ? rate : div_u64(rate, 5);
	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
}
