/* call.h - one node of a graph as a call: its arguments by their names in ops.def, and what rules say of them.
 *
 * A rule computes the sizes of a node's results from its arguments and compares them with those that the graph states.
 * Rules return 1, or 0 with the error set; the helpers do, too, so that a rule is a chain of them.  All numbers are
 * bounded when they are read (attributes below 2^31, sizes below 2^48), so that rules may add and multiply two of them.
 */
#pragma once

#include "task/graph/check.h"

#include <stdint.h>

enum { GRAPH_MAX_ARGS = 16, GRAPH_MANY = 1 << 16 /* items of a list */ };

struct shape {
	int rank;
	int64_t size[WW_GRAPH_MAX_RANK];
};

struct graph_arg {
	const char *name; /* not terminated */
	int name_len;
	char kind;       /* of ops.def */
	int optional;    /* may be None */
	const json_t *j; /* NULL: absent or None */
};

struct call {
	const json_t *places; /* every name that the node may refer to: the input, parameter or node */
	const char *name, *op;
	const struct graph_row *row;
	struct graph_arg arg[GRAPH_MAX_ARGS];
	int n_arg;
	const json_t *out;
	int in_place;
	struct ww_err *err;
};

typedef int (*graph_rule)(struct call *c);

/* A row of ops.def. */
struct graph_row {
	const char *args, *results; /* results: T each tensor; L: a list of them */
	graph_rule rule;
	int variant;
	const char *ops;
};

/* The row of "aten.add_.Tensor", or NULL. */
const struct graph_row *graph_row_of(const char *op, int *in_place);
/* Read a node's arguments as the row has them.  -1: it has others. */
int graph_bind(struct call *c, const struct graph_row *row, const json_t *node);

/* ---- call.c: what rules are made of ------------------------------------------------------------------------------ */

int wrong(struct call *c, const char *fmt, ...) WW_PRINTF(2, 3); /* 0 */
/* A tensor in the JSON form {dtype, sizes, strides}. */
int read_shape(const json_t *j, struct shape *s);
int64_t numel(const struct shape *s);

const json_t *given(struct call *c, const char *name); /* NULL: absent or None */
/* The sizes of a tensor; a number has none. */
int tensor(struct call *c, const char *name, struct shape *s);
int is_integer(struct call *c, const char *name); /* its type, bool included */
/* Item i of a list of tensors. */
int items(struct call *c, const char *name);
int item(struct call *c, const char *name, int i, struct shape *s);
int64_t int_of(struct call *c, const char *name, int64_t def);
double num_of(struct call *c, const char *name, double def);
/* How many integers the argument has, at most `max`; 0: none; -1: wrong. */
int ints(struct call *c, const char *name, int64_t *v, int max);
/* One for each of nd dimensions, or one for all, or `def`; from `least` on. */
enum { REQUIRED = -1000 };
int each(struct call *c, const char *name, int nd, int64_t def, int64_t least, int64_t *v);
/* A dimension of `rank`, which may be counted from the end. */
int dim_of(struct call *c, const char *name, int64_t def, int rank, int *d);
int in_range(struct call *c, const char *name, int64_t v, int rank, int *d);
/* Does s, with as many dimensions as are asked for, lie in the range of ranks? */
int ranks(struct call *c, const char *name, const struct shape *s, int least, int most);
int same(struct call *c, const char *name, const struct shape *s, const struct shape *want);
int vector_of(struct call *c, const char *name, int64_t n); /* an optional tensor (n) */
int broadcast(struct call *c, struct shape *to, const struct shape *s);
int expands(struct call *c, const char *name, const struct shape *from, const struct shape *to);
int n_results(const struct call *c);
int result(struct call *c, int i, struct shape *s);
/* Result i has these sizes, or all have. */
int gives(struct call *c, int i, const struct shape *want);
int all_give(struct call *c, const struct shape *want);
static inline struct shape scalar_shape(void) { return (struct shape){ .rank = 0 }; }
void drop(struct shape *s, int d);
void insert(struct shape *s, int d, int64_t size); /* at most WW_GRAPH_MAX_RANK - 1 dimensions before */
/* The sizes of the first argument; with at least one dimension, and the one that another argument names. */
int self(struct call *c, struct shape *s);
int self_with_dim(struct call *c, const char *name, struct shape *s, int *d);
/* Is the argument `index` one of n elements? */
int index_of(struct call *c, int64_t n);
/* How many of n elements the slice start, end, step has; -1: wrong. */
int64_t slice_length(struct call *c, int64_t n);
int offset_of(struct call *c, const char *name, int64_t *off); /* of a diagonal */
int inner_of(struct call *c, int64_t a, int64_t b);            /* the dimensions that a product sums are equal */
