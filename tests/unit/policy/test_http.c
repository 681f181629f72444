/* Policies over HTTP against tests/http/server.py, which plays every fault of both protocols: nothing that was said is
 * lost, nothing is paid for twice, and the key appears nowhere. */
#include "unit.h"

#include "../../http/server.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "policy/http/journal.h"
#include "policy/http/key.h"
#include "policy/http/price.h"

#include <pthread.h>
#include <sys/stat.h>

#define KEY "sk-test-5up3r-s3cr3t-key"

static const char *const protocols[] = { "openai", "anthropic" };
static char dir[64], log_path[96], journal_path[96];
static int port;
static struct http_server server;

static const struct ww_tool_spec tools[] = { { "inspect", "Look.", "{\"type\":\"object\",\"properties\":{}}" } };
static const struct ww_message opening[] = { { .role = WW_ROLE_SYSTEM, .text = (char *)"You write kernels." },
	{ .role = WW_ROLE_USER, .text = (char *)"class Model: pass" } };

static int start_server(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ww-http-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(log_path, sizeof(log_path), "%s/requests.jsonl", dir);
	snprintf(journal_path, sizeof(journal_path), "%s/reply.journal", dir);
	int rc = http_server_start(&server, log_path, NULL);
	port = server.port;
	return rc;
}

static int stop_server(void **state)
{
	struct ww_err err;
	(void)state;
	http_server_stop(&server);
	return ww_fs_remove_tree(dir, &err);
}

/* ---- A meter that counts ----------------------------------------------------------------------------------------- */

struct count {
	int begun, lost;
	double lost_usd, most_usd;
	int64_t lost_tokens;
	char why[256];
	int allow;
};

static int begin(void *ctx, double usd, int64_t n, struct ww_err *err)
{
	struct count *c = ctx;
	(void)n;
	c->most_usd = usd;
	if (c->begun++ >= c->allow)
		return ww_err_set(err, WW_ERR_LIMIT, "nothing left");
	return WW_OK;
}

