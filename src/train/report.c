/* report.c - the log of a training run as a page (src/page).
 *
 * A long run has more steps than a plot has pixels.  So steps are grouped into at most BUCKETS columns: the line is the
 * mean of each, the band behind it the range, so that one bad step in a million stays visible.  Several runs share each
 * plot as lines without bands. */
#include "train/report.h"
#include "base/fs.h"
#include "base/json.h"
#include "page/page.h"
#include "page/plot.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_MAX = 1 << 30, JSON_MAX = 1 << 20, BUCKETS = 600, SKIPS_DRAWN = 200, LAST_STEPS = 10 };

enum {
	REWARD,
	PASS,
	FASTER_EAGER,
	FASTER_COMPILE,
	MIXED,
	WITHIN,
	ENTROPY,
	EXPLAINED,
	EXPLAINED_MIDDLE,
	VALUE_LOSS,
	LOSS,
	LR,
	NORM,
	CRITIC_NORM,
	RATIO_MAX,
	RATIO_MIN,
	CLIPPED,
	KL,
	TURNS,
	CUT,
	INVALID,
	SPEED,
	VERDICTS,
	GENERATING,
	LEARNING,
	JUDGING,
	IDLE,
	SERIES
};
static const struct {
	const char *key, *title, *unit;
	int from_zero;
	int is_optional; /* not drawn where no step has it */
	/* Not NULL: the series is one of several in a plot, and this its legend.  The plot begins with the one that has a
	 * title; the others follow it without. */
	const char *legend;
} series[SERIES] = { [REWARD] = { "reward", "Reward", "mean over the step's episodes", 0, 1, NULL },
	[PASS] = { "pass", "Milestones", "share of the step's episodes", 1, 1, "correct" },
	[FASTER_EAGER] = { "faster_eager", NULL, NULL, 1, 1, "faster than eager" },
	[FASTER_COMPILE] = { "faster_compile", NULL, NULL, 1, 1, "faster than torch.compile too" },
	[MIXED] = { "mixed_share", "What a task's samples differ by", "share", 1, 1, "tasks of different rewards" },
	[WITHIN] = { "within", NULL, NULL, 1, 1, "of the rewards' variance" },
	[ENTROPY] = { "entropy", "Entropy", "of the policy at its own tokens, in nats", 1, 1, NULL },
	[EXPLAINED] = { "explained", "Explained variance", "part of the reward's variance that the critic explains", 0, 1,
		"over all own tokens" },
	[EXPLAINED_MIDDLE] = { "explained_middle", NULL, NULL, 0, 1, "at each episode's middle token" },
	[VALUE_LOSS] = { "value_loss", "Loss of the critic", "half mean squared error", 1, 1, NULL },
	[LOSS] = { "loss", "Loss", "-log p of a token, mean, in nats; of a policy its objective", 0, 1, NULL },
	[LR] = { "lr", "Learning rate", "learning rate", 1, 0, NULL },
	[NORM] = { "norm", "Norm of the gradient", "norm before clipping", 1, 1, "model" },
	[CRITIC_NORM] = { "critic_norm", NULL, NULL, 1, 1, "critic" },
	[RATIO_MAX] = { "ratio_max", "Ratios", "new by recorded probability of an own token", 0, 1, "largest" },
	[RATIO_MIN] = { "ratio_min", NULL, NULL, 0, 1, "smallest" },
	[CLIPPED] = { "clipped", "Clipped tokens", "share of the own tokens", 1, 1, NULL },
	[KL] = { "kl", "Distance from the reference", "r - 1 - log r of an own token, mean", 1, 1, NULL },
	[TURNS] = { "turns", "Turns", "replies of an episode, mean", 1, 1, NULL },
	[CUT] = { "cut_share", "Cut off and invalid", "share", 1, 1, "episodes cut off by a length" },
	[INVALID] = { "invalid_share", NULL, NULL, 1, 1, "calls that were not valid" },
	[SPEED] = { "tokens_per_second", "Tokens per second", "tokens per second", 1, 0, NULL },
	[VERDICTS] = { "verdicts_per_second", "Verdicts per second", "of the judge, while episodes are sampled", 1, 1,
		NULL },
	[GENERATING] = { "generating_seconds", "Time", "seconds of a device a step", 1, 1, "generating" },
	[LEARNING] = { "learning_seconds", NULL, NULL, 1, 1, "learning" },
	[JUDGING] = { "judging_seconds", NULL, NULL, 1, 1, "judging" },
	[IDLE] = { "idle_seconds", NULL, NULL, 1, 1, "idle" } };

