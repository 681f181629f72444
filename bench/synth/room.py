#!/usr/bin/env python3
"""How many candidates a second does a schedule of `synth run` on GPUs give?  room.py JOURNAL [--jobs 28] [--devices 1]

Runs the candidates of a journal, in the order of their numbers, through a model of the devices: room for a share of the
candidates' peaks (src/synth/room.h), kernels of several processes that share a device by time, the lease by which a
measurement has it alone (everybody waits at its gate from when it is asked for until it is given back), and the window
behind the first undecided candidate.  A candidate's work on a device is counted in passes of its module
(bench/results/synth.md).  FITTED are chosen so that two H200s gave what they did with bad3f8f5; BEFORE is the program
of 20b72314 on one.  Prints BEFORE, and each change added to those above it: candidates a second, the start and the end
included, by the minute, the share of the time in which the gate was closed, of candidates that were looked at again,
and seconds a candidate waits for room or takes in stages.  --breaks: candidates of 1,000 that have a place whose
worker's device fails once (3 of 640 on 1 December 2026, none in the run before)."""
import argparse
import collections
import heapq
import itertools
import json
import random

GIB = 2.0**30
TURN_S, MARGIN, SPARE = 0.5, 1.1, 0.25
FITTED = {
    "pass": 1.55,  # seconds of a pass over the time that was measured for it
    "switch": 0.1,  # what a device loses where several processes use it
    "load_s": 0.25, "prepare_s": 0.1, "eager_s": 0.6, "first_compiled_s": 0.6,  # of the host
    "bytes_s": 3.2e12, "draw_s": 1e12,  # bytes a second: compared, drawn
    "window": 32, "patience": 30, "compared": 215,
    "tuning": 1.9,  # passes that the choice of a kernel's configuration takes of long kernels
    "tuning_s": 0.05,  # seconds that it takes of short ones, in a module whose pass takes less than SHORT_S
    "left": 10.0,  # GiB that workers of a device hold between two candidates
    "runs": 0.6, "baselines": 0.75,  # peaks of those over that of gradients: guesses, by a count on fake tensors
}
SHORT_S = 0.008
BEFORE = {**FITTED, "room": 123.0, "device": 142.0, "budget_s": 0.025, "warm": 2, "tuned_in": 6, "loaded": 3,
          "traced": True, "staged": False, "idle": 1.0, "left": 0.0, "kept_s": 0.0, "breaks_alone": True, "spare": 1e-6,
          "begins_s": 44, "learned": 0}
CHANGES = (
    ("a device that failed: again with the same room", {"breaks_alone": False}),
    ("room by the journal's peaks from the start", {"learned": 512}),
    ("the suite's marks given, PyTorch imported while the first ones are traced", {"begins_s": 22}),
    ("not done: room by stages (runs, gradients, baselines)", {"staged": True}),
    ("not done: inputs let go while it compiles", {"idle": 0.1}),
    ("not done: no bound of memory", {"room": 1e4, "device": 1e5}),
)


class Simulation:
    """Processes are generators that yield functions; each gets the generator and continues it when its time comes."""

    def __init__(self):
        self.t, self.events, self.n = 0.0, [], itertools.count()

    def at(self, t, what):
        heapq.heappush(self.events, (t, next(self.n), what))

    def go(self, process):
        step = next(process, None)
        if step:
            step(process)

    def sleep(self, seconds):
        return lambda process: self.at(self.t + seconds, lambda: self.go(process))

    def run(self, until):
        while self.events and self.t < until:
            self.t, _, what = heapq.heappop(self.events)
            what()


