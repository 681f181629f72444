/* signature.c - see signature.h.
 *
 * Colours.  Every node that an output depends on has a colour: first a hash of its operator and its operands' colours
 * (from the leaves up), then in ROUNDS rounds that of those that use it, in which places.  So a colour describes what a
 * node is made of and how it is used, and two inputs differ from one that is used twice.  The signature is the hash of
 * all colours, sorted.  It does not depend on the order in which the graph lists its nodes. */
#include "task/signature.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "task/canon_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4, DEPTHS = 3, MAX_OPERATORS = 1 << 16 };

static const char version[] = "s1:";

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 31;
}

struct coloured {
	const struct ww_canon *c;
	unsigned char *used; /* an output depends on it */
	uint64_t *colour, *next;
};

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* A node's colour from those of its operands.  A number beside two operands of a sum or product is left out: a factor
 * can stand in many places of a formula. */
static uint64_t combine(const struct ww_canon *c, const struct ww_canon_node *x, const uint64_t *of)
{
	uint64_t in[1024], h = mix(x->label_hash, x->kind);
	int n = 0, values = 0;
	for (int i = 0; i < x->n; i++)
		values += c->node[x->in[i]].kind != WW_CANON_CONST;
	for (int i = 0; i < x->n && n < 1024; i++)
		if (!x->commutes || values < 2 || c->node[x->in[i]].kind != WW_CANON_CONST)
			in[n++] = of[x->in[i]];
	if (x->commutes)
		qsort(in, (size_t)n, sizeof(*in), by_value);
	for (int i = 0; i < n; i++)
		h = mix(h, in[i]);
	return h;
}

/* Operands are numbered before what uses them. */
static void mark_used(struct coloured *g, const int *outputs, int n_outputs)
{
	for (int i = 0; i < n_outputs; i++)
		g->used[outputs[i]] = 1;
	for (size_t i = g->c->n; i-- > 0;)
		for (int k = 0; g->used[i] && k < g->c->node[i].n; k++)
			g->used[g->c->node[i].in[k]] = 1;
}

static void colour(struct coloured *g, const int *outputs, int n_outputs)
{
	for (size_t i = 0; i < g->c->n; i++)
		g->colour[i] = combine(g->c, &g->c->node[i], g->colour);
	for (int i = 0; i < n_outputs; i++)
		g->colour[outputs[i]] = mix(g->colour[outputs[i]], 0x6f7574);
	for (int round = 0; round < ROUNDS; round++) {
		memcpy(g->next, g->colour, g->c->n * sizeof(*g->next));
		for (size_t i = 0; i < g->c->n; i++) {
			const struct ww_canon_node *x = &g->c->node[i];
			for (int k = 0; g->used[i] && k < x->n; k++) /* a sum: users come in any order */
				g->next[x->in[k]] += mix(g->colour[i], x->commutes ? 0 : (uint64_t)k + 1);
		}
		for (size_t i = 0; i < g->c->n; i++)
			g->colour[i] = mix(g->next[i], (uint64_t)round);
	}
}

/* Constants are left out: how many of them a formula is written with means nothing. */
static enum ww_rc hash_colours(struct coloured *g, struct ww_signature *out, struct ww_err *err)
{
	char hex[WW_HASH_HEX];
	size_t n = 0;
	for (size_t i = 0; i < g->c->n; i++)
		if (g->used[i] && g->c->node[i].kind != WW_CANON_CONST)
			g->next[n++] = g->colour[i];
	qsort(g->next, n, sizeof(*g->next), by_value);
	ww_hash_hex(g->next, n * sizeof(*g->next), hex);
	snprintf(out->text, sizeof(out->text), "%s%.32s", version, hex);
	return WW_OK;
}

