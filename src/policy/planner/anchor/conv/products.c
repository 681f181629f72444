/* products.c - convolutions that something else computes: a matrix product, or a reduction. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/schedule/schedule.h"

#include <math.h>
#include <string.h>

struct val *pl_conv_by_reduction(struct pl *pl, struct gnode *n, struct anchor *s, struct val *x, struct val *w,
	int rank, const struct ix *const *out)
{
	int nd = s->conv.nd, all = rank + 1 + nd;
	const struct ix *size[PL_MAX_RANK], *xm[PL_MAX_RANK], *wm[PL_MAX_RANK], *cond = ix_const(pl, 1);
	const struct ix *cg = ix_div(pl, x->size[1], ix_const(pl, s->conv.groups)),
					*kg = ix_div(pl, out[1], ix_const(pl, s->conv.groups));
	const struct ix *group, *c;

	if (all > PL_MAX_RANK)
		pl_cannot(pl, n, "too many dimensions");
	for (int d = 0; d < rank; d++)
		size[d] = out[d];
	size[rank] = cg;
	for (int e = 0; e < nd; e++)
		size[rank + 1 + e] = w->size[2 + e];
	group = ix_div(pl, pl->place[1], kg);
	c = s->conv.groups == 1 ? pl->place[rank] : ix_add(pl, ix_mul(pl, group, cg), pl->place[rank]);
	xm[0] = pl->place[0];
	xm[1] = c;
	wm[0] = s->conv.transposed ? c : pl->place[1];
	wm[1] = s->conv.transposed ? (s->conv.groups == 1 ? pl->place[1] : ix_mod(pl, pl->place[1], kg)) : pl->place[rank];
	for (int e = 0; e < nd; e++) {
		const struct ix *o = pl->place[2 + e], *r = pl->place[rank + 1 + e], *i;

		wm[2 + e] = r;
		if (s->conv.transposed) {
			const struct ix *t = ix_sub(pl, ix_addc(pl, o, s->conv.pad[e]), ix_mulc(pl, r, s->conv.dil[e])),
							*st = ix_const(pl, s->conv.stride[e]);

			i = s->conv.stride[e] == 1 ? t : ix_div(pl, t, st);
			cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, -1), t));
			if (s->conv.stride[e] != 1)
				cond = ix_mul(pl, cond, ix_eqz(pl, ix_mod(pl, t, st), ix_const(pl, 0)));
			cond = ix_mul(pl, cond, ix_lt(pl, i, x->size[2 + e]));
		} else {
			i = ix_addc(
				pl, ix_add(pl, ix_mulc(pl, o, s->conv.stride[e]), ix_mulc(pl, r, s->conv.dil[e])), -s->conv.pad[e]);
			if (s->conv.pad[e]) {
				cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, -1), i));
				cond = ix_mul(pl, cond, ix_lt(pl, i, x->size[2 + e]));
			}
		}
		xm[2 + e] = i;
	}
	x = pl_view_if(pl, x, all, size, xm, cond, 0);
	w = pl_view(pl, w, all, size, wm);
	return pl_reduce(pl, RED_SUM, pl_op2(pl, OP_MUL, x, w), ((1u << (nd + 1)) - 1) << rank, 0);
}

/* cuda: has a convolution so few filters, results, and terms of each (two channels to one, 7 x 7: what an attention of
 * places is made of), that a warp for each takes less time than a thread that goes along all of them, or the library?
 * The loads of 98 terms wait for each other four at a time: 15 us by 19 blocks of 256 for 24 images of 14 x 14,
 * counted. */
