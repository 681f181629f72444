/* canon.h - a task's graph in a canonical form: equal for equal computations, however they are written.  Internal to
 * src/task.
 *
 * Nodes are values.  Two spellings of one computation become the same nodes:
 *   - sizes, names, views, copies, casts within a class of types, and the numbers in arithmetic are gone; numbers are
 *     still known here, so that 2x + 3x is one product and x + 0 is x
 *   - sums and products are lists without order, powers (square, sqrt, division) have one form
 *   - an operator that is a formula of others is that formula (canon_ops.c): linear is matmul and add, layer_norm is
 *     means, differences and a power
 * Equal values are one node.  Nodes are numbered in the order of their making, operands before what uses them.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdint.h>

enum ww_canon_kind {
	WW_CANON_LEAF,  /* an input or a parameter */
	WW_CANON_CONST, /* a number, or what depends on nothing else */
	WW_CANON_OP
};

struct ww_canon_node {
	enum ww_canon_kind kind;
	const char *label; /* "add", "sum/last", "pow/2"; of a leaf its class of types: "f", "i", "b" */
	uint64_t label_hash;
	double value; /* of a constant, and what keeps equal labels apart (which part of a tensor); never compared */
	int unknown;  /* a constant whose value is not known */
	int commutes; /* the order of operands means nothing */
	int n, *in;   /* operands */
};

struct ww_canon {
	struct ww_arena arena;
	struct ww_canon_node *node;
	size_t n, cap;
	int *table; /* hash table of nodes: number + 1 */
	size_t table_cap;
	int failed; /* out of memory, or beyond the limit: every node is 0 from here on */
	int next_unknown;
};

enum { WW_CANON_MAX_NODES = 1 << 18 };

enum ww_rc ww_canon_init(struct ww_canon *c, struct ww_err *err) WW_MUST_CHECK;
void ww_canon_release(struct ww_canon *c);

/* Nodes.  All return a number, never fail visibly (see `failed`), and simplify what they are given. */
int ww_canon_leaf(struct ww_canon *c, const char *type_class); /* a new one each time */
int ww_canon_num(struct ww_canon *c, double value);
int ww_canon_unknown(struct ww_canon *c); /* a constant, a new one each time */
/* Any operator; one whose operands are all constants is a constant.  `which` keeps apart what has equal operands. */
int ww_canon_op(struct ww_canon *c, const char *label, double which, int commutes, const int *in, int n);
int ww_canon_op1(struct ww_canon *c, const char *label, int x);
int ww_canon_op2(struct ww_canon *c, const char *label, int commutes, int x, int y);
int ww_canon_add(struct ww_canon *c, int x, int y);
int ww_canon_mul(struct ww_canon *c, int x, int y);
int ww_canon_scale(struct ww_canon *c, double k, int x);
int ww_canon_sub(struct ww_canon *c, int x, int y);
int ww_canon_pow(struct ww_canon *c, int x, double e);
int ww_canon_div(struct ww_canon *c, int x, int y);
int ww_canon_exp(struct ww_canon *c, int x);
int ww_canon_log(struct ww_canon *c, int x);
int ww_canon_matmul(struct ww_canon *c, int x, int y);
int ww_canon_max(struct ww_canon *c, int x, int y); /* of two values, element by element */
int ww_canon_min(struct ww_canon *c, int x, int y);
int ww_canon_where(struct ww_canon *c, int condition, int x, int y);
/* A reduction: what "sum", "amax", ...; over: "last" (the innermost dimensions), "all", "other". */
int ww_canon_reduce(struct ww_canon *c, const char *what, const char *over, int x);

int ww_canon_is(const struct ww_canon *c, int x, const char *label);
int ww_canon_is_num(const struct ww_canon *c, int x, double value);
