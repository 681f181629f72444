/* attention_check.cc - attention_mma and attention16 on the cpu: each type, order of the operands and kind of mask,
 * heads that share theirs, lengths and widths that are not round, against sums in double.  Prints how many are
 * wrong. */
#include "device.h"
#include <ww/attention16.cuh>

#include <cstdio>
#include <vector>

enum { NO_MASK, BY_KEY, BY_HEAD, WHOLE, OF_ONE_ROW };

static unsigned seed = 1;
static float draw()
{
	seed = seed * 1664525u + 1013904223u;
	return (float)(seed >> 8) / (1 << 23) - 1.f;
}

struct shape {
	int b, h, h_kv, t_q, t_k, width, width_v, mask;
};

struct functor {
	float *o;
	const float *mask;
	long long mb, mh, mr;
	shape s;

	template <int N> void store(int b, int h, int row, int col, const float (&v)[N]) const
	{
		for (int i = 0; i < N; i++)
			o[(((long long)b * s.h + h) * s.t_q + row) * s.width_v + col + i] = v[i];
	}
	template <int N> struct beside {
		float x[N];
	};
	template <int N> void ask(int b, int h, int row, int col, beside<N> &given) const
	{
		for (int i = 0; i < N; i++)
			given.x[i] = mask[b * mb + h * mh + row * mr + col + i];
	}
	template <int N> void score(int, int, int, int, float (&v)[N], const beside<N> &given) const
	{
		for (int i = 0; i < N; i++)
			v[i] += given.x[i];
	}
};

/* One of q, k, v: (b, h, t, w), by rows or turned, lines `pad` longer than what they hold. */
template <class T> struct tensor {
	std::vector<T> data;
	long long batch, head, line;
	int by_row, h;

	tensor(int b, int h_, int t, int w, int by_row_, int pad, float size) : by_row(by_row_), h(h_)
	{
		line = (by_row ? w : t) + pad;
		head = (by_row ? t : w) * line;
		batch = h * head;
		data.resize(b * batch + 16);
		for (T &v : data)
			v = ww::from_float<T>(draw() * size);
	}
	double at(int b, int i, int t, int w) const
	{
		return ww::to_float(data[b * batch + i * head + (by_row ? t * line + w : w * line + t)]);
	}
	ww::attention_operand<T> operand(int group) const { return { data.data(), batch, head, line, group }; }
};

template <class T> static double reference(const shape &s, const functor &e, const tensor<T> &q, const tensor<T> &k,
	const tensor<T> &v, double scale, long long below, long long above)
{
	double worst = 0;

	for (int b = 0; b < s.b; b++)
		for (int h = 0; h < s.h; h++)
			for (int r = 0; r < s.t_q; r++) {
				std::vector<double> w(s.t_k);
				double top = -INFINITY, sum = 0;
				const int g = h / (s.h / s.h_kv);
				for (int c = 0; c < s.t_k; c++) {
					w[c] = 0;
					for (int i = 0; i < s.width; i++)
						w[c] += q.at(b, h, r, i) * k.at(b, g, c, i);
					w[c] *= scale;
					if (s.mask)
						w[c] += e.mask[b * e.mb + h * e.mh + r * e.mr + c];
					if (c > r + above || c < r - below)
						w[c] = -INFINITY;
					top = fmax(top, w[c]);
				}
				for (int c = 0; c < s.t_k; c++)
					sum += w[c] = exp(w[c] - top);
				for (int i = 0; i < s.width_v; i++) {
					double all = 0;
					const float got = e.o[(((long long)b * s.h + h) * s.t_q + r) * s.width_v + i];
					for (int c = 0; c < s.t_k; c++)
						all += w[c] / sum * v.at(b, g, c, i);
					if (all != all || got != got)
						worst = fmax(worst, (all != all) == (got != got) ? 0 : INFINITY);
					else
						worst = fmax(worst, fabs(all - got));
				}
			}
	return worst;
}

/* The functor's mask: a bias, and keys that do not count, the first 70 of head 0. */
static void draw_mask(const shape &s, functor &e, std::vector<float> &mask)
{
	mask.resize((size_t)s.b * s.h * s.t_q * s.t_k);
	for (size_t i = 0; i < mask.size(); i++)
		mask[i] = s.mask == OF_ONE_ROW && i / s.t_k == 3 ? -INFINITY : draw() > .5f || i < 70 ? -INFINITY : draw();
	if (s.mask != OF_ONE_ROW && s.t_k <= 70)
		mask[s.t_k / 2] = .5f;
	e.mask = mask.data();
	e.mb = s.mask == BY_KEY ? s.t_k : s.mask > BY_HEAD ? (long long)s.h * s.t_q * s.t_k : 0;
	e.mh = s.mask == BY_HEAD || s.mask > BY_HEAD ? (long long)s.t_q * s.t_k : 0;
	e.mr = s.mask > BY_KEY ? s.t_k : 0;
}

