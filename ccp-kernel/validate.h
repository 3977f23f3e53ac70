/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Validates messages of an agent; also compiles in user space, for tests. */
#ifndef CCP_VALIDATE_H
#define CCP_VALIDATE_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

/* CCP's message types and portus' limits, both as in libccp's serialize.h. */
#define CCP_MSG_INSTALL 2
#define CCP_MSG_UPDATE 3
#define CCP_MSG_CHANGE 4

/* The longest that can be valid: 255 events and 255 instructions. */
#define CCP_MSG_MAX (8 + 12 + 2 * 255 * 16)

/*
 * Why a message is refused: name of the counter, and what it counts. The last
 * four depend on what is installed, not on the message alone.
 */
#define CCP_VERDICTS(V)                                                       \
	V(length, "header, counts and bytes do not agree")                    \
	V(type, "not a message for a datapath")                               \
	V(limit, "more events, instructions, definitions or values than fit") \
	V(operation, "unknown operation, or a definition after the first")    \
	V(register, "unknown register, or one that may not stand there")      \
	V(range, "an event reaches outside the program")                      \
	V(twice, "a register is defined a second time")                       \
	V(exists, "the program is installed already")                         \
	V(first, "program 1 after others, which libccp would forget")         \
	V(full, "there is no room for another program")                       \
	V(program, "the program is not installed")

enum ccp_verdict {
	CCP_VALID,
#define CCP_VERDICT_ENUM(name, text) CCP_BAD_##name,
	CCP_VERDICTS(CCP_VERDICT_ENUM)
#undef CCP_VERDICT_ENUM
	CCP_NUM_VERDICTS,
};

/* What a valid message is about. */
struct ccp_msg_info {
	u16 type;
	u32 sid; /* not for CCP_MSG_INSTALL */
	u32 uid; /* not for CCP_MSG_UPDATE */
	bool has_cwnd;
	bool has_rate;
	u64 cwnd; /* bytes, 0 = leave it */
	u64 rate; /* bytes/s, 0 = leave it */
};

enum ccp_verdict ccp_validate(const u8 *msg, size_t len, struct ccp_msg_info *info);

#endif /* CCP_VALIDATE_H */
