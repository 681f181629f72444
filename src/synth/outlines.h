/* outlines.h - outlines of tasks (task/outline.h) with a cache, for src/synth and src/teach.
 *
 * An outline is a function of the task's text, of PyTorch and of the bridge, and takes 0.3 to 20 s to make.  The store
 * keeps it by these three, so that the sets that tasks are compared with are traced once, not once a run.
 */
#pragma once

#include "store/store.h"
#include "task/outline.h"

/* ww_outline() without a trial, from the store where it is there; one without tokens or graph is not kept, since the
 * machine may have caused that (a time limit, no memory).  s may be NULL. */
enum ww_rc ww_synth_outline(struct ww_store *s, struct ww_outliner *worker, const struct ww_task *task,
	struct ww_outline *out, struct ww_err *err) WW_MUST_CHECK;
/* The same of the graph alone, by a worker with opts.graph_only: half of the time. */
enum ww_rc ww_synth_graph(struct ww_store *s, struct ww_outliner *worker, const struct ww_task *task,
	struct ww_outline *out, struct ww_err *err) WW_MUST_CHECK;
