/* summary.c - see summary.h.  The arithmetic is ww_eval_score(); the rest decides over which rows, and prints. */
#include "eval/summary.h"

#include "base/json.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESAMPLES = 2000, MAX_LEVELS = 16, LISTED = 40 };
static const double fast_at[WW_EVAL_FAST] = { 1, 1.05, 1.5, 2 };
static const char *const fast_names[WW_EVAL_FAST] = { "1", "1.05", "1.5", "2" };

static const char *const rules[] = { "strict", "paper" }, *const clocks[] = { "device", "call" };

/* Which problems count: all, or those without a flag. */
static const struct {
	const char *name, *text;
	unsigned out;
} selections[] = { { "all", "all problems", 0 }, { "without_degenerate", "without degenerate", WW_EVAL_DEGENERATE },
	{ "without_algebraic", "without algebraic", WW_EVAL_ALGEBRAIC },
	{ "without_library", "without library_fused, library_only", WW_EVAL_LIBRARY },
	{ "own", "without all of these", WW_EVAL_DEGENERATE | WW_EVAL_ALGEBRAIC | WW_EVAL_LIBRARY } };

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

static double mean_of(const double *x, size_t n)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

/* Geometric mean of e^x[i]. */
static struct ww_ratio geometric(const double *x, size_t n)
{
	double means[RESAMPLES];
	struct ww_rng rng;
	if (!n)
		return (struct ww_ratio){ NAN, NAN, NAN };
	ww_rng_init(&rng, n, 0);
	for (int k = 0; k < RESAMPLES; k++) {
		double sum = 0;
		for (size_t i = 0; i < n; i++)
			sum += x[ww_rng_below(&rng, n)];
		means[k] = sum / (double)n;
	}
	qsort(means, RESAMPLES, sizeof(*means), ww_by_double);
	return (
		struct ww_ratio){ exp(means[RESAMPLES / 40]), exp(mean_of(x, n)), exp(means[RESAMPLES - 1 - RESAMPLES / 40]) };
}

static void score_against(const struct ww_eval_row *rows, size_t n, int b, double *logs, struct ww_eval_against *a)
{
	size_t used = 0;
	double sum = 0;
	for (size_t i = 0; i < n; i++) {
		const struct ww_ratio *s = &rows[i].speedup[b];
		if (!rows[i].correct || !isfinite(s->mid) || s->mid <= 0)
			continue;
		sum += logs[used++] = log(s->mid);
		a->faster += 1 - 1 / s->lo > 0.05;
		a->not_slower += s->mid >= 0.95;
		for (int p = 0; p < WW_EVAL_FAST; p++)
			a->fast[p] += s->mid > fast_at[p];
	}
	a->measured = (int)used;
	a->mean = geometric(logs, used);
	a->mean_all = n ? exp(sum / (double)n) : NAN;
}

void ww_eval_score(const struct ww_eval_row *rows, size_t n, struct ww_eval_score *out)
{
	ww_auto_free double *work = malloc((n + 1) * sizeof(*work));
	size_t peaks = 0;
	*out = (struct ww_eval_score){ .n = (int)n, .peak = NAN };
	if (!work)
		return;
	for (size_t i = 0; i < n; i++) {
		out->correct += rows[i].correct;
		if (rows[i].correct && isfinite(rows[i].peak))
			work[peaks++] = rows[i].peak;
	}
	out->peak = ww_median(work, peaks);
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		score_against(rows, n, b, work, &out->against[b]);
}

/* ---- A line ------------------------------------------------------------------------------------------------------ */

const json_t *ww_eval_verdict(const json_t *line, const char *rule)
{
	return json_object_get(json_object_get(line, "verdicts"), rule);
}

/* Of text that a first line announces: the line that says what happened.  That is the first one, but behind Python's
 * frames, which are indented ("|   File ..."), the exception. */
static const char *main_line(const char *text)
{
	for (const char *line = text; *line;) {
		size_t bar = *line == '|' ? strlen("| ") : 0, n = strcspn(line, "\n");
		if (n > bar && line[bar] != ' ')
			return line + bar;
		line += n + (line[n] == '\n');
	}
	return text + strspn(text, "| ");
}

