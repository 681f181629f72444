/* set_pass.h - every row of a task set, several at a time, each thread with a confined worker for outlines. */
#pragma once

#include "task/outline.h"
#include "task/set.h"

/* A row with memory of its own. */
struct ww_pass_row {
	int64_t number; /* as in struct ww_set_row */
	int64_t at;     /* counts the rows of the pass from 0 */
	char *id;       /* NULL only where the set is damaged */
	/* rc is not WW_OK: why it is no task that can be read; then nothing below is there. */
	struct ww_err broken;
	struct ww_task task;
	json_t *fields; /* all columns, as in struct ww_set_row */
};

enum { WW_PASS_MAX_JOBS = 256 };
struct ww_set_pass {
	const char *path;
	int jobs;                      /* threads, WW_PASS_MAX_JOBS at most; 0: one for each processor */
	struct ww_outline_opts worker; /* of each thread; roots is set here */
	int keep_damaged;              /* data that cannot be read on is a broken row and the end, instead of an error */
	/* Is the row one of the pass?  By one thread at a time.  NULL: every row is. */
	int (*wanted)(const struct ww_set_row *row);
	/* Called for each row, by several threads at once. */
	enum ww_rc (*row)(void *context, struct ww_outliner *worker, const struct ww_pass_row *row, struct ww_err *err);
	void *context;
};

/* Returns when all rows are done.  The first error, of row() too, ends it behind the rows that have begun. */
enum ww_rc ww_set_pass(const struct ww_set_pass *pass, struct ww_err *err) WW_MUST_CHECK;
