/* scatter_check.cc - elements written to places along the last and another dimension, on the cpu: odd sizes, each
 * operation, places below 0 and outside, against one after the other.  Prints how many are wrong. */
#include "device.h"
#include <ww/scatter.cuh>

#include <cstdio>
#include <vector>

static unsigned seed = 1;
static unsigned draw()
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

struct data {
	long long outer, len, list, inner;
	std::vector<float> to, y, x, at;

	data(long long outer, long long len, long long list, long long inner)
		: outer(outer), len(len), list(list), inner(inner), to(outer * len * inner), y(to.size(), NAN),
		  x(outer * list * inner), at(x.size())
	{
		for (float &v : to)
			v = (float)(int)(draw() % 9) - 4;
		for (float &v : x) /* whole numbers: sums are exact in any order */
			v = (float)(int)(draw() % 9) - 4;
		for (float &v : at) /* one in ten outside */
			v = (float)((long long)(draw() % (2 * len + len / 5 + 1)) - len - len / 10);
	}
	template <int OP> int wrong() const
	{
		std::vector<float> want = to;
		int n = 0;

		for (long long o = 0; o < outer; o++)
			for (long long j = 0; j < list; j++)
				for (long long i = 0; i < inner; i++) {
					const long long from = (o * list + j) * inner + i;
					const long long m = (long long)at[from] + (at[from] < 0 ? len : 0);
					float *const p = &want[m < 0 || m >= len ? 0 : (o * len + m) * inner + i];
					if (m < 0 || m >= len)
						continue;
					*p = OP == ww::SCATTER_SET ? x[from]
						: OP == ww::OP_SUM     ? *p + x[from]
						: OP == ww::OP_PROD    ? *p * x[from]
						: OP == ww::OP_MAX     ? fmaxf(*p, x[from])
											   : fminf(*p, x[from]);
				}
		for (size_t i = 0; i < want.size(); i++)
			n += !(want[i] == y[i]);
		return n;
	}
};

struct columns {
	data *d;
	long long to(long long o, long long m, long long i) const { return (o * d->len + m) * d->inner + i; }
	long long from(long long o, long long j, long long i) const { return (o * d->list + j) * d->inner + i; }
	void self(long long o, long long m, long long i, float (&v)[1]) const { v[0] = d->to[to(o, m, i)]; }
	void place(long long o, long long j, long long i, float (&v)[1]) const { v[0] = d->at[from(o, j, i)]; }
	void src(long long o, long long j, long long i, float (&v)[1]) const { v[0] = d->x[from(o, j, i)]; }
	template <int N> void store(long long o, long long m, long long i, const float (&v)[N]) const
	{
		d->y[to(o, m, i)] = v[0];
	}
};

struct rows {
	columns c;
	void self(long long o, long long m, float (&v)[1]) const { c.self(o, m, 0, v); }
	void place(long long o, long long j, float (&v)[1]) const { c.place(o, j, 0, v); }
	void src(long long o, long long j, float (&v)[1]) const { c.src(o, j, 0, v); }
	template <int N> void store(long long o, long long m, const float (&v)[N]) const { c.store(o, m, 0, v); }
};

template <int OP, int BLOCK> static int down(long long outer, long long len, long long list, long long inner)
{
	data d(outer, len, list, inner);

	host::launch((outer * inner + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1,
		[&] { ww::scatter_columns<OP, BLOCK>(outer, (int)len, (int)list, inner, columns{ &d }); });
	return d.wrong<OP>();
}

/* Places that all columns share. */
template <int OP, int BLOCK, int LEN> static int slices(long long outer, long long len, long long list, long long inner)
{
	const long long parts = (len + LEN - 1) / LEN, beside = (inner + BLOCK - 1) / BLOCK;
	data d(outer, len, list, inner);

	for (long long r = 0; r < outer * list; r++)
		for (long long i = 1; i < inner; i++)
			d.at[r * inner + i] = d.at[r * inner];
	host::launch((unsigned)(outer * beside * parts), 1, 1, BLOCK, 1,
		[&] { ww::scatter_slices<OP, BLOCK, LEN>(outer, (int)len, (int)list, inner, columns{ &d }); });
	return d.wrong<OP>();
}

template <int BLOCK, int COLS> static int strips(long long outer, long long len, long long list, long long inner)
{
	data d(outer, len, list, inner);

	host::launch((unsigned)((outer * inner + COLS - 1) / COLS), 1, 1, BLOCK, 1,
		[&] { ww::scatter_strips<ww::OP_SUM, BLOCK, COLS>(outer, (int)len, (int)list, inner, columns{ &d }); });
	return d.wrong<ww::OP_SUM>();
}

template <int BLOCK, int TPR> static int along(long long outer, long long len, long long list)
{
	data d(outer, len, list, 1);

	host::launch((outer + BLOCK / TPR - 1) / (BLOCK / TPR), 1, 1, BLOCK, 1,
		[&] { ww::scatter_rows<ww::OP_SUM, BLOCK, TPR>(outer, (int)len, (int)list, rows{ { &d } }); });
	return d.wrong<ww::OP_SUM>();
}

int main()
{
	int n = down<ww::OP_SUM, 64>(3, 7, 29, 41) + down<ww::SCATTER_SET, 32>(2, 11, 5, 33);

	n += down<ww::OP_PROD, 128>(1, 30, 17, 129) + down<ww::OP_MAX, 64>(5, 3, 8, 13) +
		down<ww::OP_MIN, 32>(70, 9, 40, 1);
	n += along<128, 32>(9, 13, 101) + along<64, 64>(3, 1001, 2003) + along<256, 256>(2, 50, 4099);
	n += along<128, 32>(4, 300, 1);
	n += slices<ww::OP_SUM, 64, 7>(3, 23, 1001, 41) + slices<ww::SCATTER_SET, 32, 11>(2, 11, 5, 70);
	n += slices<ww::OP_PROD, 128, 40>(1, 90, 17, 129) + slices<ww::OP_MAX, 32, 5>(4, 3, 300, 33) +
		slices<ww::OP_MIN, 64, 9>(2, 70, 40, 64);
	n += strips<128, 8>(3, 37, 1001, 13) + strips<64, 16>(1, 90, 17, 129) + strips<512, 32>(2, 33, 700, 70);
	printf("%d\n", n);
	return 0;
}
