/* similar.c - fingerprints, their similarity, and the index of them (similar.h).
 *
 * Layout of the index.  A record holds its sets (one allocation), the hashes of its signature and its operators, and a
 * key for each of its bands.  For each band, and for signatures and operators, a hash table of chains: `head` by key,
 * `next` by record.  A chain's records are compared exactly, unless their sizes or keys already tell them apart.
 *
 * Rejected: minima kept and compared in place of the sets (0.03 of error at 0.9); an inverted index of rare features
 * (exact, but the features of a grammar's tasks are not rare). */
#include "synth/similar.h"
#include "base/hash.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { SHINGLE = 4, BANDS = 16, ROWS = 8, HASHES = BANDS * ROWS, FIRST_HEADS = 1024 };
enum { SIGNATURES = 2 * BANDS, OPERATORS, CHAINS };

static uint32_t hash_bytes(const char *p, size_t n) { return (uint32_t)(ww_hash_mix(ww_hash_fnv(p, n), n) >> 16); }

/* ---- Fingerprints ------------------------------------------------------------------------------------------------ */

/* Runs of SHINGLE words of a text with spaces between; a shorter text is one run. */
static enum ww_rc shingles(const char *text, struct ww_fingerprint *f, struct ww_err *err)
{
	const char *starts[SHINGLE] = { NULL };
	size_t words = 1;
	for (const char *p = text; *p; p++)
		words += *p == ' ';
	WW_CHECK(WW_NEW(f->text, words, err));
	size_t n = 0;
	for (const char *p = text, *end; *p; p = *end ? end + 1 : end) {
		end = p + strcspn(p, " ");
		memmove(starts, starts + 1, sizeof(starts) - sizeof(*starts));
		starts[SHINGLE - 1] = p;
		if (starts[0])
			f->text[n++] = hash_bytes(starts[0], (size_t)(end - starts[0]));
	}
	if (!n && *text)
		f->text[n++] = hash_bytes(text, strlen(text));
	f->n_text = n;
	ww_signature_as_set(f->text, n);
	return WW_OK;
}

static enum ww_rc of_graph(const json_t *graph, struct ww_fingerprint *f, struct ww_err *err)
{
	struct ww_signature s;
	WW_CHECK(ww_task_signature(graph, &s, err));
	memcpy(f->signature, s.text, sizeof(f->signature));
	memcpy(f->random, s.random, sizeof(f->random));
	f->independent = s.independent;
	f->operators = s.operators;
	f->graph = s.features;
	f->n_graph = s.n_features;
	return WW_OK; /* s has nothing left */
}

enum ww_rc ww_fingerprint_of(const struct ww_outline *o, struct ww_fingerprint *out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	memset(out, 0, sizeof(*out));
	if (o->tokens)
		rc = shingles(o->tokens, out, err);
	if (rc == WW_OK && o->graph)
		rc = of_graph(o->graph, out, err);
	if (rc != WW_OK)
		ww_fingerprint_release(out);
	return rc;
}

void ww_fingerprint_release(struct ww_fingerprint *f)
{
	free(f->operators);
	free(f->text);
	free(f->graph);
	memset(f, 0, sizeof(*f));
}

double ww_similarity(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b)
{
	size_t i = 0, k = 0, both = 0;
	while (i < n_a && k < n_b) {
		uint32_t x = a[i], y = b[k];
		both += x == y;
		i += x <= y;
		k += y <= x;
	}
	return both ? (double)both / (double)(n_a + n_b - both) : 0;
}

static void judge(struct ww_similar_match *m)
{
	m->similar = m->same_signature || m->text > WW_SIMILAR_TEXT || m->graph > WW_SIMILAR_GRAPH;
}

void ww_similar_compare(const struct ww_fingerprint *a, const struct ww_fingerprint *b, struct ww_similar_match *out)
{
	*out = (struct ww_similar_match){ .text = ww_similarity(a->text, a->n_text, b->text, b->n_text),
		.graph = ww_similarity(a->graph, a->n_graph, b->graph, b->n_graph),
		.same_signature = *a->signature && !strcmp(a->signature, b->signature),
		.same_operators = a->operators && b->operators && *a->operators && !strcmp(a->operators, b->operators) };
	judge(out);
}

