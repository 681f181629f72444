/* Exact mode: a row's bits depend on that row alone, and nothing depends on the number of threads.
 *
 *   dev_test_exact [cpu|cuda [NAME]]     77 where there is no GPU; NAME: only tests whose names match it, as in joined*
 */
#include "unit.h"

#include "base/rng.h"
#include "dev/dev.h"

enum { M = 37, N = 133, L = 301, LEN = 200, A = 6, K = 2, D = 40, PAGE = 16, PAGES = LEN / PAGE + 1, CHUNK = 50 };

struct side {
	struct ww_dev *dev;
	const struct ww_dev_ops *ops;
	struct ww_stream *s;
	void *mem[64];
	int count;
};

static const char *device = "cpu";

static struct side open_side(const char *threads)
{
	struct ww_err err = WW_ERR_INIT;
	struct side d = { 0 };
	setenv("WARPWRIGHT_THREADS", threads, 1);
	assert_int_equal(ww_dev_open(device, 1, &d.dev, &err), WW_OK);
	d.ops = d.dev->ops;
	assert_int_equal(d.ops->stream_new(d.dev, &d.s, &err), WW_OK);
	return d;
}

/* Wait, and free what was allocated. */
static void clear_side(struct side *d)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(d->ops->sync(d->s, &err), WW_OK);
	while (d->count)
		d->ops->free(d->dev, d->mem[--d->count]);
}

static void close_side(struct side *d)
{
	clear_side(d);
	d->ops->stream_free(d->s);
	ww_dev_close(d->dev);
}

static void *room(struct side *d, size_t bytes)
{
	struct ww_err err = WW_ERR_INIT;
	void *p;
	assert_true(d->count < 64);
	assert_int_equal(d->ops->alloc(d->dev, bytes, &p, &err), WW_OK);
	return d->mem[d->count++] = p;
}

/* n random numbers as fp32 or bf16, the same for every device. */
static struct ww_arr random_arr(struct side *d, uint64_t seed, int dtype, int64_t n)
{
	struct ww_rng r;
	struct ww_arr a = { room(d, (size_t)n * 4), dtype }, f = { room(d, (size_t)n * 4), WW_F32 };
	float *host = malloc((size_t)n * 4);
	ww_rng_init(&r, seed, 0);
	for (int64_t i = 0; i < n; i++)
		host[i] = (float)(2 * ww_rng_uniform(&r) - 1);
	d->ops->upload(d->s, f.p, host, (size_t)n * 4);
	d->ops->cast(d->s, a, f, n);
	free(host);
	return a;
}

static int32_t *ints(struct side *d, int64_t n, int64_t first, int64_t step)
{
	int32_t *p = room(d, (size_t)n * 4), *host = malloc((size_t)n * 4);
	for (int64_t i = 0; i < n; i++)
		host[i] = (int32_t)(first + i * step);
	d->ops->upload(d->s, p, host, (size_t)n * 4);
	free(host);
	return p;
}

static size_t size_of(int dtype) { return dtype == WW_BF16 ? 2 : 4; }

static struct ww_arr at(struct ww_arr a, int64_t i)
{
	return (struct ww_arr){ (char *)a.p + (size_t)i * size_of(a.dtype), a.dtype };
}

static void compare(struct side *d, struct ww_arr a, struct ww_arr b, int64_t n)
{
	size_t bytes = (size_t)n * size_of(a.dtype);
	void *x = malloc(bytes), *y = malloc(bytes);
	struct ww_err err = WW_ERR_INIT;
	d->ops->download(d->s, x, a.p, bytes);
	d->ops->download(d->s, y, b.p, bytes);
	assert_int_equal(d->ops->sync(d->s, &err), WW_OK);
	assert_memory_equal(x, y, bytes);
	free(x);
	free(y);
}

