/* conv_few.cuh - convolutions of up to 32 input channels on tensor cores in one launch: fp32 that PyTorch computes
 * without TF32 by pairs of fp16 as split.cuh has them, three products, 22 bits; 16 bits by one product.
 *
 * A block reads the part of the image that its tile needs, channels of PyTorch's order, once: two channels of a pixel
 * are a word of shared memory in each of two planes, first as they are, then, scaled by the tile's largest magnitude,
 * as halves, high parts and low ones.  (Side by side they would have to be moved apart for every product: two registers
 * of a fragment are neighbours.)  A term of the products is such a pair of channels at a tap, so that 16 of k are eight
 * terms: a lane finds each in shared memory, at its pixel's place plus the term's, and nothing is copied per tap.
 * Filters, packed by conv_pack_w<CONV_EXACT>, lie in shared memory in the order of fragments.  Elements of 16 bits have
 * one plane, and are as they lie in memory; so are filters.
 *
 * After that warps go on alone, 32 pixels and all filters of the tile at a time: while one stores, others multiply. A
 * tile of whole rows is one piece of each plane; its pixels are counted through, so that vectors and sectors are full
 * whatever a row's length.  A warp turns its results in shared memory, eight filters at a time, so that lanes have
 * neighbouring pixels, four where it can be, and the same pixels of every filter.
 *
 * In three dimensions a tile is of one slice of the result, and reads those of the image that its taps meet:
 * neighbouring tiles' in the second level.
 *
 * Sums of more than 16 steps are added up every 8, as pipeline.cuh says why. */
#ifndef WW_CONV_FEW_CUH
#define WW_CONV_FEW_CUH

#include <ww/mma.cuh>
#include <ww/split.cuh>

