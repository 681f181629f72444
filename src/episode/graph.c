/* graph.c - the module's ATen graph as launches: which operators each kernel computes.
 *
 * The graph is what `inspect` answered in the episode.  What was fused is known where the planner wrote plan.c: its
 * head lists the kernels and the graph nodes of each (" *   k0  gemm: linear, gelu").  Of other plans the page shows
 * the graph, and beside it the lines of plan.c that add nodes. */
#include "episode/graph.h"

#include "base/json.h"
#include "page/page.h"

#include <string.h>

enum { OPEN_NODES = 60, COLORS = 6 };

static const char list_head[] = "Kernels, and the graph nodes of each:\n";

/* ---- The graph's nodes ------------------------------------------------------------------------------------------- */

json_t *ww_episode_graph(const struct ww_episode *e)
{
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_message *m = &e->messages[i].reply.message;
		if (m->role != WW_ROLE_TOOL || strcmp(m->tool, "inspect") || m->is_error || !m->data)
			continue;
		json_t *data = json_loads(m->data, 0, NULL), *graph = json_incref(json_object_get(data, "graph"));
		json_decref(data);
		if (graph)
			return graph;
	}
	return NULL;
}

static void add_value(struct ww_str *out, const json_t *v)
{
	size_t i;
	json_t *one;
	if (json_is_string(json_object_get(v, "ref"))) {
		ww_str_adds(out, json_string_value(json_object_get(v, "ref")));
	} else if (json_is_array(v)) {
		ww_str_addc(out, '[');
		json_array_foreach((json_t *)v, i, one) {
			ww_str_adds(out, i ? ", " : "");
			add_value(out, one);
		}
		ww_str_addc(out, ']');
	} else if (json_is_null(v) || json_is_boolean(v)) {
		ww_str_adds(out, json_is_null(v) ? "None" : json_is_true(v) ? "True" : "False");
	} else if (json_is_real(v)) {
		ww_str_addf(out, "%.9g", json_real_value(v));
	} else {
		ww_json_add(out, v);
	}
}

static void add_tensor(struct ww_str *out, const json_t *t)
{
	size_t i;
	json_t *size;
	ww_str_addf(out, "%s[", ww_json_str(t, "dtype", "?"));
	json_array_foreach(json_object_get(t, "sizes"), i, size)
		ww_str_addf(out, "%s%lld", i ? ", " : "", (long long)json_integer_value(size));
	ww_str_addc(out, ']');
}

/* "linear = aten.linear.default(x, up.weight, up.bias): float32[1024, 3072]" */
static void add_node(struct ww_str *h, const json_t *node)
{
	ww_auto_str line = WW_STR_INIT(4096);
	const char *key;
	size_t i;
	json_t *v;
	ww_str_addf(&line, " = %s(", ww_json_str(node, "op", "?"));
	json_array_foreach(json_object_get(node, "args"), i, v) {
		ww_str_adds(&line, i ? ", " : "");
		add_value(&line, v);
	}
	json_object_foreach(json_object_get(node, "kwargs"), key, v) {
		ww_str_addf(&line, ", %s=", key);
		add_value(&line, v);
	}
	ww_str_adds(&line, "): ");
	json_array_foreach(json_object_get(node, "out"), i, v) {
		ww_str_adds(&line, i ? ", " : "");
		add_tensor(&line, v);
	}
	ww_str_adds(h, "<div class=\"op\"><b>");
	ww_page_text(h, ww_json_str(node, "name", "?"), 200);
	ww_str_adds(h, "</b>");
	ww_page_text(h, line.p, 600);
	ww_str_adds(h, "</div>\n");
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

/* Is `name` one of the words of a list "a, b, c"? */
static int lists(const char *list, size_t n, const char *name)
{
	size_t length = strlen(name);
	for (const char *p = list; p < list + n;) {
		size_t word = strcspn(p, ", \n");
		if (word == length && !strncmp(p, name, word))
			return 1;
		p += word + 1;
	}
	return 0;
}

struct graph_page {
	struct ww_str *h;
	const json_t *nodes;
	json_t *placed; /* set of the nodes that are in a launch */
	int launches;
};

static void box_begin(struct graph_page *g, int color, const char *title, size_t n)
{
	if (color < 0)
		ww_str_adds(g->h, "<div class=\"launch\"><h3>");
	else
		ww_str_addf(g->h, "<div class=\"launch\" style=\"border-color:var(--s%d)\"><h3>", color % COLORS);
	ww_page_textf(g->h, "%.*s", (int)n, title);
	ww_str_adds(g->h, "</h3>\n");
}

/* One line of the list, after " *   ": "k0  gemm: linear, gelu". */
static void add_launch(struct graph_page *g, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n);
	size_t head = colon ? (size_t)(colon - line) : n, i;
	const json_t *node;
	box_begin(g, g->launches++, line, head);
	json_array_foreach((json_t *)g->nodes, i, node) {
		const char *name = ww_json_str(node, "name", "");
		if (!lists(line + head, n - head, name))
			continue;
		add_node(g->h, node);
		json_object_set_new(g->placed, name, json_true());
	}
	ww_str_adds(g->h, "</div>\n");
}

