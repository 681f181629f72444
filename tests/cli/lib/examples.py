"""The examples of the cpu target as the parts of one task, for tests that look at all of them and can start PyTorch
once."""
import os
import re

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))),
                      "examples/cpu")
EXAMPLES = sorted(n[:-3] for n in os.listdir(FOLDER) if n.endswith(".py"))
# With matrix products or convolutions in them, and without.
GROUPS = {"products": ["attention", "conv_bias_relu", "conv_transpose_gelu", "linear_gelu", "mlp", "swiglu"],
          "rows": ["softmax", "layernorm_gelu", "rmsnorm", "residual_layernorm", "cumsum", "cross_entropy"]}
JOINED = """import torch
import torch.nn as nn

PARTS = {}
for name, text in TEXTS.items():
    PARTS[name] = {}
    exec(text, PARTS[name])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name, part in PARTS.items():
            setattr(self, name, part["Model"](*part["get_init_inputs"]()))

    def forward(self, ARGUMENTS):
        return CALLS


def get_inputs():
    return [x for part in PARTS.values() for x in part["get_inputs"]()]


def get_init_inputs():
    return []
"""


def smaller(name):
    """The same task with the numbers of its one line of sizes divided."""
    def shrink(match):
        sizes = [int(v) for v in match.group(2).split(",")]
        return match.group(1) + " = " + ", ".join(str(v // 8 if v >= 1024 else v // 4 if v >= 64 else v // 2 if v >= 32
                                                      else v) for v in sizes)
    with open(os.path.join(FOLDER, name + ".py"), encoding="utf-8") as f:
        text = f.read()
    changed, n = re.subn(r"^([a-z_]+(?:, [a-z_]+)*) = (\d+(?:, \d+)*)$", shrink, text, flags=re.M)
    if n != 1:
        raise SystemExit(f"Bail out! {name}: the line of sizes was not found")
    return changed


def joined(names):
    """One task of all of them: the arguments of each, one after the other, and a tuple of what they return."""
    texts = {name: smaller(name) for name in names}
    takes = {name: re.search(r"def forward\(self, (.*)\)", text).group(1).split(", ") for name, text in texts.items()}
    calls = "".join(f"self.{name}({', '.join(f'{name}_{a}' for a in takes[name])}), " for name in names)
    every = ", ".join(f"{name}_{a}" for name in names for a in takes[name])
    return f"TEXTS = {texts!r}\n" + JOINED.replace("ARGUMENTS", every).replace("CALLS", f"({calls})")
