#!/bin/sh
# The judge on a GPU, end to end, in one batch: honest solutions through every kind of node, wrong ones, and every kind
# of fault; one line each, as it ends.  $WARPWRIGHT is the binary (default build/warpwright), $WW_PYTHON the Python that
# has PyTorch.
#     tests/gpu/judge_selftest.sh [--quick] [NAME...]        exit code 0: every line says ok;  77: no GPU here
cd "$(dirname "$0")/../.." && exec python3 tests/gpu/judge_selftest.py "$@"
