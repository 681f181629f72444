/* session_pytorch.c - a session of a plan between whose nodes PyTorch runs operators of the task (pytorch.c).
 *
 * A call is then: the runner's nodes up to the first such node, PyTorch's part, the runner's next nodes, and so on;
 * both processes are timed in the same way as alone (client.h, ww_ref_fire()), and the sum is the call's time.
 *
 * cuda.  A buffer that both processes use is an allocation of PyTorch's process, bound to the runner as inputs are; no
 * code of the candidate's runs in that process, and no memory of PyTorch's own is ever exported.  What lies between two
 * such nodes is one CUDA graph, in either process, timed there as a whole plan is (plugin_clock.c) or as a baseline is
 * (bridge/wwbridge/device_time.py), each after a flush of its own: so each part finds no more in the caches than the
 * baseline's first kernel, and pays again for the start and end of a graph.  Data that it leaves in the cache is not
 * written back in its time, for which the next kernel of one graph would have to wait: more_us() is added for that.  So
 * the sum is not less than the time of the same nodes in one graph, and cutting a plan into parts gains nothing.
 *
 * What PyTorch refuses (an index out of range that a kernel computed) or dies of is the solution's fault, since the
 * values are its own; the process is then restarted.
 *
 * If more than half of the time is PyTorch's, the verdict is library_only.  The median over the timed calls decides: a
 * kernel could idle in some calls, or in untimed ones at no cost, to lower PyTorch's share.
 *
 * Rejected: a PyTorch form whose forward() calls the parts in order (weaker guarantees for the whole, and Python that
 * the candidate wrote); the reference worker (a candidate's numbers in the process that knows the answers). */
#include "judge/facts.h"
#include "judge/room.h"
#include "judge/session.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double CALL_LIMIT_S = 120;

struct mixed {
	struct ww_judge_task *t;
	struct ww_runner *runner;
	const struct ww_image *image;
	int cuda, id;   /* of the plan in PyTorch's process */
	unsigned flags; /* cuda: what the next call prepares */
	const struct ww_session *s;
	struct ww_recent timed, all;  /* PyTorch's share of each call so far */
	double *us;                   /* of the last call: one number for each node of PyTorch's */
	struct ww_lent_scratch *lent; /* cuda */
	int n_lent;
};

/* ---- Handing over ------------------------------------------------------------------------------------------------ */

/* A buffer's row for the bridge; *like: the graph's strides, if the buffer's differ. */
static json_t *buffer_row(const json_t *form, int row_major, int writable, const struct ww_run_bind *b, json_t **like)
{
	const json_t *sizes = json_object_get(form, "sizes");
	json_t *strides = json_array();
	long long step = 1;
	for (size_t i = json_array_size(sizes); i-- > 0;) {
		json_array_insert_new(strides, 0, json_integer(step));
		step *= json_integer_value(json_array_get(sizes, i));
	}
	*like = json_equal(strides, json_object_get(form, "strides")) ? json_null()
																  : json_incref(json_object_get(form, "strides"));
	if (!row_major) {
		json_decref(strides);
		json_decref(*like);
		strides = json_incref(json_object_get(form, "strides"));
		*like = json_null();
	}
	return json_pack("{s:O, s:O, s:o, s:b, s:I, s:I}", "dtype", json_object_get(form, "dtype"), "sizes", sizes,
		"strides", strides, "writable", writable, "offset_bytes", (json_int_t)b->offset_bytes, "map_bytes",
		(json_int_t)b->map_bytes);
}

struct handing {
	const struct ww_session *s;
	struct mixed *x;
	json_t *buffers, *parts, *memory; /* memory: cuda; bytes of each piece that PyTorch's process must allocate */
	int *fds, n_fds;
};

/* cuda: the index of a scratch buffer in the list of memory that PyTorch's process allocates. */
static int lent_index(struct handing *h, int buf)
{
	const struct ww_image_buffer *b = &ww_image_buffers(h->s->image)[buf];
	struct mixed *x = h->x;
	int i = 0;
	while (i < x->n_lent && x->lent[i].bind.buf != (uint32_t)buf)
		i++;
	if (i == x->n_lent) {
		x->lent[x->n_lent++] = (struct ww_lent_scratch){ { (uint32_t)buf, 1, b->bytes, 0, 0 }, -1 };
		json_array_append_new(h->memory, json_integer((json_int_t)b->bytes));
	}
	return i;
}

