/* Layers that are computed again give the bits of layers that were kept; rows that are left out of the head change no
 * bit of the others; a critic's gradients against finite differences; what a run takes is what was said; optimizer
 * state survives the disk to the last bit.
 *
 * all: a critic's gradients of every tensor; else of each third
 * budget: 4 CPU-seconds, all 5 */
#include "unit.h"

#include "base/fs.h"
#include "base/rng.h"
#include "base/tmpdir.h"
#include "nn/model.h"

#include <math.h>

enum { T = 150, V = 311, LONG = 4200 };
#define STEP 0x1p-7f
static int32_t ids[T], targets[T];
static float upstream[T];
static const int32_t starts[] = { 0, 70, 71, T };
static const struct ww_batch batch = { .ids = ids, .starts = starts, .t = T, .sequences = 3 };

static struct ww_config config(int critic)
{
	return (struct ww_config){ .arch = WW_ARCH_QWEN3,
		.vocab_size = V,
		.hidden_size = 48,
		.intermediate_size = 80,
		.layers = 4,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 16,
		.max_position = 128,
		.rms_eps = 1e-6,
		.initializer_range = 0.2,
		.rope = { .theta = 10000, .factor = 1, .attention_factor = 1 },
		.tie_embeddings = 1,
		.qk_norm = 1,
		.critic = critic,
		.bos = -1,
		.pad = -1,
		.dtype = WW_F32 };
}

static void fill(void)
{
	struct ww_rng r;
	ww_rng_init(&r, 5, 0);
	for (int i = 0; i < T; i++) {
		ids[i] = (int32_t)ww_rng_below(&r, V);
		targets[i] = (int32_t)ww_rng_below(&r, V);
		upstream[i] = (float)(ww_rng_uniform(&r) - 0.5);
	}
}

static const struct asked {
	const struct ww_batch *b;
	const int32_t *targets;
	const float *upstream;
} whole = { &batch, targets, upstream };

/* A workspace with gradients of zero; the memory of cpu and ref is the host's. */
static float *grads;
static struct ww_run *run_of(struct ww_model *m, int64_t t, int64_t sequences, int64_t keep)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_run *r;
	grads = realloc(grads, (size_t)m->n * sizeof(*grads));
	memset(grads, 0, (size_t)m->n * sizeof(*grads));
	assert_int_equal(ww_run_new(m, t, sequences, keep, &r, &err), WW_OK);
	ww_run_bind(r, m, grads);
	return r;
}

static enum ww_rc head_of(struct ww_run *r, const struct asked *q, int critic, float *out, struct ww_err *err)
{
	WW_CHECK(ww_run_forward(r, q->b, err));
	WW_CHECK(critic ? ww_run_values(r, out, err) : ww_run_logprobs(r, q->targets, out, err));
	return critic ? ww_run_values_backward(r, q->upstream, err) : ww_run_backward(r, q->upstream, err);
}

/* keep < 0: all, and forward and back at once. */
static float *grads_of(struct ww_model *m, const struct asked *q, int64_t keep, float *out)
{
	int at_once = keep < 0;
	struct ww_err err = WW_ERR_INIT;
	struct ww_run *r = run_of(m, T, 3, at_once ? WW_RUN_KEEP_ALL : keep);
	float *g = malloc((size_t)m->n * sizeof(*g));
	for (int twice = 0; twice < 2; twice++) /* gradients add up, whatever was kept */
		assert_int_equal(at_once ? ww_run_learn(r, q->b, q->targets, q->upstream, out, &err)
								 : head_of(r, q, m->config.critic, out, &err),
			WW_OK);
	memcpy(g, grads, (size_t)m->n * sizeof(*g));
	ww_run_free(r);
	return g;
}

