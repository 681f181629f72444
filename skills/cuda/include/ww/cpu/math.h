/* math.h - elementary functions on vectors of floats.
 *
 * Each function is right at infinities, NaN, zeros and denormals, and its relative error is 1e-7 to 5e-7
 * (tests/unit/cookbook compares with libm in double precision on dense grids and states the bound for each).  They are
 * written for throughput in loops that are otherwise bound by memory: no tables, no branches on data, one division at
 * most (two for asinh, atanh and lgamma), about 12 instructions for exp() and 18 for erf().  (One reservation: sigmoid
 * and silu give 0 where exp(-x) overflows, that is below -88.7, where the true value is under 1e-36.)
 *
 * The polynomial and rational coefficients are minimax fits made for this file (Lawson iteration on Chebyshev nodes, in
 * relative error).  exp and log reduce by powers of two; erf and tanh are x P(x^2)/Q(x^2) on the interval where they
 * differ from +-1; pow, sin, cos and tan reduce in double precision, in two halves of the vector, because neither 2^(y
 * log2 x) nor x - k pi/2 keeps 24 bits in single precision.  Others rest on these: erfc and sinh and cosh on the
 * reduction of exp, asinh, acosh and atanh on log1p, acos on asin, atan and atan2 on one polynomial for [0, 1].  fmod
 * and remainder are exact, as in C.
 *
 * ww_vf_max(lo, x) returns x where x is NaN; the clamps below rely on that order of arguments. */
#ifndef WW_CPU_MATH_H
#define WW_CPU_MATH_H

#include <math.h>

#define WW_INF __builtin_inff()
#define WW_NAN __builtin_nanf("")

/* x * 2^n for integral n in [-300, 300]; rounds once where the result is denormal. */
WW_FN ww_vf ww_vf_ldexp(ww_vf x, ww_vf n)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
	ww_vi k = ww_vi_trunc(n), h = k >> 1;
	ww_vf a = ww_vf_bits((h + 127) << 23), b = ww_vf_bits((k - h + 127) << 23);

	return x * a * b;
#endif
}

/* The reduction that exp and expm1 share: x = n ln2 + r; returns e^r - 1. */
WW_FN ww_vf ww_vf_exp_reduce(ww_vf x, ww_vf *n)
{
	ww_vf k = ww_vf_rint(x * 1.44269504f);
	ww_vf r = ww_vf_fma(k, ww_vf_set(-0.693145752f), x); /* 15 bits: exact */
	ww_vf p;

	r = ww_vf_fma(k, ww_vf_set(-1.42860677e-6f), r);
	p = ww_vf_fma(r, ww_vf_set(0.0013814318f), ww_vf_set(0.00836885162f));
	p = ww_vf_fma(r, p, ww_vf_set(0.0416684002f));
	p = ww_vf_fma(r, p, ww_vf_set(0.166665196f));
	p = ww_vf_fma(r, p, ww_vf_set(0.49999994f));
	*n = k;
	return ww_vf_fma(r * r, p, r);
}

WW_FN ww_vf ww_vf_exp(ww_vf x)
{
	ww_vf n, p;

	x = ww_vf_min(ww_vf_set(89.0f), ww_vf_max(ww_vf_set(-104.0f), x));
	p = ww_vf_exp_reduce(x, &n);
	return ww_vf_ldexp(p + 1.0f, n);
}

WW_FN ww_vf ww_vf_expm1(ww_vf x)
{
	ww_vf n, p, s, c = ww_vf_min(ww_vf_set(88.0f), ww_vf_max(ww_vf_set(-30.0f), x));

	p = ww_vf_exp_reduce(c, &n);
	s = ww_vf_ldexp(ww_vf_set(1.0f), n);
	p = ww_vf_fma(s, p, s - 1.0f);
	p = ww_vf_sel(ww_vf_gt(x, ww_vf_set(88.0f)), ww_vf_exp(x), p);
	return ww_vf_sel(ww_vf_eq(x, ww_vf_zero()), x, p);
}

WW_FN ww_vf ww_vf_exp2(ww_vf x)
{
	ww_vf c = ww_vf_min(ww_vf_set(129.0f), ww_vf_max(ww_vf_set(-151.0f), x)), n = ww_vf_rint(c), r, k;

	r = ww_vf_exp_reduce((c - n) * 0.693147181f, &k);
	return ww_vf_ldexp(r + 1.0f, n + k);
}

