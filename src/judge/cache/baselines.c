/* baselines.c - PyTorch's times for a task: measured once on this machine, cached in the store, rescaled by drift when
 * used.
 *
 * All requested baselines without times are measured in one interleaved series, each call on a new draw, with the
 * caches flushed: cuda by the worker's events around a captured graph, cpu by our clock between a starting byte and the
 * moment when every thread of the worker sleeps, exactly as candidates are timed.
 *
 * One entry of the store a baseline, kind "baseline".  Its key is the hash of everything that the times depend on: task
 * content, device, its size, driver, PyTorch, cuDNN and cuBLAS versions, threads, the version of this way of measuring,
 * and which baseline it is.  It holds the samples as JSON, not a summary, because intervals of ratios need them.  One
 * that cannot be read is measured again.  Times that were cut short because the caller has little time, or that were
 * disturbed, serve that caller only. */
#include "judge/cache/baselines.h"
#include "judge/load.h"
#include "judge/session.h"

#include "base/json.h"
#include "base/log.h"
#include "base/time.h"
#include "judge/forms/form.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
	METHOD_VERSION = 5,
	MIN_CALLS = 8,
	MAX_CALLS = 40,
	WARM_CALLS = 3,
	CALL_SAMPLES = 10,
	MAX_ATTEMPTS = 3,
	LOOK_EVERY = 4,
	MAX_VALUE_BYTES = 1 << 20
};
static const double MAX_SECONDS = 6, NARROW = 0.02;

struct ww_base *ww_base_of(struct ww_judge_task *t, int b) { return t->by_clock ? &t->clocked[b] : &t->base[b]; }

/* ---- The store --------------------------------------------------------------------------------------------------- */

static void key_of(const struct ww_judge_task *t, enum ww_baseline b, char hex[WW_HASH_HEX])
{
	const struct ww_ref_info *i = ww_ref_info(t->ref);
	const struct ww_device *d = &t->facts.device;
	ww_auto_str key = WW_STR_INIT(4096);
	ww_str_addf(&key, "%d%s|%s|%s|%d|%s|%s|%d|%d|%s|%s|%s|%s|%s", METHOD_VERSION, t->by_clock ? "-call" : "",
		ww_baseline_name(b), t->task.id, d->target, t->judge->facts.name, t->judge->facts.uuid, d->sm_count, d->threads,
		i->driver, i->torch, i->cudnn, i->cublas, i->cuda);
	ww_hash_hex(key.p, key.len, hex);
}

static int read_samples(const json_t *a, double *to)
{
	size_t n = json_array_size(a);
	if (n > WW_STATS_MAX_SAMPLES)
		return 0;
	for (size_t k = 0; k < n; k++) {
		to[k] = ww_json_to_real(json_array_get(a, k), NAN);
		if (!isfinite(to[k]) || to[k] <= 0)
			return 0;
	}
	return (int)n;
}

static enum ww_rc look_up(struct ww_judge_task *t, enum ww_baseline b, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_VALUE_BYTES);
	struct ww_err bad = WW_ERR_INIT;
	struct ww_base *to = ww_base_of(t, b);
	char key[WW_HASH_HEX];
	json_auto_t *o = NULL;
	int found;
	key_of(t, b, key);
	WW_CHECK(ww_store_get(t->judge->store, "baseline", key, &text, &found, err));
	if (!found)
		return WW_OK;
	if (ww_json_parse(text.p, text.len, "a cached baseline", &o, &bad) != WW_OK) {
		ww_log(WW_LOG_WARN, "%s", bad.msg);
		return WW_OK;
	}
	to->n = read_samples(json_object_get(o, "device_us"), to->us);
	to->n_call = read_samples(json_object_get(o, "call_us"), to->call_us);
	snprintf(to->method, sizeof(to->method), "%s", ww_json_str(o, "method", ""));
	to->settled = to->available = to->n >= MIN_CALLS;
	return WW_OK;
}

static json_t *samples_json(const double *x, int n)
{
	json_t *a = json_array();
	for (int k = 0; k < n; k++)
		json_array_append_new(a, json_real(x[k]));
	return a;
}

