/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The contract between the BPF datapath and the agent: shared memory and ring
 * records. `layout.rs` mirrors it and tests itself against this file. Any change
 * of layout or meaning raises CCP_LAYOUT_VERSION.
 */
#ifndef CCP_INTF_H
#define CCP_INTF_H

#define CCP_LAYOUT_VERSION 4

/* One register file per flow, in this order; portus' limits per kind. */
#define CCP_REG_REPORT 0 /* report registers, sent to the agent */
#define CCP_NUM_REPORT 16
#define CCP_REG_CONTROL 16 /* control registers, set by the agent */
#define CCP_NUM_CONTROL 16
#define CCP_REG_IMPLICIT 32 /* flag, fallthrough, report, Micros, Cwnd, Rate */
#define CCP_NUM_IMPLICIT 6
#define CCP_REG_LOCAL 38
#define CCP_NUM_LOCAL 6
#define CCP_REG_TMP 44
#define CCP_NUM_TMP 8
#define CCP_REG_PRIM 52 /* primitives of this ACK, in libccp's order */
#define CCP_NUM_PRIM 15
#define CCP_NUM_REGS 67

/* Report and control registers: those that a DEF may initialise. */
#define CCP_NUM_DEF 32

/* Mailbox bits: 0..15 control registers, then these. */
#define CCP_MBOX_CWND 16
#define CCP_MBOX_RATE 17

/* Mailbox sequence: the agent counts up by 4; the low bits are states. */
#define CCP_MBOX_WRITING 1
#define CCP_MBOX_PENDING 2
#define CCP_MBOX_STEP 4

/* Programs an agent can have installed; index 0 is the epilogue. */
#define CCP_MAX_PROGS 64

/* Primitives that are only computed for programs that read them: rates in and out. */
#define CCP_USES_RATES 1

/* What is to be done with a flow, and what is being done with it. */
#define CCP_LEAVE 0 /* the fallback has it, and no program runs */
#define CCP_DRIVE 1 /* the agent has it */
#define CCP_OBSERVE 2 /* the fallback has it, and a program runs beside it */

/* A share of lost packets that no flow exceeds. */
#define CCP_ANY_LOSS_PPM 1000000

/* Ring records; CREATE and MEASURE as CCP's message types, CLOSE is ours. */
#define CCP_EV_CREATE 0
#define CCP_EV_MEASURE 1
#define CCP_EV_CLOSE 16

/* Offsets in struct ccp_flow that translated programs use. */
#define CCP_FLOW_ERRORS_OFF 8
#define CCP_FLOW_TIME_ZERO_OFF 16
#define CCP_FLOW_REGS_OFF 440
#define CCP_FLOW_SIZE 976

/*
 * Agent -> datapath: how a flow may be driven. Read at each use, so it takes
 * effect with the next ACK or transmission, and whatever it says is safe. It
 * holds as long as the flow lives, or until the next agent begins.
 */
struct ccp_governance {
	__u32 mode; /* CCP_DRIVE or CCP_OBSERVE; anything else leaves the flow alone */
	__u32 max_loss_ppm; /* a flow that loses more goes to the fallback for a while */
	__u64 min_rate; /* bytes/s */
	__u64 max_rate; /* bytes/s; beats min_rate, and binds the fallback too */
};

/* Agent -> datapath: staged updates, applied together at the next ACK. */
struct ccp_mailbox {
	__u32 seq; /* see CCP_MBOX_* */
	__u32 sid; /* the flow meant; another flow in the slot ignores it */
	__u32 prog; /* program to change to, 0 = none */
	__u32 mask; /* which of the values below are set */
	__u64 staged_us; /* when the first of them was written */
	__u64 value[CCP_NUM_CONTROL + 2];
};

/* Counters of one flow; the CLOSE record carries their last state. */
struct ccp_flow_stats {
	__u64 born_us; /* when the flow came under this congestion control */
	__u64 ended_us; /* 0 while it lives */
	__u64 driven_us; /* time the agent drove it, up to mode_since_us */
	__u64 mode_since_us; /* when the present mode began */
	__u64 bytes_acked; /* payload bytes acknowledged since then */
	__u64 invocations; /* program runs */
	__u32 reports; /* reports sent */
	__u32 reports_dropped; /* reports lost to a full ring */
	__u32 fallbacks; /* times it went from the agent to the fallback */
	__u32 packets_delivered;
	__u32 packets_lost;
	__u32 srtt_us;
};

