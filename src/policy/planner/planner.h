/* planner.h - inside of the planner: one build turns a graph into the text of kernels.* and plan.c.
 *
 *   graph/graph.c   graph JSON            -> struct gnode (arguments resolved, nothing interpreted)
 *   lower/          gnode                 -> struct val: pointwise operations, views, reductions, "anchors" (GEMM, ...)
 *   graph/          val.c, ix.c, walk.c: values, index expressions, and what a value reads
 *   group.c         values                -> struct kern: which values one kernel computes, over which index space
 *   hoist.c         a reduction to store  -> the value to store in its place
 *   print/expr.c    value at an index     -> C expressions
 *   emit_*.c        kern                  -> device code, plan code
 *   share.c         two kernels with one text -> one
 *   search.c        verdicts              -> which knobs to try next
 *   planner.c       messages              -> the next message
 *
 * All memory of a build lies in one arena.  What the planner cannot cover leaves by pl_fail(), a longjmp to
 * ww_pl_build(): every function in between owns nothing but arena memory, so nothing leaks, and a deep recursion over
 * values needs no error path of its own.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "policy/planner/graph/ix.h"

#include <setjmp.h>
#include <ww/plan.h>

enum {
	PL_MAX_RANK = 10,
	PL_MAX_ARGS = 4,
	PL_MAX_BUFS = 4096,
	PL_MAX_VALS = 65536,
	PL_MAX_KERNELS = 1024,
	PL_MAX_OUTS = 16
};

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* name, arity, cost, scalar text, vector text (NULL: none), integer text (NULL: none), gives bool.
 * $0.. are the operands; @ is "f" for float and nothing for double. */
