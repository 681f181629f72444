/* The compact prompt: the text of a graph, the loop in which answers carry files, and how many tokens it takes.
 *
 * budget: 3 CPU-seconds */
#include "script.h"

#include "agent/compact.h"
#include "agent/prompt.h"
#include "episode/view.h"
#include "nn/tok_train.h"
#include "nn/tokenizer.h"
#include "policy/planner/planner.h"
#include "task/set_lines.h"

#include <dirent.h>
#include <fcntl.h>

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static const char acts[] =
	"{'inputs': [{'name': 'x', 'dtype': 'float32', 'sizes': [2, 4], 'strides': [1, 2]}], 'scalars': [{'kind': 'int', "
	"'value': 3}], 'params': [{'name': 'm.w', 'dtype': 'bfloat16', 'sizes': [4], 'strides': [1], 'role': 'param', "
	"'used': true}, {'name': 'c', 'dtype': 'int64', 'sizes': [], 'strides': [], 'role': 'constant', 'value': 7}, "
	"{'name': 'gone', 'dtype': 'int64', 'sizes': [], 'strides': [], 'role': 'buffer', 'used': false}], 'nodes': "
	"[{'name': 'mul', 'op': 'aten.mul.Tensor', 'args': [{'ref': 'm.w'}, {'ref': 'x'}], 'kwargs': {}, 'out': [{'dtype': "
	"'float32', 'sizes': [2, 4], 'strides': [1, 2]}]}, {'name': 'cat', 'op': 'aten.cat.default', 'args': [[{'ref': "
	"'mul'}, {'ref': 'x'}], -1], 'kwargs': {}, 'out': [{'dtype': 'float32', 'sizes': [2, 8], 'strides': [8, 1]}]}, "
	"{'name': 'gelu', 'op': 'aten.gelu.default', 'args': [{'ref': 'cat'}], 'kwargs': {'approximate': 'tanh'}, 'out': "
	"[{'dtype': 'float32', 'sizes': [2, 8], 'strides': [8, 1]}]}, {'name': 'max_1', 'op': 'aten.max.dim', 'args': "
	"[{'ref': 'gelu'}, 1, true], 'kwargs': {}, 'out': [{'dtype': 'float32', 'sizes': [2, 1]}, {'dtype': 'int64', "
	"'sizes': [2, 1]}]}, {'name': 'getitem', 'op': 'getitem', 'args': [{'ref': 'max_1'}, 0], 'kwargs': {}, 'out': "
	"[{'dtype': 'float32', 'sizes': [2, 1]}]}], 'outputs': [{'name': 'output0', 'ref': 'getitem', 'dtype': 'float32', "
	"'sizes': [2, 1], 'strides': [1, 1]}, {'name': 'output1', 'ref': 'mul', 'dtype': 'float32', 'sizes': [2, 4], "
	"'strides': [1, 2]}]}";

static const char acts_text[] = "in x f32[2,4]/[1,2]\n"
								"scalar int 3\n"
								"param m.w bf16[4]\n"
								"const c i64[] = 7\n"
								"mul(m.w, x) f32[2,4]\n"
								"cat([mul,x], -1) f32[2,8]\n"
								"gelu(cat, approximate=tanh)\n"
								"max_1(gelu, 1, True) f32[2,1] i64[2,1]\n"
								"getitem(max_1, 0)\n"
								"out getitem\n"
								"out mul f32[2,4]/[1,2]\n";

static void graph_text(void **state)
{
	ww_auto_str source = WW_STR_INIT(1 << 16), text = WW_STR_INIT(1 << 16);
	json_auto_t *g = NULL;
	struct ww_err err;
	for (const char *p = acts; *p; p++)
		ww_str_addc(&source, *p == '\'' ? '"' : *p);
	assert_int_equal(ww_json_parse(source.p, source.len, "graph", &g, &err), WW_OK);
	ww_graph_text(g, &text);
	assert_string_equal(text.p, acts_text);
}

