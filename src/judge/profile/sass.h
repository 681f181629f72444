/* sass.h - the machine code of one kernel: its hottest loop and the mix of its instructions. */
#pragma once

#include "base/str.h"

#include <jansson.h>

/* Disassemble a cubin with cuobjdump (found in $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, $PATH or the Triton package
 * beside PyTorch) in a confined process.  A new object: {"available": true, "kernel", "tool", "instructions", "loop",
 * "lines", "mix"} or {"available": false, "reason"}; NULL when out of memory. */
json_t *ww_sass(const void *cubin, size_t bytes, const char *symbol);
/* The same from cuobjdump's text; NULL where it holds no such function. */
json_t *ww_sass_parse(const char *text, const char *symbol);
