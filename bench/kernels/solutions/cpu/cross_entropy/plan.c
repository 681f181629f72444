#include <ww/plan.h>
#include <ww/recipe/cpu.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *t = ww_input(p, 1);
	long long rows = x->size[0];
	int loss = ww_scratch(p, 4 * rows);

	ww_recipe_cpu_rows(p, "k0", &(struct ww_cpu_rows){ .rows = rows, .cols = x->size[1] });
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, loss, 0);
	ww_arg_buf(p, t->buf, 0);
	ww_recipe_cpu_rows(p, "k1", &(struct ww_cpu_rows){ .rows = 1, .cols = rows });
	ww_arg_buf(p, loss, 0);
	ww_arg_buf(p, ww_output(p, 0)->buf, 0);
}
