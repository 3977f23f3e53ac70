// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The module's counters, in /sys/class/misc/ccpkp/: counters/NAME and, for
 * messages of the agent that were refused, rejected/REASON. They only count up.
 */
#include <linux/device.h>
#include <linux/percpu.h>

#include "ccp_kernel.h"

DEFINE_PER_CPU(struct ccp_counters, ccp_counters);

struct ccp_counter_attribute {
	struct device_attribute attribute;
	size_t offset; /* in struct ccp_counters */
};

static ssize_t ccp_counter_show(struct device *dev, struct device_attribute *attribute, char *page)
{
	const struct ccp_counter_attribute *counter =
		container_of(attribute, struct ccp_counter_attribute, attribute);
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += *(u64 *)((char *)per_cpu_ptr(&ccp_counters, cpu) + counter->offset);
	return sysfs_emit(page, "%llu\n", sum);
}

#define CCP_COUNTER_ATTRIBUTE(variable, given_name, member)                                \
	static struct ccp_counter_attribute variable = {                                   \
		.attribute = { .attr = { .name = given_name, .mode = 0444 },               \
			       .show = ccp_counter_show },                                 \
		.offset = offsetof(struct ccp_counters, member),                           \
	};

#define CCP_COUNTER(name, text) \
	CCP_COUNTER_ATTRIBUTE(ccp_counter_##name, #name, count[CCP_COUNT_##name])
CCP_COUNTERS(CCP_COUNTER)

#define CCP_REJECTED(name, text) \
	CCP_COUNTER_ATTRIBUTE(ccp_rejected_##name, #name, rejected[CCP_BAD_##name])
CCP_VERDICTS(CCP_REJECTED)

static struct attribute *ccp_counter_attributes[] = {
#define CCP_COUNTER_ENTRY(name, text) &ccp_counter_##name.attribute.attr,
	CCP_COUNTERS(CCP_COUNTER_ENTRY)
	NULL,
};

static struct attribute *ccp_rejected_attributes[] = {
#define CCP_REJECTED_ENTRY(name, text) &ccp_rejected_##name.attribute.attr,
	CCP_VERDICTS(CCP_REJECTED_ENTRY)
	NULL,
};

static const struct attribute_group ccp_counter_group = {
	.name = "counters",
	.attrs = ccp_counter_attributes,
};

static const struct attribute_group ccp_rejected_group = {
	.name = "rejected",
	.attrs = ccp_rejected_attributes,
};

const struct attribute_group *ccp_counter_groups[] = {
	&ccp_counter_group,
	&ccp_rejected_group,
	NULL,
};
