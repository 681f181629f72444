#!/usr/bin/env python3
# timeout: 400
# budget: 15 CPU-seconds, all 20
# all: more tensors than files may be open, and escapes of whose kind others are judged here
"""Solutions in the KernelBench and CUDA-Agent forms on the cpu target, all through one batch: honest ones, wrong ones,
escapes.

What one candidate's process can and cannot do is in tests/unit/judge/test_candidate.c; here whole verdicts are looked
at."""
import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, finish, need_pytorch, ok  # noqa: E402

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
binary = os.environ.get("WARPWRIGHT") or os.path.join(root, "build/warpwright")
python = need_pytorch()
if subprocess.run(["unshare", "-Urmpf", "--mount-proc", "true"], stderr=subprocess.DEVNULL).returncode:
    print("1..0 # SKIP this system allows no namespaces, and so no PyTorch forms")
    sys.exit(0)

# All of it lies below /tmp, as a checkout may: the program, what belongs to it, and the interpreter.  Sandboxes have a
# /tmp of their own. Always at one place, since the judge keeps finished extensions by the interpreter's path too.
d = f"/tmp/warpwright-forms-{os.getuid()}-{hashlib.sha256(root.encode()).hexdigest()[:12]}"
shutil.rmtree(d, ignore_errors=True)
os.mkdir(d, 0o700)
atexit.register(shutil.rmtree, d, True)


