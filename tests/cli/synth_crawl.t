#!/usr/bin/env python3
# all: the catalogue of what is installed, and what is composed from it
"""synth crawl: a place that cannot be written is said before anything is run; what is composed from a catalogue;
without transformers one line says how to install them.

budget: 3 CPU-seconds, all 18"""
import ast
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, WW, finish, need_pytorch, ok, skip  # noqa: E402

python = need_pytorch()
have = subprocess.run([python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('transformers') is None)"],
                      check=False).returncode == 0
# Rows as the crawl writes them.
RECORDED = [{"operator": f"torch.special.{name}", "signature": f"{name}(input, *, out=None) -> Tensor",
             "identity": False, "largest": 1.0, "shape_rule": "same", "dtype_rule": {"float32": "float32"},
             "samplers": ["(x)"], "category": "pointwise", "source": "torch.special", "version": "2.11.0"}
            for name in ("ndtr", "erfcx", "i0e", "i1e", "entr", "log_ndtr", "ndtri", "bessel_j0", "bessel_j1",
                         "spherical_bessel_j0", "airy_ai", "expit", "sinc", "digamma", "scaled_modified_bessel_k0",
                         "scaled_modified_bessel_k1")]
META = """
import json, sys, torch
for line in sys.stdin:
    row, names = json.loads(line), {}
    exec(compile(row["code"], "candidate", "exec"), names)
    with torch.device("meta"), torch.no_grad():
        out = names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]())
    if list(out.shape) != row["sizes"]:
        sys.exit(f"{list(out.shape)} for {row['sizes']}: {row['code']}")
"""
with tempfile.TemporaryDirectory() as top:
    path = os.path.join(top, "catalogue.json")
    for place, word in ((os.path.join(top, "none/catalogue.json"), "cannot write"), (top, "is a directory")):
        bad = subprocess.run([WW, "synth", "crawl", place], capture_output=True, text=True, timeout=60, check=False)
        ok(bad.returncode in (2, 3) and word in bad.stderr and bad.stderr.count("\n") == 1,
           f"{word}: one line, before anything is run", bad.stderr)
    rows = RECORDED
    if ALL:
        p = subprocess.run([WW, "synth", "crawl", path, *(["--no-transformers"] if have else [])], capture_output=True,
                           text=True, timeout=170, check=False)
        rows = json.load(open(path))["operators"] if os.path.exists(path) else []
        names = {r["operator"] for r in rows}
        ok(p.returncode == 0 and len(names) == len(rows) >= 250, "at least 250 operators run", p.stdout + p.stderr)
        wanted = {"torch.matmul", "torch.nn.functional.conv2d", "torch.nn.LayerNorm", "torch.nn.LSTM", "torch.cumsum",
                  "torch.linalg.inv", "torch.special.ndtr"}
        ok(wanted <= names and not names & {"torch.nn.Dropout", "torch.rand", "torch.bernoulli",
                                            "torch.nn.functional.gumbel_softmax"},
           "the known ones are there, random ones are not", sorted(wanted - names))
        rules = {r["operator"]: r for r in rows}
        relu = rules.get("torch.nn.functional.relu", {})
        ok(relu.get("shape_rule") == "same" and relu.get("dtype_rule", {}).get("bfloat16") == "bfloat16"
           and all(k in relu for k in ("signature", "samplers", "category", "source", "version")),
           "a row says shapes, types, samplers, category, source", relu)
        ok(relu.get("identity") is False and relu.get("largest", 0) > 8,
           "and what composing has to know: no identity, how far it grows", relu)

    # The catalogue as an input: operators that the built-in table lacks, and a block as a task.
    block = {"operator": "transformers.models.x.XMLP", "category": "block", "parameters": 8192,
             "source": "transformers.models.x", "task": """import torch
import torch.nn as nn
from transformers.models.x import XMLP

BATCH, SEQUENCE, WIDTH = {batch}, {sequence}, {width}


class Model(nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    return [torch.randn(BATCH, SEQUENCE, 64 * WIDTH)]


def get_init_inputs():
    return []
"""}
    # One that gives rows of features: the grammar goes on behind it.
    text = block["task"]
    for old, new in (("from transformers.models.x import XMLP\n", ""),
                     ("forward(self, x)", "forward(self, gate, mask)"), ("return x", "return gate * torch.tanh(mask)"),
                     ("WIDTH)]", "WIDTH), torch.randn(64 * WIDTH)[None]]")):
        text = text.replace(old, new)
    behind = {**block, "operator": "transformers.models.x.YMLP", "output": [2, 8, 64], "task": text}
    with open(path, "w") as f:
        json.dump({"version": 1, "operators": [*rows, block, behind]}, f)
    recipe = os.path.join(top, "blocks.yaml")

    def synth(what, forms, *args):
        with open(recipe, "w") as f:
            f.write(f"set: small\nforms: {forms}\n")
        return subprocess.run([WW, "synth", what, recipe, "--catalogue", path, *args], capture_output=True, text=True,
                              timeout=170, check=False, env={**os.environ, "WW_PYTHON": python})

    made = synth("compose", "{block: 1, chain: 9}", "--json", "-n", "300")
    codes = [json.loads(x) for x in made.stdout.splitlines()]
    blocks = [r for r in codes if "BATCH, " in r["code"]]
    more = [r for r in blocks if len(r["ops"].split()) > 1]
    sizes = [("BATCH, SEQUENCE, WIDTH = {}, {}, {}\n".format(*r["sizes"][:2], r["sizes"][2] // 64), r) for r in blocks
             if r not in more]
    ok(10 < len(blocks) < 60 and all(s in r["code"] for s, r in sizes),
       "its blocks become tasks of drawn sizes", made.stderr)
    ok(len(more) > 3 and all(r["ops"].startswith("YMLP ") and "x = self.block(gate, mask)" in r["code"]
                             and r["code"].count("class Block(nn.Module)") == 1 for r in more) and
       all(ast.parse(r["code"]) for r in more), "and pieces stand behind those that give rows of features", more[:1])
    ok(sum("torch.special." in r["code"] for r in codes) > 3, "its operators are composed beside the built-in ones",
       made.stderr)
    lacks = synth("run", "{block: 1}", "--target", "cpu", "-j", "1", "-n", "1", "-o", os.path.join(top, "run"))
    ok(have or lacks.returncode == 2 and "pip install transformers" in lacks.stderr,
       "a run whose blocks need a package that is missing names it", lacks.stderr)
    if ALL:
        ran = subprocess.run([python, "-c", META], input="\n".join(json.dumps(r) for r in more), capture_output=True,
                             text=True, timeout=170, check=False)
        ok(ran.returncode == 0, "which run, and give the shapes that were predicted", ran.stdout + ran.stderr)
    if ALL and have:
        skip("missing transformers", "they are installed")
    elif ALL:
        ok("pip install transformers" in p.stderr and len(p.stderr.strip().splitlines()) <= 6,
           "missing transformers name the pip package", p.stderr)
finish()
