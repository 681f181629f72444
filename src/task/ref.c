/* ref.c - the reference worker's requests, one function each (ref.h).
 *
 * Layout of every wrapper: build the request, ask(), read the members of the answer by name, release everything
 * (ww_ref_finish()).
 */
#include "task/ref.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/target.h"
#include "base/time.h"
#include "host/timed_call.h"
#include "task/ask.h"
#include "task/graph/check.h"
#include "task/worker.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char what[] = WW_REF_ANSWER;
static const double START_S = 120, QUIT_S = 1, SETTLE_S = 1;

static double request_s(const struct ww_ref *r) { return r->opts.max_request_s > 0 ? r->opts.max_request_s : 300; }

static enum ww_rc ask(struct ww_ref *r, json_t *q, double seconds, json_t **body, struct ww_err *err)
{
	return ww_ref_ask(r, q, NULL, 0, seconds, body, err);
}

/* ---- Opening and closing */

static void read_text(char *out, size_t size, const json_t *o, const char *key)
{
	snprintf(out, size, "%s", ww_json_str(o, key, ""));
}

void ww_ref_device(const json_t *o, enum ww_target target, struct ww_device *d)
{
	*d = (struct ww_device){ .target = (int)target,
		.threads = (int)ww_json_int(o, "threads", 0),
		.vector_bytes = (int)ww_json_int(o, "vector_bytes", 0),
		.cc = (int)ww_json_int(o, "cc", 0),
		.sm_count = (int)ww_json_int(o, "sm_count", 0),
		.warp_size = (int)ww_json_int(o, "warp_size", 0),
		.max_threads_per_block = (int)ww_json_int(o, "max_threads_per_block", 0),
		.max_threads_per_sm = (int)ww_json_int(o, "max_threads_per_sm", 0),
		.regs_per_sm = (int)ww_json_int(o, "regs_per_sm", 0),
		.shared_per_block_bytes = ww_json_int(o, "shared_per_block_bytes", 0),
		.shared_per_sm_bytes = ww_json_int(o, "shared_per_sm_bytes", 0),
		.l1_bytes = ww_json_int(o, "l1_bytes", 0),
		.l2_bytes = ww_json_int(o, "l2_bytes", 0),
		.l3_bytes = ww_json_int(o, "l3_bytes", 0),
		.memory_bytes = ww_json_int(o, "memory_bytes", 0),
		.memory_bytes_per_s = ww_json_num(o, "memory_bytes_per_s", 0) };
}

/* The compiled kernels of comparisons (src/judge/compare.cu), open; -1 for the cpu target, or if this build has none.
 */
static int compare_kernels(const struct ww_ref *r)
{
	char path[PATH_MAX];
	struct ww_err ignored = WW_ERR_INIT;
	if (r->opts.target != WW_TARGET_CUDA || ww_fs_plugin("warpwright-compare.fatbin", path, &ignored) != WW_OK)
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC);
}

static enum ww_rc say_hello(struct ww_ref *r, struct ww_err *err)
{
	int kernels = compare_kernels(r);
	json_auto_t *q = json_pack("{s:s, s:s, s:i, s:i, s:b, s:b, s:i, s:b, s:i, s:I, s:f, s:s}", "request", "hello",
		"target", ww_target_name(r->opts.target), "device", r->opts.device, "threads", r->opts.threads, "bandwidth",
		r->opts.bandwidth, "one_compiler", r->opts.one_compiler, "warm_calls", r->opts.warm_calls, "examines",
		r->opts.examines, "connections", r->opts.connections, "pool_bytes", (json_int_t)r->opts.pool_bytes,
		"pool_share", r->opts.pool_share, "cache_dir", r->cache_dir ? r->cache_dir : r->worker.dir.path);
	enum ww_rc rc = q ? WW_OK : ww_nomem(err);
	r->greeting_deadline_ns = ww_deadline_ns(START_S);
	if (rc == WW_OK)
		rc = ww_worker_send(&r->worker, q, &kernels, kernels >= 0, r->greeting_deadline_ns, err);
	r->greeting = rc == WW_OK;
	ww_fd_close(&kernels);
	return rc;
}

enum ww_rc ww_ref_ready(struct ww_ref *r, struct ww_err *err)
{
	json_t *device, *versions;
	int *fds = NULL, n = 0;
	enum ww_rc rc = WW_OK;
	if (r->opts.waits && !r->hello && !r->greeting)
		WW_CHECK(say_hello(r, err));
	if (!r->greeting)
		return WW_OK;
	r->greeting = 0;
	WW_TRY(ww_worker_receive(&r->worker, &r->hello, &fds, &n, r->greeting_deadline_ns, err));
	WW_TRY(ww_ref_check_answer(r, &r->hello, err));
	WW_TRY(ww_json_get_object(r->hello, "device", what, &device, err));
	WW_TRY(ww_json_get_object(r->hello, "versions", what, &versions, err));
	struct ww_ref_info *i = &r->info;
	read_text(i->python, sizeof(i->python), versions, "python");
	read_text(i->torch, sizeof(i->torch), versions, "torch");
	read_text(i->cuda, sizeof(i->cuda), versions, "cuda");
	read_text(i->cudnn, sizeof(i->cudnn), versions, "cudnn");
	read_text(i->cublas, sizeof(i->cublas), versions, "cublas");
	read_text(i->driver, sizeof(i->driver), versions, "driver");
	read_text(i->device_name, sizeof(i->device_name), device, "name");
	read_text(i->device_uuid, sizeof(i->device_uuid), device, "uuid");
	ww_ref_device(device, r->opts.target, &i->device);
out:
	ww_ref_drop_fds(&fds, &n);
	return rc;
}

