/* The planner as a policy: the order of its messages, the search's use of verdicts, replay by a fresh instance, and how
 * it goes on from a model's answer. */
#include "unit.h"

#include "base/json.h"

#include "policy/planner/proposal.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_MSGS = 400 };

struct talk {
	struct ww_message m[MAX_MSGS];
	size_t n;
};

static void talk_release(struct talk *t)
{
	for (size_t i = 0; i < t->n; i++)
		ww_message_release(&t->m[i]);
}

/* A model that says one thing and was trained with the prompt `model_prompt`. */
static const char *model_says, *model_prompt = "compact"; /* model_says NULL: the planner alone */
static int64_t model_context;

static int model_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	(void)self, (void)ask, (void)err;
	out->message.role = WW_ROLE_ASSISTANT;
	out->message.text = strdup(model_says);
	out->message.calls = calloc(1, sizeof(*out->message.calls));
	out->message.n_calls = 1;
	out->message.calls[0] = (struct ww_tool_call){ strdup("x"), strdup("submit"), strdup("{}") };
	out->prompt_tokens = 5;
	return WW_OK;
}
static int64_t model_count(struct ww_policy *self, const struct ww_message *msgs, size_t n)
{
	(void)self, (void)msgs;
	return (int64_t)n * 10;
}
static int64_t model_holds(struct ww_policy *self)
{
	(void)self;
	return model_context;
}
static const char *model_told(struct ww_policy *self)
{
	(void)self;
	return model_prompt;
}
static void model_free(struct ww_policy *self) { free(self); }

static struct ww_policy *model(void)
{
	static const struct ww_policy_ops ops = { "scripted", model_next, model_count, model_free, model_holds,
		model_told };
	struct ww_policy *p = calloc(1, sizeof(*p));

	p->ops = &ops;
	return p;
}

static void ask(struct talk *t, struct ww_reply *out)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_policy *p = NULL;

	/* a fresh instance every time: nothing may live between calls */
	memset(out, 0, sizeof(*out));
	assert_int_equal(model_says ? ww_planner_over(model(), &p, &err) : ww_planner_new(NULL, &p, &err), WW_OK);
	if (p->ops->next(p, &(struct ww_ask){ .msgs = t->m, .n = t->n }, out, &err) != WW_OK)
		fail_msg("%s", err.msg);
	p->ops->free(p);
}

static void answer(struct talk *t, const struct ww_tool_call *c, json_t *data)
{
	struct ww_message *m = &t->m[t->n++];

	assert_true(t->n < MAX_MSGS);
	m->role = WW_ROLE_TOOL;
	m->text = strdup("");
	m->call_id = strdup(c->id);
	m->tool = strdup(c->name);
	m->data = json_dumps(data, 0);
	json_decref(data);
}

/* What `inspect` answers: a recorded graph and its target. */
static const char *graph_name = "example_softmax.json", *graph_target = "cpu";

