/* rl_step.h - one step of policy training: trajectories in, updates of the policy and of its critic out.
 *
 *   values by the critic -> advantages -> for each epoch and mini-batch: gradient and update of policy and critic
 *
 * Sums run in the order of the episodes and of their tokens: equal calls give equal bits, whatever the order in which
 * the episodes were sampled.
 */
#pragma once

#include "train/learner.h"
#include "train/rl.h"
#include "train/trajectory.h"

enum ww_rl_advantage { WW_RL_BY_CRITIC, WW_RL_BY_GRPO, WW_RL_BY_RLOO };

struct ww_rl_step_opts {
	enum ww_rl_advantage advantage;
	struct ww_rl_gae policy_gae, critic_gae; /* of the advantages; of the critic's targets */
	struct ww_rl_clip clip;
	struct ww_learner *reference; /* of clip.kl; NULL where that is 0 */
	enum ww_rl_mean mean;
	int64_t epochs, minibatch; /* minibatch: episodes of an update; 0: all */
	double lr, critic_lr;      /* 0: not updated */
	/* The episodes were sampled by the weights that the policy has now.  With one epoch, one mini-batch and exact
	 * numbers every ratio is 1 then: the gradient takes one pass, and a ratio that is not 1 is an error. */
	int fresh;
};

struct ww_rl_step_result {
	int64_t episodes, own_tokens;            /* episodes: those with own tokens */
	int64_t tokens;                          /* inputs of one pass: whole contexts, up to the last own token */
	double reward;                           /* mean over all episodes */
	double policy_loss, value_loss, entropy; /* means by opts.mean, of the first epoch, before its updates */
	double explained;           /* variance of the reward that the critic's values explain, before updates */
	double explained_middle;    /* the same at each episode's middle own token */
	float norm, critic_norm;    /* of the last gradients, before clipping; NaN: not finite, nothing was updated */
	struct ww_rl_ratios ratios; /* of all epochs */
	struct ww_rl_spread spread; /* of the rewards */
};

/* group (n): as ww_rl_group_advantages(); with a critic it may be NULL, and nothing is said of the spread.  critic:
 * NULL without.  Trajectories longer than a learner's max_tokens are WW_ERR_LIMIT. */
enum ww_rc ww_rl_step(const struct ww_rl_step_opts *o, struct ww_learner *policy, struct ww_learner *critic,
	const struct ww_trajectory *t, const int64_t *group, int64_t n, struct ww_rl_step_result *out,
	struct ww_err *err) WW_MUST_CHECK;