static enum ww_rc keep(struct ww_judge_task *t, enum ww_baseline b, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_VALUE_BYTES);
	const struct ww_base *e = ww_base_of(t, b);
	char key[WW_HASH_HEX];
	json_auto_t *o = json_pack("{s:s, s:o, s:o}", "method", e->method, "device_us", samples_json(e->us, e->n),
		"call_us", samples_json(e->call_us, e->n_call));
	key_of(t, b, key);
	ww_json_add(&text, o);
	return ww_store_put(t->judge->store, "baseline", key, text.p, text.len, err);
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

static enum ww_rc cpu_once(struct ww_judge_task *t, enum ww_baseline b, double *us, struct ww_err *err)
{
	uint64_t ns = 0;

	WW_CHECK(ww_ref_arm(t->ref, b, err));
	ww_session_flush(t);
	WW_CHECK(ww_ref_fire(t->ref, &ns, &t->base_waited_us, err));
	*us = (double)ns * 1e-3;
	return WW_OK;
}

enum ww_rc ww_base_once(
	struct ww_judge_task *t, enum ww_baseline b, enum ww_ref_mode mode, double *us, struct ww_err *err)
{
	ww_turn_call(&t->turn);
	uint64_t start = ww_now_ns();
	enum ww_rc rc = mode == WW_REF_CLOCK         ? ww_form_base_call(t, b, us, err)
		: t->judge->opts.target == WW_TARGET_CPU ? cpu_once(t, b, us, err)
												 : ww_ref_time(t->ref, b, mode, 1, 1, us, err);
	t->reference_s += ww_seconds_since(start);
	t->spent.baseline += ww_seconds_since(start);
	ww_turn_called(&t->turn);
	return rc;
}

enum ww_rc ww_base_prepare(struct ww_judge_task *t, enum ww_baseline b, struct ww_err *err)
{
	struct ww_ref_baseline info;
	struct ww_base *e = ww_base_of(t, b);
	char stage[64];
	if (e->prepared)
		return WW_OK;
	WW_CHECK(ww_judge_turn(t, WW_TURN_LOAD, err));
	snprintf(stage, sizeof(stage), "%s the baseline \"%s\"", b == WW_BASE_EAGER ? "preparing" : "compiling",
		ww_baseline_name(b));
	ww_judge_progress(t->judge, stage);
	memset(&info, 0, sizeof(info));
	uint64_t start = ww_now_ns();
	enum ww_rc rc = t->by_clock ? ww_form_base_open(t, b, &info, err) : ww_ref_baseline(t->ref, b, &info, err);
	double took_s = ww_seconds_since(start);
	t->reference_s += took_s;
	t->spent.prepare += took_s;
	if (rc != WW_OK)
		return rc;
	e->prepared = info.available;
	e->several_streams = info.several_streams;
	if (!info.available) {
		e->settled = 1;
		e->available = 0;
		snprintf(e->reason, sizeof(e->reason), "%s", info.reason);
		ww_log(WW_LOG_WARN, "baseline %s is not available: %s", ww_baseline_name(b), info.reason);
	} else if (!e->method[0]) {
		snprintf(e->method, sizeof(e->method), "%s", info.device_method);
	}
	return WW_OK;
}

/* Must "compile" still be measured, or is it the fastest known baseline, which is timed together with the solution? */
static int may_be_called(struct ww_judge_task *t)
{
	const struct ww_base *e = &t->base[WW_BASE_COMPILE], *eager = &t->base[WW_BASE_EAGER];
	return !e->settled ||
		(e->available && (!eager->settled || ww_stats_median(e->us, e->n) <= ww_stats_median(eager->us, eager->n)));
}

enum ww_rc ww_base_compile_ahead(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_base *e = &t->base[WW_BASE_COMPILE];
	if (t->judge->opts.target != WW_TARGET_CUDA || !(t->judge->opts.baselines & (1u << WW_BASE_COMPILE)) ||
		t->by_clock || ww_ref_compiling(t->ref))
		return WW_OK;
	if (!e->settled && !e->prepared)
		WW_CHECK(look_up(t, WW_BASE_COMPILE, err));
	return e->prepared || !may_be_called(t) ? WW_OK : ww_ref_compile_ahead(t->ref, WW_BASE_COMPILE, err);
}

/* A worker begins with one hardware connection: its context takes the driver a quarter of the time then, which is what
 * opening many tasks waits for.  What runs on one stream is as fast.  A module that uses several (PyTorch's LSTM does)
 * gets a worker with the driver's own number: ww_judge_hold() starts it, and begins the judgement again. */
