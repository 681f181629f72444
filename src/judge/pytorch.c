/* pytorch.c - plans between whose nodes PyTorch runs operators of the task.
 *
 * One operator that nobody wrote a kernel for must not cost a module all of its kernels.  A plan may name operators of
 * the task's graph and the buffers that they read and write.  They are run by a process of ours
 * (bridge/wwbridge/beside.py) that holds neither the task nor a seed: it gets the rows of the judge's own copy of the
 * graph, the task's inputs and parameters read-only, and the scratch that the plan named, so a solution is still a plan
 * and device code.
 */
#include "judge/pytorch.h"

#include "base/dtype.h"
#include "base/json.h"
#include "judge/image_internal.h"

#include <string.h>

int ww_pytorch_count(const struct ww_image *m)
{
	int n = 0;
	for (uint32_t i = 0; i < m->n_nodes; i++)
		n += ww_image_nodes(m)[i].kind == WW_NODE_PYTORCH;
	return n;
}

const char *ww_pytorch_names(const struct ww_image *m)
{
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (ww_image_nodes(m)[i].kind == WW_NODE_PYTORCH)
			return ww_image_string(m, ww_image_nodes(m)[i].pytorch.nodes);
	return "";
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

struct word {
	const char *p;
	size_t n;
};

/* The next of some names that one space separates; 0 at the end. */
static int next_word(const char **list, struct word *w)
{
	w->p = *list;
	w->n = strcspn(*list, " ");
	*list += w->n + (w->p[w->n] == ' ');
	return w->n > 0;
}

static int is_word(const struct word *w, const char *name) { return strlen(name) == w->n && !memcmp(w->p, name, w->n); }

static int in_list(const char *list, const char *name)
{
	struct word w;
	while (next_word(&list, &w))
		if (is_word(&w, name))
			return 1;
	return 0;
}

static const json_t *row_named(const json_t *rows, const struct word *w, size_t *index)
{
	for (*index = 0; *index < json_array_size(rows); ++*index)
		if (is_word(w, ww_json_str(json_array_get(rows, *index), "name", "")))
			return json_array_get(rows, *index);
	return NULL;
}

int ww_pytorch_has(const struct ww_image *m, const char *node)
{
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		const struct ww_image_node *n = &ww_image_nodes(m)[i];
		if (n->kind == WW_NODE_PYTORCH && in_list(ww_image_string(m, n->pytorch.nodes), node))
			return 1;
	}
	return 0;
}

double ww_pytorch_flops(const json_t *graph, const struct ww_image *m)
{
	double sum = 0;
	size_t i;
	json_t *row;
	json_array_foreach(json_object_get(graph, "nodes"), i, row)
		if (ww_pytorch_has(m, ww_json_str(row, "name", "")))
			sum += ww_json_num(row, "flops", 0);
	return sum;
}

/* ---- Checking ---------------------------------------------------------------------------------------------------- */

struct part {
	const json_t *graph, *rows;
	const struct ww_image *m;
	const struct ww_image_pytorch *t;
	const char *nodes, *reads, *writes;
	struct ww_str *why;
};

static struct part part_of(const json_t *graph, const struct ww_image *m, const struct ww_image_node *n)
{
	const struct ww_image_pytorch *t = &n->pytorch;
	return (struct part){ graph, json_object_get(graph, "nodes"), m, t, ww_image_string(m, t->nodes),
		ww_image_string(m, t->reads), ww_image_string(m, t->writes), NULL };
}

static int refuse(const struct part *p, const char *text, const char *name)
{
	ww_str_addf(
		p->why, "ww_pytorch(\"%.100s\"): %s%s%.100s%s", p->nodes, text, *name ? " \"" : "", name, *name ? "\"" : "");
	return 0;
}

/* 1 where each reference in the arguments names something that the node can read. */
static int refers_well(const struct part *p, const json_t *v)
{
	const char *key, *ref = json_string_value(json_object_get(v, "ref"));
	json_t *x;
	size_t i;
	if (ref)
		return in_list(p->nodes, ref) || in_list(p->reads, ref) ||
			ww_json_named(json_object_get(p->graph, "inputs"), ref) ||
			ww_json_named(json_object_get(p->graph, "params"), ref) || refuse(p, "its reads do not name", ref);
	json_array_foreach((json_t *)v, i, x)
		if (!refers_well(p, x))
			return 0;
	json_object_foreach((json_t *)v, key, x)
		if (!refers_well(p, x))
			return 0;
	return 1;
}

