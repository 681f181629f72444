/* recipe/conv_tile.h - the tile and the end of conv_tc, what a thread of conv_direct computes, and estimates of what
 * both kernels take.  Plans choose by them; the planner chooses between the kernels and a library. */
#ifndef WW_RECIPE_CONV_TILE_H
#define WW_RECIPE_CONV_TILE_H

/* tn images, th rows and tw columns of pixels; how many of them a convolution has. */
struct ww_conv_tile {
	int tw, th, tn;
	long long tiles;
};

static inline long long ww_conv_up(long long a, long long b) { return (a + b - 1) / b; }

static inline int ww_conv_gcd(int a, int b) { return b ? ww_conv_gcd(b, a % b) : a; }

static inline double ww_conv_more(double a, double b) { return a > b ? a : b; }
static inline double ww_conv_less(double a, double b) { return a < b ? a : b; }

/* A tile of bn pixels with this width and height for n images of h x w. */
static inline struct ww_conv_tile ww_conv_tile(int bn, int tw, int th, long long n, long long h, long long w)
{
	struct ww_conv_tile t = { tw, th, bn / tw / th, 0 };

	t.tiles = ww_conv_up(w, tw) * ww_conv_up(h, th) * ww_conv_up(n, t.tn);
	return t;
}

/* Transposed: the best one of any width, or of width tw; no tiles: none fits.  Of equals the squarest: adjacent taps
 * then read mostly the same cache lines. */
static inline struct ww_conv_tile ww_conv_square_tile(int bn, int tw, long long n, long long h, long long w)
{
	static const int widths[4] = { 16, 32, 8, 64 };
	struct ww_conv_tile best = { 0, 0, 0, 0 };

	for (int i = 0; i < 4; i++)
		for (int th = bn / widths[i]; th >= 1; th /= 2) {
			struct ww_conv_tile t = ww_conv_tile(bn, widths[i], th, n, h, w);

			if ((!tw || tw == widths[i]) && (!best.tiles || t.tiles < best.tiles))
				best = t;
		}
	return best;
}

/* Microseconds of conv_tc's tensor copies for 64 channels of a tile; filters that it has room for, but that are not
 * there, cost more than others. */
static inline double ww_conv_stage_us(long long k, int filters, int bn)
{
	static const double COPIES = 78e3, MISSING = 0.34;

	return (filters + bn) * 128 / COPIES + (k < filters ? MISSING * (double)(filters - k) / 64 : 0);
}

/* Microseconds of a transposed conv_tc without its packing, tiles of 256 pixels and 128 output channels, c input
 * channels and so many taps, on so many multiprocessors.  A tile has a multiprocessor to itself, so that its end
 * (single elements where the image is odd, which no vector divides) adds to its products; copies run beside both (48
 * filters of three dimensions, KernelBench level1/61: 2,570 us, 1,740 by products and ends, H200). */
static inline double ww_conv_transposed_us(long long tiles, long long k, long long c, double taps, int odd, int sms)
{
	double work = 256.0 * 128 * 64 * (double)ww_conv_up(c, 64) * taps, columns = (double)ww_conv_up(k, 128);
	double end = 1.5 + (odd ? 15 : 3.5) * (double)k / (128 * columns);

	return (double)ww_conv_up(tiles * (long long)columns, sms) *
		ww_conv_more(work / 2.86e6 + end, (double)ww_conv_up(c, 64) * taps * ww_conv_stage_us(k, 128, 256));
}

/* conv_tc: n images of c channels to k of oh x ow pixels, so many taps, strides sh, sw; in tiles of 128 filters, or of
 * 64.  Slices in three dimensions are planes.  Transposed (ww_conv_beside()): so many phases are tiles of their own,
 * `beside` ones rows of a tile beside each other, of results with rows of `line`; k counts these rows.  0 is 1, or ow.
 * exact: by pairs of fp16, of a stage 32 channels. */
struct ww_conv_forward {
	long long n, c, k, oh, ow;
	double taps;
	int sh, sw, filters;
	long long planes;
	int phases, beside;
	long long line;
	int exact;
};