int pl_conv_is_sum(struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	/* a launch; a warp's instructions for 32 terms and for its end, and how many a microsecond has of them; the least
	 * that the library takes */
	static const double ROWS_US = 3, TERMS = 20, END = 80, ISSUED = 0.6e6, LIBRARY_US = 5.5, ROOM = 0.8;
	enum { FILTERS = 4, MOST = 256 }; /* terms: eight of each lane's, which are under way together */
	struct anchor t = *s;
	double taps = 1, terms, results, others;

	if (pl->target != WW_TARGET_CUDA || pl_all_plain(pl) || s->conv.transposed || s->conv.groups > 1)
		return 0;
	t.out = pl_val(pl, V_ANCHOR, s->in[0].val->dt, 2 + s->conv.nd, out);
	results = (double)pl_numel_now(t.out);
	terms = results > 0 ? pl_conv_work(&t, &taps) / results : 0;
	others = fmin(pl_conv_library_us(&t, 0), pl_conv_last_us(&t, 0));
	others = fmin(pl_conv_direct_us(pl, &t), fmax(LIBRARY_US, others));
	return taps > 1 && ix_num(out[1]) <= FILTERS && terms > 64 && terms <= MOST &&
		ROWS_US + results * (ceil(terms / 32) * TERMS + END) / ISSUED < ROOM * others;
}

static int is_by_elements(const struct gnode *n)
{
	const struct pl_lower_row *row = pl_lower_point;

	while (row->op && row != n->row)
		row++;
	return row->op != NULL;
}

/* Is what n returns read only with its last two dimensions changed round, behind functions of its elements and slices
 * (of what padding added)? */
static int is_read_across(const struct pl *pl, const struct gnode *n)
{
	enum { BEHIND = 4 };

	for (int i = 0; i < BEHIND && pl_count_readers(pl, n->name) == 1; i++) {
		const struct gnode *next = n + 1, *end = pl->node + pl->n_node;

		while (next < end && (!next->n_arg || !pl_refers(&next->arg[0], n->name)))
			next++;
		if (next == end)
			return 0;
		if (!strncmp(next->target, "aten.transpose.", 15))
			return next->meta[0].rank == 3 && next->meta[0].size[1] == n->meta[0].size[2] &&
				next->meta[0].size[2] == n->meta[0].size[1];
		if (!is_by_elements(next) && strncmp(next->target, "aten.slice.", 11) != 0)
			return 0;
		n = next;
	}
	return 0;
}

/* cuda: is each channel convolved alone along steps of which memory has all channels side by side, and which is read
 * so, too (ahead of a linear layer)?  Our template reads and stores steps side by side: a pass ahead of it and one
 * behind it turn both.  As sums, threads have channels, and neighbouring steps are read from the first level: a filter
 * of more than nine elements has as many instructions as memory takes. */
static int is_of_steps(struct pl *pl, const struct gnode *n, const struct anchor *s)
{
	enum { MOST_TAPS = 9, ELEMENTS = 1 << 20 };
	const struct val *x = s->in[0].val;
	const int64_t channels = ix_num(x->size[1]);

	return pl->target == WW_TARGET_CUDA && !pl_all_plain(pl) && s->conv.nd == 1 && !s->conv.transposed &&
		s->conv.groups == channels && ix_num(s->in[1].size[0]) == channels && s->conv.stride[0] == 1 &&
		ix_num(s->in[1].size[2]) <= MOST_TAPS && channels % 8 == 0 && pl_numel_now(x) >= ELEMENTS &&
		pl_most_along(pl, x, 1) && !pl_most_along(pl, x, 2) && is_read_across(pl, n);
}

/* A sum of written-out terms over (n, out, k), so that all loads of a thread are vectors; both operands are stored with
 * channels side by side. */
struct val *pl_conv_of_steps(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out)
{
	static const int steps[] = { 0, 2, 1 }, taps[] = { 1, 2, 0 };
	const struct ix *size[] = { out[0], out[2], out[1] }, *map[] = { pl->place[0], NULL, pl->place[2] };
	const struct ix *column[] = { ix_const(pl, 0), NULL, pl->place[2] };
	struct val *sum = NULL, *base = x;

