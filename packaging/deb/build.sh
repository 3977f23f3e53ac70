#!/bin/bash
# Builds the Debian packages: packaging/deb/build.sh FOLDER. The program must be built; `make deb` does both.
#
#   pk3c-ccp_VERSION_ARCHITECTURE.deb   the agent
#   pk3c-ccp-dkms_VERSION_all.deb       the kernel module's sources, with libccp's, for DKMS
#
# It needs dpkg-dev, binutils and cargo, no root. Times in the packages are the changelog's.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$(realpath -m "${1:?usage: packaging/deb/build.sh FOLDER}")
source=packaging/deb
die() { echo "deb: $*" >&2 && exit 1; }
for tool in dpkg-deb dpkg-shlibdeps strip; do
    command -v $tool >/dev/null || die "no '$tool' here: apt-get install dpkg-dev binutils"
done

version=$(dpkg-parsechangelog -l $source/changelog -S Version)
grep -qx "version = \"$version\"" Cargo.toml || die "$source/changelog says $version, Cargo.toml another version"
if ! grep -qx "CCP_VERSION := $version" ccp-kernel/Makefile ||
    ! grep -qx "PACKAGE_VERSION=\"$version\"" ccp-kernel/dkms.conf; then
    die "the kernel module's version (ccp-kernel/Makefile, dkms.conf) is not $version"
fi
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -l $source/changelog -S Timestamp)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$out"

# A licence as a paragraph of a copyright file: indented, with dots for empty lines.
paragraph() { # NAME FILE
    printf 'License: %s\n' "$1"
    sed 's/[[:space:]]*$//; s/^$/./; s/^/ /' "$2"
}
licences() {
    # shellcheck disable=SC2016 # the path is Debian's
    printf 'License: GPL-2 or BSD-3-Clause\n %s\n %s\n .\n The BSD licence:\n .\n' \
        'At your choice, the GNU General Public License, version 2, which Debian systems' \
        'have in /usr/share/common-licenses/GPL-2, or the BSD licence.'
    sed 's/[[:space:]]*$//; s/^$/./; s/^/ /' LICENSE-BSD-3-Clause
}

# The licences and notices of the libraries that the program is linked with.
third_party() {
    local name crate licence folder notices
    cargo tree --locked --edges normal --prefix none --format '{p}|{l}' | sed 's/ (\*)$//' | sort -u |
        grep -v '(/' | while IFS='|' read -r name licence; do
        crate=${name// v/-}
        crate=${crate%% *}
        printf '%s: %s\n' "$crate" "$licence"
        for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate"; do
            notices=$(find "$folder" -maxdepth 1 -type f \
                \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' \) | sort)
            for notice in $notices; do printf '\n' && cat "$notice"; done
        done
        printf '\n%s\n' '------------------------------------------------------------------------'
    done
}

# Makes a package of a tree: control file, scripts, checksums.
finish() { # PACKAGE
    local tree=$work/$1 doc=$work/$1/usr/share/doc/$1 script
    install -d "$doc" "$tree/DEBIAN"
    gzip -9n <$source/changelog >"$doc/changelog.gz"
    licences >"$work/licences"
    paragraph ISC "$work/pk3c-ccp-dkms/usr/src/tcp_ccp-$version/libccp/LICENSE.md" >"$work/isc"
    sed -e "s/@VERSION@/$version/" -e "/@LICENCES@/{r $work/licences
        d}" -e "/@ISC@/{r $work/isc
        d}" "$source/$1/copyright" >"$doc/copyright"
    for script in postinst prerm postrm conffiles; do
        [ -f "$source/$1/$script" ] || continue
        sed "s/@VERSION@/$version/g" "$source/$1/$script" >"$tree/DEBIAN/$script"
        [ $script = conffiles ] || chmod 755 "$tree/DEBIAN/$script"
    done
    (cd "$tree" && find . -type f -not -path './DEBIAN/*' -printf '%P\n' | sort | xargs md5sum) >"$tree/DEBIAN/md5sums"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@DEPENDS@/${depends:-}/" \
        -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$tree" | cut -f 1)/" "$source/$1/control" >"$tree/DEBIAN/control"
    find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$out" >&2
}

make --no-print-directory -s -C ccp-kernel dkms-tree DESTDIR="$work/pk3c-ccp-dkms"
chmod -R u=rwX,go=rX "$work/pk3c-ccp-dkms"
find "$work/pk3c-ccp-dkms/usr/src" -type f -not -name '*.sh' -exec chmod 644 {} +

agent=$work/pk3c-ccp
make --no-print-directory -s install DESTDIR="$agent" >&2
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$agent/usr/bin/pk3c-ccp"
gzip -9n "$agent"/usr/share/man/man1/*.1
install -D -m 644 $source/pk3c-ccp/lintian-overrides "$agent/usr/share/lintian/overrides/pk3c-ccp"
third_party | gzip -9n >"$agent/usr/share/doc/pk3c-ccp/third-party.gz"

# dpkg-shlibdeps reads the names of packages from a source's control file.
mkdir -p "$work/debian"
printf 'Source: pk3c-ccp\n\nPackage: pk3c-ccp\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O pk3c-ccp/usr/bin/pk3c-ccp | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || die "dpkg-shlibdeps knows no package for the program's libraries"

finish pk3c-ccp-dkms
finish pk3c-ccp
