/* tracer.h - marks of candidates before a device is asked for them.  Internal to src/synth.
 *
 * A mark (mark.h) needs a task's text and graph, and the graph can be made on tensors without values, on a processor
 * alone (bridge/wwbridge/outline.py).  So what resembles an accepted task, a third of a large set's candidates and more
 * with each task, takes neither room on a device nor its time.  A few workers serve all threads.  They are started, and
 * not forked from the one that has a device: PyTorch that sees a GPU asks it for things while it traces. */
#pragma once

#include "task/outline.h"

#include <pthread.h>

enum { WW_SYNTH_TRACERS = 8 };
struct ww_synth_tracers {
	pthread_mutex_t lock; /* of busy */
	pthread_cond_t freed;
	int busy[WW_SYNTH_TRACERS];
	struct ww_outliner *workers[WW_SYNTH_TRACERS]; /* NULL: not needed so far */
};
#define WW_SYNTH_TRACERS_INIT { .lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER }
void ww_synth_tracers_close(struct ww_synth_tracers *t);

/* *mark: a new reference; NULL where the task has no such graph, and why says so in size bytes.
 * Called by several threads at a time. */
enum ww_rc ww_synth_trace(struct ww_synth_tracers *t, const struct ww_task *task, double max_s,
	const volatile int *interrupted, json_t **mark, char *why, size_t size, struct ww_err *err) WW_MUST_CHECK;