static json_int_t add_scratch(struct handing *h, int buf, const json_t *row, int writable, json_t **like)
{
	struct ww_run_bind b = { 0 };
	if (!h->x->cuda)
		h->fds[h->n_fds++] = ww_runner_shared_scratch(h->s->runner, (uint32_t)buf, &b);
	json_t *to = buffer_row(json_array_get(json_object_get(row, "out"), 0), 1, writable, &b, like);
	if (h->x->cuda)
		json_object_set_new(to, "memory", json_integer(lent_index(h, buf)));
	json_array_append_new(h->buffers, to);
	return (json_int_t)json_array_size(h->buffers) - 1;
}

/* Add the input or parameter of that name to the buffers; returns its index, -1: there is none. */
static json_int_t add_bound(struct handing *h, const char *name)
{
	const struct ww_judge_task *t = h->s->t;
	const struct ww_facts *f = &t->facts;
	for (int i = 0; i < f->n_inputs + f->n_params; i++) {
		const struct ww_tensor *tensor = i < f->n_inputs ? &f->inputs[i] : &f->params[i - f->n_inputs];
		const json_t *row = ww_json_named(
			json_object_get(t->graph, i < f->n_inputs ? "inputs" : "params"), tensor->name);
		struct ww_run_bind b = { .map_bytes = t->buffers.b[i].alloc_bytes };
		json_t *like;
		if (strcmp(tensor->name, name) || !row)
			continue;
		h->fds[h->n_fds++] = t->buffers.b[i].fd;
		json_array_append_new(h->buffers, buffer_row(row, 0, 0, &b, &like));
		return (json_int_t)json_array_size(h->buffers) - 1;
	}
	return -1;
}

/* Add the inputs and parameters that the rows refer to, each once. */
static void add_places(struct handing *h, const json_t *v, json_t *seen, json_t *reads)
{
	const char *key, *ref = json_string_value(json_object_get(v, "ref"));
	json_t *x;
	size_t i;
	if (ref && !json_object_get(seen, ref)) {
		json_int_t at = add_bound(h, ref);
		json_object_set_new(seen, ref, json_true());
		if (at >= 0)
			json_array_append_new(reads, json_pack("[s, I, n]", ref, at));
	}
	json_array_foreach((json_t *)v, i, x)
		add_places(h, x, seen, reads);
	json_object_foreach((json_t *)v, key, x)
		if (!ref)
			add_places(h, x, seen, reads);
}

static void add_part(struct handing *h, uint32_t node)
{
	const struct ww_image *m = h->s->image;
	const struct ww_image_pytorch *t = &ww_image_nodes(m)[node].pytorch;
	const json_t *rows = json_object_get(h->s->t->graph, "nodes");
	json_t *part = ww_pytorch_part(h->s->t->graph, m, node), *reads = json_array(), *out = json_array(), *name, *like;
	json_auto_t *seen = json_object();
	uint32_t arg = t->first_arg;
	size_t i;
	json_array_foreach(json_object_get(part, "reads"), i, name) {
		json_int_t at = add_scratch(
			h, ww_image_args(m)[arg++].buf, ww_json_named(rows, json_string_value(name)), 0, &like);
		json_array_append_new(reads, json_pack("[O, I, o]", name, at, like));
	}
	json_array_foreach(json_object_get(part, "writes"), i, name) {
		json_int_t at = add_scratch(
			h, ww_image_args(m)[arg++].buf, ww_json_named(rows, json_string_value(name)), 1, &like);
		json_array_append_new(out, json_integer(at));
		json_decref(like);
	}
	add_places(h, json_object_get(part, "rows"), seen, reads);
	json_object_set_new(part, "reads", reads);
	json_object_set_new(part, "out", out);
	json_array_append_new(h->parts, part);
}

/* The memory that PyTorch's process allocates comes back in the order of x->lent. */
static enum ww_rc send_all(struct handing *h, struct ww_err *err)
{
	struct mixed *x = h->x;
	ww_auto_free struct ww_ref_memory *made = NULL;
	WW_CHECK(WW_NEW(made, (size_t)x->n_lent + 1, err));
	WW_CHECK(ww_ref_beside(x->t->beside,
		json_pack("{s:s, s:i, s:O, s:O, s:O}", "request", "beside", "id", x->id, "buffers", h->buffers, "parts",
			h->parts, "memory", h->memory),
		h->fds, h->n_fds, made, x->n_lent, err));
	for (int i = 0; i < x->n_lent; i++) {
		x->lent[i].fd = made[i].fd;
		x->lent[i].bind.map_bytes = made[i].alloc_bytes;
	}
	return WW_OK;
}

