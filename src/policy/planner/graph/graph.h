/* graph.h - the nodes of a graph with typed arguments, as the answer of `inspect` has them. */
#pragma once

#include "policy/planner/build.h"

enum gkind { G_NONE, G_VAL, G_INT, G_FLOAT, G_BOOL, G_STR, G_LIST };

struct garg {
	enum gkind kind;
	const char *name; /* VAL: of the node; STR */
	int out;          /* VAL: which output of the node */
	int64_t i;
	double f;
	struct garg *item;
	int n;
};

struct gmeta {
	int dt, rank; /* dt 0: not a tensor */
	int64_t size[PL_MAX_RANK], stride[PL_MAX_RANK];
};

struct gnode {
	const char *name, *target;      /* "aten.add.Tensor" */
	const struct pl_lower_row *row; /* its rule (lower/lower.h), */
	int variant;                    /* and which of the rule's operators it is */
	struct garg *arg;
	int n_arg;
	struct garg *kwarg;
	const char **kwname;
	int n_kwarg;
	struct gmeta meta[PL_MAX_OUTS];
	int n_out;
	struct val *out[PL_MAX_OUTS];
	int known;           /* task/graph/check.h has looked at it */
	int shares;          /* by the graph its result shares its operand's memory */
	int tf32;            /* does PyTorch compute it in TF32?  As it was asked; -1: it was not */
	struct gnode **read; /* the nodes whose results it reads, once pl_graph_reads() was asked */
	int n_read;
	int by_pytorch;        /* no rule covers it (lower/pytorch.c) */
	int level;             /* how many segments of PyTorch run before it */
	const struct kern *in; /* the last kernel found that computes a part of it */
	/* A convolution that is computed together with the first one of its input (anchor/conv/together.c): that one, which
	 * knows the input, the filters and their number, and the result of these. */
	struct gnode *first;
	struct val *of, *with, *part;
	const struct ix *filters;
};

void pl_graph_read(struct pl *pl, const json_t *graph);
/* Does PyTorch store it channels-last, and does that differ from contiguous? */
int pl_stored_last(const struct gmeta *m);
struct gnode *pl_graph_node(struct pl *pl, const char *name);
/* Fills `read` of all nodes, once. */
void pl_graph_reads(struct pl *pl);
/* The value of the input or parameter of this name; NULL: there is none. */
struct val *pl_graph_given(const struct pl *pl, const char *name);
/* Is argument a the node, input or parameter `name`, or a list with it? */
int pl_refers(const struct garg *a, const char *name);
/* How many arguments of nodes, and outputs of the graph, that is. */
int pl_count_readers(const struct pl *pl, const char *name);
/* The value of a number, a node, an input or a parameter; anything else ends the build. */
struct val *pl_val_of(struct pl *pl, const struct garg *a);
/* End the build: "cannot cover aten.add.Tensor (node add_3): WHY". */
void pl_cannot(struct pl *pl, struct gnode *n, const char *why) __attribute__((noreturn));
/* A rule covers n, but estimates that PyTorch's kernels are faster: end the build in the same way, if n may be left to
 * PyTorch. */
void pl_leave(struct pl *pl, struct gnode *n, const char *why);