static json_t *inspected(void)
{
	struct ww_err err = WW_ERR_INIT;
	char path[512];
	json_t *g = NULL;

	snprintf(path, sizeof(path), "%s/tests/data/graphs/%s", getenv("WW_SOURCE_DIR") ? getenv("WW_SOURCE_DIR") : ".",
		graph_name);
	if (ww_json_read_file(path, 1 << 24, &g, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return json_pack("{s:s, s:{s:i}, s:o}", "target", graph_target, "device", "threads", 2, "graph", g);
}

static double eager_us; /* 0: a verdict says nothing of eager mode */

static json_t *verdict(double us)
{
	json_t *v = json_pack("{s:s, s:b, s:s, s:{s:f}, s:{s:f}}", "status", us < 0 ? "mismatch" : "ok", "correct", us >= 0,
		"diagnostics", us < 0 ? "output0 differs" : "", "time", "device_us", us < 0 ? 0 : us, "seconds", "total", 1.0);

	if (eager_us > 0 && us > 0)
		json_object_set_new(v, "speedup", json_pack("{s:{s:f}}", "eager", "mid", eager_us / us));
	return v;
}

/* Play an episode; the time of trial i is given by us(i), negative: a mismatch.  Returns the number of trials. */
static int play(
	struct talk *t, double (*us)(int trial), char **best_kernels, int *submitted, char *last_text, size_t cap)
{
	int trial = 0;

	*submitted = 0;
	for (int turn = 0; turn < 60; turn++) {
		struct ww_reply r;
		struct ww_message *m = &t->m[t->n];

		ask(t, &r);
		snprintf(last_text, cap, "%s", r.message.text);
		assert_int_equal(ww_message_copy(m, &r.message), WW_OK);
		t->n++;
		ww_reply_release(&r);
		if (!m->n_calls)
			return trial;
		for (size_t c = 0; c < m->n_calls; c++) {
			if (!strcmp(m->calls[c].name, "inspect")) {
				answer(t, &m->calls[c], inspected());
			} else if (!strcmp(m->calls[c].name, "verify")) {
				answer(t, &m->calls[c], verdict(us(trial++)));
			} else if (!strcmp(m->calls[c].name, "submit")) {
				*submitted = 1;
				return trial;
			} else {
				if (strstr(m->calls[c].arguments, "kernels.c")) {
					free(*best_kernels);
					*best_kernels = strdup(m->calls[c].arguments);
				}
				answer(t, &m->calls[c], json_pack("{s:b}", "ok", 1));
			}
		}
	}
	fail_msg("the planner does not end");
	return -1;
}

static double constant(int trial)
{
	(void)trial;
	return 100;
}
static double last_digit(int trial) { return trial == 2 ? 99.5 : 100; } /* less than the noise */
static double second_wins(int trial) { return trial == 1 ? 50 : 100; }
static double never(int trial)
{
	(void)trial;
	return -1;
}

static const char *first_kernels(const struct talk *t, int nth)
{
	for (size_t i = 0; i < t->n; i++)
		for (size_t c = 0; c < t->m[i].n_calls; c++)
			if (!strcmp(t->m[i].calls[c].name, "write") && strstr(t->m[i].calls[c].arguments, "kernels.c") &&
				nth-- == 0)
				return t->m[i].calls[c].arguments;
	return NULL;
}

static void test_no_gain_keeps_the_first(void **state)
{
	struct talk t = { 0 };
	char *last = NULL, text[800];
	int submitted, trials = play(&t, constant, &last, &submitted, text, sizeof(text));

	(void)state;
	assert_true(submitted);
	assert_true(trials > 1);
	assert_string_equal(last, first_kernels(&t, 0)); /* written again, since the last trial was another one */
	free(last);
	talk_release(&t);
}

static void test_the_best_is_submitted(void **state)
{
	struct talk t = { 0 };
	char *last = NULL, text[800];
	int submitted;

	(void)state;
	play(&t, second_wins, &last, &submitted, text, sizeof(text));
	assert_true(submitted);
	assert_string_equal(last, first_kernels(&t, 1));
	free(last);
	talk_release(&t);
}

/* The loop keeps the fastest as the best and judges it at the end: handing in another one would cost a second
 * judgement. */
static void test_the_fastest_is_submitted_even_by_little(void **state)
{
	struct talk t = { 0 };
	char *last = NULL, text[800];
	int submitted;

	(void)state;
	play(&t, last_digit, &last, &submitted, text, sizeof(text));
	assert_true(submitted);
	assert_string_equal(last, first_kernels(&t, 2));
	free(last);
	talk_release(&t);
}

static void test_wrong_solutions_end_with_the_reason(void **state)
{
	struct talk t = { 0 };
	char *last = NULL, text[800];
	int submitted, trials = play(&t, never, &last, &submitted, text, sizeof(text));

	(void)state;
	assert_false(submitted);
	assert_int_equal(trials, 2);
	assert_non_null(strstr(text, "output0 differs"));
	free(last);
	talk_release(&t);
}

static void test_replies_repeat(void **state)
{
	struct talk t = { 0 };
	struct ww_reply a, b;
	char *last = NULL, text[800];
	int submitted;

	(void)state;
	play(&t, second_wins, &last, &submitted, text, sizeof(text));
	for (size_t n = t.n; n > 0; n--) {
		struct talk part = t;

		if (t.m[n - 1].role == WW_ROLE_ASSISTANT)
			continue;
		part.n = n;
		if (n < t.n && t.m[n].role != WW_ROLE_ASSISTANT)
			continue; /* in the middle of a message's answers */
		ask(&part, &a);
		ask(&part, &b);
		assert_string_equal(a.message.text, b.message.text);
		assert_int_equal(a.message.n_calls, b.message.n_calls);
		for (size_t c = 0; c < a.message.n_calls; c++)
			assert_string_equal(a.message.calls[c].arguments, b.message.calls[c].arguments);
		if (n < t.n)
			assert_string_equal(a.message.text, t.m[n].text);
		ww_reply_release(&a);
		ww_reply_release(&b);
	}
	free(last);
	talk_release(&t);
}

/* The text of plan.c of trial `nth`. */
/* Of the trials whose launches do not overlap. */
static const char *nth_plan(const struct talk *t, int nth)
{
	for (size_t i = 0; i < t->n; i++)
		for (size_t c = 0; c < t->m[i].n_calls; c++)
			if (!strcmp(t->m[i].calls[c].name, "write") && strstr(t->m[i].calls[c].arguments, "plan.c") &&
				!strstr(t->m[i].calls[c].arguments, "ww_pdl_all") && nth-- == 0)
				return t->m[i].calls[c].arguments;
	fail_msg("there are not so many trials");
	return NULL;
}

static double third_is_right(int trial) { return trial == 1 ? 100 : trial ? 120 : -1; }
static double second_is_faster(int trial) { return trial == 1 ? 50 : 100; }

/* On cuda a convolution is tried channels-last, which the search begins with where that looks cheaper, by our template
 * and by the library; one that fails, by the library without TF32.  The search goes on from what was faster. */
static void test_convolutions_try_the_library(void **state)
{
	static const struct {
		const char *graph;
		double (*us)(int trial);
		const char *has[3]; /* in the first, second and third plan; NULL: no library node */
	} rows[] = {
		{ "example_conv_bias_relu.json", constant, { NULL, "WW_LAYOUT_NHWC", "WW_MATH_TF32" } },
		{ "example_conv_bias_relu.json", third_is_right,
			{ NULL, "WW_MATH_FP32", "WW_MATH_FP32, .layout = WW_LAYOUT_NHWC" } },
		{ "example_conv_bias_relu.json", never, { NULL, "WW_MATH_FP32", NULL } },
		{ "convs.json", constant, { "WW_MATH_TF32, .groups = 1, .n = S0, .c = 16, .k = 16", "WW_LAYOUT_NHWC", NULL } },
		{ "conv_chain.json", constant, { NULL, "WW_LAYOUT_NHWC", "WW_MATH_TF32, .groups" } },
		{ "example_conv_bias_relu.json", second_is_faster,
			{ NULL, "WW_LAYOUT_NHWC", ".layout = WW_LAYOUT_NHWC, .groups" } },
	};

	(void)state;
	graph_target = "cuda";
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct talk t = { 0 };
		char *last = NULL, text[800];
		int submitted;

		graph_name = rows[i].graph;
		assert_true(play(&t, rows[i].us, &last, &submitted, text, sizeof(text)) >= 3);
		assert_int_equal(submitted, rows[i].us != never);
		for (int n = 0; n < 3; n++) {
			const char *plan = nth_plan(&t, n);

			if (!strstr(plan, rows[i].has[n] ? rows[i].has[n] : "ww_recipe_conv_") ||
				(!rows[i].has[n] && strstr(plan, "ww_recipe_conv_library")))
				fail_msg("%s, trial %d: %s", rows[i].graph, n + 1, plan);
		}
		free(last);
		talk_release(&t);
	}
	graph_name = "example_softmax.json", graph_target = "cpu";
}

/* The search of one convolution on a GPU for which the library is first, in halves or not, until it ends: how many
 * trials have it by our template, and which one is the first of these. */
static int trials_of_ours(int facts, int *first)
{
	const struct pl_result shape = { .ok = 1,
		.can_overlap = 1,
		.n_kern = 1,
		.kern_title = { "convolution" },
		.kern_nodes = { (char *)(uintptr_t)"conv2d" },
		.kern_kind = { K_ANCHOR },
		.kern_spec = { S_CONV },
		.kern_library = { OURS_TILED | BY_LIBRARY | facts } };
	json_t *v = json_loads("{\"correct\": true, \"time\": {\"device_us\": 100}}", 0, NULL);
	struct search s;
	int n = 0;

	pl_search_init(&s, &shape, NULL, 1, NULL);
	for (int trial = 0; !s.done; trial++) {
		if (s.now.knobs[0].library == LIBRARY_NO && !n++)
			*first = trial;
		pl_search_feed(&s, v);
	}
	pl_search_release(&s);
	json_decref(v);
	return n;
}

/* Where the library is first for a convolution whose result is beyond L2, the second trial has our template; it is not
 * tried again. */
static void test_ours_beyond_l2_is_tried(void **state)
{
	int first = 0;

	(void)state;
	assert_int_equal(trials_of_ours(OURS_BEYOND_L2, &first), 1);
	assert_int_equal(first, 1);
	assert_int_equal(trials_of_ours(OURS_BEYOND_L2 | IN_HALVES, &first), 1);
	assert_int_equal(first, 1);
	assert_int_equal(trials_of_ours(IN_HALVES, &first), 1);
	assert_true(first > 1);
}

static int overlapping(const struct talk *t)
{
	int n = 0;

	for (size_t i = 0; i < t->n; i++)
		for (size_t c = 0; c < t->m[i].n_calls; c++)
			n += strstr(t->m[i].calls[c].arguments, "plan.c") && strstr(t->m[i].calls[c].arguments, "ww_pdl_all(p)");
	return n;
}

static double overlap_wins(int trial) { return trial == 1 ? 90 : 100; }

/* A solution of several launches is tried with launches that overlap, once; what follows keeps it where it was faster.
 */
static void test_launches_are_tried_overlapping(void **state)
{
	static const struct {
		const char *graph;
		double (*us)(int trial);
		int least, most;
	} rows[] = { { "example_softmax.json", constant, 0, 0 }, { "mlp3.json", constant, 1, 1 },
		{ "mlp3.json", overlap_wins, 3, 99 }, { "mlp3.json", never, 0, 0 } };

	(void)state;
	graph_target = "cuda";
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct talk t = { 0 };
		char *last = NULL, text[800];
		int submitted, n;

		graph_name = rows[i].graph;
		play(&t, rows[i].us, &last, &submitted, text, sizeof(text));
		n = overlapping(&t);
		if (n < rows[i].least || n > rows[i].most)
			fail_msg("%s: %d trials overlap", rows[i].graph, n);
		free(last);
		talk_release(&t);
	}
	graph_name = "example_softmax.json", graph_target = "cpu";
}