class Device:
    def __init__(self, sim, how, rng):
        self.sim, self.how, self.rng = sim, how, rng
        self.work, self.seen, self.version = {}, 0.0, 0  # seconds left of what computes now
        self.sharing, self.closed, self.at_gate, self.to_measure, self.turn = 0, False, [], [], None
        self.used = self.peaks = self.closed_s = self.busy_s = 0.0
        self.running, self.alone, self.waiting, self.factors = 0, False, [], collections.defaultdict(list)

    # ---- Computing, together with others, under a share of the lease

    def compute(self, seconds, host_s=0.0):
        return lambda process: self.at_gate.append((process, seconds, host_s)) if self.closed else self.enter(
            process, seconds, host_s)

    def enter(self, process, seconds, host_s):
        self.sharing += 1
        self.sim.at(self.sim.t + host_s, lambda: self.begin(process, seconds))

    def begin(self, process, seconds):
        self.advance()
        self.work[process] = seconds
        self.next_end()

    def slower(self):
        return len(self.work) * (1 + self.how["switch"] * (len(self.work) > 1))

    def advance(self):
        self.busy_s += (self.sim.t - self.seen) * bool(self.work)
        for process in self.work:
            self.work[process] -= (self.sim.t - self.seen) / self.slower()
        self.seen = self.sim.t

    def next_end(self):
        self.version += 1
        if self.work:
            version = self.version
            self.sim.at(self.sim.t + max(0.0, min(self.work.values())) * self.slower(), lambda: self.ended(version))

    def ended(self, version):
        if version != self.version:
            return
        self.advance()
        done = [p for p, left in self.work.items() if left <= 1e-9]
        for p in done:
            del self.work[p]
        self.sharing -= len(done)
        self.next_end()
        for p in done:
            self.sim.go(p)
        self.next_turn()

    # ---- Measuring

    def measure(self, seconds):
        def step(process):
            self.to_measure.append((process, seconds))
            self.close()
            self.next_turn()
        return step

    def close(self):
        if not self.closed:
            self.closed, self.closed_at = True, self.sim.t

    def next_turn(self, goes_on=False):
        if not self.closed or self.sharing or not self.to_measure or (self.turn is not None and not goes_on):
            return
        self.turn = self.sim.t if self.turn is None else self.turn
        process, seconds = self.to_measure.pop(0)
        self.busy_s += seconds
        self.sim.at(self.sim.t + seconds, lambda: self.measured(process))

    def measured(self, process):
        self.sim.go(process)
        if self.to_measure and self.sim.t - self.turn <= TURN_S:
            return self.next_turn(True)
        self.turn, self.closed = None, False
        self.closed_s += self.sim.t - self.closed_at
        waited, self.at_gate = self.at_gate, []
        for w in waited:
            self.enter(*w)
        if self.to_measure:
            self.close()
            self.next_turn()
        return None

    # ---- Room

    def expected(self, need, of, first):
        seen = sorted(self.factors[need][-512:])
        return min(self.how["room"], of * (MARGIN * seen[int(0.6 * (len(seen) - 1))] if len(seen) >= 32 else first))

    def learn(self, need, of, peak):
        self.factors[need].append(peak / of)

    def has_room(self, c, back):
        patience = self.how["patience"]
        if self.alone:
            return False
        if c["room"] < 0:
            return not self.running and self.used <= (self.how["spare"] if c["stays"] else SPARE * self.how["room"])
        if back:
            return not self.running or self.used + c["room"] - c["idle"] <= self.how["room"]
        new = [(since, w) for since, _, w, b in self.waiting if not b]
        if self.how["breaks_alone"] and any(w["room"] < 0 for _, w in new):
            return False
        if self.how["staged"] and any(b and self.sim.t - since > 0.5 for since, _, _, b in self.waiting):
            return False
        if new[0][1] is not c and self.sim.t - new[0][0] > patience:
            return False
        return self.used < 1e-6 or self.used + c["room"] <= self.how["room"]

    def take(self, c, back=False):
        def step(process):
            self.waiting.append((self.sim.t, process, c, back))
            self.let_in()
        return step

    def let_in(self):
        for entry in self.rng.sample(self.waiting, len(self.waiting)):
            _, process, c, back = entry
            if self.has_room(c, back):
                self.waiting.remove(entry)
                self.alone = c["room"] < 0
                self.used += max(0.0, c["room"]) - (c["idle"] if back else 0)
                self.running += 1
                self.holds(c, c["now"])
                self.sim.at(self.sim.t, lambda p=process: self.sim.go(p))

    def holds(self, c, bytes_):
        """What it has allocated."""
        self.peaks += bytes_ - c["held"]
        c["held"] = bytes_

    def known(self, c, peak):
        peak *= MARGIN
        if c["stays"]:
            return
        if c["room"] < 0 or peak < c["room"]:
            self.used += peak - max(0.0, c["room"])
            self.alone, c["room"], c["idle"] = False, peak, min(c["idle"], peak)
            self.let_in()

    def leave(self, c, keeps=0.0):
        self.running -= 1
        self.alone = False
        self.used += keeps - max(0.0, c["room"])
        c["room"] = max(0.0, c["room"])
        self.let_in()


def calls(how, seconds):
    return int(max(3, min(15, how["budget_s"] / seconds))) * (seconds + 0.001) + 0.01


def prepare_eager(d, one):
    """A baseline: warmed up, captured, replayed."""
    for _ in range(d.how["warm"]):
        yield d.compute(one, d.how["prepare_s"] / d.how["warm"])


