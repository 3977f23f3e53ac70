// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * For tests only: a datapath that is nothing but libccp behind /dev/ccpkp, as the
 * original ccp-kernel is. One lock, libccp's own table, timer and READY at load;
 * no validation, no description of flows, no fallback but Reno on libccp's word,
 * no second life for flows. What runs on this runs on anything that speaks CCP.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <net/tcp.h>

#include "ccp.h"

#define PLAIN_FLOWS 64
#define PLAIN_PROGRAMS 10
#define PLAIN_QUEUE 512 /* messages */
#define PLAIN_LEN 1024

struct plain_message {
	u16 len;
	u8 bytes[PLAIN_LEN];
};

struct plain_ca {
	struct ccp_connection *conn;
	u32 last_delivered;
	u32 last_lost;
	u64 last_bytes;
};

static struct ccp_datapath plain_dp;
static DEFINE_SPINLOCK(plain_lock); /* around all of libccp */
static struct plain_message *plain_queue;
static u32 plain_head, plain_tail;
static DEFINE_SPINLOCK(plain_queue_lock);
static DECLARE_WAIT_QUEUE_HEAD(plain_wait);

/* ------------------------------------------------------------ device */

static int plain_send(struct ccp_datapath *dp, char *msg, int len)
{
	struct plain_message *place;
	int ret = -ENOBUFS;

	spin_lock_bh(&plain_queue_lock);
	if (len > 0 && len <= PLAIN_LEN && plain_head - plain_tail < PLAIN_QUEUE) {
		place = &plain_queue[plain_head++ % PLAIN_QUEUE];
		place->len = len;
		memcpy(place->bytes, msg, len);
		ret = 0;
	}
	spin_unlock_bh(&plain_queue_lock);
	wake_up_interruptible(&plain_wait);
	return ret;
}

static ssize_t plain_read(struct file *file, char __user *to, size_t count, loff_t *pos)
{
	struct plain_message msg = { 0 };
	int ret;

	if (!(file->f_flags & O_NONBLOCK)) {
		ret = wait_event_interruptible(plain_wait, plain_head != plain_tail);
		if (ret)
			return ret;
	}
	spin_lock_bh(&plain_queue_lock);
	if (plain_head != plain_tail)
		msg = plain_queue[plain_tail++ % PLAIN_QUEUE];
	spin_unlock_bh(&plain_queue_lock);
	if (!msg.len)
		return -EAGAIN;
	if (msg.len > count || copy_to_user(to, msg.bytes, msg.len))
		return -EFAULT;
	return msg.len;
}

static ssize_t plain_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	char *msg;
	int ret;

	if (count < 12 || count > 32768)
		return -EINVAL;
	msg = memdup_user(from, count);
	if (IS_ERR(msg))
		return PTR_ERR(msg);
	spin_lock_bh(&plain_lock);
	ret = ccp_read_msg(&plain_dp, msg, count);
	spin_unlock_bh(&plain_lock);
	kfree(msg);
	return ret < 0 ? -EINVAL : count;
}

static __poll_t plain_poll(struct file *file, poll_table *table)
{
	poll_wait(file, &plain_wait, table);
	return EPOLLOUT | (plain_head != plain_tail ? EPOLLIN : 0);
}

static const struct file_operations plain_fops = {
	.owner = THIS_MODULE,
	.read = plain_read,
	.write = plain_write,
	.poll = plain_poll,
};

static struct miscdevice plain_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ccpkp",
	.mode = 0600,
	.fops = &plain_fops,
};

/* ------------------------------------------------------------ libccp */

static void plain_set_cwnd(struct ccp_connection *conn, u32 cwnd)
{
	struct tcp_sock *tp = tcp_sk((struct sock *)conn->impl);

	tcp_snd_cwnd_set(tp, max_t(u32, cwnd / tp->mss_cache, 2));
}

static void plain_set_rate(struct ccp_connection *conn, u32 rate)
{
	WRITE_ONCE(((struct sock *)conn->impl)->sk_pacing_rate, rate);
}

static u64 plain_now(void)
{
	return div_u64(ktime_get_ns(), NSEC_PER_USEC);
}

static u64 plain_since(u64 then)
{
	return plain_now() - then;
}

static u64 plain_after(u64 us)
{
	return plain_now() + us;
}

/* ------------------------------------------------------------ sockets */

