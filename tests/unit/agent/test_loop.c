/* The loop, driven by a scripted policy and a scripted judge: what is recorded, what is kept, what ends a run, and
 * that a run which is cut anywhere goes on to the same end. */
#include "script.h"

#include "sandbox/sandbox.h"

#include "agent/tools.h"

static enum ww_rc run(struct fixture *f) { return ww_agent_run(&f->opts, &f->result, &f->err); }

static void read_episode_of(const char *where, struct ww_episode *e)
{
	struct ww_err err = WW_ERR_INIT;
	char path[128];
	snprintf(path, sizeof(path), "%s/episode.jsonl", where);
	assert_int_equal(ww_episode_read(path, e, &err), WW_OK);
}

static void read_episode(struct ww_episode *e) { read_episode_of(dir, e); }

static void expect_file(const char *name, const char *content)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str text = WW_STR_INIT(1 << 20);
	char path[128];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(ww_fs_read(path, 1 << 20, &text, &err), WW_OK);
	assert_string_equal(text.p, content);
	ww_str_release(&text);
}

static void test_story(void **state)
{
	struct fixture f;
	struct ww_episode e;
	(void)state;
	prepare(&f, dir, story, 6);
	assert_int_equal(run(&f), WW_OK);
	assert_true(f.result.ended);
	assert_string_equal(f.result.end.reason, "submitted");
	assert_int_equal(f.result.turns, 6);
	assert_true(f.result.end.reward_final == 2); /* 148 us is not 5% faster than compile's 150 */
	assert_true(f.result.end.reward_best == 3);
	assert_true(f.result.best.time.device_us == 120);
	expect_file("solution/kernels.c", "us=120");
	expect_file("solution/plan.c", "plan 120");
	expect_file("workspace/kernels.c", "us=148 // slower");
	read_episode(&e);
	assert_true(e.ended);
	assert_int_equal(e.n_solutions, 4);    /* 180; wrong with its plan; 120; 148 */
	assert_int_equal(e.n_verdicts, 5 + 2); /* of the tools; final and final-best */
	assert_string_equal(e.verdicts[5].call_id, "final");
	assert_string_equal(e.verdicts[6].call_id, "final-best");
	assert_string_equal(e.end.best, f.result.best_id);
	assert_string_equal(e.messages[3].reply.message.data ? e.messages[3].reply.message.tool : "", "inspect");
	const struct ww_message *last = &e.messages[e.n_messages - 1].reply.message;
	assert_string_equal(last->tool, "submit");
	const struct ww_message *read_back = &e.messages[e.n_messages - 3].reply.message;
	assert_string_equal(read_back->tool, "read");
	assert_string_equal(read_back->text, "us=148 // slower");
	struct ww_agent_result again;
	assert_int_equal(ww_agent_result_of(&e, &again, &f.err), WW_OK);
	assert_true(again.best.time.device_us == 120);
	ww_agent_result_release(&again);
	ww_episode_release(&e);
	finish(&f);
}

/* The same episode once more from what its tools answered: nothing is judged, and the record is the same. */
static void test_recorded_answers(void **state)
{
	struct fixture f, g;
	struct ww_str a = WW_STR_INIT(16 << 20), b = WW_STR_INIT(16 << 20);
	char was[128], now[128];
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	snprintf(was, sizeof(was), "%s/was", dir);
	snprintf(now, sizeof(now), "%s/now", dir);
	assert_int_equal(ww_fs_mkdirs(was, &err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(now, &err), WW_OK);
	prepare(&f, was, story, 6);
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_OK);
	prepare(&g, now, story, 6);
	g.opts.answers = was;
	if (ww_agent_run(&g.opts, &g.result, &g.err) != WW_OK)
		fail_msg("%s", g.err.msg);
	assert_int_equal(g.judge.calls, 0);
	normal_form(was, &a);
	normal_form(now, &b);
	assert_string_equal(a.p, b.p);
	assert_string_equal(f.result.best_id, g.result.best_id);
	ww_str_release(&a);
	ww_str_release(&b);
	finish(&f);
	finish(&g);
	prepare(&g, dir, story + 1, 5); /* other calls */
	g.opts.answers = was;
	assert_int_equal(ww_agent_run(&g.opts, &g.result, &g.err), WW_ERR_USAGE);
	assert_non_null(strstr(g.err.msg, "name the answers of this run"));
	finish(&g);
	assert_int_equal(ww_fs_remove_tree(was, &err), WW_OK);
	assert_int_equal(ww_fs_remove_tree(now, &err), WW_OK);
}

