/* planner.h - inside of the planner: one build turns a graph into the text of kernels.* and plan.c.
 *
 *   graph/graph.c   graph JSON            -> struct gnode (arguments resolved, nothing interpreted)
 *   lower/          gnode                 -> struct val: pointwise operations, views, reductions, "anchors" (GEMM, ...)
 *   graph/val.c     construction of values, over index expressions (ix.c); walk.c: what a value reads
 *   group.c         values                -> struct kern: which values one kernel computes, over which index space
 *   hoist.c         a reduction to store  -> the value to store in its place
 *   print/expr.c    value at an index     -> C expressions
 *   emit_*.c        kern                  -> device code, plan code
 *   share.c         two kernels with one text -> one
 *   search.c        verdicts              -> which knobs to try next
 *   planner.c       messages              -> the next message
 */
#pragma once

#include "policy/planner/graph/graph.h"
#include "policy/planner/graph/val.h"

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

enum anchor_kind { S_GEMM, S_CONV, S_ATTN, S_SCAN, S_RNN, S_COUNT };
enum pl_cell { CELL_TANH, CELL_RELU, CELL_GRU, CELL_LSTM }; /* numbered as in <ww/rnn.cuh> and <ww/cpu/rnn.h> */

/* A strided operand of an anchor: element (idx) lies at base + sum idx*stride of a buffer. */
struct operand {
	struct val *val; /* what it is; stored by the time the anchor runs */
	struct buf *buf;
	const struct ix *offset, *stride[PL_MAX_RANK];
};

struct anchor {
	enum anchor_kind kind;
	int id;
	const char *node, *what;
	struct operand in[5];
	int n_in;
	struct val *out;
	/* GEMM: out (batch..., m, n) = a (batch..., m, k) b (batch..., k, n); ATTN: q, k, v; CONV: x, w */
	const struct ix *k; /* GEMM: inner size; ATTN: keys; RNN: steps */
	int nbatch;         /* leading dimensions */
	double scale;       /* ATTN */
	int causal;
	int has_bias, reverse;      /* RNN */
	int nd, transposed, groups; /* CONV */
	int64_t stride[3], pad[3], dil[3], opad[3];
	const struct ix *x_size[5], *w_size[5];
	int library_only;  /* CONV: no template of ours computes it */
	enum pl_cell cell; /* RNN: gx, w, h0, bias where it has one, c0 of LSTM */
	enum pl_red red;   /* SCAN: RED_SUM or RED_PROD along the last dimension */
	int consumers;     /* roots that read it */
	int fused;         /* done inside a consumer's kernel */
	int scheduled;
};

enum kkind { K_POINT, K_ROW, K_ANCHOR };

struct kern {
	enum kkind kind;
	int id;                          /* its number: "k3" is 3 */
	const char *name, *what, *title; /* "k0", "gemm", "gemm: linear, gelu": the graph nodes that are fused in it */
	int n_row, n_col;
	const struct ix_atom *row[PL_MAX_RANK], *col[PL_MAX_RANK];
	int n_ocol;                         /* the columns as the reductions count them, */
	const struct ix *ocol[PL_MAX_RANK]; /* over col[], which may be fewer after merging */
	int n_out;
	struct val *out[PL_MAX_OUTS];
	const struct ix *out_idx[PL_MAX_OUTS][PL_MAX_RANK]; /* over row and col */
	int n_red;                                          /* K_ROW, in order of evaluation */
	struct val *red[64];
	const struct ix *red_idx[64][PL_MAX_RANK];
	int red_stage[64];
	int n_stage;
	struct anchor *anchor;
	const struct ix *anchor_idx[PL_MAX_RANK]; /* K_ANCHOR: the anchor's own index, variables or 0 */
	int lane_row;                             /* vectors run along the last row variable */
	/* what the emitters decide and plan.c needs */
	struct buf *arg[64];
	int n_arg;
	int library;                         /* cuda, of a product or convolution: enum pl_library_facts */
	const char *launch;                  /* text of plan.c that adds the nodes */
	const char *same_text, *same_launch; /* share.c: texts without the names that mean nothing */
	const char *shared;                  /* the kernel whose text this one uses, or NULL */
};

