"""Modules with convolutions, drawn from a seed: shapes that are not round, `per_family` of each family.

    python tasks.py SEED DIR [PER_FAMILY]      writes DIR/FAMILY_I.py, tasks in KernelBench form
"""
import os
import random
import sys

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def text(layers, body, shape, dtype="float32"):
    lines = "".join(f"        self.{name} = {layer}\n" for name, layer in layers)
    cast = "" if dtype == "float32" else f".to(torch.{dtype})"
    return (f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{lines}"
            f"\n    def forward(self, x):\n        return {body}\n\n\n"
            f"def get_inputs():\n    return [torch.randn{shape}{cast}]\n\n\ndef get_init_inputs():\n    return []\n")


class Draw(random.Random):
    """Sizes near the given one that are no power of two."""

    def near(self, a, b):
        n = self.randint(a, b)
        return n + 1 if n % 8 == 0 else n

    def channels(self, a, b, multiple=1):
        return max(1, self.near(a, b) // multiple) * multiple

    def ending(self):
        return self.choice(["{}", "F.relu({})", "F.gelu({})", "F.silu({})", "torch.sigmoid({})",
                            "F.leaky_relu({}, 0.1)"])


def one(r, nd, space, layer, channels, batch, dtype="float32"):
    size = ", ".join(str(r.near(*space)) for _ in range(nd))
    return text([("conv", layer)], r.ending().format("self.conv(x)"), f"({batch}, {channels}, {size})", dtype)


def conv(r, nd, c, k, kernel, **options):
    arguments = "".join(f", {name}={value}" for name, value in options.items() if value)
    return f"nn.Conv{nd}d({c}, {k}, {kernel}{arguments})"


def conv1d(r):
    c, kernel, dilation = r.channels(20, 200), r.choice([3, 5, 7, 9]), r.choice([1, 2, 3])
    return one(r, 1, (1500, 9000), conv(r, 1, c, r.channels(20, 200), kernel, stride=r.choice([1, 1, 2, 3]),
                                        padding=r.randint(0, 4), dilation=dilation), c, r.near(4, 24))


def strided2d(r):
    c, s = r.channels(3, 90), r.choice([2, 3, (2, 1)])
    return one(r, 2, (90, 220), conv(r, 2, c, r.channels(20, 130), r.choice([3, 5, 7]), stride=s,
                                     padding=r.randint(0, 3)), c, r.near(4, 20))


def dilated2d(r):
    c = r.channels(10, 120)
    return one(r, 2, (60, 150), conv(r, 2, c, r.channels(20, 130), 3, padding=r.randint(0, 4),
                                     dilation=r.choice([2, 3, (1, 2)])), c, r.near(4, 16))


def grouped2d(r):
    g = r.choice([2, 3, 5, 8])
    c, k = r.channels(40, 160, g), r.channels(40, 160, g)
    return one(r, 2, (50, 120), conv(r, 2, c, k, 3, padding=1, groups=g), c, r.near(6, 24))


def asymmetric2d(r):
    c, kernel = r.channels(16, 100), r.choice([(1, 7), (7, 1), (3, 5), (5, 2)])
    return one(r, 2, (60, 150), conv(r, 2, c, r.channels(20, 120), kernel, padding=(kernel[0] // 2, kernel[1] // 2)), c,
               r.near(4, 20))


def plain2d(r):
    c = r.choice([3, r.channels(30, 200), r.channels(60, 260)])
    return one(r, 2, (100, 250), conv(r, 2, c, r.channels(30, 160), r.choice([1, 3, 3]), padding=1), c, r.near(2, 12))


def conv3d(r):
    c = r.channels(3, 60)
    return one(r, 3, (17, 50), conv(r, 3, c, r.channels(16, 70), 3, stride=r.choice([1, 1, 2]),
                                    padding=r.randint(0, 1)), c, r.near(2, 8))


def transposed(r, nd, space, channels, batch):
    s, g = r.choice([1, 2, 3]), r.choice([1, 1, 2, 4])
    c, k = r.channels(*channels, g), r.channels(*channels, g)
    layer = (f"nn.ConvTranspose{nd}d({c}, {k}, {r.choice([3, 4, 5])}, stride={s}, padding={r.randint(0, 1)}, "
             f"output_padding={r.randint(0, s - 1)}, groups={g})")
    return one(r, nd, space, layer, c, batch)


def transposed1d(r):
    return transposed(r, 1, (700, 4000), (30, 150), r.near(4, 20))


def transposed2d(r):
    return transposed(r, 2, (25, 80), (20, 100), r.near(4, 16))


def transposed3d(r):
    return transposed(r, 3, (9, 20), (16, 60), r.near(2, 6))


def depthwise(r):
    c = r.channels(60, 400)
    return one(r, 2, (40, 110), conv(r, 2, c, c, r.choice([3, 5, 7]), stride=r.choice([1, 1, 2]),
                                     padding=r.randint(1, 3), groups=c), c, r.near(4, 16))


def separable(r):
    c, k = r.channels(40, 200), r.channels(40, 200)
    layers = [("depth", conv(r, 2, c, c, 3, padding=1, groups=c, bias=False)), ("point", conv(r, 2, c, k, 1)),
              ("norm", f"nn.BatchNorm2d({k}).eval()")]
    return text(layers, "F.relu(self.norm(self.point(F.relu(self.depth(x)))))",
                f"({r.near(4, 16)}, {c}, {r.near(30, 90)}, {r.near(30, 90)})")


def network(r):
    c = [r.choice([1, 3, 4])] + [r.channels(20, 110) for _ in range(3)]
    layers = [(f"c{i}", conv(r, 2, c[i], c[i + 1], r.choice([3, 5]), stride=r.choice([1, 2]), padding=1))
              for i in range(3)]
    layers += [("n1", f"nn.BatchNorm2d({c[2]}).eval()"), ("end", f"nn.Linear({c[3]}, {r.near(10, 50)})")]
    body = "self.end(F.relu(self.c2(F.relu(self.n1(self.c1(F.max_pool2d(F.relu(self.c0(x)), 2))))))"
    return text(layers, body + ".mean((2, 3)))", f"({r.near(8, 32)}, {c[0]}, {r.near(90, 140)}, {r.near(90, 140)})")


def pointwise(r):
    c = r.channels(40, 260)
    return one(r, 2, (60, 160), conv(r, 2, c, r.channels(40, 260), 1), c, r.near(4, 16))


def large2d(r):
    """Would copies of the operands in another layout take more than 1 GiB?"""
    c = r.choice([3, r.channels(12, 40)])
    return one(r, 2, (600, 800), conv(r, 2, c, r.channels(60, 110), 3), c, r.near(6, 10))


def module(name, layers, body, arguments):
    lines = "".join(f"        self.{field} = {layer}\n" for field, layer in layers)
    return (f"class {name}(nn.Module):\n    def __init__(self, {arguments}):\n        super().__init__()\n{lines}\n"
            f"    def forward(self, x):\n{body}\n\n\n")


def nested(blocks, layers, body, shape):
    return HEAD + blocks + text(layers, body, shape).removeprefix(HEAD)


def residual(r):
    """Blocks of two convolutions with batch norms (of the batch's own statistics, unless eval) and a shortcut."""
    end = r.choice(["", ".eval()"])
    layers = [("a", "nn.Conv2d(c, k, 3, s, 1, bias=False)"), ("na", f"nn.BatchNorm2d(k){end}"),
              ("b", "nn.Conv2d(k, k, 3, 1, 1, bias=False)"), ("nb", f"nn.BatchNorm2d(k){end}"),
              ("short", f"nn.Sequential(nn.Conv2d(c, k, 1, s, bias=False), nn.BatchNorm2d(k){end}) if c != k or s > 1 "
                        "else nn.Identity()")]
    body = ("        y = self.nb(self.b(F.relu(self.na(self.a(x)))))\n"
            "        return F.relu(y + self.short(x))")
    c = [r.choice([32, 48, r.channels(30, 70)]) for _ in range(1)]
    c += [c[0], c[0] * 2, c[0] * 4]
    top = [("stem", f"nn.Conv2d(3, {c[0]}, 7, 2, 3, bias=False)"), ("norm", f"nn.BatchNorm2d({c[0]}){end}"),
           ("pool", "nn.MaxPool2d(3, 2, 1)")]
    top += [(f"b{i}", f"Block({c[i]}, {c[i + 1]}, {1 if c[i] == c[i + 1] else 2})") for i in range(3)]
    top += [("end", f"nn.Linear({c[3]}, {r.near(10, 50)})")]
    chain = "self.pool(F.relu(self.norm(self.stem(x))))"
    for i in range(3):
        chain = f"self.b{i}({chain})"
    size = r.near(130, 230)
    return nested(module("Block", layers, body, "c, k, s"), top, f"self.end({chain}.mean((2, 3)))",
                  f"({r.near(2, 24)}, 3, {size}, {size})")


def separable_net(r):
    layers = [("depth", "nn.Conv2d(c, c, 3, s, 1, groups=c, bias=False)"), ("nd", "nn.BatchNorm2d(c).eval()"),
              ("point", "nn.Conv2d(c, k, 1, bias=False)"), ("np", "nn.BatchNorm2d(k).eval()")]
    body = "        return F.relu6(self.np(self.point(F.relu6(self.nd(self.depth(x))))))"
    c = [32] + [r.channels(40, 90), r.channels(90, 140), r.channels(140, 260), r.channels(140, 260)]
    top = [("stem", "nn.Conv2d(3, 32, 3, 2, 1, bias=False)"), ("norm", "nn.BatchNorm2d(32).eval()")]
    top += [(f"b{i}", f"Block({c[i]}, {c[i + 1]}, {1 + i % 2})") for i in range(4)]
    chain = "F.relu6(self.norm(self.stem(x)))"
    for i in range(4):
        chain = f"self.b{i}({chain})"
    size = r.near(130, 230)
    return nested(module("Block", layers, body, "c, k, s"), top, chain, f"({r.near(4, 24)}, 3, {size}, {size})")


def unet(r):
    layers = [("a", "nn.Conv2d(c, k, 3, padding=1)"), ("b", "nn.Conv2d(k, k, 3, padding=1)"),
              ("n", "nn.GroupNorm(4, k)")]
    body = "        return F.silu(self.n(self.b(F.silu(self.a(x)))))"
    c = 4 * r.randint(5, 12)
    top = [("d0", f"Block(3, {c})"), ("d1", f"Block({c}, {2 * c})"), ("d2", f"Block({2 * c}, {4 * c})"),
           ("u1", f"nn.ConvTranspose2d({4 * c}, {2 * c}, 2, 2)"), ("e1", f"Block({4 * c}, {2 * c})"),
           ("u0", f"nn.ConvTranspose2d({2 * c}, {c}, 2, 2)"), ("e0", f"Block({2 * c}, {c})"),
           ("end", f"nn.Conv2d({c}, {r.randint(2, 9)}, 1)")]
    lines = "".join(f"        self.{name} = {layer}\n" for name, layer in top)
    size = 4 * r.randint(20, 50)
    return (f"{HEAD}{module('Block', layers, body, 'c, k')}class Model(nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n{lines}\n    def forward(self, x):\n        a = self.d0(x)\n"
            "        b = self.d1(F.max_pool2d(a, 2))\n        y = self.u1(self.d2(F.max_pool2d(b, 2)))\n"
            "        y = self.u0(self.e1(torch.cat([y, b], 1)))\n"
            "        return self.end(self.e0(torch.cat([y, a], 1)))\n\n\n"
            f"def get_inputs():\n    return [torch.randn({r.near(2, 8)}, 3, {size}, {size})]\n\n\n"
            "def get_init_inputs():\n    return []\n")


def half2d(r):
    c = r.channels(20, 160)
    dtype = r.choice(["float16", "bfloat16"])
    layer = conv(r, 2, c, r.channels(30, 160), 3, stride=r.choice([1, 2]), padding=1, dtype="torch." + dtype)
    return one(r, 2, (50, 130), layer, c, r.near(4, 20), dtype)


def half_product(r):
    """A hidden width that is no multiple of 8."""
    m, k, n, dtype = r.near(300, 3000), r.near(300, 2500), r.near(300, 2500), r.choice(["float16", "bfloat16"])
    return text([("linear", f"nn.Linear({k}, {n}, dtype=torch.{dtype})")], r.ending().format("self.linear(x)"),
                f"({m}, {k})", dtype)


def small_products(r):
    m, k, n = r.near(17, 90), r.near(17, 90), r.near(17, 90)
    return text([("w", f"nn.Parameter(torch.randn({k}, {n}) / {k} ** .5)")],
                r.ending().format("torch.matmul(x, self.w.expand(x.shape[0], -1, -1))"),
                f"({r.near(60, 900)}, {m}, {k})")


FAMILIES = [conv1d, strided2d, dilated2d, grouped2d, asymmetric2d, plain2d, conv3d, transposed1d, transposed2d,
            transposed3d, depthwise, separable, pointwise, large2d, network, residual, separable_net, unet, half2d,
            half_product, small_products]


def write(seed, folder, per_family=3):
    """Write the tasks; returns the names of the files, in order of families."""
    os.makedirs(folder, exist_ok=True)
    names = []
    for make in FAMILIES:
        for i in range(per_family):
            names.append(os.path.join(folder, f"{make.__name__}_{i}.py"))
            with open(names[-1], "w", encoding="utf-8") as f:
                f.write(make(Draw(f"{seed} {make.__name__} {i}")))
    return names


if __name__ == "__main__":
    print("\n".join(write(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 3)))
