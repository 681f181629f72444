/* reasons.h - why a solution failed, in the words of a verdict's diagnostics.  The judge says them about what it has
 * judged, `synth teach` about mistakes that it makes on purpose. */
#pragma once

#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "task/ref.h"

enum { WW_REASONS_MAX_BYTES = 12 << 10 }; /* of a verdict */

/* As a verdict's diagnostics hold them; malloc'ed, NULL out of memory. */
char *ww_reason_bounded(const struct ww_str *reasons);
/* plan.c gives no image: text of ww_builder_build(). */
void ww_reason_build(enum ww_build_result r, const struct ww_str *text, struct ww_str *out);
/* Device code that does not compile: log of ww_compiler_compile(). */
void ww_reason_compile(enum ww_compile_result r, const char *log, struct ww_str *out);
/* What a runner said of a run ("crashed"), at a stage ("run"); the candidate may have written the text, so each line is
 * quoted. */
void ww_reason_run(const char *what, const char *stage, const char *text, struct ww_str *out);
/* A few lines about one wrong output, of a draw: when, "a plain draw". */
void ww_reason_diff(const struct ww_ref_diff *d, int output, const char *when, struct ww_str *out);