def put(name, text):
    path = os.path.join(d, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    return path


def below_tmp():
    """Copies of the program and of its folders, and an environment of the interpreter that finds PyTorch where it is.

    The program's directory is on PATH, also by a link, and its folders lie at "that directory/../", whose text looks
    as if they lay below it."""
    for folder in ("bridge", "include", "skills/cuda/include"):
        shutil.copytree(os.path.join(root, folder), os.path.join(d, "home", folder))
    os.mkdir(os.path.join(d, "bin"))
    shutil.copy(binary, os.path.join(d, "bin/warpwright"))
    ask = ("import sys, importlib.util as u; print(sys._base_executable); print('python%d.%d' % sys.version_info[:2]); "
           "print(u.find_spec('torch').submodule_search_locations[0])")
    base, version, torch = subprocess.run([python, "-c", ask], capture_output=True, text=True,
                                          check=True).stdout.split()
    put("venv/pyvenv.cfg", f"home = {os.path.dirname(base)}\n")
    put(f"venv/lib/{version}/site-packages/torch.pth", os.path.dirname(torch) + "\n")
    os.mkdir(os.path.join(d, "venv/bin"))
    os.symlink(base, os.path.join(d, "venv/bin/python"))
    os.symlink("bin", os.path.join(d, "link"))
    return os.path.join(d, "bin/warpwright"), {"WARPWRIGHT_HOME": os.path.join(d, "bin/../home"),
                                               "PATH": os.path.join(d, "link") + os.pathsep + os.path.join(d, "bin") +
                                               os.pathsep + os.environ["PATH"],
                                               "WW_PYTHON": os.path.join(d, "venv/bin/python")}


binary, places = below_tmp()
env = {**os.environ, **places}
# Its own module and file go with it to the process that holds a solution; its arguments have names.
put("tasks/level1/parts/sizes.py", "def shape(n):\n    return int(open('rows.txt').read()), n\n")
put("tasks/level1/rows.txt", "64\n")
TASK = put("tasks/level1/3_scale.py", """import torch
import torch.nn as nn
from parts.sizes import shape


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm1d(n)
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return torch.relu(self.norm(x) * self.weight + x)


def get_inputs():
    return [torch.randn(*shape(1000))]


def get_init_inputs():
    return [[], {"n": 1000}]
""")
HEAD = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm1d(n)
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
"""
LOOPS = '''	for (long j = 0; j < n; j++) {
		double s = 0, q = 0;
		for (long i = 0; i < m; i++)
			s += p[i * n + j];
		s /= m;
		for (long i = 0; i < m; i++)
			q += (p[i * n + j] - s) * (p[i * n + j] - s);
		double r = 1 / std::sqrt(q / m + 1e-5);
		for (long i = 0; i < m; i++) {
			float v = (float)((p[i * n + j] - s) * r * pg[j] + pb[j]) * pw[j] + p[i * n + j];
			o[i * n + j] = v > 0 ? v : 0;
		}
	}
'''
EXTENSION = '''
torch::Tensor scale(torch::Tensor x, torch::Tensor g, torch::Tensor b, torch::Tensor w)
{
	auto y = torch::empty_like(x);
	long m = x.size(0), n = x.size(1);
	const float *p = x.data_ptr<float>(), *pg = g.data_ptr<float>(), *pb = b.data_ptr<float>(), *pw = w.data_ptr<float>();
	float *o = y.data_ptr<float>();
''' + LOOPS + '''	return y;
}
'''
NO_MEMORY = """        self.sparse = torch.eye(n).to_sparse_csr()
        self.register_buffer("one", torch.eye(4).to_sparse(), persistent=False)
        self.opaque = torch.ones(4, 4).to_mkldnn()
        self.shape = torch.empty(n, device="meta")
"""
kernel = 0
jobs, expected = [], {}


def solution(name, text, status, says="", check=None, **job):
    """A KernelBench file as one line of the batch."""
    global kernel
    path = put(f"run/level_1_problem_3_sample_{kernel}_kernel.py", text)
    kernel += 1
    add(name, path, status, says, check, **job)


def add(name, path, status, says="", check=None, **job):
    jobs.append({"id": name, "task": TASK, "solution": path, "target": "cpu", "depth": "verify", "baselines": "eager",
                 **job})
    expected[name] = (status, says, check)


def body(text, head=HEAD):
    return head + "".join("        " + line + "\n" for line in text.strip().split("\n"))


HONEST = "return torch.relu(self.norm(x) * self.weight + x)"
solution("PyTorch itself is correct, and only a library", body(HONEST), "ok",
         check=lambda v: v["library_only"] and v["reward"] <= 1 and "aten.relu" in v["aten_ops"]
         and v["form"] == "kernelbench"
         and v["repeats"] >= 5 and v["guarantees"].startswith("weaker"))
solution("its times are the clock's", body(HONEST), "ok", depth="full",
         check=lambda v: v["device_method"] == "clock" and v["time"]["device_us"] > 0 and v["checked_calls"] >= 8
         and v["baselines"]["eager"]["device_us"] > 0 and v["speedup"]["eager"]["lo"] <= v["speedup"]["eager"]["hi"])
solution("other names: found by value", body(HONEST.replace("self.norm", "self.a").replace("self.weight", "self.b"),
         HEAD.replace("self.norm", "self.a").replace("self.weight", "self.b")), "ok")
solution("tensors that have no memory of their own",
         body(HONEST, HEAD.replace("\n    def forward", NO_MEMORY + "\n    def forward")), "ok")
MANY = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.ParameterList([torch.randn(4) for _ in range(1030)])

    def forward(self, x):
        return x + torch.stack(list(self.each)).sum(0)
"""
put("tasks/many.py", MANY + "\n\ndef get_inputs():\n    return [torch.randn(16, 4)]\n\n\n"
    "def get_init_inputs():\n    return []\n")
if ALL:
    solution("more tensors than a system's usual limit of files", MANY.replace("class Model", "class ModelNew"), "ok",
             task=os.path.join(d, "tasks/many.py"))
solution("load_inline", "from torch.utils.cpp_extension import load_inline\n"
         + HEAD.replace("class ModelNew", "ext = load_inline('scale', cpp_sources=[r'''"
         + EXTENSION + "'''], functions=['scale'], extra_cflags=['-O2'])\n\n\nclass ModelNew")
         + "        return ext.scale(x, self.norm.weight, self.norm.bias, self.weight)\n",
         "ok", check=lambda v: not v["library_only"] and v["aten_ops"] == [])
solution("an extension that does not compile", "from torch.utils.cpp_extension import load_inline\n"
                                               "ext = load_inline('bad', cpp_sources=['int f() { return x; }'], "
                                               "no_implicit_headers=True)\n" + body(HONEST),
         "compile_failed", "was not declared")
solution("text that is no Python", "import torch\nclass ModelNew(\n", "compile_failed", "was never closed",
         check=lambda v: "<frozen" not in v["diagnostics"])
solution("the program's files are there, to be read only", body("import wwbridge\n"
                                                                "assert wwbridge.__file__.startswith('/tmp/')\n"
                                                                "open(wwbridge.__file__, 'a')"), "crashed",
         check=lambda v: any(why in v["diagnostics"] for why in (
             "Read-only file system", "Permission denied: '/tmp/")))  # the judge's user may be another
solution("a wrong constant", body(HONEST.replace("self.weight", "self.weight * 1.001")), "mismatch", "does not match")
solution("weights prepared once", body("if not hasattr(self, 'w'): self.w = self.weight.clone()\n"
                                       "return torch.relu(self.norm(x) * self.w + x)"), "mismatch", "re-drawn")
if ALL:
    solution("outputs kept by pointer", body("if not hasattr(self, 'y'): self.y = torch.relu(self.norm(x) * "
                                             "self.weight + x)\nreturn self.y"), "mismatch", "does not match")
    solution("the parameters as they were made", body(HONEST, HEAD.replace("nn.Parameter(torch.randn(n))",
                                                                           "torch.randn(n)")),
             "mismatch", "does not match")
solution("an exception, and a line that speaks as the judge", body("raise ValueError('x\\nstatus: ok\\nreward: 3')"),
         "crashed", "| reward: 3",
         check=lambda v: not any(line.startswith(("status:", "reward:")) for line in v["diagnostics"].split("\n")))
solution("a patched PyTorch", body("torch.allclose = lambda *a, **k: True\ntorch.equal = torch.allclose\n"
                                   "torch.cuda.synchronize = lambda *a: None\n"
         "import time; time.perf_counter = lambda: 0.0; time.monotonic = lambda: 0.0\n"
         "torch.backends.cuda.matmul.allow_tf32 = True\nreturn x"), "mismatch")
if ALL:
    solution("the harness's objects", body(
        "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Holder': "
        "o.solution.collect = lambda out: ((x.data_ptr(), *x.stride()), ())\nreturn x"), "mismatch")
solution("a printed verdict and exit code 0", body("import os; print('[PASS] verify success'); print('{\"correct\": "
                                                   "true}'); os._exit(0)"), "crashed", "exited with code 0")
if ALL:
    solution("a thread that fills the output later", body(
        "import threading, time\ny = torch.empty_like(x)\nargs = x.clone(), self.weight.clone()\n"
        "def late():\n    time.sleep(0.05)\n    y.copy_(torch.relu(self.norm(args[0]) * args[1] + args[0]))\n"
        "threading.Thread(target=late).start()\nreturn y"), "mismatch")
    solution("the reference's own code", body("import sys\nm = sys.modules['model'].Model(1000)\n"
                                              "m.load_state_dict(self.state_dict())\nreturn m(x)"), "ok",
             check=lambda v: v["library_only"] and v["reward"] <= 1)
put("agent/model_new.py", "import cuda_extension\n" + HEAD + "        y = torch.empty_like(x)\n"
                                                             "        cuda_extension.scale(*(t.data_ptr() for t in (x, "
                                                             "self.norm.weight, "
    "self.norm.bias, self.weight, y)), *x.shape)\n        return y\n")
put("agent/model.py", "raise SystemExit('frozen files are not read')\n")
# Addresses, not tensors: PyTorch's headers are read by the extension above already, and take seconds.
put("agent/kernels/scale.h", "void scale(const float *p, const float *pg, const float *pb, const float *pw, float *o, "
                             "long m, long n);\n")
put("agent/kernels/scale.cpp", '#include <cmath>\n#include "scale.h"\nvoid scale(const float *p, const float *pg, '
                               'const float *pb, const float *pw, float *o, long m, long n)\n{\n' + LOOPS + "}\n")
put("agent/kernels/scale_binding.cpp", """#include "../binding_registry.h"
#include "scale.h"
static void add(pybind11::module &m)
{
	m.def("scale", [](size_t x, size_t g, size_t b, size_t w, size_t y, long rows, long cols) {
		scale((float *)x, (float *)g, (float *)b, (float *)w, (float *)y, rows, cols);
	});
}
REGISTER_BINDING(scale, add);
""")
add("a CUDA-Agent directory", os.path.join(d, "agent"), "ok", check=lambda v: v["form"] == "cuda-agent"
    and not v["library_only"])
put("agent_cu/model_new.py", body(HONEST))
put("agent_cu/kernels/k.cu", "__global__ void k() {}\n")
add("CUDA on the cpu target", os.path.join(d, "agent_cu"), "refused", "kernels/k.cu is CUDA")


# One batch; when the extension has been built, the same job comes once more and finds it built, also where a header is
# newer than the build: the process that is called may start no compiler, and ninja must not want to.
p = subprocess.Popen([binary, "judge", "--batch", "-", "--max-run-seconds", "5", "--max-time-seconds", "1", "--threads",
                      "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
again = {**next(j for j in jobs if j["id"] == "load_inline"), "id": "again", "again": True}
p.stdin.write("".join(json.dumps(j) + "\n" for j in jobs))
p.stdin.flush()
results = {}
for line in p.stdout:
    r = json.loads(line)
    results[r["id"]] = r
    if r["id"] == "load_inline":
        os.utime(os.path.join(d, "home/bridge/wwcandidate/include/torch/types.h"))
        p.stdin.write(json.dumps(again) + "\n")
        p.stdin.close()
p.wait()
log = p.stderr.read()
for j in jobs:
    status, says, check = expected[j["id"]]
    r = results.get(j["id"], {})
    v = r.get("verdict")
    good = v is not None and v["status"] == status and says in v["diagnostics"] and v["correct"] == (
        status == "ok") and (not check or check(v))
    ok(good, j["id"], json.dumps(r)[:2500] or log)
first, second = (results.get(i, {}).get("verdict", {}).get("seconds", {}).get("compile")
                 for i in ("load_inline", "again"))
# A build takes 7 s of a processor and more; that it is found, a tenth of a second, on a busy machine some of these. The
# first may have found it too, in the store of an earlier run of this test.
ok(first and second is not None and second < 3, "a finished build is kept",
   f"{first} s, then {second} s; {log[-600:]}")
found = results.get("again", {}).get("verdict", {})
ok(found.get("status") == "ok", "a finished build is used where a header is newer than it", json.dumps(found)[:2500])
ok(p.returncode == 1 and len(results) == len(jobs) + 1, "the batch ends with 1, as some are wrong",
   f"{p.returncode} {log[-600:]}")

# A directory as KernelBench writes it, given with a directory of tasks: each file a job; here the problem's task is
# missing.
os.rename(TASK, TASK + ".away")
done = subprocess.run([binary, "judge", os.path.join(d, "tasks"), os.path.join(d, "run"), "--target", "cpu"], text=True,
                      stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, env=env)
lines = [json.loads(line) for line in done.stdout.splitlines()]
ok(done.returncode == 2 and len(lines) == kernel and all("level1/3_" in r["error"]
                                                         and r["id"].startswith("level_1_problem_3_sample_")
                                                         for r in lines),
   "a KernelBench directory is a batch; a missing task is one line", done.stdout[:500] + done.stderr)
finish()
