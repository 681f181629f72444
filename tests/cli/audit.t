#!/usr/bin/env python3
# budget: 13 CPU-seconds, all 20
# all: the signature of a row that records none is shown, a cached outline is used, Landlock alone
"""`warpwright synth audit`, `show` and `stats`: a set with one row of each kind of fault, hostile ones included;
each costs only its own process and is one line of the report.  Identities of signatures are tested in
tests/unit/task/test_signature.c."""
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, finish, need_pytorch, ok, python_without_pytorch, skip  # noqa: E402

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
binary = os.environ.get("WARPWRIGHT") or os.path.join(root, "build/warpwright")
need_pytorch()
work = tempfile.TemporaryDirectory(prefix="warpwright-test-")


def path(name):
    return os.path.join(work.name, name)


def run(*args, **env):
    p = subprocess.run([binary, "synth", *args], capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL,
                       env={**os.environ, "XDG_CACHE_HOME": path("cache"), **env})
    return p.returncode, p.stdout, p.stderr


def task(forward, init="", inputs="torch.rand(4, 8)", head=""):
    return (f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n{head}\n\nclass Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n{init}\n    def forward(self, x):\n"
            f"        {forward}\n\n"
            f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n")


linear = task("return torch.sigmoid(self.norm(self.fc(x)))",
              "        self.fc = nn.Linear(8, 6)\n        self.norm = nn.LayerNorm(6)\n")
linear_again = task("y = x @ self.k.t() + self.c\n        y = F.layer_norm(y, (12,), self.s, self.o)\n        return 1 "
                    "/ (1 + torch.exp(-y))",
                    "        self.k, self.c = nn.Parameter(torch.randn(12, 16)), nn.Parameter(torch.randn(12))\n"
                    "        self.s, self.o = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))\n",
                    "torch.rand(10, 16)")
held = task("return F.gelu(torch.cumsum(x, dim=-1)).sum(dim=-1)")
held_again = task("z = x.cumsum(1)\n        return (z * 0.5 * (1 + torch.erf(z / 2 ** 0.5))).sum(1)",
                  inputs="torch.rand(6, 20)")
label = ["nn.Linear", "nn.LayerNorm", "torch.sigmoid"]
ROWS = [
    {"id": "a", "code": linear, "ops": label, "split": "train"},  # 1
    {"id": "copy", "code": linear, "ops": str(label)},  # 2
    {"id": "disguised", "code": linear_again, "ops": ["layer_norm", "exp"], "split": "held-out"},  # 3
    {"id": "patches", "code": task("return torch.tanh(x)", head="F.silu = torch.tanh = torch.sin; nn.Linear = "
                                                                "None")},  # 4
    {"id": "label", "code": task("return F.silu(x) * 2"), "ops": ["nn.GELU", "torch.mul"]},  # 5
    {"id": "random", "code": task("return F.dropout(x, 0.5).exp()")},  # 6
    {"id": "constant", "code": task("return torch.softmax(x, dim=1)", inputs="torch.rand(9, 1)")},  # 7
    {"id": "a", "code": task("return x.sin().cumprod(dim=0)"), "signature": "s1:" + "0" * 32},  # 8
    "{broken",  # 9
    {"id": "hangs", "code": task("return x", head="import time\ntime.sleep(600)")},  # 10
    {"id": "forks", "code": task("return x + 1", head="import os\nos.fork()\nos.fork()\nos._exit(0)")},  # 11
    {"id": "eats", "code": task("return 2 * x / 3", head="held = [bytearray(1 << 34)]")},  # 12
    {"id": "exits", "code": task("return x - 1, x", head="import sys\nsys.exit(3)")},  # 13
    {"id": "held", "code": held_again},  # 14
    {"id": "no task", "code": "x = 1\n"},  # 15
    {"id": "good", "code": task("return torch.atan(self.fc(x)).cummax(dim=-1)[0]",
                                "        self.fc = nn.Linear(8, 8)\n        self.half()\n",
                                "torch.rand(4, 8).half()"), "ops": ["nn.Linear", "atan", "torch.cummax"]},  # 16
]
LIMIT = 12  # seconds: row 10 waits so long, twice; on a busy machine the others' graphs take four and more
EXPECTED = {"broken": [9], "duplicate": [2], "near_duplicate": [3], "contaminated": [14], "label": [5], "random": [6],
            "degenerate": [7],
            "id": [8], "signature": [8], "split": [3], "fails": [10, 11, 12, 13, 15]}
with open(path("set.jsonl"), "w", encoding="utf-8") as f:
    f.writelines((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in ROWS)
os.makedirs(path("suite/level1"))
with open(path("suite/level1/1_held.py"), "w", encoding="utf-8") as f:
    f.write(held)

code, out, err = run("audit", path("set.jsonl"), "--against", path("suite"), "--sample", "16", "--max-seconds",
                     str(LIMIT), "--jobs", "1", "--json")
audit = json.loads(out)
found = {}
for finding in audit["findings"]:
    found.setdefault(finding["kind"], []).append(finding["row"])
ok(re.search(r"^ *\d+\.\d s  \S*/set\.jsonl: 9 rows, running those of the sample$", err, re.M),
   "a row that takes over 2 s: a line says which set, and how many rows are done", err)
ok(code == 1 and audit["rows"] == len(ROWS), "an audit with findings ends with exit code 1", (code, err))
for kind, rows in EXPECTED.items():
    ok(found.get(kind, []) == rows and audit["counts"][kind] == len(rows), f"{kind}: rows {rows}",
       [x for x in audit["findings"] if x["kind"] == kind])
by = {(x["kind"], x["row"]): x for x in audit["findings"]}
ok(by["near_duplicate", 3]["other_row"] == 1 and by["near_duplicate", 3]["similarity"]["graph"] == 1
   and by["contaminated", 14]["other_id"] == "level1/1_held" and by["contaminated", 14]["other_set"] == path("suite"),
   "what a row resembles is named", audit["findings"])
ok(all("\n" not in x.get("detail", "") and len(x.get("detail", "x")) > 0 for x in audit["findings"])
   and f"within {LIMIT} s" in by["fails", 10]["detail"] and "MemoryError" in by["fails", 12]["detail"]
   and "SystemExit" in by["fails", 13]["detail"],
   "hostile rows are one line each", [by.get(("fails", r)) for r in (10, 11, 12, 13)])

# ---- The outline of what a set is compared with is kept, and used
db = sqlite3.connect(path("cache/warpwright/cache.sqlite"))
kept = [json.loads(value) for value, in db.execute("SELECT value FROM entry WHERE kind = 'outline'")]
ok(len(kept) == 1 and {"tokens", "graph"} <= set(kept[0]), "one outline is kept: of the only task that was not run",
   kept)
if ALL:
    for node in kept[0]["graph"]["nodes"]:
        node["op"] = node["op"].replace("cumsum", "cumprod")
    value = json.dumps({**kept[0], "tokens": ""}).encode()
    with db:
        db.execute("UPDATE entry SET value = ?, sum = ?", (value, hashlib.sha256(value).hexdigest()))
    code, out, err = run("audit", path("set.jsonl"), "--against", path("suite"), "--sample", "0", "--max-seconds",
                         str(LIMIT), "--jobs", "1", "--json")
    ok(json.loads(out)["counts"]["contaminated"] == 0, "an outline that is kept is used", out)
db.close()

# ---- show and stats
if ALL:
    code, out, err = run("show", path("set.jsonl") + "#disguised", "--json")
    shown = json.loads(out)
    ok(code == 0 and shown["row"] == 3 and shown["signature"].startswith("s1:") and "matmul" in shown["operators"],
       "one row with its signature", out)
code, out, err = run("stats", path("set.jsonl"), "--json")
stats = json.loads(out)
ok(code == 0 and stats["rows"] == 16 and stats["broken"] == 1 and stats["ops"]["nn.Linear"] == 3
   and stats["splits"]["train"] == 1,
   "what is in a set", out)

# ---- Written anew, as Parquet and back
python = os.path.join(root, ".venv-oracle/bin/python")
if subprocess.run([python, "-c", "import pyarrow"], capture_output=True).returncode if os.path.exists(python) else 1:
    skip("task sets as Parquet", "no pyarrow in .venv-oracle")
else:
    here = {**os.environ, "WW_PYTHON": python}
    rows = [{**ROWS[0], "seed": 3, "shapes": {"inputs": [["float32", [2, 3]]]}}, {**ROWS[15], "extra": 1.5}]
    with open(path("plain.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    got = [subprocess.run([binary, "synth", "convert", path(a), path(b)], env=here, capture_output=True, text=True)
           for a, b in (("plain.jsonl", "set.parquet"), ("set.parquet", "again.jsonl"))]
    with open(path("again.jsonl"), encoding="utf-8") as f:
        ok(not any(p.returncode for p in got) and [json.loads(line) for line in f] == rows, "a set as Parquet and back",
           got)

# ---- A machine without PyTorch is no finding about the rows
bare = python_without_pytorch(path("bare"))
with open(path("one.jsonl"), "w", encoding="utf-8") as f:
    f.write(json.dumps({"id": "one", "code": held.replace("4, 8", "4, 9")}) + "\n")
got = [run(*args, WW_PYTHON=bare) for args in (
    ("audit", path("one.jsonl")), ("show", path("one.jsonl") + "#one"), ("crawl", path("catalogue.json")),
    ("run", "--set", "small", "--target", "cpu", "-n", "1", "--against", path("one.jsonl"), "-o", path("made")))]
ok(all(c == 3 and "PyTorch cannot be imported" in e and e.count("\n") == 1 and not o for c, o, e in got),
   "without PyTorch audit, show, crawl and run --against say so in one line", got)

code, out, err = run("audit", path("one.jsonl"), "--sample", "1", "--target", "cuda", CUDA_VISIBLE_DEVICES="-1")
ok(code == 3 and err.startswith("warpwright: --target cuda: ") and err.count("\n") == 1 and not out,
   "nor is one without the GPU that rows are to be run on", [code, out, err])

# ---- Landlock alone, as in a container without user namespaces
if ALL:
    code, out, err = run("audit", path("one.jsonl"), "--sample", "1", "--json", WARPWRIGHT_SANDBOX="landlock")
    ok(code == 0 and json.loads(out)["ran"] == 1 and not json.loads(out)["findings"],
       "rows give graphs and run in a sandbox that shows no /proc", [code, out, err])

# ---- What cannot be read
zst = subprocess.run(["zstd", "-q", "-c", path("set.jsonl")], capture_output=True).stdout
with open(path("cut.jsonl.zst"), "wb") as f:
    f.write(zst[:-30])
bad = {"cut": ("stats", path("cut.jsonl.zst")), "is no task set": ("audit", __file__),
       "nowhere": ("audit", path("nowhere.jsonl")),
       "names no task": ("show", path("set.jsonl")), "holds no task": ("show", path("set.jsonl") + "#zzz"),
       "did you mean": ("statz", "x"), "does not read --policy": ("compose", "-n", "1", "--policy=openai:x"),
       "does not read --sample": ("stats", path("set.jsonl"), "--json", "--sample", "3")}
got = {word: run(*args) for word, args in bad.items()}
ok(all(c == 2 and word in e and e.count("\n") == 1 for word, (c, o, e) in got.items()), "one line and exit code 2", got)
finish()
