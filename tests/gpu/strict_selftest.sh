#!/bin/sh
# Rule strict on a GPU: every kind of output and defect, repeats, 16 races, algebra, the three tools of
# compute-sanitizer; one line a case, as it ends.  $WARPWRIGHT is the binary (default build/warpwright), $WW_PYTHON the
# Python that has PyTorch.  About 60 s.
cd "$(dirname "$0")/../.." && exec "${WW_PYTHON:-.venv/bin/python}" tests/judge/strict_cases.py cuda
