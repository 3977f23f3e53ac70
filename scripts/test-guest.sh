#!/bin/sh
# The datapath's kernel tests on Debian's kernels, in QEMU under virtual time: scripts/test-guest.sh [6.1] [6.12]
#
# Runs the same test binaries as `make test` (conformance, primitives), then the agent that is frozen, killed and
# restarted under load. About five minutes for each kernel; no root needed.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:${HOME:-/root}/.cargo/bin"
[ $# -gt 0 ] || set -- 6.1 6.12

cargo build --locked --release -p pathlab --example guest_exec >&2
# The paths of the test binaries, out of cargo's messages.
binaries=$(cargo test --locked --release -p ccp-bpf --lib --test kernel_primitives --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | grep -E 'deps/(ccp_bpf|kernel_primitives)-' | sort -u)
target=${CARGO_TARGET_DIR:-target}
status=0
for kernel in "$@"; do
    echo "== datapath tests on Linux $kernel"
    # shellcheck disable=SC2086 # a list of paths that cargo made
    "$target/release/examples/guest_exec" "$kernel" 1200 \
        'ccp_bpf --test-threads=1 kernel_ && kernel_primitives --test-threads=1 --nocapture' $binaries || status=1
done
echo "== the agent on Linux 6.1 and 6.12"
cargo test --locked --release --test guest_agent -- --ignored --nocapture || status=1
exit $status
