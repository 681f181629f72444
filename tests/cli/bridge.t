#!/bin/sh
# budget: 13 CPU-seconds, all 25
# all: what is costly (COSTLY): forked workers, random modules and defects, profiles
# The reference worker's arithmetic (tests/bridge/test_reference.py prints TAP itself).
exec "${WW_SOURCE_DIR:-.}/.venv/bin/python" "${WW_SOURCE_DIR:-.}/tests/bridge/test_reference.py" "$@" 2>/dev/null
