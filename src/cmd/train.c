/* train.c - `warpwright train`: a recipe, and the command line over it.
 *
 * The option table is the recipe's format: its names are the keys, its help the documentation, and the command line
 * overrides the recipe.  An unknown key is refused; the message suggests the nearest one.
 */
#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "base/yaml.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/train_judges.h"
#include "rl/ppo.h"
#include "rl/rft.h"
#include "rl/value.h"
#include "train/keys.h"
#include "train/pipeline.h"
#include "train/recipe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECIPE_MAX = 1 << 20, LINE_EVERY_S = 10, BASES_MAX = 8 };

/* ---- the recipe */

/* A value as text of the command line: lists with commas. */
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

/* A recipe as it was read, and what is needed to fill in a stage's values from it. */
struct reading {
	const struct ww_cmd *cmd;
	const char *path;
	json_t *recipe; /* sections of stages are objects in it */
	json_t *texts;  /* owns what the values point to */
	char **words;   /* of the command line, behind the recipe */
	int n_words;
};

static int is_section(const char *key, const json_t *v)
{
	return json_is_object(v) && ww_stage_of(key) && ww_stage_of(key) != WW_STAGE_PIPELINE;
}

/* A relative `config` that is not found from the working directory is one beside the recipe. */
static enum ww_rc find_config(const char *path, json_t *section, struct ww_err *err)
{
	const char *name = json_string_value(json_object_get(section, "config")), *slash = strrchr(path, '/');
	char beside[PATH_MAX];
	if (!name || *name == '/' || !slash || ww_fs_is_file(name))
		return WW_OK;
	int n = snprintf(beside, sizeof(beside), "%.*s%s", (int)(slash - path) + 1, path, name);
	if (n >= PATH_MAX || !ww_fs_is_file(beside))
		return WW_OK;
	return json_object_set_new(section, "config", json_string(beside)) ? ww_nomem(err) : WW_OK;
}

static enum ww_rc find_configs(const char *path, json_t *recipe, struct ww_err *err)
{
	const char *key;
	json_t *v;
	json_object_foreach(recipe, key, v)
		if (is_section(key, v))
			WW_CHECK(find_config(path, v, err));
	return find_config(path, recipe, err);
}

/* A recipe over the one that its `base` names, relative to its own directory; a key without a value takes back what
 * stands there. */
static enum ww_rc read_over(const char *path, int bases, json_t **out, struct ww_err *err)
{
	json_auto_t *own = NULL, *below = NULL;
	char beside[PATH_MAX];
	WW_CHECK(ww_yaml_read(path, RECIPE_MAX, &own, err));
	if (!json_is_object(own))
		return ww_err_set(err, WW_ERR_USAGE, "%s: a recipe is a mapping of keys to values", path);
	WW_CHECK(find_configs(path, own, err));
	json_t *base = json_object_get(own, "base");
	if (base) {
		const char *name = json_is_string(base) ? json_string_value(base) : "", *slash = strrchr(path, '/');
		int dir = slash && *name != '/' ? (int)(slash - path) + 1 : 0;
		if (!*name || bases == BASES_MAX)
			return ww_err_set(
				err, WW_ERR_USAGE, "%s: base names one recipe, and at most %d stand below each other", path, BASES_MAX);
		if (snprintf(beside, sizeof(beside), "%.*s%s", dir, path, name) >= PATH_MAX)
			return ww_err_set(err, WW_ERR_LIMIT, "%s: the path of its base is too long", path);
		WW_CHECK(read_over(beside, bases + 1, &below, err));
		json_object_del(own, "base");
		if (json_object_update_recursive(below, own))
			return ww_nomem(err);
	}
	*out = json_incref(below ? below : own);
	return WW_OK;
}

static enum ww_rc read_recipe(struct reading *q, struct ww_err *err)
{
	WW_CHECK(read_over(q->path, 0, &q->recipe, err));
	if (json_object_get(q->recipe, "json"))
		return ww_err_set(
			err, WW_ERR_USAGE, "%s: \"json\" is no key of a recipe; give --json on the command line", q->path);
	return WW_OK;
}

