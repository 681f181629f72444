/* build.c - one build: graph in, two files out. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"
#include "policy/planner/schedule/schedule.h"

#include "base/mem.h"
#include "task/graph/check.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BY_PYTORCH = 256, MAX_NAMES_BYTES = 1 << 20 };

/* Operators that are left to PyTorch, and the one that the last build failed at ("": none). */
struct by_pytorch {
	char **name;
	int n;
	char blame[sizeof(((struct pl *)0)->blame)];
};

/* Is a launch behind another, on a device that lets it begin before the other has ended? */
static int can_overlap(const struct pl *pl)
{
	for (int i = 1; i < pl->n_kern && pl->target == WW_TARGET_CUDA && pl->dev.cc >= 90; i++)
		if (!pl->kern[i]->segment && !pl->kern[i - 1]->segment)
			return 1;
	return 0;
}

static void read_device(struct pl *pl, const json_t *d)
{
	struct ww_device *v = &pl->dev;

	v->target = pl->target;
	v->threads = (int)ww_json_int(d, "threads", 2);
	v->vector_bytes = (int)ww_json_int(d, "vector_bytes", 16);
	v->cc = (int)ww_json_int(d, "cc", 90);
	v->sm_count = (int)ww_json_int(d, "sm_count", 132);
	v->shared_per_block_bytes = ww_json_int(d, "shared_per_block_bytes", 232448);
	v->l2_bytes = ww_json_int(d, "l2_bytes", 0);
	v->l3_bytes = ww_json_int(d, "l3_bytes", 0);
}

/* kern_nodes.  0: out of memory. */
static int name_nodes(const struct pl *pl, struct pl_result *out)
{
	int all = 1;

	for (int i = 0; i < out->n_kern; i++) {
		struct ww_str names = WW_STR_INIT(MAX_NAMES_BYTES);

		for (int n = 0; n < pl->kern[i]->n_node; n++)
			ww_str_addf(&names, "%s%s", n ? ", " : "", pl->kern[i]->node[n]);
		out->kern_nodes[i] = ww_str_take(&names);
		all &= out->kern_nodes[i] != NULL;
	}
	return all;
}

static void build(struct pl *pl, const json_t *graph, struct pl_result *out)
{
	if (setjmp(pl->bail)) {
		memcpy(out->why, pl->why, sizeof(out->why));
		if (!*pl->blame && pl->lowering)
			snprintf(pl->blame, sizeof(pl->blame), "%s", pl->lowering->name);
		return;
	}
	pl_graph_read(pl, graph);
	pl_lower(pl);
	pl_group(pl);
	pl_schedule(pl);
	pl_print(pl);
	if (pl->dev_text.cut || pl->plan_text.cut || pl->guards.cut)
		pl_fail(pl, "the solution is longer than a solution may be");
	out->n_kern = pl->n_kern < 64 ? pl->n_kern : 64;
	out->can_overlap = can_overlap(pl);
	out->order_us = pl->target == WW_TARGET_CUDA ? pl_order_us(pl) : 0;
	for (int i = 0; i < pl->n_kern; i++)
		out->n_own += !pl->kern[i]->segment && pl->kern[i]->n_node > 0;
	for (int i = 0; i < out->n_kern; i++) {
		snprintf(out->kern_title[i], sizeof(out->kern_title[i]), "%s", pl->kern[i]->title);
		out->kern_kind[i] = pl->kern[i]->kind;
		out->kern_spec[i] = pl->kern[i]->anchor ? (int)pl->kern[i]->anchor->kind : -1;
		out->kern_library[i] = pl->kern[i]->loop->library;
	}
	if (pl->explain)
		out->explained = pl_explain(pl);
	if (!name_nodes(pl, out))
		return;
	out->device_text = ww_str_take(&pl->dev_text);
	out->plan_text = ww_str_take(&pl->plan_text);
	out->ok = out->device_text && out->plan_text;
}

