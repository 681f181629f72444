"""Run a function in a process forked from the worker: whatever a task does there (patches PyTorch, exits, hangs, forks)
ends with that process, and the worker is unchanged for the next task.  A fork takes milliseconds, starting a worker
with PyTorch seconds.

The worker itself must not have computed anything before: threads do not survive a fork."""

import ctypes
import json
import mmap
import os
import resource
import select
import signal
import struct
import time

from . import Refuse, one_line

MAX_ANSWER = 12 << 20
LOOK_S = 0.05


def apart(call, seconds, memory_bytes):
    """The JSON that call() returns in the forked process.  Raises Refuse "task" for an error, an exit without an
    answer, or a timeout."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        child(call, writer, memory_bytes)
    os.close(writer)
    try:
        answer = receive(reader, pid, time.monotonic() + seconds)
    finally:
        os.close(reader)
        end(pid)
    if answer is None:
        raise Refuse("task", f"it gave no answer within {seconds:g} s")
    try:
        answer = json.loads(answer)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Refuse("task", "it ended the process that ran it")
    if "refused" in answer:
        raise Refuse("task", str(answer["refused"]))
    return answer


def child(call, writer, memory_bytes):
    status = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        limit_data(memory_bytes)
        try:
            answer = call()
        except Refuse as e:
            answer = {"refused": str(e)}
        except BaseException as e:  # a task may raise anything, SystemExit too
            answer = {"refused": f"{type(e).__name__}: {one_line(e, 300)}"}
        data = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
        data = struct.pack("<I", len(data)) + data
        while data:
            data = data[os.write(writer, data):]
        status = 0
    finally:
        os._exit(status)


def limit_data(more):
    now = data_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = now + more if hard == resource.RLIM_INFINITY else min(hard, now + more)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def data_bytes():
    """What RLIMIT_DATA counts of this process: the least limit at which a page more can be mapped, less that page.  A
    sandbox of Landlock alone shows no /proc, which would say it."""
    page, libc, failed = resource.getpagesize(), ctypes.CDLL(None), ctypes.c_void_p(-1).value
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_long] * 5]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_long]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    low, high = 0, (1 << 47 if hard == resource.RLIM_INFINITY else hard) // page
    while high - low > 1:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_DATA, (middle * page, hard))
        at = libc.mmap(None, page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if at == failed:
            low = middle
        else:
            libc.munmap(at, page)
            high = middle
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    return low * page


def receive(fd, pid, deadline):
    """The answer's bytes; b"" if the process gave none; None on a timeout."""
    data, ended = b"", False
    while len(data) < 4 or len(data) < 4 + struct.unpack("<I", data[:4])[0] <= MAX_ANSWER:
        if select.select([fd], [], [], 0 if ended else LOOK_S)[0]:
            part = os.read(fd, 1 << 16)
            if not part:
                return b""
            data += part
        elif ended:
            return b""
        elif time.monotonic() > deadline:
            return None
        else:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return data[4:]


def end(pid):
    for kill, which in ((os.killpg, pid), (os.kill, pid)):
        try:
            kill(which, signal.SIGKILL)
        except OSError:
            pass
    os.waitpid(pid, 0)
