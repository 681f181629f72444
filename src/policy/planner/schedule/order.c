/* order.c - what a build with convolutions takes, as far as the order of their dimensions changes it (cuda).
 *
 * A graph with convolutions is planned twice, in PyTorch's order and channels-last, and the cheaper build is tried
 * first (search.c).  In PyTorch's order cuDNN turns operands and result of its TF32 and half-precision engines itself,
 * by a kernel each; channels-last our own kernels turn what is not stored so, or read it across.  Everything else is
 * bytes over the speed of memory: sizes in L2 and latencies are the same in both.  A build that rounds to TF32 what
 * PyTorch computes without (conv.exact) is left to the search.
 *
 * The numbers are fitted to calls and kernels measured on an H200 (bench/results/convolutions.md).  On another GPU they
 * are of another size, but the ratios between them change little. */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/loop.h"

#include <ww/recipe/conv_few_tile.h>

#include <math.h>
#include <stdlib.h>

/* The time of the smallest kernel: of the library, a pointwise one of ours, one with reductions. */
static const double LAUNCH_US = 1.5, POINT_US = 2, ROWS_US = 3;
/* Bytes and multiply-adds of a microsecond; FP32: of cuDNN's engines for PyTorch's order, without tensor cores. */
static const double OUR_BYTES = 4.0e6, TF32_WORK = 160e6, HALF_WORK = 280e6, FP32_WORK = 10e6;
/* Of rows that clusters of blocks hold, which wait for each other. */
static const double CLUSTER_BYTES = 2.2e6;
/* The part of these that cuDNN's gradients in three dimensions reach (six of fp32 and stride 1: .16 to .28, .59 and
 * .7). */
static const double GRADIENT_3D = .25;
/* The same of strides beyond 1, as pl_is_slow_stride() has them: many taps; dilated (one of each). */
static const double STRIDED_3D = .02, DILATED_3D = .05;
/* Of other gradients with a stride, fp32 (twelve KernelBench problems of two and three dimensions: 68 to 98 million,
 * the calls of convolutions.md less); in three dimensions with up to 32 filters (level1/73, level2/15, 74: 45 to 52).
 */
static const double STRIDED_WORK = 80e6, STRIDED_FEW_3D = 50e6;
/* Of lines with dilation, fp32, but for gradients with a stride: channels-last 20 to 39 million (KernelBench level1/74,
 * 76 and two calls), in PyTorch's order, without what turns, 25 to 170: other engines. */
static const double DILATED_LINE_LAST = 30e6, DILATED_LINE = 60e6;
/* Of up to 64 filters, whose tiles are less efficient. */
static const double TF32_FEW = 115e6, HALF_FEW = 206e6;
/* The part of TF32's that is reached in two dimensions with more than 16 taps (.54 with 35 taps, KernelBench
 * level1/56; .65 and .7 with 25), and a step of the loop there (three tasks of 25 to 81 taps, K of 3,200 to 20,736 and
 * few tiles: .55 to 1.1 us; 16 taps take .05; of halves not measured). */
static const double LARGE = .54, LARGE_STEP_US = .55;
/* The same in three dimensions, of 33 to 64 filters (KernelBench level1/61 and 68: 55 and 62; with 24 filters,
 * level1/70, TF32_FEW). */
static const double TF32_FEW_3D = 60e6;
/* Of products on planes that 16 bytes do not divide: kernels that load single elements, of Turing in 16 bits. */
static const double UNALIGNED_FP32 = 15e6, UNALIGNED_HALF = 22e6;
/* An engine's first loads and last tiles, and a step of its loop, 32 terms of a sum in fp32 and 64 in 16 bits, which
 * the last tile takes however few there are; weights packed by our template. */
static const double ENGINE_US = 4, ENGINE_STEP_US = .05, PACK_US = 4;
/* Multiply-adds of cuDNN's depthwise kernels for channels-last (five of 3 x 3 to 7 x 7: 2.6 to 5 million). */
static const double DEPTHWISE_WORK = 3.5e6;
/* Products of an element and a tap, each for all filters of a group, of cuDNN's kernel for fp32 in PyTorch's order
 * where a group has as many channels as filters, at most GROUP_FILTERS (8, 16, 16 and 24: 65 to 80 thousand, and no
 * faster for fewer filters). */
