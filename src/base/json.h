/* json.h - jansson with errors in one line.
 *
 * Getters take the object, a key, and say in err which key of which object was missing or of another type: every reader
 * of an external message goes through them.  `what` names the object for that message ("reference worker's reply").
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>
#include <stdint.h>

enum ww_rc ww_json_parse(const char *text, size_t n, const char *what, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* The same of what a client or a model sends.  A tree takes up to 100 times the memory of its text ("{},{},..."), so
 * the arrays and objects of one text, and all values and keys, are counted before there is a tree: WW_ERR_LIMIT. */
enum { WW_JSON_MESSAGE_VALUES = 1 << 18, WW_JSON_MESSAGE_CONTAINERS = 1 << 14 };
enum ww_rc ww_json_parse_message(
	const char *text, size_t n, const char *what, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* With bounds of one's own. */
enum ww_rc ww_json_parse_bounded(const char *text, size_t n, const char *what, int max_containers, int max_values,
	json_t **out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_json_read_file(const char *path, size_t max_bytes, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* The other way, indented and atomic (base/fs.h): dir/name, or `name` where dir is NULL.  Longer than max_bytes is
 * WW_ERR_LIMIT, v NULL is WW_ERR_NOMEM. */
enum ww_rc ww_json_write_file(
	const char *dir, const char *name, size_t max_bytes, const json_t *v, struct ww_err *err) WW_MUST_CHECK;
/* Compact, keys in insertion order, non-ASCII kept, 17 significant digits; without or with indentation. */
void ww_json_add(struct ww_str *s, const json_t *v);
void ww_json_add_pretty(struct ww_str *s, const json_t *v);

/* Required members.  Strings and objects are borrowed from `obj`. */
enum ww_rc ww_json_get_str(
	const json_t *obj, const char *key, const char *what, const char **out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_json_get_int(
	const json_t *obj, const char *key, const char *what, int64_t *out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_json_get_num(
	const json_t *obj, const char *key, const char *what, double *out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_json_get_bool(
	const json_t *obj, const char *key, const char *what, int *out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_json_get_array(
	const json_t *obj, const char *key, const char *what, json_t **out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_json_get_object(
	const json_t *obj, const char *key, const char *what, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* Optional members with a default; a member of another type counts as absent. */
const char *ww_json_str(const json_t *obj, const char *key, const char *def);
int64_t ww_json_int(const json_t *obj, const char *key, int64_t def);
double ww_json_num(const json_t *obj, const char *key, double def);
int ww_json_bool(const json_t *obj, const char *key, int def);

/* The first object of an array whose member "name" is this; NULL where there is none. */
const json_t *ww_json_named(const json_t *list, const char *name);

/* JSON has no NaN and no infinity: numbers go in as themselves when finite, else as the strings "nan", "inf", "-inf",
 * and come back out of either. */
json_t *ww_json_real(double v);
double ww_json_to_real(const json_t *v, double def);
