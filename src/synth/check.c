/* check.c - see check.h.
 *
 * Order, cheapest first: on a GPU the graph without a device, and similarity, since a third of a large set's candidates
 * and more with each task resemble an accepted one.  Then load (form, random, data-dependent), the graph and what is
 * redundant in it, similarity, the other eager filters, torch.compile.  Most of what is rejected never reaches a
 * compiler.  A worker that has ended a candidate gives its memory back before it gives up its room.
 *
 * Times are measured last, eager and compiled in one turn, since everybody else stands still meanwhile.  A run while
 * the task was loaded, beside others, took at least as long as one alone: a task that may be out of bounds by that is
 * measured at once.
 */
#include "synth/check.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/median.h"
#include "base/target.h"
#include "base/time.h"
#include "host/machine.h"
#include "synth/mark.h"
#include "synth/redundant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tasks of a worker.  On a GPU each first use of a library's kernels loads them, 3 s a worker in all. */
enum { CPU_TASKS = 48, CUDA_TASKS = 160 };
enum { LEAST_TIMES = 3, MOST_TIMES = 15, PATIENCE = 10 };
static const double REQUEST_S = 60, TURN_S = 0.5, CUDA_BUDGET_US = 2.5e4, CPU_BUDGET_US = 5e4, MEMORY_SHARE = 0.88,
					PEAK_MARGIN = 1.1, SURELY = 2, MAX_LEFT_BYTES = 1 << 30, GIVES_WAY_S = 0.25;

void ww_synth_result_release(struct ww_synth_result *r)
{
	json_decref(r->row);
	json_decref(r->graph);
	json_decref(r->mark);
	json_decref(r->shares);
	*r = (struct ww_synth_result){ 0 };
}

/* Before another try: what it costs counts for the candidate, too, and why it is tried again is kept. */
static void release_but_cost(struct ww_synth_result *r)
{
	struct ww_synth_result fresh = { 0 };
	memcpy(fresh.cost, r->cost, sizeof(fresh.cost));
	snprintf(fresh.again, sizeof(fresh.again), "%.*s", (int)sizeof(fresh.again) - 1, r->detail);
	ww_synth_result_release(r);
	*r = fresh;
}

enum ww_rc ww_synth_reject(struct ww_synth_result *r, const char *reason, const char *detail)
{
	snprintf(r->reason, sizeof(r->reason), "%s", reason);
	snprintf(r->detail, sizeof(r->detail), "%.399s", detail);
	return WW_OK;
}

/* ---- What it costs */

/* CPU-seconds of the worker and of the compilers that it has waited for. */
static double worker_cpu_s(const struct ww_synth_checker *c)
{
	struct ww_host_process p = ww_host_process(c->ref ? (int)ww_ref_pid(c->ref) : 0);
	return p.s + p.ended_s;
}

static struct ww_synth_cost cost_now(const struct ww_synth_checker *c)
{
	return (struct ww_synth_cost){ (double)ww_now_ns() * 1e-9, worker_cpu_s(c) };
}

static void cost_add(const struct ww_synth_checker *c, struct ww_synth_result *r, enum ww_synth_stage at,
	const struct ww_synth_cost *since)
{
	struct ww_synth_cost now = cost_now(c);
	r->cost[at].s += now.s - since->s;
	r->cost[at].cpu_s += now.cpu_s > since->cpu_s ? now.cpu_s - since->cpu_s : 0;
}

json_t *ww_synth_cost_json(const struct ww_synth_result *r)
{
	static const char *const names[] = {
#define X(name) #name,
		WW_SYNTH_STAGES(X)
#undef X
	};
	json_t *all = json_object();
	for (int i = 0; i < WW_SYNTH_N_STAGES; i++)
		if (r->cost[i].s > 0)
			json_object_set_new(all, names[i], json_pack("[f, f]", r->cost[i].s, r->cost[i].cpu_s));
	return all;
}

/* ---- The worker */

void ww_synth_checker_close(struct ww_synth_checker *c)
{
	ww_ref_close(c->ref);
	c->ref = NULL;
	c->used = 0;
}

