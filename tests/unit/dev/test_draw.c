/* Drawing a token: distributions, truncation, ties, repeatability, broken logits; on every device that is there. */
#include "unit.h"

#include "dev/dev.h"

#include <math.h>

enum { DRAWS = 20000, V = 6 };
static const float logits[V] = { 0.0f, 2.0f, 1.0f, -1.0f, 2.0f, -INFINITY };

static struct ww_drawn draw(const float *row, int64_t v, double lse, const struct ww_sampling *s, uint64_t position)
{
	uint64_t weight[V];
	struct ww_draw d = { *s, 1, 2, position };
	struct ww_drawn out;
	ww_dev_draw(row, v, (float)lse, &d, weight, &out);
	return out;
}

/* Counts, with each log-probability compared to what the weights say. */
static void draw_many(const struct ww_sampling *s, int counts[V])
{
	double sum = 0, kept = 0;
	double t = s->temperature > 0 ? s->temperature : 1;
	for (int i = 0; i < V; i++)
		sum += exp((double)logits[i]);
	memset(counts, 0, V * sizeof(*counts));
	for (uint64_t i = 0; i < DRAWS; i++)
		counts[draw(logits, V, log(sum), s, i).token]++;
	for (int i = 0; i < V; i++)
		kept += counts[i] ? exp(((double)logits[i] - 2) / t) : 0;
	for (uint64_t i = 0; i < 100; i++) {
		struct ww_drawn d = draw(logits, V, log(sum), s, i);
		assert_float_equal(d.logp, (double)logits[d.token] - log(sum), 1e-5);
		double want = s->temperature > 0 ? ((double)logits[d.token] - 2) / t - log(kept) : 0;
		assert_float_equal(d.logp_sampling, want, 1e-5);
	}
}

static void draws_follow_the_distribution(void **state)
{
	int n[V];
	double w[V] = { 1, exp(2), exp(1), exp(-1), exp(2), 0 }, total = 0;
	(void)state;
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
	draw_many(&(struct ww_sampling){ 1, 1, 1, 0 }, n);	/* two are the likeliest: a tie is kept whole */
	assert_true(n[1] && n[4] && n[1] + n[4] == DRAWS);
	draw_many(&(struct ww_sampling){ 1, 0, 0.5, 0 }, n);	/* two tokens share 0.8 of the mass; 1 alone has 0.4 */
	assert_true(n[1] && n[4] && n[1] + n[4] == DRAWS);
	draw_many(&(struct ww_sampling){ 1, 4, 0.85, 0 }, n);	/* of the four likeliest: 14.8 of 18.5 is 0.80, 17.5 is 0.95 */
	assert_true(n[1] && n[4] && n[2] && !n[0] && !n[3]);
	draw_many(&(struct ww_sampling){ 1, 0, 1, 0.3 }, n);
	assert_true(n[1] && n[4] && n[2] && !n[0] && !n[3]);
	draw_many(&(struct ww_sampling){ 0, 0, 1, 0 }, n);	/* ties go to the smaller id */
	assert_int_equal(n[1], DRAWS);
	draw_many(&(struct ww_sampling){ 1e-300, 0, 1, 0 }, n);	/* as good as 0, and no division makes it worse */
	assert_true(n[1] && n[4] && n[1] + n[4] == DRAWS);
}

static void broken_logits_are_told(void **state)
{
	const struct ww_sampling s = WW_SAMPLING_INIT;
	(void)state;
	assert_int_equal(draw((float[]){ 1, NAN }, 2, 0, &s, 0).token, -1);
	assert_int_equal(draw((float[]){ -INFINITY, -INFINITY }, 2, 0, &s, 0).token, -1);
	assert_int_equal(draw((float[]){ 1, INFINITY }, 2, 0, &s, 0).token, -1);
}

/* Rows of chunked logits, each with settings of its own: the device draws what one row alone draws. */
static void a_device_draws_the_same(void **state)
{
	enum { ROWS = 5, WIDE = 1000, CHUNK = 300 };
	static float all[ROWS * WIDE], row[WIDE], lse[ROWS];
	static uint64_t weight[WIDE];
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *dev;
	struct ww_stream *s;
	struct ww_draw how[ROWS];
	struct ww_drawn out[ROWS], alone;
	void *p[4];
	const size_t bytes[4] = { sizeof(all), sizeof(lse), sizeof(how), sizeof(out) };
	const void *from[3] = { all, lse, how };
	memset(how, 0, sizeof(how));
	for (int i = 0; i < ROWS * WIDE; i++)
		all[i] = (float)((i * 7919LL) % 10007) / 1000.0f;
	for (int i = 0; i < ROWS; i++) {
		how[i] = (struct ww_draw){ { i ? 0.5 * i : 0, i == 2 ? 40 : 0, i == 3 ? 0.8 : 1, i == 4 ? 0.1 : 0 }, 9, (uint64_t)i, 77 };
		lse[i] = (float)i;
	}
	assert_int_equal(ww_dev_open(*state, 1, &dev, &err), WW_OK);
	assert_int_equal(dev->ops->stream_new(dev, &s, &err), WW_OK);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(dev->ops->alloc(dev, bytes[i], &p[i], &err), WW_OK);
		if (i < 3)
			dev->ops->upload(s, p[i], from[i], bytes[i]);
	}
	dev->ops->draw(s, p[3], p[2], p[0], p[1], ROWS, WIDE, CHUNK);
	dev->ops->download(s, out, p[3], sizeof(out));
	assert_int_equal(dev->ops->sync(s, &err), WW_OK);
	for (int i = 0; i < ROWS; i++) {
		ww_dev_draw_row(all, i, ROWS, WIDE, CHUNK, row);
		assert_true(row[299] == all[300 * i + 299] && row[999] == all[ROWS * 900 + 100 * i + 99]);
		ww_dev_draw(row, WIDE, lse[i], &how[i], weight, &alone);
		assert_memory_equal(&alone, &out[i], sizeof(alone));
	}
	for (int i = 0; i < 4; i++)
		dev->ops->free(dev, p[i]);
	dev->ops->stream_free(s);
	ww_dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(draws_follow_the_distribution),
		cmocka_unit_test(broken_logits_are_told),
		cmocka_unit_test_prestate(a_device_draws_the_same, (void *)"ref"),
		cmocka_unit_test_prestate(a_device_draws_the_same, (void *)"cpu"),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
