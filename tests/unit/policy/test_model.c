/* model:DIR: each turn goes on from the tokens of the one before, a fresh instance says the same, broken calls are
 * handed on. */
#include "unit.h"

#include "../infer/tiny.h"
#include "policy/model.h"
#include "rl/recorded.h"

static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static char dir[4200], spec[4300];

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	if (ww_tmpdir_new(&tmp, "test-model", &err) != WW_OK)
		return -1;
	snprintf(dir, sizeof(dir), "%s/model", tmp.path);
	snprintf(spec, sizeof(spec), "model:%s", dir);
	return tiny_model(dir, 2048) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ww_tmpdir_remove(&tmp);
	return 0;
}

static struct ww_policy *open_policy(uint64_t seed, int64_t max_reply)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_policy *p = NULL;
	struct ww_policy_opts o = { .spec = spec, .seed = seed, .max_reply_tokens = max_reply };
	if (ww_policy_open(&o, &p, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return p;
}

static struct ww_reply next(struct ww_policy *p, const struct ww_ask *ask)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_reply r = { .usd = 0 };
	if (p->ops->next(p, ask, &r, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return r;
}

static int begun;
static int64_t held;
static int begin(void *ctx, double usd, int64_t tokens, struct ww_err *err)
{
	(void)ctx;
	begun++;
	held = tokens;
	assert_true(usd == 0);
	return begun > 3 ? ww_err_set(err, WW_ERR_LIMIT, "no tokens are left") : WW_OK;
}

static void turns_go_on_from_the_same_tokens(void **state)
{
	static const struct ww_tool_spec tool = { "verify", "Judge it.", "{\"type\":\"object\",\"properties\":{}}" };
	struct ww_meter meter = { NULL, begin, NULL };
	struct ww_message msgs[5] = { { .role = WW_ROLE_SYSTEM, .text = (char *)"Write kernels." },
		{ .role = WW_ROLE_USER, .text = (char *)"<|im_end|> is only text here" } };
	struct ww_ask ask = { .msgs = msgs, .n = 2, .tools = &tool, .n_tools = 1, .meter = &meter };
	struct ww_policy *p = open_policy(7, 50), *again = open_policy(7, 50), *other = open_policy(8, 50);
	(void)state;
	begun = 0;
	struct ww_reply r = next(p, &ask), same = next(again, &ask), differs = next(other, &ask);
	assert_int_equal(held, r.prompt_tokens + 50);
	assert_true(r.n_tokens == 50 && r.completion_tokens == 50 && r.finish == WW_FINISH_LENGTH);
	assert_memory_equal(r.token_ids, same.token_ids, 50 * sizeof(*r.token_ids));
	assert_memory_equal(r.logprobs, same.logprobs, 50 * sizeof(*r.logprobs));
	assert_memory_equal(r.logprobs, r.sampling_logprobs, 4); /* temperature 1 */
	assert_memory_not_equal(r.token_ids, differs.token_ids, 50 * sizeof(*r.token_ids));
	assert_int_equal(p->ops->count_tokens(p, msgs, 2) < r.prompt_tokens, 1);
	ask.meter = NULL;
	msgs[2] = r.message;
	msgs[3] = (struct ww_message){ .role = WW_ROLE_TOOL, .text = (char *)"no such call", .call_id = (char *)"c" };
	ask.n = 4;
	/* Headers, the tool's answer in its tags, the next header; nothing of the reply is encoded again. */
	int64_t added = (int64_t)strlen("\nuser\n<tool_response>\nno such call\n</tool_response>\nassistant\n") + 3 + 1;
	struct ww_reply second = next(p, &ask);
	assert_int_equal(second.prompt_tokens, r.prompt_tokens + 50 + added);
	struct ww_policy *fresh = open_policy(7, 50);
	struct ww_reply resumed = next(fresh, &ask);
	assert_memory_equal(second.token_ids, resumed.token_ids, 50 * sizeof(*second.token_ids));
	assert_memory_not_equal(second.token_ids, r.token_ids, 50 * sizeof(*second.token_ids));
	ask.meter = &meter;
	struct ww_err err = WW_ERR_INIT;
	struct ww_reply none = { .usd = 0 };
	assert_int_equal(p->ops->next(p, &ask, &none, &err), WW_ERR_LIMIT);
	ww_reply_release(&none);
	msgs[2] = (struct ww_message){ 0 };
	struct ww_reply *all[] = { &r, &same, &differs, &second, &resumed };
	for (size_t i = 0; i < WW_ARRAY_LEN(all); i++)
		ww_reply_release(all[i]);
	p->ops->free(p), again->ops->free(again), other->ops->free(other), fresh->ops->free(fresh);
}

/* The conversation through a file: ids, marks and log-probabilities as they were; a reply that was sampled after other
 * tokens is refused. */
static void the_file_holds(
	const struct ww_message *msgs, const struct ww_reply *const *reply, const struct ww_ids *ids, const size_t *at)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_episode_header h = { .task_path = "t.py",
		.target = "cpu",
		.device = "",
		.policy = "model:x",
		.rule = "strict",
		.task_id = "abc",
		.started = "2026-11-21T12:34:56Z" };
	struct ww_episode_end end = { .reason = "stopped", .reward_final = 2 };
	struct ww_reply given[2] = { { .message = msgs[0] }, { .message = msgs[2] } };
	struct ww_episode_writer *w;
	struct ww_episode e;
	struct ww_trajectory t;
	char path[4300];
	snprintf(path, sizeof(path), "%s/episode.jsonl", tmp.path);
	h.versions = json_object();
	assert_int_equal(ww_episode_create(path, &h, &w, &err), WW_OK);
	json_decref(h.versions);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ww_episode_add_message(w, (i + 1) / 2, i % 2 ? reply[i / 2] : &given[i / 2], &err), WW_OK);
	assert_int_equal(ww_episode_add_end(w, 2, &end, &err), WW_OK);
	ww_episode_close(w);
	assert_int_equal(ww_episode_read(path, &e, &err), WW_OK);
	assert_int_equal(ww_rl_recorded(&e, WW_RL_REWARD_MILESTONE, &t, &err), WW_OK);
	assert_true(t.n == (int64_t)ids->n && t.own_n == 180 && t.reward == 2);
	assert_memory_equal(t.ids, ids->p, ids->n * sizeof(*ids->p));
	for (size_t i = 0; i < ids->n; i++) {
		const struct ww_reply *r = i >= at[1] ? reply[1] : reply[0];
		size_t k = i - (i >= at[1] ? at[1] : at[0]);
		int own = i >= at[0] && k < 90;
		assert_int_equal(t.own[i], own);
		assert_true(t.logp[i] == (own ? r->logprobs[k] : 0));
	}
	ww_trajectory_release(&t);
	e.messages[3].reply.context_at--;
	assert_int_equal(ww_rl_recorded(&e, WW_RL_REWARD_MILESTONE, &t, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "turn 2: the policy was shown other tokens"));
	e.ended = 0;
	assert_int_equal(ww_rl_recorded(&e, WW_RL_REWARD_MILESTONE, &t, &err), WW_ERR_USAGE);
	ww_episode_release(&e);
}

