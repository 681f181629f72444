/* gemm_mma.cuh - matrix products in one launch, for any size, alignment and order of operands, by mma.sync: for
 * products that are too small for gemm3 (whose operands are split by separate kernels) and gemm16, or do not fit their
 * tensor maps.
 *
 *   float          each element is a pair of tf32 made in registers, hi = round(x), lo = x - hi; lo*hi + hi*lo + hi*hi
 *                  keeps 22 bits.  The accumulators are added to sums in registers after every BK of K (pipeline.cuh
 *                  says why).
 *   half, bfloat16 one product, fp32 accumulation
 *
 * A block computes BM x BN results.  Its operands come through STAGES buffers of shared memory, BK of K each, in the
 * order that they have in global memory, with rows padded so that reading fragments has no bank conflicts.  SPLIT
 * blocks of a cluster share the K of one tile and add their parts in the order of the blocks, so the bits are the same
 * every time.  The epilogue is that of gemm.cuh.
 *
 * Of a short K and many rows a block does TILES tiles below each other: the second operand, of STEPS times BK, stays in
 * shared memory, and the rows of the next tiles come while one is multiplied and stored.  With a block for each tile,
 * which loads, then multiplies, then stores, memory waited for the products and they for memory.
 *
 * gemm_mma_of is the same of a first operand that the epilogue's functor computes on the way to shared memory (a gate,
 * a normalised row): of few columns the product is bound by memory, and what an operand is computed of is read once,
 * where a kernel ahead of it would store it and this one load it again.  All columns are in one tile.
 *
 * Dynamic shared memory: mma_shape<...>::bytes. */
#ifndef WW_GEMM_MMA_CUH
#define WW_GEMM_MMA_CUH

#include <ww/mma.cuh>