struct ccp_flow {
	__u32 sid; /* generation << 16 | slot + 1; 0 = never used */
	__u32 live;
	__u64 errors; /* program runs given up: overflow, underflow, x / 0 */
	__u64 time_zero_us; /* Micros counts from here */
	__u32 prog; /* program that drives the flow, 0 = the fallback does */
	__u32 epoch; /* agent that installed it */
	__u32 last_delivered;
	__u32 last_lost;
	__u32 last_sacked;
	__u32 last_ce;
	__u32 last_duplicates;
	__u32 last_spurious; /* losses found to be none, */
	__u32 spurious; /* and those of them that no loss was set off against yet */
	__u32 reserved;
	__u64 last_bytes_acked;
	__u64 last_create_us;
	__u32 was_timeout;
	__u32 mss; /* as of the last ACK */
	__u16 family;
	__u16 lport; /* host order */
	__u16 rport; /* host order */
	__u16 uses; /* the program's, see CCP_USES_* */
	__u8 laddr[16]; /* network order; IPv4 in the first 4 bytes */
	__u8 raddr[16];
	__u64 cgroup_id; /* cgroup v2, 0 = not known */
	__u64 barred_until_us; /* it lost too much: no agent before */
	__u64 loss_since_us; /* the window over which losses are judged, */
	__u32 loss_delivered; /* and stats.packets_* when it began */
	__u32 loss_lost;
	struct ccp_governance governance;
	struct ccp_flow_stats stats;
	struct ccp_mailbox mbox;
	/* A MEASURE message as it goes to the agent: this header, then regs. */
	__u16 msg_type;
	__u16 msg_len;
	__u32 msg_sid;
	__u32 msg_uid;
	__u32 msg_fields;
	__u64 regs[CCP_NUM_REGS];
};

/* An installed program's tables; its code is in the program array. */
struct ccp_prog {
	__u32 uid;
	__u32 num_report;
	__u32 volatile_mask; /* reset to `initial` after each report */
	__u32 defined_mask; /* set to `initial` when a flow changes to the program */
	__u32 uses; /* primitives that cost something, see CCP_USES_* */
	__u32 reserved;
	__u64 initial[CCP_NUM_DEF];
};

/* Both directions, one per datapath. Counters only ever count up. */
struct ccp_control {
	__u32 layout_version;
	__u32 epoch; /* counts agents */
	__u64 beat_us; /* last sign of life of the agent, CLOCK_MONOTONIC */
	__u64 ring_flags; /* for bpf_ringbuf_output: how to wake the agent, but for a new flow */
	__u64 object_hash; /* of the BPF object that made the maps */
	__u64 creates_dropped;
	__u64 closes_dropped;
	__u64 no_slot;
	__u64 fallbacks;
	__u64 missing_programs;
	__u64 stale_updates;
	__u64 max_flow_rate; /* bytes/s, of a flow that is not governed yet */
	__u64 fallbacks_loss; /* of the fallbacks, those for max_loss_ppm */
};

/* Fixed at load time; each name is a load of its own, on the same maps. */
struct ccp_config {
	__u32 silence_us; /* the agent counts as gone after this */
	__u32 create_retry_us;
	__u32 min_cwnd; /* packets */
	__u32 have_cubic; /* Cubic's functions can be called, else Reno's are */
	__u64 min_rate; /* bytes/s */
	__u64 max_rate; /* bytes/s */
	char name[16]; /* the congestion control that this load is for */
};

struct ccp_ev_create {
	__u16 type;
	__u16 len;
	__u32 sid;
	__u32 cwnd_bytes;
	__u32 mss;
	char name[16]; /* that the socket chose */
};

struct ccp_ev_close {
	__u16 type;
	__u16 len;
	__u32 sid;
	struct ccp_flow_stats stats;
};

_Static_assert(sizeof(struct ccp_flow) == CCP_FLOW_SIZE, "flow size");
_Static_assert(__builtin_offsetof(struct ccp_flow, errors) == CCP_FLOW_ERRORS_OFF, "errors");
_Static_assert(__builtin_offsetof(struct ccp_flow, time_zero_us) == CCP_FLOW_TIME_ZERO_OFF, "t0");
_Static_assert(__builtin_offsetof(struct ccp_flow, regs) == CCP_FLOW_REGS_OFF, "regs");

#endif /* CCP_INTF_H */
