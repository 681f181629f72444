/* recipe/gemm.h - the plan half of <ww/gemm.cuh> and <ww/split.cuh>.  See skills/cuda/references/cookbook-cuda.md. */
#ifndef WW_RECIPE_GEMM_H
#define WW_RECIPE_GEMM_H

#include <ww/plan.h>
#include <ww/recipe/common.h>
#include <ww/recipe/gemm_short.h>
#include <ww/recipe/gemm_thin.h>
#include <ww/recipe/gemm_tile.h>

/* Matrices (rows, k) of a batch, in elements: (b, r, i) is at b*batch_stride + r*row_stride + i*k_stride of the buffer.
 */
struct ww_matrix {
	int buf;
	long long offset_bytes;
	long long rows, k;
	long long batch; /* 0 counts as 1 */
	long long row_stride, k_stride, batch_stride;
};

/* A split matrix: (batch * rows, kp) words in buf, group maxima in amax. */
struct ww_operand {
	int buf, amax;
	long long rows, k, kp, batch;
};

/* Arguments of a kernel that splits m in one pass: `lines` of `length` elements, `stride` apart, to o. */
static void ww_split_args(struct ww_plan *p, const struct ww_matrix *m, long long stride, long long lines,
	long long length, const struct ww_operand *o)
{
	ww_arg_buf(p, m->buf, m->offset_bytes);
	ww_arg_i64(p, m->batch_stride);
	ww_arg_i64(p, stride);
	ww_arg_i32(p, (int)lines);
	ww_arg_i32(p, (int)length);
	ww_arg_i32(p, (int)o->kp);
	ww_arg_buf(p, o->buf, 0);
	ww_arg_buf(p, o->amax, 0);
}

/* Launch the split of an fp32 matrix for gemm3.  One of its strides must be 1.  k_stride 1 is one pass; row_stride 1 (a
 * (K, N) matrix used as B) needs a second read, unless it is small and K at most 1,280. */
static struct ww_operand ww_recipe_split(struct ww_plan *p, const struct ww_matrix *m)
{
	struct ww_operand o = { 0, 0, m->rows, m->k, ww_cdiv(m->k, 32) * 32, m->batch ? m->batch : 1 };

	o.buf = ww_scratch(p, 4 * o.batch * o.rows * o.kp);
	o.amax = ww_scratch(p, 4 * o.batch * o.rows);
	if (o.batch > 65535 || o.rows < 1 || o.k < 1) {
		ww_fail(p, "split: the matrix is empty, or the batch is above 65535");
	} else if (m->k_stride == 1) {
		const int held = ww_split_held(o.kp, o.batch * o.rows, ww_device(p)->sm_count);

		ww_launch(p, ww_fmt(p, "ww::split_rows<%d>", held), held ? ww_cdiv(o.rows, 8) : o.rows, o.batch, 1, 256, 1, 1);
		ww_split_args(p, m, m->row_stride, o.rows, o.k, &o);
	} else if (m->row_stride == 1 && o.kp <= 32 * 40 && o.batch * o.rows * o.k <= 1 << 22 &&
		ww_cdiv(o.rows, 8) * o.batch <= 8LL * ww_device(p)->sm_count) {
		/* few: a third of the time is launches otherwise */
		ww_launch(p, ww_fmt(p, "ww::split_cols_held<%d>", (int)(o.kp / 32)), ww_cdiv(o.rows, 8), o.batch, 1, 256, 1, 1);
		ww_split_args(p, m, m->k_stride, o.k, o.rows, &o);
	} else if (m->row_stride == 1 && o.kp / 32 <= 65535) {
		/* 16 rows of k a thread, all of which it loads at once, where blocks are few; else 64. */
		const long long ahead = 16, most = 8LL * ww_device(p)->sm_count, blocks = ww_cdiv(o.rows, 128) * o.batch;
		long long parts = ww_max(1, ww_min(64, o.k / 64));

		while (parts < 64 && 2 * parts * ahead <= o.k && parts * blocks < most)
			parts *= 2;
		ww_memset(p, o.amax, 0, 4 * o.batch * o.rows, 0);
		ww_launch(p, "ww::absmax_cols<16>", ww_cdiv(o.rows, 128), parts, o.batch, 128, 1, 1);
		ww_arg_buf(p, m->buf, m->offset_bytes);
		ww_arg_i64(p, m->batch_stride);
		ww_arg_i64(p, m->k_stride);
		ww_arg_i32(p, (int)o.k);
		ww_arg_i32(p, (int)o.rows);
		ww_arg_buf(p, o.amax, 0);
		ww_launch(p, "ww::split_cols<0>", ww_cdiv(o.rows, 64), o.kp / 32, o.batch, 256, 1, 1);
		ww_arg_buf(p, m->buf, m->offset_bytes);
		ww_arg_i64(p, m->batch_stride);
		ww_arg_i64(p, 0);
		ww_arg_i32(p, 1);
		ww_arg_i64(p, m->k_stride);
		ww_arg_i32(p, (int)o.k);
		ww_arg_i32(p, (int)o.rows);
		ww_arg_i32(p, (int)o.kp);
		ww_arg_buf(p, o.buf, 0);
		ww_arg_buf(p, o.amax, 0);
		ww_arg_i32(p, 0);
	} else {
		ww_fail(p, "split: one of row_stride and k_stride must be 1");
	}
	return o;
}

