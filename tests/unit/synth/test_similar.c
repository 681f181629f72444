/* Similarity of sets, fingerprints from what the bridge answers, and the index against brute force. */
#include "unit.h"

#include "synth/labels.h"
#include "synth/similar.h"

#include <math.h>
#include <stdlib.h>

enum { TASKS = 1200, TEXT = 150, GRAPH = 60 };

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

static void similarity_is_of_sets(void **state_)
{
	static const uint32_t a[] = { 1, 2, 3, 4 }, b[] = { 3, 4, 5 };
	uint32_t c[] = { 7, 5, 7, 7, 5 }, d[] = { 7, 7, 5 };
	assert_true(fabs(ww_similarity(a, 4, b, 3) - 2.0 / 5) < 1e-12);
	assert_true(ww_similarity(a, 4, a, 4) == 1);
	assert_true(ww_similarity(a, 4, NULL, 0) == 0);
	ww_signature_as_set(c, 5); /* 7 three times, 5 twice: how often counts */
	ww_signature_as_set(d, 3);
	assert_true(fabs(ww_similarity(c, 5, d, 3) - 3.0 / 5) < 1e-12);
}

static struct ww_outline outline_of(const char *tokens, const char *graph)
{
	return (struct ww_outline){ .tokens = tokens, .graph = json_loads(graph, 0, NULL) };
}

static void fingerprints_hold_what_there_is(void **state_)
{
	static const char graph[] =
		"{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [2]}], \"params\": [],"
		"\"nodes\": [{\"name\": \"t\", \"op\": \"aten.tanh.default\", \"args\": [{\"ref\": \"x\"}], \"kwargs\": {},"
		"\"out\": [{\"dtype\": \"float32\", \"sizes\": [2]}]}], \"outputs\": [{\"ref\": \"t\"}]}";
	struct ww_outline o = outline_of("a b c d e f", graph), none = { .tokens_error = "x", .graph_error = "y" };
	struct ww_fingerprint f, g, h;
	struct ww_similar_match m;
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fingerprint_of(&o, &f, &err), WW_OK);
	assert_int_equal(f.n_text, 3);
	assert_int_equal(f.n_graph, 3);
	assert_string_equal(f.operators, "tanh");
	o.tokens = "a b";
	assert_int_equal(ww_fingerprint_of(&o, &g, &err), WW_OK);
	assert_int_equal(g.n_text, 1);
	assert_int_equal(ww_fingerprint_of(&none, &h, &err), WW_OK);
	ww_similar_compare(&f, &g, &m);
	assert_true(m.similar && m.same_signature && m.same_operators && m.graph == 1 && m.text == 0);
	ww_similar_compare(&h, &h, &m); /* nothing known is like nothing */
	assert_false(m.similar || m.same_signature || m.same_operators);
	json_decref((json_t *)(uintptr_t)o.graph);
	ww_fingerprint_release(&f);
	ww_fingerprint_release(&g);
	ww_fingerprint_release(&h);
}

static struct ww_fingerprint made[TASKS];

/* Every third is a copy of an earlier one with up to a tenth of its features others. */
static void make_tasks(void)
{
	for (int i = 0; i < TASKS; i++) {
		struct ww_fingerprint *f = &made[i];
		*f = (struct ww_fingerprint){
			.n_text = TEXT, .n_graph = GRAPH, .text = calloc(TEXT, 4), .graph = calloc(GRAPH, 4)
		};
		const struct ww_fingerprint *from = i % 3 == 2 ? &made[draw((uint32_t)i)] : NULL;
		for (int k = 0; k < TEXT; k++)
			f->text[k] = from ? from->text[k] : draw(3000);
		for (int k = 0; k < GRAPH; k++)
			f->graph[k] = from ? from->graph[k] : draw(500);
		for (uint32_t k = draw(TEXT / 10); k > 0; k--)
			f->text[draw(TEXT)] = 5000 + draw(1 << 20);
		for (uint32_t k = draw(GRAPH / 10); k > 0; k--)
			f->graph[draw(GRAPH)] = 5000 + draw(1 << 20);
		ww_signature_as_set(f->text, TEXT);
		ww_signature_as_set(f->graph, GRAPH);
	}
}

