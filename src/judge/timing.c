/* timing.c - times candidate and baselines, call by call, on secret draws, until the intervals are narrow.
 *
 * Sides.  The candidate; the pivot, which is the fastest of PyTorch's baselines; and, where one was asked for, the
 * baseline, another solution of the task in a runner of its own.  One round: outputs and scratch are poisoned; a new
 * draw of inputs and parameters (the same for all sides and new to all of them, so results kept from an earlier call
 * are wrong); one call of each side on flushed caches.  Which goes first is random.  On the cpu target, where a side
 * has taken less than 0.3 ms, a round makes both orders, and its sample is their mean: a median of samples of two kinds
 * would lie anywhere between them.  Candidate and baseline write the same output buffers, and the candidate must not
 * find a right answer there: on cuda it goes before the baseline, on cpu the judge poisons them again between the two.
 * In secretly chosen rounds what the candidate has written is compared, before it is called again, with references that
 * are computed only then.  Each round is chosen by lot, of the first MIN_ROUNDS MIN_CHECKED on average and of the later
 * ones one in eight; where fewer than MIN_CHECKED came out, a few rounds more are made.  All draws come by one route,
 * from the same pool, before the lot counts: neither what a candidate sees of a draw nor what it learns from the pause
 * behind an earlier call tells whether the call at hand is compared.
 *
 * Some draws are uneven, others plain (bridge/wwbridge/uneven.py).  A few numbers that are much larger than the rest
 * can make less work right, as of a softmax whose other terms vanish, and who looks for them saves it; so does who
 * estimates a sum by a part of its terms where there are none.  So where the solution is faster in rounds of the one
 * kind, beside PyTorch, only those of the other count; and MIN_PLAIN plain and MIN_UNEVEN uneven ones are compared
 * (where the reward is decided CHECKED_TO_DECIDE uneven and KIND_TO_DECIDE plain ones, and both kinds earn it).
 *
 * To decide (WW_JUDGE_DECIDE).  The reward asks only whether ratios are above one number.  After each round an interval
 * of the median of log(pivot / candidate) that holds at every number of rounds together (stats.h, ww_sequence) gives
 * two rewards, at its lower and its upper end; when they agree the reward is decided.  LEAST_TO_DECIDE rounds are the
 * fewest that can; three in four of them are compared.  A decision after so few needs every round on the same side, so
 * that a candidate that does less work in some calls is seen by those that are compared; later rounds are compared with
 * probability 1/4.  Where nothing is decided sampling goes on as for a full verdict, and where the measurement was
 * disturbed the next attempt is a full one.  Rejected: a normal model of the logarithms (their tails are heavy), and
 * looking at bootstrap intervals again and again (of 100 kernels at the boundary 20 would get the higher reward).
 *
 * Sampling goes on until the 95% intervals of the candidate's median and of the ratios are narrower than 2%, or to a
 * cap of rounds or seconds.  A caller may lower the seconds, which makes the intervals wider, but not the first
 * MIN_ROUNDS or the checks in them.  Other baselines come from cache/baselines.c, multiplied by the drift seen on the
 * pivot.
 *
 * Waiting (cpu).  The kernel reports in nanoseconds how long a side waited for processors during its call
 * (host/timed_call.h).  A round in which a side waited for more than WAIT_US and 2% of its time is set aside and made
 * again, at most MAX_ASIDE times; the verdict says how often.  MIN_CHECKED of the rounds that count are compared in any
 * case.  Where the time or MAX_ASIDE is used up before MIN_ROUNDS rounds without waiting exist, all rounds count.  The
 * measurement is then disturbed if other processes used enough CPU time to be noticed; if not, the side's own threads
 * waited for each other and for the kernel, which is part of the call's time.  If a side waited more than OWN_WAIT
 * times the CPU time that others used, its own threads blocked it: then all rounds count too.  Of a kind of draws of
 * which fewer than MIN_PLAIN rounds are left, all count.
 *
 * A measurement that was disturbed (load.c, and what its own samples show) is made again, up to MAX_ATTEMPTS times and
 * while the time lasts; the first undisturbed one counts, else the one with the narrowest intervals, and the verdict
 * says so.  The intervals of its ratios then hold all resamples of the whole and of each half
 * (ww_stats_ratio_disturbed()), and where others had the processors in nearly all calls (cpu) also what the slower side
 * did without waiting (ww_stats_ratio_crowded()).  So a kernel that is clearly faster keeps its reward where times
 * vary, noise earns none, and where others used the processors most of the time no win is shown.  Rejected: reward 1
 * for every disturbed measurement (on a GPU whose host is busy no kernel could earn more).
 *
 * What the times mean.  cuda, device_us: between two events around the launch of the plan as a CUDA graph, unless a
 * second clock that no kernel can forge says more in the middle of all calls (run/clocks.h): then what that one says.
 * cpu, and candidates of another form: the judge's clock (run/client.h, forms/forms.h, task/ref.h).  call_us is the
 * exported operator's in a fresh process, where it is asked for; on cpu the same as device_us.
 *
 * cuda, a PyTorch form.  A process that stands may have left work on the device, and a baseline then shares it: twice
 * as slow beside one idle thread (an H200).  So before each call of a baseline the reference worker writes for some
 * milliseconds; where that takes longer than it did, the device is busy.  Such work may also wait, without a thread,
 * for the next draw to be written, and be done before the clock starts.  So a draw is written to the buffers right
 * ahead of such a probe, which goes before each call of the candidate, too, and what it finds is added to the
 * candidate's time. Busy in most rounds: the solution is refused, unless others have the device; then the baseline's
 * time counts by its share.
 *
 * Too good to be true.  floor_us is the time that the bytes which must move need at 1.15 times the measured copy
 * bandwidth, less what the last cache can hold: a time below it is `suspect`.  Arithmetic that cannot have been done in
 * the time is algebra.c's business (`algebraic`, which is allowed).  After either, 20 more calls are checked. */
