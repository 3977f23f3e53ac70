// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Everything that libccp takes on trust.
 *
 * libccp copies counts, lengths and register numbers from the agent's messages
 * into loops and array indices. A message that passes here is exactly as long as
 * its header and counts say, names only registers that exist and may stand where
 * they do, and describes a program that ends:
 *
 *	- libccp counts instructions in a byte, so an event that ends behind the
 *	  255th, or an empty one that begins there, would never end;
 *	- each definition of a report register adds a field to the report, so one
 *	  register defined often enough would write beyond it;
 *	- the number of values in an UPDATE is read as one signed byte.
 *
 * The limits are those of the other datapaths (portus cannot name more registers
 * than these), so that what one of them accepts, all do. Two exceptions, which
 * no compiler makes: libccp needs a sound first register in a definition, and a
 * first instruction below 256 in an empty event.
 */
#include "validate.h"

#define HEADER_LEN 8
#define INSTALL_LEN 12 /* uid, number of events, number of instructions */
#define ITEM_LEN 16 /* an event or an instruction */
#define UPDATE_LEN 13 /* register type, index, value */

#define MAX_EVENTS 255
#define MAX_INSTRUCTIONS 255
#define MAX_EXPANDED 1024 /* instructions of all events together */
#define MAX_UPDATES 127

#define OP_DEF 2
#define NUM_OPS 15

/* Register types */
enum {
	CONTROL = 0,
	IMMEDIATE = 1,
	IMPLICIT = 2,
	LOCAL = 3,
	PRIMITIVE = 4,
	REPORT_VOLATILE = 5,
	REPORT = 6,
	TMP = 7,
	CONTROL_VOLATILE = 8,
};

#define CWND 4 /* implicit registers */
#define RATE 5

#define NUM_CONTROL 16
#define NUM_REPORT 16

static u32 get16(const u8 *p)
{
	return p[0] | p[1] << 8;
}

static u32 get32(const u8 *p)
{
	return get16(p) | get16(p + 2) << 16;
}

static u64 get64(const u8 *p)
{
	return get32(p) | (u64)get32(p + 4) << 32;
}

/* Whether the register at @p, a type and an index, exists. */
static bool exists(const u8 *p)
{
	u32 index = get32(p + 1);

	switch (p[0]) {
	case CONTROL:
	case CONTROL_VOLATILE:
		return index < NUM_CONTROL;
	case IMMEDIATE:
		return true;
	case IMPLICIT:
		return index < 6;
	case LOCAL:
		return index < 6;
	case PRIMITIVE:
		return index < 15;
	case REPORT_VOLATILE:
	case REPORT:
		return index < NUM_REPORT;
	case TMP:
		return index < 8;
	default:
		return false;
	}
}

static bool is_writable(const u8 *p)
{
	return exists(p) && p[0] != IMMEDIATE && p[0] != PRIMITIVE;
}

/* An instruction: operation, result, left, right. */
static enum ccp_verdict check_instruction(const u8 *p)
{
	if (p[0] >= NUM_OPS || p[0] == OP_DEF)
		return CCP_BAD_operation;
	if (!is_writable(p + 1) || !exists(p + 6) || !exists(p + 11))
		return CCP_BAD_register;
	return CCP_VALID;
}

/* The left register is what is defined; @defined has a bit for each so far. */
static enum ccp_verdict check_definition(const u8 *p, u32 *defined)
{
	u32 bit = get32(p + 7);

	if (!is_writable(p + 1) || !exists(p + 6) || p[11] != IMMEDIATE)
		return CCP_BAD_register;
	switch (p[6]) {
	case REPORT:
	case REPORT_VOLATILE:
		break;
	case CONTROL:
	case CONTROL_VOLATILE:
		bit += NUM_REPORT;
		break;
	default:
		return CCP_BAD_register;
	}
	if (*defined & 1U << bit)
		return CCP_BAD_twice;
	*defined |= 1U << bit;
	return CCP_VALID;
}

