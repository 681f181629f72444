/* json_guide.h - which bytes may follow while a model writes a JSON object. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Where in an object the text stands.  Small and copied freely: each token of a vocabulary is tried on a copy. */
struct ww_json_guide {
	uint64_t arrays;         /* bit d: the container of depth d + 1 is an array */
	const char *rest;        /* of a literal: what has to follow */
	uint8_t where;           /* enum in json_guide.c */
	uint8_t depth;           /* containers that are open */
	uint8_t count;           /* blanks in a row, digits of a number, digits of an escape */
	uint8_t is_key;          /* of a string */
	uint8_t more, low, high; /* bytes of a character that are missing, and bounds of the next one */
};
#define WW_JSON_GUIDE_INIT { 0 }

/* Take n bytes; 0 where a JSON object that begins with what came before cannot go on with them, and *g is undefined. */
int ww_json_guide_take(struct ww_json_guide *g, const char *text, size_t n);
/* The object is complete: nothing may follow. */
int ww_json_guide_done(const struct ww_json_guide *g);