static int is_cpu(const struct ww_synth_checker *c) { return c->o.recipe->target == WW_TARGET_CPU; }

void ww_synth_forker_close(struct ww_synth_forker *f)
{
	ww_forker_close(f->forker);
	ww_tmpdir_remove(&f->caches);
	pthread_mutex_destroy(&f->lock);
}

static enum ww_rc forker_of(struct ww_synth_checker *c, struct ww_forker **out, struct ww_err *err)
{
	struct ww_synth_forker *f = c->o.forker;
	struct ww_err why = WW_ERR_INIT;
	*out = NULL;
	if (!f)
		return WW_OK;
	WW_LOCKED(&f->lock);
	if (!f->tried) {
		f->tried = 1;
		WW_CHECK(ww_tmpdir_new(&f->caches, "synth", err));
		struct ww_forker_opts o = { .target = c->o.recipe->target,
			.caches = f->caches.path,
			.exports = 1,
			.compiles = !strcmp(c->o.recipe->compiler, "inductor"),
			.interrupted = c->o.interrupted };
		if (ww_forker_open(&f->forker, &o, &why) != WW_OK)
			ww_log(WW_LOG_INFO, "each worker imports PyTorch by itself: %s", why.msg);
	}
	*out = f->forker;
	return WW_OK;
}

enum ww_rc ww_synth_checker_warm(struct ww_synth_checker *c, struct ww_err *err)
{
	struct ww_forker *ignored;
	return forker_of(c, &ignored, err);
}

static enum ww_rc open_worker(struct ww_synth_checker *c, struct ww_synth_result *out, struct ww_err *err)
{
	struct ww_synth_cost since = { .s = (double)ww_now_ns() * 1e-9 };
	if (c->ref && (!ww_ref_alive(c->ref) || c->used >= (is_cpu(c) ? CPU_TASKS : CUDA_TASKS) || c->o.distrust))
		ww_synth_checker_close(c);
	c->used++;
	if (c->ref)
		return WW_OK;
	struct ww_forker *forker;
	double longer = c->o.replay ? PATIENCE : 1;
	WW_CHECK(forker_of(c, &forker, err));
	struct ww_ref_opts o = { .target = c->o.recipe->target,
		.device = c->o.device->ordinal,
		.threads = c->o.threads,
		.one_compiler = 1,
		.examines = 1,
		.warm_calls = is_cpu(c) ? 0 : 1, /* the task has run when it was loaded */
		.forker = forker,
		.max_load_s = c->o.recipe->max_load_s * longer,
		.max_request_s = REQUEST_S * longer,
		.max_compile_s = c->o.recipe->max_compile_s * longer,
		.max_resident_bytes = is_cpu(c) ? (uint64_t)c->o.recipe->max_memory_bytes + (4ull << 30) : 0,
		.interrupted = c->o.interrupted };
	WW_CHECK(ww_ref_open(&c->ref, &o, err));
	cost_add(c, out, WW_SYNTH_AT_start, &since);
	if (is_cpu(c))
		return WW_OK;
	struct ww_share s;
	WW_CHECK(ww_share_open(&s, ww_ref_info(c->ref)->device_uuid, err));
	enum ww_rc rc = ww_ref_share(c->ref, s.gate, s.fd, err);
	ww_share_close(&s);
	return rc;
}

/* ---- The device */

void ww_synth_device_init(struct ww_synth_device *d, int ordinal)
{
	pthread_rwlockattr_t a;
	*d = (struct ww_synth_device){
		.ordinal = ordinal,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
		.lease = WW_LEASE_INIT,
	};
	ww_room_init(&d->room);
	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&d->measured, &a);
	pthread_rwlockattr_destroy(&a);
}

void ww_synth_device_release(struct ww_synth_device *d)
{
	ww_room_release(&d->room);
	pthread_rwlock_destroy(&d->measured);
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
}

static void work_begin(const struct ww_synth_checker *c)
{
	if (is_cpu(c))
		pthread_rwlock_rdlock(&c->o.device->measured);
}

static void work_end(const struct ww_synth_checker *c)
{
	if (is_cpu(c))
		pthread_rwlock_unlock(&c->o.device->measured);
}

