#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, "bias"), *y = ww_output(p, 0);
	int s = ww_scratch(p, 8192);
	ww_launch(p, "k", x->size[0], 1, 1, 1, 1, 1);
	ww_shared(p, 4096);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, b->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_buf(p, s, 0);
	ww_arg_i64(p, x->size[1]);
}
