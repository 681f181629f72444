/* exported_call.c - call_us of a plan: the time of the exported operator's call in a fresh process (cuda). */
#include "judge/internal.h"

#include "base/time.h"

#include <math.h>

enum { CALLS = 30 };

static void set_call(const struct ww_judge_task *t, struct ww_verdict *v, const double *us, int n)
{
	v->time.call_us = ww_stats_median(us, n);
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		const struct ww_base *e = &t->base[b];
		double moved = v->baselines[b].call_us / ww_stats_median(e->call_us, e->n_call); /* as set_ratios() found */
		if (v->baseline_measured[b] && e->n_call)
			v->speedup_call[b] = ww_stats_ratio(e->call_us, e->n_call, moved, us, n, WW_STATS_95);
	}
}

struct alone {
	const struct ww_judge *judge;
	struct ww_turn turn;
	double wait_s;
};

static enum ww_rc take_device(void *alone, struct ww_err *err)
{
	struct alone *a = alone;
	uint64_t start = ww_now_ns();
	enum ww_rc rc = ww_turn_take(&a->turn, a->judge, WW_TURN_ALONE, err);
	a->wait_s = ww_seconds_since(start);
	ww_judge_progress(a->judge, "timing the exported call");
	return rc;
}

enum ww_rc ww_judge_time_call(
	struct ww_judge_task *t, const struct ww_solution *s, struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	struct alone alone = { j, { 0 }, 0 };
	double us[CALLS];
	int n = 0;
	enum ww_rc rc;

	if (!j->opts.caller || j->opts.target != WW_TARGET_CUDA || v->form != WW_FORM_PLAN || !v->correct ||
		!isfinite(v->time.device_us))
		return WW_OK;
	ww_judge_progress(j, "exporting the operator to time its call");
	rc = j->opts.caller->time(
		t, &t->task, s, j->opts.device, take_device, &alone, j->opts.interrupted, us, CALLS, &n, err);
	ww_turn_drop(&alone.turn);
	v->seconds.wait += alone.wait_s;
	if (rc == WW_OK) {
		pthread_mutex_lock(&t->lock);
		set_call(t, v, us, n);
		pthread_mutex_unlock(&t->lock);
	} else if (rc != WW_ERR_INTERRUPTED && rc != WW_ERR_NOMEM) {
		rc = WW_OK;
		ww_str_addf(diag, "note: the exported operator's call was not timed: %.500s\n", err->msg);
	}
	return rc;
}
