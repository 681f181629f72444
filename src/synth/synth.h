/* synth.h - tasks from operators: candidates composed by a typed grammar.
 *
 * A candidate is one module in KernelBench form.  Candidate i of a seed is a function of (recipe, seed, i) alone: no
 * candidate depends on another, on time or on the machine, so that any process can compose any of them at any time.
 *
 * The grammar works on values: a shape, a dtype, and what is known of the numbers (not negative, at most so large when
 * inputs are scaled by 2^6, constant when averaged over these axes).  A row of operators.def names an operator and the
 * rule of its family; a rule looks at the value, draws arguments, writes the statement and sets the new value, or
 * declines.  So shapes and dtypes fit by construction, and most of what a filter would reject is not written at all.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "base/target.h"

#include <stdint.h>

enum { WW_SYNTH_MAX_RANK = 6, WW_SYNTH_MAX_OPS = 5 };

enum ww_synth_dtype { WW_SYNTH_F32, WW_SYNTH_F16, WW_SYNTH_BF16, WW_SYNTH_I64, WW_SYNTH_BOOL, WW_SYNTH_DTYPES };

struct ww_synth_type {
	enum ww_synth_dtype dtype;
	int rank;
	int64_t d[WW_SYNTH_MAX_RANK];
};
int64_t ww_synth_numel(const struct ww_synth_type *t);
int64_t ww_synth_bytes(const struct ww_synth_type *t);
const char *ww_synth_dtype_name(enum ww_synth_dtype d); /* "float32": torch's */

/* ---- The catalogue: operators.def */

enum ww_synth_category {
#define CATEGORY(id, text) WW_SYNTH_##id,
#include "synth/categories.def"
#undef CATEGORY
	WW_SYNTH_CATEGORIES
};
const char *ww_synth_category_name(enum ww_synth_category c);

struct ww_synth_op; /* a row */
int ww_synth_ops(void);
const struct ww_synth_op *ww_synth_op(int i);
const char *ww_synth_op_name(const struct ww_synth_op *op);

/* ---- The recipe (docs/synth.md has every key with its default) */

/* How many operators, or which larger piece, a candidate is made of. */
enum ww_synth_form { WW_SYNTH_CHAIN, WW_SYNTH_IDIOM, WW_SYNTH_NETWORK, WW_SYNTH_BLOCK, WW_SYNTH_FORMS };
enum ww_synth_style { WW_SYNTH_ROUND, WW_SYNTH_ODD, WW_SYNTH_PRIME, WW_SYNTH_TINY, WW_SYNTH_HUGE, WW_SYNTH_STYLES };
enum ww_synth_pattern { WW_SYNTH_SEQUENTIAL, WW_SYNTH_BRANCHING, WW_SYNTH_RESIDUAL, WW_SYNTH_GATED, WW_SYNTH_PATTERNS };

struct ww_synth_crawled; /* crawled.h */
struct ww_synth_recipe {
	enum ww_target target;
	/* Shares; each list is used relative to its sum. */
	double ops[WW_SYNTH_MAX_OPS];
	double forms[WW_SYNTH_FORMS];
	double patterns[WW_SYNTH_PATTERNS];
	double categories[WW_SYNTH_CATEGORIES];
	double dtypes[3]; /* of the floating values: F32, F16, BF16 */
	double shapes[WW_SYNTH_STYLES];
	double strided, broadcast; /* share of inputs that are views; of second operands that are broadcast */
	/* Bounds. */
	double min_us, max_us;  /* eager time */
	double max_input_bytes; /* of all inputs together */
	double max_memory_bytes;
	double max_load_s, max_compile_s;       /* what takes longer is rejected */
	const struct ww_synth_crawled *crawled; /* a catalogue's rows beside the built-in ones; NULL: none.  Borrowed */
	char compiler[16];                      /* what torch.compile runs: "inductor", "aot_eager", "eager" */
};
/* The built-in recipe "large" or "small" for a target. */
enum ww_rc ww_synth_recipe_set(
	struct ww_synth_recipe *r, const char *set, enum ww_target target, struct ww_err *err) WW_MUST_CHECK;
/* A YAML file; keys that it leaves out keep what r holds. */
enum ww_rc ww_synth_recipe_read(struct ww_synth_recipe *r, const char *path, struct ww_err *err) WW_MUST_CHECK;
/* After reading: set the catalogue to compose from, too; NULL: none, and the share of its blocks becomes 0. */
void ww_synth_recipe_add(struct ww_synth_recipe *r, const struct ww_synth_crawled *k);
/* All of it, as it goes into a run's run.json; a new reference. */
json_t *ww_synth_recipe_json(const struct ww_synth_recipe *r);

/* ---- Composition */

struct ww_synth_candidate {
	struct ww_str source; /* the module, in KernelBench form */
	struct ww_str ops;    /* names of the rows that were used, a space between */
	int n_ops;
	enum ww_synth_form form;
	enum ww_synth_pattern pattern;
	struct ww_synth_type out;             /* what forward() returns */
	double us, input_bytes, memory_bytes; /* expected */
};
#define WW_SYNTH_CANDIDATE_INIT { .source = WW_STR_INIT(1 << 18), .ops = WW_STR_INIT(4096) }
void ww_synth_candidate_release(struct ww_synth_candidate *c);

/* Candidate `index` of `seed`.  WW_ERR_LIMIT where 1,024 attempts found none within the recipe's bounds. */
enum ww_rc ww_synth_compose(const struct ww_synth_recipe *r, uint64_t seed, uint64_t index,
	struct ww_synth_candidate *out, struct ww_err *err) WW_MUST_CHECK;
/* One operator alone, as the tests of its rule want it. */
enum ww_rc ww_synth_compose_op(const struct ww_synth_recipe *r, const struct ww_synth_op *op, uint64_t seed,
	uint64_t index, struct ww_synth_candidate *out, struct ww_err *err) WW_MUST_CHECK;