	if (!is_of_steps(pl, n, s))
		return NULL;
	while (base->kind == V_VIEW && !base->root)
		base = base->arg[0];
	pl->n_anchor--;
	pl_guard_eq(pl, x->size[1], w->size[0], "the channels and the filters of a convolution of each channel alone");
	pl_guard_eq(pl, w->size[2], ix_const(pl, ix_num(w->size[2])), "the length of a filter whose terms are written out");
	x = pl_permute(pl, x, steps);
	w = pl_permute(pl, w, taps);
	if (!base->root && base->kind != V_BUF && base->kind != V_ANCHOR) /* which is stored as it lies */
		pl_make_root(pl, x);
	pl_make_root(pl, w);
	for (int64_t first = 0, last = ix_num(w->size[1]) - 1; first <= last;) { /* what no padding is read for, last */
		const int64_t ahead = s->conv.pad[0] - first * s->conv.dil[0], behind = last * s->conv.dil[0] - s->conv.pad[0];
		const int64_t k = ahead > behind ? first++ : last--, step = k * s->conv.dil[0] - s->conv.pad[0];
		const struct ix *at = ix_addc(pl, pl->place[1], step), *cond = NULL;
		struct val *term;

		if (step < 0)
			cond = ix_lt(pl, ix_const(pl, -1), at);
		if (ix_num(out[2]) + step > ix_num(x->size[1]))
			cond = cond ? ix_mul(pl, cond, ix_lt(pl, at, x->size[1])) : ix_lt(pl, at, x->size[1]);
		map[1] = at;
		column[1] = ix_const(pl, k);
		term = pl_op2(pl, OP_MUL, pl_view_if(pl, x, 3, size, map, cond, 0), pl_view(pl, w, 3, size, column));
		sum = sum ? pl_op2(pl, OP_ADD, sum, term) : term;
	}
	return pl_permute(pl, sum, steps);
}

enum { SHORT_PRODUCT = 32 }; /* channels of one pixel */

/* Is the filter as large as the image (a squeeze-excite's 1 x 1 after the average)?  Then each image gives one pixel,
 * and the convolution is a matrix product.  On the cpu a vector of pixels would use one lane; on cuda the library has a
 * pass for what follows behind its kernel, and a thread of our template goes along all channels, more than
 * SHORT_PRODUCT of which take longer than a product of one wave of tiles (64, counted: 64 steps of two loads that wait
 * for memory, 12 us for 320 images and 256 filters, 2 by the tiles' clocks); channels-last the template is not used. */
static int is_product(const struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	enum { ONE_WAVE = 1 << 27 };
	int64_t taps = 1, channels = ix_num(s->in[0].size[1]);

	for (int e = 0; e < s->conv.nd; e++) {
		if (ix_num(out[2 + e]) != 1 || s->conv.pad[e] || ix_num(s->in[0].size[2 + e]) != ix_num(s->in[1].size[2 + e]))
			return 0;
		taps *= ix_num(s->in[1].size[2 + e]);
	}
	if (s->conv.groups > 1 || s->conv.transposed)
		return 0;
	return pl->target == WW_TARGET_CPU ||
		(taps == 1 && (channels > SHORT_PRODUCT || pl_all_last(pl)) && !pl_all_plain(pl) &&
			pl_numel_now(s->in[0].val) * ix_num(out[1]) <= ONE_WAVE);
}

static struct val *by_product(struct pl *pl, struct gnode *n, struct val *x, struct val *w, int rank)
{
	const struct ix *rows[2] = { x->size[0], x->size[1] }, *filters[2] = { w->size[0], w->size[1] };
	const struct ix *size[PL_MAX_RANK] = { x->size[0], w->size[0] };

	for (int d = 2; d < rank; d++) {
		pl_guard_eq(pl, x->size[d], w->size[d], "a filter as large as its image");
		rows[1] = ix_mul(pl, rows[1], x->size[d]);
		filters[1] = ix_mul(pl, filters[1], w->size[d]);
		size[d] = ix_const(pl, 1);
	}
	x = pl_reshape(pl, x, 2, rows);
	w = pl_transposed(pl, pl_reshape(pl, w, 2, filters));
	x = pl_gemm(pl, n, x, w);
	if (x->kind == V_ANCHOR) /* else it is one in either order */
		x->anchor->gemm.of_conv = ix_num(rows[1]) <= SHORT_PRODUCT;
	return pl_reshape(pl, x, rank, size);
}

/* cuda: do the filters lie side by side on the image, whose channels are few (the patches of a transformer)?  The
 * library would widen channels that do not fill 16 bytes, by passes of its own; as a product of patches nothing is read
 * twice. */
