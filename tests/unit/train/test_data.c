/* What is read and refused, which tokens have weight, and how sequences are packed into rows. */
#include "unit.h"

#include "base/fs.h"
#include "base/rng.h"
#include "base/tmpdir.h"
#include "train/rows.h"

#include <sys/stat.h>
#include <unistd.h>

enum { IM_START = 256, IM_END = 257 };

static struct ww_tmpdir tmp;
static struct ww_tok *tok;
static struct ww_config config = { .vocab_size = 300, .eos = { IM_END }, .eos_count = 1 };

/* Every byte is a token, and the two of ChatML. */
static void add_bytes(struct ww_str *s)
{
	int next = 256;
	ww_str_adds(s,
		"{\"added_tokens\":[{\"id\":256,\"content\":\"<|im_start|>\",\"special\":true,\"normalized\":false},"
		"{\"id\":257,\"content\":\"<|im_end|>\",\"special\":true,\"normalized\":false}],"
		"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
		"\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
	for (int b = 0; b < 256; b++) {
		int printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
		ww_str_addf(s, "%s\"\\u%04x\":%d", b ? "," : "", printable ? b : next++, b);
	}
	ww_str_adds(s, "}}}");
}

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str json = WW_STR_INIT(1 << 20);
	(void)state;
	add_bytes(&json);
	int bad = ww_tok_open_bytes(json.p, json.len, "bytes", &tok, &err) != WW_OK ||
		ww_tmpdir_new(&tmp, "test", &err) != WW_OK;
	if (bad)
		print_error("%s\n", err.msg);
	ww_str_release(&json);
	return bad ? -1 : chdir(tmp.path);
}

static int teardown(void **state)
{
	(void)state;
	ww_tok_free(tok);
	ww_tmpdir_remove(&tmp);
	return chdir("/");
}

static void put(const char *path, const char *text)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
}

static enum ww_rc open_with(
	const char *paths, int64_t max_inputs, int learn_all, struct ww_data **d, struct ww_err *err)
{
	struct ww_data_opts o = {
		.paths = paths, .tok = tok, .max_inputs = max_inputs, .learn_all = learn_all, .config = &config
	};
	return ww_data_open(&o, d, err);
}

/* The tokens with weight, as text; '$' ends a turn. */
static void weighted(const struct ww_data *d, char said[64])
{
	for (int64_t i = 0, n = 0; i < d->tokens; i++)
		if (d->weight[i] != 0)
			said[n++] = d->ids[i] == IM_END ? '$' : (char)d->ids[i];
}

