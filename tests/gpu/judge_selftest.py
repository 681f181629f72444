"""See judge_selftest.sh."""
import glob
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../judge"))
from harness import (  # noqa: E402
    BINARY, LINEAR_PLAN, SOURCE, Harness, add_task, linear_task, need_driver, problem, stream, summary)

need_driver()
h = Harness("cuda")
ADD = add_task(4099, 4096)
LINEAR = linear_task(2048, 1024, 1536)
CONV = """import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(32, 8, 4, stride=2, padding=1)
    def forward(self, x):
        return self.up(torch.relu(self.conv(x)))
def get_inputs():
    return [torch.randn(8, 16, 64, 96)]
def get_init_inputs():
    return []
"""
BATCHED = """import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b.transpose(1, 2))
def get_inputs():
    return [torch.randn(6, 257, 128), torch.randn(6, 130, 128)]
def get_init_inputs():
    return []
"""


def plan(extra="", threads=256, grid="ww_cdiv(x->numel, 256)", tail=""):
    return f"""#include <ww/plan.h>
void plan(struct ww_plan *p)
{{
	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, "bias"), *y = ww_output(p, 0);
	int s = ww_scratch(p, 1000);
	ww_launch(p, "k", {grid}, 1, 1, {threads}, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, b->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_buf(p, s, 0);
	ww_arg_i64(p, x->numel);
	ww_arg_i32(p, (int)x->size[1]);
	{extra}
	{tail}
}}
"""


def kernel(body, head="", attributes=""):
    return f"""{head}
extern "C" __global__ void {attributes} k(const float *x, const float *bias, float *y, float *scratch, long long n, int cols)
{{
	long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
	{body}
}}
"""


def each(value, to="n"):
    return f"if (i < {to}) {{ float v = {value}; y[i] = v > 0 ? 2 * v : 0; }}"


GOOD = each("x[i] + bias[i % cols]")
HONEST = kernel(GOOD)
# A grid barrier by atomics on scratch (set to zero by a memset node): right only if all blocks are resident.
COOPERATIVE = kernel("""
	unsigned *count = (unsigned *)scratch;
	for (long long j = i; j < n; j += (long long)gridDim.x * blockDim.x)
		y[j] = x[j];
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		atomicAdd(count, 1u);
		while (atomicAdd(count, 0u) < gridDim.x) { }
	}
	__syncthreads();
	__threadfence();
	for (long long j = n - 1 - i; j >= 0; j -= (long long)gridDim.x * blockDim.x) {
		float v = *(volatile float *)&y[j] + bias[j % cols];
		y[j] = v > 0 ? 2 * v : 0;
	}""")
COOPERATIVE_PLAN = plan("ww_cooperative(p);", grid="GRID").replace("\tww_launch",
                                                                   "\tww_memset(p, s, 0, 4, 0);\n\tww_launch")
CLUSTER = kernel("""
	unsigned rank;
	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	if (rank != blockIdx.x % 4) return;
	""" + GOOD)
PDL = kernel('asm volatile("griddepcontrol.wait;" ::: "memory");' + each("y[i] + bias[i % cols]"))
PDL = PDL.replace('extern "C"', 'extern "C" __global__ void early(const float *x, float *y, long long n)\n{\n'
                                '\tlong long i = blockIdx.x * 256ll + threadIdx.x;\n'
                  '\tasm volatile("griddepcontrol.launch_dependents;");\n\tif (i < n) y[i] = x[i];\n}\nextern "C"', 1)
PDL_PLAN = plan("ww_pdl(p);").replace("\tww_launch", """\tww_launch(p, "early", ww_cdiv(x->numel, 256), 1, 1, 256, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i64(p, x->numel);
	ww_launch""")
# Three launches, of which the last reads what the first writes; the one between waits and does nothing.
PDL_ALL = PDL.replace('extern "C"', 'extern "C" __global__ void between() { asm volatile("griddepcontrol.wait;\\n\\t'
                                    'griddepcontrol.launch_dependents;" ::: "memory"); }\nextern "C"', 1)
PDL_ALL_PLAN = PDL_PLAN.replace("ww_pdl(p);", "ww_pdl_all(p);").replace(
    "\tww_arg_i64(p, x->numel);\n", '\tww_arg_i64(p, x->numel);\n\tww_launch(p, "between", 1, 1, 1, 32, 1, 1);\n', 1)
