/* explain.c - times and floors beside what the planner decided (explain.h).
 *
 * A kernel of the planner is one launch or several nodes (operands are split first, a library's result gets a kernel
 * behind it), and kernels that share one text launch under one name.  Both lists are in the plan's order, so one pass
 * assigns the nodes: a node whose name holds a kernel's ("k3" in "ww::gemm3<k3_f>") ends with that kernel, and
 * nodes without one (libraries, memsets, a recipe's own kernels) belong to the next kernel that is named.
 *
 * Floor: the bytes that the nodes name once at the measured bandwidth, or the operators' arithmetic at the highest
 * measured rate, whichever takes longer.  Predicted: the same with the shares of both that our kernels reach as a rule
 * (struct model), and a launch's own cost.  PyTorch: the times of the same operators, run one by one.  An operator that
 * several kernels compute together counts for each of them by the bytes that it moves. */
#include "judge/profile/explain.h"

#include "base/json.h"
#include "judge/profile/profile.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a good kernel usually reaches; chosen, not fitted. */
static const struct model {
	double launch_us;                /* beside what it computes */
	double memory, matrix, ordinary; /* shares of the measured bandwidth and peaks */
} models[2] = { { 4, 0.75, 0.7, 0.5 }, { 2, 0.85, 0.6, 0.3 } };

int ww_explain_is_slower(const struct ww_verdict *v)
{
	return v->correct && v->baseline_measured[WW_BASE_EAGER] && v->speedup[WW_BASE_EAGER].hi < 1;
}

/* ---- Nodes of the plan to kernels -------------------------------------------------------------------------------- */

/* The number of the planner's kernel that a launch's name holds; -1: none. */
static int kernel_in(const char *name)
{
	for (const char *p = name; p && (p = strchr(p, 'k')); p++)
		if (isdigit((unsigned char)p[1]) && (p == name || !(isalnum((unsigned char)p[-1]) || p[-1] == '_')))
			return atoi(p + 1);
	return -1;
}

static int text_of(const json_t *kernel)
{
	const char *shared = ww_json_str(kernel, "same_as", NULL);
	return kernel_in(shared ? shared : ww_json_str(kernel, "kernel", ""));
}

/* The index of the kernel of each node of the plan; malloc'ed. */
static int *assign_nodes(const json_t *kernels, const json_t *nodes)
{
	size_t n = json_array_size(nodes), count = json_array_size(kernels), at = 0, first = 0;
	int *of = calloc(n + 1, sizeof(*of));
	for (size_t i = 0; of && i < n; i++) {
		if (!strcmp(ww_json_str(json_array_get(nodes, i), "kind", ""), "pytorch")) { /* a kernel in the list, too */
			while (at < count && strcmp(ww_json_str(json_array_get(kernels, at), "what", ""), "PyTorch"))
				at++;
			for (; first <= i && at < count; first++)
				of[first] = (int)at;
			at++;
			continue;
		}
		int k = kernel_in(ww_json_str(json_array_get(nodes, i), "kernel", ""));
		int alone = k < 0 && at < count && json_is_true(json_object_get(json_array_get(kernels, at), "library")) &&
			!strcmp(ww_json_str(json_array_get(kernels, at), "schedule", ""), "by the library");
		size_t to = at;
		while (k >= 0 && to < count && text_of(json_array_get(kernels, to)) != k)
			to++;
		if ((k < 0 && !alone) || to >= count)
			continue; /* the next one that is named */
		if (alone && strcmp(ww_json_str(json_array_get(nodes, i), "kind", ""), "gemm") &&
			strcmp(ww_json_str(json_array_get(nodes, i), "kind", ""), "conv"))
			continue;
		for (; first <= i; first++)
			of[first] = (int)to;
		/* a further launch of the same name is the same kernel's, unless the next one shares the text */
		at = alone || (to + 1 < count && text_of(json_array_get(kernels, to + 1)) == k) ? to + 1 : to;
	}
	for (; of && first < n; first++)
		of[first] = (int)(at < count ? at : count - 1);
	return of;
}

