#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	ww_launch(p, "k", 128, 1, 1, 1, 1, 1);
	ww_arg_buf(p, ww_input(p, 0)->buf, 0);
	ww_arg_buf(p, ww_param(p, "scale")->buf, 0);
	ww_arg_buf(p, ww_output(p, 0)->buf, 0);
}
