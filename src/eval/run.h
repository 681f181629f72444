/* run.h - the directory of an evaluation.
 *
 *     run.json        what was asked, of what, on which machine (docs/formats/eval.md)
 *     results.jsonl   a line for each problem that has ended, and lines with members added to it later
 *     problems/ID/    what `optimize` would leave: episode.jsonl, workspace/, solution/, verdict.json
 *
 * A problem has ended when its line is on the disk; the same command goes on with those that have none.  The lines hold
 * the solutions' texts too, so summary, report and merge need no other file. */
#pragma once

#include "base/err.h"
#include "base/lines.h"

#include <jansson.h>
#include <limits.h>

struct ww_eval_run {
	char path[PATH_MAX];
	json_t *about;         /* run.json */
	json_t *lines;         /* id: line */
	struct ww_lines *file; /* results.jsonl, open for writing; NULL: read only */
	int made;              /* this process has made run.json */
};

/* Whether the directory holds an evaluation. */
int ww_eval_run_is(const char *dir);
/* Begin a run, or go on with the one that is there: then it must have been asked for the same ("config" of `about`),
 * and the error names the first difference.  about is borrowed.  A directory that holds something else is refused. */
enum ww_rc ww_eval_run_open(
	struct ww_eval_run *r, const char *dir, const json_t *about, struct ww_err *err) WW_MUST_CHECK;
/* Read a run, without writing to it. */
enum ww_rc ww_eval_run_read(struct ww_eval_run *r, const char *dir, struct ww_err *err) WW_MUST_CHECK;
void ww_eval_run_release(struct ww_eval_run *r);

/* The line of a problem, borrowed, with what was added later; NULL: it has none. */
const json_t *ww_eval_run_line(const struct ww_eval_run *r, const char *id);
/* 1 where the problem has ended: it has a line for this task that reports no error of the program. */
int ww_eval_run_has(const struct ww_eval_run *r, const char *id, const char *task_id);
/* Write a line and keep it; where its id has a line already, its members are added to that.  Takes `line`. */
enum ww_rc ww_eval_run_add(struct ww_eval_run *r, json_t *line, struct ww_err *err) WW_MUST_CHECK;

/* Several runs as one: slices or samples of one suite, by the same policy and options, on the same kind of machine.
 * WW_ERR_USAGE says what differs.  A problem that several have is taken from the first. */
enum ww_rc ww_eval_merge(const char *const *runs, int n, const char *to, struct ww_err *err) WW_MUST_CHECK;
