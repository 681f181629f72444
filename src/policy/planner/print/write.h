/* write.h - what the writers of expressions share (expr.c, load.c, guard.c): statements, levels, texts that are known.
 */
#pragma once

#include "policy/planner/print/expr.h"

/* The loop level at which x is known: 1 the row, 2 the column, or that of a temporary. */
int pl_level_of(const struct expr *e, const struct ix *x);
/* The largest level of n indices, and at least `least`. */
int pl_max_level(struct expr *e, const struct ix *const *idx, int n, int least);
/* The loop level of a statement, which must stay inside the enclosing conditional. */
int pl_at_level(const struct expr *e, int level);
/* A statement at that level. */
void pl_emit(struct expr *e, int level, const char *fmt, ...) WW_PRINTF(3, 4);
/* The name of a new variable. */
const char *pl_temp(struct expr *e);

/* What has been written: v at idx, or (v NULL) the load of b at its offset.  NULL: nothing yet. */
struct ememo *pl_memo_find(
	struct expr *e, const struct val *v, const struct buf *b, const struct ix *const *idx, int n);
void pl_memo_add(
	struct expr *e, const struct val *v, const struct buf *b, const struct ix *const *idx, int n, struct etext t);
/* Forget texts of this level or a deeper one, and of scopes that have ended. */
void pl_memo_drop(struct expr *e, int level, int scope);

/* cpu: a text of this type as a vector, its vector type, and a condition that changes along the lane as a mask. */
const char *pl_as_vec(struct expr *e, struct etext t, int dt);
const char *pl_vec_type(int dt);
const char *pl_vec_cond(struct expr *e, const struct ix *x);
/* cpu: an affine index expression along the lane as a vector of floats. */
const char *pl_vec_ix(struct expr *e, const struct ix *x);

/* Does this kernel store v itself?  Then v is computed where it is needed and not loaded. */
int pl_is_own(const struct expr *e, const struct val *v);

/* load.c: the element of b at idx, in the expression's form. */
struct etext pl_load(struct expr *e, struct buf *b, const struct ix *const *idx);
/* Where neighbouring lanes read neighbouring elements of a buffer of 64-bit integers: the first one's address, the
 * level at which it is known, and whether they come from memory; else NULL. */
const char *pl_integers_at(struct expr *e, struct val *v, const struct ix *const *idx, int *level, int *ahead);
/* Is each term of x but the lane a multiple of 4, so that vectors of four stay aligned? */
int pl_in_fours(struct pl *pl, const struct ix *x, const struct ix_atom *lane);

/* guard.c: a view that reads its argument, at sub, only where its condition holds. */
struct etext pl_guarded(struct expr *e, struct val *v, const struct ix *const *idx, const struct ix *const *sub);
/* Is v a where() to be computed only where its condition holds (cuda, in the loop of a small reduction)?  As such. */
int pl_is_branch(struct expr *e, struct val *v, const struct ix *const *idx);
struct etext pl_branch(struct expr *e, struct val *v, const struct ix *const *idx);
