/* library.cuh - an epilogue over the result of a library node (cuDNN's convolution, cuBLASLt's product), bound by
 * memory bandwidth. */
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
	const I runs = (I)rows * (COLS / N), first = (I)blockIdx.x * RUNS * blockDim.x + threadIdx.x;
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
 * transposes a tile of 32 rows and 32 * RUNS columns in shared memory, so that loads and stores are whole cache lines.
 */
template <class I, int ROWS, int COLS, int N, int RUNS, class T, class E>
__device__ __forceinline__ void after_library_turned(const T *y, long long rows, const E &e)
{
	enum : int { TR = 32, TC = 32 * RUNS, M = ROWS % 4 ? 1 : 4, TILES_R = (ROWS + TR - 1) / TR };
	enum : int { TILES_C = (COLS + TC - 1) / TC, READS = TR * TC / M / 256 };
	__shared__ float box[TR][TC + 1];
	const int r0 = blockIdx.x % TILES_R * TR, c0 = blockIdx.x / TILES_R % TILES_C * TC,
			  image = blockIdx.x / TILES_R / TILES_C;
	float in[READS][M];

	(void)rows;
#pragma unroll
	for (int u = 0; u < READS; u++) {
		const int i = u * 256 + threadIdx.x, r = i % (TR / M) * M, c = i / (TR / M);
		if (r0 + r < ROWS && c0 + c < COLS)
			load(y + ((I)image * COLS + c0 + c) * ROWS + r0 + r, in[u]);
	}
#pragma unroll
	for (int u = 0; u < READS; u++) {
		const int i = u * 256 + threadIdx.x, r = i % (TR / M) * M, c = i / (TR / M);
#pragma unroll
		for (int m = 0; m < M; m++)
			box[r + m][c] = in[u][m];
	}
	__syncthreads();
#pragma unroll
	for (int u = 0; u < TR * TC / N / 256; u++) {
		const int i = u * 256 + threadIdx.x, r = i / (TC / N), c = i % (TC / N) * N;
		float acc[N];
#pragma unroll
		for (int l = 0; l < N; l++)
			acc[l] = box[r][c + l];
		if (r0 + r < ROWS && c0 + c < COLS)
			e.template store<N>(image, r0 + r, c0 + c, acc);
	}
}

} // namespace ww

#endif
