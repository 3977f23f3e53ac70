#!/bin/sh
# Makes this machine ready: scripts/setup.sh [base|test|guest|kernel|package]
#
#   base   what building and `make demo` need
#   test   base, and rustfmt, clippy, cargo-deny, cargo-fuzz with nightly, shellcheck, chromium, prometheus for `make test`
#   guest  base, and QEMU with what builds a guest image, for `make test-guest`
#   kernel guest, and what builds a kernel, for `make test-kernel-debug`
#   package guest, and what builds and checks Debian packages and makes a root file system, for `make test-package`
#
# As root it installs missing Debian packages and mounts bpffs on /sys/fs/bpf if it is not mounted (the mount stays:
# pins live there, and most distributions mount it at boot). As another user it prints the line to run and fails.
# It says nothing and changes nothing on a machine that is ready.
set -eu

# The package's minimum, rust-version in Cargo.toml.
RUST_MINOR_MIN=89

BASE_PACKAGES="gcc make pkg-config clang libelf-dev zlib1g-dev iperf3 iproute2 ethtool netcat-openbsd curl procps kmod"
GUEST_PACKAGES="qemu-system-x86 busybox-static xz-utils"
KERNEL_PACKAGES="bc bison flex libssl-dev"
DEBIAN_PACKAGES="dpkg-dev lintian mmdebstrap e2fsprogs"

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}
is_root() { [ "$(id -u)" -eq 0 ]; }

# Prints those of the given packages that are not installed.
missing_packages() {
    for package in "$@"; do
        # shellcheck disable=SC2016 # a dpkg-query format, not a shell variable
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || printf '%s ' "$package"
    done
}

# The commands that the base packages would provide, for systems without dpkg.
check_commands() {
    for command in cc pkg-config clang iperf3 ip ethtool nc curl ps; do
        command -v "$command" >/dev/null 2>&1 || die "no '$command' here, and this is no Debian: install what" \
            "provides it (Debian's packages: $*)"
    done
}

install_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        check_commands "$@"
        return
    fi
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    line="apt-get update && apt-get install -y --no-install-recommends ${missing% }"
    is_root || die "packages are missing; run as root, then repeat:
  sudo sh -c '$line'"
    say "installing ${missing% }"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >&2
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -y -q --no-install-recommends $missing >&2 || die "could not install; the line was: $line"
    # Its package starts a server; the tests start their own.
    case " $missing" in
    *" prometheus "*) if [ -d /run/systemd/system ]; then systemctl disable --quiet --now prometheus >&2; fi ;;
    esac
}

# A working cargo of at least the minimum version.
need_rust() {
    if ! command -v cargo >/dev/null 2>&1; then
        command -v rustup >/dev/null 2>&1 || die "no cargo for user $(id -un): install rustup for this user" \
            "(https://rustup.rs), or build as the user who has it and run 'sudo target/release/pk3c-ccp ...'"
        say "installing the stable Rust toolchain"
        rustup default stable >&2
    fi
    version=$(cargo --version 2>/dev/null) || {
        say "installing the stable Rust toolchain"
        rustup default stable >&2
        version=$(cargo --version)
    }
    minor=$(printf '%s' "$version" | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    [ "${minor:-0}" -ge "$RUST_MINOR_MIN" ] ||
        die "cargo 1.$RUST_MINOR_MIN or newer is needed, this is '$version': run 'rustup update stable'"
}

# rustfmt and clippy: a minimal rustup profile has neither.
need_component() {
    cargo "$2" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null 2>&1 || die "no 'cargo $2': install $1 for this toolchain"
    say "installing $1"
    rustup component add "$1" >&2
}

need_cargo_deny() {
    cargo deny --version >/dev/null 2>&1 && return
    say "installing cargo-deny (once, a minute or two; unoptimised is fast enough)"
    cargo install --locked --quiet --debug cargo-deny >&2 ||
        say "cargo-deny is not to be had; 'make test' will count its checks as skipped"
}

# Fuzzing takes the nightly compiler.
need_cargo_fuzz() {
    if ! cargo +nightly --version >/dev/null 2>&1; then
        say "installing the nightly toolchain for fuzzing"
        rustup toolchain install nightly --profile minimal >&2 || {
            say "no nightly toolchain is to be had; 'make test' will count fuzzing as skipped"
            return 0
        }
    fi
    command -v cargo-fuzz >/dev/null 2>&1 && return
    say "installing cargo-fuzz (once)"
    cargo install --locked --quiet --debug cargo-fuzz >&2 ||
        say "cargo-fuzz is not to be had; 'make test' will count fuzzing as skipped"
}

# Without bpffs nothing can be pinned: the agent would lose its flows in a crash.
need_bpffs() {
    is_root || return 0
    grep -q ' /sys/fs/bpf bpf ' /proc/mounts && return
    if [ ! -d /sys/fs/bpf ]; then
        say "this kernel has no /sys/fs/bpf (CONFIG_BPF_SYSCALL): the agent cannot run here"
    elif mount -t bpf bpf /sys/fs/bpf 2>/dev/null; then
        say "mounted bpffs on /sys/fs/bpf"
    else
        say "cannot mount bpffs on /sys/fs/bpf (a container?): the agent cannot pin its maps here"
    fi
}

# rustup's default place, for shells that have not read its profile yet.
PATH="$PATH:${HOME:-/root}/.cargo/bin"

mode=${1:-base}
case $mode in
base) packages=$BASE_PACKAGES ;;
guest) packages="$BASE_PACKAGES $GUEST_PACKAGES" ;;
kernel) packages="$BASE_PACKAGES $GUEST_PACKAGES $KERNEL_PACKAGES" ;;
package) packages="$BASE_PACKAGES $GUEST_PACKAGES $DEBIAN_PACKAGES" ;;
test)
    packages=$BASE_PACKAGES
    # Test tools from Debian; another user's `make test` runs without them and says so.
    if is_root; then packages="$packages shellcheck chromium prometheus"; fi
    ;;
*) die "usage: scripts/setup.sh [base|test|guest|kernel|package]" ;;
esac
# shellcheck disable=SC2086 # a list of package names
install_packages $packages
need_rust
need_bpffs
if [ "$mode" = test ]; then
    need_component rustfmt fmt
    need_component clippy clippy
    need_cargo_deny
    need_cargo_fuzz
fi
