/* session.c - one candidate in one runner: bind the task's buffers, run, compare, and put failures into words.
 *
 * A session lives inside the device's lease and the task's lock.  Its functions return an error for trouble of ours and
 * set `failed` (with the verdict's status and diagnostics) for trouble of the candidate's; after either, nothing more
 * runs.
 *
 * Order matters for trust: the candidate runs on a fresh draw first, only then does the reference worker compute what
 * it should have written, and on the cpu target the runner is stopped (client.h) from the end of its call until the
 * outputs have been compared.  Guards come last there: asking for them lets it run. */
#include "judge/internal.h"
#include "judge/reasons.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOAD_LIMIT_S = 30, READY_LIMIT_S = 60 };

void ww_session_fail(struct ww_session *s, enum ww_status status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&s->diag, fmt, ap);
	va_end(ap);
	ww_str_addc(&s->diag, '\n');
	s->v->status = status;
	s->v->correct = 0;
	s->failed = 1;
}

static void fail_quoted(
	struct ww_session *s, enum ww_status status, const char *what, const char *stage, const char *text)
{
	ww_reason_run(what, stage, text, &s->diag);
	s->v->status = status;
	s->v->correct = 0;
	s->failed = 1;
}

void ww_session_fail_run(struct ww_session *s, const struct ww_run_result *res, const char *stage)
{
	switch (res->kind) {
	case WW_RUN_OK:
	case WW_RUN_BROKEN: break;
	case WW_RUN_REFUSED: fail_quoted(s, WW_STATUS_REFUSED, "refused", stage, res->text); break;
	case WW_RUN_UNAVAILABLE: fail_quoted(s, WW_STATUS_REFUSED, "not available here", stage, res->text); break;
	case WW_RUN_NOMEM: fail_quoted(s, WW_STATUS_REFUSED, "out of memory", stage, res->text); break;
	case WW_RUN_OVERRUN: fail_quoted(s, WW_STATUS_MISMATCH, "buffer overrun", stage, res->text); break;
	case WW_RUN_FAULT: fail_quoted(s, WW_STATUS_CRASHED, "crashed", stage, res->text); break;
	case WW_RUN_DIED: fail_quoted(s, WW_STATUS_CRASHED, "crashed", stage, res->text); break;
	case WW_RUN_LATE: ww_session_fail(s, WW_STATUS_TIMEOUT, "timeout (%s): %s", stage, res->text); break;
	}
}

/* ---- A plan in a runner ------------------------------------------------------------------------------------------ */

static enum ww_rc runner_prepare(void *self, unsigned flags, struct ww_run_result *res, struct ww_err *err)
{
	return ww_runner_prepare(self, flags, res, err);
}

static enum ww_rc runner_go(void *self, double limit_s, struct ww_run_result *res, struct ww_err *err)
{
	return ww_runner_go(self, limit_s, res, err);
}

static enum ww_rc runner_guards(void *self, struct ww_run_result *res, struct ww_err *err)
{
	(void)err;
	ww_runner_guards(self, res);
	return WW_OK;
}

static pid_t runner_pid(const void *self) { return ww_runner_pid(self); }

/* A runner goes back to its judge: ww_session_close(). */
static const struct ww_candidate_ops runner_ops = { runner_prepare, runner_go, runner_guards, runner_pid, NULL, 0 };

/* ---- Binding ----------------------------------------------------------------------------------------------------- */

static enum ww_rc bind_all(
	const struct ww_judge_task *t, struct ww_runner *r, struct ww_run_result *res, struct ww_err *err)
{
	int first_output = t->facts.n_inputs + t->facts.n_params;

	for (int i = 0; i < t->buffers.n; i++) {
		struct ww_run_bind b = { (uint32_t)i, i >= first_output, t->buffers.b[i].bytes, t->buffers.b[i].alloc_bytes,
			0 };
		enum ww_rc rc = ww_runner_bind(r, &b, t->buffers.b[i].fd, res, err);
		if (rc != WW_OK || res->kind != WW_RUN_OK)
			return rc;
	}
	return WW_OK;
}