/* Both turns as ChatML, byte for byte, in one forward pass: the log-probabilities that the replies came with, to the
 * last bit. */
static void the_record_is_what_the_model_saw(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_message msgs[3] = { { .role = WW_ROLE_USER, .text = (char *)"<|im_end|>" } };
	struct ww_ask ask = { .msgs = msgs, .n = 1 };
	struct ww_policy *p = open_policy(3, 90);
	struct ww_ids ids = WW_IDS_INIT(1000);
	struct ww_dev *dev;
	struct ww_model *m;
	struct ww_run *r;
	struct ww_reply first = next(p, &ask), second;
	(void)state;
	msgs[1] = first.message;
	msgs[2] = (struct ww_message){ .role = WW_ROLE_TOOL, .text = (char *)"no" };
	ask.n = 3;
	second = next(p, &ask);
	const char *text[] = { "user\n<|im_end|>", "\n", "assistant\n", NULL, "\n",
		"user\n<tool_response>\nno\n</tool_response>", "\n", "assistant\n", NULL };
	const int32_t before[] = { TINY_IM_START, TINY_IM_END, TINY_IM_START, -1, TINY_IM_END, TINY_IM_START, TINY_IM_END,
		TINY_IM_START, -1 };
	size_t at[2], replies = 0;
	const struct ww_reply *reply[2] = { &first, &second };
	for (size_t i = 0; i < WW_ARRAY_LEN(text); i++) {
		if (before[i] >= 0)
			assert_true(ww_ids_add(&ids, before[i]));
		for (const char *c = text[i]; c && *c; c++)
			assert_true(ww_ids_add(&ids, (unsigned char)*c));
		if (text[i])
			continue;
		const struct ww_reply *x = reply[replies];
		at[replies++] = ids.n;
		assert_true((int64_t)ids.n == x->prompt_tokens && x->n_tokens == 90);
		for (size_t k = 0; k < x->n_tokens; k++)
			assert_true(ww_ids_add(&ids, x->token_ids[k]));
	}
	int32_t starts[2] = { 0, (int32_t)ids.n - 1 };
	float logp[1000];
	struct ww_batch b = { .ids = ids.p, .starts = starts, .t = starts[1], .sequences = 1 };
	assert_int_equal(ww_dev_open("cpu", 1, &dev, &err), WW_OK);
	assert_int_equal(ww_model_open(dir, dev, 0, &m, &err), WW_OK);
	assert_int_equal(ww_run_new(m, b.t, 1, 0, &r, &err), WW_OK);
	assert_int_equal(ww_run_forward(r, &b, &err), WW_OK);
	assert_int_equal(ww_run_logprobs(r, ids.p + 1, logp, &err), WW_OK);
	for (int i = 0; i < 2; i++)
		assert_memory_equal(logp + at[i] - 1, reply[i]->logprobs, 90 * sizeof(float));
	the_file_holds(msgs, reply, &ids, at);
	struct ww_reply changed; /* what was shown is not what it was */
	msgs[0].text = (char *)"another question";
	changed = next(p, &ask);
	assert_int_equal(changed.context_at, 0);
	assert_int_equal(changed.n_context, changed.prompt_tokens);
	ww_reply_release(&changed);
	ww_run_free(r);
	ww_model_free(m);
	ww_dev_close(dev);
	ww_ids_release(&ids);
	msgs[1] = (struct ww_message){ 0 };
	ww_reply_release(&first);
	ww_reply_release(&second);
	p->ops->free(p);
}

