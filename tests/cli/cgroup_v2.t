#!/bin/sh
# budget: 25 CPU-seconds
# timeout: 400
# The kernel's memory limits where this machine's own cgroups have no memory controller of version 2: user-mode Linux
# (`linux.uml`, Debian's user-mode-linux; WW_UML: its path) boots on our files, read-only, as an ordinary process, and
# runs the sandbox's test and doctor there.
uml=${WW_UML:-$(command -v linux.uml)}
bin=$(cd "$(dirname "$WARPWRIGHT")" && pwd)
[ -x "$uml" ] || { echo "1..0 # SKIP no user-mode Linux"; exit 0; }
[ -x "$bin/tests/sandbox_test_sandbox" ] || { echo "1..0 # SKIP the sandbox's test is not built"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cat > "$dir/init" <<EOF
#!/bin/sh
mount -t proc proc /proc
mount -t tmpfs tmpfs /tmp
mount -t sysfs sys /sys
mount -t cgroup2 none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
echo +pids > /sys/fs/cgroup/cgroup.subtree_control
export WARPWRIGHT=$bin/warpwright WW_SOURCE_DIR=$WW_SOURCE_DIR WARPWRIGHT_HOME=$WARPWRIGHT_HOME HOME=/tmp
export XDG_CACHE_HOME=/tmp/cache PATH=/usr/sbin:/usr/bin:/sbin:/bin
$bin/tests/sandbox_test_sandbox 2>&1 | grep -E 'hidden_memory|counts_processes'
$bin/warpwright doctor 2>&1 | grep ' sandbox '
ls /sys/fs/cgroup | sed -n 's/^warpwright-/left: &/p'
echo o > /proc/sysrq-trigger
sleep 60
EOF
chmod +x "$dir/init"
TMPDIR=$dir timeout 380 "$uml" mem=1500M root=/dev/root rootfstype=hostfs rootflags=/ ro init="$dir/init" con=null \
	con0=null,fd:1 quiet > "$dir/out" 2>&1 < /dev/null
n=0
line() { # text, exit code
	n=$((n + 1))
	[ "$2" = 0 ] && echo "ok $n - $1" || { echo "not ok $n - $1"; sed 's/^/# /' "$dir/out" | tail -40; }
}
grep -q ' OK \] the_kernel_holds_hidden_memory' "$dir/out"
line "shared pages that were given back fall under the limit of a group, and no group is left" $?
grep -q ' OK \] the_kernel_counts_processes' "$dir/out"
line "a fork beyond the limit of a group fails" $?
grep -q 'memory limits by the kernel (cgroup v2)' "$dir/out"
line "doctor says so" $?
! grep -q '^left: ' "$dir/out"
line "nothing is left of a group" $?
echo "1..$n"
