/* batch.h - `warpwright judge --batch`: the command's part (docs/formats/batch.md). */
#pragma once

#include "base/str.h"
#include "judge/batch.h"

#include <jansson.h>

/* Defaults from the command line; a job may override them. */
struct ww_cmd_batch {
	const char *jobs;          /* a file, or "-" */
	const char *output;        /* NULL: standard output only */
	struct ww_judge_opts opts; /* of a job that names no other; target 0: by the solution */
	enum ww_judge_depth depth;
	int parallel, open_tasks; /* 0: as many as fit */
	int devices[WW_BATCH_MAX_DEVICES], n_devices;
};
/* The process's exit code. */
int ww_cmd_batch_run(const struct ww_cmd_batch *o);

/* ---- One line in (batch_job.c) ----------------------------------------------------------------------------------- */

/* Fill a zeroed job from one line of text.  *id gets the job's id (a new reference; `line` where it has none) also
 * where the rest is bad: WW_ERR_USAGE, and why.  key: hash of everything that the verdict depends on.
 * *again: it is to be judged also where a job of the same content has been. */
enum ww_rc ww_cmd_batch_parse(const struct ww_cmd_batch *o, const char *text, size_t n, int64_t line, json_t **id,
	struct ww_batch_job *job, char key[65], int *again, struct ww_err *err) WW_MUST_CHECK;

/* ---- The results file (batch_results.c) -------------------------------------------------------------------------- */

struct ww_results;
/* Open or make it, for this process alone.  A last line that was cut is removed; lines that are no results are counted
 * in *strange and left.  path NULL: nothing is kept. */
enum ww_rc ww_results_open(
	struct ww_results **out, const char *path, int64_t *strange, struct ww_err *err) WW_MUST_CHECK;
void ww_results_close(struct ww_results *r);
/* The verdict that the file held for this job when it was opened: 1 correct, 0 not correct, -1 none. */
int ww_results_have(const struct ww_results *r, const json_t *id, const char *key);
/* Append one line (without its end); it is on the disk when this returns. */
enum ww_rc ww_results_append(struct ww_results *r, const char *line, size_t n, struct ww_err *err) WW_MUST_CHECK;
