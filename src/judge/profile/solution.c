/* solution.c - what each node of a solution's plan takes, what it uses of the device, and what limits it.
 *
 *     build      as for a verdict; a solution that does not build ends here with the builder's or compiler's message
 *     run        a runner of its own, on one draw, three calls first: what faults or hangs faults or hangs here
 *     profile    the runner times its nodes and, on cuda, reads registers, occupancy and counters (run/profile.h)
 *     explain    bytes and flops (work.h), the limiting resource (limit.h), machine code of the longest launch (sass.h)
 *
 * The runner is not used again: profiling libraries stay loaded in it.  Correctness is not looked at; the judge does
 * that. */
#include "judge/facts.h"
#include "judge/session.h"
#include "judge/profile/limit.h"
#include "judge/profile/profile.h"
#include "judge/profile/sass.h"
#include "judge/profile/work.h"

#include "base/json.h"
#include "judge/solution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	DIAG_BYTES = 12 << 10,
	WARM_RUNS = 3,
	MIN_REPEATS = 3,
	MAX_REPEATS = 15,
	FIRST_LIMIT_S = 30,
	PROFILE_LIMIT_S = 120
};

struct work {
	struct ww_judge_task *t;
	const struct ww_image *image;
	const struct ww_compiled *binary;
	struct ww_run_profile *profile;
	struct ww_verdict v; /* status, where the run failed */
	char *diagnostics;
};

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* Seconds of one call, the later of the warm ones. */
static enum ww_rc warm(struct ww_session *s, double *seconds, struct ww_err *err)
{
	struct ww_run_result res;
	*seconds = 0;
	for (int k = 0; k < WARM_RUNS && !s->failed; k++) {
		WW_CHECK(ww_session_run(s, WW_RUN_POISON | WW_RUN_FLUSH, &res, err));
		*seconds = isfinite(res.device_us) ? res.device_us * 1e-6 : (double)res.elapsed_ns * 1e-9;
	}
	return WW_OK;
}

/* What PyTorch runs is another process's, and timed by the judge's clock: one warm call's, into its rows. */
static void add_pytorch(const struct ww_image *m, const double *us, struct ww_run_profile *p)
{
	int k = 0;
	for (uint32_t i = 0; i < m->n_nodes && k < WW_PYTORCH_TIMED; i++) {
		if (ww_image_nodes(m)[i].kind != WW_NODE_PYTORCH)
			continue;
		p->nodes[i].us = us[k++];
		p->plan_us += p->nodes[i].us;
	}
}

static enum ww_rc run_nodes(struct ww_session *s, struct ww_run_profile **rows, struct ww_err *err)
{
	const struct ww_judge *j = s->t->judge;
	struct ww_run_profile_ask ask = { MAX_REPEATS, j->opts.target == WW_TARGET_CUDA, (uint32_t)j->flush_bytes };
	struct ww_run_result res;
	double seconds, pytorch_us[WW_PYTORCH_TIMED] = { 0 };
	WW_CHECK(warm(s, &seconds, err));
	if (!s->failed && ww_pytorch_count(s->image))
		WW_CHECK(ww_pytorch_times(s, pytorch_us, err));
	if (s->failed)
		return WW_OK;
	double fits = seconds > 0 ? 1 / seconds : MAX_REPEATS;
	ask.repeats = fits > MAX_REPEATS ? MAX_REPEATS : fits < MIN_REPEATS ? MIN_REPEATS : (uint32_t)fits;
	WW_CHECK(ww_runner_profile(
		s->runner, &ask, s->image->n_nodes, PROFILE_LIMIT_S + 4 * ask.repeats * seconds, rows, &res, err));
	ww_session_fail_run(s, &res, "profile");
	if (!s->failed)
		add_pytorch(s->image, pytorch_us, *rows);
	return WW_OK;
}

/* On the cpu target untrusted code could have written the rows: a value that no clock can give counts as unknown. */
static double believable(double v) { return v >= 0 && v < 1e12 ? v : NAN; }

