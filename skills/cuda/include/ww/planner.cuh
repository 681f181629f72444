/* planner.cuh - helpers of the planner's kernels besides the templates: the index type, infinities and NaN, PyTorch's
 * scalar operations, and reductions between the threads of a block.
 *
 * The planner writes its own loops, with any expressions in them; a reduction ends with one call from here.  Threads
 * share a row in one of three ways: T adjacent threads (pl_across), TY warps of TX adjacent rows each (pl_down), and CL
 * blocks of a cluster after pl_across (pl_cluster).  Every thread of the row gets the result.  `room` is shared memory
 * that the next call may overwrite: a call that writes to it begins with a barrier.  The _arg forms carry the index of
 * the extremum: the smallest index of equal elements, and NaN before all numbers, as in PyTorch.  W is the index's
 * type: ix_t, since 64 bits take two registers, and two instructions to compare.
 *
 * Macro of the plan: IX64_, 1 where an offset needs 64 bits. */
#ifndef WW_PLANNER_CUH
#define WW_PLANNER_CUH

#include <ww/ptx.cuh>
#include <ww/rowwise.cuh>
#include <ww/vec.cuh>

#if IX64_
typedef long long ix_t;
#else
typedef int ix_t;
#endif

#define PL_FN __device__ __forceinline__
#define PL_INFF __int_as_float(0x7f800000)
#define PL_INF __longlong_as_double(0x7ff0000000000000ll)
#define PL_NANF __int_as_float(0x7fc00000)
#define PL_NAN __longlong_as_double(0x7ff8000000000000ll)
#include <ww/planner_scalar.h>

/* An exact quotient or root takes five times the instructions of these, half of them for a branch that is hardly ever
 * taken: more than 16-bit elements leave time for.  Divisors are below 2^126, or the quotient is 0. */
PL_FN float pl_quotientf(float a, float b) { return __fdividef(a, b); }
/* a - b of a product a, which is rounded first: no multiply-add */
PL_FN float pl_minusf(float a, float b) { return __fsub_rn(a, b); }
PL_FN float pl_rsqrtf(float a) { return rsqrtf(a); }
/* PyTorch's of infinities are NaN */
PL_FN float pl_j0f(float a) { return j0f(a) + (a - a); }
PL_FN float pl_j1f(float a) { return j1f(a) + (a - a); }
PL_FN float pl_y0f(float a) { return y0f(a) + (a - a); }
PL_FN float pl_y1f(float a) { return y1f(a) + (a - a); }
#include <ww/planner_special.h>
PL_FN int pl_signbitf(float a) { return __float_as_int(a) < 0; }
PL_FN float pl_as_f16(float a) { return __half2float(__float2half_rn(a)); }
PL_FN float pl_as_bf16(float a) { return __bfloat162float(__float2bfloat16_rn(a)); }
PL_FN float pl_sigmoidf(float a) { return ww::sigmoid(a); }
/* To 1e-5 of the result, for what is rounded to 16 bits: the functions above take two to four times the instructions.
 * gelu: the normal distribution below -|a| is e^(-a a / 2) times a polynomial of 1 / (1 + 0.44 |a|). */
PL_FN float pl_exp16f(float a) { return ww::exp2_(a * 1.44269504f); }
PL_FN float pl_sigmoid16f(float a)
{
	const float below = ww::exp2_(fabsf(a) * -1.44269504f);
	return (a > 0.0f ? 1.0f : below) * ww::rcp_ftz_(1.0f + below);
}
PL_FN float pl_gelu16f(float a)
{
	const float t = ww::rcp_ftz_(fmaf(0.44f, fabsf(a), 1.0f));
	const float p = fmaf(
		fmaf(fmaf(fmaf(fmaf(0.066740676f, t, -0.241836680f), t, 0.223789223f), t, 0.092836560f), t, 0.183445111f), t,
		0.175026621f);
	const float below = p * t * ww::exp2_(a * a * -0.72134752f);
	return a * (a > 0.0f ? 1.0f - below : below);
}