struct log {
	double *step, *y[SERIES];
	size_t n, cap;
	double *skipped; /* steps */
	size_t skips;
	double seconds, tokens, device_bytes;
	json_t *first, *last; /* lines */
};

static void log_release(struct log *l)
{
	json_decref(l->first);
	json_decref(l->last);
	free(l->step);
	free(l->skipped);
	for (int k = 0; k < SERIES; k++)
		free(l->y[k]);
}

static int grow(struct log *l)
{
	size_t cap = l->cap ? 2 * l->cap : 1024;
	for (int i = 0; i < SERIES + 2; i++) {
		double **to = i < SERIES ? &l->y[i] : i == SERIES ? &l->step : &l->skipped;
		double *p = realloc(*to, cap * sizeof(*p));
		if (!p)
			return 0;
		*to = p;
	}
	l->cap = cap;
	return 1;
}

static enum ww_rc add_line(struct log *l, const char *line, size_t n, const char *path, struct ww_err *err)
{
	json_auto_t *v = NULL;
	WW_CHECK(ww_json_parse(line, n, path, &v, err));
	if (l->n == l->cap && !grow(l))
		return ww_nomem(err);
	l->step[l->n] = ww_json_num(v, "step", 0);
	for (int k = 0; k < SERIES; k++)
		l->y[k][l->n] = ww_json_to_real(json_object_get(v, series[k].key), NAN);
	if (json_is_string(json_object_get(v, "skipped")))
		l->skipped[l->skips++] = l->step[l->n];
	l->seconds += ww_json_num(v, "seconds", 0);
	l->tokens = ww_json_num(v, "total_tokens", 0);
	l->device_bytes = ww_json_num(v, "device_bytes", 0);
	l->n++;
	if (!l->first)
		l->first = json_incref(v);
	json_decref(l->last);
	l->last = json_incref(v);
	return WW_OK;
}

static enum ww_rc read_log(const char *run, struct log *l, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(LOG_MAX);
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, run, "log.jsonl", err));
	WW_CHECK(ww_fs_read(path, LOG_MAX, &text, err));
	for (const char *p = text.p, *nl; (nl = memchr(p, '\n', (size_t)(text.p + text.len - p))); p = nl + 1)
		WW_CHECK(add_line(l, p, (size_t)(nl - p), path, err));
	if (!l->n)
		return ww_err_set(err, WW_ERR_USAGE, "%s holds no step yet; try again after the first", path);
	return WW_OK;
}

/* ---- plots */

struct bucket {
	double x, sum, low, high;
	int n;
};

static int gather(const struct log *l, int k, struct bucket *b)
{
	size_t per = (l->n + BUCKETS - 1) / BUCKETS;
	int count = 0;
	for (size_t i = 0; i < l->n; i += per) {
		struct bucket *q = &b[count];
		*q = (struct bucket){ .low = INFINITY, .high = -INFINITY };
		for (size_t j = i; j < i + per && j < l->n; j++) {
			double y = l->y[k][j];
			if (!isfinite(y))
				continue;
			q->x += l->step[j];
			q->sum += y;
			q->low = fmin(q->low, y);
			q->high = fmax(q->high, y);
			q->n++;
		}
		if (q->n) {
			q->x /= q->n;
			count++;
		}
	}
	return count;
}

static void draw_lines(struct ww_plot *p, int colour, const struct bucket *b, int n)
{
	static struct ww_plot_point low[BUCKETS], high[BUCKETS], mean[BUCKETS];
	for (int i = 0; i < n; i++) {
		low[i] = (struct ww_plot_point){ b[i].x, b[i].low };
		high[i] = (struct ww_plot_point){ b[i].x, b[i].high };
		mean[i] = (struct ww_plot_point){ b[i].x, b[i].sum / b[i].n };
	}
	if (!colour)
		ww_plot_band(p, low, high, (size_t)n);
	ww_plot_line(p, colour, mean, (size_t)n);
}

