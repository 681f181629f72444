/* range.h - the smaller and the larger of two numbers. */
#pragma once

#include <stdint.h>

static inline int64_t ww_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ww_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ww_clamp_i64(int64_t x, int64_t low, int64_t high)
{
	return ww_min_i64(ww_max_i64(x, low), high);
}
