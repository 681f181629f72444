/* Stage value on recorded episodes whose first token decides: the gate is passed by a critic that learnt and not by one
 * that did not; equal runs give equal bits; a run that is complete is shown again.
 *
 * budget: 3 CPU-seconds */
#include "unit.h"

#include "../infer/tiny.h"
#include "base/json.h"
#include "base/rng.h"
#include "judge/verdict.h"
#include "rl/recorded.h"
#include "rl/value.h"
#include "runs.h"
#include "train/report.h"

enum { EPISODES = 96, OWN = 6 };
static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static char dir[4200], episodes[4200];

/* The beginning 1 2 3, then tokens of the policy's own; a reward of 3 where the first is even. */
static void write_episode(int i, struct ww_rng *rng)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode_header h = { .task_path = (char *)"t.py",
		.target = (char *)"cpu",
		.device = (char *)"",
		.policy = (char *)"model:x",
		.rule = (char *)"strict",
		.task_id = "abc",
		.task_signature = "s1:a0000000000000000000000000000000",
		.started = "2026-11-21T12:34:56Z",
		.versions = json_object() };
	int32_t context[] = { 1, 2, 3 }, ids[OWN];
	float logp[OWN];
	struct ww_reply r = { .message = { .role = WW_ROLE_ASSISTANT, .text = (char *)"x" },
		.n_tokens = OWN,
		.token_ids = ids,
		.logprobs = logp,
		.context_ids = context,
		.n_context = 3 };
	struct ww_episode_end end = { .reason = "stopped" };
	struct ww_episode_writer *w;
	char path[4300];
	for (int k = 0; k < OWN; k++) {
		ids[k] = (int32_t)ww_rng_below(rng, 4);
		logp[k] = -2;
	}
	end.reward_final = ids[0] % 2 ? -1 : 3;
	snprintf(path, sizeof(path), "%s/%03d", episodes, i);
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/%03d/episode.jsonl", episodes, i);
	assert_int_equal(ww_episode_create(path, &h, &w, &err), WW_OK);
	assert_int_equal(ww_episode_add_message(w, 1, &r, &err), WW_OK);
	if (i) /* one has not ended */
		assert_int_equal(ww_episode_add_end(w, 1, &end, &err), WW_OK);
	ww_episode_close(w);
	json_decref(h.versions);
}

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = tiny_config(64);
	struct ww_rng rng;
	(void)state;
	if (ww_tmpdir_new(&tmp, "test-value", &err) != WW_OK)
		return -1;
	snprintf(dir, sizeof(dir), "%s/model", tmp.path);
	snprintf(episodes, sizeof(episodes), "%s/episodes", tmp.path);
	c.layers = 1;
	ww_rng_init(&rng, 1, 0);
	for (int i = 0; i <= EPISODES; i++)
		write_episode(i, &rng);
	return tiny_model_of(dir, &c) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ww_tmpdir_remove(&tmp);
	return 0;
}

static int64_t interrupt_at; /* 0: never */
static char held_out[4300];  /* "": none */
static void count_step(void *ctx, const struct ww_train_step *s)
{
	*(int64_t *)ctx = s->step;
	interrupted = s->step == interrupt_at;
}

/* Steps that were made; *rc: how it ended. */
static int64_t train(const char *output, double lr, int64_t passes, enum ww_rc *rc, struct ww_err *err)
{
	struct ww_recipe o = { .stage = "value",
		.model = dir,
		.data = episodes,
		.held_out = held_out[0] ? held_out : NULL,
		.output = output,
		.device = "cpu",
		.dtype = "same",
		.numbers = "exact",
		.mean = "episode",
		.reward = "milestone",
		.epochs = passes,
		.episodes = 12,
		.keep_checkpoints = 2,
		.critic_lr = lr,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.clip = 1,
		.gamma = 1,
		.critic_lambda = 0.95 };
	int64_t steps = 0;
	struct ww_train_hooks hooks = { &interrupted, quiet, note_stage, count_step, &steps };
	struct ww_train_result result;
	json_t *values = json_pack("{s:s}", "stage", o.stage);
	*stages = 0;
	*rc = ww_value_run(&o, values, &hooks, &result, err);
	json_decref(values);
	return steps;
}