/* m in [sqrt(1/2), sqrt(2)) and e with x = m 2^e, for positive finite x. */
WW_FN ww_vf ww_vf_frexp(ww_vf x, ww_vf *e)
{
	ww_vm tiny = ww_vf_lt(x, ww_vf_set(1.17549435e-38f));
	ww_vi b, k;

	x = ww_vf_sel(tiny, x * 8388608.0f, x);
	b = ww_vi_bits(x);
	b &= 0x7fffffff; /* the sign is for ww_vf_log_special() */
	k = (b - 0x3f3504f3) >> 23;
	*e = ww_vf_of_vi(k) - ww_vf_sel(tiny, ww_vf_set(23.0f), ww_vf_zero());
	return ww_vf_bits(b - (k << 23));
}

/* log of values that are not positive and finite: NaN, -inf at 0, inf at inf. */
WW_FN ww_vf ww_vf_log_special(ww_vf x, ww_vf y)
{
	y = ww_vf_sel(ww_vf_lt(x, ww_vf_set(WW_INF)), y, x); /* inf and NaN as they are */
	y = ww_vf_sel(ww_vf_lt(x, ww_vf_zero()), ww_vf_set(WW_NAN), y);
	return ww_vf_sel(ww_vf_eq(x, ww_vf_zero()), ww_vf_set(-WW_INF), y);
}

/* log(1 + r) - r for 1 + r in [sqrt(1/2), sqrt(2)). */
WW_FN ww_vf ww_vf_log_poly(ww_vf r)
{
	ww_vf p = ww_vf_fma(r, ww_vf_set(-0.0764603764f), ww_vf_set(0.127790883f)), r2 = r * r;

	p = ww_vf_fma(r, p, ww_vf_set(-0.131641984f));
	p = ww_vf_fma(r, p, ww_vf_set(0.141996995f));
	p = ww_vf_fma(r, p, ww_vf_set(-0.166227639f));
	p = ww_vf_fma(r, p, ww_vf_set(0.200012922f));
	p = ww_vf_fma(r, p, ww_vf_set(-0.250008374f));
	p = ww_vf_fma(r, p, ww_vf_set(0.333333313f));
	return ww_vf_fma(r2 * r, p, r2 * -0.5f);
}

WW_FN ww_vf ww_vf_log(ww_vf x)
{
	ww_vf e, m = ww_vf_frexp(x, &e), r = m - 1.0f, y;

	y = ww_vf_fma(e, ww_vf_set(-2.12194440e-4f), ww_vf_log_poly(r)) + r; /* ln2 = 0.693359375 - 2.1219444e-4 */
	return ww_vf_log_special(x, ww_vf_fma(e, ww_vf_set(0.693359375f), y));
}

WW_FN ww_vf ww_vf_log2(ww_vf x)
{
	ww_vf e, m = ww_vf_frexp(x, &e), r = m - 1.0f, y = ww_vf_log_poly(r), z;

	/* (r + y) log2(e) with log2(e) = 1 + 0.44269504: the leading r stays exact */
	z = ww_vf_fma(r, ww_vf_set(0.442695041f), ww_vf_fma(y, ww_vf_set(0.442695041f), y));
	return ww_vf_log_special(x, (z + r) + e);
}

WW_FN ww_vf ww_vf_log10(ww_vf x) { return ww_vf_log(x) * 0.434294482f; }

WW_FN ww_vf ww_vf_log1p(ww_vf x)
{
	ww_vf u = x + 1.0f, c = x - (u - 1.0f), y = ww_vf_log(u);
	ww_vm ok = ww_vm_and(ww_vf_gt(u, ww_vf_zero()), ww_vf_lt(u, ww_vf_set(WW_INF)));

	y = ww_vf_sel(ok, y + c / u, y);
	return ww_vf_sel(ww_vf_eq(u, ww_vf_set(1.0f)), x, y);
}

WW_FN ww_vf ww_vf_recip(ww_vf x) { return 1.0f / x; }
WW_FN ww_vf ww_vf_rsqrt(ww_vf x) { return 1.0f / ww_vf_sqrt(x); }

