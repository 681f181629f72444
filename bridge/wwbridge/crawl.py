"""Catalogue the operators and blocks of the installed PyTorch and transformers, by introspection and by running them
(`synth crawl`).

An operator is called with the arguments of each sampler until one gives tensors; the call is made at two sizes, so that
the rule of its shapes can be told, and with each type.  What draws random numbers, or gives no tensor, is left out.  A
block is a module of a transformers model, built from a configuration made small, with sizes and inputs by the names of
its parameters; no weights, no network.  Its row has the text of a task of it, whose sizes are left open and which ran
at two of them.
"""

import importlib
import inspect
import os
import pkgutil
import re
import warnings
from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_flatten, tree_map

from . import Refuse, one_line

DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
          "int64": torch.int64,
          "bool": torch.bool}
SIZES = (4, 6)  # two values of the size that each sampler leaves open

# name: the arguments at a free size n and a type; "x" is what is sampled from a normal distribution
SAMPLERS = {
    "(x)": lambda n, d: (x(d, n, 8, 12),),
    "(rows)": lambda n, d: (x(d, n, 12),),
    "(positive)": lambda n, d: (x(d, n, 8, 12).abs() + 0.5,),
    "(probability)": lambda n, d: (x(d, n, 12).sigmoid() * 0.9 + 0.05,) if d.is_floating_point else None,
    "(map)": lambda n, d: (x(d, n, 8, 12, 12),),
    "(x, y)": lambda n, d: (x(d, n, 8, 12), x(d, n, 8, 12)),
    "(rows, rows)": lambda n, d: (x(d, n, 12), x(d, n, 12)),
    "(x, dim)": lambda n, d: (x(d, n, 8, 12), -1),
    "(x, 2, dim)": lambda n, d: (x(d, n, 8, 12), 2, -1),
    "(x, number)": lambda n, d: (x(d, n, 8, 12), 1),
    "(x, number, number)": lambda n, d: (x(d, n, 8, 12), 0, 1),
    "(x, size)": lambda n, d: (x(d, n, 8, 12), (12,)),
    "(list)": lambda n, d: ([x(d, n, 8), x(d, n, 8)],),
    "(matrix, matrix)": lambda n, d: (x(d, n, 12), x(d, 12, 7)),
    "(batch, batch)": lambda n, d: (x(d, n, 8, 12), x(d, n, 12, 7)),
    "(matrix, vector)": lambda n, d: (x(d, n, 12), x(d, 12)),
    "(vector, vector)": lambda n, d: (x(d, n), x(d, n)),
    "(square)": lambda n, d: (square(d, n),),
    "(square, rows)": lambda n, d: (square(d, n), x(d, n, 3)),
    "(x, y, z)": lambda n, d: (x(d, n, 8, 12), x(d, n, 8, 12), x(d, n, 8, 12).abs() + 0.5),
    "(add, matrix, matrix)": lambda n, d: (x(d, n, 7), x(d, n, 12), x(d, 12, 7)),
    "(add, batch, batch)": lambda n, d: (x(d, n, 8, 7), x(d, n, 8, 12), x(d, n, 12, 7)),
    "(add, vector, vector)": lambda n, d: (x(d, n, 7), x(d, n), x(d, 7)),
    "(rows, weight)": lambda n, d: (x(d, n, 8, 12), x(d, 7, 12)),
    "(signal, kernel)": lambda n, d: (x(d, n, 8, 16), x(d, 8, 8, 3)),
    "(map, kernel)": lambda n, d: (x(d, n, 8, 12, 12), x(d, 8, 8, 3, 3)),
    "(volume, kernel)": lambda n, d: (x(d, n, 8, 6, 6, 6), x(d, 8, 8, 3, 3, 3)),
    "(signal, 2)": lambda n, d: (x(d, n, 8, 16), 2),
    "(map, 2)": lambda n, d: (x(d, n, 8, 12, 12), 2),
    "(volume, 2)": lambda n, d: (x(d, n, 8, 6, 6, 6), 2),
    "(map, 2, 2)": lambda n, d: (x(d, n, 8, 12, 12), 2, 2),
    "(map, pads)": lambda n, d: (x(d, n, 8, 12, 12), (1, 1, 1, 1)),
    "(map, mean, var)": lambda n, d: (x(d, n, 8, 12, 12), x(d, 8), x(d, 8).abs() + 0.5),
    "(map, grid)": lambda n, d: (x(d, n, 8, 12, 12), x(d, n, 5, 5, 2).tanh()),
    "(heads, heads, heads)": lambda n, d: (x(d, n, 2, 8, 16), x(d, n, 2, 8, 16), x(d, n, 2, 8, 16)),
    "(logits, classes)": lambda n, d: (x(d, n, 12), torch.arange(n) % 12),
    "(rows, signs)": lambda n, d: (x(d, n, 12), (torch.arange(n * 12).view(n, 12) % 2 * 2 - 1).to(d)),
    "(rows, rows, signs)": lambda n, d: (x(d, n, 12), x(d, n, 12), (torch.arange(n) % 2 * 2 - 1).to(d)),
    "(scores, scores, signs)": lambda n, d: (x(d, n), x(d, n), (torch.arange(n) % 2 * 2 - 1).to(d)),
    "(indices, table)": lambda n, d: (torch.arange(n * 3).view(n, 3) % 10, x(d, 10, 12)),
    "(x, dim, index)": lambda n, d: (x(d, n, 12), 1, torch.arange(n * 12).view(n, 12) % 12),
    "(x, dim, indices)": lambda n, d: (x(d, n, 12), 0, torch.arange(3)),
    "(x, index)": lambda n, d: (x(d, n, 12), torch.arange(n * 12).view(n, 12) % 12),
    "(x, dim, index, source)": lambda n, d: (x(d, n, 12), 1, torch.arange(n * 12).view(n, 12) % 12, x(d, n, 12)),
    "(x, dim, indices, source)": lambda n, d: (x(d, n, 12), 0, torch.arange(3), x(d, 3, 12)),
    "(x, dim, indices, number)": lambda n, d: (x(d, n, 12), 0, torch.arange(3), 1.0),
    "(mask, x, y)": lambda n, d: (x(torch.float32, n, 12) > 0, x(d, n, 12), x(d, n, 12)),
    "(x, mask, number)": lambda n, d: (x(d, n, 12), x(torch.float32, n, 12) > 0, 1.0),
    "(sorted, values)": lambda n, d: (torch.arange(12).to(d), x(d, n, 12)),
    "(classes, 12)": lambda n, d: (torch.arange(n) % 12, 12) if d is torch.int64 else None,
}
INPUTS = {  # of modules
    "rows": lambda n, d: x(d, n, 16), "sequence": lambda n, d: x(d, n, 8, 16), "signal": lambda n, d: x(d, n, 16, 16),
    "map": lambda n, d: x(d, n, 16, 12, 12), "volume": lambda n, d: x(d, n, 16, 6, 6, 6), "tokens": lambda n,
    d: torch.arange(n * 3).view(n, 3) % 10,
    "probability": lambda n, d: x(d, n, 16).sigmoid(),
}
MODULE_ARGUMENTS = {
    "in_features": 16, "out_features": 12, "in1_features": 16, "in2_features": 16, "in_channels": 16,
    "out_channels": 12, "kernel_size": 3,
    "num_features": 16, "num_channels": 16, "num_groups": 4, "normalized_shape": 16, "num_embeddings": 10,
    "embedding_dim": 12, "input_size": 16,
    "hidden_size": 12, "d_model": 16, "nhead": 4, "embed_dim": 16, "num_heads": 4, "output_size": 3, "padding": 1,
    "value": 0.5, "scale_factor": 2,
    "upscale_factor": 2, "downscale_factor": 2, "groups": 4, "size": 5, "norm_type": 2, "threshold": 0.1, "dim": -1,
    "n_classes": 20, "cutoffs": [5, 10],
    "unflattened_size": (4, 4), "p": 0.0, "dropout": 0.0}