/* n times of a prepared baseline, us; on cpu by this process's clock.  Where PyTorch has one thread, the time that it
 * waited for a processor is subtracted, so that other work on the machine does not count.  Several threads also wait
 * for each other, so nothing is subtracted there. */
static enum ww_rc times_into(struct ww_synth_checker *c, enum ww_baseline which, int n, double *us, struct ww_err *err)
{
	if (!is_cpu(c))
		return ww_ref_time(c->ref, which, WW_REF_DEVICE, n, 1, us, err);
	for (int i = 0; i < n; i++) {
		uint64_t ns;
		double waited_us;
		WW_CHECK(ww_ref_arm(c->ref, which, err));
		ww_ref_settle(c->ref);
		WW_CHECK(ww_ref_fire(c->ref, &ns, &waited_us, err));
		us[i] = (double)ns * 1e-3 - (c->o.threads == 1 ? waited_us : 0);
	}
	return WW_OK;
}

/* The device has others' work to do meanwhile, so a long call is made a few times only: on cuda it varies by 1%. */
static enum ww_rc alone(struct ww_synth_checker *c, enum ww_baseline which, double *out, struct ww_err *err)
{
	enum { FIRST = 2 };
	double us[MOST_TIMES];
	WW_CHECK(times_into(c, which, FIRST, us, err));
	double n = (is_cpu(c) ? CPU_BUDGET_US : CUDA_BUDGET_US) / (us[0] < us[1] ? us[0] : us[1]);
	int count = n < LEAST_TIMES ? LEAST_TIMES : n > MOST_TIMES ? MOST_TIMES : (int)n;
	WW_CHECK(times_into(c, which, count - FIRST, us + FIRST, err));
	*out = ww_median(us, (size_t)count);
	return WW_OK;
}

static void turn_end(struct ww_synth_device *d)
{
	WW_LOCKED(&d->lock);
	if (!d->to_measure || ww_seconds_since(d->lease.since_ns) > TURN_S)
		ww_lease_drop(&d->lease);
	d->measuring = 0;
	pthread_cond_broadcast(&d->changed);
}

static enum ww_rc turn_begin(struct ww_synth_checker *c, struct ww_err *err)
{
	struct ww_synth_device *d = c->o.device;
	struct ww_lease_wait wait = { .interrupted = c->o.interrupted, .gives_way_s = GIVES_WAY_S };
	pthread_mutex_lock(&d->lock);
	d->to_measure++;
	while (d->measuring)
		ww_cond_wait(&d->changed, &d->lock, 0.2);
	d->to_measure--;
	d->measuring = 1;
	pthread_mutex_unlock(&d->lock);
	if (d->lease.fd >= 0)
		return WW_OK;
	enum ww_rc rc = ww_lease_take(&d->lease, is_cpu(c) ? "cpu" : ww_ref_info(c->ref)->device_uuid, &wait, err);
	if (rc != WW_OK)
		turn_end(d);
	return rc;
}

/* Times of prepared baselines in one turn. */
static enum ww_rc measure(struct ww_synth_checker *c, int n, const enum ww_baseline *which, double *us,
	struct ww_synth_result *out, struct ww_err *err)
{
	struct ww_synth_cost since = cost_now(c);
	if (is_cpu(c))
		pthread_rwlock_wrlock(&c->o.device->measured);
	enum ww_rc rc = turn_begin(c, err);
	cost_add(c, out, WW_SYNTH_AT_turn, &since);
	since = cost_now(c);
	if (rc == WW_OK) {
		for (int i = 0; rc == WW_OK && i < n; i++)
			rc = alone(c, which[i], &us[i], err);
		turn_end(c->o.device);
	}
	work_end(c);
	cost_add(c, out, WW_SYNTH_AT_measure, &since);
	return rc;
}

/* ---- Reasons */

/* Turn an error that the module caused into a rejection; 0: the error is ours.  A package that the catalogue's blocks
 * need and that is not installed is no fault of the module. */
