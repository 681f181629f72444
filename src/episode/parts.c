/* parts.c - a search as a curve, a verdict as a table.
 *
 * The curve: one mark for each verdict of the policy's own, at the second when it was given; a line for the best so
 * far; a ring for the closing judgement, which is measured anew and so may lie above the line; a dashed line for each
 * baseline; a cross at the bottom for what was not correct.  Where the slowest takes 8 times the fastest or more, the
 * axis is logarithmic. */
#include "episode/parts.h"

#include "base/json.h"
#include "episode/view.h"
#include "judge/verdict.h"
#include "page/page.h"
#include "page/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int episode_colors[] = { 0, 4, 5, 3 }, baseline_colors[WW_BASE_COUNT] = { 1, 2, 3, 3 };

static int color_of(size_t episode) { return episode_colors[episode % WW_ARRAY_LEN(episode_colors)]; }

double ww_episode_time_us(const json_t *v)
{
	return ww_json_bool(v, "correct", 0) ? ww_json_num(json_object_get(v, "time"), "device_us", NAN) : NAN;
}

static double baseline_us(const json_t *v, int b)
{
	const json_t *all = json_object_get(v, "baselines");
	return ww_json_num(json_object_get(all, ww_baseline_name((enum ww_baseline)b)), "device_us", NAN);
}

static int is_closing(const struct ww_episode_verdict *v) { return !strncmp(v->call_id, "final", 5); }

static int failed(const struct ww_episode_verdict *v)
{
	return strcmp(ww_json_str(v->verdict, "status", "ok"), "ok") != 0;
}

const json_t *ww_episode_best_verdict(const struct ww_episode *e)
{
	const json_t *best = NULL;
	for (size_t i = 0; i < e->n_verdicts; i++) {
		const struct ww_episode_verdict *v = &e->verdicts[i];
		if (isnan(ww_episode_time_us(v->verdict)))
			continue;
		if (e->ended ? is_closing(v) && !strcmp(v->solution, e->end.best)
					 : !best || ww_episode_time_us(v->verdict) < ww_episode_time_us(best))
			best = v->verdict;
	}
	return best;
}

/* ---- The curve --------------------------------------------------------------------------------------------------- */

struct curve {
	const struct ww_episode *e;
	size_t n;
	const json_t *best;
	struct ww_plot plot;
	double unit; /* microseconds in one unit of the axis */
	int timed, failures;
};

static void measure(struct curve *c)
{
	for (size_t k = 0; k < c->n; k++)
		for (size_t i = 0; i < c->e[k].n_verdicts; i++) {
			const struct ww_episode_verdict *v = &c->e[k].verdicts[i];
			double us = ww_episode_time_us(v->verdict);
			c->timed += !isnan(us);
			c->failures += failed(v);
			ww_plot_include(&c->plot, v->t, us);
		}
	ww_plot_include(&c->plot, 0, NAN);
	for (int b = 0; b < WW_BASE_COUNT; b++)
		ww_plot_include(&c->plot, NAN, baseline_us(c->best, b));
}

static void draw_best(struct curve *c, size_t k)
{
	const struct ww_episode *e = &c->e[k];
	ww_auto_free struct ww_plot_point *at = calloc(2 * e->n_verdicts + 1, sizeof(*at));
	double best = NAN;
	size_t n = 0;
	for (size_t i = 0; at && i < e->n_verdicts; i++) {
		double us = ww_episode_time_us(e->verdicts[i].verdict) / c->unit, t = e->verdicts[i].t;
		if (is_closing(&e->verdicts[i]) || isnan(us) || us >= best)
			continue;
		if (n)
			at[n++] = (struct ww_plot_point){ t, best };
		at[n++] = (struct ww_plot_point){ t, best = us };
	}
	if (n)
		at[n++] = (struct ww_plot_point){ e->seconds, best };
	ww_plot_line(&c->plot, color_of(k), at, n);
}

static void draw_mark(struct curve *c, size_t k, const struct ww_episode_verdict *v)
{
	ww_auto_str title = WW_STR_INIT(600);
	double us = ww_episode_time_us(v->verdict) / c->unit;
	if (isnan(us) && !failed(v))
		return;
	if (c->n > 1)
		ww_str_addf(&title, "episode %zu, ", k + 1);
	ww_str_addf(&title, "turn %d, %.1f s: ", v->turn, v->t);
	ww_episode_verdict_line(v->verdict, &title);
	ww_plot_mark(&c->plot,
		isnan(us)           ? WW_PLOT_MISS
			: is_closing(v) ? WW_PLOT_RING
							: WW_PLOT_DOT,
		color_of(k), v->t, us, title.p);
}