static void product_rows(int dtype, int64_t m_all, int64_t n, int64_t l)
{
	struct side d = open_side("2");
	struct ww_arr a = random_arr(&d, 1, dtype, m_all * l), b = random_arr(&d, 2, dtype, n * l);
	struct ww_arr whole = random_arr(&d, 3, dtype, m_all * n), alone = random_arr(&d, 3, dtype, m_all * n);
	d.ops->gemm(d.s, WW_GEMM_NT, whole, a, b, m_all, n, l, 0);
	for (int64_t i = 0, m = 1; i < m_all; i += m, m = m % 5 + 1) { /* groups of 1 to 5 rows */
		if (m > m_all - i)
			m = m_all - i;
		d.ops->gemm(d.s, WW_GEMM_NT, at(alone, i * n), at(a, i * l), b, m, n, l, 0);
	}
	compare(&d, whole, alone, m_all * n);
	close_side(&d);
}

/* Odd widths and widths as models have them: a device may treat them differently. */
static void a_row_of_a_product_does_not_see_its_neighbours(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++) {
		product_rows(k ? WW_BF16 : WW_F32, M, N, L);
		product_rows(k ? WW_BF16 : WW_F32, M, 136, 304);
		product_rows(k ? WW_BF16 : WW_F32, 70, 256, 512);
		product_rows(k ? WW_BF16 : WW_F32, 1958, 1, 128); /* a critic's values */
	}
}

/* Layers whose weights lie side by side as one product, and one by one; out of few rows and of many. */
static void product_columns(int dtype, int c_dtype, int64_t m, int64_t l)
{
	static const int64_t parts[] = { 128, 64, 64, 256, 8 };
	struct side d = open_side("2");
	int64_t all = 0, at_column = 0;
	for (int i = 0; i < 5; i++)
		all += parts[i];
	struct ww_arr a = random_arr(&d, 1, dtype, m * l), b = random_arr(&d, 2, dtype, all * l),
				  wide = random_arr(&d, 3, c_dtype, m * all);
	char *whole = malloc((size_t)(m * all) * 4), *part = malloc((size_t)(m * all) * 4);
	struct ww_err err = WW_ERR_INIT;
	size_t item = size_of(c_dtype);
	d.ops->gemm(d.s, WW_GEMM_NT, wide, a, b, m, all, l, 0);
	d.ops->download(d.s, whole, wide.p, (size_t)(m * all) * item);
	for (int i = 0; i < 5; at_column += parts[i++]) {
		struct ww_arr one = random_arr(&d, 4, c_dtype, m * parts[i]);
		d.ops->gemm(d.s, WW_GEMM_NT, one, a, at(b, at_column * l), m, parts[i], l, 0);
		d.ops->download(d.s, part, one.p, (size_t)(m * parts[i]) * item);
		assert_int_equal(d.ops->sync(d.s, &err), WW_OK);
		for (int64_t r = 0; r < m; r++)
			assert_memory_equal(part + (size_t)(r * parts[i]) * item, whole + (size_t)(r * all + at_column) * item,
				(size_t)parts[i] * item);
	}
	free(whole);
	free(part);
	close_side(&d);
}

static void a_column_of_a_product_does_not_see_its_neighbours(void **state)
{
	(void)state;
	for (int64_t m = 1; m < 100; m = m * 9 + 2)
		for (int k = 0; k < 3; k++)
			product_columns(k ? WW_BF16 : WW_F32, k == 1 ? WW_BF16 : WW_F32, m, m < 10 ? 384 : 1024);
}

/* A sequence as a packed batch, against the same one token at a time over a paged cache, and against a chunk of it
 * beside another sequence's token. */
