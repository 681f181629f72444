/* sft.c - stage `sft`: a model learns to continue texts, or to answer as the assistant of its conversations does.
 *
 * Opening comes first and is complete before anything is written: recipe, data, tokenizer, memory.  Then each step
 * takes its rows, adds their gradients batch by batch, and updates once.  All that a step depends on is in the
 * checkpoint or follows from the recipe (weights, moments, counters, the guard's memory, the place in the data), so a
 * run that was killed at any moment and started again makes the weights of one that was not, to the last bit.
 *
 * A batch and an update hold a share of the device (host/lease.h): the run waits while a judge measures there.
 *
 * The log is written before the checkpoint that counts its bytes, and cut back to them on resuming: it never holds a
 * step twice.
 *
 *     RUN/run.json       the recipe, the data's hash, the memory that was predicted
 *     RUN/log.jsonl      one object a step (docs/formats/train.md)
 *     RUN/checkpoints/   checkpoint.h
 */
#include "train/checkpoint.h"
#include "train/recipe.h"
#include "train/run_dir.h"
#include "train/rows.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "host/lease.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sft {
	const struct ww_recipe *o;
	const struct ww_train_hooks *hooks;
	struct ww_train_result *out;
	struct ww_config config;
	int dtype;
	struct ww_run_dir dir;
	char tokenizer_dir[PATH_MAX];
	struct ww_dev *dev;
	struct ww_share share; /* of the device */
	struct ww_data *data;
	int borrowed; /* the data is the caller's */
	struct ww_cursor cursor;
	struct ww_step_rows rows;
	struct ww_micro micro;
	struct ww_memory memory;
	struct ww_model *model;
	struct ww_learner *learner;
	struct ww_schedule schedule;
	struct ww_train_state state;
	struct ww_settings settings;
	int64_t rows_per_step, rows_per_micro, end_epoch, saved_step;
};

/* ---- opening */

static enum ww_rc check_recipe(const struct ww_recipe *o, int borrowed, struct ww_err *err)
{
	const struct ww_needed needed[] = { { "data", borrowed ? "" : o->data }, { "output", o->output },
		{ "model (a directory) or config (a config.json, for new weights)", o->model ? o->model : o->config } };
	WW_CHECK(ww_recipe_needs(o, needed, WW_ARRAY_LEN(needed), err));
	if (o->model && o->config)
		return ww_err_set(err, WW_ERR_USAGE,
			"the recipe has both model and config; give either the model's directory, or a config.json for new weights");
	if (o->decay && strcmp(o->schedule, "wsd"))
		return ww_err_set(err, WW_ERR_USAGE, "decay is only used by schedule: wsd; remove it or choose that schedule");
	return WW_OK;
}

static enum ww_rc open_config(struct sft *s, struct ww_err *err)
{
	const struct ww_recipe *o = s->o;
	char path[PATH_MAX];
	enum ww_rc rc = WW_OK;
	if (o->model)
		rc = ww_fs_join(path, o->model, "config.json", err);
	if (rc == WW_OK && !o->model && !ww_fs_is_file(o->config))
		rc = ww_err_set(err, WW_ERR_USAGE,
			"there is no config %s; a relative path is looked for in the working directory, then beside the recipe",
			o->config);
	if (rc == WW_OK)
		rc = ww_config_read(o->model ? path : o->config, &s->config, err);
	if (rc != WW_OK && o->model)
		return ww_err_wrap(err, "model");
	if (rc != WW_OK)
		return rc;
	s->config.dtype = s->dtype = ww_recipe_dtype(o, s->config.dtype);
	if (s->config.critic)
		return ww_err_set(err, WW_ERR_USAGE, "%s is a critic: it has no distribution over tokens to train",
			o->model ? o->model : path);
	if (o->sequence > s->config.max_position)
		return ww_err_set(err, WW_ERR_USAGE, "sequence is %" PRId64 ", the model has %" PRId64 " positions",
			o->sequence, s->config.max_position);
	return WW_OK;
}

