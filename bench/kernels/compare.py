"""Check cookbook solutions, and time them together with PyTorch.

    python3 pack.py OUT                     (any machine with gcc) build one library for each solution and variant
    python3 compare.py OUT [--only a,b] [--no-baselines] [--checks] [--ragged] [--log FILE]

For each solution: the strict rule's error bounds against fp64 on five draws (plain, scaled by 2^-6 and 2^6, shifted by
3, plain again), the same bits twice, then device time in CUDA graphs, L2 flushed before every replay, candidate and
baselines interleaved; medians.  --ragged checks small and odd shapes instead, of the solutions and of everything under
checks/, without timing; with LAB_SMALL=1 only the smallest, for compute-sanitizer.
"""
import argparse
import copy
import ctypes
import glob
import importlib.util
import json
import os
import statistics
import sys
import time

import torch

DTYPES = {torch.float32: 1, torch.float64: 2, torch.float16: 3, torch.bfloat16: 4, torch.int8: 5, torch.int16: 6,
          torch.int32: 7, torch.int64: 8, torch.uint8: 9, torch.bool: 10}


def load_module(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Lab:
    """One solution bound to tensors."""

    def __init__(self, library, kernels, includes, inputs, params, outputs):
        self.c = ctypes.CDLL(library)
        self.c.lab_error.restype = ctypes.c_char_p
        self.c.lab_node_name.restype = ctypes.c_char_p
        self.c.lab_begin(torch.cuda.get_device_properties(0).multi_processor_count)
        for which, tensors in ((0, inputs), (1, params), (2, outputs)):
            for name, t in tensors:
                ints = ctypes.c_longlong * 8
                self.c.lab_tensor(which, name.encode(), DTYPES[t.dtype], t.dim(), ints(*t.shape), ints(*t.stride()),
                                  ctypes.c_ulonglong(t.data_ptr()))
        if self.c.lab_build(kernels.encode(), includes.encode(), None, 0):
            raise RuntimeError(self.c.lab_error().decode())

    def run(self):
        if self.c.lab_run(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)):
            raise RuntimeError(self.c.lab_error().decode())

    def node_times(self, flush):
        out = []
        for i in range(self.c.lab_node_count()):
            times = []
            for _ in range(5):
                flush()
                a, b = torch.cuda.Event(True), torch.cuda.Event(True)
                a.record()
                self.c.lab_run_node(i, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
                b.record()
                torch.cuda.synchronize()
                times.append(a.elapsed_time(b) * 1e3)
            out.append("%s %.0f" % (self.c.lab_node_name(i).decode(), statistics.median(times)))
        return out

    def close(self):
        self.c.lab_end()


def graph_of(fn):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            fn()
    stream.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, stream=stream):
        fn()
    return g


def time_graphs(graphs, flush, repeats=21):
    times = {k: [] for k in graphs}
    for r in range(repeats + 3):
        for k, g in graphs.items():
            flush()
            a, b = torch.cuda.Event(True), torch.cuda.Event(True)
            a.record()
            g.replay()
            b.record()
            torch.cuda.synchronize()
            if r >= 3:
                times[k].append(a.elapsed_time(b) * 1e3)
    return {k: statistics.median(v) for k, v in times.items()}


def draw(inputs, kind):
    scale = {0: 1.0, 1: 2.0 ** -6, 2: 2.0 ** 6}.get(kind, 1.0)
    shift = 3.0 if kind == 3 else 0.0
    return [x * scale + shift if x.is_floating_point() else x for x in inputs]


def redraw(model):
    for name, p in model.named_parameters():
        if p.dim() == 1:
            with torch.no_grad():
                p.uniform_(0.5, 1.5) if "weight" in name else p.uniform_(-0.5, 0.5)


def errors(y, ref):
    """Norm-wise and largest error, in slices so that the fp64 copies stay small."""
    num = den = big = 0.0
    for a, r in zip(y.reshape(-1).split(1 << 27), ref.reshape(-1).split(1 << 27)):
        d = a.double() - r
        num += float((d * d).sum())
        den += float((r * r).sum())
        big = max(big, float(d.abs().max()))
        if not bool(torch.isfinite(a).all()) and bool(torch.isfinite(r).all()):
            return float("nan"), float("nan"), 0.0
    return (num / max(den, 1e-300)) ** 0.5, big, (den / ref.numel()) ** 0.5


