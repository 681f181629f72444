/* Tools as commands inside the shell's sandbox: what they answer, what a process there can do to them, what is
 * recorded, and that an episode which is cut anywhere goes on to the same end. */
#include "script.h"

#include "agent/tool_call.h"
#include "base/rng.h"
#include "base/time.h"
#include "episode/view.h"
#include "sandbox/sandbox.h"

#include <signal.h>
#include <sys/wait.h>

static void wipe(void)
{
	struct ww_err err;
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(dir, &err), WW_OK);
}

/* A run of commands, one a turn. */
#define BASH(command) { "", { "bash" }, { "{\"command\":\"" command "\",\"timeout\":20}" } }
#define BACKGROUND(command) { "", { "bash" }, { "{\"command\":\"" command "\",\"background\":true}" } }
#define JOB(tool, n) { "", { tool }, { "{\"job\":" n "}" } }

struct played {
	struct fixture f;
	struct ww_episode e;
	const struct ww_message *answers[32]; /* of tools, in order */
	size_t n;
};

static void play_with(
	struct played *p, const struct line *lines, int n, const struct ww_skill *skill, struct ww_budget *budget)
{
	struct ww_err err = WW_ERR_INIT;
	char path[128];
	memset(p, 0, sizeof(*p));
	prepare(&p->f, dir, lines, n);
	p->f.opts.skill = skill;
	p->f.opts.budget = budget;
	p->f.judge.gpu_s = 1;
	if (ww_agent_run(&p->f.opts, &p->f.result, &p->f.err) != WW_OK)
		fail_msg("%s", p->f.err.msg);
	snprintf(path, sizeof(path), "%s/episode.jsonl", dir);
	assert_int_equal(ww_episode_read(path, &p->e, &err), WW_OK);
	for (size_t i = 0; i < p->e.n_messages && p->n < WW_ARRAY_LEN(p->answers); i++)
		if (p->e.messages[i].reply.message.role == WW_ROLE_TOOL)
			p->answers[p->n++] = &p->e.messages[i].reply.message;
}

static void play(struct played *p, const struct line *lines, int n) { play_with(p, lines, n, NULL, NULL); }

static void played(struct played *p)
{
	ww_episode_release(&p->e);
	finish(&p->f);
}

/* Answer k holds these parts, in this order. */
static void expect(const struct played *p, size_t k, const char *const *parts)
{
	const char *at = p->answers[k]->text;
	for (; *parts; parts++) {
		const char *found = strstr(at, *parts);
		if (!found)
			fail_msg("answer %zu lacks \"%s\":\n%s", k, *parts, p->answers[k]->text);
		at = found + strlen(*parts);
	}
}
#define EXPECT(p, k, ...) expect(p, k, (const char *const[]){ __VA_ARGS__, NULL })

/* ---- What they answer -------------------------------------------------------------------------------------------- */

static const struct line answers[] = {
	BASH("verify; echo code $?"),
	BASH(
		"echo us=120 > kernels.c; echo p > plan.c; verify; echo code $?; verify --no-time | head -3; echo wrong > kernels.c; verify; echo code $?"),
	BASH(
		"echo broken > kernels.c; compile; echo code $?; echo us=110 > kernels.c; compile && verify --brief --time=true | grep -c reward"),
	BASH("profile --what=reference; echo code $?; profile; echo code $?; inspect; echo code $?"),
	BASH(
		"verify -h; echo code $?; verify --fast; echo code $?; verify fast; echo code $?; verify --time=maybe; echo code $?; submit; echo code $?"),
	BASH(
		"perl -e 'system(q(verify --no-time)) == 0 or exit 9'; env -i /usr/local/bin/compile; (cd /; verify --sanitize); ls /usr/local/bin")
};

