/* test_mcp.c - the MCP core without a transport: messages in, messages out, tools that do what the test says. */
#include "unit.h"

#include "base/json.h"
#include "base/time.h"
#include "serve/mcp_internal.h"

#include <pthread.h>
#include <time.h>

enum { MAX_OUT = 256 };

/* A client: what was sent to it, parsed. */
struct client {
	pthread_mutex_t lock;
	json_t *got[MAX_OUT];
	int n, read;
};
static struct client client;
static volatile int release_slow; /* what the tool "slow" waits for */

static void nap(void) { nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); }

static void on_send(void *ctx, const struct ww_mcp_out *out)
{
	struct client *c = ctx;
	const char *text = out->text;
	size_t n = out->n;
	if (!text)
		return; /* a cancelled request is over */
	assert_null(memchr(text, '\n', n));
	json_t *o = json_loadb(text, n, 0, NULL);
	pthread_mutex_lock(&c->lock);
	assert_non_null(o);
	assert_true(c->n < MAX_OUT);
	c->got[c->n++] = o;
	pthread_mutex_unlock(&c->lock);
}

static enum ww_rc echo_run(
	void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err)
{
	(void)ctx, (void)call, (void)err;
	ww_str_adds(&a->text, ww_json_str(args, "text", ""));
	a->data = json_pack("{s:O}", "text", json_object_get(args, "text"));
	return WW_OK;
}

static enum ww_rc slow_run(
	void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err)
{
	int stop = 0;
	uint64_t start = ww_now_ns();
	(void)ctx, (void)args;
	ww_mcp_call_progress(call, "one");
	ww_mcp_call_progress(call, "two");
	while (!(stop = ww_mcp_call_cancelled(call)) && !release_slow && ww_seconds_since(start) < 20)
		nap();
	if (stop)
		return ww_err_set(err, WW_ERR_INTERRUPTED, "stopped");
	ww_str_adds(&a->text, "slow is done");
	a->data = json_pack("{s:b}", "done", 1);
	return WW_OK;
}

static enum ww_rc fail_run(
	void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err)
{
	(void)ctx, (void)args, (void)call;
	a->data = json_object();
	ww_str_adds(&a->text, "half an answer");
	return ww_err_set(err, WW_ERR_TASK, "the task is not usable");
}

static enum ww_rc big_run(
	void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err)
{
	const size_t n = WW_MCP_MAX_SEND_BYTES;
	char *text = malloc(n);
	(void)ctx, (void)args, (void)call, (void)err;
	assert_non_null(text);
	memset(text, 'x', n);
	a->data = json_pack("{s:o}", "text", json_stringn_nocheck(text, n));
	free(text);
	return WW_OK;
}

#define OBJECT "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
static const struct ww_mcp_tool tools[] = {
	{ "echo", "Echo", "says it again",
		"{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\","
		"\"minimum\":1,\"maximum\":3},\"word\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}},\"required\":[\"text\"]}",
		"{\"type\":\"object\"}", 1, 0, echo_run, 0 },
	{ "slow", "Slow", "takes its time", OBJECT, "{\"type\":\"object\"}", 0, 1, slow_run, 0 },
	{ "fail", "Fail", "fails", OBJECT, "{\"type\":\"object\"}", 0, 1, fail_run, 0 },
	{ "big", "Big", "says too much", OBJECT, "{\"type\":\"object\"}", 0, 0, big_run, 0 }
};

static struct ww_mcp *server;
static struct ww_mcp_peer *peer;

static int setup(void **state)
{
	struct ww_mcp_opts o = { tools, WW_ARRAY_LEN(tools), NULL, "be kind", 5, 4 };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	memset(&client, 0, sizeof(client));
	pthread_mutex_init(&client.lock, NULL);
	release_slow = 0;
	assert_int_equal(ww_mcp_new(&server, &o, &err), WW_OK);
	peer = ww_mcp_peer_new(server, on_send, &client);
	assert_non_null(peer);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (peer)
		ww_mcp_peer_close(peer);
	ww_mcp_free(server);
	for (int i = 0; i < client.n; i++)
		json_decref(client.got[i]);
	return 0;
}

static void say(const char *text) { ww_mcp_receive(peer, text, strlen(text)); }

/* The next message, waited for. */
static const json_t *hear(void)
{
	uint64_t start = ww_now_ns();
	for (;;) {
		pthread_mutex_lock(&client.lock);
		const json_t *o = client.read < client.n ? client.got[client.read++] : NULL;
		pthread_mutex_unlock(&client.lock);
		if (o)
			return o;
		assert_true(ww_seconds_since(start) < 20);
		nap();
	}
}

