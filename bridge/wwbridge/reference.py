"""The references of a draw, and the comparison of a candidate's outputs with them.

The reference is the task itself in fp64 (promoted.py).

Comparison runs in pieces that fit the cache (parts.py), so that its memory does not grow with the outputs.

Parts.  The rule holds for a whole output and for each of its parts relative to its own size (parts.py): a row that is
small next to the others may not be zeros.  PyTorch's error in one part is a matter of chance if a few elements make
most of it, as in a row of a relu with one positive element.  So a part beyond 4 E is only suspected, where E is
PyTorch's error in that part or, if larger, its usual error in parts of that size.

Neighbours.  Whether a suspicion is right is decided by NEIGHBOURS of the draw: inputs and parameters with some of their
elements one unit in the last place nearer to zero, or all of them by up to FAR.  They have the condition of the draw
and other roundings.  Integers are not moved: masks and labels would change.  A part is wrong beyond four times the
error that PyTorch would exceed there in one of 10,000 draws, and beyond what 84 units in the last place of the
inputs do to the exact result.  That error is the root mean square of those that were seen, the draw's own included,
times 4.0 if a single element makes it and 1.3 if 64 do; their variance shows how many (after 17 normal errors the
next one exceeds 16 times their root mean square once in 10^11).  A part far beyond its limit after SOON neighbours is
wrong without further ones.  Few parts that are wrong may be near ties all the same (ties.py); runs for these cost less
than neighbours, so some are made behind the first SOON.  Where many parts come near their limits, the limits tell
nothing of each: then their number is compared with that in PyTorch's own runs (Limits.crowd2).

Neighbours decide on the whole of an output, too, unless its error is far beyond the limit.  Of two equally exact
programs one has more than four times the error of the other, in a single number, in 15% of all draws; the result of a
cancellation may lie near zero, where 1e-5 of it is less than fp32 can hold; and in a norm over nearly equal values
PyTorch's own kernels for two memory layouts differ by 40 times their error.  E is then the error that PyTorch itself
would exceed in one of 10,000 such draws, by the size of the errors seen; and the floor is 84 times what the exact
result moves by when inputs move by one unit, up to CANCELLED.  Rounding to TF32 or bfloat16 is thousands of units and
stays wrong.

float64.  PyTorch's own run is the reference there, so its error cannot be measured.  Instead its error is the change of
the outputs when inputs, parameters and state move by one unit in the last place of fp64 (`shaken`), and the floor is 84
such units, or four times the root of the longest sum that the task can hold, where that is more.  If an output depends
on a number that PyTorch's own run has rounded to a smaller type, the rule is that of fp32.  Rejected: numpy's long
double (80 bits on some processors; every operator anew, each of which could be wrong in the way the candidate is).

Rejected: the error over other draws (their sizes and conditions are others), the largest error seen (itself a matter of
luck), and a wider floor for all.
"""

import functools
import math
import time

import torch

from . import Refuse, chosen, device_failed, fused, kinks, number, out_of_memory, ties
from .parts import BACKWARD, FEWER, ONE, SOON, Limits, finite, layout, step_of, tail
from .promoted import addresses, default_run, floating, nearer_to_zero, promoted_run
from .tensors import span, sub_seed

# Smallest tolerated relative error: 1e-5, or half a unit in the last place of the output's type.
FLOOR = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-9}
SIMPLE_FLOOR = 1e-5
UNITS = 84  # SIMPLE_FLOOR, in units in the last place of fp32
FEW, NEIGHBOURS, FAR, HOPELESS, CANCELLED = 64, 16, 2.0**-6, 1e4, 1e-3
# Times the limit after SOON neighbours, of a part and of the whole: no further ones would change that.
BEYOND, FURTHER = 100, 4
EPS = torch.finfo(torch.float32).eps
UNSURE = 0.01  # share of an integer output's values that may differ between PyTorch's fp32 and fp64 runs