WW_FN ww_vf ww_vf_erf(ww_vf x)
{
	ww_vf c = ww_vf_min(ww_vf_set(3.93f), ww_vf_max(ww_vf_set(-3.93f), x)), t = c * c, p, q;

	p = ww_vf_fma(t, ww_vf_set(2.02590023e-06f), ww_vf_set(0.00028468437f));
	q = ww_vf_fma(t, ww_vf_set(3.78315426e-05f), ww_vf_set(0.00117070366f));
	p = ww_vf_fma(t, p, ww_vf_set(0.00380808275f));
	q = ww_vf_fma(t, q, ww_vf_set(0.0150549333f));
	p = ww_vf_fma(t, p, ww_vf_set(0.0528751982f));
	q = ww_vf_fma(t, q, ww_vf_set(0.114558929f));
	p = ww_vf_fma(t, p, ww_vf_set(0.191548709f));
	q = ww_vf_fma(t, q, ww_vf_set(0.5030883f));
	p = ww_vf_fma(t, p, ww_vf_set(1.12837914f));
	q = ww_vf_fma(t, q, ww_vf_set(1.0f));
	/* Beyond 3.93 exactly +-1, so that x (1 + erf x) vanishes for very negative x. */
	return ww_vf_sel(ww_vf_lt(ww_vf_set(3.93f), ww_vf_abs(x)), ww_vf_copysign(ww_vf_set(1.0f), x), c * p / q);
}

/* erfc(a) = e^(-a^2) P(a)/Q(a) for a >= 0, with all coefficients positive; erfc(-a) = 2 - erfc(a).  What a^2 loses by
 * rounding, up to 4e-6, is added back to e^(-a^2). */
WW_FN ww_vf ww_vf_erfc(ww_vf x)
{
	ww_vf a = ww_vf_min(ww_vf_set(11.0f), ww_vf_abs(x)), s = a * a, p, q;
	ww_vf head = ww_vf_bits(ww_vi_bits(a) & ww_vi_set((int32_t)0xfffff000u)); /* 12 bits: its square is exact */
	ww_vf lost = (head * head - s) + (a - head) * (a + head), e = ww_vf_exp(-s);

	p = ww_vf_fma(a, ww_vf_set(0.0327984765f), ww_vf_set(0.229228184f));
	q = ww_vf_fma(a, ww_vf_set(0.0581330918f), ww_vf_set(0.406322688f));
	p = ww_vf_fma(a, p, ww_vf_set(0.73162353f));
	q = ww_vf_fma(a, q, ww_vf_set(1.32540512f));
	p = ww_vf_fma(a, p, ww_vf_set(1.23842919f));
	q = ww_vf_fma(a, q, ww_vf_set(2.40227199f));
	p = ww_vf_fma(a, p, ww_vf_set(1.0f));
	q = ww_vf_fma(a, q, ww_vf_set(2.36680889f));
	q = ww_vf_fma(a, q, ww_vf_set(1.0f));
	p = (e - e * lost) * (p / q);
	return ww_vf_sel(ww_vf_lt(x, ww_vf_zero()), 2.0f - p, p);
}

WW_FN ww_vf ww_vf_tanh(ww_vf x)
{
	ww_vf c = ww_vf_min(ww_vf_set(9.0f), ww_vf_max(ww_vf_set(-9.0f), x)), t = c * c, p, q;

	p = ww_vf_fma(t, ww_vf_set(1.33187698e-08f), ww_vf_set(2.05832572e-05f));
	q = ww_vf_fma(t, ww_vf_set(7.76189373e-07f), ww_vf_set(0.000328307046f));
	p = ww_vf_fma(t, p, ww_vf_set(0.00349402087f));
	q = ww_vf_fma(t, q, ww_vf_set(0.0258710212f));
	p = ww_vf_fma(t, p, ww_vf_set(0.133797065f));
	q = ww_vf_fma(t, q, ww_vf_set(0.467130217f));
	p = ww_vf_fma(t, p, ww_vf_set(1.0f));
	q = ww_vf_fma(t, q, ww_vf_set(1.0f));
	return ww_vf_sel(ww_vf_lt(ww_vf_set(9.0f), ww_vf_abs(x)), ww_vf_copysign(ww_vf_set(1.0f), x), c * p / q);
}

/* ---- Hyperbolic functions and their inverses --------------------------------------------------------------------- */

/* e^a / 2 for a >= 0: finite a little beyond exp(). */
WW_FN ww_vf ww_vf_half_exp(ww_vf a)
{
	ww_vf n, p = ww_vf_exp_reduce(ww_vf_min(ww_vf_set(90.0f), a), &n);

	return ww_vf_ldexp(p + 1.0f, n - 1.0f);
}
WW_FN ww_vf ww_vf_cosh(ww_vf x)
{
	ww_vf h = ww_vf_half_exp(ww_vf_abs(x));

	return h + 0.25f / h;
}
/* Below 1, where the difference cancels, an odd polynomial. */
WW_FN ww_vf ww_vf_sinh(ww_vf x)
{
	ww_vf a = ww_vf_abs(x), h = ww_vf_half_exp(a), t = x * x, p;

	p = ww_vf_fma(t, ww_vf_set(2.78221319e-06f), ww_vf_set(0.000198428956f));
	p = ww_vf_fma(t, p, ww_vf_set(0.00833331048f));
	p = ww_vf_fma(t, p, ww_vf_set(0.166666672f));
	p = ww_vf_fma(x * t, p, x);
	return ww_vf_sel(ww_vf_lt(a, ww_vf_set(1.0f)), p, ww_vf_copysign(h - 0.25f / h, x));
}

