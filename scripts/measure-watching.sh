#!/bin/bash
# What watching costs the agent: CPU per report of an agent that drives 100 flows over an emulated path, alone, with its
# metrics scraped once a second, and with a record of every report. Turns taken in one run, medians at the end.
#
#   sudo scripts/measure-watching.sh [ROUNDS [PROGRAM]]   (5 rounds: 5 minutes; nothing else may run meanwhile)
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
program=${2:-target/release/pk3c-ccp}
port=9817
seconds=10
work=$(mktemp -d)
agent=
trap '[ -z "$agent" ] || kill "$agent" 2>/dev/null; wait; rm -rf "$work"' EXIT

# Nanoseconds of CPU of all threads of the agent.
cpu() { awk '{ sum += $1 } END { printf "%d", sum }' /proc/"$agent"/task/*/schedstat; }
# Reports since the start, of all flows.
reports() {
    "$program" status --json --socket "$work/control" | sed 's/.*"stats"://' | grep -oE '"reports":[0-9]+' | cut -d : -f 2
}

# Prints nanoseconds per report.
round() { # alone|metrics|record
    local options=() scraper='' spent counted path
    case $1 in
    metrics) options=(--metrics "$port") ;;
    record) options=(--record "$work/record.jsonl") ;;
    esac
    rm -f "$work/record.jsonl"
    "$program" run --datapath bpf --control "$work/control" "${options[@]}" >"$work/agent" 2>&1 &
    agent=$!
    # shellcheck disable=SC2016 # the path's shell knows the address
    "$program" lab path --quiet --rate 100mbit --rtt 40ms --server 'iperf3 -s -1' -- \
        sh -c "sleep 2; exec iperf3 -c \$PK3C_SERVER -C pk3c -P 100 -t $((seconds + 4))" >"$work/path" 2>&1 &
    path=$!
    sleep 5
    if [ "$1" = metrics ]; then
        (while curl -sf -o /dev/null http://127.0.0.1:$port/metrics; do sleep 1; done) &
        scraper=$!
    fi
    spent=$(cpu)
    counted=$(reports)
    sleep $seconds
    spent=$(($(cpu) - spent))
    counted=$(($(reports) - counted))
    [ -z "$scraper" ] || kill $scraper 2>/dev/null || true
    [ "$counted" -gt 0 ] || { cat "$work/agent" "$work/path" >&2 && exit 1; }
    wait $path || true
    kill $agent
    wait $agent || true
    agent=
    echo $((spent / counted))
}

for ((n = 1; n <= rounds; n++)); do
    for what in alone metrics record; do
        round $what >>"$work/$what"
        echo "round $n of $rounds, $what: $(tail -n 1 "$work/$what") ns of CPU per report" >&2
    done
done
for what in alone metrics record; do
    sort -n "$work/$what" | awk -v what=$what '{ v[NR] = $1 }
        END { printf "%-8s median %d ns of CPU per report (%d to %d)\n", what, v[int((NR + 1) / 2)], v[1], v[NR] }'
done
