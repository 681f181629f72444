/* conv.cuh - convolutions as implicit matrix products on tensor cores, and a direct form for everything else.
 *
 * conv_tc: fp32 NCHW in and out.  PyTorch's default for these is TF32, 11-bit significands; fp16 operands scaled by
 * powers of two (per image, per output channel) have the same significands at twice the speed.  Two helper kernels
 * write the image as NHWC fp16 (channels padded to 64) and the weights as (K, taps, channels).  Then out[k][pixel] =
 * sum over taps and channels: A is a 128-row tile of weights, B a tile of TN x TH x TW pixels, one TMA box of the image
 * shifted by the tap.  What the box reads outside the image is zero: padding costs nothing.  Strides are the box's
 * element strides.  With output channels as rows a thread holds neighbouring pixels of one channel, and NCHW stores
 * fill whole sectors.
 *
 * Halves: the same two kernels pack operands for the library's convolution of halves, channels padded to 8; its result,
 * channels-last halves, is turned, scaled and ended by one pass (after_halves).  Tiles of any geometry, twice the speed
 * of TF32, and half the bytes between kernels; the result is rounded once more than TF32's, by 2^-12.  No sum of halves
 * exceeds them: a filter is scaled by the sum of its magnitudes, to less than 2^7, and an image's largest element to
 * less than 2^8.
 *
 * exact: where PyTorch computes in fp32 (small sizes, or with TF32 switched off), pairs of fp16 as in gemm3: blocks of
 * 32 channels, three products, promoted sums.
 *
 * Transposed: output pixels with equal remainders modulo the stride see the same taps; each such phase is a stride-1
 * convolution of its own with some of the taps.  With a horizontal stride of 2 one block computes the two phases of a
 * row one after the other; each thread keeps its results of the first in shared memory and stores four adjacent pixels
 * with the second.  Otherwise phases are adjacent tiles, and their stores, every stride-th pixel, are merged in L2.
 *
 * Staged, these phases are adjacent rows of one tile: a row of filters has every stride-th tap, and zeros for what it
 * has less than the longest; the tile's end, below, puts the phases' pixels side by side.  Where a vector divides the
 * image's rows, zeros in front of the taps (ww_conv_ahead()) make the padding a multiple of the stride: pieces of a row
 * then begin with a vector.
 *
 * In three dimensions a tile is of one slice of the result, or of one phase of it.
 *
 * staged: a warp's store instruction otherwise has 32 bytes of eight channels' planes.  Here each warp brings eight
 * channels of 128 pixels into the order of memory in shared memory first, and stores up to 512 bytes of one plane at a
 * time; tiles are as wide as they can be, so that where one has whole rows of the image a plane's piece of it is one.
 * The functor's code stands there four times, not once for each of a thread's results.
 *
 * pairs: 2, staged tiles of 128 pixels; one pair of consumer warpgroups multiplies while the other stores.
 *
 * filters: 64 in a tile in place of 128; each warpgroup of a pair has half of the pixels, with two pairs of 256.
 *
 * conv_direct: a thread a few output channels of a few pixels below each other (transposed: a stride apart, so that
 * they see the same taps), products and sums in fp32, operands of 16 bits too, any groups, dilation, stride, one to
 * three dimensions.  For depthwise convolutions and few channels, or few a group, where tiles of a matrix product are
 * mostly empty, and for everything that conv_tc does not cover.  What bounds it are loads: a pixel alone reads a weight
 * and an element for each of its multiply-adds; four pixels of a column, 7 x 7 and depthwise, read 119 for 196.
 *
 * conv_few.cuh: up to 32 input channels by pairs of fp16, with nothing packed but filters; 16 bits by one product.
 *
 * Rejected: finding the scales and packing in one cooperative kernel, one group of images after the other, so that the
 * second read hits L2 (203 us instead of 154 on an H200: too few loads in flight between grid barriers).
 *
 * Shapes are compile-time constants (macros written by the recipe): index arithmetic disappears.  Rejected: im2col in
 * memory (R*S times the bytes) and Winograd (its rounding exceeds the rule).
 */
#ifndef WW_CONV_CUH
#define WW_CONV_CUH

#include <ww/conv_few.cuh>
#include <ww/library.cuh>
#include <ww/split.cuh>
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include <ww/pipeline.cuh>
#endif

