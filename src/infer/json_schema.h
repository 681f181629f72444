/* json_schema.h - a JSON schema as tables for json_guide.h, which lets a model write only what fits it.
 *
 * Supported are type (a name or several), enum and const of scalars, properties, required, additionalProperties (true
 * or false), items, anyOf, $ref within the schema, and $defs.  Annotations (title, description, default, ...) are
 * ignored; any other keyword is an error that names it.  Keys that a schema does not list are never written where it
 * lists any.
 */
#pragma once

#include "base/json.h"

enum { WW_JSON_LEVELS_MAX = 64, WW_JSON_CHOICES_MAX = 16 };
enum {
	WW_JSON_OBJECT = 1,
	WW_JSON_ARRAY = 2,
	WW_JSON_STRING = 4,
	WW_JSON_NUMBER = 8,
	WW_JSON_INTEGER = 16,
	WW_JSON_BOOLEAN = 32,
	WW_JSON_NULL = 64,
	WW_JSON_ANY = 127
};

/* A key of an object with the node of its value, or one value of an enumeration; as JSON text. */
struct ww_json_text {
	const char *text;
	uint32_t value;
	int required;
};

/* What a value may be.  Node 0 is any value. */
struct ww_json_node {
	uint8_t kinds;                 /* WW_JSON_*; 0: an enumeration, or only `choices` */
	uint8_t is_free;               /* an object here has any keys and values */
	uint8_t levels, object_levels; /* least nesting depth of a value, and of an object */
	uint32_t texts, texts_n;       /* of ww_json_schema.texts: the keys in order, or the enumeration */
	uint32_t items;                /* node of an array's elements */
	uint32_t choices, choices_n;   /* of ww_json_schema.choices: nodes with kinds or texts, itself or of anyOf */
};

struct ww_json_schema {
	struct ww_json_node *nodes;
	struct ww_json_text *texts;
	uint32_t *choices, root;
};

extern const struct ww_json_schema ww_json_any_object;

/* Tables of a schema, for ww_json_schema_free().  WW_ERR_USAGE: not a schema, a keyword that is not supported, no value
 * of at most 64 levels fits, or the value need not be an object. */
enum ww_rc ww_json_schema_new(const json_t *schema, struct ww_json_schema **out, struct ww_err *err) WW_MUST_CHECK;
void ww_json_schema_free(struct ww_json_schema *s); /* NULL is fine */
