/* redundant.h - finds operations without effect in a graph.  Internal to src/synth. */
#pragma once

#include "base/str.h"

#include <jansson.h>

/* Look for operations without effect in a graph (docs/formats/bridge.md, "graph"): repeated idempotent functions, what
 * cancels, reductions over one element, neutral numbers, unused results.  1: `why` says the first one found.
 */
int ww_synth_redundant(const json_t *graph, struct ww_str *why);
