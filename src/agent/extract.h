/* extract.h - a solution's files from a message, for policies without tools (--loop single, refine).
 *
 * The rule, which the prompt states: each file is a fenced block of code.  A block belongs to the file that its info
 * string or its first line names ("```cuda kernels.cu", "// kernels/add.cu", "# kernel.py").  A block without a name is
 * recognised by what it defines: void plan( is plan.c, class ModelNew the Python file of the form, anything else in C
 * or CUDA of a plan its kernels.  The last block of a file counts. */
#pragma once

#include "base/err.h"
#include "judge/solution.h"

/* Call put() for each file, in the order of the text; *n counts them. */
enum ww_rc ww_extract_files(const char *text, enum ww_form form, enum ww_target target,
	enum ww_rc (*put)(void *ctx, const char *name, const char *code, size_t bytes, struct ww_err *err), void *ctx,
	int *n, struct ww_err *err) WW_MUST_CHECK;