/* Launch the copy of 16-bit matrices to rows along k of a multiple of 16 bytes, for tensor copies.  Item z of the batch
 * is at z / inner * batch_stride + z % inner * inner_stride.  One of row_stride and k_stride must be 1; row_stride 1 (a
 * (K, N) matrix used as B) is turned. */
static struct ww_matrix ww_recipe_pad_items(
	struct ww_plan *p, const struct ww_matrix *m, long long inner, long long inner_stride)
{
	const long long kp = ww_cdiv(m->k, 8) * 8, batch = m->batch ? m->batch : 1;
	const int turned = m->k_stride != 1;
	struct ww_matrix o = {
		.rows = m->rows, .k = m->k, .batch = batch, .row_stride = kp, .k_stride = 1, .batch_stride = m->rows * kp
	};

	o.buf = ww_scratch(p, 2 * batch * m->rows * kp);
	if ((turned && m->row_stride != 1) || batch > 65535 || m->rows * kp > 0x7fffffff || kp / 64 >= 65535) {
		ww_fail(p,
			"pad: one of k_stride and row_stride must be 1, the matrix below 2^31 elements, k below 2^22, "
			"the batch below 2^16");
		return o;
	}
	if (turned) {
		const long long terms = m->offset_bytes / 2 | m->batch_stride | inner_stride | m->k_stride;
		int v = 8;

		while (v > 1 && terms % v)
			v /= 2;
		ww_launch(p, ww_fmt(p, "ww::turn_rows<%d>", v), ww_cdiv(m->rows, 64), ww_cdiv(kp, 64), batch, 256, 1, 1);
	} else {
		ww_launch(p, "ww::pad_rows<0>", ww_cdiv(m->rows * (kp / 8), 256), batch, 1, 256, 1, 1);
	}
	ww_arg_buf(p, m->buf, m->offset_bytes);
	ww_arg_i64(p, m->batch_stride);
	ww_arg_i64(p, inner_stride);
	ww_arg_i32(p, (int)inner);
	ww_arg_i64(p, turned ? m->k_stride : m->row_stride);
	ww_arg_i32(p, (int)m->rows);
	ww_arg_i32(p, (int)m->k);
	ww_arg_i32(p, (int)(kp / 8));
	ww_arg_buf(p, o.buf, 0);
	return o;
}

/* The same of a batch with one stride, for gemm16. */
static struct ww_matrix ww_recipe_pad(struct ww_plan *p, const struct ww_matrix *m)
{
	return ww_recipe_pad_items(p, m, 1, 0);
}

