/* page.c - see page.h.  Figures come from ww_eval_summary() and ww_eval_row_of(); this file only sorts and prints them.
 */
#include "eval/page.h"

#include "base/json.h"
#include "base/mem.h"
#include "eval/summary.h"
#include "page/page.h"
#include "page/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 16, KERNEL_BENCH = 250, FEW = 3 }; /* fewer problems have no interval */

struct view {
	const struct ww_eval_run *runs;
	json_t *summaries[MAX_RUNS];
	char names[MAX_RUNS][64];
	int n;
	struct ww_str *h;
};

static void release(struct view *v)
{
	for (int i = 0; i < v->n; i++)
		json_decref(v->summaries[i]);
}

/* ---- Members of a run -------------------------------------------------------------------------------------------- */

static const json_t *config(const struct ww_eval_run *r) { return json_object_get(r->about, "config"); }
static const char *policy_of(const struct ww_eval_run *r)
{
	return ww_json_str(config(r), "policy", ww_json_str(config(r), "solutions", "?"));
}

static const json_t *score(const json_t *summary, const char *rule, const char *clock, const char *selection)
{
	const json_t *by_rule = json_object_get(json_object_get(summary, "rules"), rule);
	return json_object_get(json_object_get(json_object_get(by_rule, clock), selection), "overall");
}

static size_t n_problems(const struct ww_eval_run *r) { return json_array_size(json_object_get(r->about, "problems")); }

static const char *id_of(const struct ww_eval_run *r, size_t i)
{
	return ww_json_str(json_array_get(json_object_get(r->about, "problems"), i), "id", "");
}

