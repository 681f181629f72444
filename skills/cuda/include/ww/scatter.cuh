/* scatter.cuh - elements that are added up at, or written to, places that data says, along one dimension.
 *
 * A block holds results in shared memory: they begin as self(), take the `list` written elements, and end in store().
 * So each written element is read once and each result written once, whatever both lengths are; a kernel that adds in
 * the result's memory first fills it with zeros, and reads it again for what follows.
 *
 * scatter_rows: along the last dimension.  TPR threads share a row of `len` results, and add there by atomics: two
 * elements of one place may come in either order.  Sums only.
 * scatter_columns: along another one.  Each thread has a column of `len` results to itself and takes its elements one
 * after the other, in their order, so it needs no atomics, and of several elements that are written to one place the
 * last one stays.  Neighbouring columns are in neighbouring banks.
 *
 * DEPTH elements of a thread are under way at once: of columns, whose long results leave room for few threads, so many
 * that a multiprocessor waits for some 28 kB (224 x 512 x 256 to 256 places: seven warps each, with eight elements 173
 * us on an H200, memory takes 42).
 *
 * scatter_strips: the same for sums where columns are few or long, so that a thread each would leave multiprocessors
 * empty (1,024 columns of 1,024 results: 32 warps in all).  All threads of a block share COLS columns, and add there by
 * atomics.  Eight floats are a sector.  Rejected: a result that looks at all written elements (len * list
 * comparisons, and each element read len times).
 *
 * scatter_slices: the same where all columns share their places (index_add).  A block has a part of the results, so
 * that shared memory holds a thousand columns of it, and finds the elements that belong there once for all of its
 * columns: the example takes 55 us by count.
 *
 * Functor, o the row or the outer index, m the place in the result, j the number of the written element, i the column:
 *     self(o, m, [i,] v), place(o, j, [i,] v), src(o, j, [i,] v)    each sets float v[1]
 *     store(o, m, [i,] v)
 * A place below 0 counts from the end; what then lies outside of the result is not written.  Places are exact up to
 * 2^24, more than shared memory holds. */
#ifndef WW_SCATTER_CUH
#define WW_SCATTER_CUH

#include <ww/vec.cuh>