/* What messages call a task. */
static const char *file_of(const struct ww_task *task, char name[300])
{
	snprintf(name, 300, "%.290s.py", task->name);
	return name;
}

json_t *ww_ref_task_request(const char *what_for, const struct ww_task *task)
{
	char file[300];
	json_t *files = json_array();
	for (int i = 0; i < task->n_files; i++)
		json_array_append_new(files, json_string(task->files[i].name));
	return json_pack("{s:s, s:s#, s:s, s:s, s:s, s:o}", "request", what_for, "source", task->source, task->source_bytes,
		"name", file_of(task, file), "id", task->id, "roots", task->roots ? task->roots : "", "files", files);
}

static enum ww_rc check(struct ww_ref *r, const struct ww_task *task, struct ww_err *err)
{
	json_auto_t *b = NULL;
	return ask(r, ww_ref_task_request("check", task), START_S, &b, err);
}

enum ww_rc ww_ref_begin(struct ww_ref **out, const struct ww_ref_opts *opts, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	*out = NULL;
	struct ww_ref *r;
	WW_CHECK(WW_NEW(r, 1, err));
	r->opts = *opts;
	r->go_fd = r->done_fd = -1;
	r->worker = WW_WORKER_NONE;
	r->opts.python = r->opts.worker = NULL; /* borrowed for the start only */
	r->opts.first = r->opts.visible = NULL;
	if (opts->cache_dir && !(r->cache_dir = strdup(opts->cache_dir)))
		WW_TRY(ww_nomem(err));
	r->opts.cache_dir = r->cache_dir;
	WW_TRY(ww_worker_start(&r->worker, opts, err));
	r->worker.cache_dir = r->cache_dir;
	if (opts->first)
		WW_TRY(check(r, opts->first, err));
	if (!opts->text_only && !opts->waits)
		WW_TRY(say_hello(r, err));
	*out = r;
out:
	if (rc != WW_OK)
		ww_ref_close(r);
	return rc;
}

enum ww_rc ww_ref_open(struct ww_ref **out, const struct ww_ref_opts *opts, struct ww_err *err)
{
	WW_CHECK(ww_ref_begin(out, opts, err));
	enum ww_rc rc = ww_ref_ready(*out, err);
	if (rc != WW_OK) {
		ww_ref_close(*out);
		*out = NULL;
	}
	return rc;
}

void ww_ref_close(struct ww_ref *r)
{
	if (!r)
		return;
	struct ww_err ignored = WW_ERR_INIT;
	json_t *body = NULL, *q = json_pack("{s:s}", "request", "quit");
	int *fds = NULL, n = 0;
	uint64_t by = ww_deadline_ns(QUIT_S);
	if (q && !r->worker.dead && !r->armed && !r->compiling && (r->hello || r->opts.text_only) &&
		ww_worker_send(&r->worker, q, NULL, 0, by, &ignored) == WW_OK)
		(void)!ww_worker_receive(&r->worker, &body, &fds, &n, by, &ignored);
	ww_ref_drop_fds(&fds, &n);
	json_decref(q);
	json_decref(body);
	ww_worker_stop(&r->worker);
	ww_fd_close(&r->go_fd);
	ww_fd_close(&r->done_fd);
	json_decref(r->hello);
	free(r->cache_dir);
	free(r);
}

int ww_ref_alive(const struct ww_ref *r) { return !r->worker.dead; }
pid_t ww_ref_pid(const struct ww_ref *r) { return r->worker.proc.pid; }
const char *ww_ref_log(struct ww_ref *r) { return ww_worker_log(&r->worker); }
const struct ww_ref_info *ww_ref_info(const struct ww_ref *r) { return &r->info; }
const json_t *ww_ref_hello(const struct ww_ref *r) { return r->hello; }

enum ww_rc ww_ref_peaks(struct ww_ref *r, struct ww_ref_peaks *out, struct ww_err *err)
{
	json_t *b;
	WW_CHECK(ask(r, json_pack("{s:s}", "request", "peaks"), request_s(r), &b, err));
	*out = (struct ww_ref_peaks){ ww_json_num(b, "fp32_flops", 0), ww_json_num(b, "tf32_flops", 0),
		ww_json_num(b, "fp16_flops", 0), ww_json_num(b, "bf16_flops", 0), ww_json_num(b, "memory_bytes_per_s", 0) };
	return ww_ref_finish(r, b, WW_OK, err);
}

