/* Checkpoints of a policy and its critic: killed at any moment and resumed, a run ends with the bits of one that was
 * not.
 *
 * budget: 3 CPU-seconds */
#include "unit.h"

#include "base/fs.h"
#include "base/rng.h"
#include "base/tmpdir.h"
#include "train/checkpoint.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { T = 48, V = 61, STEPS = 25, KILLS = 20 };
static const struct ww_config config = { .arch = WW_ARCH_QWEN3,
	.vocab_size = V,
	.hidden_size = 32,
	.intermediate_size = 48,
	.layers = 2,
	.heads = 2,
	.kv_heads = 1,
	.head_dim = 16,
	.max_position = 64,
	.rms_eps = 1e-6,
	.initializer_range = 0.1,
	.rope = { .theta = 10000, .factor = 1, .attention_factor = 1 },
	.qk_norm = 1,
	.bos = -1,
	.pad = -1,
	.dtype = WW_BF16 };

static enum ww_rc towards_one(void *ctx, const float *value, float *d, int64_t n, struct ww_err *err)
{
	(void)ctx, (void)err;
	for (int64_t i = 0; i < n; i++)
		d[i] = (value[i] - 1) / (float)n;
	return WW_OK;
}

/* One step of both, by numbers of the step. */
static void step(const struct ww_trained *t, int64_t number, struct ww_err *err)
{
	static const int32_t starts[] = { 0, 20, T };
	int32_t ids[T], targets[T];
	float d[T], norm;
	const float *logp;
	struct ww_rng rng;
	struct ww_loss value = { towards_one, NULL };
	struct ww_batch b = { .ids = ids, .starts = starts, .t = T, .sequences = 2 };
	ww_rng_init(&rng, 5, (uint64_t)number);
	for (int i = 0; i < T; i++) {
		ids[i] = (int32_t)ww_rng_below(&rng, V);
		targets[i] = (int32_t)ww_rng_below(&rng, V);
		d[i] = (float)(ww_rng_uniform(&rng) - 0.7) / T;
	}
	assert_int_equal(ww_learner_add_targets(t->policy, &b, targets, d, &logp, err), WW_OK);
	assert_int_equal(ww_learner_add(t->critic, &b, NULL, &value, err), WW_OK);
	assert_int_equal(ww_learner_update(t->policy, 1e-3, &norm, err), WW_OK);
	if (number % 3)
		assert_int_equal(ww_learner_update(t->critic, 2e-3, &norm, err), WW_OK);
	else
		assert_int_equal(ww_learner_drop(t->critic, err), WW_OK);
}

/* Begin or go on, to the last step; `every` steps a checkpoint. */
static void train(const char *run, int64_t every)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *dev;
	struct ww_model *policy, *critic;
	struct ww_trained t = { 0 };
	struct ww_train_state s = { 0 };
	struct ww_learner_opts o = { .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1, .max_tokens = T, .keep = 1 };
	char from[PATH_MAX], dir[PATH_MAX];
	struct ww_config as_critic = config;
	as_critic.critic = 1;
	assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_checkpoint_find(run, 2, from, &err), WW_OK);
	if (from[0]) {
		assert_int_equal(ww_checkpoint_state(from, &s, &err), WW_OK);
		assert_int_equal(json_integer_value(json_object_get(s.stage, "cursor")), 7 * s.step);
		json_decref(s.stage);
		assert_int_equal(ww_checkpoint_critic(from, dir, &err), WW_OK);
		assert_int_equal(ww_model_open(from, dev, 0, &policy, &err), WW_OK);
		assert_int_equal(ww_model_open(dir, dev, 0, &critic, &err), WW_OK);
		assert_true(critic->config.critic && !policy->config.critic);
	} else {
		assert_int_equal(ww_model_new(&config, dev, 0, 1, &policy, &err), WW_OK);
		assert_int_equal(ww_model_new(&as_critic, dev, 0, 2, &critic, &err), WW_OK);
	}
	assert_int_equal(ww_learner_new(policy, &o, &t.policy, &err), WW_OK);
	o.host = t.policy;
	assert_int_equal(ww_learner_new(critic, &o, &t.critic, &err), WW_OK);
	if (from[0])
		assert_int_equal(ww_checkpoint_load(from, &t, &s, &err), WW_OK);
	while (s.step < STEPS) {
		step(&t, ++s.step, &err);
		s.updates = ww_learner_updates(t.policy);
		s.critic_updates = ww_learner_updates(t.critic);
		s.stage = json_pack("{s:I}", "cursor", (json_int_t)(7 * s.step));
		if (s.step % every == 0 || s.step == STEPS)
			assert_int_equal(ww_checkpoint_save(run, &t, &s, 2, &err), WW_OK);
		json_decref(s.stage);
	}
	ww_learner_free(t.critic);
	ww_learner_free(t.policy);
	ww_model_free(critic);
	ww_model_free(policy);
	ww_dev_close(dev);
}

