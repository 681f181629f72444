/* recorded.h - episodes as trajectories: the ids, marks and log-probabilities that were recorded while sampling. */
#pragma once

#include "episode/episode.h"
#include "train/trajectory.h"

/* What an episode earns: the milestones' reward_final, or of its closing verdict the raw speed-up
 * (ww_verdict_speedup_reward()), which the published ablation has. */
enum ww_rl_reward { WW_RL_REWARD_MILESTONE, WW_RL_REWARD_SPEEDUP };
/* Of the recipe's word. */
enum ww_rl_reward ww_rl_reward_of(const char *name);

/* Everything up to the policy's last token, with its reward.  What follows it, an output of a tool say, was never
 * shown to the policy and is not there.  WW_ERR_USAGE: the episode has not ended, records no context, its context
 * was changed between two replies (compaction), so that no one sequence holds what each token was sampled after, or
 * its verdict has no times to take a speed-up from.  WW_ERR_PROTOCOL: numbers that no policy and no judge have written
 * (log-probabilities above 0 or without a value, a reward that there is not). */
enum ww_rc ww_rl_recorded(
	const struct ww_episode *e, enum ww_rl_reward reward, struct ww_trajectory *out, struct ww_err *err) WW_MUST_CHECK;

/* All episodes of some paths (with commas between them): files, and every episode.jsonl below directories, in the order
 * of names. */
struct ww_recorded_set {
	struct ww_trajectory *t;
	int64_t n,
		passed_over; /* passed over: those that ww_rl_recorded() refuses, or that hold no token of the policy's */
	size_t cap;
	char hash[65]; /* of ids, marks, log-probabilities and rewards */
};
/* Leave *keep at 1 to keep an episode; it is called for each that has ended and can be read. */
typedef enum ww_rc ww_rl_keep(void *ctx, const struct ww_episode *e, int *keep, struct ww_err *err);
struct ww_rl_read {
	enum ww_rl_reward reward;
	int64_t vocab;        /* an id beyond it is WW_ERR_USAGE; 0: not looked at */
	const char *held_out; /* task sets: an episode about one of their tasks is WW_ERR_USAGE; NULL: none */
	const volatile int *interrupted;
	ww_rl_keep *keep; /* NULL: all */
	void *ctx;
};
enum ww_rc ww_rl_recorded_read(
	const char *paths, const struct ww_rl_read *o, struct ww_recorded_set *out, struct ww_err *err) WW_MUST_CHECK;
void ww_recorded_set_release(struct ww_recorded_set *s);
