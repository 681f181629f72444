/* set_files.h - a directory as a task set.  Internal to src/task.
 *
 * Every .py file below it that defines Model or get_inputs is a task; others are modules that tasks import.  An id is
 * the file's path below the directory without ".py".  KernelBench's layout, levelN/M_name.py (also below a directory
 * KernelBench), gives rows a level and a problem number and is ordered by them; everything else is ordered by path. */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct ww_set_file {
	char *path;
	const char *rel; /* below the directory; part of path */
	int level, problem;
};

struct ww_set_files {
	struct ww_set_file *f;
	size_t n, cap, at;
	int64_t given;
};

/* An unreadable directory: WW_ERR_USAGE, as is one without any .py file. */
enum ww_rc ww_set_files_init(struct ww_set_files *d, const char *dir, struct ww_err *err) WW_MUST_CHECK;
/* The next task as columns (a new reference; NULL at the end), its number from 1, its file's path (borrowed). */
enum ww_rc ww_set_files_next(
	struct ww_set_files *d, json_t **fields, int64_t *number, const char **path, struct ww_err *err) WW_MUST_CHECK;
void ww_set_files_release(struct ww_set_files *d);