/* The first line, and the main one of the others where the first only announces them. */
static void add_diagnosis(const char *text, struct ww_str *out)
{
	size_t n = strcspn(text, "\n");
	ww_str_addf(out, "%.*s", (int)n, text);
	if (n && text[n - 1] == ':' && text[n]) {
		text = main_line(text + n + 1);
		ww_str_addf(out, " %.*s", (int)strcspn(text, "\n"), text);
	}
}

void ww_eval_why(const json_t *line, const char *rule, struct ww_str *out)
{
	const json_t *v = ww_eval_verdict(line, rule);
	const char *why = ww_json_str(line, "why", ""), *diagnostics = ww_json_str(v, "diagnostics", "");
	if (ww_json_bool(v, "correct", 0))
		return;
	if (!line)
		ww_str_adds(out, "not evaluated yet");
	else if (!v)
		ww_str_addf(out, "%s%s", *why ? "" : "no solution", why);
	else {
		const char *status = ww_json_str(v, "status", "?");
		if (strncmp(diagnostics, status, strlen(status)))
			ww_str_addf(out, "%s%s", status, *diagnostics ? ": " : "");
		add_diagnosis(diagnostics, out);
	}
}

static struct ww_ratio ratio_of(const json_t *o)
{
	return (struct ww_ratio){ ww_json_to_real(json_object_get(o, "lo"), NAN),
		ww_json_to_real(json_object_get(o, "mid"), NAN), ww_json_to_real(json_object_get(o, "hi"), NAN) };
}

struct ww_eval_row ww_eval_row_of(const json_t *line, int level, const char *rule, const char *clock)
{
	const json_t *v = ww_eval_verdict(line, rule);
	const json_t *speedup = json_object_get(v, strcmp(clock, "call") ? "speedup" : "speedup_call");
	double us = ww_json_to_real(json_object_get(json_object_get(v, "time"), "device_us"), NAN);
	struct ww_eval_row r = { .level = level,
		.correct = ww_json_bool(v, "correct", 0),
		.flags = (ww_json_bool(v, "degenerate", 0) ? WW_EVAL_DEGENERATE : 0u) |
			(ww_json_bool(v, "algebraic", 0) ? WW_EVAL_ALGEBRAIC : 0u) |
			(ww_json_bool(v, "library_only", 0) || ww_json_bool(v, "library_fused", 0) ? WW_EVAL_LIBRARY : 0u),
		.peak = strcmp(clock, "call") ? ww_json_num(line, "floor_us", NAN) / us : NAN };
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		r.speedup[b] = ratio_of(json_object_get(speedup, ww_baseline_name((enum ww_baseline)b)));
	return r;
}

/* ---- By speed ---------------------------------------------------------------------------------------------------- */

static const char *config_of(const struct ww_eval_run *r, const char *key)
{
	return ww_json_str(json_object_get(r->about, "config"), key, "");
}

const char *ww_eval_rule_of(const struct ww_eval_run *r)
{
	return strcmp(config_of(r, "rule"), "paper") ? "strict" : "paper";
}

enum ww_baseline ww_eval_baseline_of(const struct ww_eval_run *r)
{
	return strstr(config_of(r, "baselines"), "compile") ? WW_BASE_COMPILE : WW_BASE_EAGER;
}

static int slowest_first(const void *a, const void *b)
{
	double x = ((const struct ww_eval_speed *)a)->speedup.mid, y = ((const struct ww_eval_speed *)b)->speedup.mid;
	return (x > y) - (x < y);
}

size_t ww_eval_by_speed(const struct ww_eval_run *r, struct ww_eval_speed **out)
{
	const json_t *problems = json_object_get(r->about, "problems"), *problem;
	size_t k = 0, i;
	*out = calloc(json_array_size(problems) + 1, sizeof(**out));
	json_array_foreach(problems, i, problem) {
		const char *id = ww_json_str(problem, "id", "");
		const json_t *line = ww_eval_run_line(r, id);
		struct ww_eval_row row = ww_eval_row_of(line, 0, ww_eval_rule_of(r), "device");
		struct ww_ratio s = row.speedup[ww_eval_baseline_of(r)];
		if (*out && row.correct && isfinite(s.mid) && s.mid > 0)
			(*out)[k++] = (struct ww_eval_speed){ id, s, line };
	}
	if (k)
		qsort(*out, k, sizeof(**out), slowest_first);
	return k;
}

/* ---- The object -------------------------------------------------------------------------------------------------- */

