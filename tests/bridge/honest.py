"""Random modules, and what an honest solution of each might write: the same task with other roundings.

    tests/bridge/honest.py [--modules N] [--first SEED] [--compile]

A module is a chain of one to five pieces of the families that tasks are made of, some with a scale of their own for
each row or column. Its honest outputs are

    backwards   every product, convolution, sum, softmax and norm in fp32 with its terms the other way round, in chunks
    one by one  the same, with one term added after the other: as inexact as a plain kernel
    laid out    inputs and parameters of other strides (channels last, transposed)
    rounded     the fp64 result rounded once
    compiled    torch.compile's (--compile; seconds each)

Rule strict must take each of them for every kind of draw.  Prints what it refused, how many neighbours were asked, and
counts; exit code 1 where something was refused."""

import argparse
import os
import random
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bridge"))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from wwbridge import facts  # noqa: E402
from wwbridge.task import Task  # noqa: E402

aten = torch.ops.aten
KINDS = ((1.0, 0.0, "init"), (1.0, 0.0, "redraw"), (2.0**-6, 0.0, "redraw"), (64.0, 0.0, "redraw"),
         (1.0, 3.0, "redraw"))

# name: (rank that it wants, __init__, forward); C channels or columns, N a number of its own.  {i} is the piece's
# number.
PIECES = {
    "linear": (0, "self.fc{i} = nn.Linear(C, {n})", "x = self.fc{i}(x)"),
    "product": (0, "self.w{i} = nn.Parameter(torch.randn(C, {n}) / C ** 0.5)", "x = x @ self.w{i}"),
    "layer norm": (0, "self.norm{i} = nn.LayerNorm(C)", "x = self.norm{i}(x)"),
    "rms norm": (0, "self.g{i} = nn.Parameter(torch.ones(C))",
                 "x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.g{i}"),
    "softmax": (0, "", "x = torch.softmax(x, -1)"),
    "log softmax": (0, "", "x = F.log_softmax(x, -1)"),
    "softmax over rows": (0, "", "x = torch.softmax(x, 0)"),
    "relu": (0, "", "x = torch.relu(x)"),
    "sparse relu": (0, "", "x = torch.relu(x - 2)"),
    "gelu": (0, "", "x = F.gelu(x)"),
    "tanh gelu": (0, "", "x = F.gelu(x, approximate='tanh')"),
    "silu": (0, "", "x = F.silu(x)"),
    "sigmoid": (0, "", "x = torch.sigmoid(x)"),
    "tanh": (0, "", "x = torch.tanh(x)"),
    "softplus": (0, "", "x = F.softplus(x)"),
    "logarithm": (0, "", "x = torch.log1p(x.abs())"),
    "quotient": (0, "", "x = x / (1 + x.abs())"),
    "centred": (0, "", "x = x - x.mean(-1, keepdim=True)"),
    "centred over rows": (0, "", "x = x - x.mean(0, keepdim=True)"),
    "standardised": (0, "", "x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)"),
    "running sum": (0, "", "x = torch.cumsum(x, -1)"),
    "running sum over rows": (0, "", "x = torch.cumsum(x, 0)"),
    "residual": (0, "self.r{i} = nn.Linear(C, C)", "x = x + self.r{i}(x)"),
    "gated": (0, "self.u{i} = nn.Linear(C, C)\nself.v{i} = nn.Linear(C, C)", "x = F.silu(self.u{i}(x)) * self.v{i}(x)"),
    "decay over rows": (0, "", "x = x * 0.7 ** torch.arange(x.shape[0], dtype=x.dtype).view(-1, *[1] * (x.dim() - 1))"),
    "decay over columns": (0, "", "x = x * torch.logspace(0, -{m}, x.shape[-1])"),
    "triangle": (2, "", "x = x.tril()"),
    "attention": (3, "self.q{i} = nn.Linear(C, 3 * C)",
                  "q, k, v = self.q{i}(x).view(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)\n"
                  "x = F.scaled_dot_product_attention(q, k, v, is_causal={b}).transpose(1, 2).reshape(x.shape)"),
    "scores": (3, "", "x = torch.softmax(torch.baddbmm(torch.full((1, 1, 1), 0.1), x, x.transpose(1, 2)) / C, -1)"),
    "convolution": (4, "self.c{i} = nn.Conv2d(x.shape[1], {n}, 3, padding=1)", "x = self.c{i}(x)"),
    "depthwise": (4, "self.d{i} = nn.Conv2d(x.shape[1], x.shape[1], 3, groups=x.shape[1])", "x = self.d{i}(x)"),
    "transposed": (4, "self.t{i} = nn.ConvTranspose2d(x.shape[1], {n}, 2, stride=2)", "x = self.t{i}(x)"),
    "batch norm": (4, "self.b{i} = nn.BatchNorm2d(x.shape[1])", "x = self.b{i}(x)"),
    "group norm": (4, "self.n{i} = nn.GroupNorm(1, x.shape[1])", "x = self.n{i}(x)"),
    "instance norm": (4, "", "x = F.instance_norm(x)"),
    "average": (4, "", "x = F.avg_pool2d(x, 2)"),
    "largest": (4, "", "x = F.max_pool2d(x, 2)"),
    "squeezed": (4, "", "x = x * torch.sigmoid(x.mean((2, 3), keepdim=True))"),
    "variance": (2, "", "x = x.var(-1, keepdim=True) * x"),
    "distance": (2, "", "x = torch.cdist(x, x.flip(0) + 1)"),
    "log of a sum": (2, "", "x = x - torch.logsumexp(x, -1, keepdim=True)"),
    "cosine": (2, "", "x = F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).t()"),
    "sums": (3, "", "x = x.sum(1)"),
    "means": (4, "", "x = x.mean((2, 3))"),
    "half": (0, "", "x = x.half().float()"),
}
SHAPES = {2: [(96, 64), (33, 130), (128, 256), (7, 512), (300, 17)], 3: [(4, 32, 64), (2, 17, 96), (3, 64, 32)],
          4: [(2, 4, 16, 16), (3, 8, 9, 11), (2, 16, 12, 12)]}
