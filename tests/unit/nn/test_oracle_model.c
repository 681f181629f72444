/* Tiny models of every kind against transformers: logits, gradients, optimizer steps, and a checkpoint of ours that
 * transformers loads.
 *
 *   nn_test_oracle_model [cpu|cuda [STEPS]]  on the cpu, and there with `ref` too; or on the GPU, 77 where there is
 *                                            none; 100 steps
 *
 * budget: 3 CPU-seconds, all 42 (make check: 5 steps, and what transformers computes is in the store) */
#include "oracle.h"

#include "nn/model.h"
#include "nn/safetensors.h"

#include <math.h>

static const char *const names[] = { "llama", "llama_mha", "qwen2", "qwen3", "qwen3_wide" };
static const char *on = "cpu", *steps = "100";
static int failed; /* what did not hold was printed; the other models are looked at all the same */

struct fixture {
	char dir[PATH_MAX];
	struct ww_st *st;
	struct ww_model *m;
	struct ww_run *r;
	struct ww_optim *o;
	struct ww_batch b;
	const int32_t *targets;
	float *logp;
};

static const void *data(struct fixture *f, const char *name)
{
	const struct ww_st_tensor *t = ww_st_find(f->st, name);
	if (!t)
		fail_msg("the case has no %s", name);
	return t->data;
}

/* A limit that is passed is an error of the test, but not its end: one run is to say everything. */
static void hold(const char *what, double is, double limit)
{
	if (is <= limit)
		return;
	printf("# FAILED: %s: %.2e, the limit is %.1e\n", what, is, limit);
	failed++;
}

/* The largest |a - b| and the norm-wise relative difference. */
static double largest(const float *a, const float *b, int64_t n)
{
	double m = 0;
	for (int64_t i = 0; i < n; i++) {
		double d = fabs((double)a[i] - (double)b[i]);
		m = !(d <= m) ? d : m;
	}
	return m;
}

static double relative(const float *a, const float *b, int64_t n)
{
	double diff = 0, norm = 1e-30;
	for (int64_t i = 0; i < n; i++) {
		diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		norm += (double)b[i] * (double)b[i];
	}
	return sqrt(diff / norm);
}

static void check_logits(struct fixture *f)
{
	struct ww_err err = WW_ERR_INIT;
	const struct ww_dev_ops *ops = f->m->dev->ops;
	int64_t v = f->m->config.vocab_size, n = f->b.t * v;
	void *logits;
	float *host = malloc((size_t)n * 4);
	assert_int_equal(ops->alloc(f->m->dev, (size_t)n * 4, &logits, &err), WW_OK);
	ops->gemm(f->m->stream, WW_GEMM_NT, (struct ww_arr){ logits, WW_F32 }, ww_run_hidden(f->r),
		ww_model_weight(f->m, ww_model_head(f->m)), f->b.t, v, f->m->config.hidden_size, 0);
	ops->download(f->m->stream, host, logits, (size_t)n * 4);
	assert_int_equal(ops->sync(f->m->stream, &err), WW_OK);
	double e = largest(host, data(f, "logits"), n);
	printf("#   logits differ by at most %.1e\n", e);
	hold("logits", e, 1e-4);
	ops->free(f->m->dev, logits);
	free(host);
}

static void check_grads(struct fixture *f)
{
	const struct ww_dev_ops *ops = f->m->dev->ops;
	struct ww_err err = WW_ERR_INIT;
	double worst = 0;
	for (int i = 0; i < f->m->count; i++) {
		const struct ww_param *p = &f->m->params[i];
		char name[128];
		float *host = malloc((size_t)p->n * 4);
		snprintf(name, sizeof(name), "grad.%s", p->name);
		ops->download(f->m->stream, host, ww_optim_grads(f->o) + p->offset, (size_t)p->n * 4);
		assert_int_equal(ops->sync(f->m->stream, &err), WW_OK);
		double e = relative(host, data(f, name), p->n);
		hold(name, e, 1e-4);
		worst = e > worst ? e : worst;
		free(host);
	}
	printf("#   gradients of %d parameters: relative difference at most %.1e\n", f->m->count, worst);
}

