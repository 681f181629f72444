/* model.h - a decoder-only transformer on a device: its parameters, a forward pass that can be differentiated, and
 * files.
 *
 * struct ww_model owns the weights, struct ww_run the workspace of one batch.  Sampling and training share both, so
 * they share every kernel: in exact mode the log-probability of a token does not depend on what it was computed
 * together with.
 */
#pragma once

#include "dev/dev.h"
#include "nn/config.h"

struct ww_param {
	char name[96];      /* as in the checkpoint */
	int rank;           /* 1 or 2 */
	int64_t rows, cols; /* rank 1: rows elements, cols 1 */
	int64_t offset, n;  /* elements, in the one array of all parameters */
};

struct ww_model {
	struct ww_config config;
	struct ww_dev *dev;
	struct ww_stream *stream;
	int dtype;               /* of the weights on the device and of activations: WW_F32 or WW_BF16 */
	struct ww_param *params; /* in the order of the checkpoint */
	int count;
	int64_t n;        /* all parameters, each padded to a multiple of 64 elements */
	void *weights;    /* device, n of dtype */
	float *rope_freq; /* device, head_dim / 2 */
	float rope_factor;
};

/* Read a directory in Hugging Face's form.  dtype: WW_F32, WW_BF16, or 0 for that of the file.  Missing, misshapen and
 * unknown tensors, and weights that are not finite, are refused. */
enum ww_rc ww_model_open(
	const char *dir, struct ww_dev *dev, int dtype, struct ww_model **out, struct ww_err *err) WW_MUST_CHECK;
/* A critic on a trunk of its own: the weights in `dir`, a policy's or a critic's; where there is no value head yet, one
 * of zeros.  It is saved as a sequence classifier of one label, which transformers loads. */
enum ww_rc ww_model_open_critic(
	const char *dir, struct ww_dev *dev, int dtype, struct ww_model **out, struct ww_err *err) WW_MUST_CHECK;
/* New weights: normal with the config's deviation, norms 1, biases 0; the same for the same seed on every device. */
enum ww_rc ww_model_new(const struct ww_config *c, struct ww_dev *dev, int dtype, uint64_t seed, struct ww_model **out,
	struct ww_err *err) WW_MUST_CHECK;
/* Write config and weights (and the tokenizer's files from directory `from`, unless NULL) as `dir`, which must not
 * exist or be empty; it appears whole or not at all. */
enum ww_rc ww_model_save(struct ww_model *m, const char *dir, const char *from, struct ww_err *err) WW_MUST_CHECK;
void ww_model_free(struct ww_model *m); /* NULL is fine */
/* Bytes of device memory that a model of this shape and type takes; 0: out of memory. */
uint64_t ww_model_bytes(const struct ww_config *c, int dtype);

const struct ww_param *ww_model_param(const struct ww_model *m, const char *name); /* NULL where there is none */
/* A parameter's weights on the device. */
struct ww_arr ww_model_weight(const struct ww_model *m, const struct ww_param *p);
/* The output layer's weights (V, H): the embedding's where they are tied; of a critic (1, H). */
const struct ww_param *ww_model_head(const struct ww_model *m);

/* Keys and values of earlier tokens, in pages of WW_KV_PAGE positions that a sequence need not own in a row. */
enum { WW_KV_PAGE = 64 };
struct ww_kv {
	struct ww_model *m;
	void *base;
	struct ww_arr *k, *v; /* (layers) of (pages * WW_KV_PAGE, K, D) */
	int64_t pages;
};
enum ww_rc ww_kv_new(struct ww_model *m, int64_t pages, struct ww_kv **out, struct ww_err *err) WW_MUST_CHECK;
void ww_kv_free(struct ww_kv *kv); /* NULL is fine */
/* Bytes of device memory a page takes in all layers. */
uint64_t ww_kv_page_bytes(const struct ww_model *m);
/* Pages of a sequence as long as the model's context. */
int64_t ww_kv_stride(const struct ww_model *m);

/* Sequences packed one behind the other, on the host. */
struct ww_batch {
	const int32_t *ids;    /* (t) */
	const int32_t *starts; /* (sequences + 1): first token of each, and t */
	int64_t t, sequences;
	/* Rows (tokens) whose log-probabilities or values are wanted, ascending, n_rows of them; NULL: all t.  The head
	 * computes nothing for the others; targets, gradients and results have one number for each of these rows. */
	const int32_t *rows;
	int64_t n_rows;
	int entropy; /* ww_run_entropy() will be asked for */
	/* With a cache (never in training): sequence s has cached[s] tokens in the pages pages[s * pages_stride ...], and
	 * the batch's tokens follow them; the pages for these are there too. */
	struct ww_kv *kv;
	const int32_t *cached, *pages;
	int64_t pages_stride;
};