/* ---- Sums over operators ----------------------------------------------------------------------------------------- */

/* The bytes that the kernels with a part of this operator move, all together. */
static double all_bytes(const json_t *kernels, const char *name)
{
	size_t i, j;
	json_t *k, *n;
	double sum = 0;
	json_array_foreach(kernels, i, k)
		json_array_foreach(json_object_get(k, "nodes"), j, n)
			sum += strcmp(json_string_value(n), name) ? 0 : ww_json_num(k, "bytes", 0);
	return sum;
}

/* Sum of member `key` over the rows of `list` that the kernel's operators name; an operator that is not in the list
 * costs nothing. */
static double sum_of(const json_t *kernels, const json_t *kernel, const json_t *list, const char *key)
{
	size_t j;
	json_t *n;
	double sum = 0;
	json_array_foreach(json_object_get(kernel, "nodes"), j, n) {
		const json_t *row = ww_json_named(list, json_string_value(n));
		double v = row ? ww_json_num(row, key, 0) : 0, all = all_bytes(kernels, json_string_value(n));
		sum += isfinite(v) && all > 0 ? v * ww_json_num(kernel, "bytes", 0) / all : 0;
	}
	return sum;
}

/* ---- One kernel -------------------------------------------------------------------------------------------------- */

static double rate(const json_t *device, int matrix)
{
	static const char *const all[] = { "fp32_flops", "tf32_flops", "fp16_flops", "bf16_flops" };
	double top = 0;
	for (size_t i = 0; i < (matrix ? WW_ARRAY_LEN(all) : 1); i++)
		top = fmax(top, ww_json_num(device, all[i], 0));
	return top;
}

static double us_for(double work, double per_s) { return per_s > 0 && isfinite(work) ? work / per_s * 1e6 : 0; }

static void add_floor(json_t *k, const json_t *device, double flops)
{
	double launches = ww_json_num(k, "launches", 0), bytes = ww_json_num(k, "bytes", 0);
	const char *what = ww_json_str(k, "what", "");
	int matrix = strcmp(what, "rows") && strcmp(what, "pointwise") && strcmp(what, "scan");
	const struct model *m = &models[!strcmp(ww_json_str(device, "target", "cpu"), "cuda")];
	double by_bytes = us_for(bytes, ww_json_num(device, "memory_bytes_per_s", 0));
	double by_flops = us_for(flops, rate(device, matrix));
	json_object_set_new(k, "flops", ww_json_real(flops));
	json_object_set_new(k, "floor_us", ww_json_real(fmax(by_bytes, by_flops)));
	json_object_set_new(k, "floor_by", json_string(by_bytes >= by_flops ? "bytes" : "arithmetic"));
	json_object_set_new(k, "predicted_us",
		ww_json_real(
			launches * m->launch_us + fmax(by_bytes / m->memory, by_flops / (matrix ? m->matrix : m->ordinary))));
}

/* What the nodes of kernel `at` take and move, and what limits the longest of them. */
static void add_measured(json_t *k, int at, const int *of, const json_t *nodes)
{
	double us = 0, bytes = 0, longest = -1;
	int n = 0;
	size_t i;
	json_t *row;
	json_array_foreach((json_t *)nodes, i, row) {
		double t = ww_json_num(row, "us", NAN);
		if (of[i] != at)
			continue;
		us += isfinite(t) ? t : 0;
		bytes += ww_json_num(row, "bytes", 0);
		n++;
		if (isfinite(t) && t > longest) {
			longest = t;
			json_object_set(k, "limit", json_object_get(row, "limit"));
			json_object_set(k, "sentence", json_object_get(row, "sentence"));
		}
	}
	json_object_set_new(k, "us", ww_json_real(us));
	json_object_set_new(k, "launches", json_integer(n));
	json_object_set_new(k, "bytes", ww_json_real(bytes));
}

