/* model.h - the policy model:DIR, for policy.c and its tests. */
#pragma once

#include "base/err.h"
#include "infer/engine.h"
#include "nn/chat.h"

#include "policy/policy.h"

/* `name`: a directory, or without a slash one of models/ beside the program's bridge and skills. */
int ww_model_policy_new(const char *name, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err);
/* The same over an engine that is open; the policy shares it.  o: spec, model_batch and model_cache are not read. */
int ww_model_policy_over(
	struct ww_engine *e, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err);
/* An answer's text as a message (zeroed by the caller, who releases it).  whole: it was not cut off, so what looks like
 * a broken call is one. */
enum ww_rc ww_model_read_reply(enum ww_chat_format f, const char *text, size_t n, int whole, struct ww_message *m,
	struct ww_err *err) WW_MUST_CHECK;
