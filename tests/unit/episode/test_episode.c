/* The episode format: everything that is written comes back; a cut line loses only itself; damage is reported. */
#include "unit.h"

#include "base/err.h"
#include "base/fs.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>
#include "episode/episode.h"

static char dir[64], path[96];

static int setup(void **state)
{
	(void)state;
	/* A thousand synced writes: in memory where the system has such a directory. */
	strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/ww-episode-XXXXXX" : "/tmp/ww-episode-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/e.jsonl", dir);
	return 0;
}

static int teardown(void **state)
{
	struct ww_err err;
	(void)state;
	return ww_fs_remove_tree(dir, &err);
}

static void write_sample(void)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode_writer *w;
	struct ww_episode_header h = { .task_path = (char *)"t/softmax.py",
		.target = (char *)"cpu",
		.device = (char *)"a \"cpu\"",
		.policy = (char *)"planner",
		.rule = (char *)"strict",
		.task_id = "abc",
		.started = "2026-11-21T12:34:56Z",
		.seed = 7,
		.versions = json_pack("{s:s}", "torch", "2.11") };
	assert_int_equal(ww_episode_create(path, &h, &w, &err), WW_OK);
	json_decref(h.versions);
	struct ww_reply user = { .message = { .role = WW_ROLE_USER, .text = (char *)"make it fast\nplease \xc3\xa9\x01" } };
	assert_int_equal(ww_episode_add_message(w, 0, &user, &err), WW_OK);
	struct ww_tool_call calls[2] = { { (char *)"call_1_0", (char *)"write", (char *)"{\"path\": \"plan.c\"" },
		{ (char *)"call_1_1", (char *)"verify", (char *)"{}" } };
	int32_t ids[3] = { 5, 0, 151935 };
	float lp[3] = { -0.1f, -1e-30f, -17.25f }, slp[3] = { 0, -0.333333343f, -2 };
	struct ww_reply a = { .message = { .role = WW_ROLE_ASSISTANT,
							  .text = (char *)"",
							  .calls = calls,
							  .n_calls = 2,
							  .reasoning = (char *)"because\n",
							  .native = (char *)"{\"protocol\":\"x\",\"n\":[1,0.1]}" },
		.finish = WW_FINISH_TOOL_CALLS,
		.n_tokens = 3,
		.token_ids = ids,
		.logprobs = lp,
		.sampling_logprobs = slp,
		.prompt_tokens = 100,
		.completion_tokens = 3,
		.usd = 0.25 };
	assert_int_equal(ww_episode_add_message(w, 1, &a, &err), WW_OK);
	struct ww_reply t = { .message = { .role = WW_ROLE_TOOL,
							  .text = (char *)"bad",
							  .call_id = (char *)"call_1_0",
							  .tool = (char *)"write",
							  .data = (char *)"{\"x\":[1,2.5,null]}",
							  .is_error = 1 } };
	assert_int_equal(ww_episode_add_message(w, 1, &t, &err), WW_OK);
	struct ww_episode_file files[2] = { { (char *)"kernels.c", (char *)"int x;\n" }, { (char *)"plan.c", (char *)"" } };
	assert_int_equal(ww_episode_add_solution(w, 1, "id1", files, 2, &err), WW_OK);
	json_t *v = json_pack("{s:s, s:n}", "status", "ok", "reward");
	assert_int_equal(ww_episode_add_verdict(w, 1, "call_1_1", "id1", "full", v, &err), WW_OK);
	json_decref(v);
	struct ww_episode_lost l = { .usd = 0.125, .prompt_tokens = 7, .completion_tokens = 2, .why = (char *)"cut" };
	assert_int_equal(ww_episode_add_lost(w, 1, &l, &err), WW_OK);
	char *ids_out[] = { (char *)"call_1_0" };
	struct ww_episode_compaction c = { .call_ids = ids_out, .n_calls = 1, .bytes = 3 };
	assert_int_equal(ww_episode_add_compaction(w, 1, &c, &err), WW_OK);
	struct ww_episode_end end = {
		.reason = "submitted", .best = "id1", .reward_final = 3, .reward_best = 3, .seconds = 1.5
	};
	assert_int_equal(ww_episode_add_end(w, 1, &end, &err), WW_OK);
	ww_episode_close(w);
}

