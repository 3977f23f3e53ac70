#!/bin/bash
# All checks and tests, for `make test`. Every check runs even if an earlier one failed; what cannot run here is named
# with its reason; the last line counts checks and tests together. Non-zero if anything failed.
#
# Tests with kernel_ in their names need root and measure: they run in a second round, optimised and one at a time.
# A test that lacks root or a kernel feature prints `SKIPPED <test>: <reason>` and is counted as skipped, not as passed.
set -euo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
skipped=0
failures=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

heading() { printf '\n== %s\n' "$1"; }

# record_failure NAME [COUNT [CAUSES]]
record_failure() {
    failed=$((failed + ${2:-1}))
    failures+=("$1${3:+$'\n'$3}")
}

skip() {
    printf 'SKIPPED %s: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
}

# check NAME COMMAND...
check() {
    heading "$1"
    if "${@:2}"; then
        passed=$((passed + 1))
    else
        record_failure "$1"
    fi
}

# Sum of a number in front of WORD over cargo's "test result" lines.
sum() { sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'; }

# Number of names that the log says were skipped, but for what it quotes of guests. cargo counts the tests among them as
# passed.
skips() { grep -v '^| ' "$log" | grep -Eo 'SKIPPED [A-Za-z0-9_:]+: ' | sort -u | wc -l || true; }

# The failed tests of a log, each with its attempts and its last words, for the end of a long output.
causes() {
    awk '
        /^failures:$/ { failures = 1 }
        /^test result:/ { failures = 0 }
        failures && /^---- .* stdout ----$/ { print "  " $2 }
        failures && (/^attempt [0-9]/ || told) && $0 != "Box<dyn Any>" { print "    " $0 }
        { told = failures && /panicked at/ }
    ' "$log"
}

# tests NAME COMMAND...: runs a cargo test command and adds its tests to the counts.
tests() {
    heading "$1"
    local status=0 skips bad
    "${@:2}" 2>&1 | tee "$log" || status=$?
    skips=$(skips)
    bad=$(sum failed)
    passed=$((passed + $(sum passed) - skips))
    skipped=$((skipped + skips + $(sum ignored)))
    if [ "$bad" -gt 0 ]; then
        record_failure "$1" "$bad" "$(causes)"
    elif [ "$status" -ne 0 ]; then
        record_failure "$1 (did not build or run)"
    fi
}

# The advisory database comes from the network; everything else must not depend on it.
advisories() {
    heading "advisories (cargo deny)"
    if timeout 120 cargo deny check advisories >"$log" 2>&1; then
        passed=$((passed + 1))
    elif grep -qiE 'failed to (fetch|load|open|clone).*advisory|unable to fetch|error sending request|timed out' "$log" ||
        ! grep -q 'advisories FAILED' "$log"; then
        skip advisories "the advisory database could not be fetched"
    else
        cat "$log"
        record_failure advisories
    fi
}

# The parsers of what an agent sends, and the translator; without the tools the script says so and exits with 3.
fuzz() {
    heading "fuzzing"
    local status=0
    scripts/fuzz.sh 2>&1 | tee "$log" || status=$?
    case $status in
    0) passed=$((passed + $(grep -c '^== fuzz ' "$log"))) ;;
    3) skipped=$((skipped + 1)) ;;
    *) record_failure fuzzing ;;
    esac
}

# The lab from the self-check to the report, over emulated paths.
lab() {
    heading "lab, short forms (lab run --quick)"
    local status=0
    scripts/lab-quick.sh "${CARGO_TARGET_DIR:-target}/release/pk3c-ccp" 2>&1 | tee "$log" || status=$?
    if [ "$status" -ne 0 ]; then
        record_failure lab-quick 1 "$(grep -E '^(FAILED|pk3c-ccp|lab-quick): ' "$log" | tail -n 5)"
    elif grep -q '^SKIPPED ' "$log"; then
        skipped=$((skipped + 1))
    else
        passed=$((passed + 1))
    fi
}

# The kernel module in guests. Kernels and headers come from Debian's archive; everything else must not depend on it.
module() {
    heading "kernel module, short form (scripts/test-module.sh)"
    local status=0 skips
    if ! scripts/setup.sh guest; then
        skip kernel_module "what guests need is not installed, and cannot be"
        return
    fi
    if ! scripts/test-module.sh fetch >"$log" 2>&1; then
        tail -n 3 "$log"
        skip kernel_module "the guests' kernels and headers could not be fetched"
        return
    fi
    scripts/test-module.sh short 2>&1 | tee "$log" || status=$?
    skips=$(skips)
    # Not one of cargo's tests.
    if grep -q '^SKIPPED checkpatch: ' "$log"; then passed=$((passed + 1)); fi
    passed=$((passed + $(sum passed) - skips))
    skipped=$((skipped + skips))
    if [ "$status" -ne 0 ]; then
        record_failure "kernel module" "$(($(sum failed) > 0 ? $(sum failed) : 1))"
    fi
}

check "format (cargo fmt)" cargo fmt --all --check
check "lints (clippy)" cargo clippy --locked --workspace --all-targets -- -D warnings
check "documentation (rustdoc)" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
if cargo deny --version >/dev/null 2>&1; then
    check "dependencies (cargo deny)" cargo deny --log-level error check bans licenses sources
    advisories
else
    heading "dependencies (cargo deny)"
    skip dependencies "no cargo-deny here"
    skip advisories "no cargo-deny here"
fi
if command -v shellcheck >/dev/null 2>&1; then
    check "scripts (shellcheck)" shellcheck scripts/*.sh packaging/deb/build.sh packaging/deb/*/{postinst,prerm} packaging/deb/*/postrm .ci/run
else
    heading "scripts (shellcheck)"
    skip shellcheck "not installed"
fi
tests "unit and integration tests" \
    cargo test --locked --workspace --no-fail-fast -- --show-output --skip kernel_
tests "kernel tests" \
    cargo test --locked --release --workspace --lib --bins --tests --no-fail-fast -- --show-output --test-threads=1 kernel_
lab
module
fuzz

printf '\n'
for failure in "${failures[@]}"; do
    printf 'FAILED %s\n' "$failure"
done
printf 'make test: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
