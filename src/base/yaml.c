/* yaml.c - libfyaml's tree to jansson's.
 *
 * YAML guesses types from spelling ("no", "1e3", "0x10"), and readers guess differently.  Here a scalar stays text and
 * the option it is meant for converts it, so a recipe and the command line accept the same words.  Anchors and aliases
 * can make a small file expand to gigabytes; nothing that we read needs them, so they are refused, like tags.
 */
#include "base/yaml.h"
#include "base/fs.h"

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 16 };

struct reader {
	const char *what;
	struct ww_err *err;
};

static enum ww_rc complain(struct reader *r, struct fy_node *n, const char *why)
{
	struct fy_token *t = fy_node_is_scalar(n) ? fy_node_get_scalar_token(n) : NULL;
	const struct fy_mark *m = t ? fy_token_start_mark(t) : NULL;
	if (m)
		return ww_err_set(r->err, WW_ERR_USAGE, "%s:%d: %s", r->what, m->line + 1, why);
	return ww_err_set(r->err, WW_ERR_USAGE, "%s: %s", r->what, why);
}

static enum ww_rc convert(struct reader *r, struct fy_node *n, int depth, json_t **out);

static enum ww_rc convert_scalar(struct reader *r, struct fy_node *n, json_t **out)
{
	size_t len = 0;
	const char *s = n ? fy_node_get_scalar(n, &len) : NULL;
	int plain = !n || fy_node_get_style(n) == FYNS_PLAIN;
	if (plain && (!s || !len || (len == 1 && *s == '~') || (len == 4 && !memcmp(s, "null", 4))))
		*out = json_null();
	else
		*out = json_stringn(s, len);
	return *out ? WW_OK : complain(r, n, "text that is not UTF-8");
}

static enum ww_rc convert_sequence(struct reader *r, struct fy_node *n, int depth, json_t *list)
{
	void *it = NULL;
	for (struct fy_node *item; (item = fy_node_sequence_iterate(n, &it));) {
		json_t *v = NULL;
		WW_CHECK(convert(r, item, depth + 1, &v));
		json_array_append_new(list, v);
	}
	return WW_OK;
}

static enum ww_rc convert_mapping(struct reader *r, struct fy_node *n, int depth, json_t *object)
{
	void *it = NULL;
	for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(n, &it));) {
		struct fy_node *k = fy_node_pair_key(pair);
		json_t *v = NULL;
		size_t len = 0;
		const char *key = k && fy_node_is_scalar(k) ? fy_node_get_scalar(k, &len) : NULL;
		char name[128];
		if (!key || !len || len >= sizeof(name) || memchr(key, 0, len))
			return ww_err_set(r->err, WW_ERR_USAGE, "%s: a key that is not a short word", r->what);
		memcpy(name, key, len);
		name[len] = 0;
		if (json_object_get(object, name))
			return ww_err_set(r->err, WW_ERR_USAGE, "%s: the key \"%s\" occurs twice", r->what, name);
		WW_CHECK(convert(r, fy_node_pair_value(pair), depth + 1, &v));
		if (json_object_set_new(object, name, v) < 0)
			return complain(r, k, "a key that is not UTF-8");
	}
	return WW_OK;
}

static enum ww_rc convert(struct reader *r, struct fy_node *n, int depth, json_t **out)
{
	enum ww_rc rc;
	if (depth > DEPTH_MAX)
		return ww_err_set(r->err, WW_ERR_USAGE, "%s: nested too deeply", r->what);
	if (n && (fy_node_is_alias(n) || fy_node_get_tag_token(n)))
		return complain(r, n, "aliases and tags are not supported");
	if (!n || fy_node_is_scalar(n))
		return convert_scalar(r, n, out);
	json_t *v = fy_node_is_sequence(n) ? json_array() : json_object();
	rc = fy_node_is_sequence(n) ? convert_sequence(r, n, depth, v) : convert_mapping(r, n, depth, v);
	if (rc == WW_OK)
		*out = v;
	else
		json_decref(v);
	return rc;
}

/* The parser's first error, with its line. */
static enum ww_rc parse_error(struct fy_diag *diag, const char *what, struct ww_err *err)
{
	void *it = NULL;
	struct fy_diag_error *e = diag ? fy_diag_errors_iterate(diag, &it) : NULL;
	if (e && e->msg)
		return ww_err_set(err, WW_ERR_USAGE, "%s:%d: not YAML: %s", what, e->line, e->msg);
	return ww_err_set(err, WW_ERR_USAGE, "%s is empty", what);
}

/* libfyaml writes what it thinks of a file to standard error, unless somebody else listens. */
static void say_nothing(struct fy_diag *diag, void *user, const char *text, size_t n) {}

static enum ww_rc parse(const char *text, size_t n, const char *what, json_t **out, struct ww_err *err)
{
	struct fy_diag_cfg quiet;
	struct fy_document *doc = NULL;
	struct reader r = { what, err };
	enum ww_rc rc;
	fy_diag_cfg_default(&quiet);
	quiet.fp = NULL;
	quiet.output_fn = say_nothing;
	struct fy_diag *diag = fy_diag_create(&quiet);
	if (diag)
		fy_diag_set_collect_errors(diag, true);
	struct fy_parse_cfg cfg = { .diag = diag, .flags = FYPCF_QUIET };
	doc = fy_document_build_from_string(&cfg, text, n);
	rc = doc ? convert(&r, fy_document_root(doc), 0, out) : parse_error(diag, what, err);
	fy_document_destroy(doc);
	fy_diag_destroy(diag);
	return rc;
}

enum ww_rc ww_yaml_read(const char *path, size_t max_bytes, json_t **out, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(max_bytes);
	WW_CHECK(ww_fs_read(path, max_bytes, &text, err));
	return parse(text.p, text.len, path, out, err);
}
