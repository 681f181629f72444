/* planner_special.h - PyTorch's special functions of one number in single precision; for both targets.
 *
 * Included by <ww/planner.cuh> and <ww/cpu/planner.h>.  Each is a polynomial in t, which is -1 to 1 over an interval,
 * or two with a choice: truncated Chebyshev series of the functions, to 1e-7 of the result at most.  Double precision
 * is PyTorch's.
 *
 *     modified Bessel functions of the first kind   |x| <= 4: in x^2; beyond: e^x / sqrt(x) times one in 1 / x
 *     of the second kind                            x <= 2: log(x / 2) times the first kind and one in x^2; beyond as
 * above e^(x^2) erfc(x)                               1 / (1 + 2x) times one in (x - 3) / (x + 3); left of 0 by
 * reflection the inverse of erf                            x times one in w = -log(1 - x^2), from w = 5 on in 1 /
 * sqrt(w)
 */
#ifndef WW_PLANNER_SPECIAL_H
#define WW_PLANNER_SPECIAL_H

#define PL_SERIES(t, ...) \
	const float c_[] = { __VA_ARGS__ }; \
	float r_ = 0.0f; \
	for (int i = sizeof(c_) / sizeof(*c_) - 1; i >= 0; i--) r_ = r_ * (t) + c_[i]; \
	return r_

PL_FN float pl_i0_near(float t)
{
	PL_SERIES(t, 4.25235081f, 4.78966618f, 1.85751784f, 0.358210206f, 0.0409283899f, 0.00307810353f, 0.000163875506f,
		6.45923137e-06f);
}

PL_FN float pl_i1_near(float t)
{
	PL_SERIES(t, 1.19741654f, 0.928758919f, 0.268657655f, 0.0409286357f, 0.00384762604f, 0.000245223928f,
		1.13063243e-05f, 3.92892844e-07f);
}

PL_FN float pl_i0_far(float t)
{
	PL_SERIES(t, 0.405686349f, 0.00734922243f, 0.000735487265f, 0.000188121936f, 7.72799831e-05f, 1.92425659e-07f,
		-3.17447812e-05f, -6.77244361e-06f, 5.70424572e-06f);
}

PL_FN float pl_i1_far(float t)
{
	PL_SERIES(t, 0.379412264f, -0.0204862356f, -0.00112592953f, -0.000238344015f, -9.25004933e-05f, -3.98325483e-06f,
		3.38819627e-05f, 8.28045722e-06f, -5.74601563e-06f);
}

PL_FN float pl_k0_near(float t)
{
	PL_SERIES(t, -0.303620785f, 0.340497315f, 0.0717769787f, 0.00505339215f, 0.000182896969f, 4.05566561e-06f);
}

PL_FN float pl_k1_near(float t)
{
	PL_SERIES(t, 0.885088265f, -0.332240969f, -0.243838131f, -0.0278542265f, -0.00138423115f, -3.89344968e-05f);
}

PL_FN float pl_k0_far(float t)
{
	PL_SERIES(t, 1.21853316f, -0.0309972037f, 0.00301815895f, -0.000476287853f, 9.73089627e-05f, -2.37769964e-05f,
		8.69584619e-06f, -2.91894958e-06f);
}

PL_FN float pl_k1_far(float t)
{
	PL_SERIES(t, 1.36335862f, 0.103120811f, -0.00554039562f, 0.000730426866f, -0.000136684088f, 3.16617225e-05f,
		-1.10084502e-05f, 3.59642627e-06f);
}

/* e^(p x) times I0(x), and I1(x); p is 0 or -1.  x is not negative: e^x is two factors, since the result overflows
 * later. */
PL_FN float pl_i0_by(float x, float p)
{
	const float e = expf(0.5f * (1.0f + p) * x);

	return x <= 4.0f ? pl_i0_near(x * x * 0.125f - 1.0f) * expf(p * x)
					 : pl_i0_far(pl_quotientf(8.0f, x) - 1.0f) * pl_rsqrtf(x) * e * e;
}

PL_FN float pl_i1_by(float x, float p)
{
	const float e = expf(0.5f * (1.0f + p) * x);

	return x <= 4.0f ? x * pl_i1_near(x * x * 0.125f - 1.0f) * expf(p * x)
					 : pl_i1_far(pl_quotientf(8.0f, x) - 1.0f) * pl_rsqrtf(x) * e * e;
}

PL_FN float pl_i0f(float a) { return pl_i0_by(fabsf(a), 0.0f); }
PL_FN float pl_i0ef(float a) { return fabsf(a) < 1e38f ? pl_i0_by(fabsf(a), -1.0f) : 1.0f / fabsf(a); }
PL_FN float pl_i1f(float a) { return copysignf(pl_i1_by(fabsf(a), 0.0f), a); }
PL_FN float pl_i1ef(float a) { return copysignf(fabsf(a) < 1e38f ? pl_i1_by(fabsf(a), -1.0f) : 1.0f / fabsf(a), a); }

