/* backward.c - log-probabilities over a vocabulary in chunks, and the gradients of everything.
 *
 * With 150,000 words the logits of a batch would be larger than the model, so they exist for WW_HEAD_T tokens and WW_HEAD_V
 * columns at a time: forward keeps only maximum, sum and the target's logit, backward computes each chunk again.  The chunks
 * begin at fixed columns, so a token's sum has one order whatever it is batched with.
 *
 * The gradient enters as one number a token, that by its log-probability: cross-entropy, policy gradients and their
 * mixtures are all that times something which the caller knows.
 */
#include "nn/run.h"
#include "nn/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ww_arr weight(const struct ww_run *r, const struct ww_param *p) { return ww_model_weight(r->m, p); }
static struct ww_arr at(struct ww_arr a, int64_t i)
{
	return (struct ww_arr){ (char *)a.p + (size_t)i * ww_dtype_bytes(a.dtype), a.dtype };
}
static struct ww_arr f32(float *p) { return (struct ww_arr){ p, WW_F32 }; }
static float *grad(const struct ww_run *r, const struct ww_param *p) { return r->grads + p->offset; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Logits of tokens t0.. (n of them), columns v0.. (nv of them). */
static void chunk_logits(struct ww_run *r, int64_t t0, int64_t n, int64_t v0, int64_t nv)
{
	int64_t h = r->m->config.hidden_size;
	r->ops->gemm(r->s, WW_GEMM_NT, f32(r->logits), at(r->hidden, t0 * h), at(weight(r, r->head), v0 * h), n, nv, h, 0);
}

enum ww_rc ww_run_logprobs(struct ww_run *r, const int32_t *targets, float *logp, struct ww_err *err)
{
	int64_t v = r->m->config.vocab_size;
	for (int64_t i = 0; i < r->t; i++)
		if (targets[i] < 0 || targets[i] >= v)
			return ww_err_set(err, WW_ERR_USAGE, "token %d is outside the model's vocabulary of %lld", targets[i], (long long)v);
	r->ops->upload(r->s, r->targets, targets, (size_t)r->t * 4);
	for (int64_t t0 = 0; t0 < r->t; t0 += WW_HEAD_T) {
		int64_t n = least(WW_HEAD_T, r->t - t0);
		for (int64_t v0 = 0; v0 < v; v0 += WW_HEAD_V) {
			int64_t nv = least(WW_HEAD_V, v - v0);
			chunk_logits(r, t0, n, v0, nv);
			r->ops->softmax_chunk(r->s, r->state + 3 * t0, r->logits, r->targets + t0, n, v0, nv);
		}
	}
	r->ops->softmax_finish(r->s, r->logp, r->lse, r->state, r->t);
	r->ops->download(r->s, logp, r->logp, (size_t)r->t * 4);
	r->has_logits = 1;
	return r->ops->sync(r->s, err);
}

/* dhidden (fp32) and the head's gradient. */
static void head_backward(struct ww_run *r)
{
	int64_t v = r->m->config.vocab_size, h = r->m->config.hidden_size;
	for (int64_t t0 = 0; t0 < r->t; t0 += WW_HEAD_T) {
		int64_t n = least(WW_HEAD_T, r->t - t0);
		for (int64_t v0 = 0; v0 < v; v0 += WW_HEAD_V) {
			int64_t nv = least(WW_HEAD_V, v - v0);
			chunk_logits(r, t0, n, v0, nv);
			r->ops->softmax_bwd(r->s, r->dlogits, r->logits, r->targets + t0, r->lse + t0, r->dlogp + t0, n, v0, nv);
			r->ops->gemm(r->s, WW_GEMM_NN, f32(r->dhidden + t0 * h), r->dlogits, at(weight(r, r->head), v0 * h), n, h, nv,
				     v0 > 0);
			r->ops->gemm(r->s, WW_GEMM_TN, f32(grad(r, r->head) + v0 * h), r->dlogits, at(r->hidden, t0 * h), nv, h, n, 1);
		}
	}
}

/* Of y = x W^T + b: dx = (or +=) dy W, dW += dy^T x, db += sum dy. */
static void linear_backward(struct ww_run *r, struct ww_arr dx, struct ww_arr dy, struct ww_arr x, struct ww_lin l, int accumulate)
{
	r->ops->gemm(r->s, WW_GEMM_NN, dx, dy, weight(r, l.w), r->t, l.w->cols, l.w->rows, accumulate);
	r->ops->gemm(r->s, WW_GEMM_TN, f32(grad(r, l.w)), dy, x, l.w->rows, l.w->cols, r->t, 1);
	if (l.b)
		r->ops->bias_bwd(r->s, grad(r, l.b), dy, r->t, l.w->rows);
}

/* dres += the gradient through a norm whose output's gradient is dn. */
static void norm_backward(struct ww_run *r, struct ww_arr x, const struct ww_param *w, const float *rstd)
{
	int64_t h = r->m->config.hidden_size;
	r->ops->rmsnorm_bwd(r->s, r->dn, grad(r, w), r->dn, x, weight(r, w), rstd, r->t, h);
	r->ops->add(r->s, r->dres, r->dres, r->dn, r->t * h);
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
	struct ww_attn_bwd a = { .fwd = { .q = l->qh, .k = l->kh, .v = l->vh, .out = l->att, .lse = l->lse, .seq = r->seq,
					  .pos = r->pos, .start = r->start, .t = r->t, .heads = f->heads, .kv_heads = f->kv_heads,
					  .head_dim = f->head_dim, .scale = (float)(1 / sqrt((double)f->head_dim)) },
				 .sequences = r->sequences, .dout = r->datt, .dq = r->dq, .dk = r->dk, .dv = r->dv };
	linear_backward(r, r->datt, r->dres, l->att, l->w.o, 0);
	r->ops->attention_bwd(r->s, &a);
	r->ops->rope(r->s, r->dq, r->cs, 1, r->t, f->heads, f->head_dim);
	r->ops->rope(r->s, r->dk, r->cs, 1, r->t, f->kv_heads, f->head_dim);
	if (l->w.q_norm) {
		r->ops->rmsnorm_bwd(r->s, r->dq, grad(r, l->w.q_norm), r->dq, l->q_pre, weight(r, l->w.q_norm), l->rstd_q, r->t * f->heads,
				    f->head_dim);
		r->ops->rmsnorm_bwd(r->s, r->dk, grad(r, l->w.k_norm), r->dk, l->k_pre, weight(r, l->w.k_norm), l->rstd_k,
				    r->t * f->kv_heads, f->head_dim);
	}
	linear_backward(r, r->dn, r->dq, l->n1, l->w.q, 0);
	linear_backward(r, r->dn, r->dk, l->n1, l->w.k, 1);
	linear_backward(r, r->dn, r->dv, l->n1, l->w.v, 1);
	norm_backward(r, l->x_in, l->w.norm1, l->rstd1);
}

enum ww_rc ww_run_backward(struct ww_run *r, const float *dlogp, struct ww_err *err)
{
	const struct ww_config *f = &r->m->config;
	WW_BUG(!r->train || !r->has_logits);
	r->ops->upload(r->s, r->dlogp, dlogp, (size_t)r->t * 4);
	head_backward(r);
	r->ops->cast(r->s, r->dn, f32(r->dhidden), r->t * f->hidden_size);
	r->ops->rmsnorm_bwd(r->s, r->dres, grad(r, r->norm), r->dn, r->x_out, weight(r, r->norm), r->rstd, r->t, f->hidden_size);
	for (int64_t i = f->layers - 1; i >= 0; i--) {
		mlp_backward(r, &r->layers[i]);
		attention_backward(r, &r->layers[i]);
	}
	r->ops->embed_bwd(r->s, grad(r, &r->m->params[0]), r->dres, r->ids, r->t, f->hidden_size);
	return r->ops->sync(r->s, err);
}
