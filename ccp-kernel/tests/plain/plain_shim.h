/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Force-included in front of libccp: it may allocate in softirq, and in bulk. */
#ifndef PLAIN_SHIM_H
#define PLAIN_SHIM_H

#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#undef kcalloc
#undef kfree
#define kcalloc(num, size, flags) \
	((num) > 1 ? kvcalloc(num, size, GFP_KERNEL) : \
		     kmalloc_array(num, size, GFP_ATOMIC | __GFP_ZERO))
#define kfree(memory) kvfree(memory)
#undef MAX
#undef MIN

#endif /* PLAIN_SHIM_H */
