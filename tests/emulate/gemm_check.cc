/* gemm_check.cc - gemm_mma on the cpu: small products of odd sizes, each type, tile and order of the operands, against
 * sums in double.  Prints how many are wrong. */
#include "device.h"
#include <ww/gemm.cuh>

#include <cstdio>
#include <vector>

template <class T> struct out {
	float *d;
	int m, n;
	int *apart = 0; /* counts single elements that half a warp does not store side by side */
	template <int N> void store(int z, int row, int col, const float (&v)[N]) const
	{
		for (int i = 0; i < N; i++)
			d[((long long)z * m + row) * n + col + i] = v[i];
		if (apart)
			*apart += N == 1 && (col - (int)threadIdx.x) % 16 != 0;
	}
};

static unsigned seed = 1;
static float draw()
{
	seed = seed * 1664525u + 1013904223u;
	return (float)(seed >> 8) / (1 << 23) - 1.f;
}

/* The same, of an operand that is computed: (m, k) a batch item. */
template <class T> struct computing : out<T> {
	const T *a;
	int k;
	template <int N> void load(int z, int row, int c, float (&v)[N]) const
	{
		for (int i = 0; i < N; i++)
			v[i] = ww::to_float(a[((long long)z * out<T>::m + row) * k + c + i]);
	}
};

/* m, n, k; lines of the operands in memory are `pad` elements longer than what they hold. */
/* OF: the first operand, along k without a pad, is computed.  TILES, STEPS: tiles below each other are a block's. */
template <class T, int BM, int BN, bool AK, bool BK, int AV, int BV, bool OF = false, int TILES = 1, int STEPS = 1>
static int wrong(int m, int n, int k, int pad)
{
	enum { BATCH = 2 };
	const int la = (AK ? k : m) + pad, lb = (BK ? k : n) + pad, ra = AK ? m : k, rb = BK ? n : k;
	std::vector<T> a(BATCH * ra * la + 16), b(BATCH * rb * lb + 16);
	std::vector<float> d(BATCH * m * n, NAN);
	int apart = 0;
	const out<T> e = { d.data(), m, n, &apart };
	const ww::mma_operand<T> oa = { a.data(), la, (long long)ra * la, 0, 1 },
							 ob = { b.data(), lb, 0, (long long)rb * lb, 2 };
	double worst = 0;

	for (T &v : a)
		v = ww::from_float<T>(draw());
	for (T &v : b)
		v = ww::from_float<T>(draw());
	host::launch((m + BM * TILES - 1) / (BM * TILES) * ((n + BN - 1) / BN) * BATCH, 1, 1,
		ww::mma_shape<T, BM, BN>::threads, 1, [&] {
			if constexpr (OF)
				ww::gemm_mma_of<T, BM, BN, 3, 1, BK, AV, BV>(ob, m, n, k, computing<T>{ e, a.data(), k });
			else
				ww::gemm_mma<T, BM, BN, 3, 1, AK, BK, AV, BV, TILES, STEPS>(oa, ob, m, n, k, e);
		});
	for (int z = 0; z < BATCH; z++)
		for (int i = 0; i < m; i++)
			for (int j = 0; j < n; j++) {
				double sum = 0;
				for (int l = 0; l < k; l++)
					sum += (double)ww::to_float(a[z * ra * la + (AK ? i * la + l : l * la + i)]) *
						(double)ww::to_float(b[z * rb * lb + (BK ? j * lb + l : l * lb + j)]);
				worst = fmax(worst, fabs(sum - d[((long long)z * m + i) * n + j]));
				if (d[((long long)z * m + i) * n + j] != d[((long long)z * m + i) * n + j])
					worst = INFINITY;
			}
	if (apart)
		worst = INFINITY;
	if (!(worst < 3e-6))
		fprintf(stderr, "%d bytes, tile %d x %d, along k %d %d, by %d %d, %d x %d x %d + %d: off by %g\n",
			(int)sizeof(T), BM, BN, AK, BK, AV, BV, m, n, k, pad, worst);
	return !(worst < 3e-6);
}

