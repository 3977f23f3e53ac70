// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * /dev/ccpkp, as portus expects it: a READY when it is opened, whole messages to
 * read, one message per write, poll. One agent at a time has it open.
 *
 * An agent is alive while it calls (read, write, poll) or waits for us; it is
 * silent when it has done neither for silence_ms. Waiting counts only while
 * there is nothing to read: who is woken and does not come is silent, too. So
 * any agent will do, also one that sleeps in poll() for a second, and one that
 * is stopped or hangs in a callback is noticed without its help.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "ccp_kernel.h"

#define CCP_DATAPATH_ID 1
#define CCP_TABLE_SIZE 64 /* programs; libccp cannot use the last */
#define CCP_BOUNCE_LEN 16384 /* handed out by one read */
#define CCP_SILENCE_MS_MIN 50
#define CCP_SILENCE_MS_MAX 60000

static int ccp_set_silence(const char *text, const struct kernel_param *param)
{
	return param_set_uint_minmax(text, param, CCP_SILENCE_MS_MIN, CCP_SILENCE_MS_MAX);
}

static const struct kernel_param_ops ccp_silence_ops = {
	.set = ccp_set_silence,
	.get = param_get_uint,
};

static unsigned int silence_ms = 100;
module_param_cb(silence_ms, &ccp_silence_ops, &silence_ms, 0644);
MODULE_PARM_DESC(silence_ms, "an agent that is silent for so long has lost its flows to CUBIC (50 to 60000, default 100)");

static unsigned int queue_kb = 2048;
module_param(queue_kb, uint, 0644);
MODULE_PARM_DESC(queue_kb, "room for messages to the agent, rounded up to a power of two (default 2048)");

static struct ccp_session __rcu *ccp_session;
static DEFINE_MUTEX(ccp_open_lock);
static u32 ccp_last_session_id;
static u64 ccp_last_heard_us; /* of the session before */
static bool ccp_ready;

/* The clock of tcp_mstamp. */
u64 ccp_now_us(void)
{
	return div_u64(ktime_get_ns(), NSEC_PER_USEC);
}

/* ------------------------------------------------------------ liveness */

static bool ccp_session_empty(const struct ccp_session *s)
{
	return READ_ONCE(s->head) == READ_ONCE(s->tail);
}

static void ccp_session_heard(struct ccp_session *s)
{
	WRITE_ONCE(s->heard_us, ccp_now_us());
}

/* Under RCU, as the next. */
struct ccp_session *ccp_session_current(void)
{
	return rcu_dereference(ccp_session);
}

/* The session, if its agent wants flows, and has called or waited lately. */
struct ccp_session *ccp_session_alive(u64 now)
{
	struct ccp_session *s = rcu_dereference(ccp_session);
	s64 silent_us;

	if (!s || READ_ONCE(s->drained))
		return NULL;
	silent_us = now - READ_ONCE(s->heard_us);
	if (silent_us < (s64)READ_ONCE(silence_ms) * USEC_PER_MSEC)
		return s;
	/* No barrier: an ACK that looks too early or too late is put right by the next. */
	return ccp_session_empty(s) && waitqueue_active(&s->wait) ? s : NULL;
}

/* Until when a session lasted that flows have lost. Under RCU. */
u64 ccp_session_lasted(u32 id, u64 now)
{
	const struct ccp_session *s = rcu_dereference(ccp_session);
	u64 heard = s && s->id == id ? READ_ONCE(s->heard_us) : READ_ONCE(ccp_last_heard_us);

	return min(heard + (u64)READ_ONCE(silence_ms) * USEC_PER_MSEC, now);
}

/* ------------------------------------------------------------ queue */

static u32 ccp_queue_size(const struct ccp_session *s)
{
	return s->queue_mask + 1;
}

static void ccp_queue_put(struct ccp_session *s, u64 at, const u8 *bytes, u32 len)
{
	u32 place = at & s->queue_mask, whole = min(len, ccp_queue_size(s) - place);

	memcpy(s->queue + place, bytes, whole);
	memcpy(s->queue, bytes + whole, len - whole);
}

static void ccp_queue_get(const struct ccp_session *s, u64 at, u8 *bytes, u32 len)
{
	u32 place = at & s->queue_mask, whole = min(len, ccp_queue_size(s) - place);

	memcpy(bytes, s->queue + place, whole);
	memcpy(bytes + whole, s->queue, len - whole);
}