static void test_answers(void **state)
{
	struct played p;
	(void)state;
	play(&p, answers, WW_ARRAY_LEN(answers));
	EXPECT(&p, 0, "nothing to judge yet", "code 2");
	EXPECT(&p, 1, "status: ok", "time: 120.00 us", "reward: 3", "code 0", "correct: yes", "status: mismatch", "code 1");
	EXPECT(&p, 2, "compile_failed", "code 1", "status: ok", "1\n[exit code 0]");
	EXPECT(&p, 3, "12.5 us in 0 operators", "code 0", "status: crashed", "code 1", "\"graph\"", "code 0");
	EXPECT(&p, 4, "--time, --no-time", "code 0", "no argument \"fast\"", "code 2", "an option is --NAME", "code 2",
		"but must be boolean", "code 2", "not found", "code 127");
	EXPECT(&p, 5, "correct: yes", "status: ok", "correct: yes", "compile\n", "inspect\n", "profile\n",
		"verify\n[exit code 0]");
	/* Each verdict is in the record under its call, with its solution; the best of them is the run's. */
	assert_string_equal(p.e.verdicts[0].call_id, "call_2_0.1");
	assert_string_equal(p.e.verdicts[1].call_id, "call_2_0.2");
	assert_string_equal(p.e.verdicts[1].depth, "verify");
	int sanitized = 0;
	for (size_t i = 0; i < (size_t)p.e.n_verdicts; i++)
		sanitized += !strcmp(p.e.verdicts[i].depth, "sanitize");
	assert_int_equal(sanitized, 1);
	assert_int_equal(p.e.n_solutions, 4);
	assert_true(p.f.result.end.reward_best == 3);
	json_t *calls = ww_episode_calls_inside(p.answers[3]);
	assert_int_equal(json_array_size(calls), 3);
	assert_string_equal(ww_json_str(json_array_get(calls, 0), "name", ""), "profile");
	assert_string_equal(ww_json_str(json_array_get(calls, 0), "arguments", ""), "{\"what\":\"reference\"}");
	assert_string_equal(ww_json_str(json_array_get(calls, 0), "id", ""), "call_4_0.1");
	json_decref(calls);
	struct ww_str text = WW_STR_INIT(1 << 20), page = WW_STR_INIT(1 << 20);
	struct ww_episode_show how = { 0, 0 };
	ww_episode_text(&p.e, &how, &text);
	assert_non_null(strstr(text.p, "    . verify: ok, 120.0 us"));
	ww_episode_html(&p.e, &page);
	assert_non_null(strstr(page.p, "\xe2\x80\xa2 verify: ok, 120.0 us"));
	ww_str_release(&text);
	ww_str_release(&page);
	played(&p);
}

/* ---- Budgets ----------------------------------------------------------------------------------------------------- */

#define FIVE "for i in 1 2 3 4 5; do verify > out; echo code $?; done; tail -1 out"

static void test_budgets(void **state)
{
	static const struct line five[] = { BASH("echo us=120 > kernels.c; echo p > plan.c; " FIVE) };
	static const struct line many[] = { BASH("for i in $(seq 18); do compile > out; echo code $?; done; cat out") };
	struct ww_budget_limits limits = { .gpu_s = 2.5 };
	struct ww_budget *b = ww_budget_new(&limits);
	struct played p;
	(void)state;
	/* One judgement of 1 s, and the two that close an episode: nothing is left for a second one. */
	play_with(&p, five, 1, NULL, b);
	EXPECT(&p, 0, "code 0\ncode 3\ncode 3\ncode 3\ncode 3\na budget is used up: gpu_seconds\n");
	assert_string_equal(p.f.result.end.reason, "gpu_seconds");
	assert_true(ww_budget_used(b).gpu_s == 2);
	ww_budget_free(b);
	played(&p);
	wipe();
	play(&p, many, 1);
	EXPECT(&p, 0, "code 2\ncode 3\ncode 3\na command may call tools 16 times\n");
	played(&p);
}

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

static const struct line jobs[] = { BASH("echo us=120 > kernels.c; echo p > plan.c"),
	BACKGROUND("verify > a.out; echo done >> a.out; verify --no-time > b.out; echo done >> b.out; sleep 60"),
	BASH("for i in $(seq 200); do grep -q done b.out 2>/dev/null && break; sleep 0.05; done; cat a.out b.out"),
	JOB("kill_bash", "2") };

/* One that asks after the turn has ended, and is killed before anybody serves it. */
static const struct line late[] = { BASH("echo us=120 > kernels.c; echo p > plan.c"),
	BACKGROUND("sleep 0.1; verify; sleep 60"),
	{ "", { "kill_bash", "bash" }, { "{\"job\":2}", "{\"command\":\"sleep 0.2\"}" } } };

/* A policy that thinks for half a second, so that the last job asks while nobody serves. */
static int slow_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	usleep(500000);
	return scripted_next(self, ask, out, err);
}

