/* model.h - what the files of `warpwright model` share. */
#pragma once

#include "dev/dev.h"

#include <string.h>

struct ww_model_values {
	int json, ids, fast, chat, critic;
	const char *words, *dtype, *device, *tokenizer, *stop, *batches, *data;
	int64_t vocabulary, seed, max_new, top_k, prompt_tokens;
	double temperature, top_p, min_p;
};

/* --dtype as WW_F32, WW_BF16 or 0. */
static inline int ww_model_dtype(const struct ww_model_values *v)
{
	return !strcmp(v->dtype, "fp32") ? WW_F32 : !strcmp(v->dtype, "bf16") ? WW_BF16 : 0;
}

enum ww_rc ww_model_run(const struct ww_model_values *v, char **argv, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_model_bench(const struct ww_model_values *v, char **argv, struct ww_err *err) WW_MUST_CHECK;