/* Without the planner's decisions each node is a kernel by itself. */
static json_t *plain_kernels(const json_t *nodes)
{
	json_t *list = json_array(), *row;
	size_t i;
	json_array_foreach((json_t *)nodes, i, row) {
		char name[32];
		snprintf(name, sizeof(name), "node %zu", i);
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:[], s:[], s:s, s:s}", "kernel", name, "what",
				ww_json_str(row, "kernel", ww_json_str(row, "kind", "?")), "nodes", "stores", "why", "", "schedule",
				""));
	}
	return list;
}

static json_t *kernels_of(const json_t *decided, const json_t *graph, const json_t *profile, const json_t *reference)
{
	const json_t *nodes = json_object_get(profile, "nodes"), *device = json_object_get(profile, "device");
	json_t *list = decided ? json_deep_copy(json_object_get(decided, "kernels")) : plain_kernels(nodes), *k;
	int *of = decided ? assign_nodes(list, nodes) : calloc(json_array_size(nodes) + 1, sizeof(*of));
	size_t i;
	for (i = 0; of && !decided && i < json_array_size(nodes); i++)
		of[i] = (int)i;
	json_array_foreach(list, i, k)
		if (of)
			add_measured(k, (int)i, of, nodes);
	json_array_foreach(list, i, k) {
		add_floor(k, device, sum_of(list, k, json_object_get(graph, "nodes"), "flops"));
		if (json_array_size(json_object_get(k, "nodes")))
			json_object_set_new(
				k, "eager_us", ww_json_real(sum_of(list, k, json_object_get(reference, "operators"), "us")));
	}
	free(of);
	return list;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static json_t *totals(const struct ww_verdict *v, const json_t *kernels)
{
	double floor = 0, predicted = 0, us = 0;
	size_t i;
	json_t *k;
	json_array_foreach((json_t *)kernels, i, k) {
		floor += ww_json_num(k, "floor_us", 0);
		predicted += ww_json_num(k, "predicted_us", 0);
		us += ww_json_num(k, "us", 0);
	}
	json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:b}", "device_us", ww_json_real(v->time.device_us), "kernels_us",
		ww_json_real(us), "predicted_us", ww_json_real(predicted), "floor_us", ww_json_real(floor), "slower_than_eager",
		ww_explain_is_slower(v));
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (v->baseline_measured[b])
			json_object_set_new(o, ww_baseline_name((enum ww_baseline)b), ww_json_real(v->baselines[b].device_us));
	return o;
}

