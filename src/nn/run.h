/* run.h - the workspace of a batch, for forward.c, backward.c and generate.c only. */
#pragma once

#include "nn/model.h"

/* Logits are made in chunks of so many columns; outside of training for so many tokens at a time, in training for as
 * many as make WW_HEAD_LOGITS of them, but at most WW_HEAD_T_MAX: the gradient of a large vocabulary is read and
 * written once for each group of tokens. */
enum { WW_HEAD_T = 1024, WW_HEAD_V = 8192, WW_HEAD_T_MAX = 4096, WW_HEAD_LOGITS = 1 << 29 };

/* A linear layer's parameters; bias may be NULL. */
struct ww_lin {
	const struct ww_param *w, *b;
};

struct ww_layer {
	struct {
		const struct ww_param *norm1, *norm2, *q_norm, *k_norm;
		struct ww_lin q, k, v, o, gate, up, down;
	} w;
	/* Activations, kept for the backward pass or shared by all layers. */
	struct ww_arr x_in, n1, q_pre, k_pre, qh, kh, vh, att, x_mid, n2, g, u, act;
	float *rstd1, *rstd2, *rstd_q, *rstd_k, *lse;
};

struct ww_run {
	struct ww_model *m;
	const struct ww_dev_ops *ops;
	struct ww_stream *s;
	int has_head;   /* log-probabilities or values of this batch were computed */
	int64_t head_t; /* rows whose logits are there at a time */
	int64_t keep;   /* layers that keep activations; 0: no backward pass */
	int64_t max_t, max_sequences, t, sequences;
	int64_t rows_max,
		keys_max; /* of a sequence in the batch: its tokens, and a bound of these with those in the cache */
	void *base;
	int32_t *targets, *indices; /* indices: holds the arrays of the next line, as uploaded */
	int32_t *ids, *pos, *seq, *start, *rows, *pages, *head_rows;
	int64_t packed, pages_stride; /* numbers in `indices`; room for each sequence in `pages` */
	struct ww_kv *kv;             /* of the batch, or NULL */
	int64_t head_n;               /* rows that the head takes: all, or those of head_rows (not NULL) */
	struct ww_arr head_x;         /* (head_n, H), their hidden states: `hidden`, or gathered in tmp */
	float *cs;                    /* (T, D) */
	struct ww_layer *layers;
	const struct ww_param *norm, *head;
	struct ww_arr x_out, hidden, tmp;
	struct ww_arr wide; /* without keep: rows of q, k, v or of gate, up, as one product makes them */
	float *rstd;
	int with_entropy; /* of this batch */
	float *state, *lse, *logp, *entropy, *dlogp, *logits;
	struct ww_arr dlogits; /* NULL: in place of the logits */
	struct ww_arr dvalues; /* (T) of a critic, in the model's type */
	/* backward */
	float *grads, *dhidden; /* grads: not the workspace's own */
	struct ww_arr dres, dn, dq, dk, dv, datt, dg, du;
	int32_t *host; /* the copy of `indices` that is uploaded */
};

/* The two halves of ww_run_forward(), without a wait: the part that depends on the batch's contents, and the part that
 * depends on its shape alone (numbers of tokens and sequences, keys_max). */
enum ww_rc ww_run_upload(struct ww_run *r, const struct ww_batch *b, struct ww_err *err) WW_MUST_CHECK;
void ww_run_compute(struct ww_run *r);

static inline struct ww_arr ww_run_weight(const struct ww_run *r, const struct ww_param *p)
{
	return ww_model_weight(r->m, p);
}
static inline float *ww_run_grad(const struct ww_run *r, const struct ww_param *p) { return r->grads + p->offset; }

/* Elements of all parameters with their padding; 0: out of memory. */
int64_t ww_params_padded(const struct ww_config *c);
/* What attention over the batch takes of a layer, without a cache. */
struct ww_attn ww_run_attention(const struct ww_run *r, const struct ww_layer *l);
/* A layer from its input up to the product that `down` takes: all that the backward pass reads. */
void ww_run_layer(struct ww_run *r, struct ww_layer *l);
/* The head's own part of the backward pass: dhidden (fp32), and its gradient. */
void ww_run_head_backward(struct ww_run *r);
void ww_run_values_head_backward(struct ww_run *r);
/* From dhidden down to the embedding. */
enum ww_rc ww_run_trunk_backward(struct ww_run *r, struct ww_err *err) WW_MUST_CHECK;
