/* json_guide.h - which bytes may follow while a model writes a JSON object that fits a schema. */
#pragma once

#include "infer/json_schema.h"

#include <stddef.h>
#include <stdint.h>

/* One way to parse the text.  Two equal ways have equal bytes up to stack[depth]. */
struct ww_json_reading {
	const char *rest;           /* of true, false or null: what has to follow */
	uint32_t text, text_end;    /* a key or a value of an enumeration: the first that fits so far, and where they end */
	uint32_t text_at;           /* bytes of it that were written */
	uint8_t where;              /* enum in json_guide.c */
	uint8_t depth;              /* containers that are open */
	uint8_t count;              /* blanks in a row, digits of a number, digits of an escape */
	uint8_t is_key, is_integer; /* of a string, of a number */
	uint8_t more, low, high;    /* bytes of a character that are missing, and bounds of the next one */
	struct {
		uint16_t node;
		uint16_t next; /* property that may be next; UINT16_MAX in an array */
	} stack[WW_JSON_LEVELS_MAX];
};

/* All ways to parse the text: more than one where alternatives of anyOf begin alike. */
struct ww_json_guide {
	const struct ww_json_schema *schema;
	int n;
	struct ww_json_reading readings[WW_JSON_CHOICES_MAX];
};

/* Before the object's first byte.  The schema is borrowed. */
void ww_json_guide_init(struct ww_json_guide *g, const struct ww_json_schema *schema);
/* Take n bytes; 0 where an object that begins with what came before cannot go on with them, and *g is undefined. */
int ww_json_guide_take(struct ww_json_guide *g, const char *text, size_t n);
/* Whether it would take them. */
int ww_json_guide_fits(const struct ww_json_guide *g, const char *text, size_t n);
/* The object is complete: nothing may follow. */
int ww_json_guide_done(const struct ww_json_guide *g);