static void test_round_trip(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode e;
	(void)state;
	write_sample();
	assert_int_equal(ww_episode_read(path, &e, &err), WW_OK);
	assert_string_equal(e.header.device, "a \"cpu\"");
	assert_string_equal(e.header.task_id, "abc");
	assert_int_equal(e.header.seed, 7);
	assert_string_equal(json_string_value(json_object_get(e.header.versions, "torch")), "2.11");
	assert_int_equal(e.n_messages, 3);
	assert_string_equal(e.messages[0].reply.message.text, "make it fast\nplease \xc3\xa9\x01");
	const struct ww_reply *a = &e.messages[1].reply;
	assert_int_equal(a->finish, WW_FINISH_TOOL_CALLS);
	assert_int_equal(a->message.n_calls, 2);
	assert_string_equal(a->message.calls[0].arguments, "{\"path\": \"plan.c\"");
	assert_int_equal(a->n_tokens, 3);
	assert_int_equal(a->token_ids[2], 151935);
	float want[3] = { -0.1f, -1e-30f, -17.25f };
	assert_memory_equal(a->logprobs, want, sizeof(want));
	assert_true(a->sampling_logprobs[1] == -0.333333343f);
	assert_int_equal(a->prompt_tokens, 100);
	assert_true(a->usd == 0.25);
	assert_string_equal(a->message.reasoning, "because\n");
	assert_string_equal(a->message.native, "{\"protocol\":\"x\",\"n\":[1,0.10000000000000001]}");
	assert_int_equal(e.n_lost, 1);
	assert_true(e.lost[0].usd == 0.125 && e.lost[0].prompt_tokens == 7 && e.lost[0].completion_tokens == 2);
	assert_string_equal(e.lost[0].why, "cut");
	assert_int_equal(e.n_compactions, 1);
	assert_string_equal(e.compactions[0].call_ids[0], "call_1_0");
	assert_int_equal(e.compactions[0].bytes, 3);
	assert_string_equal(e.messages[2].reply.message.data, "{\"x\":[1,2.5,null]}");
	assert_int_equal(e.messages[2].reply.message.is_error, 1);
	assert_int_equal(e.messages[2].turn, 1);
	const struct ww_episode_solution *s = ww_episode_find_solution(&e, "id1");
	assert_non_null(s);
	assert_string_equal(ww_episode_file_text(s, "kernels.c"), "int x;\n");
	assert_null(ww_episode_file_text(s, "kernels.cu"));
	assert_int_equal(e.n_verdicts, 1);
	assert_string_equal(e.verdicts[0].depth, "full");
	assert_true(e.ended);
	assert_true(e.end.reward_final == 3);
	ww_episode_release(&e);
}

/* Cut the file at every byte: the reader sees whole lines only, and appending continues from them. */
static void test_cut_anywhere(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str all = WW_STR_INIT(1 << 20);
	(void)state;
	write_sample();
	assert_int_equal(ww_fs_read(path, 1 << 20, &all, &err), WW_OK);
	size_t header = (size_t)(strchr(all.p, '\n') - all.p) + 1;
	for (size_t cut = 0; cut <= all.len; cut += cut < header ? 17 : 1) {
		size_t lines = 0, whole = 0;
		for (size_t i = 0; i < cut; i++)
			if (all.p[i] == '\n')
				lines++, whole = i + 1;
		assert_int_equal(ww_fs_write(path, all.p, cut, &err), WW_OK);
		struct ww_episode e;
		if (!lines) {
			assert_int_equal(ww_episode_read(path, &e, &err), WW_ERR_USAGE);
			continue;
		}
		struct ww_episode_writer *w;
		assert_int_equal(ww_episode_append(path, &e, &w, &err), WW_OK);
		assert_int_equal(
			1 + e.n_messages + e.n_solutions + e.n_verdicts + e.n_lost + e.n_compactions + (size_t)e.ended, lines);
		assert_int_equal(e.whole_bytes, whole);
		ww_episode_release(&e);
		struct ww_reply user = { .message = { .role = WW_ROLE_USER, .text = (char *)"again" } };
		assert_int_equal(ww_episode_add_message(w, 9, &user, &err), WW_OK);
		ww_episode_close(w);
		assert_int_equal(ww_episode_read(path, &e, &err), WW_OK);
		assert_string_equal(e.messages[e.n_messages - 1].reply.message.text, "again");
		assert_int_equal(e.messages[e.n_messages - 1].turn, 9);
		ww_episode_release(&e);
	}
	ww_str_release(&all);
}

