/* toy.h - a world for the stages that sample: a tiny model whose replies' first token chooses what is called, a judge
 * that reads its verdict in the kernel, tasks that need no file but their name. */
#ifndef WW_TESTS_RL_TOY_H
#define WW_TESTS_RL_TOY_H

#include "unit.h"

#include "../infer/tiny.h"
#include "base/fs.h"
#include "base/rng.h"
#include "host/lease.h"
#include "policy/model.h"
#include "rl/ppo.h"
#include "runs.h"
#include "task/task.h"

#include <math.h>
#include <pthread.h>

static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static char dir[4200], task_paths[9000];

/* ---- the judge: "us=100" is correct and takes 100 us; eager takes 200, compile 150 */

struct toy {
	int workers;          /* tasks at a time */
	int devices, apart;   /* as in struct ww_rl_judges */
	int tasks, judged;    /* opened; verdicts */
	int most_pause_us;    /* before each verdict and each reply, drawn anew */
	int fails_at;         /* this verdict is none: the judge's machine fails; 0: never */
	int same_files;       /* every first turn writes the same */
	int leases;           /* a verdict holds the device for a millisecond, and says that it was a second */
	int long_task;        /* what the second task is told has hundreds of tokens */
	int invalid_pays;     /* a call of an unknown tool comes with the best solution */
	int64_t policy_lines; /* replies */
};

static inline void toy_pause(const struct toy *t)
{
	static unsigned seed;
	if (t->most_pause_us)
		usleep((useconds_t)(__atomic_add_fetch(&seed, 7919, __ATOMIC_RELAXED) % (unsigned)t->most_pause_us));
}

static inline void toy_hold(struct ww_verdict *v)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_lease lease = WW_LEASE_INIT;
	assert_int_equal(ww_lease_take(&lease, "a device of toys", NULL, &err), WW_OK);
	usleep(1000);
	ww_lease_drop(&lease);
	v->seconds.verify = 1;
}

static inline enum ww_rc toy_judge(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	struct toy *t = ctx;
	const char *us = strstr(s->device_source, "us=");
	if (__atomic_add_fetch(&t->judged, 1, __ATOMIC_RELAXED) == t->fails_at)
		return ww_err_set(err, WW_ERR_WORKER, "the runner did not start");
	toy_pause(t);
	if (t->leases)
		toy_hold(v);
	v->status = us ? WW_STATUS_OK : WW_STATUS_MISMATCH;
	v->correct = us && depth != WW_JUDGE_COMPILE;
	if (v->correct && depth >= WW_JUDGE_DECIDE) {
		double us_taken = atof(us + 3), base[2] = { 200, 150 };
		v->time = (struct ww_times){ us_taken, us_taken };
		v->time_device = (struct ww_ratio){ us_taken, us_taken, us_taken };
		for (int b = 0; b < 2; b++) {
			v->baseline_measured[b] = 1;
			v->baselines[b] = (struct ww_times){ base[b], base[b] };
			v->speedup[b] = (struct ww_ratio){ base[b] / us_taken, base[b] / us_taken, base[b] / us_taken };
		}
	}
	v->reward = ww_verdict_reward(v);
	return WW_OK;
}

struct toy_round {
	struct toy *t;
	const char *const *paths;
	int64_t n, next;
	ww_rl_task_fn *fn;
	void *arg;
	enum ww_rc rc;
	struct ww_err err;
};

static struct ww_device toy_device = { .target = WW_TARGET_CPU };

static inline void *toy_worker(void *arg)
{
	struct toy_round *r = arg;
	for (int64_t i; (i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED)) < r->n;) {
		struct ww_err err = WW_ERR_INIT;
		json_t *graph = json_pack("{s:[]}", "nodes");
		WW_AUTO(ww_task_release) struct ww_task task = { 0 };
		enum ww_rc rc = ww_task_load(&task, r->paths[i], &err);
		struct ww_rl_task t = {
			.judge = { .ctx = r->t, .run = toy_judge, .graph = graph, .device = &toy_device, .device_name = "test" },
			.path = r->paths[i],
			.source = task.source
		};
		memcpy(t.id, task.id, sizeof(t.id));
		__atomic_add_fetch(&r->t->tasks, 1, __ATOMIC_RELAXED);
		rc = rc == WW_OK ? r->fn(r->arg, i, &t, &err) : rc;
		if (rc != WW_OK) {
			r->rc = rc;
			r->err = err;
		}
		json_decref(graph);
	}
	return NULL;
}

