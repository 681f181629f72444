#!/usr/bin/env python3
"""The cost of a run of `synth run`, and its reasons for rejections: rate.py DIR [SECONDS] [--since OLD]

Reads DIR/journal.jsonl: candidates by outcome with an example of each reason, how many ended in each 20 s, and the
seconds (waiting included) and CPU-seconds of each stage, a candidate.  SECONDS: that it took.  OLD: a journal that the
run went on from; what stands in it does not count."""
import argparse
import collections
import json
import statistics


def entries(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # the last line of a run that was killed
            if "i" in row:
                yield row


def main(directory, seconds=None, since=None):
    old = {r["i"] for r in entries(since)} if since else ()
    rows = [r for r in entries(directory + "/journal.jsonl") if r["i"] not in old]
    if not rows:
        return print(directory, "holds no candidate")
    passed, last = [r for r in rows if "row" in r], max(r["at"] for r in rows)
    early = sum("decided" in r for r in rows)
    late = [r for r in rows if r["at"] > last / 2]
    print(f"{directory}: {len(rows)} candidates, {len(passed)} passed ({len(passed) / max(1, len(rows) - early):.0%} "
          f"of those that no other task decided), {early} resembled another or were of a full split, "
          f"{sum('tries' in r for r in rows)} looked at again with more memory")
    print(f"  {len(passed) / float(seconds or last):.2f} passed a second; "
          f"{sum('row' in r for r in late) / (last / 2):.2f} in the second half of the time")
    ended = collections.Counter(int(r["at"] / 20) for r in rows)
    print("  ended in each 20 s:", *(ended[k] for k in range(max(ended) + 1)))
    timed = [r for r in rows if "times" in r and "row" not in r]
    print(f"  {sum('untimed' in r['times'] for r in timed)} of {len(timed)} that another filter rejected were not "
          "timed")
    reasons = collections.Counter(r["reason"] for r in rows if "reason" in r)
    for reason, n in reasons.most_common():
        details = [r["detail"] for r in rows if r.get("reason") == reason]
        print(f"  {n:5} {reason}: " + " | ".join(d[:160] for d in details[:3]))
    print("  stage      seconds  CPU-seconds a candidate (its largest)")
    stages = list(dict.fromkeys(k for r in rows for k in r["cost"]))
    for s in stages:
        wall, cpu = zip(*(r["cost"].get(s, (0, 0)) for r in rows))
        print(f"  {s:9} {sum(wall) / len(rows):8.3f} {sum(cpu) / len(rows):8.3f} ({max(cpu):.2f})")
    print(f"  all       {sum(w for r in rows for w, _ in r['cost'].values()) / len(rows):8.3f} "
          f"{sum(c for r in rows for _, c in r['cost'].values()) / len(rows):8.3f}")
    shares = [r["share"] for r in rows if "share" in r]
    for stage in ("load", "eager", "compile"):
        spent = [s[stage] for s in shares if stage in s]
        if len(spent) > 9:
            print(f"  shares of the lease, {stage}: waited at the gate {statistics.mean(s[0] for s in spent):.2f} s, "
                  f"held {statistics.mean(s[1] for s in spent):.2f} s, longest pieces, deciles:",
                  [round(x, 2) for x in statistics.quantiles([s[2] for s in spent], n=10)])
    memory = [peak / values for r in rows if "bytes" in r for values, peak, *_ in [r["bytes"]] if values]
    if len(memory) > 19:
        print("  peak memory over bytes of inputs and values, by twentieths:",
              [round(x, 2) for x in statistics.quantiles(memory, n=20)])
    lost = [r["bytes"][1] / r["allocated"] for r in rows if "bytes" in r and "allocated" in r]
    if len(lost) > 9:
        print("  peak memory over what tensors took of it, deciles:",
              [round(x, 2) for x in statistics.quantiles(lost, n=10)])
    for why, n in collections.Counter(r["again"][:160] for r in rows if "again" in r).most_common(8):
        print(f"  looked at again, {n} times: {why}")
    left = [r["left"] / 2**20 for r in rows if "left" in r]
    if len(left) > 9:
        print("  MiB that a worker holds behind a candidate, deciles:",
              [round(x) for x in statistics.quantiles(left, n=10)], "at most", round(max(left)))
    for why, n in collections.Counter(r["untraced"] for r in rows if "untraced" in r).most_common(5):
        print(f"  no graph ahead of the device, {n} times: {why}")
    stages = [r["bytes"] for r in rows if len(r.get("bytes", ())) == 4 and r["bytes"][3]]
    if len(stages) > 9:
        for k, what in ((2, "loading"), (3, "baselines")):
            print(f"  peak of {what} over that of the eager filters, deciles:",
                  [round(x, 2) for x in statistics.quantiles([b[k] / b[1] for b in stages], n=10)])
    times = [r["row"]["times"] for r in passed]
    if len(times) > 9:
        print("  eager us, deciles:", [round(x) for x in statistics.quantiles([t["eager_us"] for t in times], n=10)])
        gain = [t["eager_us"] / t["compile_us"] for t in times if t["compile_us"]]
        if len(gain) > 9:
            print("  eager / compile, deciles:", [round(x, 2) for x in statistics.quantiles(gain, n=10)])
    return None


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("directory")
    p.add_argument("seconds", type=float, nargs="?")
    p.add_argument("--since")
    args = p.parse_args()
    main(args.directory, args.seconds, args.since)
