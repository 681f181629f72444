extern "C" __global__ void __launch_bounds__(THREADS) mish_variance(const float *x, const float *bias, float *out)
{
	long long at = (long long)blockIdx.x * COLS;
	float v_x[PER * 4], v_bias[PER * 4];
	load_row(v_x, x + at);
	load_row(v_bias, bias);
	float sum = 0, square = 0;
	for (int i = 0; i < PER * 4; i++) {
		float t = v_x[i] + v_bias[i], soft = t > 20.0f ? t : log1pf(expf(t));
		v_x[i] = t * tanhf(soft);
		sum += v_x[i];
	}
	float mean = sum_all(sum) / COLS;
	for (int i = 0; i < PER * 4; i++)
		square += (v_x[i] - mean) * (v_x[i] - mean);
	square = sum_all(square);
	if (threadIdx.x == 0)
		out[blockIdx.x] = square / (COLS - 1);
}
