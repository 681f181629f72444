/* write.c - see write.h.
 *
 * The operators shown depend on the seed and the candidate's number alone; the answer depends on the policy too.  It is
 * untrusted code: check.c gives each answer a worker of its own.
 */
#include "synth/write.h"
#include "base/mem.h"
#include "synth/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ww_synth_writer {
	struct ww_policy *policy;
	struct ww_message *said; /* the earlier answers of a recorded policy */
	size_t n_said;
};

static const char system_text[] =
	"You write PyTorch modules that a performance engineer would want a fast kernel for.  Answer with one Python file "
	"in a ```python block:\n"
	"- `class Model(nn.Module)` with `__init__` and `forward`, `get_inputs()` returning a list of tensors, "
	"`get_init_inputs()` returning the "
	"list of Model's arguments; imports of torch only.\n"
	"- No randomness in forward (no dropout), no control flow or shapes that depend on values, no autograd, no "
	"complex numbers.\n"
	"- The output must depend on every input and parameter, and must not be constant or nearly zero.  No operation "
	"without effect.\n"
	"- forward() ends with `return`; inputs come from torch.randn, torch.rand or torch.randint on the default "
	"device.\n";

enum ww_rc ww_synth_writer_open(struct ww_synth_writer **out, const struct ww_policy_opts *policy, struct ww_err *err)
{
	struct ww_synth_writer *w;
	*out = NULL;
	WW_CHECK(WW_NEW(w, 1, err));
	enum ww_rc rc = (enum ww_rc)ww_policy_open(policy, &w->policy, err);
	if (rc != WW_OK)
		free(w);
	else
		*out = w;
	return rc;
}

void ww_synth_writer_close(struct ww_synth_writer *w)
{
	if (!w)
		return;
	w->policy->ops->free(w->policy);
	free(w->said);
	free(w);
}

static void add_request(struct ww_str *s, const struct ww_synth_recipe *r, uint64_t seed, uint64_t index)
{
	struct ww_synth_recipe copy = *r;
	struct ww_comp c = { .r = &copy };
	ww_rng_init(&c.rng, seed ^ 0x706f6c6963790000, index);
	int n = 1 + sy_weighted(&c, r->ops, WW_SYNTH_MAX_OPS);
	enum ww_synth_dtype dtype = (enum ww_synth_dtype)sy_weighted(&c, r->dtypes, 3);
	int pattern = sy_weighted(&c, r->patterns, WW_SYNTH_PATTERNS);
	static const char *const patterns[] = { "one after the other", "in two branches that meet",
		"around a residual connection", "with a gate" };
	ww_str_addf(s, "Compose these operators %s into one module, with tensors of torch.%s:\n", patterns[pattern],
		ww_synth_dtype_name(dtype));
	for (int i = 0; i < n; i++) {
		const struct ww_synth_op *op = sy_draw_row(&c, r->categories);
		ww_str_addf(s, "- %s (%s)\n",
			op->m                 ? op->m
				: op->f && *op->f ? op->f
								  : op->name,
			ww_synth_category_name(op->category));
	}
	ww_str_addf(s,
		"In eager mode it should take %g to %g microseconds on the %s target, and its inputs at most %.0f MiB "
		"together.\n",
		r->min_us, r->max_us, r->target == WW_TARGET_CPU ? "cpu" : "cuda", r->max_input_bytes / 1048576);
}

/* The code of an answer: its last fenced block, or all of it where it begins like a file. */
static int take_code(const char *text, struct ww_str *source)
{
	const char *begin = NULL, *end = NULL;
	for (const char *p = text; (p = strstr(p, "```")) != NULL;) {
		const char *body = strchr(p, '\n'), *close = body ? strstr(body, "\n```") : NULL;
		if (!close)
			break;
		begin = body + 1;
		end = close + 1;
		p = close + 4;
	}
	if (!begin && (!strncmp(text, "import ", 7) || !strncmp(text, "from ", 5))) {
		begin = text;
		end = text + strlen(text);
	}
	if (begin)
		ww_str_add(source, begin, (size_t)(end - begin));
	return begin != NULL && !source->cut;
}

/* A recorded policy finds its next answer by counting those in the history. */
static enum ww_rc history(
	struct ww_synth_writer *w, uint64_t index, struct ww_str *system, struct ww_str *user, struct ww_err *err)
{
	int recorded = !strcmp(w->policy->ops->name, "replay");
	free(w->said);
	w->n_said = 2 + (recorded ? index : 0);
	WW_CHECK(WW_NEW(w->said, w->n_said, err));
	w->said[0] = (struct ww_message){ .role = WW_ROLE_SYSTEM, .text = system->p };
	w->said[1] = (struct ww_message){ .role = WW_ROLE_USER, .text = user->p };
	for (size_t i = 2; i < w->n_said; i++)
		w->said[i] = (struct ww_message){ .role = WW_ROLE_ASSISTANT, .text = user->p };
	return WW_OK;
}

enum ww_rc ww_synth_write(struct ww_synth_writer *w, const struct ww_synth_recipe *r, uint64_t seed, uint64_t index,
	struct ww_str *source, struct ww_synth_result *out, struct ww_err *err)
{
	ww_auto_str user = WW_STR_INIT(1 << 16), system = WW_STR_INIT(1 << 14);
	WW_AUTO(ww_reply_release) struct ww_reply reply = { 0 };
	ww_str_adds(&system, system_text);
	add_request(&user, r, seed, index);
	WW_CHECK(history(w, index, &system, &user, err));
	struct ww_ask ask = { .msgs = w->said, .n = w->n_said };
	WW_CHECK((enum ww_rc)w->policy->ops->next(w->policy, &ask, &reply, err));
	if (!take_code(reply.message.text, source)) {
		ww_auto_str what = WW_STR_INIT(200);
		ww_str_add_line(&what, reply.message.text, 160);
		return ww_synth_reject(out, "the policy wrote no code", what.p);
	}
	return WW_OK;
}