class References:
    def __init__(self, task):
        self.task, self.dtype = task, torch.float64
        try:
            self.exact, self.mode = promoted_run(task, torch.float64)
        except Exception as e:
            if not out_of_memory(e):
                raise self._failed(e)
            self._again(task)
        self.default = default_run(task)
        task._check_settings("forward()")
        if len(self.exact) != len(self.default):
            raise Refuse("task", f"{task.name}: the fp64 run has another number of outputs")
        for e, d in zip(self.exact, self.default):
            if e.shape != d.shape:
                raise Refuse("task", f"{task.name}: the fp64 run has outputs of another shape")
        with task.lightly():
            measured = [measure(d, e) for d, e in zip(self.default, self.exact)]
            self.own, self.finite = [m[0] for m in measured], [m[1] for m in measured]
            self.doubles = self._doubles()
            shaken = self._shaken(0) if any(self.doubles) else None
            self.limits = [self._limits(i, *m[2:], shaken and shaken[i]) for i, m in enumerate(measured)]
        self.seen = []  # for each neighbour: errors() of each output
        self.each = {}  # for each neighbour: the possible error of each number of a small output
        self.near = {}  # for outputs with a part that may be a near tie, and neighbours so far: Ties
        self.otherwise = []  # for each run with other roundings: a ties.Run of each output, or None
        self.cost = ties.Cost()  # of the near ties of this comparison
        self.chosen = None  # of each output, what its indices were taken from (chosen.py)
        task.target.sync()

    def _doubles(self):
        """For each output: does the rule for float64 apply?"""
        whole = self.dtype == torch.float64 and not self.mode.exceptions
        return [whole and d.dtype == torch.float64 and not low and fine
                for d, low, fine in zip(self.default, self.task.rounded, self.finite)]

    def _shaken(self, seed):
        return promoted_run(self.task, torch.float64, seed)[0]

    def _floor(self, i):
        dtype = self.default[i].dtype
        if not self.doubles[i]:
            return FLOOR.get(dtype, SIMPLE_FLOOR)
        longest = max(t.numel() for t in [*self.task.inputs, *self.task.params.values(), *self.task.state.values(),
                                          *self.exact])
        return torch.finfo(torch.float64).eps * max(UNITS, 4 * math.sqrt(longest))

    def _limits(self, i, own2, exact2, shaken):
        """Set the limit of the whole of output i; return the limits of its parts, None if it has none."""
        e, d, own = self.exact[i], self.default[i], self.own[i]
        own["floor"] = self._floor(i)
        if self.doubles[i]:
            apart = Distance(shaken, e).measure()
            own.update({k: max(own[k], apart[k]) for k in ("err_rel", "err_abs")})
        if e.numel() < 2 * FEWER or not d.dtype.is_floating_point:
            return None
        if self.doubles[i]:
            own2 = torch.maximum(own2, squares(shaken, e))
        return Limits(d.dtype, e, own["floor"], own2, exact2)

    def _again(self, task):
        self.dtype = torch.float32
        if task.target.kind == "cuda":
            torch.cuda.empty_cache()
        try:
            self.exact, self.mode = promoted_run(task, torch.float32)
        except Exception as e:
            if out_of_memory(e):
                raise Refuse("memory", f"{task.name}: the reference does not fit into the memory of this device")
            raise self._failed(e)

    def _failed(self, e):
        if isinstance(e, Refuse):
            return e
        kind = "device" if device_failed(e) else "task"
        return Refuse(kind, f"{self.task.name}: the fp64 reference failed: {type(e).__name__}: {e}")

    def keep(self, rule):
        """Prepare for the cache (pool.py): hold no memory that the next draw writes to, and nothing that `rule` does
        not need (strict needs only the errors of a finite default run)."""
        held = addresses(self.task, self.task.leaves, whole=True)
        apart = {}  # each tensor is copied once

        def own(t):
            if id(t) not in apart:
                apart[id(t)] = t.clone() if t.untyped_storage().data_ptr() in held else t
            return apart[id(t)]

        exact = [own(t) for t in self.exact]
        if rule == "strict":
            self.default = [e if fine and d.dtype.is_floating_point else d
                            for d, e, fine in zip(self.default, self.exact, self.finite)]
        self.default = [own(t) for t in self.default]
        self.exact = exact

    def rehearse(self):
        """Run a comparison on PyTorch's own outputs, to load its kernels: on a GPU the first call of an operator does,
        and in a judgement other judges' timed calls would wait for it."""
        for i, (e, d) in enumerate(zip(self.exact, self.default)):
            if floating(d) and d.numel() and self.finite[i]:
                all_near(d, e, self.own[i]["rms"], self.limits[i].limit2 if self.limits[i] else None)

    def loosest(self):
        """The largest limit of the relative error of an output; 0 where none is floating."""
        return max((max(4 * o["err_rel"], o["floor"]) for o, d in zip(self.own, self.default) if floating(d)),
                   default=0.0)

    def tensors(self):
        return [*self.exact, *self.default, *(t for p in self.limits if p for t in p.tensors()),
                *(t for near in self.near.values() for t in near.tensors()),
                *(t for run in self.otherwise for r in run or () if r for t in r.tensors()),
                *(of[0] for of in self.chosen or () if of)]

    def answer(self):
        return {
            "dtype": str(self.dtype).replace("torch.", ""),
            "finite": all(self.finite),
            "not_promoted": sorted(self.mode.exceptions),
            "outputs": [
                {"finite": f, "rms": number(o["rms"]), "e_rel": number(o["err_rel"]), "e_max": number(o["err_abs"])}
                for f, o in zip(self.finite, self.own)
            ],
        }

    def compare(self, outputs, rule, cost=None):
        """cost: what near ties may cost, and in the answer what they did."""
        rows, self.cost = [], cost or ties.Cost()
        for i, found in enumerate(outputs):
            rows.append(self.judge(i, found, rule))
        return self._answer(rows, rule, self.cost)

    @staticmethod
    def _answer(rows, rule, cost):
        rows = [{k: number(v) if isinstance(v, float) else v for k, v in r.items() if k != "excess"} for r in rows]
        return {"pass": all(r["pass"] for r in rows), "rule": rule, "outputs": rows, "near_ties": cost.answer()}

    def start(self, outputs, rule):
        """Queue compare() of right outputs behind what is on the device, and wait for nothing.  A function that gives
        its answer, to be called once the device has been waited for, or None where compare() has to look; None where
        these outputs are not compared so."""
        if rule != "strict" or not all(floating(f) and (f.numel() == 1 or f.numel() >= 2 * FEWER) for f in outputs):
            return None
        near = fused.start([(f, e, p and p.limit2, layout(e)) for f, e, p in zip(outputs, self.exact, self.limits)])

        def answer():
            rows = [right(f, e, own, (size_of(err2, top, e, own["rms"]), not beyond))
                    for f, e, own, (err2, top, beyond) in zip(outputs, self.exact, self.own, near())]
            return self._answer(rows, rule, ties.Cost()) if all(rows) else None

        return near and answer

    def judge(self, i, found, rule):
        exact, default, own = self.exact[i], self.default[i], self.own[i]
        if found.dtype == torch.bool:  # unwritten bytes may be neither 0 nor 1; they count as true
            found, exact, default = (t.view(torch.uint8) for t in (found, exact, default))
        with self.task.lightly():
            if rule != "strict":
                return judge_paper(found, exact, default, own)
            if not floating(found):
                row = judge_exact(found, exact, default, own)
                return row if row["pass"] else self._chosen(i, found, row)
            row = judge_strict(found, exact, default, own, self.limits[i])
        few = found.numel() < FEW
        if row["pass"] and 1 < found.numel() < 2 * FEWER:
            return self._each(i, found, row)
        if row["pass"] or row["nonfinite"]:
            return row
        if not row["part"] and row["excess"] > (HOPELESS if few else BEYOND):
            return self._near_ties(i, found, row, own, 0)
        for n in (NEIGHBOURS,) if few else (SOON, NEIGHBOURS):
            self.look_around(n)
            seen = [rows[i] for rows in self.seen[:n] if rows[i]]
            wide = wider(own, seen, found.numel())
            with self.task.lightly():
                row = judge_strict(found, exact, default, wide, self.limits[i], n)
            last = n == NEIGHBOURS or row["excess"] > (BEYOND if row["part"] else FURTHER)
            if not row["pass"]:
                row = self._hidden(i, found, row, wide, n)
            if not row["pass"]:
                row = self._near_ties(i, found, row, wide, n, ties.RUNS if last else ties.AHEAD)
            if row["pass"]:
                row, last = self._crowded(i, found, row, wide), n == NEIGHBOURS
            if row["pass"] or last:
                break
        if row["pass"] and 1 < found.numel() < 2 * FEWER:
            return self._each(i, found, row)
        return row

    def _chosen(self, i, found, row):
        """The row of an output of indices that are right but for which of several equal elements they name
        (chosen.py); else `row`."""
        if self.chosen is None:
            self.chosen = self._if_taken(lambda: chosen.operands(self.task, self.default)) or [None] * len(self.own)
        if not self.chosen[i]:
            return row
        exact, default = self.exact[i], self.default[i]
        return judge_exact(chosen.named(found, exact, default, *self.chosen[i]), exact, default, self.own[i])

    def _hidden(self, i, found, row, own, n):
        """The row of an output that is right but for parts that an activation hides (kinks.py), by its limits after n
        neighbours; else `row`."""
        limits, exact = self.limits[i], self.exact[i]
        if limits is None or not row["part"] or self.doubles[i] or not self.finite[i]:
            return row
        with self.task.lightly():
            error2 = squares(found, exact)
            beyond = error2 > limits.wide[n]
            parts = ties.few(limits, beyond) and kinks.suspects(found, exact, self.own[i], limits,
                                                                torch.where(beyond, error2 / limits.wide[n], 0.0))
        out = parts and self._if_taken(lambda: default_run(self.task))
        with self.task.lightly():
            if not out or not kinks.explain(parts, out[i], exact, self.own[i], error2):
                return row
            return judge_strict(found, exact, self.default[i], own, limits, n, beyond)

    def _near_ties(self, i, found, row, own, n, most=ties.RUNS):
        """The row of an output that is right but for near ties (ties.py), by its limits after n neighbours; else
        `row`.  most: runs with other roundings."""
        limits, exact = self.limits[i], self.exact[i]
        if limits is None or row["nonfinite"] or self.doubles[i] or not self.finite[i]:
            return row
        limit2 = limits.wide[n] if n else limits.limit2
        with self.task.lightly():
            error2 = squares(found, exact)
            beyond = error2 > limit2
            if not ties.few(limits, beyond):
                return row
        near, start = self.near.setdefault((i, n), ties.Ties(limits, limit2)), time.thread_time() - self.cost.seconds
        while True:
            with self.task.lightly():
                right = self._right_but_for(near.sets(error2, beyond), near, i, found, own, n)
            self.cost.seconds = time.thread_time() - start
            done = len(near.runs)
            if right or done >= most or near.none() or self.cost.over(done == len(self.otherwise)):
                return right or row
            if done == len(self.otherwise):
                self.cost.runs += 1
                self.otherwise.append(self._otherwise(done))
            run = self.otherwise[done]
            near.learn(run and run[i])

    def _crowded(self, i, found, row, own):
        """`row`, of an output that is right by its limits after neighbours; where too many of its parts come near
        these, the row of the worst of them."""
        limits, exact = self.limits[i], self.exact[i]
        if limits is None or self.doubles[i] or not self.finite[i]:
            return row
        with self.task.lightly():
            limit2 = limits.crowd2(squares(found, exact))
            if limit2 is None:
                return row
            own = {**own, "limit_rel": row["limit_rel"], "limit_abs": row["limit_abs"]}
            return worst_part(found, exact, own, Distance(found, exact).measure(), limits, limit2)

    def _right_but_for(self, sets, near, i, found, own, n):
        """The row of output i where it is right but for one of these sets of near ties; None if it is not."""
        exact = self.exact[i]
        for some in sets:
            rest = without(found, exact, near.limits.layout, some)
            row = judge_strict(rest, exact, self.default[i], own, near.limits, n, some)
            if row["pass"] and near.explain(found, exact, some):
                whole = Distance(found, exact).measure()
                return {**row, "err_rel": whole["err_rel"], "err_abs": whole["err_abs"]}

    def _otherwise(self, k):
        """A run of the task's own program with other roundings: for each output a ties.Run (None: it has no parts);
        None if the run fails."""
        with Neighbour(self.task, k, ties.move):
            out = self._if_taken(lambda: default_run(self.task, ties.Jitter(generator(self.task, k), k % 3 == 2)))
        with self.task.lightly():
            return out and [ties.Run(o, e, squares(o, e)) if p else None
                            for o, e, p in zip(out, self.exact, self.limits)]

    def _each(self, i, found, row):
        """Check each number of an output that is right as a whole and too small for parts: none may be omitted or
        estimated because another is large.  A number whose error exceeds that of one element of a part is wrong if
        neither PyTorch's errors nor 84 units in the last place of the inputs explain it, on the draw and its
        neighbours."""
        f, e, d = (t.reshape(-1).double() for t in (found, self.exact[i], self.default[i]))
        off, most = (f - e).abs(), ONE * self._floor(i)
        wrong = off > (most * e.abs() + 16 * (d - e).abs()).clamp(min=torch.finfo(self.default[i].dtype).tiny)
        wrong &= e.isfinite() & d.isfinite() & (e != 0)
        if bool(wrong.any()):
            self.look_around(NEIGHBOURS)
            for allowed in self.each.get(i, ()):
                wrong &= off > allowed
        if not bool(wrong.any()):
            return row
        at, v = int(torch.where(wrong, off, -1.0).argmax()), Violations(found.dtype)
        v.add(0, wrong, torch.zeros_like(wrong), f, off)
        mine = {"err_rel": float(off[at] / e[at].abs()), "err_abs": float(off[at]), "at": at}
        own = {**self.own[i], "err_rel": float((d - e)[at].abs() / e[at].abs()), "rms": float(e[at].abs())}
        out = describe(found, self.exact[i], own, mine, v, False, most, most * float(e[at].abs()))
        return {**out, "numel": 1, "part": f"element {at}", "excess": math.inf}

    def look_around(self, n):
        """Measure and store PyTorch's errors on n neighbours of the draw; fewer if the task fails on them."""
        for k in range(len(self.seen), n):
            self.seen.append(self._neighbour(k))
        for p in self.limits:
            if p and n not in p.wide:
                p.widen(n)

    def _neighbour(self, k):
        with Neighbour(self.task, k) as unit:
            runs = self._if_taken(lambda: (promoted_run(self.task, self.dtype)[0], default_run(self.task)))
        shaken = self._if_taken(lambda: self._shaken(k + 1)) if any(self.doubles) else ()
        if runs is None or shaken is None:
            return [None] * len(self.own)
        rows, (exact, default) = [], runs
        with self.task.lightly():
            for i, here in enumerate(self.exact):
                e, d, u = (here, shaken[i], None) if self.doubles[i] else (exact[i], default[i], unit)
                rows.append(errors(self.own[i], d, e, here, u))
                if 1 < e.numel() < 2 * FEWER and floating(d):
                    moved = 0 if u in (None, math.inf) else (e - here).abs() * (BACKWARD / max(u, EPS))
                    allowed = (16 * (d.double() - e.double()).abs() + moved).reshape(-1).double()
                    self.each.setdefault(i, []).append(allowed.nan_to_num(math.inf))
                if self.limits[i]:
                    self.limits[i].learn(squares(d, e), squares(e, None), None if u is None else squares(e, here), u)
        return rows

    def _if_taken(self, run):
        """run(); None if the task fails on inputs that its get_inputs() would not draw, or memory is short."""
        try:
            return run()
        except Exception as e:
            if device_failed(e) or out_of_memory(e) and any(t.numel() < FEW for t in self.exact):
                raise self._failed(e)
            return None


