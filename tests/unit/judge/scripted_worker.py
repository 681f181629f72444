"""A reference worker without PyTorch, for tests of what a judge does around its workers: whatever the task, it says
that it adds to 64 numbers, and computes nothing."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "bridge"))
import worker  # noqa: E402

DEVICE = {"name": "scripted", "uuid": "", "threads": 1, "vector_bytes": 16, "cc": 0, "sm_count": 0, "warp_size": 0,
          "max_threads_per_block": 1, "max_threads_per_sm": 0, "regs_per_sm": 0, "shared_per_block_bytes": 1 << 20,
          "shared_per_sm_bytes": 0, "l1_bytes": 1 << 15, "l2_bytes": 1 << 20, "l3_bytes": 1 << 25,
          "memory_bytes": 1 << 34, "memory_bytes_per_s": 1e10}
HELLO = {"target": "cpu", "versions": {"python": "3", "torch": "0.scripted", "cuda": "", "cudnn": "", "cublas": "",
                                       "driver": ""}, "settings": {}, "device": DEVICE, "pool_bytes": 0}
FORM = {"dtype": "float32", "sizes": [64], "strides": [1]}


class Scripted(worker.Worker):
    def check(self, q, fds):
        return {}, []

    def hello(self, q, fds):
        self.target = "cpu"
        return HELLO, []

    def load(self, q, fds):
        self.task = q
        return {"id": q["id"], "name": q["name"], "inputs": 1, "params": 0, "outputs": 1, "mutated": [],
                "training": True, "known": bool(q.get("graph"))}, []

    def graph(self, q, fds):
        node = {"name": "add", "op": "aten.add.Tensor", "args": [{"ref": "x"}, 1], "kwargs": {}, "out": [FORM],
                "bytes": 512, "flops": 64}
        return {"version": 1, "source": "export", "target": "cpu",
                "task": {"name": self.task["name"], "id": self.task["id"], "training": True},
                "inputs": [{"name": "x", **FORM}], "scalars": [], "params": [], "nodes": [node],
                "outputs": [{"name": "output0", "ref": "add", **FORM}], "output_tree": 0, "mutated": [],
                "totals": {"bytes": 512, "input_bytes": 256, "output_bytes": 256, "flops": 64, "matrix_flops": 0,
                           "node_bytes": 512, "nodes": 1}}, []

    def buffers(self, q, fds):
        rows = [{"role": r, "name": n, "bytes": 256, "alloc_bytes": 4096}
                for r, n in (("input", "x"), ("output", "output0"))]
        return {} if fds else {"buffers": rows}, []


worker.Worker, worker.import_all = Scripted, lambda target, exports, compiles: None
worker.main()