static const double GROUP_WORK = 68e3;
enum { GROUP_FILTERS = 24 };
/* Of cuDNN's products, a filter of one element, in either order (six of 48 to 256 channels: 2.5 to 3.1 MB/us). */
static const double PRODUCT_BYTES = 2.8e6;
/* A multiply-add of our direct template, whose loads wait for each other. */
static const double STEP_US = .05;
/* cuDNN's kernels that turn a tensor: so much for each element of the shorter side of the planes that they turn, at
 * most TURN_FP32 or TURN_HALF; and the one that rounds an input to TF32 in front of engines for few filters. */
static const double TURN_BYTES = 0.175e6, TURN_FP32 = 3.5e6, TURN_HALF = 2.4e6, ROUND_BYTES = 2.8e6;
/* Of our template's results of transposed convolutions beyond L2, and of cuDNN's of an image's channels. */
static const double TEMPLATE_BYTES = 0.57e6, L2_BYTES = 50e6, FEW_BYTES = 0.31e6;

/* Of the time of a convolution in halves, whose parts were measured, but not together. */
static const double UNMEASURED = 0.85;

static double bytes_of(const struct ix *const *size, int rank, int dt)
{
	double n = (double)pl_itemsize(dt);

	for (int d = 0; d < rank; d++)
		n *= (double)ix_num(size[d]);
	return n;
}

static double buffer_bytes(const struct buf *b) { return bytes_of(b->size, b->rank, b->dt); }

/* ---- Kernels of ours --------------------------------------------------------------------------------------------- */

/* How many neighbouring elements a thread reads through an offset: a window's, along an axis that is no row's. */
static double run_of(const struct kern *k, const struct ix *off)
{
	double run = 1;

	for (int i = 0; i < off->n; i++) {
		const struct ix_atom *v = off->m[i].n == 1 && off->m[i].c == 1 ? off->m[i].atom[0] : NULL;
		int is_row = 0;

		for (int d = 0; d < k->n_row; d++)
			is_row |= k->row[d] == v;
		if (v && v->kind == IX_VAR && !is_row)
			run *= (double)ix_num(v->b);
	}
	return run;
}

/* How many times its bytes an access costs: neighbours along `lane` that are apart use a part of each sector of 32.
 * So do stores of a row kernel whose rows are neighbours in memory, unless it turns them: the few rows of a warp fill a
 * part of a sector, and memory is written in such parts (KernelBench level2/91: 1.1 GB in some 2 ms). */
static double sectors(struct pl *pl, const struct kern *k, const struct ix *off, const struct ix_atom *lane, int dt)
{
	const struct ix *one = ix_const(pl, 1);
	double most = 32.0 / (double)pl_itemsize(dt),
		   apart = (double)llabs((long long)(ix_num(ix_subst(pl, off, &lane, &one, 1)) - ix_num(off)));

	return apart > 1 ? fmax(fmin(apart, most) / run_of(k, off), 1) : 1;
}

/* What a kernel loads, each buffer once, and what it stores. */
static double traffic(struct pl *pl, struct kern *k, const struct ix_atom *lane)
{
	struct ww_arena_mark mark = ww_arena_mark(&pl->arena);
	const struct ix *off[256];
	struct buf *buf[256];
	double bytes = 0;

	for (int i = 0, n = pl_all_loads(pl, k, off, buf, 256); i < n; i++) {
		int again = 0;

		for (int e = 0; e < i; e++)
			again |= buf[e] == buf[i];
		if (!again)
			bytes += buffer_bytes(buf[i]) * (lane ? sectors(pl, k, off[i], lane, buf[i]->dt) : 1);
	}
	for (int o = 0; o < k->n_out; o++) {
		const struct buf *b = k->out[o]->root;

		bytes += buffer_bytes(b) *
			(lane && !k->loop->turned ? sectors(pl, k, pl_offset(pl, b, k->out_idx[o]), lane, b->dt) : 1);
	}
	/* It is a number alone: the walks of a network of hundreds of kernels would fill the memory. */
	ww_arena_rewind(&pl->arena, mark);
	return bytes;
}

/* What neighbouring threads differ in, of short rows these themselves; NULL: what lies across is read by whole sectors.
 */
static const struct ix_atom *along(const struct kern *k)
{
	int64_t columns = 1;

	if (k->loop->across)
		return NULL;
	if (k->loop->lane)
		return k->loop->lane;
	for (int c = 0; c < k->n_col; c++)
		columns *= ix_num(k->col[c]->b);
	return columns < 32 && k->n_row ? k->row[k->n_row - 1] : k->n_col ? k->col[k->n_col - 1] : NULL;
}

