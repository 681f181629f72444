#include <ww/plan.h>
#include <ww/recipe/gemm.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *w = ww_param(p, "fc.weight");
	long long k = x->size[1];

	ww_recipe_gemm_thin(p,
		&(struct ww_gemm_thin){ .kernel = "k0",
			.m = x->size[0],
			.n = w->size[0],
			.k = k,
			.a = { .buf = x->buf, .row_stride = k, .k_stride = 1 },
			.b = { .buf = w->buf, .row_stride = k, .k_stride = 1 } });
	ww_arg_buf(p, ww_param(p, "fc.bias")->buf, 0);
	ww_arg_buf(p, ww_output(p, 0)->buf, 0);
}
