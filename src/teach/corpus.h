/* corpus.h - a corpus for training a small policy: conversations about the tasks of a set, a line of JSON each.
 *
 * A conversation has the compact prompt's form (agent/compact.h) and ends with a solution of the planner, which is not
 * judged.  A task is traced and its solutions are printed, so no device is needed; facts of the one that the corpus is
 * for are given.  What is drawn about a task depends on the seed and the task alone.
 */
#pragma once

#include "teach/teach.h"

struct ww_corpus_opts {
	const char *set;      /* rows of its split train, or all of a set without splits */
	const char *against;  /* "A:B": sets whose tasks are left out, by signature or text; NULL: none */
	const json_t *device; /* facts, as `inspect --json` prints them under "device"; borrowed */
	struct ww_compact prompt;
	struct ww_teach_forms forms; /* with mended > 0 the judge's builder and compiler are opened */
	const char
		*mistakes;   /* lines {"task_id", "text"}: answers of a policy, taken as mistakes where they do not build */
	int64_t longest; /* bytes, as in struct ww_teacher */
	int solutions;   /* conversations about a task, at most WW_TEACH_SOLUTIONS */
	uint64_t seed;
	int jobs;     /* threads, each with a worker; 0: one for each processor */
	double max_s; /* a task's time for its graph */
	/* The step under way.  From any thread; may be NULL. */
	void (*progress)(void *context, const char *stage);
	void *context;
	const volatile int *interrupted; /* not NULL */
};

/* What became of a row. */
enum ww_corpus_row {
	WW_CORPUS_WRITTEN,
	WW_CORPUS_BROKEN,
	WW_CORPUS_NO_GRAPH,
	WW_CORPUS_HELD_OUT,
	WW_CORPUS_NO_SOLUTION,
	WW_CORPUS_TOO_LONG,
	WW_CORPUS_ROWS
};
struct ww_corpus_counts {
	int64_t rows[WW_CORPUS_ROWS], conversations;
};

/* Write the corpus to path; where it fails no file is left.  Errors: a set that cannot be opened, no Python, no
 * PyTorch, a file that cannot be written, interrupted. */
enum ww_rc ww_corpus_write(const char *path, const struct ww_corpus_opts *o, struct ww_corpus_counts *counts,
	struct ww_err *err) WW_MUST_CHECK;
