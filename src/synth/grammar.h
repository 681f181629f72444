/* grammar.h - what the rules of src/synth share.  Internal to src/synth.
 *
 * struct ww_comp is one candidate under composition: the classes written so far, the inputs, the expected work.  A rule
 * is called with a row and a value; it either declines (0, having changed nothing) or writes statements into the class
 * at hand and sets the value (1).  Rules draw from c->rng only.
 */
#pragma once

#include "base/rng.h"
#include "synth/synth.h"

enum { MAX_INPUTS = 10, MAX_CLASSES = 6, MAX_HYPERS = 24, MAX_ARGS = 400 };

/* ---- Rows of operators.def */

struct ww_comp;
struct val;

/* What a row requires of its value, guarantees, and is.  ID_NONNEG: identity on non-negative numbers. */
enum trait {
	NEED_POS = 1,
	NEED_UNIT = 2,
	NEED_SMALL = 4,
	NEED_RAW = 8, /* discontinuous: only applied to an input, where rounding cannot move a value across a step */
	GIVE_NONNEG = 16,
	GIVE_UNIT = 32, /* in -1..1 */
	ID_NONNEG = 64,
	LINEAR = 128, /* keeps constant averages constant */
	F32_ONLY = 256,
	NO_HALF_CPU = 512,
	CALLABLE = 1024 /* has no module; always written as a function */
};

/* How the largest magnitude grows, in powers of two. */
enum growth { G_SAME, G_BOUND, G_LOG, G_HALF, G_SQUARE, G_CUBE, G_EXP, G_PLUS };

struct ww_synth_op {
	const char *name;
	int (*rule)(struct ww_comp *c, const struct ww_synth_op *op, struct val *x);
	const char *rule_name;
	enum ww_synth_category category;
	const char *f, *m; /* as a function of $ with arguments @, as a module with arguments @; NULL: none */
	int variant;
	unsigned traits;
	enum growth growth;
	double weight; /* within its category */
	double cost;   /* bytes moved, in copies of operand and result */
};
#define RULE(name) int sy_rule_##name(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
#define OP(name, rule, ...) RULE(rule);
#include "synth/operators.def"
#undef OP
const struct ww_synth_op *sy_op_named(const char *name);

/* What a row's variant means to its rule. */
enum reduction {
	RED_SUM,
	RED_MEAN,
	RED_MAX,
	RED_MAX_DIM,
	RED_VAR,
	RED_STD,
	RED_NORM,
	RED_SUM_ABS,
	RED_LSE,
	RED_SQUARES,
	RED_ABS,
	RED_PROD,
	RED_INDEX,
	RED_COUNT,
	RED_BOOL,
	RED_RANGE,
	RED_STANDARD,
	RED_CENTRE,
	RED_RMS,
	RED_WEIGHTED,
	RED_QUANTILE
};
enum scan { SCAN_SUM, SCAN_PROD, SCAN_MAX, SCAN_LSE, SCAN_MEAN, SCAN_DIFF };
enum order { ORD_SORT, ORD_MSORT, ORD_TOPK, ORD_KTH, ORD_MEDIAN, ORD_TOPK_LAST };
enum product {
	MM_WEIGHT,
	MM_INPUT,
	MM_TRANSPOSED,
	MM_BMM,
	MM_BADDBMM,
	MM_ADDMM,
	MM_GRAM,
	MM_EINSUM,
	MM_HEADS,
	MM_VECTOR,
	MM_OUTER,
	MM_TENSORDOT,
	MM_TOKENS,
	MM_TRIL,
	MM_BLOCKS
};
enum resampling { RES_ANY, RES_1D, RES_2D, RES_3D, RES_AREA };
enum layout {
	LAY_TRANSPOSE,
	LAY_PERMUTE,
	LAY_FLATTEN,
	LAY_UNFLATTEN,
	LAY_FLIP,
	LAY_ROLL,
	LAY_REPEAT,
	LAY_INTERLEAVE,
	LAY_SLICE,
	LAY_STEP,
	LAY_NARROW,
	LAY_SELECT,
	LAY_TRI,
	LAY_DIAGONAL,
	LAY_DIAG_EMBED,
	LAY_ROT,
	LAY_WINDOWS,
	LAY_MOVE,
	LAY_CHUNK_SWAP,
	LAY_ROTATE_HALF,
	LAY_INTERLEAVE_HALVES,
	LAY_SPLIT_SUM,
	LAY_SPLIT_MAX,
	LAY_WINDOW_PARTITION,
	LAY_HEADS
};
enum joining { JOIN_CAT, JOIN_STACK, JOIN_CRELU, JOIN_TOKEN, JOIN_POSITIONS };
enum indexing {
	IDX_SELECT,
	IDX_ADVANCED,
	IDX_GATHER,
	IDX_TAKE,
	IDX_SCATTER_ADD,
	IDX_INDEX_ADD,
	IDX_SCATTER_MAX,
	IDX_BUFFER,
	IDX_MASK
};
enum attention {
	ATT_INPUTS,
	ATT_CAUSAL,
	ATT_MASK,
	ATT_BIAS,
	ATT_MANUAL,
	ATT_GROUPED,
	ATT_LINEAR,
	ATT_POOL,
	ATT_MODULE
};
enum distance { DIST_CDIST, DIST_COSINE, DIST_PAIRWISE, DIST_SQUARED, DIST_COSINE_MATRIX, DIST_RBF, DIST_L1 };
enum loss {
	LOSS_VALUE,
	LOSS_LOG_COSH,
	LOSS_CLASS,
	LOSS_MASK,
	LOSS_FOCAL,
	LOSS_DICE,
	LOSS_SIGN,
	LOSS_JS,
	LOSS_POSITIVE,
	LOSS_TRIPLET,
	LOSS_COSINE,
	LOSS_RANKING,
	LOSS_CONTRASTIVE,
	LOSS_DISTIL,
	LOSS_KL
};

