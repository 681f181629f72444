/* forward.c - the workspace of a batch, and the forward pass.
 *
 * Sequences are packed one after the other; only attention and positions depend on where one ends.  The workspace is
 * one block of device memory.  One function computes its size and its layout, so the size is known before a run starts.
 * Without a backward pass all layers share one set of activations.  With one, the last `keep` layers have a set each;
 * the layers before them store their input only and share the set of the last layer, which is free again when the
 * backward pass recomputes theirs.
 *
 *   x_in -> norm1 -> q k v -> [q,k norm] -> rope -> attention -> o  (+ x_in)  = x_mid
 *   x_mid -> norm2 -> gate, up -> swiglu -> down  (+ x_mid)  = x_in of the next layer
 */
#include "nn/run.h"
#include "base/range.h"
#include "base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cutter {
	char *base;
	uint64_t at;
};

static void *cut(struct cutter *c, int64_t n, size_t item)
{
	void *p = c->base ? c->base + c->at : NULL;
	c->at += ((uint64_t)n * item + 63) / 64 * 64;
	return p;
}

static struct ww_arr cut_arr(struct cutter *c, int64_t n, int dtype)
{
	return (struct ww_arr){ cut(c, n, ww_dtype_bytes(dtype)), dtype };
}

/* Tokens whose logits are there at a time; a multiple of 128 where there are more. */
static int64_t head_t_of(const struct ww_config *f, int64_t t, int64_t keep)
{
	int64_t n = WW_HEAD_LOGITS / f->vocab_size / 128 * 128;
	n = n < 128 ? 128 : ww_min_i64(n, WW_HEAD_T_MAX);
	return ww_min_i64(t, keep ? n : WW_HEAD_T);
}

static void cut_layer(struct cutter *c, const struct ww_config *f, int dtype, int64_t t, struct ww_layer *l)
{
	int64_t h = t * f->hidden_size, q = t * f->heads * f->head_dim, kv = t * f->kv_heads * f->head_dim;
	int64_t inner = t * f->intermediate_size;
	l->x_in = cut_arr(c, h, dtype);
	l->n1 = cut_arr(c, h, dtype);
	l->qh = cut_arr(c, q, dtype);
	l->kh = cut_arr(c, kv, dtype);
	l->vh = cut_arr(c, kv, dtype);
	l->q_pre = f->qk_norm ? cut_arr(c, q, dtype) : l->qh;
	l->k_pre = f->qk_norm ? cut_arr(c, kv, dtype) : l->kh;
	l->att = cut_arr(c, q, dtype);
	l->x_mid = cut_arr(c, h, dtype);
	l->n2 = cut_arr(c, h, dtype);
	l->g = cut_arr(c, inner, dtype);
	l->u = cut_arr(c, inner, dtype);
	l->act = cut_arr(c, inner, dtype);
	l->rstd1 = cut(c, t, 4);
	l->rstd2 = cut(c, t, 4);
	l->rstd_q = cut(c, t * f->heads, 4);
	l->rstd_k = cut(c, t * f->kv_heads, 4);
	l->lse = cut(c, t * f->heads, 4);
}

/* All layers, from the last to the first. */
static void cut_layers(struct cutter *c, struct ww_run *r, int64_t t)
{
	const struct ww_config *f = &r->m->config;
	int64_t last = f->layers - 1;
	for (int64_t i = last; i >= 0; i--) {
		struct ww_layer *l = &r->layers[i];
		if (i == last || f->layers - i <= r->keep) {
			cut_layer(c, f, r->m->dtype, t, l);
			continue;
		}
		struct ww_layer own = *l;
		*l = r->layers[last];
		l->w = own.w;
		if (r->keep)
			l->x_in = cut_arr(c, t * f->hidden_size, r->m->dtype);
	}
}

static void cut_backward(struct cutter *c, struct ww_run *r, int64_t t)
{
	const struct ww_config *f = &r->m->config;
	int dtype = r->m->dtype;
	r->dhidden = cut(c, t * f->hidden_size, 4);
	r->dlogp = cut(c, t, 4);
	r->dvalues = cut_arr(c, t, dtype);
	if (!f->critic && dtype != WW_F32)
		r->dlogits = cut_arr(c, r->head_t * ww_min_i64(f->vocab_size, WW_HEAD_V), dtype);
	r->dres = cut_arr(c, t * f->hidden_size, dtype);
	r->dn = cut_arr(c, t * f->hidden_size, dtype);
	r->dq = cut_arr(c, t * f->heads * f->head_dim, dtype);
	r->dk = cut_arr(c, t * f->kv_heads * f->head_dim, dtype);
	r->dv = cut_arr(c, t * f->kv_heads * f->head_dim, dtype);
	r->datt = cut_arr(c, t * f->heads * f->head_dim, dtype);
	r->dg = cut_arr(c, t * f->intermediate_size, dtype);
	r->du = cut_arr(c, t * f->intermediate_size, dtype);
}

