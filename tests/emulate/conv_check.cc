/* conv_check.cc - conv_tc on the cpu: small convolutions, forward and transposed ones, with results stored from
 * registers, staged in shared memory and by pairs that take turns, against sums in double of operands of 11 bits, and
 * exact ones against sums of the operands as they are.  Prints how many are wrong. */
#include "device.h"
#include <ww/conv.cuh>

#include "conv_ends.h"

#include <cstdio>
#include <vector>

/* R x R elements, the image padded to keep its size; tiles of TW x TH pixels of as many images as fill BN. */
template <int N, int C, int K, int H, int W, int R, int STRIDE, int BN, int TW, int TH, int STAGED, int PAIRS = 1,
	int FILTERS = 128, int EXACT = 0>
struct shape {
	enum {
		n = N,
		c = C,
		k = K,
		groups = 1,
		transposed = 0,
		d = 1,
		h = H,
		w = W,
		t = 1,
		r = R,
		s = R,
		od = 1,
		oh = (H - 1) / STRIDE + 1,
		ow = (W - 1) / STRIDE + 1,
		sd = 1,
		sh = STRIDE,
		sw = STRIDE,
		pd = 0,
		ph = R / 2,
		pw = R / 2,
		dd = 1,
		dh = 1,
		dw = 1,
		cb = EXACT ? (C + 31) / 32 : (C + 63) / 64,
		bn = BN,
		tw = TW,
		th = TH,
		tn = BN / TW / TH,
		stages = 2,
		pair = 0,
		exact = EXACT,
		staged = STAGED,
		pairs = PAIRS,
		filters = FILTERS,
		kt = 1,
		pt = 1
	};
};

static float rounded(float v, unsigned top)
{
	return __half2float(__float2half_rn(v * ww::scale_of(top))) * ww::unscale(top);
}

/* Transposed: R x Q elements, strides SH and SW, padding PH and PW. */
template <int N, int C, int K, int H, int W, int R, int Q, int SH, int SW, int PH, int PW, int DW, int OPAD, int BN,
	int TW, int TH, int STAGED, int PAIRS = 1, int FILTERS = 128>
struct up : shape<N, C, K, H, W, R, 1, BN, TW, TH, STAGED, PAIRS, FILTERS> {
	enum {
		transposed = 1,
		s = Q,
		sh = SH,
		sw = SW,
		ph = PH,
		pw = PW,
		dw = DW,
		oh = (H - 1) * SH + R - 2 * PH,
		ow = (W - 1) * SW + (Q - 1) * DW + 1 - 2 * PW + OPAD
	};
};

/* D slices, with T slices of taps, this stride, padding and dilation along the depth. */
template <class S, int D, int T, int STRIDE, int PAD, int DIL> struct deep : S {
	enum {
		d = D,
		t = T,
		sd = STRIDE,
		pd = PAD,
		dd = DIL,
		od = S::transposed ? (D - 1) * STRIDE + (T - 1) * DIL + 1 - 2 * PAD
						   : (D + 2 * PAD - DIL * (T - 1) - 1) / STRIDE + 1
	};
};

/* S with the zeros in front of its filters that a plan gives it. */
template <class S, int AHEAD> struct widened : S {
	enum { s = S::s + AHEAD, pw = S::pw + AHEAD };
};
template <class S> struct padded {
	enum { beside = S::transposed && S::staged ? (int)S::sw : 1 };
	typedef widened<S, S::ow % 2 ? 0 : (beside - S::pw % beside) % beside> type;
};

/* The element of the image, along one dimension, that tap `tap` of place `o` meets, or -1. */
static int met(int transposed, int o, int tap, int stride, int pad, int dil, int size)
{
	const int t = transposed ? o + pad - tap * dil : o * stride + tap * dil - pad;
	const int at = !transposed ? t : t % stride ? -1 : t / stride;

	return t >= 0 && at < size ? at : -1;
}

