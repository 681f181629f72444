/* test_env.c - environments without a judge: many at once, each with its own files and reward; what ends an episode;
 * clients that leave in the middle of it. */
#include "unit.h"

#include "base/json.h"
#include "serve/openenv.h"

#include <pthread.h>

enum { SESSIONS = 32 };
static struct ww_broker *broker;
static struct ww_env_opts opts;

/* Right where the kernel says so; the number in it is the reward's fraction, so that rewards cannot be exchanged
 * unseen. */
static enum ww_rc answer(
	const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	int number = 0;
	if (strstr(s->device_source, "broken judge"))
		return ww_err_set(err, WW_ERR_WORKER, "the runner died");
	v->status = sscanf(s->device_source, "right %d", &number) == 1 ? WW_STATUS_OK : WW_STATUS_MISMATCH;
	v->correct = v->status == WW_STATUS_OK && depth != WW_JUDGE_COMPILE;
	v->reward = v->correct ? 1 + number / 1024.0 : -1;
	v->diagnostics = strdup("");
	return WW_OK;
}

static int set_up(void **state)
{
	const struct ww_broker_opts d = {
		.device_name = "none", .open_tasks = 1, .threads = 1, .answer = answer, .judge.target = WW_TARGET_CPU
	};
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	assert_int_equal(ww_broker_new(&broker, &d, &err), WW_OK);
	opts = (struct ww_env_opts){ .broker = broker, .max_turns = 8, .max_seconds = 60 };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ww_broker_free(broker);
	return 0;
}

static json_t *observed(struct ww_env *e, enum ww_rc rc, struct ww_err *err)
{
	json_t *o = NULL;
	if (rc == WW_OK)
		rc = ww_env_observe(e, 30, &o, err);
	if (rc != WW_OK)
		fail_msg("%s", err->msg);
	return o;
}

static json_t *reset(struct ww_env *e)
{
	struct ww_err err = WW_ERR_INIT;
	json_t *data = json_pack("{s:s}", "task_source", "class Model: pass\n");
	enum ww_rc rc = ww_env_reset(e, data, &err);
	json_decref(data);
	return observed(e, rc, &err);
}

/* A step; `action` is consumed. */
static json_t *step(struct ww_env *e, json_t *action)
{
	struct ww_err err = WW_ERR_INIT;
	assert_non_null(action);
	enum ww_rc rc = ww_env_step(e, action, &err);
	json_decref(action);
	return observed(e, rc, &err);
}

static const char *text_of(const json_t *o) { return ww_json_str(json_object_get(o, "observation"), "text", ""); }

static json_t *write_file(const char *path, const char *text)
{
	return json_pack("{s:s, s:{s:s, s:s}}", "tool", "write", "arguments", "path", path, "text", text);
}

/* One episode; odd ones are wrong. */
static void *episode(void *arg)
{
	int number = (int)(intptr_t)arg;
	char text[64];
	struct ww_env *e;
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_env_new(&e, &opts, &err), WW_OK);
	json_decref(reset(e));
	snprintf(text, sizeof(text), "%s %d", number % 2 ? "wrong" : "right", number);
	json_decref(step(e, write_file("kernels.c", text)));
	json_decref(step(e, write_file("plan.c", "void plan(struct ww_plan *p) { }")));
	json_t *o = step(e, json_pack("{s:s, s:{s:s}}", "tool", "read", "arguments", "path", "kernels.c"));
	assert_non_null(strstr(text_of(o), text));
	json_decref(o);
	o = step(e, json_pack("{s:s}", "tool", "submit"));
	assert_true(ww_json_bool(o, "done", 0));
	assert_true(ww_json_num(o, "reward", 0) == (number % 2 ? -1 : 1 + number / 1024.0));
	json_decref(o);
	ww_env_free(e);
	return NULL;
}

static void test_many_at_once(void **state)
{
	pthread_t threads[SESSIONS];
	(void)state;
	for (int i = 0; i < SESSIONS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, episode, (void *)(intptr_t)i), 0);
	for (int i = 0; i < SESSIONS; i++)
		pthread_join(threads[i], NULL);
}

