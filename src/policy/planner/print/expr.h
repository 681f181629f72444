/* expr.h - writes the C expression of a value at an index. */
#pragma once

#include "policy/planner/print/number.h"

/* A piece of C: its text, whether it is a vector, and the loop level where it is available (1 row, 2 column). */
struct etext {
	const char *t;
	int vec, level;
};

/* What has been written: the value, or the load of a buffer, at this index has this text. */
struct ememo {
	const struct val *val; /* NULL: a load of buf */
	const struct buf *buf;
	int n;
	const struct ix *idx[PL_MAX_RANK];
	struct etext text;
	int scope;
	struct ememo *next;
};

/* cuda: a vector load that is done before the loop over the lanes.  cpu: a load that an earlier pass has done. */
struct vload {
	const struct buf *buf;
	const struct ix *base; /* offset with the lane variable at the vector's first element */
	const char *name;
	int stage;              /* the first stage that needs it */
	const struct ix *cond;  /* cuda: the load's condition, the same for a whole vector; NULL: none */
	int one;                /* functors: it loads one element, the same for all lanes */
	int apart;              /* elements from lane to lane, all of which are loaded; 0: one */
	const struct ix *which; /* apart: the number of the one that a lane takes, below `apart` */
	int repeats;            /* neighbouring lanes that share an element, a power of two; 0: each has its own */
	const struct ix *whole; /* repeats: what vectors have to divide in place of the base (pl_divided()) */
	int any;                /* it may begin anywhere: its elements are loaded one by one */
	const struct ix *step;  /* functors: elements from lane to lane, loaded one by one; NULL: one */
	int once;               /* cuda: the first of what the second level replaces (schedule/once.c) */
};

/* What whole vectors of load v have to divide. */
static inline const struct ix *pl_divided(const struct vload *v) { return v->repeats ? v->whole : v->base; }

struct expr {
	struct pl *pl;
	struct kern *k;
	int vec;          /* cpu: emit vectors along `lane` */
	int by_lane;      /* cpu: scalars, inside a loop over the lanes of a vector */
	const char *mask; /* cpu: name of the mask of lanes for which the enclosing condition holds; NULL: all */
	int cuda_vec;     /* cuda: unit-stride loads along `lane` are collected in vload[] */
	int down;         /* cuda: a thread is a row; of these loads only those that change with the column */
	const struct ix_atom *lane;
	struct ww_str *block[3]; /* 1: row level, 2: inside the column loop */
	struct ememo *bucket[128];
	struct vload vload[64];
	int n_vload;
	const char *vload_index; /* "[l]" or "[j * V + l]" */
	int across;              /* cuda, functors: what lies across the lanes is loaded ahead, too */
	int stage;
	const struct val *bound[64]; /* values whose text the caller gives, the same at any index */
	struct etext bound_text[64];
	int n_bound;
	const struct ix *red_text_idx;
	struct etext red_text[64]; /* of k->red[i], once computed */
	int red_done[64];
	int n_temp;
	int scope, scope_level;
	/* cuda: of the innermost loop of a reduction around the current position, its variable and scope; NULL: none */
	const struct ix_atom *window;
	int window_scope;
	int walks;             /* depth of loops of reductions around the current position */
	const struct ix *cond; /* cuda: product of the scopes' conditions, if all are for whole vectors; else NULL */
	const char *inside; /* cuda: where views' conditions hold for all columns of a row, "" at first; NULL: not asked */
	int need_scalar;    /* set: the expression has no vector form */
	struct val *self;   /* the value to compute, although it is stored */
};

int pl_has_lane(const struct expr *e, const struct ix *x); /* does x depend on e->lane? */
void pl_expr_init(struct expr *e, struct pl *pl, struct kern *k);
struct etext pl_expr(struct expr *e, struct val *v, const struct ix *const *idx);
/* cpu: the integers v at idx as a ww_vi along the lane (vec), or as one number that all lanes share.  They are below
 * `end`.  Text NULL: they have no vector form, and need_scalar is set. */
struct etext pl_places(struct expr *e, struct val *v, const struct ix *const *idx, int64_t end);
/* The text of a condition: a product of comparisons becomes a chain of &&. */
const char *pl_cond_text(struct pl *pl, const struct ix *x);
/* Is it a size, or computed from sizes alone (size / 2, where a gate begins)?  Such a factor can be written in plan.c.
 */
int pl_is_size(struct pl *pl, const struct ix_atom *a);
/* The value of `lane` at which a comparison of lane + offset with a bound changes; NULL: it has another form. */
const struct ix *pl_lane_bound(struct pl *pl, const struct ix_atom *compared, const struct ix_atom *lane);
/* cpu: is a loop of this extent inside the vector loop unrolled, so that neighbouring windows share loads? */
int pl_unrolls(const struct ix *extent);
/* Record the text of v at idx, which the caller has computed. */
void pl_expr_known(struct expr *e, const struct val *v, const struct ix *const *idx, struct etext t);
/* Forget what was computed inside the column loop. */
void pl_expr_forget(struct expr *e, int level);
void pl_kern_arg(struct pl *pl, struct kern *k, struct buf *b);
