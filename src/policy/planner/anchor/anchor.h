/* anchor.h - anchors: operations that have a template or a library of their own (GEMM, convolution, attention, scan,
 * sort, scatter, RNN).
 *
 * An anchor names what it computes and its operands; the grouping decides where its result is stored and what is fused
 * behind it.  Operands must be readable by strides: a view of a buffer with affine indices is passed without a copy
 * (transposes and head splits cost nothing), anything else is stored first.
 *
 * A kind of anchor is one file of this folder, or a folder of its own where one would be too long.  It holds the
 * function that lowering calls (where no template fits, the same function is built from views and reductions) and one
 * row of struct anchor_ops.  To add a kind: a member of enum anchor_kind and its facts below, its knobs in knobs.h, its
 * file, its line in anchor.c, and the call in a lowering rule.
 */
#pragma once

#include "policy/planner/graph/graph.h"
#include "policy/planner/graph/val.h"
#include "policy/planner/knobs.h"

struct kern;

/* Up to which power of the task's inputs (pl_power()) operands may grow that a template scales by the largest element
 * of an image, or of a head, and packs as fp16: with elements of inputs 2^12 times as large as others, of a square the
 * others keep 16 bits, of a cube 6.  HALVES: with an image's largest element at 2^8 in place of 2^15, as the library's
 * sums of halves need it, the square's keep 8, an input's 19. */
enum { POWER_OF_SCALED = 2, POWER_OF_HALVES = 1 };
enum { WIDE_FOR_HALVES = 1, WIDE = 2 }; /* conv.wide */

enum anchor_kind { S_GEMM, S_CONV, S_ATTN, S_SCAN, S_SORT, S_RNN, S_RNN_STACK, S_TURN, S_SCATTER, S_COUNT };
/* What becomes of an element that is written to a place: added up there, and so on, or left as the last one. */
enum pl_scatter { SCATTER_SUM, SCATTER_PROD, SCATTER_MAX, SCATTER_MIN, SCATTER_SET };
enum pl_cell { CELL_TANH, CELL_RELU, CELL_GRU, CELL_LSTM }; /* numbered as in <ww/rnn.cuh> and <ww/cpu/rnn.h> */
enum { PL_MAX_CHAINS = 8 };                                 /* of pl_rnn_stack(): four operands each, and four */

/* A strided operand of an anchor: element idx lies at offset + sum of idx[d] * stride[d], in elements of buf. */
struct operand {
	struct val *val; /* the value; stored before the anchor runs */
	struct buf *buf;
	int rank;
	const struct ix *size[PL_MAX_RANK], *offset, *stride[PL_MAX_RANK];
};

/* Which keys a row of attention sees: those from `below` before its own to `above` after it; WW_ATTENTION_ALL: no
 * limit.
 */
struct pl_band {
	int64_t below, above;
};

enum { PL_MAX_OPERANDS = 40 };

struct anchor {
	enum anchor_kind kind;
	int id;
	const char *node, *what; /* the graph node; the operation's name in titles and messages: "gemm" */
	struct operand in[PL_MAX_OPERANDS];
	int n_in;
	unsigned computes; /* operands that its kernel computes, a bit each, as anchor_ops.computes chose */
	struct val *out;
	union {              /* by kind; numbers only and no pointers, since share.c compares bytes */
		struct {         /* out (batch..., m, n) = a (batch..., m, k) b (batch..., k, n) */
			int n_batch; /* leading dimensions */
			int of_conv; /* in the other order it would be a convolution */
		} gemm;
		struct { /* x (n, c, space...), w (k, c / groups, space...), transposed: (c, k / groups, space...) */
			int nd, transposed, groups;
			int library_only; /* no template of the cookbook computes it */
			int pytorch_last; /* PyTorch runs it channels-last, as its input is stored */
			int exact;        /* PyTorch runs it without TF32 (pl_conv_is_exact()) */
			int last;         /* the library computes it, with operands and result channels-last */
			int wide;         /* its operand's range: too wide for a packed image, or at least for halves */
			int exponent;     /* an exponential is taken of its result */
			int64_t stride[3], pad[3], dil[3], opad[3];
		} conv;
		struct { /* q, k, v: (batch, heads, length, width), or without heads; in[3]: expression of a score */
			struct pl_band band;
			int group; /* grouped-query attention: neighbouring heads of q that share one head of k and v */
			int tiles; /* ww::attention fits as well (fp32; cuda: heads 64 or 128 wide) */
			double scale;
		} attn;
		struct { /* sums or products along one dimension */
			enum pl_red red;
			int dim, back; /* from the last element to the first */
			int excluded;  /* the first result is 0, and the last element counts for none */
		} scan;
		struct { /* the source indices, or the values, of elements `first`, first + 1, ... of each sorted row */
			int dim, descending, values, few; /* few: the first few, by a template of their own */
			int64_t first;
		} sort;
		struct { /* in[]: gx, w, h0, the bias if has_bias, c0 if LSTM (pl_rnn()) */
			enum pl_cell cell;
			int has_bias, reverse;
		} rnn;
		struct { /* in[]: see pl_rnn_stack() */
			enum pl_cell cell;
			int chains, has_bias, beside;
		} stack;
		struct { /* in[]: what is written to, the places along dim, what is written (pl_scatter()) */
			enum pl_scatter how;
			int dim;
		} scatter;
	};
	int consumers;            /* at how many places stored values read it */
	const struct val *reader; /* one of these values */
	int readers;              /* how many they are */
	int scheduled;
	struct val *in_row; /* pl_scan_in_row(), once it was asked for */
};

