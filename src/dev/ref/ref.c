/* ref.c - the reference backend: every operation as plainly as possible.
 *
 * Other backends are compared with this one: scalar loops, double precision inside.  It shares no code with the fast
 * backends, and its gradients are compared with finite differences of its own forward functions
 * (tests/unit/dev/test_grad.c).
 */
#include "dev/dev.h"

#include <gnu/libc-version.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ww_stream {
	struct ww_dev *d;
};

static double get(struct ww_arr a, int64_t i)
{
	return a.dtype == WW_F32 ? (double)((const float *)a.p)[i] : (double)ww_bf16_to(((const uint16_t *)a.p)[i]);
}

static void set(struct ww_arr a, int64_t i, double v)
{
	if (a.dtype == WW_F32)
		((float *)a.p)[i] = (float)v;
	else
		((uint16_t *)a.p)[i] = ww_bf16_from((float)v);
}

static enum ww_rc ref_stream_new(struct ww_dev *d, struct ww_stream **out, struct ww_err *err)
{
	WW_CHECK(WW_NEW(*out, 1, err));
	(*out)->d = d;
	return WW_OK;
}

static void ref_stream_free(struct ww_stream *s) { free(s); }

static enum ww_rc ref_sync(struct ww_stream *s, struct ww_err *err) { return WW_OK; }

static void ref_close(struct ww_dev *d) { free(d); }

static void ref_move(struct ww_stream *s, void *dst, const void *src, size_t bytes)
{
	if (bytes)
		memcpy(dst, src, bytes);
}

static void ref_zero(struct ww_stream *s, void *dst, size_t bytes) { memset(dst, 0, bytes); }

static void ref_cast(struct ww_stream *s, struct ww_arr dst, struct ww_arr src, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		set(dst, i, get(src, i));
}

/* The rows of a matrix, or its columns, one behind the other as doubles. */
static double *doubles(struct ww_arr a, int64_t rows, int64_t cols, int columns)
{
	double *d = calloc((size_t)(rows * cols + 1), sizeof(*d));
	WW_BUG(!d);
	for (int64_t i = 0; i < rows * cols; i++)
		d[columns ? i % cols * rows + i / cols : i] = get(a, i);
	return d;
}

static void ref_gemm(struct ww_stream *s, enum ww_gemm_form form, struct ww_arr c, struct ww_arr a, struct ww_arr b,
	int64_t m, int64_t n, int64_t k, int accumulate)
{
	double *x = form == WW_GEMM_TN ? doubles(a, k, m, 1) : doubles(a, m, k, 0);
	double *y = form == WW_GEMM_NT ? doubles(b, n, k, 0) : doubles(b, k, n, 1);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			double sum = accumulate ? get(c, i * n + j) : 0;
			for (int64_t l = 0; l < k; l++)
				sum += x[i * k + l] * y[j * k + l];
			set(c, i * n + j, sum);
		}
	free(x);
	free(y);
}

static void ref_bias(struct ww_stream *s, struct ww_arr y, struct ww_arr bias, int64_t t, int64_t n)
{
	for (int64_t i = 0; i < t * n; i++)
		set(y, i, get(y, i) + get(bias, i % n));
}

static void ref_bias_bwd(struct ww_stream *s, float *dbias, struct ww_arr dy, int64_t t, int64_t n)
{
	for (int64_t j = 0; j < n; j++) {
		double sum = (double)dbias[j];
		for (int64_t i = 0; i < t; i++)
			sum += get(dy, i * n + j);
		dbias[j] = (float)sum;
	}
}

static void ref_add(struct ww_stream *s, struct ww_arr y, struct ww_arr a, struct ww_arr b, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		set(y, i, get(a, i) + get(b, i));
}

static void ref_embed(
	struct ww_stream *s, struct ww_arr y, struct ww_arr table, const int32_t *ids, int64_t t, int64_t h)
{
	for (int64_t i = 0; i < t * h; i++)
		set(y, i, get(table, ids[i / h] * h + i % h));
}

static void ref_embed_bwd(
	struct ww_stream *s, float *dtable, struct ww_arr dy, const int32_t *ids, int64_t t, int64_t h)
{
	for (int64_t i = 0; i < t * h; i++)
		dtable[ids[i / h] * h + i % h] += (float)get(dy, i);
}

