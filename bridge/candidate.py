"""The process that candidates of the PyTorch forms are forked from.

    python -I -u bridge/candidate.py cuda|cpu

Problem.  A KernelBench or CUDA-Agent solution is untrusted Python with untrusted native code.  It needs PyTorch,
which takes seconds to import, and it must be alone: no other candidate, no judge, no reference, no network, no file but
PyTorch's and its own.

This process imports PyTorch, starts no thread and no CUDA, and then forks.  Each order (docs/forms.md) comes on
descriptor 3 with three descriptors of the candidate's: its socket, its log, its status pipe.  A first child makes
namespaces and forks the candidate into them, where it is process 1: its end is the end of all that it started.  How it
ended is written into the status pipe here, by the only process that can know it, as struct ww_job_end
(src/sandbox/zygote.h).

This process ends when its socket does, and with it, as the first of its pid namespace, every candidate.
Nothing from a candidate is ever read here; this process keeps capabilities over its own namespaces that the candidates
lose.
"""

import os
import select
import signal
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from wwbridge import NoCollection  # noqa: E402
from wwbridge.channel import Channel  # noqa: E402

EXITED, SIGNALED = 1, 2
CONTROL_FD, FILTER_FD = 3, 4


def read_all(fd):
    out = b""
    while part := os.pread(fd, 1 << 16, len(out)):
        out += part
    os.close(fd)
    return out


def start_pytorch(target):
    """Everything that every candidate would import; nothing that starts threads or the device."""
    try:
        with NoCollection():
            import torch

            asks = torch.cuda.is_available  # importing cpp_extension asks, for a warning; that would start the driver here
            torch.cuda.is_available = lambda: True
            import torch.utils.cpp_extension

            import wwcandidate.holder  # noqa: F401

            torch.cuda.is_available = asks
    except ImportError as e:
        return f"PyTorch cannot be imported ({e}); `warpwright doctor` says how to install it"
    if target == "cuda" and not torch.version.cuda:
        return "this PyTorch was built without CUDA"
    return None


class Forker:
    def __init__(self, target):
        self.program = read_all(FILTER_FD)
        self.control = Channel(CONTROL_FD)
        self.target = target
        self.children = {}  # pid: status descriptor

    def fork(self, called, gpu, fds):
        sock, log, status = fds
        told, tell = os.pipe()
        first = os.fork()
        if first == 0:
            try:
                from wwcandidate import confine

                confine.new_namespaces()
                pid = os.fork()
                if pid == 0:
                    self.become(called, gpu, sock, log)
                os.write(tell, struct.pack("i", pid))
            finally:
                os._exit(0)
        os.close(tell)
        os.waitpid(first, 0)
        answer = os.read(told, 4)
        for fd in (told, sock, log):
            os.close(fd)
        if len(answer) == 4:
            self.children[struct.unpack("i", answer)[0]] = status
        else:
            os.close(status)

    def become(self, called, gpu, sock, log):
        """In the candidate's process; does not return."""
        code = 1
        try:
            from wwcandidate import confine, holder

            signal.set_wakeup_fd(-1)
            for sig in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(sig, signal.SIG_DFL)
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sock = confine.keep_only(sock)
            confine.enter(gpu)
            if self.target == "cuda" and not gpu:
                os.nice(10)  # it builds while others are measured
            os.setsid()
            confine.say_hello(sock)
            if called:
                confine.load_filter(confine.ONE_GROUP)
            confine.load_filter(self.program)
            code = holder.serve(sock, self.target)
        except BaseException as e:  # nothing of this process may go on as the forking one
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
                self.fork(bool(q.get("called")), bool(q.get("gpu")), fds)


def main():
    forker = Forker(sys.argv[1])
    problem = start_pytorch(forker.target)
    if problem:
        forker.control.send({"ok": False, "error": problem})
    else:
        forker.serve()
    os._exit(0)


if __name__ == "__main__":
    main()