/* The plans that hand operators to PyTorch: how many; the first such trial to *first, or -1. */
static int with_pytorch(const struct talk *t, int *first)
{
	int n = 0, trial = 0;

	*first = -1;
	for (size_t i = 0; i < t->n; i++)
		for (size_t c = 0; c < t->m[i].n_calls; c++) {
			if (!strstr(t->m[i].calls[c].arguments, "plan.c"))
				continue;
			if (strstr(t->m[i].calls[c].arguments, "ww_pytorch(p") && !n++)
				*first = trial;
			trial++;
		}
	return n;
}

/* While the best is slower than eager mode, what a kernel computes is tried as PyTorch runs it; what was faster is kept
 * by the trials behind it, and handed in. */
static void test_what_is_slower_than_eager_is_left_to_pytorch(void **state)
{
	static const struct {
		const char *target, *graph;
		double eager_us, (*us)(int trial);
		int first, least, most, handed_in;
	} rows[] = {
		{ "cpu", "blocks.json", 0, constant, -1, 0, 0, 0 },   /* no eager time */
		{ "cpu", "blocks.json", 101, constant, -1, 0, 0, 0 }, /* as fast */
		{ "cpu", "blocks.json", 60, constant, 1, 2, 8, 0 },   /* slower, and no kernel helps */
		/* the first kernel helps: all behind it have that */
		{ "cpu", "blocks.json", 60, second_wins, 1, 3, 99, 1 },
		{ "cpu", "example_softmax.json", 60, second_wins, 1, 1, 99, 1 }, /* nothing of ours but a copy remains */
		{ "cuda", "mlp3.json", 60, constant, 2, 2, 8, 0 },               /* the library's products come first */
	};

	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct talk t = { 0 };
		char *last = NULL, text[800];
		int submitted, first, n;

		graph_target = rows[i].target, graph_name = rows[i].graph, eager_us = rows[i].eager_us;
		play(&t, rows[i].us, &last, &submitted, text, sizeof(text));
		n = with_pytorch(&t, &first);
		if (!submitted || first != rows[i].first || n < rows[i].least || n > rows[i].most ||
			!strstr(text, "as PyTorch runs it") != !rows[i].handed_in)
			fail_msg("%s, eager %g us: %d trials, from %d on: %s", rows[i].graph, rows[i].eager_us, n, first, text);
		free(last);
		talk_release(&t);
	}
	graph_target = "cpu", graph_name = "example_softmax.json", eager_us = 0;
}