COPY_PLAN = plan().replace("\tww_launch", "\tww_memset(p, y->buf, 0, y->bytes, 7);\n\tww_copy(p, y->buf, 0, x->buf, 0, "
                                          "x->bytes);\n\tww_launch")
TMA = """#include <ww/hopper.cuh>
extern "C" __global__ void k(const __grid_constant__ ww_tensor_map map, const float *bias, float *y, int rows, int cols)
{
	__shared__ alignas(128) float tile[8 * 64];
	__shared__ alignas(8) unsigned long long bar;
	unsigned b = ww::saddr(&bar);
	int col = blockIdx.x * 64, row = blockIdx.y * 8;
	if (threadIdx.x == 0) {
		ww::bar_init(b, 1);
		ww::bar_init_fence();
		ww::bar_expect(b, sizeof(tile));
		ww::tma_load3(ww::saddr(tile), &map, b, col, row, 0);
	}
	__syncthreads();
	ww::bar_wait(b, 0);
	for (int t = threadIdx.x; t < 8 * 64; t += blockDim.x) {
		int r = row + t / 64, c = col + t % 64;
		if (r < rows) {
			float v = tile[t] + bias[c];
			y[(long long)r * cols + c] = v > 0 ? 2 * v : 0;
		}
	}
}
"""
TMA_PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, "bias"), *y = ww_output(p, 0);
	struct ww_tmap t = { .buf = x->buf, .dtype = WW_F32, .rank = 3, .size = { x->size[1], x->size[0], 1 },
			     .stride_bytes = { 0, x->size[1] * 4, x->bytes }, .box = { 64, 8, 1 } };
	ww_launch(p, "k", x->size[1] / 64, ww_cdiv(x->size[0], 8), 1, 128, 1, 1);
	ww_arg_tmap(p, &t);
	ww_arg_buf(p, b->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i32(p, (int)x->size[0]);
	ww_arg_i32(p, (int)x->size[1]);
}
"""
TEMPLATE = """template <typename T, int V> __global__ void k(const T *x, const T *bias, T *y, T *scratch, long long n, int cols)
{
	long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * V;
	for (int j = 0; j < V; j++)
		if (i + j < n) { T v = x[i + j] + bias[(i + j) % cols]; y[i + j] = v > 0 ? 2 * v : 0; }
}
"""
BATCHED_PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *a = ww_input(p, 0), *b = ww_input(p, 1), *y = ww_output(p, 0);
	long long m = a->size[1], n = b->size[1], k = a->size[2];
	struct ww_gemm g = { .m = m, .n = n, .k = k, .batch = a->size[0], .alpha = 1,
			     .a = { .buf = a->buf, .dtype = WW_F32, .ld = k, .batch_stride = m * k },
			     .b = { .buf = b->buf, .dtype = WW_F32, .trans = 1, .ld = k, .batch_stride = n * k },
			     .d = { .buf = y->buf, .dtype = WW_F32, .ld = n, .batch_stride = m * n } };
	ww_gemm(p, &g);
}
"""
CONV_PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *y = ww_output(p, 0), *w = ww_param(p, "conv.weight"), *b = ww_param(p, "conv.bias"),
			       *uw = ww_param(p, "up.weight"), *ub = ww_param(p, "up.bias");
	long long h = (x->size[2] + 2 - 3) / 2 + 1, v = (x->size[3] + 2 - 3) / 2 + 1;
	int s = ww_scratch(p, x->size[0] * w->size[0] * h * v * 4);
	struct ww_conv c = { .nd = 2, .dtype = WW_F32, .groups = 1, .n = x->size[0], .c = x->size[1], .k = w->size[0],
			     .in = { x->size[2], x->size[3] }, .kernel = { 3, 3 }, .out = { h, v }, .stride = { 2, 2 }, .pad = { 1, 1 },
			     .dilation = { 1, 1 }, .x_buf = x->buf, .w_buf = w->buf, .y_buf = s, .bias_buf = b->buf,
			     .epilogue = WW_EPI_BIAS_RELU, .workspace_bytes = 64 << 20 };
	struct ww_conv u = { .nd = 2, .transposed = 1, .dtype = WW_F32, .groups = 1, .n = x->size[0], .c = w->size[0], .k = uw->size[1],
			     .in = { h, v }, .kernel = { 4, 4 }, .out = { y->size[2], y->size[3] }, .stride = { 2, 2 }, .pad = { 1, 1 },
			     .dilation = { 1, 1 }, .x_buf = s, .w_buf = uw->buf, .y_buf = y->buf, .bias_buf = ub->buf,
			     .epilogue = WW_EPI_BIAS, .workspace_bytes = 64 << 20 };
	ww_conv(p, &c);
	ww_conv(p, &u);
}
"""
NONE = "/* library nodes only */\n"
FULL = {"depth": "full", "baselines": "eager,compile"}
FAST = {"depth": "verify", "baselines": "eager", "max_run_seconds": 5}
EXTERN = "extern __shared__ float big[];"
# name, task, kernels, plan, status, a word of the diagnostics, more members of the job
CASES = [
    ("honest", ADD, HONEST, plan(), "ok", "", FULL),
    ("honest_template", ADD, TEMPLATE, plan(grid="ww_cdiv(x->numel, 1024)").replace('"k"', '"k<float, 4>"'), "ok", "",
     FULL),
    ("cluster", ADD, CLUSTER, plan("ww_cluster(p, 4, 1, 1);", grid="ww_cdiv(x->numel, 1024) * 4"), "ok", "", FAST),
    ("cooperative", ADD, COOPERATIVE, COOPERATIVE_PLAN.replace("GRID", "ww_device(p)->sm_count"), "ok", "", FAST),
    ("pdl", ADD, PDL, PDL_PLAN, "ok", "", FAST),
    ("pdl all", ADD, PDL_ALL, PDL_ALL_PLAN, "ok", "", FAST),
    ("memset_and_copy", ADD, kernel(each("y[i] + bias[i % cols]")), COPY_PLAN, "ok", "", FAST),
    ("tensor_map", ADD, TMA, TMA_PLAN, "ok", "", FAST),
    ("dynamic_shared", ADD, kernel("big[threadIdx.x + 50000] = 0;" + GOOD, EXTERN), plan("ww_shared(p, 220000);"), "ok",
     "", FAST),
    ("gemm_fp32", LINEAR, NONE, LINEAR_PLAN.replace("MATH", "WW_MATH_FP32"), "ok", "", FULL),
    ("gemm_batched", BATCHED, NONE, BATCHED_PLAN, "ok", "", FAST),
    ("conv", CONV, NONE, CONV_PLAN, "ok", "", FULL),
    ("gemm_tf32", LINEAR, NONE, LINEAR_PLAN.replace("MATH", "WW_MATH_TF32"), "mismatch", "limit", FAST),
    ("tail", ADD, kernel(each("x[i] + bias[i % cols]", "n - 3")), plan(), "mismatch", "NaN", FAST),
    ("no_bias", ADD, kernel(each("x[i]")), plan(), "mismatch", "parameters re-drawn", FAST),
    ("wrong_constant", ADD, kernel(each("1.001f * x[i] + bias[i % cols]")), plan(), "mismatch", "expected", FAST),
    ("not_written", ADD, kernel(""), plan(), "mismatch", "NaN", FAST),
    ("unwritten_scratch", ADD, kernel(each("x[i] + bias[i % cols] + 0 * scratch[0]")), plan(), "mismatch", "zero",
     FAST),
    ("sometimes_wrong", ADD, kernel(GOOD + " if (i == 7 && clock64() * 0x9e3779b97f4a7c15ull >> 40 & 1) y[i] += 1;"),
     plan(), "mismatch", "[0, 7]", FAST),
    ("other_bits", ADD, kernel(each("(x[i] + bias[i % cols]) * (clock64() & 4 ? 1.0000002f : 1)")), plan(), "ok", "",
     FAST),
    ("store_to_input", ADD, kernel(GOOD + " ((float *)x)[0] = 1;"), plan(), "crashed", "ILLEGAL_ADDRESS", FAST),
    ("store_to_parameter", ADD, kernel(GOOD + " ((float *)bias)[0] = 1;"), plan(), "crashed", "ILLEGAL_ADDRESS", FAST),
    ("far_beyond_output", ADD, kernel(GOOD + " if (i == 0) y[n + 600000] = 1;"), plan(), "crashed", "ILLEGAL_ADDRESS",
     FAST),
    ("just_beyond_output", ADD, kernel(GOOD + " if (i == 0) y[n] = 1;"), plan(), "mismatch", "overrun", FAST),
    ("before_scratch", ADD, kernel(GOOD + " if (i == 0) scratch[-1] = 1;"), plan(), "mismatch", "overrun", FAST),
    ("misaligned", ADD, kernel(GOOD + " if (i == 0) *(volatile double *)(y + 1) = 0;"), plan(), "crashed", "MISALIGNED",
     {**FAST, "max_run_seconds": 30}),  # the driver takes seconds to report it, more where other processes use the GPU
    ("endless", ADD, kernel("while (*(volatile float *)x == *(volatile float *)x) { }"), plan(), "timeout", "no end",
     FAST),
    ("trap", ADD, kernel('asm volatile("trap;");'), plan(), "crashed", "", FAST),
    ("too_much_shared", ADD, kernel("big[0] = 0; " + GOOD, EXTERN), plan("ww_shared(p, 300000);"), "plan_failed",
     "shared", FAST),
    ("static_plus_dynamic", ADD, kernel("__shared__ float more[8192]; more[threadIdx.x] = big[threadIdx.x]; scratch[0] "
                                        "= more[0];" + GOOD, EXTERN),
     plan("ww_shared(p, 220000);"), "refused", "shared memory", FAST),
    ("too_few_arguments", ADD, HONEST, plan().replace("\tww_arg_i32(p, (int)x->size[1]);\n", ""), "refused",
     "parameters", FAST),
    ("wrong_argument", ADD, HONEST, plan().replace("ww_arg_i64(p, x->numel)", "ww_arg_i32(p, (int)x->numel)"),
     "refused", "bytes", FAST),
    ("too_many_resident", ADD, COOPERATIVE, COOPERATIVE_PLAN.replace("GRID", "100000"), "refused", "fit at once", FAST),
    ("device_global", ADD, kernel("state++; " + GOOD, "__device__ int state;"), plan(), "refused", "state", FAST),
    ("does_not_compile", ADD, kernel("syntax error"), plan(), "compile_failed", "error", FAST),
    ("plan_refuses", ADD, HONEST, plan('ww_fail(p, "not today");'), "plan_failed", "not today", FAST),
    ("honest_after_faults", ADD, HONEST, plan(), "ok", "", FULL),
]


def examples():
    """The hand-written solutions beside their tasks, as cases."""
    for path in sorted(glob.glob(os.path.join(SOURCE, "examples/solutions/cuda/*/"))):
        name = os.path.basename(os.path.dirname(path))
        task = os.path.join(SOURCE, "examples/cuda", name + ".py")
        if not os.path.exists(task):
            continue
        text = [open(p).read() for p in (task, path + "kernels.cu", path + "plan.c")]
        yield (f"example_{name}", *text, "ok", "", FULL)


def times_problem(v):
    """What is wrong with the verdict of a solution against itself with its call timed, or ""."""
    ratio, call, device = v["speedup"]["solution"], v["time"]["call_us"], v["time"]["device_us"]
    if not ratio or 1 - 1 / ratio["lo"] > 0.05 or 1 - ratio["hi"] > 0.05:
        return f"against itself: {ratio}"
    if call is None or not 0.8 * device < call < device + 1000:
        return f"call_us {call} beside device_us {device}: {v['diagnostics'][:300]}"
    if not v["speedup_call"]["eager"] or not 1 <= v["attempts"] <= 3 or v["disturbed"] != bool(v["disturbance"]):
        return f"speedup_call {v['speedup_call']}, attempts {v['attempts']}, disturbance {v['disturbance']!r}"
    return ""


def times():
    """A solution against itself, and the exported operator's call."""
    start = time.monotonic()
    itself = os.path.join(h.dir.name, "itself")
    options = ("--baselines", "eager", "--baseline", itself, "--call")
    v, code, err, _ = h.judge("itself", ADD, HONEST, plan(), options)
    why = problem(v, code, err, "ok", "") or times_problem(v)
    print(f"{'not ok' if why else 'ok':<6} {'itself_and_call':<20} {v['status'] if v else '-':<14} "
          f"{time.monotonic() - start:5.1f} s  "
          f"{why or summary(v)}", flush=True)
    return bool(why)


