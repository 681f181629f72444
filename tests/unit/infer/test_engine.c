/* An engine answers many threads as it answers one; stop strings; cancelling; shared by its options. */
#include "unit.h"

#include "base/time.h"
#include "infer/json_guide.h"
#include "infer/text.h"
#include "tiny.h"

#include <pthread.h>

static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static char dir[4200];
static struct ww_engine *engine;

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_engine_opts o = { .device = "cpu", .limits = { 2000, 4, 64 } };
	(void)state;
	if (ww_tmpdir_new(&tmp, "test-engine", &err) != WW_OK)
		return -1;
	snprintf(dir, sizeof(dir), "%s/model", tmp.path);
	o.dir = dir;
	return tiny_model(dir, 512) && ww_engine_open(&o, &engine, &err) == WW_OK ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ww_engine_close(engine);
	ww_tmpdir_remove(&tmp);
	return 0;
}

/* ---- text */

/* What comes out after each byte of `said`, with "|" between, and what the end gives after "$". */
static void check_text(const char *said, const char *const *stop, int stop_n, const char *want)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_text t;
	struct ww_str out = WW_STR_INIT(1000);
	assert_int_equal(ww_text_init(&t, ww_engine_tok(engine), stop, stop_n, &err), WW_OK);
	for (const char *p = said; *p; p++) {
		int stopped = ww_text_add(&t, (unsigned char)*p, &out);
		ww_str_adds(&out, stopped ? "#" : "|");
		if (stopped)
			break;
	}
	ww_str_adds(&out, "$");
	ww_text_finish(&t, &out);
	assert_string_equal(out.p, want);
	ww_str_release(&out);
	ww_text_release(&t);
}

static void text_ends_before_a_stop_string(void **state)
{
	static const char *const one[] = { "END" }, *const two[] = { "aab", "b" }, *const wide[] = { "\u00e9" };
	struct ww_err err = WW_ERR_INIT;
	struct ww_text t;
	(void)state;
	check_text("hi", NULL, 0, "h|i|$");
	check_text("xENDy", one, 1, "x|||#$");
	check_text("xEN", one, 1, "x|||$EN");
	check_text("EENEND", one, 1, "|E||EN||#$");
	check_text("aaab", two, 2, "||a|#$");
	check_text("caat", two, 2, "c|||aat|$");
	check_text("x\u00e9y", wide, 1, "x||#$");
	check_text("\u00e8", wide, 1, "|\u00e8|$");
	assert_int_equal(ww_text_init(&t, ww_engine_tok(engine), (const char *const[]){ "" }, 1, &err), WW_ERR_USAGE);
	ww_text_release(&t);
}

/* ---- answers */

static struct ww_engine_request question(int32_t *prompt, int i)
{
	for (int k = 0; k < 80; k++)
		prompt[k] = k < 70 ? k : i;
	return (struct ww_engine_request){
		.prompt = prompt, .prompt_n = 80, .max_new = 40, .sampling = WW_SAMPLING_INIT, .seed = 5, .stream = (uint64_t)i
	};
}

