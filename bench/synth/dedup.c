/* dedup.c - times the removal of disguised copies from N tasks (bench/results/dedup.md).
 *
 *     bench-dedup [N [CHECK]]     N tasks (1,000,000), the first CHECK (5,000) of them also by brute force
 *
 * Tasks are made as those of a grammar are: one to eight pieces of 400 kinds in 16 variants each, so that most pairs
 * share features, with 18 text and 12 graph features a piece and more where two pieces meet.  One in twenty is a copy
 * of an earlier one in which a few features are others, so that pairs lie on both sides of the threshold. */
#include "base/time.h"
#include "synth/similar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { KINDS = 400, VARIANTS = 16, TEXT = 18, GRAPH = 12, PIECES = 8, COPY_OF = 20 };

static uint64_t state = 1;

static uint64_t hash(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

static uint32_t draw(uint32_t below) { return (uint32_t)(hash(state += 0x9e3779b97f4a7c15ull) >> 32) % below; }

/* Features of pieces, and of every two that follow each other. */
static size_t features(uint32_t *out, const uint32_t *piece, int n, int each, uint64_t salt)
{
	size_t k = 0;
	for (int i = 0; i < n; i++) {
		uint64_t kind = piece[i] / VARIANTS, own = piece[i];
		for (int f = 0; f < each; f++)
			out[k++] = (uint32_t)hash(salt + (f < each * 2 / 3 ? kind : own + 7777777) * 64 + (uint64_t)f);
		for (int f = 0; i && f < 3; f++)
			out[k++] = (uint32_t)hash(salt * 3 + (uint64_t)piece[i - 1] * 1000003 + piece[i] * 8 + (uint64_t)f);
	}
	return k;
}

struct made {
	struct ww_fingerprint f;
	uint32_t text[PIECES * (TEXT + 3)], graph[PIECES * (GRAPH + 3)];
};

static void make(struct made *m, uint64_t seed)
{
	uint32_t piece[PIECES], changes = 0;
	uint64_t before = state;
	memset(m, 0, sizeof(*m));
	state = seed;
	int is_copy = seed % COPY_OF == 0 && seed > 1000;
	if (is_copy) {
		changes = draw(12);
		state = 1 + draw((uint32_t)(seed - 1));
	}
	state = hash(state);
	int n = 1 + (int)draw(PIECES);
	for (int i = 0; i < n; i++)
		piece[i] = draw(KINDS * VARIANTS);
	m->f.n_text = features(m->text, piece, n, TEXT, 1);
	m->f.n_graph = features(m->graph, piece, n, GRAPH, 2);
	for (uint32_t i = 0; i < changes; i++) {
		m->text[draw((uint32_t)m->f.n_text)] = (uint32_t)hash(seed * 31 + i);
		m->graph[draw((uint32_t)m->f.n_graph)] = (uint32_t)hash(seed * 37 + i);
	}
	ww_signature_as_set(m->text, m->f.n_text);
	ww_signature_as_set(m->graph, m->f.n_graph);
	m->f.text = m->text;
	m->f.graph = m->graph;
	snprintf(m->f.signature, sizeof(m->f.signature), "s1:%016llx", (unsigned long long)hash(seed));
	state = before;
}

/* Keep each task that resembles no kept one; returns how many are kept. */
static int64_t deduplicate(int64_t n, int exact, unsigned char *kept)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_similar *index;
	struct ww_similar_match m;
	static struct made t;
	int64_t left = 0;
	if (ww_similar_new(&index, &err) != WW_OK)
		exit(3);
	for (int64_t i = 0; i < n; i++) {
		make(&t, (uint64_t)i + 1);
		kept[i] = !(ww_similar_find(index, &t.f, exact, &m) && m.similar);
		left += kept[i];
		if (kept[i] && ww_similar_add(index, &t.f, i, &err) != WW_OK)
			exit(3);
	}
	ww_similar_free(index);
	return left;
}

int main(int argc, char **argv)
{
	int64_t n = argc > 1 ? atoll(argv[1]) : 1000000, check = argc > 2 ? atoll(argv[2]) : 5000;
	unsigned char *kept = calloc((size_t)(n > check ? n : check), 1), *by_force = calloc((size_t)check + 1, 1);
	struct rusage use;
	if (!kept || !by_force)
		return 3;
	uint64_t start = ww_now_ns();
	int64_t left = deduplicate(n, 0, kept);
	double seconds = ww_seconds_since(start);
	getrusage(RUSAGE_SELF, &use);
	printf("%lld tasks: %lld kept, %.1f s, %.2f GiB\n", (long long)n, (long long)left, seconds,
		(double)use.ru_maxrss / (1 << 20));
	start = ww_now_ns();
	int64_t wrong = 0, expected = deduplicate(check, 1, by_force);
	deduplicate(check, 0, kept);
	for (int64_t i = 0; i < check; i++)
		wrong += kept[i] != by_force[i];
	printf("first %lld by brute force: %lld kept, %lld decided otherwise by the index, %.1f s\n", (long long)check,
		(long long)expected, (long long)wrong, ww_seconds_since(start));
	free(kept);
	free(by_force);
	return wrong > 0;
}
