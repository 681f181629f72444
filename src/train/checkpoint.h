/* checkpoint.h - the state of a run on disk: complete or absent, at any moment.
 *
 *     RUN/checkpoints/step-00000200/      a model that transformers loads: config, weights, the tokenizer's files
 *         optimizer/                      moments (and masters) in safetensors
 *         critic/                         the same of a critic, where there is one
 *         state.json                      struct ww_train_state
 *     RUN/model                           link to the newest
 */
#pragma once

#include "nn/settings.h"
#include "train/learner.h"
#include "train/schedule.h"

#include <jansson.h>

struct ww_train_state {
	int64_t step, updates, critic_updates; /* done */
	int64_t epoch, row;                    /* of the next row */
	int64_t total_tokens, log_bytes;
	struct ww_guard guard;
	json_t *stage; /* the stage's own state, for resuming; NULL: none.  After reading it is the caller's */
};

/* What is trained; critic may be NULL. */
struct ww_trained {
	struct ww_learner *policy, *critic;
	const char *tokenizer_dir;   /* its files are saved with the policy; NULL: none */
	struct ww_settings settings; /* of the policy; unset members are those of the tokenizer's directory */
};

/* Write a checkpoint, point RUN/model at it, and remove all but the newest `keep`.  Policy, critic, optimizers and
 * state appear in one rename.  On an error, a full disk too, the earlier ones are unchanged. */
enum ww_rc ww_checkpoint_save(const char *run, const struct ww_trained *t, const struct ww_train_state *s, int64_t keep,
	struct ww_err *err) WW_MUST_CHECK;
/* The directory of a step's checkpoint (PATH_MAX bytes); a run's path beyond 4,000 bytes is cut. */
void ww_checkpoint_path(const char *run, int64_t step, char *out);
/* The newest one's directory into path (PATH_MAX bytes), "" where there is none; completes what an interrupted save
 * left: removes unfinished checkpoints and those beyond the newest `keep`, and sets the link. */
enum ww_rc ww_checkpoint_find(const char *run, int64_t keep, char *path, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_checkpoint_state(const char *path, struct ww_train_state *out, struct ww_err *err) WW_MUST_CHECK;
/* The critic's directory in a checkpoint (PATH_MAX bytes). */
enum ww_rc ww_checkpoint_critic(const char *path, char *dir, struct ww_err *err) WW_MUST_CHECK;
/* Load the optimizers of learners whose models were opened from a checkpoint's directory. */
enum ww_rc ww_checkpoint_load(
	const char *path, const struct ww_trained *t, const struct ww_train_state *s, struct ww_err *err) WW_MUST_CHECK;
