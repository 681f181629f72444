extern "C" __global__ void __launch_bounds__(THREADS) cosine_rows(const float *x, const float *y, float *out)
{
	long long at = (long long)blockIdx.x * COLS;
	float v_x[PER * 4], v_y[PER * 4];
	load_row(v_x, x + at);
	load_row(v_y, y + at);
	float xy = 0, xx = 0, yy = 0;
	for (int i = 0; i < PER * 4; i++) {
		xy += v_x[i] * v_y[i];
		xx += v_x[i] * v_x[i];
		yy += v_y[i] * v_y[i];
	}
	xy = sum_all(xy);
	xx = sum_all(xx);
	yy = sum_all(yy);
	if (threadIdx.x == 0)
		out[blockIdx.x] = xy / (fmaxf(sqrtf(xx), 1e-8f) * fmaxf(sqrtf(yy), 1e-8f));
}
