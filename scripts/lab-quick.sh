#!/bin/sh
# A handful of the lab's scenarios in their short forms, with the kernel's TCP on this machine (root): does the whole
# lab work here, from the self-check to the report? Figures of so short runs compare nothing.
#
# Usage: scripts/lab-quick.sh [PROGRAM] [FOLDER]; takes about two minutes.
set -eu
program=${1:-target/release/pk3c-ccp}
folder=${2:-}
if [ "$(id -u)" != 0 ]; then
    echo "SKIPPED lab-quick: it takes root, for network namespaces and TUN devices"
    exit 0
fi
if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
# Few flows on a thin lossy path, three staggered flows over a varying one, downloads at a short queue, datagrams beside. Rates
# that a busy machine of two cores emulates in time: faster paths are void there, as they must be.
"$program" lab run P12 E2 B6-1 G5 \
    --cc cubic,bbr,pk3c --reps 1 --quick --no-cache --out "$folder"
# Void and failed runs have made it fail already. What is left: a result for each, with a self-check, that carried data.
fail() {
    echo "lab-quick: $1" >&2
    exit 1
}
set -- "$folder"/*-[0-9].json
[ $# = 12 ] || fail "$# results instead of 12"
for file; do
    grep -q '"self_check":{[^}]*}.*"passed":true' "$file" || fail "$file has no self-check that passed"
    grep -q '"total":{"seconds":[^,]*,"goodput_mbps":0\.0,' "$file" && fail "$file: nothing arrived"
done
echo "lab-quick: $# results, all of them good"