/* A K-major 16-bit matrix as a tensor map with boxes of 64 of K by `box` rows. */
static void ww_arg_kmajor(struct ww_plan *p, int buf, long long offset, int dtype, long long k, long long rows,
	long long batch, long long row_bytes, long long batch_bytes, int box)
{
	ww_arg_tmap(p,
		&(struct ww_tmap){ .buf = buf,
			.offset_bytes = offset,
			.dtype = dtype,
			.rank = 3,
			.size = { k, rows, batch },
			.stride_bytes = { 0, row_bytes, batch > 1 ? batch_bytes : rows * row_bytes },
			.box = { 64, box, 1 },
			.elem_stride = { 1, 1, 1 },
			.swizzle = WW_SWIZZLE_128B,
			.fill = WW_FILL_ZERO });
}

/* Launch a persistent pipeline kernel: as many clusters as fit or as there are tiles (runs of tiles).  pairs: of
 * consumer warpgroups, 1 or 2.  extra: bytes of shared memory for the job itself. */
static void ww_launch_pipeline(struct ww_plan *p, const char *kernel, long long cluster_tiles, int bn, int stages,
	int cluster, int pairs, int extra)
{
	const struct ww_device *d = ww_device(p);
	long long shared = (long long)stages * (128 + bn) * 128 + 16 * stages + 16 + 1024 + extra;

	if (d->cc != 90)
		ww_fail(p, "this kernel needs compute capability 9.0");
	if (shared > d->shared_per_block_bytes)
		ww_fail(p, "too many stages for the shared memory of a block");
	if (cluster != 1 && cluster != 2)
		ww_fail(p, "cluster must be 1 or 2");
	if (pairs != 1 && pairs != 2)
		ww_fail(p, "pairs must be 1 or 2");
	ww_launch(p, kernel, ww_min(cluster_tiles, d->sm_count / cluster) * cluster, 1, 1, 128 + 256 * pairs, 1, 1);
	ww_shared(p, shared);
	if (cluster > 1)
		ww_cluster(p, cluster, 1, 1);
}

/* Bytes of shared memory that ww::tile_end needs for n columns. */
static int ww_odd_end(long long n, int pairs) { return n % 2 ? pairs * 8 * 16 * 40 * 4 : 0; }

struct ww_gemm3 {
	const char *kernel;
	struct ww_operand a, b; /* a.rows is M, b.rows is N */
	int bn;                 /* 64, 128 or 192; default 128 */
	int stages;             /* default what fits */
	int promote;            /* stages (32 of K) between promotions; default 4 */
	int cluster;            /* 1 or 2; default 1 */
	int pairs;              /* 1, or 2 where bn is 64; default 1 */
	int group;              /* tile rows (of a cluster) a group; default 8 */
};

/* Defines KERNEL_ONE: the operands of one batch item that are the same for all items of the other one. */
static void ww_tunable_one(struct ww_plan *p, const char *kernel, long long a, long long b, long long batch)
{
	ww_tunable(p, kernel, "ONE", batch == 1 ? 0 : (a == 1) + 2 * (b == 1));
}

/* Leading arguments: tensor maps ta, tb; const unsigned *sa, *sb; int m, n, kb, batch.  Where b has one batch item and
 * a has several, all rows of a are one matrix: the epilogue sees b = 0 and row = item * rows + row.  Where a has one,
 * it is multiplied by each item of b. */
