/* Chat and text completions over a real server: whole and streamed answers, their errors, and clients that go. */
#include "unit.h"

#include "../infer/tiny.h"
#include "base/time.h"
#include "serve/completions.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static struct ww_completions *completions;
static struct ww_http *server;
static volatile int stop;
static pthread_t loop;
static char spec[4300];

static void *serve(void *arg)
{
	struct ww_err err = WW_ERR_INIT;
	(void)arg;
	if (ww_http_serve(server, &stop, &err) != WW_OK)
		fprintf(stderr, "%s\n", err.msg);
	return NULL;
}

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	static struct ww_http_route routes[WW_COMPLETIONS_ROUTES];
	const char *models[] = { spec };
	(void)state;
	if (ww_tmpdir_new(&tmp, "test-completions", &err) != WW_OK)
		return -1;
	snprintf(spec, sizeof(spec), "%s/tiny", tmp.path);
	if (!tiny_model(spec, 1024) ||
		ww_completions_new(&(struct ww_completions_opts){ .models = models, .n_models = 1, .device = "cpu" },
			&completions, &err) != WW_OK) {
		fprintf(stderr, "%s\n", err.msg);
		return -1;
	}
	ww_completions_routes(completions, routes);
	struct ww_http_opts o = { .routes = routes, .n_routes = WW_COMPLETIONS_ROUTES };
	return ww_http_open(&server, &o, &err) == WW_OK && pthread_create(&loop, NULL, serve, NULL) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	stop = 1;
	ww_http_wake(server);
	pthread_join(loop, NULL);
	ww_http_close(server);
	ww_completions_free(completions);
	ww_tmpdir_remove(&tmp);
	return 0;
}

/* ---- A client ---------------------------------------------------------------------------------------------------- */

static int connect_and_send(const char *method, const char *path, const char *body)
{
	char head[512];
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)ww_http_port(server)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	int n = snprintf(head, sizeof(head),
		"%s %s HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", method,
		path, strlen(body));
	assert_int_equal(send(fd, head, (size_t)n, 0), n);
	assert_int_equal(send(fd, body, strlen(body), 0), (ssize_t)strlen(body));
	return fd;
}

/* The status; the body into out. */
static int talk(const char *method, const char *path, const char *body, struct ww_str *out)
{
	int fd = connect_and_send(method, path, body), status = 0;
	struct ww_str all = WW_STR_INIT(8 << 20);
	char piece[4096];
	for (ssize_t n; (n = recv(fd, piece, sizeof(piece), 0)) > 0;)
		ww_str_add(&all, piece, (size_t)n);
	close(fd);
	const char *end = strstr(all.p, "\r\n\r\n");
	assert_non_null(end);
	assert_int_equal(sscanf(all.p, "HTTP/1.%*d %d", &status), 1);
	ww_str_reset(out);
	ww_str_adds(out, end + 4);
	ww_str_release(&all);
	return status;
}

static json_t *ask(const char *path, const char *body, int want)
{
	struct ww_str s = WW_STR_INIT(8 << 20);
	int status = talk(*body ? "POST" : "GET", path, body, &s);
	json_t *v = json_loads(s.p, JSON_ALLOW_NUL, NULL); /* an untrained model may say any byte */
	if (status != want || !v)
		fail_msg("%d %s", status, s.p);
	ww_str_release(&s);
	return v;
}

static const json_t *at(const json_t *v, const char *path)
{
	char key[64];
	while (v && *path) {
		size_t n = strcspn(path, ".");
		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
		path += n + (path[n] == '.');
	}
	return v;
}
static const char *text_at(const json_t *v, const char *path)
{
	const char *s = json_string_value(at(v, path));
	return s ? s : "(none)";
}
static int64_t int_at(const json_t *v, const char *path) { return json_integer_value(at(v, path)); }

