/* vec.h - one vector of floats, as wide as the machine has them.
 *
 * WW_VL floats to a vector: 16 with AVX-512, 8 with AVX, 4 elsewhere (SSE2, NEON, anything that gcc and clang can lower
 * generic vectors to).  Arithmetic is written with the compilers' vector operators (a + b * c: contraction to FMA is
 * allowed by -ffp-contract=fast); other operations are functions here, by an intrinsic if there is one, else by generic
 * code.
 *
 * Partial vectors: every memory function takes n, the number of lanes that count.  n == WW_VL is the fast case and
 * folds when n is a constant; n < WW_VL touches exactly n elements.  AVX-512 and AVX have masked moves; the generic
 * case copies through a small array.
 *
 * Masks have a type of their own, ww_vm: a bit per lane with AVX-512, a lane-wide integer elsewhere.
 *
 * Streaming stores: ww_vf_stream() writes around the caches, which saves the read-for-ownership of the line (a third of
 * the traffic of a map).  It needs full, aligned vectors and falls back to a plain store otherwise, so a row that
 * starts off 64-byte alignment is slower, never wrong.  Use it for outputs that no later launch reads soon. */
#ifndef WW_CPU_VEC_H
#define WW_CPU_VEC_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define WW_AVX512 1
#define WW_VL 16
#elif defined(__AVX2__) && defined(__FMA__)
#define WW_AVX2 1
#define WW_VL 8
#else
#define WW_VL 4
#endif
#define WW_VB (4 * WW_VL)		/* bytes of a vector */

typedef float ww_vf __attribute__((vector_size(WW_VB)));
typedef int32_t ww_vi __attribute__((vector_size(WW_VB)));
typedef double ww_vd __attribute__((vector_size(WW_VB)));                        /* half as many lanes */
typedef float ww_vfu __attribute__((vector_size(WW_VB), may_alias, aligned(4))); /* in memory, unaligned */

/* ---- Constants and casts ----------------------------------------------------------------------------------------- */

WW_FN ww_vf ww_vf_zero(void) { return (ww_vf){ 0 }; }
/* All lanes x.  (Not zero + x: that is a load, a subtraction's worth of latency, and wrong for -0.) */
WW_FN ww_vf ww_vf_set(float x)
{
#if WW_VL == 16
	return (ww_vf){ x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x };
#elif WW_VL == 8
	return (ww_vf){ x, x, x, x, x, x, x, x };
#else
	return (ww_vf){ x, x, x, x };
#endif
}
WW_FN ww_vi ww_vi_set(int32_t x)
{
#if WW_VL == 16
	return (ww_vi){ x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x };
#elif WW_VL == 8
	return (ww_vi){ x, x, x, x, x, x, x, x };
#else
	return (ww_vi){ x, x, x, x };
#endif
}
/* 0, 1, 2, ... */
WW_FN ww_vi ww_vi_iota(void)
{
#if WW_VL == 16
	return (ww_vi){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
#elif WW_VL == 8
	return (ww_vi){ 0, 1, 2, 3, 4, 5, 6, 7 };
#else
	return (ww_vi){ 0, 1, 2, 3 };
#endif
}
/* Reinterpretation of the bits. */
WW_FN ww_vi ww_vi_bits(ww_vf x) { return (ww_vi)x; }
WW_FN ww_vf ww_vf_bits(ww_vi x) { return (ww_vf)x; }
/* Conversion of values; to integer by truncation. */
WW_FN ww_vf ww_vf_of_vi(ww_vi x) { return __builtin_convertvector(x, ww_vf); }
WW_FN ww_vi ww_vi_trunc(ww_vf x) { return __builtin_convertvector(x, ww_vi); }

/* ---- Masks ------------------------------------------------------------------------------------------------------- */

#if defined(WW_AVX512)
typedef __mmask16 ww_vm;
WW_FN ww_vm ww_vm_first(int n) { return (ww_vm)((1u << n) - 1u); } /* lanes below n */
WW_FN ww_vm ww_vf_lt(ww_vf a, ww_vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
WW_FN ww_vm ww_vf_le(ww_vf a, ww_vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ); }
WW_FN ww_vm ww_vf_eq(ww_vf a, ww_vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ); }
WW_FN ww_vm ww_vf_ne(ww_vf a, ww_vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NEQ_UQ); }
WW_FN ww_vm ww_vi_eq(ww_vi a, ww_vi b) { return _mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, _MM_CMPINT_EQ); }
WW_FN ww_vm ww_vm_and(ww_vm a, ww_vm b) { return (ww_vm)(a & b); }
WW_FN ww_vm ww_vm_or(ww_vm a, ww_vm b) { return (ww_vm)(a | b); }
WW_FN ww_vm ww_vm_not(ww_vm a) { return (ww_vm)~a; }
WW_FN ww_vm ww_vm_xor(ww_vm a, ww_vm b) { return (ww_vm)(a ^ b); }
WW_FN int ww_vm_any(ww_vm a) { return a != 0; }
WW_FN int ww_vm_lane(ww_vm a, int i) { return a >> i & 1; }
WW_FN ww_vm ww_vi_lt(ww_vi a, ww_vi b) { return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b); }
/* a where m, b elsewhere. */
WW_FN ww_vf ww_vf_sel(ww_vm m, ww_vf a, ww_vf b) { return (ww_vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a); }
#else
typedef ww_vi ww_vm;
WW_FN ww_vm ww_vm_first(int n) { return (ww_vm)(ww_vi_iota() < ww_vi_set(n)); }
WW_FN ww_vm ww_vf_lt(ww_vf a, ww_vf b) { return (ww_vm)(a < b); }
WW_FN ww_vm ww_vf_le(ww_vf a, ww_vf b) { return (ww_vm)(a <= b); }
WW_FN ww_vm ww_vf_eq(ww_vf a, ww_vf b) { return (ww_vm)(a == b); }
WW_FN ww_vm ww_vf_ne(ww_vf a, ww_vf b) { return (ww_vm)(a != b); }
WW_FN ww_vm ww_vi_eq(ww_vi a, ww_vi b) { return (ww_vm)(a == b); }
WW_FN ww_vm ww_vi_lt(ww_vi a, ww_vi b) { return (ww_vm)(a < b); }
WW_FN int ww_vm_lane(ww_vm a, int i) { return a[i] != 0; }
WW_FN ww_vm ww_vm_and(ww_vm a, ww_vm b) { return a & b; }
WW_FN ww_vm ww_vm_or(ww_vm a, ww_vm b) { return a | b; }
WW_FN ww_vm ww_vm_not(ww_vm a) { return ~a; }
WW_FN ww_vm ww_vm_xor(ww_vm a, ww_vm b) { return a ^ b; }
#if defined(WW_AVX2)
/* A bit per lane. */
WW_FN int ww_vm_to_bits(ww_vm a) { return _mm256_movemask_ps((__m256)a); }
WW_FN int ww_vm_any(ww_vm a) { return ww_vm_to_bits(a) != 0; }
#else
WW_FN int ww_vm_any(ww_vm a)
{
	int any = 0;

	for (int i = 0; i < WW_VL; i++)
		any |= a[i];
	return any != 0;
}
#endif
WW_FN ww_vf ww_vf_sel(ww_vm m, ww_vf a, ww_vf b)
{
#if defined(WW_AVX2)
	return (ww_vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m);
#else
	return ww_vf_bits((m & ww_vi_bits(a)) | (~m & ww_vi_bits(b)));
#endif
}
#endif
WW_FN ww_vm ww_vf_gt(ww_vf a, ww_vf b) { return ww_vf_lt(b, a); }
WW_FN ww_vm ww_vf_ge(ww_vf a, ww_vf b) { return ww_vf_le(b, a); }
WW_FN ww_vm ww_vf_isnan(ww_vf a) { return ww_vf_ne(a, a); }
/* 1.0 where m, 0.0 elsewhere: what a comparison gives that is used as a number. */
WW_FN ww_vf ww_vf_of_vm(ww_vm m) { return ww_vf_sel(m, ww_vf_set(1.0f), ww_vf_zero()); }
/* v with lanes n and up replaced by `fill`. */
WW_FN ww_vf ww_vf_fill(ww_vf v, int n, float fill)
{
	return n >= WW_VL ? v : ww_vf_sel(ww_vm_first(n), v, ww_vf_set(fill));
}