/* ---- Kinds ------------------------------------------------------------------------------------------------------- */

enum { FUSES_READER = 1, FUSES_OPERAND = 2, FUSES_MASK = 4 };

struct anchor_ops {
	const char *header;     /* HEADER of the cookbook's <ww/HEADER.cuh> and <ww/recipe/HEADER.h> */
	const char *by_library; /* cuda: plural name for messages, where a library computes them too; else NULL */
	int library_tf32;       /* that library uses TF32 unless LIBRARY_FP32 is asked for */
	int stores_fp32;        /* a result of 16 bits that its operator does not return may be stored as fp32 */
	/* Which expressions become a part of its kernel.  FUSES_READER: of a value that reads the result at its own index;
	 * FUSES_OPERAND: of its operands; FUSES_MASK: of operands after the third, whose last axis is not the result's. */
	int fuses;
	/* The dimension in which a fused operand runs over an axis of its own, in place of the result's; -1: none.  NULL:
	 * none; of a mask the last one. */
	int (*own_axis)(const struct anchor *s, int which);
	/* cuda: is operand `which`, an expression, better computed by its kernel than stored by another one and read? Asked
	 * once of each; the operand's own axis is its last one.  NULL: no. */
	int (*computes)(struct pl *pl, const struct anchor *s, int which);
	/* Can the template read operand `which` by the strides of o?  Not called for fused operands. */
	int (*fits)(struct pl *pl, const struct anchor *s, int which, const struct operand *o);
	/* Are the operands among the kernel's own buffers, as those of its expressions are?  NULL: no. */
	int (*reads_operands)(struct pl *pl, const struct kern *k);
	/* Can its reader's expression be fused without another pass over the result?  A library's result needs that pass by
	 * default.  NULL: no. */
	int (*ends_free)(struct pl *pl, const struct anchor *s);
	/* The same of an end that spares its readers so many reads of a tensor of the result's size: the template may be
	 * slower than the library's bare product by what these take.  NULL: no. */
	int (*ends_for)(struct pl *pl, const struct anchor *s, int reads);
	/* Is its reader's expression better a kernel of its own?  reads: the tensors of the result's size that it reads
	 * beside it.  NULL: no. */
	int (*ends_apart)(struct pl *pl, const struct anchor *s, int reads);
	/* cuda: rewrite s so that its last two axes change places, since what is stored reads it so: `rows` of them are an
	 * item where a matrix of several items was one (NULL: it was none).  reads: 0, or only with an end that spares so
	 * many.  Returns whether that was worth while.  NULL: no. */
	int (*turn)(struct pl *pl, struct anchor *s, const struct ix *items, const struct ix *rows, int reads);
	/* Fill k->loop: which template, and the statements of its functors. */
	void (*build)(struct pl *pl, struct kern *k);
	const struct knob_row *knobs[2];                                   /* cpu, cuda; NULL: none */
	void (*print[2])(struct pl *pl, struct kern *k, struct ww_str *s); /* cpu, cuda */
};
extern const struct anchor_ops *const pl_anchor_ops[S_COUNT];

struct anchor *pl_anchor(struct pl *pl, struct gnode *n, enum anchor_kind kind, const char *what);
void pl_anchor_operand(struct anchor *s, struct val *v);
/* v with operations by constants moved from above its views to below them: op(view(x)) becomes view(op(x)).  The stored
 * value then has x's layout and is read by strides (queries that are scaled after the split into heads: the scaling is
 * fused into their GEMM). */
struct val *pl_constants_below(struct pl *pl, struct val *v);
/* Is the expression of operand `which` fused into the anchor's kernel? */
int pl_fuses_operand(const struct anchor *s, int which);
/* idx[]: the operand's index that belongs to index at[] of the result; last: the index along the axis that only the
 * operand has (own_axis()). */
void pl_operand_place(
	const struct anchor *s, int which, const struct ix *const *at, const struct ix *last, const struct ix **idx);