/* ---- Convolutions ------------------------------------------------------------------------------------------------ */

/* The part of tiles that `size` fills, where they are of `tile`, or of a smaller power of two. */
static double filled(int64_t n, int64_t least, int64_t tile)
{
	int64_t t = n <= least ? least : tile;

	return (double)n / (double)((n + t - 1) / t * t);
}

/* x, w or y turned by cuDNN: its channels and what lies within them change places. */
static double turned_us(const struct ix *const *size, int rank, int dt)
{
	double plane = 1, shorter, rate = dt == WW_F32 ? TURN_FP32 : TURN_HALF;

	for (int d = 2; d < rank; d++)
		plane *= (double)ix_num(size[d]);
	shorter = fmin((double)ix_num(size[1]), plane);
	return LAUNCH_US + 2 * bytes_of(size, rank, dt) / fmin(rate, TURN_BYTES * shorter);
}

static int is_strided_gradient(const struct anchor *s)
{
	int strided = 0;

	for (int e = 0; e < s->conv.nd; e++)
		strided |= s->conv.stride[e] > 1;
	return s->conv.transposed && s->conv.groups == 1 && strided;
}

/* A line with dilation, at so many multiply-adds; else 0. */
static double dilated_line_us(const struct anchor *s, double rate)
{
	double taps;

	return s->conv.nd == 1 && s->conv.dil[0] > 1 && s->conv.groups == 1 && s->out->dt == WW_F32 &&
			!is_strided_gradient(s)
		? pl_conv_work(s, &taps) / rate
		: 0;
}

/* Is it forward, of two dimensions and without groups, and has more than 16 taps?  Its channels fill 16 bytes: of 17
 * PyTorch's engine for 9 x 9 did without TF32. */
static int is_large_image(const struct anchor *s, double taps)
{
	return s->conv.nd == 2 && s->conv.groups == 1 && !s->conv.transposed && taps > 16 &&
		ix_num(s->in[0].size[1]) % 4 == 0;
}

/* The engine's time where operands and result lie channels-last, in 16 bits or fp32.  Each group has tiles of its own.
 */
static double engine_us(const struct anchor *s, int half)
{
	int64_t groups = s->conv.groups, c = ix_num(s->in[0].size[1]) / groups, k = ix_num(s->out->size[1]) / groups;
	int few = groups == 1 && k <= 64, tile = groups > 1 || (half && !few) ? 32 : 64;
	double taps, work = pl_conv_work(s, &taps), rate = half ? few ? HALF_FEW : HALF_WORK : few ? TF32_FEW : TF32_WORK;
	double step = ENGINE_STEP_US;

	if (s->conv.nd == 3 && few && !half && !s->conv.transposed && k > 32)
		rate = TF32_FEW_3D;
	if (is_large_image(s, taps)) {
		rate *= half ? 1 : LARGE;
		step = s->out->dt == WW_F32 ? LARGE_STEP_US : step;
	}
	if (c == 1 && k == 1)
		return ENGINE_US + work / DEPTHWISE_WORK;
	if (pl_is_slow_gradient(s))
		rate *= GRADIENT_3D;
	else if (pl_is_slow_stride(s))
		rate *= s->conv.dil[0] > 1 || s->conv.dil[1] > 1 || s->conv.dil[2] > 1 ? DILATED_3D : STRIDED_3D;
	else if (is_strided_gradient(s) && !half)
		rate = fmin(rate, s->conv.nd == 3 && k <= 32 ? STRIDED_FEW_3D : STRIDED_WORK);
	return ENGINE_US + ceil((double)c * taps / (half ? 64 : 32)) * step +
		work / (filled(c, 4, 32) * filled(k, tile, tile)) / rate;
}

/* A kernel of one element and no stride is a product, which cuDNN computes in either order. */
static int is_product(const struct anchor *s)
{
	if (s->conv.groups > 1)
		return 0;
	for (int e = 0; e < s->conv.nd; e++)
		if (!ix_is(s->in[1].size[2 + e], 1) || s->conv.stride[e] != 1 || s->conv.pad[e])
			return 0;
	return 1;
}