static int is_patches(const struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	int64_t taps = 1, c = ix_num(s->in[0].size[1]);

	for (int e = 0; e < s->conv.nd; e++) {
		int64_t side = ix_num(s->in[1].size[2 + e]);

		if (s->conv.stride[e] != side || s->conv.pad[e] || (side > 1 && s->conv.dil[e] != 1) ||
			ix_num(out[2 + e]) * side != ix_num(s->in[0].size[2 + e]))
			return 0;
		taps *= side;
	}
	return pl->target == WW_TARGET_CUDA && s->conv.groups == 1 && !s->conv.transposed && taps > 1 && taps * c >= 16 &&
		c * pl_itemsize(s->in[0].val->dt) < 16;
}

/* (n, c, out * side...) as rows (n, out...) of (c, side...), times the filters. */
static struct val *by_patches(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *rows[2] = { out[0], x->size[1] };
	const struct ix *filters[2] = { w->size[0], w->size[1] };
	const struct ix *result[3], *plane = ix_const(pl, 1);
	int nd = s->conv.nd;

	for (int e = 0; e < nd; e++) {
		int64_t side = ix_num(w->size[2 + e]);

		size[1 + e] = out[2 + e];
		size[2 + nd + e] = ix_const(pl, side);
		map[2 + e] = ix_add(pl, ix_mulc(pl, pl->place[1 + e], side), pl->place[2 + nd + e]);
		plane = ix_mul(pl, plane, out[2 + e]);
		rows[1] = ix_mulc(pl, rows[1], side);
		filters[1] = ix_mulc(pl, filters[1], side);
	}
	rows[0] = ix_mul(pl, out[0], plane);
	size[0] = out[0];
	size[1 + nd] = x->size[1];
	map[0] = pl->place[0];
	map[1] = pl->place[1 + nd];
	pl_guard_eq(pl, x->size[1], w->size[1], "a convolution's channels");
	x = pl_reshape(pl, pl_view(pl, x, 2 + 2 * nd, size, map), 2, rows);
	x = pl_gemm(pl, n, x, pl_transposed(pl, pl_reshape(pl, w, 2, filters)));
	result[0] = out[0];
	result[1] = plane;
	result[2] = w->size[0];
	x = pl_permute(pl, pl_reshape(pl, x, 3, result), (int[]){ 0, 2, 1 });
	return pl_reshape(pl, x, 2 + nd, out);
}

/* cuda, 16 bits: is a filter one element, and the convolution a product of it and each image's pixels?  cuDNN has only
 * engines for channels-last here and turns both sides around them (40 x 256 x 32 x 32 to 640, bf16: 117 us, 29 of
 * these the product); fp32 in TF32 it multiplies as it lies, and of few channels with a bias, whose pass our product
 * would save, ours was slower all the same (24001-241: 126 us, 172 as a product, H200).  Not of few channels, which are
 * our direct template's, nor of rows that no 16 bytes divide, which would be copied (201 channels of 11 x 243: 41 us in
 * place of 33). */
static int is_product_of_pixels(const struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	int64_t pixels = 1, channels = ix_num(s->in[0].size[1]);

	for (int e = 0; e < s->conv.nd; e++) {
		if (!ix_is(s->in[1].size[2 + e], 1) || s->conv.stride[e] != 1 || s->conv.pad[e])
			return 0;
		pixels *= ix_num(out[2 + e]);
	}
	return pl->target == WW_TARGET_CUDA && !pl_all_last(pl) && pl_is_half(s->in[0].val->dt) && s->conv.groups == 1 &&
		!s->conv.transposed && pixels >= 32 && pixels % 8 == 0 && ix_num(out[1]) >= 32 && channels >= 32 &&
		channels % 8 == 0;
}

static struct val *by_pixels(
	struct pl *pl, struct gnode *n, struct val *x, struct val *w, int rank, const struct ix *const *out)
{
	const struct ix *pixels = pl_sizes(pl, x, 2, rank), *image[3] = { x->size[0], x->size[1], pixels };
	const struct ix *filters[2] = { w->size[0], w->size[1] }, *batch[3] = { x->size[0], w->size[0], w->size[1] };
	const struct ix *map[2] = { pl->place[1], pl->place[2] };

