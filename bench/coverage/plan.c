/* plan.c - tests which graphs the planner covers: builds and compiles its first solution, runs nothing.
 *
 *     coverage-plan TARGET [solutions|conversations] < GRAPHS.jsonl       (lines of bench/coverage/shapes.py)
 *
 * For each graph: the planner's first solution, plan.c built and validated by the judge's builder, the device code
 * compiled and checked by the judge's compiler.  All steps are those of a verdict, for a fixed device (an H200's
 * numbers; two cores with 256-bit vectors), so that neither a GPU nor the task's memory is needed.
 *
 * A line with a "solution", {"kernels", "plan"}, has this one built and compiled in place of the planner's.
 *
 * Out, one object a line: {"file", "status", "why", "missing", "kernels", "scratch_bytes", "seconds"}, and with
 * "solutions" the text, {"kernels", "plan"}, as `judge --batch` takes it; with "conversations" the first two messages
 * of the compact prompt and the answer: {"single", "agent", "task", "answer"}, of three turns where it has tools.
 * status: "ok"; "no graph"; "not covered", why names the first operator in the planner's words, and missing lists every
 * operator that has no rule; "plan" (not valid) and "compile" (refused by the compiler), which are faults of the
 * planner. */
#include "agent/compact.h"
#include "agent/tools.h"
#include "base/json.h"
#include "base/str.h"
#include "base/time.h"
#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "judge/solution.h"
#include "policy/planner/planner.h"
#include "task/ref.h"

#include "../../tests/unit/h200.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ww_device h200 = H200;
static const struct ww_device two_cores = { .target = WW_TARGET_CPU,
	.threads = 2,
	.vector_bytes = 32,
	.l1_bytes = 32 << 10,
	.l2_bytes = 1 << 20,
	.l3_bytes = 32 << 20,
	.shared_per_block_bytes = 64 << 20,
	.memory_bytes = 80ll << 30 };

struct tools {
	struct ww_builder *builder;
	struct ww_compiler *compiler;
	struct ww_device device;
	const char *target;
	int solutions, conversations;
};

static json_t *device_json(const struct ww_device *d)
{
	return json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:I}", "threads", d->threads, "vector_bytes", d->vector_bytes,
		"cc", d->cc, "sm_count", d->sm_count, "shared_per_block_bytes", (json_int_t)d->shared_per_block_bytes,
		"l2_bytes", (json_int_t)d->l2_bytes, "l3_bytes", (json_int_t)d->l3_bytes);
}

/* Build and compile a solution; returns NULL, or the step that failed, with the reason in `why`. */
static const char *make(struct tools *t, const json_t *graph, const char *kernels, const char *plan, struct ww_str *why,
	json_int_t *scratch)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_ref_shapes s = { 0 };
	struct ww_image *image = NULL;
	struct ww_compiled out;
	enum ww_build_result built = WW_BUILD_OK;
	enum ww_compile_result compiled = WW_COMPILE_OK;
	const char *failed = "plan";
	enum ww_rc rc;

	ww_compiled_init(&out);
	WW_TRY(ww_ref_shapes(graph, &s, &err));
	struct ww_facts facts = { s.inputs, s.params, s.outputs, s.n_inputs, s.n_params, s.n_outputs, s.scalars,
		s.n_scalars, t->device };
	WW_TRY(ww_builder_build(t->builder, plan, strlen(plan), &facts, &image, why, &built, &err));
	if (built != WW_BUILD_OK)
		goto out;
	for (uint32_t i = (uint32_t)(s.n_inputs + s.n_params + s.n_outputs); i < image->n_buffers; i++)
		*scratch += (json_int_t)ww_image_buffers(image)[i].bytes;
	failed = "compile";
	WW_TRY(ww_compiler_compile(t->compiler, kernels, strlen(kernels), image, &out, &compiled, &err));
	if (compiled == WW_COMPILE_OK)
		failed = NULL;
	else
		ww_str_addf(why, "%s: %.3000s", ww_compile_result_text(compiled), out.log);
out:
	if (rc != WW_OK)
		ww_str_adds(why, err.msg);
	ww_compiled_release(&out);
	ww_ref_shapes_release(&s);
	free(image);
	return failed;
}