PL_FN float pl_expm1_16f(float a)
{
	const float near = a * fmaf(fmaf(0.166666667f, a, 0.5f), a, 1.0f), far = pl_exp16f(a) - 1.0f;
	return fabsf(a) < 0.03125f ? near : far;
}
PL_FN float pl_log1p_16f(float a)
{
	const float near = a * fmaf(fmaf(0.333333333f, a, -0.5f), a, 1.0f), far = ww::log2_(1.0f + a) * 0.693147181f;
	return fabsf(a) < 0.03125f ? near : far;
}

PL_FN float pl_tanh16f(float a)
{
	const float s = a * a, near = a * fmaf(fmaf(0.126831453f, s, -0.33315444f), s, 1.0f);
	const float far = fmaf(-2.0f, ww::rcp_ftz_(1.0f + ww::exp2_(fabsf(a) * 2.88539008f)), 1.0f);
	return fabsf(a) < 0.3f ? near : copysignf(far, a);
}
/* asinh(a) = log1p(y + y y / (1 + r)), y = |a|, r the root of 1 + y y; acosh(1 + t) = log1p(t + root of t (t + 2));
 * atanh(a) = log1p(2 y / (1 - y)) / 2.  Of half the logarithm's argument, which does not overflow. */
PL_FN float pl_root16f(float a) { return ww::exp2_(0.5f * ww::log2_(a)); }
PL_FN float pl_log1p_twice16f(float half)
{
	const float a = 2.0f * half, near = a * fmaf(fmaf(0.333333333f, a, -0.5f), a, 1.0f);
	const float far = fmaf(ww::log2_(0.5f + half), 0.693147181f, 0.693147181f);
	return fabsf(a) < 0.03125f ? near : far;
}
PL_FN float pl_asinh16f(float a)
{
	const float y = fabsf(a), share = y * ww::rcp_ftz_(1.0f + pl_root16f(fmaf(y, y, 1.0f)));
	return copysignf(pl_log1p_twice16f(fmaf(0.5f * y, y < 65536.0f ? share : 1.0f, 0.5f * y)), a);
}
PL_FN float pl_acosh16f(float a)
{
	const float t = a - 1.0f, root = pl_root16f(t * (t + 2.0f));
	const float found = pl_log1p_twice16f(fmaf(0.5f, t, 0.5f * (t < 65536.0f ? root : t)));
	return t < 0.0f ? PL_NANF : found;
}
PL_FN float pl_atanh16f(float a)
{
	const float y = fabsf(a);
	return copysignf(0.5f * pl_log1p_twice16f(y * ww::rcp_ftz_(1.0f - y)), a);
}

/* e^a - 1 and log(1 + a) to 1e-6 of themselves without a branch, half the instructions of C's: a polynomial near 0,
 * beyond it what they are by definition.  Those of C have branches for infinities, behind which each element waits (an
 * elu of four floats: 150 instructions and eight branches, 91 and none). */
PL_FN float pl_expm1f(float a)
{
	const float p = fmaf(
		fmaf(fmaf(fmaf(fmaf(1.98756206e-4f, a, 1.3981998e-3f), a, 8.3334522e-3f), a, 0.0416657959f), a, 0.166666655f),
		a, 0.5f);
	const float near = fmaf(p * a, a, a), far = expf(a) - 1.0f;
	return fabsf(a) < 0.5f ? near : far;
}
PL_FN float pl_log1pf(float a)
{
	const float q = fmaf(
		fmaf(fmaf(fmaf(-0.0480119252f, a, 0.106911622f), a, -0.1313506f), a, 0.144323436f), a, -0.166459097f);
	const float p = fmaf(fmaf(fmaf(fmaf(q, a, 0.199937482f), a, -0.250002033f), a, 0.333333944f), a, -0.5f);
	const float near = fmaf(p * a, a, a), far = ww::log2_(1.0f + a) * 0.693147181f;
	return a > -0.25f && a < 0.5f ? near : far;
}
/* Of a from 0 to 1: what a softplus adds to its argument, or to 0. */
PL_FN float pl_log1p_unitf(float a) { return ww::log1p_unit(a); }

