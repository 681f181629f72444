/* verdict.c - the verdict as data: start, end, reward, and the JSON object of docs/judge.md.
 *
 * JSON has no NaN: what was not measured is null there and NAN here.  What is NEEDED must be
 * there when a verdict is read back, so that a stored verdict is never silently half of one. */
#include "base/json.h"
#include "judge/verdict.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {
#define STATUS(constant, json) json,
#include "judge/verdict.def"
};
static const char *const form_names[] = {
#define FORM(constant, json) json,
#include "judge/verdict.def"
};
enum { NEEDED = 1, CAPS = 2 }; /* attributes of fields and flags */

const char *ww_status_name(enum ww_status s) { return (size_t)s < WW_ARRAY_LEN(status_names) ? status_names[s] : "?"; }

const char *ww_form_name(enum ww_form f) { return (size_t)f < WW_ARRAY_LEN(form_names) ? form_names[f] : "?"; }

const char *ww_form_guarantees(enum ww_form f)
{
	if (f == WW_FORM_PLAN)
		return "full: the solution's host code is data, its device code runs in a process of ours";
	return "weaker: the solution's own Python and native code run in the process that is timed, confined and stopped between calls; "
		   "the clock, the draws, the references and the comparison are the judge's, what the process says of itself (aten_ops) is not "
		   "proven, and work hidden on the GPU for about 0.2 ms after a call may go unseen";
}

void ww_verdict_init(struct ww_verdict *v)
{
	const struct ww_ratio none = { NAN, NAN, NAN };
	memset(v, 0, sizeof(*v));
	v->err_rel = v->err_abs = v->eager_err_rel = v->eager_err_abs = v->floor_us = v->floor_flops_us = NAN;
	v->time = (struct ww_times){ NAN, NAN };
	v->time_device = none;
	for (int b = 0; b < WW_BASE_COUNT; b++) {
		v->baselines[b] = (struct ww_times){ NAN, NAN };
		v->speedup[b] = v->speedup_call[b] = none;
	}
	v->reward = -1;
}

void ww_verdict_release(struct ww_verdict *v)
{
	free(v->diagnostics);
	ww_verdict_init(v);
}

void ww_verdict_uncaptured(struct ww_verdict *v)
{
	strcpy(v->device_method, strncmp(v->device_method, "parts", 5) ? "kernels" : "parts+kernels");
}

int ww_verdict_beats(const struct ww_verdict *v, enum ww_baseline b)
{
	double lo = v->speedup[b].lo;
	return lo > 0 && 1 - 1 / lo > 0.05;
}

static int is_capped(const struct ww_verdict *v)
{
	int capped = 0;
#define FLAG(member, kind, attributes, reason, text) capped |= ((attributes) & CAPS) && v->member;
#include "judge/verdict.def"
	return capped;
}

double ww_verdict_speedup_reward(const struct ww_verdict *v)
{
	const struct ww_ratio *by =
		&v->speedup[isfinite(v->speedup[WW_BASE_COMPILE].mid) ? WW_BASE_COMPILE : WW_BASE_EAGER];
	if (!v->correct)
		return -1;
	return is_capped(v) && by->mid > 1 ? 1 : by->mid;
}

double ww_verdict_reward(const struct ww_verdict *v)
{
	if (!v->correct)
		return -1;
	if (is_capped(v) || !ww_verdict_beats(v, WW_BASE_EAGER))
		return 1;
	return ww_verdict_beats(v, WW_BASE_COMPILE) ? 3 : 2;
}

/* ---- Values as JSON and back ------------------------------------------------------------------------------------- */

static const char what[] = "verdict";

struct field {
	const char *key;
	const struct kind *kind;
	size_t offset, size;
	int attributes;
};
/* How a field is written, and read: `get` finds f->key present where it is NEEDED, and sets *at, which is zeroed. */
struct kind {
	json_t *(*put)(const struct ww_verdict *v, const void *at);
	enum ww_rc (*get)(
		const json_t *o, const struct field *f, struct ww_verdict *v, void *at, struct ww_err *err) WW_MUST_CHECK;
};

#define UNUSED __attribute__((unused))
#define PUT(name) static json_t *put_##name(const struct ww_verdict *v UNUSED, const void *at UNUSED)
#define GET(name) \
	static enum ww_rc get_##name(const json_t *o, const struct field *f, struct ww_verdict *v UNUSED, void *at UNUSED, \
		struct ww_err *err UNUSED)

