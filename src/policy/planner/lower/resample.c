/* resample.c - lowering of padding, pixel and channel shuffles, unfold, fold, interpolation and grid_sample.
 *
 * Each is an index map: the index of the source is arithmetic on the index of the result, and conditions say where it
 * is outside.  Linear interpolation is two gathers and a weight. */
#include "policy/planner/lower/lower.h"

#include "policy/planner/graph/walk.h"

#include <math.h>
#include <string.h>

enum { BY_MODE, CONSTANT, REFLECT, REPLICATE, CIRCULAR };

/* p: padding before and after, for the last dimension first, as in torch.nn.functional.pad. */
static struct val *pad_of(struct pl *pl, struct val *a, const int64_t *p, int np, int how, double fill)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *cond = ix_const(pl, 1);

	for (int d = 0; d < a->rank; d++) {
		int k = 2 * (a->rank - 1 - d);
		int64_t lo = k + 1 < np ? p[k] : 0, hi = k + 1 < np ? p[k + 1] : 0;
		const struct ix *i = ix_addc(pl, pl->place[d], -lo);

		size[d] = ix_addc(pl, a->size[d], lo + hi);
		map[d] = i;
		if ((lo == 0 && hi == 0) || how == CONSTANT) {
			if (lo > 0)
				cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, lo - 1), pl->place[d]));
			if (hi > 0)
				cond = ix_mul(pl, cond, ix_lt(pl, i, a->size[d]));
			continue;
		}
		if (how == CIRCULAR) {
			map[d] = pl_wrap(pl, i, a->size[d]);
			if (lo > 0)
				map[d] = ix_add(pl, map[d], ix_mul(pl, a->size[d], ix_lt(pl, pl->place[d], ix_const(pl, lo))));
		} else {
			/* the index below 0, inside, beyond the end: three terms, two of which are multiplied by 0 */
			const struct ix *one = ix_const(pl, 1), *zero = ix_const(pl, 0), *last = ix_addc(pl, a->size[d], -1);
			const struct ix *below = lo > 0 ? ix_lt(pl, pl->place[d], ix_const(pl, lo)) : zero;
			const struct ix *above = hi > 0 ? ix_lt(pl, last, i) : zero;
			const struct ix *in = ix_sub(pl, ix_sub(pl, one, below), above);
			const struct ix *lowv = how == REFLECT ? ix_sub(pl, zero, i) : zero;
			const struct ix *highv = how == REFLECT ? ix_sub(pl, ix_mulc(pl, last, 2), i) : last;

			map[d] = ix_add(pl, ix_add(pl, ix_mul(pl, below, lowv), ix_mul(pl, above, highv)), ix_mul(pl, in, i));
		}
	}
	return pl_view_if(pl, a, a->rank, size, map, cond, fill);
}

static void pad(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t p[2 * PL_MAX_RANK];
	int np = pl_arg_ints(pl, n, 1, "pad", p, 2 * PL_MAX_RANK);
	static const char *const modes[] = {
		[CONSTANT] = "constant", [REFLECT] = "reflect", [REPLICATE] = "replicate", [CIRCULAR] = "circular"
	};
	const char *mode = pl_arg_str(n, 2, "mode", "constant");
	int how = n->variant;
	double fill = pl_arg_num(pl, n, how == BY_MODE ? 3 : how == CONSTANT ? 2 : PL_NO_POSITION, "value", 0);

	for (int i = CONSTANT; how == BY_MODE && i <= CIRCULAR; i++)
		how = strcmp(mode, modes[i]) ? how : i;
	done(n, pad_of(pl, a, p, np, how, fill));
}

enum { BACK = 1 };

/* (N, C r r, H, W) to (N, C, H r, W r), and back. */
static void pixel_shuffle(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t r = pl_arg_int(pl, n, 1, n->variant == BACK ? "downscale_factor" : "upscale_factor", 1);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *k = ix_const(pl, r), *y, *x, *c;
	int b = a->rank - 3;

	for (int d = 0; d < b; d++) {
		size[d] = a->size[d];
		map[d] = pl->place[d];
	}
	c = pl->place[b], y = pl->place[b + 1], x = pl->place[b + 2];
	if (n->variant == BACK) {
		size[b] = ix_mulc(pl, a->size[b], r * r);
		size[b + 1] = ix_div(pl, a->size[b + 1], k);
		size[b + 2] = ix_div(pl, a->size[b + 2], k);
		map[b] = ix_div(pl, c, ix_const(pl, r * r));
		map[b + 1] = ix_add(pl, ix_mulc(pl, y, r), ix_mod(pl, ix_div(pl, c, k), k));
		map[b + 2] = ix_add(pl, ix_mulc(pl, x, r), ix_mod(pl, c, k));
	} else {
		size[b] = ix_div(pl, a->size[b], ix_const(pl, r * r));
		size[b + 1] = ix_mulc(pl, a->size[b + 1], r);
		size[b + 2] = ix_mulc(pl, a->size[b + 2], r);
		map[b] = ix_add(pl, ix_add(pl, ix_mulc(pl, c, r * r), ix_mulc(pl, ix_mod(pl, y, k), r)), ix_mod(pl, x, k));
		map[b + 1] = ix_div(pl, y, k);
		map[b + 2] = ix_div(pl, x, k);
	}
	done(n, pl_view(pl, a, a->rank, size, map));
}

