"""The CUDA side of the reference worker, exercised directly: run with the project's Python on a machine with a GPU.

    python tests/bridge/gpu_selftest.py [TASK.py ...]

Prints one line a check and ends with "gpu_selftest: N passed, M failed"; exits 77 where there is no GPU.  A second
process (this one) maps the exported allocations through the driver, as a runner does, and writes the candidate's
outputs itself.
"""

import ctypes
import os
import statistics
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import client as bridge  # noqa: E402

BIG = '''
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.bn = nn.BatchNorm1d(n)
        self.conv = nn.Conv1d(1, 4, 5, padding=2)
    def forward(self, x):
        y = torch.relu(self.bn(self.fc(x)))
        return y, self.conv(y[:, None, :256]).sum(dim=1), y.argmax(dim=1)
def get_inputs():
    return [torch.randn(4096, 2048)]
def get_init_inputs():
    return [2048]
'''
UNCAPTURABLE = '''
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x.cpu().to(x.device) * 2  # copies only: a product on the host would have torch.compile build C++
def get_inputs():
    return [torch.randn(1024, 1024)]
def get_init_inputs():
    return []
'''
CONVOLUTIONS = '''
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.ModuleList([nn.Conv2d(64, 64, 3), nn.Conv2d(3, 32, 3),
            nn.Conv2d(17, 16, 9, stride=2, bias=False), nn.Conv2d(64, 64, 3, groups=64),
            nn.ConvTranspose2d(64, 32, 4, stride=2)])
    def forward(self, x):
        return [conv(x[:, :conv.in_channels].contiguous()) for conv in self.each]
def get_inputs():
    return [torch.randn(64, 64, 56, 56)]
def get_init_inputs():
    return []
'''
HALF = '''
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(512, 512).half()
    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = self.fc(x) @ x.t()
        return torch.softmax(y.float(), -1), y.to(torch.bfloat16)
def get_inputs():
    return [torch.randn(256, 512).half()]
def get_init_inputs():
    return []
'''
passed, failed = [], []
started = time.monotonic()


def say(mark, text):
    """Each line with its time, at once: of a run that was cut off the last line says where."""
    print(f"{mark:<8}{time.monotonic() - started:5.1f} s  {text}", flush=True)


def check(name, ok, note=""):
    (passed if ok else failed).append(name)
    say("ok" if ok else "FAILED", name + (f"  ({note})" if note else ""))


class Mapped:
    """An imported allocation, mapped read-write here."""

    def __init__(self, lib, fd, nbytes, device):
        class Access(ctypes.Structure):
            _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int)]

        u64 = ctypes.c_uint64
        handle, address = u64(), u64()
        rc = lib.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd), 1)
        rc = rc or lib.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_size_t(0), u64(0),
                                           u64(0))
        rc = rc or lib.cuMemMap(address, ctypes.c_size_t(nbytes), ctypes.c_size_t(0), handle, u64(0))
        access = Access(1, device, 3)
        rc = rc or lib.cuMemSetAccess(address, ctypes.c_size_t(nbytes), ctypes.byref(access), ctypes.c_size_t(1))
        if rc:
            raise RuntimeError(f"driver error {rc}")
        self.address = address.value
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address.value, False),
                                         "strides": None, "version": 3}


def convolutions_in_tf32(torch):
    """What the worker says of them is what their errors show."""
    c, names = bridge.Client("cuda", device=0, threads=0, bandwidth=False), {}
    try:
        c.ask("load", source=CONVOLUTIONS, name="convolutions.py", seed=1)
        said = list(c.ask("tf32")[0]["tf32"].values())
    finally:
        c.close()
    exec(CONVOLUTIONS, names)
    with torch.no_grad(), torch.device("cuda"):
        model, (x,) = names["Model"](), names["get_inputs"]()
        errors = [float((y - z).norm() / z.norm()) for y, z in zip(model(x), model.double()(x.double()))]
    check("which convolutions are in TF32", said == [e > 2e-5 for e in errors], f"{said}, errors {errors}")


