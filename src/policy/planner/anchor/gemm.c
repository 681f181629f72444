/* gemm.c - matrix products. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

#include <math.h>
#include <string.h>
#include <ww/recipe/gemm_short.h>
#include <ww/recipe/gemm_thin.h>
#include <ww/recipe/gemm_tile.h>

/* sum over k of a[..., m, k] b[..., k, n] as a reduction of a product. */
static struct val *by_reduction(struct pl *pl, struct val *a, struct val *b)
{
	int r = a->rank, perm[PL_MAX_RANK];

	for (int i = 0; i < r; i++)
		perm[i] = i;
	perm[r - 1] = r - 2;
	perm[r - 2] = r - 1;
	b = pl_permute(pl, b, perm);    /* (..., n, k) */
	a = pl_unsqueeze(pl, a, r - 1); /* (..., m, 1, k) */
	b = pl_unsqueeze(pl, b, r - 2); /* (..., 1, n, k) */
	if (ix_is(a->size[r], 1))       /* an outer product */
		return pl_squeeze(pl, pl_op2(pl, OP_MUL, a, b), r);
	return pl_reduce(pl, RED_SUM, pl_op2(pl, OP_MUL, a, b), 1u << r, 0);
}

/* Is the product so small that a warp for each element is faster than a tile's loop over k (66 us for 4 x 90 x 512 on
 * an H200)?  Not for k up to 64: such a reduction would be fused and computed again by each reader. */
static int is_small(const struct pl *pl, const struct val *a, const struct ix *n)
{
	return pl->target == WW_TARGET_CUDA && a->dt == WW_F32 && !pl_all_plain(pl) && ix_num(a->size[a->rank - 1]) > 64 &&
		(double)pl_numel_now(a) * (double)ix_num(n) <= 1 << 21;
}

/* Have the rows of A and of a large result so few elements that a tile of tensor cores, of 32 columns and steps of 16
 * along k or more, would be mostly empty?  (1048576 x 8 x 8, four of them, took 368 us on an H200, for 268 MB.) */
static int is_sliver(const struct pl *pl, const struct val *a, const struct ix *n)
{
	const int64_t k = ix_num(a->size[a->rank - 1]);

	return pl->target == WW_TARGET_CUDA && !pl_all_plain(pl) && k > 4 && k <= 8 && ix_num(n) <= 16 &&
		ix_num(n) % 4 == 0 && pl_numel_now(a) / k * ix_num(n) >= 1024 * (int64_t)pl->dev.sm_count;
}

/* Store what v is a view of, if it is computed: a GEMM reads each element many times. */
static void store_base(struct pl *pl, struct val *v)
{
	while (v->kind == V_VIEW && !v->root)
		v = v->arg[0];
	if (v->kind == V_OP || v->kind == V_RED)
		pl_make_root(pl, v);
}

struct val *pl_gemm_to(struct pl *pl, struct gnode *n, struct val *a, struct val *b, int out)
{
	int nb = a->rank - 2, dt = pl_promote(a->dt, b->dt), few;
	const struct ix *size[PL_MAX_RANK], *m = a->size[nb], *k = a->size[nb + 1], *nn = b->size[nb + 1];
	struct anchor *s;

	pl_guard_eq(pl, k, b->size[nb], "the inner sizes of a matrix product");
	a = pl_cast(pl, a, dt);
	b = pl_cast(pl, b, dt);
	few = is_small(pl, a, nn) || (is_sliver(pl, a, nn) && ix_num(m) > 1 && ix_num(nn) > 1);
	if (few) {
		store_base(pl, a);
		store_base(pl, b);
	}
	if (few || ix_num(m) == 1 || ix_num(nn) == 1 || ix_num(k) <= 4 || !(dt == WW_F32 || pl_is_half(dt)))
		return pl_cast(pl, by_reduction(pl, pl_cast(pl, a, out), pl_cast(pl, b, out)), out);
	if (pl->target == WW_TARGET_CUDA) {
		a = pl_constants_below(pl, a);
		b = pl_constants_below(pl, b);
	}
	s = pl_anchor(pl, n, S_GEMM, "gemm");
	memcpy(size, a->size, sizeof(size));
	size[nb + 1] = nn;
	s->gemm.n_batch = nb;
	pl_anchor_operand(s, a);
	pl_anchor_operand(s, b);
	return pl_anchor_out(pl, s, out, nb + 2, size);
}

struct val *pl_gemm(struct pl *pl, struct gnode *n, struct val *a, struct val *b)
{
	return pl_gemm_to(pl, n, a, b, pl_promote(a->dt, b->dt));
}

static const struct ix *inner(const struct anchor *s) { return s->in[0].size[s->gemm.n_batch + 1]; }

/* Can the batch axes from..to-1 of an operand be traversed by one stride? */
static int one_stride(const struct operand *o, int from, int to)
{
	for (int d = from; d + 1 < to; d++)
		if (ix_num(o->stride[d]) != ix_num(o->stride[d + 1]) * ix_num(o->size[d + 1]))
			return 0;
	return 1;
}

/* ---- Schedule ---------------------------------------------------------------------------------------------------- */

/* ww::gemm_any, ww::gemm_thin or ww_cpu_gemm_thin, ww::gemm_short, ww::gemm_mma, ww::gemm16, ww::gemm3 */
enum form { ANY, THIN, SHORT, MMA, HALF, SPLIT };

static const struct ix *stride_of(struct pl *pl, const struct anchor *sp, int which, int d)
{
	return d < 0 ? ix_const(pl, 0) : sp->in[which].stride[d];
}

/* The type of the operands; the result's type may be wider. */
static int in_dt(const struct anchor *sp) { return sp->in[0].val->dt; }

/* Are the strides and the offset of a 16-bit operand aligned to 16 bytes, as tensor maps need? */
static int is_aligned(const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch;

	return !(ix_num(o->stride[nb + which]) % 8 || ix_num(o->offset) % 8 || (nb && ix_num(o->stride[nb - 1]) % 8));
}

/* Is the operand contiguous along k? */
static int is_along(const struct anchor *sp, int which)
{
	return ix_is(sp->in[which].stride[sp->gemm.n_batch + 1 - which], 1);
}

/* Is one matrix the operand of all batches, so that gemm3 and gemm16 can read it as one?  gemm3 only its first. */
static int is_one(const struct anchor *sp, int which)
{
	int several = 0;

	for (int d = 0; d < sp->gemm.n_batch; d++) {
		if (ix_is(sp->out->size[d], 1))
			continue;
		if (!ix_is(sp->in[which].stride[d], 0))
			return 0;
		several = 1;
	}
	return several && (!which || in_dt(sp) != WW_F32);
}