#define WW_LN2 0.693147181f
#define WW_HUGE 1e18f			/* its square is finite, and adding 1 to either changes nothing */

/* log(a + sqrt(a^2 + 1)) for a = |x|, as log1p of what is small where a is. */
WW_FN ww_vf ww_vf_asinh(ww_vf x)
{
	ww_vf a = ww_vf_abs(x), t = a * a, y;
	ww_vm big = ww_vf_gt(a, ww_vf_set(WW_HUGE));

	y = ww_vf_log1p(ww_vf_sel(big, a, a + t / (1.0f + ww_vf_sqrt(t + 1.0f))));
	return ww_vf_copysign(ww_vf_sel(big, y + WW_LN2, y), x);
}
/* log(x + sqrt(x^2 - 1)), by t = x - 1, which is exact where it is small. */
WW_FN ww_vf ww_vf_acosh(ww_vf x)
{
	ww_vf t = x - 1.0f, y;
	ww_vm big = ww_vf_gt(x, ww_vf_set(WW_HUGE));

	y = ww_vf_log1p(ww_vf_sel(big, x, t + ww_vf_sqrt(t * (t + 2.0f))));
	y = ww_vf_sel(big, y + WW_LN2, y);
	return ww_vf_sel(ww_vf_lt(x, ww_vf_set(1.0f)), ww_vf_set(WW_NAN), y);
}
WW_FN ww_vf ww_vf_atanh(ww_vf x)
{
	ww_vf a = ww_vf_abs(x);

	return ww_vf_copysign(ww_vf_log1p((a + a) / (1.0f - a)) * 0.5f, x);
}

/* log |Gamma(u)| for u >= 1/2: (u - 1)(u - 2) P(u)/Q(u) keeps both zeros; from 4 on Stirling's series. */
WW_FN ww_vf ww_vf_lgamma_right(ww_vf u)
{
	ww_vf p, q, s = 1.0f / u, c = s * ww_vf_fma(s * s, ww_vf_set(-0.00270685717f), ww_vf_set(0.083331801f));

	p = ww_vf_fma(u, ww_vf_set(0.0234920457f), ww_vf_set(2.73305035f));
	q = ww_vf_fma(u, ww_vf_set(1.0f), ww_vf_set(12.9374313f));
	p = ww_vf_fma(u, p, ww_vf_set(15.2379417f));
	q = ww_vf_fma(u, q, ww_vf_set(29.477087f));
	p = ww_vf_fma(u, p, ww_vf_set(13.6472111f));
	q = ww_vf_fma(u, q, ww_vf_set(13.6581345f));
	p = ww_vf_fma(u, p, ww_vf_set(1.79936004f));
	q = ww_vf_fma(u, q, ww_vf_set(0.862460971f));
	p = (u - 1.0f) * (u - 2.0f) * (p / q);
	c = ww_vf_fma(u - 0.5f, ww_vf_log(u) - 1.0f, c + 0.418938533f); /* log(2 pi) / 2 - 1/2 */
	return ww_vf_sel(ww_vf_lt(u, ww_vf_set(4.0f)), p, c);
}
/* Below 1/2 by log Gamma(1 + x) - log x, below 0 by reflection: log |pi / sin(pi x)| - log Gamma(1 - x).  Between its
 * zeros there, left of -2, the difference has an absolute error of some 1e-7 of its terms. */
WW_FN ww_vf ww_vf_lgamma(ww_vf x)
{
	ww_vf a = ww_vf_min(ww_vf_set(8388608.0f), ww_vf_abs(x)), f = ww_vf_abs(a - ww_vf_rint(a)), t = f * f, v, y;
	ww_vm left = ww_vf_lt(x, ww_vf_zero()), small = ww_vf_lt(x, ww_vf_set(0.5f));

	v = ww_vf_fma(t, ww_vf_set(0.0247159302f), ww_vf_set(-0.190443233f)); /* sin(pi f) / (pi f) */
	v = ww_vf_fma(t, v, ww_vf_set(0.811715841f));
	v = ww_vf_fma(t, v, ww_vf_set(-1.64493334f));
	v = ww_vf_fma(t * f, v, f);
	v = ww_vf_sel(left, v, ww_vf_sel(small, x, ww_vf_set(1.0f)));
	y = ww_vf_lgamma_right(ww_vf_sel(small, a + 1.0f, x));
	return (0.0f - ww_vf_log(v)) + ww_vf_sel(left, -y, y); /* in this order 0, not -0, at 1 */
}