static void add_legend(struct curve *c)
{
	struct ww_str *h = c->plot.out;
	char text[128];
	ww_plot_legend_begin(h);
	for (size_t k = 0; k < c->n && c->n > 1; k++) {
		snprintf(text, sizeof(text), "episode %zu, best so far", k + 1);
		ww_plot_legend_line(h, color_of(k), 0, text);
	}
	if (c->n == 1)
		ww_plot_legend_line(h, 0, 0, "best so far");
	for (int b = 0; b < WW_BASE_COUNT; b++)
		if (!isnan(baseline_us(c->best, b))) {
			snprintf(text, sizeof(text), "%s, %.1f us", ww_baseline_name((enum ww_baseline)b), baseline_us(c->best, b));
			ww_plot_legend_line(h, baseline_colors[b], 1, text);
		}
	ww_plot_legend_mark(h, WW_PLOT_DOT, 0, "correct");
	ww_plot_legend_mark(h, WW_PLOT_RING, 0, "closing judgement");
	snprintf(text, sizeof(text), "not correct (%d), at its second", c->failures);
	if (c->failures)
		ww_plot_legend_mark(h, WW_PLOT_MISS, 0, text);
	ww_plot_legend_end(h);
}

static void scale(struct curve *c)
{
	struct ww_plot *p = &c->plot;
	c->unit = p->y1 >= 1e4 ? 1e3 : 1;
	p->y0 /= c->unit;
	p->y1 /= c->unit;
	p->log_y = p->y0 > 0 && p->y1 / p->y0 >= 8;
	p->from_zero = !p->log_y;
	p->x = "seconds of the episode";
	p->y = c->unit > 1 ? (p->log_y ? "device time, ms (logarithmic)" : "device time, ms")
					   : (p->log_y ? "device time, us (logarithmic)" : "device time, us");
	p->label = "device time of each solution over the seconds of the search";
}