/* ---- Loads and stores of float ----------------------------------------------------------------------------------- */

/* Prefetch the line at p, for reading, into all cache levels.  Never faults, wherever p points. */
WW_FN void ww_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }

/* p[0..n-1]; other lanes 0. */
WW_FN ww_vf ww_vf_load(const float *p, int n)
{
	if (n >= WW_VL)
		return *(const ww_vfu *)p;
#if defined(WW_AVX512)
	return (ww_vf)_mm512_maskz_loadu_ps(ww_vm_first(n), p);
#elif defined(WW_AVX2)
	return (ww_vf)_mm256_maskload_ps(p, (__m256i)ww_vm_first(n));
#else
	ww_vf v = ww_vf_zero();

	for (int i = 0; i < n; i++)
		v[i] = p[i];
	return v;
#endif
}

/* v, as a value that is in a register.  For AVX2 gcc makes the load of a vector that several multiply-adds share an
 * operand of each of them; products are then bound by loads. */
WW_FN ww_vf ww_vf_held(ww_vf v)
{
#if defined(WW_AVX2)
	__asm__("" : "+x"(v));
#endif
	return v;
}

/* a - b of a product a, which is rounded first: no multiply-add. */
WW_FN ww_vf ww_vf_minus(ww_vf a, ww_vf b)
{
#if defined(WW_AVX2) || defined(WW_AVX512)
	__asm__("" : "+x"(a));
#endif
	return a - b;
}

/* Prefetch `lines` lines from p + 2 KiB on, also across page ends, where the hardware's prefetcher stops: for data that
 * is read once, in order, from DRAM. */
WW_FN void ww_prefetch_ahead(const void *p, long long lines)
{
	for (long long i = 0; i < lines; i++)
		ww_prefetch((const void *)((uintptr_t)p + 2048 + 64 * (uintptr_t)i));
}

WW_FN ww_vf ww_vf_load_ahead(const float *p, int n)
{
	ww_prefetch_ahead(p, 1);
	return ww_vf_load(p, n);
}

WW_FN void ww_vf_store(float *p, ww_vf v, int n)
{
	if (n >= WW_VL) {
		*(ww_vfu *)p = v;
		return;
	}
#if defined(WW_AVX512)
	if (__builtin_constant_p(n) && n == WW_VL / 2) { /* without a mask */
		_mm256_storeu_ps(p, _mm512_castps512_ps256((__m512)v));
		return;
	}
	_mm512_mask_storeu_ps(p, ww_vm_first(n), (__m512)v);
#elif defined(WW_AVX2)
	__m128 part = _mm256_castps256_ps128((__m256)v); /* a masked store takes longer: it is microcode on AMD */

	if (n & 4) {
		_mm_storeu_ps(p, part);
		part = _mm256_extractf128_ps((__m256)v, 1);
		p += 4;
	}
	if (n & 2) {
		_mm_storel_pi((__m64 *)(void *)p, part);
		part = _mm_movehl_ps(part, part);
		p += 2;
	}
	if (n & 1)
		_mm_store_ss(p, part);
#else
	for (int i = 0; i < n; i++)
		p[i] = v[i];
#endif
}

/* Store around the caches where p is aligned and the vector full. */
WW_FN void ww_vf_stream(float *p, ww_vf v, int n)
{
#if defined(__x86_64__)
	if (n >= WW_VL && ((uintptr_t)p & (WW_VB - 1)) == 0) {
#if defined(WW_AVX512)
		_mm512_stream_ps(p, (__m512)v);
#elif defined(WW_AVX2)
		_mm256_stream_ps(p, (__m256)v);
#else
		_mm_stream_ps(p, (__m128)v);
#endif
		return;
	}
#endif
	ww_vf_store(p, v, n);
}

/* How many of n floats from p on come before the first address that a vector can be streamed to. */
WW_FN int ww_vf_before(const float *p, long long n)
{
	return (int)ww_min_ll(n, (long long)((WW_VL - (uintptr_t)p / 4 % WW_VL) % WW_VL));
}

/* p[0], p[stride], ...; other lanes 0. */
WW_FN ww_vf ww_vf_gather_any(const float *p, long long stride, int n)
{
#if defined(WW_AVX512)
	if (n < WW_VL && stride >= -(1 << 26) && stride <= 1 << 26)
		return (ww_vf)_mm512_mask_i32gather_ps(
			_mm512_setzero_ps(), ww_vm_first(n), (__m512i)(ww_vi_iota() * ww_vi_set((int32_t)stride)), p, 4);
#elif defined(WW_AVX2)
	if (n >= WW_VL)
		return (ww_vf){ p[0], p[stride], p[2 * stride], p[3 * stride], p[4 * stride], p[5 * stride], p[6 * stride],
			p[7 * stride] };
	if (stride >= -(1 << 27) && stride <= 1 << 27)
		return (ww_vf)_mm256_mask_i32gather_ps(
			_mm256_setzero_ps(), p, (__m256i)(ww_vi_iota() * ww_vi_set((int32_t)stride)), (__m256)ww_vm_first(n), 4);
#endif
	float v[WW_VL] __attribute__((aligned(64))) = { 0 };

	for (int i = 0; i < n; i++)
		v[i] = p[i * stride];
	return *(const ww_vfu *)v;
}

