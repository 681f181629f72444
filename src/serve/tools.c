/* tools.c - tools of the table (agent/tools.def) for clients over MCP.
 *
 * A tool works on a struct ww_tool_env, whoever calls it.  Here its task and its solution come with each call (files of
 * the user's, or texts; taken by content when the call begins), and the broker's judges answer.  What decides a verdict
 * (target, rule, baselines, seeds) is chosen when the server is started: a model cannot ask for an easier judge.
 *
 * The text of an answer is for models, short; structuredContent is the same object that the command prints with --json.
 */
#include "serve/tools.h"

#include "base/json.h"
#include "judge/profile/profile.h"
#include "judge/solution.h"

#include <pthread.h>
#include <string.h>

const char ww_serve_instructions[] =
	"Warpwright judges GPU and CPU kernels against a PyTorch module. A task is a Python file with class Model, "
	"get_inputs() and "
	"get_init_inputs(). A solution is plan.c (void plan(struct ww_plan *p): buffers and launches) plus kernels.cu, "
	"or kernels.c "
	"on the cpu target. Work in this order: inspect the task, profile its reference, write the two files, "
	"compile until it builds, "
	"verify for correctness and speed, profile the solution, improve. optimize lets the built-in planner do all of it; "
	"export turns a judged solution into a PyTorch operator, "
	"a KernelBench file or a C library. A wrong solution is a verdict, "
	"not an error. The first call about a task takes some seconds, later ones milliseconds.";

/* ---- Tasks and solutions ----------------------------------------------------------------------------------------- */

enum ww_rc ww_serve_load_task(const json_t *args, struct ww_task *t, struct ww_err *err)
{
	const json_t *path = json_object_get(args, "task"), *text = json_object_get(args, "task_source");
	if (!path == !text)
		return ww_err_set(err, WW_ERR_USAGE,
			"name a task by \"task\" (a path) or give it as \"task_source\" (its text), one of the two");
	return path ? ww_task_load(t, json_string_value(path), err)
				: ww_task_from_text(t, "task", json_string_value(text), json_string_length(text), err);
}

static enum ww_rc text_solution(const json_t *args, struct ww_solution_files *f, struct ww_err *err)
{
	const json_t *kernels = json_object_get(args, "kernels"), *plan = json_object_get(args, "plan");
	if (!kernels || !plan)
		return ww_err_set(err, WW_ERR_USAGE,
			"give the solution as \"solution\" (a directory), or as \"kernels\" and \"plan\" (texts)");
	if (json_string_length(kernels) > WW_SOLUTION_MAX_BYTES || json_string_length(plan) > WW_SOLUTION_MAX_BYTES)
		return ww_err_set(err, WW_ERR_USAGE, "each file of a solution holds at most %d bytes", WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->device, WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->plan, WW_SOLUTION_MAX_BYTES);
	ww_str_add(&f->device, json_string_value(kernels), json_string_length(kernels));
	ww_str_add(&f->plan, json_string_value(plan), json_string_length(plan));
	if (f->device.cut || f->plan.cut)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a solution");
	f->solution = (struct ww_solution){ .device_source = f->device.p,
		.device_bytes = f->device.len,
		.plan_source = f->plan.p,
		.plan_bytes = f->plan.len,
		.form = WW_FORM_PLAN };
	return WW_OK;
}

static enum ww_rc load_solution(
	const struct ww_broker *d, const json_t *args, struct ww_solution_files *f, struct ww_err *err)
{
	const char *dir = ww_json_str(args, "solution", NULL);
	if (!dir)
		return text_solution(args, f, err);
	if (json_object_get(args, "kernels") || json_object_get(args, "plan"))
		return ww_err_set(err, WW_ERR_USAGE, "\"solution\" goes without \"kernels\" and \"plan\"");
	return ww_solution_load(f, dir, ww_broker_opts_of(d)->judge.target, err);
}

/* ---- Questions to the broker ------------------------------------------------------------------------------------- */

static int call_cancelled(void *ctx) { return ww_mcp_call_cancelled(ctx); }

static void call_progress(void *ctx, const char *stage) { ww_mcp_call_progress(ctx, stage); }

/* Ask the broker about what the arguments name; r is released by the caller in any case. */
static enum ww_rc ask(
	struct ww_serve_env *e, int needs_solution, struct ww_broker_ask *a, struct ww_broker_result *r, struct ww_err *err)
{
	const struct ww_broker_waiter w = { call_cancelled, call_progress, e->call };
	enum ww_rc rc;
	memset(r, 0, sizeof(*r));
	a->client = ww_mcp_call_client(e->call);
	WW_TRY(ww_serve_load_task(e->args, &a->task, err));
	if (needs_solution)
		WW_TRY(load_solution(e->broker, e->args, &a->files, err));
	return ww_broker_ask(e->broker, a, &w, r, err);
out:
	ww_broker_ask_release(a);
	return rc;
}

/* The answer of `work` about the open task. */
static enum ww_rc ask_data(
	struct ww_tool_env *env, int needs_solution, struct ww_broker_ask a, json_t **data, struct ww_err *err)
{
	WW_AUTO(ww_broker_result_release) struct ww_broker_result r;
	enum ww_rc rc = ask(env->ctx, needs_solution, &a, &r, err);
	*data = rc == WW_OK ? json_incref(r.data) : NULL;
	return rc;
}

