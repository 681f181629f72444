/* Stage agentic in a toy world: the weights do not depend on latency, on judges or on a kill; recorded answers repeat a
 * run; ratios are 1 where nothing is stale and are clipped where something is; what a step logs; runs made to collapse
 * are stopped.
 *
 * all: twenty steps twice from recorded answers with other latencies; killed at twenty moments
 * budget: 7 CPU-seconds, all 20 */
#include "toy.h"

#include "base/json.h"
#include "base/time.h"
#include "rl/recorded.h"
#include "train/report.h"
#include "train/rl.h"

enum { KILLS = 5, LONG_STEPS = 20, LONG_KILLS = 20 };
static int all;

static void must(const struct ww_recipe *o, struct toy *t)
{
	struct ww_err err = WW_ERR_INIT;
	if (toy_train(o, t, &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static void neither_latency_nor_judges_change_a_bit(void **state)
{
	const char *one = run_of("one"), *other = run_of("other"), *again = run_of("again");
	struct toy calm = { .workers = 1 }, busy = { .workers = 3, .most_pause_us = 3000 },
			   none = { .workers = 1, .most_pause_us = 2000 };
	struct ww_recipe a = toy_recipe(one), b = toy_recipe(other), c = toy_recipe(again);
	(void)state;
	must(&a, &calm);
	must(&b, &busy);
	same_weights(one, other);
	assert_true(calm.judged > 0 && calm.tasks == 6);
	c.answers = one;
	must(&c, &none);
	same_weights(one, again);
	assert_true(none.judged == 0 && none.tasks == 0); /* nothing was asked for anew */
}

static void answers_of_another_run_are_refused(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_recipe o = toy_recipe(run_of("refused"));
	struct toy t = { .workers = 1 };
	(void)state;
	o.answers = run_of("one");
	o.seed = 77; /* other calls */
	assert_int_equal(toy_train(&o, &t, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "name the answers of this run"));
}

static void killed_and_resumed_to_the_same_bits(void **state)
{
	const char *one = run_of("one"), *cut = run_of("cut");
	struct ww_recipe o = toy_recipe(cut);
	struct toy t = { .workers = 2, .most_pause_us = 500 };
	struct ww_rng rng;
	int kills = 0;
	(void)state;
	o.checkpoint_every = 2;
	ww_rng_init(&rng, 9, 0);
	while (kills < KILLS && !toy_train_until(&o, &t, 5000 + (int)ww_rng_below(&rng, 60000)))
		kills++;
	if (kills == KILLS)
		assert_true(toy_train_until(&o, &t, 0));
	printf("# killed %d times\n", kills);
	same_weights(one, cut);
}

/* A judge that fails ends the run with one line; what was sampled and learnt before is kept. */
static void a_judge_that_fails_costs_nothing(void **state)
{
	const char *one = run_of("one"), *failed = run_of("failed");
	struct ww_recipe o = toy_recipe(failed);
	struct toy t = { .workers = 1, .fails_at = 5 };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	assert_int_equal(toy_train(&o, &t, &err), WW_ERR_WORKER);
	assert_non_null(strstr(err.msg, "the runner did not start"));
	assert_null(strchr(err.msg, '\n'));
	t.fails_at = 0;
	int before = t.judged;
	struct toy whole = { .workers = 1 };
	struct ww_recipe again = toy_recipe(run_of("failed-not"));
	must(&again, &whole);
	must(&o, &t);
	same_weights(one, failed);
	assert_true(t.judged - before < whole.judged); /* not all of it once more */
}

/* Equal files: a group verifies them once or, where it does so at the same time, a few times; each closing judgement is
 * one of its own. */
static void closing_judgements_are_never_repetitions(void **state)
{
	struct ww_recipe o = toy_recipe(run_of("closings"));
	struct toy t = { .workers = 1, .same_files = 1 };
	(void)state;
	o.episodes = o.samples = 4;
	must(&o, &t);
	assert_true(t.judged >= (int)(o.steps * (o.episodes + 1)));
}

static struct ww_recipe long_recipe(const char *output)
{
	struct ww_recipe o = toy_recipe(output);
	o.steps = LONG_STEPS;
	o.episodes = 8;
	o.samples = 4;
	o.checkpoint_every = 3;
	return o;
}

static void twenty_steps_repeat_from_recorded_answers(void **state)
{
	const char *one = run_of("long");
	struct ww_recipe o = long_recipe(one);
	struct toy t = { .workers = 3, .most_pause_us = 1000 };
	(void)state;
	if (!all)
		skip();
	must(&o, &t);
	for (int i = 0; i < 2; i++) {
		const char *again = run_of(i ? "long-busy" : "long-calm");
		struct ww_recipe a = long_recipe(again);
		struct toy none = { .workers = 1 + 2 * i, .most_pause_us = 4000 * i };
		a.answers = one;
		must(&a, &none);
		assert_true(none.judged == 0);
		same_weights(one, again);
	}
}

/* Each moment within a twentieth of what a whole run takes; a run that ended before the twentieth kill is followed by
 * another. */
static void killed_at_twenty_moments(void **state)
{
	const char *one = run_of("long");
	struct toy t = { .workers = 2, .most_pause_us = 500 };
	struct ww_recipe timed = long_recipe(run_of("long-timed"));
	struct ww_rng rng;
	int kills = 0, runs = 0;
	(void)state;
	if (!all)
		skip();
	uint64_t start = ww_now_ns();
	assert_true(toy_train_until(&timed, &t, 0));
	int most_us = (int)(ww_seconds_since(start) / LONG_KILLS * 1e6);
	ww_rng_init(&rng, 17, 0);
	for (; kills < LONG_KILLS; runs++) {
		char name[24];
		snprintf(name, sizeof(name), "long-cut%d", runs);
		const char *cut = run_of(name);
		struct ww_recipe o = long_recipe(cut);
		int ended = 0;
		while (!ended && kills < LONG_KILLS) {
			ended = toy_train_until(&o, &t, 3000 + (int)ww_rng_below(&rng, (uint64_t)most_us));
			kills += !ended;
		}
		assert_true(ended || toy_train_until(&o, &t, 0));
		same_weights(one, cut);
	}
	printf("# killed %d times in %d runs\n", kills, runs);
}

/* A curriculum with stale steps, killed and resumed: its state is in the checkpoint. */
static void a_curriculum_goes_on_to_the_same_bits(void **state)
{
	const char *whole = run_of("curriculum"), *cut = run_of("curriculum-cut");
	struct toy t = { .workers = 2, .most_pause_us = 500 };
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ww_recipe o = toy_recipe(i ? cut : whole);
		o.curriculum = "success";
		o.episodes = 2; /* one task a step: which one is what is drawn */
		o.staleness = 1;
		o.steps = 6;
		o.checkpoint_every = 2;
		if (!i)
			must(&o, &t);
		else
			for (int k = 0; k < 4 && !toy_train_until(&o, &t, k < 3 ? 20000 + 30000 * k : 0); k++)
				;
	}
	same_weights(whole, cut);
	int same = 0;
	for (int step = 1; step <= 6; step++) {
		char a[4500], b[4500];
		snprintf(a, sizeof(a), "%s/episodes/step-%08d/0001/episodes/1/episode.jsonl", whole, step);
		snprintf(b, sizeof(b), "%s/episodes/step-%08d/0001/episodes/1/episode.jsonl", cut, step);
		struct ww_err err = WW_ERR_INIT;
		WW_AUTO(ww_episode_release) struct ww_episode x = { 0 }, y = { 0 };
		assert_int_equal(ww_episode_read(a, &x, &err), WW_OK);
		assert_int_equal(ww_episode_read(b, &y, &err), WW_OK);
		assert_string_equal(x.header.task_path, y.header.task_path);
		same += strstr(x.header.task_path, "0.py") != NULL;
	}
	assert_true(same > 0 && same < 6);
}

static void a_step_says_what_it_did(void **state)
{
	static const char *const members[] = { "reward", "entropy", "explained", "norm", "critic_norm", "pass",
		"faster_eager", "faster_compile", "cut_share", "invalid_share", "turns", "verdicts", "generating_seconds",
		"learning_seconds", "judging_seconds", "idle_seconds", "busy_share", "verdicts_per_second", "tokens_per_second",
		"log_ratio_mean", "mixed_share", "within" };
	json_t *v = log_line(run_of("one"), 2), *first = log_line(run_of("one"), 1);
	int64_t calls = 0, after = 0;
	const char *key;
	json_t *n;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(members); i++)
		if (!json_object_get(v, members[i]))
			fail_msg("no %s", members[i]);
	assert_true(ww_json_num(v, "ratio_min", 0) == 1 && ww_json_num(v, "ratio_max", 0) == 1);
	assert_int_equal(ww_json_int(v, "age", -1), 0);
	assert_int_equal(ww_json_int(v, "episodes", 0), 4);
	assert_int_equal(ww_json_int(v, "groups", 0), 2);
	json_object_foreach(json_object_get(v, "tools"), key, n)
		calls += json_integer_value(n);
	json_object_foreach(json_object_get(v, "after_failed"), key, n)
		after += json_integer_value(n);
	assert_true(calls > 0 && calls == ww_json_int(v, "calls", 0));
	assert_int_equal(after, ww_json_int(v, "failed_verdicts", -1));
	json_decref(v);
	double inputs = (double)ww_json_int(first, "context_tokens", 0);
	assert_true(inputs > (double)ww_json_int(first, "own_tokens", 1 << 20));
	assert_true(fabs(ww_json_num(first, "learning_tokens_per_second", 0) * ww_json_num(first, "learning_seconds", 0) -
					inputs) < 1e-6 * inputs);
	assert_true(ww_json_num(first, "explained", -1) == 0); /* a critic's head of zeros says the same of all */
	json_decref(first);
}

/* A learner whose GPU does not judge is one more device whose time is to be spent. */
static void the_learners_own_device_counts(void **state)
{
	const int apart[] = { 0, 1 };
	(void)state;
	for (int i = 0; i < 2; i++) {
		const char *run = run_of(i ? "apart" : "together");
		struct toy t = { .workers = 1, .devices = 3, .apart = apart[i] };
		struct ww_recipe o = toy_recipe(run);
		o.steps = 1;
		must(&o, &t);
		json_auto_t *v = log_line(run, 1);
		double seconds = 0;
		static const char *const parts[] = { "generating_seconds", "learning_seconds", "judging_seconds",
			"idle_seconds" };
		for (size_t k = 0; k < WW_ARRAY_LEN(parts); k++)
			seconds += ww_json_num(v, parts[k], 0);
		assert_float_equal(seconds, (3 + apart[i]) * ww_json_num(v, "seconds", 0), 1e-6);
	}
}

/* Verdicts that are given at once hold the device once. */
static void judging_is_told_by_what_was_held(void **state)
{
	struct toy t = { .workers = 3, .leases = 1 };
	struct ww_recipe o = toy_recipe(run_of("held"));
	(void)state;
	o.steps = 1;
	must(&o, &t);
	json_auto_t *v = log_line(o.output, 1);
	double judging = ww_json_num(v, "judging_seconds", -1), seconds = ww_json_num(v, "seconds", 0);
	assert_true(t.judged > 0 && ww_json_num(v, "verdict_seconds", 0) == t.judged);
	assert_true(judging >= 1e-3 * t.judged && judging < seconds);
}

static void the_report_draws_it(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str h = WW_STR_INIT(1 << 20);
	(void)state;
	assert_int_equal(ww_train_reports((const char *[]){ run_of("one") }, 1, &h, &err), WW_OK);
	assert_true(strstr(h.p, "<h2>Turns</h2>") && strstr(h.p, "<h2>Milestones</h2>") && strstr(h.p, "<h2>Time</h2>") &&
		strstr(h.p, "<h2>Verdicts per second</h2>"));
}

/* A table names what each run left out, by its recipe, and what was published of that. */
static void the_report_puts_ablations_beside_the_published_table(void **state)
{
	static const char *const rows[] = { "<td>no value pretraining</td>", "<td>the whole recipe</td>",
		"<td>raw speed-up as reward</td>", "<td>several of the ablations</td>", "<td>no loop</td>",
		"<td>no rejection fine-tuning</td>" };
	static const char *const models[] = { "rft", "ppo" };
	char model[2][4300];
	struct ww_err err = WW_ERR_INIT;
	struct toy t = { .workers = 2 };
	const char *runs[WW_ARRAY_LEN(rows)];
	ww_auto_str h = WW_STR_INIT(4 << 20);
	(void)state;
	for (int i = 0; i < 2; i++) {
		snprintf(model[i], sizeof(model[i]), "%s/%s", tmp.path, models[i]);
		assert_int_equal(ww_fs_mkdirs(model[i], &err), WW_OK);
		snprintf(model[i], sizeof(model[i]), "%s/%s/model", tmp.path, models[i]);
		assert_int_equal(symlink(dir, model[i]), 0);
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		char name[24];
		snprintf(name, sizeof(name), "ablation%zu", i);
		runs[i] = run_of(name);
		struct ww_recipe o = toy_recipe(runs[i]);
		o.steps = 1;
		o.advantage = i ? "rloo" : "critic"; /* no critic was trained first */
		o.reward = i == 2 || i == 3 ? "speedup" : "milestone";
		o.turns = i == 3 || i == 4 ? 1 : 3;
		o.model = model[i == 5];
		must(&o, &t);
	}
	assert_int_equal(ww_train_reports(runs, WW_ARRAY_LEN(rows), &h, &err), WW_OK);
	const char *at = strstr(h.p, "Beside the published ablations");
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		assert_non_null(at);
		at = strstr(at, rows[i]);
	}
	assert_non_null(strstr(h.p, "<td>95.6%, 49.8%, 1.05</td>"));
	/* A policy that no stage ppo made is without rft only beside one that is not. */
	struct ww_recipe o = toy_recipe(run_of("given"));
	o.steps = 1;
	o.advantage = "rloo";
	must(&o, &t);
	for (int beside = 0; beside < 2; beside++) {
		ww_auto_str page = WW_STR_INIT(4 << 20);
		assert_int_equal(
			ww_train_reports((const char *[]){ o.output, runs[1] }, 1 + (size_t)beside, &page, &err), WW_OK);
		assert_int_equal(strstr(page.p, "<td>no rejection fine-tuning</td>") != NULL, beside);
	}
}

