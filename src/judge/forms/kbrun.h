/* kbrun.h - a directory of generated kernels as KernelBench writes it, as jobs of a batch.
 *
 *     RUN/level_L_problem_P_sample_S_kernel.py     one solution each
 *     TASKS/levelL/P_NAME.py  or  TASKS/P_NAME.py  the problem it solves
 *
 * Each becomes one line of docs/formats/batch.md with the id "level_L_problem_P_sample_S", in order of L, P and S.  A
 * problem whose task is not there becomes a job that says so. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Does the directory hold such a file? */
int ww_kbrun_is(const char *dir);
/* Append the lines; *n counts them. */
enum ww_rc ww_kbrun_jobs(
	const char *tasks, const char *run, struct ww_str *lines, int *n, struct ww_err *err) WW_MUST_CHECK;