def order_problem(log):
    """What is wrong with the stages of a batch's first verdict, or ""."""
    alone = [line for line in log if "imports PyTorch by itself" in line and "namespaces" not in line]
    stages = [line.split("stage: ")[1] for line in log if "stage: " in line]
    at = {word: next((i for i, s in enumerate(stages) if s.startswith(word)), -1)
          for word in ("compiling the baseline", "running the solution", "timing the solution")}
    if alone:
        return alone[0]
    order = list(at.values())
    return "" if order[0] >= 0 and order == sorted(order) else f"stages {at}"


def first_of_a_batch():
    """Its worker is a fork, and its baseline is compiled before the solution is verified."""
    start = time.monotonic()
    job = {"id": 1, "task": h.write("first.py", ADD), "depth": "decide",
           "solution": {"kernels": HONEST, "plan": plan()}}
    env = dict(h.env, WARPWRIGHT_LOG="debug", XDG_CACHE_HOME=os.path.join(h.dir.name, "cache"))
    argv = [BINARY, "judge", "--batch", "-", "--target", "cuda", "--baselines", "eager,compile"]
    done = subprocess.run(argv, env=env, input=json.dumps(job) + "\n", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=280)
    v = json.loads(done.stdout or "{}").get("verdict")
    why = problem(v, done.returncode, done.stderr[-400:], "ok", "") or order_problem(done.stderr.splitlines())
    print(f"{'not ok' if why else 'ok':<6} {'first_of_a_batch':<20} {v['status'] if v else '-':<14} "
          f"{time.monotonic() - start:5.1f} s  {why or summary(v)}", flush=True)
    return bool(why)