LAST = ["", "", "", "", ".half()", ".bfloat16()"]


def source(seed, many_sizes=False):
    """(text, what it is made of).  The pieces' sizes are found by running them on the way.  many_sizes: the output's
    rows, columns and first indices are of sizes from 1 to 1e-12."""
    r = random.Random(seed)
    rank = r.choice([2, 2, 3, 4])
    shape = r.choice(SHAPES[rank])
    init, forward, what = [], [], []
    x = torch.zeros(shape)
    for i in range(r.randint(1, 5)):
        name = r.choice([n for n, (want, _, _) in PIECES.items() if want in (0, x.dim())])
        fill = {"i": i, "n": r.choice([8, 16, 48, 65]), "m": r.choice([3, 12, 30]), "b": r.choice([True, False])}
        made, step = (re.sub(r"\bC\b", "x.shape[-1]", t.format(**fill)) for t in PIECES[name][1:])
        scope = {"torch": torch, "nn": torch.nn, "F": F, "x": x}

        class Self:
            pass

        scope["self"] = Self()
        try:
            exec(made, scope)
            exec(step, scope)
        except Exception:
            continue
        if not 64 <= scope["x"].numel() <= 1 << 17:
            continue
        init.append(made.replace("x.shape", str(list(x.shape))))
        forward.append(step)
        what.append(name)
        x = scope["x"]
    last = r.choice(LAST)
    if many_sizes:
        last = ""
        for d in r.sample(range(x.dim()), r.randint(1, x.dim())):
            forward.append(
                f"x = x * torch.logspace(0, -{r.choice([6, 9, 12])}, x.shape[{d}]).view(-1, "
                f"{', '.join(['1'] * (x.dim() - 1 - d))})"
            )
            what.append("sizes")
    body = "\n".join(forward).replace("\n", "\n        ")
    setup = "\n".join(s for s in init if s).replace("\n", "\n        ")
    text = f"""import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {setup or 'pass'}
    def forward(self, x):
        {body or 'pass'}
        return x{last}
def get_inputs():
    return [torch.randn({', '.join(map(str, shape))})]
def get_init_inputs():
    return []
"""
    return text, f"{tuple(shape)} {', '.join(what)}{last}"