#include "judge/cache/baselines.h"
#include "judge/facts.h"
#include "judge/load.h"
#include "judge/stages.h"
#include "judge/forms/form.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"
#include "host/timed_call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MIN_WARM = 3,
	MAX_WARM = 10,
	MIN_ROUNDS = 10,
	LEAST_TO_DECIDE = 6,
	MAX_ROUNDS = 60,
	MAX_CALLS = 240,
	MIN_CHECKED = 8,
	CHECKED_TO_DECIDE = 3,
	CHECKED_OF_FOUR = 3, /* of the first LEAST_TO_DECIDE: where too few were, a round more costs what two checks do */
	MIN_UNCHECKED = 3,
	SUSPECT_CHECKED = 20,
	MIN_PLAIN = 3,
	MIN_UNEVEN = 7,
	KIND_TO_DECIDE = 2,
	KINDS_LATE = 4, /* times the limit of seconds, after which it is not waited for a kind */
	MAX_ASIDE = 180,
	MAX_ATTEMPTS = 3
};
static const double MAX_SECONDS = 10, BRIEF_SECONDS = 3, NARROW = 0.02, STEADY = 0.05, RESTLESS = 0.15, DRIFT = 0.03;
static const double COPY_MARGIN = 1.15, SAME = 0.03, BY_FAR = 1.5, WITNESS_SLACK_US = 2.5, WITNESS_SHARE = 0.01;
static const double SHORT_US = 300, WAIT_US = 30, WAIT_SHARE = 0.02, OWN_WAIT = 1.5, OWN_WAIT_S = 0.05;

enum side { CANDIDATE, PIVOT, BASELINE, SIDES };

/* One call of each side on one draw; where calls are short the mean of two, on two draws in both orders. */
struct round {
	double us[SIDES], waited_us[SIDES];
	double witness_us; /* of the candidate */
	int check;         /* it was compared */
	int uneven;        /* its draws were */
};

/* One attempt.  Sample i of every side is of the same round.  The n rounds that count come first, then those set aside.
 */
struct series {
	struct round rounds[WW_STATS_MAX_SAMPLES];
	int n, aside;
	int again;                              /* the last one was set aside */
	int clean;                              /* cpu: in no round that counts did a side wait */
	int too_few;                            /* cpu: too few rounds without waiting, so all count */
	int decided;                            /* the reward is certain: bounds */
	struct ww_sequence log_ratio;           /* to decide: of pivot and candidate, up to now */
	double us[SIDES][WW_STATS_MAX_SAMPLES]; /* of the n */
	double waited_us[SIDES][WW_STATS_MAX_SAMPLES];
	char disturbance[96]; /* "" where it was not disturbed */
	int policies;         /* processes of policies disturbed it */
	int certain;          /* others had the device, or it was slowed down */
	int crowded;          /* cpu: others had the processors in nearly all calls */
};

struct timing {
	struct ww_session *s;
	enum ww_baseline pivot; /* WW_BASE_COUNT: there is none */
	struct ww_rng rng;      /* secret */
	uint64_t start_ns;
	int deciding;                                  /* this attempt ends when the reward is certain */
	int unchecked;                                 /* the last round is still to be compared */
	double least_us;                               /* of all calls of all sides up to now */
	struct ww_ratio to_pivot[WW_BASE_TORCH_COUNT]; /* deciding: what the other baselines take of the pivot's time */
	struct series now, best;
};

static int on_cpu(const struct timing *x) { return x->s->t->judge->opts.target == WW_TARGET_CPU; }

static int takes_part(const struct timing *x, enum side side)
{
	return side == CANDIDATE || (side == PIVOT ? x->pivot != WW_BASE_COUNT : x->s->baseline != NULL);
}

/* What PyTorch's baselines are compared by: where the candidate is timed by the clock, a whole call of theirs. */
static enum ww_ref_mode base_mode(const struct timing *x) { return x->s->ops->by_clock ? WW_REF_CLOCK : WW_REF_DEVICE; }

/* ---- One call of a side ------------------------------------------------------------------------------------------ */

/* A session's candidate once, on the current draw; prepared before it was made. */
static enum ww_rc go_once(struct ww_session *s, double *us, struct ww_err *err)
{
	struct ww_run_result res;
	if (s->t->judge->opts.target == WW_TARGET_CPU)
		ww_ref_settle(s->t->ref);
	enum ww_rc rc = ww_session_go(s, &res, err);
	if (rc != WW_OK || s->failed)
		return rc;
	*us = isfinite(res.device_us) ? res.device_us : (double)res.elapsed_ns * 1e-3;
	if (!(*us > 0))
		return ww_err_set(err, WW_ERR_DEVICE, "the device's clock gave no time");
	return WW_OK;
}

static enum ww_rc check_call(struct ww_session *s, struct ww_err *err)
{
	if (s->failed)
		return WW_OK;
	s->v->checked_calls++;
	return ww_session_check(s, "a timed call", NULL, err);
}

/* What the round before left to be compared, and a new draw behind it: compared or not, nobody can tell from it. */
static enum ww_rc next_draw(struct timing *x, struct ww_err *err)
{
	static const struct ww_variant redrawn = { 1, 0, WW_REF_PARAMS_REDRAW, NULL };
	int drawn = 0;
	enum ww_rc rc = WW_OK;
	x->s->t->publish_later = x->s->ops->by_clock && !on_cpu(x); /* ww_form_probe() */
	if (x->unchecked) {
		x->unchecked = 0;
		x->s->v->checked_calls++;
		rc = ww_session_check_draw(x->s, "a timed call", NULL, &redrawn, &drawn, err);
	}
	if (rc == WW_OK && !drawn && !x->s->failed)
		rc = ww_session_draw(x->s->t, 1, 0, WW_REF_PARAMS_REDRAW, err);
	x->s->t->publish_later = 0;
	return rc;
}