static void recomputed_layers_give_the_same_bits(void **state)
{
	static const struct {
		int dtype, exact, critic, vocab;
	} cases[] = { { WW_F32, 1, 0, V }, { WW_BF16, 1, 0, 9000 }, { WW_F32, 0, 0, 9000 }, { WW_BF16, 1, 1, V } };
	(void)state;
	fill();
	for (size_t k = 0; k < WW_ARRAY_LEN(cases); k++) {
		struct ww_err err = WW_ERR_INIT;
		struct ww_config c = config(cases[k].critic);
		c.vocab_size = cases[k].vocab;
		struct ww_dev *dev;
		struct ww_model *m;
		float a[T], b[T];
		assert_int_equal(ww_dev_open("cpu", cases[k].exact, &dev, &err), WW_OK);
		assert_int_equal(ww_model_new(&c, dev, cases[k].dtype, 3, &m, &err), WW_OK);
		float *all = grads_of(m, &whole, WW_RUN_KEEP_ALL, a), *no = grads_of(m, &whole, 1, b);
		assert_memory_equal(a, b, sizeof(a));
		assert_memory_equal(all, no, (size_t)m->n * sizeof(*all));
		double sum = 0;
		for (int64_t i = 0; i < m->n; i++)
			sum += fabs((double)all[i]);
		assert_true(isfinite(sum) && sum > 0);
		free(no);
		no = grads_of(m, &whole, 2, b);
		assert_memory_equal(all, no, (size_t)m->n * sizeof(*all));
		free(no);
		no = cases[k].critic ? NULL : grads_of(m, &whole, -1, b);
		if (no)
			assert_memory_equal(all, no, (size_t)m->n * sizeof(*all));
		assert_memory_equal(a, b, sizeof(a));
		free(all);
		free(no);
		ww_model_free(m);
		ww_dev_close(dev);
	}
}

/* Every third token is trained on; in the other way to ask, the others are there with a gradient of 0. */
static void rows_left_out_change_nothing(void **state)
{
	static const struct {
		int dtype, critic, vocab;
	} cases[] = { { WW_F32, 0, 9000 }, { WW_BF16, 0, V }, { WW_BF16, 1, V } };
	(void)state;
	fill();
	for (size_t k = 0; k < WW_ARRAY_LEN(cases); k++)
		for (int none = 0; none < 2; none++) {
			struct ww_err err = WW_ERR_INIT;
			struct ww_config c = config(cases[k].critic);
			struct ww_dev *dev;
			struct ww_model *m;
			int32_t rows[T], to[T];
			float up[T], sparse[T] = { 0 }, a[T], b[T];
			struct ww_batch named = batch;
			c.vocab_size = cases[k].vocab;
			named.rows = rows;
			for (int i = 2; !none && i < T; i += 3) {
				rows[named.n_rows] = i;
				to[named.n_rows] = targets[i];
				sparse[i] = up[named.n_rows++] = upstream[i];
			}
			assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
			assert_int_equal(ww_model_new(&c, dev, cases[k].dtype, 3, &m, &err), WW_OK);
			float *all = grads_of(m, &(struct asked){ &batch, targets, sparse }, 2, a);
			for (int way = cases[k].critic ? 0 : -1; way < 2; way++) {
				float *g = grads_of(m, &(struct asked){ &named, to, up }, way ? way : WW_RUN_KEEP_ALL, b);
				assert_memory_equal(all, g, (size_t)m->n * sizeof(*g));
				for (int i = 0; i < named.n_rows; i++)
					assert_memory_equal(&a[rows[i]], &b[i], sizeof(*a));
				free(g);
			}
			free(all);
			ww_model_free(m);
			ww_dev_close(dev);
		}
}

/* -sum p log p over the vocabulary, from the hidden state and the head (the memory of the cpu is the host's). */
static double entropy_of(const struct ww_model *m, const float *hidden)
{
	struct ww_arr head = ww_model_weight(m, ww_model_head(m));
	int64_t v = m->config.vocab_size, h = m->config.hidden_size;
	double *l = malloc((size_t)v * sizeof(*l)), max = -INFINITY, sum = 0, e = 0;
	for (int64_t i = 0; i < v; i++, max = fmax(max, l[i - 1])) {
		l[i] = 0;
		for (int64_t k = 0; k < h; k++)
			l[i] += (double)hidden[k] * (double)((float *)head.p)[i * h + k];
	}
	for (int64_t i = 0; i < v; i++)
		sum += exp(l[i] - max);
	for (int64_t i = 0; i < v; i++)
		e -= exp(l[i] - max) / sum * (l[i] - max - log(sum));
	free(l);
	return e;
}

