/* outline.h - facts that identify a task without running it: the tokens of its text and its ATen graph, traced on
 * tensors without values; on request also whether it runs and depends on its inputs.  Each task in a process of its own
 * within the confined worker, so that a worker serves any number of tasks, hostile ones too. */
#pragma once

#include "base/err.h"
#include "task/ref.h"
#include "task/task.h"

#include <jansson.h>

struct ww_outliner;

struct ww_outline_opts {
	double max_s;       /* a task's time for each of the three parts; 0: 60 s */
	uint64_t max_bytes; /* memory of its own; 0: 4 GiB */
	int graph_only;     /* no tokens */
	const char *trial;  /* "cpu", "cuda": run it as well, there; NULL: do not */
	int device;         /* cuda */
	const char *roots;  /* directories that tasks may import from, ':' between; a task from elsewhere starts
	                     * the worker again with its own.  NULL: none */
	const volatile int *interrupted; /* may be NULL */
};

/* The facts.  A member is NULL where it could not be made; then `..._error` says why in one line. */
struct ww_outline {
	json_t *body; /* owns everything below */
	const char *tokens, *tokens_error;
	const json_t *graph; /* inputs, params, nodes, outputs as in docs/formats/bridge.md, "graph" */
	const char *graph_error;
	const json_t *trial; /* as the answer to "degenerate" */
	const char *trial_error;
};

/* Starts nothing yet. */
enum ww_rc ww_outliner_new(
	struct ww_outliner **out, const struct ww_outline_opts *opts, struct ww_err *err) WW_MUST_CHECK;
void ww_outliner_free(struct ww_outliner *o); /* NULL is fine */
/* The worker's PyTorch and Python (the members python and torch), until the next call; starts it. */
enum ww_rc ww_outliner_info(struct ww_outliner *o, const struct ww_ref_info **out, struct ww_err *err) WW_MUST_CHECK;
/* What the task does is data, never an error: the worker is started again where the task ended it.  Errors: no Python,
 * no PyTorch (WW_ERR_MISSING), a worker that cannot be started, interrupted. */
enum ww_rc ww_outline(struct ww_outliner *o, const struct ww_task *task, int with_trial, struct ww_outline *out,
	struct ww_err *err) WW_MUST_CHECK;
/* The facts in an answer of an earlier worker; takes the body. */
void ww_outline_of(json_t *body, struct ww_outline *out);
void ww_outline_release(struct ww_outline *o);