static enum ww_rc check_last(struct timing *x, struct ww_err *err)
{
	int unchecked = x->unchecked;
	x->unchecked = 0;
	return unchecked ? check_call(x->s, err) : WW_OK;
}

/* The baseline has been verified; what it does wrong now is no fault of the candidate's. */
static enum ww_rc baseline_once(struct ww_session *r, double *us, struct ww_err *err)
{
	enum ww_rc rc = go_once(r, us, err);
	if (rc == WW_OK && r->failed)
		rc = ww_err_set(err, WW_ERR_USAGE, "the baseline solution failed: %.400s", r->diag.p);
	return rc;
}

static enum ww_rc side_once(struct timing *x, enum side side, double *us, struct ww_err *err)
{
	enum ww_rc rc;
	switch (side) {
	case CANDIDATE: rc = go_once(x->s, us, err); break;
	case PIVOT: rc = ww_base_once(x->s->t, x->pivot, base_mode(x), us, err); break;
	default: rc = baseline_once(x->s->baseline, us, err);
	}
	if (rc == WW_OK && !x->s->failed)
		x->least_us = fmin(x->least_us, *us);
	return rc;
}

static double waited_us(const struct timing *x, enum side side)
{
	return side == PIVOT ? x->s->t->base_waited_us : side == CANDIDATE ? x->s->waited_us : x->s->baseline->waited_us;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

static enum ww_rc prepare(struct ww_session *s, int check, struct ww_err *err)
{
	const unsigned flags = WW_RUN_POISON | WW_RUN_FLUSH | (check ? WW_RUN_GUARDS : 0);
	struct ww_session *r = s->baseline;
	enum ww_rc rc = r ? ww_session_prepare(r, flags, err) : WW_OK;
	if (rc == WW_OK && r && r->failed)
		rc = ww_err_set(err, WW_ERR_USAGE, "the baseline solution failed: %.400s", r->diag.p);
	return rc == WW_OK ? ww_session_prepare(s, flags, err) : rc;
}

/* A candidate that comes behind the baseline must not find its answers.  On cuda it never does; of another form it has
 * outputs of its own. */
static int may_come_last(const struct timing *x) { return on_cpu(x) && x->s->runner; }

/* What the candidate has written is compared before the next call, where somebody else may write there: another
 * solution, or on the cpu target the candidate itself.  Else together with the next draw: the device changes to the
 * reference worker once for both. */
static int compares_at_once(const struct timing *x) { return x->s->baseline || x->s->t->turn.kind != WW_TURN_TIMED; }

/* r->us[side] gets the time of each side that takes part, in this order. */
static enum ww_rc call_sides(
	struct timing *x, const enum side order[SIDES], int check, struct round *r, struct ww_err *err)
{
	for (int k = 0; k < SIDES && !x->s->failed; k++)
		if (takes_part(x, order[k])) {
			if (k == 2 && order[k] == CANDIDATE)
				ww_runner_poison(x->s->runner);
			WW_CHECK(side_once(x, order[k], &r->us[order[k]], err));
			r->waited_us[order[k]] = on_cpu(x) ? waited_us(x, order[k]) : 0;
			if (check && order[k] == CANDIDATE && compares_at_once(x))
				WW_CHECK(check_call(x->s, err));
		}
	return WW_OK;
}

/* `last`: the candidate goes behind the others. */
static enum ww_rc one_round(struct timing *x, int check, int last, struct round *r, struct ww_err *err)
{
	static const enum side orders[3][SIDES] = { { CANDIDATE, BASELINE, PIVOT }, { PIVOT, CANDIDATE, BASELINE },
		{ PIVOT, BASELINE, CANDIDATE } };
	WW_CHECK(prepare(x->s, check, err));
	if (x->s->failed)
		return WW_OK;
	WW_CHECK(next_draw(x, err));
	if (x->s->failed)
		return WW_OK;
	ww_turn_call(&x->s->t->turn);
	enum ww_rc rc = call_sides(x, orders[last + (last && may_come_last(x))], check, r, err);
	ww_turn_called(&x->s->t->turn);
	if (rc != WW_OK)
		return rc;
	x->unchecked = check && !compares_at_once(x);
	r->witness_us = x->s->witness_us;
	r->check = check;
	r->uneven = x->s->t->drawn_lot == WW_REF_LOT_UNEVEN;
	return WW_OK;
}

/* The pivot once; then candidate and baseline at least three times, and until two times in a row agree.  All on the
 * draw that came last: nothing that is measured here counts. */
static enum ww_rc warm_up(struct timing *x, struct ww_err *err)
{
	double us[SIDES] = { 0 }, last = 0;
	if (takes_part(x, PIVOT))
		WW_CHECK(side_once(x, PIVOT, &us[PIVOT], err));
	for (int k = 0; k < MAX_WARM && !x->s->failed; k++) {
		WW_CHECK(prepare(x->s, 0, err));
		if (!x->s->failed)
			WW_CHECK(side_once(x, CANDIDATE, &us[CANDIDATE], err));
		if (!x->s->failed && takes_part(x, BASELINE))
			WW_CHECK(side_once(x, BASELINE, &us[BASELINE], err));
		if (k + 1 >= MIN_WARM && fabs(us[CANDIDATE] - last) <= STEADY * us[CANDIDATE])
			break;
		last = us[CANDIDATE];
	}
	return WW_OK;
}

static int somebody_waited(const struct round *r)
{
	for (int side = 0; side < SIDES; side++)
		if (r->waited_us[side] > WAIT_US && r->waited_us[side] > WAIT_SHARE * r->us[side])
			return 1;
	return 0;
}

/* On the cpu target the side that goes first may be faster by some microseconds, which counts for a side whose calls
 * are short.  By the least of all times, so that the answer does not depend on which order came first in a round. */
static int counts_order(const struct timing *x) { return on_cpu(x) && x->least_us < SHORT_US; }

static void add_other_order(struct round *r, const struct round *other)
{
	for (int side = 0; side < SIDES; side++) {
		r->us[side] = (r->us[side] + other->us[side]) / 2;
		r->waited_us[side] = fmax(r->waited_us[side], other->waited_us[side]);
	}
}

static enum ww_rc sampled_round(struct timing *x, int check, struct ww_err *err)
{
	struct series *e = &x->now;
	struct round r = { { 0 }, { 0 }, NAN, 0, 0 }, other = r;
	int last = (int)ww_rng_below(&x->rng, 2);
	WW_CHECK(one_round(x, check, last, &r, err));
	if (!x->s->failed && counts_order(x)) {
		x->s->t->next_lot = r.uneven ? WW_REF_LOT_UNEVEN : WW_REF_LOT_PLAIN;
		enum ww_rc rc = one_round(x, check, !last, &other, err);
		x->s->t->next_lot = WW_REF_LOT_NONE;
		WW_CHECK(rc);
		add_other_order(&r, &other);
	}
	if (x->s->failed)
		return WW_OK;
	e->again = somebody_waited(&r);
	e->rounds[e->n + e->aside] = r;
	if (e->again) {
		e->aside++;
		return WW_OK;
	}
	e->rounds[e->n + e->aside] = e->rounds[e->n];
	e->rounds[e->n++] = r;
	return WW_OK;
}

/* The samples of the rounds that count. */
static void lay_out(struct series *e)
{
	for (int k = 0; k < e->n; k++)
		for (int side = 0; side < SIDES; side++) {
			e->us[side][k] = e->rounds[k].us[side];
			e->waited_us[side][k] = e->rounds[k].waited_us[side];
		}
}

static int min_rounds(const struct timing *x) { return x->deciding ? LEAST_TO_DECIDE : MIN_ROUNDS; }

static struct ww_ratio ratio(const struct series *e, enum side base)
{
	if (e->disturbance[0] && e->crowded)
		return ww_stats_ratio_crowded(e->us[base], e->waited_us[base], e->us[CANDIDATE], e->waited_us[CANDIDATE], e->n);
	return e->disturbance[0] ? ww_stats_ratio_disturbed(e->us[base], e->us[CANDIDATE], e->n)
							 : ww_stats_ratio_paired(e->us[base], e->us[CANDIDATE], e->n, WW_STATS_95);
}

static struct ww_ratio interval(const struct series *e)
{
	return ww_stats_interval(e->us[CANDIDATE], e->n, e->disturbance[0] ? WW_STATS_999 : WW_STATS_95);
}

/* The widest of the intervals that the verdict rests on. */
static double width(const struct timing *x, const struct series *e)
{
	double w = ww_stats_width(interval(e));
	for (int side = PIVOT; side < SIDES; side++)
		if (takes_part(x, side))
			w = fmax(w, ww_stats_width(ratio(e, side)));
	return w;
}

static double limit_s(const struct timing *x)
{
	double limit = x->s->brief ? BRIEF_SECONDS : MAX_SECONDS, asked = x->s->t->judge->opts.max_time_s;
	return asked > 0 ? fmin(asked, limit) : limit;
}

/* A candidate that counts its calls knows that few of the later ones are compared, and could do less work in the
 * others.  So where the rounds that were not compared were faster, only the compared ones count. */
static void hold_to_checked(struct series *e)
{
	double us[2][WW_STATS_MAX_SAMPLES];
	int n[2] = { 0, 0 }, n_checked = 0;
	for (int k = 0; k < e->n; k++) {
		int check = e->rounds[k].check != 0;
		us[check][n[check]++] = e->rounds[k].us[CANDIDATE];
	}
	if (n[0] < MIN_UNCHECKED || n[1] < MIN_CHECKED ||
		ww_stats_median(us[0], n[0]) >= (1 - SAME) * ww_stats_median(us[1], n[1]))
		return;
	for (int k = 0; k < e->n; k++)
		if (e->rounds[k].check)
			e->rounds[n_checked++] = e->rounds[k];
	e->n = n_checked;
}

static int has_kinds(const struct timing *x) { return ww_ref_has_uneven(x->s->t->ref) > 0; }

/* Of the rounds of each kind: [0] plain, [1] uneven. */
struct kinds {
	double x[2][WW_STATS_MAX_SAMPLES];
	int n[2];
};

/* What `of` says of each round that counts. */
static void sort_kinds(
	const struct series *e, double (*of)(const struct round *r, enum side side), enum side side, struct kinds *k)
{
	k->n[0] = k->n[1] = 0;
	for (int i = 0; i < e->n; i++) {
		int uneven = e->rounds[i].uneven;
		k->x[uneven][k->n[uneven]++] = of(&e->rounds[i], side);
	}
}

static double time_of(const struct round *r, enum side side) { return r->us[side]; }

static double to_candidate(const struct round *r, enum side side) { return r->us[side] / r->us[CANDIDATE]; }

/* 1: a side is surely faster in this kind of draws than in the other, or in the middle by far (who saves in most of
 * them has two kinds of times there, and few rounds prove nothing); -1: slower; 0: neither is known. */
static int direction(const struct series *e, enum side side, int kind)
{
	struct kinds k;
	sort_kinds(e, time_of, side, &k);
	if (k.n[0] < MIN_PLAIN || k.n[1] < MIN_PLAIN)
		return 0;
	struct ww_ratio r = ww_stats_ratio(k.x[!kind], k.n[!kind], 1, k.x[kind], k.n[kind], WW_STATS_95);
	if (r.mid >= BY_FAR || (r.lo > 1 && r.mid >= 1 + SAME))
		return 1;
	return 1 / r.mid >= BY_FAR || (r.hi < 1 && 1 / r.mid >= 1 + SAME) ? -1 : 0;
}

/* Does this kind of draws show the candidate faster, beside what it is compared with, than the other does?  Not by
 * their ratio at once: on a busy machine PyTorch's times hide by how much the candidate's differ. */
static int favours(const struct timing *x, const struct series *e, int kind)
{
	struct kinds k;
	enum side base = takes_part(x, PIVOT) ? PIVOT : BASELINE;
	int mine = direction(e, CANDIDATE, kind), its = takes_part(x, base) ? direction(e, base, kind) : 0;
	if (mine != its || !mine)
		return mine > its;
	sort_kinds(e, to_candidate, base, &k);
	return ww_stats_median(k.x[kind], k.n[kind]) > (1 + SAME) * ww_stats_median(k.x[!kind], k.n[!kind]);
}

/* Neither kind of draws earns anything that the other does not. */
static void hold_to_slower_kind(const struct timing *x, struct series *e)
{
	int n = 0, fast = !has_kinds(x) ? -1 : favours(x, e, 0) ? 0 : favours(x, e, 1) ? 1 : -1;
	if (fast < 0)
		return;
	ww_log(WW_LOG_DEBUG, "timed: %s draws favour the solution and do not count", fast ? "uneven" : "plain");
	for (int i = 0; i < e->n; i++)
		if (e->rounds[i].uneven != fast)
			e->rounds[n++] = e->rounds[i];
	e->n = n;
}

/* Native code can make its own threads wait, so that a round is set aside.  Where that left nearly none of a kind of
 * draws, those of that kind count all the same: or a solution would choose the kind in which it is faster.  Returns how
 * many these are. */
static int keep_kinds(const struct timing *x, struct series *e)
{
	int end = e->n + e->aside, before = e->n;
	struct kinds k;
	sort_kinds(e, time_of, CANDIDATE, &k);
	for (int i = e->n; has_kinds(x) && i < end; i++) {
		struct round r = e->rounds[i];
		if (k.n[r.uneven] >= MIN_PLAIN)
			continue;
		e->rounds[i] = e->rounds[e->n];
		e->rounds[e->n++] = r;
	}
	e->aside = end - e->n;
	return e->n - before;
}

static void hold_to_stamps(struct series *e)
{
	double us[WW_STATS_MAX_SAMPLES], witness_us[WW_STATS_MAX_SAMPLES];
	for (int k = 0; k < e->n; k++) {
		us[k] = e->rounds[k].us[CANDIDATE];
		witness_us[k] = e->rounds[k].witness_us;
	}
	ww_stats_hold(us, witness_us, e->n, WITNESS_SLACK_US, WITNESS_SHARE);
	for (int k = 0; k < e->n; k++)
		e->rounds[k].us[CANDIDATE] = us[k];
}

/* Whole calls of a process on cuda vary with what its host does: more of them are needed. */
static int most_rounds(const struct timing *x) { return x->s->ops->by_clock && !on_cpu(x) ? MAX_CALLS : MAX_ROUNDS; }

/* ---- Deciding ---------------------------------------------------------------------------------------------------- */

static void note_ratio(struct series *e, int k)
{
	ww_sequence_add(&e->log_ratio, log(e->rounds[k].us[PIVOT] / e->rounds[k].us[CANDIDATE]));
}

/* From one end of the interval to the other, by how a baseline compares with the pivot. */
static struct ww_ratio bounds(const struct timing *x, const struct series *e, int b)
{
	const struct ww_ratio *r = &x->to_pivot[b];
	return (struct ww_ratio){ exp(e->log_ratio.lo) * r->lo, NAN, exp(e->log_ratio.hi) * r->hi };
}

/* The reward of a solution that is so many times as fast as the pivot, at the lower (or the upper) ends of what that is
 * beside other baselines. */
static double reward_at(const struct timing *x, double to_pivot, int upper)
{
	struct ww_verdict v = *x->s->v;
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (isfinite(x->to_pivot[b].mid))
			v.speedup[b].lo = to_pivot * (upper ? x->to_pivot[b].hi : x->to_pivot[b].lo);
	return ww_verdict_reward(&v);
}

/* Were there rounds of both kinds of draws, and does the middle of either earn as much? */
static int kinds_agree(const struct timing *x, const struct series *e, double reward)
{
	struct kinds k;
	sort_kinds(e, to_candidate, PIVOT, &k);
	for (int i = 0; i < 2; i++)
		if (k.n[i] < KIND_TO_DECIDE || reward_at(x, ww_stats_median(k.x[i], k.n[i]), 0) < reward)
			return 0;
	return 1;
}

/* Is the reward at the lower end more than the least, so that each kind of draws must earn it? */
static int earns_by_kinds(const struct timing *x, const struct series *e)
{
	return has_kinds(x) && reward_at(x, exp(e->log_ratio.lo), 0) > reward_at(x, 0, 0);
}

static int is_decided(const struct timing *x, const struct series *e)
{
	if (!x->deciding || e->log_ratio.n < LEAST_TO_DECIDE)
		return 0;
	double reward = reward_at(x, exp(e->log_ratio.lo), 0);
	return reward == reward_at(x, exp(e->log_ratio.hi), 1) && (!earns_by_kinds(x, e) || kinds_agree(x, e, reward));
}

/* Decide the reward again, from the rounds that count in the end. */
static void decide_again(const struct timing *x, struct series *e)
{
	ww_sequence_init(&e->log_ratio);
	for (int k = 0; x->deciding && k < e->n; k++)
		note_ratio(e, k);
	e->decided = is_decided(x, e);
}

/* The baselines that are not called, by what was measured of them before.  mid is NAN where there is no such one. */
static void compare_baselines(struct timing *x)
{
	struct ww_judge_task *t = x->s->t;
	const struct ww_base *pivot = x->pivot == WW_BASE_COUNT ? NULL : ww_base_of(t, (int)x->pivot);
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		const struct ww_base *base = ww_base_of(t, b);
		x->to_pivot[b] = (struct ww_ratio){ NAN, NAN, NAN };
		if (!pivot || !(t->judge->opts.baselines & (1u << b)) || !base->available)
			continue;
		enum ww_stats_sure sure = base->disturbed || pivot->disturbed ? WW_STATS_999 : WW_STATS_95;
		x->to_pivot[b] = b == (int)x->pivot ? (struct ww_ratio){ 1, 1, 1 }
											: ww_stats_ratio(base->us, base->n, 1, pivot->us, pivot->n, sure);
	}
}

