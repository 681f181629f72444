/* bench_ops.c - times the engine's operations at the shapes of a 0.6B model (Qwen3's widths), on one device.
 *
 *   bench-ops [DEVICE [exact|fast] [TOKENS]]          default: cpu, exact, 256 tokens on cpu and 16384 on cuda
 *
 * Each line is the mean of calls that follow one another on a stream, after a warm-up of three (by which products have
 * chosen their algorithms): what an operation costs inside a step.  Rates count 2 m n k for products, half of the
 * square for causal attention (2.5 times the forward pass for the gradient), and for the others the bytes that must be
 * read and written.  Numbers are random, since products of zeros are faster.
 */
#include "base/rng.h"
#include "base/time.h"
#include "dev/dev.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	H = 1024,
	F = 3072,
	A = 16,
	K = 8,
	D = 128,
	CHUNK = 8192,
	V = 151936,
	PAGE = 64,
	PIECE = 1 << 20,
	BLOCKS_MAX = 64
};

struct bench {
	struct ww_dev *dev;
	const struct ww_dev_ops *ops;
	struct ww_stream *s;
	uint16_t *noise;
	void *blocks[BLOCKS_MAX];
	int count;
	int64_t t;    /* tokens of a step */
	int64_t d[8]; /* of the line */
	struct ww_arr a[8];
	float *f[4];
	int32_t *i[4];
};

static void check(enum ww_rc rc, const struct ww_err *err)
{
	if (rc == WW_OK)
		return;
	fprintf(stderr, "bench-ops: %s\n", err->msg);
	exit(rc == WW_ERR_MISSING ? 77 : 3);
}

static void *room(struct bench *b, size_t bytes)
{
	struct ww_err err = WW_ERR_INIT;
	WW_BUG(b->count == BLOCKS_MAX);
	check(b->ops->alloc(b->dev, bytes, &b->blocks[b->count], &err), &err);
	return b->blocks[b->count++];
}

/* n random numbers; fp32 ones are converted from bf16. */
static struct ww_arr noise(struct bench *b, int dtype, int64_t n)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_arr half = { room(b, (size_t)n * 2), WW_BF16 }, whole = half;
	for (int64_t i = 0; i < n; i += PIECE)
		b->ops->upload(b->s, (uint16_t *)half.p + i, b->noise, (size_t)(n - i < PIECE ? n - i : PIECE) * 2);
	if (dtype == WW_F32) {
		whole = (struct ww_arr){ room(b, (size_t)n * 4), WW_F32 };
		b->ops->cast(b->s, whole, half, n);
	}
	check(b->ops->sync(b->s, &err), &err);
	return whole;
}

static float *zeros(struct bench *b, int64_t n)
{
	float *p = room(b, (size_t)n * 4);
	b->ops->zero(b->s, p, (size_t)n * 4);
	return p;
}

static int32_t *ints(struct bench *b, int64_t n, int64_t (*at)(const struct bench *b, int64_t i))
{
	struct ww_err err = WW_ERR_INIT;
	int32_t *host = malloc((size_t)n * 4), *p = room(b, (size_t)n * 4);
	for (int64_t i = 0; i < n; i++)
		host[i] = (int32_t)at(b, i);
	b->ops->upload(b->s, p, host, (size_t)n * 4);
	check(b->ops->sync(b->s, &err), &err);
	free(host);
	return p;
}

/* Time run(b) and print a line; `work` in operations or bytes. */
static void line(
	struct bench *b, const char *op, const char *shape, void (*run)(struct bench *b), double work, const char *unit)
{
	struct ww_err err = WW_ERR_INIT;
	uint64_t begun;
	int64_t reps = 1;
	for (int i = 0; i < 3; i++)
		run(b);
	check(b->ops->sync(b->s, &err), &err);
	begun = ww_now_ns();
	run(b);
	check(b->ops->sync(b->s, &err), &err);
	double once = ww_seconds_since(begun);
	reps = once > 0.03 ? 3 : (int64_t)(0.06 / (once + 1e-5)) + 3;
	begun = ww_now_ns();
	for (int64_t i = 0; i < reps; i++)
		run(b);
	check(b->ops->sync(b->s, &err), &err);
	double each = ww_seconds_since(begun) / (double)reps;
	printf("%-14s %-26s %10.1f us  %9.1f %s\n", op, shape, each * 1e6, work / each / 1e9, unit);
	fflush(stdout);
	while (b->count)
		b->ops->free(b->dev, b->blocks[--b->count]);
}

static void run_gemm(struct bench *b)
{
	b->ops->gemm(b->s, (enum ww_gemm_form)b->d[3], b->a[2], b->a[0], b->a[1], b->d[0], b->d[1], b->d[2], (int)b->d[4]);
}

