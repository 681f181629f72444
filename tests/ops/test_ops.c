/* test_ops.c - every operation of a device against the scalar reference: op, shape, type, error and speed.
 *
 *   test-ops [DEVICE [exact|fast [once] [OP...]]]    default: cpu in both modes, every operation; 77 where the device
 *                                                    is not there
 *
 * OP is a name, or NAME:SHAPE for one of its shapes.
 * once: nothing is timed.  A line's numbers are sampled for it alone, so it says the same whichever other lines there
 * are.
 *
 * Errors are relative to the reference's norm (`norm`) and elementwise to |ref| + rms(ref) (`elem`).  A line that
 * passes its limit ends the program with 1.  Limits: fp32 follows from sums of a few thousand roundings; bf16 is the
 * rounding of inputs' products to 8 bits (half a unit in the last place is 2^-9).
 *
 * budget: 4 CPU-seconds */
#include "base/rng.h"
#include "base/time.h"
#include "dev/dev.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 12, DIMS = 8 };

struct pair {
	void *p[2];
	int dtype;
	int64_t n;
}; /* on the reference, on the device under test */

struct bench {
	struct ww_dev *dev[2];
	struct ww_stream *s[2];
	struct ww_rng rng;
	int failed, lines, once;
	char **only; /* names of operations, NULL-terminated; none: all */
};

struct test {
	struct bench *b;
	const char *op, *shape;
	struct pair p[PAIRS];
	int64_t d[DIMS];
	double flops;
	void (*run)(struct test *t, int i);
};

static void check(enum ww_rc rc, const struct ww_err *err)
{
	if (rc == WW_OK)
		return;
	fprintf(stderr, "test-ops: %s\n", err->msg);
	exit(rc == WW_ERR_MISSING ? 77 : 3);
}

/* Is the case among the OPs asked for: "gemm_nt", or "gemm_nt:7x33x65" for one of its shapes. */
static int wanted(const struct bench *b, const char *op, const char *shape)
{
	int found = !*b->only;
	for (char **o = b->only; *o; o++) {
		const char *colon = strchr(*o, ':');
		size_t n = colon ? (size_t)(colon - *o) : strlen(*o), width = strcspn(shape, " ");
		found |= n == strlen(op) && !strncmp(*o, op, n) &&
			(!colon || (strlen(colon + 1) == width && !strncmp(colon + 1, shape, width)));
	}
	return found;
}

static const struct ww_dev_ops *ops(struct test *t, int i) { return t->b->dev[i]->ops; }
static struct ww_arr arr(struct test *t, int k, int i) { return (struct ww_arr){ t->p[k].p[i], t->p[k].dtype }; }

/* Normal numbers, sampled once: more than half of this program's time would go into sampling others.  Each tensor reads
 * them from a place of its own.  A prime number of them, so that no two rows of one tensor are the same. */
enum { NORMALS = 65521 };
static double normals[NORMALS + 1];

static void draw_normals(struct ww_rng *r)
{
	for (int i = 0; i < NORMALS; i += 2) {
		double length = sqrt(-2 * log(1 - ww_rng_uniform(r))), angle = 2 * M_PI * ww_rng_uniform(r);
		normals[i] = length * cos(angle);
		normals[i + 1] = length * sin(angle);
	}
}

static void put(struct test *t, int k, int dtype, int64_t n, const void *host)
{
	struct ww_err err = WW_ERR_INIT;
	size_t bytes = (size_t)n * (dtype == WW_BF16 ? 2 : 4);
	t->p[k].dtype = dtype;
	t->p[k].n = n;
	for (int i = 0; i < 2; i++) {
		check(t->b->dev[i]->ops->alloc(t->b->dev[i], bytes, &t->p[k].p[i], &err), &err);
		ops(t, i)->upload(t->b->s[i], t->p[k].p[i], host, bytes);
		check(ops(t, i)->sync(t->b->s[i], &err), &err);
	}
}

/* Random numbers around `mean`; scale 0: zeros. */
static void fill(struct test *t, int k, int dtype, int64_t n, double mean, double scale)
{
	float *f = malloc((size_t)n * 4);
	uint16_t *h = malloc((size_t)n * 2);
	int at = (int)(ww_rng_uniform(&t->b->rng) * NORMALS);
	for (int64_t i = 0; i < n; i++) {
		f[i] = (float)(mean + scale * normals[at]);
		h[i] = ww_bf16_from(f[i]);
		at = at + 1 < NORMALS ? at + 1 : 0;
	}
	put(t, k, dtype, n, dtype == WW_BF16 ? (void *)h : f);
	free(f);
	free(h);
}

