/* Episodes side by side: one budget, fair access to the judge, kill -9 at any moment; and a context that fills up. */
#include "stderr.h"
#include "script.h"

#include "agent/parallel.h"
#include "base/rng.h"
#include "base/time.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { MANY = 6 };

/* MANY policies that say the same; what differs is when. */
struct many {
	struct fixture f;
	struct scripted policies[MANY];
	struct ww_policy *list[MANY];
	struct ww_agent_result results[MANY];
	enum ww_rc rc;
};

static void prepare_parallel(struct many *m, const struct line *lines, int n)
{
	memset(m, 0, sizeof(*m));
	prepare(&m->f, dir, lines, n);
	for (int i = 0; i < MANY; i++) {
		m->policies[i] = m->f.policy;
		m->list[i] = &m->policies[i].base;
	}
}

static void run_parallel(struct many *m)
{
	m->rc = ww_agent_parallel(&m->f.opts, m->list, MANY, m->results, &m->f.err);
}

static void finish_parallel(struct many *m)
{
	for (int i = 0; i < MANY; i++)
		ww_agent_result_release(&m->results[i]);
	finish(&m->f);
}

static void episode_form(int i, struct ww_str *out)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/episodes/%d", dir, i + 1);
	ww_str_reset(out);
	normal_form(path, out);
	/* The seed tells the episodes apart. */
	char *seed = strstr(out->p, "\"seed\":");
	assert_non_null(seed);
	seed[7] = 'x';
}

static void wipe(void)
{
	struct ww_err err;
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(dir, &err), WW_OK);
}

static void test_side_by_side(void **state)
{
	struct many m;
	struct ww_str first = WW_STR_INIT(16 << 20), other = WW_STR_INIT(16 << 20);
	(void)state;
	prepare_parallel(&m, story, 6);
	run_parallel(&m);
	assert_int_equal(m.rc, WW_OK);
	episode_form(0, &first);
	for (int i = 0; i < MANY; i++) {
		assert_true(m.results[i].ended);
		assert_true(m.results[i].best.time.device_us == 120);
		episode_form(i, &other);
		assert_string_equal(first.p, other.p);
	}
	char path[128];
	snprintf(path, sizeof(path), "%s/solution/kernels.c", dir);
	assert_true(ww_fs_is_file(path));
	assert_int_equal(ww_agent_parallel_count(dir), MANY);
	finish_parallel(&m);
	/* Once more: everything has ended and is only read. */
	prepare_parallel(&m, story, 6);
	run_parallel(&m);
	assert_int_equal(m.rc, WW_OK);
	assert_int_equal(m.f.judge.calls, 0);
	assert_true(m.results[3].best.time.device_us == 120);
	finish_parallel(&m);
	ww_str_release(&first);
	ww_str_release(&other);
}

/* One that fails does not stop the others, and can be gone on with. */
static void test_one_fails(void **state)
{
	struct many m;
	int ended = 0;
	(void)state;
	prepare_parallel(&m, story, 6);
	m.f.judge.fail_at = 3;
	run_parallel(&m);
	assert_int_equal(m.rc, WW_ERR_WORKER);
	assert_non_null(strstr(m.f.err.msg, "episode "));
	for (int i = 0; i < MANY; i++)
		ended += m.results[i].ended;
	assert_int_equal(ended, MANY - 1);
	finish_parallel(&m);
	prepare_parallel(&m, story, 6);
	run_parallel(&m);
	assert_int_equal(m.rc, WW_OK);
	finish_parallel(&m);
}

static int dead_calls;

static enum ww_rc is_dead(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	(void)ctx, (void)s, (void)depth, (void)v;
	dead_calls++;
	return ww_err_set(err, WW_ERR_DEVICE, "it has fallen off the bus");
}