template <class S, class E> static int wrong()
{
	const int taps = S::t * S::r * S::s, cp = S::cb * 64, hw = S::d * S::h * S::w, plane = S::oh * S::ow,
			  pixels = S::od * plane, is_deep = S::d > 1 || S::t > 1 || S::od > 1;
	typedef typename padded<S>::type P;
	const int beside = S::transposed && S::staged ? S::sw : 1, ahead = P::s - S::s, each = (P::s + beside - 1) / beside;
	const int columns = S::t * S::r * each * cp, rows = S::k * beside, bh = S::transposed ? 1 : S::sh,
			  bw = S::transposed ? 1 : S::sw;
	const long long sk = S::transposed ? taps : S::c * taps, sc = S::transposed ? S::k * taps : taps;
	std::vector<float> x(S::n * S::c * hw), w(S::k * S::c * taps), bias(S::k), y(S::n * S::k * pixels, NAN);
	std::vector<__half> xs(S::n * hw * cp), ws(rows * columns);
	std::vector<unsigned> ax(S::n), aw(S::k);
	std::vector<unsigned char> stored(y.size());
	int bad = 0;

	for (int i = 0; i < (int)x.size(); i++)
		x[i] = draw() * (float)(1 + i / (S::c * hw));
	for (float &v : w)
		v = draw();
	for (float &v : bias)
		v = draw();
	host::launch(
		1, S::n, 1, 256, 1, [&] { ww::absmax_all<0>(x.data(), S::c * hw, 0, 1, S::c * hw, 1, S::c * hw, ax.data()); });
	host::launch((hw + 63) / 64, (S::c + 63) / 64, S::n, 256, 1,
		[&] { ww::conv_pack_x<S::exact>(x.data(), S::c, hw, S::cb, xs.data(), ax.data()); });
	host::launch(rows, 1, 1, 256, 1, [&] {
		ww::conv_pack_w<S::exact>(w.data(), sk, sc, S::c, taps, S::s, ahead, beside, S::cb, ws.data(), aw.data());
	});
	const ww_tensor_map ta = { (char *)ws.data(), 0, 2, 3, 3, 0, { columns, rows, 1 },
		{ 2, 2 * columns, 2 * columns * rows }, { 64, S::filters, 1 }, { 1, 1, 1 } };
	ww_tensor_map tb = { (char *)xs.data(), 0, 2, 4 + is_deep, 3, 0, { cp, S::w, S::h, S::d, S::n },
		{ 2, 2 * cp, 2 * cp * S::w, 2 * cp * S::h * S::w, 2 * cp * hw }, { 64, S::tw * bw, S::th * bh, 1, S::tn },
		{ 1, bw, bh, 1, 1 } };
	if (!is_deep)
		tb.size[3] = S::n, tb.box[3] = S::tn;
	E e;
	(out &)e = { y.data(), bias.data(), stored.data(), S::k, pixels };
	const ww::conv_job<P, E> job = { &ta, &tb, aw.data(), ax.data(), e, 0 };
	host::launch(job.tiles() > 1 ? 2 : 1, 1, 1, 128 + 256 * S::pairs, 1,
		[&] { ww::conv_tc<P>(ta, tb, aw.data(), ax.data(), e); });
	for (int i = 0; !S::exact && i < (int)x.size(); i++)
		x[i] = rounded(x[i], ax[i / (S::c * hw)]);
	for (int i = 0; !S::exact && i < (int)w.size(); i++)
		w[i] = rounded(w[i], aw[S::transposed ? i / taps % S::k : i / (S::c * taps)]);
	for (int n = 0; n < S::n; n++)
		for (int k = 0; k < S::k; k++)
			for (int p = 0; p < pixels; p++) {
				const int at = (n * S::k + k) * pixels + p;
				double sum = bias[k];
				for (int c = 0; c < S::c; c++)
					for (int tap = 0; tap < taps; tap++) {
						const int z = met(S::transposed, p / plane, tap / (S::r * S::s), S::sd, S::pd, S::dd, S::d),
								  h = met(
									  S::transposed, p % plane / S::ow, tap / S::s % S::r, S::sh, S::ph, S::dh, S::h),
								  q = met(S::transposed, p % S::ow, tap % S::s, S::sw, S::pw, S::dw, S::w);
						if (z >= 0 && h >= 0 && q >= 0)
							sum += (double)x[(((n * S::c + c) * S::d + z) * S::h + h) * S::w + q] *
								w[k * sk + c * sc + tap];
					}
				bad += stored[at] != 1 || !(fabs(sum - y[at]) < 1e-4);
			}
	if (bad)
		fprintf(stderr,
			"%d x %d x %d x %d x %d to %d, %d x %d x %d, stride %d%s, tiles of %d by %d of %d, staged %d, pairs %d, %d filters: %d wrong\n",
			S::n, S::c, S::d, S::h, S::w, S::k, S::t, S::r, S::s, S::sw, S::transposed ? ", transposed" : "", S::tw,
			S::th, S::bn, S::staged, S::pairs, S::filters, bad);
	return bad > 0;
}