template <class T> static int wrong_of()
{
	const int w = 16 / sizeof(T);

	return wrong<T, 32, 32, true, true, 1, 1>(33, 21, 71, 0) + wrong<T, 32, 32, false, false, 2, 2>(66, 34, 9, 0) +
		wrong<T, 16, 64, true, true, w, w>(20, 40, 70, (w - 70 % w) % w) +
		wrong<T, 64, 32, false, true, w / 2, w>(40, 24, 96, 0) +
		wrong<T, 128, 64, true, false, w, w / 2>(17, 72, 104, 0) +
		wrong<T, 32, 32, true, true, 1, 1, true>(33, 21, 71, 0) +
		wrong<T, 64, 64, true, false, w, w, true>(70, 40, 72, 0) +
		wrong<T, 128, 64, true, true, w / 2, w, true>(150, 64, 136, 0) +
		wrong<T, 16, 64, true, true, w, w, true>(20, 40, 64, 0) +
		wrong<T, 32, 32, true, true, 1, 1, false, 3, 1>(33, 21, 31, 0) +
		wrong<T, 16, 64, false, true, w, w, false, 4, 2>(152, 70, w == 8 ? 104 : 60, 0) +
		wrong<T, 64, 32, true, false, w, 1, false, 2, 2>(300, 33, w == 8 ? 72 : 40, 0) +
		wrong<T, 32, 32, true, false, 1, 2, false, 16, 1>(600, 34, 9, 0) +
		wrong<T, 128, 128, true, false, 1, 1>(129, 131, 75, 0) + wrong<T, 128, 64, false, true, 1, w>(131, 40, 72, 0) +
		wrong<T, 16, 64, false, false, 1, 1>(21, 63, 71, 0) + wrong<T, 64, 64, true, true, 1, 1>(70, 67, 64, 1);
}

/* gemm_thin and gemm_short, of m, n, k; lines in memory are `pad` elements longer than what they hold.  run(blocks of
 * an item, a, b, e) launches. */
template <bool ALONG, class F> static int wrong_fp32(const char *what, int m, int n, int k, int pad, const F &run)
{
	enum { BATCH = 3 };
	const int la = k + pad, lb = (ALONG ? k : n) + pad, rb = ALONG ? n : k;
	std::vector<float> a(BATCH * m * la), b(BATCH * rb * lb), d(BATCH * m * n, NAN);
	double worst = 0;

	for (float &v : a)
		v = draw();
	for (float &v : b)
		v = draw();
	run(BATCH, ww::mma_operand<float>{ a.data(), la, (long long)m * la, 0, 1 },
		ww::mma_operand<float>{ b.data(), lb, 0, (long long)rb * lb, BATCH }, out<float>{ d.data(), m, n });
	for (int z = 0; z < BATCH; z++)
		for (int i = 0; i < m; i++)
			for (int j = 0; j < n; j++) {
				double sum = 0;
				for (int l = 0; l < k; l++)
					sum += (double)a[(z * m + i) * la + l] * (double)b[z * rb * lb + (ALONG ? j * lb + l : l * lb + j)];
				const double off = fabs(sum - d[(z * m + i) * n + j]);
				worst = off <= worst ? worst : off == off ? off : INFINITY;
			}
	if (!(worst < 1e-5))
		fprintf(stderr, "%s, along k %d, %d x %d x %d + %d: off by %g\n", what, ALONG, m, n, k, pad, worst);
	return !(worst < 1e-5);
}

template <int N, int V, int PARTS, bool ALONG> static int wrong_thin(int m, int n, int k, int pad)
{
	enum { ROWS = ww::thin_shape<N>::rows * 8 / PARTS };

	return wrong_fp32<ALONG>("thin", m, n, k, pad, [=](int batch, const auto &a, const auto &b, const auto &e) {
		host::launch(
			(m + ROWS - 1) / ROWS * batch, 1, 1, 256, 1, [&] { ww::gemm_thin<N, V, PARTS, ALONG>(a, b, m, n, k, e); });
	});
}

template <int K, int COLS, int V, bool ALONG> static int wrong_short(int m, int n, int k, int pad)
{
	return wrong_fp32<ALONG>("short", m, n, k, pad, [=](int batch, const auto &a, const auto &b, const auto &e) {
		host::launch((m + 63) / 64 * ((n + 32 * COLS - 1) / (32 * COLS)) * batch, 1, 1, 256, 1,
			[&] { ww::gemm_short<K, COLS, V, ALONG>(a, b, m, n, k, e); });
	});
}

