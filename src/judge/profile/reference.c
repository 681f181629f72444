/* reference.c - where the time of the task itself goes, before anything is written.
 *
 * Two sources meet by the names of graph nodes: the graph says what each operator must move and compute, the reference
 * worker says what it took (bridge/wwbridge/profile.py).  Operators that cost nothing on the device and move nothing
 * (views) are counted, not listed.  The rows are sorted by time; the order of the graph is in "index". */
#include "judge/facts.h"
#include "judge/session.h"
#include "judge/profile/profile.h"
#include "judge/profile/work.h"

#include "base/dtype.h"
#include "base/json.h"
#include "base/lock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ask {
	struct ww_judge_task *t;
	json_t *measured;
};

static enum ww_rc measure(void *ctx, struct ww_err *err)
{
	struct ask *a = ctx;
	ww_judge_progress(a->t->judge, "profiling PyTorch's operators");
	WW_CHECK(ww_judge_device_peaks(a->t, err));
	WW_CHECK(ww_session_draw(a->t, 1, 0, WW_REF_PARAMS_REDRAW, err));
	json_decref(a->measured); /* of an attempt whose worker was lost */
	a->measured = NULL;
	return ww_ref_profile(a->t->ref, &a->measured, err);
}

void ww_profile_roof(struct ww_judge_task *t, struct ww_roof *roof)
{
	WW_LOCKED(&t->judge->lock);
	*roof = (struct ww_roof){ t->judge->opts.target, t->judge->facts.device.memory_bytes_per_s, t->judge->peaks,
		t->judge->opts.threads };
}

/* Of its result, as far as peaks are known by it. */
static int dtype_of(const json_t *node)
{
	int dtype = ww_dtype_of(ww_json_str(json_array_get(json_object_get(node, "out"), 0), "dtype", ""));
	return dtype == WW_F16 || dtype == WW_BF16 || dtype == WW_F64 ? dtype : WW_F32;
}

static json_t *row(
	const json_t *node, const json_t *measured, size_t index, const struct ww_roof *roof, double total_us)
{
	struct ww_work w = { ww_json_num(node, "bytes", 0), ww_json_num(node, "flops", 0) };
	double us = ww_json_num(measured, "us", NAN);
	struct ww_position p;
	json_t *o = json_pack("{s:s, s:s, s:I}", "name", ww_json_str(node, "name", "?"), "op", ww_json_str(node, "op", "?"),
		"index", (json_int_t)index);
	/* Eager mode runs matrix products in fp32 where the operands are fp32. */
	ww_position_set(&p, roof, &w, us, dtype_of(node), dtype_of(node) == WW_F32 ? WW_MATH_FP32 : -1);
	json_object_set_new(o, "us", ww_profile_num(us));
	json_object_set_new(o, "share", ww_profile_num(total_us > 0 ? us / total_us : NAN));
	const json_t *launches = json_object_get(measured, "launches"), *kernels = json_object_get(measured, "kernels");
	json_object_set_new(o, "launches", json_is_integer(launches) ? json_deep_copy(launches) : json_null());
	ww_profile_add_position(o, &w, &p);
	json_object_set_new(o, "out", json_deep_copy(json_object_get(node, "out")));
	json_object_set_new(o, "kernels", json_is_array(kernels) ? json_deep_copy(kernels) : json_array());
	return o;
}

static int by_time(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	double u = ww_json_num(x, "us", -1), v = ww_json_num(y, "us", -1);
	if (u != v)
		return u < v ? 1 : -1;
	json_int_t i = json_integer_value(json_object_get(x, "index")), k = json_integer_value(json_object_get(y, "index"));
	return (i > k) - (i < k);
}

/* The measured row of each graph node, by name. */
static json_t *by_name(const json_t *measured)
{
	json_t *o = json_object(), *v;
	size_t i;
	json_array_foreach(json_object_get(measured, "nodes"), i, v)
		if (json_is_string(json_object_get(v, "name")))
			json_object_set(o, json_string_value(json_object_get(v, "name")), v);
	return o;
}

struct sums {
	double us;
	json_int_t launches, views;
	int launches_known;
};