static void attention_everywhere(struct side *d, int dtype, int64_t dim)
{
	int64_t n = LEN * A * dim, kv = LEN * K * dim, row = A * dim;
	struct ww_arr q = random_arr(d, 1, dtype, n), key = random_arr(d, 2, dtype, kv), val = random_arr(d, 3, dtype, kv);
	struct ww_arr whole = random_arr(d, 4, dtype, n), alone = random_arr(d, 4, dtype, n),
				  mixed = random_arr(d, 4, dtype, n);
	struct ww_arr pk = random_arr(d, 5, dtype, 3 * PAGES * PAGE * K * dim),
				  pv = random_arr(d, 5, dtype, 3 * PAGES * PAGE * K * dim);
	float *lse = room(d, LEN * A * 4), *lse_alone = room(d, LEN * A * 4);
	int32_t *zero = ints(d, LEN, 0, 0), *pos = ints(d, LEN, 0, 1), *pages = room(d, 2 * PAGES * 4), host[2 * PAGES];
	int32_t *start = ints(d, 2, 0, LEN), *start_one = ints(d, 2, 0, 1), *start_two = ints(d, 3, 0, CHUNK);
	for (int i = 0; i < 2 * PAGES; i++) /* both sequences read the same pages */
		host[i] = 1 + 2 * (i % PAGES);
	d->ops->upload(d->s, pages, host, sizeof(host));
	struct ww_attn w = { .q = q,
		.k = key,
		.v = val,
		.out = whole,
		.lse = lse,
		.seq = zero,
		.pos = pos,
		.start = start,
		.t = LEN,
		.sequences = 1,
		.rows_max = LEN,
		.keys_max = LEN,
		.heads = A,
		.kv_heads = K,
		.head_dim = dim,
		.scale = 0.2f };
	d->ops->attention(d->s, &w);
	for (int64_t t = 0; t < LEN; t++) {
		int64_t to = (1 + 2 * (t / PAGE)) * PAGE + t % PAGE;
		d->ops->cast(d->s, at(pk, to * K * dim), at(key, t * K * dim), K * dim);
		d->ops->cast(d->s, at(pv, to * K * dim), at(val, t * K * dim), K * dim);
		struct ww_attn one = w;
		one.q = at(q, t * row);
		one.out = at(alone, t * row);
		one.lse = lse_alone + t * A;
		one.pos = pos + t;
		one.start = start_one;
		one.rows_max = 1;
		one.keys_max = t + 1;
		one.k = pk;
		one.v = pv;
		one.pages = pages;
		one.pages_stride = PAGES;
		one.page_size = PAGE;
		one.t = 1;
		d->ops->attention(d->s, &one);
	}
	compare(d, whole, alone, n);
	compare(d, (struct ww_arr){ lse, WW_F32 }, (struct ww_arr){ lse_alone, WW_F32 }, LEN * A);
	/* positions 100.. of one sequence and position 100 + CHUNK of another */
	int32_t seq_two[2 * CHUNK] = { 0 }, ends[3] = { 0, CHUNK, CHUNK + 1 };
	seq_two[CHUNK] = 1;
	struct ww_attn two = w;
	two.q = at(q, 100 * row);
	two.out = mixed;
	two.lse = NULL;
	two.pos = pos + 100;
	two.seq = ints(d, CHUNK + 1, 0, 0);
	two.start = start_two;
	d->ops->upload(d->s, (void *)two.seq, seq_two, (CHUNK + 1) * 4);
	d->ops->upload(d->s, start_two, ends, sizeof(ends));
	two.sequences = 2;
	two.rows_max = CHUNK;
	two.keys_max = 101 + CHUNK;
	two.k = pk;
	two.v = pv;
	two.pages = pages;
	two.pages_stride = PAGES;
	two.page_size = PAGE;
	two.t = CHUNK + 1;
	d->ops->attention(d->s, &two);
	compare(d, at(whole, 100 * row), mixed, (CHUNK + 1) * row);
	clear_side(d);
}

static void attention_is_the_same_in_decode_and_in_a_batch(void **state)
{
	struct side d = open_side("2");
	(void)state;
	for (int k = 0; k < 2; k++) {
		attention_everywhere(&d, k ? WW_BF16 : WW_F32, D);
		attention_everywhere(&d, k ? WW_BF16 : WW_F32, 128);
	}
	close_side(&d);
}