/* ---- Values */

enum fact {
	NONNEG = 1,
	UNIT = 2,
	RAW = 4,      /* an input, unchanged or rearranged */
	BIASED = 8,   /* a number for each channel or feature was just added: a norm over the rest would cancel it */
	SCALED = 16,  /* multiplied by one number: a norm would cancel it */
	OFFSET = 32,  /* one number was added: a norm or a softmax would cancel it */
	STRIDED = 64, /* not contiguous */
	NONPOS = 128,
	ORDERED = 256 /* the numbers were put into another order, which a reduction would not see */
};

struct val {
	char name[16]; /* the variable that holds it */
	struct ww_synth_type t;
	double mag; /* log2 of the largest magnitude, with inputs scaled by 2^6 */
	unsigned facts;
	unsigned flat;      /* averaged over these axes together it is constant; 0: none */
	int channels_first; /* features are axis 1 (images), else the last one */
	const struct ww_synth_op *by;
};

/* ---- Inputs */

enum input_kind { IN_NORMAL, IN_UNIFORM, IN_POSITIVE, IN_INDEX, IN_MASK, IN_SIGN, IN_BOOL };
enum input_layout { LAYOUT_DENSE, LAYOUT_TRANSPOSED, LAYOUT_SLICED, LAYOUT_CHANNELS_LAST };

struct input {
	char name[16];
	struct ww_synth_type t;
	enum input_kind kind;
	enum input_layout layout;
	int64_t high; /* IN_INDEX: below */
};

/* ---- Classes */

struct hyper {
	char name[28];
	int64_t value;
};

struct cls {
	char name[24];
	struct ww_str init, forward;
	struct hyper h[MAX_HYPERS];
	int n_h;
	char attr[40][28];
	int n_attr, n_vars;
	char args[160]; /* of forward(), after self */
	int buffers;
};

struct ww_comp {
	const struct ww_synth_recipe *r;
	struct ww_rng rng;
	struct ww_rng choice; /* draws the kind of candidate; attempts share it, so kinds that often fail are not rarer */
	double size;          /* log2 of the elements of the main input, which the search for a time varies */
	enum ww_synth_dtype dtype;
	enum ww_synth_style style;
	int whole; /* an operator alone: operators that make sense only with others are allowed */
	struct cls *cls[MAX_CLASSES], *at;
	int n_cls, repeats; /* repeats: how often the block runs that is being written */
	struct input in[MAX_INPUTS];
	int n_in;
	struct ww_str block, block_inputs; /* of a catalogue's block that pieces follow: its class, its inputs */
	struct ww_str *ops;
	int n_ops;
	double us, memory_bytes, flops; /* flops: of the row about to be applied */
	int failed;                     /* a table was too small, or memory is out: the attempt is thrown away */
	int uses_f, uses_math;
};

/* ---- sample.c: draws */
uint64_t sy_below(struct ww_comp *c, uint64_t n);
int sy_chance(struct ww_comp *c, double p);
int64_t sy_between(struct ww_comp *c, int64_t lo, int64_t hi); /* uniform, both ends included */
double sy_uniform(struct ww_comp *c, double lo, double hi);
int sy_weighted(struct ww_comp *c, const double *w, int n);
/* sy_weighted() and sy_draw_row() by c->choice. */
int sy_choose(struct ww_comp *c, const double *w, int n);
void sy_swap_choice(struct ww_comp *c);
#define PICK(c, array) ((array)[sy_below(c, WW_ARRAY_LEN(array))])
/* A size in lo..hi, log-uniform, in the candidate's style. */
int64_t sy_draw_dim(struct ww_comp *c, int64_t lo, int64_t hi);
int64_t sy_draw_divisor(
	struct ww_comp *c, int64_t of, int64_t most); /* a divisor of `of` in 2..most; 1 where there is none */
/* A shape of rank n for the main input: c->size elements, each axis between lo and hi; the first takes what is left. */
void sy_draw_shape(struct ww_comp *c, struct ww_synth_type *t, int n, const int64_t *lo, const int64_t *hi);

