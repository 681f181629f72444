/* lower.h - lowering: each node of an ATen graph becomes values.  What the rules of this folder share. */
#pragma once

#include "policy/planner/graph/graph.h"
#include "policy/planner/planner.h"

void pl_lower(struct pl *pl);
/* 1: the operator writes to its first operand, as "aten.relu_.default" does. */
int pl_in_place(const char *target);
/* pytorch.c: compute gnode.level of all operators; take the value of one operator from PyTorch; guards in plan.c that
 * hold the sizes to the traced ones. */
void pl_pytorch_levels(struct pl *pl);
void pl_by_pytorch(struct pl *pl, struct gnode *n);
void pl_pytorch_guards(struct pl *pl);
/* ww_fail() in plan.c, with this reason, for other sizes of inputs than the traced ones. */
void pl_guard_traced_sizes(struct pl *pl, const char *why);
typedef void (*pl_lower_fn)(struct pl *pl, struct gnode *n);
/* The new value of a view's argument, after v was assigned to the view. */
typedef struct val *(*pl_write_fn)(struct pl *pl, struct gnode *view, struct val *parent, struct val *v);
enum {
	PL_VIEW = 1,        /* its result shares the memory of argument 0 */
	PL_MAY_COPY = 2,    /* its result is such a view or a copy: only PyTorch knows which */
	PL_ARITHMETIC = 4,  /* an integer among its arguments may have been computed from a size */
	PL_CONVOLUTION = 8, /* also transposed */
};
/* How the result grows where the operands are large (power.c). */
enum pl_grows {
	GROWS_AS_LARGEST,  /* as the operand that grows most */
	GROWS_NOT,         /* within bounds, or as a logarithm */
	GROWS_AS_INPUTS,   /* normalised: as the task's inputs at most, whatever its operands */
	GROWS_IN_TRAINING, /* the same, unless argument 5 says that its statistics are given */
	GROWS_AS_FIRST,
	GROWS_AS_PRODUCT,
	GROWS_AS_SUM_WITH_PRODUCT, /* of its operands behind the first one */
	GROWS_AS_SQUARE,
	GROWS_AS_ROOT,
	GROWS_AS_POWER /* of argument 1 */
};
struct val *pl_write_slice(struct pl *pl, struct gnode *view, struct val *parent, struct val *v);
struct val *pl_write_select(struct pl *pl, struct gnode *view, struct val *parent, struct val *v);
struct val *pl_write_transpose(struct pl *pl, struct gnode *view, struct val *parent, struct val *v);
struct val *pl_write_reshape(
	struct pl *pl, struct gnode *view, struct val *parent, struct val *v); /* of the same elements */

struct pl_lower_row {
	const char *op; /* "max", or one overload: "max.dim"; in-place variants included */
	pl_lower_fn fn;
	int variant; /* tells fn which operator it lowers; fn reads it as n->variant */
	int flags;
	pl_write_fn write; /* of a PL_VIEW: assigns through it; NULL: such an assignment is refused */
	enum pl_grows grows;
};
#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* most rows end with fn */
extern const struct pl_lower_row pl_lower_shape[], pl_lower_resample[], pl_lower_point[], pl_lower_reduce[],
	pl_lower_nn[], pl_lower_rnn[], pl_lower_index[], pl_lower_order[], pl_lower_linalg[], pl_lower_create[];
/* power.c: n has its results; what pl_power() says of them follows from its operands. */
void pl_set_power(struct pl *pl, struct gnode *n);
struct garg *pl_arg(struct gnode *n, int i, const char *name);
struct val *pl_arg_val(struct pl *pl, struct gnode *n, int i, const char *name); /* NULL for None */
struct val *pl_need_val(struct pl *pl, struct gnode *n, int i, const char *name);
int64_t pl_arg_int(struct pl *pl, struct gnode *n, int i, const char *name, int64_t def);
double pl_arg_num(struct pl *pl, struct gnode *n, int i, const char *name, double def);
const char *pl_arg_str(struct gnode *n, int i, const char *name, const char *def);
/* Returns the number of elements of the list. */
int pl_arg_ints(struct pl *pl, struct gnode *n, int i, const char *name, int64_t *out, int max);
/* For arguments that are passed by name only. */
enum { PL_NO_POSITION = 99 };
#define pl_kwarg(n, name) pl_arg(n, PL_NO_POSITION, name)
#define pl_kwarg_int(pl, n, name, def) pl_arg_int(pl, n, PL_NO_POSITION, name, def)
#define pl_kwarg_num(pl, n, name, def) pl_arg_num(pl, n, PL_NO_POSITION, name, def)
#define pl_kwarg_str(n, name, def) pl_arg_str(n, PL_NO_POSITION, name, def)
int pl_dim(struct pl *pl, struct gnode *n, int64_t d, int rank);
/* Gather: out[idx] = src[map[0], ..., at[idx], ...], where at[idx] is the index in dimension dim and map[] has the
 * other indices.  `at` has the shape of the result. */
