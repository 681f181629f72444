#!/usr/bin/env python3
"""Take candidates out of a run's journal, so that the next `synth run` looks at them again:
again.py JOURNAL NEW [NUMBER...] [--detail TEXT] [--before NUMBER] [--but NUMBER...]

NUMBER: a candidate, or two with a dash between.  --detail: all that were rejected with TEXT in their detail; of those
--before takes candidates below a number alone, and --but leaves some in.  NEW has every other line as it was.  Prints
what was taken out."""
import argparse
import collections
import json


def numbers(words):
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("journal")
    p.add_argument("new")
    p.add_argument("number", nargs="*")
    p.add_argument("--detail")
    p.add_argument("--before", type=int)
    p.add_argument("--but", nargs="*", default=[])
    args = p.parse_args()
    named, but, out = set(numbers(args.number)), set(numbers(args.but)), collections.defaultdict(list)
    with open(args.journal, encoding="utf-8") as f, open(args.new, "x", encoding="utf-8") as new:
        for line in f:
            row = json.loads(line)
            i = row.get("i", -1)
            matches = args.detail and args.detail in row.get("detail", "") and (args.before is None or i < args.before)
            if i in named or matches and i >= 0 and i not in but:
                out[row.get("reason", "passed")].append(i)
                named.discard(i)
            else:
                new.write(line)
    for reason, which in out.items():
        print(f"{reason}: {' '.join(map(str, sorted(which)))}")
    if named:
        print(f"not there: {' '.join(map(str, sorted(named)))}")


if __name__ == "__main__":
    main()
