/* test_mcp_http.c - MCP over HTTP where time matters: calls that are cancelled while they run, each revision in its
 * way, and the end of the server.  The tools are the test's own; tests/cli/serve.t has the rest of the protocol. */
#include "unit.h"

#include "base/json.h"
#include "base/time.h"
#include "serve/mcp_http.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct ww_mcp *mcp;
static struct ww_mcp_http *door;
static struct ww_http *server;
static pthread_t loop;
static volatile int stop, running, let_go;

static void nap(void) { nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); }

static enum ww_rc slow_run(
	void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err)
{
	int cancelled = 0;
	uint64_t start = ww_now_ns();
	(void)ctx, (void)args;
	ww_mcp_call_progress(call, "begun");
	running++;
	while (!(cancelled = ww_mcp_call_cancelled(call)) && !let_go && ww_seconds_since(start) < 20)
		nap();
	running--;
	if (cancelled)
		return ww_err_set(err, WW_ERR_INTERRUPTED, "stopped");
	ww_str_adds(&a->text, "slow is done");
	return WW_OK;
}

#define OBJECT "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
static const struct ww_mcp_tool tools[] = { { "slow", "Slow", "takes its time", OBJECT, "{\"type\":\"object\"}", 0, 0,
												slow_run, 0 },
	{ "long", "Long", "can be gone on with", OBJECT, "{\"type\":\"object\"}", 0, 0, slow_run, 1 } };

static void on_stop(void *ctx)
{
	(void)ctx;
	ww_mcp_wind_up(mcp);
}

static void *loop_main(void *arg)
{
	struct ww_err err = WW_ERR_INIT;
	(void)arg;
	assert_int_equal(ww_http_serve(server, &stop, &err), WW_OK);
	return NULL;
}

static int set_up(void **state)
{
	const struct ww_mcp_opts mo = { .tools = tools, .n_tools = WW_ARRAY_LEN(tools), .instructions = "" };
	static struct ww_http_route routes[WW_MCP_HTTP_ROUTES];
	const struct ww_http_opts o = { .routes = routes, .n_routes = WW_MCP_HTTP_ROUTES, .on_stop = on_stop };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	stop = running = let_go = 0;
	assert_int_equal(ww_mcp_new(&mcp, &mo, &err), WW_OK);
	door = ww_mcp_http_new(mcp);
	ww_mcp_http_routes(door, routes);
	assert_int_equal(ww_http_open(&server, &o, &err), WW_OK);
	assert_int_equal(pthread_create(&loop, NULL, loop_main, NULL), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	let_go = 1;
	stop = 1;
	ww_http_wake(server);
	pthread_join(loop, NULL);
	ww_http_close(server);
	ww_mcp_http_free(door);
	ww_mcp_free(mcp);
	return 0;
}

/* A request, which is released, on a connection of its own, left open. */
static int say(struct ww_str *request)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)ww_http_port(server)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(send(fd, request->p, request->len, MSG_NOSIGNAL), request->len);
	ww_str_release(request);
	return fd;
}

static int ask(const char *headers, const char *body)
{
	struct ww_str s = WW_STR_INIT(65536);
	ww_str_addf(&s,
		"POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
		"Accept: application/json, text/event-stream\r\n%sContent-Length: %zu\r\n\r\n%s",
		headers, strlen(body), body);
	return say(&s);
}

/* All that comes until the connection ends; the caller releases it. */
static struct ww_str hear(int fd)
{
	struct ww_str s = WW_STR_INIT(1 << 20);
	uint64_t start = ww_now_ns();
	char buf[4096];
	ssize_t n = 1;
	while (n > 0 && ww_seconds_since(start) < 10) {
		struct pollfd p = { fd, POLLIN, 0 };
		if (poll(&p, 1, 100) > 0 && (n = recv(fd, buf, sizeof(buf), 0)) > 0)
			ww_str_add(&s, buf, (size_t)n);
	}
	close(fd);
	assert_true(n <= 0);
	return s;
}

static void expect_running(int n)
{
	uint64_t start = ww_now_ns();
	while (running != n && ww_seconds_since(start) < 10)
		nap();
	assert_int_equal(running, n);
}

