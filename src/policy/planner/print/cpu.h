/* cpu.h - what the parts of the cpu emitter share. */
#pragma once

#include "policy/planner/print/print.h"

#include <stdlib.h>

void pl_decode(struct pl *pl, struct ww_str *s, const char *tabs, const char *type, const struct ix_atom *const *axis,
	int n, const char *lin);
const struct ix *pl_extent(struct pl *pl, const struct ix_atom *const *axis, int n);
void pl_cpu_stores(struct expr *e, struct kern *k, int level);
/* Do the outputs of a row kernel depend on its columns? */
int pl_cpu_stores_per_column(struct kern *k);
/* Kernel k by a skeleton of the cookbook; 0, and nothing written, where none fits: skeleton.c. */
int pl_cpu_row_skeleton(struct pl *pl, struct kern *k, struct ww_str *s);
/* Values that a row kernel computes in pass `stage` and leaves in its scratch for later ones: keep.c.  Fills
 * kept[], which has room for max + 1, and returns how many. */
struct pl_cached {
	struct val *val;
	const struct ix *idx[PL_MAX_RANK];
	int stage;
};
int pl_cpu_keep(struct pl *pl, struct kern *k, const struct ix_atom *lane, struct pl_cached *kept, int max);
