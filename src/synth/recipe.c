/* recipe.c - the recipe of a run: YAML files, each overriding keys of the one before.
 *
 * The built-in recipes are files too (recipes/synth/SET-TARGET.yaml), so that every default stands in one place, where
 * a user can read and copy it.  One that a user writes names the set that it starts from and says what differs.
 */
#include "base/fs.h"
#include "base/target.h"
#include "base/opt.h"
#include "base/yaml.h"
#include "synth/crawled.h"
#include "synth/synth.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RECIPE_BYTES = 1 << 18 };

static const char *const forms[] = { "chain", "idiom", "network", "block" };
static const char *const patterns[] = { "sequential", "branching", "residual", "gated" };
static const char *const styles[] = { "round", "odd", "prime", "tiny", "huge" };
static const char *const dtypes[] = { "float32", "float16", "bfloat16" };
static const char *const counts[] = { "1", "2", "3", "4", "5" };
static const char *const categories[] = {
#define CATEGORY(id, text) text,
#include "synth/categories.def"
#undef CATEGORY
};

/* Shares by name, and numbers with their limits. */
static const struct {
	const char *key, *const *names;
	int n;
	size_t offset;
} lists[] = {
#define LIST(key, names, field) { key, names, (int)WW_ARRAY_LEN(names), offsetof(struct ww_synth_recipe, field) }
	LIST("operators", counts, ops),
	LIST("forms", forms, forms),
	LIST("patterns", patterns, patterns),
	LIST("categories", categories, categories),
	LIST("dtypes", dtypes, dtypes),
	LIST("shapes", styles, shapes),
#undef LIST
};

static const struct {
	const char *key;
	double min, max, unit;
	size_t offset;
} numbers[] = {
#define NUMBER(key, min, max, unit, field) { key, min, max, unit, offsetof(struct ww_synth_recipe, field) }
	NUMBER("strided", 0, 1, 1, strided),
	NUMBER("broadcast", 0, 1, 1, broadcast),
	NUMBER("min-us", 1, 1e8, 1, min_us),
	NUMBER("max-us", 1, 1e8, 1, max_us),
	NUMBER("max-input-mib", 1e-3, 1e6, 1 << 20, max_input_bytes),
	NUMBER("max-memory-mib", 1e-3, 1e6, 1 << 20, max_memory_bytes),
	NUMBER("max-load-seconds", 1, 3600, 1, max_load_s),
	NUMBER("max-compile-seconds", 1, 3600, 1, max_compile_s),
#undef NUMBER
};

static double *at(struct ww_synth_recipe *r, size_t offset) { return (double *)(void *)((char *)r + offset); }

static enum ww_rc read_number(
	const json_t *v, const char *key, const char *path, double min, double max, double *out, struct ww_err *err)
{
	char *end = NULL;
	const char *text = json_is_string(v) ? json_string_value(v) : "";
	double n = strtod(text, &end);
	if (!*text || *end || !(n >= min && n <= max))
		return ww_err_set(err, WW_ERR_USAGE, "%s: %s must be a number from %g to %g", path, key, min, max);
	*out = n;
	return WW_OK;
}

/* A list that is given replaces the whole one: what it leaves out has no share. */
static enum ww_rc read_list(const json_t *v, const char *key, const char *path, const char *const *names, int n,
	double *out, struct ww_err *err)
{
	const char *name;
	json_t *share;
	double sum = 0;
	if (!json_is_object(v))
		return ww_err_set(err, WW_ERR_USAGE, "%s: %s must be a mapping of names to shares", path, key);
	memset(out, 0, sizeof(*out) * (size_t)n);
	json_object_foreach((json_t *)(uintptr_t)v, name, share) {
		struct ww_guess guess = { .word = name };
		int i = 0;
		while (i < n && strcmp(names[i], name))
			ww_guess_offer(&guess, names[i++]);
		if (i == n)
			return ww_err_set(err, WW_ERR_USAGE, "%s: %s has no \"%s\"%s%s%s", path, key, name,
				guess.best ? "; did you mean " : "", guess.best ? guess.best : "", guess.best ? "?" : "");
		WW_CHECK(read_number(share, name, path, 0, 1e6, &out[i], err));
		sum += out[i];
	}
	if (!(sum > 0))
		return ww_err_set(err, WW_ERR_USAGE, "%s: %s has no share above 0", path, key);
	return WW_OK;
}

