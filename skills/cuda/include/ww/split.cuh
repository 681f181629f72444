/* split.cuh - fp32 matrices as pairs of fp16, the operands of gemm3 and attention.
 *
 * x = (hi + lo) / scale, scale a power of two that brings the largest magnitude of a group (a row, or a whole batch
 * item) to 2^14..2^15; hi = fp16(x * scale), lo = fp16(x * scale - hi).  Two 11-bit significands and lo's sign carry 22
 * to 23 bits of everything within 2^16 of the largest, and an absolute 2^-40 of the largest below that.
 *
 * Format: an operand row of K elements becomes kp = roundup(K, 32) words of 4 bytes: for each 32 elements 64 bytes of
 * hi, then 64 bytes of lo; elements beyond K are zero.  So 32 of K fill the 128 bytes that one row of a swizzled TMA
 * box holds, and one copy brings both halves.  `amax` holds the bits of each group's largest magnitude; the user of the
 * product computes the scale from it and divides by it (unscale()).
 */
#ifndef WW_SPLIT_CUH
#define WW_SPLIT_CUH

#include <ww/vec.cuh>

namespace ww
{

/* The exponent field of the scale for a group whose largest magnitude has these bits. */
__device__ __forceinline__ unsigned scale_field(unsigned amax)
{
	int f = 268 - (int)(amax >> 23);

	if (amax == 0)
		return 127;
	return f > 253 ? 253 : f < 1 ? 1 : f;
}
__device__ __forceinline__ float scale_of(unsigned amax) { return __uint_as_float(scale_field(amax) << 23); }
__device__ __forceinline__ float unscale(unsigned amax) { return __uint_as_float((254 - scale_field(amax)) << 23); }

__device__ __forceinline__ unsigned magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

/* Two floats as fp16 pairs: hi of both and lo of both. */
__device__ __forceinline__ void split_pair(float a, float b, unsigned &hi, unsigned &lo)
{
	__half2 h = __floats2half2_rn(a, b);
	float2 f = __half22float2(h);
	__half2 l = __floats2half2_rn(a - f.x, b - f.y);
	hi = *(unsigned *)&h;
	lo = *(unsigned *)&l;
}

template <int N> __device__ __forceinline__ void split_store(__half *row, int k, const float (&v)[N], float scale)
{
	float hi[N], lo[N];
	__half *at = row + (k >> 5) * 64 + (k & 31);

#pragma unroll
	for (int i = 0; i < N; i++) {
		float s = v[i] * scale;
		hi[i] = __half2float(__float2half_rn(s));
		lo[i] = s - hi[i];
	}
	store(at, hi);
	store(at + 32, lo);
}

/* Rows of 16-bit elements, K contiguous, copied to rows of `runs` times 16 bytes, zero behind K.  Batch item z starts
 * at x + z / inner * sb + z % inner * si.  Grid (rows * runs / 256 up, batch), block 256. */
template <int UNUSED = 0> __global__ void __launch_bounds__(256) pad_rows(const unsigned short *x, long long sb,
	long long si, int inner, long long sr, int rows, int k, int runs, unsigned short *out)
{
	wait_for_last();
	const int i = blockIdx.x * 256 + threadIdx.x, r = i / runs, c = i % runs * 8;
	const unsigned short *src = x + (int)blockIdx.y / inner * sb + (int)blockIdx.y % inner * si + r * sr + c;
	unsigned v[8];

	if (r >= rows)
		return;
#pragma unroll
	for (int j = 0; j < 8; j++)
		v[j] = c + j < k ? src[j] : 0;
	((uint4 *)out)[(long long)blockIdx.y * rows * runs + i] = { v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16,
		v[6] | v[7] << 16 };
}

/* The same of a 16-bit matrix whose rows are contiguous instead, element i of row r at x + i * sk + r: 64 rows by 64 of
 * K are turned in shared memory.  V elements are one load: sk, sb, si and the address are multiples of V.  Grid (rows /
 * 64 up, runs / 8 up, batch), block 256. */
template <int V> __global__ void __launch_bounds__(256) turn_rows(const unsigned short *x, long long sb, long long si,
	int inner, long long sk, int rows, int k, int runs, unsigned short *out)
{
	wait_for_last();
	constexpr int side = 64, row = side + 1; /* odd: neither the writes nor the reads meet in one bank */
	struct alignas(2 * V) vector {
		unsigned short e[V];
	};
	__shared__ unsigned short tile[side * row];
	const int r0 = blockIdx.x * side, k0 = blockIdx.y * side;
	vector v[side * side / (256 * V)];

	x += (int)blockIdx.z / inner * sb + (int)blockIdx.z % inner * si + (long long)k0 * sk + r0;
#pragma unroll
	for (int j = 0; j < side * side / (256 * V); j++) {
		const int at = j * 256 + threadIdx.x, i = at / (side / V), r = at % (side / V) * V;

		v[j] = vector{};
		if (k0 + i >= k || r0 + r >= rows)
			continue;
		if (r0 + r + V <= rows)
			v[j] = *(const vector *)(x + i * sk + r);
		else
			for (int l = 0; l < rows - r0 - r; l++)
				v[j].e[l] = x[i * sk + r + l];
	}
#pragma unroll
	for (int j = 0; j < side * side / (256 * V); j++) {
		const int at = j * 256 + threadIdx.x, i = at / (side / V), r = at % (side / V) * V;

#pragma unroll
		for (int l = 0; l < V; l++)
			tile[i * row + r + l] = v[j].e[l];
	}
	__syncthreads();
#pragma unroll
	for (int j = 0; j < 2; j++) {
		const int at = j * 256 + threadIdx.x, r = at / 8, c = at % 8;
		const unsigned short *from = tile + c * 8 * row + r;

		if (r0 + r < rows && k0 / 8 + c < runs)
			((uint4 *)out)[((long long)blockIdx.z * rows + r0 + r) * runs + k0 / 8 + c] = {
				from[0] | (unsigned)from[row] << 16, from[2 * row] | (unsigned)from[3 * row] << 16,
				from[4 * row] | (unsigned)from[5 * row] << 16, from[6 * row] | (unsigned)from[7 * row] << 16
			};
	}
}

/* Rows of contiguous K.  Grid (rows, batch), block 256.  Row r of batch item z starts at x + z * sb + r * sr and
 * becomes row z * rows + r; amax[that row] is written.  Rows up to 8192 stay in registers; longer ones are read again.
 * H: a warp a row of at most 128 * H elements, and grid (rows / 8 up, batch). */
template <int H> __global__ void __launch_bounds__(256)
	split_rows(const float *x, long long sb, long long sr, int rows, int k, int kp, __half *out, unsigned *amax)
{
	wait_for_last();
	__shared__ unsigned box[8];
	const int held = H ? H : 8, step = (H ? 32 : 256) * 4, at = (H ? threadIdx.x & 31 : threadIdx.x) * 4;
	int z = blockIdx.y, r = H ? blockIdx.x * 8 + threadIdx.x / 32 : blockIdx.x;
	if (H && r >= rows)
		return;
	long long to = (long long)z * rows + r;
	const float *src = x + z * sb + r * sr;
	bool wide = (k & 3) == 0 && ((unsigned long long)src & 15) == 0;
	float v[held][4];
	unsigned top = 0;

	auto fetch = [&](int c, float (&t)[4]) {
		if (wide && c < k) {
			load(src + c, t);
		} else {
#pragma unroll
			for (int i = 0; i < 4; i++)
				t[i] = c + i < k ? src[c + i] : 0.f;
		}
	};
#pragma unroll
	for (int j = 0; j < held; j++)
		fetch(j * step + at, v[j]);
#pragma unroll
	for (int j = 0; j < held; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			top = max(top, magnitude(v[j][i]));
	for (int c = held * step + at; !H && c < k; c += step) {
		float t[4];
		fetch(c, t);
#pragma unroll
		for (int i = 0; i < 4; i++)
			top = max(top, magnitude(t[i]));
	}
	top = __reduce_max_sync(0xffffffffu, top);
	if (!H) {
		if ((threadIdx.x & 31) == 0)
			box[threadIdx.x >> 5] = top;
		__syncthreads();
#pragma unroll
		for (int i = 0; i < 8; i++)
			top = max(top, box[i]);
	}
	if (at == 0)
		amax[to] = top;
	float scale = scale_of(top);
	__half *dst = out + to * kp * 2;
#pragma unroll
	for (int j = 0; j < held; j++) {
		int c = j * step + at;
		if (c < kp)
			split_store(dst, c, v[j], scale);
	}
	for (int c = held * step + at; !H && c < kp; c += step) {
		float t[4];
		fetch(c, t);
		split_store(dst, c, t, scale);
	}
}

/* The same for short rows, many a block: k a multiple of 32, amax[z] given.  Grid (parts, batch), block 256. */
template <int UNUSED = 0> __global__ void __launch_bounds__(256) split_given(
	const float *x, long long sb, long long sh, int H, long long sr, int rows, int k, __half *out, const unsigned *amax)
{
	wait_for_last();
	int z = blockIdx.y, n = rows * (k / 4), stride = gridDim.x * 256;
	const float *src = x + z / H * sb + z % H * sh;
	__half *dst = out + (long long)z * rows * k * 2;
	float scale = scale_of(amax[z]);
	bool wide = (sr & 3) == 0 && ((unsigned long long)src & 15) == 0;

#pragma unroll 4
	for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += stride) {
		int r = i / (k / 4), c = i % (k / 4) * 4;
		float v[4];
		if (wide)
			load(src + r * sr + c, v);
		else
			load_any(src + r * sr + c, v);
		split_store(dst + (long long)r * k * 2, c, v, scale);
	}
}

/* The largest magnitude of each column of a (k, n) matrix with row stride sk, by maxima of bits: the order does not
 * matter. amax is zeroed beforehand.  A thread has AHEAD loads under way.  Grid (n / 128 up, parts of k, batch), block
 * 128. */
template <int AHEAD> __global__ void __launch_bounds__(128)
	absmax_cols(const float *x, long long sb, long long sk, int k, int n, unsigned *amax)
{
	wait_for_last();
	int col = blockIdx.x * 128 + threadIdx.x, per = (k + gridDim.y - 1) / gridDim.y;
	int first = blockIdx.y * per, last = min(first + per, k);
	const float *src = x + blockIdx.z * sb + col;
	unsigned top = 0;

	if (col >= n || first >= last)
		return;
	for (int r = first; r < last; r += AHEAD) {
		float v[AHEAD];
#pragma unroll
		for (int i = 0; i < AHEAD; i++) /* beyond the end the last one again */
			v[i] = src[min(r + i, last - 1) * sk];
#pragma unroll
		for (int i = 0; i < AHEAD; i++)
			top = max(top, magnitude(v[i]));
	}
	atomicMax(&amax[(long long)blockIdx.z * n + col], top);
}

/* The largest magnitude of each batch item: rows of k contiguous elements.  Grid (parts, batch), block 256; amax
 * zeroed. */
template <int UNUSED = 0> __global__ void __launch_bounds__(256)
	absmax_all(const float *x, long long sb, long long sh, int H, long long sr, int rows, int k, unsigned *amax)
{
	wait_for_last();
	int z = blockIdx.y;
	const float *src = x + z / H * sb + z % H * sh;
	long long n = (long long)rows * k, stride = (long long)gridDim.x * 256 * 4;
	bool wide = (k & 3) == 0 && (sr & 3) == 0 && ((unsigned long long)src & 15) == 0;
	unsigned top = 0;

	if (wide) {
		const int batch = 8;
		for (long long i = ((long long)blockIdx.x * 256 + threadIdx.x) * 4; i < n; i += batch * stride) {
			float t[batch][4];
#pragma unroll
			for (int j = 0; j < batch; j++) {
				long long at = i + j * stride;
				if (at < n) {
					load(sr == k ? src + at : src + at / k * sr + at % k, t[j]);
				} else {
					t[j][0] = t[j][1] = t[j][2] = t[j][3] = 0.f;
				}
			}
#pragma unroll
			for (int j = 0; j < batch; j++)
				top = max(
					max(max(top, magnitude(t[j][0])), max(magnitude(t[j][1]), magnitude(t[j][2]))), magnitude(t[j][3]));
		}
	} else {
		for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < n; i += stride / 4)
			top = max(top, magnitude(src[sr == k ? i : i / k * sr + i % k]));
	}
	top = __reduce_max_sync(0xffffffffu, top);
	if ((threadIdx.x & 31) == 0)
		atomicMax(&amax[z], top);
}

