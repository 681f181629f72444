/* library.cuh - an epilogue over the result of a library node (cuDNN's convolution, cuBLASLt's product), bound by
 * memory bandwidth.  Blocks go from the end of the result to its beginning: what the library wrote last is still in the
 * second level of cache, and of a result larger than that the beginning is not. */
#ifndef WW_LIBRARY_CUH
#define WW_LIBRARY_CUH

#include <ww/vec.cuh>

namespace ww
{

/* Functor e over y, `rows` rows of COLS neighbouring elements, ROWS to an image (a batch): store(image, row, col, v). A
 * thread has RUNS runs of N elements, all read before the first is stored.  I counts elements. */
template <class I, int ROWS, int COLS, int N, int RUNS, class T, class E>
__device__ __forceinline__ void after_library(const T *y, long long rows, const E &e)
{
	const I runs = (I)rows * (COLS / N), first = (I)from_end_x() * RUNS * blockDim.x + threadIdx.x;
	float acc[RUNS][N];
	ahead<E, N> r[RUNS];

#pragma unroll
	for (int u = 0; u < RUNS; u++)
		if (first + (I)(u * blockDim.x) < runs)
			load(y + (first + (I)(u * blockDim.x)) * N, acc[u]);
#pragma unroll
	for (int u = 0; u < RUNS; u++) {
		const I i = first + (I)(u * blockDim.x), row = i / (COLS / N);
		if (i < runs)
			r[u].fetch(e, (int)(row / ROWS), (int)(row % ROWS), (int)(i % (COLS / N) * N));
	}
#pragma unroll
	for (int u = 0; u < RUNS; u++) {
		const I i = first + (I)(u * blockDim.x), row = i / (COLS / N);
		if (i < runs)
			r[u].store(e, acc[u], (int)(row / ROWS), (int)(row % ROWS), (int)(i % (COLS / N) * N));
	}
}

/* The same over y with the columns outside, (batch, COLS, ROWS), as a channels-last convolution leaves it: a block
 * transposes a tile of 128 / RUNS rows and 32 * RUNS columns in shared memory, so that loads and stores are whole cache
 * lines.  A thread has four columns of M rows, turns them in registers, and stores and reads the tile in fours; which
 * four of a line changes from row to row, so that neither meets the banks of another. */
template <class I, int ROWS, int COLS, int N, int RUNS, class T, class E>
__device__ __forceinline__ void after_library_turned(const T *y, long long rows, const E &e)
{
	enum : int { TR = 128 / RUNS, TC = 32 * RUNS, M = ROWS % 4 ? 1 : 4, TILES_R = (ROWS + TR - 1) / TR };
	enum : int { TILES_C = (COLS + TC - 1) / TC, READS = TR * TC / (M * 4) / 256 };
	__shared__ __align__(16) float box[TR * TC];
	const int block = from_end_x(), r0 = block % TILES_R * TR, c0 = block / TILES_R % TILES_C * TC,
			  image = block / TILES_R / TILES_C;
	auto slot = [&](int r, int c) { return box + r * TC + ((c / 4 ^ r / M % 8) * 4 + c % 4); };
	float in[READS][4][M];

	(void)rows;
#pragma unroll
	for (int u = 0; u < READS; u++) {
		const int i = u * 256 + threadIdx.x, r = i % (TR / M) * M, c = i / (TR / M) * 4;
#pragma unroll
		for (int q = 0; q < 4; q++)
			if (r0 + r < ROWS && c0 + c + q < COLS)
				load(y + ((I)image * COLS + c0 + c + q) * ROWS + r0 + r, in[u][q]);
	}
#pragma unroll
	for (int u = 0; u < READS; u++) {
		const int i = u * 256 + threadIdx.x, r = i % (TR / M) * M, c = i / (TR / M) * 4;
#pragma unroll
		for (int m = 0; m < M; m++) {
			const float four[4] = { in[u][0][m], in[u][1][m], in[u][2][m], in[u][3][m] };
			store(slot(r + m, c), four);
		}
	}
	__syncthreads();
#pragma unroll
	for (int u = 0; u < TR * TC / N / 256; u++) {
		const int i = u * 256 + threadIdx.x, r = i / (TC / N), c = i % (TC / N) * N;
		float acc[N];
		load(slot(r, c), acc);
		if (r0 + r < ROWS && c0 + c < COLS)
			e.template store<N>(image, r0 + r, c0 + c, acc);
	}
}

} // namespace ww

#endif