# The add task on two streams, joined by events; its solution is the add task's.
FORKED = ADD.replace("        return torch.relu(x + self.bias) * 2\n", """\
        here, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            a = torch.relu(x + self.bias)
        b = torch.relu(x + self.bias)
        here.wait_stream(side)
        return a + b
""")


def connections_of_workers():
    """A module whose call uses several streams gets a worker with the driver's number of hardware connections.  (Of
    cuDNN's recurrent layers the capture may be a chain: they are no test of it.)"""
    start, said, why = time.monotonic(), "a call of the module uses several streams", ""
    env = dict(h.env, WARPWRIGHT_LOG="info", XDG_CACHE_HOME=os.path.join(h.dir.name, "cache-streams"))
    for name, source, again in (("one", ADD, 0), ("several", FORKED, 1)):
        argv = h.command(f"streams-{name}", source, HONEST, plan(), ("--baselines", "eager"))
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=280)
        if done.stderr.count(said) != again or done.returncode:
            why += f"{name}: exit {done.returncode}, {done.stderr.count(said)} workers started again: " \
                   f"{(done.stdout + done.stderr)[-300:]} "
    print(f"{'not ok' if why else 'ok':<6} {'connections_of_workers':<20} {time.monotonic() - start:5.1f} s  {why}",
          flush=True)
    return bool(why)