struct val *pl_gather(struct pl *pl, struct val *src, struct val *at, int dim, int rank, const struct ix *const *size,
	const struct ix *const *map);
/* index_select: the dimensions of `index` (int64, not negative) replace dimension dim of src. */
struct val *pl_take(struct pl *pl, struct val *src, struct val *index, int dim);
/* Node n writes v to the node or input `name`: later readers see it, through views as well.  `own`: the view that n
 * writes through, or NULL. */
void pl_write(struct pl *pl, struct gnode *n, const char *name, const char *own, struct val *v);
/* log(1 + e^-|x|).  rounded: 16 bits of it are enough (short forms). */
struct val *pl_log1p_exp(struct pl *pl, int rounded, struct val *x);
/* PL_LOG_SUMMED: a log_softmax of which a loss sums one number of each row. */
enum pl_softmax_form { PL_SOFTMAX, PL_LOG_SOFTMAX, PL_LOG_SUMMED };
struct val *pl_softmax(struct pl *pl, struct val *x, int dim, enum pl_softmax_form form);
struct val *pl_linear(
	struct pl *pl, struct gnode *n, struct val *x, struct val *w, struct val *b); /* x w^T + b, b may be NULL */
struct val *pl_swap_dims(struct pl *pl, struct val *a, int x, int y);
/* The last two dimensions exchanged. */
static inline struct val *pl_transposed(struct pl *pl, struct val *a)
{
	return pl_swap_dims(pl, a, a->rank - 2, a->rank - 1);
}
/* v; if it is computed, it is stored first, since it is read more than once. */
struct val *pl_stored(struct pl *pl, struct val *v);

/* cuda: v, of which each element would be computed so many times along the dimensions from `first` on, is stored first
 * where these are three or more, and take half as long again as a store and a load; a softmax where these are two or
 * more, by the kernel of its rows.  A square is computed again. */
void pl_store_costly(struct pl *pl, struct val *v, double times, int first);
/* The windows of a fold: their elements, dilation, padding and distance along both dimensions, and how many there are.
 */
struct pl_fold {
	int64_t k[2], dil[2], pad[2], step[2];
	const struct ix *blocks[2];
};
/* Columns (n, c k[0] k[1], blocks[0] blocks[1]) as an image (n, c, out...): each pixel is the sum of its elements of
 * all windows. */
struct val *pl_fold(struct pl *pl, struct val *columns, const struct pl_fold *f, const struct ix *const out[2]);
/* The concatenation of n values along dimension d as one expression: each piece is read only where a condition on the
 * index holds. */
struct val *pl_concatenated(struct pl *pl, struct val **v, int n, int d);
/* Concatenate the n values along dimension d. */
struct val *pl_cat(struct pl *pl, struct val **v, int n, int d);
enum { LOWER_TRIANGLE, UPPER_TRIANGLE };
void pl_einsum(struct pl *pl, struct gnode *n);

/* ---- Short names ------------------------------------------------------------------------------------------------- */

#define ADD(a, b) pl_op2(pl, OP_ADD, (a), (b))
#define SUB(a, b) pl_op2(pl, OP_SUB, (a), (b))
#define MUL(a, b) pl_op2(pl, OP_MUL, (a), (b))
#define DIV(a, b) pl_op2(pl, OP_DIV, (a), (b))

static inline void done(struct gnode *n, struct val *v) { n->out[0] = v; }
static inline struct val *self(struct pl *pl, struct gnode *n) { return pl_need_val(pl, n, 0, "self"); }
/* x modulo `size`, for 0 <= x < 2 size: by a comparison and no division, so that vector loads stay contiguous. */
const struct ix *pl_wrap(struct pl *pl, const struct ix *x, const struct ix *size);
