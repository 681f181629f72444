/* conv.h - what the files of this folder share.
 *
 * conv.c lowers a convolution to an anchor, or to what computes it otherwise: products.c (a product, a reduction),
 * phases.c (transposed ones as forward ones), together.c (several of one input as one).  engines.c says what cuDNN's
 * engines do with it, choose.c which kernel computes it, last.c what is stored channels-last, print.c writes text. What
 * each takes: schedule/order.c. */
#pragma once

#include "policy/planner/anchor/anchor.h"

#include <ww/recipe/conv_few_tile.h>

struct loop;

/* ww::conv_direct; ww::conv_tc; ww::conv_few; the library's convolution of operands packed as halves
 * (ww::after_halves); the library channels-last, whose reader keeps that layout (LAST) or transposes (TURNED); in
 * PyTorch's order, for a reader of pixels' channels (TO_LAST). */
enum form { DIRECT, TENSOR_CORES, FEW, HALVES, LAST, TURNED, TO_LAST };

/* Input channels of fp32 up to which the engines that PyTorch gets for its order may do without TF32: in six tasks of 3
 * to 16 they did on an H200, in none of 24 and more.  Channels-last the library rounds, and the judge leaves no room
 * for that. */
enum { EXACT_CHANNELS = 16 };

/* ---- engines.c */
/* Does PyTorch run s, of node n, without TF32, and would a result of the graph show it if we did not?  By the graph's
 * word (`tf32` of its nodes), or a guess where it has none. */
int pl_conv_is_exact(struct pl *pl, const struct gnode *n, const struct anchor *s);
/* May it by its filters and pixels, if no other convolution rounds? */
int pl_conv_may_be_exact(const struct anchor *s);

/* ---- last.c */
/* Does x lie channels-last already, or as it would? */
int pl_conv_lies_last(struct pl *pl, const struct val *x);
/* Is v what x was stored as, channels-last? */
int pl_is_turned(const struct val *v, const struct val *x);
/* Store x channels-last; rules that read it from now on read that copy. */
struct val *pl_conv_store_last(struct pl *pl, struct gnode *n, struct val *x);

/* ---- phases.c */
/* Makes s a forward convolution of filters turned around, where that is faster: s->in[1].val is then these. */
void pl_conv_make_forward(struct pl *pl, struct anchor *s);
/* cuda, channels-last: a transposed convolution whose gradient cuDNN computes slowly, as one forward convolution for
 * all phases of its stride and a reader that takes them apart.  Taps that a phase lacks are zeros.  NULL: not by the
 * estimates, its stride and dilation have no such form, or PyTorch computes it without TF32, which the forward engine
 * has. */
struct val *pl_conv_by_phases(
	struct pl *pl, struct gnode *n, struct anchor *s, struct val *x, struct val *w, const struct ix *const *out);

/* ---- products.c */
/* The general convolution: x and w as values over (n, k, out..., c, kernel...). */
struct val *pl_conv_by_reduction(struct pl *pl, struct gnode *n, struct anchor *s, struct val *x, struct val *w,
	int rank, const struct ix *const *out);
/* cuda: is that what takes the least time? */
int pl_conv_is_sum(struct pl *pl, const struct anchor *s, const struct ix *const *out);
/* cuda: each channel's convolution alone, along steps that have their channels side by side in memory, as is the
 * result: sums, for which s, the last anchor, is dropped; NULL: it is none. */
struct val *pl_conv_of_steps(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out);
/* The result, of sizes `out`, by a matrix product, for which s, the last anchor, is dropped; NULL: it is none. library:
 * the library, too, computes such operands. */
struct val *pl_conv_by_product(struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w,
	int library, const struct ix *const *out);

/* ---- together.c */
/* The filters w of n and those of later convolutions of its operand x, one behind the other, where one convolution for
 * all is faster by the estimates; else NULL. */
struct val *pl_conv_together(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out);
/* n's part of its result; those of the others wait for pl_conv_given(). */
struct val *pl_conv_part(struct pl *pl, struct gnode *n, struct val *all);

/* ---- choose.c */
/* Microseconds of the kernel that is the fastest by the estimates. */
double pl_conv_least_us(const struct pl *pl, const struct anchor *sp, int bare);
/* Is the first version our template for tensor cores, with something fused behind it? */
int pl_conv_is_tiled(struct pl *pl, const struct anchor *sp);
/* The tensor-core template's tile and end.  Where no tile is as the knobs ask, one is as the estimate has it; without
 * tiles a transposed convolution ends from registers (neighbours in a tile are a stride apart in memory), in the tile
 * that its recipe chooses. */
struct ww_conv_way pl_conv_way_of(struct pl *pl, const struct kern *k);
/* Does our template, conv_tc or conv_few, store four pixels at a time? */
int pl_conv_stores_fours(struct pl *pl, const struct kern *k);
/* Which kernels in PyTorch's order, and enum pl_library_facts of them. */
void pl_conv_choose(struct pl *pl, const struct kern *k, const struct knobs *kn, int bare, struct loop *l);

/* ---- print.c */
extern const struct knob_row pl_conv_cpu_knobs[], pl_conv_cuda_knobs[];
void pl_conv_print_cpu(struct pl *pl, struct kern *k, struct ww_str *s);
void pl_conv_print_cuda(struct pl *pl, struct kern *k, struct ww_str *s);
