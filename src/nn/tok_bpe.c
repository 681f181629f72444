/* tok_bpe.c - merges the bytes of one word into tokens.
 *
 * The word is a doubly linked list of symbols in arrays; a heap holds every adjacent pair that has a merge, ordered by
 * rank and then by position.  Popping a pair whose symbols have changed since is noticed (their merge gives another
 * token) and skipped, so nothing is ever removed from the middle of the heap: n log n for any word of n bytes.
 * Rejected: rescanning the word for its best pair after each merge, which is as fast for English words and quadratic
 * for a megabyte of one letter.
 *
 * Text repeats its words, so results of short words are kept in a direct-mapped table: a collision replaces.
 */
#include "nn/tok_internal.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_SLOTS = 16384, CACHE_WORD = 32, CACHE_IDS = 12 };

struct cached {
	uint8_t len, count; /* count 0: the slot is free */
	char word[CACHE_WORD];
	int32_t ids[CACHE_IDS];
};

struct pair {
	uint32_t rank, at;
	int32_t id;
};
struct symbol {
	int32_t id;
	int32_t prev, next;
}; /* id -1: merged into its left neighbour; index -1: the end */

struct ww_tok_bpe {
	struct symbol *symbols;
	struct pair *heap;
	size_t cap, heap_cap, heap_n; /* cap: of symbols */
	struct cached cache[CACHE_SLOTS];
};

struct ww_tok_bpe *ww_tok_bpe_new(void) { return calloc(1, sizeof(struct ww_tok_bpe)); }

void ww_tok_bpe_free(struct ww_tok_bpe *b)
{
	if (!b)
		return;
	free(b->symbols);
	free(b->heap);
	free(b);
}

static int reserve(struct ww_tok_bpe *b, size_t n)
{
	return WW_GROW(b->symbols, &b->cap, n) && WW_GROW(b->heap, &b->heap_cap, 3 * n);
}

static int before(const struct pair *x, const struct pair *y)
{
	return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

static void heap_push(struct ww_tok_bpe *b, struct pair p)
{
	size_t i = b->heap_n++;
	while (i && before(&p, &b->heap[(i - 1) / 2])) {
		b->heap[i] = b->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	b->heap[i] = p;
}

static struct pair heap_pop(struct ww_tok_bpe *b)
{
	struct pair top = b->heap[0], last = b->heap[--b->heap_n];
	size_t i = 0;
	for (;;) {
		size_t c = 2 * i + 1;
		if (c >= b->heap_n)
			break;
		if (c + 1 < b->heap_n && before(&b->heap[c + 1], &b->heap[c]))
			c++;
		if (!before(&b->heap[c], &last))
			break;
		b->heap[i] = b->heap[c];
		i = c;
	}
	b->heap[i] = last;
	return top;
}

static void offer(struct ww_tok *t, int32_t left)
{
	struct ww_tok_bpe *b = t->bpe;
	int32_t right = left < 0 ? -1 : b->symbols[left].next;
	struct pair p = { .at = (uint32_t)left };
	if (right >= 0 && ww_tok_pairs_get(&t->merges, b->symbols[left].id, b->symbols[right].id, &p.rank, &p.id))
		heap_push(b, p);
}

/* The bytes of the word as symbols; their number.  A byte that the vocabulary lacks becomes the unknown token (one for
 * a whole run of them if fuse_unk) or nothing. */
static size_t first_symbols(struct ww_tok *t, const char *word, size_t n)
{
	struct symbol *s = t->bpe->symbols;
	size_t count = 0;
	int unknown = 0;
	for (size_t i = 0; i < n; i++) {
		int32_t id = t->byte_id[(unsigned char)word[i]];
		int was = unknown;
		unknown = id < 0;
		if (unknown && (t->unk < 0 || (was && t->fuse_unk)))
			continue;
		s[count] = (struct symbol){ unknown ? t->unk : id, (int32_t)count - 1, (int32_t)count + 1 };
		count++;
	}
	if (count)
		s[count - 1].next = -1;
	return count;
}

static void merge_all(struct ww_tok *t, size_t count)
{
	struct ww_tok_bpe *b = t->bpe;
	b->heap_n = 0;
	for (size_t i = 0; i + 1 < count; i++)
		offer(t, (int32_t)i);
	while (b->heap_n) {
		struct pair p = heap_pop(b);
		struct symbol *left = &b->symbols[p.at];
		uint32_t rank;
		int32_t id;
		if (left->id < 0 || left->next < 0 ||
			!ww_tok_pairs_get(&t->merges, left->id, b->symbols[left->next].id, &rank, &id) || id != p.id)
			continue;
		struct symbol *right = &b->symbols[left->next];
		left->id = p.id;
		left->next = right->next;
		right->id = -1;
		if (left->next >= 0)
			b->symbols[left->next].prev = (int32_t)p.at;
		offer(t, left->prev);
		offer(t, (int32_t)p.at);
	}
}

static int emit(struct ww_tok *t, size_t count, struct ww_ids *ids)
{
	if (!count)
		return 1;
	for (int32_t i = 0; i >= 0; i = t->bpe->symbols[i].next)
		if (!ww_ids_add(ids, t->bpe->symbols[i].id))
			return 0;
	return 1;
}

static enum ww_rc full(const struct ww_ids *ids, struct ww_err *err)
{
	return ww_err_set(
		err, ids->n == ids->max ? WW_ERR_LIMIT : WW_ERR_NOMEM, "the text has more than %zu tokens", ids->n);
}

enum ww_rc ww_tok_bpe_word(struct ww_tok *t, const char *word, size_t n, struct ww_ids *ids, struct ww_err *err)
{
	struct ww_tok_bpe *b = t->bpe;
	struct cached *c = n <= CACHE_WORD ? &b->cache[ww_tok_hash(word, n, t->by_name.seed) % CACHE_SLOTS] : NULL;
	if (c && c->count && c->len == n && !memcmp(c->word, word, n)) {
		for (int i = 0; i < c->count; i++)
			if (!ww_ids_add(ids, c->ids[i]))
				return full(ids, err);
		return WW_OK;
	}
	size_t start = ids->n;
	int32_t whole = t->ignore_merges ? ww_tok_words_get(&t->by_bytes, word, n) : -1;
	if (whole >= 0) {
		if (!ww_ids_add(ids, whole))
			return full(ids, err);
	} else {
		if (!reserve(b, n))
			return ww_nomem(err);
		size_t count = first_symbols(t, word, n);
		merge_all(t, count);
		if (!emit(t, count, ids))
			return full(ids, err);
	}
	if (c && ids->n > start && ids->n - start <= CACHE_IDS) {
		c->len = (uint8_t)n;
		c->count = (uint8_t)(ids->n - start);
		memcpy(c->word, word, n);
		memcpy(c->ids, ids->p + start, c->count * sizeof(*c->ids));
	}
	return WW_OK;
}
