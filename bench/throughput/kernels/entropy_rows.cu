extern "C" __global__ void __launch_bounds__(THREADS) entropy_rows(const float *x, const float *weight, float *out)
{
	long long at = (long long)blockIdx.x * COLS;
	float v_x[PER * 4], v_weight[PER * 4];
	load_row(v_x, x + at);
	load_row(v_weight, weight);
	float top = -__int_as_float(0x7f800000), sum = 0, entropy = 0;
	for (int i = 0; i < PER * 4; i++) {
		v_x[i] *= v_weight[i];
		top = fmaxf(top, v_x[i]);
	}
	top = max_all(top);
	for (int i = 0; i < PER * 4; i++)
		sum += expf(v_x[i] - top);
	float log_sum = logf(sum_all(sum));
	for (int i = 0; i < PER * 4; i++) {
		float p = v_x[i] - top - log_sum;
		entropy -= expf(p) * p;
	}
	entropy = sum_all(entropy);
	if (threadIdx.x == 0)
		out[blockIdx.x] = entropy;
}