#define PL_OP_MAP(X)                                                                                              \
	X(ADD, 2, 1, "($0 + $1)", "($0 + $1)", "($0 + $1)", 0)                                                    \
	X(SUB, 2, 1, "($0 - $1)", "($0 - $1)", "($0 - $1)", 0)                                                    \
	X(MUL, 2, 1, "($0 * $1)", "($0 * $1)", "($0 * $1)", 0)                                                    \
	X(DIV, 2, 4, "($0 / $1)", "($0 / $1)", NULL, 0)                                                           \
	X(REM, 2, 8, "pl_rem@($0, $1)", NULL, "pl_remi($0, $1)", 0)                                               \
	X(FMOD, 2, 8, "fmod@($0, $1)", NULL, "($0 % $1)", 0)                                                      \
	X(FLOORDIV, 2, 8, "floor@($0 / $1)", "ww_vf_floor($0 / $1)", "pl_fdivi($0, $1)", 0)                       \
	X(MAXIMUM, 2, 1, "pl_max@($0, $1)", "ww_vf_maxnan($0, $1)", "pl_maxi($0, $1)", 0)                         \
	X(MINIMUM, 2, 1, "pl_min@($0, $1)", "ww_vf_minnan($0, $1)", "pl_mini($0, $1)", 0)                         \
	X(POW, 2, 30, "pow@($0, $1)", "ww_vf_pow($0, $1)", "pl_powi($0, $1)", 0)                                  \
	X(ATAN2, 2, 30, "atan2@($0, $1)", NULL, NULL, 0)                                                          \
	X(NEG, 1, 1, "(-$0)", "(-$0)", "(-$0)", 0)                                                                \
	X(ABS, 1, 1, "fabs@($0)", "ww_vf_abs($0)", "pl_absi($0)", 0)                                              \
	X(RECIP, 1, 4, "(1.0@ / $0)", "(1.0f / $0)", NULL, 0)                                                     \
	X(EXP, 1, 10, "exp@($0)", "ww_vf_exp($0)", NULL, 0)                                                       \
	X(EXP2, 1, 10, "exp2@($0)", "ww_vf_exp2($0)", NULL, 0)                                                    \
	X(EXPM1, 1, 12, "expm1@($0)", "ww_vf_expm1($0)", NULL, 0)                                                 \
	X(LOG, 1, 12, "log@($0)", "ww_vf_log($0)", NULL, 0)                                                       \
	X(LOG2, 1, 12, "log2@($0)", "ww_vf_log2($0)", NULL, 0)                                                    \
	X(LOG10, 1, 12, "log10@($0)", "ww_vf_log10($0)", NULL, 0)                                                 \
	X(LOG1P, 1, 14, "log1p@($0)", "ww_vf_log1p($0)", NULL, 0)                                                 \
	X(SQRT, 1, 4, "sqrt@($0)", "ww_vf_sqrt($0)", NULL, 0)                                                     \
	X(RSQRT, 1, 5, "(1.0@ / sqrt@($0))", "ww_vf_rsqrt($0)", NULL, 0)                                          \
	X(SIN, 1, 20, "sin@($0)", "ww_vf_sin($0)", NULL, 0)                                                       \
	X(COS, 1, 20, "cos@($0)", "ww_vf_cos($0)", NULL, 0)                                                       \
	X(TAN, 1, 24, "tan@($0)", NULL, NULL, 0)                                                                  \
	X(ASIN, 1, 24, "asin@($0)", NULL, NULL, 0)                                                                \
	X(ACOS, 1, 24, "acos@($0)", NULL, NULL, 0)                                                                \
	X(ATAN, 1, 24, "atan@($0)", NULL, NULL, 0)                                                                \
	X(SINH, 1, 24, "sinh@($0)", NULL, NULL, 0)                                                                \
	X(COSH, 1, 24, "cosh@($0)", NULL, NULL, 0)                                                                \
	X(TANH, 1, 14, "tanh@($0)", "ww_vf_tanh($0)", NULL, 0)                                                    \
	X(ASINH, 1, 24, "asinh@($0)", NULL, NULL, 0)                                                              \
	X(ACOSH, 1, 24, "acosh@($0)", NULL, NULL, 0)                                                              \
	X(ATANH, 1, 24, "atanh@($0)", NULL, NULL, 0)                                                              \
	X(ERF, 1, 16, "erf@($0)", "ww_vf_erf($0)", NULL, 0)                                                       \
	X(ERFC, 1, 18, "erfc@($0)", NULL, NULL, 0)                                                                \
	X(LGAMMA, 1, 40, "lgamma@($0)", NULL, NULL, 0)                                                            \
	X(SIGMOID, 1, 12, "(1.0@ / (1.0@ + exp@(-$0)))", "ww_vf_sigmoid($0)", NULL, 0)                            \
	X(FLOOR, 1, 1, "floor@($0)", "ww_vf_floor($0)", "($0)", 0)                                                \
	X(CEIL, 1, 1, "ceil@($0)", "ww_vf_ceil($0)", "($0)", 0)                                                   \
	X(ROUND, 1, 1, "rint@($0)", "ww_vf_rint($0)", "($0)", 0)                                                  \
	X(TRUNC, 1, 1, "trunc@($0)", "ww_vf_trunc($0)", "($0)", 0)                                                \
	X(SIGN, 1, 2, "pl_sign@($0)", "ww_vf_sign($0)", "pl_signi($0)", 0)                                        \
	X(LT, 2, 1, "($0 < $1)", "ww_vf_lt($0, $1)", "($0 < $1)", 1)                                              \
	X(LE, 2, 1, "($0 <= $1)", "ww_vf_le($0, $1)", "($0 <= $1)", 1)                                            \
	X(GT, 2, 1, "($0 > $1)", "ww_vf_gt($0, $1)", "($0 > $1)", 1)                                              \
	X(GE, 2, 1, "($0 >= $1)", "ww_vf_ge($0, $1)", "($0 >= $1)", 1)                                            \
	X(EQ, 2, 1, "($0 == $1)", "ww_vf_eq($0, $1)", "($0 == $1)", 1)                                            \
	X(NE, 2, 1, "($0 != $1)", "ww_vf_ne($0, $1)", "($0 != $1)", 1)                                            \
	X(ISNAN, 1, 1, "($0 != $0)", "ww_vf_isnan($0)", "(0 * $0)", 1)                                            \
	X(AND, 2, 1, NULL, NULL, "($0 & $1)", 0)                                                                  \
	X(OR, 2, 1, NULL, NULL, "($0 | $1)", 0)                                                                   \
	X(XOR, 2, 1, NULL, NULL, "($0 ^ $1)", 0)                                                                  \
	X(SHL, 2, 1, NULL, NULL, "($0 << $1)", 0)                                                                 \
	X(SHR, 2, 1, NULL, NULL, "($0 >> $1)", 0)                                                                 \
	X(BITNOT, 1, 1, NULL, NULL, "(~$0)", 0)                                                                   \
	X(LAND, 2, 1, "($0 && $1)", "ww_vm_and($0, $1)", "($0 && $1)", 1)                                         \
	X(LOR, 2, 1, "($0 || $1)", "ww_vm_or($0, $1)", "($0 || $1)", 1)                                           \
	X(LXOR, 2, 1, "(!$0 != !$1)", "ww_vm_xor($0, $1)", "(!$0 != !$1)", 1)                                     \
	X(LNOT, 1, 1, "(!$0)", "ww_vm_not($0)", "(!$0)", 1)                                                       \
	X(WHERE, 3, 1, "($0 ? $1 : $2)", "ww_vf_sel($0, $1, $2)", "($0 ? $1 : $2)", 0)                            \
	X(CAST, 1, 1, "", "", "", 0)

