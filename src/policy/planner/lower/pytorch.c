/* pytorch.c - operators without a rule, which PyTorch runs between our kernels.
 *
 * Problem.  One operator that no rule covers must not keep the planner from all others.  A build that fails at an
 * operator marks it, and the graph is built again (build.c).
 *
 * Partition.  Marked operators are gathered into segments, each one node of the plan, such that no segment needs a
 * kernel that needs the segment.  An operator's level is the number of segments that must have run before it:
 *
 *     covered    the highest level of its operands; a segment's result counts one more
 *     marked     the highest level of its operands, segments' results as they are; its level is its segment
 *
 * A path from one marked operator through a covered one to another raises the level by one.  So no kernel has to run
 * between the operators of one level.  A result that no buffer can hold (complex numbers, lists) must have its readers
 * in its own segment: their levels are made equal, until nothing changes.  Where the graph has in-place operators,
 * names do not show all dependences; then each marked operator is a segment of its own, in the graph's order, together
 * with those that directly follow it.  A marked in-place operator runs on a copy (bridge/wwbridge/operators.py), and
 * its result takes the operand's place, as with a rule (pl_write()).
 *
 * A result that is read outside its segment is a buffer, like an input; what a segment reads is stored.  The plan is
 * then for the traced sizes only, since the graph's rows hold them.
 */
#include "policy/planner/lower/lower.h"

#include <string.h>

enum { MAX_ROUNDS = 64 };

/* ---- References -------------------------------------------------------------------------------------------------- */

typedef void (*ref_fn)(struct pl *pl, struct gnode *n, const struct garg *a);

static void each_ref(struct pl *pl, struct gnode *n, const struct garg *a, ref_fn fn)
{
	if (a->kind == G_VAL)
		fn(pl, n, a);
	for (int i = 0; a->kind == G_LIST && i < a->n; i++)
		each_ref(pl, n, &a->item[i], fn);
}

static void refs_of(struct pl *pl, struct gnode *n, ref_fn fn)
{
	for (int i = 0; i < n->n_arg; i++)
		each_ref(pl, n, &n->arg[i], fn);
	for (int i = 0; i < n->n_kwarg; i++)
		each_ref(pl, n, &n->kwarg[i], fn);
}

/* Can a buffer hold n's result: one tensor, not empty, of a supported type? */
static int storable(const struct gnode *n)
{
	int empty = 0;

	for (int d = 0; d < n->meta[0].rank; d++)
		empty |= n->meta[0].size[d] == 0;
	return n->n_out == 1 && n->meta[0].dt && !empty;
}

/* ---- Levels ------------------------------------------------------------------------------------------------------ */

static void raise(struct pl *pl, struct gnode *n, int level)
{
	if (n->level < level) {
		n->level = level;
		pl->levels_changed = 1;
	}
}

static void level_by(struct pl *pl, struct gnode *n, const struct garg *a)
{
	struct gnode *from = pl_graph_node(pl, a->name);

	if (!from)
		return;
	if (from->by_pytorch && n->by_pytorch && !storable(from))
		raise(pl, from, n->level);
	raise(pl, n, from->level + (from->by_pytorch && !n->by_pytorch));
}

static int works_in_place(const struct pl *pl)
{
	for (int i = 0; i < pl->n_node; i++)
		if (pl_in_place(pl->node[i].target))
			return 1;
	return 0;
}

/* The marked operator whose result `a` refers to, if no buffer can hold that result; else NULL. */
static struct gnode *held_in(struct pl *pl, const struct garg *a)
{
	struct gnode *from = a->kind == G_VAL ? pl_graph_node(pl, a->name) : NULL;

	for (int i = 0; !from && a->kind == G_LIST && i < a->n; i++)
		from = held_in(pl, &a->item[i]);
	return from && from->by_pytorch && !storable(from) ? from : NULL;
}

/* Graphs with in-place operators: the operator whose segment n joins, since it reads a result that no buffer can hold;
 * NULL: n has its own segment.  Only operators of that segment may stand between the two. */
static struct gnode *joined_operator(struct pl *pl, struct gnode *n)
{
	struct gnode *from = NULL;

	for (int i = 0; !from && i < n->n_arg; i++)
		from = held_in(pl, &n->arg[i]);
	for (struct gnode *k = from; k && k < n; k++)
		if (k != from && !(k->by_pytorch && k->level == from->level))
			return NULL;
	return from;
}

/* The operator directly before n, if it is marked and neither of the two is in place; else NULL. */
static struct gnode *neighbour(struct pl *pl, struct gnode *n)
{
	struct gnode *before = n > pl->node ? n - 1 : NULL;

	return before && before->by_pytorch && !pl_in_place(before->target) && !pl_in_place(n->target) ? before : NULL;
}

static void levels_in_order(struct pl *pl)
{
	int own = 0;

	for (int i = 0; i < pl->n_node; i++) {
		struct gnode *n = &pl->node[i], *from = n->by_pytorch ? joined_operator(pl, n) : NULL;

		if (n->by_pytorch && !from)
			from = neighbour(pl, n);

		n->level = from ? from->level : n->by_pytorch ? own++ : 0;
	}
}

