/* kernels_impl.h - the inner loops, written once in GCC's vectors; W lanes, their numbers LANES and NAME come from the
 * file that includes this.
 *
 * The order of every sum is written out (lanes, then a tree over the lanes), so that it does not depend on what a
 * compiler may reassociate; multiply-adds contract the same way everywhere because all of them are vector expressions
 * of one form. Tails are loaded into zeroed vectors and take the same path as whole ones.
 *
 * gemm_nt works on dot products along k, which lie in memory as they are read: no packing, so that one row (decode) is
 * as well served as a thousand, and each element's sum is the same in any tile.  gemm_nn keeps a tile of c in registers
 * and walks down k with a packed strip of b.
 */
#include "dev/cpu/kernels.h"

#include <math.h>
#include <string.h>

typedef float vf __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint16_t vh __attribute__((vector_size(2 * W), aligned(2), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE vf ld(const float *p) { return *(const vf *)p; }
INLINE void st(float *p, vf v) { *(vf *)p = v; }
INLINE vf set1(float x) { return (vf){ 0 } + x; }

INLINE vf ldn(const float *p, int64_t n)
{
	vf v = { 0 };
	if (n >= W)
		return ld(p);
	for (int64_t i = 0; i < n; i++)
		v[i] = p[i];
	return v;
}

INLINE void stn(float *p, vf v, int64_t n)
{
	if (n >= W)
		st(p, v);
	else
		memcpy(p, &v, (size_t)n * 4);
}

INLINE vf pick(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
INLINE vf vmax(vf a, vf b) { return pick(a > b, a, b); }

INLINE float hsum(vf v)
{
#ifdef __clang__ /* has no such builtin; it is used for fuzzing only, and sees the pattern itself */
	for (int s = W / 2; s; s /= 2) {
		vf w = v;
		for (int i = 0; i < W; i++)
			w[i] = v[i ^ s];
		v = v + w;
	}
#else
	const vi lanes = LANES;
	for (int s = W / 2; s; s /= 2)
		v = v + __builtin_shuffle(v, lanes ^ s);
#endif
	return v[0];
}

INLINE float hmax(vf v)
{
	float m = v[0];
	for (int i = 1; i < W; i++)
		m = v[i] > m ? v[i] : m;
	return m;
}

/* exp(x) = 2^n exp(r), |r| <= ln 2 / 2; about one unit in the last place; 0 below -87.3, inf above 88.7. */
INLINE vf vexp(vf x)
{
	const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
	vi small = x < -87.3f, big = x > 88.7f;
	vf y = pick(small, set1(-87.3f), pick(big, set1(88.0f), x));
	vf n = (y * 1.44269504f + magic) - magic;
	vf r = y - n * 0.693145752f;
	r = r - n * 1.42860677e-6f;
	vf p = r * 1.98756915e-4f + 1.39819995e-3f;
	p = p * r + 8.33345191e-3f;
	p = p * r + 4.16657959e-2f;
	p = p * r + 1.66666655e-1f;
	p = p * r + 5.00000012e-1f;
	p = p * (r * r) + r + 1.0f;
	vi e = (__builtin_convertvector(n, vi) + 127) << 23;
	return pick(small, set1(0), pick(big, set1(INFINITY), p * (vf)e));
}

static void from_bf16(float *dst, const uint16_t *src, int64_t n)
{
	int64_t i = 0;
	for (; i + W <= n; i += W)
		*(vi *)(dst + i) = __builtin_convertvector(*(const vh *)(src + i), vi) << 16;
	for (; i < n; i++)
		dst[i] = ww_bf16_to(src[i]);
}

static void to_bf16(uint16_t *dst, const float *src, int64_t n)
{
	int64_t i = 0;
	for (; i + W <= n; i += W) {
		vf x = ld(src + i);
		vi u = (vi)x, nan = (vi)(x != x);
		vi r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
		r = (nan & ((u >> 16) | 0x40)) | (~nan & r);
		*(vh *)(dst + i) = __builtin_convertvector(r, vh);
	}
	for (; i < n; i++)
		dst[i] = ww_bf16_from(src[i]);
}

/* ---- matrix products */

enum { NT_M = W == 16 ? 4 : 3, NT_N = 4, NN_M = 6, NN_V = 2, NN_K = 256 };

/* mr x nr dot products; both are constants where this is inlined. */
INLINE void nt_tile(const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int mr, int nr,
	int64_t k, int accumulate)
{
	vf acc[NT_M][NT_N];
	for (int i = 0; i < mr; i++)
		for (int j = 0; j < nr; j++)
			acc[i][j] = set1(0);
	int64_t l = 0;
	for (; l + W <= k; l += W)
		for (int i = 0; i < mr; i++)
			for (int j = 0; j < nr; j++)
				acc[i][j] = ld(a + i * lda + l) * ld(b + j * ldb + l) + acc[i][j];
	if (l < k)
		for (int i = 0; i < mr; i++)
			for (int j = 0; j < nr; j++)
				acc[i][j] = ldn(a + i * lda + l, k - l) * ldn(b + j * ldb + l, k - l) + acc[i][j];
	for (int i = 0; i < mr; i++)
		for (int j = 0; j < nr; j++) {
			float s = hsum(acc[i][j]);
			c[i * ldc + j] = accumulate ? c[i * ldc + j] + s : s;
		}
}

static void gemm_nt(const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int64_t m,
	int64_t n, int64_t k, int accumulate)
{
	for (int64_t i = 0; i < m;) {
		int whole = m - i >= NT_M;
		int64_t j = 0;
		for (; j + NT_N <= n; j += NT_N) {
			if (whole)
				nt_tile(a + i * lda, lda, b + j * ldb, ldb, c + i * ldc + j, ldc, NT_M, NT_N, k, accumulate);
			else
				nt_tile(a + i * lda, lda, b + j * ldb, ldb, c + i * ldc + j, ldc, 1, NT_N, k, accumulate);
		}
		for (; j < n; j++)
			for (int r = 0; r < (whole ? NT_M : 1); r++)
				nt_tile(a + (i + r) * lda, lda, b + j * ldb, ldb, c + (i + r) * ldc + j, ldc, 1, 1, k, accumulate);
		i += whole ? NT_M : 1;
	}
}

INLINE void nn_tile(const float *a, int64_t ai, int64_t al, const float *b, float *c, int64_t ldc, int mr, int64_t n,
	int64_t k, int accumulate)
{
	vf acc[NN_M][NN_V];
	for (int i = 0; i < mr; i++)
		for (int j = 0; j < NN_V; j++)
			acc[i][j] = accumulate && n > j * W ? ldn(c + i * ldc + j * W, n - j * W) : set1(0);
	for (int64_t l = 0; l < k; l++)
		for (int i = 0; i < mr; i++)
			for (int j = 0; j < NN_V; j++)
				acc[i][j] = set1(a[i * ai + l * al]) * ld(b + (l * NN_V + j) * W) + acc[i][j];
	for (int i = 0; i < mr; i++)
		for (int j = 0; j < NN_V; j++)
			if (n > j * W)
				stn(c + i * ldc + j * W, acc[i][j], n - j * W);
}

static void gemm_nn(const float *a, int64_t ai, int64_t al, const float *b, int64_t ldb, float *c, int64_t ldc,
	int64_t m, int64_t n, int64_t k, int accumulate)
{
	_Alignas(64) float strip[NN_K * NN_V * W];
	for (int64_t l0 = 0; l0 < k; l0 += NN_K) {
		int64_t kc = k - l0 < NN_K ? k - l0 : NN_K;
		for (int64_t j = 0; j < n; j += NN_V * W) {
			int64_t nc = n - j < NN_V * W ? n - j : NN_V * W;
			for (int64_t l = 0; l < kc; l++)
				for (int v = 0; v < NN_V; v++)
					st(strip + (l * NN_V + v) * W,
						nc > v * W ? ldn(b + (l0 + l) * ldb + j + v * W, nc - v * W) : set1(0));
			const float *at = a + l0 * al;
			int64_t i = 0;
			for (; i + NN_M <= m; i += NN_M)
				nn_tile(at + i * ai, ai, al, strip, c + i * ldc + j, ldc, NN_M, nc, kc, accumulate || l0);
			for (; i < m; i++)
				nn_tile(at + i * ai, ai, al, strip, c + i * ldc + j, ldc, 1, nc, kc, accumulate || l0);
		}
	}
}

/* ---- rows */

static float dot(const float *a, const float *b, int64_t n)
{
	vf s = set1(0);
	int64_t i = 0;
	for (; i + W <= n; i += W)
		s = ld(a + i) * ld(b + i) + s;
	if (i < n)
		s = ldn(a + i, n - i) * ldn(b + i, n - i) + s;
	return hsum(s);
}

static float rms_row(float *y, const float *x, const float *w, int64_t n, float eps)
{
	float r = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
	for (int64_t i = 0; i < n; i += W)
		stn(y + i, ldn(x + i, n - i) * r * ldn(w + i, n - i), n - i);
	return r;
}

static void rms_bwd_row(float *dx, const float *dy, const float *x, const float *w, float r, int64_t n)
{
	vf s = set1(0);
	for (int64_t i = 0; i < n; i += W)
		s = ldn(dy + i, n - i) * ldn(w + i, n - i) * ldn(x + i, n - i) + s;
	float mean = hsum(s) * r / (float)n;
	for (int64_t i = 0; i < n; i += W)
		stn(dx + i, (ldn(dy + i, n - i) * ldn(w + i, n - i) - ldn(x + i, n - i) * (r * mean)) * r, n - i);
}

static void add(float *y, const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i += W)
		stn(y + i, ldn(a + i, n - i) + ldn(b + i, n - i), n - i);
}

static void mul_add(float *y, const float *a, const float *b, float s, int64_t n)
{
	for (int64_t i = 0; i < n; i += W) {
		vf x = ldn(a + i, n - i) * s;
		vf f = b ? ldn(b + i, n - i) : set1(1);
		stn(y + i, x * f + ldn(y + i, n - i), n - i);
	}
}

static void rope_row(float *x, const float *cs, int backward, int64_t d)
{
	int64_t half = d / 2;
	float sign = backward ? -1.0f : 1.0f;
	for (int64_t i = 0; i < half; i += W) {
		int64_t n = half - i;
		vf u = ldn(x + i, n), v = ldn(x + half + i, n), c = ldn(cs + i, n), s = ldn(cs + half + i, n) * sign;
		stn(x + i, u * c - v * s, n);
		stn(x + half + i, v * c + u * s, n);
	}
}

static void swiglu(float *y, const float *gate, const float *up, int64_t n)
{
	for (int64_t i = 0; i < n; i += W) {
		vf g = ldn(gate + i, n - i);
		stn(y + i, g / (vexp(-g) + 1.0f) * ldn(up + i, n - i), n - i);
	}
}

static void swiglu_bwd(float *dgate, float *dup, const float *dy, const float *gate, const float *up, int64_t n)
{
	for (int64_t i = 0; i < n; i += W) {
		vf g = ldn(gate + i, n - i), u = ldn(up + i, n - i), d = ldn(dy + i, n - i);
		vf s = set1(1) / (vexp(-g) + 1.0f);
		stn(dup + i, d * g * s, n - i);
		stn(dgate + i, d * u * s * (g * (set1(1) - s) + 1.0f), n - i);
	}
}

static float row_max(const float *x, int64_t n)
{
	vf m = set1(-INFINITY);
	int64_t i = 0;
	for (; i + W <= n; i += W)
		m = vmax(ld(x + i), m);
	float r = hmax(m);
	for (; i < n; i++)
		r = x[i] > r ? x[i] : r;
	return r;
}

static float sum_exp(const float *x, float shift, int64_t n)
{
	vf s = set1(0);
	int64_t i = 0;
	for (; i + W <= n; i += W)
		s = vexp(ld(x + i) - shift) + s;
	if (i < n) {
		vf tail = set1(-INFINITY);
		memcpy(&tail, x + i, (size_t)(n - i) * 4);
		s = vexp(tail - shift) + s;
	}
	return hsum(s);
}

static float sum_entropy(const float *x, float shift, int64_t n)
{
	vf s = set1(0);
	for (int64_t i = 0; i < n; i += W) {
		vf d = set1(-INFINITY);
		memcpy(&d, x + i, (size_t)(n - i < W ? n - i : W) * 4);
		d = d - shift;
		s = vexp(d) * pick(d < -87.3f, set1(0), -d) + s; /* never 0 times infinity */
	}
	return hsum(s);
}

static void exp_scale(float *y, const float *x, float shift, float s, int64_t n)
{
	for (int64_t i = 0; i < n; i += W)
		stn(y + i, vexp(ldn(x + i, n - i) - shift) * s, n - i);
}

static double sumsq(const float *x, int64_t n)
{
	double s = 0;
	for (int64_t i = 0; i < n; i += 4096)
		s += (double)dot(x + i, x + i, n - i < 4096 ? n - i : 4096);
	return s;
}

/* ---- attention */

static void attn_block(
	const struct ww_attn_row *a, float *state, const float *const *k, const float *const *v, int64_t n)
{
	int64_t d = a->head_dim;
	for (int64_t h = 0; h < a->group; h++) {
		float s[WW_ATTN_BLOCK], *acc = a->acc + h * d;
		const float *q = a->q + h * d;
		for (int64_t j = 0; j < n; j++)
			s[j] = dot(q, k[j], d) * a->scale;
		for (int64_t j = n; j < WW_ATTN_BLOCK; j++)
			s[j] = -INFINITY;
		float max = row_max(s, WW_ATTN_BLOCK), old = state[2 * h];
		max = max > old ? max : old;
		float keep = expf(old - max);
		exp_scale(s, s, max, 1.0f, WW_ATTN_BLOCK);
		vf sum = set1(0);
		for (int64_t j = 0; j < WW_ATTN_BLOCK; j += W)
			sum = sum + ld(s + j);
		state[2 * h] = max;
		state[2 * h + 1] = state[2 * h + 1] * keep + hsum(sum);
		for (int64_t i = 0; i < d; i += W) {
			vf o = ldn(acc + i, d - i) * keep;
			if (i + W <= d)
				for (int64_t j = 0; j < n; j++)
					o = ld(v[j] + i) * s[j] + o;
			else
				for (int64_t j = 0; j < n; j++)
					o = ldn(v[j] + i, d - i) * s[j] + o;
			stn(acc + i, o, d - i);
		}
	}
}

static void attn_bwd_block(const float *q, const float *dout, float *dq, const float *k, const float *v, float *dk,
	float *dv, int64_t n, int64_t d, float scale, float lse, float delta)
{
	float p[WW_ATTN_BLOCK] = { 0 }, ds[WW_ATTN_BLOCK] = { 0 };
	for (int64_t j = 0; j < n; j++) {
		p[j] = dot(q, k + j * d, d) * scale;
		ds[j] = dot(dout, v + j * d, d) - delta;
	}
	exp_scale(p, p, lse, 1.0f, n);
	for (int64_t j = 0; j < n; j++)
		ds[j] *= p[j] * scale;
	for (int64_t i = 0; i < d; i += W) {
		int64_t left = d - i;
		vf x = ldn(q + i, left), g = ldn(dout + i, left), acc = ldn(dq + i, left);
		for (int64_t j = 0; j < n; j++) {
			acc = ldn(k + j * d + i, left) * ds[j] + acc;
			stn(dk + j * d + i, x * ds[j] + ldn(dk + j * d + i, left), left);
			stn(dv + j * d + i, g * p[j] + ldn(dv + j * d + i, left), left);
		}
		stn(dq + i, acc, left);
	}
}

/* ---- optimizer */

INLINE vf vsqrt(vf x)
{
	vf r;
	for (int i = 0; i < W; i++)
		r[i] = sqrtf(x[i]);
	return r;
}

static void adamw(
	float *p, float *m, float *v, const float *g, float scale, const struct ww_adamw *h, float c1, float c2, int64_t n)
{
	for (int64_t i = 0; i < n; i += W) {
		int64_t left = n - i;
		vf x = ldn(g + i, left) * scale;
		vf m1 = ldn(m + i, left) * h->beta1 + x * (1.0f - h->beta1);
		vf v1 = ldn(v + i, left) * h->beta2 + x * x * (1.0f - h->beta2);
		vf w = ldn(p + i, left) * (1.0f - h->lr * h->weight_decay);
		stn(m + i, m1, left);
		stn(v + i, v1, left);
		stn(p + i, w - m1 * c1 * h->lr / (vsqrt(v1 * c2) + h->eps), left);
	}
}

const struct ww_cpu_kernels NAME = { .name = LABEL,
	.from_bf16 = from_bf16,
	.to_bf16 = to_bf16,
	.gemm_nt = gemm_nt,
	.gemm_nn = gemm_nn,
	.rms_row = rms_row,
	.rms_bwd_row = rms_bwd_row,
	.add = add,
	.mul_add = mul_add,
	.rope_row = rope_row,
	.swiglu = swiglu,
	.swiglu_bwd = swiglu_bwd,
	.attn_block = attn_block,
	.attn_bwd_block = attn_bwd_block,
	.dot = dot,
	.row_max = row_max,
	.sum_exp = sum_exp,
	.sum_entropy = sum_entropy,
	.exp_scale = exp_scale,
	.sumsq = sumsq,
	.adamw = adamw };
