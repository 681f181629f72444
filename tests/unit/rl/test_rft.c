/* Stage rft: each detector by itself, and a policy that learns from what is left of its own episodes.
 *
 * budget: 3 CPU-seconds */
#include "toy.h"

#include "base/json.h"
#include "rl/faults.h"
#include "rl/rft.h"

/* ---- detectors */

struct call {
	const char *name, *arguments, *answer;
	int malformed;
};

/* An episode whose replies have a call each; verdicts: a solution's name for each verify, NULL otherwise. */
static unsigned faults_of(
	const struct call *calls, int n, const char *const *solutions, double reward, int64_t idle_turns)
{
	struct ww_err err = WW_ERR_INIT;
	static int next;
	char path[4300], id[32];
	struct ww_episode_writer *w;
	WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
	struct ww_episode_end end = { .reason = "submitted", .reward_final = reward };
	struct ww_episode_header h = { .task_path = (char *)"t.py",
		.target = (char *)"cpu",
		.device = (char *)"",
		.policy = (char *)"x",
		.rule = (char *)"strict",
		.task_id = "abc",
		.started = "now",
		.versions = json_object() };
	snprintf(path, sizeof(path), "%s/faults%d.jsonl", tmp.path, next++);
	assert_int_equal(ww_episode_create(path, &h, &w, &err), WW_OK);
	for (int i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "call_%d_0", i + 1);
		struct ww_tool_call call = { id, (char *)(uintptr_t)calls[i].name, (char *)(uintptr_t)calls[i].arguments };
		struct ww_reply said = { .message = {
									 .role = WW_ROLE_ASSISTANT, .text = (char *)"", .calls = &call, .n_calls = 1 } };
		struct ww_reply tool = {
			.message = { .role = WW_ROLE_TOOL,
				.text = (char *)(uintptr_t)calls[i].answer,
				.call_id = id,
				.tool = call.name,
				.is_error = calls[i].malformed,
				.data = (char *)(calls[i].malformed ? "{\"malformed\":true}" : "{\"ok\":true}") }
		};
		assert_int_equal(ww_episode_add_message(w, i + 1, &said, &err), WW_OK);
		if (solutions && solutions[i]) {
			json_t *v = json_pack("{s:s}", "status", "ok");
			struct ww_episode_file file = { (char *)"plan.c", (char *)"x" };
			assert_int_equal(ww_episode_add_solution(w, i + 1, solutions[i], &file, 1, &err), WW_OK);
			assert_int_equal(ww_episode_add_verdict(w, i + 1, id, solutions[i], "full", v, &err), WW_OK);
			json_decref(v);
		}
		assert_int_equal(ww_episode_add_message(w, i + 1, &tool, &err), WW_OK);
	}
	assert_int_equal(ww_episode_add_end(w, n, &end, &err), WW_OK);
	ww_episode_close(w);
	json_decref(h.versions);
	assert_int_equal(ww_episode_read(path, &e, &err), WW_OK);
	return ww_episode_faults(&e, idle_turns);
}

static const struct call good[] = { { "inspect", "{}", "graph", 0 }, { "write", "{\"a\":1}", "ok", 0 },
	{ "verify", "{}", "wrong", 0 }, { "edit", "{\"a\":2}", "ok", 0 }, { "verify", "{}", "right", 0 },
	{ "submit", "{}", "ok", 0 } };

static void a_good_episode_has_no_fault(void **state)
{
	static const char *const solutions[] = { NULL, NULL, "s1", NULL, "s2", NULL };
	(void)state;
	assert_int_equal(faults_of(good, 6, solutions, 1, 1), 0);
	assert_int_equal(faults_of(good, 6, solutions, -1, 1), 1u << WW_FAULT_REWARD);
	assert_int_equal(faults_of(good, 6, solutions, 0, 1), 1u << WW_FAULT_REWARD);
}

static void each_detector_finds_its_own(void **state)
{
	static const struct call twice[] = { { "read", "{\"path\":\"a\"}", "text", 0 },
		{ "read", "{\"path\":\"a\"}", "text", 0 } };
	static const struct call other[] = { { "bash_output", "{\"job\":1}", "more", 0 },
		{ "bash_output", "{\"job\":1}", "even more", 0 }, { "bash_output", "{\"job\":2}", "even more", 0 } };
	static const struct call again[] = { { "verify", "{}", "30 us", 0 }, { "read", "{}", "x", 0 },
		{ "verify", "{}", "31 us", 0 } };
	static const char *const same[] = { "s1", NULL, "s1" }, *const changed[] = { "s1", NULL, "s2" };
	static const struct call bad[] = { { "fly", "{}", "there is no tool", 1 } };
	(void)state;
	assert_int_equal(faults_of(twice, 2, NULL, 1, 0), 1u << WW_FAULT_REPEATED);
	assert_int_equal(faults_of(other, 3, NULL, 1, 0), 0); /* another answer, other arguments */
	assert_int_equal(faults_of(again, 3, same, 1, 0), 1u << WW_FAULT_REVERIFIED);
	assert_int_equal(faults_of(again, 3, changed, 1, 0), 0);
	assert_int_equal(faults_of(bad, 1, NULL, 1, 0), 1u << WW_FAULT_INVALID);
	assert_int_equal(faults_of(other, 3, NULL, 1, 2), 1u << WW_FAULT_IDLE);
	assert_int_equal(faults_of(other, 3, NULL, 1, 3), 0);
	assert_int_equal(faults_of(again, 3, changed, 1, 1), 0); /* a new solution is a change */
}

