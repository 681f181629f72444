/* ix.h - index and size expressions of the planner.
 *
 * Every size, stride and index is a polynomial over atoms: the symbols (sizes of the task's inputs), the variables
 * (loop counters of a kernel, each with an extent), quotients and remainders that could not be simplified, comparisons
 * (0 or 1), and names of C variables.  The normal form is a sum of monomials with sorted atoms, so that equal
 * expressions are equal structures.  All of it lives in the arena of one build.
 */
#pragma once

#include "base/arena.h"

#include <stdint.h>

struct pl;

/* Sums and products of numbers that a graph states, which may be as large as it likes: beyond 2^62 they stay there. */
enum { IX_MOST_BITS = 62 };
static inline int64_t ix_bounded(__int128 v)
{
	const int64_t most = (int64_t)1 << IX_MOST_BITS;
	return v > most ? most : v < -most ? -most : (int64_t)v;
}
static inline int64_t ix_times(int64_t a, int64_t b) { return ix_bounded((__int128)a * b); }
static inline int64_t ix_plus(int64_t a, int64_t b) { return ix_bounded((__int128)a + b); }

enum { IX_MAX_ATOMS = 12 };

enum ix_kind { IX_SYM, IX_VAR, IX_DIV, IX_MOD, IX_LT, IX_EQ, IX_TEMP };

struct ix;

struct ix_atom {
	enum ix_kind kind;
	int id;                   /* order of creation: the sort key */
	const char *name;         /* SYM, VAR, TEMP */
	const struct ix *a, *b;   /* DIV, MOD, LT (a < b), EQ (a == b); VAR: b is the extent; TEMP: see ix_temp_along() */
	int64_t value;            /* SYM: the size that the graph was traced with */
	const struct ix_atom *is; /* SYM: another symbol that it equals, as the plan checks; NULL: none known */
	int fixed;                /* SYM: it equals its value, as the plan checks */
};

struct ix_mono {
	int64_t c;
	int n;
	const struct ix_atom *atom[IX_MAX_ATOMS];
};

struct ix {
	int n;
	struct ix_mono m[];
};

const struct ix *ix_const(struct pl *pl, int64_t c);
const struct ix *ix_sym(struct pl *pl, const char *name, int64_t value);
const struct ix *ix_var(struct pl *pl, const char *name, const struct ix *extent);
const struct ix *ix_temp(struct pl *pl, const char *name);
/* A vector of numbers, one for each place along `lane`, from 0 to below `bound`. */
const struct ix *ix_temp_along(struct pl *pl, const char *name, const struct ix *lane, const struct ix *bound);
const struct ix *ix_add(struct pl *pl, const struct ix *a, const struct ix *b);
const struct ix *ix_sub(struct pl *pl, const struct ix *a, const struct ix *b);
const struct ix *ix_mul(struct pl *pl, const struct ix *a, const struct ix *b);
const struct ix *ix_addc(struct pl *pl, const struct ix *a, int64_t c);
const struct ix *ix_mulc(struct pl *pl, const struct ix *a, int64_t c);
/* Floor division and remainder; b is positive. */
const struct ix *ix_div(struct pl *pl, const struct ix *a, const struct ix *b);
const struct ix *ix_mod(struct pl *pl, const struct ix *a, const struct ix *b);
const struct ix *ix_lt(struct pl *pl, const struct ix *a, const struct ix *b);
const struct ix *ix_eqz(struct pl *pl, const struct ix *a, const struct ix *b);

/* Both are equal, as the plan checks.  Of two symbols one stands for the other from now on; a symbol that equals a
 * number is known to ix_fixed().  cuda: products as well, after common factors are divided out. */
void ix_unite(struct pl *pl, const struct ix *a, const struct ix *b);
/* x, or the number that it is known to equal. */
const struct ix *ix_fixed(struct pl *pl, const struct ix *x);
int ix_same(const struct ix *a, const struct ix *b);
int ix_same_all(const struct ix *const *a, const struct ix *const *b, int n);
int ix_is_const(const struct ix *a, int64_t *c);
int ix_is(const struct ix *a, int64_t c);
/* The variable that the expression consists of, or NULL. */
const struct ix_atom *ix_as_var(const struct ix *a);
int ix_has(const struct ix *a, const struct ix_atom *v);
/* Does it contain a variable or a temporary? */
int ix_varies(const struct ix *a);
/* Does it contain a temporary, that is an index from data? */
int ix_looks_up(const struct ix *a);
/* Numeric value at the traced sizes, variables at 0. */
int64_t ix_num(const struct ix *a);
/* Bounds at the traced sizes; 0 where a temporary makes them unknown. */
int ix_range(const struct ix *a, int64_t *lo, int64_t *hi);
/* a = coef * v + rest with rest and coef free of v; 0 where v sits inside a quotient or a product with itself. */
int ix_affine(
	struct pl *pl, const struct ix *a, const struct ix_atom *v, const struct ix **coef, const struct ix **rest);
/* Replace variables v[i] by e[i] everywhere. */
const struct ix *ix_subst(
	struct pl *pl, const struct ix *a, const struct ix_atom *const *v, const struct ix *const *e, int n);
/* C text, in the arena; safe inside any expression. */
const char *ix_text(struct pl *pl, const struct ix *a);
