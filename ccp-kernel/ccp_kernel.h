/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What the parts of the module know of each other. */
#ifndef CCP_KERNEL_H
#define CCP_KERNEL_H

#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/tcp.h>
#include <linux/types.h>
#include <linux/version.h>
#include <linux/wait.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif
#include <net/tcp.h>

#include "ccp.h" /* libccp's */
#include "ccp_wire.h"
#include "validate.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "tcp_ccp needs Linux 6.1 or later (6.1 and 6.12 are tested)"
#endif

/* libccp divides 64-bit numbers, and takes messages as they lie in memory. */
#if BITS_PER_LONG != 64 || defined(__BIG_ENDIAN)
#error "tcp_ccp needs a little-endian 64-bit kernel"
#endif

/* What libccp takes lies ready on this CPU, where only softirqs are kept away; see libccp.c. */
#ifdef CONFIG_PREEMPT_RT
#error "tcp_ccp does not run on PREEMPT_RT"
#endif

#define CCP_MIN_CWND 4 /* packets */
#define CCP_MIN_RATE 2000 /* bytes/s: a pacing timer, once armed, is not shortened */
#define CCP_UNLIMITED_RATE U32_MAX /* the largest that CCP's messages can carry */
#define CCP_CREATE_RETRY_US 100000

/* ------------------------------------------------------------ counters */

#define CCP_COUNTERS(C)                                                          \
	C(flows_begun, "connections that chose the module's congestion control") \
	C(flows_ended, "of which ended, or chose another one")                   \
	C(flows_refused, "connections beyond max_flows, or without memory")      \
	C(agents, "times that an agent opened the device")                       \
	C(agents_refused, "times that a second agent was turned away")           \
	C(installs, "programs installed")                                        \
	C(updates, "messages to flows, accepted")                                \
	C(stale, "messages to flows that have ended or are offered anew")        \
	C(creates, "flows offered to an agent")                                  \
	C(creates_dropped, "of which lost to a full queue, and repeated")        \
	C(reports, "reports queued")                                             \
	C(reports_dropped, "reports lost to a full queue")                       \
	C(closes, "closes queued")                                               \
	C(closes_delayed, "closes that had to wait for room in the queue")       \
	C(fallbacks, "times that a flow lost its agent")                         \
	C(adoptions, "times that an agent took a flow over")                     \
	C(program_errors, "program runs given up: overflow, underflow, x / 0")

enum ccp_counter {
#define CCP_COUNTER_ENUM(name, text) CCP_COUNT_##name,
	CCP_COUNTERS(CCP_COUNTER_ENUM)
#undef CCP_COUNTER_ENUM
	CCP_NUM_COUNTERS,
};

struct ccp_counters {
	u64 count[CCP_NUM_COUNTERS];
	u64 rejected[CCP_NUM_VERDICTS];
};

DECLARE_PER_CPU(struct ccp_counters, ccp_counters);
extern const struct attribute_group *ccp_counter_groups[];

#define ccp_count(name) this_cpu_inc(ccp_counters.count[CCP_COUNT_##name])
#define ccp_count_rejected(verdict) this_cpu_inc(ccp_counters.rejected[verdict])

/* ------------------------------------------------------------ sessions */

/* An agent, from its open() of the device to its close(). Readers use RCU. */
struct ccp_session {
	u32 id; /* never 0, never used again soon */
	struct ccp_datapath dp; /* the model of the flows': program table, callbacks */
	struct ccp_connection unused; /* libccp wants a connection to exist */
	u64 heard_us; /* the agent's last call */
	bool drained; /* it wants no flows */

	struct mutex write_lock; /* installed programs */
	u32 num_programs;
	u32 *uids;

	struct mutex read_lock; /* bounce buffer */
	u8 *bounce;

	spinlock_t queue_lock; /* messages to the agent, whole ones */
	u8 *queue;
	u32 queue_mask; /* its size, a power of two, minus 1 */
	u64 head, tail; /* bytes ever queued, and read */
	wait_queue_head_t wait;
};

u64 ccp_now_us(void);
struct ccp_session *ccp_session_alive(u64 now);
struct ccp_session *ccp_session_current(void);
u64 ccp_session_lasted(u32 id, u64 now);
bool ccp_session_queue(struct ccp_session *s, const void *first, u32 first_len, const void *second,
		       u32 second_len, u64 *end);
int ccp_device_register(void);
void ccp_device_unregister(void);
void ccp_device_ready(void);

/* ------------------------------------------------------------ flows */

struct ccp_flow_stats {
	u64 born_us;
	u64 driven_us; /* up to mode_since_us */
	u64 mode_since_us;
	u64 bytes_acked;
	u32 fallbacks;
	u32 packets_delivered;
	u32 packets_lost;
	u32 reports;
	u32 reports_dropped;
	u32 program_errors;
};

