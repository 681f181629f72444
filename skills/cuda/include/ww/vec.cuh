/* vec.cuh - vector access, accurate fast math and reductions, shared by every other header of the cookbook.
 *
 * Memory-bound kernels need wide, independent, coalesced accesses; so functions here take N consecutive elements of any
 * dtype, moved with one access of up to 16 bytes and passed as float[N].  Conversion happens in registers, so the same
 * functor serves float, half, bfloat16 and the integers.
 *
 * Rejected: half2 arithmetic (its rounding is visible under the strict rule), __expf (its error grows with |x|), and
 * reductions by atomics (not deterministic).
 */
#ifndef WW_VEC_CUH
#define WW_VEC_CUH

#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <ww/ptx.cuh>

namespace ww
{

template <class T> __device__ __forceinline__ float to_float(T v) { return (float)v; }
template <> __device__ __forceinline__ float to_float<__half>(__half v) { return __half2float(v); }
template <> __device__ __forceinline__ float to_float<__nv_bfloat16>(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T> __device__ __forceinline__ T from_float(float v) { return (T)v; }
template <> __device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v)
{
	return __float2bfloat16_rn(v);
}

/* The access of BYTES bytes as one machine word. */
template <int BYTES> struct word;
template <> struct word<1> {
	typedef unsigned char t;
};
template <> struct word<2> {
	typedef unsigned short t;
};
template <> struct word<4> {
	typedef unsigned int t;
};
template <> struct word<8> {
	typedef uint2 t;
};
template <> struct word<16> {
	typedef uint4 t;
};

template <class T, int N> struct pieces {
	enum : int { bytes = (int)sizeof(T) * N };
	enum : int { step = bytes > 16 ? 16 : bytes };
	enum : int { count = bytes / step };
	static_assert(bytes % step == 0 && (step & (step - 1)) == 0, "N elements must be a power of two of bytes");
	typedef typename word<step>::t w;
	union u {
		w word[count];
		T elem[N];
		__device__ __forceinline__ u() {}
	};
};

template <int N, class T> __device__ __forceinline__ void load(const T *p, float (&v)[N])
{
	typename pieces<T, N>::u u;
#pragma unroll
	for (int i = 0; i < pieces<T, N>::count; i++)
		u.word[i] = ((const typename pieces<T, N>::w *)p)[i];
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = to_float<T>(u.elem[i]);
}

/* N elements as they lie in memory.  Of 16 bits they take half the registers until they are used, and what is loaded
 * long before need not have come when the next instructions are issued, as it must to be converted. */
template <class T, int N> struct as_stored {
	typename pieces<T, N>::w word[pieces<T, N>::count];

	__device__ __forceinline__ float operator[](int i) const
	{
		typename pieces<T, N>::u u;
#pragma unroll
		for (int j = 0; j < pieces<T, N>::count; j++)
			u.word[j] = word[j];
		return to_float<T>(u.elem[i]);
	}
};
template <int N, class T> __device__ __forceinline__ void load(const T *p, as_stored<T, N> &v)
{
#pragma unroll
	for (int i = 0; i < pieces<T, N>::count; i++)
		v.word[i] = ((const typename pieces<T, N>::w *)p)[i];
}

/* The same of elements that do not lie side by side: each has a register of its own until it is used. */
template <class T, int N> struct as_elements {
	struct alignas(4) {
		T is;
	} elem[N];

	__device__ __forceinline__ float operator[](int i) const { return to_float<T>(elem[i].is); }
};

/* bools stay bytes. */
template <int N> __device__ __forceinline__ void load(const unsigned char *p, unsigned char (&v)[N])
{
	typename pieces<unsigned char, N>::u u;
#pragma unroll
	for (int i = 0; i < pieces<unsigned char, N>::count; i++)
		u.word[i] = ((const typename pieces<unsigned char, N>::w *)p)[i];
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = u.elem[i];
}

template <int N, class T> __device__ __forceinline__ void store(T *p, const float (&v)[N])
{
	typename pieces<T, N>::u u;
#pragma unroll
	for (int i = 0; i < N; i++)
		u.elem[i] = from_float<T>(v[i]);
#pragma unroll
	for (int i = 0; i < pieces<T, N>::count; i++)
		((typename pieces<T, N>::w *)p)[i] = u.word[i];
}

/* Accesses for data that is not used again.  Cache hints (evict-first, no L1 allocation) cost 3 to 7 percent of the
 * bandwidth on an H200 wherever they were tried, so these are plain accesses; they are separate functions for GPUs
 * where hints pay. */
template <int N, class T> __device__ __forceinline__ void load_stream(const T *p, float (&v)[N]) { load(p, v); }
template <int N, class T> __device__ __forceinline__ void store_stream(T *p, const float (&v)[N]) { store(p, v); }

/* As load(), of an operand of 32 to 192 MiB that nobody reads again, by a kernel that stores little.  The second level
 * replaces its lines first, and so does not write back on the way what kernels before have left there: a sum of 64 MiB
 * takes 21.5 us in place of 24.3 (H200; memory reads 16).  What is longer loses more by the hint than that. */
template <int N, class T> __device__ __forceinline__ void load_once(const T *p, float (&v)[N])
{
	typename pieces<T, N>::u u;
	if constexpr (pieces<T, N>::step < 16) {
		load(p, v);
	} else {
#pragma unroll
		for (int i = 0; i < pieces<T, N>::count; i++)
			u.word[i] = load16_once((const uint4 *)p + i);
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = to_float<T>(u.elem[i]);
	}
}

/* As store(), by accesses of 16 bytes where N elements fill them. */
template <int N, class T> __device__ __forceinline__ void store_whole(T *p, const float (&v)[N])
{
	typename pieces<T, N>::u u;
	if (pieces<T, N>::step < 16)
		return store(p, v);
#pragma unroll
	for (int i = 0; i < N; i++)
		u.elem[i] = from_float<T>(v[i]);
#pragma unroll
	for (int i = 0; i < pieces<T, N>::count; i++)
		store16((char *)p + 16 * i, *(const uint4 *)&u.word[i]);
}

/* N elements from an address of any alignment. */
template <int N, class T> __device__ __forceinline__ void load_any(const T *p, float (&v)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = to_float<T>(p[i]);
}

/* The number of the block as x, y and z have it, counted from the last one.  Blocks begin in the order of their
 * numbers, and a kernel leaves the end of what it went through in the second level of cache: one that goes on with that
 * begins there, and leaves the beginning for the next. */
__device__ __forceinline__ unsigned from_end_x() { return gridDim.x - 1 - blockIdx.x; }
__device__ __forceinline__ unsigned from_end_y() { return gridDim.y - 1 - blockIdx.y; }
__device__ __forceinline__ unsigned from_end_z() { return gridDim.z - 1 - blockIdx.z; }

/* ---- What a functor's store() reads ------------------------------------------------------------------------------ */

/* t = numbers step * N and following of STEPS * N that a thread holds in registers, f(i) being number i.  For loops
 * over them that are not unrolled: the code of an epilogue for each of 128 results is fetched from the second level,
 * since each instruction is executed once a tile (mish behind 128 x 256: 16,000 instructions, 40 us a tile). */
template <int STEPS, int N, class F> __device__ __forceinline__ void pick(int step, float (&t)[N], F f)
{
	static_assert(STEPS <= 16, "a case for each step");
#define WW_PICK(S) \
	case S: \
		_Pragma("unroll") for (int i = 0; i < N; i++) t[i] = f(S % STEPS * N + i); \
		break;
	switch (step) {
		WW_PICK(1)
		WW_PICK(2)
		WW_PICK(3)
		WW_PICK(4)
		WW_PICK(5)
		WW_PICK(6)
		WW_PICK(7)
		WW_PICK(8)
		WW_PICK(9)
		WW_PICK(10)
		WW_PICK(11)
		WW_PICK(12)
		WW_PICK(13)
		WW_PICK(14)
		WW_PICK(15)
	default: WW_PICK(0)
	}
#undef WW_PICK
}

/* Lane q of four neighbours has numbers 2q, 2q + 1 of each of four groups of eight; afterwards it has all of group q,
 * in order. */
__device__ __forceinline__ void gather_quad(float (&v)[8])
{
	const int q = threadIdx.x & 3;

#pragma unroll
	for (int b = 1; b < 4; b *= 2)
#pragma unroll
		for (int j = 0; j < 4; j++)
#pragma unroll
			for (int l = 0; l < 2; l++)
				if (!(j & b)) {
					float &lo = v[2 * j + l], &hi = v[2 * (j | b) + l];
					const float got = __shfl_xor_sync(0xffffffffu, q & b ? lo : hi, b);

					lo = q & b ? got : lo;
					hi = q & b ? hi : got;
				}
}

/* store() may load operands (a bias, a residual), whose latency is as long as several stores.  Before a series of
 * stores a template starts all of their loads: ahead<E, N>, fetch(), then store().  A functor that takes part has a
 * struct ahead<N>, fetch(place..., r) that loads, and store(place..., v, r); one that has only store(place..., v) loads
 * there. */
template <class T> struct void_of {
	typedef void t;
};
template <class E, int N, class = void> struct ahead {
	template <class... A> __device__ __forceinline__ void fetch(const E &, A...) {}
	template <class... A> __device__ __forceinline__ void store(const E &e, const float (&v)[N], A... place)
	{
		e.template store<N>(place..., v);
	}
};
template <class E, int N> struct ahead<E, N, typename void_of<typename E::template ahead<N>>::t> {
	typename E::template ahead<N> r;

	template <class... A> __device__ __forceinline__ void fetch(const E &e, A... place)
	{
		e.template fetch<N>(place..., r);
	}
	template <class... A> __device__ __forceinline__ void store(const E &e, const float (&v)[N], A... place)
	{
		e.template store<N>(place..., v, r);
	}
};

/* ---- Math, about 1e-6 relative or better ------------------------------------------------------------------------- */

__device__ __forceinline__ float exp_(float x) { return expf(x); }
/* Two units in the last place; the divisor below 2^126 in magnitude. */
__device__ __forceinline__ float div_(float a, float b) { return __fdividef(a, b); }
/* 1 / (1 + e^-x), of negative x e^x / (1 + e^x): divisors of 1 to 2, since a fast quotient by more than 2^126 is 0. */
__device__ __forceinline__ float sigmoid(float x)
{
	const float e = expf(-fabsf(x));

	return __fdividef(x < 0.f ? e : 1.f, 1.f + e);
}
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118654752440f)); }
__device__ __forceinline__ float tanh_(float x) { return tanhf(x); }
__device__ __forceinline__ float gelu_tanh(float x)
{
	return 0.5f * x * (1.f + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
}
/* NaN passes through, as in PyTorch. */
__device__ __forceinline__ float relu(float x) { return x < 0.f ? 0.f : x; }
__device__ __forceinline__ float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }
__device__ __forceinline__ float elu(float x) { return x > 0.f ? x : expm1f(x); }
__device__ __forceinline__ float mish(float x) { return x * tanhf(softplus(x)); }
__device__ __forceinline__ float hardswish(float x) { return x * fminf(fmaxf(x + 3.f, 0.f), 6.f) * (1.f / 6.f); }

