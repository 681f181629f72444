/* cost.c - what the kernels of a product take, and which of them is the fastest (cuda). */
#include "policy/planner/anchor/gemm/gemm.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/loop.h"

#include <math.h>
#include <ww/recipe/gemm_short.h>
#include <ww/recipe/gemm_thin.h>
#include <ww/recipe/gemm_tile.h>

/* Estimated microseconds on an H200, by form: launches, bytes that launches ahead of the product move, and
 * multiply-adds in waves of tiles (fitted to the measurements of bench/results/products.md).  Only the order of the
 * forms matters. */
struct estimate {
	double m, n, k, batch, sms;
};

static struct estimate estimate(const struct pl *pl, const struct anchor *sp)
{
	double m = (double)ix_num(sp->out->size[sp->gemm.n_batch]), n = (double)ix_num(sp->out->size[sp->gemm.n_batch + 1]);
	double all = (double)pl_numel_now(sp->out);

	return (struct estimate){ m, n, (double)ix_num(pl_gemm_inner(sp)), all > 0 ? all / (m * n) : 0,
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

/* gemm3's or gemm16's tiles with the least time, of at most so many pairs; of about equal ones the widest, and one
 * pair. */
static struct pl_gemm_tile best_tile(const struct estimate *e, int half, int most)
{
	double least = INFINITY;
	struct pl_gemm_tile best = { 128, 1 };

	for (int pairs = 1; pairs <= most; pairs++)
		for (const int *bn = widths[half]; *bn; bn++) {
			double us = pairs == 1 || *bn <= widest_of_pairs(half) ? tiled_us(e, *bn, pairs, half) : INFINITY;

			if (us < (pairs > best.pairs ? 0.9 : 0.97) * least) {
				least = us;
				best = (struct pl_gemm_tile){ *bn, pairs };
			}
		}
	return best;
}

/* The time that forms are chosen by, of one pair: what two take has not been measured. */
static double best_tile_us(const struct estimate *e, int half)
{
	return tiled_us(e, best_tile(e, half, 1).bn, 1, half);
}

struct pl_gemm_tile pl_gemm_tile_of(const struct pl *pl, const struct anchor *sp, const struct knobs *kn, int half)
{
	const struct estimate e = estimate(pl, sp);
	struct pl_gemm_tile t = best_tile(&e, half, 2);

	if (kn->gemm.bn)
		t.bn = kn->gemm.bn;
	if (kn->gemm.pairs)
		t.pairs = kn->gemm.pairs;
	if (t.bn > widest_of_pairs(half))
		t.pairs = 1;
	return t;
}

int pl_gemm_cluster(const struct pl *pl, const struct anchor *sp, int cols)
{
	const struct estimate e = estimate(pl, sp);

	return cluster_of(&e, cols);
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
	return (pl_gemm_is_one(sp, which) ? 1 : e->batch) * (which ? e->n : e->m);
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
		if (!pl_gemm_is_read(sp, i))
			us += LAUNCH_US + moved_us(4 * rows_of(sp, e, i) * e->k);
	return us;
}

/* aligned: count the operands as aligned, since their strides are not known yet. */
static double mma_us(const struct anchor *sp, const struct estimate *e, int aligned)
{
	int whole = 16 / pl_itemsize(pl_gemm_dt(sp));

	return ww_mma_choose(&(struct ww_mma_size){ .m = (long long)e->m,
							 .n = (long long)e->n,
							 .k = (long long)e->k,
							 .batch = (long long)e->batch,
							 .bytes = pl_itemsize(pl_gemm_dt(sp)),
							 .a_vector = aligned ? whole : pl_gemm_vector(sp, 0),
							 .b_vector = aligned ? whole : pl_gemm_vector(sp, 1),
							 .computed = sp->computes != 0,
							 .sms = (long long)e->sms })
		.us;
}

/* cuda: has the product so few columns that tiles would be mostly empty?  Its first operand is read along k.  Not a
 * batch of small ones (2,048 of 5 x 416 times 416 x 5 took 18 us more than the library's). */
static int fits_thin(const struct pl *pl, const struct anchor *sp)
{
	int64_t n = ix_num(sp->out->size[sp->gemm.n_batch + 1]);

	return pl->dev.cc >= 80 && pl_gemm_dt(sp) == WW_F32 && !sp->gemm.n_batch && n <= 16 && pl_gemm_is_along(sp, 0) &&
		((pl_gemm_is_along(sp, 1) && ix_num(sp->in[1].stride[1]) <= 1 << 26) ||
			(ix_is(sp->in[1].stride[1], 1) && ww_thin_turns(n, ix_num(pl_gemm_inner(sp)))));
}

static double thin_us(const struct anchor *sp, const struct estimate *e)
{
	int v = pl_gemm_is_along(sp, 1) ? (int)ww_min(pl_gemm_vector(sp, 0), pl_gemm_vector(sp, 1)) : pl_gemm_vector(sp, 0);

	while ((int64_t)e->k % v)
		v /= 2;
	return ww_thin_us(&(struct ww_mma_size){ .m = (long long)e->m,
						  .n = (long long)e->n,
						  .k = (long long)e->k,
						  .batch = (long long)e->batch,
						  .bytes = 4,
						  .a_vector = v,
						  .sms = (long long)e->sms },
		!pl_gemm_is_along(sp, 1));
}

/* cuda: is k so short that a step of tensor cores would be mostly zeros, and its columns more than few? */
static int fits_short(const struct pl *pl, const struct anchor *sp)
{
	const int nb = sp->gemm.n_batch;

	return pl->dev.cc >= 80 && pl_gemm_dt(sp) == WW_F32 && ix_num(sp->out->size[nb + 1]) > 16 &&
		ix_num(pl_gemm_inner(sp)) <= 16 && pl_gemm_is_along(sp, 0) &&
		(pl_gemm_is_along(sp, 1) || ix_is(sp->in[1].stride[nb + 1], 1));
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
	int read = pl_gemm_vector(sp, 0) == 8 && pl_gemm_vector(sp, 1) == 8, aligned = read && fmod(e->n, 8) == 0;
	double us = e->batch * e->m * e->n * e->k / (aligned ? 320e6 : read ? 160e6 : 28e6);

	return 2.5 + fmax(us, aligned ? 0 : e->k * 6e-3);
}

/* end: what it adds, which our tiles would read as well; NULL: a pass behind it computes the rest. */
static double library_us(const struct anchor *sp, const struct estimate *e, const struct pl_end *end)
{
	int bytes = pl_itemsize(pl_gemm_dt(sp)), out = pl_itemsize(end ? end->dt : pl_gemm_library_dt(sp));
	double result = e->batch * e->m * e->n, moved = bytes * e->batch * (e->m + e->n) * e->k + out * result;
	double us = bytes == 4 ? plain_us(e) : tensor_us(sp, e);

	return fmax(us, LAUNCH_US + moved_us(moved)) + (out == 2 ? odd_halves_us(e) : 0) +
		(end ? 0 : LAUNCH_US + moved_us((out + pl_itemsize(sp->out->dt)) * result));
}

/* For each million results of gemm_mma in 16 bits that something is read for: 114,176 x 856 x 24 with a residual took
 * 305 us, 109 by the estimate of a bare product. */
enum { MMA_END_US = 1 };

enum form pl_gemm_best_form(
	struct pl *pl, const struct anchor *sp, const struct pl_end *end, int *library, double *least)
{
	struct estimate e = estimate(pl, sp);
	double us, mma = INFINITY, tiled = INFINITY, thin = INFINITY;
	int half = pl_gemm_dt(sp) != WW_F32, nb = sp->gemm.n_batch;

	for (int i = 0; i < 2; i++)
		if (sp->computes || !pl_gemm_one_stride(&sp->in[i], 0, nb)) {
			*library = 0;
			*least = mma_us(sp, &e, 1);
			return MMA;
		}
	if (pl->dev.cc >= 80)
		mma = mma_us(sp, &e, 0) + (half ? odd_halves_us(&e) : odd_us(&e, 4)) +
			(half && (!end || end->added || end->dt != sp->out->dt) ? MMA_END_US * e.batch * e.m * e.n * 1e-6 : 0);
	if (pl->dev.cc == 90 && (!half || pl_gemm_fits16(sp)))
		tiled = half ? half_us(&e) + padding_us(sp, &e) : split_us(pl, sp, &e, 0);
	if (fits_thin(pl, sp) || fits_short(pl, sp)) /* one or the other */
		thin = fits_short(pl, sp) ? short_us(&e) : thin_us(sp, &e);
	us = fmin(fmin(mma, tiled), thin);
	*least = pl_gemm_fits_library(sp) ? fmin(us, library_us(sp, &e, end)) : us;
	*library = *least < us;
	return us == INFINITY ? ANY
		: us == thin      ? (fits_short(pl, sp) ? SHORT : THIN)
		: mma < tiled     ? MMA
		: half            ? HALF
						  : SPLIT;
}

/* ---- Operands that a product's kernel computes ------------------------------------------------------------------- */

/* The most columns, and the fewest elements: steps of a loop over time, which are smaller, share one text if the kernel
 * that begins where the step does is a pointwise one.  Measured on an H200, times as long without and with: 8 columns
 * 1.19 and 1.65; 29, 32 and 64 columns .73, .85 and .94, since these tensor cores wait for what the threads compute. */
enum { COMPUTED_COLUMNS = 8, COMPUTED_ELEMENTS = 1 << 18 };

static const struct val *behind_views(const struct val *v)
{
	while (v->kind == V_VIEW && !v->cond && !v->root)
		v = v->arg[0];
	return v;
}

/* The number of products that would each compute v as their first operand; 0: another kernel stores it for one of its
 * readers anyway. */
static int products_of(const struct pl *pl, const struct val *v)
{
	int n = 0;

	for (int a = 0; a < pl->n_anchor; a++)
		for (int i = 0; i < pl->anchor[a]->n_in; i++) {
			const struct anchor *s = pl->anchor[a];

			if (behind_views(s->in[i].val) != v || (pl_fuses_operand(s, i) && s->kind != S_GEMM))
				continue;
			if (s->kind != S_GEMM || i || ix_num(s->out->size[s->gemm.n_batch + 1]) > COMPUTED_COLUMNS)
				return 0;
			n++;
		}
	return n;
}

/* Bytes that v is computed of, each read once, where large tensors lie along its last axis; -1: it needs more than what
 * is stored.  A norm's statistics would be read for by a kernel of their own: that saves a third of the bytes. */
static double computed_of(struct pl *pl, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK];
	const struct val *seen[64];
	double bytes = 0;
	int n = 0;
	struct walk w;

	pl_own_vars(pl, v, idx);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		int known = 0, small = 16 * pl_numel_now(l->val) <= pl_numel_now(v);

		if (l->kind == LEAF_INDEX)
			continue;
		if (l->kind != LEAF_LOAD || n == (int)WW_ARRAY_LEN(seen) || ix_looks_up(pl_leaf_off(pl, l)) ||
			(!small && !pl_runs_along(pl, pl_leaf_off(pl, l), ix_as_var(idx[v->rank - 1]))))
			return -1;
		for (int i = 0; i < n; i++)
			known |= seen[i] == l->val;
		seen[n++] = l->val;
		bytes += known ? 0 : (double)pl_itemsize(l->val->dt) * (double)pl_numel_now(l->val);
	}
	return bytes;
}