struct ww_run;
/* Workspace for up to max_t tokens and max_sequences.  keep: 0 for a run without a backward pass; else how many layers,
 * the last ones, keep what the backward pass needs.  The others keep their input only and are computed again: less
 * memory, more time, and the same gradients to the last bit.  More than there are layers means all. */
enum { WW_RUN_KEEP_ALL = 1 << 30 };
enum ww_rc ww_run_new(struct ww_model *m, int64_t max_t, int64_t max_sequences, int64_t keep, struct ww_run **out,
	struct ww_err *err) WW_MUST_CHECK;
void ww_run_free(struct ww_run *r); /* NULL is fine */
/* Let the workspace work for this model from now on, and add its gradients to `grads` (NULL: no backward pass until the
 * next call); a new run has its model and no gradients.  Models of one trunk take turns in one workspace: a critic in a
 * policy's, not the other way.  The model that it was made for must outlive it. */
void ww_run_bind(struct ww_run *r, struct ww_model *m, float *grads);
/* Bytes of device memory that ww_run_new() would take for a model of this shape and type; 0: out of memory. */
uint64_t ww_run_bytes(const struct ww_config *c, int dtype, int64_t max_t, int64_t max_sequences, int64_t keep);

/* The work of such a run, for ops->workspace. */
struct ww_work ww_run_work(const struct ww_config *c, int dtype, int64_t max_t, int64_t longest);

/* Compute the hidden states after the last norm. */
enum ww_rc ww_run_forward(struct ww_run *r, const struct ww_batch *b, struct ww_err *err) WW_MUST_CHECK;
struct ww_arr ww_run_hidden(const struct ww_run *r); /* (T, H) on the device */
/* logp[i] (host): the log-probability of targets[i] (host) after the batch's i-th row; targets outside the vocabulary
 * are refused.  The logits are never whole. */
enum ww_rc ww_run_logprobs(struct ww_run *r, const int32_t *targets, float *logp, struct ww_err *err) WW_MUST_CHECK;
/* After logprobs or learn over a batch that asks for it: the exact entropy (nats) of each row's distribution. */
enum ww_rc ww_run_entropy(struct ww_run *r, float *entropy, struct ww_err *err) WW_MUST_CHECK;
/* After forward and logprobs: add to the gradients those of sum(dlogp[i] * logp[i]); dlogp (host).  Minimising a mean
 * cross-entropy is dlogp = -1/t. */
enum ww_rc ww_run_backward(struct ww_run *r, const float *dlogp, struct ww_err *err) WW_MUST_CHECK;
/* Forward, log-probabilities and backward at once, where dlogp is known beforehand: the same bits, and no logit is
 * computed twice. */
enum ww_rc ww_run_learn(struct ww_run *r, const struct ww_batch *b, const int32_t *targets, const float *dlogp,
	float *logp, struct ww_err *err) WW_MUST_CHECK;
/* Of a critic, after forward: values[i] (host) at the batch's i-th row. */
enum ww_rc ww_run_values(struct ww_run *r, float *values, struct ww_err *err) WW_MUST_CHECK;
/* After that: add to the gradients those of sum(dvalues[i] * values[i]); dvalues (host). */
enum ww_rc ww_run_values_backward(struct ww_run *r, const float *dvalues, struct ww_err *err) WW_MUST_CHECK;

/* AdamW over the whole model: gradients, masters and moments are fp32 on the device.  The weights of a bf16 model are
 * the masters' rounded copy, those of an fp32 model are the masters. */
struct ww_optim;
enum ww_rc ww_optim_new(struct ww_model *m, struct ww_optim **out, struct ww_err *err) WW_MUST_CHECK;
void ww_optim_free(struct ww_optim *o); /* NULL is fine */
/* Gradients of all parameters, laid out as the weights (m->n), for ww_run_bind(); zero at first. */
float *ww_optim_grads(struct ww_optim *o);
enum ww_rc ww_optim_zero_grads(struct ww_optim *o, struct ww_err *err) WW_MUST_CHECK;
/* Bytes of device memory that ww_optim_new() would take; 0: out of memory. */
uint64_t ww_optim_bytes(const struct ww_config *c, int dtype);
/* Write its state as safetensors into `dir`, which exists and is empty: master.NAME (of a bf16 model only), mean.NAME
 * and var.NAME for each parameter, fp32.  Load replaces the state and, of a bf16 model, the weights by the masters'
 * copy. */
enum ww_rc ww_optim_save(struct ww_optim *o, const char *dir, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_optim_load(struct ww_optim *o, const char *dir, struct ww_err *err) WW_MUST_CHECK;
/* Clip to max_norm (0: no clipping), update, zero the gradients; *norm is that before clipping.  h->step counts from 1.
 * Weight decay spares norms and biases.  Gradients that are not finite change nothing and are reported as a norm of
 * NaN. */
enum ww_rc ww_optim_step(
	struct ww_optim *o, const struct ww_adamw *h, float max_norm, float *norm, struct ww_err *err) WW_MUST_CHECK;
