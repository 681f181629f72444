/* scan_check.cc - scans on the cpu: odd sizes, along the last and a middle axis, each number of threads that share one,
 * against sums one after the other.  Prints how many are wrong. */
#include "device.h"
#include <ww/scan.cuh>

#include <cstdio>
#include <vector>

static unsigned seed = 1;
static float draw()
{
	seed = seed * 1664525u + 1013904223u;
	return (float)(seed >> 8) / (1 << 23) - 1.f;
}

struct both {
	const float *x;
	float *y;
	long long len, inner;

	long long at(long long o, long long l, long long i) const { return (o * len + l) * inner + i; }
	template <int N> void load(long long o, long long l, long long i, float (&v)[N]) const
	{
		ww::load(x + at(o, l, i), v);
	}
	template <int N> void store(long long o, long long l, long long i, const float (&v)[N]) const
	{
		ww::store(y + at(o, l, i), v);
	}
	template <int N> void load(long long r, long long c, float (&v)[N]) const { ww::load(x + r * len + c, v); }
	template <int N> void store(long long r, long long c, const float (&v)[N]) const { ww::store(y + r * len + c, v); }
};

struct data {
	std::vector<float> x, y;

	data(long long n) : x(n), y(n, NAN)
	{
		for (float &v : x)
			v = draw();
	}
	both f(long long len, long long inner) { return { x.data(), y.data(), len, inner }; }
	template <int OP, bool BACK = false, bool EXCLUDED = false>
	int wrong(long long outer, long long len, long long inner) const
	{
		double worst = 0;

		for (long long o = 0; o < outer; o++)
			for (long long i = 0; i < inner; i++) {
				double sum = OP == ww::OP_SUM ? 0 : -INFINITY;
				for (long long l = 0; l < len; l++) {
					const long long at = (o * len + (BACK ? len - 1 - l : l)) * inner + i;
					const double before = sum;
					sum = OP == ww::OP_SUM       ? sum + (double)x[at]
						: OP == ww::OP_MAX || !l ? fmax(sum, (double)x[at])
												 : fmax(sum, (double)x[at]) + log1p(exp(-fabs(sum - (double)x[at])));
					const double off = EXCLUDED ? before - (double)y[at] : sum - (double)y[at];
					worst = y[at] == y[at] ? fmax(worst, before == y[at] ? 0 : fabs(off)) : INFINITY;
				}
			}
		return !(worst < 2e-5);
	}
};

template <int OP, int VEC, int LANES, int PARTS, bool BACK = false>
static int mid(long long outer, long long len, long long inner)
{
	data d(outer * len * inner);
	const both f = d.f(len, inner);

	host::launch((outer * inner / VEC + LANES - 1) / LANES, 1, 1, LANES * PARTS, 1,
		[&] { ww::scan_mid<OP, VEC, LANES, PARTS, BACK>(outer, len, inner, f); });
	return d.wrong<OP, BACK>(outer, len, inner);
}

template <int TPR, int VEC, int CHUNKS, int OP = ww::OP_SUM, bool BACK = false, bool ALWAYS = false,
	bool EXCLUDED = false>
static int rows(long long outer, long long len)
{
	data d(outer * len);
	const both f = d.f(len, 1);

	host::launch(TPR > 32 ? outer : (outer + 128 / TPR - 1) / (128 / TPR), 1, 1, TPR > 32 ? TPR : 128, 1,
		[&] { ww::scan_rows<OP, TPR, VEC, CHUNKS, BACK, ALWAYS, EXCLUDED>(outer, len, f); });
	return d.wrong<OP, BACK, EXCLUDED>(outer, len, 1);
}

