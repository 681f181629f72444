"""Drop the privileges of a candidate's process by plain system calls: namespaces, mounts, capabilities, limits,
filter.

The private root was made before Python started (src/judge/forms/launch.c); what is left for each candidate: its own
/proc and /tmp, no GPU if it only builds, and the capabilities.  The system-call filter's program is passed by launch.c,
too, as bytes.
"""

import contextlib
import ctypes
import glob
import os
import re
import resource
import socket
import stat
import struct

NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x40000000  # mount, uts, ipc, net
NEW_PIDS = 0x20000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND = 1, 2, 4, 8, 32, 4096
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 24, 28, 38
SECURE_ALL_LOCKED = 0x2F
SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 317, 1, 1  # x86-64
PR_SET_DUMPABLE, NEW_USER = 4, 0x10000000
TMP_BYTES, FILE_BYTES, FILES = 4 << 30, 2 << 30, 4096


# A filter written by hand: no process may leave the process group, since the judge stops the group
# (src/judge/forms/candidate.c).  Builds may: ninja gives each compiler a group.  The main filter handles other
# architectures.
SYS_SETPGID, SYS_SETSID, EPERM = 109, 112, 1
ONE_GROUP = b"".join(struct.pack("<HBBI", *op) for op in (
    (0x20, 0, 0, 0),  # load the call's number
    (0x15, 1, 0, SYS_SETPGID), (0x15, 0, 1, SYS_SETSID), (0x06, 0, 0, 0x00050000 | EPERM),
    (0x06, 0, 0, 0x7FFF0000)))

libc = ctypes.CDLL(None, use_errno=True)


def check(rc, what):
    if rc < 0:
        e = ctypes.get_errno()
        raise OSError(e, f"{what}: {os.strerror(e)}")


def new_namespaces():
    check(libc.unshare(NEW_NAMESPACES), "unshare")


def fork_into_new_pids(own):
    """os.fork(); the child is process 1 of a pid namespace.  own: a descriptor of this process's pid namespace, to
    which the process returns before the next fork."""
    check(libc.unshare(NEW_PIDS), "unshare")
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            check(libc.setns(own, NEW_PIDS), "setns")
    return pid


def mount(source, target, kind, flags, data=None):
    check(libc.mount(os.fsencode(source), os.fsencode(target), kind and kind.encode(), ctypes.c_ulong(flags),
                     data and data.encode()),
          f"mount {target}")


def keep_only(sock):
    """Close every descriptor but 0, 1, 2 and the socket, which becomes 3."""
    os.dup2(sock, 3, inheritable=False)
    os.closerange(4, 65536)
    return 3


def drop_capabilities():
    for cap in range(64):
        if libc.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0:
            break
    libc.prctl(PR_SET_SECUREBITS, SECURE_ALL_LOCKED, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def limit(what, value):
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def limit_data(nbytes):
    """Limit private memory by the kernel, which needs no watching; not with CUDA, which reserves far more than it
    uses."""
    limit(resource.RLIMIT_DATA, nbytes)


def mounts_below(directory):
    """Mount points below a path, outer ones first."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        paths = [re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), line.split(" ")[4]) for line in f]
    return [p for p in paths if p.startswith(directory + "/")]


def further_users():
    """(first, number) of the users that this process may become (src/sandbox/proc.h), or None."""
    with open("/proc/self/uid_map", encoding="ascii") as f:
        rows = [[int(x) for x in line.split()] for line in f]
    return next(((first, n) for first, _, n in rows if first), None)


def all_may_use(paths):
    """Whether another user than root may read the files, and what leads to them; of devices, write, too."""
    for path in map(os.path.realpath, paths):
        mode = os.stat(path).st_mode
        if ~mode & (6 if stat.S_ISCHR(mode) else 4):
            return False
        while (path := os.path.dirname(path)) not in ("/", "/tmp"):  # /tmp will be its own
            if not os.stat(path).st_mode & 1:
                return False
    return True


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def own_user(user):
    """Root of a user namespace of its own, in which it is alone: the kernel counts processes by user and namespace.

    Root outside has no limit, so where this process may become others (`user`: which; else 0) it becomes one; before
    Linux 5.14 and under gVisor users are counted all over the machine, so each candidate becomes another."""
    gid = os.getgid()
    if user:
        os.setresuid(user, user, user)
    check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")  # else /proc/self is root's
    check(libc.unshare(NEW_USER), "unshare")
    with contextlib.suppress(FileNotFoundError):  # gVisor has none
        write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"0 {user} 1")
    write("/proc/self/gid_map", f"0 {gid} 1")


def counts_by_namespace():
    """Whether the kernel counts a user's processes in each namespace by itself."""
    return tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups())) >= (5, 14)


