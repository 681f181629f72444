/* train.c - `warpwright train`: a recipe, and the command line over it.
 *
 * The option table is the recipe's format: its names are the keys, its help the documentation, and the command line
 * overrides the recipe.  An unknown key is refused; the message suggests the nearest one.
 */
#include "base/json.h"
#include "base/time.h"
#include "base/yaml.h"
#include "cmd/cmd.h"
#include "host/machine.h"
#include "rl/ppo.h"
#include "rl/value.h"
#include "task/ref.h"
#include "train/recipe.h"
#include "train/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECIPE_MAX = 1 << 20, LINE_EVERY_S = 10 };

#define AT(field) offsetof(struct ww_recipe, field)

static const struct ww_opt opts[] = {
	{ "stage", 0, WW_OPT_CHOICE, AT(stage), "pretrain|sft|ppo|value", "sft", 0, 0,
		"what to do: sft trains on texts and conversations, pretrain on every token of them; "
		"ppo lets the policy answer tasks once and learn from the judge's reward; "
		"value trains a critic on recorded episodes" },
	{ "model", 0, WW_OPT_STR, AT(model), "DIR", NULL, 0, 0, "begin with this model, in Hugging Face's form" },
	{ "config", 0, WW_OPT_STR, AT(config), "FILE", NULL, 0, 0, "begin with new weights of this config.json instead" },
	{ "tokenizer", 0, WW_OPT_STR, AT(tokenizer), "DIR", NULL, 0, 0,
		"directory with tokenizer.json, where it is not the model's" },
	{ "data", 0, WW_OPT_STR, AT(data), "PATHS", NULL, 0, 0,
		"files, directories and patterns, with commas between them; "
		"NAME.jsonl holds lines of messages, text or "
		"ids, other files are texts; value: files and directories of episodes" },
	{ "held-out", 0, WW_OPT_STR, AT(held_out), "SETS", NULL, 0, 0,
		"task sets with commas between them: a line of data about one of their tasks, by signature, is refused" },
	{ "learn", 0, WW_OPT_CHOICE, AT(learn), "assistant|all", "assistant", 0, 0,
		"which tokens of conversations have weight" },
	{ "order", 0, WW_OPT_CHOICE, AT(order), "shuffled|file", "shuffled", 0, 0,
		"order of sequences: shuffled in each epoch, or as they are read" },
	{ "output", 'o', WW_OPT_STR, AT(output), "DIR", NULL, 0, 0, "the run's directory; a run that is there is resumed" },
	{ "sequence", 0, WW_OPT_INT, AT(sequence), "N", "2048", 1, 1 << 24,
		"tokens of a row; longer documents are cut into pieces" },
	{ "step-tokens", 0, WW_OPT_INT, AT(step_tokens), "N", "65536", 1, 1 << 30,
		"tokens of a step, rounded down to whole rows" },
	{ "micro", 0, WW_OPT_INT, AT(micro), "N", "0", 0, 1 << 20,
		"rows at a time, their gradients added up; 0: as many as make 16,384 tokens" },
	{ "steps", 0, WW_OPT_INT, AT(steps), "N", "0", 0, 1e12, "steps of the whole run; 0: as many as the epochs have" },
	{ "epochs", 0, WW_OPT_INT, AT(epochs), "N", "1", 1, 1e6,
		"times through the data, where steps is 0; value: always" },
	{ "lr", 0, WW_OPT_NUM, AT(lr), "X", "0", 0, 10,
		"learning rate at its highest; 0: 1e-4, of ppo 3e-6, the published one" },
	{ "schedule", 0, WW_OPT_CHOICE, AT(schedule), WW_SCHEDULE_NAMES, "cosine", 0, 0,
		"of the learning rate after the warm-up; wsd: constant, then linear over the last steps" },
	{ "warmup", 0, WW_OPT_INT, AT(warmup), "N", "0", 0, 1e12, "steps in which the learning rate rises from 0" },
	{ "decay", 0, WW_OPT_INT, AT(decay), "N", "0", 0, 1e12, "last steps, in which wsd falls; 0: a tenth of the run" },
	{ "min-lr", 0, WW_OPT_NUM, AT(min_lr), "X", "0.1", 0, 1, "where the schedule ends, as a part of lr" },
	{ "beta1", 0, WW_OPT_NUM, AT(beta1), "X", "0.9", 0, 0.9999999, "AdamW: decay of the mean" },
	{ "beta2", 0, WW_OPT_NUM, AT(beta2), "X", "0.95", 0, 0.9999999, "AdamW: decay of the mean square" },
	{ "eps", 0, WW_OPT_NUM, AT(eps), "X", "1e-8", 1e-30, 1, "AdamW: added to the root of the mean square" },
	{ "weight-decay", 0, WW_OPT_NUM, AT(weight_decay), "X", "0.1", 0, 10,
		"AdamW: of matrices; norms and biases have none" },
	{ "clip", 0, WW_OPT_NUM, AT(clip), "X", "1", 0, 1e9, "norm of the gradient at most; 0: no clipping" },
	{ "spike", 0, WW_OPT_NUM, AT(spike), "X", "20", 0, 1e9,
		"skip a step whose loss is X median deviations above the median of the last 64; 0: never" },
	{ "max-skips", 0, WW_OPT_INT, AT(max_skips), "N", "8", 1, 1e9, "stop after N skipped steps in a row" },
	{ "seed", 0, WW_OPT_INT, AT(seed), "N", "0", 0, 9e15, "of new weights and of the order" },
	{ "device", 0, WW_OPT_CHOICE, AT(device), "auto|cuda|cpu|ref", "auto", 0, 0,
		"where to compute; auto: cuda where it works, else cpu; ref is the scalar reference" },
	{ "dtype", 0, WW_OPT_CHOICE, AT(dtype), "same|fp32|bf16", "same", 0, 0,
		"of weights and activations; masters, moments and gradients are fp32; same: as the config says" },
	{ "numbers", 0, WW_OPT_CHOICE, AT(numbers), "exact|fast", "exact", 0, 0,
		"exact: log-probabilities are those of generation, to the last bit" },
	{ "memory", 0, WW_OPT_NUM, AT(memory), "GB", "0", 0, 1e9, "device memory to take at most; 0: what is free" },
	{ "keep-layers", 0, WW_OPT_INT, AT(keep_layers), "N", "0", 0, 1 << 20,
		"layers that keep their activations, the others are computed again; 0: as many as fit" },
	{ "checkpoint-every", 0, WW_OPT_INT, AT(checkpoint_every), "N", "200", 0, 1e12,
		"steps between checkpoints; 0: only at the end" },
	{ "tasks", 0, WW_OPT_STR, AT(tasks), "PATHS", NULL, 0, 0,
		"ppo: task files (or SET#ID) with commas between them, taken in turns" },
	{ "critic", 0, WW_OPT_STR, AT(critic), "DIR", NULL, 0, 0,
		"ppo: begin with this critic; else the policy's weights with a value head of zeros" },
	{ "target", 0, WW_OPT_CHOICE, AT(target), "cpu|cuda", "cpu", 0, 0, "ppo: what the policy writes kernels for" },
	{ "judge-threads", 0, WW_OPT_INT, AT(judge_threads), "N", "0", 0, 4096,
		"ppo, cpu target: threads of reference and solution; 0: all cores" },
	{ "judge-seconds", 0, WW_OPT_NUM, AT(judge_seconds), "S", "10", 0.1, 1e6,
		"ppo: time one solution for at most S seconds" },
	{ "episodes", 0, WW_OPT_INT, AT(episodes), "N", "1024", 1, 1 << 20,
		"ppo: episodes of a step; value: of an update" },
	{ "samples", 0, WW_OPT_INT, AT(samples), "N", "8", 1, 256, "ppo: of these, episodes of one task, at a time" },
	{ "context-tokens", 0, WW_OPT_INT, AT(context_tokens), "N", "32768", 64, 1 << 24,
		"ppo: tokens of an episode at most, also no more than the model has positions" },
	{ "reply-tokens", 0, WW_OPT_INT, AT(reply_tokens), "N", "32768", 1, 1 << 24, "ppo: tokens of a reply at most" },
	{ "advantage", 0, WW_OPT_CHOICE, AT(advantage), "critic|grpo|rloo", "critic", 0, 0,
		"ppo: against a critic's values, or against the other samples of the task" },
	{ "critic-lr", 0, WW_OPT_NUM, AT(critic_lr), "X", "6e-6", 0, 10, "ppo, value: learning rate of the critic" },
	{ "gamma", 0, WW_OPT_NUM, AT(gamma), "X", "1", 0, 1, "ppo, value: discount of a token" },
	{ "lambda", 0, WW_OPT_NUM, AT(lambda), "X", "0.95", 0, 1, "ppo: of the policy's advantages" },
	{ "critic-lambda", 0, WW_OPT_NUM, AT(critic_lambda), "X", "0.95", 0, 1, "ppo, value: of the critic's targets" },
	{ "alpha", 0, WW_OPT_NUM, AT(alpha), "X", "0", 0, 1e6,
		"ppo: above 0: the policy's lambda is 1 - 1 / (alpha * own tokens), as VAPO has it with 0.05" },
	{ "clip-low", 0, WW_OPT_NUM, AT(clip_low), "X", "0.2", 0, 1, "ppo: a ratio is clipped at 1 - X" },
	{ "clip-high", 0, WW_OPT_NUM, AT(clip_high), "X", "0.28", 0, 100, "ppo: and at 1 + X" },
	{ "dual-clip", 0, WW_OPT_NUM, AT(dual_clip), "X", "0", 0, 100,
		"ppo: bad tokens count at most X times their advantage; 0: no bound" },
	{ "truncate", 0, WW_OPT_NUM, AT(truncate), "X", "0", 0, 100,
		"ppo: weigh tokens by training's over sampling's probability, at most X; 0: not" },
	{ "mean", 0, WW_OPT_CHOICE, AT(mean), "episode|token", "episode", 0, 0,
		"ppo, value: mean over an episode's tokens and then over episodes, or over all tokens of the step" },
	{ "update-epochs", 0, WW_OPT_INT, AT(update_epochs), "N", "1", 1, 1000, "ppo: passes over a step's episodes" },
	{ "minibatch", 0, WW_OPT_INT, AT(minibatch), "N", "0", 0, 1 << 20, "ppo: episodes of an update; 0: all" },
	{ "stop-entropy", 0, WW_OPT_NUM, AT(stop_entropy), "X", "0", 0, 100,
		"ppo: stop where the entropy lies below X for three steps; 0: never" },
	{ "stop-reward", 0, WW_OPT_NUM, AT(stop_reward), "X", "0", 0, 100,
		"ppo: stop where the reward lies more than X below the first step's for three steps; 0: never" },
	{ "other-arithmetic", 0, WW_OPT_FLAG, AT(other_arithmetic), NULL, NULL, 0, 0,
		"resume although device, kernels or libraries are not those that the run was begun with: its last bits change" },
	{ "keep-checkpoints", 0, WW_OPT_INT, AT(keep_checkpoints), "N", "2", 1, 1e9, "how many of the newest to keep" },
	WW_OPT_JSON(struct ww_recipe, json), WW_OPT_END
};