static void renumber(struct ww_str *out, const char *text)
{
	struct ww_err err = WW_ERR_INIT;

	assert_int_equal(pl_renumber(out, text, &err), WW_OK);
}

/* ---- A model proposes -------------------------------------------------------------------------------------------- */

static double proposal_us[3]; /* of the first trials; later ones take 100 */
static double as_proposed(int trial) { return trial < 3 ? proposal_us[trial] : 100; }

/* An answer with the files of the n-th trial of the planner alone, its indices renumbered. */
static char *answer_of_trial(int nth)
{
	static const char *const names[] = { "plan.c", "kernels.c" };
	struct talk t = { 0 };
	char *last = NULL, text[800];
	int submitted;
	struct ww_str s = WW_STR_INIT(1 << 20);

	model_says = NULL;
	play(&t, constant, &last, &submitted, text, sizeof(text));
	for (int i = 0; i < 2; i++) {
		json_t *args = json_loads(i ? first_kernels(&t, nth) : nth_plan(&t, nth), 0, NULL);
		ww_str_addf(&s, "```%s\n", names[i]);
		renumber(&s, ww_json_str(args, "text", ""));
		ww_str_adds(&s, "```\n");
		json_decref(args);
	}
	free(last);
	talk_release(&t);
	return ww_str_take(&s);
}

