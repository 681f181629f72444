/* judge.c - `warpwright judge`: one verdict on one solution, as a table or as one JSON object.
 *
 * Only the verdict goes to stdout; the step under way is shown on stderr. */
#include "cmd/batch.h"
#include "cmd/cmd.h"
#include "cmd/judging.h"
#include "base/target.h"
#include "cmd/progress.h"

#include "base/fs.h"
#include "base/json.h"
#include "judge/forms/kbrun.h"
#include "judge/judge.h"
#include "judge/solution.h"
#include "task/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct values {
	struct ww_judging judging;
	const char *baseline, *batch, *output;
	int64_t repeat, parallel, open_tasks;
	double max_run_s, max_repeat_s;
	int show_plan, verify_only, sanitize, call, json;
};

static const struct ww_opt opts[] = { WW_OPTS_WHERE(struct values, judging), WW_OPTS_HOW(struct values, judging),
	WW_OPT_DECIDE(struct values, judging),
	{ "baseline", 0, WW_OPT_STR, offsetof(struct values, baseline), "DIR", "", 0, 0,
		"time against this solution too, in turns; with --baselines \"\" against it alone" },
	{ "max-run-seconds", 0, WW_OPT_NUM, offsetof(struct values, max_run_s), "S", "0", 0, 3600,
		"limit of one run of the solution; 0: ten times eager and a second" },
	{ "max-repeat-seconds", 0, WW_OPT_NUM, offsetof(struct values, max_repeat_s), "S", "2", 0.01, 3600,
		"time limit for repeating one draw (44 times); more time catches rarer races of a slow solution" },
	{ "repeat", 0, WW_OPT_INT, offsetof(struct values, repeat), "N", "1", 1, 100000,
		"judge it N times with the task kept loaded; one verdict each" },
	{ "call", 0, WW_OPT_FLAG, offsetof(struct values, call), NULL, NULL, 0, 0,
		"cuda: also time the exported operator's call in a fresh process (5 s)" },
	{ "sanitize", 0, WW_OPT_FLAG, offsetof(struct values, sanitize), NULL, NULL, 0, 0,
		"after a mismatch or a crash run it again under compute-sanitizer and add its report to the diagnostics" },
	{ "verify-only", 0, WW_OPT_FLAG, offsetof(struct values, verify_only), NULL, NULL, 0, 0, "do not time" },
	WW_OPT_DEVICES(struct values, judging),
	{ "batch", 0, WW_OPT_STR, offsetof(struct values, batch), "FILE", NULL, 0, 0,
		"judge the jobs in this file (-: standard input), one JSON object per line; prints one verdict per line" },
	{ "output", 'o', WW_OPT_STR, offsetof(struct values, output), "FILE", NULL, 0, 0,
		"with --batch: append results to this file too; jobs that have a verdict in it are skipped" },
	{ "parallel", 0, WW_OPT_INT, offsetof(struct values, parallel), "N", "0", 0, 64,
		"with --batch: jobs in parallel; one is measured while the others build; 0: cores + 1" },
	{ "open-tasks", 0, WW_OPT_INT, offsetof(struct values, open_tasks), "N", "0", 0, 32,
		"with --batch: tasks that are kept loaded; 0: by memory" },
	{ "show-plan", 0, WW_OPT_FLAG, offsetof(struct values, show_plan), NULL, NULL, 0, 0,
		"print the plan's nodes and stop" },
	WW_OPT_JSON(struct values, json), WW_OPT_END };

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void print_us(double us)
{
	if (!isfinite(us))
		printf("%12s", "-");
	else if (us >= 10000)
		printf("%9.3f ms", us * 1e-3);
	else
		printf("%9.2f us", us);
}

static void print_flags(const struct ww_verdict *v)
{
	ww_auto_str text = WW_STR_INIT(8192);
	ww_verdict_add_flags(v, "flag       ", &text);
	fputs(text.p, stdout);
}

static void print_baseline(const struct ww_verdict *v, enum ww_baseline b)
{
	if (!v->baseline_measured[b])
		return;
	printf("%-10s ", b == WW_BASE_SOLUTION ? "baseline" : ww_baseline_name(b));
	print_us(v->baselines[b].device_us);
	print_us(v->baselines[b].call_us);
	printf("   %6.3fx  [%.3f, %.3f]%s\n", v->speedup[b].mid, v->speedup[b].lo, v->speedup[b].hi,
		ww_verdict_beats(v, b) ? "  more than 5% faster" : "");
}