def generator(task, k):
    return torch.Generator(task.device).manual_seed(k)


class Neighbour:
    """Context in which the task's inputs, parameters and statistics are a little nearer to zero: some elements by one
    unit in the last place (the value is the coarsest such unit), or every second time all of them by up to FAR (the
    value is inf).  move: they are changed by this function instead."""

    def __init__(self, task, k, move=None):
        self.task, self.k, self.move = task, k, move

    def __enter__(self):
        held = {id(t): t for t in [*self.task.inputs, *self.task.params.values(), *self.task.held.drawn().values()]
                if floating(t)}
        unit, self.before = torch.finfo(torch.float64).eps, []
        g = generator(self.task, self.k)
        for t in held.values():
            data = span(t.detach())
            self.before.append((data, data.clone()))
            (self.move or self.nearer)(data, g)
            unit = max(unit, torch.finfo(t.dtype).eps)
        self.task.held.keep_all()
        return math.inf if self.k % 2 else unit

    def nearer(self, data, g):
        share = torch.rand(data.shape, generator=g, device=data.device)
        eps = torch.finfo(data.dtype).eps
        data.copy_(nearer_to_zero(data, FAR * share if self.k % 2 else eps * share.round()))

    def __exit__(self, *exc):
        for data, values in self.before:
            data.copy_(values)
        self.task.held.keep_all()


