/* suite.h - the problems that `eval` runs: which tasks, in which order, which part of them.
 *
 *     DIR, FILE         a task set (task/set.h): a directory of tasks, JSON lines, Parquet
 *     FILE.py, SET#ID   one problem
 *     NAME              a set that comes with the program (task/shipped.h)
 *
 * KernelBench's levels are known by their layout, levelN/P_NAME.py: DIR is such a levelN, or they are anywhere in DIR.
 *
 * A directory's problems are in the order of the levels, then of the numbers that names begin with, then of the names;
 * a file's in its own. */
#pragma once

#include "base/err.h"
#include "base/hash.h"
#include "task/task.h"

#include <stddef.h>
#include <stdint.h>

struct ww_problem {
	char *id;  /* "level1/23_Softmax", "softmax" */
	int level; /* 0: the suite has no levels */
	struct ww_task task;
};
struct ww_suite {
	char *name; /* as given */
	struct ww_problem *problems;
	size_t n, cap;
	char hash[WW_HASH_HEX]; /* of all ids and tasks, before a part was taken */
};

/* level: of KernelBench's layout, 0: all; split: its rows alone, NULL: all.  An unknown name is WW_ERR_USAGE and lists
 * those that there are; so is a directory without a problem, and a problem that is no text. */
enum ww_rc ww_suite_open(
	struct ww_suite *s, const char *which, int level, const char *split, struct ww_err *err) WW_MUST_CHECK;
void ww_suite_release(struct ww_suite *s);

/* Keep each n-th problem from the i-th on (1 <= i <= n): all slices of a suite are about as long and as hard. */
enum ww_rc ww_suite_slice(struct ww_suite *s, int i, int n, struct ww_err *err) WW_MUST_CHECK;
/* Keep n problems in the order in which the seed draws them: the first of them are a random sample too, and that of a
 * smaller n. */
void ww_suite_sample(struct ww_suite *s, size_t n, uint64_t seed);

enum { WW_PROBLEM_DIR = 240 };
/* The folder of a problem below a run's problems/: its id, if that is a plain path, else its task's hash. */
void ww_problem_dir(const struct ww_problem *p, char out[WW_PROBLEM_DIR]);
/* "23" of level 1 and "23_Softmax": the number that a name begins with, -1 where it begins with none. */
int ww_problem_number(const struct ww_problem *p);
/* Find a given solution of a problem (--solutions DIR): a path that ww_solution_load() takes.  Searched in DIR, in this
 * order: ours (DIR/problems/ID/solution, ID/solution, ID, ID.py); KernelBench's (level_L_problem_P_sample_S_kernel.py,
 * the lowest S); a directory or file of the problem's number below a folder of its level (levelL/P, levelL/P_*).  0:
 * none. */
int ww_suite_solution(const char *dir, const struct ww_problem *p, char *path);