/* ---- Inverse trigonometric functions ----------------------------------------------------------------------------- */

#define WW_PI 3.14159274f
#define WW_PI_2 1.57079637f
#define WW_PI_2_LOST -4.37113883e-8f /* pi/2 less the float above */

/* asin(s) for |s| <= 1/2. */
WW_FN ww_vf ww_vf_asin_poly(ww_vf s)
{
	ww_vf t = s * s, p = ww_vf_fma(t, ww_vf_set(0.042157013f), ww_vf_set(0.0241855029f));

	p = ww_vf_fma(t, p, ww_vf_set(0.0454690196f));
	p = ww_vf_fma(t, p, ww_vf_set(0.0749531016f));
	p = ww_vf_fma(t, p, ww_vf_set(0.166667521f));
	return ww_vf_fma(s * t, p, s);
}
/* Beyond 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)), so acos(a) is the subtrahend. */
WW_FN ww_vf ww_vf_asin(ww_vf x)
{
	ww_vf a = ww_vf_abs(x), y;
	ww_vm far = ww_vf_gt(a, ww_vf_set(0.5f));

	y = ww_vf_asin_poly(ww_vf_sel(far, ww_vf_sqrt((1.0f - a) * 0.5f), a));
	y = ww_vf_sel(far, WW_PI_2 - (y + y - WW_PI_2_LOST), y);
	return ww_vf_copysign(y, x);
}
WW_FN ww_vf ww_vf_acos(ww_vf x)
{
	ww_vf a = ww_vf_abs(x), y, z;
	ww_vm far = ww_vf_gt(a, ww_vf_set(0.5f));

	y = ww_vf_asin_poly(ww_vf_sel(far, ww_vf_sqrt((1.0f - a) * 0.5f), x));
	z = y + y;
	z = ww_vf_sel(ww_vf_lt(x, ww_vf_zero()), WW_PI - (z - 2.0f * WW_PI_2_LOST), z);
	return ww_vf_sel(far, z, WW_PI_2 - (y - WW_PI_2_LOST));
}

/* atan(lo / hi) for 0 <= lo <= hi; 0 where both are 0, pi/4 where both are infinite. */
WW_FN ww_vf ww_vf_atan_poly(ww_vf lo, ww_vf hi)
{
	ww_vf t = lo / hi, s, p;

	t = ww_vf_sel(ww_vf_eq(lo, hi), ww_vf_set(1.0f), t);
	t = ww_vf_sel(ww_vf_eq(lo, ww_vf_zero()), lo, t);
	s = t * t;
	p = ww_vf_fma(s, ww_vf_set(-0.00178741443f), ww_vf_set(0.0108868685f));
	p = ww_vf_fma(s, p, ww_vf_set(-0.0311262887f));
	p = ww_vf_fma(s, p, ww_vf_set(0.0579060428f));
	p = ww_vf_fma(s, p, ww_vf_set(-0.084004581f));
	p = ww_vf_fma(s, p, ww_vf_set(0.109511726f));
	p = ww_vf_fma(s, p, ww_vf_set(-0.142640516f));
	p = ww_vf_fma(s, p, ww_vf_set(0.19998531f));
	p = ww_vf_fma(s, p, ww_vf_set(-0.333332986f));
	return ww_vf_fma(t * s, p, t);
}
WW_FN ww_vf ww_vf_atan(ww_vf x)
{
	ww_vf a = ww_vf_abs(x), one = ww_vf_set(1.0f), y = ww_vf_atan_poly(ww_vf_min(one, a), ww_vf_max(one, a));

	return ww_vf_copysign(ww_vf_sel(ww_vf_gt(a, one), WW_PI_2 - (y - WW_PI_2_LOST), y), x);
}
/* The angle of (x, y), with libm's special cases; -0 counts as negative. */
WW_FN ww_vf ww_vf_atan2(ww_vf y, ww_vf x)
{
	ww_vf a = ww_vf_abs(x), b = ww_vf_abs(y), r = ww_vf_atan_poly(ww_vf_min(a, b), ww_vf_max(a, b));

	r = ww_vf_sel(ww_vf_gt(b, a), WW_PI_2 - (r - WW_PI_2_LOST), r);
	r = ww_vf_sel(ww_vi_lt(ww_vi_bits(x), ww_vi_set(0)), WW_PI - (r - 2.0f * WW_PI_2_LOST), r);
	return ww_vf_sel(ww_vm_or(ww_vf_isnan(x), ww_vf_isnan(y)), x + y, ww_vf_copysign(r, y));
}

