#!/bin/sh
# Fuzzes what an agent can send: scripts/fuzz.sh [TARGET...], all targets by default.
#
# Each target starts from its committed corpus (fuzz/corpus/TARGET) and makes a fixed number of runs, nearly 7 million
# together; FUZZ_RUNS=n makes n each instead. What it finds on the way is left in fuzz/artifacts; the corpus does not
# change. It takes the nightly toolchain and cargo-fuzz; without them it says so and exits with 3.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:${HOME:-/root}/.cargo/bin"

# What a target does with an input differs in cost; so does the number of runs.
runs_of() {
    case $1 in
    message) echo 4000000 ;;
    program) echo 1500000 ;;
    datapath) echo 700000 ;;
    translation) echo 700000 ;;
    *) return 1 ;;
    esac
}

missing() {
    printf 'SKIPPED fuzz: %s\n' "$*"
    exit 3
}
command -v cargo-fuzz >/dev/null 2>&1 || missing "no cargo-fuzz here: cargo install --locked cargo-fuzz"
cargo +nightly --version >/dev/null 2>&1 || missing "no nightly toolchain here: rustup toolchain install nightly"

found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
[ $# -gt 0 ] || set -- message program datapath translation
for target in "$@"; do
    runs=$(runs_of "$target") || {
        echo "fuzz: no target '$target'" >&2
        exit 2
    }
    runs=${FUZZ_RUNS:-$runs}
    mkdir -p "$found/$target"
    echo "== fuzz $target: $runs runs"
    # Everything fuzzed is safe Rust, where a sanitizer finds nothing and costs most of the speed.
    cargo +nightly fuzz run --sanitizer none "$target" "$found/$target" "fuzz/corpus/$target" -- \
        -runs="$runs" -max_len=8192 -timeout=5 -verbosity=0 -print_final_stats=1 2>"$found/log" || {
        cat "$found/log" >&2
        exit 1
    }
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec|new_units_added)' "$found/log"
done