enum { INDICES_STEP = 16, KEYS_LEAST = 512 }; /* index arrays begin at multiples of 64 bytes */

static int64_t indices_room(int64_t n) { return (n + INDICES_STEP - 1) / INDICES_STEP * INDICES_STEP; }

/* The most whole numbers that upload_indices() packs. */
static int64_t indices_most(const struct ww_run *r)
{
	int64_t pages = r->keep ? 0 : r->max_sequences * ww_kv_stride(r->m);
	return 5 * indices_room(r->max_t) + indices_room(r->max_sequences + 1) + indices_room(pages);
}

/* Lay out every buffer from base on; base NULL: only compute the size. */
static uint64_t cut_all(struct ww_run *r, void *base)
{
	struct cutter c = { base, 0 };
	const struct ww_config *f = &r->m->config;
	int64_t t = r->max_t;
	r->indices = cut(&c, indices_most(r), 4);
	r->targets = cut(&c, t, 4);
	r->cs = cut(&c, t * f->head_dim, 4);
	cut_layers(&c, r, t);
	r->x_out = r->keep ? cut_arr(&c, t * f->hidden_size, r->m->dtype) : r->layers[0].x_in;
	r->hidden = cut_arr(&c, t * f->hidden_size, r->m->dtype);
	r->tmp = cut_arr(&c, t * f->hidden_size, r->m->dtype);
	if (!r->keep) {
		int64_t heads = (f->heads + 2 * f->kv_heads) * f->head_dim, inner = 2 * f->intermediate_size;
		r->wide = cut_arr(&c, t * (heads > inner ? heads : inner), r->m->dtype);
	}
	r->rstd = cut(&c, t, 4);
	r->state = cut(&c, 3 * t, 4);
	r->lse = cut(&c, t, 4);
	r->logp = cut(&c, t, 4);
	r->entropy = f->critic ? NULL : cut(&c, t, 4);
	r->head_t = head_t_of(f, t, r->keep);
	r->logits = f->critic ? NULL
						  : cut(&c, r->head_t * (r->keep ? f->vocab_size : ww_min_i64(f->vocab_size, WW_HEAD_V)), 4);
	if (r->keep)
		cut_backward(&c, r, t);
	return c.at;
}

static const struct ww_param *find(const struct ww_model *m, int64_t layer, const char *name)
{
	char full[160];
	snprintf(full, sizeof(full), "model.layers.%lld.%s", (long long)layer, name);
	return ww_model_param(m, full);
}

static struct ww_lin find_lin(const struct ww_model *m, int64_t layer, const char *name)
{
	char full[96];
	snprintf(full, sizeof(full), "%s.weight", name);
	struct ww_lin l = { find(m, layer, full), NULL };
	snprintf(full, sizeof(full), "%s.bias", name);
	l.b = find(m, layer, full);
	return l;
}

static void find_layer(const struct ww_model *m, int64_t i, struct ww_layer *l)
{
	l->w.norm1 = find(m, i, "input_layernorm.weight");
	l->w.norm2 = find(m, i, "post_attention_layernorm.weight");
	l->w.q_norm = find(m, i, "self_attn.q_norm.weight");
	l->w.k_norm = find(m, i, "self_attn.k_norm.weight");
	l->w.q = find_lin(m, i, "self_attn.q_proj");
	l->w.k = find_lin(m, i, "self_attn.k_proj");
	l->w.v = find_lin(m, i, "self_attn.v_proj");
	l->w.o = find_lin(m, i, "self_attn.o_proj");
	l->w.gate = find_lin(m, i, "mlp.gate_proj");
	l->w.up = find_lin(m, i, "mlp.up_proj");
	l->w.down = find_lin(m, i, "mlp.down_proj");
}

