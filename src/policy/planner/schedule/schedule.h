/* schedule.h - from the values of a kernel (struct kern) to its loops (struct loop), which print/ turns into text.
 *
 * All choices are made here: what vectors run along, which template, skeleton or library computes it,
 * what stays in registers or scratch between passes, and the numbers of the launch.  Statements are text already
 * (print/expr.c writes them), since whether an expression has a vector form is known once it is written; the loops
 * around them, accumulators and launches are print/'s. */
#pragma once

#include "policy/planner/graph/walk.h"
#include "policy/planner/print/expr.h"

/* The three kinds of loops over a row kernel's columns.  ROWS: each lane is a row. */
enum along { SCALARS, COLUMNS, ROWS };
/* Row kernels that a skeleton of the cookbook computes (cpu). */
enum skeleton { NO_SKELETON, SOFTMAX, LOG_SOFTMAX, LSE, LAYERNORM, RMSNORM };

/* One reduction.  Zeros: a pass computes it alone. */
struct step {
	const char *before;  /* statements of a column that its argument needs, after those of the steps before it */
	struct etext value;  /* the argument */
	struct etext result; /* the result's name after the loop */
	/* cuda, one_pass.c: */
	int gathers;        /* it gathers what a later reduction is known by */
	struct step *by;    /* the one that gathers this one; NULL: a pass computes it */
	const char *centre; /* what it is about, then: known once a row */
};

/* One loop over the columns: the reductions of one stage, or the outputs. */
struct pass {
	int stage;                /* of the reductions in it; k->n_stage: the outputs */
	const char *row;          /* statements before the loop, once per row */
	const char *first, *last; /* statements of a column before and after the steps */
	/* cuda: */
	const char *arrays, *after; /* for vectors of outputs: declarations, and what stores them */
	const struct vload *load;   /* vectors that are loaded before the loop over the lanes */
	const char *inside;         /* the pass is written twice: where this holds, without conditions; "": once */
	int n_load;
};

/* A value that a pass leaves in the thread's scratch (cpu) or registers (cuda) for later ones. */
struct pl_cached {
	struct val *val;
	const struct ix *idx[PL_MAX_RANK];
	int stage;
};
enum { PL_MAX_CACHED = 4 };

