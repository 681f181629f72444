/* key.h - the keys of model servers, and our own server's token: out of the environment, into private memory, never
 * into a text. */
#pragma once

#include "base/str.h"

/* The key that the environment variable `name` held when the program started, or NULL. */
const char *ww_key_find(const char *name);
/* Append text with every occurrence of the key replaced by "[key]"; key may be NULL. */
void ww_key_scrub(struct ww_str *out, const char *text, size_t n, const char *key);
