#!/bin/sh
# Writes the simulator's table into docs/results.md, between the lines `<!-- table NAME -->` and `<!-- end -->`.
# Takes about two minutes of one core; the same revision gives the same table on every machine.
set -eu
cd "$(dirname "$0")/.."

cargo build --locked --release
program=${CARGO_TARGET_DIR:-target}/release/pk3c-ccp
results=docs/results.md
table=$(mktemp)
page=$(mktemp)
trap 'rm -f "$table" "$page"' EXIT

# insert NAME: puts the file $table in the place of that name.
insert() {
    awk -v name="$1" -v table="$table" '
        $0 == "<!-- table " name " -->" { print; while ((getline line < table) > 0) print line; inside = 1; found = 1; next }
        $0 == "<!-- end -->" { inside = 0 }
        !inside { print }
        END { exit !found }' "$results" >"$page"
    cat "$page" >"$results"
}

"$program" sim table scenarios/comparison.toml >"$table"
insert comparison