static int columns_of(const char *line)
{
	int n = 0;
	for (const char *p = line; *p && *p != '\n'; p++)
		n += *p != ' ' && (p[1] == ' ' || p[1] == '\n');
	return n;
}

/* The time of a step's devices is its activities and the rest; the live table has a head and a row a step. */
static void time_is_told_by_activity(void **state)
{
	struct toy t = { .workers = 1, .most_pause_us = 2000 };
	struct ww_recipe o = toy_recipe(run_of("table"));
	(void)state;
	heard = (struct ww_str)WW_STR_INIT(1 << 16);
	must(&o, &t);
	json_t *v = log_line(o.output, 2);
	double seconds = ww_json_num(v, "seconds", 0), idle = ww_json_num(v, "idle_seconds", -1),
		   busy = ww_json_num(v, "generating_seconds", -1) + ww_json_num(v, "learning_seconds", -1) +
		ww_json_num(v, "judging_seconds", -1);
	assert_true(idle >= 0 && fabs(busy + idle - seconds) < 1e-6 * seconds);
	assert_true(fabs(ww_json_num(v, "busy_share", -1) - busy / seconds) < 1e-6);
	assert_true(ww_json_num(v, "verdicts_per_second", 0) > 0);
	assert_true(fabs(ww_json_num(v, "verdicts_per_second", 0) * ww_json_num(v, "sampling_seconds", 0) -
					(double)ww_json_int(v, "judged", 0)) < 1e-6);
	json_decref(v);
	const char *head = strstr(heard.p, "      step reward"), *row = head ? strchr(head, '\n') + 1 : NULL;
	assert_true(row && !strncmp(row, "   1/3", 6) && columns_of(row) == columns_of(head));
	assert_true(strstr(heard.p, "\n   3/3") && !strstr(row, "reward"));
	ww_str_release(&heard);
	heard = (struct ww_str){ 0 };
}

