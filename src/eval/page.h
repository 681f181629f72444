/* page.h - evaluations as one HTML page (src/page): summary, the field's published figures, sorted speed-ups, operator
 * families, the slowest with their reason, and each problem with its kernels; several runs side by side. */
#pragma once

#include "base/str.h"
#include "eval/run.h"

/* Append the page of n runs (at least 1), made from their records alone. */
enum ww_rc ww_eval_page(const struct ww_eval_run *runs, int n, struct ww_str *html, struct ww_err *err) WW_MUST_CHECK;