/* ---- Going on after a kill --------------------------------------------------------------------------------------- */

/* A kill leaves a prefix of the file, with or without a part of the next line, and an output directory that may be
 * behind or (solution/) wiped: from each of them the run ends as the undisturbed one did. */
static int cut_everywhere(const struct line *lines, int n, const char *device)
{
	struct fixture f;
	struct ww_err err = WW_ERR_INIT;
	struct ww_str whole = WW_STR_INIT(16 << 20), want = WW_STR_INIT(16 << 20), got = WW_STR_INIT(16 << 20);
	char path[128], solution[128];
	int cuts = 0;
	snprintf(path, sizeof(path), "%s/episode.jsonl", dir);
	snprintf(solution, sizeof(solution), "%s/solution", dir);
	prepare(&f, dir, lines, n);
	assert_int_equal(run(&f), WW_OK);
	finish(&f);
	assert_int_equal(ww_fs_read(path, 16 << 20, &whole, &err), WW_OK);
	normal_form(dir, &want);
	for (char *p = strchr(whole.p, '\n') + 1, *nl; (nl = strchr(p, '\n')); p = nl + 1)
		for (int part = 0; part < 2; part++, cuts++) {
			size_t keep = (size_t)(p - whole.p) + (part ? (size_t)(nl - p) / 2 : 0);
			assert_int_equal(ww_fs_write(path, whole.p, keep, &err), WW_OK);
			assert_int_equal(ww_fs_remove_tree(solution, &err), WW_OK);
			prepare(&f, dir, lines, n);
			assert_int_equal(run(&f), WW_OK);
			ww_str_reset(&got);
			normal_form(dir, &got);
			assert_string_equal(got.p, want.p);
			expect_file("solution/kernels.c", device);
			finish(&f);
		}
	ww_str_release(&whole);
	ww_str_release(&want);
	ww_str_release(&got);
	return cuts;
}

static void test_cut_at_every_line(void **state)
{
	(void)state;
	assert_true(cut_everywhere(story, 6, "us=120") > 60);
}

/* The same where commands write the files: appending shows whether one was carried out twice or not at all. */
static void test_cut_with_a_shell(void **state)
{
	static const struct line lines[] = { { "", { "bash", "write" },
											 { "{\"command\":\"mkdir d; cd d; export N=1; echo one >> log\"}",
												 "{\"path\":\"plan.c\",\"text\":\"p\"}" } },
		{ "", { "bash", "verify" },
			{ "{\"command\":\"echo $N $PWD >> log; printf us=12%d 0 > ../kernels.c\"}", "{}" } },
		{ "", { "bash", "read", "submit" },
			{ "{\"command\":\"cat log; rm log; ls ..\"}", "{\"path\":\"kernels.c\"}", "{}" } } };
	(void)state;
	if (ww_sandbox_probe() != WW_SANDBOX_NAMESPACES)
		skip();
	assert_true(cut_everywhere(lines, 3, "us=120") > 20);
	struct ww_episode e;
	read_episode(&e);
	int seen = 0;
	for (size_t i = 0; i < e.n_messages; i++)
		seen += strstr(e.messages[i].reply.message.text, "one\n1 /workspace/d\nd\nkernels.c\nplan.c\n[exit code 0]") !=
			NULL;
	assert_int_equal(seen, 1);
	ww_episode_release(&e);
}

/* A verdict that was recorded is not asked for again, though its answer was not. */
static void test_recorded_verdict_is_used(void **state)
{
	struct fixture f;
	struct ww_err err = WW_ERR_INIT;
	struct ww_str whole = WW_STR_INIT(16 << 20);
	char path[128];
	(void)state;
	snprintf(path, sizeof(path), "%s/episode.jsonl", dir);
	prepare(&f, dir, story, 6);
	assert_int_equal(run(&f), WW_OK);
	int all = f.judge.calls;
	finish(&f);
	assert_int_equal(ww_fs_read(path, 16 << 20, &whole, &err), WW_OK);
	char *first = strstr(whole.p, "{\"type\":\"verdict\"");
	size_t keep = (size_t)(strchr(first, '\n') + 1 - whole.p);
	assert_int_equal(ww_fs_write(path, whole.p, keep, &err), WW_OK);
	prepare(&f, dir, story, 6);
	assert_int_equal(run(&f), WW_OK);
	assert_int_equal(f.judge.calls, all - 1);
	finish(&f);
	ww_str_release(&whole);
}

