/* schedule.h - from what a kernel computes (struct kern) to how: struct loop, which print/ turns into text.
 *
 * Everything that is chosen is chosen here: what vectors run along, which template or library computes an anchor, what
 * stays in registers or scratch between passes, and the numbers of the launch.  The statements inside a loop are text
 * already (expr.c writes them), since whether an expression has a vector form is known once it is written. */
#pragma once

#include "policy/planner/planner.h"

struct loop {
	const struct ix_atom *lane; /* what vectors run along; NULL: nothing does */
	/* Of an anchor: */
	int form;                             /* which of its templates, by an enum of its file */
	int library;                          /* enum pl_library_facts */
	int width;                            /* cuda: elements along the lane that the template hands over at once */
	const struct ix *outer, *len, *inner; /* extents around the dimension that it runs along; outer: batches */
	const char *load, *store;             /* statements of its functors */
};

/* The variable of axis d of an anchor, made up where its size is 1. */
const struct ix_atom *pl_lane_of(struct pl *pl, struct kern *k, int d);
/* Merge axes from..to-1 of an anchor's index into one variable, and rewrite the output's index (and *idx, if given) to
 * use it. */
const struct ix_atom *pl_join(struct pl *pl, struct kern *k, int from, int to, const struct ix **idx);
/* A library's result can go where the kernel's would, since nothing follows. */
int pl_is_bare(const struct kern *k);
/* Product of the sizes from..to-1 of v. */
const struct ix *pl_sizes(struct pl *pl, const struct val *v, int from, int to);

/* functor.c: statements of a functor that a template calls with elements along loop->lane, the first at `start`: stores
 * the outputs, given the anchor's results (cpu: the vector "acc" of n, cuda: the array "acc" of N = loop->width), */
const char *pl_store_body(struct pl *pl, struct kern *k, const char *start);
/* or returns operand 0 at idx. */
const char *pl_load_body(struct pl *pl, struct kern *k, const char *start, const struct ix *const *idx);
