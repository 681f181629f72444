#include <ww/plan.h>
#include <ww/recipe/cpu.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *y = ww_output(p, 0);
	long long half = x->size[x->rank - 1] / 2;

	ww_recipe_cpu_nd(p, "k0", &(struct ww_cpu_nd){ .size = { 1, 1, y->numel / half, half } });
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, y->buf, 0);
}