PL_FN float pl_of_bits(const float *, unsigned bits) { return __uint_as_float(bits); }
PL_FN float pl_of_bits(const __half *, unsigned bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }
PL_FN float pl_of_bits(const __nv_bfloat16 *, unsigned bits) { return __uint_as_float(bits << 16); }
/* Element `which` of each S (2 or 4) that follow each other, of N times S.  By permutations of bytes: what is chosen by
 * a comparison becomes a branch, or an array in memory. */
template <int S, int N, class T> PL_FN void pl_load_apart(const T *p, int which, float (&v)[N])
{
	enum { SIZE = (int)sizeof(T), WORDS = S * SIZE / 4 };
	const unsigned bytes = (SIZE == 2 ? 0x1010u : 0x3210u) + 0x1111u * (which * SIZE % 8);
	const unsigned pair = 0x3210u + 0x1111u * (which / 2 * 4);
	typename ww::pieces<unsigned, N * WORDS>::u u;
#pragma unroll
	for (int i = 0; i < ww::pieces<unsigned, N * WORDS>::count; i++)
		u.word[i] = ((const typename ww::pieces<unsigned, N * WORDS>::w *)p)[i];
#pragma unroll
	for (int i = 0; i < N; i++) {
		const unsigned *w = u.elem + i * WORDS;
		unsigned bits = __byte_perm(w[0], w[WORDS > 1], bytes);

		if (WORDS == 4)
			bits = __byte_perm(bits, __byte_perm(w[2 % WORDS], w[3 % WORDS], bytes), pair);
		v[i] = pl_of_bits((const T *)0, bits);
	}
}
template <int N> PL_FN void pl_load(const long long *p, long long (&v)[N])
{
	typename ww::pieces<long long, N>::u u;
#pragma unroll
	for (int i = 0; i < ww::pieces<long long, N>::count; i++)
		u.word[i] = ((const typename ww::pieces<long long, N>::w *)p)[i];
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = u.elem[i];
}

/* a / b and the root of a without the branches of the exact ones, which they equal but for some that lie next to the
 * middle of two floats: behind a branch no load is under way ahead of it, and each element waits for its own (16 loads,
 * a division by 15 and a norm: 70 us, memory takes 32, H200).  inverse: 1 / b, to two units; a divisor below 2^-126
 * may count as 0.  What is left of a, a - q b, is exact, so a quotient that is a float is found. */
PL_FN float pl_div_by(float a, float b, float inverse)
{
	const float q = a * inverse, left = fmaf(-q, b, a), near = fmaf(left, inverse, q);

	return left != 0.0f && fabsf(left) < PL_INFF ? near : q; /* not of infinities, nor of -0 */
}
PL_FN float pl_divf(float a, float b) { return pl_div_by(a, b, ww::rcp_(b)); }
PL_FN float pl_sqrtf(float a)
{
	const float y = rsqrtf(a), q = a * y, left = fmaf(-q, q, a);

	return left == left ? fmaf(left, 0.5f * y, q) : a >= 0.0f ? a : q; /* 0 and infinity are their own roots */
}
PL_FN float pl_maxf(float a, float b) { return ww::max_nan(a, b); }
PL_FN float pl_minf(float a, float b) { return ww::min_nan(a, b); }

/* The place next to i within n. */
PL_FN ix_t pl_within(ix_t i, ix_t n) { return i < 0 ? 0 : i < n ? i : n - 1; }

enum { PL_SUM, PL_PROD, PL_MAX, PL_MIN };