static double *fetch(struct test *t, int k, int i)
{
	struct ww_err err = WW_ERR_INIT;
	size_t n = (size_t)t->p[k].n;
	double *out = malloc(n * sizeof(*out));
	void *raw = malloc(n * 4);
	ops(t, i)->download(t->b->s[i], raw, t->p[k].p[i], n * (t->p[k].dtype == WW_BF16 ? 2 : 4));
	check(ops(t, i)->sync(t->b->s[i], &err), &err);
	for (size_t j = 0; j < n; j++)
		out[j] = t->p[k].dtype == WW_BF16 ? (double)ww_bf16_to(((uint16_t *)raw)[j]) : (double)((float *)raw)[j];
	free(raw);
	return out;
}

static void compare(struct test *t, int k, double *norm, double *elem)
{
	double *r = fetch(t, k, 0), *y = fetch(t, k, 1), sum = 0, diff = 0;
	int64_t n = t->p[k].n;
	for (int64_t i = 0; i < n; i++) {
		sum += r[i] * r[i];
		diff += (y[i] - r[i]) * (y[i] - r[i]);
	}
	double rms = sqrt(sum / (double)n), e = sqrt(diff / (sum > 0 ? sum : 1));
	*norm = !(e <= *norm) ? e : *norm; /* a NaN stays */
	for (int64_t i = 0; i < n; i++) {
		e = fabs(y[i] - r[i]) / (fabs(r[i]) + rms + 1e-30);
		*elem = !(e <= *elem) ? e : *elem;
	}
	free(r);
	free(y);
}

static double time_us(struct test *t)
{
	struct ww_err err = WW_ERR_INIT;
	double best = 1e30;
	uint64_t begin = ww_now_ns();
	for (int i = 0; i < 50 && (i < 3 || ww_seconds_since(begin) < 0.004); i++) {
		uint64_t start = ww_now_ns();
		t->run(t, 1);
		check(ops(t, 1)->sync(t->b->s[1], &err), &err);
		best = fmin(best, ww_seconds_since(start) * 1e6);
	}
	return best;
}

/* Run on both, compare the outputs out0 .. out0+outs-1, print a line, free everything. */
static void finish(struct test *t, int out0, int outs, int bf16)
{
	double norm = 0, elem = 0, limit = bf16 ? 6e-3 : 1e-5, limit_elem = bf16 ? 3e-2 : 2e-4;
	struct ww_err err = WW_ERR_INIT;
	for (int i = 0; i < 2; i++) {
		t->run(t, i);
		check(ops(t, i)->sync(t->b->s[i], &err), &err);
	}
	for (int k = out0; k < out0 + outs; k++)
		compare(t, k, &norm, &elem);
	int bad = !(norm <= limit && elem <= limit_elem);
	double us = t->b->once ? 0 : time_us(t);
	printf("%-4s %-14s %-24s %-4s norm %.1e elem %.1e %9.1f us", bad ? "FAIL" : "ok", t->op, t->shape,
		bf16 ? "bf16" : "fp32", norm, elem, us);
	if (t->flops > 0 && us > 0)
		printf(" %7.1f GFLOP/s", t->flops / us / 1e3);
	putchar('\n');
	t->b->failed += bad;
	t->b->lines++;
	for (int k = 0; k < PAIRS; k++)
		for (int i = 0; i < 2; i++)
			if (t->p[k].p[i])
				ops(t, i)->free(t->b->dev[i], t->p[k].p[i]);
}

static struct test begin(struct bench *b, const char *op, char *shape, void (*run)(struct test *, int))
{
	uint64_t seed = 20261121;
	for (const char *c = op; *c; c++)
		seed = seed * 31 + (unsigned char)*c;
	for (const char *c = shape; *c; c++)
		seed = seed * 31 + (unsigned char)*c;
	ww_rng_init(&b->rng, seed, 1);
	return (struct test){ .b = b, .op = op, .shape = shape, .run = run };
}

/* ---- the operations */

static void run_gemm(struct test *t, int i)
{
	ops(t, i)->gemm(t->b->s[i], (enum ww_gemm_form)t->d[3], arr(t, 2, i), arr(t, 0, i), arr(t, 1, i), t->d[0], t->d[1],
		t->d[2], (int)t->d[4]);
}