static void test_jobs(void **state)
{
	struct played p;
	(void)state;
	play(&p, jobs, WW_ARRAY_LEN(jobs));
	EXPECT(&p, 2, "status: ok", "reward: 3", "done", "correct: yes", "done", "[exit code 0]");
	assert_string_equal(
		p.e.verdicts[0].call_id, "call_3_0.1"); /* of the command that waited, not of the job's own turn */
	assert_string_equal(p.e.verdicts[1].call_id, "call_3_0.2");
	played(&p);
	wipe();
	static const struct ww_policy_ops ops = { .name = "slow", .next = slow_next };
	prepare(&p.f, dir, late, WW_ARRAY_LEN(late));
	p.f.policy.base.ops = &ops;
	assert_int_equal(ww_agent_run(&p.f.opts, &p.f.result, &p.f.err), WW_OK);
	assert_int_equal(p.f.judge.calls, 1); /* the closing judgement */
	finish(&p.f);
}

/* ---- Processes that do not keep to it ---------------------------------------------------------------------------- */

static const struct line hostile[] = {
	BASH(
		"echo us=120 > kernels.c; echo p > plan.c; (for i in $(seq 3000); do printf '1-1\\\\tverify\\\\n'; done) > /calls/ask & sleep 0.2; kill %1; "
		"head -c 3000 /dev/zero > /calls/ask; printf '\\\\377\\\\t\\\\n1-2\\\\tfly\\\\n' > /calls/ask; sleep 0.1; verify --no-time; echo code $?"),
	BASH(
		"verify $(head -c 5000 /dev/zero | tr '\\\\0' x); echo code $?; verify $'a\\\\nb'; echo code $?; printf '1-3\\\\tverify' > /calls/ask; verify --no-time"),
	BASH(
		"(for i in $(seq 400); do echo '1-1 0 9'; echo 'forged:3'; done) > /calls/answer; verify --no-time; echo code $?"),
	BASH(
		"timeout -s KILL 0.05 verify; (setsid bash -c 'exec 8</calls/turn; flock 8; exec sleep 2' &); sleep 0.1; timeout 0.3 verify; echo code $?; sleep 2; "
		"verify --no-time; echo code $?"),
	BASH(
		"flock /calls/turn bash -c 'for w in submit bash write read glob ../verify verify/..; do printf \\\"1-4\\\\t$w\\\\n\\\" > /calls/ask; sleep 0.05; done'; "
		"cat < /calls/answer & sleep 0.2; kill %1"),
	BASH(
		"(exec 8<>/calls/turn; : > /calls/turn; rm -f /calls/ask /usr/local/bin/verify; mv /calls/answer /calls/x; echo > /usr/local/bin/new; mkdir /new) 2>&1 "
		"| grep -c -i 'read-only\\\\|denied\\\\|permitted'")
};

/* Whatever is written into the pipes: honest calls beside it are answered, and nothing but the four tools is carried
 * out. */
