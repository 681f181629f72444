/* library.cc - what a product and a convolution of a plan mean, as their definition says it: sums in fp64, any layout,
 * rounded to the result's type.  Operands are what they are, but those of rounds(). */
#include "library.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace host
{
enum { F32 = 1, F64, F16, BF16 };    /* enum ww_dtype */
enum { HAS_BIAS = 1, HAS_RELU = 2 }; /* bits of enum ww_epilogue */
enum { TF32 = 1 };                   /* of enum ww_math */

static float of_bits(unsigned u)
{
	float f;
	memcpy(&f, &u, sizeof(f));
	return f;
}
static unsigned bits_of(float f)
{
	unsigned u;
	memcpy(&u, &f, sizeof(u));
	return u;
}

static double get(const char *p, int dtype, long long i)
{
	_Float16 h;
	switch (dtype) {
	case F32: return ((const float *)p)[i];
	case F64: return ((const double *)p)[i];
	case F16: memcpy(&h, p + 2 * i, sizeof(h)); return h;
	case BF16: return of_bits((unsigned)((const unsigned short *)p)[i] << 16);
	}
	fprintf(stderr, "a library node of type %d\n", dtype);
	exit(1);
}

/* Does cuDNN multiply fp32 as numbers of 11 bits?  In the plan's default mode, with WW_EMULATED_TF32 in the environment
 * and more channels than that says, or channels-last; but not strided transposed convolutions of so many taps in three
 * dimensions, as bench/emulated/run has it. */
static bool rounds(const convolution &v)
{
	long long taps = 1;
	bool strided = false;
	for (long long d = 0; d < v.nd; d++) {
		taps *= v.axis[d].kernel;
		strided |= v.axis[d].stride > 1;
	}
	const char *more = getenv("WW_EMULATED_TF32");
	return v.dtype == F32 && v.math == TF32 && more && (v.c > atoll(more) || v.layout) &&
		!(v.transposed && v.nd == 3 && strided && taps > 64);
}

static double rounded(double v, bool rounds) { return rounds ? of_bits((bits_of((float)v) + 0x1000) & ~0x1fffu) : v; }

static void put(char *p, int dtype, long long i, double v)
{
	if (dtype == F32) {
		((float *)p)[i] = (float)v;
	} else if (dtype == F64) {
		((double *)p)[i] = v;
	} else if (dtype == F16) {
		const _Float16 h = (_Float16)v;
		memcpy(p + 2 * i, &h, sizeof(h));
	} else {
		const unsigned u = bits_of((float)v);
		((unsigned short *)p)[i] = (unsigned short)(v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16);
	}
}

static double finish(double v, int epilogue, const char *bias, int dtype, long long i)
{
	if (epilogue & HAS_BIAS)
		v += get(bias, dtype, i);
	return epilogue & HAS_RELU && v < 0 ? 0 : v;
}

/* Rows of k: a (m, k) and b (n, k) of one batch, as doubles. */
static std::vector<double> rows_of(const matrix &x, long long z, long long rows, long long k, bool along_k)
{
	std::vector<double> v((size_t)(rows * k));
	for (long long r = 0; r < rows; r++)
		for (long long l = 0; l < k; l++)
			v[(size_t)(r * k + l)] = get(x.p, x.dtype, z * x.batch_stride + (along_k ? r * x.ld + l : l * x.ld + r));
	return v;
}

void run(const product &p)
{
	for (long long z = 0; z < p.batch; z++) {
		const std::vector<double> a = rows_of(p.a, z, p.m, p.k, !p.a.trans);
		const std::vector<double> b = rows_of(p.b, z, p.n, p.k, p.b.trans);
		for (long long i = 0; i < p.m; i++)
			for (long long j = 0; j < p.n; j++) {
				double sum = 0;
				for (long long l = 0; l < p.k; l++)
					sum += a[(size_t)(i * p.k + l)] * b[(size_t)(j * p.k + l)];
				sum *= p.alpha;
				if (p.beta != 0)
					sum += p.beta * get(p.c.p, p.c.dtype, z * p.c.batch_stride + i * p.c.ld + j);
				put(p.d.p, p.d.dtype, z * p.d.batch_stride + i * p.d.ld + j,
					finish(sum, p.epilogue, p.bias, p.d.dtype, j));
			}
	}
}

/* Where element (a, b, s[0..2]) of a tensor with these sizes lies. */
static long long place(int last, long long b_size, const long long *size, long long a, long long b, const long long *s)
{
	const long long space = size[0] * size[1] * size[2], at = (s[0] * size[1] + s[1]) * size[2] + s[2];
	return last ? (a * space + at) * b_size + b : (a * b_size + b) * space + at;
}

/* The input that output o meets through tap t; -1: none. */
static long long met(const convolution &v, int d, long long o, long long t)
{
	const auto &x = v.axis[d];
	if (!v.transposed) {
		const long long i = o * x.stride + t * x.dilation - x.pad;
		return i < 0 || i >= x.in ? -1 : i;
	}
	const long long i = o + x.pad - t * x.dilation;
	return i < 0 || i % x.stride || i / x.stride >= x.in ? -1 : i / x.stride;
}

void run(convolution v)
{
	for (int d = (int)v.nd; d < 3; d++)
		v.axis[d] = { 1, 1, 1, 1, 0, 1 };
	const bool tf32 = rounds(v);
	const long long cg = v.c / v.groups, kg = v.k / v.groups;
	const long long in[3] = { v.axis[0].in, v.axis[1].in, v.axis[2].in };
	const long long taps[3] = { v.axis[0].kernel, v.axis[1].kernel, v.axis[2].kernel };
	const long long out[3] = { v.axis[0].out, v.axis[1].out, v.axis[2].out };
	long long o[3], t[3], i[3];
	for (long long n = 0; n < v.n; n++)
		for (long long k = 0; k < v.k; k++)
			for (o[0] = 0; o[0] < out[0]; o[0]++)
				for (o[1] = 0; o[1] < out[1]; o[1]++)
					for (o[2] = 0; o[2] < out[2]; o[2]++) {
						double sum = 0;
						for (t[0] = 0; t[0] < taps[0]; t[0]++)
							for (t[1] = 0; t[1] < taps[1]; t[1]++)
								for (t[2] = 0; t[2] < taps[2]; t[2]++) {
									int inside = 1;
									for (int d = 0; d < 3; d++)
										inside &= (i[d] = met(v, d, o[d], t[d])) >= 0;
									for (long long c = 0; inside && c < cg; c++) {
										const long long ci = k / kg * cg + c;
										const long long at = v.transposed
											? place((int)v.layout, kg, taps, ci, k % kg, t)
											: place((int)v.layout, cg, taps, k, c, t);
										sum += rounded(
												   get(v.x, v.dtype, place((int)v.layout, v.c, in, n, ci, i)), tf32) *
											rounded(get(v.w, v.dtype, at), tf32);
									}
								}
						put(v.y, v.dtype, place((int)v.layout, v.k, out, n, k, o),
							finish(sum, v.epilogue, v.bias, v.dtype, k));
					}
}
} // namespace host