/* Is one matrix otherwise the operand of several batches?  A tensor map has no stride of 0. */
static int is_repeated(const struct anchor *sp, int which)
{
	for (int d = 0; d < sp->gemm.n_batch; d++)
		if (ix_is(sp->in[which].stride[d], 0) && !ix_is(sp->out->size[d], 1))
			return !is_one(sp, which);
	return 0;
}

/* Does gemm16 read the operand as it is, not a copy along k with aligned rows? */
static int is_read(const struct anchor *sp, int which)
{
	return is_along(sp, which) && is_aligned(sp, which) && !is_repeated(sp, which);
}

/* Are both operands contiguous along k or across it, so that gemm16 reads them or copies of them? */
static int fits_gemm16(const struct anchor *sp)
{
	int nb = sp->gemm.n_batch, fits = 1;

	for (int i = 0; i < 2; i++)
		fits = fits && (is_along(sp, i) || ix_is(sp->in[i].stride[nb + i], 1));
	return fits;
}

/* Can the library read the operands: rows do not overlap, and one stride leads from batch to batch? */
static int fits_library(const struct anchor *sp)
{
	int r = sp->gemm.n_batch + 2;

	for (int i = 0; i < 2; i++) {
		const struct operand *o = &sp->in[i];
		int rows = ix_is(o->stride[r - 1], 1); /* (m, k) and (k, n) row by row, or by columns */
		const struct ix *length = rows == i ? sp->out->size[r - 2 + i] : inner(sp);

		if (ix_num(o->stride[rows ? r - 2 : r - 1]) < ix_num(length) || !one_stride(o, 0, sp->gemm.n_batch))
			return 0;
	}
	return 1;
}

/* Estimated microseconds on an H200, by form: launches, bytes that launches ahead of the product move, and
 * multiply-adds in waves of tiles (fitted to the measurements of bench/results/products.md).  Only the order of the
 * forms matters. */
struct estimate {
	double m, n, k, batch, sms;
};

static struct estimate estimate(const struct pl *pl, const struct anchor *sp)
{
	double m = (double)ix_num(sp->out->size[sp->gemm.n_batch]), n = (double)ix_num(sp->out->size[sp->gemm.n_batch + 1]);

	return (struct estimate){ m, n, (double)ix_num(inner(sp)), (double)pl_numel_now(sp->out) / (m * n),
		pl->dev.sm_count ? pl->dev.sm_count : 132 };
}

enum { LAUNCH_US = 2 };
static double moved_us(double bytes) { return bytes / 3e6; }

/* Multiply-adds a microsecond and SM of gemm3. */
static const double split_rate = 850e3;

/* k, rounded up to gemm3's steps of 32. */
static double in_steps(const struct estimate *e) { return 32 * ceil(e->k / 32); }

static double tiles_of(const struct estimate *e, double cols)
{
	return ceil(e->m / 128) * ceil(e->n / cols) * e->batch;
}

/* Blocks that share the columns' operand of gemm16. */
static int cluster_of(const struct estimate *e, double cols)
{
	return tiles_of(e, cols) < 2 * e->sms || e->m <= 128 ? 1 : 2;
}

/* The products of a tile of 128 x cols of gemm16: steps of 64 of k, which take what tensor cores need (2,048
 * multiply-adds a clock) or the second level to hand over both operands (47 kB a us and SM).  Measured with a bias on
 * an H200, us a tile: 17.9 of 256 columns and 16 steps, 10.8 and 9.1 of 128 columns, 14 and 10 steps, 2.7 of 64, 3
 * steps. */
static double half_steps_us(const struct estimate *e, double cols)
{
	double busy = fmin(1, tiles_of(e, cols) / e->sms), bytes = 128 * (128 + cols / cluster_of(e, cols));

	return ceil(e->k / 64) * fmax(128 * cols * 64 / (2048 * 1755), busy * bytes / 47e3);
}

/* The same of gemm3. */
static double split_steps_us(const struct estimate *e, double cols) { return cols * 128 * in_steps(e) / split_rate; }

/* Widths of gemm3's and gemm16's tiles, and which two pairs of warpgroups can share (enough registers). */
static const int widths[2][5] = { { 192, 128, 64 }, { 256, 192, 128, 64 } };
static int widest_of_pairs(int half) { return half ? 128 : 64; }

/* All tiles of 128 x cols: a start and an end of each (longer for gemm3, which has scales), and the multiply-adds.
 * gemm3's is 3 us of 128 columns: with 4, forms were chosen that are slower than gemm3 (bench/results/products.md).
 * Two pairs take turns: a pair's tile is stored while the other's is multiplied. */
static double tiled_us(const struct estimate *e, double cols, int pairs, int half)
{
	double end = cols * (half ? 2 : 3) / 128, on_one = ceil(tiles_of(e, cols) / e->sms);
	double steps = half ? half_steps_us(e, cols) : split_steps_us(e, cols);

	if (pairs == 1)
		return on_one * (end + steps);
	if (!half) /* the second level, as for gemm16 */
		steps = fmax(steps, in_steps(e) / 32 * 128 * (128 + cols) / 47e3);
	return end + steps + (on_one - 1) * fmax(0.6 * (end + steps), steps);
}

struct tile {
	int bn, pairs;
};

/* gemm3's or gemm16's tiles with the least time, of at most so many pairs; of about equal ones the widest, and one
 * pair. */
static struct tile best_tile(const struct estimate *e, int half, int most)
{
	double least = INFINITY;
	struct tile best = { 128, 1 };

	for (int pairs = 1; pairs <= most; pairs++)
		for (const int *bn = widths[half]; *bn; bn++) {
			double us = pairs == 1 || *bn <= widest_of_pairs(half) ? tiled_us(e, *bn, pairs, half) : INFINITY;

			if (us < (pairs > best.pairs ? 0.9 : 0.97) * least) {
				least = us;
				best = (struct tile){ *bn, pairs };
			}
		}
	return best;
}

/* The time that forms are chosen by, of one pair: what two take has not been measured. */
static double best_tile_us(const struct estimate *e, int half)
{
	return tiled_us(e, best_tile(e, half, 1).bn, 1, half);
}

/* The same with what the search set. */
static struct tile tile_of(const struct knobs *kn, const struct estimate *e, int half)
{
	struct tile t = best_tile(e, half, 2);

