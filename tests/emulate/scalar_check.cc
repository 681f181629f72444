/* scalar_check.cc - sigmoids of the cuda headers on the cpu against those in double, over all arguments with a result
 * that is not zero: four units in the last place and 2^-142, which is x times the last place of an e^x below the normal
 * numbers.  A fast division is 0 where the divisor is beyond 2^126, as 1 + e^-x is for x below -87.3.  Prints how many
 * are wrong. */
#include "device.h"

#define IX64_ 0
#include <ww/planner.cuh>

#include <array>
#include <cstdio>
#include <vector>

static int bad;

static void compare(const char *what, float x, float found, double exact)
{
	if (fabs(found - exact) <= fabs(exact) * 0x1p-21 + 0x1p-142)
		return;
	if (!bad++)
		fprintf(stderr, "%s(%.9g) is %.9g, not %.9g\n", what, x, found, exact);
}

int main()
{
	for (float x = -104; x <= 104; x += 0x1p-8f) {
		const double s = 1 / (1 + exp(-(double)x));

		compare("pl_sigmoidf", x, pl_sigmoidf(x), s);
		compare("ww::sigmoid", x, ww::sigmoid(x), s);
		compare("ww::silu", x, ww::silu(x), x * s);
	}
	for (const auto &x : std::vector<std::array<double, 2>>{ { 1, -0.57721566490153286 }, { 0.5, -1.9635100260214235 },
			 { -0.5, 0.03648997397857652 }, { 10, 2.2517525890667211 }, { 1e-3, -1000.5755719318103 } })
		bad += !(fabs(pl_digamma(x[0]) - x[1]) <= 1e-14 * (1 + fabs(x[1])));
	for (float x = -8.4375f; x <= 600; x += 0.0625f) {
		const double exact = pl_digamma(x);

		bad += x == floorf(x) && x <= 0 ? pl_digammaf(x) >= 0 || exact >= 0
										: !(fabs(pl_digammaf(x) - exact) <= 4e-6 * (1 + fabs(exact)));
	}
	bad += !(pl_digammaf(-0.0f) == INFINITY && pl_digammaf(INFINITY) == INFINITY && pl_digammaf(NAN) != 0);
	for (float x : { -INFINITY, INFINITY })
		bad += pl_sigmoidf(x) != (x > 0) || ww::sigmoid(x) != (x > 0);
	for (float v : { pl_sigmoidf(NAN), ww::sigmoid(NAN), ww::silu(NAN) })
		bad += v == v;
	printf("%d\n", bad);
}
