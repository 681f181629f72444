/* choose.c - which kernel computes a convolution: one of our templates, or the library. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <math.h>

int pl_conv_by_pairs(const struct anchor *sp) { return sp->conv.exact && !sp->conv.transposed; }

/* The template's tiles are 64 filters at least.  Fewer than 32 the library has better engines for, but by pairs. */
static int fits_tensor_cores(const struct pl *pl, const struct anchor *sp)
{
	int strides = 1, least = sp->conv.nd == 2 && !pl_conv_by_pairs(sp) ? 32 : 16;

	for (int e = 0; e < sp->conv.nd; e++)
		strides &= sp->conv.stride[e] <= 8;
	return !sp->conv.library_only && sp->conv.wide < WIDE && sp->out->dt == WW_F32 && sp->conv.groups == 1 &&
		ix_num(sp->in[0].size[1]) >= 16 && ix_num(sp->out->size[1]) >= least && strides &&
		ix_num(sp->out->size[0]) <= 65535 && pl->dev.cc == 90;
}

/* Of results that no 16 bytes divide the library's engines for halves store single elements. */
static int fits_halves(const struct pl *pl, const struct anchor *sp)
{
	return !sp->conv.library_only && !sp->conv.wide && sp->out->dt == WW_F32 && sp->conv.groups == 1 &&
		!sp->conv.transposed && !sp->conv.exact && ix_num(sp->in[0].size[1]) >= 16 &&
		ix_num(sp->out->size[1]) % 8 == 0 && ix_num(sp->out->size[0]) <= 65535 && pl->dev.cc >= 80;
}

double pl_conv_work(const struct anchor *sp, double *taps)
{
	double work = (double)pl_numel_now(sp->out) * (double)ix_num(sp->in[0].size[1]) / sp->conv.groups;

	*taps = 1;
	for (int e = 0; e < sp->conv.nd; e++)
		*taps *= (double)ix_num(sp->in[1].size[2 + e]) / (double)(sp->conv.transposed ? sp->conv.stride[e] : 1);
	return work * *taps;
}

static double filled(const struct ix *size, int64_t tile)
{
	int64_t n = ix_num(size);

	return (double)n / (double)((n + tile - 1) / tile * tile);
}

/* Of what the tensor-core template computes only where it is estimated to be faster by ROOM: its stores have been
 * measured, but not those of phases beside each other, nor in one and three dimensions. */
static const double ROOM = 1.2;

static int is_by_estimate(const struct anchor *sp) { return sp->conv.transposed || sp->conv.nd != 2; }

/* Does our direct template, whose threads have a few pixels, take less time than the library?  cuDNN's tiles are mostly
 * empty where a group has few channels, and channels that do not fill 16 bytes it turns slowly. */
static int is_light(const struct pl *pl, const struct anchor *sp, int bare)
{
	static const double NEAR_US = 1; /* of a draw it is ours, which has no pass behind it */
	double direct = pl_conv_direct_us(pl, sp);

	return direct < 0.9 * pl_conv_library_us(sp, bare) + NEAR_US &&
		(!is_by_estimate(sp) || sp->conv.exact || !fits_tensor_cores(pl, sp) || direct < ROOM * pl_conv_tc_us(pl, sp));
}

/* Multiply-adds of a depthwise convolution along lines in 16 bits, whose threads have one pixel each, from which on
 * the library is faster: 27 million took 1.16 times as long by the library, 415 million .83 (networks, H200). */
static const double LONG_LINES = 1e8;

/* Does the tensor-core template take longer than the library?  The estimates are for convolutions that cuDNN has good
 * engines for. */
static int is_slower(const struct pl *pl, const struct anchor *sp, int bare)
{
	for (int e = 0; e < sp->conv.nd; e++)
		if (sp->conv.dil[e] != 1)
			return 0;
	return !sp->conv.transposed && pl_gains_last(sp, sp->out->size[1]) &&
		pl_conv_library_us(sp, bare) < 0.96 * pl_conv_tc_us(pl, sp);
}

/* Is the tensor-core template so much faster than the library, in either order, that a transposed convolution need not
 * fill its tiles? */
static int is_faster(const struct pl *pl, const struct anchor *sp, int bare)
{
	return ROOM * pl_conv_tc_us(pl, sp) < fmin(pl_conv_library_us(sp, bare), pl_conv_last_us(sp, 1));
}

/* Does the first version pack its operands as halves?  Not below an exponential: results are rounded, too, the largest
 * by as much more as they are larger than the others, and in a softmax those are all that is left. */
static int is_by_halves(const struct pl *pl, const struct anchor *sp, int bare)
{
	double others = fmin(pl_conv_library_us(sp, bare), pl_conv_last_us(sp, 1));

	if (!fits_halves(pl, sp) || sp->conv.exponent)
		return 0;
	if (fits_tensor_cores(pl, sp))
		others = fmin(others, (is_by_estimate(sp) ? ROOM : 1) * pl_conv_tc_us(pl, sp));
	return pl_conv_halves_us(sp) < fmin(others, pl_conv_direct_us(pl, sp));
}

