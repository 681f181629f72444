/* graph.c - the graph of docs/formats/bridge.md as nodes with typed arguments.
 *
 * Nothing is interpreted here: an argument is a reference, a number, a string or a list.  Inputs and parameters become
 * buffers and values at once, because their names are what references resolve to.
 *
 * Symbolic sizes.  Each size above 1 of an input becomes a symbol (S0, S1, ...), which plan.c reads from the tensor and
 * hands to the kernels as a macro of the same name, so that one text serves both.  Sizes of parameters are plain
 * numbers (a module's weights do not change shape) with a guard.  Two inputs that agree in the size at one position,
 * counted from the left, share its symbol, and the plan guards that they still do: otherwise x + r would mix two
 * unrelated symbols in each index. */
#include "policy/planner/graph/graph.h"
#include "policy/planner/graph/val.h"

#include "base/dtype.h"
#include "task/graph/check.h"

#include <math.h>
#include <string.h>

enum { MAX_NODES = 20000, MAX_DEPTH = 8, MAX_LIST = 4096, MAX_ELEMENT_BITS = 40 };

static const char *keep(struct pl *pl, const char *s) { return pl_fmt(pl, "%s", s ? s : ""); }

static void read_arg(struct pl *pl, const json_t *j, struct garg *a, int depth)
{
	const char *s;

	if (depth > MAX_DEPTH)
		pl_fail(pl, "the graph's arguments are nested more than %d deep", MAX_DEPTH);
	if (json_is_integer(j)) {
		a->kind = G_INT;
		a->i = json_integer_value(j);
		a->f = (double)a->i;
	} else if (json_is_real(j)) {
		a->kind = G_FLOAT;
		a->f = json_real_value(j);
		a->i = fabs(a->f) < 9e18 ? (int64_t)a->f : 0;
	} else if (json_is_boolean(j)) {
		a->kind = G_BOOL;
		a->i = json_is_true(j);
		a->f = (double)a->i;
	} else if ((s = json_string_value(j))) {
		double v = !strcmp(s, "inf") ? INFINITY : !strcmp(s, "-inf") ? -INFINITY : !strcmp(s, "nan") ? NAN : 0;

		a->kind = v != 0 ? G_FLOAT : G_STR;
		a->f = v;
		a->name = keep(pl, s);
	} else if (json_is_array(j)) {
		size_t n = json_array_size(j);

		if (n > MAX_LIST)
			pl_fail(pl, "a list in the graph has more than %d items", MAX_LIST);
		a->kind = G_LIST;
		a->n = (int)n;
		a->item = pl_alloc(pl, (n ? n : 1) * sizeof(*a->item));
		for (size_t i = 0; i < n; i++)
			read_arg(pl, json_array_get(j, i), &a->item[i], depth + 1);
	} else if (json_is_object(j) && (s = ww_json_str(j, "ref", NULL))) {
		a->kind = G_VAL;
		a->name = keep(pl, s);
	} else {
		a->kind = G_NONE;
	}
}

static void read_meta(struct pl *pl, const json_t *j, struct gmeta *m)
{
	const json_t *sizes = json_object_get(j, "sizes"), *strides = json_object_get(j, "strides");
	int64_t elements = 1;

	m->dt = ww_dtype_of(ww_json_str(j, "dtype", ""));
	m->rank = (int)json_array_size(sizes);
	if (m->rank > WW_MAX_RANK)
		pl_fail(pl, "a tensor has more than %d dimensions", WW_MAX_RANK);
	for (int d = 0; d < m->rank; d++) {
		m->size[d] = json_integer_value(json_array_get(sizes, (size_t)d));
		m->stride[d] = json_integer_value(json_array_get(strides, (size_t)d));
		elements = ix_times(elements, m->size[d] ? m->size[d] : 1);
		if (m->size[d] < 0 || elements > (int64_t)1 << MAX_ELEMENT_BITS)
			pl_fail(pl, "a tensor has a negative size, or more than 2^%d elements", MAX_ELEMENT_BITS);
	}
}

static int is_contiguous(const struct gmeta *m)
{
	int64_t s = 1;

	for (int d = m->rank - 1; d >= 0; d--) {
		if (m->size[d] != 1 && m->stride[d] != s)
			return 0;
		s *= m->size[d];
	}
	return 1;
}