static void ww_recipe_gemm3(struct ww_plan *p, const struct ww_gemm3 *g)
{
	int bn = g->bn ? g->bn : 128, cluster = g->cluster ? g->cluster : 1, group = g->group ? g->group : 8;
	int pairs = g->pairs ? g->pairs : 1, stages = g->stages ? g->stages : bn == 128 ? 6 : 5;
	long long m = g->a.rows, batch = g->a.batch;

	if (g->b.batch == 1) {
		m *= batch;
		batch = 1;
	}
	if (g->a.batch == 1)
		batch = g->b.batch;
	if (g->a.kp != g->b.kp || g->a.k != g->b.k || (batch != g->b.batch && g->b.batch != 1) || m > 0x7fffffff - 512) {
		ww_fail(p, "gemm3: the operands do not fit together");
		return;
	}
	if (bn != 64 && bn != 128 && bn != 192) {
		ww_fail(p, "gemm3: bn must be 64, 128 or 192");
		return;
	}
	if (pairs == 2 && bn != 64) {
		ww_fail(p, "gemm3: two pairs need bn 64");
		return;
	}
	ww_tunable(p, g->kernel, "BN", bn);
	ww_tunable(p, g->kernel, "STAGES", stages);
	ww_tunable(p, g->kernel, "PROMOTE", g->promote ? g->promote : 4);
	ww_tunable(p, g->kernel, "CLUSTER", cluster);
	ww_tunable(p, g->kernel, "GROUP", group);
	ww_tunable(p, g->kernel, "PAIRS", pairs);
	ww_tunable_one(p, g->kernel, g->a.batch, g->b.batch, batch);
	ww_launch_pipeline(p, g->kernel, ww_cdiv(m, 128 * cluster) * ww_cdiv(g->b.rows, bn) * batch, bn, stages, cluster,
		pairs, ww_odd_end(g->b.rows, pairs));
	ww_arg_kmajor(
		p, g->a.buf, 0, WW_F16, 2 * g->a.kp, m, g->a.batch == 1 ? 1 : batch, 4 * g->a.kp, 4 * g->a.kp * m, 128);
	ww_arg_kmajor(
		p, g->b.buf, 0, WW_F16, 2 * g->b.kp, g->b.rows, g->b.batch, 4 * g->b.kp, 4 * g->b.kp * g->b.rows, bn / cluster);
	ww_arg_buf(p, g->a.amax, 0);
	ww_arg_buf(p, g->b.amax, 0);
	ww_arg_i32(p, (int)m);
	ww_arg_i32(p, (int)g->b.rows);
	ww_arg_i32(p, (int)(g->a.kp / 32));
	ww_arg_i32(p, (int)batch);
}

struct ww_gemm16 {
	const char *kernel;
	struct ww_matrix a, b;      /* k_stride 1; a.rows is M, b.rows is N */
	int dtype;                  /* WW_F16 or WW_BF16 */
	int bn;                     /* 64, 128, 192, 256; default 256 */
	int stages, cluster, group; /* defaults: what fits, 2, 8 */
	int pairs;                  /* 1, or 2 where bn is 64 or 128; default 1 */
};

/* Leading arguments: tensor maps ta, tb; int m, n, kb, batch.  An operand of one batch item is that of all items. */
static void ww_recipe_gemm16(struct ww_plan *p, const struct ww_gemm16 *g)
{
	int bn = g->bn ? g->bn : 256, cluster = g->cluster ? g->cluster : 2, group = g->group ? g->group : 8;
	int pairs = g->pairs ? g->pairs : 1;
	int stages = g->stages ? g->stages : bn == 256 ? 4 : bn == 192 ? 5 : (bn == 128 ? 7 : 9) - pairs;
	const long long of_a = g->a.batch ? g->a.batch : 1, of_b = g->b.batch ? g->b.batch : 1, batch = ww_max(of_a, of_b);

	if (g->a.k != g->b.k || (of_a != of_b && of_a != 1 && of_b != 1) || g->a.k_stride != 1 || g->b.k_stride != 1 ||
		g->a.row_stride % 8 || g->b.row_stride % 8 || g->a.batch_stride % 8 || g->b.batch_stride % 8 ||
		g->a.offset_bytes % 16 || g->b.offset_bytes % 16) {
		ww_fail(p, "gemm16: needs equal k and batch, k_stride 1, and strides that are multiples of 8");
		return;
	}
	if (bn != 64 && bn != 128 && bn != 192 && bn != 256) {
		ww_fail(p, "gemm16: bn must be 64, 128, 192 or 256");
		return;
	}
	if (pairs == 2 && bn > 128) {
		ww_fail(p, "gemm16: two pairs need bn 64 or 128");
		return;
	}
	ww_tunable(p, g->kernel, "BN", bn);
	ww_tunable(p, g->kernel, "STAGES", stages);
	ww_tunable(p, g->kernel, "CLUSTER", cluster);
	ww_tunable(p, g->kernel, "GROUP", group);
	ww_tunable(p, g->kernel, "PAIRS", pairs);
	ww_tunable_one(p, g->kernel, of_a, of_b, batch);
	ww_launch_pipeline(p, g->kernel, ww_cdiv(g->a.rows, 128 * cluster) * ww_cdiv(g->b.rows, bn) * batch, bn, stages,
		cluster, pairs, ww_odd_end(g->b.rows, pairs));
	ww_arg_kmajor(p, g->a.buf, g->a.offset_bytes, g->dtype, g->a.k, g->a.rows, of_a, 2 * g->a.row_stride,
		2 * g->a.batch_stride, 128);
	ww_arg_kmajor(p, g->b.buf, g->b.offset_bytes, g->dtype, g->b.k, g->b.rows, of_b, 2 * g->b.row_stride,
		2 * g->b.batch_stride, bn / cluster);
	ww_arg_i32(p, (int)g->a.rows);
	ww_arg_i32(p, (int)g->b.rows);
	ww_arg_i32(p, (int)ww_cdiv(g->a.k, 64));
	ww_arg_i32(p, (int)batch);
}