/* ---- the recipe */

/* A value as the command line would have it: lists with commas. */
static enum ww_rc value_text(const char *path, const char *key, const json_t *v, struct ww_str *out, struct ww_err *err)
{
	const json_t *item;
	size_t i;
	ww_str_reset(out);
	if (json_is_string(v))
		ww_str_adds(out, json_string_value(v));
	else if (!json_is_array(v))
		return ww_err_set(err, WW_ERR_USAGE, "%s: \"%s\" needs a value or a list", path, key);
	json_array_foreach(v, i, item) {
		if (!json_is_string(item))
			return ww_err_set(err, WW_ERR_USAGE, "%s: \"%s\" must be a list of strings", path, key);
		ww_str_addf(out, "%s%s", i ? "," : "", json_string_value(item));
	}
	return WW_OK;
}

/* texts owns what the options point to. */
static enum ww_rc read_recipe(
	const struct ww_cmd *cmd, const char *path, struct ww_recipe *r, json_t *texts, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(RECIPE_MAX);
	json_auto_t *recipe = NULL;
	json_t *v;
	const char *key;
	WW_CHECK(ww_yaml_read(path, RECIPE_MAX, &recipe, err));
	if (!json_is_object(recipe))
		return ww_err_set(err, WW_ERR_USAGE, "%s: a recipe is a mapping of keys to values", path);
	json_object_foreach(recipe, key, v) {
		if (!strcmp(key, "json"))
			return ww_err_set(
				err, WW_ERR_USAGE, "%s: \"json\" is no key of a recipe; give --json on the command line", path);
		if (json_is_null(v))
			continue;
		WW_CHECK(value_text(path, key, v, &text, err));
		json_t *copy = json_string(text.p);
		json_array_append_new(texts, copy);
		if (copy && ww_opt_set(cmd, r, key, json_string_value(copy), err) != WW_OK)
			return ww_err_wrap(err, "%s", path);
	}
	return WW_OK;
}