static enum ww_rc bind_lent(
	struct ww_runner *r, const struct ww_lent_scratch *lent, int n, struct ww_run_result *res, struct ww_err *err)
{
	for (int i = 0; i < n && res->kind == WW_RUN_OK; i++)
		WW_CHECK(ww_runner_bind(r, &lent[i].bind, lent[i].fd, res, err));
	return WW_OK;
}

enum ww_rc ww_session_load(const struct ww_judge_task *t, struct ww_runner *r, const struct ww_image *image,
	const struct ww_compiled *binary, const struct ww_lent_scratch *lent, int n_lent, struct ww_run_result *res,
	struct ww_err *err)
{
	ww_auto_free struct ww_exec_kernel *kernels = calloc((size_t)binary->n_kernels + 1, sizeof(*kernels));

	if (!kernels)
		return ww_nomem(err);
	for (int i = 0; i < binary->n_kernels; i++)
		kernels[i] = (struct ww_exec_kernel){ binary->kernels[i].kernel, binary->kernels[i].symbol };
	WW_CHECK(ww_runner_load(
		r, image, binary->binary, binary->binary_bytes, kernels, binary->n_kernels, LOAD_LIMIT_S, res, err));
	if (res->kind == WW_RUN_OK)
		WW_CHECK(bind_all(t, r, res, err));
	if (res->kind == WW_RUN_OK)
		WW_CHECK(bind_lent(r, lent, n_lent, res, err));
	if (res->kind == WW_RUN_OK)
		WW_CHECK(ww_runner_ready(r, READY_LIMIT_S, res, err));
	return WW_OK;
}

/* Other processes or tasks hold the missing memory: the failure says nothing about the candidate. */
static int others_hold(struct ww_judge *j) { return ww_judge_crowded(j) || ww_room_is_held(j); }

static enum ww_rc no_room(const struct ww_session *s, const struct ww_run_result *res, struct ww_err *err)
{
	if (res->kind == WW_RUN_NOMEM && others_hold(s->t->judge))
		return ww_err_set(
			err, WW_ERR_ROOM, "the device's memory has no room for the solution beside others: %.300s", res->text);
	return WW_OK;
}

static int calls_library(const struct ww_image *m)
{
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (ww_image_nodes(m)[i].kind == WW_NODE_GEMM)
			return 1;
	return 0;
}

enum ww_rc ww_session_open(struct ww_session *s, const struct ww_compiled *binary, struct ww_err *err)
{
	struct ww_judge_task *t = s->t;
	struct ww_run_result res;
	enum ww_turn_kind turn = t->turn.kind;
	uint64_t start = ww_now_ns();
	int mixed = ww_pytorch_count(s->image) > 0, cuda = t->judge->opts.target == WW_TARGET_CUDA, n_lent = 0;
	enum ww_rc rc;

	s->binary = binary;
	ww_turn_pause(&t->turn); /* a runner that is not ready yet starts CUDA for a second, as spares do at any time */
	rc = ww_spare_take(t->judge, &s->runner, err);
	ww_turn_resume(&t->turn);
	WW_TRY(rc);
	s->ops = &runner_ops;
	s->candidate = s->runner;
	if (binary->n_kernels > 0 && calls_library(s->image))
		ww_runner_watch(s->runner);
	if (mixed && cuda)
		WW_TRY(ww_pytorch_open(s, err));
	if (s->failed)
		goto out;
	const struct ww_lent_scratch *lent = ww_pytorch_lent(s, &n_lent);
	if (!ww_runner_clocked(s->runner))
		WW_TRY(ww_judge_turn(t, WW_TURN_TIMED, err));
	ww_turn_call(&t->turn);
	rc = ww_session_load(t, s->runner, s->image, binary, lent, n_lent, &res, err);
	ww_turn_called(&t->turn);
	WW_TRY(rc);
	WW_TRY(ww_judge_turn(t, turn, err));
	WW_TRY(no_room(s, &res, err));
	ww_session_fail_run(s, &res, "load");
	if (!s->failed && mixed && !cuda)
		WW_TRY(ww_pytorch_open(s, err));
out:
	t->spent.load += ww_seconds_since(start);
	return rc;
}