	if (kn->gemm.bn)
		t.bn = kn->gemm.bn;
	if (kn->gemm.pairs)
		t.pairs = kn->gemm.pairs;
	if (t.bn > widest_of_pairs(half))
		t.pairs = 1;
	return t;
}

/* The number of products, of more than 32 rows and columns, that read operand `which` by the same strides: they share
 * the cost of splitting it. */
static int readers(const struct pl *pl, const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int n = 0;

	for (int i = 0; i < pl->n_anchor; i++) {
		const struct anchor *a = pl->anchor[i];
		const struct operand *p = &a->in[which];
		int same = a->kind == S_GEMM && p->val == o->val && p->rank == o->rank &&
			ix_num(a->out->size[a->gemm.n_batch]) > 32 && ix_num(a->out->size[a->gemm.n_batch + 1]) > 32;

		for (int d = 0; same && d < o->rank; d++)
			same = ix_same(p->stride[d], o->stride[d]);
		n += same;
	}
	return n ? n : 1;
}

/* Results of `bytes` of an odd number of columns, which our tiles of fp32 store one by one: 0.26 us for each MB; more
 * where a tile has one short step, beside which no other is stored (7,168 x 8 to 861 with a sigmoid, 24.7 MB: 33 us or
 * more of piece-45013-229's 71.6 by what eager's kernels leave, 10 by gemm_mma's clocks). */
static double odd_us(const struct estimate *e, int bytes)
{
	return fmod(e->n, 2) ? (e->k <= 16 ? 0.9e-6 : 0.26e-6) * bytes * e->batch * e->m * e->n : 0;
}

/* Results of 16 bits with an odd number of columns, which the library and gemm_mma store one by one, in parts of
 * sectors: 0.7 us for each MB.  The library, 1048576 x 73 x 24: 178 us on an H200, 69 without them, 1215 x 1665 x 135:
 * 16.5 and 12.3; gemm_mma, the latter: 28.8 and 21.2.  gemm16 turns them in shared memory first. */
static double odd_halves_us(const struct estimate *e)
{
	return fmod(e->n, 2) ? 0.7e-6 * 2 * e->batch * e->m * e->n : 0;
}

/* Rows of operand `which` in memory: of all batches, or of the one matrix that they share. */
static double rows_of(const struct anchor *sp, const struct estimate *e, int which)
{
	return (is_one(sp, which) ? 1 : e->batch) * (which ? e->n : e->m);
}

/* gemm3.  An operand that is not contiguous along k takes one launch more.  along: take operands as contiguous along
 * k. */
static double split_us(const struct pl *pl, const struct anchor *sp, const struct estimate *e, int along)
{
	double us = LAUNCH_US + best_tile_us(e, 0);

	for (int i = 0; i < 2; i++) {
		int turned = !along && !ix_is(sp->in[i].stride[sp->gemm.n_batch + 1 - i], 1);
		double rows = along ? e->batch * (i ? e->n : e->m) : rows_of(sp, e, i);

		us += (LAUNCH_US * (1 + turned) + moved_us(4 * rows * (e->k + in_steps(e)))) / readers(pl, sp, i);
	}
	return us + odd_us(e, 4);
}

static double half_us(const struct estimate *e)
{
	double bytes = 2 * e->batch * ((e->m + e->n) * e->k + e->m * e->n);

	return LAUNCH_US + fmax(best_tile_us(e, 1), bytes / 4.2e6);
}

/* The copies of gemm16's operands whose rows are not aligned, or not along k. */
static double padding_us(const struct anchor *sp, const struct estimate *e)
{
	double us = 0;

	for (int i = 0; i < 2; i++)
		if (!is_read(sp, i))
			us += LAUNCH_US + moved_us(4 * rows_of(sp, e, i) * e->k);
	return us;
}

/* Elements that gemm_mma copies by one instruction, as ww_mma_vector() of the recipe. */
static int vector_of(const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch, v = 16 / pl_itemsize(in_dt(sp)), line = ix_is(o->stride[nb + 1 - which], 1);
	int64_t terms = ix_num(o->offset) | ix_num(o->stride[line ? nb + which : nb + 1 - which]);

	for (int d = 0; d < nb; d++)
		terms |= ix_num(o->stride[d]);
	while (v > 1 && terms % v)
		v /= 2;
	return v;
}

/* aligned: count the operands as aligned, since their strides are not known yet. */
static double mma_us(const struct anchor *sp, const struct estimate *e, int aligned)
{
	int whole = 16 / pl_itemsize(in_dt(sp));

	return ww_mma_choose(&(struct ww_mma_size){ .m = (long long)e->m,
							 .n = (long long)e->n,
							 .k = (long long)e->k,
							 .batch = (long long)e->batch,
							 .bytes = pl_itemsize(in_dt(sp)),
							 .a_vector = aligned ? whole : vector_of(sp, 0),
							 .b_vector = aligned ? whole : vector_of(sp, 1),
							 .sms = (long long)e->sms })
		.us;
}

/* cuda: has the product so few columns that tiles would be mostly empty?  Its first operand is read along k.  Not a
 * batch of small ones (2,048 of 5 x 416 times 416 x 5 took 18 us more than the library's). */
static int fits_thin(const struct pl *pl, const struct anchor *sp)
{
	int64_t n = ix_num(sp->out->size[sp->gemm.n_batch + 1]);

	return pl->dev.cc >= 80 && in_dt(sp) == WW_F32 && !sp->gemm.n_batch && n <= 16 && is_along(sp, 0) &&
		((is_along(sp, 1) && ix_num(sp->in[1].stride[1]) <= 1 << 26) ||
			(ix_is(sp->in[1].stride[1], 1) && ww_thin_turns(n, ix_num(inner(sp)))));
}

static double thin_us(const struct anchor *sp, const struct estimate *e)
{
	int v = is_along(sp, 1) ? (int)ww_min(vector_of(sp, 0), vector_of(sp, 1)) : vector_of(sp, 0);

	while ((int64_t)e->k % v)
		v /= 2;
	return ww_thin_us(&(struct ww_mma_size){ .m = (long long)e->m,
						  .n = (long long)e->n,
						  .k = (long long)e->k,
						  .batch = (long long)e->batch,
						  .bytes = 4,
						  .a_vector = v,
						  .sms = (long long)e->sms },
		!is_along(sp, 1));
}

/* cuda: is k so short that a step of tensor cores would be mostly zeros, and its columns more than few? */
static int fits_short(const struct pl *pl, const struct anchor *sp)
{
	const int nb = sp->gemm.n_batch;

	return pl->dev.cc >= 80 && in_dt(sp) == WW_F32 && ix_num(sp->out->size[nb + 1]) > 16 && ix_num(inner(sp)) <= 16 &&
		is_along(sp, 0) && (is_along(sp, 1) || ix_is(sp->in[1].stride[nb + 1], 1));
}

