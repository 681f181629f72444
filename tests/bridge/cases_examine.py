"""What `synth run` asks about outputs (bridge/wwbridge/examine.py), by pieces and as a whole.  test_reference.py runs
these in its process."""

import fcntl
import gc
import os
import sys
import tempfile
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import torch
import worker
from wwbridge import Refuse, compiler, examine, facts
from wwbridge.baseline import Runner
from wwbridge.share import Share
from wwbridge.task import Task


def whole(a, b, by):
    """(near, apart, hidden of b) by their definitions."""
    x, y = a.double().expand_as(b), b.double()
    norm = (x - y).norm()
    within = ((x.float() - y.float()).abs() <= by + by * y.float().abs()).all()
    size = y.abs()
    return (bool(within) or bool(norm <= by * y.norm()), (norm / y.norm()).item(),
            ((size > 0) & (size < 1e-5 * y.square().mean().sqrt())).double().mean().item())


def outputs_are_compared_by_pieces():
    g = torch.Generator().manual_seed(3)
    piece, examine.PIECE = examine.PIECE, 7
    try:
        said = set()
        for shape in ((), (1,), (7,), (3, 5), (8, 11), (2, 3, 7)):
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                b = torch.randn(shape, generator=g).to(dtype)
                across = b.transpose(0, -1).contiguous().transpose(0, -1) if len(shape) > 1 else b
                for a in (b * 1.001, b + 0.5, across, torch.zeros((), dtype=dtype), b.mean()):
                    near, apart, hidden = whole(a, b, 1e-2)
                    assert examine.near(a, b) == near, (shape, dtype)
                    if a.shape == b.shape:
                        assert abs(examine.apart(a, b) - apart) <= 1e-12 * (1 + apart), (shape, dtype)
                    said.add(near)
                bad = b.clone()
                bad.reshape(-1)[-1] = float("nan" if len(shape) % 2 else "-inf")
                assert examine.finite(b) and not examine.finite(bad), (shape, dtype)
                few = b.clone()
                few.reshape(-1)[::2] *= 1e-7
                assert examine.hidden(few) == whole(few, few, 1e-2)[2], (shape, dtype)
        assert said == {True, False}
        empty = torch.zeros(0, 4)
        assert examine.near(empty, empty) and examine.apart(empty, empty) == 0 and examine.finite(empty)
        for x in (0.0, 1.0, 0.1, 1e-50, 1e300, float("inf")):
            f = examine.up_to_float(x)
            below = torch.nextafter(torch.tensor(f), torch.tensor(-1.0)).item()
            assert f >= x > below or x == 0 == f, x
        nan = torch.full((20,), float("nan"))
        assert not examine.near(nan, nan) and not examine.apart(nan, nan) <= 1
        assert examine.near(torch.arange(9), torch.arange(9)) and not examine.near(torch.arange(9), torch.arange(9) + 1)
    finally:
        examine.PIECE = piece


def kernels_are_tuned_by_few_calls():
    """By either benchmarker of this PyTorch; which one it takes depends on whether there is a GPU."""
    from torch._inductor.runtime import benchmarking

    made, times, before = [], compiler.event_times, benchmarking.benchmarker

    def calls(fn, n):
        made.append(n)
        return [took.pop(0) if took else 99.0 for _ in range(n)]

    try:
        compiler.event_times = calls
        for kind in (benchmarking.InductorBenchmarker, benchmarking.TritonBenchmarker):
            b = benchmarking.benchmarker = kind()
            compiler.tune_briefly(nullcontext())
            compiler.tune_briefly(nullcontext())  # as before the next task
            for took, n, ms in (([5.0, 9.0, 6.0], 3, 5.0), ([1.0], 10, 1.0), ([30.0, 29.0], 3, 29.0),
                                ([0.01], 30, 0.01), ([0.0], 30, 0.0)):
                made.clear()
                assert b.benchmark(lambda: None, device="cuda", rep=40, is_vetted_benchmarking=True) == ms, (kind, ms)
                assert sum(made) == n, (kind, n, made)
    finally:
        compiler.event_times, benchmarking.benchmarker = times, before
    bench = compiler.briefly(lambda *args, **how: (args[1:], how), calls, nullcontext())
    for how in ({"return_mode": "all"}, {"grad_to_none": [1]}, {"quantiles": [0.5]}):
        assert bench(None, **how) == ((), how)


