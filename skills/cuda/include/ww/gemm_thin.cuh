/* gemm_thin.cuh - fp32 products of at most 16 columns, at the speed of memory: what tiles of 32 columns or more would
 * leave mostly empty (a projection to a low rank, the scores of a router).
 *
 * A warp has 32 / N rows of A and all N columns.  Its lanes run along K, V elements each, so that A is read once, in
 * whole lines; B is small and stays in the first level, or in shared memory where it has to be turned.  PARTS warps of
 * a block share the rows, each with every PARTS-th step of K; where rows are few, more warps read at once.  In the end
 * a lane keeps one of 32 sums: each exchange halves what it holds, so 31 shuffles do for 32 sums.  The order of all
 * additions is fixed.
 *
 * The sums are plain fp32, as those of a product without tensor cores, and the epilogue is that of gemm.cuh, one column
 * at a time. */
#ifndef WW_GEMM_THIN_CUH
#define WW_GEMM_THIN_CUH

#include <ww/gemm_mma.cuh>

namespace ww
{

/* N: 4, 8, 16; rows of a warp, so that there is one of R * N sums for each lane. */
template <int N> struct thin_shape {
	enum : int { rows = 32 / N };
};

/* v[0]: of 2 * HALF sums of each lane, the one whose number is the lane's modulo that, over the lanes that differ in
 * these bits.  By recursion: of loops within each other the compiler leaves v in memory. */
template <int HALF> struct thin_fold {
	static __device__ __forceinline__ void sums(float *v)
	{
		const bool upper = threadIdx.x & HALF;

#pragma unroll
		for (int i = 0; i < HALF; i++)
			v[i] = (upper ? v[i + HALF] : v[i]) + __shfl_xor_sync(~0u, upper ? v[i] : v[i + HALF], HALF);
		thin_fold<HALF / 2>::sums(v);
	}
};
template <> struct thin_fold<0> {
	static __device__ __forceinline__ void sums(float *) {}
};

/* A B that lies along its columns, (K, n): a block copies it to shared memory, turned, at most so many floats of it. */
enum : int { thin_turned = 10240 };
__device__ __forceinline__ int thin_pitch(int k) { return (k + 3) / 4 * 4 + 4; }

__device__ __forceinline__ void thin_turn(const float *b, long long stride, int n, int k, float *turned)
{
	for (int i = threadIdx.x; i < n * k; i += 256)
		turned[i % n * thin_pitch(k) + i / n] = b[i / n * stride + i % n];
	__syncthreads();
}

/* Block 256; a block has 8 / PARTS groups of R rows.  a.stride: from row to row; b.stride: from column to column, or
 * where ALONG_K is not set from one k to the next. */
template <int N, int V, int PARTS, bool ALONG_K, class E> __device__ __forceinline__ void gemm_thin(
	const mma_operand<float> &a, const mma_operand<float> &b, int m, int n, int k, const E &e)
{
	enum : int { R = thin_shape<N>::rows, GROUPS = 8 / PARTS };
	__shared__ float box[PARTS > 1 ? 8 * 32 : 1];
	__shared__ __align__(16) float turned[ALONG_K ? 1 : thin_turned];
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % PARTS;
	const int blocks = (m + GROUPS * R - 1) / (GROUPS * R), z = blockIdx.x / blocks;
	const int row0 = (blockIdx.x % blocks * GROUPS + warp / PARTS) * R;
	const float *from[R], *columns = ALONG_K ? b.from(z) : turned;
	const int apart = ALONG_K ? (int)b.stride : thin_pitch(k);
	float sum[R * N];

	if (!ALONG_K)
		thin_turn(b.from(z), b.stride, n, k, turned);
#pragma unroll
	for (int i = 0; i < R * N; i++)
		sum[i] = 0.f;
#pragma unroll
	for (int r = 0; r < R; r++)
		from[r] = a.from(z) + (row0 + r < m ? row0 + r : m - 1) * a.stride;
#pragma unroll(V == 4 ? 1 : V == 1 && N < 16 ? 4 : 2)
	for (int i = (part * 32 + lane) * V; i < k; i += PARTS * 32 * V) {
		float x[R][V];

#pragma unroll
		for (int r = 0; r < R; r++)
			load(from[r] + i, x[r]);
#pragma unroll
		for (int c = 0; c < N; c++) {
			float w[V];

			load(columns + (c < n ? c : n - 1) * apart + i, w);
#pragma unroll
			for (int r = 0; r < R; r++)
#pragma unroll
				for (int l = 0; l < V; l++)
					sum[r * N + c] += x[r][l] * w[l];
		}
	}
	thin_fold<16>::sums(sum);
	if (PARTS > 1) {
		box[threadIdx.x] = sum[0];
		__syncthreads();
		if (part)
			return;
#pragma unroll
		for (int p = 1; p < PARTS; p++)
			sum[0] += box[threadIdx.x + 32 * p];
	}
	const int row = row0 + lane / N, col = lane % N;
	const float one[1] = { sum[0] };
	ahead<E, 1> given;

	if (row < m && col < n) {
		given.fetch(e, z, row, col);
		given.store(e, one, z, row, col);
	}
}

} // namespace ww

#endif