static void print_verdict(const struct ww_verdict *v)
{
	printf("status     %s%s\n", ww_status_name(v->status), v->correct ? " (correct)" : "");
	printf("device     %s\n", v->device_name);
	if (v->form != WW_FORM_PLAN)
		printf("form       %s; guarantees are %s\n", ww_form_name(v->form), ww_form_guarantees(v->form));
	if (v->aten_ops[0])
		printf("ATen ops   %s\n", v->aten_ops);
	print_flags(v);
	if (isfinite(v->err_rel)) {
		struct ww_str errors = WW_STR_INIT(512);
		ww_verdict_add_errors(v, &errors);
		printf("error      %s\n", errors.p);
		ww_str_release(&errors);
	}
	if (v->repeats)
		printf("repeats    %d of one draw, %d with other bits than the first\n", v->repeats, v->nondeterministic);
	if (v->decided)
		printf("decided    after %d rounds; the intervals of the speed-ups hold at every round\n", v->rounds);
	if (v->attempts > 1)
		printf("measured   %d times, since others disturbed it\n", v->attempts);
	if (isfinite(v->time.device_us)) {
		printf("           %12s%12s   %7s  [95%% interval]\n", "device", "call", "speedup");
		printf("%-10s ", "solution");
		print_us(v->time.device_us);
		print_us(v->time.call_us);
		printf("            [%.2f, %.2f] us\n", v->time_device.lo, v->time_device.hi);
		for (int b = 0; b < WW_BASE_COUNT; b++)
			print_baseline(v, (enum ww_baseline)b);
		if (v->floor_us > 0) /* 0: the last cache may hold all of them */
			printf("floor      %.2f us (bytes that must move)\n", v->floor_us);
	}
	printf("reward     %g\n", v->reward);
	printf("seconds   ");
#define STAGE(member) printf("  %s %.2f", #member, v->seconds.member);
#include "judge/verdict.def"
	putchar('\n');
	if (v->diagnostics && *v->diagnostics)
		printf("\n%s%s", v->diagnostics, v->diagnostics[strlen(v->diagnostics) - 1] == '\n' ? "" : "\n");
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static enum ww_rc show_plan(struct ww_judge_task *t, const struct ww_solution *s, int json, int *ok, struct ww_err *err)
{
	ww_auto_str out = WW_STR_INIT(4 << 20);
	enum ww_rc rc = ww_judge_show_plan(t, s, &out, ok, err);
	if (rc == WW_OK && json)
		ww_cmd_print_json(json_pack("{s:b, s:s}", "ok", *ok, *ok ? "plan" : "diagnostics", out.p));
	else if (rc == WW_OK)
		fputs(out.p, stdout);
	return rc;
}

static enum ww_rc judge_opts(const struct values *v, struct ww_judge_opts *o, struct ww_err *err)
{
	enum ww_rc rc = ww_judging_opts(&v->judging, o, err);
	o->max_run_s = v->max_run_s;
	o->max_repeat_s = v->max_repeat_s;
	o->sanitize = v->sanitize;
	return rc;
}

static enum ww_judge_depth depth_of(const struct values *v)
{
	return v->verify_only ? WW_JUDGE_VERIFY : v->call ? WW_JUDGE_CALL : ww_judging_depth(v->judging.decide);
}

static enum ww_rc judge(const struct values *v, const struct ww_task *task, const struct ww_solution_files *files,
	const struct ww_solution *baseline, int *ok, struct ww_err *err)
{
	const enum ww_judge_depth depth = depth_of(v);
	struct ww_judge_opts o;
	struct ww_progress *p = ww_progress_new(stderr);
	struct ww_judge *j = NULL;
	struct ww_judge_task *t = NULL;
	WW_AUTO(ww_verdict_release) struct ww_verdict verdict;
	enum ww_rc rc;

	ww_verdict_init(&verdict);
	WW_TRY(judge_opts(v, &o, err));
	o.target = files->target;
	o.first = task;
	o.progress = ww_progress_stage;
	o.progress_ctx = p;
	WW_TRY(ww_judge_open(&j, &o, err));
	WW_TRY(ww_judge_task_open(j, task, &t, err));
	if (v->show_plan) {
		ww_progress_clear(p);
		WW_TRY(show_plan(t, &files->solution, v->json, ok, err));
		goto out;
	}
	*ok = 1;
	for (int64_t k = 0; k < v->repeat; k++) {
		WW_TRY(ww_judge_run_against(t, &files->solution, baseline, depth, &verdict, err));
		ww_progress_clear(p);
		if (v->json)
			ww_cmd_print_json(ww_verdict_to_json(&verdict));
		else
			print_verdict(&verdict);
		fflush(stdout);
		*ok &= verdict.correct;
	}
out:
	ww_progress_free(p);
	ww_judge_task_close(t);
	ww_judge_close(j);
	return rc;
}

static int run_batch(const struct values *v, const char *jobs)
{
	struct ww_cmd_batch b = { .jobs = jobs,
		.output = v->output,
		.depth = depth_of(v),
		.parallel = (int)v->parallel,
		.open_tasks = (int)v->open_tasks };
	struct ww_err err = WW_ERR_INIT;
	if (judge_opts(v, &b.opts, &err) != WW_OK ||
		ww_judging_devices(
			v->judging.devices, v->judging.target, b.devices, WW_BATCH_MAX_DEVICES, &b.n_devices, &err) != WW_OK)
		return ww_cmd_fail(&err);
	return ww_cmd_batch_run(&b);
}

/* A directory of tasks and a directory of kernels as KernelBench writes it: a batch. */
static int run_kernelbench(const struct values *v, const char *tasks, const char *kernels)
{
	ww_auto_str lines = WW_STR_INIT(256 << 20);
	struct ww_err err = WW_ERR_INIT;
	char path[64];
	int n = 0, fd = -1, code;
	enum ww_rc rc = ww_kbrun_jobs(tasks, kernels, &lines, &n, &err);
	if (rc == WW_OK &&
		((fd = memfd_create("jobs", MFD_CLOEXEC)) < 0 || write(fd, lines.p, lines.len) != (ssize_t)lines.len))
		rc = ww_err_errno(&err, WW_ERR_SYSTEM, "cannot create a temporary file for the jobs");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	code = rc == WW_OK ? run_batch(v, path) : ww_cmd_fail(&err);
	if (fd >= 0)
		close(fd);
	return code;
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct values *v = values;
	WW_AUTO(ww_task_release) struct ww_task task = { .path = NULL };
	WW_AUTO(ww_solution_files_release) struct ww_solution_files files = { .target = 0 }, baseline = { .target = 0 };
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc;
	int ok = 0;

	if (v->batch ? argc != 0 : argc != 2) {
		rc = ww_err_set(&err, WW_ERR_USAGE, "judge takes a task and a solution, or --batch FILE alone");
		goto out;
	}
	if (v->batch)
		return run_batch(v, v->batch);
	if (ww_fs_is_dir(argv[0]) && ww_kbrun_is(argv[1]))
		return run_kernelbench(v, argv[0], argv[1]);
	WW_TRY(ww_task_load(&task, argv[0], &err));
	WW_TRY(ww_solution_load(&files, argv[1], ww_target_of(v->judging.target), &err));
	if (*v->baseline)
		WW_TRY(ww_solution_load(&baseline, v->baseline, files.target, &err));
	WW_TRY(judge(v, &task, &files, *v->baseline ? &baseline.solution : NULL, &ok, &err));
out:
	return rc != WW_OK ? ww_cmd_fail(&err) : ok ? 0 : 1;
}

const struct ww_cmd ww_cmd_judge = { .name = "judge",
	.args = "TASK.py SOLUTION | TASKS_DIR KERNELS_DIR | --batch FILE",
	.summary = "check a solution and time it against PyTorch",
	.details =
		"SOLUTION is a directory with plan.c and kernels.cu or kernels.c, or with model_new.py (CUDA Agent); or a file that\n"
		"defines ModelNew (KernelBench).  With a directory of tasks in the place of TASK.py and a directory of kernels as\n"
		"KernelBench writes it (level_L_problem_P_sample_S_kernel.py), all of them are judged as a batch.\n"
		"Exit codes: 0 correct, 1 not correct,\n"
		"2 bad usage or a task that cannot be used, 3 infrastructure; of a batch the worst of its jobs.\n"
		"docs/formats/batch.md has the lines of a batch.",
	.opts = opts,
	.values_size = sizeof(struct values),
	.min_args = 0,
	.max_args = 2,
	.run = run };
