/* value.c - stage `value`: a critic learns to predict the rewards of recorded episodes; the policy is unchanged.
 *
 * A pass goes over all episodes in an order of its own, an update for each `episodes` of them; targets are value plus
 * advantage by the critic as it is at that update, so the reward moves back through an episode from pass to pass.  One
 * episode in eight is held back for evaluation: the part of its rewards' variance that the critic explains decides
 * whether the critic may be used for a policy.
 */
#include "rl/value.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/time.h"
#include "host/lease.h"
#include "rl/recorded.h"
#include "train/checkpoint.h"
#include "train/rl_step.h"
#include "train/run_dir.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT_OUT = 8 };
#define GATE 0.3

struct value {
	const struct ww_recipe *o;
	const struct ww_train_hooks *hooks;
	struct ww_train_result *out;
	struct ww_run_dir dir;
	struct ww_dev *dev;
	struct ww_share share;
	struct ww_config config;
	struct ww_memory memory;
	struct ww_model *m;
	struct ww_learner *critic;
	struct ww_train_state state;
	struct ww_recorded_set all;
	struct ww_trajectory *t; /* in the order of a pass: borrowed from `all`, those left out last */
	int64_t n, left_out, longest, saved_step;
};

static enum ww_rc check_recipe(const struct ww_recipe *o, struct ww_err *err)
{
	const struct ww_needed needed[] = { { "model (a policy's directory or a critic's)", o->model },
		{ "data (recorded episodes)", o->data }, { "output", o->output } };
	return ww_recipe_needs(o, needed, WW_ARRAY_LEN(needed), err);
}

static enum ww_rc read_config(struct value *v, struct ww_err *err)
{
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, v->o->model, "config.json", err));
	if (ww_config_read(path, &v->config, err) != WW_OK)
		return ww_err_wrap(err, "model");
	v->config.critic = 1;
	v->config.dtype = ww_recipe_dtype(v->o, v->config.dtype);
	return WW_OK;
}

static enum ww_rc open_data(struct value *v, struct ww_err *err)
{
	struct ww_rl_read how = { .reward = ww_rl_reward_of(v->o->reward),
		.vocab = v->config.vocab_size,
		.held_out = v->o->held_out,
		.interrupted = v->hooks->interrupted };
	ww_train_stage(
		v->hooks, "reading the episodes%s", v->o->held_out ? ", comparing their tasks with the held-out sets" : "");
	WW_CHECK(ww_rl_recorded_read(v->o->data, &how, &v->all, err));
	WW_CHECK(WW_NEW(v->t, v->all.n, err));
	for (int64_t i = 0; i < v->all.n; i++) {
		if (i % LEFT_OUT == LEFT_OUT - 1)
			v->t[v->all.n - ++v->left_out] = v->all.t[i];
		else
			v->t[v->n++] = v->all.t[i];
		v->longest = v->all.t[i].n > v->longest ? v->all.t[i].n : v->longest;
	}
	ww_train_say(v->hooks,
		"data: %" PRId64 " episodes to learn from, %" PRId64 " left out; %" PRId64
		" without tokens, context or end passed over",
		v->n, v->left_out, v->all.passed_over);
	return v->left_out ? WW_OK
					   : ww_err_set(err, WW_ERR_USAGE, "the data holds %" PRId64 " whole episodes; %d are the least",
							 v->all.n, LEFT_OUT);
}

static int64_t micro_tokens(const struct value *v)
{
	return v->longest > WW_TRAIN_MICRO_TOKENS ? v->longest : WW_TRAIN_MICRO_TOKENS;
}

static enum ww_rc plan_memory(struct value *v, struct ww_err *err)
{
	const struct ww_recipe *o = v->o;
	if (v->longest > v->config.max_position)
		return ww_err_set(err, WW_ERR_USAGE, "an episode has %" PRId64 " tokens, the model %" PRId64 " positions",
			v->longest, v->config.max_position);
	struct ww_memory_ask ask = { .config = &v->config,
		.dtype = (int)v->config.dtype,
		.max_tokens = micro_tokens(v),
		.longest = v->longest,
		.keep = o->keep_layers,
		.budget = (uint64_t)(o->memory * 1e9) };
	WW_CHECK(ww_memory_plan(&ask, v->dev, &v->memory, err));
	v->out->predicted_bytes = v->memory.total;
	return WW_OK;
}