/* ---- When to stop ------------------------------------------------------------------------------------------------ */

static int enough(struct timing *x)
{
	struct series *e = &x->now;
	if (e->n + e->aside >= min_rounds(x) && ww_seconds_since(x->start_ns) > limit_s(x))
		return 1;
	if (x->deciding && !e->again) {
		note_ratio(e, e->n - 1);
		if (is_decided(x, e))
			return 1;
	}
	if (e->n < MIN_ROUNDS || e->again)
		return e->aside >= MAX_ASIDE;
	if ((e->n > MAX_ROUNDS && e->n % 8) || (x->deciding && e->n % 4)) /* many resamples: not after each */
		return 0;
	lay_out(e);
	ww_turn_pause(&x->s->t->turn);
	int narrow = e->n >= most_rounds(x) || width(x, e) < NARROW;
	ww_turn_resume(&x->s->t->turn);
	return narrow;
}

/* Each round by lot, so that what a solution knows of earlier rounds says nothing about the next. */
static int shall_check(struct timing *x)
{
	if (x->now.n >= min_rounds(x))
		return ww_rng_below(&x->rng, x->deciding ? 4 : 8) == 0;
	return x->deciding ? ww_rng_below(&x->rng, 4) < CHECKED_OF_FOUR : ww_rng_below(&x->rng, MIN_ROUNDS) < MIN_CHECKED;
}

