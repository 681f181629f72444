/* check.h - one module through the filters.  Internal to src/synth.
 *
 * A checker is a thread's reference worker, opened when it is first needed, closed when a task has broken it and after
 * every RECYCLE tasks.  The device is used by one checker at a time, under its lease; compiling goes on beside.
 */
#pragma once

#include "host/lease.h"
#include "synth/synth.h"
#include "task/ref.h"

#include <jansson.h>

struct ww_synth_check_opts {
	const struct ww_synth_recipe *recipe;
	int device, threads, distrust; /* distrust: modules are a stranger's, so each has a worker of its own */
	const volatile int *interrupted;
};

struct ww_synth_checker {
	struct ww_synth_check_opts o;
	struct ww_ref *ref;
	int used;
};

/* What became of a module. */
struct ww_synth_result {
	char reason[64];  /* "": it passed */
	char detail[400]; /* of a rejection */
	json_t *row;      /* columns of a task set: ops, shapes, times; NULL where it did not pass */
	json_t *graph;
	char *tokens;    /* of its text (task/outline.h) */
	double eager_us; /* where it was measured */
};
void ww_synth_result_release(struct ww_synth_result *r);
enum ww_rc ww_synth_reject(struct ww_synth_result *r, const char *reason, const char *detail); /* WW_OK */

/* All filters that look at one module alone.  times: the recorded ones, or NULL: measure.  An error is ours (no worker
 * can be started, interrupted); whatever the module does is in the result. */
enum ww_rc ww_synth_check(struct ww_synth_checker *c, const char *source, size_t n, uint64_t seed, const json_t *times,
	struct ww_synth_result *out, struct ww_err *err) WW_MUST_CHECK;
void ww_synth_checker_close(struct ww_synth_checker *c);