/* Zeros in front of a row of a filter's taps, which count as padding, too: the phases' pieces then begin where a vector
 * does, if one divides the image's rows (`line`).  Pieces that began one element before took 4 times as long to store
 * (four single elements for each of 4 vectors; KernelBench level2/44, H200). */
static inline int ww_conv_ahead(int stride, int pad, long long line)
{
	return line % 2 ? 0 : (stride - pad % stride) % stride;
}

/* A transposed convolution c, whose taps are all of a filter's, s of them along the width with this padding and
 * dilation, as conv_tc has it staged, or where the horizontal stride is 1; no images: it has not.  depth: its stride.
 * Of taps of depth and height each phase has its own, along the width all have as many as the longest. */
static inline struct ww_conv_forward ww_conv_beside(
	const struct ww_conv_forward *c, long long s, int pad, int dil, int depth)
{
	struct ww_conv_forward f = *c;
	int sw = c->sw, ahead = ww_conv_ahead(sw, pad, c->ow);

	if (8 % sw || (sw > 1 && dil != 1))
		return (struct ww_conv_forward){ 0 };
	f.k = c->k * sw;
	f.oh = ww_conv_up(c->oh, c->sh);
	f.ow = (c->ow - 1 + pad + ahead) / sw - (pad + ahead) / sw + 1;
	f.taps = c->taps / (double)s / c->sh / depth * (double)ww_conv_up(s + ahead, sw);
	f.sh = f.sw = 1;
	f.phases = c->sh;
	f.beside = sw;
	f.line = c->ow;
	return f;
}

/* How its results reach memory: from registers; by way of shared memory; the same by two pairs of warpgroups that take
 * turns, tiles of 128 pixels, with 64 filters of 256. */
enum ww_conv_end { WW_CONV_REGISTERS = 1, WW_CONV_STAGED, WW_CONV_PAIRS };

struct ww_conv_way {
	int end, bn, filters;
	struct ww_conv_tile tile;
	double us;
};

/* Microseconds without packing: 34 measurements of ten convolutions, 30 of them by part, on an H200; 31 within 10%, one
 * off by 34% (bench/results/convolutions.md).  A tile's end adds to its products, but for pairs; copies run beside
 * both. Of stores each line of 128 bytes that an instruction meets counts, and, of results beyond L2, sectors of which
 * neighbouring tiles write a part each. */
static inline double ww_conv_forward_us(
	const struct ww_conv_forward *c, int end, int bn, const struct ww_conv_tile *t, int sms)
{
	static const double WORK = 3.75e6, PAIRS = 2.55e6 / 3 /* gemm3's */, LINE = 0.65e-3, RESULT = 0.05, APART = 1.1,
						APART_STAGED = 0.57, TURN = 2.5, L2_MB = 50, LAUNCH = 4;
	long long line = c->line ? c->line : c->ow;
	int staged = end != WW_CONV_REGISTERS, vec = line % 4 == 0 ? 4 : line % 2 == 0 ? 2 : 1;
	int phases = c->phases ? c->phases : 1, wide = t->tw * (c->beside ? c->beside : 1);
	double planes = (double)(c->planes ? c->planes : 1) * phases;
	int run = !staged ? 8 : wide < 32 * vec ? wide : 32 * vec; /* of a plane, in an instruction */
	int at = ww_conv_gcd(32, (int)(line % 32));                /* rows begin at multiples of it */
	int filters = c->filters ? c->filters : 128;
	double columns = (double)ww_conv_up(c->k, filters), tiles = (double)t->tiles * columns * planes,
		   waves = (double)ww_conv_up((long long)tiles, sms);
	int channels = c->exact ? 32 : 64; /* of a stage */
	double steps = (double)ww_conv_up(c->c, channels) * c->taps;
	double products = steps * bn * filters * channels / (c->exact ? PAIRS : WORK);
	double copies = steps * ww_conv_stage_us(c->k, filters, bn);
	double results = (double)c->n * (double)c->oh * (double)c->ow * (double)c->k * planes, mb = 4e-6 * results;
	double piece = wide < line ? wide
		: phases > 1           ? (double)line
							   : (double)t->th * (double)line,
		   turn, single, ending, stores, apart;

	/* bn / tw rows of pixels, each with its own address; odd ones are stored one element after the other */
	single = vec > 1 ? 1 : staged ? 2.6 : 1.9;
	ending = staged ? (5.7 + 0.02 * 256 / t->tw) * single : 4.3 * single + 0.1 * 256 / t->tw;
	stores = LINE * results / tiles / run * (staged || vec > 1 ? 1 : 2) * (1 + (run - ww_conv_less(at, run)) / 32);
	ending = ending * bn / 256 * filters / 128 + stores;
	apart = ww_conv_less(1, (1 - ww_conv_less(at, 8) / 8) * 16 / piece) * ww_conv_more(mb - L2_MB, 0) *
		(staged ? APART_STAGED : APART);
	if (end == WW_CONV_PAIRS) {
		turn = ww_conv_more(products + TURN, ww_conv_more((products + ending) / 2, copies));
		return LAUNCH + waves * turn + ending + mb * RESULT + apart;
	}
	turn = ww_conv_more(products + ending, copies + stores);
	return LAUNCH + waves * turn + mb * RESULT + apart;
}

