/* The seam where a loss sits: derivatives that depend on log-probabilities, and those known beforehand; and what is
 * planned for a device's memory. */
#include "unit.h"

#include "train/learner.h"

#include <math.h>

enum { T = 96, V = 97 };
static int32_t ids[T], targets[T];
static const int32_t starts[] = { 0, 40, T };
static const struct ww_batch batch = { .ids = ids, .starts = starts, .t = T, .sequences = 2 };
static const struct ww_learner_opts opts = {
	.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .clip = 1, .max_tokens = T, .keep = 1
};
static const struct ww_config config = { .arch = WW_ARCH_LLAMA,
	.vocab_size = V,
	.hidden_size = 32,
	.intermediate_size = 48,
	.layers = 3,
	.heads = 2,
	.kv_heads = 1,
	.head_dim = 16,
	.max_position = 64,
	.rms_eps = 1e-6,
	.initializer_range = 0.1,
	.rope = { .theta = 10000, .factor = 1, .attention_factor = 1 },
	.bos = -1,
	.pad = -1,
	.dtype = WW_F32 };
static struct ww_dev *dev;

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	for (int i = 0; i < T; i++) {
		ids[i] = i * 5 % V;
		targets[i] = (i * i + 3) % V;
	}
	return ww_dev_open("cpu", 1, &dev, &err) == WW_OK ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ww_dev_close(dev);
	return 0;
}

/* The sum of the likelihoods themselves, made larger: a loss whose derivative needs the log-probability. */
static enum ww_rc likelihood(void *ctx, const float *logp, float *dlogp, int64_t t, struct ww_err *err)
{
	double *sum = ctx;
	(void)err;
	for (int64_t i = 0; i < t; i++) {
		dlogp[i] = -expf(logp[i]);
		*sum -= exp((double)logp[i]);
	}
	return WW_OK;
}

static enum ww_rc refuses(void *ctx, const float *logp, float *dlogp, int64_t t, struct ww_err *err)
{
	(void)ctx, (void)logp, (void)dlogp, (void)t;
	return ww_err_set(err, WW_ERR_USAGE, "no");
}

static void any_loss_can_sit_on_top(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_model *m;
	struct ww_learner *l;
	double first = 0, last = 0;
	float norm;
	(void)state;
	assert_int_equal(ww_model_new(&config, dev, WW_F32, 1, &m, &err), WW_OK);
	assert_int_equal(ww_learner_new(m, &opts, &l, &err), WW_OK);
	for (int step = 0; step < 60; step++) {
		last = 0;
		struct ww_loss loss = { likelihood, &last };
		assert_int_equal(ww_learner_add(l, &batch, targets, &loss, &err), WW_OK);
		assert_int_equal(ww_learner_update(l, 1e-2, &norm, &err), WW_OK);
		assert_true(norm > 0);
		first = step ? first : last;
	}
	assert_true(last < 10 * first && last < -5); /* from about T / V to several whole tokens */
	assert_int_equal(ww_learner_updates(l), 60);
	struct ww_loss loss = { refuses, NULL };
	assert_int_equal(ww_learner_add(l, &batch, targets, &loss, &err), WW_ERR_USAGE);
	ww_learner_free(l);
	ww_model_free(m);
}

struct fixed {
	const float *d;
};
static enum ww_rc fixed(void *ctx, const float *logp, float *dlogp, int64_t t, struct ww_err *err)
{
	const struct fixed *f = ctx;
	(void)logp, (void)err;
	memcpy(dlogp, f->d, (size_t)t * sizeof(*dlogp));
	return WW_OK;
}