/* ---- The task */

enum ww_rc ww_ref_load(struct ww_ref *r, const struct ww_task *task, uint64_t seed, struct ww_err *err)
{
	int used;
	return ww_ref_load_with_graph(r, task, seed, NULL, &used, err);
}

enum ww_rc ww_ref_load_with_graph(
	struct ww_ref *r, const struct ww_task *task, uint64_t seed, json_t *graph, int *used, struct ww_err *err)
{
	json_t *b;
	double seconds = r->opts.max_load_s > 0 ? r->opts.max_load_s : 120;
	char name[300];
	const char *file = file_of(task, name);
	*used = 0;
	r->has_uneven = -1;
	json_t *q = ww_ref_task_request("load", task);
	if (q) {
		json_object_set_new(q, "seed", json_integer((json_int_t)(seed & INT64_MAX)));
		json_object_set(q, "graph", graph ? graph : json_null());
	}
	enum ww_rc rc = ask(r, q, seconds, &b, err);
	if (rc == WW_OK) {
		*used = ww_json_bool(b, "known", 0);
		return ww_ref_finish(r, b, WW_OK, err);
	}
	/* What ends the worker here is the task's doing, unless another process killed it. */
	int by_kill = rc == WW_ERR_WORKER && WIFSIGNALED(r->worker.status) && WTERMSIG(r->worker.status) == SIGKILL;
	if (rc == WW_ERR_TIMEOUT)
		return ww_err_set(err, WW_ERR_TASK, "%s did not load and run once within %.0f s", file, seconds);
	if (rc == WW_ERR_LIMIT && r->worker.dead)
		return ww_err_set(err, WW_ERR_TASK, "%s used more than %llu MiB of memory while it was loaded", file,
			(unsigned long long)(r->worker.max_resident_bytes >> 20));
	if ((rc == WW_ERR_WORKER && !by_kill && r->worker.dead) || rc == WW_ERR_PROTOCOL) {
		err->rc = WW_ERR_TASK;
		return ww_err_wrap(err, "%s ended the process that loaded it", file);
	}
	return rc;
}

enum ww_rc ww_ref_graph(struct ww_ref *r, json_t **out, struct ww_err *err)
{
	json_auto_t *graph = NULL;
	*out = NULL;
	WW_CHECK(ask(r, json_pack("{s:s}", "request", "graph"), request_s(r), &graph, err));
	json_object_del(graph, "ok");
	if (ww_graph_check(graph, err) != WW_OK)
		return ww_err_wrap(err, "the task's graph is not one that PyTorch makes");
	*out = json_incref(graph);
	return WW_OK;
}

enum ww_rc ww_ref_tf32(struct ww_ref *r, json_t *graph, int *all, struct ww_err *err)
{
	json_auto_t *b = NULL;
	const json_t *answers, *is;
	json_t *node;
	size_t i;
	*all = 1;
	WW_CHECK(ask(r, json_pack("{s:s}", "request", "tf32"), request_s(r), &b, err));
	answers = json_object_get(b, "tf32");
	json_array_foreach(json_object_get(graph, "nodes"), i, node) {
		if (!(is = json_object_get(answers, ww_json_str(node, "name", ""))))
			continue;
		*all &= json_is_boolean(is);
		if (json_is_boolean(is) && json_object_set_new(node, "tf32", json_boolean(json_is_true(is))))
			return ww_nomem(err);
	}
	return WW_OK;
}

static enum ww_rc read_sizes(struct ww_ref_buffers *out, const json_t *rows, struct ww_err *err)
{
	int n = (int)json_array_size(rows);
	WW_CHECK(WW_NEW(out->b, n, err));
	for (out->n = 0; out->n < n; out->n++) {
		const json_t *row = json_array_get(rows, (size_t)out->n);
		int64_t bytes, alloc;
		WW_CHECK(ww_json_get_int(row, "bytes", what, &bytes, err));
		WW_CHECK(ww_json_get_int(row, "alloc_bytes", what, &alloc, err));
		if (bytes < 0 || alloc < bytes || alloc == 0)
			return ww_err_set(err, WW_ERR_PROTOCOL, "%s has a buffer of impossible size", what);
		out->b[out->n] = (struct ww_ref_buffer){ -1, (uint64_t)bytes, (uint64_t)alloc, ww_json_bool(row, "apart", 0) };
	}
	return WW_OK;
}