/**
 * ccp_session_queue() - queue one or two messages for the agent, both or none
 * @s: the session, under RCU
 * @first: the first message
 * @first_len: its length
 * @second: the second, or NULL
 * @second_len: its length, or 0
 * @end: if not NULL, takes the place in the queue where they end
 *
 * Return: false if there is no room for them.
 */
bool ccp_session_queue(struct ccp_session *s, const void *first, u32 first_len, const void *second,
		       u32 second_len, u64 *end)
{
	bool fits, was_empty;

	spin_lock_bh(&s->queue_lock);
	was_empty = s->head == s->tail;
	fits = s->head - s->tail + first_len + second_len <= ccp_queue_size(s);
	if (fits) {
		ccp_queue_put(s, s->head, first, first_len);
		ccp_queue_put(s, s->head + first_len, second, second_len);
		/*
		 * It has waited until now; from now on it has something to do. No
		 * barrier, as above.
		 */
		if (was_empty && waitqueue_active(&s->wait))
			ccp_session_heard(s);
		WRITE_ONCE(s->head, s->head + first_len + second_len);
		if (end)
			*end = s->head;
	}
	spin_unlock_bh(&s->queue_lock);
	if (fits && was_empty)
		wake_up_interruptible(&s->wait);
	return fits;
}

/* Takes as many whole messages as fit; 0 if not even the first does. */
static u32 ccp_queue_take(struct ccp_session *s, u32 room)
{
	u32 taken = 0;
	u8 header[4];
	u16 len;

	spin_lock_bh(&s->queue_lock);
	while (s->tail + taken < s->head) {
		ccp_queue_get(s, s->tail + taken, header, sizeof(header));
		len = get_unaligned_le16(header + 2);
		if (taken + len > room)
			break;
		taken += len;
	}
	ccp_queue_get(s, s->tail, s->bounce, taken);
	WRITE_ONCE(s->tail, s->tail + taken);
	spin_unlock_bh(&s->queue_lock);
	return taken;
}

/* ------------------------------------------------------------ sessions */

static int ccp_send_ready(struct ccp_datapath *dp, char *msg, int len)
{
	struct ccp_session *s = container_of(dp, struct ccp_session, dp);

	return ccp_session_queue(s, msg, len, NULL, 0, NULL) ? 0 : -ENOBUFS;
}

static void ccp_callback_cwnd(struct ccp_connection *conn, u32 cwnd)
{
	ccp_set_cwnd(tcp_sk((struct sock *)conn->impl), ccp_libccp_cwnd(conn));
}

static void ccp_callback_rate(struct ccp_connection *conn, u32 rate)
{
	struct ccp_flow *f = container_of(conn, struct ccp_flow, slot);

	if (ccp_set_rate(conn->impl, ccp_libccp_rate(conn)))
		f->changed = true;
}

static void ccp_session_free(struct ccp_session *s)
{
	ccp_libccp_free_programs(&s->dp);
	kvfree(s->queue);
	kvfree(s->bounce);
	kfree(s->uids);
	kfree(s);
}

static struct ccp_session *ccp_session_new(void)
{
	u32 size = roundup_pow_of_two(clamp(queue_kb, 16U, 1U << 20) * 1024ULL);
	struct ccp_session *s = kzalloc(sizeof(*s), GFP_KERNEL);
	int ret;

	if (!s)
		return NULL;
	mutex_init(&s->write_lock);
	mutex_init(&s->read_lock);
	spin_lock_init(&s->queue_lock);
	init_waitqueue_head(&s->wait);
	s->queue_mask = size - 1;
	s->queue = kvmalloc(size, GFP_KERNEL);
	s->bounce = kvmalloc(CCP_BOUNCE_LEN, GFP_KERNEL);
	s->uids = kcalloc(CCP_TABLE_SIZE, sizeof(*s->uids), GFP_KERNEL);
	ccp_libccp_callbacks(&s->dp);
	s->dp.send_msg = ccp_send_ready;
	s->dp.set_cwnd = ccp_callback_cwnd;
	s->dp.set_rate_abs = ccp_callback_rate;
	s->dp.max_connections = 1;
	s->dp.ccp_active_connections = &s->unused;
	s->dp.max_programs = CCP_TABLE_SIZE;
	if (!s->queue || !s->bounce || !s->uids || !ccp_libccp_prepare_programs(CCP_TABLE_SIZE))
		goto failed;
	ret = ccp_init(&s->dp, CCP_DATAPATH_ID);
	local_bh_enable();
	if (ret || !s->dp.programs)
		goto failed;
	s->dp.time_zero = 0; /* Ack.now is the clock itself */
	ccp_session_heard(s);
	return s;

failed:
	ccp_session_free(s);
	return NULL;
}

