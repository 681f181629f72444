/* tiny.h - a random model with a tokenizer of single bytes and ChatML's special tokens, in a directory of its own. */
#ifndef WW_TESTS_TINY_H
#define WW_TESTS_TINY_H

#include "base/fs.h"
#include "base/json.h"
#include "base/tmpdir.h"
#include "infer/engine.h"

#include <sys/stat.h>

enum { TINY_IM_START = 256, TINY_IM_END = 257, TINY_VOCAB = 258 };

/* Byte b as GPT-2's byte-level alphabet spells it. */
static void tiny_letter(int b, char out[4])
{
	int plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174, c = b, n = 0;
	if (!plain) {
		for (int i = 0; i < b; i++)
			n += !((i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174);
		c = 256 + n;
	}
	if (c < 128) {
		snprintf(out, 4, "%c", c);
	} else {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		out[2] = 0;
	}
}

static inline json_t *tiny_tokenizer(void)
{
	json_t *vocab = json_object();
	for (int b = 0; b < 256; b++) {
		char name[4];
		tiny_letter(b, name);
		json_object_set_new(vocab, name, json_integer(b));
	}
	return json_pack("{s:[{s:i,s:s,s:b,s:b},{s:i,s:s,s:b,s:b}], s:{s:s,s:b}, s:{s:s}, s:{s:s,s:o,s:[]}}",
		"added_tokens", "id", TINY_IM_START, "content", "<|im_start|>", "special", 1, "normalized", 0, "id",
		TINY_IM_END, "content", "<|im_end|>", "special", 1, "normalized", 0, "pre_tokenizer", "type", "ByteLevel",
		"add_prefix_space", 0, "decoder", "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
}

static inline struct ww_config tiny_config(int64_t context)
{
	return (struct ww_config){ .arch = WW_ARCH_QWEN3,
		.vocab_size = TINY_VOCAB,
		.hidden_size = 32,
		.intermediate_size = 48,
		.layers = 2,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 8,
		.max_position = context,
		.rms_eps = 1e-6,
		.initializer_range = 0.3,
		.rope = { .theta = 10000, .factor = 1, .attention_factor = 1 },
		.tie_embeddings = 1,
		.qk_norm = 1,
		.bos = -1,
		.pad = -1,
		.dtype = WW_F32 };
}

/* Make it at `dir`, which must not exist; 0 where that fails. */
static inline int tiny_model_of(const char *dir, const struct ww_config *c)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str text = WW_STR_INIT(1 << 20);
	struct ww_dev *dev = NULL;
	struct ww_model *m = NULL;
	char path[4096];
	json_t *tok = tiny_tokenizer();
	ww_json_add(&text, tok);
	int ok = ww_dev_open("cpu", 1, &dev, &err) == WW_OK && ww_model_new(c, dev, WW_F32, 3, &m, &err) == WW_OK &&
		ww_model_save(m, dir, NULL, &err) == WW_OK && ww_fs_join(path, dir, "tokenizer.json", &err) == WW_OK &&
		ww_fs_write(path, text.p, text.len, &err) == WW_OK;
	if (!ok)
		fprintf(stderr, "%s\n", err.msg);
	ww_model_free(m);
	ww_dev_close(dev);
	ww_str_release(&text);
	json_decref(tok);
	return ok;
}

static inline int tiny_model(const char *dir, int64_t context)
{
	struct ww_config c = tiny_config(context);
	return tiny_model_of(dir, &c);
}

#endif
