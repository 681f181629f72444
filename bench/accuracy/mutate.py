"""Plant one defect in an honest solution by rewriting its text.

The cookbook headers that a solution includes are inlined first, so that defects can be planted in their code,
too.  An operator is a class of defect, a name, the file it works on, a pattern and what replaces it; every place
where the pattern is found is one defect.  Where several places do the same and it depends on sizes which of them runs,
all of them together are one (ALL): a product's results are stored in code of their own where no row or column ends.
Operators are written so that the outputs are wrong by far more than rule strict tolerates; the reasons are given here,
and the judge is not asked:

  dropped tail   the last row, vector, block or 32 of K is not computed: output left NaN, or one term in 128 of a sum
                 missing
  off by one     an index, a bound, a count or a mask moved by one element (or one vector)
  missing bias   an addend or factor that is a parameter, a residual or the maximum left out; parameters are re-drawn,
                 so none is 0 or 1
  constant       a literal times 1.01, an epsilon times 100, a scale
  race           a barrier taken away between threads that write and threads that read: tens of thousands of chances a
                 run
  precision      operands of an fp32 product rounded to 11 (TF32) or 8 (bfloat16) bits: errors of 1e-4 and 1e-3 where
                 1e-5 is allowed

A change that leaves the compiled code as it was (a barrier in a branch for more than one warp, in a kernel of one
warp) is no defect; `run` compares the hashes of the binaries and drops those.  tests/cli/planted.t asks that every
operator has a place in the tasks that it is for, and runs the products that miss a row or columns."""
import os
import re

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDES = [os.path.join(HOME, "skills/cuda/include")]
GEMM = ("linear_gelu", "mlp", "swiglu")
NORMS = ("softmax", "layernorm_gelu", "rmsnorm", "residual_layernorm")
SPLIT = (*GEMM, "attention")
ALL = 0
# a product's store(e, results, batch item, row, column)
STORE = r"(\br(?:\[[^;\]]*\])*\.store\(e, (v(?:\[[^;\]]*\])*), z, ([^;,]*), ([^;,]*)\);)"
FLOAT = r"(?<![\w.])(\d+\.\d+(?:e-?\d+)?)f\b"


def times(factor):
    return lambda m: f"{float(m.group(1)) * factor:.9g}f" if "." in f"{float(m.group(1)) * factor:.9g}" or "e" in \
        f"{float(m.group(1)) * factor:.9g}" else f"{float(m.group(1)) * factor:.9g}.0f"


def literal(m):
    """A constant of the kernel's formula becomes wrong by 1%; an epsilon becomes 100 times as large."""
    v = float(m.group(1))
    if v == 0:
        return None
    return times(100)(m) if v < 1e-3 else times(1.01)(m)


