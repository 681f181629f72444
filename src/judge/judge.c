/* judge.c - from (task, solution) to a verdict: the stages, ownership, and what happens when a process of ours dies.
 *
 *     plan      the builder makes a validated image of plan.c           any number at once
 *     compile   a compile worker makes a binary of kernels.*            any number at once
 *     verify    a runner replays it on secret draws (verify.c)          under the task's lock, with other tasks
 *                                                                       (turns.h)
 *     time      candidate and baselines, call by call (timing.c)        the same, but alone on the device
 *
 * Two kinds of trouble never mix.  What a candidate does is in the verdict, whatever it does: every stage is written so
 * that it ends in a verdict or in an error of ours.  An error of ours (a reference worker that died, a device that
 * failed) is returned; a lost reference worker is started again and the judgement repeated once before that, because
 * the next candidate must not pay for it either.
 *
 * Lock order: task lock, then turn, then judge lock. */
#include "judge/cache/baselines.h"
#include "judge/own_work.h"
#include "judge/room.h"
#include "judge/spares.h"
#include "judge/stages.h"
#include "judge/reasons.h"
#include "judge/forms/form.h"
#include "judge/forms/forms.h"
#include "judge/quiet.h"
#include "judge/solution.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIAG_MAX_BYTES = WW_REASONS_MAX_BYTES, FIRST_RUN_LIMIT_S = 30 };

/* ---- Building ---------------------------------------------------------------------------------------------------- */

struct built {
	struct ww_image *image;
	struct ww_compiled binary;
	enum ww_own_work work; /* of a plan */
	int ok;
	enum ww_status status;          /* when not ok */
	const struct ww_solution *form; /* a solution in a PyTorch form: instead of image and binary */
	int extensions;                 /* its compiled extensions, a memfd; -1: none */
	char id[65];                    /* of the solution; a baseline's */
};

static enum ww_status compile_status(enum ww_compile_result r)
{
	return r == WW_COMPILE_REFUSED ? WW_STATUS_REFUSED : WW_STATUS_COMPILE_FAILED;
}

/* plan.c to an image.  diag gets the reason where there is none. */
static enum ww_rc build_plan(
	struct ww_judge_task *t, const struct ww_solution *s, struct built *b, struct ww_str *diag, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_BUILD_DIAG_BYTES);
	enum ww_build_result result;
	enum ww_rc rc = ww_builder_build(
		t->judge->builder, s->plan_source, s->plan_bytes, &t->facts, &b->image, &text, &result, err);

	if (rc == WW_OK && result == WW_BUILD_OK && !ww_pytorch_check(t->graph, b->image, &text))
		result = WW_BUILD_INVALID;
	b->ok = rc == WW_OK && result == WW_BUILD_OK;
	if (rc == WW_OK && !b->ok) {
		b->status = WW_STATUS_PLAN_FAILED;
		ww_reason_build(result, &text, diag);
	}
	return rc;
}

static enum ww_rc compile_code(
	struct ww_judge_task *t, const struct ww_solution *s, struct built *b, struct ww_str *diag, struct ww_err *err)
{
	enum ww_compile_result result;
	enum ww_rc rc = ww_compiler_compile(
		t->judge->compiler, s->device_source, s->device_bytes, b->image, &b->binary, &result, err);

	b->ok = rc == WW_OK && result == WW_COMPILE_OK;
	if (rc == WW_OK && !b->ok) {
		b->status = compile_status(result);
		ww_reason_compile(result, b->binary.log, diag);
	}
	return rc;
}

static void built_release(struct built *b)
{
	free(b->image);
	ww_compiled_release(&b->binary);
	if (b->form)
		ww_fd_close(&b->extensions);
}

#define built_auto WW_AUTO(built_release) struct built

/* ---- Judging ----------------------------------------------------------------------------------------------------- */

