/* compact.c - see compact.h. */
#include "agent/compact.h"

#include "agent/tools.h"
#include "base/json.h"
#include "base/target.h"
#include "judge/solution.h"

#include <pthread.h>
#include <string.h>

static const struct {
	const char *name, *line;
} tools[] = { { "verify", "{\"name\": \"verify\", \"arguments\": {}} checks and times the files" },
	{ "profile", "{\"name\": \"profile\", \"arguments\": {}} says where their time goes" },
	{ "compile", "{\"name\": \"compile\", \"arguments\": {}} only builds them" },
	{ "submit", "{\"name\": \"submit\", \"arguments\": {}} ends with the files as they are" } };

static struct ww_tool_spec specs[WW_ARRAY_LEN(tools)];
static pthread_once_t specs_once = PTHREAD_ONCE_INIT; /* episodes run in threads of one process */

static void fill_specs(void)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++)
		specs[i] = ww_tools_find(tools[i].name)->spec;
}

const struct ww_tool_spec *ww_compact_tools(enum ww_loop loop, size_t *n)
{
	pthread_once(&specs_once, fill_specs);
	*n = loop == WW_LOOP_AGENT ? WW_ARRAY_LEN(specs) : 0;
	return *n ? specs : NULL;
}

static void add_reward(const struct ww_compact *c, struct ww_str *s)
{
	const int eager = c->baselines >> WW_BASE_EAGER & 1, compile = c->baselines >> WW_BASE_COMPILE & 1;
	ww_str_adds(s, "Reward: -1 not correct, 1 correct");
	if (eager)
		ww_str_adds(s, ", 2 more than 5% faster than eager");
	if (eager && compile)
		ww_str_adds(s, ", 3 also than torch.compile");
	ww_str_adds(s, ".\n");
}

static void add_loop(const struct ww_compact *c, struct ww_str *s)
{
	if (c->loop == WW_LOOP_SINGLE)
		ww_str_adds(s, "There is one answer.\n");
	else if (c->loop == WW_LOOP_REFINE)
		ww_str_addf(s, "There are %d answers; after each you are told what came out.\n", c->turns);
	else
		ww_str_addf(s,
			"There are %d turns. Behind the files call one tool; the files stay until they are written again:\n",
			c->turns);
	for (size_t i = 0; c->loop == WW_LOOP_AGENT && i < WW_ARRAY_LEN(tools); i++)
		ww_str_addf(s, "<tool_call>\n%s\n</tool_call>\n", tools[i].line);
}

char *ww_compact_system(const struct ww_compact *c)
{
	struct ww_str s = WW_STR_INIT(1 << 16);
	ww_str_addf(&s,
		"Write a fast solution for target %s that computes the outputs of the graph. A node's name says its operator; "
		"one without a type has that of its first tensor. Answer with the files plan.c and %s, each in a block of code that begins with ``` and its "
		"name.\n",
		ww_target_name(c->target), ww_solution_device_file(c->target));
	ww_str_adds(&s,
		c->rule == WW_RULE_PAPER ? "Rule paper: atol = rtol = 1e-2.\n"
								 : "Rule strict: the errors of fp32 PyTorch, for any parameters.\n");
	add_reward(c, &s);
	add_loop(c, &s);
	return ww_str_take(&s);
}

char *ww_compact_output(const char *text, size_t n)
{
	struct ww_str s = WW_STR_INIT(WW_COMPACT_OUTPUT_MAX_BYTES + 256);
	ww_str_add_bounded(&s, text, n, WW_COMPACT_OUTPUT_MAX_BYTES);
	return ww_str_take(&s);
}

/* What schedules depend on. */
static void add_device(const json_t *d, struct ww_str *s)
{
	static const char *const facts[][2] = { { "threads", "threads" }, { "vector_bytes", "vector" }, { "cc", "cc" },
		{ "sm_count", "sm" }, { "shared_per_block_bytes", "shared" }, { "l2_bytes", "l2" }, { "l3_bytes", "l3" } };
	ww_str_adds(s, "device");
	for (size_t i = 0; i < WW_ARRAY_LEN(facts); i++) {
		long long v = (long long)ww_json_int(d, facts[i][0], 0);
		if (v)
			ww_str_addf(s, " %s %lld", facts[i][1], v);
	}
	ww_str_addc(s, '\n');
}

char *ww_compact_task(const json_t *inspect)
{
	struct ww_str s = WW_STR_INIT(8 << 20);
	add_device(json_object_get(inspect, "device"), &s);
	ww_graph_text(json_object_get(inspect, "graph"), &s);
	return ww_str_take(&s);
}