/* A counter in percent of elapsed time refers to the range around the node, which is some 30 us longer than the node:
 * convert it to a percentage of the node's own time. */
static void rescale(struct ww_run_profile_node *n)
{
#define X(id, name, cupti) cupti,
	static const char *const names[] = { WW_COUNTER_MAP(X) };
#undef X
	double longer = n->counter[WW_COUNTER_DURATION_NS] * 1e-3 / n->alone_us;
	for (int i = 0; longer > 1 && i < WW_COUNTER_COUNT; i++)
		if (strstr(names[i], "_elapsed"))
			n->counter[i] *= longer;
}

static void clean(struct ww_run_profile *p)
{
	p->plan_us = believable(p->plan_us);
	p->clock_us = believable(p->clock_us);
	for (uint32_t i = 0; i < p->n_nodes; i++) {
		p->nodes[i].us = believable(p->nodes[i].us);
		p->nodes[i].alone_us = believable(p->nodes[i].alone_us);
		p->nodes[i].busy_threads = believable(p->nodes[i].busy_threads);
		rescale(&p->nodes[i]);
	}
}

/* Under the task's lock and the device's lease. */
static enum ww_rc measure(void *ctx, struct ww_err *err)
{
	struct work *w = ctx;
	struct ww_session s = { .t = w->t, .image = w->image, .v = &w->v, .diag = WW_STR_INIT(DIAG_BYTES) };
	enum ww_rc rc;

	ww_verdict_release(&w->v);
	free(w->profile);
	w->profile = NULL;
	ww_judge_progress(w->t->judge, "profiling the solution");
	s.limit_s = w->t->judge->opts.max_run_s > 0 ? w->t->judge->opts.max_run_s : FIRST_LIMIT_S;
	WW_TRY(ww_judge_device_peaks(w->t, err));
	WW_TRY(ww_session_draw(w->t, 1, 0, WW_REF_PARAMS_REDRAW, err));
	WW_TRY(ww_session_open(&s, w->binary, err));
	if (!s.failed)
		WW_TRY(run_nodes(&s, &w->profile, err));
	if (w->profile)
		clean(w->profile);
out:
	ww_session_close(&s);
	free(w->diagnostics);
	w->diagnostics = ww_str_take(&s.diag);
	return rc;
}

/* ---- Explaining -------------------------------------------------------------------------------------------------- */

static const char *kind_name(uint32_t kind)
{
	switch (kind) {
	case WW_NODE_LAUNCH: return "launch";
	case WW_NODE_GEMM: return "gemm";
	case WW_NODE_CONV: return "conv";
	case WW_NODE_PYTORCH: return "pytorch";
	case WW_NODE_MEMSET: return "memset";
	default: return "copy";
	}
}

static json_t *count(int v) { return v >= 0 ? json_integer(v) : json_null(); }

static void add_launch(json_t *o, const struct ww_image *m, const struct ww_image_launch *l,
	const struct ww_run_profile_node *r, const struct ww_occupancy *occupancy, int cuda)
{
	struct ww_str name = WW_STR_INIT(512);
	ww_str_add_bounded(&name, ww_image_string(m, l->kernel), strlen(ww_image_string(m, l->kernel)), 200);
	json_object_set_new(o, "kernel", json_string(name.p));
	json_object_set_new(
		o, "grid", json_pack("[I,I,I]", (json_int_t)l->grid[0], (json_int_t)l->grid[1], (json_int_t)l->grid[2]));
	json_object_set_new(o, "shared_bytes", json_integer(l->shared_bytes));
	ww_str_release(&name);
	if (!cuda)
		return;
	json_object_set_new(o, "block", json_pack("[i,i,i]", l->block[0], l->block[1], l->block[2]));
	json_object_set_new(o, "cluster", json_pack("[i,i,i]", l->cluster[0], l->cluster[1], l->cluster[2]));
	json_object_set_new(o, "registers", count(r->registers));
	json_object_set_new(o, "local_bytes", count(r->local_bytes));
	json_object_set_new(o, "static_shared_bytes", count(r->static_shared_bytes));
	json_object_set_new(o, "blocks_per_sm", count(r->blocks_per_sm));
	json_object_set_new(o, "occupancy", ww_profile_num(occupancy->share));
	json_object_set_new(
		o, "occupancy_limited_by", occupancy->limited_by ? json_string(occupancy->limited_by) : json_null());
	json_object_set_new(o, "waves", ww_profile_num(occupancy->waves));
}