static void draw_skips(struct ww_plot *p, const struct log *l)
{
	char title[64];
	for (size_t i = 0; i < l->skips && i < SKIPS_DRAWN; i++) {
		snprintf(title, sizeof(title), "step %.0f skipped", l->skipped[i]);
		ww_plot_moment(p, l->skipped[i], title);
	}
}

/* One behind the last of the series that share a plot with k. */
static int end_of_plot(int k)
{
	int end = k + 1;
	while (end < SERIES && !series[end].title)
		end++;
	return end;
}

static void draw_plot(const struct log *l, int k, struct bucket (*b)[BUCKETS], const int *n, struct ww_str *h)
{
	int end = end_of_plot(k), lines = 0;
	struct ww_plot p;
	ww_plot_init(&p, h);
	for (int i = k; i < end; i++)
		lines += n[i - k] > 0;
	for (int i = k; i < end; i++)
		for (int j = 0; j < n[i - k]; j++) {
			ww_plot_include(&p, NAN, b[i - k][j].low);
			ww_plot_include(&p, NAN, b[i - k][j].high);
		}
	ww_plot_include(&p, l->step[0], NAN);
	ww_plot_include(&p, l->step[l->n - 1], NAN);
	p.from_zero = series[k].from_zero;
	p.whole_x = 1;
	p.x = "step";
	p.y = series[k].unit;
	p.label = series[k].title;
	ww_plot_begin(&p);
	if (k == LOSS)
		draw_skips(&p, l);
	for (int i = k; i < end; i++)
		draw_lines(&p, i - k, b[i - k], n[i - k]);
	ww_plot_end(&p);
	if (lines < 2)
		return;
	ww_plot_legend_begin(h);
	for (int i = k; i < end; i++)
		if (n[i - k])
			ww_plot_legend_line(h, i - k, 0, series[i].legend);
	ww_plot_legend_end(h);
}

static void draw(const struct log *l, int k, struct ww_str *h)
{
	enum { MOST = 4 };
	static struct bucket b[MOST][BUCKETS];
	int n[MOST], all = 0;
	for (int i = k; i < end_of_plot(k); i++)
		all += n[i - k] = gather(l, i, b[i - k]);
	if (!all && series[k].is_optional)
		return;
	ww_str_addf(h, "<h2>%s</h2>\n", series[k].title);
	if (!all)
		ww_str_adds(h, "<p>no finite value was logged</p>\n");
	else
		draw_plot(l, k, b, n, h);
}

/* Counts by name at the first and the last step. */
static void add_counts(const struct log *l, const char *key, const char *title, struct ww_str *h)
{
	const json_t *first = json_object_get(l->first, key), *last = json_object_get(l->last, key);
	const char *name;
	json_t *n;
	if (!json_object_size(first) && !json_object_size(last))
		return;
	ww_str_addf(h, "<h2>%s</h2>\n", title);
	ww_page_facts_begin(h);
	json_object_foreach((json_t *)(uintptr_t)last, name, n)
		ww_page_fact(h, name, "%" PRId64 " at the first step, %" PRId64 " at the last", ww_json_int(first, name, 0),
			(int64_t)json_integer_value(n));
	json_object_foreach((json_t *)(uintptr_t)first, name, n)
		if (!json_object_get(last, name))
			ww_page_fact(h, name, "%" PRId64 " at the first step, 0 at the last", (int64_t)json_integer_value(n));
	ww_page_facts_end(h);
}

/* ---- The page ---------------------------------------------------------------------------------------------------- */