struct played {
	struct talk t;
	char *last, text[800];
	int trials, submitted;
};

static void play_proposal(struct played *p, const char *answer)
{
	memset(p, 0, sizeof(*p));
	model_says = answer;
	model_context = 1000;
	p->trials = play(&p->t, as_proposed, &p->last, &p->submitted, p->text, sizeof(p->text));
	model_says = NULL;
	assert_true(p->submitted);
}

static void played_release(struct played *p)
{
	free(p->last);
	talk_release(&p->t);
}

static int says(const struct played *p, const char *what)
{
	for (size_t i = 0; i < p->t.n; i++)
		if (p->t.m[i].role == WW_ROLE_ASSISTANT && strstr(p->t.m[i].text, what))
			return 1;
	return 0;
}

/* The text of kernels.c in a call, and in an answer. */
static int is_kernels_of(const char *arguments, const char *answer)
{
	json_auto_t *args = json_loads(arguments, 0, NULL);
	const char *text = ww_json_str(args, "text", "?"), *at = strstr(answer, "```kernels.c\n");

	return at && !strncmp(at + strlen("```kernels.c\n"), text, strlen(text));
}

/* What another knob writes is where the search begins, and the model's own text is handed in. */
static void test_a_proposal_of_ours_is_the_first_trial(void **state)
{
	char *answer = answer_of_trial(2);
	struct played alone, p;

	(void)state;
	proposal_us[0] = 50, proposal_us[1] = 100, proposal_us[2] = 100;
	play_proposal(&p, answer);
	assert_string_equal(p.t.m[0].text, answer);
	assert_int_equal(p.t.m[0].n_calls, 2); /* not the model's submit */
	assert_string_equal(p.t.m[0].calls[0].name, "inspect");
	assert_string_equal(p.t.m[0].calls[1].name, "verify");
	assert_false(says(&p, "first version"));
	assert_false(says(&p, "the planner's version"));
	assert_true(is_kernels_of(p.last, answer));
	/* the other value of that knob is tried, which the planner alone begins with */
	char *first = answer_of_trial(0);
	int found = 0;
	for (int i = 0; i < p.trials - 1; i++) {
		struct ww_str s = WW_STR_INIT(1 << 20);
		json_auto_t *args = json_loads(first_kernels(&p.t, i), 0, NULL);
		renumber(&s, ww_json_str(args, "text", ""));
		found |= strstr(first, s.p) != NULL;
		ww_str_release(&s);
	}
	assert_true(found);
	free(first);
	played_release(&p);
	play_proposal(&alone, "I have none.");
	assert_int_equal(alone.t.m[0].n_calls, 1);
	assert_true(says(&alone, "first version"));
	played_release(&alone);
	free(answer);
}