static int is_rejection(
	const struct ww_synth_checker *c, enum ww_rc rc, const struct ww_err *err, struct ww_synth_result *out)
{
	static const struct {
		const char *in, *reason;
	} words[] = { { "is random", "random" }, { "data-dependent", "data-dependent" },
		{ "syntax error", "not in KernelBench form" }, { "KernelBench form", "not in KernelBench form" },
		{ "does not fit", "does not fit memory" }, { "did not load and run", WW_SYNTH_TOO_LONG },
		{ "while it was loaded", "uses too much" }, { "ended the reference worker", "ends its process" },
		{ "failed", "does not run" } };
	const char *reason = rc == WW_ERR_TASK                                    ? "refused"
		: rc == WW_ERR_ROOM                                                   ? "does not fit memory"
		: rc == WW_ERR_TIMEOUT                                                ? WW_SYNTH_TOO_LONG
		: rc == WW_ERR_LIMIT                                                  ? "uses too much"
		: rc == WW_ERR_WORKER || rc == WW_ERR_PROTOCOL || rc == WW_ERR_DEVICE ? "ends its process"
																			  : NULL;
	for (size_t i = 0; rc == WW_ERR_TASK && i < WW_ARRAY_LEN(words); i++)
		if (strstr(err->msg, words[i].in)) {
			reason = words[i].reason;
			break;
		}
	if (!reason || (!c->o.distrust && strstr(err->msg, "-m pip install")))
		return 0;
	if (rc == WW_ERR_WORKER &&
		strstr(err->msg, "the reference worker failed")) /* an exception; the worker still runs */
		reason = "does not run";
	out->no_room = strstr(reason, "memory") != NULL;
	out->broke = rc == WW_ERR_DEVICE;
	ww_synth_reject(out, reason, err->msg);
	return 1;
}

/* ---- The filters */

static enum ww_rc load(struct ww_synth_checker *c, const struct ww_task *task, uint64_t seed,
	struct ww_synth_result *out, struct ww_err *err)
{
	struct ww_synth_cost since = cost_now(c);
	work_begin(c);
	enum ww_rc rc = ww_ref_load(c->ref, task, seed & 0x7fffffffffffffff, err);
	work_end(c);
	cost_add(c, out, WW_SYNTH_AT_load, &since);
	return rc;
}

static void keep_shares(enum ww_examine stage, const json_t *facts, struct ww_synth_result *out)
{
	static const char *const names[] = {
		[WW_EXAMINE_TEXT] = "load", [WW_EXAMINE_EAGER] = "eager", [WW_EXAMINE_COMPILE] = "compile"
	};
	json_t *spent = json_object_get(facts, "share_s");
	if (!spent || stage == WW_EXAMINE_END)
		return;
	if (!out->shares)
		out->shares = json_object();
	json_object_set(out->shares, names[stage], spent);
}

static enum ww_rc examine(struct ww_synth_checker *c, uint64_t seed, enum ww_examine stage, struct ww_synth_result *out,
	json_t **facts, struct ww_err *err)
{
	static const enum ww_synth_stage at[] = { [WW_EXAMINE_TEXT] = WW_SYNTH_AT_graph,
		[WW_EXAMINE_EAGER] = WW_SYNTH_AT_eager,
		[WW_EXAMINE_COMPILE] = WW_SYNTH_AT_compiled,
		[WW_EXAMINE_END] = WW_SYNTH_AT_end };
	struct ww_synth_cost since = cost_now(c);
	work_begin(c);
	enum ww_rc rc = ww_ref_examine(
		c->ref, seed & 0x7fffffffffffffff, stage, c->o.recipe->compiler, c->o.recipe->max_memory_bytes, facts, err);
	work_end(c);
	cost_add(c, out, at[stage], &since);
	if (rc == WW_OK)
		keep_shares(stage, *facts, out);
	if (rc == WW_OK && (stage == WW_EXAMINE_EAGER || stage == WW_EXAMINE_COMPILE))
		ww_synth_reject(out, ww_json_str(*facts, "reason", ""), ww_json_str(*facts, "detail", ""));
	return rc;
}