int pl_stored_last(const struct gmeta *m)
{
	int64_t s = m->rank >= 3 ? m->size[1] : 0;

	if (m->rank < 3 || is_contiguous(m) || m->stride[1] != 1)
		return 0;
	for (int d = m->rank - 1; d >= 0; d--)
		if (d != 1) {
			if (m->size[d] != 1 && m->stride[d] != s)
				return 0;
			s *= m->size[d];
		}
	return 1;
}

static const struct ix *new_symbol(struct pl *pl, const char *def, int64_t value)
{
	struct symbol *s = &pl->sym[pl->n_sym];

	s->name = pl_fmt(pl, "S%d", pl->n_sym++);
	s->def = def;
	s->value = value;
	return s->ix = ix_sym(pl, s->name, value);
}

const struct ix *pl_named_size(struct pl *pl, const struct ix *size)
{
	int plain = size->n <= 1 || ix_varies(size);

	for (int i = 0; plain && i < size->n; i++)
		for (int a = 0; a < size->m[i].n; a++)
			plain &= size->m[i].atom[a]->kind == IX_SYM;
	if (plain)
		return size;
	for (int i = 0; i < pl->n_sym; i++)
		if (pl->sym[i].of && ix_same(pl->sym[i].of, size))
			return pl->sym[i].ix;
	if (pl->n_sym >= PL_MAX_SYMBOLS)
		return size;
	pl->sym[pl->n_sym].of = size;
	return new_symbol(pl, ix_text(pl, size), ix_num(size));
}

/* The symbol for size d of input number `index`. */
static const struct ix *symbol(struct pl *pl, struct buf *b, int d, int64_t value)
{
	const char *def = pl_fmt(pl, "%s->size[%d]", b->name, d);

	for (int i = 0; i < pl->n_buf; i++) {
		struct buf *o = pl->buf[i];
		int64_t c;

		if (o->kind == B_INPUT && o != b && d < o->rank && o->size[d] && ix_num(o->size[d]) == value &&
			!ix_is_const(o->size[d], &c)) {
			ww_str_addf(&pl->guards, "\tWW_EQUAL(%s, %s);\n", def, ix_text(pl, o->size[d]));
			return o->size[d];
		}
	}
	if (pl->n_sym >= PL_MAX_SYMBOLS) {
		ww_str_addf(&pl->guards, "\tif (%s != %lld)\n\t\tww_fail(p, \"more sizes than this plan covers\");\n", def,
			(long long)value);
		return ix_const(pl, value);
	}
	return new_symbol(pl, def, value);
}

static const char *identifier(struct pl *pl, const char *prefix, const char *name)
{
	char *s = pl_alloc(pl, strlen(prefix) + strlen(name) + 2);
	size_t n = strlen(prefix);

	memcpy(s, prefix, n);
	for (const char *c = name; *c && n < 60; c++)
		s[n++] = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ? *c : '_';
	for (int i = 0; i < pl->n_buf; i++)
		if (!strncmp(pl->buf[i]->name, s, n) && !pl->buf[i]->name[n])
			return pl_fmt(pl, "%s_%d", s, pl->n_buf);
	return s;
}

static struct buf *place(struct pl *pl, const json_t *j, enum bkind kind, int index)
{
	const struct ix *size[PL_MAX_RANK];
	struct gmeta m = { 0 };
	struct buf *b;

	read_meta(pl, j, &m);
	if (!m.dt)
		pl_fail(pl, "%s \"%s\" has the type %s", kind == B_INPUT ? "input" : "parameter", ww_json_str(j, "name", ""),
			ww_json_str(j, "dtype", "?"));
	b = pl_buf(pl, kind, m.dt, 0, NULL);
	b->index = index;
	b->name = "";
	b->pname = keep(pl, ww_json_str(j, "name", ""));
	b->name = identifier(pl, kind == B_INPUT ? "in_" : "p_", b->pname);
	for (int d = 0; d < m.rank; d++)
		size[d] = b->size[d] = kind == B_INPUT && m.size[d] > 1 ? symbol(pl, b, d, m.size[d]) : ix_const(pl, m.size[d]);
	b->rank = m.rank;
	pl_contiguous(pl, m.rank, size, b->stride);
	b->contiguous = is_contiguous(&m);
	for (int d = 0; d < m.rank && !b->contiguous; d++)
		b->stride[d] = ix_const(pl, m.stride[d]);
	b->val = pl_val(pl, V_BUF, m.dt, m.rank, size);
	b->val->root = b;
	return b;
}

