/* head.c - from hidden states to log-probabilities or values, and back.
 *
 * With a vocabulary of 150,000 the logits of a batch would be larger than the model, so they exist for some thousand
 * tokens at a time, and outside of training for WW_HEAD_V columns: forward keeps only maximum, sum and the target's
 * logit, backward computes each chunk again.  Where the gradient is known beforehand, as cross-entropy's is,
 * ww_run_learn() goes forward and back with each group of tokens while its logits are there.  The chunks begin at fixed
 * columns, so a token's sum has one order whatever it is batched with, and both ways give the same bits.
 *
 * Only the rows that a batch names take part: what a policy was given, prompts and outputs of tools, costs no logits.
 * Their hidden states are gathered behind one another, so the head's products are as small as their number.
 *
 * The gradient enters as one number a token, that by its log-probability: cross-entropy, policy gradients and their
 * mixtures are all that times something which the caller knows.  A critic has one row of weights instead of a
 * vocabulary's, and the same interface: a value a token out, a gradient a token in.
 */
#include "nn/run.h"
#include "base/range.h"
#include "base/dtype.h"

static struct ww_arr at(struct ww_arr a, int64_t i)
{
	return (struct ww_arr){ (char *)a.p + (size_t)i * ww_dtype_bytes(a.dtype), a.dtype };
}
static struct ww_arr f32(float *p) { return (struct ww_arr){ p, WW_F32 }; }

static enum ww_rc check_targets(const struct ww_run *r, const int32_t *targets, int64_t t, struct ww_err *err)
{
	int64_t v = r->m->config.vocab_size;
	if (r->m->config.critic)
		return ww_err_set(
			err, WW_ERR_USAGE, "this model is a critic, which has no logits; take the policy's checkpoint");
	for (int64_t i = 0; i < t; i++)
		if (targets[i] < 0 || targets[i] >= v)
			return ww_err_set(
				err, WW_ERR_USAGE, "token %d is outside the model's vocabulary of %lld", targets[i], (long long)v);
	return WW_OK;
}

/* Where the logits of n rows and of the columns from v0 lie. */
static float *logits_at(const struct ww_run *r, int64_t n, int64_t v0) { return r->logits + (r->keep ? n * v0 : 0); }

/* Logits of the head's rows t0.. (n of them), columns v0.. (nv of them). */
static void chunk_logits(struct ww_run *r, int64_t t0, int64_t n, int64_t v0, int64_t nv)
{
	int64_t h = r->m->config.hidden_size;
	r->ops->gemm(r->s, WW_GEMM_NT, f32(logits_at(r, n, v0)), at(r->head_x, t0 * h),
		at(ww_run_weight(r, r->head), v0 * h), n, nv, h, 0);
}

/* The rows' entropies; their lse has been computed. */
static void rows_entropy(struct ww_run *r, int64_t t0, int64_t n)
{
	int64_t v = r->m->config.vocab_size;
	for (int64_t v0 = 0; v0 < v; v0 += WW_HEAD_V) {
		int64_t nv = ww_min_i64(WW_HEAD_V, v - v0);
		if (!r->keep && v > WW_HEAD_V) /* other columns have taken their place */
			chunk_logits(r, t0, n, v0, nv);
		r->ops->softmax_entropy(r->s, r->entropy + t0, logits_at(r, n, v0), r->lse + t0, n, v0, nv);
	}
}

/* logp and lse of the head's rows t0.. (n of them), and their entropy where it is asked for. */
static void rows_forward(struct ww_run *r, int64_t t0, int64_t n)
{
	int64_t v = r->m->config.vocab_size;
	for (int64_t v0 = 0; v0 < v; v0 += WW_HEAD_V) {
		int64_t nv = ww_min_i64(WW_HEAD_V, v - v0);
		chunk_logits(r, t0, n, v0, nv);
		r->ops->softmax_chunk(r->s, r->state + 3 * t0, logits_at(r, n, v0), r->targets + t0, n, v0, nv);
	}
	r->ops->softmax_finish(r->s, r->logp + t0, r->lse + t0, r->state + 3 * t0, n);
	if (r->with_entropy)
		rows_entropy(r, t0, n);
}

