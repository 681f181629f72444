/* backward.c - the backward pass, from the gradients of the hidden states.
 *
 * Layers run from the last to the first.  A layer that stored only its input is recomputed first, by the same function
 * and from the same numbers as in the forward pass, so its gradients are the same to the last bit, in fast mode too.
 * dres holds the gradient of the residual stream and is updated in place.  Gradients of weights are accumulated, also
 * over batches.
 */
#include "nn/run.h"

#include "base/dtype.h"

static struct ww_arr f32(float *p) { return (struct ww_arr){ p, WW_F32 }; }

/* Of y = x W^T + b: dx = (or +=) dy W, dW += dy^T x, db += sum dy. */
static void linear_backward(
	struct ww_run *r, struct ww_arr dx, struct ww_arr dy, struct ww_arr x, struct ww_lin l, int accumulate)
{
	r->ops->gemm(r->s, WW_GEMM_NN, dx, dy, ww_run_weight(r, l.w), r->t, l.w->cols, l.w->rows, accumulate);
	r->ops->gemm(r->s, WW_GEMM_TN, f32(ww_run_grad(r, l.w)), dy, x, l.w->rows, l.w->cols, r->t, 1);
	if (l.b)
		r->ops->bias_bwd(r->s, ww_run_grad(r, l.b), dy, r->t, l.w->rows);
}

/* dres += the gradient through a norm whose output's gradient is dn. */
static void norm_backward(struct ww_run *r, struct ww_arr x, const struct ww_param *w, const float *rstd)
{
	int64_t h = r->m->config.hidden_size;
	r->ops->rmsnorm_bwd_add(r->s, r->dres, ww_run_grad(r, w), r->dn, x, ww_run_weight(r, w), rstd, r->t, h);
}

static void mlp_backward(struct ww_run *r, struct ww_layer *l)
{
	int64_t n = r->t * r->m->config.intermediate_size;
	linear_backward(r, r->du, r->dres, l->act, l->w.down, 0);
	r->ops->swiglu_bwd(r->s, r->dg, r->du, r->du, l->g, l->u, n);
	linear_backward(r, r->dn, r->dg, l->n2, l->w.gate, 0);
	linear_backward(r, r->dn, r->du, l->n2, l->w.up, 1);
	norm_backward(r, l->x_mid, l->w.norm2, l->rstd2);
}

static void attention_backward(struct ww_run *r, struct ww_layer *l)
{
	const struct ww_config *f = &r->m->config;
	struct ww_attn_bwd a = { .fwd = ww_run_attention(r, l), .dout = r->datt, .dq = r->dq, .dk = r->dk, .dv = r->dv };
	linear_backward(r, r->datt, r->dres, l->att, l->w.o, 0);
	r->ops->attention_bwd(r->s, &a);
	if (l->w.q_norm) {
		r->ops->norm_rope_bwd(r->s, r->dq, ww_run_grad(r, l->w.q_norm), l->q_pre, ww_run_weight(r, l->w.q_norm),
			l->rstd_q, r->cs, r->t, f->heads, f->head_dim);
		r->ops->norm_rope_bwd(r->s, r->dk, ww_run_grad(r, l->w.k_norm), l->k_pre, ww_run_weight(r, l->w.k_norm),
			l->rstd_k, r->cs, r->t, f->kv_heads, f->head_dim);
	} else {
		r->ops->rope(r->s, r->dq, r->cs, 1, r->t, f->heads, f->head_dim);
		r->ops->rope(r->s, r->dk, r->cs, 1, r->t, f->kv_heads, f->head_dim);
	}
	linear_backward(r, r->dn, r->dq, l->n1, l->w.q, 0);
	linear_backward(r, r->dn, r->dk, l->n1, l->w.k, 1);
	linear_backward(r, r->dn, r->dv, l->n1, l->w.v, 1);
	norm_backward(r, l->x_in, l->w.norm1, l->rstd1);
}

/* dn = dhidden, 0 in the rows that the head left out. */
static void hidden_backward(struct ww_run *r)
{
	int64_t h = r->m->config.hidden_size;
	struct ww_arr d = r->head_rows ? r->tmp : r->dn;
	if (r->head_n)
		r->ops->cast(r->s, d, f32(r->dhidden), r->head_n * h);
	if (!r->head_rows)
		return;
	r->ops->zero(r->s, r->dn.p, (size_t)(r->t * h) * ww_dtype_bytes(r->dn.dtype));
	if (r->head_n)
		r->ops->scatter(r->s, r->dn, d, r->head_rows, r->head_n, h);
}

enum ww_rc ww_run_trunk_backward(struct ww_run *r, struct ww_err *err)
{
	const struct ww_config *f = &r->m->config;
	hidden_backward(r);
	r->ops->rmsnorm_bwd(r->s, r->dres, ww_run_grad(r, r->norm), r->dn, r->x_out, ww_run_weight(r, r->norm), r->rstd,
		r->t, f->hidden_size);
	for (int64_t i = f->layers - 1; i >= 0; i--) {
		struct ww_layer *l = &r->layers[i];
		if (f->layers - i > r->keep)
			ww_run_layer(r, l);
		mlp_backward(r, l);
		attention_backward(r, l);
	}
	r->ops->embed_bwd(r->s, ww_run_grad(r, &r->m->params[0]), r->dres, r->ids, r->t, f->hidden_size);
	return r->ops->sync(r->s, err);
}

enum ww_rc ww_run_backward(struct ww_run *r, const float *dlogp, struct ww_err *err)
{
	WW_BUG(!r->keep || !r->grads || !r->has_head || r->m->config.critic);
	r->ops->upload(r->s, r->dlogp, dlogp, (size_t)r->head_n * 4);
	ww_run_head_backward(r);
	return ww_run_trunk_backward(r, err);
}

enum ww_rc ww_run_values_backward(struct ww_run *r, const float *dvalues, struct ww_err *err)
{
	WW_BUG(!r->keep || !r->grads || !r->has_head || !r->m->config.critic);
	r->ops->upload(r->s, r->dlogp, dvalues, (size_t)r->head_n * 4);
	ww_run_values_head_backward(r);
	return ww_run_trunk_backward(r, err);
}