static void channel_shuffle(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t g = pl_arg_int(pl, n, 1, "groups", 1);
	const struct ix *map[PL_MAX_RANK];

	for (int d = 0; d < a->rank; d++)
		map[d] = pl->place[d];
	map[1] = ix_add(pl, ix_mul(pl, ix_mod(pl, pl->place[1], ix_const(pl, g)), ix_div(pl, a->size[1], ix_const(pl, g))),
		ix_div(pl, pl->place[1], ix_const(pl, g)));
	done(n, pl_view(pl, a, a->rank, a->size, map));
}

/* The factor by which axis d is resampled, where it was given and is another one than the quotient of the sizes (9
 * elements by 2.1 are 18); else 0.  at: the position of the first factor, or of their list. */
static double factor_of(struct pl *pl, struct gnode *n, int at, int d)
{
	static const char *const names[] = { "scales_d", "scales_h", "scales_w" };
	int rank = n->meta[0].rank, axis = d - 2;
	struct garg *g = pl_arg(n, at, "scale_factors");
	double in = (double)ix_num(self(pl, n)->size[d]), out = (double)n->meta[0].size[d], factor = 0;

	if (g && g->kind == G_LIST)
		g = axis < g->n ? &g->item[axis] : NULL;
	else
		g = pl_arg(n, at + axis, rank == 3 ? "scales" : names[5 - rank + axis]);
	if (g && (g->kind == G_FLOAT || g->kind == G_INT))
		factor = g->kind == G_FLOAT ? g->f : (double)g->i;
	if (!(factor > 0) || fabs(factor * in - out) <= 1e-6 * out)
		return 0;
	if (in == out) /* PyTorch's kernels differ on whether the factor counts then */
		pl_cannot(pl, n, "a factor that is not 1 leaves a size as it is");
	return factor;
}

/* The same of nearest upsampling.  Of its two modes "nearest" on a processor takes no factor where a size stays or
 * doubles (nearest_idx() of PyTorch's UpSample.h). */
static double nearest_factor(struct pl *pl, struct gnode *n, int d, int exact)
{
	int64_t in = ix_num(self(pl, n)->size[d]), out = n->meta[0].size[d];

	if (d < 2 || (!exact && pl->target == WW_TARGET_CPU && (out == in || out == 2 * in)))
		return 0;
	return factor_of(pl, n, 2, d);
}

/* How far apart results are, in elements of the operand. */
static double step_of(int64_t in, int64_t out, int align, double factor)
{
	if (align)
		return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
	return factor > 0 ? 1 / factor : (double)in / (double)out;
}

/* The index of an element of the result along an axis as a float.  No 64-bit integers: a GPU takes four times as long
 * to convert them. */
static struct val *index_f32(struct pl *pl, const struct ix *const *size)
{
	return pl_index(pl, WW_F32, 1, size, pl->place[0]);
}

/* The last index, in - 1, as a float that is not above it. */
static struct val *last_index(struct pl *pl, int64_t in)
{
	float last = (float)(in - 1);

	return pl_constf(pl, WW_F32, (double)last > (double)(in - 1) ? nextafterf(last, 0) : last);
}

/* A float between 0 and an axis's length as an index. */
static struct val *to_index(struct pl *pl, struct val *v) { return pl_cast(pl, v, WW_I32); }

/* One axis of nearest upsampling by a factor that is not the quotient of the sizes: element floor((i + shift) /
 * factor), in fp32 as PyTorch computes it. */
static struct val *nearest_axis(struct pl *pl, struct val *a, int d, int64_t out, double shift, double factor)
{
	int64_t in = ix_num(a->size[d]);
	const struct ix *size[PL_MAX_RANK], *one[1], *imap[1] = { pl->place[d] };
	struct val *at;

	memcpy(size, a->size, sizeof(size));
	pl_guard_eq(pl, a->size[d], ix_const(pl, in), "a size that is resampled");
	one[0] = size[d] = ix_const(pl, out);
	at = pl_op2(pl, OP_ADD, index_f32(pl, one), pl_constf(pl, WW_F32, shift));
	at = pl_op1(pl, OP_FLOOR, pl_op2(pl, OP_MUL, at, pl_constf(pl, WW_F32, 1 / factor)));
	at = to_index(pl, pl_op2(pl, OP_MINIMUM, at, last_index(pl, in)));
	return pl_gather(pl, a, pl_view(pl, at, a->rank, size, imap), d, a->rank, size, pl->place);
}

/* The axes of nearest upsampling whose factors are not the quotients of the sizes. */
static struct val *nearest_by_factors(struct pl *pl, struct gnode *n, struct val *a, int exact)
{
	for (int d = 2; d < a->rank; d++) {
		double factor = nearest_factor(pl, n, d, exact), shift = exact ? 0.5 : 0;
		if (factor > 0)
			a = nearest_axis(pl, a, d, n->meta[0].size[d], shift, factor);
	}
	return a;
}

/* Nearest upsampling (torch's mode "nearest"). */
static void upsample_nearest(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];

	for (int d = 0; d < a->rank; d++) {
		int64_t in = ix_num(a->size[d]), out = n->meta[0].size[d];

		if (in == out || nearest_factor(pl, n, d, 0) > 0) {
			size[d] = a->size[d];
			map[d] = pl->place[d];
		} else if (out % in == 0) {
			size[d] = ix_mulc(pl, a->size[d], out / in);
			map[d] = ix_div(pl, pl->place[d], ix_const(pl, out / in));
		} else {
			size[d] = ix_const(pl, out);
			map[d] = ix_div(pl, ix_mulc(pl, pl->place[d], in), ix_const(pl, out));
			pl_guard_eq(pl, a->size[d], ix_const(pl, in), "a size that is resampled");
		}
	}
	done(n, nearest_by_factors(pl, n, pl_view(pl, a, a->rank, size, map), 0));
}