/* q and k such that products are exact. */
template <class T> static void heat(tensor<T> &x)
{
	for (T &v : x.data)
		v = ww::from_float<T>(rintf(ww::to_float(v) * 8) / 8);
}

static int beyond(double worst, double limit, const shape &s, const char *what, int below, int above)
{
	if (!(worst < limit))
		fprintf(stderr, "%s: %d and %d wide, %d rows and %d keys, mask %d, from -%d to %d: off by %g\n", what, s.width,
			s.width_v, s.t_q, s.t_k, s.mask, below, above, worst);
	return !(worst < limit);
}

/* hot: scores in the hundred millions, of operands whose products are exact. */
template <class T, int WIDTH, int WIDTH_V, int WARPS, int MT, int KEYS, int STAGES, bool CAUSAL, bool QR, bool KR,
	bool VR, int QV, int KV, int VV, int TEAMS = 1, int BELOW = ww::attention_all,
	int ABOVE = CAUSAL ? 0 : ww::attention_all>
static int wrong(shape s, int pad, double limit, float size = 1.f, int hot = 0)
{
	typedef ww::attention_mma_shape<T, WIDTH, WIDTH_V, WARPS, MT, KEYS, STAGES, QR, KR, VR, QV, KV, VV, TEAMS> S;
	tensor<T> q(s.b, s.h, s.t_q, s.width, QR, pad, size), k(s.b, s.h_kv, s.t_k, s.width, KR, pad, size),
		v(s.b, s.h_kv, s.t_k, s.width_v, VR, pad, size);
	std::vector<float> o((size_t)s.b * s.h * s.t_q * s.width_v, 7.f), mask;
	const int group = s.h / s.h_kv, blocks = (s.t_q + S::rows - 1) / S::rows * s.b * s.h;
	const float scale = hot ? 1e8f : (float)(1 / sqrt((double)s.width)) / size / size * 3;
	functor e = { o.data(), NULL, 0, 0, 0, s };

	if (hot)
		heat(q), heat(k);
	draw_mask(s, e, mask);
#define RUN(MASKED, N, M)                                                                                              \
	host::launch(blocks, 1, 1, S::threads, 1, [&] {                                                                    \
		ww::attention_mma<S, BELOW, ABOVE, MASKED, N, M>(q.operand(1), k.operand(group), v.operand(group), s.h, s.t_q,       \
			s.t_k, s.width, s.width_v, scale * 1.44269504088896340736f, e);                                            \
	})
	if (s.mask && s.t_k % 2 == 0 && s.width_v % 2 == 0)
		RUN(true, 2, 2);
	else if (s.mask)
		RUN(true, 1, 1);
	else if (s.width_v % 2 == 0)
		RUN(false, 2, 1);
	else
		RUN(false, 1, 1);
#undef RUN
	return beyond(reference(s, e, q, k, v, scale, BELOW, ABOVE) / size, limit, s, sizeof(T) == 4 ? "fp32" : "16 bits",
		BELOW, ABOVE);
}

/* The map of q, k or v that the recipe makes: boxes of `columns` by `rows`. */
template <class T> static ww_tensor_map map_of(tensor<T> &x, int b, int t, int w, int columns, int rows)
{
	ww_tensor_map m = { (char *)x.data.data(), 0, 2, 4, columns == 64 ? 3 : 2, 0, { w, t, x.h, b, 1 },
		{ 2, 2 * x.line, 2 * x.head, 2 * x.batch, 0 }, { columns, rows, 1, 1, 1 }, { 1, 1, 1, 1, 1 } };
	return m;
}

template <class T, int W, int WV, int GROUPS, int KEYS, bool CAUSAL, bool MASKED = false, int M = 1,
	int BELOW = ww::attention_all, int ABOVE = CAUSAL ? 0 : ww::attention_all>
