#!/usr/bin/env python3
"""synth crawl: the catalogue of what is installed; without transformers one line says how to install them.

budget: 20 CPU-seconds"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import WW, finish, need_pytorch, ok, skip  # noqa: E402

python = need_pytorch()
have = subprocess.run([python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('transformers') is None)"],
                      check=False).returncode == 0
with tempfile.TemporaryDirectory() as top:
    path = os.path.join(top, "catalogue.json")
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
    if have:
        skip("missing transformers", "they are installed")
    else:
        ok("pip install transformers" in p.stderr and len(p.stderr.strip().splitlines()) <= 6,
           "missing transformers name the pip package", p.stderr)
finish()