WW_FN ww_vf ww_vf_sigmoid(ww_vf x) { return 1.0f / (1.0f + ww_vf_exp(-x)); }

/* ---- Activations, with torch's definitions ----------------------------------------------------------------------- */

WW_FN ww_vf ww_vf_relu(ww_vf x) { return ww_vf_max(ww_vf_zero(), x); } /* NaN stays */
WW_FN ww_vf ww_vf_relu6(ww_vf x) { return ww_vf_min(ww_vf_set(6.0f), ww_vf_relu(x)); }
WW_FN ww_vf ww_vf_leaky_relu(ww_vf x, float slope) { return ww_vf_sel(ww_vf_gt(x, ww_vf_zero()), x, x * slope); }
WW_FN ww_vf ww_vf_clamp(ww_vf x, float lo, float hi) { return ww_vf_min(ww_vf_set(hi), ww_vf_max(ww_vf_set(lo), x)); }
WW_FN ww_vf ww_vf_silu(ww_vf x) { return x / (1.0f + ww_vf_exp(-x)); }
WW_FN ww_vf ww_vf_gelu(ww_vf x)
{
	ww_vf h = x * 0.5f;
	return ww_vf_fma(h, ww_vf_erf(x * 0.707106781f), h);
}
WW_FN ww_vf ww_vf_gelu_tanh(ww_vf x)
{
	ww_vf h = x * 0.5f, u = x * ww_vf_fma(x * x, ww_vf_set(0.0356774081f), ww_vf_set(0.797884561f));

	return ww_vf_fma(h, ww_vf_tanh(u), h);
}
/* log(1 + exp(beta x)) / beta, and x itself where beta x > threshold. */
WW_FN ww_vf ww_vf_softplus(ww_vf x, float beta, float threshold)
{
	ww_vf z = x * beta, y = ww_vf_log1p(ww_vf_exp(-ww_vf_abs(z))) + ww_vf_max(ww_vf_zero(), z);

	return ww_vf_sel(ww_vf_gt(z, ww_vf_set(threshold)), x, y / beta);
}
WW_FN ww_vf ww_vf_mish(ww_vf x) { return x * ww_vf_tanh(ww_vf_softplus(x, 1.0f, 20.0f)); }
WW_FN ww_vf ww_vf_elu(ww_vf x, float alpha) { return ww_vf_sel(ww_vf_gt(x, ww_vf_zero()), x, ww_vf_expm1(x) * alpha); }
WW_FN ww_vf ww_vf_selu(ww_vf x) { return ww_vf_elu(x, 1.67326324f) * 1.05070099f; }
WW_FN ww_vf ww_vf_hardsigmoid(ww_vf x) { return ww_vf_clamp(x + 3.0f, 0.0f, 6.0f) * 0.166666667f; }
WW_FN ww_vf ww_vf_hardswish(ww_vf x) { return x * ww_vf_hardsigmoid(x); }
WW_FN ww_vf ww_vf_hardtanh(ww_vf x) { return ww_vf_clamp(x, -1.0f, 1.0f); }
WW_FN ww_vf ww_vf_softsign(ww_vf x) { return x / (1.0f + ww_vf_abs(x)); }
WW_FN ww_vf ww_vf_logsigmoid(ww_vf x) { return ww_vf_min(ww_vf_zero(), x) - ww_vf_log1p(ww_vf_exp(-ww_vf_abs(x))); }
WW_FN ww_vf ww_vf_sign(ww_vf x)
{
	ww_vf s = ww_vf_copysign(ww_vf_set(1.0f), x);

	return ww_vf_sel(ww_vm_or(ww_vf_gt(x, ww_vf_zero()), ww_vf_lt(x, ww_vf_zero())), s, x);
}

/* ---- Computed in double precision -------------------------------------------------------------------------------- */

typedef int64_t ww_vl __attribute__((vector_size(WW_VB)));
#define WW_VD_MAGIC 6755399441055744.0				/* 1.5 * 2^52: adding it rounds to an integer */

WW_FN ww_vd ww_vd_log2(ww_vd x) /* x positive, normal */
{
	ww_vl b = (ww_vl)x, k = (b - 0x3fe6a09e667f3bcdLL) >> 52;
	ww_vd m = (ww_vd)(b - (k << 52)), z = (m - 1.0) / (m + 1.0), t = z * z, p;
	ww_vd e = (ww_vd)(k + 0x4338000000000000LL) - WW_VD_MAGIC;

	p = t * 0.09804688100809257 + 0.11087078379224793;
	p = t * p + 0.1428608426296595;
	p = t * p + 0.1999999743338125;
	p = t * p + 0.33333333339837273;
	p = t * p + 1.0;
	return z * p * 2.8853900817779268 + e;
}