static void add_facts(const char *run, const json_t *v, const struct log *l, struct ww_str *h)
{
	const json_t *data = json_object_get(v, "data"), *memory = json_object_get(v, "memory");
	double last = l->y[LOSS][l->n - 1];
	ww_page_facts_begin(h);
	ww_page_fact(
		h, "run", "%s, begun %s, warpwright %s", run, ww_json_str(v, "began", "?"), ww_json_str(v, "version", "?"));
	ww_page_fact(
		h, "steps", "%.0f of %" PRId64 ", %zu skipped", l->step[l->n - 1], ww_json_int(v, "steps", 0), l->skips);
	if (isfinite(l->y[REWARD][0]))
		ww_page_fact(h, "reward", "%.3f at the first step, %.3f at the last", l->y[REWARD][0], l->y[REWARD][l->n - 1]);
	else if (isfinite(last))
		ww_page_fact(h, "loss", "%.4f at the first step, %.4f at the last", l->y[LOSS][0], last);
	ww_page_fact(h, "model", "%.2f M parameters", ww_json_num(v, "parameters", 0) / 1e6);
	if (json_is_integer(json_object_get(data, "tasks")))
		ww_page_fact(h, "data", "%" PRId64 " tasks", ww_json_int(data, "tasks", 0));
	else if (json_is_integer(json_object_get(data, "episodes")))
		ww_page_fact(h, "data", "%" PRId64 " episodes, %" PRId64 " left out", ww_json_int(data, "episodes", 0),
			ww_json_int(data, "left_out", 0));
	else
		ww_page_fact(h, "data", "%" PRId64 " tokens in %" PRId64 " sequences, SHA-256 %.16s",
			ww_json_int(data, "tokens", 0), ww_json_int(data, "sequences", 0), ww_json_str(data, "hash", "?"));
	ww_page_fact(h, "trained on", "%.0f tokens in %.1f s: %.0f a second", l->tokens, l->seconds,
		l->tokens / fmax(l->seconds, 1e-9));
	ww_page_fact(
		h, "device memory", "%.3f GB, predicted %.3f", l->device_bytes / 1e9, ww_json_num(memory, "total", 0) / 1e9);
	ww_page_facts_end(h);
}

static void add_value(const json_t *v, struct ww_str *out)
{
	if (json_is_string(v))
		ww_str_adds(out, json_string_value(v));
	else if (json_is_real(v))
		ww_str_addf(out, "%g", json_real_value(v));
	else if (v && !json_is_null(v))
		ww_json_add(out, v);
}

/* ---- Several runs ------------------------------------------------------------------------------------------------ */

struct run {
	const char *dir;
	json_t *about; /* run.json */
	struct log log;
};

static void run_release(struct run *r)
{
	json_decref(r->about);
	log_release(&r->log);
}

static enum ww_rc run_read(struct run *r, const char *dir, struct ww_err *err)
{
	char path[PATH_MAX];
	r->dir = dir;
	WW_CHECK(ww_fs_join(path, dir, "run.json", err));
	WW_CHECK(ww_json_read_file(path, JSON_MAX, &r->about, err));
	if (strcmp(ww_json_str(r->about, "kind", ""), "train"))
		return ww_err_set(err, WW_ERR_USAGE, "%s does not describe a training run; name the output of `train`", path);
	return read_log(dir, &r->log, err);
}

static const json_t *recipe_of(const struct run *r) { return json_object_get(r->about, "recipe"); }

static void add_legend(const struct run *runs, const int *counts, int n, struct ww_str *h)
{
	ww_plot_legend_begin(h);
	for (int i = 0; i < n; i++)
		if (counts[i])
			ww_plot_legend_line(h, i, 0, runs[i].dir);
	ww_plot_legend_end(h);
}

/* b: BUCKETS for each run. */
static void draw_lines_of(const struct run *runs, int n, int k, const struct bucket *b, const int *counts,
	const char *title, const char *unit, struct ww_str *h)
{
	struct ww_plot p;
	static struct ww_plot_point mean[BUCKETS];
	ww_plot_init(&p, h);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < counts[i]; j++)
			ww_plot_include(&p, b[i * BUCKETS + j].x, b[i * BUCKETS + j].sum / b[i * BUCKETS + j].n);
	p.from_zero = series[k].from_zero;
	p.whole_x = 1;
	p.x = "step";
	p.y = unit;
	p.label = title;
	ww_plot_begin(&p);
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < counts[i]; j++)
			mean[j] = (struct ww_plot_point){ b[i * BUCKETS + j].x, b[i * BUCKETS + j].sum / b[i * BUCKETS + j].n };
		if (counts[i])
			ww_plot_line(&p, i, mean, (size_t)counts[i]);
	}
	ww_plot_end(&p);
	add_legend(runs, counts, n, h);
}