static void only_what_the_assistant_says_has_weight(void **state)
{
	static const char line[] =
		"{\"messages\":[{\"role\":\"user\",\"content\":\"hi <|im_end|>\"},{\"role\":\"assistant\",\"content\":\"yo\"},"
		"{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"z\"}]}\n\n"
		"{\"messages\":[{\"role\":\"assistant\",\"content\":\"z\"}],\"weight\":0.5}\n";
	struct ww_err err = WW_ERR_INIT;
	struct ww_data *d;
	char said[64] = "";
	(void)state;
	put("chat.jsonl", line);
	if (open_with("chat.jsonl", 200, 0, &d, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_int_equal(d->count, 2);
	assert_int_equal(d->conversations, 2);
	weighted(d, said);
	for (int64_t i = 0; i < d->tokens; i++)
		assert_true(d->weight[i] == 0 || d->weight[i] == (i < d->seqs[1].at ? 1.0f : 0.5f));
	assert_string_equal(said, "yo$z$z$"); /* what the user forged is no token; without a token <think> no block */
	ww_data_free(d);
	assert_int_equal(open_with("chat.jsonl", 200, 1, &d, &err), WW_OK);
	for (int64_t i = 0; i < d->tokens; i++)
		assert_true(d->weight[i] > 0);
	ww_data_free(d);
	/* cut before the assistant says anything: nothing to learn there */
	assert_int_equal(open_with("chat.jsonl", 20, 0, &d, &err), WW_OK);
	assert_int_equal(d->count, 1);
	assert_int_equal(d->cut, 1);
	assert_int_equal(d->empty, 1);
	ww_data_free(d);
}

static void a_mistake_that_is_mended_is_context_alone(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_data *d;
	char said[64] = "";
	(void)state;
	put("mended.jsonl",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"no\",\"learn\":false},"
		"{\"role\":\"tool\",\"content\":\"wrong\"},{\"role\":\"assistant\",\"content\":\"yes\"}]}\n");
	if (open_with("mended.jsonl", 200, 0, &d, &err) != WW_OK)
		fail_msg("%s", err.msg);
	weighted(d, said);
	assert_string_equal(said, "yes$");
	ww_data_free(d);
}

static void tokens_of_a_reply_are_learned_as_they_were_sampled(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_data *d;
	char said[64] = "";
	(void)state;
	/* The first reply was cut off, so its end is ours; the second ended by itself.  259 is no token of the tokenizer.
	 */
	put("said.jsonl",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"ab\",\"tokens\":{\"ids\":"
		"[97,259,98],\"logprobs\":[-1,-2,-3]}},{\"role\":\"user\",\"content\":\"y\"},{\"role\":\"assistant\",\"content\":\"c\","
		"\"tokens\":{\"ids\":[99,257]}}],\"task\":\"t.py\",\"reward_final\":2,\"seed\":7,\"compacted\":false}\n"
		"{\"messages\":[{\"role\":\"assistant\",\"content\":\"z\"}],\"compacted\":true}\n");
	if (open_with("said.jsonl", 200, 0, &d, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_int_equal(d->count, 1);
	assert_int_equal(d->compacted, 1);
	for (int64_t i = 0, n = 0; i < d->tokens; i++)
		if (d->weight[i] != 0)
			said[n++] = d->ids[i] == IM_END ? '$' : d->ids[i] == 259 ? '?' : (char)d->ids[i];
	assert_string_equal(said, "a?bc$");
	ww_data_free(d);
	put("other.jsonl", "{\"messages\":[{\"role\":\"assistant\",\"content\":\"ab\",\"tokens\":{\"ids\":[97]}}]}\n");
	assert_int_equal(open_with("other.jsonl", 200, 0, &d, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "another tokenizer"));
	put("other.jsonl",
		"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tokens\":{\"ids\":[97],\"logprobs\":[]}}]}\n");
	assert_int_equal(open_with("other.jsonl", 200, 0, &d, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "logprobs"));
	put("other.jsonl", "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tokens\":{\"ids\":\"97\"}}]}\n");
	assert_int_equal(open_with("other.jsonl", 200, 0, &d, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "no array \"ids\"")); /* was learned as if it had no tokens */
}

static void documents_are_cut_into_pieces_that_lose_nothing(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_data *d;
	(void)state;
	assert_int_equal(mkdir("tree", 0755), 0);
	assert_int_equal(mkdir("tree/sub", 0755), 0);
	assert_int_equal(mkdir("tree/.git", 0755), 0);
	put("tree/b.txt", "0123456789");
	put("tree/sub/a.txt", "x");
	put("tree/.git/hidden", "no");
	put("tree/empty", "");
	assert_int_equal(ww_fs_write("tree/binary", "a\0b", 3, &err), WW_OK);
	assert_int_equal(symlink("b.txt", "tree/link"), 0);
	assert_int_equal(open_with("tree", 4, 0, &d, &err), WW_OK);
	/* ten bytes and the end: pieces 0123, 3456, 6789$ of at most four predictions, and x$ */
	assert_int_equal(d->documents, 2);
	assert_int_equal(d->binary, 1);
	assert_int_equal(d->count, 4);
	int64_t predictions = 0;
	for (int64_t i = 0; i < d->count; i++) {
		assert_true(d->seqs[i].n >= 2 && d->seqs[i].n <= 5);
		predictions += d->seqs[i].n - 1;
	}
	assert_int_equal(predictions, 10 + 1);
	assert_int_equal(d->ids[d->seqs[1].at], '4');
	assert_int_equal(d->ids[d->tokens - 1], IM_END);
	char hash[65];
	snprintf(hash, sizeof(hash), "%s", d->hash);
	ww_data_free(d);
	assert_int_equal(open_with("tree/b.txt, tree/*/a.txt", 4, 0, &d, &err), WW_OK);
	assert_string_equal(d->hash, hash); /* the same sequences, named otherwise */
	ww_data_free(d);
	assert_int_equal(open_with("tree/*/a.txt,tree/b.txt", 4, 0, &d, &err), WW_OK);
	assert_string_not_equal(d->hash, hash);
	ww_data_free(d);
}

static void lines_of_ids_carry_their_weights(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_data *d;
	(void)state;
	put("ids.jsonl", "{\"ids\":[1,2,3,4],\"weights\":[0,1,-0.5,0],\"weight\":2}\n{\"ids\":[7,8]}\n{\"ids\":[9]}\n");
	assert_int_equal(open_with("ids.jsonl", 10, 0, &d, &err), WW_OK);
	assert_int_equal(d->count, 2);
	assert_true(d->weight[1] == 2 && d->weight[2] == -1 && d->weight[3] == 0 && d->weight[5] == 1);
	ww_data_free(d);
}

static void unusable_data_is_refused_with_its_place(void **state)
{
	static const struct {
		const char *line, *says;
	} cases[] = { { "{\"text\":1}", "needs one of" }, { "{\"text\":\"a\",\"ids\":[1]}", "needs one of" },
		{ "{}", "needs one of" }, { "[1]", "needs one of" }, { "{\"txt\":\"a\"}", "\"txt\"" },
		{ "{\"text\":\"a\"", "bad.jsonl:2" }, { "{\"ids\":[1,300]}", "300" }, { "{\"ids\":[1,-1]}", "element 1" },
		{ "{\"ids\":[1,2],\"weights\":[1]}", "as many" }, { "{\"ids\":[1,2],\"weights\":[1,\"x\"]}", "element 1" },
		{ "{\"text\":\"a\",\"weight\":\"x\"}", "weight" },
		{ "{\"messages\":[{\"role\":\"robot\",\"content\":\"\"}]}", "robot" }, { "{\"messages\":3}", "arrays" } };
	struct ww_err err = WW_ERR_INIT;
	struct ww_data *d;
	char text[512];
	struct ww_held_out *held;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		snprintf(text, sizeof(text), "{\"text\":\"fine\"}\n%s\n", cases[i].line);
		put("bad.jsonl", text);
		if (open_with("bad.jsonl", 10, 0, &d, &err) != WW_ERR_USAGE || !strstr(err.msg, cases[i].says) ||
			!strstr(err.msg, "bad.jsonl:2"))
			fail_msg("case %zu: %s", i, err.msg);
	}
	assert_int_equal(open_with("nothing-*", 10, 0, &d, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "nothing-*"));
	put("only.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n");
	assert_int_equal(open_with("only.jsonl", 99, 0, &d, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "nothing to learn"));
	put("long.jsonl",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"what is it that I want to know\"},"
		"{\"role\":\"assistant\",\"content\":\"that\"}]}\n");
	assert_int_equal(open_with("long.jsonl", 10, 0, &d, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "1 were cut after 10 tokens: a longer `sequence`"));
	struct ww_data_opts o = { .paths = "bad.jsonl", .max_inputs = 10, .config = &config };
	assert_int_equal(ww_data_open(&o, &d, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "tokenizer"));
	put("held.jsonl", "{\"code\":\"class Model\",\"signature\":\"s1:a0000000000000000000000000000000\"}\n");
	put("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\",\"task_signature\":\"s1:a0000000000000000000000000000000\"}\n");
	assert_int_equal(ww_held_out_open(&held, "held.jsonl", NULL, &err), WW_OK);
	o.tok = tok;
	o.held_out = held;
	assert_int_equal(ww_data_open(&o, &d, &err), WW_ERR_USAGE);
	assert_string_equal(err.msg, "bad.jsonl:2: it is about a held-out task, held.jsonl#1; leave it out");
	ww_held_out_free(held);
}

/* ---- rows */

enum { SEQS = 3000, ROW = 64 };

static void lengths(struct ww_data *d, int same)
{
	struct ww_rng r;
	ww_rng_init(&r, 3, 0);
	*d = (struct ww_data){ .count = SEQS };
	d->seqs = malloc(SEQS * sizeof(*d->seqs));
	for (int64_t i = 0; i < SEQS; i++) {
		d->seqs[i] = (struct ww_seq){ d->tokens, same ? ROW + 1 : 2 + (int64_t)ww_rng_below(&r, ROW) };
		d->tokens += d->seqs[i].n;
	}
	d->ids = calloc((size_t)d->tokens, sizeof(*d->ids));
	d->weight = malloc((size_t)d->tokens * sizeof(*d->weight));
	for (int64_t i = 0; i < d->tokens; i++) {
		d->ids[i] = (int32_t)(i % 1000);
		d->weight[i] = 1;
	}
}

static void release(struct ww_data *d)
{
	free(d->seqs);
	free(d->ids);
	free(d->weight);
}

static void rows_hold_every_sequence_once_and_are_full(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_packing *p, *again, *next;
	struct ww_data d;
	char seen[SEQS] = { 0 };
	(void)state;
	lengths(&d, 0);
	assert_int_equal(ww_packing_new(&d, ROW, 1, 7, 0, &p, &err), WW_OK);
	for (int64_t r = 0; r < p->count; r++) {
		int64_t inputs = 0;
		for (int64_t k = p->rows[r]; k < p->rows[r + 1]; k++) {
			assert_false(seen[p->seqs[k]]++);
			inputs += d.seqs[p->seqs[k]].n - 1;
		}
		assert_true(inputs > 0 && inputs <= ROW);
	}
	assert_int_equal(p->rows[p->count], SEQS);
	double fill = (double)(d.tokens - SEQS) / (double)(p->count * ROW);
	if (fill < 0.97)
		fail_msg("rows are full to %.3f only", fill);
	assert_int_equal(ww_packing_new(&d, ROW, 1, 7, 0, &again, &err), WW_OK);
	assert_memory_equal(p->seqs, again->seqs, SEQS * sizeof(*p->seqs));
	assert_int_equal(ww_packing_new(&d, ROW, 1, 7, 1, &next, &err), WW_OK);
	assert_memory_not_equal(p->seqs, next->seqs, SEQS * sizeof(*p->seqs));
	ww_packing_free(p);
	ww_packing_free(again);
	ww_packing_free(next);
	release(&d);
	lengths(&d, 1); /* full sequences in the order of the file: a row each */
	assert_int_equal(ww_packing_new(&d, ROW, 0, 7, 5, &p, &err), WW_OK);
	assert_int_equal(p->count, SEQS);
	for (int64_t r = 0; r < SEQS; r++)
		assert_int_equal(p->seqs[r], r);
	ww_packing_free(p);
	release(&d);
}

static void a_cursor_goes_on_where_another_stood(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_data d;
	struct ww_step_rows a = { 0 }, b = { 0 };
	struct ww_micro m;
	int64_t rows = 0, tokens = 0, steps = 0;
	(void)state;
	lengths(&d, 0);
	struct ww_cursor c = { .data = &d, .row_inputs = ROW, .shuffle = 1, .seed = 4 };
	assert_int_equal(ww_cursor_count(&c, 0, 2, &rows, &err), WW_OK);
	assert_int_equal(ww_micro_init(&m, 3 * ROW, &err), WW_OK);
	for (;; steps++) {
		struct ww_cursor other = {
			.data = &d, .row_inputs = ROW, .shuffle = 1, .seed = 4, .epoch = c.epoch, .row = c.row
		};
		assert_int_equal(ww_step_rows_take(&a, &c, 7, 2, &err), WW_OK);
		if (!a.count)
			break;
		if (steps % 100 == 0 || c.row < 7) { /* also where an epoch begins */
			assert_int_equal(ww_step_rows_take(&b, &other, 7, 2, &err), WW_OK);
			assert_int_equal(b.count, a.count);
			assert_memory_equal(a.seqs, b.seqs, (size_t)a.ends[a.count - 1] * sizeof(*a.seqs));
		}
		rows -= a.count;
		tokens += a.tokens;
		int64_t in_batches = 0;
		for (int64_t r = 0; r < a.count; r += 3) {
			ww_micro_fill(&m, &d, &a, r, r + 3 < a.count ? r + 3 : a.count);
			in_batches += m.t;
			for (int64_t s = 0; s < m.sequences; s++)
				for (int64_t i = m.starts[s]; i < m.starts[s + 1]; i++)
					assert_true(m.targets[i] == (m.ids[i] + 1) % 1000); /* never across a border */
		}
		assert_int_equal(in_batches, a.tokens);
		assert_true(a.weight == (double)a.tokens && a.learned == a.tokens);
		ww_cursor_release(&other);
	}
	assert_int_equal(rows, 0);
	assert_int_equal(tokens, 2 * (d.tokens - SEQS));
	assert_true(ww_cursor_epochs(&c) == 2);
	ww_cursor_release(&c);
	ww_step_rows_release(&a);
	ww_step_rows_release(&b);
	ww_micro_release(&m);
	release(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(only_what_the_assistant_says_has_weight),
		cmocka_unit_test(a_mistake_that_is_mended_is_context_alone),
		cmocka_unit_test(tokens_of_a_reply_are_learned_as_they_were_sampled),
		cmocka_unit_test(documents_are_cut_into_pieces_that_lose_nothing),
		cmocka_unit_test(lines_of_ids_carry_their_weights), cmocka_unit_test(unusable_data_is_refused_with_its_place),
		cmocka_unit_test(rows_hold_every_sequence_once_and_are_full),
		cmocka_unit_test(a_cursor_goes_on_where_another_stood) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