static void ref_scatter(
	struct ww_stream *s, struct ww_arr dst, struct ww_arr src, const int32_t *rows, int64_t t, int64_t width)
{
	for (int64_t i = 0; i < t * width; i++)
		set(dst, rows[i / width] * width + i % width, get(src, i));
}

static void ref_rmsnorm(struct ww_stream *s, struct ww_arr y, float *rstd, struct ww_arr x, struct ww_arr w, int64_t t,
	int64_t h, float eps)
{
	for (int64_t i = 0; i < t; i++) {
		double sum = 0;
		for (int64_t j = 0; j < h; j++)
			sum += get(x, i * h + j) * get(x, i * h + j);
		double r = 1 / sqrt(sum / (double)h + (double)eps);
		for (int64_t j = 0; j < h; j++)
			set(y, i * h + j, get(x, i * h + j) * r * get(w, j));
		if (rstd)
			rstd[i] = (float)r;
	}
}

/* With n = x r:  dx = r (dy w - n mean(dy w n)),  dw = sum dy n. */
static void ref_rmsnorm_bwd(struct ww_stream *s, struct ww_arr dx, float *dw, struct ww_arr dy, struct ww_arr x,
	struct ww_arr w, const float *rstd, int64_t t, int64_t h)
{
	for (int64_t i = 0; i < t; i++) {
		double r = (double)rstd[i], mean = 0;
		for (int64_t j = 0; j < h; j++)
			mean += get(dy, i * h + j) * get(w, j) * get(x, i * h + j) * r / (double)h;
		for (int64_t j = 0; j < h; j++) {
			double n = get(x, i * h + j) * r, g = get(dy, i * h + j);
			dw[j] += (float)(g * n);
			set(dx, i * h + j, r * (g * get(w, j) - n * mean));
		}
	}
}

static void ref_rope_table(
	struct ww_stream *s, float *cs, const int32_t *pos, const float *freq, float factor, int64_t t, int64_t d)
{
	for (int64_t i = 0; i < t * d; i++) {
		int64_t j = i % d, half = d / 2;
		float angle = (float)pos[i / d] * freq[j % half]; /* in fp32, as the models were trained */
		cs[i] = (float)((j < half ? cos((double)angle) : sin((double)angle)) * (double)factor);
	}
}

static void ref_rope(
	struct ww_stream *s, struct ww_arr x, const float *cs, int backward, int64_t t, int64_t heads, int64_t d)
{
	for (int64_t i = 0; i < t * heads; i++)
		for (int64_t j = 0; j < d / 2; j++) {
			double c = (double)cs[i / heads * d + j], n = (double)cs[i / heads * d + d / 2 + j];
			double u = get(x, i * d + j), v = get(x, i * d + d / 2 + j);
			n = backward ? -n : n;
			set(x, i * d + j, u * c - v * n);
			set(x, i * d + d / 2 + j, v * c + u * n);
		}
}

static int64_t key_row(const struct ww_attn *a, int64_t seq, int64_t p)
{
	return a->pages ? a->pages[seq * a->pages_stride + p / a->page_size] * a->page_size + p % a->page_size
					: a->start[seq] + p;
}

static double score(const struct ww_attn *a, int64_t t, int64_t head, int64_t row)
{
	int64_t kh = head / (a->heads / a->kv_heads), d = a->head_dim;
	double sum = 0;
	for (int64_t j = 0; j < d; j++)
		sum += get(a->q, (t * a->heads + head) * d + j) * get(a->k, (row * a->kv_heads + kh) * d + j);
	return sum * (double)a->scale;
}

static void ref_attention(struct ww_stream *s, const struct ww_attn *a)
{
	int64_t d = a->head_dim;
	for (int64_t t = 0; t < a->t; t++)
		for (int64_t h = 0; h < a->heads; h++) {
			int64_t kh = h / (a->heads / a->kv_heads), seq = a->seq[t];
			double max = -INFINITY, sum = 0, acc[1024] = { 0 },
				   *scores = calloc((size_t)a->pos[t] + 1, sizeof(*scores));
			WW_BUG(d > 1024 || !scores);
			for (int64_t p = 0; p <= a->pos[t]; p++)
				max = fmax(max, scores[p] = score(a, t, h, key_row(a, seq, p)));
			for (int64_t p = 0; p <= a->pos[t]; p++) {
				int64_t row = key_row(a, seq, p);
				double e = exp(scores[p] - max);
				sum += e;
				for (int64_t j = 0; j < d; j++)
					acc[j] += e * get(a->v, (row * a->kv_heads + kh) * d + j);
			}
			for (int64_t j = 0; j < d; j++)
				set(a->out, (t * a->heads + h) * d + j, acc[j] / sum);
			if (a->lse)
				a->lse[t * a->heads + h] = (float)(max + log(sum));
			free(scores);
		}
}