static void time_bounds(const struct ww_synth_recipe *r, double us, struct ww_synth_result *out)
{
	char text[80];
	snprintf(text, sizeof(text), "%.1f us in eager mode", us);
	if (us < r->min_us)
		ww_synth_reject(out, "too fast", text);
	else if (us > r->max_us)
		ww_synth_reject(out, "too slow", text);
}

static void inputs_bound(const struct ww_synth_recipe *r, const json_t *facts, struct ww_synth_result *out)
{
	const json_t *in, *d;
	size_t i, k;
	double bytes = 0;
	json_array_foreach(json_object_get(json_object_get(facts, "shapes"), "inputs"), i, in) {
		const char *dtype = json_string_value(json_array_get(in, 0));
		double n = strstr(dtype ? dtype : "", "64") ? 8
			: strstr(dtype ? dtype : "", "32")      ? 4
			: strstr(dtype ? dtype : "", "16")      ? 2
											   : 1;
		json_array_foreach(json_array_get(in, 1), k, d)
			n *= (double)json_integer_value(d);
		bytes += n;
	}
	if (bytes > r->max_input_bytes)
		ww_synth_reject(out, "inputs too large", "its inputs take more memory than the recipe allows");
}

/* Names of the operators, as the graph has them, each once. */
static json_t *operators(const json_t *graph)
{
	json_t *list = json_array();
	json_auto_t *seen = json_object();
	const json_t *n;
	size_t i;
	json_array_foreach(json_object_get(graph, "nodes"), i, n) {
		const char *op = ww_json_str(n, "op", "");
		char name[80];
		snprintf(name, sizeof(name), "%.*s",
			(int)(strrchr(op, '.') && strrchr(op, '.') > op + 5 ? strrchr(op, '.') - op : (long)strlen(op)), op);
		if (strncmp(op, "aten.", 5) || json_object_get(seen, name))
			continue;
		json_object_set_new(seen, name, json_true());
		json_array_append_new(list, json_string(name));
	}
	return list;
}

static json_t *times_of(struct ww_synth_checker *c, double eager_us, double compile_us)
{
	const struct ww_ref_info *i = ww_ref_info(c->ref);
	return json_pack("{s:f, s:f, s:s, s:{s:s, s:s, s:s}}", "eager_us", eager_us, "compile_us", compile_us, "gpu",
		i->device_name, "versions", "torch", i->torch, "cuda", i->cuda, "driver", i->driver);
}

static enum ww_rc compile(struct ww_synth_checker *c, struct ww_synth_result *out, struct ww_err *err)
{
	struct ww_synth_cost since = cost_now(c);
	if (is_cpu(c) || strcmp(c->o.recipe->compiler, "inductor"))
		return WW_OK;
	ww_room_rest(&c->place);
	enum ww_rc rc = ww_ref_compile_ahead(c->ref, WW_BASE_COMPILE, err);
	if (rc == WW_OK)
		rc = ww_ref_await(c->ref, err);
	cost_add(c, out, WW_SYNTH_AT_compile, &since);
	since = cost_now(c);
	ww_room_back(&c->place);
	cost_add(c, out, WW_SYNTH_AT_back, &since);
	return rc;
}

/* Prepare eager mode; a task with which that fails is rejected. */
static enum ww_rc prepare_eager(struct ww_synth_checker *c, struct ww_synth_result *out, struct ww_err *err)
{
	struct ww_ref_baseline b;
	struct ww_synth_cost since = cost_now(c);
	work_begin(c);
	enum ww_rc rc = ww_ref_baseline(c->ref, WW_BASE_EAGER, &b, err);
	work_end(c);
	cost_add(c, out, WW_SYNTH_AT_measure, &since);
	if (rc != WW_OK || b.available)
		return rc;
	out->untimed = 0;
	return ww_synth_reject(out, "does not run", b.reason);
}

/* Eager time before anything that costs more, where a run of run_us beside others leaves it open whether it is within
 * the bounds. */