/* A ratio that is not 1 appears where an episode is learnt a second time, and where its weights are older. */
static void stale_episodes_have_ratios_and_are_clipped(void **state)
{
	struct ww_recipe o = toy_recipe(run_of("epochs")), s = toy_recipe(run_of("stale"));
	struct toy t = { .workers = 2 };
	(void)state;
	o.update_epochs = 2;
	o.steps = 1;
	o.lr = 0.05;
	must(&o, &t);
	json_t *v = log_line(o.output, 1);
	assert_true(ww_json_num(v, "ratio_max", 0) > 1.28 && ww_json_num(v, "clipped", 0) > 0);
	json_decref(v);
	s.staleness = 1;
	s.steps = 4;
	s.lr = 0.02;
	must(&s, &t);
	for (int step = 1; step <= 4; step++) {
		v = log_line(s.output, step);
		int64_t age = ww_json_int(v, "age", -1);
		assert_int_equal(age, (step - 1) % 2);
		assert_int_equal(ww_json_num(v, "log_ratio_max", 0) > 0, age > 0);
		json_decref(v);
	}
}

/* Options of the losses run end to end; their values and gradients are held to PyTorch in train/test_oracle_rl. */
static void every_option_takes_a_step(void **state)
{
	struct toy t = { .workers = 2 };
	(void)state;
	for (int i = 0; i < 4; i++) {
		char name[16];
		snprintf(name, sizeof(name), "option%d", i);
		struct ww_recipe o = toy_recipe(run_of(name));
		o.steps = 1;
		o.advantage = i == 0 ? "grpo" : i == 1 ? "rloo" : "critic";
		o.mean = i == 2 ? "token" : "episode";
		o.alpha = i == 2 ? 0.05 : 0;
		o.truncate = i == 3 ? 2 : 0;
		o.dual_clip = i == 3 ? 3 : 0;
		must(&o, &t);
		json_t *v = log_line(o.output, 1);
		assert_true(isfinite(ww_json_num(v, "loss", NAN)));
		json_decref(v);
	}
}

