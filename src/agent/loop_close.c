/* loop_close.c - the closing judgement: what the episode earns, and what the user gets.
 *
 * A record that is gone on with may have been changed by hand.  Its verdicts lead the search, but what the end claims
 * is measured by the process that writes it: closing judgements are made again, and rewards of the record do not count.
 */
#include "agent/best.h"
#include "agent/loop.h"

#include "base/time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double LEAST_PAUSE_S = 0.1; /* before a disturbed closing judgement is repeated */

static int has_past(const struct ww_agent_loop *l) { return l->past.n_messages && !l->opts->answers; }

/* Where no device seconds are left for a closing judgement, this process's newest verdict on the same files counts. */
static enum ww_rc take_measured(struct ww_agent_loop *l, const struct ww_workspace_content *c,
	struct ww_agent_result *chosen, double *reward, struct ww_err *err)
{
	*reward = -1;
	if (!l->result->has_best || strcmp(l->result->best_id, c->id) || strcmp(l->measured_id, c->id))
		return WW_OK;
	*reward = l->result->best.reward;
	json_auto_t *data = ww_verdict_to_json(&l->result->best);
	return ww_best_note(chosen, c->id, data, err);
}

/* Whether the upper ends of the speed-up intervals would earn a higher reward, as an undisturbed measurement then may.
 */
static int repeats_may_pay(const struct ww_verdict *v)
{
	struct ww_verdict best = *v;
	best.shell_load = 0;
	for (int b = 0; b < WW_BASE_COUNT; b++)
		best.speedup[b].lo = v->speedup[b].hi;
	return v->disturbed && ww_verdict_reward(&best) > v->reward;
}

static enum ww_rc rest(const struct ww_agent_loop *l, double seconds, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	while (ww_seconds_since(start) < seconds) {
		if (ww_loop_interrupted(l))
			return ww_loop_stop_interrupted(err);
		usleep(20000);
	}
	return WW_OK;
}

/* Where the process ends during a repetition, what was measured before it is a result of the run. */
static void keep_measured(
	struct ww_agent_loop *l, const struct ww_workspace_content *c, const struct ww_verdict *v, const json_t *data)
{
	struct ww_err ignored = WW_ERR_INIT;
	if (ww_best_improves(l->result, v) && ww_best_store(l->opts->dir, c, data, &ignored) == WW_OK &&
		ww_best_note(l->result, c->id, data, &ignored) != WW_OK)
		l->result->has_best = 0;
}

static enum ww_rc judge_again(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	double pause, struct ww_verdict *v, json_t **data, struct ww_err *err)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict again;
	json_auto_t *fresh = NULL;
	ww_verdict_init(&again);
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_FINAL, .text = v->disturbance, .pause_s = pause });
	enum ww_rc rc = rest(l, pause, err);
	if (rc == WW_OK)
		rc = ww_loop_judge_now(l, c, call_id, WW_JUDGE_CALL, &again, &fresh, err);
	if (rc != WW_OK) {
		keep_measured(l, c, v, *data);
		return rc;
	}
	ww_verdict_release(v);
	*v = again;
	ww_verdict_init(&again);
	json_decref(*data);
	*data = json_incref(fresh);
	return WW_OK;
}

/* A disturbed closing judgement that may have cost reward is repeated, after pauses that double, until its time limit,
 * the episode's or the budget is reached.  The first pause is as long as the disturbed timed calls: the rest of a
 * judgement is mostly waiting, and says nothing about how long a disturbance lasts.  Each one is recorded; the last one
 * counts, not the best. */
static enum ww_rc judge_closing(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	struct ww_verdict *v, json_t **data, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	WW_CHECK(l->opts->answers ? ww_loop_judge_content(l, c, call_id, WW_JUDGE_CALL, v, data, err)
							  : ww_loop_judge_now(l, c, call_id, WW_JUDGE_CALL, v, data, err));
	double took = ww_seconds_since(start), pause = fmax(v->seconds.time, LEAST_PAUSE_S);
	double limit = l->opts->answers ? 0 : l->opts->closing_seconds;
	for (; repeats_may_pay(v) && !ww_loop_device_is_spent(l); pause *= 2) {
		if (ww_seconds_since(start) + pause + took > limit ||
			ww_episode_seconds(l->episode) + pause + took > l->opts->max_seconds)
			break;
		WW_CHECK(judge_again(l, c, call_id, pause, v, data, err));
	}
	return WW_OK;
}

