// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What libccp needs from a kernel: memory, a clock, a log.
 *
 * libccp's callbacks for time have no argument, and its allocations may not
 * fail. Both are settled before it is called, on this CPU and with softirqs off:
 * the clock is the socket's tcp_mstamp, so that Ack.now and the RTT samples are
 * of one clock, and the memory waits in a stash.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/slab.h>

#include "ccp_kernel.h"
#undef MAX
#undef MIN
#include "ccp_priv.h"

struct ccp_stash {
	void *memory;
	size_t size;
	u64 now_us;
};

static DEFINE_PER_CPU(struct ccp_stash, ccp_stash);
static struct kmem_cache *ccp_state_cache;

void *ccp_libccp_take(size_t size)
{
	struct ccp_stash *stash = this_cpu_ptr(&ccp_stash);
	void *memory = stash->memory;

	if (WARN_ON_ONCE(size > stash->size))
		return NULL;
	stash->memory = NULL;
	stash->size = 0;
	return memory;
}

/* Only connections are freed by libccp; see ccp_libccp_free_programs(). */
void ccp_libccp_give(void *memory)
{
	if (memory)
		kmem_cache_free(ccp_state_cache, memory);
}

static bool ccp_stash_put(void *memory, size_t size)
{
	struct ccp_stash *stash = this_cpu_ptr(&ccp_stash);

	if (!memory)
		return false;
	stash->memory = memory;
	stash->size = size;
	return true;
}

bool ccp_libccp_prepare_flow(void)
{
	void *state = kmem_cache_zalloc(ccp_state_cache, GFP_ATOMIC | __GFP_NOWARN);

	return ccp_stash_put(state, sizeof(struct ccp_priv_state));
}

/* The caller turns softirqs off after the allocation, which may sleep. */
bool ccp_libccp_prepare_programs(u32 programs)
{
	size_t size = programs * sizeof(struct DatapathProgram);
	void *table = kvzalloc(size, GFP_KERNEL_ACCOUNT);

	local_bh_disable();
	if (ccp_stash_put(table, size))
		return true;
	local_bh_enable();
	return false;
}

void ccp_libccp_free_programs(struct ccp_datapath *dp)
{
	kvfree(dp->programs);
	dp->programs = NULL;
}

static u64 ccp_implicit_register(const struct ccp_connection *conn, int index)
{
	const struct ccp_priv_state *state = conn->state;

	return state->registers.impl_registers[index];
}

u64 ccp_libccp_cwnd(const struct ccp_connection *conn)
{
	return ccp_implicit_register(conn, CWND_REG);
}

u64 ccp_libccp_rate(const struct ccp_connection *conn)
{
	return ccp_implicit_register(conn, RATE_REG);
}

void ccp_libccp_set_now(u64 us)
{
	this_cpu_write(ccp_stash.now_us, us);
}

static u64 ccp_clock_now(void)
{
	return this_cpu_read(ccp_stash.now_us);
}

static u64 ccp_clock_since(u64 then)
{
	return ccp_clock_now() - then;
}

static u64 ccp_clock_after(u64 us)
{
	return ccp_clock_now() + us;
}

static void ccp_log(struct ccp_datapath *dp, enum ccp_log_level level, const char *msg, int len)
{
	pr_debug_ratelimited("libccp: %.79s\n", msg);
}

void ccp_libccp_callbacks(struct ccp_datapath *dp)
{
	dp->now = ccp_clock_now;
	dp->since_usecs = ccp_clock_since;
	dp->after_usecs = ccp_clock_after;
	dp->log = ccp_log;
	/* Unused: no send fails for libccp, and silence is judged by the session. */
	dp->fto_us = USEC_PER_SEC;
}

int ccp_libccp_init(void)
{
	ccp_state_cache = KMEM_CACHE(ccp_priv_state, 0);
	return ccp_state_cache ? 0 : -ENOMEM;
}

void ccp_libccp_exit(void)
{
	kmem_cache_destroy(ccp_state_cache);
}
