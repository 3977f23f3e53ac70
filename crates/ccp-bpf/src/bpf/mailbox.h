/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the agent has staged for a flow: a program, values for its registers, and
 * with a program the flow itself.
 */
#ifndef CCP_MAILBOX_H
#define CCP_MAILBOX_H

#include "modes.h"

static __always_inline void reset_registers(struct ccp_flow *f, const struct ccp_prog *p,
					    __u32 mask)
{
#pragma unroll
	for (int half = 0; half < CCP_NUM_DEF; half += CCP_NUM_DEF / 2) {
		if (!(mask >> half & 0xffff))
			continue;
#pragma unroll
		for (int i = half; i < half + CCP_NUM_DEF / 2; i++)
			if (mask & (1U << i))
				f->regs[i] = p->initial[i];
	}
}

/* libccp: the program's registers take their initial values, Micros is 0. */
static __always_inline bool change_program(struct ccp_flow *f, __u32 index, __u64 now)
{
	struct ccp_prog *p = bpf_map_lookup_elem(&program_tables, &index);

	if (!p)
		return false;
	reset_registers(f, p, p->defined_mask);
	f->regs[CCP_REG_IMPLICIT + 3] = 0;
	f->time_zero_us = now;
	f->msg_type = CCP_EV_MEASURE;
	f->msg_len = 16 + 8 * p->num_report;
	f->msg_sid = f->sid;
	f->msg_uid = p->uid;
	f->msg_fields = p->num_report;
	f->prog = index;
	f->uses = p->uses;
	f->epoch = READ_ONCE(control.epoch);
	return true;
}

/*
 * Take what the agent has staged, all of it or nothing. The sequence number
 * says whether a whole update is there; it is claimed by compare-and-swap
 * after the copy, so an update is applied exactly once, and never torn.
 */
static __noinline int take_mailbox(struct ccp_flow *f, __u64 now)
{
	__u64 value[CCP_NUM_CONTROL + 2];
	struct ccp_mailbox *m;
	__u32 seq, sid, prog, mask;

	if (!f)
		return 0;
	m = &f->mbox;
	seq = __sync_fetch_and_or(&m->seq, 0); /* what is read below is read later, on any CPU */
	if ((seq & (CCP_MBOX_WRITING | CCP_MBOX_PENDING)) != CCP_MBOX_PENDING)
		return 0;
	sid = READ_ONCE(m->sid);
	prog = READ_ONCE(m->prog);
	mask = READ_ONCE(m->mask);
#pragma unroll
	for (int i = 0; i < CCP_NUM_CONTROL + 2; i++)
		value[i] = READ_ONCE(m->value[i]);
	if (__sync_val_compare_and_swap(&m->seq, seq, seq & ~CCP_MBOX_PENDING) != seq)
		return 0; /* the agent is adding to it: all of it at the next look */
	if (sid != f->sid || (!prog && !f->prog) || is_barred(f, now)) {
		__sync_fetch_and_add(&control.stale_updates, 1);
		return 0;
	}
	if (prog && !change_program(f, prog, now))
		return 0;
	f->regs[CCP_REG_IMPLICIT + 4] = 0;
	f->regs[CCP_REG_IMPLICIT + 5] = 0;
#pragma unroll
	for (int i = 0; i < CCP_NUM_CONTROL; i++)
		if (mask & (1U << i))
			f->regs[CCP_REG_CONTROL + i] = value[i];
	if (mask & (1U << CCP_MBOX_CWND))
		f->regs[CCP_REG_IMPLICIT + 4] = value[CCP_MBOX_CWND];
	if (mask & (1U << CCP_MBOX_RATE))
		f->regs[CCP_REG_IMPLICIT + 5] = value[CCP_MBOX_RATE];
	return 1;
}

/* A program for this flow waits in the mailbox. */
static __always_inline bool program_waits(const struct ccp_flow *f)
{
	const struct ccp_mailbox *m = &f->mbox;

	return (READ_ONCE(m->seq) & CCP_MBOX_PENDING) && READ_ONCE(m->sid) == f->sid &&
	       READ_ONCE(m->prog);
}

/*
 * The fallback decides with ACKs, and with what is sent first after a silence. The
 * mailbox is looked at before, so from the moment a program is staged the fallback
 * decides nothing any more.
 */
static __always_inline __u64 staged_since(const struct ccp_flow *f, __u64 now)
{
	__u64 staged = READ_ONCE(f->mbox.staged_us);

	if (staged < f->stats.mode_since_us)
		return f->stats.mode_since_us;
	return staged < now ? staged : now;
}

static __always_inline void check_mailbox(struct sock *sk, struct tcp_sock *tp, struct ccp_flow *f,
					  __u64 now)
{
	__u32 wanted;

	if (!(READ_ONCE(f->mbox.seq) & CCP_MBOX_PENDING))
		return;
	wanted = READ_ONCE(f->governance.mode);
	if (!may_run(wanted) || !take_mailbox(f, now))
		return;
	if (CA_MODE(sk) == MODE_FALLBACK) {
		CA_MODE(sk) = wanted;
		CA_RATED(sk) = 0;
		f->stats.mode_since_us = staged_since(f, now);
		judge_losses_from(f, now);
	}
	if (CA_MODE(sk) != CCP_DRIVE)
		return;
	if (f->regs[CCP_REG_IMPLICIT + 5])
		CA_RATED(sk) = 1;
	set_cwnd(sk, tp, f, f->regs[CCP_REG_IMPLICIT + 4]);
	set_governed_rate(sk, f, f->regs[CCP_REG_IMPLICIT + 5]);
}

#endif /* CCP_MAILBOX_H */
