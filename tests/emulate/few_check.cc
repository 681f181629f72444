/* few_check.cc - conv_few on the cpu: up to 32 channels of small images, odd sizes, strides, paddings and dilations,
 * tiles of whole rows and of strips, fp32 and 16 bits, against sums in double.  Prints how many are wrong. */
#include "device.h"
#include <ww/conv.cuh>

#include "conv_ends.h"

#include <cstdio>
#include <vector>

/* R x T elements; TW 0: whole rows. */
template <int N, int C, int K, int H, int W, int R, int T, int STRIDE, int PAD, int DIL, int TW, int TH, int FILTERS>
struct shape {
	enum {
		n = N,
		c = C,
		k = K,
		d = 1,
		h = H,
		w = W,
		t = 1,
		r = R,
		s = T,
		od = 1,
		oh = (H + 2 * PAD - DIL * (R - 1) - 1) / STRIDE + 1,
		ow = (W + 2 * PAD - DIL * (T - 1) - 1) / STRIDE + 1,
		sd = 1,
		sh = STRIDE,
		sw = STRIDE,
		pd = 0,
		ph = PAD,
		pw = PAD,
		dd = 1,
		dh = DIL,
		dw = DIL,
		tw = TW ? TW : (int)ow,
		th = TH,
		filters = FILTERS
	};
};

/* D slices, convolved by T slices of taps with this stride, padding and dilation. */
template <class S, int D, int T, int STRIDE, int PAD, int DIL> struct deep : S {
	enum { d = D, t = T, od = (D + 2 * PAD - DIL * (T - 1) - 1) / STRIDE + 1, sd = STRIDE, pd = PAD, dd = DIL };
};

static float rounded(float v, float &to) { return to = v; }
static float rounded(float v, __half &to) { return __half2float(to = __float2half_rn(v)); }
static float rounded(float v, __nv_bfloat16 &to) { return __bfloat162float(to = __float2bfloat16_rn(v)); }

template <class S, class E> static void convolve(int blocks, const float *x, const float *w, const E &e)
{
	const int taps = S::t * S::r * S::s;
	std::vector<__half> ws(S::k * taps * 64);
	std::vector<unsigned> aw(S::k);

	host::launch(S::k, 1, 1, 256, 1,
		[&] { ww::conv_pack_w<1>(w, S::c * taps, taps, S::c, taps, S::s, 0, 1, 1, ws.data(), aw.data()); });
	host::launch(
		blocks, (S::k + S::filters - 1) / S::filters, 1, 256, 1, [&] { ww::conv_few<S>(x, ws.data(), aw.data(), e); });
}

template <class S, class E, class T> static void convolve(int blocks, const T *x, const T *w, const E &e)
{
	host::launch(blocks, (S::k + S::filters - 1) / S::filters, 1, 256, 1, [&] { ww::conv_few<S>(x, w, e); });
}

/* Images whose magnitudes are 2^-20, 1, 2^20, ... of each other (16 bits: 2^-4, 1, 2^4): each has to be right to fp32's
 * own error. */
template <class S, class E, class T = float> static int wrong(int blocks)
{
	const int taps = S::t * S::r * S::s, hw = S::d * S::h * S::w, plane = S::oh * S::ow, pixels = S::od * plane;
	const int apart = sizeof(T) == 4 ? 20 : 4;
	std::vector<float> x(S::n * S::c * hw), w(S::k * S::c * taps), bias(S::k), y(S::n * S::k * pixels, NAN);
	std::vector<T> image(x.size()), filters(w.size());
	std::vector<unsigned char> stored(y.size());
	int bad = 0;

	for (int i = 0; i < (int)x.size(); i++)
		x[i] = rounded(draw() * ldexpf(1.f, apart * (i / (S::c * hw)) - apart), image[i]);
	for (int i = 0; i < (int)w.size(); i++)
		w[i] = rounded(draw() * ldexpf(1.f, i / (S::c * taps) % 5 * 3 - 6), filters[i]);
	E e;
	(out &)e = { y.data(), bias.data(), stored.data(), S::k, pixels };
	convolve<S>(blocks, image.data(), filters.data(), e);
	for (int n = 0; n < S::n; n++)
		for (int k = 0; k < S::k; k++)
			for (int p = 0; p < pixels; p++) {
				const int at = (n * S::k + k) * pixels + p;
				double sum = 0, size = 0;
				for (int c = 0; c < S::c; c++)
					for (int tap = 0; tap < taps; tap++) {
						const int z = p / plane * S::sd + tap / (S::r * S::s) * S::dd - S::pd,
								  h = p % plane / S::ow * S::sh + tap / S::s % S::r * S::dh - S::ph,
								  q = p % S::ow * S::sw + tap % S::s * S::dw - S::pw;
						if (z >= 0 && z < S::d && h >= 0 && h < S::h && q >= 0 && q < S::w) {
							const double one = (double)x[(((n * S::c + c) * S::d + z) * S::h + h) * S::w + q] *
								w[(k * S::c + c) * taps + tap];
							sum += one, size += fabs(one);
						}
					}
				bad += stored[at] != 1 || !(fabs(sum - y[at]) <= 2e-6 * size);
			}
	if (bad)
		fprintf(stderr,
			"%d x %d x %d x %d x %d to %d, %d x %d x %d, stride %d, pad %d, dilation %d, tiles of %d by %d, "
			"%d filters: %d wrong\n",
			S::n, S::c, S::d, S::h, S::w, S::k, S::t, S::r, S::s, S::sh, S::ph, S::dh, S::tw, S::th, S::filters, bad);
	return bad > 0;
}