enum { STORE_AND_LOAD = 10 /* what storing and loading an element costs, in units of pl_ops */ };

/* Does computing an element again cost more than storing and loading it? */
static int is_costly(struct pl *pl, struct val *v) { return !v->root && pl_cost(pl, v, pl->place) > STORE_AND_LOAD; }

/* How many results along dimension d, of so many taps each, read an element. */
static double reads_along(const struct gnode *n, const struct val *a, int d, int taps)
{
	double in = (double)ix_num(a->size[d]), out = (double)n->meta[0].size[d];

	return in == out ? 1 : fmax(1, taps * out / in);
}

/* What is resampled is stored first where it would be computed so often that this takes longer than a store and a load
 * (the gate of a convolution, 16 times for each result of bicubic resampling).  taps: of a result, along each dimension
 * from `first` on. */
static void store_resampled(struct pl *pl, const struct gnode *n, struct val *a, int taps, int first)
{
	double times = 1;

	for (int d = first; d < a->rank; d++)
		times *= reads_along(n, a, d, taps);
	if (pl->target == WW_TARGET_CUDA) {
		pl_store_costly(pl, a, times, first);
		return;
	}
	while (a->kind == V_VIEW && !a->cond && !a->root)
		a = a->arg[0];
	if (a->kind == V_OP && !a->root && pl_is_float(a->dt) && (times - 1) * pl_cost(pl, a, pl->place) > STORE_AND_LOAD)
		pl_store_as_typed(pl, a, "its elements would be computed again for each result of a resampling");
}

/* One axis of linear interpolation: (1 - w) x[i0] + w x[i1]. */
static struct val *linear_axis(struct pl *pl, struct val *a, int d, int64_t out, int align, double factor)
{
	int64_t in = ix_num(a->size[d]);
	double scale = step_of(in, out, align, factor);
	const struct ix *size[PL_MAX_RANK], *one[1];
	struct val *pos, *lo, *hi, *w, *g[2];

	memcpy(size, a->size, sizeof(size));
	pl_guard_eq(pl, a->size[d], ix_const(pl, in), "a size that is resampled");
	size[d] = ix_const(pl, out);
	one[0] = size[d];
	pos = index_f32(pl, one);
	if (align)
		pos = pl_op2(pl, OP_MUL, pos, pl_constf(pl, WW_F32, scale));
	else
		pos = pl_op2(pl, OP_MAXIMUM,
			pl_op2(pl, OP_SUB,
				pl_op2(pl, OP_MUL, pl_op2(pl, OP_ADD, pos, pl_constf(pl, WW_F32, 0.5)), pl_constf(pl, WW_F32, scale)),
				pl_constf(pl, WW_F32, 0.5)),
			pl_constf(pl, WW_F32, 0));
	lo = pl_op2(pl, OP_MINIMUM, pl_op1(pl, OP_FLOOR, pos), last_index(pl, in));
	hi = pl_op2(pl, OP_MINIMUM, pl_op2(pl, OP_ADD, lo, pl_constf(pl, WW_F32, 1)), last_index(pl, in));
	w = pl_op2(pl, OP_SUB, pos, lo);
	for (int i = 0; i < 2; i++) {
		const struct ix *imap[1] = { pl->place[d] };

		g[i] = pl_gather(
			pl, a, pl_view(pl, to_index(pl, i ? hi : lo), a->rank, size, imap), d, a->rank, size, pl->place);
	}
	{
		const struct ix *imap[1] = { pl->place[d] };

		w = pl_view(pl, w, a->rank, size, imap);
	}
	return pl_op2(pl, OP_ADD, g[0], pl_op2(pl, OP_MUL, w, pl_op2(pl, OP_SUB, g[1], g[0])));
}

/* As linear_axis, to r times as many elements, r a power of two: element i lies (2 i + 1 - r) / 2 r behind the first
 * one, which is exact.  In integers: a GPU converts a float to an index, and back, at an eighth of the rate that it
 * adds at, and places that are integers show the compiler which neighbours read the same elements.  Ahead of the first
 * element and behind the last one both ends are the same element, so the weight says nothing there. */
static struct val *linear_axis_by(struct pl *pl, struct val *a, int d, int64_t r)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *twice = ix_const(pl, 2 * r), *one[1];
	const struct ix *at = ix_addc(pl, ix_mulc(pl, pl->place[d], 2), r + 1); /* from one element ahead of the first */
	const struct ix *hi = ix_div(pl, at, twice), *lo = ix_addc(pl, hi, -1);
	struct val *w, *x[2];

	memcpy(size, a->size, sizeof(size));
	memcpy(map, pl->place, sizeof(map));
	size[d] = ix_mulc(pl, a->size[d], r);
	map[d] = ix_add(pl, lo, ix_lt(pl, pl->place[d], ix_const(pl, r / 2)));
	x[0] = pl_view(pl, a, a->rank, size, map);
	map[d] = ix_sub(pl, hi, ix_lt(pl, ix_addc(pl, size[d], -r / 2 - 1), pl->place[d]));
	x[1] = pl_view(pl, a, a->rank, size, map);
	one[0] = size[d];
	w = pl_op2(pl, OP_MUL,
		pl_index(pl, WW_F32, 1, one, ix_mod(pl, ix_addc(pl, ix_mulc(pl, pl->place[0], 2), r + 1), twice)),
		pl_constf(pl, WW_F32, 0.5 / (double)r));
	map[0] = pl->place[d];
	w = pl_view(pl, w, a->rank, size, map);
	return pl_op2(pl, OP_ADD, x[0], pl_op2(pl, OP_MUL, w, pl_op2(pl, OP_SUB, x[1], x[0])));
}