def seed_all(seed):
    """Not torch.manual_seed(), which formats a traceback for each kind of device: most of the time of a crawl."""
    torch.default_generator.manual_seed(seed)


def x(dtype, *shape):
    g = torch.Generator().manual_seed(sum(shape))
    t = torch.randn(*shape, generator=g)
    return t > 0 if dtype is torch.bool else (t * 4).round().long() if dtype is torch.int64 else t.to(dtype)


def square(d, n):
    a = x(torch.float32, n, n)
    return (a @ a.T + n * torch.eye(n)).to(d)


def tensors(out):
    return [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]


@contextmanager
def quietly():
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def call(function, arguments, seed=0):
    """The operator's result tensors, or None."""
    if arguments is None:
        return None
    try:
        seed_all(seed)
        out = tensors(function(*arguments))
    except Exception:
        return None
    fine = out and all(t.layout is torch.strided and not t.is_complex() and not t.is_quantized for t in out)
    return out if fine and bool((out[0] == out[0]).any()) else None  # not all NaN


def same(a, b):
    return len(a) == len(b) and all(s.shape == t.shape and bool(((s == t) | ((s != s) & (t != t))).all()) for s,
                                    t in zip(a, b))


def rule(arguments, out):
    """The rule by which the first result's shape follows from the operands' shapes."""
    shapes = [tuple(t.shape) for t in tensors(arguments)]
    found, first = tuple(out[0].shape), shapes[0] if shapes else ()
    try:
        broadcast = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        broadcast = None
    if found == first:
        return "same"
    if found == broadcast:
        return "broadcast"
    if not found:
        return "number"
    if len(found) < len(first) and set(found) <= set(first):
        return "reduced"
    if len(found) == len(first) and sorted(found) == sorted(first):
        return "permuted"
    if len(found) == len(first) and found[0] == first[0]:
        return "same rank"
    return "other"


