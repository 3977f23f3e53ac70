// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Who decides when no agent does: CUBIC (RFC 9438) with proportional rate
 * reduction (RFC 6937), paced as the kernel paces its own.
 *
 * The kernel's tcp_cubic exports nothing that a module could call, and a
 * cong_control callback replaces the kernel's rate reduction, so both are here:
 *
 *	W(t) = C (t - K)^3 + W_max,  K = cbrt((W_max - cwnd at the epoch's start) / C)
 *
 * in packets and seconds with C = 0.4, at the multiplicative decrease 0.7, and
 * never below Reno's window W_est. As in tcp_cubic: fast convergence, an exit
 * from slow start when the round-trip time rises (the delay part of HyStart),
 * and before the first loss a growth of at least 5 % per round trip.
 */
#include <linux/math64.h>

#include "ccp_kernel.h"

#define HYSTART_MIN_CWND 16 /* packets; a smaller window says nothing */
#define HYSTART_SAMPLES 8 /* of each round, the first ones */
#define HYSTART_RISE_MIN_US 4000
#define HYSTART_RISE_MAX_US 16000

#define MAX_SPAN_MS (1 << 20) /* keeps cubes within 63 bits; 17 minutes */

static u32 ccp_now_ms(void)
{
	return div_u64(ktime_get_ns(), NSEC_PER_MSEC);
}

/* Rounded down, digit by digit. */
static u32 ccp_cube_root(u64 a)
{
	u64 root = 0, step;
	int shift;

	for (shift = 63; shift >= 0; shift -= 3) {
		root <<= 1;
		step = 3 * root * (root + 1) + 1;
		if (a >> shift >= step) {
			a -= step << shift;
			root++;
		}
	}
	return root;
}

/* W(t), t in ms from the epoch's start. */
static u64 ccp_cubic_window(const struct ccp_cubic *c, u32 t_ms)
{
	u64 span = min_t(u64, abs((s64)t_ms - c->k_ms), MAX_SPAN_MS);
	u64 change = div64_u64(4 * span * span * span, 10000000000ULL);

	if (t_ms >= c->k_ms)
		return c->w_max + change;
	return c->w_max > change ? c->w_max - change : 0;
}

static void ccp_cubic_start_epoch(struct ccp_cubic *c, u32 cwnd, u32 now_ms)
{
	c->epoch_ms = now_ms;
	c->epoch_cwnd = cwnd;
	c->w_est = cwnd;
	c->w_est_acked = 0;
	c->k_ms = 0;
	if (cwnd < c->w_max) /* 1 / C = 2.5 s^3 */
		c->k_ms = ccp_cube_root((c->w_max - cwnd) * 2500000000ULL);
	else
		c->w_max = cwnd;
}

/* Reno's window: 0.53 packets per round trip until it is where it was, then 1. */
static void ccp_cubic_reno(struct ccp_cubic *c, u32 cwnd, u32 acked)
{
	u32 percent = c->w_est < c->prior_cwnd ? 53 : 100;
	u64 acked_percent = c->w_est_acked + (u64)acked * percent, round = 100ULL * cwnd;

	while (acked_percent >= round) {
		acked_percent -= round;
		c->w_est++;
	}
	c->w_est_acked = acked_percent;
}

/* ACKs per packet that the window grows by. */
static u32 ccp_cubic_acks_per_packet(struct sock *sk, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_cubic *c = &ccp_ca(sk)->cubic;
	u32 cwnd = tcp_snd_cwnd(tp), now_ms = ccp_now_ms(), acks;
	bool before_loss = !c->prior_cwnd;
	u64 target;

	if (!c->epoch_cwnd)
		ccp_cubic_start_epoch(c, cwnd, now_ms);
	ccp_cubic_reno(c, cwnd, acked);
	target = ccp_cubic_window(c, now_ms - c->epoch_ms + (tp->srtt_us >> 3) / USEC_PER_MSEC);
	target = clamp_t(u64, target, cwnd, cwnd + cwnd / 2);
	target = max_t(u64, target, c->w_est);
	acks = target > cwnd ? div64_u64(cwnd, target - cwnd) : 100 * cwnd;
	if (before_loss)
		acks = min(acks, 20U);
	return max(acks, 2U);
}

static void ccp_cubic_grow(struct sock *sk, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!acked || !tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, ccp_cubic_acks_per_packet(sk, acked), acked);
}

/* What the kernel does for a congestion control without cong_control. */
static void ccp_reduce(struct sock *sk, u32 acked, bool progress)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 in_flight = tcp_packets_in_flight(tp), ssthresh = tp->snd_ssthresh;
	s32 delta = ssthresh - in_flight, send;

	if (!acked || !tp->prior_cwnd)
		return;
	tp->prr_delivered += acked;
	if (delta < 0) {
		u64 dividend = (u64)ssthresh * tp->prr_delivered + tp->prior_cwnd - 1;

		send = (u32)div_u64(dividend, tp->prior_cwnd) - tp->prr_out;
	} else {
		send = max_t(s32, tp->prr_delivered - tp->prr_out, acked);
		if (progress)
			send++;
		send = min(send, delta);
	}
	send = max(send, tp->prr_out ? 0 : 1); /* the first retransmission goes out at once */
	tcp_snd_cwnd_set(tp, max_t(u32, in_flight + send, 1));
}