enum ww_rc ww_explain(struct ww_judge_task *t, const struct ww_solution *s, const struct ww_verdict *v,
	const json_t *decided, json_t **out, struct ww_err *err)
{
	json_auto_t *profile = NULL, *reference = NULL;
	*out = NULL;
	WW_CHECK(ww_profile_solution(t, s, &profile, err));
	if (!ww_profile_ok(profile))
		return ww_err_set(err, WW_ERR_USAGE, "the solution could not be profiled: %.300s",
			ww_json_str(profile, "diagnostics", "no reason given"));
	WW_CHECK(ww_profile_reference(t, &reference, err));
	json_t *kernels = kernels_of(decided, ww_judge_task_graph(t), profile, reference);
	*out = json_pack("{s:i, s:s, s:O, s:s, s:o, s:o}", "version", 1, "solution", v->solution_id, "device",
		json_object_get(profile, "device"), "method", ww_json_str(profile, "method", ""), "totals", totals(v, kernels),
		"kernels", kernels);
	return *out ? WW_OK : ww_nomem(err);
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static void add_names(const json_t *kernel, struct ww_str *out)
{
	size_t i;
	json_t *n;
	ww_str_addf(out, "%s %s", ww_json_str(kernel, "kernel", "?"), ww_json_str(kernel, "what", "?"));
	json_array_foreach(json_object_get(kernel, "nodes"), i, n)
		ww_str_addf(out, "%s%s", i ? ", " : ": ", json_string_value(n));
}

static void add_us(struct ww_str *out, const char *what, double us)
{
	if (isfinite(us))
		ww_str_addf(out, "%s%.1f us", what, us);
}

static void add_kernel(const json_t *k, struct ww_str *out)
{
	size_t i;
	json_t *b;
	ww_str_adds(out, "\n  ");
	add_names(k, out);
	add_us(out, "\n      measured ", ww_json_num(k, "us", NAN));
	add_us(out, ", predicted ", ww_json_num(k, "predicted_us", NAN));
	add_us(out, ", floor ", ww_json_num(k, "floor_us", NAN));
	ww_str_addf(out, " (%s)", ww_json_str(k, "floor_by", "?"));
	add_us(out, "; PyTorch's operators ", ww_json_num(k, "eager_us", NAN));
	ww_str_addc(out, '\n');
	if (*ww_json_str(k, "why", ""))
		ww_str_addf(out, "      together: %s\n", ww_json_str(k, "why", ""));
	if (*ww_json_str(k, "schedule", ""))
		ww_str_addf(out, "      schedule: %s%s%s\n", ww_json_str(k, "schedule", ""),
			json_is_string(json_object_get(k, "same_as")) ? ", the text of " : "", ww_json_str(k, "same_as", ""));
	json_array_foreach(json_object_get(k, "stores"), i, b)
		ww_str_addf(out, "      stores %s (%s, %.1f KiB): %s\n", ww_json_str(b, "buffer", "?"),
			ww_json_str(b, "node", "?"), ww_json_num(b, "bytes", 0) / 1024, ww_json_str(b, "why", ""));
}

void ww_explain_text(const json_t *explained, struct ww_str *out)
{
	const json_t *kernels = json_object_get(explained, "kernels"), *totals = json_object_get(explained, "totals");
	size_t i;
	json_t *k;
	size_t n = json_array_size(kernels);
	ww_str_addf(out, "\n  %zu kernel%s: what is in each, why, and its time beside its floor\n", n, n == 1 ? "" : "s");
	json_array_foreach((json_t *)kernels, i, k)
		add_kernel(k, out);
	ww_str_adds(out, "\n  all together");
	add_us(out, ": measured ", ww_json_num(totals, "kernels_us", NAN));
	add_us(out, ", predicted ", ww_json_num(totals, "predicted_us", NAN));
	add_us(out, ", floors ", ww_json_num(totals, "floor_us", NAN));
	ww_str_addc(out, '\n');
}

/* ---- Slower than eager ------------------------------------------------------------------------------------------- */

static double lost_us(const json_t *k) { return ww_json_num(k, "us", 0) - ww_json_num(k, "eager_us", INFINITY); }

void ww_explain_slower(const json_t *explained, struct ww_str *out)
{
	const json_t *kernels = json_object_get(explained, "kernels"), *totals = json_object_get(explained, "totals");
	size_t i, found = 0;
	json_t *k;
	if (!json_is_true(json_object_get(totals, "slower_than_eager")))
		return;
	ww_str_addf(out, "\n  slower than PyTorch: %.1f us, eager %.1f us\n", ww_json_num(totals, "device_us", NAN),
		ww_json_num(totals, "eager", NAN));
	json_array_foreach((json_t *)kernels, i, k) {
		if (!(lost_us(k) > 0))
			continue;
		found++;
		ww_str_adds(out, "    ");
		add_names(k, out);
		ww_str_addf(out, ": %.1f us where PyTorch's operators take %.1f us; %s\n", ww_json_num(k, "us", NAN),
			ww_json_num(k, "eager_us", NAN), ww_json_str(k, "sentence", "nothing is known of what limits it"));
	}
	if (!found)
		ww_str_addf(out,
			"    no kernel is slower than its operators; what is left (%.1f us) lies between and around the launches\n",
			ww_json_num(totals, "device_us", NAN) - ww_json_num(totals, "kernels_us", NAN));
}
