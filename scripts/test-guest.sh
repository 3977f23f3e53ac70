#!/bin/bash
# The datapath and the agent on Debian's kernels 6.1 and 6.12, in QEMU guests; neither root nor KVM is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --locked --release --bin pk3c-ccp
# The others load the machine, which a guest of 500 million instructions per second cannot bear.
tests=(kernel_primitives kernel_govern kernel_adopt kernel_names kernel_ring kernel_upgrade kernel_hostile kernel_scale kernel_verifier)
arguments=()
for test in "${tests[@]}"; do arguments+=(--test "$test"); done
# The library's own kernel tests: conformance of translated programs.
executables=$(cargo test --locked --release -p ccp-bpf --lib "${arguments[@]}" --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
# Without what only a debugger reads: with it they are eleven times as large, and a guest of 1 GiB ended as it booted.
stripped=$(mktemp -d)
trap 'rm -rf "$stripped"' EXIT
while read -r executable; do strip --strip-debug -o "$stripped/${executable##*/}" "$executable"; done <<<"$executables"
binaries=$(printf '%s\n' "$stripped"/* | paste -sd:)
PK3C_AGENT=${CARGO_TARGET_DIR:-$PWD/target}/release/pk3c-ccp CCP_KERNEL_TESTS=$binaries \
    cargo test --locked --release -p pathlab --test guest --test guest_kernels -- --ignored --nocapture "$@"
