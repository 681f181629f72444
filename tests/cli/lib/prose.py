"""prose.py: lists each line beyond 120 columns in what clang-format does not lay out: all of Python, shell, CMake and
Makefiles, comments of CUDA and .def files.  Data may be wider, which is what the inner lines of a string over
several lines are, unless it is a docstring: breaking them helps nobody."""
import io
import re
import subprocess
import sys
import tokenize

WIDTH = 120
TAB = 4
KINDS = {"py": "#", "t": "#", "sh": "shell", "zsh": "shell", "cmake": "all", "cu": "/", "cuh": "/", "def": "/"}
LINE = {"#": re.compile(r"\s*#"), "/": re.compile(r"\s*(//|/\*|\* |\*/)")}


def kind_of(path, first):
    """"python" and "shell": all but data; "all" lines are looked at; "#" or "/": its comments; None: nothing is."""
    name = path.rsplit("/", 1)[-1]
    end = name.rsplit(".", 1)[-1] if "." in name else ""
    if end == "py" or first.startswith("#!") and "python" in first:
        return "python"
    if name in ("Makefile", "CMakeLists.txt"):
        return "all"
    return "shell" if first.startswith("#!") else KINDS.get(end)


def python_data(text):
    """Numbers of the lines inside of strings over several lines that are no docstrings."""
    before = tokenize.NEWLINE
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.STRING and before not in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            yield from range(t.start[0], t.end[0] + 1) if t.start[0] != t.end[0] else ()
        if t.type not in (tokenize.COMMENT, tokenize.NL):
            before = t.type


def shell_data(lines):
    """Numbers of the lines of texts that a shell passes on: after << until their end."""
    end = None
    for i, line in enumerate(lines, 1):
        if end is not None:
            yield i
            end = None if line.strip() == end else end
        elif found := re.search(r"<<-?\s*['\"]?(\w+)['\"]?", line):
            end = found.group(1)


def wide(path):
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except (OSError, UnicodeDecodeError):
        return []
    lines = text.split("\n")
    kind = kind_of(path, lines[0])
    if not kind or max(map(len, lines)) + TAB * 8 <= WIDTH:
        return []
    if kind == "python":
        looked_at = set(range(1, len(lines) + 1)) - set(python_data(text))
    elif kind == "shell":
        looked_at = set(range(1, len(lines) + 1)) - set(shell_data(lines))
    else:
        looked_at = {i for i, line in enumerate(lines, 1) if kind == "all" or LINE[kind].match(line)}
    return [(i, lines[i - 1]) for i in sorted(looked_at)
            if len(lines[i - 1].expandtabs(TAB)) > WIDTH and " " in lines[i - 1].strip()]


if __name__ == "__main__":
    found = [(path, *line) for path in subprocess.run(["git", "ls-files"], capture_output=True, text=True,
                                                      check=True).stdout.split()
             for line in wide(path)]
    for path, number, line in found:
        print(f"{path}:{number}: {len(line.expandtabs(TAB))} columns: {line.strip()[:60]}")
    sys.exit(bool(found))