static void add_counters(json_t *o, const struct ww_run_profile_node *r)
{
#define X(id, name, cupti) name,
	static const char *const names[] = { WW_COUNTER_MAP(X) };
#undef X
	json_t *c = json_object();
	for (int i = 0; i < WW_COUNTER_COUNT; i++)
		if (isfinite(r->counter[i]))
			json_object_set_new(c, names[i], json_real(r->counter[i]));
	if (json_object_size(c))
		json_object_set_new(o, "counters", c);
	else
		json_decref(c);
}

static int math_of(const struct ww_image_node *d)
{
	return d->kind == WW_NODE_GEMM ? d->gemm.math : d->kind == WW_NODE_CONV ? d->conv.math : -1;
}

/* The task's work in the plan's time. */
static void plan_position(const struct work *w, const struct ww_roof *roof, struct ww_work *work, struct ww_position *p)
{
	const struct ww_facts *f = &w->t->facts;
	*work = (struct ww_work){ w->t->bytes, w->t->flops };
	ww_position_set(p, roof, work, w->profile->plan_us, f->n_outputs ? f->outputs[0].dtype : WW_F32, -1);
}

static json_t *node_row(const struct work *w, uint32_t i, const struct ww_roof *roof, double sum_us, double flops)
{
	const struct ww_image_node *d = &ww_image_nodes(w->image)[i];
	const struct ww_run_profile_node *r = &w->profile->nodes[i];
	const struct ww_facts *f = &w->t->facts;
	int cuda = roof->target == WW_TARGET_CUDA;
	double us = cuda ? r->alone_us : r->us;
	struct ww_work work = { ww_work_of_node(w->image, i).bytes, flops }, task;
	struct ww_position p, plan;
	struct ww_occupancy occupancy = { NAN, NULL, NAN };
	ww_auto_str sentence = WW_STR_INIT(1024);
	json_t *o = json_pack("{s:I, s:s}", "node", (json_int_t)i, "kind", kind_name(d->kind));

	ww_position_set(&p, roof, &work, us, f->n_outputs ? f->outputs[0].dtype : WW_F32, math_of(d));
	if (d->kind == WW_NODE_LAUNCH && cuda)
		ww_occupancy_set(&occupancy, &f->device, &d->launch, r->registers, r->static_shared_bytes, r->blocks_per_sm);
	plan_position(w, roof, &task, &plan);
	struct ww_limit_facts facts = { &f->device, roof, d, r, &p, &plan, &occupancy, us };
	const char *limit = ww_limit_name(&facts, &sentence);
	json_object_set_new(o, "us", ww_profile_num(r->us));
	json_object_set_new(o, "share", ww_profile_num(sum_us > 0 ? r->us / sum_us : NAN));
	if (cuda)
		json_object_set_new(o, "alone_us", ww_profile_num(r->alone_us));
	else
		json_object_set_new(o, "busy_threads", ww_profile_num(r->busy_threads));
	ww_profile_add_position(o, &work, &p);
	json_object_set_new(o, "limit", json_string(limit));
	json_object_set_new(o, "sentence", json_string(sentence.p));
	if (d->kind == WW_NODE_LAUNCH)
		add_launch(o, w->image, &d->launch, r, &occupancy, cuda);
	add_counters(o, r);
	return o;
}

/* Index of the node with the largest time, launches only if so asked; -1: there is none. */
static int longest(const struct work *w, int launches_only)
{
	int top = -1;
	for (uint32_t i = 0; i < w->image->n_nodes; i++)
		if ((!launches_only || ww_image_nodes(w->image)[i].kind == WW_NODE_LAUNCH) &&
			(top < 0 || w->profile->nodes[i].us > w->profile->nodes[top].us))
			top = (int)i;
	return top;
}