static size_t n_ended(const struct ww_eval_run *r)
{
	size_t n = 0;
	for (size_t i = 0; i < n_problems(r); i++)
		n += ww_eval_run_line(r, id_of(r, i)) != NULL;
	return n;
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static void head(struct ww_str *h, const char *const *names, size_t n)
{
	ww_str_adds(h, "<div class=\"wide\"><table class=\"num\"><tr><th></th>");
	for (size_t i = 0; i < n; i++)
		ww_str_addf(h, "<th>%s</th>", names[i]);
	ww_str_adds(h, "</tr>\n");
}

static void end_table(struct ww_str *h) { ww_str_adds(h, "</table></div>\n"); }

static void row_name(struct ww_str *h, const char *name, const char *note)
{
	ww_str_adds(h, "<tr><th class=\"name\">");
	ww_page_text(h, name, 120);
	if (*note) {
		ww_str_adds(h, "<small>");
		ww_page_text(h, note, 300);
		ww_str_adds(h, "</small>");
	}
	ww_str_adds(h, "</th>");
}

static void number(struct ww_str *h, const json_t *v, const char *fmt)
{
	ww_str_adds(h, "<td>");
	if (json_is_number(v))
		ww_str_addf(h, fmt, json_number_value(v));
	else
		ww_str_adds(h, "–");
	ww_str_adds(h, "</td>");
}

static void mean(struct ww_str *h, const json_t *against)
{
	const json_t *m = json_object_get(against, "geomean");
	if (!json_is_object(m)) {
		ww_str_adds(h, "<td>–</td>");
		return;
	}
	ww_str_addf(h, "<td>%.2f", ww_json_num(m, "mid", 0));
	if (ww_json_int(against, "measured", 0) >= FEW)
		ww_str_addf(h, "<small>%.2f–%.2f</small>", ww_json_num(m, "lo", 0), ww_json_num(m, "hi", 0));
	ww_str_adds(h, "</td>");
}

static const char *const score_head[] = { "problems", "correct", "faster than eager", "faster than compile",
	"≥ 0.95 of eager", "mean over eager", "mean over compile", "mean, all", "peak share" };

static void score_row(struct ww_str *h, const char *name, const char *note, const json_t *s)
{
	const json_t *eager = json_object_get(s, "eager"), *compile = json_object_get(s, "compile");
	row_name(h, name, note);
	number(h, json_object_get(s, "problems"), "%.0f");
	number(h, json_object_get(s, "correct"), "%.0f");
	number(h, json_object_get(eager, "faster"), "%.0f");
	number(h, json_object_get(compile, "faster"), "%.0f");
	number(h, json_object_get(eager, "not_slower"), "%.0f");
	mean(h, eager);
	mean(h, compile);
	number(h, json_object_get(compile ? compile : eager, "geomean_all"), "%.2f");
	number(h, json_object_get(s, "peak_fraction"), "%.2f");
	ww_str_adds(h, "</tr>\n");
}

static void add_levels(const struct view *v, int i)
{
	const json_t *by_rule = json_object_get(json_object_get(v->summaries[i], "rules"), ww_eval_rule_of(&v->runs[i]));
	const json_t *groups = json_object_get(json_object_get(by_rule, "device"), "all");
	const char *key;
	json_t *s;
	json_object_foreach((json_t *)(uintptr_t)groups, key, s) {
		char name[96];
		snprintf(name, sizeof(name), "%s%slevel %.8s", v->n > 1 ? v->names[i] : "", v->n > 1 ? ", " : "", key);
		if (strcmp(key, "overall"))
			score_row(v->h, name, "", s);
	}
	score_row(v->h, v->n > 1 ? v->names[i] : "all", v->n > 1 ? policy_of(&v->runs[i]) : "",
		json_object_get(groups, "overall"));
}

/* The third baseline, which is measured on request. */
static void add_autotune(const struct view *v, int i)
{
	const json_t *s = json_object_get(
		score(v->summaries[i], ww_eval_rule_of(&v->runs[i]), "device", "all"), "autotune");
	const json_t *m = json_object_get(s, "geomean");
	if (!s)
		return;
	ww_str_adds(v->h, "<p>");
	ww_page_text(v->h, v->n > 1 ? v->names[i] : "All", 64);
	ww_page_textf(v->h, ", over autotune: more than 5%% faster %lld; mean %.2f, %.2f–%.2f",
		(long long)ww_json_int(s, "faster", 0), ww_json_num(m, "mid", NAN), ww_json_num(m, "lo", NAN),
		ww_json_num(m, "hi", NAN));
	ww_str_adds(v->h, "</p>\n");
}

static void add_summary(const struct view *v)
{
	ww_str_adds(v->h, "<h2>Summary</h2>\n");
	head(v->h, score_head, WW_ARRAY_LEN(score_head));
	for (int i = 0; i < v->n; i++)
		add_levels(v, i);
	end_table(v->h);
	for (int i = 0; i < v->n; i++)
		add_autotune(v, i);
	ww_str_addf(v->h,
		"<p class=\"faint\">By rule %s, on device times. Faster: by more than 5%% at the lower end of the 95%% "
		"interval. Means are "
		"geometric, over the correct, with 95%% intervals by resampling problems; in “mean, all” a problem that is "
		"not correct "
		"counts as 1.0. Peak share: the time that bytes and operations need at this device's measured peaks, over the "
		"time "
		"reached; median.</p>\n",
		ww_eval_rule_of(&v->runs[0]));
}

/* Share of all problems that are more than p times as fast. */
static void add_fast(const struct view *v)
{
	static const char *const names[] = { "1", "1.05", "1.5", "2" }, *const over[] = { "eager", "compile", "autotune" };
	static const char *const heads[] = { "p = 1", "p = 1.05", "p = 1.5", "p = 2" };
	ww_str_adds(v->h, "<h3>fast_p: correct and more than p times as fast</h3>\n");
	head(v->h, heads, WW_ARRAY_LEN(heads));
	for (int i = 0; i < v->n; i++)
		for (size_t b = 0; b < WW_ARRAY_LEN(over); b++) {
			const json_t *s = score(v->summaries[i], ww_eval_rule_of(&v->runs[i]), "device", "all");
			const json_t *fast = json_object_get(json_object_get(s, over[b]), "fast_p");
			char name[96];
			if (!fast)
				continue;
			snprintf(name, sizeof(name), "%s%sover %s", v->n > 1 ? v->names[i] : "", v->n > 1 ? ", " : "", over[b]);
			row_name(v->h, name, "");
			for (size_t p = 0; p < WW_ARRAY_LEN(names); p++)
				ww_str_addf(v->h, "<td>%.1f%%</td>",
					100 * ww_json_num(fast, names[p], 0) / fmax(1, ww_json_num(s, "problems", 1)));
			ww_str_adds(v->h, "</tr>\n");
		}
	end_table(v->h);
}

static void add_variants(const struct view *v)
{
	static const struct {
		const char *selection, *text;
	} selections[] = { { "without_degenerate", "without degenerate problems" },
		{ "without_algebraic", "without algebraic solutions" },
		{ "without_library", "without library_fused and library_only" }, { "own", "without all of these" } };
	static const char *const rules[] = { "strict", "paper" }, *const clocks[] = { "device", "call" };
	char name[128];
	ww_str_adds(v->h, "<h3>With other rules, clocks and problems</h3>\n");
	head(v->h, score_head, WW_ARRAY_LEN(score_head));
	for (int i = 0; i < v->n; i++) {
		const char *before = v->n > 1 ? v->names[i] : "", *comma = v->n > 1 ? ", " : "";
		for (size_t k = 0; k < WW_ARRAY_LEN(selections); k++) {
			snprintf(name, sizeof(name), "%s%s%s", before, comma, selections[k].text);
			score_row(v->h, name, "",
				score(v->summaries[i], ww_eval_rule_of(&v->runs[i]), "device", selections[k].selection));
		}
		for (size_t k = 0; k < 4; k++) {
			const json_t *s = score(v->summaries[i], rules[k / 2], clocks[k % 2], "all");
			snprintf(name, sizeof(name), "%s%srule %s, %s times", before, comma, rules[k / 2], clocks[k % 2]);
			if (s && (strcmp(rules[k / 2], ww_eval_rule_of(&v->runs[i])) || k % 2))
				score_row(v->h, name, "", s);
		}
	}
	end_table(v->h);
}

/* ---- Published figures ------------------------------------------------------------------------------------------- */

/* arXiv 2602.24286, tables 1 and 2: percent correct, faster than eager, than compile; geometric means over each. */
static const struct {
	const char *name, *note;
	double v[5];
} published[] = { { "CUDA Agent", "overall", { 98.8, 98.4, 96.8, 2.60, 2.11 } },
	{ "CUDA Agent", "level 1", { 100, 99, 97, 2.48, 1.87 } },
	{ "CUDA Agent", "level 2", { 100, 100, 100, 3.27, 2.80 } }, { "CUDA Agent", "level 3", { 94, 94, 90, 1.80, 1.52 } },
	{ "Claude Opus 4.5", "in the same loop, overall", { 95.2, 90.4, 66.4, 1.99, 1.46 } },
	{ "Gemini 3 Pro", "in the same loop, overall", { 91.2, 87.6, 69.6, 1.92, 1.42 } },
	{ "CUDA Agent without the loop", "single turn, overall", { 77.1, 43.5, 14.1, .89, .69 } } };

/* A run as the paper counts: by its rule and the clock around the call, where that was measured. */
static void own_row(const struct view *v, int i)
{
	const json_t *s = score(v->summaries[i], "paper", "call", "all");
	const char *clock = "rule paper, call times";
	if (!json_object_get(s, "eager")) {
		s = score(v->summaries[i], "paper", "device", "all");
		clock = "rule paper, device times";
	}
	double n = fmax(1, ww_json_num(s, "problems", 1));
	const json_t *eager = json_object_get(s, "eager"), *compile = json_object_get(s, "compile");
	row_name(v->h, v->n > 1 ? v->names[i] : "this run", clock);
	ww_str_addf(v->h, "<td>%.1f%%</td>", 100 * ww_json_num(s, "correct", 0) / n);
	for (int b = 0; b < 2; b++) {
		const json_t *a = b ? compile : eager;
		if (a)
			ww_str_addf(v->h, "<td>%.1f%%</td>", 100 * ww_json_num(a, "faster", 0) / n);
		else
			ww_str_adds(v->h, "<td>–</td>");
	}
	mean(v->h, eager);
	mean(v->h, compile);
	ww_str_adds(v->h, "</tr>\n");
}

static void add_field(const struct view *v)
{
	static const char *const heads[] = { "correct", "faster than eager", "faster than compile", "mean over eager",
		"mean over compile" };
	ww_str_adds(v->h, "<h2>Compared with published results</h2>\n");
	head(v->h, heads, WW_ARRAY_LEN(heads));
	for (int i = 0; i < v->n; i++)
		own_row(v, i);
	for (size_t k = 0; k < WW_ARRAY_LEN(published); k++) {
		const double *x = published[k].v;
		row_name(v->h, published[k].name, published[k].note);
		ww_str_addf(v->h, "<td>%.1f%%</td><td>%.1f%%</td><td>%.1f%%</td><td>%.2f</td><td>%.2f</td></tr>\n", x[0], x[1],
			x[2], x[3], x[4]);
	}
	end_table(v->h);
	ww_str_adds(v->h,
		"<p class=\"faint\">Published: arXiv 2602.24286, all 250 problems of KernelBench on H20 GPUs, five inputs at "
		"atol = rtol = "
		"1e-2, their own clock around the call in the candidate's process (5 warm-ups, 10 runs, the candidate first), "
		"200 "
		"turns; faster: by more than 5%. Here: ");
	ww_str_addf(v->h, "%zu problems of ", n_ended(&v->runs[0]));
	ww_page_text(v->h, ww_json_str(config(&v->runs[0]), "suite", "?"), 200);
	ww_str_addf(v->h, ", five draws at the same tolerance, a clock and draws that the candidate cannot reach.%s</p>\n",
		n_ended(&v->runs[0]) == KERNEL_BENCH
			? ""
			: " This is not the whole of KernelBench, so the rows cannot be compared.");
}

/* ---- Sorted speed-ups -------------------------------------------------------------------------------------------- */

static void draw_run(struct ww_plot *p, const struct view *v, int i)
{
	struct ww_eval_speed *all;
	size_t n = ww_eval_by_speed(&v->runs[i], &all), missing = n_ended(&v->runs[i]) - n;
	char title[256];
	for (size_t k = 0; k < n; k++) {
		const struct ww_ratio *s = &all[k].speedup;
		snprintf(title, sizeof(title), "%.120s: %.2f [%.2f, %.2f]", all[k].id, s->mid, s->lo, s->hi);
		ww_plot_interval(p, i, (double)(missing + k + 1), s->lo, s->hi);
		ww_plot_mark(p, WW_PLOT_DOT, i, (double)(missing + k + 1), s->mid, title);
	}
	free(all);
}

static void include_run(struct ww_plot *p, const struct ww_eval_run *r)
{
	struct ww_eval_speed *all;
	size_t n = ww_eval_by_speed(r, &all);
	for (size_t k = 0; k < n; k++)
		ww_plot_include(p, NAN, all[k].speedup.mid);
	ww_plot_include(p, 1, 1);
	ww_plot_include(p, (double)n_ended(r), NAN);
	free(all);
}

static void add_plot(const struct view *v)
{
	const char *base = ww_baseline_name(ww_eval_baseline_of(&v->runs[0]));
	char y[64];
	struct ww_plot p;
	ww_str_addf(v->h, "<h2>Speed-ups over %s, sorted</h2>\n", base);
	snprintf(y, sizeof(y), "times as fast as %s, with 95%% intervals", base);
	ww_plot_init(&p, v->h);
	for (int i = 0; i < v->n; i++)
		include_run(&p, &v->runs[i]);
	p.log_y = p.whole_x = 1;
	p.x = "problems, slowest first";
	p.y = y;
	p.label = "Sorted speed-ups";
	ww_plot_begin(&p);
	ww_plot_level(&p, 5, 1);
	for (int i = 0; i < v->n; i++)
		draw_run(&p, v, i);
	ww_plot_end(&p);
	ww_plot_legend_begin(v->h);
	for (int i = 0; i < v->n; i++)
		ww_plot_legend_mark(v->h, WW_PLOT_DOT, i, v->names[i]);
	ww_plot_legend_line(v->h, 5, 1, "as fast as the baseline");
	ww_plot_legend_end(v->h);
	ww_str_adds(
		v->h, "<p class=\"faint\">Problems that are not correct take the first numbers and have no mark.</p>\n");
}

/* ---- Families, the slowest, failures ----------------------------------------------------------------------------- */

/* A family's rows of all runs stand together. */
static void add_families(const struct view *v)
{
	json_auto_t *all = json_object();
	const char *family;
	json_t *ignored;
	for (int i = 0; i < v->n; i++)
		json_object_update_missing(all, json_object_get(v->summaries[i], "families"));
	ww_str_adds(v->h, "<h2>By kind of operator</h2>\n");
	head(v->h, score_head, WW_ARRAY_LEN(score_head));
	json_object_foreach(all, family, ignored)
		for (int i = 0; i < v->n; i++) {
			const json_t *s = json_object_get(json_object_get(v->summaries[i], "families"), family);
			if (s)
				score_row(v->h, family, v->n > 1 ? v->names[i] : "", s);
		}
	end_table(v->h);
}

static void add_slow(const struct view *v, int i)
{
	struct ww_eval_speed *all;
	size_t n = ww_eval_by_speed(&v->runs[i], &all);
	ww_str_adds(v->h, "<h2>The slowest");
	if (v->n > 1) {
		ww_str_adds(v->h, " of ");
		ww_page_text(v->h, v->names[i], 64);
	}
	ww_str_adds(v->h, "</h2>\n<ol>\n");
	for (size_t k = 0; k < n && k < WW_EVAL_SLOWEST; k++) {
		ww_str_adds(v->h, "<li><b>");
		ww_page_text(v->h, all[k].id, 200);
		ww_str_addf(v->h, "</b>, %.2f times %s [%.2f, %.2f]. ", all[k].speedup.mid,
			ww_baseline_name(ww_eval_baseline_of(&v->runs[i])), all[k].speedup.lo, all[k].speedup.hi);
		ww_page_text(v->h, ww_json_str(all[k].line, "profile", "No profile was made."), 1000);
		ww_str_adds(v->h, "</li>\n");
	}
	ww_str_adds(v->h, "</ol>\n");
	free(all);
}

static void add_failures(const struct view *v, int i)
{
	const json_t *list = json_object_get(v->summaries[i], "not_correct"), *f;
	size_t k;
	if (!json_array_size(list))
		return;
	ww_str_addf(v->h, "<h2>Not correct: %zu", json_array_size(list));
	if (v->n > 1) {
		ww_str_adds(v->h, " of ");
		ww_page_text(v->h, v->names[i], 64);
	}
	ww_str_adds(v->h, "</h2>\n<ul>\n");
	json_array_foreach(list, k, f) {
		ww_str_adds(v->h, "<li><b>");
		ww_page_text(v->h, ww_json_str(f, "id", "?"), 200);
		ww_str_adds(v->h, "</b>: ");
		ww_page_text(v->h, ww_json_str(f, "why", ""), 400);
		ww_str_adds(v->h, "</li>\n");
	}
	ww_str_adds(v->h, "</ul>\n");
}

/* ---- Each problem ------------------------------------------------------------------------------------------------ */

static void add_verdict(const struct view *v, int i, const json_t *line)
{
	const json_t *verdict = ww_eval_verdict(line, ww_eval_rule_of(&v->runs[i]));
	struct ww_eval_row row = ww_eval_row_of(line, 0, ww_eval_rule_of(&v->runs[i]), "device");
	ww_auto_str why = WW_STR_INIT(2048), flags = WW_STR_INIT(512);
	double us = ww_json_to_real(json_object_get(json_object_get(verdict, "time"), "device_us"), NAN);
	ww_str_addf(v->h, "<p class=\"%s\">", row.correct ? "good" : "bad");
	if (v->n > 1)
		ww_page_textf(v->h, "%s: ", v->names[i]);
	ww_eval_why(line, ww_eval_rule_of(&v->runs[i]), &why);
	if (row.correct)
		ww_page_textf(v->h, "correct, %.1f us", us);
	else
		ww_page_text(v->h, why.p, 400);
	for (int b = 0; row.correct && b < WW_BASE_TORCH_COUNT; b++)
		if (isfinite(row.speedup[b].mid))
			ww_page_textf(v->h, ", %.2f times %s [%.2f, %.2f]", row.speedup[b].mid,
				ww_baseline_name((enum ww_baseline)b), row.speedup[b].lo, row.speedup[b].hi);
	if (row.correct && isfinite(row.peak))
		ww_page_textf(v->h, ", %.0f%% of the peak", 100 * row.peak);
	ww_verdict_json_add_flag_names(verdict, &flags);
	if (flags.len)
		ww_page_textf(v->h, "; %s", flags.p);
	ww_str_adds(v->h, "</p>\n");
}

static void add_files(const struct view *v, int i, const json_t *line)
{
	const char *name;
	json_t *text;
	json_object_foreach(json_object_get(line, "solution"), name, text) {
		char title[256];
		snprintf(title, sizeof(title), "%s%s%.180s", v->n > 1 ? v->names[i] : "", v->n > 1 ? ": " : "", name);
		ww_page_code(v->h, title, json_string_value(text), 0);
	}
}

static void add_problem(const struct view *v, const char *id)
{
	ww_str_adds(v->h, "<h3>");
	ww_page_text(v->h, id, 200);
	ww_str_adds(v->h, "</h3>\n");
	for (int i = 0; i < v->n; i++) {
		const json_t *line = ww_eval_run_line(&v->runs[i], id);
		add_verdict(v, i, line);
		add_files(v, i, line);
	}
}

/* All problems: in the first run's order, then those that only later runs have. */
static void add_problems(const struct view *v)
{
	json_auto_t *seen = json_object();
	ww_str_adds(v->h, "<h2>Each problem and its kernels</h2>\n");
	for (int i = 0; i < v->n; i++)
		for (size_t k = 0; k < n_problems(&v->runs[i]); k++) {
			const char *id = id_of(&v->runs[i], k);
			if (json_object_get(seen, id) || !ww_eval_run_line(&v->runs[i], id))
				continue;
			add_problem(v, id);
			json_object_set_new(seen, id, json_true());
		}
}

/* ---- The page ---------------------------------------------------------------------------------------------------- */

static void add_facts(const struct view *v)
{
	for (int i = 0; i < v->n; i++) {
		const struct ww_eval_run *r = &v->runs[i];
		const json_t *machine = json_object_get(r->about, "machine");
		ww_auto_str part = WW_STR_INIT(1024);
		if (json_object_size(json_object_get(config(r), "part")))
			ww_json_add(&part, json_object_get(config(r), "part"));
		if (v->n > 1) {
			ww_str_adds(v->h, "<h3>");
			ww_page_text(v->h, v->names[i], 64);
			ww_str_adds(v->h, "</h3>\n");
		}
		ww_page_facts_begin(v->h);
		ww_page_fact(v->h, "run", "%s, begun %s", r->path, ww_json_str(r->about, "began", "?"));
		ww_page_fact(v->h, json_object_get(config(r), "policy") ? "policy" : "solutions", "%s", policy_of(r));
		ww_page_fact(v->h, "suite", "%s", ww_json_str(config(r), "suite", "?"));
		ww_page_fact(v->h, "part", "%s", part.p);
		ww_page_fact(v->h, "evaluated", "%lld of %zu problems", (long long)ww_json_int(v->summaries[i], "ended", 0),
			n_problems(r));
		ww_page_fact(v->h, "machine", "%s, PyTorch %s, warpwright %s", ww_json_str(machine, "device", "?"),
			ww_json_str(machine, "torch", "?"), ww_json_str(machine, "warpwright", "?"));
		ww_page_facts_end(v->h);
	}
}

static void set_names(struct view *v)
{
	for (int i = 0; i < v->n; i++) {
		const char *path = v->runs[i].path,
				   *name = strrchr(path, '/') && strrchr(path, '/')[1] ? strrchr(path, '/') + 1 : path;
		snprintf(v->names[i], sizeof(v->names[i]), "%.50s", name);
	}
}

enum ww_rc ww_eval_page(const struct ww_eval_run *runs, int n, struct ww_str *html, struct ww_err *err)
{
	WW_AUTO(release) struct view v = { .runs = runs, .h = html };
	char title[256];
	if (n > MAX_RUNS)
		return ww_err_set(err, WW_ERR_USAGE, "a page shows %d runs at most", MAX_RUNS);
	for (; v.n < n; v.n++)
		if (!(v.summaries[v.n] = ww_eval_summary(&runs[v.n])))
			return ww_nomem(err);
	set_names(&v);
	if (n > 1)
		snprintf(title, sizeof(title), "%d evaluations", n);
	else
		snprintf(title, sizeof(title), "Evaluation of %.100s by %.80s", ww_json_str(config(runs), "suite", "?"),
			policy_of(runs));
	ww_page_begin(html, title);
	add_facts(&v);
	add_summary(&v);
	add_plot(&v);
	add_field(&v);
	add_families(&v);
	for (int i = 0; i < n; i++)
		add_slow(&v, i);
	for (int i = 0; i < n; i++)
		add_failures(&v, i);
	ww_str_adds(html, "<h2>More figures</h2>\n");
	add_fast(&v);
	add_variants(&v);
	add_problems(&v);
	ww_page_end(html);
	return html->cut ? ww_err_set(err, WW_ERR_LIMIT, "the page would be larger than %zu bytes", html->max) : WW_OK;
}
