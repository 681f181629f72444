/* stages.h - the stages of a judgement, in order: verify, repeat, time, and checks of times that are too short. */
#pragma once

#include "judge/session.h"

/* verify.c: run the candidate on draws, compare its outputs, and repeat. */
enum ww_rc ww_judge_verify(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* repeat.c: run the current draw, which has been compared, many times; outputs that differ are counted and compared
 * with the reference. */
enum ww_rc ww_judge_repeat(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* timing.c: sets the verdict's times, speed-ups and flag `suspect`. */
enum ww_rc ww_judge_time(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* algebra.c: sets the verdict's flag `algebraic` if the measured time is too short for the task's arithmetic.  That of
 * library nodes is known from their sizes. */
enum ww_rc ww_judge_algebraic(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* without_launches.c: run a judged plan of launches and library nodes without its launches.  *library_only: 1 if then
 * fewer than half of the output elements are wrong, or if its kernels have called the library too. */
enum ww_rc ww_judge_without_launches(
	const struct ww_session *whole, int *library_only, struct ww_err *err) WW_MUST_CHECK;

/* sanitize.c: one run on the current draw under compute-sanitizer; quotes its report in diag. */
enum ww_rc ww_judge_sanitize(struct ww_judge_task *t, const struct ww_image *image, const struct ww_compiled *binary,
	struct ww_str *diag, struct ww_err *err) WW_MUST_CHECK;

/* exported_call.c: measures call_us and speedup_call of a timed solution by the judge's `caller`. ww_judge_call_begin()
 * starts its process before the solution is verified, so that it imports PyTorch meanwhile.  A call that cannot be
 * measured is a line in diag and no error. */
struct ww_exported_call {
	const struct ww_judge_caller *caller; /* NULL: do not measure */
	const struct ww_solution *solution;   /* borrowed */
	void *call;                           /* the caller's; NULL: it was not started */
	struct ww_err why;                    /* why it was not started */
};
void ww_judge_call_begin(struct ww_judge_task *t, const struct ww_solution *s, struct ww_exported_call *c);
enum ww_rc ww_judge_call_time(struct ww_judge_task *t, struct ww_exported_call *c, struct ww_verdict *v,
	struct ww_str *diag, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_call_end(struct ww_exported_call *c);
const struct ww_turn *ww_judge_call_turn(const void *use_ctx); /* for tests: the turn of the process under way */