/* Rows sorted by time; operators without work and without time are counted as views. */
static json_t *operators(const json_t *graph, const json_t *measured, const struct ww_roof *roof, struct sums *s)
{
	json_t *names = by_name(measured), *rows = json_array(), *node;
	size_t n = json_array_size(json_object_get(graph, "nodes")), used = 0, i;
	json_t **list = calloc(n + 1, sizeof(json_t *));

	*s = (struct sums){ 0, 0, 0, 0 };
	json_array_foreach(json_object_get(graph, "nodes"), i, node) {
		const json_t *m = json_object_get(names, ww_json_str(node, "name", ""));
		s->us += ww_json_num(m, "us", 0);
		if (json_is_integer(json_object_get(m, "launches"))) {
			s->launches += json_integer_value(json_object_get(m, "launches"));
			s->launches_known = 1;
		}
	}
	json_array_foreach(json_object_get(graph, "nodes"), i, node) {
		const json_t *m = json_object_get(names, ww_json_str(node, "name", ""));
		int idle = ww_json_num(node, "bytes", 0) <= 0 && ww_json_num(node, "flops", 0) <= 0 &&
			ww_json_int(m, "launches", 0) == 0;
		s->views += idle;
		if (!idle && list)
			list[used++] = row(node, m, i, roof, s->us);
	}
	if (list)
		qsort(list, used, sizeof(json_t *), by_time);
	for (i = 0; i < used; i++)
		json_array_append_new(rows, list[i]);
	free(list);
	json_decref(names);
	return rows;
}

static json_t *totals(
	const struct ww_judge_task *t, const json_t *measured, const struct ww_roof *roof, const struct sums *s)
{
	const json_t *g = json_object_get(t->graph, "totals");
	double call_us = ww_json_num(measured, "call_us", NAN), device_us = ww_json_num(measured, "device_us", NAN);
	struct ww_work w = { ww_json_num(g, "bytes", 0), ww_json_num(g, "flops", 0) };
	struct ww_position p;
	int dtype = t->facts.n_outputs ? t->facts.outputs[0].dtype : WW_F32;
	json_t *o = json_object();

	ww_position_set(&p, roof, &w, s->us, dtype, -1);
	json_object_set_new(o, "us", ww_profile_num(s->us));
	json_object_set_new(o, "call_us", ww_profile_num(call_us));
	json_object_set_new(o, "device_us", ww_profile_num(device_us));
	json_object_set_new(o, "overhead_share", ww_profile_num(call_us > 0 ? fmax(0, 1 - s->us / call_us) : NAN));
	json_object_set_new(o, "launches", s->launches_known ? json_integer(s->launches) : json_null());
	json_object_set_new(o, "operators", json_integer((json_int_t)json_array_size(json_object_get(t->graph, "nodes"))));
	json_object_set_new(o, "views", json_integer(s->views));
	ww_profile_add_position(o, &w, &p);
	json_object_set_new(o, "node_bytes", ww_profile_num(ww_json_num(g, "node_bytes", 0)));
	json_object_set_new(
		o, "memory_us", ww_profile_num(roof->bytes_per_s > 0 ? w.bytes / roof->bytes_per_s * 1e6 : NAN));
	return o;
}

enum ww_rc ww_profile_reference(struct ww_judge_task *t, json_t **out, struct ww_err *err)
{
	struct ask a = { t, NULL };
	struct ww_roof roof;
	struct sums sums;
	enum ww_rc rc;

	*out = NULL;
	WW_TRY(ww_judge_hold(t, WW_TURN_ALONE, measure, &a, err));
	ww_profile_roof(t, &roof);
	json_t *rows = operators(t->graph, a.measured, &roof, &sums);
	*out = json_pack("{s:i, s:s, s:s, s:s, s:o, s:s, s:o, s:o}", "version", WW_PROFILE_VERSION, "what", "reference",
		"status", "ok", "task", t->task.name, "device",
		ww_profile_device(&roof, &t->facts.device, t->judge->facts.name), "method",
		ww_json_str(a.measured, "method", "?"), "totals", totals(t, a.measured, &roof, &sums), "operators", rows);
	if (!*out)
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory for a profile");
out:
	json_decref(a.measured);
	return rc;
}