static int wrong_of_few()
{
	return wrong_thin<4, 4, 1, true>(67, 3, 136, 4) + wrong_thin<8, 1, 1, true>(35, 8, 151, 0) +
		wrong_thin<8, 2, 4, true>(9, 7, 514, 2) + wrong_thin<16, 4, 8, true>(5, 16, 1028, 0) +
		wrong_thin<16, 1, 2, false>(21, 13, 99, 3) + wrong_thin<4, 4, 8, false>(8, 4, 32, 0) +
		wrong_short<8, 4, 4, true>(67, 261, 8, 0) + wrong_short<8, 1, 1, false>(9, 31, 5, 2) +
		wrong_short<16, 2, 2, true>(64, 64, 14, 2) + wrong_short<16, 3, 4, false>(130, 95, 12, 4) +
		wrong_short<12, 5, 1, true>(67, 129, 9, 0) + wrong_short<12, 5, 4, false>(70, 161, 12, 4);
}

/* Adds a row of its own, read ahead of several stores. */
struct with_bias {
	float *d;
	const float *bias;
	int m, n;
	template <int N> struct ahead {
		float x[N];
	};
	template <int N> void fetch(int, int, int col, ahead<N> &given) const
	{
		for (int i = 0; i < N; i++)
			given.x[i] = bias[col + i];
	}
	template <int N> void store(int z, int row, int col, const float (&v)[N], ahead<N> &given) const
	{
		for (int i = 0; i < N; i++)
			d[((long long)z * m + row) * n + col + i] += v[i] + given.x[i];
	}
};

/* The end of a tile of gemm3 and gemm16: each element of it once, in its place, unscaled. */
template <int BN, bool SCALED, bool WIDE = false> static int wrong_end(int m, int n)
{
	std::vector<float> d(2 * m * n, 0.f), bias(n);
	std::vector<unsigned> sa(2 * m), sb(2 * n);
	const with_bias e = { d.data(), bias.data(), m, n };
	int bad = 0;

	for (float &v : bias)
		v = draw();
	for (unsigned &v : sa)
		v = ww::magnitude(draw());
	for (unsigned &v : sb)
		v = ww::magnitude(draw() * 8.f);
	for (int row = 0; row < m; row += 64)
		for (int col = 0; col < n; col += BN)
			host::launch(1, 1, 1, 128, 1, [&] {
				__shared__ float box[4 * 16 * ww::odd_end_row];
				float acc[BN / 2];
				for (int i = 0; i < BN / 2; i++) /* element (r, c) is 1000 r + c */
					acc[i] = (float)(1000 *
							(row + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + i / 2 % 2 * 8) +
						col + i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2);
				if (WIDE)
					ww::tile_end_wide<BN>(e, 1, row, col, m, n, acc);
				else
					ww::tile_end<BN, SCALED>(e, sa.data() + m, sb.data() + n, 1, row, col, m, n, acc, box);
			});
	for (int r = 0; r < m; r++)
		for (int c = 0; c < n; c++) {
			const float scale = SCALED ? ww::unscale(sa[m + r]) * ww::unscale(sb[n + c]) : 1.f;
			const float want = (float)(1000 * r + c) * scale + bias[c], got = d[((long long)m + r) * n + c];
			bad += !(fabsf(got - want) <= 1e-6f * fabsf(want) + 1e-6f);
		}
	if (bad)
		fprintf(stderr, "end of %d columns, scaled %d, wide %d, %d x %d: %d wrong\n", BN, SCALED, WIDE, m, n, bad);
	return bad > 0;
}

/* Rows along K of 16-bit elements, or of pairs of them, as gemm16 and gemm3 have them copied. */
static ww_tensor_map rows_along_k(const void *p, int k, int rows, int batch, int box)
{
	const long long line = 2LL * k;

	return { (char *)p, 0, 2, 3, 3, 0, { k, rows, batch }, { 2, line, rows * line }, { 64, box, 1 }, { 1, 1, 1 } };
}