/* The other architectures: with biases, without norms of heads, with a head of its own. */
static void each_architecture_takes_a_step(void **state)
{
	static const struct {
		enum ww_arch arch;
		const char *name;
		int bias, tied;
	} rows[] = { { WW_ARCH_LLAMA, "llama", 0, 0 }, { WW_ARCH_QWEN2, "qwen2", 1, 1 } };
	struct toy t = { .workers = 2 };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		char model[4300], output[24];
		struct ww_config c = toy_config();
		c.arch = rows[i].arch;
		c.qk_norm = 0;
		c.qkv_bias = rows[i].bias;
		c.tie_embeddings = rows[i].tied;
		snprintf(model, sizeof(model), "%s/%s", tmp.path, rows[i].name);
		snprintf(output, sizeof(output), "%s-run", rows[i].name);
		assert_true(tiny_model_of(model, &c));
		struct ww_recipe o = toy_recipe(run_of(output));
		o.model = model;
		o.steps = 2;
		must(&o, &t);
		json_auto_t *v = log_line(o.output, 2);
		assert_true(ww_json_num(v, "norm", 0) > 0 && ww_json_num(v, "ratio_max", 0) == 1);
	}
}

/* The policy begins as its own reference, so the first step is what it is without kl, and later ones stay nearer. */
static void kl_holds_the_policy_near_its_reference(void **state)
{
	struct toy t = { .workers = 2 };
	double kl[2];
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ww_recipe o = toy_recipe(run_of(i ? "kl1" : "kl0"));
		o.lr = 0.01;
		o.steps = 6;
		o.episodes = 2;
		o.kl = i ? 10 : 1e-9;
		must(&o, &t);
		json_t *first = log_line(o.output, 1), *last = log_line(o.output, 6);
		assert_true(ww_json_num(first, "kl", -1) == 0 && ww_json_num(first, "ratio_max", 0) == 1);
		kl[i] = ww_json_num(last, "kl", 0);
		json_decref(first);
		json_decref(last);
	}
	printf("# kl %.4f without, %.4f with\n", kl[0], kl[1]);
	assert_true(kl[1] > 0 && kl[1] < 0.85 * kl[0]);
	struct ww_recipe o = toy_recipe(run_of("kl2"));
	struct ww_err err = WW_ERR_INIT;
	o.reference = dir;
	assert_int_equal(toy_train(&o, &t, &err), WW_ERR_USAGE);
}

