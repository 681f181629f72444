#!/bin/sh
# budget: 13 CPU-seconds, all 70
# all: what is costly (COSTLY): forked workers, random modules and defects, profiles, near ties in bfloat16, which a
# processor without instructions for it computes one by one (half of the budget)
# The reference worker's arithmetic (tests/bridge/test_reference.py prints TAP itself).
exec "${WW_SOURCE_DIR:-.}/.venv/bin/python" "${WW_SOURCE_DIR:-.}/tests/bridge/test_reference.py" "$@" 2>/dev/null
