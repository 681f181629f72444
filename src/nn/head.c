/* head.c - from hidden states to log-probabilities or values, and back.
 *
 * With 150,000 words the logits of a batch would be larger than the model, so they exist for WW_HEAD_T tokens and WW_HEAD_V
 * columns at a time: forward keeps only maximum, sum and the target's logit, backward computes each chunk again.  The chunks
 * begin at fixed columns, so a token's sum has one order whatever it is batched with.
 *
 * The gradient enters as one number a token, that by its log-probability: cross-entropy, policy gradients and their
 * mixtures are all that times something which the caller knows.  A critic has one row of weights instead of a vocabulary's,
 * and the same seam: a value a token out, a gradient a token in.
 */
#include "nn/run.h"
#include "nn/safetensors.h"

static struct ww_arr at(struct ww_arr a, int64_t i)
{
	return (struct ww_arr){ (char *)a.p + (size_t)i * ww_dtype_bytes(a.dtype), a.dtype };
}
static struct ww_arr f32(float *p) { return (struct ww_arr){ p, WW_F32 }; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static enum ww_rc need_vocabulary(const struct ww_run *r, struct ww_err *err)
{
	return r->m->config.critic ? ww_err_set(err, WW_ERR_USAGE, "this model is a critic: it values tokens and has no distribution over them")
				   : WW_OK;
}

/* Logits of tokens t0.. (n of them), columns v0.. (nv of them). */
static void chunk_logits(struct ww_run *r, int64_t t0, int64_t n, int64_t v0, int64_t nv)
{
	int64_t h = r->m->config.hidden_size;
	r->ops->gemm(r->s, WW_GEMM_NT, f32(r->logits), at(r->hidden, t0 * h), at(ww_run_weight(r, r->head), v0 * h), n, nv, h, 0);
}

enum ww_rc ww_run_logprobs(struct ww_run *r, const int32_t *targets, float *logp, struct ww_err *err)
{
	int64_t v = r->m->config.vocab_size;
	enum ww_rc rc = need_vocabulary(r, err);
	if (rc != WW_OK)
		return rc;
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
	r->has_head = 1;
	return r->ops->sync(r->s, err);
}

/* dhidden (fp32), and the gradient of its weights. */
void ww_run_head_backward(struct ww_run *r)
{
	int64_t v = r->m->config.vocab_size, h = r->m->config.hidden_size;
	for (int64_t t0 = 0; t0 < r->t; t0 += WW_HEAD_T) {
		int64_t n = least(WW_HEAD_T, r->t - t0);
		for (int64_t v0 = 0; v0 < v; v0 += WW_HEAD_V) {
			int64_t nv = least(WW_HEAD_V, v - v0);
			chunk_logits(r, t0, n, v0, nv);
			r->ops->softmax_bwd(r->s, r->dlogits, r->logits, r->targets + t0, r->lse + t0, r->dlogp + t0, n, v0, nv);
			r->ops->gemm(r->s, WW_GEMM_NN, f32(r->dhidden + t0 * h), r->dlogits, at(ww_run_weight(r, r->head), v0 * h), n, h, nv,
				     v0 > 0);
			r->ops->gemm(r->s, WW_GEMM_TN, f32(ww_run_grad(r, r->head) + v0 * h), r->dlogits, at(r->hidden, t0 * h), nv, h, n, 1);
		}
	}
}

enum ww_rc ww_run_values(struct ww_run *r, float *values, struct ww_err *err)
{
	WW_BUG(!r->m->config.critic);
	r->ops->gemm(r->s, WW_GEMM_NT, f32(r->logp), r->hidden, ww_run_weight(r, r->head), r->t, 1, r->m->config.hidden_size, 0);
	r->ops->download(r->s, values, r->logp, (size_t)r->t * 4);
	r->has_head = 1;
	return r->ops->sync(r->s, err);
}

void ww_run_values_head_backward(struct ww_run *r)
{
	int64_t h = r->m->config.hidden_size;
	r->ops->cast(r->s, r->dlogits, f32(r->dlogp), r->t);
	r->ops->gemm(r->s, WW_GEMM_NN, f32(r->dhidden), r->dlogits, ww_run_weight(r, r->head), r->t, h, 1, 0);
	r->ops->gemm(r->s, WW_GEMM_TN, f32(ww_run_grad(r, r->head)), r->dlogits, r->hidden, 1, h, r->t, 1);
}
