/* inspect.c - `warpwright inspect`: what a task computes and what it runs on.
 *
 * The answer is the reference worker's graph (docs/formats/bridge.md) and the device's facts; with --json one object
 * that holds both unchanged, else tables for people.  Nothing is timed here except the device's own bandwidth and
 * peaks.
 */
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/judging.h"
#include "cmd/progress.h"
#include "host/machine.h"
#include "judge/run/cpu.h"
#include "judge/cache/graphs.h"
#include "task/ref.h"

#include <stdio.h>
#include <string.h>

struct values {
	struct ww_judging judging;
	int64_t seconds;
	int peaks, json;
};

static const struct ww_opt opts[] = { WW_OPTS_WHERE(struct values, judging),
	{ "peaks", 0, WW_OPT_FLAG, offsetof(struct values, peaks), NULL, NULL, 0, 0,
		"measure the device's arithmetic peaks too" },
	{ "max-seconds", 0, WW_OPT_INT, offsetof(struct values, seconds), "S", "300", 1, 86400,
		"give up on the task after this time" },
	WW_OPT_JSON(struct values, json), WW_OPT_END };

/* ---- Text */

static void add_count(struct ww_str *s, double v, const char *unit)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P" };
	size_t i = 0;
	while (v >= 1000 && i + 1 < WW_ARRAY_LEN(prefix)) {
		v /= 1000;
		i++;
	}
	ww_str_addf(s, i ? "%.3g %s%s" : "%.0f %s%s", v, prefix[i], unit);
}

static void add_form(struct ww_str *s, const json_t *t)
{
	const json_t *sizes = json_object_get(t, "sizes");
	ww_str_addf(s, "%s[", ww_json_str(t, "dtype", "?"));
	for (size_t i = 0; i < json_array_size(sizes); i++)
		ww_str_addf(s, "%s%lld", i ? ", " : "", (long long)json_integer_value(json_array_get(sizes, i)));
	ww_str_adds(s, "]");
}

/* An argument as text: names of values, constants as they are. */
static void add_arg(struct ww_str *s, const json_t *a)
{
	const json_t *v;
	size_t i;
	if (json_is_string(json_object_get(a, "ref"))) {
		ww_str_adds(s, json_string_value(json_object_get(a, "ref")));
	} else if (json_is_array(a)) {
		ww_str_adds(s, "[");
		json_array_foreach(a, i, v) {
			ww_str_adds(s, i ? ", " : "");
			add_arg(s, v);
		}
		ww_str_adds(s, "]");
	} else if (json_is_string(a)) {
		ww_str_adds(s, json_string_value(a));
	} else if (json_is_real(a)) {
		ww_str_addf(s, "%.9g", json_real_value(a));
	} else {
		ww_json_add(s, a);
	}
}

static void add_tensors(struct ww_str *s, const json_t *graph, const char *key, const char *title)
{
	const json_t *rows = json_object_get(graph, key), *t;
	size_t i;
	if (!json_array_size(rows))
		return;
	ww_str_addf(s, "%s\n", title);
	json_array_foreach(rows, i, t) {
		ww_str_addf(s, "  %-32s ", ww_json_str(t, "name", "?"));
		add_form(s, t);
		const char *role = ww_json_str(t, "role", NULL), *ref = ww_json_str(t, "ref", NULL);
		const char *drawn = ww_json_str(t, "drawn", NULL);
		if (role)
			ww_str_addf(s, "  %s%s%s%s", role, drawn ? ", " : "", drawn ? drawn : "",
				ww_json_bool(t, "used", 1) ? "" : ", unused");
		if (ref)
			ww_str_addf(s, "  = %s", ref);
		ww_str_adds(s, "\n");
	}
}

