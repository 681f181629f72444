/* lent.h - cuda: the pieces of a candidate's device memory that it has lent to the judge.
 *
 * As on the cpu (outputs.h), a call's outputs stay where forward() has put them, and the reference worker reads them
 * from there when the clock has stopped.  Another process can map device memory only by descriptors, which its owner
 * exports, so the harness does that within the call, once for each piece of its allocator's memory.
 *
 *     places = for each output: its address, 0 where it lies in the judge's own buffer | its strides, in elements
 *              for each descriptor that comes with them: the address and the bytes of its piece                  */
#pragma once

#include "base/err.h"
#include <ww/plan.h>

#include <jansson.h>

struct ww_piece {
	int64_t address, bytes;
	int fd;
};
struct ww_lent {
	struct ww_piece *pieces;
	int n;
	size_t cap;
};

/* What a call has said of its outputs. */
struct ww_lent_said {
	const struct ww_tensor *outputs;
	int n_outputs;
	const int64_t *places;
	int n_places;
	int *fds; /* those that were taken over become -1 */
	int n_fds;
};

/* Where they lie. */
struct ww_lent_where {
	int *use, max_use; /* room for descriptors, the caller's */
	int n_use;         /* descriptors of `lent`, which stay the table's */
	json_t *lent; /* of the reference worker's request `keep`, a new reference; NULL: what was said makes no sense */
};

enum ww_rc ww_lent_places(
	struct ww_lent *l, const struct ww_lent_said *said, struct ww_lent_where *where, struct ww_err *err) WW_MUST_CHECK;
void ww_lent_release(struct ww_lent *l);