/* The fastest way by the estimate with this end and these pixels a tile, of any width or of width tw, whose box of the
 * image a tensor copy can have; no tiles: none fits.  Of about equal ones the widest, of one image as far as it can be.
 */
static inline struct ww_conv_way ww_conv_way(const struct ww_conv_forward *c, int end, int bn, int tw, int sms)
{
	int filters = c->filters ? c->filters : 128;
	struct ww_conv_way best = { end, bn, filters, { 0, 0, 0, 0 }, 0 };

	for (int wide = bn; wide >= 8; wide /= 2)
		for (int th = bn / wide; th >= 1; th /= 2) {
			struct ww_conv_tile t = ww_conv_tile(bn, wide, th, c->n, c->oh, c->ow);
			double us;

			if ((tw && tw != wide) || wide * c->sw > 256 || th * c->sh > 256)
				continue;
			us = ww_conv_forward_us(c, end, bn, &t, sms);
			if (!best.tile.tiles || us < 0.99 * best.us)
				best = (struct ww_conv_way){ end, bn, filters, t, us };
		}
	return best;
}

/* The pixels of a tile of an exact one: sums are promoted, so that a thread has registers for 64 results.  0: none. */
static inline int ww_conv_exact_pixels(int end, int filters)
{
	return end == WW_CONV_PAIRS ? 0 : end == WW_CONV_STAGED && filters == 64 ? 256 : 128;
}

/* The fastest exact one of those with `end` and tw: of up to 64 filters, tiles of 64, whose results leave registers
 * 128 pixels at a time, or shared memory 256. */
static inline struct ww_conv_way ww_conv_best_exact(const struct ww_conv_forward *c, int end, int tw, int sms)
{
	struct ww_conv_way best = { 0, 0, 0, { 0, 0, 0, 0 }, 0 };
	struct ww_conv_forward f = *c;

	for (int filters = 128; filters >= 64; filters /= 2)
		for (int e = WW_CONV_REGISTERS; e <= WW_CONV_STAGED; e++) {
			struct ww_conv_way w;

			if ((end && e != end) || (c->filters ? filters != c->filters : filters == 64 && c->k > 64))
				continue;
			f.filters = filters;
			w = ww_conv_way(&f, e, ww_conv_exact_pixels(e, filters), tw, sms);
			if (w.tile.tiles && (!best.tile.tiles || w.us < 0.97 * best.us))
				best = w;
		}
	return best;
}

/* In place of `best`: tiles of 64 filters and 128 pixels, whose results leave registers, where all are one wave and a
 * forward convolution's of few steps.  Nothing hides the end of one wave from pairs (64 channels to 191, 5 x 5, of
 * 111 x 24: 30.7 us with its packing, 38 before); but of many steps each waits for its copies, longer than with two
 * pairs (416 channels to 768, 7 x 7, 343 steps: 48 us more of 265, H200).  `us` stays that of `best`: the estimate of
 * the new tile does not know that. */
