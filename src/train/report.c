/* report.c - the log of a training run as a page (src/page).
 *
 * A long run has more steps than a plot has pixels.  So steps are grouped into at most BUCKETS columns: the line is the
 * mean of each, the band behind it the range, so that one bad step in a million stays visible. */
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

enum { LOG_MAX = 1 << 30, JSON_MAX = 1 << 20, BUCKETS = 600, SKIPS_DRAWN = 200 };

enum { REWARD, ENTROPY, EXPLAINED, VALUE_LOSS, LOSS, LR, NORM, SPEED, SERIES };
static const struct {
	const char *key, *title, *unit;
	int from_zero;
	int is_optional; /* not drawn where no step has it */
} series[SERIES] = { [REWARD] = { "reward", "Reward", "mean over the step's episodes", 0, 1 },
	[ENTROPY] = { "entropy", "Entropy", "of the policy at its own tokens, in nats", 1, 1 },
	[EXPLAINED] = { "explained", "Explained variance", "part of the reward's variance that the critic explains", 0, 1 },
	[VALUE_LOSS] = { "value_loss", "Loss of the critic", "half mean squared error", 1, 1 },
	[LOSS] = { "loss", "Loss", "mean negative log-probability of a token, in nats; of a policy its clipped objective",
		0, 1 },
	[LR] = { "lr", "Learning rate", "learning rate", 1, 0 },
	[NORM] = { "norm", "Norm of the gradient", "norm before clipping", 1, 1 },
	[SPEED] = { "tokens_per_second", "Tokens per second", "tokens per second", 1, 0 } };

struct log {
	double *step, *y[SERIES];
	size_t n, cap;
	double *skipped; /* steps */
	size_t skips;
	double seconds, tokens, device_bytes;
};

static void log_release(struct log *l)
{
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

static void draw_lines(struct ww_plot *p, const struct bucket *b, int n)
{
	static struct ww_plot_point low[BUCKETS], high[BUCKETS], mean[BUCKETS];
	for (int i = 0; i < n; i++) {
		low[i] = (struct ww_plot_point){ b[i].x, b[i].low };
		high[i] = (struct ww_plot_point){ b[i].x, b[i].high };
		mean[i] = (struct ww_plot_point){ b[i].x, b[i].sum / b[i].n };
	}
	ww_plot_band(p, low, high, (size_t)n);
	ww_plot_line(p, 0, mean, (size_t)n);
}

static void draw_skips(struct ww_plot *p, const struct log *l)
{
	char title[64];
	for (size_t i = 0; i < l->skips && i < SKIPS_DRAWN; i++) {
		snprintf(title, sizeof(title), "step %.0f skipped", l->skipped[i]);
		ww_plot_moment(p, l->skipped[i], title);
	}
}

static void draw(const struct log *l, int k, struct ww_str *h)
{
	static struct bucket b[BUCKETS];
	struct ww_plot p;
	int n = gather(l, k, b);
	if (!n && series[k].is_optional)
		return;
	ww_str_addf(h, "<h2>%s</h2>\n", series[k].title);
	if (!n) {
		ww_str_adds(h, "<p>no finite value was logged</p>\n");
		return;
	}
	ww_plot_init(&p, h);
	for (int i = 0; i < n; i++) {
		ww_plot_include(&p, NAN, b[i].low);
		ww_plot_include(&p, NAN, b[i].high);
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
	draw_lines(&p, b, n);
	ww_plot_end(&p);
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
	if (isfinite(last))
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

static void add_recipe(const json_t *recipe, struct ww_str *h)
{
	const char *key;
	json_t *v;
	ww_str_adds(h, "<h2>Recipe</h2>\n");
	ww_page_facts_begin(h);
	json_object_foreach((json_t *)recipe, key, v) {
		ww_auto_str value = WW_STR_INIT(4096);
		if (json_is_string(v))
			ww_str_adds(&value, json_string_value(v));
		else if (json_is_real(v))
			ww_str_addf(&value, "%g", json_real_value(v));
		else if (!json_is_null(v))
			ww_json_add(&value, v);
		if (value.len)
			ww_page_fact(h, key, "%s", value.p);
	}
	ww_page_facts_end(h);
}

enum ww_rc ww_train_report(const char *run, struct ww_str *h, struct ww_err *err)
{
	WW_AUTO(log_release) struct log l = { 0 };
	char path[PATH_MAX];
	json_auto_t *v = NULL;
	WW_CHECK(ww_fs_join(path, run, "run.json", err));
	WW_CHECK(ww_json_read_file(path, JSON_MAX, &v, err));
	if (strcmp(ww_json_str(v, "kind", ""), "train"))
		return ww_err_set(err, WW_ERR_USAGE, "%s does not describe a training run; name the output of `train`", path);
	WW_CHECK(read_log(run, &l, err));
	ww_page_begin(h, "Training run");
	add_facts(run, v, &l, h);
	for (int k = 0; k < SERIES; k++)
		draw(&l, k, h);
	add_recipe(json_object_get(v, "recipe"), h);
	ww_page_end(h);
	if (h->cut)
		return ww_err_set(err, WW_ERR_LIMIT, "the report is larger than %zu bytes", h->max);
	return WW_OK;
}