def what_a_kernel_writes_is_copied_on_the_device():
    """While its configuration is chosen: what inductor copies to the processor it does not clone for each call."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._subclasses.fake_tensor import FakeTensorMode

    tuner = SimpleNamespace(optimize_mem=True, fn=SimpleNamespace(arg_names=["x", "y"]), mutated_arg_names=["x"],
                            reset_to_zero_arg_names=[])
    theirs = CachingAutotuner.copy_args_to_cpu_if_needed
    try:
        compiler.tune_briefly(nullcontext())
        with FakeTensorMode():
            x, y = torch.empty(1 << 20, device="cuda"), torch.empty(3, device="cuda")
            left_out = CachingAutotuner.copy_args_to_cpu_if_needed(tuner, x, y)
            (a, b), _ = CachingAutotuner.maybe_clone_args(tuner, left_out, x, y)
        assert a is not x and a.device.type == "cuda" and b is y
    finally:
        CachingAutotuner.copy_args_to_cpu_if_needed = theirs


def a_measurement_comes_between_two_configurations():
    with tempfile.TemporaryDirectory() as top:
        def both():
            return [os.open(os.path.join(top, name), os.O_RDWR | os.O_CREAT) for name in ("gate", "lock")]

        share, said = Share(*both(), lambda: said.append("synchronised")), []

        def measures():
            gate, lock = both()
            fcntl.flock(gate, fcntl.LOCK_EX)
            waits.set()
            fcntl.flock(lock, fcntl.LOCK_EX)
            fcntl.flock(gate, fcntl.LOCK_UN)
            said.append("measured")
            os.close(lock)
            os.close(gate)

        waits, thread = threading.Event(), threading.Thread(target=measures)
        share.rest()  # holds nothing, so nothing happens
        bench = compiler.briefly(None, lambda fn, n: said.append("called") or [1.0] * n, share)
        with share:
            thread.start()
            waits.wait()
            assert not said
            bench(lambda: None)
            assert said == ["synchronised", "measured", "called", "called"] and share.depth == 1, said
        thread.join()
        bench(lambda: None)
        assert said[4:] == ["synchronised", "called", "called", "synchronised"] and not share.depth, said
        waited, held, longest = share.account()
        assert waited > 0 and held > longest > 0 and share.account() == [0.0] * 3, (waited, held, longest)
        os.close(share.gate)
        os.close(share.lock)


def a_baseline_in_a_graph_is_not_called_again():
    calls, held, target = [], torch.ones(3), SimpleNamespace(kind="cpu", share=nullcontext())
    runner = Runner.__new__(Runner)
    runner.graph, runner.graph_out = "replayed", held
    task = SimpleNamespace(target=target, mutable_names=[], restore=lambda: calls.append("restored"), args=tuple,
                           _flat=lambda out: [out], clock=lambda: SimpleNamespace(runners={"compile": runner}))
    e = examine.Examination(task, 1, "aot_eager", 0)

    def call():
        calls.append("called")
        return held

    assert e.results("compile", call)[0] is held and not calls
    other = e.results("eager", call)[0]  # not prepared
    assert other is not held and torch.equal(other, held) and calls == ["restored", "called", "restored"], calls
    task.mutable_names = ["mean"]
    e.results("compile", call)
    runner.graph, task.mutable_names = None, []
    e.results("compile", call)
    assert calls.count("called") == 3, calls


def shapes_that_depend_on_values_are_found_by_the_other_draw():
    text = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x[:2 + int(x.numpy()[0, 0] * 1e6) % 97]
def get_inputs(): return [torch.rand(200, 3)]
def get_init_inputs(): return []
"""
    target = facts.Target("cpu", 0, torch)
    for target.examines in (False, True):
        try:
            task = Task(text, "shapes.py", 3, target)
            assert target.examines and task.run_s > 0
            examine.Examination(task, 1, "aot_eager", 0).run("eager")
        except Refuse as e:
            assert e.kind == "task" and "data-dependent" in str(e), e
        else:
            raise AssertionError("was not refused")


def a_task_is_let_go_where_it_could_not_be_loaded():
    """It is part of a cycle, and frozen where something was imported meanwhile; on a device others need its memory."""
    text = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        torch.seen.append(__import__("weakref").ref(x))
        return torch.rand_like(x)
def get_inputs(): return [torch.rand(200, 3)]
def get_init_inputs(): return []
"""
    w, torch.seen, path = worker.Worker(), [], list(sys.path)  # loading takes the bridge out of it
    w.target = facts.Target("cpu", 0, torch)
    try:
        for _ in range(2):
            answer = worker.answer(w, {"request": "load", "source": text, "name": "random.py", "seed": 3}, [])[0]
            assert not answer["ok"] and "is random" in answer["error"]["message"], answer
            gc.freeze()
            worker.NoCollection.froze = True
            end = {"request": "examine", "stage": "end", "seed": 3, "compiler": "", "memory_bytes": 0}
            ended = worker.answer(w, end, [])[0]
            assert ended["ok"] and not ended["reason"], ended
            assert torch.seen and not any(x() is not None for x in torch.seen)
    finally:
        sys.path[:] = path
        del torch.seen


def the_end_of_a_task_says_whether_the_device_works():
    w, end = worker.Worker(), {"request": "examine", "stage": "end", "seed": 3, "compiler": "", "memory_bytes": 0}
    w.target = facts.Target("cpu", 0, torch)
    assert worker.answer(w, end, [])[0]["ok"]

    def fails():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    w.target.sync = fails
    ended = worker.answer(w, end, [])[0]
    assert not ended["ok"] and ended["error"]["kind"] == "device", ended


TESTS = [a_baseline_in_a_graph_is_not_called_again, a_measurement_comes_between_two_configurations,
         a_task_is_let_go_where_it_could_not_be_loaded, kernels_are_tuned_by_few_calls, outputs_are_compared_by_pieces,
         shapes_that_depend_on_values_are_found_by_the_other_draw, the_end_of_a_task_says_whether_the_device_works,
         what_a_kernel_writes_is_copied_on_the_device]