static void test_gemm(struct bench *b, int dtype)
{
	static const char *const forms[] = { "gemm_nt", "gemm_nn", "gemm_tn" };
	static const int64_t shapes[][3] = { { 1, 384, 384 }, { 1, 1152, 384 }, { 7, 33, 65 }, { 20, 129, 1000 },
		{ 96, 256, 384 }, { 3, 1, 1 }, { 13, 40, 17 }, { 2048, 1, 128 }, { 1958, 1, 128 } };
	for (size_t k = 0; k < WW_ARRAY_LEN(shapes); k++)
		for (int form = 0; form < 3; form++)
			for (int acc = 0; acc < 2; acc++) {
				char shape[64];
				int64_t m = shapes[k][0], n = shapes[k][1], l = shapes[k][2];
				snprintf(shape, sizeof(shape), "%ldx%ldx%ld%s", (long)m, (long)n, (long)l, acc ? " +=" : "");
				struct test t = begin(b, forms[form], shape, run_gemm);
				if (!wanted(b, t.op, t.shape))
					continue;
				memcpy(t.d, (int64_t[]){ m, n, l, form, acc }, 5 * sizeof(int64_t));
				fill(&t, 0, dtype, m * l, 0, 1);
				fill(&t, 1, dtype, n * l, 0, 0.1);
				fill(&t, 2, acc ? WW_F32 : dtype, m * n, 0.5, 1);
				t.flops = 2.0 * (double)m * (double)n * (double)l;
				finish(&t, 2, 1, dtype == WW_BF16);
			}
}

static void run_rmsnorm(struct test *t, int i)
{
	ops(t, i)->rmsnorm(t->b->s[i], arr(t, 2, i), t->p[3].p[i], arr(t, 0, i), arr(t, 1, i), t->d[0], t->d[1], 1e-6f);
}

static void run_rmsnorm_bwd(struct test *t, int i)
{
	ops(t, i)->rmsnorm_bwd(t->b->s[i], arr(t, 4, i), t->p[5].p[i], arr(t, 2, i), arr(t, 0, i), arr(t, 1, i),
		t->p[3].p[i], t->d[0], t->d[1]);
}

static void run_bias(struct test *t, int i)
{
	ops(t, i)->bias(t->b->s[i], arr(t, 2, i), arr(t, 1, i), t->d[0], t->d[1]);
}
static void run_bias_bwd(struct test *t, int i)
{
	ops(t, i)->bias_bwd(t->b->s[i], t->p[2].p[i], arr(t, 0, i), t->d[0], t->d[1]);
}
static void run_add(struct test *t, int i)
{
	ops(t, i)->add(t->b->s[i], arr(t, 2, i), arr(t, 0, i), arr(t, 1, i), t->d[0] * t->d[1]);
}
static void run_cast(struct test *t, int i)
{
	ops(t, i)->cast(t->b->s[i], arr(t, 1, i), arr(t, 0, i), t->d[0] * t->d[1]);
}
static void run_swiglu(struct test *t, int i)
{
	ops(t, i)->swiglu(t->b->s[i], arr(t, 2, i), arr(t, 0, i), arr(t, 1, i), t->d[0] * t->d[1]);
}
static void run_swiglu_bwd(struct test *t, int i)
{
	ops(t, i)->swiglu_bwd(
		t->b->s[i], arr(t, 3, i), arr(t, 4, i), arr(t, 2, i), arr(t, 0, i), arr(t, 1, i), t->d[0] * t->d[1]);
}