/* Of the rounds that will count, how many of each kind were compared. */
static void count_checked(const struct timing *x, const struct series *e, int n[2])
{
	n[0] = n[1] = 0;
	for (int k = 0; k < (e->n < min_rounds(x) ? e->n + e->aside : e->n); k++)
		n[e->rounds[k].uneven] += e->rounds[k].check;
}

/* Too few of them, in all or of a kind.  Who estimates by a part of the terms is wrong in uneven ones alone; who is
 * fast in these alone may be wrong in plain ones, which have to earn the reward, too. */
static int lacks_checked(const struct timing *x, const struct series *e)
{
	int n[2];
	count_checked(x, e, n);
	if (is_decided(x, e))
		return n[1] + (has_kinds(x) ? 0 : n[0]) < CHECKED_TO_DECIDE || (earns_by_kinds(x, e) && n[0] < KIND_TO_DECIDE);
	return n[0] + n[1] < MIN_CHECKED ||
		(has_kinds(x) && (n[0] < MIN_PLAIN || n[1] < MIN_UNEVEN) &&
			ww_seconds_since(x->start_ns) < KINDS_LATE * limit_s(x));
}

/* The kind of the next draw where a decision lacks nothing but compared rounds of that kind. */
static enum ww_ref_lot lacking_lot(const struct timing *x, const struct series *e)
{
	int n[2];
	count_checked(x, e, n);
	return !has_kinds(x) || !is_decided(x, e) ? WW_REF_LOT_NONE
		: n[1] < CHECKED_TO_DECIDE            ? WW_REF_LOT_UNEVEN
											  : WW_REF_LOT_PLAIN;
}

