#!/usr/bin/env python3
# budget: 18 CPU-seconds
"""Kernels that the planner writes for cuda run on the cpu (tests/emulate), library convolutions as their definition has
them: trials of a search give what the first version gives.  What needs warpgroups, the copy engine or clusters is not
run.
An operator that no rule covers, which PyTorch would run between the kernels, is 2 v + 1 here, once also in place.

    tests/cli/planner_emulated.t [-v] [GRAPH...]     graphs of tests/data/graphs, by name; -v: all trials, and those
                                                     that are not run"""
import argparse
import array
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, WW, finish, ok  # noqa: E402

VARIANTS = os.environ.get("WW_VARIANTS") or os.path.join(os.path.dirname(WW), "tests/accuracy-variants")
HERE = os.path.join(ROOT, "tests/emulate")
DEVICE = {"cc": 90, "sm_count": 132, "shared_per_block_bytes": 232448}
INCLUDES = ["-I", HERE, "-I", os.path.join(ROOT, "skills/cuda/include"), "-I", os.path.join(ROOT, "include")]
GRAPHS = ["across", "channels_last", "channels_last_3d", "small_products", "sorts", "stored_last"]
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "bool": 1}
FORM = {"dtype": "float32", "sizes": [24, 40], "strides": [40, 1]}


def partly(op):
    """exp(x), the operator on its copy, and the sum of the copy, what came back and x, turned."""
    def row(name, target, *args):
        return {"name": name, "op": f"aten.{target}", "args": [a if isinstance(a, list) else {"ref": a} for a in args],
                "kwargs": {}, "out": [FORM]}
    rows = [row("exp", "exp.default", "x"), row("copy", "clone.default", "exp"), row("found", op, "copy"),
            row("both", "add.Tensor", "copy", "found"), row("all", "add.Tensor", "both", "x")]
    rows.append({"name": "t", "op": "aten.transpose.int", "args": [{"ref": "all"}, 0, 1], "kwargs": {},
                 "out": [{"dtype": "float32", "sizes": [40, 24], "strides": [1, 40]}]})
    return {"inputs": [{"name": "x", **FORM}], "params": [], "nodes": rows,
            "outputs": [{"name": "output0", "ref": "t", "dtype": "float32", "sizes": [40, 24], "strides": [24, 1]}]}


def right(op, x):
    """What partly() computes."""
    e = [math.exp(v) for v in x]
    both = [(2 * v + 1) + (2 * v + 1 if op.endswith("_.default") else v) + a for v, a in zip(e, x)]
    return [both[r * 40 + c] for c in range(40) for r in range(24)]


def run(argv, text="", **kw):
    p = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    if p.returncode:
        raise RuntimeError(f"{' '.join(argv)[:200]}: {p.stderr[:3000]}")
    return p.stdout


def tensors(graph):
    """[kind, name, dtype, sizes, strides] in the order of the buffers."""
    rows = [("input", t) for t in graph["inputs"]]
    rows += [("param", t) for t in graph["params"] if t.get("used", True)]
    rows += [("output", t) for t in graph["outputs"]]
    return [(kind, t["name"], t["dtype"], t["sizes"], t["strides"]) for kind, t in rows]


def nodes(folder, graph, plan):
    """What plan.c says, line by line, in words."""
    with open(os.path.join(folder, "plan.c"), "w", encoding="utf-8") as f:
        f.write(plan)
    exe = os.path.join(folder, "plan")
    run(["cc", "-O0", "-w", *INCLUDES, os.path.join(HERE, "plan_host.c"), f.name, "-o", exe])
    task = "".join(f"{kind} {name} {dtype} {len(sizes)} {' '.join(map(str, [*sizes, *reversed(strides)]))}\n"
                   for kind, name, dtype, sizes, strides in tensors(graph))
    return [line.split(maxsplit=1) for line in run([exe], task).splitlines()]


def statements(lines):
    """The nodes as C++, and the sizes of the scratch buffers."""
    calls, scratch = [], []
    for word, rest in lines:
        a = rest.split()
        if word == "buffer":
            scratch.append(int(a[0]))
        elif word == "launch":
            name, (gx, gy, gz, threads) = rest.rsplit(maxsplit=4)[0], a[-4:]
            calls.append([f"host::launch({gx}, {gy}, {gz}, {threads}, [&] {{ {name}(", [], "); });"])
        elif word == "arg":
            calls[-1][1].append(f"host::pointer{{B[{a[1]}] + {a[2]}}}" if a[0] == "buf" else a[1])
        elif word == "memset":
            calls.append([f"memset(B[{a[0]}] + {a[1]}, {a[3]}, {a[2]}", [], ");"])
        elif word == "copy":
            calls.append([f"memcpy(B[{a[0]}] + {a[1]}, B[{a[2]}] + {a[3]}, {a[4]}", [], ");"])
        elif word == "pytorch":
            calls.append([f"for (long long i = 0; i < size[{a[1]}] / 4; i++) "
                          f"((float *)B[{a[1]}])[i] = 2 * ((float *)B[{a[0]}])[i] + 1", [], ";"])
        elif word == "conv":
            axes = ", ".join("{" + ", ".join(a[7 + 6 * d:13 + 6 * d]) + "}" for d in range(3))
            x, w, y = (f"(float *)(B[{a[25 + 2 * i]}] + {a[26 + 2 * i]})" for i in range(3))
            calls.append([f"host::run({{ {', '.join(a[:7])}, {{ {axes} }} }}, {x}, {w}, {y}", [], ");"])
        elif word == "other":
            return None, rest
    return "\n".join(head + ", ".join(args) + tail for head, args, tail in calls), scratch


