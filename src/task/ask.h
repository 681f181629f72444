/* ask.h - one request to the reference worker, and the worker that answers it.  Internal to src/task. */
#pragma once

#include "task/ref.h"
#include "task/worker.h"

#include <jansson.h>

#define WW_REF_ANSWER "the reference worker's answer" /* in messages about its members */

struct ww_ref {
	struct ww_worker worker;
	struct ww_ref_opts opts;
	char *cache_dir;
	struct ww_ref_info info;
	json_t *hello;
	int armed, go_fd, done_fd;
	int greeting;   /* the answer to hello is outstanding */
	int compiling;  /* that to compile_ahead is */
	int has_uneven; /* -1: not known */
	uint64_t armed_deadline_ns, greeting_deadline_ns, compiling_deadline_ns;
};

/* Send q (consumed; NULL: out of memory) with n descriptors (borrowed), wait for the answer: a new reference in *body.
 * An error that the answer carries comes back as the return codes of ref.h. */
enum ww_rc ww_ref_ask(struct ww_ref *r, json_t *q, const int *fds, int n, double seconds, json_t **body,
	struct ww_err *err) WW_MUST_CHECK;
/* The same with the descriptors that the answer brings, the caller's: ww_ref_drop_fds(). */
enum ww_rc ww_ref_ask_fds(struct ww_ref *r, json_t *q, const int *sent, int n_sent, double seconds, json_t **body,
	int **fds, int *n_fds, struct ww_err *err) WW_MUST_CHECK;
void ww_ref_drop_fds(int **fds, int *n);
/* An answer that was received otherwise: its error, if it is one; else the body stays the caller's. */
enum ww_rc ww_ref_check_answer(struct ww_ref *r, json_t **body, struct ww_err *err) WW_MUST_CHECK;
/* After reading an answer: release it; members that were missing mean that the worker is not ours any more. */
enum ww_rc ww_ref_finish(struct ww_ref *r, json_t *body, enum ww_rc rc, struct ww_err *err) WW_MUST_CHECK;
/* A request that carries a task: its text, name, id, and the files that belong to it; NULL: out of memory. */
json_t *ww_ref_task_request(const char *what_for, const struct ww_task *task);