template <int OP, class F> PL_FN F pl_comb(F a, F b)
{
	if (OP == PL_SUM)
		return a + b;
	if (OP == PL_PROD)
		return a * b;
	if (OP == PL_MAX)
		return a != a || a > b ? a : b;
	return a != a || a < b ? a : b;
}

/* Take (value b, index v) if it comes before (a, w). */
template <int OP, class F, class W> PL_FN void pl_take(F &a, W &w, F b, W v)
{
	const bool better = b != b ? (a == a || v < w) : a == a && (OP == PL_MAX ? b > a : b < a);

	if (better || (b == a && v < w)) {
		a = b;
		w = v;
	}
}

template <int OP, class F> PL_FN F pl_most(F a, F b) { return pl_comb<OP>(a, b); }
template <int OP> PL_FN float pl_most(float a, float b) { return OP == PL_MAX ? pl_maxf(a, b) : pl_minf(a, b); }

/* The first extreme of a thread's elements, which come in vectors whose places ascend.  The vector that has it is kept,
 * and its element is looked for at the end: three instructions an element, pl_take fifteen (SASS), more than memory
 * leaves time for. */
template <int OP, int V, class F> struct pl_first {
	F best, kept[V];
	ix_t at = 0;

	PL_FN explicit pl_first(F none) : best(none)
	{
#pragma unroll
		for (int l = 0; l < V; l++)
			kept[l] = none;
	}

	PL_FN void add(const F (&x)[V], ix_t first)
	{
		F most = x[0];

#pragma unroll
		for (int l = 1; l < V; l++)
			most = pl_most<OP>(most, x[l]);
		const bool better = best == best && !(OP == PL_MAX ? most <= best : most >= best);
		best = better ? most : best;
		at = better ? first : at;
#pragma unroll
		for (int l = 0; l < V; l++)
			kept[l] = better ? x[l] : kept[l];
	}

	PL_FN ix_t place() const
	{
		int found = 0;

#pragma unroll
		for (int l = V - 1; l >= 0; l--)
			found = kept[l] == best || kept[l] != kept[l] ? l : found;
		return at + found;
	}
};

/* N elements, from `first` on of `total`, between memory and shared memory, by the block's THREADS threads and whole
 * vectors: of rows that no vector divides.  `first` and N are multiples of 16 bytes, memory and shared memory aligned
 * to 16; what would lie beyond `total` is left out.  pl_stage ends with a barrier, pl_unstage begins with one. */
template <int N, int THREADS, class T> PL_FN void pl_move_rows(const T *from, ix_t left, T *to)
{
	enum : int { V = 16 / sizeof(T), STEPS = (N / V + THREADS - 1) / THREADS, AHEAD = STEPS < 8 ? STEPS : 8 };

	static_assert(N % V == 0, "rows of a block are whole vectors");
	if (left < N) {
		for (int i = threadIdx.x; i < (int)left; i += THREADS)
			to[i] = from[i];
		return;
	}
#pragma unroll
	for (int step = 0; step < STEPS; step += AHEAD) {
		uint4 held[AHEAD];

#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			const int i = (step + j) * THREADS + (int)threadIdx.x;

			if (i < N / V)
				held[j] = ((const uint4 *)from)[i];
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			const int i = (step + j) * THREADS + (int)threadIdx.x;

			if (i < N / V)
				((uint4 *)to)[i] = held[j];
		}
	}
}
template <int N, int THREADS, class T> PL_FN void pl_stage(const T *from, ix_t first, ix_t total, T *to)
{
	pl_move_rows<N, THREADS>(from + first, total - first, to);
	__syncthreads();
}
template <int N, int THREADS, class T> PL_FN void pl_unstage(const T *from, ix_t first, ix_t total, T *to)
{
	__syncthreads();
	pl_move_rows<N, THREADS>(from, total - first, to + first);
}