static json_t *ratio_json(struct ww_ratio r)
{
	if (!isfinite(r.mid))
		return json_null();
	return json_pack("{s:f, s:f, s:f}", "lo", r.lo, "mid", r.mid, "hi", r.hi);
}

static json_t *real_or_null(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *against_json(const struct ww_eval_against *a)
{
	json_t *fast = json_object();
	for (int p = 0; p < WW_EVAL_FAST; p++)
		json_object_set_new(fast, fast_names[p], json_integer(a->fast[p]));
	return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o}", "measured", a->measured, "faster", a->faster, "not_slower",
		a->not_slower, "fast_p", fast, "geomean", ratio_json(a->mean), "geomean_all", real_or_null(a->mean_all));
}

static json_t *score_json(const struct ww_eval_row *rows, size_t n)
{
	struct ww_eval_score s;
	ww_eval_score(rows, n, &s);
	json_t *o = json_pack(
		"{s:i, s:i, s:o}", "problems", s.n, "correct", s.correct, "peak_fraction", real_or_null(s.peak));
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (s.against[b].measured)
			json_object_set_new(o, ww_baseline_name((enum ww_baseline)b), against_json(&s.against[b]));
	return o;
}

/* The rows of a level (0: all) without those of a flag in `out`, into `to`. */
static size_t choose(const struct ww_eval_row *rows, size_t n, int level, unsigned out, struct ww_eval_row *to)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if ((!level || rows[i].level == level) && !(rows[i].flags & out))
			to[k++] = rows[i];
	return k;
}

static json_t *groups_json(const struct ww_eval_row *rows, size_t n, unsigned out, struct ww_eval_row *work)
{
	json_t *o = json_object();
	char name[16];
	json_object_set_new(o, "overall", score_json(work, choose(rows, n, 0, out, work)));
	for (int level = 1; level <= MAX_LEVELS; level++) {
		size_t k = choose(rows, n, level, out, work);
		snprintf(name, sizeof(name), "%d", level);
		if (k)
			json_object_set_new(o, name, score_json(work, k));
	}
	return o;
}

static const json_t *problem(const struct ww_eval_run *r, size_t i)
{
	return json_array_get(json_object_get(r->about, "problems"), i);
}

static const json_t *line_of(const struct ww_eval_run *r, size_t i)
{
	return ww_eval_run_line(r, ww_json_str(problem(r, i), "id", ""));
}

/* One rule, one clock. */
static json_t *selections_json(const struct ww_eval_run *r, size_t n, const char *rule, const char *clock)
{
	ww_auto_free struct ww_eval_row *rows = calloc(2 * n + 1, sizeof(*rows));
	json_t *o = json_object();
	size_t ended = 0;
	for (size_t i = 0; rows && i < n; i++)
		if (line_of(r, i))
			rows[ended++] = ww_eval_row_of(line_of(r, i), (int)ww_json_int(problem(r, i), "level", 0), rule, clock);
	for (size_t k = 0; rows && k < WW_ARRAY_LEN(selections); k++)
		json_object_set_new(o, selections[k].name, groups_json(rows, ended, selections[k].out, rows + n));
	return o;
}

static int has_rule(const struct ww_eval_run *r, size_t n, const char *rule)
{
	for (size_t i = 0; i < n; i++)
		if (ww_eval_verdict(line_of(r, i), rule))
			return 1;
	return !strcmp(ww_json_str(json_object_get(r->about, "config"), "rule", ""), rule);
}

static json_t *families_json(const struct ww_eval_run *r, size_t n, const char *rule)
{
	ww_auto_free struct ww_eval_row *rows = calloc(n + 1, sizeof(*rows));
	json_t *o = json_object();
	for (size_t i = 0; rows && i < n; i++) {
		const char *family = ww_json_str(line_of(r, i), "family", NULL);
		size_t k = 0;
		if (!family || json_object_get(o, family))
			continue;
		for (size_t j = i; j < n; j++)
			if (!strcmp(ww_json_str(line_of(r, j), "family", ""), family))
				rows[k++] = ww_eval_row_of(line_of(r, j), 0, rule, "device");
		json_object_set_new(o, family, score_json(rows, k));
	}
	return o;
}

