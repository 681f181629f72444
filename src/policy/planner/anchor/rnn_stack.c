/* rnn_stack.c - recurrent layers beside each other in one launch (<ww/rnn_stack.cuh>), on cuda.
 *
 * Operands: h0, for LSTM c0; then of each chain what its input's products are (gx, or w_ih and its bias), w_hh and its
 * bias.  No functors, as in rnn.c. */
#include "policy/planner/print/print.h"

#include <math.h>
#include <ww/recipe/rnn_stack_tile.h>

static const int gates[] = { 1, 1, 3, 4 };
static const char *const cells[] = { "TANH", "RELU", "GRU", "LSTM" };

/* held 0: there is no launch that holds its weights. */
static struct ww_rnn_stack_tile tile_of(
	const struct pl *pl, enum pl_cell cell, int chains, int beside, double steps, double batch, double hidden)
{
	const struct ww_rnn_stack_size size = { gates[cell], cell == CELL_LSTM, chains, !beside && chains > 1,
		(long long)steps, (long long)batch, (long long)hidden, pl->dev.sm_count, pl->dev.shared_per_block_bytes };

	if (!size.batch || !size.hidden || chains > PL_MAX_CHAINS)
		return (struct ww_rnn_stack_tile){ 0 };
	return ww_rnn_stack_choose(&size);
}

double pl_rnn_stack_us(
	const struct pl *pl, enum pl_cell cell, int chains, int beside, double steps, double batch, double hidden)
{
	const struct ww_rnn_stack_tile t = tile_of(pl, cell, chains, beside, steps, batch, hidden);

	return t.held ? t.us : INFINITY;
}

int pl_rnn_stack_is_shared(
	const struct pl *pl, enum pl_cell cell, int chains, int beside, double steps, double batch, double hidden)
{
	return !tile_of(pl, cell, chains, beside, steps, batch, hidden).alone;
}

/* Has chain i products of its input that were computed before? */
static int has_gx(int beside, int i) { return beside || i == 0; }

struct val *pl_rnn_stack(struct pl *pl, struct gnode *n, const struct pl_rnn_stack *r)
{
	struct anchor *s = pl_anchor(pl, n, S_RNN_STACK, "recurrent layers");
	const struct ix *slots = ix_addc(pl, r->gx[0]->size[0], r->cell == CELL_LSTM), *batch = r->gx[0]->size[1],
					*hidden = r->h0->size[2], *chains = ix_const(pl, r->chains);
	const struct ix *stacked[4] = { chains, slots, batch, hidden }, *beside[4] = { slots, batch, chains, hidden };

	s->stack.cell = r->cell;
	s->stack.chains = r->chains;
	s->stack.has_bias = r->has_bias;
	s->stack.beside = r->beside;
	pl_anchor_operand(s, r->h0);
	if (r->c0)
		pl_anchor_operand(s, r->c0);
	for (int i = 0; i < r->chains; i++) {
		if (has_gx(r->beside, i))
			pl_anchor_operand(s, r->gx[i]);
		else
			pl_anchor_operand(s, r->w_ih[i]);
		if (r->has_bias && !has_gx(r->beside, i))
			pl_anchor_operand(s, r->b_ih[i]);
		pl_anchor_operand(s, r->w_hh[i]);
		if (r->has_bias)
			pl_anchor_operand(s, r->b_hh[i]);
	}
	return pl_anchor_out(pl, s, WW_F32, 4, r->beside ? beside : stacked);
}

