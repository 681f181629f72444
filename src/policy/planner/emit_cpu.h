/* emit_cpu.h - what the parts of the cpu emitter share. */
#pragma once

#include "policy/planner/print/expr.h"

#include <stdlib.h>

/* Local pointers for the kernel's buffers: from the launch's arguments ("arg") or from a context ("c"). */
void pl_cpu_pointers(struct pl *pl, struct kern *k, struct ww_str *s, const char *from);
const char *pl_plan_buf(struct pl *pl, const struct buf *b);
/* The ww_arg_buf() lines of a launch. */
const char *pl_plan_args(struct pl *pl, struct kern *k, const char *tabs);
void pl_decode(struct pl *pl, struct ww_str *s, const char *tabs, const char *type, const struct ix_atom *const *axis,
	int n, const char *lin);
const struct ix *pl_extent(struct pl *pl, const struct ix_atom *const *axis, int n);
const char *pl_indent(struct pl *pl, const char *text, int tabs);
/* Merge axes from..to-1 of an anchor's index into one variable, and rewrite the output's index (and *idx, if given) to
 * use it. */
const struct ix_atom *pl_join(struct pl *pl, struct kern *k, int from, int to, const struct ix **idx);
/* Declarations of the anchor's axes from..to-1 from the linear number `lin`. */
void pl_axes(struct pl *pl, struct kern *k, struct ww_str *s, int from, int to, const char *lin);
/* The variable of axis d of an anchor, made up where its size is 1. */
const struct ix_atom *pl_lane_of(struct pl *pl, struct kern *k, int d);
const char *pl_bytes(struct pl *pl, const struct operand *o);
void pl_cpu_stores(struct expr *e, struct kern *k, int level);
/* Do the outputs of a row kernel depend on its columns? */
int pl_cpu_stores_per_column(struct kern *k);
/* struct NAME with a pointer for each buffer; its initialiser from the launch's arguments after the first `first`. */
void pl_cpu_context(struct pl *pl, struct kern *k, struct ww_str *s);
const char *pl_cpu_context_init(struct pl *pl, struct kern *k, const char *first);
/* A functor: its head, the pointers out of its context, more declarations, its statements. */
void pl_cpu_functor(
	struct pl *pl, struct kern *k, struct ww_str *s, const char *head, const char *decl, const char *body);
/* Kernel k by a skeleton of the cookbook; 0, and nothing written, where none fits: emit_cpu_rows.c. */
int pl_cpu_row_skeleton(struct pl *pl, struct kern *k, struct ww_str *s);
/* Values that a row kernel computes in pass `stage` and leaves in its scratch for later ones: emit_cpu_keep.c.  Fills
 * kept[], which has room for max + 1, and returns how many. */
struct pl_cached {
	struct val *val;
	const struct ix *idx[PL_MAX_RANK];
	int stage;
};
int pl_cpu_keep(struct pl *pl, struct kern *k, const struct ix_atom *lane, struct pl_cached *kept, int max);
/* GEMM, convolution, attention and scan: emit_cpu_anchor.c. */
void pl_cpu_anchor(struct pl *pl, struct kern *k, struct ww_str *s);
