/* pipeline.h - the stages of a pipeline, one after the other, and what each takes from those before it. */
#pragma once

#include "train/recipe_file.h"

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

/* Runs one stage as `values` (ww_recipe_values() of r) say. */
typedef enum ww_rc (*ww_stage_fn)(const struct ww_recipe *r, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *result, struct ww_err *err);
/* Run the stages that have a section, in its order, below top->output.  OUTPUT/pipeline.json keeps those that have
 * ended: a stage that ended with the same values is not run again.  All sections are checked before the first stage. */
enum ww_rc ww_pipeline_run(struct ww_recipe_file *f, const struct ww_recipe *top, ww_stage_fn run,
	const struct ww_train_hooks *hooks, struct ww_train_result *result, struct ww_err *err) WW_MUST_CHECK;