def private_tmp(size=TMP_BYTES, entries=0, user=0):
    """A /tmp of its own.  Mounts of the private root below /tmp (a checkout or an interpreter may lie there) are
    mounted in it again, read-only."""
    held = [(path, os.open(path, os.O_PATH)) for path in mounts_below("/tmp")]
    mount("tmpfs", "/tmp", "tmpfs", NOSUID | NODEV, f"mode=0700,size={size}"
          + (f",nr_inodes={entries}" if entries else "") + (f",uid={user}" if user else ""))
    for path, fd in held:
        source = f"/proc/self/fd/{fd}"
        os.makedirs(path if os.path.isdir(source) else os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        mount(source, path, None, BIND)
        os.close(fd)


def own_proc():
    """A /proc of its own.  The machine's settings in it are read-only (as in src/sandbox/sandbox.c): root could change
    them without a capability."""
    mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
    for path in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"):
        path = "/proc/" + path
        if os.path.exists(path):
            mount(path, path, None, BIND)
            mount("", path, None, REMOUNT | BIND | RDONLY | NOSUID | NODEV | NOEXEC)


def enter(gpu, tasks, user):
    """tasks: the most processes and threads; user: as own_user() has it."""
    os.umask(0o022)  # what leads to mounts below /tmp is that user's to pass
    own_proc()
    private_tmp(user=user)
    if not gpu:
        for device in glob.glob("/dev/nvidia*"):
            if not os.path.isdir(device):
                mount("/dev/null", device, None, BIND)
    own_user(user)
    os.chdir("/tmp")
    drop_capabilities()
    for what, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, FILE_BYTES),
                        (resource.RLIMIT_NOFILE, FILES)):
        limit(what, value)
    # Behind own_user(): a namespace's maker passes its own limit on to all that it makes.
    if user or counts_by_namespace():
        limit(resource.RLIMIT_NPROC, tasks)


def enter_as_worker(q):
    """Enter the sandbox that src/task/confined.c makes for a reference worker that is not forked."""
    own_proc()
    private_tmp("4g", 1 << 16)
    if os.path.isdir("/dev/shm"):
        mount("tmpfs", "/dev/shm", "tmpfs", NOSUID | NODEV, "mode=0700,size=64m,nr_inodes=4096")
    only_cache(q["caches"], q["cache"])
    os.chdir("/tmp")
    drop_capabilities()
    for what, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, TMP_BYTES), (resource.RLIMIT_NOFILE, FILES)):
        limit(what, value)


def only_cache(caches, own):
    """Hide all directories in `caches` but `own` ("": hide all)."""
    held = os.open(own, os.O_PATH) if own else -1
    mount("tmpfs", caches, "tmpfs", NOSUID | NODEV, "mode=0755,size=64k")
    if own:
        os.makedirs(own)
        mount(f"/proc/self/fd/{held}", own, None, BIND)
        os.close(held)
    mount("", caches, None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)


def say_hello(fd):
    """Send a byte whose credentials tell the judge this process's id."""
    with socket.socket(fileno=os.dup(fd)) as s:
        s.sendall(b"H")


def load_filter(program):
    class Prog(ctypes.Structure):
        _fields_ = [("n", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    prog = Prog(len(program) // 8, program)
    check(libc.syscall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(prog)), "seccomp")
