"""See forms_selftest.sh.  The escapes are in tests/cheats."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../judge"))
from harness import add_task, need_driver, stream, summary  # noqa: E402

need_driver()
box = tempfile.TemporaryDirectory(prefix="warpwright-test-")
HEAD = """import torch
import torch.nn as nn
IMPORTS
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4096))
    def forward(self, x):
"""
SAME = "return torch.relu(x + self.bias) * 2"
TRITON = """import triton
import triton.language as tl
@triton.jit
def rows(x, b, y, N: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    v = tl.load(x + at) + tl.load(b + tl.arange(0, N))
    tl.store(y + at, tl.maximum(v, 0.0) * 2)
"""
LAUNCH = "y = torch.empty_like(x)\nrows[(x.shape[0],)](x, self.bias, y, N=4096)\nreturn y"
GRAPH = """if not hasattr(self, 'g'):
    WARM
    torch.cuda.synchronize()
    self.g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(self.g):
        self.y = CALL
self.g.replay()
return self.y"""
KERNEL = """
__global__ void k(const float4 *x, const float4 *b, float4 *y, long n, int c)
{
	long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float4 v = x[i], w = b[i % c];
	y[i] = { 2 * fmaxf(v.x + w.x, 0), 2 * fmaxf(v.y + w.y, 0), 2 * fmaxf(v.z + w.z, 0), 2 * fmaxf(v.w + w.w, 0) };
}
"""
# As most write it: no stream, which is the legacy one.
INLINE = "from torch.utils.cpp_extension import load_inline\next = load_inline('scale', cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor b);', functions=['run'], cuda_sources=r'''" + KERNEL + """
torch::Tensor run(torch::Tensor x, torch::Tensor b)
{
	auto y = torch::empty_like(x);
	k<<<(x.numel() / 4 + 255) / 256, 256>>>((const float4 *)x.data_ptr<float>(), (const float4 *)b.data_ptr<float>(),
						(float4 *)y.data_ptr<float>(), x.numel() / 4, b.numel() / 4);
	return y;
}
''')
"""
LAUNCHER = "extern \"C\" void k_launch(const float *x, const float *b, float *y, long n, int c, cudaStream_t s)"
AGENT = {
    "kernels/k.cu": "#include <cuda_runtime.h>\n" + KERNEL + LAUNCHER + """
{
	k<<<(unsigned)((n / 4 + 255) / 256), 256, 0, s>>>((const float4 *)x, (const float4 *)b, (float4 *)y, n / 4, c / 4);
}
""",
    "kernels/k_binding.cpp": """#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include <c10/cuda/CUDAStream.h>
#include "../binding_registry.h"
""" + LAUNCHER + """;
static torch::Tensor f(torch::Tensor x, torch::Tensor b)
{
	auto y = torch::empty_like(x);
	k_launch(x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), x.numel(), (int)b.numel(), c10::cuda::getCurrentCUDAStream().stream());
	return y;
}
static void add(pybind11::module &m) { m.def("f", &f); }
REGISTER_BINDING(f, add);
"""}


def solution(body, imports=""):
    return HEAD.replace("IMPORTS", imports) + "".join("        " + line + "\n" for line in body.split("\n"))


def graph(call, warm):
    return GRAPH.replace("CALL", call).replace("WARM", warm)


# name: (model_new.py, other files, form, is it PyTorch's own work?)
CASES = {
    "plain": (solution(SAME), {}, "kernelbench", True),
    "triton": (solution(LAUNCH, TRITON), {}, "kernelbench", False),
    "load_inline": (solution("return ext.run(x, self.bias)", INLINE), {}, "kernelbench", False),
    "cuda_agent": (solution("return cuda_extension.f(x, self.bias)", "import cuda_extension"), AGENT, "cuda-agent",
                   False),
    "graph of PyTorch": (solution(graph(SAME[7:], "torch.relu(x + self.bias)")), {}, "kernelbench", True),
    "graph of triton": (solution("y = torch.empty_like(x)\ncall = lambda: (rows[(x.shape[0],)](x, self.bias, y, "
                                 "N=4096), y)[1]\n" + graph("call()", "call()"), TRITON), {}, "kernelbench", False),
    "compiled": (solution("if not hasattr(self, 'f'): self.f = torch.compile(lambda x, b: torch.relu(x + b) * 2)\n"
                          "return self.f(x, self.bias)"), {}, "kernelbench", None),
}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def job(name, task):
    text, files, form, _ = CASES[name]
    where = os.path.join(box.name, name.replace(" ", "_"))
    for file, content in files.items():
        write(os.path.join(where, file), content)
    path = write(os.path.join(where, "model_new.py"), text)
    return {"id": name, "task": task, "solution": where if form == "cuda-agent" else path, "baselines": "eager",
            "max_time_seconds": 2}


def problem(name, verdict):
    _, _, form, library = CASES[name]
    for what, got, want in (("status", verdict["status"], "ok"), ("form", verdict["form"], form),
                            ("repeats", verdict["repeats"], 44)):
        if got != want:
            return f"{what} {got}, not {want}: {verdict['diagnostics'][:600]}"
    if library is not None and verdict["library_only"] != library:
        return (f"library_only {verdict['library_only']}, operators {verdict['aten_ops']}: "
                f"{verdict['diagnostics'][:600]}")
    if library and verdict["reward"] > 1:
        return f"reward {verdict['reward']}"
    return ""


task = write(os.path.join(box.name, "task.py"), add_task(16384, 4096))
jobs = [job(n, task) for n in CASES if not sys.argv[1:] or n in sys.argv[1:]]
failed = 0
for r, at in stream("cuda", jobs, "--max-run-seconds", "3"):
    bad = problem(r["id"], r["verdict"]) if "verdict" in r else r["error"]
    failed += bool(bad)
    said = bad or f"{summary(r['verdict'])}  library_only {r['verdict']['library_only']}  " + str(
        {k: round(s, 2) for k, s in r["verdict"]["seconds"].items() if s >= 0.05})
    print(f"{'not ok' if bad else 'ok    '} {r['id']:<18} {at:5.1f} s  {said}", flush=True)
print(f"{len(jobs) - failed} of {len(jobs)} solutions as they should be")
sys.exit(failed != 0)