enum pl_op {
#define X(name, arity, cost, scal, vec, intg, boolean) OP_##name,
	PL_OP_MAP(X)
#undef X
		OP_COUNT
};

struct pl_op_info {
	const char *name;
	int arity, cost;
	const char *scalar, *vec, *intg;
	int boolean;
};
extern const struct pl_op_info pl_ops[OP_COUNT];

enum pl_red { RED_SUM, RED_PROD, RED_MAX, RED_MIN, RED_ARGMAX, RED_ARGMIN, RED_COUNT };
extern const char *const pl_red_names[RED_COUNT];

enum vkind {
	V_BUF,    /* an input or a parameter, at its strides */
	V_CONST,  /* one number */
	V_INDEX,  /* the value of an index expression over the own dimensions (arange, masks) */
	V_OP,     /* pointwise; arguments have the same shape or are constants */
	V_VIEW,   /* another index of the argument; fill where `cond` is 0 */
	V_GATHER, /* argument 0 with the index of dimension `dim` replaced by the value of argument 1 */
	V_RED,    /* over the last `nred` dimensions of the argument */
	V_ANCHOR  /* output of an anchor */
};

struct buf;
struct anchor;
struct gnode;
struct kern;

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
	int64_t i;                         /* CONST of an integer type */
	const struct ix *index;            /* INDEX, over place[] */
	const struct ix *map[PL_MAX_RANK]; /* VIEW: index of each dimension of arg[0], over place[] */
	const struct ix *cond;             /* VIEW: NULL, or 0/1 over place[] */
	double fill;
	int dim; /* GATHER */
	enum pl_red red;
	int nred;
	struct anchor *anchor;
	int anchor_out;
	int force_root;   /* must be stored: a part of a split reduction, an operand of an anchor */
	struct buf *root; /* where it is stored, once it is */
	int scheduled;
	struct gnode *node; /* whose rule made it; NULL: an input, a parameter */
};

enum bkind { B_INPUT, B_PARAM, B_OUTPUT, B_SCRATCH };

struct buf {
	enum bkind kind;
	int index;         /* input, output, scratch number */
	const char *pname; /* of a parameter: its dotted name */
	const char *name;  /* C identifier, the same in plan.c and in the kernels */
	int dt, rank;
	const struct ix *size[PL_MAX_RANK], *stride[PL_MAX_RANK];
	int contiguous;
	int used;
	struct val *val; /* for inputs and parameters */
};

/* ---- Graph ------------------------------------------------------------------------------------------------------- */

enum gkind { G_NONE, G_VAL, G_INT, G_FLOAT, G_BOOL, G_STR, G_LIST };

struct garg {
	enum gkind kind;
	const char *name; /* VAL: of the node; STR */
	int out;          /* VAL: which output of the node */
	int64_t i;
	double f;
	struct garg *item;
	int n;
};

struct gmeta {
	int dt, rank; /* dt 0: not a tensor */
	int64_t size[PL_MAX_RANK], stride[PL_MAX_RANK];
};

struct gnode {
	const char *name, *target; /* "aten.add.Tensor" */
	int variant;               /* of its operator's pl_lower_row */
	struct garg *arg;
	int n_arg;
	struct garg *kwarg;
	const char **kwname;
	int n_kwarg;
	struct gmeta meta[PL_MAX_OUTS];
	int n_out;
	struct val *out[PL_MAX_OUTS];
	const struct kern *in; /* the last kernel that was seen to compute a part of it */
};

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

