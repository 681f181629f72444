#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0);
	int sums = ww_scratch(p, x->size[0] * 4);
	ww_launch(p, "sum", x->size[0], 1, 1, 256, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, sums, 0);
	ww_launch(p, "k", 4, 1, 1, 256, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, ww_param(p, "scale")->buf, 0);
	ww_arg_buf(p, sums, 0);
	ww_arg_buf(p, ww_output(p, 0)->buf, 0);
}