static json_t *not_correct_json(const struct ww_eval_run *r, size_t n, const char *rule)
{
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++) {
		ww_auto_str why = WW_STR_INIT(1024);
		ww_eval_why(line_of(r, i), rule, &why);
		if (why.len && line_of(r, i))
			json_array_append_new(
				list, json_pack("{s:s, s:s}", "id", ww_json_str(problem(r, i), "id", ""), "why", why.p));
	}
	return list;
}

json_t *ww_eval_summary(const struct ww_eval_run *r)
{
	const json_t *config = json_object_get(r->about, "config"), *machine = json_object_get(r->about, "machine");
	size_t n = json_array_size(json_object_get(r->about, "problems")), ended = 0;
	const char *main_rule = ww_json_str(config, "rule", "strict");
	json_t *by_rule = json_object();
	for (size_t i = 0; i < n; i++)
		ended += line_of(r, i) != NULL;
	for (size_t k = 0; k < WW_ARRAY_LEN(rules); k++) {
		if (!has_rule(r, n, rules[k]))
			continue;
		json_t *by_clock = json_object();
		for (size_t c = 0; c < WW_ARRAY_LEN(clocks); c++)
			json_object_set_new(by_clock, clocks[c], selections_json(r, n, rules[k], clocks[c]));
		json_object_set_new(by_rule, rules[k], by_clock);
	}
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "run", r->path, "suite",
		ww_json_str(config, "suite", "?"), "policy",
		ww_json_str(config, "policy", ww_json_str(config, "solutions", "?")), "rule", main_rule, "device",
		ww_json_str(machine, "device", "?"), "problems", (json_int_t)n, "ended", (json_int_t)ended, "rules", by_rule,
		"families", families_json(r, n, main_rule), "not_correct", not_correct_json(r, n, main_rule));
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static void add_mean(struct ww_str *out, const json_t *v, int width)
{
	if (json_is_number(v))
		ww_str_addf(out, " %*.2f", width - 1, json_number_value(v));
	else
		ww_str_addf(out, " %*s", width - 1, "-");
}

static void add_count(struct ww_str *out, const json_t *o, const char *key, int width)
{
	if (o)
		ww_str_addf(out, " %*lld", width - 1, (long long)ww_json_int(o, key, 0));
	else
		ww_str_addf(out, " %*s", width - 1, "-");
}

static void add_row(struct ww_str *out, const char *name, const json_t *score)
{
	const json_t *eager = json_object_get(score, "eager"), *compile = json_object_get(score, "compile");
	ww_str_addf(out, "  %-14s", name);
	add_count(out, score, "problems", 5);
	add_count(out, score, "correct", 8);
	add_count(out, eager, "faster", 8);
	add_count(out, compile, "faster", 9);
	add_count(out, eager, "not_slower", 7);
	add_mean(out, json_object_get(json_object_get(eager, "geomean"), "mid"), 8);
	add_mean(out, json_object_get(json_object_get(compile, "geomean"), "mid"), 9);
	add_mean(out, json_object_get(compile ? compile : eager, "geomean_all"), 6);
	add_mean(out, json_object_get(score, "peak_fraction"), 6);
	ww_str_addc(out, '\n');
}

static void add_groups(struct ww_str *out, const json_t *groups)
{
	const char *key;
	json_t *score;
	json_object_foreach((json_t *)(uintptr_t)groups, key, score) {
		char name[32];
		snprintf(name, sizeof(name), strcmp(key, "overall") ? "level %s" : "%s", key);
		if (strcmp(key, "overall"))
			add_row(out, name, score);
	}
	add_row(out, "overall", json_object_get(groups, "overall"));
}

/* fast_p: the share of all problems that are more than p times as fast as a baseline. */
static void add_fast(struct ww_str *out, const json_t *score, const char *baseline)
{
	const json_t *fast = json_object_get(json_object_get(score, baseline), "fast_p");
	double n = ww_json_num(score, "problems", 0);
	if (!fast || n <= 0)
		return;
	ww_str_addf(out, "  fast_p over %-8s", baseline);
	for (int p = 0; p < WW_EVAL_FAST; p++)
		ww_str_addf(out, "  p = %s: %.1f%%", fast_names[p], 100 * ww_json_num(fast, fast_names[p], 0) / n);
	ww_str_addc(out, '\n');
}