static void test_rows(struct bench *b, int dtype)
{
	static const int64_t shapes[][2] = { { 1, 384 }, { 300, 384 }, { 5, 1 }, { 7, 37 }, { 2000, 64 }, { 3, 5000 } };
	int bf16 = dtype == WW_BF16;
	for (size_t k = 0; k < WW_ARRAY_LEN(shapes); k++) {
		char shape[64];
		int64_t r = shapes[k][0], h = shapes[k][1];
		snprintf(shape, sizeof(shape), "%ldx%ld", (long)r, (long)h);
		static const struct {
			const char *op;
			void (*run)(struct test *, int);
			int out, outs;
		} list[] = { { "rmsnorm", run_rmsnorm, 2, 2 }, { "rmsnorm_bwd", run_rmsnorm_bwd, 4, 2 },
			{ "bias", run_bias, 2, 1 }, { "bias_bwd", run_bias_bwd, 2, 1 }, { "add", run_add, 2, 1 },
			{ "cast", run_cast, 1, 1 }, { "swiglu", run_swiglu, 2, 1 }, { "swiglu_bwd", run_swiglu_bwd, 3, 2 } };
		for (size_t o = 0; o < WW_ARRAY_LEN(list); o++) {
			struct test t = begin(b, list[o].op, shape, list[o].run);
			if (!wanted(b, t.op, t.shape))
				continue;
			int wide = list[o].run == run_add || list[o].run == run_swiglu || list[o].run == run_swiglu_bwd;
			t.d[0] = r;
			t.d[1] = h;
			fill(&t, 0, dtype, r * h, 0, 2);
			if (list[o].run == run_cast)
				fill(&t, 1, bf16 ? WW_F32 : WW_BF16, r * h, 0, 1);
			else
				fill(&t, 1, dtype, wide ? r * h : h, 1, 0.3);
			fill(&t, 2, list[o].run == run_bias_bwd ? WW_F32 : dtype, list[o].run == run_bias_bwd ? h : r * h, 0, 1);
			fill(&t, 3, list[o].run == run_swiglu_bwd ? dtype : WW_F32, list[o].run == run_swiglu_bwd ? r * h : r, 0.5,
				0.1);
			fill(&t, 4, dtype, r * h, 0, 1);
			fill(&t, 5, WW_F32, h, 0, 1);
			finish(&t, list[o].out, list[o].outs, bf16 || list[o].run == run_cast);
		}
	}
}

static void put_ints(struct test *t, int k, int64_t n, int32_t (*at)(struct test *, int64_t))
{
	int32_t *v = malloc((size_t)(n + 1) * 4);
	for (int64_t i = 0; i < n; i++)
		v[i] = at(t, i);
	put(t, k, WW_F32, n, v);
	free(v);
}

static int32_t random_id(struct test *t, int64_t i)
{
	(void)i;
	return (int32_t)ww_rng_below(&t->b->rng, (uint64_t)t->d[2]);
}

static void run_embed(struct test *t, int i)
{
	ops(t, i)->embed(t->b->s[i], arr(t, 2, i), arr(t, 1, i), t->p[0].p[i], t->d[0], t->d[1]);
}
static void run_embed_bwd(struct test *t, int i)
{
	ops(t, i)->embed_bwd(t->b->s[i], t->p[1].p[i], arr(t, 2, i), t->p[0].p[i], t->d[0], t->d[1]);
}

static void test_embed(struct bench *b, int dtype)
{
	for (int backward = 0; backward < 2; backward++) {
		struct test t = begin(
			b, backward ? "embed_bwd" : "embed", "700 of 50 x 130", backward ? run_embed_bwd : run_embed);
		if (!wanted(b, t.op, t.shape))
			continue;
		memcpy(t.d, (int64_t[]){ 700, 130, 50 }, 3 * sizeof(int64_t));
		put_ints(&t, 0, 700, random_id);
		fill(&t, 1, backward ? WW_F32 : dtype, 50 * 130, 0, 1);
		fill(&t, 2, dtype, 700 * 130, 0, 1);
		finish(&t, backward ? 1 : 2, 1, dtype == WW_BF16);
	}
}

static int32_t shuffled(struct test *t, int64_t i)
{
	(void)t;
	return (int32_t)(i * 37 % 101);
}

static void run_scatter(struct test *t, int i)
{
	ops(t, i)->scatter(t->b->s[i], arr(t, 1, i), arr(t, 2, i), t->p[0].p[i], t->d[0], t->d[1]);
}

static void test_scatter(struct bench *b, int dtype)
{
	struct test t = begin(b, "scatter", "90 of 101 x 33", run_scatter);
	if (!wanted(b, t.op, t.shape))
		return;
	t.d[0] = 90;
	t.d[1] = 33;
	put_ints(&t, 0, 90, shuffled);
	fill(&t, 1, dtype, 101 * 33, 0, 1);
	fill(&t, 2, dtype, 90 * 33, 0, 1);
	finish(&t, 1, 1, dtype == WW_BF16);
}

static void run_rope(struct test *t, int i)
{
	ops(t, i)->rope_table(t->b->s[i], t->p[3].p[i], t->p[1].p[i], t->p[2].p[i], 1.2f, t->d[0], t->d[3]);
	ops(t, i)->rope(t->b->s[i], arr(t, 0, i), t->p[3].p[i], (int)t->d[4], t->d[0], t->d[1], t->d[3]);
}

