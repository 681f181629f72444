/* Which rounds of a measurement count (timing.c), on rounds that are written here. */
#include "unit.h"

#include "task/ref.h"

/* These tasks have uneven draws. */
#define ww_ref_has_uneven(ref) ((void)(ref), 1)
#include "judge/timing.c" /* its struct series is filled here */

enum { PLAIN_US = 10000, UNEVEN_US = 1000, PYTORCH_US = 5000 };

static struct ww_judge judge;
static struct ww_judge_task task;
static struct ww_session session;

static struct timing *begin(void)
{
	static struct timing x;
	memset(&x, 0, sizeof(x));
	judge.opts.target = WW_TARGET_CPU;
	task.judge = &judge;
	session.t = &task;
	x.s = &session;
	x.pivot = WW_BASE_EAGER;
	return &x;
}

/* As sampled_round() does. */
static void add(struct timing *x, int uneven, double us, double waited_us)
{
	struct series *e = &x->now;
	struct round r = { { us, PYTORCH_US, 0 }, { waited_us, 0, 0 }, NAN, 1, uneven };
	e->again = somebody_waited(&r);
	e->rounds[e->n + e->aside] = r;
	if (e->again) {
		e->aside++;
		return;
	}
	e->rounds[e->n + e->aside] = e->rounds[e->n];
	e->rounds[e->n++] = r;
}

static double settled(struct timing *x, double others_s)
{
	struct ww_disturbance d = { .others_s = others_s };
	settle(x, &d);
	return ww_stats_median(x->now.us[CANDIDATE], x->now.n);
}

/* It waits in plain rounds alone, less than is noticed: without them only those count in which it is faster. */
static void no_kind_is_set_aside(void **state)
{
	(void)state;
	struct timing *x = begin();
	for (int i = 0; i < 60; i++)
		add(x, i % 3 != 0, i % 3 ? UNEVEN_US + i : PLAIN_US + i, i % 3 ? 0 : 250);
	assert_int_equal(x->now.aside, 20);
	assert_true(settled(x, 0) >= PLAIN_US);
	assert_int_equal(x->now.clean, 0);

	x = begin(); /* and where it waits in all plain rounds but two */
	for (int i = 0; i < 60; i++)
		add(x, i % 3 != 0, i % 3 ? UNEVEN_US + i : PLAIN_US + i, i % 3 || i < 6 ? 0 : 250);
	assert_int_equal(x->now.aside, 18);
	assert_true(settled(x, 0) >= PLAIN_US);
}

/* Others' processes make rounds of either kind wait: those stay aside. */
static void what_others_disturb_stays_aside(void **state)
{
	(void)state;
	struct timing *x = begin();
	for (int i = 0; i < 60; i++)
		add(x, i % 3 != 0, i % 4 ? UNEVEN_US : PLAIN_US, i % 4 ? 0 : 5000);
	assert_int_equal(x->now.aside, 15);
	assert_true(settled(x, 1) == UNEVEN_US);
	assert_int_equal(x->now.n, 45);
	assert_int_equal(x->now.aside, 15);
}

/* A round that was not set aside, in a measurement that ends when the reward is certain. */
static void add_deciding(struct timing *x, int uneven, int check)
{
	add(x, uneven, UNEVEN_US, 0);
	struct series *e = &x->now;
	e->rounds[e->n - 1].check = check;
	note_ratio(e, e->n - 1);
}

/* Six rounds that agree decide; of each kind some must have been compared, or what is fast in the one could be wrong in
 * the other. */
static void each_kind_is_compared_before_a_decision(void **state)
{
	static struct ww_verdict v;
	(void)state;
	struct timing *x = begin();
	ww_verdict_init(&v);
	v.correct = 1;
	session.v = &v;
	x->deciding = 1;
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		x->to_pivot[b] = (struct ww_ratio){ NAN, NAN, NAN };
	x->to_pivot[WW_BASE_EAGER] = (struct ww_ratio){ 1, 1, 1 };
	ww_sequence_init(&x->now.log_ratio);
	for (int i = 0; i < 6; i++)
		add_deciding(x, i % 3 != 0, i % 3 != 0);
	assert_int_equal(is_decided(x, &x->now), 1);
	assert_int_equal(lacks_checked(x, &x->now), 1);
	assert_int_equal(lacking_lot(x, &x->now), WW_REF_LOT_PLAIN);
	add_deciding(x, 0, 1);
	assert_int_equal(lacks_checked(x, &x->now), 1);
	add_deciding(x, 0, 1);
	assert_int_equal(is_decided(x, &x->now), 1);
	assert_int_equal(lacks_checked(x, &x->now), 0);

	x->now.n = 0; /* a candidate as fast as PyTorch earns nothing by either kind */
	ww_sequence_init(&x->now.log_ratio);
	for (int i = 0; i < 20; i++) {
		add(x, i % 3 != 0, PYTORCH_US, 0);
		x->now.rounds[x->now.n - 1].check = i % 3 != 0;
		note_ratio(&x->now, x->now.n - 1);
	}
	assert_int_equal(is_decided(x, &x->now), 1);
	assert_int_equal(lacks_checked(x, &x->now), 0);
	session.v = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_kind_is_set_aside),
		cmocka_unit_test(what_others_disturb_stays_aside),
		cmocka_unit_test(each_kind_is_compared_before_a_decision),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
