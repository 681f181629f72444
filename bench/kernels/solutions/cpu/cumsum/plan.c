#include <ww/plan.h>
#include <ww/recipe/cpu.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *y = ww_output(p, 0);
	long long cols = x->size[x->rank - 1];

	ww_recipe_cpu_rows(p, "k0", &(struct ww_cpu_rows){ .rows = x->numel / cols, .cols = cols, .keep = 0 });
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, y->buf, 0);
}