def reference(model, xs):
    """The reference in fp64, by a copy of the model: the solution holds the addresses of the model's own parameters."""
    m = copy.deepcopy(model).double()
    return m(*[x.double() if x.is_floating_point() else x for x in xs])


def folder(args, name):
    checks = os.path.join(args.pack, "checks", name)
    return checks if os.path.isdir(checks) else os.path.join(args.pack, "solutions", name)


def bind(args, name, variant, model, xs, y):
    params = [(k, v) for k, v in list(model.named_parameters()) + list(model.named_buffers())]
    return Lab(os.path.join(args.pack, "so", "%s.%s.so" % (name, variant)), folder(args, name) + "/kernels.cu",
               args.includes, [("x%d" % i, x) for i, x in enumerate(xs)], params, [("output0", y)])


def check(lab, model, base, xs, y, kinds):
    worst, line = True, []
    for kind in kinds:
        for x, d in zip(xs, draw(base, kind)):
            x.copy_(d)
        eager = model(*xs)
        ref = reference(model, xs)
        e, emax, rms = errors(eager, ref)
        del eager
        y.fill_(float("nan"))
        lab.run()
        torch.cuda.synchronize()
        e2, e2max, _ = errors(y, ref)
        first = y.clone()
        y.fill_(float("nan"))
        lab.run()
        same = bool(torch.equal(first, y))
        floor = {torch.bfloat16: 2.0 ** -9, torch.float16: 2.0 ** -12}.get(y.dtype, 1e-5)
        ok = e2 <= max(4 * e, floor) and e2max <= 16 * max(emax, floor * rms) and same
        worst = worst and ok
        line.append("%s%s E %.1e ours %.1e max %.1e/%.1e" % ("ok" if ok else "BAD", "" if same else " NONDETERMINISTIC",
                                                             e, e2, emax, e2max))
        del ref, first
    return worst, line


RAGGED = {
    "softmax": [([], lambda: [torch.randn(37, 1000)]), ([], lambda: [torch.randn(5, 33)]),
                ([], lambda: [torch.randn(3, 50257)]), ([], lambda: [torch.randn(9, 20004)])],
    "layernorm_gelu": [([768], lambda: [torch.randn(3, 17, 768)]), ([77], lambda: [torch.randn(5, 77)])],
    "rmsnorm": [([4096], lambda: [torch.randn(7, 4096)]), ([130], lambda: [torch.randn(130, 130)])],
    "residual_layernorm": [([2050], lambda: [torch.randn(7, 2050), torch.randn(7, 2050)])],
    "cumsum": [([], lambda: [torch.rand(3, 1)]), ([], lambda: [torch.rand(5, 1023)]),
               ([], lambda: [torch.rand(2, 100000)])],
    "cross_entropy": [([], lambda: [torch.randn(33, 1001), torch.randint(0, 1001, (33,))])],
    "linear_gelu": [([77, 333], lambda: [torch.randn(5, 61, 77)]), ([512, 256], lambda: [torch.randn(1, 512)]),
                    ([9000, 200], lambda: [torch.randn(130, 9000)])],
    "mlp": [([130, 514], lambda: [torch.randn(3, 100, 130)])],
    "swiglu": [([64, 200], lambda: [torch.randn(3, 100, 64)])],
    "conv_bias_relu": [([20, 36], lambda: [torch.randn(3, 20, 17, 23)]),
                       ([64, 130], lambda: [torch.randn(5, 64, 7, 7)])],
    "conv_transpose_gelu": [([20, 36], lambda: [torch.randn(3, 20, 9, 11)])],
    "attention": [([], lambda: [torch.randn(2, 3, 300, 64) for _ in range(3)]),
                  ([], lambda: [torch.randn(1, 2, 129, 128) for _ in range(3)]),
                  ([], lambda: [torch.randn(1, 2, 64, 64) for _ in range(3)])],
}


