/* sort_check.cc - <ww/sort.cuh> on the cpu: rows of all lengths and types with equal elements, both zeros, infinities
 * and NaN, up and down, along the last and a middle axis, whole and in part, places and values, against what comes
 * before by definition.  Prints how many are wrong. */
#include "device.h"
#include <ww/sort.cuh>

#include <algorithm>
#include <vector>

static unsigned seed = 1;
static unsigned draw(unsigned n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

template <class T> struct rows {
	const T *x;
	float *out;
	int len, count;
	long long inner;

	template <int N> void load(long long o, long long l, long long i, float (&v)[N]) const
	{
		v[0] = ww::to_float(x[(o * len + l) * inner + i]);
	}
	template <int N> void store(long long o, long long l, long long i, const float (&v)[N]) const
	{
		for (int k = 0; k < N; k++)
			out[(o * count + l + k) * inner + i] = v[k];
	}
};

static bool same(float a, float b) { return a == b || (a != a && b != b); }

/* VEC 0: by select_rows(), below it by first_rows(). */
template <class T, int TYPE, int EACH, int TPR, int VEC, bool VALUES = false>
static int wrong(long long outer, int len, long long inner, int first, int count, bool descending)
{
	static const float special[] = { 0.f, -0.f, INFINITY, -INFINITY, NAN, -NAN, 1e-30f, -65504.f };
	const int threads = TPR > 128 || (VEC <= 0 && TPR > 32) ? TPR : 128;
	std::vector<T> x(outer * len * inner);
	std::vector<float> out(outer * count * inner, -1.f);
	const rows<T> f = { x.data(), out.data(), len, count, inner };
	int bad = 0;

	for (T &v : x)
		v = ww::from_float<T>(draw(8) ? ((float)draw(4000) - 2000.f) / 64.f : special[draw(8)]);
	host::launch((outer * inner + threads / TPR - 1) / (threads / TPR), 1, 1, threads, 1, [&] {
		if constexpr (VEC < 0)
			ww::first_rows<TYPE, EACH, TPR, -VEC, VALUES>(outer, len, count, descending, f);
		else if constexpr (VEC)
			ww::sort_rows<TYPE, EACH, TPR, threads, VEC, VALUES>(outer, len, inner, first, count, descending, f);
		else
			ww::select_rows<TYPE, EACH, TPR, VALUES>(outer, len, first, descending, f);
	});
	for (long long r = 0; r < outer * inner; r++) {
		const long long at = r / inner * len * inner + r % inner;
		std::vector<int> order(len);

		for (int l = 0; l < len; l++)
			order[l] = l;
		std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
			const float u = ww::to_float(x[at + a * inner]), v = ww::to_float(x[at + b * inner]);
			return descending ? u > v || (u != u && v == v) : u < v || (v != v && u == u);
		});
		for (int l = 0; l < count; l++) {
			const int from = order[first + l];

			bad += !same(out[(r / inner * count + l) * inner + r % inner],
				VALUES ? ww::to_float(x[at + from * inner]) : (float)from);
		}
	}
	if (bad)
		fprintf(stderr, "type %d, %d x %d threads, %lld x %d x %lld, %d from %d: %d wrong\n", TYPE, EACH, TPR, outer,
			len, inner, count, first, bad);
	return bad > 0;
}

int main()
{
	int n = 0;

	n += wrong<float, ww::SORT_F32, 4, 1, 1>(9, 3, 1, 0, 3, false);
	n += wrong<float, ww::SORT_F32, 4, 4, 4>(70, 16, 1, 0, 16, true);
	n += wrong<float, ww::SORT_F32, 4, 32, 1>(3, 97, 5, 7, 20, false);
	n += wrong<float, ww::SORT_F32, 4, 64, 1>(5, 224, 1, 7, 1, false);
	n += wrong<float, ww::SORT_F32, 4, 256, 4>(2, 1000, 1, 4, 400, true);
	n += wrong<float, ww::SORT_F32, 4, 1024, 1>(1, 3001, 1, 0, 3001, false);
	n += wrong<float, ww::SORT_F32, 32, 1, 1>(11, 27, 13, 0, 27, true);
	n += wrong<float, ww::SORT_F32, 16, 8, 1>(6, 100, 3, 0, 100, false);
	n += wrong<__half, ww::SORT_F16, 4, 128, 4>(3, 448, 1, 0, 448, false);
	n += wrong<__half, ww::SORT_F16, 8, 2, 1>(70, 11, 1, 0, 11, true);
	n += wrong<__nv_bfloat16, ww::SORT_BF16, 4, 4, 4>(70, 16, 1, 0, 8, true);
	n += wrong<__nv_bfloat16, ww::SORT_BF16, 4, 512, 1>(1, 2047, 1, 0, 2047, false);
	n += wrong<float, ww::SORT_F32, 8, 16, 4, true>(9, 128, 1, 0, 128, false);
	n += wrong<float, ww::SORT_F32, 4, 64, 1, true>(3, 200, 5, 7, 20, true);
	n += wrong<float, ww::SORT_F32, 16, 1, 1, true>(11, 9, 3, 0, 9, true);
	n += wrong<__half, ww::SORT_F16, 8, 64, 4, true>(3, 448, 1, 0, 448, true);
	n += wrong<__nv_bfloat16, ww::SORT_BF16, 8, 128, 4, true>(2, 704, 1, 0, 704, false);
	n += wrong<__nv_bfloat16, ww::SORT_BF16, 4, 4, 4, true>(70, 16, 1, 0, 8, true);
	for (int first : { 0, 1, 574, 575, 1150, 1151 })
		n += wrong<float, ww::SORT_F32, 36, 32, 0>(9, 1152, 1, first, 1, first % 2) +
			wrong<float, ww::SORT_F32, 5, 256, 0, true>(2, 1152, 1, first, 1, !(first % 2));
	for (int first : { 0, 63, 127, 254, 255, 256 })
		n += wrong<__half, ww::SORT_F16, 9, 32, 0>(6, 257, 1, first, 1, first % 2) +
			wrong<__nv_bfloat16, ww::SORT_BF16, 5, 64, 0>(3, 257, 1, first, 1, !(first % 2)) +
			wrong<__half, ww::SORT_F16, 9, 32, 0, true>(6, 257, 1, first, 1, !(first % 2));
	n += wrong<float, ww::SORT_F32, 32, 128, 0>(2, 4096, 1, 2047, 1, false);
	for (int count : { 1, 2, 7, 31, 32 })
		n += wrong<float, ww::SORT_F32, 36, 32, -32>(9, 1152, 1, 0, count, count % 2) +
			wrong<float, ww::SORT_F32, 5, 256, -32, true>(2, 1152, 1, 0, count, !(count % 2)) +
			wrong<float, ww::SORT_F32, 9, 32, -32>(9, 257, 1, 0, count, !(count % 2)) +
			wrong<__half, ww::SORT_F16, 9, 32, -32>(6, 257, 1, 0, count, count % 2) +
			wrong<__nv_bfloat16, ww::SORT_BF16, 5, 64, -32>(3, 257, 1, 0, count, !(count % 2)) +
			wrong<__half, ww::SORT_F16, 9, 32, -32, true>(6, 257, 1, 0, count, !(count % 2));
	n += wrong<float, ww::SORT_F32, 8, 1024, -128>(1, 7616, 1, 0, 128, true);
	n += wrong<float, ww::SORT_F32, 4, 64, -64>(2, 64, 1, 0, 64, false); /* of padding none */
	printf("%d\n", n);
	return 0;
}
