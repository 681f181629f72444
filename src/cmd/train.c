/* train.c - `warpwright train`: runs the stages of a recipe (train/recipe_file.h), and prints how far they are. */
#include "base/json.h"
#include "base/time.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/train_judges.h"
#include "rl/ppo.h"
#include "rl/rft.h"
#include "rl/value.h"
#include "train/keys.h"
#include "train/pipeline.h"
#include "train/recipe_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_EVERY_S = 10 };

/* ---- progress */

struct screen {
	struct ww_progress *progress;
	uint64_t last_ns;
	int64_t step;          /* the newest */
	int64_t steps, tokens; /* of this stage, since the process began */
	double seconds;        /* of these steps */
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
	if (r->step <= s->step) /* the next stage of a pipeline */
		s->tokens = s->steps = 0, s->seconds = 0;
	s->step = r->step;
	s->steps++;
	s->tokens += r->tokens;
	s->seconds += r->seconds;
	int live = ww_progress_is_live(s->progress);
	if (!live)
		ww_progress_clear(s->progress); /* what was under way has ended */
	if (!live && r->step < r->steps && s->last_ns && ww_seconds_since(s->last_ns) < LINE_EVERY_S)
		return;
	s->last_ns = ww_now_ns();
	ww_str_addf(&line, "step %" PRId64 "/%" PRId64 "  loss %.4f  lr %.3g  norm %.3g  %.0f tokens/s  left ", r->step,
		r->steps, r->loss, r->lr, r->norm, (double)s->tokens / fmax(s->seconds, 1e-9));
	add_duration(&line, s->seconds / (double)s->steps * (double)(r->steps - r->step));
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
	struct screen screen = { .progress = ww_progress_new(stderr) };
	struct ww_train_hooks hooks = { &ww_cmd_interrupted, say, on_stage, on_step, &screen };
	struct ww_recipe_file f = { .cmd = cmd, .path = argv[0], .words = argv + argc };
	json_t *now = NULL;
	while (argv[argc + f.n_words])
		f.n_words++;
	enum ww_rc rc = ww_recipe_file_read(&f, &err);
	if (rc == WW_OK)
		rc = ww_recipe_file_fill(&f, NULL, r, &err);
	if (rc == WW_OK)
		rc = ww_recipe_file_check(&f, r->stage, &err);
	if (rc == WW_OK)
		rc = ww_recipe_file_fill_section(&f, r, &err);
	if (rc == WW_OK && ww_stage_of(r->stage) == WW_STAGE_PIPELINE) {
		rc = ww_pipeline_run(&f, r, run_stage, &hooks, &result, &err);
	} else if (rc == WW_OK) {
		now = ww_recipe_values(r);
		rc = run_stage(r, now, &hooks, &result, &err);
	}
	ww_progress_free(screen.progress);
	if (rc == WW_OK)
		print_result(r, &result);
	json_decref(now);
	ww_recipe_file_release(&f);
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