static int wrong16(shape s, double limit, int hot = 0)
{
	typedef ww::attention16_shape<T, W, WV, GROUPS, KEYS, 1, 2> S;
	typedef ww::attention16_shape<T, W, WV, GROUPS, KEYS, W <= 128 ? 2 : 1, 2> S_turns;
	tensor<T> q(s.b, s.h, s.t_q, s.width, 1, 8, 1.f), k(s.b, s.h_kv, s.t_k, s.width, 1, 0, 1.f),
		v(s.b, s.h_kv, s.t_k, s.width_v, 1, 8, 1.f);
	std::vector<float> o((size_t)s.b * s.h * s.t_q * s.width_v, 7.f), mask;
	const int group = s.h / s.h_kv, blocks = (s.t_q + S::rows - 1) / S::rows * s.b * s.h;
	const float scale = hot ? 1e8f : (float)(3 / sqrt((double)s.width));
	functor e = { o.data(), NULL, 0, 0, 0, s };

	if (hot)
		heat(q), heat(k);
	draw_mask(s, e, mask);
	const ww_tensor_map tq = map_of(q, s.b, s.t_q, s.width, 64, S::rows), tk = map_of(k, s.b, s.t_k, s.width, 64, KEYS),
						tv = map_of(v, s.b, s.t_k, s.width_v, S::part_v, KEYS);
	const float scale2 = scale * 1.44269504088896340736f;
	int n = 0;
	for (int turns = 0; turns < 2; turns++) {
		for (float &x : o)
			x = 7.f;
		host::launch(turns && blocks > 2 ? 2
				: turns                  ? 1
										 : blocks,
			1, 1, S::threads, 1, [&] {
				if (turns)
					ww::attention16<S_turns, BELOW, ABOVE, MASKED, 8, M>(
						tq, tk, tv, blocks, group, s.h, s.t_q, s.t_k, s.width_v, scale2, e);
				else
					ww::attention16<S, BELOW, ABOVE, MASKED, 2, M>(
						tq, tk, tv, group, s.h, s.t_q, s.t_k, s.width_v, scale2, e);
			});
		n += beyond(reference(s, e, q, k, v, scale, BELOW, ABOVE), limit, s,
			turns ? "attention16 in turns" : "attention16", BELOW, ABOVE);
	}
	return n;
}

template <class T> static int wrong16_of(double limit)
{
	int n = 0;

	n += wrong16<T, 64, 64, 2, 128, false>({ 1, 2, 1, 130, 200, 64, 64, NO_MASK }, limit);
	n += wrong16<T, 128, 128, 2, 128, true>({ 1, 1, 1, 300, 300, 128, 128, NO_MASK }, limit);
	n += wrong16<T, 80, 96, 1, 64, true>({ 2, 1, 1, 70, 70, 72, 72, NO_MASK }, limit);
	n += wrong16<T, 48, 32, 2, 64, true>({ 1, 2, 2, 129, 131, 40, 24, NO_MASK }, limit);
	n += wrong16<T, 32, 32, 1, 64, false>({ 2, 2, 1, 200, 90, 32, 32, NO_MASK }, limit);
	n += wrong16<T, 256, 256, 2, 64, false>({ 1, 1, 1, 64, 65, 256, 256, NO_MASK }, limit);
	n += wrong16<T, 192, 224, 1, 64, false>({ 1, 1, 1, 5, 130, 184, 200, NO_MASK }, limit);
	n += wrong16<T, 16, 32, 1, 128, false>({ 1, 3, 3, 33, 7, 8, 8, NO_MASK }, limit);
	n += wrong16<T, 96, 96, 2, 64, false, true, 2>({ 2, 2, 1, 100, 132, 96, 88, WHOLE }, limit);
	n += wrong16<T, 64, 64, 1, 64, true, true, 1>({ 1, 2, 2, 70, 131, 64, 64, BY_KEY }, limit);
	n += wrong16<T, 32, 32, 1, 64, false, true, 1>({ 1, 2, 2, 50, 63, 32, 32, OF_ONE_ROW }, limit);
	n += wrong16<T, 64, 64, 2, 64, false, false, 1, 70, 3>({ 1, 2, 1, 330, 330, 64, 64, NO_MASK }, limit);
	n += wrong16<T, 64, 64, 1, 64, false, true, 2, 5, -2>({ 1, 1, 1, 140, 90, 64, 64, WHOLE }, limit);
	return n;
}

