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
	PL_ARENA_BYTES = 1 << 30,
	PL_MAX_RANK = 10,
	PL_MAX_ARGS = 4,
	PL_MAX_BUFS = 4096,
	PL_MAX_VALS = 65536,
	PL_MAX_KERNELS = 1024,
	PL_MAX_OUTS = 16,
	PL_MAX_STORES = 64, /* of a kernel */
	PL_MAX_SYMBOLS = 60 /* ww/planner_sizes.h */
};

/* A size by name: of an input, or computed from others. */
struct symbol {
	const char *name, *def; /* def: text of plan.c */
	int64_t value;          /* at the traced sizes */
	const struct ix *of;    /* what it is computed as; NULL: the size of an input */
	const struct ix *ix;
};

/* Operators that PyTorch runs between two kernels: their names, as ww_pytorch() takes them, and the values that they
 * read and write. */
enum { PL_SEGMENT_VALUES = 60 };
struct segment {
	struct segment *next;
	int level, scheduled;
	const char *nodes, *reads, *writes;
	struct gnode *read_node[PL_SEGMENT_VALUES];
	struct val *read[PL_SEGMENT_VALUES], *write[PL_SEGMENT_VALUES];
	int n_read, n_write;
};

struct pl {
	struct ww_arena arena;
	jmp_buf bail;
	char why[600];
	int n_atoms;
	int target; /* enum ww_target */
	struct ww_device dev;
	struct gnode *node, *lowering; /* lowering: the node whose rule runs */
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
	struct val *const *stored; /* values that are stored whatever the grouping (roots.c) */
	int n_stored;
	struct kern *kern[PL_MAX_KERNELS];
	int n_kern;
	struct symbol sym[PL_MAX_SYMBOLS];
	int n_sym;
	struct ww_str guards; /* plan.c text */
	struct ww_str dev_text, plan_text;
	const struct knobs *knobs; /* by kernel number; may be NULL */
	int n_knobs;
	int no_algebra, explain; /* of struct pl_options */
	int may_leave;           /* pl_leave() */
	int n_var;
	const char *split_text[256]; /* cuda: operands that were split for gemm3 */
	int n_split;
	const char *recipes;      /* #include lines of plan.c */
	struct segment *segments; /* that PyTorch runs */
	int levels_changed;
	const char *const *by_pytorch; /* names of operators that no rule covers */
	int n_by_pytorch;
	char blame[128]; /* the operator at which the build failed */
};

/* ---- state.c */
void pl_fail(struct pl *pl, const char *fmt, ...) __attribute__((noreturn)) WW_PRINTF(2, 3);
void *pl_alloc(struct pl *pl, size_t bytes);
/* An empty string in the build's arena, as long as a solution may be. */
struct ww_str pl_text(struct pl *pl);
const char *pl_fmt(struct pl *pl, const char *fmt, ...) WW_PRINTF(2, 3);
const char *pl_vfmt(struct pl *pl, const char *fmt, va_list ap);
/* 1: rules may use identities of real numbers that change rounding, such as moving a factor (docs/planner.md,
 * "Algebra"). */
static inline int pl_algebra(const struct pl *pl) { return !pl->no_algebra; }
/* graph.c: a size that is computed (of a strided convolution's result, a slice) as a symbol of its own, the same one
 * for equal expressions: quotients, remainders and strides by it then simplify as by the size of an input. */
const struct ix *pl_named_size(struct pl *pl, const struct ix *size);
/* A statement of plan.c, ahead of its launches, once. */
void pl_guard(struct pl *pl, const char *statement);
/* ww_fail() in plan.c unless a == b at the sizes of that build; nothing where they are the same expression. */
void pl_guard_eq(struct pl *pl, const struct ix *a, const struct ix *b, const char *what);
