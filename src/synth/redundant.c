/* redundant.c - operations without effect, on the exported graph: a solution would be rewarded for merely dropping
 * them.
 *
 * Rejected: to compare times or values with and without each node (a run a node; rounding hides what cancels).
 */
#include "synth/redundant.h"
#include "base/json.h"

#include <string.h>

struct graph {
	const json_t *nodes, *outputs;
	json_t *by_name; /* node of a name; borrowed values */
};

static const char *packet(const json_t *node, char out[64])
{
	const char *op = ww_json_str(node, "op", "");
	op = !strncmp(op, "aten.", 5) ? op + 5 : op;
	size_t n = strcspn(op, ".");
	n = n < 63 ? n : 63;
	memcpy(out, op, n);
	out[n] = 0;
	return out;
}

static const char *ref_of(const json_t *arg) { return ww_json_str(arg, "ref", NULL); }
static const json_t *arg(const json_t *node, size_t i) { return json_array_get(json_object_get(node, "args"), i); }

static const json_t *operand(const struct graph *g, const json_t *node, size_t i)
{
	const char *name = ref_of(arg(node, i));
	return name ? json_object_get(g->by_name, name) : NULL;
}

static int is_one_of(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(word, *words))
			return 1;
	return 0;
}

static int same_args(const json_t *a, const json_t *b)
{
	size_t n = json_array_size(json_object_get(a, "args"));
	if (n != json_array_size(json_object_get(b, "args")) ||
		!json_equal(json_object_get(a, "kwargs"), json_object_get(b, "kwargs")))
		return 0;
	for (size_t i = 1; i < n; i++)
		if (!json_equal(arg(a, i), arg(b, i)))
			return 0;
	return 1;
}

/* f(f(x)) is f(x), or x. */
static int repeated(const struct graph *g, const json_t *node, const char *op)
{
	static const char *const words[] = { "relu", "relu6", "abs", "floor", "ceil", "round", "trunc", "sign", "clamp",
		"clamp_min", "clamp_max", "hardtanh", "neg", "reciprocal", "transpose", "flip", "tril", "triu", "sort", NULL };
	char inner[64];
	const json_t *x = operand(g, node, 0);
	return x && is_one_of(op, words) && !strcmp(packet(x, inner), op) && same_args(node, x);
}

/* The identity here, since the operand is never negative. */
static int idle(const struct graph *g, const json_t *node, const char *op)
{
	static const char *const outer[] = { "relu", "abs", "leaky_relu", "elu", "prelu", NULL };
	static const char *const inner[] = { "relu", "relu6", "sigmoid", "softmax", "exp", "abs", "square", "sqrt",
		"softplus", "hardsigmoid", "var", "std", "linalg_vector_norm", "cosh", "exp2", "rsqrt", NULL };
	char from[64];
	const json_t *x = operand(g, node, 0);
	return x && is_one_of(op, outer) && is_one_of(packet(x, from), inner);
}

static int cancels(const struct graph *g, const json_t *node, const char *op)
{
	const char *a = ref_of(arg(node, 0)), *b = ref_of(arg(node, 1));
	char inner[64];
	const json_t *x = operand(g, node, 0);
	int sub = !strcmp(op, "sub"), div = !strcmp(op, "div");
	if (!a || !b || (!sub && !div))
		return 0;
	if (!strcmp(a, b))
		return 1;
	const char *undone = sub ? "add" : "mul";
	return x && !strcmp(packet(x, inner), undone) && ref_of(arg(x, 1)) && !strcmp(ref_of(arg(x, 1)), b);
}

static double number(const json_t *v) { return json_is_number(v) ? json_number_value(v) : 1e300; }

static int neutral(const json_t *node, const char *op)
{
	double v = number(arg(node, 1));
	if (!strcmp(op, "add") || !strcmp(op, "sub"))
		return v == 0;
	return (!strcmp(op, "mul") || !strcmp(op, "div") || !strcmp(op, "pow")) && v == 1;
}