namespace ww
{

template <class S> struct conv_few_shape {
	enum : int { PAIRS = (S::c + 1) / 2, TAPS = S::t * S::r * S::s, TERMS = PAIRS * TAPS, STEPS = (TERMS + 7) / 8 };
	enum : int { MT = S::filters / 16, PROMOTE = STEPS > 16 ? 8 : 0, NT = 4 /* of 8 pixels, a warp's */ };
	enum : int { IH = (S::th - 1) * S::sh + (S::r - 1) * S::dh + 1, IW = (S::tw - 1) * S::sw + (S::s - 1) * S::dw + 1 };
	enum : int { SLICE = IH * IW * PAIRS, ITEMS = S::t * SLICE, PLANE = (ITEMS + 31) / 32 * 32 };
	enum : int { PIXELS = S::th * S::tw, GROUPS = (PIXELS + 31) / 32 };
	enum : int { TILES_W = (S::ow + S::tw - 1) / S::tw, TILES_H = (S::oh + S::th - 1) / S::th };
	enum : int { TILES = S::n * S::od * TILES_H * TILES_W, WHOLE = TILES_W == 1 };
	enum : int { UNIT = WHOLE ? (S::oh * S::ow) | (TILES_H > 1 ? S::th * S::ow : 0) | PIXELS : (int)S::ow };
	enum : int { V = UNIT % 4 == 0 ? 4 : UNIT % 2 == 0 ? 2 : 1 }; /* pixels that are stored at once */
	static_assert(S::tw % 32 == 0 || WHOLE, "a strip is whole groups of pixels");

	/* Where pair i of a tile lies.  Eight neighbouring pixels are read at once, four pairs of each: where they are 8,
	 * 16 or 32 banks apart, fours of pairs are exchanged, so that no two have a bank in common. */
	enum : int { APART = PAIRS * S::sw % 32, MIXED = APART % 8 ? 0 : APART % 16 ? 4 : APART ? 12 : 28 };
	static __device__ __forceinline__ int slot(int i) { return MIXED ? i ^ (i >> 3 & MIXED) : i; }
};

/* H: of the products; SPLIT: of fp32, by pairs of them. */
template <class S, class H, bool SPLIT, class E> struct conv_few_job {
	typedef conv_few_shape<S> F;
	enum : int { PARTS = SPLIT ? 2 : 1, PROMOTE = SPLIT ? (int)F::PROMOTE : 0 };
	enum : int { THREADS = 256, WARPS = THREADS / 32, PITCH = 40 /* eight rows of it share no bank */ };
	uint4 *filters;  /* fragments: [16 filters][step][high, low][lane] */
	float *results;  /* [warp][8 filters][32 pixels of PITCH] */
	unsigned *image; /* [high, low][row][column][pair] */
	int *place;      /* of each term, from its pixel's first one; eight more are read */
	unsigned *box;
	float *unit; /* of each filter: what its packed sums are multiplied by */
	const unsigned *sw;
	const E &e;
	int k0; /* the first filter */

	/* A term of filter k: packed, or as it lies in memory. */
	static __device__ __forceinline__ unsigned pair_of(const unsigned *w, int k, int term, int part)
	{
		return w[((long long)k * F::TAPS + term / F::PAIRS) * 32 + part * 16 + term % F::PAIRS];
	}

	static __device__ __forceinline__ unsigned pair_of(const unsigned short *w, int k, int term, int)
	{
		const int c = term % F::PAIRS * 2;
		const unsigned short *from = w + ((long long)k * S::c + c) * F::TAPS + term / F::PAIRS;

		return from[0] | (c + 1 < S::c ? (unsigned)from[F::TAPS] << 16 : 0);
	}

	template <class W> __device__ __forceinline__ void fill_filters(const W *w) const
	{
		unsigned *to = (unsigned *)filters;

		for (int i = threadIdx.x; i < F::MT * F::STEPS * PARTS * 128; i += THREADS) {
			const int word = i % 4, lane = i / 4 % 32, part = i / 128 % PARTS, step = i / 128 / PARTS % F::STEPS;
			const int k = k0 + i / 128 / PARTS / F::STEPS * 16 + lane / 4 + word % 2 * 8;
			const int term = step * 8 + word / 2 * 4 + lane % 4;

			to[i] = k < S::k && term < F::TERMS ? pair_of(w, k, term, part) : 0;
		}
		for (int i = threadIdx.x; i < F::STEPS * 8; i += THREADS) {
			const int tap = i / F::PAIRS, row = tap / S::s % S::r * S::dh;

			place[i] = i < F::TERMS
				? tap / S::s / S::r * F::SLICE + (row * F::IW + tap % S::s * S::dw) * F::PAIRS + i % F::PAIRS
				: 0; /* its filter is zero */
		}
		for (int i = threadIdx.x; SPLIT && i < S::filters; i += THREADS)
			unit[i] = k0 + i < S::k ? unscale(sw[k0 + i]) : 0.f;
	}

	/* Item i of the image from slice `front`, row `top` and column `left` on: two channels of a pixel, zeros outside.
	 */
	template <class X>
	static __device__ __forceinline__ void load_item(const X *x, int i, int front, int top, int left, X (&v)[2])
	{
		const int c = i % F::PAIRS * 2;
		const int row = top + i / F::PAIRS / F::IW % F::IH, col = left + i / F::PAIRS % F::IW;
		const int slice = front + i / F::SLICE * S::dd;
		const X *src = x + (((long long)c * S::d + slice) * S::h + row) * S::w + col;
		const bool in = i < F::ITEMS && (unsigned)slice < (unsigned)S::d && (unsigned)row < (unsigned)S::h &&
			(unsigned)col < (unsigned)S::w;

		v[0] = in ? src[0] : X(0);
		v[1] = in && c + 1 < S::c ? src[S::d * S::h * S::w] : X(0);
	}

	__device__ __forceinline__ float fill_image(const unsigned short *x, int front, int top, int left) const
	{
		enum : int { AHEAD = 16 };

		for (int first = threadIdx.x; first < F::ITEMS; first += AHEAD * THREADS) {
			unsigned short v[AHEAD][2];
#pragma unroll
			for (int u = 0; u < AHEAD; u++)
				load_item(x, first + u * THREADS, front, top, left, v[u]);
#pragma unroll
			for (int u = 0; u < AHEAD; u++)
				if (first + u * THREADS < F::ITEMS)
					image[F::slot(first + u * THREADS)] = v[u][0] | (unsigned)v[u][1] << 16;
		}
		__syncthreads();
		return 1.f;
	}

	/* What packed elements are multiplied by. */
	__device__ __forceinline__ float fill_image(const float *x, int front, int top, int left) const
	{
		enum : int { AHEAD = 8 };
		unsigned most = 0;

		for (int first = threadIdx.x; first < F::ITEMS; first += AHEAD * THREADS) {
			float v[AHEAD][2];
#pragma unroll
			for (int u = 0; u < AHEAD; u++)
				load_item(x, first + u * THREADS, front, top, left, v[u]);
#pragma unroll
			for (int u = 0; u < AHEAD; u++) {
				const int i = first + u * THREADS;

				most = max(most, max(magnitude(v[u][0]), magnitude(v[u][1])));
				if (i < F::ITEMS) {
					image[F::slot(i)] = __float_as_uint(v[u][0]);
					image[F::slot(i) + F::PLANE] = __float_as_uint(v[u][1]);
				}
			}
		}
		most = __reduce_max_sync(0xffffffffu, most);
		if (threadIdx.x % 32 == 0)
			box[threadIdx.x / 32] = most;
		__syncthreads();
#pragma unroll
		for (int i = 0; i < WARPS; i++)
			most = max(most, box[i]);
		const float scale = scale_of(most);
#pragma unroll 4
		for (int i = threadIdx.x; i < F::ITEMS; i += THREADS) { /* what this thread has stored itself */
			unsigned *const at = image + F::slot(i);

			split_pair(__uint_as_float(at[0]) * scale, __uint_as_float(at[F::PLANE]) * scale, at[0], at[F::PLANE]);
		}
		__syncthreads();
		return unscale(most);
	}

	/* acc += a step's products of the pixels at `base`; at: places of the lane's terms, then of the next step's. */
	__device__ __forceinline__ void multiply(
		float (&acc)[F::MT * F::NT][4], const int (&base)[F::NT], int (&at)[2], int step, int lane) const
	{
		unsigned high[F::NT][2], low[F::NT][2];

#pragma unroll
		for (int j = 0; j < F::NT; j++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const unsigned *from = image + F::slot(base[j] + at[h]);
				high[j][h] = from[0], low[j][h] = SPLIT ? from[F::PLANE] : 0;
			}
		at[0] = place[step * 8 + 8 + lane % 4];
		at[1] = place[step * 8 + 12 + lane % 4];
#pragma unroll
		for (int m = 0; m < F::MT; m++) {
			const uint4 *from = filters + (m * F::STEPS + step) * (PARTS * 32) + lane, h4 = from[0],
						l4 = from[PARTS / 2 * 32];
			const unsigned h[4] = { h4.x, h4.y, h4.z, h4.w }, l[4] = { l4.x, l4.y, l4.z, l4.w };

			if (SPLIT) {
#pragma unroll
				for (int j = 0; j < F::NT; j++)
					mma_16(acc[m * F::NT + j], l, high[j], (H *)0);
#pragma unroll
				for (int j = 0; j < F::NT; j++)
					mma_16(acc[m * F::NT + j], h, low[j], (H *)0);
			}
#pragma unroll
			for (int j = 0; j < F::NT; j++)
				mma_16(acc[m * F::NT + j], h, high[j], (H *)0);
		}
	}

	__device__ __forceinline__ void sum_up(float (&sum)[F::MT * F::NT][4], const int (&base)[F::NT], int lane) const
	{
		int at[2] = { place[lane % 4], place[4 + lane % 4] };

#pragma unroll
		for (int i = 0; i < F::MT * F::NT * 4; i++)
			sum[i / 4][i % 4] = 0.f;
		if (!PROMOTE) {
#pragma unroll 1
			for (int step = 0; step < F::STEPS; step++)
				multiply(sum, base, at, step, lane);
			return;
		}
#pragma unroll 1
		for (int first = 0; first < F::STEPS; first += PROMOTE) {
			float part[F::MT * F::NT][4];
#pragma unroll
			for (int i = 0; i < F::MT * F::NT * 4; i++)
				part[i / 4][i % 4] = 0.f;
#pragma unroll 1
			for (int step = first; step < min(first + PROMOTE, (int)F::STEPS); step++)
				multiply(part, base, at, step, lane);
#pragma unroll
			for (int i = 0; i < F::MT * F::NT * 4; i++)
				sum[i / 4][i % 4] += part[i / 4][i % 4];
		}
	}

	/* The tile's pixel q as a place in the slice, or -1. */
	static __device__ __forceinline__ int pixel(int q, int h0, int w0)
	{
		const int h = h0 + q / S::tw, w = w0 + q % S::tw;

		return q < F::PIXELS && h < S::oh && w < S::ow ? h * S::ow + w : -1;
	}

	/* Eight filters of 32 pixels at a time, whose code stands there once. */
	__device__ __forceinline__ void done(
		const float (&sum)[F::MT * F::NT][4], int n, int z, int group, int h0, int w0, float ux, int lane) const
	{
		enum : int { V = F::V, LANES = 32 / V, RUNS = 8 / V };
		float *own = results + threadIdx.x / 32 * (8 * PITCH);
		const int col = lane % LANES * V, pix = pixel(group * 32 + col, h0, w0);

#pragma unroll 1
		for (int step = 0; step < 2 * F::MT; step++) {
			ahead<E, V> given[RUNS];
			float t[8];

			pick<2 * F::MT, 8>(step, t, [&](int i) { return sum[i / 16 * F::NT + i % 8 / 2][i / 8 % 2 * 2 + i % 2]; });
			__syncwarp(); /* the last eight have been read */
#pragma unroll
			for (int j = 0; j < F::NT; j++)
				*(float2 *)(own + lane / 4 * PITCH + j * 8 + lane % 4 * 2) = { t[2 * j], t[2 * j + 1] };
			__syncwarp();
			const int row = lane / LANES, k = k0 + step * 8 + row;
#pragma unroll
			for (int b = 0; b < RUNS; b++)
				if (pix >= 0 && k + b * V < S::k)
					given[b].fetch(e, n, k + b * V, z * (S::oh * S::ow) + pix);
#pragma unroll
			for (int b = 0; b < RUNS; b++) {
				const float uw = SPLIT ? unit[step * 8 + row + b * V] : 1.f;
				float v[V];

				load(own + (row + b * V) * PITCH + col, v);
#pragma unroll
				for (int l = 0; l < V; l++)
					v[l] = SPLIT ? v[l] * uw * ux : v[l];
				if (pix >= 0 && k + b * V < S::k)
					given[b].store(e, v, n, k + b * V, z * (S::oh * S::ow) + pix);
			}
		}
	}

	template <class X> __device__ __forceinline__ void run(const X *x) const
	{
		const int lane = threadIdx.x % 32;

		for (int tile = blockIdx.x; tile < F::TILES; tile += gridDim.x) {
			const int w0 = tile % F::TILES_W * S::tw, h0 = tile / F::TILES_W % F::TILES_H * S::th;
			const int z = tile / F::TILES_W / F::TILES_H % S::od, n = tile / F::TILES_W / F::TILES_H / S::od;

			__syncthreads(); /* all have read the last tile, and what it needs of the filters is there */
			const float ux = fill_image(x + (long long)n * S::c * S::d * S::h * S::w, z * S::sd - S::pd,
				h0 * S::sh - S::ph, w0 * S::sw - S::pw);
#pragma unroll 1
			for (int group = threadIdx.x / 32; group < F::GROUPS; group += WARPS) {
				float sum[F::MT * F::NT][4];
				int base[F::NT];

				if (h0 + group * 32 / S::tw >= S::oh)
					break;
#pragma unroll
				for (int j = 0; j < F::NT; j++) {
					const int q = group * 32 + j * 8 + lane / 4;
					base[j] = q < F::PIXELS ? (q / S::tw * S::sh * F::IW + q % S::tw * S::sw) * F::PAIRS : 0;
				}
				sum_up(sum, base, lane);
				done(sum, n, z, group, h0, w0, ux, lane);
			}
		}
	}
};

/* A block's part of shared memory, as recipe/conv_few_tile.h counts it. */
template <class S, class H, bool SPLIT, class E>
__device__ __forceinline__ conv_few_job<S, H, SPLIT, E> conv_few_start(const unsigned *sw, const E &e)
{
	typedef conv_few_shape<S> F;
	typedef conv_few_job<S, H, SPLIT, E> J;
	uint4 *filters = (uint4 *)dynamic_shared();
	float *results = (float *)(filters + F::MT * F::STEPS * J::PARTS * 32);
	unsigned *image = (unsigned *)(results + J::WARPS * 8 * J::PITCH);
	int *place = (int *)(image + J::PARTS * F::PLANE);
	unsigned *box = (unsigned *)(place + F::STEPS * 8 + 8);

	return { filters, results, image, place, box, (float *)(box + J::WARPS), sw, e, (int)blockIdx.y * S::filters };
}

/* w: packed by conv_pack_w<CONV_EXACT>, with the scales of sw.  Grid (blocks, filters / a tile's), block 256. */
template <class S, class E>
__device__ __forceinline__ void conv_few(const float *x, const __half *w, const unsigned *sw, const E &e)
{
	const conv_few_job<S, __half, true, E> job = conv_few_start<S, __half, true>(sw, e);

	job.fill_filters((const unsigned *)w);
	job.run(x);
}

/* The same of 16 bits, T being half or bfloat16; w as it lies in memory. */
template <class S, class T, class E> __device__ __forceinline__ void conv_few(const T *x, const T *w, const E &e)
{
	const conv_few_job<S, T, false, E> job = conv_few_start<S, T, false>((const unsigned *)0, e);

	job.fill_filters((const unsigned short *)w);
	job.run((const unsigned short *)x);
}

} // namespace ww

#endif