static struct ww_engine_answer ask(struct ww_engine *e, int i, const char *const *stop, int stop_n)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_engine_answer a;
	int32_t prompt[80];
	struct ww_engine_request q = question(prompt, i);
	q.stop = stop;
	q.stop_n = stop_n;
	if (ww_engine_ask(e, &q, NULL, &a, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return a;
}

enum { THREADS = 8 };
static struct ww_engine_answer crowd[THREADS];

static void *ask_in_thread(void *arg)
{
	int i = (int)(intptr_t)arg;
	crowd[i] = ask(engine, i, NULL, 0);
	return NULL;
}

static void many_threads_get_what_one_gets(void **state)
{
	pthread_t thread[THREADS];
	(void)state;
	for (intptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, ask_in_thread, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		struct ww_engine_answer a = ask(engine, i, NULL, 0);
		assert_int_equal(a.ids.n, crowd[i].ids.n);
		assert_memory_equal(a.ids.p, crowd[i].ids.p, a.ids.n * sizeof(*a.ids.p));
		assert_memory_equal(a.logp, crowd[i].logp, a.ids.n * sizeof(*a.logp));
		assert_int_equal(a.reused, 64);
		assert_int_equal(a.end, WW_ENGINE_LENGTH);
		assert_int_equal(a.ids.n, 40);
		ww_engine_answer_release(&a);
		ww_engine_answer_release(&crowd[i]);
	}
}

static void a_stop_string_ends_an_answer(void **state)
{
	struct ww_engine_answer whole = ask(engine, 3, NULL, 0);
	char stop[3] = { 0 };
	size_t at = 0;
	(void)state;
	/* Two bytes in a row that are ASCII: tokens are bytes here. */
	while (at + 1 < whole.text.len &&
		((unsigned char)whole.text.p[at] >= 128 || (unsigned char)whole.text.p[at + 1] >= 128))
		at++;
	assert_true(at + 1 < whole.text.len);
	memcpy(stop, whole.text.p + at, 2);
	at = (size_t)(strstr(whole.text.p, stop) - whole.text.p);
	struct ww_engine_answer a = ask(engine, 3, (const char *const[]){ "never said", stop }, 2);
	assert_int_equal(a.end, WW_ENGINE_STOP);
	assert_int_equal(a.text.len, at);
	assert_memory_equal(a.text.p, whole.text.p, at);
	assert_true(a.ids.n < whole.ids.n);
	ww_engine_answer_release(&a);
	ww_engine_answer_release(&whole);
}

static void answers_in_json_are_objects(void **state)
{
	static const int32_t end = TINY_IM_END;
	struct ww_err err = WW_ERR_INIT;
	int32_t prompt[80];
	int whole = 0;
	(void)state;
	for (int i = 0; i < 12; i++) {
		struct ww_engine_answer a;
		struct ww_engine_request q = question(prompt, i);
		q.json = &ww_json_any_object;
		q.max_new = 120;
		q.stop_ids = &end;
		q.stop_ids_n = 1;
		if (ww_engine_ask(engine, &q, NULL, &a, &err) != WW_OK)
			fail_msg("%s", err.msg);
		json_t *v = json_loadb(a.text.p, a.text.len, JSON_ALLOW_NUL, NULL);
		if (a.end == WW_ENGINE_STOP && !json_is_object(v))
			fail_msg("not an object: %s", a.text.p);
		assert_int_equal(*a.text.p, '{');
		whole += a.end == WW_ENGINE_STOP;
		json_decref(v);
		ww_engine_answer_release(&a);
	}
	assert_true(whole > 0);
}

static void check_guide(const struct ww_json_schema *schema, const char *text, int wanted)
{
	struct ww_json_guide g;
	ww_json_guide_init(&g, schema);
	int fits = ww_json_guide_fits(&g, text, strlen(text));
	int got = ww_json_guide_take(&g, text, strlen(text)) && ww_json_guide_done(&g);
	if (got != wanted || (got && !fits))
		fail_msg("%s is %s", text, got ? "taken" : "refused");
}

static void the_guide_takes_what_is_json(void **state)
{
	static const char *const good[] = { "{}", "{ \n}", "{\"a\":1}", "{\"\":[]}",
		"{\"a\":[1,-0.5e+2,true,false,null,\"\"]}", "{\"a\":{\"b\":[{},[[]]]}, \"c\" : 0 }",
		"{\"\\u00e9\\n\":\"\xc3\xa9\xf0\x9f\x98\x80\"}", "{\"a\":\"\\uD7ff\"}", "{\"a\":123456789012345678}" };
	static const char *const bad[] = { "", "[]", "1", " {}", "{}{}", "{} ", "{,}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
		"{a:1}", "{\"a\":01}", "{\"a\":1.}", "{\"a\":.5}", "{\"a\":+1}", "{\"a\":1e}", "{\"a\":1e999}", "{\"a\":tru}",
		"{\"a\":[1,]}", "{\"a\":[}", "{\"a\":{]}", "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\ud800\"}",
		"{\"a\":\"\xff\"}", "{\"a\":\"\xc3\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":1234567890123456789}" };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(good); i++) {
		check_guide(&ww_json_any_object, good[i], 1);
		json_t *v = json_loads(good[i], 0, NULL);
		assert_non_null(v);
		json_decref(v);
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++)
		check_guide(&ww_json_any_object, bad[i], 0);
}

