/* budget.h - the limits of a run in USD, tokens and GPU seconds, shared by all its episodes.
 *
 * A limit is exceeded by at most the maximum cost of one call, however many episodes run in parallel.  So a call of a
 * policy reserves its maximum cost while it runs, and starts only while spent and reserved cost together lie below the
 * limit.  GPU seconds for the closing judgements of running episodes are
 * reserved in the same way.  What was spent is recorded in the episodes only: a resumed run adds it up from there.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>
#include "episode/episode.h"
#include "judge/verdict.h"

struct ww_budget;
/* 0: no limit. */
struct ww_budget_limits {
	double usd, gpu_s;
	int64_t tokens;
};
struct ww_budget_use {
	double usd, gpu_s;
	int64_t tokens;
};
/* What a call in progress may still cost. */
struct ww_budget_hold {
	int active;
	double usd;
	int64_t tokens;
};

struct ww_budget *ww_budget_new(const struct ww_budget_limits *limits); /* NULL: out of memory */
void ww_budget_free(struct ww_budget *b);
struct ww_budget_use ww_budget_used(struct ww_budget *b);
const struct ww_budget_limits *ww_budget_limits(const struct ww_budget *b);

/* What an episode of the run has used so far. */
struct ww_budget_use ww_budget_use_of(const struct ww_episode *e);
void ww_budget_spend(struct ww_budget *b, const struct ww_budget_use *u);
/* Seconds that a verdict held the device. */
double ww_budget_gpu_s(const struct ww_verdict *v);
/* The same of a profile: its member "device_seconds". */
double ww_budget_profile_gpu_s(const json_t *data);

/* An episode begins or ends: its closing judgement must fit into the GPU seconds. */
void ww_budget_enter(struct ww_budget *b);
void ww_budget_leave(struct ww_budget *b);
/* 1 where all GPU seconds are used up: nothing is judged any more, closing judgements included. */
int ww_budget_device_is_spent(struct ww_budget *b);
/* A limit that is reached, as the episode's end names it ("usd", "tokens", "gpu_seconds"), or NULL. */
const char *ww_budget_reached(struct ww_budget *b);
/* Reserve a call's maximum in place of what `hold` reserved before; waits while other calls have reserved what is left.
 * WW_ERR_LIMIT: a limit is reached.  *interrupted (may be NULL) ends the wait. */
enum ww_rc ww_budget_hold(struct ww_budget *b, struct ww_budget_hold *hold, double usd, int64_t tokens,
	const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
void ww_budget_drop(struct ww_budget *b, struct ww_budget_hold *hold);

/* "$0.1234 of $1.00, 23,456 tokens", "" where nothing is used and nothing limited. */
void ww_budget_text(struct ww_budget *b, struct ww_str *out);
