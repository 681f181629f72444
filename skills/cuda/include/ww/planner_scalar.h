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
