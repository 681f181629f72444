"""Disguised copies of tasks, and tasks that are merely related to them: what bench/synth/recall.py measures
`synth audit --against` with.

A disguise changes how a task is written and not what it computes: every identifier and most sizes are new, definitions
and commutative operands change places, `nn.` becomes `F.` and modules become parameters with functions, statements are
split or merged, and operators become formulas that are equal to them.  A relative shares operators with a task and
computes something else."""
import ast
import copy
import random
import string

import torch

KEEP = {"Model", "forward", "get_inputs", "get_init_inputs", "__init__"}
# Modules without parameters: the function that does the same, and the names of its further arguments in order.
FUNCTIONS = {
    "ReLU": ("F.relu", ()), "GELU": ("F.gelu", ()), "SiLU": ("F.silu", ()), "Mish": ("F.mish", ()),
    "Sigmoid": ("torch.sigmoid", ()),
    "Tanh": ("torch.tanh", ()), "Softplus": ("F.softplus", ()), "Softsign": ("F.softsign", ()),
    "Hardswish": ("F.hardswish", ()),
    "Hardsigmoid": ("F.hardsigmoid", ()), "ReLU6": ("F.relu6", ()), "ELU": ("F.elu", ("alpha",)),
    "SELU": ("F.selu", ()),
    "LeakyReLU": ("F.leaky_relu", ("negative_slope",)), "Hardtanh": ("F.hardtanh", ("min_val", "max_val")),
    "Softmax": ("F.softmax", ("dim",)), "LogSoftmax": ("F.log_softmax", ("dim",)),
    "MaxPool1d": ("F.max_pool1d", ("kernel_size", "stride", "padding", "dilation")),
    "MaxPool2d": ("F.max_pool2d", ("kernel_size", "stride", "padding", "dilation")),
    "MaxPool3d": ("F.max_pool3d", ("kernel_size", "stride", "padding", "dilation")),
    "AvgPool1d": ("F.avg_pool1d", ("kernel_size", "stride", "padding")),
    "AvgPool2d": ("F.avg_pool2d", ("kernel_size", "stride", "padding")),
    "AvgPool3d": ("F.avg_pool3d", ("kernel_size", "stride", "padding")),
    "AdaptiveAvgPool1d": ("F.adaptive_avg_pool1d", ("output_size",)),
    "AdaptiveAvgPool2d": ("F.adaptive_avg_pool2d", ("output_size",)),
    "AdaptiveAvgPool3d": ("F.adaptive_avg_pool3d", ("output_size",)),
}
# Equal formulas of a function of one tensor; {x} is a name.
IDENTITIES = {
    "relu": ["torch.clamp({x}, min=0)", "{x} * ({x} > 0)", "torch.where({x} > 0, {x}, torch.zeros_like({x}))",
             "torch.maximum({x}, torch.zeros_like({x}))",
             "({x} + {x}.abs()) / 2"],
    "sigmoid": ["1 / (1 + torch.exp(-{x}))", "torch.reciprocal(1 + (-{x}).exp())"],
    "silu": ["{x} * torch.sigmoid({x})", "{x} / (1 + torch.exp(-{x}))"],
    "mish": ["{x} * torch.tanh(F.softplus({x}))"],
    "gelu": ["0.5 * {x} * (1 + torch.erf({x} / 1.4142135623730951))",
             "{x} * 0.5 * (torch.erf({x} * 0.7071067811865476) + 1)"],
    "softplus": ["torch.log(1 + torch.exp({x}))", "torch.log1p({x}.exp())"],
    "softsign": ["{x} / (1 + {x}.abs())"],
    "hardswish": ["{x} * F.relu6({x} + 3) / 6"], "hardsigmoid": ["F.relu6({x} + 3) / 6"],
    "relu6": ["{x}.clamp(0, 6)"], "square": ["{x} * {x}"],
}


def parse(text):
    return ast.parse(text, mode="eval").body


