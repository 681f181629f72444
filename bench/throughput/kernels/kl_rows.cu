extern "C" __global__ void __launch_bounds__(THREADS) kl_rows(const float *x, const float *y, float *out)
{
	long long at = (long long)blockIdx.x * COLS;
	float v_x[PER * 4], v_y[PER * 4];
	load_row(v_x, x + at);
	load_row(v_y, y + at);
	float mx = -__int_as_float(0x7f800000), my = -__int_as_float(0x7f800000), sx = 0, sy = 0, sum = 0;
	for (int i = 0; i < PER * 4; i++) {
		mx = fmaxf(mx, v_x[i]);
		my = fmaxf(my, v_y[i]);
	}
	mx = max_all(mx);
	my = max_all(my);
	for (int i = 0; i < PER * 4; i++) {
		sx += expf(v_x[i] - mx);
		sy += expf(v_y[i] - my);
	}
	float lx = logf(sum_all(sx)), ly = logf(sum_all(sy));
	for (int i = 0; i < PER * 4; i++) {
		float p = v_x[i] - mx - lx, q = v_y[i] - my - ly;
		sum += expf(p) * (p - q);
	}
	sum = sum_all(sum);
	if (threadIdx.x == 0)
		out[blockIdx.x] = sum;
}