/* Each schema with texts that fit it, then texts that do not. */
static const struct {
	const char *schema, *good[6], *bad[10];
} schemas[] = {
	{ "{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'string'}},'required':['a','b'],"
	  "'additionalProperties':false}",
		{ "{'a':1,'b':''}", "{ 'a' : -0 , 'b':'\\u00e9' }" },
		{ "{}", "{'a':1}", "{'b':'','a':1}", "{'a':1.0,'b':''}", "{'a':1e2,'b':''}", "{'a':'1','b':''}",
			"{'a':1,'b':'','c':1}", "{'a':1,'b':'',}", "{'a':1,'a':1,'b':''}" } },
	{ "{'type':'object','properties':{'a':{'type':'integer'},'ab':{'type':'null'},'c':{'type':'boolean'}},'required':['c']}",
		{ "{'c':true}", "{'a':1,'c':true}", "{'ab':null,'c':false}", "{'a':1,'ab':null,'c':false}" },
		{ "{'a':1}", "{'ab':null,'a':1,'c':true}", "{'a':1,}", "{'c':true,'a':1}", "{'abc':1}" } },
	{ "{'type':'object','properties':{'a':{'enum':['x','xy',1,10,null,true]}},'required':['a']}",
		{ "{'a':'x'}", "{'a':'xy' }", "{'a':1}", "{'a':10}", "{'a':null}", "{'a':true}" },
		{ "{'a':'xyz'}", "{'a':''}", "{'a':100}", "{'a':0}", "{'a':false}", "{'a':tru}", "{'a':1.0}" } },
	{ "{'type':'object','properties':{'a':{'type':'string','enum':['p',1],'const':'p'},'b':{'const':1.5}},"
	  "'required':['a','b']}",
		{ "{'a':'p','b':1.5}" }, { "{'a':1,'b':1.5}", "{'a':'p','b':1}", "{'a':'p','b':1.50}" } },
	{ "{'type':'object','properties':{'a':{'type':['number','null']},'l':{'type':'array','items':{'type':'integer'}}},"
	  "'required':['a','l']}",
		{ "{'a':null,'l':[]}", "{'a':1.5e3,'l':[1, 2]}" },
		{ "{'a':'','l':[]}", "{'a':1,'l':[1.5]}", "{'a':1,'l':[1,]}", "{'a':1,'l':[null]}", "{'a':1,'l':{}}" } },
	{ "{'type':'object','properties':{'s':{'anyOf':[{'$ref':'#/$defs/circle'},{'$ref':'#/$defs/box'},{'type':'null'}]}},"
	  "'required':['s'],'$defs':{'circle':{'type':'object','properties':{'kind':{'const':'circle'},'r':{'type':'number'}},"
	  "'required':['kind','r']},'box':{'type':'object','properties':{'kind':{'const':'cube'},'w':{'type':'integer'}},"
	  "'required':['kind','w']}}}",
		{ "{'s':null}", "{'s':{'kind':'circle','r':1.5}}", "{'s':{'kind':'cube','w':1}}" },
		{ "{'s':{'kind':'circle','w':1}}", "{'s':{'kind':'cube','w':1.5}}", "{'s':{'kind':'c'}}", "{'s':{}}",
			"{'s':1}" } },
	{ "{'$ref':'#/$defs/node','$defs':{'node':{'type':'object','properties':{'v':{'type':'integer'},"
	  "'next':{'anyOf':[{'$ref':'#/$defs/node'},{'type':'null'}]}},'required':['v','next']}}}",
		{ "{'v':1,'next':null}", "{'v':1,'next':{'v':2,'next':{'v':3,'next':null}}}" },
		{ "{'v':1,'next':{}}", "{'v':1,'next':{'v':2}}", "null" } },
	{ "{'type':'object'}", { "{}", "{'a':[1,{}]}" }, { "[]" } },
	{ "{'type':'object','additionalProperties':false}", { "{}" }, { "{'a':1}" } },
	{ "{'type':'object','properties':{'a':{}}}", { "{}", "{'a':[{}]}", "{'a':1}" }, { "{'b':1}" } },
};