/* reward: speedup hands torch.compile's time by the solution's to the learner: 150 / 100 and 150 / 300 here. */
static void raw_speedups_are_learnt_from(void **state)
{
	struct toy t = { .workers = 2 };
	struct ww_recipe o = toy_recipe(run_of("speedup"));
	(void)state;
	o.reward = "speedup";
	o.steps = 1;
	o.episodes = 16;
	o.samples = 8;
	must(&o, &t);
	json_t *v = log_line(o.output, 1), *n = json_object_get(v, "rewards");
	double wrong = json_number_value(json_array_get(n, 0)), slow = json_number_value(json_array_get(n, 1)),
		   fast = json_number_value(json_array_get(n, 3));
	assert_true(wrong > 0 && slow > 0 && fast > 0 && wrong + slow + fast == 16);
	assert_true(fabs(ww_json_num(v, "reward", 0) - (-wrong + 0.5 * slow + 1.5 * fast) / 16) < 1e-6);
	json_decref(v);
}

/* ---- an episode that ends in a tool's output */

static void the_reward_is_on_the_last_own_token(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_recorded_set s;
	int seen = 0;
	(void)state;
	char path[4400];
	snprintf(path, sizeof(path), "%s/episodes", run_of("one"));
	assert_int_equal(ww_rl_recorded_read(path, &(struct ww_rl_read){ 0 }, &s, &err), WW_OK);
	for (int64_t i = 0; i < s.n; i++) {
		const struct ww_trajectory *t = &s.t[i];
		int64_t starts[2] = { 0, t->own_n };
		struct ww_rl_set set = { starts, 1 };
		struct ww_rl_gae gae = { 1, 0.95, 0 };
		float value[64], advantage[64], reward = (float)t->reward;
		assert_true(t->own_n > 0 && t->own_n < 64 && t->own[t->n - 1]); /* what the tools said last is not there */
		for (int k = 0; k < 64; k++)
			value[k] = 0.25f;
		ww_rl_gae(&set, &gae, &reward, value, advantage, NULL);
		assert_true(advantage[t->own_n - 1] == reward - 0.25f);
		seen += t->own_n > 4; /* several turns, a tool's output between them */
	}
	assert_true(s.n == 12 && seen > 0);
	ww_recorded_set_release(&s);
}