static json_t *missing_of(const json_t *graph)
{
	json_t *list = json_array(), *node;
	size_t i;

	json_array_foreach(json_object_get(graph, "nodes"), i, node) {
		const char *op = ww_json_str(node, "op", "");
		int seen = ww_pl_has_rule(op);

		for (size_t k = 0; k < json_array_size(list) && !seen; k++)
			seen = !strcmp(json_string_value(json_array_get(list, k)), op);
		if (!seen)
			json_array_append_new(list, json_string(op));
	}
	return list;
}

/* A conversation: the messages that tell a policy of the task, and the planner's answer. */
static json_t *conversation(const struct tools *t, const json_t *graph, const struct pl_result *r)
{
	struct ww_compact c = { .target = (enum ww_target)t->device.target,
		.loop = WW_LOOP_AGENT,
		.baselines = 1u << WW_BASE_EAGER | 1u << WW_BASE_COMPILE,
		.turns = 3 };
	json_auto_t *inspect = ww_tool_inspect_data(c.target, &t->device, graph);
	ww_auto_free char *agent = ww_compact_system(&c), *task = ww_compact_task(inspect);
	c.loop = WW_LOOP_SINGLE;
	ww_auto_free char *single = ww_compact_system(&c);
	ww_auto_str answer = WW_STR_INIT(64 << 20);
	ww_str_addf(
		&answer, "```plan.c\n%s```\n```%s\n%s```\n", r->plan_text, ww_solution_device_file(c.target), r->device_text);
	return json_pack("{s:s, s:s, s:s, s:s}", "single", single, "agent", agent, "task", task, "answer", answer.p);
}

static void answer(struct tools *t, const json_t *line)
{
	const json_t *graph = json_object_get(line, "graph"), *given = json_object_get(line, "solution");
	struct ww_str why = WW_STR_INIT(1 << 16);
	json_t *d = device_json(&t->device), *a;
	const char *status = "no graph";
	struct pl_result r = { 0 };
	int64_t start = ww_now_ns();
	json_int_t scratch = 0;

	if (!graph) {
		ww_str_adds(&why, ww_json_str(line, "error", "no graph"));
	} else if (given) {
		status = make(t, graph, ww_json_str(given, "kernels", ""), ww_json_str(given, "plan", ""), &why, &scratch);
	} else {
		ww_pl_build(graph, d, t->target, NULL, 0, NULL, &r);
		status = "not covered";
		if (!r.ok)
			ww_str_adds(&why, r.why);
		else
			status = make(t, graph, r.device_text, r.plan_text, &why, &scratch);
	}
	status = status ? status : "ok";
	a = json_pack("{s:s, s:s, s:s, s:o, s:i, s:I, s:f}", "file", ww_json_str(line, "file", ""), "status", status, "why",
		strcmp(status, "ok") ? why.p : "", "missing", missing_of(graph), "kernels", r.n_kern, "scratch_bytes", scratch,
		"seconds", ww_seconds_since(start));
	if (t->solutions && r.ok)
		json_object_set_new(a, "solution", json_pack("{s:s, s:s}", "kernels", r.device_text, "plan", r.plan_text));
	if (t->conversations && !strcmp(status, "ok"))
		json_object_set_new(a, "conversation", conversation(t, graph, &r));
	json_dumpf(a, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(a);
	json_decref(d);
	ww_pl_result_release(&r);
	ww_str_release(&why);
}

int main(int argc, char **argv)
{
	struct tools t = { .target = argc > 1 ? argv[1] : "cpu",
		.solutions = argc > 2 && !strcmp(argv[2], "solutions"),
		.conversations = argc > 2 && !strcmp(argv[2], "conversations") };
	struct ww_err err = WW_ERR_INIT;
	char *text = NULL;
	size_t cap = 0;

	t.device = !strcmp(t.target, "cuda") ? h200 : two_cores;
	struct ww_compiler_opts o = { .target = (enum ww_target)t.device.target, .cc = t.device.cc };
	if (ww_builder_open(&t.builder, &err) != WW_OK || ww_compiler_open(&t.compiler, &o, &err) != WW_OK) {
		fprintf(stderr, "%s\n", err.msg);
		ww_builder_close(t.builder);
		return 3;
	}
	while (getline(&text, &cap, stdin) > 0) {
		json_t *line = json_loads(text, 0, NULL);

		answer(&t, line);
		json_decref(line);
	}
	free(text);
	ww_compiler_close(t.compiler);
	ww_builder_close(t.builder);
	return 0;
}
