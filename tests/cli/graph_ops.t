#!/usr/bin/env python3
# budget: 4 CPU-seconds
"""src/task/graph/ops.def declares operators as PyTorch does: the same arguments in the same order, by the same names,
of the same kinds, and as many results.  An operator that this PyTorch does not have is not compared; every operator
that the planner has a rule for is there."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, finish, need_pytorch, ok  # noqa: E402

PYTHON = need_pytorch()
ROW = re.compile(r'^ROW\(((?:\s*"[^"]*")+),\s*"([TL]*)",\s*(\w+),\s*([^,]+),((?:\s*"[^"]*")+)\)', re.M)
ASK = """
import torch
print("\\n".join(str(s) for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")))
"""
KINDS = {"Tensor": "T", "Tensor[]": "L", "Tensor?[]": "O", "int": "i", "SymInt": "i", "float": "f", "Scalar": "n",
         "bool": "b", "str": "s", "ScalarType": "s", "Layout": "s", "Device": "s", "MemoryFormat": "s",
         "Generator": "s"}
LISTS = ((r"(Sym)?[iI]nt\[\d*\]", "I"), (r"float\[\d*\]", "F"))


def joined(strings):
    return "".join(re.findall(r'"([^"]*)"', strings))


def declared(text):
    """{operator: (arguments, results)} by PyTorch's declarations, in the form of ops.def."""
    found = {}
    for line in text.splitlines():
        m = re.match(r"aten::([\w.]+)\((.*)\) -> (.*)$", line)
        args, usable = [], True
        for a in re.split(r", (?![^\[(]*[\])])", m[2]) if m[2] else []:
            if a == "*":
                args.append("*")
                continue
            t, _, name = re.sub(r"\([a-z0-9!|* >-]*\)", "", a).split("=")[0].rpartition(" ")
            optional = t.endswith("?")
            t = t.removesuffix("?")
            kind = KINDS.get(t) or next((k for pattern, k in LISTS if re.fullmatch(pattern, t)), None)
            usable &= kind is not None
            args.append(f"{name}:{kind}{'?' if optional else ''}")
        results = re.sub(r"\([a-z0-9!|* >-]*\)", "", m[3]).strip("()")
        results = "".join("L" if "[]" in r else "T" for r in results.split(", ") if r.startswith("Tensor"))
        if usable:
            found[m[1]] = (" ".join(args), results)
    return found


def rules():
    """Operators of the planner's tables."""
    folder = os.path.join(ROOT, "src/policy/planner/lower")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            for table in re.findall(r"pl_lower_row pl_lower_\w+\[\] = \{(.*?)\};\n", f.read(), re.S):
                yield from re.findall(r'(?:\{|\w\()\s*"([\w.]+)"', table)


with open(os.path.join(ROOT, "src/task/graph/ops.def"), encoding="utf-8") as f:
    rows = [(joined(m[1]), m[2], joined(m[5]).split()) for m in ROW.finditer(f.read())]
names = [n for _, _, ops in rows for n in ops]
ok(len(names) > 500 and len(names) == len(set(names)), f"{len(names)} operators, each once",
   sorted({n for n in names if names.count(n) > 1}))
bases = {n.split(".")[0] for n in names} | {"getitem"}
without = sorted({r for r in rules() if r.split(".")[0] not in bases})
ok(not without, "every rule of the planner has an operator there", without)
out = subprocess.run([PYTHON, "-W", "ignore", "-c", ASK], stdout=subprocess.PIPE, text=True, check=True)
torch = declared(out.stdout)
wrong, seen = [], 0
for args, results, ops in rows:
    for n in ops:
        base, _, overload = n.partition(".")
        theirs = [torch[k] for k in (n, f"{base}_{'.' if overload else ''}{overload}") if k in torch]  # or in place
        seen += bool(theirs)
        if theirs and (args, results) not in theirs:
            wrong.append(f"{n}: {args} -> {results}, in PyTorch {theirs}")
ok(not wrong, f"{seen} of them are as PyTorch declares them", "\n".join(wrong))
ok(seen > 500, "most were compared", sorted(n for n in names if n not in torch))
finish()
