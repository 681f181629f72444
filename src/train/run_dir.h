/* run_dir.h - the directory of a training run, whatever its stage: locked by one process, described once, logged.
 *
 *     RUN/run.json     the recipe, the arithmetic, and what the stage adds
 *     RUN/log.jsonl    one object a step (docs/formats/train.md)
 */
#pragma once

#include "dev/dev.h"

#include <jansson.h>

struct ww_run_dir {
	const char *path; /* borrowed */
	char *log_path;
	int lock_fd, log_fd;
};
#define WW_RUN_DIR_INIT ((struct ww_run_dir){ .lock_fd = -1, .log_fd = -1 })

/* Make the directory where it is missing, and lock it. */
enum ww_rc ww_run_dir_open(struct ww_run_dir *r, const char *path, struct ww_err *err) WW_MUST_CHECK;
void ww_run_dir_close(struct ww_run_dir *r);
/* Write run.json; where an earlier process has, compare: recipe (values), data ("data"."hash" of `own`) and
 * arithmetic must be what they were, but for keys that touch no weight.  own: the stage's members. */
enum ww_rc ww_run_dir_describe(struct ww_run_dir *r, const json_t *values, const struct ww_dev *dev,
	int other_arithmetic, json_t *own, struct ww_err *err) WW_MUST_CHECK;
/* Open the log and cut it back to the bytes that a checkpoint counts. */
enum ww_rc ww_run_dir_open_log(struct ww_run_dir *r, int64_t bytes, struct ww_err *err) WW_MUST_CHECK;
/* Append a line; *bytes grows by its length. */
enum ww_rc ww_run_dir_log(struct ww_run_dir *r, const json_t *line, int64_t *bytes, struct ww_err *err) WW_MUST_CHECK;
/* The log is on the disk when this returns. */
enum ww_rc ww_run_dir_sync(struct ww_run_dir *r, struct ww_err *err) WW_MUST_CHECK;
