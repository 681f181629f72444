/* baselines.h - the times of PyTorch's baselines of a task, measured now or by an earlier judge. */
#pragma once

#include "judge/internal.h"

/* Every requested baseline measured (from the cache where it is there).  *fastest: WW_BASE_COUNT
 * where none is available. */
enum ww_rc ww_base_all(struct ww_judge_task *t, enum ww_baseline *fastest, struct ww_err *err) WW_MUST_CHECK;
/* One call of a prepared baseline on the current draw, microseconds. */
enum ww_rc ww_base_once(
	struct ww_judge_task *t, enum ww_baseline b, enum ww_ref_mode mode, double *us, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_base_prepare(struct ww_judge_task *t, enum ww_baseline b, struct ww_err *err) WW_MUST_CHECK;
/* The requested baselines that have to be measured get ready, so that nothing but measuring is left for ww_base_all().
 */
enum ww_rc ww_base_prepare_missing(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* Have the worker compile the baseline "compile" without the device, where it will be needed and cannot be had from the
 * cache: torch.compile takes seconds of processor time, for which no other judge should wait.  Does not wait itself.
 * The task's lock is held. */
enum ww_rc ww_base_compile_ahead(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* The measurements of a baseline that the judgement in progress compares with. */
struct ww_base *ww_base_of(struct ww_judge_task *t, int b);
/* A rough time of one eager call, for limits. */
enum ww_rc ww_base_eager_estimate(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