static void gemm(
	struct bench *b, enum ww_gemm_form form, int dtype, int c_dtype, int64_t m, int64_t n, int64_t k, int accumulate)
{
	static const char *const forms[] = { "gemm_nt", "gemm_nn", "gemm_tn" };
	char shape[64];
	memcpy(b->d, (int64_t[]){ m, n, k, form, accumulate }, 5 * sizeof(int64_t));
	b->a[0] = noise(b, dtype, m * k);
	b->a[1] = noise(b, dtype, n * k);
	b->a[2] = noise(b, c_dtype, m * n);
	snprintf(shape, sizeof(shape), "%ldx%ldx%ld %s%s", (long)m, (long)n, (long)k, dtype == WW_BF16 ? "bf16" : "fp32",
		accumulate ? " +=" : "");
	line(b, forms[form], shape, run_gemm, 2.0 * (double)m * (double)n * (double)k, "GFLOP/s");
}

static void gemms(struct bench *b)
{
	static const int64_t widths[][2] = { { 2048, H }, { H, H }, { H, 2048 }, { F, H }, { H, F } },
						 rows[] = { 1, 8, 64, 512, 0 };
	for (size_t r = 0; r < WW_ARRAY_LEN(rows); r++) {
		for (size_t i = 0; i < WW_ARRAY_LEN(widths); i++)
			gemm(b, WW_GEMM_NT, WW_BF16, WW_BF16, rows[r] ? rows[r] : b->t, widths[i][0], widths[i][1], 0);
		gemm(b, WW_GEMM_NT, WW_BF16, WW_F32, rows[r] ? rows[r] : 1024, CHUNK, H, 0);
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(widths); i++) {
		gemm(b, WW_GEMM_NN, WW_BF16, WW_BF16, b->t, widths[i][1], widths[i][0], 0);
		gemm(b, WW_GEMM_TN, WW_BF16, WW_F32, widths[i][0], widths[i][1], b->t, 1);
	}
	gemm(b, WW_GEMM_NN, WW_BF16, WW_F32, 1024, H, CHUNK, 1);
	gemm(b, WW_GEMM_TN, WW_BF16, WW_F32, CHUNK, H, 1024, 1);
	gemm(b, WW_GEMM_NT, WW_F32, WW_F32, b->t / 4, F, H, 0);
}

/* d: sequences, tokens of each here, keys of each, backward */
static struct ww_attn attn(struct bench *b)
{
	return (struct ww_attn){ .q = b->a[0],
		.k = b->a[1],
		.v = b->a[2],
		.out = b->a[3],
		.lse = b->f[0],
		.seq = b->i[0],
		.pos = b->i[1],
		.start = b->i[2],
		.pages = b->d[4] ? b->i[3] : NULL,
		.pages_stride = b->d[2] / PAGE,
		.page_size = PAGE,
		.t = b->d[0] * b->d[1],
		.sequences = b->d[0],
		.heads = A,
		.kv_heads = K,
		.head_dim = D,
		.rows_max = b->d[1],
		.keys_max = b->d[2],
		.scale = 0.08f };
}
static void run_attention(struct bench *b)
{
	struct ww_attn a = attn(b);
	b->ops->attention(b->s, &a);
}
static void run_attention_bwd(struct bench *b)
{
	struct ww_attn_bwd a = { .fwd = attn(b), .dout = b->a[4], .dq = b->a[5], .dk = b->a[6], .dv = b->a[7] };
	b->ops->attention_bwd(b->s, &a);
}
static int64_t seq_at(const struct bench *b, int64_t i) { return i / b->d[1]; }
static int64_t pos_at(const struct bench *b, int64_t i) { return b->d[2] - b->d[1] + i % b->d[1]; }
static int64_t start_at(const struct bench *b, int64_t i) { return i * b->d[1]; }
static int64_t page_at(const struct bench *b, int64_t i) { return (i * 7919) % (b->d[0] * (b->d[2] / PAGE)); }

static void attention(struct bench *b, int64_t sequences, int64_t tokens, int64_t keys, int backward)
{
	int64_t t = sequences * tokens, rows = sequences * keys, paged = tokens != keys;
	char shape[64];
	memcpy(b->d, (int64_t[]){ sequences, tokens, keys, backward, paged }, 5 * sizeof(int64_t));
	b->a[0] = noise(b, WW_BF16, t * A * D);
	b->a[1] = noise(b, WW_BF16, rows * K * D);
	b->a[2] = noise(b, WW_BF16, rows * K * D);
	b->a[3] = noise(b, WW_BF16, t * A * D);
	b->f[0] = zeros(b, t * A);
	b->i[0] = ints(b, t, seq_at);
	b->i[1] = ints(b, t, pos_at);
	b->i[2] = ints(b, sequences + 1, start_at);
	b->i[3] = ints(b, rows / PAGE + 1, page_at);
	double pairs = (double)t * ((double)keys - ((double)tokens - 1) / 2);
	snprintf(
		shape, sizeof(shape), "%ld x %ld of %ld%s", (long)sequences, (long)tokens, (long)keys, paged ? " paged" : "");
	if (backward) {
		for (int i = 4; i < 8; i++)
			b->a[i] = noise(b, WW_BF16, t * A * D);
		run_attention(b);
		line(b, "attention_bwd", shape, run_attention_bwd, 10 * pairs * A * D, "GFLOP/s");
	} else if (tokens == 1) {
		line(b, "attention", shape, run_attention, (double)rows * K * D * 4, "GB/s");
	} else {
		line(b, "attention", shape, run_attention, 4 * pairs * A * D, "GFLOP/s");
	}
}

