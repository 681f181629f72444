#include "policy/planner/planner.h"
void pl_emit_cuda(struct pl *pl) { pl_fail(pl, "no cuda yet"); }