/* What nobody reads is left out, an in-place change of a view is not. */
static const char dead[] =
	"{'inputs': [{'name': 'x', 'dtype': 'float32', 'sizes': [4], 'strides': [1]}], 'params': [{'name': 'n', 'dtype': "
	"'int64', 'sizes': [], 'strides': [], 'role': 'buffer'}, {'name': 'm', 'dtype': 'int64', 'sizes': [], 'strides': [], "
	"'role': 'buffer'}], 'nodes': [{'name': 'add_', 'op': 'aten.add_.Tensor', 'args': [{'ref': 'n'}, 1]}, {'name': "
	"'add__1', 'op': 'aten.add_.Tensor', 'args': [{'ref': 'm'}, 1]}, {'name': 'mul', 'op': 'aten.mul.Tensor', 'args': "
	"[{'ref': 'x'}, {'ref': 'm'}]}, {'name': 'exp', 'op': 'aten.exp.default', 'args': [{'ref': 'x'}]}, {'name': 'log', "
	"'op': 'aten.log.default', 'args': [{'ref': 'exp'}]}, {'name': 'select', 'op': 'aten.select.int', 'args': [{'ref': "
	"'mul'}, 0, 0]}, {'name': 'zero__5', 'op': 'aten.zero_.default', 'args': [{'ref': 'select'}]}, {'name': 'y', 'op': "
	"'aten.neg.default', 'args': [{'ref': 'mul'}]}], 'outputs': [{'ref': 'y', 'dtype': 'float32', 'sizes': [4], "
	"'strides': [1]}]}";
static const char dead_text[] = "in x f32[4]\nbuffer m i64[]\nadd__1(m, 1)\nmul(x, m)\nselect(mul, 0, 0)\n"
								"zero__5(select)\ny = neg(mul)\nout y f32[4]\n";

static void what_nobody_reads_is_left_out(void **state)
{
	ww_auto_str source = WW_STR_INIT(1 << 16), text = WW_STR_INIT(1 << 16);
	json_auto_t *g = NULL;
	struct ww_err err;
	for (const char *p = dead; *p; p++)
		ww_str_addc(&source, *p == '\'' ? '"' : *p);
	assert_int_equal(ww_json_parse(source.p, source.len, "graph", &g, &err), WW_OK);
	ww_graph_text(g, &text);
	assert_string_equal(text.p, dead_text);
}

/* A layer like the one before it is told once, one that differs in a type is not like it. */
static const char layers[] =
	"{'inputs': [], 'params': ["
	"{'name': 'b.0.w', 'dtype': 'float32', 'sizes': [4], 'strides': [1], 'role': 'param', 'used': true}, "
	"{'name': 'b.1.w', 'dtype': 'float32', 'sizes': [4], 'strides': [1], 'role': 'param', 'used': true}, "
	"{'name': 'b.2.w', 'dtype': 'float32', 'sizes': [5], 'strides': [1], 'role': 'param', 'used': true}, "
	"{'name': 'b.3.w', 'dtype': 'float32', 'sizes': [5], 'strides': [1], 'role': 'param', 'used': true}, "
	"{'name': 'c.4.w', 'dtype': 'float32', 'sizes': [5], 'strides': [1], 'role': 'param', 'used': true}, "
	"{'name': 'b.0.m', 'dtype': 'int64', 'sizes': [], 'strides': [], 'role': 'buffer', 'used': true}, "
	"{'name': 'b.1.m', 'dtype': 'int64', 'sizes': [], 'strides': [], 'role': 'buffer', 'used': true}], "
	"'nodes': [], "
	"'outputs': [{'ref': 'b.0.m', 'dtype': 'int64', 'sizes': [], 'strides': []}, "
	"{'ref': 'b.1.m', 'dtype': 'int64', 'sizes': [], 'strides': []}]}";
static const char layers_text[] = "param b.0.w f32[4]\nb.1 as b.0\nparam b.2.w f32[5]\nb.3 as b.2\n"
								  "param c.4.w f32[5]\nbuffer b.0.m i64[]\nout b.0.m\nout b.1.m\n";

static void equal_layers_are_told_once(void **state)
{
	ww_auto_str source = WW_STR_INIT(1 << 16), text = WW_STR_INIT(1 << 16);
	json_auto_t *g = NULL;
	struct ww_err err;
	for (const char *p = layers; *p; p++)
		ww_str_addc(&source, *p == '\'' ? '"' : *p);
	assert_int_equal(ww_json_parse(source.p, source.len, "graph", &g, &err), WW_OK);
	ww_graph_text(g, &text);
	assert_string_equal(text.p, layers_text);
}

