#!/bin/bash
# The kernel module on a kernel that looks for faults: KASAN, lockdep, RCU checks, sleeping in atomic context, list and
# object debugging; two CPUs at once. Builds the kernel from Debian's linux-source-6.1 with the options of
# ccp-kernel/tests/debug.config and no others, once, then runs the module's tests that need no clock. Neither root nor
# KVM is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/pk3c-ccp/guest
target=${CARGO_TARGET_DIR:-$PWD/target}
source=$cache/debug-source
kernel=$cache/debug-kernel
say() { echo "test-module-debug: $*" >&2; }

for tool in bc bison flex; do
    command -v $tool >/dev/null || { say "no $tool here: apt-get install bc bison flex libssl-dev libelf-dev" && exit 1; }
done
mkdir -p "$cache"
if [ ! -f "$source/Makefile" ]; then
    say "fetching linux-source-6.1"
    partial=$(mktemp -d "$cache/partial-source.XXXXXX")
    (cd "$partial" && apt-get download -q linux-source-6.1 >&2 && dpkg-deb --extract linux-source-6.1_*.deb .)
    tar -xf "$partial"/usr/src/linux-source-6.1.tar.xz -C "$partial"
    mv "$partial/linux-source-6.1" "$source"
    rm -rf "$partial"
fi
config=$PWD/ccp-kernel/tests/debug.config
if ! [ -d "$kernel/boot" ] || ! cmp -s "$config" "$kernel/debug.config"; then
    say "building the kernel"
    make -s -C "$source" KCONFIG_ALLCONFIG="$config" allnoconfig
    # What an option needs and has not got turns it off in silence.
    if lacking=$(grep CONFIG_ "$config" | grep -vxFf "$source/.config"); then
        say "this kernel does not take these options of $config:"
        echo "$lacking" >&2
        exit 1
    fi
    make -s -C "$source" -j"$(nproc)" bzImage modules
    rm -rf "$kernel.partial" "$kernel"
    mkdir -p "$kernel.partial/boot"
    make -s -C "$source" INSTALL_MOD_PATH="$kernel.partial" DEPMOD=true modules_install
    mkdir -p "$kernel.partial"/lib/modules/*/kernel
    cp "$source/arch/x86/boot/bzImage" "$kernel.partial/boot/vmlinuz-$(make -s -C "$source" kernelrelease)"
    cp "$config" "$kernel.partial/debug.config"
    mv "$kernel.partial" "$kernel"
fi
make -s -C ccp-kernel KDIR="$source" >&2
cargo build --locked --release --bin pk3c-ccp
tests=$(cargo test --locked --release -p ccp-char --test kernel_module --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
PK3C_AGENT=$target/release/pk3c-ccp CCP_MODULE_TESTS=$tests CCP_DEBUG_KERNEL=$kernel CCP_DEBUG_MODULE=$PWD/ccp-kernel/tcp_ccp.ko \
    cargo test --locked --release -p pathlab --test guest_module -- --ignored --nocapture a_kernel_that_looks_for_faults