static void run_rmsnorm(struct bench *b)
{
	b->ops->rmsnorm(b->s, b->a[1], b->f[0], b->a[0], b->a[2], b->d[0], b->d[1], 1e-6f);
}
static void run_rmsnorm_bwd(struct bench *b)
{
	b->ops->rmsnorm_bwd(b->s, b->a[1], b->f[1], b->a[1], b->a[0], b->a[2], b->f[0], b->d[0], b->d[1]);
}
static void run_rope(struct bench *b) { b->ops->rope(b->s, b->a[0], b->f[2], 0, b->d[0], A, D); }
static void run_add(struct bench *b) { b->ops->add(b->s, b->a[1], b->a[0], b->a[1], b->d[0] * b->d[1]); }
static void run_swiglu(struct bench *b) { b->ops->swiglu(b->s, b->a[1], b->a[0], b->a[1], b->d[0] * b->d[1]); }
static void run_swiglu_bwd(struct bench *b)
{
	b->ops->swiglu_bwd(b->s, b->a[3], b->a[1], b->a[1], b->a[0], b->a[4], b->d[0] * b->d[1]);
}

static void row_op(
	struct bench *b, const char *op, int64_t rows, int64_t width, void (*run)(struct bench *b), double passes)
{
	char shape[64];
	memcpy(b->d, (int64_t[]){ rows, width }, 2 * sizeof(int64_t));
	for (int i = 0; i < 5; i++)
		b->a[i] = noise(b, WW_BF16, i == 2 ? width : rows * width);
	b->f[0] = zeros(b, rows);
	b->f[1] = zeros(b, width);
	b->f[2] = run == run_rope ? (float *)noise(b, WW_F32, rows * D).p : NULL;
	snprintf(shape, sizeof(shape), "%ldx%ld", (long)rows, (long)width);
	line(b, op, shape, run, passes * (double)rows * (double)width * 2, "GB/s");
}

static void run_softmax(struct bench *b)
{
	b->ops->softmax_chunk(b->s, b->f[0], b->a[0].p, b->i[0], b->d[0], 0, CHUNK);
}
static void run_softmax_bwd(struct bench *b)
{
	b->ops->softmax_bwd(b->s, b->a[1], b->a[0].p, b->i[0], b->f[1], b->f[2], b->d[0], 0, CHUNK);
}
static int64_t some_id(const struct bench *b, int64_t i) { return (i * 7919 + i / 3) % b->d[1]; }

static void softmax(struct bench *b, int64_t rows)
{
	for (int backward = 0; backward < 2; backward++) {
		memcpy(b->d, (int64_t[]){ rows, CHUNK }, 2 * sizeof(int64_t));
		b->a[0] = noise(b, WW_F32, rows * CHUNK);
		b->a[1] = noise(b, WW_BF16, rows * CHUNK);
		b->i[0] = ints(b, rows, some_id);
		for (int i = 0; i < 3; i++)
			b->f[i] = zeros(b, 3 * rows);
		line(b, backward ? "softmax_bwd" : "softmax_chunk", "1024x8192", backward ? run_softmax_bwd : run_softmax,
			(double)rows * CHUNK * (backward ? 6 : 4), "GB/s");
	}
}

static void run_embed_bwd(struct bench *b) { b->ops->embed_bwd(b->s, b->f[0], b->a[0], b->i[0], b->d[0], H); }
static void run_adamw(struct bench *b)
{
	struct ww_adamw h = { 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 3 };
	b->ops->adamw(b->s, b->f[0], b->a[0], b->f[1], b->f[2], b->f[3], b->f[3], &h, b->d[0]);
}
static void run_sumsq(struct bench *b) { b->ops->sumsq(b->s, b->f[1], b->f[0], b->d[0]); }

