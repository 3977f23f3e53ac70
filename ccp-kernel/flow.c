// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Flows: one per socket, each with a libccp datapath of its own.
 *
 * libccp keeps connections in a table that it scans from the start, and numbers
 * them by their place in it. Here, every flow is the only connection of its own
 * struct ccp_datapath, a copy of the session's that shares its program table. So
 * flows need one lock each and none in common, beginning costs the same however
 * many there are, and a number is not used again for 2^31 flows: an agent's late
 * message never reaches another flow. The number is translated on the way in and
 * out.
 *
 * A flow has a libccp connection (f->conn) from the moment it is offered to an
 * agent (CREATE) until that agent is lost or the flow ends. With the next agent
 * it begins anew, with its window and segment size of that moment.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/slab.h>
#include <linux/xarray.h>
#include <net/ipv6.h>

#include "ccp_kernel.h"

#define CCP_MSG_CREATE 0
#define CCP_MSG_MEASURE 1
#define CCP_CLOSE_LEN 16 /* a MEASURE without fields */
#define CCP_SOLE_CONNECTION 1 /* its number, for libccp */
#define CCP_DESCRIBE_US (100 * USEC_PER_MSEC)

static DEFINE_XARRAY_FLAGS(ccp_flows, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_BH);
static u32 ccp_next_sid;
static atomic_t ccp_num_flows = ATOMIC_INIT(0);
static struct kmem_cache *ccp_flow_cache;

/* Flows that have ended, but could not say so yet. */
static LIST_HEAD(ccp_closing);
static DEFINE_SPINLOCK(ccp_closing_lock);

static void ccp_flow_free_rcu(struct rcu_head *rcu)
{
	kmem_cache_free(ccp_flow_cache, container_of(rcu, struct ccp_flow, rcu));
	atomic_dec(&ccp_num_flows);
}

/* ------------------------------------------------------------ messages */

static void ccp_copy_address(const struct sock *sk, bool remote, u8 *address)
{
	const struct sock_common *c = &sk->__sk_common;
	struct in6_addr *to = (struct in6_addr *)address;

#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		*to = remote ? c->skc_v6_daddr : c->skc_v6_rcv_saddr;
		return;
	}
#endif
	ipv6_addr_set_v4mapped(remote ? c->skc_daddr : c->skc_rcv_saddr, to);
}

/* What stays; a socket that is being closed has lost some of it. */
static void ccp_flow_introduce(struct ccp_flow *f)
{
	struct ccp_flow_msg *about = &f->about;

	BUILD_BUG_ON(sizeof(*about) != CCP_FLOW_MSG_LEN);
	about->type = CCP_MSG_FLOW;
	about->len = sizeof(*about);
	about->lport = f->sk->sk_num;
	about->rport = ntohs(f->sk->sk_dport);
	ccp_copy_address(f->sk, false, about->laddr);
	ccp_copy_address(f->sk, true, about->raddr);
}

/* Under the socket's lock. */
static void ccp_flow_describe(struct ccp_flow *f, u64 now)
{
	const struct ccp_flow_stats *stats = &f->stats;
	struct ccp_flow_msg *about = &f->about;

	about->sid = f->sid;
	about->srtt_us = tcp_sk(f->sk)->srtt_us >> 3;
	about->age_us = now - stats->born_us;
	about->driven_us = stats->driven_us;
	if (ccp_ca(f->sk)->mode == CCP_MODE_AGENT)
		about->driven_us += now - stats->mode_since_us;
	about->bytes_acked = stats->bytes_acked;
	about->pacing_rate = READ_ONCE(f->sk->sk_pacing_rate);
	about->fallbacks = stats->fallbacks;
	about->packets_delivered = stats->packets_delivered;
	about->packets_lost = stats->packets_lost;
	about->reports = stats->reports;
	about->reports_dropped = stats->reports_dropped;
	about->program_errors = stats->program_errors;
	about->mss = tcp_sk(f->sk)->mss_cache;
}

/* Once in a while with what the flow has carried, for those who watch. */
static void ccp_flow_report(struct ccp_flow *f, const char *msg, int len)
{
	u64 now = tcp_sk(f->sk)->tcp_mstamp;
	bool queued;

	if (now - f->last_describe_us < CCP_DESCRIBE_US) {
		queued = ccp_session_queue(f->session, msg, len, NULL, 0, NULL);
	} else {
		ccp_flow_describe(f, now);
		f->last_describe_us = now;
		queued = ccp_session_queue(f->session, &f->about, sizeof(f->about), msg, len, NULL);
	}
	if (queued) {
		f->stats.reports++;
		ccp_count(reports);
	} else {
		f->stats.reports_dropped++;
		ccp_count(reports_dropped);
	}
}