/* Run it in a process of its own, which ends after `us` microseconds at the latest (0: never); 1: it came to its end.
 */
static int train_until(const char *run, int64_t every, int us)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		train(run, every);
		_exit(0);
	}
	if (us) {
		usleep((useconds_t)us);
		kill(pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		assert_int_equal(WEXITSTATUS(status), 0);
	return WIFEXITED(status);
}

static void same_file(const char *a, const char *b, const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str x = WW_STR_INIT(1 << 24), y = WW_STR_INIT(1 << 24);
	char path[PATH_MAX];
	assert_int_equal(ww_fs_join(path, a, name, &err), WW_OK);
	assert_int_equal(ww_fs_read(path, 1 << 24, &x, &err), WW_OK);
	assert_int_equal(ww_fs_join(path, b, name, &err), WW_OK);
	assert_int_equal(ww_fs_read(path, 1 << 24, &y, &err), WW_OK);
	assert_int_equal(x.len, y.len);
	assert_memory_equal(x.p, y.p, x.len);
}

static void killed_and_resumed_to_the_same_bits(void **state)
{
	static const char *const files[] = { "model/model.safetensors", "model/optimizer/model.safetensors",
		"model/critic/model.safetensors", "model/critic/optimizer/model.safetensors", "model/critic/config.json",
		"model/state.json" };
	struct ww_err err = WW_ERR_INIT;
	struct ww_tmpdir tmp;
	struct ww_rng rng;
	char whole[PATH_MAX], cut[PATH_MAX];
	int kills = 0;
	(void)state;
	assert_int_equal(ww_tmpdir_new(&tmp, "test", &err), WW_OK);
	assert_int_equal(ww_fs_join(whole, tmp.path, "whole", &err), WW_OK);
	assert_int_equal(ww_fs_join(cut, tmp.path, "cut", &err), WW_OK);
	assert_true(train_until(whole, STEPS, 0));
	ww_rng_init(&rng, 3, 0);
	while (kills < KILLS && !train_until(cut, 1, 5000 + (int)ww_rng_below(&rng, 60000)))
		kills++;
	if (kills == KILLS)
		assert_true(train_until(cut, 1, 0));
	assert_true(kills > 0);
	printf("# killed %d times\n", kills);
	for (size_t i = 0; i < WW_ARRAY_LEN(files); i++)
		same_file(whole, cut, files[i]);
	ww_tmpdir_remove(&tmp);
}

/* A curriculum keeps three numbers a task. */
static void a_stage_of_many_tasks_comes_back(void **state)
{
	enum { TASKS = 20000 };
	struct ww_learner_opts o = { .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1, .max_tokens = T, .keep = 1 };
	struct ww_train_state s = { .step = 1, .stage = json_pack("{s:[]}", "curriculum") }, back = { 0 };
	struct ww_err err = WW_ERR_INIT;
	struct ww_trained t = { 0 };
	struct ww_tmpdir tmp;
	struct ww_dev *dev;
	struct ww_model *policy;
	char from[PATH_MAX];
	(void)state;
	for (int i = 0; i < TASKS; i++)
		json_array_append_new(json_object_get(s.stage, "curriculum"),
			json_pack("[f, f, f]", 1.0 / (i + 3), 1.0 / (i + 7), 4 + 1.0 / (i + 9)));
	assert_int_equal(ww_tmpdir_new(&tmp, "test", &err), WW_OK);
	assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_model_new(&config, dev, 0, 1, &policy, &err), WW_OK);
	assert_int_equal(ww_learner_new(policy, &o, &t.policy, &err), WW_OK);
	assert_int_equal(ww_checkpoint_save(tmp.path, &t, &s, 1, &err), WW_OK);
	assert_int_equal(ww_checkpoint_find(tmp.path, 1, from, &err), WW_OK);
	assert_int_equal(ww_checkpoint_state(from, &back, &err), WW_OK);
	assert_true(json_equal(back.stage, s.stage));
	json_decref(back.stage);
	json_decref(s.stage);
	ww_learner_free(t.policy);
	ww_model_free(policy);
	ww_dev_close(dev);
	ww_tmpdir_remove(&tmp);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(killed_and_resumed_to_the_same_bits),
		cmocka_unit_test(a_stage_of_many_tasks_comes_back) };
	setenv("WARPWRIGHT_THREADS", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
