/* json_schema.c - see json_schema.h.
 *
 * A node is made for each schema that is met, that of a $ref once.  Then each node's choices are flattened, so that the
 * guide never follows anyOf or $ref itself, and `levels` is found as a least fixed point: a schema that contains itself
 * without a way out has infinitely many, and the guide opens only what it can also close.
 */
#include "infer/json_schema.h"

#include "base/arena.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 4096, TEXTS_MAX = 8192, TEXT_BYTES_MAX = 1 << 20, PATH_BYTES = 256, INFINITE = UINT8_MAX };

static struct ww_json_node any_nodes[] = { { .kinds = WW_JSON_ANY, .is_free = 1, .object_levels = 1, .choices_n = 1 },
	{ .kinds = WW_JSON_OBJECT, .is_free = 1, .levels = 1, .object_levels = 1, .choices = 1, .choices_n = 1 } };
static uint32_t any_choices[] = { 0, 1 };
const struct ww_json_schema ww_json_any_object = { .nodes = any_nodes, .choices = any_choices, .root = 1 };

struct compiler {
	struct ww_json_schema s; /* first, since ww_json_schema_free() gets its address */
	struct ww_arena strings;
	const json_t *root, **source; /* of each node */
	size_t nodes_n, nodes_cap, source_cap, texts_n, texts_cap, choices_n, choices_cap;
	char path[PATH_BYTES];
	int depth;
	struct ww_err *err;
};

static const struct {
	const char *name;
	int bit;
} kinds[] = { { "object", WW_JSON_OBJECT }, { "array", WW_JSON_ARRAY }, { "string", WW_JSON_STRING },
	{ "number", WW_JSON_NUMBER }, { "integer", WW_JSON_INTEGER }, { "boolean", WW_JSON_BOOLEAN },
	{ "null", WW_JSON_NULL } };

#define REFUSE(c, ...) ww_err_set((c)->err, WW_ERR_USAGE, __VA_ARGS__)

static enum ww_rc check_keywords(struct compiler *c, const json_t *schema)
{
	static const char *const annotations[] = { "title", "description", "default", "examples", "deprecated", "readOnly",
		"writeOnly", "$schema", "$id", "$comment", "$defs", "definitions" };
	static const char *const constraints[] = { "type", "enum", "const", "properties", "required",
		"additionalProperties", "items" };
	const char *alone = json_object_get(schema, "$ref") ? "$ref" : json_object_get(schema, "anyOf") ? "anyOf" : NULL;
	const char *key;
	json_t *v;
	if (!json_is_object(schema))
		return REFUSE(c, "%s must be an object", c->path);
	json_object_foreach((json_t *)schema, key, v) {
		if (ww_word_at(key, annotations, WW_ARRAY_LEN(annotations)) >= 0 || (alone && !strcmp(key, alone)))
			continue;
		if (ww_word_at(key, constraints, WW_ARRAY_LEN(constraints)) < 0 && strcmp(key, "anyOf"))
			return REFUSE(c,
				"%s: the keyword \"%.100s\" is not supported; type, enum, const, properties, required, "
				"additionalProperties, items, anyOf, $ref and $defs are",
				c->path, key);
		if (alone)
			return REFUSE(c, "%s: \"%.100s\" beside \"%s\" is not supported; move it into \"%s\"", c->path, key, alone,
				!strcmp(alone, "anyOf") ? "each schema of anyOf" : "the schema that $ref names");
	}
	return WW_OK;
}

static enum ww_rc compile(struct compiler *c, const json_t *schema, const char *step, uint32_t *out);

static enum ww_rc read_kinds(struct compiler *c, const json_t *type, uint8_t *out)
{
	size_t n = json_is_array(type) ? json_array_size(type) : 1;
	*out = type ? 0 : WW_JSON_ANY;
	for (size_t i = 0; type && i < n; i++) {
		const json_t *v = json_is_array(type) ? json_array_get(type, i) : type;
		const char *name = json_is_string(v) ? json_string_value(v) : "";
		size_t k = 0;
		while (k < WW_ARRAY_LEN(kinds) && strcmp(kinds[k].name, name))
			k++;
		if (k == WW_ARRAY_LEN(kinds))
			return REFUSE(c,
				"%s: \"type\" must be object, array, string, number, integer, boolean, null or a list of these",
				c->path);
		*out |= (uint8_t)kinds[k].bit;
	}
	return *out ? WW_OK : REFUSE(c, "%s: \"type\" is an empty list", c->path);
}