void ww_session_close(struct ww_session *s)
{
	if (s->candidate && s->candidate != s->runner)
		s->ops->close(s->candidate);
	if (s->runner)
		ww_spare_give(s->t->judge, s->runner);
	s->runner = NULL;
	s->candidate = NULL;
}

/* ---- Running and comparing --------------------------------------------------------------------------------------- */

enum ww_rc ww_session_prepare(struct ww_session *s, unsigned prepare, struct ww_err *err)
{
	struct ww_run_result res;
	int cpu = s->t->judge->opts.target == WW_TARGET_CPU;
	enum ww_rc rc = ww_judge_interrupted(s->t->judge, err);
	if (rc != WW_OK)
		return rc;
	s->flush = cpu && (prepare & WW_RUN_FLUSH);
	rc = s->ops->prepare(s->candidate, cpu ? prepare & WW_RUN_POISON : prepare, &res, err);
	if (rc == WW_OK)
		ww_session_fail_run(s, &res, "run");
	return rc;
}

/* The host may delay a call or two; where it contradicts the events in three calls of four, the clock was tampered
 * with. */
static void believe_clock(struct ww_session *s, const struct ww_run_result *res)
{
	enum { ENOUGH = 8 };
	s->calls += isfinite(res->call_us);
	s->contradicted += res->contradicted;
	if (isfinite(res->call_us))
		ww_log(WW_LOG_DEBUG, "clocks: %.2f us, %.2f us by the stamps, %.2f us by the host%s", res->device_us,
			res->stamp_us, res->call_us, res->contradicted ? ": a contradiction" : "");
	if (s->contradicted >= ENOUGH && 4 * s->contradicted >= 3 * s->calls)
		ww_session_fail(s, WW_STATUS_REFUSED,
			"refused: the event clock was tampered with: %d of %d timed calls took much longer by "
			"another clock than by their events",
			s->contradicted, s->calls);
}

/* Calls with cold caches are those that are timed. */
static void note_code(struct ww_session *s)
{
	struct ww_seen seen = { .calls = 0 };
	if (s->runner)
		ww_runner_take_seen(s->runner, &seen);
	seen.calls = seen.calls > 0; /* of parts */
	ww_seen_add(&s->all, &seen);
	if (s->flush)
		ww_seen_add(&s->timed, &seen);
}

enum ww_rc ww_session_go(struct ww_session *s, struct ww_run_result *res, struct ww_err *err)
{
	ww_turn_step(&s->t->turn);
	ww_turn_call(&s->t->turn);
	uint64_t start = ww_now_ns();
	if (s->flush)
		ww_judge_flush(s->t);
	enum ww_rc rc = s->ops->go(s->candidate, s->limit_s, res, err);
	s->t->spent.run += ww_seconds_since(start);
	ww_turn_called(&s->t->turn);
	if (rc == WW_OK)
		ww_session_fail_run(s, res, "run");
	if (rc != WW_OK || s->failed)
		return rc;
	believe_clock(s, res);
	s->witness_us = res->stamp_us;
	s->waited_us = res->waited_us;
	s->used_s += (double)res->used_ns * 1e-9;
	s->used_calls += res->used_ns > 0;
	note_code(s);
	return rc;
}

enum ww_rc ww_session_run(struct ww_session *s, unsigned prepare, struct ww_run_result *res, struct ww_err *err)
{
	enum ww_rc rc = ww_session_prepare(s, prepare | WW_RUN_GUARDS, err);
	return rc == WW_OK && !s->failed ? ww_session_go(s, res, err) : rc;
}

enum ww_rc ww_session_repeat(
	struct ww_session *s, const struct ww_run_repeat *q, struct ww_run_result *res, struct ww_err *err)
{
	ww_turn_call(&s->t->turn);
	enum ww_rc rc = ww_runner_repeat(s->runner, q, s->limit_s, res, err);
	ww_turn_called(&s->t->turn);
	if (rc == WW_OK)
		ww_session_fail_run(s, res, "a repeat");
	return rc;
}

