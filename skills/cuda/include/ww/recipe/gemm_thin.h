/* recipe/gemm_thin.h - the shape of gemm_thin's blocks and its estimated time.  Plans choose the shape by it; the
 * planner chooses the kind of product. */
#ifndef WW_RECIPE_GEMM_THIN_H
#define WW_RECIPE_GEMM_THIN_H

#include <ww/recipe/gemm_tile.h>

/* Columns as gemm_thin has them; warps that share the rows of one, as long as too few blocks are there and each has
 * two steps of K. */
static int ww_thin_columns(long long n) { return n <= 4 ? 4 : n <= 8 ? 8 : 16; }
static int ww_thin_rows(long long n) { return 32 / ww_thin_columns(n); }

static long long ww_thin_blocks(long long m, long long n, long long batch, int parts)
{
	return ww_mma_up(m, 8 / parts * ww_thin_rows(n)) * batch;
}

static int ww_thin_parts(long long m, long long n, long long k, long long batch, int vector, long long sms)
{
	int parts = 1;

	while (parts < 8 && ww_thin_blocks(m, n, batch, parts) < 4 * sms && k >= parts * 2 * 32LL * vector * 2)
		parts *= 2;
	return parts;
}

/* Does a second operand that lies along its columns fit shared memory? */
static int ww_thin_turns(long long n, long long k) { return n * ((k + 3) / 4 * 4 + 4) <= 10240; }

/* Microseconds on an H200, not measured: memory, at 3.2 MB/us where elements are read one by one; the first level,
 * which takes a clock for a line that a warp reads; the sums; and steps of K that wait for memory.  s->a_vector:
 * elements of one load of either operand. */
static double ww_thin_us(const struct ww_mma_size *s, int turned)
{
	const int v = s->a_vector, columns = ww_thin_columns(s->n), rows = ww_thin_rows(s->n);
	const int parts = ww_thin_parts(s->m, s->n, s->k, s->batch, v, s->sms);
	const double groups = (double)ww_mma_up(s->m, rows) * (double)s->batch, clocks = (double)s->sms * 1755;
	const double steps = (double)ww_mma_up(s->k, 32LL * v);
	const double copied = turned
		? 4.0 * (double)ww_thin_blocks(s->m, s->n, s->batch, parts) * (double)(s->n * s->k) / 5.5e6
		: 0;
	const double parts_of[] = { 4.0 * (double)s->batch * (double)s->m * (double)s->k / (v == 1 ? 3.2e6 : 3.6e6),
		groups * steps * (rows + columns) * (v == 1 ? 1.5 : v) / clocks,
		groups * (steps * rows * columns * v + 5.0 * rows * columns * parts) / (3.0 * clocks),
		(double)ww_mma_up(ww_thin_blocks(s->m, s->n, s->batch, parts), 2 * s->sms) *
			((double)ww_mma_up((long long)steps,
				 (v == 4 ? 1
						 : v == 1 && columns < 16 ? 4
												  : 2) *
					 parts) *
					0.75 +
				0.5) };
	double us = 0;

	for (int i = 0; i < 4; i++)
		us = parts_of[i] > us ? parts_of[i] : us;
	return us + copied + 3;
}

#endif
