/* fuzz_serve.c - untrusted input of `serve`: messages of MCP and of OpenEnv.
 *
 * The first byte says to whom, the rest is the message.  MCP ('0' a client that has said nothing, '1' one with a
 * session): whatever is said back is one JSON object on one line; a request gets one final answer and no more, and what
 * is no request gets at most one. OpenEnv ('2'): there is an answer of a known type unless the client said close, and
 * an environment that was spoken to so can still be reset.  Tools and judge answer at once.
 *
 *   with libFuzzer (-DWW_FUZZ=ON, clang):   fuzz_serve CORPUS_DIR
 *   without:   fuzz_serve --corpus DIR      write good messages to start from
 *              fuzz_serve --mutate N SEED   N mutations of them; prints how many were understood
 *              fuzz_serve FILE...           run these inputs
 */
#include "mutate.h"

#include "base/json.h"
#include "serve/openenv.h"

#include <sched.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- MCP --------------------------------------------------------------------------------------------------------- */

static enum ww_rc echo_run(
	void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err)
{
	(void)ctx, (void)err;
	ww_mcp_call_progress(call, "echoing");
	ww_str_adds(&a->text, ww_json_str(args, "text", ""));
	return WW_OK;
}

static const struct ww_mcp_tool tools[] = { { "echo", "Echo", "says it again",
	"{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"},\"n\":{\"type\":[\"integer\",\"null\"],"
	"\"minimum\":1,\"maximum\":3},\"word\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}},\"required\":[\"text\"]}",
	"{\"type\":\"object\"}", 1, 1, echo_run, 0 } };

struct heard {
	int finals, errors;
};

static void on_send(void *ctx, const struct ww_mcp_out *o)
{
	struct heard *h = ctx;
	if (o->text) {
		json_t *parsed = json_loadb(o->text, o->n, JSON_REJECT_DUPLICATES, NULL);
		if (!json_is_object(parsed) || memchr(o->text, '\n', o->n))
			abort();
		json_decref(parsed);
	}
	h->finals += o->final;
	h->errors += o->error != 0;
}

static int is_request(const uint8_t *p, size_t n)
{
	struct ww_err err;
	json_t *o = NULL;
	int yes = ww_json_parse((const char *)p, n, "message", &o, &err) == WW_OK && json_object_get(o, "id") &&
		json_is_string(json_object_get(o, "method"));
	json_decref(o);
	return yes;
}

static struct ww_mcp *core(void)
{
	static struct ww_mcp *m;
	struct ww_err err = WW_ERR_INIT;
	const struct ww_mcp_opts o = { .tools = tools, .n_tools = WW_ARRAY_LEN(tools), .instructions = "" };
	if (!m && ww_mcp_new(&m, &o, &err) != WW_OK)
		abort();
	return m;
}

static int try_mcp(int session, const uint8_t *p, size_t n)
{
	static const char hello[] =
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}";
	struct heard h = { 0, 0 };
	struct ww_mcp_peer *peer = ww_mcp_peer_new(core(), on_send, &h);
	if (session)
		ww_mcp_receive(peer, hello, sizeof(hello) - 1);
	h = (struct heard){ 0, 0 };
	ww_mcp_receive(peer, (const char *)p, n);
	while (ww_mcp_running(core()))
		sched_yield();
	ww_mcp_peer_close(peer);
	if (h.finals > 1 || (is_request(p, n) && h.finals != 1))
		abort();
	return h.finals && !h.errors;
}

/* ---- OpenEnv ----------------------------------------------------------------------------------------------------- */

static enum ww_rc answer(
	const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	(void)s, (void)err;
	v->status = WW_STATUS_OK;
	v->correct = depth != WW_JUDGE_COMPILE;
	v->reward = v->correct ? 1 : -1;
	v->diagnostics = strdup("");
	return WW_OK;
}

static struct ww_openenv *environments(struct ww_env **env)
{
	static struct ww_openenv *o;
	static struct ww_env *e;
	static const struct ww_broker_opts d = {
		.device_name = "none", .open_tasks = 1, .threads = 1, .answer = answer, .judge.target = WW_TARGET_CPU
	};
	struct ww_broker *broker;
	struct ww_err err = WW_ERR_INIT;
	if (!o) {
		if (ww_broker_new(&broker, &d, &err) != WW_OK)
			abort();
		const struct ww_openenv_opts opts = { .env = { .broker = broker, .max_turns = 4, .max_seconds = 60 },
			.mcp = core(),
			.max_sessions = 1,
			.wait_s = 10 };
		if (ww_openenv_new(&o, &opts, &err) != WW_OK || ww_env_new(&e, &opts.env, &err) != WW_OK)
			abort();
	}
	*env = e;
	return o;
}

