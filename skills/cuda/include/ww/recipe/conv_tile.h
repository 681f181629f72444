/* recipe/conv_tile.h - the tile of conv_tc's pixels, and an estimate of what the kernel takes.  Plans choose the tile
 * by it; the planner chooses between the kernel and a library.
 *
 * Fitted to six convolutions on an H200 (bench/results/convolutions.md): 11% off at most. */
#ifndef WW_RECIPE_CONV_TILE_H
#define WW_RECIPE_CONV_TILE_H

/* tn images, th rows and tw columns of pixels; how many of them a convolution has. */
struct ww_conv_tile {
	int tw, th, tn;
	long long tiles;
};

static long long ww_conv_up(long long a, long long b) { return (a + b - 1) / b; }

/* The best tile of bn pixels with this width for n images of h x w. */
static struct ww_conv_tile ww_conv_tile(int bn, int tw, long long n, long long h, long long w)
{
	struct ww_conv_tile best = { tw, bn / tw, 1, 0 }, t;

	for (int th = bn / tw; th >= 1; th /= 2) {
		t = (struct ww_conv_tile){ tw, th, bn / tw / th, 0 };
		t.tiles = ww_conv_up(w, tw) * ww_conv_up(h, th) * ww_conv_up(n, t.tn);
		if (!best.tiles || t.tiles < best.tiles)
			best = t;
	}
	return best;
}

/* The best one of any width, or of width tw, whose box of the image, so many strides bh, bw high and wide, a tensor
 * copy can have; no tiles: none fits.  Of equals the squarest: adjacent taps then read mostly the same cache lines. */
static struct ww_conv_tile ww_conv_best_tile(int bn, int tw, long long n, long long h, long long w, int bh, int bw)
{
	static const int widths[4] = { 16, 32, 8, 64 };
	struct ww_conv_tile best = { 0, 0, 0, 0 };

	for (int i = 0; i < 4; i++) {
		struct ww_conv_tile t = ww_conv_tile(bn, widths[i], n, h, w);

		if ((!tw || tw == widths[i]) && widths[i] * bw <= 256 && t.th * bh <= 256 &&
			(!best.tiles || t.tiles < best.tiles))
			best = t;
	}
	return best;
}

/* Microseconds of conv_tc without its packing, tiles of 256 pixels and 128 output channels, c input channels and so
 * many taps, on so many multiprocessors.  A tile has a multiprocessor to itself, so that its end (single elements where
 * the image is odd, which no vector divides) adds to its products. */
static double ww_conv_tc_us(long long tiles, long long k, long long c, double taps, int odd, int sms)
{
	double work = 256.0 * 128 * 64 * (double)ww_conv_up(c, 64) * taps, columns = (double)ww_conv_up(k, 128);
	double end = 1.5 + (odd ? 15 : 3.5) * (double)k / (128 * columns);

	return (double)ww_conv_up(tiles * (long long)columns, sms) * (work / 2.86e6 + end);
}

#endif