def prepare_compiled(d, c, one, fast):
    """The first call chooses the kernels' configurations, as one piece of work or as several."""
    tuning, n = d.how["tuning"] * one + (d.how["tuning_s"] if c["eager_s"] < SHORT_S else 0), d.how["tuned_in"]
    for _ in range(n):
        yield d.compute((fast + tuning) / n, d.how["first_compiled_s"] / n)
    for _ in range(2):
        yield d.compute(fast, d.how["prepare_s"] / 2)


def look(sim, d, c, cost):
    """A candidate's way through the filters (src/synth/check.c)."""
    how, staged = d.how, d.how["staged"]
    one, fast = (x * how["pass"] for x in (c["eager_s"], c["compile_s"]))
    draw, compare = c["inputs"] * GIB / how["draw_s"], c["outputs"] * GIB / 4 * how["compared"] / how["bytes_s"]
    runs, gradients, baselines = (c["peak"] * x for x in (how["runs"], 1, how["baselines"]))

    def mark(stage, since):
        cost[stage] += sim.t - since
        return sim.t

    def needs(need, of, first):
        return min(how["room"], more * d.expected(need, of, first))

    if how["traced"]:
        yield sim.sleep(0.5)
        if c["kind"] == "decided":
            return
    soon, more, tries = c["kind"] == "time", 1, 1
    breaks, c["stays"] = c["breaks"], False
    while True:
        alone = tries > 2 or c["stays"]
        c["room"] = -1 if alone else needs("runs" if staged else "all", c["bytes"], 1.5 if staged else 3)
        c["idle"] = how["idle"] * (min(c["inputs"], c["room"]) if c["room"] > 0 else c["inputs"])
        c["held"], c["now"] = 0.0, runs if staged else c["peak"]
        start = sim.t
        yield d.take(c)
        start = mark("room", start)
        fails = tries < 3 and d.peaks + how["left"] > how["device"]
        for _ in range(how["loaded"]):
            yield sim.sleep(how["load_s"] / 8)
            yield d.compute(one, how["load_s"] / 8)
        yield d.compute(3 * draw)
        start = mark("load", start)
        if soon:
            yield from prepare_eager(d, one)
            start = mark("measure", start)
            yield d.measure(calls(how, c["eager_s"]))
            start = mark("turn", start)
        if c["kind"] not in ("time", "decided"):
            for _ in range(2):
                yield sim.sleep(how["eager_s"] / 8)
                yield d.compute(one + draw)
            yield d.compute(compare)
            for _ in range(3):
                yield sim.sleep(how["eager_s"] / 8)
                yield d.compute(one + 1.3 * draw)
            start = mark("eager", start)
        if c["kind"] == "row" and not fails:
            if staged:
                d.learn("runs", c["bytes"], runs)
                if c["room"] >= 0:
                    d.known(c, runs)
                need = needs("gradients", c["bytes"], 3)
                if 0 <= c["room"] < need:
                    keeps, idle = c["room"], c["idle"]
                    d.leave(c, keeps)
                    c["room"], c["idle"], c["now"] = need, keeps, gradients
                    yield d.take(c, True)
                    c["idle"] = idle
                else:
                    d.holds(c, gradients)
                start = mark("room", start)
            fails = breaks or tries < 3 and d.peaks + how["left"] > how["device"]
            yield d.compute(3.2 * one, how["eager_s"] / 4)
            d.learn("gradients" if staged else "all", c["bytes"], gradients)
            d.known(c, gradients)
            start = mark("eager", start)
        if not fails or c["kind"] in ("time", "decided"):
            break
        d.leave(c)
        cost["again"] += 1
        if breaks:
            breaks, c["stays"] = False, how["breaks_alone"]
        else:
            more, tries = 2, tries + 1
        yield sim.sleep(how["kept_s"])
        d.holds(c, 0.0)
        yield sim.sleep(2.5)
    if c["kind"] != "row":
        d.holds(c, 0.0)
        return d.leave(c)
    d.holds(c, c["idle"])
    if not c["stays"]:
        d.leave(c, c["idle"])
    yield sim.sleep(c["compiler_s"])
    start = mark("compile", start)
    if staged:
        c["room"] = max(c["idle"], needs("baselines", runs, 1.5))
    c["now"] = baselines
    if not c["stays"]:
        yield d.take(c, True)
    start = mark("room" if staged else "compile", start)
    yield from prepare_eager(d, one)
    yield from prepare_compiled(d, c, one, fast)
    yield d.compute(0.15 * compare)
    if staged:
        d.learn("baselines", runs, baselines)
    start = mark("compile", start)
    yield d.measure(calls(how, c["compile_s"]) + calls(how, c["eager_s"]))
    mark("turn", start)
    d.holds(c, 0.0)
    return d.leave(c)