/* A second device that fails at its first judgement: the first one does all the work. */
static void test_a_device_fails(void **state)
{
	struct many m;
	(void)state;
	prepare_parallel(&m, story, 6);
	struct ww_agent_judge dead = m.f.opts.judge;
	dead.run = is_dead;
	m.f.opts.others = &dead;
	m.f.opts.n_others = 1;
	dead.device_name = "device 1";
	struct unit_stderr said = unit_stderr_begin();
	run_parallel(&m);
	int failures = unit_stderr_end(&said, "device 1 has failed");
	assert_int_equal(m.rc, WW_OK);
	assert_true(dead_calls <= 1 && failures == dead_calls);
	for (int i = 0; i < MANY; i++)
		assert_true(m.results[i].ended && m.results[i].best.time.device_us == 120);
	finish_parallel(&m);
}

/* ---- Budgets ----------------------------------------------------------------------------------------------------- */

static const struct line looks[] = { { "", { "inspect" }, { "{}" } }, { "", { "inspect" }, { "{}" } },
	{ "", { "inspect" }, { "{}" } }, { "", { "inspect" }, { "{}" } }, { "", { "inspect" }, { "{}" } },
	{ "", { "inspect" }, { "{}" } }, { "", { "inspect" }, { "{}" } }, { "", { "inspect" }, { "{}" } } };

/* All ended, by the limit or, where one was quicker than the others, by having said everything. */
static void expect_reasons(const struct many *m, const char *reason)
{
	int stopped = 0;
	for (int i = 0; i < MANY; i++) {
		const char *why = m->results[i].end.reason;
		assert_true(m->results[i].ended);
		assert_true(!strcmp(why, reason) || !strcmp(why, "stopped"));
		stopped += !strcmp(why, reason);
	}
	assert_true(stopped >= 1);
}

/* Replies that cost 0.3 and might have cost 0.5, six at a time: the limit is passed by less than 0.5, and a resumed
 * run, which reads from the records what was spent, spends nothing more. */
static void test_usd(void **state)
{
	struct ww_budget_limits limits = { .usd = 4 };
	struct many m;
	(void)state;
	for (int again = 0; again < 2; again++) {
		struct ww_budget *b = ww_budget_new(&limits);
		struct ww_err err = WW_ERR_INIT;
		prepare_parallel(&m, looks, 8);
		assert_int_equal(ww_agent_parallel_used(dir, b, &err), WW_OK);
		double before = ww_budget_used(b).usd;
		for (int i = 0; i < MANY; i++) {
			m.policies[i].usd = 0.3;
			m.policies[i].most_usd = 0.5;
		}
		m.f.opts.budget = b;
		m.f.opts.no_compaction = 1;
		run_parallel(&m);
		assert_int_equal(m.rc, WW_OK);
		expect_reasons(&m, "usd");
		double used = ww_budget_used(b).usd;
		assert_true(used >= 4 && used < 4.5);
		if (again)
			assert_true(before == used);
		ww_budget_free(b);
		finish_parallel(&m);
	}
}

static void test_tokens(void **state)
{
	struct ww_budget_limits limits = { .tokens = 30000 };
	struct ww_budget *b = ww_budget_new(&limits);
	struct many m;
	(void)state;
	prepare_parallel(&m, looks, 8);
	for (int i = 0; i < MANY; i++)
		m.policies[i].usage = 3000;
	m.f.opts.budget = b;
	run_parallel(&m);
	assert_int_equal(m.rc, WW_OK);
	expect_reasons(&m, "tokens");
	assert_true(ww_budget_used(b).tokens >= 30000);
	ww_budget_free(b);
	finish_parallel(&m);
}

/* A policy that tries again and again. */
static int stubborn_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	int rc = WW_OK;
	(void)self, (void)out;
	for (int i = 0; i < 1000 && rc == WW_OK; i++) {
		usleep(5000);
		rc = ask->meter->begin(ask->meter->ctx, 0, 0, err);
	}
	assert_int_equal(rc, WW_ERR_LIMIT);
	return rc;
}

