/* export.c - `warpwright export DIR --format F[,F]`: DIR is what optimize left (task.py and solution/).  Several
 * formats share one reference worker; each is checked in a fresh process of its own, in parallel, and the failure of
 * one does not affect the others. */
#include "cmd/cmd.h"
#include "cmd/judging.h"
#include "cmd/progress.h"
#include "agent/rundir.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "export/export.h"
#include "judge/judge.h"
#include "judge/solution.h"
#include "task/task.h"

#include "episode/episode.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct export_values {
	const char *format, *out, *task;
	struct ww_judging judging;
	int weights, json;
};

static const struct ww_opt options[] = { { "format", 'f', WW_OPT_STR, offsetof(struct export_values, format), "LIST",
											 "torch", 0, 0, "torch, kernelbench, c, or several separated by commas" },
	{ "out", 'o', WW_OPT_STR, offsetof(struct export_values, out), "OUT", NULL, 0, 0,
		"where to write it (default DIR/exports/FORMAT); several formats go to OUT/FORMAT" },
	{ "task", 't', WW_OPT_STR, offsetof(struct export_values, task), "TASK.py", NULL, 0, 0,
		"the task, where DIR is a solution alone (kernels.*, plan.c)" },
	WW_OPT_DEVICE(struct export_values, judging),
	{ "weights", 'w', WW_OPT_FLAG, offsetof(struct export_values, weights), NULL, NULL, 0, 0,
		"--format c: also write the module's weights" },
	WW_OPT_JSON(struct export_values, json), WW_OPT_END };

/* DIR/task.py and DIR/solution as optimize leaves them, or TASK.py and DIR as given. */
static enum ww_rc find_parts(
	const char *dir, const char *task_option, char *task_path, char *solution_dir, struct ww_err *err)
{
	if (!ww_fs_is_dir(dir))
		return ww_err_set(err, WW_ERR_USAGE,
			"there is no directory %s; give what `optimize -o DIR` left, or one with kernels.* and plan.c and --task TASK.py",
			dir);
	WW_CHECK(ww_fs_join(solution_dir, dir, "solution", err));
	if (!ww_fs_is_dir(solution_dir) && ww_rundir_is_one(dir))
		return ww_err_set(err, WW_ERR_USAGE,
			"%s holds a run of `optimize` that found no correct solution; `warpwright episode show %s` says why", dir,
			dir);
	if (!ww_fs_is_dir(solution_dir))
		snprintf(solution_dir, PATH_MAX, "%s", dir);
	if (task_option) {
		snprintf(task_path, PATH_MAX, "%s", task_option);
		return WW_OK;
	}
	WW_CHECK(ww_fs_join(task_path, dir, "task.py", err));
	if (!ww_fs_is_file(task_path))
		return ww_err_set(err, WW_ERR_USAGE, "%s has no task.py; name the task with --task TASK.py", dir);
	return WW_OK;
}

/* The verdict that optimize left beside the solution, if it is about exactly these bytes. */
static int read_verdict(const char *dir, const struct ww_solution *s, struct ww_verdict *v)
{
	char path[PATH_MAX], id[65];
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *o = NULL;
	if (ww_fs_join(path, dir, "verdict.json", &err) != WW_OK || ww_json_read_file(path, 1 << 20, &o, &err) != WW_OK)
		return 0;
	ww_solution_id(s, id);
	return ww_verdict_from_json(o, v, &err) == WW_OK && !strcmp(v->solution_id, id);
}

/* The copy in DIR is called task.py; what the user called it stands in the episode, and names the export. */
static void name_as_given(struct ww_task *task, const char *dir)
{
	char path[PATH_MAX];
	WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
	struct ww_err ignored = WW_ERR_INIT;
	if (ww_fs_join(path, dir, "episode.jsonl", &ignored) != WW_OK || ww_episode_read(path, &e, &ignored) != WW_OK)
		return;
	const char *slash = strrchr(e.header.task_path, '/'), *base = slash ? slash + 1 : e.header.task_path;
	size_t n = strlen(base);
	char *name = n > 3 && !strcmp(base + n - 3, ".py") ? strndup(base, n - 3) : NULL;
	if (!name)
		return;
	free(task->name);
	task->name = name;
}

struct destination {
	enum ww_export_format format;
	char dir[PATH_MAX];
};

static enum ww_rc find_destination(
	const struct export_values *o, const char *from, int several, struct destination *p, struct ww_err *err)
{
	const char *name = ww_export_format_name(p->format);
	int n = !o->out ? snprintf(p->dir, sizeof(p->dir), "%s/exports/%s", from, name)
		: several   ? snprintf(p->dir, sizeof(p->dir), "%s/%s", o->out, name)
					: snprintf(p->dir, sizeof(p->dir), "%s", o->out);
	if ((size_t)n >= sizeof(p->dir))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", o->out ? o->out : from);
	return ww_export_check_dir(p->dir, err);
}