uint64_t ww_run_bytes(const struct ww_config *c, int dtype, int64_t max_t, int64_t max_sequences, int64_t keep)
{
	struct ww_model m = { .config = *c, .dtype = dtype, .n = ww_params_padded(c) };
	struct ww_run r = { .m = &m, .keep = keep, .max_t = max_t, .max_sequences = max_sequences };
	r.layers = calloc((size_t)c->layers, sizeof(*r.layers));
	uint64_t bytes = r.layers && m.n ? cut_all(&r, NULL) : 0;
	free(r.layers);
	return bytes;
}

struct ww_work ww_run_work(const struct ww_config *c, int dtype, int64_t max_t, int64_t longest)
{
	int64_t q = c->heads * c->head_dim, widest = c->hidden_size > q ? c->hidden_size : q;
	widest = widest > c->intermediate_size ? widest : c->intermediate_size;
	int64_t head_v = c->critic ? 1 : c->vocab_size < WW_HEAD_V ? c->vocab_size : WW_HEAD_V;
	int64_t rows = widest > head_v ? widest : head_v;
	return (struct ww_work){ .dtype = dtype,
		.t = max_t,
		.longest = longest,
		.widest = widest,
		.head_dim = c->head_dim,
		.matrix = rows * c->hidden_size,
		.head_t = head_t_of(c, max_t, 1),
		.head_v = head_v };
}

static void find_params(struct ww_run *r)
{
	for (int64_t i = 0; i < r->m->config.layers; i++)
		find_layer(r->m, i, &r->layers[i]);
	r->norm = ww_model_param(r->m, "model.norm.weight");
	r->head = ww_model_head(r->m);
}

enum ww_rc ww_run_new(
	struct ww_model *m, int64_t max_t, int64_t max_sequences, int64_t keep, struct ww_run **out, struct ww_err *err)
{
	struct ww_run *r;
	enum ww_rc rc = WW_OK;
	WW_CHECK(WW_NEW(r, 1, err));
	WW_BUG(max_t < 1 || max_sequences < 1 || max_t > INT32_MAX || keep < 0);
	*r = (struct ww_run){
		.m = m, .ops = m->dev->ops, .s = m->stream, .keep = keep, .max_t = max_t, .max_sequences = max_sequences
	};
	WW_TRY(WW_NEW(r->layers, m->config.layers, err));
	WW_TRY(WW_NEW(r->host, indices_most(r), err));
	find_params(r);
	WW_TRY(r->ops->alloc(m->dev, cut_all(r, NULL), &r->base, err));
	cut_all(r, r->base);
	*out = r;
out:
	if (rc != WW_OK)
		ww_run_free(r);
	return rc;
}

static int same_trunk(const struct ww_model *a, const struct ww_model *b)
{
	const struct ww_config *x = &a->config, *y = &b->config;
	return x->layers == y->layers && x->hidden_size == y->hidden_size && x->intermediate_size == y->intermediate_size &&
		x->heads == y->heads && x->kv_heads == y->kv_heads && x->head_dim == y->head_dim && x->qk_norm == y->qk_norm &&
		a->dtype == b->dtype && a->dev == b->dev;
}

void ww_run_bind(struct ww_run *r, struct ww_model *m, float *grads)
{
	r->grads = grads;
	if (r->m == m)
		return;
	WW_BUG(
		!same_trunk(r->m, m) || (!m->config.critic && (!r->logits || r->m->config.vocab_size < m->config.vocab_size)));
	r->m = m;
	r->has_head = 0;
	find_params(r);
}

void ww_run_free(struct ww_run *r)
{
	if (!r)
		return;
	if (r->base)
		r->ops->free(r->m->dev, r->base);
	free(r->layers);
	free(r->host);
	free(r);
}

/* y (T, out) = x W^T + b */
static void linear(struct ww_run *r, struct ww_arr y, struct ww_arr x, struct ww_lin l)
{
	r->ops->gemm(r->s, WW_GEMM_NT, y, x, ww_run_weight(r, l.w), r->t, l.w->rows, l.w->cols, 0);
	if (l.b)
		r->ops->bias(r->s, y, ww_run_weight(r, l.b), r->t, l.w->rows);
}

/* Queries, keys and values of the batch, ready for attention. */
static void separate_heads(struct ww_run *r, struct ww_layer *l)
{
	const struct ww_config *f = &r->m->config;
	float eps = (float)f->rms_eps;
	if (l->w.q_norm) {
		r->ops->norm_rope(
			r->s, l->qh, l->rstd_q, l->q_pre, ww_run_weight(r, l->w.q_norm), r->cs, r->t, f->heads, f->head_dim, eps);
		r->ops->norm_rope(r->s, l->kh, l->rstd_k, l->k_pre, ww_run_weight(r, l->w.k_norm), r->cs, r->t, f->kv_heads,
			f->head_dim, eps);
	} else {
		r->ops->rope(r->s, l->qh, r->cs, 0, r->t, f->heads, f->head_dim);
		r->ops->rope(r->s, l->kh, r->cs, 0, r->t, f->kv_heads, f->head_dim);
	}
}