int main()
{
	printf("%d\n",
		/* rows counted through, of 4, 2 and 1 pixels at once; a tile beyond the image's end */
		wrong<shape<3, 8, 20, 9, 14, 3, 3, 1, 0, 1, 0, 4, 32>, out>(2) +
			wrong<shape<2, 8, 16, 12, 14, 3, 3, 1, 0, 1, 0, 3, 16>, out_ahead>(3) +
			wrong<shape<1, 5, 24, 7, 17, 3, 3, 1, 1, 1, 0, 3, 32>, out>(1) +
			wrong<shape<1, 16, 64, 5, 20, 3, 3, 1, 1, 1, 0, 2, 64>, out_ahead>(2) +
			wrong<shape<2, 1, 7, 11, 9, 5, 3, 2, 2, 1, 0, 2, 16>, out>(2) +
			/* strips; strides and dilations; several tiles of filters; long sums */
			wrong<shape<1, 3, 40, 6, 70, 3, 3, 1, 1, 2, 32, 3, 16>, out_ahead>(2) +
			wrong<shape<1, 13, 18, 4, 66, 2, 3, 1, 1, 1, 64, 2, 32>, out>(2) +
			wrong<shape<1, 16, 33, 9, 45, 3, 3, 2, 1, 2, 0, 2, 48>, out_ahead>(1) +
			wrong<shape<1, 3, 20, 31, 33, 11, 11, 4, 2, 1, 0, 2, 32>, out_ahead>(1) +
			wrong<shape<1, 16, 20, 17, 40, 3, 3, 4, 1, 1, 0, 2, 32>, out>(1) + /* pixels 32 banks apart */
			wrong<shape<2, 4, 9, 1, 130, 1, 9, 3, 0, 3, 32, 1, 16>, out>(2) +
			/* three dimensions: slices beyond the image, apart from each other, and of a stride */
			wrong<deep<shape<2, 3, 20, 7, 14, 3, 3, 1, 0, 1, 0, 4, 32>, 5, 3, 1, 1, 1>, out>(2) +
			wrong<deep<shape<1, 8, 24, 6, 17, 3, 2, 1, 1, 1, 0, 3, 16>, 7, 2, 2, 1, 2>, out_ahead>(3) +
			wrong<deep<shape<1, 3, 18, 8, 70, 5, 7, 1, 0, 1, 32, 2, 32>, 4, 3, 1, 0, 1>, out>(2) +
			/* more channels than 16 */
			wrong<shape<2, 32, 20, 9, 14, 3, 3, 2, 1, 1, 0, 2, 32>, out>(2) +
			wrong<shape<1, 27, 17, 5, 12, 3, 3, 1, 1, 1, 0, 3, 16>, out_ahead>(2) +
			/* 16 bits */
			wrong<shape<3, 16, 16, 1, 163, 1, 4, 1, 1, 1, 128, 1, 16>, out, __half>(2) +
			wrong<shape<2, 3, 40, 9, 15, 5, 7, 1, 3, 1, 0, 3, 48>, out_ahead, __nv_bfloat16>(2) +
			wrong<shape<1, 13, 33, 9, 45, 3, 3, 2, 1, 2, 0, 2, 48>, out, __half>(1) +
			wrong<shape<1, 32, 70, 6, 36, 3, 3, 1, 1, 1, 32, 2, 48>, out, __nv_bfloat16>(2) +
			wrong<deep<shape<1, 8, 24, 6, 17, 3, 2, 1, 1, 1, 0, 3, 16>, 7, 2, 2, 1, 2>, out_ahead, __half>(3));
	return 0;
}
