/* walk.h - what a value reads, at a given index, until the next thing that is stored. */
#pragma once

#include "policy/planner/graph/val.h"

enum leaf_kind { LEAF_LOAD, LEAF_INDEX, LEAF_RED, LEAF_ANCHOR, LEAF_STOP };

struct leaf {
	enum leaf_kind kind;
	struct val *val;
	const struct ix *idx[PL_MAX_RANK];
	const struct ix *offset; /* pl_leaf_off() */
	int guarded;             /* met first under a view's condition: elsewhere idx may lie outside of val */
	struct leaf *next;
};

struct seen {
	const struct val *val;
	const struct ix *idx[PL_MAX_RANK];
	struct seen *next;
};

struct walk {
	struct pl *pl;
	struct val *self; /* not a leaf even where it has a root */
	struct leaf *first, **tail;
	struct seen *bucket[256];
	int into_reds;       /* descend into reductions, each with its own variables */
	struct seen *column; /* variables of a reduction, reused at each visit: new ones would double with each nesting */
	/* returns 1 for a value that is not stored: it is a LEAF_STOP; may be NULL */
	int (*stop)(void *ctx, struct val *v, const struct ix *const *idx);
	void *stop_ctx;
	int guards; /* conditions of views around the current value */
	int n;
};

/* self: a value that is entered although it is stored, or NULL. */
void pl_walk_init(struct walk *w, struct pl *pl, struct val *self);
/* Collect the leaves of v at idx: loads, index expressions, reductions, results of anchors and stops, each once. */
void pl_walk(struct walk *w, struct val *v, const struct ix *const *idx);
/* Of a LOAD the offset into its buffer, of an INDEX the expression, else NULL.  Most walks ask for none. */
const struct ix *pl_leaf_off(struct pl *pl, struct leaf *l);
/* Whether that depends on an element that was looked up (ix_looks_up()). */
int pl_leaf_looks_up(struct pl *pl, struct leaf *l);
/* The argument of v at idx where its condition, an expression of the index, is a constant there: of a WHERE the one
 * that is taken; NULL: it is not known, or v is no WHERE. */
struct val *pl_taken(struct pl *pl, const struct val *v, const struct ix *const *idx);
/* out[0..n-1] = map[] of v with its placeholders replaced by idx. */
void pl_map_index(struct pl *pl, const struct val *v, const struct ix *const *map, int n, const struct ix *const *idx,
	const struct ix **out);
/* What computing v at idx costs, in the units of pl_ops, without what is stored or reduced. */
int pl_cost(struct pl *pl, struct val *v, const struct ix *const *idx);
/* The same of operations alone whose index has one of these variables: others are computed once for all of their
 * values. */
int pl_cost_along(struct pl *pl, struct val *v, const struct ix *const *idx, const struct ix *const *var, int n);
