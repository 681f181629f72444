/* Ids of five tokenizers against those of Hugging Face `tokenizers`: 10,000 texts each, or as many as the first
 * argument says; a vocabulary learnt here against the library's; and as many conversations in ChatML against
 * transformers' rendering.
 *
 * budget: 2 CPU-seconds, all 49 (make check: 1,000 texts) */
#include "oracle.h"

#include "nn/chat.h"

#include "base/time.h"
#include "nn/tok_train.h"
#include "nn/tokenizer.h"
#include "train/data.h"

static const char *texts = "10000";

struct reader {
	const char *p;
	size_t left;
};

static const char *take(struct reader *r, size_t n)
{
	assert_true(n <= r->left);
	const char *p = r->p;
	r->p += n;
	r->left -= n;
	return p;
}

static uint32_t take_u32(struct reader *r)
{
	uint32_t v;
	memcpy(&v, take(r, 4), 4);
	return v;
}

static size_t check_case(struct ww_tok *t, struct reader *r, struct ww_ids *ids, int n)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str back = WW_STR_INIT(1 << 24);
	int special = *take(r, 1), use_template = *take(r, 1), plain = *take(r, 1);
	uint32_t bytes = take_u32(r);
	const char *text = take(r, bytes);
	uint32_t count = take_u32(r);
	const char *want = take(r, (size_t)count * 4);
	uint32_t back_bytes = take_u32(r);
	const char *want_back = take(r, back_bytes);
	ids->n = 0;
	assert_int_equal(ww_tok_encode(t, text, bytes, special, use_template, ids, &err), WW_OK);
	if (ids->n != count || (count && memcmp(ids->p, want, (size_t)count * 4))) {
		size_t i = 0;
		while (i < ids->n && i < count && !memcmp(&ids->p[i], want + 4 * i, 4))
			i++;
		size_t k;
		const char *near = ww_tok_bytes(t, i < ids->n ? ids->p[i] : -1, &k);
		fail_msg("case %d (special %d): %zu ids, %u expected; first difference at %zu, ours is \"%.*s\"; text: %.300s",
			n, special, ids->n, count, i, (int)k, near, text);
	}
	ww_tok_decode(t, ids->p, ids->n, 0, &back);
	if (plain && (back.len != back_bytes || memcmp(back.p, want_back, back_bytes)))
		fail_msg("case %d decodes to \"%.200s\", expected \"%.*s\"", n, back.p,
			(int)(back_bytes < 200 ? back_bytes : 200), want_back);
	ww_str_release(&back);
	return bytes;
}

static void check_tokenizer(const char *dir, int i)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_tok *t = NULL;
	struct ww_str cases = WW_STR_INIT((size_t)1 << 28);
	struct ww_ids ids = WW_IDS_INIT(1 << 24);
	char folder[PATH_MAX], path[PATH_MAX];
	snprintf(folder, sizeof(folder), "%.200s/%d", dir, i);
	assert_int_equal(ww_fs_join(path, folder, "cases", &err), WW_OK);
	assert_int_equal(ww_fs_read(path, (size_t)1 << 28, &cases, &err), WW_OK);
	if (ww_tok_open(folder, &t, &err) != WW_OK)
		fail_msg("%s", err.msg);
	struct reader r = { cases.p, cases.len };
	uint64_t start = ww_now_ns();
	size_t bytes = 0;
	int n = 0;
	while (r.left)
		bytes += check_case(t, &r, &ids, n++);
	assert_int_equal(n, atoi(texts) + 6);
	printf(
		"# tokenizer %d: %d texts equal, %.1f MB/s with checks\n", i, n, (double)bytes / 1e6 / ww_seconds_since(start));
	ww_ids_release(&ids);
	ww_str_release(&cases);
	ww_tok_free(t);
}

static enum ww_rc learn(void *trainer, const char *text, size_t n, struct ww_err *err)
{
	return ww_tok_trainer_add(trainer, text, n, err);
}

