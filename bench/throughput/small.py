"""Small tasks and honest kernels for them, as many as one wants, from a seed: a chain of pointwise steps, then nothing
or one reduction over the rows of a matrix.  A kernel computes what the task says, in one pass over global memory; its
variants differ in block size, in the width of loads, and in whether a row stays in shared memory.

    python3 small.py DIR [--seed 1] [--tasks 20] [--variants 20] [--target cuda]
    DIR/TASK.py, DIR/TASK/VARIANT/{kernels.cu,plan.c}
"""

import argparse
import os
import random

# PyTorch and C on v (and y, weight, bias where they are needed).
STEPS = {
    "relu": ("F.relu(v)", "fmaxf(v, 0.0f)"),
    "leaky": ("F.leaky_relu(v, 0.1)", "(v > 0.0f ? v : 0.1f * v)"),
    "silu": ("F.silu(v)", "v / (1.0f + expf(-v))"),
    "gelu": ("F.gelu(v)", "0.5f * v * (1.0f + erff(v * 0.70710678f))"),
    "tanh": ("torch.tanh(v)", "tanhf(v)"),
    "sigmoid": ("torch.sigmoid(v)", "1.0f / (1.0f + expf(-v))"),
    "abs": ("v.abs()", "fabsf(v)"),
    "square": ("v * v", "v * v"),
    "clamp": ("v.clamp(-1.5, 2.5)", "fminf(fmaxf(v, -1.5f), 2.5f)"),
    "scale": ("v * 0.75", "v * 0.75f"),
    "shift": ("v + 0.25", "v + 0.25f"),
    "weight": ("v * self.weight", "v * w"),
    "bias": ("v + self.bias", "v + b"),
    "gate": ("v * y", "v * y"),
    "add": ("v + y", "v + y"),
}
NEEDS = {"weight": "weight", "bias": "bias", "gate": "y", "add": "y"}

# The end of forward(), and the passes of a kernel: EACH(i, v) goes over the row's elements, ALL_SUM and ALL_MAX over
# the block.
ENDS = {
    "none": ("v", "EACH { out[at + i] = v; } END"),
    "sum": ("v.sum(-1)", "float s = 0; EACH { s += v; } END s = ALL_SUM(s); LAST out[row] = s;"),
    "mean": ("v.mean(-1)", "float s = 0; EACH { s += v; } END s = ALL_SUM(s); LAST out[row] = s / COLS;"),
    "max": ("v.amax(-1)", "float m = -INF; EACH { m = fmaxf(m, v); } END m = ALL_MAX(m); LAST out[row] = m;"),
    "lse": (
        "torch.logsumexp(v, -1)",
        "float m = -INF, s = 0; EACH { m = fmaxf(m, v); } END m = ALL_MAX(m); AGAIN { s += expf(v - m); } END "
        "s = ALL_SUM(s); LAST out[row] = m + logf(s);",
    ),
    "softmax": (
        "torch.softmax(v, -1)",
        "float m = -INF, s = 0; EACH { m = fmaxf(m, v); } END m = ALL_MAX(m); AGAIN { s += expf(v - m); } END "
        "s = 1.0f / ALL_SUM(s); AGAIN { out[at + i] = expf(v - m) * s; } END",
    ),
    "rms": (
        "v * torch.rsqrt((v * v).mean(-1, keepdim=True) + 1e-5)",
        "float s = 0; EACH { s += v * v; } END s = 1.0f / sqrtf(ALL_SUM(s) / COLS + 1e-5f); AGAIN { out[at + i] = v * "
        "s; } END",
    ),
    "norm": (
        "F.layer_norm(v, (v.shape[-1],))",
        "float s = 0, q = 0; EACH { s += v; } END s = ALL_SUM(s) / COLS; AGAIN { q += (v - s) * (v - s); } END "
        "q = 1.0f / sqrtf(ALL_SUM(q) / COLS + 1e-5f); AGAIN { out[at + i] = (v - s) * q; } END",
    ),
}
SATURATES = {"tanh", "sigmoid", "clamp"}  # the largest of a row would be about the same in every draw

MODULE = '''"""{name}: {chain}."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
{made}
    def forward(self, {inputs}):
        v = x
{steps}
        return {end}


def get_inputs():
    return [{draws}]


def get_init_inputs():
    return [{cols}]
'''

