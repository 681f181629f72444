/* known.h - load a task with the graph that was made of it before.
 *
 * A task's graph is a function of its text, of PyTorch and of the bridge, and takes seconds to make (torch.export).  The store
 * keeps it by these three; the worker looks whether it describes the module that it has loaded (bridge/wwbridge/known.py).
 */
#ifndef WW_JUDGE_KNOWN_H
#define WW_JUDGE_KNOWN_H

#include "store/store.h"
#include "task/ref.h"

/* ww_ref_load(), then the graph.  *graph: NULL, or the graph of an earlier load of this task; gets the graph (a reference of the
 * caller's).  s may be NULL. */
enum ww_rc ww_known_load(struct ww_store *s, struct ww_ref *r, const struct ww_task *task, uint64_t seed, json_t **graph,
			 struct ww_err *err) WW_MUST_CHECK;

#endif