/* With logits of the whole vocabulary at a time and with chunks of them, alone and on the way to the gradient. */
static void entropies_are_exact(void **state)
{
	static const int32_t rows[] = { 0, 70, T - 1 };
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = config(0);
	struct ww_batch b = batch;
	struct ww_dev *dev;
	struct ww_model *m;
	struct ww_run *r;
	float logp[3], e[3][3];
	(void)state;
	fill();
	c.vocab_size = 9000;
	b.rows = rows;
	b.n_rows = 3;
	b.entropy = 1;
	assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_model_new(&c, dev, WW_F32, 3, &m, &err), WW_OK);
	for (int way = 0; way < 3; way++) {
		r = run_of(m, T, 3, way > 0);
		if (way < 2)
			assert_int_equal(ww_run_forward(r, &b, &err), WW_OK);
		assert_int_equal(
			way < 2 ? ww_run_logprobs(r, targets, logp, &err) : ww_run_learn(r, &b, targets, upstream, logp, &err),
			WW_OK);
		assert_int_equal(ww_run_entropy(r, e[way], &err), WW_OK);
		const float *hidden = ww_run_hidden(r).p;
		for (int i = 0; i < 3; i++)
			if (fabs((double)e[way][i] - entropy_of(m, hidden + rows[i] * c.hidden_size)) > 2e-5)
				fail_msg("row %d: %g, not %g", i, (double)e[way][i], entropy_of(m, hidden + rows[i] * c.hidden_size));
		assert_memory_equal(e[0], e[way], sizeof(e[0]));
		ww_run_free(r);
	}
	ww_model_free(m);
	ww_dev_close(dev);
}

/* More tokens than logits are there for at a time, in training and outside of it. */
static void many_tokens_go_in_groups(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = config(0);
	struct ww_dev *dev;
	struct ww_model *m;
	struct ww_run *r;
	static int32_t from[LONG], to[LONG], begins[LONG / 60 + 1];
	static float up[LONG], logp[3][LONG];
	const struct ww_batch b = { .ids = from, .starts = begins, .t = LONG, .sequences = LONG / 60 };
	float *of[2];
	(void)state;
	for (int i = 0; i < LONG; i++) {
		from[i] = i * 7 % V;
		to[i] = i * 11 % V;
		up[i] = (float)(i % 13 - 6) / LONG;
	}
	for (int i = 0; i <= LONG / 60; i++)
		begins[i] = 60 * i;
	c.layers = 1;
	assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_model_new(&c, dev, WW_F32, 3, &m, &err), WW_OK);
	for (int way = 0; way < 3; way++) {
		r = run_of(m, LONG, LONG, way < 2 ? WW_RUN_KEEP_ALL : 0);
		if (way)
			assert_int_equal(ww_run_forward(r, &b, &err), WW_OK);
		assert_int_equal(
			way ? ww_run_logprobs(r, to, logp[way], &err) : ww_run_learn(r, &b, to, up, logp[way], &err), WW_OK);
		if (way == 1)
			assert_int_equal(ww_run_backward(r, up, &err), WW_OK);
		if (way < 2) {
			of[way] = malloc((size_t)m->n * 4);
			memcpy(of[way], grads, (size_t)m->n * 4);
		}
		ww_run_free(r);
	}
	assert_memory_equal(logp[0], logp[1], sizeof(logp[0]));
	assert_memory_equal(logp[0], logp[2], sizeof(logp[0]));
	assert_memory_equal(of[0], of[1], (size_t)m->n * 4);
	free(of[0]);
	free(of[1]);
	ww_model_free(m);
	ww_dev_close(dev);
}

static void a_run_takes_what_was_said(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = config(0);
	struct ww_dev *dev;
	struct ww_model *m;
	struct ww_run *r;
	struct ww_optim *o;
	uint64_t last = 0, bytes, free_bytes, total_bytes;
	(void)state;
	assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_model_new(&c, dev, WW_BF16, 3, &m, &err), WW_OK);
	bytes = ww_model_bytes(&c, WW_BF16);
	assert_in_range(dev->used_bytes, bytes - 2048, bytes + 256);
	for (int64_t keep = 0; keep < 6; keep++) {
		int64_t before = dev->used_bytes;
		bytes = ww_run_bytes(&c, WW_BF16, T, 3, keep);
		assert_int_equal(ww_run_new(m, T, 3, keep, &r, &err), WW_OK);
		assert_in_range(dev->used_bytes - before, bytes, bytes + 256);
		assert_true(keep < 5 ? bytes > last : bytes == last); /* there are four layers */
		last = bytes;
		ww_run_free(r);
		assert_int_equal(dev->used_bytes, before);
		assert_true(dev->peak_bytes >= before + (int64_t)bytes);
	}
	int64_t before = dev->used_bytes;
	bytes = ww_optim_bytes(&c, WW_BF16);
	assert_int_equal(ww_optim_new(m, &o, &err), WW_OK);
	assert_in_range(dev->used_bytes - before, bytes, bytes + 256);
	dev->ops->memory(dev, &free_bytes, &total_bytes);
	assert_true(free_bytes > 0 && free_bytes <= total_bytes);
	ww_optim_free(o);
	ww_model_free(m);
	assert_int_equal(dev->used_bytes, 0);
	ww_dev_close(dev);
}

