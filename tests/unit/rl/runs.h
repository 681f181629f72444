/* runs.h - what tests of the stages that sample share: a recipe, what a run said, its end by a kill, its files. */
#pragma once

#include "unit.h"

#include "base/fs.h"
#include "train/recipe.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int interrupted;

/* What was under way, a line each, of the last run. */
static char stages[1 << 16];
static inline void note_stage(void *ctx, const char *stage)
{
	size_t n = strlen(stages);
	(void)ctx;
	snprintf(stages + n, sizeof(stages) - n, "%s\n", stage);
}
static inline void no_step(void *ctx, const struct ww_train_step *s) { (void)ctx, (void)s; }
static inline void quiet(void *ctx, const char *line) { (void)ctx, (void)line; }

/* Of a stage that samples: all but its size. */
static inline struct ww_recipe sampling_recipe(
	const char *stage, const char *model, const char *tasks, const char *output)
{
	return (struct ww_recipe){ .stage = stage,
		.model = model,
		.tasks = tasks,
		.output = output,
		.device = "cpu",
		.dtype = "same",
		.numbers = "exact",
		.advantage = "critic",
		.mean = "episode",
		.decide = "reward",
		.reward = "milestone",
		.curriculum = "none",
		.prompt = "same",
		.samples = 2,
		.context_tokens = 8192,
		.update_epochs = 1,
		.checkpoint_every = 1,
		.keep_checkpoints = 2,
		.max_skips = 8,
		.lr = 1e-3,
		.critic_lr = 1e-3,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.clip = 1,
		.gamma = 1,
		.lambda = 0.95,
		.critic_lambda = 0.95,
		.clip_low = 0.2,
		.clip_high = 0.28 };
}

/* A run in a process of its own that ends after `us` microseconds (0: never); 1: it came to its end. */
static inline int ran_for(int us, enum ww_rc (*run)(void *context, struct ww_err *err), void *context)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct ww_err err = WW_ERR_INIT;
		if (run(context, &err) == WW_OK)
			_exit(0);
		fprintf(stderr, "%s\n", err.msg);
		_exit(1);
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

static inline char *file_of(const char *run, const char *name, size_t *n)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str s = WW_STR_INIT(1 << 24);
	char path[PATH_MAX];
	assert_int_equal(ww_fs_join(path, run, name, &err), WW_OK);
	if (ww_fs_read(path, 1 << 24, &s, &err) != WW_OK)
		fail_msg("%s", err.msg);
	*n = s.len;
	return ww_str_take(&s);
}

static inline int is_same_file(const char *a, const char *b, const char *name)
{
	size_t n, m;
	char *x = file_of(a, name, &n), *y = file_of(b, name, &m);
	int same = n == m && !memcmp(x, y, n);
	free(x);
	free(y);
	return same;
}
