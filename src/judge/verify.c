/* verify.c - correctness: the draws that a solution must pass before it is timed.
 *
 * Rule strict, in this order, so that most wrong candidates fail on the first and cheapest:
 *
 *     0  inputs as the task draws them, parameters as the module was created
 *     1  new inputs, parameters re-drawn: nothing is at its default any more
 *     2  inputs * 2^-6     3  inputs * 2^6     4  inputs + 3     (each with re-drawn parameters)
 *
 * Where a reference is not finite on one of 2 to 4 (remembered for the task), that kind of draw cannot be compared and
 * a plain draw replaces it, so that five comparisons are made in any case.  A solution that passed them runs 44 times
 * more on the last draw, compared bit by bit (repeat.c).  Rule paper: five draws, parameters as created, no repeats.
 *
 * The reference worker decides whether values match, since it holds them; this file decides which draws are compared
 * and what a failure means. */
#include "judge/internal.h"

#include "base/time.h"

#include <stdio.h>

struct variant {
	double scale, shift;
	enum ww_ref_params params;
	const char *name;
};

static const struct variant strict_draws[] = { { 1, 0, WW_REF_PARAMS_INIT, "a plain draw" },
	{ 1, 0, WW_REF_PARAMS_REDRAW, "parameters re-drawn" },
	{ 0.015625, 0, WW_REF_PARAMS_REDRAW, "inputs scaled by 2^-6" },
	{ 64, 0, WW_REF_PARAMS_REDRAW, "inputs scaled by 2^6" }, { 1, 3, WW_REF_PARAMS_REDRAW, "inputs shifted by 3" } };
static const struct variant paper_draw = { 1, 0, WW_REF_PARAMS_INIT, "a plain draw" };
static const struct variant stand_in = { 1, 0, WW_REF_PARAMS_REDRAW, "parameters re-drawn" };

static void say_draw(const struct ww_session *s, const char *what)
{
	char stage[64];
	snprintf(stage, sizeof(stage), "%s %d of %zu", what, s->v->draws + 1, WW_ARRAY_LEN(strict_draws));
	ww_judge_progress(s->t->judge, stage);
}

/* Draw, run, compare.  *finite as ww_session_check() has it. */
static enum ww_rc one_draw(struct ww_session *s, const struct variant *d, int *finite, struct ww_err *err)
{
	struct ww_run_result res;

	say_draw(s, "references for draw");
	WW_CHECK(ww_session_draw(s->t, d->scale, d->shift, d->params, err));
	say_draw(s, "running the solution on draw");
	WW_CHECK(ww_session_run(s, WW_RUN_POISON, &res, err));
	if (s->failed)
		return WW_OK;
	WW_CHECK(ww_session_check(s, d->name, finite, err));
	s->v->draws += !finite || *finite;
	return WW_OK;
}

/* A changed draw; where its references are not finite, now and for good, a plain one instead. */
static enum ww_rc changed_draw(struct ww_session *s, const struct variant *d, int *useless, struct ww_err *err)
{
	int finite = 1;
	if (!*useless)
		WW_CHECK(one_draw(s, d, &finite, err));
	*useless |= !finite;
	if (*useless && !s->failed)
		WW_CHECK(one_draw(s, &stand_in, NULL, err));
	return WW_OK;
}

enum ww_rc ww_judge_verify(struct ww_session *s, struct ww_err *err)
{
	struct ww_judge_task *t = s->t;
	int strict = t->rule == WW_RULE_STRICT;

	for (size_t i = 0; i < WW_ARRAY_LEN(strict_draws) && !s->failed; i++) {
		const struct variant *d = strict ? &strict_draws[i] : &paper_draw;
		if (d->scale == 1 && d->shift == 0)
			WW_CHECK(one_draw(s, d, NULL, err));
		else
			WW_CHECK(changed_draw(s, d, &t->variant_useless[i], err));
	}
	if (strict && !s->failed) {
		uint64_t start = ww_now_ns();
		ww_judge_progress(t->judge, "repeating the last draw");
		WW_CHECK(ww_judge_turn(t, WW_TURN_TIMED, err)); /* dozens of short waits for the device, long beside others */
		WW_CHECK(ww_judge_repeat(s, err));
		t->spent.repeat += ww_seconds_since(start);
	}
	if (!s->failed)
		s->v->correct = 1;
	return ww_ref_free(t->ref, 0, err);
}