/* All options with their values, as the run keeps them. */
static json_t *values_json(const struct ww_recipe *r)
{
	json_t *v = json_object();
	for (const struct ww_opt *o = opts; o->name; o++) {
		const void *at = (const char *)r + o->offset;
		const char *text = o->type == WW_OPT_STR || o->type == WW_OPT_CHOICE ? *(const char *const *)at : NULL;
		if (o->type == WW_OPT_INT)
			json_object_set_new(v, o->name, json_integer(*(const int64_t *)at));
		else if (o->type == WW_OPT_NUM)
			json_object_set_new(v, o->name, json_real(*(const double *)at));
		else if (o->type != WW_OPT_FLAG)
			json_object_set_new(v, o->name, text ? json_string(text) : json_null());
	}
	return v;
}

/* ---- progress */

struct screen {
	int quiet, live;
	uint64_t start_ns, last_ns;
	int64_t tokens, first;
};

static void say(void *ctx, const char *line)
{
	struct screen *s = ctx;
	fprintf(stderr, "%s%s%s\n", s->live ? "\r" : "", line, s->live ? "\033[K" : "");
}

static void add_duration(struct ww_str *out, double seconds)
{
	int64_t n = (int64_t)fmin(seconds, 1e12);
	if (n >= 3600)
		ww_str_addf(out, "%" PRId64 ":%02d:%02d", n / 3600, (int)(n / 60 % 60), (int)(n % 60));
	else
		ww_str_addf(out, "%d:%02d", (int)(n / 60), (int)(n % 60));
}