static void add_node(struct ww_str *s, const json_t *n)
{
	ww_auto_str call = WW_STR_INIT(4096);
	const json_t *args = json_object_get(n, "args"), *kwargs = json_object_get(n, "kwargs"), *v;
	const char *key;
	size_t i;
	ww_str_addf(&call, "%s = %s(", ww_json_str(n, "name", "?"), ww_json_str(n, "op", "?"));
	json_array_foreach(args, i, v) {
		ww_str_adds(&call, i ? ", " : "");
		add_arg(&call, v);
	}
	json_object_foreach((json_t *)(uintptr_t)kwargs, key, v) {
		ww_str_addf(&call, "%s%s=", json_array_size(args) ? ", " : "", key);
		add_arg(&call, v);
	}
	ww_str_adds(&call, ")");
	ww_str_addf(s, "  %s\n      ", call.p);
	json_array_foreach(json_object_get(n, "out"), i, v) {
		ww_str_adds(s, i ? ", " : "");
		add_form(s, v);
	}
	if (ww_json_num(n, "bytes", 0) > 0) {
		ww_str_adds(s, "  ");
		add_count(s, ww_json_num(n, "bytes", 0), "B");
		ww_str_adds(s, "  ");
		add_count(s, ww_json_num(n, "flops", 0), "flop");
	}
	ww_str_adds(s, "\n");
}

/* What a plan is told: on the cpu target the judge's own facts, since PyTorch has no say in caches. */
static struct ww_device device_of(const struct ww_ref_info *info)
{
	struct ww_device d = info->device;
	struct ww_run_facts f;
	if (d.target == WW_TARGET_CUDA)
		return d;
	ww_cpu_facts(&f, d.threads, 0);
	d.shared_per_block_bytes = f.device.shared_per_block_bytes;
	d.l1_bytes = f.device.l1_bytes;
	d.l2_bytes = f.device.l2_bytes;
	d.l3_bytes = f.device.l3_bytes;
	return d;
}

static void add_device(struct ww_str *s, const struct ww_ref_info *info, const struct ww_ref_peaks *peaks)
{
	const struct ww_device of = device_of(info), *d = &of;
	ww_str_addf(s, "device\n  %s", info->device_name);
	if (d->target == WW_TARGET_CUDA)
		ww_str_addf(s, ", compute capability %d.%d, %d SMs, %lld KiB shared memory a block, %lld MiB L2\n  driver %s, ",
			d->cc / 10, d->cc % 10, d->sm_count, d->shared_per_block_bytes >> 10, d->l2_bytes >> 20, info->driver);
	else
		ww_str_addf(s, ", %d thread%s, %d-byte vectors, caches %lld KiB, %lld KiB, %lld KiB\n  ", d->threads,
			d->threads == 1 ? "" : "s", d->vector_bytes, d->l1_bytes >> 10, d->l2_bytes >> 10, d->l3_bytes >> 10);
	ww_str_addf(s, "PyTorch %s\n  memory ", info->torch);
	add_count(s, (double)d->memory_bytes, "B");
	ww_str_adds(s, ", copied at ");
	add_count(s, d->memory_bytes_per_s, "B/s (read plus written)");
	ww_str_adds(s, "\n");
	if (!peaks)
		return;
	const struct {
		const char *name;
		double v;
	} rows[] = { { "fp32", peaks->fp32_flops }, { "tf32", peaks->tf32_flops }, { "fp16", peaks->fp16_flops },
		{ "bf16", peaks->bf16_flops } };
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		if (rows[i].v <= 0)
			continue;
		ww_str_addf(s, "  %s matrix products ", rows[i].name);
		add_count(s, rows[i].v, "flop/s\n");
	}
}

static void add_text(
	struct ww_str *s, const json_t *graph, const struct ww_ref_info *info, const struct ww_ref_peaks *peaks)
{
	const json_t *task = json_object_get(graph, "task"), *totals = json_object_get(graph, "totals"), *n;
	size_t i;
	ww_str_addf(s, "%s  (%s mode; graph by %s)\n\n", ww_json_str(task, "name", "?"),
		ww_json_bool(task, "training", 0) ? "training" : "eval", ww_json_str(graph, "source", "?"));
	add_tensors(s, graph, "inputs", "inputs");
	json_array_foreach(json_object_get(graph, "scalars"), i, n) {
		ww_str_addf(s, "  scalar %zu: ", i);
		add_arg(s, json_object_get(n, "value"));
		ww_str_adds(s, "\n");
	}
	add_tensors(s, graph, "params", "parameters");
	ww_str_adds(s, "graph\n");
	json_array_foreach(json_object_get(graph, "nodes"), i, n)
		add_node(s, n);
	add_tensors(s, graph, "outputs", "outputs");
	ww_str_adds(s, "totals\n  at least ");
	add_count(s, ww_json_num(totals, "bytes", 0), "B to move, ");
	add_count(s, ww_json_num(totals, "node_bytes", 0), "B operator by operator, ");
	add_count(s, ww_json_num(totals, "flops", 0), "flop\n");
	if (info->device.memory_bytes_per_s > 0)
		ww_str_addf(s, "  memory alone takes at least %.1f us\n",
			ww_json_num(totals, "bytes", 0) / info->device.memory_bytes_per_s * 1e6);
	add_device(s, info, peaks);
}

