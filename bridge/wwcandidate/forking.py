"""Forks processes into namespaces of their own and reports how they end.

Each order is a frame on descriptor 3 with three descriptors of the new process's: its socket, its log, its status pipe.
The process is the first of a pid namespace, so its end is the end of all that it started; it makes its other namespaces
itself.  One fork makes it, since a fork copies the page tables of PyTorch, 10 ms and more.  How it ended is written to
the status pipe here, by the only process that can know it, as struct ww_job_end (src/sandbox/zygote.h).

This process ends when its socket does, and with it, as the first of its pid namespace, every process that it has
forked. Nothing from them is ever read here."""

import os
import select
import signal
import struct

from . import confine

EXITED, SIGNALED = 1, 2
CONTROL_FD, FILTER_FD = 3, 4


def read_all(fd):
    out = b""
    while part := os.pread(fd, 1 << 16, len(out)):
        out += part
    os.close(fd)
    return out


class Forker:
    def __init__(self, control, become, ready=None):
        """become(order, socket): what the new process does, its log in place; it returns the exit code. ready(): the
        answer to an order without descriptors; if given, each fork is answered with a pidfd."""
        self.control, self.become, self.ready = control, become, ready
        self.children = {}  # pid: status descriptor
        self.own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def fork(self, q, fds):
        sock, log, status = fds
        try:
            pid = confine.fork_into_new_pids(self.own_pids)
        except OSError as e:
            print(e, flush=True)
            pid = None
        if pid == 0:
            self.start(q, sock, log)
        for fd in (sock, log):
            os.close(fd)
        if pid:
            self.children[pid] = status
        else:
            os.close(status)
        if self.ready:
            self.tell(pid)

    def tell(self, pid):
        if not pid:
            return self.control.send({"ok": False, "error": "no namespaces for a process"})
        fd = os.pidfd_open(pid)
        self.control.send({"ok": True}, [fd])
        os.close(fd)

    def start(self, q, sock, log):
        """Runs in the new process; does not return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for sig in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(sig, signal.SIG_DFL)
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            confine.new_namespaces()
            code = self.become(q, sock)
        except BaseException as e:  # the new process must not continue as the forking one
            print(f"{type(e).__name__}: {e}", flush=True)
        finally:
            os._exit(code)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            fd = self.children.pop(pid, None)
            if fd is None:
                continue
            how = (SIGNALED, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (EXITED, os.WEXITSTATUS(status))
            try:
                os.write(fd, struct.pack("<Ii", *how))
            except OSError:
                pass
            os.close(fd)

    def serve(self):
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.control.send({"ok": True})
        while True:
            ready, _, _ = select.select([self.control.sock, woken], [], [])
            if woken in ready:
                try:
                    os.read(woken, 4096)
                except BlockingIOError:
                    pass
            self.reap()
            if self.control.sock in ready:
                try:
                    q, fds = self.control.receive()
                except (EOFError, OSError, ValueError):
                    return
                if self.ready and not fds:
                    self.control.send(self.ready())
                else:
                    self.fork(q, fds)
