/* state.h - arrays that are laid out as a model's parameters, to safetensors and back: weights, masters, moments. */
#pragma once

#include "nn/model.h"

/* Tensor NAME of the part is called prefix + NAME in the file. */
struct ww_state_part {
	const char *prefix;
	struct ww_arr at; /* device, m->n elements */
};

/* Write all parameters of all parts into `dir`, which exists; nothing appears before all of it is written and synced.
 */
enum ww_rc ww_state_write(struct ww_model *m, const struct ww_state_part *parts, size_t count, const char *dir,
	struct ww_err *err) WW_MUST_CHECK;
/* Read what ww_state_write() wrote: the same tensors, shapes and types, all finite; the rest of the arrays becomes
 * zero. */
enum ww_rc ww_state_read(struct ww_model *m, const struct ww_state_part *parts, size_t count, const char *dir,
	struct ww_err *err) WW_MUST_CHECK;