int pl_gemm_computes(struct pl *pl, const struct anchor *s, int which)
{
	struct val *v = s->in[0].val;
	const struct val *base = behind_views(v);
	const struct estimate e = estimate(pl, s);
	int n_var = pl->n_var, products;
	struct anchor computing = *s;
	double bytes, computed, stored, a = (double)pl_itemsize(v->dt) * (double)pl_numel_now(v), read;

	if (which || pl->dev.cc < 80 || base->kind != V_OP || base->root || base->force_root || e.n > COMPUTED_COLUMNS ||
		pl_numel_now(v) < COMPUTED_ELEMENTS || !(products = products_of(pl, base)))
		return 0;
	bytes = computed_of(pl, v);
	pl->n_var = n_var; /* no text has these variables */
	if (bytes < 0)
		return 0;
	computing.computes = 1;
	read = bytes / 4.2e6;
	/* against the least that the other way can take, at the bandwidth of memory: a pass and the product */
	computed = 1.2 * fmax(mma_us(&computing, &e, 1), LAUNCH_US + read);
	stored = (LAUNCH_US + read + a / 4.2e6) / products + LAUNCH_US +
		(a + (double)pl_itemsize(s->out->dt) * (double)pl_numel_now(s->out)) / 4.2e6;
	return computed < 0.9 * stored;
}