static void upsample_linear(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int align = (int)pl_arg_int(pl, n, 2, "align_corners", 0), first = 2;

	store_resampled(pl, n, a, 2, first);
	for (int d = first; d < a->rank; d++) {
		int64_t in = ix_num(a->size[d]), out = n->meta[0].size[d], r = out / in;
		double factor = align ? 0 : factor_of(pl, n, 3, d);

		if (in == out)
			continue;
		a = pl->target == WW_TARGET_CUDA && !align && !(factor > 0) && out == in * r && !(r & (r - 1))
			? linear_axis_by(pl, a, d, r)
			: linear_axis(pl, a, d, out, align, factor);
	}
	done(n, pl_cast(pl, a, n->meta[0].dt));
}

/* Tensor.unfold: windows along a dimension.  On the cpu an operand whose windows overlap is stored first, so that its
 * elements are computed once: windows are short rows, which fill vectors badly. */
static void unfold_dim(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dimension", 0), a->rank);
	int64_t size_ = pl_arg_int(pl, n, 2, "size", 1), step = pl_arg_int(pl, n, 3, "step", 1);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];

	for (int k = 0; k < a->rank; k++) {
		size[k] = k == d ? ix_addc(pl, ix_div(pl, ix_addc(pl, a->size[k], -size_), ix_const(pl, step)), 1) : a->size[k];
		map[k] = k == d ? ix_add(pl, ix_mulc(pl, pl->place[k], step), pl->place[a->rank]) : pl->place[k];
	}
	if (a->rank >= PL_MAX_RANK)
		pl_cannot(pl, n, "its values would have too many dimensions");
	if (pl->target == WW_TARGET_CPU && step < size_ && is_costly(pl, a))
		pl_store_as_typed(pl, a, "windows that overlap read it");
	size[a->rank] = ix_const(pl, size_);
	done(n, pl_view(pl, a, a->rank + 1, size, map));
}

/* Nearest upsampling from pixel centres (torch's mode "nearest-exact"): floor((i + 0.5) * in / out), in integers. */
static void upsample_exact(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];

	for (int d = 0; d < a->rank; d++) {
		int64_t in = ix_num(a->size[d]), out = n->meta[0].size[d];
		int as_it_is = in == out || nearest_factor(pl, n, d, 1) > 0;

		size[d] = as_it_is ? a->size[d] : ix_const(pl, out);
		map[d] = as_it_is ? pl->place[d]
						  : ix_div(pl, ix_addc(pl, ix_mulc(pl, pl->place[d], 2 * in), in), ix_const(pl, 2 * out));
		if (!as_it_is)
			pl_guard_eq(pl, a->size[d], ix_const(pl, in), "a size that is resampled");
	}
	done(n, nearest_by_factors(pl, n, pl_view(pl, a, a->rank, size, map), 1));
}

static void fold_args(struct pl *pl, struct gnode *n, int first, struct pl_fold *f)
{
	static const char *const names[] = { "kernel_size", "dilation", "padding", "stride" };
	int64_t *const to[] = { f->k, f->dil, f->pad, f->step };

	for (int i = 0; i < 4; i++)
		if (pl_arg_ints(pl, n, first + i, names[i], to[i], 2) == 1)
			to[i][1] = to[i][0];
}

/* im2col (torch.nn.Unfold): (N, C, H, W) to (N, C kh kw, blocks). */
static void im2col(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *w;
	const struct ix *size[7], *map[4], *cond = ix_const(pl, 1), *flat[3];
	struct pl_fold f;

	fold_args(pl, n, 1, &f);
	if (a->rank != 4)
		pl_cannot(pl, n, "its input is not 4-dimensional");
	size[0] = a->size[0], size[1] = a->size[1];
	map[0] = pl->place[0], map[1] = pl->place[1];
	for (int e = 0; e < 2; e++) {
		f.blocks[e] = ix_addc(pl,
			ix_div(
				pl, ix_addc(pl, a->size[2 + e], 2 * f.pad[e] - f.dil[e] * (f.k[e] - 1) - 1), ix_const(pl, f.step[e])),
			1);
		size[2 + e] = ix_const(pl, f.k[e]);
		size[4 + e] = f.blocks[e];
		map[2 + e] = ix_addc(pl,
			ix_add(pl, ix_mulc(pl, pl->place[4 + e], f.step[e]), ix_mulc(pl, pl->place[2 + e], f.dil[e])), -f.pad[e]);
		if (f.pad[e])
			cond = ix_mul(
				pl, cond, ix_mul(pl, ix_lt(pl, ix_const(pl, -1), map[2 + e]), ix_lt(pl, map[2 + e], a->size[2 + e])));
	}
	w = pl_view_if(pl, a, 6, size, map, cond, 0);
	flat[0] = a->size[0];
	flat[1] = ix_mulc(pl, a->size[1], f.k[0] * f.k[1]);
	flat[2] = ix_mul(pl, f.blocks[0], f.blocks[1]);
	done(n, pl_reshape(pl, w, 3, flat));
}

/* Along axis e, with dilation 1: a pixel at y is the sum of terms i.  Term i comes from kernel index (y + pad) % step +
 * i step of block (y + pad) / step - i. */
