/* task.h - a task file: a PyTorch module in KernelBench form, as text, and the files beside it that the text names.
 *
 * Nothing here runs Python: the file is read once, bounded, checked to be text, and named by the hash of its bytes and
 * of its files'. What it means is the reference worker's to say (ref.h).
 */
#pragma once

#include "base/err.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

enum { WW_TASK_MAX_BYTES = 1 << 20 };

/* A file that the task imports or reads (local.c). */
struct ww_task_file {
	char *name; /* relative to its root */
	char *path; /* absolute */
	uint64_t bytes;
	char hash[WW_HASH_HEX];
	int module; /* Python that is imported */
};

struct ww_task {
	char *path;   /* as given, "SET#ID" too; "" for a task made from text */
	char *name;   /* file name without directory and ".py" */
	char *source; /* NUL-terminated UTF-8 without NUL inside */
	size_t source_bytes;
	char *roots; /* where its own modules and files are: its folder, then PYTHONPATH's directories, absolute,
	              * ':' between; "" for a task made from text */
	struct ww_task_file *files; /* that its text names, by name */
	int n_files;
	char id[WW_HASH_HEX]; /* content hash of the source, and of the files where there are any */
};

/* Read a task file, or with "SET#ID" a row of a task set (set.h).  Missing, empty, larger than WW_TASK_MAX_BYTES, a
 * directory or not text: WW_ERR_USAGE with one line. */
enum ww_rc ww_task_load(struct ww_task *t, const char *path, struct ww_err *err) WW_MUST_CHECK;
/* The same from memory (suites, synthesised tasks); `name` is what messages call it. */
enum ww_rc ww_task_from_text(
	struct ww_task *t, const char *name, const char *source, size_t bytes, struct ww_err *err) WW_MUST_CHECK;
/* A copy with its own memory; its path is "". */
enum ww_rc ww_task_copy(struct ww_task *to, const struct ww_task *from, struct ww_err *err) WW_MUST_CHECK;
/* Copy the task's files (not its source) below dir, which is made. */
enum ww_rc ww_task_write_files(const struct ww_task *t, const char *dir, struct ww_err *err) WW_MUST_CHECK;
/* Safe on a zeroed struct. */
void ww_task_release(struct ww_task *t);
