// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * tcp_ccp: a CCP datapath as a TCP congestion control.
 *
 * An agent in user space opens /dev/ccpkp, installs CCP programs, and says which
 * flow runs which. libccp runs the flow's program on every ACK, and its reports
 * go to the agent. A flow is in one of two modes:
 *
 *	            program arrives
 *	FALLBACK ---------------------> AGENT
 *	(CUBIC)  <---------------------
 *	            agent silent, gone or replaced
 *
 * In FALLBACK the module's own CUBIC decides. The flow offers itself to the agent
 * (CREATE) until a program arrives, so that neither a full queue nor a restarted
 * agent loses it. A flow that finds no room stays in FALLBACK for its whole life.
 *
 * All callbacks of a socket run under its lock. A flow's lock protects what the
 * agent's messages touch; the session is read under RCU.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "ccp_kernel.h"

unsigned int ccp_max_flows = 16384;
module_param_named(max_flows, ccp_max_flows, uint, 0644);
MODULE_PARM_DESC(max_flows, "flows that can be driven at once; others run CUBIC (default 16384)");

/* ------------------------------------------------------------ modes */

/* Under f->lock. */
static void ccp_adopt(struct ccp_ca *ca, struct ccp_flow *f, u64 now)
{
	struct ccp_flow_stats *stats = &f->stats;

	if (ca->mode == CCP_MODE_AGENT)
		return;
	ca->mode = CCP_MODE_AGENT;
	ca->rated = false;
	ca->cwnd = tcp_snd_cwnd(tcp_sk(f->sk));
	/* From the moment that the program waits, the fallback decides nothing any more. */
	stats->mode_since_us = clamp(f->staged_us, stats->mode_since_us, now);
	ccp_count(adoptions);
}

/*
 * From the agent to the fallback. The agent limits a flow by its pacing rate and
 * leaves room in cwnd; CUBIC has only cwnd, so it starts from the rate's
 * bandwidth-delay product, out of slow start. It gets no larger window than the
 * agent's. A timeout may have made that one smaller since, also one that the
 * kernel has found spurious: then slow start leads back.
 */
static void ccp_leave_agent(struct sock *sk, struct ccp_flow *f, u64 now)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_ca *ca = ccp_ca(sk);
	u32 rate = min_t(u64, sk->sk_pacing_rate, CCP_UNLIMITED_RATE), start;
	u64 bdp = div_u64((u64)rate * (tp->srtt_us >> 3), USEC_PER_SEC);
	u64 until = ccp_session_lasted(f->session_id, now);

	bdp = div_u64(bdp, max(tp->mss_cache, 1U));
	start = min_t(u64, min(ca->cwnd, tp->snd_cwnd_clamp), max_t(u64, bdp, TCP_INIT_CWND));
	tcp_snd_cwnd_set(tp, min(tcp_snd_cwnd(tp), start));
	tp->snd_ssthresh = max(start, 2U);
	tp->prr_delivered = tp->prr_out;
	ca->mode = CCP_MODE_FALLBACK;
	if (until > f->stats.mode_since_us)
		f->stats.driven_us += until - f->stats.mode_since_us;
	f->stats.mode_since_us = now;
	f->stats.fallbacks++;
	f->last_create_us = 0;
	ccp_count(fallbacks);
	ccp_fallback_begin(sk);
}

/* ------------------------------------------------------------ per ACK */

/* A socket that will not send again needs no agent. */
static bool ccp_has_finished(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	/* Nothing but its FIN is on the way. */
	return (sk->sk_shutdown & SEND_SHUTDOWN) && tcp_write_queue_empty(sk) &&
	       tp->snd_nxt - tp->snd_una <= 1;
}