/* One series of all runs that logged it; first: of the plot that it belongs to. */
static enum ww_rc compare(const struct run *runs, int n, int k, int first, struct ww_str *h, struct ww_err *err)
{
	ww_auto_free struct bucket *b = NULL;
	ww_auto_free int *counts = NULL;
	char title[128];
	int any = 0;
	WW_CHECK(WW_NEW(b, (size_t)n * BUCKETS, err));
	WW_CHECK(WW_NEW(counts, n, err));
	for (int i = 0; i < n; i++)
		any += counts[i] = gather(&runs[i].log, k, b + (size_t)i * BUCKETS);
	if (!any)
		return WW_OK;
	snprintf(title, sizeof(title), "%s%s%s", series[first].title, series[k].legend ? ": " : "",
		series[k].legend ? series[k].legend : "");
	ww_str_addf(h, "<h2>%s</h2>\n", title);
	draw_lines_of(runs, n, k, b, counts, title, series[first].unit, h);
	return WW_OK;
}

static int is_common(const struct run *runs, int n, const char *key)
{
	for (int i = 1; i < n; i++)
		if (!json_equal(json_object_get(recipe_of(&runs[i]), key), json_object_get(recipe_of(runs), key)))
			return 0;
	return 1;
}

static void add_row(const struct run *runs, int n, const char *key, struct ww_str *h)
{
	ww_str_adds(h, "<tr><th>");
	ww_page_text(h, key, 100);
	ww_str_adds(h, "</th>");
	for (int i = 0; i < n; i++) {
		ww_auto_str value = WW_STR_INIT(4096);
		add_value(json_object_get(recipe_of(&runs[i]), key), &value);
		ww_str_adds(h, "<td>");
		ww_page_text(h, value.len ? value.p : "", 200);
		ww_str_adds(h, "</td>");
	}
	ww_str_adds(h, "</tr>\n");
}

static void add_head(const struct run *runs, int n, const char *title, struct ww_str *h)
{
	ww_str_addf(h, "<h2>%s</h2>\n<div class=\"wide\"><table class=\"num\"><tr><th></th>", title);
	for (int i = 0; i < n; i++) {
		ww_str_adds(h, "<th>");
		ww_page_text(h, runs[i].dir, 200);
		ww_str_adds(h, "</th>");
	}
	ww_str_adds(h, "</tr>\n");
}

/* Of a run's last steps: mean, deviation from step to step; "" where none is finite. */
static void add_last(const struct log *l, int k, struct ww_str *out)
{
	double sum = 0, square = 0;
	size_t count = 0;
	for (size_t i = l->n > LAST_STEPS ? l->n - LAST_STEPS : 0; i < l->n; i++)
		if (isfinite(l->y[k][i])) {
			sum += l->y[k][i];
			count++;
		}
	if (!count)
		return;
	double mean = sum / (double)count;
	for (size_t i = l->n > LAST_STEPS ? l->n - LAST_STEPS : 0; i < l->n; i++)
		if (isfinite(l->y[k][i]))
			square += (l->y[k][i] - mean) * (l->y[k][i] - mean);
	double deviation = count > 1 ? sqrt(square / (double)(count - 1)) : 0;
	ww_str_addf(out, fabs(mean) < 1000 ? "%.3g ± %.2g" : "%.0f ± %.0f", mean, deviation);
}

/* And the first step's value. */
static void add_first_and_last(const struct log *l, int k, struct ww_str *out)
{
	size_t before = out->len;
	add_last(l, k, out);
	if (out->len > before)
		ww_str_addf(out, fabs(l->y[k][0]) < 1000 ? " (%.3g)" : " (%.0f)", l->y[k][0]);
}

/* What came out, a column for each run: ablations beside what they are measured against. */
static void add_outcomes(const struct run *runs, int n, struct ww_str *h)
{
	static const struct {
		int series;
		const char *what;
	} rows[] = { { REWARD, "reward" }, { PASS, "correct" }, { FASTER_EAGER, "faster than eager" },
		{ FASTER_COMPILE, "faster than torch.compile too" }, { ENTROPY, "entropy" },
		{ EXPLAINED, "explained variance" }, { INVALID, "invalid calls" }, { LOSS, "loss" },
		{ SPEED, "tokens per second" } };
	add_head(runs, n, "What came out", h);
	for (size_t r = 0; r < WW_ARRAY_LEN(rows); r++) {
		if (rows[r].series == LOSS &&
			isfinite(runs[0].log.y[REWARD][0])) /* a policy's objective is 0 where ratios are 1 */
			continue;
		ww_auto_str cells = WW_STR_INIT(1 << 20);
		int any = 0;
		for (int i = 0; i < n; i++) {
			ww_str_adds(&cells, "<td>");
			size_t before = cells.len;
			add_first_and_last(&runs[i].log, rows[r].series, &cells);
			any |= cells.len > before;
			ww_str_adds(&cells, "</td>");
		}
		if (any)
			ww_str_addf(h, "<tr><th>%s</th>%s</tr>\n", rows[r].what, cells.p);
	}
	ww_str_addf(h,
		"</table></div>\n<p>Mean of the last %d steps ± deviation from step to step; in brackets the first step.</p>\n",
		LAST_STEPS);
}