/* The value that the anchor computes. */
struct val *pl_anchor_out(struct pl *pl, struct anchor *s, int dt, int rank, const struct ix *const *size);
/* For ops->fits: is the operand contiguous? */
int pl_operand_contiguous(struct pl *pl, const struct operand *o);

/* ---- What lowering calls ----------------------------------------------------------------------------------------- */

struct val *pl_gemm(struct pl *pl, struct gnode *n, struct val *a, struct val *b);
/* Estimated microseconds of a product's kernel on cuda. */
double pl_gemm_us(struct pl *pl, struct kern *k);
/* cuda: `batch` products by gemm_mma of one matrix, (m, k), by columns, and fp32 matrices (k, n) row by row. */
double pl_product_us(const struct pl *pl, int64_t m, int64_t n, int64_t k, int64_t batch);
/* A GEMM of 16-bit operands with a result of type `out`: fp32. */
struct val *pl_gemm_to(struct pl *pl, struct gnode *n, struct val *a, struct val *b, int out);
struct val *pl_conv(struct pl *pl, struct gnode *n, struct val *x, struct val *w, int nd, const int64_t *stride,
	const int64_t *pad, const int64_t *dil, int transposed, const int64_t *opad, int64_t groups);
/* What an earlier convolution of x has computed together with n, of the filters w; NULL: none has. */
struct val *pl_conv_given(const struct gnode *n, const struct val *x, const struct val *w);
/* x, stored contiguously, copied to channels-last. */
struct val *pl_turn(struct pl *pl, struct gnode *n, struct val *x);
/* Is x (n, c, space...) stored channels-last, or computed from a channels-last convolution? */
int pl_is_last(const struct pl *pl, const struct val *x);
/* x (n, c, space...) for a norm over groups of channels: a large input, and a sum of several tensors that another norm
 * or convolution reads as well, stored channels-last; else x. */
struct val *pl_norm_last(struct pl *pl, struct gnode *n, struct val *x);
/* x (n, c, space...) for a rule that reads elements several times, or together with elements of other tensors: stored
 * channels-last if it is computed from a channels-last convolution; else x. */
struct val *pl_follow_last(struct pl *pl, struct gnode *n, struct val *x);
/* x, an operand of n: the copy of this input that a convolution has had made channels-last, where `beside`, the other
 * operand, lies so too, and what is made of both is read by another convolution; else x. */
struct val *pl_copy_last(const struct pl *pl, const struct gnode *n, struct val *x, const struct val *beside);
/* x, an operand of n: a copy of this input channels-last, where `beside`, the other operand, is an input that lies so,
 * and what is made of both is reduced for each channel, by threads along them; else x. */
struct val *pl_turn_beside(struct pl *pl, struct gnode *n, struct val *x, const struct val *beside);
/* Does a convolution with k filters run faster channels-last?  cuDNN pads channels to 16 bytes, except the few of an
 * image. */
int pl_gains_last(const struct anchor *s, const struct ix *k);
/* Is it a transposed convolution in three dimensions, of fp32 and stride 1?  cuDNN computes it as a gradient, mostly at
 * 4 to 22 million multiply-adds a microsecond where its forward engines reach 100 (48 channels of 8 x 64 x 64 x 64,
 * 3 x 3 x 3, H200: 9 ms). */
int pl_is_slow_gradient(const struct anchor *s);
/* The same of a larger stride: of more than 64 taps 3 million (32 channels of 16 x 32 x 32 x 32 to 64, 5 x 5 x 5,
 * stride 2: 42.6 ms), dilated 8 (3 x 3 x 3, stride and dilation 2: 1.8 ms); six of 27 and 64 taps reached 48 and more.
 */
int pl_is_slow_stride(const struct anchor *s);
/* Multiply-adds of a convolution; *taps: those of one input channel for an element of the result.  A transposed
 * convolution skips positions between its strides. */
double pl_conv_work(const struct anchor *s, double *taps);
/* Call before a reduction of x over the dimensions `mask`: if it keeps the channels, or is of these alone, results of
 * channels-last convolutions that x reads stay channels-last and are not copied to contiguous. */
void pl_keep_last(const struct pl *pl, struct val *x, unsigned mask);
/* The same where each element of x may be read once more, beside what was reduced (a softmax, a norm): only if it is of
 * the channels alone.  A row of a channel's pixels would be read across both times. */
void pl_keep_channels(const struct pl *pl, struct val *x, unsigned mask);
/* Call before slices of x are taken (a gate's halves), which are read beside each other: what convolutions that ran
 * channels-last have stored of x stays in that order. */
void pl_keep_sliced(const struct pl *pl, struct val *x);
struct val *pl_attention(struct pl *pl, struct gnode *n, struct val *q, struct val *k, struct val *v, struct val *mask,
	int causal, double scale);