static double short_us(const struct estimate *e)
{
	return ww_short_us(&(struct ww_mma_size){ .m = (long long)e->m,
		.n = (long long)e->n,
		.k = (long long)e->k,
		.batch = (long long)e->batch,
		.bytes = 4,
		.sms = (long long)e->sms });
}

/* The type of the library's result: fp32 if a reader follows after which PyTorch rounds (a bias, which may cancel it).
 */
static int library_dt(const struct anchor *sp)
{
	return pl_is_half(sp->out->dt) && !sp->out->result ? WW_F32 : sp->out->dt;
}

/* Rows or columns, rounded up to cuBLAS's fp32 tiles of 64; up to 32 cost as much as 38. */
static double in_tiles(double n) { return n <= 32 ? 38 : 64 * ceil(n / 64); }

/* fp32 without tensor cores: a tile's start costs as much as 40 of k; few tiles leave SMs idle, unless a long k is
 * split. */
static double plain_us(const struct estimate *e)
{
	double tiles = ceil(e->m / 64) * ceil(e->n / 64) * e->batch * fmax(1, floor(e->k / 4096));
	double us = e->batch * in_tiles(e->m) * in_tiles(e->n) * (e->k + 40) / 25.5e6;

	return (fmin(e->m, e->n) <= 32 ? 8 : 4.5) + us * fmin(1.8, fmax(1, e->sms / tiles));
}

/* 16 bits on tensor cores.  If 16 bytes do not divide the rows of an operand, the rate is a tenth, of the result a
 * half; and then the steps of k do not overlap. */
static double tensor_us(const struct anchor *sp, const struct estimate *e)
{
	int read = vector_of(sp, 0) == 8 && vector_of(sp, 1) == 8, aligned = read && fmod(e->n, 8) == 0;
	double us = e->batch * e->m * e->n * e->k / (aligned ? 320e6 : read ? 160e6 : 28e6);

	return 2.5 + fmax(us, aligned ? 0 : e->k * 6e-3);
}

/* end: what it adds, which our tiles would read as well; NULL: a pass behind it computes the rest. */
static double library_us(const struct anchor *sp, const struct estimate *e, const struct pl_end *end)
{
	int bytes = pl_itemsize(in_dt(sp)), out = pl_itemsize(end ? end->dt : library_dt(sp));
	double result = e->batch * e->m * e->n, moved = bytes * e->batch * (e->m + e->n) * e->k + out * result;
	double us = bytes == 4 ? plain_us(e) : tensor_us(sp, e);

	return fmax(us, LAUNCH_US + moved_us(moved)) + (out == 2 ? odd_halves_us(e) : 0) +
		(end ? 0 : LAUNCH_US + moved_us((out + pl_itemsize(sp->out->dt)) * result));
}

/* For each million results of gemm_mma in 16 bits that something is read for: 114,176 x 856 x 24 with a residual took
 * 305 us, 109 by the estimate of a bare product. */
enum { MMA_END_US = 1 };

/* The form with the least time; *library: the library takes less, with this end; *least: of all. */
static enum form best_form(
	struct pl *pl, const struct anchor *sp, const struct pl_end *end, int *library, double *least)
{
	struct estimate e = estimate(pl, sp);
	double us, mma = INFINITY, tiled = INFINITY, thin = INFINITY;
	int half = in_dt(sp) != WW_F32, nb = sp->gemm.n_batch;

	for (int i = 0; i < 2; i++)
		if (!one_stride(&sp->in[i], 0, nb)) {
			*library = 0;
			*least = mma_us(sp, &e, 1);
			return MMA;
		}
	if (pl->dev.cc >= 80)
		mma = mma_us(sp, &e, 0) + (half ? odd_halves_us(&e) : odd_us(&e, 4)) +
			(half && (!end || end->added || end->dt != sp->out->dt) ? MMA_END_US * e.batch * e.m * e.n * 1e-6 : 0);
	if (pl->dev.cc == 90 && (!half || fits_gemm16(sp)))
		tiled = half ? half_us(&e) + padding_us(sp, &e) : split_us(pl, sp, &e, 0);
	if (fits_thin(pl, sp) || fits_short(pl, sp)) /* one or the other */
		thin = fits_short(pl, sp) ? short_us(&e) : thin_us(sp, &e);
	us = fmin(fmin(mma, tiled), thin);
	*least = fits_library(sp) ? fmin(us, library_us(sp, &e, end)) : us;
	*library = *least < us;
	return us == INFINITY ? ANY
		: us == thin      ? (fits_short(pl, sp) ? SHORT : THIN)
		: mma < tiled     ? MMA
		: half            ? HALF
						  : SPLIT;
}

/* Unit stride along rows or columns, and one stride from batch to batch.  Two batch strides fit if gemm_mma, which
 * reads them, takes less than copying both operands and the product of the copies. */
static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	const struct ix *const *st = o->stride;
	int nb = s->gemm.n_batch, r = nb + 2, by_row, by_col;
	struct estimate e = estimate(pl, s);

	by_row = ix_num(st[r - 1]) == 1 && ix_num(st[r - 2]) > 0;
	by_col = ix_num(st[r - 2]) == 1 && ix_num(st[r - 1]) > 0;
	if (!by_row && !(by_col && (which == 1 || pl->target == WW_TARGET_CUDA)))
		return 0;
	if (one_stride(o, 0, nb))
		return 1;
	return pl->target == WW_TARGET_CUDA && pl->dev.cc >= 80 && !pl_all_plain(pl) && one_stride(o, 0, nb - 1) &&
		mma_us(s, &e, 1) < 2 * (LAUNCH_US + moved_us(2 * pl_itemsize(in_dt(s)) * e.batch * (which ? e.n : e.m) * e.k)) +
			(in_dt(s) == WW_F32 ? split_us(pl, s, &e, 1) : half_us(&e));
}

/* Free if our tiles compute the product, not the library. */
static int ends_free(struct pl *pl, const struct anchor *s)
{
	int library = 0;
	double us;

	if (pl->target == WW_TARGET_CPU || pl_all_plain(pl))
		return 1;
	best_form(pl, s, NULL, &library, &us);
	return !library;
}

static double bare_us(struct pl *pl, const struct anchor *s)
{
	struct pl_end bare = { .alpha = 1, .dt = s->out->dt };
	int library;
	double us;

	best_form(pl, s, &bare, &library, &us);
	return us;
}