static enum ww_rc look_for_degeneracy(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_ref_degenerate d;
	enum ww_turn_kind turn = t->turn.kind;
	if (t->degenerate[0] >= 0)
		return WW_OK;
	WW_CHECK(ww_judge_turn(t, WW_TURN_LOAD, err));
	uint64_t start = ww_now_ns();
	enum ww_rc rc = ww_ref_degenerate(t->ref, ww_session_seed(t), ww_session_seed(t), &d, err);
	double took_s = ww_seconds_since(start);
	t->reference_s += took_s;
	t->spent.examine += took_s;
	if (rc == WW_OK)
		for (int i = 0; i < 2; i++)
			t->degenerate[i] = d.rule[i].degenerate;
	return rc == WW_OK ? ww_judge_turn(t, turn, err) : rc;
}

/* Is anything in use that depends on the module's seed and is never drawn (bridge/wwbridge/redraw.py, "stuck")? */
static int has_stuck_values(const json_t *graph)
{
	size_t i;
	json_t *p;
	json_array_foreach(json_object_get(graph, "params"), i, p)
		if (ww_json_bool(p, "used", 0) && !strcmp(ww_json_str(p, "drawn", ""), "stuck"))
			return 1;
	return 0;
}

static double run_limit_s(const struct ww_judge_task *t)
{
	if (t->judge->opts.max_run_s > 0)
		return t->judge->opts.max_run_s;
	return t->eager_us > 0 ? 10 * t->eager_us * 1e-6 + 1 : FIRST_RUN_LIMIT_S;
}

/* A solution that serves as a baseline must be correct itself; it is verified once, not for every verdict against it.
 */
static enum ww_rc open_baseline(struct ww_session *r, const struct built *b, struct ww_err *err)
{
	struct ww_judge_task *t = r->t;
	r->limit_s = run_limit_s(t);
	WW_CHECK(ww_session_open(r, &b->binary, err));
	if (!r->failed && strcmp(t->baseline_id, b->id))
		WW_CHECK(ww_judge_verify(r, err));
	if (r->failed) {
		ww_pool_spoil(t->pool, t->drawn_seed);
		return ww_err_set(err, WW_ERR_USAGE, "the baseline solution cannot be used (%s): %.400s",
			ww_status_name(r->v->status), r->diag.p);
	}
	memcpy(t->baseline_id, b->id, sizeof(t->baseline_id));
	return WW_OK;
}

/* A stage that may wait for turns, for `seconds` of its work and the device. */
struct stage {
	uint64_t start_ns;
	double waited_s;
};

/* For turns, and within them for calls and steps of others. */
static double waited_s(const struct ww_judge_task *t) { return t->wait_s + t->turn.waited_s; }

static struct stage begin_stage(const struct ww_judge_task *t) { return (struct stage){ ww_now_ns(), waited_s(t) }; }

static double stage_s(const struct ww_judge_task *t, const struct stage *s)
{
	return ww_seconds_since(s->start_ns) - (waited_s(t) - s->waited_s);
}

static enum ww_rc time_it(struct ww_session *s, const struct built *baseline, struct ww_err *err)
{
	struct ww_verdict v;
	struct ww_session r = {
		.t = s->t, .image = baseline ? baseline->image : NULL, .v = &v, .diag = WW_STR_INIT(DIAG_MAX_BYTES)
	};
	int cpu = s->t->judge->opts.target == WW_TARGET_CPU;
	enum ww_rc rc;

	if (cpu)
		ww_quiet_begin();
	const struct stage stage = begin_stage(s->t);
	ww_verdict_init(&v);
	if (baseline) {
		WW_TRY(open_baseline(&r, baseline, err));
		s->baseline = &r;
	}
	WW_TRY(ww_judge_time(s, err));
	s->v->seconds.time = stage_s(s->t, &stage);
out:
	if (cpu)
		ww_quiet_end();
	s->baseline = NULL;
	ww_session_close(&r);
	ww_str_release(&r.diag);
	ww_verdict_release(&v);
	return rc;
}

static enum ww_own_work work_of(const struct ww_judge_task *t, const struct ww_image *m, int algebraic)
{
	return ww_judge_own_work(t->graph, ww_half_operands(&t->facts), algebraic, m);
}

