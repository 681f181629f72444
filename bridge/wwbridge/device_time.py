"""The device time of a call (cuda).  The call is captured in a CUDA graph; events measure a replay after a flush of the
L2 cache, so launch overhead does not count.  If capture fails: the sum of the kernels' times by torch.profiler.

Baselines (baseline.py) and operators that plans leave to PyTorch (beside.py) are timed by this code.
"""

import functools

import torch

from . import one_line, out_of_memory
from .streams import on_one_stream


def captured(call, before, what):
    """`call`, which has run before, as a CUDA graph: (graph, what it returned in it, whether it used one stream); None
    where it cannot be captured.  before() is called before each run."""
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            before()
            call()
        torch.cuda.current_stream().wait_stream(side)
        before()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            out = call()
            alone = on_one_stream(torch.cuda.current_stream())
        before()
        graph.replay()
        torch.cuda.synchronize()
        return graph, out, alone
    except Exception as e:
        if out_of_memory(e):
            raise
        print(f"CUDA graph capture of {what} failed: {one_line(e)}", flush=True)
        graph = out = None
        torch.cuda.synchronize()
        # After an aborted capture PyTorch's random generator is still in capture mode; a complete capture ends that.
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        return None


def kernels_us(call):
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA], acc_events=True) as p:
        call()
        torch.cuda.synchronize()
    return float(sum(e.self_device_time_total for e in p.key_averages()))


class Flush:
    """A write of twice the L2 cache."""

    def __init__(self, device):
        self.device, self.memory = device, None

    def __call__(self):
        if self.memory is None:
            l2 = torch.cuda.get_device_properties(self.device).L2_cache_size
            self.memory = torch.empty(max(2 * l2, 1 << 20), dtype=torch.uint8, device=self.device)
        self.memory.zero_()


def events():
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    b.record()  # the first record creates the event: do that outside of the timed part
    return a, b


@functools.cache
def replay_events():
    """The two that all replays of this process are timed by."""
    return events()


def replay_us(graph, flush):
    """Microseconds of one replay. flush: a Flush, or None.  The flush is queued before the graph and keeps the device
    busy while the host queues the rest, so the events see no launch latency."""
    a, b = replay_events()
    torch.cuda.synchronize()
    for _ in range(2 if flush else 0):
        flush()
    a.record()
    graph.replay()
    b.record()
    b.synchronize()
    return a.elapsed_time(b) * 1e3
