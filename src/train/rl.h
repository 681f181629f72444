/* rl.h - advantages and losses of policy training.
 *
 * They see own tokens only, those that the policy sampled: the own tokens of a step's episodes are concatenated, and
 * episode e has starts[e]..starts[e + 1] - 1 of them (none is fine).  Prompts, outputs of tools and markup between two
 * turns are left out, so nothing is masked: the state after the last own token of a turn is the one before the first
 * own token of the next.
 *
 * All memory is the host's; "(own)" is one number for each own token, "(episodes)" one for each episode.  Sums run in
 * double by index: equal calls give equal bits.
 */
#pragma once

#include <stdint.h>

struct ww_rl_set {
	const int64_t *starts; /* (episodes + 1) */
	int64_t episodes;
};

/* ---- advantages */

/* delta_t = r_t + gamma V(s_t+1) - V(s_t),  A_t = delta_t + gamma lambda A_t+1; the reward is given on the episode's
 * last own token, and the value behind it is 0.
 * alpha > 0: lambda is 1 - 1 / (alpha l) for an episode of l own tokens, at least 0 (VAPO; alpha is .05 there). */
struct ww_rl_gae {
	double gamma, lambda, alpha;
};
/* reward (episodes); value (own): V(s_t), s_t being the state before token t.  advantage (own) and target (own) =
 * value + advantage are written; either may be NULL. */
void ww_rl_gae(const struct ww_rl_set *s, const struct ww_rl_gae *o, const float *reward, const float *value,
	float *advantage, float *target);

/* Without a critic: an episode against the others of its group, the same number on each of its tokens.
 * GRPO: (R - mean) / (deviation + 1e-6), the deviation with n - 1.  RLOO: R - mean of the others.  An episode alone in
 * its group has advantage 0.  group (episodes): number of the group; equal ones are neighbours. */
enum ww_rl_group { WW_RL_GRPO, WW_RL_RLOO };
void ww_rl_group_advantages(
	const struct ww_rl_set *s, enum ww_rl_group kind, const int64_t *group, const float *reward, float *advantage);

/* What a group's samples differ by.  A baseline of the group sees nothing else: groups of one reward teach nothing, and
 * a policy whose rewards differ by task alone learns only which tasks are hard. */
struct ww_rl_spread {
	int64_t groups, mixed; /* of two episodes or more; of those, with different rewards */
	double within;         /* part of the rewards' variance that lies within groups; NaN where all are equal */
};
/* reward, group (n): as above. */
struct ww_rl_spread ww_rl_spread_of(const int64_t *group, const float *reward, int64_t n);

/* ---- losses */

/* What a token weighs; the weights of a step add up to 1.  EPISODE: mean over an episode's own tokens, then over the
 * episodes that have any.  TOKEN: mean over all own tokens of the step (DAPO). */
enum ww_rl_mean { WW_RL_MEAN_EPISODE, WW_RL_MEAN_TOKEN };
void ww_rl_weights(const struct ww_rl_set *s, enum ww_rl_mean mean, float *weight);

/* The loss is minus the sum of weight * J over n own tokens, rho = exp(logp - logp_old):
 *     J = min(rho A, clip(rho, 1 - low, 1 + high) A)
 *     dual > 1: where A < 0, the larger of that and dual * A
 *     truncate > 0: that times min(exp(logp_old - logp_sampled), truncate), a constant for the gradient; for tokens
 *                   that were sampled with another arithmetic than training's
 *     kl > 0: that minus kl * (r - 1 - log r), r = exp(logp_ref - logp): an estimate, never negative, of the distance
 *             from a reference policy (GRPO)
 */
struct ww_rl_clip {
	double low, high;
	double dual, truncate, kl; /* 0: off */
};
/* (n) each. */
struct ww_rl_tokens {
	const float *weight, *advantage;
	const float *logp_old;     /* by the weights that the step began with */
	const float *logp_sampled; /* as recorded while sampling; NULL: logp_old */
	const float *logp_ref;     /* by the reference; not read where kl is 0 */
	int64_t n;
};
struct ww_rl_ratios {
	int64_t n, clipped;      /* tokens; those whose gradient clipping removed */
	double log_max, log_sum; /* of |log rho| */
	double ratio_min, ratio_max;
	double kl_sum; /* of r - 1 - log r */
};
/* Returns the loss; dlogp (n): its derivative by each logp.  `ratios` is added to; zero it before a step's first call;
 * may be NULL. */
double ww_rl_policy_loss(const struct ww_rl_clip *o, const struct ww_rl_tokens *k, const float *logp, float *dlogp,
	struct ww_rl_ratios *ratios);
/* The sum of weight * (value - target)^2 / 2, and its derivative by each value. */
double ww_rl_value_loss(const float *weight, const float *target, const float *value, int64_t n, float *dvalue);

/* 1 - Var(x - y) / Var(x) of n pairs; NaN where x does not vary. */
double ww_rl_explained(const float *x, const float *y, int64_t n);
