/* similar.h - near-duplicate tasks: how similar two are, and the search for similar ones among a million.
 *
 * A task has three descriptions, none of which contains names, sizes or numbers:
 *
 *     text        the set of runs of SHINGLE tokens of its normalised AST (bridge/wwbridge/tokens.py), with repetitions
 *     graph       the set of canonical operators with their operands to a depth of 0, 1 and 2 (task/signature.h)
 *     operators   the multiset of canonical operators
 *
 * The similarity of two texts, or of two graphs, is |A and B| / |A or B|.  Two tasks are similar where their signatures
 * are equal, where their texts are more than WW_SIMILAR_TEXT alike, or their graphs more than WW_SIMILAR_GRAPH.  Equal
 * operators alone are reported, and keep sets apart, but say nothing about structure.
 *
 * Search.  MinHash: of each set 128 minima over hash functions, in 16 bands of 8.  Sets that agree in a band are
 * compared exactly; two that are 0.9 alike agree in none with probability 1e-4.
 */
#pragma once

#include "base/err.h"
#include "task/outline.h"
#include "task/signature.h"

#include <stddef.h>
#include <stdint.h>

#define WW_SIMILAR_TEXT 0.9
#define WW_SIMILAR_GRAPH 0.9

struct ww_fingerprint {
	char signature[WW_SIGNATURE_TEXT]; /* "" where there is no graph */
	char *operators;                   /* NULL where there is no graph */
	uint32_t *text, *graph;            /* sets, ascending */
	size_t n_text, n_graph;
	char random[48]; /* as in struct ww_signature */
	int independent;
};

/* From an outline; parts that the outline lacks are empty. */
enum ww_rc ww_fingerprint_of(const struct ww_outline *o, struct ww_fingerprint *out, struct ww_err *err) WW_MUST_CHECK;
void ww_fingerprint_release(struct ww_fingerprint *f); /* safe on a zeroed one */

/* |A and B| / |A or B| of ascending sets; 0 where one is empty. */
double ww_similarity(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b);

/* How two tasks compare. */
struct ww_similar_match {
	int64_t tag; /* of the task that was found */
	double text, graph;
	int same_signature, same_operators;
	int similar; /* by the rule above */
};
void ww_similar_compare(const struct ww_fingerprint *a, const struct ww_fingerprint *b, struct ww_similar_match *out);

/* Tasks to be compared with. */
struct ww_similar;
enum ww_rc ww_similar_new(struct ww_similar **out, struct ww_err *err) WW_MUST_CHECK;
void ww_similar_free(struct ww_similar *s); /* NULL is fine */
/* Copies what it needs.  About 1.5 KB for a task of usual size. */
enum ww_rc ww_similar_add(
	struct ww_similar *s, const struct ww_fingerprint *f, int64_t tag, struct ww_err *err) WW_MUST_CHECK;
/* The task that is most like f, of those that are similar, or, where none is, of those with the same operators.
 * exact = 1 compares with every task in place of the candidates.  0: there is none. */
int ww_similar_find(struct ww_similar *s, const struct ww_fingerprint *f, int exact, struct ww_similar_match *out);