/*
 * libccp's messages about a flow. Always 0: to libccp an error would start a
 * fallback timer that is not used here.
 */
static int ccp_flow_send(struct ccp_datapath *dp, char *msg, int len)
{
	struct ccp_flow *f = container_of(dp, struct ccp_flow, dp);

	put_unaligned_le32(f->sid, msg + 4);
	switch (get_unaligned_le16(msg)) {
	case CCP_MSG_CREATE:
		ccp_flow_describe(f, f->last_create_us);
		if (ccp_session_queue(f->session, &f->about, sizeof(f->about), msg, len,
				      &f->create_end))
			ccp_count(creates);
		else
			ccp_count(creates_dropped); /* offered again later */
		break;
	case CCP_MSG_MEASURE:
		/* A close is ours to say; a report without fields would read as one. */
		if (len > CCP_CLOSE_LEN)
			ccp_flow_report(f, msg, len);
		break;
	}
	return 0;
}

static bool ccp_queue_close(struct ccp_session *s, const struct ccp_flow *f)
{
	u8 close[CCP_CLOSE_LEN] = { CCP_MSG_MEASURE, 0, CCP_CLOSE_LEN };

	put_unaligned_le32(f->sid, close + 4);
	if (!ccp_session_queue(s, &f->about, sizeof(f->about), close, sizeof(close), NULL))
		return false;
	ccp_count(closes);
	return true;
}

/* ------------------------------------------------------------ life */

struct ccp_flow *ccp_flow_new(struct sock *sk, u64 now)
{
	struct ccp_flow *f;

	if (atomic_inc_return(&ccp_num_flows) > ccp_max_flows)
		goto refuse;
	f = kmem_cache_zalloc(ccp_flow_cache, GFP_ATOMIC | __GFP_NOWARN);
	if (!f)
		goto refuse;
	spin_lock_init(&f->lock);
	INIT_LIST_HEAD(&f->closing);
	f->sk = sk;
	ccp_flow_introduce(f);
	f->stats.born_us = now;
	f->stats.mode_since_us = now;
	ccp_measure_from_now(f, tcp_sk(sk));
	if (xa_alloc_cyclic_bh(&ccp_flows, &f->sid, f, XA_LIMIT(1, S32_MAX), &ccp_next_sid,
			       GFP_ATOMIC | __GFP_NOWARN) >= 0) {
		ccp_count(flows_begun);
		return f;
	}
	kmem_cache_free(ccp_flow_cache, f);
refuse:
	atomic_dec(&ccp_num_flows);
	ccp_count(flows_refused);
	pr_notice_ratelimited("no room for another flow (max_flows is %u): it runs CUBIC\n",
			      ccp_max_flows);
	return NULL;
}

/* Under the socket's lock; the flow is gone afterwards. */
void ccp_flow_end(struct ccp_flow *f, u64 now)
{
	struct ccp_session *s;
	bool said = true;

	xa_erase_bh(&ccp_flows, f->sid);
	ccp_count(flows_ended);
	rcu_read_lock();
	s = ccp_session_current();
	spin_lock_bh(&f->lock);
	/* Also if the agent has lost it since: it knows the flow. */
	if (s && f->session_id == s->id) {
		if (f->staged && ccp_ca(f->sk)->mode == CCP_MODE_FALLBACK)
			f->stats.driven_us += now - min(f->staged_us, now);
		ccp_flow_describe(f, now);
		said = ccp_queue_close(s, f);
	}
	ccp_flow_withdraw(f);
	f->sk = NULL;
	if (!said) {
		ccp_count(closes_delayed);
		spin_lock(&ccp_closing_lock);
		list_add_tail(&f->closing, &ccp_closing);
		spin_unlock(&ccp_closing_lock);
	}
	spin_unlock_bh(&f->lock);
	rcu_read_unlock();
	if (said)
		call_rcu(&f->rcu, ccp_flow_free_rcu);
}

/* There is room again: the closes that had to wait. */
void ccp_flows_flush_closing(struct ccp_session *s)
{
	struct ccp_flow *f, *next;

	if (list_empty_careful(&ccp_closing))
		return;
	spin_lock_bh(&ccp_closing_lock);
	list_for_each_entry_safe(f, next, &ccp_closing, closing) {
		if (!ccp_queue_close(s, f))
			break;
		list_del(&f->closing);
		call_rcu(&f->rcu, ccp_flow_free_rcu);
	}
	spin_unlock_bh(&ccp_closing_lock);
}

/* Nobody is left to tell. */
void ccp_flows_forget_closing(void)
{
	struct ccp_flow *f, *next;

	spin_lock_bh(&ccp_closing_lock);
	list_for_each_entry_safe(f, next, &ccp_closing, closing) {
		list_del(&f->closing);
		call_rcu(&f->rcu, ccp_flow_free_rcu);
	}
	spin_unlock_bh(&ccp_closing_lock);
}

