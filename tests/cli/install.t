#!/usr/bin/env python3
# budget: 3 CPU-seconds, all 40
# all: the installed program judges a PyTorch form, by a link and by a path with ..; what tools/carry packs
"""`make install` and `make demo` build nothing but what is installed; manual and completions are those of the option
tables; `make uninstall` leaves nothing; `make check` says what to do where it failed."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, finish, ok, ROOT, skip, WW  # noqa: E402

BUILD = os.path.dirname(os.path.abspath(WW))


def out_of(argv, **kw):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=120, **kw)
    return p.returncode, p.stdout + p.stderr


def record():
    """What `make uninstall` of this build would remove, which is the user's own installation."""
    path = os.path.join(BUILD, "installed.txt")
    return open(path, encoding="utf-8").read() if os.path.exists(path) else None


def files(folder):
    return {os.path.relpath(os.path.join(d, n), folder) for d, _, names in os.walk(folder) for n in names}


if os.path.exists(os.path.join(BUILD, "build.ninja")):
    code, text = out_of(["ninja", "-C", BUILD, "-t", "inputs", "installed"])
    inputs = text.split("\n")
    more = [i for i in inputs if re.search(r"(^|/)(tests|fuzz|bench)/", i)]
    ok(code == 0 and any(i.endswith("src/cmd/main.c.o") for i in inputs) and not more,
       "no test, fuzzer or bench is built for it", more[:5])
else:
    skip("no test, fuzzer or bench is built for it", "not built by ninja")

def judges(dest, installed):
    """A form in Python finds the installed bridge, however its program was named."""
    env = {**os.environ, "WW_PYTHON": os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python"),
           "XDG_CACHE_HOME": os.path.join(dest, "cache")}
    env.pop("WARPWRIGHT_HOME", None)
    env.pop("WARPWRIGHT", None)
    if not os.path.exists(env["WW_PYTHON"]):
        skip("the installed program judges a PyTorch form", "no Python with PyTorch")
        return
    task = os.path.join(ROOT, "tests/cheats/tasks/add.py")
    solution, link = os.path.join(dest, "new.py"), os.path.join(dest, "link")
    with open(task, encoding="utf-8") as before, open(solution, "w", encoding="utf-8") as f:
        f.write(before.read().replace("class Model(", "class ModelNew("))
    os.symlink(installed, link)
    for how, program in (("a link", link), ("bin/../bin", os.path.join(dest, "usr/bin/../bin/warpwright"))):
        code, said = out_of([program, "judge", "--target", "cpu", "--verify-only", task, solution], env=env)
        ok(code == 0, f"the installed program judges a PyTorch form, by {how}", said)


def carried():
    """What `make dist` and tools/carry pack runs in a checkout that was never built."""
    with tempfile.TemporaryDirectory() as there:
        os.symlink(os.path.join(ROOT, "models"), os.path.join(there, "models"))
        code, said = out_of([os.path.join(ROOT, "tools/dist"), BUILD])
        if code == 0:
            code, said = out_of([os.path.join(ROOT, "tools/carry"), BUILD, os.path.join(there, "carried")])
        ok(code == 0, "program and tests are packed", said)
        for shell in ("bash", "sh"):
            env = {"PATH": os.environ["PATH"], "WW_CARRIED_TO": os.path.join(there, shell),
                   "WW_CARRIED": os.path.join(there, "carried")}
            commands = (". carried/here.sh; $WARPWRIGHT version; build/warpwright model info nano; "
                        "ldd build/tests/test-ops build/tests/accuracy-variants")
            code, said = out_of([shell, "-ec", commands], cwd=there, env=env)
            ok(code == 0 and out_of([WW, "version"])[1] in said and "not found" not in said, f"they run by {shell}",
               said)
        os.remove(os.path.join(there, "models"))
        small = os.path.join(ROOT, "recipes/small-4m.json")
        code, said = out_of(["sh", "-ec", f". carried/here.sh; build/tests/bench-long-step {small} 1 64 1 8 cpu"],
                            cwd=there, env={**env, "WW_CARRIED_TO": os.path.join(there, "no-model")})
        ok(code == 0 and '"own_tokens":8' in said and "cannot" not in said, "also without the shipped model", said)


for goal in ([], ["demo"]):
    code, said = out_of(["make", "-n", "-C", ROOT, f"BUILD={BUILD}", *goal])
    builds = [line for line in said.split("\n") if "--build" in line]
    ok(code == 0 and len(builds) == 1 and builds[0].endswith("--target installed"), f"nor by {['make', *goal]}", said)

with tempfile.TemporaryDirectory() as build:
    os.mkdir(os.path.join(build, "tests"))
    for name, does in (("ctest", "exit 8"), ("tests/test-cost", "exit 0")):
        with open(os.path.join(build, name), "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\n{does}\n")
        os.chmod(os.path.join(build, name), 0o755)
    code, said = out_of(["make", "-s", "-C", ROOT, "-o", "setup-check", "-o", "all", f"BUILD={build}", "check"],
                        env={**os.environ, "PATH": f"{build}:{os.environ['PATH']}"})
    ok(code == 2 and "make check-failed" in said, "where tests failed, make check says how they are run again", said)

