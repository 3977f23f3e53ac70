// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * A CCP datapath as a BPF struct_ops TCP congestion control.
 *
 * An agent in user space installs CCP programs. Each is translated to BPF and
 * put into `programs`; every ACK runs
 *
 *	cong_control -> (tail call) translated program [-> (tail call) epilogue]
 *
 * with the flow's registers in `flows[slot]`. The agent writes its updates into
 * the flow's mailbox (shared memory, no system call); reports, and the coming
 * and going of flows, go to the agent through the ring `events`.
 *
 * A flow is in one of three modes:
 *
 *	              program arrives in the mailbox
 *	FALLBACK -------------------------------------> DRIVE, or OBSERVE
 *	(Cubic)  <-------------------------------------
 *	              agent silent or replaced, program gone,
 *	              other governance, too many losses (DRIVE)
 *
 * In FALLBACK, the kernel's Cubic (Reno where Cubic is not there) decides, with
 * the kernel's own proportional rate reduction. The flow offers itself to the
 * agent with a CREATE record until a program arrives, so that neither a full
 * ring nor a restarted agent loses it. A flow that finds no free slot stays in
 * FALLBACK for its whole life. In OBSERVE Cubic decides, too; the program runs
 * and reports, but neither window nor rate obeys it.
 *
 * The agent says per flow which mode it wants, and within which limits (struct
 * ccp_governance). The limits hold whatever the agent then asks for, or if it
 * is gone.
 *
 * All callbacks of a socket run under its lock, so a flow's own fields need no
 * other synchronisation; only the mailbox is shared with the agent's writes.
 *
 * Here are the callbacks. state.h has what a socket and its flow keep, fallback.h
 * what Cubic decides, modes.h and mailbox.h who drives, measure.h what an ACK
 * tells, intf.h the contract with the agent.
 */
#include "mailbox.h"
#include "measure.h"

char _license[] SEC("license") = "GPL";

/* ------------------------------------------------------------ life */

/*
 * A socket begins here with init; where the kernel has skipped that, with the first
 * ACK of its data, which counts no further.
 */
