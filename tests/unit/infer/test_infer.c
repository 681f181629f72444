/* Generation: the same tokens and the same bits alone, in a batch, in chunks, and when scored as training scores.
 *
 *   infer_test_infer [cpu|cuda]          77 where there is no GPU
 */
#include "unit.h"

#include "base/rng.h"
#include "infer/infer.h"

#include <math.h>

enum { REQUESTS = 6, NEW = 70 };

struct out {
	int32_t token[NEW];
	float logp[NEW];
	int n;
	enum ww_end end;
};

static const char *device = "cpu";
static struct ww_dev *dev;
static struct ww_model *model;

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = { .arch = WW_ARCH_QWEN3,
		.vocab_size = 9000,
		.hidden_size = 48,
		.intermediate_size = 64,
		.layers = 2,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 16,
		.max_position = 300,
		.rms_eps = 1e-6,
		.initializer_range = 0.3,
		.rope = { .theta = 10000, .factor = 1, .attention_factor = 1 },
		.tie_embeddings = 1,
		.qk_norm = 1,
		.bos = -1,
		.pad = -1,
		.dtype = WW_F32 };
	int dtype = *state ? *(int *)*state : WW_F32;
	if (ww_dev_open(device, 1, &dev, &err) != WW_OK || ww_model_new(&c, dev, dtype, 3, &model, &err) != WW_OK)
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
	struct ww_request q = { .prompt = prompt[i],
		.prompt_n = lengths[i],
		.max_new = i == 3 ? 5 : NEW,
		.seed = 42,
		.stream = (uint64_t)i,
		.sampling = WW_SAMPLING_INIT };
	if (i == 2)
		q.sampling = (struct ww_sampling){ 0.7, 50, 0.9, 0.01 };
	return q;
}

static int take(void *arg, const struct ww_infer_event *e)
{
	struct out *o = e->user;
	(void)arg;
	assert_true(o->n < NEW && o->end == WW_END_NONE);
	o->token[o->n] = e->sampled.token;
	o->logp[o->n++] = e->sampled.logp;
	o->end = e->end;
	return 0;
}

static void generate(const struct ww_infer_limits *l, int first, int last, struct out *out)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_infer *f;
	int64_t left, id;
	assert_int_equal(ww_infer_new(model, l, &f, &err), WW_OK);
	int64_t pages = ww_infer_pages_left(f);
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
	assert_int_equal(ww_infer_pages_left(f), pages);
	ww_infer_free(f);
}

static void compare(const struct out *a, const struct out *b, int i)
{
	assert_int_equal(a[i].n, i == 3 ? 5 : NEW);
	assert_int_equal(a[i].end, WW_END_LENGTH);
	assert_int_equal(a[i].n, b[i].n);
	assert_memory_equal(a[i].token, b[i].token, (size_t)a[i].n * 4);
	assert_memory_equal(a[i].logp, b[i].logp, (size_t)a[i].n * 4);
}

/* The log-probabilities of the whole sequence in one packed forward pass behind another sequence, as training has them.
 */
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

/* All requests, those of `first` before the others; what the cache was used for. */
static struct ww_infer_stats generate_twice(const struct ww_infer_limits *l, struct out *first, struct out *again)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_infer *f;
	int64_t left, id;
	assert_int_equal(ww_infer_new(model, l, &f, &err), WW_OK);
	int64_t pages = ww_infer_pages_left(f);
	for (int round = 0; round < 2; round++) {
		struct out *out = round ? again : first;
		for (int i = 0; i < REQUESTS; i++) {
			struct ww_request q = request(i);
			q.user = &out[i];
			memset(&out[i], 0, sizeof(out[i]));
			assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
		}
		do
			if (ww_infer_step(f, take, NULL, &left, &err) != WW_OK)
				fail_msg("%s", err.msg);
		while (left);
		assert_int_equal(ww_infer_pages_left(f), pages);
	}
	struct ww_infer_stats s = ww_infer_stats(f);
	ww_infer_forget(f);
	assert_int_equal(ww_infer_pages_left(f), pages);
	ww_infer_free(f);
	return s;
}