/* ---- a prompt that does not fit */

static void a_prompt_that_is_too_long_costs_its_task_alone(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct toy t = { .workers = 1, .long_task = 1 };
	struct ww_recipe o = toy_recipe(run_of("long-prompt"));
	(void)state;
	o.context_tokens = 2500;
	heard = (struct ww_str)WW_STR_INIT(1 << 16);
	must(&o, &t);
	const char *line = strstr(heard.p, "1.py: its prompt does not fit into context-tokens (2500)");
	assert_true(line && !strstr(strchr(line, '\n'), "does not fit")); /* said once */
	json_auto_t *v = log_line(o.output, 3);
	assert_int_equal(ww_json_int(v, "cut", 0), 2);
	assert_true(ww_json_int(v, "own_tokens", 0) > 0 && ww_json_num(v, "norm", 0) > 0);
	ww_str_release(&heard);
	heard = (struct ww_str){ 0 };
	o = toy_recipe(run_of("no-prompt"));
	o.context_tokens = 3;
	assert_int_equal(toy_train(&o, &t, &err), WW_ERR_USAGE);
	assert_string_equal(
		err.msg, "step 1: no prompt of its tasks fits into context-tokens (3); raise it, or take other tasks");
}

/* ---- collapses */

static void stops(struct ww_recipe *o, struct toy *t, const char *why)
{
	struct ww_err err = WW_ERR_INIT;
	o->steps = 20;
	o->samples = 8;
	o->episodes = 16;
	o->reply_tokens = 1;
	o->checkpoint_every = 0;
	assert_int_equal(toy_train(o, t, &err), WW_ERR_LIMIT);
	if (!strstr(err.msg, why))
		fail_msg("%s", err.msg);
	printf("# %s\n", err.msg);
}

