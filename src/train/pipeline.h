/* pipeline.h - what a stage of a pipeline takes from those before it, where its section does not say. */
#pragma once

#include "train/recipe.h"

#include <limits.h>

/* Zeroed before the first stage. */
struct ww_pipeline {
	char policy[PATH_MAX];   /* newest model that a stage left; "": none */
	char critic[PATH_MAX];   /* of stage value */
	char episodes[PATH_MAX]; /* sampled by stage rft, or else by ppo or agentic */
};

/* Fill in: model, by the newest policy (not beside config); of value data, by the newest episodes; of ppo and agentic
 * critic, by that of stage value.  The texts are the pipeline's, until the next ww_pipeline_note(). */
void ww_pipeline_fill(const struct ww_pipeline *p, struct ww_recipe *r);
/* A stage has ended. */
void ww_pipeline_note(struct ww_pipeline *p, const struct ww_recipe *r);
