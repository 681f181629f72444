/* cubin_scan.h - which kinds of instructions a cubin holds. */
#pragma once

#include <stddef.h>

/* 1 where the code has, or could have, instructions of the tensor cores: also for an architecture (cc: 90 for 9.0)
 * whose encoding is not known here, and for bytes that are no cubin.  0 is certain. */
int ww_cubin_tensor_cores(const void *bytes, size_t n, int cc);