static enum ww_rc hand_over(struct ww_session *s, struct mixed *x, struct ww_err *err)
{
	const struct ww_image *m = s->image;
	size_t room = (size_t)m->n_args +
		(size_t)ww_pytorch_count(m) * (size_t)(s->t->facts.n_inputs + s->t->facts.n_params);
	struct handing h = { .s = s, .x = x, .buffers = json_array(), .parts = json_array(), .memory = json_array() };
	enum ww_rc rc = WW_NEW(h.fds, room + 1, err);
	for (uint32_t i = 0; rc == WW_OK && i < m->n_nodes; i++)
		if (ww_image_nodes(m)[i].kind == WW_NODE_PYTORCH)
			add_part(&h, i);
	if (rc == WW_OK)
		rc = send_all(&h, err);
	json_decref(h.buffers);
	json_decref(h.parts);
	json_decref(h.memory);
	free(h.fds);
	return rc;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static void drop(struct ww_judge_task *t)
{
	ww_ref_close(t->beside);
	t->beside = NULL;
}

/* PyTorch's part failed: unless we were interrupted, the solution's values are the cause. */
static enum ww_rc failed(struct mixed *x, enum ww_rc rc, struct ww_run_result *res, struct ww_err *err)
{
	if (rc == WW_ERR_INTERRUPTED)
		return rc;
	res->kind = rc == WW_ERR_TIMEOUT ? WW_RUN_LATE : WW_RUN_FAULT;
	snprintf(res->text, sizeof(res->text), "operators that PyTorch runs: %.400s", err->msg);
	drop(x->t);
	*err = (struct ww_err)WW_ERR_INIT;
	return WW_OK;
}

static void add_times(struct ww_run_result *sum, const struct ww_run_result *one)
{
	sum->elapsed_ns += one->elapsed_ns;
	sum->waited_us += one->waited_us;
	sum->used_ns += one->used_ns;
	sum->device_us += one->device_us;
	sum->stamp_us += one->stamp_us;
	sum->call_us += one->call_us;
	sum->contradicted |= one->contradicted;
}

/* Run the runner's nodes from..to-1.  cuda: the first part poisons the outputs and the last one checks the guards, even
 * if it has no node. */
static enum ww_rc run_part(
	struct mixed *x, uint32_t from, uint32_t to, double limit_s, struct ww_run_result *res, struct ww_err *err)
{
	const struct ww_run_part part = { from, to };
	const int first = from == 0, last = to == x->image->n_nodes;
	struct ww_run_result one;
	if (from == to && !(x->cuda && (first || last)))
		return WW_OK;
	if (x->cuda)
		WW_CHECK(ww_runner_prepare(x->runner,
			x->flags & ((first ? WW_RUN_POISON : 0) | WW_RUN_FLUSH | (last ? WW_RUN_GUARDS : 0)), &one, err));
	WW_CHECK(ww_runner_go_part(x->runner, &part, limit_s, &one, err));
	if (one.kind == WW_RUN_OK)
		add_times(res, &one);
	else
		*res = one;
	return WW_OK;
}

static enum ww_rc run_pytorch(struct mixed *x, int k, int last, struct ww_run_result *res, struct ww_err *err)
{
	const int timed = x->cuda && last;
	struct ww_run_result one = { 0 };
	enum ww_rc rc = ww_ref_beside_fire(
		x->t->beside, last, &one.elapsed_ns, &one.waited_us, x->us, timed ? k + 1 : 0, err);
	if (rc != WW_OK)
		return failed(x, rc, res, err);
	for (int i = 0; timed && i <= k; i++)
		one.device_us += x->us[i];
	one.stamp_us = one.call_us = one.device_us;
	add_times(res, &one);
	if (!x->cuda)
		x->us[k] = (double)one.elapsed_ns * 1e-3;
	return WW_OK;
}

/* cuda: microseconds that cutting a plan into parts may save; they are added to its time.  Between two parts L2 is
 * written back outside of the clock; in one graph the next kernel would wait for that.  At most the bytes of one L2
 * count.  A plan whose writes fit in L2 pays nothing: in one graph they would not be written back, and here they are
 * read from memory again, which costs as much. */
static double more_us(const struct mixed *x)
{
	const double cache = (double)x->t->facts.device.l2_bytes;
	struct ww_ref_peaks p;
	double bytes = -cache;
	ww_judge_peaks(x->t->judge, &p);
	for (uint32_t i = 0; i < x->image->n_buffers; i++) {
		const struct ww_image_buffer *b = &ww_image_buffers(x->image)[i];
		bytes += b->role == WW_BUF_SCRATCH || b->role == WW_BUF_OUTPUT ? (double)b->bytes : 0;
	}
	return bytes > 0 && p.memory_bytes_per_s > 0 ? fmin(bytes, cache) / p.memory_bytes_per_s * 1e6 : 0;
}

/* The number of parts, ours and PyTorch's. */
static int count_parts(const struct ww_image *m)
{
	int n = 0, ours = 0;
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		const int pytorchs = ww_image_nodes(m)[i].kind == WW_NODE_PYTORCH;
		n += pytorchs || !ours;
		ours = !pytorchs;
	}
	return n;
}

