/* own_work.h - do a plan's own kernels do the task's work, or a library (flag library_only)? */
#pragma once

#include "judge/image.h"

#include <jansson.h>

enum ww_own_work {
	WW_WORK_OWN,    /* no library node */
	WW_WORK_BOTH,   /* launches and library nodes; the task has work that the library nodes do not do */
	WW_WORK_LIBRARY /* no launch, or the library nodes do all the work */
};
/* graph: the task's ATen graph (borrowed); half: ww_half_operands(); algebraic: the verdict's flag. */
enum ww_own_work ww_judge_own_work(const json_t *graph, int half, int algebraic, const struct ww_image *m);
/* 1: the task has half or bfloat16 tensors, so its half-precision products are not fp32 products split into parts. */
int ww_half_operands(const struct ww_facts *f);
int ww_library_node(const struct ww_image *m, uint32_t node); /* 1: a matrix product or a convolution by a library */