/* sum(upstream * value) of the scalar reference. */
static double objective(struct ww_run *r)
{
	struct ww_err err = WW_ERR_INIT;
	float values[T];
	double sum = 0;
	assert_int_equal(ww_run_forward(r, &batch, &err), WW_OK);
	assert_int_equal(ww_run_values(r, values, &err), WW_OK);
	for (int i = 0; i < T; i++)
		sum += (double)upstream[i] * (double)values[i];
	return sum;
}

static int all;

static void a_critics_gradients_are_differences(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = config(1);
	struct ww_dev *dev;
	struct ww_model *m;
	struct ww_run *r;
	struct ww_rng rng;
	(void)state;
	fill();
	assert_int_equal(ww_dev_open("ref", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_model_new(&c, dev, WW_F32, 3, &m, &err), WW_OK);
	assert_string_equal(m->params[m->count - 1].name, "score.weight");
	r = run_of(m, T, 3, WW_RUN_KEEP_ALL);
	objective(r);
	assert_int_equal(ww_run_values_backward(r, upstream, &err), WW_OK);
	float *w = m->weights, *g = grads; /* the reference's memory is the host's */
	ww_rng_init(&rng, 9, 0);
	for (int i = 0; i < m->count; i += !all ? 3 : m->params[i].rank == 2 && i ? 1 : 2) {
		const struct ww_param *p = &m->params[i];
		int64_t at = p->offset + (i ? (int64_t)ww_rng_below(&rng, (uint64_t)p->n) : ids[0] * c.hidden_size + 7);
		float keep = w[at];
		double f[4];
		for (int k = 0; k < 4; k++) { /* at -2h, -h, h, 2h: exact up to the fourth power of h */
			w[at] = keep + (float)(k < 2 ? k - 2 : k - 1) * STEP;
			f[k] = objective(r);
		}
		w[at] = keep;
		double slope = (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * (double)STEP);
		if (fabs(slope - (double)g[at]) > 1e-3 * fmax(1, fabs(slope)))
			fail_msg("%s: gradient %g, difference %g", p->name, (double)g[at], slope);
	}
	ww_run_free(r);
	ww_model_free(m);
	ww_dev_close(dev);
}

static void a_critic_has_a_trunk_and_a_head(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = config(0);
	struct ww_tmpdir tmp;
	struct ww_dev *dev;
	struct ww_model *policy, *critic, *again;
	struct ww_run *r;
	char dir[PATH_MAX], dir2[PATH_MAX];
	float values[T], logp[T];
	(void)state;
	fill();
	assert_int_equal(ww_tmpdir_new(&tmp, "test", &err), WW_OK);
	assert_int_equal(ww_fs_join(dir, tmp.path, "policy", &err), WW_OK);
	assert_int_equal(ww_fs_join(dir2, tmp.path, "critic", &err), WW_OK);
	c.tie_embeddings = 0;
	assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_model_new(&c, dev, WW_F32, 3, &policy, &err), WW_OK);
	assert_int_equal(ww_model_save(policy, dir, NULL, &err), WW_OK);
	assert_int_equal(ww_model_open_critic(dir, dev, 0, &critic, &err), WW_OK);
	assert_int_equal(critic->count, policy->count);
	int64_t trunk = critic->params[critic->count - 1].offset;
	assert_memory_equal(critic->weights, policy->weights, (size_t)trunk * 4);
	assert_int_equal(ww_run_new(critic, T, 3, 0, &r, &err), WW_OK);
	objective(r);
	assert_int_equal(ww_run_values(r, values, &err), WW_OK);
	for (int i = 0; i < T; i++)
		assert_true(values[i] == 0); /* a new head */
	assert_int_equal(ww_run_logprobs(r, targets, logp, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "critic"));
	ww_run_free(r);
	((float *)critic->weights)[trunk + 3] = 0.5f;
	assert_int_equal(ww_model_save(critic, dir2, NULL, &err), WW_OK);
	assert_int_equal(ww_model_open(dir2, dev, 0, &again, &err), WW_OK);
	assert_true(again->config.critic);
	assert_memory_equal(again->weights, critic->weights, (size_t)critic->n * 4);
	ww_model_free(again);
	assert_int_equal(ww_model_open_critic(dir2, dev, 0, &again, &err), WW_OK); /* a critic stays one, head and all */
	assert_memory_equal(again->weights, critic->weights, (size_t)critic->n * 4);
	ww_model_free(again);
	ww_model_free(critic);
	ww_model_free(policy);
	ww_dev_close(dev);
	ww_tmpdir_remove(&tmp);
}

