/* recipe.c - see recipe.h. */
#include "train/recipe.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4096 };

static void tell(void (*to)(void *ctx, const char *line), void *ctx, const char *fmt, va_list ap)
{
	ww_auto_str line = WW_STR_INIT(LINE_MAX_BYTES);
	ww_str_vaddf(&line, fmt, ap);
	to(ctx, line.p);
}

void ww_train_say(const struct ww_train_hooks *h, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	tell(h->say, h->ctx, fmt, ap);
	va_end(ap);
}

void ww_train_stage(const struct ww_train_hooks *h, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	tell(h->on_stage, h->ctx, fmt, ap);
	va_end(ap);
}

enum ww_rc ww_recipe_needs(const struct ww_recipe *o, const struct ww_needed *needed, size_t n, struct ww_err *err)
{
	ww_auto_str missing = WW_STR_INIT(LINE_MAX_BYTES);
	for (size_t i = 0; i < n; i++)
		if (!needed[i].value)
			ww_str_addf(&missing, "%s%s", missing.len ? "; " : "", needed[i].what);
	return missing.len ? ww_err_set(err, WW_ERR_USAGE, "stage %s lacks %s", o->stage, missing.p) : WW_OK;
}

int ww_recipe_dtype(const struct ww_recipe *o, int dtype)
{
	if (!strcmp(o->dtype, "fp32") || !strcmp(o->dtype, "bf16"))
		return strcmp(o->dtype, "fp32") ? WW_BF16 : WW_F32;
	return dtype == WW_F32 ? WW_F32 : WW_BF16;
}

struct ww_learner_opts ww_recipe_learner(const struct ww_recipe *o, int64_t max_tokens, int64_t keep)
{
	return (struct ww_learner_opts){ .beta1 = (float)o->beta1,
		.beta2 = (float)o->beta2,
		.eps = (float)o->eps,
		.weight_decay = (float)o->weight_decay,
		.clip = (float)o->clip,
		.max_tokens = max_tokens,
		.keep = keep };
}

enum ww_rc ww_recipe_settings(const struct ww_recipe *o, struct ww_settings *out, struct ww_err *err)
{
	const char *dir = o->model ? o->model : o->tokenizer;
	*out = (struct ww_settings){ .prompt = "" };
	if (strcmp(o->prompt, "same"))
		snprintf(out->prompt, sizeof(out->prompt), "%s", o->prompt);
	else if (dir)
		return ww_settings_read(dir, out, err);
	return WW_OK;
}
