/* keys.c - see keys.h. */
#include "train/keys.h"
#include "base/mem.h"
#include "train/recipe.h"
#include "train/schedule.h"

#include <stdlib.h>
#include <string.h>

const struct ww_opt ww_recipe_keys[] = {
#define KEY(name, letter, type, field, arg, def, least, most, set, help) \
	{ name, letter, WW_OPT_##type, offsetof(struct ww_recipe, field), arg, def, least, most, \
		WW_KEYS_##set##_WORDS help },
#include "train/keys.def"
#undef KEY
	WW_OPT_JSON(struct ww_recipe, json), WW_OPT_END
};

static const unsigned stages_of[] = {
#define KEY(name, letter, type, field, arg, def, least, most, set, help) WW_KEYS_##set,
#include "train/keys.def"
#undef KEY
};

static const char *const words[] = {
#define STAGE(name, word) word,
	WW_STAGES(STAGE)
#undef STAGE
};

unsigned ww_stage_of(const char *word)
{
	int i = ww_word_at(word, words, WW_ARRAY_LEN(words));
	return i < 0 ? 0 : 1u << i;
}

unsigned ww_key_stages(const char *key)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(stages_of); i++)
		if (!strcmp(ww_recipe_keys[i].name, key))
			return stages_of[i];
	return 0;
}

enum ww_rc ww_key_check(const char *key, const char *stage, struct ww_err *err)
{
	ww_auto_str list = WW_STR_INIT(256);
	unsigned set = ww_key_stages(key);
	if (!set || set & ww_stage_of(stage))
		return WW_OK;
	for (size_t i = 0; i < WW_ARRAY_LEN(words); i++)
		if (set >> i & 1)
			ww_str_addf(&list, "%s%s", list.len ? ", " : "", words[i]);
	return ww_err_set(err, WW_ERR_USAGE, "\"%s\" has no effect in stage %s, only in %s; remove it", key, stage, list.p);
}