static inline enum ww_rc toy_each(
	void *ctx, const char *const *paths, int64_t n, ww_rl_task_fn *fn, void *arg, struct ww_err *err)
{
	struct toy *t = ctx;
	struct toy_round r = { .t = t, .paths = paths, .n = n, .fn = fn, .arg = arg, .err = WW_ERR_INIT };
	pthread_t thread[8];
	int workers = t->workers ? t->workers : 1;
	for (int i = 0; i < workers; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, toy_worker, &r), 0);
	for (int i = 0; i < workers; i++)
		pthread_join(thread[i], NULL);
	if (r.rc != WW_OK)
		*err = r.err;
	return r.rc;
}

/* ---- the policy: the model's tokens, read by what the first of them is */

struct toy_policy {
	struct ww_policy base;
	struct ww_policy *model;
	struct toy *t;
};

/* A short prompt, so that a step costs little: the first two messages have a letter each, and nothing is offered. */
static inline struct ww_message *toy_short(const struct toy *t, const struct ww_message *msgs, size_t n)
{
	struct ww_message *m = calloc(n + 1, sizeof(*m));
	memcpy(m, msgs, n * sizeof(*m));
	for (size_t i = 0; i < n && i < 2; i++)
		if (!i || !t->long_task || !strstr(m[i].text, "which = 1"))
			m[i].text = (char *)(uintptr_t)(i ? "t" : "s");
	return m;
}

static inline void toy_call(struct ww_message *m, const char *name, const char *arguments)
{
	m->calls[m->n_calls++] = (struct ww_tool_call){ strdup("x"), strdup(name), strdup(arguments) };
}

static inline void toy_write(struct ww_message *m, const char *kernel)
{
	char text[160];
	snprintf(text, sizeof(text), "{\"path\":\"kernels.c\",\"text\":\"%s\"}", kernel);
	toy_call(m, "write", text);
	toy_call(m, "write", "{\"path\":\"plan.c\",\"text\":\"plan\"}");
	toy_call(m, "verify", "{}");
}

/* First turn: fast, wrong, an unknown tool, slow.  Later: hand in, or verify again. */
static inline void toy_read(const struct toy *t, int first, int32_t token, struct ww_message *m)
{
	m->n_calls = 0;
	m->calls = calloc(4, sizeof(*m->calls));
	if (first && t->same_files)
		toy_write(m, "us=100");
	else if (!first)
		toy_call(m, token % 2 ? "verify" : "submit", "{}");
	else if (token % 4 == 2)
		toy_call(m, "fly", "{}");
	else
		toy_write(m, token % 4 == 0 ? (t->invalid_pays ? "us=180" : "us=100") : token % 4 == 1 ? "wrong" : "us=300");
	if (first && t->invalid_pays && token % 4 == 2)
		toy_write(m, "us=100");
}

static inline int toy_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	struct toy_policy *p = (struct toy_policy *)self;
	struct ww_message *msgs = toy_short(p->t, ask->msgs, ask->n);
	struct ww_ask a = *ask;
	int first = 1;
	a.msgs = msgs;
	a.n_tools = 0;
	for (size_t i = 0; i < ask->n; i++)
		first &= ask->msgs[i].role != WW_ROLE_ASSISTANT;
	toy_pause(p->t);
	int rc = p->model->ops->next(p->model, &a, out, err);
	free(msgs);
	if (rc != WW_OK || !out->n_tokens)
		return rc;
	toy_read(p->t, first, out->token_ids[0], &out->message);
	out->finish = WW_FINISH_TOOL_CALLS;
	return rc;
}

static inline int64_t toy_count(struct ww_policy *self, const struct ww_message *msgs, size_t n)
{
	struct toy_policy *p = (struct toy_policy *)self;
	struct ww_message *m = toy_short(p->t, msgs, n);
	int64_t count = p->model->ops->count_tokens(p->model, m, n);
	free(m);
	return count;
}

static inline void toy_free(struct ww_policy *self)
{
	struct toy_policy *p = (struct toy_policy *)self;
	p->model->ops->free(p->model);
	free(p);
}

static const struct ww_policy_ops toy_ops
	__attribute__((unused)) = { .name = "toy", .next = toy_next, .count_tokens = toy_count, .free = toy_free };

