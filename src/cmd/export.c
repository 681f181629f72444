/* export.c - `warpwright export DIR --format F`: DIR is what optimize left (task.py and solution/). */
#include "cmd/cmd.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "export/export.h"
#include "judge/judge.h"
#include "judge/solution.h"
#include "task/task.h"

#include <ww/episode.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct export_values {
	const char *format, *out, *task;
	int64_t device;
	int json;
};

static const struct ww_opt options[] = {
	{ "format", 'f', WW_OPT_STR, offsetof(struct export_values, format), "FORMAT", "torch", 0, 0,
	  "torch, kernelbench or c" },
	{ "out", 'o', WW_OPT_STR, offsetof(struct export_values, out), "OUT", NULL, 0, 0,
	  "where to write it (default DIR/exports/FORMAT)" },
	{ "task", 't', WW_OPT_STR, offsetof(struct export_values, task), "TASK.py", NULL, 0, 0,
	  "the task, where DIR is a solution alone (kernels.*, plan.c)" },
	{ "device", 'd', WW_OPT_INT, offsetof(struct export_values, device), "N", "0", 0, 63, "which GPU" },
	WW_OPT_JSON(struct export_values, json),
	WW_OPT_END
};

/* DIR/task.py and DIR/solution as optimize leaves them, or TASK.py and DIR as given. */
static enum ww_rc find_parts(const char *dir, const char *task_option, char *task_path, char *solution_dir, struct ww_err *err)
{
	enum ww_rc rc = ww_fs_join(solution_dir, dir, "solution", err);
	if (rc != WW_OK)
		return rc;
	if (!ww_fs_is_dir(solution_dir))
		snprintf(solution_dir, PATH_MAX, "%s", dir);
	if (task_option) {
		snprintf(task_path, PATH_MAX, "%s", task_option);
		return WW_OK;
	}
	rc = ww_fs_join(task_path, dir, "task.py", err);
	if (rc == WW_OK && !ww_fs_is_file(task_path))
		rc = ww_err_set(err, WW_ERR_USAGE, "%s has no task.py; name the task with --task TASK.py", dir);
	return rc;
}

/* The verdict that optimize left beside the solution, if it speaks of these very bytes. */
static int read_verdict(const char *dir, const struct ww_solution *s, struct ww_verdict *v)
{
	char path[PATH_MAX], id[65];
	struct ww_err err = WW_ERR_INIT;
	json_t *o = NULL;
	if (ww_fs_join(path, dir, "verdict.json", &err) != WW_OK || ww_json_read_file(path, 1 << 20, &o, &err) != WW_OK)
		return 0;
	ww_solution_id(s, id);
	int ok = ww_verdict_from_json(o, v, &err) == WW_OK && !strcmp(v->solution_id, id);
	json_decref(o);
	return ok;
}

/* The copy in DIR is called task.py; what the user called it stands in the episode, and names the export. */
static void name_as_given(struct ww_task *task, const char *dir)
{
	char path[PATH_MAX];
	struct ww_episode e = { 0 };
	struct ww_err ignored = WW_ERR_INIT;
	if (ww_fs_join(path, dir, "episode.jsonl", &ignored) != WW_OK || ww_episode_read(path, &e, &ignored) != WW_OK)
		return;
	const char *slash = strrchr(e.header.task_path, '/'), *base = slash ? slash + 1 : e.header.task_path;
	size_t n = strlen(base);
	char *name = n > 3 && !strcmp(base + n - 3, ".py") ? strndup(base, n - 3) : NULL;
	ww_episode_release(&e);
	if (!name)
		return;
	free(task->name);
	task->name = name;
}

static int run_export(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	(void)cmd, (void)argc;
	const struct export_values *o = values;
	struct ww_err err = WW_ERR_INIT;
	struct ww_task task = { 0 };
	struct ww_solution_files files = { .device = WW_STR_INIT(0), .plan = WW_STR_INIT(0) };
	struct ww_judge *judge = NULL;
	struct ww_judge_task *judged = NULL;
	struct ww_verdict verdict;
	enum ww_export_format format;
	char task_path[PATH_MAX], solution_dir[PATH_MAX], out[PATH_MAX];
	uint64_t start = ww_now_ns();
	enum ww_rc rc;
	ww_verdict_init(&verdict);
	WW_TRY(ww_export_format_parse(o->format, &format, &err));
	WW_TRY(find_parts(argv[0], o->task, task_path, solution_dir, &err));
	if (o->out)
		snprintf(out, sizeof(out), "%s", o->out);
	else if ((size_t)snprintf(out, sizeof(out), "%s/exports/%s", argv[0], o->format) >= sizeof(out))
		WW_TRY(ww_err_set(&err, WW_ERR_LIMIT, "path too long: %s", argv[0]));
	WW_TRY(ww_export_check_place(out, &err));	/* before PyTorch is started */
	WW_TRY(ww_task_load(&task, task_path, &err));
	if (!o->task)
		name_as_given(&task, argv[0]);
	WW_TRY(ww_solution_load(&files, solution_dir, 0, &err));
	struct ww_judge_opts opts = { .target = files.target, .device = (int)o->device, .interrupted = &ww_cmd_interrupted };
	WW_TRY(ww_judge_open(&judge, &opts, &err));
	WW_TRY(ww_judge_task_open(judge, &task, &judged, &err));
	struct ww_export_opts e = {
		.judged = judged, .task = &task, .solution = &files.solution, .format = format, .dir = out,
		.verdict = read_verdict(argv[0], &files.solution, &verdict) ? &verdict : NULL,
		.interrupted = &ww_cmd_interrupted,
	};
	WW_TRY(ww_export(&e, &err));
	if (o->json)
		printf("{\"format\": \"%s\", \"dir\": \"%s\", \"checked\": true, \"seconds\": %.3f}\n", o->format, out,
		       ww_seconds_since(start));
	else
		printf("%s: checked against the original module in a fresh process\n", out);
out:
	if (judged)
		ww_judge_task_close(judged);
	if (judge)
		ww_judge_close(judge);
	ww_verdict_release(&verdict);
	ww_solution_files_release(&files);
	ww_task_release(&task);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_export = {
	"export", "DIR", "write a judged solution as a PyTorch operator, a KernelBench file or a C library",
	"DIR is what `warpwright optimize -o DIR` left, or a directory with kernels.* and plan.c (then name the task).\n"
	"The export is run in a fresh process and compared with the original module before it is kept.",
	options, sizeof(struct export_values), 1, 1, run_export
};