static void test_rope(struct bench *b, int dtype)
{
	for (int backward = 0; backward < 2; backward++)
		for (int64_t d = 2; d <= 128; d = d == 2 ? 26 : d == 26 ? 64 : d * 2) {
			char shape[64];
			snprintf(shape, sizeof(shape), "70 x 3 x %ld%s", (long)d, backward ? " backward" : "");
			struct test t = begin(b, "rope", shape, run_rope);
			if (!wanted(b, t.op, t.shape))
				continue;
			memcpy(t.d, (int64_t[]){ 70, 3, 5000, d, backward }, 5 * sizeof(int64_t));
			fill(&t, 0, dtype, 70 * 3 * d, 0, 1);
			put_ints(&t, 1, 70, random_id);
			fill(&t, 2, WW_F32, d / 2, 0.5, 0.1);
			fill(&t, 3, WW_F32, 70 * d, 0, 0);
			finish(&t, 0, 1, dtype == WW_BF16);
		}
}

/* Sequences of the lengths in `lengths`, packed. */
static const int64_t lengths[] = { 1, 64, 65, 130, 5 };
static int64_t packed(void)
{
	int64_t n = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(lengths); i++)
		n += lengths[i];
	return n;
}
static int32_t seq_of(struct test *t, int64_t row)
{
	int64_t s = 0;
	(void)t;
	for (int64_t end = lengths[0]; row >= end; end += lengths[++s])
		;
	return (int32_t)s;
}
static int32_t start_of(struct test *t, int64_t seq)
{
	int64_t n = 0;
	(void)t;
	for (int64_t i = 0; i < seq; i++)
		n += lengths[i];
	return (int32_t)n;
}
static int32_t pos_of(struct test *t, int64_t row) { return (int32_t)row - start_of(t, seq_of(t, row)); }
/* Page i of sequence s is page (s * 9 + i * 2 + 1) of a cache with room. */
static int32_t page_of(struct test *t, int64_t i)
{
	(void)t;
	return (int32_t)(i / 9 * 9 + (i % 9 * 2 + 1) % 9);
}

static struct ww_attn attn(struct test *t, int i)
{
	struct ww_attn a = { .q = arr(t, 0, i),
		.k = arr(t, 1, i),
		.v = arr(t, 2, i),
		.out = arr(t, 3, i),
		.lse = t->p[4].p[i],
		.seq = t->p[5].p[i],
		.pos = t->p[6].p[i],
		.start = t->p[7].p[i],
		.t = t->d[0],
		.sequences = WW_ARRAY_LEN(lengths),
		.rows_max = 130,
		.keys_max = 130,
		.heads = t->d[1],
		.kv_heads = t->d[2],
		.head_dim = t->d[3],
		.scale = 0.3f };
	if (t->d[4]) {
		a.pages = t->p[8].p[i];
		a.pages_stride = 9;
		a.page_size = 16;
	}
	return a;
}
static void run_attention(struct test *t, int i)
{
	struct ww_attn a = attn(t, i);
	ops(t, i)->attention(t->b->s[i], &a);
}
static void run_attention_bwd(struct test *t, int i)
{
	struct ww_attn_bwd a = {
		.fwd = attn(t, i), .dout = arr(t, 8, i), .dq = arr(t, 9, i), .dk = arr(t, 10, i), .dv = arr(t, 11, i)
	};
	ops(t, i)->attention_bwd(t->b->s[i], &a);
}