/* Verdicts that somebody wrote into the record, cut before a line of this type: what an ended run claims is measured by
 * the process that ends it. */
static void raised(const struct line *lines, int n, const char *before, double max_gpu_s)
{
	struct fixture f;
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str whole = WW_STR_INIT(16 << 20), changed = WW_STR_INIT(16 << 20);
	static int runs;
	char path[128], where[96];
	snprintf(where, sizeof(where), "%s/raised%d", dir, runs++);
	snprintf(path, sizeof(path), "%s/episode.jsonl", where);
	assert_int_equal(ww_fs_mkdirs(where, &err), WW_OK);
	prepare(&f, where, lines, n);
	f.judge.gpu_s = 1;
	assert_int_equal(run(&f), WW_OK);
	double final = f.result.end.reward_final, best = f.result.end.reward_best;
	finish(&f);
	assert_int_equal(ww_fs_read(path, 16 << 20, &whole, &err), WW_OK);
	char *cut = strstr(whole.p, before);
	assert_non_null(cut);
	while (cut[-1] != '\n')
		cut--;
	*cut = 0;
	for (const char *p = whole.p, *at; p; p = at ? at + strlen("\"reward\":") : NULL) { /* of every verdict */
		at = strstr(p, "\"reward\":");
		ww_str_add(&changed, p, at ? (size_t)(at - p) : strlen(p));
		ww_str_adds(&changed, at ? "\"reward\":3,\"was\":" : "");
	}
	assert_int_equal(ww_fs_write(path, changed.p, changed.len, &err), WW_OK);
	prepare(&f, where, lines, n);
	f.judge.gpu_s = 1;
	struct ww_budget_limits limits = { .gpu_s = max_gpu_s };
	f.opts.budget = max_gpu_s > 0 ? ww_budget_new(&limits) : NULL;
	if (f.opts.budget) /* as whoever opens the run counts what is recorded */
		ww_budget_spend(f.opts.budget, &(struct ww_budget_use){ .gpu_s = max_gpu_s });
	assert_int_equal(run(&f), WW_OK);
	if (f.result.end.reward_final != final || f.result.end.reward_best != best)
		fail_msg("before %s: %g and %g, not %g and %g", before, f.result.end.reward_final, f.result.end.reward_best,
			final, best);
	ww_budget_free(f.opts.budget);
	finish(&f);
}

static void test_raised_rewards(void **state)
{
	static const struct line one[] = { KERNEL("180"), { "hand in", { "submit" }, { "{}" } } };
	(void)state;
	raised(story, 6, "\"call_id\":\"final\"", 0);
	raised(story, 6, "\"type\":\"end\"", 0);
	raised(one, 2, "\"call_id\":\"final\"", 3); /* no device seconds are left */
}

/* Trouble of our own ends the run with an error, and it can be gone on with. */
static void test_judge_trouble(void **state)
{
	struct fixture f;
	struct ww_episode e;
	(void)state;
	for (int at = 1; at <= 3; at++) {
		prepare(&f, dir, story, 6);
		f.judge.fail_at = at == 1 ? 1 : 2;
		assert_int_equal(run(&f), WW_ERR_WORKER);
		assert_false(f.result.ended);
		finish(&f);
	}
	read_episode(&e);
	assert_false(e.ended);
	ww_episode_release(&e);
	prepare(&f, dir, story, 6);
	assert_int_equal(run(&f), WW_OK);
	assert_string_equal(f.result.end.reason, "submitted");
	finish(&f);
}

struct interrupter {
	volatile int flag;
	int left;
};

static void count_down(void *ctx, const struct ww_agent_event *e)
{
	struct interrupter *i = ctx;
	(void)e;
	if (--i->left == 0)
		i->flag = 1;
}

