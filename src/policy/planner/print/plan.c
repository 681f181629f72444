/* plan.c - writes the solution's plan.c around the launches that the target's emitter wrote.
 *
 * plan.c declares its tensors with types and sizes, which are checked (recipe/tensors.h), defines the sizes for the
 * kernels, takes scratch memory, and adds the nodes in order. */
#include "policy/planner/print/print.h"

#include <string.h>

/* The sizes of a tensor as further arguments of WW_PARAM or WW_OUTPUT. */
static const char *sizes(struct pl *pl, const struct buf *b)
{
	struct ww_str s = pl_text(pl);

	for (int d = 0; d < b->rank; d++)
		ww_str_addf(&s, ", %s", ix_text(pl, b->size[d]));
	return s.p;
}

/* Declare a tensor that is not contiguous, with checks of its type and sizes. */
static void print_strided(struct pl *pl, struct ww_str *s, const struct buf *b)
{
	int64_t c;

	if (b->kind == B_INPUT)
		ww_str_addf(s, "\tconst struct ww_tensor *%s = ww_input(p, %d);\n", b->name, b->index);
	else if (b->kind == B_PARAM)
		ww_str_addf(s, "\tconst struct ww_tensor *%s = ww_param(p, \"%s\");\n", b->name, b->pname);
	else
		ww_str_addf(s, "\tconst struct ww_tensor *%s = ww_output(p, %d);\n", b->name, b->index);
	ww_str_addf(
		s, "\tWW_EQUAL(%s->dtype, %s);\n\tWW_EQUAL(%s->rank, %d);\n", b->name, pl_dtype_name(b->dt), b->name, b->rank);
	for (int d = 0; d < b->rank; d++)
		if (b->kind != B_INPUT || ix_is_const(b->size[d], &c))
			ww_str_addf(s, "\tWW_EQUAL(%s->size[%d], %s);\n", b->name, d, ix_text(pl, b->size[d]));
}

/* Checks of its strides, which follow the definitions of the sizes that they refer to. */
static void print_strides(struct pl *pl, struct ww_str *s, const struct buf *b)
{
	for (int d = 0; d < b->rank; d++)
		ww_str_addf(s, "\tWW_EQUAL(%s->stride[%d], %s);\n", b->name, d, ix_text(pl, b->stride[d]));
}

/* Inputs are declared before the sizes, which they define; parameters and outputs after them. */
static void print_tensor(struct pl *pl, struct ww_str *s, const struct buf *b)
{
	int64_t c;

	if (!b->contiguous)
		print_strided(pl, s, b);
	else if (b->kind == B_PARAM)
		ww_str_addf(s, "\tWW_PARAM(%s, \"%s\", %s%s);\n", b->name, b->pname, pl_dtype_name(b->dt), sizes(pl, b));
	else if (b->kind == B_OUTPUT)
		ww_str_addf(s, "\tWW_OUTPUT(%s, %d, %s%s);\n", b->name, b->index, pl_dtype_name(b->dt), sizes(pl, b));
	else
		ww_str_addf(s, "\tWW_INPUT(%s, %d, %s, %d);\n", b->name, b->index, pl_dtype_name(b->dt), b->rank);
	for (int d = 0; d < b->rank && b->contiguous && b->kind == B_INPUT; d++)
		if (ix_is_const(b->size[d], &c))
			ww_str_addf(s, "\tWW_EQUAL(%s->size[%d], %s);\n", b->name, d, ix_text(pl, b->size[d]));
}

/* Kernels index by int if every buffer has less than 2^31 elements. */
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

static const char *buffers(struct pl *pl, struct val *const *v, int n)
{
	const char *t = "";

	for (int i = 0; i < n; i++)
		t = pl_fmt(pl, "%s%s%s", t, i ? ", " : "", pl_plan_buf(pl, v[i]->root));
	return n ? pl_fmt(pl, "(const int[]){ %s }", t) : "0";
}

const char *pl_print_segment(struct pl *pl, const struct segment *s)
{
	return pl_fmt(pl,
		"\tww_pytorch(p, &(struct ww_pytorch){ .nodes = \"%s\", .reads = \"%s\", .writes = \"%s\",\n"
		"\t\t.read_buf = %s, .write_buf = %s });\n",
		s->nodes, s->reads, s->writes, buffers(pl, s->read, s->n_read), buffers(pl, s->write, s->n_write));
}

void pl_print_plan(struct pl *pl)
{
	struct ww_str *s = &pl->plan_text;

	ww_str_adds(s, "/* Written by the planner.  Kernels, and the graph nodes of each:\n");
	for (int i = 0; i < pl->n_kern; i++)
		ww_str_addf(s, " *   %s  %s%s\n", pl->kern[i]->name, pl->kern[i]->title,
			pl->kern[i]->shared ? pl_fmt(pl, " (%s again)", pl->kern[i]->shared->name) : "");
	ww_str_addf(s, " */\n#include <ww/plan.h>\n#include <ww/recipe/tensors.h>\n%s\nvoid plan(struct ww_plan *p)\n{\n",
		pl->recipes);
	for (int i = 0; i < pl->n_buf; i++)
		if (pl->buf[i]->kind == B_INPUT)
			print_tensor(pl, s, pl->buf[i]);
	for (int i = 0; i < pl->n_sym; i++)
		ww_str_addf(s, "\tWW_SIZE(%s, %s);\n", pl->sym[i].name, pl->sym[i].def);
	for (int i = 0; i < pl->n_buf; i++)
		if (pl->buf[i]->kind == B_PARAM || pl->buf[i]->kind == B_OUTPUT)
			print_tensor(pl, s, pl->buf[i]);
	for (int i = 0; i < pl->n_buf; i++)
		if (pl->buf[i]->kind != B_SCRATCH && !pl->buf[i]->contiguous)
			print_strides(pl, s, pl->buf[i]);
	ww_str_adds(s, pl->guards.p);
	for (int i = 0; i < pl->n_buf; i++) {
		struct buf *b = pl->buf[i];
		const struct ix *n = ix_const(pl, pl_itemsize(b->dt));

		if (b->kind != B_SCRATCH)
			continue;
		for (int d = 0; d < b->rank; d++)
			n = ix_mul(pl, n, b->size[d]);
		n = ix_num(n) ? n : ix_const(pl, 1); /* of a value without elements */
		ww_str_addf(s, "\tconst int %s = ww_scratch(p, %s);\n", b->name, ix_text(pl, n));
	}
	if (pl->target == WW_TARGET_CUDA)
		index_width(pl, s);
	if (pl_overlap(pl))
		ww_str_adds(s, "\tww_pdl_all(p);\n\tww_define(p, \"PDL_\", 1);\n");
	for (int i = 0; i < pl->n_kern; i++)
		ww_str_addf(s, "\n\t/* %s: %s */\n%s", pl->kern[i]->name, pl->kern[i]->title,
			pl->kern[i]->launch ? pl->kern[i]->launch : "");
	ww_str_adds(s, "}\n");
}