static void system_text(void **state)
{
	struct ww_compact c = { WW_TARGET_CUDA, WW_LOOP_AGENT, WW_RULE_STRICT, 1u << WW_BASE_EAGER | 1u << WW_BASE_COMPILE,
		3 };
	ww_auto_free char *agent = ww_compact_system(&c);
	c.loop = WW_LOOP_SINGLE;
	c.baselines = 1u << WW_BASE_EAGER;
	ww_auto_free char *single = ww_compact_system(&c);
	size_t n, n_single;
	assert_non_null(strstr(agent, "plan.c and kernels.cu"));
	assert_non_null(strstr(agent, "3 also than torch.compile"));
	assert_non_null(strstr(agent, "There are 3 turns."));
	const struct ww_tool_spec *tools = ww_compact_tools(WW_LOOP_AGENT, &n);
	for (size_t i = 0; i < n; i++)
		assert_non_null(strstr(agent, tools[i].name));
	ww_compact_tools(WW_LOOP_SINGLE, &n_single);
	assert_int_equal(n_single, 0);
	assert_null(strstr(single, "tool"));
	assert_null(strstr(single, "torch.compile"));
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

#define FILES(us) "```plan.c\nvoid plan(struct ww_plan *p)\n```\n```kernels.c\nus=" us "\n```\n"

static const struct line turns[] = { { FILES("180"), { "verify" }, { "{}" } },
	{ "```kernels.c\nwrong\n```\n", { "verify" }, { "{}" } }, { FILES("100"), { "verify" }, { "{}" } },
	{ "", { "submit" }, { "{}" } } };

/* Answers carry files, calls do not; what is recorded says which prompt it was, and holds no schemas. */
static void agentic(void **state)
{
	struct fixture f;
	char where[PATH_MAX];
	ww_auto_str record = WW_STR_INIT(1 << 20);
	assert_int_equal(ww_fs_join(where, dir, "agentic", &f.err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(where, &f.err), WW_OK);
	prepare(&f, where, turns, 4);
	f.opts.prompt = WW_PROMPT_COMPACT;
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_OK);
	assert_string_equal(f.result.end.reason, "submitted");
	assert_true(f.result.best.time.device_us == 100);
	assert_true(f.result.end.reward_final == 3);
	finish(&f);
	normal_form(where, &record);
	assert_non_null(strstr(record.p, "\"prompt\":\"compact\""));
	assert_null(strstr(record.p, "\"tools\":"));
	assert_null(strstr(record.p, "class Model"));
	assert_non_null(strstr(record.p, "status: mismatch"));
	prepare(&f, where, turns, 4);
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_ERR_USAGE); /* it has ended, and with this prompt */
	finish(&f);
}

/* ---- What a program did, as a model is to say it ----------------------------------------------------------------- */

#define WRITE(us) "{\"path\":\"kernels.c\",\"text\":\"us=" us "\"}"
#define WRITE_PLAN "{\"path\":\"plan.c\",\"text\":\"void plan\\n\"}"

static const struct line program[] = { { "look", { "inspect" }, { "{}" } },
	{ "first", { "write", "write", "verify" }, { WRITE("180"), WRITE_PLAN, "{}" } },
	{ "better", { "write", "submit" }, { WRITE("100"), "{}" } } };

