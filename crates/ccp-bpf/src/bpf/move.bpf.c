// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Moves live TCP connections from one congestion control to another, as if each
 * of their owners had called setsockopt(TCP_CONGESTION). One pass of the
 * kernel's iterator over the TCP sockets of a network namespace; the kernel
 * holds the lock of the socket that is looked at.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "move.h"

char _license[] SEC("license") = "GPL";

#define SOL_TCP 6
#define TCP_CONGESTION 13

const volatile struct ccp_move move SEC(".rodata.config") = {};
struct ccp_moved moved SEC(".data.moved") = {};

union cc_name {
	char text[TCP_CA_NAME_MAX];
	__u64 words[2];
};

static __always_inline bool is_meant(const union cc_name *name)
{
	for (__u32 i = 0; i < CCP_MOVE_FROM && i < move.num_from; i++)
		if (move.from[i].words[0] == name->words[0] &&
		    move.from[i].words[1] == name->words[1])
			return true;
	return false;
}

static __always_inline bool is_meant_port(__u16 port)
{
	if (!move.num_ports)
		return true;
	for (__u32 i = 0; i < CCP_MOVE_PORTS && i < move.num_ports; i++)
		if (move.ports[i] == port)
			return true;
	return false;
}

SEC("iter/tcp")
int ccp_move_sockets(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	const struct tcp_congestion_ops *before;
	union cc_name name = {}, to;
	struct tcp_sock *tp;
	__u8 state;

	if (!skc)
		return 0;
	state = skc->skc_state;
	if (!move.any_state && state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		return 0;
	if (!is_meant_port(skc->skc_num))
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp || bpf_getsockopt(tp, SOL_TCP, TCP_CONGESTION, &name, sizeof(name)))
		return 0;
	if (!is_meant(&name))
		return 0;
	/* What it accepts follows the default, which a choice of its own would end for good. */
	if (state == TCP_LISTEN && !BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_setsockopt))
		return 0;
	to.words[0] = move.to.words[0];
	to.words[1] = move.to.words[1];
	/* One name can be two: what is registered now, and what a stop has left. */
	before = tp->inet_conn.icsk_ca_ops;
	if (bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, &to, sizeof(to)))
		moved.refused++;
	else if (tp->inet_conn.icsk_ca_ops != before)
		moved.moved++;
	return 0;
}