def dtypes_of(function, sampler):
    """{type of the operands: type of the result}"""
    found = {}
    for name, d in DTYPES.items():
        try:
            out = call(function, sampler(SIZES[0], d))
        except Exception:
            out = None
        if out:
            found[name] = str(out[0].dtype)[6:]
    return found


def signature(f, name):
    try:
        return name + str(inspect.signature(f))
    except (TypeError, ValueError):
        line = (f.__doc__ or "").strip().split("\n")[0]
        return line if "(" in line else name + "(...)"


def try_samplers(make, samplers):
    """(name of the sampler, its arguments at the first size, their tensors) of the first that works at both sizes."""
    for name, sampler in samplers.items():
        try:
            arguments, again = sampler(SIZES[0], torch.float32), sampler(SIZES[0], torch.float32)
            other = sampler(SIZES[1], torch.float32)
        except Exception:
            arguments = again = other = None
        function = make()
        out = call(function, arguments, 1)
        if out and call(function, other, 1) and same(out, call(function, again, 2) or []):
            return name, again, out
    return None


# Operators with side effects, that need other hardware, or that make their tensors from numbers alone.
LEFT_OUT = re.compile(r"^(_|set_|get_|is_|are_|init|seed|load|save|compile|export|manual|import|use_|fork|wait|rand|"
                      r"empty|zeros|ones|full|eye|arange|"
                      r"linspace|logspace|range|from_|frombuffer|as_tensor|as_strided|tensor|asarray|scalar_tensor|"
                      r"normal|bernoulli|multinomial|poisson|"
                      r"binomial|dropout|alpha_dropout|feature_|cudnn|miopen|mkldnn|quantize|fake_quant|fbgemm|q_|"
                      r"dequantize|fused_moving|vmap|cond|"
                      r"has_|handle_|boolean_dispatch|assert|typename|unify|parse|.*_window$|sparse|hspmm|resize|"
                      r"tril_indices|triu_indices|Generator|can_cast|result_type|"
                      r"promote_types|narrow_copy|segment_reduce|sym_|get|prepare|classproperty|while_loop|nonzero|"
                      r"unique|lobpcg|gumbel|rrelu|RReLU|fractional|Fractional|.*[Dd]ropout.*|.*_$)")
CATEGORY = (("conv", "convolution"), ("pool", "pooling"), ("norm", "norm"), ("softm", "softmax"), ("loss", "loss"),
            ("entropy", "loss"), ("div_", "loss"),
            ("pad", "padding"), ("interpolate", "resampling"), ("upsample", "resampling"), ("shuffle", "resampling"),
            ("attention", "attention"),
            ("embedding", "indexing"), ("gather", "indexing"), ("scatter", "indexing"), ("index", "indexing"),
            ("take", "indexing"), ("lstm", "recurrence"),
            ("gru", "recurrence"), ("rnn", "recurrence"), ("sort", "sort"), ("topk", "sort"), ("cum", "scan"),
            ("mm", "matrix"), ("linear", "matrix"),
            ("matmul", "matrix"), ("einsum", "matrix"), ("dist", "distance"), ("similarity", "distance"))