/* ------------------------------------------------------------ callbacks */

/* Also when the agent is lost: nothing is known of the path but the window. */
void ccp_fallback_begin(struct sock *sk)
{
	ccp_ca(sk)->cubic = (struct ccp_cubic){ 0 };
	ccp_ca(sk)->una = tcp_sk(sk)->snd_una;
}

void ccp_fallback_ack(struct sock *sk, const struct rate_sample *rs)
{
	struct ccp_ca *ca = ccp_ca(sk);
	u32 una = tcp_sk(sk)->snd_una;
	bool advanced = una != ca->una; /* up to 6.9 no flag says so */

	ca->una = una;
	if (tcp_in_cwnd_reduction(sk))
		ccp_reduce(sk, rs->acked_sacked, advanced && rs->losses <= 0);
	else
		ccp_cubic_grow(sk, rs->acked_sacked);
	ccp_pace_by_window(sk);
}

u32 ccp_fallback_ssthresh(struct sock *sk)
{
	struct ccp_cubic *c = &ccp_ca(sk)->cubic;
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));

	/* Less than last time: somebody else has come, so make room faster. */
	c->w_max = cwnd < c->w_max ? div_u64(85ULL * cwnd, 100) : cwnd;
	c->prior_cwnd = cwnd;
	c->epoch_cwnd = 0;
	return max_t(u32, div_u64(7ULL * cwnd, 10), 2);
}

/* Called before the socket takes the new state. */
void ccp_fallback_state(struct sock *sk, u8 new_state)
{
	u8 old_state = inet_csk(sk)->icsk_ca_state;
	struct tcp_sock *tp = tcp_sk(sk);

	if (new_state == TCP_CA_Loss) {
		ccp_fallback_begin(sk);
	} else if (new_state < TCP_CA_CWR && tcp_in_cwnd_reduction(sk)) {
		/* The kernel's end of a reduction. */
		if (tp->snd_ssthresh < TCP_INFINITE_SSTHRESH &&
		    (old_state == TCP_CA_CWR || tp->undo_marker))
			tcp_snd_cwnd_set(tp, max(tp->snd_ssthresh, 1U));
	}
}

/* Idle time is none of the epoch's, or the window would leap after it. */
void ccp_fallback_tx_start(struct sock *sk)
{
	struct ccp_cubic *c = &ccp_ca(sk)->cubic;
	u32 idle_ms;

	if (!c->epoch_cwnd)
		return;
	idle_ms = jiffies_to_msecs(max_t(s32, tcp_jiffies32 - tcp_sk(sk)->lsndtime, 0));
	c->epoch_ms += min(idle_ms, ccp_now_ms() - c->epoch_ms);
}

/* Leaves slow start when the first samples of a round are all late. */
void ccp_fallback_acked(struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_cubic *c = &ccp_ca(sk)->cubic;
	u32 base_us = tcp_min_rtt(tp), rise_us;

	if (!tcp_in_slow_start(tp) || sample->rtt_us <= 0)
		return;
	if (after(tp->snd_una, c->round_end) || !c->round_end) {
		c->round_end = tp->snd_nxt;
		c->round_rtt_us = U32_MAX;
		c->round_samples = 0;
	}
	if (c->round_samples >= HYSTART_SAMPLES)
		return;
	c->round_rtt_us = min_t(u32, c->round_rtt_us, sample->rtt_us);
	c->round_samples++;
	rise_us = clamp_t(u32, base_us / 8, HYSTART_RISE_MIN_US, HYSTART_RISE_MAX_US);
	if (c->round_samples == HYSTART_SAMPLES && tcp_snd_cwnd(tp) >= HYSTART_MIN_CWND &&
	    c->round_rtt_us > base_us + rise_us)
		tp->snd_ssthresh = tcp_snd_cwnd(tp);
}