namespace ww
{

/* Element (z, row, k) of an operand: from(z)[row * stride + k], or from(z)[row + k * stride].  Batches of two axes, the
 * inner one `inner` long. */
template <class T> struct mma_operand {
	const T *p;
	long long stride, outer_stride, inner_stride;
	int inner;

	__device__ __forceinline__ const T *from(int z) const
	{
		return p + z / inner * outer_stride + z % inner * inner_stride;
	}
};

/* A tile of an operand in shared memory, ROWS rows of BK of K.  ALONG_K: global memory is contiguous along K, too; VEC:
 * elements of one copy. */
template <class T, int ROWS, int BK, bool ALONG_K, int VEC, int THREADS> struct mma_tile {
	enum : int { words = sizeof(T) == 4 };
	enum : int { pitch = ALONG_K ? BK + 8 : ROWS + (words ? 4 : 8) };
	enum : int { elements = (ALONG_K ? ROWS : BK) * pitch };
	enum : int { lines = ALONG_K ? ROWS : BK, per = (ALONG_K ? BK : ROWS) / VEC, step = THREADS / per };
	static_assert(THREADS % per == 0, "a pass of the block over the tile is whole lines");

	/* No copy is shorter than 4 bytes.  Where elements of 2 are not aligned to that, a line comes by words from the one
	 * on that its first element lies in, and align() moves it by an element if that is the second one of the word. */
	enum : int { by_words = VEC * sizeof(T) < 4, per_words = (ALONG_K ? BK : ROWS) / 2 };

	static __device__ __forceinline__ bool is_second(const T *p) { return (unsigned long long)p / 2 % 2; }

	static __device__ __forceinline__ void fill_words(
		T *to, const T *from, long long stride, int row0, int rows, int k0, int k_end)
	{
		enum : int { down = THREADS / per_words };
		static_assert(THREADS % per_words == 0 && down % 2 == 0, "a thread's lines all begin alike");
		const int word = threadIdx.x % per_words, l0 = threadIdx.x / per_words, line0 = ALONG_K ? row0 : k0;
		const int end = ALONG_K ? rows : k_end, place = ALONG_K ? k0 : row0, left = (ALONG_K ? k_end : rows) - place;
		const T *src = from + (line0 + l0) * stride + place, *none = from - is_second(from);
		const int at = 2 * word - is_second(src), valid = max(0, min(2, left - at));

#pragma unroll 16
		for (int u = 0; u < (lines + down - 1) / down; u++) {
			const int n = line0 + l0 + u * down < end ? valid : 0;

			if (lines % down && l0 + u * down >= lines)
				break;
			copy_start<4>(to + (l0 + u * down) * pitch + 2 * word, n ? src + at : none, n * 2);
			src += down * stride;
		}
		/* one word more of the lines that are moved */
#pragma unroll
		for (int u = 0; u < (lines + THREADS - 1) / THREADS; u++) {
			const int l = threadIdx.x + u * THREADS;
			const T *line = from + (line0 + l) * stride + place;
			const bool inside = line0 + l < end && 2 * per_words - 1 < left;

			if (l < lines && is_second(line))
				copy_start<4>(to + l * pitch + 2 * per_words, inside ? line + 2 * per_words - 1 : none, inside ? 2 : 0);
		}
	}

	/* After fill() has come, ahead of a barrier. */
	static __device__ __forceinline__ void align(T *to, const T *from, long long stride, int row0, int k0)
	{
		/* words of a lane, and a warp's lines at once */
		enum : int { many = per_words > 32 ? per_words / 32 : 1, high = per_words < 32 ? 32 / per_words : 1 };
		enum : int { down = THREADS / 32 * high, all = lines / down, batch = all < 4 ? all : 4 };
		static_assert(lines % down == 0 && all % batch == 0, "all warps have as many lines");
		const int lane = threadIdx.x % 32, l0 = threadIdx.x / 32 * high + lane / per_words % high;
		const T *line = from + ((ALONG_K ? row0 : k0) + l0) * stride + (ALONG_K ? k0 : row0);

#pragma unroll
		for (int u = 0; u < all; u += batch) {
			unsigned v[batch][many];

#pragma unroll
			for (int i = 0; i < batch; i++)
#pragma unroll
				for (int j = 0; j < many; j++) {
					const unsigned *w = (const unsigned *)(to + (l0 + (u + i) * down) * pitch) +
						(lane + j * 32) % per_words;
					v[i][j] = w[0] >> 16 | w[1] << 16;
				}
			__syncwarp();
#pragma unroll
			for (int i = 0; i < batch; i++)
#pragma unroll
				for (int j = 0; j < many; j++)
					if (is_second(line + (u + i) * down * stride))
						((unsigned *)(to + (l0 + (u + i) * down) * pitch))[(lane + j * 32) % per_words] = v[i][j];
		}
	}

	/* A thread's copies are one below the other, `step` lines apart. */
	static __device__ __forceinline__ void fill(
		T *to, const T *from, long long stride, int row0, int rows, int k0, int k_end)
	{
		if constexpr (by_words) {
			fill_words(to, from, stride, row0, rows, k0, k_end);
			return;
		}
		const int at = threadIdx.x % per * VEC, l0 = threadIdx.x / per, first = (ALONG_K ? row0 : k0) + l0;
		const int end = ALONG_K ? rows : k_end, place = (ALONG_K ? k0 : row0) + at;
		const int valid = max(0, min((int)VEC, (ALONG_K ? k_end : rows) - place));
		const T *src = from + first * stride + place;

		to += l0 * pitch + at;
#pragma unroll 16
		for (int u = 0; u < (lines + step - 1) / step; u++) {
			const int n = first + u * step < end ? valid : 0;

			if (lines % step && l0 + u * step >= lines)
				break;
			copy_start<by_words ? 4 : (int)(VEC * sizeof(T))>(to, n ? src : from, n * (int)sizeof(T));
			src += step * stride;
			to += step * pitch;
		}
	}

	/* The same of what e computes: VEC elements along k from row, k on by e.load<VEC>(z, row, k, v).  All are computed
	 * before the first is stored, so that their loads are under way at once.  VEC divides k_end. */
	template <class E>
	static __device__ __forceinline__ void compute(T *to, const E &e, int z, int row0, int rows, int k0, int k_end)
	{
		enum : int { each = (lines + step - 1) / step };
		static_assert(ALONG_K, "what is computed is stored along k");
		const int at = threadIdx.x % per * VEC, l0 = threadIdx.x / per, first = row0 + l0;
		const bool inside = k0 + at < k_end;
		T v[each][VEC];

#pragma unroll
		for (int u = 0; u < each; u++) {
			float x[VEC];

			if (inside && first + u * step < rows) {
				e.template load<VEC>(z, first + u * step, k0 + at, x);
			} else {
#pragma unroll
				for (int l = 0; l < VEC; l++)
					x[l] = 0.f;
			}
#pragma unroll
			for (int l = 0; l < VEC; l++)
				v[u][l] = from_float<T>(x[l]);
		}
		to += l0 * pitch + at;
#pragma unroll
		for (int u = 0; u < each; u++)
			if (lines % step == 0 || l0 + u * step < lines) {
				float x[VEC];
#pragma unroll
				for (int l = 0; l < VEC; l++)
					x[l] = to_float<T>(v[u][l]);
				store(to + u * step * pitch, x);
			}
	}
};

template <int N> struct mma_pairs {
	unsigned hi[N], lo[N];

	/* tf32 has 10 bits of fp32's 23. */
	__device__ __forceinline__ void set(int i, float x)
	{
		hi[i] = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
		lo[i] = __float_as_uint(x - __uint_as_float(hi[i]));
	}
};

template <class T, int BM, int BN> struct mma_shape {
	enum : int { words = sizeof(T) == 4, bk = words ? 32 : 64 };
	enum : int { warps = BM * BN > 4096 ? 8 : 4, threads = 32 * warps };
	enum : int { rows = BM == 16 ? 1 : BM == 128 ? 4 : 2, cols = warps / rows };
	enum : int { wm = BM / rows, wn = BN / cols, mt = wm / 16, nt = wn / 8 };
};

/* acc += one stage's products, of the warp's tile at row, col. */
template <class T> struct mma_stage {
	template <class S, class A, class B, bool AK, bool BK_>
	static __device__ __forceinline__ void run(float (&acc)[S::mt][S::nt][4], const T *a, const T *b, int row, int col)
	{
		const int in = threadIdx.x % 8, m = threadIdx.x % 32 / 8;

#pragma unroll
		for (int k = 0; k < S::bk; k += 16) {
			unsigned fa[S::mt][4], fb[S::nt / 2][4];

#pragma unroll
			for (int i = 0; i < S::mt; i++) { /* matrices: rows 0, 8, 0, 8; k 0, 0, 8, 8 */
				const int r = row + i * 16 + m % 2 * 8, kk = k + m / 2 * 8;
				mma_load<!AK>(fa[i], AK ? a + (r + in) * A::pitch + kk : a + (kk + in) * A::pitch + r);
			}
#pragma unroll
			for (int j = 0; j < S::nt / 2; j++) { /* columns 0, 0, 8, 8; k 0, 8, 0, 8 */
				const int c = col + j * 16 + m / 2 * 8, kk = k + m % 2 * 8;
				mma_load<!BK_>(fb[j], BK_ ? b + (c + in) * B::pitch + kk : b + (kk + in) * B::pitch + c);
			}
#pragma unroll
			for (int i = 0; i < S::mt; i++)
#pragma unroll
				for (int j = 0; j < S::nt; j++) {
					const unsigned two[2] = { fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1] };
					mma_16(acc[i][j], fa[i], two, (T *)0);
				}
		}
	}
};