static enum ww_rc look_at_streams(struct ww_judge_task *t, struct ww_err *err)
{
	if (!ww_base_of(t, WW_BASE_EAGER)->several_streams || !t->ref_opts.connections)
		return WW_OK;
	t->ref_opts.connections = 0;
	ww_judge_drop_ref(t);
	return ww_err_set(err, WW_ERR_WORKER, "a call of the module uses several streams");
}

enum ww_rc ww_base_eager_estimate(struct ww_judge_task *t, struct ww_err *err)
{
	double us = 0;
	if (t->eager_us > 0)
		return WW_OK;
	WW_CHECK(ww_base_prepare(t, WW_BASE_EAGER, err));
	if (!ww_base_of(t, WW_BASE_EAGER)->prepared)
		return WW_OK;
	WW_CHECK(look_at_streams(t, err));
	WW_CHECK(ww_session_draw_unchecked(t, WW_REF_PARAMS_INIT, err));
	for (int k = 0; k < 2; k++)
		WW_CHECK(ww_base_once(t, WW_BASE_EAGER, t->by_clock ? WW_REF_CLOCK : WW_REF_DEVICE, &us, err));
	t->eager_us = us;
	return WW_OK;
}

static int steady(const struct ww_base *e)
{
	return e->n >= MIN_CALLS && ww_stats_width(ww_stats_interval(e->us, e->n, WW_STATS_95)) < NARROW;
}

static int all_steady(struct ww_judge_task *t, unsigned which)
{
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if ((which & (1u << b)) && !steady(ww_base_of(t, b)))
			return 0;
	return 1;
}

/* Call each of the baselines once.  keep: the times count. */
static enum ww_rc call_each(struct ww_judge_task *t, unsigned which, int keep, struct ww_err *err)
{
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		struct ww_base *e = ww_base_of(t, b);
		double us = 0;
		if (!(which & (1u << b)))
			continue;
		WW_CHECK(ww_judge_interrupted(t->judge, err));
		WW_CHECK(ww_base_once(t, (enum ww_baseline)b, t->by_clock ? WW_REF_CLOCK : WW_REF_DEVICE, &us, err));
		if (keep)
			e->us[e->n++] = us;
		if (!keep || t->by_clock || t->judge->opts.target == WW_TARGET_CPU || e->n_call >= CALL_SAMPLES)
			continue;
		WW_CHECK(ww_base_once(t, (enum ww_baseline)b, WW_REF_CALL, &us, err));
		e->call_us[e->n_call++] = us;
	}
	return WW_OK;
}

/* A new draw, then one call of each baseline without a pause between them: ww_turn_call() waits until the steps of
 * other tasks are over. */
static enum ww_rc round_of(struct ww_judge_task *t, unsigned which, int keep, struct ww_err *err)
{
	WW_CHECK(ww_session_draw_unchecked(t, WW_REF_PARAMS_KEEP, err));
	ww_turn_call(&t->turn);
	enum ww_rc rc = call_each(t, which, keep, err);
	ww_turn_called(&t->turn);
	return rc;
}

static double limit_s(const struct ww_judge *j)
{
	return j->opts.max_time_s > 0 ? fmin(j->opts.max_time_s, MAX_SECONDS) : MAX_SECONDS;
}

static enum ww_rc series(struct ww_judge_task *t, unsigned which, uint64_t start, struct ww_err *err)
{
	WW_CHECK(ww_session_draw_unchecked(t, WW_REF_PARAMS_REDRAW, err));
	for (int k = 0; k < WARM_CALLS; k++)
		WW_CHECK(round_of(t, which, 0, err));
	for (int k = 0, done = 0; k < MAX_CALLS && !done; k++) {
		WW_CHECK(round_of(t, which, 1, err));
		ww_turn_pause(&t->turn);
		done = (k + 1) % LOOK_EVERY == 0 && all_steady(t, which);
		ww_turn_resume(&t->turn);
		done |= k + 1 >= MIN_CALLS && ww_seconds_since(start) > limit_s(t->judge);
	}
	return WW_OK;
}

static void forget(struct ww_judge_task *t, unsigned which)
{
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (which & (1u << b)) {
			struct ww_base *e = ww_base_of(t, b);
			e->n = e->n_call = 0;
		}
}

/* A disturbed series is measured again while there is time; *good: undisturbed, so it may be cached for later judges.
 */
