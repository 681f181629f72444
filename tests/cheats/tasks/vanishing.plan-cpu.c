#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	int part = ww_scratch(p, 128 * 4), sums = ww_scratch(p, 128 * 4);
	ww_launch(p, "top", 128, 1, 1, 1, 1, 1);
	ww_arg_buf(p, ww_input(p, 0)->buf, 0);
	ww_arg_buf(p, part, 0);
	ww_launch(p, "sum", 128, 1, 1, 1, 1, 1);
	ww_arg_buf(p, ww_input(p, 0)->buf, 0);
	ww_arg_buf(p, part, 0);
	ww_arg_buf(p, sums, 0);
	ww_launch(p, "k", 1, 1, 1, 1, 1, 1);
	ww_arg_buf(p, part, 0);
	ww_arg_buf(p, sums, 0);
	ww_arg_buf(p, ww_param(p, "scale")->buf, 0);
	ww_arg_buf(p, ww_output(p, 0)->buf, 0);
}
