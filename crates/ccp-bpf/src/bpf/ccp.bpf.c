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
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "intf.h"

char _license[] SEC("license") = "GPL";

#define NO_RTT_SAMPLE 0xffffffffULL /* what libccp's machine reads then */
/*
 * The largest rate that CCP's messages can carry: asked for, it leaves only the
 * limits of the flow and the socket; as config.max_rate it is no limit.
 */
#define UNLIMITED_RATE 0xffffffffULL
#define USEC_PER_SEC 1000000ULL
/* Losses are judged over windows of at least so long and so many packets. */
#define LOSS_WINDOW_US USEC_PER_SEC
#define LOSS_WINDOW_PACKETS 200
#define LOSS_BAR_US (10 * USEC_PER_SEC) /* how long a lossy flow stays with the fallback */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))

const volatile struct ccp_config config SEC(".rodata.config") = {};
struct ccp_control control SEC(".data.control") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before load */
	__type(key, __u32);
	__type(value, struct ccp_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1); /* set before load */
	__type(value, __u32);
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set before load */
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CCP_MAX_PROGS);
	__type(key, __u32);
	__type(value, struct ccp_prog);
} program_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, CCP_MAX_PROGS);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

extern void cubictcp_init(struct sock *sk) __ksym __weak;
extern __u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym __weak;
extern void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym __weak;
extern void cubictcp_state(struct sock *sk, __u8 new_state) __ksym __weak;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym __weak;
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym __weak;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym __weak;
extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

/*
 * Per-socket state beside Cubic's: struct bictcp takes the first 60 bytes of
 * icsk_ca_priv, so that Cubic's own functions can run on the same socket.
 */
#define CA_CWND(sk) (inet_csk(sk)->icsk_ca_priv[8]) /* last decided here, 0 = not yet */
#define CA_NOTES(sk) ((__u32 *)&inet_csk(sk)->icsk_ca_priv[9])
#define CA_RATED(sk) (CA_NOTES(sk)[0]) /* the agent has set the rate */
#define CA_STATE(sk) (CA_NOTES(sk)[1]) /* icsk_ca_state as the fallback knows it */
#define CA_MODE(sk) (inet_csk(sk)->icsk_ca_priv[10]) /* CCP_DRIVE, CCP_OBSERVE, MODE_FALLBACK */
#define CA_PRR(sk) ((__u32 *)&inet_csk(sk)->icsk_ca_priv[11])
#define CA_PRR_DELIVERED(sk) (CA_PRR(sk)[0])
#define CA_UNA(sk) (CA_PRR(sk)[1]) /* snd_una as of the fallback's last ACK */
#define CA_LIFE(sk) ((__u32 *)&inet_csk(sk)->icsk_ca_priv[12])
#define CA_SLOT(sk) (CA_LIFE(sk)[0]) /* slot + 1, 0 = none */
#define CA_BEGUN(sk) (CA_LIFE(sk)[1]) /* all of this is set; the kernel clears it before init */

#define MODE_FALLBACK CCP_LEAVE

static __always_inline __u32 max_u32(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

static __always_inline __u32 min_u32(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

static __always_inline __u64 max_u64(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u64 min_u64(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static __always_inline struct ccp_flow *flow_of(struct sock *sk)
{
	__u32 slot = CA_SLOT(sk);

	if (!slot)
		return NULL;
	slot--;
	return bpf_map_lookup_elem(&flows, &slot);
}

static __always_inline __u8 ca_state(struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(inet_csk(sk), icsk_ca_state);
}

static __always_inline __u32 packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

/* A time from the future is no sign of life, or a mad agent could keep the flows for ever. */
static __always_inline bool agent_alive(__u64 now)
{
	return now - READ_ONCE(control.beat_us) + config.silence_us < 2ULL * config.silence_us;
}

/* Any window, before the first was decided. */
static __always_inline __u32 decided_cwnd(struct sock *sk)
{
	__u32 cwnd = CA_CWND(sk);

	return cwnd ? cwnd : ~0U;
}

/*
 * The kernel was seen to skip calls, one in thousands, and to take for the result
 * what was on the stack (6.18). The window is kept nevertheless. Between two calls
 * the kernel only makes it smaller, but for an undo, which is decided here, too: a
 * larger one ends before anything is sent in it. A missed change of state is
 * followed with the next ACK, see follow_state(), a missed init made good, see
 * begin(). There is no min_tso_segs: with a result of 0 TCP sends segments of no
 * length, which nothing acknowledges, until its window is full of them.
 */
static __always_inline void keep_cwnd(struct sock *sk, struct tcp_sock *tp)
{
	__u32 decided = decided_cwnd(sk);

	if (tp->snd_cwnd > decided)
		tp->snd_cwnd = decided;
}

static __always_inline void decide_cwnd(struct sock *sk, struct tcp_sock *tp, __u32 packets)
{
	tp->snd_cwnd = packets;
	CA_CWND(sk) = packets;
}

static __always_inline void set_cwnd_packets(struct sock *sk, struct tcp_sock *tp, __u32 packets)
{
	decide_cwnd(sk, tp, min_u32(max_u32(packets, config.min_cwnd), tp->snd_cwnd_clamp));
}

/* Where the flow may not go below some rate, its window makes room for that. */
static __always_inline void set_cwnd(struct sock *sk, struct tcp_sock *tp, const struct ccp_flow *f,
				     __u64 bytes)
{
	__u64 min_rate = READ_ONCE(f->governance.min_rate), least, packets;
	__u32 mss = tp->mss_cache;

	if (!mss)
		return;
	if (min_rate) {
		min_rate = min_u64(min_rate, READ_ONCE(f->governance.max_rate));
		least = min_u64(min_rate, config.max_rate) * (tp->srtt_us >> 3) / USEC_PER_SEC +
			config.min_cwnd * mss;
		if (!bytes)
			bytes = (__u64)tp->snd_cwnd * mss;
		if (bytes < least)
			bytes = least;
	}
	if (!bytes)
		return;
	packets = bytes / mss;
	set_cwnd_packets(sk, tp, packets > 0x7fffffff ? 0x7fffffff : packets);
}

/* Without a limit, neither the socket's nor another, it is not paced. */
static __always_inline void set_rate(struct sock *sk, __u64 rate)
{
	if (!rate)
		return;
	if (rate < config.min_rate)
		rate = config.min_rate;
	if (rate > config.max_rate && config.max_rate != UNLIMITED_RATE)
		rate = config.max_rate;
	if (rate > sk->sk_max_pacing_rate)
		rate = sk->sk_max_pacing_rate;
	sk->sk_pacing_rate = rate;
}

/* The flow's own limits are within those of the datapath. */
static __always_inline void set_governed_rate(struct sock *sk, const struct ccp_flow *f, __u64 rate)
{
	__u64 min_rate = READ_ONCE(f->governance.min_rate);
	__u64 max_rate = READ_ONCE(f->governance.max_rate);

	if (!rate)
		return;
	if (rate >= UNLIMITED_RATE)
		rate = ~0ULL;
	if (rate < min_rate)
		rate = min_rate;
	if (rate > max_rate)
		rate = max_u64(max_rate, 1);
	set_rate(sk, rate);
}

/* ------------------------------------------------------------ fallback */

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

/* ------------------------------------------------------------ modes */

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

/* ------------------------------------------------------------ mailbox */

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

/* ------------------------------------------------------------ primitives */

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