with tempfile.TemporaryDirectory() as dest:
    env = {**os.environ, "DESTDIR": dest}
    env.pop("MAKEFLAGS", None)
    make = ["make", "-s", "-C", ROOT, f"BUILD={BUILD}", "PREFIX=/usr", f"INSTALLED={dest}/installed.txt"]
    before = record()
    code, said = out_of([*make, "install"], env=env)
    usr = os.path.join(dest, "usr")
    found = files(usr)
    want = {"bin/warpwright", "share/warpwright/bridge/worker.py", "share/warpwright/include/ww/plan.h",
            "share/warpwright/skills/cuda/SKILL.md",
            "share/doc/warpwright/commands.md", "share/doc/warpwright/README.md", "share/man/man1/warpwright.1",
            "share/bash-completion/completions/warpwright", "share/zsh/site-functions/_warpwright",
            "share/fish/vendor_completions.d/warpwright.fish"}
    ok(record() == before, "the record of another installation from this build is as it was", record())
    ok(code == 0 and want <= found, "program, parts, docs, manual and completions are there",
       (said[-2000:], want - found))
    installed = os.path.join(usr, "bin/warpwright")
    ok(out_of([installed, "version"]) == out_of([WW, "version"]), "the installed program runs")
    if ALL:
        judges(dest, installed)
        carried()

    helps = {n: out_of([WW, n, "-h"])[1] for n in re.findall(r"^  (\w+) ",
                                                             out_of([WW, "-h"])[1].split("commands:")[1].split(
                                                                 "\n\n")[0], re.M)}
    options = {n: re.findall(r"^  (?:-\w, )?--([\w-]+)", h, re.M) for n, h in helps.items()}
    page = os.path.join(usr, "share/man/man1/warpwright.1")
    text = open(page, encoding="utf-8").read()
    missing = [o for os_ in options.values() for o in os_ if o != "help" and "\\-\\-"
               + o.replace("-", "\\-") not in text]
    ok(not missing, "the manual has every option of every command", missing)
    if shutil.which("groff"):
        code, said = out_of(["groff", "-man", "-Tutf8", "-ww", page])
        ok(code == 0 and "warning" not in said and "--baselines" in re.sub("\x1b\\[[0-9;]*m", "", said).replace(
            "‐", "-"), "groff sets it without a warning", said[:500])
    else:
        skip("groff sets it without a warning", "no groff")

    bash = os.path.join(usr, "share/bash-completion/completions/warpwright")

    def complete(*words):
        line = " ".join(f"'{w}'" for w in words)
        script = f". {bash}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _warpwright; echo ${{COMPREPLY[@]}}"
        return out_of(["bash", "-c", script], cwd=dest)[1].split()

    ok(complete("warpwright", "") == [*helps] and complete("warpwright", "op") == ["optimize"],
       "bash completes commands")
    ok(all(sorted(complete("warpwright", n, "--")) == sorted("--" + o for o in options[n]) for n in helps),
       "and the options of each")
    ok(complete("warpwright", "judge", "--target", "c") == ["cuda", "cpu"]
       and complete("warpwright", "model", "in") == ["info", "init"]
       and complete("warpwright", "synth", "s") == ["show", "stats"]
       and complete("warpwright", "judge", "us") == ["usr"], "and their values, the second words, and files")
    # In the shells themselves: what each offers at the end of a line, without zsh's and fish's own start files.
    lines = {"": [*helps], "op": ["optimize"], "help ex": ["export"], "help ver": ["version"],
             "judge --target c": ["cpu", "cuda"], "model in": ["info", "init"],
             "synth s": ["show", "stats"],
             **{n + " --": ["--" + o for o in options[n]] for n in ("judge", "train")}, "report us": ["usr"],
             "report --output us": ["usr"]}
    zsh, fish = os.path.join(usr, "share/zsh/site-functions"), os.path.join(
        usr, "share/fish/vendor_completions.d/warpwright.fish")
    asked = ["warpwright " + line for line in lines]
    offers = {"zsh": ["zsh", "-f", os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib/complete.zsh"), zsh,
                      *asked],
              "fish": ["fish", "--no-config", "-c", f"source {fish}; for l in $argv; echo (complete -C $l | cut "
                                                    "-f1); end", *asked]}
    for shell, argv in offers.items():
        if not shutil.which(shell):
            skip(f"{shell} completes commands, options, values and files", f"no {shell} here; apt-get install {shell}")
            continue
        code, said = out_of(argv, cwd=dest)
        wrong = [(line, words.split()) for (line, want), words in zip(lines.items(), said.split("\n"))
                 if sorted(w.rstrip("/") for w in words.split()) != sorted(want)]
        ok(code == 0 and said.count("\n") == len(lines) and not wrong,
           f"{shell} completes commands, options, values and files", (wrong, said[:1500]))

    code, said = out_of([*make, "uninstall"], env=env)
    ok(code == 0 and not os.path.exists(usr), "make uninstall leaves nothing", (said, sorted(files(usr))[:5]))
finish()