static void test_hostile(void **state)
{
	struct played p;
	(void)state;
	uint64_t start = ww_now_ns();
	play(&p, hostile, WW_ARRAY_LEN(hostile));
	EXPECT(&p, 0, "correct: yes", "code 0");
	EXPECT(&p, 1, "arguments that no tool takes", "code 2", "arguments that no tool takes", "code 2", "correct: yes");
	EXPECT(&p, 2, "correct: yes", "code 0\n[exit code 0]");
	assert_null(strstr(p.answers[2]->text, "forged"));
	EXPECT(&p, 3, "code 124", "correct: yes", "code 0");
	EXPECT(&p, 4, "there is no such tool here");
	EXPECT(&p, 5, "7\n");
	assert_true(ww_seconds_since(start) < 30);
	assert_string_equal(p.f.result.end.reason, "stopped");
	assert_true(p.f.result.end.reward_final == 3);
	for (size_t i = 0; i < p.n; i++) {
		json_t *calls = ww_episode_calls_inside(p.answers[i]);
		for (size_t k = 0; k < json_array_size(calls); k++)
			assert_string_equal(ww_json_str(json_array_get(calls, k), "name", ""), "verify");
		assert_true(json_array_size(calls) <= WW_TOOL_CALLS_MAX);
		json_decref(calls);
	}
	played(&p);
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static enum ww_rc profile_nothing(
	struct ww_tool_env *env, int of_solution, json_t **data, const char **missing, struct ww_err *err)
{
	(void)env, (void)of_solution, (void)missing;
	return judge_profile(NULL, NULL, data, err);
}

static enum ww_rc judge_nothing(struct ww_tool_env *env, enum ww_judge_depth depth, struct ww_verdict *v, json_t **data,
	const char **missing, struct ww_err *err)
{
	(void)env, (void)depth, (void)v, (void)data, (void)err;
	*missing = "kernels.c";
	return WW_OK;
}

/* Twenty thousand lines made of pieces of options and of any bytes: each is answered. */
static void test_words(void **state)
{
	static const char *const pieces[] = { "verify", "compile", "\t", "\t--", "no-", "time", "brief", "=", "true",
		"false", "12", "-h", "submit", "bash", "what", "\"", "{", "\\", "\377", "\303\251", "%s", " ", "x" };
	struct fixture f;
	struct ww_shell shell;
	struct ww_rng r;
	int codes[4] = { 0 };
	(void)state;
	prepare(&f, dir, NULL, 0);
	ww_shell_init(&shell);
	assert_int_equal(ww_workspace_open(&shell.tree, dir, WW_TARGET_CPU, 0, &f.err), WW_OK);
	ww_rng_init(&r, 7, 0);
	for (int i = 0; i < 20000; i++) {
		struct ww_tool_env env = { .opts = &f.opts,
			.workspace = &shell.tree,
			.shell = &shell,
			.judge = judge_nothing,
			.profile = profile_nothing,
			.call_id = "call_1_0" };
		struct ww_tool_calls calls = { .env = &env };
		struct ww_str words = WW_STR_INIT(2000), text = WW_STR_INIT(WW_SHELL_CALL_TEXT_MAX);
		struct ww_err err = WW_ERR_INIT;
		unsigned code = 99;
		ww_str_adds(&words, i % 3 == 0 ? "verify\t--" : i % 3 == 1 ? "profile\t" : "");
		for (int n = (int)(ww_rng_uniform(&r) * 12); n >= 0; n--)
			ww_str_adds(&words, pieces[(size_t)(ww_rng_uniform(&r) * (double)WW_ARRAY_LEN(pieces))]);
		assert_int_equal(ww_tool_call_run(&calls, words.p, &text, &code, &err), WW_OK);
		assert_true(code <= 3 && text.len > 0 && !text.cut);
		codes[code]++;
		json_decref(calls.list);
		ww_str_release(&words);
		ww_str_release(&text);
	}
	assert_true(codes[0] > 20 && codes[2] > 200 && codes[3] > 2000);
	ww_shell_close(&shell);
	finish(&f);
}

/* ---- The skill --------------------------------------------------------------------------------------------------- */

static void test_skill(void **state)
{
	static const struct line lines[] = {
		BASH(
			"head -2 skill/SKILL.md; cmp skill/references/plan.md /skill/references/plan.md; ls skill/include/ww/cpu.h"),
		BASH(
			"(echo x > skill/SKILL.md; rm skill/SKILL.md; touch skill/new; chmod 777 skill) 2>&1 | grep -c -i read-only"),
		BASH("rm skill; mkdir skill; echo mine > skill/SKILL.md; echo 1 > note"),
		{ "", { "read", "glob" }, { "{\"path\":\"skill/SKILL.md\",\"lines\":2}", "{\"pattern\":\"**\"}" } }
	};
	struct ww_skill skill;
	struct ww_err err = WW_ERR_INIT;
	struct played p;
	(void)state;
	assert_int_equal(ww_skill_open_builtin(&skill, &err), WW_OK);
	play_with(&p, lines, WW_ARRAY_LEN(lines), &skill, NULL);
	EXPECT(&p, 0, "---\nname: cuda\n", "skill/include/ww/cpu.h\n[exit code 0]");
	EXPECT(&p, 1, "4\n");
	EXPECT(&p, 3, "---\nname: cuda\n");
	assert_string_equal(p.answers[4]->text, "note (2 bytes)\n1 of 1");
	ww_skill_close(&skill);
	played(&p);
}

/* ---- Going on after a kill --------------------------------------------------------------------------------------- */

static const struct line tuned[] = {
	BASH(
		"echo p > plan.c; cd /workspace; for us in 150 120 140; do echo us=$us > kernels.c; verify > $us.txt; done; profile --what=reference >> note"),
	{ "", { "verify", "read" }, { "{}", "{\"path\":\"note\"}" } },
	BASH("grep -l 'reward: 3' *.txt; echo us=110 > kernels.c; verify --brief; compile > /dev/null; rm 150.txt"),
	{ "hand in", { "submit" }, { "{}" } }
};

static void run_tuned(struct ww_str *out)
{
	struct fixture f;
	prepare(&f, dir, tuned, WW_ARRAY_LEN(tuned));
	if (ww_agent_run(&f.opts, &f.result, &f.err) != WW_OK)
		fail_msg("%s", f.err.msg);
	assert_true(f.result.ended && f.result.end.reward_final == 3);
	ww_str_reset(out);
	normal_form(dir, out);
	finish(&f);
}

/* From every prefix of the record, between the verdicts of one command too, the run ends with the same bytes. */
static void test_cut_everywhere(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str whole = WW_STR_INIT(16 << 20), want = WW_STR_INIT(16 << 20), got = WW_STR_INIT(16 << 20);
	char path[128];
	int cuts = 0;
	(void)state;
	snprintf(path, sizeof(path), "%s/episode.jsonl", dir);
	run_tuned(&want);
	assert_non_null(strstr(want.p, "\"call_1_0.3\""));
	assert_int_equal(ww_fs_read(path, 16 << 20, &whole, &err), WW_OK);
	for (char *p = strchr(whole.p, '\n') + 1, *nl; (nl = strchr(p, '\n')); p = nl + 1, cuts++) {
		assert_int_equal(ww_fs_write(path, whole.p, (size_t)(p - whole.p), &err), WW_OK);
		run_tuned(&got);
		assert_string_equal(got.p, want.p);
	}
	printf("cut after each of %d lines\n", cuts);
	assert_true(cuts > 15);
	ww_str_release(&whole);
	ww_str_release(&want);
	ww_str_release(&got);
}

/* A judge that fails inside a command is trouble of ours, not an answer; the run is gone on with and ends the same. */
static void test_judge_trouble(void **state)
{
	struct ww_str want = WW_STR_INIT(16 << 20), got = WW_STR_INIT(16 << 20);
	(void)state;
	run_tuned(&want);
	wipe();
	for (int at = 1; at <= 3; at++) {
		struct fixture f;
		prepare(&f, dir, tuned, WW_ARRAY_LEN(tuned));
		f.judge.fail_at = 2;
		assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_ERR_WORKER);
		assert_false(f.result.ended);
		finish(&f);
	}
	run_tuned(&got);
	assert_string_equal(got.p, want.p);
	ww_str_release(&want);
	ww_str_release(&got);
}

