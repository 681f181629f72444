/* Stage ppo with a tiny model and a scripted judge: killed at any moment, a run ends with the bits and the episodes of
 * one that was not; what a step logs; a run that has collapsed is stopped.
 *
 * budget: 3 CPU-seconds */
#include "unit.h"

#include "../infer/tiny.h"
#include "base/rng.h"
#include "rl/ppo.h"
#include "runs.h"
#include "train/report.h"

#include <math.h>
#include <unistd.h>

enum { KILLS = 3 };
static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static char dir[4200];

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	if (ww_tmpdir_new(&tmp, "test-ppo", &err) != WW_OK)
		return -1;
	snprintf(dir, sizeof(dir), "%s/model", tmp.path);
	struct ww_config c = tiny_config(8192);
	c.layers = c.heads = c.kv_heads = 1; /* prompts are thousands of bytes */
	c.head_dim = c.hidden_size = c.intermediate_size = 16;
	return tiny_model_of(dir, &c) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ww_tmpdir_remove(&tmp);
	return 0;
}

/* ---- a judge that is never asked by a policy this small: no answer of it holds a solution */

static struct ww_device device = { .target = WW_TARGET_CPU };

static enum ww_rc each(void *ctx, const char *const *paths, int64_t n, ww_rl_task_fn *fn, void *arg, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	for (int64_t i = 0; rc == WW_OK && i < n; i++) {
		json_t *graph = json_pack("{s:[]}", "nodes");
		struct ww_rl_task t = { .judge = { .graph = graph, .device = &device, .device_name = "test" },
			.path = paths[i],
			.source = "class Model: pass\n",
			.id = "abc" };
		++*(int *)ctx;
		rc = fn(arg, i, &t, err);
		json_decref(graph);
	}
	return rc;
}

static struct ww_recipe recipe(const char *output)
{
	struct ww_recipe o = sampling_recipe("ppo", dir, "a.py,b.py", output);
	o.parallel = 1;
	o.steps = o.episodes = 2;
	o.reply_tokens = 24;
	return o;
}

/* The plan of the memory holds: what was used, and what was predicted. */
static void fits_its_prediction(const struct ww_train_result *r)
{
	double predicted = (double)r->predicted_bytes, used = (double)r->last.device_bytes;
	if (r->last.device_bytes && !(used <= predicted && used >= 0.9 * predicted))
		fail_msg("%.0f bytes predicted, %.0f used", predicted, used);
}

static enum ww_rc train(const struct ww_recipe *o, int *opened, struct ww_err *err)
{
	struct ww_train_hooks hooks = { &interrupted, quiet, note_stage, no_step, NULL };
	struct ww_rl_judges judges = { opened, WW_TARGET_CPU, WW_RULE_STRICT, 1, 0, 0, each, NULL };
	struct ww_train_result result;
	json_t *values = json_pack("{s:s, s:I}", "stage", o->stage, "steps", (json_int_t)o->steps);
	*stages = 0;
	enum ww_rc rc = ww_ppo_run(o, values, &judges, &hooks, &result, err);
	json_decref(values);
	fits_its_prediction(&result);
	return rc;
}

static enum ww_rc train_once(void *recipe, struct ww_err *err)
{
	int opened = 0;
	return train(recipe, &opened, err);
}

static void killed_and_resumed_to_the_same_bits(void **state)
{
	static const char *const files[] = { "model/model.safetensors", "model/optimizer/model.safetensors",
		"model/critic/model.safetensors", "model/critic/optimizer/model.safetensors" };
	struct ww_rng rng;
	char whole[4300], cut[4300];
	(void)state;
	snprintf(whole, sizeof(whole), "%s/whole", tmp.path);
	snprintf(cut, sizeof(cut), "%s/cut", tmp.path);
	struct ww_recipe a = recipe(whole), b = recipe(cut);
	int kills = 0;
	b.checkpoint_every = 0; /* steps since the start are learnt again from their records */
	assert_true(ran_for(0, train_once, &a));
	ww_rng_init(&rng, 4, 0);
	while (kills < KILLS && !ran_for(50000 + (int)ww_rng_below(&rng, 400000), train_once, &b))
		kills++;
	if (kills == KILLS)
		assert_true(ran_for(0, train_once, &b));
	printf("# killed %d times\n", kills);
	for (size_t i = 0; i < WW_ARRAY_LEN(files); i++)
		assert_true(is_same_file(whole, cut, files[i]));
}