static __always_inline void begin(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 now = bpf_ktime_get_ns() / 1000, rtt_us = tp->srtt_us >> 3;
	struct ccp_flow *f;
	__u32 slot, sid;

	CA_BEGUN(sk) = 1;
	CA_MODE(sk) = MODE_FALLBACK;
	CA_PRR_DELIVERED(sk) = 0;
	CA_CWND(sk) = 0; /* the initial window is the route's, and may come later */
	CA_STATE(sk) = ca_state(sk);
	CA_SLOT(sk) = 0;
	if (have_cubic())
		cubictcp_init(sk);
	/* Paced from the first packet: by fq where it is, else by TCP itself. */
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	if (rtt_us < 1000)
		rtt_us = 1000;
	set_rate(sk, 2ULL * tp->snd_cwnd * tp->mss_cache * USEC_PER_SEC / rtt_us);

	if (bpf_map_pop_elem(&free_slots, &slot)) {
		__sync_fetch_and_add(&control.no_slot, 1);
		return;
	}
	f = bpf_map_lookup_elem(&flows, &slot);
	if (!f)
		return;
	CA_SLOT(sk) = slot + 1;
	sid = ((f->sid & 0xffff0000) + 0x10000) | (slot + 1);
	/* On any CPU before its governance is reset: the agent relies on it. */
	__sync_lock_test_and_set(&f->sid, sid);
	f->errors = 0;
	f->prog = 0;
	f->was_timeout = 0;
	f->last_delivered = tp->delivered;
	f->last_lost = tp->lost;
	f->last_duplicates = duplicates(tp);
	f->last_spurious = spurious_losses(tp, f->last_duplicates);
	f->spurious = 0;
	f->last_sacked = tp->sacked_out;
	f->last_ce = tp->delivered_ce;
	f->last_bytes_acked = tp->bytes_acked;
	f->last_create_us = 0;
	f->family = sk->__sk_common.skc_family;
	f->lport = sk->__sk_common.skc_num;
	f->rport = bpf_ntohs(sk->__sk_common.skc_dport);
	if (bpf_core_field_exists(sk->__sk_common.skc_v6_daddr) && f->family == AF_INET6) {
		bpf_core_read(f->laddr, sizeof(f->laddr), &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(f->raddr, sizeof(f->raddr), &sk->__sk_common.skc_v6_daddr);
	} else {
		*(__u32 *)f->laddr = sk->__sk_common.skc_rcv_saddr;
		*(__u32 *)f->raddr = sk->__sk_common.skc_daddr;
	}
	f->cgroup_id = 0;
	if (bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		f->cgroup_id = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
	f->barred_until_us = 0;
	f->governance.mode = CCP_DRIVE;
	f->governance.max_loss_ppm = CCP_ANY_LOSS_PPM;
	f->governance.min_rate = 0;
	f->governance.max_rate = READ_ONCE(control.max_flow_rate);
	__builtin_memset(&f->stats, 0, sizeof(f->stats));
	f->stats.born_us = now;
	f->stats.mode_since_us = now;
	__builtin_memset(f->regs, 0, sizeof(f->regs));
	/* From now on the agent may govern it, and sees all of the above, on any CPU. */
	__sync_lock_test_and_set(&f->live, 1);
	if (agent_alive(now))
		offer(tp, f, now);
}

SEC("struct_ops/ccp_init")
void BPF_PROG(ccp_init, struct sock *sk)
{
	begin(sk);
}

SEC("struct_ops/ccp_release")
void BPF_PROG(ccp_release, struct sock *sk)
{
	struct ccp_flow *f = flow_of(sk);
	__u64 now = bpf_ktime_get_ns() / 1000;
	struct ccp_ev_close ev = { .type = CCP_EV_CLOSE, .len = sizeof(ev) };
	__u32 slot;

	if (!f)
		return;
	if (CA_MODE(sk) == CCP_DRIVE && now > f->stats.mode_since_us)
		f->stats.driven_us += now - f->stats.mode_since_us;
	else if (CA_MODE(sk) == MODE_FALLBACK && f->governance.mode == CCP_DRIVE &&
		 program_waits(f))
		f->stats.driven_us += now - staged_since(f, now);
	f->stats.mode_since_us = now;
	f->stats.ended_us = now;
	f->live = 0;
	ev.sid = f->sid;
	ev.stats = f->stats;
	/* A CLOSE that is lost here is found by the agent: see closes_dropped. */
	if (bpf_ringbuf_output(&events, &ev, sizeof(ev), READ_ONCE(control.ring_flags)))
		__sync_fetch_and_add(&control.closes_dropped, 1);
	slot = CA_SLOT(sk) - 1;
	CA_SLOT(sk) = 0;
	bpf_map_push_elem(&free_slots, &slot, 0);
}

/* ------------------------------------------------------------ per ACK */

static __always_inline void on_ack(void *ctx, struct sock *sk, __u32 ack,
				   const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_flow *f = flow_of(sk);
	__u64 now = tp->tcp_mstamp, mode, rate;
	__u32 wanted;
	bool alive;

	/* A handshake is acknowledged before init. */
	if (!CA_BEGUN(sk) && sk->__sk_common.skc_state == TCP_ESTABLISHED) {
		begin(sk);
		return;
	}
	keep_cwnd(sk, tp);
	if (!f) {
		fallback_ack(sk, tp, ack, rs);
		return;
	}
	alive = agent_alive(now);
	if (alive)
		check_mailbox(sk, tp, f, now);
	mode = CA_MODE(sk);
	wanted = READ_ONCE(f->governance.mode);
	if (mode != MODE_FALLBACK &&
	    (!alive || mode != wanted || f->epoch != READ_ONCE(control.epoch) || !f->prog ||
	     (mode == CCP_DRIVE && loses_too_much(f, now)))) {
		if (mode == CCP_DRIVE)
			leave_agent(sk, tp, f, now);
		else
			end_observation(sk, f, now);
		mode = MODE_FALLBACK;
	}
	load_primitives(tp, f, rs, now);
	if (mode == CCP_DRIVE) {
		bool rated = CA_RATED(sk);

		if (!rated) /* an algorithm of windows, or one that has not decided yet */
			pace_by_window(sk, tp);
		rate = sk->sk_pacing_rate;
		if (!rated || rate < READ_ONCE(f->governance.min_rate) ||
		    rate > READ_ONCE(f->governance.max_rate))
			set_governed_rate(sk, f, rate);
		/* The kernel makes it smaller after a timeout. */
		if (tp->snd_cwnd < config.min_cwnd)
			set_cwnd_packets(sk, tp, tp->snd_cwnd);
	} else {
		if (mode == MODE_FALLBACK && alive && may_run(wanted) && !is_barred(f, now) &&
		    now > f->last_create_us + config.create_retry_us)
			offer(tp, f, now);
		fallback_ack(sk, tp, ack, rs);
		rate = sk->sk_pacing_rate;
		if (wanted == CCP_DRIVE && rate > READ_ONCE(f->governance.max_rate))
			set_governed_rate(sk, f, rate);
		if (mode == MODE_FALLBACK)
			return;
	}
	f->stats.invocations++;
	f->regs[CCP_REG_IMPLICIT + 0] = 0;
	f->regs[CCP_REG_IMPLICIT + 1] = 0;
	f->regs[CCP_REG_IMPLICIT + 2] = 0;
	f->regs[CCP_REG_IMPLICIT + 3] = now - f->time_zero_us;
	f->regs[CCP_REG_IMPLICIT + 4] = (__u64)tp->snd_cwnd * tp->mss_cache;
	rate = sk->sk_pacing_rate;
	f->regs[CCP_REG_IMPLICIT + 5] = rate < UNLIMITED_RATE ? rate : UNLIMITED_RATE;
	bpf_tail_call(ctx, &programs, f->prog);
	/* Only reached when the program is not there: the fallback takes over. */
	__sync_fetch_and_add(&control.missing_programs, 1);
	f->prog = 0;
}

SEC("struct_ops/ccp_cong_control")
void BPF_PROG(ccp_cong_control, struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs)
{
	on_ack(ctx, sk, ack, rs);
}

/* Kernels up to 6.9. */
SEC("struct_ops/ccp_cong_control2")
void BPF_PROG(ccp_cong_control2, struct sock *sk, const struct rate_sample *rs)
{
	on_ack(ctx, sk, tcp_sk(sk)->snd_una, rs);
}

/* Tail-called by a program that wants a report, or a new window or rate. */
SEC("struct_ops/ccp_epilogue")
void BPF_PROG(ccp_epilogue, struct sock *sk)
{
	struct ccp_flow *f = flow_of(sk);
	struct ccp_prog *p;
	__u32 index, len;
	__u64 rate;

	if (!f)
		return;
	if (CA_MODE(sk) == CCP_DRIVE) {
		set_cwnd(sk, tcp_sk(sk), f, f->regs[CCP_REG_IMPLICIT + 4]);
		rate = sk->sk_pacing_rate;
		set_governed_rate(sk, f, f->regs[CCP_REG_IMPLICIT + 5]);
		if (sk->sk_pacing_rate != rate)
			CA_RATED(sk) = 1;
	}
	if (!f->regs[CCP_REG_IMPLICIT + 2])
		return;
	index = f->prog;
	p = bpf_map_lookup_elem(&program_tables, &index);
	if (!p)
		return;
	len = f->msg_len;
	if (len < 16 || len > 16 + 8 * CCP_NUM_REPORT)
		return;
	f->stats.srtt_us = tcp_sk(sk)->srtt_us >> 3;
	if (bpf_ringbuf_output(&events, &f->msg_type, len, READ_ONCE(control.ring_flags)))
		f->stats.reports_dropped++;
	else
		f->stats.reports++;
	reset_registers(f, p, p->volatile_mask);
}

/* ------------------------------------------------------------ the rest */

SEC("struct_ops/ccp_ssthresh")
__u32 BPF_PROG(ccp_ssthresh, struct sock *sk)
{
	if (CA_MODE(sk) == CCP_DRIVE)
		return tcp_sk(sk)->snd_ssthresh;
	return fallback_ssthresh(sk);
}

SEC("struct_ops/ccp_undo_cwnd")
__u32 BPF_PROG(ccp_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	keep_cwnd(sk, tp);
	if (CA_MODE(sk) == CCP_DRIVE)
		return tp->snd_cwnd;
	CA_CWND(sk) = max_u32(decided_cwnd(sk), tp->prior_cwnd);
	return max_u32(tp->snd_cwnd, tp->prior_cwnd);
}

/* Called before the socket takes the new state. */
SEC("struct_ops/ccp_set_state")
void BPF_PROG(ccp_set_state, struct sock *sk, __u8 new_state)
{
	struct ccp_flow *f;

	if (CA_MODE(sk) != MODE_FALLBACK && new_state == TCP_CA_Loss) {
		f = flow_of(sk);
		if (f)
			f->was_timeout = 1;
	}
	if (CA_MODE(sk) != CCP_DRIVE)
		follow_state(sk, tcp_sk(sk), ca_state(sk), new_state);
}

/*
 * What is sent first after a silence is sent as the agent has decided in between:
 * no ACK has told of it.
 */
static __always_inline void resume(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccp_flow *f = flow_of(sk);

	keep_cwnd(sk, tp);
	if (f && agent_alive(tp->tcp_mstamp))
		check_mailbox(sk, tp, f, tp->tcp_mstamp);
}

SEC("struct_ops/ccp_cwnd_event")
void BPF_PROG(ccp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		resume(sk);
	if (CA_MODE(sk) != CCP_DRIVE && have_cubic())
		cubictcp_cwnd_event(sk, event);
}

/* Kernels from 7.1 on have a callback for the only event that Cubic wants. */
SEC("struct_ops/ccp_cwnd_event_tx_start")
void BPF_PROG(ccp_cwnd_event_tx_start, struct sock *sk)
{
	resume(sk);
	if (CA_MODE(sk) != CCP_DRIVE && have_cubic())
		cubictcp_cwnd_event_tx_start(sk);
}

SEC("struct_ops/ccp_pkts_acked")
void BPF_PROG(ccp_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	if (CA_MODE(sk) != CCP_DRIVE && have_cubic())
		cubictcp_acked(sk, sample);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ccp_ops = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)ccp_init,
	.release = (void *)ccp_release,
	.ssthresh = (void *)ccp_ssthresh,
	.set_state = (void *)ccp_set_state,
	.cwnd_event = (void *)ccp_cwnd_event,
	.pkts_acked = (void *)ccp_pkts_acked,
	.cong_control = (void *)ccp_cong_control,
	.undo_cwnd = (void *)ccp_undo_cwnd,
};

/* Kernels from 7.1 on; untested. */
SEC(".struct_ops.link")
struct tcp_congestion_ops___tx_start ccp_ops3 = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)ccp_init,
	.release = (void *)ccp_release,
	.ssthresh = (void *)ccp_ssthresh,
	.set_state = (void *)ccp_set_state,
	.cwnd_event_tx_start = (void *)ccp_cwnd_event_tx_start,
	.pkts_acked = (void *)ccp_pkts_acked,
	.cong_control = (void *)ccp_cong_control,
	.undo_cwnd = (void *)ccp_undo_cwnd,
};

/* Kernels up to 6.9. */
SEC(".struct_ops.link")
struct tcp_congestion_ops ccp_ops2 = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)ccp_init,
	.release = (void *)ccp_release,
	.ssthresh = (void *)ccp_ssthresh,
	.set_state = (void *)ccp_set_state,
	.cwnd_event = (void *)ccp_cwnd_event,
	.pkts_acked = (void *)ccp_pkts_acked,
	.cong_control = (void *)ccp_cong_control2,
	.undo_cwnd = (void *)ccp_undo_cwnd,
};

/* Never registered: it gives the epilogue the type of a cong_control. */
SEC(".struct_ops.link")
struct tcp_congestion_ops ccp_type = {
	.name = "ccp_type",
	.ssthresh = (void *)ccp_ssthresh,
	.undo_cwnd = (void *)ccp_undo_cwnd,
	.cong_control = (void *)ccp_epilogue,
};
