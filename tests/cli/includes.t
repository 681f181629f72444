#!/usr/bin/env python3
"""The arrows between the folders of src/: every #include "folder/..." must be allowed by tools/include-directions.txt,
and docs/architecture.md shows the same arrows for every folder that is there."""
import os
import re

root = os.environ.get("WW_SOURCE_DIR", ".")
allowed = {}
with open(os.path.join(root, "tools/include-directions.txt")) as f:
    for line in f:
        line = line.split("#")[0].strip()
        if line:
            name, _, rest = line.partition(":")
            allowed[name.strip()] = set(rest.split())

bad, count = [], 0
for folder, _, files in os.walk(os.path.join(root, "src")):
    parts = os.path.relpath(folder, os.path.join(root, "src")).split(os.sep)
    module = parts[0]
    for name in files:
        if not name.endswith((".c", ".h", ".cu", ".cuh")):
            continue
        path = os.path.join(folder, name)
        with open(path) as f:
            for number, line in enumerate(f, 1):
                m = re.match(r'\s*#\s*include\s+"([^"/]+)/([^"]+)"', line)
                if not m:
                    continue
                count += 1
                target = m.group(1)
                if module not in allowed:
                    bad.append(f"{path}: folder {module} is not in tools/include-directions.txt")
                elif not {target, f"{target}/{m.group(2)}", "*"} & (allowed[module] | {module, "base"}):
                    bad.append(f"{path}:{number}: {module} may not include {target}/{m.group(2)}")
with open(os.path.join(root, "docs/architecture.md"), encoding="utf-8") as f:
    shown = {m[0]: set(m[1].split()) for m in re.findall(r"^([a-z]+):[ ]*(.*)$", f.read(), re.M)}
there = {name: rest for name, rest in allowed.items() if os.path.isdir(os.path.join(root, "src", name))}
print("1..3")
print(("ok" if not bad else "not ok") + " 1 - include directions")
for b in bad:
    print("# " + b)
print(("ok" if count > 20 else "not ok") + f" 2 - the scan saw the includes ({count})")
print(("ok" if shown == there else "not ok") + " 3 - docs/architecture.md shows them")
for name in sorted(n for n in shown.keys() | there.keys() if shown.get(n) != there.get(n)):
    print(f"# {name}: {sorted(shown.get(name, []))} there, {sorted(there.get(name, []))} in "
          "tools/include-directions.txt")