static void expect(const char *text, int rc, const char *says)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode e;
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
	assert_int_equal(ww_episode_read(path, &e, &err), rc);
	assert_non_null(strstr(err.msg, says));
}

static void expect_damage(const char *text, const char *says) { expect(text, WW_ERR_PROTOCOL, says); }

#define HEADER(version)                                                                                                \
	"{\"type\":\"header\",\"version\":" version                                                                    \
	",\"task\":{\"path\":\"p\",\"id\":\"i\"},\"target\":\"cpu\",\"device\":\"\","                                  \
	"\"policy\":\"p\",\"seed\":0,\"rule\":\"strict\",\"versions\":{},\"started\":\"\"}\n"

static void test_damage(void **state)
{
	(void)state;
	expect("", WW_ERR_USAGE, "no complete line");
	expect("{\"type\":\"message\"}\n{}\n", WW_ERR_USAGE, "line 1");
	expect("{\"messages\":[]}\n{}\n", WW_ERR_USAGE, "no episode"); /* a line of `episode export` */
	expect("# Warpwright\n\nA page.\n", WW_ERR_USAGE, "no episode");
	expect_damage(HEADER("2"), "version 2");
	expect_damage(HEADER("1") "garbage\n{\"type\":\"x\"}\n", "line 2");
	expect_damage(HEADER("1") "{\"type\":\"message\",\"role\":\"robot\",\"text\":\"\"}\n", "robot");
	expect_damage(HEADER("1") HEADER("1"), "second header");
	expect_damage(HEADER("1") "{\"type\":\"message\",\"role\":\"assistant\",\"text\":\"\",\"calls\":[],\"finish\":"
							  "\"stop\","
							  "\"tokens\":{\"ids\":[1,2],\"logprobs\":[0]}}\n",
		"logprobs");
}

static void test_unknown_lines_are_ignored(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode e;
	(void)state;
	const char *text = HEADER("1") "{\"type\":\"weather\",\"t\":2.5}\n";
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
	assert_int_equal(ww_episode_read(path, &e, &err), WW_OK);
	assert_true(e.seconds == 2.5);
	ww_episode_release(&e);
}

static void test_one_writer(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode e, f;
	struct ww_episode_writer *w, *second;
	(void)state;
	write_sample();
	assert_int_equal(ww_episode_append(path, &e, &w, &err), WW_OK);
	assert_int_equal(ww_episode_append(path, &f, &second, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "another process"));
	ww_episode_close(w);
	ww_episode_release(&e);
}

/* A write that does not fit (here by RLIMIT_FSIZE, as on a full disk) leaves whole lines only. */
static void test_no_space(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode e;
	struct ww_episode_writer *w;
	(void)state;
	write_sample();
	assert_int_equal(ww_episode_append(path, &e, &w, &err), WW_OK);
	long long before = e.whole_bytes;
	ww_episode_release(&e);
	struct rlimit old, small;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = (rlim_t)before + 40;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	struct ww_reply user = { .message = { .role = WW_ROLE_USER, .text = (char *)"this line does not fit any more" } };
	int rc = ww_episode_add_message(w, 1, &user, &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(rc, WW_ERR_IO);
	ww_episode_close(w);
	assert_int_equal(ww_episode_read(path, &e, &err), WW_OK);
	assert_int_equal(e.whole_bytes, before);
	struct ww_str all = WW_STR_INIT(1 << 20);
	assert_int_equal(ww_fs_read(path, 1 << 20, &all, &err), WW_OK);
	assert_int_equal(all.len, before);
	ww_str_release(&all);
	ww_episode_release(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_anywhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown_lines_are_ignored, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_writer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_space, setup, teardown) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
