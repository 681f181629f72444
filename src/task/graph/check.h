/* check.h - is a graph one that PyTorch can have made?
 *
 * A graph comes from the reference worker, in which a stranger's task runs, or out of a conversation.  Everything that
 * reads it (planner, shapes, floors, signatures) may rely on what is checked here; nothing checks it again.
 */
#pragma once

#include "base/err.h"

#include <jansson.h>

enum {
	WW_GRAPH_MAX_NODES = 100000,
	WW_GRAPH_MAX_RANK = 64,  /* of what nodes compute, as in PyTorch; inputs, parameters and outputs have WW_MAX_RANK */
	WW_GRAPH_SIZE_BITS = 48, /* sizes, elements of a tensor and the bytes that it spans are below 2^48 */
};

/* docs/formats/bridge.md, "graph".  WW_ERR_TASK: one line that names the node, its operator and what is wrong.
 * An operator that is not in ops.def, or is called with an argument that it does not have there (another PyTorch), is
 * checked as far as that goes without its rule. */
enum ww_rc ww_graph_check(const json_t *graph, struct ww_err *err) WW_MUST_CHECK;

/* 1: ops.def has the operator of this node with the arguments that it is called with, so that ww_graph_check() looked
 * at its sizes, too. */
int ww_graph_knows(const json_t *node);
