#!/bin/sh
# Rule strict on a GPU: every kind of output and defect, repeats, races, algebra, one line a case.  About 60 s.
cd "$(dirname "$0")/../.." && exec "${WW_PYTHON:-.venv/bin/python}" tests/judge/strict_cases.py cuda
