#include <ww/plan.h>
#include <ww/recipe/pointwise.h>

void plan(struct ww_plan *p)
{
	ww_recipe_pointwise(p, &(struct ww_pointwise){ .kernel = "k0", .n = ww_output(p, 0)->numel });
	ww_arg_buf(p, ww_input(p, 0)->buf, 0);
	ww_arg_buf(p, ww_input(p, 1)->buf, 0);
	ww_arg_buf(p, ww_output(p, 0)->buf, 0);
}