struct pl {
	struct ww_arena arena;
	jmp_buf bail;
	char why[600];
	int n_atoms;
	int target; /* enum ww_target */
	struct ww_device dev;
	struct gnode *node, *lowering; /* lowering: whose rule is at work */
	int n_node;
	struct garg *output; /* the graph's results */
	int n_output;
	struct gmeta *out_meta;
	struct buf *buf[PL_MAX_BUFS];
	int n_buf, n_scratch;
	const struct ix *place[PL_MAX_RANK]; /* placeholders of V_VIEW and V_INDEX */
	int n_val;
	struct anchor *anchor[PL_MAX_KERNELS];
	int n_anchor;
	struct kern *kern[PL_MAX_KERNELS];
	int n_kern;
	const char *sym_name[64], *sym_def[64];
	int64_t sym_value[64];
	int n_sym;
	struct ww_str guards; /* plan.c text; released by ww_pl_build() */
	struct ww_str dev_text, plan_text;
	const struct knobs *knobs; /* by kernel number; may be NULL */
	int n_knobs;
	int n_var;
	const char *split_text[256]; /* cuda: operands that were split for gemm3 */
	int n_split;
	const char *cuda_recipes; /* #include lines of plan.c */
};

void pl_fail(struct pl *pl, const char *fmt, ...) __attribute__((noreturn)) WW_PRINTF(2, 3);
void *pl_alloc(struct pl *pl, size_t bytes);
const char *pl_fmt(struct pl *pl, const char *fmt, ...) WW_PRINTF(2, 3);
/* ww_fail() in plan.c unless a == b at the sizes of that build; nothing where they are the same expression. */
void pl_guard_eq(struct pl *pl, const struct ix *a, const struct ix *b, const char *what);

/* ---- graph.c */
void pl_graph_read(struct pl *pl, const json_t *graph);
struct gnode *pl_graph_node(struct pl *pl, const char *name);

/* ---- val.c: construction of values */
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
struct val *pl_slice(
	struct pl *pl, struct val *a, int dim, const struct ix *start, const struct ix *size, int64_t step);
struct val *pl_select(struct pl *pl, struct val *a, int dim, const struct ix *at);
struct val *pl_unsqueeze(struct pl *pl, struct val *a, int dim);
struct val *pl_squeeze(struct pl *pl, struct val *a, int dim);
struct val *pl_index(struct pl *pl, int dt, int rank, const struct ix *const *size, const struct ix *over_place);
/* Reduce the dimensions whose bit is set in mask. */
struct val *pl_reduce(struct pl *pl, enum pl_red red, struct val *a, unsigned mask, int keepdim);
struct val *pl_view(struct pl *pl, struct val *a, int rank, const struct ix *const *size, const struct ix *const *map);
/* View with a condition: fill where it is 0. */
struct val *pl_view_if(struct pl *pl, struct val *a, int rank, const struct ix *const *size,
	const struct ix *const *map, const struct ix *cond, double fill);
const struct ix *pl_numel(struct pl *pl, const struct val *a);
int pl_is_float(int dt);
int pl_is_int(int dt);
int pl_itemsize(int dt);
int pl_promote(int a, int b);
struct buf *pl_buf(struct pl *pl, enum bkind kind, int dt, int rank, const struct ix *const *size);
void pl_contiguous(struct pl *pl, int rank, const struct ix *const *size, const struct ix **stride);
/* Numbers a, b, c as fields of one vector: convenience for calls. */
int64_t pl_numel_now(const struct val *a);
const char *pl_node_name(const struct val *v); /* for messages; "?" where no node made it */

/* ---- lower/ */
void pl_lower(struct pl *pl);
typedef void (*pl_lower_fn)(struct pl *pl, struct gnode *n);
struct pl_lower_row {
	const char *op;
	pl_lower_fn fn;
	int variant; /* which of the operators that fn lowers, for fn to say what it means; pl_lower() gives it by the node
	              */
};
#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* most rows have no variant */
extern const struct pl_lower_row pl_lower_shape[], pl_lower_resample[], pl_lower_point[], pl_lower_reduce[],
	pl_lower_nn[], pl_lower_rnn[], pl_lower_index[], pl_lower_order[], pl_lower_create[];
