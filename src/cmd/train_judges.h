/* train_judges.h - the judge as the stages of `train` that sample want it. */
#pragma once

#include "rl/judges.h"
#include "train/recipe.h"

struct ww_train_judges;
/* Tasks stay open from step to step, as many as memory allows.  The judge itself starts with the first task. */
enum ww_rc ww_train_judges_open(const struct ww_recipe *o, struct ww_train_judges **out, struct ww_rl_judges *judges,
	struct ww_err *err) WW_MUST_CHECK;
void ww_train_judges_close(struct ww_train_judges *j); /* NULL is fine */
