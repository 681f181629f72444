#!/bin/sh
# The layout of all C and CUDA is that of .clang-format; what that does not lay out has at most 120 columns.
cd "${WW_SOURCE_DIR:-.}" || exit 1
git rev-parse --git-dir > /dev/null 2>&1 || { echo "1..0 # SKIP not a git checkout"; exit 0; }
[ -x .venv-oracle/bin/clang-format ] || { echo "1..0 # SKIP no clang-format; run make setup-check"; exit 0; }
echo 1..2
if out=$(tools/format --check 2>&1); then
	echo "ok 1 - laid out as .clang-format says"
else
	echo "not ok 1 - laid out as .clang-format says; run tools/format"
	echo "$out" | grep error | head -20 | sed 's/^/# /'
fi
if out=$(python3 tests/cli/lib/prose.py); then
	echo "ok 2 - Python, shell, CMake, Makefiles and comments of the rest have at most 120 columns"
else
	echo "not ok 2 - Python, shell, CMake, Makefiles and comments of the rest have at most 120 columns"
	echo "$out" | head -20 | sed 's/^/# /'
fi