/* ------------------------------------------------------------ libccp */

/* All below are under f->lock. */

bool ccp_flow_is_offered(const struct ccp_flow *f, const struct ccp_session *s)
{
	return f->conn && s && f->session_id == s->id;
}

/* Takes the flow back from the agent that it was offered to. */
void ccp_flow_withdraw(struct ccp_flow *f)
{
	if (!f->conn)
		return;
	ccp_connection_free(&f->dp, CCP_SOLE_CONNECTION);
	f->conn = NULL;
	f->staged = false;
	f->early = false;
	f->early_cwnd = 0;
	f->early_rate = 0;
}

static bool ccp_is_ipv4(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6)
		return ipv6_addr_v4mapped(&sk->sk_v6_daddr);
#endif
	return true;
}

/* Says CREATE, also under the socket's lock. */
void ccp_flow_offer(struct ccp_flow *f, struct ccp_session *s, u64 now)
{
	struct sock *sk = f->sk;
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct sock_common *c = &sk->__sk_common;
	u64 cwnd = (u64)tcp_snd_cwnd(tp) * tp->mss_cache;
	struct ccp_datapath_info info = {
		.init_cwnd = min_t(u64, cwnd, U32_MAX),
		.mss = tp->mss_cache,
		.src_port = f->about.lport,
		.dst_port = f->about.rport,
	};

	/* The last one is still in the queue. */
	if (ccp_flow_is_offered(f, s) && READ_ONCE(s->tail) < f->create_end)
		return;
	f->last_create_us = now;
	ccp_flow_withdraw(f);
	if (!ccp_libccp_prepare_flow())
		return;
	/* CREATE has room for IPv4 only; the description has IPv6. As libccp's other datapaths. */
	if (ccp_is_ipv4(sk)) {
		info.src_ip = c->skc_rcv_saddr;
		info.dst_ip = c->skc_daddr;
	}
	strscpy(info.congAlg, inet_csk(sk)->icsk_ca_ops->name, sizeof(info.congAlg));

	f->session = s;
	f->session_id = s->id;
	f->create_end = U64_MAX;
	f->dp = s->dp;
	f->dp.send_msg = ccp_flow_send;
	f->dp.ccp_active_connections = &f->slot;
	memset(&f->slot, 0, sizeof(f->slot));
	ccp_libccp_set_now(now);
	f->conn = ccp_connection_start(&f->dp, sk, &info);
	if (f->create_end == U64_MAX)
		ccp_flow_withdraw(f); /* the queue was full */
}

/* One ACK. */
void ccp_flow_run(struct ccp_flow *f, struct ccp_session *s, const struct ccp_primitives *prims,
		  u64 now)
{
	f->session = s;
	f->staged = false;
	f->early = false;
	f->early_cwnd = 0;
	f->early_rate = 0;
	f->changed = false;
	f->slot.prims = *prims;
	ccp_libccp_set_now(now);
	if (ccp_invoke(f->conn) < 0) {
		f->stats.program_errors++;
		ccp_count(program_errors);
	}
}

int ccp_flow_message(struct ccp_session *s, u8 *msg, size_t len, const struct ccp_msg_info *info)
{
	struct ccp_flow *f;
	int ret = -ESRCH;

	rcu_read_lock();
	f = xa_load(&ccp_flows, info->sid);
	if (!f)
		goto out;
	spin_lock_bh(&f->lock);
	if (f->sk && ccp_flow_is_offered(f, s)) {
		put_unaligned_le32(CCP_SOLE_CONNECTION, msg + 4);
		ret = ccp_read_msg(&f->dp, msg, len);
	}
	if (!ret) {
		if (info->type == CCP_MSG_CHANGE) {
			f->staged = true;
			f->staged_us = ccp_now_us();
			f->early_cwnd = 0;
			f->early_rate = 0;
		}
		if (info->has_cwnd)
			f->early_cwnd = min_t(u64, info->cwnd, U32_MAX);
		if (info->has_rate)
			f->early_rate = min_t(u64, info->rate, CCP_UNLIMITED_RATE);
		WRITE_ONCE(f->early, f->early_cwnd || f->early_rate);
	}
	spin_unlock_bh(&f->lock);
out:
	rcu_read_unlock();
	return ret;
}

int ccp_flows_init(void)
{
	ccp_flow_cache = KMEM_CACHE(ccp_flow, 0);
	return ccp_flow_cache ? 0 : -ENOMEM;
}

/* No socket uses the module any more. */
void ccp_flows_exit(void)
{
	rcu_barrier();
	xa_destroy(&ccp_flows);
	kmem_cache_destroy(ccp_flow_cache);
}
