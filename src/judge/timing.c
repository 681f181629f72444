/* timing.c - how fast is it?  Candidate and fastest baseline, call about, on secret draws, until the median is known well.
 *
 * One round is: outputs poisoned; a new draw of inputs and parameters (both sides get the same, neither has seen it, and what a
 * candidate may have kept of an earlier call was made of others); the candidate on flushed caches; the baseline on flushed caches; and, in secretly chosen rounds, the comparison of what the candidate has just
 * written with references that are computed only now.  At least MIN_CHECKED of the rounds are chosen: so many among the
 * first MIN_ROUNDS at random, and every eighth or so later, so that nothing tells a candidate which call will be looked at.
 *
 * Sampling goes on until the 95% interval of the candidate's median and of the ratio are narrower than 2%, or to a cap of
 * rounds or seconds.  A caller may lower the seconds, never the first MIN_ROUNDS or what is checked in them: the intervals
 * get wider and say so.  Other baselines come from baseline.c, multiplied by the drift seen on the one that was timed here.
 *
 * What the times mean.  cuda, device_us: between two events around the launch of the plan as a CUDA graph; call_us: the
 * runner's clock from that launch to the end of the synchronisation behind it (an exported operator's call in a fresh
 * process adds PyTorch's dispatch on top).  cpu: the judge's clock from the starting frame until every thread sleeps; both
 * times are this one.
 *
 * Too good to be true.  floor_us is the time that the bytes which must move need at 1.15 times the measured copy bandwidth,
 * less what the last cache can hold: a time below it is `suspect`, and 20 more calls are checked.  `algebraic` is set where
 * the graph's matrix arithmetic, done in the time measured, would need more than 1.25 times the highest arithmetic peak
 * measured on this device (tensor cores at their fastest precision that the rule could accept): then it was not done.  That
 * definition gives no false alarm; it misses a solution that saves arithmetic and is slow otherwise. */
#include "judge/internal.h"

#include "base/rng.h"
#include "base/time.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_WARM = 3, MAX_WARM = 10, MIN_ROUNDS = 10, MAX_ROUNDS = 60, MIN_CHECKED = 8, SUSPECT_CHECKED = 20 };
static const double MAX_SECONDS = 10, BRIEF_SECONDS = 3, NARROW = 0.02, STEADY = 0.05, RESTLESS = 0.15, PEAK_MARGIN = 1.25, COPY_MARGIN = 1.15;

struct series {
	double us[WW_STATS_MAX_SAMPLES], call_us[WW_STATS_MAX_SAMPLES], base_us[WW_STATS_MAX_SAMPLES];
	int n;
};

static double sample_us(const struct ww_session *s, const struct ww_run_result *res)
{
	return s->t->judge->opts.target == WW_TARGET_CPU ? (double)res->elapsed_ns * 1e-3 : res->device_us;
}

static void wait_quiet(struct ww_judge_task *t)
{
	uint64_t deadline = ww_now_ns() + 1000000000ull;
	while (t->judge->opts.target == WW_TARGET_CPU && !ww_ref_quiet(t->ref) && ww_now_ns() < deadline)
		;
}

/* The candidate once, on a draw of its own. */
static enum ww_rc candidate(struct ww_session *s, double *us, double *call_us, struct ww_err *err)
{
	struct ww_run_result res;
	enum ww_rc rc = ww_session_prepare(s, WW_RUN_POISON | WW_RUN_FLUSH, err);
	if (rc != WW_OK || s->failed)
		return rc;
	rc = ww_session_draw(s->t, 1, 0, WW_REF_PARAMS_REDRAW, err);
	if (rc != WW_OK)
		return rc;
	wait_quiet(s->t);
	rc = ww_session_go(s, &res, err);
	if (rc != WW_OK || s->failed)
		return rc;
	*us = sample_us(s, &res);
	*call_us = s->t->judge->opts.target == WW_TARGET_CPU ? *us : res.call_us;
	if (!(*us > 0))
		return ww_err_set(err, WW_ERR_DEVICE, "the device's clock gave no time");
	return WW_OK;
}

