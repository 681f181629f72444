/* The process that times an exported operator's call, as a scripted one: which turn it has on the device, and that it
 * leaves none behind, whatever it asks for.  No GPU is needed: a turn is a lock. */
#include "unit.h"

#include "judge/stages.h"

#include <math.h>
#include <string.h>

/* What the process does: 'r' says "ready", 'd' says "rest"; at the end it has times, or ('x') it has died. */
static const char *script;
static char kinds[64];      /* of the turn behind each letter: Load, Timed, in a Call, Alone */
static int lacking, others; /* how many of the processes find too little memory; others hold it for so many questions */
static char waits[256];     /* the stages that begin with "waiting" */
static int begun, ended, held; /* held: it had its turn when it was ended */
static const void *under_way;

static enum ww_rc scripted_begin(struct ww_judge_task *t, const struct ww_task *task, const struct ww_solution *s,
	int device, int max, void **call, struct ww_err *err)
{
	(void)t, (void)task, (void)s, (void)device, (void)max;
	begun++;
	*call = strcmp(script, "-") ? &begun : NULL;
	return *call ? WW_OK : ww_err_set(err, WW_ERR_USAGE, "no such form");
}

static char kind_of(const struct ww_judge_use *use)
{
	const struct ww_turn *turn = ww_judge_call_turn(use->ctx);
	return turn->calls ? 'C' : turn->kind == WW_TURN_LOAD ? 'L' : turn->kind == WW_TURN_TIMED ? 'T' : 'A';
}

static enum ww_rc scripted_time(void *call, const struct ww_judge_use *use, const volatile int *interrupted, double *us,
	int max, int *n, double *gib, struct ww_err *err)
{
	size_t k = 0;
	(void)call, (void)interrupted, (void)max;
	under_way = use->ctx;
	for (const char *p = script; *p; p++) {
		if (*p == 'x')
			return ww_err_set(err, WW_ERR_WORKER, "it died");
		if (*p == 'd')
			use->rest(use->ctx);
		else
			assert_int_equal(use->take(use->ctx, err), WW_OK);
		kinds[k++] = kind_of(use);
		kinds[k] = 0;
	}
	if (lacking > 0) {
		lacking--;
		*gib = 1.5;
		return ww_err_set(err, WW_ERR_ROOM, "out of memory");
	}
	us[0] = us[1] = 12;
	*n = 2;
	return WW_OK;
}

static void scripted_end(void *call)
{
	if (call != &begun)
		return;
	ended++;
	held = under_way && ww_judge_call_turn(under_way)->turns != NULL;
}

static int is_shared(void *ctx)
{
	(void)ctx;
	return others > 0 && others--;
}

static void note_stage(void *ctx, const char *stage)
{
	(void)ctx;
	if (!strncmp(stage, "waiting", strlen("waiting")))
		snprintf(waits + strlen(waits), sizeof(waits) - strlen(waits), "%s\n", stage);
}

static volatile int interrupted;
static const struct ww_judge_caller scripted = { scripted_begin, scripted_time, scripted_end };
static struct ww_judge judge = { .opts = { .target = WW_TARGET_CUDA,
									 .caller = &scripted,
									 .shared = is_shared,
									 .progress = note_stage,
									 .interrupted = &interrupted },
	.facts.uuid = "test-exported-call" };
static struct ww_judge_task task = { .judge = &judge, .lock = PTHREAD_MUTEX_INITIALIZER };

/* The whole device is free again: nothing of this process's has a turn. */
static void nothing_is_held(void)
{
	struct ww_turn t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_TIMED, &err), WW_OK);
	ww_turn_call(&t); /* would wait for ever for a call that did not end */
	ww_turn_called(&t);
	ww_turn_drop(&t);
}

static enum ww_rc try_call(const char *what, int correct, struct ww_verdict *v, struct ww_str *diag)
{
	const struct ww_solution plan = { .form = WW_FORM_PLAN };
	WW_AUTO(ww_judge_call_end) struct ww_exported_call c = { .why = WW_ERR_INIT };
	struct ww_err err = WW_ERR_INIT;
	script = what;
	begun = ended = held = 0;
	under_way = NULL;
	kinds[0] = waits[0] = 0;
	ww_verdict_init(v);
	v->correct = correct;
	v->time.device_us = 10;
	ww_judge_call_begin(&task, &plan, &c);
	return ww_judge_call_time(&task, &c, v, diag, &err);
}