static void test_interrupted_at_every_event(void **state)
{
	struct fixture f;
	int interruptions = 0;
	(void)state;
	for (int done = 0; !done;) {
		struct interrupter i = { 0, 2 };
		prepare(&f, dir, story, 6);
		f.opts.interrupted = &i.flag;
		f.opts.on_event = count_down;
		f.opts.event_ctx = &i;
		enum ww_rc rc = run(&f);
		done = rc == WW_OK;
		interruptions += !done;
		assert_true(done || rc == WW_ERR_INTERRUPTED);
		assert_true(interruptions < 100);
		finish(&f);
	}
	assert_true(interruptions > 5);
	expect_file("solution/kernels.c", "us=120");
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void expect_end(
	const struct line *lines, int n, int max_turns, enum ww_finish last, const char *reason, int turns)
{
	struct fixture f;
	prepare(&f, dir, lines, n);
	f.opts.max_turns = max_turns;
	f.policy.last = last;
	assert_int_equal(run(&f), WW_OK);
	assert_string_equal(f.result.end.reason, reason);
	assert_int_equal(f.result.turns, turns);
	assert_true(f.result.end.reward_final == -1);
	assert_false(f.result.has_best);
	finish(&f);
	struct ww_err err;
	char path[128];
	snprintf(path, sizeof(path), "%s/episode.jsonl", dir);
	unlink(path);
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(dir, &err), WW_OK);
}

static void test_ends(void **state)
{
	(void)state;
	static const struct line looks[] = { { "", { "inspect" }, { "{}" } }, { "", { "inspect" }, { "{}" } } };
	expect_end(looks, 2, 2, WW_FINISH_STOP, "turns", 2);
	expect_end(looks, 1, 9, WW_FINISH_STOP, "stopped", 2);
	expect_end(looks, 1, 9, WW_FINISH_LENGTH, "length", 2);
	expect_end(looks, 1, 9, WW_FINISH_REFUSAL, "refusal", 2);
}

static void test_seconds(void **state)
{
	static const struct line looks[] = { { "", { "inspect" }, { "{}" } } };
	struct fixture f;
	(void)state;
	prepare(&f, dir, looks, 1);
	f.opts.max_seconds = 0;
	assert_int_equal(run(&f), WW_OK);
	assert_string_equal(f.result.end.reason, "seconds");
	assert_int_equal(f.result.turns, 0);
	finish(&f);
}

struct pauses {
	int n;
	double longest_s;
};

/* Every repetition is announced with its pause, which took minutes without a word. */
static void count_pauses(void *ctx, const struct ww_agent_event *e)
{
	struct pauses *p = ctx;
	if (e->kind != WW_AGENT_FINAL || !e->text)
		return;
	p->n += e->pause_s > 0;
	p->longest_s = fmax(p->longest_s, e->pause_s);
}

/* A disturbed closing judgement of what may be worth more is made again, as often as the time and the budget last; of
 * what is worth no more by the upper ends of its intervals it is not.  It took the first answer before. */
static void test_disturbed_closings(void **state)
{
	static const struct line fast[] = { KERNEL("100") }, slow[] = { KERNEL("250") };
	static const struct {
		const struct line *lines;
		int disturbed, pause_us, closings;
		double max_seconds, closing_seconds, max_gpu_s, gpu_s, reward;
	} cases[] = { { fast, 2, 0, 3, 1000, 1000, 0, 0, 3 }, { fast, 1, 200000, 1, 0.7, 1000, 0, 0, 1 },
		{ fast, 9, 200000, 1, 1000, 0.5, 0, 0, 1 }, { fast, 9, 0, 1, 1000, 0, 0, 0, 1 },
		{ fast, 9, 0, 1, 1000, 1000, 5, 3, 1 }, { slow, 9, 0, 1, 1000, 1000, 0, 0, 1 },
		{ fast, 2, 400000, 3, 1000, 1000, 0, 0.15, 3 } }; /* most of a judgement is no measurement */
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		struct fixture f;
		struct ww_episode e;
		struct ww_err err;
		struct ww_budget_limits limits = { 0, cases[i].max_gpu_s, 0 };
		char where[96];
		int closings = 0;
		struct pauses pauses = { 0, 0 };
		snprintf(where, sizeof(where), "%s/closing%zu", dir, i);
		assert_int_equal(ww_fs_mkdirs(where, &err), WW_OK);
		prepare(&f, where, cases[i].lines, 1);
		f.judge.disturbed = cases[i].disturbed;
		f.judge.pause_us = cases[i].pause_us;
		f.judge.gpu_s = cases[i].gpu_s;
		f.opts.max_seconds = cases[i].max_seconds;
		f.opts.closing_seconds = cases[i].closing_seconds;
		f.opts.on_event = count_pauses;
		f.opts.event_ctx = &pauses;
		f.opts.budget = ww_budget_new(&limits);
		assert_int_equal(run(&f), WW_OK);
		read_episode_of(where, &e);
		for (size_t k = 0; k < e.n_verdicts; k++)
			closings += !strcmp(e.verdicts[k].call_id, "final");
		assert_int_equal(closings, cases[i].closings);
		assert_int_equal(pauses.n, closings - 1);
		assert_true(pauses.longest_s < 0.35); /* 0.15, or the least, and twice as long */
		assert_true(f.result.end.reward_final == cases[i].reward);
		assert_true(f.result.best.reward == cases[i].reward); /* and that is what the record says */
		ww_episode_release(&e);
		ww_budget_free(f.opts.budget);
		finish(&f);
	}
}