static int try_openenv(const uint8_t *p, size_t n)
{
	static const char reset[] = "{\"type\":\"reset\",\"data\":{\"task_source\":\"class Model: pass\"}}";
	static int fresh;
	struct ww_env *e;
	struct ww_openenv *o = environments(&e);
	if (!fresh) {
		json_t *r = ww_openenv_answer(o, e, NULL, reset, sizeof(reset) - 1);
		if (strcmp(ww_json_str(r, "type", ""), "observation"))
			abort();
		json_decref(r);
		fresh = 1;
	}
	char *text = malloc(n + 1); /* as a message of a session is: a NUL follows */
	memcpy(text, p, n);
	text[n] = 0;
	json_t *r = ww_openenv_answer(o, e, NULL, text, n), *data = json_object_get(r, "data");
	free(text);
	if (!r)
		return 1; /* close */
	const char *type = ww_json_str(r, "type", "");
	int observation = !strcmp(type, "observation"), error = !strcmp(type, "error");
	if (!observation && !error && strcmp(type, "state") && strcmp(type, "mcp"))
		abort();
	if ((error &&
			(!json_is_string(json_object_get(data, "message")) || !json_is_string(json_object_get(data, "code")))) ||
		(observation && (!json_is_object(json_object_get(data, "observation")) || !json_object_get(data, "reward"))))
		abort();
	if (ww_json_bool(data, "done", 0))
		fresh = 0;
	json_decref(r);
	return !error;
}

static int try_message(const uint8_t *p, size_t n)
{
	if (n < 1)
		return 0;
	return *p == '2' ? try_openenv(p + 1, n - 1) : try_mcp(*p == '1', p + 1, n - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)try_message(data, size);
	return 0;
}

#ifndef WW_LIBFUZZER

#define META "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":" \
	"{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}},\"progressToken\":\"p\"}"
#define RPC(id, method, params) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":{" params "}}"

static const char *const seeds[] = {
	"0" RPC("1", "server/discover", META), "0" RPC("\"a\"", "tools/list", META),
	"0" RPC("0", "initialize", "\"protocolVersion\":\"2025-06-18\""),
	"0" RPC("1", "tools/call", "\"name\":\"echo\",\"arguments\":{\"text\":\"hm\",\"n\":2,\"word\":\"a\"}," META),
	"1" RPC("1", "ping", ""), "1" RPC("1", "tools/call", "\"name\":\"echo\",\"arguments\":{\"text\":\"hm\"}"),
	"1" RPC("1", "tools/list", ""),
	"1" RPC("1", "tools/call", "\"name\":\"echo\",\"arguments\":{\"text\":\"hm\"},\"task\":{\"ttl\":1000}"),
	"1" RPC("1", "tasks/list", ""), "2{\"type\":\"state\"}",
	"2{\"type\":\"step\",\"data\":{\"tool\":\"write\",\"arguments\":{\"path\":\"plan.c\",\"text\":\"x\"}}}",
	"2{\"type\":\"step\",\"data\":{\"tool\":\"wait\",\"metadata\":{}}}",
	"2{\"type\":\"step\",\"data\":{\"calls\":[{\"tool\":\"read\",\"arguments\":\"{\\\"path\\\":\\\"plan.c\\\"}\"},{\"tool\":\"todo\",\"arguments\":{\"items\":[]}}],"
	"\"text\":\"t\",\"reasoning\":\"r\"}}",
	"2{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\",\"params\":{}}}",
	"2{\"type\":\"reset\",\"data\":{\"task_source\":\"class Model: pass\",\"seed\":3,\"episode_id\":\"e\",\"max_turns\":2,\"max_seconds\":9.5}}"
};
enum { SEEDS = sizeof(seeds) / sizeof(seeds[0]) };

static int write_corpus(const char *dir) { return fuzz_write_texts("fuzz_serve", dir, seeds, SEEDS); }

static const char *const words[] = { "null", "-1", "99999999999999999999", "{}", "[]", "\"\\u0000\"", "\"\\ud800\"",
	"\xff", "\n", "1e999", "\"id\":1,", "\"method\":\"tasks/get\",", "\"taskId\":\"x\",", "\"tool\":\"submit\",",
	"\"tool\":\"verify\",", "\"type\":\"close\",", "\"type\":\"reset\",", "\"calls\":[],", "\"cursor\":\"\",", "true",
	"\"a\":" };

static int run_mutations(uint64_t count, uint64_t seed)
{
	static const struct fuzz_texts texts = { "fuzz_serve", seeds, words, SEEDS, WW_ARRAY_LEN(words), 1, 3,
		try_message };
	return fuzz_mutate_texts(&texts, count, seed);
}

int main(int argc, char **argv)
{
	static const struct fuzz_target target = { "fuzz_serve", write_corpus, run_mutations, try_message };
	return fuzz_main(&target, argc, argv);
}

#endif