#define HELLO "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"seed\": 3, \"max_tokens\": 40"

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static void models_are_listed(void **state)
{
	(void)state;
	json_t *v = ask("/v1/models", "", 200);
	assert_string_equal(text_at(v, "data.0.id"), "tiny");
	assert_int_equal(int_at(v, "data.0.max_model_len"), 1024);
	json_decref(v);
	v = ask("/v1/models/tiny", "", 200);
	assert_string_equal(text_at(v, "object"), "model");
	json_decref(v);
	v = ask("/v1/models/huge", "", 404);
	assert_string_equal(text_at(v, "error.code"), "model_not_found");
	json_decref(v);
}

/* Reassemble a stream: content of choice 0, entries of logprobs, the finish; 1 where [DONE] closes it. */
static int read_stream(
	const struct ww_str *s, struct ww_str *content, int *entries, char finish[32], int64_t *completion_tokens)
{
	int done = 0;
	*entries = 0;
	*completion_tokens = -1;
	for (const char *p = s->p; (p = strstr(p, "data: ")); p++) {
		const char *end = strstr(p, "\n\n");
		assert_non_null(end);
		assert_false(done);
		if (!strncmp(p, "data: [DONE]", 12)) {
			done = 1;
			continue;
		}
		json_t *v = json_loadb(p + 6, (size_t)(end - p) - 6, 0, NULL);
		assert_non_null(v);
		if (at(v, "choices.0.delta.content"))
			ww_str_adds(content, text_at(v, "choices.0.delta.content"));
		if (at(v, "choices.0.text"))
			ww_str_adds(content, text_at(v, "choices.0.text"));
		*entries += (int)json_array_size(at(v, "choices.0.logprobs.content"));
		if (json_is_string(at(v, "choices.0.finish_reason")))
			snprintf(finish, 32, "%s", text_at(v, "choices.0.finish_reason"));
		if (json_is_object(at(v, "usage")))
			*completion_tokens = int_at(v, "usage.completion_tokens");
		json_decref(v);
	}
	return done;
}

static void chat_whole_and_streamed(void **state)
{
	struct ww_str s = WW_STR_INIT(8 << 20), content = WW_STR_INIT(1 << 20);
	char finish[32] = "";
	int entries;
	int64_t tokens;
	(void)state;
	json_t *v = ask("/v1/chat/completions", "{\"model\": \"tiny\", \"logprobs\": true, " HELLO "}", 200);
	assert_string_equal(text_at(v, "object"), "chat.completion");
	assert_string_equal(text_at(v, "choices.0.message.role"), "assistant");
	assert_string_equal(text_at(v, "choices.0.finish_reason"), "length");
	/* <|im_start|> user \n hello <|im_end|> \n <|im_start|> assistant \n */
	assert_int_equal(int_at(v, "usage.prompt_tokens"), 1 + 5 + 5 + 2 + 1 + 10);
	assert_int_equal(int_at(v, "usage.completion_tokens"), 40);
	assert_int_equal(int_at(v, "usage.total_tokens"), 64);
	assert_in_range(json_array_size(at(v, "choices.0.logprobs.content")), 38, 40);
	assert_true(json_real_value(at(v, "choices.0.logprobs.content.0.logprob")) < 0);
	assert_true(json_is_array(at(v, "choices.0.logprobs.content.0.bytes")));
	assert_int_equal(
		talk("POST", "/v1/chat/completions",
			"{\"stream\": true, \"logprobs\": true, \"stream_options\": {\"include_usage\": true}, " HELLO "}", &s),
		200);
	assert_true(read_stream(&s, &content, &entries, finish, &tokens));
	assert_string_equal(content.p, text_at(v, "choices.0.message.content"));
	assert_int_equal(entries, json_array_size(at(v, "choices.0.logprobs.content")));
	assert_string_equal(finish, "length");
	assert_int_equal(tokens, 40);
	/* Two choices: the first is what one alone was. */
	json_t *two = ask("/v1/chat/completions", "{\"n\": 2, " HELLO "}", 200);
	assert_string_equal(text_at(two, "choices.0.message.content"), text_at(v, "choices.0.message.content"));
	assert_string_not_equal(text_at(two, "choices.1.message.content"), text_at(v, "choices.0.message.content"));
	assert_int_equal(int_at(two, "choices.1.index"), 1);
	assert_int_equal(int_at(two, "usage.completion_tokens"), 80);
	json_decref(two);
	json_decref(v);
	uint64_t since = ww_now_ns(); /* four answers of 40 tokens, counted soon after they are sent */
	do {
		ww_str_reset(&s);
		ww_completions_metrics(completions, &s);
	} while (!strstr(s.p, "\nwarpwright_generated_tokens_total{model=\"tiny\"} 160\n") && ww_seconds_since(since) < 5);
	assert_true(ww_seconds_since(since) < 5);
	ww_str_release(&s);
	ww_str_release(&content);
}

