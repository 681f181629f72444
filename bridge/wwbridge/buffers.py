"""Shared memory: one allocation for each input, parameter and output, handed to the judge as a file descriptor.

cpu: a memfd of whole pages, sealed against changes of size and against new writable mappings of inputs and parameters
(the worker's own mapping is older than the seal).  Outputs stay writable: the candidate writes them.  The judge makes
the memfds: this process may not, since a task could hide memory in them.

cuda: cuMemCreate with a POSIX descriptor as handle type, by ctypes on the driver library, reserved, mapped and made
accessible here; the importer decides for itself whether it maps read-only.  PyTorch sees the memory through
__cuda_array_interface__.  PyTorch's own allocations are never exported.

A tensor lies in its buffer from byte 0 with the strides that the graph states.
"""

import ctypes
import fcntl
import itertools
import mmap
import os

import torch

from . import Refuse
from .tensors import copy_all, span, span_bytes

POISON = (0xFF, 0x7F, 0x00, 0xFE)  # ww_run_poison(): one byte of these throughout, in turn
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE = 1033, 1, 2, 4, 16


class HostMemory:
    @staticmethod
    def size(nbytes):
        return max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE

    def __init__(self, nbytes, writable, fd=None):
        self.alloc_bytes = self.size(nbytes)
        if fd is None:  # a test, without a judge
            fd = os.memfd_create("warpwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, self.alloc_bytes)
        self.fd = fd
        self.map = mmap.mmap(self.fd, self.alloc_bytes, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (0 if writable else F_SEAL_FUTURE_WRITE)
        fcntl.fcntl(self.fd, F_ADD_SEALS, seals)
        self.bytes = torch.frombuffer(self.map, dtype=torch.uint8)

    def close(self):
        os.close(self.fd)  # the mapping goes with the last tensor on it


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProp(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]


class AccessDesc(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Driver:
    """The few driver calls, by their names in the driver API."""

    u64, size = ctypes.c_uint64, ctypes.c_size_t

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        u64, size, p = self.u64, self.size, ctypes.c_void_p
        for name, types in {
            "cuMemGetAllocationGranularity": [p, p, ctypes.c_int],
            "cuMemCreate": [p, size, p, u64],
            "cuMemRelease": [u64],
            "cuMemAddressReserve": [p, size, size, u64, u64],
            "cuMemAddressFree": [u64, size],
            "cuMemMap": [u64, size, size, u64, u64],
            "cuMemUnmap": [u64, size],
            "cuMemSetAccess": [u64, size, p, size],
            "cuMemExportToShareableHandle": [p, u64, ctypes.c_int, u64],
            "cuMemImportFromShareableHandle": [p, p, ctypes.c_int],
            "cuModuleLoadData": [p, p],
            "cuModuleGetFunction": [p, u64, ctypes.c_char_p],
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": [p, u64, ctypes.c_int, size],
            "cuLaunchCooperativeKernel": [u64, *[ctypes.c_uint] * 7, u64, p],
            "cuStreamSynchronize": [u64],
        }.items():
            getattr(self.lib, name).argtypes = types
            getattr(self.lib, name).restype = ctypes.c_int
        self.lib.cuGetErrorName.argtypes = [ctypes.c_int, p]

    def __call__(self, name, *args):
        rc = getattr(self.lib, name)(*args)
        if rc:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(rc, ctypes.byref(text))
            why = (text.value or b"?").decode()
            if rc == 2:  # CUDA_ERROR_OUT_OF_MEMORY
                raise Refuse("memory", "the task's shared buffers do not fit into the memory of this device")
            raise Refuse("device", f"{name}: {why} ({rc})")


class DeviceMemory:
    driver = None

    def __init__(self, nbytes, device):
        DeviceMemory.driver = DeviceMemory.driver or Driver()
        cu = DeviceMemory.driver
        where = Location(1, device.index)  # CU_MEM_LOCATION_TYPE_DEVICE
        prop = AllocationProp(type=1, handle_types=1, location=where)  # pinned, POSIX descriptor
        grain, handle, address, fd = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int(-1)
        cu("cuMemGetAllocationGranularity", ctypes.byref(grain), ctypes.byref(prop), 0)
        n = self.alloc_bytes = max(1, -(-nbytes // grain.value)) * grain.value
        cu("cuMemCreate", ctypes.byref(handle), n, ctypes.byref(prop), 0)
        try:
            cu("cuMemAddressReserve", ctypes.byref(address), n, 0, 0, 0)
            self.address = address.value
            cu("cuMemMap", self.address, n, 0, handle, 0)
            access = AccessDesc(where, 3)  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            cu("cuMemSetAccess", self.address, n, ctypes.byref(access), 1)
            cu("cuMemExportToShareableHandle", ctypes.byref(fd), handle, 1, 0)
        finally:
            cu("cuMemRelease", handle)  # the mapping and the descriptor keep the memory
        self.fd = fd.value
        os.set_inheritable(self.fd, False)
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "|u1", "data": (self.address, False),
                                         "strides": None, "version": 3}
        self.bytes = torch.as_tensor(self, device=device)
        if self.bytes.data_ptr() != self.address:
            raise Refuse("device", "PyTorch copied a shared buffer where it should have mapped it")

    def close(self):
        os.close(self.fd)
        torch.cuda.synchronize()
        DeviceMemory.driver("cuMemUnmap", self.address, self.alloc_bytes)
        DeviceMemory.driver("cuMemAddressFree", self.address, self.alloc_bytes)


class ImportedMemory:
    """Device memory of another process, pieces of it one behind the other."""

    driver = None

    def __init__(self, fds, sizes, device, writable):
        cu = ImportedMemory.driver = ImportedMemory.driver or Driver()
        address, self.mapped = ctypes.c_uint64(), []
        self.nbytes = sum(sizes)
        cu("cuMemAddressReserve", ctypes.byref(address), self.nbytes, 0, 0, 0)
        self.address = at = address.value
        try:
            for fd, size in zip(fds, sizes):
                handle = ctypes.c_uint64()
                cu("cuMemImportFromShareableHandle", ctypes.byref(handle), fd, 1)  # a POSIX descriptor
                try:
                    cu("cuMemMap", at, size, 0, handle, 0)
                finally:
                    cu("cuMemRelease", handle)
                self.mapped.append((at, size))
                at += size
            access = AccessDesc(Location(1, device.index), 3 if writable else 1)
            cu("cuMemSetAccess", self.address, self.nbytes, ctypes.byref(access), 1)
            self.__cuda_array_interface__ = {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False),
                                             "strides": None, "version": 3}
            self.bytes = torch.as_tensor(self, device=device)
        except BaseException:
            self.close()
            raise

    def close(self):
        self.bytes = None
        torch.cuda.synchronize()
        for at, size in self.mapped:
            self.driver("cuMemUnmap", at, size)
        self.driver("cuMemAddressFree", self.address, self.nbytes)
        self.mapped = []


def wanted(task):
    """(role, name, sizes, strides, dtype, apart) of every buffer of a task, in the order of the graph."""
    for role, table in (("input", task.table["inputs"]), ("param", task.table["params"])):
        for name, t in table:
            yield role, name, t.shape, t.stride(), t.dtype, False
    for i, (sizes, strides, dtype) in enumerate(task.out_meta):
        yield "output", f"output{i}", sizes, strides, dtype, task.out_apart[i]


def row(role, name, sizes, strides, dtype, apart):
    """apart: of an output, whether the task makes it in memory of its own."""
    nbytes = span_bytes(sizes, strides, dtype.itemsize)
    return {"role": role, "name": name, "bytes": nbytes, "alloc_bytes": HostMemory.size(nbytes), "apart": apart}


class Shared:
    """All buffers of a task: inputs, parameters, outputs.  given: on the cpu target their memfds."""

    def __init__(self, task, given=()):
        self.task, self.memory, self.rows = task, [], []
        self.poisons = itertools.cycle(POISON)
        self.inputs, self.params, self.outputs = [], [], []
        given = list(given)
        try:
            for w in wanted(task):
                lists = {"input": self.inputs, "param": self.params, "output": self.outputs}
                lists[w[0]].append(self._make(*w, given.pop(0) if given else None))
        except BaseException:
            self.close()
            raise
        self.pairs = [([span(t) for t in mine], [span(t.detach()) for _, t in theirs])
                      for mine, theirs in ((self.inputs, task.table["inputs"]), (self.params, task.table["params"]))]

    def _make(self, role, name, sizes, strides, dtype, apart, fd):
        r = row(role, name, sizes, strides, dtype, apart)
        if self.task.target.kind == "cuda":
            m = DeviceMemory(r["bytes"], self.task.device)
        else:
            m = HostMemory(r["bytes"], role == "output", fd)
        self.memory.append(m)
        self.rows.append({**r, "alloc_bytes": m.alloc_bytes})
        return m.bytes.view(dtype).as_strided(tuple(sizes), tuple(strides))

    def publish(self, params):
        """Copy the current draw into the shared buffers; parameters only where they changed."""
        to, values = self.pairs[0]
        if params:
            self.task.restore()
            to, values = to + self.pairs[1][0], values + self.pairs[1][1]
        copy_all(to, values)

    def poison(self):
        """Fill the outputs with what the judge's runners write before a call, which no two calls in a row find."""
        byte = next(self.poisons)
        for m, row in zip(self.memory, self.rows):
            if row["role"] == "output":
                m.bytes.fill_(byte)

    def answer(self):
        return {"buffers": self.rows}, [m.fd for m in self.memory]

    def close(self):
        self.inputs, self.params, self.outputs, self.pairs = [], [], [], []
        for m in self.memory:
            m.bytes = None
            m.close()
        self.memory = []