static void run_program(const char *name, enum ww_loop loop, const char *expected)
{
	struct fixture f;
	char where[PATH_MAX], path[PATH_MAX];
	WW_AUTO(ww_episode_release) struct ww_episode e;
	ww_auto_str said = WW_STR_INIT(1 << 20);
	json_t *m;
	size_t i;
	assert_int_equal(ww_fs_join(where, dir, name, &f.err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(where, &f.err), WW_OK);
	prepare(&f, where, program, 3);
	f.opts.prompt = WW_PROMPT_COMPACT;
	f.opts.loop = loop;
	assert_int_equal(ww_agent_run(&f.opts, &f.result, &f.err), WW_OK);
	finish(&f);
	assert_int_equal(ww_fs_join(path, where, "episode.jsonl", &f.err), WW_OK);
	assert_int_equal(ww_episode_read(path, &e, &f.err), WW_OK);
	json_auto_t *chat = ww_episode_to_chat(&e, 0);
	json_array_foreach(json_object_get(chat, "messages"), i, m) {
		json_t *call = json_array_get(json_object_get(m, "tool_calls"), 0);
		if (i > 1)
			ww_str_addf(&said, "%s: %.*s%s%s|", ww_json_str(m, "role", ""),
				strcmp(ww_json_str(m, "role", ""), "tool") ? 200 : 10, ww_json_str(m, "content", ""),
				call ? " call " : "", ww_json_str(json_object_get(call, "function"), "name", ""));
	}
	assert_string_equal(said.p, expected);
}

static void exported(void **state)
{
	run_program("program", WW_LOOP_AGENT,
		"assistant: ```plan.c\nvoid plan\n```\n```kernels.c\nus=180\n```\n call verify|"
		"tool: status: ok|"
		"assistant: ```kernels.c\nus=100\n```\n call submit|tool: submitted;|");
	run_program("once", WW_LOOP_SINGLE, "assistant: ```plan.c\nvoid plan\n```\n```kernels.c\nus=180\n```\n|");
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* LONGEST: bytes of what `synth teach --longest` of bench/train/nano-*.json keeps, prompt and answer. */
enum { CORPUS_MAX = 64 << 20, VOCABULARY = 4096, PROMPT_TOKENS = 1200, LONGEST = 9000, LONG_BYTES = 2800 };

struct prompts {
	struct ww_str text[512];
	char name[512][80];
	size_t answer[512]; /* bytes of the planner's for cuda, where the text has LONG_BYTES */
	int n, longer;
	struct ww_tok_trainer *trainer;
};

/* As for one H200, whose facts are the longest. */
static json_t *device(void)
{
	return json_pack("{s:i, s:i, s:i, s:I, s:I}", "vector_bytes", 16, "cc", 90, "sm_count", 132,
		"shared_per_block_bytes", (json_int_t)232448, "l2_bytes", (json_int_t)62914560);
}

/* The whole prompt of the loop with tools; the planner's solution is learnt beside it, as in the corpus. */
static void take_graph(struct prompts *p, const char *name, json_t *g, int with_solution)
{
	static const char *const targets[] = { "cpu", "cuda" };
	struct ww_compact c = { WW_TARGET_CUDA, WW_LOOP_AGENT, WW_RULE_STRICT, 3, 3 };
	json_auto_t *d = device(), *inspect = json_pack("{s:s, s:O, s:O}", "target", "cuda", "device", d, "graph", g);
	ww_auto_free char *system = ww_compact_system(&c), *task = ww_compact_task(inspect);
	struct ww_str *s = &p->text[p->n];
	struct ww_err err;
	assert_true(p->n < 512);
	ww_str_init(s, CORPUS_MAX);
	ww_str_addf(s, "%s%s", system, task);
	snprintf(p->name[p->n], sizeof(p->name[0]), "%s", name);
	assert_int_equal(ww_tok_trainer_add(p->trainer, s->p, s->len, &err), WW_OK);
	for (int t = 0; t < 2 && (with_solution || s->len >= LONG_BYTES); t++) {
		struct pl_result r;
		ww_pl_build(g, d, targets[t], NULL, 0, NULL, &r);
		for (int i = 0; r.ok && i < 2; i++) {
			const char *text = i ? r.device_text : r.plan_text;
			p->answer[p->n] += t ? strlen(text) : 0;
			if (with_solution)
				assert_int_equal(ww_tok_trainer_add(p->trainer, text, strlen(text), &err), WW_OK);
		}
		ww_pl_result_release(&r);
	}
	p->n++;
}

static void take_fixtures(struct prompts *p)
{
	char path[512];
	struct dirent **names;
	snprintf(path, sizeof(path), "%s/tests/data/graphs", getenv("WW_SOURCE_DIR"));
	int n = scandir(path, &names, NULL, alphasort);
	assert_true(n > 2);
	for (int i = 0; i < n; i++) {
		json_auto_t *g = NULL;
		struct ww_err err;
		snprintf(path, sizeof(path), "%s/tests/data/graphs/%s", getenv("WW_SOURCE_DIR"), names[i]->d_name);
		if (strstr(path, ".json")) {
			assert_int_equal(ww_json_read_file(path, 1 << 24, &g, &err), WW_OK);
			take_graph(p, names[i]->d_name, g, 1);
		}
		free(names[i]);
	}
	free(names);
}

/* Those of data/cpu-small, a line each: {"id", "graph"}. */
static void take_synth(struct prompts *p)
{
	struct ww_set_lines l;
	struct ww_err err;
	char path[512], *line;
	size_t n;
	snprintf(path, sizeof(path), "%s/tests/data/synth-graphs.jsonl.zst", getenv("WW_SOURCE_DIR"));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ww_set_lines_init(&l, path, fd, 1, &err), WW_OK);
	while (ww_set_lines_next(&l, &line, &n, &err) == WW_OK && line) {
		json_auto_t *row = NULL;
		assert_int_equal(ww_json_parse(line, n, path, &row, &err), WW_OK);
		take_graph(p, ww_json_str(row, "id", "?"), json_object_get(row, "graph"), 0);
	}
	ww_set_lines_release(&l);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* An identifier may be one token, a number has one for each digit. */
static void check_words(const struct ww_tok *tok)
{
	static const char *const texts[] = { "37", " 37", "4 37" };
	struct ww_err err;
	assert_true(ww_tok_id(tok, "__restrict__") >= 0);
	for (size_t i = 0; i < WW_ARRAY_LEN(texts); i++) {
		WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(16);
		assert_int_equal(
			ww_tok_encode((struct ww_tok *)(uintptr_t)tok, texts[i], strlen(texts[i]), 0, 1, &ids, &err), WW_OK);
		assert_int_equal(ids.n, i == 2 ? 3 : 2);
	}
}

static void report(struct prompts *p, const char *path)
{
	int size[512], largest = 0;
	struct ww_tok *tok;
	struct ww_err err;
	assert_int_equal(ww_tok_open(path, &tok, &err), WW_OK);
	check_words(tok);
	for (int i = 0; i < p->n; i++) {
		WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(1 << 20);
		assert_int_equal(ww_tok_encode(tok, p->text[i].p, p->text[i].len, 0, 1, &ids, &err), WW_OK);
		size[i] = (int)ids.n;
		largest = size[i] > size[largest] ? i : largest;
		if (size[i] >= PROMPT_TOKENS)
			print_message("%s: %d, its answer %zu bytes\n", p->name[i], size[i], p->answer[i]);
		assert_true(size[i] < PROMPT_TOKENS || !strstr(p->name[i], "example_"));
		p->longer += size[i] >= PROMPT_TOKENS;
		/* Nothing is learnt about a task of a longer prompt: with its answer it is longer than what is kept. */
		assert_true(size[i] < PROMPT_TOKENS || p->text[i].len + p->answer[i] > LONGEST);
	}
	ww_tok_free(tok);
	print_message("%d prompts, the largest %s: %d tokens, %d of them with %d or more\n", p->n, p->name[largest],
		size[largest], p->longer, PROMPT_TOKENS);
	qsort(size, (size_t)p->n, sizeof(*size), by_number);
	print_message("median %d, p90 %d\n", size[p->n / 2], size[p->n * 9 / 10]);
	assert_true(size[p->n * 9 / 10] < PROMPT_TOKENS); /* networks of many layers are longer */
}

static void tokens(void **state)
{
	static const char *const special[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
	static struct prompts p;
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX];
	int64_t vocabulary;
	assert_int_equal(ww_tok_trainer_new(special, 3, WW_TOK_WORDS_CODE, &p.trainer, &err), WW_OK);
	take_fixtures(&p);
	take_synth(&p);
	assert_int_equal(ww_fs_join(path, dir, "tokenizer.json", &err), WW_OK);
	assert_int_equal(ww_tok_trainer_write(p.trainer, VOCABULARY, path, &vocabulary, &err), WW_OK);
	ww_tok_trainer_free(p.trainer);
	print_message("vocabulary %lld\n", (long long)vocabulary);
	report(&p, path);
	for (int i = 0; i < p.n; i++)
		ww_str_release(&p.text[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(graph_text), cmocka_unit_test(what_nobody_reads_is_left_out),
		cmocka_unit_test(equal_layers_are_told_once), cmocka_unit_test(system_text), cmocka_unit_test(agentic),
		cmocka_unit_test(exported), cmocka_unit_test(tokens) };
	return cmocka_run_group_tests(tests, script_setup, script_teardown);
}