static inline int toy_policy(
	void *ctx, struct ww_engine *e, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	struct toy_policy *p = calloc(1, sizeof(*p));
	*p = (struct toy_policy){ .base = { &toy_ops }, .t = ctx };
	*out = &p->base;
	return ww_model_policy_over(e, o, &p->model, err);
}

/* ---- a run */

/* A directory of this name in the test's own; eight at a time. */
static inline char *run_of(const char *name)
{
	static char path[8][4300];
	static int next;
	char *p = path[next++ % 8];
	snprintf(p, 4300, "%s/%s", tmp.path, name);
	return p;
}

static inline struct ww_config toy_config(void)
{
	struct ww_config c = tiny_config(8192);
	c.layers = c.heads = c.kv_heads = 1;
	c.head_dim = c.hidden_size = c.intermediate_size = 16;
	return c;
}

static inline int toy_setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_config c = toy_config();
	char path[4300];
	(void)state;
	if (ww_tmpdir_new(&tmp, "test-rl", &err) != WW_OK)
		return -1;
	snprintf(dir, sizeof(dir), "%s/model", tmp.path);
	for (int i = 0; i < 2; i++) {
		char text[64];
		snprintf(path, sizeof(path), "%s/%d.py", tmp.path, i);
		snprintf(text, sizeof(text), "class Model:\n    which = %d\n", i);
		snprintf(task_paths + strlen(task_paths), 4400, "%s%s", i ? "," : "", path);
		if (ww_fs_write(path, text, strlen(text), &err) != WW_OK)
			return -1;
	}
	return tiny_model_of(dir, &c) ? 0 : -1;
}

static inline int toy_teardown(void **state)
{
	(void)state;
	ww_tmpdir_remove(&tmp);
	return 0;
}

/* What runs said, where it was given memory. */
static struct ww_str heard;
static inline void hear(void *ctx, const char *line)
{
	(void)ctx;
	if (heard.max)
		ww_str_addf(&heard, "%s\n", line);
}

static inline struct ww_recipe toy_recipe(const char *output)
{
	struct ww_recipe o = sampling_recipe("agentic", dir, task_paths, output);
	o.steps = o.turns = 3;
	o.episodes = o.reply_tokens = 4;
	o.parallel = 2;
	return o;
}

static inline enum ww_rc toy_train(const struct ww_recipe *o, struct toy *t, struct ww_err *err)
{
	struct ww_train_hooks hooks = { &interrupted, hear, note_stage, no_step, NULL };
	struct ww_rl_judges judges = { t, WW_TARGET_CPU, WW_RULE_STRICT, 3, t->devices, t->apart, toy_each, toy_policy };
	struct ww_train_result result;
	json_t *values = json_pack("{s:s, s:I, s:I, s:s, s:s, s:s, s:s?}", "stage", o->stage, "steps", (json_int_t)o->steps,
		"turns", (json_int_t)o->turns, "reward", o->reward, "advantage", o->advantage, "model", o->model, "critic",
		o->critic);
	*stages = 0;
	enum ww_rc rc = ww_ppo_run(o, values, &judges, &hooks, &result, err);
	json_decref(values);
	return rc;
}

struct toy_run {
	const struct ww_recipe *o;
	struct toy *t;
};
static inline enum ww_rc toy_train_once(void *run, struct ww_err *err)
{
	const struct toy_run *r = run;
	return toy_train(r->o, r->t, err);
}
static inline int toy_train_until(const struct ww_recipe *o, struct toy *t, int us)
{
	return ran_for(us, toy_train_once, &(struct toy_run){ o, t });
}

/* Weights and optimizers of policy and critic have equal bits. */
static inline void same_weights(const char *a, const char *b)
{
	static const char *const files[] = { "model/model.safetensors", "model/optimizer/model.safetensors",
		"model/critic/model.safetensors", "model/critic/optimizer/model.safetensors" };
	for (size_t i = 0; i < WW_ARRAY_LEN(files); i++)
		if (!is_same_file(a, b, files[i]))
			fail_msg("%s differs", files[i]);
}

/* A line of the log, from 1; the caller's. */
static inline json_t *log_line(const char *run, int step)
{
	size_t n;
	char *log = file_of(run, "log.jsonl", &n), *line = log;
	for (int i = 1; i < step && line; i++)
		line = strchr(line, '\n') + 1;
	json_t *v = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
	free(log);
	if (!v)
		fail_msg("%s has no step %d", run, step);
	return v;
}

#endif
