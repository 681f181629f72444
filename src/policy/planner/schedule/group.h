/* group.h - shared by roots.c, collect.c, space.c, axes.c and group.c, which decide which kernel computes which values.
 */
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

/* ---- group.c ----------------------------------------------------------------------------------------------------- */

/* Have v, which must be in memory, and what it needs, computed by kernels: each value once. */
void pl_group_value(struct pl *pl, struct val *v);
/* Can a kernel of s end in v, which reads its result: is v's element a function of the one at its position? */
int pl_ends_in(struct pl *pl, struct val *v, struct anchor *s);
/* What to store where `top` at idx, the only reader, needs an anchor's result: what ends the anchor, or the result. */
struct val *pl_end_of(
	struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *result);

/* ---- collect.c --------------------------------------------------------------------------------------------------- */

enum { PL_LARGE_WINDOW = 16 /* elements, beyond which a thread would wait for too many loads in turn */ };

/* Collect the reductions that v at idx needs in kernel k (NULL: a pointwise kernel); what does not fit becomes a root.
 * self: the value that is computed.  Returns the stage after which v can be computed. */
int pl_collect(struct pl *pl, struct kern *k, struct val *self, struct val *v, const struct ix *const *idx, int depth);
/* Can the reduction, needed at the leaf's index, be done by the row of kernel k, for every row, whatever conditions
 * stand around it?  Guards what has to hold for it. */
int pl_red_fits(struct pl *pl, struct kern *k, const struct leaf *l);
/* The number of the reduction of k that is at leaf l, -1: none. */
int pl_leaf_known(const struct kern *k, const struct leaf *l);
/* How often `reader` at idx, whose leaves are w's, computes reduction r: once an element, or once along the last
 * dimension if r's index does not change with it (cuda: once a thread of four elements). */
double pl_times_computed(
	const struct walk *w, const struct val *r, const struct val *reader, const struct ix *const *idx);
/* cuda: do windows of neighbouring results overlap or touch along memory, and lie at most two elements apart?  Then a
 * thread that does several results shares loads, or lines, among them. */
int pl_adjoins(struct pl *pl, const struct val *r);
/* Is r done inside the expression of `reader` at idx, whose leaves are w's, and not stored? */
int pl_inline_red(
	struct pl *pl, const struct walk *w, const struct val *r, const struct val *reader, const struct ix *const *idx);
/* The same of what v needs at its own index. */
int pl_may_inline(struct pl *pl, struct val *v, const struct val *r);
/* Does r on the spot, its index the first of src[], need nothing but loads?  They are in memory then. */
int pl_plain_red(struct pl *pl, struct val *self, struct val *r, const struct ix **src);
/* Why something is stored: what pl_store_because() is told. */
extern const char PL_OTHER_ROWS[];
const char *pl_apart_from_reader(struct pl *pl, const struct anchor *s);
/* The first reduction that v needs and that is not stored, from leaf l on; that v at idx needs.  NULL: none. */
struct leaf *pl_next_red(struct leaf *l, const struct val *v);
struct leaf *pl_first_red(struct pl *pl, struct val *v, const struct ix *const *idx);

/* ---- space.c ----------------------------------------------------------------------------------------------------- */

/* idx of v for the position whose index in `like` is at[]: same number of elements, row-major order. */
void pl_same_position(
	struct pl *pl, const struct val *v, const struct val *like, const struct ix *const *at, const struct ix **idx);
void pl_add_row(struct kern *k, const struct ix *var);
/* The columns are those of the kernel as planned (k->ocol), too. */
void pl_set_columns(struct pl *pl, struct kern *k);
/* The index space of a pointwise kernel: v at idx, one element for each. */
void pl_point_space(struct pl *pl, struct kern *k, struct val *v, const struct ix *const *idx);
/* Rows are what the reduction v leaves, columns what it runs over; v itself comes after whatever it needs. */
void pl_reduction_space(struct pl *pl, struct kern *k, struct val *v, const struct ix *const *idx);
/* A space in which the first reduction from *l on stands on rows; *l becomes that one, idx[] v's index in it.  0: there
 * is none. */
int pl_finds_space(struct pl *pl, struct kern *k, struct val *v, struct leaf **l, const struct ix **idx);
/* Has r a result for each element of v, of a few of its own (a pool)? */
int pl_is_window(const struct val *r, const struct val *v);
