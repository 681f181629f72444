/* arena.h - memory with one lifetime (process, run, episode, step).
 *
 * Blocks are chained and only ever freed together; an allocation is 16-byte aligned and zeroed.  An arena has a
 * maximum; beyond it, and out of memory, ww_arena_alloc() returns NULL.  Not thread-safe: one arena belongs to one
 * thread.
 */
#pragma once

#include <stddef.h>

struct ww_arena {
	struct ww_arena_block *head;
	size_t used_bytes, max_bytes;
};

/* What an arena held at some moment. */
struct ww_arena_mark {
	struct ww_arena_block *head;
	size_t head_bytes, used_bytes;
};

void ww_arena_init(struct ww_arena *a, size_t max_bytes);
struct ww_arena_mark ww_arena_mark(const struct ww_arena *a);
/* Free what was allocated since the mark was made.  Marks that were made later are void. */
void ww_arena_rewind(struct ww_arena *a, struct ww_arena_mark m);
void ww_arena_release(struct ww_arena *a);
void *ww_arena_alloc(struct ww_arena *a, size_t bytes);
char *ww_arena_strdup(struct ww_arena *a, const char *s);
char *ww_arena_printf(struct ww_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