/* The table has no room for the third baseline, which is measured on request. */
static void add_autotune(struct ww_str *out, const json_t *score)
{
	const json_t *a = json_object_get(score, "autotune"), *mean = json_object_get(a, "geomean");
	if (a)
		ww_str_addf(out, "  more than 5%% faster than autotune: %lld; geometric mean %.2f [%.2f, %.2f]\n",
			(long long)ww_json_int(a, "faster", 0), ww_json_num(mean, "mid", NAN), ww_json_num(mean, "lo", NAN),
			ww_json_num(mean, "hi", NAN));
}

static void add_selections(struct ww_str *out, const json_t *by_selection)
{
	for (size_t k = 1; k < WW_ARRAY_LEN(selections); k++) {
		const json_t *s = json_object_get(json_object_get(by_selection, selections[k].name), "overall");
		const json_t *eager = json_object_get(s, "eager"), *compile = json_object_get(s, "compile");
		ww_str_addf(out, "  %-36s", selections[k].text);
		add_count(out, s, "problems", 5);
		ww_str_adds(out, " problems, geometric mean");
		add_mean(out, json_object_get(json_object_get(eager, "geomean"), "mid"), 6);
		add_mean(out, json_object_get(json_object_get(compile, "geomean"), "mid"), 6);
		ww_str_addc(out, '\n');
	}
}

static const char head[] = "                                 faster than  >= 0.95   geometric mean   mean  peak\n"
						   "                   all correct   eager  compile  eager   eager  compile  all  share\n";

static const json_t *overall_of(const json_t *by_selection)
{
	return json_object_get(json_object_get(by_selection, "all"), "overall");
}

/* The run's own rule on device times in full. */
static void add_main(struct ww_str *out, const json_t *s, const char *rule)
{
	const json_t *by_selection = json_object_get(json_object_get(json_object_get(s, "rules"), rule), "device");
	ww_str_addf(out, "\nrule %s, device times\n%s", rule, head);
	add_groups(out, json_object_get(by_selection, "all"));
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		add_fast(out, overall_of(by_selection), ww_baseline_name((enum ww_baseline)b));
	add_autotune(out, overall_of(by_selection));
	add_selections(out, by_selection);
}

/* The other rule and the other clock, overall. */
static void add_others(struct ww_str *out, const json_t *s, const char *main_rule)
{
	const char *rule, *clock;
	json_t *by_clock, *by_selection;
	ww_str_adds(out, "\nall problems by rule and clock\n");
	json_object_foreach(json_object_get(s, "rules"), rule, by_clock)
		json_object_foreach(by_clock, clock, by_selection) {
			char name[32];
			snprintf(name, sizeof(name), "%s, %s", rule, clock);
			if (strcmp(rule, main_rule) || strcmp(clock, "device"))
				add_row(out, name, overall_of(by_selection));
		}
}

/* A member of run.json, which may have been edited: one line, bounded. */
static void add_member(struct ww_str *out, const json_t *s, const char *key)
{
	ww_str_add_line(out, ww_json_str(s, key, "?"), 200);
}

void ww_eval_summary_text(const json_t *s, struct ww_str *out)
{
	const char *rule = strcmp(ww_json_str(s, "rule", ""), "paper") ? "strict" : "paper";
	json_t *f;
	size_t i, n = json_array_size(json_object_get(s, "not_correct"));
	long long ended = ww_json_int(s, "ended", 0), all = ww_json_int(s, "problems", 0);
	add_member(out, s, "suite");
	ww_str_adds(out, " by ");
	add_member(out, s, "policy");
	ww_str_adds(out, " on ");
	add_member(out, s, "device");
	ww_str_addf(
		out, ": %lld of %lld problems evaluated%s\n", ended, all, ended < all ? "; the others do not count" : "");
	add_main(out, s, rule);
	add_others(out, s, rule);
	if (n)
		ww_str_addf(out, "\nnot correct by %s, counted as 1.0 in the mean over all: %zu\n", rule, n);
	json_array_foreach(json_object_get(s, "not_correct"), i, f)
		if (i < LISTED) {
			ww_auto_str id = WW_STR_INIT(256);
			add_member(&id, f, "id");
			ww_str_addf(out, "  %-28s ", id.p);
			ww_str_add_line(out, ww_json_str(f, "why", ""), 120);
			ww_str_addc(out, '\n');
		}
	if (n > LISTED)
		ww_str_addf(out, "  and %zu more (--json lists them)\n", n - LISTED);
}
