/* planner.h - inside of the planner: one build turns a graph into the text of kernels.* and plan.c.
 *
 *   graph/graph.c     graph JSON           -> struct gnode (arguments resolved, nothing interpreted)
 *   lower/            gnode                -> struct val: pointwise operations, views, reductions, anchors (GEMM, ...)
 *   graph/val.c       construction of values, over index expressions (ix.c); walk.c: what a value reads
 *   schedule/group.c  values               -> struct kern: which values one kernel computes, over which index space
 *   schedule/siblings.c  row kernels that read the same rows -> one
 *   schedule/hoist.c  a reduction to store -> the value to store in its place
 *   schedule/loop.c   kern                 -> struct loop: lane, passes, statements, numbers of the launch
 *   schedule/share.c  two kernels that do the same to other buffers -> one
 *   anchor/           a file or a folder for each kind of anchor: its facts, schedule and text
 *   print/            loop                 -> kernels.*, plan.c; expr.c: a value at an index -> C expressions
 *   search.c          verdicts             -> which knobs to try next
 *   proposal.c        a model's answer     -> its files, and how far a build's text is from them
 *   planner.c         messages             -> the next message
 */
#pragma once

#include "policy/planner/anchor/anchor.h"
#include "policy/planner/graph/graph.h"
#include "policy/planner/graph/val.h"

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* What one kernel has at an element of `theirs` the other one has so many elements on in `mine`. */
struct buf_pair {
	struct buf *theirs, *mine;
	const struct ix *offset; /* without variables */
};

enum kkind { K_POINT, K_ROW, K_ANCHOR, K_PYTORCH /* no kernel: a segment that PyTorch runs */ };

struct kern {
	enum kkind kind;
	int id;                          /* its number: "k3" is 3 */
	const char *name, *what, *title; /* "k0", "gemm", "gemm: linear, gelu": the graph nodes that are fused in it */
	const char **node;               /* those nodes */
	int n_node;
	int n_row, n_col;
	const struct ix_atom *row[PL_MAX_RANK], *col[PL_MAX_RANK];
	int n_ocol;                         /* the columns as the reductions count them, */
	const struct ix *ocol[PL_MAX_RANK]; /* over col[], which may be fewer after merging */
	int n_out;
	struct val *out[PL_MAX_STORES]; /* the same one several times: at indices whose elements share work */
	const struct ix *out_idx[PL_MAX_STORES][PL_MAX_RANK]; /* over row and col */
	int n_red;                                            /* K_ROW, in order of evaluation */
	struct val *red[64];
	const struct ix *red_idx[64][PL_MAX_RANK];
	int red_stage[64];
	int n_stage;
	struct anchor *anchor;
	struct segment *segment;                  /* K_PYTORCH */
	const struct ix *anchor_idx[PL_MAX_RANK]; /* K_ANCHOR: the anchor's own index, variables or 0 */
	/* what the emitters decide and plan.c needs */
	struct buf *arg[64];
	const struct ix *arg_at[64]; /* elements of it that are left out; NULL: none */
	int n_arg;
	struct loop *loop;           /* schedule/schedule.h */
	const char *launch;          /* text of plan.c that adds the nodes */
	const struct kern *shared;   /* the kernel whose text this one uses, or NULL, */
	const struct buf_pair *pair; /* and its buffers, or parts of them, in place of that one's */
	int n_pair;
};

/* ---- roots.c, axes.c, group.c */
/* Give v a buffer, if it has none: from now on it is read from memory. */
void pl_make_root(struct pl *pl, struct val *v);
/* The same, with the reason for explain.c.  A 16-bit value that no operator returns is stored as fp32;
 * pl_store_as_typed() keeps its type, for templates that read memory by type. */
void pl_store_because(struct pl *pl, struct val *v, const char *why);
void pl_store_as_typed(struct pl *pl, struct val *v, const char *why);
void pl_anchor_operands(struct pl *pl, struct anchor *s);
void pl_group(struct pl *pl);
/* Kernel k stores v at its own index, and does nothing else: one element after the other, or in tiles. */
void pl_becomes_points(struct pl *pl, struct kern *k, struct val *v);