static enum ww_rc measure(struct ww_judge_task *t, unsigned which, int *good, struct ww_err *err)
{
	const pid_t own[] = { ww_ref_pid(t->ref), ww_form_base_pid(t, WW_BASE_EAGER), ww_form_base_pid(t, WW_BASE_COMPILE),
		ww_form_base_pid(t, WW_BASE_AUTOTUNE) };
	uint64_t start = ww_now_ns();
	struct ww_disturbance d;
	struct ww_load load;

	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		uint64_t begin = ww_now_ns();
		forget(t, which);
		ww_load_start(&load, t->judge, own, WW_ARRAY_LEN(own), 1);
		WW_CHECK(series(t, which, start, err));
		ww_turn_pause(&t->turn);
		ww_load_end(&load, &d);
		*good = !d.certain && (!d.noticed || all_steady(t, which));
		ww_turn_resume(&t->turn);
		if (*good || ww_seconds_since(start) + ww_seconds_since(begin) > limit_s(t->judge))
			break;
	}
	if (!*good)
		ww_log(WW_LOG_INFO, "the baselines were measured while %s; they are not cached", d.why);
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		struct ww_base *e = ww_base_of(t, b);
		if (!(which & (1u << b)))
			continue;
		if (t->by_clock || t->judge->opts.target == WW_TARGET_CPU) {
			e->n_call = e->n;
			memcpy(e->call_us, e->us, sizeof(e->us));
		}
		e->settled = e->available = 1;
		e->disturbed = !*good;
	}
	return WW_OK;
}

/* From now on only the fastest is called; release the others: a CUDA graph of eager holds all its intermediate
 * tensors. */
static enum ww_rc drop_others(struct ww_judge_task *t, enum ww_baseline fastest, struct ww_err *err)
{
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		if (b != (int)fastest)
			ww_form_base_close(t, (enum ww_baseline)b);
		if (t->by_clock || t->judge->opts.target == WW_TARGET_CPU || b == (int)fastest || !t->base[b].prepared)
			continue;
		WW_CHECK(ww_ref_free_baseline(t->ref, (enum ww_baseline)b, err));
		t->base[b].prepared = 0;
	}
	return WW_OK;
}

/* Find the baselines that neither this judge nor the store has, and prepare them.  The reference worker may refuse one;
 * such a baseline is marked and not tried again. */
static enum ww_rc find_missing(struct ww_judge_task *t, unsigned *missing, struct ww_err *err)
{
	*missing = 0;
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		if (!(t->judge->opts.baselines & (1u << b)) || ww_base_of(t, b)->settled)
			continue;
		WW_CHECK(look_up(t, (enum ww_baseline)b, err));
		if (ww_base_of(t, b)->settled)
			continue;
		WW_CHECK(ww_base_prepare(t, (enum ww_baseline)b, err));
		if (ww_base_of(t, b)->prepared)
			*missing |= 1u << b;
	}
	return WW_OK;
}

enum ww_rc ww_base_prepare_missing(struct ww_judge_task *t, struct ww_err *err)
{
	unsigned ignored;
	return find_missing(t, &ignored, err);
}

enum ww_rc ww_base_all(struct ww_judge_task *t, enum ww_baseline *fastest, struct ww_err *err)
{
	unsigned missing;
	int good = 0;
	double best = INFINITY;

	WW_CHECK(find_missing(t, &missing, err));
	if (missing) {
		WW_CHECK(ww_judge_turn(t, WW_TURN_TIMED, err));
		ww_judge_progress(t->judge, "timing the baselines");
		WW_CHECK(measure(t, missing, &good, err));
		for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
			if ((missing & (1u << b)) && good && limit_s(t->judge) >= MAX_SECONDS)
				WW_CHECK(keep(t, (enum ww_baseline)b, err));
	}
	*fastest = WW_BASE_COUNT;
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		if (!(t->judge->opts.baselines & (1u << b)) || !ww_base_of(t, b)->available)
			continue;
		if (t->by_clock && b == WW_BASE_EAGER) { /* eager's process starts fast, a compiled one's does not */
			*fastest = WW_BASE_EAGER;
			break;
		}
		double m = ww_stats_median(ww_base_of(t, b)->us, ww_base_of(t, b)->n);
		if (m < best) {
			best = m;
			*fastest = (enum ww_baseline)b;
		}
	}
	return drop_others(t, *fastest, err);
}
