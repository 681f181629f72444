/* summary.h - the result of `optimize`: a table for people, a JSON object for programs. */
#pragma once

#include "agent/agent.h"
#include "export/export.h"

#include <limits.h>

struct ww_summary_export {
	const char *format;
	char path[PATH_MAX]; /* "" where it could not be made */
	char why[512];
};
struct ww_summary {
	const char *task, *target, *device, *rule, *policy, *dir;
	const struct ww_agent_result *result;
	unsigned baselines;       /* of the run: bit per enum ww_baseline */
	const json_t *explained;  /* judge/profile/explain.h; NULL: there is none */
	int explain;              /* print all of it */
	const char *last_text;    /* the policy's last message, printed where no solution is correct; may be NULL */
	const char *last_refusal; /* the judge's last words, printed there too; may be NULL */
	struct ww_summary_export exports[WW_EXPORT_COUNT];
	int n_exports;
	int interrupted, has_verdict, has_report; /* verdict.json, report.html are there */
	const struct ww_agent_result *parallel;   /* of episodes side by side; NULL: one alone */
	int n_parallel;
	struct ww_budget *budget; /* may be NULL */
};

/* Correct and more than 5% faster than each baseline of the run, on a task that can be won. */
int ww_summary_won(const struct ww_summary *s);
void ww_summary_text(const struct ww_summary *s, struct ww_str *out);
json_t *ww_summary_json(const struct ww_summary *s);
