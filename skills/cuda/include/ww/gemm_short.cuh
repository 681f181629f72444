/* gemm_short.cuh - fp32 products whose K is at most 16, at the speed of memory: what tensor cores compute in one step,
 * most of which would be zeros, and then store from fragments (a low rank that is widened again).
 *
 * A thread has up to five columns, 32 apart, with all their K in registers, and goes down the rows, whose K elements
 * each warp reads once for all its lanes.  A warp stores 32 neighbours at a time, so rows of any length are whole lines
 * but for their ends.
 *
 * The sums are plain fp32, and the epilogue is that of gemm.cuh, one column at a time. */
#ifndef WW_GEMM_SHORT_CUH
#define WW_GEMM_SHORT_CUH

#include <ww/gemm_mma.cuh>

namespace ww
{

enum : int { short_rows = 64 }; /* of a block */

/* Block 256, its 8 warps side by side down the rows.  K: 8, 12 or 16; V elements of a row of A are read at once, and V
 * divides k.  a.stride: from row to row; b.stride: from column to column, or where ALONG_K is not set from one k to the
 * next. */
template <int K, int COLS, int V, bool ALONG_K, class E> __device__ __forceinline__ void gemm_short(
	const mma_operand<float> &a, const mma_operand<float> &b, int m, int n, int k, const E &e)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int across = (n + 32 * COLS - 1) / (32 * COLS), down = (m + short_rows - 1) / short_rows;
	const int z = blockIdx.x / (across * down), tile = blockIdx.x % (across * down);
	const int col0 = tile % across * 32 * COLS + lane, row0 = tile / across * short_rows;
	const int end = row0 + short_rows < m ? row0 + short_rows : m;
	const float *rows = a.from(z), *columns = b.from(z);
	float w[COLS][K];

#pragma unroll
	for (int j = 0; j < COLS; j++)
#pragma unroll
		for (int i = 0; i < K; i++) {
			const int col = col0 + 32 * j;

			w[j][i] = col < n && i < k ? columns[ALONG_K ? col * b.stride + i : i * b.stride + col] : 0.f;
		}
#pragma unroll 2
	for (int row = row0 + warp; row < end; row += 8) {
		float x[K / V][V];
		ahead<E, 1> given[COLS];

#pragma unroll
		for (int i = 0; i < K / V; i++)
			if (i * V < k)
				load(rows + row * a.stride + i * V, x[i]);
			else
				for (int l = 0; l < V; l++)
					x[i][l] = 0.f;
#pragma unroll
		for (int j = 0; j < COLS; j++)
			if (col0 + 32 * j < n)
				given[j].fetch(e, z, row, col0 + 32 * j);
#pragma unroll
		for (int j = 0; j < COLS; j++) {
			float one[1] = { 0.f };

#pragma unroll
			for (int i = 0; i < K; i++)
				one[0] += x[i / V][i % V] * w[j][i];
			if (col0 + 32 * j < n)
				given[j].store(e, one, z, row, col0 + 32 * j);
		}
	}
}

} // namespace ww

#endif