uint64_t ww_session_seed(struct ww_judge_task *t)
{
	struct ww_rng g;
	if (!t->judge->opts.seed)
		return ww_rng_secret();
	ww_rng_init(&g, t->judge->opts.seed, t->draw_counter++);
	return ww_rng_u64(&g) >> 1;
}

static enum ww_rc draw(struct ww_judge_task *t, const struct ww_ref_draw *d, struct ww_err *err)
{
	ww_turn_step(&t->turn);
	uint64_t start = ww_now_ns();
	enum ww_rc rc = ww_ref_draw(t->ref, d, err);
	t->drawn_seed = d->seed;
	t->reference_s += ww_seconds_since(start);
	t->spent.draw += ww_seconds_since(start);
	return rc;
}

static struct ww_ref_draw pooled(struct ww_judge_task *t, double scale, double shift, enum ww_ref_params params)
{
	struct ww_ref_draw d = { ww_pool_next(t->pool, scale, shift, params), scale, shift, params, 1, t->rule,
		ww_pool_keeps_values(t->pool) };
	if (!d.seed) {
		d.seed = ww_session_seed(t);
		d.keep = 0;
	}
	return d;
}

enum ww_rc ww_session_draw(
	struct ww_judge_task *t, double scale, double shift, enum ww_ref_params params, struct ww_err *err)
{
	const struct ww_ref_draw d = pooled(t, scale, shift, params);
	return draw(t, &d, err);
}

enum ww_rc ww_session_draw_unchecked(struct ww_judge_task *t, enum ww_ref_params params, struct ww_err *err)
{
	struct ww_ref_draw d = { ww_session_seed(t), 1, 0, params, 0, t->rule, 0 };
	return draw(t, &d, err);
}

static double worse(double a, double b) { return isnan(a) ? b : isnan(b) ? a : a > b ? a : b; }

enum ww_rc ww_session_check(struct ww_session *s, const char *when, int *finite, struct ww_err *err)
{
	int ignored;
	return ww_session_check_draw(s, when, finite, NULL, &ignored, err);
}

enum ww_rc ww_session_check_draw(
	struct ww_session *s, const char *when, int *finite, const struct ww_variant *next, int *drawn, struct ww_err *err)
{
	struct ww_judge_task *t = s->t;
	struct ww_ref_compare *c = calloc(1, sizeof(*c));
	struct ww_ref_draw d;
	struct ww_run_result res;
	enum ww_rc rc;

	*drawn = 0;
	if (!c)
		return ww_nomem(err);
	if (next)
		d = pooled(t, next->scale, next->shift, next->params);
	ww_turn_step(&t->turn);
	uint64_t start = ww_now_ns();
	WW_TRY(ww_ref_compare(t->ref, t->rule, finite != NULL, next ? &d : NULL, c, err));
	*drawn = c->drawn;
	if (c->drawn)
		t->drawn_seed = d.seed;
	if (finite)
		*finite = c->finite;
	if (!c->fp64 && others_hold(t->judge))
		WW_TRY(ww_err_set(err, WW_ERR_ROOM, "the device's memory has no room for the fp64 reference beside others"));
	s->wrong = s->compared = 0;
	for (int i = 0; i < c->n_outputs; i++) {
		s->wrong += (double)c->outputs[i].violations;
		s->compared += (double)c->outputs[i].numel;
		s->v->err_rel = worse(s->v->err_rel, c->outputs[i].err_rel);
		s->v->err_abs = worse(s->v->err_abs, c->outputs[i].err_abs);
	}
	for (int i = 0; !c->pass && i < c->n_outputs; i++) {
		if (c->outputs[i].pass)
			continue;
		ww_reason_diff(&c->outputs[i], i, when, &s->diag);
		s->v->status = WW_STATUS_MISMATCH;
		s->v->correct = 0;
		s->failed = 1;
	}
	WW_BUG(!c->pass && !s->failed);
	if (!s->failed) {
		WW_TRY(s->ops->guards(s->candidate, &res, err));
		ww_session_fail_run(s, &res, when);
	}
out:
	t->reference_s += ww_seconds_since(start);
	t->spent.compare += ww_seconds_since(start);
	free(c);
	return rc;
}
