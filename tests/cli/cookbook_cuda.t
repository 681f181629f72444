#!/usr/bin/env python3
# label: slow
# budget: 20 CPU-seconds
"""The cuda cookbook without a GPU: every recipe builds its plan, every kernel compiles for sm_90a with no spilled
register and no serialised wgmma.  What the kernels compute is checked on a GPU by bench/kernels/compare.py."""
import os
import subprocess
import sys
import tempfile

ROOT = os.environ.get("WW_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
LAB = os.path.join(ROOT, "bench/kernels")
CUDA = next((d for d in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda") if d
             and os.path.exists(d + "/include/nvrtc.h")), None)


def main():
    if not CUDA:
        print("1..0 # SKIP no CUDA toolkit with NVRTC")
        return 0
    lines = [l.split() for l in open(LAB + "/shapes.txt") if l.strip() and not l.startswith("#")]
    bad = 0
    print("1..%d" % len(lines))
    include = ["-I" + ROOT + "/include", "-I" + ROOT + "/skills/cuda/include", "-I" + CUDA + "/include"]
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(["cc", "-O0", "-w", "-DLAB_MAIN", *include, "-c", LAB + "/lab.c", "-o", tmp + "/lab.o"],
                       check=True)
        for i, (name, *tensors) in enumerate(lines, 1):
            where = next(d for d in (LAB + "/solutions/" + name, LAB + "/checks/" + name) if os.path.isdir(d))
            built = subprocess.run(["cc", "-O0", "-w", *include, where + "/plan.c", tmp + "/lab.o", "-o", tmp + "/lab",
                                    "-ldl"])
            run = subprocess.run([tmp + "/lab", where + "/kernels.cu", ROOT + "/skills/cuda/include:" + CUDA
                                  + "/include", tmp + "/cubin",
                                  *tensors], capture_output=True, text=True, env=dict(os.environ, LAB_VERBOSE="1"))
            spilled = [l for l in run.stdout.splitlines() if "spill" in l and " 0 bytes spill stores" not in l]
            # NVRTC makes a device variable of every static constant, and the judge refuses those: cookbook code uses
            # enums.
            sections = subprocess.run(["readelf", "-SW", tmp + "/cubin"], capture_output=True, text=True).stdout
            good = (built.returncode == 0 and run.returncode == 0 and not spilled and "(C75" not in run.stdout
                    and ".text" in sections and ".nv.global" not in sections)
            bad += not good
            print("%s %d - %s" % ("ok" if good else "not ok", i, name))
            if not good:
                print("".join("# %s\n" % l for l in run.stdout.splitlines()[-20:]), end="")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
