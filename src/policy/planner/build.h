/* build.h - one build: its state, its memory, and how it ends early.
 *
 * All memory of a build lies in one arena.  What the planner cannot cover leaves by pl_fail(), a longjmp to
 * ww_pl_build(): every function in between owns nothing but arena memory, so nothing leaks, and a deep recursion over
 * values needs no error path of its own.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "policy/planner/graph/ix.h"

#include <setjmp.h>
#include <ww/plan.h>

enum {
	PL_MAX_RANK = 10,
	PL_MAX_ARGS = 4,
	PL_MAX_BUFS = 4096,
	PL_MAX_VALS = 65536,
	PL_MAX_KERNELS = 1024,
	PL_MAX_OUTS = 16
};

struct pl {
	struct ww_arena arena;
	jmp_buf bail;
	char why[600];
	int n_atoms;
	int target; /* enum ww_target */
	struct ww_device dev;
	struct gnode *node, *lowering; /* lowering: whose rule is at work */
	int n_node;
	struct garg *output; /* the graph's results */
	int n_output;
	struct gmeta *out_meta;
	struct buf *buf[PL_MAX_BUFS];
	int n_buf, n_scratch;
	const struct ix *place[PL_MAX_RANK]; /* placeholders of V_VIEW and V_INDEX */
	int n_val;
	struct anchor *anchor[PL_MAX_KERNELS];
	int n_anchor;
	struct kern *kern[PL_MAX_KERNELS];
	int n_kern;
	const char *sym_name[64], *sym_def[64];
	int64_t sym_value[64];
	int n_sym;
	struct ww_str guards; /* plan.c text */
	struct ww_str dev_text, plan_text;
	const struct knobs *knobs; /* by kernel number; may be NULL */
	int n_knobs;
	int n_var;
	const char *split_text[256]; /* cuda: operands that were split for gemm3 */
	int n_split;
	const char *recipes; /* #include lines of plan.c */
};

void pl_fail(struct pl *pl, const char *fmt, ...) __attribute__((noreturn)) WW_PRINTF(2, 3);
void *pl_alloc(struct pl *pl, size_t bytes);
/* An empty string in the build's arena, as long as a solution may be. */
struct ww_str pl_text(struct pl *pl);
const char *pl_fmt(struct pl *pl, const char *fmt, ...) WW_PRINTF(2, 3);
const char *pl_vfmt(struct pl *pl, const char *fmt, va_list ap);
/* ww_fail() in plan.c unless a == b at the sizes of that build; nothing where they are the same expression. */
void pl_guard_eq(struct pl *pl, const struct ix *a, const struct ix *b, const char *what);
