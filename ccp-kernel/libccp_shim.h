/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Force-included in front of libccp's sources, which stay as they are.
 *
 * libccp allocates with GFP_KERNEL where a connection starts, which is softirq,
 * and uses the result unchecked. So it is handed memory that was allocated
 * before it was called; see libccp.c.
 */
#ifndef LIBCCP_SHIM_H
#define LIBCCP_SHIM_H

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/types.h>

void *ccp_libccp_take(size_t size);
void ccp_libccp_give(void *memory);

#undef kcalloc
#undef kfree
#define kcalloc(num, size, flags) ccp_libccp_take((num) * (size))
#define kfree(memory) ccp_libccp_give(memory)

/* libccp's names of two operations */
#undef MAX
#undef MIN

#endif /* LIBCCP_SHIM_H */