void ww_episode_html_curve(struct ww_str *h, const struct ww_episode *e, size_t n, const json_t *best)
{
	struct curve c = { .e = e, .n = n, .best = best };
	ww_plot_init(&c.plot, h);
	measure(&c);
	if (!c.timed) {
		ww_page_textf(h, "No solution was correct and timed; %d were not correct.", c.failures);
		return;
	}
	scale(&c);
	ww_plot_begin(&c.plot);
	for (int b = 0; b < WW_BASE_COUNT; b++)
		if (!isnan(baseline_us(best, b)))
			ww_plot_level(&c.plot, baseline_colors[b], baseline_us(best, b) / c.unit);
	for (size_t k = 0; k < n; k++)
		draw_best(&c, k);
	for (size_t k = 0; k < n; k++)
		for (size_t i = 0; i < e[k].n_verdicts; i++)
			draw_mark(&c, k, &e[k].verdicts[i]);
	ww_plot_end(&c.plot);
	add_legend(&c);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void add_us(struct ww_str *h, double us)
{
	if (isnan(us))
		ww_str_adds(h, "-");
	else
		ww_str_addf(h, "%.1f", us);
}

static void add_ratio(struct ww_str *h, const json_t *ratio)
{
	double mid = ww_json_num(ratio, "mid", NAN);
	ww_str_adds(h, "<td>");
	if (!isnan(mid))
		ww_str_addf(
			h, "%.2fx<small>[%.2f, %.2f]</small>", mid, ww_json_num(ratio, "lo", NAN), ww_json_num(ratio, "hi", NAN));
	ww_str_adds(h, "</td>");
}

static void add_row(struct ww_str *h, const char *name, const json_t *times, const json_t *interval,
	const json_t *device, const json_t *call)
{
	ww_str_addf(h, "<tr%s><th>%s</th><td>", interval ? " class=\"ours\"" : "", name);
	add_us(h, ww_json_num(times, "device_us", NAN));
	if (!isnan(ww_json_num(interval, "lo", NAN)))
		ww_str_addf(
			h, "<small>[%.1f, %.1f]</small>", ww_json_num(interval, "lo", NAN), ww_json_num(interval, "hi", NAN));
	ww_str_adds(h, "</td><td>");
	add_us(h, ww_json_num(times, "call_us", NAN));
	ww_str_adds(h, "</td>");
	add_ratio(h, device);
	add_ratio(h, call);
	ww_str_adds(h, "</tr>\n");
}

static void add_times(struct ww_str *h, const json_t *v)
{
	ww_str_adds(h,
		"<table class=\"num\"><tr><th></th><th>device us</th><th>call us</th><th>ours is faster, device</th>"
		"<th>ours is faster, call</th></tr>\n");
	for (int b = 0; b < WW_BASE_COUNT; b++) {
		const char *name = ww_baseline_name((enum ww_baseline)b);
		const json_t *times = json_object_get(json_object_get(v, "baselines"), name);
		if (json_is_object(times))
			add_row(h, name, times, NULL, json_object_get(json_object_get(v, "speedup"), name),
				json_object_get(json_object_get(v, "speedup_call"), name));
	}
	add_row(h, "ours", json_object_get(v, "time"), json_object_get(v, "time_device"), NULL, NULL);
	ww_str_adds(h, "</table>\n");
}

static void add_flags(struct ww_str *h, const json_t *v)
{
	ww_auto_str lines = WW_STR_INIT(8192);
	ww_verdict_json_add_flags(v, "", &lines);
	if (lines.len)
		ww_str_adds(h, "<ul class=\"flags\">\n");
	for (const char *p = lines.p; *p;) {
		size_t n = strcspn(p, "\n");
		ww_str_adds(h, "<li>");
		ww_page_textf(h, "%.*s", (int)n, p);
		ww_str_adds(h, "</li>\n");
		p += n + (p[n] == '\n');
	}
	if (lines.len)
		ww_str_adds(h, "</ul>\n");
}

static void add_floor(struct ww_str *h, const json_t *v)
{
	double floor_us = ww_json_num(v, "floor_us", NAN), us = ww_episode_time_us(v);
	if (floor_us > 0)
		ww_page_fact(
			h, "floor", "%.1f us for the bytes that must be moved: %.0f%% of the time", floor_us, 100 * floor_us / us);
}

static const char *method_text(const char *method)
{
	return !strcmp(method, "graph")  ? "of a captured CUDA graph"
		: !strcmp(method, "parts")   ? "the sum of CUDA graphs, of the kernels and of what PyTorch runs between them"
		: !strcmp(method, "kernels") ? "of a captured CUDA graph; of a baseline the sum of its kernels' times"
		: !strcmp(method, "parts+kernels")
		? "the sum of CUDA graphs, of the kernels and of what PyTorch runs between them; of a baseline the sum of its "
		  "kernels' times"
		: !strcmp(method, "clock") ? "by the judge's clock around one call"
								   : method;
}

void ww_episode_html_verdict(struct ww_str *h, const json_t *v)
{
	struct ww_str errors = WW_STR_INIT(512);
	if (!ww_json_bool(v, "correct", 0)) {
		ww_episode_html_verdict_line(h, "", v);
		return;
	}
	add_times(h, v);
	ww_str_adds(h, "<p class=\"faint\">In brackets: 95% intervals. Speed-ups count at their lower end.</p>\n");
	add_flags(h, v);
	ww_page_facts_begin(h);
	ww_page_fact(h, "reward", "%g", ww_json_num(v, "reward", -1));
	ww_verdict_json_add_errors(v, &errors);
	ww_page_fact(h, "correct", "by rule %s: %s", ww_json_str(v, "rule", "?"), errors.p);
	ww_str_release(&errors);
	add_floor(h, v);
	ww_page_fact(h, "device time", "%s", method_text(ww_json_str(v, "device_method", "")));
	if (strcmp(ww_json_str(v, "form", "plan"), "plan"))
		ww_page_fact(h, "guarantees", "%s: %s", ww_json_str(v, "form", "?"), ww_json_str(v, "guarantees", ""));
	ww_page_facts_end(h);
}

void ww_episode_html_verdict_line(struct ww_str *h, const char *before, const json_t *v)
{
	ww_auto_str line = WW_STR_INIT(600);
	ww_episode_verdict_line(v, &line);
	ww_str_addf(h, "<p class=\"%s\">", strcmp(ww_json_str(v, "status", "?"), "ok") ? "bad" : "good");
	ww_page_text(h, before, 200);
	ww_page_text(h, line.p, 600);
	ww_str_adds(h, "</p>\n");
}

void ww_episode_html_files(struct ww_str *h, const struct ww_episode_solution *s)
{
	for (size_t i = 0; s && i < s->n_files; i++)
		ww_page_code(h, s->files[i].path, s->files[i].text, 0);
}