/* What a sequence finds in the cache, or has computed twice for want of pages, changes no bit of it. */
static void reuse_and_want_of_pages_do_not_show(void **state)
{
	static struct out fresh[REQUESTS], first[REQUESTS], again[REQUESTS];
	(void)state;
	for (int i = 0; i < REQUESTS; i++)
		generate(&(struct ww_infer_limits){ 300, 1, 300 }, i, i, fresh);
	struct ww_infer_stats s = generate_twice(&(struct ww_infer_limits){ 4000, REQUESTS, 1000 }, first, again);
	/* Of prompts of 130 and 200 tokens the whole pages; of 64 and 63 none, since one token is always computed. */
	assert_int_equal(s.reused_tokens, 2 * 64 + 3 * 64);
	assert_int_equal(s.preempted, 0);
	for (int i = 0; i < REQUESTS; i++) {
		compare(fresh, first, i);
		compare(fresh, again, i);
	}
	s = generate_twice(&(struct ww_infer_limits){ 330, REQUESTS, 64 }, first, again);
	assert_true(s.preempted > 0);
	for (int i = 0; i < REQUESTS; i++) {
		compare(fresh, first, i);
		compare(fresh, again, i);
	}
}

/* Samples of one prompt compute it once, and a conversation's next turn finds the turn before it, answer included. */
static void beginnings_are_shared(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_infer *f;
	static struct out out[REQUESTS];
	int64_t id, left;
	(void)state;
	assert_int_equal(ww_infer_new(model, &(struct ww_infer_limits){ 4000, 8, 64 }, &f, &err), WW_OK);
	memset(out, 0, sizeof(out));
	for (int i = 0; i < 4; i++) {
		struct ww_request q = request(5);
		q.stream = (uint64_t)i;
		q.user = &out[i];
		assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
	}
	do
		assert_int_equal(ww_infer_step(f, take, NULL, &left, &err), WW_OK);
	while (left);
	struct ww_infer_stats s = ww_infer_stats(f);
	assert_int_equal(s.reused_tokens, 3 * 192);
	assert_int_equal(s.prompt_tokens, 192 + 4 * 8);
	assert_memory_not_equal(out[0].token, out[1].token, sizeof(out[0].token));
	int32_t turn[280];
	memcpy(turn, prompt[5], 200 * sizeof(*turn));
	memcpy(turn + 200, out[2].token, NEW * sizeof(*turn));
	memset(turn + 270, 0, 10 * sizeof(*turn));
	struct ww_request q = {
		.prompt = turn, .prompt_n = 280, .max_new = 1, .user = &out[5], .sampling = WW_SAMPLING_INIT
	};
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
	do
		assert_int_equal(ww_infer_step(f, take, NULL, &left, &err), WW_OK);
	while (left);
	assert_int_equal(ww_infer_stats(f).reused_tokens - s.reused_tokens, 256);
	ww_infer_free(f);
}

/* A device that records steps gets its batches filled up, and what is recorded may have to be recorded again: no bit of
 * it shows. */
static int recordings, refusals, frees;
static void begin_graph(struct ww_stream *s)
{
	(void)s;
	recordings++;
}
static struct ww_graph *end_graph(struct ww_stream *s) { return (struct ww_graph *)s; }
static int run_graph(struct ww_stream *s, struct ww_graph *g)
{
	(void)s, (void)g;
	refusals++;
	return 0;
}
static void free_graph(struct ww_graph *g)
{
	(void)g;
	frees++;
}

