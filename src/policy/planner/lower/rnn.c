/* rnn.c - lowering of recurrent cells and layers (RNN, GRU, LSTM).
 *
 * A cell is two matrix products and pointwise gates.  A layer is one product of the whole input with the input's
 * weights, for all steps at once, and an anchor for the steps that depend on each other (<ww/rnn.cuh>, <ww/cpu/rnn.h>).
 * On cuda both directions of a layer, or as many stacked layers as are estimated to be fastest, are one anchor
 * (<ww/rnn_stack.cuh>): the first one's input is a product, the others multiply it step by step.
 */
#include "policy/planner/lower/lower.h"

#include <string.h>

/* ---- Cells ------------------------------------------------------------------------------------------------------- */

/* Slice number `at` of the last dimension, divided into `parts` equal slices. */
static struct val *gate(struct pl *pl, struct val *all, int at, int parts)
{
	int last = all->rank - 1;
	const struct ix *size = ix_div(pl, all->size[last], ix_const(pl, parts));

	return pl_slice(pl, all, last, ix_mulc(pl, size, at), size, 1);
}

/* One step of torch.nn.LSTMCell, GRUCell and RNNCell. */
static void recurrent_cell(struct pl *pl, struct gnode *n)
{
	struct garg *hx = pl_arg(n, 1, "hx");
	int is_lstm = n->variant == CELL_LSTM;
	struct val *h, *in, *old, *r, *z, *c;

	if (is_lstm && (!hx || hx->kind != G_LIST || hx->n != 2))
		pl_cannot(pl, n, "an LSTM needs two states, h and c");
	h = is_lstm ? pl_val_of(pl, &hx->item[0]) : pl_need_val(pl, n, 1, "hx");
	in = pl_linear(pl, n, pl_need_val(pl, n, 0, "input"), pl_need_val(pl, n, 2, "w_ih"), pl_arg_val(pl, n, 4, "b_ih"));
	old = pl_linear(pl, n, h, pl_need_val(pl, n, 3, "w_hh"), pl_arg_val(pl, n, 5, "b_hh"));
	if (is_lstm) {
		in = pl_op2(pl, OP_ADD, in, old); /* gates in the order input, forget, cell, output */
		c = pl_op2(pl, OP_MUL, pl_op1(pl, OP_SIGMOID, gate(pl, in, 1, 4)), pl_val_of(pl, &hx->item[1]));
		z = pl_op2(pl, OP_MUL, pl_op1(pl, OP_SIGMOID, gate(pl, in, 0, 4)), pl_op1(pl, OP_TANH, gate(pl, in, 2, 4)));
		n->out[1] = pl_op2(pl, OP_ADD, c, z);
		done(n, pl_op2(pl, OP_MUL, pl_op1(pl, OP_SIGMOID, gate(pl, in, 3, 4)), pl_op1(pl, OP_TANH, n->out[1])));
	} else if (n->variant == CELL_GRU) {
		r = pl_op1(pl, OP_SIGMOID, pl_op2(pl, OP_ADD, gate(pl, in, 0, 3), gate(pl, old, 0, 3)));
		z = pl_op1(pl, OP_SIGMOID, pl_op2(pl, OP_ADD, gate(pl, in, 1, 3), gate(pl, old, 1, 3)));
		c = pl_op1(pl, OP_TANH, pl_op2(pl, OP_ADD, gate(pl, in, 2, 3), pl_op2(pl, OP_MUL, r, gate(pl, old, 2, 3))));
		done(n, pl_op2(pl, OP_ADD, c, pl_op2(pl, OP_MUL, z, pl_op2(pl, OP_SUB, h, c))));
	} else if (n->variant == CELL_RELU) {
		done(n, pl_op2(pl, OP_MAXIMUM, pl_op2(pl, OP_ADD, in, old), pl_constf(pl, in->dt, 0)));
	} else {
		done(n, pl_op1(pl, OP_TANH, pl_op2(pl, OP_ADD, in, old)));
	}
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

enum { LEFT_US = 10 };

struct layers {
	enum pl_cell cell;
	int n_layer, n_dir, has_bias, batch_first, unbatched;
	int last_only;             /* of the results only the sequence's last step is read */
	struct garg *param;        /* for each layer and direction: w_ih, w_hh, and if has_bias b_ih, b_hh */
	struct val *h0, *c0;       /* (layers * directions, batch, hidden) */
	struct val *h[64], *c[64]; /* the last state of each layer and direction */
};

static struct val *state_at(struct pl *pl, struct val *v, int at) { return pl_select(pl, v, 0, ix_const(pl, at)); }

/* Is result 0 of n, or of the node that takes it, read by `reader` as the last step alone?  Not by its number, which is
 * another step of a longer sequence. */
static int takes_last(const struct gnode *reader, const char *name, int dim)
{
	return reader->n_arg == 3 && !strcmp(reader->target, "aten.select.int") && pl_refers(&reader->arg[0], name) &&
		reader->arg[1].kind == G_INT && reader->arg[1].i == dim && reader->arg[2].kind == G_INT &&
		reader->arg[2].i == -1;
}

/* Is nothing read of what layers n return but the last step of their output? */
static int only_last_is_read(const struct pl *pl, const struct gnode *n, int dim)
{
	int left = pl_count_readers(pl, n->name);

	for (const struct gnode *item = pl->node; item < pl->node + pl->n_node; item++) {
		int readers;

		if (item->n_arg != 2 || strcmp(item->target, "getitem") || !pl_refers(&item->arg[0], n->name))
			continue;
		left--;
		readers = pl_count_readers(pl, item->name);
		for (const struct gnode *m = pl->node; m < pl->node + pl->n_node && item->arg[1].i == 0; m++)
			readers -= takes_last(m, item->name, dim);
		if (readers)
			return 0;
	}
	return !left;
}

/* The backward direction of the last layer where only the last step is read, which is its first one: a single step. */
static int is_one_step(const struct layers *l, int layer, int dir)
{
	return dir && l->last_only && layer == l->n_layer - 1;
}

/* One direction of one layer: x is (steps, batch, features), the result (steps, batch, hidden). */
static struct val *direction(struct pl *pl, struct gnode *n, struct layers *l, struct val *x, int layer, int dir)
{
	int at = layer * l->n_dir + dir, first = layer == 0 && l->batch_first;
	struct garg *p = &l->param[at * (l->has_bias ? 4 : 2)];
	struct val *bias = l->has_bias ? pl_val_of(pl, &p[2]) : NULL, *after = l->has_bias ? pl_val_of(pl, &p[3]) : NULL,
			   *gx, *all;
	const struct ix *all_steps = x->size[first ? 1 : 0], *last = ix_addc(pl, all_steps, -1), *steps = all_steps;
	const struct ix *size[3];

	if (is_one_step(l, layer, dir)) {
		x = pl_slice(pl, x, first ? 1 : 0, last, steps = ix_const(pl, 1), 1);
		last = ix_const(pl, 0);
	}
	if (l->has_bias && l->cell != CELL_GRU &&
		pl_algebra(pl)) { /* only GRU multiplies the state's product by a gate before it is added */
		bias = pl_op2(pl, OP_ADD, bias, after);
		after = NULL;
	}
	gx = pl_linear(pl, n, x, pl_val_of(pl, &p[0]), bias);
	if (first)
		gx = pl_permute(pl, gx, (int[]){ 1, 0, 2 });
	all = pl_rnn(pl, n, l->cell, dir, gx, pl_val_of(pl, &p[1]), after, state_at(pl, l->h0, at),
		l->c0 ? state_at(pl, l->c0, at) : NULL);
	l->h[at] = pl_select(pl, all, 0, dir ? ix_const(pl, 0) : last);
	l->c[at] = l->c0 ? pl_select(pl, all, 0, steps) : NULL;
	all = pl_slice(pl, all, 0, ix_const(pl, 0), steps, 1);
	memcpy(size, all->size, sizeof(size));
	size[0] = all_steps;
	return steps == all_steps ? all : pl_expand(pl, all, 3, size);
}

/* The parameters of layer and direction `at`: w_ih, w_hh, b_ih, b_hh. */
static struct val *param(struct pl *pl, const struct layers *l, int at, int which)
{
	return pl_val_of(pl, &l->param[at * (l->has_bias ? 4 : 2) + which]);
}

/* Layers `layer` to layer + count - 1 beside each other: one of two directions, or of one each. */
static struct val *beside(struct pl *pl, struct gnode *n, struct layers *l, struct val *x, int layer, int count)
{
	int at = layer * l->n_dir, two = l->n_dir == 2, first = layer == 0 && l->batch_first;
	struct pl_rnn_stack r = { .cell = l->cell, .chains = count * l->n_dir, .beside = two, .has_bias = l->has_bias };
	const struct ix *from = ix_const(pl, at), *chains = ix_const(pl, r.chains), *steps = x->size[first ? 1 : 0],
					*last = ix_addc(pl, steps, -1);
	struct val *all;

	for (int i = 0; i < r.chains; i++) {
		r.w_hh[i] = param(pl, l, at + i, 1);
		r.b_hh[i] = l->has_bias ? param(pl, l, at + i, 3) : NULL;
		r.w_ih[i] = param(pl, l, at + i, 0);
		r.b_ih[i] = l->has_bias ? param(pl, l, at + i, 2) : NULL;
		if (two || i == 0) {
			r.gx[i] = pl_linear(pl, n, x, r.w_ih[i], r.b_ih[i]);
			if (first)
				r.gx[i] = pl_permute(pl, r.gx[i], (int[]){ 1, 0, 2 });
		}
	}
	r.h0 = pl_slice(pl, l->h0, 0, from, chains, 1);
	r.c0 = l->c0 ? pl_slice(pl, l->c0, 0, from, chains, 1) : NULL;
	all = pl_rnn_stack(pl, n, &r);
	for (int i = 0; i < r.chains; i++) {
		struct val *own = pl_select(pl, all, two ? 2 : 0, ix_const(pl, i));

		l->h[at + i] = pl_select(pl, own, 0, two && i ? ix_const(pl, 0) : last);
		l->c[at + i] = l->c0 ? pl_select(pl, own, 0, steps) : NULL;
		x = pl_slice(pl, own, 0, ix_const(pl, 0), steps, 1);
	}
	if (two) {
		all = pl_slice(pl, all, 0, ix_const(pl, 0), steps, 1);
		x = pl_reshape(pl, all, 3, (const struct ix *[]){ steps, all->size[1], ix_mulc(pl, all->size[3], 2) });
	}
	return x;
}

/* How many layers are fastest beside each other, and the time of all; 0: each is launches of its own. */
static int most_beside(struct pl *pl, const struct layers *l, double steps, double batch, double hidden, double *us)
{
	static const double g[] = { 1, 1, 3, 4 };
	const double product = 5 + steps * batch * g[l->cell] * hidden * hidden * l->n_dir / 15e6; /* of a layer's input */
	int best = 0;

	*us = l->n_layer * l->n_dir * pl_rnn_us(pl, l->cell, steps, batch, hidden) + (l->n_layer - 1) * product;
	for (int count = 1; count <= (l->n_dir == 2 ? 1 : l->n_layer) && pl->target == WW_TARGET_CUDA; count++) {
		const int groups = (l->n_layer + count - 1) / count, rest = l->n_layer - (groups - 1) * count;
		const double now = (groups - 1) *
				pl_rnn_stack_us(pl, l->cell, count * l->n_dir, l->n_dir == 2, steps, batch, hidden) +
			pl_rnn_stack_us(pl, l->cell, rest * l->n_dir, l->n_dir == 2, steps, batch, hidden) + (groups - 1) * product;

		if (now < *us) {
			*us = now;
			best = count;
		}
	}
	return best;
}

static struct val *stacked(struct pl *pl, struct layers *l, struct val **state)
{
	struct val *v[64];
	int k = l->n_layer * l->n_dir;

	for (int i = 0; i < k; i++)
		v[i] = pl_unsqueeze(pl, state[i], 0);
	v[0] = pl_cat(pl, v, k, 0);
	return l->unbatched ? pl_squeeze(pl, v[0], 1) : v[0];
}

/* most_beside(), unless the layers are left to PyTorch: where cuDNN, which uses tensor cores, is estimated to be
 * faster, the cost of leaving the plan included. */
static int choose(struct pl *pl, struct gnode *n, const struct layers *l, const struct val *x)
{
	/* Launches whose blocks share a chain took so many times what is counted: 1.8 and 1.9 (LSTM and GRU, six layers of
	 * 256 units, batch 10), 2.1 (GRU, two layers of 331 units, batch 64; H200). */
	static const double SHARED = 1.8;
	double steps = (double)ix_num(x->size[l->batch_first]), batch = (double)ix_num(x->size[!l->batch_first]);
	double hidden = (double)ix_num(l->h0->size[2]), all = l->n_layer * l->n_dir, ours;
	int count = most_beside(pl, l, steps, batch, hidden, &ours);

	if (!count)
		ours = all * pl_rnn_us(pl, l->cell, steps, batch, hidden);
	if (l->last_only && count)
		ours -= pl_rnn_stack_us(pl, l->cell, 2, 1, steps, batch, hidden) - pl_rnn_us(pl, l->cell, steps, batch, hidden);
	else if (l->last_only)
		ours -= pl_rnn_us(pl, l->cell, steps, batch, hidden);
	if (l->last_only)
		ours += pl_rnn_us(pl, l->cell, 1, batch, hidden);
	if (count && pl_rnn_stack_is_shared(pl, l->cell, count * l->n_dir, l->n_dir == 2, steps, batch, hidden))
		ours *= SHARED;
	if (pl->target == WW_TARGET_CUDA && ours > 1.2 * all * pl_cudnn_rnn_us(l->cell, steps, batch, hidden) + LEFT_US)
		pl_leave(pl, n, "cuDNN does its steps faster");
	return count;
}

/* The kernels read as many states, and weights, as their sizes say. */
static void states_fit(struct pl *pl, const struct layers *l, const struct val *state, const struct val *x)
{
	if (state->rank != 3)
		pl_fail(pl, "the first states of a recurrent layer have %d dimensions", state->rank);
	pl_guard_eq(pl, state->size[0], ix_const(pl, l->n_layer * l->n_dir), "the number of first states");
	pl_guard_eq(pl, state->size[1], x->size[!l->batch_first], "the batch of the first states");
	pl_guard_eq(pl, state->size[2], param(pl, l, 0, 1)->size[1], "the hidden size");
}

/* aten.lstm.input, gru.input, rnn_tanh.input and rnn_relu.input. */
static void recurrent_layers(struct pl *pl, struct gnode *n)
{
	struct val *x = pl_need_val(pl, n, 0, "input"), *part[2];
	struct garg *hx = pl_arg(n, 1, "hx"), *params = pl_arg(n, 2, "params");
	struct layers l = { .cell = (enum pl_cell)n->variant,
		.has_bias = (int)pl_arg_int(pl, n, 3, "has_biases", 1),
		.n_layer = (int)pl_arg_int(pl, n, 4, "num_layers", 1),
		.n_dir = pl_arg_int(pl, n, 7, "bidirectional", 0) ? 2 : 1,
		.batch_first = (int)pl_arg_int(pl, n, 8, "batch_first", 0) };
	int count, apart;

	if (x->dt != WW_F32)
		pl_cannot(pl, n, "its operands are not float32");
	if (pl_arg_num(pl, n, 5, "dropout", 0) > 0 && pl_arg_int(pl, n, 6, "train", 0) && l.n_layer > 1)
		pl_cannot(pl, n, "dropout is random");
	if (!params || params->kind != G_LIST || l.n_layer < 1 || l.n_layer * l.n_dir > 64 ||
		params->n != l.n_layer * l.n_dir * (l.has_bias ? 4 : 2))
		pl_cannot(pl, n, "its parameters do not fit its layers (a projection of the state, proj_size, is not covered)");
	l.param = params->item;
	if (l.cell == CELL_LSTM) {
		if (!hx || hx->kind != G_LIST || hx->n != 2)
			pl_cannot(pl, n, "an LSTM needs two states, h and c");
		l.h0 = pl_val_of(pl, &hx->item[0]);
		l.c0 = pl_val_of(pl, &hx->item[1]);
	} else {
		l.h0 = pl_need_val(pl, n, 1, "hx");
	}
	l.unbatched = x->rank == 2;
	if (l.unbatched) {
		x = pl_unsqueeze(pl, x, 1);
		l.batch_first = 0;
		l.h0 = pl_unsqueeze(pl, l.h0, 1);
		l.c0 = l.c0 ? pl_unsqueeze(pl, l.c0, 1) : NULL;
	}
	states_fit(pl, &l, l.h0, x);
	if (l.c0)
		states_fit(pl, &l, l.c0, x);
	l.last_only = l.n_dir == 2 && only_last_is_read(pl, n, l.batch_first);
	count = choose(pl, n, &l, x);
	apart = count ? l.n_layer - l.last_only : 0; /* from there on each direction is launches of its own */
	for (int i = 0; i < apart; i += count)
		x = beside(pl, n, &l, x, i, i + count < l.n_layer ? count : l.n_layer - i);
	for (int i = apart; i < l.n_layer; i++) {
		for (int d = 0; d < l.n_dir; d++)
			part[d] = direction(pl, n, &l, x, i, d);
		x = l.n_dir == 2 ? pl_cat(pl, part, 2, 2) : part[0];
	}
	if (l.batch_first)
		x = pl_permute(pl, x, (int[]){ 1, 0, 2 });
	n->out[0] = l.unbatched ? pl_squeeze(pl, x, 1) : x;
	n->out[1] = stacked(pl, &l, l.h);
	if (l.cell == CELL_LSTM)
		n->out[2] = stacked(pl, &l, l.c);
}

const struct pl_lower_row pl_lower_rnn[] = { { "lstm_cell", recurrent_cell, CELL_LSTM },
	{ "gru_cell", recurrent_cell, CELL_GRU }, { "rnn_tanh_cell", recurrent_cell, CELL_TANH },
	{ "rnn_relu_cell", recurrent_cell, CELL_RELU }, { "lstm", recurrent_layers, CELL_LSTM },
	{ "gru", recurrent_layers, CELL_GRU }, { "rnn_tanh", recurrent_layers, CELL_TANH },
	{ "rnn_relu", recurrent_layers, CELL_RELU }, { NULL, NULL } };