static void test_attention(struct bench *b, int dtype)
{
	static const int64_t heads[][3] = { { 4, 2, 32 }, { 6, 6, 64 }, { 8, 1, 20 }, { 2, 1, 128 } };
	int64_t n = packed(), pairs = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(lengths); i++)
		pairs += lengths[i] * (lengths[i] + 1) / 2;
	for (size_t k = 0; k < WW_ARRAY_LEN(heads); k++)
		for (int mode = 0; mode < 3; mode++) { /* packed, paged, backward */
			char shape[64];
			int64_t a = heads[k][0], kv = heads[k][1], d = heads[k][2], rows = mode == 1 ? 45 * 16 : n;
			snprintf(shape, sizeof(shape), "%ldx%ld/%ldx%ld%s", (long)n, (long)a, (long)kv, (long)d,
				mode == 1 ? " paged" : "");
			struct test t = begin(
				b, mode == 2 ? "attention_bwd" : "attention", shape, mode == 2 ? run_attention_bwd : run_attention);
			if (!wanted(b, t.op, t.shape))
				continue;
			memcpy(t.d, (int64_t[]){ n, a, kv, d, mode == 1 }, 5 * sizeof(int64_t));
			fill(&t, 0, dtype, n * a * d, 0, 1);
			fill(&t, 1, dtype, rows * kv * d, 0, 1);
			fill(&t, 2, dtype, rows * kv * d, 0, 1);
			fill(&t, 3, dtype, n * a * d, 0, 1);
			fill(&t, 4, WW_F32, n * a, 0, 1);
			put_ints(&t, 5, n, seq_of);
			put_ints(&t, 6, n, pos_of);
			put_ints(&t, 7, WW_ARRAY_LEN(lengths) + 1, start_of);
			if (mode == 1)
				put_ints(&t, 8, 9 * WW_ARRAY_LEN(lengths), page_of);
			t.flops = 4.0 * (double)(pairs * a * d) * (mode == 2 ? 2.5 : 1);
			if (mode == 2) { /* both devices start from their own forward pass */
				fill(&t, 8, dtype, n * a * d, 0, 1);
				fill(&t, 9, dtype, n * a * d, 0, 1);
				fill(&t, 10, dtype, n * kv * d, 0, 1);
				fill(&t, 11, dtype, n * kv * d, 0, 1);
				run_attention(&t, 0);
				run_attention(&t, 1);
			}
			finish(&t, mode == 2 ? 9 : 3, mode == 2 ? 3 : 2, dtype == WW_BF16);
		}
}

static void run_softmax(struct test *t, int i)
{
	for (int c = 0; c < 2; c++)
		ops(t, i)->softmax_chunk(t->b->s[i], t->p[2].p[i], t->p[c].p[i], t->p[3].p[i], t->d[0], c * t->d[1], t->d[1]);
	ops(t, i)->softmax_finish(t->b->s[i], t->p[4].p[i], t->p[5].p[i], t->p[2].p[i], t->d[0]);
}
static void run_softmax_bwd(struct test *t, int i)
{
	ops(t, i)->softmax_bwd(
		t->b->s[i], arr(t, 6, i), t->p[1].p[i], t->p[3].p[i], t->p[5].p[i], t->p[7].p[i], t->d[0], t->d[1], t->d[1]);
}

static void run_entropy(struct test *t, int i)
{
	for (int c = 0; c < 2; c++)
		ops(t, i)->softmax_entropy(t->b->s[i], t->p[4].p[i], t->p[c].p[i], t->p[5].p[i], t->d[0], c * t->d[1], t->d[1]);
}

static void run_lse_rows(struct test *t, int i)
{
	ops(t, i)->lse_rows(t->b->s[i], t->p[3].p[i], t->p[1].p[i], t->p[2].p[i], t->p[0].p[i], t->d[0], t->d[1], t->d[2]);
}

static void test_lse_rows(struct bench *b)
{
	for (int64_t n = 7; n < 3000; n = n * 7 + 1) {
		char shape[64];
		snprintf(shape, sizeof(shape), "90 x %ld", (long)n);
		struct test t = begin(b, "lse_rows", shape, run_lse_rows);
		if (!wanted(b, t.op, t.shape))
			continue;
		memcpy(t.d, (int64_t[]){ 90, n, 300 }, 3 * sizeof(int64_t));
		fill(&t, 0, WW_F32, 90 * n, 0, 5);
		fill(&t, 1, WW_F32, 90 * 3, 0, 1);
		put_ints(&t, 2, 90, random_id);
		fill(&t, 3, WW_F32, 90, 0, 1);
		run_lse_rows(&t, 0);
		run_lse_rows(&t, 1);
		finish(&t, 3, 1, 0);
	}
}