static void read_node(struct pl *pl, const json_t *j, struct gnode *n)
{
	const json_t *args = json_object_get(j, "args"), *kw = json_object_get(j, "kwargs"),
				 *out = json_object_get(j, "out");
	const char *key;
	json_t *v;
	size_t i;

	n->name = keep(pl, ww_json_str(j, "name", ""));
	n->target = keep(pl, ww_json_str(j, "op", ""));
	n->known = ww_graph_knows(j);
	n->shares = ww_json_num(j, "bytes", 1) == 0;
	n->tf32 = ww_json_bool(j, "tf32", -1);
	n->n_arg = (int)json_array_size(args);
	n->arg = pl_alloc(pl, (size_t)(n->n_arg + 1) * sizeof(*n->arg));
	json_array_foreach(args, i, v)
		read_arg(pl, v, &n->arg[i], 0);
	n->kwarg = pl_alloc(pl, (json_object_size(kw) + 1) * sizeof(*n->kwarg));
	n->kwname = pl_alloc(pl, (json_object_size(kw) + 1) * sizeof(*n->kwname));
	json_object_foreach((json_t *)kw, key, v) {
		n->kwname[n->n_kwarg] = keep(pl, key);
		read_arg(pl, v, &n->kwarg[n->n_kwarg++], 0);
	}
	json_array_foreach(out, i, v) {
		if (i >= PL_MAX_OUTS)
			pl_fail(pl, "cannot cover %s (node %s): more than %d results", n->target, n->name, PL_MAX_OUTS);
		read_meta(pl, v, &n->meta[n->n_out++]);
	}
}

int pl_refers(const struct garg *a, const char *name)
{
	int found = a->kind == G_VAL && !strcmp(a->name, name);

	for (int i = 0; a->kind == G_LIST && i < a->n; i++)
		found |= pl_refers(&a->item[i], name);
	return found;
}

int pl_count_readers(const struct pl *pl, const char *name)
{
	int n = 0;

	for (const struct gnode *g = pl->node; g < pl->node + pl->n_node; g++) {
		for (int i = 0; i < g->n_arg; i++)
			n += pl_refers(&g->arg[i], name);
		for (int i = 0; i < g->n_kwarg; i++)
			n += pl_refers(&g->kwarg[i], name);
	}
	for (int i = 0; i < pl->n_output; i++)
		n += pl_refers(&pl->output[i], name);
	return n;
}

static int count_names(const struct garg *a, int n)
{
	int found = 0;

	for (int i = 0; i < n; i++)
		found += a[i].kind == G_VAL ? 1 : a[i].kind == G_LIST ? count_names(a[i].item, a[i].n) : 0;
	return found;
}

static void add_reads(struct pl *pl, struct gnode *n, const struct garg *a, int count)
{
	for (int i = 0; i < count; i++) {
		struct gnode *of = a[i].kind == G_VAL ? pl_graph_node(pl, a[i].name) : NULL;

		if (of)
			n->read[n->n_read++] = of;
		if (a[i].kind == G_LIST)
			add_reads(pl, n, a[i].item, a[i].n);
	}
}

void pl_graph_reads(struct pl *pl)
{
	for (struct gnode *n = pl->node; n < pl->node + pl->n_node && !n->read; n++) {
		int most = 1 + count_names(n->arg, n->n_arg) + count_names(n->kwarg, n->n_kwarg);

		n->read = pl_alloc(pl, (size_t)most * sizeof(struct gnode *));
		add_reads(pl, n, n->arg, n->n_arg);
		add_reads(pl, n, n->kwarg, n->n_kwarg);
	}
}

struct gnode *pl_graph_node(struct pl *pl, const char *name)
{
	for (int i = 0; i < pl->n_node; i++)
		if (!strcmp(pl->node[i].name, name))
			return &pl->node[i];
	return NULL;
}

struct val *pl_graph_given(const struct pl *pl, const char *name)
{
	for (int i = 0; i < pl->n_buf; i++)
		if (pl->buf[i]->val && pl->buf[i]->pname && !strcmp(pl->buf[i]->pname, name))
			return pl->buf[i]->val;
	return NULL;
}

