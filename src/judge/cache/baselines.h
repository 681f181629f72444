/* baselines.h - the times of a task's PyTorch baselines, measured now or read from the store.  Microseconds. */
#pragma once

#include "judge/internal.h"

/* Measure every requested baseline, or read it from the store.  *fastest: WW_BASE_COUNT if none is available. */
enum ww_rc ww_base_all(struct ww_judge_task *t, enum ww_baseline *fastest, struct ww_err *err) WW_MUST_CHECK;
/* One call of a prepared baseline on the current draw, microseconds. */
enum ww_rc ww_base_once(
	struct ww_judge_task *t, enum ww_baseline b, enum ww_ref_mode mode, double *us, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_base_prepare(struct ww_judge_task *t, enum ww_baseline b, struct ww_err *err) WW_MUST_CHECK;
/* Prepare all requested baselines that must be measured, so that ww_base_all() only measures. */
/* Prepare a baseline (compile it); one that is not available is marked so and is no error. */
enum ww_rc ww_base_prepare_missing(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* Start compiling the baseline "compile" in the worker, without the device, if it will be needed and is not in the
 * store: torch.compile takes seconds of processor time, and no other judge should wait for the device meanwhile.
 * Returns at once.  The task's lock is held. */
enum ww_rc ww_base_compile_ahead(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* The measurements of baseline b that the judgement in progress compares with; the task owns them. */
struct ww_base *ww_base_of(struct ww_judge_task *t, int b);
/* Sets t->eager_us, a rough time of one eager call, from which time limits are derived. */
enum ww_rc ww_base_eager_estimate(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