def candidates(path, last, breaks, rng):
    """What is known of the journal's last candidates, and as many as that drawn of them behind."""
    with open(path, encoding="utf-8") as f:
        rows = [r for r in map(json.loads, f) if "i" in r and r.get("reason") != "ends its process"][-last:]
    known = [r for r in rows if r.get("bytes", [0])[0] and "row" in r]
    out = []
    for r in sorted(rows, key=lambda r: r["i"]):
        like = r if r in known else rng.choice(known)
        times = r.get("times") or like["times"]
        eager = times.get("eager_us", like["times"]["eager_us"]) / 1e6
        bytes_ = like["bytes"][0] / GIB
        inputs = rng.uniform(0.11, 0.33) * bytes_
        out.append({"eager_s": eager, "compile_s": times.get("compile_us", 0) / 1e6 or 0.6 * eager, "bytes": bytes_,
                    "kept": like["bytes"][1] / GIB, "inputs": inputs, "outputs": max(0.1, 0.35 * bytes_),
                    "compiler_s": max(0.3, r["cost"].get("compile", [0, 0])[1] - 0.3 * ("compiled" not in r["cost"])),
                    "kind": "row" if "row" in r else "decided" if "decided" in r
                    else "time" if r["reason"].startswith("too ") else "eager"})
    out += [dict(rng.choice(out)) for _ in range(max(2000, len(out)))]
    for c in out:
        c["breaks"] = c["kind"] == "row" and rng.random() < breaks / 1000
    return out


def run(args, how, seed):
    rng, n_devices, jobs = random.Random(seed), args.devices, args.jobs
    sim, todo = Simulation(), candidates(args.journal, args.last, args.breaks, rng)
    done, cost = [], collections.Counter()
    for c in todo:
        c["peak"] = max(0.6 * c["bytes"], c["kept"])
    devices = [Device(sim, how, rng) for _ in range(n_devices)]
    for d in devices:
        d.factors["all"] += [c["peak"] / c["bytes"] for c in todo[:how["learned"]]]
    state = {"taken": 0, "next": 0, "done": set(), "workers": jobs}

    def worker(d):
        yield sim.sleep(how["begins_s"] + 2 * rng.random())
        while state["taken"] < len(todo) and sim.t < args.seconds:
            if state["taken"] >= state["next"] + how["window"] * jobs + 8:
                yield sim.sleep(0.2)
                continue
            i = state["taken"]
            state["taken"] += 1
            yield sim.sleep(0.15)
            yield from look(sim, d, todo[i], cost)
            state["done"].add(i)
            done.append(sim.t)
            while state["next"] in state["done"]:
                state["next"] += 1
        state["workers"] -= 1

    def poll(d):
        while state["workers"]:
            yield sim.sleep(1)
            d.let_in()

    for k in range(jobs):
        sim.go(worker(devices[k % n_devices]))
    for d in devices:
        sim.go(poll(d))
    sim.run(10 * args.seconds)
    took = done[-1]
    return done, cost, *(sum(s) / n_devices / took for s in zip(*((d.closed_s, d.busy_s) for d in devices)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("journal")
    p.add_argument("--jobs", type=int, default=28)
    p.add_argument("--devices", type=int, default=1)
    p.add_argument("--seconds", type=float, default=540, help="none begins after that")
    p.add_argument("--last", type=int, default=975, help="candidates of the journal, those that were done last")
    p.add_argument("--breaks", type=float, default=4.7)
    p.add_argument("--runs", type=int, default=3)
    args = p.parse_args()
    stages = ("room", "load", "eager", "turn", "compile")
    print("| | a second | by the minute | gate closed | device in use | again | " + " | ".join(stages) + " |\n"
          + "|---" * 11 + "|")
    how = dict(BEFORE)
    for name, change in (("before", {}), *CHANGES):
        how.update(change)
        runs = [run(args, how, k) for k in range(args.runs)]
        n = sum(len(run[0]) for run in runs)
        minutes = [sum(60 * m < t <= 60 * m + 60 for t in runs[0][0]) for m in range(int(args.seconds / 60))]
        print(f"| {name} | {n / sum(r[0][-1] for r in runs):.2f} | {' '.join(map(str, minutes))} | "
              f"{sum(r[2] for r in runs) / args.runs:.0%} | {sum(r[3] for r in runs) / args.runs:.0%} | "
              f"{sum(r[1]['again'] for r in runs) / n:.1%} | "
              + " | ".join(f"{sum(r[1][s] for r in runs) / n:.2f}" for s in stages) + " |", flush=True)


if __name__ == "__main__":
    main()
