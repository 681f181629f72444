/* held_out.h - tasks that must not be trained on.  A task is held out if its ww_task_signature() or its text equals
 * that of a row in a held-out set. */
#pragma once

#include "base/err.h"

#include <stddef.h>

struct ww_held_out;

/* Read sets (task/set.h), separated by commas: every row, or of a set with a column `split` those of other splits than
 * "train".  A row's recorded signature is taken; one without costs a confined process about 0.1 s. */
enum ww_rc ww_held_out_open(
	struct ww_held_out **out, const char *sets, const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
void ww_held_out_free(struct ww_held_out *h); /* NULL is fine */

size_t ww_held_out_count(const struct ww_held_out *h);
/* "SET#ID" of the held-out task with this signature or this content hash (NULL: unknown), borrowed; NULL: none. */
const char *ww_held_out_find(const struct ww_held_out *h, const char *signature, const char *task_id);

/* WW_ERR_USAGE where one of these tasks to train on, named as ww_task_load() takes them, is held out: one line with the
 * number of such tasks, the names of some, and the held-out task that the first one equals.  A row's recorded signature
 * is taken. */
enum ww_rc ww_held_out_check(const struct ww_held_out *h, char *const *tasks, size_t n, const volatile int *interrupted,
	struct ww_err *err) WW_MUST_CHECK;