static enum ww_rc sample(struct timing *x, struct ww_err *err)
{
	do
		WW_CHECK(sampled_round(x, shall_check(x), err));
	while (!x->s->failed && !enough(x));
	while (!x->s->failed && lacks_checked(x, &x->now) && x->now.aside < MAX_ASIDE &&
		x->now.n + x->now.aside < WW_STATS_MAX_SAMPLES) {
		x->s->t->next_lot = lacking_lot(x, &x->now);
		enum ww_rc rc = sampled_round(x, 1, err);
		x->s->t->next_lot = WW_REF_LOT_NONE;
		WW_CHECK(rc);
	}
	return check_last(x, err);
}

/* Which rounds count? */
static void settle(struct timing *x, const struct ww_disturbance *d)
{
	struct series *e = &x->now;
	double waited_s = 0;
	for (int k = 0; k < e->n + e->aside; k++)
		for (int side = 0; side < SIDES; side++)
			waited_s += e->rounds[k].waited_us[side] * 1e-6;
	int own = waited_s > OWN_WAIT * d->others_s + OWN_WAIT_S;
	e->clean = e->n >= min_rounds(x) && !own && on_cpu(x) && ww_wait_is_measured();
	e->too_few = e->n < min_rounds(x);
	if (e->too_few || own) {
		e->n += e->aside;
		e->aside = 0;
	}
	e->clean &= !keep_kinds(x, e);
	hold_to_stamps(e);
	decide_again(x, e);
	if (!e->decided) {
		hold_to_checked(e);
		hold_to_slower_kind(x, e);
	}
	lay_out(e);
}

/* ---- Attempts ---------------------------------------------------------------------------------------------------- */

/* The second half of the samples against the first, as a ratio to one. */
static double drift(const double *us, int n)
{
	return fabs(ww_stats_median(us + n / 2, n - n / 2) / ww_stats_median(us, n / 2) - 1);
}