int pl_gemm_reads_two_strides(const struct pl *pl, const struct anchor *s, int which)
{
	const struct estimate e = estimate(pl, s);
	const double bytes = 2 * pl_itemsize(pl_gemm_dt(s)) * e.batch * (which ? e.n : e.m) * e.k;

	return mma_us(s, &e, 1) <
		2 * (LAUNCH_US + moved_us(bytes)) + (pl_gemm_dt(s) == WW_F32 ? split_us(pl, s, &e, 1) : half_us(&e));
}

static double bare_us(struct pl *pl, const struct anchor *s)
{
	struct pl_end bare = { .alpha = 1, .dt = s->out->dt };
	int library;
	double us;

	pl_gemm_best_form(pl, s, &bare, &library, &us);
	return us;
}

/* What it takes to read the result once. */
static double read_us(const struct anchor *s)
{
	return moved_us((double)pl_itemsize(s->out->dt) * (double)pl_numel_now(s->out));
}

int pl_gemm_pays(struct pl *pl, const struct anchor *s, const struct anchor *t, int reads)
{
	int library = 0;
	double us;

	pl_gemm_best_form(pl, t, NULL, &library, &us);
	return !library && us <= bare_us(pl, s) + reads * read_us(s);
}

int pl_gemm_turn_pays(struct pl *pl, const struct anchor *s, const struct anchor *t, int reads)
{
	return reads ? pl_gemm_pays(pl, s, t, reads) : bare_us(pl, t) <= bare_us(pl, s) + read_us(s);
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