/* ---- JSON */

static json_t *as_json(json_t *graph, struct ww_ref *r, const struct ww_ref_peaks *peaks)
{
	const json_t *hello = ww_ref_hello(r);
	const struct ww_device d = device_of(ww_ref_info(r));
	json_auto_t *caches = json_pack("{s:I, s:I, s:I, s:I}", "shared_per_block_bytes",
		(json_int_t)d.shared_per_block_bytes, "l1_bytes", (json_int_t)d.l1_bytes, "l2_bytes", (json_int_t)d.l2_bytes,
		"l3_bytes", (json_int_t)d.l3_bytes);
	json_t *device = json_deep_copy(json_object_get(hello, "device"));
	json_object_update(device, caches);
	json_t *out = json_pack(
		"{s:O, s:o, s:O}", "graph", graph, "device", device, "versions", json_object_get(hello, "versions"));
	if (out && peaks)
		json_object_set_new(out, "peaks",
			json_pack("{s:f, s:f, s:f, s:f, s:f}", "fp32_flops", peaks->fp32_flops, "tf32_flops", peaks->tf32_flops,
				"fp16_flops", peaks->fp16_flops, "bf16_flops", peaks->bf16_flops, "memory_bytes_per_s",
				peaks->memory_bytes_per_s));
	return out;
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct values *v = values;
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc = WW_OK;
	WW_AUTO(ww_task_release) struct ww_task task = { 0 };
	struct ww_progress *p = ww_progress_new(stderr);
	struct ww_ref *r = NULL;
	struct ww_store *store = NULL;
	struct ww_ref_peaks peaks;
	struct ww_host_gpus gpus;
	char name[96];
	struct ww_cached_graph cached = { .graph = NULL };
	json_t *all = NULL;
	ww_auto_str out = WW_STR_INIT(64 << 20);
	struct ww_ref_opts o = { .device = (int)v->judging.device,
		.threads = (int)v->judging.threads,
		.bandwidth = 1,
		.first = &task,
		.max_load_s = (double)v->seconds,
		.max_request_s = (double)v->seconds,
		.interrupted = &ww_cmd_interrupted };
	WW_TRY(ww_task_load(&task, argv[0], &err));
	WW_TRY(ww_host_choose_target(v->judging.target, o.device, &o.target, name, sizeof(name), &gpus, &err));
	WW_TRY(ww_store_open(&store, NULL, &err));
	ww_progress_stage(p, "importing PyTorch");
	WW_TRY(ww_ref_open(&r, &o, &err));
	ww_progress_stage(p, "loading the task");
	WW_TRY(ww_graphs_load(&cached, store, r, &task, 1, &err));
	ww_progress_stage(p, "exporting the graph");
	WW_TRY(ww_graphs_graph(&cached, r, &err));
	WW_TRY(ww_graphs_keep(&cached, store, r, &err));
	ww_progress_stage(p, "measuring the device's peaks");
	if (v->peaks)
		WW_TRY(ww_ref_peaks(r, &peaks, &err));
	if (v->json) {
		all = as_json(cached.graph, r, v->peaks ? &peaks : NULL);
		ww_json_add(&out, all);
		ww_str_adds(&out, "\n");
	} else {
		add_text(&out, cached.graph, ww_ref_info(r), v->peaks ? &peaks : NULL);
	}
	ww_progress_clear(p);
	fwrite(out.p, 1, out.len, stdout);
out:
	ww_progress_free(p);
	json_decref(all);
	json_decref(cached.graph);
	ww_ref_close(r);
	ww_store_close(store);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_inspect = { .name = "inspect",
	.args = "TASK.py",
	.summary = "show a task's ATen graph, its bytes and flops, and the device's facts",
	.details =
		"Loads the task into PyTorch and prints the operators that it runs (torch.export, not decomposed) with dtypes,\n"
		"shapes, bytes and flops, and the facts of the device.  Exits 2 where the task cannot be used, and says why.",
	.opts = opts,
	.values_size = sizeof(struct values),
	.min_args = 1,
	.max_args = 1,
	.run = run };