/* cpu: memory that we make, since the worker may not: a task could hide memory in such files. */
static enum ww_rc give_memory(struct ww_ref *r, struct ww_ref_buffers *b, struct ww_err *err)
{
	json_auto_t *body = NULL;
	ww_auto_free int *fds = malloc(((size_t)b->n + 1) * sizeof(*fds));
	if (!fds)
		return ww_nomem(err);
	for (int i = 0; i < b->n; i++) {
		fds[i] = b->b[i].fd = memfd_create("warpwright", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fds[i] < 0 || ftruncate(fds[i], (off_t)b->b[i].alloc_bytes) < 0)
			return ww_err_errno(err, WW_ERR_ROOM, "cannot make a shared buffer");
	}
	return ww_ref_ask_fds(r, json_pack("{s:s}", "request", "buffers"), fds, b->n, request_s(r), &body, NULL, NULL, err);
}

enum ww_rc ww_ref_buffers(struct ww_ref *r, struct ww_ref_buffers *out, struct ww_err *err)
{
	json_t *b, *rows;
	int *fds = NULL, n = 0, cpu = r->opts.target == WW_TARGET_CPU;
	memset(out, 0, sizeof(*out));
	enum ww_rc rc = ww_ref_ask_fds(
		r, json_pack("{s:s}", "request", "buffers"), NULL, 0, request_s(r), &b, &fds, &n, err);
	if (rc != WW_OK)
		return rc;
	WW_TRY(ww_json_get_array(b, "buffers", what, &rows, err));
	WW_TRY(read_sizes(out, rows, err));
	if (n != (cpu ? 0 : out->n))
		WW_TRY(ww_err_set(err, WW_ERR_PROTOCOL, "%s names %d buffers and brings %d descriptors", what, out->n, n));
	for (int i = 0; i < n; i++)
		out->b[i].fd = fds[i];
	n = 0;
	if (cpu && out->n)
		WW_TRY(give_memory(r, out, err));
out:
	ww_ref_drop_fds(&fds, &n);
	if (rc != WW_OK)
		ww_ref_buffers_release(out);
	return ww_ref_finish(r, b, rc, err);
}

void ww_ref_buffers_release(struct ww_ref_buffers *b)
{
	for (int i = 0; i < b->n; i++)
		ww_fd_close(&b->b[i].fd);
	free(b->b);
	memset(b, 0, sizeof(*b));
}

static json_t *draw_request(const struct ww_ref_draw *d)
{
	static const char *const params[] = { "redraw", "init", "keep" }, *const lots[] = { "", "plain", "uneven" };
	return json_pack("{s:s, s:I, s:f, s:f, s:s, s:s, s:b, s:b, s:s}", "request", "draw", "seed",
		(json_int_t)(d->seed & INT64_MAX), "scale", d->scale, "shift", d->shift, "params", params[d->params], "keep",
		d->keep ? ww_rule_name(d->rule) : "", "values", d->values, "later", d->later, "lot", lots[d->lot]);
}

static void note_uneven(struct ww_ref *r, const struct ww_ref_draw *d, const json_t *answer)
{
	if (d && d->lot != WW_REF_LOT_NONE)
		r->has_uneven = json_is_true(json_object_get(answer, "has_uneven"));
}

int ww_ref_has_uneven(const struct ww_ref *r) { return r->has_uneven; }

enum ww_rc ww_ref_draw(struct ww_ref *r, const struct ww_ref_draw *d, struct ww_err *err)
{
	json_t *b;
	WW_CHECK(ask(r, draw_request(d), request_s(r), &b, err));
	note_uneven(r, d, b);
	return ww_ref_finish(r, b, WW_OK, err);
}

/* ---- References */

static void read_position(const json_t *o, int64_t index[WW_MAX_RANK], int *rank, double *expected, double *found)
{
	const json_t *at = json_object_get(o, "index");
	*expected = ww_json_num(o, "expected", NAN);
	*found = ww_json_num(o, "found", NAN);
	int n = (int)json_array_size(at);
	*rank = n < WW_MAX_RANK ? n : WW_MAX_RANK;
	for (int i = 0; i < *rank; i++)
		index[i] = json_integer_value(json_array_get(at, (size_t)i));
}

static enum ww_rc read_diff(const json_t *o, struct ww_ref_diff *d, struct ww_err *err)
{
	WW_CHECK(ww_json_get_bool(o, "pass", what, &d->pass, err));
	WW_CHECK(ww_json_get_num(o, "err_rel", what, &d->err_rel, err));
	WW_CHECK(ww_json_get_num(o, "err_abs", what, &d->err_abs, err));
	WW_CHECK(ww_json_get_num(o, "e_rel", what, &d->e_rel, err));
	WW_CHECK(ww_json_get_num(o, "e_max", what, &d->e_max, err));
	WW_CHECK(ww_json_get_num(o, "rms", what, &d->rms, err));
	WW_CHECK(ww_json_get_num(o, "limit_rel", what, &d->limit_rel, err));
	WW_CHECK(ww_json_get_num(o, "limit_abs", what, &d->limit_abs, err));
	WW_CHECK(ww_json_get_int(o, "numel", what, &d->numel, err));
	WW_CHECK(ww_json_get_int(o, "violations", what, &d->violations, err));
	WW_CHECK(ww_json_get_int(o, "nonfinite", what, &d->nonfinite, err));
	read_position(json_object_get(o, "first"), d->first, &d->rank, &d->first_expected, &d->first_found);
	read_position(json_object_get(o, "worst"), d->worst, &d->rank, &d->worst_expected, &d->worst_found);
	read_text(d->pattern, sizeof(d->pattern), o, "pattern");
	read_text(d->looks, sizeof(d->looks), o, "looks");
	read_text(d->part, sizeof(d->part), o, "part");
	return WW_OK;
}

