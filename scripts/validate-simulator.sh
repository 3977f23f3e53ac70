#!/bin/bash
# The simulator against real TCP in QEMU guests: a Markdown table, non-zero if a figure is beyond its tolerance.
# Takes about half an hour; arguments go to the comparison (--schemes cubic, --save FILE, --guest FILE).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh guest >&2
cargo build --locked --release --bin pk3c-ccp
exec cargo run --locked --release --example validate -- --agent "${CARGO_TARGET_DIR:-target}/release/pk3c-ccp" "$@"