def name_of(func):
    """("F", "relu") of F.relu, torch.nn.functional.relu; ("torch", "relu"), ("nn", "ReLU"), ("self", "act")."""
    if isinstance(func, ast.Attribute):
        base = ast.unparse(func.value)
        base = {"torch.nn.functional": "F", "nn.functional": "F", "torch.nn": "nn"}.get(base, base)
        return base, func.attr
    return "", func.id if isinstance(func, ast.Name) else ""


class Modules(ast.NodeTransformer):
    """F. for nn., and parameters with functions for Linear, LayerNorm and Conv."""

    def __init__(self, rng):
        self.rng, self.gone, self.with_parameters = rng, {}, {}

    def visit_ClassDef(self, node):
        self.gone, self.with_parameters = {}, {}
        for f in node.body:
            if isinstance(f, ast.FunctionDef) and f.name == "__init__":
                used_whole = {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.Attribute)
                              and isinstance(n.value, ast.Name) and n.value.id == "self"} - self.called(node)
                f.body = [s for old in f.body for s in self.construction(old, used_whole)] or [ast.Pass()]
        self.generic_visit(node)
        return node

    @staticmethod
    def called(node):
        """self.x that is only ever called or assigned."""
        count = {}
        for n in ast.walk(node):
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self":
                count[ast.unparse(n)] = count.get(ast.unparse(n), 0) + 1
        for n in ast.walk(node):
            if isinstance(n, ast.Call) and ast.unparse(n.func) in count and len(n.args) == 1 and not n.keywords:
                count[ast.unparse(n.func)] -= 1
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) in count and isinstance(n.value, ast.Call):
                count[ast.unparse(n.targets[0])] -= 1
        return {k for k, n in count.items() if n == 0}

    def construction(self, s, used_whole):
        if not (isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)) or ast.unparse(s.targets[0]) in used_whole:
            return [s]
        target, (base, kind), call = ast.unparse(s.targets[0]), name_of(s.value.func), s.value
        if base != "nn" or not target.startswith("self.") or any(isinstance(a, ast.Starred) for a in call.args):
            return [s]
        if kind in FUNCTIONS and self.rng.random() < 0.8:
            return self.function_for(target, kind, call)
        args = [ast.unparse(a) for a in call.args]
        if kind == "Linear" and len(args) == 2 and not call.keywords and self.rng.random() < 0.7:
            self.with_parameters[target] = self.rng.choice(["{x} @ {m}_w.t() + {m}_b", "F.linear({x}, {m}_w, {m}_b)",
                                                            "torch.matmul({x}, {m}_w.transpose(0, 1)) + {m}_b"])
            return ast.parse(f"{target}_w = nn.Parameter(torch.randn({args[1]}, {args[0]}) * 0.02)\n"
                             f"{target}_b = nn.Parameter(torch.randn({args[1]}) * 0.02)").body
        if kind == "LayerNorm" and len(args) == 1 and not call.keywords and self.rng.random() < 0.7:
            shape = f"(lambda s: (s,) if isinstance(s, int) else tuple(s))({args[0]})"
            self.with_parameters[target] = "F.layer_norm({x}, {m}_w.shape, {m}_w, {m}_b)"
            return ast.parse(f"{target}_w = nn.Parameter(torch.ones({shape}))\n{target}_b = "
                             f"nn.Parameter(torch.zeros({shape}))").body
        if kind == "Conv2d" and len(args) == 3 and {k.arg for k in call.keywords} <= {
            "stride", "padding"} and self.rng.random() < 0.6:
            more = "".join(f", {k.arg}={{m}}_{k.arg}" for k in call.keywords)
            self.with_parameters[target] = "F.conv2d({x}, {m}_w, {m}_b" + more + ")"
            pair = f"*(lambda k: (k, k) if isinstance(k, int) else k)({args[2]})"
            return ast.parse(f"{target}_w = nn.Parameter(torch.randn({args[1]}, {args[0]}, {pair}) * 0.02)\n"
                             f"{target}_b = nn.Parameter(torch.randn({args[1]}) * 0.02)\n" +
                             "\n".join(f"{target}_{k.arg} = {ast.unparse(k.value)}" for k in call.keywords)).body
        return [s]

    def function_for(self, target, kind, call):
        function, names = FUNCTIONS[kind]
        given = dict(zip(names, call.args)) | {k.arg: k.value for k in call.keywords}
        if not set(given) <= set(names):
            return [ast.parse(f"{target} = {ast.unparse(call)}").body[0]]
        self.gone[target] = (function, list(given))
        return ast.parse("\n".join(f"{target}_{n} = {ast.unparse(v)}" for n, v in given.items())).body

    def visit_Call(self, node):
        self.generic_visit(node)
        module = ast.unparse(node.func)
        if module in self.gone and len(node.args) == 1:
            function, given = self.gone[module]
            return parse(f"{function}({ast.unparse(node.args[0])}" + "".join(f", {n}={module}_{n}" for n in given)
                         + ")")
        if module in self.with_parameters and len(node.args) == 1:
            return parse(self.with_parameters[module].format(x="(" + ast.unparse(node.args[0]) + ")", m=module))
        return node