static enum ww_rc set_key(struct reading *q, struct ww_recipe *r, const char *key, const json_t *v, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(RECIPE_MAX);
	if (json_is_null(v))
		return WW_OK;
	WW_CHECK(value_text(q->path, key, v, &text, err));
	json_t *copy = json_string(text.p);
	json_array_append_new(q->texts, copy);
	if (copy && ww_opt_set(q->cmd, r, key, json_string_value(copy), err) != WW_OK)
		return ww_err_wrap(err, "%s", q->path);
	return WW_OK;
}

/* 1 where the stage, or of a pipeline one that has a section, reads the key. */
static int is_read(const struct reading *q, const char *stage, const char *key)
{
	unsigned by = ww_key_stages(key);
	const char *name;
	json_t *v;
	if (ww_stage_of(stage) != WW_STAGE_PIPELINE)
		return !by || by & ww_stage_of(stage);
	json_object_foreach(q->recipe, name, v)
		if (is_section(name, v) && by & ww_stage_of(name))
			return 1;
	return !by;
}

static enum ww_rc check_key(const struct reading *q, const char *stage, const char *key, struct ww_err *err)
{
	if (is_read(q, stage, key))
		return WW_OK;
	if (ww_stage_of(stage) != WW_STAGE_PIPELINE)
		return ww_key_check(key, stage, err);
	return ww_err_set(err, WW_ERR_USAGE, "no stage of this pipeline reads \"%s\"; remove it", key);
}

/* Every key that was named, in the recipe's top or on the command line, has an effect. */
static enum ww_rc check_keys(const struct reading *q, const char *stage, struct ww_err *err)
{
	const char *key;
	json_t *v;
	json_object_foreach(q->recipe, key, v) {
		if (is_section(key, v) && ww_stage_of(stage) != WW_STAGE_PIPELINE)
			return ww_err_set(err, WW_ERR_USAGE, "%s: a section (%s) needs stage: pipeline", q->path, key);
		if (!json_is_null(v) && !is_section(key, v))
			WW_CHECK(check_key(q, stage, key, err));
	}
	for (int i = 0; i < q->n_words; i++) {
		char name[64];
		if (strncmp(q->words[i], "--", 2))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(q->words[i] + 2, "="), q->words[i] + 2);
		WW_CHECK(check_key(q, stage, name, err));
	}
	return WW_OK;
}

/* The values of the recipe's top, and over them those of a section (NULL: none) and of the command line. */
static enum ww_rc fill(struct reading *q, const char *section, struct ww_recipe *r, struct ww_err *err)
{
	const char *key;
	json_t *v;
	int rest;
	ww_opt_defaults(q->cmd, r);
	json_object_foreach(q->recipe, key, v)
		if (!is_section(key, v) && (!section || is_read(q, section, key)))
			WW_CHECK(set_key(q, r, key, v, err));
	if (section)
		json_object_foreach(json_object_get(q->recipe, section), key, v) {
			if (!strcmp(key, "stage") || !strcmp(key, "output"))
				return ww_err_set(
					err, WW_ERR_USAGE, "%s: \"%s\" stands above the sections, not in %s", q->path, key, section);
			WW_CHECK(ww_key_check(key, section, err));
			WW_CHECK(set_key(q, r, key, v, err));
		}
	return ww_opt_parse_over(q->cmd, q->n_words, q->words, r, &rest, err);
}

