#!/bin/bash
# What scripts/test-package.sh runs in its guest, from a disk at /mnt: one line per finding, then `end N failed`.
set -uo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin

unit=pk3c-ccp.service
here=$(mktemp -d /run/package-test.XXXXXX)
failed=0
ok() { echo "ok $*"; }
bad() {
    echo "FAILED $*"
    failed=$((failed + 1))
}
# Runs a command quietly; its output is shown if it fails.
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$here/output" 2>&1; then ok "$what"; else
        bad "$what: $*"
        sed 's/^/    /' "$here/output" | tail -n 15
    fi
}
equal() { # WHAT FOUND WANTED
    if [ "$2" = "$3" ]; then ok "$1: $2"; else bad "$1: found $2, wanted $3"; fi
}
not() { ! "$@"; }
now() { cut -d ' ' -f 1 /proc/uptime; }
since() { awk -v from="$1" '{ printf "%.1f", $1 - from }' /proc/uptime; }
# Waits until a command succeeds.
until_true() { # SECONDS COMMAND...
    local from limit=$1
    from=$(now)
    shift
    until "$@" >/dev/null 2>&1; do
        awk -v from="$from" -v limit="$limit" '{ exit !($1 - from > limit) }' /proc/uptime && return 1
        sleep 0.1
    done
}

sysctls() { sysctl net.ipv4.tcp_congestion_control net.ipv4.tcp_available_congestion_control net.ipv4.tcp_wmem \
    net.ipv4.tcp_rmem net.core.wmem_max net.core.rmem_max net.core.default_qdisc; }
# Everything that a package could leave; dpkg's own records, logs, caches and the modules' index are not its.
machine() {
    find / -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/apt \
        -o -path /tmp -o -path /mnt -o -path /var/lib/systemd/timers -o -name 'modules.*' -path '/usr/lib/modules/*' \) -prune \
        -o -printf '%p %y %m %u %l\n' | sort
    find /etc -type f -exec md5sum {} + | sort -k 2
    find /run /dev/shm -xdev \( -path /run/udev -o -path /run/systemd -o -path /run/log -o -path "$here" \
        -o -name 'dmeventd*' \) -prune -o -printf '%p\n' | sort
    find /sys/fs/bpf | sort
    systemctl list-unit-files --no-legend --no-pager | awk '{ print "unit", $1, $2 }'
    systemctl --failed --no-legend --no-pager
    sysctls
    pgrep -a pk3c-ccp
    lsmod | awk '/ccp/ { print "module", $1 }'
}

complaints() {
    dmesg --level=emerg,alert,crit,err
    dmesg | grep -E 'BUG:|WARNING:|Oops'
}

pid() { systemctl show --property MainPID --value $unit; }
flows() { pk3c-ccp status --json; }
driven() { flows | grep -q '"state":"driven"'; }
driven_by_another() { [ "$(pid)" != "$1" ] && driven; }
available() { grep -qw pk3c /proc/sys/net/ipv4/tcp_available_congestion_control; }
pins() { find /sys/fs/bpf -mindepth 1 | wc -l; }
# Of the test's connection (the one of two to iperf3 that has sent most), its congestion control and its bytes.
connection() {
    ss -tinOH dst 10.9.0.2:5201 | awk '{
        bytes = 0
        for (i = 1; i <= NF; i++) {
            if ($i ~ /^bytes_acked:/) bytes = substr($i, 13) + 0
            if ($i ~ /^(pk3c|cubic|reno|bbr)$/) control = $i
        }
        if (bytes >= most) { most = bytes; best = control }
    } END { print best, most + 0 }'
}
chosen() { connection | cut -d ' ' -f 1; }
acked() { connection | cut -d ' ' -f 2; }
# Whether bytes arrive.
flowing() {
    local before
    before=$(acked)
    sleep 1
    [ "$(acked)" -gt $((before + 100000)) ]
}
send() { # SECONDS, in the background
    iperf3 -c 10.9.0.2 -C "${2:-pk3c}" -t "$1" -J >"$here/iperf.json" 2>&1 &
    sender=$!
}
stop_sending() {
    kill $sender 2>/dev/null
    wait $sender 2>/dev/null
    sleep 2
}

ip netns add far
ip link add near0 type veth peer name far0 netns far
ip address add 10.9.0.1/24 dev near0
ip link set near0 up
ip -n far address add 10.9.0.2/24 dev far0
ip -n far link set far0 up
tc qdisc add dev near0 root netem delay 20ms rate 20mbit limit 200
ip netns exec far iperf3 -s >/dev/null &
server=$!
modprobe tcp_bbr
sleep 1
machine >"$here/before"
complaints >"$here/complaints"
echo "Debian $(cat /etc/debian_version), Linux $(uname -r), systemd $(systemctl --version | awk 'NR == 1 { print $2 }')"

