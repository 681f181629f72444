#!/usr/bin/env python3
"""Every command has -h, docs/commands.md holds exactly that text, and the program starts fast.

`tests/cli/help.t --write` writes docs/commands.md anew."""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, ROOT, WW  # noqa: E402

DOC = os.path.join(ROOT, "docs/commands.md")


def run(*args):
    p = subprocess.run([WW, *args], capture_output=True, text=True, timeout=60)
    return p.returncode, p.stdout, p.stderr


code, overview, _ = run("-h")
names = re.findall(r"^  (\w+) ", overview.split("commands:")[1].split("\n\n")[0], re.M)
helps = {n: run(n, "-h") for n in names}

document = "# Commands\n\nThis page is the output of `warpwright -h` and of `-h` of every command; `tests/cli/help.t` holds them together.\n"
document += f"\n```\n{overview}```\n"
for n in names:
    document += f"\n## {n}\n\n```\n{helps[n][1]}```\n"
if sys.argv[1:] == ["--write"]:
    with open(DOC, "w", encoding="utf-8") as f:
        f.write(document)
    sys.exit(0)

ok(code == 0 and len(names) >= 5, "warpwright -h lists the commands", overview)
for n in names:
    code, out, err = helps[n]
    ok(code == 0 and not err and out.startswith(f"usage: warpwright {n}"), f"{n} -h", err)
    ok("--json" in out, f"{n} has --json")
    code, out, err = run(n, "--no-such-option")
    ok(code == 2 and not out and err.count("\n") == 1 and "--no-such-option" in err, f"{n} refuses an unknown option in one line", err)
with open(DOC, encoding="utf-8") as f:
    ok(f.read() == document, "docs/commands.md holds the same text (tests/cli/help.t --write brings it up to date)")
code, out, err = run("doctor", "--jso=1")
ok(code == 2 and err.count("\n") == 1 and "--json" in err, "a misspelled option is answered with the nearest", err)
code, out, err = run("no-such-command")
ok(code == 2 and err.count("\n") == 1, "an unknown command is one line and exit code 2", err)
code, out, err = run()
ok(code == 2, "no command is usage")


def fastest(argv):
    """Of 20 starts: what is left is the program's own, whatever else this machine does."""
    best = 9.0
    for _ in range(20):
        start = time.perf_counter()
        subprocess.run(argv, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    return best


spent = fastest([WW, "-h"]) - fastest(["/bin/true"])
ok(spent < 0.010, f"the program starts in under 10 ms ({spent * 1000:.1f} ms more than /bin/true)")
finish()
