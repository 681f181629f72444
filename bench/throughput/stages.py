"""Show where the time of a batch goes, from its debug log, and from /proc while it runs.

    bench/throughput/stages.py LOG RESULTS.jsonl [CPU.tsv]

LOG is what `judge --batch` said with WARPWRIGHT_LOG=debug; each line ends with its thread and the clock.  A thread does
all of one job, so a stage lasts until its thread's next one.  CPU.tsv is written by Watch.  Times are wall times; those
of stages hold waiting for processors, for the device and for other threads.
"""

import collections
import json
import os
import re
import statistics
import sys
import threading
import time

WINDOW_S = 5
TICK = os.sysconf("SC_CLK_TCK")
LINE = re.compile(r"^warpwright: (.*) \[thread (\d+), ([\d.]+) s\]$")
DETAIL = re.compile(r" on draw \d+ of \d+| for draw \d+ of \d+|: .* has it")
KINDS = ("judge", "forker", "worker", "runner", "compiler", "builder", "other")


# ---- Processors ------------------------------------------------------------------------------------------------------


def kind_of(command, parent_kind):
    if "worker.py" in command:
        return "worker" if parent_kind in ("forker", "worker") else "forker"
    for word, kind in ("__runner", "runner"), ("__compile", "compiler"), ("__build", "builder"), ("judge", "judge"):
        if word in command:
            return kind
    return "other"


class Watch(threading.Thread):
    """Each second one row a kind of process: seconds, kind, how many there are, user and system seconds so far.  What a
    process that has ended used since it was last seen is missed; the row `all` has what its ancestor knows of it."""

    def __init__(self, pid, path):
        super().__init__(daemon=True)
        self.pid, self.file = pid, open(path, "w")
        self.gone = {k: [0.0, 0.0] for k in KINDS}
        self.seen = {}  # pid: (kind, user, system)

    def run(self):
        start = time.monotonic()
        while os.path.exists(f"/proc/{self.pid}"):
            self.look(time.monotonic() - start)
            time.sleep(1)

    def look(self, now):
        stats = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
                    stats[int(name)] = int(fields[1]), int(fields[11]) / TICK, int(fields[12]) / TICK
                except (OSError, IndexError):
                    pass
        alive = {}
        for pid in stats:
            self.note(pid, stats, alive)
        for pid, (kind, user, system) in self.seen.items():
            if pid not in alive:
                self.gone[kind][0] += user
                self.gone[kind][1] += system
        self.seen = {p: (k, *stats[p][1:]) for p, k in alive.items() if k}
        for kind in KINDS:
            rows = [v for v in self.seen.values() if v[0] == kind]
            user, system = (sum(v[i + 1] for v in rows) + self.gone[kind][i] for i in (0, 1))
            if user + system > 0:
                print(f"{now:.1f}\t{kind}\t{len(rows)}\t{user:.2f}\t{system:.2f}", file=self.file)
        whole = [int(x) / TICK for x in open("/proc/stat").readline().split()[1:]]
        print(f"{now:.1f}\tmachine\t1\t{whole[0] + whole[1]:.2f}\t{whole[2]:.2f}", file=self.file, flush=True)

    def note(self, pid, stats, alive):
        """alive[pid]: its kind; None: no descendant of ours."""
        if pid in alive or pid not in stats:
            return alive.get(pid)
        if pid == self.pid:
            alive[pid] = "judge"
            return "judge"
        alive[pid] = None
        parent = self.note(stats[pid][0], stats, alive)
        if parent is None:
            return None
        if pid in self.seen:
            alive[pid] = self.seen[pid][0]
            return alive[pid]
        try:
            command = open(f"/proc/{pid}/cmdline").read()
        except OSError:
            command = ""
        alive[pid] = kind_of(command, parent)
        return alive[pid]


def processors(path):
    """Cores that each kind of process used, by windows."""
    at = collections.defaultdict(dict)
    for line in open(path):
        t, kind, n, user, system = line.split("\t")
        at[kind][float(t)] = int(n), float(user), float(system)
    print("processors used (user + system), and processes, by seconds since the start:")
    for kind, rows in at.items():
        ts = sorted(rows)
        cells, last = [], ts[0]
        for t in ts[1:]:
            if t - last >= WINDOW_S or t == ts[-1]:
                (_, u0, s0), (n, u1, s1) = rows[last], rows[t]
                cells.append(f"{(u1 - u0) / (t - last):.1f}+{(s1 - s0) / (t - last):.1f} ({n})")
                last = t
        print(f"  {kind:9s}", "  ".join(cells))
    for kind, rows in at.items():
        first, last = rows[min(rows)], rows[max(rows)]
        print(f"  {kind:9s} in all: user {last[1] - first[1]:.1f} s, system {last[2] - first[2]:.1f} s")


# ---- The log ---------------------------------------------------------------------------------------------------------


