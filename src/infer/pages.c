/* pages.c - pages of the cache, shared by sequences that begin alike.
 *
 * A full page is indexed by its tokens and by the page before it, so the pages form a tree.  The longest cached prefix
 * of a sequence is found by walking from the root, with one hash look-up a page.  Tokens and parent are compared, so a
 * hash collision costs time and never returns the keys of another text.
 *
 *   empty   in `spare`
 *   own     held by one sequence, still being filled, not in the table
 *   cached  in the table; held by `held` sequences, or idle: in a list, least recently used first, until it is
 *           evicted
 *
 * Invariants: a sequence that holds a page holds its parent.  A sequence drops its pages last first, so an idle child
 * stands before its parent in the list, and the head of the list never has children: evicting it leaves a tree, without
 * a search.
 */
#include "infer/pages.h"
#include "nn/model.h"

#include <stdlib.h>
#include <string.h>

struct page {
	int32_t held, indexed, parent, next_in_bucket, before, after;
	int32_t ids[WW_KV_PAGE];
};

struct ww_pages {
	struct page *page;
	int32_t *bucket, *spare;
	int64_t n, spare_n, idle_n;
	uint32_t mask;
	int32_t oldest, newest; /* of the idle ones */
};

enum ww_rc ww_pages_new(int64_t n, struct ww_pages **out, struct ww_err *err)
{
	struct ww_pages *p = calloc(1, sizeof(*p));
	int64_t buckets = 1;
	WW_BUG(n < 1 || n > INT32_MAX / WW_KV_PAGE);
	while (buckets < 2 * n)
		buckets *= 2;
	if (p) {
		*p = (struct ww_pages){ .page = calloc((size_t)n, sizeof(*p->page)),
			.bucket = malloc((size_t)buckets * 4),
			.spare = malloc((size_t)n * 4),
			.n = n,
			.mask = (uint32_t)buckets - 1,
			.oldest = -1,
			.newest = -1 };
	}
	if (!p || !p->page || !p->bucket || !p->spare) {
		ww_pages_free(p);
		return ww_nomem(err);
	}
	memset(p->bucket, 0xff, (size_t)buckets * 4);
	while (p->spare_n < n) {
		p->spare[p->spare_n] = (int32_t)(n - 1 - p->spare_n);
		p->spare_n++;
	}
	*out = p;
	return WW_OK;
}

void ww_pages_free(struct ww_pages *p)
{
	if (!p)
		return;
	free(p->page);
	free(p->bucket);
	free(p->spare);
	free(p);
}

int64_t ww_pages_left(const struct ww_pages *p) { return p->spare_n + p->idle_n; }

/* FNV-1a over whole tokens. */
static uint32_t hash(int32_t parent, const int32_t *ids)
{
	uint64_t h = 0xcbf29ce484222325u ^ (uint32_t)parent;
	for (int i = 0; i < WW_KV_PAGE; i++)
		h = (h ^ (uint32_t)ids[i]) * 0x100000001b3u;
	return (uint32_t)(h ^ h >> 32);
}

static int32_t *bucket_of(struct ww_pages *p, int32_t parent, const int32_t *ids)
{
	return &p->bucket[hash(parent, ids) & p->mask];
}

static int32_t look_up(struct ww_pages *p, int32_t parent, const int32_t *ids)
{
	int32_t i = *bucket_of(p, parent, ids);
	while (i >= 0 && (p->page[i].parent != parent || memcmp(p->page[i].ids, ids, sizeof(p->page[i].ids))))
		i = p->page[i].next_in_bucket;
	return i;
}

static void idle_remove(struct ww_pages *p, int32_t i)
{
	struct page *g = &p->page[i];
	*(g->before >= 0 ? &p->page[g->before].after : &p->oldest) = g->after;
	*(g->after >= 0 ? &p->page[g->after].before : &p->newest) = g->before;
	p->idle_n--;
}

static void idle_add(struct ww_pages *p, int32_t i)
{
	p->page[i].before = p->newest;
	p->page[i].after = -1;
	*(p->newest >= 0 ? &p->page[p->newest].after : &p->oldest) = i;
	p->newest = i;
	p->idle_n++;
}

static void hold(struct ww_pages *p, int32_t i)
{
	if (!p->page[i].held++)
		idle_remove(p, i);
}

static void forget_oldest(struct ww_pages *p)
{
	struct page *g = &p->page[p->oldest];
	int32_t *at = bucket_of(p, g->parent, g->ids), i = p->oldest;
	while (*at != i)
		at = &p->page[*at].next_in_bucket;
	*at = g->next_in_bucket;
	g->indexed = 0;
	idle_remove(p, i);
	p->spare[p->spare_n++] = i;
}

int32_t ww_pages_take(struct ww_pages *p)
{
	if (!p->spare_n && p->oldest >= 0)
		forget_oldest(p);
	if (!p->spare_n)
		return -1;
	int32_t i = p->spare[--p->spare_n];
	p->page[i].held = 1;
	return i;
}

void ww_pages_drop(struct ww_pages *p, const int32_t *pages, int64_t n)
{
	while (n-- > 0) {
		struct page *g = &p->page[pages[n]];
		WW_BUG(g->held < 1);
		if (--g->held)
			continue;
		if (g->indexed)
			idle_add(p, pages[n]);
		else
			p->spare[p->spare_n++] = pages[n];
	}
}

int32_t ww_pages_find(struct ww_pages *p, int32_t parent, const int32_t *ids)
{
	int32_t i = look_up(p, parent, ids);
	if (i >= 0)
		hold(p, i);
	return i;
}

int32_t ww_pages_publish(struct ww_pages *p, int32_t page, int32_t parent, const int32_t *ids)
{
	struct page *g = &p->page[page];
	int32_t other = look_up(p, parent, ids);
	WW_BUG(g->held != 1 || g->indexed);
	if (other >= 0) {
		hold(p, other);
		ww_pages_drop(p, &page, 1);
		return other;
	}
	int32_t *at = bucket_of(p, parent, ids);
	memcpy(g->ids, ids, sizeof(g->ids));
	g->indexed = 1;
	g->parent = parent;
	g->next_in_bucket = *at;
	*at = page;
	return page;
}

void ww_pages_forget(struct ww_pages *p)
{
	while (p->oldest >= 0)
		forget_oldest(p);
	WW_BUG(p->spare_n != p->n);
}
