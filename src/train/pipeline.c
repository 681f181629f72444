/* pipeline.c - see pipeline.h. */
#include "train/pipeline.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DONE_MAX_BYTES = 1 << 20 };

void ww_pipeline_fill(const struct ww_pipeline *p, struct ww_recipe *r)
{
	unsigned stage = ww_stage_of(r->stage);
	if (!r->model && !r->config && p->policy[0])
		r->model = p->policy;
	if (stage == WW_STAGE_VALUE && !r->data && p->episodes[0])
		r->data = p->episodes;
	if (stage & WW_KEYS_POLICY && !r->critic && !strcmp(r->advantage, "critic") && p->critic[0])
		r->critic = p->critic;
}

static void set(char *to, const char *output, const char *name)
{
	snprintf(to, PATH_MAX, "%.4000s%s%s", output, *name ? "/" : "", name);
}

void ww_pipeline_note(struct ww_pipeline *p, const struct ww_recipe *r)
{
	unsigned stage = ww_stage_of(r->stage);
	if (stage == WW_STAGE_VALUE)
		set(p->critic, r->output, "model");
	else
		set(p->policy, r->output, "model");
	if (stage == WW_STAGE_RFT && !r->tasks)
		set(p->episodes, r->data, "");
	else if (stage & WW_KEYS_SAMPLE)
		set(p->episodes, r->output, "episodes");
}

/* OUTPUT/pipeline.json: the stages that have ended, with their values. */
static enum ww_rc write_done(const char *output, const json_t *done, struct ww_err *err)
{
	json_auto_t *v = json_pack("{s:i, s:s, s:O}", "format", 1, "kind", "pipeline", "stages", (json_t *)(uintptr_t)done);
	return ww_json_write_file(output, "pipeline.json", DONE_MAX_BYTES, v, err);
}

static enum ww_rc read_done(const char *output, json_t **done, struct ww_err *err)
{
	json_auto_t *v = NULL;
	char path[PATH_MAX];
	WW_CHECK(ww_fs_mkdirs(output, err));
	WW_CHECK(ww_fs_join(path, output, "pipeline.json", err));
	if (ww_fs_is_file(path))
		WW_CHECK(ww_json_read_file(path, DONE_MAX_BYTES, &v, err));
	json_t *list = json_object_get(v, "stages");
	*done = list ? json_incref(list) : json_object();
	return WW_OK;
}

/* A stage that has ended with these values is not opened again. */
static enum ww_rc one_section(struct ww_recipe_file *f, const char *section, const char *output, struct ww_pipeline *p,
	json_t *done, ww_stage_fn run, const struct ww_train_hooks *hooks, struct ww_train_result *result,
	struct ww_err *err)
{
	struct ww_recipe r;
	char own[PATH_MAX];
	WW_CHECK(ww_recipe_file_fill(f, section, &r, err));
	WW_CHECK(ww_fs_join(own, output, section, err));
	r.stage = section;
	r.output = own;
	if (!json_object_get(json_object_get(f->keys, section), "model"))
		r.model = NULL; /* that of the recipe's top is the first stage's */
	ww_pipeline_fill(p, &r);
	json_auto_t *now = ww_recipe_values(&r);
	if (json_equal(json_object_get(done, section), now)) {
		ww_train_say(hooks, "stage %s is complete", section);
	} else {
		ww_train_say(hooks, "stage %s: %s", section, own);
		if (run(&r, now, hooks, result, err) != WW_OK)
			return ww_err_wrap(err, "stage %s", section);
		json_object_set(done, section, now);
		WW_CHECK(write_done(output, done, err));
	}
	ww_pipeline_note(p, &r);
	return WW_OK;
}

enum ww_rc ww_pipeline_run(struct ww_recipe_file *f, const struct ww_recipe *top, ww_stage_fn run,
	const struct ww_train_hooks *hooks, struct ww_train_result *result, struct ww_err *err)
{
	struct ww_pipeline *p;
	json_auto_t *done = NULL;
	const char *key;
	json_t *v;
	int n = 0;
	if (!top->output)
		return ww_err_set(err, WW_ERR_USAGE, "a pipeline needs output");
	json_object_foreach(f->keys, key, v) { /* all are looked at before the first begins */
		struct ww_recipe ignored;
		if (ww_recipe_is_section(key, v))
			WW_CHECK(ww_recipe_file_fill(f, key, &ignored, err));
	}
	WW_CHECK(read_done(top->output, &done, err));
	WW_CHECK(WW_NEW(p, 1, err));
	snprintf(p->policy, sizeof(p->policy), "%s", top->model ? top->model : "");
	enum ww_rc rc = WW_OK;
	json_object_foreach(f->keys, key, v)
		if (rc == WW_OK && ww_recipe_is_section(key, v)) {
			rc = one_section(f, key, top->output, p, done, run, hooks, result, err);
			n++;
		}
	free(p);
	return rc == WW_OK && !n
		? ww_err_set(err, WW_ERR_USAGE, "%s: a pipeline has sections, each the name of a stage with its keys", f->path)
		: rc;
}
