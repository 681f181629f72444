"""The ten kernels of this bench in both forms: kernels/NAME.cu holds a kernel, rows.cuh what they share, and the rest
follows from the kernel's signature.  In it x and y are inputs, weight (made as ones) and bias (zeros) parameters, out
is the output, one number a row where no line `// out: {...}` says otherwise.

    python3 solutions.py DIR        write them as DIR/NAME/{kernels.cu,plan.c,model_new.py}
"""

import os
import re
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels")
MADE_AS = {"weight": "ones", "bias": "zeros"}

MODEL = '''"""A kernel as a KernelBench solution: load_inline and ModelNew."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

%(kernels)s
torch::Tensor run(%(tensors)s)
{
	auto out = torch::empty(%(out)s, x.options());
	%(name)s<<<x.size(0), THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(%(pointers)s);
	return out;
}
"""

module = load_inline(name="ww_%(name)s", cpp_sources="torch::Tensor run(%(tensors)s);",
                     cuda_sources=SOURCE, functions=["run"], verbose=False)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
%(made)s
    def forward(self, %(inputs)s):
        return module.run(%(given)s)
'''

PLAN = """#include <ww/plan.h>

void plan(struct ww_plan *p)
{
%(tensors)s
	if (x->rank != 2 || x->size[1] != 4096 || !x->contiguous)
		ww_fail(p, "rows of 4096 only");
	ww_launch(p, "%(name)s", x->size[0], 1, 1, 256, 1, 1);
%(arguments)s
}
"""


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


def names():
    return sorted(n[:-3] for n in os.listdir(HERE) if n.endswith(".cu"))


def arguments(name):
    """The names of the kernel's arguments, without out."""
    signature = re.search(rf"\b{name}\((.*?)\)", read(name + ".cu"))[1]
    return re.findall(r"const float \*(\w+)", signature)


def kernels(name):
    return read("rows.cuh") + "\n" + read(name + ".cu")


def plan(name):
    args, inputs = arguments(name), iter(range(2))
    source = {a: f'ww_param(p, "{a}")' if a in MADE_AS else f"ww_input(p, {next(inputs)})" for a in args} | {
        "out": "ww_output(p, 0)"
    }
    return PLAN % {"name": name, "tensors": "\n".join(f"\tconst struct ww_tensor *{a} = {s};"
                                                      for a, s in source.items()),
                   "arguments": "\n".join(f"\tww_arg_buf(p, {a}->buf, 0);" for a in source)}


def model_new(name):
    args, out = arguments(name), re.search(r"^// out: (.*)$", read(name + ".cu"), re.M)
    return MODEL % {
        "name": name, "kernels": kernels(name), "out": out[1] if out else "{x.size(0)}",
        "tensors": ", ".join(f"torch::Tensor {a}" for a in args),
        "pointers": ", ".join(f"{a}.data_ptr<float>()" for a in [*args, "out"]),
        "made": "".join(f"        self.{a} = nn.Parameter(torch.{MADE_AS[a]}(cols))\n" for a in args if a in MADE_AS),
        "inputs": ", ".join(a for a in args if a not in MADE_AS),
        "given": ", ".join(f"self.{a}" if a in MADE_AS else a for a in args)}


def write(where):
    for name in names():
        os.makedirs(os.path.join(where, name), exist_ok=True)
        for file, text in ("kernels.cu", kernels(name)), ("plan.c", plan(name)), ("model_new.py", model_new(name)):
            with open(os.path.join(where, name, file), "w", encoding="utf-8") as f:
                f.write(text)


if __name__ == "__main__":
    write(sys.argv[1])