static enum ww_rc get_choice(const json_t *o, const char *key, const char *(*name)(int i), void *at, struct ww_err *err)
{
	const char *s;
	enum ww_rc rc = ww_json_get_str(o, key, what, &s, err);
	for (int i = 0; rc == WW_OK && strcmp(name(i), "?"); i++)
		if (!strcmp(name(i), s)) {
			memcpy(at, &i, sizeof(i));
			return WW_OK;
		}
	return rc != WW_OK ? rc : ww_err_set(err, WW_ERR_PROTOCOL, "%s: \"%s\" is no valid %s", what, s, key);
}

#define CHOICE(name) \
	static const char *name##_name(int i) { return ww_##name##_name((enum ww_##name)i); } \
	PUT(name) { return json_string(ww_##name##_name(v->name)); } \
	GET(name) { return get_choice(o, f->key, name##_name, at, err); }
CHOICE(status)
CHOICE(rule)
CHOICE(form)

PUT(bool) { return json_boolean(*(const int *)at); }

GET(bool)
{
	if (f->attributes & NEEDED)
		return ww_json_get_bool(o, f->key, what, at, err);
	*(int *)at = ww_json_bool(o, f->key, 0);
	return WW_OK;
}

PUT(int) { return json_integer(*(const int *)at); }

GET(int)
{
	*(int *)at = (int)ww_json_int(o, f->key, 0);
	return WW_OK;
}

/* null is NAN. */
static double read_number(const json_t *o, const char *key) { return ww_json_to_real(json_object_get(o, key), NAN); }

static json_t *finite_json(double x) { return isfinite(x) ? json_real(x) : json_null(); }

PUT(finite) { return finite_json(*(const double *)at); }

PUT(real) { return isnan(*(const double *)at) ? json_null() : ww_json_real(*(const double *)at); }

GET(real)
{
	*(double *)at = read_number(o, f->key);
	return WW_OK;
}

PUT(reward) { return json_real(v->reward); }

GET(reward)
{
	enum ww_rc rc = ww_json_get_num(o, f->key, what, at, err);
	return rc != WW_OK || isfinite(v->reward)
		? rc
		: ww_err_set(err, WW_ERR_PROTOCOL, "%s: reward is not a finite number", what);
}

static json_t *times(struct ww_times t)
{
	return json_pack("{s:o, s:o}", "device_us", finite_json(t.device_us), "call_us", finite_json(t.call_us));
}

static struct ww_times read_times(const json_t *o)
{
	return (struct ww_times){ read_number(o, "device_us"), read_number(o, "call_us") };
}

PUT(times) { return times(*(const struct ww_times *)at); }

GET(times)
{
	*(struct ww_times *)at = read_times(json_object_get(o, f->key));
	return WW_OK;
}

static json_t *ratio(struct ww_ratio r)
{
	return isfinite(r.mid)
		? json_pack("{s:o, s:o, s:o}", "lo", finite_json(r.lo), "mid", finite_json(r.mid), "hi", finite_json(r.hi))
		: json_null();
}

static struct ww_ratio read_ratio(const json_t *o)
{
	return (struct ww_ratio){ read_number(o, "lo"), read_number(o, "mid"), read_number(o, "hi") };
}

PUT(ratio) { return ratio(*(const struct ww_ratio *)at); }

GET(ratio)
{
	*(struct ww_ratio *)at = read_ratio(json_object_get(o, f->key));
	return WW_OK;
}

PUT(ratios)
{
	json_t *o = json_object();
	for (int b = 0; b < WW_BASE_COUNT; b++)
		json_object_set_new(o, ww_baseline_name((enum ww_baseline)b), ratio(((const struct ww_ratio *)at)[b]));
	return o;
}

GET(ratios)
{
	for (int b = 0; b < WW_BASE_COUNT; b++)
		((struct ww_ratio *)at)[b] = read_ratio(
			json_object_get(json_object_get(o, f->key), ww_baseline_name((enum ww_baseline)b)));
	return WW_OK;
}

PUT(baselines)
{
	json_t *o = json_object();
	for (int b = 0; b < WW_BASE_COUNT; b++)
		json_object_set_new(
			o, ww_baseline_name((enum ww_baseline)b), v->baseline_measured[b] ? times(v->baselines[b]) : json_null());
	return o;
}

GET(baselines)
{
	for (int b = 0; b < WW_BASE_COUNT; b++) {
		const json_t *t = json_object_get(json_object_get(o, f->key), ww_baseline_name((enum ww_baseline)b));
		v->baseline_measured[b] = json_is_object(t);
		v->baselines[b] = read_times(t);
	}
	return WW_OK;
}

PUT(text) { return json_string(at); }

GET(text)
{
	const char *s = ww_json_str(o, f->key, "");
	enum ww_rc rc = f->attributes & NEEDED ? ww_json_get_str(o, f->key, what, &s, err) : WW_OK;
	snprintf(at, f->size, "%s", rc == WW_OK ? s : "");
	return rc;
}

PUT(diagnostics) { return json_string(v->diagnostics ? v->diagnostics : ""); }

GET(diagnostics)
{
	const char *s;
	enum ww_rc rc = ww_json_get_str(o, f->key, what, &s, err);
	if (rc == WW_OK && !(v->diagnostics = strdup(s)))
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	return rc;
}

PUT(guarantees) { return json_string(ww_form_guarantees(v->form)); }

PUT(words)
{
	json_t *a = json_array();
	for (const char *p = at; a && *p;) {
		size_t n = strcspn(p, " ");
		json_array_append_new(a, json_stringn(p, n));
		p += n + (p[n] == ' ');
	}
	return a;
}

GET(words)
{
	struct ww_str s = WW_STR_INIT(f->size - 1);
	size_t i;
	json_t *x;
	json_array_foreach(json_object_get(o, f->key), i, x)
		ww_str_addf(&s, "%s%s", i ? " " : "", json_string_value(x) ? json_string_value(x) : "");
	snprintf(at, f->size, "%s", s.p);
	ww_str_release(&s);
	return WW_OK;
}

PUT(seconds)
{
	json_t *o = json_object();
#define STAGE(member) json_object_set_new(o, #member, finite_json(v->seconds.member));
#define STEP(member) json_object_set_new(o, #member, finite_json(v->seconds.steps.member));
#include "judge/verdict.def"
	return o;
}

GET(seconds)
{
	const json_t *s = json_object_get(o, f->key);
#define STAGE(member) v->seconds.member = ww_json_num(s, #member, 0);
#define STEP(member) v->seconds.steps.member = ww_json_num(s, #member, 0);
#include "judge/verdict.def"
	return WW_OK;
}

/* ---- The object -------------------------------------------------------------------------------------------------- */

#define KIND(name, put, get) static const struct kind kind_##name = { put, get }
KIND(NONE, NULL, NULL);
KIND(STATUS, put_status, get_status);
KIND(RULE, put_rule, get_rule);
KIND(FORM, put_form, get_form);
KIND(BOOL, put_bool, get_bool);
KIND(INT, put_int, get_int);
KIND(FINITE, put_finite, get_real);
KIND(REAL, put_real, get_real);
KIND(REWARD, put_reward, get_reward);
KIND(TIMES, put_times, get_times);
KIND(RATIO, put_ratio, get_ratio);
KIND(RATIOS, put_ratios, get_ratios);
KIND(BASELINES, put_baselines, get_baselines);
KIND(TEXT, put_text, get_text);
KIND(DIAGNOSTICS, put_diagnostics, get_diagnostics);
KIND(GUARANTEES, put_guarantees, NULL);
KIND(WORDS, put_words, get_words);
KIND(SECONDS, put_seconds, get_seconds);

static const struct field fields[] = {
#define FIELD(type, member, dims, kind, key, attributes) \
	{ key, &kind_##kind, offsetof(struct ww_verdict, member), sizeof(((struct ww_verdict *)NULL)->member), attributes },
#define DERIVED(kind, key) { key, &kind_##kind, 0, 0, 0 },
#include "judge/verdict.def"
};

json_t *ww_verdict_to_json(const struct ww_verdict *v)
{
	json_t *o = json_pack("{s:i}", "version", WW_VERDICT_VERSION);
	for (size_t i = 0; i < WW_ARRAY_LEN(fields); i++)
		if (fields[i].kind->put)
			json_object_set_new(o, fields[i].key, fields[i].kind->put(v, (const char *)v + fields[i].offset));
	return o;
}

enum ww_rc ww_verdict_from_json(const json_t *o, struct ww_verdict *v, struct ww_err *err)
{
	enum ww_rc rc;
	int64_t version;

	ww_verdict_release(v);
	WW_TRY(ww_json_get_int(o, "version", what, &version, err));
	if (version != WW_VERDICT_VERSION)
		WW_TRY(ww_err_set(err, WW_ERR_PROTOCOL, "%s of version %lld, this program reads %d", what, (long long)version,
			WW_VERDICT_VERSION));
	for (size_t i = 0; i < WW_ARRAY_LEN(fields); i++)
		if (fields[i].kind->get)
			WW_TRY(fields[i].kind->get(o, &fields[i], v, (char *)v + fields[i].offset, err));
out:
	if (rc != WW_OK)
		ww_verdict_release(v);
	return rc;
}

/* ---- Flags as text ----------------------------------------------------------------------------------------------- */

struct flag {
	const char *name, *reason, *text;
};
static const struct flag flags[] = {
#define FLAG(member, kind, attributes, reason, text) { #member, reason, text },
#include "judge/verdict.def"
};

static int is_set(const json_t *verdict, const struct flag *f)
{
	const json_t *x = json_object_get(verdict, f->name);
	return json_is_true(x) || json_integer_value(x) > 0;
}

void ww_verdict_json_add_flags(const json_t *verdict, const char *before, struct ww_str *out)
{
	for (const struct flag *f = flags; f < flags + WW_ARRAY_LEN(flags); f++) {
		const char *reason = f->reason ? ww_json_str(verdict, f->reason, "") : "";
		if (!is_set(verdict, f))
			continue;
		ww_str_addf(out, "%s%s", before, f->name);
		if (*reason) {
			ww_str_adds(out, " (");
			ww_str_add_bounded(out, reason, strlen(reason), 200);
			ww_str_addc(out, ')');
		}
		ww_str_addf(out, ": %s\n", f->text);
	}
}

void ww_verdict_json_add_flag_names(const json_t *verdict, struct ww_str *out)
{
	const char *separator = "";
	for (const struct flag *f = flags; f < flags + WW_ARRAY_LEN(flags); f++)
		if (is_set(verdict, f)) {
			ww_str_addf(out, "%s%s", separator, f->name);
			separator = ", ";
		}
}

void ww_verdict_add_flags(const struct ww_verdict *v, const char *before, struct ww_str *out)
{
	json_auto_t *o = ww_verdict_to_json(v);
	ww_verdict_json_add_flags(o, before, out);
}

/* " (eager's 4e-07)", where it was measured. */
static void add_own(double own, struct ww_str *out)
{
	if (!isnan(own))
		ww_str_addf(out, " (eager's %.2g)", own);
}

void ww_verdict_json_add_errors(const json_t *verdict, struct ww_str *out)
{
	ww_str_addf(out, "relative error %.2g", ww_json_to_real(json_object_get(verdict, "err_rel"), NAN));
	add_own(ww_json_to_real(json_object_get(verdict, "eager_err_rel"), NAN), out);
	ww_str_addf(out, ", largest absolute error %.2g", ww_json_to_real(json_object_get(verdict, "err_abs"), NAN));
	add_own(ww_json_to_real(json_object_get(verdict, "eager_err_abs"), NAN), out);
	ww_str_addf(out, ", over %d draws and %d checked timed calls", (int)ww_json_int(verdict, "draws", 0),
		(int)ww_json_int(verdict, "checked_calls", 0));
}

void ww_verdict_add_errors(const struct ww_verdict *v, struct ww_str *out)
{
	json_auto_t *o = ww_verdict_to_json(v);
	ww_verdict_json_add_errors(o, out);
}

void ww_verdict_add_speedups(const struct ww_verdict *v, struct ww_str *out)
{
	for (int b = 0; b < WW_BASE_COUNT; b++)
		if (v->baseline_measured[b] && !isnan(v->speedup[b].mid))
			ww_str_addf(out, ", %.2fx %s [%.2f, %.2f]", v->speedup[b].mid, ww_baseline_name((enum ww_baseline)b),
				v->speedup[b].lo, v->speedup[b].hi);
}
