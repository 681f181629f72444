/* json_read.h - the fast half of ww_json_parse(). */
#ifndef WW_BASE_JSON_READ_H
#define WW_BASE_JSON_READ_H


#include <jansson.h>
#include <stddef.h>

/* The value of a JSON text, NULL where jansson must say what is wrong with it, or whether anything is. */
json_t *ww_json_read(const char *text, size_t n);

#endif
