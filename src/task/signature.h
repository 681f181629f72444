/* signature.h - a short text that identifies what a task computes; task sets are kept apart by it.
 *
 * The signature, version 1, is of the task's ATen graph in canonical form (canon.h): operators, structure, classes of
 * types (floating, integer, boolean) and the constants that matter (exponents, which dimensions are reduced, modes).
 * Not in it: names, sizes, factors, the order of commutative operands, whether something was written as a module, a
 * function or its formula.  Equal signatures mean the same computation up to sizes; docs/formats/tasks.md says more.
 */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { WW_SIGNATURE_TEXT = 36 };

struct ww_signature {
	char text[WW_SIGNATURE_TEXT]; /* "s1:" and 32 hexadecimal digits */
	char *operators; /* the operator signature: canonical operators with their numbers, sorted: "add*2 conv2 relu" */
	char random[48]; /* the operator that draws random numbers, or "" */
	int independent; /* no output depends on an input */
	/* What structures are compared by: hashes of every operator with its operands to a depth of 0, 1 and 2, each with
	 * how often it has come before, ascending. */
	uint32_t *features;
	size_t n_features;
};

/* Of a graph as the bridge gives it (docs/formats/bridge.md, "graph" and "outline").  WW_ERR_PROTOCOL where it lacks
 * parts. */
enum ww_rc ww_task_signature(const json_t *graph, struct ww_signature *out, struct ww_err *err) WW_MUST_CHECK;
/* Whether a text is a signature of this version; NULL is none. */
int ww_signature_is(const char *text);
void ww_signature_release(struct ww_signature *s); /* safe on a zeroed one */

/* Sort hashes and make equal ones differ by how often they have come, so that lists are sets: what similarity (synth)
 * counts.  In place. */
void ww_signature_as_set(uint32_t *hashes, size_t n);