/* Whether the agent's program decided; otherwise the fallback has to. */
static bool ccp_agent_ack(struct sock *sk, struct ccp_flow *f, struct ccp_primitives *prims)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_ca *ca = ccp_ca(sk);
	u64 now = tp->tcp_mstamp;
	struct ccp_session *s;

	rcu_read_lock();
	s = ccp_session_alive(now);
	spin_lock_bh(&f->lock);
	if (!ccp_flow_is_offered(f, s)) {
		ccp_flow_withdraw(f);
		if (ca->mode == CCP_MODE_AGENT)
			ccp_leave_agent(sk, f, now);
	} else if (f->staged) {
		ccp_adopt(ca, f, now);
	}
	if (ca->mode == CCP_MODE_AGENT) {
		if (f->early_rate)
			ca->rated = true;
		if (!ca->rated) { /* an algorithm of windows, or one that has not decided yet */
			ccp_pace_by_window(sk);
			ccp_set_rate(sk, sk->sk_pacing_rate);
			prims->snd_rate = min_t(u64, sk->sk_pacing_rate, CCP_UNLIMITED_RATE);
		}
		/* The kernel makes it smaller after a timeout. */
		if (tcp_snd_cwnd(tp) < CCP_MIN_CWND) {
			ccp_set_cwnd(tp, CCP_MIN_CWND * tp->mss_cache);
			prims->snd_cwnd = tcp_snd_cwnd(tp) * tp->mss_cache;
		}
		ccp_flow_run(f, s, prims, now);
		if (f->changed)
			ca->rated = true;
	} else if (s && now > f->last_create_us + CCP_CREATE_RETRY_US && !ccp_has_finished(sk)) {
		ccp_flow_offer(f, s, now);
	}
	spin_unlock_bh(&f->lock);
	rcu_read_unlock();
	return ca->mode == CCP_MODE_AGENT;
}

static void ccp_ack(struct sock *sk, const struct rate_sample *rs)
{
	struct ccp_flow *f = ccp_ca(sk)->flow;
	struct ccp_primitives prims;

	if (f) {
		ccp_measure(f, tcp_sk(sk), rs, &prims);
		if (ccp_agent_ack(sk, f, &prims))
			return;
	}
	ccp_fallback_ack(sk, rs);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void ccp_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
#else
static void ccp_cong_control(struct sock *sk, const struct rate_sample *rs)
#endif
{
	ccp_ack(sk, rs);
}

/*
 * The agent's window and rate, before the program has seen them: a transmission
 * comes first when no ACK does.
 */
static void ccp_apply_early(struct sock *sk, struct ccp_flow *f)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_ca *ca = ccp_ca(sk);
	u64 now = tp->tcp_mstamp;
	struct ccp_session *s;

	rcu_read_lock();
	s = ccp_session_alive(now);
	spin_lock_bh(&f->lock);
	if (ccp_flow_is_offered(f, s)) {
		if (f->staged)
			ccp_adopt(ca, f, now);
		if (ca->mode == CCP_MODE_AGENT) {
			ccp_set_cwnd(tp, f->early_cwnd);
			ccp_set_rate(sk, f->early_rate);
			f->early = false;
		}
	}
	spin_unlock_bh(&f->lock);
	rcu_read_unlock();
}

/*
 * Asked before every transmission. Below about 1.2 Mbit/s a burst of two packets
 * would be a queue of its own.
 */
static u32 ccp_min_tso_segs(struct sock *sk)
{
	struct ccp_flow *f = ccp_ca(sk)->flow;

	if (f && READ_ONCE(f->early))
		ccp_apply_early(sk, f);
	return READ_ONCE(sk->sk_pacing_rate) < 150000 ? 1 : 2;
}

/* ------------------------------------------------------------ life */

static void ccp_init_socket(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_ca *ca = ccp_ca(sk);
	u64 now = ccp_now_us(), rate;
	struct ccp_session *s;

	memset(ca, 0, sizeof(*ca));
	ca->mode = CCP_MODE_FALLBACK;
	ccp_fallback_begin(sk);
	/* Paced from the first packet: by fq where it is, else by TCP itself. */
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
	rate = 2ULL * tcp_snd_cwnd(tp) * tp->mss_cache * USEC_PER_SEC;
	ccp_set_rate(sk, div_u64(rate, max_t(u32, tp->srtt_us >> 3, USEC_PER_MSEC)));

	ca->flow = ccp_flow_new(sk, now);
	if (!ca->flow)
		return;
	rcu_read_lock();
	s = ccp_session_alive(now);
	if (s) {
		spin_lock_bh(&ca->flow->lock);
		ccp_flow_offer(ca->flow, s, now);
		spin_unlock_bh(&ca->flow->lock);
	}
	rcu_read_unlock();
}

static void ccp_release_socket(struct sock *sk)
{
	struct ccp_ca *ca = ccp_ca(sk);

	if (ca->flow)
		ccp_flow_end(ca->flow, ccp_now_us());
	ca->flow = NULL;
}

/* ------------------------------------------------------------ the rest */

