#!/usr/bin/env python3
"""How many candidates a second does a rule for room on the device give?  room.py JOURNAL [--workers 24] [--peaks 1]

Replays what candidates of a run of `synth run` took (seconds of each stage, bytes of inputs and values, peak) through
the rules of src/synth/room.h: room for the bytes times a factor that a share of the candidates before it stayed below,
for inputs alone while it compiles, for its peak from then on; with the device alone at last.  A candidate fails where
the peaks of those that run would exceed the device, as if all came at once.  --peaks: scale the peaks."""
import argparse
import heapq
import json
import math
import random

GIB = 2.0**30
LIMIT, DEVICE, FIRST, ENOUGH, SEEN, MARGIN = 112.0, 122.0, 3.0, 32, 512, 1.1
INPUTS, RESTART_S = 0.25, 2.0  # of the bytes, an average; a new worker


def candidates(path, peaks):
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        if "bytes" not in row or not row["bytes"][0]:
            continue
        s = {k: v[0] for k, v in row["cost"].items()}
        device, compiler = s.get("turn", 0) + s.get("measure", 0), s.get("compile", 0)
        yield {"bytes": row["bytes"][0] / GIB, "peak": max(0.6 * row["bytes"][0], peaks * row["bytes"][1]) / GIB,
               "first": s.get("load", 0) + s.get("eager", 0) + s.get("graph", 0) + 0.6 * device,
               "compiler": compiler, "last": 0.4 * device + min(1.0, 0.25 * compiler)}


class Device:
    def __init__(self, share):
        self.share, self.t, self.events, self.n = share, 0.0, [], 0
        self.used = self.peaks = 0.0
        self.waiting, self.factors, self.running, self.again = [], [], 0, 0

    def later(self, seconds, what, c):
        self.n += 1
        heapq.heappush(self.events, (self.t + seconds, self.n, what, c))

    def factor(self):
        seen = sorted(self.factors[-SEEN:])
        return MARGIN * seen[int(self.share * (len(seen) - 1))] if len(seen) >= ENOUGH else FIRST

    def fits(self, c):
        if c["back"]:
            return not self.running or self.used + c["room"] - c["rests"] <= LIMIT
        if c["room"] == math.inf:
            return self.used < 0.01
        others = any(w["room"] == math.inf and not w["back"] for w in self.waiting)
        return not others and (self.used < 0.01 or self.used + c["room"] <= LIMIT)

    def enter(self, c):
        self.running += 1
        c["held"] = min(c["room"], LIMIT)
        self.used += c["held"] - (c["rests"] if c["back"] else 0)
        if c["back"]:
            self.peaks += c["peak"]
            self.later(c["last"], "done", c)
        elif self.peaks + c["peak"] > DEVICE and c["room"] != math.inf:
            self.later(0.7 * c["first"], "failed", c)
        else:
            self.peaks += c["peak"]
            self.later(c["first"], "shown", c)

    def leave(self, c, what):
        """What becomes of one whose stage has ended; true if its worker is free."""
        self.running -= 1
        self.used -= c["held"]
        if what == "failed":
            self.again += 1
            c["room"] = 2 * c["room"] if 2 * c["room"] <= LIMIT else math.inf
            self.later(RESTART_S, "ready", c)
            return False
        self.peaks -= c["peak"]
        if what == "done" or not c["compiler"]:
            return True
        self.factors.append(c["peak"] / c["bytes"])
        c["room"] = min(c["held"], MARGIN * c["peak"])
        c["rests"] = min(c["room"], INPUTS * c["bytes"])
        self.used += c["rests"]
        self.later(c["compiler"], "back", c)
        return False


def run(rows, share, workers):
    d, ended, left = Device(share), 0, list(rows)
    while ended < len(rows):
        while workers and left:
            d.later(0.4, "ready", {**left.pop(), "back": False, "room": None})
            workers -= 1
        d.t, _, what, c = heapq.heappop(d.events)
        if what in ("ready", "back"):
            c["back"] = what == "back"
            c["room"] = c["room"] or min(LIMIT, d.factor() * c["bytes"])
            d.waiting.append(c)
        elif d.leave(c, what):
            workers, ended = workers + 1, ended + 1
        for w in list(d.waiting):
            if d.fits(w):
                d.waiting.remove(w)
                d.enter(w)
    return ended / d.t, d.again / ended


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("journal")
    p.add_argument("--workers", type=int, default=24)
    p.add_argument("--peaks", type=float, default=1)
    args = p.parse_args()
    rows = list(candidates(args.journal, args.peaks))
    random.seed(1)
    rows = [random.choice(rows) for _ in range(1500)]
    print(f"{len(rows)} drawn of the journal's, {args.workers} workers")
    print("| factor above a share of | a second | run again |\n|---|---|---|")
    for share in (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4):
        rate, again = run(rows, share, args.workers)
        print(f"| {share:.0%} | {rate:.2f} | {again:.1%} |")


if __name__ == "__main__":
    main()