/* e^(p x) times K0(x), and K1(x); p is 0 or 1.  Infinite at 0, NaN left of it. */
PL_FN float pl_k0_by(float x, float p)
{
	return x <= 2.0f
		? (pl_k0_near(x * x * 0.5f - 1.0f) - logf(0.5f * x) * pl_i0_near(x * x * 0.125f - 1.0f)) * expf(p * x)
		: pl_k0_far((pl_quotientf(1.0f, x) - 0.2505f) * 4.00801603f) * pl_rsqrtf(x) * (p > 0.0f ? 1.0f : expf(-x));
}

PL_FN float pl_k1_by(float x, float p)
{
	if (x <= 0.0f)
		return x == 0.0f ? 1.0f / fabsf(x) : logf(x);
	return x <= 2.0f
		? (pl_quotientf(pl_k1_near(x * x * 0.5f - 1.0f), x) + logf(0.5f * x) * x * pl_i1_near(x * x * 0.125f - 1.0f)) *
			expf(p * x)
		: pl_k1_far((pl_quotientf(1.0f, x) - 0.2505f) * 4.00801603f) * pl_rsqrtf(x) * (p > 0.0f ? 1.0f : expf(-x));
}

PL_FN float pl_k0f(float a) { return pl_k0_by(a, 0.0f); }
PL_FN float pl_k0ef(float a) { return pl_k0_by(a, 1.0f); }
PL_FN float pl_k1f(float a) { return pl_k1_by(a, 0.0f); }
PL_FN float pl_k1ef(float a) { return pl_k1_by(a, 1.0f); }

PL_FN float pl_erfcx_right(float t)
{
	PL_SERIES(t, 1.25300801f, -0.135621071f, -0.0475621559f, 0.129644111f, -0.119275272f, 0.0683165714f, -0.0237635765f,
		0.00249911682f, 0.00187507912f, -0.000726453669f, -9.25451677e-05f, 7.73102365e-05f);
}

/* e^(x^2) erfc(x).  The square is rounded, and what was lost of it is added. */
PL_FN float pl_erfcxf(float a)
{
	const float x = fminf(fabsf(a), 4e37f),
				r = pl_quotientf(pl_erfcx_right(pl_quotientf(x - 3.0f, x + 3.0f)), 1.0f + 2.0f * x);
	const float s = fminf(x * x, 1e4f), e = expf(s) * (s < 1e4f ? 1.0f + fmaf(x, x, -s) : 1.0f);

	return a != a ? a : a < 0.0f ? 2.0f * e - r : r;
}

/* The logarithm of the normal distribution's share left of a. */
PL_FN float pl_log_ndtrf(float a)
{
	return a < -1.0f ? logf(0.5f * pl_erfcxf(a * -0.707106781f)) - 0.5f * a * a
					 : log1pf(-0.5f * erfcf(a * 0.707106781f));
}

PL_FN float pl_erfinv_near(float t)
{
	PL_SERIES(t, 1.50140941f, 0.616600752f, -0.0261086859f, -0.0195741933f, 0.008529176f, -0.000484349963f,
		-0.000845545961f, 0.000284075155f, 3.55313787e-05f, -3.33398093e-05f);
}

PL_FN float pl_erfinv_far(float t)
{
	PL_SERIES(t, 0.954917192f, -0.0330954492f, 0.00362143386f, 0.00282500102f, 0.00052760297f, 0.00170039409f,
		0.000590072654f, -0.000687850988f, -0.000578773266f, 0.000142996083f, 0.000158030642f);
}

/* Where x is not within -1 and 1. */
PL_FN float pl_inverse_edge(float x) { return fabsf(x) == 1.0f ? x * PL_INFF : logf(-fabsf(x)); }

/* What erf has the value x at, times `scale`; left: 1 - x^2, exactly. */
PL_FN float pl_erfinv_of(float x, float left)
{
	const float w = -logf(left), u = pl_rsqrtf(w);

	return x * (w <= 5.0f ? pl_erfinv_near(0.4f * w - 1.0f) : w * u * pl_erfinv_far((u - 0.27569013f) * 5.83010254f));
}

PL_FN float pl_erfinvf(float a)
{
	return fabsf(a) < 1.0f ? pl_erfinv_of(a, (1.0f - a) * (1.0f + a)) : pl_inverse_edge(a);
}

/* What the normal distribution has the share a left of. */
PL_FN float pl_ndtrif(float a)
{
	const float x = (a - 0.5f) + (a - 0.5f);

	return a > 0.0f && a < 1.0f ? 1.41421356f * pl_erfinv_of(x, 4.0f * a * (1.0f - a))
								: pl_inverse_edge(a < 0.0f ? -2.0f : x);
}

#undef PL_SERIES
#endif
