/* own_work.h - does a plan do the task's work, or a library? */
#pragma once

#include "judge/image.h"

#include <jansson.h>

enum ww_own_work {
	WW_WORK_OWN,    /* no library node */
	WW_WORK_BOTH,   /* launches and library nodes, and the task asks for more than the latter do */
	WW_WORK_LIBRARY /* no launch, or none with anything left to compute */
};
/* graph: the task's; half: ww_half_operands(); algebraic: of the verdict. */
enum ww_own_work ww_judge_own_work(const json_t *graph, int half, int algebraic, const struct ww_image *m);
/* 1: the task has half or bfloat16 operands, so that products of them are no parts of wider ones. */
int ww_half_operands(const struct ww_facts *f);
int ww_library_node(const struct ww_image *m, uint32_t node); /* a matrix product or a convolution */