# --- Installed and used
start=$(now)
check "dpkg -i installs the agent" dpkg -i /mnt/agent.deb
ok "installed after $(since "$start") s"
equal "the service" "$(systemctl is-active $unit), $(systemctl is-enabled $unit)" "active, enabled"
send 600
until_true 60 driven && took=$(since "$start") || took=never
if [ "$took" != never ] && awk -v took="$took" 'BEGIN { exit !(took < 60) }'; then
    ok "first PK3C flow driven $took s after the start of dpkg -i"
else
    bad "first PK3C flow driven $took s after the start of dpkg -i"
fi
check "status --json tells of it" driven
equal "its congestion control" "$(chosen)" pk3c
equal "the system's congestion control" "$(sysctl -n net.ipv4.tcp_congestion_control)" cubic
check "doctor finds no failure" pk3c-ccp doctor
check "manual pages and completions are there" test -s /usr/share/man/man1/pk3c-ccp-run.1.gz \
    -a -s /usr/share/bash-completion/completions/pk3c-ccp -a -s /usr/share/doc/pk3c-ccp/copyright

# --- Configuration
cp /etc/pk3c-ccp/config.toml "$here/config.toml"
echo 'max-rate = "9mbit"' >>/etc/pk3c-ccp/config.toml
check "systemctl reload" systemctl reload $unit
check "the reload took effect" eval "until_true 5 eval 'pk3c-ccp set | grep -E \"max-rate.*9mbit\"'"
echo 'max-rat = "8mbit"' >>/etc/pk3c-ccp/config.toml
systemctl reload $unit
sleep 1
check "a bad file changes nothing" eval "pk3c-ccp set | grep -E 'max-rate.*9mbit' && driven"
cp "$here/config.toml" /etc/pk3c-ccp/config.toml
systemctl reload $unit

