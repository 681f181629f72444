/* library.h - library nodes of a plan on the cpu. */
#pragma once

namespace host
{
/* struct ww_mat, its buffer and offset as an address. */
struct matrix {
	char *p;
	int dtype, trans;
	long long ld, batch_stride;
};
struct product {
	long long m, n, k, batch;
	matrix a, b, c, d;
	double alpha, beta;
	int math, epilogue;
	const char *bias;
};
void run(const product &);

/* struct ww_conv; axes beyond nd are not looked at. */
struct convolution {
	long long nd, transposed, layout, groups, n, c, k;
	struct {
		long long in, kernel, out, stride, pad, dilation;
	} axis[3];
	const char *x, *w;
	char *y;
	int dtype, math, epilogue;
	const char *bias;
};
void run(convolution);
} // namespace host
