/* Generation: the same tokens and the same bits alone, in a crowd, in chunks, and when scored as training scores; sampling. */
#include "unit.h"

#include "base/rng.h"
#include "infer/infer.h"

#include <math.h>

enum { REQUESTS = 6, NEW = 70 };

struct out { int32_t token[NEW]; float logp[NEW]; int n; enum ww_finish finish; };

static struct ww_dev *dev;
static struct ww_model *model;

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = { .arch = WW_ARCH_QWEN3, .vocab_size = 9000, .hidden_size = 48, .intermediate_size = 64, .layers = 2,
			       .heads = 4, .kv_heads = 2, .head_dim = 16, .max_position = 300, .rms_eps = 1e-6,
			       .initializer_range = 0.3, .rope = { .theta = 10000, .factor = 1, .attention_factor = 1 },
			       .tie_embeddings = 1, .qk_norm = 1, .bos = -1, .pad = -1, .dtype = WW_F32 };
	int dtype = *state ? *(int *)*state : WW_F32;
	if (ww_dev_open("cpu", 1, &dev, &err) != WW_OK || ww_model_new(&c, dev, dtype, 3, &model, &err) != WW_OK)
		return -1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ww_model_free(model);
	ww_dev_close(dev);
	return 0;
}

static int32_t prompt[REQUESTS][200];
static const int64_t lengths[REQUESTS] = { 1, 64, 130, 3, 63, 200 };

static struct ww_request request(int i)
{
	struct ww_rng r;
	ww_rng_init(&r, 11, (uint64_t)i);
	for (int64_t k = 0; k < lengths[i]; k++)
		prompt[i][k] = (int32_t)ww_rng_below(&r, 9000);
	struct ww_request q = { .prompt = prompt[i], .prompt_n = lengths[i], .max_new = i == 3 ? 5 : NEW, .seed = 42,
				.stream = (uint64_t)i, .sampling = WW_SAMPLING_INIT };
	if (i == 2)
		q.sampling = (struct ww_sampling){ 0.7, 50, 0.9, 0.01 };
	return q;
}

static void take(void *arg, const struct ww_infer_event *e)
{
	struct out *o = e->user;
	(void)arg;
	assert_true(o->n < NEW && o->finish == WW_FINISH_NONE);
	o->token[o->n] = e->sampled.token;
	o->logp[o->n++] = e->sampled.logp;
	o->finish = e->finish;
}

static void generate(const struct ww_infer_limits *l, int first, int last, struct out *out)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_infer *f;
	int64_t left, id;
	assert_int_equal(ww_infer_new(model, l, &f, &err), WW_OK);
	int64_t pages = ww_infer_free_pages(f);
	for (int i = first; i <= last; i++) {
		struct ww_request q = request(i);
		q.user = &out[i];
		memset(&out[i], 0, sizeof(out[i]));
		assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
	}
	int steps = 0;
	do {
		if (ww_infer_step(f, take, NULL, &left, &err) != WW_OK)
			fail_msg("%s", err.msg);
		assert_true(steps++ < 2000);
	} while (left);
	assert_int_equal(ww_infer_free_pages(f), pages);
	ww_infer_free(f);
}

static void compare(const struct out *a, const struct out *b, int i)
{
	assert_int_equal(a[i].n, i == 3 ? 5 : NEW);
	assert_int_equal(a[i].finish, WW_FINISH_LENGTH);
	assert_int_equal(a[i].n, b[i].n);
	assert_memory_equal(a[i].token, b[i].token, (size_t)a[i].n * 4);
	assert_memory_equal(a[i].logp, b[i].logp, (size_t)a[i].n * 4);
}

/* The log-probabilities of the whole sequence in one packed forward pass behind another sequence, as training has them. */
static void score(const struct out *o, int i)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_run *r;
	int32_t ids[512], targets[512], starts[3] = { 0, 7, 7 };
	float logp[512];
	int64_t n = lengths[i] + o->n - 1;
	for (int k = 0; k < 7; k++)
		ids[k] = targets[k] = k;
	for (int64_t k = 0; k <= n; k++) {
		int32_t id = k < lengths[i] ? prompt[i][k] : o->token[k - lengths[i]];
		if (k < n)
			ids[7 + k] = id;
		if (k)
			targets[7 + k - 1] = id;
	}
	starts[2] = (int32_t)(7 + n);
	struct ww_batch b = { .ids = ids, .starts = starts, .t = starts[2], .sequences = 2 };
	assert_int_equal(ww_run_new(model, 512, 2, 1, &r, &err), WW_OK);
	assert_int_equal(ww_run_forward(r, &b, &err), WW_OK);
	assert_int_equal(ww_run_logprobs(r, targets, logp, &err), WW_OK);
	assert_memory_equal(logp + 7 + lengths[i] - 1, o->logp, (size_t)o->n * 4);
	ww_run_free(r);
}

static void a_sequence_does_not_see_the_others(void **state)
{
	static struct out crowd[REQUESTS], chunks[REQUESTS], alone[REQUESTS];
	(void)state;
	generate(&(struct ww_infer_limits){ 4000, REQUESTS, 1000 }, 0, REQUESTS - 1, crowd);
	/* Little room: prompts in chunks of a few tokens, and requests that wait for pages and slots. */
	generate(&(struct ww_infer_limits){ 330, 3, 17 }, 0, REQUESTS - 1, chunks);
	for (int i = 0; i < REQUESTS; i++) {
		generate(&(struct ww_infer_limits){ 300, 1, 300 }, i, i, alone);
		compare(crowd, chunks, i);
		compare(crowd, alone, i);
		score(&crowd[i], i);
	}
}

