/* learner.c - forward, loss, backward, update; and the memory that they take. */
#include "train/learner.h"

#include <stdlib.h>

struct ww_learner {
	struct ww_model *m;
	struct ww_run *run; /* its own, or o.host's */
	struct ww_optim *optim;
	struct ww_learner_opts o;
	int64_t updates;
	float *x, *dx; /* host, (max_tokens) */
};

enum ww_rc ww_learner_new(
	struct ww_model *m, const struct ww_learner_opts *o, struct ww_learner **out, struct ww_err *err)
{
	struct ww_learner *l;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(l, 1, err));
	l->m = m;
	l->o = *o;
	if (o->host)
		l->o.max_tokens = o->host->o.max_tokens;
	WW_TRY(WW_NEW(l->x, l->o.max_tokens, err));
	WW_TRY(WW_NEW(l->dx, l->o.max_tokens, err));
	if (!o->frozen)
		WW_TRY(ww_optim_new(m, &l->optim, err));
	l->run = o->host ? o->host->run : NULL;
	if (!o->host)
		WW_TRY(ww_run_new(m, o->max_tokens, o->max_tokens, o->keep, &l->run, err));
	*out = l;
out:
	if (rc != WW_OK)
		ww_learner_free(l);
	return rc;
}

void ww_learner_free(struct ww_learner *l)
{
	if (!l)
		return;
	if (!l->o.host)
		ww_run_free(l->run);
	ww_optim_free(l->optim);
	free(l->x);
	free(l->dx);
	free(l);
}

static void bind(struct ww_learner *l) { ww_run_bind(l->run, l->m, l->optim ? ww_optim_grads(l->optim) : NULL); }

enum ww_rc ww_learner_look(
	struct ww_learner *l, const struct ww_batch *b, const int32_t *targets, float *out, struct ww_err *err)
{
	bind(l);
	WW_CHECK(ww_run_forward(l->run, b, err));
	return l->m->config.critic ? ww_run_values(l->run, out, err) : ww_run_logprobs(l->run, targets, out, err);
}

enum ww_rc ww_learner_add(struct ww_learner *l, const struct ww_batch *b, const int32_t *targets,
	const struct ww_loss *loss, struct ww_err *err)
{
	WW_CHECK(ww_learner_look(l, b, targets, l->x, err));
	WW_CHECK(loss->fn(loss->ctx, l->x, l->dx, b->rows ? b->n_rows : b->t, err));
	return l->m->config.critic ? ww_run_values_backward(l->run, l->dx, err) : ww_run_backward(l->run, l->dx, err);
}

enum ww_rc ww_learner_add_targets(struct ww_learner *l, const struct ww_batch *b, const int32_t *targets,
	const float *dlogp, const float **logp, struct ww_err *err)
{
	*logp = l->x;
	bind(l);
	return ww_run_learn(l->run, b, targets, dlogp, l->x, err);
}

enum ww_rc ww_learner_entropy(struct ww_learner *l, float *entropy, struct ww_err *err)
{
	return ww_run_entropy(l->run, entropy, err);
}

enum ww_rc ww_learner_update(struct ww_learner *l, double lr, float *norm, struct ww_err *err)
{
	struct ww_adamw h = { (float)lr, l->o.beta1, l->o.beta2, l->o.eps, l->o.weight_decay, l->updates + 1 };
	enum ww_rc rc = ww_optim_step(l->optim, &h, l->o.clip, norm, err);
	if (rc == WW_OK && *norm == *norm)
		l->updates++;
	return rc;
}

enum ww_rc ww_learner_drop(struct ww_learner *l, struct ww_err *err) { return ww_optim_zero_grads(l->optim, err); }
struct ww_model *ww_learner_model(struct ww_learner *l) { return l->m; }
int64_t ww_learner_max_tokens(const struct ww_learner *l) { return l->o.max_tokens; }
int64_t ww_learner_updates(const struct ww_learner *l) { return l->updates; }

enum ww_rc ww_learner_save(struct ww_learner *l, const char *dir, struct ww_err *err)
{
	return ww_optim_save(l->optim, dir, err);
}

enum ww_rc ww_learner_load(struct ww_learner *l, const char *dir, int64_t updates, struct ww_err *err)
{
	l->updates = updates;
	return ww_optim_load(l->optim, dir, err);
}

/* ---- memory */

static uint64_t with_keep(const struct ww_memory_ask *a, int64_t keep, struct ww_memory *m)
{
	m->keep = keep;
	m->run = ww_run_bytes(a->config, a->dtype, a->max_tokens, a->max_tokens, keep);
	m->total = m->model + m->optim + m->critic + m->reference + m->cache + m->run + m->workspace;
	return m->total;
}

/* The most layers that fit. */
static void find_keep(const struct ww_memory_ask *a, struct ww_memory *m)
{
	int64_t fits = 1, too_many = m->layers;
	while (too_many - fits > 1) {
		int64_t middle = fits + (too_many - fits) / 2;
		if (with_keep(a, middle, m) <= m->budget)
			fits = middle;
		else
			too_many = middle;
	}
	with_keep(a, fits, m);
}

static enum ww_rc no_room(const struct ww_memory_ask *a, const struct ww_memory *m, struct ww_err *err)
{
	return ww_err_set(err, WW_ERR_ROOM,
		"training would take %.3f GB with %lld of %lld layers keeping their activations; %.3f GB "
		"too much for %s (%.3f GB for weights, gradients and optimizers, %.3f for generation, the rest for %lld tokens at "
		"a time)",
		(double)m->total / 1e9, (long long)m->keep, (long long)m->layers, (double)(m->total - m->budget) / 1e9,
		a->budget ? "the budget" : "what is free on the device",
		(double)(m->model + m->optim + m->critic + m->reference) / 1e9, (double)m->cache / 1e9,
		(long long)a->max_tokens);
}

enum ww_rc ww_memory_plan(const struct ww_memory_ask *a, struct ww_dev *dev, struct ww_memory *out, struct ww_err *err)
{
	struct ww_work work = ww_run_work(a->config, a->dtype, a->max_tokens, a->longest);
	/* A critic's stream runs only its update; the batches of both run on the policy's stream. */
	struct ww_work idle = { a->dtype, 1, 1, 1, 1, 1, 1, 1 };
	struct ww_config critic = *a->config;
	uint64_t free_bytes, total_bytes, stream = dev->ops->workspace ? dev->ops->workspace(dev, &idle) : 0;
	critic.critic = 1;
	*out = (struct ww_memory){ .budget = a->budget,
		.layers = a->config->layers,
		.cache = a->cache,
		.model = ww_model_bytes(a->config, a->dtype),
		.optim = ww_optim_bytes(a->config, a->dtype),
		.critic = a->critic ? ww_model_bytes(&critic, a->dtype) + ww_optim_bytes(&critic, a->dtype) + stream : 0,
		.reference = a->reference ? ww_model_bytes(a->config, a->dtype) + stream : 0,
		.workspace = dev->ops->workspace ? dev->ops->workspace(dev, &work) : 0 };
	if (!a->budget) {
		dev->ops->memory(dev, &free_bytes, &total_bytes);
		out->budget = free_bytes > a->others ? free_bytes - a->others : 0;
	}
	if (a->keep > 0 && a->keep < out->layers)
		with_keep(a, a->keep, out);
	else if (with_keep(a, out->layers, out) > out->budget && !a->keep)
		find_keep(a, out);
	if (!out->model || !out->optim || !out->run)
		return ww_nomem(err);
	return out->total > out->budget ? no_room(a, out, err) : WW_OK;
}