static void rows_of_norms_and_softmax_stand_alone(void **state)
{
	(void)state;
	struct side d = open_side("2");
	struct ww_arr x = random_arr(&d, 1, WW_F32, M * N), w = random_arr(&d, 2, WW_F32, N);
	struct ww_arr whole = random_arr(&d, 3, WW_F32, M * N), alone = random_arr(&d, 3, WW_F32, M * N);
	float *state_whole = room(&d, M * 12), *state_alone = room(&d, M * 12);
	int32_t *ids = ints(&d, M, 0, 3);
	d.ops->rmsnorm(d.s, whole, NULL, x, w, M, N, 1e-6f);
	d.ops->softmax_chunk(d.s, state_whole, x.p, ids, M, 0, N);
	for (int64_t i = 0; i < M; i++) {
		d.ops->rmsnorm(d.s, at(alone, i * N), NULL, at(x, i * N), w, 1, N, 1e-6f);
		d.ops->softmax_chunk(d.s, state_alone + 3 * i, (float *)at(x, i * N).p, ids + i, 1, 0, N);
	}
	compare(&d, whole, alone, M * N);
	compare(&d, (struct ww_arr){ state_whole, WW_F32 }, (struct ww_arr){ state_alone, WW_F32 }, 3 * M);
	close_side(&d);
}

static void the_sum_of_a_row_is_that_of_its_chunks(void **state)
{
	(void)state;
	struct side d = open_side("2");
	enum { COLUMNS = 5 * 1024 + 40 };
	for (int64_t chunk = 1024; chunk < 3 * COLUMNS; chunk *= 3) {
		struct ww_arr x = random_arr(&d, 1, WW_F32, M * COLUMNS),
					  lse[2] = { random_arr(&d, 2, WW_F32, M), random_arr(&d, 3, WW_F32, M) };
		float *parts = room(&d, M * 12);
		int32_t *ids = ints(&d, M, 0, 3);
		d.ops->lse_rows(d.s, lse[0].p, parts, ids, x.p, M, COLUMNS, chunk);
		ww_dev_lse_rows(d.s, lse[1].p, parts, ids, x.p, M, COLUMNS, chunk);
		compare(&d, lse[0], lse[1], M);
	}
	close_side(&d);
}

static void fused_norm(struct side *d, int dtype, int64_t h)
{
	struct ww_arr a = random_arr(d, 1, dtype, M * h), b = random_arr(d, 2, dtype, M * h),
				  w = random_arr(d, 3, dtype, h), out[2], sum[2];
	for (int i = 0; i < 2; i++) {
		out[i] = random_arr(d, 4, dtype, M * h);
		sum[i] = random_arr(d, 5, dtype, M * h);
	}
	float *rstd[2] = { room(d, M * 4), room(d, M * 4) };
	d->ops->add_rmsnorm(d->s, sum[0], out[0], rstd[0], a, b, w, M, h, 1e-6f);
	d->ops->add(d->s, sum[1], a, b, M * h);
	d->ops->rmsnorm(d->s, out[1], rstd[1], sum[1], w, M, h, 1e-6f);
	compare(d, out[0], out[1], M * h);
	compare(d, sum[0], sum[1], M * h);
	compare(d, (struct ww_arr){ rstd[0], WW_F32 }, (struct ww_arr){ rstd[1], WW_F32 }, M);
	clear_side(d);
}

static void fused_rope_to_cache(struct side *d, int dtype, int64_t dim, int normed)
{
	enum { ROWS = 3 * M };
	struct ww_arr qw = random_arr(d, 1, dtype, dim), kw = random_arr(d, 2, dtype, dim), q[2], k[2], v, kc[2], vc[2];
	struct ww_arr freq = random_arr(d, 3, WW_F32, dim);
	int32_t *pos = ints(d, M, 5, 7), *rows = ints(d, M, 2, 3);
	float *cs = room(d, (size_t)(M * dim) * 4);
	d->ops->rope_table(d->s, cs, pos, freq.p, 1.25f, M, dim);
	v = random_arr(d, 6, dtype, M * K * dim);
	for (int i = 0; i < 2; i++) {
		q[i] = random_arr(d, 4, dtype, M * A * dim);
		k[i] = random_arr(d, 5, dtype, M * K * dim);
		kc[i] = random_arr(d, 7, dtype, ROWS * K * dim);
		vc[i] = random_arr(d, 8, dtype, ROWS * K * dim);
		struct ww_rope_to_cache p = { .q = q[i],
			.k = k[i],
			.v = v,
			.q_out = q[i],
			.k_cache = kc[i],
			.v_cache = vc[i],
			.cs = cs,
			.rows = rows,
			.t = M,
			.heads = A,
			.kv_heads = K,
			.head_dim = dim,
			.eps = 1e-6f };
		if (normed) {
			p.q_norm = qw;
			p.k_norm = kw;
		}
		if (i)
			ww_dev_rope_to_cache(d->s, &p);
		else
			d->ops->rope_to_cache(d->s, &p);
	}
	compare(d, q[0], q[1], M * A * dim);
	compare(d, kc[0], kc[1], ROWS * K * dim);
	compare(d, vc[0], vc[1], ROWS * K * dim);
	clear_side(d);
}