static void add_rest(struct graph_page *g)
{
	static const char title[] = "in no launch: no work of their own, or a constant";
	const json_t *node;
	size_t i, n = 0;
	json_array_foreach((json_t *)g->nodes, i, node) {
		if (json_object_get(g->placed, ww_json_str(node, "name", "")))
			continue;
		if (!n++)
			box_begin(g, -1, title, strlen(title));
		add_node(g->h, node);
	}
	ww_str_adds(g->h, n ? "</div>\n" : "");
}

static void add_launches(struct graph_page *g, const char *list)
{
	for (const char *p = list; !strncmp(p, " *   ", 5);) {
		size_t n = strcspn(p, "\n");
		add_launch(g, p + 5, n - 5);
		p += n + (p[n] == '\n');
	}
	add_rest(g);
}

/* ---- Plans without that list ------------------------------------------------------------------------------------- */

static const char *plan_call(const char *line, size_t n)
{
	static const char *const calls[] = { "ww_launch(", "ww_gemm(", "ww_conv(", "ww_memset(", "ww_copy(", "ww_recipe_" };
	for (size_t i = 0; i < WW_ARRAY_LEN(calls); i++) {
		const char *at = memmem(line, n, calls[i], strlen(calls[i]));
		if (at)
			return at;
	}
	return NULL;
}

static void add_calls(struct graph_page *g, const char *plan)
{
	static const char title[] = "nodes that plan.c adds (a line inside a loop may add several)";
	int number = 1;
	box_begin(g, -1, title, strlen(title));
	for (const char *p = plan; *p; number++) {
		size_t n = strcspn(p, "\n");
		const char *call = plan_call(p, n);
		if (call) {
			ww_str_adds(g->h, "<div class=\"op\">");
			ww_page_textf(g->h, "line %d: %.*s", number, (int)(p + n - call), call);
			ww_str_adds(g->h, "</div>\n");
		}
		p += n + (p[n] == '\n');
	}
	ww_str_adds(g->h, "</div>\n");
}

static void add_all_nodes(struct graph_page *g)
{
	static const char title[] = "operators of the graph";
	const json_t *node;
	size_t i;
	box_begin(g, -1, title, strlen(title));
	json_array_foreach((json_t *)g->nodes, i, node)
		add_node(g->h, node);
	ww_str_adds(g->h, "</div>\n");
}

/* ---- The section ------------------------------------------------------------------------------------------------- */

static void add_tensors(struct ww_str *h, const char *name, const json_t *list)
{
	ww_auto_str text = WW_STR_INIT(1 << 16);
	const json_t *t;
	size_t i;
	json_array_foreach((json_t *)list, i, t) {
		ww_str_addf(&text, "%s%s ", i ? "; " : "", ww_json_str(t, "name", "?"));
		add_tensor(&text, t);
		if (json_is_string(json_object_get(t, "ref")))
			ww_str_addf(&text, " = %s", ww_json_str(t, "ref", "?"));
	}
	ww_page_fact(h, name, "%s", text.p);
}

static int count_lines(const char *list)
{
	int n = 0;
	for (const char *p = list; p && !strncmp(p, " *   ", 5); n++)
		p += strcspn(p, "\n") + 1;
	return n;
}

void ww_episode_html_graph(struct ww_str *h, const json_t *graph, const char *plan)
{
	struct graph_page g = { .h = h, .nodes = json_object_get(graph, "nodes"), .placed = json_object() };
	size_t n = json_array_size(g.nodes);
	const char *list = plan ? strstr(plan, list_head) : NULL;
	list = list ? list + strlen(list_head) : NULL;
	int launches = count_lines(list);
	ww_page_facts_begin(h);
	add_tensors(h, "inputs", json_object_get(graph, "inputs"));
	add_tensors(h, "outputs", json_object_get(graph, "outputs"));
	ww_page_facts_end(h);
	ww_str_addf(h, "<details%s><summary>%zu operator%s", n <= OPEN_NODES ? " open" : "", n, n == 1 ? "" : "s");
	if (launches)
		ww_str_addf(h, " in %d launch%s, as plan.c lists them", launches, launches == 1 ? "" : "es");
	ww_str_adds(h, "</summary>\n");
	if (launches) {
		add_launches(&g, list);
	} else {
		if (plan)
			add_calls(&g, plan);
		add_all_nodes(&g);
	}
	ww_str_adds(h, "</details>\n");
	json_decref(g.placed);
}
