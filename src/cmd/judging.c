#include "cmd/judging.h"

#include "base/target.h"
#include "cmd/cmd.h"
#include "export/export.h"
#include "host/machine.h"

#include <stdlib.h>
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
	size_t n;
	*out = 0;
	for (const char *p; (p = ww_list_next(&list, &n));) {
		int b = baseline_of(p, n);
		if (b < 0)
			return ww_err_set(
				err, WW_ERR_USAGE, "--baselines takes eager, compile and autotune, not \"%.*s\"", (int)n, p);
		*out |= 1u << b;
	}
	return WW_OK;
}

static enum ww_rc add_device(long device, int *devices, int max, int *n, struct ww_err *err)
{
	for (int i = 0; i < *n; i++)
		if (devices[i] == device)
			return ww_err_set(err, WW_ERR_USAGE, "--devices names GPU %ld twice", device);
	if (*n == max)
		return ww_err_set(err, WW_ERR_USAGE, "--devices takes %d GPUs at most", max);
	devices[(*n)++] = (int)device;
	return WW_OK;
}

enum ww_rc ww_judging_devices(const char *list, const char *target, int *devices, int max, int *n, struct ww_err *err)
{
	struct ww_host_gpus gpus;
	*n = 0;
	if (!list || !*list)
		return WW_OK;
	if (!strcmp(target, "cpu"))
		return ww_err_set(err, WW_ERR_USAGE, "--devices names GPUs; the target is cpu");
	ww_host_gpus(&gpus);
	if (!gpus.n)
		return ww_err_set(err, WW_ERR_MISSING, "--devices %.40s: %s", list, gpus.why);
	for (int i = 0; !strcmp(list, "all") && i < gpus.n && i < max; i++)
		devices[(*n)++] = i;
	for (const char *p = *n ? "" : list; *p;) {
		char *end;
		long device = strtol(p, &end, 10);
		if (end == p || (*end && *end != ',') || device < 0)
			return ww_err_set(
				err, WW_ERR_USAGE, "--devices takes \"all\" or numbers separated by commas, not \"%.40s\"", list);
		if (device >= gpus.n)
			return ww_err_set(err, WW_ERR_USAGE, "--devices: there is no GPU %ld; CUDA shows %d", device, gpus.n);
		WW_CHECK(add_device(device, devices, max, n, err));
		p = end + (*end == ',');
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
		.max_compile_s = v->max_compile_s,
		.interrupted = &ww_cmd_interrupted,
		.caller = &ww_export_caller };
	return v->baselines ? ww_judging_baselines(v->baselines, &out->baselines, err) : WW_OK;
}
