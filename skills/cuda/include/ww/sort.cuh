/* sort.cuh - sorted rows of up to 4096 elements: where each element comes from, or its value; the first few of longer
 * ones.
 *
 * An element is one word: its key in the upper bits, its index in the row in the lower ones, so the sort is stable and
 * no two words are equal.  The key is an unsigned number in the order of the floats, with -0 as 0 and NaN above all.
 * For 16-bit types key and index fit into 32 bits, which halves the work.  Of values alone the word is the key, 32 bits
 * whatever the type: a comparison and exchange is then one minimum or maximum, and the value is found from its key.
 *
 * TPR threads hold a row of N = TPR * EACH words and sort it by a bitonic network: its first steps inside a thread,
 * then between lanes by shuffles, between warps through shared memory.  The first step of each merge compares mirrored
 * positions, so that all other steps have the same direction.  Short rows share a block.
 *
 * One element of each row (a median) needs no sort: select_rows() finds its key bit by bit, as the largest number that
 * no more elements are below than come before it, and then among equal keys its index.  Each bit asks every thread for
 * a comparison an element and the warp for one sum.  The first few of each sorted row (top k) are those up to such an
 * element: first_rows() gathers their words, in any order, and each goes to the place that is the number of smaller
 * ones.
 *
 * Rejected: counting for each element those that come before it (n comparisons an element instead of about
 * log2(n)^2 / 4, which pays only below 16 elements); radix sort (four or more passes through shared memory, for rows
 * that fit into registers). */
#ifndef WW_SORT_CUH
#define WW_SORT_CUH

#include <ww/vec.cuh>