/* ---- Reductions -------------------------------------------------------------------------------------------------- */

enum op { OP_SUM = 0, OP_MAX = 1, OP_MIN = 2, OP_PROD = 3, OP_LOGSUMEXP = 4 };

__device__ __forceinline__ float inf_() { return __int_as_float(0x7f800000); }

template <int OP> __device__ __forceinline__ float op_identity()
{
	return OP == OP_SUM ? 0.f : OP == OP_PROD ? 1.f : OP == OP_MAX || OP == OP_LOGSUMEXP ? -inf_() : inf_();
}

/* log(1 + a) of a from 0 to 1, to 1e-7 of itself (and its roundings), without a branch. */
__device__ __forceinline__ float log1p_unit(float a)
{
	const float q = fmaf(
		fmaf(fmaf(fmaf(5.23262925e-3f, a, -0.0295049866f), a, 0.0782255571f), a, -0.13663214f), a, 0.191059928f);
	return fmaf(fmaf(fmaf(fmaf(q, a, -0.24842979f), a, 0.333190965f), a, -0.499994931f), a, 0.99999997f) * a;
}

/* log(exp(a) + exp(b)).  Two infinities of a sign are their own result, and a NaN is handed on.  The exponential is of
 * what is at most 0, and what is lost of its last places is lost beside the larger one: it needs no branch. */
