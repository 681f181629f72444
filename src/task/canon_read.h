/* canon_read.h - from the bridge's graph (docs/formats/bridge.md, "graph") to canonical nodes.  Internal to src/task.
 */
#pragma once

#include "task/canon.h"

#include <jansson.h>

/* What a name of the graph stands for. */
struct ww_canon_value {
	int node, second;    /* of an operator with several results: the first and the second; -1: none */
	int parts;           /* results are parts of `node` (split) */
	const json_t *sizes; /* borrowed; NULL: unknown */
	const char *dtype;
	int from;       /* a view or part of this value (-1: of none), which an in-place operator changes too */
	int whole_view; /* a view of all of it */
};

struct ww_canon_reader {
	struct ww_canon *c;
	struct ww_canon_value *v;
	size_t n, cap;
	json_t *names;      /* name: number in v */
	const char *random; /* the first operator that draws random numbers; NULL: none */
	/* of the operator being read */
	const json_t *args, *kwargs, *out;
	char op[80]; /* "add" of aten.add_.Tensor */
	int in_place;
};

/* Replace the operator r->op by canonical nodes (canon_ops.c). */
struct ww_canon_value ww_canon_lower(struct ww_canon_reader *r);

/* The whole graph; the nodes of its outputs into *outputs (malloc'ed) and *n_outputs.  Parts that are missing or of
 * another type: WW_ERR_PROTOCOL. */
enum ww_rc ww_canon_read(struct ww_canon_reader *r, struct ww_canon *c, const json_t *graph, int **outputs,
	int *n_outputs, struct ww_err *err) WW_MUST_CHECK;
void ww_canon_reader_release(struct ww_canon_reader *r);

/* The value that a JSON argument refers to; NULL where it is no reference. */
const struct ww_canon_value *ww_canon_ref(const struct ww_canon_reader *r, const json_t *arg);
