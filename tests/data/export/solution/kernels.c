#include <ww/cpu.h>

/* One block a row: y = relu(x * w), z = y + shift. */
void scaled_relu(const struct ww_block *b, void *const *arg)
{
	const float *x = *(const float **)arg[0], *w = *(const float **)arg[1];
	float *y = *(float **)arg[2], *z = *(float **)arg[3], shift = *(float *)arg[4];
	long long n = *(long long *)arg[5], row = b->x * n;
	for (long long i = 0; i < n; i++) {
		float v = x[row + i] * w[i];
		v = v > 0 ? v : 0;
		y[row + i] = v;
		z[row + i] = v + shift;
	}
}