static void plain_init_socket(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct plain_ca *ca = inet_csk_ca(sk);
	struct ccp_datapath_info info = {
		.init_cwnd = tcp_snd_cwnd(tp) * tp->mss_cache,
		.mss = tp->mss_cache,
		.src_ip = sk->sk_rcv_saddr,
		.src_port = inet_sk(sk)->inet_sport, /* network order, as upstream */
		.dst_ip = sk->sk_daddr,
		.dst_port = sk->sk_dport,
	};

	ca->last_delivered = tp->delivered;
	ca->last_lost = tp->lost;
	ca->last_bytes = tp->bytes_acked;
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
	spin_lock_bh(&plain_lock);
	ca->conn = ccp_connection_start(&plain_dp, sk, &info);
	spin_unlock_bh(&plain_lock);
}

static void plain_release_socket(struct sock *sk)
{
	struct plain_ca *ca = inet_csk_ca(sk);

	if (!ca->conn)
		return;
	spin_lock_bh(&plain_lock);
	ccp_connection_free(&plain_dp, ca->conn->index);
	spin_unlock_bh(&plain_lock);
	ca->conn = NULL;
}

static void plain_ack(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct plain_ca *ca = inet_csk_ca(sk);
	struct ccp_primitives *prims;

	if (!ca->conn) {
		tcp_reno_cong_avoid(sk, 0, rs->acked_sacked);
		return;
	}
	spin_lock_bh(&plain_lock);
	prims = &ca->conn->prims;
	prims->bytes_acked = tp->bytes_acked - ca->last_bytes;
	prims->packets_acked = tp->delivered - ca->last_delivered;
	prims->lost_pkts_sample = tp->lost - ca->last_lost;
	prims->rtt_sample_us = max(rs->rtt_us, 0L);
	prims->packets_in_flight = tcp_packets_in_flight(tp);
	prims->bytes_in_flight = prims->packets_in_flight * tp->mss_cache;
	prims->snd_cwnd = tcp_snd_cwnd(tp) * tp->mss_cache;
	ca->last_delivered = tp->delivered;
	ca->last_lost = tp->lost;
	ca->last_bytes = tp->bytes_acked;
	if (ccp_invoke(ca->conn) < 0)
		tcp_reno_cong_avoid(sk, 0, rs->acked_sacked);
	spin_unlock_bh(&plain_lock);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void plain_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
#else
static void plain_cong_control(struct sock *sk, const struct rate_sample *rs)
#endif
{
	plain_ack(sk, rs);
}

static struct tcp_congestion_ops plain_ops = {
	.name = "ccp",
	.owner = THIS_MODULE,
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = plain_init_socket,
	.release = plain_release_socket,
	.ssthresh = tcp_reno_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cong_control = plain_cong_control,
};

/* ------------------------------------------------------------ life */

static int __init plain_init(void)
{
	int ret = -ENOMEM;

	plain_dp.max_connections = PLAIN_FLOWS;
	plain_dp.max_programs = PLAIN_PROGRAMS;
	plain_dp.fto_us = USEC_PER_SEC;
	plain_dp.set_cwnd = plain_set_cwnd;
	plain_dp.set_rate_abs = plain_set_rate;
	plain_dp.send_msg = plain_send;
	plain_dp.now = plain_now;
	plain_dp.since_usecs = plain_since;
	plain_dp.after_usecs = plain_after;
	plain_dp.ccp_active_connections =
		kvcalloc(PLAIN_FLOWS, sizeof(struct ccp_connection), GFP_KERNEL);
	plain_queue = kvcalloc(PLAIN_QUEUE, sizeof(*plain_queue), GFP_KERNEL);
	if (!plain_dp.ccp_active_connections || !plain_queue)
		goto failed;
	ret = ccp_init(&plain_dp, 1);
	if (ret)
		goto failed;
	ret = misc_register(&plain_misc);
	if (ret)
		goto failed;
	ret = tcp_register_congestion_control(&plain_ops);
	if (!ret)
		return 0;
	misc_deregister(&plain_misc);
failed:
	kvfree(plain_dp.programs);
	kvfree(plain_dp.ccp_active_connections);
	kvfree(plain_queue);
	return ret;
}

static void __exit plain_exit(void)
{
	tcp_unregister_congestion_control(&plain_ops);
	misc_deregister(&plain_misc);
	kvfree(plain_dp.programs);
	kvfree(plain_dp.ccp_active_connections);
	kvfree(plain_queue);
}

module_init(plain_init);
module_exit(plain_exit);

MODULE_AUTHOR("The pk3c-ccp developers");
MODULE_DESCRIPTION("For tests: libccp alone behind a character device");
MODULE_LICENSE("Dual BSD/GPL");