/* One query head: p = exp(s - lse), dv += p do, ds = p (do.v - do.o), dq += ds k, dk += ds q. */
static void ref_attention_bwd_row(const struct ww_attn_bwd *b, int64_t t, int64_t h, double *dq, double *dk, double *dv)
{
	const struct ww_attn *a = &b->fwd;
	int64_t d = a->head_dim, kh = h / (a->heads / a->kv_heads), qi = (t * a->heads + h) * d;
	double delta = 0;
	for (int64_t j = 0; j < d; j++)
		delta += get(b->dout, qi + j) * get(a->out, qi + j);
	for (int64_t p = 0; p <= a->pos[t]; p++) {
		int64_t row = key_row(a, a->seq[t], p), ki = (row * a->kv_heads + kh) * d;
		double e = exp(score(a, t, h, row) - (double)a->lse[t * a->heads + h]), dp = 0;
		for (int64_t j = 0; j < d; j++)
			dp += get(b->dout, qi + j) * get(a->v, ki + j);
		double ds = e * (dp - delta) * (double)a->scale;
		for (int64_t j = 0; j < d; j++) {
			dv[ki + j] += e * get(b->dout, qi + j);
			dq[qi + j] += ds * get(a->k, ki + j);
			dk[ki + j] += ds * get(a->q, qi + j);
		}
	}
}

static void ref_attention_bwd(struct ww_stream *s, const struct ww_attn_bwd *b)
{
	const struct ww_attn *a = &b->fwd;
	int64_t nq = a->t * a->heads * a->head_dim, nk = a->t * a->kv_heads * a->head_dim;
	double *dq = calloc((size_t)(nq + 2 * nk + 1), sizeof(*dq)), *dk = dq + nq, *dv = dk + nk;
	WW_BUG(!dq);
	for (int64_t t = 0; t < a->t; t++)
		for (int64_t h = 0; h < a->heads; h++)
			ref_attention_bwd_row(b, t, h, dq, dk, dv);
	for (int64_t i = 0; i < nq; i++)
		set(b->dq, i, dq[i]);
	for (int64_t i = 0; i < nk; i++) {
		set(b->dk, i, dk[i]);
		set(b->dv, i, dv[i]);
	}
	free(dq);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void ref_swiglu(struct ww_stream *s, struct ww_arr y, struct ww_arr gate, struct ww_arr up, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		set(y, i, get(gate, i) * sigmoid(get(gate, i)) * get(up, i));
}

static void ref_swiglu_bwd(struct ww_stream *s, struct ww_arr dgate, struct ww_arr dup, struct ww_arr dy,
	struct ww_arr gate, struct ww_arr up, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double g = get(gate, i), sg = sigmoid(g), d = get(dy, i), u = get(up, i);
		set(dup, i, d * g * sg);
		set(dgate, i, d * u * sg * (1 + g * (1 - sg)));
	}
}

static void ref_softmax_chunk(
	struct ww_stream *s, float *state, const float *logits, const int32_t *targets, int64_t t, int64_t first, int64_t n)
{
	for (int64_t i = 0; i < t; i++) {
		float *st = state + 3 * i;
		const float *l = logits + i * n;
		double max = first ? (double)st[0] : -INFINITY, sum = first ? (double)st[1] : 0, old = max;
		for (int64_t j = 0; j < n; j++)
			max = fmax(max, (double)l[j]);
		sum *= first ? exp(old - max) : 0;
		for (int64_t j = 0; j < n; j++)
			sum += exp((double)l[j] - max);
		st[0] = (float)max;
		st[1] = (float)sum;
		if (!first)
			st[2] = 0;
		if (targets[i] >= first && targets[i] < first + n)
			st[2] = l[targets[i] - first];
	}
}

