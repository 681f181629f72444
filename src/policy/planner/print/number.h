/* number.h - C text of one number. */
#pragma once

#include "policy/planner/planner.h"

const char *pl_ctype(int dt, int target); /* as stored */
const char *pl_acc_type(int dt);          /* as computed */
const char *pl_literal(struct pl *pl, int dt, double f, int64_t i);
/* A template of ops.def: $0.. are the operands, @ the suffix. */
const char *pl_fill(struct pl *pl, const char *t, const char *const *arg, int dt);
const char *pl_cast_text(struct pl *pl, const char *t, int from, int to);
const char *pl_from_store(struct pl *pl, const char *p, int dt);
const char *pl_to_store(struct pl *pl, const char *text, int from, int to);
/* What a reduction begins with, and one step of it. */
const char *pl_ident(struct pl *pl, enum pl_red red, int dt);
const char *pl_combine(struct pl *pl, enum pl_red red, int dt, const char *a, const char *b, int vec);