/* kill -9 while commands call tools: no sandbox stays behind, and the record of the run that comes through is the same.
 */
static void test_killed(void **state)
{
	struct ww_str want = WW_STR_INIT(16 << 20), got = WW_STR_INIT(16 << 20);
	int kills = 0, status = -1;
	(void)state;
	uint64_t start = ww_now_ns();
	run_tuned(&want);
	double whole_s = ww_seconds_since(start);
	wipe();
	for (int i = 0; status != 0; i++) {
		pid_t p = fork();
		if (!p) { /* the one before may have been killed behind the last record */
			struct fixture f;
			prepare(&f, dir, tuned, WW_ARRAY_LEN(tuned));
			_exit(ww_agent_run(&f.opts, &f.result, &f.err) != WW_OK && !strstr(f.err.msg, "has ended"));
		}
		if (i < 12) {
			usleep((useconds_t)(whole_s * 1e6 * (0.05 + 0.05 * i)));
			kill(p, SIGKILL);
		}
		waitpid(p, &status, 0);
		kills += WIFSIGNALED(status);
		assert_true(WIFSIGNALED(status) || status == 0);
	}
	normal_form(dir, &got);
	assert_string_equal(got.p, want.p);
	printf("%d kills\n", kills);
	assert_true(kills >= 3);
	ww_str_release(&want);
	ww_str_release(&got);
}

#define T(name) cmocka_unit_test_setup_teardown(name, script_setup, script_teardown)

int main(void)
{
	if (ww_sandbox_probe() != WW_SANDBOX_NAMESPACES) {
		puts("skipped: this system allows no namespaces");
		return 77;
	}
	const struct CMUnitTest tests[] = { T(test_answers), T(test_budgets), T(test_jobs), T(test_hostile), T(test_words),
		T(test_skill), T(test_cut_everywhere), T(test_judge_trouble), T(test_killed) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