/* "add" of "aten.add.Tensor", into out; the functional name of an in-place operator. */
const char *pl_op_name(const char *target, char *out, size_t cap);
struct garg *pl_arg(struct gnode *n, int i, const char *name);
struct val *pl_arg_val(struct pl *pl, struct gnode *n, int i, const char *name); /* NULL for None */
struct val *pl_need_val(struct pl *pl, struct gnode *n, int i, const char *name);
int64_t pl_arg_int(struct pl *pl, struct gnode *n, int i, const char *name, int64_t def);
double pl_arg_num(struct pl *pl, struct gnode *n, int i, const char *name, double def);
const char *pl_arg_str(struct gnode *n, int i, const char *name, const char *def);
int pl_arg_ints(struct pl *pl, struct gnode *n, int i, const char *name, int64_t *out, int max); /* count */
/* Of arguments that have a name only. */
enum { PL_NO_POSITION = 99 };
#define pl_kwarg(n, name) pl_arg(n, PL_NO_POSITION, name)
#define pl_kwarg_int(pl, n, name, def) pl_arg_int(pl, n, PL_NO_POSITION, name, def)
#define pl_kwarg_num(pl, n, name, def) pl_arg_num(pl, n, PL_NO_POSITION, name, def)
#define pl_kwarg_str(n, name, def) pl_arg_str(n, PL_NO_POSITION, name, def)
struct val *pl_val_of(struct pl *pl, const struct garg *a);
void pl_cannot(struct pl *pl, struct gnode *n, const char *why) __attribute__((noreturn));
int pl_dim(struct pl *pl, struct gnode *n, int64_t d, int rank);
/* out[idx] = src[..., value of at, ...] in dimension dim; map[] for the others; `at` has the shape of the result. */
struct val *pl_gather(struct pl *pl, struct val *src, struct val *at, int dim, int rank, const struct ix *const *size,
	const struct ix *const *map);
/* Dimension dim of src is replaced by the dimensions of the index (int64, not negative). */
struct val *pl_take(struct pl *pl, struct val *src, struct val *index, int dim);
/* Node n writes v to the node or place `name`: later readers see it, through views as well.  `own`: the view that it is
 * written through, or NULL. */
void pl_write(struct pl *pl, struct gnode *n, const char *name, const char *own, struct val *v);
struct val *pl_softmax(struct pl *pl, struct val *x, int dim, int is_log);
struct val *pl_linear(
	struct pl *pl, struct gnode *n, struct val *x, struct val *w, struct val *b); /* x w^T + b, b may be NULL */
/* The n values side by side along dimension d. */
struct val *pl_cat(struct pl *pl, struct val **v, int n, int d);
void pl_einsum(struct pl *pl, struct gnode *n);

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

/* ---- walk.c */
/* out[0..n-1] = map[] of v with its placeholders replaced by idx. */
void pl_map_index(struct pl *pl, const struct val *v, const struct ix *const *map, int n, const struct ix *const *idx,
	const struct ix **out);

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

/* ---- expr.c: values at an index, as C */

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
	int stage; /* where it was first needed */
};

struct expr {
	struct pl *pl;
	struct kern *k;
	int vec;      /* cpu: emit vectors along `lane` */
	int cuda_vec; /* cuda: unit-stride loads along `lane` are collected in vload[] */
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
	int need_scalar;  /* a vector form does not exist */
	struct val *self; /* evaluated, not loaded, although it is stored */
};

void pl_expr_init(struct expr *e, struct pl *pl, struct kern *k);
struct etext pl_expr(struct expr *e, struct val *v, const struct ix *const *idx);
/* v at idx has been computed: its text. */
void pl_expr_known(struct expr *e, const struct val *v, const struct ix *const *idx, struct etext t);
/* Forget what was computed inside the column loop. */
void pl_expr_forget(struct expr *e, int level);
const char *pl_ctype(int dt, int target); /* as stored */
const char *pl_acc_type(int dt);          /* as computed */
const char *pl_to_store(struct expr *e, const char *text, int from, int to);
const struct ix *pl_offset(struct pl *pl, const struct buf *b, const struct ix *const *idx);
void pl_kern_arg(struct pl *pl, struct kern *k, struct buf *b);
const char *pl_literal(struct pl *pl, int dt, double f, int64_t i);
const char *pl_ident(struct pl *pl, enum pl_red red, int dt);
const char *pl_combine(struct pl *pl, enum pl_red red, int dt, const char *a, const char *b, int vec);
/* Helper functions (pl_max and friends) that the text uses, for both targets. */
const char *pl_preamble(struct pl *pl, const char *body);

/* ---- share.c */
/* k has been written as `text` and its launch is known: 1 where an earlier kernel's text serves and the launch now
 * names that one. */
int pl_share_kernel(struct pl *pl, struct kern *k, const char *text);

/* ---- emit_*.c */
int pl_has_lane(const struct expr *e, const struct ix *x);
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