/* ---- the stage */

static char said[16][512];
static int n_said;
static void keep_line(void *ctx, const char *line)
{
	(void)ctx;
	snprintf(said[n_said++ % 16], 512, "%s", line);
}

static enum ww_rc train(const struct ww_recipe *o, struct toy *t, struct ww_err *err)
{
	struct ww_train_hooks hooks = { &interrupted, keep_line, note_stage, no_step, NULL };
	struct ww_rl_judges judges = { t, WW_TARGET_CPU, WW_RULE_STRICT, 3, 0, 0, toy_each, toy_policy };
	struct ww_train_result result;
	json_t *values = json_pack("{s:s}", "stage", "rft");
	n_said = 0;
	memset(said, 0, sizeof(said));
	*stages = 0;
	enum ww_rc rc = ww_rft_run(o, values, o->tasks ? &judges : NULL, &hooks, &result, err);
	json_decref(values);
	return rc;
}

static struct ww_recipe rft_recipe(const char *output)
{
	struct ww_recipe o = toy_recipe(output);
	o.stage = "rft";
	o.samples = 16;
	o.episodes = 64;
	o.order = "shuffled";
	o.schedule = "constant";
	o.learn = "assistant";
	o.steps = 0;
	o.epochs = 6;
	o.sequence = 64;
	o.step_tokens = 4096;
	o.checkpoint_every = 0;
	o.idle_turns = 8;
	o.lr = 0.01;
	return o;
}

static int number_after(const char *what)
{
	for (int i = 0; i < 16; i++) {
		const char *at = strstr(said[i], what);
		if (at && !strncmp(said[i], "data: ", 6))
			return atoi(at + strlen(what));
	}
	return -1;
}

static void a_policy_learns_from_its_good_episodes(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct toy t = { .workers = 2 };
	char one[4300], two[4300], paths[4400];
	(void)state;
	snprintf(one, sizeof(one), "%s/one", tmp.path);
	snprintf(two, sizeof(two), "%s/two", tmp.path);
	struct ww_recipe a = rft_recipe(one), b = rft_recipe(two);
	if (train(&a, &t, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_non_null(strstr(stages, "sampling: opening the first of 4 tasks\n"));
	assert_non_null(strstr(stages, "sampling: 0 of 64 episodes, 1 replies, "));
	assert_non_null(strstr(stages, "sampling: 64 of 64 episodes, "));
	assert_non_null(strstr(stages, "reading the episodes\n"));
	int kept = number_after("data: "), invalid = number_after("invalid "), reward = number_after("reward ");
	printf("# %d kept of 64, %d invalid, %d without reward, %d judged again\n", kept, invalid, reward,
		number_after("reverified "));
	assert_in_range(kept, 10, 32);
	assert_true(invalid > 4 && reward >= invalid && number_after("reverified ") > 4);
	json_t *first = log_line(one, 1), *last = log_line(one, 6);
	assert_true(ww_json_num(last, "loss", 9) < ww_json_num(first, "loss", 0) - 0.5);
	json_decref(first);
	json_decref(last);
	/* What was sampled is data: the same weights. */
	snprintf(paths, sizeof(paths), "%s/episodes", one);
	b.tasks = NULL;
	b.data = paths;
	if (train(&b, &t, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_true(is_same_file(one, two, "model/model.safetensors"));
	assert_true(number_after("data: ") == kept);
	int judged = t.judged; /* once more: nothing is sampled, nothing is learnt */
	assert_int_equal(train(&a, &t, &err), WW_OK);
	assert_int_equal(t.judged, judged);
}

static void nothing_good_is_refused(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct toy t = { .workers = 2 };
	char output[4300];
	(void)state;
	snprintf(output, sizeof(output), "%s/none", tmp.path);
	struct ww_recipe o = rft_recipe(output);
	o.turns = 1;
	o.episodes = o.samples = 2;
	o.idle_turns = 0;
	o.seed = 5;
	for (; o.seed < 40 && train(&o, &t, &err) == WW_OK; o.seed++)
		snprintf(output, sizeof(output), "%s/none%d", tmp.path, (int)o.seed);
	assert_non_null(strstr(err.msg, "good enough"));
	o.data = output;
	assert_int_equal(train(&o, &t, &err), WW_ERR_USAGE); /* both */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_good_episode_has_no_fault),
		cmocka_unit_test(each_detector_finds_its_own), cmocka_unit_test(a_policy_learns_from_its_good_episodes),
		cmocka_unit_test(nothing_good_is_refused) };
	setenv("WARPWRIGHT_THREADS", "1", 0);
	if (access("/dev/shm", W_OK) == 0) /* thousands of synced lines */
		setenv("TMPDIR", "/dev/shm", 1);
	return cmocka_run_group_tests(tests, toy_setup, toy_teardown);
}
