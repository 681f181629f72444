/* rnn.c - all steps of a recurrent layer in one launch.
 *
 * No functors: each step reads the previous step's result from memory, so nothing can be fused. */
#include "policy/planner/print/print.h"

#include <ww/recipe/rnn_tile.h>

static const int gates[] = { 1, 1, 3, 4 };

double pl_rnn_us(const struct pl *pl, enum pl_cell cell, double steps, double batch, double hidden)
{
	const struct ww_rnn_size size = { gates[cell], cell == CELL_LSTM, (long long)steps, (long long)batch,
		(long long)hidden, pl->dev.sm_count, pl->dev.shared_per_block_bytes };
	struct ww_rnn_rows rows;
	double us;

	if (!size.batch || !size.hidden) /* then there is no kernel */
		return 0;
	rows = ww_rnn_choose_rows(&size);
	us = ww_rnn_units_us(&size);
	return rows.each && rows.us < us ? rows.us : us;
}

/* Fitted to the layers that recipe/rnn_tile.h is, by cuDNN with PyTorch's default (TF32): launches, weights from
 * memory, products. */
double pl_cudnn_rnn_us(enum pl_cell cell, double steps, double batch, double hidden)
{
	double weights = gates[cell] * hidden * hidden;

	return steps * (3.5 + weights * 4 / 2.4e6 + 2 * batch * weights / 1.17e8);
}

struct val *pl_rnn(struct pl *pl, struct gnode *n, enum pl_cell cell, int reverse, struct val *gx, struct val *w,
	struct val *bias, struct val *h0, struct val *c0)
{
	struct anchor *s = pl_anchor(pl, n, S_RNN, "recurrent layer");
	const struct ix *size[3] = { cell == CELL_LSTM ? ix_addc(pl, gx->size[0], 1) : gx->size[0], gx->size[1],
		h0->size[1] };

	s->rnn.cell = cell;
	s->rnn.reverse = reverse;
	s->rnn.has_bias = bias != NULL;
	pl_anchor_operand(s, gx);
	pl_anchor_operand(s, pl->target == WW_TARGET_CPU ? pl_permute(pl, w, (int[]){ 1, 0 }) : w);
	pl_anchor_operand(s, h0);
	if (bias)
		pl_anchor_operand(s, bias);
	if (c0)
		pl_anchor_operand(s, c0);
	return pl_anchor_out(pl, s, gx->dt, 3, size);
}

/* gx may have any strides of steps and rows; the other operands are contiguous. */
static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	(void)s;
	return which == 0 ? ix_is(o->stride[2], 1) : pl_operand_contiguous(pl, o);
}

static void build(struct pl *pl, struct kern *k) { pl_kern_arg(pl, k, k->out[0]->root); }

static const char *const cells[] = { "TANH", "RELU", "GRU", "LSTM" };

static const char *name(const struct anchor *sp, int i)
{
	static const char *const names[] = { "gx", "w", "h0", "bias", "c0" };

	return names[i == 3 && !sp->rnn.has_bias ? 4 : i];
}

/* The end of a launch in plan.c: sizes as fields, operands as arguments. */
static const char *shape(struct pl *pl, const struct kern *k)
{
	const struct anchor *sp = k->anchor;

	return pl_fmt(pl, ".steps = %s, .batch = %s, .hidden = %s, .step_stride = %s, .row_stride = %s, .gates = %d",
		ix_text(pl, sp->in[0].size[0]), ix_text(pl, k->out[0]->size[1]), ix_text(pl, k->out[0]->size[2]),
		ix_text(pl, sp->in[0].stride[0]), ix_text(pl, sp->in[0].stride[1]), gates[sp->rnn.cell]);
}

static const char *args(struct pl *pl, struct kern *k)
{
	const struct anchor *sp = k->anchor;
	const char *t = "";

	for (int i = 0; i < sp->n_in; i++)
		t = pl_fmt(pl, "%s\tww_arg_buf(p, %s, %s);\n", t, pl_plan_buf(pl, sp->in[i].buf), pl_bytes(pl, &sp->in[i]));
	return pl_fmt(pl, "%s%s", t, pl_plan_args(pl, k, "\t"));
}

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;

	ww_str_addf(s,
		"/* %s */\nWW_KERNEL(%s)\n{\n\tconst struct ww_rnn r = { .cell = WW_CELL_%s, .steps = WW_ARG(long long, 0), "
		".batch = WW_ARG(long long, 1), .hidden = WW_ARG(long long, 2),\n"
		"\t\t.step_stride = WW_ARG(long long, 3), .row_stride = WW_ARG(long long, 4), .per = WW_ARG(long long, 5), "
		".reverse = %d, .gx = WW_ARG(const float *, WW_RNN_ARGS)",
		k->title, k->name, cells[sp->rnn.cell], sp->rnn.reverse);
	for (int i = 1; i < sp->n_in; i++)
		ww_str_addf(s, ",\n\t\t.%s = WW_ARG(const float *, WW_RNN_ARGS + %d)", name(sp, i), i);
	ww_str_addf(s, ",\n\t\t.out = WW_ARG(float *, WW_RNN_ARGS + %d) };\n\n\tww_cpu_rnn(b, &r);\n}\n\n", sp->n_in);
	k->launch = pl_named(
		pl, k, "\tww_recipe_cpu_rnn(p, \"@\", &(struct ww_cpu_rnn){ %s });\n%s", shape(pl, k), args(pl, k));
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const char *params = "", *inits = "";

	for (int i = 0; i < sp->n_in; i++) {
		params = pl_fmt(pl, "%s, const float *%s", params, name(sp, i));
		inits = pl_fmt(pl, "%s\ta.%s = %s;\n", inits, name(sp, i), name(sp, i));
	}
	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(256) @(unsigned *barrier, int steps, int batch, "
			"int hidden, int units, int rows,\n"
			"\t\tlong long step_stride, long long row_stride%s, float *out)\n{\n%s"
			"\tww::rnn_task a = { barrier, steps, batch, hidden, units, rows, step_stride, row_stride };\n\n"
			"%s\ta.out = out;\n"
			"\tww::rnn<ww::CELL_%s, @_KEEP, %s, @_EACH, @_HELD>(a);\n}\n\n",
			k->title, params, pl_cuda_first(pl), inits, cells[sp->rnn.cell], sp->rnn.reverse ? "true" : "false"));
	k->launch = pl_named(pl, k, "\tww_recipe_rnn(p, &(struct ww_rnn){ .kernel = \"@\", %s, .cells = %d });\n%s",
		shape(pl, k), sp->rnn.cell == CELL_LSTM, args(pl, k));
}

const struct anchor_ops pl_rnn_ops = {
	.header = "rnn", .fits = fits, .build = build, .print = { print_cpu, print_cuda }
};
