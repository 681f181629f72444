/* special_check.cc - the planner's special functions on the cpu against those of C++ in double: Bessel's and erfc from
 * tiny arguments to large ones, inverses by what they are inverses of.  Prints how many are wrong. */
#include "device.h"

#define IX64_ 0
#include <ww/planner.cuh>

static int bad;

static void compare(const char *what, double x, double found, double exact)
{
	if (fabs(found - exact) <= 2e-6 * fabs(exact) + 1e-37 || (fabs(exact) > 3e38 && fabs(found) > 3e38))
		return;
	if (!bad++)
		fprintf(stderr, "%s(%.9g) is %.9g, not %.9g\n", what, x, found, exact);
}

/* The larger of log(log erfc) is off by the same share of the argument. */
static void inverses(float p)
{
	const double x = pl_ndtrif(p), y = pl_erfinvf(p), density = exp(-x * x / 2) / 2.5066282746310002;
	const double off = (0.5 * erfc(-x / sqrt(2.0)) - p) / density,
				 off_y = (erf(y) - p) / (exp(-y * y) * 1.1283791670955126);

	compare("ndtri", p, x, x - off);
	compare("erfinv", p, y, y - off_y);
	bad += pl_erfinvf(-p) != -pl_erfinvf(p);
}

int main()
{
	for (float x = 1e-6f; x < 600; x *= 1.0078125f) {
		const double k0 = std::cyl_bessel_k(0.0, x), k1 = std::cyl_bessel_k(1.0, x), e = exp(-(double)x);
		const double i0 = std::cyl_bessel_i(0.0, x), i1 = std::cyl_bessel_i(1.0, x);

		compare("i0", x, pl_i0f(x), i0);
		compare("i0e", -x, pl_i0ef(-x), i0 * e);
		compare("i1", -x, pl_i1f(-x), -i1);
		compare("i1e", x, pl_i1ef(x), i1 * e);
		compare("k0", x, pl_k0f(x), k0);
		compare("k0e", x, pl_k0ef(x), k0 / e);
		compare("k1", x, pl_k1f(x), k1);
		compare("k1e", x, pl_k1ef(x), k1 / e);
		if (x < 25)
			compare("erfcx", x, pl_erfcxf(x), exp((double)x * x) * erfc((double)x));
		if (x < 9)
			compare("erfcx", -x, pl_erfcxf(-x), exp((double)x * x) * erfc(-(double)x));
		if (x < 36)
			compare("log_ndtr", -x, pl_log_ndtrf(-x), log(0.5 * erfc((double)x / sqrt(2.0))));
		if (x < 5)
			compare("log_ndtr", x, pl_log_ndtrf(x), log1p(-0.5 * erfc((double)x / sqrt(2.0))));
	}
	for (float p = 1e-36f; p < 1e-3f; p *= 1.25f)
		inverses(p);
	for (float p = 0.001f; p < 0.999f; p += 0.001f)
		inverses(p);
	bad += !(pl_i0f(0) == 1 && pl_i1ef(0) == 0 && pl_i0ef(INFINITY) == 0 && pl_i1ef(-INFINITY) == 0 &&
		pl_i1f(-100) == -INFINITY);
	bad += !(pl_k0f(0) == INFINITY && pl_k1f(0) == INFINITY && pl_k0f(-1) != pl_k0f(-1) && pl_k1ef(-1) != pl_k1ef(-1));
	bad += !(pl_erfcxf(-20) == INFINITY && pl_erfcxf(1e35f) < 1e-35f && pl_erfcxf(INFINITY) < 1e-30f);
	bad += !(pl_erfinvf(1) == INFINITY && pl_erfinvf(-1) == -INFINITY && pl_erfinvf(2) != pl_erfinvf(2));
	bad += !(pl_ndtrif(0) == -INFINITY && pl_ndtrif(1) == INFINITY && pl_ndtrif(-1) != pl_ndtrif(-1));
	bad += !(pl_k0f(INFINITY) == 0 && pl_k0ef(INFINITY) == 0 && pl_k1f(INFINITY) == 0 && pl_k1ef(INFINITY) == 0);
	for (float v : { pl_ndtrif(-1e-30f), pl_j0f(INFINITY), pl_j1f(-INFINITY), pl_y0f(INFINITY), pl_y1f(INFINITY) })
		bad += v == v;
	for (float v : { pl_i0f(NAN), pl_i0ef(NAN), pl_i1f(NAN), pl_i1ef(NAN), pl_k0f(NAN), pl_k1ef(NAN), pl_erfcxf(NAN),
			 pl_log_ndtrf(NAN), pl_erfinvf(NAN), pl_ndtrif(NAN) })
		bad += v == v;
	printf("%d\n", bad);
}