/* What a convolution moves, each of x, w and y once. */
static double moved(const struct anchor *s)
{
	int rank = 2 + s->conv.nd, dt = s->out->dt;

	return bytes_of(s->in[0].size, rank, dt) + bytes_of(s->in[1].size, rank, dt) + bytes_of(s->out->size, rank, dt);
}

/* Is it a transposed convolution whose channels do not fill 16 bytes?  No engine on tensor cores is for these. */
static int is_few_transposed(const struct anchor *s)
{
	return s->conv.transposed && ix_num(s->in[0].size[1]) * pl_itemsize(s->out->dt) < 16;
}

/* What cuDNN's engine takes, its operands and result in the order that it wants: turned by it, or so from the start. */
static double engine_alone_us(const struct anchor *s)
{
	double few = is_few_transposed(s) ? bytes_of(s->out->size, s->out->rank, s->out->dt) / FEW_BYTES : 0;

	return LAUNCH_US +
		fmax(few, fmax(engine_us(s, s->out->dt != WW_F32), moved(s) / (is_product(s) ? PRODUCT_BYTES : OUR_BYTES)));
}

static double library_us(const struct anchor *s)
{
	return fmax(engine_alone_us(s), dilated_line_us(s, DILATED_LINE_LAST));
}

/* Is a product for each image one of planes that 16 bytes do not divide? */
static int is_unaligned(const struct anchor *s)
{
	int64_t plane = 1;

	for (int d = 2; d < 2 + s->conv.nd; d++)
		plane *= ix_num(s->out->size[d]);
	return plane > 1 && plane * pl_itemsize(s->out->dt) % 16 != 0;
}

/* A product for each image, in PyTorch's order. */
static double product_us(const struct anchor *s)
{
	int half = s->out->dt != WW_F32;
	double taps, work = pl_conv_work(s, &taps);

	if (!is_unaligned(s))
		return library_us(s);
	return LAUNCH_US + fmax(work / (half ? UNALIGNED_HALF : UNALIGNED_FP32), moved(s) / PRODUCT_BYTES);
}

/* Is it one of fp32 whose groups have a few channels and as many filters, but not one?  cuDNN has no engine on tensor
 * cores for it in PyTorch's order. */
static int is_small_groups(const struct anchor *s)
{
	int64_t groups = s->conv.groups, c = ix_num(s->in[0].size[1]), k = ix_num(s->out->size[1]);

	return groups > 1 && groups < c && c == k && c / groups <= GROUP_FILTERS && s->out->dt == WW_F32 &&
		!s->conv.transposed;
}

/* The library's time in PyTorch's order: it transposes operands and result around the engine, which widens channels
 * that do not fill 16 bytes, or, for channels of less than that, takes an engine that reads that order. */
static double unturned_us(const struct anchor *s)
{
	int rank = 2 + s->conv.nd, dt = s->out->dt;
	double turned, taps, engine = fmax(engine_alone_us(s), dilated_line_us(s, DILATED_LINE));

	if (is_product(s))
		return product_us(s);
	if (is_few_transposed(s))
		return engine;
	if (is_small_groups(s))
		return fmax(engine, pl_conv_work(s, &taps) / (double)(ix_num(s->out->size[1]) / s->conv.groups) / GROUP_WORK);
	turned = engine + turned_us(s->in[0].size, rank, dt) + turned_us(s->in[1].size, rank, dt) +
		turned_us(s->out->size, rank, dt);
	return dt == WW_F32 && ix_num(s->in[0].size[1]) < 4
		? fmin(turned,
			  moved(s) / OUR_BYTES + pl_conv_work(s, &taps) / filled(ix_num(s->out->size[1]), 32, 32) / FP32_WORK)
		: turned;
}

int pl_is_beyond_l2(const struct anchor *s) { return bytes_of(s->out->size, s->out->rank, s->out->dt) > L2_BYTES; }

static int depth_stride(const struct anchor *s) { return s->conv.nd < 3 ? 1 : (int)s->conv.stride[0]; }

/* s for conv_tc; a line is an image of one row. */
static struct ww_conv_forward as_image(const struct anchor *s, int filters)
{
	int nd = s->conv.nd, line = nd == 1;
	struct ww_conv_forward c = { .n = ix_num(s->out->size[0]),
		.c = ix_num(s->in[0].size[1]),
		.k = ix_num(s->out->size[1]),
		.oh = line ? 1 : ix_num(s->out->size[nd]),
		.ow = ix_num(s->out->size[1 + nd]),
		.taps = 1,
		.sh = line ? 1 : (int)s->conv.stride[nd - 2],
		.sw = (int)s->conv.stride[nd - 1],
		.filters = filters,
		.exact = pl_conv_by_pairs(s),
		.planes = nd < 3 ? 1 : ix_num(s->out->size[2]) };