/* What it takes to read the result once. */
static double read_us(const struct anchor *s)
{
	return moved_us((double)pl_itemsize(s->out->dt) * (double)pl_numel_now(s->out));
}

/* Can t, which is s or s transposed, end in what spares so many reads of the result, for less than these take? */
static int pays(struct pl *pl, const struct anchor *s, const struct anchor *t, int reads)
{
	int library = 0;
	double us;

	best_form(pl, t, NULL, &library, &us);
	return !library && us <= bare_us(pl, s) + reads * read_us(s);
}

static int ends_for(struct pl *pl, const struct anchor *s, int reads) { return pays(pl, s, s, reads); }

/* The operands of the transposed product: the second one's columns are its rows, and the first one's rows its columns,
 * of one matrix `rows` for each of so many items (NULL: as they are). */
static void exchange(
	struct pl *pl, struct anchor *s, const struct ix *items, const struct ix *rows, const struct operand *from)
{
	int nb = s->gemm.n_batch;

	for (int i = 0; i < 2; i++) {
		struct operand *o = &s->in[i];

		*o = from[1 - i];
		for (int d = 0; d < 2; d++) {
			o->size[nb + d] = from[1 - i].size[nb + 1 - d];
			o->stride[nb + d] = from[1 - i].stride[nb + 1 - d];
		}
		if (!items)
			continue;
		for (int d = 2; d > 0; d--) {
			o->size[d] = o->size[d - 1];
			o->stride[d] = o->stride[d - 1];
		}
		o->rank = 3;
		o->size[0] = items;
		o->stride[0] = i ? ix_mul(pl, rows, o->stride[2]) : ix_const(pl, 0);
		if (i)
			o->size[2] = rows;
	}
	s->gemm.n_batch = items ? 1 : nb;
}

/* Is the transposed product slower by no more than its result takes to be read once?  What reads it across memory, or
 * passes over it to turn it, takes at least that longer. */
static int turn(struct pl *pl, struct anchor *s, const struct ix *items, const struct ix *rows, int reads)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
	struct val *o = s->out, *out;
	struct anchor t = *s;
	int nb = s->gemm.n_batch, rank = nb + 2 + (items != NULL);

	if (rank > PL_MAX_RANK)
		return 0;
	exchange(pl, &t, items, rows, s->in);
	for (int d = 0; d < nb; d++) {
		size[d] = o->size[d];
		map[d] = pl->place[d];
	}
	if (items) {
		size[0] = items;
		map[0] = ix_div(pl, pl->place[0], rows);
	}
	size[rank - 2] = o->size[nb + 1];
	size[rank - 1] = items ? rows : o->size[nb];
	map[rank - 2] = pl->place[nb + 1];
	map[rank - 1] = items ? ix_mod(pl, pl->place[0], rows) : pl->place[nb];
	out = t.out = pl_val(pl, V_ANCHOR, o->dt, rank, size);
	out->node = o->node;
	out->result = o->result;
	out->anchor = s;
	if (reads ? !pays(pl, s, &t, reads) : bare_us(pl, &t) > bare_us(pl, s) + read_us(s))
		return 0;
	if (items)
		pl_guard_eq(pl, ix_mul(pl, items, rows), o->size[0], "the rows of a product that is turned");
	*s = t;
	o->kind = V_VIEW;
	o->anchor = NULL;
	o->arg[0] = out;
	o->n_arg = 1;
	memcpy(o->map, map, sizeof(map));
	return 1;
}

static int is_nk(const struct anchor *sp) { return !ix_is(sp->in[1].stride[sp->gemm.n_batch + 1], 1); }

/* cpu: has A so few rows that B is not packed but read once in place, with vectors along k?  Each element then costs a
 * sum across lanes, which does not pay for a short k. */
static int is_thin(const struct anchor *sp, const struct knobs *kn)
{
	int64_t m = ix_num(sp->out->size[sp->gemm.n_batch]), k = ix_num(inner(sp)), most = in_dt(sp) == WW_F32 ? 32 : 64;

	return is_nk(sp) && kn->cpu_gemm.form != 1 && (kn->cpu_gemm.form == 2 || m <= ww_min(most, 8 + k / 4));
}

/* The library can do all that kernel k does. */
static int ends_in_library(struct pl *pl, const struct kern *k, struct pl_end *end)
{
	return k->out[0]->root && pl_ends_as(pl, k, end);
}

static void choose(struct pl *pl, const struct kern *k, struct loop *l)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct pl_end end;
	double us;
	int library = 0,
		strides = one_stride(&sp->in[0], 0, sp->gemm.n_batch) && one_stride(&sp->in[1], 0, sp->gemm.n_batch);
	int half = in_dt(sp) != WW_F32, tiles = pl->dev.cc == 90 && strides && (!half || fits_gemm16(sp));

	l->outer = pl_sizes(pl, sp->out, 0, sp->gemm.n_batch);
	if (pl->target == WW_TARGET_CPU) {
		l->form = is_thin(sp, kn) ? THIN : ANY;
		return;
	}
	l->form = kn->plain ? ANY : best_form(pl, sp, ends_in_library(pl, k, &end) ? &end : NULL, &library, &us);
	if (kn->gemm.form == 1 && l->form != ANY)
		l->form = MMA;
	else if (kn->gemm.form == 2 && tiles)
		l->form = half ? HALF : SPLIT;
	if (kn->library)
		library = kn->library != LIBRARY_NO;
	l->library = (l->form >= HALF ? OURS_TILED : 0) | (library && fits_library(sp) ? BY_LIBRARY : 0);
}

double pl_gemm_us(struct pl *pl, struct kern *k)
{
	struct pl_end end;
	int library;
	double us;

	best_form(pl, k->anchor, ends_in_library(pl, k, &end) ? &end : NULL, &library, &us);
	return us;
}

double pl_product_us(const struct pl *pl, int64_t m, int64_t n, int64_t k, int64_t batch)
{
	const double moved = 4.0 * (double)batch * (double)(m * k + k * n + m * n);
	const struct ww_mma_size size = { .m = m,
		.n = n,
		.k = k,
		.batch = batch,
		.bytes = 4,
		.a_vector = m % 4 ? 1 : 4,
		.b_vector = n % 4 ? 1 : 4,
		.sms = pl->dev.sm_count };

	return fmax(ww_mma_choose(&size).us, LAUNCH_US + moved_us(moved)) + (n % 2 ? 0.26e-6 * moved : 0);
}

