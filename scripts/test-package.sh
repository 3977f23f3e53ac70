#!/bin/bash
# The Debian packages for real: installed, used, upgraded and removed in a guest with Debian 12, its kernel and systemd.
#
#   scripts/test-package.sh FOLDER   FOLDER has the packages (make deb); make test-package does both
#
# The guest's root file system is made once, with mmdebstrap (which takes root), and kept in ~/.cache/pk3c-ccp; a run
# changes nothing of it. It computes 500 million instructions per second whatever the host does, and its clock goes with
# them: times in the results are those of such a machine. scripts/test-package-guest.sh runs in it.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(realpath "${1:?usage: scripts/test-package.sh FOLDER}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pk3c-ccp/package-guest
# What a small server has, and what builds the module.
suite=bookworm
include=systemd-sysv,udev,dbus,linux-image-cloud-amd64,linux-headers-cloud-amd64,dkms,gcc,make,iperf3,iproute2,procps,kmod,libelf1,zstd
size=3G
limit_s=7200
say() { echo "test-package: $*" >&2; }
die() { say "$*" && exit 1; }

# Makes the root file system, with its kernel beside it.
make_base() { # FOLDER
    local partial=$cache/partial.$$ tree sources=/etc/apt/sources.list.d/debian.sources
    # Without that file, mmdebstrap's own: Debian's mirror.
    [ -f $sources ] || sources=
    [ "$(id -u)" -eq 0 ] || die "making the guest's root file system takes root, once"
    say "making a root file system of Debian $suite in $1 (once, some minutes)"
    tree=$partial/tree
    mkdir -p "$partial"
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$partial'" EXIT
    mmdebstrap --quiet --mode=root --variant=minbase --include=$include --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/locale/*' --aptopt='Acquire::Languages "none"' $suite "$tree" \
        $sources >&2
    cat >"$tree/etc/systemd/system/package-test.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mount -o ro /dev/vdb /mnt && exec /bin/bash /mnt/guest.sh'
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=file:/dev/ttyS1
StandardError=inherit
TimeoutStartSec=infinity
[Install]
WantedBy=multi-user.target
UNIT
    mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
    ln -s ../package-test.service "$tree/etc/systemd/system/multi-user.target.wants/package-test.service"
    # What would change files by itself, and terminals that nobody uses.
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
        getty@tty1.service serial-getty@ttyS0.service; do
        ln -sf /dev/null "$tree/etc/systemd/system/$unit"
    done
    echo guest >"$tree/etc/hostname"
    cp "$tree"/boot/vmlinuz-* "$partial/vmlinuz"
    cp "$tree"/boot/initrd.img-* "$partial/initrd"
    rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/*
    mke2fs -q -t ext4 -d "$tree" "$partial/root.ext4" $size >&2
    rm -rf "$tree"
    mv "$partial" "$1"
    trap - EXIT
}

# The base is made again when it would come out differently.
base=$cache/$suite-$(printf '%s' "$include $size $(sed -n '/^make_base/,/^}/p' "$0")" | md5sum | cut -c 1-8)
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ -d "$base" ] || make_base "$base"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
agent=$(echo "$packages"/pk3c-ccp_*.deb)
module=$(echo "$packages"/pk3c-ccp-dkms_*.deb)
if ! [ -f "$agent" ] || ! [ -f "$module" ]; then
    die "not one pk3c-ccp and one pk3c-ccp-dkms package in $packages: make deb"
fi

lintian --fail-on error,warning --tag-display-limit 0 --no-cfg "$agent" "$module" >"$work/lintian" 2>&1 || {
    cat "$work/lintian" >&2
    die "lintian has complaints"
}
echo "ok lintian has no errors and no warnings ($(lintian --version | sed 's/.* v//'))"

# The same again as the next version, for an upgrade.
dpkg-deb --raw-extract "$agent" "$work/next"
sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
mkdir "$work/disk"
dpkg-deb --root-owner-group -Zgzip -z1 --build "$work/next" "$work/disk/next.deb" >&2
cp "$agent" "$work/disk/agent.deb"
cp "$module" "$work/disk/module.deb"
cp scripts/test-package-guest.sh "$work/disk/guest.sh"
mke2fs -q -t ext4 -d "$work/disk" "$work/disk.ext4" 64M >&2

say "starting the guest"
: >"$work/results"
setpriv --pdeathsig TERM timeout --foreground $limit_s qemu-system-x86_64 \
    -accel tcg,thread=single -icount shift=1,sleep=on -smp 1 -m 2048 -cpu max,-cx16 -nodefaults -no-user-config -display none -no-reboot -snapshot \
    -drive "file=$base/root.ext4,format=raw,if=virtio" -drive "file=$work/disk.ext4,format=raw,if=virtio" \
    -device virtio-rng-pci -chardev "file,id=console,path=$work/console" -serial chardev:console \
    -chardev "file,id=results,path=$work/results" -serial chardev:results \
    -kernel "$base/vmlinuz" -initrd "$base/initrd" \
    -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.show_status=0 net.ifnames=0" &
qemu=$!
trap 'kill $qemu 2>/dev/null || true; rm -rf "$work"' EXIT
# As it comes.
tail --pid=$qemu -n +1 -s 0.5 -f "$work/results" | tr -d '\r'
wait $qemu || say "the guest ended with status $?"
if ! tr -d '\r' <"$work/results" | grep -qx 'end 0 failed'; then
    tail -n 20 "$work/console" >&2
    die "not everything is as it should be (see above)"
fi
