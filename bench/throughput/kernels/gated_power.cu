extern "C" __global__ void __launch_bounds__(THREADS) gated_power(const float *x, const float *y, float *out)
{
	long long at = (long long)blockIdx.x * COLS;
	float v_x[PER * 4], v_y[PER * 4];
	load_row(v_x, x + at);
	load_row(v_y, y + at);
	float sum = 0;
	for (int i = 0; i < PER * 4; i++) {
		float g = tanhf(v_x[i]) / (1.0f + expf(-v_y[i]));
		sum += g * g;
	}
	sum = sum_all(sum);
	if (threadIdx.x == 0)
		out[blockIdx.x] = sum / COLS;
}