/* The largest distance of floats that are picked from whole vectors. */
#define WW_MOST_PICKED (WW_VL == 16 ? 8 : 4)
#if defined(WW_AVX512) || defined(WW_AVX2)
/* v, whose lanes from `from` on are those of `a` that `pick` says. */
WW_FN ww_vf ww_vf_pick_from(ww_vf v, int from, ww_vi pick, ww_vf a)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_mask_permutexvar_ps((__m512)v, (ww_vm)(0xffffu << from), (__m512i)pick, (__m512)a);
#else
	const ww_vf b = (ww_vf)_mm256_permutevar8x32_ps((__m256)a, (__m256i)pick);

	return from ? ww_vf_sel(ww_vm_first(from), v, b) : b;
#endif
}
/* A part of a strided load (stride constant, at most 8; n lanes count): the lanes from `from` on whose float lies in
 * the vector at p + at.  Nothing behind the last float is read. */
WW_FN ww_vf ww_vf_gather_part(ww_vf v, const float *p, int stride, int n, int at)
{
	const int from = (at + stride - 1) / stride, left = (n - 1) * stride + 1 - at;

	if (left <= 0)
		return v;
	return ww_vf_pick_from(
		v, from, ww_vi_iota() * ww_vi_set(stride) - ww_vi_set(at), ww_vf_load(p + at, (int)ww_min_ll(left, WW_VL)));
}
WW_FN ww_vf ww_vf_gather(const float *p, long long stride, int n)
{
	ww_vf v = ww_vf_zero();

	if (!__builtin_constant_p(stride) || stride < 2 || stride > WW_MOST_PICKED)
		return stride == 1 ? ww_vf_load(p, n) : ww_vf_gather_any(p, stride, n);
	WW_UNROLL(8)
	for (int at = 0; at < 8 * WW_VL; at += WW_VL)
		if (at < WW_VL * stride)
			v = ww_vf_gather_part(v, p, (int)stride, n, at);
	return n < WW_VL ? ww_vf_sel(ww_vm_first(n), v, ww_vf_zero()) : v;
}
#else
WW_FN ww_vf ww_vf_gather(const float *p, long long stride, int n) { return ww_vf_gather_any(p, stride, n); }
#endif

/* p[at], p[at + stride], ...; other lanes 0: element `at` of each of n windows of `width`, all of which may be read. If
 * both and the stride are constants of at most 8, and `at` is a constant after unrolling, the elements of windows share
 * their loads. */
WW_FN ww_vf ww_vf_window(const float *p, long long stride, long long at, long long width, int n)
{
#if defined(WW_AVX512) || defined(WW_AVX2)
	const long long all = (n - 1) * stride + width;
	ww_vf v = ww_vf_zero();

	if (!__builtin_constant_p(stride) || !__builtin_constant_p(width) || stride < 2 || stride > WW_MOST_PICKED ||
		width > 8)
		return ww_vf_gather(p + at, stride, n);
	WW_UNROLL(9)
	for (long long j = 0; j < 9 * WW_VL; j += WW_VL) {
		const long long from = j > at ? (j - at + stride - 1) / stride : 0;
		const ww_vi pick = ww_vi_iota() * ww_vi_set((int)stride) + ww_vi_set((int)(at - j));

		if (j <= (WW_VL - 1) * stride + width - 1 && j < all)
#if defined(WW_AVX512)
			v = (ww_vf)_mm512_mask_permutexvar_ps((__m512)v, (ww_vm)(0xffffu << from), (__m512i)pick,
				(__m512)ww_vf_load(p + j, (int)ww_min_ll(all - j, WW_VL)));
#else
			v = ww_vf_pick_from(v, (int)from, pick, ww_vf_load(p + j, (int)ww_min_ll(all - j, WW_VL)));
#endif
	}
	return n < WW_VL ? ww_vf_sel(ww_vm_first(n), v, ww_vf_zero()) : v;
#else
	(void)width;
	return ww_vf_gather(p + at, stride, n);
#endif
}

/* ww_vf_gather() for data that is read once, in order, from DRAM; a stride of at most 8. */
WW_FN ww_vf ww_vf_gather_ahead(const float *p, long long stride, int n)
{
	ww_prefetch_ahead(p, WW_CDIV(stride * WW_VB, 64));
	return ww_vf_gather(p, stride, n);
}

/* p[0], p[stride], ... for the lanes of m, other lanes 0: nothing else is read. */
WW_FN ww_vf ww_vf_gather_some(const float *p, long long stride, ww_vm m)
{
#if defined(WW_AVX2)
	if (stride >= -(1 << 27) && stride <= 1 << 27)
		return (ww_vf)_mm256_mask_i32gather_ps(
			_mm256_setzero_ps(), p, (__m256i)(ww_vi_iota() * ww_vi_set((int32_t)stride)), (__m256)m, 4);
#endif
	ww_vf v = ww_vf_zero();

	for (int i = 0; i < WW_VL; i++)
		if (ww_vm_lane(m, i))
			v[i] = p[i * stride];
	return v;
}
/* p[0..] for the lanes of m.  A masked lane on a page that is not there costs hundreds of cycles (the exception is
 * found and suppressed), and the lanes ahead of a buffer often are: so a load begins at its first lane. */
WW_FN ww_vf ww_vf_load_where(const float *p, ww_vm m)
{
#if defined(WW_AVX512)
	if (m & 1)
		return (ww_vf)_mm512_maskz_loadu_ps(m, p);
	if (!m)
		return ww_vf_zero();
	const int first = __builtin_ctz(m);

	return (ww_vf)_mm512_maskz_permutexvar_ps(
		m, (__m512i)(ww_vi_iota() - ww_vi_set(first)), _mm512_maskz_loadu_ps((ww_vm)(m >> first), p + first));
#elif defined(WW_AVX2)
	const int bits = ww_vm_to_bits(m);

	if (bits & 1)
		return (ww_vf)_mm256_maskload_ps(p, (__m256i)m);
	if (!bits)
		return ww_vf_zero();
	const ww_vi first = ww_vi_set(__builtin_ctz((unsigned)bits)), to = ww_vi_iota() + first;
	const ww_vi part = (ww_vi)_mm256_permutevar8x32_epi32((__m256i)m, (__m256i)to) & (to < ww_vi_set(WW_VL));
	const ww_vi v = (ww_vi)_mm256_maskload_ps(p + first[0], (__m256i)part);

	return (ww_vf)(m & (ww_vi)_mm256_permutevar8x32_epi32((__m256i)v, (__m256i)(ww_vi_iota() - first)));
#else
	return ww_vf_gather_some(p, 1, m);
#endif
}
/* The same at a distance; n: lanes that m may have. */
WW_FN ww_vf ww_vf_gather_where(const float *p, long long stride, ww_vm m, int n)
{
#if defined(WW_AVX512)
	if (m == ww_vm_first(n))
		return ww_vf_gather(p, stride, n);
	if (stride >= -(1 << 26) && stride <= 1 << 26)
		return (ww_vf)_mm512_mask_i32gather_ps(
			_mm512_setzero_ps(), m, (__m512i)(ww_vi_iota() * ww_vi_set((int32_t)stride)), p, 4);
#elif defined(WW_AVX2)
	if (ww_vm_to_bits(m) == (1 << n) - 1)
		return ww_vf_gather(p, stride, n);
#endif
	(void)n;
	return ww_vf_gather_some(p, stride, m);
}