/* ---- beside the published ablations */

/* rft: a run of this page begins behind stage rft. */
static int has_no_loop(const json_t *r, int rft) { return ww_json_int(r, "turns", 0) == 1; }
static int has_raw_reward(const json_t *r, int rft) { return !strcmp(ww_json_str(r, "reward", ""), "speedup"); }
static int has_weak_judge(const json_t *r, int rft) { return !strcmp(ww_json_str(r, "rule", ""), "paper"); }
/* A pipeline names a stage's directory by the stage. */
static int is_behind(const json_t *r, const char *stage) { return strstr(ww_json_str(r, "model", ""), stage) != NULL; }
static int has_no_rft(const json_t *r, int rft) { return is_behind(r, "/ppo/") || (rft && !is_behind(r, "/rft/")); }
static int has_new_critic(const json_t *r, int rft)
{
	return !strcmp(ww_json_str(r, "advantage", ""), "critic") && !json_is_string(json_object_get(r, "critic"));
}

/* arXiv 2602.24286, KernelBench, all levels, a model of 230 billion parameters. */
static const struct published {
	const char *what;
	int (*is)(const json_t *recipe, int rft);
	double correct, faster, speedup; /* correct 0: not published */
} published[] = { { "no loop", has_no_loop, 77.1, 14.1, 0.69 },
	{ "raw speed-up as reward", has_raw_reward, 96.8, 60.4, 1.25 },
	{ "no rejection fine-tuning", has_no_rft, 95.6, 49.8, 1.05 },
	{ "no value pretraining", has_new_critic, 98.6, 50.9, 1.00 }, { "a weaker judge", has_weak_judge, 0, 0, 0 } };
static const struct published whole = { "the whole recipe", NULL, 98.8, 96.8, 2.11 };
static const struct published mixed = { "several of the ablations", NULL, 0, 0, 0 };

static const struct published *published_of(const json_t *recipe, int rft)
{
	const struct published *p = &whole;
	for (size_t i = 0; i < WW_ARRAY_LEN(published); i++)
		if (published[i].is(recipe, rft))
			p = p == &whole ? &published[i] : &mixed;
	return p;
}

static int is_agentic(const struct run *r) { return !strcmp(ww_json_str(recipe_of(r), "stage", ""), "agentic"); }

static void add_beside_published(const struct run *r, int rft, struct ww_str *h)
{
	static const int shown[] = { REWARD, PASS, FASTER_COMPILE };
	const struct published *p = published_of(recipe_of(r), rft);
	ww_str_adds(h, "<tr><th>");
	ww_page_text(h, r->dir, 200);
	ww_str_addf(h, "</th><td>%s</td>", p->what);
	if (p->correct > 0)
		ww_str_addf(h, "<td>%.1f%%, %.1f%%, %.2f</td>", p->correct, p->faster, p->speedup);
	else
		ww_str_adds(h, "<td></td>");
	for (size_t i = 0; i < WW_ARRAY_LEN(shown); i++) {
		ww_auto_str cell = WW_STR_INIT(200);
		add_last(&r->log, shown[i], &cell);
		ww_str_addf(h, "<td>%s</td>", cell.len ? cell.p : "");
	}
	ww_str_adds(h, "</tr>\n");
}

