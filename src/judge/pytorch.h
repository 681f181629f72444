/* pytorch.h - operators of the task that a plan leaves to PyTorch (ww_pytorch() of <ww/plan.h>). */
#pragma once

#include "judge/image.h"

#include <jansson.h>

/* How many nodes of the plan are such. */
int ww_pytorch_count(const struct ww_image *m);
/* Those of the first of them; "" where there is none. */
const char *ww_pytorch_names(const struct ww_image *m);
/* The rows of the graph that node i of the plan runs, with what stands around them: {"rows", "reads", "writes"}, for
 * exports; a new reference, NULL: out of memory. */
json_t *ww_pytorch_part(const json_t *graph, const struct ww_image *m, uint32_t node);