static void recorded_steps_do_not_show(void **state)
{
	enum { MANY = 13 };
	static struct out fresh[REQUESTS], filled[MANY];
	struct ww_dev_ops ops = *dev->ops, *own = (struct ww_dev_ops *)dev->ops;
	struct ww_err err = WW_ERR_INIT;
	struct ww_infer *f;
	int64_t id, left;
	(void)state;
	for (int i = 0; i < REQUESTS; i++)
		generate(&(struct ww_infer_limits){ 300, 1, 300 }, i, i, fresh);
	ops.graph_begin = begin_graph;
	ops.graph_end = end_graph;
	ops.graph_run = run_graph;
	ops.graph_free = free_graph;
	dev->ops = &ops;
	assert_int_equal(ww_infer_new(model, &(struct ww_infer_limits){ 4000, 16, 600 }, &f, &err), WW_OK);
	for (int i = 0; i < MANY; i++) {
		struct ww_request q = request(i % REQUESTS);
		q.user = &filled[i];
		assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
	}
	do
		if (ww_infer_step(f, take, NULL, &left, &err) != WW_OK)
			fail_msg("%s", err.msg);
	while (left);
	for (int i = 0; i < MANY; i++)
		compare(fresh, filled + i - i % REQUESTS, i % REQUESTS);
	ww_infer_free(f);
	dev->ops = own;
	assert_true(recordings > 2 && refusals > recordings && frees == recordings);
}

/* One product for weights that lie side by side.  Only a device whose elements do not depend on the width of a product,
 * as the cpu's, gives the same bits; elsewhere this is for fast mode alone. */
static void wide_products_are_the_same_on_the_cpu(void **state)
{
	static struct out narrow[REQUESTS], wide[REQUESTS];
	(void)state;
	if (strcmp(device, "cpu"))
		skip();
	generate(&(struct ww_infer_limits){ 4000, REQUESTS, 1000 }, 0, REQUESTS - 1, narrow);
	dev->wide = 1;
	generate(&(struct ww_infer_limits){ 4000, REQUESTS, 100 }, 0, REQUESTS - 1, wide);
	for (int i = 0; i < REQUESTS; i++)
		compare(narrow, wide, i);
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
	int64_t pages = ww_infer_pages_left(f);
	struct ww_request q = request(1);
	q.stop = &out[1].token[4];
	q.stop_n = 1;
	q.user = &again[1];
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_OK);
	do
		assert_int_equal(ww_infer_step(f, take, NULL, &left, &err), WW_OK);
	while (left);
	assert_int_equal(again[1].end, WW_END_STOP);
	assert_true(again[1].n <= 5);
	assert_int_equal(again[1].token[again[1].n - 1], out[1].token[4]);
	q = request(5); /* 200 + 70 tokens: more than this cache */
	assert_int_equal(ww_infer_submit(f, &q, &id, &err), WW_ERR_LIMIT);
	q.max_new = 200; /* more than the context */
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
	assert_int_equal(ww_infer_pages_left(f), pages);
	assert_int_equal(ww_infer_step(f, take, NULL, &left, &err), WW_OK);
	assert_int_equal(left, 0);
	ww_infer_free(f);
}

int main(int argc, char **argv)
{
	static int bf16 = WW_BF16;
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *d = NULL;
	device = argc > 1 ? argv[1] : device;
	if (!strcmp(device, "cuda") && ww_dev_open(device, 1, &d, &err) == WW_ERR_MISSING) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	ww_dev_close(d);
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(
											a_sequence_does_not_see_the_others, setup, teardown),
		cmocka_unit_test_prestate_setup_teardown(a_sequence_does_not_see_the_others, setup, teardown, &bf16),
		cmocka_unit_test_setup_teardown(reuse_and_want_of_pages_do_not_show, setup, teardown),
		cmocka_unit_test_setup_teardown(beginnings_are_shared, setup, teardown),
		cmocka_unit_test_setup_teardown(recorded_steps_do_not_show, setup, teardown),
		cmocka_unit_test_setup_teardown(wide_products_are_the_same_on_the_cpu, setup, teardown),
		cmocka_unit_test_setup_teardown(stop_limits_and_cancel, setup, teardown) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