/* The time of an episode ends its attempts, also without a budget. */
static void test_attempts_end_in_time(void **state)
{
	static const struct ww_policy_ops ops = { .name = "stubborn", .next = stubborn_next };
	struct fixture f;
	(void)state;
	prepare(&f, dir, looks, 1);
	f.policy.base.ops = &ops;
	f.opts.max_seconds = 0.05;
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_OK);
	assert_string_equal(f.result.end.reason, "seconds");
	assert_int_equal(f.result.turns, 0);
	finish(&f);
}

/* A limit that the first judgements pass: those who still stand in line are not judged, closing judgements are left
 * out, and the limit is passed by less than one judgement. */
static void test_gpu_seconds_at_once(void **state)
{
	static const struct line verifies[] = { KERNEL("120"), KERNEL("110"), KERNEL("100") };
	struct ww_budget_limits limits = { .gpu_s = 2.5 };
	struct ww_budget *b = ww_budget_new(&limits);
	struct many m;
	double best = -1;
	(void)state;
	prepare_parallel(&m, verifies, 3);
	m.f.judge.gpu_s = 2;
	m.f.judge.pause_us = 5000;
	m.f.opts.budget = b;
	run_parallel(&m);
	assert_int_equal(m.rc, WW_OK);
	expect_reasons(&m, "gpu_seconds");
	assert_true(ww_budget_used(b).gpu_s >= 2.5 && ww_budget_used(b).gpu_s < 2.5 + 2);
	for (int i = 0; i < MANY; i++) {
		const struct ww_agent_result *r = &m.results[i];
		assert_true(r->end.reward_final == (r->has_best ? 3 : -1));
		best = r->end.reward_best > best ? r->end.reward_best : best;
	}
	assert_true(best == 3);
	ww_budget_free(b);
	finish_parallel(&m);
}

/* Judgements of 1 s each on a device that is paid by the second: the closing ones are kept back. */
static void test_gpu_seconds(void **state)
{
	static const struct line verifies[] = { KERNEL("180"), KERNEL("170"), KERNEL("160"), KERNEL("150"), KERNEL("140"),
		KERNEL("130") };
	struct ww_budget_limits limits = { .gpu_s = 24 };
	struct ww_budget *b = ww_budget_new(&limits);
	struct many m;
	(void)state;
	prepare_parallel(&m, verifies, 6);
	m.f.judge.gpu_s = 1;
	m.f.opts.budget = b;
	run_parallel(&m);
	assert_int_equal(m.rc, WW_OK);
	expect_reasons(&m, "gpu_seconds");
	assert_true(ww_budget_used(b).gpu_s > 6 && ww_budget_used(b).gpu_s <= 25);
	ww_budget_free(b);
	finish_parallel(&m);
}

/* ---- Fairness ---------------------------------------------------------------------------------------------------- */

struct order {
	struct script_judge judge;
	pthread_mutex_t lock;
	pthread_t who[256];
	int n, inside;
};

static enum ww_rc order_run(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	struct order *o = ctx;
	pthread_mutex_lock(&o->lock);
	assert_int_equal(o->inside++, 0);
	o->who[o->n++] = pthread_self();
	pthread_mutex_unlock(&o->lock);
	usleep(2000);
	enum ww_rc rc = judge_run(&o->judge, s, depth, v, err);
	pthread_mutex_lock(&o->lock);
	o->inside--;
	pthread_mutex_unlock(&o->lock);
	return rc;
}