def errors(own, default, exact, here, unit):
    """(relative error, absolute error, floor) of a neighbour, scaled to the size of the draw itself; None if unknown.
    unit: None if only roundings differ."""
    if not floating(default) or not (finite(default) and finite(exact) and finite(here)):
        return None
    at = Distance(default, exact).measure()
    size = max(at["rms"], own["rms"])
    if at["rms"] == 0:
        return None
    if unit is None:
        return at["err_rel"], at["err_abs"], 0.0
    moved, units = Distance(exact, here).measure(), SIMPLE_FLOOR / max(unit, torch.finfo(torch.float32).eps)
    return at["err_rel"] * at["rms"] / size, at["err_abs"] * own["rms"] / size, min(units * moved["err_rel"], CANCELLED)


def wider(own, seen, n):
    """own, widened by the errors seen on neighbours: the error that PyTorch itself would exceed in one of 10,000 draws.
    n: numbers in the output.  Of few numbers one cause may make all errors, as where another expert is taken; their
    variance over all neighbours tells, as in Limits.widen()."""
    if not seen:
        return own
    errors2 = [e * e for e in [own["err_rel"], *(rel for rel, _, _ in seen)]]
    usual2 = sum(errors2) / len(errors2)
    if n < FEW and len(seen) == NEIGHBOURS:
        spread = sum((e - usual2)**2 for e in errors2) / len(seen)
        n = max(1, min(n, 2 * usual2**2 / spread)) if spread > 0 else n
    return {**own, "err_rel": max(own["err_rel"], math.sqrt(usual2) * tail(n)),
            "err_abs": max(own["err_abs"], *(size for _, size, _ in seen)),
            "floor": max(own["floor"], *(floor for _, _, floor in seen))}


