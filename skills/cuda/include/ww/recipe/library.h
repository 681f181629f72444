/* recipe/library.h - library nodes with a suitable workspace, and the plan half of <ww/library.cuh>. */
#ifndef WW_RECIPE_LIBRARY_H
#define WW_RECIPE_LIBRARY_H

#include <ww/plan.h>
#include <ww/recipe/common.h>

/* A convolution by cuDNN: c->workspace_bytes is set here, enough for copies of all operands in another layout; only
 * what the algorithm needs is allocated. */
static inline void ww_recipe_conv_library(struct ww_plan *p, struct ww_conv *c)
{
	long long x = c->n * c->c, w = c->c * c->k / c->groups, y = c->n * c->k;

	for (int i = 0; i < c->nd; i++)
		x *= c->in[i], w *= c->kernel[i], y *= c->out[i];
	c->workspace_bytes = ww_min(1LL << 36, (64LL << 20) + 16 * (x + w + y));
	ww_conv(p, c);
}

/* A product by cuBLASLt: g->workspace_bytes is set here, as much as PyTorch gives it on this GPU. */
static inline void ww_recipe_gemm_library(struct ww_plan *p, struct ww_gemm *g)
{
	g->workspace_bytes = 32LL << 20;
	ww_gemm(p, g);
}

/* Defines and launch sizes of a kernel over a library node's result. */
static inline void ww_after_library_define(
	struct ww_plan *p, const char *kernel, long long rows, long long cols, int vec, int runs)
{
	if (cols % vec)
		ww_fail(p, "after_library: rows are not a multiple of the vectors");
	ww_tunable(p, kernel, "ROWS", rows);
	ww_tunable(p, kernel, "COLS", cols);
	ww_tunable(p, kernel, "VEC", vec);
	ww_tunable(p, kernel, "RUNS", runs);
}

/* A kernel over a library node's result y, (batch, rows, cols), `vec` neighbouring columns at a time.  Leading
 * arguments: const T *y, long long rows (of all batches). */
static inline void ww_recipe_after_library(
	struct ww_plan *p, const char *kernel, int y, long long batch, long long rows, long long cols, int vec)
{
	enum { BLOCK = 256, RUNS = 4 };

	ww_after_library_define(p, kernel, rows, cols, vec, RUNS);
	ww_launch(p, kernel, ww_cdiv(batch * rows * cols / vec, BLOCK * RUNS), 1, 1, BLOCK, 1, 1);
	ww_arg_buf(p, y, 0);
	ww_arg_i64(p, batch * rows);
}

/* Of tiles of 128 / runs rows and 32 * runs columns those that are filled best. */
static inline int ww_turned_runs(long long rows, long long cols)
{
	long long least = 0;
	int best = 2;

	for (int i = 0; i < 3; i++) {
		const int runs = (int[]){ 2, 4, 1 }[i];
		long long all = ww_cdiv(rows, 128 / runs) * ww_cdiv(cols, 32 * runs);

		if (!least || all < least) {
			least = all;
			best = runs;
		}
	}
	return best;
}

/* The same for a transposed y, (batch, cols, rows): a tile of 128 / RUNS rows a block. */
static inline void ww_recipe_after_library_turned(
	struct ww_plan *p, const char *kernel, int y, long long batch, long long rows, long long cols, int vec)
{
	const int runs = ww_turned_runs(rows, cols);

	ww_after_library_define(p, kernel, rows, cols, vec, runs);
	ww_launch(p, kernel, batch * ww_cdiv(rows, 128 / runs) * ww_cdiv(cols, 32 * runs), 1, 1, 256, 1, 1);
	ww_arg_buf(p, y, 0);
	ww_arg_i64(p, batch * rows);
}

#endif
