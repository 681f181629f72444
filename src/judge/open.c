/* open.c - what a judge and its tasks hold while they are open: processes, memory, facts; and the start of a task's
 * reference worker. */
#include "judge/facts.h"
#include "judge/room.h"
#include "judge/session.h"
#include "judge/spares.h"
#include "judge/cache/graphs.h"
#include "judge/forms/form.h"
#include "judge/quiet.h"
#include "task/forker.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "host/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SMALL_BYTES = 256 << 20, FLUSH_MAX_BYTES = 128 << 20 };

/* ---- The judge --------------------------------------------------------------------------------------------------- */

static enum ww_rc open_flush(struct ww_judge *j, struct ww_err *err)
{
	if (j->opts.target != WW_TARGET_CPU)
		return WW_OK;
	j->flush_bytes = (size_t)(2 * j->facts.device.l3_bytes);
	if (j->flush_bytes > FLUSH_MAX_BYTES)
		j->flush_bytes = FLUSH_MAX_BYTES;
	void *m = mmap(NULL, j->flush_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return ww_err_errno(err, WW_ERR_NOMEM, "no memory to flush the caches");
	/* Large pages where there are any.  A worker that is forked must not share it: every page would fault again at the
	 * next write. */
	madvise(m, j->flush_bytes, MADV_HUGEPAGE);
	madvise(m, j->flush_bytes, MADV_DONTFORK);
	j->flush = m;
	return WW_OK;
}

/* Share of memory for the pool of a task's reference worker: two fifths of a GPU's or an eighth of the machine's,
 * divided by the open tasks. */
static double pool_share(const struct ww_judge *j)
{
	return (j->opts.target == WW_TARGET_CUDA ? 0.4 : 0.125) / (j->opts.open_tasks > 0 ? j->opts.open_tasks : 1);
}

static uint64_t pool_bytes(const struct ww_judge *j)
{
	double all = j->opts.target == WW_TARGET_CUDA ? (double)j->facts.device.memory_bytes
												  : (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
	return (uint64_t)(all * pool_share(j));
}

/* cache: one for each content, since a task can write code there, which its next worker runs. */
static struct ww_ref_opts ref_opts(const struct ww_judge *j, const struct ww_task *task, const char *cache)
{
	return (struct ww_ref_opts){ .target = j->opts.target,
		.device = j->opts.device,
		.threads = j->opts.threads,
		.cache_dir = cache,
		.first = task,
		.worker = j->opts.worker,
		.interrupted = j->opts.interrupted,
		.one_compiler = j->opts.open_tasks > 1, /* the tasks beside each other have the processors busy */
		.connections = j->opts.target == WW_TARGET_CUDA && !getenv("WARPWRIGHT_CUDA_CONNECTIONS"),
		.pool_share = pool_share(j) };
}

/* Where that fails ww_judge_task_open() does it again, and says why. */
static void begin_first(struct ww_judge *j)
{
	struct ww_err ignored = WW_ERR_INIT;
	if (!j->opts.first || j->opts.target != WW_TARGET_CUDA ||
		ww_ref_cache_open(&j->first_cache, j->cache_dir, j->opts.first->id, &ignored) != WW_OK)
		return;
	const struct ww_ref_opts o = ref_opts(j, j->opts.first, j->first_cache.path);
	if (ww_ref_begin(&j->first, &o, &ignored) != WW_OK)
		j->first = NULL;
}

enum ww_rc ww_judge_open(struct ww_judge **out, const struct ww_judge_opts *opts, struct ww_err *err)
{
	struct ww_judge *j = calloc(1, sizeof(*j));
	struct ww_compiler_opts c = {
		.target = opts->target, .max_s = opts->max_compile_s, .interrupted = opts->interrupted
	};
	enum ww_rc rc;

	*out = NULL;
	if (!j)
		return ww_nomem(err);
	j->opts = *opts;
	j->first_cache.fd = -1;
	pthread_mutex_init(&j->lock, NULL);
	pthread_mutex_init(&j->forms_lock, NULL);
	pthread_mutex_init(&j->forker_lock, NULL);
	if (opts->target != WW_TARGET_CPU)
		j->opts.threads = 0;
	else if (j->opts.threads <= 0)
		j->opts.threads = ww_host_cores();
	WW_TRY(ww_fs_cache_dir(j->cache_dir, err));
	WW_TRY(ww_store_open(&j->store, NULL, err));
	WW_TRY(ww_runner_new(
		&j->spares[0], opts->target, opts->device, j->opts.threads, 0, err)); /* gets ready beside the next */
	j->n_spares = 1;
	begin_first(j);
	WW_TRY(ww_builder_open(&j->builder, err));
	ww_builder_keep(j->builder, j->store);
	WW_TRY(ww_runner_facts(j->spares[0], &j->facts, err));
	c.cc = j->facts.device.cc;
	WW_TRY(ww_compiler_open(&j->compiler, &c, err));
	ww_compiler_keep(j->compiler, j->store);
	WW_TRY(ww_judge_device_facts(j, err));
	WW_TRY(open_flush(j, err));
	*out = j;
	return WW_OK;
out:
	ww_judge_close(j);
	return rc;
}

void ww_judge_close(struct ww_judge *j)
{
	if (!j)
		return;
	ww_spare_free_all(j);
	ww_candidates_close(j->candidates);
	ww_ref_close(j->first);
	ww_ref_cache_close(&j->first_cache, WW_REF_CACHE_MAX_BYTES);
	ww_forker_close(j->forker);
	free(j->forker_roots);
	ww_compiler_close(j->compiler);
	ww_builder_close(j->builder);
	ww_store_close(j->store);
	if (j->flush)
		munmap(j->flush, j->flush_bytes);
	pthread_mutex_destroy(&j->lock);
	pthread_mutex_destroy(&j->forms_lock);
	pthread_mutex_destroy(&j->forker_lock);
	free(j);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

void ww_judge_drop_ref(struct ww_judge_task *t)
{
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		ww_form_base_close(t, (enum ww_baseline)b); /* they hold the worker's buffers */
	ww_ref_close(t->ref);
	t->ref = NULL;
	ww_ref_buffers_release(&t->buffers);
	memset(&t->buffers, 0, sizeof(t->buffers));
	for (int b = 0; b < WW_BASE_COUNT; b++)
		t->base[b].prepared = t->clocked[b].prepared = 0;
}

static enum ww_rc share_buffers(struct ww_judge_task *t, struct ww_err *err)
{
	enum ww_rc rc = ww_ref_buffers(t->ref, &t->buffers, err);
	if (rc == WW_OK && t->buffers.n != t->shapes.n_inputs + t->shapes.n_params + t->shapes.n_outputs)
		rc = ww_err_set(
			err, WW_ERR_PROTOCOL, "the reference worker shares %d buffers for another number of tensors", t->buffers.n);
	return rc;
}

static enum ww_rc begin_ref(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	pthread_mutex_lock(&j->lock);
	if (j->first && !strcmp(j->opts.first->id, t->task.id)) {
		t->ref = j->first;
		j->first = NULL;
	}
	pthread_mutex_unlock(&j->lock);
	return t->ref ? WW_OK : ww_ref_begin(&t->ref, &t->ref_opts, err);
}

/* A forked worker has imported PyTorch; it starts the device within its turn, since that keeps others' calls and memory
 * waiting for tens of milliseconds again and again. */
static enum ww_rc load_ref(
	struct ww_judge_task *t, struct ww_turn *turn, struct ww_cached_graph *cached, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	ww_judge_progress(j, "importing PyTorch");
	WW_CHECK(begin_ref(t, err));
	if (turn && t->ref_opts.waits) {
		WW_CHECK(ww_turn_take(turn, j, WW_TURN_LOAD, err));
		ww_judge_progress(j, "starting the device");
	}
	WW_CHECK(ww_ref_ready(t->ref, err));
	if (turn)
		WW_CHECK(ww_turn_take(turn, j, WW_TURN_LOAD, err));
	ww_judge_progress(j, "loading the task");
	return ww_graphs_load(cached, j->store, t->ref, &t->task, ww_session_seed(t), err);
}

/* The first task whose graph the store does not have: what exporting needs is imported once, by the process that forks,
 * and this task's worker is another fork of it. */
static enum ww_rc load_again(
	struct ww_judge_task *t, struct ww_turn *turn, struct ww_cached_graph *cached, struct ww_err *err)
{
	struct ww_err why = WW_ERR_INIT;
	ww_judge_drop_ref(t);
	if (turn)
		ww_turn_drop(turn);
	ww_judge_progress(t->judge, "importing torch.export");
	if (ww_forker_import(t->ref_opts.forker, &why) != WW_OK)
		ww_log(WW_LOG_INFO, "each reference worker imports torch.export by itself: %s", why.msg);
	return load_ref(t, turn, cached, err);
}

enum ww_rc ww_judge_start_ref(struct ww_judge_task *t, struct ww_turn *turn, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	struct ww_cached_graph cached = { .graph = t->graph };
	struct ww_forker *forker = t->ref_opts.forker;
	int exports = forker && ww_forker_exports(forker);
	enum ww_rc rc;

	WW_TRY(load_ref(t, turn, &cached, err));
	if (!cached.graph && forker && !exports)
		WW_TRY(load_again(t, turn, &cached, err));
	if (turn && !cached.graph && !forker) /* a forked worker has imported what exporting needs */
		ww_turn_drop(turn);
	ww_judge_progress(j, "exporting the graph");
	WW_TRY(ww_graphs_graph(&cached, t->ref, err));
	if (!t->shapes.owner)
		WW_TRY(ww_ref_shapes(cached.graph, &t->shapes, err));
	if (turn)
		WW_TRY(ww_turn_take(turn, j, WW_TURN_LOAD, err));
	WW_TRY(ww_graphs_keep(&cached, j->store, t->ref, err));
	WW_TRY(share_buffers(t, err));
out:
	t->graph = cached.graph;
	if (turn)
		ww_turn_drop(turn);
	if (rc != WW_OK)
		ww_judge_drop_ref(t);
	return rc;
}

/* While a task is opened another may be measured: on cuda the steps that use the GPU wait for that, on cpu all steps
 * do. */
static enum ww_rc start_first_ref(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_turn turn = { 0 };
	int cpu = t->judge->opts.target == WW_TARGET_CPU;
	if (cpu)
		ww_work_begin();
	double nap_s = 0;
	enum ww_rc rc = ww_judge_start_ref(t, cpu ? NULL : &turn, err);
	while (ww_room_is_worth_waiting(t->judge, rc)) {
		WW_TRY(ww_room_wait(t->judge, &nap_s, err));
		rc = ww_judge_start_ref(t, cpu ? NULL : &turn, err);
	}
out:
	if (cpu)
		ww_work_end();
	return rc;
}

/* The process that this task's worker is forked from, started when the first of several tasks is opened; NULL: none.  A
 * task with other import folders than the first gets a worker of its own. */
static struct ww_forker *forker_for(struct ww_judge *j, const struct ww_task *task, const char *caches)
{
	const char *roots = task->roots ? task->roots : "";
	struct ww_err why = WW_ERR_INIT;
	if (j->opts.open_tasks < 2)
		return NULL;
	WW_LOCKED(&j->forker_lock);
	if (!j->forker_roots && (j->forker_roots = strdup(roots)) != NULL) {
		const struct ww_forker_opts o = { .target = j->opts.target,
			.caches = caches,
			.roots = roots,
			.exports = j->opts.target == WW_TARGET_CUDA, /* a second worker would start the device once more */
			.compiles = (j->opts.baselines & (1u << WW_BASE_COMPILE)) != 0,
			.worker = j->opts.worker,
			.interrupted = j->opts.interrupted };
		ww_judge_progress(j, "importing PyTorch");
		if (ww_forker_open(&j->forker, &o, &why) != WW_OK)
			ww_log(WW_LOG_INFO, "each reference worker imports PyTorch by itself: %s", why.msg);
	}
	return j->forker_roots && !strcmp(j->forker_roots, roots) ? j->forker : NULL;
}

static uint64_t shared_bytes(const struct ww_ref_buffers *b)
{
	uint64_t sum = 0;
	for (int i = 0; i < b->n; i++)
		sum += b->b[i].bytes;
	return sum;
}

static void set_facts(struct ww_judge_task *t)
{
	const json_t *totals = json_object_get(t->graph, "totals");
	t->facts = (struct ww_facts){ .inputs = t->shapes.inputs,
		.params = t->shapes.params,
		.outputs = t->shapes.outputs,
		.n_inputs = t->shapes.n_inputs,
		.n_params = t->shapes.n_params,
		.n_outputs = t->shapes.n_outputs,
		.scalars = t->shapes.scalars,
		.n_scalars = t->shapes.n_scalars,
		.device = t->judge->facts.device };
	snprintf(t->torch_version, sizeof(t->torch_version), "%s", ww_ref_info(t->ref)->torch);
	t->heavy = shared_bytes(&t->buffers) > SMALL_BYTES;
	t->flops = json_number_value(json_object_get(totals, "flops"));
	t->bytes = json_number_value(json_object_get(totals, "bytes"));
	t->matrix_flops = json_number_value(json_object_get(totals, "matrix_flops"));
}

enum ww_rc ww_judge_task_open(
	struct ww_judge *j, const struct ww_task *task, struct ww_judge_task **out, struct ww_err *err)
{
	struct ww_judge_task *t = calloc(1, sizeof(*t));
	char torch_cache[PATH_MAX];
	enum ww_rc rc;

	*out = NULL;
	if (!t)
		return ww_nomem(err);
	t->judge = j;
	t->ref_cache.fd = -1;
	t->rule = j->opts.rule;
	ww_room_add_tasks(j, 1);
	t->degenerate[0] = t->degenerate[1] = -1;
	pthread_mutex_init(&t->lock, NULL);
	WW_TRY(ww_task_copy(&t->task, task, err));
	WW_TRY(ww_fs_join(torch_cache, j->cache_dir, "torch", err));
	WW_TRY(ww_ref_cache_open(&t->ref_cache, j->cache_dir, task->id, err));
	t->ref_opts = ref_opts(j, &t->task, t->ref_cache.path);
	t->ref_opts.forker = forker_for(j, &t->task, torch_cache);
	t->ref_opts.waits = t->ref_opts.forker && j->opts.target == WW_TARGET_CUDA;
	WW_TRY(start_first_ref(t, err));
	set_facts(t);
	if (!j->opts.seed)
		WW_TRY(ww_pool_open(&t->pool, &t->shapes, j->opts.target, j->opts.rule, pool_bytes(j), err));
	*out = t;
	return WW_OK;
out:
	ww_judge_task_close(t);
	return rc;
}

void ww_judge_task_close(struct ww_judge_task *t)
{
	if (!t)
		return;
	ww_judge_drop_ref(t);
	ww_ref_close(t->beside);
	ww_ref_cache_close(&t->ref_cache, WW_REF_CACHE_MAX_BYTES);
	ww_room_add_tasks(t->judge, -1);
	ww_ref_shapes_release(&t->shapes);
	json_decref(t->graph);
	ww_task_release(&t->task);
	ww_pool_close(t->pool);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

void ww_judge_task_rest(struct ww_judge_task *t)
{
	WW_LOCKED(&t->lock);
	ww_judge_drop_ref(t);
	ww_ref_close(t->beside);
	t->beside = NULL;
	ww_spare_free_all(t->judge);
}

void ww_judge_task_retire(struct ww_judge_task *t)
{
	struct ww_turn turn = { 0 };
	struct ww_err ignored = WW_ERR_INIT; /* interrupted: it is closed at once */
	if (t->judge->opts.target == WW_TARGET_CUDA)
		(void)!ww_turn_take(&turn, t->judge, WW_TURN_LOAD, &ignored);
	ww_judge_drop_ref(t);
	ww_turn_drop(&turn);
	ww_judge_task_close(t);
}

void ww_judge_task_rule(struct ww_judge_task *t, enum ww_rule rule)
{
	if (rule == t->rule)
		return;
	t->rule = rule;
	ww_pool_close(t->pool); /* its draws are of the kinds that the other rule compares */
	t->pool = NULL;
}

const json_t *ww_judge_task_graph(const struct ww_judge_task *t) { return t->graph; }

const char *ww_judge_task_device(const struct ww_judge_task *t) { return t->judge->facts.uuid; }

int ww_judge_task_ordinal(const struct ww_judge_task *t) { return t->judge->opts.device; }
const struct ww_facts *ww_judge_task_facts(const struct ww_judge_task *t) { return &t->facts; }