# --- What the unit promises
field() { awk -v name="$1:" '$1 == name { print $2 }' "$2"; }
of_threads() { for task in /proc/"$(pid)"/task/*; do field "$1" "$task/status"; done | sort | uniq -c | xargs; }
threads=$(find /proc/"$(pid)"/task -mindepth 1 -maxdepth 1 | wc -l)
# CAP_NET_ADMIN is bit 12; the bounding set has CAP_PERFMON (38) and CAP_BPF (39) besides.
equal "effective capabilities, one thread has CAP_NET_ADMIN" "$(of_threads CapEff)" \
    "$((threads - 1)) 0000000000000000 1 0000000000001000"
equal "bounding set" "$(of_threads CapBnd)" "$threads 000000c000001000"
equal "no new privileges, system calls filtered" "$(of_threads NoNewPrivs), $(of_threads Seccomp)" \
    "$threads 1, $threads 2"
inside() { nsenter --mount --target "$(pid)" "$@"; }
check "the agent sees /usr read-only" not inside touch /usr/trace
check "the agent sees nothing in /root" not inside ls /root/.profile
writable() { for file in "$@"; do inside test -w "$file" && echo "$file"; done | xargs; }
equal "what the agent can write of the kernel" "$(writable /proc/sys/kernel/core_pattern /proc/sysrq-trigger \
    /sys/kernel/uevent_seqnum /sys/power/state /sys/kernel/mm/transparent_hugepage/enabled /sys/fs/bpf \
    /proc/sys/net/ipv4/tcp_congestion_control)" "/sys/fs/bpf /proc/sys/net/ipv4/tcp_congestion_control"
ok "systemd-analyze security: $(systemd-analyze security --no-pager $unit | tail -n 1 | sed 's/^[^A-Za-z]*//')"

# --- Things go wrong
old=$(pid)
kill -KILL "$old"
check "killed: restarted, the same flow driven again" until_true 20 driven_by_another "$old"
equal "its congestion control" "$(chosen)" pk3c
old=$(pid)
stopped=$(now)
kill -STOP "$old"
if until_true 60 driven_by_another "$old"; then
    ok "hung: the watchdog exchanged it, the same flow driven again after $(since "$stopped") s"
else bad "hung: not exchanged by the watchdog"; fi

# --- Upgraded under load
old=$(pid)
from=$(now)
check "dpkg -i upgrades under load" dpkg -i /mnt/next.deb
check "the new agent drives the same flow" until_true 20 driven_by_another "$old"
ok "upgraded after $(since "$from") s"
equal "its congestion control" "$(chosen)" pk3c
check "the old agent left the datapath in place" eval \
    "journalctl --no-pager -u $unit | grep -q 'stays and waits for the next agent'"
check "still enabled" systemctl --quiet is-enabled $unit
old=$(pid)
systemctl --quiet disable $unit
check "dpkg -i upgrades a disabled agent that runs" dpkg -i /mnt/next.deb
check "the new agent drives the same flow" until_true 20 driven_by_another "$old"
check "still disabled" not systemctl --quiet is-enabled $unit
systemctl --quiet enable $unit

# --- Restarted
old=$(pid)
check "systemctl restart" systemctl restart $unit
check "the new agent drives the same flow" until_true 20 driven_by_another "$old"

# --- The kernel's settings
sysctls >"$here/sysctls"
check "tune shows what it wants" eval "pk3c-ccp tune | grep 'change  net.ipv4.tcp_wmem'"
check "tune --apply without root fails" not setpriv --reuid 65534 --regid 65534 --clear-groups pk3c-ccp tune --apply
check "and changes nothing" eval "sysctls | cmp - $here/sysctls"
check "tune --apply, twice" eval "pk3c-ccp tune --apply && pk3c-ccp tune --apply"
equal "net.ipv4.tcp_wmem" "$(sysctl -n net.ipv4.tcp_wmem | xargs)" "4096 16384 33554432"
equal "net.core.default_qdisc" "$(sysctl -n net.core.default_qdisc)" fq
check "tune --revert" pk3c-ccp tune --revert
check "all settings are exactly as before" eval "sysctls | cmp - $here/sysctls"

# --- Stopped
check "systemctl stop" systemctl stop $unit
equal "pins after the stop" "$(pins)" 0
check "the name is gone" not available
check "the connection goes on" flowing
echo 'default = true' >>/etc/pk3c-ccp/config.toml
check "started with default = true" systemctl start $unit
equal "the system's congestion control" "$(sysctl -n net.ipv4.tcp_congestion_control)" pk3c
check "stopped" systemctl stop $unit
equal "the system's congestion control" "$(sysctl -n net.ipv4.tcp_congestion_control)" cubic
stop_sending

# --- Removed while in use
systemctl start $unit
pk3c-ccp tune --apply >/dev/null
send 600
check "in use again" until_true 20 driven
echo 'control = "none"' >>/etc/pk3c-ccp/config.toml
check "restarted without a control socket" systemctl restart $unit
sleep 2
equal "its congestion control" "$(chosen)" pk3c
check "apt-get remove, under load" apt-get remove -y pk3c-ccp
equal "the connection's congestion control" "$(chosen)" cubic
check "the connection goes on" flowing
equal "the system's congestion control" "$(sysctl -n net.ipv4.tcp_congestion_control)" cubic
# But for the name, which the agent had registered when they were noted.
check "the settings are as before" eval "diff <(grep -v available_ $here/sysctls) <(sysctls | grep -v available_)"
equal "pins" "$(pins)" 0
check "no process" not pgrep pk3c-ccp
check "dpkg -P" dpkg -P pk3c-ccp
stop_sending
machine >"$here/after"
if diff "$here/before" "$here/after" >"$here/output"; then
    ok "purged: nothing is left of files, units, users, settings, pins, processes ($(wc -l <"$here/before") things compared)"
else
    bad "something is left:"
    sed 's/^/    /' "$here/output" | head -n 40
fi

# --- The module
from=$(now)
check "dpkg -i installs pk3c-ccp-dkms, which builds the module" dpkg -i /mnt/module.deb
ok "built after $(since "$from") s: $(dkms status tcp_ccp | head -n 1)"
check "the module loads" modprobe tcp_ccp
check "the agent again" dpkg -i /mnt/agent.deb
check "it uses the module" eval "journalctl --no-pager -u $unit -n 20 | grep 'datapath=\"Module\"'"
send 60
check "a flow through the module is driven" until_true 30 driven
equal "its congestion control" "$(chosen)" pk3c
stop_sending
check "dpkg -P of the agent" dpkg -P pk3c-ccp
check "dpkg -P of the module" dpkg -P pk3c-ccp-dkms
machine >"$here/after"
if diff "$here/before" "$here/after" >"$here/output"; then
    ok "purged: nothing is left, the module is unloaded"
else
    bad "something is left:"
    sed 's/^/    /' "$here/output" | head -n 40
fi
complaints >"$here/complaints.after"
check "the kernel has no complaints" diff "$here/complaints" "$here/complaints.after"
kill $server
rm -rf "$here"
echo "end $failed failed"