/* From dlogp of these rows: dhidden, and the gradient of the weights.  again: their logits are not there any more. */
static void rows_backward(struct ww_run *r, int64_t t0, int64_t n, int again)
{
	int64_t v = r->m->config.vocab_size, h = r->m->config.hidden_size;
	for (int64_t v0 = 0; v0 < v; v0 += WW_HEAD_V) {
		int64_t nv = ww_min_i64(WW_HEAD_V, v - v0);
		float *logits = logits_at(r, n, v0);
		struct ww_arr d = r->dlogits.p ? r->dlogits : f32(logits);
		if (again)
			chunk_logits(r, t0, n, v0, nv);
		r->ops->softmax_bwd(r->s, d, logits, r->targets + t0, r->lse + t0, r->dlogp + t0, n, v0, nv);
		r->ops->gemm(
			r->s, WW_GEMM_NN, f32(r->dhidden + t0 * h), d, at(ww_run_weight(r, r->head), v0 * h), n, h, nv, v0 > 0);
		r->ops->gemm(r->s, WW_GEMM_TN, f32(ww_run_grad(r, r->head) + v0 * h), d, at(r->head_x, t0 * h), nv, h, n, 1);
	}
}

enum ww_rc ww_run_logprobs(struct ww_run *r, const int32_t *targets, float *logp, struct ww_err *err)
{
	WW_CHECK(check_targets(r, targets, r->head_n, err));
	r->ops->upload(r->s, r->targets, targets, (size_t)r->head_n * 4);
	for (int64_t t0 = 0; t0 < r->head_n; t0 += r->head_t)
		rows_forward(r, t0, ww_min_i64(r->head_t, r->head_n - t0));
	r->ops->download(r->s, logp, r->logp, (size_t)r->head_n * 4);
	r->has_head = 1;
	return r->ops->sync(r->s, err);
}

enum ww_rc ww_run_entropy(struct ww_run *r, float *entropy, struct ww_err *err)
{
	WW_BUG(!r->with_entropy || r->m->config.critic);
	r->ops->download(r->s, entropy, r->entropy, (size_t)r->head_n * 4);
	return r->ops->sync(r->s, err);
}

void ww_run_head_backward(struct ww_run *r)
{
	for (int64_t t0 = 0; t0 < r->head_n; t0 += r->head_t)
		rows_backward(r, t0, ww_min_i64(r->head_t, r->head_n - t0), 1);
}

enum ww_rc ww_run_learn(struct ww_run *r, const struct ww_batch *b, const int32_t *targets, const float *dlogp,
	float *logp, struct ww_err *err)
{
	WW_BUG(!r->keep || !r->grads);
	WW_CHECK(check_targets(r, targets, b->rows ? b->n_rows : b->t, err));
	WW_CHECK(ww_run_upload(r, b, err));
	r->ops->upload(r->s, r->targets, targets, (size_t)r->head_n * 4);
	r->ops->upload(r->s, r->dlogp, dlogp, (size_t)r->head_n * 4);
	ww_run_compute(r);
	for (int64_t t0 = 0; t0 < r->head_n; t0 += r->head_t) {
		rows_forward(r, t0, ww_min_i64(r->head_t, r->head_n - t0));
		rows_backward(r, t0, ww_min_i64(r->head_t, r->head_n - t0), 0);
	}
	r->ops->download(r->s, logp, r->logp, (size_t)r->head_n * 4);
	return ww_run_trunk_backward(r, err);
}

enum ww_rc ww_run_values(struct ww_run *r, float *values, struct ww_err *err)
{
	WW_BUG(!r->m->config.critic);
	if (r->head_n)
		r->ops->gemm(r->s, WW_GEMM_NT, f32(r->logp), r->head_x, ww_run_weight(r, r->head), r->head_n, 1,
			r->m->config.hidden_size, 0);
	r->ops->download(r->s, values, r->logp, (size_t)r->head_n * 4);
	r->has_head = 1;
	return r->ops->sync(r->s, err);
}

void ww_run_values_head_backward(struct ww_run *r)
{
	int64_t h = r->m->config.hidden_size, n = r->head_n;
	if (!n)
		return;
	r->ops->cast(r->s, r->dvalues, f32(r->dlogp), n);
	r->ops->gemm(r->s, WW_GEMM_NN, f32(r->dhidden), r->dvalues, ww_run_weight(r, r->head), n, h, 1, 0);
	r->ops->gemm(r->s, WW_GEMM_TN, f32(ww_run_grad(r, r->head)), r->dvalues, r->head_x, 1, h, n, 1);
}