static void known_derivatives_give_the_same_bits(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_model *m[2];
	struct ww_learner *l;
	float d[T], norm[2];
	const float *logp;
	(void)state;
	for (int i = 0; i < T; i++)
		d[i] = (float)(i % 7 - 3) / T;
	for (int way = 0; way < 2; way++) {
		struct fixed f = { d };
		struct ww_loss loss = { fixed, &f };
		assert_int_equal(ww_model_new(&config, dev, WW_BF16, 1, &m[way], &err), WW_OK);
		assert_int_equal(ww_learner_new(m[way], &opts, &l, &err), WW_OK);
		for (int step = 0; step < 3; step++) {
			for (int micro = 0; micro < 2; micro++)
				assert_int_equal(way ? ww_learner_add_targets(l, &batch, targets, d, &logp, &err)
									 : ww_learner_add(l, &batch, targets, &loss, &err),
					WW_OK);
			if (step == 1)
				assert_int_equal(ww_learner_drop(l, &err), WW_OK);
			else
				assert_int_equal(ww_learner_update(l, 1e-3, &norm[way], &err), WW_OK);
		}
		assert_int_equal(ww_learner_updates(l), 2);
		ww_learner_free(l);
	}
	assert_memory_equal(&norm[0], &norm[1], sizeof(norm[0]));
	assert_memory_equal(m[0]->weights, m[1]->weights, (size_t)m[0]->n * 2);
	ww_model_free(m[0]);
	ww_model_free(m[1]);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_model *m;
	struct ww_learner *l;
	float d[T] = { 0 }, norm;
	const float *logp;
	(void)state;
	assert_int_equal(ww_model_new(&config, dev, WW_F32, 1, &m, &err), WW_OK);
	assert_int_equal(ww_learner_new(m, &opts, &l, &err), WW_OK);
	void *before = malloc((size_t)m->n * 4);
	memcpy(before, m->weights, (size_t)m->n * 4);
	d[17] = NAN;
	assert_int_equal(ww_learner_add_targets(l, &batch, targets, d, &logp, &err), WW_OK);
	assert_int_equal(ww_learner_update(l, 1, &norm, &err), WW_OK);
	assert_true(isnan(norm));
	assert_int_equal(ww_learner_updates(l), 0);
	assert_memory_equal(before, m->weights, (size_t)m->n * 4);
	d[17] = 1;
	assert_int_equal(
		ww_learner_add_targets(l, &batch, targets, d, &logp, &err), WW_OK); /* the gradient was forgotten */
	assert_int_equal(ww_learner_update(l, 1e-3, &norm, &err), WW_OK);
	assert_true(isfinite(norm));
	free(before);
	ww_learner_free(l);
	ww_model_free(m);
}

static enum ww_rc plan(
	const struct ww_config *c, int dtype, int64_t keep, uint64_t budget, struct ww_memory *out, struct ww_err *err)
{
	struct ww_memory_ask a = {
		.config = c, .dtype = dtype, .max_tokens = 2048, .longest = 64, .keep = keep, .budget = budget
	};
	return ww_memory_plan(&a, dev, out, err);
}

/* Half the distance to a target for each value. */
static enum ww_rc to_targets(void *ctx, const float *value, float *d, int64_t n, struct ww_err *err)
{
	double *loss = ctx;
	(void)err;
	*loss = 0;
	for (int64_t i = 0; i < n; i++) {
		d[i] = (value[i] - (float)(i % 3)) / (float)n;
		*loss += (double)d[i] * (double)d[i] * (double)n / 2;
	}
	return WW_OK;
}

