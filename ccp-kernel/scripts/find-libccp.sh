#!/bin/sh
# Prints the folder with libccp's C sources: $LIBCCP_DIR, ./libccp, or the one of the libccp crate that
# this workspace depends on (cargo fetches and checks it). SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
die() {
    echo "tcp_ccp: $*" >&2
    exit 1
}
whole() {
    for file in ccp.c ccp_priv.c machine.c serialize.c ccp.h; do [ -f "$1/$file" ] || return 1; done
}

if [ -n "${LIBCCP_DIR:-}" ]; then
    whole "$LIBCCP_DIR" || die "no libccp in LIBCCP_DIR=$LIBCCP_DIR: give the folder that has ccp.c (https://github.com/ccp-project/libccp)"
    cd "$LIBCCP_DIR" && pwd
    exit
fi
if whole "$here/libccp"; then
    echo "$here/libccp"
    exit
fi
remedy="install rustup (https://rustup.rs), or give LIBCCP_DIR=FOLDER with the sources of libccp 1.2 (https://github.com/ccp-project/libccp)"
PATH=$PATH:${HOME:-/root}/.cargo/bin
command -v cargo >/dev/null 2>&1 || die "libccp's sources come through cargo, and there is no cargo: $remedy"
metadata=$(cargo metadata --locked --format-version 1 --manifest-path "$here/../Cargo.toml") ||
    die "cargo cannot say where libccp is (see above): $remedy"
manifest=$(printf '%s' "$metadata" | grep -o '"manifest_path":"[^"]*/libccp-[0-9.]*/Cargo.toml"' | head -n 1 | cut -d '"' -f 4)
[ -n "$manifest" ] || die "the workspace does not depend on libccp any more: $remedy"
folder=$(dirname "$manifest")/libccp
whole "$folder" || die "no C sources in $folder: run 'cargo fetch', or $remedy"
echo "$folder"