WW_FN ww_vd ww_vd_exp2(ww_vd x) /* |x| <= 1000 */
{
	ww_vd s = x + WW_VD_MAGIC, n = s - WW_VD_MAGIC, r = x - n, p;

	p = r * 1.3175875376693694e-06 + 1.530973829926268e-05;
	p = r * p + 0.0001540385167412804;
	p = r * p + 0.0013333452058919594;
	p = r * p + 0.00961812854295889;
	p = r * p + 0.055504109393451566;
	p = r * p + 0.24022650698879944;
	p = r * p + 0.6931471805465133;
	p = r * p + 0.9999999999997624;
	return (ww_vd)((ww_vl)p + (((ww_vl)s - 0x4338000000000000LL) << 52));
}

WW_FN ww_vd ww_vd_pow(ww_vd x, ww_vd y)
{
	ww_vd l = ww_vd_log2(x) * y;

	for (unsigned i = 0; i < sizeof(l) / sizeof(l[0]); i++)
		l[i] = l[i] > 1000.0 ? 1000.0 : l[i] > -1000.0 ? l[i] : -1000.0;
	return ww_vd_exp2(l);
}

/* x^y with libm's special cases. */
WW_FN ww_vf ww_vf_pow(ww_vf x, ww_vf y)
{
	const ww_vf zero = ww_vf_zero(), one = ww_vf_set(1.0f), inf = ww_vf_set(WW_INF);
	ww_vf a = ww_vf_abs(x), safe, r, half = y * 0.5f;
	ww_vm special = ww_vm_not(ww_vm_and(ww_vf_gt(a, zero), ww_vf_lt(a, inf)));
	ww_vm whole = ww_vf_eq(ww_vf_rint(y), y), odd = ww_vm_and(whole, ww_vf_ne(ww_vf_rint(half), half));
	ww_vm big = ww_vf_gt(a, one), up = ww_vf_gt(y, zero);

	safe = ww_vf_sel(special, one, a);
	r = ww_vf_of_vd(ww_vd_pow(ww_vd_lo(safe), ww_vd_lo(y)), ww_vd_pow(ww_vd_hi(safe), ww_vd_hi(y)));
	/* |x| is 0 or inf, or y is infinite: 0 or inf, by the direction */
	special = ww_vm_or(special, ww_vf_eq(ww_vf_abs(y), inf));
	r = ww_vf_sel(special, ww_vf_sel(ww_vm_xor(big, up), zero, inf), r);
	r = ww_vf_sel(ww_vf_eq(a, one), one, r);
	r = ww_vf_sel(ww_vf_lt(ww_vf_copysign(one, x), zero),
		ww_vf_sel(
			odd, -r, ww_vf_sel(ww_vm_or(whole, ww_vm_or(ww_vf_eq(a, zero), ww_vf_eq(a, inf))), r, ww_vf_set(WW_NAN))),
		r);
	r = ww_vf_sel(ww_vm_or(ww_vf_isnan(x), ww_vf_isnan(y)), x + y, r);
	return ww_vf_sel(ww_vm_or(ww_vf_eq(y, zero), ww_vf_eq(x, one)), one, r);
}

/* r in [-pi/4, pi/4] and k with x = k pi/2 + r, for |x| < 1e6: beyond, two terms of pi/2 no longer suffice. */
WW_FN ww_vf ww_vf_quadrant(ww_vf x, ww_vi *k)
{
	ww_vd lo = ww_vd_lo(x), hi = ww_vd_hi(x), ql, qh;

	ql = (lo * 0.63661977236758134 + WW_VD_MAGIC) - WW_VD_MAGIC;
	qh = (hi * 0.63661977236758134 + WW_VD_MAGIC) - WW_VD_MAGIC;
	lo = (lo - ql * 1.5707963267341256) - ql * 6.0771005065061922e-11; /* the first has 33 bits */
	hi = (hi - qh * 1.5707963267341256) - qh * 6.0771005065061922e-11;
	*k = ww_vi_trunc(ww_vf_of_vd(ql, qh));
	return ww_vf_of_vd(lo, hi);
}
WW_FN int ww_vf_beyond_quadrants(ww_vf x) { return ww_vm_any(ww_vm_not(ww_vf_lt(ww_vf_abs(x), ww_vf_set(1e6f)))); }