class Identities(ast.NodeTransformer):
    """Replace operators by equal formulas; swap operands of + and *."""

    def __init__(self, rng, share=0.7):
        self.rng, self.share = rng, share

    def visit_Call(self, node):
        self.generic_visit(node)
        base, name = name_of(node.func)
        if self.rng.random() > self.share:
            return node
        if base in ("F", "torch") and name in IDENTITIES and len(node.args) == 1 and not node.keywords:
            return self.formula(IDENTITIES[name], node.args[0])
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        args = [ast.unparse(a) for a in node.args]
        if base in ("F", "torch") and name == "softmax" and args:
            dim = keywords.get("dim") or (args[1] if len(args) > 1 else None)
            if dim:
                return self.formula([f"(lambda e: e / e.sum(dim={dim}, keepdim=True))(torch.exp({{x}} - "
                                     f"{{x}}.amax(dim={dim}, keepdim=True)))",
                                     f"torch.exp({{x}} - torch.logsumexp({{x}}, dim={dim}, keepdim=True))"],
                                    node.args[0])
        if base == "torch" and name == "logsumexp" and len(args) == 1 and set(keywords) <= {"dim", "keepdim"}:
            more = ", ".join(f"{k}={v}" for k, v in keywords.items())
            return self.formula([f"torch.log(torch.exp({{x}}).sum({more}))"], node.args[0])
        if base == "torch" and name in ("matmul", "mm", "bmm") and len(args) == 2 and not keywords:
            return parse(self.rng.choice([f"({args[0]}) @ "
                                          f"({args[1]})", f"torch.einsum('...ik,...kj->...ij', {args[0]}, {args[1]})",
                                          f"(({args[1]}).transpose(-1, -2) @ ({args[0]}).transpose(-1, "
                                          "-2)).transpose(-1, -2)"]))
        if base == "torch" and name == "mean" and len(args) == 1 and "dim" in keywords:
            more = ", ".join(f"{k}={v}" for k, v in keywords.items())
            return self.formula([f"{{x}}.mean({more})"], node.args[0])
        if base == "F" and name == "mse_loss" and len(args) == 2 and not keywords:
            return parse(f"torch.mean((({args[0]}) - ({args[1]})) ** 2)")
        return node

    def formula(self, forms, x):
        return parse(f"(lambda v: {self.rng.choice(forms).format(x='v')})({ast.unparse(x)})")

    def visit_BinOp(self, node):
        self.generic_visit(node)
        swap = self.rng.random() < 0.6
        number = isinstance(node.right, ast.Constant) and isinstance(node.right.value, (int, float))
        if isinstance(node.op, ast.Add) and swap and not isinstance(node.left, (ast.Constant, ast.Tuple,
                                                                                ast.List)) and not number:
            return ast.BinOp(node.right, ast.Add(), node.left)
        if isinstance(node.op, ast.Mult) and swap:
            return ast.BinOp(node.right, ast.Mult(), node.left)
        if isinstance(node.op, ast.Sub) and swap and tensor_like(node.left):
            return ast.BinOp(node.left, ast.Add(), ast.UnaryOp(ast.USub(), node.right))
        if isinstance(node.op, ast.Pow) and number and node.right.value == 2 and isinstance(node.left, ast.Name):
            return ast.BinOp(node.left, ast.Mult(), copy.deepcopy(node.left))
        return node


