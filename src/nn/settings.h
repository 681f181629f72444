/* settings.h - warpwright.json beside a model's weights: how it was trained to be used, for which config.json has no
 * member.  It is copied with the tokenizer's files where a model is saved again. */
#pragma once

#include "base/err.h"

#define WW_SETTINGS_FILE "warpwright.json"

struct ww_settings {
	char prompt[16]; /* "full" or "compact" (docs/policies.md); "": unset */
};

/* The settings of the model in `dir`; all unset where the file is missing. */
enum ww_rc ww_settings_read(const char *dir, struct ww_settings *out, struct ww_err *err) WW_MUST_CHECK;
/* Replaces the file in one step. */
enum ww_rc ww_settings_write(const char *dir, const struct ww_settings *s, struct ww_err *err) WW_MUST_CHECK;