int main()
{
	printf("%d\n",
		/* rows of 4, 2 and 1 elements a lane; whole rows of the image, parts of them, several images */
		wrong<shape<1, 8, 20, 6, 28, 1, 1, 256, 32, 8, 1>, out_ahead>() +
			wrong<shape<3, 8, 72, 5, 14, 1, 1, 256, 16, 8, 1>, out>() +
			wrong<shape<2, 8, 12, 3, 21, 3, 1, 128, 8, 4, 1>, out>() +
			wrong<shape<1, 8, 9, 2, 130, 1, 1, 256, 128, 2, 1>, out_ahead>() +
			wrong<shape<2, 70, 130, 9, 12, 1, 2, 128, 16, 8, 1>, out>() +
			wrong<shape<2, 8, 20, 5, 14, 1, 1, 256, 16, 8, 0>, out>() +
			/* whole rows stored from registers; pairs by turns, of one tile and of more than they are */
			wrong<shape<1, 8, 9, 3, 130, 3, 1, 256, 256, 1, 0>, out>() +
			wrong<shape<1, 8, 9, 2, 60, 1, 1, 128, 64, 2, 1, 2>, out_ahead>() +
			wrong<shape<3, 70, 130, 9, 14, 3, 1, 128, 16, 8, 1, 2>, out>() +
			wrong<shape<5, 8, 72, 5, 21, 1, 1, 128, 8, 1, 1, 2>, out_ahead>() +
			/* 64 filters a tile, each warpgroup with half of the pixels */
			wrong<shape<2, 70, 70, 5, 14, 3, 1, 256, 16, 8, 0, 1, 64>, out>() +
			wrong<shape<1, 8, 40, 3, 60, 3, 1, 256, 64, 4, 1, 1, 64>, out_ahead>() +
			wrong<shape<5, 8, 72, 5, 21, 1, 1, 256, 8, 1, 1, 2, 64>, out_ahead>() +
			wrong<shape<3, 70, 72, 9, 13, 3, 1, 128, 8, 8, 0, 1, 64>, out>() +
			/* exact, of both tiles, from registers and staged */
			wrong<shape<2, 40, 130, 5, 14, 3, 1, 128, 16, 8, 0, 1, 128, 1>, out>() +
			wrong<shape<1, 8, 72, 5, 21, 3, 1, 128, 8, 16, 1, 1, 128, 1>, out_ahead>() +
			wrong<shape<3, 70, 40, 9, 12, 3, 2, 128, 8, 8, 0, 1, 64, 1>, out>() +
			wrong<shape<1, 40, 70, 3, 60, 1, 1, 256, 64, 4, 1, 1, 64, 1>, out>() +
			/* transposed, from registers and staged: stride 1, dilated; taps of a phase that others lack; rows that
			 * begin within a vector, of 4, 2 and 1 elements; pieces of a row, and parts of a piece */
			wrong<up<2, 8, 72, 5, 13, 3, 5, 1, 1, 1, 2, 2, 0, 256, 16, 8, 0>, out>() +
			wrong<up<2, 70, 20, 5, 14, 3, 4, 1, 1, 1, 1, 1, 1, 256, 16, 16, 1>, out_ahead>() +
			wrong<up<1, 8, 40, 3, 60, 3, 3, 1, 1, 0, 0, 1, 0, 256, 64, 4, 1, 2, 64>, out>() +
			wrong<up<1, 8, 12, 3, 14, 3, 3, 2, 2, 1, 1, 1, 0, 256, 16, 4, 0>, out>() +
			wrong<up<2, 8, 72, 4, 14, 3, 3, 2, 2, 1, 1, 1, 1, 256, 16, 8, 1>, out_ahead>() +
			wrong<up<2, 70, 33, 3, 13, 4, 4, 2, 2, 1, 1, 1, 0, 128, 8, 4, 1, 2>, out>() +
			wrong<up<2, 8, 20, 3, 9, 3, 3, 2, 2, 1, 1, 1, 0, 128, 8, 4, 1, 2>, out_ahead>() +
			wrong<up<1, 8, 20, 2, 140, 2, 4, 2, 2, 0, 1, 1, 0, 256, 256, 1, 1>, out_ahead>() +
			wrong<up<1, 8, 20, 2, 150, 2, 4, 1, 2, 0, 1, 1, 0, 256, 256, 1, 1, 2, 64>, out>() +
			wrong<up<3, 8, 40, 2, 9, 3, 5, 3, 2, 1, 3, 1, 1, 256, 8, 2, 1>, out>() +
			wrong<up<3, 8, 18, 2, 9, 4, 7, 2, 4, 1, 2, 1, 1, 256, 16, 4, 1>, out_ahead>() +
			wrong<up<2, 8, 18, 3, 9, 1, 7, 2, 4, 0, 3, 1, 3, 128, 16, 2, 1, 2>, out>() +
			/* three dimensions: strides, paddings and dilations along the depth, slices that no phase has */
			wrong<deep<shape<2, 8, 40, 5, 14, 3, 1, 256, 16, 8, 1>, 4, 3, 1, 1, 1>, out>() +
			wrong<deep<shape<1, 70, 72, 4, 12, 3, 2, 256, 8, 8, 0>, 5, 2, 2, 1, 2>, out>() +
			wrong<deep<up<2, 8, 20, 3, 9, 3, 3, 1, 1, 1, 1, 1, 0, 256, 16, 4, 1, 2, 64>, 4, 3, 1, 1, 1>, out>() +
			wrong<deep<up<2, 8, 20, 3, 7, 3, 4, 2, 2, 1, 1, 1, 0, 128, 8, 4, 1, 2>, 3, 3, 2, 1, 1>, out>() +
			wrong<deep<up<1, 8, 33, 3, 7, 4, 3, 2, 2, 1, 1, 1, 1, 256, 8, 4, 1>, 2, 2, 3, 0, 2>, out_ahead>() +
			wrong<deep<up<1, 8, 33, 3, 7, 4, 3, 3, 3, 1, 1, 1, 0, 256, 16, 4, 0>, 2, 3, 2, 1, 1>, out>());
	return 0;
}