def view(torch, mapped, form):
    dtype = getattr(torch, form["dtype"])
    return torch.as_tensor(mapped, device="cuda:0").view(dtype).as_strided(form["sizes"], form["strides"])


def whole_task(torch, name, source, expect_graph=True):
    c = bridge.Client("cuda", device=0, threads=0, bandwidth=True)
    try:
        _whole_task(torch, c, name, source, expect_graph)
    finally:
        c.close()


def _whole_task(torch, c, name, source, expect_graph):
    start = time.monotonic()
    c.ask("load", source=source, name=name + ".py", seed=7)
    say("", f"{name}: load {time.monotonic() - start:.2f} s")
    graph, _ = c.ask("graph")
    check(f"{name}: graph", bool(graph["nodes"]), f"{graph['source']}, {[n['op'] for n in graph['nodes']][:6]}")
    table, fds = c.ask("buffers")
    rows = table["buffers"]
    forms = graph["inputs"] + graph["params"] + graph["outputs"]
    check(f"{name}: buffers", len(rows) == len(fds) == len(forms))
    lib = ctypes.CDLL("libcuda.so.1")
    mapped = [Mapped(lib, fd, r["alloc_bytes"], 0) for fd, r in zip(fds, rows)]
    outputs = [view(torch, m, f) for m, f, r in zip(mapped, forms, rows) if r["role"] == "output"]
    inputs = [view(torch, m, f) for m, f, r in zip(mapped, forms, rows) if r["role"] == "input"]

    def draw(seed, scale=1.0, shift=0.0, params="redraw"):
        begin = time.monotonic()
        c.ask("draw", seed=seed, scale=scale, shift=shift, params=params)
        return time.monotonic() - begin

    draw(11)
    first = [t.clone() for t in inputs]
    torch.cuda.synchronize()  # the worker writes them anew, and does not wait for this process
    draw(12)
    check(f"{name}: another seed, other inputs", any(not torch.equal(a, b) for a, b in zip(first, inputs)))
    draw(11)
    check(f"{name}: same seed, same bits", all(torch.equal(a, b) for a, b in zip(first, inputs)))
    draw(11, 2.0**-6, 3.0)
    good = all(torch.allclose(a.double() * 2.0**-6 + 3, b.double(), rtol=1e-2, atol=1e-2)
               for a, b in zip(first, inputs) if a.is_floating_point())
    check(f"{name}: scaled and shifted", good)
    times = [draw(100 + i, params="keep") for i in range(5)]
    say("", f"{name}: a draw takes {statistics.median(times) * 1e3:.2f} ms")

    for params in ("init", "redraw"):
        draw(21, params=params)
        begin = time.monotonic()
        ref = c.ask("compare", rule="strict")[0]["reference"]
        note = f"{ref['dtype']}, E {[o['e_rel'] for o in ref['outputs']]}, {time.monotonic() - begin:.2f} s, " \
               f"not promoted {ref['not_promoted']}"
        check(f"{name}: reference with {params} parameters", ref["finite"], note)
    for t in outputs:
        t.view(torch.uint8).fill_(255) if t.is_contiguous() and t.dim() else None
    torch.cuda.synchronize()
    begin = time.monotonic()
    bad, _ = c.ask("compare", rule="strict")
    check(f"{name}: unwritten outputs fail", not bad["pass"],
          f"{[o['pattern'] for o in bad['outputs']]} {time.monotonic() - begin:.2f} s")

    model, args = rebuild(torch, source, c, graph, mapped, forms, rows)
    with torch.no_grad():
        result = model(*args)
    result = [result] if isinstance(result, torch.Tensor) else list(result)
    for o, r in zip(outputs, result):
        o.copy_(r)
    torch.cuda.synchronize()
    for rule in ("strict", "paper"):
        begin = time.monotonic()
        good, _ = c.ask("compare", rule=rule)
        check(f"{name}: PyTorch's own result passes {rule}", good["pass"],
              f"{[(o['err_rel'], o['limit_rel']) for o in good['outputs']]} {time.monotonic() - begin:.2f} s")
    flat = next((o.view(-1) for o in outputs if o.is_contiguous() and o.numel() > 2 and o.is_floating_point()), None)
    if flat is not None:
        flat[-1] += 100
        torch.cuda.synchronize()
        bad, _ = c.ask("compare", rule="strict")
        check(f"{name}: one wrong element is found", not bad["pass"]
              and sum(o["violations"] for o in bad["outputs"]) == 1)
    d, _ = c.ask("degenerate", seed_a=5, seed_b=6)
    check(f"{name}: not degenerate", not d["strict"]["degenerate"], str(d))

    for which in ("eager", "compile"):
        b, _ = c.ask("baseline", which=which)
        check(f"{name}: baseline {which}", b["available"], f"{b['reason']} {b['device_method']} {b['seconds']:.1f} s")
        if not b["available"]:
            continue
        check(f"{name}: {which} device method", (b["device_method"] == "graph") == expect_graph, b["device_method"])
        for mode in ("device", "call"):
            us = c.ask("time", which=which, mode=mode, n=20, flush_l2=True)[0]["us"]
            check(f"{name}: time {which} {mode}", len(us) == 20 and min(us) > 0,
                  f"median {statistics.median(us):.1f} us")
    draw(31, params="keep")
    c.ask("compare", rule="strict")
    us = c.ask("time", which="eager", mode="device", n=3, flush_l2=False)[0]["us"]
    check(f"{name}: times after another draw", min(us) > 0, f"{us}")
    c.ask("free", all=True)
    for fd in fds:
        os.close(fd)