/* Across the T threads of a row: within a warp by shuffles, between warps through shared memory. */
template <int OP, int T, class F> PL_FN F pl_across(F v, double *room)
{
	F *box = (F *)room;

#pragma unroll
	for (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2)
		v = pl_comb<OP>(v, __shfl_xor_sync(0xffffffffu, v, d));
	if (T > 32) {
		__syncthreads();
		if (threadIdx.x % 32 == 0)
			box[threadIdx.x / 32] = v;
		__syncthreads();
		v = box[threadIdx.x % (T / 32 ? T / 32 : 1)];
#pragma unroll
		for (int d = T / 64; d > 0; d /= 2)
			v = pl_comb<OP>(v, __shfl_xor_sync(0xffffffffu, v, d));
	}
	return v;
}

/* The first place of the extreme of N neighbouring lanes.  Its value first, then the least place of those that have it:
 * two instructions a step each, (value, place) by pl_take fourteen. */
template <int OP, int N, class F, class W> PL_FN void pl_agree(F &a, W &w)
{
	F most = a;

#pragma unroll
	for (int d = N / 2; d > 0; d /= 2)
		most = pl_most<OP>(most, (F)__shfl_xor_sync(0xffffffffu, most, d));
	w = a == most || a != a ? w : (W)((1ull << (8 * sizeof(W) - 1)) - 1);
	a = most;
#pragma unroll
	for (int d = N / 2; d > 0; d /= 2) {
		const W v = __shfl_xor_sync(0xffffffffu, w, d);

		w = v < w ? v : w;
	}
}

template <int OP, int T, class F, class W> PL_FN void pl_across_arg(F &a, W &w, double *room)
{
	F *box = (F *)room;
	W *wbox = (W *)(room + 32);

	pl_agree<OP, (T < 32 ? T : 32)>(a, w);
	if (T > 32) {
		const int i = threadIdx.x % (T / 32 ? T / 32 : 1);

		__syncthreads();
		if (threadIdx.x % 32 == 0) {
			box[threadIdx.x / 32] = a;
			wbox[threadIdx.x / 32] = w;
		}
		__syncthreads();
		a = box[i];
		w = wbox[i];
		pl_agree<OP, (T / 32 ? T / 32 : 1)>(a, w);
	}
}

/* Between the TY threads that share the columns of each of TX adjacent rows.  Of fewer than 32 rows first within warps:
 * 128 threads of 8 rows would each read 128 numbers, which takes the block longer than its columns. */
template <int OP, int TX, int TY, class F> PL_FN F pl_down(F v, double *room)
{
	enum : int { IN_WARP = TY > 1 && TX < 32 ? 32 / TX : 1 };
	F *box = (F *)room;

	if (TY > 1) {
		for (int d = TX; d < 32; d *= 2)
			v = pl_comb<OP>(v, __shfl_xor_sync(0xffffffffu, v, d));
		__syncthreads();
		if (threadIdx.x / TX % IN_WARP == 0)
			box[threadIdx.x / (TX * IN_WARP) * TX + threadIdx.x % TX] = v;
		__syncthreads();
		v = box[threadIdx.x % TX];
		for (int i = 1; i < TY / IN_WARP; i++)
			v = pl_comb<OP>(v, box[threadIdx.x % TX + i * TX]);
	}
	return v;
}

template <int OP, int TX, int TY, class F, class W> PL_FN void pl_down_arg(F &a, W &w, double *room)
{
	F *box = (F *)room;
	W *wbox = (W *)(room + TX * TY);

	if (TY > 1) {
		__syncthreads();
		box[threadIdx.x] = a;
		wbox[threadIdx.x] = w;
		__syncthreads();
		a = box[threadIdx.x % TX];
		w = wbox[threadIdx.x % TX];
		for (int i = 1; i < TY; i++)
			pl_take<OP>(a, w, box[threadIdx.x % TX + i * TX], wbox[threadIdx.x % TX + i * TX]);
	}
}