	pl_guard_eq(pl, x->size[1], w->size[1], "a convolution's channels");
	w = pl_view(pl, pl_reshape(pl, w, 2, filters), 3, batch, map);
	x = pl_gemm(pl, n, w, pl_reshape(pl, x, 3, image));
	x->anchor->gemm.of_conv = 1;
	return pl_reshape(pl, x, rank, out);
}

/* Is a transposed convolution of few pixels a product of each pixel and all filters, whose results are then folded? Our
 * template would pack the filters, which are most of what is read, and have few tiles (331 channels of 9 x 4 to 727, 9
 * x 9: 78 MB packed across memory, then read by 12 blocks).  The product reads them once, as they lie. */
static int is_folded(struct pl *pl, const struct anchor *s, const struct ix *const *out)
{
	enum { FOLD_US = 5 }; /* and three times the bytes of its columns */
	struct anchor t = *s;
	int64_t images = ix_num(out[0]), pixels = 1, columns = ix_num(out[1]);

	if (!s->conv.transposed || s->conv.nd != 2 || s->conv.library_only)
		return 0;
	t.out = pl_val(pl, V_ANCHOR, s->in[0].val->dt, 4, out);
	if (!pl_conv_is_tiled(pl, &t))
		return 0;
	for (int e = 0; e < 2; e++) {
		pixels *= ix_num(s->in[0].size[2 + e]);
		columns *= ix_num(s->in[1].size[2 + e]);
	}
	return pl_product_us(pl, columns, pixels, ix_num(s->in[0].size[1]), images) + FOLD_US +
		3 * 4e-6 * (double)(images * columns * pixels) <
		0.75 * pl_conv_tc_us(pl, &t);
}

/* (n, c, pixels), each pixel times (c, k taps), as columns (n, k taps, pixels). */
static struct val *by_fold(
	struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w, const struct ix *const *out)
{
	const struct ix *image[3] = { x->size[0], x->size[1], pl_sizes(pl, x, 2, 4) }, *matrix[3], *map[2];
	const struct ix *filters[2] = { w->size[0], pl_sizes(pl, w, 1, 4) };
	struct pl_fold f;

	for (int e = 0; e < 2; e++) {
		f.k[e] = ix_num(w->size[2 + e]);
		f.dil[e] = s->conv.dil[e];
		f.pad[e] = s->conv.pad[e];
		f.step[e] = s->conv.stride[e];
		f.blocks[e] = x->size[2 + e];
	}
	pl_guard_eq(pl, x->size[1], w->size[0], "a convolution's channels");
	matrix[0] = x->size[0];
	matrix[1] = filters[1];
	matrix[2] = filters[0];
	map[0] = pl->place[2];
	map[1] = pl->place[1];
	w = pl_view(pl, pl_reshape(pl, w, 2, filters), 3, matrix, map);
	x = pl_gemm(pl, n, w, pl_reshape(pl, x, 3, image));
	if (x->kind == V_ANCHOR)
		x->anchor->gemm.of_conv = 1;
	return pl_fold(pl, x, &f, out + 2);
}

struct val *pl_conv_by_product(struct pl *pl, struct gnode *n, const struct anchor *s, struct val *x, struct val *w,
	int library, const struct ix *const *out)
{
	int rank = 2 + s->conv.nd;

	if (is_product(pl, s, out)) {
		pl->n_anchor--;
		return by_product(pl, n, x, w, rank);
	}
	if (!library)
		return NULL;
	if (2 + 2 * s->conv.nd <= PL_MAX_RANK && is_patches(pl, s, out)) {
		pl->n_anchor--;
		return by_patches(pl, n, s, x, w, out);
	}
	if (!s->conv.pytorch_last && is_product_of_pixels(pl, s, out)) {
		pl->n_anchor--;
		return by_pixels(pl, n, x, w, rank, out);
	}
	if (is_folded(pl, s, out)) {
		pl->n_anchor--;
		return by_fold(pl, n, s, x, w, out);
	}
	return NULL;
}