def rebuild(torch, source, c, graph, mapped, forms, rows):
    """The task here, on the shared inputs and parameters: what an honest candidate would compute."""
    module = {}
    exec(source, module)
    with torch.device("cuda"):
        model = module["Model"](*module["get_init_inputs"]()).cuda()
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    tensors = [view(torch, m, f) for m, f in zip(mapped, forms)]
    args = [t.clone() for t, r in zip(tensors, rows) if r["role"] == "input"]
    with torch.no_grad():
        for t, r in zip(tensors, rows):
            if r["role"] == "param" and r["name"] in own:
                own[r["name"]].copy_(t)
    if graph["scalars"]:
        args = [x if not isinstance(x, torch.Tensor) else None for x in module["get_inputs"]()]
        fill = iter([t.clone() for t, r in zip(tensors, rows) if r["role"] == "input"])
        args = [next(fill) if x is None else x for x in args]
    return model, args


def main():
    try:
        import torch
    except ImportError:
        print("no PyTorch")
        return 77
    if not torch.cuda.is_available():
        print("no GPU: nothing tested")
        return 77
    torch.zeros(1, device="cuda")
    c = bridge.Client("cuda", device=0, threads=0, bandwidth=True)
    say("", f"hello: {c.hello['versions']} {c.hello['device']}")
    d = c.hello["device"]
    check("device facts", all(d[k] > 0 for k in ("cc", "sm_count", "shared_per_block_bytes", "l2_bytes", "memory_bytes",
                                                   "memory_bytes_per_s", "regs_per_sm", "max_threads_per_sm")))
    peaks, _ = c.ask("peaks")
    check("peaks", peaks["bf16_flops"] > peaks["fp32_flops"] > 0, str(peaks))
    try:
        c.ask("load", source=BIG.replace("4096, 2048", "1 << 22, 1 << 20"), name="big.py", seed=1)
        check("too large is refused", False)
    except bridge.Failed as e:
        check("too large is refused", e.kind == "memory" and "memory" in str(e), str(e))
    c.ask("load", source=BIG, name="big.py", seed=1)
    check("the worker lives on after that", True)
    c.close()

    convolutions_in_tf32(torch)
    tasks = [("big", BIG, True), ("half", HALF, True), ("uncapturable", UNCAPTURABLE, False)]
    for path in sys.argv[1:]:
        with open(path) as f:
            tasks.append((os.path.basename(path)[:-3], f.read(), True))
    for name, source, graph in tasks:
        try:
            whole_task(torch, name, source, graph)
        except Exception as e:
            traceback.print_exc()
            check(f"{name}: runs to the end", False, f"{type(e).__name__}: {e}")
    print(f"gpu_selftest: {len(passed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
