/* optim.c - AdamW over all parameters, and its state on disk.
 *
 * Gradients, masters and moments are fp32, laid out as the weights; an fp32 model's weights are its masters, so only a
 * bf16 model pays for both.  Each parameter is one call, since matrices decay and norms and biases do not.  The norm of
 * the gradient and the factor that clips it stay on the device; the host reads the norm once a step, and a norm that is
 * not finite means that nothing is changed: one bad batch must not cost a run.
 */
#include "nn/run.h"
#include "nn/state.h"

#include <math.h>
#include <stdlib.h>

enum { SCALARS = 16 }; /* floats between two of them, so that each has a line of its own */

struct ww_optim {
	struct ww_model *m;
	float *base, *grads, *master, *mean, *var, *norm, *scale; /* device */
};

static uint64_t bytes_of(int64_t n, int dtype)
{
	return (uint64_t)(dtype == WW_F32 ? 3 : 4) * (uint64_t)n * sizeof(float) + 2 * SCALARS * sizeof(float);
}

uint64_t ww_optim_bytes(const struct ww_config *c, int dtype)
{
	int64_t n = ww_params_padded(c);
	return n ? bytes_of(n, dtype) : 0;
}

static struct ww_arr f32(float *p) { return (struct ww_arr){ p, WW_F32 }; }
static struct ww_arr weights(const struct ww_model *m) { return (struct ww_arr){ m->weights, m->dtype }; }

enum ww_rc ww_optim_new(struct ww_model *m, struct ww_optim **out, struct ww_err *err)
{
	const struct ww_dev_ops *ops = m->dev->ops;
	struct ww_optim *o;
	WW_CHECK(WW_NEW(o, 1, err));
	o->m = m;
	enum ww_rc rc = ops->alloc(m->dev, bytes_of(m->n, m->dtype), (void **)&o->base, err);
	if (rc == WW_OK) {
		o->grads = o->base;
		o->mean = o->grads + m->n;
		o->var = o->mean + m->n;
		o->norm = o->var + m->n;
		o->scale = o->norm + SCALARS;
		o->master = m->dtype == WW_F32 ? m->weights : o->scale + SCALARS;
		ops->zero(m->stream, o->grads, 3 * (size_t)m->n * sizeof(float));
		if (m->dtype != WW_F32)
			ops->cast(m->stream, f32(o->master), weights(m), m->n);
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
	if (o->base)
		o->m->dev->ops->free(o->m->dev, o->base);
	free(o);
}

float *ww_optim_grads(struct ww_optim *o) { return o->grads; }

enum ww_rc ww_optim_zero_grads(struct ww_optim *o, struct ww_err *err)
{
	o->m->dev->ops->zero(o->m->stream, o->grads, (size_t)o->m->n * sizeof(float));
	return o->m->dev->ops->sync(o->m->stream, err); /* the next gradient may come on another model's stream */
}

enum ww_rc ww_optim_step(struct ww_optim *o, const struct ww_adamw *h, float max_norm, float *norm, struct ww_err *err)
{
	struct ww_model *m = o->m;
	const struct ww_dev_ops *ops = m->dev->ops;
	float sum = 0;
	ops->zero(m->stream, o->norm, sizeof(float));
	ops->sumsq(m->stream, o->norm, o->grads, m->n);
	ops->clip_factor(m->stream, o->scale, o->norm, max_norm > 0 ? max_norm : INFINITY);
	ops->download(m->stream, &sum, o->norm, sizeof(sum));
	WW_CHECK(ops->sync(m->stream, err));
	*norm = isfinite(sum) ? sqrtf(sum) : NAN;
	for (int i = 0; isfinite(sum) && i < m->count; i++) {
		const struct ww_param *p = &m->params[i];
		struct ww_arr copy = m->dtype == WW_F32 ? f32(NULL) : ww_model_weight(m, p);
		struct ww_adamw own = *h;
		own.weight_decay = p->rank == 1 ? 0 : h->weight_decay;
		ops->adamw(m->stream, o->master + p->offset, copy, o->mean + p->offset, o->var + p->offset,
			o->grads + p->offset, o->scale, &own, p->n);
	}
	return ww_optim_zero_grads(o, err);
}

/* The parts on disk: an fp32 model's masters are in its own checkpoint. */
static size_t parts_of(struct ww_optim *o, struct ww_state_part parts[3])
{
	size_t n = 0;
	parts[n++] = (struct ww_state_part){ "mean.", f32(o->mean) };
	parts[n++] = (struct ww_state_part){ "var.", f32(o->var) };
	if (o->m->dtype != WW_F32)
		parts[n++] = (struct ww_state_part){ "master.", f32(o->master) };
	return n;
}

enum ww_rc ww_optim_save(struct ww_optim *o, const char *dir, struct ww_err *err)
{
	struct ww_state_part parts[3];
	size_t n = parts_of(o, parts);
	return ww_state_write(o->m, parts, n, dir, err);
}

enum ww_rc ww_optim_load(struct ww_optim *o, const char *dir, struct ww_err *err)
{
	struct ww_state_part parts[3];
	size_t n = parts_of(o, parts);
	enum ww_rc rc = ww_state_read(o->m, parts, n, dir, err);
	if (rc == WW_OK && o->m->dtype != WW_F32)
		o->m->dev->ops->cast(o->m->stream, weights(o->m), f32(o->master), o->m->n);
	return rc == WW_OK ? o->m->dev->ops->sync(o->m->stream, err) : rc;
}
