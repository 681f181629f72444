#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* AddressSanitizer sees a block as one allocation: GAP bytes behind each of ours, and what is free of a block, are
 * poisoned by hand. */
#ifdef WW_SANITIZE
#include <sanitizer/asan_interface.h>
enum { GAP = 16 };
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
enum { GAP = 0 };
#endif

enum { BLOCK_BYTES = 16384, ALIGN = 16 };

struct ww_arena_block {
	struct ww_arena_block *next;
	size_t used, cap;
	_Alignas(16) unsigned char data[];
};

void ww_arena_init(struct ww_arena *a, size_t max_bytes) { *a = (struct ww_arena){ .max_bytes = max_bytes }; }

struct ww_arena_mark ww_arena_mark(const struct ww_arena *a)
{
	return (struct ww_arena_mark){ a->head, a->head ? a->head->used : 0, a->used_bytes };
}

void ww_arena_rewind(struct ww_arena *a, struct ww_arena_mark m)
{
	for (struct ww_arena_block *b = a->head; b != m.head; b = a->head) {
		a->head = b->next;
		free(b);
	}
	if (a->head) {
		a->head->used = m.head_bytes;
		ASAN_POISON_MEMORY_REGION(a->head->data + m.head_bytes, a->head->cap - m.head_bytes);
	}
	a->used_bytes = m.used_bytes;
}

void ww_arena_release(struct ww_arena *a) { ww_arena_rewind(a, (struct ww_arena_mark){ 0 }); }

void *ww_arena_alloc(struct ww_arena *a, size_t bytes)
{
	if (bytes > a->max_bytes || a->used_bytes > a->max_bytes - bytes)
		return NULL;
	size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	struct ww_arena_block *b = a->head;
	if (!b || b->cap - b->used < need + GAP) {
		size_t cap = need + GAP > BLOCK_BYTES ? need + GAP : BLOCK_BYTES;
		b = malloc(sizeof(*b) + cap);
		if (!b)
			return NULL;
		*b = (struct ww_arena_block){ .next = a->head, .cap = cap };
		a->head = b;
		ASAN_POISON_MEMORY_REGION(b->data, cap);
	}
	void *p = b->data + b->used;
	ASAN_UNPOISON_MEMORY_REGION(p, bytes);
	b->used += need + GAP;
	a->used_bytes += need;
	return memset(p, 0, bytes);
}

char *ww_arena_strdup(struct ww_arena *a, const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = ww_arena_alloc(a, n);
	return p ? memcpy(p, s, n) : NULL;
}

char *ww_arena_printf(struct ww_arena *a, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	char *p = n < 0 ? NULL : ww_arena_alloc(a, (size_t)n + 1);
	if (p)
		vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	return p;
}
