/* conv_host.h - what a convolution node means, as its definition says it: sums in fp64, any layout. */
#pragma once

#include <cstring>

namespace host
{
struct conv {
	long long nd, transposed, layout, groups, n, c, k;
	struct {
		long long in, kernel, out, stride, pad, dilation;
	} axis[3]; /* those beyond nd have size 1 */
};

/* Where element (a, b, s[0..2]) of a tensor with these sizes lies. */
inline long long place(int last, long long b_size, const long long *size, long long a, long long b, const long long *s)
{
	const long long space = size[0] * size[1] * size[2], at = (s[0] * size[1] + s[1]) * size[2] + s[2];
	return last ? (a * space + at) * b_size + b : (a * b_size + b) * space + at;
}

/* The input that output o meets through tap t; -1: none. */
inline long long met(const conv &v, int d, long long o, long long t)
{
	const auto &x = v.axis[d];
	if (!v.transposed) {
		const long long i = o * x.stride + t * x.dilation - x.pad;
		return i < 0 || i >= x.in ? -1 : i;
	}
	const long long i = o + x.pad - t * x.dilation;
	return i < 0 || i % x.stride || i / x.stride >= x.in ? -1 : i / x.stride;
}

inline void run(conv v, const float *x, const float *w, float *y)
{
	for (int d = (int)v.nd; d < 3; d++)
		v.axis[d] = { 1, 1, 1, 1, 0, 1 };
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
										const float b = v.transposed ? w[place(v.layout, kg, taps, ci, k % kg, t)]
																	 : w[place(v.layout, cg, taps, k, c, t)];
										sum += (double)x[place(v.layout, v.c, in, n, ci, i)] * b;
									}
								}
						y[place(v.layout, v.k, out, n, k, o)] = (float)sum;
					}
}
} // namespace host
