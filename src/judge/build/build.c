/* build.c - the judge's side of build.h: it sends the facts and the source, and checks all of the reply. */
#include "judge/build/build.h"

#include "base/mem.h"

#include "judge/build/build_wire.h"
#include "judge/cache/answers.h"
#include "sandbox/zygote.h"

#include <stdlib.h>
#include <string.h>

struct ww_builder {
	struct ww_zygote *z;
	struct ww_answers cache;
};

static const char *const result_texts[] = {
#define X(name, text) text,
	WW_BUILD_RESULT_MAP(X)
#undef X
};

const char *ww_build_result_text(enum ww_build_result r)
{
	return (size_t)r < WW_ARRAY_LEN(result_texts) ? result_texts[r] : "?";
}

enum ww_rc ww_builder_open(struct ww_builder **out, struct ww_err *err)
{
	struct ww_zygote_opts o = { .worker = "builder",
		.max_reply_bytes = sizeof(struct ww_build_reply) + WW_BUILD_TEXT_BYTES + WW_IMAGE_MAX_BYTES };
	struct ww_builder *b;
	*out = NULL;
	WW_CHECK(WW_NEW(b, 1, err));
	enum ww_rc rc = ww_zygote_open(&b->z, &o, err);
	if (rc == WW_OK)
		*out = b;
	else
		free(b);
	return rc;
}

void ww_builder_close(struct ww_builder *b)
{
	if (b)
		ww_zygote_close(b->z);
	free(b);
}

void ww_builder_keep(struct ww_builder *b, struct ww_store *store) { ww_answers_init(&b->cache, store, "image", NULL); }

enum ww_sandbox_level ww_builder_level(const struct ww_builder *b) { return ww_zygote_level(b->z); }

int ww_builder_pid(const struct ww_builder *b) { return ww_zygote_pid(b->z); }

/* ---- The request ------------------------------------------------------------------------------------------------- */

static void add_tensors(struct ww_tensor *to, size_t *n, const struct ww_tensor *from, int count, struct ww_str *names)
{
	for (int i = 0; i < count; i++) {
		const char *name = from[i].name ? from[i].name : "";
		to[*n] = from[i];
		to[(*n)++].name = (const char *)(uintptr_t)names->len;
		ww_str_add(names, name, strlen(name) + 1);
	}
}

struct request {
	struct ww_build_request head;
	struct ww_tensor *tensors;
	struct ww_str names;
	struct ww_zygote_part parts[5];
};

static void request_release(struct request *q)
{
	ww_str_release(&q->names);
	free(q->tensors);
}

static enum ww_rc request_init(
	struct request *q, const char *source, size_t bytes, const struct ww_facts *f, struct ww_err *err)
{
	size_t n = 0;
	q->head = (struct ww_build_request){ .n_inputs = (uint32_t)f->n_inputs,
		.n_params = (uint32_t)f->n_params,
		.n_outputs = (uint32_t)f->n_outputs,
		.n_scalars = (uint32_t)f->n_scalars,
		.source_bytes = bytes,
		.device = f->device };
	q->tensors = calloc((size_t)f->n_inputs + (size_t)f->n_params + (size_t)f->n_outputs + 1, sizeof(*q->tensors));
	ww_str_init(&q->names, WW_BUILD_NAMES_BYTES);
	if (!q->tensors)
		return ww_nomem(err);
	add_tensors(q->tensors, &n, f->inputs, f->n_inputs, &q->names);
	add_tensors(q->tensors, &n, f->params, f->n_params, &q->names);
	add_tensors(q->tensors, &n, f->outputs, f->n_outputs, &q->names);
	if (q->names.cut)
		return ww_err_set(err, WW_ERR_LIMIT,
			"the names of the task's inputs and parameters take more than %d bytes together", WW_BUILD_NAMES_BYTES);
	q->head.names_bytes = q->names.len;
	struct ww_zygote_part parts[] = { { &q->head, sizeof(q->head) }, { q->tensors, n * sizeof(*q->tensors) },
		{ f->scalars, (size_t)f->n_scalars * sizeof(*f->scalars) }, { q->names.p, q->names.len }, { source, bytes } };
	memcpy(q->parts, parts, sizeof(parts));
	return WW_OK;
}

/* ---- The reply --------------------------------------------------------------------------------------------------- */

struct parts {
	enum ww_build_result result;
	const char *text;
	size_t text_bytes;
	const void *image;
	size_t image_bytes;
};