/* An operand of gemm_mma, in elements: (b, r, i) is at b / inner * batch_stride + b % inner * inner_stride +
 * r * row_stride + i * k_stride of the buffer; one of row_stride and k_stride is 1. */
struct ww_mma_operand {
	int buf;
	long long offset_bytes;
	long long row_stride, k_stride, batch_stride, inner_stride;
};

struct ww_gemm_mma {
	const char *kernel;
	int dtype; /* WW_F32, WW_F16, WW_BF16 */
	long long m, n, k, batch;
	long long inner; /* batches of the inner axis; 0 counts as 1 */
	struct ww_mma_operand a, b;
	int computed;              /* gemm_mma_of, without a: elements that it computes at once, which divide k */
	int bm, bn, split, stages; /* 0: chosen here */
	int below;                 /* 1: the kernel has _TILES and _STEPS, so a block may do tiles below each other */
};

/* Elements of one copy: as many as address and strides are multiples of, up to 16 bytes. */
static int ww_mma_vector(const struct ww_mma_operand *o, int bytes)
{
	long long terms = o->offset_bytes / bytes | (o->k_stride == 1 ? o->row_stride : o->k_stride) | o->batch_stride |
		o->inner_stride;
	int v = 16 / bytes;

	while (v > 1 && terms % v)
		v /= 2;
	return v;
}

static void ww_arg_mma_operand(struct ww_plan *p, const struct ww_mma_operand *o)
{
	ww_arg_buf(p, o->buf, o->offset_bytes);
	ww_arg_i64(p, o->k_stride == 1 ? o->row_stride : o->k_stride);
	ww_arg_i64(p, o->batch_stride);
	ww_arg_i64(p, o->inner_stride);
}

/* a: none where the kernel computes it. */
static void ww_args_mma(struct ww_plan *p, const struct ww_mma_operand *a, const struct ww_mma_operand *b,
	long long inner, long long m, long long n, long long k)
{
	if (a)
		ww_arg_mma_operand(p, a);
	ww_arg_mma_operand(p, b);
	ww_arg_i32(p, (int)(inner ? inner : 1));
	ww_arg_i32(p, (int)m);
	ww_arg_i32(p, (int)n);
	ww_arg_i32(p, (int)k);
}

/* Steps of K of an operand that stays in shared memory.  How many tiles, of so many below each other, a block does
 * then: of as many as multiprocessors have eight times over two to 16; fewer start all at once. */
enum { WW_MMA_STAYS = 2 };
static int ww_mma_tiles_of(long long rows, long long blocks, long long sms)
{
	return (int)ww_max(1, ww_min(ww_min(16, rows), blocks / (8 * sms)));
}

/* Leading arguments: of each operand that lies in memory const T *, long long stride, outer_stride, inner_stride; int
 * inner, m, n, k. */
