#!/usr/bin/env python3
# budget: 20 CPU-seconds, all 55
# timeout: 600
# all: the graphs that share a kind of kernel with another one
"""Kernels that the planner writes for cuda run on the cpu (tests/emulate), those of warpgroups, tensor copies and
clusters too, library nodes as their definition has them: trials of a search give what the first version gives.  With
PyTorch's own results they are compared by bench/emulated.
An operator that no rule covers, which PyTorch would run between the kernels, is 2 v + 1 here, once also in place.

    tests/cli/planner_emulated.t [-v] [all | GRAPH...]   graphs of tests/data/graphs, by name; -v: all trials"""
import argparse
import array
import json
import math
import os
import random
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from emulated import DEVICE, Solution, Wrong, nodes, run, says, tensors  # noqa: E402
from tap import ROOT, WW, finish, ok  # noqa: E402

VARIANTS = os.environ.get("WW_VARIANTS") or os.path.join(os.path.dirname(WW), "tests/accuracy-variants")
# one of each kind of kernel, and with "all" the others
GRAPHS = ["adjoining_windows", "attention_masks", "channels_last", "concatenated_last", "few_channels",
          "joined_pieces", "lanes_apart", "masked_products", "norm_beside", "pieces_scanned", "pooled_last",
          "product_ends", "residual_sums", "rnn_forms", "rnn_of_rows", "rnn_stack", "rows_of_parts", "scans_in_rows",
          "small_matrices", "sorts", "stored_last", "thin_products", "turned_products", "turned_results",
          "turned_rows", "windows"]
OTHERS = ["across", "attention_bands", "attention_halves", "attention_hot", "batch_last", "channels_alone",
          "channels_last_3d", "convolved_steps", "experts", "few_columns", "first_across", "first_few", "gated_last",
          "gather_outer", "groups_last", "groups_scanned", "halves_turned", "held_columns", "kept_down",
          "lanes_repeated", "last_step", "lines_shared", "modulated", "phases", "phases_apart", "pieces_read",
          "prime_columns", "prime_variance", "rows_apart", "rows_beside", "rows_of_pairs", "running_minimum",
          "scaled_heads", "scan_beside_maximum", "scan_of_scanned_groups", "scans_back_in_rows", "scans_from_the_end",
          "scattered_strips", "short_products", "shuffled_channels", "sizes_alike", "small_products", "softmax_last",
          "sorted_values", "stored_across", "summed_places", "tall_sums", "tokens_turned", "transposed_columns",
          "transposed_volume", "windows_kept", "windows_of_windows"]
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


def outputs(folder, graph, variant, data, tf32=None):
    """[(type, floats)] of a variant's outputs."""
    solution = Solution(folder, graph, variant["kernels"], variant["plan"], "-O0")
    parts = solution.run(data, linear, tf32=tf32)
    return [(row[2], floats(part, row[2])) for row, part in zip(solution.outputs, parts)]


WAIT = "\tww::wait_for_last();\n"


def only_waits(graph, first, variant):
    """This variant is the first version whose kernels wait for the one before: here, where one runs after the other,
    the same program.  Each says so at the head of its body."""
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        said, want = nodes(b, graph, variant["plan"]), nodes(a, graph, first["plan"])
    parts = variant["kernels"].split(WAIT)
    return (["define", "PDL_ 1"] in said and [line for line in said if line != ["define", "PDL_ 1"]] == want and
            "".join(parts) == first["kernels"] and len(parts) == 1 + first["kernels"].count("__global__") and
            all(p.endswith("\n{\n") for p in parts[:-1]))


def linear(segment, read):
    """2 v + 1 of what the operator reads."""
    return [array.array("f", [2 * v + 1 for v in array.array("f", read[0])]).tobytes()]


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
    if dtype == "bool":
        return array.array("b", [v > -1 for v in values]).tobytes()
    if dtype == "int64":
        return array.array("q", [1] * len(values)).tobytes()
    return array.array("f", values).tobytes()


NORMAL = list(map(random.Random(1).gauss, [0] * 65537, [1] * 65537))  # a prime: no stride of a tensor repeats them