def category(name, shape_rule, sampler, source):
    low = name.lower()
    for word, what in CATEGORY:
        if word in low:
            return what
    if shape_rule in ("reduced", "number"):
        return "reduction"
    if shape_rule in ("permuted", "same rank", "other"):
        return "layout"
    if sampler not in ("(x)", "(rows)", "(positive)", "(probability)", *INPUTS):
        return "binary"
    return "activation" if source == "torch.nn" else "pointwise"


def operator(name, source, f, make, samplers):
    found = try_samplers(make, samplers)
    if not found:
        return None
    sampler, arguments, out = found
    shape_rule = rule(arguments, out)
    given = tensors(arguments)
    scaled = call(make(), tree_map(lambda t: t * 64 if isinstance(t, torch.Tensor) and t.is_floating_point() else t,
                                   arguments))
    finite = scaled and all(bool(t.isfinite().all()) for t in scaled if t.is_floating_point())
    return {"identity": bool(given) and same(out[:1], given[:1]),
            "largest": max(t.double().abs().max().item() for t in scaled if t.numel()) if finite
            and out[0].is_floating_point() else None,
            "operator": f"{source}.{name}", "signature": one_line(signature(f, name), 300), "shape_rule": shape_rule,
            "dtype_rule": dtypes_of(make(), samplers[sampler]), "samplers": [sampler],
            "category": category(name, shape_rule, sampler, source),
            "source": source, "version": torch.__version__}


def functions(source):
    home = importlib.import_module(source)
    for name in sorted(dir(home)):
        f = getattr(home, name, None)
        if not LEFT_OUT.match(name) and callable(f) and not inspect.isclass(f):
            row = operator(name, source, f, lambda f=f: f, SAMPLERS)
            if row:
                yield row


def construct(cls, extra=None):
    """A module of small sizes by the names of its arguments, or None."""
    given = {}
    for p in inspect.signature(cls.__init__).parameters.values():
        if p.name in (extra or {}):
            given[p.name] = extra[p.name]
        elif p.name in MODULE_ARGUMENTS and (p.default is inspect.Parameter.empty or p.name in ("dropout", "p")):
            given[p.name] = MODULE_ARGUMENTS[p.name]
    if issubclass(cls, torch.nn.RNNBase):  # its signature is (*args, **kwargs)
        given = {k: MODULE_ARGUMENTS[k] for k in ("input_size", "hidden_size")}
    try:
        seed_all(3)
        return cls(**given)
    except Exception:
        return None


def modules():
    for name in sorted(dir(torch.nn)):
        cls = getattr(torch.nn, name)
        if not inspect.isclass(cls) or not issubclass(cls, torch.nn.Module) or name.startswith(
            "Lazy") or LEFT_OUT.match(name) or construct(cls) is None:
            continue
        one = {k: (lambda n, d, s=s: (s(n, d),)) for k, s in INPUTS.items()}
        two = {f"{k}, {k}": (lambda n, d, s=s: (s(n, d), s(n + 0, d))) for k, s in INPUTS.items()}
        rest = {k: SAMPLERS[k] for k in ("(logits, classes)", "(rows, signs)", "(rows, rows, signs)",
                                         "(scores, scores, signs)", "(x, y, z)")}
        row = operator(name, "torch.nn", cls, lambda cls=cls: typed(cls), {**one, **two, **rest})
        if row:
            yield row


def typed(cls):
    """A function that calls a module, converted to the type of its first operand."""
    made = {}

    def run(*arguments):
        d = next((t.dtype for t in tensors(arguments) if t.is_floating_point()), torch.float32)
        if d not in made:
            made[d] = construct(cls).to(d)
            made[d].eval()
        return made[d](*arguments)

    return run


# ---- transformers

SMALL = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embed_dim": 64, "num_attention_heads": 4, "n_head": 4,
    "num_heads": 4, "n_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 96, "ffn_dim": 96,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "n_inner": 96, "hidden_dim": 96, "d_ff": 96, "d_kv": 16,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2,
    "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 128, "max_position_embeddings": 64,
    "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "image_size": 32, "patch_size": 8,
    "pad_token_id": 0,
    "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "resid_pdrop": 0.0,
    "attn_pdrop": 0.0, "embd_pdrop": 0.0, "embedding_size": 64}
