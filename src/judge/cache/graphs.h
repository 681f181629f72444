/* graphs.h - load a task with its cached graph.
 *
 * A task's graph is a function of its text, of PyTorch and of the bridge, and takes seconds to make (torch.export); on
 * cuda it says what PyTorch rounds, too, which depends on the GPU and cuDNN.  The store keeps it by these; the worker
 * checks that it describes the module that it has loaded (bridge/wwbridge/cached_graph.py).
 */
#pragma once

#include "base/hash.h"
#include "store/store.h"
#include "task/ref.h"

/* Three steps: the second, which takes seconds, does not use the device. */
struct ww_cached_graph {
	json_t *graph; /* in: NULL, or that of an earlier load; out: once it is there.  A reference of the caller's */
	char key[WW_HASH_HEX]; /* in the store; "" where it has none */
	int made;              /* by ww_graphs_graph() */
};
/* ww_ref_load(), with a graph that the store or *k holds.  s may be NULL. */
enum ww_rc ww_graphs_load(struct ww_cached_graph *k, struct ww_store *s, struct ww_ref *r, const struct ww_task *task,
	uint64_t seed, struct ww_err *err) WW_MUST_CHECK;
/* The graph, made where the load did not find one. */
enum ww_rc ww_graphs_graph(struct ww_cached_graph *k, struct ww_ref *r, struct ww_err *err) WW_MUST_CHECK;
/* One that was made is completed (cuda: ww_ref_tf32()) and kept in the store. */
enum ww_rc ww_graphs_keep(
	struct ww_cached_graph *k, struct ww_store *s, struct ww_ref *r, struct ww_err *err) WW_MUST_CHECK;
