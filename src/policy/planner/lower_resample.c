/* lower_resample.c - padding, shuffles and resampling as index maps: the index of the source is arithmetic on the index of the
 * result, conditions say where it is outside, and linear interpolation is two gathers and a weight. */
#include "policy/planner/planner.h"

#include <string.h>

static void done(struct gnode *n, struct val *v) { n->out[0] = v; }
static struct val *self(struct pl *pl, struct gnode *n) { return pl_need_val(pl, n, 0, "self"); }

/* Padding: `how` 0 constant, 1 reflect, 2 replicate, 3 circular. */
static struct val *pad_of(struct pl *pl, struct gnode *n, struct val *a, const int64_t *p, int np, int how, double fill)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *cond = ix_const(pl, 1);

	for (int d = 0; d < a->rank; d++) {
		int k = 2 * (a->rank - 1 - d);
		int64_t lo = k + 1 < np ? p[k] : 0, hi = k + 1 < np ? p[k + 1] : 0;
		const struct ix *i = ix_addc(pl, pl->place[d], -lo);

		size[d] = ix_addc(pl, a->size[d], lo + hi);
		map[d] = i;
		if ((lo == 0 && hi == 0) || how == 0) {
			if (lo > 0)
				cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, lo - 1), pl->place[d]));
			if (hi > 0)
				cond = ix_mul(pl, cond, ix_lt(pl, i, a->size[d]));
			continue;
		}
		if (how == 3) {
			map[d] = ix_mod(pl, ix_add(pl, i, a->size[d]), a->size[d]);
		} else {
			/* below 0, inside, beyond the end: three terms, two of them times 0 */
			const struct ix *one = ix_const(pl, 1), *zero = ix_const(pl, 0), *last = ix_addc(pl, a->size[d], -1);
			const struct ix *below = lo > 0 ? ix_lt(pl, pl->place[d], ix_const(pl, lo)) : zero;
			const struct ix *above = hi > 0 ? ix_lt(pl, last, i) : zero;
			const struct ix *in = ix_sub(pl, ix_sub(pl, one, below), above);
			const struct ix *lowv = how == 1 ? ix_sub(pl, zero, i) : zero;
			const struct ix *highv = how == 1 ? ix_sub(pl, ix_mulc(pl, last, 2), i) : last;

			map[d] = ix_add(pl, ix_add(pl, ix_mul(pl, below, lowv), ix_mul(pl, above, highv)), ix_mul(pl, in, i));
		}
	}
	(void)n;
	return pl_view_if(pl, a, a->rank, size, map, cond, fill);
}

static void pad(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t p[2 * PL_MAX_RANK];
	int np = pl_arg_ints(pl, n, 1, "pad", p, 2 * PL_MAX_RANK);
	const char *mode = pl_arg_str(n, 2, "mode", "constant");
	int how = 0;
	double fill = 0;

	if (strstr(n->target, "reflection") || !strcmp(mode, "reflect"))
		how = 1;
	else if (strstr(n->target, "replication") || !strcmp(mode, "replicate"))
		how = 2;
	else if (!strcmp(mode, "circular"))
		how = 3;
	else if (strstr(n->target, "constant_pad"))
		fill = pl_arg_num(pl, n, 2, "value", 0);
	else
		fill = pl_arg_num(pl, n, 3, "value", 0);
	done(n, pad_of(pl, n, a, p, np, how, fill));
}

