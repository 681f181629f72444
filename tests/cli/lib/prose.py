"""prose.py: lists each line of prose beyond 120 columns in what clang-format does not lay out: comments and docstrings
of Python, comments of shell, CMake, CUDA and .def files.  Code and strings may be wider: breaking a line of data helps
nobody."""
import io
import re
import subprocess
import sys
import tokenize

WIDTH = 120
TAB = 4
KINDS = {"py": "#", "t": "#", "sh": "#", "zsh": "#", "cmake": "#", "txt": "#", "cu": "/", "cuh": "/", "def": "/"}
LINE = {"#": re.compile(r"\s*#"), "/": re.compile(r"\s*(//|/\*|\* |\*/)")}


def kind_of(path, first):
    """"python", "#" or "/" by the comments that the file has; None for one that is not looked at."""
    name = path.rsplit("/", 1)[-1]
    end = name.rsplit(".", 1)[-1] if "." in name else ""
    if end == "py" or first.startswith("#!") and "python" in first:
        return "python"
    if name in ("Makefile", "CMakeLists.txt") or first.startswith("#!"):
        return "#"
    return KINDS.get(end) if end != "txt" else None


def python_prose(text):
    """Numbers of the lines of comments and docstrings."""
    before = tokenize.NEWLINE
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.COMMENT and t.line.lstrip().startswith("#"):
            yield t.start[0]
        elif t.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            yield from range(t.start[0], t.end[0] + 1)
        if t.type not in (tokenize.COMMENT, tokenize.NL):
            before = t.type


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
    prose = set(python_prose(text)) if kind == "python" else {i for i, line in enumerate(lines, 1)
                                                              if LINE[kind].match(line)}
    return [(i, lines[i - 1]) for i in sorted(prose) if len(lines[i - 1].expandtabs(TAB)) > WIDTH
            and " " in lines[i - 1].strip()]


if __name__ == "__main__":
    found = [(path, *line) for path in subprocess.run(["git", "ls-files"], capture_output=True, text=True,
                                                      check=True).stdout.split()
             for line in wide(path)]
    for path, number, line in found:
        print(f"{path}:{number}: {len(line.expandtabs(TAB))} columns: {line.strip()[:60]}")
    sys.exit(bool(found))