def chunks(*tensors):
    flat = [t.reshape(-1) for t in tensors]
    step = step_of(flat[0])
    for start in range(0, flat[0].numel(), step):
        yield start, [t[start : start + step] for t in flat]


def relative(err2, ref2):
    return math.sqrt(err2 / ref2) if ref2 > 0 else 0.0 if err2 == 0 else math.inf


class Distance:
    """Norm-wise relative and largest absolute error over the elements where both are finite; rms of the exact
    values."""

    def __init__(self, found, exact):
        self.found, self.exact = found, exact
        self.err2 = self.ref2 = self.largest = 0.0
        self.at = 0

    def measure(self):
        for start, (f, e) in chunks(self.found, self.exact):
            self.add(start, f.double(), e.double())
        return self.result()

    def result(self):
        n = self.exact.numel()
        return {"err_rel": relative(self.err2, self.ref2), "err_abs": self.largest, "at": self.at,
                "rms": math.sqrt(self.ref2 / n) if n else 0.0}

    def add(self, start, f, e):
        """One chunk in fp64; its largest error, NaN where something is not finite."""
        d = f - e
        err2, ref2, top = torch.dot(d, d).item(), torch.dot(e, e).item(), d.abs().amax().item()
        if not (math.isfinite(err2) and math.isfinite(ref2) and math.isfinite(top)):
            ok = f.isfinite() & e.isfinite()
            d, e = torch.where(ok, d, 0.0), torch.where(e.isfinite(), e, 0.0)
            err2, ref2, largest, top = float(d.square().sum()), float(e.square().sum()), float(d.abs().amax()), math.nan
        else:
            largest = top
        self.err2 += err2
        self.ref2 += ref2
        if largest > self.largest:
            self.largest, self.at = largest, start + int(d.abs().argmax())
        return top


class Violations:
    """Counts wrong elements and records the first, the worst and enough positions to describe where they lie and what
    they hold."""

    KEEP = 4096

    def __init__(self, dtype):
        self.poisons, self.poisoned = poisons(dtype), [0] * len(POISON)
        self.count = self.nonfinite = self.nan = self.zero = 0
        self.first = self.last = self.worst = None
        self.excess, self.positions = -1.0, []

    def add(self, start, wrong, bad_kind, found, excess):
        n = int(wrong.sum())
        if n == 0:
            return
        where = wrong.nonzero().reshape(-1)
        self.count += n
        self.nonfinite += int((wrong & bad_kind).sum())
        at = found[where]
        self.nan += int(at.isnan().sum()) if at.dtype.is_floating_point else 0
        self.zero += int((at == 0).sum())
        self.poisoned = [k + int((at == p).sum()) for k, p in zip(self.poisoned, self.poisons)]
        self.first = start + int(where[0]) if self.first is None else self.first
        self.last = start + int(where[-1])
        if len(self.positions) < self.KEEP:
            self.positions += [start + p for p in where[: self.KEEP - len(self.positions)].tolist()]
        top, index = torch.where(wrong, excess.double().nan_to_num(math.inf), -1.0).max(0)
        if float(top) > self.excess:
            self.excess, self.worst = float(top), start + int(index)

    def move(self, at):
        """Convert positions in a part to positions in the output; `at`: the positions of the part's elements."""
        self.positions = [int(at[p]) for p in self.positions]
        self.first, self.last, self.worst = (None if p is None else int(at[p])
                                             for p in (self.first, self.last, self.worst))

    def where(self, shape):
        """A description of where the wrong elements lie; "": there are none."""
        numel, p = math.prod(shape), self.positions
        if not self.count:
            return ""
        if self.count >= 0.95 * numel:
            return "all"
        if self.first > 0 and self.last == numel - 1 and self.count >= 0.9 * (numel - self.first):
            return "tail"
        if self.count == 1:
            return "single"
        columns = shape[-1] if shape else 1
        low = min(x % columns for x in p)
        if low > 0 and {x % columns for x in p} == set(range(low, columns)) and p[0] // columns != p[-1] // columns:
            return "row ends"
        steps = {b - a for a, b in zip(p, p[1:])}
        return "strided" if len(p) > 2 and len(steps) == 1 and steps != {1} else "scattered"

    def looks(self, found, exact, limit_abs):
        """What the wrong elements hold: "nan", "unwritten" (what outputs hold before a call), "zero", "shifted" (a
        neighbour's value), or ""."""
        if self.count and self.nan == self.count:
            return "nan"
        if self.count and self.count in self.poisoned:
            return "unwritten"
        if self.count and self.zero == self.count:
            return "zero"
        n, f = found.numel(), found.reshape(-1)
        for step in (1, -1):
            p = [x for x in self.positions if 0 <= x + step < n]
            if len(p) < 3:
                continue
            at = torch.tensor(p, device=found.device)
            near = (f[at].double() - exact.reshape(-1)[at + step].double()).abs() <= limit_abs
            if int(near.sum()) >= 0.9 * len(p):
                return "shifted"
        return ""


