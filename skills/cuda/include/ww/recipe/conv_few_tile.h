/* recipe/conv_few_tile.h - the tile of conv_few, and an estimate of what the kernel takes.  Plans choose the tile by
 * it; the planner chooses between the kernel and a library. */
#ifndef WW_RECIPE_CONV_FEW_TILE_H
#define WW_RECIPE_CONV_FEW_TILE_H

#include <ww/recipe/conv_tile.h>

/* n images of c channels to k of oh x ow pixels, r x s taps; in three dimensions n counts the slices of all results,
 * each of t slices of taps. */
struct ww_conv_few {
	long long n, c, k, oh, ow, t, r, s;
	int stride[2], dil[2];
	int half; /* elements of 16 bits */
};

/* Input channels that conv_few is for; threads of its block; bytes of shared memory that a block can have, and one of
 * two on a multiprocessor, and what a block needs of it besides filters and image. */
enum { WW_CONV_FEW_CHANNELS = 32, WW_CONV_FEW_THREADS = 256, WW_CONV_FEW_SHARED = 232448, WW_CONV_FEW_HALF = 115712 };
enum { WW_CONV_FEW_OWN = 8 * 8 * 40 * 4 + 64 * 4 + 64 };

/* th rows of tw columns of pixels, tw the whole row or a multiple of 32; filters of a tile, tiles of all filters and
 * images; blocks on a multiprocessor; us 0: no tile fits. */
struct ww_conv_few_way {
	int tw, th, filters, resident;
	long long shared, tiles;
	double us;
};

/* Steps of the products, 16 terms of a sum each: pairs of channels at each tap. */
static inline long long ww_conv_few_steps(const struct ww_conv_few *c)
{
	return ww_conv_up((c->c + 1) / 2 * c->t * c->r * c->s, 8);
}

/* Elements of the image, pairs of channels, that a tile reads. */
static inline long long ww_conv_few_items(const struct ww_conv_few *c, int tw, int th)
{
	return c->t * ((th - 1LL) * c->stride[0] + (c->r - 1) * c->dil[0] + 1) *
		((tw - 1LL) * c->stride[1] + (c->s - 1) * c->dil[1] + 1) * ((c->c + 1) / 2);
}

/* How many pixels of a tile are stored at once, as conv_few.cuh has it. */
static inline int ww_conv_few_vector(const struct ww_conv_few *c, int tw, int th)
{
	long long unit = tw < c->ow ? c->ow : (c->oh * c->ow) | (th < c->oh ? (long long)th * c->ow : 0) | (th * tw);

	return unit % 4 == 0 ? 4 : unit % 2 == 0 ? 2 : 1;
}

/* Microseconds on an H200 without packing.  A warp does 32 pixels at a time: instructions of each step, of each 16
 * filters to the end (a bias and an activation, four pixels at once) and of the rest (SASS), four of which a
 * multiprocessor issues in a clock, and beside them an mma in 1.6 clocks, or 128 bytes of shared memory in one.  As 12
 * convolutions of KernelBench took (30 November 2026), by a kernel of other counts, neither hides much of the other:
 * ISSUE and BESIDE are their parts of the time, and a block alone on a multiprocessor takes ALONE times as long.
 * Results go to memory at 17 bytes a clock.  Of 16 bits a third of the products and half of the loads are left, which
 * have not been measured. */
static inline double ww_conv_few_us(const struct ww_conv_few *c, const struct ww_conv_few_way *w, int sms)
{
	static const double CLOCKS = 1755, MMA = 1.6, BYTES = 17, LATENCY = 2500, APART = 2.3, LAUNCH = 1.5, L2_MB = 50;
	static const double STEP = 53, END = 240, REST = 100, FILL = 43, ISSUE = 1.35, BESIDE = 0.75, ALONE = 1.2;
	long long steps = ww_conv_few_steps(c);
	double groups = (double)ww_conv_up(ww_conv_up((long long)w->tw * w->th, 32), 8) * 8, tiles_of = w->filters / 16.0;
	double stores = 0.8 + 0.8 / ww_conv_few_vector(c, w->tw, w->th), part = c->half ? 0.5 : 1;
	double mma = (c->half ? 4 : 12) * tiles_of;
	double issue = ((double)steps * (mma + part * STEP) + END * stores * tiles_of + REST) / 4;
	double products = (double)steps * ww_conv_more(mma * MMA, part * (18 + 8 * tiles_of));
	double results = (double)c->n * (double)c->k * (double)c->oh * (double)c->ow, each = results / (double)w->tiles;
	double piece = w->tw < c->ow ? w->tw : (double)w->th * (double)c->ow;
	double apart = part * 4e-6 * results > L2_MB && c->ow % 8 ? ww_conv_less(1, 16 / piece) : 0;
	double stage = (double)ww_conv_few_items(c, w->tw, w->th) * part * FILL / 128 * ISSUE + LATENCY;
	double end = each * part * 4 / BYTES * (1 + APART * apart) * (c->ow % 2 && w->tw < c->ow ? 2 : 1);
	double tile = (groups * (ISSUE * issue + BESIDE * products) + stage) * (w->resident > 1 ? 1 : ALONE);
	double rounds = (double)ww_conv_up(w->tiles, (long long)sms * w->resident) * w->resident;

	return LAUNCH + rounds * ww_conv_more(tile, end) / CLOCKS;
}

/* The tile of the least time; narrow strips only where no others fit: 32 columns of 254 took 2,765 us, estimated at
 * 2,230, and 128 took 2,253 (KernelBench level2/25, H200). */
static inline struct ww_conv_few_way ww_conv_few_way(const struct ww_conv_few *c, int sms)
{
	enum { STRIP = 128 };
	struct ww_conv_few_way best = { 0, 0, 0, 0, 0, 0, 0 };
	long long steps = ww_conv_few_steps(c), rows = ww_conv_up(c->k, 16), parts = c->half ? 1 : 2;

	for (int most = steps > 16 && !c->half ? 2 : 4; most >= 1; most--) { /* long sums have twice the registers */
		long long columns = ww_conv_up(rows, most);

		for (int wide = c->half ? 2048 : 512; wide >= 32; wide /= 2)
			for (int th = 1; th <= 64 && th <= c->oh; th++) {
				struct ww_conv_few_way w = { wide < c->ow ? wide : (int)c->ow, th, 0, 1, 0, 0, 0 };

				if ((wide > 32 && wide >= 2 * c->ow) || (long long)w.tw * th > 8192 ||
					(best.us > 0 && wide < STRIP && wide < c->ow))
					continue;
				w.filters = 16 * (int)ww_conv_up(rows, columns);
				w.shared = w.filters / 16 * steps * 512 * parts +
					ww_conv_up(ww_conv_few_items(c, w.tw, th), 32) * 128 * parts + steps * 32 + WW_CONV_FEW_OWN;
				if (w.shared > WW_CONV_FEW_SHARED)
					continue;
				w.resident = w.shared <= WW_CONV_FEW_HALF ? 2 : 1;
				w.tiles = c->n * ww_conv_up(c->oh, th) * ww_conv_up(c->ow, w.tw) * columns;
				w.us = ww_conv_few_us(c, &w, sms);
				if (!best.us || w.us < 0.99 * best.us)
					best = w;
			}
	}
	return best;
}

#endif
