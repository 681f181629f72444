/* stages.h - the stages of a judgement, in order: verify, repeat, time, and checks of a time that is too good. */
#pragma once

#include "judge/session.h"

/* verify.c: draws that are compared, and repeats. */
enum ww_rc ww_judge_verify(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* repeat.c: the current draw, just compared, again and again; differences are counted and compared with the reference.
 */
enum ww_rc ww_judge_repeat(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* timing.c: times, speed-ups and `suspect` of the verdict. */
enum ww_rc ww_judge_time(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* algebra.c: sets the verdict's `algebraic` from the time measured.  The library nodes' arithmetic is exact. */
enum ww_rc ww_judge_algebraic(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* without_launches.c: run a judged plan of launches and library nodes without its launches.  *library_only: less than
 * half of the outputs' elements are wrong then, or its kernels have called the library besides. */
enum ww_rc ww_judge_without_launches(
	const struct ww_session *whole, int *library_only, struct ww_err *err) WW_MUST_CHECK;

/* sanitize.c: one run on the current draw under compute-sanitizer; its report, quoted, into diag. */
enum ww_rc ww_judge_sanitize(struct ww_judge_task *t, const struct ww_image *image, const struct ww_compiled *binary,
	struct ww_str *diag, struct ww_err *err) WW_MUST_CHECK;

/* exported_call.c: call_us and speedup_call of a solution that has been timed, by the judge's `caller`.  Its process is
 * started before the solution is verified, so that it imports PyTorch meanwhile.  That a call could not be measured is
 * a line in diag and no error. */
struct ww_exported_call {
	const struct ww_judge_caller *caller; /* NULL: none is wanted */
	void *call;
	struct ww_err why; /* it was not begun */
};
void ww_judge_call_begin(struct ww_judge_task *t, const struct ww_solution *s, struct ww_exported_call *c);
enum ww_rc ww_judge_call_time(struct ww_judge_task *t, struct ww_exported_call *c, struct ww_verdict *v,
	struct ww_str *diag, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_call_end(struct ww_exported_call *c);
const struct ww_turn *ww_judge_call_turn(const void *use_ctx); /* of the process under way, for tests */