/* torch.compile takes seconds of processor time: other judgements use the device meanwhile.  A failure shows when the
 * baseline is prepared. */
static enum ww_rc compile_baseline(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_err lost = WW_ERR_INIT;
	enum ww_turn_kind kind = t->turn.kind;
	WW_CHECK(ww_base_compile_ahead(t, err));
	if (!ww_ref_compiling(t->ref))
		return WW_OK;
	ww_turn_drop(&t->turn);
	ww_judge_progress(t->judge, "compiling the baseline \"compile\"");
	(void)!ww_ref_await(t->ref, &lost);
	WW_CHECK(ww_judge_interrupted(t->judge, err));
	return kind == WW_TURN_NONE ? WW_OK : ww_judge_turn(t, kind, err);
}

/* With several tasks open the device is busy with the others, and a batch has more solutions for each task.  So the
 * baseline is compiled before a solution takes a runner: fewer runners are needed, and no measurement is interrupted by
 * compiling.  With one task open its solution is verified while the baseline compiles. */
static int compiles_first(const struct ww_judge_task *t, enum ww_form form, enum ww_judge_depth depth)
{
	return t->judge->opts.open_tasks > 1 && depth >= WW_JUDGE_DECIDE && form == WW_FORM_PLAN;
}

/* Where another thread holds the task's lock, it judges the task and compiles the baseline, or has done so. */
static enum ww_rc compile_first(
	struct ww_judge_task *t, enum ww_rc (*compile)(struct ww_judge_task *t, struct ww_err *err), struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	if (pthread_mutex_trylock(&t->lock))
		return WW_OK;
	if (t->ref && ww_ref_alive(t->ref))
		rc = compile(t, err);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

/* Operators that PyTorch ran: which, and how much of the time.  More than half of it is not the solution's work. */
static void note_pytorch(const struct ww_session *s, const struct built *b, struct ww_verdict *v)
{
	if (b->form || !ww_pytorch_count(b->image))
		return;
	ww_auto_str names = WW_STR_INIT(sizeof(v->pytorch_ops) - 1);
	for (uint32_t i = 0; i < b->image->n_nodes; i++)
		if (ww_image_nodes(b->image)[i].kind == WW_NODE_PYTORCH)
			ww_str_addf(&names, "%s%s", names.len ? " " : "",
				ww_image_string(b->image, ww_image_nodes(b->image)[i].pytorch.nodes));
	snprintf(v->pytorch_ops, sizeof(v->pytorch_ops), "%s", names.p);
	v->partial = 1;
	v->pytorch_share = ww_pytorch_share(s);
	v->library_only |= v->pytorch_share > 0.5;
}

static void start_spare(struct ww_judge_task *t)
{
	uint64_t start = ww_now_ns();
	ww_spare_more(t->judge);
	t->spent.start += ww_seconds_since(start);
}

/* Verify and time what is built.  The task's lock and the lease are held. */
static enum ww_rc measure(struct ww_judge_task *t, struct built *b, const struct built *baseline,
	enum ww_judge_depth depth, struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	struct ww_session s = { .t = t,
		.image = b->image,
		.v = v,
		.diag = WW_STR_INIT(DIAG_MAX_BYTES),
		.brief = depth == WW_JUDGE_BRIEF,
		.decide = depth == WW_JUDGE_DECIDE };
	struct stage stage = begin_stage(t);
	const int cuda = t->judge->opts.target == WW_TARGET_CUDA;
	enum ww_baseline fastest;
	enum ww_rc rc;

	t->by_clock = b->form != NULL;
	ww_judge_progress(t->judge, "checking that the output depends on the input");
	ww_pool_begin(t->pool, depth >= WW_JUDGE_FULL);
	WW_TRY(look_for_degeneracy(t, err));
	v->degenerate = t->degenerate[v->rule];
	v->fixed_buffers = has_stuck_values(t->graph);
	WW_TRY(ww_base_eager_estimate(t, err));
	if (compiles_first(t, v->form, depth))
		WW_TRY(ww_base_prepare_missing(t, err));
	if (t->turn.kind == WW_TURN_LOAD && !b->form)
		start_spare(t);
	WW_TRY(ww_judge_turn(t, WW_TURN_SHARED, err));
	s.limit_s = run_limit_s(t);
	if (b->form && cuda && depth >= WW_JUDGE_DECIDE)
		WW_TRY(ww_base_all(t, &fastest, err)); /* before a process may have left work on the device */
	if (b->form)
		WW_TRY(ww_form_open(&s, b->form, b->extensions, err));
	else
		WW_TRY(ww_session_open(&s, &b->binary, err));
	if (!s.failed)
		WW_TRY(ww_judge_verify(&s, err));
	v->seconds.verify = stage_s(t, &stage);
	if (!s.failed && depth >= WW_JUDGE_DECIDE && !b->form)
		WW_TRY(compile_baseline(t, err));
	if (!s.failed && depth >= WW_JUDGE_DECIDE)
		WW_TRY(time_it(&s, baseline, err));
	if (!s.failed && b->form) {
		stage = begin_stage(t);
		WW_TRY(ww_form_trace(&s, err));
		v->seconds.verify += stage_s(t, &stage);
	}
out:
	if (s.failed)
		ww_pool_spoil(t->pool, t->drawn_seed);
	if (rc == WW_OK)
		note_pytorch(&s, b, v);
	ww_session_close(&s);
	if (rc == WW_OK && s.failed && (t->judge->opts.sanitize || depth == WW_JUDGE_SANITIZE) && !b->form &&
		(v->status == WW_STATUS_MISMATCH || v->status == WW_STATUS_CRASHED))
		rc = ww_judge_sanitize(t, b->image, &b->binary, &s.diag, err);
	if (b->work == WW_WORK_BOTH && v->algebraic)
		v->library_only |= work_of(t, b->image, 1) == WW_WORK_LIBRARY;
	if (rc == WW_OK && v->correct && depth >= WW_JUDGE_DECIDE && b->work == WW_WORK_BOTH && !v->library_only &&
		(!v->partial || s.all.n))
		rc = ww_judge_without_launches(&s, &v->library_only, err);
	v->library_fused = v->correct && !v->library_only && (b->form ? v->aten_ops[0] != 0 : b->work == WW_WORK_BOTH);
	ww_str_adds(diag, s.diag.p);
	ww_str_release(&s.diag);
	return rc;
}

static int ref_lost(const struct ww_judge_task *t) { return !t->ref || !ww_ref_alive(t->ref); }

/* Reset the verdict for a repeated judgement. */
static void forget(struct ww_verdict *v, struct ww_str *diag)
{
	struct ww_verdict fresh;
	ww_verdict_init(&fresh);
	fresh.rule = v->rule;
	fresh.form = v->form;
	fresh.library_only = v->library_only;
	fresh.seconds = v->seconds;
	memcpy(fresh.device_name, v->device_name, sizeof(fresh.device_name));
	memcpy(fresh.solution_id, v->solution_id, sizeof(fresh.solution_id));
	memcpy(fresh.binary_id, v->binary_id, sizeof(fresh.binary_id));
	memcpy(fresh.task_id, v->task_id, sizeof(fresh.task_id));
	*v = fresh;
	ww_str_reset(diag);
}

/* With the task's lock held. */
static enum ww_rc hold_once(struct ww_judge_task *t, enum ww_turn_kind kind,
	enum ww_rc (*fn)(void *ctx, struct ww_err *err), void *ctx, struct ww_err *err)
{
	const struct ww_judge_opts *o = &t->judge->opts;
	WW_CHECK(ww_judge_turn(t, kind, err));
	if (o->cancelled && o->cancelled(o->progress_ctx))
		return ww_err_set(err, WW_ERR_INTERRUPTED, "cancelled");
	if (ref_lost(t))
		WW_CHECK(ww_judge_start_ref(t, NULL, err));
	return fn(ctx, err);
}

enum ww_rc ww_judge_hold(struct ww_judge_task *t, enum ww_turn_kind kind,
	enum ww_rc (*fn)(void *ctx, struct ww_err *err), void *ctx, struct ww_err *err)
{
	double nap_s = 0;
	enum ww_rc rc;

	uint64_t start = ww_now_ns();
	pthread_mutex_lock(&t->lock);
	t->wait_s = ww_seconds_since(start);
	t->turn.waited_s = 0;
	rc = hold_once(t, kind, fn, ctx, err);
	if (rc != WW_OK && rc != WW_ERR_INTERRUPTED && rc != WW_ERR_ROOM && ref_lost(t)) {
		ww_log(t->ref ? WW_LOG_WARN : WW_LOG_INFO, "the reference worker is started again: %s", err->msg);
		ww_judge_drop_ref(t);
		rc = hold_once(t, kind, fn, ctx, err);
	}
	while (ww_room_is_worth_waiting(t->judge, rc)) {
		ww_turn_drop(&t->turn);
		ww_judge_drop_ref(t);
		start = ww_now_ns();
		WW_TRY(ww_room_wait(t->judge, &nap_s, err));
		t->wait_s += ww_seconds_since(start);
		rc = hold_once(t, kind, fn, ctx, err);
	}
out:
	ww_turn_drop(&t->turn);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

struct measuring {
	struct ww_judge_task *t;
	struct built *b;
	const struct built *baseline;
	enum ww_judge_depth depth;
	struct ww_verdict *v;
	struct ww_str *diag;
	int attempts;
};

/* A solution judged together with others may be late through no fault of its own: then it is tried alone. */
static int shared_and_late(const struct ww_judge_task *t, const struct ww_verdict *v)
{
	return v->status == WW_STATUS_TIMEOUT && t->turn.kind == WW_TURN_SHARED;
}

static enum ww_rc measure_again(void *ctx, struct ww_err *err)
{
	struct measuring *m = ctx;
	struct ww_judge_task *t = m->t;
	struct ww_verdict *v = m->v;
	if (m->attempts++)
		forget(v, m->diag);
	t->reference_s = 0;
	t->spent = (struct ww_steps){ 0 };
	int heavy = t->heavy;
	t->heavy |= m->b->form != NULL; /* its process can work while another's is timed */
	enum ww_rc rc = measure(t, m->b, m->baseline, m->depth, v, m->diag, err);
	if (rc == WW_OK && shared_and_late(t, v)) {
		forget(v, m->diag);
		t->heavy = 1;
		WW_TRY(ww_judge_turn(t, WW_TURN_ALONE, err));
		rc = measure(t, m->b, m->baseline, m->depth, v, m->diag, err);
	}
out:
	t->heavy = heavy;
	v->seconds.wait = waited_s(t);
	v->seconds.reference = t->reference_s;
	v->seconds.steps = t->spent;
	v->tie_runs = (int)t->ties.runs;
	return rc;
}

static enum ww_rc measure_locked(struct ww_judge_task *t, struct built *b, const struct built *baseline,
	enum ww_judge_depth depth, struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	struct measuring m = { t, b, baseline, depth, v, diag, 0 };
	t->ties = (struct ww_ref_ties){ 0, 0 };
	if (compiles_first(t, v->form, depth))
		WW_CHECK(compile_first(t, compile_baseline, err));
	enum ww_turn_kind first = t->degenerate[0] < 0 ? WW_TURN_LOAD : WW_TURN_SHARED; /* the task's first verdict */
	return ww_judge_hold(t, b->form ? WW_TURN_ALONE : first, measure_again, &m, err);
}

static void set_ids(const struct ww_judge_task *t, const struct ww_solution *s, struct ww_verdict *v)
{
	ww_solution_id(s, v->solution_id);
	memcpy(v->task_id, t->task.id, sizeof(v->task_id));
	snprintf(v->device_name, sizeof(v->device_name), "%s", t->judge->facts.name);
	v->rule = t->rule;
	v->form = s->form;
}

static int too_large(const struct ww_solution *s, struct ww_verdict *v, struct ww_str *diag)
{
	size_t largest = s->device_bytes > s->plan_bytes ? s->device_bytes : s->plan_bytes;
	size_t total = 0;
	for (int i = 0; i < s->n_files; i++) {
		largest = s->files[i].bytes > largest ? s->files[i].bytes : largest;
		total += s->files[i].bytes;
	}
	if (largest <= WW_SOLUTION_MAX_BYTES && total <= WW_SOLUTION_MAX_TOTAL_BYTES)
		return 0;
	if (largest > WW_SOLUTION_MAX_BYTES)
		ww_str_addf(diag, "refused: a source file is larger than %d bytes", WW_SOLUTION_MAX_BYTES);
	else
		ww_str_addf(diag, "refused: the source files hold more than %d bytes", WW_SOLUTION_MAX_TOTAL_BYTES);
	v->status = WW_STATUS_REFUSED;
	return 1;
}

/* Solutions of one id run the same image and binary; their texts may differ. */
static void binary_id(const struct built *b, char out[WW_HASH_HEX])
{
	struct ww_hash_part parts[] = { { b->image, b->image->total_bytes }, { b->binary.binary, b->binary.binary_bytes } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), out);
}

static enum ww_rc build_a_form(struct ww_judge_task *t, const struct ww_solution *s, enum ww_judge_depth depth,
	struct built *b, struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	(void)depth;
	uint64_t start = ww_now_ns();
	b->form = s;
	b->extensions = -1;
	ww_judge_progress(t->judge, "compiling the kernels");
	enum ww_rc rc = ww_form_build(t, s, &b->extensions, &b->ok, &b->status, diag, err);
	v->seconds.compile = ww_seconds_since(start);
	return rc;
}

static enum ww_rc build_a_plan(struct ww_judge_task *t, const struct ww_solution *s, enum ww_judge_depth depth,
	struct built *b, struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	struct ww_err lost = WW_ERR_INIT; /* then it shows when the device is held, where the worker is started again */
	uint64_t start = ww_now_ns();
	ww_judge_progress(t->judge, "building the plan");
	WW_CHECK(build_plan(t, s, b, diag, err));
	v->seconds.plan = ww_seconds_since(start);
	if (!b->ok)
		return WW_OK;
	b->work = work_of(t, b->image, 0);
	v->library_only = b->work == WW_WORK_LIBRARY;
	if (compiles_first(t, s->form, depth)) /* beside the kernels: the worker compiles by itself */
		(void)!compile_first(t, ww_base_compile_ahead, &lost);
	start = ww_now_ns();
	ww_judge_progress(t->judge, "compiling the kernels");
	WW_CHECK(compile_code(t, s, b, diag, err));
	v->seconds.compile = ww_seconds_since(start);
	if (b->ok)
		binary_id(b, v->binary_id);
	return WW_OK;
}

static enum ww_rc build_stages(struct ww_judge_task *t, const struct ww_solution *s, enum ww_judge_depth depth,
	struct built *b, struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	int cpu = t->judge->opts.target == WW_TARGET_CPU;
	if (cpu)
		ww_work_begin();
	enum ww_rc rc = (s->form == WW_FORM_PLAN ? build_a_plan : build_a_form)(t, s, depth, b, v, diag, err);
	if (cpu)
		ww_work_end();
	if (rc == WW_OK && !b->ok)
		v->status = b->status;
	return rc;
}

/* Draws from a public seed are predictable, so the verdict says that it was made with one. */
static void add_seed_note(const struct ww_judge *j, struct ww_str *diag)
{
	if (j->opts.seed)
		ww_str_addf(diag, "note: the inputs were drawn from a seed that the caller gave\n");
}

static enum ww_rc take_diagnostics(struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	free(v->diagnostics);
	v->diagnostics = ww_reason_bounded(diag);
	return v->diagnostics ? WW_OK : ww_nomem(err);
}

static enum ww_rc build_baseline(
	struct ww_judge_task *t, const struct ww_solution *s, struct built *b, struct ww_err *err)
{
	ww_auto_str diag = WW_STR_INIT(DIAG_MAX_BYTES);
	if (s->form != WW_FORM_PLAN)
		return ww_err_set(err, WW_ERR_USAGE, "a baseline solution must be a plan");
	ww_solution_id(s, b->id);
	WW_CHECK(build_plan(t, s, b, &diag, err));
	if (b->ok)
		WW_CHECK(compile_code(t, s, b, &diag, err));
	if (!b->ok)
		return ww_err_set(err, WW_ERR_USAGE, "the baseline solution does not build: %.600s", diag.p);
	return WW_OK;
}

enum ww_rc ww_judge_run(struct ww_judge_task *t, const struct ww_solution *s, enum ww_judge_depth depth,
	struct ww_verdict *v, struct ww_err *err)
{
	return ww_judge_run_against(t, s, NULL, depth, v, err);
}

enum ww_rc ww_judge_run_against(struct ww_judge_task *t, const struct ww_solution *s,
	const struct ww_solution *baseline, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	built_auto b = { .image = NULL }, base = { .image = NULL };
	WW_AUTO(ww_judge_call_end) struct ww_exported_call call = { .why = WW_ERR_INIT };
	ww_auto_str diag = WW_STR_INIT(4 * DIAG_MAX_BYTES);
	uint64_t start = ww_now_ns();

	ww_verdict_release(v);
	set_ids(t, s, v);
	if (baseline)
		WW_CHECK(build_baseline(t, baseline, &base, err));
	if (!too_large(s, v, &diag)) {
		WW_CHECK(build_stages(t, s, depth, &b, v, &diag, err));
		if (b.ok && depth >= WW_JUDGE_CALL)
			ww_judge_call_begin(t, s, &call);
		if (b.ok && depth >= WW_JUDGE_VERIFY)
			WW_CHECK(measure_locked(t, &b, baseline ? &base : NULL, depth, v, &diag, err));
		if (depth >= WW_JUDGE_CALL)
			WW_CHECK(ww_judge_call_time(t, &call, v, &diag, err));
	}
	add_seed_note(t->judge, &diag);
	WW_CHECK(take_diagnostics(v, &diag, err));
	v->reward = ww_verdict_reward(v);
	v->seconds.total = ww_seconds_since(start);
	return WW_OK;
}

enum ww_rc ww_judge_show_plan(
	struct ww_judge_task *t, const struct ww_solution *s, struct ww_str *out, int *ok, struct ww_err *err)
{
	built_auto b = { .image = NULL };
	if (s->form != WW_FORM_PLAN)
		return ww_err_set(err, WW_ERR_USAGE, "this solution is not a plan: it has none to show");
	enum ww_rc rc = build_plan(t, s, &b, out, err);
	*ok = b.ok;
	if (rc == WW_OK && b.ok)
		ww_image_print(b.image, &t->facts, out);
	return rc;
}

enum ww_rc ww_judge_artifacts(struct ww_judge_task *t, const struct ww_solution *s, struct ww_image **image,
	struct ww_compiled *compiled, struct ww_err *err)
{
	built_auto b = { .image = NULL };
	ww_auto_str diag = WW_STR_INIT(DIAG_MAX_BYTES);

	*image = NULL;
	if (s->form != WW_FORM_PLAN)
		return ww_err_set(err, WW_ERR_USAGE, "only plans can be exported");
	WW_CHECK(build_plan(t, s, &b, &diag, err));
	if (b.ok)
		WW_CHECK(compile_code(t, s, &b, &diag, err));
	if (!b.ok)
		return ww_err_set(err, WW_ERR_USAGE, "the solution does not build: %.600s", diag.p);
	*image = b.image;
	*compiled = b.binary;
	b.image = NULL;
	ww_compiled_init(&b.binary);
	return WW_OK;
}