static int reads_operands(struct pl *pl, const struct kern *k)
{
	struct loop l = { 0 };

	choose(pl, k, &l);
	return pl->target == WW_TARGET_CUDA && l.form == ANY && !(l.library & BY_LIBRARY);
}

static void build(struct pl *pl, struct kern *k)
{
	const struct val *out = k->anchor->out;
	int nb = k->anchor->gemm.n_batch;
	struct loop *l = k->loop;
	struct pl_end end = { .alpha = 1 };
	int whole = ends_in_library(pl, k, &end);

	l->lane = pl_lane_of(pl, k, nb + 1);
	choose(pl, k, l);
	l->width = ix_num(out->size[nb + 1]) % 2 || (pl->target == WW_TARGET_CUDA && (l->form == THIN || l->form == SHORT))
		? 1
		: 2;
	/* A pass over the result; of few columns (16, 32) wider accesses were slower (.9, H200). */
	if (pl->target == WW_TARGET_CUDA && (l->library & BY_LIBRARY) && !whole && ix_num(out->size[nb + 1]) >= 64)
		l->width = (int)ww_max(l->width, pl_store_width(pl, k, "col", 16 / pl_itemsize(library_dt(k->anchor))));
	else if (l->form == HALF && pl_store_width(pl, k, "col", 8) == 8)
		l->width = 8;
	if (!(l->library & BY_LIBRARY) || !whole)
		l->store = pl_store_body(pl, k, "col");
	else if (end.bias)
		pl_kern_arg(pl, k, end.bias);
	if (!l->store && end.added)
		pl_kern_arg(pl, k, end.added);
	for (int i = 0; i < 2 && reads_operands(pl, k); i++)
		pl_kern_arg(pl, k, k->anchor->in[i].buf);
}

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

static const struct knob_row cpu_knobs[] = { { KNOB(cpu_gemm.nb), "nb", { 96, 192, 48 } },
	{ KNOB(cpu_gemm.kc), "kc", { 512, 768 } }, { KNOB(cpu_gemm.mt), "mt", { 256, 128 } },
	{ KNOB(cpu_gemm.form), "form", { 1, 2 } }, { 0 } };

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	int nb = sp->gemm.n_batch, r = nb + 2, b_nk = is_nk(sp);
	const struct operand *a = &sp->in[0], *b = &sp->in[1];
	const char *suffix = pl_cpu_suffix(in_dt(sp)), *thin = k->loop->form == THIN ? "_thin" : "";

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s, "void @_epi(const void *ctx, long long z, long long row, long long col, ww_vf acc, int n)",
		pl_fmt(pl, "%s%s\tconst ix_t %s_0 = col;\n\n\t(void)z;\n\t(void)row;\n", pl_axes(pl, k, 0, nb, "z"),
			pl_axis(pl, k, r - 2, "row"), k->loop->lane->name),
		k->loop->store);
	pl_cpu_kernel(pl, k, s, *thin ? "WW_THIN_ARGS" : "WW_GEMM_ARGS",
		pl_fmt(pl, "ww_cpu_gemm%s%s(b, arg, @_epi, &c)", thin, suffix));
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_gemm%s(p, \"@\", &(struct ww_cpu_gemm){\n"
		"\t\t%s.m = %s, .n = %s, .k = %s, .batch = %s, .a_buf = %s, .b_buf = %s, .a_offset_bytes = %s, "
		".b_offset_bytes = %s,\n"
		"\t\t.lda = %s, .ldb = %s, .a_batch_stride = %s, .b_batch_stride = %s, .b_nk = %d, .nb = %d%s "
		"});\n%s",
		thin, *suffix ? ".half = 1, " : "", ix_text(pl, sp->out->size[r - 2]), ix_text(pl, sp->out->size[r - 1]),
		ix_text(pl, inner(sp)), ix_text(pl, k->loop->outer), pl_plan_buf(pl, a->buf), pl_plan_buf(pl, b->buf),
		pl_bytes(pl, a), pl_bytes(pl, b), ix_text(pl, a->stride[r - 2]), ix_text(pl, b->stride[b_nk ? r - 1 : r - 2]),
		ix_text(pl, stride_of(pl, sp, 0, nb - 1)), ix_text(pl, stride_of(pl, sp, 1, nb - 1)), b_nk, kn->cpu_gemm.nb,
		*thin ? "" : pl_fmt(pl, ", .mt = %d, .kc = %d", kn->cpu_gemm.mt, kn->cpu_gemm.kc), pl_plan_args(pl, k, "\t"));
}

/* ---- cuda -------------------------------------------------------------------------------------------------------- */

static const struct knob_row cuda_knobs[] = { { KNOB(gemm.form), "tiles of kind", { 1, 2 } },
	{ KNOB(gemm.bn), "bn", { 192, 128 } }, { KNOB(gemm.stages), "stages", { 5, 4 } },
	{ KNOB(gemm.cluster), "cluster", { 2, 1 } }, { KNOB(gemm.promote), "promote", { 8 } },
	{ KNOB(gemm.pairs), "pairs", { 2, 1 } }, { 0 } };

static const char *matrix(struct pl *pl, const struct kern *k, int which)
{
	const struct anchor *sp = k->anchor;
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch;

	return pl_fmt(pl,
		"{ .buf = %s, .offset_bytes = %s, .rows = %s, .k = %s, .batch = %s, .row_stride = %s, .k_stride = %s, "
		".batch_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), ix_text(pl, sp->out->size[nb + which]), ix_text(pl, inner(sp)),
		is_one(sp, which) ? "1" : ix_text(pl, k->loop->outer), ix_text(pl, o->stride[nb + which]),
		ix_text(pl, o->stride[nb + 1 - which]), ix_text(pl, stride_of(pl, sp, which, nb - 1)));
}

/* a() and b() of the functor of ww::gemm_any. */
static const char *element(struct pl *pl, const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	const char *row = which ? "kk" : "row", *col = which ? "col" : "kk";
	int nb = sp->gemm.n_batch;

	return pl_fmt(pl,
		"\t__device__ float %c(int b, int %s, int %s) const { return ww::to_float(%s[%s + (ix_t)b * %s + (ix_t)%s * %s "
		"+ (ix_t)%s * %s]); }\n",
		"ab"[which], row, col, o->buf->name, ix_text(pl, o->offset), ix_text(pl, stride_of(pl, sp, which, nb - 1)), row,
		ix_text(pl, o->stride[nb]), col, ix_text(pl, o->stride[nb + 1]));
}