# class, name, "kernels" | "plan", pattern, replacement, the tasks it is for (None: all), how many places at most
# (ALL: all at once)
CUDA = [
    ("dropped tail", "last row", "kernels", r"const bool live = at < rows;", "const bool live = at < rows - 1;", None,
     2),
    ("dropped tail", "last columns stored", "kernels", r"if \(c < cols\) \{(?=(?:(?!if \(c < cols\))[\s\S])*?float "
                                                       r"o0\[V\];)", "if (c < cols - V) {", NORMS, 1),
    ("dropped tail", "last block", "plan", r"(ww_launch\(p, \"k\d+\", )([^;]*?)(, 1, 1, [^;]*\);)", r"\1(\2) - 1\3",
     None, 2),
    ("dropped tail", "last row of a scan", "plan", r"\.rows = S0\b", ".rows = S0 - 1", ("cumsum",), 1),
    ("dropped tail", "last columns of a scan", "plan", r"\.cols = S1\b", ".cols = S1 - 4", ("cumsum",), 1),
    ("dropped tail", "last 32 of K", "plan", r"ww_arg_i32\(p, \(int\)\(g->a\.kp / 32\)\);",
     "ww_arg_i32(p, (int)(g->a.kp / 32) - 1);", GEMM, 1),
    ("dropped tail", "last query", "plan", r"\.t_q = S2, \.t_k = S2", ".t_q = S2 - 1, .t_k = S2 - 1",
     ("attention",), 1),
    ("dropped tail", "last row of a matrix", "kernels", STORE, r"if ((\3) < m - 1) \1", GEMM, ALL),
    ("dropped tail", "last columns of a matrix", "kernels", STORE, r"if ((\4) + (int)(sizeof(\2) / 4) < n) \1", GEMM,
     ALL),
    # the template of tensor cores alone takes more queries than keys where there is a causal mask
    ("off by one", "last key", "plan", r"\.t_k = S2, \.width", ".t_k = S2 - 1, .width", ("attention",), 1),
    ("off by one", "causal mask", "kernels", r"\(CAUSAL && c > r\)", "(CAUSAL && c >= r)", ("attention",), 1),
    ("off by one", "causal mask, the other way", "kernels", r"\(CAUSAL && c > r\)", "(CAUSAL && c > r + 1)",
     ("attention",), 1),
    ("off by one", "row", "kernels", r"const ix_t (i\d+) = row;(?=(?:(?!const ix_t i\d+ = row;)[\s\S])*?\1\*)",
     r"const ix_t \1 = row > 0 ? row - 1 : 0;", None, 3),
    ("off by one", "vector of a parameter", "kernels", r"(ww::load\(p_\w+ \+ \w+)(, (x\d(?:\[j\])?)\);)",
     r"\1 + (int)(sizeof(\3) / sizeof(\3[0]))\2", None, 3),
    ("off by one", "count", "kernels", r"const long long (v\d+) = (S\d);", r"const long long \1 = \2 - 1;", None, 2),
    ("off by one", "count of a mean", "kernels", r"pl_divf\(a0, a1\)", "pl_divf(a0, (a1 - 1.0f))",
     ("cross_entropy",), 1),
    ("off by one", "target", "kernels", r"in_target\[i(\d)\]", r"in_target[i\1 > 0 ? i\1 - 1 : 0]", ("cross_entropy",),
     1),
    ("off by one", "class", "kernels", r"\+ \(ix_t\)(v\d+)\)\];", r"+ (ix_t)(\1 > 0 ? \1 - 1 : 1))];",
     ("cross_entropy",), 1),
    ("off by one", "lane of a scan", "kernels", r"if \(lane >= d\)", "if (lane > d)", ("cumsum",), 1),
    ("off by one", "total of a scan", "kernels", r"last = q \* warps \+ warp - 1,",
     "last = q * warps + warp - 2,", ("cumsum",), 1),
    ("off by one", "vector of a scan", "kernels", r"for \(int i = 1; i < VEC; i\+\+\)"
                                                  r"(?=\n\s*v\[nth<BACK, VEC>\(i\)\] = )",
     "for (int i = 1; i < VEC - 1; i++)", ("cumsum",), 1),
    ("off by one", "padding", "plan", r"\.pad = \{ 1, 1 \}, \.dil = \{ 1, 1 \}, \.out_pad = \{ 0, 0 \}",
     ".pad = { 2, 0 }, .dil = { 1, 1 }, .out_pad = { 0, 0 }",
     ("conv_bias_relu", "conv_transpose_gelu"), 1),
    ("off by one", "channels", "plan", r"\.c = S1,", ".c = S1 - 1,", ("conv_bias_relu", "conv_transpose_gelu"), 1),
    ("missing bias", "addend", "kernels", r"\((v\d+|x\d\[l\]|x\d\[j\]\[l\]|acc\[l\]) \+ (x[1-9]\[j\]\[l\]|"
                                          r"x[1-9]\[l\])\)", r"(\1)", None, 3),
    ("missing bias", "factor", "kernels", r"\((v\d+|x\d\[l\]|x\d\[j\]\[l\]) \* (x[1-9]\[j\]\[l\]|x[1-9]\[l\])\)",
     r"(\1)", None, 3),
    ("missing bias", "bias of a product", "kernels", r"\(acc\[l\] \+ x0\[(?:l|0)\]\)", "(acc[l])", None, 2),
    ("missing bias", "maximum", "kernels", r"\((v\d+) \+ a0\)", r"(\1)", ("cross_entropy",), 1),
    ("missing bias", "carry", "kernels", r"return op_apply<OP>\(carry, (__shfl_sync\([^;]*)\);", r"return \1;",
     ("cumsum",), 1),
    ("missing bias", "rescaling", "kernels", r"o\[i\] = fmaf\(o\[i\], fix\[i % 4 / 2\], ot\[i\]\);",
     "o[i] = o[i] + ot[i];", ("attention",), 1),
    ("constant", "literal", "kernels", FLOAT, literal, None, 6),
    ("constant", "scale", "plan", r"\.scale = 0\.125", ".scale = 0.126", ("attention",), 1),
    ("constant", "mask", "plan", r"\.causal = 1", ".causal = 0", ("attention",), 1),
    ("race", "barrier before sums of warps are read", "kernels",
     r"(box\[threadIdx\.x / 32\] = v;\s*)__syncthreads\(\);", r"\1", (*NORMS, "cross_entropy"), 1),
    ("race", "barrier before totals are read", "kernels", r"(box\[q \* warps \+ warp\] = all;\s*\}\s*)"
                                                          r"__syncthreads\(\);", r"\1", ("cumsum",), 1),
    ("race", "wait for a filled stage", "kernels", r"bar_wait\(full \+ 8 \* stage, phase\);", "", None, 1),
    ("race", "wait for an emptied stage", "kernels", r"bar_wait\(empty \+ 8 \* stage, phase\);", "", None, 1),
    ("race", "wait for keys", "kernels", r"bar_wait\(bars\.k_full \+ 8 \* stage, parity\);", "", ("attention",), 1),
    ("race", "wait for values", "kernels", r"bar_wait\(bars\.v_full \+ 8 \* stage, parity\);", "", ("attention",), 1),
    ("race", "wait for queries", "kernels", r"bar_wait\(bars\.q, 0\);", "", ("attention",), 1),
    ("race", "wait for used keys", "kernels", r"bar_wait\(bars\.k_empty \+ 8 \* s, parity\);", "", ("attention",), 1),
    ("precision", "TF32", "kernels", r"lo\[i\] = s - hi\[i\];", "lo[i] = 0.f;", SPLIT, 1),
    ("precision", "bfloat16", "kernels", r"hi\[i\] = __half2float\(__float2half_rn\(s\)\);(\s*)lo\[i\] = s - hi\[i\];",
     r"hi[i] = __bfloat162float(__float2bfloat16_rn(s));\1lo[i] = 0.f;", SPLIT, 1),
]
CPU = [
    ("dropped tail", "last block", "plan", r"(ww_launch\(p, \"k\d+\", )([^;]*?)(, 1, 1, [^;]*\);)", r"\1(\2) - 1\3",
     None, 2),
    ("dropped tail", "last row of a recipe", "plan", r"\.rows = ([^,}]+?)(,| \})", r".rows = (\1) - 1\2", None, 1),
    ("dropped tail", "last columns of a recipe", "plan", r"\.cols = ([^,}]+?)(,| \})", r".cols = (\1) - 1\2", None, 1),
    ("dropped tail", "last of M", "plan", r"\.m = ([^,}]+?)(,| \})", r".m = (\1) - 1\2", None, 1),
    ("dropped tail", "last of N", "plan", r"\.n = ([^,}]+?)(,| \})", r".n = (\1) - 1\2", None, 1),
    ("dropped tail", "last of K", "plan", r"\.k = ([^,}]+?)(,| \})", r".k = (\1) - 1\2", None, 1),
    ("off by one", "row", "kernels", r"const ix_t (i\d+) = (r|row);", r"const ix_t \1 = \2 > 0 ? \2 - 1 : 0;", None, 2),
    ("off by one", "row of a scan", "kernels", r"const ix_t (i\d+) = r / 1 % S0;", r"const ix_t \1 = (r + 1) % S0;",
     None, 2),
    ("off by one", "column", "kernels", r"(ww_vf_load_ahead\(\w+ \+ \([^;]*?)\), n\)", r"\1 + 1), n)", None, 1),
    ("missing bias", "addend", "kernels", r"\((v\d+|x\d|acc) \+ (x[1-9]|v\d+)\)", r"(\1)", None, 1),
    ("missing bias", "factor", "kernels", r"\((v|v\d+|x\d) \* (x[1-9]|v\d+)\)", r"(\1)", None, 1),
    ("constant", "literal", "kernels", FLOAT, literal, None,
     3),  # the rest is the code of a remainder, which these sizes do not have
]


