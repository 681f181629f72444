/* graphs.h - load a task with its cached graph.
 *
 * A task's graph is a function of its text, of PyTorch and of the bridge, and takes seconds to make (torch.export). The
 * store keeps it by these three; the worker checks that it describes the module that it has loaded
 * (bridge/wwbridge/cached_graph.py).
 */
#pragma once

#include "base/hash.h"
#include "store/store.h"
#include "task/ref.h"

/* Two steps, since the first uses the device and the second, which takes seconds, does not. */
struct ww_cached_graph {
	json_t *graph; /* in: NULL, or that of an earlier load; out: once it is there.  A reference of the caller's */
	char key[WW_HASH_HEX]; /* in the store; "" where it has none */
};
/* ww_ref_load(), with a graph that the store or *k holds.  s may be NULL. */
enum ww_rc ww_graphs_load(struct ww_cached_graph *k, struct ww_store *s, struct ww_ref *r, const struct ww_task *task,
	uint64_t seed, struct ww_err *err) WW_MUST_CHECK;
/* The graph, made and kept where the load did not find one. */
enum ww_rc ww_graphs_graph(
	struct ww_cached_graph *k, struct ww_store *s, struct ww_ref *r, struct ww_err *err) WW_MUST_CHECK;
