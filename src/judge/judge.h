/* judge.h - from a task and a solution to a verdict.
 *
 * struct ww_judge owns the workers (builder, compile workers, runners) of one target and device; struct ww_judge_task
 * is one task with its reference worker, references and baselines warm.  ww_judge_run() may be called from several
 * threads at once on one judge: building and compiling run side by side, measuring holds the device's lease (a lock
 * shared with every other judge on the machine) one at a time.
 */
#pragma once

#include "base/err.h"
#include "judge/image.h"

#include <jansson.h>
#include "judge/verdict.h"

struct ww_judge;
struct ww_judge_task;
struct ww_solution;
struct ww_task;     /* src/task/task.h */
struct ww_compiled; /* src/judge/compile/compile.h */

/* When a process may use the device: take() waits until it may, rest() says that it has done so. */
struct ww_judge_use {
	enum ww_rc (*take)(void *ctx, struct ww_err *err);
	void (*rest)(void *ctx);
	void *ctx;
};

/* Stands in the command lines of Python processes that run exported operators: on a GPU they are no strangers (load.c).
 */
#define WW_JUDGE_EXPORTED "warpwright-export"

/* Times the exported operator's call, by events around a call from Python in a fresh process (src/export/call.c, which
 * this module may not include). */
struct ww_judge_caller {
	/* Start the process for a solution that builds: it imports and builds by itself, without the device.  *call is the
	 * caller's to end, NULL after an error. */
	enum ww_rc (*begin)(struct ww_judge_task *t, const struct ww_task *task, const struct ww_solution *s, int device,
		int max, void **call, struct ww_err *err);
	/* At most max times in microseconds, *n made.  use->take() is called when the process is to start the device and to
	 * call the operator once; when it is to time calls; before each of them, with rest() behind it; and then when it
	 * is to go on.  WW_ERR_ROOM: it found too little memory of the device; *gib: GiB that it needs at least, 0 if that
	 * is unknown. */
	enum ww_rc (*time)(void *call, const struct ww_judge_use *use, const volatile int *interrupted, double *us, int max,
		int *n, double *gib, struct ww_err *err);
	void (*end)(void *call); /* NULL is fine */
};

struct ww_judge_opts {
	enum ww_target target;
	int device;  /* cuda ordinal */
	int threads; /* cpu target; 0: all cores of this process's affinity */
	enum ww_rule rule;
	unsigned baselines;              /* bit per enum ww_baseline */
	uint64_t seed;                   /* 0: secret; else the draws can be repeated (tests only, the verdict says so) */
	const struct ww_task *first;     /* cuda: the task that is opened first; its worker imports PyTorch while the judge
	                                  * itself gets ready.  NULL: none; it must live until then */
	double max_run_s;                /* one candidate run, 0: ten times eager + 1 s */
	double max_compile_s;            /* 0: 60 s */
	int open_tasks;                  /* how many tasks will be open at once, for shares of memory; 0: 1 */
	int sanitize;                    /* run what mismatches or crashes once more under compute-sanitizer */
	double max_time_s;               /* timing one solution, 0: 10 s; ten rounds are made in any case */
	double max_repeat_s;             /* repeats of one draw, 0: 2 s; one is made in any case */
	const volatile int *interrupted; /* may be NULL; non-zero ends the call with WW_ERR_INTERRUPTED */
	void (*progress)(void *ctx, const char *stage); /* may be NULL; "importing PyTorch", ... */
	/* Asked when a judgement gets the device; 1 ends that one with WW_ERR_INTERRUPTED.  May be NULL. */
	int (*cancelled)(void *ctx);
	/* Do other processes hold memory of the device?  Asked where it has too little; 1: wait for them.  NULL: on cuda
	 * NVML is asked, on cpu nobody. */
	int (*shared)(void *ctx);
	void *progress_ctx;
	const char *worker;                   /* NULL: bridge/worker.py of this program (tests give others) */
	const struct ww_judge_caller *caller; /* for depth WW_JUDGE_CALL; NULL: call_us stays unknown */
};

/* A solution by content; borrowed.  A plan has its two texts, the accepted PyTorch forms (docs/forms.md) have files. */
struct ww_solution_file {
	const char *path; /* relative, in the form's own layout: "model_new.py", "kernels/relu.cu" */
	const char *text; /* NUL-terminated, no NUL inside */
	size_t bytes;
};
struct ww_solution {
	const char *device_source, *plan_source; /* kernels.cu / kernels.c, plan.c */
	size_t device_bytes, plan_bytes;
	enum ww_form form;
	const struct ww_solution_file *files; /* other forms than the plan; in order of their paths */
	int n_files;
};
enum {
	WW_SOLUTION_MAX_BYTES = 1 << 20, /* each file */
	WW_SOLUTION_MAX_FILES = 256,
	WW_SOLUTION_MAX_TOTAL_BYTES = 8 << 20
};

