"""Is a task worth keeping?  Everything that the filters of `synth run` ask of PyTorch, in one request.

The tests are stricter than the judge's (reference.py): a task that is kept here is not degenerate there.

    depends       outputs depend on every input and parameter: one backward pass of a randomly weighted sum of the
                  outputs; tensors without a clear gradient (indices, masks; a bias that a norm cancels) are
                  changed, and the outputs compared
    degenerate    outputs of two draws of the inputs differ from each other, from their mean and from zero; no values
                  are hidden by a mask of -1e9 next to them
    memory        the module's runs take no more of the device's memory than the recipe allows
    finite        outputs are finite with inputs scaled by 2^-6 and 2^6, and shifted by 3
    compile       torch.compile's outputs equal eager's

The baseline compile is then prepared, so that the client can measure it (the requests time and arm).
"""

from contextlib import suppress

import torch

from . import NoCollection, Refuse, collect, device_failed, one_line, out_of_memory
from .baseline import Runner
from .compiler import tune_briefly
from .parts import finite
from .promoted import floating
from .share import Share
from .tensors import span, sub_seed
from .tokens import tokens

SAME = 1e-2  # two results this near count as equal; the rule `paper` has atol = rtol = 1e-2
COMPILED = {torch.float32: 2e-3, torch.float64: 2e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
PIECE, OWN_BYTES = 1 << 24, 1 << 26
HIDDEN, NO_EFFECT, DRAWS = 0.05, 1e-4, ((2.0**-6, 0.0), (2.0**6, 0.0), (1.0, 3.0))


def pieces(*tensors):
    """Tensors of one shape a piece at a time, so that what is compared in double does not take a multiple of the
    outputs' memory, which other candidates need; one without dimensions stands beside each piece."""
    flat = [t.reshape(-1) if t.dim() else t for t in tensors]
    for at in range(0, flat[-1].numel(), PIECE):
        yield [f[at:at + PIECE] if f.dim() else f for f in flat]


def norm(t):
    return torch.linalg.vector_norm(t, dtype=torch.float64)


def of_pieces(norms):
    """The norm of a tensor of which those of its pieces are known."""
    return norm(torch.stack(norms)).item() if norms else 0.0


def size_of(t):
    return of_pieces([norm(x) for (x,) in pieces(t)]) if floating(t) else 0.0


def distance(a, b):
    """The norm of a - b, in fp32."""
    return of_pieces([norm(x.float() - y.float()) for x, y in pieces(a, b)])


def within(a, b, by):
    """By the tolerances of rule `paper`; most are not, and the first piece shows it."""
    for x, y in pieces(a, b):
        x, y = x.float(), y.float()
        if not ((x - y).abs() <= by + by * y.abs()).all():
            return False
    return True


def near(a, b, by=SAME, size=None):
    """Would b pass as a: by the norm, or by the tolerances of rule `paper`?  a: of b's shape, or one number; size: the
    norm of b, where it is known."""
    if not b.numel():
        return True
    if not floating(a):
        return (a != b).float().mean().item() <= by
    return within(a, b, by) or distance(a, b) <= by * (size_of(b) if size is None else size)


def apart(a, b):
    """The relative distance of two outputs by the norm."""
    if not floating(a):
        return (a != b).float().mean().item() if a.numel() else 0.0
    found = [(norm(x.double() - y), norm(y)) for x, y in pieces(a, b)]
    return of_pieces([d for d, _ in found]) / max(of_pieces([n for _, n in found]), 1e-30)


def up_to_float(x):
    """The smallest number of fp32 that is not below x."""
    f = torch.tensor(x, dtype=torch.float32)
    return f.item() if f.item() >= x else torch.nextafter(f, f.new_tensor(float("inf"))).item()


def hidden(a, size=None):
    """The share of elements, not 0, that are so small next to others that rule `strict` accepts any value for them.
    size: the norm, where it is known."""
    most = 1e-5 * (size_of(a) if size is None else size) / max(1, a.numel()) ** 0.5
    if a.dtype != torch.float64:
        most = up_to_float(most)  # of the numbers of fp32 the same ones are below it
    small = [torch.count_nonzero((x.abs() < most) & (x != 0))
             for x in (x if x.dtype == torch.float64 else x.float() for (x,) in pieces(a))]
    return torch.stack(small).sum().item() / a.numel()


def trivial(a, b, i):
    """Can output i be computed without the inputs? a, b: the outputs of two draws.  The distance of a small output from
    a constant varies from draw to draw, so each of the two must be twice as far from it."""
    sizes = size_of(a), size_of(b)
    if near(a, b, size=sizes[1]):
        return "same for every draw", f"output {i} hardly depends on the draw of the inputs"
    for t, size in zip((a, b), sizes):
        mean = t.mean(dtype=torch.float64).to(t.dtype) if floating(t) else t.flatten()[0]
        if near(mean, t, 2 * SAME, size):
            return "constant", f"output {i} is nearly one number"
        zero = t.new_zeros(())
        if within(zero, t, SAME) if floating(t) else near(zero, t):
            return "near zero", f"output {i} is within tolerance of zero"
        share = hidden(t, size) if floating(t) else 0.0
        if share > HIDDEN:
            return "hidden by scale", f"{share:.0%} of output {i} is within the tolerance that its largest values give"
    return None


def keep_nothing_compiled():
    """Turn PyTorch's caches of compiled code off: no task comes twice."""
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    inductor.fx_graph_cache = functorch.enable_autograd_cache = False


def forget_workspaces():
    """Free what cuBLAS computes in, which PyTorch keeps for each stream: 32 MiB each, cut out of whatever block was
    free, which then stays with this process, GiB at a time.  Not while a CUDA graph lives, which may use it."""
    with suppress(AttributeError):
        torch._C._cuda_clearCublasWorkspaces()


class Examination:
    def __init__(self, task, seed, compiler, memory_bytes):
        if compiler == "inductor":
            keep_nothing_compiled()
            tune_briefly(task.target.share)
        self.task, self.seed, self.compiler, self.memory_bytes = task, seed, compiler, memory_bytes
        self.facts = {}

    def outputs(self, leaves=None):
        with self.task.target.share:
            out = [t.clone() for t in self.task.forward(leaves)]
        self.task.restore()
        return out

    def draw(self, name, params, scale=1.0, shift=0.0):
        self.task.draw(sub_seed(self.seed, name), scale, shift, params)

    # ---- The steps, in order; each returns what is wrong, or None

    def degenerate(self):
        self.draw("b", "redraw")
        other = self.outputs()
        self.task.check_shapes(other)
        self.draw("a", "keep")
        self.first = self.outputs()
        with self.task.target.share:
            fine = all(map(finite, self.first))
        if not fine:
            return "not finite", "outputs are not finite"
        for i, (a, b) in enumerate(zip(self.first, other)):
            with self.task.target.share:
                found = trivial(a, b, i)
            if found:
                return found
        return None

    def too_large(self):
        """So far the peak is the module's own; gradients take more.  The inputs of two draws count, as a judge keeps
        them."""
        if self.task.target.kind != "cuda":
            return None
        held = torch.cuda.max_memory_allocated(self.task.device) + sum(span(t).nbytes for t in self.task.inputs)
        if held > self.memory_bytes:
            return "does not fit memory", "its run takes more memory than the recipe allows"
        return None

    def unused(self):
        self.first = None  # gradients take most memory, and few tasks have suspects
        self.task.trim(True)
        for name, t, change in self.suspects():
            if self.first is None:
                self.first = self.outputs()
            before = span(t).clone()
            change()
            changed = self.outputs()
            span(t).copy_(before)
            if all(apart(x, y) < NO_EFFECT for x, y in zip(changed, self.first)):
                return "unused " + name.split()[0], f"{name} has no effect on the outputs"
        return None

    def suspects(self):
        """(name, tensor, how to change it) of tensors that may have no effect on the outputs."""
        task, small = self.task, self.gradients()
        for i, t in enumerate(task.inputs):
            if id(t) in small:
                yield f"input {i}", t, lambda t=t, i=i: span(t).copy_(span(self.other_input(i)))
        for name, p in task.params.items():
            if id(p) in small:
                yield f"parameter {name}", p, lambda p=p: p.mul_(1.5).add_(0.5
                    * max(p.float().std().item() if p.numel() > 1 else 1.0, 0.1))

    def other_input(self, i):
        """Input i of the draw "b": made again, since few are asked for and all would take memory meanwhile."""
        leaves, _ = self.task._draw_leaves(sub_seed(sub_seed(self.seed, "b"), "inputs"))
        return leaves[self.task.slots[i]]

    def gradients(self):
        """The ids of tensors without a clear gradient."""
        task = self.task
        held = {id(t): t for t in [*task.inputs, *task.params.values()]}
        try:
            task.restore()
            leaves, places = list(task.leaves), {}
            with torch.enable_grad(), task.target.share:
                for slot, t in zip(task.slots, task.inputs):
                    if floating(t):
                        leaves[slot] = t.detach().requires_grad_()
                        places[id(t)] = leaves[slot]
                places.update({id(p): p for p in task.params.values() if p.requires_grad})
                out = [t for t in task._flat(task.model(*task.args(leaves))) if floating(t) and t.requires_grad]
                g = torch.Generator(task.device).manual_seed(7)
                weights = [torch.randn(t.shape, generator=g, device=t.device).to(t.dtype) for t in out]
                found = (
                    torch.autograd.grad(out, list(places.values()), weights, allow_unused=True)
                    if out
                    else [None] * len(places)
                )
            task.restore()
            size = {}
            with task.target.share:
                for key, grad in zip(places, found):
                    # the effect of a change of the tensor by its own size
                    size[key] = (
                        0.0
                        if grad is None
                        else size_of(grad) * size_of(held[key]) / max(1.0, held[key].numel() ** 0.5)
                    )
            whole = max(size.values(), default=0.0)
            return {k for k in held if not size.get(k, 0.0) > 1e-3 * whole}
        except (RuntimeError, NotImplementedError, Refuse) as e:
            task.target.sync()  # raises where a kernel has failed
            if out_of_memory(e) and task.target.kind == "cuda":
                torch.cuda.empty_cache()
            task.restore()
            return set(held)

    def scaled(self):
        for k, (scale, shift) in enumerate(DRAWS):
            self.draw(f"scaled {k}", "keep", scale, shift)
            with self.task.target.share:
                out = self.task.forward()
                fine = all(map(finite, out))
            self.task.restore()
            if not fine:
                return "not finite when scaled", f"outputs are not finite with inputs times {scale:g} plus {shift:g}"
        self.draw("a", "keep")
        return None

    def results(self, which, call):
        """Outputs of a baseline, on the draw on which it was prepared: those of the replay by which that ended, unless
        state may lie in them.  Of one that has no CUDA graph: of a call."""
        task = self.task
        r = task.clock().runners.get(which)
        if isinstance(r, Runner) and r.graph is not None and not task.mutable_names:
            return task._flat(r.graph_out)
        with task.target.share:
            task.restore()
            out = [t.clone() for t in task._flat(call(*task.args()))]
        task.restore()
        return out

    def compiled(self):
        task = self.task
        if self.compiler == "inductor":
            answer = task.clock().prepare("compile")
            if not answer["available"]:
                return "does not compile", "torch.compile: " + answer["reason"]
            call = task.clock()._runner("compile").python_call
        else:
            call = torch.compile(task.model, backend=self.compiler)
        try:
            with torch.no_grad(), NoCollection():
                out = self.results("compile", call)
                self.first = self.results("eager", task.model)  # again: not held while this worker compiled
        except Exception as e:
            if out_of_memory(e) or device_failed(e):
                raise
            task.target.sync()  # raises where a kernel has failed
            return "does not compile", f"torch.compile: {type(e).__name__}: {one_line(e, 200)}"
        finally:
            task.restore()
        for i, (a, b) in enumerate(zip(out, self.first)):
            if a.shape != b.shape or a.dtype != b.dtype:
                return "compile differs", f"output {i} has another shape or type"
            with task.target.share:
                by = apart(a, b)
            if not by <= COMPILED.get(b.dtype, 1e-3):
                return "compile differs", f"output {i} of torch.compile differs from eager's by {by:.2g}"
        return None

    def run(self, stage):
        """stage "eager": the tests without a compiler; "compile": the others, for a task that passed the first
        stage."""
        cuda = self.task.target.kind == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats(self.task.device)
        eager = [self.degenerate, self.too_large, self.unused, self.scaled]
        with torch.no_grad():
            for step in [self.compiled] if stage == "compile" else eager:
                found = step()
                if cuda:
                    self.facts["peak_bytes"] = torch.cuda.max_memory_reserved(self.task.device)
                    self.facts["allocated_bytes"] = torch.cuda.max_memory_allocated(self.task.device)
                if found:
                    return {"reason": found[0], "detail": found[1], **self.facts}
        self.first = None
        return {"reason": "", "detail": "", **self.facts}


def examine(task, seed, stage, compiler, memory_bytes):
    answer = look(task, seed, stage, compiler, memory_bytes)
    share = task.target.share
    if isinstance(share, Share):
        answer["share_s"] = share.account()
    return answer


def look(task, seed, stage, compiler, memory_bytes):
    if stage == "text":
        # before anything is compared on the device
        peak = torch.cuda.max_memory_reserved(task.device) if task.target.kind == "cuda" else 0
        return {"reason": "", "tokens": tokens(task.source), "run_us": task.run_s * 1e6, "peak_bytes": peak}
    if stage == "eager":
        task.examination = Examination(task, seed, compiler, memory_bytes)
    answer = task.examination.run(stage)
    if stage == "eager" and not answer["reason"]:
        if task.target.kind == "cuda" and not task.clock(check=False).runners:
            forget_workspaces()
        task.trim(True)  # while this worker compiles, others use the device
    answer["shapes"] = {"inputs": [[str(t.dtype)[6:], list(t.shape)] for t in task.inputs],
                        "outputs": [[str(m[2])[6:], list(m[0])] for m in task.out_meta]}
    return answer


def drop(task, target):
    """Free the task (None: none was loaded) and its device memory, which others need before the next task comes.  What
    a worker keeps of its own is a few MiB: where more is allocated all the same, a cycle holds it.  An answer says that
    the device works."""
    target.sync()  # raises where a kernel has failed
    if task:
        task.examination = None
        torch._dynamo.reset()
        task.free(True)
        task.close()
        task.__dict__.clear()  # so that a cycle that stays alive holds no tensor
    if target.kind != "cuda":
        if not task:
            collect()
        return {"reason": ""}
    forget_workspaces()
    if not task or torch.cuda.memory_allocated(target.device) > OWN_BYTES:
        collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(target.device)
    return {"reason": "", "left_bytes": torch.cuda.memory_reserved(target.device)}