static int kind_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_STRING: return WW_JSON_STRING;
	case JSON_INTEGER: return WW_JSON_INTEGER | WW_JSON_NUMBER;
	case JSON_REAL: return WW_JSON_NUMBER;
	case JSON_TRUE:
	case JSON_FALSE: return WW_JSON_BOOLEAN;
	case JSON_NULL: return WW_JSON_NULL;
	default: return 0;
	}
}

/* Room for n more texts in a row; *first is the first. */
static enum ww_rc more_texts(struct compiler *c, size_t n, uint32_t *first)
{
	if (c->texts_n + n > TEXTS_MAX)
		return REFUSE(c, "the schema has more than %d properties and values of enumerations", TEXTS_MAX);
	if (!WW_GROW(c->s.texts, &c->texts_cap, c->texts_n + n))
		return ww_nomem(c->err);
	*first = (uint32_t)c->texts_n;
	c->texts_n += n;
	return WW_OK;
}

static enum ww_rc set_text(struct compiler *c, uint32_t at, const json_t *v, uint32_t value, int required)
{
	ww_auto_str s = WW_STR_INIT(TEXT_BYTES_MAX);
	ww_json_add(&s, v);
	char *copy = s.cut ? NULL : ww_arena_strdup(&c->strings, s.p);
	c->s.texts[at] = (struct ww_json_text){ copy, value, required };
	return copy ? WW_OK : REFUSE(c, "the schema's keys and values have more than %d bytes", TEXT_BYTES_MAX);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct ww_json_text *)a)->text, ((const struct ww_json_text *)b)->text);
}

/* enum, const, or both: the scalars that all of the schema allows. */
static enum ww_rc compile_values(struct compiler *c, const json_t *schema, uint32_t node)
{
	const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const"), *v;
	size_t n = list ? json_array_size(list) : 1;
	uint8_t allowed = c->s.nodes[node].kinds;
	for (size_t i = 0; i < n; i++) {
		uint32_t at;
		v = list ? json_array_get(list, i) : one;
		if (!kind_of(v))
			return REFUSE(c, "%s: only texts, numbers, true, false and null are supported in enum and const", c->path);
		if (!(kind_of(v) & allowed) || (one && !json_equal(v, one)))
			continue;
		WW_CHECK(more_texts(c, 1, &at));
		WW_CHECK(set_text(c, at, v, 0, 0));
		c->s.nodes[node].texts = at + 1 - ++c->s.nodes[node].texts_n;
	}
	c->s.nodes[node].kinds = 0;
	if (c->s.nodes[node].texts_n) /* in order, so that those that begin alike are neighbours */
		qsort(c->s.texts + c->s.nodes[node].texts, c->s.nodes[node].texts_n, sizeof(*c->s.texts), by_text);
	return c->s.nodes[node].texts_n ? WW_OK : REFUSE(c, "%s: no value fits its enum, const and type", c->path);
}

static int lists(const json_t *array, const char *name)
{
	const json_t *v;
	size_t i;
	json_array_foreach(array, i, v)
		if (json_is_string(v) && !strcmp(json_string_value(v), name))
			return 1;
	return 0;
}

static enum ww_rc compile_object(struct compiler *c, const json_t *schema, uint32_t node)
{
	json_t *properties = json_object_get(schema, "properties"), *v;
	const json_t *required = json_object_get(schema, "required"),
				 *more = json_object_get(schema, "additionalProperties");
	const char *key;
	uint32_t at = 0;
	size_t i;
	if (more && !json_is_boolean(more))
		return REFUSE(c, "%s: \"additionalProperties\" must be true or false; a schema is not supported", c->path);
	if ((properties && !json_is_object(properties)) || (required && !json_is_array(required)))
		return REFUSE(c, "%s: \"properties\" must be an object and \"required\" an array", c->path);
	json_array_foreach(required, i, v)
		if (!json_is_string(v) || !json_object_get(properties, json_string_value(v)))
			return REFUSE(c, "%s: \"required\" names \"%.100s\", which is not among its properties", c->path,
				json_is_string(v) ? json_string_value(v) : "");
	c->s.nodes[node].is_free = !properties && !json_is_false(more);
	c->s.nodes[node].texts_n = (uint32_t)json_object_size(properties);
	WW_CHECK(more_texts(c, json_object_size(properties), &at));
	c->s.nodes[node].texts = at;
	json_object_foreach(properties, key, v) {
		uint32_t value;
		json_auto_t *name = json_string(key);
		WW_CHECK(compile(c, v, key, &value));
		WW_CHECK(set_text(c, at++, name, value, lists(required, key)));
	}
	return WW_OK;
}

