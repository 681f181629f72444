/* recipe/gemm_short.h - the shape of gemm_short's blocks and its estimated time.  Plans choose the shape by it; the
 * planner chooses the kind of product. */
#ifndef WW_RECIPE_GEMM_SHORT_H
#define WW_RECIPE_GEMM_SHORT_H

#include <ww/recipe/gemm_tile.h>

/* Columns of a thread, those that leave the fewest empty (129: five, not twice four); K as the kernel has it; blocks.
 */
static int ww_short_columns(long long n)
{
	int best = 1;

	for (int columns = 2; columns <= 5; columns++)
		if (ww_mma_up(n, 32 * columns) * columns <= ww_mma_up(n, 32 * best) * best)
			best = columns;
	return best;
}
static int ww_short_k(long long k) { return k <= 8 ? 8 : k <= 12 ? 12 : 16; }
static long long ww_short_blocks(long long m, long long n, long long batch)
{
	return ww_mma_up(m, 64) * ww_mma_up(n, 32LL * ww_short_columns(n)) * batch;
}

/* Microseconds on an H200, not measured: memory, or instructions, with a dozen for an element's end. */
static double ww_short_us(const struct ww_mma_size *s)
{
	const double waves = (double)ww_mma_up(ww_short_blocks(s->m, s->n, s->batch), 2 * s->sms), k = ww_short_k(s->k);
	const double memory = 4.0 * (double)s->batch * ((double)s->m * (double)(s->k + s->n) + (double)(s->n * s->k)) /
		3.5e6;
	const double issued = waves * 2 * 8 * 8 * (ww_short_columns(s->n) * (k + 20) + 2 * k) / (4 * 0.6 * 1755);

	return 3 + (memory > issued ? memory : issued);
}

#endif