static void ww_recipe_gemm_mma(struct ww_plan *p, const struct ww_gemm_mma *g)
{
	const int bytes = g->dtype == WW_F32 ? 4 : 2, bk = g->dtype == WW_F32 ? 32 : 64;
	const long long batch = g->batch ? g->batch : 1;
	const int a_vector = g->computed ? g->computed : ww_mma_vector(&g->a, bytes);
	const int b_vector = ww_mma_vector(&g->b, bytes), a_along = g->computed || g->a.k_stride == 1;
	struct ww_mma_tile t = { g->bm, g->bn, g->split ? g->split : 1, 0 };
	long long blocks, shared;
	int a_lines, b_lines, stages = g->stages, tiles = 1, steps, odd;

	if (!t.bm)
		t = ww_mma_choose(&(struct ww_mma_size){ .m = g->m,
			.n = g->n,
			.k = g->k,
			.batch = batch,
			.bytes = bytes,
			.a_vector = a_vector,
			.b_vector = b_vector,
			.computed = g->computed,
			.sms = ww_device(p)->sm_count });
	if (ww_device(p)->cc < 90)
		t.split = 1;
	if (!t.bm || (g->computed && (t.bn < g->n || g->k % g->computed))) {
		ww_fail(p, "gemm_mma: a computed operand has k in whole vectors, for the columns of one tile");
		return;
	}
	if ((!a_along && g->a.row_stride != 1) || (g->b.k_stride != 1 && g->b.row_stride != 1)) {
		ww_fail(p, "gemm_mma: one of row_stride and k_stride must be 1");
		return;
	}
	blocks = ww_cdiv(g->m, t.bm) * ww_cdiv(g->n, t.bn) * batch * t.split;
	if (blocks > 0x7fffffff) {
		ww_fail(p, "gemm_mma: too many tiles");
		return;
	}
	/* Elements of a stage, as mma_tile pads them. */
	a_lines = a_along ? t.bm * (bk + 8) : bk * (t.bm + 16 / bytes);
	b_lines = g->b.k_stride == 1 ? t.bn * (bk + 8) : bk * (t.bn + 16 / bytes);
	steps = (int)ww_cdiv(ww_cdiv(g->k, bk), t.split);
	if (g->below && t.split == 1 && !stages && steps <= WW_MMA_STAYS)
		tiles = ww_mma_tiles_of(ww_cdiv(g->m, t.bm), blocks, ww_device(p)->sm_count);
	if (tiles > 1) {
		stages = 3;
		blocks = ww_cdiv(ww_cdiv(g->m, t.bm), tiles) * ww_cdiv(g->n, t.bn) * batch;
	}
	/* with few blocks on an SM, more stages hide the memory's latency */
	if (!stages) {
		const long long on_one = ww_cdiv(blocks, ww_device(p)->sm_count);

		stages = (int)ww_min(6, 196608 / (ww_min(on_one, t.bm * t.bn > 4096 ? 1 : 3) * (a_lines + b_lines) * bytes));
		stages = (int)ww_max(2, ww_min(stages, steps + 1));
	}
	/* of an odd number of columns mma_end() turns 16 rows of each warp */
	odd = tiles > 1 && g->n % 2 ? (t.bm * t.bn > 4096 ? 8 : 4) * 16 * 40 * 4 : 0;
	shared = tiles > 1 ? ((long long)stages * a_lines + steps * b_lines) * bytes + odd
					   : ww_max((long long)stages * (a_lines + b_lines) * bytes, t.split > 1 ? 4LL * t.bm * t.bn : 0);
	ww_tunable(p, g->kernel, "BM", t.bm);
	ww_tunable(p, g->kernel, "BN", t.bn);
	ww_tunable(p, g->kernel, "STAGES", stages);
	ww_tunable(p, g->kernel, "SPLIT", t.split);
	if (!g->computed)
		ww_tunable(p, g->kernel, "AK", g->a.k_stride == 1);
	if (g->below) {
		ww_tunable(p, g->kernel, "TILES", tiles);
		ww_tunable(p, g->kernel, "STEPS", tiles > 1 ? steps : 1);
	}
	ww_tunable(p, g->kernel, "BK", g->b.k_stride == 1);
	ww_tunable(p, g->kernel, "AV", a_vector);
	ww_tunable(p, g->kernel, "BV", b_vector);
	ww_launch(p, g->kernel, blocks, 1, 1, t.bm * t.bn > 4096 ? 256 : 128, 1, 1);
	ww_shared(p, shared);
	if (t.split > 1)
		ww_cluster(p, t.split, 1, 1);
	ww_args_mma(p, g->computed ? 0 : &g->a, &g->b, g->inner, g->m, g->n, g->k);
}

