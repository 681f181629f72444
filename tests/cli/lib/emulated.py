"""Solutions for cuda run on the cpu: plan.c by <ww/plan.h> that prints (tests/emulate/plan_host.c), kernels.cu by the
host's compiler (device.h and its headers), library nodes as their definition has them (library.cc).

    solution = Solution(folder, graph, kernels, plan)      compiles
    solution.run([bytes of each input and used parameter], between)    bytes of each output

What PyTorch runs between kernels is the caller's: between(segment, [bytes that it reads]) returns the bytes that it
writes.  What is wrong with a solution is Wrong: it does not build, waits for ever, or leaves its buffers."""
import collections
import contextlib
import functools
import glob
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile

from tap import ROOT

HERE = os.path.join(ROOT, "tests/emulate")
INCLUDES = ["-I", HERE, "-I", os.path.join(ROOT, "skills/cuda/include"), "-I", os.path.join(ROOT, "include")]
# No thread_local is initialised by code: extern ones are accessed as such.
FLAGS = ["-std=c++20", "-w", "-mf16c", "-ffp-contract=off", "-fno-extern-tls-init", *INCLUDES]
INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
         "uint8": 1, "bool": 1}
DEVICE = {"cc": 90, "sm_count": 132, "shared_per_block_bytes": 232448}
Segment = collections.namedtuple("Segment", "nodes reads writes read_bufs write_bufs")


class Wrong(Exception):
    pass


def run(argv, text="", **kw):
    p = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    if p.returncode:
        raise Wrong(f"{' '.join(argv)[:200]}: {p.stderr[:3000]}")
    return p.stdout


def tensors(graph):
    """[kind, name, dtype, sizes, strides] in the order of the buffers."""
    rows = [("input", t) for t in graph["inputs"]]
    rows += [("param", t) for t in graph["params"] if t.get("used", True)]
    rows += [("output", t) for t in graph["outputs"]]
    return [(kind, t["name"], t["dtype"], t["sizes"], t["strides"]) for kind, t in rows]


def span(sizes, strides, itemsize):
    return 0 if 0 in sizes else (1 + sum((n - 1) * s for n, s in zip(sizes, strides))) * itemsize


@functools.lru_cache
def compilers():
    return run(["c++", "--version"]) + run(["cc", "--version"])


def included(text, folder):
    """Those files of ours that the text of a file in this folder includes by name."""
    found = (os.path.join(top, name) for quote, name in INCLUDED.findall(text)
             for top in [folder] * (quote == '"') + INCLUDES[1::2])
    return [os.path.realpath(path) for path in found if os.path.isfile(path)]


@functools.lru_cache(maxsize=None)
def header(path):
    """(its hash, what it includes)"""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return hashlib.sha256(text.encode()).hexdigest(), included(text, os.path.dirname(path))


def given(*sources):
    """The compilers, and all that a compiler may read of ours besides these texts and files: what they include, taken
    or not, and what that includes.  Others' headers are the compilers'."""
    found, todo = {}, []
    for source in sources:
        todo += included(source, HERE) if "\n" in source else [source]
    while todo:
        path = todo.pop()
        if path not in found:
            found[path], more = header(path)
            todo += more
    return " ".join([compilers(), *(found[path] for path in sorted(found))])


KEPT = 400  # the newest programs and answers


def kept(near, key, sources, make):
    """What make(path) has written for what `key` and `sources` (given()) hold, now or in an earlier run: a file of the
    tests' store, or beside the file `near` where there is none."""
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.dirname(near), "emulated")
    made = os.path.join(folder, hashlib.sha256("\0".join([given(*sources), *key]).encode()).hexdigest())
    if os.path.exists(made):
        os.utime(made)
    else:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            make(os.path.join(aside, "made"))
            os.replace(os.path.join(aside, "made"), made)
        for old in sorted(filter(os.path.isfile, glob.glob(folder + "/*")), key=os.path.getmtime)[:-KEPT]:
            with contextlib.suppress(FileNotFoundError):  # another run takes it too
                os.unlink(old)
    return made


def compiled(out, key, sources, command):
    """The program that command() makes of what `key` and `sources` hold."""
    shutil.copy(kept(out, key, sources, lambda made: run([*command(), "-o", made])), out)


