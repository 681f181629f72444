#!/bin/sh
# label: gpu
# The CUDA side of the reference worker, as one TAP line around its self-test.
echo 1..1
out=$("${WW_SOURCE_DIR:-.}/.venv/bin/python" "${WW_SOURCE_DIR:-.}/tests/bridge/gpu_selftest.py" 2>&1)
case $? in
0) echo "ok 1 - gpu_selftest" ;;
77) echo "ok 1 # SKIP no GPU" ;;
*) echo "$out" | sed 's/^/# /'; echo "not ok 1 - gpu_selftest"; exit 1 ;;
esac
