#include "base/json.h"
#include "base/fs.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum ww_rc ww_json_parse(const char *text, size_t n, const char *what, json_t **out, struct ww_err *err)
{
	json_error_t e;
	*out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
	if (!*out)
		return ww_err_set(
			err, WW_ERR_PROTOCOL, "%s is not valid JSON: %s at line %d column %d", what, e.text, e.line, e.column);
	return WW_OK;
}

/* Of text that need not be JSON: what is counted is at least what a parser would make of it. */
static void count_values(const char *text, size_t n, size_t *values, size_t *containers)
{
	int quoted = 0;
	*values = *containers = 0;
	for (size_t i = 0; i < n; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else if (!quoted && (text[i] == '[' || text[i] == '{'))
			++*containers;
		else if (!quoted && (text[i] == ',' || text[i] == ':'))
			++*values;
	}
	*values += *containers;
}

enum ww_rc ww_json_parse_bounded(
	const char *text, size_t n, const char *what, int max_containers, int max_values, json_t **out, struct ww_err *err)
{
	size_t values, containers;
	*out = NULL;
	count_values(text, n, &values, &containers);
	if (containers > (size_t)max_containers || values > (size_t)max_values)
		return ww_err_set(err, WW_ERR_LIMIT, "%s holds more than %d arrays and objects, or %d values", what,
			max_containers, max_values);
	return ww_json_parse(text, n, what, out, err);
}

enum ww_rc ww_json_parse_message(const char *text, size_t n, const char *what, json_t **out, struct ww_err *err)
{
	return ww_json_parse_bounded(text, n, what, WW_JSON_MESSAGE_CONTAINERS, WW_JSON_MESSAGE_VALUES, out, err);
}

enum ww_rc ww_json_read_file(const char *path, size_t max_bytes, json_t **out, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(max_bytes);
	WW_CHECK(ww_fs_read(path, max_bytes, &text, err));
	return ww_json_parse(text.p, text.len, path, out, err);
}

static int dump_to_str(const char *bytes, size_t n, void *data)
{
	ww_str_add(data, bytes, n);
	return 0;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* jansson looks for cycles while it writes, by a hash table of the containers' addresses, and emits a few bytes at a
 * time: that was a third of a request's cost in the server.  Our values are trees, so this walks them. The bytes are
 * those of json_dump_callback() with JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17); a test compares them. */

/* ww_str_add() for the short pieces that JSON is made of. */
static inline void put(struct ww_str *s, const char *bytes, size_t n)
{
	if (s->cap <= s->len + n) {
		ww_str_add(s, bytes, n);
		return;
	}
	memcpy(s->p + s->len, bytes, n);
	s->len += n;
	s->p[s->len] = 0;
}

static void add_escaped(struct ww_str *s, unsigned char c)
{
	static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
	for (const char *l = letters; *l; l += 2)
		if ((unsigned char)*l == c) {
			put(s, (char[]){ '\\', l[1] }, 2);
			return;
		}
	ww_str_addf(s, "\\u%04X", c);
}

static void add_string(struct ww_str *s, const char *text, size_t n)
{
	size_t from = 0;
	put(s, "\"", 1);
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c >= 32 && c != '"' && c != '\\')
			continue;
		put(s, text + from, i - from);
		add_escaped(s, c);
		from = i + 1;
	}
	put(s, text + from, n - from);
	put(s, "\"", 1);
}

static void add_integer(struct ww_str *s, int64_t v)
{
	char digits[24], *p = digits + sizeof(digits);
	uint64_t n = v < 0 ? -(uint64_t)v : (uint64_t)v;
	do
		*--p = (char)('0' + n % 10);
	while (n /= 10);
	if (v < 0)
		*--p = '-';
	put(s, p, (size_t)(digits + sizeof(digits) - p));
}

/* Most reals are whole numbers: 0.0, 1.0, -1.0. */
static void add_real(struct ww_str *s, const json_t *v)
{
	double d = json_real_value(v);
	if (fabs(d) < 1e15 && d == (double)(int64_t)d && !(d == 0 && signbit(d))) {
		add_integer(s, (int64_t)d);
		put(s, ".0", 2);
	} else {
		json_dump_callback(v, dump_to_str, s, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
	}
}

static void add_array(struct ww_str *s, const json_t *v)
{
	const json_t *item;
	size_t i;
	put(s, "[", 1);
	json_array_foreach(v, i, item) {
		if (i)
			put(s, ",", 1);
		ww_json_add(s, item);
	}
	put(s, "]", 1);
}

static void add_object(struct ww_str *s, const json_t *v)
{
	json_t *o = (json_t *)(uintptr_t)v; /* jansson's iterators take no const object */
	int first = 1;
	put(s, "{", 1);
	for (void *at = json_object_iter(o); at; at = json_object_iter_next(o, at)) {
		if (!first)
			put(s, ",", 1);
		first = 0;
		add_string(s, json_object_iter_key(at), json_object_iter_key_len(at));
		put(s, ":", 1);
		ww_json_add(s, json_object_iter_value(at));
	}
	put(s, "}", 1);
}

void ww_json_add(struct ww_str *s, const json_t *v)
{
	if (!v)
		return;
	switch (json_typeof(v)) {
	case JSON_OBJECT: add_object(s, v); break;
	case JSON_ARRAY: add_array(s, v); break;
	case JSON_STRING: add_string(s, json_string_value(v), json_string_length(v)); break;
	case JSON_INTEGER: add_integer(s, json_integer_value(v)); break;
	case JSON_REAL: add_real(s, v); break;
	case JSON_TRUE: put(s, "true", 4); break;
	case JSON_FALSE: put(s, "false", 5); break;
	case JSON_NULL: put(s, "null", 4); break;
	}
}

void ww_json_add_pretty(struct ww_str *s, const json_t *v)
{
	json_dump_callback(v, dump_to_str, s, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
}

enum ww_rc ww_json_write_file(const char *dir, const char *name, size_t max_bytes, const json_t *v, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(max_bytes);
	char path[PATH_MAX];
	if (!v)
		return ww_nomem(err);
	if (dir)
		WW_CHECK(ww_fs_join(path, dir, name, err));
	ww_json_add_pretty(&text, v);
	ww_str_addc(&text, '\n');
	if (text.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "%s would be larger than %zu bytes", dir ? path : name, max_bytes);
	return ww_fs_write(dir ? path : name, text.p, text.len, err);
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

const json_t *ww_json_named(const json_t *list, const char *name)
{
	const json_t *o;
	size_t i;
	json_array_foreach(list, i, o)
		if (!strcmp(ww_json_str(o, "name", ""), name))
			return o;
	return NULL;
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
