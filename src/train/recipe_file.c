/* recipe_file.c - see recipe_file.h. */
#include "train/recipe_file.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/yaml.h"
#include "train/keys.h"

#include <stdio.h>
#include <string.h>

enum { RECIPE_MAX = 1 << 20, BASES_MAX = 8 };

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

int ww_recipe_is_section(const char *key, const json_t *v)
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
		if (ww_recipe_is_section(key, v))
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

enum ww_rc ww_recipe_file_read(struct ww_recipe_file *f, struct ww_err *err)
{
	f->values = json_array();
	WW_CHECK(read_over(f->path, 0, &f->keys, err));
	if (json_object_get(f->keys, "json"))
		return ww_err_set(
			err, WW_ERR_USAGE, "%s: \"json\" is no key of a recipe; give --json on the command line", f->path);
	return WW_OK;
}

void ww_recipe_file_release(struct ww_recipe_file *f)
{
	json_decref(f->values);
	json_decref(f->keys);
}

static enum ww_rc set_key(
	struct ww_recipe_file *f, struct ww_recipe *r, const char *key, const json_t *v, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(RECIPE_MAX);
	if (json_is_null(v))
		return WW_OK;
	WW_CHECK(value_text(f->path, key, v, &text, err));
	json_t *copy = json_string(text.p);
	json_array_append_new(f->values, copy);
	if (copy && ww_opt_set(f->cmd, r, key, json_string_value(copy), err) != WW_OK)
		return ww_err_wrap(err, "%s", f->path);
	return WW_OK;
}

/* 1 where the stage, or of a pipeline one that has a section, reads the key. */
static int is_read(const struct ww_recipe_file *f, const char *stage, const char *key)
{
	unsigned by = ww_key_stages(key);
	const char *name;
	json_t *v;
	if (ww_stage_of(stage) != WW_STAGE_PIPELINE)
		return !by || by & ww_stage_of(stage);
	json_object_foreach(f->keys, name, v)
		if (ww_recipe_is_section(name, v) && by & ww_stage_of(name))
			return 1;
	return !by;
}

static enum ww_rc check_key(const struct ww_recipe_file *f, const char *stage, const char *key, struct ww_err *err)
{
	if (is_read(f, stage, key))
		return WW_OK;
	if (ww_stage_of(stage) != WW_STAGE_PIPELINE)
		return ww_key_check(key, stage, err);
	return ww_err_set(err, WW_ERR_USAGE, "no stage of this pipeline reads \"%s\"; remove it", key);
}

/* Does the command line ask for one stage of a file that is a pipeline's? */
static int is_one_section(const struct ww_recipe_file *f, const char *stage)
{
	return ww_stage_of(stage) != WW_STAGE_PIPELINE &&
		ww_stage_of(ww_json_str(f->keys, "stage", stage)) == WW_STAGE_PIPELINE;
}

enum ww_rc ww_recipe_file_check(const struct ww_recipe_file *f, const char *stage, struct ww_err *err)
{
	const char *key, *top = is_one_section(f, stage) ? ww_json_str(f->keys, "stage", stage) : stage;
	json_t *v;
	json_object_foreach(f->keys, key, v) {
		if (ww_recipe_is_section(key, v) && ww_stage_of(top) != WW_STAGE_PIPELINE)
			return ww_err_set(err, WW_ERR_USAGE, "%s: a section (%s) needs stage: pipeline", f->path, key);
		if (!json_is_null(v) && !ww_recipe_is_section(key, v))
			WW_CHECK(check_key(f, top, key, err));
	}
	for (int i = 0; i < f->n_words; i++) {
		char name[64];
		if (strncmp(f->words[i], "--", 2))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(f->words[i] + 2, "="), f->words[i] + 2);
		WW_CHECK(check_key(f, stage, name, err));
	}
	return WW_OK;
}

enum ww_rc ww_recipe_file_fill(struct ww_recipe_file *f, const char *section, struct ww_recipe *r, struct ww_err *err)
{
	const char *key;
	json_t *v;
	int rest;
	ww_opt_defaults(f->cmd, r);
	json_object_foreach(f->keys, key, v)
		if (!ww_recipe_is_section(key, v) && (!section || is_read(f, section, key)))
			WW_CHECK(set_key(f, r, key, v, err));
	if (section)
		json_object_foreach(json_object_get(f->keys, section), key, v) {
			if (!strcmp(key, "stage") || !strcmp(key, "output"))
				return ww_err_set(
					err, WW_ERR_USAGE, "%s: \"%s\" stands above the sections, not in %s", f->path, key, section);
			WW_CHECK(ww_key_check(key, section, err));
			WW_CHECK(set_key(f, r, key, v, err));
		}
	return ww_opt_parse_over(f->cmd, f->n_words, f->words, r, &rest, err);
}

static int names_output(const struct ww_recipe_file *f)
{
	for (int i = 0; i < f->n_words; i++)
		if (!strncmp(f->words[i], "--output", strlen("--output")) || !strncmp(f->words[i], "-o", strlen("-o")))
			return 1;
	return 0;
}

enum ww_rc ww_recipe_file_fill_section(struct ww_recipe_file *f, struct ww_recipe *r, struct ww_err *err)
{
	const char *section = r->stage;
	if (!is_one_section(f, section))
		return WW_OK;
	if (!json_is_object(json_object_get(f->keys, section)))
		return ww_err_set(err, WW_ERR_USAGE, "%s has no section %s", f->path, section);
	if (!names_output(f))
		return ww_err_set(err, WW_ERR_USAGE,
			"--stage %s of a pipeline needs --output DIR of its own; without --stage the pipeline goes on", section);
	return ww_recipe_file_fill(f, section, r, err);
}

json_t *ww_recipe_values(const struct ww_recipe *r)
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
