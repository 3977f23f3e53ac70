#!/bin/bash
# The kernel module on Debian's kernels 6.1 and 6.12, in QEMU guests; neither root nor KVM is needed.
#
#   scripts/test-module.sh short   what CI runs (under 5 minutes)
#   scripts/test-module.sh long    all of it, with cubic and bbr beside (under 20 minutes)
#   scripts/test-module.sh fetch   only the kernels and their headers
#
# The kernels' headers are fetched once with apt and kept beside the guests' kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

form=${1:-short}
case $form in
short | long | fetch) shift || true ;;
*) echo "usage: scripts/test-module.sh [short|long|fetch] [cargo test arguments]" >&2 && exit 2 ;;
esac
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pk3c-ccp/guest
target=${CARGO_TARGET_DIR:-$PWD/target}
say() { echo "test-module: $*" >&2; }

# Prints the build folder of a guest's kernel; its headers must be of the same release.
headers() { # 6.1|6.12
    local home=$cache/$1 release tree partial package
    # A guest that does nothing fetches its kernel.
    [ -d "$home" ] || echo true | "$target/release/examples/script" --kernel "$1" /dev/stdin >&2
    release=$(basename "$home"/boot/vmlinuz-*)
    release=${release#vmlinuz-}
    tree=$cache/headers-$release
    if [ ! -d "$tree" ]; then
        say "fetching the headers of Linux $release"
        partial=$(mktemp -d "$cache/partial-headers.XXXXXX")
        (
            cd "$partial"
            apt-get download -q "linux-headers-$release" >&2
            for package in $(dpkg-deb -f linux-headers-*.deb Depends | grep -oE 'linux-(headers|kbuild)-[^ ,]*'); do
                apt-get download -q "$package" >&2
            done
            for package in *.deb; do dpkg-deb --extract "$package" tree; done
            # They expect to be installed.
            for file in tree/usr/src/*/Makefile; do sed -i "s|^include /usr/src/|include $tree/usr/src/|" "$file"; done
            mv tree "$tree"
        )
        rm -rf "$partial"
    fi
    echo "$tree/usr/src/linux-headers-$release"
}

# Prints what a kernel's build has left in its folder.
build() { # 6.1|6.12
    local kdir
    kdir=$(headers "$1")
    # 6.12's headers have a vmlinux, but pahole may be missing here; types of the module are not needed.
    make -s -C ccp-kernel KDIR="$kdir" CONFIG_DEBUG_INFO_BTF_MODULES= all plain >&2
    echo "$PWD/ccp-kernel/build/${kdir##*/linux-headers-}"
}

cargo build --locked --release -p pathlab --example script
if [ "$form" = fetch ]; then
    for kernel in 6.1 6.12; do headers $kernel; done
    exit
fi
cargo build --locked --release --bin pk3c-ccp
tests=$(cargo test --locked --release -p ccp-char --test kernel_module --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
modules='' plain=''
for kernel in 6.1 6.12; do
    built=$(build $kernel)
    modules=$modules:$kernel=$built/tcp_ccp.ko
    plain=$plain:$kernel=$built/plain/ccp_plain.ko
done
checkpatch=$(find /usr/src/linux-* "$cache/debug-source" -path '*/scripts/checkpatch.pl' -print -quit 2>/dev/null || true)
if [ -n "$checkpatch" ]; then
    # A module outside the kernel has to know its version; the lists of counters are macros that take a macro.
    perl "$checkpatch" --no-tree --terse --quiet --no-summary --strict --max-line-length=100 \
        --ignore LINUX_VERSION_CODE,CONSTANT_COMPARISON,COMPLEX_MACRO,MACRO_ARG_REUSE,TRAILING_SEMICOLON \
        --ignore CAMELCASE,PREFER_KERNEL_TYPES,BIT_MACRO,BRACKET_SPACE,SPDX_LICENSE_TAG \
        -f ccp-kernel/*.[ch] ccp-kernel/tests/plain/*.[ch]
else
    echo "SKIPPED checkpatch: no checkpatch.pl here (make test-kernel-debug fetches the kernel's sources, which have it)"
fi
PK3C_AGENT=$target/release/pk3c-ccp CCP_MODULE_TESTS=$tests CCP_FORM=$form \
    CCP_MODULES=${modules#:} CCP_PLAIN_MODULES=${plain#:} \
    cargo test --locked --release -p pathlab --test guest_module -- --ignored --nocapture --test-threads=1 "$@"
