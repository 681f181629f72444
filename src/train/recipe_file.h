/* recipe_file.h - a recipe's YAML file, those that its `base` names, and the command line over them.
 *
 * The option table of `train` is the recipe's format: its names are the keys, its help the documentation.
 */
#pragma once

#include "base/opt.h"
#include "train/recipe.h"

struct ww_recipe_file {
	const struct ww_cmd *cmd; /* whose options the keys are */
	const char *path;
	char **words; /* of the command line, after the path */
	int n_words;
	json_t *keys;   /* a pipeline: each section is an object in it, under its stage's name */
	json_t *values; /* owns the texts that a filled ww_recipe points to */
};

/* Read path and its bases into keys; the caller has set cmd, path and words, and releases *f, also after an error.
 * WW_ERR_USAGE where a file is no recipe, or a base is missing. */
enum ww_rc ww_recipe_file_read(struct ww_recipe_file *f, struct ww_err *err) WW_MUST_CHECK;
void ww_recipe_file_release(struct ww_recipe_file *f);
/* Is v the section of a stage? */
int ww_recipe_is_section(const char *key, const json_t *v);
/* The values of the keys outside of sections, over them those of one section (NULL: none), over them the command line.
 * *r borrows texts of *f.  WW_ERR_USAGE: a key is unknown or the stage does not read it, or a value is not valid. */
enum ww_rc ww_recipe_file_fill(
	struct ww_recipe_file *f, const char *section, struct ww_recipe *r, struct ww_err *err) WW_MUST_CHECK;
/* Where r->stage is one stage and the file a pipeline's: fill in that section's values too, for it alone. WW_ERR_USAGE:
 * there is no such section, or the command line names no directory of its own. */
enum ww_rc ww_recipe_file_fill_section(struct ww_recipe_file *f, struct ww_recipe *r, struct ww_err *err) WW_MUST_CHECK;
/* WW_ERR_USAGE where a key outside of sections, or of the command line, has no effect on the stage. */
enum ww_rc ww_recipe_file_check(const struct ww_recipe_file *f, const char *stage, struct ww_err *err) WW_MUST_CHECK;
/* All options with their values, as a run keeps them; a new reference. */
json_t *ww_recipe_values(const struct ww_recipe *r);
