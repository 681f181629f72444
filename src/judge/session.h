/* session.h - one judgement in progress: a candidate that is loaded, called on draws, and compared. */
#pragma once

#include "judge/internal.h"
#include "judge/pytorch.h"

/* What holds a candidate and calls it: a runner with a plan (session.c), or a process of another form.  Each function
 * is its namesake of run/client.h, with `self` in the runner's place; what the candidate does wrong is in *res. */
struct ww_candidate_ops {
	enum ww_rc (*prepare)(void *self, unsigned flags, struct ww_run_result *res, struct ww_err *err);
	enum ww_rc (*go)(void *self, double limit_s, struct ww_run_result *res, struct ww_err *err);
	enum ww_rc (*guards)(void *self, struct ww_run_result *res, struct ww_err *err);
	pid_t (*pid)(const void *self);
	void (*close)(void *self);
	int by_clock; /* cuda: *res has no device_us; elapsed_ns is compared with whole calls of the baselines */
};

/* One judgement in progress: the candidate is loaded, and the task's buffers are bound to it. */
struct ww_session {
	struct ww_judge_task *t;
	const struct ww_candidate_ops *ops;
	void *candidate;          /* the ops' self; the runner where it is a plan */
	struct ww_runner *runner; /* NULL where it is no plan */
	const struct ww_image *image;
	const struct ww_compiled *binary;
	struct ww_verdict *v;
	struct ww_str diag;
	double limit_s;                  /* of one run */
	int calls, contradicted;         /* timed calls; those whose events the host's clock contradicts (ww_run_result) */
	struct ww_recent used_s;         /* cpu: processor time of the timed calls */
	struct ww_seen_calls timed, all; /* cpu: whose code computed in timed calls, and in all */
	double waited_us;                /* cpu: microseconds that the candidate waited for processors in its last call */
	double witness_us;      /* cuda: the last timed call by a second clock, the stamps (run/clocks.h); NAN: none */
	int flush;              /* cpu: the next call starts with cold caches */
	int warm;               /* the next call is made before rounds count */
	int brief;              /* time it for a few seconds only */
	double wrong, compared; /* of the outputs last compared: elements beyond the elementwise limit, and all elements */
	int decide;             /* time it only until its reward is certain */
	int failed;             /* v->status says how; nothing more is done */
	struct ww_session *baseline; /* another solution, timed as the baseline WW_BASE_SOLUTION; NULL: none */
};

/* cuda: scratch of the plan in memory of PyTorch's process, for ww_session_load().  The session owns it. */
struct ww_lent_scratch {
	struct ww_run_bind bind;
	int fd;
};

/* session.c: take a runner and load the plan of s->image into it; give it back. */
enum ww_rc ww_session_open(struct ww_session *s, const struct ww_compiled *binary, struct ww_err *err) WW_MUST_CHECK;
void ww_session_close(struct ww_session *s);
/* Put a plan into a runner and bind the task's buffers to it, and on cuda the scratch that PyTorch's process lends. */
enum ww_rc ww_session_load(const struct ww_judge_task *t, struct ww_runner *r, const struct ww_image *image,
	const struct ww_compiled *binary, const struct ww_lent_scratch *lent, int n_lent, struct ww_run_result *res,
	struct ww_err *err) WW_MUST_CHECK;

/* session_calls.c */
/* Poison outputs and scratch (enum ww_run_prepare), then run once.  A result other than OK goes into the verdict and
 * sets s->failed.  Where a call is timed, the inputs are drawn between the two: what a cpu runner can see before its
 * clock starts, it can work on before its clock starts. */
enum ww_rc ww_session_prepare(struct ww_session *s, unsigned prepare, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_session_go(struct ww_session *s, struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* Prepare and run, for calls that are not timed. */
enum ww_rc ww_session_run(
	struct ww_session *s, unsigned prepare, struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* cuda: the runner repeats the current draw; with q->n = 0 it only computes digests of the outputs. */
enum ww_rc ww_session_repeat(
	struct ww_session *s, const struct ww_run_repeat *q, struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* cpu: call before a timed call of either side.  Flushes the caches and waits until PyTorch's threads sleep, which spin
 * for milliseconds after the reference worker's last computation. */
void ww_session_flush(struct ww_judge_task *t);
void ww_session_fail(struct ww_session *s, enum ww_status status, const char *fmt, ...) WW_PRINTF(3, 4);
/* Put a failed run into the verdict: its status, and a diagnostic that names `stage`. */
void ww_session_fail_run(struct ww_session *s, const struct ww_run_result *res, const char *stage);

/* How a draw differs from the task's own: inputs are multiplied by scale, then shift is added. */
struct ww_variant {
	double scale, shift;
	enum ww_ref_params params;
	const char *name; /* in diagnostics */
};

/* session_draws.c: a secret seed, or the next of the stream of a public one. */
uint64_t ww_session_seed(struct ww_judge_task *t);
/* A draw that a candidate's outputs may be compared on; it may come from the task's pool. */
enum ww_rc ww_session_draw(
	struct ww_judge_task *t, double scale, double shift, enum ww_ref_params params, struct ww_err *err) WW_MUST_CHECK;
/* A draw on which nothing will be compared: always new. */
enum ww_rc ww_session_draw_unchecked(
	struct ww_judge_task *t, enum ww_ref_params params, struct ww_err *err) WW_MUST_CHECK;
/* References of the current draw, then compare the outputs; a mismatch goes into the verdict and sets s->failed. `when`
 * names the draw in diagnostics.  With `finite`, references that are not finite are not compared with and set it to 0.
 */
enum ww_rc ww_session_check(struct ww_session *s, const char *when, int *finite, struct ww_err *err) WW_MUST_CHECK;
/* The same; if the outputs are right, the same request to the reference worker makes the next draw, as
 * ww_session_draw() would.  *drawn: 1 if it was made. */
enum ww_rc ww_session_check_draw(struct ww_session *s, const char *when, int *finite, const struct ww_variant *next,
	int *drawn, struct ww_err *err) WW_MUST_CHECK;

/* session_pytorch.c: plans that leave operators to PyTorch.  Start PyTorch's process and make the session one of both
 * processes.  cpu: call after the runner has loaded the plan; cuda: before. */
enum ww_rc ww_pytorch_open(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;
/* cuda: the plan's n pieces of scratch in PyTorch's memory, for ww_session_load(); the session owns them. */
const struct ww_lent_scratch *ww_pytorch_lent(const struct ww_session *s, int *n);
/* cuda: *digest: of the outputs after one more run of the current draw; run = 0: of the outputs that are there. */
enum ww_rc ww_pytorch_digest(
	struct ww_session *s, int run, uint64_t key, uint64_t *digest, struct ww_err *err) WW_MUST_CHECK;
/* PyTorch's median share of a call's time, 0 to 1: of the timed calls so far, else of all. */
double ww_pytorch_share(const struct ww_session *s);
enum { WW_PYTORCH_TIMED = 64 };
/* One call that times the nodes that PyTorch runs: us[i], microseconds, of the first WW_PYTORCH_TIMED of them. */
enum ww_rc ww_pytorch_times(struct ww_session *s, double *us, struct ww_err *err) WW_MUST_CHECK;
