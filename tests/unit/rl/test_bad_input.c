/* What goes wrong beside a run that learns: no room in memory or on disk, weights that fell apart, a model whose
 * settings ask for another sampling.  One line says what it is, and nothing is lost that was sampled or learnt.
 *
 * budget: 8 CPU-seconds */
#include "toy.h"

#include "rl/rft.h"
#include "rl/value.h"

#include <sys/resource.h>
#include <unistd.h>

static void says(const struct ww_err *err, const char *what)
{
	if (!strstr(err->msg, what) || strchr(err->msg, '\n'))
		fail_msg("%s", err->msg);
}

static void must(const struct ww_recipe *o)
{
	struct ww_err err = WW_ERR_INIT;
	struct toy t = { .workers = 2 };
	if (toy_train(o, &t, &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static struct ww_recipe agentic_recipe(const char *output)
{
	struct ww_recipe o = toy_recipe(output);
	o.episodes = 8;
	o.samples = 4;
	return o;
}

/* The other stages, over the episodes of "one". */
static char data[4400];
static struct ww_recipe value_recipe(const char *output)
{
	struct ww_recipe o = toy_recipe(output);
	o.stage = "value";
	o.tasks = NULL;
	o.data = data;
	o.epochs = 30;
	o.episodes = 8;
	o.critic_lr = 1e-2;
	return o;
}

static struct ww_recipe rft_recipe(const char *output)
{
	struct ww_recipe o = agentic_recipe(output);
	o.stage = "rft";
	o.episodes = 32;
	o.order = "shuffled";
	o.schedule = "constant";
	o.learn = "assistant";
	o.steps = 0;
	o.epochs = 8;
	o.sequence = 64;
	o.step_tokens = 256;
	return o;
}

static enum ww_rc stage_run(const struct ww_recipe *o, struct ww_err *err)
{
	struct ww_train_hooks hooks = { &interrupted, quiet, note_stage, no_step, NULL };
	struct toy t = { .workers = 2, .most_pause_us = 500 };
	struct ww_rl_judges judges = { &t, WW_TARGET_CPU, WW_RULE_STRICT, 3, 0, 0, toy_each, toy_policy };
	struct ww_train_result result;
	json_auto_t *values = json_pack("{s:s}", "stage", o->stage);
	*stages = 0;
	return !strcmp(o->stage, "value") ? ww_value_run(o, values, &hooks, &result, err)
									  : ww_rft_run(o, values, &judges, &hooks, &result, err);
}

static enum ww_rc any_stage(void *recipe, struct ww_err *err)
{
	const struct ww_recipe *o = recipe;
	struct toy t = { .workers = 2 };
	return strcmp(o->stage, "agentic") ? stage_run(o, err) : toy_train(o, &t, err);
}

/* ---- no room */

/* As a full disk: a write beyond so many bytes of a file fails. */
struct little {
	struct ww_recipe *o;
	rlim_t bytes;
};

static enum ww_rc with_little_room(void *arg, struct ww_err *err)
{
	const struct little *l = arg;
	struct rlimit limit = { l->bytes, l->bytes };
	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
		return ww_err_errno(err, WW_ERR_IO, "setrlimit");
	enum ww_rc rc = any_stage(l->o, err);
	if (rc != WW_ERR_IO || strchr(err->msg, '\n') || !strstr(err->msg, "cannot write"))
		return ww_err_set(err, WW_ERR_WORKER, "with %d bytes a file: %d, %s", (int)l->bytes, (int)rc, err->msg);
	return WW_OK;
}

static void a_full_disk_costs_nothing(void **state)
{
	/* An episode, the weights, the optimizer do not fit. */
	static const rlim_t bytes[] = { 2000, 16000, 24000, 40000 };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(bytes); i++) {
		char name[16];
		snprintf(name, sizeof(name), "full%zu", i);
		struct ww_recipe o = agentic_recipe(run_of(name));
		assert_true(ran_for(0, with_little_room, &(struct little){ &o, bytes[i] }));
		must(&o);
		same_weights(run_of("one"), o.output);
	}
}

static void what_cannot_fit_is_refused_before_it_starts(void **state)
{
	struct ww_recipe o[] = { agentic_recipe(run_of("large1")), value_recipe(run_of("large2")),
		rft_recipe(run_of("large3")) };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(o); i++) {
		struct ww_err err = WW_ERR_INIT;
		o[i].memory = 1e-5;
		assert_int_equal(any_stage(&o[i], &err), WW_ERR_ROOM);
		says(&err, "GB too much for the budget");
		if (ww_fs_is_dir(o[i].output))
			fail_msg("%s began", o[i].stage);
	}
}

/* Links to files of the model in a directory of its own. */
static void copy_model(const char *to, const char *const *files, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	char from[4500], path[4500];
	assert_int_equal(ww_fs_mkdirs(to, &err), WW_OK);
	for (size_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", to, files[i]);
		snprintf(from, sizeof(from), "%s/%s", dir, files[i]);
		assert_int_equal(symlink(from, path), 0);
	}
}

/* ---- weights that fell apart */

static void wild(struct ww_recipe *o)
{
	o->lr = o->critic_lr = o->weight_decay = 10;
	o->clip = o->beta2 = 0;
	o->eps = 1e-30;
}

static void a_policy_that_fell_apart_ends_the_run(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct toy t = { .workers = 1 };
	struct ww_recipe o = agentic_recipe(run_of("wild"));
	(void)state;
	wild(&o);
	o.advantage = "rloo";
	o.steps = 60;
	assert_int_equal(toy_train(&o, &t, &err), WW_ERR_LIMIT);
	says(&err, "8 steps in a row were skipped");
	says(&err, "a lower lr may help");
}

/* A copy of the model whose numbers are finite and whose logits are not. */
static void break_model(const char *to)
{
	static const char *const files[] = { "config.json", "tokenizer.json" };
	struct ww_err err = WW_ERR_INIT;
	char path[4500];
	uint64_t header;
	size_t n;
	copy_model(to, files, WW_ARRAY_LEN(files));
	snprintf(path, sizeof(path), "%s/model.safetensors", to);
	char *weights = file_of(dir, "model.safetensors", &n);
	memcpy(&header, weights, sizeof(header));
	for (size_t at = sizeof(header) + header; at + sizeof(float) <= n; at += sizeof(float))
		if (!memcmp(weights + at, &(float){ 1 }, sizeof(float))) /* of a norm */
			memcpy(weights + at, &(float){ 3e38f }, sizeof(float));
	assert_int_equal(ww_fs_write(path, weights, n, &err), WW_OK);
	free(weights);
}

static void logits_that_are_not_finite_end_the_run(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct toy t = { .workers = 1 };
	struct ww_recipe o = agentic_recipe(run_of("no-logits"));
	(void)state;
	o.model = run_of("broken");
	break_model(o.model);
	assert_int_equal(toy_train(&o, &t, &err), WW_ERR_DEVICE);
	says(&err, "step 1: ");
	says(&err, "the model's logits are not finite");
}

static void a_critic_that_fell_apart_ends_the_stage(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_recipe o = value_recipe(run_of("wild-critic"));
	size_t n;
	(void)state;
	wild(&o);
	o.epochs = 60;
	assert_int_equal(stage_run(&o, &err), WW_ERR_LIMIT);
	says(&err, "gradients that are not finite");
	says(&err, "a lower critic-lr may help");
	char *log = file_of(o.output, "log.jsonl", &n);
	int passes = 0;
	for (const char *p = log; *p; p++)
		passes += *p == '\n';
	free(log);
	assert_in_range(passes, 2, 40); /* no more of them in vain */
}

/* ---- kill -9 in the other stages */

static void stages_go_on_to_the_same_bits(void **state)
{
	enum { KILLS = 5 };
	struct ww_recipe whole[] = { value_recipe(run_of("value")), rft_recipe(run_of("rft")) },
					 cut[] = { value_recipe(run_of("value-cut")), rft_recipe(run_of("rft-cut")) };
	struct ww_rng rng;
	(void)state;
	ww_rng_init(&rng, 21, 0);
	for (size_t i = 0; i < WW_ARRAY_LEN(cut); i++) {
		int kills = 0;
		assert_true(ran_for(0, any_stage, &whole[i]));
		while (kills < KILLS && !ran_for(3000 + (int)ww_rng_below(&rng, 60000), any_stage, &cut[i]))
			kills++;
		if (kills == KILLS)
			assert_true(ran_for(0, any_stage, &cut[i]));
		printf("# %s killed %d times\n", cut[i].stage, kills);
		assert_true(is_same_file(whole[i].output, cut[i].output, "model/model.safetensors"));
		assert_true(is_same_file(whole[i].output, cut[i].output, "model/optimizer/model.safetensors"));
	}
}

/* ---- a model that asks for another sampling */

static void sampling_in_training_is_the_policys_own(void **state)
{
	static const char greedy[] = "{\"do_sample\": false, \"temperature\": 0.2, \"top_k\": 1}\n";
	static const char *const files[] = { "config.json", "model.safetensors", "tokenizer.json" };
	struct ww_err err = WW_ERR_INIT;
	char path[4500];
	(void)state;
	struct ww_recipe o = agentic_recipe(run_of("untruncated"));
	o.model = run_of("greedy");
	copy_model(o.model, files, WW_ARRAY_LEN(files));
	snprintf(path, sizeof(path), "%s/generation_config.json", o.model);
	assert_int_equal(ww_fs_write(path, greedy, strlen(greedy), &err), WW_OK);
	must(&o);
	same_weights(run_of("one"), o.output);
}

static int setup(void **state)
{
	if (toy_setup(state))
		return -1;
	struct ww_recipe o = agentic_recipe(run_of("one"));
	must(&o);
	snprintf(data, sizeof(data), "%s/episodes", o.output);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_full_disk_costs_nothing),
		cmocka_unit_test(what_cannot_fit_is_refused_before_it_starts),
		cmocka_unit_test(a_policy_that_fell_apart_ends_the_run),
		cmocka_unit_test(logits_that_are_not_finite_end_the_run),
		cmocka_unit_test(a_critic_that_fell_apart_ends_the_stage), cmocka_unit_test(stages_go_on_to_the_same_bits),
		cmocka_unit_test(sampling_in_training_is_the_policys_own) };
	setenv("WARPWRIGHT_THREADS", "1", 0);
	if (access("/dev/shm", W_OK) == 0) /* thousands of synced lines */
		setenv("TMPDIR", "/dev/shm", 1);
	return cmocka_run_group_tests(tests, setup, toy_teardown);
}
