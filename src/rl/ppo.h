/* ppo.h - stage `ppo`: a policy answers tasks, the judge's reward teaches it.
 *
 *     step: for each task of the step, `samples` episodes by the loop of `optimize` -> read back as recorded ->
 *           advantages, update of policy and critic -> log -> checkpoint
 *
 * Every episode is a file in RUN/episodes/step-00000001/TASK/episodes/N.  A step that was interrupted goes on from
 * them, and steps since the newest checkpoint are learnt again from their records, to the same bits: neither policy nor
 * judge is asked twice.
 */
#pragma once

#include "agent/agent.h"
#include "train/recipe.h"

/* A task that is open for judging. */
struct ww_ppo_task {
	struct ww_agent_judge judge;
	char *path, *source; /* malloc'ed */
	char id[65];
	void *own; /* the opener's */
};

/* Where verdicts come from: the judge, or in tests a script. */
struct ww_ppo_judges {
	void *ctx;
	enum ww_target target;
	enum ww_rule rule;
	unsigned baselines;
	enum ww_rc (*open)(void *ctx, const char *path, struct ww_ppo_task *out, struct ww_err *err);
	void (*close)(void *ctx, struct ww_ppo_task *t); /* frees path and source too */
};

/* From the recipe, or from the last checkpoint in its output, to the end; `values` and the result as ww_sft_run().
 * WW_ERR_LIMIT where a rule of the recipe stopped a run that collapsed. */
enum ww_rc ww_ppo_run(const struct ww_recipe *o, const json_t *values, const struct ww_ppo_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err) WW_MUST_CHECK;
