#include <ww/plan.h>
#include <ww/recipe/attention.h>

static struct ww_attention_rows rows(const struct ww_tensor *x)
{
	return (struct ww_attention_rows){ .buf = x->buf,
		.stride_b = x->stride[0],
		.stride_h = x->stride[1],
		.stride_t = x->stride[2],
		.stride_i = x->stride[3] };
}

void plan(struct ww_plan *p)
{
	const struct ww_tensor *q = ww_input(p, 0), *k = ww_input(p, 1), *v = ww_input(p, 2), *y = ww_output(p, 0);

	ww_recipe_attention16(p,
		&(struct ww_attention16){ .kernel = "k0",
			.dtype = WW_BF16,
			.q = rows(q),
			.k = rows(k),
			.v = rows(v),
			.b = q->size[0],
			.h = q->size[1],
			.t_q = q->size[2],
			.t_k = k->size[2],
			.width = q->size[3],
			.width_v = v->size[3],
			.causal = 1 });
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i64(p, y->stride[0]);
	ww_arg_i64(p, y->stride[1]);
	ww_arg_i64(p, y->stride[2]);
}