static enum ww_rc open_data(struct sft *s, struct ww_err *err)
{
	const struct ww_recipe *o = s->o;
	const char *dir = o->tokenizer ? o->tokenizer : o->model;
	struct ww_data_opts d = { .paths = o->data,
		.max_inputs = o->sequence,
		.learn_all = !strcmp(o->learn, "all") || !strcmp(o->stage, "pretrain"),
		.config = &s->config };
	struct ww_held_out *held_out = NULL;
	struct ww_tok *tok = NULL;
	WW_CHECK(ww_recipe_settings(o, &s->settings, err));
	if (o->held_out && !s->borrowed)
		ww_train_stage(s->hooks, "reading the held-out sets");
	enum ww_rc rc = o->held_out && !s->borrowed ? ww_held_out_open(&held_out, o->held_out, s->hooks->interrupted, err)
												: WW_OK;
	if (rc == WW_OK && dir)
		rc = ww_fs_join(s->tokenizer_dir, dir, "tokenizer.json", err);
	if (rc == WW_OK && o->tokenizer && !ww_fs_is_file(s->tokenizer_dir))
		rc = ww_err_set(err, WW_ERR_USAGE,
			"tokenizer: there is no %s; `warpwright model tokenizer %s --data PATHS` makes one", s->tokenizer_dir, dir);
	if (rc == WW_OK && dir && (o->tokenizer || ww_fs_is_file(s->tokenizer_dir)))
		rc = ww_tok_open(s->tokenizer_dir, &tok, err);
	if (rc == WW_OK && tok && ww_tok_size(tok) > s->config.vocab_size)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s has %d tokens, the model's vocabulary %" PRId64, s->tokenizer_dir,
			(int)ww_tok_size(tok), s->config.vocab_size);
	snprintf(s->tokenizer_dir, sizeof(s->tokenizer_dir), "%s", tok ? dir : "");
	d.tok = tok;
	d.held_out = held_out;
	if (!s->borrowed)
		ww_train_stage(s->hooks, "reading the data");
	if (rc == WW_OK && !s->borrowed)
		rc = ww_data_open(&d, &s->data, err);
	ww_tok_free(tok);
	ww_held_out_free(held_out);
	if (rc != WW_OK || s->borrowed)
		return rc;
	ww_train_say(s->hooks,
		"data: %" PRId64 " tokens in %" PRId64 " sequences (%" PRId64 " files, %" PRId64 " documents, %" PRId64
		" conversations; %" PRId64 " cut off, %" PRId64 " with nothing to learn, %" PRId64
		" compacted and left out, %" PRId64 " files that are no text)",
		s->data->tokens, s->data->count, s->data->files, s->data->documents, s->data->conversations, s->data->cut,
		s->data->empty, s->data->compacted, s->data->binary);
	return WW_OK;
}

static enum ww_rc open_rows(struct sft *s, struct ww_err *err)
{
	const struct ww_recipe *o = s->o;
	int64_t rows = 0;
	s->cursor = (struct ww_cursor){
		.data = s->data, .row_inputs = o->sequence, .shuffle = !strcmp(o->order, "shuffled"), .seed = (uint64_t)o->seed
	};
	s->rows_per_step = o->step_tokens / o->sequence > 1 ? o->step_tokens / o->sequence : 1;
	s->rows_per_micro = o->micro                  ? o->micro
		: WW_TRAIN_MICRO_TOKENS / o->sequence > 1 ? WW_TRAIN_MICRO_TOKENS / o->sequence
												  : 1;
	if (s->rows_per_micro > s->rows_per_step)
		s->rows_per_micro = s->rows_per_step;
	s->end_epoch = o->steps ? 0 : o->epochs;
	WW_CHECK(ww_micro_init(&s->micro, s->rows_per_micro * o->sequence, err));
	WW_CHECK(ww_cursor_count(&s->cursor, 0, o->steps ? 1 : o->epochs, &rows, err));
	s->schedule = (struct ww_schedule){ .kind = ww_schedule_kind_of(o->schedule),
		.lr = o->lr > 0 ? o->lr : 1e-4,
		.floor = o->min_lr,
		.warmup = o->warmup,
		.steps = o->steps ? o->steps : (rows + s->rows_per_step - 1) / s->rows_per_step };
	s->schedule.decay = o->decay ? o->decay : s->schedule.steps / 10;
	if (s->schedule.warmup + (s->schedule.kind == WW_SCHEDULE_WSD ? s->schedule.decay : 0) > s->schedule.steps)
		return ww_err_set(
			err, WW_ERR_USAGE, "warmup and decay are longer than the run's %" PRId64 " steps", s->schedule.steps);
	return WW_OK;
}

