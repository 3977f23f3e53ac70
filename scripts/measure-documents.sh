#!/bin/bash
# Measures the experiments of the five documents with this machine's kernel, cubic, bbr and pk3c three times each, and
# writes their tables in docs/results.md anew.
#
#   sudo scripts/measure-documents.sh FOLDER     about five hours on a machine that does nothing else; goes on where it ended
#
# What would take longer than its answer is worth is measured in its short form; the tables say so.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 1 ] || { echo "usage: scripts/measure-documents.sh FOLDER" >&2 && exit 2; }
out=$1
page=docs/results.md

cargo build --locked --release --bin pk3c-ccp
lab() { "${CARGO_TARGET_DIR:-target}/release/pk3c-ccp" lab "$@"; }
# measure FOLDER SCHEMES OPTIONS...
measure() { lab run --reps 3 --out "$out/$1" --cc "$2" "${@:3}"; }

measure pantheon cubic,bbr,pk3c E1 E2
measure freebsd cubic,reno,bbr,pk3c F1 F2 F3 F4
measure pk3c cubic,bbr,pk3c P1 P2 P4-30 P5-30 P6 P7 P8 P9 P10 P11 P12 P13 P14 \
    C10-1 C10-2 C10-5 V1-100 V1-110 V1-100-loss1 V1-110-loss1 N1000 S1
measure pk3c-short cubic,bbr,pk3c --quick P3 P4-55 P4-60 P5-60
measure bequant cubic,bbr,pk3c --document bequant
# Hundreds of milliseconds: six seconds would be all start.
measure geni cubic,reno,bbr,pk3c G2 G2-open G3 G9a-1 G9a-30 G9c-1 G9c-30
measure geni-exp exp G9a-1 G9a-30 G9c-1 G9c-30
measure geni-short cubic,reno,bbr,pk3c --quick G1 G4-5 G4-10 G5 G6 G7-0 G7-3 G7-100 G7-100000 G7-max \
    G8-sack G8-nosack G9b-1 G9b-30
measure geni-short-exp exp --quick G9b-1 G9b-30

# Puts what comes in between <!-- documents --> and <!-- end of documents -->.
lab report "$out"/*/ --format markdown >"$out/tables.md"
awk -v tables="$out/tables.md" '
    /^<!-- end of documents -->/ { inside = 0 }
    !inside { print }
    /^<!-- documents -->/ { inside = 1; while ((getline line < tables) > 0) print line }
' "$page" >"$out/page.md"
cp "$out/page.md" "$page"