def draw(graph, seed):
    r, data = random.Random(seed), []
    for kind, name, dtype, sizes, _ in tensors(graph):
        n = math.prod(sizes)
        if kind != "output":
            spread = 0.5 if len(sizes) == 1 else 1 if kind == "input" else math.prod(sizes[1:]) ** -0.5
            at = r.randrange(len(NORMAL))
            values = [spread * v for v in (NORMAL[at:] + NORMAL * (n // len(NORMAL) + 1))[:n]]
            data.append(packed([abs(v) + 0.5 for v in values] if "var" in name else values, dtype))
    return data


def norm(values):
    return math.sqrt(sum(v * v for v in values))


def distance(got, want, errors=()):
    """Of the output that differs most, relative to its size, in units of what may differ: of 16 bits one unit in the
    last place (the library rounds a product before its bias is added); of fp32 1e-5, or as rule strict has it four
    times PyTorch's own error of that output, where `errors` says it."""
    far = 0.0 if len(got) == len(want) else math.inf
    for i, ((dtype, a), (_, b)) in enumerate(zip(got, want)):
        unit = {"float16": 2**-10, "bfloat16": 2**-8}.get(dtype) or max(1e-5, 4 * errors[i] if errors else 0)
        unit *= norm(b)
        off = norm([v - w for v, w in zip(a, b)])
        far = max(far, off / unit if off <= math.inf and unit else 0.0 if off == 0 else math.inf)
    return far


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("graphs", nargs="*", metavar="GRAPH")
p.add_argument("-v", action="store_true")
args = p.parse_args()
every = args.graphs == ["all"]
named = [] if every else args.graphs
for number, name in enumerate(named or GRAPHS + OTHERS * every):
    with open(os.path.join(ROOT, f"tests/data/graphs/{name}.json"), encoding="utf-8") as f:
        graph = json.load(f)
    graph = graph.get("graph", graph)
    said = run([VARIANTS, "cuda", "3"], json.dumps({"file": name, "device": DEVICE, "graph": graph}) + "\n")
    data, want, errors = draw(graph, name), None, ()
    variants = list(map(json.loads, said.splitlines()))
    if name in ("scaled_heads", "sorts") and not args.v:  # without those by the library
        variants = [v for v in variants if "first version" in v["what"]]
    for variant in variants[:None if args.v else 3]:
        what, why = f"{name}: {variant['what']}", ""
        if "launches that overlap" in variant["what"] and not named and not every and number % 5:
            ok(only_waits(graph, variants[0], variant), f"{what}: the first version with waits, and nothing else")
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                got = outputs(folder, graph, variant, data)
                if not want and any("conv_tc<" in v["kernels"] for v in variants):
                    tf32 = outputs(folder, graph, variant, data, tf32=0)
                    errors = [norm([v - w for v, w in zip(a, b)]) / (norm(b) or 1) for (_, a), (_, b) in zip(tf32, got)]
        except Wrong as e:
            got, why = [], str(e)
        if not want:
            want = got
            ok(got and all(all(map(math.isfinite, v)) and any(v) for _, v in got),
               f"{what}: every output is written", why)
        else:
            # conv_tc has operands of 11 bits, as PyTorch's own run has in TF32; the library of other variants is exact
            d = distance(got, want, errors if "conv_tc<" in variant["kernels"] else ())
            ok(d < 1, f"{what}: as the first version ({d:.2g})", why)
for op in ("nonesuch.default", "nonesuch_.default") if not named else ():
    graph = partly(op)
    said = run([VARIANTS, "cuda", "1"], json.dumps({"file": op, "device": DEVICE, "graph": graph}) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        data = draw(graph, op)
        got = outputs(folder, graph, json.loads(said.splitlines()[0]), data)
    d = distance(got, [("float32", right(op, array.array("f", data[0])))])
    ok(d < 0.1, f"{op} runs between kernels: what it reads, and what is made of its result ({d:.2g})")
# Launches of one kernel give its macros the same values: a plan is not valid else.
for name in ("twice_across", "blocks") if not named else ():
    with open(os.path.join(ROOT, f"tests/data/graphs/{name}.json"), encoding="utf-8") as f:
        graph = json.load(f)
    said, why = run([VARIANTS, "cuda", "1"], json.dumps({"file": name, "device": DEVICE, "graph": graph}) + "\n"), ""
    plan = json.loads(said.splitlines()[0])["plan"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            launched = [rest.split()[0] for word, rest in nodes(folder, graph, plan) if word == "launch"]
        why = "" if len(set(launched)) < len(launched) else "no kernel is launched twice"
    except Wrong as e:
        why = str(e)
    ok(not why, f"{name}: kernels that are launched more than once", why)
CHECKS = (("split", "short rows are split by a warp each as by a block each, and copied to aligned ones"),
          ("attention", "attention_mma and attention16 of all types, orders, masks and shared heads, uneven sizes"),
          ("gemm", "gemm_mma of all types, tiles and orders of its operands, and the ends of gemm3 and gemm16"),
          ("conv", "conv_tc with results stored from registers and staged in shared memory, each element once"),
          ("few", "conv_few of up to 16 channels, odd sizes, strides and dilations, to 2e-6 of a sum's magnitudes"),
          ("halves", "exp, expm1, log1p, sigmoid and gelu of every half and bfloat16, to 1e-5"),
          ("near", "expm1 and log1p without branches: to 1e-6, infinities and zeros as in C"),
          ("ring", "rows that come to a cluster's shared memory while others are done, of any length"),
          ("sort", "sorted rows of all types and lengths, whole and in part"),
          ("scalar", "sigmoids over all arguments with a result that is not zero"),
          ("scan", "scans along the last and a middle axis, shared by one thread to eight"),
          ("scatter", "elements written to places along the last and another dimension, inside and outside"),
          ("special", "special functions in single precision, to 2e-6 of the exact ones, and their edges"),
          ("sum", "a thread's sum of many terms, in turns"),
          ("squares", "squares about any centre in one pass, with a few elements much larger than the others"),
          ("quotient", "quotients and roots without branches: exact ones are found, infinities and zeros as in C"))
for check, what in CHECKS if not named else ():
    exe, why = os.path.join(os.path.dirname(VARIANTS), "emulated", f"{check}_check"), ""
    try:
        says(exe, "0\n", again=every)
    except (OSError, Wrong) as e:
        why = str(e) or "it says nothing"
    ok(not why, what, why)
finish()
