import ctypes
import subprocess


def compiled(source, *flags):
    """C of the solution's own, for ctypes."""
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-x", "c", "-", "-o", "/tmp/native.so", "-lm"],
                   input=source.encode(), check=True)
    return ctypes.CDLL("/tmp/native.so")


def at(t):
    return ctypes.c_void_p(t.data_ptr())


def long(n):
    return ctypes.c_long(n)