/* Lanes of a where m, zeros elsewhere. */
WW_FN ww_vi ww_vi_where(ww_vm m, ww_vi a)
{
#if defined(WW_AVX512)
	return (ww_vi)_mm512_maskz_mov_epi32(m, (__m512i)a);
#else
	return m & a;
#endif
}
/* Quotients and remainders of non-negative lanes by a number, preferably a constant. */
typedef uint32_t ww_vu __attribute__((vector_size(WW_VB)));
WW_FN ww_vi ww_vi_div(ww_vi a, int32_t b) { return (ww_vi)((ww_vu)a / (ww_vu)ww_vi_set(b)); }
WW_FN ww_vi ww_vi_mod(ww_vi a, int32_t b) { return a - ww_vi_div(a, b) * ww_vi_set(b); }
#if defined(WW_AVX512)
/* Are the indices contiguous, as in the middle of a padded row?  A load then costs a tenth of a gather. */
WW_FN int ww_vi_is_run(ww_vi at) { return ww_vi_eq(at, ww_vi_set(at[0]) + ww_vi_iota()) == 0xffff; }
#elif defined(WW_AVX2)
WW_FN int ww_vi_is_run(ww_vi at) { return ww_vm_to_bits(ww_vi_eq(at, ww_vi_set(at[0]) + ww_vi_iota())) == 0xff; }
#endif
/* p[at[0]], p[at[1]], ...; other lanes 0. */
WW_FN ww_vf ww_vf_load_at(const float *p, ww_vi at, int n)
{
#if defined(WW_AVX512)
	if (ww_vi_is_run(at))
		return ww_vf_load(p + at[0], n);
	return (ww_vf)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), ww_vm_first(n), (__m512i)at, p, 4);
#elif defined(WW_AVX2)
	if (ww_vi_is_run(at))
		return ww_vf_load(p + at[0], n);
	return (ww_vf)_mm256_mask_i32gather_ps(_mm256_setzero_ps(), p, (__m256i)at, (__m256)ww_vm_first(n), 4);
#else
	ww_vf v = ww_vf_zero();

	for (int i = 0; i < n; i++)
		v[i] = p[at[i]];
	return v;
#endif
}

/* The same where all places are below len.  Rows of four vectors stay in registers: a gather is a load for each lane.
 */
WW_FN ww_vf ww_vf_load_among(const float *p, ww_vi at, long long len, int n)
{
#if defined(WW_AVX512)
	if (len <= 4 * WW_VL) {
		__m512 row[4], low, high;

		for (int i = 0; i < 4; i++)
			row[i] = len > i * WW_VL ? (__m512)ww_vf_load(p + i * WW_VL, (int)ww_min_ll(len - i * WW_VL, WW_VL))
									 : _mm512_setzero_ps();
		low = _mm512_maskz_permutex2var_ps(ww_vm_first(n), row[0], (__m512i)at, row[1]);
		if (len <= 2 * WW_VL)
			return (ww_vf)low;
		high = _mm512_permutex2var_ps(row[2], (__m512i)at, row[3]);
		return (ww_vf)_mm512_mask_mov_ps(
			low, ww_vm_first(n) & _mm512_test_epi32_mask((__m512i)at, _mm512_set1_epi32(2 * WW_VL)), high);
	}
#elif defined(WW_AVX2)
	if (len <= 4 * WW_VL) { /* of each vector of the row the lanes that lie in it */
		ww_vf v = ww_vf_zero();

		WW_UNROLL(4)
		for (int i = 0; i < 4; i++)
			if (len > i * WW_VL) {
				const ww_vf row = ww_vf_load(p + i * WW_VL, (int)ww_min_ll(len - i * WW_VL, WW_VL));
				const ww_vf picked = (ww_vf)_mm256_permutevar8x32_ps((__m256)row, (__m256i)at);

				v = i ? ww_vf_sel(ww_vi_lt(ww_vi_set(i * WW_VL - 1), at), picked, v) : picked;
			}
		return n < WW_VL ? ww_vf_sel(ww_vm_first(n), v, ww_vf_zero()) : v;
	}
#endif
	(void)len;
	return ww_vf_load_at(p, at, n);
}

/* The first n lanes, from the last to the first one. */
WW_FN ww_vf ww_vf_turn(ww_vf v, int n)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_maskz_permutexvar_ps(ww_vm_first(n), (__m512i)(ww_vi_set(n - 1) - ww_vi_iota()), (__m512)v);
#elif defined(WW_AVX2)
	return (
		ww_vf)(ww_vm_first(n) & (ww_vi)_mm256_permutevar8x32_ps((__m256)v, (__m256i)(ww_vi_set(n - 1) - ww_vi_iota())));
#else
	ww_vf out = ww_vf_zero();

	for (int i = 0; i < n; i++)
		out[i] = v[n - 1 - i];
	return out;
#endif
}

#if defined(WW_AVX2)
/* p[0], ... p[3], of which n count; other lanes 0. */
WW_FN __m256i ww_load_4_i64(const long long *p, int n)
{
	if (n >= 4)
		return _mm256_loadu_si256((const void *)p);
	return _mm256_maskload_epi64(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)));
}
/* The lower halves of eight 64-bit integers. */
WW_FN ww_vi ww_vi_halves_i64(__m256i low, __m256i high)
{
	const __m256 both = _mm256_shuffle_ps((__m256)low, (__m256)high, 0x88);

	return (ww_vi)_mm256_permute4x64_epi64((__m256i)both, 0xd8);
}
#endif
/* n integers that fit 32 bits, as places do; other lanes 0. */
WW_FN ww_vi ww_vi_load_i64(const long long *p, int n)
{
#if defined(WW_AVX512)
	const ww_vm m = ww_vm_first(n);
	const __m256i low = _mm512_cvtepi64_epi32(_mm512_maskz_loadu_epi64((__mmask8)m, p));
	const __m256i high = _mm512_cvtepi64_epi32(_mm512_maskz_loadu_epi64((__mmask8)(m >> 8), p + 8));

	return (ww_vi)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#elif defined(WW_AVX2)
	return ww_vi_halves_i64(ww_load_4_i64(p, n), ww_load_4_i64(p + 4, n - 4));
#else
	ww_vi v = ww_vi_set(0);

	for (int i = 0; i < n; i++)
		v[i] = (int32_t)p[i];
	return v;
#endif
}