/* Rows of q, k, v and of gate, up as one product makes them: as if they came one by one. */
static void fused_rows(struct side *d, int dtype, int64_t dim)
{
	enum { FEW = 5, ROWS = 3 * FEW };
	int64_t stride = (A + 2 * K) * dim, f = 5 * dim;
	struct ww_arr wide = random_arr(d, 1, dtype, FEW * stride), w = random_arr(d, 2, dtype, dim),
				  freq = random_arr(d, 3, WW_F32, dim);
	struct ww_arr q[2], kc[2], vc[2], wides[2], gu = random_arr(d, 9, dtype, 2 * FEW * f), y[2];
	int32_t *pos = ints(d, FEW, 5, 7), *rows = ints(d, FEW, 2, 3);
	float *cs = room(d, (size_t)(FEW * dim) * 4);
	d->ops->rope_table(d->s, cs, pos, freq.p, 1.25f, FEW, dim);
	for (int i = 0; i < 2; i++) {
		wides[i] = random_arr(d, 1, dtype, FEW * stride);
		q[i] = random_arr(d, 4, dtype, FEW * A * dim);
		kc[i] = random_arr(d, 7, dtype, ROWS * K * dim);
		vc[i] = random_arr(d, 8, dtype, ROWS * K * dim);
		y[i] = random_arr(d, 10, dtype, FEW * f);
		struct ww_rope_to_cache p = { .q = wides[i],
			.k = at(wides[i], A * dim),
			.v = at(wides[i], (A + K) * dim),
			.stride = stride,
			.q_norm = w,
			.k_norm = w,
			.q_out = q[i],
			.k_cache = kc[i],
			.v_cache = vc[i],
			.cs = cs,
			.rows = rows,
			.t = FEW,
			.heads = A,
			.kv_heads = K,
			.head_dim = dim,
			.eps = 1e-6f };
		if (!i) {
			d->ops->rope_to_cache(d->s, &p);
			d->ops->swiglu_pairs(d->s, y[i], gu, FEW, f);
			continue;
		}
		/* By hand: token by token, operation by operation. */
		for (int64_t t = 0; t < FEW; t++) {
			struct ww_arr k = at(wide, t * stride + A * dim), v = at(wide, t * stride + (A + K) * dim),
						  one = at(q[i], t * A * dim);
			d->ops->rmsnorm(d->s, one, NULL, at(wide, t * stride), w, A, dim, 1e-6f);
			d->ops->rmsnorm(d->s, k, NULL, k, w, K, dim, 1e-6f);
			d->ops->rope(d->s, one, cs + t * dim, 0, 1, A, dim);
			d->ops->rope(d->s, k, cs + t * dim, 0, 1, K, dim);
			d->ops->scatter(d->s, kc[i], k, rows + t, 1, K * dim);
			d->ops->scatter(d->s, vc[i], v, rows + t, 1, K * dim);
			d->ops->swiglu(d->s, at(y[i], t * f), at(gu, 2 * t * f), at(gu, (2 * t + 1) * f), f);
		}
	}
	compare(d, q[0], q[1], FEW * A * dim);
	compare(d, kc[0], kc[1], ROWS * K * dim);
	compare(d, vc[0], vc[1], ROWS * K * dim);
	compare(d, y[0], y[1], FEW * f);
	clear_side(d);
}