@functools.lru_cache
def machine():
    """What a program's arithmetic may depend on besides its text: the processor and the C library."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        about = [line for line in f if line.startswith(("model name", "flags"))][:2]
    return "".join([*about, *platform.libc_ver()])


def says(exe, want, again=False):
    """This program says this, else Wrong.  It reads nothing, so that it does is kept by its bytes; again: it is asked
    all the same."""
    def ask(made):
        said = run([exe])
        if said != want:
            raise Wrong(said)
        with open(made, "w", encoding="utf-8"):
            pass

    if again:
        ask(os.devnull)
    else:
        with open(exe, "rb") as f:
            program = hashlib.sha256(f.read()).hexdigest()
        kept(exe, ["says", want, machine(), program], [], ask)


@functools.lru_cache
def tool(source, compiler):
    """A part that is the same for all solutions, compiled once: an object of C++, or a program of C that plans' own
    functions find theirs in."""
    folder = tempfile.TemporaryDirectory()
    out = os.path.join(folder.name, source + ".o")
    path = os.path.join(HERE, source)
    argv = [compiler, *([*FLAGS, "-O2", "-c", path] if compiler == "c++" else
                        ["-w", *INCLUDES, "-O2", path, "-rdynamic", "-ltcc"])]
    compiled(out, argv, [path], lambda: argv)
    return out, folder


def nodes(folder, graph, plan):
    """What plan.c says, line by line: [word, rest]."""
    with open(os.path.join(folder, "plan.c"), "w", encoding="utf-8") as f:
        f.write(plan)
    task = "".join(f"{kind} {name} {dtype} {len(sizes)} {' '.join(map(str, [*sizes, *reversed(strides)]))}\n"
                   for kind, name, dtype, sizes, strides in tensors(graph))
    said = run([tool("plan_host.c", "cc")[0], f.name, *INCLUDES[1::2]], task)
    lines, macros = [(line.split(maxsplit=1) + [""])[:2] for line in said.splitlines()], {}
    for name, value in (rest.split() for word, rest in lines if word == "define"):
        if macros.setdefault(name, value) != value:
            raise Wrong(f"ww_define({name}) twice, {macros[name]} and {value}")
    return lines


def at(buf, offset):
    return f"B[{buf}].p + {offset}"


class Launch:
    def __init__(self, rest):
        self.name, self.at = rest.rsplit(maxsplit=4)[0], rest.split()[-4:]
        self.args, self.cluster = [], 1

    def arg(self, kind, *a):
        if kind == "buf":
            return f"host::pointer{{{at(*a)}}}"
        if kind != "tmap":
            return a[0]
        rows = [a[4 + 4 * d:8 + 4 * d] for d in range(5)]
        size, stride, box, step = ("{" + ", ".join(r[i] for r in rows) + "}" for i in range(4))
        swizzle, fill, nbytes = a[24:27]
        return (f"ww_tensor_map{{{at(*a[:2])}, {a[2]}, {nbytes}, {a[3]}, {swizzle}, {fill}, {size}, {stride}, {box}, "
                f"{step}}}")

    def __str__(self):
        args = ", ".join(self.arg(*a) for a in self.args)
        return f"host::launch({', '.join(self.at)}, {self.cluster}, [&] {{ {self.name}({args}); }});"


def product(a):
    mats = [a[4 + 6 * i:10 + 6 * i] for i in range(4)]
    mats = ", ".join(f"{{ {at(*m[:2])}, {', '.join(m[2:])} }}" for m in mats)
    return f"host::run(host::product{{ {', '.join(a[:4])}, {mats}, {', '.join(a[28:32])}, {at(*a[32:34])} }});"


def convolution(a):
    axes = ", ".join("{" + ", ".join(a[7 + 6 * d:13 + 6 * d]) + "}" for d in range(3))
    places = ", ".join(at(*a[25 + 2 * i:27 + 2 * i]) for i in range(3))
    return (f"host::run(host::convolution{{ {', '.join(a[:7])}, {{ {axes} }}, {places}, {', '.join(a[31:34])}, "
            f"{at(*a[34:36])} }});")


def segment(rest):
    names, bufs = rest.split("|")[:3], rest.split("|")[3:]
    return Segment(*(n.split() for n in names), *([int(b) for b in row.split()] for row in bufs))


def statements(lines):
    """The nodes as C++, the sizes of the scratch buffers, and the segments."""
    calls, scratch, segments = [], [], []
    for word, rest in lines:
        a = rest.split()
        if word == "buffer":
            scratch.append(int(a[0]))
        elif word == "launch":
            calls.append(Launch(rest))
        elif word == "arg":
            calls[-1].args.append(a)
        elif word == "cluster":
            calls[-1].cluster = a[0]
        elif word == "memset":
            calls.append(f"memset({at(*a[:2])}, {a[3]}, {a[2]});")
        elif word == "copy":
            calls.append(f"memcpy({at(*a[:2])}, {at(*a[2:4])}, {a[4]});")
        elif word == "gemm":
            calls.append(product(a))
        elif word == "conv":
            calls.append(convolution(a))
        elif word == "pytorch":
            s = segment(rest)
            segments.append(s)
            read, written = ("{" + ", ".join(f"&B[{b}]" for b in bufs) + "}" for bufs in s[3:])
            calls.append(f"host::outside(std::initializer_list<host::buffer *>{read}, "
                         f"std::initializer_list<host::buffer *>{written});")
    return "\n\t".join(map(str, calls)), scratch, segments


MAIN = """#include "main.h"
#include "kernels.cu"
static const long long size[] = { %s };
int main()
{
	static host::buffer B[sizeof(size) / sizeof(size[0])];
	host::open_buffers(B, size, sizeof(size) / sizeof(size[0]), %d);
	%s
	for (int i = %d; i < %d; i++)
		B[i].put();
}
"""


class Solution:
    def __init__(self, folder, graph, kernels, plan, optimise="-O1"):
        self.lines = nodes(folder, graph, plan)
        rows = tensors(graph)
        self.outputs = [row for row in rows if row[0] == "output"]
        self.n_in = len(rows) - len(self.outputs)
        text, scratch, self.segments = statements(self.lines)
        self.sizes = [span(sizes, strides, BYTES[dtype]) for _, _, dtype, sizes, strides in rows] + scratch
        with open(os.path.join(folder, "kernels.cu"), "w", encoding="utf-8") as f:
            f.write(kernels)
        if ("cluster", "0") in map(tuple, self.lines):  # its blocks may take words of ones for what is not yet written
            each = f"for (int i = {len(rows)}; i < {len(self.sizes)}; i++)"
            text = f"{each}\n\t\tmemset(B[i].p, 0x7f, size[i]);\n\t{text}"
        main = MAIN % (", ".join(map(str, self.sizes)), self.n_in, text, self.n_in, len(rows))
        with open(os.path.join(folder, "main.cc"), "w", encoding="utf-8") as f:
            f.write(main)
        defines = [f"-D{a.split()[0]}={a.split()[1]}" for word, a in self.lines if word == "define"]
        self.exe = os.path.join(folder, "main")
        compiled(self.exe, [*FLAGS, optimise, *defines, kernels, main],
                 [kernels, main, os.path.join(HERE, "library.cc")],
                 lambda: ["c++", *FLAGS, optimise, "-I", folder, *defines, f.name, tool("library.cc", "c++")[0]])

    def words(self):
        return [word for word, _ in self.lines]

    def run(self, inputs, between=None, timeout=60, tf32=None):
        """Bytes of the outputs.  tf32: the library's fp32 convolutions of more channels have operands of 11 bits, and
        all channels-last, as cuDNN's by default; None: they are exact."""
        env = None if tf32 is None else {**os.environ, "WW_EMULATED_TF32": str(tf32)}
        p = subprocess.Popen(["timeout", str(timeout), self.exe], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=env)
        try:
            for data in inputs:
                p.stdin.write(data)
            p.stdin.flush()
            for s in self.segments:
                for data in between(s, [self._read(p, self.sizes[b]) for b in s.read_bufs]):
                    p.stdin.write(data)
                p.stdin.flush()
            out = [self._read(p, n) for n in self.sizes[self.n_in:self.n_in + len(self.outputs)]]
        except (BrokenPipeError, EOFError):
            out = None
        finally:
            try:
                p.stdin.close()
            except BrokenPipeError:
                pass
            why = p.stderr.read().decode(errors="replace")
            p.stdout.close()
            p.stderr.close()
            code = p.wait()
        if code or out is None:
            raise Wrong("it takes too long" if code == 124 else why.strip() or f"it ended with {code}")
        return out

    @staticmethod
    def _read(p, n):
        data = p.stdout.read(n)
        if len(data) != n:
            raise EOFError
        return data