static void note_times(struct mixed *x, const struct ww_run_result *res, int n)
{
	const int timed = !x->s->warm && (x->cuda ? (x->flags & WW_RUN_FLUSH) != 0 : x->s->flush);
	double torch_us = 0, all_us = x->cuda ? res->device_us : (double)res->elapsed_ns * 1e-3;
	for (int i = 0; i < n; i++)
		torch_us += x->us[i];
	if (!(all_us > 0) || (x->cuda && !timed))
		return;
	ww_recent_add(&x->all, torch_us / all_us);
	if (timed)
		ww_recent_add(&x->timed, torch_us / all_us);
}

static enum ww_rc mixed_go(void *self, double limit_s, struct ww_run_result *res, struct ww_err *err)
{
	struct mixed *x = self;
	const struct ww_image *m = x->image;
	int k = 0, n = ww_pytorch_count(m);
	uint32_t from = 0;
	enum ww_rc rc;
	memset(res, 0, sizeof(*res));
	res->device_us = res->stamp_us = res->call_us = x->cuda ? 0 : NAN;
	if (!x->t->beside)
		return ww_err_set(err, WW_ERR_WORKER, "internal error: PyTorch's process was used after it had failed");
	if ((rc = ww_ref_beside_arm(x->t->beside, x->id, (x->flags & WW_RUN_FLUSH) != 0, err)) != WW_OK)
		return failed(x, rc, res, err);
	for (uint32_t i = 0; rc == WW_OK && res->kind == WW_RUN_OK && i < m->n_nodes; i++) {
		if (ww_image_nodes(m)[i].kind != WW_NODE_PYTORCH)
			continue;
		rc = run_part(x, from, i, limit_s, res, err);
		if (rc == WW_OK && res->kind == WW_RUN_OK) {
			rc = run_pytorch(x, k, k + 1 == n, res, err);
			k++;
		}
		from = i + 1;
	}
	if (rc == WW_OK && res->kind == WW_RUN_OK)
		rc = run_part(x, from, m->n_nodes, limit_s, res, err);
	else if (k < n)
		drop(x->t); /* PyTorch's process waits for a byte that will not come */
	if (x->cuda && (x->flags & WW_RUN_FLUSH)) {
		const double more = (count_parts(m) - 1) * more_us(x);
		add_times(res, &(struct ww_run_result){ .device_us = more, .stamp_us = more, .call_us = more });
	}
	if (rc == WW_OK && res->kind == WW_RUN_OK)
		note_times(x, res, n);
	x->flags = 0;
	return rc;
}

static enum ww_rc mixed_prepare(void *self, unsigned flags, struct ww_run_result *res, struct ww_err *err)
{
	struct mixed *x = self;
	x->flags = x->cuda ? flags : 0;
	return ww_runner_prepare(x->runner, flags, res, err);
}

static enum ww_rc mixed_guards(void *self, struct ww_run_result *res, struct ww_err *err)
{
	(void)err;
	ww_runner_guards(((struct mixed *)self)->runner, res);
	return WW_OK;
}

static pid_t mixed_pid(const void *self) { return ww_runner_pid(((const struct mixed *)self)->runner); }

