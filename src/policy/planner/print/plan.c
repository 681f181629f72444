/* plan.c - plan.c around the launches that the target's emitter wrote.
 *
 * plan.c looks its tensors up, checks that types, layouts and those sizes that must be equal are, defines the sizes for
 * the kernels, takes scratch, and adds the nodes in order. */
#include "policy/planner/print/print.h"

#include <string.h>

/* Every place in the buffers of the task: declared, checked. */
static void lookup(struct pl *pl, struct ww_str *s, struct buf *b)
{
	if (b->kind == B_INPUT)
		ww_str_addf(s, "\tconst struct ww_tensor *%s = ww_input(p, %d);\n", b->name, b->index);
	else if (b->kind == B_PARAM)
		ww_str_addf(s, "\tconst struct ww_tensor *%s = ww_param(p, \"%s\");\n", b->name, b->pname);
	else if (b->kind == B_OUTPUT)
		ww_str_addf(s, "\tconst struct ww_tensor *%s = ww_output(p, %d);\n", b->name, b->index);
	(void)pl;
}

static void check(struct pl *pl, struct ww_str *s, struct buf *b)
{
	ww_str_addf(s, "\tif (%s->dtype != %s || %s->rank != %d", b->name, pl_dtype_name(b->dt), b->name, b->rank);
	if (b->contiguous)
		ww_str_addf(s, " || !%s->contiguous", b->name);
	ww_str_addf(s, ")\n\t\tww_fail(p, \"%s: type, dimensions or layout differ from what this plan was made for\");\n",
		b->pname ? b->pname : b->name);
	for (int d = 0; d < b->rank; d++) {
		int64_t c;

		if (!b->contiguous)
			ww_str_addf(s, "\tif (%s->stride[%d] != %s)\n\t\tww_fail(p, \"%s: strides\");\n", b->name, d,
				ix_text(pl, b->stride[d]), b->name);
		if (b->kind != B_INPUT || ix_is_const(b->size[d], &c))
			ww_str_addf(s, "\tif (%s->size[%d] != %s)\n\t\tww_fail(p, \"%s: size %d\");\n", b->name, d,
				ix_text(pl, b->size[d]), b->pname ? b->pname : b->name, d);
	}
}

/* Kernels count in int where every buffer has less than 2^31 elements. */
static void index_width(struct pl *pl, struct ww_str *s)
{
	ww_str_adds(s, "\tlong long longest = 0;\n");
	for (int i = 0; i < pl->n_buf; i++) {
		struct buf *b = pl->buf[i];
		const struct ix *n = ix_const(pl, 1);

		for (int d = 0; d < b->rank; d++)
			n = ix_mul(pl, n, b->size[d]);
		if (ix_num(n) >= 1 << 20)
			ww_str_addf(s, "\tlongest = ww_max(longest, %s);\n", ix_text(pl, n));
	}
	ww_str_adds(s, "\tww_define(p, \"IX64_\", longest > 0x7fff0000);\n");
}

void pl_print_plan(struct pl *pl)
{
	struct ww_str *s = &pl->plan_text;

	ww_str_adds(s, "/* Written by the planner.  Kernels, and the graph nodes of each:\n");
	for (int i = 0; i < pl->n_kern; i++)
		ww_str_addf(s, " *   %s  %s%s\n", pl->kern[i]->name, pl->kern[i]->title,
			pl->kern[i]->shared ? pl_fmt(pl, " (%s again)", pl->kern[i]->shared->name) : "");
	ww_str_addf(s, " */\n#include <ww/plan.h>\n%s\nvoid plan(struct ww_plan *p)\n{\n", pl->recipes);
	for (int i = 0; i < pl->n_buf; i++)
		if (pl->buf[i]->kind != B_SCRATCH)
			lookup(pl, s, pl->buf[i]);
	for (int i = 0; i < pl->n_sym; i++)
		ww_str_addf(s, "\tconst long long %s = %s;\n", pl->sym_name[i], pl->sym_def[i]);
	ww_str_addc(s, '\n');
	for (int i = 0; i < pl->n_buf; i++)
		if (pl->buf[i]->kind != B_SCRATCH)
			check(pl, s, pl->buf[i]);
	ww_str_adds(s, pl->guards.p);
	for (int i = 0; i < pl->n_sym; i++)
		ww_str_addf(s, "\tww_define(p, \"%s_\", %s);\n", pl->sym_name[i], pl->sym_name[i]);
	for (int i = 0; i < pl->n_buf; i++) {
		struct buf *b = pl->buf[i];
		const struct ix *n = ix_const(pl, pl_itemsize(b->dt));

		if (b->kind != B_SCRATCH)
			continue;
		for (int d = 0; d < b->rank; d++)
			n = ix_mul(pl, n, b->size[d]);
		ww_str_addf(s, "\tconst int %s = ww_scratch(p, %s);\n", b->name, ix_text(pl, n));
	}
	if (pl->target == WW_TARGET_CUDA)
		index_width(pl, s);
	for (int i = 0; i < pl->n_kern; i++)
		ww_str_addf(s, "\n\t/* %s: %s */\n%s", pl->kern[i]->name, pl->kern[i]->title,
			pl->kern[i]->launch ? pl->kern[i]->launch : "");
	ww_str_adds(s, "}\n");
}
