/* ask.h - one request to the reference worker, for the parts of ref.h that lie outside ref.c.  Internal to src/task. */
#pragma once

#include "task/ref.h"

/* Send q (consumed; NULL: out of memory) with n descriptors (borrowed), wait for the answer: a new reference in *body.
 * An error that the answer carries comes back as the return codes of ref.h. */
enum ww_rc ww_ref_ask(struct ww_ref *r, json_t *q, const int *fds, int n, double seconds, json_t **body,
	struct ww_err *err) WW_MUST_CHECK;
/* A request that carries a task: its text, name, id, and the files that belong to it; NULL: out of memory. */
json_t *ww_ref_task_request(const char *what_for, const struct ww_task *task);