static json_int_t size_at(const json_t *node, json_int_t dim)
{
	const json_t *sizes = json_object_get(json_array_get(json_object_get(node, "out"), 0), "sizes");
	json_int_t n = (json_int_t)json_array_size(sizes);
	dim = dim < 0 ? dim + n : dim;
	return dim >= 0 && dim < n ? json_integer_value(json_array_get(sizes, (size_t)dim)) : -1;
}

/* A reduction over one element. */
static int over_one(const struct graph *g, const json_t *node, const char *op)
{
	static const char *const keep[] = { "softmax", "log_softmax", "cumsum", "cumprod", "sort", NULL };
	static const char *const reduce[] = { "sum", "mean", "amax", "amin", "logsumexp", "max", "min", "prod", "argmax",
		"argmin", "var", "std", NULL };
	const json_t *dim = arg(node, 1), *from = is_one_of(op, keep) ? node : operand(g, node, 0);
	if (!from || (!is_one_of(op, keep) && !is_one_of(op, reduce)))
		return 0;
	if (json_is_integer(dim))
		return size_at(from, json_integer_value(dim)) == 1;
	json_int_t all = json_array_size(dim) ? 1 : 0;
	for (size_t i = 0; i < json_array_size(dim); i++)
		all *= size_at(from, json_integer_value(json_array_get(dim, i)));
	return all == 1;
}

static void mark(json_t *used, const json_t *v)
{
	const json_t *x;
	const char *name = ref_of(v), *key;
	size_t i;
	if (name)
		json_object_set_new(used, name, json_true());
	json_array_foreach(v, i, x)
		mark(used, x);
	if (!name)
		json_object_foreach((json_t *)(uintptr_t)v, key, x)
			mark(used, x);
}

/* The first node whose result nobody reads.  What changes an operand in place has its effect there. */
static const json_t *unread(const struct graph *g)
{
	json_auto_t *used = json_object();
	const json_t *n;
	size_t i;
	mark(used, g->outputs);
	json_array_foreach(g->nodes, i, n) {
		mark(used, json_object_get(n, "args"));
		mark(used, json_object_get(n, "kwargs"));
	}
	json_array_foreach(g->nodes, i, n) {
		const char *op = ww_json_str(n, "op", ""), *dot = strrchr(op, '.');
		int in_place = dot && dot > op && dot[-1] == '_';
		if (!in_place && strncmp(op, "aten.", 5) == 0 && !strstr(op, "assert") && !strstr(op, "batch_norm") &&
			!strstr(op, "getitem") && !json_object_get(used, ww_json_str(n, "name", "")))
			return n;
	}
	return NULL;
}

static const char *fault(const struct graph *g, const json_t *node)
{
	char op[64];
	packet(node, op);
	return repeated(g, node, op) ? "repeats the same function"
		: idle(g, node, op)      ? "does nothing to numbers that are not negative"
		: cancels(g, node, op)   ? "cancels what was just computed"
		: neutral(node, op)      ? "has a number without effect"
		: over_one(g, node, op)  ? "goes over one element"
								 : NULL;
}

int ww_synth_redundant(const json_t *graph, struct ww_str *why)
{
	struct graph g = { json_object_get(graph, "nodes"), json_object_get(graph, "outputs"), json_object() };
	json_auto_t *owner = g.by_name;
	const json_t *n, *bad = NULL;
	const char *text = NULL;
	size_t i;
	json_array_foreach(g.nodes, i, n)
		json_object_set(g.by_name, ww_json_str(n, "name", ""), (json_t *)(uintptr_t)n);
	json_array_foreach(g.nodes, i, n) {
		if (text)
			break;
		text = fault(&g, n);
		bad = text ? n : NULL;
	}
	if (!bad && (bad = unread(&g)) != NULL)
		text = "has a result that nothing reads";
	if (bad)
		ww_str_addf(why, "%s %s", ww_json_str(bad, "op", "?"), text);
	return bad != NULL;
}
