/* write.h - modules written by a policy: the prompt lists operators, the answer is a file.  Internal to src/synth. */
#pragma once

#include "policy/policy.h"
#include "synth/check.h"

struct ww_synth_writer;
enum ww_rc ww_synth_writer_open(
	struct ww_synth_writer **out, const struct ww_policy_opts *policy, struct ww_err *err) WW_MUST_CHECK;
void ww_synth_writer_close(struct ww_synth_writer *w); /* NULL is fine */
/* Candidate `index`: its text into source; an answer without code is a rejection in *out. */
enum ww_rc ww_synth_write(struct ww_synth_writer *w, const struct ww_synth_recipe *r, uint64_t seed, uint64_t index,
	struct ww_str *source, struct ww_synth_result *out, struct ww_err *err) WW_MUST_CHECK;
