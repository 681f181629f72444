/* optim.c - AdamW over all parameters.
 *
 * Masters and moments are fp32 in one device block, laid out as the weights.  Each parameter is one call, since matrices
 * decay and norms and biases do not.  The norm of the gradient and the factor that clips it stay on the device; the host
 * reads the norm once a step, and a norm that is not finite means that nothing is changed: one bad batch must not cost a run.
 */
#include "nn/run.h"
#include "nn/safetensors.h"

#include <math.h>
#include <stdlib.h>

struct ww_optim {
	struct ww_model *m;
	float *master, *mean, *var, *norm, *scale;	/* device; master begins the block */
};

enum ww_rc ww_optim_new(struct ww_model *m, struct ww_optim **out, struct ww_err *err)
{
	const struct ww_dev_ops *ops = m->dev->ops;
	struct ww_optim *o = calloc(1, sizeof(*o));
	if (!o)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	o->m = m;
	size_t bytes = (size_t)m->n * sizeof(float);
	enum ww_rc rc = ops->alloc(m->dev, 3 * bytes + 128, (void **)&o->master, err);
	if (rc == WW_OK) {
		o->mean = o->master + m->n;
		o->var = o->mean + m->n;
		o->norm = o->var + m->n;
		o->scale = o->norm + 16;
		ops->cast(m->stream, (struct ww_arr){ o->master, WW_F32 }, (struct ww_arr){ m->weights, m->dtype }, m->n);
		ops->zero(m->stream, o->mean, 2 * bytes);
		rc = ops->sync(m->stream, err);
	}
	if (rc == WW_OK)
		*out = o;
	else
		ww_optim_free(o);
	return rc;
}

void ww_optim_free(struct ww_optim *o)
{
	if (!o)
		return;
	if (o->master)
		o->m->dev->ops->free(o->m->dev, o->master);
	free(o);
}

enum ww_rc ww_optim_step(struct ww_optim *o, struct ww_run *r, const struct ww_adamw *h, float max_norm, float *norm,
			 struct ww_err *err)
{
	struct ww_model *m = o->m;
	const struct ww_dev_ops *ops = m->dev->ops;
	float sum = 0;
	ops->zero(m->stream, o->norm, sizeof(float));
	ops->sumsq(m->stream, o->norm, r->grads, m->n);
	ops->clip_factor(m->stream, o->scale, o->norm, max_norm > 0 ? max_norm : INFINITY);
	ops->download(m->stream, &sum, o->norm, sizeof(sum));
	enum ww_rc rc = ops->sync(m->stream, err);
	if (rc != WW_OK)
		return rc;
	*norm = isfinite(sum) ? sqrtf(sum) : NAN;
	for (int i = 0; isfinite(sum) && i < m->count; i++) {
		const struct ww_param *p = &m->params[i];
		struct ww_adamw own = *h;
		own.weight_decay = p->rank == 1 ? 0 : h->weight_decay;
		ops->adamw(m->stream, o->master + p->offset, ww_model_weight(m, p), o->mean + p->offset, o->var + p->offset,
			   r->grads + p->offset, o->scale, &own, p->n);
	}
	ww_run_zero_grads(r);
	return ops->sync(m->stream, err);
}