static void text_whole_and_streamed(void **state)
{
	struct ww_str s = WW_STR_INIT(8 << 20), content = WW_STR_INIT(1 << 20);
	char finish[32] = "", body[512];
	int entries;
	int64_t tokens;
	(void)state;
	json_t *v = ask("/v1/completions", "{\"prompt\": \"abc\", \"seed\": 5, \"max_tokens\": 60, \"echo\": true}", 200);
	const char *text = text_at(v, "choices.0.text");
	assert_memory_equal(text, "abc", 3);
	assert_int_equal(int_at(v, "usage.prompt_tokens"), 3);
	assert_int_equal(
		talk("POST", "/v1/completions",
			"{\"prompt\": \"abc\", \"seed\": 5, \"max_tokens\": 60, \"echo\": true, \"stream\": true}", &s),
		200);
	assert_true(read_stream(&s, &content, &entries, finish, &tokens));
	assert_string_equal(content.p, text);
	assert_string_equal(finish, "length");
	assert_int_equal(tokens, -1);
	/* A stop string out of the middle, where two bytes are plain letters. */
	size_t i = 4;
	while (
		text[i] && !((unsigned char)text[i] > 32 && (unsigned char)text[i] < 127 && text[i] != '"' && text[i] != '\\'))
		i++;
	assert_true(text[i]);
	snprintf(body, sizeof(body),
		"{\"prompt\": [97, 98, 99], \"seed\": 5, \"max_tokens\": 60, \"stop\": \"%c\", \"logprobs\": 0}", text[i]);
	json_t *cut = ask("/v1/completions", body, 200);
	assert_string_equal(text_at(cut, "choices.0.finish_reason"), "stop");
	assert_int_equal(strlen(text_at(cut, "choices.0.text")), strcspn(text + 3, (char[]){ text[i], 0 }));
	assert_int_equal(json_array_size(at(cut, "choices.0.logprobs.tokens")),
		json_array_size(at(cut, "choices.0.logprobs.token_logprobs")));
	assert_true(json_array_size(at(cut, "choices.0.logprobs.tokens")) > 0);
	json_decref(cut);
	cut = ask("/v1/completions", "{\"prompt\": [\"a\", [98, 99]], \"n\": 2, \"max_tokens\": 1}", 200);
	assert_int_equal(json_array_size(at(cut, "choices")), 4);
	assert_int_equal(int_at(cut, "usage.prompt_tokens"), 3);
	json_decref(cut);
	json_decref(v);
	ww_str_release(&s);
	ww_str_release(&content);
}

/* A random model calls nothing by itself; a demanded call is begun for it, and what it makes of it is text where it is
 * no JSON. */
static void demanded_calls(void **state)
{
	(void)state;
	json_t *v = ask("/v1/chat/completions",
		"{" HELLO ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}],"
		" \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}}",
		200);
	assert_memory_equal(text_at(v, "choices.0.message.content"), "<tool_call>\n{\"name\": \"f\", \"arguments\": ", 38);
	json_decref(v);
}

