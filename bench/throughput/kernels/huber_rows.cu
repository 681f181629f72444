extern "C" __global__ void __launch_bounds__(THREADS) huber_rows(const float *x, const float *y, float *out)
{
	long long at = (long long)blockIdx.x * COLS;
	float v_x[PER * 4], v_y[PER * 4];
	load_row(v_x, x + at);
	load_row(v_y, y + at);
	float sum = 0, top = 0;
	for (int i = 0; i < PER * 4; i++) {
		float d = fabsf(v_x[i] - v_y[i]);
		sum += d < 1.0f ? 0.5f * d * d : d - 0.5f;
		top = fmaxf(top, d);
	}
	sum = sum_all(sum);
	top = max_all(top);
	if (threadIdx.x == 0)
		out[blockIdx.x] = sum / COLS + top;
}