static void interrupt_repetition(void *ctx, const struct ww_agent_event *e)
{
	*(volatile int *)ctx = e->kind == WW_AGENT_FINAL && e->text;
}

/* What was measured before a repetition is the user's where the process is stopped in it, also where the policy never
 * asked for a verdict.  "no correct solution was found" stood there before. */
static void test_interrupted_repetition(void **state)
{
	static const struct line unverified[] = { { "", { "write", "write" },
		{ "{\"path\":\"plan.c\",\"text\":\"p\"}", "{\"path\":\"kernels.c\",\"text\":\"us=100\"}" } } };
	volatile int stop = 0;
	struct fixture f;
	(void)state;
	prepare(&f, dir, unverified, 1);
	f.judge.disturbed = 9;
	f.opts.interrupted = &stop;
	f.opts.on_event = interrupt_repetition;
	f.opts.event_ctx = (void *)&stop;
	assert_int_equal(run(&f), WW_ERR_INTERRUPTED);
	assert_true(f.result.has_best && f.result.best.correct);
	expect_file("solution/kernels.c", "us=100");
	finish(&f);
}

static void test_malformed(void **state)
{
	static const struct line lines[] = { { "", { "fly", "write", "write" }, { "{}", "{\"path\":", "[1]" } },
		{ "", { "write", "inspect" }, { "{\"path\":\"plan.c\"}", "" } }, /* the good one starts the count anew */
		{ "", { "verify", "verify", "write" },
			{ "{\"time\":1}", "{\"tyme\":true}", "{\"path\":\"../plan.c\",\"text\":\"\"}" } },
		{ "", { "write" }, { "{\"path\":\"skill/x\",\"text\":\"\"}" } },
		{ "", { "read" }, { "{\"path\":\"/etc/passwd\"}" } }, { "never said", { "inspect" }, { "{}" } } };
	static const char *const says[] = { "no tool \"fly\"", "not valid JSON", "JSON object", "\"text\" is missing", "",
		"argument \"time\" is 1, but must be boolean",
		"there is no argument \"tyme\"; the arguments are \"time\", \"brief\"", "../plan.c", "belongs to the skill",
		"/etc/passwd" };
	struct fixture f;
	struct ww_episode e;
	(void)state;
	prepare(&f, dir, lines, 6);
	assert_int_equal(run(&f), WW_OK);
	assert_string_equal(f.result.end.reason, "malformed");
	assert_int_equal(f.result.turns, 5);
	read_episode(&e);
	size_t k = 0;
	for (size_t i = 0; i < e.n_messages; i++) {
		const struct ww_message *m = &e.messages[i].reply.message;
		if (m->role != WW_ROLE_TOOL)
			continue;
		assert_true(k < 10);
		assert_non_null(strstr(m->text, says[k]));
		assert_int_equal(m->is_error, k != 4);
		k++;
	}
	assert_int_equal(k, 10);
	ww_episode_release(&e);
	finish(&f);
}

