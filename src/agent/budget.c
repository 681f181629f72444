/* budget.c - see budget.h. */
#include "agent/budget.h"

#include "base/json.h"
#include "base/lock.h"
#include "base/time.h"
#include "episode/view.h"

#include <stdlib.h>

struct ww_budget {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct ww_budget_limits limits;
	struct ww_budget_use used;
	double held_usd;
	int64_t held_tokens;
	int episodes;         /* running */
	double longest_gpu_s; /* device seconds of the longest verdict so far */
};

struct ww_budget *ww_budget_new(const struct ww_budget_limits *limits)
{
	struct ww_budget *b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->limits = *limits;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	return b;
}

void ww_budget_free(struct ww_budget *b)
{
	if (!b)
		return;
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

const struct ww_budget_limits *ww_budget_limits(const struct ww_budget *b) { return &b->limits; }

struct ww_budget_use ww_budget_used(struct ww_budget *b)
{
	WW_LOCKED(&b->lock);
	return b->used;
}

double ww_budget_gpu_s(const struct ww_verdict *v) { return v->seconds.verify + v->seconds.time; }

double ww_budget_profile_gpu_s(const json_t *data) { return ww_json_num(data, "device_seconds", 0); }

struct ww_budget_use ww_budget_use_of(const struct ww_episode *e)
{
	struct ww_episode_use u = ww_episode_use_of(e);
	return (struct ww_budget_use){ u.usd, u.gpu_s, u.prompt_tokens + u.completion_tokens };
}

void ww_budget_spend(struct ww_budget *b, const struct ww_budget_use *u)
{
	WW_LOCKED(&b->lock);
	b->used.usd += u->usd;
	b->used.tokens += u->tokens;
	b->used.gpu_s += u->gpu_s;
	if (u->gpu_s > b->longest_gpu_s)
		b->longest_gpu_s = u->gpu_s;
	pthread_cond_broadcast(&b->changed);
}

static void count_episodes(struct ww_budget *b, int by)
{
	WW_LOCKED(&b->lock);
	b->episodes += by;
	pthread_cond_broadcast(&b->changed);
}

void ww_budget_enter(struct ww_budget *b) { count_episodes(b, 1); }

void ww_budget_leave(struct ww_budget *b) { count_episodes(b, -1); }

/* With the lock held.  An episode ends with at most two judgements: of the workspace and of the best. */
static const char *reached(const struct ww_budget *b)
{
	const struct ww_budget_limits *l = &b->limits;
	if (l->usd > 0 && b->used.usd >= l->usd)
		return "usd";
	if (l->tokens > 0 && b->used.tokens >= l->tokens)
		return "tokens";
	if (l->gpu_s > 0 && b->used.gpu_s + 2 * b->episodes * b->longest_gpu_s >= l->gpu_s)
		return "gpu_seconds";
	return NULL;
}

int ww_budget_device_is_spent(struct ww_budget *b)
{
	WW_LOCKED(&b->lock);
	return b->limits.gpu_s > 0 && b->used.gpu_s >= b->limits.gpu_s;
}

const char *ww_budget_reached(struct ww_budget *b)
{
	WW_LOCKED(&b->lock);
	return reached(b);
}

static void give_back(struct ww_budget *b, struct ww_budget_hold *hold)
{
	b->held_usd -= hold->usd;
	b->held_tokens -= hold->tokens;
	*hold = (struct ww_budget_hold){ 0 };
	pthread_cond_broadcast(&b->changed);
}

void ww_budget_drop(struct ww_budget *b, struct ww_budget_hold *hold)
{
	WW_LOCKED(&b->lock);
	give_back(b, hold);
}

static int fits(const struct ww_budget *b)
{
	const struct ww_budget_limits *l = &b->limits;
	return (l->usd <= 0 || b->used.usd + b->held_usd < l->usd) &&
		(l->tokens <= 0 || b->used.tokens + b->held_tokens < l->tokens);
}

enum ww_rc ww_budget_hold(struct ww_budget *b, struct ww_budget_hold *hold, double usd, int64_t tokens,
	const volatile int *interrupted, struct ww_err *err)
{
	const char *what;
	WW_LOCKED(&b->lock);
	give_back(b, hold);
	while (!(what = reached(b)) && !fits(b) && !(interrupted && *interrupted))
		(void)ww_cond_wait(&b->changed, &b->lock, 0.2);
	if (what)
		return ww_err_set(err, WW_ERR_LIMIT, "the budget is used up: %s", what);
	if (!fits(b))
		return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	*hold = (struct ww_budget_hold){ 1, usd, tokens };
	b->held_usd += usd;
	b->held_tokens += tokens;
	return WW_OK;
}

void ww_budget_text(struct ww_budget *b, struct ww_str *out)
{
	struct ww_budget_use u = ww_budget_used(b);
	const struct ww_budget_limits *l = &b->limits;
	const char *comma = "";
	if (u.usd > 0 || l->usd > 0) {
		ww_str_addf(out, "$%.4f", u.usd);
		if (l->usd > 0)
			ww_str_addf(out, " of $%g", l->usd);
		comma = ", ";
	}
	if (u.tokens > 0 || l->tokens > 0) {
		ww_str_addf(out, "%s%.1fk", comma, (double)u.tokens / 1e3);
		if (l->tokens > 0)
			ww_str_addf(out, " of %.1fk", (double)l->tokens / 1e3);
		ww_str_adds(out, " tokens");
		comma = ", ";
	}
	if (l->gpu_s > 0)
		ww_str_addf(out, "%s%.1f of %g GPU s", comma, u.gpu_s, l->gpu_s);
}
