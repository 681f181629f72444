"""Build what compare.py runs: python3 pack.py OUT [NAME...].  One shared library for each solution and variant of
tunables."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ROWS = {"t128": ".threads=128", "t512": ".threads=512"}
VOCAB = {"c4": ".cluster=4,.threads=512", "loop": ".loop=1,.threads=512,.cluster=1"}
LOSS = {"t1024": ".threads=1024", "held": ".loop=0,.cluster=8,.threads=256"}
GEMM = {"n192": ".bn=192", "c2": ".cluster=2", "p8": ".promote=8", "c2p8": ".cluster=2,.promote=8"}
VARIANTS = {
    "softmax": VOCAB, "cross_entropy": LOSS, "layernorm_gelu": ROWS, "rmsnorm": ROWS, "residual_layernorm": ROWS,
    "cumsum": {"t256": ".threads=256", "t1024c2": ".threads=1024,.chunks=2"},
    "conv_bias_relu": {"n128": ".bn=128", "exact": ".exact=1"},
    "conv_transpose_gelu": {"n256": ".bn=256", "tw16": ".tw=16", "exact": ".exact=1"},
    "linear_gelu": GEMM, "mlp": {"c2p8": ".cluster=2,.promote=8", "p8": ".promote=8"},
    "swiglu": {"c2p8": ".cluster=2,.promote=8", "p8": ".promote=8"},
}


def main():
    out = sys.argv[1]
    names = sys.argv[2:] or sorted(os.listdir(os.path.join(HERE, "solutions"))
                                   + os.listdir(os.path.join(HERE, "checks")))
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(os.path.join(out, "so"))
    shutil.copytree(os.path.join(ROOT, "skills/cuda/include"), os.path.join(out, "include"))
    shutil.copytree(os.path.join(ROOT, "examples/cuda"), os.path.join(out, "examples"))
    shutil.copytree(os.path.join(HERE, "solutions"), os.path.join(out, "solutions"))
    shutil.copytree(os.path.join(HERE, "checks"), os.path.join(out, "checks"))
    shutil.copy(os.path.join(HERE, "compare.py"), out)
    cc = ["gcc", "-O1", "-fPIC", "-I" + os.path.join(ROOT, "include"), "-I" + os.path.join(ROOT, "skills/cuda/include"),
          "-I/usr/local/cuda/include"]
    lab = os.path.join(out, "so", "lab.o")
    subprocess.run(cc + ["-c", os.path.join(HERE, "lab.c"), "-o", lab], check=True)
    for name in names:
        plan = os.path.join(HERE, "checks", name, "plan.c")
        if name == "cpu":
            continue        # the other target's
        if not os.path.exists(plan):
            plan = os.path.join(HERE, "solutions", name, "plan.c")
        for variant, tune in [("base", "")] + list(VARIANTS.get(name, {}).items()):
            subprocess.run(cc + ["-w", "-shared", "-DTUNE=" + ("," + tune if tune else ""), plan, lab, "-o",
                                 os.path.join(out, "so", "%s.%s.so" % (name, variant)), "-ldl"], check=True)
    os.remove(lab)


if __name__ == "__main__":
    main()