/* Schemas that are refused, and a part of the reason. */
static const char *const refused[][2] = {
	{ "{'type':'object','properties':{'a':{'type':'string','pattern':'x'}}}", "schema.a: the keyword \"pattern\"" },
	{ "{'type':'object','properties':{'a':{'type':'array','items':{'minimum':1}}}}",
		"schema.a.items: the keyword \"minimum\"" },
	{ "{'type':'object','additionalProperties':{'type':'string'}}", "\"additionalProperties\"" },
	{ "{'type':'object','required':['a']}", "\"required\" names \"a\"" },
	{ "{'type':'object','properties':{'a':{'enum':[[1]]}}}", "enum and const" },
	{ "{'type':'object','properties':{'a':{'enum':['x'],'type':'null'}}}", "no value fits" },
	{ "{'type':'object','properties':{'a':{'anyOf':[{}],'type':'null'}}}", "beside \"anyOf\"" },
	{ "{'type':'object','properties':{'a':{'$ref':'#/$defs/b'}}}", "\"$ref\" must be" },
	{ "{'type':'object','properties':{'a':{'$ref':'#'}},'required':['a']}", "requires itself" },
	{ "{'type':'array'}", "must have the type object" },
	{ "{'type':'objekt'}", "\"type\" must be" },
};

static double seconds_of_a_token(const struct ww_json_guide *g)
{
	uint64_t start = ww_now_ns();
	char text[8];
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "\"%06d", i * 997 % 1000000);
		(void)ww_json_guide_fits(g, text, 4);
	}
	return ww_seconds_since(start);
}

/* Thousands of values: what a client asks for must not hold the engine, which tries each token of a vocabulary. */
static void large_enumerations_are_quick(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_json_schema *s = NULL;
	struct ww_json_guide g;
	json_t *list = json_array();
	char text[16];
	(void)state;
	for (int i = 0; i < 8000; i++) {
		snprintf(text, sizeof(text), "%06d", i * 7919 % 1000000);
		json_array_append_new(list, json_string(text));
	}
	json_t *v = json_pack(
		"{s:s, s:{s:{s:o}}, s:[s]}", "type", "object", "properties", "a", "enum", list, "required", "a");
	if (ww_json_schema_new(v, &s, &err) != WW_OK)
		fail_msg("%s", err.msg);
	ww_json_guide_init(&g, s);
	assert_true(ww_json_guide_take(&g, "{\"a\":", 5));
	double spent = seconds_of_a_token(&g);
	assert_true(ww_json_guide_take(&g, "\"007919\"}", 9) && ww_json_guide_done(&g));
	print_message("# %.1f us a token against 8,000 values\n", spent * 1000);
	assert_true(spent < 1);
	ww_json_schema_free(s);
	json_decref(v);
}

static char *quoted(const char *text, char *out)
{
	char *to = out;
	while ((*to = *text++ == '\'' ? '"' : text[-1]))
		to++;
	return out;
}

static void the_guide_takes_what_fits_a_schema(void **state)
{
	char text[1000];
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(schemas); i++) {
		struct ww_err err = WW_ERR_INIT;
		struct ww_json_schema *s = NULL;
		json_t *v = json_loads(quoted(schemas[i].schema, text), 0, NULL);
		assert_non_null(v);
		if (ww_json_schema_new(v, &s, &err) != WW_OK)
			fail_msg("%s: %s", text, err.msg);
		for (size_t k = 0; k < WW_ARRAY_LEN(schemas[i].good) && schemas[i].good[k]; k++)
			check_guide(s, quoted(schemas[i].good[k], text), 1);
		for (size_t k = 0; k < WW_ARRAY_LEN(schemas[i].bad) && schemas[i].bad[k]; k++)
			check_guide(s, quoted(schemas[i].bad[k], text), 0);
		ww_json_schema_free(s);
		json_decref(v);
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(refused); i++) {
		struct ww_err err = WW_ERR_INIT;
		struct ww_json_schema *s = NULL;
		json_t *v = json_loads(quoted(refused[i][0], text), 0, NULL);
		assert_int_equal(ww_json_schema_new(v, &s, &err), WW_ERR_USAGE);
		if (!strstr(err.msg, refused[i][1]))
			fail_msg("%s: %s", text, err.msg);
		json_decref(v);
	}
}

struct tops {
	struct ww_engine_top first[3];
	int n, greedy;
};

