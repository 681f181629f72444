/* gemm.h - what the files of this folder share.
 *
 * gemm.c lowers a product to an anchor and schedules it; operands.c says how an anchor's operands lie, cost.c what its
 * kernels take and which is the fastest, print.c writes text. */
#pragma once

#include "policy/planner/anchor/anchor.h"

struct pl_end;

/* ww::gemm_any, ww::gemm_thin or ww_cpu_gemm_thin, ww::gemm_short, ww::gemm_mma, ww::gemm16, ww::gemm3 */
enum form { ANY, THIN, SHORT, MMA, HALF, SPLIT };

/* ---- operands.c */
/* The size that is summed over. */
const struct ix *pl_gemm_inner(const struct anchor *s);
/* The type of the operands; the result's type may be wider. */
int pl_gemm_dt(const struct anchor *sp);
/* An operand's stride along dimension d of the batch; -1: 0. */
const struct ix *pl_gemm_stride(struct pl *pl, const struct anchor *sp, int which, int d);
/* Can the batch axes from..to-1 of an operand be traversed by one stride? */
int pl_gemm_one_stride(const struct operand *o, int from, int to);
/* Is the operand contiguous along k? */
int pl_gemm_is_along(const struct anchor *sp, int which);
/* Is the second operand not contiguous along n? */
int pl_gemm_is_nk(const struct anchor *sp);
/* Is one matrix the operand of all batches, so that gemm3 and gemm16 can read it as one?  gemm3 only its first. */
int pl_gemm_is_one(const struct anchor *sp, int which);
/* Does gemm16 read the operand as it is, not a copy along k with aligned rows? */
int pl_gemm_is_read(const struct anchor *sp, int which);
/* Are both operands contiguous along k or across it, so that gemm16 reads them or copies of them? */
int pl_gemm_fits16(const struct anchor *sp);
/* Can the library read the operands: rows do not overlap, and one stride leads from batch to batch? */
int pl_gemm_fits_library(const struct anchor *sp);
/* Elements that gemm_mma copies by one instruction, as ww_mma_vector() of the recipe. */
int pl_gemm_vector(const struct anchor *sp, int which);
/* The type of the library's result: fp32 if a reader follows after which PyTorch rounds (a bias, which may cancel it).
 */
int pl_gemm_library_dt(const struct anchor *sp);

/* ---- cost.c, cuda */
/* The columns of gemm3's or gemm16's tile, which has 128 rows, and how many pairs of warpgroups share it. */
struct pl_gemm_tile {
	int bn, pairs;
};
/* The fastest by the estimate, with what the search set; half: gemm16's. */
struct pl_gemm_tile pl_gemm_tile_of(const struct pl *pl, const struct anchor *sp, const struct knobs *kn, int half);
/* Blocks that share the columns' operand of gemm16, where tiles have so many. */
int pl_gemm_cluster(const struct pl *pl, const struct anchor *sp, int cols);
/* The form with the least time; *library: the library takes less, with this end (NULL: a pass behind it computes the
 * rest); *least: of all. */
enum form pl_gemm_best_form(
	struct pl *pl, const struct anchor *sp, const struct pl_end *end, int *library, double *least);
/* Does gemm_mma take less, with all columns in one tile, if it computes the first operand than if another kernel stores
 * it? */
int pl_gemm_computes(struct pl *pl, const struct anchor *s, int which);
/* Does gemm_mma, which reads operand `which` by two batch strides, take less than copying both operands and the product
 * of the copies? */
int pl_gemm_reads_two_strides(const struct pl *pl, const struct anchor *s, int which);
/* Can t, which is s or s transposed, end in what spares so many reads of the result, for less than these take? */
int pl_gemm_pays(struct pl *pl, const struct anchor *s, const struct anchor *t, int reads);
/* Is t, which is s transposed, slower by no more than its result takes to be read once, or does it pay with an end that
 * spares so many reads? */
int pl_gemm_turn_pays(struct pl *pl, const struct anchor *s, const struct anchor *t, int reads);

/* ---- print.c */
extern const struct knob_row pl_gemm_cpu_knobs[], pl_gemm_cuda_knobs[];
void pl_gemm_print_cpu(struct pl *pl, struct kern *k, struct ww_str *s);
void pl_gemm_print_cuda(struct pl *pl, struct kern *k, struct ww_str *s);
