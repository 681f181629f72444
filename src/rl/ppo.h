/* ppo.h - stages `ppo` and `agentic`: a policy works on tasks, the judge's reward teaches it.
 *
 *     step: the episodes of its tasks (rollout.h) -> advantages, update of policy and critic -> log -> checkpoint
 *
 * ppo: one prompt, one answer.  agentic: the loop with its tools.  A step that was interrupted goes on from the
 * episodes that are there, and steps since the newest checkpoint are learnt again from their records, to the same bits:
 * neither policy nor judge is asked twice.
 */
#pragma once

#include "rl/judges.h"
#include "train/recipe.h"

/* From the recipe, or from the last checkpoint in its output, to the end; `values` and the result as ww_sft_run().
 * WW_ERR_LIMIT where a rule of the recipe stopped a run that collapsed. */
enum ww_rc ww_ppo_run(const struct ww_recipe *o, const json_t *values, const struct ww_rl_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err) WW_MUST_CHECK;
/* Only sample, with the tools: `episodes` episodes of the tasks, as those of step 1; none where they are there. */
enum ww_rc ww_ppo_sample(const struct ww_recipe *o, const struct ww_rl_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_err *err) WW_MUST_CHECK;
