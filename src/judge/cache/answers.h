/* answers.h - answers of the builder and of the compilers by content, in the store (store/store.h).
 *
 * What a zygote's job answers is a function of its request, of the compiler and of the code of ours that asks it.  A
 * good answer is cached under the hash of all three and used in place of a job.  The caller checks it exactly like a
 * job's answer, so a store that was tampered with can cost time but not correctness.  Only answers that passed those
 * checks are cached: a failed job is run again, since the machine may have caused the failure (a time limit, no
 * memory).
 */
#pragma once

#include "base/hash.h"
#include "sandbox/zygote.h"
#include "store/store.h"

/* Identity of what makes graphs, besides PyTorch: the bridge's files, the processor. */
enum ww_rc ww_bridge_id(char out[WW_HASH_HEX], struct ww_err *err) WW_MUST_CHECK;

struct ww_answers {
	struct ww_store *store;     /* borrowed; NULL: nothing is kept */
	const char *kind;           /* "image", "binary" */
	char identity[WW_HASH_HEX]; /* of makers and compiler */
};

/* identity: the compiler's, in words; may be NULL.  On an error nothing is kept. */
void ww_answers_init(struct ww_answers *k, struct ww_store *store, const char *kind, const char *identity);
/* The cached answer to this request, *hit = 1, or else that of a job as ww_zygote_run() has it. */
enum ww_rc ww_answers_run(const struct ww_answers *k, struct ww_zygote *z, const struct ww_zygote_part *parts,
	int n_parts, double limit_s, struct ww_str *reply, struct ww_job_end *end, int *hit,
	struct ww_err *err) WW_MUST_CHECK;
/* Store an answer that has passed its checks. */
enum ww_rc ww_answers_put(const struct ww_answers *k, const struct ww_zygote_part *parts, int n_parts,
	const struct ww_str *reply, struct ww_err *err) WW_MUST_CHECK;
