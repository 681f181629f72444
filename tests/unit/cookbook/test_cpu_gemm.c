/* test_cpu_gemm.c - matrix products, attention and convolutions at ragged sizes against scalar double references. */
#include "cpu_test.h"

struct out {
	float *y;
	long long stride, size, d;
};

WW_FN void gemm_epi(const void *ctx, long long z, long long row, long long col, ww_vf v, int n)
{
	const struct out *c = ctx;

	ww_vf_stream(c->y + z * c->size + row * c->stride + col, v + 1.0f, n);
}

WW_FN void conv_epi(const void *ctx, long long img, long long k, long long pixel, ww_vf v, int n)
{
	const struct out *c = ctx;

	ww_vf_stream(c->y + (img * c->stride + k) * c->size + pixel, v, n);
}

WW_FN void attn_store(const void *ctx, long long z, long long row, long long i, ww_vf v, int n)
{
	const struct out *c = ctx;

	ww_vf_store(c->y + (z * c->stride + row) * c->d + i, v, n);
}

WW_FN ww_vf attn_bias(
	const void *ctx, long long z, long long row, long long col, ww_vf s, int n) /* hides every 5th key */
{
	ww_vf v = s;

	(void)ctx;
	(void)z;
	for (int i = 0; i < n; i++)
		v[i] = (row + col + i) % 5 == 0 && col + i != row ? -INFINITY : s[i];
	return v;
}

#define GEMM(name, suffix) \
	WW_KERNEL(name) \
	{ \
		const struct out c = { WW_ARG(float *, WW_GEMM_ARGS), WW_ARG(long long, 1), \
			WW_ARG(long long, 0) * WW_ARG(long long, 1), 0 }; \
\
		ww_cpu_gemm##suffix(b, arg, gemm_epi, &c); \
	}
GEMM(gemm, )
GEMM(gemm_f16, _f16)
GEMM(gemm_bf16, _bf16)
#define THIN(name, suffix) \
	WW_KERNEL(name) \
	{ \
		const struct out c = { WW_ARG(float *, WW_THIN_ARGS), WW_ARG(long long, 1), \
			WW_ARG(long long, 0) * WW_ARG(long long, 1), 0 }; \
\
		ww_cpu_gemm_thin##suffix(b, arg, gemm_epi, &c); \
	}