static enum ww_rc open_critic(struct value *v, struct ww_err *err)
{
	const struct ww_recipe *o = v->o;
	char from[PATH_MAX];
	WW_CHECK(ww_checkpoint_find(o->output, o->keep_checkpoints, from, err));
	if (from[0])
		WW_CHECK(ww_checkpoint_state(from, &v->state, err));
	json_decref(v->state.stage);
	v->state.stage = NULL;
	ww_train_stage(v->hooks, "loading the model");
	WW_CHECK(ww_model_open_critic(from[0] ? from : o->model, v->dev, (int)v->config.dtype, &v->m, err));
	struct ww_learner_opts l = ww_recipe_learner(o, micro_tokens(v), v->memory.keep);
	WW_CHECK(ww_learner_new(v->m, &l, &v->critic, err));
	v->saved_step = from[0] ? v->state.step : -1;
	v->out->first_step = v->state.step + 1;
	v->out->last = (struct ww_train_step){ .step = v->state.step, .loss = NAN };
	snprintf(v->out->checkpoint, sizeof(v->out->checkpoint), "%s", from);
	return from[0] ? ww_checkpoint_load(from, &(struct ww_trained){ .policy = v->critic }, &v->state, err) : WW_OK;
}

/* The order of a pass depends on seed and pass alone. */
static void shuffle(struct value *v, int64_t pass)
{
	struct ww_rng rng;
	int64_t k = 0;
	for (int64_t i = 0; i < v->all.n; i++)
		if (i % LEFT_OUT != LEFT_OUT - 1)
			v->t[k++] = v->all.t[i];
	ww_rng_init(&rng, (uint64_t)v->o->seed, (uint64_t)pass);
	for (int64_t i = v->n - 1; i > 0; i--) {
		int64_t j = (int64_t)ww_rng_below(&rng, (uint64_t)i + 1);
		struct ww_trajectory other = v->t[j];
		v->t[j] = v->t[i];
		v->t[i] = other;
	}
}

static struct ww_rl_step_opts step_opts(const struct value *v, double lr)
{
	return (struct ww_rl_step_opts){ .advantage = WW_RL_BY_CRITIC,
		.policy_gae = { v->o->gamma, v->o->critic_lambda, 0 },
		.critic_gae = { v->o->gamma, v->o->critic_lambda, 0 },
		.mean = strcmp(v->o->mean, "token") ? WW_RL_MEAN_EPISODE : WW_RL_MEAN_TOKEN,
		.epochs = 1,
		.critic_lr = lr };
}

static enum ww_rc one_pass(struct value *v, struct ww_rl_step_result *seen, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	struct ww_train_step r = { .step = v->state.step + 1, .steps = v->o->epochs, .lr = v->o->critic_lr };
	struct ww_rl_step_opts learn = step_opts(v, v->o->critic_lr), look = step_opts(v, 0);
	struct ww_rl_step_result x;
	int64_t updates = 0, skipped = 0;
	shuffle(v, r.step);
	for (int64_t at = 0; at < v->n; at += v->o->episodes, updates++) {
		ww_train_stage(
			v->hooks, "pass %" PRId64 "/%" PRId64 ": %" PRId64 " of %" PRId64 " episodes", r.step, r.steps, at, v->n);
		WW_CHECK(ww_share_step(&v->share, NULL, err)); /* an interruption waits for the end of the pass */
		int64_t n = v->n - at < v->o->episodes ? v->n - at : v->o->episodes;
		WW_CHECK(ww_rl_step(&learn, NULL, v->critic, v->t + at, NULL, n, &x, err));
		r.loss += x.value_loss;
		r.norm = (double)x.critic_norm;
		r.tokens += x.own_tokens;
		skipped += !isfinite(x.critic_norm);
	}
	if (skipped == updates)
		return ww_err_set(err, WW_ERR_LIMIT,
			"pass %" PRId64 ": all of its %" PRId64
			" updates were skipped: gradients that are not finite; a lower critic-lr may help",
			r.step, updates);
	WW_CHECK(ww_rl_step(&look, NULL, v->critic, v->t + v->all.n - v->left_out, NULL, v->left_out, seen, err));
	ww_share_rest(&v->share);
	r.loss /= (double)updates;
	r.seconds = ww_seconds_since(start);
	r.device_bytes = v->dev->peak_bytes;
	v->state.step = r.step;
	v->state.updates = ww_learner_updates(v->critic);
	r.total_tokens = v->state.total_tokens += r.tokens;
	v->out->last = r;
	v->out->seconds += r.seconds;
	v->out->tokens += r.tokens;
	json_auto_t *line = json_pack("{s:I, s:o, s:o, s:o, s:f, s:o, s:I, s:I, s:I, s:I, s:f, s:f, s:I}", "step",
		(json_int_t)r.step, "value_loss", ww_json_real(r.loss), "explained", ww_json_real(seen->explained),
		"explained_middle", ww_json_real(seen->explained_middle), "lr", r.lr, "critic_norm", ww_json_real(r.norm),
		"episodes", (json_int_t)v->n, "left_out", (json_int_t)v->left_out, "own_tokens", (json_int_t)r.tokens,
		"total_tokens", (json_int_t)r.total_tokens, "tokens_per_second", (double)r.tokens / fmax(r.seconds, 1e-9),
		"seconds", r.seconds, "device_bytes", (json_int_t)r.device_bytes);
	v->hooks->on_step(v->hooks->ctx, &r);
	return line ? ww_run_dir_log(&v->dir, line, &v->state.log_bytes, err) : ww_nomem(err);
}