static void test_softmax(struct bench *b, int dtype)
{
	for (int64_t n = 7; n < 3000; n = n * 7 + 1)
		for (int op = 0; op < 3; op++) {
			static void (*const runs[])(struct test *, int) = { run_softmax, run_softmax_bwd, run_entropy };
			static const char *const names[] = { "softmax", "softmax_bwd", "softmax_entropy" };
			char shape[64];
			snprintf(shape, sizeof(shape), "90 x 2*%ld", (long)n);
			struct test t = begin(b, names[op], shape, runs[op]);
			if (!wanted(b, t.op, t.shape))
				continue;
			memcpy(t.d, (int64_t[]){ 90, n, 2 * n }, 3 * sizeof(int64_t));
			fill(&t, 0, WW_F32, 90 * n, 0, 5);
			fill(&t, 1, WW_F32, 90 * n, 3, 5);
			fill(&t, 2, WW_F32, 90 * 3, 0, 1);
			put_ints(&t, 3, 90, random_id);
			fill(&t, 4, WW_F32, 90, 0, 1);
			fill(&t, 5, WW_F32, 90, 0, 1);
			fill(&t, 6, dtype, 90 * n, 0, 1);
			fill(&t, 7, WW_F32, 90, 0, 1);
			run_softmax(&t, 0);
			run_softmax(&t, 1);
			finish(&t, op == 1 ? 6 : 4, op ? 1 : 2, op == 1 && dtype == WW_BF16);
		}
}

static void run_adamw(struct test *t, int i)
{
	struct ww_adamw h = { 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, t->d[1] };
	ops(t, i)->zero(t->b->s[i], t->p[5].p[i], 4);
	ops(t, i)->sumsq(t->b->s[i], t->p[5].p[i], t->p[4].p[i], t->d[0]);
	ops(t, i)->clip_factor(t->b->s[i], t->p[6].p[i], t->p[5].p[i], 1.0f);
	ops(t, i)->adamw(
		t->b->s[i], t->p[0].p[i], arr(t, 3, i), t->p[1].p[i], t->p[2].p[i], t->p[4].p[i], t->p[6].p[i], &h, t->d[0]);
}

static void test_adamw(struct bench *b, int dtype)
{
	for (int64_t n = 1; n < 200000; n = n * 57 + 3) {
		char shape[64];
		snprintf(shape, sizeof(shape), "%ld", (long)n);
		struct test t = begin(b, "clip+adamw", shape, run_adamw);
		if (!wanted(b, t.op, t.shape))
			continue;
		t.d[0] = n;
		t.d[1] = 3;
		fill(&t, 0, WW_F32, n, 0, 1);
		fill(&t, 1, WW_F32, n, 0, 0.01);
		fill(&t, 2, WW_F32, n, 0.02, 0.001);
		fill(&t, 3, dtype, n, 0, 1);
		fill(&t, 4, WW_F32, n, 0, 1);
		fill(&t, 5, WW_F32, 1, 0, 0);
		fill(&t, 6, WW_F32, 1, 0, 0);
		finish(&t, 0, 4, dtype == WW_BF16);
	}
}

static int run_device(const char *name, int exact, char **only)
{
	struct ww_err err = WW_ERR_INIT;
	int once = *only && !strcmp(*only, "once");
	struct bench b = { .only = only + once, .once = once };
	check(ww_dev_open("ref", 1, &b.dev[0], &err), &err);
	check(ww_dev_open(name, exact, &b.dev[1], &err), &err);
	for (int i = 0; i < 2; i++)
		check(b.dev[i]->ops->stream_new(b.dev[i], &b.s[i], &err), &err);
	ww_rng_init(&b.rng, 20261121, 0);
	draw_normals(&b.rng);
	printf("# device %s, %s\n", name, exact ? "exact" : "fast");
	for (int k = 0; k < 2; k++) {
		int dtype = k ? WW_BF16 : WW_F32;
		test_gemm(&b, dtype);
		test_rows(&b, dtype);
		test_embed(&b, dtype);
		test_scatter(&b, dtype);
		test_rope(&b, dtype);
		test_attention(&b, dtype);
		test_softmax(&b, dtype);
		test_adamw(&b, dtype);
	}
	test_lse_rows(&b);
	b.failed += !b.lines; /* no operation has that name */
	printf("# %d lines, %d failed\n", b.lines, b.failed);
	for (int i = 0; i < 2; i++) {
		b.dev[i]->ops->stream_free(b.s[i]);
		ww_dev_close(b.dev[i]);
	}
	return b.failed;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "cpu";
	char **only = argv + (argc > 3 ? 3 : argc);
	int failed = 0;
	if (argc <= 2 || !strcmp(argv[2], "exact"))
		failed += run_device(name, 1, only);
	if (argc <= 2 || !strcmp(argv[2], "fast"))
		failed += run_device(name, 0, only);
	return failed ? 1 : 0;
}