/* An operand of the library's product: row-major, or the transpose of such a matrix. */
static const char *library_matrix(struct pl *pl, const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch, trans = !ix_is(o->stride[nb + 1], 1);

	return pl_fmt(pl, "{ .buf = %s, .offset_bytes = %s, .dtype = %s, .trans = %d, .ld = %s, .batch_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), pl_dtype_name(in_dt(sp)), trans, ix_text(pl, o->stride[nb + trans]),
		ix_text(pl, stride_of(pl, sp, which, nb - 1)));
}

/* A matrix of the product's size, row after row or as `end` has it. */
static const char *whole_matrix(
	struct pl *pl, const struct anchor *sp, const char *buf, int dt, const struct pl_end *end)
{
	int nb = sp->gemm.n_batch;
	const char *m = ix_text(pl, sp->out->size[nb]), *n = ix_text(pl, sp->out->size[nb + 1]);

	if (end->ld)
		return pl_fmt(pl, "{ .buf = %s, .dtype = %s, .ld = %s, .batch_stride = %s }", buf, pl_dtype_name(dt),
			ix_text(pl, end->ld), ix_text(pl, end->batch_stride));
	return pl_fmt(
		pl, "{ .buf = %s, .dtype = %s, .ld = %s, .batch_stride = (%s) * (%s) }", buf, pl_dtype_name(dt), n, m, n);
}

/* The statement of plan.c that has the library write to buffer `y`, with this end. */
static const char *node(struct pl *pl, const struct kern *k, const char *y, int dt, const struct pl_end *end)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;
	const char *bias = "", *added = "";

	if (end->bias)
		bias = pl_fmt(pl, ",\n\t\t\t.epilogue = WW_EPI_BIAS, .bias_buf = %s, .bias_offset_bytes = %s",
			pl_plan_buf(pl, end->bias), ix_text(pl, ix_mulc(pl, end->first, pl_itemsize(end->bias->dt))));
	if (end->added)
		added = pl_fmt(pl, ",\n\t\t\t.beta = 1, .c = %s", whole_matrix(pl, sp, pl_plan_buf(pl, end->added), dt, end));
	return pl_fmt(pl,
		"\t\tww_recipe_gemm_library(p, &(struct ww_gemm){ .m = %s, .n = %s, .k = %s, .batch = %s, .alpha = %.17g, "
		".math = WW_MATH_%s,\n"
		"\t\t\t.a = %s,\n\t\t\t.b = %s,\n\t\t\t.d = %s%s%s });\n",
		ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]), ix_text(pl, inner(sp)),
		ix_text(pl, k->loop->outer), end->alpha, pl_math_name(in_dt(sp), "FP32"), library_matrix(pl, sp, 0),
		library_matrix(pl, sp, 1), whole_matrix(pl, sp, y, dt, end), bias, added);
}

/* The variable of plan.c that holds operand `which` as prepared by the recipe's `call` (a struct `type`).  An earlier
 * product's variable is used if it has the same operand. */
static const char *prepared(struct pl *pl, struct kern *k, int which, const char *type, const char *call)
{
	const char *made = pl_fmt(pl, "%s, &(struct ww_matrix)%s", call, matrix(pl, k, which));
	int i = 0;

	while (i < pl->n_split && strcmp(pl->split_text[i], made))
		i++;
	if (i == pl->n_split && i < (int)WW_ARRAY_LEN(pl->split_text)) {
		pl->split_text[pl->n_split++] = made;
		k->launch = pl_fmt(pl, "%s\tconst struct %s half%d = %s);\n", k->launch, type, i, made);
	}
	return pl_fmt(pl, "half%d", i);
}

/* The operand, split into two fp16 halves. */
static const char *halves(struct pl *pl, struct kern *k, int which)
{
	return prepared(pl, k, which, "ww_operand", "ww_recipe_split(p");
}

/* A 16-bit operand, or a copy of it along k with aligned rows. */
static const char *aligned_matrix(struct pl *pl, struct kern *k, int which)
{
	if (is_read(k->anchor, which))
		return matrix(pl, k, which);
	return prepared(pl, k, which, "ww_matrix", "ww_recipe_pad(p");
}

/* The template's arguments behind the others: pairs, and which operands are one matrix. */
static const char *last_arguments(const struct anchor *sp, const struct tile *t)
{
	if (is_one(sp, 0) || is_one(sp, 1))
		return ", @_PAIRS, @_ONE";
	return t->pairs == 2 ? ", @_PAIRS" : "";
}

/* A tile of two pairs, in kernels.cu and in plan.c. */
static const char *threads_of(const struct tile *t)
{
	return t->pairs == 2 ? "(ww::pipeline_shape<@_PAIRS>::threads), 1" : "384, 1";
}
static const char *pairs_of(const struct tile *t) { return t->pairs == 2 ? ", .pairs = 2" : ""; }

static void print_split(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct estimate e = estimate(pl, k->anchor);
	const struct tile t = tile_of(kn, &e, 0);
	const char *a, *b;

	pl_cuda_kernel(pl, k, s, threads_of(&t),
		"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
		"\t\tconst unsigned *sa, const unsigned *sb, int m, int n, int kb, int batch",
		pl_fmt(pl, "gemm3<@_BN, @_STAGES, @_PROMOTE, @_CLUSTER, @_GROUP%s>(ta, tb, sa, sb, m, n, kb, batch",
			last_arguments(k->anchor, &t)));
	k->launch = "";
	a = halves(pl, k, 0);
	b = halves(pl, k, 1);
	k->launch = pl_named(pl, k,
		"%s\tww_recipe_gemm3(p, &(struct ww_gemm3){ .kernel = \"@\", .a = %s, .b = %s, .bn = %d, .stages = %d, "
		".cluster = %d, .promote = %d%s });\n%s",
		k->launch, a, b, t.bn, kn->gemm.stages, kn->gemm.cluster, kn->gemm.promote, pairs_of(&t),
		pl_plan_args(pl, k, "\t"));
}

