"""See profile_selftest.sh."""
import json
import math
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../judge"))
from harness import BINARY, LINEAR_PLAN, SOURCE, Harness, add_task, linear_task, need_driver  # noqa: E402

need_driver()
h = Harness("cuda")
OUT = os.environ.get("OUT")
ADD = add_task(4096, 8192)  # 128 MiB in, 128 MiB out
PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, "bias"), *y = ww_output(p, 0);
	int s = ww_scratch(p, x->bytes);
	ww_memset(p, y->buf, 0, 4096, 0);
	ww_copy(p, s, 0, x->buf, 0, x->bytes);
	ww_launch(p, "k", ww_cdiv(x->numel, 1024), 1, 1, 256, 1, 1);
	ww_arg_buf(p, s, 0);
	ww_arg_buf(p, b->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i64(p, x->numel);
	ww_arg_i32(p, (int)x->size[1]);
	MORE
}
"""
LAUNCH = PLAN[PLAN.index("\tww_launch") : PLAN.index("\tMORE")]
TWICE = PLAN.replace("MORE", LAUNCH.strip() + " ww_pdl(p);")
KERNEL = """extern "C" __global__ void k(const float *x, const float *bias, float *y, long long n, int cols)
{
	long long first = blockIdx.x * 1024ll + threadIdx.x;
	BODY
}
"""
GOOD = ("for (int j = 0; j < 4; j++) { long long i = first + j * 256; if (i < n) { float v = x[i] + bias[i % cols]; "
        "y[i] = v > 0 ? 2 * v : 0; } }")
SPILLS = ("volatile float a[200]; for (int j = 0; j < 200; j++) a[j] = x[(first + j * 37) % n]; float s = 0; "
          "for (int j = 0; j < 200; j++) s += a[(j * 7 + cols) % 200]; " + GOOD + " if (s == 12345.f) y[0] = s;")
LINEAR = linear_task(4096, 4096, 4096)


def text(path):
    with open(os.path.join(SOURCE, path)) as f:
        return f.read()


def bench(name):
    base = f"bench/kernels/solutions/{name}/"
    return text(f"examples/cuda/{name}.py"), text(base + "kernels.cu"), text(base + "plan.c")


def near(a, b, share):
    return a is not None and b is not None and abs(a - b) <= share * max(abs(a), abs(b))


def whole_solution(o, nodes=None):
    """What is wrong with the profile of a solution that runs, or ""."""
    t = o["totals"]
    if nodes is not None and len(o["nodes"]) != nodes:
        return f"{len(o['nodes'])} nodes, not {nodes}"
    if not near(t["us"], t["nodes_us"], 0.15) and abs(t["us"] - t["nodes_us"]) > 3 + 2 * len(o["nodes"]):
        return f"the plan takes {t['us']} us, its nodes {t['nodes_us']}"
    for n in o["nodes"]:
        if not (n["us"] > 0 and n["alone_us"] > 0 and n["sentence"]):
            return f"node {n['node']}: {n['us']} us, alone {n['alone_us']}"
        if n["kind"] == "launch" and not (n["registers"] >= 8 and n["blocks_per_sm"] >= 1 and 0 < n["occupancy"] <= 1
                                          and n["waves"] > 0):
            return f"node {n['node']}: resources {n['registers']} {n['blocks_per_sm']} {n['occupancy']}"
    if "launch" in [n["kind"] for n in o["nodes"]]:
        s = o["sass"]
        if not s["available"]:
            return f"no machine code: {s['reason']}"
        if s["instructions"] < 10 or not s["loop"] or not s["mix"]:
            return f"machine code of {s['instructions']} instructions"
    c = o["counters"]
    if not c["available"]:
        return "" if c["reason"] else "no counters and no reason"
    hot = max(o["nodes"], key=lambda n: n["us"])
    k = hot.get("counters")
    if not k:  # other tests run on the device beside this one
        return "" if c["disturbed"] else "no counters of the longest node"
    moved = k.get("dram_read_bytes", 0) + k.get("dram_write_bytes", 0)
    if not 0.8 * hot["alone_us"] < k.get("duration_ns", 0) * 1e-3 < 1.2 * hot["alone_us"] + 60:
        return f"counters say {k.get('duration_ns')} ns, the clock {hot['alone_us']} us"
    return "" if moved > 0 else f"no bytes moved: {k}"


def streams(o):
    """The bandwidth kernel must look like one."""
    n = o["nodes"][2]
    if n["limit"] != "memory" or o["nodes"][1]["limit"] != "memory" or o["nodes"][0]["limit"] != "short" or not n[
        "of_memory"] > 0.6:
        return f"limit {n['limit']}, {n['of_memory']} of the bandwidth: {n['sentence']}"
    moved = sum(n.get("counters", {}).get(k, 0) for k in ("dram_read_bytes", "dram_write_bytes"))
    if moved and not near(moved, n["bytes"], 0.2):
        return f"counters saw {moved} bytes, the buffers have {n['bytes']}"
    return whole_solution(o, 3)


def spilled(o):
    n = o["nodes"][2]
    return whole_solution(o, 3) or ("" if n["local_bytes"] >= 800 else f"{n['local_bytes']} bytes of local memory")


def multiplied(o):
    n = o["nodes"][0]
    if n["peak"] != "fp32" or not 0.5 < n["of_compute"] < 1.2 or n["limit"] != "compute":
        return f"{n['of_compute']} of the {n['peak']} peak, limit {n['limit']}"
    return whole_solution(o, 1)


def reference(ops):
    def check(o):
        rows, t = o["operators"], o["totals"]
        if o["method"] != "kernels":
            return f"method {o['method']}"
        if sorted(r["op"] for r in rows) != sorted(ops):
            return f"operators {[r['op'] for r in rows]}"
        if not all(r["us"] > 0 and r["launches"] >= 1 and r["kernels"] for r in rows):
            return "an operator without kernels"
        if not near(t["us"], t["device_us"], 0.25):
            return f"kernels {t['us']} us, the captured module {t['device_us']} us"
        return "" if t["call_us"] >= 0.8 * t["us"] else f"a call takes {t['call_us']} us"
    return check


# name, task, kernels (None: the reference), plan, exit code and status, check or a word of the diagnostics, print the
# text
CASES = [
    ("reference_add", ADD, None, "", 0, "ok", reference(["aten.add.Tensor", "aten.relu.default", "aten.mul.Tensor"]),
     True),
    ("reference_linear", LINEAR, None, "", 0, "ok", reference(["aten.linear.default", "aten.relu.default"]), False),
    ("streams", ADD, KERNEL.replace("BODY", GOOD), PLAN.replace("MORE", ""), 0, "ok", streams, True),
    ("spills", ADD, KERNEL.replace("BODY", SPILLS), PLAN.replace("MORE", ""), 0, "ok", spilled, False),
    ("pdl", ADD, KERNEL.replace("BODY", 'asm volatile("griddepcontrol.wait;");' + GOOD), TWICE, 0, "ok",
     lambda o: whole_solution(o, 4), False),
    ("gemm", LINEAR, "/* library nodes only */\n", LINEAR_PLAN.replace("MATH", "WW_MATH_FP32"), 0, "ok", multiplied,
     True),
    ("softmax", *bench("softmax"), 0, "ok", whole_solution, False),
    ("mlp", *bench("mlp"), 0, "ok", whole_solution, True),
    ("crash", ADD, KERNEL.replace("BODY", GOOD + " y[n + 600000 + first] = 1;"), PLAN.replace("MORE", ""), 1, "crashed",
     "ILLEGAL_ADDRESS", False),
    ("broken", ADD, "syntax error", PLAN.replace("MORE", ""), 1, "compile_failed", "error", False),
]


def profile(name, task, kernels, plan, *options):
    path = h.write(f"{name}/task.py", task)
    args = [BINARY, "profile", path]
    if kernels is not None:
        h.write(f"{name}/kernels.cu", kernels)
        h.write(f"{name}/plan.c", plan)
        args.append(os.path.dirname(path))
    done = subprocess.run([*args, "--target", "cuda", *options], env=h.env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True,
                          timeout=280)
    return done.returncode, done.stdout, done.stderr.strip()


def judge(want_code, status, check, code, out, err):
    try:
        o = json.loads(out)
    except ValueError:
        return None, f"exit {code}: {err[:300]} {out[:200]}"
    if code != want_code or o["status"] != status:
        return o, f"exit {code}, {o['status']}: {o.get('diagnostics', '')[:300]}"
    if isinstance(check, str):
        return o, "" if check in o["diagnostics"] else o["diagnostics"][:300]
    return o, check(o)


def main(names):
    failed = 0
    chosen = [c for c in CASES if not names or c[0] in names]
    for name, task, kernels, plan, want_code, status, check, show in chosen:
        start = time.monotonic()
        try:
            o, why = judge(want_code, status, check, *profile(name, task, kernels, plan, "--json"))
        except (subprocess.TimeoutExpired, KeyError, TypeError) as e:
            o, why = None, f"{type(e).__name__}: {e}"
        failed += bool(why)
        t = o.get("totals", {}) if o else {}
        note = f"{t.get('us', math.nan):.1f} us; {t.get('sentence') or ''}" if t else (o or {}).get("diagnostics", "")[
            :100].replace("\n", " ")
        print(f"{'not ok' if why else 'ok':<6} {name:<18} {time.monotonic() - start:5.1f} s  {why or note}", flush=True)
        if o and OUT:
            with open(os.path.join(OUT, f"profile-{name}.json"), "w") as f:
                json.dump(o, f, indent=1)
        if show:
            print(profile(name, task, kernels, plan)[1], flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return failed != 0


sys.exit(main(sys.argv[1:]))
