/* pool.h - threads that share a loop. */
#pragma once

#include "base/mem.h"

#include <stdint.h>

struct ww_pool;

/* threads <= 0: one for each processor that this process may use, or WARPWRIGHT_THREADS. */
enum ww_rc ww_pool_new(int threads, struct ww_pool **out, struct ww_err *err) WW_MUST_CHECK;
void ww_pool_free(struct ww_pool *p);
int ww_pool_threads(const struct ww_pool *p);
/* Call fn(arg, i, worker) for every i in 0..n-1, in any order, and return when all are done.  The caller works too. */
void ww_pool_run(struct ww_pool *p, int64_t n, void (*fn)(void *arg, int64_t i, int worker), void *arg);