/* Take the reply apart; 0 where its numbers do not add up. */
static int split(const struct ww_str *reply, struct parts *out)
{
	struct ww_build_reply h;
	if (reply->len < sizeof(h))
		return 0;
	memcpy(&h, reply->p, sizeof(h));
	size_t rest = reply->len - sizeof(h);
	if (h.result > WW_BUILD_CRASHED || h.text_bytes > rest || h.image_bytes > rest - h.text_bytes)
		return 0;
	*out = (struct parts){ (enum ww_build_result)h.result, reply->p + sizeof(h), h.text_bytes,
		reply->p + sizeof(h) + h.text_bytes, h.image_bytes };
	return 1;
}

static enum ww_build_result accept_image(
	const struct parts *r, const struct ww_facts *facts, struct ww_image **image, struct ww_str *diag)
{
	ww_auto_str why = WW_STR_INIT(1024);
	enum ww_build_result result = WW_BUILD_INVALID;
	struct ww_image *m = malloc(r->image_bytes + 1); /* aligned, and owned by the caller */
	if (m) {
		memcpy(m, r->image, r->image_bytes);
		if (ww_image_validate(m, r->image_bytes, facts, &why)) {
			result = WW_BUILD_OK;
			*image = m;
			m = NULL;
		}
	}
	ww_str_add_bounded(diag, why.p, why.len, WW_BUILD_DIAG_BYTES);
	free(m);
	return result;
}

static enum ww_build_result judge_reply(const struct ww_str *reply, const struct ww_job_end *end,
	const struct ww_facts *facts, struct ww_image **image, struct ww_str *diag)
{
	struct parts r;
	int whole = split(reply, &r);
	if (end->how == WW_JOB_TIMEOUT) {
		ww_str_addf(diag, "plan.c ran longer than %d ms", WW_BUILD_LIMIT_MS);
		return WW_BUILD_TIMEOUT;
	}
	/* A plan that failed and then crashed over its own error: the error is what its author needs. */
	if (end->how == WW_JOB_SIGNALED && !(whole && r.result == WW_BUILD_FAILED)) {
		ww_str_addf(diag, "plan.c crashed: signal %d (%s)", end->code, strsignal(end->code));
		return WW_BUILD_CRASHED;
	}
	if (!whole) {
		ww_str_adds(diag, "plan.c did not return");
		return WW_BUILD_CRASHED;
	}
	ww_str_add_bounded(diag, r.text, r.text_bytes, WW_BUILD_DIAG_BYTES);
	return r.result == WW_BUILD_OK ? accept_image(&r, facts, image, diag) : r.result;
}

enum ww_rc ww_builder_build(struct ww_builder *b, const char *plan_source, size_t plan_bytes,
	const struct ww_facts *facts, struct ww_image **image, struct ww_str *diag, enum ww_build_result *result,
	struct ww_err *err)
{
	static const struct ww_answers nothing = { .store = NULL };
	struct ww_job_end end = { 0 };
	struct ww_str reply = WW_STR_INIT(sizeof(struct ww_build_reply) + WW_BUILD_TEXT_BYTES + WW_IMAGE_MAX_BYTES);
	struct ww_str said = WW_STR_INIT(WW_BUILD_DIAG_BYTES);
	struct request q = { .names = WW_STR_INIT(0) };
	int n = (int)WW_ARRAY_LEN(q.parts), hit = 0;
	enum ww_rc rc = WW_OK;
	*image = NULL;
	*result = WW_BUILD_SYNTAX;
	if (memchr(plan_source, 0, plan_bytes)) {
		ww_str_adds(diag, "plan.c: error: it contains a NUL byte");
		return WW_OK;
	}
	WW_TRY(request_init(&q, plan_source, plan_bytes, facts, err));
	for (int attempt = 0; attempt < 2; attempt++) {
		WW_TRY(ww_answers_run(
			attempt ? &nothing : &b->cache, b->z, q.parts, n, WW_BUILD_LIMIT_MS / 1000.0, &reply, &end, &hit, err));
		*result = judge_reply(&reply, &end, facts, image, &said);
		if (!hit || *result == WW_BUILD_OK)
			break;
		ww_str_reset(&reply); /* the cached image is not valid: build it again */
		ww_str_reset(&said);
	}
	ww_str_add(diag, said.p, said.len);
	if (*result == WW_BUILD_OK && !hit)
		WW_TRY(ww_answers_put(&b->cache, q.parts, n, &reply, err));
out:
	if (rc != WW_OK) {
		free(*image);
		*image = NULL;
	}
	request_release(&q);
	ww_str_release(&said);
	ww_str_release(&reply);
	return rc;
}
