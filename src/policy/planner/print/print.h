/* print.h - writes schedules as C and CUDA text.  Nothing is decided here.
 *
 * Statements of plan.c that add a kernel's nodes go to k->launch.  In a format of pl_named(), and where a comment says
 * "with @", @ stands for the kernel's name. */
#pragma once

#include "policy/planner/schedule/schedule.h"

/* pl_fmt() with @ for the name of k. */
const char *pl_named(struct pl *pl, const struct kern *k, const char *fmt, ...) WW_PRINTF(3, 4);
/* The text, each line indented by so many tabs. */
const char *pl_indent(struct pl *pl, const char *text, int tabs);
/* Declare the variables of the n axes, computed from the linear index `lin`. */
void pl_decode(
	struct pl *pl, struct ww_str *s, const char *tabs, const struct ix_atom *const *axis, int n, const char *lin);
/* "WW_F32"; the name of a library's arithmetic for operands of type dt, `f32` if they are float. */
const char *pl_dtype_name(int dt);
const char *pl_math_name(int dt, const char *f32);

/* ---- Launches: a buffer's name in plan.c, an operand's offset in bytes, the ww_arg_buf() lines of a kernel. */
const char *pl_plan_buf(struct pl *pl, const struct buf *b);
const char *pl_bytes(struct pl *pl, const struct operand *o);
const char *pl_plan_args(struct pl *pl, struct kern *k, const char *tabs);

/* ---- Functors of an anchor */
/* Declare the variables of the anchor's axes from..to-1, computed from the linear index `lin`; of axis d, from `name`.
 */
const char *pl_axes(struct pl *pl, const struct kern *k, int from, int to, const char *lin);
const char *pl_axis(struct pl *pl, const struct kern *k, int d, const char *name);
const char *pl_var_or(const struct ix *x, const char *name);

/* cpu: declare local pointers to the kernel's buffers, from the launch's arguments ("arg") or a context ("c"). */
void pl_cpu_pointers(struct pl *pl, struct kern *k, struct ww_str *s, const char *from);
/* cpu: pl_cpu_context() writes struct NAME with a pointer for each buffer.  pl_cpu_functor() writes a function: head
 * (with @), the pointers out of its context, more declarations, its statements.  pl_cpu_kernel() writes the kernel: it
 * makes the context from the launch's arguments after the first `first` and calls a template (with @) with it. */
void pl_cpu_context(struct pl *pl, struct kern *k, struct ww_str *s);
void pl_cpu_functor(
	struct pl *pl, struct kern *k, struct ww_str *s, const char *head, const char *decl, const char *body);
/* The suffix of a template's name for operands of type dt: "", "_f16", "_bf16". */
const char *pl_cpu_suffix(int dt);
void pl_cpu_kernel(struct pl *pl, struct kern *k, struct ww_str *s, const char *first, const char *call);

/* cuda: pl_cuda_functor() writes struct NAME_f with the buffers, more members and store(params, acc).  pl_cuda_kernel()
 * writes the kernel, whose parameters are the template's and then the buffers, and which calls the template (`call`,
 * with @, up to its functor). */
void pl_cuda_functor(
	struct pl *pl, struct kern *k, struct ww_str *s, const char *members, const char *params, const char *decl);
void pl_cuda_kernel(
	struct pl *pl, struct kern *k, struct ww_str *s, const char *bounds, const char *params, const char *call);
/* The functor of kernel k, for adjacent channels of a pixel: store(image, pix, chan, acc). */
void pl_cuda_pixel_functor(struct pl *pl, struct kern *k, struct ww_str *s);
/* A kernel behind a library call: the statement `node` of plan.c makes the library write scratch library_y of type dt
 * and shape (batch, rows, cols); then `template` with the functor runs. */
void pl_cuda_after_library(struct pl *pl, struct kern *k, struct ww_str *s, const char *template, const char *node,
	int dt, const struct ix *batch, const struct ix *rows, const struct ix *cols);
/* The kernel's buffers as parameters of a __global__ function. */
const char *pl_cuda_params(struct pl *pl, struct kern *k);
/* The first statement of each __global__ function. */
const char *pl_cuda_first(const struct pl *pl);

/* ---- cpu.c, cuda.c: a kernel as text, and its launch; the cookbook's headers for kernels.*, and pl->recipes, those
 * for plan.c */
void pl_print_cpu(struct pl *pl, struct kern *k, struct ww_str *s);
void pl_print_cuda(struct pl *pl, struct kern *k, struct ww_str *s);
const char *pl_headers_cpu(struct pl *pl);
const char *pl_headers_cuda(struct pl *pl);
/* plan.c: the node of a segment that PyTorch runs; the whole file. */
const char *pl_print_segment(struct pl *pl, const struct segment *s);
void pl_print_plan(struct pl *pl);
/* print.c: both files of a solution */
void pl_print(struct pl *pl);
