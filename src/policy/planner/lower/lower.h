/* lower.h - short names for the rules of this folder. */
#pragma once

#include "policy/planner/planner.h"

#define ADD(a, b) pl_op2(pl, OP_ADD, (a), (b))
#define SUB(a, b) pl_op2(pl, OP_SUB, (a), (b))
#define MUL(a, b) pl_op2(pl, OP_MUL, (a), (b))
#define DIV(a, b) pl_op2(pl, OP_DIV, (a), (b))

static inline void done(struct gnode *n, struct val *v) { n->out[0] = v; }
static inline struct val *self(struct pl *pl, struct gnode *n) { return pl_need_val(pl, n, 0, "self"); }