/* ---- text.c: writing */
void sy_init_line(struct ww_comp *c, const char *fmt, ...) WW_PRINTF(2, 3);
void sy_line(struct ww_comp *c, const char *fmt, ...) WW_PRINTF(2, 3); /* of forward() */
/* A name for an attribute, unused so far: "conv", then "conv2". */
const char *sy_attribute(struct ww_comp *c, const char *base);
void sy_variable(struct ww_comp *c, char out[16], const char *base);
/* The name of a constructor's argument of this value: one that exists, or a new one. */
const char *sy_hyper(struct ww_comp *c, const char *name, int64_t value);
const char *sy_feature(struct ww_comp *c, int64_t value); /* a width: in_features, hidden_features, ... */
const char *sy_channel(struct ww_comp *c, int64_t value);
struct cls *sy_class_begin(struct ww_comp *c, const char *name, const char *args);
/* A parameter: "self.bias"; shape and init in Python: "torch.randn(64)". */
const char *sy_parameter(struct ww_comp *c, const char *base, const char *init);
/* One more argument of forward(); NULL where a block cannot have one. */
struct input *sy_add_input(struct ww_comp *c, const char *base, const struct ww_synth_type *t, enum input_kind kind);
struct val sy_input_value(struct ww_comp *c, const struct input *in);
void sy_write_task(struct ww_comp *c, const struct val *out, struct ww_str *source);
void sy_shape_text(char *out, size_t n, const int64_t *d, int rank); /* "16, 64" */

/* ---- catalogue.c: applying a row */
/* x becomes op(x, args): chooses the spelling, counts the work, sets type, magnitude and facts by the row's traits. */
void sy_apply(
	struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const char *args, const struct ww_synth_type *out);
/* x becomes the expression (printf), which reads it and `more` bytes beside, with so many flops of matrix products. */
void sy_assign(struct ww_comp *c, struct val *x, const struct ww_synth_type *out, double more, double flops,
	const char *fmt, ...) WW_PRINTF(6, 7);
/* A copy of x in a variable of its own, for a branch. */
struct val sy_branch(struct ww_comp *c, const struct val *x, const char *base);
void sy_count_op(struct ww_comp *c, const char *name);
void sy_work(struct ww_comp *c, double bytes, double flops);
/* Whether a value this large is finite in the candidate's dtype. */
int sy_fits(const struct ww_comp *c, double mag);
int sy_reduces_flat(const struct val *x, unsigned axes);
struct ww_synth_type sy_with_dim(struct ww_synth_type t, int axis, int64_t n);
struct ww_synth_type sy_without_dim(struct ww_synth_type t, int axis);
int sy_is_float(const struct val *x);
double sy_log2_of(double v);
int sy_feature_axis(const struct val *x);
int64_t sy_product(const struct ww_synth_type *t, unsigned axes);

/* ---- chain.c */
/* One row, by its name or as given; 0 where it declines.  A row that had begun when it declined fails the attempt. */
int sy_try_op(struct ww_comp *c, const struct ww_synth_op *op, struct val *x);
int sy_try_row(struct ww_comp *c, const char *name, struct val *x);
const struct ww_synth_op *sy_draw_row(struct ww_comp *c, const double *weights); /* by weights of categories */
struct val sy_main_input(struct ww_comp *c, int rank, const int64_t *lo, const int64_t *hi);
struct val sy_input_for(struct ww_comp *c, const struct ww_synth_op *op); /* a main input that the row can begin with */
int sy_compose_chain(struct ww_comp *c, int n, enum ww_synth_pattern *pattern, struct val *out);
int sy_follow(
	struct ww_comp *c, struct val *x, int n, const double *weights); /* n more operators, one after the other */

/* ---- idiom.c: pieces of known models, which keep the type of what they are given */
struct val sy_rows_input(struct ww_comp *c);  /* B x S x D */
struct val sy_image_input(struct ww_comp *c); /* B x C x H x W */
int sy_rows_piece(struct ww_comp *c, struct val *x);
int sy_image_piece(struct ww_comp *c, struct val *x);
void sy_add_linear(struct ww_comp *c, struct val *x, const char *base, int64_t n, int bias);
void sy_add_conv(
	struct ww_comp *c, struct val *x, const char *base, int64_t out, int k, int stride, int64_t groups, int bias);
void sy_add_norm(struct ww_comp *c, struct val *x);
void sy_add_act(struct ww_comp *c, struct val *x);
/* All three; the norm has the bias. */
void sy_add_conv_norm_act(
	struct ww_comp *c, struct val *x, const char *base, int64_t out, int k, int stride, int64_t groups);
int sy_compose_idiom(struct ww_comp *c, struct val *out);

/* ---- crawled.c: the rows of operators.def, and behind them those of the recipe's catalogue */
int sy_ops(const struct ww_comp *c);
const struct ww_synth_op *sy_op(const struct ww_comp *c, int i);
/* A block of the catalogue: as it is, a whole task in source; or with pieces behind it, and source stays empty. */
int sy_compose_block(struct ww_comp *c, struct val *x, struct ww_str *source);
RULE(crawled);

/* ---- network.c */
int sy_compose_network(struct ww_comp *c, struct val *out);