/* Name of operand `which` as a parameter, as a member of the task, and whether it is a gx. */
static const char *name(struct pl *pl, const struct anchor *s, int which, const char **member, int *is_gx)
{
	static const char *const names[] = { "gx", "w_ih", "b_ih", "w_hh", "b_hh" };
	int at = which, first = s->stack.cell == CELL_LSTM ? 2 : 1;

	*is_gx = 0;
	if (which < first) {
		*member = which ? "c0" : "h0";
		return *member;
	}
	at -= first;
	for (int i = 0;; i++)
		for (int k = 0; k < 5; k++) {
			int gx = has_gx(s->stack.beside, i);

			if (k == 0 ? !gx : k == 1 ? gx : k == 2 ? gx || !s->stack.has_bias : k == 4 && !s->stack.has_bias)
				continue;
			if (at-- == 0) {
				*is_gx = k == 0;
				*member = pl_fmt(pl, "%s[%d]", names[k], i);
				return pl_fmt(pl, "%s_%d", names[k], i);
			}
		}
}

/* gx may have any strides of steps and rows; the other operands are contiguous. */
static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	const char *member;
	int is_gx;

	name(pl, s, which, &member, &is_gx);
	return is_gx ? ix_is(o->stride[2], 1) : pl_operand_contiguous(pl, o);
}

static void build(struct pl *pl, struct kern *k) { pl_kern_arg(pl, k, k->out[0]->root); }

static void print(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const struct val *out = k->out[0];
	int beside = sp->stack.beside, is_lstm = sp->stack.cell == CELL_LSTM;
	const char *params = "", *inits = "", *args = "";

	for (int i = 0; i < sp->n_in; i++) {
		const struct operand *o = &sp->in[i];
		const char *member, *is;
		int is_gx;

		is = name(pl, sp, i, &member, &is_gx);
		if (is_gx) {
			params = pl_fmt(pl, "%s, long long step_%s, long long row_%s", params, is, is);
			inits = pl_fmt(
				pl, "%s\ta.gx_step%s = step_%s;\n\ta.gx_row%s = row_%s;\n", inits, member + 2, is, member + 2, is);
			args = pl_fmt(pl, "%s\tww_arg_i64(p, %s);\n\tww_arg_i64(p, %s);\n", args, ix_text(pl, o->stride[0]),
				ix_text(pl, o->stride[1]));
		}
		params = pl_fmt(pl, "%s,\n\t\tconst float *%s", params, is);
		inits = pl_fmt(pl, "%s\ta.%s = %s;\n", inits, member, is);
		args = pl_fmt(pl, "%s\tww_arg_buf(p, %s, %s);\n", args, pl_plan_buf(pl, o->buf), pl_bytes(pl, o));
	}
	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_THREADS) @(int steps, int batch, int hidden, "
			"int units, int rows,\n\t\tint out_row, long long out_chain%s,\n\t\tfloat *out)\n{\n%s"
			"\tww::rnn_stack_task<%d> a = { steps, batch, hidden, units, rows, out_row, out_chain };\n\n"
			"%s\ta.out = out;\n\ta.reversed = %d;\n"
			"\tww::rnn_stack<ww::CELL_%s, @_ALONE, @_LANES, @_HELD, @_EACH, @_VEC>(a);\n}\n\n",
			k->title, params, pl_cuda_first(pl), sp->stack.chains, inits, beside ? 2 : 0, cells[sp->stack.cell]));
	k->launch = pl_named(pl, k,
		"\tww_recipe_rnn_stack(p, &(struct ww_rnn_stack){ .kernel = \"@\", .gates = %d, .cells = %d, .chains = %d, "
		".beside = %d,\n\t\t.out = %s, .steps = %s, .batch = %s, .hidden = %s });\n%s%s",
		gates[sp->stack.cell], is_lstm, sp->stack.chains, beside, pl_plan_buf(pl, out->root),
		ix_text(pl, ix_addc(pl, out->size[beside ? 0 : 1], -is_lstm)), ix_text(pl, out->size[beside ? 1 : 2]),
		ix_text(pl, out->size[3]), args, pl_plan_args(pl, k, "\t"));
}

const struct anchor_ops pl_rnn_stack_ops = {
	.header = "rnn_stack", .fits = fits, .build = build, .print = { NULL, print }
};
