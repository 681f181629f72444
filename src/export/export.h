/* export.h - a judged solution as a library or module for other programs.
 *
 * Three forms, one core.  Every export carries the runtime (src/judge/run/exec_*.c and its two headers, byte for byte),
 * the plan image and the binary as data, and the sources: what runs in the user's process is what was judged.
 *
 *     c            a plain C library: NAME.h, NAME.c, a Makefile, an example; no Python, no toolkit
 *     torch        a Python package warpwright_NAME: a torch.library operator (with a fake kernel, so that
 *                  torch.compile can trace it) over the C library, in a module that keeps the original's state_dict and
 *                  falls back to it where the plan does not apply
 *     kernelbench  one file with ModelNew, for KernelBench's own evaluation
 *
 * Rejected: printing the plan as C++ for load_inline (30 s to build, another program than the one judged); pickles.
 */
#pragma once

#include "base/err.h"
#include "judge/judge.h"

enum ww_export_format { WW_EXPORT_C, WW_EXPORT_TORCH, WW_EXPORT_KERNELBENCH, WW_EXPORT_COUNT };
const char *ww_export_format_name(enum ww_export_format f); /* "torch" */
/* WW_ERR_USAGE, naming the formats that exist. */
enum ww_rc ww_export_format_parse(const char *name, enum ww_export_format *out, struct ww_err *err) WW_MUST_CHECK;

struct ww_export_opts {
	struct ww_judge_task *judged; /* the task, open */
	const struct ww_task *task;
	const struct ww_solution *solution;
	const struct ww_verdict *verdict; /* of this solution; its facts go into the README.  May be NULL: "not judged" */
	enum ww_export_format format;
	int weights;                     /* form c: NAME.weights too, the parameters that the module is made with */
	const char *dir;                 /* created; must not exist, or be an earlier export (it is replaced as a whole) */
	const volatile int *interrupted; /* may be NULL */
};
/* Whether an export may stand in `dir`: nothing is there, or an earlier export.  ww_export() asks this too. */
enum ww_rc ww_export_check_dir(const char *dir, struct ww_err *err) WW_MUST_CHECK;
/* Write the export into a directory beside `dir`, run its check in a fresh Python process (torch, kernelbench) or a
 * fresh C program fed by one (c), and only then rename it to `dir`.  WW_ERR_USAGE, with the reason, where the plan
 * cannot have this form.  Before the check the task gives back what it holds on the device (ww_judge_task_rest()); a
 * check that finds too little memory there waits for that of other processes (judge/room.c) and is made again. */
enum ww_rc ww_export(const struct ww_export_opts *o, struct ww_err *err) WW_MUST_CHECK;
/* n exports with their checks in parallel; rc[i] and errs[i] get the result of each. */
void ww_exports(const struct ww_export_opts *o, int n, enum ww_rc *rc, struct ww_err *errs);

/* Start the Python processes of a closing judgement, and with `checks` those of the exports after it, so that they
 * import PyTorch ahead of time (seconds of processor time).  They end with this thread, or by ww_export_ahead_end(). */
void ww_export_ahead(int checks);
void ww_export_ahead_end(void);

/* Times the exported operator's call (form torch) in a fresh, confined Python process, as a caller of PyTorch sees it:
 * events around the call, new inputs and a flushed cache before each. */
extern const struct ww_judge_caller ww_export_caller;