CUDA = """#define THREADS %(threads)d
#define VEC %(vec)d
#define KEEP %(keep)d
#define COLS %(cols)d
#define INF __int_as_float(0x7f800000)

static __device__ __forceinline__ float point(float x, float y, float w, float b)
{
	float v = x;
%(steps)s
	return v;
}

template <bool IS_MAX> static __device__ float all(float v)
{
	__shared__ float part[32];
	for (int s = 16; s; s >>= 1) {
		float u = __shfl_xor_sync(0xffffffffu, v, s);
		v = IS_MAX ? fmaxf(v, u) : v + u;
	}
	__syncthreads();
	if (threadIdx.x %% 32 == 0)
		part[threadIdx.x / 32] = v;
	__syncthreads();
	v = part[0];
	for (int k = 1; k < THREADS / 32; k++)
		v = IS_MAX ? fmaxf(v, part[k]) : v + part[k];
	return v;
}
#define ALL_SUM(v) all<false>(v)
#define ALL_MAX(v) all<true>(v)
#define LAST if (threadIdx.x == 0)

static __device__ __forceinline__ void load(float (&to)[VEC], const float *from)
{
#if VEC == 4
	float4 q = *(const float4 *)from;
	to[0] = q.x, to[1] = q.y, to[2] = q.z, to[3] = q.w;
#else
	to[0] = *from;
#endif
}

#define ROW(first)                                                         \\
	for (int c = threadIdx.x * VEC; c < COLS; c += THREADS * VEC) {    \\
		float xs[VEC] = {0}, ys[VEC] = {0}, ws[VEC] = {0}, bs[VEC] = {0}; \\
		if (first || !KEEP) {                                      \\
			load(xs, x + at + c);                              \\
			%(loads)s                                          \\
		}                                                          \\
		for (int k = 0; k < VEC; k++) {                            \\
			int i = c + k;                                     \\
			float v = first || !KEEP ? point(xs[k], ys[k], ws[k], bs[k]) : row_of[i]; \\
			if (first && KEEP)                                 \\
				row_of[i] = v;
#define EACH ROW(1)
#define AGAIN ROW(0)
#define END } }

extern "C" __global__ void __launch_bounds__(THREADS) %(name)s(%(args)s)
{
	__shared__ float row_of[KEEP ? COLS : 1];
	const long long row = blockIdx.x, at = row * COLS;
	%(end)s
}
"""

CPU = """#include <ww/cpu.h>
#include <math.h>
#define COLS %(cols)d
#define INF INFINITY

static inline float point(float x, float y, float w, float b)
{
	float v = x;
%(steps)s
	return v;
}
#define ALL_SUM(v) (v)
#define ALL_MAX(v) (v)
#define LAST
#define EACH for (int i = 0; i < COLS; i++) { float v = point(x[at + i], %(values)s);
#define AGAIN EACH
#define END }

WW_KERNEL(%(name)s)
{
%(unpack)s
	long long rows = WW_ARG(long long, %(n)d), first = b->x * %(threads)dLL;
	for (long long row = first; row < ww_min_ll(rows, first + %(threads)d); row++) {
		long long at = row * COLS;
		%(end)s
	}
}
"""

PLAN = """#include <ww/plan.h>

void plan(struct ww_plan *p)
{
%(tensors)s
	ww_launch(p, "%(name)s", %(grid)s, 1, 1, %(block)d, 1, 1);
%(arguments)s
}
"""


