#!/bin/bash
# The kernel module on a kernel that looks for faults: KASAN, lockdep, RCU checks, sleeping in atomic context, list and
# object debugging; two CPUs at once. Builds the kernel from Debian's linux-source-6.1, once (some 15 minutes on two
# cores, 3 GB), then runs the module's tests that need no clock. Neither root nor KVM is needed.
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
if ! [ -d "$kernel/boot" ]; then
    say "building the kernel"
    make -s -C "$source" x86_64_defconfig
    # What guests need is built in; what is not looked at is left out.
    "$source/scripts/config" --file "$source/.config" \
        -e KASAN -e KASAN_INLINE -e PROVE_LOCKING -e PROVE_RCU -e DEBUG_ATOMIC_SLEEP -e DEBUG_LIST -e DEBUG_OBJECTS \
        -e DEBUG_OBJECTS_FREE -e DEBUG_OBJECTS_RCU_HEAD -e DEBUG_OBJECTS_TIMERS -e SLUB_DEBUG_ON -e DEBUG_KERNEL \
        -e VETH -e NET_SCHED -e NET_SCH_NETEM -e NET_SCH_FQ -e TCP_CONG_ADVANCED -e TCP_CONG_CUBIC -e TCP_CONG_BBR \
        -e NET_NS -e NAMESPACES -e TUN -e BPF_SYSCALL -e BPF_JIT -e DEVTMPFS -e BLK_DEV_INITRD -e SERIAL_8250_CONSOLE \
        -e IPV6 -e MODULES -e MODULE_UNLOAD -d MODULE_SIG -d DEBUG_INFO_BTF -e DEBUG_INFO_NONE -d SOUND -d DRM -d USB \
        -d WLAN -d WIRELESS -d ATA -d SCSI -d HID -d NFS_FS -d EXT4_FS --set-str LOCALVERSION -debug
    make -s -C "$source" olddefconfig
    make -s -C "$source" -j"$(nproc)" bzImage modules
    rm -rf "$kernel.partial"
    mkdir -p "$kernel.partial/boot"
    make -s -C "$source" INSTALL_MOD_PATH="$kernel.partial" DEPMOD=true modules_install
    mkdir -p "$kernel.partial"/lib/modules/*/kernel
    cp "$source/arch/x86/boot/bzImage" "$kernel.partial/boot/vmlinuz-$(make -s -C "$source" kernelrelease)"
    mv "$kernel.partial" "$kernel"
fi
make -s -C ccp-kernel KDIR="$source" >&2
cargo build --locked --release --bin pk3c-ccp
tests=$(cargo test --locked --release -p ccp-char --test kernel_module --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
PK3C_AGENT=$target/release/pk3c-ccp CCP_MODULE_TESTS=$tests CCP_DEBUG_KERNEL=$kernel CCP_DEBUG_MODULE=$PWD/ccp-kernel/tcp_ccp.ko \
    cargo test --locked --release -p pathlab --test guest_module -- --ignored --nocapture a_kernel_that_looks_for_faults