/* Columns of a (k, n) matrix become rows of K.  Grid (n / 64 up, kp / 32, batch), block 256, batch item z at x + z / H
 * * sb + z % H * sh. whole = 0: amax[z * n + column], 1: amax[z]. */
template <int UNUSED = 0> __global__ void __launch_bounds__(256) split_cols(const float *x, long long sb, long long sh,
	int H, long long sk, int k, int n, int kp, __half *out, const unsigned *amax, int whole)
{
	wait_for_last();
	__shared__ float box[32][65];
	int z = blockIdx.z, n0 = blockIdx.x * 64, k0 = blockIdx.y * 32;
	const float *src = x + z / H * sb + z % H * sh;

#pragma unroll
	for (int j = 0; j < 8; j++) {
		int r = threadIdx.x / 64 + j * 4, c = threadIdx.x % 64;
		box[r][c] = k0 + r < k && n0 + c < n ? src[(long long)(k0 + r) * sk + n0 + c] : 0.f;
	}
	__syncthreads();
	int c = threadIdx.x / 4, kk = threadIdx.x % 4 * 8;
	if (n0 + c >= n)
		return;
	float v[8], scale = scale_of(amax[whole ? z : (long long)z * n + n0 + c]);
#pragma unroll
	for (int i = 0; i < 8; i++)
		v[i] = box[kk + i][c];
	split_store(out + ((long long)z * n + n0 + c) * kp * 2, k0 + kk, v, scale);
}