static enum ww_rc open_memory(struct sft *s, struct ww_err *err)
{
	const struct ww_recipe *o = s->o;
	struct ww_memory_ask ask = { .config = &s->config,
		.dtype = s->dtype,
		.max_tokens = s->micro.max_t,
		.longest = o->sequence,
		.keep = o->keep_layers,
		.budget = (uint64_t)(o->memory * 1e9) };
	enum ww_rc rc = ww_memory_plan(&ask, s->dev, &s->memory, err);
	s->out->predicted_bytes = s->memory.total;
	if (rc != WW_OK)
		return rc;
	ww_train_say(s->hooks,
		"memory: %.3f GB (weights %.3f, gradients and optimizer %.3f, activations %.3f); %" PRId64 " of %" PRId64
		" layers keep their activations",
		(double)s->memory.total / 1e9, (double)s->memory.model / 1e9, (double)s->memory.optim / 1e9,
		(double)(s->memory.run + s->memory.workspace) / 1e9, s->memory.keep, s->memory.layers);
	return WW_OK;
}

/* ---- the run's directory */

/* run.json's members of this stage. */
static json_t *description(const struct sft *s)
{
	return json_pack("{s:I, s:I, s:{s:s, s:I, s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I, s:I, s:I}}", "steps",
		(json_int_t)s->schedule.steps, "parameters", (json_int_t)ww_config_params(&s->config), "data", "hash",
		s->data->hash, "tokens", (json_int_t)s->data->tokens, "sequences", (json_int_t)s->data->count, "files",
		(json_int_t)s->data->files, "cut", (json_int_t)s->data->cut, "empty", (json_int_t)s->data->empty, "binary",
		(json_int_t)s->data->binary, "memory", "model", (json_int_t)s->memory.model, "optimizer",
		(json_int_t)s->memory.optim, "run", (json_int_t)s->memory.run, "workspace", (json_int_t)s->memory.workspace,
		"total", (json_int_t)s->memory.total, "keep_layers", (json_int_t)s->memory.keep);
}

/* Weights: of the last checkpoint, of a model, or new ones. */
static enum ww_rc open_learner(struct sft *s, struct ww_err *err)
{
	const struct ww_recipe *o = s->o;
	char from[PATH_MAX];
	WW_CHECK(ww_checkpoint_find(o->output, o->keep_checkpoints, from, err));
	if (from[0]) {
		WW_CHECK(ww_checkpoint_state(from, &s->state, err));
		ww_train_say(s->hooks, "resuming %s", from);
		snprintf(s->out->checkpoint, sizeof(s->out->checkpoint), "%s", from);
	}
	ww_train_stage(s->hooks, from[0] || o->model ? "loading the model" : "drawing the model's first weights");
	if (from[0] || o->model)
		WW_CHECK(ww_model_open(from[0] ? from : o->model, s->dev, s->dtype, &s->model, err));
	else
		WW_CHECK(ww_model_new(&s->config, s->dev, s->dtype, (uint64_t)o->seed, &s->model, err));
	struct ww_learner_opts l = ww_recipe_learner(o, s->micro.max_t, s->memory.keep);
	WW_CHECK(ww_learner_new(s->model, &l, &s->learner, err));
	if (from[0])
		WW_CHECK(ww_checkpoint_load(from, &(struct ww_trained){ .policy = s->learner }, &s->state, err));
	s->state.guard.factor = o->spike;
	s->cursor.epoch = s->state.epoch;
	s->cursor.row = s->state.row;
	s->saved_step = from[0] ? s->state.step : -1;
	s->out->first_step = s->state.step + 1;
	s->out->last = (struct ww_train_step){ .step = s->state.step, .loss = NAN };
	if (s->state.step == s->schedule.steps)
		ww_train_say(s->hooks, "the run is complete");
	return WW_OK;
}

/* ---- steps */

static int wants_stop(const struct sft *s) { return *s->hooks->interrupted; }

/* Before each batch: wait for a judge that measures on the device.  The work before it has ended then, and no
 * measurement begins before the next call, so that the update, too, disturbs none. */
static enum ww_rc wait_for_device(struct sft *s, int *stopped, struct ww_err *err)
{
	enum ww_rc rc = s->dev->ops->sync(s->model->stream, err);
	if (rc == WW_OK)
		rc = ww_share_step(&s->share, s->hooks->interrupted, err);
	*stopped = rc == WW_ERR_INTERRUPTED || wants_stop(s);
	return rc == WW_ERR_INTERRUPTED ? WW_OK : rc;
}

