/* synth_audit.c - `warpwright synth audit`. */
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/synth.h"
#include "synth/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_AGAINST = 32, EVERY = 25 };

static void show_progress(void *context, const char *set, int64_t done)
{
	int terminal = isatty(STDERR_FILENO);
	if (done % EVERY == 0)
		fprintf(stderr, "%s%s: %lld rows%s", terminal ? "\r" : "", set, (long long)done, terminal ? " " : "\n");
}

static enum ww_rc audit(const struct ww_synth_values *v, const char *set, struct ww_audit *a, struct ww_err *err)
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
		.progress = show_progress,
		.interrupted = &ww_cmd_interrupted };
	return list ? ww_audit(set, &o, a, err) : ww_nomem(err);
}

int ww_synth_audit(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_audit a;
	if (audit(v, argv[0], &a, &err) != WW_OK)
		return ww_cmd_fail(&err);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
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