struct loop {
	const struct ix_atom *lane;           /* what vectors run along; NULL: nothing does */
	const struct ix *outer, *len, *inner; /* extents around the dimension that it runs along; outer: rows, batches */
	/* Pointwise and row kernels: */
	enum along along;
	const char *stream; /* cpu: the float of a row's first column that rows not of whole vectors stream to; or NULL */
	const struct ix_atom *side; /* cpu, rows: `finish` has vectors along this variable of the rows, a block of which
	                             * keeps what each reduced; NULL: it is written once a row */
	const struct ix_atom
		*inside;               /* cpu, pointwise: rows of a short lane, all of which an item of a block does; or NULL */
	int backwards;             /* cuda: the last block is the first of its index space */
	int widest;                /* cuda, rows: bytes of the widest element that columns read */
	int in_lines;              /* cuda, rows: neighbouring rows lie side by side in memory, 256 of them or more */
	int n_row;                 /* leading row variables that are not the lane, nor `inside` */
	const struct ix *last_row; /* extent of the last of them; NULL: there is none */
	struct pass pass[66];
	int n_pass;
	struct step step[64]; /* by reduction of the kernel */
	const char *finish;   /* statements of a row after the passes: outputs that no column changes */
	struct pl_cached cached[PL_MAX_CACHED + 1];
	int n_cached;
	int tile, unroll; /* cpu: elements of a block; vectors in a step */
	int by_row;       /* cuda, pointwise: a block stays in a row, and reads once what no column changes */
	int rows_first;   /* cuda, pointwise, by_row: neighbouring blocks have the same columns of neighbouring rows */
	int beside;       /* cuda, pointwise, by_row: a block has several rows; elements of a thread, at most */
	int segment;      /* so many elements of a row are read at once, at least */
	int asks_ahead;   /* cuda, pointwise: a thread's vectors are all loaded before the first is stored */
	int behind;       /* cuda, pointwise: a thread computes all of its vectors before it stores the first (across: they
	                   * are those of neighbouring rows) */
	int kept;         /* cuda, pointwise: a thread's vectors are the same columns of several rows, and the last so many
	                   * loads of a pass, which no row changes, are done once; 0: none */
	int across; /* pointwise: rows are neighbours for some operands (cuda: a warp does so many of few columns); 0: no;
	             * cuda, ROWS: neighbouring threads do so many of the lane, and as many rows beside them */
	int threads, vec;       /* cuda: of a block (rows: least for one row); elements of a vector, at most */
	const char *terms;      /* cuda: "| a | b": what must be multiples of the vector's elements */
	int held, cluster;      /* cuda, rows: vectors stay in registers between passes; several blocks may share a row */
	int stepwise;           /* cuda, rows: small blocks go along their row step by step */
	int several;            /* cuda, a thread is a row of a few columns that mostly lie inside: it has so many; or 0 */
	int paired;             /* cuda, a thread is a row: it has V neighbours, whose elements are loaded together */
	const struct buf *ring; /* cuda, rows: what a cluster's blocks bring to shared memory row by row, while earlier rows
	                         * are done (ww/ring.cuh); or NULL */
	int others; /* of a ring: vectors that do not lie as its rows: 0: none, 1: whole at the sizes at hand, 2: some not
	             */
	const char *turned; /* cuda, rows, of a result that lies along the rows: stores an element of what the block's
	                     * threads left in shared memory, so that neighbours store neighbours; or NULL */
	/* cuda, rows: what a block brings to shared memory by vectors, since no vector divides its rows, and what it stores
	 * from there, each a row of `wide` elements; or NULL */
	const struct buf *staged, *stored;
	const struct ix *wide;
	enum skeleton skeleton;
	const char *eps; /* of a norm's skeleton: a literal; NULL: none */
	/* Anchors: */
	int form;                 /* which of its templates, by an enum of its file */
	int library;              /* enum pl_library_facts */
	int width;                /* cuda: elements along the lane that the template hands over at once */
	const char *load, *store; /* statements of its functors, or of the skeleton's */
	/* cuda: the vectors that `store` reads: declarations, references to those of `given`, and their loads; may be
	 * NULL */
	const char *ahead, *refs, *fetch;
	const char *given, *given_refs, *ask; /* the same for `load` of an operand after the first */
	/* cuda, while `store` is written: the index of operand 0 whose elements the template hands on as own[]; or NULL */
	const struct ix *const *own;
	int keeps;   /* `store` reads own[] */
	int guarded; /* `load` of operand 0 loads vectors under conditions */
	int singly;  /* `load` or `store` has no vectors of `width`, which do not divide what they step by */
	/* cpu, scatter: how many elements are written along its dimension, the variable that counts them, and the
	 * statements that return their places and what is written. */
	const struct ix *written;
	const struct ix_atom *nth;
	const char *place, *src;
};

/* Fill k->loop of every kernel, or find an earlier kernel that does the same to other buffers (k->shared). */
void pl_schedule(struct pl *pl);
/* order.c, after that: microseconds of the kernels, as far as the order of convolutions' dimensions changes them. */
double pl_order_us(struct pl *pl);
/* order.c: microseconds of a convolution in PyTorch's order, by our template for tensor cores with what packs its
 * operands, by our direct one, by the library in halves with all its passes, by the library channels-last, and by the
 * library as it lies.  turned: with passes of ours that turn its image and its result; bare: nothing is fused behind
 * it. */
double pl_conv_tc_us(const struct pl *pl, const struct anchor *s);
struct ww_conv_way;
/* The tensor-core template's tile and end, transposed with phases beside each other: of those that the knobs allow the
 * fastest by the estimate; no tiles: none fits.  pl_conv_is_apart(): each phase in tiles of its own is faster. */
struct ww_conv_way pl_conv_way(const struct pl *pl, const struct anchor *s, const struct knobs *kn);
int pl_conv_is_apart(const struct pl *pl, const struct anchor *s, const struct ww_conv_way *way);
/* By the library without TF32, PyTorch's order, operands as they lie. */
double pl_conv_exact_us(const struct anchor *s, int sms);
/* By conv_few; INFINITY: it is not for this one. */
double pl_conv_few_us(const struct pl *pl, const struct anchor *s);
double pl_conv_direct_us(const struct pl *pl, const struct anchor *s);
double pl_conv_halves_us(const struct anchor *s);
double pl_conv_last_us(const struct anchor *s, int turned);
double pl_conv_library_us(const struct anchor *s, int bare);
/* Of the pass behind the library's kernel. */
double pl_conv_end_us(const struct anchor *s, int bare);
/* choose.c: does the tensor-core template have pairs of fp16 for it, since PyTorch computes it without TF32? */
int pl_conv_by_pairs(const struct anchor *s);
/* Of a pointwise kernel that moves so many bytes. */
double pl_pass_us(double bytes);
/* order.c: is a convolution's result more than L2 holds? */
int pl_is_beyond_l2(const struct anchor *s);
/* share.c: 1 where an earlier kernel does what k does; k->shared then names it. */
int pl_share_kernel(struct pl *pl, struct kern *k);
const struct ix *pl_extent(struct pl *pl, const struct ix_atom *const *axis, int n);

