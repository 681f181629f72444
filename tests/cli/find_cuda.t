#!/usr/bin/env python3
"""tools/cuda.cmake: on a machine with a driver alone <cuda.h> is that of PyTorch's wheels, which come after the first
configuration; a toolkit goes first, also one that is installed later."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, ROOT  # noqa: E402

NOT_OF_THE_SYSTEM = ["-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF",
                     f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}"]
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(find NONE)
include({ROOT}/tools/cuda.cmake)
file(WRITE ${{CMAKE_BINARY_DIR}}/found "${{CUDA_HEADERS}} ${{NVCC}}")
add_custom_target(nothing ALL)
"""
OLD = f"""cmake_minimum_required(VERSION 3.25)
project(find NONE)
include({ROOT}/src/dev/module.cmake)
"""

with tempfile.TemporaryDirectory(prefix="ww-find-cuda-") as top:
    top = os.path.realpath(top)

    def put(name, text=""):
        path = os.path.join(top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)

    def after(*argv):
        """What was found after this command, without what the system has."""
        env = {**os.environ, "WW_PYTHON": os.path.join(top, "venv/bin/python"), "CUDA_HOME": os.path.join(top, "cuda")}
        p = subprocess.run([*argv], capture_output=True, text=True, timeout=60, env=env, check=False)
        said = p.stdout + p.stderr
        with open(os.path.join(top, "build/found"), encoding="utf-8") as f:
            return [d.replace(top + "/", "") if d.startswith(top) else d for d in f.read().split()], said

    put("CMakeLists.txt", PROJECT)
    put("venv/bin/python")
    names = ["CUDA_HEADERS-NOTFOUND", "NVCC-NOTFOUND"]
    found, said = after("cmake", "-G", "Ninja", "-S", top, "-B", top + "/build", f"-DWW_CUDA_TOOLKITS={top}/cuda",
                        *NOT_OF_THE_SYSTEM)
    ok(found == names, "nothing is there", [found, said])
    wheel = "venv/lib/python3.12/site-packages/nvidia/cu13/include"
    put(wheel + "/cuda.h")
    found, said = after("ninja", "-C", top + "/build")
    ok([os.path.normpath(found[0]), found[1]] == [wheel, names[1]],
       "the next build finds the header that PyTorch brought", [found, said])
    put("cuda/bin/nvcc")
    found, said = after("ninja", "-C", top + "/build")
    ok(found[1] == "cuda/bin/nvcc", "and the compiler of a toolkit that came", [found, said])
    os.remove(os.path.join(top, "build/CMakeCache.txt"))
    put("cuda/include/cuda.h")
    found, said = after("cmake", "-G", "Ninja", "-S", top, "-B", top + "/build", *NOT_OF_THE_SYSTEM)
    ok(found == ["cuda/include", "cuda/bin/nvcc"], "a toolkit that CUDA_HOME names goes first", [found, said])

# An nvcc that does not know the flags (before CUDA 12.8) costs the engine's cuda backend, and not the build.
with tempfile.TemporaryDirectory(prefix="ww-old-nvcc-") as top:
    nvcc = "#!/bin/sh\necho Unknown option >&2\nexit 1\n"
    for name, text in (("CMakeLists.txt", OLD), ("nvcc", nvcc)):
        with open(os.path.join(top, name), "w", encoding="utf-8") as f:
            f.write(text)
    os.chmod(os.path.join(top, "nvcc"), 0o755)
    p = subprocess.run(["cmake", "-G", "Ninja", "-S", top, "-B", top + "/build", f"-DNVCC={top}/nvcc"],
                       capture_output=True, text=True, timeout=60, check=False)
    ok(p.returncode == 0 and "cannot build the engine's kernels: Unknown option" in " ".join(p.stderr.split()),
       "an nvcc that is too old is named, and the rest is built", p.stdout + p.stderr)
finish()
