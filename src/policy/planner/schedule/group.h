/* group.h - shared by roots.c, axes.c and group.c, which decide which kernel computes which values. */
#pragma once

#include "policy/planner/graph/walk.h"
#include "policy/planner/planner.h"

/* New variables for v's index; the index is 0 in dimensions of size 1. */
void pl_own_vars(struct pl *pl, const struct val *v, const struct ix **idx);
enum { PL_MAX_ROOTS = 4096 };
/* Count, for every anchor, the roots that reach it; make the roots that anchors and splits demand. */
void pl_find_roots(struct pl *pl, struct val **todo, int n_todo);

/* The number of the reduction of kernel k that is r at idx, -1 where it does none such. */
int pl_red_known(const struct kern *k, const struct val *r, const struct ix *const *idx);
/* Replace variables v[] by e[] in all indices of k. */
void pl_subst_kern(struct pl *pl, struct kern *k, const struct ix_atom *const *v, const struct ix *const *e, int n);
/* siblings.c: cuda's row kernels over the same rows, which read the same or each other, become one. */
void pl_join_siblings(struct pl *pl);
/* Merge neighbouring axes of k that every access steps through as one. */
void pl_merge_axes(struct pl *pl, struct kern *k);
/* Where elements along an axis are computed of each other (val.chain: the states of a recurrence that is written out,
 * stacked): leave the axis out, and store all of them at each place. */
void pl_unroll(struct pl *pl, struct kern *k);
/* Where offsets have quotients and remainders of the last row (windows that were unfolded, axes that were joined behind
 * a transposition), by sizes of half a vector and more, on cuda of whole vectors: make two axes of it. */
void pl_split_lane(struct pl *pl, struct kern *k);