class Otherwise(TorchDispatchMode):
    """fp32 with other roundings: `chunk` terms at a time, from the end."""

    def __init__(self, chunk):
        super().__init__()
        self.chunk = chunk

    def product(self, a, b):
        k = a.shape[-1]
        step = self.chunk if self.chunk > 1 else max(1, k // 128)
        out = None
        for end in range(k, 0, -step):
            part = torch.matmul(a[..., max(0, end - step) : end], b[..., max(0, end - step) : end, :])
            out = part if out is None else out + part
        return out

    def total(self, x, dims, keep):
        dims = range(x.dim()) if dims is None or not len(dims) else [d % x.dim() for d in dims]
        for d in sorted(dims, reverse=True):
            y = x.transpose(d, -1).flip(-1).contiguous()
            y = (
                y.cumsum(-1)[..., -1:]
                if self.chunk == 1
                else torch.stack([p.sum(-1, keepdim=True) for p in y.split(self.chunk, -1)]).sum(0)
            )
            x = y.transpose(d, -1)
        return x if keep else x.squeeze(tuple(dims))

    def mean(self, x, dims, keep=False):
        total = self.total(x, dims, keep)
        return total * (total.numel() / x.numel())

    def exp(self, x):
        return torch.exp2(x * 1.4426950408889634)

    def norm(self, x, dims, eps):
        m = self.mean(x, dims, True)
        rest = x - m
        return rest * torch.rsqrt(self.mean(rest * rest, dims, True) + eps)

    def softmax(self, x, dim, *_):
        e = self.exp(x - x.amax(dim, keepdim=True))
        return e * (1 / self.total(e, [dim], True))

    def log_softmax(self, x, dim, *_):
        x = x - x.amax(dim, keepdim=True)
        return x - torch.log(self.total(self.exp(x), [dim], True))

    def attention(self, q, k, v, dropout=0.0, causal=False, **kw):
        s = self.product(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
        if causal:
            s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
        return (self.product(self.softmax(s, -1), v), None)

    def layer_norm(self, x, shape, w, b, eps):
        dims = list(range(-len(shape), 0))
        y = self.norm(x, dims, eps)
        y = y if w is None else y * w
        return (y if b is None else y + b, None, None)

    def batch_norm(self, x, w, b, mean, var, training, momentum, eps):
        view = [1, -1] + [1] * (x.dim() - 2)
        y = self.norm(x, [0,
                          *range(2, x.dim())], eps) if training else (x - mean.view(view)) * torch.rsqrt(var.view(view)
                              + eps)
        y = y if w is None else y * w.view(view)
        return (y if b is None else y + b.view(view), None, None)

    def group_norm(self, x, w, b, n, c, hw, groups, eps):
        y = self.norm(x.reshape(n, groups, -1), [-1], eps).view(x.shape)
        view = [1, -1] + [1] * (x.dim() - 2)
        y = y if w is None else y * w.view(view)
        return (y if b is None else y + b.view(view), None, None)

    def convolution(self, x, w, b, stride, padding, dilation, transposed, out_padding, groups):
        args = (stride, padding, dilation, transposed, out_padding, groups)
        if groups > 1 or x.shape[1] < 2:
            y = aten.convolution(x.flip(2), w.flip(2), None, *args).flip(2)
        else:
            dim, half = (0 if transposed else 1), x.shape[1] // 2
            n = x.shape[1]
            y = aten.convolution(x[:, half:], w.narrow(dim, half,
                                                       n - half), None, *args) + aten.convolution(x[:, :half],
                                                           w.narrow(dim, 0, half), None, *args)
        return y if b is None else y + b.view(1, -1, *[1] * (x.dim() - 2))

    RULES = {
        "aten.mm.default": lambda s, a, b: s.product(a, b), "aten.bmm.default": lambda s, a, b: s.product(a, b),
        "aten.addmm.default": lambda s, c, a, b, **kw: s.product(a, b) + c,
        "aten.baddbmm.default": lambda s, c, a, b, **kw: s.product(a, b) + c,
        "aten.sum.dim_IntList": lambda s, x, d, keep=False, **kw: s.total(x, d, keep),
        "aten.sum.default": lambda s, x, **kw: s.total(x, None, False),
        "aten.mean.dim": lambda s, x, d, keep=False, **kw: s.mean(x, d, keep),
        "aten.mean.default": lambda s, x, **kw: s.mean(x, None),
        "aten._softmax.default": softmax, "aten._log_softmax.default": log_softmax,
        "aten._scaled_dot_product_flash_attention_for_cpu.default": attention,
        "aten.native_layer_norm.default": layer_norm,
        "aten.native_batch_norm.default": batch_norm, "aten.native_group_norm.default": group_norm,
        "aten.convolution.default": convolution,
        "aten.exp.default": lambda s, x: s.exp(x), "aten.sigmoid.default": lambda s, x: 1 / (1 + s.exp(-x)),
        "aten.tanh.default": lambda s, x: torch.sign(x) * -torch.expm1(-2 * x.abs()) / (1 + torch.exp(-2 * x.abs())),
        "aten.silu.default": lambda s, x: x / (1 + s.exp(-x)),
        "aten.cumsum.default": lambda s, x, d, **kw: s.scan(x, d),
    }

    def scan(self, x, dim):
        y = x.transpose(dim, -1).contiguous()
        parts = y.split(32, -1)
        out, carry = [], 0
        for p in parts:
            out.append(p.cumsum(-1) + carry)
            carry = out[-1][..., -1:]
        return torch.cat(out, -1).transpose(dim, -1)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        rule = self.RULES.get(str(func))
        floats = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        if rule is None or not floats or floats[0].dtype != torch.float32:
            return func(*args, **(kwargs or {}))
        return rule(self, *args, **(kwargs or {}))


def laid_out(task):
    """The same values in other strides."""
    def other(t):
        if t.dim() == 4:
            return t.contiguous(memory_format=torch.channels_last)
        return t.mT.contiguous().mT if t.dim() >= 2 else t

    before = [(p, p.data) for p in task.params.values()]
    for p, data in before:
        p.data = other(data)
    try:
        return [o.clone() for o in task.forward([other(x) if isinstance(x, torch.Tensor) else x for x in task.leaves])]
    finally:
        for p, data in before:
            p.data = data


def otherwise(chunk):
    def run(task):
        with Otherwise(chunk):
            return [o.clone() for o in task.forward()]
    return run


HONEST = {"backwards": otherwise(16), "one by one": otherwise(1), "laid out": laid_out,
          "rounded": lambda task: [e.to(d.dtype) for e, d in zip(task._references.exact, task._references.default)]}


def compiled(task):
    call = torch.compile(task.model)
    task.restore()
    with torch.no_grad():
        return [t.clone() for t in task._flat(call(*task.args()))]


def box(shape, r):
    """A random box of at least 64 elements and at most half of the tensor: of each dimension all, one index, or a
    range."""
    for _ in range(200):
        ranges = []
        for n in shape:
            at, length = r.randrange(n), r.choice([n, n, 1, r.randint(1, n)])
            ranges.append(slice(min(at, n - length), min(at, n - length) + length))
        n = 1
        for s in ranges:
            n *= s.stop - s.start
        total = 1
        for size in shape:
            total *= size
        if 64 <= n <= total // 2:
            return tuple(ranges)
    return None


def bf16(o, w, other, r):
    return o[w].bfloat16().to(o.dtype)


# What a box of a right output becomes; `other`: the same output of another draw.
DEFECTS = {"zeros": lambda o, w, other, r: torch.zeros_like(o[w]),
           "wrong by a tenth": lambda o, w, other, r: o[w] * 1.1,
           "stale": lambda o, w, other, r: other[w], "bfloat16": bf16,
           "moved by one": lambda o, w, other, r: o[w].roll(1, r.randrange(o.dim())),
           "a sign": lambda o, w, other, r: -o[w]}


def spoil(seed, target):
    """(what was planted, what was missed): every defect once in a box of its own, in a module whose outputs are of many
    sizes."""
    task, r = Task(source(seed, many_sizes=True)[0], "random.py", seed, target), random.Random(seed)
    task.share()
    task.draw(7, 1.0, 0.0, "redraw")
    other = task.forward()[0].clone()
    task.draw(8, 1.0, 0.0, "redraw")
    task.reference()
    right, planted, missed = task._references.default[0], 0, []
    for name, change in DEFECTS.items():
        where = box(right.shape, r)
        if where is None or not all(task._references.finite):
            continue
        wrong = right.clone()
        wrong[where] = change(right, where, other, r)
        before, after = right[where].double(), wrong[where].double()
        if float((after - before).norm()) < 1e-3 * float(before.norm()) or float(before.abs().max()) < 1e-37:
            continue
        task._shared.outputs[0].copy_(wrong)
        c = task.compare("strict")
        whole = c["pass"] or c["outputs"][0]["part"] != ""
        planted += 1
        if c["pass"]:
            missed.append(
                f"{seed} {name} at {where} of {tuple(right.shape)}: {float(before.norm()):.1e} of "
                f"{float(right.double().norm()):.1e}"
            )
        COUNT["only by a part"] += whole and not c["pass"]
    task.close()
    return planted, missed


COUNT = {"only by a part": 0}


def examine(seed, target, ways, draws=KINDS):
    """[(what was refused)], comparisons, draws on which neighbours were asked"""
    text, what = source(seed)
    task, refused, n, asked = Task(text, "random.py", seed, target), [], 0, 0
    task.share()
    for j, (scale, shift, params) in enumerate(draws):
        task.draw(1000 * seed + j, scale, shift, params)
        task.reference()
        refs = task._references
        if not all(refs.finite):
            continue
        with torch.no_grad():
            for way, run in ways.items():
                outputs = run(task)
                task.restore()
                for o, found in zip(task._shared.outputs, outputs):
                    o.copy_(found)
                c = task.compare("strict")
                n += 1
                if not c["pass"]:
                    row = next(r for r in c["outputs"] if not r["pass"])
                    refused.append(
                        f"{seed} {way}, x * {scale} + {shift} {params}: {what}: part {row['part'] or None}, error "
                        f"{row['err_rel']:.2e} of {row['limit_rel']:.2e}, "
                        f"own {row['e_rel']:.1e}, rms {row['rms']:.1e}, {row['violations']} of {row['numel']}"
                    )
        asked += bool(refs.seen)
    task.close()
    return refused, n, asked


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--modules", type=int, default=100)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--defects", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    target = facts.Target("cpu", 0, torch)
    ways = {"compiled": compiled} if a.compile else HONEST
    start, total, asked, bad = time.monotonic(), 0, 0, 0
    if a.defects:
        for seed in range(a.first, a.first + a.modules):
            n, missed = spoil(seed, target)
            total, bad = total + n, bad + len(missed)
            print("".join(f"missed: {line}\n" for line in missed), end="", flush=True)
        print(
            f"{a.modules} modules, {total} defects, {bad} missed, {COUNT['only by a part']} found by a part alone, "
            f"{time.monotonic() - start:.0f} s"
        )
        return bad * 100 > total
    for seed in range(a.first, a.first + a.modules):
        try:
            refused, n, k = examine(seed, target, ways)
        except Exception as e:
            if type(e).__name__ != "Refuse":
                raise
            print(f"{seed}: no task: {e}")
            continue
        total, asked, bad = total + n, asked + k, bad + len(refused)
        print("".join(f"refused: {line}\n" for line in refused), end="", flush=True)
    print(
        f"{a.modules} modules, {total} honest outputs, {bad} refused, neighbours asked on {asked} draws, "
        f"{time.monotonic() - start:.0f} s"
    )
    return bad != 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