static int ccp_open(struct inode *inode, struct file *file)
{
	struct ccp_session *s;
	int ret = 0;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	mutex_lock(&ccp_open_lock);
	if (!ccp_ready) {
		ret = -EAGAIN;
		goto out;
	}
	if (rcu_access_pointer(ccp_session)) {
		ccp_count(agents_refused);
		pr_notice_ratelimited("%s[%d] is refused: another agent has /dev/ccpkp open\n",
				      current->comm, task_pid_nr(current));
		ret = -EBUSY;
		goto out;
	}
	s = ccp_session_new();
	if (!s) {
		ret = -ENOMEM;
		goto out;
	}
	s->id = ++ccp_last_session_id ?: ++ccp_last_session_id;
	file->private_data = s;
	rcu_assign_pointer(ccp_session, s);
	ccp_count(agents);
	pr_info("agent %s[%d] has come\n", current->comm, task_pid_nr(current));
out:
	mutex_unlock(&ccp_open_lock);
	return ret ?: stream_open(inode, file);
}

static int ccp_close(struct inode *inode, struct file *file)
{
	struct ccp_session *s = file->private_data;

	mutex_lock(&ccp_open_lock);
	WRITE_ONCE(ccp_last_heard_us, s->heard_us);
	rcu_assign_pointer(ccp_session, NULL);
	synchronize_rcu();
	ccp_flows_forget_closing();
	mutex_unlock(&ccp_open_lock);
	pr_info("the agent has gone; its flows run CUBIC until the next one\n");
	ccp_session_free(s);
	return 0;
}

/* ------------------------------------------------------------ reading */

static ssize_t ccp_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	struct ccp_session *s = file->private_data;
	ssize_t ret;
	u32 len;

	ccp_session_heard(s);
	for (;;) {
		if (mutex_lock_interruptible(&s->read_lock))
			return -ERESTARTSYS;
		len = ccp_queue_take(s, min_t(size_t, count, CCP_BOUNCE_LEN));
		if (len) {
			ret = copy_to_user(to, s->bounce, len) ? -EFAULT : len;
			break;
		}
		if (!ccp_session_empty(s)) {
			ret = -EMSGSIZE;
			break;
		}
		mutex_unlock(&s->read_lock);
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		ret = wait_event_interruptible(s->wait, !ccp_session_empty(s));
		ccp_session_heard(s);
		if (ret)
			return ret;
	}
	mutex_unlock(&s->read_lock);
	ccp_flows_flush_closing(s);
	return ret;
}

static __poll_t ccp_poll(struct file *file, poll_table *table)
{
	struct ccp_session *s = file->private_data;
	__poll_t mask = EPOLLOUT | EPOLLWRNORM;

	ccp_session_heard(s);
	poll_wait(file, &s->wait, table);
	if (!ccp_session_empty(s))
		mask |= EPOLLIN | EPOLLRDNORM;
	return mask;
}

/* ------------------------------------------------------------ writing */

static const char *const ccp_verdict_texts[CCP_NUM_VERDICTS] = {
#define CCP_VERDICT_TEXT(name, text) [CCP_BAD_##name] = text,
	CCP_VERDICTS(CCP_VERDICT_TEXT)
};

static int ccp_reject(enum ccp_verdict verdict, size_t len)
{
	ccp_count_rejected(verdict);
	pr_notice_ratelimited("a message of %zu bytes is refused: %s\n", len,
			      ccp_verdict_texts[verdict]);
	switch (verdict) {
	case CCP_BAD_exists:
		return -EEXIST;
	case CCP_BAD_full:
		return -ENOSPC;
	case CCP_BAD_program:
		return -ENOENT;
	default:
		return -EINVAL;
	}
}