static enum ww_rc save(struct value *v, struct ww_err *err)
{
	struct ww_trained t = { .policy = v->critic, .tokenizer_dir = v->o->tokenizer ? v->o->tokenizer : v->o->model };
	if (v->saved_step == v->state.step)
		return WW_OK;
	ww_train_stage(v->hooks, "writing a checkpoint");
	WW_CHECK(ww_run_dir_sync(&v->dir, err));
	WW_CHECK(ww_checkpoint_save(v->o->output, &t, &v->state, v->o->keep_checkpoints, err));
	v->saved_step = v->state.step;
	ww_checkpoint_path(v->o->output, v->state.step, v->out->checkpoint);
	return WW_OK;
}

static enum ww_rc loop(struct value *v, struct ww_err *err)
{
	struct ww_rl_step_result seen = { .explained = NAN, .explained_middle = NAN };
	struct ww_rl_step_opts look = step_opts(v, 0);
	int complete = v->state.step >= v->o->epochs; /* then no pass looks at the episodes left out */
	while (v->state.step < v->o->epochs) {
		WW_CHECK(one_pass(v, &seen, err));
		int stopped = *v->hooks->interrupted;
		if (stopped || v->state.step == v->o->epochs ||
			(v->o->checkpoint_every && v->state.step % v->o->checkpoint_every == 0))
			WW_CHECK(save(v, err));
		if (stopped && v->state.step < v->o->epochs)
			return ww_err_set(err, WW_ERR_INTERRUPTED,
				"interrupted after pass %" PRId64 "; the same command goes on from there", v->state.step);
	}
	if (complete)
		WW_CHECK(ww_rl_step(&look, NULL, v->critic, v->t + v->all.n - v->left_out, NULL, v->left_out, &seen, err));
	if (isnan(seen.explained))
		return ww_err_set(err, WW_ERR_LIMIT,
			"all rewards of the %" PRId64
			" episodes left out are equal, which no critic can explain; add episodes of more "
			"tasks",
			v->left_out);
	if (seen.explained >= GATE && seen.explained_middle >= GATE)
		return WW_OK;
	return ww_err_set(err, WW_ERR_LIMIT,
		"after %" PRId64 " passes the critic explains %.3f of the reward's variance on the %" PRId64
		" episodes left out, %.3f at their middle tokens; %.1f of both is the gate; more epochs, or critic-lambda 1, "
		"may "
		"help",
		v->state.step, seen.explained, v->left_out, seen.explained_middle, GATE);
}

enum ww_rc ww_value_run(const struct ww_recipe *o, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *out, struct ww_err *err)
{
	struct value v = { .o = o, .hooks = hooks, .out = out, .dir = WW_RUN_DIR_INIT, .share = WW_SHARE_INIT };
	json_t *own = NULL;
	enum ww_rc rc;
	memset(out, 0, sizeof(*out));
	WW_TRY(check_recipe(o, err));
	WW_TRY(read_config(&v, err));
	WW_TRY(open_data(&v, err));
	WW_TRY(ww_dev_open(o->device, !strcmp(o->numbers, "exact"), &v.dev, err));
	WW_TRY(plan_memory(&v, err));
	WW_TRY(ww_run_dir_open(&v.dir, o->output, err));
	WW_TRY(ww_share_open(&v.share, v.dev->id, err));
	WW_TRY(open_critic(&v, err));
	if (!(own = json_pack("{s:I, s:I, s:{s:s, s:I, s:I}, s:{s:I}}", "steps", (json_int_t)o->epochs, "parameters",
			  (json_int_t)ww_config_params(&v.config), "data", "hash", v.all.hash, "episodes", (json_int_t)v.n,
			  "left_out", (json_int_t)v.left_out, "memory", "total", (json_int_t)v.memory.total)))
		WW_TRY(ww_nomem(err));
	WW_TRY(ww_run_dir_describe(&v.dir, values, v.dev, o->other_arithmetic, own, err));
	WW_TRY(ww_run_dir_open_log(&v.dir, v.state.log_bytes, err));
	WW_TRY(loop(&v, err));
out:
	json_decref(own);
	ww_learner_free(v.critic);
	ww_model_free(v.m);
	free(v.t);
	ww_recorded_set_release(&v.all);
	ww_share_close(&v.share);
	ww_dev_close(v.dev);
	ww_run_dir_close(&v.dir);
	return rc;
}
