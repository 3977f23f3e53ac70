/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Who drives a flow: from the agent to the fallback, out of an observation, and
 * the offers that bring the agent back; what a flow may lose until then.
 */
#ifndef CCP_MODES_H
#define CCP_MODES_H

#include "fallback.h"

/* Losses are judged over windows of at least so long and so many packets. */
#define LOSS_WINDOW_US USEC_PER_SEC
#define LOSS_WINDOW_PACKETS 200
#define LOSS_BAR_US (10 * USEC_PER_SEC) /* how long a lossy flow stays with the fallback */

/*
 * From the agent to the fallback. The agent limits a flow by its pacing rate
 * and leaves room in cwnd; Cubic has only cwnd, so it starts from the rate's
 * bandwidth-delay product, out of slow start. It gets no larger window than the
 * agent's. A timeout may have made that one smaller since, also one that the
 * kernel has found spurious: then slow start leads back.
 */
static __always_inline void leave_agent(struct sock *sk, struct tcp_sock *tp, struct ccp_flow *f,
					__u64 now)
{
	__u64 heard = READ_ONCE(control.beat_us) + config.silence_us;
	__u64 until = heard < now ? heard : now;
	__u64 rate = min_u64(sk->sk_pacing_rate, UNLIMITED_RATE);
	__u64 bdp = rate * (tp->srtt_us >> 3) / USEC_PER_SEC / max_u32(tp->mss_cache, 1);
	__u32 most = min_u32(decided_cwnd(sk), tp->snd_cwnd_clamp);
	__u32 start = min_u64(most, max_u64(bdp, TCP_INIT_CWND));

	decide_cwnd(sk, tp, min_u32(tp->snd_cwnd, start));
	tp->snd_ssthresh = max_u32(start, 2);
	CA_PRR_DELIVERED(sk) = tp->prr_out;
	CA_UNA(sk) = tp->snd_una;
	CA_STATE(sk) = ca_state(sk);
	CA_MODE(sk) = MODE_FALLBACK;
	if (until > f->stats.mode_since_us)
		f->stats.driven_us += until - f->stats.mode_since_us;
	f->stats.mode_since_us = now;
	f->stats.fallbacks++;
	f->prog = 0;
	f->last_create_us = 0;
	__sync_fetch_and_add(&control.fallbacks, 1);
	if (have_cubic())
		cubictcp_init(sk);
}

/* A program that runs beside the fallback ends. */
static __always_inline void end_observation(struct sock *sk, struct ccp_flow *f, __u64 now)
{
	CA_MODE(sk) = MODE_FALLBACK;
	f->stats.mode_since_us = now;
	f->prog = 0;
	f->last_create_us = 0;
}

/* Whether programs run in a mode. */
static __always_inline bool may_run(__u32 mode)
{
	return mode == CCP_DRIVE || mode == CCP_OBSERVE;
}

static __always_inline bool is_barred(const struct ccp_flow *f, __u64 now)
{
	return now < f->barred_until_us;
}

static __always_inline void judge_losses_from(struct ccp_flow *f, __u64 now)
{
	f->loss_since_us = now;
	f->loss_delivered = f->stats.packets_delivered;
	f->loss_lost = f->stats.packets_lost;
}

/* Whether the flow loses more than it may; then no agent has it for a while. */
static __always_inline bool loses_too_much(struct ccp_flow *f, __u64 now)
{
	__u64 lost, all;

	if (now - f->loss_since_us < LOSS_WINDOW_US)
		return false;
	lost = f->stats.packets_lost - f->loss_lost;
	all = lost + (f->stats.packets_delivered - f->loss_delivered);
	if (all < LOSS_WINDOW_PACKETS)
		return false;
	judge_losses_from(f, now);
	if (lost * CCP_ANY_LOSS_PPM <= all * READ_ONCE(f->governance.max_loss_ppm))
		return false;
	f->barred_until_us = now + LOSS_BAR_US;
	__sync_fetch_and_add(&control.fallbacks_loss, 1);
	return true;
}

static __always_inline void offer(struct tcp_sock *tp, struct ccp_flow *f, __u64 now)
{
	struct ccp_ev_create ev = {
		.type = CCP_EV_CREATE,
		.len = sizeof(ev),
		.sid = f->sid,
		.cwnd_bytes = tp->snd_cwnd * tp->mss_cache,
		.mss = tp->mss_cache,
	};

#pragma unroll
	for (int i = 0; i < (int)sizeof(ev.name); i++)
		ev.name[i] = config.name[i];
	f->last_create_us = now;
	f->mss = tp->mss_cache;
	f->stats.srtt_us = tp->srtt_us >> 3;
	/* A new flow waits for its first rate, so an agent that only looks now and then is woken. */
	if (bpf_ringbuf_output(&events, &ev, sizeof(ev), BPF_RB_FORCE_WAKEUP))
		__sync_fetch_and_add(&control.creates_dropped, 1);
}

#endif /* CCP_MODES_H */