/* Knobs of one kernel; 0 is "let the emitter choose". */
struct knobs {
	int vec, unroll, block, tile, stage, alt;
	int library, choice; /* cuda, GEMM and CONV: enum pl_library; CONV: number of the library's algorithm */
};
/* Who computes an anchor that both a template and a library can.  FP32: without TF32, which PyTorch does not take
 * either for some shapes. */
enum pl_library { LIBRARY_AUTO, LIBRARY_NO, LIBRARY_YES, LIBRARY_FP32 };
/* A product or convolution of this build is the library's; can be nothing else; is tiled where it is ours. */
enum pl_library_facts { BY_LIBRARY = 1, LIBRARY_ONLY = 2, OURS_TILED = 4 };

/* ---- anchor.c */
struct val *pl_gemm(struct pl *pl, struct gnode *n, struct val *a, struct val *b);
struct val *pl_conv(struct pl *pl, struct gnode *n, struct val *x, struct val *w, int nd, const int64_t *stride,
	const int64_t *pad, const int64_t *dil, int transposed, const int64_t *opad, int64_t groups);
struct val *pl_attention(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v, struct val *mask,
	int causal, double scale);
struct val *pl_scan(struct pl *pl, struct gnode *n, struct val *x, int dim, enum pl_red red);
/* All steps of a recurrent layer: (steps, batch, hidden), for LSTM one slot more with the cells at the end.  gx is
 * (steps, batch, gates * hidden), w (gates * hidden, hidden), bias (may be NULL) is added to the product with the
 * state, h0 and c0 (LSTM) are (batch, hidden). */
struct val *pl_rnn(struct pl *pl, struct gnode *n, enum pl_cell cell, int reverse, struct val *gx, struct val *w,
	struct val *bias, struct val *h0, struct val *c0);

/* ---- roots.c, axes.c, group.c */
/* Give v a buffer, if it has none: from now on it is read from memory. */
void pl_make_root(struct pl *pl, struct val *v);
void pl_anchor_operands(struct pl *pl, struct anchor *s);
void pl_group(struct pl *pl);

/* ---- hoist.c */
/* Reduction `red`, which `top` at idx needs, must be stored: the value to store in its place, or red itself.  `self` is
 * being computed by the caller and is never the answer. */
struct val *pl_store_for(
	struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *red);

/* ---- share.c */
/* k has been written as `text` and its launch is known: 1 where an earlier kernel's text serves and the launch now
 * names that one. */
int pl_share_kernel(struct pl *pl, struct kern *k, const char *text);

/* ---- emit_*.c */
/* Offsets of the loads that kernel k does, with their buffers; returns how many. */
int pl_kern_loads(struct pl *pl, struct kern *k, const struct ix **off, struct buf **buf, int max);
const struct ix *pl_of_var(struct pl *pl, const struct ix_atom *v);
void pl_emit_cpu(struct pl *pl);
void pl_emit_cuda(struct pl *pl);
void pl_emit_plan(struct pl *pl);
const struct knobs *pl_knobs(struct pl *pl, int kernel);
/* The search's trial in which everything is plain: no vectors, general templates, no library. */
int pl_all_plain(const struct pl *pl);

/* ---- build.c */
struct pl_result {
	int ok;
	char *device_text, *plan_text; /* malloc'ed */
	char why[600];                 /* where not ok: one line, names the operator */
	int n_kern;
	char kern_title[64][120];
	enum kkind kern_kind[64];
	int kern_spec[64];    /* enum anchor_kind or -1 */
	int kern_library[64]; /* enum pl_library_facts */
};
/* Build a solution for a graph.  Never fails with an error: not ok says why. */
void ww_pl_build(const json_t *graph, const json_t *device, const char *target, const struct knobs *knobs, int n_knobs,
	struct pl_result *out);
/* Is there a rule for this operator ("aten.add.Tensor")?  Its arguments may still be outside of what the rule covers.
 */
int ww_pl_has_rule(const char *op);
void ww_pl_result_release(struct pl_result *r);
