/* val.h - values: tensors of the graph as functions from an index to a number. */
#pragma once

#include "policy/planner/build.h"

enum pl_op {
#define OP(name, ...) OP_##name,
#include "policy/planner/graph/ops.def"
	OP_COUNT
};

struct pl_op_info {
	const char *name;
	int cost;
	const char *scalar, *vec, *intg;
	int boolean;
};
extern const struct pl_op_info pl_ops[OP_COUNT];

/* RED_LOGSUMEXP: of scans on cuda alone (pl_scan()) */
enum pl_red { RED_SUM, RED_PROD, RED_MAX, RED_MIN, RED_ARGMAX, RED_ARGMIN, RED_LOGSUMEXP, RED_COUNT };
extern const char *const pl_red_names[RED_COUNT];

/* RED of a row kernel: of all elements up to a column, or from it on, for each column (anchor.h, pl_scan_in_row()). */
enum pl_scans { SCANS_NOT, SCANS_ON, SCANS_BACK };

enum vkind {
	V_BUF,    /* an input or a parameter, at its strides */
	V_CONST,  /* one number */
	V_INDEX,  /* the value of an index expression over its dimensions (arange, masks) */
	V_OP,     /* pointwise; arguments have the same shape or are constants */
	V_VIEW,   /* another index of the argument; fill where `cond` is 0 */
	V_GATHER, /* argument 0 with the index of dimension `dim` replaced by the value of argument 1 */
	V_RED,    /* over the last `nred` dimensions of the argument */
	V_ANCHOR  /* output of an anchor */
};

struct buf;
struct anchor;
struct gnode;
struct segment;

/* What a concatenation is made of: piece i lies from at[i] on. */
struct pieces {
	int n, dim;
	struct val *v[16];
	const struct ix *at[17];
};

struct val {
	int id;
	enum vkind kind;
	int dt; /* enum ww_dtype, as PyTorch would have it */
	int rank;
	const struct ix *size[PL_MAX_RANK];
	struct val *arg[PL_MAX_ARGS];
	int n_arg;
	enum pl_op op;
	double f;                          /* CONST */
	const char *given;                 /* CONST: the name of the numbers that a template passes */
	struct val *softmax_of;            /* it is the softmax of this along the last dimension */
	struct val *picked_of, *picked_as; /* its argument has elements of the first, sorted as the second, in fp32 */
	int64_t i;                         /* CONST of an integer type */
	const struct ix *index;            /* INDEX, over place[] */
	const struct ix *map[PL_MAX_RANK]; /* VIEW: index of each dimension of arg[0], over place[] */
	const struct ix *cond;             /* VIEW: NULL, or 0/1 over place[] */
	double fill;
	int nearest; /* VIEW: the nearest element of arg[0] may stand for the fill (a window's maximum has it already) */
	int dim;     /* GATHER */
	enum pl_red red;
	int nred;
	enum pl_scans scans;
	struct anchor *anchor;
	int anchor_out;
	struct pieces *pieces;   /* it is a concatenation of these */
	int last;                /* stored channels-last: dimension 1 innermost */
	int chain;               /* 1 + the dimension along which each element is computed of the one before; 0: none */
	int force_root;          /* must be stored: a part of a split reduction, an operand of an anchor */
	struct buf *root;        /* where it is stored, once it is */
	struct segment *segment; /* BUF: the operators in PyTorch that write it; NULL: a kernel does */
	int scheduled;
	int passes;           /* RED: how many loops over elements, of other roots or reductions, need it */
	struct gnode *node;   /* whose rule made it; NULL: an input, a parameter */
	int result;           /* an operator returns it or a view of it */
	int power;            /* 1 + what pl_power() says; 0: not known yet */
	int exponent;         /* an exponential is taken of what it is a part of, element by element */
	struct val *batch[2]; /* its channels' mean and reciprocal deviation, where a batch norm took them */
	double batch_eps;
};

enum bkind { B_INPUT, B_PARAM, B_OUTPUT, B_SCRATCH };

struct buf {
	enum bkind kind;
	int index;         /* input, output, scratch number */
	const char *pname; /* of a parameter: its dotted name */
	const char *name;  /* C identifier, the same in plan.c and in the kernels */
	const char *why;   /* SCRATCH: why the value is stored; NULL: a rule of lowering stores it */
	int dt, rank;
	const struct ix *size[PL_MAX_RANK], *stride[PL_MAX_RANK];
	struct buf *of;      /* it is a part of this one, of the same name, */
	const struct ix *at; /* and begins with this element; NULL: it is none */
	int again;           /* a part that a kernel reads: its stores do not go around the caches */
	int contiguous;
	int used;
	struct val *val; /* for inputs and parameters */
};

