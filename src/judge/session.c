/* session.c - one candidate in one runner: a plan is loaded and the task's buffers are bound to it.
 *
 * A session lives inside the device's lease and the task's lock.  Its functions return an error for trouble of ours and
 * set `failed` (with the verdict's status and diagnostics) for trouble of the candidate's; after either, nothing more
 * runs.
 *
 * Order matters for trust: the candidate runs on a fresh draw first (session_calls.c), only then does the reference
 * worker compute what it should have written (session_draws.c), and on the cpu target the runner is stopped (client.h)
 * from the end of its call until the outputs have been compared.  Guards come last there: asking for them lets it run.
 */
#include "judge/room.h"
#include "judge/session.h"
#include "judge/spares.h"

#include "base/time.h"

#include <stdlib.h>

enum { LOAD_LIMIT_S = 30, READY_LIMIT_S = 60 };

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

static enum ww_rc no_room(const struct ww_session *s, const struct ww_run_result *res, struct ww_err *err)
{
	if (res->kind == WW_RUN_NOMEM && ww_room_is_others(s->t->judge))
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
