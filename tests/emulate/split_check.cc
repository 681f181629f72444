/* split_check.cc - ww::split_rows with a warp for each row against a block for each, on the cpu: the same bits, and the
 * largest magnitudes, for rows of many lengths, in a batch, with gaps between them; the same of columns, held or read
 * twice; and copies for gemm16.  Prints how many differ. */
#include "device.h"

#include <vector>
#include <ww/split.cuh>

static int bad;

template <int HELD> static void compare(int k)
{
	const int rows = 21, batch = 2, sr = k + 3, kp = (k + 31) / 32 * 32;
	const long long sb = rows * sr + 5;
	std::vector<float> x(batch * sb);
	std::vector<unsigned> out[2], top[2];

	for (size_t i = 0; i < x.size(); i++)
		x[i] = (float)((i * 2654435761u >> 8) % 2001) / 1000 - 1;
	for (int w = 0; w < 2; w++) {
		out[w].assign((size_t)batch * rows * kp, 7);
		top[w].assign(batch * rows, 7);
		host::launch(w ? (rows + 7) / 8 : rows, batch, 1, 256, 1, [&] {
			if (w)
				ww::split_rows<HELD>(x.data(), sb, sr, rows, k, kp, (__half *)out[w].data(), top[w].data());
			else
				ww::split_rows<0>(x.data(), sb, sr, rows, k, kp, (__half *)out[w].data(), top[w].data());
		});
	}
	bad += out[0] != out[1] || top[0] != top[1];
	for (int r = 0; r < batch * rows; r++) {
		float m = 0;
		for (int c = 0; c < k; c++)
			m = fmaxf(m, fabsf(x[r / rows * sb + r % rows * sr + c]));
		bad += ww::magnitude(m) != top[1][r];
	}
}

/* Columns that a block holds against those that are read twice, whose parts of k are not alike. */
template <int HELD> static void columns(int n, int k)
{
	const int batch = 2, sk = n + 1, kp = (k + 31) / 32 * 32, parts = 3;
	const long long sb = (long long)k * sk + 5;
	std::vector<float> x(batch * sb);
	std::vector<unsigned> out[2], top[2];

	for (size_t i = 0; i < x.size(); i++)
		x[i] = ((float)((i * 2654435761u >> 8) % 2001) / 1000 - 1) * (float)(1 << i % 7);
	for (int held = 0; held < 2; held++) {
		out[held].assign((size_t)batch * n * kp, 7);
		top[held].assign((size_t)batch * n, held ? 7 : 0);
	}
	host::launch(
		(n + 127) / 128, parts, batch, 128, 1, [&] { ww::absmax_cols<16>(x.data(), sb, sk, k, n, top[0].data()); });
	host::launch((n + 63) / 64, kp / 32, batch, 256, 1,
		[&] { ww::split_cols<0>(x.data(), sb, 0, 1, sk, k, n, kp, (__half *)out[0].data(), top[0].data(), 0); });
	host::launch((n + 7) / 8, batch, 1, 256, 1,
		[&] { ww::split_cols_held<HELD>(x.data(), sb, sk, k, n, kp, (__half *)out[1].data(), top[1].data()); });
	bad += out[0] != out[1] || top[0] != top[1];
	for (int c = 0; c < batch * n; c++) {
		float m = 0;
		for (int i = 0; i < k; i++)
			m = fmaxf(m, fabsf(x[c / n * sb + (long long)i * sk + c % n]));
		bad += ww::magnitude(m) != top[0][c];
	}
}

static void padded(int k)
{
	const int rows = 37, batch = 2, sr = k + 1, runs = (k + 7) / 8;
	std::vector<unsigned short> x(batch * rows * sr + 3), out(batch * rows * runs * 8, 7);

	for (size_t i = 0; i < x.size(); i++)
		x[i] = (unsigned short)(i * 40503u >> 2);
	host::launch((rows * runs + 255) / 256, batch, 1, 256, 1,
		[&] { ww::pad_rows<0>(x.data() + 3, rows * sr, 0, 1, sr, rows, k, runs, out.data()); });
	for (size_t i = 0; i < out.size(); i++) {
		const size_t r = i / (runs * 8), c = i % (runs * 8);
		bad += out[i] != (c < (size_t)k ? x[3 + r * sr + c] : 0);
	}
}

/* A matrix of `high` by k, row r's element i at i * sk + r: turned. */
template <int V> static void turned(int high, int k)
{
	const int batch = 2, sk = (high + 8) / 8 * 8 + V, runs = (k + 7) / 8;
	const size_t sb = (size_t)k * sk;
	alignas(16) static unsigned short x[1 << 16];
	std::vector<unsigned short> out((size_t)batch * high * runs * 8, 7);

	for (size_t i = 0; i < batch * sb; i++)
		x[i + V] = (unsigned short)(i * 40503u >> 2);
	host::launch((high + 63) / 64, (runs + 7) / 8, batch, 256, 1,
		[&] { ww::turn_rows<V>(x + V, 2 * sb, sb, 2, sk, high, k, runs, out.data()); });
	for (size_t i = 0; i < out.size(); i++) {
		const size_t r = i / (runs * 8), c = i % (runs * 8);
		bad += out[i] != (c < (size_t)k ? x[V + r / high * sb + c * sk + r % high] : 0);
	}
}

int main()
{
	turned<1>(67, 131);
	turned<2>(30, 64);
	turned<4>(129, 70);
	turned<8>(131, 129);
	turned<8>(64, 8);
	padded(1);
	padded(67);
	padded(256);
	compare<1>(24);
	compare<1>(121);
	compare<2>(256);
	compare<3>(300);
	compare<4>(512);
	compare<5>(575);
	compare<8>(1024);
	columns<1>(3, 5);
	columns<2>(24, 64);
	columns<5>(67, 131);
	columns<33>(19, 1031);
	printf("%d\n", bad);
	return bad != 0;
}
