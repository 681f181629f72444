/* base.c - PyTorch's baselines for solutions in a PyTorch form: the task's own module, in a process of the same kind.
 *
 * A candidate's call includes waking its process, caches and a GPU that another process has just used.  A baseline
 * called in the reference worker, which made the inputs and flushed the caches itself, pays for none of that: on an
 * H200, PyTorch's own code as a candidate was a third slower than as a baseline.  So the baseline is a solution too:
 * `Model` in the place of ModelNew, forked, stopped, woken and timed by the same code.  Nobody reads its outputs.
 *
 * One process lives as long as the task for the baseline that is called in every round, eager where it is asked for;
 * the others live while their samples are taken, which the store keeps. */
#include "judge/forms/form.h"

#include "base/log.h"
#include "base/time.h"

#include <stdio.h>
#include <string.h>

static const double BUSY = 1.25, SEEN = 1.07;
enum { COMPILE_LIMIT_S = 600, CALL_LIMIT_S = 60, WARM_CALLS = 3 };

/* What failed, in one line. */
static void explain(const struct ww_run_result *res, const struct ww_candidate_answer *a, char *out, size_t size)
{
	const char *text = res->kind == WW_RUN_FAULT ? a->text.p : res->text;
	snprintf(out, size, "%.*s", (int)size - 1, text);
	for (char *p = out; *p; p++)
		if (*p == '\n')
			*p = ' ';
}

enum ww_rc ww_form_base_open(
	struct ww_judge_task *t, enum ww_baseline b, struct ww_ref_baseline *info, struct ww_err *err)
{
	struct ww_candidate_answer a;
	struct ww_run_result res;
	uint64_t start = ww_now_ns();
	int loose[WW_MAX_OUTPUTS];
	enum ww_rc rc;

	memset(info, 0, sizeof(*info));
	snprintf(info->device_method, sizeof(info->device_method), "clock");
	ww_candidate_answer_init(&a);
	ww_form_base_close(t, b);
	ww_form_loose(t, loose);
	WW_TRY(ww_form_attach(t, loose, 0, &t->form_base[b], &a, err));
	WW_TRY(ww_candidate_ask(t->form_base[b],
		json_pack("{s:s, s:s, s:s}", "request", "setup", "form", "task", "compile", ww_baseline_name(b)), NULL, 0,
		COMPILE_LIMIT_S, &a, &res, err));
	WW_TRY(ww_form_restores(t, t->form_base[b], a.body, err));
	for (int k = 0; k < WARM_CALLS && res.kind == WW_RUN_OK; k++)
		WW_TRY(ww_candidate_call(t->form_base[b], COMPILE_LIMIT_S, &a, &res, err));
	info->available = res.kind == WW_RUN_OK;
	info->seconds = ww_seconds_since(start);
	if (!info->available) {
		explain(&res, &a, info->reason, sizeof(info->reason));
		ww_form_base_close(t, b);
	}
out:
	if (rc != WW_OK)
		ww_form_base_close(t, b);
	ww_candidate_answer_release(&a);
	return rc;
}

enum ww_rc ww_form_probe(struct ww_judge_task *t, double *share, struct ww_err *err)
{
	double us;
	*share = 1;
	WW_CHECK(ww_ref_publish(t->ref, &us, err));
	if (us > 0 && (t->idle_us == 0 || us < t->idle_us))
		t->idle_us = us;
	if (us > SEEN * t->idle_us)
		t->ahead_us += us - t->idle_us;
	if (us > BUSY * t->idle_us) {
		t->busy_calls++;
		*share = t->idle_us / us;
		ww_log(WW_LOG_DEBUG, "the device is busy: %.0f us in place of %.0f", us, t->idle_us);
	}
	return WW_OK;
}

enum ww_rc ww_form_base_call(struct ww_judge_task *t, enum ww_baseline b, double *us, struct ww_err *err)
{
	struct ww_candidate_answer a;
	struct ww_run_result res;
	char why[256];
	double share = 1;
	enum ww_rc rc = WW_OK;

	ww_candidate_answer_init(&a);
	t->base_calls++;
	if (t->judge->opts.target == WW_TARGET_CUDA) /* the driver lets an importer map them writable */
		WW_TRY(ww_form_probe(t, &share, err));
	if (t->judge->flush)
		ww_session_flush(t);
	else
		WW_TRY(ww_ref_wipe(t->ref, 0, 1, NULL, err));
	WW_TRY(ww_candidate_call(t->form_base[b], CALL_LIMIT_S, &a, &res, err));
	t->base_waited_us = res.waited_us;
	ww_seen_add(&t->form_base_seen[b], ww_candidate_seen(t->form_base[b]));
	*us = share * (double)res.elapsed_ns * 1e-3;
	if (res.kind != WW_RUN_OK) {
		explain(&res, &a, why, sizeof(why));
		rc = ww_err_set(err, WW_ERR_WORKER, "baseline %s failed: %s", ww_baseline_name(b), why);
	}
out:
	if (rc != WW_OK)
		ww_form_base_close(t, b);
	ww_candidate_answer_release(&a);
	return rc;
}

pid_t ww_form_base_pid(const struct ww_judge_task *t, enum ww_baseline b)
{
	return (int)b < (int)WW_BASE_TORCH_COUNT && t->form_base[b] ? ww_candidate_pid(t->form_base[b]) : 0;
}

void ww_form_base_close(struct ww_judge_task *t, enum ww_baseline b)
{
	ww_candidate_free(t->form_base[b]);
	t->form_base[b] = NULL;
	t->clocked[b].prepared = 0;
}