/* Wrong solutions and nothing to judge are answers, and do not count as malformed. */
static void test_nothing_to_judge(void **state)
{
	static const struct line lines[] = { { "", { "verify", "compile", "profile" }, { "{}", "{}", "{}" } },
		{ "", { "read", "edit", "verify" },
			{ "{\"path\":\"plan.c\"}", "{\"path\":\"plan.c\",\"old\":\"a\",\"new\":\"b\"}", "{}" } } };
	struct fixture f;
	(void)state;
	prepare(&f, dir, lines, 2);
	assert_int_equal(run(&f), WW_OK);
	assert_string_equal(f.result.end.reason, "stopped");
	assert_int_equal(f.judge.calls, 0);
	finish(&f);
}

/* Of the reference before anything is written; of the solution with its own diagnostics; nothing else. */
static void test_profiles(void **state)
{
	static const struct line lines[] = {
		{ "", { "profile", "profile", "profile" },
			{ "{\"what\":\"reference\"}", "{\"what\":\"solution\"}", "{\"what\":\"nothing\"}" } },
		{ "", { "write", "write", "profile" },
			{ "{\"path\":\"kernels.c\",\"text\":\"its words\"}", "{\"path\":\"plan.c\",\"text\":\"plan\"}", "{}" } }
	};
	struct fixture f;
	struct ww_episode e;
	const struct ww_message *tool[6];
	size_t n = 0;
	(void)state;
	prepare(&f, dir, lines, 2);
	assert_int_equal(run(&f), WW_OK);
	assert_int_equal(f.judge.calls, 1); /* the closing judgement: a profile is none */
	read_episode(&e);
	for (size_t i = 0; i < e.n_messages && n < 6; i++)
		if (e.messages[i].reply.message.role == WW_ROLE_TOOL)
			tool[n++] = &e.messages[i].reply.message;
	assert_int_equal(n, 6);
	assert_non_null(strstr(tool[0]->text, "12.5 us in 0 operators"));
	assert_non_null(strstr(tool[0]->data, "\"reference\""));
	assert_true(tool[1]->is_error && strstr(tool[1]->text, "kernels.c"));
	assert_true(tool[2]->is_error && strstr(tool[2]->data, "malformed"));
	assert_string_equal(tool[5]->text, "status: crashed\nits words");
	assert_false(tool[5]->is_error);
	ww_episode_release(&e);
	finish(&f);
}

static void test_other_run_is_refused(void **state)
{
	static const struct line looks[] = { { "", { "inspect" }, { "{}" } } };
	struct fixture f;
	(void)state;
	prepare(&f, dir, looks, 1);
	f.judge.fail_at = 1;
	f.opts.max_turns = 1;
	assert_int_equal(run(&f), WW_OK);
	finish(&f);
	prepare(&f, dir, looks, 1);
	assert_int_equal(run(&f), WW_ERR_USAGE);
	assert_non_null(strstr(f.err.msg, "has ended"));
	finish(&f);
	prepare(&f, dir, looks, 1);
	strcpy(f.header.task_id, "task2");
	assert_int_equal(run(&f), WW_ERR_USAGE);
	assert_non_null(strstr(f.err.msg, dir));
	finish(&f);
}

/* ---- Tools ------------------------------------------------------------------------------------------------------- */

static void test_schemas_are_json(void **state)
{
	size_t n;
	const struct ww_tool_spec *specs = ww_tools_specs(&n);
	(void)state;
	assert_true(n >= 15);
	for (size_t i = 0; i < n; i++) {
		json_t *o = json_loads(specs[i].schema, JSON_REJECT_DUPLICATES, NULL), *p,
			   *required = json_object_get(o, "required"), *r;
		const char *key;
		size_t k;
		assert_non_null(o);
		assert_string_equal(json_string_value(json_object_get(o, "type")), "object");
		json_object_foreach(json_object_get(o, "properties"), key, p)
			assert_non_null(
				strstr("string boolean integer number array", json_string_value(json_object_get(p, "type"))));
		json_array_foreach(required, k, r)
			assert_non_null(json_object_get(json_object_get(o, "properties"), json_string_value(r)));
		json_decref(o);
	}
}

