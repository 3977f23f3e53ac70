/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What there is: the maps, what a socket keeps beside its flow's registers, and
 * how its window and its rate are set, within all limits.
 */
#ifndef CCP_STATE_H
#define CCP_STATE_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "intf.h"

/*
 * The largest rate that CCP's messages can carry: asked for, it leaves only the
 * limits of the flow and the socket; as config.max_rate it is no limit.
 */
#define UNLIMITED_RATE 0xffffffffULL
#define USEC_PER_SEC 1000000ULL
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

#endif /* CCP_STATE_H */