/* A row kernel's scan of the row that its threads hold. */
template <int T, int VEC, int CHUNKS, int OP = ww::OP_SUM, bool BACK = false> static int held(long long outer, int len)
{
	data d(outer * len);
	const both f = d.f(len, 1);

	host::launch(outer, 1, 1, T, 1, [&] {
		__shared__ double box[64];
		float v[CHUNKS][VEC];

		ww::scan_clear<OP>(v);
		for (int j = 0; j < CHUNKS; j++)
			if ((j * T + (int)threadIdx.x) * VEC < len)
				f.load<VEC>(blockIdx.x, (j * T + threadIdx.x) * VEC, v[j]);
		ww::scan_held<OP, T, BACK>(v, box);
		for (int j = 0; j < CHUNKS; j++)
			if ((j * T + (int)threadIdx.x) * VEC < len)
				f.store<VEC>(blockIdx.x, (j * T + threadIdx.x) * VEC, v[j]);
	});
	return d.wrong<OP, BACK>(outer, len, 1);
}

int main()
{
	int n = 0;

	n += mid<ww::OP_SUM, 1, 128, 1>(3, 1, 5) + mid<ww::OP_SUM, 1, 128, 1>(2, 37, 70) +
		mid<ww::OP_MAX, 2, 64, 1>(5, 16, 34);
	n += mid<ww::OP_SUM, 1, 64, 2>(3, 17, 50) + mid<ww::OP_SUM, 1, 32, 4>(7, 32, 19) +
		mid<ww::OP_SUM, 4, 32, 8>(2, 203, 36);
	n += mid<ww::OP_MAX, 1, 32, 8>(3, 65, 41) + mid<ww::OP_SUM, 1, 32, 4>(1, 131, 1);
	n += rows<32, 1, 1>(3, 77) + rows<32, 4, 4>(6, 516) + rows<64, 1, 2>(2, 601) + rows<256, 4, 1>(1, 1032);
	n += rows<4, 4, 1>(70, 16) + rows<8, 1, 4>(21, 27) + rows<16, 2, 2>(9, 130) + rows<4, 1, 1>(33, 3);
	n += mid<ww::OP_LOGSUMEXP, 1, 32, 4>(3, 65, 41) + rows<32, 4, 1, ww::OP_LOGSUMEXP>(6, 516);
	n += rows<64, 1, 2, ww::OP_LOGSUMEXP>(2, 601) + rows<1, 4, 4, ww::OP_LOGSUMEXP>(131, 16);
	n += rows<1, 1, 8>(130, 11) + rows<2, 4, 1>(70, 8) + rows<2, 2, 2>(65, 26);
	n += mid<ww::OP_SUM, 2, 64, 2, true>(3, 17, 50) + mid<ww::OP_MAX, 1, 32, 1, true>(2, 9, 41);
	n += rows<32, 4, 4, ww::OP_SUM, true>(6, 516) + rows<64, 1, 2, ww::OP_MAX, true>(2, 601);
	n += rows<1, 4, 4, ww::OP_LOGSUMEXP, true>(131, 16) + rows<8, 1, 4, ww::OP_SUM, true>(21, 27);
	n += rows<2, 8, 2>(67, 24) + rows<64, 8, 4, ww::OP_MAX>(2, 3000);
	n += rows<2, 8, 2, ww::OP_SUM, false, true>(67, 24) + rows<4, 4, 2, ww::OP_MAX, true, true>(35, 36);
	n += rows<64, 8, 4, ww::OP_SUM, false, true>(2, 3000) + rows<64, 1, 2, ww::OP_SUM, true, true>(2, 601);
	n += rows<1, 4, 4, ww::OP_SUM, false, false, true>(131, 40) + rows<4, 1, 2, ww::OP_MAX, false, false, true>(33, 19);
	n += rows<32, 4, 1, ww::OP_SUM, false, false, true>(6, 516) +
		rows<64, 4, 2, ww::OP_SUM, false, false, true>(2, 3000);
	n += rows<96, 1, 4, ww::OP_SUM, true, false, true>(2, 601);
	n += held<32, 4, 2>(3, 204) + held<64, 1, 3, ww::OP_MAX>(2, 133) + held<32, 4, 2, ww::OP_SUM, true>(3, 204);
	n += held<32, 1, 4, ww::OP_MAX, true>(2, 101) + held<64, 1, 3, ww::OP_MAX, true>(2, 133);
	n += held<256, 4, 5, ww::OP_SUM, true>(1, 4100);
	printf("%d\n", n);
	return 0;
}