static json_t *nodes(const struct work *w, const struct ww_roof *roof, double sum_us, double *bytes)
{
	double *flops = calloc(w->image->n_nodes + 1u, sizeof(*flops));
	json_t *rows = json_array();
	*bytes = 0;
	if (flops)
		ww_work_flops(w->image, w->t->flops, flops);
	for (uint32_t i = 0; flops && i < w->image->n_nodes; i++) {
		json_array_append_new(rows, node_row(w, i, roof, sum_us, flops[i]));
		*bytes += ww_work_of_node(w->image, i).bytes;
	}
	free(flops);
	return rows;
}

static json_t *totals(
	const struct work *w, const struct ww_roof *roof, const json_t *rows, double sum_us, double node_bytes)
{
	struct ww_work work;
	struct ww_position p;
	int top = longest(w, 0);
	uint32_t launches = 0;
	json_t *o = json_object();

	for (uint32_t i = 0; i < w->image->n_nodes; i++)
		launches += ww_image_nodes(w->image)[i].kind == WW_NODE_LAUNCH;
	plan_position(w, roof, &work, &p);
	json_object_set_new(o, "us", ww_profile_num(w->profile->plan_us));
	json_object_set_new(o, "nodes_us", ww_profile_num(sum_us));
	if (roof->target == WW_TARGET_CUDA)
		json_object_set_new(o, "clock_us", ww_profile_num(w->profile->clock_us));
	json_object_set_new(o, "nodes", json_integer(w->image->n_nodes));
	json_object_set_new(o, "launches", json_integer(launches));
	ww_profile_add_position(o, &work, &p);
	json_object_set_new(o, "node_bytes", ww_profile_num(node_bytes));
	json_object_set_new(
		o, "memory_us", ww_profile_num(roof->bytes_per_s > 0 ? work.bytes / roof->bytes_per_s * 1e6 : NAN));
	const json_t *hot = top >= 0 ? json_array_get(rows, (size_t)top) : NULL;
	json_object_set_new(o, "longest", top >= 0 ? json_integer(top) : json_null());
	json_object_set_new(o, "limit", hot ? json_string(ww_json_str(hot, "limit", "")) : json_null());
	json_object_set_new(o, "sentence", hot ? json_string(ww_json_str(hot, "sentence", "")) : json_null());
	return o;
}

static const char *method(const struct work *w)
{
	if (w->t->judge->opts.target == WW_TARGET_CPU)
		return "the runner's own clock on every thread, caches flushed ahead of the plan; medians";
	return w->profile->in_graph
		? "events between the nodes inside one CUDA graph, L2 flushed ahead of it; alone: L2 flushed ahead of the "
		  "node; medians"
		: "events between the nodes on a stream (the plan could not be captured with events), L2 flushed ahead; "
		  "alone: L2 flushed ahead of the node; medians";
}

static json_t *counters(const struct work *w)
{
	const struct ww_run_profile *p = w->profile;
	ww_auto_str why = WW_STR_INIT(512);
	ww_str_add_bounded(&why, p->counters_why, strlen(p->counters_why), 240);
	return json_pack("{s:b, s:s, s:I, s:I, s:I}", "available", p->n_counted > 0, "reason", why.p, "nodes",
		(json_int_t)p->n_counted, "disturbed", (json_int_t)p->n_disturbed, "passes", (json_int_t)p->passes);
}

