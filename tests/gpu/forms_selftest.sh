#!/bin/sh
# Solutions in the PyTorch forms on a GPU, in one batch: what honest ones look like to the judge, whatever launches
# their kernels.  One line each, as it ends.  $WARPWRIGHT is the binary (default build/warpwright), $WW_PYTHON the
# Python that has PyTorch.
#     tests/gpu/forms_selftest.sh [NAME...]        exit code 0: every line says ok;  77: no GPU here
cd "$(dirname "$0")/../.." && exec python3 tests/gpu/forms_selftest.py "$@"
