/* recorded.h - episodes as trajectories: the ids, marks and log-probabilities that were recorded while sampling. */
#pragma once

#include "episode/episode.h"
#include "train/trajectory.h"

/* Everything up to the policy's last token, with reward_final.  What follows it, an output of a tool say, was never
 * shown to the policy and is not there.  WW_ERR_USAGE: the episode has not ended, records no context, or its context
 * was changed between two replies (compaction), so that no one sequence holds what each token was sampled after. */
enum ww_rc ww_rl_recorded(const struct ww_episode *e, struct ww_trajectory *out, struct ww_err *err) WW_MUST_CHECK;
