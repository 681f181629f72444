/* ref_cache.h - where the reference workers of one task keep what torch.compile made: DIR/torch/TASK-ID.
 *
 * The task's own code can write there, and any client of `serve` can send a task.  So a directory that nothing was put
 * into goes when the last judge closes the task, and so does one that is larger than such caches are. */
#pragma once

#include "base/err.h"

#include <limits.h>
#include <stdint.h>

enum { WW_REF_CACHE_MAX_BYTES = 256 << 20 };

struct ww_ref_cache {
	char path[PATH_MAX];
	int fd; /* holds a shared lock on the directory; -1: not open */
};
#define WW_REF_CACHE_INIT { .fd = -1 }

/* Makes the directory; nobody removes it until it is closed. */
enum ww_rc ww_ref_cache_open(
	struct ww_ref_cache *c, const char *dir, const char *task_id, struct ww_err *err) WW_MUST_CHECK;
/* Safe twice.  max_bytes: above it the directory is removed. */
void ww_ref_cache_close(struct ww_ref_cache *c, uint64_t max_bytes);
