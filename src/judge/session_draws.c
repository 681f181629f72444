/* session_draws.c - draws inputs of a task; compares a candidate's outputs with the references of the draw. */
#include "judge/room.h"
#include "judge/session.h"
#include "judge/reasons.h"

#include "base/rng.h"
#include "base/time.h"

#include <math.h>
#include <stdlib.h>

enum { PLAIN = 3 };

uint64_t ww_session_seed(struct ww_judge_task *t)
{
	struct ww_rng g;
	if (!t->judge->opts.seed)
		return ww_rng_secret();
	ww_rng_init(&g, t->judge->opts.seed, t->draw_counter++);
	return ww_rng_u64(&g) >> 1;
}

static void note_drawn(struct ww_judge_task *t, const struct ww_ref_draw *d)
{
	t->drawn_seed = d->seed;
	t->drawn_lot = d->lot;
}

static enum ww_rc draw(struct ww_judge_task *t, const struct ww_ref_draw *d, struct ww_err *err)
{
	ww_turn_step(&t->turn);
	uint64_t start = ww_now_ns();
	enum ww_rc rc = ww_ref_draw(t->ref, d, err);
	note_drawn(t, d);
	t->reference_s += ww_seconds_since(start);
	t->spent.draw += ww_seconds_since(start);
	return rc;
}

/* Of draws by rule strict that are neither scaled nor shifted, which all that are timed are, one in PLAIN is plain and
 * the others are uneven; t->next_lot: no lot, but this. */
static enum ww_ref_lot lot_of(struct ww_judge_task *t, double scale, double shift, enum ww_ref_params params)
{
	if (t->rule != WW_RULE_STRICT || scale != 1 || shift != 0 || params != WW_REF_PARAMS_REDRAW ||
		ww_ref_has_uneven(t->ref) == 0)
		return WW_REF_LOT_NONE;
	if (t->next_lot != WW_REF_LOT_NONE)
		return t->next_lot;
	return ww_session_seed(t) % PLAIN == 0 ? WW_REF_LOT_PLAIN : WW_REF_LOT_UNEVEN;
}

static struct ww_ref_draw pooled(struct ww_judge_task *t, double scale, double shift, enum ww_ref_params params)
{
	const enum ww_ref_lot lot = lot_of(t, scale, shift, params);
	struct ww_ref_draw d = { ww_pool_next(t->pool, scale, shift, params, lot), scale, shift, params, 1, t->rule,
		ww_pool_keeps_values(t->pool), t->publish_later, lot };
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
	struct ww_ref_draw d = { ww_session_seed(t), 1, 0, params, 0, t->rule, 0, 0, 0 };
	return draw(t, &d, err);
}

/* A verdict's comparisons share these: an honest solution of a task with near ties needs some seven runs for each of a
 * dozen draws.  Then the rule decides without near ties. */
static const struct ww_ref_ties verdict_ties = { 192, 120 };

static struct ww_ref_ties ties_left(const struct ww_judge_task *t)
{
	return (struct ww_ref_ties){ verdict_ties.runs - t->ties.runs, verdict_ties.seconds - t->ties.seconds };
}

static void note_ties(struct ww_session *s, const struct ww_ref_compare *c)
{
	struct ww_judge_task *t = s->t;
	t->ties.runs += c->ties.runs;
	t->ties.seconds += c->ties.seconds;
	t->spent.ties += c->ties.seconds;
	t->spent.compare -= c->ties.seconds;
	if (!c->pass && c->ties_short)
		ww_str_addf(&s->diag,
			"  not every near tie was looked for: that had taken %lld runs with other roundings and %.0f s of a "
			"processor\n",
			(long long)t->ties.runs, t->ties.seconds);
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
	const struct ww_ref_ties may = ties_left(t);
	WW_TRY(ww_ref_compare(t->ref, t->rule, finite != NULL, next ? &d : NULL, &may, c, err));
	*drawn = c->drawn;
	if (c->drawn)
		note_drawn(t, &d);
	if (finite)
		*finite = c->finite;
	if (!c->fp64 && ww_room_is_others(t->judge))
		WW_TRY(ww_err_set(err, WW_ERR_ROOM, "the device's memory has no room for the fp64 reference beside others"));
	s->wrong = s->compared = 0;
	for (int i = 0; i < c->n_outputs; i++) {
		s->wrong += (double)c->outputs[i].violations;
		s->compared += (double)c->outputs[i].numel;
		s->v->err_rel = worse(s->v->err_rel, c->outputs[i].err_rel);
		s->v->err_abs = worse(s->v->err_abs, c->outputs[i].err_abs);
		s->v->eager_err_rel = worse(s->v->eager_err_rel, c->outputs[i].e_rel);
		s->v->eager_err_abs = worse(s->v->eager_err_abs, c->outputs[i].e_max);
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
	note_ties(s, c);
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