/* sin(r) and cos(r) for |r| <= pi/4. */
WW_FN ww_vf ww_vf_sin_poly(ww_vf r)
{
	ww_vf t = r * r, s = ww_vf_fma(t, ww_vf_set(-0.000195108381f), ww_vf_set(0.00833213149f));

	s = ww_vf_fma(t, s, ww_vf_set(-0.166666542f));
	return ww_vf_fma(r * t, s, r);
}
WW_FN ww_vf ww_vf_cos_poly(ww_vf r)
{
	ww_vf t = r * r, c = ww_vf_fma(t, ww_vf_set(2.44312031e-05f), ww_vf_set(-0.0013887306f));

	c = ww_vf_fma(t, c, ww_vf_set(0.0416666456f));
	return ww_vf_fma(t * t, c, ww_vf_fma(t, ww_vf_set(-0.5f), ww_vf_set(1.0f)));
}

/* sin (which = 0) or cos (which = 1); numbers too large for ww_vf_quadrant() by libm, lane by lane. */
WW_FN ww_vf ww_vf_sincos(ww_vf x, int which)
{
	ww_vf r, y;
	ww_vi k;

	if (ww_vf_beyond_quadrants(x)) {
		for (int i = 0; i < WW_VL; i++)
			x[i] = which ? __builtin_cosf(x[i]) : __builtin_sinf(x[i]);
		return x;
	}
	r = ww_vf_quadrant(x, &k);
	k += which;
	y = ww_vf_sel(ww_vi_eq(k & 1, ww_vi_set(0)), ww_vf_sin_poly(r), ww_vf_cos_poly(r));
	return ww_vf_sel(ww_vi_eq(k & 2, ww_vi_set(0)), y, -y);
}
WW_FN ww_vf ww_vf_sin(ww_vf x) { return ww_vf_sincos(x, 0); }
WW_FN ww_vf ww_vf_cos(ww_vf x) { return ww_vf_sincos(x, 1); }
WW_FN ww_vf ww_vf_tan(ww_vf x)
{
	ww_vf r, s, c;
	ww_vm even;
	ww_vi k;

	if (ww_vf_beyond_quadrants(x)) {
		for (int i = 0; i < WW_VL; i++)
			x[i] = __builtin_tanf(x[i]);
		return x;
	}
	r = ww_vf_quadrant(x, &k);
	s = ww_vf_sin_poly(r);
	c = ww_vf_cos_poly(r);
	even = ww_vi_eq(k & 1, ww_vi_set(0));
	return ww_vf_sel(ww_vf_eq(x, ww_vf_zero()), x, ww_vf_sel(even, s, -c) / ww_vf_sel(even, c, s));
}

/* a less a multiple of b > 0.  Of the quotient the first 29 bits are taken, so that their product with a float, and
 * the difference, are exact; a quotient that was rounded up leaves a negative rest. */
WW_FN ww_vd ww_vd_mod_step(ww_vd a, ww_vd b)
{
	ww_vd q = (ww_vd)((ww_vl)(a / b) & ~0xffffffLL);

	return a - ww_vd_trunc(q) * b;
}
/* Exact, with the sign of x: one step where |x / y| < 2^29.  A rest below |y| is a float. */
WW_FN ww_vf ww_vf_fmod(ww_vf x, ww_vf y)
{
	ww_vf a = ww_vf_abs(x), b = ww_vf_abs(y), r;
	ww_vd lo = ww_vd_lo(a), hi = ww_vd_hi(a), b_lo = ww_vd_lo(b), b_hi = ww_vd_hi(b);

	do {
		lo = ww_vd_mod_step(lo, b_lo);
		hi = ww_vd_mod_step(hi, b_hi);
		r = ww_vf_of_vd(lo, hi);
	} while (ww_vm_any(ww_vf_le(b, ww_vf_abs(r))));
	r = ww_vf_sel(ww_vf_lt(r, ww_vf_zero()), r + b, r);
	r = ww_vf_sel(ww_vf_eq(b, ww_vf_set(WW_INF)), a + (a - a), r); /* NaN where x is infinite too */
	return ww_vf_copysign(r, x);
}
/* PyTorch's remainder: with the sign of y. */
WW_FN ww_vf ww_vf_remainder(ww_vf x, ww_vf y)
{
	ww_vf r = ww_vf_fmod(x, y), zero = ww_vf_zero();
	ww_vm other = ww_vm_xor(ww_vf_lt(r, zero), ww_vf_lt(y, zero));

	return ww_vf_sel(ww_vm_and(ww_vf_ne(r, zero), other), r + y, r);
}

#endif
