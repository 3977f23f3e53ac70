#!/bin/bash
# Records the traces of traces/ anew, each in a QEMU guest under virtual time: the same on every machine, for the same
# agent and kernel. Some five minutes in all.
#
#   scripts/record-traces.sh [NAME...]   all of them, or those with these names
#
# Kernel, path and traffic of each are below; scripts/record-in-guest.sh is what runs in the guest.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh guest
cargo build --locked --release --bin pk3c-ccp
cargo build --locked --release -p pathlab --example script
built=${CARGO_TARGET_DIR:-$PWD/target}/release
wanted=("$@")
mkdir -p traces

# trace NAME KERNEL RATE RTT QUEUE NETEM TRAFFIC [AFTER [OFFLOAD]]
trace() {
    local name=$1
    if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
    local settings=(RATE RTT QUEUE NETEM TRAFFIC AFTER OFFLOAD) arguments=() setting
    local values=("${@:3}")
    for setting in "${!settings[@]}"; do
        arguments+=(--before "${settings[$setting]}=$(printf %q "${values[$setting]:-}")")
    done
    printf '%s: ' "$name" >&2
    if ! "$built/examples/script" --kernel "$2" --binary "$built/pk3c-ccp=pk3c-ccp" "${arguments[@]}" \
        scripts/record-in-guest.sh >"traces/$name.jsonl.new"; then
        cat "traces/$name.jsonl.new" >&2
        rm -f "traces/$name.jsonl.new"
        return 1
    fi
    mv "traces/$name.jsonl.new" "traces/$name.jsonl"
}
trap 'rm -f traces/*.jsonl.new' EXIT

# The guest's shell expands what is quoted here.
# shellcheck disable=SC2016
{
#     name           kernel rate     RTT   queue netem                traffic
trace clean          6.12   50mbit   40ms  167   ''                   'send -t 20'
trace clean-6.1      6.1    50mbit   40ms  167   ''                   'send -t 6'
trace loss-1         6.12   50mbit   40ms  167   'loss random 1%'     'send -t 20'
trace loss-5         6.12   50mbit   40ms  167   'loss random 5%'     'send -t 20'
trace shallow        6.12   50mbit   23ms  10    ''                   'send -t 8'
trace deep           6.12   20mbit   40ms  533   ''                   'send -t 20'
trace eight-flows    6.12   50mbit   80ms  333   ''                   'send -t 6 -P 8'
trace low-rate       6.12   500kbit  80ms  10    ''                   'send -t 30'
trace outage         6.12   20mbit   40ms  67    ''                   '(sleep 4; bottleneck change "$RATE" loss 100%; sleep 1.5; steady) & send -t 10'
trace app-limited    6.12   50mbit   40ms  167   ''                   'send -t 8 -b 5M'
trace jitter         6.12   50mbit   30ms  167   'delay 10ms 5ms'     'send -t 10'
trace reordering     6.12   50mbit   40ms  167   ''                   'send -t 8' 'delay 3ms reorder 98%'
trace against-cubic  6.12   50mbit   40ms  167   ''                   '(sleep 5; other -t 15 -C cubic) & send -t 25'
trace short          6.12   50mbit   40ms  167   ''                   'for size in 20K 100K 300K 1M 3M; do send -n $size; send -n $size; done'
trace high-rate      6.12   200mbit  20ms  333   ''                   'send -t 6'
trace low-rtt        6.12   100mbit  2ms   50    ''                   'send -t 1' '' on
trace rate-steps     6.12   50mbit   40ms  167   ''                   '(sleep 5; bottleneck change 20mbit; sleep 4; steady) & send -t 13'
trace fallback       6.12   20mbit   30ms  100   ''                   '(sleep 3; kill -STOP $agent; sleep 0.5; kill -CONT $agent) & send -t 6 -P 2'
}
