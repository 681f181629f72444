"""PyTorch's own times: eager, torch.compile, max-autotune, on the current draw, with PyTorch's defaults under no_grad.

cuda.  device: one call captured in a CUDA graph, events around each replay; where capture fails, the sum of the
kernels' times ("device_method": "kernels"; device_time.py).  call: events around the Python call, as KernelBench
measures.  max-autotune replays CUDA graphs of its own, which cannot be captured again: its device time is that of
"max-autotune-no-cudagraphs", the same kernels; its call time is that of "max-autotune" itself.

cpu.  The judge owns the clock: arm() says that it is ready on one pipe, waits for a byte on another, calls once,
answers.

Buffers are restored before every call, outside the time; L2 is flushed by writing twice its size.
"""

import os
import time

import torch

from . import NoCollection, Refuse, device_failed, one_line, out_of_memory
from .compiler import compiled
from .device_time import Flush, captured, events, kernels_us, replay_us

WHICH = ("eager", "compile", "autotune")


class Compiled(Exception):
    """Raised instead of running the graph that torch.compile has just compiled."""


class NotRun:
    """Context in which compiled graphs raise Compiled when they are called: torch.compile then traces and compiles, and
    runs nothing on the device.  Inductor's class is not part of PyTorch's interface; if a version has another one,
    nothing is compiled ahead, and prepare() does all of it."""

    def __enter__(self):
        from torch._inductor.output_code import CompiledFxGraph

        def stop(graph, inputs):
            raise Compiled()

        self.graph, self.call = CompiledFxGraph, CompiledFxGraph.__call__
        CompiledFxGraph.__call__ = stop

    def __exit__(self, *exc):
        self.graph.__call__ = self.call


def task_compiled(task, **how):
    return compiled(task.model, task.device, not task.target.one_compiler, **how)


class Runner:
    """One baseline, ready to run."""

    def __init__(self, task, which, ahead=None):
        self.task, self.which = task, which
        self.graph = self.graph_out = None
        self.one_stream = True
        self.method = "clock"
        start = time.monotonic()
        self.device_call = self.python_call = task.model
        if which == "compile":
            # `if module` would call the module's __len__()
            self.device_call = self.python_call = task_compiled(task) if ahead is None else ahead
        elif which == "autotune" and task.target.kind == "cuda":
            self.device_call = task_compiled(task, mode="max-autotune-no-cudagraphs")
            self.python_call = task_compiled(task, mode="max-autotune")
        elif which == "autotune":
            self.device_call = self.python_call = task_compiled(task, mode="max-autotune")
        self._warm(self.device_call)
        if self.python_call is not self.device_call:
            self._warm(self.python_call)
        if task.target.kind == "cuda":
            self._capture()
        self.seconds = time.monotonic() - start

    def _warm(self, call):
        calls = self.task.target.warm_calls
        for _ in range(0 if calls == 1 and call is self.task.model else calls):  # it has run when it was loaded
            with self.task.target.share:  # for each, so that others who measure wait for one call at most
                self.once(call)
        self.task.target.sync()

    def once(self, call):
        self.task.restore()
        with torch.no_grad():
            if self.which == "autotune":
                torch.compiler.cudagraph_mark_step_begin()
            return call(*self.task.args())

    def _capture(self):
        with self.task.target.share:
            made = captured(lambda: self.device_call(*self.task.args()), self.task.restore, self.which)
        self.method = "graph" if made else "kernels"
        self.graph, self.graph_out, self.one_stream = made or (None, None, False)
        self.task.restore()

    def kernel_us(self):
        self.task.restore()
        return kernels_us(lambda: self.device_call(*self.task.args()))


class Clock:
    def __init__(self, task):
        self.task, self.runners = task, {}
        self.flush, self._ahead = Flush(task.device), None

    def compile_ahead(self, which):
        """Run torch.compile while another client uses the device.  It stops at the first graph break: prepare()
        compiles the rest."""
        if which != "compile" or which in self.runners or self._ahead is not None:
            return
        self._ahead = task_compiled(self.task)
        try:
            with NoCollection(), NotRun(), torch.no_grad():
                self._ahead(*self.task.args())
        except Exception as e:  # prepare() meets the same error and reports it
            if not isinstance(e, Compiled):
                print(f"nothing was compiled ahead: {one_line(e)}", flush=True)

    def prepare(self, which):
        if which not in WHICH:
            raise Refuse("request", f"baseline: which must be one of {', '.join(WHICH)}")
        if which not in self.runners:
            try:
                with NoCollection():
                    self.runners[which] = Runner(self.task, which, self._ahead)
            except Exception as e:
                if out_of_memory(e):  # the device is full now; the baseline may still work later
                    raise Refuse("memory", f"baseline {which} does not fit into the memory of this device: {e}")
                if device_failed(e):
                    raise
                self.task.target.sync()  # raises where a kernel has failed: that is no answer about the baseline
                self.runners[which] = one_line(f"{type(e).__name__}: {e}", 240)
            finally:
                self.task.restore()
                self.task.trim()
            self.task._check_settings(f"baseline {which}")
        r = self.runners[which]
        if isinstance(r, str):
            return {"available": False, "reason": r, "device_method": "", "seconds": 0.0, "several_streams": False}
        return {"available": True, "reason": "", "device_method": r.method, "seconds": r.seconds,
                "several_streams": not r.one_stream}

    def forget(self, which):
        if isinstance(self.runners.get(which), Runner):
            del self.runners[which]

    def _runner(self, which):
        r = self.runners.get(which)
        if not isinstance(r, Runner):
            raise Refuse("request", f"baseline {which} is not prepared or not available")
        return r

    def time(self, which, mode, n, flush_l2):
        if self.task.target.kind != "cuda":
            raise Refuse("request", "time is for cuda; on cpu the judge's clock is used (arm)")
        if mode not in ("device", "call") or not 1 <= n <= 10000:
            raise Refuse("request", "time: mode must be device or call, n 1 to 10000")
        r = self._runner(which)
        if mode != "device" or r.graph is None:  # a graph is as it was when it was captured; so its call is not held up
            self.task._check_settings("something")
        if mode == "device" and r.graph is None:
            return {"us": [r.kernel_us() for _ in range(n)], "method": r.method}
        times = []
        for _ in range(n):
            self.task.restore()
            if mode == "device":
                times.append(replay_us(r.graph, self.flush if flush_l2 else None))
                continue
            a, b = events()
            if flush_l2:
                self.flush()
            torch.cuda.synchronize()
            if which == "autotune":
                torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad():
                args = self.task.args()
                a.record()
                out = r.python_call(*args)
                b.record()
                del out
            b.synchronize()
            times.append(a.elapsed_time(b) * 1e3)
        self.task.restore()
        return {"us": times, "method": r.method if mode == "device" else "call"}

    def arm(self, which, go, done):
        """One call between two bytes, which the caller times.  An equal call goes first, so that the memory that the
        call allocates has been touched: other work since the last call may have returned it to the system."""
        runner = self._runner(which)
        call = runner.python_call
        runner.once(call)
        self.task.restore()
        args = self.task.args()
        with torch.no_grad():
            os.write(done, b"r")
            if os.read(go, 1) != b"g":
                raise Refuse("request", "arm: the starting byte did not come")
            out = call(*args)
            os.write(done, b"d")
        del out
        self.task.restore()
        return {}