/* ---- The index --------------------------------------------------------------------------------------------------- */

struct record {
	int64_t tag;
	uint32_t *sets; /* text, then graph */
	uint32_t n_text, n_graph;
	uint64_t signature, operators;      /* hashes; 0: none */
	uint32_t key[CHAINS], next[CHAINS]; /* number of a record + 1 */
};

struct ww_similar {
	struct record *r;
	size_t n, cap;
	uint32_t *head; /* [CHAINS][heads] */
	size_t heads;
	uint32_t *seen, round; /* by record: the search that has compared it */
	size_t seen_cap;
};

enum ww_rc ww_similar_new(struct ww_similar **out, struct ww_err *err)
{
	struct ww_similar *s;
	*out = NULL;
	WW_CHECK(WW_NEW(s, 1, err));
	s->heads = FIRST_HEADS;
	enum ww_rc rc = WW_NEW(s->head, CHAINS * s->heads, err);
	if (rc != WW_OK)
		free(s);
	else
		*out = s;
	return rc;
}

void ww_similar_free(struct ww_similar *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		free(s->r[i].sets);
	free(s->r);
	free(s->head);
	free(s->seen);
	free(s);
}

/* All minima at once; the wider the vectors the better. */
#if defined(__x86_64__) && !defined(WW_SANITIZE)
__attribute__((target_clones("avx2", "default")))
#endif
static void minima(const uint32_t *set, size_t n, const uint32_t *factor, const uint32_t *flip, uint32_t *least)
{
	for (int h = 0; h < HASHES; h++)
		least[h] = UINT32_MAX;
	for (size_t i = 0; i < n; i++)
		for (int h = 0; h < HASHES; h++) {
			uint32_t v = (set[i] ^ flip[h]) * factor[h];
			v ^= v >> 15;
			v *= 0x2c1b3c6du;
			least[h] = v < least[h] ? v : least[h];
		}
}

static void band_keys(const uint32_t *set, size_t n, uint32_t *key)
{
	uint32_t factor[HASHES], flip[HASHES], least[HASHES];
	for (uint64_t h = 0; h < HASHES; h++) {
		factor[h] = (uint32_t)(ww_hash_mix(h, 0x51ed27) >> 20) | 1;
		flip[h] = (uint32_t)(ww_hash_mix(h, 0x7feb35) >> 24);
	}
	minima(set, n, factor, flip, least);
	for (int b = 0; b < BANDS; b++) {
		uint64_t k = (uint64_t)b;
		for (int i = 0; i < ROWS; i++)
			k = ww_hash_mix(k, least[b * ROWS + i]);
		key[b] = (uint32_t)(k >> 24);
	}
}

static uint64_t hash_or_0(const char *text)
{
	return text && *text ? (uint64_t)hash_bytes(text, strlen(text)) << 32 | hash_bytes(text, strlen(text) / 2) | 1 : 0;
}

static void describe(struct record *r, const struct ww_fingerprint *f)
{
	*r = (struct record){ .n_text = (uint32_t)f->n_text,
		.n_graph = (uint32_t)f->n_graph,
		.signature = hash_or_0(f->signature),
		.operators = hash_or_0(f->operators) };
	if (f->n_text)
		band_keys(f->text, f->n_text, r->key);
	if (f->n_graph)
		band_keys(f->graph, f->n_graph, r->key + BANDS);
	r->key[SIGNATURES] = (uint32_t)(r->signature >> 32);
	r->key[OPERATORS] = (uint32_t)(r->operators >> 32);
}

/* Whether a chain says anything about it. */
static int in_chain(const struct record *r, int chain)
{
	return chain < BANDS      ? r->n_text > 0
		: chain < SIGNATURES  ? r->n_graph > 0
		: chain == SIGNATURES ? r->signature != 0
							  : r->operators != 0;
}

static uint32_t *head_of(struct ww_similar *s, int chain, uint32_t key)
{
	return &s->head[(size_t)chain * s->heads + (key & (s->heads - 1))];
}

