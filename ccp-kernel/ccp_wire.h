/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What is said on /dev/ccpkp beyond CCP.
 *
 * By the module: a FLOW message in front of each CREATE, of each close (a MEASURE
 * without fields), and of a report every 100 ms or less often. portus skips types
 * that it does not know, so agents that do not know it either need not care.
 *
 * By the agent: DRAIN hands all flows to the fallback, and keeps new ones there;
 * RESUME takes that back. Both are a header only, its sid is 0.
 *
 * All numbers are little-endian; the layout has no holes.
 */
#ifndef CCP_WIRE_H
#define CCP_WIRE_H

#include <linux/types.h>

#define CCP_MSG_FLOW 32

struct ccp_flow_msg {
	__u16 type; /* CCP_MSG_FLOW */
	__u16 len; /* of the whole message; later versions may append */
	__u32 sid; /* as in the message that follows */
	__u8 laddr[16]; /* network order; IPv4 mapped into IPv6 */
	__u8 raddr[16];
	__u16 lport; /* host order */
	__u16 rport;
	__u32 srtt_us; /* 0 = no sample yet */
	__u64 age_us; /* since the flow came under this congestion control */
	__u64 driven_us; /* of which the agent drove it */
	__u64 bytes_acked; /* payload, in that time */
	__u64 pacing_rate; /* bytes/s; 2^64 - 1 = unpaced */
	__u32 fallbacks; /* times the agent fell silent on it */
	__u32 packets_delivered;
	__u32 packets_lost;
	__u32 reports; /* queued */
	__u32 reports_dropped; /* lost to a full queue */
	__u32 program_errors; /* runs given up: overflow, underflow, x / 0 */
	__u32 mss; /* bytes, now */
	__u32 reserved; /* 0 */
};

#define CCP_FLOW_MSG_LEN 112

#define CCP_MSG_DRAIN 33
#define CCP_MSG_RESUME 34
#define CCP_DRAIN_MSG_LEN 8

#endif /* CCP_WIRE_H */
