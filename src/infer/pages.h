/* pages.h - pages of the key-value cache: their owners, and an index by their tokens. */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct ww_pages;

enum ww_rc ww_pages_new(int64_t n, struct ww_pages **out, struct ww_err *err) WW_MUST_CHECK;
void ww_pages_free(struct ww_pages *p); /* NULL is fine */
/* Pages that ww_pages_take() could return: empty ones and cached ones that no sequence holds. */
int64_t ww_pages_left(const struct ww_pages *p);

/* An empty page for the caller; -1 where all are held. */
int32_t ww_pages_take(struct ww_pages *p);
/* Release pages[0..n-1] of a sequence, in its order. */
void ww_pages_drop(struct ww_pages *p, const int32_t *pages, int64_t n);
/* The cached page with these WW_KV_PAGE tokens after those of page `parent` (-1: at the beginning); the caller holds it
 * then.  -1 where there is none. */
int32_t ww_pages_find(struct ww_pages *p, int32_t parent, const int32_t *ids);
/* Put the caller's full page into the index.  Where a page with the same tokens is there already, that one is returned
 * and the caller's is freed. */
int32_t ww_pages_publish(struct ww_pages *p, int32_t page, int32_t parent, const int32_t *ids);
/* Empty the index; no page may be held. */
void ww_pages_forget(struct ww_pages *p);