/* ---- loop.c: pointwise and row kernels */
/* cuda: elements of a row, from which on one pass goes step by step; registers that hold loads; threads that share a
 * row whose neighbours lie along memory; rows of a block that turns its result, at least. */
enum { PL_STREAMED = 4096, PL_HELD = 64, PL_DOWN = 16, PL_TURNED = 32, PL_ALONE = 16384, PL_SHARED = 2048 };
enum { PL_SHARED_REGISTERS = 262144 /* elements of a row that a cluster's registers hold */ };
/* cuda, a thread is a row: for how many columns its loop is unrolled; if for all, quotients of their number are known.
 */
int pl_unrolled_down(struct pl *pl, struct kern *k);
/* cuda: vectors that the passes of a row kernel hold for later ones. */
int pl_loads_held(const struct kern *k);
/* cuda, loop.beside: vectors of a thread, at most; bytes that the threads of a row read at once, at least. */
enum { PL_BESIDE = 8, PL_SEGMENT = 64 };
/* point.c, cuda: do blocks have so many rows side by side, of `cols` vectors of vec elements of so many bytes, at most
 * `most` elements a thread? */
int pl_fits_beside(const struct pl *pl, int64_t rows, int64_t cols, int vec, int size, int most);
/* Is `off` the place of row and column where rows as long as those of k follow each other? */
int pl_lies_in_rows(struct pl *pl, const struct kern *k, const struct ix *off);
/* The linear number of a row kernel's current column, as text. */
const char *pl_linear_column(struct pl *pl, struct kern *k);
/* `off` of the first row. */
const struct ix *pl_in_row(struct pl *pl, const struct kern *k, const struct ix *off);
/* cpu: do stores along the lane go around the caches?  Not those of pointwise kernels with rows of few vectors that are
 * not whole: two rows write a line in part each, which costs more than is saved.  Loads across memory, whose lines
 * should stay in the caches, are worth more. */
int pl_streams(struct pl *pl, struct kern *k, const struct ix_atom *lane);
/* Index of the argument of reduction i of kernel k. */
void pl_red_element(const struct kern *k, int i, const struct ix **idx);
/* Does a row kernel scan its columns (pl_scan_in_row())? */
int pl_scans(const struct kern *k);
/* Do the outputs of a row kernel, or does output o, depend on its columns? */
int pl_stores_per_column(const struct kern *k);
int pl_stored_per_column(const struct kern *k, int o);
/* keep.c: values that a row kernel computes in one pass and leaves for later ones; at most `max`, returns how many. */
int pl_keep(struct pl *pl, struct kern *k, const struct ix_atom *lane, struct pl_cached *kept, int max);
/* one_pass.c: Set which reductions of row kernel k need no pass, since an earlier one gathers them (step[].by); returns
 * how many passes the stages still need. */
int pl_save_passes(struct pl *pl, struct kern *k);
/* None: each stage has its pass. */
void pl_save_no_pass(struct kern *k);
/* The text, known once a row, of what reduction i is about, which another one gathers. */
struct etext pl_gathered_about(struct expr *e, struct kern *k, int i);
/* skeleton.c: 1 where a skeleton of the cookbook computes kernel k. */
int pl_find_skeleton(struct pl *pl, struct kern *k);

/* ---- stores.c: statements that write the outputs at their index, into e->block[level] */
void pl_cpu_stores(struct expr *e, struct kern *k, int level);
/* Whole vectors are gathered in arrays o0[V].. (declared by *decl) and written by the statements that are returned;
 * `start`: the lane's first element; cond: in front of each store; *terms grows by what vectors demand. */
const char *pl_cuda_stores(struct expr *e, struct kern *k, int level, const char *start, const char **terms,
	const char **decl, const char *cond);
