#!/bin/sh
# Profiles on a GPU, end to end: of references, of honest solutions through every kind of node, of faulty ones; one line
# each, the whole text of some.  $WARPWRIGHT is the binary (default build/warpwright), $WW_PYTHON the Python that has
# PyTorch; JSON goes to $OUT if set.
#     tests/gpu/profile_selftest.sh [NAME...]        exit code 0: every line says ok;  77: no GPU here
cd "$(dirname "$0")/../.." && exec python3 tests/gpu/profile_selftest.py "$@"