/* conv_few's time where a first version may be it.  The estimate is fitted to twelve convolutions of 3 to 16 channels
 * in fp32; of 32, with a stride of 2, it took 1.5 times as long, and the library less. */
static double few_us(const struct pl *pl, const struct anchor *sp)
{
	return ix_num(sp->in[0].size[1]) > EXACT_CHANNELS && sp->out->dt == WW_F32 ? INFINITY : pl_conv_few_us(pl, sp);
}

double pl_conv_least_us(const struct pl *pl, const struct anchor *sp, int bare)
{
	double us = fmin(pl_conv_library_us(sp, bare), few_us(pl, sp));

	if (sp->conv.last)
		return pl_conv_last_us(sp, 0) +
			(bare ? 0 : pl_pass_us(2 * (double)pl_numel_now(sp->out) * pl_itemsize(sp->out->dt)));
	if (!sp->conv.library_only)
		us = fmin(us, pl_conv_direct_us(pl, sp));
	if (fits_tensor_cores(pl, sp) && !sp->conv.exact)
		us = fmin(us, pl_conv_tc_us(pl, sp));
	return fits_halves(pl, sp) ? fmin(us, pl_conv_halves_us(sp)) : us;
}

/* Multiply-adds of a microsecond of cuDNN's engines without TF32 in PyTorch's order, up to 8 channels and up to 16: the
 * fastest of four and of one (KernelBench level1/50, level2/57, 67 and 21; 25; H200). */
static const double EXACT_EIGHT = 15e6, EXACT_SIXTEEN = 28e6;

/* Is the first version conv_few?  PyTorch computes so few channels without TF32, but beside other convolutions that
 * round its engine may as well; the library's time is then that engine's.  Others have to be 1.15 times as slow, and
 * single taps, which memory bounds, and filters that do not fill its tile of 16 stay with them. */
static int is_few(const struct pl *pl, const struct anchor *sp, int bare)
{
	static const double MORE = 1.15;
	double few = few_us(pl, sp), taps, library;
	int64_t c = ix_num(sp->in[0].size[1]);

	if (few == INFINITY || ix_num(sp->out->size[1]) < 16)
		return 0;
	library = pl_conv_work(sp, &taps) / (c <= 8 ? EXACT_EIGHT : EXACT_SIXTEEN);
	library = sp->conv.exact ? library : 0;
	return taps > 1 && MORE * few < fmin(fmax(library, pl_conv_library_us(sp, bare)), pl_conv_direct_us(pl, sp));
}

/* Does PyTorch compute it without TF32, and the tensor-core template by pairs of fp16 in less time than its engine,
 * with a pass behind that where something is fused?  Up to EXACT_CHANNELS conv_few is for those.  The engine's time is
 * of the kind that was measured, of more channels: 9 to 11 million multiply-adds a us (32 channels to 40 and 45, 96 to
 * 64), 5.6 (17 to 16), by the estimate 12 to 20 and 5; by pairs the time of our kernel is gemm3's. */
static int is_by_pairs(const struct pl *pl, const struct anchor *sp, int bare)
{
	double others = fmin(pl_conv_exact_us(sp, pl->dev.sm_count) + pl_conv_end_us(sp, bare), pl_conv_direct_us(pl, sp));
	double taps;

	pl_conv_work(sp, &taps);
	return pl_conv_by_pairs(sp) && taps > 1 && ix_num(sp->in[0].size[1]) > EXACT_CHANNELS &&
		fits_tensor_cores(pl, sp) && ROOM * pl_conv_tc_us(pl, sp) < others;
}

/* Filters of a tile of the tensor-core template, as its estimate has it (transposed ones were measured with 128). */
static int filters_of(const struct pl *pl, const struct anchor *sp)
{
	const struct knobs none = { 0 };
	struct ww_conv_way way = pl_conv_way(pl, sp, &none);

	return way.tile.tiles && !sp->conv.transposed ? way.filters : 128;
}

/* Does the first version use the library?  Measured on an H200: the tensor-core template beat the library (1.05 to 2.7
 * times) if the work pays for its packing and its tiles of 64 input and 128 or 64 output channels are filled to 0.4, or
 * to 0.25 if dilated and with a fused reader.  Transposed convolutions filled to 0.5 lost (0.7), as did a dilated one
 * with nothing fused (0.77).  conv_direct (a thread a pixel) won for depthwise and for transposed grouped ones (2 to 30
 * times).  The search tries both. */