static void silence(void)
{
	while (ww_mcp_running(server))
		nap();
	assert_int_equal(client.read, client.n);
}

static const json_t *at(const json_t *o, const char *a, const char *b)
{
	o = json_object_get(o, a);
	return b ? json_object_get(o, b) : o;
}

/* jansson's own are macros that evaluate twice. */
static int is_true(const json_t *v) { return json_is_true(v); }
static int is_false(const json_t *v) { return json_is_false(v); }
static int is_object(const json_t *v) { return json_is_object(v); }
static int is_integer(const json_t *v) { return json_is_integer(v); }

static int error_of(const json_t *o) { return (int)json_integer_value(at(o, "error", "code")); }

#define NEW(tasks) "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"," \
	"\"io.modelcontextprotocol/clientCapabilities\":{" tasks "},\"progressToken\":\"t\"}"
#define WITH_TASKS "\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}"
#define CALL(id, name, args, more) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"" name \
	"\",\"arguments\":" args more "}}"

static void begin(const char *version, const char *expect)
{
	char text[256];
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\","
		"\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}",
		version);
	say(text);
	assert_string_equal(json_string_value(at(hear(), "result", "protocolVersion")), expect);
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static void test_bad_messages(void **state)
{
	static const struct {
		const char *text;
		int code;
	} bad[] = { { "{", -32700 }, { "\xff", -32700 }, { "\xef\xbb\xbf{}", -32700 }, { "{\"a\":1e999}", -32700 },
		{ "{\"a\":99999999999999999999}", -32700 }, { "{\"a\":\"\\ud800\"}", -32700 },
		{ "{\"a\":\"\\u0000\"}", -32700 }, { "{\"a\":\"\xc0\xaf\"}", -32700 }, { "{\"a\":NaN}", -32700 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", -32600 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", -32600 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"ping\"}", -32600 }, { "[]", -32600 }, { "1", -32600 },
		{ "{}", -32600 }, { "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}", -32600 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", -32600 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}", -32602 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", -32602 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}", -32602 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing\",\"params\":{" NEW("") "}}", -32601 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{" NEW("") "}}", -32601 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/result\",\"params\":{" NEW("") "}}", -32601 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/get\",\"params\":{\"taskId\":\"x\"," NEW("") "}}", -32602 },
		{ CALL("1", "nobody", "{}", "," NEW("")), -32602 }, { CALL("1", "echo", "[]", "," NEW("")), -32602 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{"
		  "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}}",
			-32602 },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{"
		  "\"io.modelcontextprotocol/protocolVersion\":\"1900-01-01\",\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
			-32022 } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++) {
		say(bad[i].text);
		int code = error_of(hear());
		if (code != bad[i].code)
			fail_msg("%s: code %d, not %d", bad[i].text, code, bad[i].code);
	}
	/* Nesting beyond every depth, and an id that would write on a terminal. */
	static char deep[100000];
	memset(deep, '[', sizeof(deep) - 1);
	say(deep);
	assert_int_equal(error_of(hear()), -32700);
	for (size_t i = 0; i + 6 < sizeof(deep); i += 5)
		memcpy(deep + i, "{\"a\":", 5);
	say(deep);
	assert_int_equal(error_of(hear()), -32700);
	say("{\"jsonrpc\":\"2.0\",\"id\":\"\\u001b[2J\\n\",\"method\":\"nothing\",\"params\":{" NEW("") "}}");
	const json_t *answer = hear();
	assert_string_equal(json_string_value(json_object_get(answer, "id")), "\033[2J\n");
	assert_int_equal(error_of(answer), -32601);
	say("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/whatever\",\"params\":{}}");
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":9}}");
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}");
	silence();
}

