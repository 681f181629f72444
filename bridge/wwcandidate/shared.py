"""Map the judge's buffers into a candidate, read-only, and tell the judge where a call's outputs lie, which it reads
itself.

A tensor over an input or a parameter is made once and stays; its content changes between calls without PyTorch's
knowledge, so that a cache by pointer, version or identity is wrong.  A store into it crashes this process.

Outputs stay in this process's own memory (src/judge/forms/outputs.h says why).  cpu: the judge reads them by their
addresses.  cuda: the memory that PyTorch's allocator takes from the driver can be shared by descriptors (expandable
segments), so the pieces that hold an output are lent to the judge, each once.  Memory that cannot be lent (a CUDA
graph's own pool, cudaMalloc) is copied into a buffer of the judge's within the call.  A baseline's outputs are never
looked at, and never copied.
"""

import ctypes
import mmap

import torch

from wwbridge.tensors import span_bytes

DTYPES = {str(d).replace("torch.", ""): d for d in (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool)}


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


class HostMemory:
    """Memory that is mapped until the process ends. mmap.mmap() would keep a descriptor, by which a solution could
    change the file's mode, so that the judge cannot open it again, or its locks."""

    def __init__(self, fd, nbytes):
        address = libc.mmap(None, nbytes, mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_POPULATE, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        self.bytes = torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), dtype=torch.uint8)


class Lender:
    """Pieces of this process's device memory, as descriptors."""

    def __init__(self):
        from wwbridge.buffers import Driver

        self.cu, self.lent, self.new = Driver(), {}, []
        p, size, u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
        self.cu.lib.cuMemGetAddressRange_v2.argtypes = [p, p, u64]
        self.cu.lib.cuMemRetainAllocationHandle.argtypes = [p, u64]
        self.base, self.size, self.handle = u64(), size(), u64()
        self.at = [ctypes.byref(x) for x in (self.base, self.size, self.handle)]

    def address(self, t):
        """Lend all pieces that hold a tensor; returns its address, 0 if a piece cannot be lent."""
        at = t.data_ptr()
        end = at + span_bytes(t.shape, t.stride(), t.itemsize)
        while at < end:
            at = self.lend(at)
            if not at:
                return 0
        return t.data_ptr()

    def lend(self, address):
        """Lend the piece that holds the address; returns the piece's end, 0 if it cannot be lent.  A piece that was
        lent before is checked again: the allocator may have freed it and taken other memory at the same address."""
        lib, (base, size, handle) = self.cu.lib, self.at
        if lib.cuMemGetAddressRange_v2(base, size, address) or lib.cuMemRetainAllocationHandle(handle, self.base.value):
            return 0
        start, end, mine = self.base.value, self.base.value + self.size.value, self.handle.value
        before = self.lent.get(start)
        if before == (end, mine):
            lib.cuMemRelease(mine)
            return end
        fd = ctypes.c_int(-1)
        if lib.cuMemExportToShareableHandle(ctypes.byref(fd), mine, 1, 0):  # a POSIX descriptor
            lib.cuMemRelease(mine)
            return 0
        if before:
            lib.cuMemRelease(before[1])
        self.lent[start] = (end, mine)  # keep the handle, so that no other piece gets its number
        self.new.append((start, end - start, fd.value))
        return end


class Shared:
    """Tensors of the inputs in the order of the task's graph; of the parameters by name.  `outputs`: (shape, dtype,
    strides) of each, no strides if any will do; `apart`: whether the task makes it in memory of its own."""

    def __init__(self, rows, fds, device):
        self.inputs, self.params, self.outputs, self.landing, self.memory = [], {}, [], [], []
        self.lender = Lender() if device.type == "cuda" else None
        self.outputs = [(torch.Size(r["sizes"]), DTYPES[r["dtype"]], None if r.get("loose") else r["strides"])
                        for r in rows if r["role"] == "output"]
        self.apart = [r.get("apart", False) for r in rows if r["role"] == "output"]
        for row, fd in zip(rows, fds):
            if device.type == "cuda":
                from wwbridge.buffers import ImportedMemory

                m = ImportedMemory([fd], [row["alloc_bytes"]], device, row["role"] == "output")
            else:
                m = HostMemory(fd, row["alloc_bytes"])
            self.memory.append(m)
            t = m.bytes.view(DTYPES[row["dtype"]]).as_strided(row["sizes"], row["strides"])
            if row["role"] == "input":
                self.inputs.append(t)
            elif row["role"] == "param":
                self.params[row["name"]] = t
            else:
                self.landing.append(t)

    def places(self, found):
        """(numbers, descriptors) in the form of src/judge/forms/outputs.h and lent.h."""
        numbers, new = [], []
        for i, t in enumerate(found):
            at = self.lender.address(t) if self.lender else t.data_ptr()
            if not at and i < len(self.landing):
                self.landing[i].copy_(t)
            numbers += (at, *t.stride())
        if self.lender:
            new, self.lender.new = self.lender.new, []
            for base, size, _ in new:
                numbers += (base, size)
        return numbers, [fd for _, _, fd in new]