static void fold_taps(struct pl *pl, const struct pl_fold *f, int e, const struct ix **size, const struct ix **map,
	const struct ix **cond)
{
	const struct ix *y = ix_addc(pl, pl->place[2 + e], f->pad[e]), *step = ix_const(pl, f->step[e]);

	size[4 + e] = ix_const(pl, (f->k[e] + f->step[e] - 1) / f->step[e]);
	map[2 + e] = ix_add(pl, ix_mod(pl, y, step), ix_mul(pl, pl->place[4 + e], step));
	map[4 + e] = ix_sub(pl, ix_div(pl, y, step), pl->place[4 + e]);
	*cond = ix_mul(pl, *cond, ix_lt(pl, ix_const(pl, -1), map[4 + e]));
	*cond = ix_mul(pl, *cond, ix_lt(pl, map[4 + e], f->blocks[e]));
	if (f->k[e] % f->step[e])
		*cond = ix_mul(pl, *cond, ix_lt(pl, map[2 + e], ix_const(pl, f->k[e])));
}

/* The same for a dilated kernel: a term for each kernel index, most of them masked. */
static void fold_all(struct pl *pl, const struct pl_fold *f, int e, const struct ix **size, const struct ix **map,
	const struct ix **cond)
{
	const struct ix *step = ix_const(pl, f->step[e]), *from;

	from = ix_sub(pl, ix_addc(pl, pl->place[2 + e], f->pad[e]), ix_mulc(pl, pl->place[4 + e], f->dil[e]));
	size[4 + e] = ix_const(pl, f->k[e]);
	map[2 + e] = pl->place[4 + e];
	map[4 + e] = ix_div(pl, from, step);
	*cond = ix_mul(pl, *cond, ix_lt(pl, ix_const(pl, -1), from));
	*cond = ix_mul(pl, *cond, ix_lt(pl, map[4 + e], f->blocks[e]));
	if (f->step[e] != 1)
		*cond = ix_mul(pl, *cond, ix_eqz(pl, ix_mod(pl, from, step), ix_const(pl, 0)));
}

struct val *pl_fold(struct pl *pl, struct val *columns, const struct pl_fold *f, const struct ix *const out[2])
{
	const struct ix *size[6], *map[6], *cond = ix_const(pl, 1), *cols[6];

	cols[0] = size[0] = columns->size[0];
	cols[1] = size[1] = ix_div(pl, columns->size[1], ix_const(pl, f->k[0] * f->k[1]));
	map[0] = pl->place[0], map[1] = pl->place[1];
	for (int e = 0; e < 2; e++) {
		size[2 + e] = out[e];
		cols[2 + e] = ix_const(pl, f->k[e]);
		cols[4 + e] = f->blocks[e];
		(f->dil[e] == 1 ? fold_taps : fold_all)(pl, f, e, size, map, &cond);
	}
	columns = pl_view_if(pl, pl_reshape(pl, columns, 6, cols), 6, size, map, cond, 0);
	return pl_reduce(pl, RED_SUM, columns, 3u << 4, 0);
}

/* col2im (torch.nn.Fold): each pixel is the sum of all elements of columns that im2col would copy from it. */
static void col2im(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *size[2];
	struct pl_fold f;
	int64_t out[2];

	fold_args(pl, n, 2, &f);
	if (a->rank != 3 || pl_arg_ints(pl, n, 1, "output_size", out, 2) != 2)
		pl_cannot(pl, n, "its input is not 3-dimensional");
	for (int e = 0; e < 2; e++) {
		f.blocks[e] = ix_const(pl, (out[e] + 2 * f.pad[e] - f.dil[e] * (f.k[e] - 1) - 1) / f.step[e] + 1);
		size[e] = ix_const(pl, out[e]);
	}
	pl_guard_eq(pl, ix_mul(pl, f.blocks[0], f.blocks[1]), a->size[2], "the number of blocks that are folded");
	done(n, pl_fold(pl, a, &f, size));
}

/* ---- Interpolation at computed indices ----------------------------------------------------------------------------
 */

static struct val *f32(struct pl *pl, double v) { return pl_constf(pl, WW_F32, v); }
#define OP(op, a, b) pl_op2(pl, OP_##op, (a), (b))

/* Cubic convolution with a = -0.75, as in PyTorch: the weight of neighbour k = -1 .. 2 at fraction t. */
static struct val *cubic(struct pl *pl, struct val *t, int k)
{
	struct val *x = k == -1 ? OP(ADD, t, f32(pl, 1))
		: k == 0            ? t
		: k == 1            ? OP(SUB, f32(pl, 1), t)
							: OP(SUB, f32(pl, 2), t);

	if (k == 0 || k == 1) /* ((a + 2) x - (a + 3)) x x + 1 */
		return OP(ADD, OP(MUL, OP(MUL, OP(SUB, OP(MUL, x, f32(pl, 1.25)), f32(pl, 2.25)), x), x), f32(pl, 1));
	/* ((a x - 5 a) x + 8 a) x - 4 a */
	return OP(ADD, OP(MUL, OP(SUB, OP(MUL, OP(ADD, OP(MUL, x, f32(pl, -0.75)), f32(pl, 3.75)), x), f32(pl, 6)), x),
		f32(pl, 3));
}

static struct val *cubic_axis(struct pl *pl, struct val *a, int d, int64_t out, int align, double factor)
{
	int64_t in = ix_num(a->size[d]);
	double scale = step_of(in, out, align, factor);
	const struct ix *size[PL_MAX_RANK], *one[1], *imap[1] = { pl->place[d] };
	struct val *pos, *base, *t, *sum = NULL;

