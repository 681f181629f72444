/* build.h - from plan.c to a validated plan image.
 *
 * plan.c is an untrusted program.  It is compiled by TinyCC and run in a process of its own that is forked from a warm
 * zygote (`warpwright __builder`, src/sandbox/zygote.h), has no file, no network, no second process and no clock, holds
 * the task's facts and nothing else, and is killed after one second.  Its result is untrusted bytes until
 * ww_image_validate() has accepted them, which ww_builder_build() checks before it returns WW_BUILD_OK.
 *
 * Two kinds of failure are kept apart.  What plan.c did wrong is data: a result and a text that a policy may read.
 * What we could not do (no memory, no process) is an error.  A zygote that was killed from outside is started again
 * and the build repeated, once.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "judge/image.h"
#include "sandbox/sandbox.h"

/* name, short text */
#define WW_BUILD_RESULT_MAP(X)                                                                  \
	X(WW_BUILD_OK, "ok")                                                                    \
	X(WW_BUILD_SYNTAX, "plan.c does not compile")                                           \
	X(WW_BUILD_FAILED, "plan.c failed: ww_fail() or a misused function")                    \
	X(WW_BUILD_INVALID, "the plan is not valid")                                            \
	X(WW_BUILD_LIMIT, "the plan is larger than the limits of ww/plan.h")                    \
	X(WW_BUILD_TIMEOUT, "plan.c ran longer than its limit")                                 \
	X(WW_BUILD_CRASHED, "plan.c crashed, or did what the sandbox forbids")

enum ww_build_result {
#define X(name, text) name,
	WW_BUILD_RESULT_MAP(X)
#undef X
};
const char *ww_build_result_text(enum ww_build_result r);

enum {
	WW_BUILD_LIMIT_MS = 1000,          /* compiling and running plan.c, together */
	WW_BUILD_MEMORY_BYTES = 512 << 20, /* address space of the process that runs it */
	WW_BUILD_DIAG_BYTES = 8192         /* text about one build */
};

struct ww_builder;

/* Start the zygote.  The builder may then be used by any number of threads at once. */
enum ww_rc ww_builder_open(struct ww_builder **out, struct ww_err *err) WW_MUST_CHECK;
/* Kill and reap everything; no build may be under way.  NULL is fine. */
void ww_builder_close(struct ww_builder *b);
/* From now on keep good images in the store, and take them from there; not while a build is under way.  The store
 * outlives the builder. */
struct ww_store;
void ww_builder_keep(struct ww_builder *b, struct ww_store *store);
/* How well builds are contained here. */
enum ww_sandbox_level ww_builder_level(const struct ww_builder *b);
int ww_builder_pid(const struct ww_builder *b); /* the zygote's, for tests that kill it */

/* Build one plan.  WW_OK: *result is the outcome.  With WW_BUILD_OK *image is a validated image (malloc'ed,
 * the caller frees it; its size is image->total_bytes) and diag holds TinyCC's warnings, if any; otherwise *image is
 * NULL and diag says why, in clean bounded text with line numbers of plan.c.  plan_source need not end with NUL. */
enum ww_rc ww_builder_build(struct ww_builder *b, const char *plan_source, size_t plan_bytes,
	const struct ww_facts *facts, struct ww_image **image, struct ww_str *diag, enum ww_build_result *result,
	struct ww_err *err) WW_MUST_CHECK;

/* The worker's entry, `warpwright __builder`. */
int ww_builder_main(int argc, char **argv);
