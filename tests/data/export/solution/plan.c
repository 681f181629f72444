#include <ww/plan.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0);
	long long n = x->size[1];
	ww_launch(p, "scaled_relu", x->size[0], 1, 1, 1, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, ww_param(p, "weight")->buf, 0);
	ww_arg_buf(p, ww_output(p, 0)->buf, 0);
	ww_arg_buf(p, ww_output(p, 1)->buf, 0);
	ww_arg_f32(p, (float)ww_scalar(p, 0)->f);
	ww_arg_i64(p, n);
}
