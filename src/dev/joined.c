/* joined.c - the joined operations of dev.h, one after the other. */
#include "dev/dev.h"

void ww_dev_add_rmsnorm(const struct ww_dev_ops *ops, struct ww_stream *s, struct ww_arr sum, struct ww_arr y, float *rstd, struct ww_arr a,
			struct ww_arr b, struct ww_arr w, int64_t t, int64_t h, float eps)
{
	ops->add(s, sum, a, b, t * h);
	ops->rmsnorm(s, y, rstd, sum, w, t, h, eps);
}

void ww_dev_place(const struct ww_dev_ops *ops, struct ww_stream *s, const struct ww_place *p)
{
	int64_t width = p->kv_heads * p->head_dim;
	if (p->q_norm.p)
		ops->rmsnorm(s, p->q, NULL, p->q, p->q_norm, p->t * p->heads, p->head_dim, p->eps);
	if (p->k_norm.p)
		ops->rmsnorm(s, p->k, NULL, p->k, p->k_norm, p->t * p->kv_heads, p->head_dim, p->eps);
	ops->rope(s, p->q, p->cs, 0, p->t, p->heads, p->head_dim);
	ops->rope(s, p->k, p->cs, 0, p->t, p->kv_heads, p->head_dim);
	ops->scatter(s, p->k_cache, p->k, p->rows, p->t, width);
	ops->scatter(s, p->v_cache, p->v, p->rows, p->t, width);
}