/* ---- pieces.c */
/* What a kernel of its own stores only to be concatenated is stored where the concatenation has it. */
void pl_store_pieces(struct pl *pl);

/* ---- hoist.c */
/* May v be stored in place of `red`? */
typedef int (*pl_storable_fn)(struct pl *pl, struct val *v, struct val *red);
/* `red`, a reduction or the result of an anchor that `top` at idx needs, must be stored: the value to store in its
 * place, or red itself.  `self` is being computed by the caller and is never the answer.  storable: what else must hold
 * of the value, or NULL. */
struct val *pl_store_for(struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *red,
	pl_storable_fn storable);

/* ---- print/ */
/* Offsets of the loads that kernel k does, with their buffers; returns how many. */
int pl_kern_loads(struct pl *pl, struct kern *k, const struct ix **off, struct buf **buf, int max);
/* The same, and the loads of reductions that are computed inside an expression. */
int pl_all_loads(struct pl *pl, struct kern *k, const struct ix **off, struct buf **buf, int max);
/* axes.c: how many of the loads change with its rows and not with `lane`: a bias, a row's statistics. */
int pl_reads_of_rows(struct pl *pl, struct kern *k, const struct ix_atom *lane);
/* axes.c: the largest size that off takes a quotient or a remainder of v by, and that divides v's extent, or NULL. */
const struct ix *pl_axis_divisor(const struct ix *off, const struct ix_atom *v);
/* axes.c: row i of k becomes two, quotients of it by d, and remainders. */
void pl_split_axis(struct pl *pl, struct kern *k, int i, const struct ix *d);
/* axes.c: rows i and i + 1 of k become one; what does not step through both as through one has quotients of it. */
void pl_join_axes(struct pl *pl, struct kern *k, int i);
enum { PL_LONG_ROW = 768 /* vectors of a row that a block stays in, at least */ };
const struct ix *pl_of_var(struct pl *pl, const struct ix_atom *v);
const struct knobs *pl_knobs(struct pl *pl, int kernel);
/* cuda: do so many values of each column fit the registers of the threads that share a row of what lies across? */
int pl_fits_down(const struct pl *pl, int64_t rows, int64_t cols, int values);
/* The search's trial in which everything is plain: no vectors, general templates, no library. */
int pl_all_plain(const struct pl *pl);
/* The search's trial in which convolutions run channels-last. */
int pl_all_last(const struct pl *pl);
/* cuda: launches overlap (ww_pdl_all()), so each kernel waits first. */
int pl_overlap(const struct pl *pl);

/* explain.c: what was decided and why, a new reference. */
json_t *pl_explain(struct pl *pl);

/* ---- build.c */
struct pl_result {
	int ok;
	json_t *explained;             /* pl_explain(), where options ask for it */
	char *device_text, *plan_text; /* malloc'ed */
	char why[600];                 /* not ok: one line, which names the operator */
	int n_kern;
	double order_us; /* cuda: pl_order_us() */
	int can_overlap; /* a launch may begin before the one ahead of it has ended */
	int n_own;       /* kernels that compute an operator of the graph, and not only copy what PyTorch gave */
	char kern_title[64][120];
	char *kern_nodes[64]; /* the graph nodes that it computes, "linear, gelu"; malloc'ed */
	enum kkind kern_kind[64];
	int kern_spec[64];    /* enum anchor_kind or -1 */
	int kern_library[64]; /* enum pl_library_facts */
};
/* How to plan, whatever the knobs. */
struct pl_options {
	int no_algebra; /* no rewrite that holds for real numbers only: pl_algebra() */
	int explain;
	int own;          /* never leave an operator to PyTorch that a rule covers, however slow */
	const char *left; /* graph nodes that PyTorch runs, as kern_nodes has them; no kernel of ours need remain then */
};
/* Build a solution for a graph; options may be NULL.  Never fails with an error: not ok says why. */
void ww_pl_build(const json_t *graph, const json_t *device, const char *target, const struct knobs *knobs, int n_knobs,
	const struct pl_options *options, struct pl_result *out);
/* Is there a rule for this operator ("aten.add.Tensor")?  Its arguments may still be outside of what the rule covers.
 */
int ww_pl_has_rule(const char *op);
void ww_pl_result_release(struct pl_result *r);