/* One that no knobs write stands beside the search, which begins with the nearest ones. */
static void test_a_proposal_of_its_own_stands_beside_the_search(void **state)
{
	char *trial = answer_of_trial(2), answer[40000];
	struct played p;
	char *at = strstr(trial, "```kernels.c\n");

	(void)state;
	assert_true(strlen(trial) + 100 < sizeof(answer));
	snprintf(answer, sizeof(answer), "%.*s```kernels.c\n/* of its own */\n%s", (int)(at - trial), trial,
		at + strlen("```kernels.c\n"));
	proposal_us[0] = 50, proposal_us[1] = 100, proposal_us[2] = 100;
	play_proposal(&p, answer);
	assert_true(says(&p, "the planner's version of it"));
	struct ww_str s = WW_STR_INIT(1 << 20);
	json_t *args = json_loads(first_kernels(&p.t, 0), 0, NULL);
	renumber(&s, ww_json_str(args, "text", ""));
	assert_non_null(strstr(trial, s.p)); /* the knobs that it was made of */
	ww_str_release(&s);
	json_decref(args);
	assert_true(is_kernels_of(p.last, answer)); /* and it is the fastest */
	played_release(&p);
	proposal_us[0] = 100, proposal_us[2] = 50;
	play_proposal(&p, answer);
	assert_false(is_kernels_of(p.last, answer));
	played_release(&p);
	proposal_us[0] = -1, proposal_us[2] = 100; /* wrong: as if it had not been said */
	play_proposal(&p, answer);
	assert_true(says(&p, "first version") && !says(&p, "the planner's version"));
	played_release(&p);
	proposal_us[0] = 50, proposal_us[1] = proposal_us[2] = -1; /* right, and what the planner makes of it is not */
	play_proposal(&p, answer);
	assert_int_equal(p.trials, 3);
	assert_true(is_kernels_of(p.last, answer));
	played_release(&p);
	free(trial);
}

static void test_replies_after_a_proposal_repeat(void **state)
{
	char *answer = answer_of_trial(1);
	struct played p;

	(void)state;
	proposal_us[0] = 50, proposal_us[1] = 100, proposal_us[2] = 100;
	play_proposal(&p, answer);
	model_says = answer;
	for (size_t n = p.t.n; n-- > 0;) {
		struct talk part = p.t;
		struct ww_reply r;
		if (part.m[n].role != WW_ROLE_ASSISTANT)
			continue;
		part.n = n;
		ask(&part, &r);
		assert_string_equal(r.message.text, p.t.m[n].text);
		assert_int_equal(r.message.n_calls, p.t.m[n].n_calls);
		ww_reply_release(&r);
	}
	model_says = NULL;
	played_release(&p);
	free(answer);
}