/* Slot t of a fragment is k 2t, slot t + 4 is k 2t + 1. */
template <> struct mma_stage<float> {
	template <class S, class A, class B, bool AK, bool BK_> static __device__ __forceinline__ void run(
		float (&acc)[S::mt][S::nt][4], const float *a, const float *b, int row, int col)
	{
		const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
		for (int k = 0; k < S::bk; k += 8) {
			mma_pairs<4> fa[S::mt];
			mma_pairs<2> fb[S::nt];

#pragma unroll
			for (int i = 0; i < S::mt; i++)
#pragma unroll
				for (int h = 0; h < 2; h++) {
					const int r = row + i * 16 + h * 8 + g;
					float v[2];
					if (AK)
						load(a + r * A::pitch + k + 2 * t, v);
					else
						v[0] = a[(k + 2 * t) * A::pitch + r], v[1] = a[(k + 2 * t + 1) * A::pitch + r];
					fa[i].set(h, v[0]);
					fa[i].set(h + 2, v[1]);
				}
#pragma unroll
			for (int j = 0; j < S::nt; j++) {
				const int c = col + j * 8 + g;
				float v[2];
				if (BK_)
					load(b + c * B::pitch + k + 2 * t, v);
				else
					v[0] = b[(k + 2 * t) * B::pitch + c], v[1] = b[(k + 2 * t + 1) * B::pitch + c];
				fb[j].set(0, v[0]);
				fb[j].set(1, v[1]);
			}
#pragma unroll
			for (int term = 0; term < 3; term++)
#pragma unroll
				for (int i = 0; i < S::mt; i++)
#pragma unroll
					for (int j = 0; j < S::nt; j++)
						mma_tf32(acc[i][j], term == 0 ? fa[i].lo : fa[i].hi, term == 1 ? fb[j].lo : fb[j].hi);
		}
	}
};