static void check_training(struct fixture *f)
{
	struct ww_err err = WW_ERR_INIT;
	const float *want = data(f, "losses"), *lr = data(f, "lr");
	float *d = malloc((size_t)f->b.t * 4), norm;
	double worst = 0, loss = 0;
	assert_int_equal(ww_optim_zero_grads(f->o, &err), WW_OK);
	for (int step = 0; step < atoi(steps); step++) {
		struct ww_adamw h = { lr[step], 0.9f, 0.95f, 1e-8f, 0.1f, step + 1 };
		loss = 0;
		assert_int_equal(ww_run_forward(f->r, &f->b, &err), WW_OK);
		assert_int_equal(ww_run_logprobs(f->r, f->targets, f->logp, &err), WW_OK);
		for (int64_t i = 0; i < f->b.t; i++) {
			loss -= (double)f->logp[i] / (double)f->b.t;
			d[i] = -1.0f / (float)f->b.t;
		}
		assert_int_equal(ww_run_backward(f->r, d, &err), WW_OK);
		assert_int_equal(ww_optim_step(f->o, &h, 0.5f, &norm, &err), WW_OK);
		double apart = fabs(loss - (double)want[step]);
		worst = apart > worst || isnan(apart) ? apart : worst;
		if (step % 10 == 9)
			printf("%s %.0e", step == 9 ? "#   apart after 10, 20, ... steps:" : "", apart);
	}
	printf("\n");
	printf("#   %s steps of AdamW: loss %.4f to %.4f, differs by at most %.1e\n", steps, (double)want[0], loss, worst);
	hold("loss", worst, 1e-3);
	free(d);
}

static void check_model(const char *root, const char *name, const char *device, int exact, int whole)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *dev;
	struct fixture f = { 0 };
	char path[PATH_MAX];
	snprintf(f.dir, sizeof(f.dir), "%.200s/%s", root, name);
	snprintf(path, sizeof(path), "%.300s/case.safetensors", f.dir);
	printf("# %s on %s%s\n", name, device, exact ? ", exact" : "");
	assert_int_equal(ww_dev_open(device, exact, &dev, &err), WW_OK);
	if (ww_st_open(path, &f.st, &err) != WW_OK || ww_model_open(f.dir, dev, 0, &f.m, &err) != WW_OK)
		fail_msg("%s", err.msg);
	f.b = (struct ww_batch){ .ids = data(&f, "ids"),
		.starts = data(&f, "starts"),
		.t = (int64_t)ww_st_find(f.st, "ids")->numel,
		.sequences = (int64_t)ww_st_find(f.st, "starts")->numel - 1 };
	f.targets = data(&f, "targets");
	f.logp = malloc((size_t)f.b.t * 4);
	assert_int_equal(ww_run_new(f.m, f.b.t, f.b.sequences, 1, &f.r, &err), WW_OK);
	assert_int_equal(ww_optim_new(f.m, &f.o, &err), WW_OK);
	ww_run_bind(f.r, f.m, ww_optim_grads(f.o));
	assert_int_equal(ww_run_forward(f.r, &f.b, &err), WW_OK);
	check_logits(&f);
	assert_int_equal(ww_run_logprobs(f.r, f.targets, f.logp, &err), WW_OK);
	hold("log-probabilities", largest(f.logp, data(&f, "logp"), f.b.t), 1e-4);
	assert_int_equal(ww_run_backward(f.r, data(&f, "weight"), &err), WW_OK);
	check_grads(&f);
	if (whole) {
		snprintf(path, sizeof(path), "%.300s/saved", f.dir);
		if (ww_model_save(f.m, path, NULL, &err) != WW_OK)
			fail_msg("%s", err.msg);
		assert_int_equal(ww_model_save(f.m, path, NULL, &err), WW_ERR_USAGE);
		check_training(&f);
	}
	ww_optim_free(f.o);
	ww_run_free(f.r);
	ww_model_free(f.m);
	ww_st_free(f.st);
	ww_dev_close(dev);
	free(f.logp);
}

