/* text.h - tokens to text that ends before a stop string. */
#pragma once

#include "nn/tokenizer.h"

enum { WW_TEXT_STOPS_MAX = 16, WW_TEXT_HELD_MAX = 1 << 16 };

struct ww_text {
	struct ww_detok detok;
	struct ww_str held; /* may be the beginning of a stop string */
	char *stop[WW_TEXT_STOPS_MAX];
	int stop_n, stopped;
};

/* The stop strings are copied; each must be neither empty nor longer than WW_TEXT_HELD_MAX / 2. */
enum ww_rc ww_text_init(
	struct ww_text *t, const struct ww_tok *tok, const char *const *stop, int stop_n, struct ww_err *err) WW_MUST_CHECK;
void ww_text_release(struct ww_text *t);
/* Append to `out` the text that is final: whole characters that cannot be part of a stop string.  1: a stop string is
 * complete; the text before it is in `out`, and no text follows. */
int ww_text_add(struct ww_text *t, int32_t id, struct ww_str *out);
/* Call after the last token: append the text held back. */
void ww_text_finish(struct ww_text *t, struct ww_str *out);