/* On a terminal one line that changes; else a line every few seconds. */
static void on_step(void *ctx, const struct ww_train_step *r)
{
	struct screen *s = ctx;
	ww_auto_str line = WW_STR_INIT(512);
	double spent = ww_seconds_since(s->start_ns);
	s->tokens += r->tokens;
	s->first = s->first ? s->first : r->step;
	int64_t done = r->step - s->first + 1;
	if (!s->live && r->step < r->steps && s->last_ns && ww_seconds_since(s->last_ns) < LINE_EVERY_S)
		return;
	s->last_ns = ww_now_ns();
	ww_str_addf(&line, "step %" PRId64 "/%" PRId64 "  loss %.4f  lr %.3g  norm %.3g  %.0f tokens/s  left ", r->step,
		r->steps, r->loss, r->lr, r->norm, (double)s->tokens / fmax(spent, 1e-9));
	add_duration(&line, spent / (double)done * (double)(r->steps - r->step));
	fprintf(stderr, "%s%s%s", s->live ? "\r" : "", line.p, s->live ? "\033[K" : "\n");
}

/* ---- stage ppo: the judge */

struct judging_of {
	struct ww_judge *judge;
	struct ww_judge_opts opts;
	char device_name[96];
};

struct open_task {
	struct ww_task task;
	struct ww_judge_task *judged;
};

static void close_task(void *ctx, struct ww_ppo_task *t)
{
	struct open_task *own = t->own;
	if (own && own->judged)
		ww_judge_task_close(own->judged);
	if (own)
		ww_task_release(&own->task);
	free(own);
	free(t->path);
	free(t->source);
	*t = (struct ww_ppo_task){ .path = NULL };
}

static enum ww_rc open_task(void *ctx, const char *path, struct ww_ppo_task *out, struct ww_err *err)
{
	struct judging_of *j = ctx;
	struct open_task *own;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(own, 1, err));
	out->own = own;
	WW_TRY(ww_task_load(&own->task, path, err));
	if (!j->judge)
		WW_TRY(ww_judge_open(&j->judge, &j->opts, err));
	WW_TRY(ww_judge_task_open(j->judge, &own->task, &own->judged, err));
	out->judge = ww_agent_use_judge(own->judged, j->device_name);
	out->path = strdup(path);
	out->source = strdup(own->task.source);
	if (!out->path || !out->source)
		WW_TRY(ww_nomem(err));
	memcpy(out->id, own->task.id, sizeof(out->id));