static void stop_limits_and_cancel(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_infer *f;
	static struct out out[REQUESTS], again[REQUESTS];
	int64_t id, left;
	(void)state;
	generate(&(struct ww_infer_limits){ 300, 1, 300 }, 1, 1, out);
	assert_int_equal(ww_infer_new(model, &(struct ww_infer_limits){ 140, 2, 64 }, &f, &err), WW_OK);
	int64_t pages = ww_infer_free_pages(f);
	struct ww_request q = request(1);
	q.stop = &out[1].token[4];
	q.stop_n = 1;
	q.user = &again[1];
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
	do
		assert_int_equal(ww_infer_step(f, take, NULL, &left, &err), WW_OK);
	while (left);
	assert_int_equal(again[1].finish, WW_FINISH_STOP);
	assert_true(again[1].n <= 5);
	assert_int_equal(again[1].token[again[1].n - 1], out[1].token[4]);
	q = request(5);		/* 200 + 70 tokens: more than this cache */
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_ERR_LIMIT);
	q.max_new = 200;	/* more than the context */
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_ERR_LIMIT);
	int32_t outside = 9000;
	q = (struct ww_request){ .prompt = &outside, .prompt_n = 1, .max_new = 1 };
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_ERR_USAGE);
	q = request(1);
	q.user = &again[0];
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
	assert_int_equal(ww_infer_step(f, take, NULL, &left, &err), WW_OK);
	assert_int_equal(left, 1);
	ww_infer_cancel(f, id);
	ww_infer_cancel(f, 12345);
	assert_int_equal(ww_infer_free_pages(f), pages);
	assert_int_equal(ww_infer_step(f, take, NULL, &left, &err), WW_OK);
	assert_int_equal(left, 0);
	ww_infer_free(f);
}

enum { DRAWS = 20000, V = 6 };

static void draw_many(const struct ww_sampling *s, int counts[V])
{
	static const float logits[V] = { 0.0f, 2.0f, 1.0f, -1.0f, 2.0f, -INFINITY };
	struct ww_err err = WW_ERR_INIT;
	double sum = 0;
	for (int i = 0; i < V; i++)
		sum += exp((double)logits[i]);
	memset(counts, 0, V * sizeof(*counts));
	for (uint64_t i = 0; i < DRAWS; i++) {
		struct ww_sampled t;
		assert_int_equal(ww_sample(logits, V, (float)log(sum), s, 1, 2, i, &t, &err), WW_OK);
		assert_float_equal(t.logp, (double)logits[t.token] - log(sum), 1e-5);
		counts[t.token]++;
	}
}

static void draws_follow_the_distribution(void **state)
{
	int n[V];
	(void)state;
	double w[V] = { 1, exp(2), exp(1), exp(-1), exp(2), 0 }, total = 0;
	for (int i = 0; i < V; i++)
		total += w[i];
	draw_many(&(struct ww_sampling)WW_SAMPLING_INIT, n);
	for (int i = 0; i < V; i++) {	/* five standard deviations */
		double p = w[i] / total;
		assert_true(fabs(n[i] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)));
	}
	draw_many(&(struct ww_sampling){ 0.5, 0, 1, 0 }, n);	/* weights squared */
	assert_true(fabs(n[2] / (double)n[1] - exp(-2)) < 0.03);
	draw_many(&(struct ww_sampling){ 1, 3, 1, 0 }, n);
	assert_true(n[1] && n[4] && n[2] && !n[0] && !n[3]);
	draw_many(&(struct ww_sampling){ 1, 0, 0.5, 0 }, n);	/* two tokens share 0.8 of the mass; 1 alone has 0.4 */
	assert_true(n[1] && n[4] && n[1] + n[4] == DRAWS);
	draw_many(&(struct ww_sampling){ 1, 0, 1, 0.3 }, n);
	assert_true(n[1] && n[4] && n[2] && !n[0] && !n[3]);
	draw_many(&(struct ww_sampling){ 0, 0, 1, 0 }, n);	/* ties go to the smaller id */
	assert_int_equal(n[1], DRAWS);
}

static void broken_logits_are_an_error(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_sampled t;
	const struct ww_sampling s = WW_SAMPLING_INIT;
	(void)state;
	assert_int_equal(ww_sample((float[]){ 1, NAN }, 2, 0, &s, 0, 0, 0, &t, &err), WW_ERR_DEVICE);
	assert_int_equal(ww_sample((float[]){ -INFINITY, -INFINITY }, 2, 0, &s, 0, 0, 0, &t, &err), WW_ERR_DEVICE);
}

int main(void)
{
	static int bf16 = WW_BF16;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_sequence_does_not_see_the_others, setup, teardown),
		cmocka_unit_test_prestate_setup_teardown(a_sequence_does_not_see_the_others, setup, teardown, &bf16),
		cmocka_unit_test_setup_teardown(stop_limits_and_cancel, setup, teardown),
		cmocka_unit_test(draws_follow_the_distribution),
		cmocka_unit_test(broken_logits_are_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