/* Append "| a | b ...": the factors of the terms of `off` beside the lane, as text of plan.c. */
const char *pl_cuda_terms(struct pl *pl, const char *terms, const struct ix *off, const struct ix_atom *lane);
/* For a vector of row kernel k at `off`: the same, but of a ring, whose rows' vectors may begin anywhere. */
const char *pl_cuda_row_terms(struct pl *pl, struct kern *k, const char *terms, const struct ix *off);
/* Are all factors of the terms beside the lane multiples of n at the sizes at hand? */
int pl_divides(const struct ix *off, const struct ix_atom *lane, int n);
/* The plan fails where such terms are not multiples of n. */
void pl_guard_terms(struct pl *pl, const char *terms, int n);
/* The same as pl_cuda_terms() for the lanes at which the comparisons of a load's condition change. */
const char *pl_cuda_cond_terms(struct pl *pl, const char *terms, const struct ix *cond, const struct ix_atom *lane);
/* Are these lanes multiples of n at the sizes at hand? */
int pl_cond_divides(struct pl *pl, const struct ix *cond, const struct ix_atom *lane, int n);
/* Declarations of n vectors, and their loads from where the lane's first element is `start`; sub: behind the names. */
const char *pl_cuda_loaded(const struct vload *v); /* the type of their elements */
const char *pl_cuda_arrays(struct pl *pl, const struct vload *v, int n, const char *dims);
const char *pl_cuda_loads(
	struct pl *pl, const struct ix_atom *lane, const struct vload *v, int n, const char *start, const char *sub);

/* ---- ends.c: A value at an index. */
struct pl_at {
	struct val *v;
	const struct ix *idx[PL_MAX_RANK];
};
/* v at idx, through what is not stored of views without a condition and of casts between types that are computed as
 * float. */
struct pl_at pl_look(struct pl *pl, struct val *v, const struct ix *const *idx);
int pl_computed_as_float(int dt);
/* What is done to a product, where the library's product can do it. */
struct pl_end {
	double alpha;                       /* times the product */
	int dt;                             /* what is stored */
	struct buf *bias;                   /* one number a column, of one matrix; NULL: none */
	const struct ix *first;             /* of the bias */
	struct buf *added;                  /* as large as the product; NULL: none */
	const struct ix *ld, *batch_stride; /* of the result, where rows or batches lie apart; else NULL */
};
/* Does kernel k store nothing else than its anchor's product (batches, rows, columns), in its type with such an end or
 * in fp32 as it is? */
int pl_ends_as(struct pl *pl, const struct kern *k, struct pl_end *out);

/* ---- functor.c: of anchors.  The variable of axis d, made up where its size is 1. */
const struct ix_atom *pl_lane_of(struct pl *pl, struct kern *k, int d);
/* Merge axes from..to-1 of an anchor's index into one variable, and rewrite the output's index (and *idx, if given) to
 * use it. */
const struct ix_atom *pl_join(struct pl *pl, struct kern *k, int from, int to, const struct ix **idx);
/* Nothing is fused behind the anchor: a library can write its result where the kernel would. */
int pl_is_bare(const struct kern *k);
/* The largest of most, most / 2, ... 1 that divides n at the traced sizes. */
int pl_widest(const struct ix *n, int most);
/* Product of the sizes from..to-1 of v. */
const struct ix *pl_sizes(struct pl *pl, const struct val *v, int from, int to);
/* cuda: the largest of most, most / 2, ... 1 elements along loop->lane that all vectors of pl_store_body() divide by.
 */
int pl_store_width(struct pl *pl, struct kern *k, const char *start, int most);
/* Statements of a functor that a template calls with elements along loop->lane, the first at `start`: stores the
 * outputs, given the anchor's results (cpu: the vector "acc" of n, cuda: the array "acc" of N = loop->width), */
const char *pl_store_body(struct pl *pl, struct kern *k, const char *start);
/* or returns operand 0 at idx, or another one. */
const char *pl_load_body(struct pl *pl, struct kern *k, const char *start, const struct ix *const *idx);
const char *pl_load_body_of(struct pl *pl, struct kern *k, int which, const char *start, const struct ix *const *idx);
/* cpu: returns the places that operand `which`, of integers, says at idx: a vector along loop->lane; or one, which does
 * not depend on the lane. */
const char *pl_place_body(struct pl *pl, struct kern *k, int which, const struct ix *const *idx, int one);