static void test_mutations(void **state)
{
	static const char seed[] = CALL("1", "echo", "{\"text\":\"hi\"}", "," NEW(WITH_TASKS));
	char text[sizeof(seed)];
	uint32_t x = 1;
	(void)state;
	for (int i = 0; i < 20000; i++) {
		memcpy(text, seed, sizeof(seed));
		for (int k = 0; k < 1 + i % 4; k++) {
			x = x * 1664525 + 1013904223;
			text[(x >> 8) % (sizeof(seed) - 1)] = (char)(x >> 24);
		}
		while (ww_mcp_running(server) > 2)
			nap();
		ww_mcp_receive(peer, text, sizeof(seed) - 1 - (i % 7 ? 0 : (x >> 8) % sizeof(seed) / 2));
		pthread_mutex_lock(&client.lock);
		while (client.n)
			json_decref(client.got[--client.n]);
		pthread_mutex_unlock(&client.lock);
	}
	while (ww_mcp_running(server))
		nap();
	while (client.n)
		json_decref(client.got[--client.n]);
	client.read = 0;
	say(CALL("1", "echo", "{\"text\":\"hi\"}", "," NEW("")));
	assert_string_equal(json_string_value(at(at(hear(), "result", "structuredContent"), "text", NULL)), "hi");
}

/* ---- Revisions --------------------------------------------------------------------------------------------------- */

static void test_modern(void **state)
{
	(void)state;
	say("{\"jsonrpc\":\"2.0\",\"id\":\"d\",\"method\":\"server/discover\",\"params\":{" NEW("") "}}");
	const json_t *r = at(hear(), "result", NULL);
	assert_string_equal(ww_json_str(r, "resultType", ""), "complete");
	assert_string_equal(json_string_value(json_array_get(at(r, "supportedVersions", NULL), 0)), "2026-07-28");
	assert_true(is_object(at(at(r, "capabilities", "extensions"), "io.modelcontextprotocol/tasks", NULL)));
	assert_true(ww_json_int(r, "ttlMs", -1) >= 0);
	assert_string_equal(ww_json_str(at(r, "_meta", "io.modelcontextprotocol/serverInfo"), "name", ""), "warpwright");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\",\"params\":{" NEW("") "}}");
	r = at(hear(), "result", NULL);
	assert_int_equal(json_array_size(at(r, "tools", NULL)), WW_ARRAY_LEN(tools));
	assert_string_equal(ww_json_str(r, "cacheScope", ""), "public");
	say(CALL("3", "fail", "{}", "," NEW("")));
	r = at(hear(), "result", NULL);
	assert_true(is_true(at(r, "isError", NULL)));
	assert_null(at(r, "structuredContent", NULL));
	assert_string_equal(ww_json_str(json_array_get(at(r, "content", NULL), 0), "text", ""), "the task is not usable");
}

static void test_handshakes(void **state)
{
	(void)state;
	begin("2025-06-18", "2025-06-18");
	say("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
	assert_true(is_object(at(hear(), "result", NULL)));
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tasks/list\"}");
	assert_int_equal(error_of(hear()), -32601);
	say("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/list\"}");
	const json_t *r = at(hear(), "result", NULL);
	assert_null(at(r, "resultType", NULL));
	assert_null(at(json_array_get(at(r, "tools", NULL), 1), "execution", NULL));
	begin("2025-11-25", "2025-11-25");
	say("{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/list\"}");
	r = json_array_get(at(hear(), "result", "tools"), 1);
	assert_string_equal(json_string_value(at(r, "execution", "taskSupport")), "optional");
	begin("2031-01-01", "2025-11-25");
}

static void test_arguments(void **state)
{
	static const char *const bad[] = { "{}", "{\"text\":1}", "{\"text\":\"x\",\"more\":1}", "{\"text\":\"x\",\"n\":0}",
		"{\"text\":\"x\",\"n\":1.5}", "{\"text\":\"x\",\"word\":\"c\"}" };
	char text[1024];
	(void)state;
	begin("2025-11-25", "2025-11-25");
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), CALL("7", "echo", "%s", ""), bad[i]);
		say(text);
		if (!is_true(at(hear(), "result", "isError")))
			fail_msg("%s was accepted", bad[i]);
	}
	say(CALL("8", "echo", "{\"text\":\"x\",\"n\":3,\"word\":\"b\"}", ""));
	assert_true(is_false(at(hear(), "result", "isError")));
}

/* ---- Long work --------------------------------------------------------------------------------------------------- */

static void test_progress_and_cancel(void **state)
{
	(void)state;
	begin("2025-06-18", "2025-06-18");
	say(CALL("5", "slow", "{}", ",\"_meta\":{\"progressToken\":42}"));
	for (int i = 1; i <= 2; i++) {
		const json_t *o = hear();
		assert_string_equal(ww_json_str(o, "method", ""), "notifications/progress");
		assert_int_equal(json_integer_value(at(o, "params", "progressToken")), 42);
		assert_int_equal(json_integer_value(at(o, "params", "progress")), i);
	}
	say(CALL("5", "echo", "{\"text\":\"x\"}", "")); /* an id that is in use */
	assert_int_equal(error_of(hear()), -32000);
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":5}}");
	silence(); /* no answer to what was cancelled */
	release_slow = 1;
	say(CALL("6", "slow", "{}", ""));
	assert_true(is_false(at(hear(), "result", "isError")));
}

