/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What the agent tells move.bpf.c, and what it hears; `connections.rs` mirrors it. */
#ifndef CCP_MOVE_H
#define CCP_MOVE_H

#define CCP_MOVE_FROM 16
#define CCP_MOVE_PORTS 64

/* A congestion control's name, filled up with zeros. */
struct ccp_cc_name {
	__u64 words[2];
};

struct ccp_move {
	struct ccp_cc_name to;
	struct ccp_cc_name from[CCP_MOVE_FROM];
	__u32 num_from;
	__u32 num_ports; /* 0 = any port */
	__u32 any_state; /* listeners and closing sockets too, not connections only */
	__u16 ports[CCP_MOVE_PORTS]; /* local, host order */
};

struct ccp_moved {
	__u64 moved;
	__u64 refused;
};

#endif /* CCP_MOVE_H */
