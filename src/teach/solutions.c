/* solutions.c - solutions that the planner's search may try.
 *
 * Verdicts lead the search, so it gets drawn ones: each trial is correct, and one in four is faster than the best
 * before it.  The search then varies that one, so solutions differ in several knobs.  The search needs no texts: only
 * the trials that are chosen are built. */
#include "base/mem.h"
#include "base/target.h"
#include "teach/teach.h"
#include "policy/planner/proposal.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 32 << 20, FASTER_ONE_IN = 4 };

struct trials {
	struct trial t[SEARCH_MAX_TRIALS];
	int n;
};

static enum ww_rc renumbered(const char *text, char **out, struct ww_err *err)
{
	ww_auto_str s = WW_STR_INIT(TEXT_MAX);
	WW_CHECK(pl_renumber(&s, text, err));
	*out = s.cut ? NULL : ww_str_take(&s);
	return *out ? WW_OK : ww_nomem(err);
}

static void release(struct ww_teach_solution *s)
{
	free(s->plan);
	free(s->device);
	*s = (struct ww_teach_solution){ NULL };
}

void ww_teach_solutions_release(struct ww_teach_solutions *s)
{
	for (int i = 0; i < s->n; i++)
		release(&s->s[i]);
	s->n = 0;
}

static int is_there(const struct ww_teach_solutions *out, const struct ww_teach_solution *s)
{
	for (int i = 0; i < out->n; i++)
		if (!strcmp(out->s[i].plan, s->plan) && !strcmp(out->s[i].device, s->device))
			return 1;
	return 0;
}

/* Add the result's texts, unless the same are there. */
static enum ww_rc take(struct ww_teach_solutions *out, const struct pl_result *r, struct ww_err *err)
{
	struct ww_teach_solution s = { NULL };
	enum ww_rc rc = WW_OK;
	if (r->ok)
		WW_TRY(renumbered(r->plan_text, &s.plan, err));
	if (r->ok)
		WW_TRY(renumbered(r->device_text, &s.device, err));
	if (r->ok && !is_there(out, &s)) {
		out->s[out->n++] = s;
		return WW_OK;
	}
out:
	release(&s);
	return rc;
}

/* Run the search with drawn verdicts and list its trials, the first one included. */
static enum ww_rc list_trials(struct search *s, struct ww_rng *rng, struct trials *out, struct ww_err *err)
{
	double best = 1000;
	while (!s->done && out->n < SEARCH_MAX_TRIALS) {
		out->t[out->n++] = s->now;
		double us = out->n == 1 ? best : ww_rng_below(rng, FASTER_ONE_IN) ? 2 * best : best / 2;
		best = us < best ? us : best;
		json_auto_t *v = json_pack("{s:b, s:i, s:{s:f}}", "correct", 1, "reward", 1, "time", "device_us", us);
		if (!v)
			return ww_nomem(err);
		pl_search_feed(s, v);
	}
	return WW_OK;
}

/* Build the first trial, then others in an order that rng draws, until there are `most` solutions. */
static enum ww_rc build_some(const json_t *graph, const json_t *device, enum ww_target target, struct trials *t,
	int most, struct ww_rng *rng, struct ww_teach_solutions *out, struct ww_err *err)
{
	for (int i = 0; i < t->n && out->n < most; i++) {
		WW_AUTO(ww_pl_result_release) struct pl_result r = { 0 };
		int other = i ? i + (int)ww_rng_below(rng, (uint64_t)(t->n - i)) : 0;
		struct trial now = t->t[other];
		t->t[other] = t->t[i];
		ww_pl_build(graph, device, ww_target_name(target), now.knobs, SEARCH_KERNELS, NULL, &r);
		WW_CHECK(take(out, &r, err));
	}
	return WW_OK;
}

static enum ww_rc search(const json_t *graph, const json_t *device, enum ww_target target,
	const struct pl_result *first, const struct pl_result *last, int most, struct ww_rng *rng,
	struct ww_teach_solutions *out, struct ww_err *err)
{
	ww_auto_free struct search *s = NULL;
	ww_auto_free struct trials *t = NULL;
	WW_CHECK(WW_NEW(s, 1, err));
	WW_CHECK(WW_NEW(t, 1, err));
	pl_search_init(s, first, last, target == WW_TARGET_CUDA, NULL);
	WW_CHECK(list_trials(s, rng, t, err));
	return build_some(graph, device, target, t, most, rng, out, err);
}

enum ww_rc ww_teach_solve(const json_t *graph, const json_t *device, enum ww_target target, int most,
	struct ww_rng *rng, struct ww_teach_solutions *out, struct ww_err *err)
{
	WW_AUTO(ww_pl_result_release) struct pl_result first = { 0 }, last = { 0 };
	ww_pl_build(graph, device, ww_target_name(target), NULL, 0, NULL, &first);
	if (!first.ok)
		return WW_OK;
	return search(graph, device, target, &first,
		pl_build_last(graph, device, ww_target_name(target), NULL, &first, &last), most, rng, out, err);
}