static void test_too_long(void **state)
{
	(void)state;
	begin("2025-06-18", "2025-06-18");
	say(CALL("5", "big", "{}", ""));
	const json_t *o = hear();
	assert_int_equal(error_of(o), -32603);
	assert_int_equal(json_integer_value(at(o, "id", NULL)), 5);
}

static void test_too_many(void **state)
{
	char text[256];
	(void)state;
	begin("2025-06-18", "2025-06-18");
	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), CALL("%d", "slow", "{}", ""), 10 + i);
		say(text);
	}
	say(CALL("20", "echo", "{\"text\":\"x\"}", ""));
	assert_int_equal(error_of(hear()), -32000);
	/* One session does not take all: another one gets in. */
	struct ww_mcp_peer *first = peer;
	peer = ww_mcp_peer_new(server, on_send, &client);
	begin("2025-06-18", "2025-06-18");
	say(CALL("30", "echo", "{\"text\":\"x\"}", ""));
	assert_non_null(at(hear(), "result", NULL));
	release_slow = 1;
	for (int i = 0; i < 4; i++)
		assert_non_null(at(hear(), "result", NULL));
	ww_mcp_peer_close(peer);
	peer = first;
}

static void modern_task(const char *method, const char *id)
{
	char text[512];
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"%s\",\"params\":{\"taskId\":\"%s\"," NEW(WITH_TASKS) "}}", method,
		id);
	say(text);
}

static const json_t *poll_until_over(const char *id)
{
	const json_t *r;
	do {
		nap();
		modern_task("tasks/get", id);
		r = at(hear(), "result", NULL);
	} while (!strcmp(ww_json_str(r, "status", ""), "working") && client.n < MAX_OUT - 8);
	return r;
}

static void test_modern_tasks(void **state)
{
	(void)state;
	say(CALL("1", "slow", "{}", "," NEW(WITH_TASKS)));
	const json_t *r = at(hear(), "result", NULL);
	const char *id = ww_json_str(r, "taskId", "");
	assert_string_equal(ww_json_str(r, "resultType", ""), "task");
	assert_int_equal(strlen(id), 32);
	assert_true(is_integer(at(r, "ttlMs", NULL)));
	modern_task("tasks/get", id);
	r = at(hear(), "result", NULL);
	assert_string_equal(ww_json_str(r, "status", ""), "working");
	assert_string_equal(ww_json_str(r, "resultType", ""), "complete");
	release_slow = 1;
	r = poll_until_over(id);
	assert_string_equal(ww_json_str(r, "status", ""), "completed");
	assert_true(is_true(at(at(r, "result", "structuredContent"), "done", NULL)));
	modern_task("tasks/cancel", id); /* too late: acknowledged, changes nothing */
	assert_string_equal(json_string_value(at(hear(), "result", "resultType")), "complete");
	assert_string_equal(ww_json_str(poll_until_over(id), "status", ""), "completed");
	/* A failing tool is a completed task whose result says so; quick tools answer at once. */
	say(CALL("2", "fail", "{}", "," NEW(WITH_TASKS)));
	r = poll_until_over(json_string_value(at(hear(), "result", "taskId")));
	assert_string_equal(ww_json_str(r, "status", ""), "completed");
	assert_true(is_true(at(r, "result", "isError")));
	say(CALL("3", "echo", "{\"text\":\"x\"}", "," NEW(WITH_TASKS)));
	assert_string_equal(json_string_value(at(hear(), "result", "resultType")), "complete");
}

static void test_modern_cancel(void **state)
{
	(void)state;
	say(CALL("1", "slow", "{}", "," NEW(WITH_TASKS)));
	const char *id = json_string_value(at(hear(), "result", "taskId"));
	modern_task("tasks/cancel", id);
	assert_string_equal(json_string_value(at(hear(), "result", "resultType")), "complete");
	assert_string_equal(ww_json_str(poll_until_over(id), "status", ""), "cancelled");
	silence();
	modern_task("tasks/update", id);
	assert_non_null(at(hear(), "result", NULL));
}