/* (N, C r r, H, W) to (N, C, H r, W r), and back. */
static void pixel_shuffle(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int64_t r = pl_arg_int(pl, n, 1, strstr(n->target, "unshuffle") ? "downscale_factor" : "upscale_factor", 1);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *k = ix_const(pl, r), *y, *x, *c;
	int b = a->rank - 3;

	for (int d = 0; d < b; d++) {
		size[d] = a->size[d];
		map[d] = pl->place[d];
	}
	c = pl->place[b], y = pl->place[b + 1], x = pl->place[b + 2];
	if (strstr(n->target, "unshuffle")) {
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

/* Nearest and (bi)linear upsampling along the last `nd` dimensions. */
static void upsample_nearest(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];

	for (int d = 0; d < a->rank; d++) {
		int64_t in = ix_num(a->size[d]), out = n->meta[0].size[d];

		if (in == out) {
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
	done(n, pl_view(pl, a, a->rank, size, map));
}

/* One axis of linear interpolation: (1 - w) x[i0] + w x[i1]. */
static struct val *linear_axis(struct pl *pl, struct val *a, int d, int64_t out, int align, double given)
{
	int64_t in = ix_num(a->size[d]);
	double scale = align ? (out > 1 ? (double)(in - 1) / (double)(out - 1) : 0) : given > 0 ? 1 / given : (double)in / (double)out;
	const struct ix *size[PL_MAX_RANK], *one[1];
	struct val *pos, *lo, *hi, *w, *g[2];

	memcpy(size, a->size, sizeof size);
	pl_guard_eq(pl, a->size[d], ix_const(pl, in), "a size that is resampled");
	size[d] = ix_const(pl, out);
	one[0] = size[d];
	pos = pl_cast(pl, pl_index(pl, WW_I64, 1, one, pl->place[0]), WW_F32);
	if (align)
		pos = pl_op2(pl, OP_MUL, pos, pl_constf(pl, WW_F32, scale));
	else
		pos = pl_op2(pl, OP_MAXIMUM, pl_op2(pl, OP_SUB, pl_op2(pl, OP_MUL, pl_op2(pl, OP_ADD, pos, pl_constf(pl, WW_F32, 0.5)),
			pl_constf(pl, WW_F32, scale)), pl_constf(pl, WW_F32, 0.5)), pl_constf(pl, WW_F32, 0));
	lo = pl_op2(pl, OP_MINIMUM, pl_cast(pl, pl_op1(pl, OP_FLOOR, pos), WW_I64), pl_consti(pl, WW_I64, in - 1));
	hi = pl_op2(pl, OP_MINIMUM, pl_op2(pl, OP_ADD, lo, pl_consti(pl, WW_I64, 1)), pl_consti(pl, WW_I64, in - 1));
	w = pl_op2(pl, OP_SUB, pos, pl_cast(pl, lo, WW_F32));
	for (int i = 0; i < 2; i++) {
		const struct ix *imap[1] = { pl->place[d] };

		g[i] = pl_gather(pl, a, pl_view(pl, i ? hi : lo, a->rank, size, imap), d, a->rank, size, pl->place);
	}
	{
		const struct ix *imap[1] = { pl->place[d] };

		w = pl_view(pl, w, a->rank, size, imap);
	}
	return pl_op2(pl, OP_ADD, g[0], pl_op2(pl, OP_MUL, w, pl_op2(pl, OP_SUB, g[1], g[0])));
}

static void upsample_linear(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	int align = (int)pl_arg_int(pl, n, 2, "align_corners", 0), first = 2;

	for (int d = first; d < a->rank; d++)
		if (ix_num(a->size[d]) != n->meta[0].size[d])
			a = linear_axis(pl, a, d, n->meta[0].size[d], align, 0);
	done(n, pl_cast(pl, a, n->meta[0].dt));
}

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
		pl_cannot(pl, n, "dimensions");
	size[a->rank] = ix_const(pl, size_);
	done(n, pl_view(pl, a, a->rank + 1, size, map));
}

const struct pl_lower_row pl_lower_resample[] = {
	{ "pad", pad },
	{ "constant_pad_nd", pad },
	{ "reflection_pad1d", pad },
	{ "reflection_pad2d", pad },
	{ "reflection_pad3d", pad },
	{ "replication_pad1d", pad },
	{ "replication_pad2d", pad },
	{ "replication_pad3d", pad },
	{ "pixel_shuffle", pixel_shuffle },
	{ "pixel_unshuffle", pixel_shuffle },
	{ "channel_shuffle", channel_shuffle },
	{ "upsample_nearest1d", upsample_nearest },
	{ "upsample_nearest2d", upsample_nearest },
	{ "upsample_nearest3d", upsample_nearest },
	{ "upsample_linear1d", upsample_linear },
	{ "upsample_bilinear2d", upsample_linear },
	{ "upsample_trilinear3d", upsample_linear },
	{ "unfold", unfold_dim },
	{ NULL, NULL }
};