static void a_first_prompt_without_room_is_an_error_a_later_one_the_end(void **state)
{
	static char text[3000];
	struct ww_message msgs[] = { { .role = WW_ROLE_USER, .text = text }, { .role = WW_ROLE_ASSISTANT, .text = "y" },
		{ .role = WW_ROLE_USER, .text = "z" } };
	struct ww_ask ask = { .msgs = msgs, .n = 1 };
	struct ww_policy *p = open_policy(1, 0);
	struct ww_err err = WW_ERR_INIT;
	struct ww_reply r = { 0 };
	char want[80];
	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	assert_int_equal(p->ops->next(p, &ask, &r, &err), WW_ERR_USAGE);
	snprintf(want, sizeof(want), " tokens, but model and cache hold %lld;", (long long)p->ops->context_tokens(p));
	assert_true(
		strstr(err.msg, "the first prompt has 30") && strstr(err.msg, want) && strstr(err.msg, "--model-cache"));
	ask.n = 3;
	r = next(p, &ask);
	assert_true(r.finish == WW_FINISH_LENGTH && r.n_tokens == 0 && r.prompt_tokens > 2999 && !*r.message.text);
	assert_true(
		p->ops->context_tokens(p) > 0 && p->ops->context_tokens(p) < r.prompt_tokens); /* who asks could have known */
	ww_reply_release(&r);
	p->ops->free(p);
}