/* The schema that "#/a/b" names, or NULL. */
static const json_t *find_ref(const struct compiler *c, const char *ref)
{
	const json_t *v = *ref == '#' ? c->root : NULL;
	for (ref += *ref == '#'; v && *ref == '/';) {
		size_t n = strcspn(++ref, "/");
		char name[PATH_BYTES];
		snprintf(name, sizeof(name), "%.*s", (int)n, ref);
		v = json_object_get(v, name);
		ref += n;
	}
	return *ref ? NULL : v;
}

static enum ww_rc more_choices(struct compiler *c, size_t n)
{
	return WW_GROW(c->s.choices, &c->choices_cap, c->choices_n + n) ? WW_OK : ww_nomem(c->err);
}

static enum ww_rc compile_union(struct compiler *c, const json_t *schema, uint32_t node)
{
	const json_t *any = json_object_get(schema, "anyOf"), *ref = json_object_get(schema, "$ref");
	const json_t *target = json_is_string(ref) ? find_ref(c, json_string_value(ref)) : NULL;
	size_t n = ref ? 1 : json_array_size(any), first = c->choices_n;
	if (ref && !target)
		return REFUSE(c, "%s: \"$ref\" must be \"#\" or \"#/$defs/NAME\" of this schema", c->path);
	if (!n || n > WW_JSON_CHOICES_MAX)
		return REFUSE(c, "%s: \"anyOf\" must be an array of 1 to %d schemas", c->path, WW_JSON_CHOICES_MAX);
	WW_CHECK(more_choices(c, n));
	c->choices_n += n;
	c->s.nodes[node].kinds = 0;
	c->s.nodes[node].choices = (uint32_t)first;
	c->s.nodes[node].choices_n = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		uint32_t at = 0;
		while (ref && at < c->nodes_n && c->source[at] != target)
			at++;
		if (!ref || at == c->nodes_n)
			WW_CHECK(compile(c, ref ? target : json_array_get(any, i), ref ? json_string_value(ref) : "anyOf", &at));
		c->s.choices[first + i] = at;
	}
	return WW_OK;
}

static enum ww_rc add_node(struct compiler *c, const json_t *source, uint32_t *out)
{
	if (c->nodes_n == NODES_MAX)
		return REFUSE(c, "the schema has more than %d parts", NODES_MAX);
	if (!WW_GROW(c->s.nodes, &c->nodes_cap, c->nodes_n + 1) || !WW_GROW(c->source, &c->source_cap, c->nodes_n + 1))
		return ww_nomem(c->err);
	*out = (uint32_t)c->nodes_n++;
	c->s.nodes[*out] = any_nodes[0];
	c->s.nodes[*out].choices_n = 0;
	c->source[*out] = source;
	return WW_OK;
}

static enum ww_rc compile_node(struct compiler *c, const json_t *schema, uint32_t node)
{
	const json_t *items = json_object_get(schema, "items");
	uint32_t at = 0;
	uint8_t allowed;
	if (json_object_get(schema, "$ref") || json_object_get(schema, "anyOf"))
		return compile_union(c, schema, node);
	WW_CHECK(read_kinds(c, json_object_get(schema, "type"), &allowed));
	c->s.nodes[node].kinds = allowed;
	if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
		return compile_values(c, schema, node);
	if (items)
		WW_CHECK(compile(c, items, "items", &at));
	c->s.nodes[node].items = at;
	return compile_object(c, schema, node);
}

static enum ww_rc compile(struct compiler *c, const json_t *schema, const char *step, uint32_t *out)
{
	size_t length = strlen(c->path);
	snprintf(c->path + length, sizeof(c->path) - length, "%s%.60s", length ? "." : "", step);
	if (++c->depth > WW_JSON_LEVELS_MAX)
		return REFUSE(c, "%s: the schema is nested deeper than %d levels", c->path, WW_JSON_LEVELS_MAX);
	WW_CHECK(check_keywords(c, schema));
	WW_CHECK(add_node(c, schema, out));
	WW_CHECK(compile_node(c, schema, *out));
	c->depth--;
	c->path[length] = 0;
	return WW_OK;
}

/* ---- flat choices and levels ------------------------------------------------------------------------------------- */

