#!/usr/bin/env python3
# budget: 20 CPU-seconds
# timeout: 300
"""What bench/accuracy/mutate.py plants is a defect in code that runs, without a GPU and without the judge.

Each operator has a place in the first solutions of every example that it names, and where it changes a plan of cuda,
that plan says something else.  Products that miss their last row or columns run on the cpu (tests/emulate), with sizes
at which tiles are whole and at which they end: that row, or those columns, are not written, and everything else is as
before."""
import array
import glob
import json
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from emulated import DEVICE, HERE, Solution, Wrong, nodes, run, tensors  # noqa: E402
from tap import ROOT, WW, finish, ok  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "bench/accuracy"))
import mutate  # noqa: E402

VARIANTS = os.environ.get("WW_VARIANTS") or os.path.join(os.path.dirname(WW), "tests/accuracy-variants")
MOST = 9  # solutions of an example, as bench/accuracy/run has them
DEVICE = {"threads": 2, "vector_bytes": 32, **DEVICE}


def graph_of(name):
    with open(os.path.join(ROOT, f"tests/data/graphs/{name}.json"), encoding="utf-8") as f:
        graph = json.load(f)
    return graph.get("graph", graph)


def variants(graph, target, most):
    said = run([VARIANTS, target, str(most)], json.dumps({"file": "", "device": DEVICE, "graph": graph}) + "\n")
    return list(map(json.loads, said.splitlines()))[:most]


def said(graph, plan):
    """What a plan says; why it fails where it does."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return nodes(folder, graph, plan)
        except Wrong as e:
            return str(e)


def places(target, prefix, tasks):
    """{(class, name): {task: the plans that it changes}} of every operator."""
    found = {}
    for task in tasks:
        graph = graph_of(prefix + task)
        for v in variants(graph, target, MOST):
            solution = {"what": v["what"], **mutate.whole(v, target)}
            for kind, name, n, spoiled in mutate.sites(task, solution, target):
                at = found.setdefault((kind, name), {}).setdefault(task, [])
                if target == "cuda" and n == 1 and not at and spoiled["plan"] != solution["plan"]:
                    before, after = said(graph, solution["plan"]), said(graph, spoiled["plan"])
                    if isinstance(after, list) and after != before:
                        at.append(v["what"])
    return found


def every_operator_has_a_place(target, prefix, tasks, table):
    found = places(target, prefix, tasks)
    for kind, name, where, *_, named, _ in table:
        at = found.get((kind, name), {})
        differs = target == "cpu" or where == "kernels" or all(at.values())
        ok(at and all(t in at for t in named or ()) and differs,
           f"{target}: {kind}, {name}: {', '.join(at) or 'nowhere'}", f"for {named}, plans: {at}")


def of_size(m, k, n):
    """The graph of examples/cuda/linear_gelu.py with other sizes."""
    text = json.dumps(graph_of("cuda_linear_gelu"))
    for a, b in (("[8, 512, 4096]", f"[1, {m}, {k}]"), ("[8, 512, 8192]", f"[1, {m}, {n}]"),
                 ("[2097152, 4096, 1]", f"[{m * k}, {k}, 1]"), ("[4194304, 8192, 1]", f"[{m * n}, {n}, 1]"),
                 ("[8192, 4096]", f"[{n}, {k}]"), ("[4096, 1]", f"[{k}, 1]"), ("[8192]", f"[{n}]")):
        text = text.replace(a, b)
    return json.loads(text)


def output(graph, solution, data):
    with tempfile.TemporaryDirectory() as folder:
        out = Solution(folder, graph, solution["kernels"], solution["plan"], "-O0").run(data)[0]
    return memoryview(out).cast("f").tolist()


def products_miss(what, m, k, n, template):
    """A solution by this template without the last row, and without the last columns."""
    graph, r = of_size(m, k, n), random.Random(m)
    data = [array.array("f", [r.gauss(0, 1) for _ in range(math.prod(sizes))]).tobytes()
            for kind, _, _, sizes, _ in tensors(graph) if kind != "output"]
    first = next(v for v in variants(graph, "cuda", MOST) if f"ww::{template}<" in v["kernels"])
    solution = {"what": first["what"], **mutate.whole(first, "cuda")}
    want = output(graph, solution, data)
    ok(all(map(math.isfinite, want)), f"{what}: the solution itself writes all")
    for _, name, _, spoiled in mutate.sites("linear_gelu", solution, "cuda"):
        if not name.endswith("of a matrix"):
            continue
        got = output(graph, spoiled, data)
        gone = {i for i in range(m * n) if math.isnan(got[i])}
        rows, columns = {i // n for i in gone}, {i % n for i in gone}
        right = rows == {m - 1} and len(columns) == n if "row" in name else \
            len(rows) == m and columns in ({n - 1}, {n - 2, n - 1})
        same = all(got[i] == want[i] for i in range(m * n) if i not in gone)
        ok(right and same and len(gone) == len(rows) * len(columns),
           f"{what}: {name} of {m} x {n}, {len(gone)} elements", f"{len(rows)} rows, {len(columns)} columns, {same}")


def headers(folder):
    """Those of the cookbook that tests/emulate has none of its own for: the others stay includes."""
    top = os.path.join(ROOT, "skills/cuda/include")
    for path in glob.glob(os.path.join(top, "ww/**"), recursive=True):
        name = os.path.relpath(path, top)
        if os.path.isfile(path) and not os.path.exists(os.path.join(HERE, name)):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            os.symlink(path, os.path.join(folder, name))
    return [folder]


every_operator_has_a_place("cuda", "cuda_", [
    "softmax", "layernorm_gelu", "rmsnorm", "swiglu", "residual_layernorm", "linear_gelu", "mlp", "conv_bias_relu",
    "conv_transpose_gelu", "cumsum", "attention", "cross_entropy"], mutate.CUDA)
every_operator_has_a_place("cpu", "example_", ["softmax", "layernorm_gelu", "linear_gelu", "cumsum"], mutate.CPU)
with tempfile.TemporaryDirectory() as apart:
    mutate.INCLUDES = headers(apart)
    products_miss("whole tiles", 128, 64, 128, "gemm3")
    products_miss("tiles that end", 100, 64, 136, "gemm3")
    products_miss("odd width", 70, 64, 129, "gemm3")
    products_miss("tensor cores alone", 128, 64, 128, "gemm_mma")
    products_miss("tensor cores alone, tiles that end", 100, 64, 136, "gemm_mma")
finish()