template <class E>
__device__ __forceinline__ void mma_store(const E &e, int z, int row, int col, int m, int n, const float (&v)[2])
{
	if (row >= m || col >= n)
		return;
	if (n % 2 == 0) {
		e.template store<2>(z, row, col, v);
	} else {
		const float one[1] = { v[0] }, two[1] = { v[1] };
		e.template store<1>(z, row, col, one);
		if (col + 1 < n)
			e.template store<1>(z, row, col + 1, two);
	}
}

/* mma_end()'s shared memory where n is odd: 16 rows of up to 32 columns for each warp.  Rows are 40 or 24 apart, so
 * that pairs of neighbours go to different banks. */
template <class S> struct mma_odd {
	enum : int { many = S::nt < 4 ? S::nt : 4, wide = many * 8, row = wide + 8, floats = 16 * row };
};

/* Store a warp's results where n is odd, its first ones at row, col.  They go through `box`, so that a warp's accesses
 * are coalesced: as mma.sync leaves them a store is of 8 rows, of each every other one of 8 columns, and wrote a part
 * of as many sectors, each of which four stores had a part of. */
template <class S, class A, class B, class E> __device__ __forceinline__ void mma_end_odd(
	const E &e, int z, int row, int col, int m, int n, const A &acc, const B &sum, float *box)
{
	typedef mma_odd<S> O;
	constexpr int steps = S::mt * S::nt / O::many, per = 32 / O::wide, high = 8; /* rows of one store, and under way */
	const int lane = threadIdx.x % 32;

#pragma unroll 1
	for (int s = 0; s < steps; s++) {
		const int r0 = row + s / (S::nt / O::many) * 16, c0 = col + s % (S::nt / O::many) * O::wide;
		const int c = c0 + lane % O::wide, first = lane / O::wide;
		float t[4 * O::many];

		pick<steps>(s, t, [&](int i) {
			return (
				S::words ? sum[S::words ? i / 4 / S::nt : 0][i / 4 % S::nt] : acc[i / 4 / S::nt][i / 4 % S::nt])[i % 4];
		});
		__syncwarp();
#pragma unroll
		for (int j = 0; j < O::many; j++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const float v[2] = { t[j * 4 + h * 2], t[j * 4 + h * 2 + 1] };
				store(box + (lane / 4 + 8 * h) * O::row + j * 8 + lane % 4 * 2, v);
			}
		__syncwarp();
		if (c >= n)
			continue;
#pragma unroll
		for (int i0 = 0; i0 < 16 / per; i0 += high) {
			const float *from = box + (i0 * per + first) * O::row + lane % O::wide;
			const int r = r0 + i0 * per + first;

			if (r0 + (i0 + high) * per <= m) { /* no branch in between: all loads come first */
				ahead<E, 1> given[high];
#pragma unroll
				for (int i = 0; i < high; i++)
					given[i].fetch(e, z, r + i * per, c);
#pragma unroll
				for (int i = 0; i < high; i++) {
					const float v[1] = { from[i * per * O::row] };
					given[i].store(e, v, z, r + i * per, c);
				}
				continue;
			}
#pragma unroll 1
			for (int i = 0; i < high && r + i * per < m; i++) {
				const float v[1] = { from[i * per * O::row] };
				ahead<E, 1> given;
				given.fetch(e, z, r + i * per, c);
				given.store(e, v, z, r + i * per, c);
			}
		}
	}
}

/* Store a warp's results, its first ones at row, col; box: mma_odd<S>::floats of its own where n is odd.  If it is
 * even, a thread stores two columns at once.  Operands of the stores of 16 rows and up to 32 columns are loaded before
 * the first store. */