static void build_once(const json_t *graph, const json_t *device, const char *target, const struct knobs *knobs,
	int n_knobs, const struct pl_options *options, int may_leave, struct by_pytorch *others, struct pl_result *out)
{
	struct pl *pl = calloc(1, sizeof(*pl));

	if (!pl) {
		snprintf(out->why, sizeof(out->why), "out of memory");
		return;
	}
	ww_arena_init(&pl->arena, PL_ARENA_BYTES);
	pl->guards = pl->dev_text = pl->plan_text = pl_text(pl);
	pl->target = !strcmp(target, "cuda") ? WW_TARGET_CUDA : WW_TARGET_CPU;
	pl->knobs = knobs;
	pl->n_knobs = n_knobs;
	pl->no_algebra = options && options->no_algebra;
	pl->explain = options && options->explain;
	pl->may_leave = may_leave && !pl_all_plain(pl);
	pl->by_pytorch = (const char *const *)others->name;
	pl->n_by_pytorch = others->n;
	read_device(pl, device);
	build(pl, graph, out);
	memcpy(others->blame, pl->blame, sizeof(others->blame));
	ww_arena_release(&pl->arena);
	free(pl);
}

static int is_left(const struct by_pytorch *o, const char *operator)
{
	for (int i = 0; i < o->n; i++)
		if (!strcmp(o->name[i], operator))
			return 1;
	return 0;
}

/* 0: too many are left to PyTorch. */
static int leave_to_pytorch(struct by_pytorch *o, const char *operator)
{
	char **name;

	if (o->n >= MAX_BY_PYTORCH)
		return 0;
	name = realloc(o->name, (size_t)(o->n + 1) * sizeof(*name));
	if (!name)
		return 0;
	o->name = name;
	return (o->name[o->n] = strdup(operator)) && ++o->n;
}

/* The same of a list. */
static int leave_all(struct by_pytorch *o, const char *list)
{
	ww_auto_free char *copy = strdup(list ? list : "");
	char *rest = NULL;

	for (char *w = copy ? strtok_r(copy, ", ", &rest) : NULL; w; w = strtok_r(NULL, ", ", &rest))
		if (!leave_to_pytorch(o, w))
			return 0;
	return copy != NULL;
}

/* A build that leaves operators to PyTorch is kept only if kernels of ours remain; else report the first refusal. */
static void refuse_partial(struct pl_result *out, const char *why, int all)
{
	out->ok = out->ok && (out->n_own || all);
	snprintf(out->why, sizeof(out->why), "%s", out->ok ? "" : why);
}

/* may_leave: operators that PyTorch computes faster are PyTorch's, too; returns how many are. */
static int build_with_pytorch(const json_t *graph, const json_t *device, const char *target, const struct knobs *knobs,
	int n_knobs, const struct pl_options *options, int may_leave, struct pl_result *out)
{
	struct by_pytorch others = { 0 };
	const char *left = options ? options->left : NULL;
	char why[sizeof(out->why)] = "too many operators would be left to PyTorch";

	memset(out, 0, sizeof(*out));
	if (leave_all(&others, left)) {
		build_once(graph, device, target, knobs, n_knobs, options, may_leave, &others, out);
		memcpy(why, out->why, sizeof(why));
		while (!out->ok && *others.blame && !is_left(&others, others.blame) && leave_to_pytorch(&others, others.blame))
			build_once(graph, device, target, knobs, n_knobs, options, may_leave, &others, out);
	}
	if (others.n)
		refuse_partial(out, why, left != NULL);
	for (int i = 0; i < others.n; i++)
		free(others.name[i]);
	free(others.name);
	return others.n;
}

/* If no kernel of ours would remain, or PyTorch cannot be given what an operator reads, build again with the slower
 * rule. */
void ww_pl_build(const json_t *graph, const json_t *device, const char *target, const struct knobs *knobs, int n_knobs,
	const struct pl_options *options, struct pl_result *out)
{
	int may_leave = !(options && options->own);
	struct ww_err err = WW_ERR_INIT;

	if (ww_graph_check(graph, &err) != WW_OK) {
		memset(out, 0, sizeof(*out));
		snprintf(out->why, sizeof(out->why), "the graph is not one that PyTorch makes: %.500s", err.msg);
		return;
	}
	if (!build_with_pytorch(graph, device, target, knobs, n_knobs, options, may_leave, out) || out->ok || !may_leave)
		return;
	ww_pl_result_release(out);
	build_with_pytorch(graph, device, target, knobs, n_knobs, options, 0, out);
}

void ww_pl_result_release(struct pl_result *r)
{
	free(r->device_text);
	free(r->plan_text);
	json_decref(r->explained);
	for (int i = 0; i < r->n_kern; i++)
		free(r->kern_nodes[i]);
	memset(r, 0, sizeof(*r));
}