static int side_by_side(const struct ww_param *a, const struct ww_param *b)
{
	return !a == !b && (!a || b->offset == a->offset + a->n);
}

/* One product for layers whose weights lie side by side, into r->wide.  0: nothing was done, since they do not, or the
 * device gains nothing by it. */
static int linear_wide(struct ww_run *r, struct ww_arr x, const struct ww_lin *l, int n)
{
	int64_t rows = l[0].w->rows;
	if (!r->m->dev->wide || !r->kv)
		return 0;
	for (int i = 1; i < n; i++) {
		if (!side_by_side(l[i - 1].w, l[i].w) || !side_by_side(l[i - 1].b, l[i].b))
			return 0;
		rows += l[i].w->rows;
	}
	r->ops->gemm(r->s, WW_GEMM_NT, r->wide, x, ww_run_weight(r, l[0].w), r->t, rows, l[0].w->cols, 0);
	if (l[0].b)
		r->ops->bias(r->s, r->wide, ww_run_weight(r, l[0].b), r->t, rows);
	return 1;
}

static struct ww_arr part(struct ww_arr a, int64_t at)
{
	return (struct ww_arr){ (char *)a.p + (size_t)at * ww_dtype_bytes(a.dtype), a.dtype };
}

/* The same with a cache, by the same arithmetic; is_wide: they lie in r->wide. */
static void rope_to_cache_heads(struct ww_run *r, struct ww_layer *l, int is_wide, struct ww_attn *a)
{
	const struct ww_config *f = &r->m->config;
	int64_t i = l - r->layers, q = f->heads * f->head_dim, kv = f->kv_heads * f->head_dim;
	struct ww_rope_to_cache p = { .q = l->q_pre,
		.k = l->k_pre,
		.v = l->vh,
		.q_out = l->q_pre,
		.k_cache = r->kv->k[i],
		.v_cache = r->kv->v[i],
		.cs = r->cs,
		.rows = r->rows,
		.t = r->t,
		.heads = f->heads,
		.kv_heads = f->kv_heads,
		.head_dim = f->head_dim,
		.eps = (float)f->rms_eps };
	if (is_wide) {
		p.q = r->wide;
		p.k = part(r->wide, q);
		p.v = part(r->wide, q + kv);
		p.stride = q + 2 * kv;
	}
	if (l->w.q_norm) {
		p.q_norm = ww_run_weight(r, l->w.q_norm);
		p.k_norm = ww_run_weight(r, l->w.k_norm);
	}
	r->ops->rope_to_cache(r->s, &p);
	a->q = l->q_pre;
	a->k = p.k_cache;
	a->v = p.v_cache;
	a->pages = r->pages;
	a->pages_stride = r->pages_stride;
	a->page_size = WW_KV_PAGE;
}

struct ww_attn ww_run_attention(const struct ww_run *r, const struct ww_layer *l)
{
	const struct ww_config *f = &r->m->config;
	return (struct ww_attn){ .q = l->qh,
		.k = l->kh,
		.v = l->vh,
		.out = l->att,
		.lse = l->lse,
		.seq = r->seq,
		.pos = r->pos,
		.start = r->start,
		.t = r->t,
		.sequences = r->sequences,
		.rows_max = r->rows_max,
		.keys_max = r->keys_max,
		.heads = f->heads,
		.kv_heads = f->kv_heads,
		.head_dim = f->head_dim,
		.scale = (float)(1 / sqrt((double)f->head_dim)) };
}

/* From the normed input to x_mid and its norm. */
static void attend(struct ww_run *r, struct ww_layer *l)
{
	const struct ww_config *f = &r->m->config;
	struct ww_attn a = ww_run_attention(r, l);
	int is_wide = linear_wide(r, l->n1, (struct ww_lin[]){ l->w.q, l->w.k, l->w.v }, 3);
	if (!is_wide) {
		linear(r, l->q_pre, l->n1, l->w.q);
		linear(r, l->k_pre, l->n1, l->w.k);
		linear(r, l->vh, l->n1, l->w.v);
	}
	if (r->kv)
		rope_to_cache_heads(r, l, is_wide, &a);
	else
		separate_heads(r, l);
	r->ops->attention(r->s, &a);
	linear(r, r->tmp, l->att, l->w.o);
	r->ops->add_rmsnorm(r->s, l->x_mid, l->n2, l->rstd2, l->x_in, r->tmp, ww_run_weight(r, l->w.norm2), r->t,
		f->hidden_size, (float)f->rms_eps);
}