template <class S, class A, class B, class E> __device__ __forceinline__ void mma_end(
	const E &e, int z, int row, int col, int m, int n, const A &acc, const B &sum, float *box)
{
	enum : int { N = 2 };

	if (n % 2)
		return mma_end_odd<S>(e, z, row, col, m, n, acc, sum, box);
	row += threadIdx.x % 32 / 4;
	col += threadIdx.x % 4 * 2;
	constexpr int many = S::nt < 4 ? S::nt : 4, steps = S::mt * S::nt / many;

#pragma unroll 1
	for (int s = 0; s < steps; s++) {
		const int r0 = row + s / (S::nt / many) * 16, c0 = col + s % (S::nt / many) * many * 8;
		float t[4 * many];

		pick<steps>(s, t, [&](int i) {
			return (
				S::words ? sum[S::words ? i / 4 / S::nt : 0][i / 4 % S::nt] : acc[i / 4 / S::nt][i / 4 % S::nt])[i % 4];
		});
		if (r0 + 8 < m && c0 + (many - 1) * 8 + 1 < n) { /* no branches in between: computed side by side */
			ahead<E, N> r[2][many][2 / N];
#pragma unroll
			for (int h = 0; h < 2; h++)
#pragma unroll
				for (int j = 0; j < many; j++)
#pragma unroll
					for (int l = 0; l < 2; l += N)
						r[h][j][l / N].fetch(e, z, r0 + h * 8, c0 + j * 8 + l);
#pragma unroll
			for (int h = 0; h < 2; h++)
#pragma unroll
				for (int j = 0; j < many; j++)
#pragma unroll
					for (int l = 0; l < 2; l += N) {
						float v[N];
#pragma unroll
						for (int q = 0; q < N; q++)
							v[q] = t[j * 4 + h * 2 + l + q];
						r[h][j][l / N].store(e, v, z, r0 + h * 8, c0 + j * 8 + l);
					}
			continue;
		}
		ahead<E, N> r[2][many][2 / N];
#pragma unroll
		for (int h = 0; h < 2; h++)
#pragma unroll
			for (int j = 0; j < many; j++)
#pragma unroll
				for (int l = 0; l < 2; l += N)
					if (r0 + h * 8 < m && c0 + j * 8 + l < n)
						r[h][j][l / N].fetch(e, z, r0 + h * 8, c0 + j * 8 + l);
#pragma unroll
		for (int h = 0; h < 2; h++)
#pragma unroll
			for (int j = 0; j < many; j++)
#pragma unroll
				for (int l = 0; l < 2; l += N) {
					float v[N];
#pragma unroll
					for (int q = 0; q < N; q++)
						v[q] = t[j * 4 + h * 2 + l + q];
					if (r0 + h * 8 < m && c0 + j * 8 + l < n)
						r[h][j][l / N].store(e, v, z, r0 + h * 8, c0 + j * 8 + l);
				}
	}
}

template <class S>
__device__ __forceinline__ void mma_clear(float (&acc)[S::mt][S::nt][4], float (&sum)[S::words ? S::mt : 1][S::nt][4])
{
#pragma unroll
	for (int i = 0; i < S::mt; i++)
#pragma unroll
		for (int j = 0; j < S::nt; j++)
#pragma unroll
			for (int l = 0; l < 4; l++)
				acc[i][j][l] = sum[S::words ? i : 0][j][l] = 0.f;
}

/* What a step has summed is added to the sums of all. */
template <class S>
__device__ __forceinline__ void mma_promote(float (&acc)[S::mt][S::nt][4], float (&sum)[S::words ? S::mt : 1][S::nt][4])
{
#pragma unroll
	for (int i = 0; i < S::mt; i++)
#pragma unroll
		for (int j = 0; j < S::nt; j++)
#pragma unroll
			for (int l = 0; l < 4; l++)
				sum[S::words ? i : 0][j][l] += acc[i][j][l], acc[i][j][l] = 0.f;
}

/* The body of gemm_mma and gemm_mma_of: fill_a(to, z, row0, k0) brings BM rows of BK of the first operand to shared
 * memory, as tile A has them; where ALIGNED, align_a(to, z, row0, k0) moves them by an element once they are there. */
template <class T, int BM, int BN, int STAGES, int SPLIT, bool AK, bool BK_, int AV, int BV, bool ALIGNED, class F,
	class G, class E>
