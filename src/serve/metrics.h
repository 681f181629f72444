/* metrics.h - figures of the running server in Prometheus' text form (version 0.0.4): GET /metrics. */
#pragma once

#include "base/str.h"
#include "serve/http.h"

struct ww_broker;
struct ww_openenv;
struct ww_completions;

/* The parts that report figures; set before the first request.  NULL: there is no such part. */
struct ww_metrics {
	struct ww_http *http;
	struct ww_broker *broker;
	struct ww_openenv *openenv;
	struct ww_completions *completions;
};

struct ww_http_route ww_metrics_route(struct ww_metrics *m);

/* For the parts.  Names are given without "warpwright_". */
enum ww_metric_type { WW_COUNTER, WW_GAUGE };
void ww_metric_head(struct ww_str *out, const char *name, enum ww_metric_type type, const char *help); /* HELP, TYPE */
void ww_metric_label(struct ww_str *out, const char *value); /* what stands between a label's quotes */
void ww_metric(struct ww_str *out, const char *name, enum ww_metric_type type, const char *help, double value);