/* Both the machine's counters and the samples are looked at, since each misses disturbances that the other shows. */
static void look_for_disturbance(struct timing *x, const struct ww_disturbance *d)
{
	struct series *e = &x->now;
	e->disturbance[0] = 0;
	e->policies = d->policies;
	e->certain = d->certain;
	e->crowded = e->too_few && d->noticed;
	double w = width(x, e), moved = drift(e->us[CANDIDATE], e->n), spread = ww_stats_spread(e->us[CANDIDATE], e->n);

	if (d->policies || (d->certain && !e->clean) || (d->noticed && w >= NARROW && !e->decided))
		snprintf(e->disturbance, sizeof(e->disturbance), "%s", d->why);
	else if (e->crowded)
		snprintf(e->disturbance, sizeof(e->disturbance), "others had the processors in nearly all calls");
	else if (e->decided) /* by rounds that agree, each of sides that took turns: what changes slowly hits all */
		e->disturbance[0] = 0;
	else if (moved > DRIFT && moved > 2 * w)
		snprintf(e->disturbance, sizeof(e->disturbance), "the times drifted by %.0f%%", 100 * moved);
	else if (spread > RESTLESS && w >= NARROW)
		snprintf(e->disturbance, sizeof(e->disturbance), "the times vary by %.0f%%", 100 * spread);
	ww_log(WW_LOG_DEBUG, "timed: %d rounds%s%s, %d set aside, widest interval %.2f%%, drift %.2f%%, spread %.2f%%; %s",
		e->n, e->too_few ? " with waiting" : "", e->decided ? ", decided" : "", e->aside, 100 * w, 100 * moved,
		100 * spread,
		e->disturbance[0] ? e->disturbance
			: d->noticed  ? d->why
						  : "undisturbed");
}

static enum ww_rc attempt(struct timing *x, struct ww_err *err)
{
	const struct ww_session *s = x->s;
	const pid_t own[] = { ww_ref_pid(s->t->ref), s->ops->pid(s->candidate),
		s->baseline ? s->baseline->ops->pid(s->baseline->candidate) : 0, ww_form_base_pid(s->t, x->pivot),
		s->t->beside ? ww_ref_pid(s->t->beside) : 0 };
	struct ww_disturbance d;
	struct ww_load load;
	x->now.n = x->now.aside = x->now.again = x->now.decided = 0;
	x->now.disturbance[0] = 0;
	x->deciding = s->decide && !s->v->attempts && x->pivot != WW_BASE_COUNT;
	ww_sequence_init(&x->now.log_ratio);
	ww_turn_call(&s->t->turn); /* all of them in one row */
	x->s->warm = 1;
	enum ww_rc rc = warm_up(x, err);
	x->s->warm = 0;
	ww_turn_called(&s->t->turn);
	if (rc != WW_OK || s->failed)
		return rc;
	ww_load_start(&load, s->t->judge, own, WW_ARRAY_LEN(own), !x->deciding);
	WW_CHECK(sample(x, err));
	if (s->failed)
		return WW_OK;
	ww_turn_pause(&s->t->turn);
	ww_load_end(&load, &d);
	settle(x, &d);
	look_for_disturbance(x, &d);
	ww_turn_resume(&s->t->turn);
	return WW_OK;
}

static int better(const struct timing *x)
{
	return x->now.policies != x->best.policies ? x->best.policies
											   : !x->now.disturbance[0] || width(x, &x->now) < width(x, &x->best);
}

/* Make more calls, whose outputs are compared. */
static enum ww_rc check_more(struct timing *x, int calls, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	x->now.n = x->now.aside = 0;
	for (int k = 0; rc == WW_OK && k < calls && !x->s->failed; k++)
		rc = sampled_round(x, 1, err);
	return rc == WW_OK ? check_last(x, err) : rc;
}

/* cuda: a process that stands may have left work on the device, which makes baselines slow or is done ahead of a call.
 */
static void refuse_busy_device(const struct timing *x)
{
	const struct ww_judge_task *t = x->s->t;
	if (!x->best.certain && t->base_calls > 0 && 2 * t->busy_calls > t->base_calls)
		ww_session_fail(x->s, WW_STATUS_REFUSED,
			"refused: work was left on the device: it was busy while the solution's process stood, before %d calls in %d "
			"rounds",
			t->busy_calls, t->base_calls);
}

static enum ww_rc measure(struct timing *x, struct ww_err *err)
{
	struct ww_verdict *v = x->s->v;
	x->start_ns = ww_now_ns();
	x->s->t->base_calls = x->s->t->busy_calls = 0;
	x->s->t->ahead_us = 0;
	for (v->attempts = 0; v->attempts < MAX_ATTEMPTS;) {
		uint64_t start_ns = ww_now_ns();
		WW_CHECK(attempt(x, err));
		if (x->s->failed)
			return WW_OK;
		if (!v->attempts++ || better(x))
			x->best = x->now;
		if (!x->best.disturbance[0] || x->s->brief ||
			ww_seconds_since(x->start_ns) + ww_seconds_since(start_ns) > limit_s(x))
			break;
	}
	refuse_busy_device(x);
	if (x->s->failed)
		return WW_OK;
	v->disturbed = x->best.disturbance[0] != 0;
	v->shell_load = x->best.policies;
	v->set_aside = x->best.aside;
	v->rounds = x->best.n;
	v->decided = x->best.decided && !v->disturbed;
	snprintf(v->disturbance, sizeof(v->disturbance), "%s", x->best.disturbance);
	/* Where a disturbance has taken a decision back and no time was left for a full attempt. */
	return v->decided ? WW_OK : check_more(x, MIN_CHECKED - v->checked_calls, err);
}

