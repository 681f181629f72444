/* owned.h - cpu: the buffers that a plan writes, in the judge's own mapping: poison, guard bytes and scratch.
 *
 * A cpu runner holds untrusted native code, which can overwrite everything in its process.  So nothing that a verdict
 * depends on is done there: the judge makes the memory of scratch buffers, fills outputs and scratch with poison while
 * the runner is stopped, and looks at the bytes beside them (a kernel once found the runner's table of buffers, marked
 * its output as read-only, and was poisoned no more).  What stays in the runner is the threads' shared memory and the
 * unmapped pages around each buffer, which turn most overruns into faults.
 */
#pragma once

#include "base/err.h"
#include "judge/run/proto.h"

struct ww_owned_buffer {
	unsigned char *map; /* the judge's mapping of map_bytes; the buffer is `bytes` at offset_bytes in it */
	size_t map_bytes, offset_bytes, bytes;
	uint32_t role, index; /* as in the image */
};
struct ww_owned {
	struct ww_owned_buffer *b;
	int n;
	size_t cap;
	unsigned poisoned; /* how often */
};

/* Map the memory behind fd, which runner and judge share, and fill what is not the buffer with guard bytes.  `role` and
 * `index` are for messages.  fd stays the caller's. */
enum ww_rc ww_owned_map(struct ww_owned *o, const struct ww_run_bind *b, int fd, uint32_t role, uint32_t index,
	struct ww_err *err) WW_MUST_CHECK;
/* New memory for a scratch buffer of `bytes` bytes, which ends less than 256 bytes before a page does: fills *b for the
 * runner and *fd, the caller's, sealed against changes of its size.  WW_ERR_NOMEM: there is not so much. */
enum ww_rc ww_owned_scratch(size_t bytes, struct ww_run_bind *b, int *fd, struct ww_err *err) WW_MUST_CHECK;
/* ww_run_poison() into every buffer, another byte in each call.  The runner must be stopped. */
void ww_owned_poison(struct ww_owned *o);
/* 1, or 0 and one line in `why` (n bytes) where bytes beside a buffer have changed. */
int ww_owned_intact(const struct ww_owned *o, char *why, size_t n);
void ww_owned_release(struct ww_owned *o);