	for (int e = 0; e < nd; e++)
		c.taps *= (double)ix_num(s->in[1].size[2 + e]);
	if (s->conv.transposed)
		c.planes = ww_conv_up(c.planes, depth_stride(s)) * depth_stride(s);
	return c;
}

/* What a transposed convolution of ours takes to store what does not stay in L2, where it is not staged: a tile has 16
 * pixels of a row in each of 128 planes, of these every stride-th one, but where a block does both halves of a row. */
static double stores_us(const struct anchor *s, const struct ww_conv_forward *c)
{
	double bytes = bytes_of(s->out->size, s->out->rank, s->out->dt) - L2_BYTES;

	return fmax(bytes, 0) * (double)(c->sw == 2 && c->ow % 4 == 0 ? 1 : c->sw) / TEMPLATE_BYTES;
}

/* A transposed convolution, each phase in tiles of its own. */
static double apart_us(const struct pl *pl, const struct anchor *s)
{
	const struct ww_conv_forward c = as_image(s, 0);
	int64_t h = ww_conv_up(c.oh, c.sh), w = ww_conv_up(c.ow, c.sw);
	struct ww_conv_tile t = ww_conv_square_tile(256, 0, c.n, h, w);

	return fmax(stores_us(s, &c),
		ww_conv_transposed_us(t.tiles * c.planes * c.sh * c.sw, c.k, c.c, c.taps / (depth_stride(s) * c.sh * c.sw),
			c.oh * c.ow % 2 != 0, pl->dev.sm_count));
}

struct ww_conv_way pl_conv_way(const struct pl *pl, const struct anchor *s, const struct knobs *kn)
{
	struct ww_conv_forward c = as_image(s, kn->conv.filters);
	int nd = s->conv.nd;

	if (s->conv.transposed)
		c = ww_conv_beside(
			&c, ix_num(s->in[1].size[1 + nd]), (int)s->conv.pad[nd - 1], (int)s->conv.dil[nd - 1], depth_stride(s));
	return c.n ? ww_conv_best_way(&c, kn->conv.end, c.filters == 64 ? 0 : kn->conv.bn, kn->conv.tw, pl->dev.sm_count)
			   : (struct ww_conv_way){ 0 };
}

int pl_conv_is_apart(const struct pl *pl, const struct anchor *s, const struct ww_conv_way *way)
{
	return s->conv.transposed && (!way->tile.tiles || apart_us(pl, s) <= way->us);
}

double pl_conv_exact_us(const struct anchor *s, int sms)
{
	/* multiply-adds a microsecond of a multiprocessor; few tiles may be split */
	static const double WORK = 0.15e6;
	double results = (double)pl_numel_now(s->out), filters = (double)ix_num(s->out->size[1]), taps;
	double terms = results > 0 ? pl_conv_work(s, &taps) / results : 0;
	double tiles = ceil(results / filters / 128) * ceil(filters / 64);

	return LAUNCH_US + tiles / sms * 128 * 64 * terms / WORK;
}

double pl_conv_tc_us(const struct pl *pl, const struct anchor *s)
{
	const struct knobs none = { 0 };
	const struct ww_conv_way way = pl_conv_way(pl, s, &none);
	int rank = 2 + s->conv.nd, apart = pl_conv_is_apart(pl, s, &way);
	/* phases beside each other each read all of a filter for its scale */
	double reads = s->conv.transposed && !apart ? (double)s->conv.stride[s->conv.nd - 1] : 1;
	double c = (double)ix_num(s->in[0].size[1]), written = pl_conv_by_pairs(s) ? 32 * ceil(c / 32) / c : 0.5;
	double packed = bytes_of(s->in[0].size, rank, WW_F32) + reads * bytes_of(s->in[1].size, rank, WW_F32);

	return 5 * LAUNCH_US + PACK_US + (2 + written) * packed / OUR_BYTES + (apart ? apart_us(pl, s) : way.us);
}