struct ccp_flow {
	spinlock_t lock; /* what follows, between the socket and the agent's writes */
	u32 sid;
	struct sock *sk; /* NULL once the socket has let go */
	struct ccp_session *session; /* only to compare, and to queue under RCU */
	u32 session_id; /* to which the flow was offered */
	struct ccp_datapath dp;
	struct ccp_connection slot; /* the only one of dp */
	struct ccp_connection *conn; /* NULL: not offered */
	bool staged; /* a program waits for the next ACK */
	u64 staged_us; /* since when */
	bool early; /* window or rate wait for the next transmission */
	bool changed; /* the program has set the rate */
	u32 early_cwnd; /* bytes, 0 = none */
	u32 early_rate; /* bytes/s, 0 = none */
	u64 create_end; /* place of the CREATE in the session's queue */

	/* Under the socket's lock. */
	u64 last_create_us;
	u64 last_describe_us; /* in front of a report */
	u32 last_delivered;
	u32 last_lost;
	u32 last_sacked;
	u32 last_ce;
	u32 last_duplicates;
	u32 last_spurious; /* losses found to be none, */
	u32 spurious; /* and those of them that no loss was set off against yet */
	u64 last_bytes_acked;
	bool was_timeout;
	struct ccp_flow_stats stats;

	struct ccp_flow_msg about; /* for the agent */
	struct list_head closing; /* waits for room to say that it is closed */
	struct rcu_head rcu;
};

enum ccp_mode { CCP_MODE_FALLBACK, CCP_MODE_AGENT };

/* CUBIC's state; see fallback.c. */
struct ccp_cubic {
	u32 w_max; /* packets, 0 = no loss yet */
	u32 w_est; /* Reno's window, packets */
	u32 w_est_acked; /* packets towards its next one */
	u32 epoch_cwnd; /* window at the epoch's start, 0 = no epoch */
	u32 k_ms; /* from the epoch's start to w_max */
	u32 epoch_ms;
	u32 prior_cwnd; /* before the last reduction */
	u32 round_end; /* slow start: sequence number that ends the round */
	u32 round_rtt_us;
	u8 round_samples;
};

/* Per socket, in icsk_ca_priv. */
struct ccp_ca {
	struct ccp_flow *flow; /* NULL: in fallback for its whole life */
	u8 mode;
	u8 rated; /* the agent has set the rate */
	u32 cwnd; /* that the agent was last given, packets; a timeout makes the socket's smaller */
	u32 una; /* snd_una as of the fallback's last ACK */
	struct ccp_cubic cubic;
};

static inline struct ccp_ca *ccp_ca(struct sock *sk)
{
	return inet_csk_ca(sk);
}

extern unsigned int ccp_max_flows;

int ccp_flows_init(void);
void ccp_flows_exit(void);
struct ccp_flow *ccp_flow_new(struct sock *sk, u64 now);
void ccp_flow_end(struct ccp_flow *f, u64 now);
void ccp_flow_offer(struct ccp_flow *f, struct ccp_session *s, u64 now);
void ccp_flow_withdraw(struct ccp_flow *f);
void ccp_flow_run(struct ccp_flow *f, struct ccp_session *s, const struct ccp_primitives *prims,
		  u64 now);
bool ccp_flow_is_offered(const struct ccp_flow *f, const struct ccp_session *s);
void ccp_flows_flush_closing(struct ccp_session *s);
void ccp_flows_forget_closing(void);

/* The agent's message to one flow; -ESRCH if there is no such flow (any more). */
int ccp_flow_message(struct ccp_session *s, u8 *msg, size_t len, const struct ccp_msg_info *info);

/* ------------------------------------------------------------ per ACK */

void ccp_measure(struct ccp_flow *f, const struct tcp_sock *tp, const struct rate_sample *rs,
		 struct ccp_primitives *prims);
void ccp_measure_from_now(struct ccp_flow *f, const struct tcp_sock *tp);

void ccp_set_cwnd(struct tcp_sock *tp, u64 bytes);
bool ccp_set_rate(struct sock *sk, u64 rate);
void ccp_pace_by_window(struct sock *sk);

void ccp_fallback_begin(struct sock *sk);
void ccp_fallback_ack(struct sock *sk, const struct rate_sample *rs);
void ccp_fallback_acked(struct sock *sk, const struct ack_sample *sample);
void ccp_fallback_state(struct sock *sk, u8 new_state);
void ccp_fallback_tx_start(struct sock *sk);
u32 ccp_fallback_ssthresh(struct sock *sk);

/* ------------------------------------------------------------ libccp */

int ccp_libccp_init(void);
void ccp_libccp_exit(void);
/* Memory for the next connection or program table; false if there is none. */
bool ccp_libccp_prepare_flow(void);
bool ccp_libccp_prepare_programs(u32 programs);
void ccp_libccp_free_programs(struct ccp_datapath *dp);
void ccp_libccp_callbacks(struct ccp_datapath *dp);
/* What libccp allocates and frees with. */
void *ccp_libccp_take(size_t size);
void ccp_libccp_give(void *memory);
/* What is to be set; libccp's callbacks get only the lower half of it. */
u64 ccp_libccp_cwnd(const struct ccp_connection *conn);
u64 ccp_libccp_rate(const struct ccp_connection *conn);
/* What libccp's clock says, until set again; with softirqs off. */
void ccp_libccp_set_now(u64 us);

#endif /* CCP_KERNEL_H */