class Small:
    """One task: a name, its module and its kernels."""

    def __init__(self, name, steps, end, rows, cols):
        self.name, self.steps, self.end, self.rows, self.cols = name, steps, end, rows, cols
        needs = {NEEDS[s] for s in steps if s in NEEDS}
        self.inputs = ["x", *(["y"] if "y" in needs else [])]
        self.params = [w for w in ("weight", "bias") if w in needs]

    def module(self):
        made = "".join(f"        self.{w} = nn.Parameter(torch.{'ones' if w == 'weight' else 'zeros'}(cols))\n"
                       for w in self.params)
        return MODULE.format(name=self.name, chain=", ".join([*self.steps, self.end]), made=made,
                             inputs=", ".join(self.inputs),
                             steps="\n".join(f"        v = {STEPS[s][0]}" for s in self.steps), end=ENDS[self.end][0],
                             draws=", ".join(f"torch.randn({self.rows}, {self.cols})" for _ in self.inputs),
                             cols=self.cols)

    def variants(self, target):
        """Block sizes, widths of loads and uses of shared memory; on the cpu rows a block."""
        if target == "cpu":
            return [(n, 1, 0) for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]
        return [(threads, vec, keep) for threads in (256, 512, 128, 1024, 64) for vec in (4, 1) for keep in (1, 0)]

    def solution(self, target, variant, note=""):
        """{"kernels", "plan"} as a job of judge --batch takes them; `note` makes the text another one."""
        threads, vec, keep = variant
        args = [*self.inputs, *self.params, "out"]
        short = {"weight": "w", "bias": "b"}
        text = {
            "name": "small",
            "cols": self.cols,
            "threads": threads,
            "vec": vec,
            "keep": keep,
            "end": ENDS[self.end][1],
            "n": len(args),
            "steps": "\n".join(f"\tv = {STEPS[s][1]};" for s in self.steps),
            "args": ", ".join(("float *" if a == "out" else "const float *") + a for a in args),
            "loads": " ".join(f"load({short.get(a, a)}s, {a} + {'at + ' if a == 'y' else ''}c);" for a in args[1:-1]),
            "values": ", ".join(
                f"{a}[{'at + ' if a == 'y' else ''}i]" if a in args else "0" for a in ("y", "weight", "bias")
            ),
            "unpack": "\n".join(
                f"\t{'float' if a == 'out' else 'const float'} *{a} = "
                f"WW_ARG({'float' if a == 'out' else 'const float'} *, {i});"
                for i, a in enumerate(args)
            ),
        }
        source = {"x": "ww_input(p, 0)", "y": "ww_input(p, 1)", "weight": 'ww_param(p, "weight")',
                  "bias": 'ww_param(p, "bias")', "out": "ww_output(p, 0)"}
        arguments = "".join(f"\tww_arg_buf(p, {a}->buf, 0);\n" for a in args) + ("\tww_arg_i64(p, x->size[0]);\n"
            if target == "cpu" else "")
        plan = PLAN % {"name": "small", "tensors": "\n".join(f"\tconst struct ww_tensor *{a} = {source[a]};"
                                                             for a in args),
                       "grid": f"ww_cdiv(x->size[0], {threads})" if target == "cpu" else "x->size[0]",
                       "block": 1 if target == "cpu" else threads, "arguments": arguments.rstrip("\n")}
        return {"kernels": (CPU if target == "cpu" else CUDA) % text + (f"// {note}\n" if note else ""), "plan": plan}


def tasks(seed, n, low=1 << 20, high=1 << 24):
    """n different ones of low to high elements: 10 to 300 us of eager PyTorch on an H200."""
    g, out, seen = random.Random(seed), [], set()
    while len(out) < n:
        steps = tuple(g.choice(sorted(STEPS)) for _ in range(g.randint(1, 4)))
        end = g.choice(sorted(ENDS))
        cols = 4 * g.randint(64, 2048)
        rows = max(8, round(low * (high / low) ** g.random()) // cols)
        if (steps, end) in seen or steps.count("square") > 1 or (end == "none" and len(steps) < 2) or (end == "max"
            and SATURATES & set(steps)):
            continue
        seen.add((steps, end))
        out.append(Small(f"small_{seed}_{len(out)}", steps, end, rows, cols))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("where")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tasks", type=int, default=20)
    p.add_argument("--variants", type=int, default=20)
    p.add_argument("--target", default="cuda")
    args = p.parse_args()
    for t in tasks(args.seed, args.tasks):
        os.makedirs(os.path.join(args.where, t.name), exist_ok=True)
        with open(os.path.join(args.where, t.name + ".py"), "w", encoding="utf-8") as f:
            f.write(t.module())
        for k, variant in enumerate(t.variants(args.target)[: args.variants]):
            where = os.path.join(args.where, t.name, str(k))
            os.makedirs(where, exist_ok=True)
            s = t.solution(args.target, variant)
            for name, text in ("kernels.c" if args.target == "cpu" else "kernels.cu", s["kernels"]), ("plan.c",
                s["plan"]):
                with open(os.path.join(where, name), "w", encoding="utf-8") as f:
                    f.write(text)


if __name__ == "__main__":
    main()
