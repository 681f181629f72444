/* lower.c - from graph nodes to values: the dispatch over operators, and what all lowering functions share.
 *
 * A lowering function sets n->out[].  Afterwards the sizes that it inferred are compared with the sizes that the graph
 * records; a difference is a bug of the lowering and ends the build with the operator's name, because a wrong shape
 * would compute something else. */
#include "policy/planner/lower/lower.h"

#include <string.h>

struct garg *pl_arg(struct gnode *n, int i, const char *name)
{
	for (int k = 0; k < n->n_kwarg; k++)
		if (!strcmp(n->kwname[k], name))
			return &n->kwarg[k];
	return i < n->n_arg ? &n->arg[i] : NULL;
}

struct val *pl_arg_val(struct pl *pl, struct gnode *n, int i, const char *name)
{
	struct garg *a = pl_arg(n, i, name);

	return !a || a->kind == G_NONE ? NULL : pl_val_of(pl, a);
}

struct val *pl_need_val(struct pl *pl, struct gnode *n, int i, const char *name)
{
	struct garg *a = pl_arg(n, i, name);

	if (!a && i < n->n_arg)
		a = &n->arg[i];
	if (!a || a->kind == G_NONE || a->kind == G_LIST || a->kind == G_STR)
		pl_cannot(pl, n, "a tensor argument is missing");
	return pl_val_of(pl, a);
}

int64_t pl_arg_int(struct pl *pl, struct gnode *n, int i, const char *name, int64_t def)
{
	struct garg *a = pl_arg(n, i, name);

	if (!a || a->kind == G_NONE)
		return def;
	if (a->kind == G_LIST && a->n == 1)
		a = &a->item[0];
	if (a->kind != G_INT && a->kind != G_BOOL && a->kind != G_FLOAT)
		pl_cannot(pl, n, "an argument is not a number");
	return a->i;
}

double pl_arg_num(struct pl *pl, struct gnode *n, int i, const char *name, double def)
{
	struct garg *a = pl_arg(n, i, name);

	if (!a || a->kind == G_NONE)
		return def;
	if (a->kind != G_INT && a->kind != G_BOOL && a->kind != G_FLOAT)
		pl_cannot(pl, n, "an argument is not a number");
	return a->f;
}

const char *pl_arg_str(struct gnode *n, int i, const char *name, const char *def)
{
	struct garg *a = pl_arg(n, i, name);

	return a && a->kind == G_STR ? a->name : def;
}

int pl_arg_ints(struct pl *pl, struct gnode *n, int i, const char *name, int64_t *out, int max)
{
	struct garg *a = pl_arg(n, i, name);

	if (!a || a->kind == G_NONE)
		return 0;
	if (a->kind == G_INT) {
		out[0] = a->i;
		return 1;
	}
	if (a->kind != G_LIST || a->n > max)
		pl_cannot(pl, n, "a list of numbers is missing");
	for (int k = 0; k < a->n; k++) {
		if (a->item[k].kind != G_INT)
			pl_cannot(pl, n, "a list holds something that is not an integer");
		out[k] = a->item[k].i;
	}
	return a->n;
}

int pl_dim(struct pl *pl, struct gnode *n, int64_t d, int rank)
{
	if (d < 0)
		d += rank;
	if (d < 0 || d >= rank)
		pl_cannot(pl, n, "a dimension is out of range");
	return (int)d;
}

const char *pl_op_name(const char *target, char *out, size_t cap)
{
	const char *s = !strncmp(target, "aten.", 5) ? target + 5 : target, *dot = strchr(s, '.');
	size_t n = dot ? (size_t)(dot - s) : strlen(s);

	n = n < cap ? n : cap - 1;
	memcpy(out, s, n);
	out[n] = 0;
	if (n > 2 && out[n - 1] == '_' && out[n - 2] != '_')
		out[n - 1] = 0;
	return out;
}

static const struct pl_lower_row *find(const char *name)
{
	static const struct pl_lower_row *const tables[] = { pl_lower_point, pl_lower_shape, pl_lower_resample,
		pl_lower_reduce, pl_lower_nn, pl_lower_rnn, pl_lower_index, pl_lower_order, pl_lower_create };

	for (size_t t = 0; t < WW_ARRAY_LEN(tables); t++)
		for (const struct pl_lower_row *r = tables[t]; r->op; r++)
			if (!strcmp(r->op, name))
				return r;
	return NULL;
}

