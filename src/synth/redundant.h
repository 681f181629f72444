/* redundant.h - does a graph compute something that it does not need?  Internal to src/synth. */
#pragma once

#include "base/str.h"

#include <jansson.h>

/* Look for operations without effect in a graph (docs/formats/bridge.md, "graph"): repeated idempotent functions, what
 * cancels, reductions over one element, neutral numbers, results that nobody uses.  1: `why` says the first one found.
 */
int ww_synth_redundant(const json_t *graph, struct ww_str *why);