/* The same vocabulary and merges as the library learns from the same texts, in whatever order they come. */
static void check_training(const char *dir)
{
	static const char *const special[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
	static const char *const names[] = { "texts", "reversed" };
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX], out[PATH_MAX];
	snprintf(path, sizeof(path), "%.200s/trained/tokenizer.json", dir);
	json_auto_t *theirs = json_load_file(path, 0, NULL);
	const json_t *want = json_object_get(theirs, "model");
	for (int i = 0; i < 2; i++) {
		struct ww_tok_trainer *t;
		int64_t files, tokens;
		uint64_t start = ww_now_ns();
		snprintf(path, sizeof(path), "%.200s/trained/%s.jsonl", dir, names[i]);
		snprintf(out, sizeof(out), "%.200s/trained/%s.json", dir, names[i]);
		assert_int_equal(ww_tok_trainer_new(special, 3, WW_TOK_WORDS_GPT2, &t, &err), WW_OK);
		if (ww_data_texts(path, learn, t, &files, &err) != WW_OK)
			fail_msg("%s", err.msg);
		assert_int_equal(ww_tok_trainer_write(t, 258, out, &tokens, &err), WW_ERR_USAGE);
		assert_int_equal(ww_tok_trainer_write(t, 2500, out, &tokens, &err), WW_OK);
		ww_tok_trainer_free(t);
		json_t *whole = json_load_file(out, 0, NULL), *model = json_object_get(whole, "model");
		printf("# learnt %d tokens in %.1f s\n", (int)tokens, ww_seconds_since(start));
		assert_int_equal(tokens, 2500);
		assert_true(json_equal(json_object_get(model, "merges"), json_object_get(want, "merges")));
		assert_true(json_equal(json_object_get(model, "vocab"), json_object_get(want, "vocab")));
		json_decref(whole);
	}
}

static void ids_equal_those_of_hugging_face(void **state)
{
	(void)state;
	char dir[PATH_MAX];
	if (!oracle_kept("tokenizers_oracle.py", texts, dir))
		skip();
	for (int i = 0; i < 5; i++)
		check_tokenizer(dir, i);
	check_training(dir);
	oracle_clean(dir);
}

static void check_conversation(const char *line, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_chat chat;
	json_t *v = json_loadb(line, n, 0, NULL);
	const json_t *tools = json_object_get(v, "tools");
	ww_chat_init(&chat, 1 << 24);
	if (ww_chat_render(WW_CHAT_CHATML, json_object_get(v, "messages"), tools,
			json_is_true(json_object_get(v, "generate")), &chat, &err) != WW_OK)
		fail_msg("%s: %.*s", err.msg, (int)n, line);
	const char *want = json_string_value(json_object_get(v, "text"));
	size_t same = 0;
	while (want[same] && want[same] == chat.text.p[same])
		same++;
	if (want[same] || chat.text.p[same])
		fail_msg("after %.40s: \"%.40s\", expected \"%.40s\"; conversation %.600s", want + (same > 40 ? same - 40 : 0),
			chat.text.p + same, want + same, line);
	ww_chat_release(&chat);
	json_decref(v);
}

static void chatml_equals_qwen3s_template(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str cases = WW_STR_INIT((size_t)1 << 28);
	char dir[PATH_MAX], path[PATH_MAX];
	int n = 0;
	(void)state;
	if (!oracle_kept("chat_oracle.py", texts, dir))
		skip();
	assert_int_equal(ww_fs_join(path, dir, "cases.jsonl", &err), WW_OK);
	assert_int_equal(ww_fs_read(path, (size_t)1 << 28, &cases, &err), WW_OK);
	for (const char *p = cases.p, *nl; (nl = strchr(p, '\n')); p = nl + 1, n++)
		check_conversation(p, (size_t)(nl - p));
	assert_int_equal(n, atoi(texts));
	ww_str_release(&cases);
	oracle_clean(dir);
}

int main(int argc, char **argv)
{
	texts = argc > 1 ? argv[1] : texts;
	const struct CMUnitTest tests[] = { cmocka_unit_test(ids_equal_those_of_hugging_face),
		cmocka_unit_test(chatml_equals_qwen3s_template) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