/* Whoever asks waits for at most one judgement of each other episode. */
static void test_fair(void **state)
{
	static const struct line verifies[] = { KERNEL("180"), KERNEL("170"), KERNEL("160"), KERNEL("150"), KERNEL("140") };
	struct order o = { .n = 0 };
	struct many m;
	(void)state;
	pthread_mutex_init(&o.lock, NULL);
	prepare_parallel(&m, verifies, 5);
	m.f.opts.judge.ctx = &o;
	m.f.opts.judge.run = order_run;
	run_parallel(&m);
	assert_int_equal(m.rc, WW_OK);
	for (int i = 0; i < o.n; i++) {
		int next = i + 1;
		while (next < o.n && !pthread_equal(o.who[next], o.who[i]))
			next++;
		/* Between two turns of one episode: the others' at most, each once, and once more for those that were quicker
		 * to ask. */
		assert_true(next == o.n || next - i <= 2 * MANY);
	}
	assert_int_equal(o.n, MANY * 6);
	finish_parallel(&m);
}

/* ---- kill -9 ----------------------------------------------------------------------------------------------------- */

static void child_run(void)
{
	struct many m;
	prepare_parallel(&m, story, 6);
	m.f.judge.pause_us = 300;
	run_parallel(&m);
	_exit(m.rc == WW_OK ? 0 : 1);
}

/* A hundred kills at random moments; each time the run is gone on with, and when it comes through, all episodes are as
 * an undisturbed run leaves them. */
static void test_hundred_kills(void **state)
{
	struct many m;
	struct ww_str want = WW_STR_INIT(16 << 20), got = WW_STR_INIT(16 << 20);
	struct ww_rng r;
	int kills = 0, runs = 0, killed_late = 0;
	(void)state;
	prepare_parallel(&m, story, 6);
	uint64_t start = ww_now_ns();
	m.f.judge.pause_us = 300;
	run_parallel(&m);
	double whole_s = ww_seconds_since(start);
	assert_int_equal(m.rc, WW_OK);
	episode_form(0, &want);
	finish_parallel(&m);
	ww_rng_init(&r, 1, 0);
	for (; kills < 100; runs++) {
		int status = -1;
		wipe();
		for (int i = 0; status != 0; i++) {
			pid_t p = fork();
			if (!p)
				child_run();
			if (kills < 100 && i < 8) {
				usleep((useconds_t)(ww_rng_uniform(&r) * whole_s * 0.6e6));
				kill(p, SIGKILL);
			}
			waitpid(p, &status, 0);
			assert_true(WIFSIGNALED(status) || status == 0);
			kills += WIFSIGNALED(status);
			killed_late += WIFSIGNALED(status) && ww_agent_parallel_count(dir) == MANY;
		}
		for (int i = 0; i < MANY; i++) {
			episode_form(i, &got);
			assert_string_equal(got.p, want.p);
		}
	}
	print_message("%d kills in %d runs, %d of them with all episodes under way\n", kills, runs, killed_late);
	assert_true(killed_late > 30);
	ww_str_release(&want);
	ww_str_release(&got);
}

/* ---- A context that fills up ------------------------------------------------------------------------------------- */

#define BIG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define BIGGER BIG BIG BIG BIG BIG BIG BIG BIG BIG BIG
#define READ { "look", { "read" }, { "{\"path\":\"kernels.c\"}" } }

static const struct line reader[] = {
	{ "", { "write", "write" },
		{ "{\"path\":\"kernels.c\",\"text\":\"" BIGGER BIGGER "\"}", "{\"path\":\"plan.c\",\"text\":\"us=100\"}" } },
	READ, READ, READ, READ, READ, READ, READ, READ, READ, READ, READ, READ, { "hand in", { "submit" }, { "{}" } }
};
enum { READER = sizeof(reader) / sizeof(reader[0]), CONTEXT = 8000 };

static enum ww_rc run_reader_in(struct fixture *f, int no_compaction, int64_t context)
{
	prepare(f, dir, reader, READER);
	f->policy.base.ops = &counting_ops;
	f->policy.usage = 10;
	f->opts.context_tokens = context;
	f->opts.no_compaction = no_compaction;
	return ww_agent_run(&f->opts, &f->result, &f->err);
}

static enum ww_rc run_reader(struct fixture *f, int no_compaction) { return run_reader_in(f, no_compaction, CONTEXT); }

