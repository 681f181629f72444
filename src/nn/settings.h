/* settings.h - warpwright.json beside a model's weights: how it was trained to be used, which config.json has no word
 * for.  It goes with the tokenizer's files where a model is saved again. */
#pragma once

#include "base/err.h"

#define WW_SETTINGS_FILE "warpwright.json"

struct ww_settings {
	char prompt[16]; /* "full" or "compact" (docs/policies.md); "": it says nothing */
};

/* Of the model in `dir`; without the file nothing is said. */
enum ww_rc ww_settings_read(const char *dir, struct ww_settings *out, struct ww_err *err) WW_MUST_CHECK;
/* Replaces the file in one step. */
enum ww_rc ww_settings_write(const char *dir, const struct ww_settings *s, struct ww_err *err) WW_MUST_CHECK;