/* The formats of the list, each once, and where each goes; nothing has been started yet. */
static enum ww_rc find_destinations(const struct export_values *o, const char *from,
	struct destination destinations[WW_EXPORT_COUNT], int *n, struct ww_err *err)
{
	int several = strchr(o->format, ',') != NULL;
	enum ww_export_format format;
	unsigned seen = 0;
	char name[32];
	size_t length;
	*n = 0;
	for (const char *p, *list = o->format; (p = ww_list_next(&list, &length));) {
		snprintf(name, sizeof(name), "%.*s", (int)length, p);
		WW_CHECK(ww_export_format_parse(name, &format, err));
		if (seen & 1u << format)
			return ww_err_set(err, WW_ERR_USAGE, "--format names %s twice", name);
		seen |= 1u << format;
		struct destination *x =
			&destinations[(*n)++]; /* as many as there are formats at most, since none comes twice */
		x->format = format;
		WW_CHECK(find_destination(o, from, several, x, err));
	}
	return *n ? WW_OK : ww_export_format_parse("", &format, err);
}

static void tell(const struct destination *p, int json, uint64_t start)
{
	if (json)
		printf("{\"format\": \"%s\", \"dir\": \"%s\", \"checked\": true, \"seconds\": %.3f}\n",
			ww_export_format_name(p->format), p->dir, ww_seconds_since(start));
	else
		printf("%s: checked against the original module in a fresh process\n", p->dir);
	fflush(stdout);
}

/* All of them; the first that failed is the error. */
static enum ww_rc export_all(const struct destination *destinations, int n, const struct ww_export_opts *common,
	int json, struct ww_progress *p, uint64_t start, struct ww_err *err)
{
	struct ww_export_opts each[WW_EXPORT_COUNT];
	enum ww_rc done[WW_EXPORT_COUNT];
	struct ww_err errs[WW_EXPORT_COUNT];
	for (int i = 0; i < n; i++) {
		each[i] = *common;
		each[i].format = destinations[i].format;
		each[i].dir = destinations[i].dir;
	}
	ww_progress_stage(p, "exporting and checking in a fresh process");
	ww_exports(each, n, done, errs);
	ww_progress_clear(p);
	for (int i = 0; i < n; i++) {
		if (done[i] == WW_OK)
			tell(&destinations[i], json, start);
		else if (err->rc == WW_OK)
			*err = errs[i];
	}
	return err->rc;
}

static enum ww_rc check_weights(
	const struct export_values *o, const struct destination *destinations, int n, struct ww_err *err)
{
	for (int i = 0; i < n; i++)
		if (!o->weights || destinations[i].format == WW_EXPORT_C)
			return WW_OK;
	return ww_err_set(err, WW_ERR_USAGE, "--weights is for --format c; the other forms take the module's state_dict");
}

static int run_export(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct export_values *o = values;
	struct ww_err err = WW_ERR_INIT;
	WW_AUTO(ww_task_release) struct ww_task task = { 0 };
	WW_AUTO(ww_solution_files_release)
	struct ww_solution_files files = { .device = WW_STR_INIT(0), .plan = WW_STR_INIT(0) };
	struct ww_progress *p = ww_progress_new(stderr);
	struct ww_judge *judge = NULL;
	struct ww_judge_task *judged = NULL;
	WW_AUTO(ww_verdict_release) struct ww_verdict verdict;
	struct destination destinations[WW_EXPORT_COUNT];
	char task_path[PATH_MAX], solution_dir[PATH_MAX];
	uint64_t start = ww_now_ns();
	enum ww_rc rc;
	int n;
	ww_verdict_init(&verdict);
	WW_TRY(find_parts(argv[0], o->task, task_path, solution_dir, &err));
	WW_TRY(find_destinations(o, argv[0], destinations, &n, &err));
	WW_TRY(check_weights(o, destinations, n, &err));
	WW_TRY(ww_task_load(&task, task_path, &err));
	if (!o->task)
		name_as_given(&task, argv[0]);
	WW_TRY(ww_solution_load(&files, solution_dir, 0, &err));
	struct ww_judge_opts opts = { .target = files.target,
		.device = (int)o->judging.device,
		.first = &task,
		.interrupted = &ww_cmd_interrupted,
		.progress = ww_progress_stage,
		.progress_ctx = p };
	WW_TRY(ww_judge_open(&judge, &opts, &err));
	WW_TRY(ww_judge_task_open(judge, &task, &judged, &err));
	WW_TRY(export_all(destinations, n,
		&(struct ww_export_opts){
			.judged = judged,
			.task = &task,
			.solution = &files.solution,
			.interrupted = &ww_cmd_interrupted,
			.weights = o->weights,
			.verdict = read_verdict(argv[0], &files.solution, &verdict) ? &verdict : NULL,
		},
		o->json, p, start, &err));
out:
	ww_progress_free(p);
	if (judged)
		ww_judge_task_close(judged);
	if (judge)
		ww_judge_close(judge);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_export = { "export", "DIR",
	"write a judged solution as a PyTorch operator, a KernelBench file or a C library",
	"DIR is what `warpwright optimize -o DIR` left, or a directory with kernels.* and plan.c (then name the task).\n"
	"Each export is run in a fresh process and compared with the original module before it is kept.",
	options, sizeof(struct export_values), 1, 1, run_export };