/* ---- What follows from the samples ------------------------------------------------------------------------------- */

static void set_baseline_solution(const struct timing *x)
{
	struct ww_verdict *v = x->s->v;
	const struct series *e = &x->best;
	v->baseline_measured[WW_BASE_SOLUTION] = 1;
	v->baselines[WW_BASE_SOLUTION] = (struct ww_times){ ww_stats_median(e->us[BASELINE], e->n), NAN };
	v->speedup[WW_BASE_SOLUTION] = ratio(e, BASELINE);
}

/* Against a baseline that was timed at another time.  Where that measurement or this one was disturbed, how much the
 * machine has changed since is not known either: what is left are two ratios, each of sides that took turns. */
static struct ww_ratio ratio_of_cached(const struct timing *x, const struct ww_base *base, double moved)
{
	const struct ww_base *before = ww_base_of(x->s->t, (int)x->pivot);
	const struct series *e = &x->best;
	struct ww_ratio r = ww_stats_ratio(base->us, base->n, moved, e->us[CANDIDATE], e->n, WW_STATS_95);
	if (!e->disturbance[0] && !base->disturbed && !before->disturbed)
		return r;
	struct ww_ratio pivots = ww_stats_ratio(base->us, base->n, 1, before->us, before->n, WW_STATS_999),
					ours = ratio(e, PIVOT);
	return (struct ww_ratio){ pivots.lo * ours.lo, r.mid, pivots.hi * ours.hi };
}

static void set_ratios(const struct timing *x)
{
	struct ww_judge_task *t = x->s->t;
	struct ww_verdict *v = x->s->v;
	const struct series *e = &x->best;
	double moved = 1;
	if (x->pivot != WW_BASE_COUNT) {
		const struct ww_base *before = ww_base_of(t, (int)x->pivot);
		moved = ww_stats_median(e->us[PIVOT], e->n) / ww_stats_median(before->us, before->n);
	}
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		const struct ww_base *base = ww_base_of(t, b);
		if (!(t->judge->opts.baselines & (1u << b)) || !base->available)
			continue;
		if (!strcmp(base->method, "kernels"))
			ww_verdict_uncaptured(v);
		v->baseline_measured[b] = 1;
		v->baselines[b].device_us = ww_stats_median(base->us, base->n) * moved;
		v->baselines[b].call_us = ww_stats_median(base->call_us, base->n_call) * moved;
		v->speedup[b] = (int)x->pivot == b ? ratio(e, PIVOT) : ratio_of_cached(x, base, moved);
		if (v->decided) {
			struct ww_ratio sure = bounds(x, e, b);
			v->speedup[b] = (struct ww_ratio){ sure.lo, v->speedup[b].mid, sure.hi };
		}
		if (on_cpu(x) || t->by_clock)
			v->speedup_call[b] = v->speedup[b];
	}
}

static void set_times(const struct timing *x)
{
	struct ww_verdict *v = x->s->v;
	v->time_device = interval(&x->best);
	v->time.device_us = v->time_device.mid;
	if (on_cpu(x) || x->s->ops->by_clock)
		v->time.call_us = v->time.device_us;
	strcpy(v->device_method,
		on_cpu(x) || x->s->ops->by_clock                       ? "clock"
			: x->s->image && ww_pytorch_count(x->s->image) > 0 ? "parts"
															   : "graph");
}

static void compare_with_floor(struct ww_session *s)
{
	const struct ww_device *d = &s->t->facts.device;
	double cache = (double)(d->target == WW_TARGET_CPU ? d->l3_bytes : d->l2_bytes), bytes = s->t->bytes - cache;
	struct ww_ref_peaks p;
	ww_judge_peaks(s->t->judge, &p);
	if (p.memory_bytes_per_s <= 0)
		return;
	s->v->floor_us = bytes > 0 ? bytes / (COPY_MARGIN * p.memory_bytes_per_s) * 1e6 : 0;
	s->v->suspect = s->v->time.device_us < s->v->floor_us;
}

/* Before a verdict becomes `suspect` the bandwidth is measured again, since it may have been measured on a busy
 * machine. */
static enum ww_rc set_floor(struct ww_session *s, struct ww_err *err)
{
	compare_with_floor(s);
	if (s->v->suspect) {
		WW_CHECK(ww_judge_device_again(s->t, err));
		compare_with_floor(s);
	}
	return WW_OK;
}

enum ww_rc ww_judge_time(struct ww_session *s, struct ww_err *err)
{
	ww_auto_free struct timing *x = calloc(1, sizeof(*x));

	if (!x)
		return ww_nomem(err);
	x->s = s;
	x->least_us = INFINITY;
	ww_rng_init(&x->rng, ww_rng_secret(), 0);
	WW_CHECK(ww_base_all(s->t, &x->pivot, err));
	if (x->pivot != WW_BASE_COUNT)
		WW_CHECK(ww_base_prepare(s->t, x->pivot, err));
	ww_turn_pause(&s->t->turn); /* it is that of the repeats */
	compare_baselines(x);
	ww_turn_resume(&s->t->turn);
	WW_CHECK(ww_judge_turn(s->t, WW_TURN_TIMED, err));
	ww_judge_progress(s->t->judge, "timing the solution");
	WW_CHECK(measure(x, err));
	if (s->failed)
		return WW_OK;
	ww_turn_pause(&s->t->turn);
	set_times(x);
	set_ratios(x);
	if (s->baseline)
		set_baseline_solution(x);
	ww_turn_resume(&s->t->turn);
	WW_CHECK(set_floor(s, err));
	WW_CHECK(ww_judge_algebraic(s, err));
	if (s->v->suspect || s->v->algebraic)
		WW_CHECK(check_more(x, SUSPECT_CHECKED, err));
	return ww_ref_free(s->t->ref, 0, err);
}
