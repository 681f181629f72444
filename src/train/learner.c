/* learner.c - forward, loss, backward, update; and the memory that they take. */
#include "train/learner.h"

#include <stdlib.h>

struct ww_learner {
	struct ww_model *m;
	struct ww_run *run;
	struct ww_optim *optim;
	struct ww_learner_opts o;
	int64_t updates;
	float *logp, *dlogp; /* host, (max_tokens) */
};

enum ww_rc ww_learner_new(
	struct ww_model *m, const struct ww_learner_opts *o, struct ww_learner **out, struct ww_err *err)
{
	struct ww_learner *l;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(l, 1, err));
	l->m = m;
	l->o = *o;
	WW_TRY(WW_NEW(l->logp, o->max_tokens, err));
	WW_TRY(WW_NEW(l->dlogp, o->max_tokens, err));
	WW_TRY(ww_optim_new(m, &l->optim, err));
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
	ww_run_free(l->run);
	ww_optim_free(l->optim);
	free(l->logp);
	free(l->dlogp);
	free(l);
}

enum ww_rc ww_learner_add(struct ww_learner *l, const struct ww_batch *b, const int32_t *targets,
	const struct ww_loss *loss, struct ww_err *err)
{
	WW_CHECK(ww_run_forward(l->run, b, err));
	WW_CHECK(ww_run_logprobs(l->run, targets, l->logp, err));
	WW_CHECK(loss->fn(loss->ctx, l->logp, l->dlogp, b->rows ? b->n_rows : b->t, err));
	return ww_run_backward(l->run, l->dlogp, err);
}

enum ww_rc ww_learner_add_targets(struct ww_learner *l, const struct ww_batch *b, const int32_t *targets,
	const float *dlogp, const float **logp, struct ww_err *err)
{
	*logp = l->logp;
	return ww_run_learn(l->run, b, targets, dlogp, l->logp, err);
}

enum ww_rc ww_learner_update(struct ww_learner *l, double lr, float *norm, struct ww_err *err)
{
	struct ww_adamw h = { (float)lr, l->o.beta1, l->o.beta2, l->o.eps, l->o.weight_decay, l->updates + 1 };
	enum ww_rc rc = ww_optim_step(l->optim, l->run, &h, l->o.clip, norm, err);
	if (rc == WW_OK && *norm == *norm)
		l->updates++;
	return rc;
}

void ww_learner_drop(struct ww_learner *l) { ww_run_zero_grads(l->run); }
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

static uint64_t with_keep(const struct ww_config *c, int dtype, int64_t max_tokens, int64_t keep, struct ww_memory *m)
{
	m->keep = keep;
	m->run = ww_run_bytes(c, dtype, max_tokens, max_tokens, keep);
	m->total = m->model + m->optim + m->run + m->workspace;
	return m->total;
}

enum ww_rc ww_memory_plan(const struct ww_config *c, int dtype, struct ww_dev *dev, int64_t max_tokens, int64_t longest,
	int64_t keep, uint64_t budget, struct ww_memory *out, struct ww_err *err)
{
	struct ww_work work = ww_run_work(c, dtype, max_tokens, longest);
	uint64_t free_bytes, total_bytes;
	*out = (struct ww_memory){ .budget = budget,
		.layers = c->layers,
		.model = ww_model_bytes(c, dtype),
		.optim = ww_optim_bytes(c, dtype),
		.workspace = dev->ops->workspace ? dev->ops->workspace(dev, &work) : 0 };
	if (!budget) {
		dev->ops->memory(dev, &free_bytes, &total_bytes);
		out->budget = free_bytes;
	}
	if (keep > 0 && keep < c->layers)
		with_keep(c, dtype, max_tokens, keep, out);
	else if (with_keep(c, dtype, max_tokens, c->layers, out) > out->budget && !keep) {
		int64_t fits = 1, too_many = c->layers;
		while (too_many - fits > 1) {
			int64_t middle = fits + (too_many - fits) / 2;
			if (with_keep(c, dtype, max_tokens, middle, out) <= out->budget)
				fits = middle;
			else
				too_many = middle;
		}
		with_keep(c, dtype, max_tokens, fits, out);
	}
	if (!out->model || !out->optim || !out->run)
		return ww_nomem(err);
	if (out->total > out->budget)
		return ww_err_set(err, WW_ERR_ROOM,
			"training would take %.3f GB with %lld of %lld layers keeping their activations; %.3f GB "
			"too much for %s (%.3f GB for weights, gradients and optimizer, the rest for %lld tokens at a time)",
			(double)out->total / 1e9, (long long)out->keep, (long long)out->layers,
			(double)(out->total - out->budget) / 1e9, budget ? "the budget" : "what is free on the device",
			(double)(out->model + out->optim + out->model * (dtype == WW_F32 ? 1 : 2)) / 1e9, (long long)max_tokens);
	return WW_OK;
}