static void call(const char *what, int correct, struct ww_verdict *v, struct ww_str *diag)
{
	assert_int_equal(try_call(what, correct, v, diag), WW_OK);
}

static void each_timed_call_has_the_device(void **state)
{
	ww_auto_str diag = WW_STR_INIT(1024);
	struct ww_verdict v;
	(void)state;
	call("rrrdrrdr", 1, &v, &diag);
	assert_string_equal(kinds, "LTCTTCTT");
	assert_true(v.time.call_us == 12 && !diag.len && begun == 1 && ended == 1);
	nothing_is_held();
}

static void a_large_task_has_it_throughout(void **state)
{
	ww_auto_str diag = WW_STR_INIT(1024);
	struct ww_verdict v;
	(void)state;
	task.heavy = 1;
	call("rrrdrrdr", 1, &v, &diag);
	task.heavy = 0;
	assert_string_equal(kinds, "AAAAAAAA");
	nothing_is_held();
}

/* A task's file may print "ready" and "rest" too. */
static void whatever_it_prints(void **state)
{
	static const char *const scripts[] = { "", "d", "rd", "rrd", "rrrrrr", "rrrrdd", "rrrdddr", "rrrdrdrr", "x", "rx",
		"rrx", "rrrx", "rrrrx" };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(scripts); i++) {
		ww_auto_str diag = WW_STR_INIT(1024);
		struct ww_verdict v;
		call(scripts[i], 1, &v, &diag);
		assert_int_equal(!strchr(scripts[i], 'x'), isfinite(v.time.call_us) != 0);
		assert_int_equal(held, scripts[i][0] == 'r');
		assert_true(!strchr(scripts[i], 'x') == !strstr(diag.p ? diag.p : "", "was not timed: it died"));
		nothing_is_held();
	}
}

static void only_what_is_correct_is_timed(void **state)
{
	ww_auto_str diag = WW_STR_INIT(1024);
	struct ww_verdict v;
	(void)state;
	call("rrrd", 0, &v, &diag);
	assert_true(isnan(v.time.call_us) && !*kinds && begun == 1 && ended == 1);
	call("-", 1, &v, &diag);
	assert_non_null(strstr(diag.p, "was not timed: no such form"));
	judge.opts.target = WW_TARGET_CPU;
	call("rrrd", 1, &v, &diag);
	judge.opts.target = WW_TARGET_CUDA;
	assert_int_equal(begun, 0);
}

/* A process that finds too little memory ends; another one is started when others may have given theirs back. */
static void memory_of_others_is_waited_for(void **state)
{
	ww_auto_str diag = WW_STR_INIT(1024);
	struct ww_verdict v;
	(void)state;
	others = 1;
	lacking = 2; /* once beside others; once more, since they may have gone only after the second attempt had begun */
	call("rrrd", 1, &v, &diag);
	assert_true(v.time.call_us == 12 && !diag.len && begun == 3 && ended == 3 && v.seconds.wait > 0.4);
	assert_string_equal(waits, "waiting for 1.5 GiB of the device's memory, held by others\n");
	nothing_is_held();
}

static void where_nobody_else_is_it_is_not_timed(void **state)
{
	ww_auto_str diag = WW_STR_INIT(1024);
	struct ww_verdict v;
	(void)state;
	lacking = 9;
	call("rrrd", 1, &v, &diag);
	assert_non_null(strstr(diag.p, "was not timed: out of memory"));
	assert_true(isnan(v.time.call_us) && begun == 2 && ended == 2 && !*waits);
	nothing_is_held();
	others = lacking = 9;
	judge.room_waited_s = 600;
	call("rrrd", 1, &v, &diag);
	judge.room_waited_s = 0;
	assert_true(isnan(v.time.call_us) && begun == 2 && ended == 2 && !*waits);
	interrupted = 1;
	assert_int_equal(try_call("", 1, &v, &diag), WW_ERR_INTERRUPTED);
	assert_true(begun == 2 && ended == 2);
	interrupted = others = lacking = 0;
	nothing_is_held();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_timed_call_has_the_device),
		cmocka_unit_test(a_large_task_has_it_throughout), cmocka_unit_test(whatever_it_prints),
		cmocka_unit_test(only_what_is_correct_is_timed), cmocka_unit_test(memory_of_others_is_waited_for),
		cmocka_unit_test(where_nobody_else_is_it_is_not_timed) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