static enum ww_rc time_soon(struct ww_synth_checker *c, double run_us, struct ww_synth_result *out, struct ww_err *err)
{
	const enum ww_baseline eager = WW_BASE_EAGER;
	out->untimed = run_us >= SURELY * c->o.recipe->min_us && run_us <= c->o.recipe->max_us;
	if (out->untimed)
		return WW_OK;
	WW_CHECK(prepare_eager(c, out, err));
	if (*out->reason)
		return WW_OK;
	WW_CHECK(measure(c, 1, &eager, &out->eager_us, out, err));
	time_bounds(c->o.recipe, out->eager_us, out);
	/* its CUDA graph holds the memory of a run, which other candidates need while this one compiles, and its outputs
	 * are those of the present draw */
	return ww_ref_free_baseline(c->ref, WW_BASE_EAGER, err);
}

/* What has not been measured so far.  One that is out of bounds ends like those that were measured soon: by its time
 * alone. */
static enum ww_rc time_last(
	struct ww_synth_checker *c, double *compile_us, struct ww_synth_result *out, struct ww_err *err)
{
	enum ww_baseline which[2];
	double us[2] = { 0, 0 };
	int n = 0, compiled = !strcmp(c->o.recipe->compiler, "inductor");
	if (compiled)
		which[n++] = WW_BASE_COMPILE;
	if (out->untimed)
		which[n++] = WW_BASE_EAGER;
	if (!n)
		return WW_OK;
	WW_CHECK(measure(c, n, which, us, out, err));
	*compile_us = compiled ? us[0] : 0;
	if (!out->untimed)
		return WW_OK;
	out->untimed = 0;
	out->eager_us = us[n - 1];
	time_bounds(c->o.recipe, out->eager_us, out);
	if (*out->reason) {
		json_decref(out->mark);
		out->mark = NULL;
	}
	return WW_OK;
}

/* A task that resembles one that is accepted, or of a split that is full, needs no more.  torch.export works on the
 * processor alone. */
static enum ww_rc look_at_graph(
	struct ww_synth_checker *c, const json_t *text, struct ww_synth_result *out, struct ww_err *err)
{
	ww_auto_str why = WW_STR_INIT(300);
	struct ww_synth_cost since = cost_now(c);
	work_begin(c);
	enum ww_rc rc = ww_ref_graph(c->ref, &out->graph, err);
	work_end(c);
	cost_add(c, out, WW_SYNTH_AT_graph, &since);
	WW_CHECK(rc);
	if (ww_synth_redundant(out->graph, &why))
		return ww_synth_reject(out, "redundant", why.p);
	if (c->mark)
		out->mark = json_incref((json_t *)(uintptr_t)c->mark);
	else
		WW_CHECK(ww_synth_mark(ww_json_str(text, "tokens", ""), out->graph, &out->mark, err));
	out->decided = c->o.is_decided && c->o.is_decided(c->o.ctx, out->mark);
	return WW_OK;
}

/* The module has shown what it needs: gradients, and comparisons in double, take more than what follows. */
static void show_room(struct ww_synth_checker *c, const json_t *facts, struct ww_synth_result *out)
{
	out->peak_bytes = ww_json_num(facts, "peak_bytes", 0);
	out->allocated_bytes = ww_json_num(facts, "allocated_bytes", 0);
	if (is_cpu(c) || out->peak_bytes <= 0)
		return;
	ww_room_learn(&c->o.device->room, c->values, out->peak_bytes);
	ww_room_known(&c->place, PEAK_MARGIN * out->peak_bytes);
}

static enum ww_rc eager_filters(
	struct ww_synth_checker *c, uint64_t seed, struct ww_synth_result *out, struct ww_err *err)
{
	json_auto_t *facts = NULL;
	WW_CHECK(examine(c, seed, WW_EXAMINE_EAGER, out, &facts, err));
	if (*out->reason)
		return WW_OK;
	show_room(c, facts, out);
	inputs_bound(c->o.recipe, facts, out);
	return WW_OK;
}