POISON = (0xFF, 0x7F, 0xFE)  # as in src/judge/run/proto.h; zeros are described as "zero"


@functools.lru_cache
def poisons(dtype):
    """The values of an element that the candidate has not written."""
    return [torch.full((dtype.itemsize,), b, dtype=torch.uint8).view(dtype).double().item() for b in POISON]


def kind_of(t):
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf."""
    return torch.where(t.isnan(), 1, torch.where(t.isposinf(), 2, torch.where(t.isneginf(), 3, 0))).to(torch.int8)


def difference(found, exact):
    """A function for Layout.sums(): found - exact in fp64 (exact None: found) of a range of flat positions."""
    f, e = found.reshape(-1), None if exact is None else exact.reshape(-1)
    if e is None:
        return lambda a, b: f[a:b].double()
    if e.dtype == torch.float64:
        return lambda a, b: torch.sub(f[a:b], e[a:b])
    return lambda a, b: f[a:b].double() - e[a:b].double()


def squares(found, exact):
    """Sums of squares of the difference over the parts; values that are not finite count as 0."""
    done = fused.finite_sums(layout(found), (found, exact))
    if done:
        return done[0][0]
    take = difference(found, exact)
    return layout(found).sums(lambda a, b: take(a, b).nan_to_num(0.0, 0.0, 0.0))[0]


def measure(found, exact):
    """({err_rel, err_abs, rms}, whether all is finite, sums of squares over the parts of the difference and of
    exact)"""
    if exact.numel():
        where = layout(exact)
        both = fused.finite_sums(where, (found, exact), (exact, None))
        if both:
            (own2, err2, top), (exact2, ref2, _) = both
        else:
            (own2, top), (exact2, _) = where.sums(difference(found, exact)), where.sums(difference(exact, None))
            err2, ref2, top = torch.stack((where.total(own2), where.total(exact2), top)).tolist()
        if math.isfinite(err2 + ref2 + top):
            return {"err_rel": relative(err2, ref2), "err_abs": top,
                    "rms": math.sqrt(ref2 / exact.numel())}, True, own2, exact2
    own = Distance(found, exact).measure()
    if not exact.numel():
        return own, True, None, None
    return own, finite(found) and finite(exact), squares(found, exact), squares(exact, None)


def all_near(found, exact, rms, limit2):
    """The fast comparison, which is enough for right values: the errors, and whether a part exceeds its limit, by one
    launch or by a few operators a piece, and one synchronisation in all.  NaN if a value is not finite; then, and if a
    limit is exceeded, the caller compares in detail."""
    where = layout(exact)
    err2, top, beyond = fused.near(found, exact, limit2, where) or near_by_operators(found, exact, limit2, where)
    return size_of(err2, top, exact, rms), not beyond


def size_of(err2, top, exact, rms):
    """An error, from its sum of squares and its largest."""
    return {"err_rel": relative(err2, rms * rms * exact.numel()), "err_abs": top, "at": None}


def near_by_operators(found, exact, limit2, where):
    """As fused.near(), by PyTorch's operators."""
    sums, top = where.sums(difference(found, exact))
    beyond = (sums > limit2).any() if limit2 is not None else torch.zeros((), device=sums.device)
    err2, top, beyond = torch.stack((where.total(sums), top, beyond.double())).tolist()
    return err2, top, bool(beyond)


def without(found, exact, layout_, parts):
    """found, with the values of `exact` in these parts."""
    out = found.clone(memory_format=torch.contiguous_format)  # parts are counted in the order of the indices
    for part in parts.nonzero().flatten().tolist():
        at = layout_.find(part, found.device)[1]
        out.view(-1)[at] = exact.reshape(-1)[at].to(out.dtype)
    return out


def most(own):
    """The largest relative and absolute error of a whole output."""
    return max(4 * own["err_rel"], own["floor"]), 16 * max(own["err_abs"], own["floor"] * own["rms"])


def right(found, exact, own, near):
    """The row of an output that is right by the fast comparison, of which all_near() says `near`; else None."""
    (size, good), (limit_rel, limit_abs) = near, most(own)
    if not good or not size["err_rel"] <= limit_rel or not size["err_abs"] <= limit_abs:
        return None
    return describe(found, exact, own, size, Violations(found.dtype), True, limit_rel, limit_abs)