double pl_conv_few_us(const struct pl *pl, const struct anchor *s)
{
	const struct ix *const *y = s->out->size, *const *w = s->in[1].size;
	int nd = s->conv.nd, line = nd == 1, deep = nd == 3;
	struct ww_conv_few_way way;

	if (s->conv.library_only || s->conv.wide == WIDE || (s->out->dt != WW_F32 && !pl_is_half(s->out->dt)) ||
		s->conv.groups > 1 || s->conv.transposed || ix_num(s->in[0].size[1]) > WW_CONV_FEW_CHANNELS || pl->dev.cc != 90)
		return INFINITY;
	way = ww_conv_few_way(&(struct ww_conv_few){ .n = ix_num(y[0]) * (deep ? ix_num(y[2]) : 1),
							  .c = ix_num(s->in[0].size[1]),
							  .k = ix_num(y[1]),
							  .oh = line ? 1 : ix_num(y[nd]),
							  .ow = ix_num(y[1 + nd]),
							  .t = deep ? ix_num(w[2]) : 1,
							  .r = line ? 1 : ix_num(w[nd]),
							  .s = ix_num(w[1 + nd]),
							  .stride = { line ? 1 : (int)s->conv.stride[nd - 2], (int)s->conv.stride[nd - 1] },
							  .dil = { line ? 1 : (int)s->conv.dil[nd - 2], (int)s->conv.dil[nd - 1] },
							  .half = s->out->dt != WW_F32 },
		pl->dev.sm_count);
	return way.us > 0 ? LAUNCH_US + (s->out->dt == WW_F32 ? PACK_US : 0) + way.us : INFINITY;
}

double pl_conv_halves_us(const struct anchor *s)
{
	double x = bytes_of(s->in[0].size, 2 + s->conv.nd, WW_F32), w = bytes_of(s->in[1].size, 2 + s->conv.nd, WW_F32),
		   y = bytes_of(s->out->size, s->out->rank, WW_F16);

	return (5 * LAUNCH_US + PACK_US + 2.5 * (x + w) / OUR_BYTES +
			   fmax(engine_us(s, 1), (x / 2 + y) / (is_product(s) ? PRODUCT_BYTES : OUR_BYTES)) + POINT_US +
			   3 * y / OUR_BYTES) /
		UNMEASURED;
}

double pl_conv_direct_us(const struct pl *pl, const struct anchor *s)
{
	const struct ix *const *y = s->out->size, *const *w = s->in[1].size;
	int nd = s->conv.nd, high = nd - 2, wide = nd - 1, up = s->conv.transposed, groups = s->conv.groups;
	struct ww_conv_columns l = { ix_num(y[0]), groups, ix_num(y[1]) / groups, ix_num(y[1 + nd]),
		high < 0 ? 1 : ix_num(y[nd]), high < 0 ? 1 : (int)ix_num(w[nd]), high < 0 ? 1 : (int)s->conv.stride[high],
		high < 0 ? 1 : (int)s->conv.dil[high], up };
	struct ww_conv_thread t;
	double taps, steps = pl_conv_work(s, &taps) / (double)pl_numel_now(s->out), work, memory = moved(s) / OUR_BYTES;

	if (nd == 3)
		l.columns *= ix_num(y[2]);
	t = ww_conv_thread(&l, pl->dev.sm_count);
	work = ww_conv_direct_us(&l, t, steps / ((double)l.r / (up ? l.stride : 1)), pl_itemsize(s->out->dt),
		up ? 1 : (int)s->conv.stride[wide], pl->dev.sm_count);
	return LAUNCH_US + fmax(steps * STEP_US, fmax(work, memory) + 0.2 * fmin(work, memory));
}

double pl_pass_us(double bytes) { return POINT_US + bytes / OUR_BYTES; }

double pl_conv_end_us(const struct anchor *s, int bare)
{
	return bare ? 0 : pl_pass_us(2 * bytes_of(s->out->size, s->out->rank, s->out->dt));
}

double pl_conv_library_us(const struct anchor *s, int bare) { return unturned_us(s) + pl_conv_end_us(s, bare); }

double pl_conv_last_us(const struct anchor *s, int turned)
{
	double x = bytes_of(s->in[0].size, 2 + s->conv.nd, s->out->dt),
		   y = bytes_of(s->out->size, s->out->rank, s->out->dt);

	return library_us(s) + (turned ? 2 * POINT_US + 2 * (x + y) / OUR_BYTES : 0);
}

