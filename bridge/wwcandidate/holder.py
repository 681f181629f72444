"""Answers the judge from the candidate's process, and makes the calls that it asks for.

    g NUMBER             one call: `d NUMBER` and where its outputs lie when they are there and the device is idle, `e
                         NUMBER` and
                         a frame where it failed
    q NUMBER frame       {"request": NAME, ...}: build, or attach, setup, trace, kernels (docs/forms.md); `a NUMBER` and
                         a frame

NUMBER is 8 bytes that the judge has drawn: no answer can be written before its question is asked
(src/judge/forms/candidate.c).

The judge stops this process whenever it is not asked for something, so work before a call (cuda: restoring state)
happens within it.  After the solution's code has run the judge believes nothing from here: a byte tells it when to
check, not what is true.
"""

import contextlib
import os
import socket
import struct
import traceback

import torch

from wwbridge import channel

from . import Problem, build, confine, launches, shared, solution


class Holder:
    def __init__(self, fd, target):
        self.channel = channel.Channel(fd)
        self.target = target
        self.ground = self.solution = self.watched_by = None
        self.sync = lambda: None

    # ---- Requests

    def build(self, q, fds):
        """Run the file to compile its extensions; other failures are left to setup."""
        builds = self._prepare(q, True)
        try:
            solution.load_module(q["form"], q["files"])
        except Problem as e:
            if e.kind == "build":
                raise
        blob = build.pack()
        return {"bytes": len(blob), "complete": not builds.open}, [build.as_file(blob)] if blob else []

    def attach(self, q, fds):
        """Set up the task's side: a failure here is not the solution's, which has not been read yet."""
        device = torch.device("cpu")
        if self.target == "cuda":
            device = torch.device("cuda", q["device"])
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)
            self.sync = torch.cuda.synchronize
        else:
            torch.set_num_threads(q["threads"])
            confine.limit_data(q["memory_bytes"])
        if q.get("local"):  # the last descriptor: files that the task imports or reads
            *fds, local = fds
            build.unpack(build.from_file(local), solution.TASK)
        buffers = shared.Shared(q["buffers"], fds, device)
        for fd in fds:
            os.close(fd)
        self.ground = solution.Ground(q, buffers, device)
        self.mark = torch.zeros(1)
        return {"address": self.mark.data_ptr()}, []

    def setup(self, q, fds):
        if q["form"] != "task":
            self._prepare(q, False)
            # torch.jit would write kernels whose names do not tell that they are PyTorch's (src/judge/forms/trace.c).
            torch._C._jit_override_can_fuse_on_gpu(False)
        for fd in fds:
            build.unpack(build.from_file(fd))
        self.solution = solution.Solution(q, self.ground)
        self.sync()
        state = [[name, t.data_ptr()] for name, t in self.solution.state.items()]
        return {"unmatched": self.solution.unmatched[:32], "state": state}, []

    def _prepare(self, q, may_build):
        builds = build.Builds(may_build)
        build.environment(self.target, q["arch"], q["jobs"], builds)
        solution.write_files(q["files"])
        return builds

    def trace(self, q, fds):
        from wwbridge.trace import Trace

        mode = Trace()
        with torch.no_grad(), mode:
            self.solution.run()
        self.sync()
        return mode.answer(), []

    def kernels(self, q, fds):
        return {"kernels": launches.kernels(self.solution.run, self.sync)}, []

    def watch(self, q, fds):
        """Record the operators and kernel launches of the next call."""
        self.watched_by = launches.Watcher()
        return {}, []

    def watched(self, q, fds):
        by, self.watched_by = self.watched_by, None
        return by.answer(), []

    def kernel_times(self, q, fds):
        return {"kernels": launches.profiled(self.solution.run, self.sync)}, []

    # ---- Calls

    def call(self):
        with torch.no_grad():
            with self.watched_by or contextlib.nullcontext():
                out = self.solution.run()
            places = self.solution.collect(out)
        self.sync()
        return places

    # ---- The loop

    def serve(self):
        sock = self.channel.sock
        while True:
            question = sock.recv(9, socket.MSG_WAITALL)
            if len(question) < 9:
                return 0
            number = question[1:]
            if question[:1] == b"g":
                failed, places, lent = self.try_call()
                if failed:
                    sock.sendall(b"e" + number)
                    self.channel.send(failed)
                else:
                    sock.sendall(struct.pack(f"<c8sII{len(places)}q", b"d", number, len(places), len(lent), *places))
                    self.channel.lend(lent)
                    for fd in lent:
                        os.close(fd)
            else:
                body, out = self.answer(*self.channel.receive())
                sock.sendall(b"a" + number)
                self.channel.send(body, out)
                for fd in out:
                    os.close(fd)

    def try_call(self):
        """Make one call; returns (the failure or None, numbers, descriptors)."""
        try:
            return (None, *self.call())
        except Problem as e:
            return failure(e.kind, str(e)), (), ()
        except BaseException as e:
            return failure("call", solution.own_traceback(e)), (), ()

    def answer(self, q, fds):
        try:
            body, out = getattr(self, q["request"])(q, fds)
            return {"ok": True, **body}, out
        except Problem as e:
            return failure(e.kind, str(e)), []
        except BaseException as e:
            traceback.print_exc()
            return failure("solution", solution.own_traceback(e)), []


def failure(kind, text, limit=16000):
    text = text if len(text) <= limit else text[: limit // 2] + "\n[...]\n" + text[-limit // 2 :]
    return {"ok": False, "error": {"kind": kind, "message": text}}


def serve(fd, target):
    try:
        return Holder(fd, target).serve()
    except (EOFError, OSError, socket.error):
        return 0