/* At least three calls, and until two in a row agree. */
static enum ww_rc warm_up(struct ww_session *s, enum ww_baseline fastest, struct ww_err *err)
{
	double us = 0, last = 0, call, base;
	enum ww_rc rc = WW_OK;
	for (int k = 0; k < MAX_WARM && !s->failed; k++) {
		WW_TRY(candidate(s, &us, &call, err));
		if (fastest != WW_BASE_COUNT && !s->failed)
			WW_TRY(ww_base_once(s->t, fastest, WW_REF_DEVICE, &base, err));
		if (k + 1 >= MIN_WARM && fabs(us - last) <= STEADY * us)
			break;
		last = us;
	}
out:
	return rc;
}

static enum ww_rc one_round(struct ww_session *s, enum ww_baseline fastest, struct series *x, int check, struct ww_err *err)
{
	enum ww_rc rc;
	WW_TRY(candidate(s, &x->us[x->n], &x->call_us[x->n], err));
	if (s->failed)
		goto out;
	if (fastest != WW_BASE_COUNT)
		WW_TRY(ww_base_once(s->t, fastest, WW_REF_DEVICE, &x->base_us[x->n], err));
	x->n++;
	if (check) {
		WW_TRY(ww_session_check(s, "a timed call", NULL, err));
		s->v->checked_calls++;
	}
out:
	return rc;
}

/* Which rounds are checked: MIN_CHECKED of the first MIN_ROUNDS, later ones with probability 1/8. */
static void choose(char *check, int n)
{
	struct ww_rng g;
	ww_rng_init(&g, ww_rng_secret(), 0);
	for (int k = 0; k < n; k++)
		check[k] = k < MIN_ROUNDS ? k < MIN_CHECKED : ww_rng_below(&g, 8) == 0;
	for (int k = MIN_ROUNDS - 1; k > 0; k--) {
		int other = (int)ww_rng_below(&g, (uint64_t)k + 1);
		char swap = check[k];
		check[k] = check[other];
		check[other] = swap;
	}
}

static int narrow(const struct series *x, enum ww_baseline fastest)
{
	return x->n >= MIN_ROUNDS && ww_stats_width(ww_stats_interval(x->us, x->n)) < NARROW &&
	       (fastest == WW_BASE_COUNT || ww_stats_width(ww_stats_ratio_paired(x->base_us, x->us, x->n)) < NARROW);
}

static double limit_s(const struct ww_session *s)
{
	double limit = s->brief ? BRIEF_SECONDS : MAX_SECONDS, asked = s->t->judge->opts.max_time_s;
	return asked > 0 ? fmin(asked, limit) : limit;
}

static enum ww_rc sample(struct ww_session *s, enum ww_baseline fastest, struct series *x, struct ww_err *err)
{
	char check[MAX_ROUNDS];
	uint64_t start = ww_now_ns();
	enum ww_rc rc = WW_OK;
	choose(check, MAX_ROUNDS);
	for (int k = 0; k < MAX_ROUNDS && !s->failed; k++) {
		WW_TRY(one_round(s, fastest, x, check[k], err));
		if (x->n >= MIN_ROUNDS && (narrow(x, fastest) || ww_seconds_since(start) > limit_s(s)))
			break;
	}
out:
	return rc;
}

/* ---- What follows from the samples ------------------------------------------------------------------------------- */