	memcpy(size, a->size, sizeof(size));
	pl_guard_eq(pl, a->size[d], ix_const(pl, in), "a size that is resampled");
	one[0] = size[d] = ix_const(pl, out);
	pos = index_f32(pl, one);
	pos = align ? OP(MUL, pos, f32(pl, scale))
				: OP(SUB, OP(MUL, OP(ADD, pos, f32(pl, 0.5)), f32(pl, scale)), f32(pl, 0.5));
	base = pl_op1(pl, OP_FLOOR, pos);
	t = OP(SUB, pos, base);
	for (int k = -1; k <= 2; k++) {
		struct val *at = OP(ADD, base, f32(pl, k)), *w = pl_view(pl, cubic(pl, t, k), a->rank, size, imap), *v;

		at = to_index(pl, OP(MINIMUM, OP(MAXIMUM, at, f32(pl, 0)), last_index(pl, in)));
		v = OP(MUL, w, pl_gather(pl, a, pl_view(pl, at, a->rank, size, imap), d, a->rank, size, pl->place));
		sum = sum ? OP(ADD, sum, v) : v;
	}
	return sum;
}

/* Results, so many that a launch does not count. */
enum { STORED_LINES = 1 << 20, STORED_LINES_CPU = 1 << 13 };

/* Are lines that were resampled along the last dimension stored before they are along the one before it?  cuda: where
 * that has twice as many results or more, each line is one of several results' four: 4 loads, and 2 or fewer of the
 * line's own, in place of 16 (512 x 8 x 16 x 48 times 4: 600 us by count, 160).  cpu: the four lines of a result are
 * read by vectors, its elements within a line are picked or collected one by one: 4 of these for each element of a
 * line, and 4 vectors, in place of 16. */
static int stores_lines(const struct pl *pl, const struct val *a, int64_t out)
{
	int64_t in = ix_num(a->size[2]), results = pl_numel_now(a) / in * out;

	if (a->rank != 4)
		return 0;
	return pl->target == WW_TARGET_CUDA ? out >= 2 * in && results >= STORED_LINES
										: out >= in && results >= STORED_LINES_CPU;
}

static void upsample_bicubic(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int align = (int)pl_arg_int(pl, n, 2, "align_corners", 0);

	store_resampled(pl, n, a, 4, stores_lines(pl, a, n->meta[0].size[2]) ? a->rank - 1 : 2);
	for (int d = a->rank - 1; d >= 2; d--) {
		double factor = align ? 0 : factor_of(pl, n, 3, d);

		if (ix_num(a->size[d]) == n->meta[0].size[d])
			continue;
		a = cubic_axis(pl, a, d, n->meta[0].size[d], align, factor);
		if (d == 3 && stores_lines(pl, a, n->meta[0].size[2]))
			pl_make_root(pl, a);
	}
	done(n, pl_cast(pl, a, n->meta[0].dt));
}

/* The weight of a pixel at distance x, 0 beyond 1 (linear) or 2 (cubic: Keys with a = -0.5, as in PyTorch's antialias).
 */
static struct val *filter(struct pl *pl, struct val *x, int is_cubic)
{
	struct val *near, *far, *one = f32(pl, 1);

	x = pl_op1(pl, OP_ABS, x);
	if (!is_cubic)
		return OP(MAXIMUM, OP(SUB, one, x), f32(pl, 0));
	near = OP(ADD, OP(MUL, OP(MUL, OP(SUB, OP(MUL, x, f32(pl, 1.5)), f32(pl, 2.5)), x), x), one);
	far = OP(
		ADD, OP(MUL, OP(SUB, OP(MUL, OP(ADD, OP(MUL, x, f32(pl, -0.5)), f32(pl, 2.5)), x), f32(pl, 4)), x), f32(pl, 2));
	return pl_where(pl, OP(LT, x, one), near, pl_where(pl, OP(LT, x, f32(pl, 2)), far, f32(pl, 0)));
}

/* One axis of antialiased resampling: a weighted mean of the pixels under the filter, which is widened by the scale
 * where the image shrinks.  The weights are stored, of shape (out, taps). */
static struct val *antialias_axis(
	struct pl *pl, struct val *a, int d, int64_t out, int align, double factor, int is_cubic)
{
	int64_t in = ix_num(a->size[d]);
	double scale = step_of(in, out, align, factor), support = (is_cubic ? 2 : 1) * (scale > 1 ? scale : 1);
	const struct ix *table[2] = { ix_const(pl, out), ix_const(pl, (int64_t)ceil(support) * 2 + 1) }, *size[PL_MAX_RANK],
					*map[PL_MAX_RANK], *tap[2] = { pl->place[d], pl->place[a->rank] };
	struct val *k = pl_cast(pl, pl_index(pl, WW_I64, 2, table, pl->place[1]), WW_F32), *o, *first, *end, *w, *at;

	if (a->rank >= PL_MAX_RANK)
		pl_fail(pl, "more than %d dimensions", PL_MAX_RANK);
	pl_guard_eq(pl, a->size[d], ix_const(pl, in), "a size that is resampled");
	o = pl_cast(pl, pl_index(pl, WW_I64, 2, table, pl->place[0]), WW_F32);
	o = OP(MUL, OP(ADD, o, f32(pl, 0.5)), f32(pl, scale)); /* the centre of the filter */
	first = OP(MAXIMUM, pl_op1(pl, OP_TRUNC, OP(ADD, OP(SUB, o, f32(pl, support)), f32(pl, 0.5))), f32(pl, 0));
	pl_make_root(pl, first); /* stored once: two kernels might round it to different integers */
	end = OP(MINIMUM, pl_op1(pl, OP_TRUNC, OP(ADD, OP(ADD, o, f32(pl, support)), f32(pl, 0.5))), f32(pl, (double)in));
	at = OP(ADD, first, k);
	w = filter(pl, OP(MUL, OP(ADD, OP(SUB, at, o), f32(pl, 0.5)), f32(pl, 1 / (scale > 1 ? scale : 1))), is_cubic);
	w = pl_where(pl, OP(LT, at, end), w, f32(pl, 0));
	w = OP(DIV, w, pl_reduce(pl, RED_SUM, w, 2, 1));
	pl_make_root(pl, w);
	at = pl_cast(pl, OP(MINIMUM, at, f32(pl, (double)in - 1)), WW_I64);
	for (int i = 0; i < a->rank; i++) {
		size[i] = i == d ? table[0] : a->size[i];
		map[i] = pl->place[i];
	}
	size[a->rank] = table[1];
	at = pl_gather(pl, a, pl_view(pl, at, a->rank + 1, size, tap), d, a->rank + 1, size, map);
	return pl_reduce(pl, RED_SUM, OP(MUL, at, pl_view(pl, w, a->rank + 1, size, tap)), 1u << a->rank, 0);
}

