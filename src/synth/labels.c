#include "synth/labels.h"
#include "base/json.h"

#include <ctype.h>
#include <string.h>

enum { KEY = 64 };

/* What every spelling of an operator has in common: "nn.Conv2d", "F.conv2d", "aten.conv2d.default" are "conv2d". */
static void key_of(const char *name, char key[KEY])
{
	size_t n = 0;
	const char *dot = strrchr(name, '.');
	if (!strncmp(name, "aten.", 5))
		name += 5;
	else if (dot && dot[1])
		name = dot + 1;
	for (; *name && *name != '.' && *name != '(' && n < KEY - 1; name++)
		if (isalnum((unsigned char)*name))
			key[n++] = (char)tolower((unsigned char)*name);
	key[n] = 0;
}

/* Other names of an operator, by a table. */
static int means(const char *label, const char *found)
{
	static const char *const same[][2] = { { "batchnorm", "batchnorm1d" }, { "batchnorm", "batchnorm2d" },
		{ "batchnorm", "batchnorm3d" }, { "instancenorm", "instancenorm1d" }, { "instancenorm", "instancenorm2d" },
		{ "instancenorm", "instancenorm3d" }, { "add", "iadd" }, { "matmul", "mm" }, { "matmul", "bmm" },
		{ "div", "truediv" }, { "subtract", "sub" }, { "multiply", "mul" }, { "divide", "div" } };
	if (!strcmp(label, found))
		return 1;
	for (size_t i = 0; i < WW_ARRAY_LEN(same); i++)
		if ((!strcmp(label, same[i][0]) && !strcmp(found, same[i][1])) ||
			(!strcmp(label, same[i][1]) && !strcmp(found, same[i][0])))
			return 1;
	return 0;
}

static int matches(const char *label, const char *name)
{
	char key[KEY];
	key_of(name, key);
	return means(label, key);
}

/* Whether the node is the operator, or came from the module or function, that a label names. */
static int node_has(const json_t *node, const char *label)
{
	const json_t *from = json_object_get(node, "from"), *item;
	size_t i;
	if (matches(label, ww_json_str(node, "op", "")))
		return 1;
	json_array_foreach(from, i, item)
		if (json_is_string(item) && matches(label, json_string_value(item)))
			return 1;
	return 0;
}

/* Modules and functions that leave no operator in a graph. */
static int leaves_nothing(const char *label) { return !strcmp(label, "identity") || strstr(label, "dropout") != NULL; }

static int is_in_text(const char *tokens, const char *label)
{
	char word[KEY];
	for (const char *p = tokens ? tokens : ""; *p;) {
		size_t n = strcspn(p, " "), skip = *p == '.';
		if (n - skip < sizeof(word)) {
			memcpy(word, p + skip, n - skip);
			word[n - skip] = 0;
			if (matches(label, word))
				return 1;
		}
		p += n + (p[n] == ' ');
	}
	return 0;
}

/* Operators that need not be named, since composing others adds them. */
static int is_glue(const char *key)
{
	static const char *const glue[] = { "add", "sub", "rsub", "mul", "div", "neg", "pow", "sqrt", "rsqrt", "square",
		"exp", "log", "abs", "sum", "mean", "max", "min", "amax", "amin", "maximum", "minimum", "clamp", "clampmin",
		"clampmax", "where", "maskedfill", "cat", "stack", "index", "indexselect", "gather", "view", "reshape",
		"flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "t", "expand", "expandas", "contiguous",
		"clone", "detach", "alias", "liftfreshcopy", "to", "tocopy", "typeas", "slice", "select", "narrow", "split",
		"chunk", "splitwithsizes", "unbind", "getitem", "dropout", "zeros", "zeroslike", "ones", "oneslike", "full",
		"fulllike", "arange", "empty", "scalartensor", "gt", "ge", "lt", "le", "eq", "ne", "logicalnot", "logicaland",
		"bitwisenot", "tril", "triu", "repeat", "repeatinterleave", "movedim", "copy", "fill", "reciprocal", "roll",
		"flip", "numpyt", "mt", "broadcastto", "newzeros", "newones", "eye", "std", "var", "norm", "linalgvectornorm",
		"sumtosize", "einsum", "matmul", "mm", "bmm", "tanh", "sigmoid" };
	return ww_word_at(key, glue, WW_ARRAY_LEN(glue)) >= 0;
}

static int is_named(const json_t *ops, const json_t *node)
{
	const json_t *op;
	char key[KEY];
	size_t i;
	json_array_foreach(ops, i, op) {
		key_of(json_string_value(op), key);
		if (node_has(node, key))
			return 1;
	}
	return 0;
}

static void say(struct ww_str *why, const char *what, const char *how)
{
	ww_str_addf(why, "%s%.60s %s", why->len ? "; " : "", what, how);
}

static int has_origins(const json_t *nodes)
{
	const json_t *n;
	size_t i;
	json_array_foreach(nodes, i, n)
		if (json_array_size(json_object_get(n, "from")))
			return 1;
	return 0;
}

static void check_named(const json_t *ops, const json_t *nodes, const char *tokens, struct ww_str *why)
{
	const json_t *op, *n;
	char key[KEY];
	size_t i, k;
	json_array_foreach(ops, i, op) {
		int found = 0;
		key_of(json_string_value(op), key);
		json_array_foreach(nodes, k, n)
			found = found || node_has(n, key);
		if (!found && *key && !leaves_nothing(key) && (has_origins(nodes) || !is_in_text(tokens, key)))
			say(why, json_string_value(op), "is not in the graph");
	}
}

static void check_all_named(const json_t *ops, const json_t *nodes, struct ww_str *why)
{
	const json_t *n;
	char key[KEY], last[KEY] = "";
	size_t k;
	json_array_foreach(nodes, k, n) {
		key_of(ww_json_str(n, "op", ""), key);
		if (is_glue(key) || !strcmp(key, last) || !json_array_size(json_object_get(n, "from")) || is_named(ops, n))
			continue;
		say(why, ww_json_str(n, "op", ""), "is not named");
		memcpy(last, key, sizeof(last));
	}
}

int ww_labels_check(const json_t *ops, const json_t *graph, const char *tokens, struct ww_str *why)
{
	const json_t *nodes = json_object_get(graph, "nodes");
	size_t before = why->len;
	check_named(ops, nodes, tokens, why);
	if (json_array_size(ops))
		check_all_named(ops, nodes, why);
	return why->len > before;
}