/* train() holds the run to the plan of its memory: with a reference there are weights more. */
static void a_reference_is_in_the_plan(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	char output[4300];
	int opened = 0;
	(void)state;
	snprintf(output, sizeof(output), "%s/reference", tmp.path);
	struct ww_recipe o = recipe(output);
	o.steps = 1;
	o.kl = 0.1;
	if (train(&o, &opened, &err) != WW_OK)
		fail_msg("%s", err.msg);
	const char *sampling = strstr(stages, "sampling: "), *learning = strstr(stages, "learning from 2 episodes\n");
	assert_true(sampling && learning && sampling < learning);
}

static void a_step_says_what_it_did(void **state)
{
	char whole[4300];
	size_t n;
	(void)state;
	snprintf(whole, sizeof(whole), "%s/whole", tmp.path);
	char *log = file_of(whole, "log.jsonl", &n), *second = strchr(log, '\n') + 1;
	json_t *v = json_loads(second, JSON_DISABLE_EOF_CHECK, NULL);
	assert_non_null(v);
	assert_int_equal(ww_json_int(v, "step", 0), 2);
	assert_true(ww_json_num(v, "reward", 0) == -1);
	assert_int_equal(ww_json_int(v, "own_tokens", 0), 48);
	assert_int_equal(ww_json_int(v, "cut", 0), 2);
	assert_true(ww_json_num(v, "entropy", 0) > 0 && ww_json_num(v, "norm", 0) > 0);
	assert_true(ww_json_num(v, "ratio_min", 0) == 1 && ww_json_num(v, "ratio_max", 0) == 1);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(v, "rewards"), 0)), 2);
	json_decref(v);
	free(log);
}

/* The page of such a run: curves of the policy, none of what was not logged. */
static void the_report_draws_it(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str h = WW_STR_INIT(1 << 20);
	char whole[4300];
	(void)state;
	snprintf(whole, sizeof(whole), "%s/whole", tmp.path);
	assert_int_equal(ww_train_reports((const char *[]){ whole }, 1, &h, &err), WW_OK);
	assert_true(strstr(h.p, "<h2>Reward</h2>") && strstr(h.p, "<h2>Entropy</h2>") && strstr(h.p, "2 tasks"));
	assert_null(strstr(h.p, "Explained variance")); /* equal rewards have none */
}

static void a_collapse_stops_the_run(void **state)
{
	char path[4300];
	struct ww_err err = WW_ERR_INIT;
	int opened = 0;
	(void)state;
	snprintf(path, sizeof(path), "%s/whole", tmp.path);
	struct ww_recipe o = recipe(path);
	o.steps = 10;
	assert_int_equal(train(&o, &opened, &err), WW_ERR_USAGE); /* another recipe than the run's */
	assert_non_null(strstr(err.msg, "steps"));
	snprintf(path, sizeof(path), "%s/stopped", tmp.path);
	o.stop_entropy = 50;
	o.advantage = "rloo";
	o.episodes = o.samples = 1;
	o.reply_tokens = 4;
	assert_int_equal(train(&o, &opened, &err), WW_ERR_LIMIT);
	assert_non_null(strstr(err.msg, "stopped after step 3: the entropy"));
	assert_int_equal(opened, 3);
	o.episodes = 3;
	o.samples = 2;
	assert_int_equal(train(&o, &opened, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "multiple"));
}

static void tasks_that_are_held_out_are_refused(void **state)
{
	char path[4300], set[4300], tasks[9000],
		row[] =
			"{\"id\": \"a\", \"code\": \"class Model: a\", \"signature\": \"s1:a0000000000000000000000000000000\"}\n";
	struct ww_err err = WW_ERR_INIT;
	int opened = 0;
	(void)state;
	snprintf(path, sizeof(path), "%s/tested", tmp.path);
	snprintf(set, sizeof(set), "%s/set.jsonl", tmp.path);
	snprintf(tasks, sizeof(tasks), "%s#a, %s#1", set, set);
	assert_int_equal(ww_fs_write(set, row, strlen(row), &err), WW_OK);
	struct ww_recipe o = recipe(path);
	o.tasks = tasks;
	o.held_out = set;
	assert_int_equal(train(&o, &opened, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "2 of the tasks to train on are held out"));
	assert_false(ww_fs_is_dir(path));
	assert_int_equal(opened, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(killed_and_resumed_to_the_same_bits),
		cmocka_unit_test(a_reference_is_in_the_plan), cmocka_unit_test(a_step_says_what_it_did),
		cmocka_unit_test(the_report_draws_it), cmocka_unit_test(a_collapse_stops_the_run),
		cmocka_unit_test(tasks_that_are_held_out_are_refused) };
	setenv("WARPWRIGHT_THREADS", "1", 0);
	return cmocka_run_group_tests(tests, setup, teardown);
}