namespace ww
{

enum { SCATTER_SET = 16 }; /* beside OP_SUM, OP_PROD, OP_MAX and OP_MIN */

template <int OP> __device__ __forceinline__ float scatter_one(float a, float v)
{
	return OP == SCATTER_SET ? v : op_apply<OP == SCATTER_SET ? OP_SUM : OP>(a, v);
}

/* The place that was read, or -1 outside of len results. */
__device__ __forceinline__ int scatter_place(float said, int len)
{
	const int at = (int)said + (said < 0.f ? len : 0);

	return at >= 0 && at < len ? at : -1;
}

/* Dynamic shared memory: len floats for each of the block's rows. */
template <int OP, int BLOCK, int TPR, class F>
__device__ __forceinline__ void scatter_rows(long long rows, int len, int list, const F &f)
{
	static_assert(OP == OP_SUM, "rows of sums");
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	enum { DEPTH = 8 };
	const long long row = (long long)blockIdx.x * (BLOCK / TPR) + threadIdx.x / TPR;
	const int t = threadIdx.x % TPR;
	const bool live = row < rows;
	float *const mine = (float *)ww_dynamic_shared + (long long)(threadIdx.x / TPR) * len;

	for (int m = t; live && m < len; m += TPR) {
		float v[1];

		f.self(row, m, v);
		mine[m] = v[0];
	}
	__syncthreads();
	for (int first = t; live && first < list; first += TPR * DEPTH) {
		float at[DEPTH][1], v[DEPTH][1];

#pragma unroll
		for (int d = 0; d < DEPTH; d++) {
			const int j = first + d * TPR;

			at[d][0] = (float)len;
			if (j < list) {
				f.place(row, j, at[d]);
				f.src(row, j, v[d]);
			}
		}
#pragma unroll
		for (int d = 0; d < DEPTH; d++) {
			const int m = scatter_place(at[d][0], len);

			if (m >= 0)
				atomicAdd(&mine[m], v[d][0]);
		}
	}
	__syncthreads();
	for (int m = t; live && m < len; m += TPR) {
		const float v[1] = { mine[m] };

		f.template store<1>(row, m, v);
	}
}

/* Dynamic shared memory: len floats for each of BLOCK threads. */
template <int OP, int BLOCK, class F>
__device__ __forceinline__ void scatter_columns(long long outer, int len, int list, long long inner, const F &f)
{
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	enum { DEPTH = BLOCK <= 64 ? 32 : 16 };
	const long long at = (long long)blockIdx.x * BLOCK + threadIdx.x, o = at / inner, i = at % inner;
	float *const mine = (float *)ww_dynamic_shared + threadIdx.x;

	if (o >= outer)
		return;
	for (int m = 0; m < len; m++) {
		float v[1];

		f.self(o, m, i, v);
		mine[m * BLOCK] = v[0];
	}
	for (int first = 0; first < list; first += DEPTH) {
		float v[DEPTH][1];
		int m[DEPTH];

#pragma unroll
		for (int d = 0; d < DEPTH; d++) {
			float said[1] = { (float)len };

			if (first + d < list)
				f.place(o, first + d, i, said);
			m[d] = scatter_place(said[0], len);
		}
#pragma unroll
		for (int d = 0; d < DEPTH; d++) /* beyond the end the last one again: no load waits behind a branch */
			f.src(o, first + d < list ? first + d : list - 1, i, v[d]);
#pragma unroll
		for (int d = 0; d < DEPTH; d++)
			if (m[d] >= 0)
				mine[m[d] * BLOCK] = scatter_one<OP>(mine[m[d] * BLOCK], v[d][0]);
	}
	for (int m = 0; m < len; m++) {
		const float v[1] = { mine[m * BLOCK] };

		f.template store<1>(o, m, i, v);
	}
}

/* Sums along another dimension, COLS columns of a block: neighbouring threads have neighbouring columns, and those
 * BLOCK / COLS apart the next element.  Dynamic shared memory: len floats for each of COLS columns. */
template <int OP, int BLOCK, int COLS, class F>
__device__ __forceinline__ void scatter_strips(long long outer, int len, int list, long long inner, const F &f)
{
	static_assert(OP == OP_SUM, "strips of sums");
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	enum { DEPTH = 8, STEP = BLOCK / COLS };
	const long long at = (long long)blockIdx.x * COLS + threadIdx.x % COLS, o = at / inner, i = at % inner;
	const int t = threadIdx.x / COLS;
	const bool live = o < outer;
	float *const mine = (float *)ww_dynamic_shared + threadIdx.x % COLS;

	for (int m = t; live && m < len; m += STEP) {
		float v[1];

		f.self(o, m, i, v);
		mine[m * COLS] = v[0];
	}
	__syncthreads();
	for (int first = t; live && first < list; first += STEP * DEPTH) {
		float said[DEPTH][1], v[DEPTH][1];

#pragma unroll
		for (int d = 0; d < DEPTH; d++) { /* beyond the end the last one again: no load waits behind a branch */
			const int j = first + d * STEP < list ? first + d * STEP : list - 1;

			f.place(o, j, i, said[d]);
			f.src(o, j, i, v[d]);
		}
#pragma unroll
		for (int d = 0; d < DEPTH; d++) {
			const int m = scatter_place(said[d][0], len);

			if (m >= 0 && first + d * STEP < list)
				atomicAdd(&mine[m * COLS], v[d][0]);
		}
	}
	__syncthreads();
	for (int m = t; live && m < len; m += STEP) {
		const float v[1] = { mine[m * COLS] };

		f.template store<1>(o, m, i, v);
	}
}

/* Along another dimension, of elements that share their place with all `inner` columns.  Dynamic shared memory: BLOCK
 * floats for each of the LEN results of a column that a block has at a time.  4 * BLOCK written elements are looked
 * through at a time, each by one thread; those whose place the block has are taken in their order. */
template <int OP, int BLOCK, int LEN, class F>
__device__ __forceinline__ void scatter_slices(long long outer, int len, int list, long long inner, const F &f)
{
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	enum { DEPTH = 8, LOOKED = 4 * BLOCK, WARPS = BLOCK / 32 };
	__shared__ int nth[LOOKED], place[LOOKED], found[WARPS];
	const long long parts = (len + LEN - 1) / LEN, beside = (inner + BLOCK - 1) / BLOCK, at = blockIdx.x / parts;
	const long long o = at / beside, c0 = at % beside * BLOCK;
	const int m0 = (int)(blockIdx.x % parts) * LEN, n = len - m0 < LEN ? len - m0 : LEN, warp = threadIdx.x / 32;
	const bool live = c0 + threadIdx.x < inner;
	const long long i = live ? c0 + threadIdx.x : inner - 1;
	float *const mine = (float *)ww_dynamic_shared + threadIdx.x;

	if (o >= outer)
		return;
	for (int m = 0; m < n; m++) {
		float v[1];

		f.self(o, m0 + m, i, v);
		mine[m * BLOCK] = v[0];
	}
	for (int first = 0; first < list; first += LOOKED) {
		int all = 0;

		for (int j0 = first; j0 < list && j0 < first + LOOKED; j0 += BLOCK) {
			const int j = j0 + threadIdx.x;
			float said[1] = { (float)len };

			if (j < list)
				f.place(o, j, c0, said);
			const int m = scatter_place(said[0], len) - m0;
			const bool here = m >= 0 && m < n;
			const unsigned mask = __ballot_sync(0xffffffffu, here);
			if (threadIdx.x % 32 == 0)
				found[warp] = __popc(mask);
			__syncthreads();
			int before = all + __popc(mask & ((1u << threadIdx.x % 32) - 1));
#pragma unroll
			for (int w = 0; w < WARPS; w++) {
				before += w < warp ? found[w] : 0;
				all += found[w];
			}
			if (here) {
				nth[before] = j;
				place[before] = m;
			}
			__syncthreads();
		}
		for (int k = 0; k < all; k += DEPTH) {
			float v[DEPTH][1];

#pragma unroll
			for (int d = 0; d < DEPTH; d++) /* beyond the end the last one again: no load waits behind a branch */
				f.src(o, nth[k + d < all ? k + d : all - 1], i, v[d]);
#pragma unroll
			for (int d = 0; d < DEPTH; d++)
				if (k + d < all) {
					float *const to = mine + place[k + d] * BLOCK;

					*to = scatter_one<OP>(*to, v[d][0]);
				}
		}
		__syncthreads();
	}
	for (int m = 0; live && m < n; m++) {
		const float v[1] = { mine[m * BLOCK] };

		f.template store<1>(o, m0 + m, i, v);
	}
}

} // namespace ww

#endif
