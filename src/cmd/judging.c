#include "cmd/judging.h"

#include "base/target.h"
#include "cmd/cmd.h"
#include "export/export.h"

#include <string.h>

static int baseline_of(const char *word, size_t n)
{
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		const char *name = ww_baseline_name((enum ww_baseline)b);
		if (strlen(name) == n && !strncmp(name, word, n))
			return b;
	}
	return -1;
}

enum ww_rc ww_judging_baselines(const char *list, unsigned *out, struct ww_err *err)
{
	*out = 0;
	for (const char *p = list; *p;) {
		size_t n = strcspn(p, ",");
		int b = baseline_of(p, n);
		if (b < 0)
			return ww_err_set(
				err, WW_ERR_USAGE, "--baselines takes eager, compile and autotune, not \"%.*s\"", (int)n, p);
		*out |= 1u << b;
		p += n + (p[n] == ',');
	}
	return WW_OK;
}

enum ww_judge_depth ww_judging_depth(const char *decide)
{
	return decide && !strcmp(decide, "reward") ? WW_JUDGE_DECIDE : WW_JUDGE_FULL;
}

enum ww_rc ww_judging_opts(const struct ww_judging *v, struct ww_judge_opts *out, struct ww_err *err)
{
	*out = (struct ww_judge_opts){ .target = ww_target_of(v->target),
		.device = (int)v->device,
		.threads = (int)v->threads,
		.rule = v->rule && !strcmp(v->rule, "paper") ? WW_RULE_PAPER : WW_RULE_STRICT,
		.max_time_s = v->max_time_s,
		.interrupted = &ww_cmd_interrupted,
		.caller = &ww_export_caller };
	return v->baselines ? ww_judging_baselines(v->baselines, &out->baselines, err) : WW_OK;
}