static void link_record(struct ww_similar *s, size_t i)
{
	for (int c = 0; c < CHAINS; c++) {
		uint32_t *head = head_of(s, c, s->r[i].key[c]);
		if (!in_chain(&s->r[i], c))
			continue;
		s->r[i].next[c] = *head;
		*head = (uint32_t)i + 1;
	}
}

static enum ww_rc grow_heads(struct ww_similar *s, struct ww_err *err)
{
	if (s->n < s->heads)
		return WW_OK;
	free(s->head);
	s->head = NULL;
	s->heads *= 2;
	WW_CHECK(WW_NEW(s->head, CHAINS * s->heads, err));
	for (size_t i = 0; i < s->n; i++)
		link_record(s, i);
	return WW_OK;
}

enum ww_rc ww_similar_add(struct ww_similar *s, const struct ww_fingerprint *f, int64_t tag, struct ww_err *err)
{
	WW_CHECK(grow_heads(s, err));
	if (!WW_GROW(s->r, &s->cap, s->n + 1))
		return ww_nomem(err);
	struct record *r = &s->r[s->n];
	describe(r, f);
	r->tag = tag;
	WW_CHECK(WW_NEW(r->sets, f->n_text + f->n_graph + 1, err));
	if (f->n_text)
		memcpy(r->sets, f->text, f->n_text * sizeof(*r->sets));
	if (f->n_graph)
		memcpy(r->sets + f->n_text, f->graph, f->n_graph * sizeof(*r->sets));
	link_record(s, s->n++);
	return WW_OK;
}

/* The similarity of two sets; 0 where their sizes alone bound it by `limit`. */
static double worth(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b, double limit, int exact)
{
	size_t less = n_a < n_b ? n_a : n_b, more = n_a < n_b ? n_b : n_a;
	return exact || (double)less > limit * (double)more ? ww_similarity(a, n_a, b, n_b) : 0;
}

static double rank_of(const struct ww_similar_match *m)
{
	return m->similar * 10 + m->same_signature * 5 + m->same_operators + m->text + m->graph;
}

static void compare(const struct record *r, const struct record *q, const struct ww_fingerprint *f, int exact,
	struct ww_similar_match *best)
{
	struct ww_similar_match m = { .tag = r->tag,
		.same_signature = q->signature && r->signature == q->signature,
		.same_operators = q->operators && r->operators == q->operators };
	int whole = exact || m.same_signature || m.same_operators;
	m.text = worth(r->sets, r->n_text, f->text, f->n_text, WW_SIMILAR_TEXT, whole);
	m.graph = worth(r->sets + r->n_text, r->n_graph, f->graph, f->n_graph, WW_SIMILAR_GRAPH, whole);
	judge(&m);
	if ((m.similar || m.same_operators) && (best->tag < 0 || rank_of(&m) > rank_of(best)))
		*best = m;
}

/* Without room for `seen` a record is compared once for each band that it shares. */
static void next_round(struct ww_similar *s)
{
	if (s->seen_cap <= s->n) {
		free(s->seen);
		s->seen_cap = 2 * s->n + 64;
		s->seen = calloc(s->seen_cap, sizeof(*s->seen));
		s->seen_cap = s->seen ? s->seen_cap : 0;
		s->round = 0;
	}
	s->round++;
}

int ww_similar_find(struct ww_similar *s, const struct ww_fingerprint *f, int exact, struct ww_similar_match *out)
{
	struct record q;
	*out = (struct ww_similar_match){ .tag = -1 };
	describe(&q, f);
	for (size_t i = 0; exact && i < s->n; i++)
		compare(&s->r[i], &q, f, 1, out);
	if (exact)
		return out->tag >= 0;
	next_round(s);
	for (int c = 0; c < CHAINS && (c < OPERATORS || out->tag < 0); c++)
		for (uint32_t at = in_chain(&q, c) ? *head_of(s, c, q.key[c]) : 0; at && (c < OPERATORS || out->tag < 0);
			at = s->r[at - 1].next[c]) {
			if (s->r[at - 1].key[c] != q.key[c] || (s->seen_cap > at && s->seen[at] == s->round))
				continue;
			if (s->seen_cap > at)
				s->seen[at] = s->round;
			compare(&s->r[at - 1], &q, f, 0, out);
		}
	return out->tag >= 0;
}