/* ---- Operators and features -------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static enum ww_rc list_operators(const struct coloured *g, struct ww_signature *out, struct ww_err *err)
{
	ww_auto_free const char **label = NULL;
	ww_auto_str text = WW_STR_INIT(MAX_OPERATORS);
	size_t n = 0, same;
	WW_CHECK(WW_NEW(label, g->c->n + 1, err));
	for (size_t i = 0; i < g->c->n; i++)
		if (g->used[i] && g->c->node[i].kind == WW_CANON_OP)
			label[n++] = g->c->node[i].label;
	qsort(label, n, sizeof(*label), by_text);
	for (size_t i = 0; i < n; i += same) {
		for (same = 1; i + same < n && !strcmp(label[i], label[i + same]); same++)
			;
		ww_str_addf(&text, same > 1 ? "%s%s*%zu" : "%s%s", i ? " " : "", label[i], same);
	}
	out->operators = ww_str_take(&text);
	return out->operators ? WW_OK : ww_nomem(err);
}

static int by_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

void ww_signature_as_set(uint32_t *h, size_t n)
{
	qsort(h, n, sizeof(*h), by_u32);
	for (size_t i = 0, same; i < n; i += same) {
		uint32_t first = h[i];
		for (same = 1; i + same < n && h[i + same] == first; same++)
			h[i + same] = (uint32_t)(mix(first, same) >> 16);
	}
	qsort(h, n, sizeof(*h), by_u32);
}

static enum ww_rc list_features(struct coloured *g, struct ww_signature *out, struct ww_err *err)
{
	size_t n = 0;
	WW_CHECK(WW_NEW(out->features, g->c->n * DEPTHS + 1, err));
	for (size_t i = 0; i < g->c->n; i++)
		g->colour[i] = mix(g->c->node[i].label_hash, g->c->node[i].kind);
	for (int depth = 0; depth < DEPTHS; depth++) {
		for (size_t i = 0; i < g->c->n; i++) {
			if (g->used[i] && g->c->node[i].kind == WW_CANON_OP)
				out->features[n++] = (uint32_t)(g->colour[i] >> 20);
			g->next[i] = combine(g->c, &g->c->node[i], g->colour);
		}
		memcpy(g->colour, g->next, g->c->n * sizeof(*g->next));
	}
	out->n_features = n;
	ww_signature_as_set(out->features, n);
	return WW_OK;
}

static int depends_on_input(const struct coloured *g, size_t n_inputs, const struct ww_canon_reader *r)
{
	for (size_t i = 0; i < n_inputs && i < r->n; i++)
		if (g->used[r->v[i].node])
			return 1;
	return 0;
}

static enum ww_rc describe(struct coloured *g, const struct ww_canon_reader *r, const json_t *graph, const int *outputs,
	int n_outputs, struct ww_signature *out, struct ww_err *err)
{
	WW_CHECK(WW_NEW(g->used, g->c->n, err));
	WW_CHECK(WW_NEW(g->colour, g->c->n, err));
	WW_CHECK(WW_NEW(g->next, g->c->n, err));
	mark_used(g, outputs, n_outputs);
	colour(g, outputs, n_outputs);
	WW_CHECK(hash_colours(g, out, err));
	WW_CHECK(list_operators(g, out, err));
	WW_CHECK(list_features(g, out, err));
	snprintf(out->random, sizeof(out->random), "%s", r->random ? r->random : "");
	out->independent = !depends_on_input(g, json_array_size(json_object_get(graph, "inputs")), r);
	return WW_OK;
}

enum ww_rc ww_task_signature(const json_t *graph, struct ww_signature *out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct ww_canon c = { 0 };
	struct ww_canon_reader r = { 0 };
	struct coloured g = { .c = &c };
	ww_auto_free int *outputs = NULL;
	int n_outputs = 0;
	memset(out, 0, sizeof(*out));
	WW_TRY(ww_canon_init(&c, err));
	WW_TRY(ww_canon_read(&r, &c, graph, &outputs, &n_outputs, err));
	WW_TRY(describe(&g, &r, graph, outputs, n_outputs, out, err));
out:
	free(g.used);
	free(g.colour);
	free(g.next);
	ww_canon_reader_release(&r);
	ww_canon_release(&c);
	if (rc != WW_OK)
		ww_signature_release(out);
	return rc;
}

int ww_signature_is(const char *text)
{
	return text && strlen(text) == WW_SIGNATURE_TEXT - 1 && !strncmp(text, version, strlen(version));
}

void ww_signature_release(struct ww_signature *s)
{
	free(s->operators);
	free(s->features);
	memset(s, 0, sizeof(*s));
}
