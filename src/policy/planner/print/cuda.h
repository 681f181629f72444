/* cuda.h - what the two halves of the cuda emitter share. */
#pragma once

#include "policy/planner/print/cpu.h"

/* Append to plan.c text "| a | b ..." what must be a multiple of the vector width for accesses at off. */
const char *pl_cuda_terms(struct pl *pl, const char *terms, const struct ix *off, const struct ix_atom *lane);
void pl_cuda_loads(struct expr *e, struct ww_str *s, int stage, const char *start, const char *sub);
const char *pl_cuda_stores(struct expr *e, struct kern *k, int level, const char *start, const char **terms,
	const char **decl, const char *cond);
