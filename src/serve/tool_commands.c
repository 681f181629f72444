/* tool_commands.c - optimize and export: commands of ours, in a process of their own, as tools over MCP.
 *
 * `optimize` always runs the planner: a client has a model already, and its calls must not cost money for another one.
 */
#include "serve/tools.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/tmpdir.h"
#include "serve/child.h"

#include <stdio.h>
#include <string.h>

static const struct ww_judge_opts *judge_opts(const struct ww_tool_env *env)
{
	const struct ww_serve_env *e = env->ctx;
	return &ww_broker_opts_of(e->broker)->judge;
}

/* Run a command that prints one JSON object; exit codes 0 and 1 both come with one. */
static enum ww_rc command(
	struct ww_tool_env *env, const char *const *argv, struct ww_tool_result *r, struct ww_err *err)
{
	const struct ww_serve_env *e = env->ctx;
	ww_auto_str out = WW_STR_INIT(16 << 20), last = WW_STR_INIT(1024);
	int code = 0;
	WW_CHECK(ww_child_run(argv, e->call, &out, &last, &code, err));
	if (code > 1) {
		ww_str_adds(
			&r->text, last.len ? last.p : "the command failed without a message; run it on a terminal to see why");
		r->is_error = 1;
		return WW_OK;
	}
	WW_CHECK(ww_json_parse(out.p, out.len, argv[0], &r->data, err));
	ww_str_add(&r->text, out.p, out.len);
	return WW_OK;
}

/* The task as a file: the user's own, or the text in a directory of ours. */
static enum ww_rc task_file(const json_t *args, struct ww_tmpdir *tmp, char *path, struct ww_err *err)
{
	WW_AUTO(ww_task_release) struct ww_task t = { 0 };
	WW_CHECK(ww_serve_load_task(args, &t, err));
	if (*t.path && json_object_get(args, "task")) {
		snprintf(path, PATH_MAX, "%s", t.path);
		return WW_OK;
	}
	WW_CHECK(ww_tmpdir_new(tmp, "task", err));
	WW_CHECK(ww_fs_join(path, tmp->path, "task.py", err));
	return ww_fs_write(path, t.source, t.source_bytes, err);
}

static enum ww_rc optimize_run(
	struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const struct ww_judge_opts *o = judge_opts(env);
	const char *dir = ww_json_str(args, "output", NULL);
	WW_AUTO(ww_tmpdir_remove) struct ww_tmpdir tmp = WW_TMPDIR_INIT;
	char task[PATH_MAX], rule[32], device[32], turns[32], seconds[32], baselines[64] = "--baselines=";
	snprintf(rule, sizeof(rule), "--rule=%s", ww_rule_name(o->rule));
	snprintf(device, sizeof(device), "--device=%d", o->device);
	snprintf(turns, sizeof(turns), "--max-turns=%lld", (long long)ww_json_int(args, "max_turns", 150));
	snprintf(seconds, sizeof(seconds), "--max-seconds=%g", ww_json_num(args, "max_seconds", 600));
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (o->baselines & 1u << b) {
			strcat(baselines, baselines[strlen(baselines) - 1] == '=' ? "" : ",");
			strcat(baselines, ww_baseline_name((enum ww_baseline)b));
		}
	WW_CHECK(task_file(args, &tmp, task, err));
	const char *argv[] = { "optimize", "--json", o->target == WW_TARGET_CUDA ? "--target=cuda" : "--target=cpu", rule,
		device, turns, seconds, baselines, dir ? "--output" : "--", dir ? dir : task, dir ? "--" : NULL,
		dir ? task : NULL, NULL };
	return command(env, argv, r, err);
}

const struct ww_tool ww_tool_optimize = {
	{ "optimize",
		"Let the built-in planner write a kernel, prove it and export it; "
		"takes minutes. The result names the directory with "
		"solution, verdict and exports; calling it again with the same output goes on where it was cancelled.",
		"{\"type\":\"object\",\"properties\":{\"output\":{\"type\":\"string\",\"description\":\"directory for the run "
		"(default runs/NAME-TARGET-TIME)\"},\"max_seconds\":{\"type\":\"number\",\"minimum\":1,\"maximum\":86400,"
		"\"description\":\"stop after so long (default 600)\"},\"max_turns\":{\"type\":\"integer\",\"minimum\":1,"
		"\"maximum\":100000,\"description\":\"stop after so many steps (default "
		"150)\"}},\"additionalProperties\":false}" },
	.run = optimize_run, .mcp = { "Optimize a task", "{\"type\":\"object\"}", WW_TOOL_TASK, .slow = 1, .resumes = 1 }
};

static enum ww_rc export_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *argv[16] = { "export", "--json", "--format", ww_json_str(args, "format", "torch"), "--device" };
	const char *task = ww_json_str(args, "task", NULL), *output = ww_json_str(args, "output", NULL);
	char device[32];
	int n = 5;
	snprintf(device, sizeof(device), "%d", judge_opts(env)->device);
	argv[n++] = device;
	if (task) {
		argv[n++] = "--task";
		argv[n++] = task;
	}
	if (output) {
		argv[n++] = "--out";
		argv[n++] = output;
	}
	argv[n++] = "--";
	argv[n++] = ww_json_str(args, "dir", "");
	return command(env, argv, r, err);
}

const struct ww_tool ww_tool_export = {
	{ "export",
		"Write a judged solution as a PyTorch operator (torch), a KernelBench file (kernelbench) or a C library (c), "
		"and check "
		"it in a fresh process.",
		"{\"type\":\"object\",\"properties\":{\"dir\":{\"type\":\"string\",\"description\":\"what optimize left, or a "
		"directory with plan.c and kernels.*\"},\"task\":{\"type\":\"string\",\"description\":\"path of the task, "
		"where dir "
		"is a solution alone\"},\"output\":{\"type\":\"string\",\"description\":\"where to write it (default "
		"DIR/exports/FORMAT)\"},\"format\":{\"type\":\"string\",\"enum\":[\"torch\",\"kernelbench\",\"c\"],"
		"\"description\":\"torch (default), kernelbench or c\"}},\"required\":[\"dir\"],\"additionalProperties\":false}" },
	.run = export_run,
	.mcp = { "Export a solution",
		"{\"type\":\"object\",\"properties\":{\"format\":{\"type\":\"string\"},\"dir\":{\"type\":\"string\"},"
		"\"checked\":"
		"{\"type\":\"boolean\"}},\"required\":[\"format\",\"dir\",\"checked\"]}",
		.slow = 1 }
};