def jobs(chosen, quick):
    """One batch, so that a task is opened once; a fault costs a runner and nothing else."""
    tasks = {}
    for name, task, kernels, p, _, _, more in chosen:
        if task not in tasks:
            tasks[task] = h.write(f"task{len(tasks)}.py", task)
        yield {"id": name, "task": tasks[task], "solution": {"kernels": kernels, "plan": p},
               **(FAST if quick else more)}


def main(names):
    quick = "--quick" in names
    names = [n for n in names if not n.startswith("-")]
    chosen = {c[0]: c for c in CASES + list(examples()) if not names or c[0] in names}
    others = [f for f in (times, first_of_a_batch, connections_of_workers)
              if (f.__name__ in names if names else not quick)]
    failed, count = 0, len(chosen) + len(others)
    for r, seconds in stream("cuda", list(jobs(chosen.values(), quick))):
        name, _, _, text, status, word, _ = chosen[r["id"]]
        v = r.get("verdict")
        why = problem(v, 0 if status == "ok" else 1, "", status, word) if v else r["error"]
        if v and v["library_only"] and v["nondeterministic"] and "ww_conv(" not in text:
            why = why or f"library products, and {v['nondeterministic']} of {v['repeats']} repeats with other bits"
        failed += bool(why)
        print(f"{'not ok' if why else 'ok':<6} {seconds:5.1f} s  {name:<20} {v['status'] if v else '-':<14} "
              f"{why or summary(v)}", flush=True)
    for f in others:
        failed += f()
    print(f"{count - failed} passed, {failed} failed")
    return failed != 0


sys.exit(main(sys.argv[1:]))