/* Each element of a and b as a pair of halves, and the largest magnitude of each row, as gemm3 reads them. */
struct halves {
	std::vector<unsigned> x, top;
	halves(const std::vector<float> &v, int rows, int k) : x(v.size()), top(rows)
	{
		host::launch((rows + 7) / 8, 1, 1, 256, 1,
			[&] { ww::split_rows<1>(v.data(), 0, k, rows, k, k, (__half *)x.data(), top.data()); });
	}
};

/* gemm16 of halves, or gemm3 of floats, by `blocks` blocks; k is a multiple of 32, n even. */
template <class T, int BN, int STAGES, int CLUSTER, int PAIRS> static int wrong_tiles(int m, int n, int k, int blocks)
{
	std::vector<T> a(m * k), b(n * k);
	std::vector<float> d(m * n, NAN);
	const out<T> e = { d.data(), m, n };
	const int threads = 128 + 256 * PAIRS;
	double worst = 0;

	for (T &v : a)
		v = ww::from_float<T>(draw());
	for (T &v : b)
		v = ww::from_float<T>(draw());
	if constexpr (sizeof(T) == 4) {
		const halves sa(a, m, k), sb(b, n, k);
		const ww_tensor_map ta = rows_along_k(sa.x.data(), 2 * k, m, 1, 128),
							tb = rows_along_k(sb.x.data(), 2 * k, n, 1, BN / CLUSTER);
		host::launch(blocks, 1, 1, threads, CLUSTER, [&] {
			ww::gemm3<BN, STAGES, 4, CLUSTER, 2, PAIRS>(ta, tb, sa.top.data(), sb.top.data(), m, n, k / 32, 1, e);
		});
	} else {
		const ww_tensor_map ta = rows_along_k(a.data(), k, m, 1, 128),
							tb = rows_along_k(b.data(), k, n, 1, BN / CLUSTER);
		host::launch(blocks, 1, 1, threads, CLUSTER,
			[&] { ww::gemm16<T, BN, STAGES, CLUSTER, 2, 2, PAIRS>(ta, tb, m, n, (k + 63) / 64, 1, e); });
	}
	for (int i = 0; i < m; i++)
		for (int j = 0; j < n; j++) {
			double sum = 0;
			for (int l = 0; l < k; l++)
				sum += (double)ww::to_float(a[i * k + l]) * (double)ww::to_float(b[j * k + l]);
			const double off = fabs(sum - d[i * n + j]);
			worst = off >= 0 ? fmax(worst, off) : INFINITY;
		}
	if (!(worst < 2e-7 * k))
		fprintf(stderr, "%d pairs, tiles of %d, %d stages, clusters of %d, %d x %d x %d: off by %g\n", PAIRS, BN,
			STAGES, CLUSTER, m, n, k, worst);
	return !(worst < 2e-7 * k);
}

int main(void)
{
	int n = wrong_of<float>() + wrong_of<__half>() + wrong_of<__nv_bfloat16>();

	n += wrong_end<128, true>(64, 128) + wrong_end<128, true>(75, 150) + wrong_end<192, true>(130, 373);
	n += wrong_end<256, false>(64, 300) + wrong_end<64, false>(9, 63) + wrong_end<256, false>(131, 511) +
		wrong_end<64, true>(40, 97) + wrong_end<192, false>(70, 200);
	n += wrong_end<256, false, true>(131, 504) + wrong_end<64, false, true>(9, 64) +
		wrong_end<128, false, true>(70, 200) + wrong_end<192, false, true>(64, 384);
	/* more and fewer stages than a tile has steps; an odd number of tiles for a block */
	n += wrong_tiles<__half, 128, 3, 1, 1>(300, 150, 160, 2) + wrong_tiles<__half, 128, 3, 1, 2>(300, 150, 160, 2) +
		wrong_tiles<__half, 64, 2, 1, 2>(200, 250, 320, 1) + wrong_tiles<__half, 64, 5, 2, 2>(600, 130, 128, 2) +
		wrong_tiles<float, 64, 4, 1, 2>(300, 150, 64, 2) + wrong_tiles<float, 64, 2, 2, 2>(520, 70, 128, 2);
	n += wrong_of_few();
	printf("%d\n", n);
}