/* p[i] == x, for the first n lanes. */
WW_FN ww_vm ww_vm_eq_i64(const long long *p, long long x, int n)
{
#if defined(WW_AVX512)
	const ww_vm m = ww_vm_first(n);
	const __m512i all = _mm512_set1_epi64(x);
	const __mmask8 low = (__mmask8)m, high = (__mmask8)(m >> 8);

	return (ww_vm)(_mm512_mask_cmpeq_epi64_mask(low, _mm512_maskz_loadu_epi64(low, p), all) |
		_mm512_mask_cmpeq_epi64_mask(high, _mm512_maskz_loadu_epi64(high, p + 8), all) << 8);
#elif defined(WW_AVX2)
	const __m256i all = _mm256_set1_epi64x(x);

	return ww_vm_first(n) &
		ww_vi_halves_i64(
			_mm256_cmpeq_epi64(ww_load_4_i64(p, n), all), _mm256_cmpeq_epi64(ww_load_4_i64(p + 4, n - 4), all));
#else
	ww_vi v = ww_vi_set(0);

	for (int i = 0; i < n; i++)
		v[i] = -(p[i] == x);
	return ww_vi_lt(v, ww_vi_set(0));
#endif
}

WW_FN void ww_vf_scatter(float *p, long long stride, ww_vf v, int n)
{
	for (int i = 0; i < n; i++)
		p[i * stride] = v[i];
}

/* ---- Loads and stores of other types, by value ------------------------------------------------------------------- */