static int by_library(struct pl *pl, const struct anchor *sp, const struct knobs *kn, int bare)
{
	double taps, work = pl_conv_work(sp, &taps), least = 0.4;
	int groups = sp->conv.groups, depthwise = groups == ix_num(sp->in[0].size[1]),
		line = sp->conv.nd == 1 && pl_is_half(sp->out->dt) && work > LONG_LINES,
		in_groups = groups > 1 && (sp->conv.transposed || (depthwise && !line));

	if (sp->conv.library_only || kn->library > LIBRARY_NO)
		return 1;
	if (kn->library == LIBRARY_NO || kn->plain || in_groups || is_few(pl, sp, bare) || is_light(pl, sp, bare))
		return 0;
	if (sp->conv.exact)
		return !is_by_pairs(pl, sp, bare);
	if (is_by_halves(pl, sp, bare))
		return 1;
	for (int e = 0; e < sp->conv.nd; e++)
		least = sp->conv.dil[e] > 1 && !bare ? 0.25 : least;
	least = sp->conv.transposed ? 0.6 : least;
	if (!fits_tensor_cores(pl, sp) || (work < 1 << 29 && !is_faster(pl, sp, bare)))
		return 1;
	if (is_by_estimate(sp) && is_faster(pl, sp, bare))
		return 0;
	return sp->conv.nd != 2 || taps < 3 ||
		filled(sp->in[0].size[1], 64) * filled(sp->out->size[1], filters_of(pl, sp)) < least || is_slower(pl, sp, bare);
}

/* Is the first version a thread a pixel, although the tensor-core template, which packs its operands and but for pairs
 * rounds as TF32 does, may fit? */
static int is_by_threads(const struct pl *pl, const struct anchor *sp, const struct knobs *kn, int bare)
{
	return kn->library == LIBRARY_AUTO && !is_by_pairs(pl, sp, bare) && (is_light(pl, sp, bare) || sp->conv.exact);
}

int pl_conv_is_tiled(struct pl *pl, const struct anchor *sp)
{
	const struct knobs first = { 0 };

	return pl->target == WW_TARGET_CUDA && !pl_all_plain(pl) && fits_tensor_cores(pl, sp) &&
		!by_library(pl, sp, &first, 0) && !is_by_threads(pl, sp, &first, 0);
}

struct ww_conv_way pl_conv_way_of(struct pl *pl, const struct kern *k)
{
	const struct knobs *kn = pl_knobs(pl, k->id), none = { .conv.filters = kn->conv.filters };
	const struct ww_conv_way apart = { WW_CONV_REGISTERS, kn->conv.bn, 128,
		{ kn->conv.tw <= 64 ? kn->conv.tw : 0, 0, 0, 0 }, 0 };
	struct ww_conv_way way = pl_conv_way(pl, k->anchor, kn);

	if (!way.tile.tiles && (!k->anchor->conv.transposed || kn->conv.end != WW_CONV_REGISTERS))
		way = pl_conv_way(pl, k->anchor, &none);
	if (way.tile.tiles && kn->conv.end > WW_CONV_REGISTERS)
		return way;
	return pl_conv_is_apart(pl, k->anchor, &way) ? apart : way;
}

/* conv_tc, unstaged: where a block does two phases of a row, as ww_recipe_conv_tc() has it. */
int pl_conv_stores_fours(struct pl *pl, const struct kern *k)
{
	const struct anchor *sp = k->anchor;

	return k->loop->form == FEW ||
		(k->loop->form == TENSOR_CORES && ix_num(sp->out->size[1 + sp->conv.nd]) % 4 == 0 &&
			(pl_conv_way_of(pl, k).end != WW_CONV_REGISTERS ||
				(sp->conv.transposed && sp->conv.stride[sp->conv.nd - 1] == 2 && pl_knobs(pl, k->id)->conv.bn != 256)));
}

void pl_conv_choose(struct pl *pl, const struct kern *k, const struct knobs *kn, int bare, struct loop *l)
{
	const struct anchor *sp = k->anchor;
	int few, by = by_library(pl, sp, kn, bare), fit = fits_halves(pl, sp) && !k->out[0]->last,
			 halves = by && fit && (kn->library == LIBRARY_HALVES || (!kn->library && is_by_halves(pl, sp, bare)));

	few = !by && !kn->plain && pl_conv_few_us(pl, sp) < INFINITY &&
		(kn->library == LIBRARY_NO ? sp->conv.exact : is_few(pl, sp, bare));
	l->form = few                                                                     ? FEW
		: !kn->plain && !is_by_threads(pl, sp, kn, bare) && fits_tensor_cores(pl, sp) ? TENSOR_CORES
																					  : DIRECT;
	l->library = (sp->conv.library_only ? LIBRARY_ONLY : 0) | (l->form == TENSOR_CORES ? OURS_TILED : 0) |
		(l->form == TENSOR_CORES && pl_is_beyond_l2(sp) ? OURS_BEYOND_L2 : 0) | (few ? OURS_FEW : 0) |
		(by ? BY_LIBRARY : 0) | (halves ? IN_HALVES : 0) | (fit ? FITS_HALVES : 0);
	l->form = halves ? HALVES : by && k->out[0]->last ? TO_LAST : l->form;
}