/* Append the nodes with kinds or texts that `node` may be, each once. */
static enum ww_rc flatten(struct compiler *c, uint32_t node, size_t first, uint8_t *met)
{
	struct ww_json_node n = c->s.nodes[node];
	if (met[node]++)
		return WW_OK;
	if (n.kinds || n.texts_n) {
		WW_CHECK(more_choices(c, 1));
		c->s.choices[c->choices_n++] = node;
		return c->choices_n - first <= WW_JSON_CHOICES_MAX
			? WW_OK
			: REFUSE(c, "a value of the schema has more than %d alternatives", WW_JSON_CHOICES_MAX);
	}
	for (uint32_t i = 0; i < n.choices_n; i++)
		WW_CHECK(flatten(c, c->s.choices[n.choices + i], first, met));
	return WW_OK;
}

/* The direct choices of unions are needed until the last node is flat. */
static enum ww_rc flatten_all(struct compiler *c)
{
	ww_auto_free struct ww_json_node *flat = NULL;
	WW_CHECK(WW_NEW(flat, c->nodes_n, c->err));
	memcpy(flat, c->s.nodes, c->nodes_n * sizeof(*flat));
	for (uint32_t i = 0; i < c->nodes_n; i++) {
		uint8_t met[NODES_MAX] = { 0 };
		size_t first = c->choices_n;
		WW_CHECK(flatten(c, i, first, met));
		flat[i].choices = (uint32_t)first;
		flat[i].choices_n = (uint32_t)(c->choices_n - first);
	}
	memcpy(c->s.nodes, flat, c->nodes_n * sizeof(*flat));
	return WW_OK;
}

static uint8_t one_more(uint8_t levels) { return levels == INFINITE ? INFINITE : (uint8_t)(levels + 1); }

static uint8_t levels_of(const struct ww_json_schema *s, struct ww_json_node *n)
{
	uint8_t inside = 0, least = INFINITE;
	for (uint32_t i = 0; n->kinds && i < n->texts_n; i++) {
		const struct ww_json_text *t = &s->texts[n->texts + i];
		if (t->required && s->nodes[t->value].levels > inside)
			inside = s->nodes[t->value].levels;
	}
	n->object_levels = one_more(inside);
	if (n->kinds & WW_JSON_OBJECT)
		least = n->object_levels;
	if (n->kinds & WW_JSON_ARRAY)
		least = 1;
	if (n->kinds & ~(WW_JSON_OBJECT | WW_JSON_ARRAY) || (!n->kinds && n->texts_n))
		least = 0;
	for (uint32_t i = 0; i < n->choices_n; i++) {
		uint8_t levels = s->nodes[s->choices[n->choices + i]].levels;
		least = levels < least ? levels : least;
	}
	return least;
}

static void find_levels(struct compiler *c)
{
	int changed = 1;
	for (size_t i = 0; i < c->nodes_n; i++)
		c->s.nodes[i].levels = INFINITE;
	while (changed) {
		changed = 0;
		for (size_t i = 0; i < c->nodes_n; i++) {
			uint8_t levels = levels_of(&c->s, &c->s.nodes[i]);
			changed |= levels != c->s.nodes[i].levels;
			c->s.nodes[i].levels = levels;
		}
	}
}

static enum ww_rc check_root(struct compiler *c)
{
	const struct ww_json_node *root = &c->s.nodes[c->s.root];
	for (uint32_t i = 0; i < root->choices_n; i++)
		if (c->s.nodes[c->s.choices[root->choices + i]].kinds != WW_JSON_OBJECT)
			return REFUSE(c, "the schema itself must have the type object");
	if (root->levels > WW_JSON_LEVELS_MAX)
		return REFUSE(c, "no object of at most %d levels fits the schema: it requires itself", WW_JSON_LEVELS_MAX);
	return WW_OK;
}

enum ww_rc ww_json_schema_new(const json_t *schema, struct ww_json_schema **out, struct ww_err *err)
{
	struct compiler *c;
	uint32_t any;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(c, 1, err));
	ww_arena_init(&c->strings, 2 * TEXT_BYTES_MAX);
	c->root = schema;
	c->err = err;
	WW_TRY(add_node(c, NULL, &any));
	WW_TRY(compile(c, schema, "schema", &c->s.root));
	WW_TRY(flatten_all(c));
	find_levels(c);
	WW_TRY(check_root(c));
	*out = &c->s;
out:
	free(c->source);
	c->source = NULL;
	if (rc != WW_OK)
		ww_json_schema_free(&c->s);
	return rc;
}

void ww_json_schema_free(struct ww_json_schema *s)
{
	struct compiler *c = (struct compiler *)s;
	if (!c)
		return;
	ww_arena_release(&c->strings);
	free(s->nodes);
	free(s->texts);
	free(s->choices);
	free(c);
}