/* What the model has no room for is the planner's alone; a model that answers otherwise is refused. */
static void test_which_models_propose(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_policy *p = NULL, *m = model();
	struct talk t = { .n = 2 };
	struct ww_reply r;

	(void)state;
	for (int i = 0; i < 2; i++)
		t.m[i] = (struct ww_message){ .role = i ? WW_ROLE_USER : WW_ROLE_SYSTEM, .text = strdup("x") };
	model_says = "nothing";
	model_context = 20;
	ask(&t, &r);
	assert_string_equal(r.message.text, "look at the graph and the device");
	ww_reply_release(&r);
	model_context = 21;
	ask(&t, &r);
	assert_string_equal(r.message.text, "nothing");
	assert_true(r.prompt_tokens == 5 && !r.n_tokens);
	ww_reply_release(&r);
	model_says = NULL;
	model_prompt = "";
	assert_int_equal(ww_planner_over(m, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "compact"));
	model_prompt = "compact";
	m->ops->free(m);
	assert_int_equal(ww_policy_open(&(struct ww_policy_opts){ .spec = "planner+" }, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "planner+DIR"));
	assert_int_equal(ww_policy_open(&(struct ww_policy_opts){ .spec = "planner+nonesuch" }, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "nonesuch"));
	talk_release(&t);
}

static int distance(const char *a, const char *b)
{
	struct ww_err err = WW_ERR_INIT;
	int n;

	assert_int_equal(pl_text_distance(a, b, &n, &err), WW_OK);
	return n;
}

/* Texts that could not be renumbered are not equal: the caller is told. */
static void test_distance_without_memory(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	int n, status;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip(); /* its allocator ends the process instead of returning NULL */
#endif
	pid_t pid = fork();
	if (!pid) {
		setrlimit(RLIMIT_AS, &(struct rlimit){ 1, 1 });
		while (malloc(100000)) /* what the heap still holds */
			;
		_exit(pl_text_distance("a", "b", &n, &err) != WW_ERR_NOMEM);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_distance_and_numbers(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str s = WW_STR_INIT(1000);

	(void)state;
	assert_int_equal(pl_renumber(&s, "i7 = i3 + i7_0; int i12x, xi3, i3;", &err), WW_OK);
	assert_string_equal(s.p, "i0 = i1 + i0_0; int i12x, xi3, i1;");
	ww_str_release(&s);
	assert_int_equal(distance("a\nb\ni5\n", "b\ni9\na\n"), 0);
	assert_int_equal(distance("a\nb\n", "a\nc\nc\n"), 3);
	assert_int_equal(distance("", "x"), 1);
}

/* What stands behind "planner:" is checked before anything starts. */
static void test_options(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_policy *p = NULL;

	(void)state;
	assert_int_equal(ww_policy_open(&(struct ww_policy_opts){ .spec = "planner:no-algebra" }, &p, &err), WW_OK);
	p->ops->free(p);
	assert_int_equal(ww_policy_open(&(struct ww_policy_opts){ .spec = "planner:algebra" }, &p, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "no-algebra"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_options), cmocka_unit_test(test_no_gain_keeps_the_first),
		cmocka_unit_test(test_the_best_is_submitted), cmocka_unit_test(test_the_fastest_is_submitted_even_by_little),
		cmocka_unit_test(test_wrong_solutions_end_with_the_reason), cmocka_unit_test(test_replies_repeat),
		cmocka_unit_test(test_convolutions_try_the_library), cmocka_unit_test(test_ours_beyond_l2_is_tried),
		cmocka_unit_test(test_launches_are_tried_overlapping),
		cmocka_unit_test(test_what_is_slower_than_eager_is_left_to_pytorch),
		cmocka_unit_test(test_a_proposal_of_ours_is_the_first_trial),
		cmocka_unit_test(test_a_proposal_of_its_own_stands_beside_the_search),
		cmocka_unit_test(test_replies_after_a_proposal_repeat), cmocka_unit_test(test_which_models_propose),
		cmocka_unit_test(test_distance_and_numbers), cmocka_unit_test(test_distance_without_memory) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