enum ww_judge_depth {
	WW_JUDGE_COMPILE,  /* build the plan, validate it, compile the device code */
	WW_JUDGE_VERIFY,   /* and check that it is correct */
	WW_JUDGE_SANITIZE, /* the same, and compute-sanitizer's report on what mismatches or crashes (cuda) */
	WW_JUDGE_DECIDE,   /* and time it against the baselines until its reward is certain (timing.c) */
	WW_JUDGE_BRIEF,    /* and time it against the baselines for a few seconds: enough to choose between variants */
	WW_JUDGE_FULL,     /* the same until the intervals are narrow */
	WW_JUDGE_CALL      /* and, on cuda, the time of the exported operator's call: 5 s more, for a closing judgement */
};

/* Start a judge.  WW_ERR_MISSING says what is not installed and the command that installs it. */
enum ww_rc ww_judge_open(struct ww_judge **out, const struct ww_judge_opts *opts, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_close(struct ww_judge *j);

/* Bring a task up: start its reference worker, load it, read its graph.  WW_ERR_TASK: the task cannot be used, and why.
 * Baselines are measured when the first full verdict needs them, and kept. */
enum ww_rc ww_judge_task_open(
	struct ww_judge *j, const struct ww_task *task, struct ww_judge_task **out, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_task_close(struct ww_judge_task *t);
/* The same while other tasks are judged: its worker ends when nothing is measured. */
void ww_judge_task_retire(struct ww_judge_task *t);
/* The worker's graph (docs/formats/bridge.md), borrowed. */
const json_t *ww_judge_task_graph(const struct ww_judge_task *t);
const struct ww_facts *ww_judge_task_facts(const struct ww_judge_task *t);
/* Give back what the task holds on the device, spare runners of its judge too.  The next judgement starts them again,
 * which takes seconds.  Waits for one that is under way. */
void ww_judge_task_rest(struct ww_judge_task *t);
/* Judge by this rule from now on, each time with draws of its own.  Not while a judgement of the task is under way. */
void ww_judge_task_rule(struct ww_judge_task *t, enum ww_rule rule);
/* The device's name for leases and shares (host/lease.h), borrowed. */
const char *ww_judge_task_device(const struct ww_judge_task *t);
/* Its cuda ordinal, as in struct ww_judge_opts. */
int ww_judge_task_ordinal(const struct ww_judge_task *t);

/* A process with an exported operator, which is not the judge's own, has found too little memory of the device
 * (room.c). Zeros before the first attempt. */
struct ww_judge_room {
	int alone;    /* nobody else held memory when the next attempt began */
	double nap_s; /* of the last wait, 0: none yet */
};
/* After an attempt that has failed so and has ended.  1: call ww_judge_room_wait(), then try again.  0: nobody else
 * held memory before the attempt or behind it, or the judge has waited for as long as it may. */
int ww_judge_room_again(struct ww_judge_task *t, struct ww_judge_room *r);
/* Wait where others hold memory.  Hold neither memory, nor a lease, nor a share meanwhile.  gib: GiB that the attempt
 * needs at least, for the progress line; 0: unknown.  WW_ERR_INTERRUPTED. */
enum ww_rc ww_judge_room_wait(
	struct ww_judge_task *t, struct ww_judge_room *r, double gib, struct ww_err *err) WW_MUST_CHECK;

/* Judge one solution.  The verdict is complete whenever WW_OK comes back, whatever the candidate did.  *v must be
 * initialised; the caller releases it. */
enum ww_rc ww_judge_run(struct ww_judge_task *t, const struct ww_solution *s, enum ww_judge_depth depth,
	struct ww_verdict *v, struct ww_err *err) WW_MUST_CHECK;
/* The same with another solution of the task as one more baseline (WW_BASE_SOLUTION), timed beside it by the same
 * means. `baseline` may be NULL.  One that does not build or is not correct is WW_ERR_USAGE, and says why. */
enum ww_rc ww_judge_run_against(struct ww_judge_task *t, const struct ww_solution *s,
	const struct ww_solution *baseline, enum ww_judge_depth depth, struct ww_verdict *v,
	struct ww_err *err) WW_MUST_CHECK;
/* The plan of a solution in printable form; where it does not build, out holds the reason and *ok is 0. */
enum ww_rc ww_judge_show_plan(struct ww_judge_task *t, const struct ww_solution *s, struct ww_str *out, int *ok,
	struct ww_err *err) WW_MUST_CHECK;
/* What exports need: the validated image (malloc'ed) and the compiled device code with its kernel names.  `compiled`
 * must be initialised (ww_compiled_init); the caller releases both.  A solution that does not build is WW_ERR_USAGE
 * with the reason. */
enum ww_rc ww_judge_artifacts(struct ww_judge_task *t, const struct ww_solution *s, struct ww_image **image,
	struct ww_compiled *compiled, struct ww_err *err) WW_MUST_CHECK;