def judge_strict(found, exact, default, own, limits, neighbours=0, tied=None):
    """docs/design/rules.md, section 4.  If PyTorch's own run is not finite but the reference is (an overflow of its
    type), either is right. limits: of the parts, None if there are none; neighbours: how many went into these
    limits; tied: near ties, parts that are right."""
    limit_rel, limit_abs = most(own)
    limit2 = None if limits is None else limits.wide[neighbours] if neighbours else limits.limit2
    limit2 = limit2 if tied is None else torch.where(tied, math.inf, limit2)
    own = {**own, "limit_rel": limit_rel, "limit_abs": limit_abs}
    near = all_near(found, exact, own["rms"], limit2) if exact.numel() else (size_of(0.0, 0.0, exact, own["rms"]), True)
    row = right(found, exact, own, near)
    if row:
        return row
    v, size = Violations(found.dtype), Distance(found, exact)
    for start, (f, e, d) in chunks(found, exact, default):
        f, e = f.double(), e.double()
        if size.add(start, f, e) <= limit_abs:
            continue  # all finite, and within the limits
        d = d.double()
        delta, bad_kind = (f - e).abs(), torch.zeros_like(f, dtype=torch.bool)
        if not bool(delta.isfinite().all()):
            kf, ke, kd = kind_of(f), kind_of(e), kind_of(d)
            bad_kind = (kf != ke) & (kf != kd)
            delta = torch.where((kf == 0) & (ke == 0), delta, 0.0)
        v.add(start, bad_kind | (delta > limit_abs), bad_kind, f, torch.where(bad_kind, math.inf, delta))
    mine = size.result()
    if v.count or mine["err_rel"] > limit_rel or limits is None:
        out = describe(found, exact, own, mine, v, v.count == 0 and mine["err_rel"] <= limit_rel, limit_rel, limit_abs)
        return {**out, "excess": max(a / b if b else math.inf if a else 0.0
                                     for a, b in ((mine["err_rel"], limit_rel), (mine["err_abs"], limit_abs)))}
    return worst_part(found, exact, own, mine, limits, limit2)


def worst_part(found, exact, own, mine, limits, limit2):
    """The whole is right: the violations of the part that is furthest beyond its limit, if there is one."""
    sums = squares(found, exact)
    excess, part = torch.where(sums > limit2, sums / limit2, 0.0).max(0)
    if not float(excess):
        return describe(found, exact, own, mine, Violations(found.dtype), True, own["limit_rel"], own["limit_abs"])
    part = int(part)
    words, at = limits.layout.find(part, found.device)
    f, e = found.reshape(-1)[at].double(), exact.reshape(-1)[at].double()
    err2, ref2, own2, most2 = (float(x[part]) for x in (sums, limits.size2, limits.own2, limit2))
    limit_abs = 4 * math.sqrt(most2 / at.numel())
    v, delta = Violations(found.dtype), (f - e).abs()
    v.add(0, delta > limit_abs, torch.zeros_like(f, dtype=torch.bool), f, delta)
    v.move(at)
    found_own = {"err_rel": relative(own2, ref2), "err_abs": own["err_abs"], "rms": math.sqrt(ref2 / at.numel())}
    mine = {"err_rel": relative(err2, ref2), "err_abs": float(delta.max()), "at": int(at[delta.argmax()])}
    out = describe(found, exact, found_own, mine, v, False, relative(most2, ref2), limit_abs)
    return {**out, "numel": at.numel(), "part": words, "excess": math.sqrt(float(excess))}


def judge_exact(found, exact, default, own):
    """Integers and booleans must equal the reference; if PyTorch's own run has another value, either is right."""
    v, ignored = Violations(found.dtype), 0
    if torch.equal(found, exact):  # most comparisons
        out = describe(found, exact, own, {"err_rel": 0.0, "err_abs": 0.0, "at": None}, v, True, 0.0, 0.0)
        return {**out, "ignored": 0}
    for start, (f, e, d) in chunks(found, exact, default):
        ignored += int((d != e).sum())
        wrong = (f != e) & (f != d)
        v.add(start, wrong, torch.zeros_like(wrong), f, (f.double() - e.double()).abs())
    mine = Distance(found, exact).measure()
    out = describe(found, exact, own, mine, v, v.count == 0, 0.0, 0.0)
    out["ignored"] = ignored
    return out


def judge_paper(found, exact, default, own):
    """torch.allclose(found, default, atol = rtol = 1e-2)."""
    v = Violations(found.dtype)
    for start, (f, d) in chunks(found, default):
        close = torch.isclose(f, d, rtol=1e-2, atol=1e-2)
        if bool(close.all()):
            continue
        f, d = f.double(), d.double()
        delta = (f - d).abs() - 1e-2 * d.abs()
        v.add(start, ~close, kind_of(f) != kind_of(d), f, delta)
    mine = Distance(found, exact).measure()
    at = v.worst if v.worst is not None else mine["at"]
    reference = float(default.reshape(-1)[at]) if default.numel() else 0.0
    return describe(found, exact, own, mine, v, v.count == 0, math.nan, 1e-2 + 1e-2 * abs(reference))


def describe(found, exact, own, mine, v, good, limit_rel, limit_abs):
    where = v.where(tuple(found.shape))
    out = {
        "pass": good, "err_rel": mine["err_rel"], "err_abs": mine["err_abs"], "e_rel": own["err_rel"],
        "e_max": own["err_abs"], "rms": own["rms"], "limit_rel": limit_rel, "limit_abs": limit_abs,
        "numel": found.numel(), "violations": v.count, "nonfinite": v.nonfinite,
        "pattern": where if where or good else "accuracy",
        "looks": v.looks(found, exact, max(limit_abs, 0.0)) if v.count else "", "part": "", "excess": 0.0,
    }
    for name, at in (("first", v.first), ("worst", v.worst if v.worst is not None else mine["at"])):
        if at is None or found.numel() == 0:
            continue
        index = []
        rest = at
        for size in reversed(found.shape):
            index.append(rest % size)
            rest //= size
        index = tuple(reversed(index))
        out[name] = {"index": list(index), "expected": number(float(exact[index])),
                     "found": number(float(found[index]))}
    return out