/* Turn a batch's weights into the derivatives of the step's loss, in place, and add the batch's part of the loss. */
static enum ww_rc add_batch(struct sft *s, double *loss, struct ww_err *err)
{
	struct ww_micro *m = &s->micro;
	struct ww_batch b = {
		.ids = m->ids, .starts = m->starts, .t = m->t, .sequences = m->sequences, .rows = m->rows, .n_rows = m->learned
	};
	const float *logp;
	for (int64_t i = 0; i < m->learned; i++)
		m->weight[i] = (float)(-(double)m->weight[i] / s->rows.weight);
	enum ww_rc rc = ww_learner_add_targets(s->learner, &b, m->targets, m->weight, &logp, err);
	for (int64_t i = 0; rc == WW_OK && i < m->learned; i++)
		*loss += (double)m->weight[i] * (double)logp[i];
	return rc;
}

/* The gradient and the loss of the step's rows; *stopped: interrupted, and no weight was changed. */
static enum ww_rc gradient(struct sft *s, double *loss, int *stopped, struct ww_err *err)
{
	*loss = 0;
	for (int64_t r = 0; r < s->rows.count; r += s->rows_per_micro) {
		int64_t end = r + s->rows_per_micro < s->rows.count ? r + s->rows_per_micro : s->rows.count;
		WW_CHECK(wait_for_device(s, stopped, err));
		if (*stopped)
			break;
		ww_micro_fill(&s->micro, s->data, &s->rows, r, end);
		WW_CHECK(add_batch(s, loss, err));
	}
	return WW_OK;
}

static enum ww_rc write_log(struct sft *s, const struct ww_train_step *r, struct ww_err *err)
{
	json_auto_t *v = json_pack("{s:I, s:o, s:f, s:o, s:s?, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "step",
		(json_int_t)r->step, "loss", ww_json_real(r->loss), "lr", r->lr, "norm", ww_json_real(r->norm), "skipped",
		r->skipped, "tokens", (json_int_t)r->tokens, "learned", (json_int_t)r->learned, "total_tokens",
		(json_int_t)r->total_tokens, "epoch", r->epoch, "seconds", r->seconds, "tokens_per_second",
		(double)r->tokens / fmax(r->seconds, 1e-9), "device_bytes", (json_int_t)r->device_bytes);
	return v ? ww_run_dir_log(&s->dir, v, &s->state.log_bytes, err) : ww_nomem(err);
}

/* Update the weights or skip the step, and record which. */
static enum ww_rc update(struct sft *s, double loss, struct ww_train_step *r, struct ww_err *err)
{
	static const char *const words[] = { NULL, "nan", "spike" };
	enum ww_guard_word word = ww_guard_look(&s->state.guard, loss);
	float norm = NAN;
	if (word == WW_GUARD_FINE) {
		WW_CHECK(ww_learner_update(s->learner, r->lr, &norm, err));
		word = isnan(norm) ? WW_GUARD_NAN : word;
	} else {
		WW_CHECK(ww_learner_drop(s->learner, err));
	}
	ww_guard_note(&s->state.guard, word, loss);
	r->norm = (double)norm;
	r->skipped = words[word];
	if (r->skipped)
		ww_train_say(s->hooks, "step %" PRId64 " skipped: %s (loss %g)", r->step,
			word == WW_GUARD_NAN ? "not finite" : "a spike", loss);
	return WW_OK;
}

static enum ww_rc one_step(struct sft *s, int *stopped, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	struct ww_train_step r = { .step = s->state.step + 1, .steps = s->schedule.steps };
	if (!s->out->tokens) /* each later step has a line of its own */
		ww_train_stage(s->hooks, "step %" PRId64 "/%" PRId64, r.step, r.steps);
	WW_CHECK(ww_step_rows_take(&s->rows, &s->cursor, s->rows_per_step, s->end_epoch, err));
	WW_CHECK(gradient(s, &r.loss, stopped, err));
	if (*stopped)
		return WW_OK;
	r.lr = ww_schedule_lr(&s->schedule, r.step);
	WW_CHECK(update(s, r.loss, &r, err));
	s->state.step = r.step;
	s->state.updates = ww_learner_updates(s->learner);
	s->state.epoch = s->cursor.epoch;
	s->state.row = s->cursor.row;
	s->state.total_tokens += s->rows.tokens;
	r.tokens = s->rows.tokens;
	r.learned = s->rows.learned;
	r.total_tokens = s->state.total_tokens;
	r.epoch = ww_cursor_epochs(&s->cursor);
	r.device_bytes = s->dev->peak_bytes;
	r.seconds = ww_seconds_since(start);
	WW_CHECK(write_log(s, &r, err));
	s->out->last = r;
	s->out->seconds += r.seconds;
	s->out->tokens += r.tokens;
	s->out->skipped += r.skipped != NULL;
	s->hooks->on_step(s->hooks->ctx, &r);
	return WW_OK;
}

