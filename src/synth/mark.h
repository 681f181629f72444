/* mark.h - fingerprints of candidates in a journal, and those of the sets that a run keeps apart from.  Internal to
 * src/synth. */
#pragma once

#include "synth/similar.h"

/* What similar.h compares, of a task's tokens and graph, as JSON: sets as hexadecimal text; a new reference. */
enum ww_rc ww_synth_mark(const char *tokens, const json_t *graph, json_t **out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_synth_mark_read(const json_t *mark, struct ww_fingerprint *out, struct ww_err *err) WW_MUST_CHECK;
/* Add every task of the sets; tasks without a graph are known by their text alone, and their number is logged.  It
 * takes a second of a processor a task, `jobs` tasks at a time (sixteen at most), so the result is written to
 * DIR/apart.json, which a resumed run reads. */
enum ww_rc ww_synth_apart_from(struct ww_similar *s, const char *dir, const char *const *sets, int n, int jobs,
	const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