/* bfloat16 is the upper half of a float; half precision goes through the compiler's or the machine's conversion. */
WW_FN float ww_f32_of_bf16(uint16_t h)
{
	union {
		uint32_t u;
		float f;
	} v = { (uint32_t)h << 16 };

	return v.f;
}
WW_FN uint16_t ww_bf16_of_f32(float f)
{
	union {
		float f;
		uint32_t u;
	} v = { f };

	if (f != f)
		return 0x7fc0;
	return (uint16_t)((v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16);
}
#if defined(__F16C__)
WW_FN float ww_f32_of_f16(uint16_t h) { return _cvtsh_ss(h); }
WW_FN uint16_t ww_f16_of_f32(float f) { return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
#else
WW_FN float ww_f32_of_f16(uint16_t h)
{
	union {
		uint32_t u;
		float f;
	} v, scale = { 0x77800000u }; /* 2^112 */
	uint32_t e = (h >> 10) & 31u;

	v.u = (uint32_t)(h & 0x7fffu) << 13;
	if (e == 31)
		v.u |= 0x7f800000u;
	else
		v.f *= scale.f;
	v.u |= (uint32_t)(h & 0x8000u) << 16;
	return v.f;
}
WW_FN uint16_t ww_f16_of_f32(float f)
{
	union {
		float f;
		uint32_t u;
	} v = { f }, magic;
	uint32_t sign = (v.u >> 16) & 0x8000u, a = v.u & 0x7fffffffu;

	if (a > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u);
	if (a >= 0x47800000u) /* 65536 and up */
		return (uint16_t)(sign | 0x7c00u);
	if (a < 0x38800000u) { /* result is denormal: let the adder round */
		v.u = a;
		magic.u = 0x3f000000u; /* 0.5: its last place is 2^-24 */
		v.f += magic.f;
		return (uint16_t)(sign | (v.u - magic.u));
	}
	return (uint16_t)(sign | ((a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13));
}
#endif

/* ww_vf_load_T(p, n) and ww_vf_store_T(p, v, n) for T = bf16, f16 (as uint16_t), f64, i64, i32, i16, i8, u8 (bool too).
 * Integers are rounded towards zero on store.  The plain loops vectorise where the machine has the conversion. */
#define WW_VF_CONVERT(T, ctype, get, put) \
	WW_FN ww_vf ww_vf_load_##T(const ctype *p, int n) \
	{ \
		float t[WW_VL] __attribute__((aligned(64))); \
		if (n >= WW_VL) { \
			for (int i = 0; i < WW_VL; i++) \
				t[i] = get(p[i]); \
		} else { \
			for (int i = 0; i < WW_VL; i++) \
				t[i] = i < n ? get(p[i]) : 0.0f; \
		} \
		return *(const ww_vfu *)t; \
	} \
	WW_FN void ww_vf_store_##T(ctype *p, ww_vf v, int n) \
	{ \
		float t[WW_VL] __attribute__((aligned(64))); \
		*(ww_vfu *)t = v; \
		if (n >= WW_VL) { \
			for (int i = 0; i < WW_VL; i++) \
				p[i] = put(t[i]); \
		} else { \
			for (int i = 0; i < n; i++) \
				p[i] = put(t[i]); \
		} \
	}
#if defined(WW_AVX512)
/* WW_VL numbers of 16 bits.  The compiler finds neither the masked moves of 16 bits nor, behind the branches, the
 * conversions. */
typedef __m256i ww_vh;
WW_FN ww_vh ww_load_16bit(const uint16_t *p, int n)
{
	return n >= WW_VL ? _mm256_loadu_si256((const void *)p) : _mm256_maskz_loadu_epi16(ww_vm_first(n), p);
}
WW_FN void ww_store_16bit(uint16_t *p, ww_vh h, int n)
{
	if (n >= WW_VL)
		_mm256_storeu_si256((void *)p, h);
	else
		_mm256_mask_storeu_epi16(p, ww_vm_first(n), h);
}
WW_FN ww_vh ww_load_16bit_where(const uint16_t *p, ww_vm m) { return _mm256_maskz_loadu_epi16(m, p); }
WW_FN ww_vf ww_vf_of_f16(ww_vh h) { return (ww_vf)_mm512_cvtph_ps(h); }
WW_FN ww_vh ww_f16_of_vf(ww_vf v) { return _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* Lanes as 32 bits, and the lower halves of such. */
WW_FN ww_vi ww_vi_of_vh(ww_vh h) { return (ww_vi)_mm512_cvtepu16_epi32(h); }
WW_FN ww_vh ww_vh_of_vi(ww_vi v) { return _mm512_cvtepi32_epi16((__m512i)v); }
WW_FN ww_vi ww_gather_words(const void *p, ww_vi at, int n)
{
	return (ww_vi)_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), ww_vm_first(n), (__m512i)at, p, 4);
}
#define WW_HAS_VH 1
#elif defined(WW_AVX2) && defined(__F16C__)
typedef __m128i ww_vh;
/* A part by two words that overlap: nothing behind it is read. */
WW_FN ww_vh ww_load_16bit(const uint16_t *p, int n)
{
	uint64_t low = 0, high = 0;
	uint32_t a, b;

	if (n >= WW_VL)
		return _mm_loadu_si128((const void *)p);
	if (n >= 4) {
		__builtin_memcpy(&low, p, 8);
		__builtin_memcpy(&high, p + n - 4, 8);
		high = n > 4 ? high >> 16 * (8 - n) : 0;
	} else if (n >= 2) {
		__builtin_memcpy(&a, p, 4);
		__builtin_memcpy(&b, p + n - 2, 4);
		low = a | (uint64_t)(n > 2 ? b >> 16 : 0) << 32;
	} else if (n == 1) {
		low = p[0];
	}
	return _mm_set_epi64x((long long)high, (long long)low);
}
WW_FN void ww_store_16bit(uint16_t *p, ww_vh h, int n)
{
	uint64_t part = (uint64_t)_mm_cvtsi128_si64(h);

	if (n >= WW_VL) {
		_mm_storeu_si128((void *)p, h);
		return;
	}
	if (n & 4) {
		__builtin_memcpy(p, &part, 8);
		part = (uint64_t)_mm_extract_epi64(h, 1);
		p += 4;
	}
	if (n & 2) {
		__builtin_memcpy(p, &part, 4);
		part >>= 32;
		p += 2;
	}
	if (n & 1)
		p[0] = (uint16_t)part;
}
WW_FN ww_vh ww_load_16bit_where(const uint16_t *p, ww_vm m)
{
	uint16_t h[WW_VL] __attribute__((aligned(16))) = { 0 };

	if (ww_vm_to_bits(m) == 0xff)
		return ww_load_16bit(p, WW_VL);
	for (int i = 0; i < WW_VL; i++)
		if (ww_vm_lane(m, i))
			h[i] = p[i];
	return _mm_load_si128((const void *)h);
}
WW_FN ww_vf ww_vf_of_f16(ww_vh h) { return (ww_vf)_mm256_cvtph_ps(h); }
WW_FN ww_vh ww_f16_of_vf(ww_vf v) { return _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }
WW_FN ww_vi ww_vi_of_vh(ww_vh h) { return (ww_vi)_mm256_cvtepu16_epi32(h); }
WW_FN ww_vh ww_vh_of_vi(ww_vi v)
{
	const __m256i half = (__m256i)(v & ww_vi_set(0xffff));

	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0xd8));
}
WW_FN ww_vi ww_gather_words(const void *p, ww_vi at, int n)
{
	return (ww_vi)_mm256_mask_i32gather_epi32(_mm256_setzero_si256(), p, (__m256i)at, (__m256i)ww_vm_first(n), 4);
}
#define WW_HAS_VH 1
#endif
#if defined(WW_HAS_VH)
WW_FN ww_vf ww_vf_of_bf16(ww_vh h) { return (ww_vf)(ww_vi_of_vh(h) << 16); }
WW_FN ww_vf ww_vf_load_f16(const uint16_t *p, int n) { return ww_vf_of_f16(ww_load_16bit(p, n)); }
WW_FN ww_vf ww_vf_load_bf16(const uint16_t *p, int n) { return ww_vf_of_bf16(ww_load_16bit(p, n)); }
WW_FN ww_vf ww_vf_load_f16_where(const uint16_t *p, ww_vm m) { return ww_vf_of_f16(ww_load_16bit_where(p, m)); }
WW_FN ww_vf ww_vf_load_bf16_where(const uint16_t *p, ww_vm m) { return ww_vf_of_bf16(ww_load_16bit_where(p, m)); }
/* p[at[0]], ... in the lower halves.  The machine gathers 32 bits: the aligned ones that the element lies in. */
WW_FN ww_vi ww_gather_16bit(const uint16_t *p, ww_vi at, int n)
{
	const int odd = (int)((uintptr_t)p / 2 % 2);
	const ww_vi i = at + ww_vi_set(odd);
	const ww_vi words = ww_gather_words((const void *)((uintptr_t)p - 2 * (uintptr_t)odd), i >> 1, n);

#if defined(WW_AVX512)
	return (ww_vi)_mm512_mask_srli_epi32(
		(__m512i)words, _mm512_test_epi32_mask((__m512i)i, _mm512_set1_epi32(1)), (__m512i)words, 16);
#else
	return (ww_vi)((ww_vu)words >> (ww_vu)((i & ww_vi_set(1)) << 4));
#endif
}
WW_FN ww_vf ww_vf_load_at_f16(const uint16_t *p, ww_vi at, int n)
{
	if (ww_vi_is_run(at))
		return ww_vf_load_f16(p + at[0], n);
	return ww_vf_of_f16(ww_vh_of_vi(ww_gather_16bit(p, at, n)));
}
WW_FN ww_vf ww_vf_load_at_bf16(const uint16_t *p, ww_vi at, int n)
{
	if (ww_vi_is_run(at))
		return ww_vf_load_bf16(p + at[0], n);
	return (ww_vf)(ww_gather_16bit(p, at, n) << 16);
}
WW_FN void ww_vf_store_f16(uint16_t *p, ww_vf v, int n) { ww_store_16bit(p, ww_f16_of_vf(v), n); }
/* Rounded to even as ww_bf16_of_f32(); vcvtneps2bf16 would make zeros of denormals. */
WW_FN void ww_vf_store_bf16(uint16_t *p, ww_vf v, int n)
{
	const ww_vu u = (ww_vu)v, r = (u + ((u >> 16) & (ww_vu)ww_vi_set(1)) + (ww_vu)ww_vi_set(0x7fff)) >> 16;

	ww_store_16bit(p, ww_vh_of_vi((ww_vi)ww_vf_sel(ww_vf_isnan(v), (ww_vf)ww_vi_set(0x7fc0), (ww_vf)r)), n);
}
#else
WW_VF_CONVERT(bf16, uint16_t, ww_f32_of_bf16, ww_bf16_of_f32)
WW_VF_CONVERT(f16, uint16_t, ww_f32_of_f16, ww_f16_of_f32)
#define WW_VF_WHERE(T) \
	WW_FN ww_vf ww_vf_load_##T##_where(const uint16_t *p, ww_vm m) \
	{ \
		ww_vf v = ww_vf_zero(); \
		for (int i = 0; i < WW_VL; i++) \
			if (ww_vm_lane(m, i)) \
				v[i] = ww_f32_of_##T(p[i]); \
		return v; \
	} \
	WW_FN ww_vf ww_vf_load_at_##T(const uint16_t *p, ww_vi at, int n) \
	{ \
		ww_vf v = ww_vf_zero(); \
		for (int i = 0; i < n; i++) \
			v[i] = ww_f32_of_##T(p[at[i]]); \
		return v; \
	}