static void middle_task(const char *method, const char *id, int request)
{
	char text[256];
	snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{\"taskId\":\"%s\"}}",
		request, method, id);
	say(text);
}

static void test_middle_tasks(void **state)
{
	(void)state;
	begin("2025-11-25", "2025-11-25");
	say(CALL("1", "echo", "{\"text\":\"x\"}", ",\"task\":{\"ttl\":1000}"));
	assert_int_equal(error_of(hear()), -32601);
	say(CALL("2", "slow", "{}", ",\"task\":{}"));
	const json_t *t = at(hear(), "result", "task");
	const char *id = ww_json_str(t, "taskId", "");
	assert_string_equal(ww_json_str(t, "status", ""), "working");
	assert_true(is_integer(at(t, "ttl", NULL)));
	middle_task("tasks/result", id, 3); /* waits */
	middle_task("tasks/get", id, 4);
	assert_string_equal(json_string_value(at(hear(), "result", "status")), "working");
	release_slow = 1;
	const json_t *o = hear();
	assert_int_equal(json_integer_value(at(o, "id", NULL)), 3);
	assert_string_equal(json_string_value(at(at(at(o, "result", "_meta"), "io.modelcontextprotocol/related-task", NULL),
							"taskId", NULL)),
		id);
	middle_task("tasks/result", id, 5);
	assert_true(is_true(at(at(hear(), "result", "structuredContent"), "done", NULL)));
	middle_task("tasks/cancel", id, 6);
	assert_int_equal(error_of(hear()), -32602);
	release_slow = 0;
	say(CALL("7", "slow", "{}", ",\"task\":{}"));
	id = json_string_value(at(at(hear(), "result", "task"), "taskId", NULL));
	middle_task("tasks/result", id, 8);
	middle_task("tasks/cancel", id, 9);
	o = hear();
	assert_int_equal(json_integer_value(at(o, "id", NULL)), 8);
	assert_non_null(at(o, "error", NULL));
	assert_string_equal(json_string_value(at(hear(), "result", "status")), "cancelled");
	say("{\"jsonrpc\":\"2.0\",\"id\":10,\"method\":\"tasks/list\"}");
	assert_int_equal(json_array_size(at(hear(), "result", "tasks")), 2);
	silence();
}

/* A client that goes away takes its calls with it, but not its tasks; their results are there for who knows the name.
 */
static void test_peer_leaves(void **state)
{
	char id[64];
	(void)state;
	say(CALL("1", "slow", "{}", "," NEW(WITH_TASKS)));
	snprintf(id, sizeof(id), "%s", json_string_value(at(hear(), "result", "taskId")));
	say(CALL("2", "slow", "{}", "," NEW("")));
	while (client.n < 3)
		nap();
	ww_mcp_peer_close(peer);
	while (ww_mcp_running(server) > 1)
		nap();
	client.read = client.n;
	peer = ww_mcp_peer_new(server, on_send, &client);
	release_slow = 1;
	assert_string_equal(ww_json_str(poll_until_over(id), "status", ""), "completed");
}

/* Who waits for the result of a task and leaves is forgotten, not kept (with a long id) until the task ends. */
static void test_waiters_leave(void **state)
{
	char id[64], text[256];
	(void)state;
	begin("2025-11-25", "2025-11-25");
	say(CALL("1", "slow", "{}", ",\"task\":{}"));
	snprintf(id, sizeof(id), "%s", json_string_value(at(at(hear(), "result", "task"), "taskId", NULL)));
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tasks/result\",\"params\":{\"taskId\":\"%s\"}}", id);
	for (int i = 0; i < 3; i++) {
		struct ww_mcp_peer *p = ww_mcp_peer_join(peer, on_send, &client);
		ww_mcp_receive(p, text, strlen(text));
		assert_non_null(server->tasks->waiters);
		ww_mcp_peer_close(p);
		assert_null(server->tasks->waiters);
	}
	middle_task("tasks/result", id, 3); /* one who stays */
	release_slow = 1;
	assert_int_equal(json_integer_value(at(hear(), "id", NULL)), 3);
	silence();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		T(test_bad_messages), T(test_mutations), T(test_modern), T(test_handshakes), T(test_arguments),
		T(test_progress_and_cancel), T(test_too_many), T(test_too_long), T(test_modern_tasks), T(test_modern_cancel),
		T(test_middle_tasks), T(test_peer_leaves), T(test_waiters_leave)
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
