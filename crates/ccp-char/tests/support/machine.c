// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * libccp behind the validator, as the module has them, with one flow: what it does with the messages and ACKs that
 * it reads. The flow's clock is set with every ACK, and starts at 0, as in the module.
 *
 *	'N'                                 a new flow and no programs
 *	'M' length (u32), message           -> verdict (u8), libccp's result (i32) if the verdict is 0
 *	'A' struct ack                      -> struct result, the messages that libccp has sent
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ccp_priv.h"
#include "validate.h"

#define PROGRAMS 64 /* as in device.c */
#define SOLE_CONNECTION 1

struct ack {
	u64 now_us, bytes_acked, bytes_misordered, ecn_bytes, ecn_packets, lost_pkts_sample, packets_acked;
	u64 packets_misordered, bytes_in_flight, bytes_pending, packets_in_flight, rate_incoming, rate_outgoing;
	u64 rtt_sample_us, was_timeout, snd_cwnd, snd_rate;
};

struct result {
	u64 error; /* libccp's, positive */
	u64 set; /* 1: the window, 2: the rate */
	u64 cwnd, rate;
	u64 report[16], control[16], implicit[6], local[6], tmp[8];
	u64 sent_len;
};

static struct ccp_datapath dp;
static struct ccp_connection slot, *conn;
static struct result result;
static u8 sent[1 << 16];
static u64 clock_us;

static u64 now(void)
{
	return clock_us;
}

static u64 since(u64 then)
{
	return clock_us - then;
}

static u64 after(u64 us)
{
	return clock_us + us;
}

/* As in the module: from the register, because libccp's argument has lost the upper half. */
static u64 wanted(const struct ccp_connection *c, int reg)
{
	return ((const struct ccp_priv_state *)c->state)->registers.impl_registers[reg];
}

static void set_cwnd(struct ccp_connection *c, u32 truncated)
{
	(void)truncated;
	result.set |= 1;
	result.cwnd = wanted(c, CWND_REG);
}

static void set_rate(struct ccp_connection *c, u32 truncated)
{
	(void)truncated;
	result.set |= 2;
	result.rate = wanted(c, RATE_REG);
}

static int send_msg(struct ccp_datapath *d, char *msg, int len)
{
	(void)d;
	if (len < 0 || result.sent_len + len > sizeof(sent))
		abort();
	memcpy(sent + result.sent_len, msg, len);
	result.sent_len += len;
	return 0;
}

static void get(void *to, size_t len)
{
	if (fread(to, 1, len, stdin) != len)
		exit(feof(stdin) ? 2 : 3);
}

static void put(const void *from, size_t len)
{
	if (fwrite(from, 1, len, stdout) != len)
		exit(4);
}

static void begin(void)
{
	struct ccp_datapath_info info = { .init_cwnd = 14480, .mss = 1448, .congAlg = "pk3c" };

	if (conn)
		ccp_connection_free(&dp, SOLE_CONNECTION);
	if (dp.programs)
		ccp_free(&dp);
	memset(&slot, 0, sizeof(slot));
	result.sent_len = 0;
	clock_us = 1;
	dp = (struct ccp_datapath){
		.set_cwnd = set_cwnd, .set_rate_abs = set_rate, .send_msg = send_msg, .now = now,
		.since_usecs = since, .after_usecs = after, .fto_us = 1000000, .max_connections = 1,
		.ccp_active_connections = &slot, .max_programs = PROGRAMS,
	};
	if (ccp_init(&dp, 1))
		abort();
	dp.time_zero = 0;
	conn = ccp_connection_start(&dp, NULL, &info);
	if (!conn)
		abort();
}

static void take_message(void)
{
	struct ccp_msg_info info;
	u32 len, sid = SOLE_CONNECTION;
	int32_t ret;
	u8 verdict;
	u8 *msg;

	get(&len, sizeof(len));
	/* Of exactly that size, so that a sanitizer sees every step beyond it. */
	msg = malloc(len ? len : 1);
	if (!msg)
		abort();
	get(msg, len);
	verdict = ccp_validate(msg, len, &info);
	put(&verdict, 1);
	if (verdict == CCP_VALID) {
		if (info.type != CCP_MSG_INSTALL)
			memcpy(msg + 4, &sid, sizeof(sid));
		ret = ccp_read_msg(&dp, (char *)msg, len);
		put(&ret, sizeof(ret));
	}
	free(msg);
}

static void take_ack(void)
{
	const struct register_file *registers = &((struct ccp_priv_state *)conn->state)->registers;
	struct ack ack;
	int ret;

	get(&ack, sizeof(ack));
	clock_us = ack.now_us;
	slot.prims = (struct ccp_primitives){
		.bytes_acked = ack.bytes_acked,
		.packets_acked = ack.packets_acked,
		.bytes_misordered = ack.bytes_misordered,
		.packets_misordered = ack.packets_misordered,
		.ecn_bytes = ack.ecn_bytes,
		.ecn_packets = ack.ecn_packets,
		.lost_pkts_sample = ack.lost_pkts_sample,
		.was_timeout = ack.was_timeout,
		.rtt_sample_us = ack.rtt_sample_us,
		.rate_outgoing = ack.rate_outgoing,
		.rate_incoming = ack.rate_incoming,
		.bytes_in_flight = ack.bytes_in_flight,
		.packets_in_flight = ack.packets_in_flight,
		.snd_cwnd = ack.snd_cwnd,
		.snd_rate = ack.snd_rate,
		.bytes_pending = ack.bytes_pending,
	};
	result = (struct result){ 0 };
	ret = ccp_invoke(conn);
	result.error = ret < 0 ? -ret : 0;
	memcpy(result.report, registers->report_registers, sizeof(result.report));
	memcpy(result.control, registers->control_registers, sizeof(result.control));
	memcpy(result.implicit, registers->impl_registers, sizeof(result.implicit));
	memcpy(result.local, registers->local_registers, sizeof(result.local));
	memcpy(result.tmp, registers->tmp_registers, sizeof(result.tmp));
	put(&result, sizeof(result));
	put(sent, result.sent_len);
	result.sent_len = 0;
}

int main(void)
{
	int kind;

	begin();
	while ((kind = getchar()) != EOF) {
		switch (kind) {
		case 'N':
			begin();
			break;
		case 'M':
			take_message();
			break;
		case 'A':
			take_ack();
			break;
		default:
			return 1;
		}
		fflush(stdout);
	}
	return 0;
}