/* All options with their values, as the run keeps them. */
static json_t *values_json(const struct ww_recipe *r)
{
	json_t *v = json_object();
	for (const struct ww_opt *o = ww_recipe_keys; o->name; o++) {
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
	struct ww_progress *progress;
	uint64_t start_ns, last_ns;
	int64_t tokens, first;
};

static void say(void *ctx, const char *line)
{
	const struct screen *s = ctx;
	ww_progress_say(s->progress, "%s", line);
}

static void on_stage(void *ctx, const char *stage)
{
	const struct screen *s = ctx;
	ww_progress_stage(s->progress, stage);
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
	int live = ww_progress_is_live(s->progress);
	if (!live)
		ww_progress_clear(s->progress); /* what was under way has ended */
	if (!live && r->step < r->steps && s->last_ns && ww_seconds_since(s->last_ns) < LINE_EVERY_S)
		return;
	s->last_ns = ww_now_ns();
	ww_str_addf(&line, "step %" PRId64 "/%" PRId64 "  loss %.4f  lr %.3g  norm %.3g  %.0f tokens/s  left ", r->step,
		r->steps, r->loss, r->lr, r->norm, (double)s->tokens / fmax(spent, 1e-9));
	add_duration(&line, spent / (double)done * (double)(r->steps - r->step));
	if (live)
		ww_progress_stage(s->progress, line.p);
	else
		ww_progress_say(s->progress, "%s", line.p);
}

/* ---- stages */

static enum ww_rc run_ppo(const struct ww_recipe *r, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *result, struct ww_err *err)
{
	struct ww_train_judges *own = NULL;
	struct ww_rl_judges judges;
	WW_CHECK(ww_train_judges_open(r, &own, &judges, err));
	enum ww_rc rc = ww_ppo_run(r, values, &judges, hooks, result, err);
	ww_train_judges_close(own);
	return rc;
}

static enum ww_rc run_rft(const struct ww_recipe *r, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *result, struct ww_err *err)
{
	struct ww_train_judges *own = NULL;
	struct ww_rl_judges judges;
	if (r->tasks)
		WW_CHECK(ww_train_judges_open(r, &own, &judges, err));
	enum ww_rc rc = ww_rft_run(r, values, r->tasks ? &judges : NULL, hooks, result, err);
	ww_train_judges_close(own);
	return rc;
}

static enum ww_rc run_stage(const struct ww_recipe *r, const json_t *values, const struct ww_train_hooks *hooks,
	struct ww_train_result *result, struct ww_err *err)
{
	switch (ww_stage_of(r->stage)) {
	case WW_STAGE_PPO:
	case WW_STAGE_AGENTIC: return run_ppo(r, values, hooks, result, err);
	case WW_STAGE_RFT: return run_rft(r, values, hooks, result, err);
	case WW_STAGE_VALUE: return ww_value_run(r, values, hooks, result, err);
	default: return ww_sft_run(r, values, hooks, result, err);
	}
}

/* ---- a pipeline */

/* OUTPUT/pipeline.json: the stages that have ended, with their values. */
static enum ww_rc write_done(const char *output, const json_t *done, struct ww_err *err)
{
	json_auto_t *v = json_pack("{s:i, s:s, s:O}", "format", 1, "kind", "pipeline", "stages", (json_t *)(uintptr_t)done);
	return ww_json_write_file(output, "pipeline.json", RECIPE_MAX, v, err);
}

static enum ww_rc read_done(const char *output, json_t **done, struct ww_err *err)
{
	json_auto_t *v = NULL;
	char path[PATH_MAX];
	WW_CHECK(ww_fs_mkdirs(output, err));
	WW_CHECK(ww_fs_join(path, output, "pipeline.json", err));
	if (ww_fs_is_file(path))
		WW_CHECK(ww_json_read_file(path, RECIPE_MAX, &v, err));
	json_t *list = json_object_get(v, "stages");
	*done = list ? json_incref(list) : json_object();
	return WW_OK;
}

/* A stage that has ended with these values is not opened again. */
static enum ww_rc one_section(struct reading *q, const char *section, const char *output, struct ww_pipeline *p,
	json_t *done, const struct ww_train_hooks *hooks, struct ww_train_result *result, struct ww_err *err)
{
	struct ww_recipe r;
	char own[PATH_MAX];
	WW_CHECK(fill(q, section, &r, err));
	WW_CHECK(ww_fs_join(own, output, section, err));
	r.stage = section;
	r.output = own;
	if (!json_object_get(json_object_get(q->recipe, section), "model"))
		r.model = NULL; /* that of the recipe's top is the first stage's */
	ww_pipeline_fill(p, &r);
	json_auto_t *now = values_json(&r);
	if (json_equal(json_object_get(done, section), now)) {
		ww_train_say(hooks, "stage %s is complete", section);
	} else {
		ww_train_say(hooks, "stage %s: %s", section, own);
		if (run_stage(&r, now, hooks, result, err) != WW_OK)
			return ww_err_wrap(err, "stage %s", section);
		json_object_set(done, section, now);
		WW_CHECK(write_done(output, done, err));
	}
	ww_pipeline_note(p, &r);
	return WW_OK;
}

static enum ww_rc run_pipeline(struct reading *q, const struct ww_recipe *top, const struct ww_train_hooks *hooks,
	struct ww_train_result *result, struct ww_err *err)
{
	struct ww_pipeline *p;
	json_auto_t *done = NULL;
	const char *key;
	json_t *v;
	int n = 0;
	if (!top->output)
		return ww_err_set(err, WW_ERR_USAGE, "a pipeline needs output");
	json_object_foreach(q->recipe, key, v) { /* all are looked at before the first begins */
		struct ww_recipe ignored;
		if (is_section(key, v))
			WW_CHECK(fill(q, key, &ignored, err));
	}
	WW_CHECK(read_done(top->output, &done, err));
	WW_CHECK(WW_NEW(p, 1, err));
	snprintf(p->policy, sizeof(p->policy), "%s", top->model ? top->model : "");
	enum ww_rc rc = WW_OK;
	json_object_foreach(q->recipe, key, v)
		if (rc == WW_OK && is_section(key, v)) {
			rc = one_section(q, key, top->output, p, done, hooks, result, err);
			n++;
		}
	free(p);
	return rc == WW_OK && !n
		? ww_err_set(err, WW_ERR_USAGE, "%s: a pipeline has sections, each the name of a stage with its keys", q->path)
		: rc;
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
	struct screen screen = { .progress = ww_progress_new(stderr), .start_ns = ww_now_ns() };
	struct ww_train_hooks hooks = { &ww_cmd_interrupted, say, on_stage, on_step, &screen };
	struct reading q = { cmd, argv[0], NULL, json_array(), argv + argc, 0 };
	json_t *now = NULL;
	while (argv[argc + q.n_words])
		q.n_words++;
	enum ww_rc rc = read_recipe(&q, &err);
	if (rc == WW_OK)
		rc = fill(&q, NULL, r, &err);
	if (rc == WW_OK)
		rc = check_keys(&q, r->stage, &err);
	if (rc == WW_OK && ww_stage_of(r->stage) == WW_STAGE_PIPELINE) {
		rc = run_pipeline(&q, r, &hooks, &result, &err);
	} else if (rc == WW_OK) {
		now = values_json(r);
		rc = run_stage(r, now, &hooks, &result, &err);
	}
	ww_progress_free(screen.progress);
	if (rc == WW_OK)
		print_result(r, &result);
	json_decref(now);
	json_decref(q.texts);
	json_decref(q.recipe);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_train = { .name = "train",
	.args = "RECIPE.yaml",
	.summary = "train a model as a recipe says",
	.details =
		"A recipe is a YAML file whose keys are the options below (without the dashes in front); the command line\n"
		"overrides them.  Ctrl-C writes a checkpoint and stops; the same command goes on from the newest checkpoint\n"
		"in output, to the same weights as without the stop.  docs/train.md explains; `report` draws a run.",
	.opts = ww_recipe_keys,
	.values_size = sizeof(struct ww_recipe),
	.min_args = 1,
	.max_args = 1,
	.run = run };