/* Both at once where k is at most 32 * H: a block reads 8 columns once and holds them, amax is written.  Grid (n / 8
 * up, batch), block 256. */
template <int H> __global__ void __launch_bounds__(256)
	split_cols_held(const float *x, long long sb, long long sk, int k, int n, int kp, __half *out, unsigned *amax)
{
	wait_for_last();
	constexpr int row = 32 * H + 4; /* neither writes nor reads meet in one bank */
	__shared__ __align__(16) float box[8 * row];
	__shared__ unsigned tops[8][8];
	const int z = blockIdx.y, n0 = blockIdx.x * 8, c = threadIdx.x % 8, r = threadIdx.x / 8, warp = threadIdx.x / 32;
	const float *src = x + z * sb + r * sk + n0 + c;
	const int left = n0 + c < n ? k - r : 0;
	float v[H];
	unsigned top = 0;

#pragma unroll
	for (int j = 0; j < H; j++, src += 32 * sk)
		v[j] = 32 * j < left ? *src : 0.f;
#pragma unroll
	for (int j = 0; j < H; j++) {
		top = max(top, magnitude(v[j]));
		box[c * row + r + 32 * j] = v[j];
	}
	top = max(top, __shfl_xor_sync(0xffffffffu, top, 8));
	top = max(top, __shfl_xor_sync(0xffffffffu, top, 16));
	if (threadIdx.x % 32 < 8)
		tops[c][warp] = top;
	__syncthreads();
	for (int i = threadIdx.x; i < 8 * kp / 8; i += 256) {
		const int col = i / (kp / 8), at = i % (kp / 8) * 8;
		const long long to = (long long)z * n + n0 + col;
		float part[8];

		if (n0 + col >= n)
			break;
		top = 0;
#pragma unroll
		for (int w = 0; w < 8; w++)
			top = max(top, tops[col][w]);
		if (at == 0)
			amax[to] = top;
		load(box + col * row + at, part);
		split_store(out + to * kp * 2, at, part, scale_of(top));
	}
}

} // namespace ww

#endif
