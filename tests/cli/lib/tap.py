"""What scripts that print TAP share: ok(), skip(), and the plan at the end, which is missing where a script ended
early."""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
ALL = sys.argv[1:] == ["all"]  # as cli/NAME_all, label slow
count = 0


def ok(good, what, note=""):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good and note:
        print("# " + str(note).rstrip()[:4000].replace("\n", "\n# "), flush=True)


def skip(what, why):
    global count
    count += 1
    print(f"ok {count} - {what} # SKIP {why}", flush=True)


def patched_home(top, edit):
    """A home of this program in the directory top whose bridge/wwbridge/examine.py is edit(its text)."""
    home = os.path.join(top, "home")
    os.mkdir(home)
    for name in os.listdir(ROOT):
        if name != "bridge" and not name.startswith("."):
            os.symlink(os.path.join(ROOT, name), os.path.join(home, name))
    shutil.copytree(os.path.join(ROOT, "bridge"), os.path.join(home, "bridge"))
    path = os.path.join(home, "bridge/wwbridge/examine.py")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(edit(text))
    return home


def finish():
    print(f"1..{count}")


def skip_all(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


STEP = re.compile(r"^ *\d+\.\d s  .*\n", re.M)


def without_steps(err):
    """Standard error without the lines that name a step of over 2 s: which ones there are depends on the machine's
    load."""
    return STEP.sub("", err)


def parents():
    """{process: its parent} of what has not ended, by one look at /proc."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(pid)] = int(fields[1])
    return found


def descendants_of(pid):
    rows, found, fresh = parents(), set(), {pid}
    while fresh:
        fresh = {p for p, parent in rows.items() if parent in fresh} - found
        found |= fresh
    return found


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
            return f.read().replace("\0", " ")
    except OSError:
        return ""


def need_pytorch():
    """The interpreter that judges use; without PyTorch there is nothing to test."""
    python = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    if subprocess.run([python, "-c", look], stderr=subprocess.DEVNULL, check=False).returncode:
        skip_all("no Python with PyTorch (make setup)")
    return python


def python_without_pytorch(folder):
    """An interpreter that finds no package, made in that folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    return os.path.join(folder, "bin/python")