static enum ww_rc compile_filters(
	struct ww_synth_checker *c, uint64_t seed, const json_t *times, struct ww_synth_result *out, struct ww_err *err)
{
	json_auto_t *facts = NULL;
	double us = 0;
	WW_CHECK(compile(c, out, err));
	if (out->untimed && !times)
		WW_CHECK(prepare_eager(c, out, err));
	if (*out->reason)
		return WW_OK;
	WW_CHECK(examine(c, seed, WW_EXAMINE_COMPILE, out, &facts, err));
	if (*out->reason)
		return WW_OK;
	out->compiled_bytes = ww_json_num(facts, "peak_bytes", 0);
	if (!times)
		WW_CHECK(time_last(c, &us, out, err));
	if (*out->reason)
		return WW_OK;
	json_auto_t *measured = times ? json_incref((json_t *)(uintptr_t)times) : times_of(c, out->eager_us, us);
	out->row = json_pack(
		"{s:o, s:O, s:O}", "ops", operators(out->graph), "shapes", json_object_get(facts, "shapes"), "times", measured);
	return out->row ? WW_OK : ww_nomem(err);
}

static int has_passed(const struct ww_synth_result *out) { return !*out->reason && !out->decided; }

/* Drop the task, also one that could not be loaded.  A worker that still holds much is of no more use. */
static enum ww_rc end(struct ww_synth_checker *c, uint64_t seed, struct ww_synth_result *out, struct ww_err *err)
{
	json_auto_t *ended = NULL;
	WW_CHECK(examine(c, seed, WW_EXAMINE_END, out, &ended, err));
	out->left_bytes = ww_json_num(ended, "left_bytes", 0);
	if (out->left_bytes > MAX_LEFT_BYTES)
		ww_synth_checker_close(c);
	return WW_OK;
}

static enum ww_rc filters(struct ww_synth_checker *c, const struct ww_task *task, uint64_t seed, const json_t *times,
	struct ww_synth_result *out, struct ww_err *err)
{
	json_auto_t *text = NULL;
	WW_CHECK(load(c, task, seed, out, err));
	WW_CHECK(examine(c, seed, WW_EXAMINE_TEXT, out, &text, err));
	out->load_bytes = ww_json_num(text, "peak_bytes", 0);
	if (!times)
		WW_CHECK(time_soon(c, ww_json_num(text, "run_us", 0), out, err));
	if (has_passed(out))
		WW_CHECK(look_at_graph(c, text, out, err));
	if (has_passed(out))
		WW_CHECK(eager_filters(c, seed, out, err));
	if (has_passed(out))
		WW_CHECK(compile_filters(c, seed, times, out, err));
	return end(c, seed, out, err);
}

static enum ww_rc look(struct ww_synth_checker *c, const struct ww_task *task, uint64_t seed, const json_t *times,
	struct ww_synth_result *out, struct ww_err *err)
{
	enum ww_rc rc = filters(c, task, seed, times, out, err);
	struct ww_err ignored = WW_ERR_INIT;
	if (rc == WW_OK)
		return WW_OK;
	if (!is_rejection(c, rc, err, out))
		return rc;
	if (!strcmp(out->reason, WW_SYNTH_TOO_LONG)) { /* by that alone, as a replay rejects it */
		json_decref(out->mark);
		out->mark = NULL;
	}
	/* what came to a worker whose device has failed would fail, and one that ran out of memory may hold much of it */
	int ends = ww_ref_alive(c->ref) && end(c, seed, out, &ignored) == WW_OK;
	if (out->broke && ends && !is_cpu(c)) {
		/* the device still computes, so a library lacked something of it: cuBLAS and cuDNN do not say "memory" */
		out->broke = 0;
		out->no_room = 1;
	}
	if (out->broke || (out->no_room && !is_cpu(c)) || !ends)
		ww_synth_checker_close(c);
	return WW_OK;
}