static void bad_requests(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *param;
	} cases[] = { { "{", 400, NULL }, { "[]", 400, NULL }, { "{\"model\": \"other\", " HELLO "}", 404, "model" },
		{ "{\"messages\": []}", 400, "messages" },
		{ "{\"messages\": [{\"role\": \"robot\", \"content\": \"x\"}]}", 400, "messages" },
		{ "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", 400, "messages" },
		{ "{" HELLO ", \"temperature\": 3}", 400, "temperature" },
		{ "{" HELLO ", \"temperature\": \"hot\"}", 400, "temperature" }, { "{" HELLO ", \"n\": 0}", 400, "n" },
		{ "{" HELLO ", \"stop\": [\"\"]}", 400, "stop" }, { "{" HELLO ", \"stream\": 1}", 400, "stream" },
		{ "{" HELLO ", \"top_logprobs\": 2}", 400, "top_logprobs" },
		{ "{" HELLO ", \"logprobs\": true, \"top_logprobs\": 21}", 400, "top_logprobs" },
		{ "{" HELLO ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\"}}}", 400,
			"response_format" },
		{ "{" HELLO ", \"presence_penalty\": 0.5}", 400, "presence_penalty" },
		{ "{" HELLO ", \"logit_bias\": {\"5\": 1}}", 400, "logit_bias" },
		{ "{" HELLO
		  ", \"response_format\": {\"type\": \"json_object\"}, \"tools\": [{\"type\": \"function\", \"function\": "
		  "{\"name\": \"f\"}}]}",
			400, "response_format" },
		{ "{" HELLO ", \"tools\": [{}]}", 400, "tools" },
		{ "{" HELLO ", \"tool_choice\": \"required\"}", 400, "tool_choice" },
		{ "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"max_tokens\": 2000}", 400, NULL } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		json_t *v = ask("/v1/chat/completions", cases[i].body, cases[i].status);
		const char *param = json_string_value(at(v, "error.param"));
		if (!cases[i].param ? param != NULL : !param || strcmp(param, cases[i].param))
			fail_msg("%s: %s", cases[i].body, param ? param : "(none)");
		assert_string_equal(text_at(v, "error.type"), "invalid_request_error");
		assert_true(strlen(text_at(v, "error.message")) > 10);
		json_decref(v);
	}
	json_t *v = ask("/v1/completions", "{\"prompt\": [999]}", 400);
	json_decref(v);
	v = ask("/v1/completions", "{\"prompt\": \"a\", \"suffix\": \"b\"}", 400);
	json_decref(v);
	v = ask("/v1/completions", "{}", 400);
	json_decref(v);
}

static void *ask_in_thread(void *arg)
{
	char body[256];
	snprintf(body, sizeof(body),
		"{\"messages\": [{\"role\": \"user\", \"content\": \"%d\"}], \"seed\": 3, \"max_tokens\": 30}",
		(int)(intptr_t)arg);
	return ask("/v1/chat/completions", body, 200);
}

/* Many at once get what each alone gets, while others break off. */
static void many_clients_and_some_that_go(void **state)
{
	enum { CLIENTS = 12 };
	pthread_t t[CLIENTS];
	json_t *crowd[CLIENTS];
	int gone[4];
	(void)state;
	for (int i = 0; i < 4; i++)
		gone[i] = connect_and_send("POST", "/v1/chat/completions",
			i % 2 ? "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"stream\": true}"
				  : "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
	for (intptr_t i = 0; i < CLIENTS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, ask_in_thread, (void *)i), 0);
	for (int i = 0; i < 4; i++)
		close(gone[i]);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(t[i], (void **)&crowd[i]);
	for (intptr_t i = 0; i < CLIENTS; i++) {
		json_t *alone = ask_in_thread((void *)i);
		assert_string_equal(
			text_at(alone, "choices.0.message.content"), text_at(crowd[i], "choices.0.message.content"));
		json_decref(alone);
		json_decref(crowd[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(models_are_listed), cmocka_unit_test(chat_whole_and_streamed),
		cmocka_unit_test(text_whole_and_streamed), cmocka_unit_test(demanded_calls), cmocka_unit_test(bad_requests),
		cmocka_unit_test(many_clients_and_some_that_go) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