/* A policy and a critic in turns, in one workspace and in one each: the same bits, and what was predicted. */
static void a_critic_learns_in_the_policys_workspace(void **state)
{
	static const int32_t rows[] = { 3, 9, 40, 41, 90, 95 };
	struct ww_err err = WW_ERR_INIT;
	struct ww_config as_critic = config;
	struct ww_model *m[2][2];
	struct ww_batch b = batch;
	double loss = 0, first = 0;
	float norm, values[6], again[6];
	const float *logp;
	(void)state;
	b.rows = rows;
	b.n_rows = 6;
	as_critic.critic = 1;
	for (int shared = 0; shared < 2; shared++) {
		struct ww_learner *policy, *critic;
		struct ww_learner_opts own = opts;
		int64_t before = dev->used_bytes;
		assert_int_equal(ww_model_new(&config, dev, WW_BF16, 1, &m[shared][0], &err), WW_OK);
		assert_int_equal(ww_model_new(&as_critic, dev, WW_BF16, 2, &m[shared][1], &err), WW_OK);
		assert_int_equal(ww_learner_new(m[shared][0], &opts, &policy, &err), WW_OK);
		own.host = shared ? policy : NULL;
		assert_int_equal(ww_learner_new(m[shared][1], &own, &critic, &err), WW_OK);
		struct ww_memory_ask ask = { &config, WW_BF16, T, 64, opts.keep, 0, 1, 0, 0, 0 };
		struct ww_memory plan_of;
		assert_int_equal(ww_memory_plan(&ask, dev, &plan_of, &err), WW_OK);
		if (shared)
			assert_in_range(dev->used_bytes - before, plan_of.total - plan_of.workspace - 8192, plan_of.total);
		for (int step = 0; step < 30; step++) {
			struct ww_loss value = { to_targets, &loss };
			float d[6] = { -0.1f, 0.2f, -0.3f, 0.1f, 0.1f, -0.2f };
			assert_int_equal(ww_learner_add_targets(policy, &b, targets, d, &logp, &err), WW_OK);
			assert_int_equal(ww_learner_add(critic, &b, NULL, &value, &err), WW_OK);
			first = step ? first : loss;
			assert_int_equal(ww_learner_update(policy, 1e-3, &norm, &err), WW_OK);
			assert_int_equal(ww_learner_update(critic, 1e-3, &norm, &err), WW_OK);
			assert_true(norm > 0);
		}
		assert_int_equal(ww_learner_look(critic, &b, NULL, shared ? again : values, &err), WW_OK);
		assert_true(loss < first / 4);
		ww_learner_free(critic);
		ww_learner_free(policy);
	}
	assert_memory_equal(values, again, sizeof(values));
	for (int k = 0; k < 2; k++) {
		assert_memory_equal(m[0][k]->weights, m[1][k]->weights, (size_t)m[0][k]->n * 2);
		ww_model_free(m[0][k]);
		ww_model_free(m[1][k]);
	}
}

static void memory_decides_how_many_layers_keep(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_memory all, some, one;
	struct ww_config c = config;
	(void)state;
	c.layers = 12;
	assert_int_equal(plan(&c, WW_BF16, 0, 0, &all, &err), WW_OK);
	assert_int_equal(all.keep, 12);
	assert_int_equal(all.total, all.model + all.optim + all.run + all.workspace);
	struct ww_memory_ask more_of = { &c, WW_BF16, 2048, 64, 0, 0, 1, 1, 12345, 0 };
	assert_int_equal(ww_memory_plan(&more_of, dev, &some, &err), WW_OK);
	assert_int_equal(some.total, all.total + some.critic + some.reference + 12345);
	assert_in_range(some.critic, (all.model + all.optim) / 2, all.model + all.optim);
	assert_int_equal(plan(&c, WW_BF16, 1, 0, &one, &err), WW_OK);
	for (uint64_t budget = one.total; budget < all.total; budget += (all.total - one.total) / 7 + 1) {
		assert_int_equal(plan(&c, WW_BF16, 0, budget, &some, &err), WW_OK);
		assert_true(some.total <= budget && some.keep >= 1 && some.keep < 12);
		struct ww_memory more; /* one more would not fit */
		assert_int_equal(plan(&c, WW_BF16, some.keep + 1, budget, &more, &err), WW_ERR_ROOM);
		assert_true(more.total > budget);
	}
	assert_int_equal(plan(&c, WW_BF16, 0, one.total - 1000000, &some, &err), WW_ERR_ROOM);
	assert_non_null(strstr(err.msg, "0.001 GB too much"));
	assert_int_equal(plan(&c, WW_BF16, 0, one.total - 1, &some, &err), WW_ERR_ROOM);
	c.intermediate_size = 1 << 22;
	c.layers = 1000;
	assert_int_equal(plan(&c, WW_F32, 0, 0, &some, &err), WW_ERR_ROOM);
	assert_non_null(strstr(err.msg, "free on the device"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(any_loss_can_sit_on_top),
		cmocka_unit_test(known_derivatives_give_the_same_bits),
		cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
		cmocka_unit_test(a_critic_learns_in_the_policys_workspace),
		cmocka_unit_test(memory_decides_how_many_layers_keep) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