BLOCK = re.compile(r"(Layer|Block|Attention|MLP|Mlp|Norm|Intermediate|Output|SelfOutput|Embeddings|Expert|MoE|Router|"
                   r"Gate|FeedForward|FFN|Conv|Pooler|Rotary"
                   r"|Projector|Head|Adapter|Mixer)[A-Za-z0-9]*$")


def configurations(module):
    for name in dir(module):
        cls = getattr(module, name)
        if inspect.isclass(cls) and name.endswith("Config") and cls.__module__ == module.__name__:
            sizes = {}
            try:
                sizes = {k: v for k, v in SMALL.items() if hasattr(cls(), k)}
                config = cls(**sizes)
            except Exception:
                continue
            config._attn_implementation = "eager"
            yield config


# How a block's inputs are written into a task, by the names of its parameters: rows of features, wide ones, maps, flat
# rows.  BATCH, SEQUENCE and WIDTH are constants at its top; WIDTH multiplies what is 64 features in SMALL.
ROWS, WIDE, MAPS, FLAT = ("torch.randn(BATCH, SEQUENCE, {h})", "torch.randn(BATCH, SEQUENCE, {w})",
                          "torch.randn(BATCH, {h}, 8, SEQUENCE)",
                          "torch.randn(BATCH * SEQUENCE, {h})")
ANGLES = "torch.randn(BATCH, SEQUENCE, {head})"
NAMED = {"position_ids": "torch.arange(SEQUENCE)[None].expand(BATCH, SEQUENCE)",
         "input_ids": "torch.randint(0, 128, (BATCH, SEQUENCE))",
         "pixel_values": "torch.randn(BATCH, 3, 32, 32)"}
SCALED = {"hidden_size", "d_model", "n_embd", "dim", "embed_dim", "head_dim", "intermediate_size", "ffn_dim",
          "encoder_ffn_dim", "decoder_ffn_dim", "n_inner",
          "hidden_dim", "d_ff", "d_kv", "moe_intermediate_size", "embedding_size", "in_features", "out_features",
          "normalized_shape"}
