/* rft.h - stage `rft`: a policy learns from its own good episodes.
 *
 *     tasks: sample their episodes once, into RUN/episodes; or data: episodes that are there
 *     -> drop those with faults (faults.h) -> likelihood of the policy's own tokens, the mean over an episode's, then
 *     over episodes, by the learner of stage sft
 */
#pragma once

#include "rl/judges.h"
#include "train/recipe.h"

/* As ww_ppo_run(); judges: NULL where nothing is sampled. */
enum ww_rc ww_rft_run(const struct ww_recipe *o, const json_t *values, const struct ww_rl_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err) WW_MUST_CHECK;
