/* rollout.h - the episodes of a step: sampled by the loop that `optimize` uses, and read back from their records.
 *
 *     for each task of the step, `parallel` tasks at a time: `samples` episodes at once, which the engine batches with
 *     those of the other tasks; tools and judge work meanwhile
 *
 * Episode i of task g of a step is RUN/episodes/step-00000001/0001/episodes/1/episode.jsonl (g + 1, i + 1).  One that
 * is there is not sampled again; one that was interrupted goes on.  What an episode says depends on its seed, its task,
 * the weights and the answers of its tools, not on other work that runs meanwhile.
 */
#pragma once

#include "rl/curriculum.h"
#include "rl/judges.h"
#include "rl/observe.h"
#include "train/recipe.h"
#include "train/trajectory.h"

struct ww_rollout {
	const struct ww_recipe *o;
	const struct ww_rl_judges *judges;
	struct ww_engine *engine;
	const struct ww_train_hooks *hooks;
	const char *name; /* of the policy, in the records */
	char **tasks;
	int64_t n_tasks, groups, context; /* groups: tasks of a step */
	int64_t vocab;                    /* an episode with an id beyond it is refused */
	enum ww_loop loop;
	enum ww_prompt prompt;
	int turns;
	struct ww_curriculum *curriculum; /* NULL: tasks in turns */
	int64_t first, *drawn;            /* of a curriculum: the tasks of the steps from `first` on, groups of them each */
	/* Written: what this process did. */
	pthread_mutex_t lock;            /* of what follows */
	int64_t sampled, judged, reused; /* episodes; verdicts asked of the judge; of content that was judged already */
	double verdicts_s;               /* of the judge's device, each verdict's by itself: several overlap */
	json_t *too_long;                /* ids of tasks whose prompt did not fit */
	int64_t missing, ended, replies; /* of the call of ww_rollout_fill(): episodes to sample; ended; replies so far */
};

/* Sample what is missing of the steps first..last; all of them by the weights that the engine has now, which are those
 * after `updated` steps. */
enum ww_rc ww_rollout_fill(
	struct ww_rollout *r, int64_t first, int64_t last, int64_t updated, struct ww_err *err) WW_MUST_CHECK;
/* Read a step's episodes, all of which are there: trajectories t and groups (episodes each); *age: steps that the
 * weights were updated since these episodes were sampled, at most. */
enum ww_rc ww_rollout_read(const struct ww_rollout *r, int64_t step, struct ww_trajectory *t, int64_t *group,
	struct ww_observed *seen, int64_t *age, struct ww_err *err) WW_MUST_CHECK;