namespace ww
{

enum sort_type { SORT_F32, SORT_F16, SORT_BF16 }; /* type of the values; small integers are SORT_F32 */

/* The value as bits of its type, to which it is rounded. */
template <int TYPE> __device__ __forceinline__ unsigned sort_bits(float v)
{
	const __half h = __float2half_rn(v);
	const __nv_bfloat16 b = __float2bfloat16_rn(v);

	return TYPE == SORT_F32 ? __float_as_uint(v)
							: *(const unsigned short *)(TYPE == SORT_F16 ? (void *)&h : (void *)&b);
}

/* The key of a value: unsigned, in the order of the values; 16 bits for 16-bit types.  -0 is 0, or, where it has to be
 * found from its key, next to it. */
template <int TYPE, bool VALUES> __device__ __forceinline__ unsigned sort_key(float v, bool descending)
{
	const unsigned top = TYPE == SORT_F32 ? 1u << 31 : 1u << 15, all = top - 1 + top, raw = sort_bits<TYPE>(v);
	const unsigned key = v != v ? all : !VALUES && v == 0.f ? top : raw & top ? ~raw & all : raw | top;

	return descending ? ~key & all : key;
}

/* The value of a key. */
template <int TYPE> __device__ __forceinline__ float sort_value(unsigned key, bool descending)
{
	const unsigned top = TYPE == SORT_F32 ? 1u << 31 : 1u << 15, all = top - 1 + top,
				   up = descending ? ~key & all : key;
	const unsigned raw = up & top ? up ^ top : ~up & all;
	const unsigned short low = (unsigned short)raw;

	return TYPE == SORT_F16 ? __half2float(*(const __half *)&low) : __uint_as_float(TYPE == SORT_F32 ? raw : raw << 16);
}

template <bool LONG> struct sort_word {
	typedef unsigned t;
};
template <> struct sort_word<true> {
	typedef unsigned long long t;
};

template <class W> __device__ __forceinline__ W sort_lower(W a, W b) { return b < a ? b : a; }
template <class W> __device__ __forceinline__ W sort_higher(W a, W b) { return b < a ? a : b; }

/* Compare and exchange with thread t ^ MASK, positions mirrored if FLIP; BIT is the highest bit of MASK. */
template <class W, int EACH, int TPR, int THREADS, int MASK, int BIT, bool FLIP>
__device__ __forceinline__ void sort_step(W (&w)[EACH], W *box)
{
	const bool low = !(threadIdx.x & BIT);
	W other[EACH];

	if (MASK < 32) {
#pragma unroll
		for (int e = 0; e < EACH; e++)
			other[e] = __shfl_xor_sync(0xffffffffu, w[FLIP ? EACH - 1 - e : e], MASK);
	} else {
		__syncthreads();
#pragma unroll
		for (int e = 0; e < EACH; e++)
			box[e * THREADS + threadIdx.x] = w[e];
		__syncthreads();
#pragma unroll
		for (int e = 0; e < EACH; e++)
			other[e] = box[(FLIP ? EACH - 1 - e : e) * THREADS + (threadIdx.x ^ MASK)];
	}
#pragma unroll
	for (int e = 0; e < EACH; e++)
		w[e] = low ? sort_lower(w[e], other[e]) : sort_higher(w[e], other[e]);
}

template <class W> __device__ __forceinline__ void sort_two(W &a, W &b)
{
	const W low = sort_lower(a, b), high = sort_higher(a, b);

	a = low;
	b = high;
}

/* The steps of a merge at distances D, D / 2, ..., 1. */
template <class W, int EACH, int TPR, int THREADS, int D> struct sort_halves {
	static __device__ __forceinline__ void run(W (&w)[EACH], W *box)
	{
		if (D >= EACH) {
			sort_step<W, EACH, TPR, THREADS, D >= EACH ? D / EACH : 1, D >= EACH ? D / EACH : 1, false>(w, box);
		} else {
#pragma unroll
			for (int e = 0; e < EACH; e++)
				if (!(e & D))
					sort_two(w[e], w[(e | D) % EACH]);
		}
		sort_halves<W, EACH, TPR, THREADS, D / 2>::run(w, box);
	}
};
template <class W, int EACH, int TPR, int THREADS> struct sort_halves<W, EACH, TPR, THREADS, 0> {
	static __device__ __forceinline__ void run(W (&)[EACH], W *) {}
};

/* Sorted runs of LEN words become sorted runs of 2 LEN, up to the whole row. */
template <class W, int EACH, int TPR, int THREADS, int LEN, bool MORE> struct sort_merge {
	static __device__ __forceinline__ void run(W (&w)[EACH], W *box)
	{
		enum : int { lanes = LEN >= EACH ? LEN / EACH : 1 };

		if (LEN >= EACH) {
			sort_step<W, EACH, TPR, THREADS, 2 * lanes - 1, lanes, true>(w, box);
		} else {
#pragma unroll
			for (int e = 0; e < EACH; e++)
				if (!(e & LEN))
					sort_two(w[e], w[(e ^ (2 * LEN - 1)) % EACH]);
		}
		sort_halves<W, EACH, TPR, THREADS, LEN / 2>::run(w, box);
		sort_merge<W, EACH, TPR, THREADS, 2 * LEN, (4 * LEN <= EACH * TPR)>::run(w, box);
	}
};
template <class W, int EACH, int TPR, int THREADS, int LEN> struct sort_merge<W, EACH, TPR, THREADS, LEN, false> {
	static __device__ __forceinline__ void run(W (&)[EACH], W *) {}
};

/* f.load<1>(o, l, i, v) reads element l of row (o, i), whose elements are `inner` apart; f.store<VEC>(o, l, i, v) gets,
 * for l from 0 to count - 1, of element first + l of the sorted row the source index, as a float, or, if VALUES, the
 * value.  Grid: THREADS / TPR rows a block. */
template <int TYPE, int EACH, int TPR, int THREADS, int VEC, bool VALUES = false, class F>
__device__ __forceinline__ void sort_rows(
	long long outer, int len, long long inner, int first, int count, bool descending, const F &f)
{
	typedef typename sort_word<TYPE == SORT_F32 && !VALUES>::t W;
	enum : int { shift = VALUES ? 0 : sizeof(W) == 8 ? 32 : 16, shared = TPR > 32 ? EACH * THREADS : 1 };
	__shared__ W box[shared];
	const int t = threadIdx.x % TPR;
	const long long row = (long long)blockIdx.x * (THREADS / TPR) + threadIdx.x / TPR;
	const long long o = (row | inner) >> 31 ? row / inner : (unsigned)row / (unsigned)inner, i = row - o * inner;
	W w[EACH];

#pragma unroll
	for (int e = 0; e < EACH; e++) {
		const int at = e * TPR + t;
		float v[1];

		w[e] = ~(W)0;
		if (row < outer * inner && at < len) {
			f.template load<1>(o, at, i, v);
			w[e] = (W)sort_key<TYPE, VALUES>(v[0], descending) << shift | (VALUES ? 0 : (unsigned)at);
		}
	}
	sort_merge<W, EACH, TPR, THREADS, 1, (EACH * TPR > 1)>::run(w, box);
	if (row >= outer * inner)
		return;
#pragma unroll
	for (int e = 0; e < EACH; e += VEC) {
		const int l = t * EACH + e - first;
		float v[VEC];

#pragma unroll
		for (int k = 0; k < VEC; k++)
			v[k] = VALUES ? sort_value<TYPE>((unsigned)w[e + k], descending)
						  : (float)(unsigned)(w[e + k] & (((W)1 << shift) - 1));
		if (l >= 0 && l < count)
			f.template store<VEC>(o, l, i, v);
	}
}

/* How many of the row's keys are below `than`; box: two words for each warp, by turns. */
template <int EACH, int TPR>
__device__ __forceinline__ unsigned select_below(const unsigned (&key)[EACH], unsigned than, unsigned *box, int turn)
{
	unsigned n = 0;

#pragma unroll
	for (int e = 0; e < EACH; e++)
		n += key[e] < than;
	n = __reduce_add_sync(0xffffffffu, n);
	if (TPR > 32) {
		unsigned *const all = box + turn % 2 * (TPR / 32);

		if (threadIdx.x % 32 == 0)
			all[threadIdx.x / 32] = n;
		__syncthreads();
		if (TPR > 256) /* a lane for each warp's, rather than all for each lane */
			return __reduce_add_sync(0xffffffffu, threadIdx.x % 32 < TPR / 32 ? all[threadIdx.x % 32] : 0u);
		n = 0;
#pragma unroll
		for (int w = 0; w < TPR / 32; w++)
			n += all[w];
	}
	return n;
}

/* The key, of so many bits, that `rank` keys come before. */
template <int EACH, int TPR>
__device__ __forceinline__ unsigned select_key(const unsigned (&key)[EACH], unsigned rank, int bits, unsigned *box)
{
	unsigned found = 0;

	for (int b = bits - 1; b >= 0; b--)
		if (select_below<EACH, TPR>(key, found | 1u << b, box, b) <= rank)
			found |= 1u << b;
	return found;
}

/* Element `first` of each sorted row, as sort_rows() of inner 1 and count 1 stores it.  TPR is a multiple of 32, and a
 * block has one row, or 128 / TPR where TPR is 32. */
template <int TYPE, int EACH, int TPR, bool VALUES = false, class F>
__device__ __forceinline__ void select_rows(long long rows, int len, int first, bool descending, const F &f)
{
	enum : int { bits = TYPE == SORT_F32 ? 32 : 16, each_block = TPR > 32 ? 1 : 4 };
	__shared__ unsigned box[TPR > 32 ? TPR / 16 : 1];
	const int t = threadIdx.x % TPR;
	const long long row = (long long)blockIdx.x * each_block + threadIdx.x / TPR;
	float v[EACH][1];
	unsigned key[EACH];

#pragma unroll
	for (int e = 0; e < EACH; e++) /* beyond the end the last ones: no load waits behind a branch */
		f.template load<1>(row < rows ? row : rows - 1, e * TPR + t < len ? e * TPR + t : len - 1, 0, v[e]);
#pragma unroll
	for (int e = 0; e < EACH; e++)
		key[e] = e * TPR + t < len ? sort_key<TYPE, VALUES>(v[e][0], descending) : ~0u;
	const unsigned it = select_key<EACH, TPR>(key, first, bits, box);
	float found[1] = { sort_value<TYPE>(it, descending) };

	if (!VALUES) { /* of those with this key */
		const unsigned before = select_below<EACH, TPR>(key, it, box, 1);

#pragma unroll
		for (int e = 0; e < EACH; e++)
			key[e] = key[e] == it && e * TPR + t < len ? e * TPR + t : ~0u;
		if (TPR > 32)
			__syncthreads();
		found[0] = (float)select_key<EACH, TPR>(key, first - before, 32 - __clz(len), box);
	}
	if (row < rows && t == 0)
		f.template store<1>(row, 0, 0, found);
}

/* The first `count` elements of each sorted row, at most MOST, as sort_rows() of inner 1 stores them, one by one.  TPR
 * and the rows of a block are those of select_rows(). */
template <int TYPE, int EACH, int TPR, int MOST, bool VALUES = false, class F>
__device__ __forceinline__ void first_rows(long long rows, int len, int count, bool descending, const F &f)
{
	typedef typename sort_word<TYPE == SORT_F32 && !VALUES>::t W;
	enum : int {
		bits = TYPE == SORT_F32 ? 32 : 16,
		each_block = TPR > 32 ? 1 : 4,
		shift = VALUES       ? 0
			: sizeof(W) == 8 ? 32
							 : 16
	};
	__shared__ unsigned box[TPR > 32 ? TPR / 16 : 1], gathered[each_block];
	__shared__ W found[each_block][MOST];
	const int t = threadIdx.x % TPR, r = threadIdx.x / TPR;
	const long long row = (long long)blockIdx.x * each_block + r;
	unsigned key[EACH], bound = 0;
	float v[EACH][1];

	if (t == 0)
		gathered[r] = 0;
#pragma unroll
	for (int e = 0; e < EACH; e++)
		f.template load<1>(row < rows ? row : rows - 1, e * TPR + t < len ? e * TPR + t : len - 1, 0, v[e]);
#pragma unroll
	for (int e = 0; e < EACH; e++)
		key[e] = e * TPR + t < len ? sort_key<TYPE, VALUES>(v[e][0], descending) : ~0u;
	const unsigned last = select_key<EACH, TPR>(key, count - 1, bits, box);
	const unsigned before = select_below<EACH, TPR>(key, last, box, 1);

	if (!VALUES) { /* of equal ones those that come first */
		unsigned place[EACH];

#pragma unroll
		for (int e = 0; e < EACH; e++)
			place[e] = key[e] == last && e * TPR + t < len ? e * TPR + t : ~0u;
		if (TPR > 32)
			__syncthreads();
		bound = select_key<EACH, TPR>(place, count - 1 - before, 32 - __clz(len), box);
	}
	TPR > 32 ? __syncthreads() : __syncwarp();
#pragma unroll
	for (int e = 0; e < EACH; e++)
		if (e * TPR + t < len && (key[e] < last || (!VALUES && key[e] == last && e * TPR + t <= bound)))
			found[r][atomicAdd(&gathered[r], 1u)] = (W)key[e] << shift | (VALUES ? 0 : (unsigned)(e * TPR + t));
	TPR > 32 ? __syncthreads() : __syncwarp();
	for (int i = t; i < count && row < rows; i += TPR) {
		const W w = VALUES && i >= before ? last : found[r][i];
		float out[1] = { VALUES ? sort_value<TYPE>((unsigned)w, descending)
								: (float)(unsigned)(w & (((W)1 << shift) - 1)) };
		int to = 0;

		for (int k = 0; k < (VALUES ? (int)before : count); k++)
			to += found[r][k] < w || (VALUES && found[r][k] == w && k < i);
		f.template store<1>(row, VALUES && i >= before ? i : to, 0, out);
	}
}

} // namespace ww

#endif
