/* expr.h - values at an index, as C. */
#pragma once

#include "policy/planner/print/number.h"

/* A piece of C: its text, whether it is a vector, and the loop level where it is available (1 row, 2 column). */
struct etext {
	const char *t;
	int vec, level;
};

struct ememo {
	const struct val *val; /* NULL: a load of buf */
	const struct buf *buf;
	int n;
	const struct ix *idx[PL_MAX_RANK];
	struct etext text;
	int scope;
	struct ememo *next;
};

/* A whole-vector load of the cuda emitter, done before the loop over the lanes; on the cpu: a load that an earlier pass
 * did. */
struct vload {
	const struct buf *buf;
	const struct ix *base; /* offset with the lane variable at the vector's first element */
	const char *name;
	int stage;             /* where it was first needed */
	const struct ix *cond; /* cuda: what must hold for it, the same for a whole vector; NULL: nothing */
	int one;               /* a functor's: one element, the same for all lanes */
};

struct expr {
	struct pl *pl;
	struct kern *k;
	int vec;          /* cpu: emit vectors along `lane` */
	int by_lane;      /* cpu: inside a loop over the lanes of a vector */
	const char *mask; /* cpu: the lanes for which a condition around the expression holds; NULL: all */
	int cuda_vec;     /* cuda: unit-stride loads along `lane` are collected in vload[] */
	const struct ix_atom *lane;
	struct ww_str *block[3]; /* 1: row level, 2: inside the column loop */
	struct ememo *bucket[128];
	struct vload vload[64];
	int n_vload;
	const char *vload_index; /* "[l]" or "[j * V + l]" */
	int stage;
	const struct val *bound[64]; /* values whose text is given, at any index */
	struct etext bound_text[64];
	int n_bound;
	const struct ix *red_text_idx;
	struct etext red_text[64]; /* of k->red[i], once computed */
	int red_done[64];
	int n_temp;
	int scope, scope_level;
	int walks;             /* how many reductions inside the expression surround it */
	const struct ix *cond; /* cuda: of the scopes, as long as all are conditions on whole vectors; NULL: others */
	int need_scalar;       /* a vector form does not exist */
	struct val *self;      /* the value to compute, although it is stored */
};

int pl_has_lane(const struct expr *e, const struct ix *x); /* does x depend on e->lane? */
void pl_expr_init(struct expr *e, struct pl *pl, struct kern *k);
struct etext pl_expr(struct expr *e, struct val *v, const struct ix *const *idx);
/* A product of comparisons as a chain of &&. */
const char *pl_cond_text(struct pl *pl, const struct ix *x);
/* Is it a size, or computed from sizes alone (half of one, where a gate begins)?  plan.c can write such a factor. */
int pl_is_size(struct pl *pl, const struct ix_atom *a);
/* The value of `lane` at which a comparison changes; NULL: it does not compare lane, plus an offset, with a bound. */
const struct ix *pl_lane_bound(struct pl *pl, const struct ix_atom *compared, const struct ix_atom *lane);
/* cpu: is a loop over so many, next to the lane, unrolled, so that its windows share loads? */
int pl_unrolls(const struct ix *extent);
/* Tell e the text of v at idx, which has been computed. */
void pl_expr_known(struct expr *e, const struct val *v, const struct ix *const *idx, struct etext t);
/* Forget what was computed inside the column loop. */
void pl_expr_forget(struct expr *e, int level);
void pl_kern_arg(struct pl *pl, struct kern *k, struct buf *b);