MAIN = """#include "device.h"
#include "conv_host.h"
#include "kernels.cu"
static const long long size[] = { %s };
int main(void)
{
    static char *B[sizeof(size) / sizeof(size[0])];
    for (unsigned i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        B[i] = (char *)aligned_alloc(256, (size[i] + 511) / 256 * 256);
        memset(B[i], 0xff, size[i]);
    }
    for (int i = 0; i < %d; i++)
        if (fread(B[i], 1, size[i], stdin) != (size_t)size[i])
            return 1;
    %s
    for (int i = %d; i < %d; i++)
        fwrite(B[i], 1, size[i], stdout);
}
"""


def outputs(folder, graph, variant, data):
    """The outputs of a variant as one array of floats; None and why where it needs a device."""
    lines = nodes(folder, graph, variant["plan"])
    text, scratch = statements(lines)
    if text is None:
        return None, scratch
    rows = tensors(graph)
    count = [math.prod(t[3]) * BYTES[t[2]] for t in rows]
    n_out = len(graph["outputs"])
    with open(os.path.join(folder, "kernels.cu"), "w", encoding="utf-8") as f:
        f.write(variant["kernels"])
    with open(os.path.join(folder, "main.cc"), "w", encoding="utf-8") as f:
        f.write(MAIN % (", ".join(map(str, count + scratch)), len(rows) - n_out, text, len(rows) - n_out, len(rows)))
    defines = [f"-D{a.split()[0]}={a.split()[1]}" for word, a in lines if word == "define"]
    exe = os.path.join(folder, "main")
    run(["c++", "-std=c++20", "-O0", "-w", *INCLUDES, "-I", folder, *defines, f.name, "-o", exe])
    p = subprocess.run([exe], input=data, stdout=subprocess.PIPE, timeout=60)
    if p.returncode:
        raise RuntimeError(f"it ended with {p.returncode}")
    got, at = array.array("f"), 0
    for row, n in zip(rows[-n_out:], count[len(rows) - n_out:]):
        got += floats(p.stdout[at:at + n], row[2])
        at += n
    return got, ""


def floats(data, dtype):
    if dtype == "bfloat16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    if dtype == "float16":
        return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))
    return array.array("f", data)


def packed(values, dtype):
    """Numbers as the bytes of a tensor."""
    if dtype == "float16":
        return struct.pack(f"<{len(values)}e", *values)
    if dtype == "bfloat16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    if dtype in ("bool", "int64"):
        return array.array("b" if dtype == "bool" else "q", [1] * len(values)).tobytes()
    return array.array("f", values).tobytes()


def draw(graph, seed):
    r, data = random.Random(seed), b""
    for kind, name, dtype, sizes, _ in tensors(graph):
        n = math.prod(sizes)
        if kind != "output":
            spread = 0.5 if len(sizes) == 1 else 1 if kind == "input" else math.prod(sizes[1:]) ** -0.5
            values = [r.gauss(0, spread) for _ in range(n)]
            data += packed([abs(v) + 0.5 for v in values] if "var" in name else values, dtype)
    return data


def distance(got, want):
    size = math.sqrt(sum(v * v for v in want))
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want))) / size if len(got) == len(want) else math.inf


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("graphs", nargs="*", metavar="GRAPH")
p.add_argument("-v", action="store_true")
args = p.parse_args()
for name in args.graphs or GRAPHS:
    with open(os.path.join(ROOT, f"tests/data/graphs/{name}.json"), encoding="utf-8") as f:
        graph = json.load(f)
    graph = graph.get("graph", graph)
    said = run([VARIANTS, "cuda", "3"], json.dumps({"file": name, "device": DEVICE, "graph": graph}) + "\n")
    data, want = draw(graph, name), None
    variants = list(map(json.loads, said.splitlines()))
    if name in ("small_products", "sorts") and not args.v: # without those by the library, or only of other tiles
        variants = [v for v in variants if "first version" in v["what"]]
    for variant in variants[:None if args.v else 3]:
        with tempfile.TemporaryDirectory() as folder:
            got, why = outputs(folder, graph, variant, data)
        what = f"{name}: {variant['what']}"
        if got is None:
            if args.v:
                print(f"# {what}: not run ({why})")
        elif want is None:
            want = got
            ok(all(map(math.isfinite, got)) and any(got), f"{what}: every output is written")
        else:
            d = distance(got, want)
            ok(d < 1e-5, f"{what}: as the first version ({d:.1e})")
for op in ("nonesuch.default", "nonesuch_.default") if not args.graphs else ():
    graph = partly(op)
    said = run([VARIANTS, "cuda", "1"], json.dumps({"file": op, "device": DEVICE, "graph": graph}) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        data = draw(graph, op)
        got, why = outputs(folder, graph, json.loads(said.splitlines()[0]), data)
    d = distance(got or [], right(op, array.array("f", data)))
    ok(d < 1e-6, f"{op} runs between kernels: what it reads, and what is made of its result ({d:.1e})", why)
for check, what in (("split", "short rows are split by a warp each as by a block each"),
                    ("gemm", "gemm_mma of all types, tiles and orders of its operands"),
                    ("sort", "sorted rows of all types and lengths, whole and in part"),
                    ("scan", "scans along the last and a middle axis, shared by one thread to eight")) if not args.graphs else ():
    with tempfile.TemporaryDirectory() as folder:
        exe = os.path.join(folder, check)
        run(["c++", "-std=c++20", "-O0", "-w", *INCLUDES, os.path.join(HERE, f"{check}_check.cc"), "-o", exe])
        said = subprocess.run([exe], stdout=subprocess.PIPE, text=True).stdout
    ok(said == "0\n", what, said)
finish()