enum { LINEAR, CUBIC };

static void upsample_antialias(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int align = (int)pl_arg_int(pl, n, 2, "align_corners", 0);

	for (int d = a->rank - 1; d >= 2; d--) {
		double factor = align ? 0 : factor_of(pl, n, 3, d);

		if (ix_num(a->size[d]) != n->meta[0].size[d])
			a = antialias_axis(pl, a, d, n->meta[0].size[d], align, factor, n->variant == CUBIC);
	}
	done(n, pl_cast(pl, a, n->meta[0].dt));
}

/* A coordinate in -1 .. 1 as a pixel index (float) among `size` pixels. */
static struct val *pixel_of(struct pl *pl, struct val *x, const struct ix *size, int align)
{
	struct val *n = pl_cast(pl, pl_index(pl, WW_I64, 0, NULL, size), WW_F32);

	if (align)
		return OP(MUL, OP(MUL, OP(ADD, x, f32(pl, 1)), f32(pl, 0.5)), OP(SUB, n, f32(pl, 1)));
	return OP(MUL, OP(SUB, OP(MUL, OP(ADD, x, f32(pl, 1)), n), f32(pl, 1)), f32(pl, 0.5));
}

enum { ZEROS, BORDER, REFLECTION };

/* A pixel index (float) outside of `size` pixels as one of those that the padding mode takes there.  Reflected are
 * pixels' edges, or with align_corners their centres. */
static struct val *padded(struct pl *pl, struct val *x, const struct ix *size, int64_t padding, int align)
{
	struct val *last = pl_cast(pl, pl_index(pl, WW_I64, 0, NULL, ix_addc(pl, size, -1)), WW_F32);
	struct val *low = f32(pl, align ? 0 : -0.5), *span = align ? last : OP(ADD, last, f32(pl, 1)), *twice;

	if (padding == ZEROS)
		return x;
	if (padding == REFLECTION && align && ix_is(size, 1))
		x = OP(MUL, x, f32(pl, 0));
	else if (padding == REFLECTION) {
		twice = OP(MUL, span, f32(pl, 2));
		x = OP(FMOD, pl_op1(pl, OP_ABS, OP(SUB, x, low)), twice);
		x = OP(ADD, OP(MINIMUM, x, OP(SUB, twice, x)), low);
	}
	return OP(MINIMUM, OP(MAXIMUM, x, f32(pl, 0)), last);
}

/* One index of pixels, of shape (N, H, W): whether it is inside, and an integer, 0 where it is not. */
struct pixel {
	struct val *ok, *at;
};

/* x: an integer as a float, or nan. */
static struct pixel pixel_index(struct pl *pl, struct val *x, const struct ix *size)
{
	struct val *n = pl_cast(pl, pl_index(pl, WW_I64, 0, NULL, size), WW_F32);
	struct pixel p = { OP(LAND, OP(LE, f32(pl, 0), x), OP(LT, x, n)), NULL };

	p.at = pl_cast(pl, to_index(pl, pl_where(pl, p.ok, x, f32(pl, 0))), WW_I64);
	return p;
}

/* in[n, c, y, x], 0 outside. */
static struct val *pixel_at(
	struct pl *pl, struct val *in, const struct pixel *y, const struct pixel *x, const struct ix *const *size)
{
	const struct ix *merged[3] = { in->size[0], in->size[1], ix_mul(pl, in->size[2], in->size[3]) },
					*omap[3] = { pl->place[0], pl->place[2], pl->place[3] };
	struct val *lin = OP(ADD, OP(MUL, y->at, pl_index(pl, WW_I64, 0, NULL, in->size[3])), x->at), *v;

	lin = pl_view(pl, lin, 4, size, omap);
	v = pl_gather(
		pl, pl_reshape(pl, in, 3, merged), lin, 2, 4, size, (const struct ix *[]){ pl->place[0], pl->place[1], NULL });
	return pl_where(pl, pl_view(pl, OP(LAND, y->ok, x->ok), 4, size, omap), v, f32(pl, 0));
}

enum { BILINEAR, NEAREST, BICUBIC };