static int lost(void *ctx, double usd, int64_t in, int64_t out, const char *why, struct ww_err *err)
{
	struct count *c = ctx;
	(void)err;
	c->lost++;
	c->lost_usd += usd;
	c->lost_tokens += in + out;
	snprintf(c->why, sizeof(c->why), "%.255s", why);
	return WW_OK;
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

struct asked {
	struct ww_policy *policy;
	struct ww_reply reply;
	struct ww_err err;
	struct count count;
	struct ww_meter meter;
	const volatile int *interrupted;
	int rc;
	double seconds;
};

static void open_policy(struct asked *a, const char *protocol, const char *scenario)
{
	char base[128], spec[64], prices[96];
	struct ww_err err = WW_ERR_INIT;
	const char table[] = "openai:m 1 0.5 1 10\nanthropic:m 1 0.5 2 10\n";
	memset(a, 0, sizeof(*a));
	a->count.allow = 100;
	a->meter = (struct ww_meter){ &a->count, begin, lost };
	snprintf(prices, sizeof(prices), "%s/prices", dir);
	assert_int_equal(ww_fs_write(prices, table, sizeof(table) - 1, &err), WW_OK);
	snprintf(base, sizeof(base), "http://127.0.0.1:%d/%s%s", port, scenario, protocol == protocols[0] ? "/v1" : "");
	snprintf(spec, sizeof(spec), "%s:m", protocol);
	struct ww_policy_opts o = { .spec = spec,
		.base_url = base,
		.prices = prices,
		.need_price = 1,
		.backoff_s = 0.01,
		.stall_s = 1,
		.call_s = strcmp(scenario, "stall") && strcmp(scenario, "slow") ? 20 : 0.4,
		.attempts = 4,
		.max_reply_tokens = 4000 };
	if (ww_policy_open(&o, &a->policy, &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static void ask_with(struct asked *a, const struct ww_message *msgs, size_t n, const char *journal)
{
	struct ww_ask ask = { .msgs = msgs,
		.n = n,
		.tools = tools,
		.n_tools = 1,
		.meter = &a->meter,
		.journal = journal,
		.interrupted = a->interrupted };
	uint64_t start = ww_now_ns();
	ww_reply_release(&a->reply);
	a->rc = a->policy->ops->next(a->policy, &ask, &a->reply, &a->err);
	a->seconds = ww_seconds_since(start);
}

static void ask(struct asked *a, const char *protocol, const char *scenario)
{
	open_policy(a, protocol, scenario);
	ask_with(a, opening, 2, journal_path);
	assert_null(strstr(a->err.msg, KEY));
}

static void done(struct asked *a)
{
	ww_reply_release(&a->reply);
	a->policy->ops->free(a->policy);
	unlink(journal_path);
}

static int requests_of(const char *protocol, const char *scenario)
{
	struct ww_str text = WW_STR_INIT(64 << 20);
	struct ww_err err = WW_ERR_INIT;
	char path[96];
	int n = 0;
	snprintf(path, sizeof(path), "\"/%s/v1/%s\"", scenario, protocol == protocols[0] ? "chat" : "messages");
	path[strlen(path) - 1] = 0;
	assert_int_equal(ww_fs_read(log_path, 64 << 20, &text, &err), WW_OK);
	for (const char *p = text.p; (p = strstr(p, path)); p++)
		n++;
	ww_str_release(&text);
	return n;
}

static const char thinking[] = "Rows are short.\nOne block a row; \"vectors\" of 4 \xe2\x80\x94 done.";
static const char said[] = "I look first: \xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80.";
static const char arguments[] = "{\"path\": \"kernels.c\", \"text\": \"int x = 1;\\n\\t\\\"quoted\\\"\"}";

/* The reply of the scenario "plain", whole. */
static void expect_plain(struct asked *a, const char *protocol)
{
	const struct ww_message *m = &a->reply.message;
	if (a->rc != WW_OK)
		fail_msg("%s: %s", protocol, a->err.msg);
	assert_string_equal(m->text, said);
	assert_string_equal(m->reasoning, thinking);
	assert_int_equal(m->n_calls, 2);
	assert_string_equal(m->calls[0].name, "inspect");
	assert_string_equal(m->calls[1].name, "write");
	assert_string_equal(m->calls[1].arguments, arguments);
	assert_int_equal(a->reply.finish, WW_FINISH_TOOL_CALLS);
	assert_int_equal(a->reply.prompt_tokens, 1000);
	assert_int_equal(a->reply.completion_tokens, 50);
	double usd = protocol == protocols[0] ? 400e-6 + 600 * 0.5e-6 + 50 * 10e-6
										  : 300e-6 + 100 * 2e-6 + 600 * 0.5e-6 + 50 * 10e-6;
	assert_true(a->reply.usd > usd * 0.999999 && a->reply.usd < usd * 1.000001);
}

/* One scenario in both protocols: each reply is looked at by `check`, and the requests that it took are counted. */
static void in_both(const char *scenario, int requests, void (*check)(struct asked *a, int p, const void *expected),
	const void *expected)
{
	for (int p = 0; p < 2; p++) {
		struct asked a;
		ask(&a, protocols[p], scenario);
		check(&a, p, expected);
		if (requests_of(protocols[p], scenario) != requests)
			fail_msg(
				"%s %s: %d requests, not %d", protocols[p], scenario, requests_of(protocols[p], scenario), requests);
		done(&a);
	}
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

struct loss {
	int requests, lost;
	double least_s;
};

static void expect_whole(struct asked *a, int p, const void *expected)
{
	const struct loss *want = expected;
	expect_plain(a, protocols[p]);
	assert_int_equal(a->count.begun, want->requests);
	assert_int_equal(a->count.lost, want->lost);
	assert_true((a->count.lost_usd > 0) == (want->lost > 0));
	assert_true(a->seconds >= want->least_s);
	assert_true(a->count.most_usd > a->reply.usd);
}

/* Scenarios that end in the reply "plain" after so many requests, so many of them with something lost. */
static void test_nothing_is_lost(void **state)
{
	static const struct {
		const char *scenario;
		struct loss want;
	} cases[] = { { "plain", { 1, 0, 0 } }, { "reasoning", { 1, 0, 0 } }, { "drip", { 1, 0, 0.05 } },
		{ "r429", { 2, 0, 1 } }, { "r5xx", { 4, 0, 0 } }, { "cut", { 2, 1, 0 } }, { "stall", { 2, 1, 0.3 } },
		{ "badjson", { 2, 1, 0 } }, { "inerror", { 2, 1, 0 } }, { "slow", { 2, 1, 0.3 } } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++)
		in_both(cases[i].scenario, cases[i].want.requests, expect_whole, &cases[i].want);
}

static void expect_unstreamed(struct asked *a, int p, const void *expected)
{
	(void)p, (void)expected;
	assert_int_equal(a->rc, WW_OK);
	assert_string_equal(a->reply.message.text, said);
	assert_string_equal(a->reply.message.reasoning, thinking);
	assert_int_equal(a->reply.message.n_calls, 2);
	assert_int_equal(a->reply.completion_tokens, 50);
}

static void test_whole_without_stream(void **state)
{
	(void)state;
	in_both("whole", 1, expect_unstreamed, NULL);
}

static void expect_estimated(struct asked *a, int p, const void *expected)
{
	(void)p, (void)expected;
	assert_int_equal(a->rc, WW_OK);
	assert_string_equal(a->reply.message.text, said);
	assert_true(a->reply.prompt_tokens > 50 && a->reply.completion_tokens > 20);
}

/* Cut after the server had said why it stopped: the reply is whole, its usage an estimate. */
static void test_cut_after_the_end(void **state)
{
	(void)state;
	in_both("late", 1, expect_estimated, NULL);
}

static void expect_ten_calls(struct asked *a, int p, const void *expected)
{
	(void)p, (void)expected;
	assert_int_equal(a->rc, WW_OK);
	assert_int_equal(a->reply.message.n_calls, 10);
	for (int i = 0; i < 10; i++) {
		char want[64];
		snprintf(want, sizeof(want), "{\"path\": \"plan.c\", \"lines\": %d}", i);
		assert_string_equal(a->reply.message.calls[i].arguments, want);
	}
}

static void test_ten_parallel_calls(void **state)
{
	(void)state;
	in_both("calls10", 1, expect_ten_calls, NULL);
}

struct outcome {
	enum ww_finish finish;
	size_t calls;
};

static void expect_outcome(struct asked *a, int p, const void *expected)
{
	const struct outcome *want = expected;
	if (a->rc != WW_OK)
		fail_msg("%s: %s", protocols[p], a->err.msg);
	assert_int_equal(a->reply.finish, want->finish);
	assert_int_equal(a->reply.message.n_calls, want->calls);
	for (size_t i = 0; i < want->calls; i++)
		assert_true(strlen(a->reply.message.calls[i].arguments) <= WW_WIRE_REPLY_MAX_BYTES);
}

static void test_outcomes(void **state)
{
	static const struct {
		const char *scenario;
		struct outcome want;
	} cases[] = { { "refusal", { WW_FINISH_REFUSAL, 0 } }, { "filtered", { WW_FINISH_REFUSAL, 0 } },
		{ "length", { WW_FINISH_LENGTH, 0 } }, { "wrongtool", { WW_FINISH_TOOL_CALLS, 2 } },
		{ "badarguments", { WW_FINISH_TOOL_CALLS, 1 } }, { "giant", { WW_FINISH_LENGTH, 1 } } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++)
		in_both(cases[i].scenario, 1, expect_outcome, &cases[i].want);
}

struct trouble {
	int rc;
	const char *says;
};

static void expect_trouble(struct asked *a, int p, const void *expected)
{
	const struct trouble *want = expected;
	(void)p;
	assert_int_equal(a->rc, want->rc);
	if (!strstr(a->err.msg, want->says) || strchr(a->err.msg, '\033'))
		fail_msg("no \"%s\" in: %s", want->says, a->err.msg);
}

static void test_errors(void **state)
{
	static const struct {
		const char *scenario;
		int requests;
		struct trouble want;
	} cases[] = { { "wrongkey", 1, { WW_ERR_USAGE, "does not accept the key" } },
		{ "nomodel", 1, { WW_ERR_USAGE, "no such model" } }, { "toolong", 1, { WW_ERR_USAGE, "--max-reply-tokens" } },
		{ "quota", 1, { WW_ERR_IO, "insufficient_quota" } }, { "down", 4, { WW_ERR_IO, "gave up after 4 attempts" } },
		{ "html", 4, { WW_ERR_IO, "bad gateway" } } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++)
		in_both(cases[i].scenario, cases[i].requests, expect_trouble, &cases[i].want);
}

/* A conversation that has become too long ends as an outcome; one that never fitted is an error (above). */
static void test_outgrown(void **state)
{
	struct ww_message msgs[] = { opening[0], opening[1], { .role = WW_ROLE_ASSISTANT, .text = (char *)"look" },
		opening[1] };
	(void)state;
	for (int p = 0; p < 2; p++) {
		struct asked a;
		open_policy(&a, protocols[p], "toolong");
		ask_with(&a, msgs, 4, NULL);
		assert_int_equal(a.rc, WW_OK);
		assert_int_equal(a.reply.finish, WW_FINISH_LENGTH);
		assert_int_equal(a.reply.message.n_calls, 0);
		assert_true(a.reply.usd == 0 && a.count.lost == 0);
		done(&a);
	}
}

static void test_unreachable(void **state)
{
	struct asked a;
	int real = port;
	(void)state;
	port = 1;
	ask(&a, protocols[0], "plain");
	port = real;
	assert_int_equal(a.rc, WW_ERR_IO);
	assert_non_null(strstr(a.err.msg, "127.0.0.1:1"));
	assert_true(a.seconds < 2);
	done(&a);
}

/* The second request brings back what the protocol wants back: reasoning under its name, signed thinking as it came,
 * the server's own call ids, whatever ids the loop gave the calls. */
static void test_native_goes_back(void **state)
{
	(void)state;
	for (int p = 0; p < 2; p++) {
		struct asked a;
		struct ww_message msgs[5] = { opening[0], opening[1] };
		ask(&a, protocols[p], "second");
		expect_plain(&a, protocols[p]);
		assert_int_equal(ww_message_copy(&msgs[2], &a.reply.message), WW_OK);
		for (int i = 0; i < 2; i++) {
			free(msgs[2].calls[i].id);
			msgs[2].calls[i].id = strdup(i ? "call_1_1" : "call_1_0");
			msgs[3 + i] = (struct ww_message){ .role = WW_ROLE_TOOL,
				.text = (char *)"done",
				.tool = (char *)"x",
				.call_id = msgs[2].calls[i].id,
				.is_error = i };
		}
		ask_with(&a, msgs, 5, NULL);
		assert_int_equal(a.rc, WW_OK);
		assert_string_equal(a.reply.message.text, p ? "returned: thinking" : "returned: reasoning_content");
		ww_message_release(&msgs[2]);
		done(&a);
	}
}

static void *interrupt(void *flag)
{
	usleep(150000);
	*(volatile int *)flag = 1;
	return NULL;
}

/* Ctrl-C while the server is silent, and while it is waited for: over within a second, and what was begun is accounted
 * for. */
static void test_interrupted(void **state)
{
	static const struct {
		const char *scenario;
		int lost;
	} cases[] = { { "silent", 1 }, { "later", 0 } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		struct asked a;
		volatile int flag = 0;
		pthread_t t;
		open_policy(&a, protocols[0], cases[i].scenario);
		a.interrupted = &flag;
		assert_int_equal(pthread_create(&t, NULL, interrupt, (void *)&flag), 0);
		ask_with(&a, opening, 2, journal_path);
		pthread_join(t, NULL);
		assert_int_equal(a.rc, WW_ERR_INTERRUPTED);
		assert_true(a.seconds < 1.5);
		assert_int_equal(a.count.lost, cases[i].lost);
		done(&a);
	}
}

/* A budget that is used up ends the attempts. */
static void test_meter_refuses(void **state)
{
	struct asked a;
	(void)state;
	open_policy(&a, protocols[0], "down");
	a.count.allow = 1;
	int before = requests_of(protocols[0], "down");
	ask_with(&a, opening, 2, NULL);
	assert_int_equal(a.rc, WW_ERR_LIMIT);
	assert_int_equal(requests_of(protocols[0], "down"), before + 1);
	done(&a);
}

/* kill -9 while a reply arrives, and after it has arrived: what was whole is not asked for again, what was not is
 * accounted for. */
/* A pipe in a run's directory that somebody else made. */
static void test_journal_is_a_pipe(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_journal j;
	unlink(journal_path);
	assert_int_equal(mkfifo(journal_path, 0600), 0);
	alarm(20);
	assert_int_not_equal(ww_journal_begin(&j, journal_path, 1, &err), WW_OK);
	alarm(0);
	unlink(journal_path);
}

static void test_journal(void **state)
{
	(void)state;
	for (int p = 0; p < 2; p++) {
		struct asked a;
		struct ww_err err = WW_ERR_INIT;
		struct ww_str whole = WW_STR_INIT(1 << 20);
		ask(&a, protocols[p], "journal");
		expect_plain(&a, protocols[p]);
		assert_int_equal(ww_fs_read(journal_path, 1 << 20, &whole, &err), WW_OK);
		int before = requests_of(protocols[p], "journal");
		ask_with(&a, opening, 2, journal_path);
		expect_plain(&a, protocols[p]);
		assert_int_equal(requests_of(protocols[p], "journal"), before);
		assert_int_equal(a.count.lost, 0);
		assert_int_equal(ww_fs_write(journal_path, whole.p, whole.len / 2, &err), WW_OK);
		ask_with(&a, opening, 2, journal_path);
		expect_plain(&a, protocols[p]);
		assert_int_equal(requests_of(protocols[p], "journal"), before + 1);
		assert_int_equal(a.count.lost, 1);
		/* That of another question is nobody's reply. */
		struct ww_message more[3] = { opening[0], opening[1], opening[1] };
		ask_with(&a, more, 3, journal_path);
		assert_int_equal(requests_of(protocols[p], "journal"), before + 2);
		assert_int_equal(a.count.lost, 1);
		ww_str_release(&whole);
		done(&a);
	}
}

static void test_key_is_nowhere(void **state)
{
	(void)state;
	assert_null(getenv("OPENAI_API_KEY"));
	assert_null(getenv("ANTHROPIC_API_KEY"));
	for (int p = 0; p < 2; p++) {
		struct asked a;
		struct ww_str journal = WW_STR_INIT(1 << 20), env = WW_STR_INIT(1 << 20);
		struct ww_err err = WW_ERR_INIT;
		ask(&a, protocols[p], "echokey");
		assert_int_equal(a.rc, WW_OK);
		assert_string_equal(a.reply.message.text, "your key is [key]");
		assert_null(a.reply.message.native ? strstr(a.reply.message.native, KEY) : NULL);
		assert_int_equal(ww_fs_read(journal_path, 1 << 20, &journal, &err), WW_OK);
		assert_null(strstr(journal.p, KEY));
		FILE *f = fopen("/proc/self/environ", "r");
		char chunk[4096];
		for (size_t n; (n = fread(chunk, 1, sizeof(chunk), f)) > 0;)
			ww_str_add(&env, chunk, n);
		fclose(f);
		assert_null(memmem(env.p, env.len, KEY, strlen(KEY)));
		ww_str_release(&journal);
		ww_str_release(&env);
		done(&a);
	}
}

static void test_bad_options(void **state)
{
	struct ww_policy *p;
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	struct ww_policy_opts o = { .spec = "openai:no-such-model", .need_price = 1 };
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "--prices"));
	o = (struct ww_policy_opts){ .spec = "openai:gpt-5.4", .need_price = 1, .base_url = "http://localhost:1/v1" };
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	o = (struct ww_policy_opts){ .spec = "openai:m", .base_url = "ftp://x" };
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	o = (struct ww_policy_opts){ .spec = "openai:m", .base_url = "https://me:secret@host/v1" };
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	assert_null(strstr(err.msg, "secret"));
	o = (struct ww_policy_opts){ .spec = "openai:m", .prices = "/nonexistent/prices" };
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
	o = (struct ww_policy_opts){ .spec = "anthropic:" };
	assert_int_equal(ww_policy_open(&o, &p, &err), WW_ERR_USAGE);
}

static void test_prices(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_price p = { 0 };
	struct ww_wire_usage u = { 1, 100000, 0, 0, 1000 };
	(void)state;
	assert_int_equal(ww_price_load(NULL, 1, "anthropic:claude-haiku-5-5", &p, &err), WW_OK);
	assert_int_equal(p.n_bands, 2);
	assert_float_equal(ww_price_usd(&p, &u), 0.01 + 0.0005, 1e-9);
	u.cache_read = 1;
	assert_float_equal(ww_price_usd(&p, &u), 0.05 + 0.0025 + 0.00000005, 1e-9);
	assert_int_equal(ww_price_load(NULL, 1, "openai:gpt-5.4-2026-03-05", &p, &err), WW_OK);
	assert_true(p.found);
	assert_int_equal(ww_price_load(NULL, 1, "anthropic:claude-haiku-4-5-20251001", &p, &err), WW_OK);
	assert_true(p.found);
	assert_int_equal(ww_price_load(NULL, 1, "openai:gpt-5.4-mega", &p, &err), WW_OK);
	assert_false(p.found);
	assert_float_equal(ww_price_usd(&p, &u), 0, 0);
	memset(&p, 0, sizeof(p));
	assert_int_equal(ww_price_find("a:b 1 2\n", "table", "a:b", &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "line 1"));
	assert_int_equal(ww_price_find("a:b 1 2 3 -4\n", "table", "a:b", &p, &err), WW_ERR_USAGE);
	assert_int_equal(ww_price_find("a:b 1 2 3 4 five\n", "table", "a:b", &p, &err), WW_ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_nothing_is_lost),
		cmocka_unit_test(test_whole_without_stream), cmocka_unit_test(test_cut_after_the_end),
		cmocka_unit_test(test_ten_parallel_calls), cmocka_unit_test(test_outcomes), cmocka_unit_test(test_errors),
		cmocka_unit_test(test_outgrown), cmocka_unit_test(test_unreachable), cmocka_unit_test(test_native_goes_back),
		cmocka_unit_test(test_interrupted), cmocka_unit_test(test_meter_refuses), cmocka_unit_test(test_journal),
		cmocka_unit_test(test_journal_is_a_pipe), cmocka_unit_test(test_key_is_nowhere),
		cmocka_unit_test(test_bad_options), cmocka_unit_test(test_prices) };
	/* Set in the environment block itself, as a shell does it, so that what /proc shows is what is tested. */
	if (!getenv("WW_TEST_HTTP_STARTED")) {
		setenv("WW_TEST_HTTP_STARTED", "1", 1);
		setenv("OPENAI_API_KEY", KEY "\n", 1);
		setenv("ANTHROPIC_API_KEY", KEY, 1);
		execl("/proc/self/exe", "test_http", (char *)NULL);
		return 1;
	}
	ww_policy_hide_keys();
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
