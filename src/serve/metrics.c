/* metrics.c - see metrics.h. */
#include "serve/metrics.h"

#include "serve/broker.h"
#include "serve/completions.h"
#include "serve/openenv.h"

enum { PAGE_BYTES = 1 << 20 };

void ww_metric_head(struct ww_str *out, const char *name, enum ww_metric_type type, const char *help)
{
	ww_str_addf(out, "# HELP warpwright_%s %s\n# TYPE warpwright_%s %s\n", name, help, name,
		type == WW_COUNTER ? "counter" : "gauge");
}

void ww_metric_label(struct ww_str *out, const char *value)
{
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			ww_str_addc(out, '\\');
		ww_str_adds(out, *value == '\n' ? "\\n" : (char[]){ *value, 0 });
	}
}

void ww_metric(struct ww_str *out, const char *name, enum ww_metric_type type, const char *help, double value)
{
	ww_metric_head(out, name, type, help);
	ww_str_addf(out, "warpwright_%s %.15g\n", name, value);
}

static void add_broker(struct ww_str *s, struct ww_broker *d)
{
	const struct ww_broker_stats b = ww_broker_stats(d);
	ww_metric(s, "judge_queue_length", WW_GAUGE, "Questions that wait for a judge.", b.waiting);
	ww_metric(s, "judge_questions", WW_GAUGE, "Questions that judges are at work on.", b.working);
	ww_metric(
		s, "judge_seconds_total", WW_COUNTER, "Seconds that judges were at work, summed over questions.", b.judging_s);
	ww_metric_head(s, "verdicts_total", WW_COUNTER, "Verdicts, by status.");
	for (int i = 0; i < WW_STATUS_COUNT; i++)
		ww_str_addf(s, "warpwright_verdicts_total{status=\"%s\"} %llu\n", ww_status_name((enum ww_status)i),
			(unsigned long long)b.verdicts[i]);
}

static void on_metrics(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	const struct ww_metrics *m = ctx;
	ww_auto_str s = WW_STR_INIT(PAGE_BYTES);
	ww_http_metrics(m->http, &s);
	if (m->openenv)
		ww_metric(&s, "episodes", WW_GAUGE, "Open environments.", ww_openenv_count(m->openenv));
	if (m->broker)
		add_broker(&s, m->broker);
	if (m->completions)
		ww_completions_metrics(m->completions, &s);
	ww_http_reply_all(reply, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, s.p, s.len);
}

struct ww_http_route ww_metrics_route(struct ww_metrics *m)
{
	return (struct ww_http_route){ .method = "GET", .path = "/metrics", .handle = on_metrics, .ctx = m };
}
