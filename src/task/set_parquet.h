/* set_parquet.h - Parquet, read and written by pyarrow in a confined process that gets the open files and nothing else
 * of the user's.  Internal to src/task. */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct ww_set_parquet;

/* Takes fd.  No pyarrow: WW_ERR_MISSING, naming the pip package; no Parquet, or no column "code": WW_ERR_USAGE. */
enum ww_rc ww_set_parquet_open(struct ww_set_parquet **out, const char *path, int fd, const volatile int *interrupted,
	struct ww_err *err) WW_MUST_CHECK;
/* The next row's columns (a new reference; NULL at the end) and its number from 1. */
enum ww_rc ww_set_parquet_next(
	struct ww_set_parquet *p, json_t **fields, int64_t *number, struct ww_err *err) WW_MUST_CHECK;
/* A file of JSON lines as Parquet into another, empty one; both descriptors are the caller's.  path: for errors. */
enum ww_rc ww_set_parquet_write(int lines, int fd, const char *path, struct ww_err *err) WW_MUST_CHECK;
void ww_set_parquet_close(struct ww_set_parquet *p); /* NULL is fine */
