/* labels.h - whether the operators that a row names are those of its graph. */
#pragma once

#include "base/str.h"

#include <jansson.h>

/* Append what does not agree, in one line: "conv3d is not in the graph; softmax is not named".  A label counts as right
 * where it is an operator of the graph, or a module or function that one of its operators came from; an operator must
 * be named unless it is arithmetic, a reduction or a view.  0: all agree. */
int ww_labels_check(const json_t *ops, const json_t *graph, const char *tokens, struct ww_str *why);