/* ---- Construction (val.c) ---------------------------------------------------------------------------------------- */

struct val *pl_val(struct pl *pl, enum vkind kind, int dt, int rank, const struct ix *const *size);
struct val *pl_constf(struct pl *pl, int dt, double f);
struct val *pl_consti(struct pl *pl, int dt, int64_t i);
struct val *pl_op1(struct pl *pl, enum pl_op op, struct val *a);
struct val *pl_op2(struct pl *pl, enum pl_op op, struct val *a, struct val *b);
struct val *pl_where(struct pl *pl, struct val *c, struct val *a, struct val *b);
struct val *pl_cast(struct pl *pl, struct val *a, int dt);
struct val *pl_expand(struct pl *pl, struct val *a, int rank, const struct ix *const *size);
struct val *pl_permute(struct pl *pl, struct val *a, const int *perm);
struct val *pl_reshape(struct pl *pl, struct val *a, int rank, const struct ix *const *size);
/* idx[from..to-1], of dimensions of these sizes, as one index. */
const struct ix *pl_ravel(struct pl *pl, const struct ix *const *idx, const struct ix *const *size, int from, int to);
struct val *pl_slice(
	struct pl *pl, struct val *a, int dim, const struct ix *start, const struct ix *size, int64_t step);
struct val *pl_select(struct pl *pl, struct val *a, int dim, const struct ix *at);
struct val *pl_unsqueeze(struct pl *pl, struct val *a, int dim);
struct val *pl_squeeze(struct pl *pl, struct val *a, int dim);
struct val *pl_index(struct pl *pl, int dt, int rank, const struct ix *const *size, const struct ix *over_place);
/* Reduce the dimensions whose bit is set in mask. */
struct val *pl_reduce(struct pl *pl, enum pl_red red, struct val *a, unsigned mask, int keepdim);
/* The same in equal parts or in none: of a value whose place is wanted, too (an argmax has no parts, and one kernel has
 * both), and of what several kernels more would not repay. */
struct val *pl_reduce_beside(struct pl *pl, enum pl_red red, struct val *a, unsigned mask, int keepdim);
/* v behind the views from `from` to `to`, whose argument it stands in for. */
struct val *pl_same_views(struct pl *pl, const struct val *from, const struct val *to, struct val *v);
/* cuda, of a sum that is or should be computed in parts: the sum of squared differences from the mean, which reads the
 * elements once; *sum becomes the sum of the same parts.  NULL: the sum is not computed in parts. */
struct val *pl_centred_parts(struct pl *pl, struct val **sum);
struct val *pl_view(struct pl *pl, struct val *a, int rank, const struct ix *const *size, const struct ix *const *map);
/* View with a condition: fill where it is 0. */
struct val *pl_view_if(struct pl *pl, struct val *a, int rank, const struct ix *const *size,
	const struct ix *const *map, const struct ix *cond, double fill);
const struct ix *pl_numel(struct pl *pl, const struct val *a);
int pl_is_float(int dt);
int pl_is_half(int dt); /* float16 or bfloat16 */
int pl_is_int(int dt);
int pl_itemsize(int dt);
int pl_promote(int a, int b);
struct buf *pl_buf(struct pl *pl, enum bkind kind, int dt, int rank, const struct ix *const *size);
/* The offset of the element at idx, in elements. */
const struct ix *pl_offset(struct pl *pl, const struct buf *b, const struct ix *const *idx);
void pl_contiguous(struct pl *pl, int rank, const struct ix *const *size, const struct ix **stride);
/* Strides with dimension 1, the channels, innermost. */
void pl_channels_last(struct pl *pl, int rank, const struct ix *const *size, const struct ix **stride);
/* How many elements at the traced sizes. */
int64_t pl_numel_now(const struct val *a);
int64_t pl_buf_numel(const struct buf *b);
int64_t pl_buf_bytes(const struct buf *b);
/* Does an index of a view go on by one where place d does?  Dimensions that were joined (pixels of a product) do by the
 * last of them. */
int pl_goes_by_one(struct pl *pl, const struct ix *map, int d);
/* Is v contiguous along dimension d by at least one operand, as far as is known before anything is stored? */
int pl_is_innermost(struct pl *pl, const struct val *v, int d);
/* The same for the largest operand alone. */
int pl_most_along(struct pl *pl, const struct val *v, int d);
/* Is v computed of two tensors of its size or more that memory runs along different dimensions of? */
int pl_lies_both_ways(struct pl *pl, const struct val *v);
const char *pl_node_name(const struct val *v); /* for messages; "?" where no node made it */
/* To which power of the task's inputs v grows (lower/power.c): 0 of parameters, and within bounds. */
int pl_power(struct val *v);