def read_log(path):
    """(events by thread, the first time): an event is (seconds, text)."""
    threads = collections.defaultdict(list)
    for line in open(path, errors="replace"):
        if m := LINE.match(line.rstrip("\n")):
            threads[m[2]].append((float(m[3]), m[1]))
    first = min((e[0][0] for e in threads.values()), default=0)
    return threads, first


def stages_of(threads):
    """(begin, end, stage) of each stage; a wait for the device is a stage of its own."""
    out = []
    for events in threads.values():
        now, since = None, 0
        for at, text in events:
            if m := re.match(r"turn: (.*) after (\d+) us", text):
                waited = int(m[2]) * 1e-6
                if now and waited > 1e-3 and at - waited >= since:
                    out.append((since, at - waited, now))
                    out.append((at - waited, at, "waiting: " + m[1]))
                    since = at
            elif text.startswith("stage: "):
                if now:
                    out.append((since, at, now))
                now, since = DETAIL.sub("", text[7:]), at
                if now == "over":
                    now = None
    return out


def by_stage(stages, n):
    print(f"stages: times a verdict, ms a verdict, median and 90% of one in ms ({n} verdicts)")
    rows = collections.defaultdict(list)
    for begin, end, name in stages:
        rows[name].append(1e3 * (end - begin))
    for name, ms in sorted(rows.items(), key=lambda r: -sum(r[1])):
        ms.sort()
        print(f"  {name[:48]:48s} {len(ms) / n:7.2f} {sum(ms) / n:9.1f} {statistics.median(ms):9.1f} "
              f"{ms[len(ms) * 9 // 10]:9.1f}")


def by_request(threads, n):
    print("requests: times a verdict, ms a verdict, median and 90% of one in ms")
    rows = collections.defaultdict(list)
    for events in threads.values():
        for _, text in events:
            m = re.match(r"(reference worker: \w+|runner: request \d+|turn: [\w ]+), (\d+) us", text)
            if m:
                rows[m[1]].append(int(m[2]) * 1e-3)
    for name, ms in sorted(rows.items(), key=lambda r: -sum(r[1])):
        ms.sort()
        print(f"  {name[:48]:48s} {len(ms) / n:7.2f} {sum(ms) / n:9.1f} {statistics.median(ms):9.2f} "
              f"{ms[len(ms) * 9 // 10]:9.2f}")


def by_turn(threads):
    """Which kinds of turns are inside together, for what share of the time from the first to the last, and how many."""
    events = sorted((at, thread, text) for thread, rows in threads.items() for at, text in rows if "turn: " in text)
    inside, shares, numbers, last = {}, collections.Counter(), collections.Counter(), None
    for at, thread, text in events:
        kinds = tuple(sorted(set(inside.values())))
        shares[kinds] += at - (at if last is None else last)
        for kind in inside.values():
            numbers[kinds, kind] += at - (at if last is None else last)
        last = at
        inside.pop(thread, None)
        if m := re.match(r"turn: (.*) after \d+ us", text):
            inside[thread] = m[1]
    whole = sum(shares.values()) or 1
    print(f"inside together, of {whole:.1f} s:")
    for kinds, s in shares.most_common(8):
        many = ", ".join(f"{numbers[kinds, k] / s:.1f} {k}" for k in kinds) if s else ""
        print(f"  {100 * s / whole:5.1f}% {many or 'nobody'}")


def by_window(stages, first):
    """How many threads are in each stage."""
    ends = max((s[1] for s in stages), default=first)
    windows = int((ends - first) / WINDOW_S) + 1
    rows = collections.defaultdict(lambda: [0.0] * windows)
    for begin, end, name in stages:
        for w in range(windows):
            low, high = first + w * WINDOW_S, first + (w + 1) * WINDOW_S
            rows[name][w] += max(0.0, min(end, high) - max(begin, low)) / WINDOW_S
    print(f"threads in each stage, by windows of {WINDOW_S} s:")
    for name, cells in sorted(rows.items(), key=lambda r: -sum(r[1])):
        if max(cells) >= 0.1:
            print(f"  {name[:40]:40s}", " ".join(f"{c:5.1f}" for c in cells))


def verdicts(path):
    rows = [r for r in map(json.loads, open(path)) if "verdict" in r]
    if not rows:
        return 0
    done = sorted(r["done_s"] for r in rows)
    counts = [0] * (int(done[-1] / WINDOW_S) + 1)
    for t in done:
        counts[int(t / WINDOW_S)] += 1
    print(f"{len(rows)} verdicts, the first after {done[0]:.1f} s, the last after {done[-1]:.1f} s, in each "
          f"{WINDOW_S} s: {counts}")
    return len(rows)


def show(log, results, cpu=None):
    n = verdicts(results)
    threads, first = read_log(log)
    stages = stages_of(threads)
    by_window(stages, first)
    by_turn(threads)
    by_stage(stages, n or 1)
    by_request(threads, n or 1)
    if cpu and os.path.exists(cpu):
        processors(cpu)
    sys.stdout.flush()


if __name__ == "__main__":
    show(*sys.argv[1:4])
