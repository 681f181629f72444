/* conv_ends.h - what the checks of conv_tc and conv_few draw, and the ends that they give them. */
#pragma once

static unsigned seed = 1;
static float draw()
{
	seed = seed * 1664525u + 1013904223u;
	return (float)(seed >> 8) / (1 << 23) - 1.f;
}

/* Adds a bias, and counts how often each element is stored. */
struct out {
	float *y;
	const float *bias;
	unsigned char *stored;
	int k, pixels;
	template <int N> void store(int n, int c, int pix, const float (&v)[N]) const
	{
		const long long at = ((long long)n * k + c) * pixels + pix;
		if (pixels % N || pix % N)
			host::fail("a vector of pixels is not aligned");
		for (int i = 0; i < N; i++) {
			y[at + i] = v[i] + bias[c];
			stored[at + i]++;
		}
	}
};
/* The same in two steps, as what reads another tensor. */
struct out_ahead : out {
	template <int N> struct ahead {
		float bias[1];
	};
	template <int N> void fetch(int, int c, int, ahead<N> &given) const { given.bias[0] = bias[c]; }
	template <int N> void store(int n, int c, int pix, const float (&v)[N], ahead<N> &given) const
	{
		const float zero = given.bias[0] - bias[c];
		out::store<N>(n, c, pix, v);
		if (zero != 0)
			host::fail("what was fetched is of another channel");
	}
};