/* Runs of stage agentic, a row each. */
static void add_published(const struct run *runs, int n, struct ww_str *h)
{
	int any = 0, rft = 0;
	for (int i = 0; i < n; i++) {
		any |= is_agentic(&runs[i]);
		rft |= is_agentic(&runs[i]) && is_behind(recipe_of(&runs[i]), "/rft/");
	}
	if (!any)
		return;
	ww_str_adds(h,
		"<h2>Beside the published ablations</h2>\n<div class=\"wide\"><table class=\"num\"><tr><th></th><th>is</th>"
		"<th>published</th><th>reward</th><th>correct</th><th>faster</th></tr>\n");
	for (int i = 0; i < n; i++)
		if (is_agentic(&runs[i]))
			add_beside_published(&runs[i], rft, h);
	ww_str_addf(h,
		"</table></div>\n<p>Shares of the sampled episodes as above; faster: than torch.compile too. Published: correct, "
		"faster than torch.compile, speed-up over it; arXiv 2602.24286, KernelBench, a model of 230 billion parameters. "
		"Which row a run is beside follows from its recipe.</p>\n");
}

/* A column for each run. */
static void add_differences(const struct run *runs, int n, struct ww_str *h)
{
	json_auto_t *keys = json_object();
	const char *key;
	json_t *v;
	for (int i = 0; i < n; i++)
		json_object_update_missing(keys, (json_t *)(uintptr_t)recipe_of(&runs[i]));
	add_head(runs, n, "Where their recipes differ", h);
	json_object_foreach(keys, key, v)
		if (!is_common(runs, n, key))
			add_row(runs, n, key, h);
	ww_str_adds(h, "</table></div>\n");
}

/* What the recipes of all runs say. */
static void add_recipe(const struct run *runs, int n, struct ww_str *h)
{
	const char *key;
	json_t *v;
	ww_str_addf(h, "<h2>%s</h2>\n", n > 1 ? "What their recipes share" : "Recipe");
	ww_page_facts_begin(h);
	json_object_foreach((json_t *)(uintptr_t)recipe_of(runs), key, v) {
		ww_auto_str value = WW_STR_INIT(4096);
		add_value(v, &value);
		if (value.len && is_common(runs, n, key))
			ww_page_fact(h, key, "%s", value.p);
	}
	ww_page_facts_end(h);
}

static enum ww_rc add_runs(const struct run *runs, int n, struct ww_str *h, struct ww_err *err)
{
	add_outcomes(runs, n, h);
	add_published(runs, n, h);
	add_differences(runs, n, h);
	for (int k = 0; k < SERIES; k = end_of_plot(k))
		for (int i = k; i < end_of_plot(k); i++)
			WW_CHECK(compare(runs, n, i, k, h, err));
	for (int i = 0; i < n; i++) {
		ww_str_adds(h, "<h2>");
		ww_page_text(h, runs[i].dir, 200);
		ww_str_adds(h, "</h2>\n");
		add_facts(runs[i].dir, runs[i].about, &runs[i].log, h);
	}
	return WW_OK;
}

static void add_one(const struct run *r, struct ww_str *h)
{
	add_facts(r->dir, r->about, &r->log, h);
	for (int k = 0; k < SERIES; k = end_of_plot(k))
		draw(&r->log, k, h);
	add_counts(&r->log, "tools", "Tools", h);
	add_counts(&r->log, "after_failed", "After a failed verdict", h);
}

static enum ww_rc add_page(const struct run *runs, int n, struct ww_str *h, struct ww_err *err)
{
	ww_page_begin(h, n > 1 ? "Training runs" : "Training run");
	if (n > 1)
		WW_CHECK(add_runs(runs, n, h, err));
	else
		add_one(runs, h);
	add_recipe(runs, n, h);
	ww_page_end(h);
	if (h->cut)
		return ww_err_set(err, WW_ERR_LIMIT, "the report is larger than %zu bytes", h->max);
	return WW_OK;
}

enum ww_rc ww_train_reports(const char *const *dirs, int n, struct ww_str *h, struct ww_err *err)
{
	ww_auto_free struct run *runs = NULL;
	enum ww_rc rc = WW_OK;
	WW_CHECK(WW_NEW(runs, n, err));
	for (int i = 0; i < n && rc == WW_OK; i++)
		rc = run_read(&runs[i], dirs[i], err);
	if (rc == WW_OK)
		rc = add_page(runs, n, h, err);
	for (int i = 0; i < n; i++)
		run_release(&runs[i]);
	return rc;
}
