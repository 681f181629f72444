"""Print the graphs of task files, made from shapes alone: no tensor has memory, so that tasks of any size fit any
machine.

    python shapes.py FILE...        one line a file: {"file": ..., "graph": ...} or {"file": ..., "error": ...}

The module and its inputs are made of PyTorch's fake tensors (shapes, strides and types without memory), and the
bridge's own writer exports the graph from them: it is the graph that `warpwright inspect` gives, but for the values of
small constants.  It does not check what needs values: whether the task is random, degenerate or depends on its data
(the bridge refuses those).
"""
import json
import os
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bridge"))
sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._pytree import tree_flatten, tree_unflatten  # noqa: E402
from wwbridge import graph  # noqa: E402


def as_fake(mode, t):
    return (
        torch.nn.Parameter(mode.from_tensor(t.detach())) if isinstance(t, torch.nn.Parameter) else mode.from_tensor(t)
    )


class Shapes:
    """A task with the members that wwbridge.graph reads."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.name, self.id = os.path.basename(path), ""
        self.target = types.SimpleNamespace(kind="cpu")
        module = types.ModuleType("ww_task")
        sys.modules["ww_task"] = module  # what the bridge calls it; a dataclass looks its module up there
        exec(compile(text, path, "exec"), module.__dict__)
        self.model = self._model(module)
        self.params = dict(self.model.named_parameters())
        self.state = dict(self.model.named_buffers())
        self.leaves, self.spec = tree_flatten(list(module.get_inputs()))
        self.slots = [i for i, x in enumerate(self.leaves) if isinstance(x, torch.Tensor)]
        self.inputs = [self.leaves[i] for i in self.slots]
        self.scalars = [x for x in self.leaves if not isinstance(x, torch.Tensor)]
        self.mutable_names, self.held = [], types.SimpleNamespace(kind=lambda t: "fixed")
        out = self.model(*self.args())
        leaves, self.out_spec = tree_flatten(out)
        tensors = [x for x in leaves if x is not None]
        places = iter(range(len(tensors)))
        self.out_places = [None if x is None else next(places) for x in leaves]
        self.out_meta = [(tuple(t.shape), tuple(torch.empty_like(t).stride()), t.dtype) for t in tensors]

    @staticmethod
    def _model(module):
        """The module with fake tensors.  If its constructor reads values or changes the type (`.half()`), it is made
        with real tensors first."""
        try:
            return module.Model(*module.get_init_inputs())
        except RuntimeError:  # no numbers to depend on; parameters that cannot be swapped; an error, which comes again
            pass
        mode = torch._C._unset_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        try:
            model = module.Model(*module.get_init_inputs())
        finally:
            torch._C._set_dispatch_mode(mode)
        for part in model.modules():
            for table in (part._parameters, part._buffers):
                table.update({k: as_fake(mode, v) for k, v in table.items() if v is not None})
        return model

    def args(self, leaves=None):
        return tree_unflatten(self.leaves if leaves is None else leaves, self.spec)

    def restore(self):
        pass

    def _usable(self, t, what):
        pass


def graph_of(path):
    with torch.no_grad():
        with FakeTensorMode(allow_non_fake_inputs=True):
            task = Shapes(path)
        return graph.build(task)[0]  # export finds the mode of the tensors; inside of it it would refuse


def main():
    for path in sys.argv[1:]:
        line = {"file": path}
        try:
            line["graph"] = graph_of(path)
        except Exception as e:
            line["error"] = f"{type(e).__name__}: {' '.join(str(e).split())}"[:600]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
