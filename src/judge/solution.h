/* solution.h - a solution's files: kernels.cu or kernels.c, and plan.c. */
#ifndef WW_JUDGE_SOLUTION_H
#define WW_JUDGE_SOLUTION_H

#include "judge/judge.h"

struct ww_solution_files {
	enum ww_target target;		/* by which kernels.* there is */
	struct ww_solution solution;	/* points into the two strings */
	struct ww_str device, plan;
};

/* Read a solution directory.  Only plain files of at most WW_SOLUTION_MAX_BYTES are taken.  want: the target that is asked
 * for, or 0: the one that is there; with both kernels.cu and kernels.c and want = 0, cuda.  What is missing or too large is
 * WW_ERR_USAGE and says so.  Release it also after an error. */
enum ww_rc ww_solution_load(struct ww_solution_files *f, const char *dir, enum ww_target want, struct ww_err *err) WW_MUST_CHECK;
void ww_solution_files_release(struct ww_solution_files *f);
/* Content hash of the two files: 64 digits and a NUL. */
void ww_solution_id(const struct ww_solution *s, char out[65]);
/* "kernels.cu" or "kernels.c". */
const char *ww_solution_device_file(enum ww_target target);

#endif