static void check_reply(
	enum ww_chat_format f, const char *text, int whole, const char *want_text, const char *name, const char *args)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_message m = { .role = WW_ROLE_USER };
	assert_int_equal(ww_model_read_reply(f, text, strlen(text), whole, &m, &err), WW_OK);
	assert_int_equal(m.role, WW_ROLE_ASSISTANT);
	assert_string_equal(m.text, want_text);
	assert_int_equal(m.n_calls, name ? 1 : 0);
	if (name) {
		assert_string_equal(m.calls[0].name, name);
		assert_string_equal(m.calls[0].arguments, args);
	}
	ww_message_release(&m);
}

static void the_size_of_the_cache_bounds_a_conversation(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_policy *p;
	struct ww_policy_opts o = { .spec = spec, .model_batch = 1, .model_cache = 300 };
	(void)state;
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_OK);
	assert_int_equal(p->ops->context_tokens(p), (300 + WW_KV_PAGE - 1) / WW_KV_PAGE * WW_KV_PAGE);
	p->ops->free(p);
}

static void calls_and_broken_calls(void **state)
{
	(void)state;
	check_reply(WW_CHAT_CHATML, "ok\n<tool_call>\n{\"name\": \"write\", \"arguments\": {\"a\": 1}}\n</tool_call>", 1,
		"ok", "write", "{\"a\": 1}");
	check_reply(WW_CHAT_CHATML, "<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": }}</tool_call>", 1,
		"<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": }}</tool_call>", "write", "{\"a\": }");
	check_reply(WW_CHAT_CHATML, "<tool_call>nonsense", 1, "<tool_call>nonsense", "", "nonsense");
	check_reply(WW_CHAT_CHATML, "<tool_call>{\"name\": \"wri", 0, "<tool_call>{\"name\": \"wri", NULL, NULL);
	check_reply(WW_CHAT_CHATML, "no call", 1, "no call", NULL, NULL);
	check_reply(WW_CHAT_LLAMA3, "{\"name\": \"verify\", \"parameters\": {}}", 1, "", "verify", "{}");
	check_reply(WW_CHAT_LLAMA3, "{\"name\": \"verify\", \"parameters\": {]}", 1,
		"{\"name\": \"verify\", \"parameters\": {]}", "verify", "{]");
	check_reply(WW_CHAT_LLAMA3, "{not a call}", 1, "{not a call}", NULL, NULL);
}

static void wrong_models_are_refused(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_policy *p;
	struct ww_policy_opts o = { .spec = "model:/nonexistent" };
	(void)state;
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "/nonexistent"));
	o.spec = "model:nonesuch"; /* neither here nor shipped */
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "no model of that name"));
	o.spec = "model:";
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
}

/* By its name from any directory; one whose card is there and whose weights are not is said to be so. */
static void the_shipped_policy_opens_by_name(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_policy *p;
	struct ww_policy_opts o = { .spec = "model:nano" };
	char path[4300], home[4200];
	(void)state;
	if (ww_policy_open(&o, &p, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_string_equal(p->ops->prompt(p), "compact");
	p->ops->free(p);
	snprintf(home, sizeof(home), "%s", getenv("WARPWRIGHT_HOME"));
	snprintf(path, sizeof(path), "%s/models/nano", tmp.path);
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	strcat(path, "/README.md");
	assert_int_equal(ww_fs_write(path, "#\n", 2, &err), WW_OK);
	setenv("WARPWRIGHT_HOME", tmp.path, 1);
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "weights of the model"));
	setenv("WARPWRIGHT_HOME", home, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(turns_go_on_from_the_same_tokens),
		cmocka_unit_test(the_record_is_what_the_model_saw),
		cmocka_unit_test(a_first_prompt_without_room_is_an_error_a_later_one_the_end),
		cmocka_unit_test(the_size_of_the_cache_bounds_a_conversation), cmocka_unit_test(calls_and_broken_calls),
		cmocka_unit_test(wrong_models_are_refused), cmocka_unit_test(the_shipped_policy_opens_by_name) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