WW_VF_WHERE(f16)
WW_VF_WHERE(bf16)
#undef WW_VF_WHERE
#endif
WW_VF_CONVERT(f64, double, (float), (double))
WW_VF_CONVERT(i64, int64_t, (float), (int64_t))
#if defined(WW_AVX2) && defined(WW_HAS_VH)
/* For vectors of eight the compiler converts number by number. */
WW_FN ww_vf ww_vf_load_i32(const int32_t *p, int n)
{
	return ww_vf_of_vi(ww_vi_bits(ww_vf_load((const float *)(const void *)p, n)));
}
WW_FN void ww_vf_store_i32(int32_t *p, ww_vf v, int n)
{
	ww_vf_store((float *)(void *)p, ww_vf_bits(ww_vi_trunc(v)), n);
}
WW_FN ww_vf ww_vf_load_i16(const int16_t *p, int n)
{
	return ww_vf_of_vi((ww_vi)_mm256_cvtepi16_epi32(ww_load_16bit((const uint16_t *)p, n)));
}
WW_FN void ww_vf_store_i16(int16_t *p, ww_vf v, int n)
{
	ww_store_16bit((uint16_t *)p, ww_vh_of_vi(ww_vi_trunc(v)), n);
}
/* n bytes, by two words that overlap. */
WW_FN __m128i ww_load_8bit(const void *p, int n)
{
	const unsigned char *b = p;
	uint64_t all = 0;
	uint32_t low, high;
	uint16_t a, z;

	if (n >= WW_VL)
		return _mm_loadl_epi64(p);
	if (n >= 4) {
		__builtin_memcpy(&low, b, 4);
		__builtin_memcpy(&high, b + n - 4, 4);
		all = low | (n > 4 ? (uint64_t)(high >> 8 * (8 - n)) << 32 : 0);
	} else if (n >= 2) {
		__builtin_memcpy(&a, b, 2);
		__builtin_memcpy(&z, b + n - 2, 2);
		all = a | (n > 2 ? (uint64_t)(z >> 8) << 16 : 0);
	} else if (n == 1) {
		all = b[0];
	}
	return _mm_cvtsi64_si128((long long)all);
}
WW_FN void ww_store_8bit(void *p, ww_vi v, int n)
{
	const __m128i h = ww_vh_of_vi(v & ww_vi_set(0xff));
	uint64_t all = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(h, h));
	unsigned char *b = p;

	if (n >= WW_VL) {
		__builtin_memcpy(b, &all, 8);
		return;
	}
	for (int i = 0; i < n; i++, all >>= 8)
		b[i] = (unsigned char)all;
}
WW_FN ww_vf ww_vf_load_i8(const int8_t *p, int n)
{
	return ww_vf_of_vi((ww_vi)_mm256_cvtepi8_epi32(ww_load_8bit(p, n)));
}
WW_FN void ww_vf_store_i8(int8_t *p, ww_vf v, int n) { ww_store_8bit(p, ww_vi_trunc(v), n); }
WW_FN ww_vf ww_vf_load_u8(const uint8_t *p, int n)
{
	return ww_vf_of_vi((ww_vi)_mm256_cvtepu8_epi32(ww_load_8bit(p, n)));
}
WW_FN void ww_vf_store_u8(uint8_t *p, ww_vf v, int n) { ww_store_8bit(p, ww_vi_trunc(v), n); }
#else
WW_VF_CONVERT(i32, int32_t, (float), (int32_t))
WW_VF_CONVERT(i16, int16_t, (float), (int16_t))
WW_VF_CONVERT(i8, int8_t, (float), (int8_t))
WW_VF_CONVERT(u8, uint8_t, (float), (uint8_t))
#endif
#undef WW_VF_CONVERT

/* ---- Pairs of bfloat16 ------------------------------------------------------------------------------------------- */

/* A lane holds two bfloat16: its own in the lower half, another one in the upper half. */
#if defined(WW_AVX512) && defined(__AVX512BF16__)
#define WW_DOT_BF16 1 /* the machine multiplies pairs, twice as many numbers at a time as floats */
#else
#define WW_DOT_BF16 0
#endif

/* lo[i] and hi[i]; hi NULL: zeros.  Lanes n and up are 0. */
WW_FN ww_vf ww_vf_pair_bf16(const uint16_t *lo, const uint16_t *hi, int n)
{
#if defined(WW_AVX512)
	const __m512i l = _mm512_cvtepu16_epi32(ww_load_16bit(lo, n));

	return (ww_vf)(hi ? _mm512_or_si512(l, _mm512_slli_epi32(_mm512_cvtepu16_epi32(ww_load_16bit(hi, n)), 16)) : l);
#else
	ww_vi v = ww_vi_set(0);

	for (int i = 0; i < n; i++)
		v[i] = (int32_t)(lo[i] | (hi ? (uint32_t)hi[i] << 16 : 0));
	return ww_vf_bits(v);
#endif
}
/* c + lower(a) * lower(b) + upper(a) * upper(b) in fp32; the machine's own takes denormals for zeros. */
WW_FN ww_vf ww_vf_dot_bf16(ww_vf a, ww_vf b, ww_vf c)
{
#if WW_DOT_BF16
	return (ww_vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#else
	const ww_vi upper = ww_vi_set((int32_t)0xffff0000u), x = ww_vi_bits(a), y = ww_vi_bits(b);

	c += ww_vf_bits(x << 16) * ww_vf_bits(y << 16);
	return c + ww_vf_bits(x & upper) * ww_vf_bits(y & upper);
#endif
}

/* ---- Arithmetic without an operator ------------------------------------------------------------------------------ */

WW_FN ww_vf ww_vf_abs(ww_vf x) { return ww_vf_bits(ww_vi_bits(x) & ww_vi_set(0x7fffffff)); }
/* |x| with the sign of s. */
WW_FN ww_vf ww_vf_copysign(ww_vf x, ww_vf s)
{
	return ww_vf_bits((ww_vi_bits(x) & ww_vi_set(0x7fffffff)) | (ww_vi_bits(s) & ww_vi_set((int32_t)0x80000000u)));
}
/* a * b + c in one rounding where the machine can. */
WW_FN ww_vf ww_vf_fma(ww_vf a, ww_vf b, ww_vf c)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(WW_AVX2)
	return (ww_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
	return a * b + c;
#endif
}
/* a > b ? a : b, so b where either is NaN (the machine's own rule). */
WW_FN ww_vf ww_vf_max(ww_vf a, ww_vf b)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(WW_AVX2)
	return (ww_vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
	return ww_vf_sel(ww_vf_gt(a, b), a, b);
#endif
}
WW_FN ww_vf ww_vf_min(ww_vf a, ww_vf b)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(WW_AVX2)
	return (ww_vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
	return ww_vf_sel(ww_vf_lt(a, b), a, b);
#endif
}
/* As torch.maximum and torch.minimum: NaN where either is NaN. */
WW_FN ww_vf ww_vf_maxnan(ww_vf a, ww_vf b) { return ww_vf_sel(ww_vf_isnan(a), a, ww_vf_max(a, b)); }
WW_FN ww_vf ww_vf_minnan(ww_vf a, ww_vf b) { return ww_vf_sel(ww_vf_isnan(a), a, ww_vf_min(a, b)); }
WW_FN ww_vf ww_vf_sqrt(ww_vf x)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_sqrt_ps((__m512)x);
#elif defined(WW_AVX2)
	return (ww_vf)_mm256_sqrt_ps((__m256)x);
#else
	for (int i = 0; i < WW_VL; i++)
		x[i] = __builtin_sqrtf(x[i]);
	return x;
#endif
}
/* Rounding to integers: to nearest (ties to even), down, up, towards zero. */
#if defined(WW_AVX512)
#define WW_VF_ROUND(name, mode, scalar) \
	WW_FN ww_vf name(ww_vf x) { return (ww_vf)_mm512_roundscale_ps((__m512)x, (mode) | _MM_FROUND_NO_EXC); }
