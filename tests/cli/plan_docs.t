#!/usr/bin/env python3
"""Pages against the code that they describe.  skills/cuda/references/plan.md names every function of ww/plan.h, quotes
the worked solutions as they are, gives its limits and the compiler's flags; docs/judge.md lists the flags
and fields of src/judge/verdict.def.  Relative links of all pages lead to files, and their anchors to headings."""
import glob
import os
import re

root = os.environ.get("WW_SOURCE_DIR", ".")


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


doc = read("skills/cuda/references/plan.md")
header = re.sub(r"/\*.*?\*/", "", read("include/ww/plan.h"), flags=re.S)
functions = sorted(set(re.findall(r"\b(ww_[a-z0-9_]+)\(", header)))
files = ["cuda/softmax/plan.c", "cuda/softmax/kernels.cu", "cpu/bias_gelu/plan.c", "cpu/bias_gelu/kernels.c"]
flags = re.search(r"ww_cc_flags\[\] = \{(.*?)NULL", read("src/judge/compile/cc.c"), re.S).group(1)
flags = [f for f in re.findall(r'"((?:[^"\\]|\\.)*)"', flags) if not f.startswith("-D")]

checks = [("the header has functions", len(functions) > 25)]
checks += [("names " + f, f + "(" in doc) for f in functions]
checks += [("quotes " + f, read("examples/solutions/" + f) in doc) for f in files]
limits = dict(re.findall(r"#define WW_MAX_(\w+) (\d+)", header))
counts = "%(NODES)s, %(SCRATCH)s, %(MACROS)s" % limits
judge = "%(NODES)s nodes, %(SCRATCH)s scratch buffers, %(ARGS)s arguments a launch, %(MACROS)s macros" % limits
checks += [("gives the header's limits", "| nodes, scratch buffers, macros | " + counts + " |" in doc),
           ("gives the header's arguments of a launch", "| arguments of a launch | " + limits["ARGS"] + " |" in doc),
           ("docs/judge.md gives the header's limits", "| a plan | " + judge in read("docs/judge.md"))]
checks += [("gives the flags of cc", " ".join(flags) in doc)]
listed = re.findall(r"^\* \*\*(\w+)\*\*:", read("docs/judge.md").split("## Flags")[1].split("\n## ")[0], re.M)
defined = re.findall(r"^FLAG\((\w+),", read("src/judge/verdict.def"), re.M)
checks += [(f"docs/judge.md lists the flags of verdict.def: {defined}, not {listed}", len(defined) > 5
            and sorted(listed) == sorted(defined))]
fields = re.findall(r'^(?:FIELD\(.*"|DERIVED\(\w+, ")(\w+)"(?:, \w+)?\)', read("src/judge/verdict.def"), re.M)
inside = re.findall(r"^(?:STAGE|STEP)\((\w+)\)", read("src/judge/verdict.def"),
                    re.M) + re.findall(r'^(?:STATUS|FORM)\(\w+, "([\w-]+)"\)', read("src/judge/verdict.def"), re.M)
table = read("docs/judge.md").split("## The verdict as JSON")[1].split("\n## ")[0].split("|---|---|")[1]
rows = [name for row in re.findall(r"^\| (.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)]
checks += [(f"docs/judge.md lists the fields of a verdict: {set(fields) ^ set(rows) - {'version'}}", len(fields) > 25
            and sorted(rows) == sorted(fields + ["version"]))]
checks += [("docs/judge.md names " + name, f"`{name}`" in table) for name in inside]


def prose(page):
    """The page without its blocks of code."""
    return re.sub(r"```.*?```", "", read(page), flags=re.S)


def broken(page):
    """Relative links of a page that lead to no file or to no heading."""
    for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        there = os.path.exists(os.path.join(root, target))
        if there and anchor:
            headings = re.findall(r"^#+ +(.*)$", prose(target), re.M)
            there = anchor in [re.sub(r"[^\w -]", "", h.lower().strip()).replace(" ", "-") for h in headings]
        if not there:
            yield f"{page}: {link}"


pages = [p for pattern in ("*.md", "docs/**/*.md", "tests/*.md", "skills/**/*.md")
         for p in glob.glob(pattern, root_dir=root, recursive=True)]
dead = [link for page in pages for link in broken(page)]
checks += [(f"relative links of {len(pages)} pages lead somewhere: {dead}", len(pages) > 40 and not dead)]
print("1..%d" % len(checks))
for i, (what, ok) in enumerate(checks, 1):
    print("%s %d - %s" % ("ok" if ok else "not ok", i, what))