static enum ww_rc save(struct sft *s, struct ww_err *err)
{
	if (s->saved_step == s->state.step)
		return WW_OK;
	ww_train_stage(s->hooks, "writing a checkpoint");
	WW_CHECK(ww_run_dir_sync(&s->dir, err));
	struct ww_trained t = {
		.policy = s->learner, .tokenizer_dir = s->tokenizer_dir[0] ? s->tokenizer_dir : NULL, .settings = s->settings
	};
	WW_CHECK(ww_checkpoint_save(s->o->output, &t, &s->state, s->o->keep_checkpoints, err));
	s->saved_step = s->state.step;
	ww_checkpoint_path(s->o->output, s->state.step, s->out->checkpoint);
	return WW_OK;
}

static enum ww_rc loop(struct sft *s, struct ww_err *err)
{
	int stopped = 0;
	while (s->state.step < s->schedule.steps && !stopped) {
		WW_CHECK(one_step(s, &stopped, err));
		if (s->state.guard.skipped_in_row >= s->o->max_skips) {
			return ww_err_set(err, WW_ERR_LIMIT,
				"%" PRId64 " steps in a row were skipped, the last one %" PRId64 "; the newest checkpoint is "
				"of step %" PRId64 "; a lower lr may help",
				s->state.guard.skipped_in_row, s->state.step, s->saved_step < 0 ? 0 : s->saved_step);
		}
		stopped = stopped || wants_stop(s);
		if (stopped || s->state.step == s->schedule.steps ||
			(s->o->checkpoint_every && s->state.step % s->o->checkpoint_every == 0))
			WW_CHECK(save(s, err));
	}
	if (stopped && s->state.step < s->schedule.steps)
		return ww_err_set(err, WW_ERR_INTERRUPTED,
			"interrupted after step %" PRId64 "; the same command goes on from there", s->state.step);
	return WW_OK;
}

enum ww_rc ww_sft_run(const struct ww_recipe *o, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *out, struct ww_err *err)
{
	return ww_sft_run_on(o, values, NULL, hooks, out, err);
}

enum ww_rc ww_sft_run_on(const struct ww_recipe *o, const json_t *values, struct ww_data *data,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err)
{
	struct sft *s;
	json_t *own = NULL;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(s, 1, err));
	memset(out, 0, sizeof(*out));
	*s = (struct sft){ .o = o,
		.hooks = hooks,
		.out = out,
		.data = data,
		.borrowed = data != NULL,
		.dir = WW_RUN_DIR_INIT,
		.share = WW_SHARE_INIT };
	WW_TRY(check_recipe(o, s->borrowed, err));
	WW_TRY(open_config(s, err));
	WW_TRY(ww_dev_open(o->device, !strcmp(o->numbers, "exact"), &s->dev, err));
	WW_TRY(open_data(s, err));
	WW_TRY(open_rows(s, err));
	WW_TRY(open_memory(s, err));
	WW_TRY(ww_run_dir_open(&s->dir, o->output, err));
	if (!(own = description(s)))
		WW_TRY(ww_nomem(err));
	WW_TRY(ww_run_dir_describe(&s->dir, values, s->dev, o->other_arithmetic, own, err));
	WW_TRY(ww_share_open(&s->share, s->dev->id, err));
	WW_TRY(ww_share_step(&s->share, hooks->interrupted, err));
	WW_TRY(open_learner(s, err));
	WW_TRY(ww_run_dir_open_log(&s->dir, s->state.log_bytes, err));
	WW_TRY(loop(s, err));
out:
	ww_learner_free(s->learner);
	ww_model_free(s->model);
	ww_cursor_release(&s->cursor);
	ww_step_rows_release(&s->rows);
	ww_micro_release(&s->micro);
	if (!s->borrowed)
		ww_data_free(s->data);
	ww_share_close(&s->share);
	ww_dev_close(s->dev);
	ww_run_dir_close(&s->dir);
	json_decref(own);
	free(s);
	return rc;
}