/* The expression of a score without those masks that are a band of row and key (its last dimensions); narrows *band. */
struct val *pl_without_band(struct pl *pl, struct val *score, struct pl_band *band);
/* weights v as attention, if the weights are the softmax of a pointwise expression of a GEMM; else NULL. */
struct val *pl_attention_of(struct pl *pl, struct gnode *n, struct val *weights, struct val *v);
struct val *pl_scan(struct pl *pl, struct gnode *n, struct val *x, int dim, enum pl_red red);
/* cuda: a scan's result v with the elements along `dim` in the other order; what it scans it then scans from the end.
 * NULL: v is none, or along another dimension. */
struct val *pl_scan_back(struct pl *pl, struct gnode *n, struct val *v, int dim);
/* cuda: the running sums v of all but the last element behind one result of 0, as one scan.  NULL: v is no such. */
struct val *pl_scan_excluded(struct pl *pl, struct gnode *n, const struct val *first, struct val *v, int dim);
/* cuda: scan s as a reduction of the row kernel that reads its result; NULL: no row kernel scans that. */
struct val *pl_scan_in_row(struct pl *pl, struct anchor *s);
/* Elements first to first + count - 1 of each sorted row. */
struct pl_sorted {
	int dim, descending;
	const struct ix *first, *count;
};
/* Is there a template that finds that part of x's rows, of that type and length? */
int pl_sorts(const struct pl *pl, const struct val *x, const struct pl_sorted *part);
/* Is it the one for the first few elements of each row? */
int pl_gathers_first(const struct pl *pl, const struct val *x, const struct pl_sorted *part);
/* Their source indices, as floats. */
struct val *pl_sort(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part);
/* Their values, of x's type; cuda, where nothing needs the indices: x need not be stored, nor its elements gathered.
 * NULL: no template does. */
struct val *pl_sort_values(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part);
/* Does it take less time to write `list` elements along dim of `to` one after the other than to have each element of
 * the result ask all of them?  cuda: less than otherwise_us. */
int pl_scatters(const struct pl *pl, enum pl_scatter how, const struct val *to, int dim, const struct ix *list,
	double otherwise_us);
/* A tensor of to's shape that begins as `init`, with the elements of src written at the places along dim, both of to's
 * shape but for that dimension.  A place below 0 counts from the end; nothing is written outside.  init and src may be
 * constants. */
struct val *pl_scatter(struct pl *pl, struct gnode *n, enum pl_scatter how, const struct val *to, struct val *init,
	int dim, struct val *place, struct val *src);
/* Estimated microseconds of all steps of a recurrent layer on cuda: of this anchor, and of cuDNN's kernels. */
double pl_rnn_us(const struct pl *pl, enum pl_cell cell, double steps, double batch, double hidden);
double pl_cudnn_rnn_us(enum pl_cell cell, double steps, double batch, double hidden);
/* All steps of a recurrent layer: (steps, batch, hidden); LSTM appends one step, which holds the cell states after the
 * last step.  gx is (steps, batch, gates * hidden), w (gates * hidden, hidden), bias (may be NULL) is added to the
 * product with the state, h0 and c0 (LSTM) are (batch, hidden). */
struct val *pl_rnn(struct pl *pl, struct gnode *n, enum pl_cell cell, int reverse, struct val *gx, struct val *w,
	struct val *bias, struct val *h0, struct val *c0);
/* cuda: layers of one size that run beside each other: the two directions of one (beside), or each but the first of
 * them on the output of the one before. */
struct pl_rnn_stack {
	enum pl_cell cell;
	int chains, beside, has_bias;
	struct val *gx[2];                                     /* of the first layer, or both directions */
	struct val *w_ih[PL_MAX_CHAINS], *b_ih[PL_MAX_CHAINS]; /* of those that read the one before */
	struct val *w_hh[PL_MAX_CHAINS], *b_hh[PL_MAX_CHAINS];
	struct val *h0, *c0; /* (chains, batch, hidden); c0: LSTM */
};
/* Estimated microseconds; infinity where no launch holds their weights. */
double pl_rnn_stack_us(
	const struct pl *pl, enum pl_cell cell, int chains, int beside, double steps, double batch, double hidden);
/* Do the blocks of that launch share its chains, so that states pass through memory? */
int pl_rnn_stack_is_shared(
	const struct pl *pl, enum pl_cell cell, int chains, int beside, double steps, double batch, double hidden);
/* All steps: (chains, steps, batch, hidden), beside (steps, batch, chains, hidden).  LSTM appends one step, as pl_rnn()
 * does.  gx is (steps, batch, gates * hidden) with the biases b_ih. */
struct val *pl_rnn_stack(struct pl *pl, struct gnode *n, const struct pl_rnn_stack *r);