static void a_critic_learns_what_decides(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str a = WW_STR_INIT(1 << 24), b = WW_STR_INIT(1 << 24);
	char one[4300], two[4300], path[4400];
	enum ww_rc rc;
	(void)state;
	snprintf(one, sizeof(one), "%s/one", tmp.path);
	snprintf(two, sizeof(two), "%s/two", tmp.path);
	assert_int_equal(train(one, 1e-2, 100, &rc, &err), 100);
	if (rc != WW_OK)
		fail_msg("%s", err.msg);
	assert_non_null(strstr(stages, "reading the episodes\nloading the model\npass 1/100: 0 of 84 episodes\n"));
	assert_int_equal(train(one, 1e-2, 100, &rc, &err), 0); /* complete */
	assert_int_equal(rc, WW_OK);
	ww_auto_str page = WW_STR_INIT(1 << 20);
	assert_int_equal(ww_train_reports((const char *[]){ one }, 1, &page, &err), WW_OK);
	assert_true(strstr(page.p, "Explained variance") && strstr(page.p, "84 episodes, 12 left out"));
	assert_null(strstr(page.p, "<h2>Loss</h2>"));
	interrupt_at = 40; /* Ctrl-C: a checkpoint, and the same command goes on */
	assert_int_equal(train(two, 1e-2, 100, &rc, &err), 40);
	assert_int_equal(rc, WW_ERR_INTERRUPTED);
	assert_non_null(strstr(err.msg, "after pass 40"));
	interrupt_at = interrupted = 0;
	assert_int_equal(train(two, 1e-2, 100, &rc, &err), 100);
	if (rc != WW_OK)
		fail_msg("%s", err.msg);
	snprintf(path, sizeof(path), "%s/model/model.safetensors", one);
	assert_int_equal(ww_fs_read(path, 1 << 24, &a, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/model/model.safetensors", two);
	assert_int_equal(ww_fs_read(path, 1 << 24, &b, &err), WW_OK);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.p, b.p, a.len);
}

static void one_that_does_not_is_refused(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_recorded_set s;
	char output[4300], few[9000];
	enum ww_rc rc;
	(void)state;
	snprintf(output, sizeof(output), "%s/refused", tmp.path);
	assert_int_equal(train(output, 1e-9, 2, &rc, &err), 2);
	assert_int_equal(rc, WW_ERR_LIMIT);
	assert_non_null(strstr(err.msg, "12 episodes left out"));
	assert_int_equal(ww_rl_recorded_read(episodes, &(struct ww_rl_read){ 0 }, &s, &err), WW_OK);
	assert_true(s.n == EPISODES && s.passed_over == 1 && s.t[0].own_n == OWN);
	ww_recorded_set_release(&s);
	snprintf(few, sizeof(few), "%s/001,%s/002/episode.jsonl", episodes, episodes);
	assert_int_equal(ww_rl_recorded_read(few, &(struct ww_rl_read){ 0 }, &s, &err), WW_OK);
	assert_int_equal(s.n, 2);
	ww_recorded_set_release(&s);
}

/* An episode of somebody else's, changed in one place. */
static void change(int i, const char *from, const char *to)
{
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str text = WW_STR_INIT(1 << 16), changed = WW_STR_INIT(1 << 16);
	char path[4400];
	snprintf(path, sizeof(path), "%s/%03d/episode.jsonl", episodes, i);
	assert_int_equal(ww_fs_read(path, 1 << 16, &text, &err), WW_OK);
	const char *at = strstr(text.p, from);
	assert_non_null(at);
	ww_str_add(&changed, text.p, (size_t)(at - text.p));
	ww_str_addf(&changed, "%s%s", to, at + strlen(from));
	assert_int_equal(ww_fs_write(path, changed.p, changed.len, &err), WW_OK);
}

static void what_was_changed_is_not_learnt(void **state)
{
	static const struct {
		const char *from, *to, *why;
	} rows[] = { { "\"context\":[1,", "\"context\":[1000000,", "outside the model's vocabulary" },
		{ "\"context\":[1,", "\"context\":[-1,", "token" }, { "\"context\":[1,", "\"context\":[4294967297,", "token" },
		{ "\"context\":[1,", "\"context\":[\"1\",", "token" },
		{ "\"logprobs\":[-2.0,", "\"logprobs\":[\"nan\",", "log-probability" },
		{ "\"logprobs\":[-2.0,", "\"logprobs\":[1e30,", "log-probability" },
		{ "\"logprobs\":[-2.0,", "\"logprobs\":[\"-inf\",", "log-probability" },
		{ "\"reward_final\":", "\"reward_final\":9,\"was\":", "reward" },
		{ "\"reward_final\":", "\"reward_final\":\"nan\",\"was\":", "reward" } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_err err = WW_ERR_INIT;
		char output[4300];
		enum ww_rc rc;
		change(5, rows[i].from, rows[i].to);
		snprintf(output, sizeof(output), "%s/changed", tmp.path);
		assert_int_equal(train(output, 1e-2, 1, &rc, &err), 0);
		assert_int_not_equal(rc, WW_OK);
		if (!strstr(err.msg, rows[i].why) || !strstr(err.msg, "005/episode.jsonl"))
			fail_msg("row %zu: %s", i, err.msg);
		change(5, rows[i].to, rows[i].from);
	}
}

/* One line for each repetition of a disturbed closing judgement: the last one counts. */
static void the_last_closing_verdict_counts(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_trajectory t;
	WW_AUTO(ww_verdict_release) struct ww_verdict verdict;
	ww_verdict_init(&verdict);
	verdict.correct = 1;
	verdict.reward = 1;
	verdict.speedup[WW_BASE_EAGER] = (struct ww_ratio){ .mid = 9, .lo = 9, .hi = 9 };
	json_auto_t *first = ww_verdict_to_json(&verdict);
	verdict.speedup[WW_BASE_EAGER] = (struct ww_ratio){ .mid = 2, .lo = 2, .hi = 2 };
	json_auto_t *last = ww_verdict_to_json(&verdict);
	struct ww_episode_verdict v[] = { { .call_id = (char *)"final", .depth = "full", .verdict = first },
		{ .call_id = (char *)"final", .depth = "full", .verdict = last },
		{ .call_id = (char *)"final-best", .depth = "full", .verdict = first } };
	struct ww_episode e = { .verdicts = v, .n_verdicts = 3, .ended = 1, .end = { .reward_final = 1 } };
	(void)state;
	if (ww_rl_recorded(&e, WW_RL_REWARD_SPEEDUP, &t, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_true(t.reward == 2);
	ww_trajectory_release(&t);
}

static void episodes_of_held_out_tasks_are_refused(void **state)
{
	static const char row[] = "{\"code\":\"class Model\",\"signature\":\"s1:a0000000000000000000000000000000\"}\n";
	struct ww_err err = WW_ERR_INIT;
	char output[4300];
	enum ww_rc rc;
	(void)state;
	snprintf(held_out, sizeof(held_out), "%s/held.jsonl", tmp.path);
	snprintf(output, sizeof(output), "%s/held-out", tmp.path);
	assert_int_equal(ww_fs_write(held_out, row, strlen(row), &err), WW_OK);
	assert_int_equal(train(output, 1e-2, 2, &rc, &err), 0);
	assert_int_equal(rc, WW_ERR_USAGE);
	if (!strstr(err.msg, "held.jsonl#1") || !strstr(err.msg, "001/episode.jsonl"))
		fail_msg("%s", err.msg);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_critic_learns_what_decides),
		cmocka_unit_test(one_that_does_not_is_refused), cmocka_unit_test(what_was_changed_is_not_learnt),
		cmocka_unit_test(the_last_closing_verdict_counts), cmocka_unit_test(episodes_of_held_out_tasks_are_refused) };
	setenv("WARPWRIGHT_THREADS", "1", 0);
	return cmocka_run_group_tests(tests, setup, teardown);
}
