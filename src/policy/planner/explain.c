/* explain.c - what a build decided, as data: which operators each kernel computes, why they are together, how the
 * kernel runs, and why a value in between goes through memory.
 *
 *     {"kernels": [{"kernel", "what", "nodes": [...], "same_as": null | "k0", "library", "why", "schedule",
 *                   "stores": [{"buffer", "node", "bytes", "why"}]}]}
 *
 * `optimize --explain` puts times beside it (src/judge/profile/explain.c).  The words are those of the schedule, so
 * they change with it. */
#include "policy/planner/print/print.h"
#include "policy/planner/schedule/schedule.h"

static long long extent(const struct ix_atom *const *axis, int n)
{
	long long e = 1;

	for (int i = 0; i < n; i++)
		e *= ix_num(axis[i]->b);
	return e;
}

static const char *why_together(struct pl *pl, const struct kern *k)
{
	if (k->segment)
		return "no rule covers them: they run as PyTorch runs them, between two kernels";
	if (k->kind == K_POINT)
		return k->n_node > 1 ? "each element needs one element of the others: computing it again costs less than memory"
							 : "one operator, element by element";
	if (k->kind == K_ROW)
		return pl_fmt(pl,
			"%d reduction%s over the same %lld elements of each row, and what is made of them in that row", k->n_red,
			k->n_red == 1 ? "" : "s", extent(k->col, k->n_col));
	int fuses = pl_anchor_ops[k->anchor->kind]->fuses;
	return pl_fmt(pl, "%s: the template computes it whole%s%s", k->anchor->what,
		fuses & FUSES_OPERAND     ? ", from the expressions of its operands"
			: k->anchor->computes ? ", from the expression of its first operand"
			: k->loop->load       ? ", with the expression of its mask"
								  : "",
		(fuses & FUSES_READER) && !pl_is_bare(k) ? ", and ends in its only reader's expression" : "");
}

static const char *rows_schedule(struct pl *pl, const struct kern *k)
{
	static const char *const skeletons[] = { "", ", the cookbook's softmax", ", the cookbook's log softmax",
		", the cookbook's log-sum-exp", ", the cookbook's layer norm", ", the cookbook's RMS norm" };
	const struct loop *l = k->loop;
	const char *along = l->along == COLUMNS ? "vectors along the columns"
		: l->along == ROWS                  ? "vectors across rows"
											: "no vectors";

	return pl_fmt(pl, "%lld rows of %lld, %s%s%s%s%s", extent(k->row, k->n_row), extent(k->col, k->n_col),
		l->n_pass ? pl_fmt(pl, "%d pass%s, ", l->n_pass, l->n_pass == 1 ? "" : "es") : "", along,
		skeletons[l->skeleton], l->held ? ", rows stay in registers between passes" : "",
		l->ring          ? ", rows come to a cluster's shared memory while others are done"
			: l->cluster ? ", a cluster of blocks may share a row"
						 : "");
}

static const char *how_it_runs(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;

	if (k->segment)
		return "PyTorch's own kernels";
	if (k->kind == K_ROW)
		return rows_schedule(pl, k);
	if (k->kind == K_POINT)
		return pl_fmt(pl, "%lld elements, %s", extent(k->row, k->n_row), l->lane ? "vectors" : "no vectors");
	return l->library & BY_LIBRARY ? (pl_is_bare(k) ? "by the library" : "by the library, then a kernel for its reader")
								   : pl_fmt(pl, "our %s template", k->anchor->what);
}

static const char *why_stored(const struct buf *b)
{
	return b->kind == B_OUTPUT ? "an output of the module" : b->why ? b->why : "several kernels read it";
}

static json_t *stores(struct pl *pl, const struct kern *k)
{
	json_t *list = json_array();

	(void)pl;
	for (int i = 0; i < k->n_out; i++) {
		const struct buf *b = k->out[i]->root;
		long long bytes = pl_itemsize(b->dt) * pl_buf_numel(b);

		json_array_append_new(list,
			json_pack("{s:s, s:s, s:I, s:s}", "buffer", b->name, "node", pl_node_name(k->out[i]), "bytes",
				(json_int_t)bytes, "why", why_stored(b)));
	}
	return list;
}

/* k's own schedule, or the one of the kernel whose text it uses. */
static json_t *kernel(struct pl *pl, const struct kern *k)
{
	json_t *nodes = json_array(), *o;

	for (int i = 0; i < k->n_node; i++)
		json_array_append_new(nodes, json_string(k->node[i]));
	o = json_pack("{s:s, s:s, s:o, s:b, s:s, s:s, s:o}", "kernel", k->name, "what", k->what, "nodes", nodes, "library",
		(k->loop->library & BY_LIBRARY) != 0, "why", why_together(pl, k), "schedule", how_it_runs(pl, k), "stores",
		stores(pl, k));
	json_object_set_new(o, "same_as", k->shared ? json_string(k->shared->name) : json_null());
	return o;
}

json_t *pl_explain(struct pl *pl)
{
	json_t *list = json_array();

	for (int i = 0; i < pl->n_kern; i++)
		json_array_append_new(list, kernel(pl, pl->kern[i]));
	return json_pack("{s:o}", "kernels", list);
}
