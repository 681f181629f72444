/* lower.c - lowers each graph node by the rule of its operator; reads arguments of operators.
 *
 * A lowering function sets n->out[].  Afterwards the sizes that it inferred are compared with those that the graph
 * records.  A difference is a bug of the rule; it ends the build with the operator's name. */
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

struct val *pl_stored(struct pl *pl, struct val *v)
{
	if (v->kind != V_BUF)
		pl_make_root(pl, v);
	return v;
}

/* "add" of "aten.add_.Tensor": an in-place operator has the rule of the functional one. */
static const char *op_of(const char *target, size_t *len, int *in_place)
{
	const char *s = !strncmp(target, "aten.", 5) ? target + 5 : target;
	size_t n = strcspn(s, ".");

	*in_place = n > 2 && s[n - 1] == '_' && s[n - 2] != '_'; /* __and__ is not in place */
	*len = n - (size_t)*in_place;
	return s;
}

static const struct pl_lower_row *find_name(const char *name, size_t len)
{
	static const struct pl_lower_row *const tables[] = { pl_lower_point, pl_lower_shape, pl_lower_resample,
		pl_lower_reduce, pl_lower_nn, pl_lower_rnn, pl_lower_index, pl_lower_order, pl_lower_linalg, pl_lower_create };

	for (size_t t = 0; t < WW_ARRAY_LEN(tables); t++)
		for (const struct pl_lower_row *r = tables[t]; r->op; r++)
			if (strlen(r->op) == len && !strncmp(r->op, name, len))
				return r;
	return NULL;
}

/* The row of the overload ("max.dim"), else of the operator ("max"). */
static const struct pl_lower_row *find(const char *target)
{
	const struct pl_lower_row *row;
	size_t len;
	int in_place;
	const char *op = op_of(target, &len, &in_place);
	char name[128];

	snprintf(name, sizeof(name), "%.*s%s", (int)len, op, op + len + in_place);
	row = find_name(name, strlen(name));
	return row ? row : find_name(op, len);
}

int pl_in_place(const char *target)
{
	int in_place;
	size_t len;

	op_of(target, &len, &in_place);
	return in_place;
}

int ww_pl_has_rule(const char *op) { return find(op) != NULL; }

/* The rule of each node.  All operators without a rule are named at once, to show how much of the module is missing. */
static void find_rules(struct pl *pl)
{
	struct gnode *first = NULL;
	const char *more = "";

	for (int i = 0; i < pl->n_node; i++) {
		struct gnode *n = &pl->node[i];

		n->row = n->known ? find(n->target) : NULL;
		for (int k = 0; k < pl->n_by_pytorch; k++)
			n->by_pytorch |= !strcmp(pl->by_pytorch[k], n->name);
		if (n->row || n->by_pytorch)
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
			pl_cannot(pl, n, "its result has dimensions, and the rule gives a constant");
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

/* A constant of the graph that equals an input's size was probably computed from it: then the plan is for the traced
 * size only and checks it. */
static void guard_literals(struct pl *pl, struct gnode *n)
{
	if (!(n->row->flags & PL_ARITHMETIC))
		return;
	for (int i = 0; i < n->n_arg; i++)
		for (int s = 0; s < pl->n_sym; s++)
			if (n->arg[i].kind == G_INT && !pl->sym[s].of && n->arg[i].i == pl->sym[s].value && n->arg[i].i > 8)
				ww_str_addf(&pl->guards,
					"\tif (%s != %lld)\n\t\tww_fail(p, \"the graph holds a number that may be this size\");\n",
					pl->sym[s].name, (long long)pl->sym[s].value);
}

/* PyTorch rounds a node's result to its type; intermediate values of a rule are not rounded. */
static void mark_results(const struct gnode *n)
{
	for (int o = 0; o < n->n_out; o++)
		for (struct val *v = n->out[o]; v; v = v->kind == V_VIEW ? v->arg[0] : NULL)
			v->result = 1;
}

/* In-place operators (aten.relu_): later nodes that name the operand read the new value. */
static void rebind(struct pl *pl, struct gnode *n)
{
	if (pl_in_place(n->target) && n->n_arg && n->arg[0].kind == G_VAL && n->out[0])
		pl_write(pl, n, n->arg[0].name, NULL, n->out[0]);
}

static int is_empty(const struct gmeta *m)
{
	for (int d = 0; d < m->rank; d++)
		if (!m->size[d])
			return 1;
	return 0;
}

/* Is one of the tensors that `a` refers to empty? */
static int refers_to_nothing(struct pl *pl, const struct garg *a)
{
	int found = 0;

	for (int i = 0; a->kind == G_LIST && i < a->n; i++)
		found |= refers_to_nothing(pl, &a->item[i]);
	return found || (a->kind == G_VAL && !pl_numel_now(pl_val_of(pl, a)));
}

/* What an operator makes of nothing, and is nothing itself (a norm or a recurrent layer of a batch of 0): tensors of
 * the recorded sizes, whatever the operator.  The plan is then for these sizes only. */
static int is_of_nothing(struct pl *pl, struct gnode *n)
{
	const struct ix *size[PL_MAX_RANK];
	int of_nothing = 0;

	if (!n->n_out || !strcmp(n->target, "getitem"))
		return 0;
	for (int o = 0; o < n->n_out; o++)
		if (!is_empty(&n->meta[o]) || !n->meta[o].dt)
			return 0;
	for (int i = 0; i < n->n_arg && !of_nothing; i++)
		of_nothing = refers_to_nothing(pl, &n->arg[i]);
	for (int o = 0; o < n->n_out && of_nothing; o++) {
		struct val *zero = pl_constf(pl, n->meta[o].dt, 0);

		for (int d = 0; d < n->meta[o].rank; d++)
			size[d] = ix_const(pl, n->meta[o].size[d]);
		n->out[o] = pl_where(pl, pl_index(pl, WW_BOOL, n->meta[o].rank, size, ix_const(pl, 1)), zero, zero);
	}
	if (of_nothing)
		pl_guard_traced_sizes(pl, "the graph computes with empty tensors");
	return of_nothing;
}

void pl_lower(struct pl *pl)
{
	find_rules(pl);
	if (pl->n_by_pytorch)
		pl_pytorch_levels(pl);
	for (int i = 0; i < pl->n_node; i++) {
		struct gnode *n = &pl->node[i];

		if (n->by_pytorch) {
			pl->lowering = n;
			pl_by_pytorch(pl, n);
			pl_set_power(pl, n);
			rebind(pl, n);
			continue;
		}
		n->variant = n->row->variant;
		pl->lowering = n;
		if (n->n_out && !n->meta[0].dt)
			pl_cannot(pl, n, "its result has a type that the planner does not store");
		guard_literals(pl, n);
		if (!is_of_nothing(pl, n))
			n->row->fn(pl, n);
		check_sizes(pl, n);
		mark_results(n);
		pl_set_power(pl, n);
		rebind(pl, n);
	}
	pl->lowering = NULL;
	pl_pytorch_guards(pl);
}