static void set_ratios(struct ww_session *s, const struct series *x, enum ww_baseline fastest)
{
	struct ww_verdict *v = s->v;
	double drift = 1;
	if (fastest != WW_BASE_COUNT)
		drift = ww_stats_median(x->base_us, x->n) / ww_stats_median(s->t->base[fastest].us, s->t->base[fastest].n);
	for (int b = 0; b < WW_BASE_COUNT; b++) {
		const struct ww_base *e = &s->t->base[b];
		if (!(s->t->judge->opts.baselines & (1u << b)) || !e->available)
			continue;
		if (!strcmp(e->method, "kernels"))	/* a baseline that cannot be captured: the sum of its kernels' times */
			strcpy(v->device_method, "kernels");
		v->baseline_measured[b] = 1;
		v->baselines[b].device_us = ww_stats_median(e->us, e->n) * drift;
		v->baselines[b].call_us = ww_stats_median(e->call_us, e->n_call) * drift;
		v->speedup[b] = (int)fastest == b ? ww_stats_ratio_paired(x->base_us, x->us, x->n)
						  : ww_stats_ratio(e->us, e->n, drift, x->us, x->n);
		v->speedup_call[b] = ww_stats_ratio(e->call_us, e->n_call, drift, x->call_us, x->n);
	}
}

static void set_times(struct ww_session *s, const struct series *x)
{
	s->v->time_device = ww_stats_interval(x->us, x->n);
	s->v->time.device_us = s->v->time_device.mid;
	s->v->time.call_us = ww_stats_median(x->call_us, x->n);
	strcpy(s->v->device_method, s->t->judge->opts.target == WW_TARGET_CPU ? "clock" : "graph");
}

static void set_floor(struct ww_session *s)
{
	const struct ww_device *d = &s->t->facts.device;
	double cache = (double)(d->target == WW_TARGET_CPU ? d->l3_bytes : d->l2_bytes), bytes = s->t->bytes - cache;
	if (d->memory_bytes_per_s <= 0)
		return;
	s->v->floor_us = bytes > 0 ? bytes / (COPY_MARGIN * d->memory_bytes_per_s) * 1e6 : 0;
	s->v->suspect = s->v->time.device_us < s->v->floor_us;
}

static enum ww_rc set_algebraic(struct ww_session *s, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	const struct ww_ref_peaks *p = &s->t->judge->peaks;
	if (s->t->flops <= 0)
		return WW_OK;
	WW_TRY(ww_judge_device_peaks(s->t, err));
	double peak = fmax(fmax(p->fp32_flops, p->tf32_flops), fmax(p->fp16_flops, p->bf16_flops));
	s->v->algebraic = peak > 0 && s->t->flops > PEAK_MARGIN * peak * s->v->time.device_us * 1e-6;
out:
	return rc;
}

static enum ww_rc check_suspect(struct ww_session *s, enum ww_baseline fastest, struct ww_err *err)
{
	struct series *x = calloc(1, sizeof(*x));
	enum ww_rc rc = x ? WW_OK : ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	for (int k = 0; rc == WW_OK && k < SUSPECT_CHECKED && !s->failed; k++)
		rc = one_round(s, fastest, x, 1, err);
	free(x);
	return rc;
}

enum ww_rc ww_judge_time(struct ww_session *s, struct ww_err *err)
{
	struct series *x = calloc(1, sizeof(*x));
	struct ww_load load;
	enum ww_baseline fastest;
	enum ww_rc rc;

	if (!x)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	WW_TRY(ww_base_all(s->t, &fastest, err));
	if (fastest != WW_BASE_COUNT)
		WW_TRY(ww_base_prepare(s->t, fastest, err));
	ww_judge_progress(s->t->judge, "time");
	WW_TRY(warm_up(s, fastest, err));
	ww_load_start(&load, s->t, s->runner);
	if (!s->failed)
		WW_TRY(sample(s, fastest, x, err));
	if (s->failed)
		goto out;
	s->v->disturbed = ww_load_disturbed(&load, s->t, s->runner) || ww_stats_spread(x->us, x->n) > RESTLESS;
	set_times(s, x);
	set_ratios(s, x, fastest);
	set_floor(s);
	if (s->v->suspect)
		WW_TRY(check_suspect(s, fastest, err));
	if (!s->failed)
		WW_TRY(set_algebraic(s, err));
	WW_TRY(ww_ref_free(s->t->ref, 0, err));
out:
	free(x);
	return rc;
}
