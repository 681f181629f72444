/* image.h - checking and printing plan images (image_data.h has the format), and the facts that plan.c sees. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "judge/image_data.h"

#include <stddef.h>

/* What plan.c sees: the task's tensors and scalars, and the device.  Borrowed arrays; made by the judge from the
 * reference worker's answer.  Buffer handles are assigned here: inputs first, then parameters, then outputs. */
struct ww_facts {
	const struct ww_tensor *inputs, *params, *outputs;
	int n_inputs, n_params, n_outputs;
	const struct ww_scalar *scalars;
	int n_scalars;
	struct ww_device device;
};

/* Check every offset, count, range, limit and device limit of an image against the facts; `why` gets one line that
 * names the node and the field.  Returns 1 when the image may be run.  Never reads outside [m, m + bytes). */
int ww_image_validate(const struct ww_image *m, size_t bytes, const struct ww_facts *facts, struct ww_str *why);
/* The printable form, one node a line (judge --show-plan). */
void ww_image_print(const struct ww_image *m, const struct ww_facts *facts, struct ww_str *out);