__device__ __forceinline__ void mma_product(
	const F &fill_a, const G &align_a, mma_operand<T> b, int m, int n, int k, const E &e)
{
	typedef mma_shape<T, BM, BN> S;
	typedef mma_tile<T, BM, S::bk, AK, AV, S::threads> A;
	typedef mma_tile<T, BN, S::bk, BK_, BV, S::threads> B;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % SPLIT, tile = blockIdx.x / SPLIT;
	const int cols = (n + BN - 1) / BN, rows = (m + BM - 1) / BM;
	const int z = tile / cols / rows, row0 = tile / cols % rows * BM, col0 = tile % cols * BN;
	const int steps = (k + S::bk - 1) / S::bk, per = (steps + SPLIT - 1) / SPLIT;
	const int first = rank * per, last = min(steps, first + per);
	const int row = warp / S::cols * S::wm, col = warp % S::cols * S::wn;
	T *buffer = (T *)dynamic_shared();
	float acc[S::mt][S::nt][4], sum[S::words ? S::mt : 1][S::nt][4];

	mma_clear<S>(acc, sum);

	auto fill = [&](int step) {
		T *to = buffer + (step - first) % STAGES * (A::elements + B::elements);
		if (step < last) {
			fill_a(to, z, row0, step * S::bk);
			B::fill(to + A::elements, b.from(z), b.stride, col0, n, step * S::bk, k);
		}
		copy_commit();
	};
#pragma unroll
	for (int s = 0; s < STAGES - 1; s++)
		fill(first + s);
	for (int step = first; step < last; step++) {
		T *at = buffer + (step - first) % STAGES * (A::elements + B::elements);
		copy_wait<STAGES - 2>();
		__syncthreads();
		fill(step + STAGES - 1);
		if constexpr (ALIGNED)
			align_a(at, z, row0, step * S::bk);
		if constexpr (B::by_words)
			B::align(at + A::elements, b.from(z), b.stride, col0, step * S::bk);
		if (ALIGNED || B::by_words)
			__syncthreads();
		mma_stage<T>::template run<S, A, B, AK, BK_>(acc, at, at + A::elements, row, col);
		if (S::words)
			mma_promote<S>(acc, sum);
	}
	float *box = dynamic_shared();
	if (SPLIT == 1) {
		if (n % 2) /* all have read what their results go to */
			__syncthreads();
		mma_end<S>(e, z, row0 + row, col0 + col, m, n, acc, sum, box + warp * mma_odd<S>::floats);
		return;
	}
	copy_wait<0>();
	__syncthreads();
#pragma unroll
	for (int i = 0; i < S::mt; i++)
#pragma unroll
		for (int j = 0; j < S::nt; j++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const float *from = S::words ? sum[S::words ? i : 0][j] : acc[i][j];
				const float v[2] = { from[h * 2], from[h * 2 + 1] };
				store(box + (row + i * 16 + h * 8 + lane / 4) * BN + col + j * 8 + lane % 4 * 2, v);
			}
	if (SPLIT > 1) {
		mma_cluster_barrier();
		for (int i = rank * S::threads + threadIdx.x; i < BM * BN / 2; i += SPLIT * S::threads) {
			float v[2] = { 0.f, 0.f };
#pragma unroll
			for (int r = 0; r < SPLIT; r++) {
				float part[2];
				cluster_load2(part, box + i * 2, r);
				v[0] += part[0];
				v[1] += part[1];
			}
			mma_store(e, z, row0 + i / (BN / 2), col0 + i % (BN / 2) * 2, m, n, v);
		}
		mma_cluster_barrier();
	}
}

