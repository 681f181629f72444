/* learner.h - training of a policy or a critic: workspace, optimizer, and the interface to a loss.
 *
 * A step is any number of ww_learner_add() and one ww_learner_update().  A loss gets one number for each row of the
 * batch, of a policy the log-probability of its target, of a critic the value, and returns its derivative by each.  For
 * cross-entropy the derivative does not depend on the log-probability, for a policy gradient it does.
 *
 * Equal calls in equal order give equal bits.  How a step's rows are cut into micro-batches changes the order in which
 * the gradient is summed and so its last bits; how many layers keep their activations changes nothing.
 */
#pragma once

#include "nn/model.h"

struct ww_learner_opts {
	float beta1, beta2, eps, weight_decay;
	float clip;         /* norm of the gradient at most; 0: no clipping */
	int64_t max_tokens; /* of a micro-batch */
	int64_t keep;       /* layers that keep activations, as ww_run_new() */
	/* Not NULL: share this learner's workspace, in turns with it.  Its model must have the same trunk, and it must
	 * outlive this one; max_tokens and keep are taken from it. */
	struct ww_learner *host;
	int frozen; /* no gradient and no optimizer: only ww_learner_look() works */
};

/* For n rows, read x and write dx, the derivative of the loss by each x; for cross-entropy it is minus the token's
 * weight. */
struct ww_loss {
	enum ww_rc (*fn)(void *ctx, const float *x, float *dx, int64_t n, struct ww_err *err);
	void *ctx;
};

struct ww_learner;
/* The model is borrowed. */
enum ww_rc ww_learner_new(
	struct ww_model *m, const struct ww_learner_opts *o, struct ww_learner **out, struct ww_err *err) WW_MUST_CHECK;
void ww_learner_free(struct ww_learner *l); /* NULL is fine */

/* Add the gradient of a micro-batch; targets[i] follows the batch's i-th row.  Where the derivatives do not depend on
 * the log-probabilities, ww_learner_add_targets() takes them beforehand: the same bits in less time.  *logp: of these
 * tokens, valid until the next call. */
enum ww_rc ww_learner_add_targets(struct ww_learner *l, const struct ww_batch *b, const int32_t *targets,
	const float *dlogp, const float **logp, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_learner_add(struct ww_learner *l, const struct ww_batch *b, const int32_t *targets,
	const struct ww_loss *loss, struct ww_err *err) WW_MUST_CHECK;
/* Without a gradient: the log-probability of each target, or of a critic (which uses no targets, here and above) each
 * value. */
enum ww_rc ww_learner_look(struct ww_learner *l, const struct ww_batch *b, const int32_t *targets, float *out,
	struct ww_err *err) WW_MUST_CHECK;
/* Entropies of the rows of the last batch, which asked for them. */
enum ww_rc ww_learner_entropy(struct ww_learner *l, float *entropy, struct ww_err *err) WW_MUST_CHECK;
/* Clip, update the weights and forget the gradient.  *norm is that before clipping; NaN: it was not finite and nothing
 * but the gradient changed. */
enum ww_rc ww_learner_update(struct ww_learner *l, double lr, float *norm, struct ww_err *err) WW_MUST_CHECK;
/* Forget the gradient without an update. */
enum ww_rc ww_learner_drop(struct ww_learner *l, struct ww_err *err) WW_MUST_CHECK;

struct ww_model *ww_learner_model(struct ww_learner *l);
int64_t ww_learner_max_tokens(const struct ww_learner *l); /* of a micro-batch */
/* Updates made so far; part of the state on disk. */
int64_t ww_learner_updates(const struct ww_learner *l);
enum ww_rc ww_learner_save(struct ww_learner *l, const char *dir, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_learner_load(struct ww_learner *l, const char *dir, int64_t updates, struct ww_err *err) WW_MUST_CHECK;

/* What training takes on a device, in bytes, and how many layers can keep their activations within `budget`. */
struct ww_memory_ask {
	const struct ww_config *config; /* the policy's */
	int dtype;
	int64_t max_tokens, longest; /* of a micro-batch, of a sequence */
	int64_t keep;                /* > 0 fixes the number of layers; 0 finds the largest that fits */
	uint64_t budget;             /* 0: what is free on the device */
	int critic, reference;       /* a critic with an optimizer of its own; weights that only compute */
	uint64_t cache;              /* of generation, as ww_infer_bytes() says */
	uint64_t others;             /* where budget is 0: of share of the free memory that is left to other processes */
};
/* optim holds gradients too; run is the workspace, which policy, critic and reference share. */
struct ww_memory {
	uint64_t model, optim, critic, reference, cache, run, workspace, total, budget;
	int64_t keep, layers;
};
/* What does not fit is WW_ERR_ROOM, and the message says by how much. */
enum ww_rc ww_memory_plan(
	const struct ww_memory_ask *a, struct ww_dev *dev, struct ww_memory *out, struct ww_err *err) WW_MUST_CHECK;