/* A thread's sum, in N, a power of two, that take turns: 64 terms round as 64 / N do, and no addition waits for the one
 * before.  In a loop that is unrolled N times the turns are names of registers. */
template <int N> struct pl_turns {
	float part[N] = {};

	PL_FN void add(float x)
	{
		const float next = part[0] + x;

#pragma unroll
		for (int i = 1; i < N; i++)
			part[i - 1] = part[i];
		part[N - 1] = next;
	}

	PL_FN float result() const
	{
		pl_turns s = *this;

#pragma unroll
		for (int n = N / 2; n > 0; n /= 2)
#pragma unroll
			for (int i = 0; i < n; i++)
				s.part[i] += s.part[i + n];
		return s.part[0];
	}
};

/* What a thread gathers of its elements x in one pass, so that a second reduction, about a centre that the first one
 * gives, needs none.  V: of a vector.
 *
 * pl_squares: sum of x, and of (x - m)^2 about any m.  What is summed are differences from a centre, so that no large
 * mean cancels: the thread's squares about its own mean, and n times that mean's distance from m.  After each vector
 * the centre moves to the mean so far: about a first element that is much larger than the others all their squares
 * would be as large, and cancel.  Squares are summed by vectors, in turns: behind one large number a sum rounds small
 * ones away.  A move by any `step` is exact but for rounding, so the quotient may be a rough one. */
struct pl_squares {
	float centre = 0, sum = 0, n = 0; /* sum: of x - centre */
	pl_turns<4> squares;

	template <int V> PL_FN void add(const float (&x)[V])
	{
		const float old = n == 0 ? x[0] : centre;
		float of = 0;

		n += V;
#pragma unroll
		for (int l = 0; l < V; l++) {
			const float d = x[l] - old;

			sum += d;
			of += d * d;
		}
		centre = old + sum * ww::rcp_ftz_(n);
		const float step = centre - old, left = sum - n * step;
		squares.add(of - step * (sum + left));
		sum = left;
	}

	PL_FN float result() const { return sum + n * centre; }

	PL_FN float about(float m) const
	{
		const float mean = n > 0 ? sum / n : 0, d = mean + centre - m;

		return pl_maxf(squares.result() - mean * sum, 0.0f) + n * d * d;
	}
};

/* pl_exponentials: the maximum, and the sum of exp(x - m) about the maximum of all threads.  -inf alone adds nothing,
 * until m itself is -inf: then NaN, as exp(-inf - -inf). */
struct pl_exponentials {
	float most = -PL_INFF, sum = 0;

	template <int V> PL_FN void add(const float (&x)[V])
	{
		float now = most, about;

#pragma unroll
		for (int l = 0; l < V; l++)
			now = pl_maxf(now, x[l]);
		about = now == -PL_INFF ? 0 : now;
		sum *= expf(most - about);
		most = now;
#pragma unroll
		for (int l = 0; l < V; l++)
			sum += expf(x[l] - about);
	}

	PL_FN float result() const { return most; }
	PL_FN float about(float m) const { return sum * expf(most - m); }
};

/* Of what each of N threads, or blocks, has. */
template <int OP, int N> PL_FN float pl_all(const float *each)
{
	float v = each[0];

#pragma unroll
	for (int i = 1; i < N; i++)
		v = pl_comb<OP>(v, each[i]);
	return v;
}

/* Between the CL blocks that share a row, v being the same in all threads of a block.  Every reduction has its own
 * slot, so one barrier each is enough. */
template <int OP, int CL> PL_FN float pl_cluster(float v, float *slot)
{
	if (CL > 1) {
		if (threadIdx.x == 0)
			*slot = v;
		ww::cluster_sync();
		v = ww::cluster_load(slot, 0);
		for (int i = 1; i < CL; i++)
			v = pl_comb<OP>(v, ww::cluster_load(slot, i));
	}
	return v;
}

#endif