__device__ __forceinline__ float log_add_exp(float a, float b)
{
	const float most = a > b || a != a ? a : b, apart = a == b ? 0.f : fabsf(a - b);

	return most + log1p_unit(exp2_(apart * -1.44269504f));
}

/* Maximum and minimum propagate NaN, as in PyTorch. */
template <int OP> __device__ __forceinline__ float op_apply(float a, float b)
{
	if (OP == OP_SUM)
		return a + b;
	if (OP == OP_PROD)
		return a * b;
	if (OP == OP_LOGSUMEXP)
		return log_add_exp(a, b);
	return OP == OP_MAX ? max_nan(a, b) : min_nan(a, b);
}

template <int OP> __device__ __forceinline__ float warp_reduce(float v)
{
#pragma unroll
	for (int d = 16; d; d >>= 1)
		v = op_apply<OP>(v, __shfl_xor_sync(0xffffffffu, v, d));
	return v;
}

/* All of a block's threads get the result.  `box` is 32 floats of shared memory that no other exchange uses until the
 * next __syncthreads(). */
template <int OP> __device__ __forceinline__ float block_reduce(float v, float *box)
{
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;

	v = warp_reduce<OP>(v);
	if (warps == 1)
		return v;
	if (lane == 0)
		box[warp] = v;
	__syncthreads();
	v = lane < warps ? box[lane] : op_identity<OP>();
	return warp_reduce<OP>(v);
}

} // namespace ww

#endif
