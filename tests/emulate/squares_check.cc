/* squares_check.cc - squares about a centre, gathered in one pass (pl_squares of the cuda headers), on the cpu: of 2^12
 * elements a thread, one by one and by vectors, of any mean, a few of them 4,096 times as large, the first or another
 * one, those about zero, the mean and another number are right to 4e-6.  Prints how many are wrong. */
#include "device.h"

#define IX64_ 0
#include <ww/planner.cuh>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

enum { N = 1 << 12 };
static int bad;

template <int V> static void gather(const std::vector<float> &x)
{
	double sum = 0, size = 0, mean, squares;
	pl_squares g;

	for (int i = 0; i < N; i += V) {
		float v[V];

		for (int l = 0; l < V; l++) {
			sum += v[l] = x[i + l];
			size += std::fabs(v[l]);
		}
		g.add(v);
	}
	mean = sum / N;
	bad += !(std::fabs(g.result() - sum) <= 4e-6 * size);
	for (const float m : { (float)mean, 0.0f, (float)mean + 1.0f }) {
		squares = 0;
		for (float a : x)
			squares += ((double)a - m) * ((double)a - m);
		bad += !(std::fabs(g.about(m) - squares) <= 4e-6 * squares);
	}
}

int main()
{
	static const int large[] = { 0, 1, 2, 64, 1024 };
	std::mt19937 random(1);
	std::uniform_real_distribution<float> unit(0, 1);

	for (const float shift : { 0.0f, -0.5f, 3.0f })
		for (const int count : large)
			for (const int first : { 0, 1, 1500 }) {
				std::vector<float> x(N);

				for (float &a : x)
					a = unit(random) + shift;
				for (int i = 0; i < count; i++)
					x[i ? random() % N : first] = 4096 * (unit(random) + shift);
				gather<1>(x);
				gather<4>(x);
				gather<8>(x);
			}
	printf("%d\n", bad);
}