static enum ww_rc read_text(
	struct ww_synth_recipe *r, const char *key, const json_t *v, const char *path, int *found, struct ww_err *err)
{
	const char *text = json_is_string(v) ? json_string_value(v) : "";
	*found = 1;
	if (!strcmp(key, "compiler")) {
		if (strcmp(text, "inductor") && strcmp(text, "aot_eager") && strcmp(text, "eager"))
			return ww_err_set(err, WW_ERR_USAGE, "%s: compiler must be inductor, aot_eager or eager", path);
		snprintf(r->compiler, sizeof(r->compiler), "%s", text);
	} else if (strcmp(key, "set")) { /* ww_synth_recipe_read() has looked at that */
		*found = 0;
	}
	return WW_OK;
}

static enum ww_rc read_key(
	struct ww_synth_recipe *r, const char *key, const json_t *v, const char *path, struct ww_err *err)
{
	int found;
	struct ww_guess guess = { .word = key };
	for (size_t i = 0; i < WW_ARRAY_LEN(lists); i++) {
		if (!strcmp(key, lists[i].key))
			return read_list(v, key, path, lists[i].names, lists[i].n, at(r, lists[i].offset), err);
		ww_guess_offer(&guess, lists[i].key);
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(numbers); i++) {
		if (!strcmp(key, numbers[i].key)) {
			WW_CHECK(read_number(v, key, path, numbers[i].min, numbers[i].max, at(r, numbers[i].offset), err));
			*at(r, numbers[i].offset) *= numbers[i].unit;
			return WW_OK;
		}
		ww_guess_offer(&guess, numbers[i].key);
	}
	WW_CHECK(read_text(r, key, v, path, &found, err));
	if (found)
		return WW_OK;
	return ww_err_set(err, WW_ERR_USAGE, "%s: unknown key \"%s\"%s%s%s", path, key, guess.best ? "; did you mean " : "",
		guess.best ? guess.best : "", guess.best ? "?" : "");
}

static enum ww_rc read_over(struct ww_synth_recipe *r, const json_t *file, const char *path, struct ww_err *err)
{
	const char *key;
	json_t *v;
	if (!json_is_object(file))
		return ww_err_set(err, WW_ERR_USAGE, "%s is no recipe: it must be a mapping of keys to values", path);
	json_object_foreach((json_t *)(uintptr_t)file, key, v)
		WW_CHECK(read_key(r, key, v, path, err));
	if (r->min_us * 2 > r->max_us)
		return ww_err_set(err, WW_ERR_USAGE, "%s: max-us must be at least twice min-us", path);
	return WW_OK;
}

enum ww_rc ww_synth_recipe_set(struct ww_synth_recipe *r, const char *set, enum ww_target target, struct ww_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX], name[64];
	json_auto_t *file = NULL;
	*r = (struct ww_synth_recipe){ .target = target };
	if (strcmp(set, "large") && strcmp(set, "small"))
		return ww_err_set(err, WW_ERR_USAGE, "the set must be large or small, not \"%s\"", set);
	snprintf(name, sizeof(name), "synth/%s-%s.yaml", set, ww_target_name(target));
	WW_CHECK(ww_fs_resource("recipes", dir, err));
	WW_CHECK(ww_fs_join(path, dir, name, err));
	WW_CHECK(ww_yaml_read(path, MAX_RECIPE_BYTES, &file, err));
	return read_over(r, file, path, err);
}

enum ww_rc ww_synth_recipe_read(struct ww_synth_recipe *r, const char *path, struct ww_err *err)
{
	json_auto_t *file = NULL;
	WW_CHECK(ww_yaml_read(path, MAX_RECIPE_BYTES, &file, err));
	WW_CHECK(ww_synth_recipe_set(r, ww_json_str(file, "set", "small"), r->target, err));
	return read_over(r, file, path, err);
}

void ww_synth_recipe_add(struct ww_synth_recipe *r, const struct ww_synth_crawled *k)
{
	r->crawled = k;
	if (!k || !ww_synth_crawled_blocks(k))
		r->forms[WW_SYNTH_BLOCK] = 0;
}

json_t *ww_synth_recipe_json(const struct ww_synth_recipe *r)
{
	json_t *o = json_pack("{s:s, s:s}", "target", ww_target_name(r->target), "compiler", r->compiler);
	if (r->crawled)
		json_object_set_new(o, "catalogue", json_string(ww_synth_crawled_id(r->crawled)));
	struct ww_synth_recipe copy = *r;
	for (size_t i = 0; i < WW_ARRAY_LEN(lists); i++) {
		json_t *list = json_object();
		for (int k = 0; k < lists[i].n; k++)
			if (at(&copy, lists[i].offset)[k] > 0)
				json_object_set_new(list, lists[i].names[k], json_real(at(&copy, lists[i].offset)[k]));
		json_object_set_new(o, lists[i].key, list);
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(numbers); i++)
		json_object_set_new(o, numbers[i].key, json_real(*at(&copy, numbers[i].offset) / numbers[i].unit));
	return o;
}