/* Norm and turn of heads and their gradients, and the gradient of a norm into what is there. */
static void fused_training(struct side *d, int dtype, int64_t dim, int64_t h)
{
	struct ww_arr w = random_arr(d, 1, dtype, dim), x = random_arr(d, 2, dtype, M * A * dim),
				  freq = random_arr(d, 3, WW_F32, dim);
	struct ww_arr wh = random_arr(d, 6, dtype, h), xh = random_arr(d, 7, dtype, M * h), y[2], dx[2], res[2], dw[2],
				  dwh[2], rstd[2];
	struct ww_arr rstd_h = { room(d, M * 4), WW_F32 };
	int32_t *pos = ints(d, M, 5, 7);
	float *cs = room(d, (size_t)(M * dim) * 4);
	d->ops->rope_table(d->s, cs, pos, freq.p, 1.25f, M, dim);
	d->ops->rmsnorm(d->s, (struct ww_arr){ room(d, (size_t)(M * h) * 4), dtype }, rstd_h.p, xh, wh, M, h, 1e-6f);
	for (int i = 0; i < 2; i++) {
		struct ww_arr dy = random_arr(d, 8, dtype, M * h);
		rstd[i] = (struct ww_arr){ room(d, M * A * 4), WW_F32 };
		y[i] = random_arr(d, 4, dtype, M * A * dim);
		dx[i] = random_arr(d, 5, dtype, M * A * dim);
		res[i] = random_arr(d, 9, dtype, M * h);
		dw[i] = random_arr(d, 10, WW_F32, dim);
		dwh[i] = random_arr(d, 11, WW_F32, h);
		if (i) {
			ww_dev_norm_rope(d->s, y[i], rstd[i].p, x, w, cs, M, A, dim, 1e-6f);
			ww_dev_norm_rope_bwd(d->s, dx[i], dw[i].p, x, w, rstd[i].p, cs, M, A, dim);
			ww_dev_rmsnorm_bwd_add(d->s, res[i], dwh[i].p, dy, xh, wh, rstd_h.p, M, h);
		} else {
			d->ops->norm_rope(d->s, y[i], rstd[i].p, x, w, cs, M, A, dim, 1e-6f);
			d->ops->norm_rope_bwd(d->s, dx[i], dw[i].p, x, w, rstd[i].p, cs, M, A, dim);
			d->ops->rmsnorm_bwd_add(d->s, res[i], dwh[i].p, dy, xh, wh, rstd_h.p, M, h);
		}
	}
	compare(d, y[0], y[1], M * A * dim);
	compare(d, rstd[0], rstd[1], M * A);
	compare(d, dx[0], dx[1], M * A * dim);
	compare(d, dw[0], dw[1], dim);
	compare(d, res[0], res[1], M * h);
	compare(d, dwh[0], dwh[1], h);
	clear_side(d);
}

/* Joined operations give the bits of the single ones that stand for them. */
static void fused_is_one_after_the_other(void **state)
{
	static const int64_t widths[] = { 384, 1024, 2048, 4096, 100 }, dims[] = { 32, 64, 128, 256, 20 };
	struct side d = open_side("2");
	(void)state;
	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		for (int dtype = 0; dtype < 2; dtype++) {
			fused_norm(&d, dtype ? WW_BF16 : WW_F32, widths[i]);
			fused_training(&d, dtype ? WW_BF16 : WW_F32, dims[i], widths[i]);
			fused_rope_to_cache(&d, dtype ? WW_BF16 : WW_F32, dims[i], 1);
			fused_rope_to_cache(&d, dtype ? WW_BF16 : WW_F32, dims[i], 0);
			fused_rows(&d, dtype ? WW_BF16 : WW_F32, dims[i]);
		}
	close_side(&d);
}

enum { OUTS = 6 };