static json_t *explain(const struct work *w)
{
	struct ww_roof roof;
	double sum_us = 0, bytes;
	int cuda = w->t->judge->opts.target == WW_TARGET_CUDA, hot = longest(w, 1);

	ww_profile_roof(w->t, &roof);
	for (uint32_t i = 0; i < w->image->n_nodes; i++)
		sum_us += isfinite(w->profile->nodes[i].us) ? w->profile->nodes[i].us : 0;
	json_t *rows = nodes(w, &roof, sum_us, &bytes);
	json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:o, s:s, s:o}", "version", WW_PROFILE_VERSION, "what", "solution",
		"status", "ok", "task", w->t->task.name, "device",
		ww_profile_device(&roof, &w->t->facts.device, w->t->judge->facts.name), "method", method(w), "totals",
		totals(w, &roof, rows, sum_us, bytes));
	json_object_set_new(o, "nodes", rows);
	if (!cuda)
		return o;
	json_object_set_new(o, "counters", counters(w));
	if (hot >= 0) {
		const struct ww_image_launch *l = &ww_image_nodes(w->image)[hot].launch;
		const char *symbol = ww_compiled_symbol(w->binary, ww_image_string(w->image, l->kernel));
		json_t *sass = symbol ? ww_sass(w->binary->binary, w->binary->binary_bytes, symbol) : NULL;
		if (sass) {
			json_object_set_new(sass, "node", json_integer(hot));
			json_object_set_new(o, "sass", sass);
		}
	}
	return o;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static json_t *failure(const struct ww_judge_task *t, enum ww_status status, const char *diagnostics)
{
	ww_auto_str clean = WW_STR_INIT(DIAG_BYTES + 256);
	ww_str_add_bounded(&clean, diagnostics, strlen(diagnostics), DIAG_BYTES);
	return json_pack("{s:i, s:s, s:s, s:s, s:s}", "version", WW_PROFILE_VERSION, "what", "solution", "status",
		ww_status_name(status), "task", t->task.name, "diagnostics", clean.p);
}

/* The words of a verdict about a solution that does not build. */
static enum ww_rc why_not_built(struct ww_judge_task *t, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	struct ww_verdict v;
	ww_verdict_init(&v);
	enum ww_rc rc = ww_judge_run(t, s, WW_JUDGE_COMPILE, &v, err);
	if (rc == WW_OK)
		*out = failure(
			t, v.status == WW_STATUS_OK ? WW_STATUS_COMPILE_FAILED : v.status, v.diagnostics ? v.diagnostics : "");
	ww_verdict_release(&v);
	return rc;
}

enum ww_rc ww_profile_solution(struct ww_judge_task *t, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	struct work w = { .t = t };
	struct ww_image *image = NULL;
	struct ww_compiled binary;
	enum ww_rc rc = WW_OK;

	*out = NULL;
	ww_verdict_init(&w.v);
	ww_compiled_init(&binary);
	if (s->form != WW_FORM_PLAN) {
		*out = failure(t, WW_STATUS_REFUSED,
			"only a plan has nodes that can be profiled (kernels.* and plan.c); of PyTorch forms judge "
			"gives the times\n");
		goto out;
	}
	if (s->device_bytes > WW_SOLUTION_MAX_BYTES || s->plan_bytes > WW_SOLUTION_MAX_BYTES) {
		rc = why_not_built(t, s, out, err);
		goto out;
	}
	ww_judge_progress(t->judge, "compiling the kernels");
	rc = ww_judge_artifacts(t, s, &image, &binary, err);
	if (rc == WW_ERR_USAGE) {
		rc = why_not_built(t, s, out, err);
		goto out;
	}
	if (rc != WW_OK)
		goto out;
	w.image = image;
	w.binary = &binary;
	WW_TRY(ww_judge_hold(t, WW_TURN_ALONE, measure, &w, err));
	int failed = w.v.status != WW_STATUS_OK || !w.profile;
	*out = failed ? failure(t, w.v.status, w.diagnostics ? w.diagnostics : "") : explain(&w);
	if (*out) {
		char id[65];
		ww_solution_id(s, id);
		json_object_set_new(*out, "solution", json_string(id));
	}
out:
	if (rc == WW_OK && !*out)
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory for a profile");
	free(image);
	ww_compiled_release(&binary);
	ww_verdict_release(&w.v);
	free(w.profile);
	free(w.diagnostics);
	return rc;
}

int ww_profile_ok(const json_t *profile) { return !strcmp(ww_json_str(profile, "status", ""), "ok"); }