template <class T> static int wrong_of(double limit)
{
	enum { W = 16 / sizeof(T), FP32 = sizeof(T) == 4, TWO = FP32 ? 1 : 2 };
	int n = 0;

	n += wrong<T, 16, 16, 1, 1, 16, 1, false, true, true, true, W / 2, W, W>(
		{ 2, 3, 3, 5, 11, 8, 8, NO_MASK }, 0, limit);
	n += wrong<T, 64, 64, 2, 1, 32, 2, true, true, true, true, W, W, W>({ 1, 2, 1, 75, 75, 64, 64, NO_MASK }, 8, limit);
	n += wrong<T, 48, 16, 2, TWO, 32, 2, false, true, true, true, W, W, 1>(
		{ 2, 4, 2, 33, 90, 40, 9, BY_KEY }, 0, limit);
	n += wrong<T, 96, 80, 4, 1, 64, 2, true, true, false, true, W / 2, 1, W>(
		{ 1, 4, 2, 70, 131, 96, 80, WHOLE }, 0, limit);
	n += wrong<T, 128, 128, 1, TWO, 32, 2, false, false, true, false, 1, W, 1>(
		{ 1, 2, 1, 41, 77, 128, 128, BY_HEAD }, 0, limit);
	n += wrong<T, 48, 48, 4, 1, 64, 1, false, true, true, true, 1, 1, 1>(
		{ 1, 2, 2, 50, 63, 37, 37, OF_ONE_ROW }, 0, limit);
	n += wrong<T, 32, 64, 4, 1, 64, 2, false, false, false, false, W / 2, W / 2, W / 2>(
		{ 1, 1, 1, 80, 200, 24, 56, NO_MASK }, 0, limit);
	n += wrong<T, 64, 64, 1, 1, 16, 2, false, true, true, true, W, W, W, 8>(
		{ 1, 2, 1, 35, 203, 64, 64, NO_MASK }, 0, limit);
	n += wrong<T, 32, 128, 2, TWO, 16, 2, true, true, true, true, W, W, W, 4>(
		{ 1, 2, 2, 90, 90, 32, 120, NO_MASK }, 0, limit);
	n += wrong<T, 48, 16, 2, 1, 32, 2, false, true, false, true, W, 1, 1, 2>(
		{ 1, 2, 1, 40, 77, 40, 9, WHOLE }, 0, limit);
	n += wrong<T, 16, 16, 1, 1, 32, 1, false, false, true, true, 1, W, W, 4>(
		{ 2, 1, 1, 20, 50, 16, 16, OF_ONE_ROW }, 0, limit);
	/* bands; the last rows of the third see no key */
	n += wrong<T, 64, 64, 2, 1, 32, 2, false, true, true, true, W, W, W, 2, 20, 20>(
		{ 1, 2, 1, 170, 170, 64, 64, NO_MASK }, 0, limit);
	n += wrong<T, 64, 64, 1, 1, 16, 2, false, true, true, true, W, W, W, 1, 37, 0>(
		{ 1, 2, 1, 133, 133, 64, 64, WHOLE }, 0, limit);
	n += wrong<T, 32, 32, 2, 1, 32, 2, false, true, true, true, W, W, W, 1, 5, -2>(
		{ 1, 1, 1, 140, 90, 32, 32, NO_MASK }, 0, limit);
	n += wrong<T, 32, 32, 2, TWO, 32, 2, false, true, true, true, W, W, W, 4, ww::attention_all, 50>(
		{ 1, 1, 1, 90, 300, 32, 32, NO_MASK }, 0, limit);
	return n;
}

int main(void)
{
	int n = wrong_of<float>(3e-6) + wrong_of<__half>(2e-3) + wrong_of<__nv_bfloat16>(8e-3);

	n += wrong<float, 64, 64, 2, 1, 32, 2, false, true, true, true, 4, 4, 4>(
		{ 1, 2, 2, 40, 70, 64, 64, NO_MASK }, 0, 3e-6, 1e-9f);
	n += wrong<float, 64, 64, 2, 1, 32, 2, false, true, true, true, 4, 4, 4>(
		{ 1, 2, 2, 40, 70, 64, 64, WHOLE }, 0, 3e-6, 1e6f);
	n += wrong<float, 64, 64, 2, 1, 32, 2, false, true, true, true, 4, 4, 4>(
		{ 1, 2, 2, 40, 70, 64, 64, NO_MASK }, 0, 3e-6, 1.f, 1);
	n += wrong<__half, 64, 64, 2, 1, 32, 2, false, true, true, true, 8, 8, 8>(
		{ 1, 2, 2, 40, 70, 64, 64, NO_MASK }, 0, 2e-3, 1.f, 1);
	n += wrong<float, 64, 64, 1, 1, 32, 2, false, true, true, true, 4, 4, 4, 2>(
		{ 1, 2, 2, 40, 70, 64, 64, NO_MASK }, 0, 3e-6, 1.f, 1);
	n += wrong16_of<__half>(2e-3) + wrong16_of<__nv_bfloat16>(8e-3);
	n += wrong16<__half, 64, 64, 1, 64, false>({ 1, 2, 2, 40, 70, 64, 64, NO_MASK }, 2e-3, 1);
	printf("%d\n", n);
}