out:
	if (rc != WW_OK)
		close_task(ctx, out);
	return rc;
}

static enum ww_rc run_ppo(const struct ww_recipe *r, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *result, struct ww_err *err)
{
	struct judging_of j = { .opts = { .rule = WW_RULE_STRICT,
								.threads = (int)r->judge_threads,
								.baselines = 1u << WW_BASE_EAGER | 1u << WW_BASE_COMPILE,
								.max_time_s = r->judge_seconds,
								.interrupted = &ww_cmd_interrupted } };
	struct ww_host_gpus gpus;
	WW_CHECK(ww_host_choose_target(r->target, 0, &j.opts.target, j.device_name, sizeof(j.device_name), &gpus, err));
	struct ww_ppo_judges judges = { &j, j.opts.target, j.opts.rule, j.opts.baselines, open_task, close_task };
	enum ww_rc rc = ww_ppo_run(r, values, &judges, hooks, result, err);
	if (j.judge)
		ww_judge_close(j.judge);
	return rc;
}

/* ---- the command */

static void print_result(const struct ww_recipe *r, const struct ww_train_result *t)
{
	double rate = (double)t->tokens / fmax(t->seconds, 1e-9);
	if (!r->json) {
		printf("%s: step %" PRId64 ", loss %.4f, %.0f tokens/s, memory %.3f GB of %.3f predicted\n", t->checkpoint,
			t->last.step, t->last.loss, rate, (double)t->last.device_bytes / 1e9, (double)t->predicted_bytes / 1e9);
		return;
	}
	json_t *v = json_pack("{s:s, s:s, s:I, s:I, s:o, s:I, s:f, s:f, s:I, s:I}", "run", r->output, "checkpoint",
		t->checkpoint, "first_step", (json_int_t)t->first_step, "step", (json_int_t)t->last.step, "loss",
		ww_json_real(t->last.loss), "skipped", (json_int_t)t->skipped, "seconds", t->seconds, "tokens_per_second", rate,
		"predicted_bytes", (json_int_t)t->predicted_bytes, "device_bytes", (json_int_t)t->last.device_bytes);
	ww_cmd_print_json(v);
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	struct ww_recipe *r = values;
	struct ww_err err = WW_ERR_INIT;
	struct ww_train_result result = { 0 };
	const char *term = getenv("TERM");
	struct screen screen = { .live = isatty(2) && term && strcmp(term, "dumb"), .start_ns = ww_now_ns() };
	struct ww_train_hooks hooks = { &ww_cmd_interrupted, say, on_step, &screen };
	json_t *texts = json_array(), *now = NULL;
	int rest, words = 0;
	while (argv[argc + words])
		words++;
	ww_opt_defaults(cmd, r);
	enum ww_rc rc = read_recipe(cmd, argv[0], r, texts, &err);
	if (rc == WW_OK)
		rc = ww_opt_parse_over(cmd, words, argv + argc, r, &rest, &err);
	if (rc == WW_OK) {
		now = values_json(r);
		rc = !strcmp(r->stage, "ppo")    ? run_ppo(r, now, &hooks, &result, &err)
			: !strcmp(r->stage, "value") ? ww_value_run(r, now, &hooks, &result, &err)
										 : ww_sft_run(r, now, &hooks, &result, &err);
	}
	if (screen.live && result.last.step)
		fputc('\n', stderr);
	if (rc == WW_OK)
		print_result(r, &result);
	json_decref(now);
	json_decref(texts);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_train = { .name = "train",
	.args = "RECIPE.yaml",
	.summary = "train a model as a recipe says",
	.details =
		"A recipe is a YAML file whose keys are the options below (without the dashes in front); what the command line says\n"
		"counts before it.  Ctrl-C writes a checkpoint and stops; the same command goes on from the newest checkpoint in\n"
		"output, to the same weights as without the stop.  docs/train.md explains; `report` draws a run.",
	.opts = opts,
	.values_size = sizeof(struct ww_recipe),
	.min_args = 1,
	.max_args = 1,
	.run = run };