static void test_compaction(void **state)
{
	struct fixture f;
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode e;
	struct ww_str whole = WW_STR_INIT(16 << 20), want = WW_STR_INIT(16 << 20), got = WW_STR_INIT(16 << 20);
	char path[128];
	(void)state;
	snprintf(path, sizeof(path), "%s/episode.jsonl", dir);
	assert_int_equal(run_reader(&f, 0), WW_OK);
	assert_string_equal(f.result.end.reason, "submitted");
	assert_true(f.policy.largest < CONTEXT);
	finish(&f);
	assert_int_equal(ww_episode_read(path, &e, &err), WW_OK);
	assert_true(e.n_compactions >= 1 && e.n_compactions <= 6 && e.compactions[0].n_calls >= 2);
	/* What was taken out of the policy's sight is still in the record. */
	for (size_t i = 0; i < e.n_messages; i++)
		assert_null(strstr(e.messages[i].reply.message.text, "[output removed"));
	ww_episode_release(&e);
	/* Gone on with from any line, the policy is asked the same and the same is taken out. */
	assert_int_equal(ww_fs_read(path, 16 << 20, &whole, &err), WW_OK);
	normal_form(dir, &want);
	for (char *p = strchr(whole.p, '\n') + 1, *nl; (nl = strchr(p, '\n')); p = nl + 1) {
		assert_int_equal(ww_fs_write(path, whole.p, (size_t)(p - whole.p), &err), WW_OK);
		assert_int_equal(run_reader(&f, 0), WW_OK);
		assert_true(f.policy.largest < CONTEXT);
		ww_str_reset(&got);
		normal_form(dir, &got);
		assert_string_equal(got.p, want.p);
		finish(&f);
	}
	ww_str_release(&whole);
	ww_str_release(&want);
	ww_str_release(&got);
}

static void test_no_compaction(void **state)
{
	struct fixture f;
	(void)state;
	assert_int_equal(run_reader(&f, 1), WW_OK);
	assert_string_equal(f.result.end.reason, "context");
	assert_true(f.policy.largest < CONTEXT && f.result.turns > 3 && f.result.turns < READER);
	finish(&f);
}

/* Nothing that the policy does could help. */
static void test_first_prompt_too_long(void **state)
{
	struct fixture f;
	(void)state;
	assert_int_equal(run_reader_in(&f, 0, 64), WW_ERR_USAGE);
	assert_non_null(strstr(f.err.msg, "and does not fit a context of 64 with a reply of 8; raise --context-tokens"));
	finish(&f);
}

/* Two hundred turns, played twice: the same bytes in every message. */
static void test_same_bytes(void **state)
{
	static struct line lines[200];
	struct fixture f;
	struct ww_str one = WW_STR_INIT(16 << 20), two = WW_STR_INIT(16 << 20);
	(void)state;
	for (int i = 0; i < 199; i++)
		lines[i] = story[1 + i % 4];
	lines[199] = story[5];
	for (int i = 0; i < 2; i++) {
		wipe();
		prepare(&f, dir, lines, 200);
		f.opts.max_turns = 200;
		assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_OK);
		assert_int_equal(f.result.turns, 200);
		normal_form(dir, i ? &two : &one);
		finish(&f);
	}
	assert_string_equal(one.p, two.p);
	ww_str_release(&one);
	ww_str_release(&two);
}

#define T(name) cmocka_unit_test_setup_teardown(name, script_setup, script_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = { T(test_side_by_side), T(test_one_fails), T(test_a_device_fails), T(test_usd),
		T(test_tokens), T(test_attempts_end_in_time), T(test_gpu_seconds), T(test_gpu_seconds_at_once), T(test_fair),
		T(test_hundred_kills), T(test_compaction), T(test_no_compaction), T(test_first_prompt_too_long),
		T(test_same_bytes) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