/* From n1 to what the layer's last product takes. */
static void layer_body(struct ww_run *r, struct ww_layer *l)
{
	int64_t inner = r->m->config.intermediate_size;
	attend(r, l);
	if (linear_wide(r, l->n2, (struct ww_lin[]){ l->w.gate, l->w.up }, 2)) {
		r->ops->swiglu_pairs(r->s, l->act, r->wide, r->t, inner);
		return;
	}
	linear(r, l->g, l->n2, l->w.gate);
	linear(r, l->u, l->n2, l->w.up);
	r->ops->swiglu(r->s, l->act, l->g, l->u, r->t * inner);
}

void ww_run_layer(struct ww_run *r, struct ww_layer *l)
{
	const struct ww_config *f = &r->m->config;
	r->ops->rmsnorm(
		r->s, l->n1, l->rstd1, l->x_in, ww_run_weight(r, l->w.norm1), r->t, f->hidden_size, (float)f->rms_eps);
	layer_body(r, l);
}

/* The layer's last product, the sum, and the norm that the next layer begins with, or that of the end. */
static void layer_end(struct ww_run *r, const struct ww_layer *l, const struct ww_layer *next)
{
	const struct ww_config *f = &r->m->config;
	linear(r, r->tmp, l->act, l->w.down);
	r->ops->add_rmsnorm(r->s, next ? next->x_in : r->x_out, next ? next->n1 : r->hidden, next ? next->rstd1 : r->rstd,
		l->x_mid, r->tmp, ww_run_weight(r, next ? next->w.norm1 : r->norm), r->t, f->hidden_size, (float)f->rms_eps);
}

static enum ww_rc check_batch(const struct ww_run *r, const struct ww_batch *b, struct ww_err *err)
{
	const struct ww_config *f = &r->m->config;
	if (b->t < 1 || b->t > r->max_t || b->sequences < 1 || b->sequences > r->max_sequences)
		return ww_err_set(err, WW_ERR_LIMIT,
			"a batch of %lld tokens in %lld sequences does not fit this workspace (%lld, %lld)", (long long)b->t,
			(long long)b->sequences, (long long)r->max_t, (long long)r->max_sequences);
	for (int64_t i = 0; b->rows && i < b->n_rows; i++)
		WW_BUG(b->rows[i] < (i ? b->rows[i - 1] + 1 : 0) || b->rows[i] >= b->t);
	WW_BUG(b->starts[0] != 0 || b->starts[b->sequences] != b->t || (b->kv && r->keep));
	for (int64_t q = 0; q < b->sequences; q++) {
		int64_t n = b->starts[q + 1] - b->starts[q] + (b->kv ? b->cached[q] : 0);
		WW_BUG(b->starts[q + 1] < b->starts[q]);
		if (n > f->max_position)
			return ww_err_set(err, WW_ERR_LIMIT, "a sequence of %lld tokens is longer than the model's %lld positions",
				(long long)n, (long long)f->max_position);
	}
	for (int64_t i = 0; i < b->t; i++)
		if (b->ids[i] < 0 || b->ids[i] >= f->vocab_size)
			return ww_err_set(err, WW_ERR_USAGE, "token %d is outside the model's vocabulary of %lld", b->ids[i],
				(long long)f->vocab_size);
	return WW_OK;
}

/* Room for n numbers in what is to be uploaded; *device is where they will lie. */
static int32_t *pack(struct ww_run *r, int32_t **device, int64_t n)
{
	int32_t *host = r->host + r->packed;
	*device = r->indices + r->packed;
	r->packed += indices_room(n);
	return host;
}

