/* set.h - task sets: many tasks in one file, or in one directory.
 *
 *     JSON lines      one object a line; as it is or compressed (zstd), told apart by the first bytes
 *     Parquet         read by pyarrow in a confined process (bridge.md, "set")
 *     a directory     its .py files, and those of its directories; levelN/M_name.py is KernelBench's layout
 *
 * docs/formats/tasks.md says what a row holds.  A set is read from its beginning to its end and holds one row at a
 * time (of Parquet one batch), so its size does not matter.
 *
 * "FILE#ID" names one task wherever a task file does: ww_task_load() reads it.
 */
#pragma once

#include "base/err.h"
#include "task/task.h"

#include <jansson.h>
#include <stdint.h>

enum { WW_SET_MAX_LINE = 16 << 20, WW_SET_MAX_ID = 200 };

struct ww_set;

struct ww_set_opts {
	int keep_broken;                 /* return a row that is no task, with `problem`, instead of failing */
	const volatile int *interrupted; /* may be NULL */
};

/* A row.  Texts and JSON are borrowed from the set and hold until the next call on it. */
struct ww_set_row {
	int64_t number;      /* from 1, in the order of the file; of JSON lines the line */
	const char *id;      /* of a row that names none: its number */
	const char *code;    /* NULL only with `problem` */
	const char *path;    /* the .py file in a directory; else NULL */
	const char *problem; /* one line that says why this is no task; NULL: it is one */
	size_t code_bytes;
	int level;            /* KernelBench's; 0: none */
	const json_t *ops;    /* array of strings; NULL: the row names none */
	const json_t *fields; /* all columns by their names, ops as an array; docs/formats/tasks.md */
};

/* Open a file, a directory or, by its name, a set that comes with the program (shipped.h).  A file that is no set:
 * WW_ERR_USAGE; Parquet without pyarrow: WW_ERR_MISSING, which names the pip package. */
enum ww_rc ww_set_open(
	struct ww_set **out, const char *path, const struct ww_set_opts *opts, struct ww_err *err) WW_MUST_CHECK;
/* The next row into *row; *row NULL at the end.  Errors name file and row.  After a row that is no task (WW_ERR_USAGE,
 * without keep_broken) the next call goes on behind it; every other error is the set's end. */
enum ww_rc ww_set_next(struct ww_set *s, const struct ww_set_row **row, struct ww_err *err) WW_MUST_CHECK;
/* Skip to the first row with this id; where no row has it and it is a number, the row of that number, if it lies ahead.
 * Not there: WW_ERR_USAGE.  From the beginning: on a set just opened. */
enum ww_rc ww_set_find(
	struct ww_set *s, const char *id, const struct ww_set_row **row, struct ww_err *err) WW_MUST_CHECK;
void ww_set_close(struct ww_set *s); /* NULL is fine */

/* The row's task: text, or in a directory the file with what it imports.  Its path is "SET#ID". */
enum ww_rc ww_set_task(
	const struct ww_set *s, const struct ww_set_row *row, struct ww_task *out, struct ww_err *err) WW_MUST_CHECK;
/* "SET#ID" into its parts, if it is no file itself and SET is there or comes with the program: set (PATH_MAX bytes) and
 * where the id begins; NULL where `path` names no task of a set. */
const char *ww_set_split(const char *path, char *set);
/* Where tasks of a set may import from: the directory that it is, in `real` (PATH_MAX bytes); NULL of a file. */
const char *ww_set_folder(const char *path, char *real);

/* ---- Writing: by the end of the name ".jsonl", ".jsonl.zst" or ".parquet"; another one is WW_ERR_USAGE */

struct ww_set_writer;

/* What is written appears under its name only when the writer is closed with keep = 1. */
enum ww_rc ww_set_create(struct ww_set_writer **out, const char *path, struct ww_err *err) WW_MUST_CHECK;
/* Append one row.  `fields` (borrowed) has at least "id" and "code". */
enum ww_rc ww_set_add(struct ww_set_writer *w, const json_t *fields, struct ww_err *err) WW_MUST_CHECK;
/* Parquet is made here: WW_ERR_MISSING without pyarrow.  keep = 0 throws everything away and never fails.  w is gone
 * either way; NULL is fine. */
enum ww_rc ww_set_finish(struct ww_set_writer *w, int keep, struct ww_err *err) WW_MUST_CHECK;
