"""Compiled extensions of a solution: build them, and carry a finished build to another process.

A build happens once, in a process that holds no GPU and no buffer of the judge's.  What lies in the build directory
afterwards is packed into one blob that the judge stores under the solution's own content.  A process that holds the
same solution later unpacks it before the solution runs.  So a forged build can only hurt the solution that forged it.

That process may not start a compiler: ninja gives each compiler a process group, and a called solution must stay in one
(confine.py).  So ninja does not run there.  It would also rebuild if a header is newer than the build (a checkout, a
new installation of PyTorch), since it compares file times.  Instead the file `finished` in the build directory has a
line for each successful build: the hash of its build.ninja and of the sources in it.

    blob = 8 bytes length of the index, little-endian | index: JSON [[path, mode, mtime_ns, bytes], ...] | the files'
    bytes
"""

import hashlib
import json
import os
import re
import struct
import sys

from . import Problem

DIRECTORY = os.environ.get("TORCH_EXTENSIONS_DIR", "/tmp/build")
HEADERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")
FINISHED = "finished"
MAX_BYTES = 256 << 20


def environment(target, arch, jobs, builds):
    """Set the compilers' environment: code for this GPU only, and the short forms of PyTorch's headers first."""
    os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ.get("PATH", "")
    os.environ["MAX_JOBS"] = str(max(1, jobs))
    if target == "cuda":
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{arch // 10}.{arch % 10}"
    os.makedirs(DIRECTORY, exist_ok=True)
    short_headers_first(builds)


def short_headers_first(builds):
    """CPATH is searched after -I and before -isystem, where PyTorch's headers are; nvcc's passes all go through the
    host's preprocessor.  An extension that does not compile with them is built again with PyTorch's own headers."""
    from torch.utils import cpp_extension

    plain = cpp_extension._run_ninja_build

    def build(directory, *args, **kwargs):
        now = recipe(directory)
        if now in finished(directory):
            return
        builds.begin()
        os.environ["CPATH"] = HEADERS
        try:
            plain(directory, *args, **kwargs)
        except RuntimeError:
            del os.environ["CPATH"]
            plain(directory, *args, **kwargs)
        finally:
            os.environ.pop("CPATH", None)
        with open(os.path.join(directory, FINISHED), "a", encoding="ascii") as f:
            f.write(now + "\n")
        builds.end()

    cpp_extension._run_ninja_build = build


class Builds:
    """May extensions be built in this process, and were all builds successful?  A failed one may be the machine's fault
    (memory, processes, disk), and must be tried again."""

    def __init__(self, allowed):
        self.allowed, self.open = allowed, 0

    def begin(self):
        if not self.allowed:
            raise Problem("build", "extensions are compiled once, when model_new.py is first run; compile this one at "
                                   "the file's top level (not in __init__ or forward()), with the same sources and "
                                   "flags each time")
        self.open += 1

    def end(self):
        self.open -= 1


def recipe(directory):
    """The hash of what ninja would build there: its file and the sources that it names."""
    with open(os.path.join(directory, "build.ninja"), "rb") as f:
        text = f.read()
    h = hashlib.sha256(text)
    for path in re.findall(rb"^build \S+: \w*compile (.+)$", text, re.M):
        with open(path.replace(b"$ ", b" "), "rb") as f:
            h.update(hashlib.sha256(f.read()).digest())
    return h.hexdigest()


def finished(directory):
    try:
        with open(os.path.join(directory, FINISHED), encoding="ascii") as f:
            return f.read().split()
    except FileNotFoundError:
        return []


def pack():
    index, parts, total = [], [], 0
    for here, _, names in os.walk(DIRECTORY):
        for name in sorted(names):
            path = os.path.join(here, name)
            if name == "lock" or os.path.islink(path):
                continue
            info = os.stat(path)
            total += info.st_size
            if total > MAX_BYTES:
                raise Problem("build", f"the extensions' build directory holds more than {MAX_BYTES >> 20} MiB")
            index.append([os.path.relpath(path, DIRECTORY), info.st_mode & 0o777, info.st_mtime_ns, info.st_size])
            with open(path, "rb") as f:
                parts.append(f.read())
    if not index:
        return b""
    head = json.dumps(index).encode()
    return struct.pack("<Q", len(head)) + head + b"".join(parts)


def unpack(blob, directory=None):
    directory = directory or DIRECTORY
    (n,) = struct.unpack_from("<Q", blob)
    at = 8 + n
    for path, mode, mtime_ns, size in json.loads(blob[8:at]):
        path = os.path.join(directory, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(blob[at : at + size])
        os.chmod(path, mode)
        os.utime(path, ns=(mtime_ns, mtime_ns))
        at += size


def as_file(blob):
    fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    with open(fd, "wb", closefd=False) as f:
        f.write(blob)
    return fd


def from_file(fd):
    with open(fd, "rb") as f:
        f.seek(0)
        return f.read()


# ---- CUDA Agent's extension: kernels/*.cu and kernels/*.cpp beside a frozen registry that we write ourselves.

REGISTRY = """#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

/* Every file of kernels/ may register a function that adds its bindings; the module applies them in order. */
struct BindingRegistry {
	using BindingFunction = std::function<void(pybind11::module &)>;
	std::vector<std::pair<std::string, BindingFunction>> entries;
	static BindingRegistry &getInstance()
	{
		static BindingRegistry one;
		return one;
	}
	void registerBinding(const std::string &name, BindingFunction f) { entries.emplace_back(name, std::move(f)); }
	void applyBindings(pybind11::module &m)
	{
		for (auto &e : entries)
			e.second(m);
	}
};
struct BindingRegistrar {
	BindingRegistrar(const std::string &name, BindingRegistry::BindingFunction f)
	{
		BindingRegistry::getInstance().registerBinding(name, std::move(f));
	}
};
#define REGISTER_BINDING(name, function) \\
	static BindingRegistrar ww_registrar_##name(#name, [](pybind11::module &m) { function(m); })
"""

BINDING = """#include "binding_registry.h"
PYBIND11_MODULE(cuda_extension, m)
{
	BindingRegistry::getInstance().applyBindings(m);
}
"""


def cuda_extension(work, paths):
    """Compile and import cuda_extension of a CUDA-Agent directory, with that project's own flags."""
    from torch.utils.cpp_extension import load

    sources = [os.path.join(work, p) for p in paths if p.startswith("kernels/") and p.endswith((".cu", ".cpp"))]
    if not sources:
        return
    for name, text in (("binding_registry.h", REGISTRY), ("binding.cpp", BINDING)):
        write_once(os.path.join(work, name), text)
    cuda = any(s.endswith(".cu") for s in sources)
    where = os.path.join(DIRECTORY, "cuda_extension")
    os.makedirs(where, exist_ok=True)
    sys.modules["cuda_extension"] = load(
        name="cuda_extension", sources=[os.path.join(work, "binding.cpp"), *sources], build_directory=where,
        with_cuda=cuda, extra_cflags=["-O3", "-std=c++17"],
        extra_cuda_cflags=["-O3", "--use_fast_math"] if cuda else None)


def write_once(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.utime(path, (1, 1))  # the same time in every process, so that a finished build is not stale