/* A range of instructions: first and number. */
static bool is_range(const u8 *p, u32 first, u32 end)
{
	u32 start = get32(p), num = get32(p + 4);

	if (!num)
		return start <= MAX_INSTRUCTIONS;
	return start >= first && start < end && num <= end - start;
}

static enum ccp_verdict check_install(const u8 *p, size_t len, struct ccp_msg_info *info)
{
	u32 events, instructions, definitions = 0, defined = 0, expanded = 0, i;
	const u8 *event, *instruction;
	enum ccp_verdict verdict;

	if (len < INSTALL_LEN)
		return CCP_BAD_length;
	info->uid = get32(p);
	events = get32(p + 4);
	instructions = get32(p + 8);
	if (events > MAX_EVENTS || instructions > MAX_INSTRUCTIONS)
		return CCP_BAD_limit;
	if (len != INSTALL_LEN + (events + instructions) * ITEM_LEN)
		return CCP_BAD_length;
	event = p + INSTALL_LEN;
	instruction = event + events * ITEM_LEN;

	for (i = 0; i < instructions; i++, instruction += ITEM_LEN) {
		if (i == definitions && instruction[0] == OP_DEF) {
			verdict = check_definition(instruction, &defined);
			definitions++;
		} else {
			verdict = check_instruction(instruction);
		}
		if (verdict != CCP_VALID)
			return verdict;
	}
	for (i = 0; i < events; i++, event += ITEM_LEN) {
		if (!is_range(event, definitions, instructions) ||
		    !is_range(event + 8, definitions, instructions))
			return CCP_BAD_range;
		expanded += get32(event + 4) + get32(event + 12);
	}
	return expanded > MAX_EXPANDED ? CCP_BAD_limit : CCP_VALID;
}

/* A count, then as many registers with their new values. */
static enum ccp_verdict check_updates(const u8 *p, size_t len, struct ccp_msg_info *info)
{
	u32 num, index, i;

	if (len < 4)
		return CCP_BAD_length;
	num = get32(p);
	if (num > MAX_UPDATES)
		return CCP_BAD_limit;
	if (len != 4 + num * UPDATE_LEN)
		return CCP_BAD_length;
	for (i = 0, p += 4; i < num; i++, p += UPDATE_LEN) {
		if (!exists(p))
			return CCP_BAD_register;
		index = get32(p + 1);
		if (p[0] == IMPLICIT && index == CWND) {
			info->has_cwnd = true;
			info->cwnd = get64(p + 5);
		} else if (p[0] == IMPLICIT && index == RATE) {
			info->has_rate = true;
			info->rate = get64(p + 5);
		} else if (p[0] != CONTROL && p[0] != CONTROL_VOLATILE) {
			return CCP_BAD_register;
		}
	}
	return CCP_VALID;
}

/**
 * ccp_validate() - check one message of an agent, completely
 * @msg: the message
 * @len: its length; the message must fill it
 * @info: says what a valid message is about
 *
 * Return: CCP_VALID, or why libccp must not see the message.
 */
enum ccp_verdict ccp_validate(const u8 *msg, size_t len, struct ccp_msg_info *info)
{
	const u8 *fields = msg + HEADER_LEN;

	*info = (struct ccp_msg_info){ 0 };
	if (len < HEADER_LEN || len > CCP_MSG_MAX || get16(msg + 2) != len)
		return CCP_BAD_length;
	info->type = get16(msg);
	info->sid = get32(msg + 4);
	len -= HEADER_LEN;
	switch (info->type) {
	case CCP_MSG_INSTALL:
		return check_install(fields, len, info);
	case CCP_MSG_UPDATE:
		return check_updates(fields, len, info);
	case CCP_MSG_CHANGE:
		if (len < 4)
			return CCP_BAD_length;
		info->uid = get32(fields);
		return check_updates(fields + 4, len - 4, info);
	default:
		return CCP_BAD_type;
	}
}
