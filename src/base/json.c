#include "base/json.h"
#include "base/fs.h"

#include <math.h>
#include <string.h>

enum ww_rc ww_json_parse(const char *text, size_t n, const char *what, json_t **out, struct ww_err *err)
{
	json_error_t e;
	*out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
	if (!*out)
		return ww_err_set(err, WW_ERR_PROTOCOL, "%s is not valid JSON: %s at line %d column %d", what, e.text,
				  e.line, e.column);
	return WW_OK;
}

enum ww_rc ww_json_read_file(const char *path, size_t max_bytes, json_t **out, struct ww_err *err)
{
	struct ww_str text = WW_STR_INIT(max_bytes);
	enum ww_rc rc = ww_fs_read(path, max_bytes, &text, err);
	if (rc == WW_OK)
		rc = ww_json_parse(text.p, text.len, path, out, err);
	ww_str_release(&text);
	return rc;
}

static int dump_to_str(const char *bytes, size_t n, void *data)
{
	ww_str_add(data, bytes, n);
	return 0;
}

void ww_json_add(struct ww_str *s, const json_t *v)
{
	json_dump_callback(v, dump_to_str, s, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
}

void ww_json_add_pretty(struct ww_str *s, const json_t *v)
{
	json_dump_callback(v, dump_to_str, s, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
}

static enum ww_rc wrong(const json_t *obj, const char *key, const char *what, const char *type, struct ww_err *err)
{
	return ww_err_set(err, WW_ERR_PROTOCOL, "%s: member \"%s\" %s, expected %s", what, key,
			  json_object_get(obj, key) ? "has the wrong type" : "is missing", type);
}

enum ww_rc ww_json_get_str(const json_t *obj, const char *key, const char *what, const char **out, struct ww_err *err)
{
	*out = json_string_value(json_object_get(obj, key));
	return *out ? WW_OK : wrong(obj, key, what, "a string", err);
}

enum ww_rc ww_json_get_int(const json_t *obj, const char *key, const char *what, int64_t *out, struct ww_err *err)
{
	const json_t *v = json_object_get(obj, key);
	if (!json_is_integer(v))
		return wrong(obj, key, what, "an integer", err);
	*out = json_integer_value(v);
	return WW_OK;
}

enum ww_rc ww_json_get_num(const json_t *obj, const char *key, const char *what, double *out, struct ww_err *err)
{
	const json_t *v = json_object_get(obj, key);
	*out = ww_json_to_real(v, NAN);
	if (!json_is_number(v) && !json_is_string(v))
		return wrong(obj, key, what, "a number", err);
	return WW_OK;
}

enum ww_rc ww_json_get_bool(const json_t *obj, const char *key, const char *what, int *out, struct ww_err *err)
{
	const json_t *v = json_object_get(obj, key);
	if (!json_is_boolean(v))
		return wrong(obj, key, what, "true or false", err);
	*out = json_is_true(v);
	return WW_OK;
}

enum ww_rc ww_json_get_array(const json_t *obj, const char *key, const char *what, json_t **out, struct ww_err *err)
{
	*out = json_object_get(obj, key);
	return json_is_array(*out) ? WW_OK : wrong(obj, key, what, "an array", err);
}

enum ww_rc ww_json_get_object(const json_t *obj, const char *key, const char *what, json_t **out, struct ww_err *err)
{
	*out = json_object_get(obj, key);
	return json_is_object(*out) ? WW_OK : wrong(obj, key, what, "an object", err);
}

const char *ww_json_str(const json_t *obj, const char *key, const char *def)
{
	const char *s = json_string_value(json_object_get(obj, key));
	return s ? s : def;
}

int64_t ww_json_int(const json_t *obj, const char *key, int64_t def)
{
	const json_t *v = json_object_get(obj, key);
	return json_is_integer(v) ? json_integer_value(v) : def;
}

double ww_json_num(const json_t *obj, const char *key, double def)
{
	return ww_json_to_real(json_object_get(obj, key), def);
}

int ww_json_bool(const json_t *obj, const char *key, int def)
{
	const json_t *v = json_object_get(obj, key);
	return json_is_boolean(v) ? json_is_true(v) : def;
}

json_t *ww_json_real(double v)
{
	if (isnan(v))
		return json_string("nan");
	if (isinf(v))
		return json_string(v > 0 ? "inf" : "-inf");
	return json_real(v);
}

double ww_json_to_real(const json_t *v, double def)
{
	if (json_is_number(v))
		return json_number_value(v);
	const char *s = json_string_value(v);
	if (!s)
		return def;
	return !strcmp(s, "nan") ? NAN : !strcmp(s, "inf") ? INFINITY : !strcmp(s, "-inf") ? -INFINITY : def;
}