#elif defined(WW_AVX2)
#define WW_VF_ROUND(name, mode, scalar) \
	WW_FN ww_vf name(ww_vf x) { return (ww_vf)_mm256_round_ps((__m256)x, (mode) | _MM_FROUND_NO_EXC); }
#else
#define WW_VF_ROUND(name, mode, scalar) \
	WW_FN ww_vf name(ww_vf x) \
	{ \
		for (int i = 0; i < WW_VL; i++) \
			x[i] = scalar(x[i]); \
		return x; \
	}
#endif
WW_VF_ROUND(ww_vf_rint, _MM_FROUND_TO_NEAREST_INT, __builtin_rintf)
WW_VF_ROUND(ww_vf_floor, _MM_FROUND_TO_NEG_INF, __builtin_floorf)
WW_VF_ROUND(ww_vf_ceil, _MM_FROUND_TO_POS_INF, __builtin_ceilf)
WW_VF_ROUND(ww_vf_trunc, _MM_FROUND_TO_ZERO, __builtin_truncf)
#undef WW_VF_ROUND

/* ---- Across the lanes -------------------------------------------------------------------------------------------- */

WW_FN float ww_vf_sum(ww_vf v)
{
#if defined(WW_AVX512)
	return _mm512_reduce_add_ps((__m512)v);
#elif defined(WW_AVX2)
	__m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
#else
	float s[WW_VL];

	for (int i = 0; i < WW_VL; i++)
		s[i] = v[i];
	for (int w = WW_VL / 2; w > 0; w /= 2)
		for (int i = 0; i < w; i++)
			s[i] += s[i + w];
	return s[0];
#endif
}
/* The same in double precision: for the last step of long sums. */
WW_FN double ww_vf_sum_f64(ww_vf v)
{
	double s = 0;

	for (int i = 0; i < WW_VL; i++)
		s += (double)v[i];
	return s;
}
/* A NaN in any lane gives NaN. */
WW_FN float ww_vf_hmax(ww_vf v)
{
	if (ww_vm_any(ww_vf_isnan(v)))
		return __builtin_nanf("");
#if defined(WW_AVX512)
	return _mm512_reduce_max_ps((__m512)v);
#elif defined(WW_AVX2)
	__m128 m = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));

	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
#else
	float m = v[0];

	for (int i = 1; i < WW_VL; i++)
		m = v[i] > m ? v[i] : m;
	return m;
#endif
}
WW_FN float ww_vf_hmin(ww_vf v) { return -ww_vf_hmax(-v); }
WW_FN float ww_vf_hprod(ww_vf v)
{
	float m = v[0];

	for (int i = 1; i < WW_VL; i++)
		m *= v[i];
	return m;
}

/* The two halves as doubles, and back. */
WW_FN ww_vd ww_vd_lo(ww_vf v)
{
#if defined(WW_AVX512)
	return (ww_vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
#elif defined(WW_AVX2)
	return (ww_vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
#else
	return (ww_vd){ v[0], v[1] };
#endif
}
WW_FN ww_vd ww_vd_hi(ww_vf v)
{
#if defined(WW_AVX512)
	return (ww_vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1));
#elif defined(WW_AVX2)
	return (ww_vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
#else
	return (ww_vd){ v[2], v[3] };
#endif
}
WW_FN ww_vf ww_vf_of_vd(ww_vd lo, ww_vd hi)
{
#if defined(WW_AVX512)
	return (ww_vf)_mm512_insertf32x8(
		_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)lo)), _mm512_cvtpd_ps((__m512d)hi), 1);
#elif defined(WW_AVX2)
	return (ww_vf)_mm256_insertf128_ps(
		_mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)lo)), _mm256_cvtpd_ps((__m256d)hi), 1);
#else
	return (ww_vf){ (float)lo[0], (float)lo[1], (float)hi[0], (float)hi[1] };
#endif
}
WW_FN ww_vd ww_vd_trunc(ww_vd x)
{
#if defined(WW_AVX512)
	return (ww_vd)_mm512_roundscale_pd((__m512d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#elif defined(WW_AVX2)
	return (ww_vd)_mm256_round_pd((__m256d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#else
	return (ww_vd){ __builtin_trunc(x[0]), __builtin_trunc(x[1]) };
#endif
}

/* v, one, two or four lanes up; the lanes below are those of `a`. */
#if WW_VL == 8
#define WW_LANES_UP1(a, v) __builtin_shufflevector(a, v, 0, 8, 9, 10, 11, 12, 13, 14)
#define WW_LANES_UP2(a, v) __builtin_shufflevector(a, v, 0, 1, 8, 9, 10, 11, 12, 13)
#define WW_LANES_UP4(a, v) __builtin_shufflevector(a, v, 0, 1, 2, 3, 8, 9, 10, 11)
#elif WW_VL == 4
#define WW_LANES_UP1(a, v) __builtin_shufflevector(a, v, 0, 4, 5, 6)
#define WW_LANES_UP2(a, v) __builtin_shufflevector(a, v, 0, 1, 4, 5)
#endif

/* Inclusive prefix sums within the vector. */
WW_FN ww_vf ww_vf_prefix_sum(ww_vf v)
{
#if defined(WW_AVX512)
	const __m512i z = _mm512_setzero_si512();

	v += (ww_vf)_mm512_alignr_epi32((__m512i)v, z, 15);
	v += (ww_vf)_mm512_alignr_epi32((__m512i)v, z, 14);
	v += (ww_vf)_mm512_alignr_epi32((__m512i)v, z, 12);
	v += (ww_vf)_mm512_alignr_epi32((__m512i)v, z, 8);
	return v;
#else
	v += WW_LANES_UP1(ww_vf_zero(), v);
	v += WW_LANES_UP2(ww_vf_zero(), v);
#if WW_VL == 8
	v += WW_LANES_UP4(ww_vf_zero(), v);
#endif
	return v;
#endif
}
/* The same with products. */
WW_FN ww_vf ww_vf_prefix_prod(ww_vf v)
{
#if defined(WW_AVX512)
	const __m512i one = (__m512i)ww_vf_set(1.0f);

	v *= (ww_vf)_mm512_alignr_epi32((__m512i)v, one, 15);
	v *= (ww_vf)_mm512_alignr_epi32((__m512i)v, one, 14);
	v *= (ww_vf)_mm512_alignr_epi32((__m512i)v, one, 12);
	v *= (ww_vf)_mm512_alignr_epi32((__m512i)v, one, 8);
#else
	v *= WW_LANES_UP1(ww_vf_set(1.0f), v);
	v *= WW_LANES_UP2(ww_vf_set(1.0f), v);
#if WW_VL == 8
	v *= WW_LANES_UP4(ww_vf_set(1.0f), v);
#endif
#endif
	return v;
}

#endif
