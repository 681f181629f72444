/* pytorch.h - operators of the task that a plan leaves to PyTorch (ww_pytorch() of <ww/plan.h>). */
#pragma once

#include "base/str.h"
#include "judge/image.h"

#include <jansson.h>

/* How many nodes of the plan are such. */
int ww_pytorch_count(const struct ww_image *m);
/* Those of the first of them; "" where there is none. */
const char *ww_pytorch_names(const struct ww_image *m);
/* The rows of the graph that node i of the plan runs, with what stands around them: {"rows", "reads", "writes"}, for
 * exports; a new reference, NULL: out of memory. */
json_t *ww_pytorch_part(const json_t *graph, const struct ww_image *m, uint32_t node);
/* Do their names mean what the task's graph says, and are their buffers large enough?  1, or 0 and one line in `why`.
 * The image has been validated. */
int ww_pytorch_check(const json_t *graph, const struct ww_image *m, struct ww_str *why);
/* 1: an operator of the graph stands in one of them. */
int ww_pytorch_has(const struct ww_image *m, const char *node);
/* Arithmetic of products, convolutions and attentions among them, as library_flops() of algebra.c counts that of
 * libraries. */
double ww_pytorch_flops(const json_t *graph, const struct ww_image *m);
