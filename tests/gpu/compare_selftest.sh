#!/bin/sh
# Comparisons in one launch beside those by PyTorch's operators, on a GPU: decisions and times.  $WARPWRIGHT is the
# binary (default build/warpwright), $WW_PYTHON the Python that has PyTorch.
#     tests/gpu/compare_selftest.sh        exit code 0: every line says ok;  77: no GPU here, or no kernels
cd "$(dirname "$0")/../.." && exec "${WW_PYTHON:-.venv/bin/python}" -B tests/gpu/compare_selftest.py "$@"
