#!/bin/sh
# First process of the guest. Makes the machine ready, drives the one run that /plan describes,
# sends what it measured to the host through the second serial port, and powers off.
#
#   c (sender, fq) --- r (bottleneck: rate, drop-tail queue, random loss) --- s (receiver)
#
# The whole round-trip delay is a delay line on the way back, s to r: data meets the bottleneck
# at once, as it would with a short access link. Segmentation offload is off on the devices, so
# the bottleneck queue holds packets that fit the MTU.
#
# With a /script instead of a /plan, it runs that and sends its output and status.
#
# /plan sets CC, FLOWS, SECS, RATE_BPS, RTT_US, QUEUE_LIMIT, LOSS_PERCENT, GSO_MAX_SEGS and, for an agent, AGENT.
# /events has lines "DELAY_S ACTION": what happens to the agent while the flows run.

export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
for module in /modules/*.ko; do insmod "$module" || echo "init: cannot load $module"; done

# The second serial port, as a plain byte pipe. It is slow, but no part of it runs beside the guest's
# clock: with a virtio port, two equal runs would differ.
stty -F /dev/ttyS1 raw 115200
exec 3>/dev/ttyS1

# Some busybox shells prefer their own applets to what PATH has.
ip() { /bin/ip "$@"; }
tc() { /bin/tc "$@"; }

# What speaks of a fault in the kernel's log. SLUB's reports and BUG_ON() say BUG without a colon.
TROUBLE='(^|[^A-Z])BUG[ :]|WARNING:|INFO: (possible|trying|task|rcu|suspicious)|KASAN|UBSAN|Oops|\[#[0-9]+\]|rcu.*stall|lockdep|general protection'

finish() { # closing the port waits until all of it is sent
	dmesg | grep -v 'RCU lockdep checking is enabled' | grep -E "$TROUBLE" >/tmp/kernel.trouble
	send kernel.trouble
	echo end >&3
	exec 3>&-
	poweroff -f
}
fail() { echo "fail $*" >&3; finish; }
send() { # NAME: ships /tmp/NAME, if the run wrote it
	[ -f "/tmp/$1" ] || return 0
	echo "file $1 $(wc -c <"/tmp/$1")" >&3
	cat "/tmp/$1" >&3
	echo >&3
}
must() { "$@" || fail "command failed: $*"; }

# The agent runs in the root namespace: `ip netns exec` remounts /sys and hides bpffs.
agent_start() {
	sh -c "exec $AGENT" 2>>/tmp/agent.log &
	echo $! >/run/agent.pid
}
agent_signal() { kill "-$1" "$(cat /run/agent.pid)" 2>/dev/null; }
agent_lives() { # a zombie does not
	stat=$(cat "/proc/$(cat /run/agent.pid)/stat" 2>/dev/null) || return 1
	case ${stat##*) } in Z*) return 1 ;; esac
}
agent_ticks() { # CPU time of the agent, in 1/100 s
	stat=$(cat "/proc/$(cat /run/agent.pid)/stat" 2>/dev/null) || return 1
	set -- ${stat##*) }
	echo $((${12} + ${13}))
}
agent_wait_registered() {
	tries=300
	until grep -qw "$CC" /proc/sys/net/ipv4/tcp_available_congestion_control; do
		agent_lives || return 1
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.1
	done
}
agent_stop() {
	agent_signal CONT
	agent_signal TERM
	tries=100
	while agent_lives; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || { echo "agent ignored SIGTERM for 10 s" >>/tmp/remarks; agent_signal KILL; return; }
		sleep 0.1
	done
}
play_events() {
	while read -r delay action; do
		sleep "$delay"
		case $action in
		kill) agent_signal KILL ;;
		stop) agent_signal STOP ;;
		continue) agent_signal CONT ;;
		restart) agent_start ;;
		esac
	done </events
}

echo "guest 1 $(uname -r)" >&3
if [ -f /script ]; then
	ip link set lo up
	sh /script >/tmp/output 2>&1
	echo $? >/tmp/status
	send output
	send status
	finish
fi
. /plan

for ns in c r s; do
	must ip netns add $ns
	must ip -n $ns link set lo up
done
must ip link add c0 netns c type veth peer name r0 netns r
must ip link add r1 netns r type veth peer name s0 netns s
must ip -n c addr add 10.1.0.1/24 dev c0
must ip -n r addr add 10.1.0.2/24 dev r0
must ip -n r addr add 10.2.0.1/24 dev r1
must ip -n s addr add 10.2.0.2/24 dev s0
for end in c:c0 r:r0 r:r1 s:s0; do
	must ip netns exec ${end%:*} ethtool -K ${end#*:} tso off gso off gro off
	must ip -n ${end%:*} link set ${end#*:} up
done
must ip -n c link set c0 gso_max_segs "$GSO_MAX_SEGS"
must ip -n c route add default via 10.1.0.2
must ip -n s route add default via 10.2.0.1
must ip netns exec r sysctl -qw net.ipv4.ip_forward=1
for ns in c s; do
	must ip netns exec $ns sysctl -qw net.ipv4.tcp_no_metrics_save=1 \
		net.ipv4.tcp_rmem="4096 131072 67108864" net.ipv4.tcp_wmem="4096 131072 67108864"
done

# netem counts the Ethernet header (14 bytes) in a packet's length; the path's rate does not.
loss=
[ "$LOSS_PERCENT" = 0 ] || loss="loss random $LOSS_PERCENT%"
must tc -n r qdisc add dev r1 root netem rate ${RATE_BPS}bit -14 limit "$QUEUE_LIMIT" $loss
must tc -n s qdisc add dev s0 root netem delay ${RTT_US}us limit 1000000
must tc -n c qdisc add dev c0 root fq

if [ -n "$AGENT" ]; then
	agent_start
	agent_wait_registered || {
		send agent.log
		agent_lives || fail "the agent ended before it registered $CC"
		fail "the agent did not register $CC within 30 s"
	}
fi
grep -qw "$CC" /proc/sys/net/ipv4/tcp_available_congestion_control || fail "this kernel has no congestion control $CC"

# Blocks of 16 KiB: with the default 128 KiB the intervals of a slow flow would say little.
ip netns exec s iperf3 -s -1 -i 0.2 -J >/tmp/server.json 2>/dev/null &
sleep 0.5
agent=$(cat /run/agent.pid 2>/dev/null)
ticks=$(agent_ticks 2>/dev/null)
play_events &
ip netns exec c timeout -k 5 $((SECS + 60)) iperf3 -c 10.2.0.2 -t "$SECS" -i 0.2 -l 16K -C "$CC" -P "$FLOWS" -J \
	>/tmp/client.json 2>/tmp/iperf.err || echo "iperf3 ended with status $?" >>/tmp/remarks

sleep 1 # the server's report, the sockets' last messages to the agent

if [ -n "$AGENT" ]; then
	# Only one agent process that lived through the run has a CPU time that means anything.
	if [ "$agent" = "$(cat /run/agent.pid)" ] && end=$(agent_ticks); then echo $((end - ticks)) >/tmp/agent.ticks; fi
	agent_lives || echo "the agent did not live at the end of the run" >>/tmp/remarks
	agent_stop
fi
# Without their indentation the reports are shorter by a third, and the port is slow.
for report in client server; do tr -d '\t\n' </tmp/$report.json >/tmp/$report; mv /tmp/$report /tmp/$report.json; done
for name in client.json server.json iperf.err agent.log agent.ticks remarks; do send $name; done
finish