static bool ccp_is_installed(const struct ccp_session *s, u32 uid)
{
	u32 i;

	for (i = 0; i < s->num_programs; i++)
		if (s->uids[i] == uid)
			return true;
	return false;
}

/*
 * What depends on the programs that are there. libccp forgets all of them when
 * it sees the number 1, under running flows; keeps the slot of an installation
 * that fails; and answers an unknown number with success.
 */
static enum ccp_verdict ccp_check_program(const struct ccp_session *s,
					  const struct ccp_msg_info *info)
{
	switch (info->type) {
	case CCP_MSG_INSTALL:
		if (ccp_is_installed(s, info->uid))
			return CCP_BAD_exists;
		if (info->uid == 1 && s->num_programs)
			return CCP_BAD_first;
		if (s->num_programs == CCP_TABLE_SIZE - 1)
			return CCP_BAD_full;
		return CCP_VALID;
	case CCP_MSG_CHANGE:
		return ccp_is_installed(s, info->uid) ? CCP_VALID : CCP_BAD_program;
	default:
		return CCP_VALID;
	}
}

/* What an agent says beyond CCP; the validator and libccp do not see it. */
static bool ccp_take_drain(struct ccp_session *s, const u8 *msg, size_t len)
{
	u16 type;

	if (len != CCP_DRAIN_MSG_LEN || get_unaligned_le16(msg + 2) != len)
		return false;
	type = get_unaligned_le16(msg);
	if (type != CCP_MSG_DRAIN && type != CCP_MSG_RESUME)
		return false;
	WRITE_ONCE(s->drained, type == CCP_MSG_DRAIN);
	pr_info("the agent %s\n",
		s->drained ? "is drained: all flows run CUBIC" : "takes flows again");
	return true;
}

/* Under write_lock. */
static int ccp_take_message(struct ccp_session *s, u8 *msg, size_t len)
{
	struct ccp_msg_info info;
	enum ccp_verdict verdict;
	int ret;

	if (ccp_take_drain(s, msg, len))
		return 0;
	verdict = ccp_validate(msg, len, &info);
	if (verdict == CCP_VALID)
		verdict = ccp_check_program(s, &info);
	if (verdict != CCP_VALID)
		return ccp_reject(verdict, len);
	if (info.type == CCP_MSG_INSTALL) {
		ret = ccp_read_msg(&s->dp, msg, len);
		if (!ret) {
			s->uids[s->num_programs++] = info.uid;
			ccp_count(installs);
		}
	} else {
		ret = ccp_flow_message(s, msg, len, &info);
		if (ret == -ESRCH) { /* a flow may end before the agent hears of it */
			ccp_count(stale);
			return 0;
		}
		if (!ret)
			ccp_count(updates);
	}
	if (WARN_ONCE(ret, "libccp refuses a message that was validated: %d\n", ret))
		return -EINVAL;
	return 0;
}

static ssize_t ccp_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct ccp_session *s = file->private_data;
	u8 *msg;
	int ret;

	ccp_session_heard(s);
	if (!count || count > CCP_MSG_MAX)
		return ccp_reject(CCP_BAD_length, count);
	msg = memdup_user(from, count);
	if (IS_ERR(msg))
		return PTR_ERR(msg);
	mutex_lock(&s->write_lock);
	ret = ccp_take_message(s, msg, count);
	mutex_unlock(&s->write_lock);
	kfree(msg);
	return ret ?: count;
}

static const struct file_operations ccp_fops = {
	.owner = THIS_MODULE,
	.open = ccp_open,
	.release = ccp_close,
	.read = ccp_read,
	.write = ccp_write,
	.poll = ccp_poll,
};

static struct miscdevice ccp_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ccpkp",
	.mode = 0600,
	.fops = &ccp_fops,
	.groups = ccp_counter_groups,
};

int ccp_device_register(void)
{
	int ret = misc_register(&ccp_misc);

	if (ret)
		pr_err("cannot make /dev/ccpkp (%d): is another CCP datapath loaded?\n", ret);
	return ret;
}

void ccp_device_unregister(void)
{
	misc_deregister(&ccp_misc);
}

/* The module cannot fail to load any more: an agent may hold it. */
void ccp_device_ready(void)
{
	mutex_lock(&ccp_open_lock);
	ccp_ready = true;
	mutex_unlock(&ccp_open_lock);
}
