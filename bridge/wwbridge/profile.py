"""Profile the reference: run the task's own graph operator by operator on the current draw.

The graph (graph.py) holds the same ATen operators that the module calls, so running it node by node costs what eager
costs and every microsecond has a name that the reader of the graph knows.  Attribution by the names of profiler events
alone would leave it to guesswork which of five aten::linear is meant.

cuda.  Each node runs inside a range of its own under torch.profiler; what the device did for it is the sum of the
kernels (and copies) that were launched inside that range.  Where the profiler sees no kernels (CUPTI is missing or in
use), events around each node stand in and "method" says so: they include the gaps in which the device waited for
Python. cpu.  The clock around each operator's call.

L2 (cuda) or the caches (cpu) are flushed before each run, never between nodes: an operator finds what the one before
left. Medians over the runs.  call_us and device_us are those of the whole module in eager mode, for the overhead
between operators.
"""

import statistics
import time

import torch

from . import Refuse, one_line, operators

MAX_KERNELS, MAX_NAME = 16, 200
RUNS, SECONDS = 7, 2.0


AUTOCAST = {"_enter_autocast": torch.amp.autocast_mode._enter_autocast,
            "_exit_autocast": torch.amp.autocast_mode._exit_autocast}


def step(row):
    if row["op"] in AUTOCAST:
        return row["name"], AUTOCAST[row["op"]], [operators.typed(a, "int") for a in row["args"]], row["kwargs"]
    return operators.step(row)


def names_in(x):
    """Names of the values that arguments read."""
    if isinstance(x, dict):
        return {x["ref"]} if "ref" in x else names_in(list(x.values()))
    return set().union(*map(names_in, x)) if isinstance(x, (list, tuple)) else set()


class Walk:
    """One run of the graph's rows; around(name) is entered for each operator.  Only the rows are needed: a cached graph
    has nothing else, and exporting the task again takes seconds."""

    def __init__(self, task, around):
        self.task, self.around = task, around
        self.steps = [step(row) for row in task.graph()["nodes"]]
        self.done, seen = [], set()  # after each step: the values that no later step reads
        for _, _, args, kwargs in reversed(self.steps):
            reads = names_in([args, kwargs])
            self.done.insert(0, reads - seen)
            seen |= reads

    def once(self):
        self.task.restore()
        values = dict(self.task.table["inputs"] + self.task.table["params"])
        with torch.no_grad():
            for (name, call, args, kwargs), done in zip(self.steps, self.done):
                args, kwargs = operators.resolve(args, values), {k: operators.resolve(v, values)
                                                                 for k, v in kwargs.items()}
                with self.around(name):
                    values[name] = call(*args, **kwargs)
                del args, kwargs
                for read in done:
                    del values[read]
        self.task.target.sync()


class Stopwatch:
    """Context around one operator on the cpu."""

    def __init__(self):
        self.us, self.name = {}, None

    def __call__(self, name):
        self.name = name
        return self

    def __enter__(self):
        self.start = time.perf_counter_ns()

    def __exit__(self, *exc):
        self.us.setdefault(self.name, []).append((time.perf_counter_ns() - self.start) * 1e-3)


class Events:
    """CUDA events around one operator."""

    def __init__(self):
        self.pairs, self.name = [], None

    def __call__(self, name):
        self.name = name
        return self

    def __enter__(self):
        self.start = torch.cuda.Event(enable_timing=True)
        self.start.record()

    def __exit__(self, *exc):
        stop = torch.cuda.Event(enable_timing=True)
        stop.record()
        self.pairs.append((self.name, self.start, stop))

    def us(self):
        out = {}
        for name, a, b in self.pairs:
            out.setdefault(name, []).append(a.elapsed_time(b) * 1e3)
        return out


def profile(task):
    try:
        rows, method = (on_cuda if task.target.kind == "cuda" else on_cpu)(task)
        call_us, device_us = whole(task)
    except Refuse:
        raise
    except Exception as e:
        raise Refuse("task", f"{task.name} cannot be run operator by operator: {type(e).__name__}: {one_line(e, 300)}")
    finally:
        task.restore()
    return {"method": method, "call_us": call_us, "device_us": device_us,
            "nodes": [{"name": name, **row} for name, row in rows.items()]}


def runs_for(seconds):
    return max(1, min(RUNS, int(SECONDS / max(seconds, 1e-6))))


def on_cpu(task):
    watch, flush = Stopwatch(), cpu_flush(task)
    walk = Walk(task, watch)
    walk.once()
    start = time.monotonic()
    walk.once()
    runs = runs_for(time.monotonic() - start)
    watch.us.clear()
    for _ in range(runs):
        flush()
        walk.once()
    return {n: {"us": statistics.median(us), "launches": None, "kernels": []} for n, us in watch.us.items()}, "clock"


def cpu_flush(task):
    from .facts import cpu_caches

    room = torch.empty(min(max(2 * cpu_caches()[3], 1 << 20), 128 << 20), dtype=torch.uint8)
    return lambda: room.fill_(1)


def on_cuda(task):
    from torch.profiler import ProfilerActivity, profile as profiler, record_function

    clock = task.clock()
    walk = Walk(task, lambda name: record_function("ww:" + name))
    start = time.monotonic()
    walk.once()
    walk.once()
    runs = runs_for(0.5 * (time.monotonic() - start))
    with profiler(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as p:
        for _ in range(runs):
            clock.flush()
            walk.once()
    rows = ranges(p.events())
    if any(row["launches"] for row in rows.values()):
        return rows, "kernels"
    events = Events()
    walk.around = events
    for _ in range(runs):
        clock.flush()
        walk.once()
    return {n: {"us": statistics.median(us), "launches": None, "kernels": []}
            for n, us in events.us().items()}, "events"


def ranges(events):
    """{node: device time and kernels inside its range}, medians over the runs."""
    seen = {}
    for e in events:
        if e.name.startswith("ww:") and e.device_type == torch.autograd.DeviceType.CPU:
            seen.setdefault(e.name[3:], []).append(kernels_below(e))
    rows = {}
    for name, runs in seen.items():
        first = {}
        for kernel, us in runs[-1]:
            first[kernel] = first.get(kernel, 0.0) + us
        order = sorted(first.items(), key=lambda k: -k[1])[:MAX_KERNELS]
        rows[name] = {"us": statistics.median(sum(us for _, us in r) for r in runs), "launches": len(runs[-1]),
                      "kernels": [{"name": one_line(k, MAX_NAME), "us": us} for k, us in order]}
    return rows


def kernels_below(event):
    """[(kernel, microseconds)] launched inside an event; a node may launch through any depth of operators."""
    out, todo = [], [event]
    while todo:
        e = todo.pop()
        out += [(k.name, float(k.duration)) for k in e.kernels if not k.name.startswith("ww:")]
        todo += e.cpu_children
    return out


def whole(task):
    """(microseconds of one eager call, device microseconds of it), medians."""
    clock = task.clock()
    clock.prepare("eager")
    if task.target.kind == "cuda":
        n = runs_for(clock.time("eager", "call", 1, True)["us"][0] * 1e-6)
        return (statistics.median(clock.time("eager", "call", n, True)["us"]),
                statistics.median(clock.time("eager", "device", n, True)["us"]))
    flush, times = cpu_flush(task), []
    while len(times) < RUNS and (not times or sum(times) < SECONDS * 1e6):
        task.restore()
        args = task.args()
        flush()
        start = time.perf_counter_ns()
        with torch.no_grad():
            out = task.model(*args)
        times.append((time.perf_counter_ns() - start) * 1e-3)
        del out
    us = statistics.median(times)
    return us, us