static int similar_pairs(int exact, int *is)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_similar *s;
	struct ww_similar_match m;
	int n = 0;
	assert_int_equal(ww_similar_new(&s, &err), WW_OK);
	for (int i = 0; i < TASKS; i++) {
		is[i] = ww_similar_find(s, &made[i], exact, &m) && m.similar;
		n += is[i];
		assert_int_equal(ww_similar_add(s, &made[i], i, &err), WW_OK);
	}
	ww_similar_free(s);
	return n;
}

static void the_index_finds_what_comparing_all_finds(void **state_)
{
	static int quick[TASKS], all[TASKS];
	make_tasks();
	int n = similar_pairs(1, all);
	assert_in_range(n, TASKS / 10, TASKS / 3);
	assert_int_equal(similar_pairs(0, quick), n);
	assert_memory_equal(quick, all, sizeof(all));
	for (int i = 0; i < TASKS; i++)
		ww_fingerprint_release(&made[i]);
}

static void equal_operators_are_told_and_not_similar(void **state_)
{
	static uint32_t a[] = { 1, 2, 3 }, b[] = { 4, 5, 6 };
	char ops[] = "relu tanh";
	struct ww_fingerprint x = { .signature = "s1:x", .operators = ops, .graph = a, .n_graph = 3 },
						  y = { .signature = "s1:y", .operators = ops, .graph = b, .n_graph = 3 };
	struct ww_err err = WW_ERR_INIT;
	struct ww_similar_match m;
	struct ww_similar *s;
	assert_int_equal(ww_similar_new(&s, &err), WW_OK);
	assert_int_equal(ww_similar_find(s, &y, 0, &m), 0);
	assert_int_equal(ww_similar_add(s, &x, 7, &err), WW_OK);
	assert_int_equal(ww_similar_find(s, &y, 0, &m), 1);
	assert_true(m.tag == 7 && m.same_operators && !m.similar);
	ww_similar_free(s);
}

/* ---- Labels ------------------------------------------------------------------------------------------------------ */

static void labels(const char *ops, const char *want)
{
	static const char text[] =
		"{\"nodes\": [{\"op\": \"aten.conv2d.default\", \"from\": [\"Conv2d\", \"conv2d\"]},"
		" {\"op\": \"aten.batch_norm.default\", \"from\": [\"BatchNorm2d\", \"batch_norm\"]},"
		" {\"op\": \"aten.add.Tensor\", \"from\": [\"add\"]}, {\"op\": \"aten.silu.default\", \"from\": [\"silu\"]}]}";
	json_auto_t *graph = json_loads(text, 0, NULL), *list = json_loads(ops, 0, NULL);
	ww_auto_str why = WW_STR_INIT(1000);
	assert_int_equal(ww_labels_check(list, graph, NULL, &why), *want != 0);
	assert_string_equal(why.p, want);
}

static void labels_are_held_to_the_graph(void **state_)
{
	labels("[\"nn.Conv2d\", \"nn.BatchNorm2d\", \"F.silu\"]", "");
	labels(
		"[\"aten.conv2d.default\", \"batch_norm\", \"torch.nn.functional.silu\", \"torch.add\", \"nn.Dropout\"]", "");
	labels("[\"nn.Conv3d\", \"nn.BatchNorm2d\", \"nn.SiLU\"]",
		"nn.Conv3d is not in the graph; aten.conv2d.default is not named");
	labels("[\"nn.Conv2d\", \"nn.BatchNorm2d\"]", "aten.silu.default is not named");
	labels("[]", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(similarity_is_of_sets),
		cmocka_unit_test(fingerprints_hold_what_there_is), cmocka_unit_test(the_index_finds_what_comparing_all_finds),
		cmocka_unit_test(equal_operators_are_told_and_not_similar), cmocka_unit_test(labels_are_held_to_the_graph) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