int ww_pl_has_rule(const char *op)
{
	char name[64];

	return find(pl_op_name(op, name, sizeof(name))) != NULL;
}

/* Every operator that has no rule, named at once: whoever reads it wants to know how far away the whole module is. */
static void refuse_unknown(struct pl *pl)
{
	struct gnode *first = NULL;
	const char *more = "";

	for (int i = 0; i < pl->n_node; i++) {
		struct gnode *n = &pl->node[i];

		if (ww_pl_has_rule(n->target))
			continue;
		if (!first)
			first = n;
		else if (strcmp(first->target, n->target) && !strstr(more, pl_fmt(pl, ", %s", n->target)))
			more = pl_fmt(pl, "%s, %s", more, n->target);
	}
	if (first)
		pl_cannot(
			pl, first, pl_fmt(pl, "no rule for this operator%s%s", *more ? ", nor for " : "", *more ? more + 2 : ""));
}

static void check_sizes(struct pl *pl, struct gnode *n)
{
	for (int o = 0; o < n->n_out; o++) {
		struct val *v = n->out[o];

		if (!v)
			continue;
		if (v->kind == V_CONST && n->meta[o].rank) {
			pl_cannot(pl, n, "a constant with a shape");
		}
		if (v->kind == V_CONST)
			continue;
		if (v->rank != n->meta[o].rank)
			pl_cannot(pl, n, "the planner infers another number of dimensions");
		for (int d = 0; d < v->rank; d++)
			if (ix_num(v->size[d]) != n->meta[o].size[d])
				pl_cannot(pl, n,
					pl_fmt(pl, "the planner infers size %lld where the graph has %lld", (long long)ix_num(v->size[d]),
						(long long)n->meta[o].size[d]));
	}
}

/* A constant of the graph that is the number of an input's size was probably computed from it: then only the traced
 * shape is covered, and the plan says so. */
static void guard_literals(struct pl *pl, struct gnode *n)
{
	static const char *const arithmetic[] = { "aten.add.", "aten.sub.", "aten.mul.", "aten.div.", "aten.rsub.",
		"aten.pow.", "aten.full" };
	int is_arith = 0;

	for (size_t i = 0; i < WW_ARRAY_LEN(arithmetic); i++)
		is_arith |= !strncmp(n->target, arithmetic[i], strlen(arithmetic[i]));
	for (int i = 0; i < n->n_arg && is_arith; i++)
		for (int s = 0; s < pl->n_sym; s++)
			if (n->arg[i].kind == G_INT && n->arg[i].i == pl->sym_value[s] && n->arg[i].i > 8)
				ww_str_addf(&pl->guards,
					"\tif (%s != %lld)\n\t\tww_fail(p, \"the graph holds a number that may be this size\");\n",
					pl->sym_name[s], (long long)pl->sym_value[s]);
}

/* aten.relu_ and its like: later nodes that name the operand see the new value. */
static void rebind(struct pl *pl, struct gnode *n)
{
	const char *dot = strchr(n->target + 5, '.');

	if (!strncmp(n->target, "aten.", 5) && dot && dot[-1] == '_' && dot[-2] != '_' && n->n_arg &&
		n->arg[0].kind == G_VAL && n->out[0])
		pl_write(pl, n, n->arg[0].name, NULL, n->out[0]);
}

void pl_lower(struct pl *pl)
{
	refuse_unknown(pl);
	for (int i = 0; i < pl->n_node; i++) {
		struct gnode *n = &pl->node[i];
		const struct pl_lower_row *row;
		char name[64];

		row = find(pl_op_name(n->target, name, sizeof(name)));
		n->variant = row->variant;
		if (n->n_out && !n->meta[0].dt)
			pl_cannot(pl, n, "the type of its result");
		guard_literals(pl, n);
		pl->lowering = n;
		row->fn(pl, n);
		check_sizes(pl, n);
		rebind(pl, n);
	}
	pl->lowering = NULL;
}