static void print_half(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct estimate e = estimate(pl, k->anchor);
	const struct tile t = tile_of(kn, &e, 1);
	int dt = in_dt(k->anchor), cluster = cluster_of(&e, t.bn);
	const char *a, *b, *last = last_arguments(k->anchor, &t);

	pl_cuda_kernel(pl, k, s, threads_of(&t),
		"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
		"\t\tint m, int n, int kb, int batch",
		pl_fmt(pl, "gemm16<%s, @_BN, @_STAGES, @_CLUSTER, @_GROUP%s%s>(ta, tb, m, n, kb, batch",
			pl_ctype(dt, pl->target),
			k->loop->width == 8 ? ", 8"
				: *last         ? ", 2"
								: "",
			last));
	k->launch = "";
	a = aligned_matrix(pl, k, 0);
	b = aligned_matrix(pl, k, 1);
	k->launch = pl_named(pl, k,
		"%s\tww_recipe_gemm16(p, &(struct ww_gemm16){ .kernel = \"@\", .dtype = %s, .bn = %d, .stages = %d, "
		".cluster = %d%s,\n\t\t.a = %s,\n\t\t.b = %s });\n%s",
		k->launch, pl_dtype_name(dt), t.bn, kn->gemm.stages, kn->gemm.cluster ? kn->gemm.cluster : cluster,
		pairs_of(&t), a, b, pl_plan_args(pl, k, "\t"));
}

static void print_any(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;

	pl_cuda_kernel(pl, k, s, "256", "int m, int n, int k, int batch", "gemm_any<@_BM, @_BN>(m, n, k, batch");
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_any(p, &(struct ww_gemm_any){ .kernel = \"@\", .m = %s, .n = %s, .k = %s, "
		".batch = %s });\n%s",
		ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]), ix_text(pl, inner(sp)),
		ix_text(pl, k->loop->outer), pl_plan_args(pl, k, "\t"));
}

/* An operand of ww_recipe_gemm_mma, which has two batch strides: outer and inner. */
static const char *mma_operand(struct pl *pl, const struct kern *k, int which)
{
	const struct operand *o = &k->anchor->in[which];
	int nb = k->anchor->gemm.n_batch;

	return pl_fmt(pl,
		"{ .buf = %s, .offset_bytes = %s, .row_stride = %s, .k_stride = %s, .batch_stride = %s, .inner_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), ix_text(pl, o->stride[nb + which]),
		ix_text(pl, o->stride[nb + 1 - which]), ix_text(pl, stride_of(pl, k->anchor, which, nb - 2)),
		ix_text(pl, stride_of(pl, k->anchor, which, nb - 1)));
}

static void print_mma(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const char *type = pl_ctype(in_dt(sp), pl->target);
	int nb = sp->gemm.n_batch;

	pl_cuda_kernel(pl, k, s, pl_fmt(pl, "(ww::mma_shape<%s, @_BM, @_BN>::threads)", type),
		pl_fmt(pl,
			"const %s *a, long long as, long long ao, long long ai, const %s *b, long long bs, long long bo, "
			"long long bi,\n\t\tint inner, int m, int n, int k",
			type, type),
		pl_fmt(pl,
			"gemm_mma<%s, @_BM, @_BN, @_STAGES, @_SPLIT, @_AK, @_BK, @_AV, @_BV>({ a, as, ao, ai, inner }, "
			"{ b, bs, bo, bi, inner }, m, n, k",
			type));
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_mma(p, &(struct ww_gemm_mma){ .kernel = \"@\", .dtype = %s, .m = %s, .n = %s, .k = %s, "
		".batch = %s, .inner = %s,\n\t\t.a = %s,\n\t\t.b = %s });\n%s",
		pl_dtype_name(in_dt(sp)), ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]),
		ix_text(pl, inner(sp)), ix_text(pl, k->loop->outer), nb ? ix_text(pl, sp->out->size[nb - 1]) : "1",
		mma_operand(pl, k, 0), mma_operand(pl, k, 1), pl_plan_args(pl, k, "\t"));
}

static void print_thin(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;
	const char *name = k->loop->form == THIN ? "thin" : "short";

	pl_cuda_kernel(pl, k, s, "256, 2",
		"const float *a, long long as, long long ao, long long ai, const float *b, long long bs, long long bo, "
		"long long bi,\n\t\tint inner, int m, int n, int k",
		pl_fmt(pl, "gemm_%s<@_%s, @_ALONG>({ a, as, ao, ai, inner }, { b, bs, bo, bi, inner }, m, n, k", name,
			k->loop->form == THIN ? "N, @_V, @_PARTS" : "K, @_COLS, @_V"));
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_%s(p, &(struct ww_gemm_thin){ .kernel = \"@\", .m = %s, .n = %s, .k = %s, .batch = %s, "
		".inner = %s,\n\t\t.a = %s,\n\t\t.b = %s });\n%s",
		name, ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]), ix_text(pl, inner(sp)),
		ix_text(pl, k->loop->outer), nb ? ix_text(pl, sp->out->size[nb - 1]) : "1", mma_operand(pl, k, 0),
		mma_operand(pl, k, 1), pl_plan_args(pl, k, "\t"));
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static void (*const ours[])(struct pl *, struct kern *, struct ww_str *) = { [ANY] = print_any,
		[THIN] = print_thin,
		[SHORT] = print_thin,
		[MMA] = print_mma,
		[HALF] = print_half,
		[SPLIT] = print_split };
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch, library = k->loop->library & BY_LIBRARY;
	const char *row = pl_var_or(k->anchor_idx[nb], "row_"), *loads = "";

	if (!k->loop->store) {
		const struct buf *y = k->out[0]->root;
		struct pl_end end = { .alpha = 1 };

		(void)pl_ends_as(pl, k, &end);
		k->launch = pl_fmt(pl, "\t{\n%s\t}\n", node(pl, k, pl_plan_buf(pl, y), y->dt, &end));
		return;
	}
	if (k->loop->form == ANY && !library)
		loads = pl_fmt(pl, "%s%s", element(pl, sp, 0), element(pl, sp, 1));
	pl_cuda_functor(pl, k, s, loads, "int b, int row, int col",
		pl_fmt(
			pl, "%s\t\tconst ix_t %s = row;\n\t\t(void)%s;\n", pl_indent(pl, pl_axes(pl, k, 0, nb, "b"), 1), row, row));
	if (library)
		pl_cuda_after_library(pl, k, s, "after_library",
			node(pl, k, "library_y", library_dt(sp), &(struct pl_end){ .alpha = 1 }), library_dt(sp), k->loop->outer,
			sp->out->size[nb], sp->out->size[nb + 1]);
	else
		ours[k->loop->form](pl, k, s);
}

const struct anchor_ops pl_gemm_ops = { .header = "gemm",
	.by_library = "products",
	.stores_fp32 = 1,
	.fuses = FUSES_READER,
	.fits = fits,
	.reads_operands = reads_operands,
	.ends_free = ends_free,
	.ends_for = ends_for,
	.turn = turn,
	.build = build,
	.knobs = { cpu_knobs, cuda_knobs },
	.print = { print_cpu, print_cuda } };
