/* recipe/gemm_tile.h - estimates the time of gemm_mma with each tile, and chooses the best one.  Plans choose the tile
 * by it; the planner chooses the kind of product.  And what does a row that gemm3 has split.
 *
 * Fitted to 406 measurements on an H200 (bench/results/products.md): 8 to 12% off; the chosen tile takes 1% longer than
 * the fastest. */
#ifndef WW_RECIPE_GEMM_TILE_H
#define WW_RECIPE_GEMM_TILE_H

struct ww_mma_size {
	long long m, n, k, batch;
	int bytes;              /* of an element, 4 or 2 */
	int a_vector, b_vector; /* elements of one copy of each operand */
	long long sms;
	int computed; /* the kernel computes the first operand, so that all columns are in one tile */
};

struct ww_mma_tile {
	int bm, bn, split;
	double us;
};

/* Of a tile: blocks that fit on an SM; clocks of a step of K (128 bytes), for each of so many blocks, and for a block
 * alone on its SM. */
struct ww_mma_clocks {
	int bm, bn, held, work, alone;
};

static const struct ww_mma_clocks *ww_mma_tiles(int bytes)
{
	static const struct ww_mma_clocks fp32[] = { { 64, 64, 3, 1220, 1560 }, { 128, 128, 1, 1930, 4230 },
		{ 128, 64, 2, 2435, 2435 }, { 64, 32, 4, 860, 1150 }, { 32, 32, 7, 530, 820 }, { 16, 64, 5, 600, 870 }, { 0 } };
	static const struct ww_mma_clocks fp16[] = { { 64, 64, 4, 700, 910 }, { 128, 128, 2, 1740, 2080 },
		{ 128, 64, 2, 1180, 1530 }, { 64, 32, 5, 530, 970 }, { 32, 32, 8, 350, 790 }, { 16, 64, 6, 435, 660 }, { 0 } };

	return bytes == 4 ? fp32 : fp16;
}

static long long ww_mma_up(long long a, long long b) { return (a + b - 1) / b; }

/* Clocks of `h` concurrent blocks on an SM, from start to end. */
static double ww_mma_wave(const struct ww_mma_size *s, const struct ww_mma_clocks *t, int split, long long h)
{
	const int fp32 = s->bytes == 4, bk = 128 / s->bytes, vector = 16 / s->bytes;
	/* a warp's copies beyond one of 16 bytes a thread: 9 clocks each */
	const double copies = 9.0 / 32 *
		((double)t->bm * bk / s->a_vector + (double)t->bn * bk / s->b_vector - (double)(t->bm + t->bn) * bk / vector);
	const double steps = (double)ww_mma_up(ww_mma_up(s->k, bk), split), tile = (double)t->bm * t->bn * (double)h;
	const double all = (double)h * (t->work + copies), one = t->alone + copies;

	return steps * (all > one ? all : one) + (fp32 ? 90 + .035 * tile : 900 + .11 * tile) +
		(split == 1    ? 0
				: fp32 ? 1050 + .2 * tile
					   : 2000 + .065 * tile);
}

static double ww_mma_us(const struct ww_mma_size *s, const struct ww_mma_clocks *t, int split)
{
	const long long blocks = ww_mma_up(s->m, t->bm) * ww_mma_up(s->n, t->bn) * s->batch * split;
	/* the blocks of a cluster start together in one GPC, which leaves some of its SMs free */
	const long long sms = split == 1 ? s->sms : s->sms * 10 / 11, on_one = ww_mma_up(blocks, sms > 0 ? sms : 1);
	const long long steps = ww_mma_up(ww_mma_up(s->k, 128 / s->bytes), split), rest = on_one % t->held;
	const double clocks = (double)(on_one / t->held) * ww_mma_wave(s, t, split, t->held) +
		(rest ? ww_mma_wave(s, t, split, rest) : 0);
	const double cache = (double)blocks * (double)steps * (t->bm + t->bn) * 128 / 5.5e6;
	const double results = (double)s->batch * (double)s->m * (double)s->n * s->bytes; /* beyond the second level */
	const double memory = ((double)s->batch * (double)(s->m + s->n) * (double)s->k * s->bytes +
							  (results > 50e6 ? results : 0)) /
		4.2e6;
	double us = clocks / 1755;

	us = us > cache ? us : cache;
	return (s->bytes == 4 ? 1.7 : 1.05) + (us > memory ? us : memory);
}

/* bm 0: computed, and no tile has so many columns. */
static struct ww_mma_tile ww_mma_choose(const struct ww_mma_size *s)
{
	struct ww_mma_tile best = { 0 };

	for (const struct ww_mma_clocks *t = ww_mma_tiles(s->bytes); t->bm; t++)
		for (int split = 1; split <= 8; split *= 2) {
			struct ww_mma_tile now = { t->bm, t->bn, split, 0 };

			if (s->computed && t->bn < s->n)
				break;
			if (split > 1 && ww_mma_up(s->k, 128 / s->bytes) < 2 * split)
				break;
			now.us = ww_mma_us(s, t, split);
			if (!best.bm || now.us < best.us)
				best = now;
		}
	return best;
}

/* Runs of 128 words of a row that a warp holds; 0: a block does a row.  A block takes as long for a row of 600 words as
 * for one of 2,048 (some 2,000 instructions of warps, most of them of words beyond the end), so where there are more
 * rows than blocks at once, a warp each is faster. */
static inline int ww_split_held(long long words, long long rows, long long sms)
{
	return words <= 512 || (words <= 1024 && rows >= 16 * sms) ? (int)ww_mma_up(words, 128) : 0;
}

#endif