static void step_ops(struct bench *b)
{
	int64_t n = b->t * 1024;
	char shape[64];
	memcpy(b->d, (int64_t[]){ b->t, V }, 2 * sizeof(int64_t));
	b->a[0] = noise(b, WW_BF16, b->t * H);
	b->f[0] = zeros(b, (int64_t)V * H);
	b->i[0] = ints(b, b->t, some_id);
	snprintf(shape, sizeof(shape), "%ldx%d", (long)b->t, H);
	line(b, "embed_bwd", shape, run_embed_bwd, (double)b->t * H * 2, "GB/s");
	b->d[0] = n;
	b->a[0] = noise(b, WW_BF16, n);
	for (int i = 0; i < 4; i++)
		b->f[i] = zeros(b, n);
	snprintf(shape, sizeof(shape), "%ld", (long)n);
	line(b, "adamw", shape, run_adamw, (double)n * 30, "GB/s");
	b->d[0] = n;
	b->f[0] = noise(b, WW_F32, n).p;
	b->f[1] = zeros(b, 1);
	line(b, "sumsq", shape, run_sumsq, (double)n * 4, "GB/s");
}

static void run_sample(struct bench *b)
{
	b->ops->sample(
		b->s, (struct ww_sampled *)b->f[0], (const struct ww_sampler *)b->f[1], b->a[0].p, b->f[2], b->d[0], V, CHUNK);
}

static void sample(struct bench *b, int64_t rows, struct ww_sampling how, const char *shape)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_sampler *host = calloc((size_t)rows, sizeof(*host));
	for (int64_t i = 0; i < rows; i++)
		host[i] = (struct ww_sampler){ how, 1, (uint64_t)i, 7 };
	b->d[0] = rows;
	b->a[0] = noise(b, WW_F32, rows * V);
	b->f[0] = zeros(b, rows * (int64_t)sizeof(struct ww_sampled) / 4);
	b->f[1] = room(b, (size_t)rows * sizeof(*host));
	b->f[2] = zeros(b, rows);
	b->ops->upload(b->s, b->f[1], host, (size_t)rows * sizeof(*host));
	check(b->ops->sync(b->s, &err), &err);
	free(host);
	line(b, "sample", shape, run_sample, (double)rows * V * 4, "GB/s");
}

int main(int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct bench b = { 0 };
	struct ww_rng rng;
	const char *device = argc > 1 ? argv[1] : "cpu", *mode = argc > 2 ? argv[2] : "exact";
	int gpu = !strcmp(device, "cuda");
	b.t = argc > 3 ? atoll(argv[3]) : gpu ? 16384 : 256;
	if (b.t < 64 || b.t > 1 << 20) {
		fprintf(stderr, "bench-ops: TOKENS is a number from 64 to 1048576\n");
		return 2;
	}
	b.t = b.t / PAGE * PAGE;
	check(ww_dev_open(device, !strcmp(mode, "exact"), &b.dev, &err), &err);
	b.ops = b.dev->ops;
	check(b.ops->stream_new(b.dev, &b.s, &err), &err);
	b.noise = malloc(PIECE * sizeof(*b.noise));
	ww_rng_init(&rng, 1, 0);
	for (int i = 0; i < PIECE; i++)
		b.noise[i] = ww_bf16_from((float)(2 * ww_rng_uniform(&rng) - 1));
	printf("# device %s, %s, %ld tokens\n", device, mode, (long)b.t);
	int64_t length = b.t < 4096 ? b.t : 4096;
	attention(&b, b.t / length, length, length, 0);
	attention(&b, b.t / length, length, length, 1);
	attention(&b, gpu ? 64 : 2, 1, length, 0);
	attention(&b, 1, 1, 2 * length, 0);
	attention(&b, 8, 64, length, 0);
	row_op(&b, "rmsnorm", b.t, H, run_rmsnorm, 2);
	row_op(&b, "rmsnorm", b.t * A, D, run_rmsnorm, 2);
	row_op(&b, "rmsnorm_bwd", b.t, H, run_rmsnorm_bwd, 3);
	row_op(&b, "rmsnorm_bwd", b.t * A, D, run_rmsnorm_bwd, 3);
	row_op(&b, "rope", b.t, A * D, run_rope, 2);
	row_op(&b, "add", b.t, H, run_add, 3);
	row_op(&b, "swiglu", b.t, F, run_swiglu, 3);
	row_op(&b, "swiglu_bwd", b.t, F, run_swiglu_bwd, 5);
	softmax(&b, gpu ? 1024 : 64);
	step_ops(&b);
	sample(&b, gpu ? 64 : 2, (struct ww_sampling){ 1, 0, 1, 0 }, "64x151936 plain");
	sample(&b, gpu ? 64 : 2, (struct ww_sampling){ 0.7, 50, 0.95, 0 }, "64x151936 top-k, top-p");
	gemms(&b);
	b.ops->stream_free(b.s);
	ww_dev_close(b.dev);
	free(b.noise);
	return 0;
}