def flatten(text, seen=None):
    """The text with every <ww/...> include except plan.h inlined once."""
    seen = set() if seen is None else seen

    def put(m):
        path = next((p for p in (os.path.join(d, m.group(1)) for d in INCLUDES) if os.path.exists(p)), None)
        if m.group(1) == "ww/plan.h" or path is None:
            return m.group(0)
        if path in seen:
            return ""
        seen.add(path)
        with open(path) as f:
            return flatten(f.read(), seen)

    return re.sub(r"^#include <(ww/[\w/.]+)>$", put, text, flags=re.M)


def whole(solution, target):
    """On cuda the headers become part of the text; on cpu they stay, since their code is macros and vector types
    throughout."""
    if target == "cpu":
        return dict(solution)
    return {"kernels": flatten(solution["kernels"]), "plan": flatten(solution["plan"])}


def body(text):
    """The offset at which the solution's own code begins: literals of the cookbook are not the formula's."""
    at = max(text.rfind("#define S0 "), text.rfind("#define PL_NAN "), 0)
    return at


def sites(task, solution, target):
    """Every defect that can be planted in a solution: (class, name, number of the place, spoiled solution)."""
    for kind, name, where, pattern, replacement, tasks, most in (CUDA if target == "cuda" else CPU):
        if tasks is not None and task not in tasks or name == "carry" and (
                ".chunks = 1," not in solution["plan"] or ".threads = 1024" in solution["plan"]):
            # A carry is read where a row has more than one tile; it is more than the last sum with more than two.
            continue
        text = solution[where]
        start = body(text) if where == "kernels" and replacement is literal else 0
        found = 0
        if most == ALL:
            new = re.sub(pattern, replacement, text)
            if new != text:
                yield kind, name, 1, {**solution, where: new}
            continue
        for m in re.finditer(pattern, text):
            if m.start() < start or found == most:
                continue
            new = replacement(m) if callable(replacement) else m.expand(replacement)
            if new is None or new == m.group(0):
                continue
            found += 1
            yield kind, name, found, {**solution, where: text[:m.start()] + new + text[m.end():]}
