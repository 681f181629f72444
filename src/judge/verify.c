/* verify.c - correctness: the draws that a solution must pass before it is timed.
 *
 * Rule strict, in this order, so that most wrong candidates fail on the first and cheapest:
 *
 *     0  inputs as the task draws them, parameters as the module was created
 *     1  new inputs, parameters re-drawn: nothing is at its default any more
 *     2  inputs * 2^-6     3  inputs * 2^6     4  inputs + 3     (each with re-drawn parameters)
 *
 * Of the kind of 1, which timed calls are of, most draws have a few elements that are much larger than the rest
 * (bridge/wwbridge/uneven.py), so that nobody estimates a sum by a part of its terms.
 *
 * Where a reference is not finite on one of 2 to 4 (remembered for the task), that kind of draw cannot be compared and
 * a plain draw replaces it, so that five comparisons are made in any case.  A solution that passed them runs 44 times
 * more on the last draw, compared bit by bit (repeat.c).  Rule paper: five draws, parameters as created, no repeats.
 *
 * The reference worker decides whether values match, since it holds them; this file decides which draws are compared
 * and what a failure means. */
#include "judge/stages.h"

#include "base/time.h"

#include <stdio.h>

static const struct ww_variant strict_draws[] = { { 1, 0, WW_REF_PARAMS_INIT, "a plain draw" },
	{ 1, 0, WW_REF_PARAMS_REDRAW, "parameters re-drawn" },
	{ 0.015625, 0, WW_REF_PARAMS_REDRAW, "inputs scaled by 2^-6" },
	{ 64, 0, WW_REF_PARAMS_REDRAW, "inputs scaled by 2^6" }, { 1, 3, WW_REF_PARAMS_REDRAW, "inputs shifted by 3" } };
static const struct ww_variant paper_draw = { 1, 0, WW_REF_PARAMS_INIT, "a plain draw" };
static const struct ww_variant stand_in = { 1, 0, WW_REF_PARAMS_REDRAW, "parameters re-drawn" };

static void say_draw(const struct ww_session *s, const char *what)
{
	char stage[64];
	snprintf(stage, sizeof(stage), "%s %d of %zu", what, s->v->draws + 1, WW_ARRAY_LEN(strict_draws));
	ww_judge_progress(s->t->judge, stage);
}

static int is_changed(const struct ww_variant *d) { return d->scale != 1 || d->shift != 0; }

/* The i-th draw, as far as is known; NULL: there are no more. */
static const struct ww_variant *planned(const struct ww_judge_task *t, size_t i)
{
	if (i >= WW_ARRAY_LEN(strict_draws))
		return NULL;
	return t->rule != WW_RULE_STRICT ? &paper_draw : t->variant_useless[i] ? &stand_in : &strict_draws[i];
}

/* Draw (where *drawn does not say that it has been done), run, compare, and draw `next`.  *finite as ww_session_check()
 * has it. */
static enum ww_rc one_draw(struct ww_session *s, const struct ww_variant *d, int *finite, const struct ww_variant *next,
	int *drawn, struct ww_err *err)
{
	struct ww_run_result res;

	say_draw(s, "references for draw");
	if (!*drawn)
		WW_CHECK(ww_session_draw(s->t, d->scale, d->shift, d->params, err));
	say_draw(s, "running the solution on draw");
	WW_CHECK(ww_session_run(s, WW_RUN_POISON, &res, err));
	if (s->failed)
		return WW_OK;
	/* The process of another form shows its outputs until the next draw. */
	WW_CHECK(ww_session_check_draw(s, d->name, finite, s->runner ? next : NULL, drawn, err));
	s->v->draws += !finite || *finite;
	return WW_OK;
}

/* The i-th draw; where it is a changed one whose references are not finite, now and for good, a plain one instead. */
static enum ww_rc draw_number(struct ww_session *s, size_t i, int *drawn, struct ww_err *err)
{
	struct ww_judge_task *t = s->t;
	const struct ww_variant *d = planned(t, i), *next = planned(t, i + 1);
	int finite = 1;
	WW_CHECK(one_draw(s, d, is_changed(d) ? &finite : NULL, next, drawn, err));
	t->variant_useless[i] |= !finite;
	if (!finite && !s->failed)
		WW_CHECK(one_draw(s, &stand_in, NULL, next, drawn, err));
	return WW_OK;
}

enum ww_rc ww_judge_verify(struct ww_session *s, struct ww_err *err)
{
	struct ww_judge_task *t = s->t;
	int strict = t->rule == WW_RULE_STRICT, drawn = 0;

	for (size_t i = 0; i < WW_ARRAY_LEN(strict_draws) && !s->failed; i++)
		WW_CHECK(draw_number(s, i, &drawn, err));
	if (strict && !s->failed) {
		uint64_t start = ww_now_ns();
		ww_judge_progress(t->judge, "repeating the last draw");
		WW_CHECK(ww_judge_turn(t, WW_TURN_TIMED, err)); /* dozens of short waits for the device, long beside others */
		WW_CHECK(ww_judge_repeat(s, err));
		t->spent.repeat += ww_seconds_since(start);
	}
	if (!s->failed)
		s->v->correct = 1;
	/* What a small task's last draw holds is small, and timing.c, which comes next, frees it. */
	return s->decide && !s->failed && !t->heavy ? WW_OK : ww_ref_free(t->ref, 0, err);
}