/* struct KERNEL_shape from the macros that the recipe wrote; at file scope. */
#define WW_CONV_SHAPE(kernel) \
	struct kernel##_shape { \
		enum { \
			n = kernel##_N, c = kernel##_C, k = kernel##_K, groups = kernel##_GROUPS, transposed = kernel##_TRANSPOSED, \
			d = kernel##_D, h = kernel##_H, w = kernel##_W, t = kernel##_T, r = kernel##_R, s = kernel##_S, \
			od = kernel##_OD, oh = kernel##_OH, ow = kernel##_OW, sd = kernel##_SD, sh = kernel##_SH, sw = kernel##_SW, \
			pd = kernel##_PD, ph = kernel##_PH, pw = kernel##_PW, dd = kernel##_DD, dh = kernel##_DH, dw = kernel##_DW, \
			cb = kernel##_CB, bn = kernel##_BN, tw = kernel##_TW, th = kernel##_TH, tn = kernel##_TN, stages = kernel##_STAGES, \
			pair = kernel##_PAIR, exact = kernel##_EXACT, staged = kernel##_STAGED, pairs = kernel##_PAIRS, filters = kernel##_FILTERS, \
			kt = kernel##_KT, pt = kernel##_PT \
		}; \
	};

namespace ww
{

/* What operands are packed for: conv_tc; conv_tc, exact, by pairs; the library's convolution of halves.  conv_block():
 * so many halves of a pixel, or of a filter's tap, are one of its `cb` blocks. */
enum conv_operands { CONV_TF32, CONV_EXACT, CONV_HALVES };
__host__ __device__ constexpr int conv_block(int operands) { return operands == CONV_HALVES ? 8 : 64; }
/* CONV_HALVES: how far below 2^15 the largest element of an image and a filter's sum of magnitudes are scaled. */
enum { CONV_LOWER_X = 7, CONV_LOWER_W = 8 };

/* (n, c, hw) fp32 to (n, hw, cb blocks) fp16.  Grid (hw / 64 up, c / 64 up, n), block 256; amax of image n. */
template <int OPERANDS> __global__ void __launch_bounds__(256)
	conv_pack_x(const float *x, int c, int hw, int cb, __half *out, const unsigned *amax)
{
	wait_for_last();
	__shared__ float box[64][65];
	int n = blockIdx.z, c0 = blockIdx.y * 64, p0 = blockIdx.x * 64;
	const float *src = x + (long long)n * c * hw;
	const int pitch = cb * conv_block(OPERANDS);
	float scale = scale_of(amax[n]) * (OPERANDS == CONV_HALVES ? 1.f / (1 << CONV_LOWER_X) : 1.f);

	if ((hw & 3) == 0) {
		float v[4][4];
		int p = threadIdx.x % 16 * 4;
#pragma unroll
		for (int j = 0; j < 4; j++) {
			int cc = c0 + threadIdx.x / 16 + j * 16;
			if (cc < c && p0 + p < hw) {
				load(src + (long long)cc * hw + p0 + p, v[j]);
			} else {
#pragma unroll
				for (int i = 0; i < 4; i++)
					v[j][i] = 0.f;
			}
		}
#pragma unroll
		for (int j = 0; j < 4; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				box[threadIdx.x / 16 + j * 16][p + i] = v[j][i] * scale;
	} else {
		for (int j = 0; j < 16; j++) {
			int cc = threadIdx.x / 64 + j * 4, p = threadIdx.x % 64;
			box[cc][p] = c0 + cc < c && p0 + p < hw ? src[(long long)(c0 + cc) * hw + p0 + p] * scale : 0.f;
		}
	}
	__syncthreads();
#pragma unroll
	for (int j = 0; j < 2; j++) {
		int p = threadIdx.x / 8 + j * 32, g = threadIdx.x % 8 * 8;
		float o[8];
		__half *row = out + ((long long)n * hw + p0 + p) * pitch;
#pragma unroll
		for (int i = 0; i < 8; i++)
			o[i] = box[g + i][p];
		if (p0 + p >= hw || (OPERANDS == CONV_HALVES && c0 + g >= pitch))
			continue;
		if (OPERANDS != CONV_EXACT)
			store(row + c0 + g, o);
		else if (c0 + g < cb * 32)
			split_store(row, c0 + g, o, 1.f);
	}
}

/* Weights of output channel k at w + k * sk + c * sc + tap to (k, tap, cb blocks) fp16, with that channel's scale,
 * whose bits go to amax[k].  apart: of rows of `width` taps, with `ahead` zeros in front of them, every apart-th one,
 * the first ones as k's row, the second ones as the next, ...; what a row lacks of the longest is zero.  Grid k *
 * apart, block 256. */
template <int OPERANDS> __global__ void __launch_bounds__(256) conv_pack_w(const float *w, long long sk, long long sc,
	int c, int taps, int width, int ahead, int apart, int cb, __half *out, unsigned *amax)
{
	wait_for_last();
	__shared__ unsigned box[8];
	const int first = blockIdx.x % apart, each = (ahead + width + apart - 1) / apart, all = taps / width * each;
	const float *src = w + blockIdx.x / apart * sk;
	const int block = OPERANDS == CONV_EXACT ? 32 : conv_block(OPERANDS); /* channels */
	unsigned top = 0;
	float sum = 0.f;

	for (int i = threadIdx.x; i < c * taps; i += 256) {
		float v = src[i / taps * sc + i % taps];
		top = max(top, magnitude(v));
		sum += fabsf(v);
	}
#pragma unroll
	for (int m = 16; m; m >>= 1)
		sum += __shfl_xor_sync(0xffffffffu, sum, m);
	top = OPERANDS == CONV_HALVES ? __float_as_uint(sum) : __reduce_max_sync(0xffffffffu, top);
	if ((threadIdx.x & 31) == 0)
		box[threadIdx.x >> 5] = top;
	__syncthreads();
	sum = 0.f;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		top = max(top, box[i]);
		sum += __uint_as_float(box[i]);
	}
	top = OPERANDS == CONV_HALVES ? __float_as_uint(sum) : top;
	if (threadIdx.x == 0 && first == 0)
		amax[blockIdx.x / apart] = top;
	float scale = scale_of(top) * (OPERANDS == CONV_HALVES ? 1.f / (1 << CONV_LOWER_W) : 1.f);
	for (int i = threadIdx.x; i < all * cb * block; i += 256) {
		int tap = i / (cb * block), cc = i % (cb * block), s = tap % each * apart + first - ahead;
		float v[1] = { cc < c && s >= 0 && s < width ? src[cc * sc + tap / each * width + s] : 0.f };
		__half *row = out + ((long long)blockIdx.x * all + tap) * cb * conv_block(OPERANDS);
		if (OPERANDS == CONV_EXACT)
			split_store(row, cc, v, scale);
		else
			row[cc] = __float2half_rn(v[0] * scale);
	}
}

/* Functor e over results in halves of packed operands: what it stores is in the units of the task. */
template <class E> struct conv_unscaled {
	const E &e;
	const unsigned *sw, *sx;
	template <int N> __device__ __forceinline__ void store(int image, int chan, int pix, const float (&acc)[N]) const
	{
		const float uw = unscale(__ldg(sw + chan)) * (1 << CONV_LOWER_W),
					ux = unscale(__ldg(sx + image)) * (1 << CONV_LOWER_X);
		float v[N];
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = acc[i] * uw * ux;
		e.template store<N>(image, chan, pix, v);
	}
};

/* after_library_turned of the library's convolution of halves: y is (image, COLS pixels, ROWS channels). */
template <class I, int ROWS, int COLS, int N, int RUNS, class E> __device__ __forceinline__ void after_halves(
	const __half *y, long long rows, const unsigned *sw, const unsigned *sx, const E &e)
{
	after_library_turned<I, ROWS, COLS, N, RUNS>(y, rows, conv_unscaled<E>{ e, sw, sx });
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The taps that an output phase uses: first, first + step, ...  A convolution that is not transposed uses all. */
template <bool TRANSPOSED> struct tap_set {
	int first, count, step;
	__device__ __forceinline__ tap_set(int phase, int taps, int stride, int pad, int dil)
	{
		first = 0, step = 1, count = taps;
		if (!TRANSPOSED)
			return;
		int a = stride, b = dil;
		while (b) {
			int t = a % b;
			a = b, b = t;
		}
		step = stride / a;
		while (first < taps && (phase + pad - first * dil) % stride != 0)
			first++;
		count = first < taps ? (taps - 1 - first) / step + 1 : 0;
	}
};

template <class S, class E> struct conv_job {
	const ww_tensor_map *ta, *tb;
	const unsigned *sw, *sx;
	const E &e;
	float *parked;
	enum { run = S::pair ? 2 : 1 };
	/* Horizontal phases that are rows of a tile (beside), or tiles of their own (apart). */
	enum : int { beside = S::transposed && S::staged ? S::sw : 1, apart = S::transposed ? S::sw / beside : 1 };
	enum : int { phases = S::transposed ? S::sd * S::sh * apart : 1 };
	enum : int {
		slices = S::transposed ? (S::od + S::sd - 1) / S::sd : S::od,
		deep = S::d > 1 || S::t > 1 || S::od > 1
	};
	enum : int { plane_h = S::transposed ? (S::oh + S::sh - 1) / S::sh : S::oh };
	/* Beside each other: place o of a row is phase t % sw of pixel t / sw, t = o + padding, the first of them `lead`.
	 */
	enum : int { lead = beside > 1 ? S::pw / S::sw : 0, taps_w = (S::s + beside - 1) / beside };
	enum : int {
		plane_w = beside > 1 ? (S::ow - 1 + S::pw) / S::sw - lead + 1
			: S::transposed  ? (S::ow + S::sw - 1) / S::sw
							 : S::ow
	};
	enum : int { mt = (S::k * beside + S::filters - 1) / S::filters };
	static_assert(8 % beside == 0 && (beside == 1 || S::dw == 1), "a channel's phases are adjacent rows, of all taps");
	/* A warpgroup's pixels, and its results of each thread: of 64 filters half of the tile's. */
	enum : int { width = S::bn * S::filters / 128, sums = width / 2 };
	enum : int { tiles_w = (plane_w + S::tw - 1) / S::tw };
	enum : int { tiles_h = (plane_h + S::th - 1) / S::th };
	enum : int { tiles_n = (S::n + S::tn - 1) / S::tn };

	struct place {
		int pz, py, px, k, w, h, d, n;
		__device__ __forceinline__ place(int t)
		{
			int phase = t % phases;
			t /= phases;
			pz = phase / apart / S::sh, py = phase / apart % S::sh, px = phase % apart;
			k = t % mt * S::filters, t /= mt;
			w = t % tiles_w * S::tw, t /= tiles_w;
			h = t % tiles_h * S::th, t /= tiles_h;
			d = t % slices, n = t / slices * S::tn;
		}
	};

	__device__ __forceinline__ int tiles() const { return phases * mt * tiles_w * tiles_h * slices * tiles_n; }

	typedef tap_set<S::transposed> rows;
	typedef tap_set<S::transposed && beside == 1> columns;

	__device__ __forceinline__ int steps(int tile) const
	{
		place at(tile);
		rows t(at.pz, S::t, S::sd, S::pd, S::dd), r(at.py, S::r, S::sh, S::ph, S::dh);
		columns s(at.px, taps_w, S::sw, S::pw, S::dw);
		return t.count * r.count * s.count * S::cb;
	}

	__device__ __forceinline__ void load(int tile, int step, unsigned a, unsigned b, unsigned bar) const
	{
		place at(tile);
		rows ts(at.pz, S::t, S::sd, S::pd, S::dd), rs(at.py, S::r, S::sh, S::ph, S::dh);
		columns ss(at.px, taps_w, S::sw, S::pw, S::dw);
		int block = step % S::cb, tap = step / S::cb;
		int t = ts.first + tap / ss.count / rs.count * ts.step, r = rs.first + tap / ss.count % rs.count * rs.step,
			s = ss.first + tap % ss.count * ss.step;
		int d = S::transposed ? at.d + (at.pz + S::pd - t * S::dd) / S::sd : at.d * S::sd + t * S::dd - S::pd;
		int h = S::transposed ? at.h + (at.py + S::ph - r * S::dh) / S::sh : at.h * S::sh + r * S::dh - S::ph;
		int w = beside > 1  ? at.w + lead - s
			: S::transposed ? at.w + (at.px + S::pw - s * S::dw) / S::sw
							: at.w * S::sw + s * S::dw - S::pw;

		tma_load3(a, ta, bar, (((t * S::r + r) * taps_w + s) * S::cb + block) * 64, at.k, 0);
		if (deep)
			tma_load5(b, tb, bar, block * 64, w, h, d, at.n);
		else
			tma_load4(b, tb, bar, block * 64, w, h, at.n);
	}

	/* Where the slice of a tile's results begins in an image; -1: there is none. */
	static __device__ __forceinline__ int slice(const place &at)
	{
		const int z = S::transposed ? at.d * S::sd + at.pz : at.d;

		return z < S::od ? z * (S::oh * S::ow) : -1;
	}

	/* Eight rows of LINE pixels at a time: a thread has two adjacent pixels of a row in each eight of them; then it
	 * gets V adjacent results of a channel, and its neighbours those behind them. */
	__device__ __forceinline__ void done_staged(const place &at, int wg, const float (&acc)[sums]) const
	{
		enum : int { V = S::ow % 4 == 0 ? 4 : S::ow % 2 == 0 ? 2 : 1, LINE = 128, STEPS = width / LINE * 2 };
		/* whose loads are under way at once: a load waits behind all stores before it */
		enum : int {
			CHANNELS = 8 / beside,
			MOST = S::pairs > 1 ? 2 : 4,
			AHEAD = CHANNELS < MOST ? (int)CHANNELS : (int)MOST
		};
		enum : int { PIECE = (S::tw < LINE ? (int)S::tw : (int)LINE) * beside };
		enum : int { EARLY = beside > 1 ? S::pw % S::sw : 0 }; /* of a piece, before the image's row */
		static_assert(STEPS > 0, "a warpgroup has 128 pixels");
		static_assert(EARLY % V == 0, "a piece begins with a vector");
		const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 - 4, half = S::filters == 128 ? 0 : wg * width;
		const int row0 = at.k + (S::filters == 128 ? wg * 64 : 0) + warp % 4 * 16, first = slice(at);
		float *box = parked + warp * 8 * LINE;

		if (row0 >= S::k * beside || first < 0)
			return;
		const float image = S::tn > 1 ? 1.f : unscale(__ldg(sx + at.n));
#pragma unroll 1
		for (int step = 0; step < STEPS; step++) {
			const int k = (row0 + step % 2 * 8) / beside, row = lane / 4;
			float t[LINE / 4];

			pick<STEPS, LINE / 4>(step, t, [&](int i) {
				return acc[i / (LINE / 2) * (LINE / 2) + i % (LINE / 4) / 2 * 4 + i / (LINE / 4) % 2 * 2 + i % 2];
			});
			__syncwarp(); /* the last eight rows have been read */
#pragma unroll
			for (int j = 0; j < LINE / 8; j++) {
				const float two[2] = { t[2 * j], t[2 * j + 1] };
				ww::store(box + row * LINE + ((j * 8 + lane % 4 * 2) ^ row % 4 * 8), two);
			}
			__syncwarp();
#pragma unroll 1
			for (int i = 0; i < LINE * beside / 32 / V; i++) {
				const int p = (i * 32 + lane) * V, from = p / PIECE * (PIECE / beside), in = p % PIECE;
				const int pix = half + step / 2 * LINE + from, n = at.n + pix / (S::tw * S::th);
				const int y = at.h + pix / S::tw % S::th, h = S::transposed ? y * S::sh + at.py : y;
				const int w = (at.w + pix % S::tw) * beside - EARLY + in;

				if (n >= S::n || h >= S::oh || w >= S::ow || w < 0)
					continue;
				const float ux = S::tn > 1 ? unscale(__ldg(sx + n)) : image;
#pragma unroll 1
				for (int c = 0; c < CHANNELS; c += AHEAD) {
					ahead<E, V> given[AHEAD];
					unsigned top[AHEAD];
#pragma unroll
					for (int q = 0; q < AHEAD; q++)
						if (k + c + q < S::k) {
							top[q] = __ldg(sw + k + c + q);
							given[q].fetch(e, n, k + c + q, first + h * S::ow + w);
						}
#pragma unroll
					for (int q = 0; q < AHEAD; q++) {
						if (k + c + q >= S::k)
							continue;
						const float uw = unscale(top[q]);
						float v[V];
						load_line(box + (c + q) * beside * LINE, (c + q) * beside, from + in / beside, in % beside, v);
#pragma unroll
						for (int l = 0; l < V; l++)
							v[l] = v[l] * uw * ux;
						given[q].store(e, v, n, k + c + q, first + h * S::ow + w);
					}
				}
			}
		}
	}

	/* V results from pixel `pix`, phase px on, of rows that are number `row` and following of eight. */
	template <int V>
	static __device__ __forceinline__ void load_line(const float *line, int row, int pix, int px, float (&v)[V])
	{
		enum : int { LINE = 128, EACH = V > beside ? V / beside : 1 }; /* of a phase, adjacent */

#pragma unroll
		for (int l = 0; l < V / EACH; l++) {
			float each[EACH];

			ww::load(line + (px + l) * LINE + (pix ^ (row + px + l) % 4 * 8), each);
#pragma unroll
			for (int i = 0; i < EACH; i++)
				v[i * beside + l] = each[i];
		}
	}

	__device__ __forceinline__ void done_direct(const place &at, int wg, const float (&acc)[sums]) const
	{
		const int step = S::transposed ? S::sw : 1, pairs = step == 1 && S::ow % 2 == 0;
		int lane = threadIdx.x & 31, first = S::filters == 128 ? 0 : wg * width;
		int k0 = at.k + (S::filters == 128 ? wg * 64 : 0) + (threadIdx.x / 32 % 4) * 16 + lane / 4;
		const int plane = slice(at);

		if (plane < 0)
			return;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int k = k0 + 8 * half;
			if (k >= S::k)
				continue;
			float uw = unscale(__ldg(sw + k));
#pragma unroll
			for (int j = 0; j < width / 8; j++) {
				int pix = first + j * 8 + lane % 4 * 2;
				int n = at.n + pix / (S::tw * S::th), h = at.h + pix / S::tw % S::th, w = at.w + pix % S::tw;
				int oh = S::transposed ? h * S::sh + at.py : h, ow = w * step + at.px;
				if (n >= S::n || oh >= S::oh || ow >= S::ow)
					continue;
				float ux = unscale(__ldg(sx + n));
				float v[2] = { acc[j * 4 + half * 2] * uw * ux, acc[j * 4 + half * 2 + 1] * uw * ux };
				float *slot = parked + (j * 4 + half * 2) * 256 + (threadIdx.x - 128);
				if (S::pair && at.px == 0) {
					slot[0] = v[0], slot[256] = v[1];
				} else if (S::pair) {
					float four[4] = { slot[0], v[0], slot[256], v[1] };
					e.template store<4>(n, k, plane + oh * S::ow + ow - 1, four);
				} else if (pairs) {
					e.template store<2>(n, k, plane + oh * S::ow + ow, v);
				} else {
					float one[1] = { v[0] }, two[1] = { v[1] };
					e.template store<1>(n, k, plane + oh * S::ow + ow, one);
					if (ow + step < S::ow)
						e.template store<1>(n, k, plane + oh * S::ow + ow + step, two);
				}
			}
		}
	}

	__device__ __forceinline__ void done(int tile, int wg, const float (&acc)[sums]) const
	{
		if constexpr (S::staged)
			done_staged(place(tile), wg, acc);
		else
			done_direct(place(tile), wg, acc);
	}
};

template <class S, class E> __device__ __forceinline__ void conv_tc(
	const ww_tensor_map &ta, const ww_tensor_map &tb, const unsigned *sw, const unsigned *sx, const E &e)
{
	conv_job<S, E> job = { &ta, &tb, sw, sx, e, pipeline_extra<S::bn, S::stages, S::filters>() };
	pipeline<__half, S::stages, S::bn, S::exact ? 3 : 1, S::exact ? 4 : 0, 1, S::pairs, S::filters>(job);
}

#endif

__host__ __device__ constexpr int conv_gcd(int a, int b) { return b ? conv_gcd(b, a % b) : a; }

/* One dimension of a convolution for output o: it uses every STEP-th tap from `tap` on (transposed: the stride skips
 * the others), at most COUNT, and multiplies them with the inputs from `at` on in steps of DELTA. */
template <bool TRANSPOSED, int STRIDE, int PAD, int DIL, int TAPS, int SIZE> struct conv_axis {
	enum : int {
		STEP = TRANSPOSED ? STRIDE / conv_gcd(STRIDE, DIL) : 1,
		COUNT = (TAPS + STEP - 1) / STEP,
		DELTA = TRANSPOSED ? -(STEP * DIL / STRIDE) : DIL
	};
	int tap, at;

	__device__ __forceinline__ explicit conv_axis(int o)
	{
		tap = TRANSPOSED ? (int)TAPS : 0;
		at = TRANSPOSED ? 0 : o * STRIDE - PAD;
#pragma unroll
		for (int t = TRANSPOSED ? (int)STEP - 1 : -1; t >= 0; t--)
			if ((o + PAD - t * DIL) % STRIDE == 0) {
				tap = t;
				at = (o + PAD - t * DIL) / STRIDE;
			}
	}
	/* Is the input of tap number j inside the image? */
	__device__ __forceinline__ bool meets(int j) const
	{
		return tap + j * STEP < TAPS && (unsigned)(at + j * DELTA) < (unsigned)SIZE;
	}
};

/* What a tap in the height is for PT pixels of a column that see the same taps, below each other or, transposed, a
 * stride apart: row LOW + i of the image, i < SPAN, is read once, and is pixel p's tap b where p * STRIDE + b * DELTA
 * is LOW + i. */
template <class S> struct conv_below {
	typedef conv_axis<S::transposed, S::sh, S::ph, S::dh, S::r, S::h> axis;
	enum : int {
		PT = S::pt,
		APART = S::transposed ? (int)S::sh : 1,
		STRIDE = S::transposed ? 1 : (int)S::sh,
		DELTA = axis::DELTA,
		LOW = DELTA < 0 ? (axis::COUNT - 1) * DELTA : 0,
		SPAN = (PT - 1) * STRIDE + (axis::COUNT - 1) * (DELTA < 0 ? -DELTA : (int)DELTA) + 1,
		/* of an image's column, those of one phase behind each other */
		BLOCKS = (S::oh + PT * APART - 1) / (PT * APART) * APART
	};
	/* The first pixel of a block. */
	static __device__ __forceinline__ int first(int block) { return block / APART * PT * APART + block % APART; }
};

/* Channel by channel: one column of taps for all pixels of a thread.  taps: the first of the column, of output channel
 * j at taps[row[j]]; line: the image's column at the row of the first pixel's first tap. */
template <class S, class T, int KT, int PT> __device__ __forceinline__ void conv_column(
	const T *line, const typename conv_below<S>::axis &high, const T *taps, const int (&row)[KT], float (&sum)[KT][PT])
{
	typedef conv_below<S> below;
	typedef typename below::axis axis;
	float tap[axis::COUNT][KT];

#pragma unroll
	for (int b = 0; b < axis::COUNT; b++)
#pragma unroll
		for (int j = 0; j < KT; j++)
			tap[b][j] = below::APART == 1 || high.tap + b * axis::STEP < S::r
				? to_float<T>(taps[row[j] + b * axis::STEP * S::s])
				: 0.f;
#pragma unroll
	for (int i = 0; i < below::SPAN; i++) {
		int y = high.at + below::LOW + i;
		float v = (unsigned)y < (unsigned)S::h ? to_float<T>(line[(below::LOW + i) * S::w]) : 0.f;

#pragma unroll
		for (int p = 0; p < PT; p++)
#pragma unroll
			for (int b = 0; b < axis::COUNT; b++)
				if (p * below::STRIDE + b * below::DELTA == below::LOW + i)
#pragma unroll
					for (int j = 0; j < KT; j++)
						sum[j][p] = fmaf(v, tap[b][j], sum[j][p]);
	}
}

/* A thread computes KT adjacent output channels of PT pixels of a column, which share its loads of x and of weights;
 * neighbouring threads have neighbouring columns.  T: float, half or bfloat16, of x and w alike. */
template <class S, class T, class E> __device__ __forceinline__ void conv_direct(const T *x, const T *w, const E &e)
{
	enum : int {
		CG = S::c / S::groups,
		KG = S::k / S::groups,
		KT = S::kt,
		PT = S::pt,
		TILES = (KG + KT - 1) / KT,
		TAPS = S::t * S::r * S::s,
		BLOCKS = conv_below<S>::BLOCKS,
		APART = conv_below<S>::APART,
		PLANE = S::od * BLOCKS * S::ow,
		AHEAD = 8 /* results whose end has its loads under way at once */
	};
	typedef conv_axis<S::transposed, S::sd, S::pd, S::dd, S::t, S::d> axis_d;
	typedef typename conv_below<S>::axis axis_h;
	typedef conv_axis<S::transposed, S::sw, S::pw, S::dw, S::s, S::w> axis_w;
	long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= (long long)S::n * S::groups * TILES * PLANE)
		return;
	int at = (int)(i % PLANE), tile = (int)(i / PLANE % (S::groups * TILES)),
		n = (int)(i / PLANE / (S::groups * TILES));
	int group = tile / TILES, k = tile % TILES * KT, high = conv_below<S>::first(at / S::ow % BLOCKS);
	const axis_d ad(at / S::ow / BLOCKS);
	const axis_h ah(high);
	const axis_w aw(at % S::ow);
	int row[KT]; /* of the weights, channel by channel; beyond the group the last one again */
	float sum[KT][PT];

#pragma unroll
	for (int j = 0; j < KT; j++) {
		row[j] = (k + j < KG ? j : KG - 1 - k) * (S::transposed ? (int)TAPS : CG * TAPS);
#pragma unroll
		for (int p = 0; p < PT; p++)
			sum[j][p] = 0.f;
	}
	for (int c = 0; c < CG; c++) {
		const T *plane = x + ((long long)n * S::c + group * CG + c) * S::d * S::h * S::w;
		const T *taps = S::transposed ? w + ((long long)(group * CG + c) * KG + k) * TAPS
									  : w + ((long long)(group * KG + k) * CG + c) * TAPS;
		float part[KT][PT];
#pragma unroll
		for (int j = 0; j < KT; j++)
#pragma unroll
			for (int p = 0; p < PT; p++)
				part[j][p] = 0.f;
		for (int a = 0; a < axis_d::COUNT; a++) {
			if (!ad.meets(a))
				continue;
			const T *image = plane + (ad.at + a * axis_d::DELTA) * S::h * S::w;
			const T *tap = taps + (ad.tap + a * axis_d::STEP) * S::r * S::s + aw.tap;
			if (PT > 1) {
				const T *line = image + ah.at * S::w + aw.at, *below = tap + ah.tap * S::s;

				for (int q = 0; q < axis_w::COUNT; q++)
					if (aw.meets(q))
						conv_column<S>(line + q * axis_w::DELTA, ah, below + q * axis_w::STEP, row, part);
				continue;
			}
			for (int b = 0; b < axis_h::COUNT; b++) {
				if (!ah.meets(b))
					continue;
				const T *line = image + (ah.at + b * axis_h::DELTA) * S::w;
				const T *below = tap + (ah.tap + b * axis_h::STEP) * S::s;
				for (int q = 0; q < axis_w::COUNT; q++) {
					if (!aw.meets(q))
						continue;
					float v = to_float<T>(line[aw.at + q * axis_w::DELTA]);
#pragma unroll
					for (int j = 0; j < KT; j++)
						part[j][0] = fmaf(v, to_float<T>(below[row[j] + q * axis_w::STEP]), part[j][0]);
				}
			}
		}
#pragma unroll
		for (int j = 0; j < KT; j++)
#pragma unroll
			for (int p = 0; p < PT; p++)
				sum[j][p] += part[j][p];
	}
	int pix = (at / S::ow / BLOCKS * S::oh + high) * S::ow + at % S::ow;
	auto is_there = [&](int j, int p) { return k + j < KG && (S::oh % (PT * APART) == 0 || high + p * APART < S::oh); };
#pragma unroll
	for (int first = 0; first < KT * PT; first += AHEAD) {
		ahead<E, 1> given[AHEAD];
#pragma unroll
		for (int i = first; i < first + AHEAD && i < KT * PT; i++)
			if (is_there(i % KT, i / KT))
				given[i - first].fetch(e, n, group * KG + k + i % KT, pix + i / KT * APART * S::ow);
#pragma unroll
		for (int i = first; i < first + AHEAD && i < KT * PT; i++) {
			const float one[1] = { sum[i % KT][i / KT] };
			if (is_there(i % KT, i / KT))
				given[i - first].store(e, one, n, group * KG + k + i % KT, pix + i / KT * APART * S::ow);
		}
	}
}

} // namespace ww

#endif