/* The model in bf16 may differ from fp32 as much as PyTorch's own bf16 does. */
static void check_bf16(const char *root, const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *dev;
	struct fixture f = { 0 };
	char path[PATH_MAX];
	snprintf(f.dir, sizeof(f.dir), "%.200s/%s", root, name);
	snprintf(path, sizeof(path), "%.300s/case.safetensors", f.dir);
	assert_int_equal(ww_dev_open(on, 1, &dev, &err), WW_OK);
	assert_int_equal(ww_st_open(path, &f.st, &err), WW_OK);
	assert_int_equal(ww_model_open(f.dir, dev, WW_BF16, &f.m, &err), WW_OK);
	f.b = (struct ww_batch){ .ids = data(&f, "ids"),
		.starts = data(&f, "starts"),
		.t = (int64_t)ww_st_find(f.st, "ids")->numel,
		.sequences = (int64_t)ww_st_find(f.st, "starts")->numel - 1 };
	f.logp = malloc((size_t)f.b.t * 4);
	assert_int_equal(ww_run_new(f.m, f.b.t, f.b.sequences, 0, &f.r, &err), WW_OK);
	assert_int_equal(ww_run_forward(f.r, &f.b, &err), WW_OK);
	assert_int_equal(ww_run_logprobs(f.r, data(&f, "targets"), f.logp, &err), WW_OK);
	double ours = relative(f.logp, data(&f, "logp"), f.b.t),
		   theirs = relative(data(&f, "logp_bf16"), data(&f, "logp"), f.b.t);
	printf("# %s in bf16: relative difference %.1e, PyTorch's own %.1e\n", name, ours, theirs);
	assert_true(ours > 0);
	hold("bf16", ours, theirs);
	ww_run_free(f.r);
	ww_model_free(f.m);
	ww_st_free(f.st);
	ww_dev_close(dev);
	free(f.logp);
}

static int same_tensor(const struct ww_st_tensor *a, const struct ww_st_tensor *b)
{
	return b && a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->shape, b->shape, sizeof(a->shape)) &&
		a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
}

/* What we saved is what transformers saved of the same model: each tensor, and what is read of config.json.  That
 * transformers loads it is shown at 100 steps. */
static void check_saved(const char *root, const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_st *st[2];
	struct ww_config config;
	json_t *said[2];
	char path[PATH_MAX];
	for (int ours = 0; ours < 2; ours++) {
		snprintf(path, sizeof(path), "%.200s/%s%s", root, name, ours ? "/saved" : "");
		assert_int_equal(ww_st_open(path, &st[ours], &err), WW_OK);
		snprintf(path, sizeof(path), "%.200s/%s%s/config.json", root, name, ours ? "/saved" : "");
		assert_int_equal(ww_config_read(path, &config, &err), WW_OK);
		said[ours] = ww_config_to_json(&config);
	}
	assert_true(json_equal(said[0], said[1]));
	assert_int_equal(ww_st_count(st[0]), ww_st_count(st[1]));
	for (size_t i = 0; i < ww_st_count(st[0]); i++)
		if (!same_tensor(ww_st_at(st[0], i), ww_st_find(st[1], ww_st_at(st[0], i)->name)))
			fail_msg("%s: %s was saved otherwise than it was loaded", name, ww_st_at(st[0], i)->name);
	for (int ours = 0; ours < 2; ours++) {
		ww_st_free(st[ours]);
		json_decref(said[ours]);
	}
}

static void models_compute_what_transformers_computes(void **state)
{
	(void)state;
	char dir[PATH_MAX], load[PATH_MAX + 8], none[PATH_MAX];
	if (!oracle_kept("model_oracle.py", steps, dir))
		skip();
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++) {
		check_model(dir, names[i], on, 1, 1);
		check_saved(dir, names[i]);
		check_model(dir, names[i], on, 0, 0);
		check_bf16(dir, names[i]);
	}
	if (!strcmp(on, "cpu"))
		check_model(dir, "qwen3", "ref", 1, 0);
	if (atoi(steps) >= 100) {
		snprintf(load, sizeof(load), "load %s", dir);
		assert_true(oracle_run("model_oracle.py", load, none));
		oracle_clean(none);
	}
	oracle_clean(dir);
	assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *dev = NULL;
	on = argc > 1 ? argv[1] : on;
	steps = argc > 2 ? argv[2] : steps;
	if (!strcmp(on, "cuda") && ww_dev_open(on, 1, &dev, &err) == WW_ERR_MISSING) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	ww_dev_close(dev);
	const struct CMUnitTest tests[] = { cmocka_unit_test(models_compute_what_transformers_computes) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