static inline struct ww_conv_way ww_conv_one_wave(
	const struct ww_conv_forward *c, struct ww_conv_way best, int tw, int sms)
{
	static const double GAIN = 0.9, MOST_STEPS = 48;
	struct ww_conv_forward f = *c;
	struct ww_conv_way w;
	double tiles;

	f.filters = 64;
	w = ww_conv_way(&f, WW_CONV_REGISTERS, 128, tw, sms);
	tiles = (double)w.tile.tiles * (double)ww_conv_up(c->k, 64) * (double)(c->planes ? c->planes : 1);
	if ((double)ww_conv_up(c->c, 64) * c->taps > MOST_STEPS || c->phases || c->filters == 128 || !best.tile.tiles ||
		!w.tile.tiles || tiles > sms || w.us >= GAIN * best.us)
		return best;
	w.us = best.us;
	return w;
}

/* The fastest one of those with `end`, bn and tw, 0 being any.  Ends that are not from registers have to gain more than
 * the estimate may be off.  Of up to 64 filters half of a tile of 128 would be of none: where their number in a tile is
 * open, two pairs on tiles of 64 are one more way (64 filters, 17 images of 128 x 128: 58 us in place of 108; 64 images
 * of 256 x 256: 701 in place of 1,381).  On rows that two divides and four does not, two of 128 filters took 1.12 and
 * 1.15 times the estimate.  With 128 filters tiles of 64 were slower; rows that no vector divides were not measured. */
static inline struct ww_conv_way ww_conv_best_way(const struct ww_conv_forward *c, int end, int bn, int tw, int sms)
{
	struct ww_conv_way best = { 0, 0, 0, { 0, 0, 0, 0 }, 0 };
	struct ww_conv_forward few = *c;
	struct ww_conv_way w;

	if (c->exact)
		return ww_conv_best_exact(c, end, tw, sms);
	for (int e = WW_CONV_REGISTERS; e <= WW_CONV_PAIRS; e++) {
		int pixels = e == WW_CONV_PAIRS ? c->filters == 64 ? 256 : 128 : bn ? bn : 256;

		if ((end && e != end) || (!end && bn && pixels != bn) || (e == WW_CONV_REGISTERS && c->beside > 1))
			continue;
		w = ww_conv_way(c, e, pixels, tw, sms);
		if (w.tile.tiles && (!best.tile.tiles || w.us < 0.97 * best.us))
			best = w;
	}
	few.filters = 64;
	if (!c->filters && c->k <= 64 && (c->line ? c->line : c->ow) % 2 == 0 && (!end || end == WW_CONV_PAIRS) &&
		(!bn || bn == 256)) {
		w = ww_conv_way(&few, WW_CONV_PAIRS, 256, tw, sms);
		w.us *= (c->line ? c->line : c->ow) % 4 ? 1.15 : 1;
		if (w.tile.tiles && (!best.tile.tiles || w.us < 0.97 * best.us))
			best = w;
	}
	return end > WW_CONV_REGISTERS || (bn && bn != 128) ? best : ww_conv_one_wave(c, best, tw, sms);
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

/* The taps of the height that one pixel sees. */
static inline int ww_conv_seen(const struct ww_conv_columns *c)
{
	return c->transposed ? (int)ww_conv_up(c->r, c->stride / ww_conv_gcd(c->stride, c->dil)) : c->r;
}

/* Rows of the image below each other that pt pixels of a column span: of one phase, where it is transposed. */
static inline int ww_conv_span(const struct ww_conv_columns *c, int pt)
{
	int gcd = ww_conv_gcd(c->stride, c->dil);

	return c->transposed ? pt + (ww_conv_seen(c) - 1) * (c->dil / gcd) : (pt - 1) * c->stride + (c->r - 1) * c->dil + 1;
}

/* Threads of the launch. */
static inline long long ww_conv_threads(const struct ww_conv_columns *c, struct ww_conv_thread t)
{
	int apart = c->transposed ? c->stride : 1;

	return c->n * c->groups * ww_conv_up(c->kg, t.kt) * c->columns * apart * ww_conv_up(c->oh, (long long)t.pt * apart);
}

/* Output channels share the loads of the image, pixels those of weights and of rows: as many as leave some threads for
 * every lane of the device.  Tiles of a group are of equal size; at most a fifth of the pixels is wasted. */
static inline struct ww_conv_thread ww_conv_thread(const struct ww_conv_columns *c, int sms)
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
static inline double ww_conv_direct_us(
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