static void mixed_close(void *self)
{
	struct mixed *x = self;
	struct ww_err ignored = WW_ERR_INIT;
	if (x->t->beside && ww_ref_beside_drop(x->t->beside, x->id, &ignored) != WW_OK)
		drop(x->t);
	for (int i = 0; i < x->n_lent; i++)
		ww_fd_close(&x->lent[i].fd);
	free(x->lent);
	free(x->us);
	free(x);
}

static const struct ww_candidate_ops mixed_ops = { mixed_prepare, mixed_go, mixed_guards, mixed_pid, mixed_close, 0 };

static enum ww_rc open_beside(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_ref_opts o = t->ref_opts;
	if (t->beside)
		return WW_OK;
	o.first = NULL;
	o.pool_bytes = 0;
	o.pool_share = 0;
	o.max_request_s = CALL_LIMIT_S;
	ww_judge_progress(t->judge, "importing PyTorch for the operators that it runs");
	return ww_ref_open(&t->beside, &o, err);
}

/* hand_over() failed.  No value of the candidate has reached PyTorch yet, so a lost process, a failed device and memory
 * that others hold are not the plan's fault; rows that the bridge does not take are. */
static enum ww_rc not_taken(struct ww_session *s, enum ww_rc rc, struct ww_err *err)
{
	struct ww_judge_task *t = s->t;
	const int room = rc == WW_ERR_ROOM && ww_room_is_others(t->judge);
	if (rc == WW_ERR_INTERRUPTED || rc == WW_ERR_NOMEM || rc == WW_ERR_DEVICE || room || !ww_ref_alive(t->beside))
		return rc;
	ww_session_fail(s, WW_STATUS_REFUSED, "refused: operators that PyTorch is to run: %.400s", err->msg);
	*err = (struct ww_err)WW_ERR_INIT;
	return WW_OK;
}

enum ww_rc ww_pytorch_open(struct ww_session *s, struct ww_err *err)
{
	struct ww_judge_task *t = s->t;
	struct mixed *x;
	WW_CHECK(open_beside(t, err));
	WW_CHECK(WW_NEW(x, 1, err));
	*x = (struct mixed){ .t = t,
		.s = s,
		.runner = s->runner,
		.image = s->image,
		.cuda = t->judge->opts.target == WW_TARGET_CUDA,
		.id = ++t->beside_plans };
	s->ops = &mixed_ops;
	s->candidate = x;
	WW_CHECK(WW_NEW(x->us, (size_t)ww_pytorch_count(s->image) + 1, err));
	WW_CHECK(WW_NEW(x->lent, (size_t)s->image->n_args + 1, err));
	enum ww_rc rc = hand_over(s, x, err);
	return rc == WW_OK ? rc : not_taken(s, rc, err);
}

static const struct mixed *mixed_of(const struct ww_session *s)
{
	return s->ops == &mixed_ops ? (const struct mixed *)s->candidate : NULL;
}

double ww_pytorch_share(const struct ww_session *s)
{
	const struct mixed *x = mixed_of(s);
	return !x || !x->all.n ? 0 : ww_recent_median(x->timed.n ? &x->timed : &x->all);
}

enum ww_rc ww_pytorch_times(struct ww_session *s, double *us, struct ww_err *err)
{
	const struct mixed *x = mixed_of(s);
	struct ww_run_result res;
	WW_BUG(!x);
	WW_CHECK(ww_session_run(s, WW_RUN_POISON | WW_RUN_FLUSH, &res, err));
	for (int i = 0; i < ww_pytorch_count(x->image) && i < WW_PYTORCH_TIMED; i++)
		us[i] = x->us[i];
	return WW_OK;
}

const struct ww_lent_scratch *ww_pytorch_lent(const struct ww_session *s, int *n)
{
	const struct mixed *x = mixed_of(s);
	*n = x ? x->n_lent : 0;
	return x ? x->lent : NULL;
}

enum ww_rc ww_pytorch_digest(struct ww_session *s, int run, uint64_t key, uint64_t *digest, struct ww_err *err)
{
	const struct ww_run_repeat q = { .n = 0, .key = key }; /* n = 0: only digests, no run */
	struct ww_run_result res;
	if (run)
		WW_CHECK(ww_session_run(s, WW_RUN_POISON, &res, err));
	if (s->failed)
		return WW_OK;
	WW_CHECK(ww_session_repeat(s, &q, &res, err));
	*digest = res.digest;
	return WW_OK;
}