/* The graph belongs to the task, which may be closed before the answer is sent: it gets a copy. */
static enum ww_rc inspect_work(const struct ww_broker *d, struct ww_judge_task *t, const struct ww_solution *s,
	struct ww_broker_result *r, struct ww_err *err)
{
	json_t *data = ww_tool_inspect_data(
		ww_broker_opts_of(d)->judge.target, &ww_judge_task_facts(t)->device, ww_judge_task_graph(t));
	r->data = json_deep_copy(data);
	json_decref(data);
	return WW_OK;
}

static enum ww_rc inspect_for_tool(struct ww_tool_env *env, json_t **data, struct ww_err *err)
{
	return ask_data(env, 0, (struct ww_broker_ask){ .work = inspect_work }, data, err);
}

static enum ww_rc judge_for_tool(struct ww_tool_env *env, enum ww_judge_depth depth, struct ww_verdict *v,
	json_t **data, const char **missing, struct ww_err *err)
{
	struct ww_broker_ask a = { .depth = depth };
	WW_AUTO(ww_broker_result_release) struct ww_broker_result r;
	enum ww_rc rc = ask(env->ctx, 1, &a, &r, err);
	*missing = NULL;
	if (rc == WW_OK) {
		*data = ww_verdict_to_json(&r.verdict);
		*v = r.verdict; /* moved */
		ww_verdict_init(&r.verdict);
	}
	return rc;
}

static enum ww_rc profile_work(const struct ww_broker *d, struct ww_judge_task *t, const struct ww_solution *s,
	struct ww_broker_result *r, struct ww_err *err)
{
	return s ? ww_profile_solution(t, s, &r->data, err) : ww_profile_reference(t, &r->data, err);
}

static enum ww_rc profile_for_tool(
	struct ww_tool_env *env, int of_solution, json_t **data, const char **missing, struct ww_err *err)
{
	*missing = NULL;
	return ask_data(env, of_solution, (struct ww_broker_ask){ .work = profile_work }, data, err);
}

/* ---- The list ---------------------------------------------------------------------------------------------------- */

#define ROW_NO(name)
#define ROW_MCP(name) &ww_tool_##name,
static const struct ww_tool *const tools[] = {
#define TOOL(name, loop, shell, mcp) ROW_##mcp(name)
#include "agent/tools.def"
#undef TOOL
};
static struct ww_mcp_tool list[WW_ARRAY_LEN(tools)];
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define TEXT(name, text) "\"" name "\":{\"type\":\"string\",\"description\":\"" text "\"}"
static const char task_args[] = "{" TEXT("task", "path of the task, a Python file") "," TEXT(
	"task_source", "the task as text, instead of a path") "}";
static const char solution_args[] = "{" TEXT("solution", "directory with plan.c and kernels.cu or kernels.c") "," TEXT(
	"kernels", "text of kernels.cu (cpu target: kernels.c), with plan, instead of a directory") "," TEXT("plan",
	"text of plan.c, with kernels") "}";

static void add_args(json_t *properties, const char *text)
{
	json_auto_t *more = json_loads(text, 0, NULL);
	json_object_update(properties, more);
}

/* The tool's schema with task and solution before its own arguments.  Lives as long as the process. */
static char *input_schema(const struct ww_tool *t)
{
	json_t *schema = json_loads(t->spec.schema, 0, NULL), *properties = json_object();
	if (t->mcp.takes >= WW_TOOL_TASK)
		add_args(properties, task_args);
	if (t->mcp.takes >= WW_TOOL_SOLUTION)
		add_args(properties, solution_args);
	json_object_update(properties, json_object_get(schema, "properties"));
	json_object_set_new(schema, "properties", properties);
	char *text = json_dumps(schema, JSON_COMPACT);
	json_decref(schema);
	return text;
}

static enum ww_rc run(
	void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err)
{
	struct ww_serve_env e = { .broker = ctx, .args = args, .call = call };
	struct ww_tool_env env = {
		.inspect = inspect_for_tool, .judge = judge_for_tool, .profile = profile_for_tool, .ctx = &e, .call_id = ""
	};
	WW_AUTO(ww_tool_result_release) struct ww_tool_result r = { .text = WW_STR_INIT(64 << 20) };
	size_t i = (size_t)(ww_mcp_call_tool(call) - list);
	enum ww_rc rc = tools[i]->run(&env, args, &r, err);
	if (rc == WW_OK) {
		ww_str_add(&a->text, r.text.p, r.text.len);
		a->data = json_incref(r.data);
		a->is_error = r.is_error;
	}
	return rc;
}

static void fill_list(void)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++) {
		const struct ww_tool *t = tools[i];
		list[i] = (struct ww_mcp_tool){ .name = t->spec.name,
			.title = t->mcp.title,
			.description = t->spec.description,
			.input_schema = input_schema(t),
			.output_schema = t->mcp.output_schema,
			.read_only = t->mcp.changes_nothing,
			.slow = t->mcp.slow,
			.resumes = t->mcp.resumes,
			.run = run };
	}
}

const struct ww_mcp_tool *ww_serve_tools(size_t *n)
{
	pthread_once(&once, fill_list);
	*n = WW_ARRAY_LEN(list);
	return list;
}