static void a_collapse_stops_the_run(void **state)
{
	struct toy t = { .workers = 2 };
	struct ww_recipe o = toy_recipe(run_of("entropy"));
	(void)state;
	o.lr = 0.1; /* the policy soon says one thing only */
	o.stop_entropy = 0.5;
	stops(&o, &t, "the entropy of the last 3 steps lay below 0.5");
	o = toy_recipe(run_of("reward"));
	o.lr = 2; /* an update that breaks the policy: it says one thing, and a poor one */
	o.advantage = "rloo";
	o.seed = 3;
	o.stop_reward = 0.5;
	stops(&o, &t, "the reward of the last 3 steps lay below");
	o = toy_recipe(run_of("invalid"));
	t.invalid_pays = 1; /* so the policy learns to call what is not there */
	o.advantage = "rloo";
	o.lr = 0.05;
	o.stop_invalid = 0.14; /* one call of five or six of such an episode */
	stops(&o, &t, "the share of invalid calls of the last 3 steps lay above 0.14");
}

/* The world can be learnt: the best first token is found. */
static void the_policy_learns(void **state)
{
	struct toy t = { .workers = 2 };
	struct ww_recipe o = toy_recipe(run_of("learns"));
	(void)state;
	o.steps = 10;
	o.samples = 8;
	o.episodes = 16;
	o.reply_tokens = 1;
	o.lr = 0.05;
	o.checkpoint_every = 0;
	o.advantage = "rloo";
	must(&o, &t);
	json_t *first = log_line(o.output, 1), *last = log_line(o.output, 10);
	printf("# reward %.2f -> %.2f\n", ww_json_num(first, "reward", 0), ww_json_num(last, "reward", 0));
	assert_true(ww_json_num(last, "reward", 0) > ww_json_num(first, "reward", 0) + 1);
	json_decref(first);
	json_decref(last);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(neither_latency_nor_judges_change_a_bit),
		cmocka_unit_test(answers_of_another_run_are_refused), cmocka_unit_test(killed_and_resumed_to_the_same_bits),
		cmocka_unit_test(a_judge_that_fails_costs_nothing), cmocka_unit_test(closing_judgements_are_never_repetitions),
		cmocka_unit_test(twenty_steps_repeat_from_recorded_answers), cmocka_unit_test(killed_at_twenty_moments),
		cmocka_unit_test(a_curriculum_goes_on_to_the_same_bits), cmocka_unit_test(a_step_says_what_it_did),
		cmocka_unit_test(the_learners_own_device_counts), cmocka_unit_test(judging_is_told_by_what_was_held),
		cmocka_unit_test(the_report_draws_it), cmocka_unit_test(the_report_puts_ablations_beside_the_published_table),
		cmocka_unit_test(time_is_told_by_activity), cmocka_unit_test(stale_episodes_have_ratios_and_are_clipped),
		cmocka_unit_test(every_option_takes_a_step), cmocka_unit_test(each_architecture_takes_a_step),
		cmocka_unit_test(raw_speedups_are_learnt_from), cmocka_unit_test(kl_holds_the_policy_near_its_reference),
		cmocka_unit_test(the_reward_is_on_the_last_own_token),
		cmocka_unit_test(a_prompt_that_is_too_long_costs_its_task_alone), cmocka_unit_test(the_policy_learns),
		cmocka_unit_test(a_collapse_stops_the_run) };
	all = unit_all(argc, argv);
	setenv("WARPWRIGHT_THREADS", "1", 0);
	if (access("/dev/shm", W_OK) == 0) /* thousands of synced lines */
		setenv("TMPDIR", "/dev/shm", 1);
	return cmocka_run_group_tests(tests, toy_setup, toy_teardown);
}