static u32 ccp_ssthresh(struct sock *sk)
{
	if (ccp_ca(sk)->mode == CCP_MODE_AGENT)
		return tcp_sk(sk)->snd_ssthresh;
	return ccp_fallback_ssthresh(sk);
}

static u32 ccp_undo_cwnd(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (ccp_ca(sk)->mode == CCP_MODE_AGENT)
		return tcp_snd_cwnd(tp);
	return max(tcp_snd_cwnd(tp), tp->prior_cwnd);
}

/* Called before the socket takes the new state. */
static void ccp_set_state(struct sock *sk, u8 new_state)
{
	struct ccp_ca *ca = ccp_ca(sk);

	if (ca->mode != CCP_MODE_AGENT)
		ccp_fallback_state(sk, new_state);
	else if (new_state == TCP_CA_Loss)
		ca->flow->was_timeout = true;
}

static void ccp_tx_start(struct sock *sk)
{
	if (ccp_ca(sk)->mode == CCP_MODE_FALLBACK)
		ccp_fallback_tx_start(sk);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0) /* untested */
#define CCP_TX_START .cwnd_event_tx_start = ccp_tx_start
#else
static void ccp_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		ccp_tx_start(sk);
}

#define CCP_TX_START .cwnd_event = ccp_cwnd_event
#endif

static void ccp_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	if (ccp_ca(sk)->mode == CCP_MODE_FALLBACK)
		ccp_fallback_acked(sk, sample);
}

#define CCP_OPS(given_name)                                                           \
	{                                                                             \
		.flags = TCP_CONG_NON_RESTRICTED, .init = ccp_init_socket,            \
		.release = ccp_release_socket, .ssthresh = ccp_ssthresh,              \
		.undo_cwnd = ccp_undo_cwnd, .set_state = ccp_set_state,               \
		.pkts_acked = ccp_pkts_acked, CCP_TX_START,                           \
		.min_tso_segs = ccp_min_tso_segs, .cong_control = ccp_cong_control,   \
		.name = given_name, .owner = THIS_MODULE,                             \
	}

/* Whichever name a socket chooses goes to the agent with its CREATE. */
static struct tcp_congestion_ops ccp_ops = CCP_OPS("pk3c"), ccp_alias = CCP_OPS("ccp");
static bool ccp_has_alias;

/*
 * From its first name on the module must not fail to load: sockets may hold it
 * already, and a module that fails is freed without waiting for them.
 */
static int ccp_register(void)
{
	int ret = tcp_register_congestion_control(&ccp_ops);

	if (ret == -EEXIST)
		pr_err("the congestion control '%s' is there already: stop the agent whose eBPF datapath has it (pk3c-ccp detach removes what a killed one left)\n",
		       ccp_ops.name);
	if (ret)
		return ret;
	ccp_has_alias = !tcp_register_congestion_control(&ccp_alias);
	if (!ccp_has_alias)
		pr_warn("another congestion control has the name '%s': only '%s' is this module's\n",
			ccp_alias.name, ccp_ops.name);
	return 0;
}

static void ccp_unregister(void)
{
	if (ccp_has_alias)
		tcp_unregister_congestion_control(&ccp_alias);
	tcp_unregister_congestion_control(&ccp_ops);
}

static int __init ccp_module_init(void)
{
	int ret;

	BUILD_BUG_ON(sizeof(struct ccp_ca) > ICSK_CA_PRIV_SIZE);
	ret = ccp_libccp_init();
	if (ret)
		return ret;
	ret = ccp_flows_init();
	if (ret)
		goto no_flows;
	ret = ccp_device_register();
	if (ret)
		goto no_device;
	ret = ccp_register();
	if (ret)
		goto no_name;
	ccp_device_ready();
	return 0;

no_name:
	ccp_device_unregister();
no_device:
	ccp_flows_exit();
no_flows:
	ccp_libccp_exit();
	return ret;
}

/* Sockets and the agent each hold the module, so neither is left. */
static void __exit ccp_module_exit(void)
{
	ccp_unregister();
	ccp_device_unregister();
	ccp_flows_exit();
	ccp_libccp_exit();
}

module_init(ccp_module_init);
module_exit(ccp_module_exit);

MODULE_AUTHOR("The pk3c-ccp developers");
MODULE_DESCRIPTION("TCP congestion control decided by a CCP agent in user space");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(CCP_MODULE_VERSION);
/*
 * No alias "tcp_pk3c": whoever chose pk3c before the agent is there would load
 * the module, which keeps the eBPF datapath from the name.
 */