void pl_cannot(struct pl *pl, struct gnode *n, const char *why)
{
	snprintf(pl->blame, sizeof(pl->blame), "%s", n->name);
	pl_fail(pl, "cannot cover %s (node %s): %s", n->target, n->name, why);
}

void pl_leave(struct pl *pl, struct gnode *n, const char *why)
{
	if (pl->may_leave)
		pl_cannot(pl, n, why);
}

struct val *pl_val_of(struct pl *pl, const struct garg *a)
{
	struct gnode *n;
	struct val *v;

	switch (a->kind) {
	case G_INT: return pl_consti(pl, WW_I64, a->i);
	case G_BOOL: return pl_consti(pl, WW_BOOL, a->i);
	case G_FLOAT: return pl_constf(pl, WW_F32, a->f);
	case G_VAL: break;
	default: pl_fail(pl, "an argument is neither a tensor nor a number");
	}
	if ((n = pl_graph_node(pl, a->name))) {
		if (!n->out[0])
			pl_fail(pl, "cannot cover %s (node %s): this result of it", n->target, n->name);
		return n->out[0];
	}
	if ((v = pl_graph_given(pl, a->name)))
		return v;
	pl_fail(pl, "the graph refers to an unknown name %s", a->name);
}

/* Scalars are part of the trace: another value would be another graph. */
static void guard_scalars(struct pl *pl, const json_t *list)
{
	json_t *j;
	size_t i;

	json_array_foreach(list, i, j) {
		const json_t *v = json_object_get(j, "value");

		if (json_is_integer(v) || json_is_boolean(v))
			ww_str_addf(&pl->guards,
				"\tif (ww_scalar(p, %d)->i != %lld)\n"
				"\t\tww_fail(p, \"scalar argument %d differs from the traced one\");\n",
				(int)i, json_is_integer(v) ? (long long)json_integer_value(v) : (long long)json_is_true(v), (int)i);
		else if (json_is_real(v))
			ww_str_addf(&pl->guards,
				"\tif (ww_scalar(p, %d)->f != %.17g)\n"
				"\t\tww_fail(p, \"scalar argument %d differs from the traced one\");\n",
				(int)i, json_real_value(v), (int)i);
	}
}

void pl_graph_read(struct pl *pl, const json_t *graph)
{
	const json_t *nodes = json_object_get(graph, "nodes"), *outs = json_object_get(graph, "outputs");
	json_t *j;
	size_t i;

	if (!json_is_array(nodes) || !json_is_array(outs))
		pl_fail(pl, "inspect gave no graph");
	if (json_array_size(nodes) > MAX_NODES)
		pl_fail(pl, "the graph has more than %d nodes", MAX_NODES);
	for (int d = 0; d < PL_MAX_RANK; d++)
		pl->place[d] = ix_var(pl, pl_fmt(pl, "place%d", d), ix_const(pl, (int64_t)1 << 40));
	json_array_foreach(json_object_get(graph, "inputs"), i, j)
		place(pl, j, B_INPUT, (int)i);
	json_array_foreach(json_object_get(graph, "params"), i, j)
		if (ww_json_bool(j, "used", 1))
			place(pl, j, B_PARAM, (int)i);
	guard_scalars(pl, json_object_get(graph, "scalars"));
	pl->node = pl_alloc(pl, (json_array_size(nodes) + 1) * sizeof(*pl->node));
	json_array_foreach(nodes, i, j)
		read_node(pl, j, &pl->node[pl->n_node++]);
	pl->n_output = (int)json_array_size(outs);
	if (pl->n_output > 64)
		pl_fail(pl, "more than 64 outputs");
	pl->output = pl_alloc(pl, (size_t)(pl->n_output + 1) * sizeof(*pl->output));
	pl->out_meta = pl_alloc(pl, (size_t)(pl->n_output + 1) * sizeof(*pl->out_meta));
	json_array_foreach(outs, i, j) {
		if (json_object_get(j, "ref"))
			read_arg(pl, j, &pl->output[i], 0);
		else
			read_arg(pl, json_object_get(j, "value"), &pl->output[i], 0);
		read_meta(pl, j, &pl->out_meta[i]);
	}
}
