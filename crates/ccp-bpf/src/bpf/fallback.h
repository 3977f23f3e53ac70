/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The fallback: the kernel's Cubic, or Reno where that is not there, with the
 * kernel's own proportional rate reduction.
 */
#ifndef CCP_FALLBACK_H
#define CCP_FALLBACK_H

#include "state.h"

extern void cubictcp_init(struct sock *sk) __ksym __weak;
extern __u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym __weak;
extern void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym __weak;
extern void cubictcp_state(struct sock *sk, __u8 new_state) __ksym __weak;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym __weak;
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym __weak;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym __weak;
extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

/* Known at load time, so the verifier never sees calls to what is not there. */
static __always_inline bool have_cubic(void)
{
	return config.have_cubic;
}

/* tcp_update_pacing_rate() with the default ratios, 200 % and 120 %. */
static __always_inline void pace_by_window(struct sock *sk, struct tcp_sock *tp)
{
	__u32 srtt_us = tp->srtt_us >> 3, cwnd = tp->snd_cwnd;
	__u64 rate;

	if (!srtt_us)
		return;
	rate = (__u64)tp->mss_cache * max_u32(cwnd, tp->packets_out) * USEC_PER_SEC / srtt_us;
	rate += cwnd < tp->snd_ssthresh / 2 ? rate : rate / 5;
	if (rate > sk->sk_max_pacing_rate)
		rate = sk->sk_max_pacing_rate;
	sk->sk_pacing_rate = rate;
}

/* The window after a loss. */
static __always_inline __u32 fallback_ssthresh(struct sock *sk)
{
	if (have_cubic())
		return cubictcp_recalc_ssthresh(sk);
	return tcp_reno_ssthresh(sk);
}

/*
 * What a state of the kernel's congestion machine means for the fallback. Where
 * a reduction begins, the kernel has asked for its slow start threshold. One
 * above the window that is to be reduced was not decided here, and would
 * multiply it: such a call was skipped, and the threshold is decided now. What
 * tcp_simple_retransmit() has kept is no reduction, and has no undo_marker.
 */
static __always_inline void follow_state(struct sock *sk, struct tcp_sock *tp, __u8 old,
					 __u8 new_state)
{
	CA_STATE(sk) = new_state;
	if (old < TCP_CA_CWR && new_state >= TCP_CA_CWR &&
	    tp->snd_ssthresh > max_u32(tp->prior_cwnd, 2) &&
	    (new_state != TCP_CA_Loss || tp->undo_marker)) {
		__u32 cwnd = tp->snd_cwnd;

		tp->snd_cwnd = tp->prior_cwnd;
		tp->snd_ssthresh = fallback_ssthresh(sk);
		tp->snd_cwnd = cwnd;
	}
	if (new_state == TCP_CA_CWR || new_state == TCP_CA_Recovery) {
		/* From one to the other the reduction goes on: prr_out does, too. */
		if (old != TCP_CA_CWR && old != TCP_CA_Recovery)
			CA_PRR_DELIVERED(sk) = 0;
	} else if (new_state < TCP_CA_CWR && (old == TCP_CA_CWR || old == TCP_CA_Recovery)) {
		/* tcp_end_cwnd_reduction() */
		if (tp->snd_ssthresh < TCP_INFINITE_SSTHRESH &&
		    (old == TCP_CA_CWR || tp->undo_marker))
			decide_cwnd(sk, tp, max_u32(tp->snd_ssthresh, 1));
	}
	if (have_cubic())
		cubictcp_state(sk, new_state);
}

/* tcp_cwnd_reduction(): proportional rate reduction, RFC 6937. */
static __always_inline void fallback_reduce(struct sock *sk, struct tcp_sock *tp, __u32 acked,
					    bool progress)
{
	__u32 in_flight = packets_in_flight(tp), ssthresh = tp->snd_ssthresh;
	__s32 delta = ssthresh - in_flight, send;
	__u32 delivered = CA_PRR_DELIVERED(sk) + acked;

	if (!acked || !tp->prior_cwnd)
		return;
	CA_PRR_DELIVERED(sk) = delivered;
	if (delta < 0) {
		__u64 dividend = (__u64)ssthresh * delivered + tp->prior_cwnd - 1;

		send = dividend / tp->prior_cwnd - tp->prr_out;
	} else {
		send = delivered - tp->prr_out;
		if (send < (__s32)acked)
			send = acked;
		if (progress)
			send++;
		if (send > delta)
			send = delta;
	}
	if (send < (tp->prr_out ? 0 : 1))
		send = tp->prr_out ? 0 : 1;
	tp->snd_cwnd = max_u32(in_flight + send, 1);
}

/* tcp_cong_control() for a congestion control that has no cong_control. */
static __always_inline void fallback_ack(struct sock *sk, struct tcp_sock *tp, __u32 ack,
					 const struct rate_sample *rs)
{
	bool advanced = tp->snd_una != CA_UNA(sk); /* up to 6.9 no flag says so */
	__u8 state = ca_state(sk), known = CA_STATE(sk);

	CA_UNA(sk) = tp->snd_una;
	if (state != known)
		follow_state(sk, tp, known, state);
	if (state == TCP_CA_CWR || state == TCP_CA_Recovery)
		fallback_reduce(sk, tp, rs->acked_sacked, advanced && rs->losses <= 0);
	else if (!rs->acked_sacked)
		;
	else if (have_cubic())
		cubictcp_cong_avoid(sk, ack, rs->acked_sacked);
	else
		tcp_reno_cong_avoid(sk, ack, rs->acked_sacked);
	CA_CWND(sk) = tp->snd_cwnd;
	pace_by_window(sk, tp);
}

#endif /* CCP_FALLBACK_H */
