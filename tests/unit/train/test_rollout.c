/* Sampling and training with one model in memory: the log-probabilities recorded while sampling are those of training's
 * forward pass to the last bit, before and after an update; and the engine's memory is free meanwhile. */
#include "unit.h"

#include "../infer/tiny.h"
#include "train/learner.h"

#include <pthread.h>
#include <unistd.h>

enum { PROMPT = 70, NEW = 50, SAMPLES = 4, MOST = SAMPLES * (PROMPT + NEW) };
static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static char dir[4200];
static struct ww_dev *dev;
static struct ww_model *model;
static struct ww_tok *tok;

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	if (ww_tmpdir_new(&tmp, "test-rollout", &err) != WW_OK)
		return -1;
	snprintf(dir, sizeof(dir), "%s/model", tmp.path);
	return tiny_model(dir, 512) && ww_dev_open("cpu", 1, &dev, &err) == WW_OK &&
			ww_model_open(dir, dev, WW_BF16, &model, &err) == WW_OK && ww_tok_open(dir, &tok, &err) == WW_OK
		? 0
		: -1;
}

static int teardown(void **state)
{
	(void)state;
	ww_model_free(model);
	ww_tok_free(tok);
	ww_dev_close(dev);
	ww_tmpdir_remove(&tmp);
	return 0;
}

static struct ww_engine *engine;
static struct ww_engine_answer answers[SAMPLES];

static void *sample(void *arg)
{
	struct ww_err err = WW_ERR_INIT;
	int32_t prompt[PROMPT];
	intptr_t i = (intptr_t)arg;
	for (int k = 0; k < PROMPT; k++)
		prompt[k] = k * 3 % 200;
	struct ww_engine_request q = { .prompt = prompt,
		.prompt_n = PROMPT,
		.max_new = NEW,
		.sampling = ww_engine_sampling(engine),
		.seed = 5,
		.stream = (uint64_t)i };
	assert_int_equal(ww_engine_ask(engine, &q, NULL, &answers[i], &err), WW_OK);
	return NULL;
}

static void start_all(pthread_t *thread)
{
	for (intptr_t i = 0; i < SAMPLES; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, sample, (void *)i), 0);
}

static void join_all(const pthread_t *thread)
{
	for (int i = 0; i < SAMPLES; i++)
		pthread_join(thread[i], NULL);
}

/* All samples as one packed batch, with a gradient that makes them likelier. */
static void learn(struct ww_learner *l, int update)
{
	struct ww_err err = WW_ERR_INIT;
	int32_t ids[MOST], targets[MOST], rows[MOST], starts[SAMPLES + 1] = { 0 };
	float logp[MOST], recorded[MOST], d[MOST], norm;
	const float *again;
	struct ww_batch b = { .ids = ids, .starts = starts, .sequences = SAMPLES, .rows = rows };
	for (int s = 0; s < SAMPLES; s++) {
		const struct ww_engine_answer *a = &answers[s];
		for (int k = 0; k < PROMPT; k++)
			ids[b.t++] = k * 3 % 200;
		for (size_t k = 0; k < a->ids.n; k++) {
			rows[b.n_rows] = (int32_t)b.t - 1;
			targets[b.n_rows] = a->ids.p[k];
			d[b.n_rows] = -0.02f;
			recorded[b.n_rows++] = a->logp[k];
			ids[b.t++] = a->ids.p[k];
		}
		starts[s + 1] = (int32_t)b.t;
	}
	assert_true(b.n_rows > SAMPLES * 10);
	assert_int_equal(ww_learner_look(l, &b, targets, logp, &err), WW_OK);
	assert_memory_equal(logp, recorded, (size_t)b.n_rows * sizeof(*logp));
	if (!update)
		return;
	assert_int_equal(ww_learner_add_targets(l, &b, targets, d, &again, &err), WW_OK);
	assert_memory_equal(again, recorded, (size_t)b.n_rows * sizeof(*logp));
	assert_int_equal(ww_learner_update(l, 1e-3, &norm, &err), WW_OK);
	assert_true(norm > 0);
}

static void sampling_and_training_agree_to_the_bit(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_engine_opts o = { .limits = { 1000, 4, 64 } };
	struct ww_learner_opts lo = { .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .max_tokens = MOST, .keep = 1 };
	struct ww_learner *l;
	pthread_t thread[SAMPLES];
	float first[NEW];
	(void)state;
	assert_int_equal(ww_engine_adopt(&o, model, tok, &engine, &err), WW_OK);
	struct ww_sampling s = ww_engine_sampling(engine), plain = WW_SAMPLING_INIT;
	assert_memory_equal(&s, &plain, sizeof(s));
	for (int step = 0; step < 3; step++) {
		start_all(thread);
		if (step) { /* asked for while the engine rests, answered after the update */
			usleep(2000);
			assert_int_equal(ww_engine_resume(engine, &err), WW_OK);
		}
		join_all(thread);
		if (step == 0)
			memcpy(first, answers[0].logp, sizeof(first));
		else
			assert_memory_not_equal(first, answers[0].logp, sizeof(first));
		int64_t before = dev->used_bytes, own = (int64_t)ww_infer_bytes(model, &o.limits);
		ww_engine_pause(engine);
		ww_engine_pause(engine);
		assert_in_range(before - dev->used_bytes, own, own + 1024);
		assert_int_equal(ww_learner_new(model, &lo, &l, &err), WW_OK);
		learn(l, step < 2);
		ww_learner_free(l);
		for (int i = 0; i < SAMPLES; i++)
			ww_engine_answer_release(&answers[i]);
	}
	ww_engine_close(engine); /* at rest, too */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(sampling_and_training_agree_to_the_bit) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