/* The same for <ww/gemm_thin.cuh>: fp32, n at most 16, A contiguous along k.  Without `parts` it is chosen here. */
struct ww_gemm_thin {
	const char *kernel;
	long long m, n, k, batch, inner;
	struct ww_mma_operand a, b;
	int parts;
};

static void ww_recipe_gemm_thin(struct ww_plan *p, const struct ww_gemm_thin *g)
{
	const int along = g->b.k_stride == 1;
	const long long batch = g->batch ? g->batch : 1, sms = ww_device(p)->sm_count;
	long long vector = ww_mma_vector(&g->a, 4), parts = g->parts;

	if (along)
		vector = ww_min(vector, ww_mma_vector(&g->b, 4));
	if (g->n > 16 || g->n < 1 || g->a.k_stride != 1 || g->b.row_stride > 1 << 26 ||
		(!along && (g->b.row_stride != 1 || !ww_thin_turns(g->n, g->k)))) {
		ww_fail(p, "gemm_thin: at most 16 columns, the first operand along k; the second, too, or of 10,240 elements");
		return;
	}
	while (g->k % vector)
		vector /= 2;
	if (!parts)
		parts = ww_thin_parts(g->m, g->n, g->k, batch, (int)vector, sms);
	if (ww_thin_blocks(g->m, g->n, batch, (int)parts) > 0x7fffffff) {
		ww_fail(p, "gemm_thin: too many rows");
		return;
	}
	ww_tunable(p, g->kernel, "N", ww_thin_columns(g->n));
	ww_tunable(p, g->kernel, "V", vector);
	ww_tunable(p, g->kernel, "PARTS", parts);
	ww_tunable(p, g->kernel, "ALONG", along);
	ww_launch(p, g->kernel, ww_thin_blocks(g->m, g->n, batch, (int)parts), 1, 1, 256, 1, 1);
	ww_args_mma(p, &g->a, &g->b, g->inner, g->m, g->n, g->k);
}

/* The same for <ww/gemm_short.cuh>: k at most 16, n beyond 16. */
static void ww_recipe_gemm_short(struct ww_plan *p, const struct ww_gemm_thin *g)
{
	const int along = g->b.k_stride == 1;
	const long long blocks = ww_short_blocks(g->m, g->n, g->batch ? g->batch : 1);
	long long vector = ww_mma_vector(&g->a, 4);

	if (g->k > 16 || g->k < 1 || g->a.k_stride != 1 || (!along && g->b.row_stride != 1) || blocks > 0x7fffffff) {
		ww_fail(p, "gemm_short: k at most 16, the first operand along k");
		return;
	}
	while (g->k % vector)
		vector /= 2;
	ww_tunable(p, g->kernel, "K", ww_short_k(g->k));
	ww_tunable(p, g->kernel, "COLS", ww_short_columns(g->n));
	ww_tunable(p, g->kernel, "V", vector);
	ww_tunable(p, g->kernel, "ALONG", along);
	ww_launch(p, g->kernel, blocks, 1, 1, 256, 1, 1);
	ww_args_mma(p, &g->a, &g->b, g->inner, g->m, g->n, g->k);
}

struct ww_gemm_any {
	const char *kernel;
	long long m, n, k, batch;
	int bm, bn; /* 32, 64 or 128; default 64 */
};

/* Leading arguments: int m, n, k, batch. */
static void ww_recipe_gemm_any(struct ww_plan *p, const struct ww_gemm_any *g)
{
	int bm = g->bm ? g->bm : 64, bn = g->bn ? g->bn : 64;
	long long batch = g->batch ? g->batch : 1;

	if (ww_cdiv(g->m, bm) > 65535) {
		ww_fail(p, "gemm_any: too many rows");
		return;
	}
	ww_tunable(p, g->kernel, "BM", bm);
	ww_tunable(p, g->kernel, "BN", bn);
	ww_launch(p, g->kernel, ww_cdiv(g->n, bn), ww_cdiv(g->m, bm), ww_min(batch, 65535), 256, 1, 1);
	ww_arg_i32(p, (int)g->m);
	ww_arg_i32(p, (int)g->n);
	ww_arg_i32(p, (int)g->k);
	ww_arg_i32(p, (int)batch);
}

#endif
