#!/bin/sh
# Runs in a QEMU guest, for scripts/record-traces.sh: one recording of the agent on an emulated path. Writes the record to
# standard output, or what went wrong.
#
#   c (sender, fq) --- r (bottleneck) --- s (receiver; the whole delay, on the way back)
#
# RATE, RTT, QUEUE (packets), NETEM (further netem words of the bottleneck) and AFTER (of a second netem behind its queue)
# make the path, TRAFFIC is a shell text that sends, OFFLOAD=on lets the sender's device take bursts.
set -eu
exec 3>&1 >/tmp/noise 2>&1
RECORD=/tmp/record.jsonl
died() {
    cat /tmp/noise >&3
    exit 1
}
trap '[ $? -eq 0 ] || died' EXIT

# Some busybox shells prefer their own applets.
ip() { /bin/ip "$@"; }
tc() { /bin/tc "$@"; }
for ns in c r s; do
    ip netns add $ns
    ip -n $ns link set lo up
done
ip link add c0 netns c type veth peer name r0 netns r
ip link add r1 netns r type veth peer name s0 netns s
ip -n c addr add 10.1.0.1/24 dev c0
ip -n r addr add 10.1.0.2/24 dev r0
ip -n r addr add 10.2.0.1/24 dev r1
ip -n s addr add 10.2.0.2/24 dev s0
for end in c:c0 r:r0 r:r1 s:s0; do
    ns=${end%:*} dev=${end#*:}
    [ "$OFFLOAD" = on ] || ip netns exec "$ns" ethtool -K "$dev" tso off gso off gro off
    ip -n "$ns" link set "$dev" up
done
[ "$OFFLOAD" = on ] || ip -n c link set c0 gso_max_segs 1
ip -n c route add default via 10.1.0.2
ip -n s route add default via 10.2.0.1
ip netns exec r sysctl -qw net.ipv4.ip_forward=1
for ns in c s; do
    ip netns exec $ns sysctl -qw net.ipv4.tcp_no_metrics_save=1 \
        net.ipv4.tcp_rmem="4096 131072 67108864" net.ipv4.tcp_wmem="4096 131072 67108864"
done
# netem counts the Ethernet header, the path's rate does not; and the packet in transmission, which the queue does not.
bottleneck() { # VERB RATE NETEM...
    verb=$1 rate=$2
    shift 2
    # shellcheck disable=SC2068 # words of netem
    tc -n r qdisc "$verb" dev r1 root handle 1: netem rate "$rate" -14 limit $((QUEUE + 1)) $@
}
# shellcheck disable=SC2086,SC2153
bottleneck add "$RATE" $NETEM
# shellcheck disable=SC2086
[ -z "$AFTER" ] || tc -n r qdisc add dev r1 parent 1:1 handle 2: netem limit 100000 $AFTER
tc -n s qdisc add dev s0 root netem delay "$RTT" limit 1000000
tc -n c qdisc add dev c0 root fq

pk3c-ccp run --seed 1 --record $RECORD 2>/tmp/agent.log &
agent=$!
tries=300
until grep -qw pk3c /proc/sys/net/ipv4/tcp_available_congestion_control; do
    tries=$((tries - 1))
    if [ $tries -eq 0 ]; then
        cat /tmp/agent.log
        exit 1
    fi
    sleep 0.1
done
for port in 5201 5202; do ip netns exec s iperf3 -s -p $port & done
sleep 0.5

# What TRAFFIC is written with.
send() { ip netns exec c iperf3 -c 10.2.0.2 -C pk3c -l 16K "$@"; }      # flows under test
other() { ip netns exec c iperf3 -c 10.2.0.2 -p 5202 -l 16K "$@"; }     # flows of another control
steady() { bottleneck change "$RATE" "$NETEM"; }
eval "$TRAFFIC"

sleep 1 # the sockets' last messages to the agent
kill -TERM $agent
wait $agent || {
    cat /tmp/agent.log
    exit 1
}
cat $RECORD >&3