ROW_NAMES = {"hidden_states", "x", "hidden_state", "input_tensor", "inputs_embeds", "features", "residual"}
TASK = """import torch
import torch.nn as nn
{imports}

BATCH, SEQUENCE, WIDTH = {batch}, {sequence}, {width}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{config}        self.block = {cls}({arguments})
        self.eval()

    def forward(self, {parameters}):
        out = self.block({calls})
        return out if isinstance(out, torch.Tensor) else out[0]


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
TRIED = ({"batch": 2, "sequence": 8, "width": 1}, {"batch": 3, "sequence": 12, "width": 2})  # each of these must run


def written(name, value):
    """The text of a configuration's or constructor's value in a task."""
    if name == "max_position_embeddings":
        return f"max({value}, SEQUENCE)"
    return f"{value} * WIDTH" if name in SCALED else repr(value)


def input_texts(cls, rows, sizes):
    """[(parameter, text of the argument in the call, text of each way to make its input)]"""
    found = []
    for i, p in enumerate(list(inspect.signature(cls.forward).parameters.values())[1:]):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.name == "attention_mask":
            if p.name == "attention_mask" and p.default is p.empty:
                found.append((p.name, "None", []))
            continue
        if p.name == "position_embeddings":
            found.append((p.name, "(cos, sin)", [("cos", ANGLES.format(**sizes)), ("sin", ANGLES.format(**sizes))]))
        elif p.default is p.empty or i == 0:
            text = NAMED.get(p.name) or (rows if p.name == "hidden_states" or p.name not in ROW_NAMES else ROWS
                                         if rows == WIDE else rows)
            found.append((p.name, p.name, [(p.name, text.format(**sizes))]))
    return found


def block_task(cls, config, home):
    """Texts of tasks of a block, one for each choice of inputs, with {batch}, {sequence}, {width} left open."""
    model = home.split(".")[-1]
    values = {k: v for k, v in SMALL.items() if hasattr(config, k)}
    extra = {**{k: v for k, v in SMALL.items() if isinstance(v, (int, float))}, "layer_idx": 0, "layer_id": 0,
             "layer_number": 0, "eps": 1e-6, "in_features": 64,
             "out_features": 64, "normalized_shape": 64, "is_decoder": False}
    names = [p.name for p in inspect.signature(cls.__init__).parameters.values()]
    given = [f"{n}=config" if n == "config" else f"{n}={written(n, extra.get(n, MODULE_ARGUMENTS.get(n)))}"
             for n in names[1:] if n == "config" or n in extra]
    number = lambda *keys: next((f"{getattr(config, k)} * WIDTH" if k in SCALED else str(getattr(config, k))
                                 for k in keys if isinstance(getattr(config, k, None), int)), None)
    sizes = {"h": number("hidden_size", "d_model", "n_embd", "dim", "embed_dim") or "64 * WIDTH",
             "w": number("intermediate_size", "ffn_dim", "d_ff") or "96 * WIDTH",
             "head": number("head_dim") or "16 * WIDTH"}
    head = ["        config = "
            f"{type(config).__name__}({', '.join(f'{k}={written(k, v)}' for k, v in values.items())})\n",
            '        config._attn_implementation = "eager"\n'] if "config" in names else []
    imports = ([f"from {home}.configuration_{model} import {type(config).__name__}"] if head
               else []) + [f"from {home}.modeling_{model} import {cls.__name__}"]
    for rows in (ROWS, WIDE, MAPS, FLAT):
        inputs = input_texts(cls, rows, sizes)
        yield TASK.replace("{imports}", "\n".join(imports)).replace("{config}", "".join(head)).replace(
            "{cls}", cls.__name__).replace(
            "{arguments}", ", ".join(given)).replace("{parameters}",
                                                     ", ".join(n for _, _, own in inputs for n, _ in own)).replace(
            "{calls}", ", ".join(f"{n}={c}" for n, c, _ in inputs)).replace("{inputs}", ", ".join(
                t for _, _, own in inputs for _, t in own))


def run_task(text, sizes):
    """(parameters, shapes of the inputs, shape of the output); None if it does not run, or two runs differ."""
    for name, value in sizes.items():
        text = text.replace("{" + name + "}", str(value))
    names = {}
    try:
        exec(compile(text, "block", "exec"), names)
        seed_all(3)
        model, inputs = names["Model"](), names["get_inputs"]()
        out, again = model(*inputs), model(*inputs)
    except Exception:
        return None
    if not isinstance(out, torch.Tensor):
        return None
    fine = out.is_floating_point() and out.numel() > 1 and bool(out.isfinite().all()) and torch.equal(out, again)
    return (sum(p.numel() for p in model.parameters()), [list(t.shape) for t in inputs],
            list(out.shape)) if fine else None


def blocks_of(model, version):
    home = f"transformers.models.{model}"
    try:
        config_module = importlib.import_module(f"{home}.configuration_{model}")
        modeling = importlib.import_module(f"{home}.modeling_{model}")
    except Exception:
        return
    classes = [c for n, c in inspect.getmembers(modeling, inspect.isclass)
               if issubclass(c, torch.nn.Module) and c.__module__ == modeling.__name__ and BLOCK.search(n)
               and not hasattr(c, "base_model_prefix")]
    configs = list(configurations(config_module))
    for cls in classes:
        row = next(filter(None, (block_row(cls, config, home, version) for config in configs)), None)
        if row:
            yield row


def block_row(cls, config, home, version):
    for text in block_task(cls, config, home):
        found = [run_task(text, sizes) for sizes in TRIED]
        if all(found):
            return {"operator": f"{home}.{cls.__name__}", "signature": one_line(signature(cls.forward, cls.__name__),
                                                                                300), "config": type(config).__name__,
                    "parameters": found[0][0], "inputs": found[0][1], "output": found[0][2], "task": text,
                    "category": "block", "source": home,
                    "version": version}
    return None


def transformers_blocks():
    os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
    try:
        import transformers
        import transformers.models as models
    except ImportError:
        raise Refuse("missing", "the Python package transformers is not installed; pip install transformers")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    for entry in sorted(pkgutil.iter_modules(models.__path__), key=lambda m: m.name):
        yield from blocks_of(entry.name, transformers.__version__)


def crawl(part):
    """Rows of the catalogue: "torch", "functional", "nn" or "transformers"."""
    parts = {"torch": lambda: [*functions("torch"), *functions("torch.special"), *functions("torch.linalg")],
             "functional": lambda: functions("torch.nn.functional"), "nn": modules, "transformers": transformers_blocks}
    if part not in parts:
        raise Refuse("request", "crawl: part must be torch, functional, nn or transformers")
    torch.set_num_threads(1)
    with quietly():
        return list(parts[part]())