# ---- Tasks that need no computation

SAME = 1e-4  # relative: outputs that are closer than this are not distinguished


def accepted(found, exact, default, own, rule):
    """Would the rule, with its relative tolerance widened to SAME, accept these values?  Ends at the first chunk that
    it would not."""
    if rule == "paper":
        return all(bool(torch.isclose(f, d, rtol=1e-2, atol=1e-2, equal_nan=True).all())
                   for _, (f, d) in chunks(found, default))
    if not default.dtype.is_floating_point:
        return all(bool(((f == e) | (f == d)).all()) for _, (f, e, d) in chunks(found, exact, default))
    limit_rel = max(4 * own["err_rel"], SAME)
    limit_abs = 16 * max(own["err_abs"], SAME * own["rms"])
    err2 = ref2 = 0.0
    for _, (f, e) in chunks(found, exact):
        f, e = f.double(), e.double()
        delta = torch.where((f == e) | (f.isnan() & e.isnan()), 0.0, (f - e).abs())
        if not bool((delta <= limit_abs).all()):
            return False
        err2 += float(delta.square().sum())
        ref2 += float(torch.where(e.isfinite(), e, 0.0).square().sum())
    return relative(err2, ref2) <= limit_rel


def trivial(other, exact, default, own, rule):
    """Would the rule accept an answer for this output that needs no computation: the output of another draw, a
    constant, zero?"""
    def number_passes(c):
        c = torch.tensor(c, device=default.device).to(default.dtype)
        return accepted(c.expand(default.numel()), exact.reshape(-1), default.reshape(-1), own, rule)

    mean = float(exact.sum(dtype=torch.float64)) / exact.numel()
    return {"independent": accepted(other, exact, default, own, rule),
            "constant": default.numel() > 1 and (number_passes(float(exact.reshape(-1)[0])) or number_passes(mean)),
            "zero": number_passes(0.0), "unsure": rule == "strict" and unsure(exact, default)}


def unsure(exact, default):
    """Is this an integer output on which PyTorch's fp32 and fp64 runs agree too rarely, so that it is mostly
    rounding?"""
    return (
        not default.dtype.is_floating_point
        and sum(int((e != d).sum()) for _, (e, d) in chunks(exact, default)) > UNSURE * default.numel()
    )


FLAGS = ("independent", "constant", "zero")
# An answer that ignores the input must also be accepted on two more draws, with strict also on two that are scaled and
# shifted as the rule's own are.  One pair of draws of a mean can agree by chance.
MORE_DRAWS = {"strict": ((1.0, 0.0), (1.0, 0.0), (64.0, 0.0), (1.0, 3.0)), "paper": ((1.0, 0.0), (1.0, 0.0))}


PLAIN = 6  # more draws of the kind that is timed


def repeated(task, seed_a, seed_b):
    """Would the rule accept the outputs of one draw on all other draws of the kind that is timed, with their own
    parameters and state?  A solution could recognise such a draw by a few elements and ignore the rest."""
    task.draw(seed_b, 1.0, 0.0, "redraw")
    other = default_run(task)
    for i in range(PLAIN):
        task.draw(sub_seed(seed_a, f"plain {i}"), 1.0, 0.0, "redraw")
        r = References(task)
        same = all(r.judge(k, o, "strict")["pass"] for k, o in enumerate(other))
        r = None  # its memory
        if not same:
            break
    task.draw(seed_b, 1.0, 0.0, "init")
    return same


def suspected(rows):
    return all(any(t[k] for k in FLAGS) for t in rows) or any(t["unsure"] for t in rows)


def degenerate(task, seed_a, seed_b):
    """Would the rule accept an answer that ignores the input: the output of another draw, a constant, zero?  For both
    rules.  With strict a task with an output that is `unsure` or `repeated` is degenerate, too."""
    task.draw(seed_b, 1.0, 0.0, "keep")
    other = default_run(task)

    def references(seed, scale, shift):
        task.draw(seed, scale, shift, "keep")
        return References(task)

    def look(r, rule):
        with task.lightly():
            return [trivial(o, e, d, own, rule) for o, e, d, own in zip(other, r.exact, r.default, r.own) if d.numel()]

    r = references(seed_a, 1.0, 0.0)
    if task.target.kind == "cuda":
        r.rehearse()
    found, answer = {rule: look(r, rule) for rule in MORE_DRAWS}, {}
    alike = bool(found["strict"]) and all(t["independent"] for t in found["strict"])
    for rule, rows in found.items():
        for i, (scale, shift) in enumerate(MORE_DRAWS[rule]):
            if not suspected(rows):
                break
            r = None  # its memory
            r = references(sub_seed(seed_a, f"again {i}"), scale, shift)
            if all(r.finite) or (scale, shift) == (1.0, 0.0):
                rows = [{k: a[k] and b[k] for k in a} for a, b in zip(rows, look(r, rule))]
        answer[rule] = {"degenerate": suspected(rows), "outputs": rows, "unsure": any(t["unsure"] for t in rows),
                        **{k: bool(rows) and all(t[k] for t in rows) for k in FLAGS}}
    r, strict = None, answer["strict"]
    strict["repeated"] = alike and not strict["degenerate"] and repeated(task, seed_a, seed_b)
    strict["degenerate"] |= strict["repeated"]
    return answer
