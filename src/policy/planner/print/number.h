/* number.h - C text of one number. */
#pragma once

#include "policy/planner/planner.h"

const char *pl_ctype(int dt, int target); /* as stored */
const char *pl_acc_type(int dt);          /* as computed */
const char *pl_literal(struct pl *pl, int dt, double f, int64_t i);
/* Fill in a template of ops.def: $0, $1, ... are the operands, @ is the suffix of functions of type dt. */
const char *pl_fill(struct pl *pl, const char *t, const char *const *arg, int dt);
const char *pl_cast_text(struct pl *pl, const char *t, int from, int to);
const char *pl_from_store(struct pl *pl, const char *p, int dt);
const char *pl_to_store(struct pl *pl, const char *text, int from, int to);
/* A reduction's initial value, and the expression that combines two values. */
const char *pl_ident(struct pl *pl, enum pl_red red, int dt);
const char *pl_combine(struct pl *pl, enum pl_red red, int dt, const char *a, const char *b, int vec);