void pl_pytorch_levels(struct pl *pl)
{
	int round = 0;

	if (works_in_place(pl)) {
		levels_in_order(pl);
		return;
	}
	do {
		pl->levels_changed = 0;
		for (int i = 0; i < pl->n_node; i++)
			refs_of(pl, &pl->node[i], level_by);
	} while (pl->levels_changed && ++round < MAX_ROUNDS);
	if (pl->levels_changed)
		pl_fail(pl, "no order of segments: operators without a rule and kernels depend on each other");
}

/* ---- Segments ---------------------------------------------------------------------------------------------------- */

static struct segment *segment_of(struct pl *pl, const struct gnode *n)
{
	struct segment *s;

	for (s = pl->segments; s; s = s->next)
		if (s->level == n->level)
			return s;
	s = pl_alloc(pl, sizeof(*s));
	s->level = n->level;
	s->nodes = s->reads = s->writes = "";
	s->next = pl->segments;
	pl->segments = s;
	return s;
}

static const char *append(struct pl *pl, const char *list, const char *name)
{
	return *list ? pl_fmt(pl, "%s %s", list, name) : name;
}

/* `a` is an input or a parameter that PyTorch reads by its name: refuse it if an operator has written to it. */
static void refuse_if_written(struct pl *pl, struct gnode *n, const struct garg *a)
{
	const struct val *v = pl_val_of(pl, a);

	if (v->kind != V_BUF || !v->root || !v->root->pname || strcmp(v->root->pname, a->name))
		pl_cannot(pl, n, "it reads an input that was written before");
}

/* A value of another segment or of our kernels that n reads: in memory, and named once. */
static void read_by(struct pl *pl, struct gnode *n, const struct garg *a)
{
	struct segment *s = segment_of(pl, n);
	struct gnode *from = pl_graph_node(pl, a->name);
	struct val *v;

	if (!from)
		refuse_if_written(pl, n, a);
	if (!from || (from->by_pytorch && from->level == n->level))
		return;
	for (int i = 0; i < s->n_read; i++)
		if (s->read_node[i] == from)
			return;
	if (!storable(from) || s->n_read + s->n_write >= PL_SEGMENT_VALUES)
		pl_cannot(pl, n, "it reads a value that no buffer can hold, or its segment reads too many");
	v = pl_val_of(pl, a);
	if (v->kind == V_CONST)
		pl_cannot(pl, n, "it reads a constant, which cannot be handed to PyTorch");
	v = pl_cast(pl, v, from->meta[0].dt);
	/* an input under another name, or a value that is stored in another order */
	if ((v->kind == V_BUF && !v->segment) || v->last || (v->root && !v->root->contiguous))
		v = pl_view(pl, v, v->rank, v->size, pl->place);
	if (v->kind != V_BUF)
		pl_store_as_typed(pl, v, "operators that PyTorch runs read it");
	s->reads = append(pl, s->reads, from->name);
	s->read_node[s->n_read] = from;
	s->read[s->n_read++] = v;
}

static int read_outside(const struct pl *pl, const struct gnode *n)
{
	for (int i = 0; i < pl->n_output; i++)
		if (pl_refers(&pl->output[i], n->name))
			return 1;
	for (int i = 0; i < pl->n_node; i++) {
		const struct gnode *r = &pl->node[i];

		for (int k = 0; k < r->n_arg + r->n_kwarg && !(r->by_pytorch && r->level == n->level); k++)
			if (pl_refers(k < r->n_arg ? &r->arg[k] : &r->kwarg[k - r->n_arg], n->name))
				return 1;
	}
	return 0;
}

/* n's result as a buffer that its segment fills. */
static void write_by(struct pl *pl, struct gnode *n)
{
	const struct gmeta *m = &n->meta[0];
	const struct ix *size[PL_MAX_RANK];
	struct segment *s = segment_of(pl, n);
	struct val *v;

	if (s->n_read + s->n_write >= PL_SEGMENT_VALUES)
		pl_cannot(pl, n, "its segment has too many results");
	for (int d = 0; d < m->rank; d++)
		size[d] = ix_const(pl, m->size[d]);
	v = pl_val(pl, V_BUF, m->dt, m->rank, size);
	v->root = pl_buf(pl, B_SCRATCH, m->dt, m->rank, size);
	v->segment = s;
	s->writes = append(pl, s->writes, n->name);
	s->write[s->n_write++] = v;
	n->out[0] = v;
}

void pl_by_pytorch(struct pl *pl, struct gnode *n)
{
	struct segment *s = segment_of(pl, n);

	int writes = pl_in_place(n->target);

	if (writes && !(n->n_arg && n->arg[0].kind == G_VAL))
		pl_cannot(pl, n, "it works in place on a value that is no tensor");
	s->nodes = append(pl, s->nodes, n->name);
	refs_of(pl, n, read_by);
	if ((writes || read_outside(pl, n)) && storable(n)) /* else its reader fails, and is marked in the next build */
		write_by(pl, n);
}

void pl_guard_traced_sizes(struct pl *pl, const char *why)
{
	for (int s = 0; s < pl->n_sym; s++)
		if (!pl->sym[s].of)
			pl_guard(pl,
				pl_fmt(pl, "\tif (%s != %lld)\n\t\tww_fail(p, \"%s\");\n", pl->sym[s].name, (long long)pl->sym[s].value,
					why));
}

void pl_pytorch_guards(struct pl *pl)
{
	if (pl->segments)
		pl_guard_traced_sizes(pl, "operators that PyTorch runs are for the traced sizes");
}
