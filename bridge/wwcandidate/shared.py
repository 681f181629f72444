"""The judge's buffers in a candidate: inputs and parameters mapped for reading, outputs for writing.

A tensor over a buffer is made once and stays; its content changes between calls without PyTorch knowing, so that nothing that is
remembered by pointer, version or identity stays true.  A store into an input is a fault of this process.
"""

import ctypes
import mmap
import warnings

import torch

DTYPES = {str(d).replace("torch.", ""): d for d in (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
    torch.bool)}


class HostMemory:
    def __init__(self, fd, nbytes, writable):
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.map = mmap.mmap(fd, nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE, prot)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "the given buffer is not writable": it is not
            self.bytes = torch.frombuffer(self.map, dtype=torch.uint8)


class DeviceMemory:
    driver = None

    def __init__(self, fd, nbytes, writable, device):
        from wwbridge.buffers import AccessDesc, Driver, Location

        if DeviceMemory.driver is None:
            DeviceMemory.driver = Driver()
            DeviceMemory.driver.lib.cuMemImportFromShareableHandle.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        cu = DeviceMemory.driver
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        cu("cuMemImportFromShareableHandle", ctypes.byref(handle), fd, 1)  # a POSIX descriptor
        cu("cuMemAddressReserve", ctypes.byref(address), nbytes, 0, 0, 0)
        cu("cuMemMap", address.value, nbytes, 0, handle, 0)
        access = AccessDesc(Location(1, device.index), 3 if writable else 1)
        cu("cuMemSetAccess", address.value, nbytes, ctypes.byref(access), 1)
        cu("cuMemRelease", handle)
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address.value, False), "strides": None,
                                         "version": 3}
        self.bytes = torch.as_tensor(self, device=device)


class Shared:
    """Lists of tensors in the order of the task's graph; params also by name."""

    def __init__(self, rows, fds, device, own_outputs):
        self.inputs, self.params, self.outputs, self.memory = [], {}, [], []
        if own_outputs:
            mine = [r for r in rows if r["role"] == "output"]
            rows = [r for r in rows if r["role"] != "output"]
            self.outputs = [torch.empty_strided(r["sizes"], r["strides"], dtype=DTYPES[r["dtype"]], device=device) for r in mine]
        for row, fd in zip(rows, fds):
            writable = row["role"] == "output"
            if device.type == "cuda":
                m = DeviceMemory(fd, row["alloc_bytes"], writable, device)
            else:
                m = HostMemory(fd, row["alloc_bytes"], writable)
            self.memory.append(m)
            t = m.bytes.view(DTYPES[row["dtype"]]).as_strided(row["sizes"], row["strides"])
            if row["role"] == "input":
                self.inputs.append(t)
            elif row["role"] == "param":
                self.params[row["name"]] = t
            else:
                self.outputs.append(t)