/* TILES tiles below each other, of which k is at most STEPS times BK. */
template <class T, int BM, int BN, int STAGES, int TILES, int STEPS, bool AK, bool BK_, int AV, int BV, class E>
__device__ __forceinline__ void mma_tiles(mma_operand<T> a, mma_operand<T> b, int m, int n, int k, const E &e)
{
	typedef mma_shape<T, BM, BN> S;
	typedef mma_tile<T, BM, S::bk, AK, AV, S::threads> A;
	typedef mma_tile<T, BN, S::bk, BK_, BV, S::threads> B;
	const int warp = threadIdx.x / 32;
	const int cols = (n + BN - 1) / BN, rows = (m + BM - 1) / BM, groups = (rows + TILES - 1) / TILES;
	const int z = blockIdx.x / cols / groups, tile0 = blockIdx.x / cols % groups * TILES, col0 = blockIdx.x % cols * BN;
	const int all = min((int)TILES, rows - tile0) * STEPS;
	const int row = warp / S::cols * S::wm, col = warp % S::cols * S::wn;
	T *second = (T *)dynamic_shared(), *buffer = second + STEPS * B::elements;
	float acc[S::mt][S::nt][4], sum[S::words ? S::mt : 1][S::nt][4];

	auto fill = [&](int at) {
		if (at < all)
			A::fill(buffer + at % STAGES * A::elements, a.from(z), a.stride, (tile0 + at / STEPS) * BM, m,
				at % STEPS * S::bk, k);
		copy_commit();
	};
	mma_clear<S>(acc, sum);
#pragma unroll
	for (int s = 0; s < STEPS; s++)
		B::fill(second + s * B::elements, b.from(z), b.stride, col0, n, s * S::bk, k);
#pragma unroll
	for (int s = 0; s < STAGES - 1; s++)
		fill(s);
	for (int at = 0; at < all; at++) {
		copy_wait<STAGES - 2>();
		__syncthreads();
		fill(at + STAGES - 1);
		if (A::by_words)
			A::align(
				buffer + at % STAGES * A::elements, a.from(z), a.stride, (tile0 + at / STEPS) * BM, at % STEPS * S::bk);
		if constexpr (B::by_words) {
#pragma unroll
			for (int s = 0; at == 0 && s < STEPS; s++)
				B::align(second + s * B::elements, b.from(z), b.stride, col0, s * S::bk);
		}
		if (A::by_words || B::by_words)
			__syncthreads();
		mma_stage<T>::template run<S, A, B, AK, BK_>(
			acc, buffer + at % STAGES * A::elements, second + at % STEPS * B::elements, row, col);
		if (S::words)
			mma_promote<S>(acc, sum);
		if (at % STEPS < STEPS - 1)
			continue;
		mma_end<S>(e, z, (tile0 + at / STEPS) * BM + row, col0 + col, m, n, acc, sum,
			(float *)(buffer + STAGES * A::elements) + warp * mma_odd<S>::floats);
		mma_clear<S>(acc, sum);
	}
}

/* AK, BK_: is the operand contiguous along k?  AV, BV: elements of one copy, which its address and stride must be
 * multiples of.  Grid: a cluster of SPLIT blocks a tile of BM x BN, tiles of one row one after another, then rows, then
 * batches; of TILES, which have a SPLIT of 1, a block instead of so many of one column. */
template <class T, int BM, int BN, int STAGES, int SPLIT, bool AK, bool BK_, int AV, int BV, int TILES = 1,
	int STEPS = 1, class E>
__device__ __forceinline__ void gemm_mma(mma_operand<T> a, mma_operand<T> b, int m, int n, int k, const E &e)
{
	typedef mma_shape<T, BM, BN> S;
	typedef mma_tile<T, BM, S::bk, AK, AV, S::threads> A;

	if constexpr (TILES > 1)
		mma_tiles<T, BM, BN, STAGES, TILES, STEPS, AK, BK_, AV, BV>(a, b, m, n, k, e);
	else
		mma_product<T, BM, BN, STAGES, SPLIT, AK, BK_, AV, BV, A::by_words>(
			[&](T *to, int z, int row0, int k0) { A::fill(to, a.from(z), a.stride, row0, m, k0, k); },
			[&](T *to, int z, int row0, int k0) {
				if constexpr (A::by_words)
					A::align(to, a.from(z), a.stride, row0, k0);
			},
			b, m, n, k, e);
}

/* The same where e computes A: AV elements of a row at once, which divide k. */
template <class T, int BM, int BN, int STAGES, int SPLIT, bool BK_, int AV, int BV, class E>
__device__ __forceinline__ void gemm_mma_of(mma_operand<T> b, int m, int n, int k, const E &e)
{
	typedef mma_shape<T, BM, BN> S;
	typedef mma_tile<T, BM, S::bk, true, AV, S::threads> A;

	mma_product<T, BM, BN, STAGES, SPLIT, true, BK_, AV, BV, false>(
		[&](T *to, int z, int row0, int k0) { A::compute(to, e, z, row0, m, k0, k); }, [&](T *, int, int, int) {}, b, m,
		n, k, e);
}

} // namespace ww

#endif
