#!/bin/bash
# What a gigabit costs the machine that sends and receives it: CPU of all processors, kernel, senders, receivers and
# agent, while one connection sends as fast as it can over a veth pair between two network namespaces. Schemes take
# turns; medians at the end.
#
#   sudo scripts/measure-cost.sh [ROUNDS [PROGRAM]]   (5 rounds: 3 minutes; nothing else may run meanwhile)
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
program=${2:-target/release/pk3c-ccp}
schemes="cubic bbr pk3c"
seconds=10
near=pk3c-near-$$
far=pk3c-far-$$
work=$(mktemp -d)
finish() {
    # The agent, and a server that waits for a client that failed.
    jobs -p | xargs -r kill 2>/dev/null || true
    wait
    ip netns del "$near" 2>/dev/null || true
    ip netns del "$far" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

ip netns add "$near"
ip netns add "$far"
ip -n "$near" link add near type veth peer name far netns "$far"
ip -n "$near" addr add 192.0.2.1/30 dev near
ip -n "$far" addr add 192.0.2.2/30 dev far
ip -n "$near" link set near up
ip -n "$far" link set far up
"$program" run --datapath bpf --control none >"$work/agent" 2>&1 &
for ((n = 0; n < 100; n++)); do
    ! grep -q 'ready: ' "$work/agent" || break
    sleep 0.1
done
[ "$n" -lt 100 ] || { cat "$work/agent" >&2 && exit 1; }

# Ticks in which any processor was not idle.
busy() { awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }

# Prints the connection's Gbit/s, and seconds of CPU for each Gbit.
round() {
    local server spent bytes
    ip netns exec "$far" iperf3 -s -1 >/dev/null &
    server=$!
    sleep 1
    spent=$(busy)
    ip netns exec "$near" iperf3 -c 192.0.2.2 -C "$1" -t $seconds --json >"$work/iperf"
    spent=$(($(busy) - spent))
    wait $server
    bytes=$(grep -A 8 '"sum_received"' "$work/iperf" | grep -oE '"bytes":[[:space:]]*[0-9]+' | grep -oE '[0-9]+$')
    awk -v ticks=$spent -v hertz="$(getconf CLK_TCK)" -v bytes="$bytes" -v seconds=$seconds \
        'BEGIN { g = bytes * 8e-9; printf "%.2f %.4f\n", g / seconds, ticks / hertz / g }'
}

for ((n = 1; n <= rounds; n++)); do
    for scheme in $schemes; do
        round "$scheme" >>"$work/$scheme"
        echo "round $n of $rounds, $scheme: $(tail -n 1 "$work/$scheme" |
            awk '{ print $1 " Gbit/s, " $2 " s of CPU per Gbit" }')" >&2
    done
done
for scheme in $schemes; do
    sort -n -k 2 "$work/$scheme" | awk -v scheme="$scheme" '{ rate[NR] = $1; cost[NR] = $2 }
        END { m = int((NR + 1) / 2)
              printf "%-6s median %.4f s of CPU per Gbit (%.4f to %.4f), at %.2f Gbit/s\n",
                     scheme, cost[m], cost[1], cost[NR], rate[m] }'
done