THIN(thin, )
THIN(thin_f16, _f16)
THIN(thin_bf16, _bf16)
WW_KERNEL(attn)
{
	const struct out c = { WW_ARG(float *, WW_ATTN_ARGS), WW_ARG(long long, 2), 0, WW_ARG(long long, 4) };

	ww_cpu_attention(b, arg, ww_attn_plain, attn_store, &c);
}
WW_KERNEL(attn_masked)
{
	const struct out c = { WW_ARG(float *, WW_ATTN_ARGS), WW_ARG(long long, 2), 0, WW_ARG(long long, 4) };

	ww_cpu_attention(b, arg, attn_bias, attn_store, &c);
}
#define CONV(name, suffix) \
	WW_KERNEL(name##_pack) { ww_cpu_conv_pack##suffix(b, arg); } \
	WW_KERNEL(name) \
	{ \
		const struct out c = { WW_ARG(float *, WW_CONV_ARGS), WW_ARG(long long, WW_CONV_ARGS + 1), \
			WW_ARG(long long, WW_CONV_ARGS + 2), 0 }; \
\
		ww_cpu_conv##suffix(b, arg, conv_epi, &c); \
	}
CONV(conv, )
CONV(conv_f16, _f16)
CONV(conv_bf16, _bf16)

const struct kernel_entry kernel_table[] = { { "gemm", gemm }, { "gemm_f16", gemm_f16 }, { "gemm_bf16", gemm_bf16 },
	{ "thin", thin }, { "thin_f16", thin_f16 }, { "thin_bf16", thin_bf16 }, { "attn", attn },
	{ "attn_masked", attn_masked }, { "conv", conv }, { "conv_pack", conv_pack }, { "conv_f16", conv_f16 },
	{ "conv_f16_pack", conv_f16_pack }, { "conv_bf16", conv_bf16 }, { "conv_bf16_pack", conv_bf16_pack },
	{ NULL, NULL } };

static int buffer(struct ww_plan *p, void *data)
{
	p->buf[p->bufs] = data;
	return p->bufs++;
}

enum type { F32, F16, BF16 };

/* x rounded to 16 bits, of which it becomes the values too. */
static void *rounded(enum type type, float *x, long long n)
{
	uint16_t *h = malloc((size_t)n * sizeof(*h));

	assert_non_null(h);
	for (long long i = 0; i < n; i++) {
		h[i] = type == F16 ? ww_f16_of_f32(x[i]) : ww_bf16_of_f32(x[i]);
		x[i] = type == F16 ? ww_f32_of_f16(h[i]) : ww_f32_of_bf16(h[i]);
	}
	return h;
}

/* gap: between rows of A. */
static void check_gemm_of(enum type type, long long gap, long long m, long long n, long long k, long long batch,
	int b_nk, long long kc, long long nb, long long mt, int is_thin)
{
	static const char *const kernel[] = { "gemm", "gemm_f16", "gemm_bf16" },
							 *const thin[] = { "thin", "thin_f16", "thin_bf16" };
	struct ww_plan *p = host_new(2);
	const long long lda = k + gap, ldb = (b_nk ? k : n) + 5;
	const long long sa = m * lda, sb = (b_nk ? n : k) * ldb;
	float *a = test_floats(batch * sa, 1), *w = test_floats(batch * sb, 1), *y = test_floats(batch * m * n, 0);
	void *ha = type == F32 ? NULL : rounded(type, a, batch * sa),
		 *hw = type == F32 ? NULL : rounded(type, w, batch * sb);
	double *r = malloc((size_t)(batch * m * n) * sizeof(*r));
	struct ww_cpu_gemm g = { .m = m,
		.n = n,
		.k = k,
		.batch = batch,
		.a_buf = buffer(p, ha ? ha : a),
		.b_buf = buffer(p, hw ? hw : w),
		.half = type != F32,
		.lda = lda,
		.ldb = ldb,
		.a_batch_stride = sa,
		.b_batch_stride = sb,
		.b_nk = b_nk,
		.nb = nb,
		.mt = mt,
		.kc = kc };

	if (is_thin)
		ww_recipe_cpu_gemm_thin(p, thin[type], &g);
	else
		ww_recipe_cpu_gemm(p, kernel[type], &g);
	ww_arg_buf(p, buffer(p, y), 0);
	test_run(p);
	for (long long z = 0; z < batch; z++)
		for (long long i = 0; i < m; i++)
			for (long long j = 0; j < n; j++) {
				double s = 1;

				for (long long t = 0; t < k; t++)
					s += (double)a[z * sa + i * lda + t] * (double)w[z * sb + (b_nk ? j * ldb + t : t * ldb + j)];
				r[(z * m + i) * n + j] = s;
			}
	test_close(y, r, batch * m * n, 1e-5, is_thin ? thin[type] : kernel[type]);
	host_free(p);
	free(ha);
	free(hw);
	free(a);
	free(w);
	free(y);
	free(r);
}

static void check_gemm(long long m, long long n, long long k, long long batch, int b_nk, long long kc, long long nb,
	long long mt, int is_thin)
{
	for (enum type type = F32; type <= BF16; type++)
		for (long long gap = type == F32 ? 3 : 2; gap <= 3; gap++)
			check_gemm_of(type, gap, m, n, k, batch, b_nk, kc, nb, mt, is_thin);
}

static void test_gemm(void **state)
{
	(void)state;
	for (int nk = 0; nk < 2; nk++) {
		check_gemm(1, 1, 1, 1, nk, 0, 0, 0, 0);
		check_gemm(7, 47, 33, 3, nk, 0, 0, 0, 0);
		check_gemm(65, 97, 125, 1, nk, 0, 48, 16, 0);   /* lda 128: rows are copied */
		check_gemm(65, 97, 253, 2, nk, 100, 96, 32, 0); /* K in pieces */
		check_gemm(100, 200, 130, 1, nk, 64, 144, 104, 0);
	}
	check_gemm(1, 100, 1000, 1, 1, 0, 0, 0, 1);
	check_gemm(6, 37, 77, 3, 1, 0, 16, 0, 1);
	check_gemm(17, 50, 253, 1, 1, 0, 0, 0, 1); /* groups of 4 and 3 rows */
	check_gemm(70, 19, 125, 2, 1, 0, 0, 0, 1); /* two blocks of rows, copied */
	check_gemm(2, 1, 1, 1, 1, 0, 0, 0, 1);
}

static void check_attention(const char *name, long long heads, long long group, long long lq, long long lk, long long d,
	int causal, long long bq, long long bk)
{
	const long long batch = 2, kv = heads / group;
	const int masked = !strcmp(name, "attn_masked");
	struct ww_plan *p = host_new(2);
	float *q = test_floats(batch * heads * lq * d, 1), *k = test_floats(batch * kv * lk * d, 1),
		  *v = test_floats(batch * kv * lk * d, 1);
	float *y = test_floats(batch * heads * lq * d, 0);
	double *r = malloc((size_t)(batch * heads * lq * d) * sizeof(*r)), *s = malloc((size_t)lk * sizeof(*s));

	ww_recipe_cpu_attention(p, name,
		&(struct ww_cpu_attention){ .batch = batch,
			.heads = heads,
			.group = group,
			.lq = lq,
			.lk = lk,
			.d = d,
			.q_buf = buffer(p, q),
			.k_buf = buffer(p, k),
			.v_buf = buffer(p, v),
			.q_stride = { heads * lq * d, lq * d, d },
			.k_stride = { kv * lk * d, lk * d, d },
			.v_stride = { kv * lk * d, lk * d, d },
			.causal = causal,
			.scale = 0.5f,
			.bq = bq,
			.bk = bk });
	ww_arg_buf(p, buffer(p, y), 0);
	test_run(p);
	for (long long z = 0; z < batch * heads; z++)
		for (long long i = 0; i < lq; i++) {
			const long long kz = z / heads * kv + z % heads / group;
			double max = -INFINITY, sum = 0;

			for (long long j = 0; j < lk; j++) {
				double t = 0;

				for (long long e = 0; e < d; e++)
					t += (double)q[(z * lq + i) * d + e] * (double)k[(kz * lk + j) * d + e];
				s[j] = (causal && j > i) || (masked && (i + j) % 5 == 0 && i != j) ? -INFINITY : t * 0.5;
				max = fmax(max, s[j]);
			}
			for (long long j = 0; j < lk; j++)
				sum += s[j] = exp(s[j] - max);
			for (long long e = 0; e < d; e++) {
				double t = 0;

				for (long long j = 0; j < lk; j++)
					t += s[j] / sum * (double)v[(kz * lk + j) * d + e];
				r[(z * lq + i) * d + e] = t;
			}
		}
	test_close(y, r, batch * heads * lq * d, 1e-5, name);
	host_free(p);
	free(q);
	free(k);
	free(v);
	free(y);
	free(r);
	free(s);
}

static void test_attention(void **state)
{
	(void)state;
	for (int causal = 0; causal < 2; causal++) {
		check_attention("attn", 2, 1, 100, 100, 64, causal, 32, 48);
		check_attention("attn", 2, 2, 77, 130, 20, causal, 40, 96);
		check_attention("attn", 1, 1, 130, 50, 33, causal, 0, 0);
		check_attention("attn_masked", 2, 1, 60, 200, 128, causal, 64, 48);
	}
	check_attention("attn", 1, 1, 1, 1, 1, 1, 0, 0);
}

struct shape {
	int nd, transposed, groups;
	long long n, c, k, in[3], kernel[3];
	int stride[3], pad[3], dil[3], extra;
	long long tr, tc;
};

/* Element (img, channel, i) of in[] or out[], in three dimensions. */
static void check_conv(const struct shape *s, enum type type)
{
	static const char *const kernel[] = { "conv", "conv_f16", "conv_bf16" };
	long long in[3], ke[3], out[3], os = 1, is = 1, ks = 1;
	int st[3], pa[3], di[3];
	const int skip = 3 - s->nd;
	struct ww_plan *p = host_new(2);
	struct ww_cpu_conv g = { .nd = s->nd,
		.transposed = s->transposed,
		.groups = s->groups,
		.half = type != F32,
		.n = s->n,
		.c = s->c,
		.k = s->k,
		.tile_rows = s->tr,
		.tile_cols = s->tc };
	const long long cg = s->c / s->groups, kg = s->k / s->groups;

	for (int i = 0; i < 3; i++) {
		in[i] = i < skip ? 1 : s->in[i - skip];
		ke[i] = i < skip ? 1 : s->kernel[i - skip];
		st[i] = i < skip ? 1 : s->stride[i - skip];
		pa[i] = i < skip ? 0 : s->pad[i - skip];
		di[i] = i < skip ? 1 : s->dil[i - skip];
		out[i] = s->transposed ? (in[i] - 1) * st[i] - 2 * pa[i] + di[i] * (ke[i] - 1) + (i < skip ? 0 : s->extra) + 1
							   : (in[i] + 2 * pa[i] - di[i] * (ke[i] - 1) - 1) / st[i] + 1;
		is *= in[i];
		os *= out[i];
		ks *= ke[i];
		if (i >= skip) {
			g.in[i - skip] = in[i];
			g.out[i - skip] = out[i];
			g.kernel[i - skip] = ke[i];
			g.stride[i - skip] = st[i];
			g.pad[i - skip] = pa[i];
			g.dilation[i - skip] = di[i];
		}
	}
	float *x = test_floats(s->n * s->c * is, 1), *w = test_floats(s->c * kg * ks, 1),
		  *y = test_floats(s->n * s->k * os, 0);
	double *r = calloc((size_t)(s->n * s->k * os), sizeof(*r));

	void *hx = type == F32 ? NULL : rounded(type, x, s->n * s->c * is),
		 *hw = type == F32 ? NULL : rounded(type, w, s->c * kg * ks);

	g.x_buf = buffer(p, hx ? hx : x);
	g.w_buf = buffer(p, hw ? hw : w);
	ww_recipe_cpu_conv(p, kernel[type], &g);
	ww_arg_buf(p, buffer(p, y), 0);
	ww_arg_i64(p, s->k);
	ww_arg_i64(p, os);
	test_run(p);
	for (long long n = 0; n < s->n; n++)
		for (long long k = 0; k < s->k; k++)
			for (long long c = k / kg * cg; c < (k / kg + 1) * cg; c++)
				for (long long t = 0; t < ks; t++)
					for (long long o = 0; o < (s->transposed ? is : os); o++) {
						/* o walks the side whose coordinate is multiplied by the stride */
						const long long *side = s->transposed ? in : out, *other = s->transposed ? out : in;
						const long long a[3] = { o / (side[1] * side[2]), o / side[2] % side[1], o % side[2] };
						const long long f[3] = { t / (ke[1] * ke[2]), t / ke[2] % ke[1], t % ke[2] };
						long long b[3], at;
						int inside = 1;

						for (int i = 0; i < 3; i++) {
							b[i] = a[i] * st[i] + f[i] * di[i] - pa[i];
							inside &= b[i] >= 0 && b[i] < other[i];
						}
						if (!inside)
							continue;
						at = (b[0] * other[1] + b[1]) * other[2] + b[2];
						if (s->transposed)
							r[(n * s->k + k) * os + at] += (double)x[(n * s->c + c) * is + o] *
								(double)w[(c * kg + k % kg) * ks + t];
						else
							r[(n * s->k + k) * os + o] += (double)x[(n * s->c + c) * is + at] *
								(double)w[(k * cg + c % cg) * ks + t];
					}
	test_close(y, r, s->n * s->k * os, 1e-5, s->transposed ? "conv_transpose" : "conv");
	host_free(p);
	free(hx);
	free(hw);
	free(x);
	free(w);
	free(y);
	free(r);
}

static void test_conv(void **state)
{
	static const struct shape shapes[] = {
		{ 2, 0, 1, 2, 5, 11, { 9, 13 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 0, 0, 0 },
		{ 2, 0, 1, 1, 3, 8, { 20, 37 }, { 5, 3 }, { 2, 2 }, { 2, 0 }, { 1, 2 }, 0, 4, 16 },
		{ 2, 0, 2, 2, 4, 6, { 17, 70 }, { 3, 4 }, { 3, 2 }, { 0, 3 }, { 2, 1 }, 0, 0, 0 },
		{ 2, 0, 6, 2, 6, 6, { 12, 40 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 0, 5, 0 }, /* depthwise */
		{ 2, 0, 1, 1, 9, 17, { 6, 6 }, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 0, 0, 0 },
		{ 2, 0, 1, 1, 2, 4, { 7, 9 }, { 1, 1 }, { 2, 3 }, { 0, 0 }, { 1, 1 }, 0, 0, 0 },
		{ 2, 0, 1, 2, 3, 9, { 14, 14 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 0, 0, 0 }, /* rows of a vector */
		{ 2, 0, 1, 1, 3, 8, { 28, 28 }, { 5, 3 }, { 2, 2 }, { 2, 1 }, { 1, 1 }, 0, 0, 0 }, /* picked from two */
		{ 2, 0, 1, 1, 2, 4, { 9, 34 }, { 2, 4 }, { 1, 3 }, { 0, 3 }, { 1, 1 }, 0, 0, 0 },  /* from three */
		{ 2, 0, 1, 1, 2, 4, { 20, 40 }, { 3, 11 }, { 2, 9 }, { 1, 6 }, { 1, 1 }, 0, 0, 0 },
		{ 2, 0, 1, 1, 2, 4, { 3, 2 }, { 2, 2 }, { 1, 1 }, { 4, 5 }, { 1, 1 }, 0, 0, 0 },   /* more zeros than input */
		{ 2, 0, 1, 1, 5, 9, { 9, 9 }, { 5, 5 }, { 1, 1 }, { 2, 2 }, { 1, 1 }, 0, 0, 0 },   /* runs of 25 */
		{ 2, 0, 1, 2, 16, 19, { 7, 7 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 0, 0, 0 }, /* four vectors at once */
		{ 2, 0, 1, 1, 3, 9, { 11, 7 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 0, 3, 0 },  /* tiles of short rows */
		{ 2, 0, 1, 1, 2, 8, { 5, 46 }, { 1, 3 }, { 1, 1 }, { 0, 1 }, { 1, 1 }, 0, 0, 0 },  /* rows of three vectors */
		{ 1, 0, 1, 1, 38, 12, { 20 }, { 11 }, { 1 }, { 0 }, { 1 }, 0, 0, 0 },              /* of 11 */
		{ 1, 0, 2, 1, 14, 6, { 20 }, { 1 }, { 1 }, { 0 }, { 1 }, 0, 0, 0 },                /* of 1, an odd number */
		{ 1, 0, 1, 2, 3, 5, { 300 }, { 7 }, { 2 }, { 3 }, { 1 }, 0, 0, 64 },
		{ 3, 0, 1, 1, 2, 4, { 5, 6, 19 }, { 3, 2, 3 }, { 2, 1, 1 }, { 1, 0, 1 }, { 1, 2, 1 }, 0, 0, 0 },
		{ 2, 1, 1, 2, 5, 9, { 7, 11 }, { 4, 4 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 0, 0, 0 },
		{ 2, 1, 1, 1, 4, 8, { 9, 21 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1, 3, 8 },
		{ 2, 1, 2, 1, 4, 6, { 8, 9 }, { 3, 5 }, { 1, 3 }, { 0, 2 }, { 2, 1 }, 0, 2, 4 },
		{ 2, 1, 1, 1, 2, 4, { 5, 6 }, { 2, 2 }, { 3, 3 }, { 0, 0 }, { 1, 1 }, 0, 0, 0 }, /* phases without taps */
		{ 1, 1, 1, 1, 3, 4, { 50 }, { 5 }, { 2 }, { 2 }, { 1 }, 1, 0, 0 },
		{ 3, 1, 1, 1, 2, 4, { 3, 4, 9 }, { 3, 3, 2 }, { 2, 2, 1 }, { 1, 0, 0 }, { 1, 1, 1 }, 0, 0, 0 }
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (enum type type = F32; type <= BF16; type++)
			check_conv(&shapes[i], type);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_gemm), cmocka_unit_test(test_attention),
		cmocka_unit_test(test_conv) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