static void ref_softmax_finish(struct ww_stream *s, float *logp, float *lse, const float *state, int64_t t)
{
	for (int64_t i = 0; i < t; i++) {
		double v = (double)state[3 * i] + log((double)state[3 * i + 1]);
		if (logp)
			logp[i] = (float)((double)state[3 * i + 2] - v);
		if (lse)
			lse[i] = (float)v;
	}
}

static void ref_softmax_bwd(struct ww_stream *s, struct ww_arr dlogits, const float *logits, const int32_t *targets,
	const float *lse, const float *dlogp, int64_t t, int64_t first, int64_t n)
{
	for (int64_t i = 0; i < t; i++)
		for (int64_t j = 0; j < n; j++) {
			double p = exp((double)logits[i * n + j] - (double)lse[i]);
			set(dlogits, i * n + j, (double)dlogp[i] * ((targets[i] == first + j) - p));
		}
}

static void ref_softmax_entropy(
	struct ww_stream *s, float *entropy, const float *logits, const float *lse, int64_t t, int64_t first, int64_t n)
{
	for (int64_t i = 0; i < t; i++) {
		double sum = first ? (double)entropy[i] : 0;
		for (int64_t j = 0; j < n; j++) {
			double logp = (double)logits[i * n + j] - (double)lse[i];
			sum -= logp > -INFINITY ? exp(logp) * logp : 0;
		}
		entropy[i] = (float)sum;
	}
}

static void ref_sample(struct ww_stream *s, struct ww_sampled *out, const struct ww_sampler *how, const float *logits,
	const float *lse, int64_t t, int64_t v, int64_t chunk)
{
	uint64_t *weight = malloc((size_t)v * sizeof(*weight));
	float *row = malloc((size_t)v * sizeof(*row));
	WW_BUG(!weight || !row);
	for (int64_t i = 0; i < t; i++) {
		ww_dev_sample_row(logits, i, t, v, chunk, row);
		ww_dev_sample(row, v, lse[i], &how[i], weight, &out[i]);
	}
	free(weight);
	free(row);
}

static void ref_sumsq(struct ww_stream *s, float *out, const float *x, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	*out += (float)sum;
}

static void ref_clip_factor(struct ww_stream *s, float *out, const float *in, float limit)
{
	*out = *in > 0 ? (float)fmin(1, (double)limit / sqrt((double)*in)) : *in == 0 ? 1 : NAN;
}

static void ref_adamw(struct ww_stream *s, float *master, struct ww_arr model, float *m, float *v, const float *grad,
	const float *scale, const struct ww_adamw *h, int64_t n)
{
	double b1 = (double)h->beta1, b2 = (double)h->beta2, lr = (double)h->lr;
	double c1 = 1 - pow(b1, (double)h->step), c2 = 1 - pow(b2, (double)h->step);
	for (int64_t i = 0; i < n; i++) {
		double g = (double)grad[i] * (double)*scale;
		m[i] = (float)(b1 * (double)m[i] + (1 - b1) * g);
		v[i] = (float)(b2 * (double)v[i] + (1 - b2) * g * g);
		double p = (double)master[i] * (1 - lr * (double)h->weight_decay);
		master[i] = (float)(p - lr * ((double)m[i] / c1) / (sqrt((double)v[i] / c2) + (double)h->eps));
		if (model.p)
			set(model, i, (double)master[i]);
	}
}

static const struct ww_dev_ops ref_ops = { .name = "ref",
	.alloc = ww_dev_host_alloc,
	.free = ww_dev_host_free,
	.memory = ww_dev_host_memory,
	.upload = ref_move,
	.download = ref_move,
	.cast = ref_cast,
	.gemm = ref_gemm,
	.attention = ref_attention,
	.attention_bwd = ref_attention_bwd,
	WW_DEV_OPS(ref) WW_DEV_FUSED_OPS(ww_dev) };

enum ww_rc ww_dev_ref_open(struct ww_dev **out, struct ww_err *err)
{
	struct ww_dev *d;
	WW_CHECK(WW_NEW(d, 1, err));
	d->ops = &ref_ops;
	d->exact = 1;
	snprintf(d->bits.device, sizeof(d->bits.device), "ref");
	snprintf(d->bits.libraries, sizeof(d->bits.libraries), "glibc %s", gnu_get_libc_version());
	*out = d;
	return WW_OK;
}