/* The time of a convolution without what is fused behind it. */
static double convolution_us(const struct pl *pl, const struct kern *k)
{
	const struct anchor *s = k->anchor;

	if (k->loop->library & IN_HALVES)
		return pl_conv_halves_us(s);
	if (k->loop->library & OURS_FEW)
		return pl_conv_few_us(pl, s);
	if (!(k->loop->library & BY_LIBRARY))
		return k->loop->library & OURS_TILED ? pl_conv_tc_us(pl, s) : pl_conv_direct_us(pl, s);
	if (s->conv.last && s->conv.exact && !s->conv.pytorch_last) /* not first: likely wrong */
		return INFINITY;
	if (!s->conv.last) /* products on such planes are without an engine's first loads, as our direct template is */
		return unturned_us(s) + (is_product(s) && is_unaligned(s) ? ENGINE_US : 0);
	return library_us(s) +
		(s->out->dt == WW_F32 && ix_num(s->out->size[1]) < 16
				? LAUNCH_US + 2 * bytes_of(s->in[0].size, 2 + s->conv.nd, WW_F32) / ROUND_BYTES
				: 0);
}

/* How many times as long few rows take as many, each of which has a multiprocessor to itself: the last round of them
 * leaves some idle. */
static double rounds(const struct pl *pl, const struct kern *k)
{
	double rows = (double)ix_num(k->loop->outer), sms = pl->dev.sm_count;

	return k->loop->along == COLUMNS && k->loop->held && !k->loop->cluster && ix_num(k->loop->len) > 8192
		? ceil(rows / sms) * sms / rows
		: 1;
}

/* What the threads of one block that go along rows side by side and hold them take: so many elements a microsecond, 17
 * instructions of each at 2.8 a clock.  Of few rows (a batch norm's of a small image) few multiprocessors have one. */
static double down_us(const struct pl *pl, const struct kern *k)
{
	static const double BLOCK_ELEMENTS = 9.2e3;
	double rows, wide;

	if (k->loop->along != ROWS || !k->loop->held)
		return 0;
	rows = (double)ix_num(k->loop->outer) * (double)ix_num(k->loop->inner);
	wide = rows * 64 < 128.0 * pl->dev.sm_count ? 8 : 32;
	return (double)ix_num(k->loop->len) * wide / BLOCK_ELEMENTS;
}

/* What is fused behind a convolution: a pass over the library's result; else what the end of our kernel, or the pass
 * that halves have in any case, reads. */
static double end_us(struct pl *pl, struct kern *k)
{
	const struct val *y = k->anchor->out;
	double result = bytes_of(y->size, y->rank, y->dt);

	if (!k->loop->store)
		return 0;
	return (k->loop->library & (BY_LIBRARY | IN_HALVES)) == BY_LIBRARY
		? POINT_US + (traffic(pl, k, NULL) + result) / OUR_BYTES
		: fmax(0, traffic(pl, k, NULL) - result) / OUR_BYTES;
}

static double kernel_us(struct pl *pl, struct kern *k)
{
	struct kern *t = k->shared ? (struct kern *)(void *)k->shared : k;
	const struct anchor *s = k->anchor;

	if (k->segment)
		return 0;
	if (k->kind == K_POINT)
		return POINT_US + traffic(pl, t, along(t)) / OUR_BYTES;
	if (k->kind == K_ROW)
		return ROWS_US +
			fmax(down_us(pl, t),
				traffic(pl, t, along(t)) * rounds(pl, t) *
					(!t->loop->held && !t->loop->ring && pl_stores_per_column(t) ? 2 : 1) /
					(t->loop->cluster && !t->loop->ring && ix_num(t->loop->len) > PL_ALONE ? CLUSTER_BYTES
																						   : OUR_BYTES));
	if (s->kind == S_TURN)
		return POINT_US + 2 * buffer_bytes(s->in[0].buf) / OUR_BYTES;
	if (s->kind == S_GEMM) /* the product itself is the same in both */
		return (s->gemm.of_conv ? pl_gemm_us(pl, k) : 0) + end_us(pl, t);
	if (s->kind != S_CONV)
		return 0;
	return convolution_us(pl, k) + end_us(pl, t);
}

double pl_order_us(struct pl *pl)
{
	double us = 0;

	for (int i = 0; i < pl->n_kern; i++)
		us += kernel_us(pl, pl->kern[i]);
	return us;
}
