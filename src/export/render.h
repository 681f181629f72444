/* render.h - fill the templates of exports: @KEY@ becomes a value. */
#pragma once

#include "base/arena.h"
#include "base/str.h"

enum { WW_VARS_MAX = 128 };

/* Keys and values live in the arena. */
struct ww_vars {
	struct ww_arena *arena;
	struct {
		const char *key, *value;
	} v[WW_VARS_MAX];
	int n;
	int failed; /* out of memory */
};

/* Set or replace a value; the key without its @. */
void ww_vars_set(struct ww_vars *v, const char *key, const char *value);
void ww_vars_setf(struct ww_vars *v, const char *key, const char *fmt, ...) WW_PRINTF(3, 4);
/* Append the template with its keys replaced.  Keys are upper-case letters, digits and '_' between two @; one that is
 * not set is a bug of ours.  Values are inserted as they are: they are not searched for keys. */
void ww_render(const struct ww_vars *v, const char *text, size_t n, struct ww_str *out);
/* The same for an embedded file (embed.h). */
void ww_render_embedded(const struct ww_vars *v, const char *path, struct ww_str *out);