/* Everything that sums over rows, with so many threads; the results are copied to the host. */
static void gradients(const char *threads, float *out[OUTS], int64_t n[OUTS])
{
	struct side d = open_side(threads);
	int64_t big = 300 * N;
	struct ww_arr x = random_arr(&d, 1, WW_F32, big), dy = random_arr(&d, 2, WW_F32, big),
				  w = random_arr(&d, 3, WW_F32, N);
	struct ww_arr q = random_arr(&d, 4, WW_F32, LEN * A * D), g = random_arr(&d, 5, WW_F32, LEN * A * D);
	struct ww_arr k = random_arr(&d, 6, WW_F32, LEN * K * D), v = random_arr(&d, 7, WW_F32, LEN * K * D);
	struct ww_arr o = random_arr(&d, 8, WW_F32, LEN * A * D), dq = random_arr(&d, 8, WW_F32, LEN * A * D);
	struct ww_arr dk = random_arr(&d, 8, WW_F32, LEN * K * D), dv = random_arr(&d, 8, WW_F32, LEN * K * D);
	float *rstd = room(&d, 1200), *dw = room(&d, N * 4), *dtable = room(&d, 50 * N * 4), *gw = room(&d, N * N * 4),
		  *norm = room(&d, 4);
	float *lse = room(&d, LEN * A * 4);
	int32_t *zero = ints(&d, LEN, 0, 0), *pos = ints(&d, LEN, 0, 1), *start = ints(&d, 2, 0, LEN),
			*ids = ints(&d, 300, 7, 0);
	d.ops->zero(d.s, dw, N * 4);
	d.ops->zero(d.s, dtable, 50 * N * 4);
	d.ops->zero(d.s, norm, 4);
	d.ops->rmsnorm(d.s, (struct ww_arr){ room(&d, (size_t)big * 4), WW_F32 }, rstd, x, w, 300, N, 1e-6f);
	d.ops->rmsnorm_bwd(d.s, (struct ww_arr){ room(&d, (size_t)big * 4), WW_F32 }, dw, dy, x, w, rstd, 300, N);
	d.ops->bias_bwd(d.s, dw, dy, 300, N);
	d.ops->embed_bwd(d.s, dtable, dy, ids, 300, N);
	d.ops->gemm(d.s, WW_GEMM_TN, (struct ww_arr){ gw, WW_F32 }, dy, x, N, N, 300, 0);
	d.ops->sumsq(d.s, norm, x.p, big);
	struct ww_attn_bwd b = { .fwd = { .q = q,
								 .k = k,
								 .v = v,
								 .out = o,
								 .lse = lse,
								 .seq = zero,
								 .pos = pos,
								 .start = start,
								 .t = LEN,
								 .sequences = 1,
								 .rows_max = LEN,
								 .keys_max = LEN,
								 .heads = A,
								 .kv_heads = K,
								 .head_dim = D,
								 .scale = 0.2f },
		.dout = g,
		.dq = dq,
		.dk = dk,
		.dv = dv };
	d.ops->attention(d.s, &b.fwd);
	d.ops->attention_bwd(d.s, &b);
	const void *src[OUTS] = { dw, dtable, gw, norm, dq.p, dk.p };
	const int64_t sizes[OUTS] = { N, 50 * N, N * N, 1, LEN * A * D, LEN * K * D };
	for (int i = 0; i < OUTS; i++) {
		n[i] = sizes[i];
		out[i] = malloc((size_t)sizes[i] * 4);
		d.ops->download(d.s, out[i], src[i], (size_t)sizes[i] * 4); /* close_side() waits */
	}
	close_side(&d);
}

static void gradients_do_not_depend_on_the_number_of_threads(void **state)
{
	float *a[OUTS], *b[OUTS];
	int64_t n[OUTS];
	(void)state;
	gradients("1", a, n);
	gradients("3", b, n);
	for (int i = 0; i < OUTS; i++) {
		assert_memory_equal(a[i], b[i], (size_t)n[i] * 4);
		free(a[i]);
		free(b[i]);
	}
}

int main(int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *d = NULL;
	device = argc > 1 ? argv[1] : device;
	if (!strcmp(device, "cuda") && ww_dev_open(device, 1, &d, &err) == WW_ERR_MISSING) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	ww_dev_close(d);
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_row_of_a_product_does_not_see_its_neighbours),
		cmocka_unit_test(a_column_of_a_product_does_not_see_its_neighbours),
		cmocka_unit_test(attention_is_the_same_in_decode_and_in_a_batch),
		cmocka_unit_test(rows_of_norms_and_softmax_stand_alone),
		cmocka_unit_test(the_sum_of_a_row_is_that_of_its_chunks), cmocka_unit_test(fused_is_one_after_the_other),
		cmocka_unit_test(gradients_do_not_depend_on_the_number_of_threads) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
