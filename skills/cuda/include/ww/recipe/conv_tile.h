/* recipe/conv_tile.h - the tile of conv_tc's pixels, what a thread of conv_direct computes, and estimates of what both
 * kernels take.  Plans choose by them; the planner chooses between the kernels and a library.
 *
 * conv_tc: fitted to six convolutions on an H200 (bench/results/convolutions.md): 11% off at most. */
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

/* conv_direct for n images of kg output channels in each of so many groups, `columns` columns of oh pixels; r taps in
 * the height, `dil` apart, `stride` the height's. */
struct ww_conv_columns {
	long long n, groups, kg, columns, oh;
	int r, stride, dil, transposed;
};

/* A thread's adjacent output channels and pixels of a column. */
struct ww_conv_thread {
	int kt, pt;
};

static int ww_conv_gcd(int a, int b) { return b ? ww_conv_gcd(b, a % b) : a; }

/* The taps of the height that one pixel sees. */
static int ww_conv_seen(const struct ww_conv_columns *c)
{
	return c->transposed ? (int)ww_conv_up(c->r, c->stride / ww_conv_gcd(c->stride, c->dil)) : c->r;
}

/* Rows of the image below each other that pt pixels of a column span: of one phase, where it is transposed. */
static int ww_conv_span(const struct ww_conv_columns *c, int pt)
{
	int gcd = ww_conv_gcd(c->stride, c->dil);

	return c->transposed ? pt + (ww_conv_seen(c) - 1) * (c->dil / gcd) : (pt - 1) * c->stride + (c->r - 1) * c->dil + 1;
}

/* Threads of the launch. */
static long long ww_conv_threads(const struct ww_conv_columns *c, struct ww_conv_thread t)
{
	int apart = c->transposed ? c->stride : 1;

	return c->n * c->groups * ww_conv_up(c->kg, t.kt) * c->columns * apart * ww_conv_up(c->oh, (long long)t.pt * apart);
}

/* Output channels share the loads of the image, pixels those of weights and of rows: as many as leave some threads for
 * every lane of the device.  Tiles of a group are of equal size; at most a fifth of the pixels is wasted. */
static struct ww_conv_thread ww_conv_thread(const struct ww_conv_columns *c, int sms)
{
	struct ww_conv_thread t = { c->kg < 8 ? (int)c->kg : 8, 4 };
	long long outputs = c->n * c->groups * c->kg * c->columns * c->oh, apart = c->transposed ? c->stride : 1;

	while (t.kt > 1 && outputs / t.kt < 2048LL * sms)
		t.kt = (t.kt + 1) / 2;
	t.kt = (int)ww_conv_up(c->kg, ww_conv_up(c->kg, t.kt));
	while (t.pt > 1 &&
		(5 * c->oh < 4 * t.pt * apart * ww_conv_up(c->oh, t.pt * apart) || outputs / t.kt / t.pt < 512LL * sms ||
			ww_conv_span(c, t.pt) > 16))
		t.pt /= 2;
	return t;
}

/* Microseconds of conv_direct's loads and multiply-adds: `planes` columns of taps for each pixel (its channels, depth
 * and width), of elements that are so many bytes and `apart` from thread to thread.  A multiprocessor loads 32 elements
 * a clock, which weights, the same for all threads, take too, and does 128 operations.  Of that 65% were measured of
 * depthwise convolutions and 15 to 60% of others (H200); with 45% nine choices of ten are those that were measured. */
static double ww_conv_direct_us(
	const struct ww_conv_columns *c, struct ww_conv_thread t, double planes, int bytes, int apart, int sms)
{
	int taps = ww_conv_seen(c), pixels = (t.pt - 1) * (c->transposed ? 1 : c->stride), rows = ww_conv_span(c, t.pt);
	double lines = apart * bytes > 4 ? apart * bytes / 4. : 1, weights = (double)taps * t.kt, loads, operations;

	if (!c->transposed && c->dil % c->stride == 0)
		rows = pixels / c->stride + (taps - 1) * (c->dil / c->stride) + 1;
	if (rows > t.pt * taps)
		rows = t.pt * taps;
	loads = weights + rows * (lines < 8 ? lines : 8);
	operations = (weights * t.pt + (weights + rows) * (bytes < 4 ? 2 : 1)) / 4;
	return (double)ww_conv_threads(c, t) * planes * (loads > operations ? loads : operations) /
		((c->kg == 1 ? 0.65 : 0.45) * 32 * 1755 * sms);
}

#endif
