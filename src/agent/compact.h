/* compact.h - the compact prompt: what a small model is told, in about a thousand tokens of its own vocabulary.
 *
 * It is one text for training, `eval` and `optimize`; a checkpoint says that it was trained with it (nn/settings.h).
 * The task is its ATen graph, a node a line, since a small model cannot read Python; docs/policies.md has the form.
 * Files are written as blocks of code in the answer, in every loop, so that a single turn and a turn of many look the
 * same; calls carry no files.
 */
#pragma once

#include "agent/agent.h"

/* What the system text depends on. */
struct ww_compact {
	enum ww_target target;
	enum ww_loop loop;
	enum ww_rule rule;
	unsigned baselines; /* bit per enum ww_baseline */
	int turns;
};

enum { WW_COMPACT_OUTPUT_MAX_BYTES = 1200 }; /* of a tool, in text */

/* malloc'ed; NULL out of memory, as all texts here. */
char *ww_compact_system(const struct ww_compact *c);
/* The user's message.  `inspect`: what the tool inspect answers (ww_tool_inspect_data()). */
char *ww_compact_task(const json_t *inspect);
/* What is shown of a tool's text. */
char *ww_compact_output(const char *text, size_t n);
/* The tools that the system text describes, in its order; *n 0 in loops without tools. */
const struct ww_tool_spec *ww_compact_tools(enum ww_loop loop, size_t *n);

/* The graph as text, below what is there already: inputs, parameters, a line for each node, outputs. */
void ww_graph_text(const json_t *graph, struct ww_str *out);
