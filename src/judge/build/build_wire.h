/* build_wire.h - what the builder's parent sends to a job, and what comes back.
 *
 * Request: struct ww_build_request, struct ww_tensor[n_inputs + n_params + n_outputs] (`name` holds the offset of its
 * text in the names), struct ww_scalar[n_scalars], names, source.  Reply: struct ww_build_reply, text, image.  Both
 * ends are the same binary, but the reply comes from a process that ran untrusted code, so all of its numbers are
 * checked.
 */
#pragma once

#include "judge/image.h"
#include "sandbox/zygote.h"

struct ww_build_request {
	uint32_t n_inputs, n_params, n_outputs, n_scalars;
	uint64_t names_bytes, source_bytes;
	struct ww_device device;
};
struct ww_build_reply {
	uint32_t result; /* enum ww_build_result */
	uint32_t text_bytes, image_bytes;
	uint32_t reserved;
};
enum { WW_BUILD_TEXT_BYTES = 65536, WW_BUILD_NAMES_BYTES = 16 << 20 };

/* include.c: the headers that plan.c may include, read once while the zygote warms up. */
struct ww_headers;
enum ww_rc ww_headers_load(struct ww_headers **out, struct ww_err *err) WW_MUST_CHECK;
void ww_headers_free(struct ww_headers *h);
/* source with every #include of a known header replaced by its text, lines still numbered as in plan.c. */
void ww_headers_expand(struct ww_headers *h, const char *source, size_t n, struct ww_str *out);

/* plan_api.c: the functions of ww/plan.h, in the job. */
struct ww_plan;
struct ww_plan *ww_plan_new(const struct ww_facts *facts, void (*on_error)(void *ctx, const char *text), void *ctx);
/* The image of what was recorded; NULL with *limit set to a text where it is too large, or without memory. */
struct ww_image *ww_plan_image(struct ww_plan *p, const char **limit);
void ww_plan_free(struct ww_plan *p);
const char *ww_plan_error(const struct ww_plan *p); /* NULL: none */
int ww_plan_hit_limit(const struct ww_plan *p);     /* the error is that a limit of plan.h was passed */
struct ww_plan_symbol {
	const char *name;
	const void *address;
};
extern const struct ww_plan_symbol ww_plan_symbols[]; /* what plan.c is linked against; ends with a NULL name */
