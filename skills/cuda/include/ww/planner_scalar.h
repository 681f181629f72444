/* planner_scalar.h - PyTorch's scalar operations that differ from C's; for both targets.
 *
 * Included by <ww/planner.cuh> and <ww/cpu/planner.h>, which define PL_FN.  Names end with f for float, with i for
 * long long, and with nothing for double.
 *
 * Maximum and minimum keep NaN, whichever operand it is.  Remainder and quotient round towards minus infinity (C:
 * towards zero); of integers by 0 they are 0, where PyTorch raises.  Floats whose functions a GPU
 * has instructions for are in those two headers. */
#ifndef WW_PLANNER_SCALAR_H
#define WW_PLANNER_SCALAR_H

PL_FN double pl_quotient(double a, double b) { return a / b; }
PL_FN double pl_rsqrt(double a) { return 1.0 / sqrt(a); }
PL_FN double pl_sigmoid(double a) { return 1.0 / (1.0 + exp(-a)); }
PL_FN double pl_expm1(double a) { return expm1(a); }
PL_FN double pl_log1p(double a) { return log1p(a); }
PL_FN double pl_log1p_unit(double a) { return log1p(a); }
PL_FN double pl_max(double a, double b) { return a != a || a > b ? a : b; }
PL_FN double pl_min(double a, double b) { return a != a || a < b ? a : b; }
PL_FN int pl_signbit(double a) { return a < 0.0 || (a == 0.0 && 1.0 / a < 0.0); }
PL_FN long long pl_maxi(long long a, long long b) { return a > b ? a : b; }
PL_FN long long pl_mini(long long a, long long b) { return a < b ? a : b; }
PL_FN long long pl_absi(long long a) { return a < 0 ? -a : a; }
PL_FN float pl_signf(float a) { return (float)((a > 0.0f) - (a < 0.0f)); }
PL_FN double pl_sign(double a) { return (double)((a > 0.0) - (a < 0.0)); }
PL_FN long long pl_signi(long long a) { return (a > 0) - (a < 0); }

/* The derivative of log(gamma(a)): as PyTorch, infinite at 0 and NaN at negative whole numbers.  a is raised to 6
 * (double: 12) or more, where the sum of 1 / (a + i) so far is one quotient, p / q; then by the asymptotic series of
 * Bernoulli's numbers.  Left of 0 by reflection. */
PL_FN float pl_digammaf(float a)
{
	float x = a < 0.0f ? 1.0f - a : a, p = 0.0f, q = 1.0f, z, r;

	for (int i = 0; i < 6; i++) {
		const float up = x < 6.0f ? x : 1.0f;

		p = x < 6.0f ? p * x + q : p;
		q *= up;
		x += x < 6.0f ? 1.0f : 0.0f;
	}
	z = 1.0f / (x * x);
	r = logf(x) - 0.5f / x - z * (0.083333333f - z * (0.0083333333f - z * (0.0039682540f - z * 0.0041666667f))) - p / q;
	if (a < 0.0f)
		r -= 3.14159265f / tanf(3.14159265f * (a - truncf(a)));
	return a == 0.0f ? -1.0f / a : a < 0.0f && a == truncf(a) ? sqrtf(a) : r;
}

PL_FN double pl_digamma(double a)
{
	double x = a < 0.0 ? 1.0 - a : a, p = 0.0, z, r;

	for (; x < 12.0; x += 1.0)
		p += 1.0 / x;
	z = 1.0 / (x * x);
	r = 1.0 / 132.0 - z * (691.0 / 32760.0 - z * (1.0 / 12.0 - z * (3617.0 / 8160.0)));
	r = 1.0 / 12.0 - z * (1.0 / 120.0 - z * (1.0 / 252.0 - z * (1.0 / 240.0 - z * r)));
	r = log(x) - 0.5 / x - z * r - p;
	if (a < 0.0)
		r -= 3.14159265358979323846 / tan(3.14159265358979323846 * (a - trunc(a)));
	return a == 0.0 ? -1.0 / a : a < 0.0 && a == trunc(a) ? sqrt(a) : r;
}

PL_FN float pl_remf(float a, float b)
{
	float r = fmodf(a, b);

	return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

PL_FN double pl_rem(double a, double b)
{
	double r = fmod(a, b);

	return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

PL_FN long long pl_remi(long long a, long long b)
{
	long long r = b ? a % b : 0;

	return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

PL_FN long long pl_fdivi(long long a, long long b)
{
	long long q = b ? a / b : 0;

	return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

/* 1 where b is negative. */
PL_FN long long pl_powi(long long a, long long b)
{
	long long r = 1;

	while (b-- > 0)
		r *= a;
	return r;
}

#endif
