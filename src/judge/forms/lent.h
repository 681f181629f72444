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

/* What a call of n outputs has said.  Takes the descriptors over: fds[i] becomes -1.  Then *where becomes the member
 * `lent` of the reference worker's request `keep`, a new reference, with *n_use descriptors in use[] (max_use at most),
 * which stay the table's.  *where is NULL where what was said makes no sense. */
enum ww_rc ww_lent_places(struct ww_lent *l, const int64_t *places, int n_places, int *fds, int n_fds,
	const struct ww_tensor *out, int n, json_t **where, int *use, int max_use, int *n_use,
	struct ww_err *err) WW_MUST_CHECK;
void ww_lent_release(struct ww_lent *l);