/* Six steps at once, and three, to the disk and back, three more. */
static void optimizer_state_survives_the_disk(void **state)
{
	static const int dtypes[] = { WW_F32, WW_BF16 };
	(void)state;
	fill();
	for (size_t k = 0; k < 2; k++) {
		struct ww_err err = WW_ERR_INIT;
		struct ww_config c = config(0);
		struct ww_tmpdir tmp;
		struct ww_dev *dev;
		struct ww_model *m[2];
		float logp[T], norm;
		char weights[PATH_MAX], optim[PATH_MAX];
		assert_int_equal(ww_tmpdir_new(&tmp, "test", &err), WW_OK);
		assert_int_equal(ww_fs_join(weights, tmp.path, "model", &err), WW_OK);
		assert_int_equal(ww_fs_join(optim, tmp.path, "optim", &err), WW_OK);
		assert_int_equal(ww_fs_mkdirs(optim, &err), WW_OK);
		assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
		for (int way = 0; way < 2; way++) {
			struct ww_optim *o;
			struct ww_run *r;
			assert_int_equal(ww_model_new(&c, dev, dtypes[k], 3, &m[way], &err), WW_OK);
			assert_int_equal(ww_optim_new(m[way], &o, &err), WW_OK);
			assert_int_equal(ww_run_new(m[way], T, 3, 2, &r, &err), WW_OK);
			ww_run_bind(r, m[way], ww_optim_grads(o));
			for (int step = 1; step <= 6; step++) {
				struct ww_adamw h = { 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, step };
				if (way && step == 4) {
					assert_int_equal(ww_model_save(m[1], weights, NULL, &err), WW_OK);
					assert_int_equal(ww_optim_save(o, optim, &err), WW_OK);
					ww_run_free(r);
					ww_optim_free(o);
					ww_model_free(m[1]);
					assert_int_equal(ww_model_open(weights, dev, 0, &m[1], &err), WW_OK);
					assert_int_equal(ww_optim_new(m[1], &o, &err), WW_OK);
					assert_int_equal(ww_optim_load(o, optim, &err), WW_OK);
					assert_int_equal(ww_run_new(m[1], T, 3, 2, &r, &err), WW_OK);
					ww_run_bind(r, m[1], ww_optim_grads(o));
				}
				assert_int_equal(ww_run_forward(r, &batch, &err), WW_OK);
				assert_int_equal(ww_run_logprobs(r, targets, logp, &err), WW_OK);
				assert_int_equal(ww_run_backward(r, upstream, &err), WW_OK);
				assert_int_equal(ww_optim_step(o, &h, 1, &norm, &err), WW_OK);
				assert_true(norm > 0);
			}
			ww_run_free(r);
			ww_optim_free(o);
		}
		assert_memory_equal(m[0]->weights, m[1]->weights, (size_t)m[0]->n * (dtypes[k] == WW_F32 ? 4 : 2));
		ww_model_free(m[0]);
		ww_model_free(m[1]);
		ww_dev_close(dev);
		ww_tmpdir_remove(&tmp);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(recomputed_layers_give_the_same_bits),
		cmocka_unit_test(rows_left_out_change_nothing), cmocka_unit_test(entropies_are_exact),
		cmocka_unit_test(many_tokens_go_in_groups), cmocka_unit_test(a_run_takes_what_was_said),
		cmocka_unit_test(a_critics_gradients_are_differences), cmocka_unit_test(a_critic_has_a_trunk_and_a_head),
		cmocka_unit_test(optimizer_state_survives_the_disk) };
	all = unit_all(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
