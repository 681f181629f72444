/* ring_check.cc - <ww/ring.cuh> on the cpu: rows of all lengths and types, whole vectors or not, shared by one block or
 * several, fewer rows than a ring holds and more; each element once, as itself less its row's largest, over the row's
 * sum.  Prints how many are wrong. */
#include "device.h"
#define IX64_ 1
#include <ww/planner.cuh>
#include <ww/ring.cuh>

#include <vector>

static unsigned seed = 1;
static unsigned draw(unsigned n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* Numbers whose sums are exact. */
template <class T, int T_, int CL, int DEPTH, int VECTORS> static int wrong(long long rows, long long cols, int each)
{
	enum { WIDE = 16 / sizeof(T), THREADS = T_ };
	static char room[1 << 20];
	T *x = (T *)(((unsigned long long)room + 15) / 16 * 16);
	std::vector<float> space(rows * cols + 8, -1.f);
	float *y = (float *)(((unsigned long long)space.data() + 15) / 16 * 16);
	int bad = 0;

	for (long long i = 0; i < rows * cols; i++)
		x[i] = ww::from_float<T>((float)draw(8));
	host::launch((rows + each - 1) / each * CL, 1, 1, THREADS, CL, [&] {
		static __shared__ double box[64];
		const int lane = threadIdx.x, rank = blockIdx.x % CL;
		const long long first = (long long)blockIdx.x / CL * each, end = rows - first < each ? rows : first + each;
		ww::ring<T, CL, DEPTH, VECTORS, 2> ring(x, rows, cols, first, end, rank);
		const auto all = [&](auto f) {
			for (long long c = ring.begin + lane * WIDE; c < ring.whole; c += THREADS * WIDE)
				for (int l = 0; l < WIDE; l++)
					f(c + l);
			for (int i = lane; i < ring.edges; i += THREADS)
				f(ring.edge(i));
		};

		for (long long row = first; row < end; row++) {
			const T *mine = ring.take();
			float most = -1, sum = 0;

			all([&](long long c) { most = fmaxf(most, ww::to_float(mine[c])); });
			most = pl_across<PL_MAX, THREADS>(most, box);
			if (CL > 1)
				most = pl_all<PL_MAX, CL>(ring.share(0, most));
			all([&](long long c) { sum += ww::to_float(mine[c]) - most; });
			sum = pl_across<PL_SUM, THREADS>(sum, box);
			if (CL > 1)
				sum = pl_all<PL_SUM, CL>(ring.share(1, sum));
			for (long long c = ring.begin + lane * WIDE; c < ring.whole; c += THREADS * WIDE) {
				float v[WIDE];

				ww::load(mine + c, v);
				for (float &one : v)
					one = (one - most) / sum;
				ww::store_whole(y + row * cols + c, v);
			}
			for (int i = lane; i < ring.edges; i += THREADS)
				y[row * cols + ring.edge(i)] = (ww::to_float(mine[ring.edge(i)]) - most) / sum;
			ring.release();
		}
		ring.leave();
	});
	for (long long r = 0; r < rows; r++) {
		float most = -1, sum = 0;

		for (long long c = 0; c < cols; c++)
			most = fmaxf(most, ww::to_float(x[r * cols + c]));
		for (long long c = 0; c < cols; c++)
			sum += ww::to_float(x[r * cols + c]) - most;
		for (long long c = 0; c < cols; c++)
			bad += y[r * cols + c] != (ww::to_float(x[r * cols + c]) - most) / sum;
	}
	if (bad)
		fprintf(stderr, "%d bytes, %d blocks, %d deep, %lld x %lld, %d each: %d wrong\n", (int)sizeof(T), CL, DEPTH,
			rows, cols, each, bad);
	return bad > 0;
}

int main()
{
	int n = 0;

	n += wrong<float, 64, 1, 2, 65>(5, 256, 5) + wrong<float, 32, 1, 3, 65>(7, 255, 3);
	n += wrong<float, 32, 2, 2, 33>(9, 257, 4) + wrong<float, 64, 4, 3, 17>(11, 259, 9);
	n += wrong<float, 32, 16, 2, 9>(3, 567, 2) + wrong<float, 32, 8, 2, 8>(2, 254, 1);
	n += wrong<__half, 32, 1, 2, 40>(6, 307, 6) + wrong<__half, 64, 4, 3, 10>(13, 305, 4);
	n += wrong<__nv_bfloat16, 32, 2, 2, 20>(5, 312, 2) + wrong<__nv_bfloat16, 32, 2, 3, 21>(4, 321, 4);
	printf("%d\n", n);
	return 0;
}
