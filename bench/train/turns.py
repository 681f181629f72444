"""Conversations of several turns from those of one, which `synth teach` writes: a solution that is verified and handed
in, and one with a mistake that is verified and written again, without it.  The mistakes are of the kinds that a policy
makes (a size that is missing, sizes or names taken for each other, a type), the tool's answers have the judge's words.
The mistake is context alone, so nobody learns to make it."""
import re

SIZE = re.compile(r"^\tWW_SIZE\((S\d+), .*\);\n", re.M)
OUTPUT = re.compile(r"^(\tWW_OUTPUT\((\w+), \d+, \w+, )([^;]*)\);$", re.M)
TENSOR = re.compile(r"^\tWW_(?:INPUT|PARAM)\((\w+), .*?(WW_(?:F32|F16|BF16)).*$", re.M)
FAILED = "plan.c failed: ww_fail() or a misused function\n| ww_fail: "
NAME = re.compile(r"\b[xa]\d+\b")


def files(text):
    """(plan.c, kernels.cu) of an answer."""
    found = dict(re.findall(r"```(plan\.c|kernels\.cu)\n(.*?)```\n", text, re.S))
    return found["plan.c"], found["kernels.cu"]


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def no_size(plan, _kernels, rng):
    """A size that is used and not declared."""
    rows = [m for m in SIZE.finditer(plan) if re.search(rf"\b{m[1]}\b", plan[m.end():])]
    if not rows:
        return None
    m = rng.choice(rows)
    wrong = plan[:m.start()] + plan[m.end():]
    used = re.search(rf"\b{m[1]}\b", wrong[m.start():])
    return (plan, wrong), "plan_failed", \
        f"plan.c does not compile\n| plan.c:{line_of(wrong, m.start() + used.start())}: error: '{m[1]}' undeclared"


def other_size(plan, _kernels, rng):
    """Sizes of the output taken for each other."""
    m = OUTPUT.search(plan)
    sizes = m[3].split(", ") if m else []
    pairs = [(i, j) for i in range(len(sizes)) for j in range(i) if sizes[i] != sizes[j]]
    if not pairs:
        return None
    i, j = rng.choice(pairs)
    sizes[i] = sizes[j]
    return (m[0], f"{m[1]}{', '.join(sizes)});"), "plan_failed", \
        f"{FAILED}{m[2]}: size {i} differs from what this plan was made for"


def other_type(plan, _kernels, rng):
    rows = list(TENSOR.finditer(plan))
    if not rows:
        return None
    m = rng.choice(rows)
    other = rng.choice([t for t in ("WW_F32", "WW_F16", "WW_BF16") if t != m[2]])
    return (m[0], m[0].replace(m[2], other)), "plan_failed", \
        f"{FAILED}{m[1]}: type, dimensions or layout differ from what this plan was made for"


def no_name(_plan, kernels, rng):
    """A variable of the kernel that is not there."""
    rows = [(k, line) for k, line in enumerate(kernels.split("\n")) if NAME.search(line) and "=" in line]
    if not rows:
        return None
    k, line = rng.choice(rows)
    m = rng.choice(list(NAME.finditer(line)))
    name = m[0][0] + str(rng.randrange(20, 60))
    return (line, line[:m.start()] + name + line[m.end():]), "compile_failed", \
        f"the device code does not compile\n| kernels.cu({k + 1}): error: identifier \"{name}\" is undefined\n|   " \
        f"{line.strip()}\n|   ^\n| "


def other_value(_plan, kernels, rng):
    """Another operation: what the kernel computes is wrong."""
    rows = [line for line in kernels.split("\n") if re.search(r" [*+-] ", line) and "=" in line and "for" not in line]
    if not rows:
        return None
    line = rng.choice(rows)
    m = re.search(r" [*+-] ", line)
    wrong = line[:m.start()] + rng.choice([o for o in (" + ", " - ", " * ") if o != m[0]]) + line[m.end():]
    many = rng.randrange(10, 10_000_000)
    return (line, wrong), "mismatch", \
        f"output 0 does not match (a plain draw): {many} of {many + rng.randrange(many)} elements beyond the limit\n" \
        f"  relative error {rng.uniform(.01, 2):.3g} (limit 1.53e-05, PyTorch's own {rng.uniform(.2, 9):.3g}e-08)"


MISTAKES = (no_size, other_size, other_type, no_name, other_value)


def failed(status, diagnostics):
    return f"status: {status}\ncorrect: no\nreward: -1\ndiagnostics:\n{diagnostics}\n"


def passed(rng):
    us, eager = rng.uniform(3, 400), rng.choice((1, rng.uniform(1.06, 4)))
    compiled = rng.choice((.9, 1, rng.uniform(1.06, 2)))
    reward = 1 + (eager > 1.05) + (eager > 1.05 and compiled > 1.05)
    rows = "".join(f"{n}: {us * s:.2f} us; speed-up {s:.3f} [{s * .99:.3f}, {s * 1.01:.3f}]\n"
                   for n, s in (("eager", eager), ("compile", compiled)))
    return f"status: ok\ncorrect: yes (relative error {rng.uniform(1, 9):.3g}e-08, largest absolute error " \
           f"{rng.uniform(1, 9):.3g}e-06)\ntime: {us:.2f} us on the device [{us * .99:.2f}, {us * 1.01:.2f}]\n{rows}" \
           f"floor by memory traffic: {us * rng.uniform(.3, .9):.2f} us\nreward: {reward}\n"


def call(name, number):
    return [{"id": f"call_{number}_0", "type": "function", "function": {"name": name, "arguments": {}}}]


def said(content, name, number, **more):
    return {"role": "assistant", "content": content, "tool_calls": call(name, number), **more}


def heard(text, number):
    return {"role": "tool", "tool_call_id": f"call_{number}_0", "content": text}


def checked(row, rng):
    """Verified, and handed in as it is."""
    system, user, answer = row["messages"]
    return {**row, "messages": [system, user, said(answer["content"], "verify", 0), heard(passed(rng), 0),
                                said("", "submit", 1)]}


def mended(row, rng):
    """With a mistake, verified, and written again; None where no mistake fits."""
    system, user, answer = row["messages"]
    right = answer["content"]
    plan, kernels = files(right)
    mistakes = [m for m in (f(plan, kernels, rng) for f in MISTAKES) if m]
    if not mistakes:
        return None
    (old, new), status, diagnostics = rng.choice(mistakes)
    wrong = right.replace(old, new, 1)
    return {**row, "messages": [
        system, user, said(wrong, "verify", 0, learn=False), heard(failed(status, diagnostics), 0),
        said(right, "submit", 1)]}


def single(row, system):
    """The prompt of a single turn, which stage ppo and eval's loop `single` give: nothing is handed in."""
    _, user, answer = row["messages"]
    return {**row, "messages": [system, user, {k: v for k, v in answer.items() if k != "tool_calls"}]}


def forms(rows, system, shares, rng):
    """A conversation each: a single turn, checked or mended by the shares, else as it is.  An answer of more than
    shares["mended-longest"] bytes is not said twice."""
    for row in rows:
        at, short = rng.random(), len(row["messages"][2]["content"]) <= shares["mended-longest"]
        if at < shares["single"]:
            yield single(row, system)
        elif at < shares["single"] + shares["checked"]:
            yield checked(row, rng)
        elif short and at < shares["single"] + shares["checked"] + shares["mended"]:
            yield mended(row, rng) or row
        else:
            yield row
