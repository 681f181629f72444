/* rundir.h - the output directory of `optimize`.
 *
 *     task.py          copy of the task
 *     episode.jsonl    the record (docs/formats/episode.md)
 *     workspace/       what the policy wrote last
 *     solution/        kernels.* and plan.c of the best solution
 *     verdict.json     what the judge said about it
 *     explain.json     where the time goes (judge/profile/explain.h): with --explain, or slower than eager
 *     report.html      the run as a page
 *     exports/FORMAT/  one folder a format
 *     episodes/N/      one folder an episode where several run in parallel: its record and workspace
 *
 * A directory belongs to one run.  One that holds anything else is refused, so no file of the user's is overwritten.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "episode/episode.h"
#include "task/task.h"

#include <limits.h>

struct ww_rundir {
	char path[PATH_MAX], episode[PATH_MAX], solution[PATH_MAX], exports[PATH_MAX];
	int made, made_copy; /* by this process: the directory, task.py in it */
	int has_past;
	struct ww_episode past; /* where has_past: the record that was there, of several episodes the first */
};

/* `dir` NULL: runs/NAME-TARGET-TIME.  parallel: how many episodes run in parallel; `episode` is the path of the first.
 * Makes the directory, checks that it is empty or holds a run of this task (by this policy, if it has not ended), and
 * writes task.py, so that a directory that cannot be written is known before any work begins. */
enum ww_rc ww_rundir_open(struct ww_rundir *d, const char *dir, const struct ww_task *task, const char *target,
	const char *policy, int parallel, struct ww_err *err) WW_MUST_CHECK;
/* The run did not begin: remove what ww_rundir_open() made. */
void ww_rundir_undo(struct ww_rundir *d);
void ww_rundir_release(struct ww_rundir *d);

/* Whether a directory holds the record of a run. */
int ww_rundir_is_one(const char *dir);
/* Append the run's page, made from its records, verdict.json and task.py. */
enum ww_rc ww_rundir_html(const char *dir, struct ww_str *html, struct ww_err *err) WW_MUST_CHECK;
/* Write that page to report.html in the directory. */
enum ww_rc ww_rundir_write_report(const char *dir, struct ww_err *err) WW_MUST_CHECK;
/* The command line of this process for the record's header, an array of strings; a new reference. */
json_t *ww_rundir_command(void);