static int check_operators(const struct part *p)
{
	const char *list = p->nodes;
	struct word w;
	size_t index, next = 0;
	while (next_word(&list, &w)) {
		const json_t *row = row_named(p->rows, &w, &index);
		if (!row)
			return refuse(p, "the task's graph has no such operator", "");
		const char *name = ww_json_str(row, "name", "");
		if (index < next)
			return refuse(p, "its operators are not in the graph's order:", name);
		if (!refers_well(p, json_object_get(row, "args")) || !refers_well(p, json_object_get(row, "kwargs")))
			return 0;
		next = index + 1;
	}
	return 1;
}

/* Bytes of an operator's only result, row-major; -1: it has several, or one that no buffer can hold. */
static double result_bytes(const json_t *row)
{
	const json_t *out = json_object_get(row, "out"), *form = json_array_get(out, 0);
	double bytes = ww_dtype_bytes(ww_dtype_of(ww_json_str(form, "dtype", "")));
	size_t i;
	json_t *size;
	if (json_array_size(out) != 1 || bytes == 0)
		return -1;
	json_array_foreach(json_object_get(form, "sizes"), i, size)
		bytes *= (double)json_integer_value(size);
	return bytes;
}

static int check_values(const struct part *p, const char *list, int written, uint32_t *arg)
{
	struct word w;
	size_t index;
	for (; next_word(&list, &w); ++*arg) {
		const json_t *row = row_named(p->rows, &w, &index);
		const char *name = ww_json_str(row, "name", "");
		double bytes = row ? result_bytes(row) : -1;
		int buf = ww_image_args(p->m)[p->t->first_arg + *arg].buf;
		if (!row || in_list(p->nodes, name) != written)
			return refuse(p,
				written ? "it writes a result that none of its operators has"
						: "it reads a result that no other operator has",
				"");
		if (bytes < 0)
			return refuse(p, "a buffer holds one tensor of a plain type, which this result is not:", name);
		if (bytes > (double)ww_image_buffers(p->m)[buf].bytes)
			return refuse(p, "its buffer is too small for", name);
	}
	return 1;
}

int ww_pytorch_check(const json_t *graph, const struct ww_image *m, struct ww_str *why)
{
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		const struct ww_image_node *n = &ww_image_nodes(m)[i];
		uint32_t arg = 0;
		if (n->kind != WW_NODE_PYTORCH)
			continue;
		struct part p = part_of(graph, m, n);
		p.why = why;
		if (!check_operators(&p) || !check_values(&p, p.reads, 0, &arg) || !check_values(&p, p.writes, 1, &arg))
			return 0;
		for (uint32_t k = 0; k < i; k++) {
			const char *list = p.nodes;
			struct word w;
			while (ww_image_nodes(m)[k].kind == WW_NODE_PYTORCH && next_word(&list, &w)) {
				size_t index;
				const char *name = ww_json_str(row_named(p.rows, &w, &index), "name", "");
				if (in_list(ww_image_string(m, ww_image_nodes(m)[k].pytorch.nodes), name))
					return refuse(&p, "two nodes run the operator", name);
			}
		}
	}
	return 1;
}

/* ---- For exports and for PyTorch's process ----------------------------------------------------------------------- */

json_t *ww_pytorch_part(const json_t *graph, const struct ww_image *m, uint32_t node)
{
	const struct part p = part_of(graph, m, &ww_image_nodes(m)[node]);
	json_t *rows = json_array(), *reads = json_array(), *writes = json_array();
	const char *lists[3] = { p.nodes, p.reads, p.writes };
	struct word w;
	size_t index;
	while (next_word(&lists[0], &w)) {
		const json_t *row = row_named(p.rows, &w, &index);
		json_array_append_new(rows,
			json_pack("{s:O, s:O, s:O, s:O}", "name", json_object_get(row, "name"), "op", json_object_get(row, "op"),
				"args", json_object_get(row, "args"), "kwargs", json_object_get(row, "kwargs")));
	}
	for (int k = 1; k < 3; k++)
		while (next_word(&lists[k], &w))
			json_array_append_new(k == 1 ? reads : writes, json_stringn(w.p, w.n));
	return json_pack("{s:o, s:o, s:o}", "rows", rows, "reads", reads, "writes", writes);
}