/* On cuda run it when there is room for it; again where memory did not suffice or the device failed (room.h). */
static enum ww_rc look_in_room(struct ww_synth_checker *c, const struct ww_task *task, double input_bytes,
	uint64_t seed, const json_t *times, struct ww_synth_result *out, struct ww_err *err)
{
	struct ww_synth_room *room = is_cpu(c) ? NULL : &c->o.device->room;
	struct ww_synth_try t = { 0 };
	double recorded_us = out->eager_us;
	for (int tries = 1;; tries++) {
		out->eager_us = recorded_us;
		out->tries = tries;
		WW_CHECK(open_worker(c, out, err));
		if (room && tries == 1) {
			ww_room_limit(room, MEMORY_SHARE * (double)ww_ref_info(c->ref)->device.memory_bytes);
			t.bytes = ww_room_expected(room, c->values);
		}
		c->place = (struct ww_synth_place){ room, t.bytes, input_bytes < t.bytes || t.bytes < 0 ? input_bytes : t.bytes,
			t.stays };
		struct ww_synth_cost since = cost_now(c);
		if (room) {
			ww_room_take(&c->place);
			cost_add(c, out, WW_SYNTH_AT_room, &since);
		}
		enum ww_rc rc = look(c, task, seed, times, out, err);
		if (room)
			ww_room_give(&c->place);
		if (rc != WW_OK || !ww_room_again(room, &t, out->no_room, out->broke))
			return rc;
		ww_synth_checker_close(c);
		release_but_cost(out);
	}
}

/* ---- Before a device is asked for */

static int is_by_time(const struct ww_synth_result *out)
{
	return !strcmp(out->reason, "too fast") || !strcmp(out->reason, "too slow") ||
		!strcmp(out->reason, WW_SYNTH_TOO_LONG);
}

/* The tracer's mark is the candidate's, whatever becomes of it: it ends in the same way whether what it resembles was
 * decided on before it was looked at, or later.  One that its measured time rejects is rejected by that alone, as a
 * replay does. */
static enum ww_rc keep_mark(const json_t *mark, const json_t *times, struct ww_synth_result *out)
{
	if (!mark)
		return WW_OK;
	json_decref(out->mark);
	out->mark = is_by_time(out) && !times ? NULL : json_incref((json_t *)(uintptr_t)mark);
	return WW_OK;
}

static enum ww_rc trace(struct ww_synth_checker *c, const struct ww_task *task, json_t **mark,
	struct ww_synth_result *out, struct ww_err *err)
{
	struct ww_synth_cost since = cost_now(c);
	*mark = NULL;
	if (!c->o.tracers)
		return WW_OK;
	WW_CHECK(ww_synth_trace(c->o.tracers, task, c->o.recipe->max_load_s, c->o.interrupted, mark, out->untraced,
		sizeof(out->untraced), err));
	cost_add(c, out, WW_SYNTH_AT_trace, &since);
	out->decided = *mark && c->o.is_decided && c->o.is_decided(c->o.ctx, *mark);
	out->untimed |= out->decided;
	return WW_OK;
}

/* Decide by recorded times: they were taken after the task had been loaded, so it passed that filter.  One that was
 * never timed has another reason. */
static enum ww_rc by_record(struct ww_synth_checker *c, const json_t *times, struct ww_synth_result *out)
{
	const char *too_long = ww_json_str(times, "too_long", NULL);
	if (too_long)
		return ww_synth_reject(out, WW_SYNTH_TOO_LONG, too_long);
	out->untimed = ww_json_bool(times, "untimed", 0);
	out->eager_us = ww_json_num(times, "eager_us", 0);
	if (!out->untimed)
		time_bounds(c->o.recipe, out->eager_us, out);
	return WW_OK;
}

enum ww_rc ww_synth_check(struct ww_synth_checker *c, const struct ww_str *source, double input_bytes,
	double value_bytes, uint64_t seed, const json_t *times, struct ww_synth_result *out, struct ww_err *err)
{
	WW_AUTO(ww_task_release) struct ww_task task = { 0 };
	enum ww_rc rc = ww_task_from_text(&task, "candidate", source->p, source->len, err);
	if (rc == WW_ERR_USAGE)
		return ww_synth_reject(out, "not in KernelBench form", err->msg);
	WW_CHECK(rc);
	if (times)
		WW_CHECK(by_record(c, times, out));
	if (*out->reason)
		return WW_OK;
	json_auto_t *mark = NULL;
	c->values = input_bytes + value_bytes;
	WW_CHECK(trace(c, &task, &mark, out, err));
	c->mark = mark;
	if (!out->decided)
		WW_CHECK(look_in_room(c, &task, input_bytes, seed, times, out, err));
	c->mark = NULL;
	return keep_mark(mark, times, out);
}