static void note_top(void *ctx, const struct ww_engine_event *e)
{
	struct tops *t = ctx;
	if (!e->sampled || t->n++)
		return;
	assert_int_equal(e->top_n, 3);
	memcpy(t->first, e->top, sizeof(t->first));
	t->greedy = e->sampled->token;
	assert_true(e->sampled->logp == e->top[0].logp);
}

static void the_likeliest_tokens_come_with_each(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_engine_answer a;
	struct tops tops = { .n = 0 };
	int32_t prompt[80];
	(void)state;
	struct ww_engine_request q = question(prompt, 1);
	q.sampling.temperature = 0;
	q.top = 3;
	q.on_event = note_top;
	q.ctx = &tops;
	assert_int_equal(ww_engine_ask(engine, &q, NULL, &a, &err), WW_OK);
	assert_int_equal(tops.first[0].token, tops.greedy);
	assert_true(tops.first[0].logp >= tops.first[1].logp && tops.first[1].logp >= tops.first[2].logp);
	assert_true(tops.first[0].token != tops.first[1].token && tops.first[1].token != tops.first[2].token);
	ww_engine_answer_release(&a);
}

static void impossible_requests_are_refused(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_engine_answer a;
	int32_t prompt[80];
	(void)state;
	struct ww_engine_request q = question(prompt, 0);
	q.max_new = 1000;
	assert_int_equal(ww_engine_ask(engine, &q, NULL, &a, &err), WW_ERR_LIMIT);
	q.max_new = 1;
	q.prompt_n = 0;
	assert_int_equal(ww_engine_ask(engine, &q, NULL, &a, &err), WW_ERR_USAGE);
	q.prompt_n = 80;
	prompt[7] = TINY_VOCAB;
	assert_int_equal(ww_engine_ask(engine, &q, NULL, &a, &err), WW_ERR_USAGE);
}

static void count_end(void *ctx, const struct ww_engine_event *e)
{
	int *ends = ctx;
	if (e->end != WW_ENGINE_GOES_ON)
		__atomic_add_fetch(&ends[e->end], 1, __ATOMIC_SEQ_CST);
}

/* Every request has one end, also when it is cancelled or the engine closes under it. */
static void every_request_ends_once(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_engine *mine, *same;
	struct ww_engine_opts o = { .dir = dir, .device = "cpu", .limits = { 1000, 2, 32 } };
	int ends[WW_ENGINE_FAILED + 1] = { 0 };
	int32_t prompt[80];
	int64_t id[6];
	volatile int stop = 1;
	struct ww_engine_answer a;
	(void)state;
	assert_int_equal(ww_engine_open(&o, &mine, &err), WW_OK);
	assert_int_equal(ww_engine_open(&o, &same, &err), WW_OK);
	assert_ptr_equal(mine, same);
	assert_ptr_not_equal(mine, engine);
	ww_engine_close(same);
	struct ww_engine_request q = question(prompt, 1);
	q.max_new = 400;
	q.on_event = count_end;
	q.ctx = ends;
	for (int i = 0; i < 6; i++)
		assert_int_equal(ww_engine_submit(mine, &q, &id[i], &err), WW_OK);
	ww_engine_cancel(mine, id[0]);
	ww_engine_cancel(mine, id[5]);
	assert_int_equal(ww_engine_ask(mine, &q, &stop, &a, &err), WW_ERR_INTERRUPTED);
	ww_engine_close(mine);
	assert_true(ends[WW_ENGINE_CANCELLED] >= 3); /* two by name, one by the interruption */
	assert_int_equal(ends[WW_ENGINE_CANCELLED] + ends[WW_ENGINE_STOP] + ends[WW_ENGINE_LENGTH], 7);
	o.dir = "/nonexistent";
	assert_int_equal(ww_engine_open(&o, &mine, &err), WW_ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(text_ends_before_a_stop_string),
		cmocka_unit_test(many_threads_get_what_one_gets), cmocka_unit_test(a_stop_string_ends_an_answer),
		cmocka_unit_test(answers_in_json_are_objects), cmocka_unit_test(the_guide_takes_what_is_json),
		cmocka_unit_test(the_guide_takes_what_fits_a_schema), cmocka_unit_test(large_enumerations_are_quick),
		cmocka_unit_test(the_likeliest_tokens_come_with_each), cmocka_unit_test(impossible_requests_are_refused),
		cmocka_unit_test(every_request_ends_once) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