/* One solution from scratch; a correct one that is better than what `chosen` holds takes its place. */
static enum ww_rc judge_final(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	struct ww_agent_result *chosen, double *reward, struct ww_err *err)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	json_auto_t *data = NULL;
	ww_verdict_init(&v);
	l->beyond_budget = has_past(l) && strcmp(l->measured_id, c->id);
	enum ww_rc rc = judge_closing(l, c, call_id, &v, &data, err);
	l->beyond_budget = 0;
	if (rc == WW_ERR_LIMIT && l->not_judged)
		return take_measured(l, c, chosen, reward, err);
	WW_CHECK(rc);
	*reward = v.reward;
	int is_best = ww_best_improves(chosen, &v);
	if (is_best)
		WW_CHECK(ww_best_note(chosen, c->id, data, err));
	if (is_best || !chosen->has_best)
		WW_CHECK(ww_best_store(l->opts->dir, v.correct ? c : NULL, data, err));
	ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_VERDICT, .verdict = &v, .is_best = is_best });
	return WW_OK;
}

/* The files of the best solution of the run, from the workspace directory of the record. */
static enum ww_rc best_content(struct ww_agent_loop *l, struct ww_workspace_content *c, int *found, struct ww_err *err)
{
	if (!l->result->has_best) {
		*found = 0;
		return WW_OK;
	}
	return ww_best_load(l->opts->dir, l->opts->target, l->result->best_id, c, found, err);
}

/* In a resumed run only rewards count that this process has measured. */
static double best_reward(const struct ww_agent_loop *l, double reward_final)
{
	if (has_past(l))
		return fmax(l->measured_reward, reward_final);
	return l->result->has_best ? fmax(l->result->best.reward, reward_final) : reward_final;
}

/* The reward is that of the workspace's solution.  The user gets the best of the run, which is judged again too, since
 * the fastest of many timings is partly luck. */
enum ww_rc ww_loop_finish(struct ww_agent_loop *l, const char *reason, struct ww_err *err)
{
	WW_AUTO(ww_workspace_content_release) struct ww_workspace_content mine, best;
	WW_AUTO(ww_agent_result_release) struct ww_agent_result chosen = { .ended = 0 };
	struct ww_episode_end end = { .reward_final = -1 };
	const char *missing;
	int found;
	ww_workspace_content_init(&mine);
	ww_workspace_content_init(&best);
	ww_verdict_init(&chosen.best);
	WW_CHECK(best_content(l, &best, &found, err));
	WW_CHECK(ww_workspace_take(&l->workspace, &mine, &missing, err));
	if (!missing || found)
		ww_loop_tell(l, (struct ww_agent_event){ .kind = WW_AGENT_FINAL });
	if (!missing)
		WW_CHECK(judge_final(l, &mine, "final", &chosen, &end.reward_final, err));
	if (found && (missing || strcmp(mine.id, best.id))) {
		double ignored;
		WW_CHECK(judge_final(l, &best, "final-best", &chosen, &ignored, err));
	}
	end.reward_best = best_reward(l, end.reward_final);
	snprintf(end.reason, sizeof(end.reason), "%s", reason);
	memcpy(end.best, chosen.best_id, sizeof(end.best));
	end.seconds = ww_episode_seconds(l->episode);
	WW_CHECK((enum ww_rc)ww_episode_add_end(l->episode, l->turn, &end, err));
	ww_verdict_release(&l->result->best);
	l->result->best = chosen.best;
	ww_verdict_init(&chosen.best);
	l->result->has_best = chosen.has_best;
	memcpy(l->result->best_id, chosen.best_id, sizeof(chosen.best_id));
	l->result->end = end;
	l->result->ended = 1;
	return WW_OK;
}