def tensor_like(node):
    return isinstance(node, ast.Call) or isinstance(node, ast.Name) and len(node.id) == 1


class Statements(ast.NodeTransformer):
    """Split nested calls into statements, or inline a name that is used once, in the next statement."""

    def __init__(self, rng):
        self.rng, self.n = rng, 0

    def visit_FunctionDef(self, node):
        if node.name == "forward":
            node.body = self.split(node.body) if self.rng.random() < 0.5 else self.merge(node.body)
        return node

    def visit_ClassDef(self, node):
        node.body = [self.visit(s) for s in node.body]
        return node

    def split(self, body):
        out = []
        for s in body:
            value = getattr(s, "value", None)
            if isinstance(s, (ast.Assign, ast.Return)) and isinstance(value, ast.Call) and value.args and isinstance(
                value.args[0], (ast.Call, ast.BinOp)):
                self.n += 1
                out.append(ast.Assign([ast.Name(f"part{self.n}", ast.Store())], value.args[0]))
                value.args[0] = ast.Name(f"part{self.n}", ast.Load())
            out.append(s)
        return out

    def merge(self, body):
        out = list(body)
        for i in range(len(out) - 1, 0, -1):
            first, then = out[i - 1], out[i]
            if not (isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name)
                    and isinstance(then, (ast.Assign, ast.Return))):
                continue
            name = first.targets[0].id
            uses = [n for n in ast.walk(then.value or ast.Pass()) if isinstance(n, ast.Name) and n.id == name]
            later = [n for s in out[i + 1:] for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name]
            rebound = isinstance(then, ast.Assign) and ast.unparse(then.targets[0]) == name
            if len(uses) == 1 and (rebound or not later) and not any(isinstance(n, ast.Lambda) for n in ast.walk(then)):
                out[i] = Put(name, first.value).visit(then)
                del out[i - 1]
        return out


class Put(ast.NodeTransformer):
    def __init__(self, name, value):
        self.name, self.value = name, value

    def visit_Name(self, node):
        return self.value if node.id == self.name and isinstance(node.ctx, ast.Load) else node


class Names(ast.NodeTransformer):
    def __init__(self, rng, tree):
        self.rng, self.map = rng, {}
        own = set()
        for n in ast.walk(tree):
            if isinstance(n, (ast.FunctionDef, ast.ClassDef)):
                own.add(n.name)
            elif isinstance(n, ast.arg):
                own.add(n.arg)
            elif isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                own.add(n.id)
            elif isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self" and isinstance(
                n.ctx, ast.Store):
                own.add(n.attr)
        library = {n.arg for n in ast.walk(tree) if isinstance(n, ast.keyword)} | set(dir(torch.nn.Module()))
        for n in sorted(own - KEEP - library - {"self", "torch", "nn", "F", "math"}):
            self.map[n] = "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 8))) + str(
                len(self.map))

    def visit(self, node):
        for field in ("id", "arg", "name"):
            if isinstance(getattr(node, field, None), str) and not isinstance(node, (ast.keyword, ast.alias)):
                setattr(node, field, self.map.get(getattr(node, field), getattr(node, field)))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self.map.get(node.attr, node.attr)
        return self.generic_visit(node)


