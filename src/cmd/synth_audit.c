/* synth_audit.c - `warpwright synth audit`. */
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/synth.h"
#include "host/machine.h"
#include "synth/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_AGAINST = 32 };

static enum ww_rc audit(const struct ww_synth_values *v, const char *set, struct ww_progress *progress,
	struct ww_audit *a, struct ww_err *err)
{
	const char *against[MAX_AGAINST];
	ww_auto_free char *list = strdup(v->against ? v->against : "");
	const struct ww_audit_opts o = { .against = against,
		.n_against = list ? ww_synth_cut_list(list, against, MAX_AGAINST) : 0,
		.jobs = (int)v->jobs,
		.sample = v->sample,
		.seed = (uint64_t)v->seed,
		.target = v->judging.target,
		.device = (int)v->judging.device,
		.max_s = v->max_s,
		.progress = ww_progress_stage,
		.context = progress,
		.interrupted = &ww_cmd_interrupted };
	return list ? ww_audit(set, &o, a, err) : ww_nomem(err);
}

/* A machine without the GPU that rows are to be run on is no finding about them. */
static enum ww_rc check_device(const struct ww_synth_values *v, struct ww_err *err)
{
	enum ww_target target;
	struct ww_host_gpus gpus;
	char name[96];
	return v->sample
		? ww_host_choose_target(v->judging.target, (int)v->judging.device, &target, name, sizeof(name), &gpus, err)
		: WW_OK;
}

int ww_synth_audit(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_audit a;
	struct ww_progress *progress = ww_progress_new(stderr);
	enum ww_rc rc = check_device(v, &err);
	if (rc == WW_OK)
		rc = audit(v, argv[0], progress, &a, &err);
	ww_progress_free(progress);
	if (rc != WW_OK)
		return ww_cmd_fail(&err);
	if (v->json) {
		ww_cmd_print_json(ww_audit_json(&a, argv[0]));
	} else {
		ww_auto_str text = WW_STR_INIT((size_t)1 << 30);
		ww_audit_text(&a, argv[0], (int)v->rows, &text);
		fwrite(text.p, 1, text.len, stdout);
	}
	int code = a.n > 0;
	ww_audit_release(&a);
	return code;
}