/* Row in the sequence's pages of each of its tokens, and the pages up to r->keys_max. */
static void pack_pages(struct ww_run *r, const struct ww_batch *b, const int32_t *pos)
{
	int64_t stride = r->pages_stride = ww_min_i64((r->keys_max + WW_KV_PAGE - 1) / WW_KV_PAGE, ww_kv_stride(r->m));
	int32_t *rows = pack(r, &r->rows, b->t), *pages = pack(r, &r->pages, b->sequences * stride);
	for (int64_t q = 0; q < b->sequences; q++) {
		const int32_t *own = b->pages + q * b->pages_stride;
		memcpy(pages + q * stride, own, (size_t)ww_min_i64(stride, b->pages_stride) * sizeof(*pages));
		for (int32_t i = b->starts[q]; i < b->starts[q + 1]; i++) {
			WW_BUG(pos[i] / WW_KV_PAGE >= b->pages_stride);
			int32_t page = own[pos[i] / WW_KV_PAGE];
			WW_BUG(page < 0 || page >= b->kv->pages);
			rows[i] = page * WW_KV_PAGE + pos[i] % WW_KV_PAGE;
		}
	}
}

/* Upload the batch's index arrays in one copy, since each copy costs some microseconds of a step. */
static void upload_indices(struct ww_run *r, const struct ww_batch *b)
{
	r->packed = 0;
	int32_t *ids = pack(r, &r->ids, b->t), *start = pack(r, &r->start, b->sequences + 1);
	int32_t *pos = pack(r, &r->pos, b->t), *seq = pack(r, &r->seq, b->t);
	memcpy(ids, b->ids, (size_t)b->t * sizeof(*ids));
	memcpy(start, b->starts, (size_t)(b->sequences + 1) * sizeof(*start));
	for (int64_t q = 0; q < b->sequences; q++)
		for (int32_t i = b->starts[q]; i < b->starts[q + 1]; i++) {
			pos[i] = i - b->starts[q] + (b->kv ? b->cached[q] : 0);
			seq[i] = (int32_t)q;
		}
	if (b->kv)
		pack_pages(r, b, pos);
	r->head_n = b->rows ? b->n_rows : b->t;
	r->head_rows = NULL;
	if (b->rows)
		memcpy(pack(r, &r->head_rows, b->n_rows), b->rows, (size_t)b->n_rows * sizeof(*b->rows));
	r->head_x = b->rows ? r->tmp : r->hidden;
	r->ops->upload(r->s, r->indices, r->host, (size_t)r->packed * sizeof(*r->host));
}

/* With a cache lengths are bounded by powers of two, so that steps of one shape have one bound while their sequences
 * grow. */
static int64_t bound_of(int64_t keys)
{
	int64_t bound = KEYS_LEAST;
	while (bound < keys)
		bound *= 2;
	return bound;
}

enum ww_rc ww_run_upload(struct ww_run *r, const struct ww_batch *b, struct ww_err *err)
{
	WW_CHECK(check_batch(r, b, err));
	r->t = b->t;
	r->sequences = b->sequences;
	r->kv = b->kv;
	r->with_entropy = b->entropy;
	r->rows_max = r->keys_max = 0;
	for (int64_t q = 0; q < b->sequences; q++) {
		int64_t n = b->starts[q + 1] - b->starts[q], keys = n + (b->kv ? b->cached[q] : 0);
		r->rows_max = n > r->rows_max ? n : r->rows_max;
		r->keys_max = keys > r->keys_max ? keys : r->keys_max;
	}
	if (b->kv)
		r->keys_max = bound_of(r->keys_max);
	upload_indices(r, b);
	return WW_OK;
}

void ww_run_compute(struct ww_run *r)
{
	const struct ww_config *f = &r->m->config;
	r->has_head = 0;
	r->ops->rope_table(r->s, r->cs, r->pos, r->m->rope_freq, r->m->rope_factor, r->t, f->head_dim);
	r->ops->embed(r->s, r->layers[0].x_in, ww_run_weight(r, &r->m->params[0]), r->ids, r->t, f->hidden_size);
	for (int64_t i = 0; i < f->layers; i++) {
		struct ww_layer *l = &r->layers[i];
		if (i)
			layer_body(r, l); /* the layer before has left its norm */
		else
			ww_run_layer(r, l);
		layer_end(r, l, i + 1 < f->layers ? l + 1 : NULL);
	}
	if (r->head_rows && r->head_n) /* gathers */
		r->ops->embed(r->s, r->head_x, r->hidden, r->head_rows, r->head_n, f->hidden_size);
}

enum ww_rc ww_run_forward(struct ww_run *r, const struct ww_batch *b, struct ww_err *err)
{
	WW_CHECK(ww_run_upload(r, b, err));
	ww_run_compute(r);
	return r->ops->sync(r->s, err);
}

struct ww_arr ww_run_hidden(const struct ww_run *r) { return r->hidden; }