class Sizes(ast.NodeTransformer):
    """Change the integers at the top level of the file: batch sizes, widths and image sizes."""

    def __init__(self, rng):
        self.rng = rng

    def resized(self, tree):
        for s in tree.body:
            if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) and isinstance(
                s.value.value, int) and not isinstance(s.value.value, bool):
                name, old = ast.unparse(s.targets[0]).lower(), s.value.value
                if "batch" in name:
                    s.value = ast.Constant(max(2, self.rng.choice([old // 2, old * 2, old + 3])))
                elif old >= 64:
                    s.value = ast.Constant(self.rng.choice([old // 2, old * 2]))
        return tree


def without_docs(tree):
    for n in ast.walk(tree):
        if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Module)):
            n.body = [s for s in n.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))] or [
                ast.Pass()]
            if isinstance(n, ast.FunctionDef):
                n.returns = None
                for a in n.args.args:
                    a.annotation = None
    return tree


def reordered(tree, rng):
    imports = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    values = [s for s in tree.body if isinstance(s, (ast.Assign, ast.AnnAssign, ast.Expr))]
    rest = [s for s in tree.body if s not in imports and s not in values]
    functions = [s for s in rest if isinstance(s, ast.FunctionDef)]
    classes = [s for s in rest if not isinstance(s, ast.FunctionDef)]
    rng.shuffle(functions)
    tree.body = [*ast.parse("import torch\nimport torch.nn as nn\nimport torch.nn.functional as F").body,
                 *[s for s in imports if "torch" not in ast.unparse(s)],
                 *(values + functions + classes if rng.random() < 0.5 else values + classes + functions)]
    return tree


def disguise(text, seed, size=True):
    rng = random.Random(seed)
    tree = without_docs(ast.parse(text))
    for change in (Modules(rng), Identities(rng), Statements(rng)):
        tree = ast.fix_missing_locations(change.visit(tree))
    if size:
        tree = Sizes(rng).resized(tree)
    tree = Names(rng, tree).visit(reordered(tree, rng))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


# ---- Relatives

LAST = ["torch.tanh({x})", "torch.cumsum({x}, dim=-1)", "F.softmax({x}, dim=-1) * {x}.std()", "torch.sin({x})",
        "F.gelu({x}) - {x}.mean()",
        "torch.sort({x}, dim=-1)[0]", "{x}.abs().log1p()", "torch.atan({x})", "torch.logsumexp({x}, dim=-1)",
        "F.elu({x}).square()",
        "{x} * torch.cos({x})", "F.layer_norm({x}, {x}.shape[-1:])"]


class Relative(ast.NodeTransformer):
    """Apply one or two more operators to the result, and replace some operators on the way."""

    OTHER = {"relu": "F.elu", "sigmoid": "torch.sin", "tanh": "torch.atan", "gelu": "F.selu", "softmax": "F.softmin",
             "mish": "torch.tanh",
             "leaky_relu": "F.softshrink", "silu": "F.celu"}

    def __init__(self, rng):
        self.rng = rng

    def visit_Call(self, node):
        self.generic_visit(node)
        base, name = name_of(node.func)
        if base in ("F", "torch") and name in self.OTHER and len(
            node.args) == 1 and not node.keywords and self.rng.random() < 0.5:
            node.func = parse(self.OTHER[name])
        return node

    def visit_ClassDef(self, node):
        if node.name == "Model":
            node = self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        if node.name == "forward" and isinstance(node.body[-1], ast.Return) and node.body[-1].value is not None:
            node.body[-1].value = parse("(lambda r: "
                                        f"{self.rng.choice(LAST).format(x='r')})({ast.unparse(node.body[-1].value)})")
        return node


def relative(text, seed):
    """Make another computation from a task's operators."""
    rng = random.Random(seed)
    tree = reordered(without_docs(ast.parse(text)), rng)
    return ast.unparse(ast.fix_missing_locations(Relative(rng).visit(Relative(rng).visit(tree)))) + "\n"