static enum ww_rc read_reference(const json_t *o, struct ww_ref_compare *out, struct ww_err *err)
{
	const char *dtype;
	WW_CHECK(ww_json_get_str(o, "dtype", what, &dtype, err));
	out->fp64 = !strcmp(dtype, "float64");
	return ww_json_get_bool(o, "finite", what, &out->finite, err);
}

static enum ww_rc read_ties(const json_t *o, struct ww_ref_compare *out, struct ww_err *err)
{
	WW_CHECK(ww_json_get_int(o, "runs", what, &out->ties.runs, err));
	WW_CHECK(ww_json_get_num(o, "seconds", what, &out->ties.seconds, err));
	return ww_json_get_bool(o, "short", what, &out->ties_short, err);
}

enum ww_rc ww_ref_compare(struct ww_ref *r, enum ww_rule rule, int if_finite, const struct ww_ref_draw *next,
	const struct ww_ref_ties *may, struct ww_ref_compare *out, struct ww_err *err)
{
	json_t *b, *rows;
	memset(out, 0, sizeof(*out));
	enum ww_rc rc = ask(r,
		json_pack("{s:s, s:s, s:b, s:{s:I, s:f}, s:o*}", "request", "compare", "rule", ww_rule_name(rule), "if_finite",
			if_finite, "near_ties", "runs", (json_int_t)may->runs, "seconds", may->seconds, "next",
			next ? draw_request(next) : NULL),
		request_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	WW_TRY(read_reference(json_object_get(b, "reference"), out, err));
	WW_TRY(ww_json_get_bool(b, "pass", what, &out->pass, err));
	WW_TRY(ww_json_get_bool(b, "drawn", what, &out->drawn, err));
	note_uneven(r, out->drawn ? next : NULL, b);
	WW_TRY(read_ties(json_object_get(b, "near_ties"), out, err));
	WW_TRY(ww_json_get_array(b, "outputs", what, &rows, err));
	for (size_t i = 0; i < json_array_size(rows) && i < WW_MAX_OUTPUTS; i++, out->n_outputs++)
		WW_TRY(read_diff(json_array_get(rows, i), &out->outputs[i], err));
out:
	return ww_ref_finish(r, b, rc, err);
}

enum ww_rc ww_ref_degenerate(
	struct ww_ref *r, uint64_t seed_a, uint64_t seed_b, struct ww_ref_degenerate *out, struct ww_err *err)
{
	json_t *b;
	memset(out, 0, sizeof(*out));
	enum ww_rc rc = ask(r,
		json_pack("{s:s, s:I, s:I}", "request", "degenerate", "seed_a", (json_int_t)(seed_a & INT64_MAX), "seed_b",
			(json_int_t)(seed_b & INT64_MAX)),
		request_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	for (int i = 0; i < 2; i++) {
		json_t *o;
		WW_TRY(ww_json_get_object(b, ww_rule_name((enum ww_rule)i), what, &o, err));
		WW_TRY(ww_json_get_bool(o, "degenerate", what, &out->rule[i].degenerate, err));
		WW_TRY(ww_json_get_bool(o, "independent", what, &out->rule[i].independent, err));
		WW_TRY(ww_json_get_bool(o, "constant", what, &out->rule[i].constant, err));
		WW_TRY(ww_json_get_bool(o, "zero", what, &out->rule[i].zero, err));
	}
out:
	return ww_ref_finish(r, b, rc, err);
}

/* ---- Baselines */

const char *ww_rule_name(enum ww_rule r) { return r == WW_RULE_STRICT ? "strict" : r == WW_RULE_PAPER ? "paper" : "?"; }

const char *ww_baseline_name(enum ww_baseline b)
{
	static const char *const names[] = { "eager", "compile", "autotune", "solution" };
	return (size_t)b < WW_ARRAY_LEN(names) ? names[b] : "?";
}

static double compile_s(const struct ww_ref *r) { return r->opts.max_compile_s > 0 ? r->opts.max_compile_s : 600; }

enum ww_rc ww_ref_compile_ahead(struct ww_ref *r, enum ww_baseline which, struct ww_err *err)
{
	json_auto_t *q = json_pack("{s:s, s:s}", "request", "compile_ahead", "which", ww_baseline_name(which));
	WW_CHECK(q ? WW_OK : ww_nomem(err));
	WW_CHECK(ww_ref_await(r, err));
	r->compiling_deadline_ns = ww_deadline_ns(compile_s(r));
	WW_CHECK(ww_worker_send(&r->worker, q, NULL, 0, r->compiling_deadline_ns, err));
	r->compiling = 1;
	return WW_OK;
}

int ww_ref_compiling(const struct ww_ref *r) { return r->compiling; }

enum ww_rc ww_ref_await(struct ww_ref *r, struct ww_err *err)
{
	json_auto_t *body = NULL;
	int *fds = NULL, n = 0;
	if (!r->compiling)
		return WW_OK;
	r->compiling = 0;
	enum ww_rc rc = ww_worker_receive(&r->worker, &body, &fds, &n, r->compiling_deadline_ns, err);
	ww_ref_drop_fds(&fds, &n);
	return rc;
}

enum ww_rc ww_ref_crawl(struct ww_ref *r, const char *part, json_t **rows, struct ww_err *err)
{
	json_t *b, *found;
	WW_CHECK(ask(r, json_pack("{s:s, s:s}", "request", "crawl", "part", part), request_s(r), &b, err));
	enum ww_rc rc = ww_json_get_array(b, "rows", what, &found, err);
	*rows = rc == WW_OK ? json_incref(found) : NULL;
	return ww_ref_finish(r, b, rc, err);
}

enum ww_rc ww_ref_share(struct ww_ref *r, int gate_fd, int lock_fd, struct ww_err *err)
{
	json_auto_t *b = NULL;
	return ww_ref_ask(r, json_pack("{s:s}", "request", "share"), (int[]){ gate_fd, lock_fd }, 2, request_s(r), &b, err);
}

enum ww_rc ww_ref_examine(struct ww_ref *r, uint64_t seed, enum ww_examine stage, const char *compiler,
	double memory_bytes, json_t **out, struct ww_err *err)
{
	const char *reason;
	json_t *q = json_pack("{s:s, s:I, s:s, s:s, s:f}", "request", "examine", "seed", (json_int_t)seed, "stage",
		stage == WW_EXAMINE_TEXT          ? "text"
			: stage == WW_EXAMINE_EAGER   ? "eager"
			: stage == WW_EXAMINE_COMPILE ? "compile"
										  : "end",
		"compiler", compiler, "memory_bytes", memory_bytes);
	WW_CHECK(ask(r, q, stage < WW_EXAMINE_COMPILE ? request_s(r) : compile_s(r), out, err));
	enum ww_rc rc = ww_json_get_str(*out, "reason", what, &reason, err);
	if (rc == WW_OK)
		return rc;
	rc = ww_ref_finish(r, *out, rc, err);
	*out = NULL;
	return rc;
}

enum ww_rc ww_ref_baseline(struct ww_ref *r, enum ww_baseline which, struct ww_ref_baseline *out, struct ww_err *err)
{
	json_t *b;
	memset(out, 0, sizeof(*out));
	enum ww_rc rc = ask(
		r, json_pack("{s:s, s:s}", "request", "baseline", "which", ww_baseline_name(which)), compile_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	WW_TRY(ww_json_get_bool(b, "available", what, &out->available, err));
	WW_TRY(ww_json_get_num(b, "seconds", what, &out->seconds, err));
	read_text(out->reason, sizeof(out->reason), b, "reason");
	read_text(out->device_method, sizeof(out->device_method), b, "device_method");
	out->several_streams = ww_json_bool(b, "several_streams", 0);
out:
	return ww_ref_finish(r, b, rc, err);
}

/* The n numbers of a reply's list "us". */
static enum ww_rc read_us(const json_t *b, double *us, int n, struct ww_err *err)
{
	json_t *times;
	WW_CHECK(ww_json_get_array(b, "us", what, &times, err));
	if ((int)json_array_size(times) != n)
		return ww_err_set(err, WW_ERR_PROTOCOL, "%s has %zu times, %d were asked for", what, json_array_size(times), n);
	for (int i = 0; i < n; i++)
		us[i] = ww_json_to_real(json_array_get(times, (size_t)i), NAN);
	return WW_OK;
}

enum ww_rc ww_ref_time(struct ww_ref *r, enum ww_baseline which, enum ww_ref_mode mode, int n, int flush_l2, double *us,
	struct ww_err *err)
{
	json_t *b;
	enum ww_rc rc = ask(r,
		json_pack("{s:s, s:s, s:s, s:i, s:b}", "request", "time", "which", ww_baseline_name(which), "mode",
			mode == WW_REF_CALL ? "call" : "device", "n", n, "flush_l2", flush_l2),
		request_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	return ww_ref_finish(r, b, read_us(b, us, n, err), err);
}

/* The reply of an arm that was refused or that has run; n: how many times it brings. */
static enum ww_rc arm_reply(struct ww_ref *r, double *us, int n, struct ww_err *err)
{
	json_t *body = NULL;
	int *fds = NULL, n_fds = 0;
	enum ww_rc rc = ww_worker_receive(&r->worker, &body, &fds, &n_fds, r->armed_deadline_ns, err);
	ww_ref_drop_fds(&fds, &n_fds);
	if (rc == WW_OK)
		rc = ww_ref_check_answer(r, &body, err);
	if (rc == WW_OK && n)
		rc = read_us(body, us, n, err);
	json_decref(body);
	r->armed = 0;
	ww_fd_close(&r->go_fd);
	ww_fd_close(&r->done_fd);
	return rc;
}

/* One byte of the worker's: `expected`, or its reply, which then is an error. */
static enum ww_rc arm_byte(struct ww_ref *r, char expected, struct ww_err *err)
{
	int ready;
	char byte = 0;
	enum ww_rc rc = ww_worker_wait(&r->worker, r->done_fd, &ready, r->armed_deadline_ns, err);
	if (rc == WW_OK && ready == r->done_fd && read(r->done_fd, &byte, 1) == 1 && byte == expected)
		return WW_OK;
	if (rc == WW_OK && (rc = arm_reply(r, NULL, 0, err)) == WW_OK)
		rc = ww_err_set(err, WW_ERR_PROTOCOL, "%s came before the call was made", what);
	r->armed = 0;
	ww_fd_close(&r->go_fd);
	ww_fd_close(&r->done_fd);
	return rc;
}

/* Consumes q (NULL: out of memory). */
static enum ww_rc arm(struct ww_ref *r, json_t *q, struct ww_err *err)
{
	int go[2] = { -1, -1 }, done[2] = { -1, -1 };
	enum ww_rc rc = WW_OK;
	WW_BUG(r->armed);
	if (!q || pipe2(go, O_CLOEXEC) < 0 || pipe2(done, O_CLOEXEC) < 0)
		WW_TRY(ww_err_errno(err, WW_ERR_SYSTEM, "cannot make pipes for a baseline"));
	r->armed_deadline_ns = ww_deadline_ns(request_s(r));
	WW_TRY(ww_worker_send(&r->worker, q, (int[]){ go[0], done[1] }, 2, r->armed_deadline_ns, err));
	r->armed = 1;
	r->go_fd = go[1];
	r->done_fd = done[0];
	go[1] = done[0] = -1;
	ww_fd_close(&done[1]); /* so that a dead worker reads as the end of the pipe */
	rc = arm_byte(r, 'r', err);
out:
	json_decref(q);
	for (int i = 0; i < 2; i++) {
		ww_fd_close(&go[i]);
		ww_fd_close(&done[i]);
	}
	return rc;
}

enum ww_rc ww_ref_arm(struct ww_ref *r, enum ww_baseline which, struct ww_err *err)
{
	return arm(r, json_pack("{s:s, s:s}", "request", "arm", "which", ww_baseline_name(which)), err);
}

enum ww_rc ww_ref_beside(
	struct ww_ref *r, json_t *q, const int *fds, int n, struct ww_ref_memory *own, int n_own, struct ww_err *err)
{
	json_t *b, *bytes;
	int *made = NULL, n_made = 0;
	enum ww_rc rc = ww_ref_ask_fds(r, q, fds, n, request_s(r), &b, &made, &n_made, err);
	if (rc != WW_OK)
		return rc;
	WW_TRY(ww_json_get_array(b, "memory", what, &bytes, err));
	if (n_made != n_own || (int)json_array_size(bytes) != n_own)
		WW_TRY(ww_err_set(err, WW_ERR_PROTOCOL, "%s brings %d pieces of memory, not %d", what, n_made, n_own));
	for (int i = 0; i < n_own; i++)
		own[i] = (struct ww_ref_memory){ made[i], (uint64_t)json_integer_value(json_array_get(bytes, (size_t)i)) };
	n_made = 0;
out:
	ww_ref_drop_fds(&made, &n_made);
	return ww_ref_finish(r, b, rc, err);
}

enum ww_rc ww_ref_beside_arm(struct ww_ref *r, int id, int flush, struct ww_err *err)
{
	return arm(r, json_pack("{s:s, s:i, s:b}", "request", "beside_arm", "id", id, "flush", flush), err);
}

enum ww_rc ww_ref_beside_drop(struct ww_ref *r, int id, struct ww_err *err)
{
	json_t *b = NULL;
	WW_CHECK(ask(r, json_pack("{s:s, s:i}", "request", "beside_drop", "id", id), request_s(r), &b, err));
	return ww_ref_finish(r, b, WW_OK, err);
}

enum ww_rc ww_ref_fire(struct ww_ref *r, uint64_t *elapsed_ns, double *waited_us, struct ww_err *err)
{
	return ww_ref_beside_fire(r, 1, elapsed_ns, waited_us, NULL, 0, err);
}

enum ww_rc ww_ref_beside_fire(
	struct ww_ref *r, int last, uint64_t *elapsed_ns, double *waited_us, double *us, int n, struct ww_err *err)
{
	WW_BUG(!r->armed);
	struct ww_timed_call *called = ww_timed_call_begin(r->worker.proc.pid);
	uint64_t start_ns = ww_now_ns();
	enum ww_rc rc = ww_fd_write(r->go_fd, "g", 1, r->armed_deadline_ns, err);
	if (rc == WW_OK)
		rc = arm_byte(r, 'd', err);
	*elapsed_ns = ww_now_ns() - start_ns;
	*waited_us = ww_timed_call_end(called);
	if (rc != WW_OK) {
		r->armed = 0;
		return rc;
	}
	return last ? arm_reply(r, us, n, err) : WW_OK;
}

int ww_ref_quiet(const struct ww_ref *r) { return ww_threads_asleep(r->worker.proc.pid); }

void ww_ref_settle(const struct ww_ref *r)
{
	static const struct timespec pause = { 0, 50000 };
	for (uint64_t by = ww_deadline_ns(SETTLE_S); !ww_ref_quiet(r) && ww_now_ns() < by;)
		nanosleep(&pause, NULL);
}

enum ww_rc ww_ref_profile(struct ww_ref *r, json_t **out, struct ww_err *err)
{
	json_t *nodes;
	enum ww_rc rc = ask(r, json_pack("{s:s}", "request", "profile"), request_s(r), out, err);
	if (rc == WW_OK && (rc = ww_json_get_array(*out, "nodes", what, &nodes, err)) != WW_OK) {
		json_decref(*out);
		*out = NULL;
		ww_worker_kill(&r->worker, err);
	}
	return rc;
}

enum ww_rc ww_ref_free_baseline(struct ww_ref *r, enum ww_baseline which, struct ww_err *err)
{
	json_t *b;
	enum ww_rc rc = ask(r,
		json_pack("{s:s, s:b, s:s}", "request", "free", "all", 0, "baseline", ww_baseline_name(which)), request_s(r),
		&b, err);
	return rc == WW_OK ? ww_ref_finish(r, b, WW_OK, err) : rc;
}

enum ww_rc ww_ref_free(struct ww_ref *r, int all, struct ww_err *err)
{
	json_t *b;
	enum ww_rc rc = ask(r, json_pack("{s:s, s:b}", "request", "free", "all", all), request_s(r), &b, err);
	return rc == WW_OK ? ww_ref_finish(r, b, WW_OK, err) : rc;
}

/* ---- For candidates of the PyTorch forms */

static enum ww_rc ask_object(struct ww_ref *r, json_t *q, json_t **out, struct ww_err *err)
{
	enum ww_rc rc = ask(r, q, request_s(r), out, err);
	if (rc == WW_OK)
		json_object_del(*out, "ok");
	return rc;
}

enum ww_rc ww_ref_origin(struct ww_ref *r, json_t **out, struct ww_err *err)
{
	return ask_object(r, json_pack("{s:s}", "request", "origin"), out, err);
}

enum ww_rc ww_ref_trace(struct ww_ref *r, json_t **out, struct ww_err *err)
{
	return ask_object(r, json_pack("{s:s}", "request", "trace"), out, err);
}

enum ww_rc ww_ref_wipe(struct ww_ref *r, int poison, int flush, int *shares, struct ww_err *err)
{
	json_t *b;
	int found = 0;
	enum ww_rc rc = ask(
		r, json_pack("{s:s, s:b, s:b}", "request", "wipe", "poison", poison, "flush", flush), request_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	rc = ww_json_get_bool(b, "shares", what, &found, err);
	if (shares)
		*shares = found;
	return ww_ref_finish(r, b, rc, err);
}

enum ww_rc ww_ref_publish(struct ww_ref *r, double *busy_us, struct ww_err *err)
{
	json_t *b;
	enum ww_rc rc = ask(r, json_pack("{s:s}", "request", "publish"), request_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	*busy_us = ww_json_num(b, "busy_us", 0);
	return ww_ref_finish(r, b, WW_OK, err);
}

enum ww_rc ww_ref_keep(struct ww_ref *r, json_t *lent, const int *fds, int n_fds, int *taken, struct ww_err *err)
{
	json_t *b, *q = json_pack("{s:s, s:o}", "request", "keep", "lent", lent);
	enum ww_rc rc = ww_ref_ask(r, q, fds, n_fds, request_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	rc = ww_json_get_bool(b, "taken", what, taken, err);
	return ww_ref_finish(r, b, rc, err);
}

enum ww_rc ww_ref_same(struct ww_ref *r, int *same, struct ww_err *err)
{
	json_t *b;
	enum ww_rc rc = ask(r, json_pack("{s:s}", "request", "same"), request_s(r), &b, err);
	if (rc != WW_OK)
		return rc;
	rc = ww_json_get_bool(b, "same", what, same, err);
	return ww_ref_finish(r, b, rc, err);
}
