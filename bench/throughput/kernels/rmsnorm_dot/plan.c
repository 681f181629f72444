#include <ww/plan.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0);
	const struct ww_tensor *y = ww_input(p, 1);
	const struct ww_tensor *weight = ww_param(p, "weight");
	const struct ww_tensor *out = ww_output(p, 0);
	if (x->rank != 2 || x->size[1] != 4096 || !x->contiguous)
		ww_fail(p, "rows of 4096 only");
	ww_launch(p, "rmsnorm_dot", x->size[0], 1, 1, 256, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_buf(p, weight->buf, 0);
	ww_arg_buf(p, out->buf, 0);
}
