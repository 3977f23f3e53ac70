#!/bin/bash
# Takes docs/images/top.png and docs/images/top-flow.png: `pk3c-ccp top` in a terminal of 80 columns and 24 lines, of an
# agent that drives five flows over an emulated path, 50 Mbit/s, 40 ms, 0.5 % loss.
#
#   sudo scripts/picture-of-top.sh [PROGRAM]   (half a minute; needs tmux, aha, chromium and iperf3)
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:-target/release/pk3c-ccp}
die() { echo "picture-of-top: $*" >&2 && exit 1; }
for tool in tmux aha chromium iperf3; do
    command -v $tool >/dev/null || die "no '$tool' here: apt-get install $tool"
done
[ -x "$program" ] || die "no $program: make build"

work=$(mktemp -d)
control=$work/control
terminal=picture-of-top-$$
jobs=()
cleanup() {
    tmux kill-session -t $terminal 2>/dev/null || true
    [ ${#jobs[@]} -eq 0 ] || kill "${jobs[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap cleanup EXIT

"$program" run --datapath bpf --control "$control" >"$work/agent" 2>&1 &
jobs+=($!)
# shellcheck disable=SC2016 # the path's shell knows the address
"$program" lab path --quiet --rate 50mbit --rtt 40ms --loss 0.5% --server 'iperf3 -s -1' -- \
    sh -c 'sleep 2; exec iperf3 -c $PK3C_SERVER -C pk3c -P 5 -t 30' >"$work/path" 2>&1 &
jobs+=($!)
for _ in $(seq 50); do
    [ ! -S "$control" ] || break
    sleep 0.1
done
tmux new-session -d -s $terminal -x 80 -y 24 "$program" top --socket "$control"
tmux set-option -t $terminal status off

# What the terminal shows, with its colours, as a picture.
take() { # FILE
    {
        echo '<meta charset="utf-8"><style>body { background: #111; color: #ddd; margin: 10px }'
        echo 'pre { font: 16px/20px "DejaVu Sans Mono", monospace; margin: 0 }</style><pre>'
        tmux capture-pane -e -p -t $terminal | aha --black --no-header
        echo '</pre>'
    } >"$work/page.html"
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=800,500 \
        --screenshot="$1" "file://$work/page.html" >"$work/chromium" 2>&1 || die "$(tail -n 3 "$work/chromium")"
}

sleep 14
tmux capture-pane -p -t $terminal | grep -q 5201 || die "no flow is shown: $(tail -n 3 "$work/agent" "$work/path")"
mkdir -p docs/images
take "$PWD/docs/images/top.png"
tmux send-keys -t $terminal Enter
sleep 5
take "$PWD/docs/images/top-flow.png"