/* grid_sample.  Weighted neighbours along x, whose sums are weighted along y. */
static void grid_sampler(struct pl *pl, struct gnode *n)
{
	struct val *in = pl_need_val(pl, n, 0, "input"), *grid = pl_need_val(pl, n, 1, "grid"), *weight[2][4], *out = NULL;
	int64_t mode = pl_arg_int(pl, n, 2, "interpolation_mode", 0), padding = pl_arg_int(pl, n, 3, "padding_mode", 0);
	int align = (int)pl_arg_int(pl, n, 4, "align_corners", 0), taps = mode == BICUBIC ? 4 : mode == NEAREST ? 1 : 2;
	const struct ix *size[4], *omap[3] = { pl->place[0], pl->place[2], pl->place[3] };
	struct pixel pixel[2][4];

	if (in->rank != 4)
		pl_cannot(pl, n, "its input is 5-dimensional (volumes)");
	if (in->dt != WW_F32)
		pl_cannot(pl, n, "its operands are not float32");
	size[0] = in->size[0], size[1] = in->size[1], size[2] = grid->size[1], size[3] = grid->size[2];
	for (int i = 0; i < 2; i++) { /* x, y */
		const struct ix *pixels = in->size[3 - i];
		struct val *p = pixel_of(pl, pl_select(pl, grid, 3, ix_const(pl, i)), pixels, align), *low, *t;

		p = mode == BICUBIC ? p : padded(pl, p, pixels, padding, align);
		low = pl_op1(pl, mode == NEAREST ? OP_ROUND : OP_FLOOR, p);
		t = OP(SUB, p, low);
		for (int k = 0; k < taps; k++) {
			struct val *at = OP(ADD, low, f32(pl, mode == BICUBIC ? k - 1 : k));

			pixel[i][k] = pixel_index(pl, mode == BICUBIC ? padded(pl, at, pixels, padding, align) : at, pixels);
			at = mode == BICUBIC ? cubic(pl, t, k - 1) : k ? t : OP(SUB, f32(pl, 1), t);
			weight[i][k] = pl_view(pl, at, 4, size, omap);
		}
	}
	for (int y = 0; y < taps; y++) {
		struct val *row = NULL;

		for (int x = 0; x < taps; x++) {
			struct val *v = pixel_at(pl, in, &pixel[1][y], &pixel[0][x], size);

			v = mode == NEAREST ? v : OP(MUL, v, weight[0][x]);
			row = row ? OP(ADD, row, v) : v;
		}
		row = mode == NEAREST ? row : OP(MUL, row, weight[1][y]);
		out = out ? OP(ADD, out, row) : row;
	}
	if (mode == BICUBIC)
		pl_make_root(pl, out); /* sixteen loads apart, for each reader and pass */
	done(n, out);
}

/* The coordinate in -1 .. 1 of each of n pixels along dimension d: of its centre, or with align_corners of its corner.
 */
static struct val *coordinate(struct pl *pl, int rank, const struct ix *const *size, int d, int64_t n, int align)
{
	struct val *i = pl_cast(pl, pl_index(pl, WW_I64, rank, size, pl->place[d]), WW_F32);
	double step = align ? (n > 1 ? 2.0 / (double)(n - 1) : 0) : 2.0 / (double)n;

	return OP(ADD, OP(MUL, i, f32(pl, step)), f32(pl, align ? (n > 1 ? -1 : 0) : 1.0 / (double)n - 1));
}

/* grid[n, h, w, :] = theta[n] (x, y, 1) */
static void affine_grid(struct pl *pl, struct gnode *n)
{
	struct val *theta = pl_need_val(pl, n, 0, "theta"), *c[3], *out = NULL;
	int64_t dims[5];
	int k = pl_arg_ints(pl, n, 1, "size", dims, 5), align = (int)pl_arg_int(pl, n, 2, "align_corners", 0);
	const struct ix *size[4];

	if (k != 4)
		pl_cannot(pl, n, "its input is 5-dimensional (volumes)");
	if (theta->dt != WW_F32)
		pl_cannot(pl, n, "its operands are not float32");
	size[0] = theta->size[0], size[1] = ix_const(pl, dims[2]), size[2] = ix_const(pl, dims[3]),
	size[3] = ix_const(pl, 2);
	c[0] = coordinate(pl, 4, size, 2, dims[3], align);
	c[1] = coordinate(pl, 4, size, 1, dims[2], align);
	c[2] = NULL;
	for (int i = 0; i < 3; i++) {
		const struct ix *map[3] = { pl->place[0], pl->place[3], ix_const(pl, i) };
		struct val *t = pl_view(pl, theta, 4, size, map);

		t = c[i] ? OP(MUL, t, c[i]) : t;
		out = out ? OP(ADD, out, t) : t;
	}
	done(n, out);
}

const struct pl_lower_row pl_lower_resample[] = { { "im2col", im2col }, { "col2im", col2im },
	{ "upsample_bicubic2d", upsample_bicubic }, { "_upsample_bilinear2d_aa", upsample_antialias, LINEAR },
	{ "_upsample_bicubic2d_aa", upsample_antialias, CUBIC }, { "grid_sampler", grid_sampler },
	{ "grid_sampler_2d", grid_sampler }, { "affine_grid_generator", affine_grid },
	{ "_upsample_nearest_exact1d", upsample_exact }, { "_upsample_nearest_exact2d", upsample_exact },
	{ "_upsample_nearest_exact3d", upsample_exact }, { "pad", pad, BY_MODE }, { "constant_pad_nd", pad, CONSTANT },
	{ "reflection_pad1d", pad, REFLECT }, { "reflection_pad2d", pad, REFLECT }, { "reflection_pad3d", pad, REFLECT },
	{ "replication_pad1d", pad, REPLICATE }, { "replication_pad2d", pad, REPLICATE },
	{ "replication_pad3d", pad, REPLICATE }, { "pixel_shuffle", pixel_shuffle },
	{ "pixel_unshuffle", pixel_shuffle, BACK }, { "channel_shuffle", channel_shuffle },
	{ "upsample_nearest1d", upsample_nearest }, { "upsample_nearest2d", upsample_nearest },
	{ "upsample_nearest3d", upsample_nearest }, { "upsample_linear1d", upsample_linear },
	{ "upsample_bilinear2d", upsample_linear }, { "upsample_trilinear3d", upsample_linear },
	{ "unfold", unfold_dim, 0, PL_VIEW }, { NULL, NULL } };