static void test_ends(void **state)
{
	struct ww_env *e;
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	assert_int_equal(ww_env_new(&e, &opts, &err), WW_OK);
	json_t *o = json_pack("{s:s}", "tool", "todo");
	assert_int_equal(ww_env_step(e, o, &err), WW_ERR_USAGE); /* before a reset */
	json_decref(o);
	json_decref(reset(e));
	o = step(e, json_pack("{s:s}", "text", "I give up.")); /* no call */
	assert_string_equal(ww_json_str(json_object_get(o, "observation"), "end_reason", ""), "stopped");
	assert_true(ww_json_num(o, "reward", 0) == -1);
	json_decref(o);
	o = json_pack("{s:s}", "tool", "submit");
	assert_int_equal(ww_env_step(e, o, &err), WW_ERR_USAGE); /* it is over */
	json_decref(o);
	o = step(e, json_pack("{s:s}", "tool", "wait")); /* says it again */
	assert_true(ww_json_bool(o, "done", 0));
	json_decref(o);
	json_decref(reset(e));
	for (int i = 0; i < 5; i++)
		o = (i ? json_decref(o) : (void)0, step(e, json_pack("{s:s, s:s}", "tool", "read", "arguments", "{no json")));
	assert_string_equal(ww_json_str(json_object_get(o, "observation"), "end_reason", ""), "malformed");
	json_decref(o);
	json_decref(reset(e));
	for (int i = 0; i < 8; i++)
		o = (i ? json_decref(o) : (void)0, step(e, write_file("note", "x")));
	assert_string_equal(ww_json_str(json_object_get(o, "observation"), "end_reason", ""), "turns");
	json_decref(o);
	ww_env_free(e);
}

/* What fails on our side is an error that says so: not the end of an episode, and no reward, which would be trained on.
 */
static void test_failures(void **state)
{
	static const char *const last[] = { "verify", "submit" };
	struct ww_env *e;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(last); i++) {
		struct ww_err err = WW_ERR_INIT;
		json_auto_t *action = json_pack("{s:s}", "tool", last[i]), *now = NULL;
		json_t *o = NULL;
		assert_int_equal(ww_env_new(&e, &opts, &err), WW_OK);
		json_decref(reset(e));
		json_decref(step(e, write_file("kernels.c", "broken judge")));
		json_decref(step(e, write_file("plan.c", "void plan(struct ww_plan *p) { }")));
		assert_int_equal(ww_env_step(e, action, &err), WW_OK);
		assert_int_equal(ww_env_observe(e, 30, &o, &err), WW_ERR_WORKER);
		assert_true(strstr(err.msg, "the runner died") && strstr(err.msg, "reset to do it again"));
		assert_null(o);
		now = ww_env_state(e);
		assert_string_equal(ww_json_str(now, "phase", ""), "failed");
		assert_false(ww_json_bool(now, "done", 1));
		assert_true(json_is_null(json_object_get(now, "reward")));
		json_decref(reset(e)); /* the session goes on */
		ww_env_free(e);
	}
}

/* A reset in the middle, and a client that leaves: nothing hangs, nothing is left (the sanitizer looks). */
static void test_leaving(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	for (int i = 0; i < 8; i++) {
		struct ww_env *e;
		json_t *data = json_pack("{s:s}", "task_source", "class Model: pass\n"), *state_now;
		assert_int_equal(ww_env_new(&e, &opts, &err), WW_OK);
		assert_int_equal(ww_env_reset(e, data, &err), WW_OK);
		if (i & 1)
			json_decref(reset(e));
		if ((i & 3) == 3)
			json_decref(step(e, write_file("kernels.c", "x")));
		else if (i & 4)
			ww_env_stop(e);
		state_now = ww_env_state(e);
		assert_true(json_is_string(json_object_get(state_now, "phase")));
		json_decref(state_now);
		json_decref(data);
		ww_env_free(e);
	}
}

/* A client's name for its episode: cut within a letter it could not be said, and without one it could not be found. */
static void test_names(void **state)
{
	ww_auto_str letters = WW_STR_INIT(1024), most = WW_STR_INIT(1024);
	struct ww_env *e;
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	for (int i = 0; i < 200; i++)
		ww_str_adds(&letters, "\u00e9");
	for (int i = 0; i < 255; i++)
		ww_str_addc(&most, 'a');
	const char *const names[] = { "", letters.p, "x", most.p };
	assert_int_equal(ww_env_new(&e, &opts, &err), WW_OK);
	json_decref(reset(e));
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++) {
		json_t *data = json_pack("{s:s, s:s}", "task_source", "class Model: pass\n", "episode_id", names[i]);
		enum ww_rc rc = ww_env_reset(e, data, &err);
		json_decref(data);
		if (i < 2) { /* refused, and the episode before it goes on */
			assert_int_equal(rc, WW_ERR_USAGE);
			assert_non_null(strstr(err.msg, "episode_id"));
			json_decref(step(e, write_file("kernels.c", "x")));
			continue;
		}
		json_t *o = observed(e, rc, &err);
		assert_string_equal(ww_json_str(json_object_get(o, "observation"), "episode_id", ""), names[i]);
		json_decref(o);
	}
	ww_env_free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_ends),
		cmocka_unit_test(test_failures), cmocka_unit_test(test_leaving), cmocka_unit_test(test_names) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
