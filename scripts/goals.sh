#!/bin/sh
# The goals of performance in the simulator: every one with its figure, its line and its verdict. Runs of the same program
# are kept in target/goals-sim.
#
#   scripts/goals.sh [--missed] [--json]   arguments of `lab score`; REPS=3 runs of each, SCENARIOS=scenarios/goals.toml
set -eu
cd "$(dirname "$0")/.."

cargo build --locked --release
target=${CARGO_TARGET_DIR:-target}
program=$target/release/pk3c-ccp
scenarios=${SCENARIOS:-scenarios/goals.toml}
results=$target/goals-sim
"$program" lab run --scenarios "$scenarios" --cc cubic,bbr,pk3c --backend sim --reps "${REPS:-3}" --out "$results"
"$program" lab score "$results" --scenarios "$scenarios" "$@"