static void call(struct ww_workspace *w, const char *name, const char *args, struct ww_tool_result *r)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_tool_env env = { .workspace = w };
	struct ww_tool_call c = { (char *)"id", (char *)name, (char *)args };
	assert_int_equal(ww_tools_call(&env, &c, r, &err), WW_OK);
}

static void test_files(void **state)
{
	struct ww_workspace w;
	struct ww_tool_result r;
	struct ww_err err = WW_ERR_INIT;
	char path[128], secret[128];
	(void)state;
	snprintf(path, sizeof(path), "%s/workspace", dir);
	assert_int_equal(ww_workspace_open(&w, path, WW_TARGET_CUDA, 1, &err), WW_OK);
	call(&w, "write", "{\"path\":\"kernels.cu\",\"text\":\"one\\ntwo\\nthree\\nthree\\n\"}", &r);
	assert_false(r.is_error);
	ww_tool_result_release(&r);
	call(&w, "read", "{\"path\":\"kernels.cu\",\"first_line\":2,\"lines\":2}", &r);
	assert_string_equal(r.text.p, "two\nthree\n");
	ww_tool_result_release(&r);
	call(&w, "edit", "{\"path\":\"kernels.cu\",\"old\":\"three\",\"new\":\"x\"}", &r);
	assert_true(r.is_error && !r.malformed);
	assert_non_null(strstr(r.text.p, "more than once"));
	ww_tool_result_release(&r);
	call(&w, "edit", "{\"path\":\"kernels.cu\",\"old\":\"two\",\"new\":\"2\"}", &r);
	assert_false(r.is_error);
	ww_tool_result_release(&r);
	expect_file("workspace/kernels.cu", "one\n2\nthree\nthree\n");
	snprintf(secret, sizeof(secret), "%s/secret", dir);
	assert_int_equal(ww_fs_write(secret, "secret", 6, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/workspace/plan.c", dir);
	assert_int_equal(symlink(secret, path), 0);
	call(&w, "read", "{\"path\":\"plan.c\"}", &r);
	assert_true(r.is_error);
	assert_null(strstr(r.text.p, "secret"));
	ww_tool_result_release(&r);
	call(&w, "write", "{\"path\":\"plan.c\",\"text\":\"new\"}", &r);
	assert_false(r.is_error);
	ww_tool_result_release(&r);
	expect_file("secret", "secret");
	expect_file("workspace/plan.c", "new");
	ww_workspace_close(&w);
}

static void test_output_is_bounded(void **state)
{
	struct ww_workspace w;
	struct ww_tool_result r;
	struct ww_err err = WW_ERR_INIT;
	struct ww_str args = WW_STR_INIT(4 << 20);
	char path[128];
	(void)state;
	snprintf(path, sizeof(path), "%s/workspace", dir);
	assert_int_equal(ww_workspace_open(&w, path, WW_TARGET_CPU, 1, &err), WW_OK);
	for (int size = 1 << 19; size <= 1 << 21; size *= 4) {
		ww_str_reset(&args);
		ww_str_adds(&args, "{\"path\":\"plan.c\",\"text\":\"");
		for (int i = 0; i < size; i++)
			ww_str_addc(&args, 'a');
		ww_str_adds(&args, "\"}");
		call(&w, "write", args.p, &r);
		assert_int_equal(r.is_error, size > WW_SOLUTION_MAX_BYTES);
		ww_tool_result_release(&r);
	}
	call(&w, "read", "{\"path\":\"plan.c\"}", &r);
	assert_true(r.text.len <= WW_TOOL_TEXT_MAX_BYTES + 1024);
	assert_non_null(strstr(r.text.p, "bytes cut"));
	ww_tool_result_release(&r);
	ww_str_release(&args);
	ww_workspace_close(&w);
}

#define T(name) cmocka_unit_test_setup_teardown(name, script_setup, script_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = { T(test_story), T(test_recorded_answers), T(test_cut_at_every_line),
		T(test_cut_with_a_shell), T(test_recorded_verdict_is_used), T(test_raised_rewards), T(test_judge_trouble),
		T(test_interrupted_at_every_event), T(test_ends), T(test_seconds), T(test_disturbed_closings),
		T(test_interrupted_repetition), T(test_malformed), T(test_nothing_to_judge), T(test_profiles),
		T(test_other_run_is_refused), T(test_schemas_are_json), T(test_files), T(test_output_is_bounded) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
