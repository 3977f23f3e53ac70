/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The kernel types this datapath touches, written by hand so that no vmlinux.h
 * has to be generated or committed. Only the members that are used are listed:
 * libbpf relocates every access against the running kernel's BTF (CO-RE), so
 * neither order, offset nor completeness matters, only names and sizes do.
 */
#ifndef CCP_KERNEL_H
#define CCP_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define NULL ((void *)0)
#define false 0
#define true 1

/* uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};

#define BPF_F_MMAPABLE (1U << 10)
#define BPF_RB_FORCE_WAKEUP (1ULL << 1)

/* uapi/linux/tcp.h */
enum tcp_ca_state {
	TCP_CA_Open,
	TCP_CA_Disorder,
	TCP_CA_CWR,
	TCP_CA_Recovery,
	TCP_CA_Loss,
};

/* net/tcp.h */
enum tcp_ca_event { CA_EVENT_TX_START };

#define TCP_CA_NAME_MAX 16
#define TCP_CONG_NON_RESTRICTED 1
#define TCP_INIT_CWND 10
#define TCP_INFINITE_SSTHRESH 0x7fffffff

/* net/tcp_states.h */
#define TCP_ESTABLISHED 1
#define TCP_CLOSE_WAIT 8
#define TCP_LISTEN 10

/* net/sock.h */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1

#define AF_INET6 10

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	__u32 sk_pacing_status;
	struct sock_cgroup_data sk_cgrp_data;
};

struct inet_sock {
	struct sock sk;
};

struct tcp_congestion_ops;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_state : 5;
	__u8 icsk_ca_setsockopt : 1;
	__u64 icsk_ca_priv[13];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_una;
	__u32 write_seq;
	__u32 undo_marker;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_cwnd;
	__u32 prr_out;
	__u32 mss_cache;
	__u32 srtt_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	__u32 total_retrans;
	__u32 dsack_dups;
	__u64 bytes_acked;
	__u64 tcp_mstamp;
};

struct rate_sample {
	__s32 delivered;
	long interval_us;
	__u32 snd_interval_us;
	__u32 rcv_interval_us;
	long rtt_us;
	int losses;
	__u32 acked_sacked;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us;
};

/* The argument of a program of type iter/tcp. */
struct bpf_iter__tcp {
	struct sock_common *sk_common;
};

/* The name stands first so that the agent can set it before the load. */
struct tcp_congestion_ops {
	char name[TCP_CA_NAME_MAX];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*cong_control)(struct sock *sk, const struct rate_sample *rs);
	__u32 (*undo_cwnd)(struct sock *sk);
};

/* The same from 7.1 on. */
struct tcp_congestion_ops___tx_start {
	char name[TCP_CA_NAME_MAX];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event_tx_start)(struct sock *sk);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*cong_control)(struct sock *sk, const struct rate_sample *rs);
	__u32 (*undo_cwnd)(struct sock *sk);
};

#pragma clang attribute pop

static inline struct inet_connection_sock *inet_csk(const struct sock *sk)
{
	return (struct inet_connection_sock *)sk;
}

static inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

#endif /* CCP_KERNEL_H */