#define MODERN(tool) "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: " tool "\r\n"
#define CALL(tool) "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"" tool "\",\"_meta\":{\"progressToken\":9," \
	"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{}}}}"
#define OLD_CALL(id, tool) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"" tool "\"}}"

/* The header line that puts a request into a new session. */
static void open_session(char *header, size_t cap)
{
	struct ww_str s = hear(ask("",
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\"}}"));
	const char *id = strstr(s.p, "Mcp-Session-Id: ");
	assert_non_null(id);
	snprintf(header, cap, "%.*s\r\n", (int)strcspn(id, "\r"), id);
	ww_str_release(&s);
}

static void test_answer_streams(void **state)
{
	(void)state;
	int fd = ask(MODERN("slow"), CALL("slow"));
	expect_running(1);
	let_go = 1;
	struct ww_str s = hear(fd);
	const char *progress = strstr(s.p, "notifications/progress"), *done = strstr(s.p, "slow is done");
	assert_true(progress && done && progress < done && strstr(s.p, "Content-Type: text/event-stream"));
	ww_str_release(&s);
}

/* 2026-07-28: whoever closes has cancelled. */
static void test_closing_cancels(void **state)
{
	(void)state;
	int fd = ask(MODERN("slow"), CALL("slow"));
	expect_running(1);
	close(fd);
	expect_running(0);
}

/* Before, closing means nothing, and a cancellation comes on another connection; the session's end cancels all. */
static void test_sessions_cancel(void **state)
{
	char in_it[128], in_other[128];
	(void)state;
	open_session(in_it, sizeof(in_it));
	open_session(in_other, sizeof(in_other));
	int fd = ask(in_it, OLD_CALL("1", "slow")), left = ask(in_it, OLD_CALL("2", "slow")),
		other_client = ask(in_other, OLD_CALL("1", "slow"));
	expect_running(3);
	close(left);
	struct ww_str s = hear(
		ask(in_it, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}"));
	assert_non_null(strstr(s.p, "202 Accepted"));
	ww_str_release(&s);
	s = hear(fd);
	assert_null(strstr(s.p, "data:")); /* no answer */
	ww_str_release(&s);
	expect_running(2); /* the abandoned one, and the other session's of the same id */
	s = hear(ask(in_it, OLD_CALL("2", "slow")));
	assert_non_null(strstr(s.p, "runs already"));
	ww_str_release(&s);
	struct ww_str request = WW_STR_INIT(1024);
	ww_str_addf(&request, "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", in_it);
	s = hear(say(&request));
	assert_non_null(strstr(s.p, "204 No Content"));
	expect_running(1);
	let_go = 1;
	ww_str_release(&s);
	s = hear(other_client);
	assert_non_null(strstr(s.p, "slow is done"));
	ww_str_release(&s);
}

/* What is being answered is finished; what can be gone on with later is cancelled. */
static void test_stop(void **state)
{
	(void)state;
	int fd = ask(MODERN("slow"), CALL("slow")), resumable = ask(MODERN("long"), CALL("long"));
	expect_running(2);
	stop = 1;
	ww_http_wake(server);
	struct ww_str s = hear(resumable);
	assert_null(strstr(s.p, "\"result\""));
	ww_str_release(&s);
	assert_int_equal(running, 1);
	let_go = 1;
	s = hear(fd);
	assert_non_null(strstr(s.p, "slow is done"));
	ww_str_release(&s);
}

/* The server ends at once: what runs is cancelled, and nothing is left behind (the sanitizer looks). */
static void test_stop_at_once(void **state)
{
	(void)state;
	int fd = ask(MODERN("slow"), CALL("slow"));
	expect_running(1);
	stop = 2;
	ww_http_wake(server);
	pthread_join(loop, NULL);
	ww_http_close(server);
	ww_mcp_http_free(door);
	ww_mcp_free(mcp);
	assert_int_equal(running, 0);
	close(fd);
	set_up(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_answer_streams, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_closing_cancels, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_sessions_cancel, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stop, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stop_at_once, set_up, tear_down) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
