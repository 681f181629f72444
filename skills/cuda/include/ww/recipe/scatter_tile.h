/* recipe/scatter_tile.h - how many columns a block of ww::scatter_strips has, and threads.  The planner estimates the
 * time by it. */
#ifndef WW_RECIPE_SCATTER_TILE_H
#define WW_RECIPE_SCATTER_TILE_H

enum { WW_SCATTER_SHARED = 227 << 10 }; /* bytes of shared memory that a block can have */

/* Columns of `len` results of a block, of all `columns`: 32, or less where these would not be two blocks for each of
 * `sms` multiprocessors, or would not leave room for two; 8 are the 32 bytes that memory reads at least. */
static long long ww_scatter_strip(long long columns, long long len, long long sms)
{
	long long cols = 32;

	while (cols > 8 && (columns < 2 * sms * cols || 8 * len * cols > WW_SCATTER_SHARED))
		cols /= 2;
	return cols;
}

/* Threads of a block: as many as there can be where each multiprocessor has one. */
static int ww_scatter_strip_threads(long long columns, long long cols, long long sms)
{
	return columns < 2 * sms * cols ? 1024 : 512;
}

#endif
