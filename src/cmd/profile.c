/* profile.c - `warpwright profile`: where the time goes, of a task's reference or of a solution.
 *
 * The profile is made by src/judge/profile; this file opens a judge, asks, and prints the text or the JSON object
 * (docs/profile.md).  A solution that cannot be profiled (it does not build, it crashes) is a negative verdict, exit
 * code 1, with the same words that `judge` has for it. */
#include "cmd/cmd.h"
#include "cmd/judging.h"
#include "base/target.h"
#include "cmd/progress.h"

#include "base/json.h"
#include "host/machine.h"
#include "judge/profile/profile.h"
#include "judge/solution.h"
#include "task/task.h"

#include <stdio.h>
#include <string.h>

struct values {
	struct ww_judging judging;
	double max_run_s;
	int json;
};

static const struct ww_opt opts[] = { WW_OPTS_WHERE(struct values, judging),
	{ "max-run-seconds", 0, WW_OPT_NUM, offsetof(struct values, max_run_s), "S", "30", 0.1, 3600,
		"limit of one run of the solution" },
	WW_OPT_JSON(struct values, json), WW_OPT_END };

static void print(const json_t *profile, int json)
{
	ww_auto_str s = WW_STR_INIT(64 << 20);
	if (json) {
		ww_json_add(&s, profile);
		ww_str_addc(&s, '\n');
	} else {
		ww_profile_text(profile, &s);
	}
	fputs(s.p, stdout);
}

static enum ww_rc profile(const struct values *v, enum ww_target target, const struct ww_task *task,
	const struct ww_solution *s, int *ok, struct ww_err *err)
{
	struct ww_judge_opts o;
	struct ww_progress *p = ww_progress_new(stderr);
	struct ww_judge *j = NULL;
	struct ww_judge_task *t = NULL;
	json_auto_t *made = NULL;
	enum ww_rc rc;

	WW_TRY(ww_judging_opts(&v->judging, &o, err));
	o.target = target;
	o.first = task;
	o.max_run_s = v->max_run_s;
	o.progress = ww_progress_stage;
	o.progress_ctx = p;
	WW_TRY(ww_judge_open(&j, &o, err));
	WW_TRY(ww_judge_task_open(j, task, &t, err));
	if (s)
		WW_TRY(ww_profile_solution(t, s, &made, err));
	else
		WW_TRY(ww_profile_reference(t, &made, err));
	ww_progress_clear(p);
	print(made, v->json);
	*ok = ww_profile_ok(made);
out:
	ww_progress_free(p);
	ww_judge_task_close(t);
	ww_judge_close(j);
	return rc;
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct values *v = values;
	WW_AUTO(ww_task_release) struct ww_task task = { .path = NULL };
	WW_AUTO(ww_solution_files_release) struct ww_solution_files files = { .target = 0 };
	enum ww_target want = ww_target_of(v->judging.target);
	struct ww_host_gpus gpus;
	char name[96];
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc;
	int ok = 0;

	WW_TRY(ww_task_load(&task, argv[0], &err));
	if (argc > 1) {
		WW_TRY(ww_solution_load(&files, argv[1], want, &err));
		WW_TRY(profile(v, files.target, &task, &files.solution, &ok, &err));
	} else {
		WW_TRY(
			ww_host_choose_target(v->judging.target, (int)v->judging.device, &want, name, sizeof(name), &gpus, &err));
		WW_TRY(profile(v, want, &task, NULL, &ok, &err));
	}
out:
	return rc != WW_OK ? ww_cmd_fail(&err) : ok ? 0 : 1;
}

const struct ww_cmd ww_cmd_profile = { .name = "profile",
	.args = "TASK.py [SOLUTION_DIR]",
	.summary = "profile a task's PyTorch operators, or the nodes of a solution",
	.details =
		"Without SOLUTION_DIR: time, launches and bytes of each operator of the task in PyTorch's eager mode.  With it: time of\n"
		"each node of the plan, what limits it, and on a GPU registers, occupancy, counters and machine code.  It checks\n"
		"no result.  Exit codes: 0 done, 1 the solution does not build or run, 2 bad usage or a task that cannot be used,\n"
		"3 infrastructure.  docs/profile.md explains the numbers and the JSON.",
	.opts = opts,
	.values_size = sizeof(struct values),
	.min_args = 1,
	.max_args = 2,
	.run = run };
