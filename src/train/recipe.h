/* recipe.h - the settings of `warpwright train`: the values of its option table, from a recipe and the command line. */
#pragma once

#include "base/err.h"
#include "nn/settings.h"
#include "train/learner.h"

#include <jansson.h>
#include <limits.h>
#include <stdint.h>

struct ww_recipe {
	const char *stage, *model, *config, *tokenizer, *data, *held_out, *output;
	const char *learn, *prompt, *order, *schedule, *device, *dtype, *numbers;
	int64_t sequence, step_tokens, micro, steps, epochs, warmup, decay, seed, keep_layers, checkpoint_every,
		keep_checkpoints, max_skips;
	double lr, min_lr, beta1, beta2, eps, weight_decay, clip, spike, memory;
	int other_arithmetic, json;
	/* of the stages that sample, or learn from what was sampled */
	const char *critic, *tasks, *advantage, *mean, *target, *decide, *reward, *rule, *reference, *curriculum,
		*judge_devices, *answers;
	int64_t episodes, samples, context_tokens, reply_tokens, update_epochs, minibatch, judge_threads;
	int64_t turns, parallel, cache_tokens, staleness, idle_turns;
	double critic_lr, gamma, lambda, critic_lambda, alpha, clip_low, clip_high, dual_clip, truncate, kl, stop_entropy,
		stop_reward, stop_invalid, judge_seconds, judge_memory;
};

/* The record of a step. */
struct ww_train_step {
	int64_t step, steps;
	double loss;             /* mean over the step's tokens by weight, before the update */
	double lr, norm;         /* norm of the gradient before clipping; NaN where there was no update */
	const char *skipped;     /* NULL, "nan" or "spike" */
	int64_t tokens, learned; /* inputs of the step; predictions with weight */
	int64_t total_tokens;
	double epoch, seconds; /* epochs done; of this step */
	int64_t device_bytes;  /* the most that the device's memory held so far */
};

struct ww_train_hooks {
	const volatile int *interrupted; /* non-zero between batches: save a checkpoint and end */
	void (*say)(void *ctx, const char *line);
	void (*on_stage)(void *ctx, const char *stage); /* what is under way now: "sampling: 3 of 64 episodes" */
	void (*on_step)(void *ctx, const struct ww_train_step *s);
	void *ctx;
};

struct ww_train_result {
	struct ww_train_step last;
	int64_t first_step, skipped; /* first_step: the one this process began with */
	double seconds;              /* of this process's steps */
	int64_t tokens;
	uint64_t predicted_bytes;
	char checkpoint[PATH_MAX];
};

/* ---- what the stages share */

enum { WW_TRAIN_MICRO_TOKENS = 16384 }; /* of a micro-batch, where no sequence is longer */
void ww_train_say(const struct ww_train_hooks *h, const char *fmt, ...) WW_PRINTF(2, 3);
void ww_train_stage(const struct ww_train_hooks *h, const char *fmt, ...) WW_PRINTF(2, 3);
/* WW_ERR_USAGE where the recipe leaves out (value NULL) what its stage needs: all of that in one line. */
struct ww_needed {
	const char *what, *value;
};
enum ww_rc ww_recipe_needs(
	const struct ww_recipe *o, const struct ww_needed *needed, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* WW_F32 or WW_BF16, by the recipe or else by the model's own (dtype, of its config). */
int ww_recipe_dtype(const struct ww_recipe *o, int dtype);
/* The form of prompt that checkpoints record: the recipe's `prompt`; if that is "same", the model's (may be NULL) or
 * else the tokenizer directory's. */
enum ww_rc ww_recipe_settings(const struct ww_recipe *o, struct ww_settings *out, struct ww_err *err) WW_MUST_CHECK;
/* AdamW as the recipe has it; max_tokens of a micro-batch, keep layers' activations. */
struct ww_learner_opts ww_recipe_learner(const struct ww_recipe *o, int64_t max_tokens, int64_t keep);

/* Stage sft: from the recipe, or from the last checkpoint in its output directory, to the end.  `values`: the recipe as
 * an object of texts and numbers, kept in the run so that a changed one is refused.  WW_ERR_INTERRUPTED where
 * *hooks->interrupted said so, after a checkpoint. */
enum ww_rc ww_sft_run(const struct ww_recipe *o, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *out, struct ww_err *err) WW_MUST_CHECK;
/* The same on given sequences (borrowed), in place of the recipe's data. */
struct ww_data;
enum ww_rc ww_sft_run_on(const struct ww_recipe *o, const json_t *values, struct ww_data *data,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err) WW_MUST_CHECK;
