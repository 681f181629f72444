/* test_cpu_math.c - the vector functions against libm in double precision, on dense grids of floats and at the edges.
 */
#include "cpu_test.h"

#include <ww/cpu/planner.h>

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

const struct kernel_entry kernel_table[] = { { NULL, NULL } };

typedef double (*ref_fn)(double);

/* Every `step`-th float of [lo, hi] by bit pattern, both signs where asked; relative error at most tol beside an
 * absolute floor (for functions with zeros inside the interval). */
#define CHECK_GRID(fn, ref, lo, hi, step, tol, floor_abs) \
	do { \
		double worst_ = 0; \
		float at_ = 0; \
		float buf_[WW_VL]; \
		int fill_ = 0; \
		union { float f; uint32_t u; } b_ = { (lo) }, e_ = { (hi) }; \
		for (uint64_t u_ = b_.u; u_ <= e_.u; u_ += (step)) { \
			union { uint32_t u; float f; } x_ = { (uint32_t)u_ }; \
			buf_[fill_++] = x_.f; \
			if (fill_ < WW_VL) \
				continue; \
			fill_ = 0; \
			for (int sign_ = 0; sign_ < 2; sign_++) { \
				ww_vf v_ = ww_vf_load(buf_, WW_VL), y_; \
				if (sign_) \
					v_ = -v_; \
				y_ = fn(v_); \
				for (int i_ = 0; i_ < WW_VL; i_++) { \
					const double r_ = ref((double)v_[i_]); \
					double d_; \
					if (isnan(r_)) { \
						assert_true(isnan(y_[i_])); \
						continue; \
					} \
					if (fabs(r_) > 3.4e38) { \
						if (!(fabs((double)y_[i_]) > 3.4e38)) \
							fail_msg(#fn "(%.9g) = %.9g", (double)v_[i_], (double)y_[i_]); \
						continue; \
					} \
					d_ = fabs((double)y_[i_] - r_) / fmax(fabs(r_), fmax((floor_abs), 1.2e-38)); \
					if (!(d_ <= worst_)) { \
						worst_ = d_; \
						at_ = v_[i_]; \
					} \
				} \
			} \
		} \
		if (!(worst_ <= (tol))) \
			fail_msg(#fn "(%.9g): relative error %.3g", (double)at_, worst_); \
	} while (0)

static double ref_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double ref_silu(double x) { return x / (1 + exp(-x)); }
static double ref_gelu(double x) { return 0.5 * x * erfc(-x * M_SQRT1_2); }
static double ref_gelu_tanh(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
static double ref_softplus(double x) { return x > 20 ? x : log1p(exp(x)); }
static double ref_mish(double x) { return x * tanh(ref_softplus(x)); }
static double ref_elu(double x) { return x > 0 ? x : expm1(x); }
static double ref_rsqrt(double x) { return 1 / sqrt(x); }
static double ref_logsigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }
static ww_vf softplus1(ww_vf x) { return ww_vf_softplus(x, 1.0f, 20.0f); }
static ww_vf elu1(ww_vf x) { return ww_vf_elu(x, 1.0f); }

static void test_exponentials(void **state)
{
	(void)state;
	CHECK_GRID(ww_vf_exp, exp, 1e-30f, 110.0f, 1013, 2e-7, 1e-45);
	CHECK_GRID(ww_vf_exp2, exp2, 1e-30f, 160.0f, 1013, 3e-7, 1e-45);
	CHECK_GRID(ww_vf_expm1, expm1, 1e-38f, 120.0f, 1013, 4e-7, 0);
	CHECK_GRID(ww_vf_sigmoid, ref_sigmoid, 1e-30f, 120.0f, 1013, 3e-7, 1e-31); /* denormal results may vanish */
	CHECK_GRID(ww_vf_tanh, tanh, 1e-38f, 1e30f, 1013, 4e-7, 0);
	CHECK_GRID(ww_vf_erf, erf, 1e-38f, 1e30f, 1013, 4e-7, 0);
	CHECK_GRID(ww_vf_erfc, erfc, 1e-45f, 9.1f, 1013, 5e-7, 0);
	CHECK_GRID(ww_vf_erfc, erfc, 9.1f, 3e38f, 1013, 5e-7, 1e-37); /* denormal results round twice */
	CHECK_GRID(ww_vf_sinh, sinh, 1e-45f, 3e38f, 1013, 4e-7, 0);
	CHECK_GRID(ww_vf_cosh, cosh, 1e-45f, 3e38f, 1013, 3e-7, 0);
}

static void test_logarithms(void **state)
{
	(void)state;
	CHECK_GRID(ww_vf_log, log, 1.5e-45f, 3.4e38f, 1013, 2e-7, 0);
	CHECK_GRID(ww_vf_log2, log2, 1.5e-45f, 3.4e38f, 1013, 3e-7, 0);
	CHECK_GRID(ww_vf_log10, log10, 1.5e-45f, 3.4e38f, 1013, 3e-7, 0);
	CHECK_GRID(ww_vf_log1p, log1p, 1e-38f, 3.4e38f, 1013, 3e-7, 0);
	CHECK_GRID(ww_vf_asinh, asinh, 1e-45f, 3.4e38f, 1013, 5e-7, 0);
	CHECK_GRID(ww_vf_acosh, acosh, 1e-45f, 3.4e38f, 1013, 5e-7, 0);
	CHECK_GRID(ww_vf_acosh, acosh, 1.0f, 1.01f, 1, 5e-7, 0);
	CHECK_GRID(ww_vf_atanh, atanh, 1e-45f, 2.0f, 1013, 5e-7, 0);
	CHECK_GRID(ww_vf_atanh, atanh, 0.99f, 1.0f, 1, 5e-7, 0);
	CHECK_GRID(ww_vf_rsqrt, ref_rsqrt, 1e-38f, 3.4e38f, 1013, 2e-7, 0);
}

/* lgamma left of 0 is a difference with zeros: its error is measured by the larger term. */
static ww_vf lgamma_of_abs(ww_vf x) { return ww_vf_lgamma(ww_vf_abs(x)); }
static double ref_lgamma_of_abs(double x) { return lgamma(fabs(x)); }
static ww_vf lgamma_share(ww_vf x) { return ww_vf_lgamma(x) / ww_vf_lgamma(ww_vf_abs(x) + 2.0f); }
static double ref_lgamma_share(double x) { return lgamma(x) / lgamma(fabs(x) + 2); }

static void test_gamma(void **state)
{
	(void)state;
	CHECK_GRID(lgamma_of_abs, ref_lgamma_of_abs, 1e-45f, 3.4e38f, 1013, 5e-7, 0);
	CHECK_GRID(lgamma_of_abs, ref_lgamma_of_abs, 0.99f, 1.01f, 1, 5e-7, 0);
	CHECK_GRID(lgamma_of_abs, ref_lgamma_of_abs, 1.99f, 2.01f, 1, 5e-7, 0);
	CHECK_GRID(ww_vf_lgamma, lgamma, 1e-45f, 1.99f, 1013, 1e-6, 0);
	CHECK_GRID(lgamma_share, ref_lgamma_share, 1.0f, 1e36f, 1013, 1e-6, 1);
}

static void test_trigonometry(void **state)
{
	(void)state;
	CHECK_GRID(ww_vf_sin, sin, 1e-38f, 9e5f, 509, 2e-7, 1e-3);
	CHECK_GRID(ww_vf_cos, cos, 1e-38f, 9e5f, 509, 2e-7, 1e-3);
	CHECK_GRID(ww_vf_sin, sin, 9e5f, 1e30f, 10007, 3e-7, 1e-3);
	CHECK_GRID(ww_vf_tan, tan, 1e-45f, 9e5f, 509, 4e-7, 0);
	CHECK_GRID(ww_vf_tan, tan, 9e5f, 1e30f, 10007, 4e-7, 0);
	CHECK_GRID(ww_vf_asin, asin, 1e-45f, 2.0f, 1013, 3e-7, 0);
	CHECK_GRID(ww_vf_acos, acos, 1e-45f, 2.0f, 1013, 3e-7, 0);
	CHECK_GRID(ww_vf_acos, acos, 0.99f, 1.0f, 1, 3e-7, 0);
	CHECK_GRID(ww_vf_atan, atan, 1e-45f, 3.4e38f, 1013, 3e-7, 0);
}

static void test_activations(void **state)
{
	(void)state;
	CHECK_GRID(ww_vf_silu, ref_silu, 1e-38f, 100.0f, 1013, 4e-7, 1e-29);
	/* the negative tail of gelu is x times (1 - 1): absolute error there */
	CHECK_GRID(ww_vf_gelu, ref_gelu, 1e-37f, 1e4f, 1013, 1e-6, 1.0);
	CHECK_GRID(ww_vf_gelu, ref_gelu, 1e-37f, 0.5f, 1013, 1e-6, 0);
	CHECK_GRID(ww_vf_gelu_tanh, ref_gelu_tanh, 1e-37f, 1e4f, 1013, 1e-6, 1.0);
	CHECK_GRID(softplus1, ref_softplus, 1e-38f, 80.0f, 1013, 4e-7, 0);
	CHECK_GRID(ww_vf_mish, ref_mish, 1e-37f, 80.0f, 1013, 6e-7, 0);
	CHECK_GRID(elu1, ref_elu, 1e-38f, 1e4f, 1013, 4e-7, 0);
	CHECK_GRID(ww_vf_logsigmoid, ref_logsigmoid, 1e-38f, 80.0f, 1013, 4e-7, 0);
}

#define ONE(fn, x) (fn(ww_vf_set(x))[0])

static void test_edges(void **state)
{
	(void)state;
	assert_true(
		ONE(ww_vf_exp, INFINITY) == INFINITY && ONE(ww_vf_exp, -INFINITY) == 0.0f && isnan(ONE(ww_vf_exp, NAN)));
	assert_true(
		ONE(ww_vf_expm1, -INFINITY) == -1.0f && ONE(ww_vf_expm1, INFINITY) == INFINITY && isnan(ONE(ww_vf_expm1, NAN)));
	assert_true(
		ONE(ww_vf_log, 0.0f) == -INFINITY && ONE(ww_vf_log, INFINITY) == INFINITY && isnan(ONE(ww_vf_log, -1.0f)));
	assert_true(isnan(ONE(ww_vf_log, NAN)) && ONE(ww_vf_log, 1.0f) == 0.0f);
	assert_true(ONE(ww_vf_log1p, -1.0f) == -INFINITY && ONE(ww_vf_log1p, INFINITY) == INFINITY);
	assert_true(
		ONE(ww_vf_tanh, INFINITY) == 1.0f && ONE(ww_vf_tanh, -INFINITY) == -1.0f && isnan(ONE(ww_vf_tanh, NAN)));
	assert_true(ONE(ww_vf_erf, INFINITY) == 1.0f && ONE(ww_vf_erf, -INFINITY) == -1.0f && isnan(ONE(ww_vf_erf, NAN)));
	assert_true(ONE(ww_vf_sigmoid, -INFINITY) == 0.0f && ONE(ww_vf_sigmoid, INFINITY) == 1.0f);
	assert_true(ONE(ww_vf_gelu, -1e30f) == 0.0f && ONE(ww_vf_gelu, 1e30f) == 1e30f);
	assert_true(isnan(ONE(ww_vf_relu, NAN)) && ONE(ww_vf_relu, -2.0f) == 0.0f && ONE(ww_vf_sign, -3.0f) == -1.0f);
	assert_true(isnan(ONE(ww_vf_sin, INFINITY)) && isnan(ONE(ww_vf_cos, NAN)));
}

static const float edge[] = { 0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.5f, -0.5f, 3.0f, -3.0f, INFINITY, -INFINITY, NAN,
	1e-40f, 3e38f, -1e-40f, 16777216.0f, -8388609.0f, 2.5f, 1e-45f, -3e38f, 1000.0f, -1e-37f };
enum { EDGES = sizeof(edge) / sizeof(edge[0]) };

/* The same number, the sign of a zero included, or both NaN; else within tol of it. */
static int near(float y, double r, double tol)
{
	if (isnan(r))
		return isnan(y);
	if (r == 0 || isinf((float)r))
		return y == (float)r && !signbit(y) == !signbit(r);
	return fabs((double)y - r) <= tol * fabs(r) + (tol > 0 ? 1.5e-45 : 0);
}

/* What libm gives at zeros of both signs, infinities, NaN, denormals and large numbers. */
static void test_edges_as_libm(void **state)
{
#define FUNCTIONS(X) \
	X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh) X(atanh) X(erfc) X(lgamma)

	(void)state;
	for (int i = 0; i < EDGES; i++) {
#define CHECK_EDGE(f) \
	if (!near(ONE(ww_vf_##f, edge[i]), f((double)edge[i]), 1e-6)) \
		fail_msg(#f "(%g) = %g", (double)edge[i], (double)ONE(ww_vf_##f, edge[i]));
		FUNCTIONS(CHECK_EDGE)
	}
}

#define TWO(fn, x, y) (fn(ww_vf_set(x), ww_vf_set(y))[0])

static void check_two(float x, float y)
{
	if (!near(TWO(ww_vf_atan2, x, y), atan2((double)x, (double)y), 3e-7))
		fail_msg("atan2(%.9g, %.9g) = %.9g", (double)x, (double)y, (double)TWO(ww_vf_atan2, x, y));
	if (!near(TWO(ww_vf_fmod, x, y), fmod((double)x, (double)y), 0))
		fail_msg("fmod(%.9g, %.9g) = %.9g", (double)x, (double)y, (double)TWO(ww_vf_fmod, x, y));
	if (!near(TWO(ww_vf_remainder, x, y), (double)pl_remf(x, y), 0))
		fail_msg("remainder(%.9g, %.9g) = %.9g", (double)x, (double)y, (double)TWO(ww_vf_remainder, x, y));
}

static float any_float(void)
{
	union {
		float f;
		uint32_t u;
	} b;

	test_rand();
	b.u = (uint32_t)(test_seed >> 16);
	return b.f;
}

/* Quotients of every size: near each other, near a whole one, and any two bit patterns (up to 2^276). */
static void test_two_arguments(void **state)
{
	(void)state;
	for (int i = 0; i < EDGES; i++)
		for (int j = 0; j < EDGES; j++)
			check_two(edge[i], edge[j]);
	for (int i = 0; i < 200000; i++) {
		const float x = 8 * test_rand(), y = test_rand(), u = any_float(), v = any_float();
		const float whole = rintf(30000 * test_rand()) * y;

		check_two(x, y);
		check_two(whole, y);
		check_two(nextafterf(whole, INFINITY), y);
		check_two(u, v);
	}
}

static void test_pow(void **state)
{
	(void)state;
	for (int i = 0; i < EDGES; i++)
		for (int j = 0; j < EDGES; j++) {
			const float y = ww_vf_pow(ww_vf_set(edge[i]), ww_vf_set(edge[j]))[0];
			const float r = (float)pow((double)edge[i], (double)edge[j]);

			if (!(isnan(r)                   ? isnan(y)
						: isinf(r) || r == 0 ? y == r
											 : fabs((double)y - (double)r) <= 1e-7 * fabs((double)r) + 1e-44))
				fail_msg("pow(%g, %g) = %g, should be %g", (double)edge[i], (double)edge[j], (double)y, (double)r);
		}
	for (int i = 0; i < 200000; i++) {
		const float x = expf(20 * test_rand()), e = 4 * test_rand();
		const double y = (double)ww_vf_pow(ww_vf_set(x), ww_vf_set(e))[0], r = pow((double)x, (double)e);

		if (fabs(r) < 3e38 && fabs(r) > 1e-37 && !(fabs(y - r) <= 1e-7 * fabs(r)))
			fail_msg("pow(%.9g, %.9g) = %.9g, should be %.9g", (double)x, (double)e, y, r);
	}
}

static void test_half_precision(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		const float f = ww_f32_of_f16((uint16_t)h), g = ww_f32_of_bf16((uint16_t)h);

		if (isnan(f))
			assert_true((ww_f16_of_f32(f) & 0x7fff) > 0x7c00);
		else
			assert_int_equal(ww_f16_of_f32(f), h);
		if (isnan(g))
			assert_true((ww_bf16_of_f32(g) & 0x7fff) > 0x7f80);
		else
			assert_int_equal(ww_bf16_of_f32(g), h);
	}
	assert_true(
		ww_f32_of_f16(0x3c00) == 1.0f && ww_f32_of_f16(0x0001) == 0x1p-24f && ww_f32_of_f16(0x7bff) == 65504.0f);
	assert_int_equal(ww_f16_of_f32(65519.0f), 0x7bff);
	assert_int_equal(ww_f16_of_f32(65520.0f), 0x7c00);
	assert_int_equal(ww_f16_of_f32(1.0f + 0x1p-11f), 0x3c00); /* tie to even */
	assert_int_equal(ww_f16_of_f32(1.0f + 3 * 0x1p-11f), 0x3c02);
}

/* Vectors of 16 bits are what the functions of one number give, whole and in part: every stored value, and results of
 * every exponent with roundings up, down and to even, too large and too small ones. */
static void test_half_vectors(void **state)
{
	uint16_t f16[WW_VL + 1], bf16[WW_VL + 1];
	float x[WW_VL];

	(void)state;
	for (uint32_t h = 0; h < 65536; h += WW_VL)
		for (int n = WW_VL; n > 0; n -= 5) {
			for (int i = 0; i < WW_VL; i++)
				f16[i] = (uint16_t)(h + (uint32_t)i);
			const ww_vf a = ww_vf_load_f16(f16, n), c = ww_vf_load_bf16(f16, n);

			for (int i = 0; i < WW_VL; i++) {
				const float ra = i < n ? ww_f32_of_f16(f16[i]) : 0, rc = i < n ? ww_f32_of_bf16(f16[i]) : 0;

				assert_true(isnan(ra) ? isnan(a[i]) : a[i] == ra);
				assert_true(isnan(rc) ? isnan(c[i]) : c[i] == rc);
			}
		}
	for (uint64_t u = 0; u < 0x100000000; u += 40009 * WW_VL) {
		const int n = u % 3 ? WW_VL : (int)(u % WW_VL) + 1;

		for (int i = 0; i < WW_VL; i++) {
			union {
				uint32_t u;
				float f;
			} b = { (uint32_t)(u + (uint64_t)i * 40009) };

			x[i] = b.f;
			if (i % 4 == 1) /* a tie of bfloat16 */
				b.u = (b.u & 0xffff0000u) | 0x8000u, x[i] = b.f;
		}
		memset(f16, 0x55, sizeof(f16));
		memset(bf16, 0x55, sizeof(bf16));
		ww_vf_store_f16(f16, ww_vf_load(x, WW_VL), n);
		ww_vf_store_bf16(bf16, ww_vf_load(x, WW_VL), n);
		for (int i = 0; i <= WW_VL; i++) {
			if (i < n && isnan(x[i])) {
				assert_true((f16[i] & 0x7fff) > 0x7c00 && (bf16[i] & 0x7fff) > 0x7f80);
				continue;
			}
			assert_int_equal(f16[i], i < n ? ww_f16_of_f32(x[i]) : 0x5555);
			assert_int_equal(bf16[i], i < n ? ww_bf16_of_f32(x[i]) : 0x5555);
		}
	}
}

/* Vectors of integers, whole and in part, from memory of exactly that size, and back. */
#define CHECK_INTEGERS(T, ctype) \
	for (int n = 1; n <= WW_VL; n++) { \
		ctype *in = malloc((size_t)n * sizeof(*in)), *out = malloc((size_t)n * sizeof(*out)); \
		assert_true(in && out); \
		for (int i = 0; i < n; i++) \
			in[i] = (ctype)(int)(test_rand() * 33000); \
		const ww_vf v = ww_vf_load_##T(in, n); \
		ww_vf_store_##T(out, v + ww_vf_copysign(ww_vf_set(0.25f), v), n); \
		for (int i = 0; i < WW_VL; i++) \
			assert_true(v[i] == (i < n ? (float)in[i] : 0.0f)); \
		assert_memory_equal(in, out, (size_t)n * sizeof(*in)); \
		free(in); \
		free(out); \
	}

static void test_integer_vectors(void **state)
{
	(void)state;
	for (int again = 0; again < 20; again++) {
		CHECK_INTEGERS(i64, int64_t)
		CHECK_INTEGERS(i32, int32_t)
		CHECK_INTEGERS(i16, int16_t)
		CHECK_INTEGERS(i8, int8_t)
		CHECK_INTEGERS(u8, uint8_t)
	}
}

/* Strided loads, from memory of exactly that size: distances that are constants and one that is not, whole and in part.
 */
#define CHECK_GATHER(stride) \
	for (int n = 1; n <= WW_VL; n++) { \
		const long long far = (n - 1) * (long long)(stride), count = (far < 0 ? -far : far) + 1; \
		float *m = test_floats(count, 1); \
		const float *p = far < 0 ? m - far : m; \
		const ww_vf v = ww_vf_gather(p, stride, n); \
		for (int i = 0; i < WW_VL; i++) \
			assert_true(v[i] == (i < n ? p[i * (long long)(stride)] : 0.0f)); \
		free(m); \
	}

static void test_gather(void **state)
{
	volatile long long later = 7;

	(void)state;
	CHECK_GATHER(0)
	CHECK_GATHER(1)
	CHECK_GATHER(2)
	CHECK_GATHER(3)
	CHECK_GATHER(4)
	CHECK_GATHER(5)
	CHECK_GATHER(8)
	CHECK_GATHER(9)
	CHECK_GATHER(-2)
	CHECK_GATHER(later)
	later = -3;
	CHECK_GATHER(later)
}

/* The same of windows side by side, each element of theirs: memory ends with the last window. */
#define CHECK_WINDOW(stride, width) \
	for (int n = 1; n <= WW_VL; n++) { \
		float *p = test_floats((n - 1) * (stride) + (width), 1); \
		WW_UNROLL(8) \
		for (int at = 0; at < (width); at++) { \
			const ww_vf v = ww_vf_window(p, stride, at, width, n); \
			for (int i = 0; i < WW_VL; i++) \
				assert_true(v[i] == (i < n ? p[i * (stride) + at] : 0.0f)); \
		} \
		free(p); \
	}

static void test_window(void **state)
{
	(void)state;
	CHECK_WINDOW(2, 2)
	CHECK_WINDOW(2, 3)
	CHECK_WINDOW(3, 2)
	CHECK_WINDOW(5, 5)
	CHECK_WINDOW(2, 8)
	CHECK_WINDOW(8, 8)
	CHECK_WINDOW(8, 3)
	CHECK_WINDOW(9, 2)
	CHECK_WINDOW(1, 4)
}

/* Elements at any places, of 16 bits from addresses that are a multiple of 4 and from others. */
static void test_load_at(void **state)
{
	float *x = test_floats(100, 1);
	uint16_t half[101], brain[101];

	(void)state;
	for (int i = 0; i < 100; i++) {
		half[i] = ww_f16_of_f32(x[i]);
		brain[i] = ww_bf16_of_f32(x[i]);
	}
	for (int n = 1; n <= WW_VL; n++)
		for (int from = 40; from < 44; from++) { /* from 42 on: places one after the other */
			ww_vi at = ww_vi_set(0);
			ww_vf v[3];

			for (int i = 0; i < WW_VL; i++)
				at[i] = from < 42 ? i * 37 % 99 - 40 : i - 7;
			v[0] = ww_vf_load_at(x + from, at, n);
			v[1] = ww_vf_load_at_f16(half + from, at, n);
			v[2] = ww_vf_load_at_bf16(brain + from, at, n);
			for (int i = 0; i < WW_VL; i++) {
				assert_true(v[0][i] == (i < n ? x[from + at[i]] : 0.0f));
				assert_true(v[1][i] == (i < n ? ww_f32_of_f16(half[from + at[i]]) : 0.0f));
				assert_true(v[2][i] == (i < n ? ww_f32_of_bf16(brain[from + at[i]]) : 0.0f));
			}
		}
	free(x);
}

/* Elements of a short row by places, and 64-bit integers as places and compared. */
static void test_lookups(void **state)
{
	float *x = test_floats(100, 1);
	long long places[WW_VL];
	float dense[WW_VL];

	(void)state;
	for (int n = 1; n <= WW_VL; n++)
		for (int len = 1; len <= 100; len += len < 40 ? 1 : 17) {
			for (int i = 0; i < WW_VL; i++)
				places[i] = i < n ? (i * 37 + len) % len : 1LL << 40 | 3;
			const ww_vi at = ww_vi_load_i64(places, n);
			const ww_vf v = ww_vf_load_among(x, at, len, n);

			ww_vf_store(dense, ww_vf_of_vm(ww_vm_eq_i64(places, len / 2, n)), WW_VL);
			for (int i = 0; i < WW_VL; i++) {
				assert_int_equal(at[i], i < n ? places[i] : 0);
				assert_true(v[i] == (i < n ? x[places[i]] : 0.0f));
				assert_true(i >= n || dense[i] == (places[i] == len / 2));
			}
		}
	places[0] = 1LL << 32; /* compared in all 64 bits */
	assert_false(ww_vm_lane(ww_vm_eq_i64(places, 0, 1), 0));
	free(x);
}

#if defined(WW_AVX512) || defined(WW_AVX2)
/* Nanoseconds of the fastest of some runs of 256 loads. */
static double time_of_loads(const float *p, ww_vm m)
{
	double best = 1e30;

	for (int run = 0; run < 50; run++) {
		struct timespec a, b;
		ww_vf sum = ww_vf_zero();

		clock_gettime(CLOCK_MONOTONIC, &a);
		for (int i = 0; i < 256; i++) {
			__asm__ volatile("" : "+r"(p));
			sum += ww_vf_load_where(p, m);
		}
		__asm__ volatile("" ::"v"(sum));
		clock_gettime(CLOCK_MONOTONIC, &b);
		best = fmin(best, (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec));
	}
	return best;
}
#endif

/* Lanes that are not loaded may lie on a page that is not there, without an exception being suppressed each time. */
static void test_load_where(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	float *x = (float *)(void *)(map + page);

	(void)state;
	assert_true(map != MAP_FAILED);
	for (int i = 0; i < 100; i++)
		x[i] = (float)(i + 1);
	assert_int_equal(mprotect(map, page, PROT_NONE), 0);
	for (int first = 0; first < WW_VL; first++)
		for (int step = 1; step < 4; step++) {
			ww_vi on = ww_vi_set(0);

			for (int i = first; i < WW_VL; i += step)
				on[i] = -1;
			const ww_vf v = ww_vf_load_where(x - first, ww_vi_lt(on, ww_vi_set(0)));

			for (int i = 0; i < WW_VL; i++)
				assert_true(v[i] == (on[i] ? x[i - first] : 0.0f));
		}
#if defined(WW_AVX512) || defined(WW_AVX2)
	const ww_vm upper = ww_vm_not(ww_vm_first(WW_VL / 2));

	assert_true(time_of_loads(x - WW_VL / 2, upper) < 20 * time_of_loads(x + 40, upper));
#endif
	assert_int_equal(munmap(map, 3 * page), 0);
}

/* PyTorch's operations on one number: NaN stays, quotients and remainders round towards minus infinity. */
static void test_planner_scalars(void **state)
{
	static const struct {
		long long a, b, rem, quotient;
	} rows[] = { { 7, 3, 1, 2 }, { -7, 3, 2, -3 }, { 7, -3, -2, -3 }, { -7, -3, -1, 2 }, { 6, -3, 0, -2 },
		{ 5, 0, 0, 0 } };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(pl_remi(rows[i].a, rows[i].b), rows[i].rem);
		assert_int_equal(pl_fdivi(rows[i].a, rows[i].b), rows[i].quotient);
		if (!rows[i].b)
			continue;
		assert_true(pl_remf((float)rows[i].a, (float)rows[i].b) == (float)rows[i].rem);
		assert_true(pl_rem((double)rows[i].a, (double)rows[i].b) == (double)rows[i].rem);
	}
	assert_true(isnan(pl_maxf(PL_NANF, 1)) && isnan(pl_maxf(1, PL_NANF)) && isnan(pl_min(PL_NAN, -PL_INF)));
	assert_true(isnan(pl_min(-PL_INF, PL_NAN)) && pl_max(-1, 2) == 2 && pl_minf(-PL_INFF, 2) == -PL_INFF);
	assert_int_equal(pl_powi(-3, 3), -27);
	assert_int_equal(pl_powi(2, 0), 1);
	assert_true(pl_signf(-0.5f) == -1 && pl_sign(3) == 1 && pl_signi(0) == 0 && pl_absi(-4) == 4);
	assert_true(pl_maxi(-2, 3) == 3 && pl_mini(-2, 3) == -2);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_exponentials), cmocka_unit_test(test_logarithms),
		cmocka_unit_test(test_gamma), cmocka_unit_test(test_trigonometry), cmocka_unit_test(test_activations),
		cmocka_unit_test(test_edges), cmocka_unit_test(test_edges_as_libm), cmocka_unit_test(test_two_arguments),
		cmocka_unit_test(test_pow), cmocka_unit_test(test_half_precision), cmocka_unit_test(test_half_vectors),
		cmocka_unit_test(test_integer_vectors), cmocka_unit_test(test_gather), cmocka_unit_test(test_window),
		cmocka_unit_test(test_load_at), cmocka_unit_test(test_lookups), cmocka_unit_test(test_load_where),
		cmocka_unit_test(test_planner_scalars) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