def ragged(args, log):
    bad = 0
    for so in sorted(glob.glob(os.path.join(args.pack, "so", "*.base.so"))):
        name = os.path.basename(so).split(".")[0]
        if args.only and name not in args.only.split(","):
            continue
        if name in RAGGED:
            module = load_module(os.path.join(args.pack, "examples", name + ".py"))
        else:
            module = load_module(folder(args, name) + "/model.py")
        for init, make in RAGGED.get(name) or module.CASES:
            torch.manual_seed(1)
            if os.environ.get("LAB_SMALL") and sum(x.numel() for x in make()) > 100000:
                continue
            model = module.Model(*init)
            redraw(model)
            model = model.cuda()
            base = [x.cuda() for x in make()]
            xs = [x.clone() for x in base]
            try:
                y = torch.empty_like(model(*xs))
                # At small sizes cuDNN computes in fp32.
                exact = os.path.exists(os.path.join(args.pack, "so", name + ".exact.so"))
                lab = bind(args, name, "exact" if exact else "base", model, xs, y)
                ok, line = check(lab, model, base, xs, y, [0, 2, 3])
                lab.close()
            except Exception as err:
                ok, line = False, [str(err)[:300]]
            bad += not ok
            log("ragged %s %s %s %s" % (name, init, [tuple(x.shape) for x in base], " | ".join(line)))
    return bad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("pack")
    ap.add_argument("--only")
    ap.add_argument("--no-baselines", action="store_true")
    ap.add_argument("--checks", action="store_true", help="all five draws for every variant, not only for the base")
    ap.add_argument("--ragged", action="store_true")
    ap.add_argument("--nodes", action="store_true")
    ap.add_argument("--log")
    args = ap.parse_args()
    args.includes = os.path.join(args.pack, "include") + ":" + os.environ.get("LAB_INCLUDE", "/usr/local/cuda/include")
    out = open(args.log, "a") if args.log else None

    def log(text):
        print(text, flush=True)
        if out:
            out.write(text + "\n")
            out.flush()

    torch.set_grad_enabled(False)
    log("%s torch %s cuda %s" % (torch.cuda.get_device_name(0), torch.__version__, torch.version.cuda))
    if args.ragged:
        bad = ragged(args, log)
        log("ragged: %d bad" % bad)
        return 1 if bad else 0
    spoil = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    flush = spoil.zero_
    rows = []
    names = args.only.split(",") if args.only else [n for n in sorted(os.listdir(os.path.join(args.pack, "solutions")))
                                                    if n in RAGGED]
    for name in names:
        try:
            start = time.time()
            torch.manual_seed(0)
            module = load_module(os.path.join(args.pack, "examples", name + ".py"))
            torch.set_default_device("cuda")
            model = module.Model(*module.get_init_inputs())
            base = module.get_inputs()
            torch.set_default_device("cpu")
            redraw(model)
            xs = [x.clone() for x in base]
            y = torch.empty_like(model(*xs))
            graphs, labs, line = {}, [], []
            for so in sorted(glob.glob(os.path.join(args.pack, "so", name + ".*.so"))):
                variant = os.path.basename(so).split(".")[1]
                try:
                    lab = bind(args, name, variant, model, xs, y)
                    labs.append(lab)
                    ok, line = check(lab, model, base, xs, y,
                                     [0, 1, 2, 3, 4] if args.checks or variant == "base" else [0, 3])
                    log("%s.%s %s" % (name, variant, " | ".join(line)))
                    if args.nodes:
                        log("%s.%s nodes (us): %s" % (name, variant, ", ".join(lab.node_times(flush))))
                    graphs["ok " + variant if ok else "BAD " + variant] = graph_of(lab.run)
                except Exception as err:
                    log("%s.%s FAILED %s" % (name, variant, str(err)[:600]))
                    torch.cuda.synchronize()
            if not args.no_baselines:
                graphs["eager"] = graph_of(lambda: model(*xs))
                torch._dynamo.reset()
                compiled = torch.compile(model)
                graphs["compile"] = graph_of(lambda: compiled(*xs))
            times = time_graphs(graphs, flush)
            log("%s times (us): %s  [%.0f s]" % (name, ", ".join("%s %.1f" % kv for kv in times.items()),
                                                 time.time() - start))
            rows.append((name, times))
            graphs.clear()
            for lab in labs:
                lab.close()
            del model, base, xs, y
            torch.cuda.empty_cache()
        except Exception as err:
            log("%s FAILED %s" % (name, str(err)[:600]))
            if "illegal" in str(err) or "launch failure" in str(err):
                log("the device is lost; stopping")
                return 1
    log(
        "| example | eager us | compile us | best us | variant | vs eager | vs compile |\n|---|---|---|---|---|---|---|"
    )
    for name, t in rows:
        mine = {k: v for k, v in t.items() if k.startswith("ok ")}
        if mine:
            best = min(mine, key=mine.get)
            e, c = t.get("eager", float("nan")), t.get("compile", float("nan"))
            log("| %s | %.0f | %.0f | %.0f | %s | %.2f | %.2f |" % (name, e, c, mine[best], best, e / mine[best],
                                                                    c / mine[best]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
