/* local.h - the files of a task beside its own text: project modules that it imports, and files that it reads by a
 * relative name.  Internal to src/task but for what task.h declares. */
#pragma once

#include "task/task.h"

/* Find the files of a task that was read from t->path: sets roots, files, and the id where there are files. */
enum ww_rc ww_task_find_files(struct ww_task *t, struct ww_err *err) WW_MUST_CHECK;
