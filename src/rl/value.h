/* value.h - stage `value`: a critic is trained on recorded episodes before a policy is trained with it. */
#pragma once

#include "train/recipe.h"

/* As ww_ppo_run(), from the episodes below the recipe's data.  A step is a pass.  WW_ERR_LIMIT, after the last
 * checkpoint, where the critic explains less than .3 of the reward's variance on the episodes left out, over all own
 * tokens or at each episode's middle one. */
enum ww_rc ww_value_run(const struct ww_recipe *o, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *out, struct ww_err *err) WW_MUST_CHECK;
