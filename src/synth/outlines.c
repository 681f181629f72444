/* outlines.c - see outlines.h. */
#include "synth/outlines.h"
#include "base/json.h"
#include "base/log.h"
#include "judge/cache/answers.h"

#include <string.h>

static const char WHOLE[] = "outline", GRAPH[] = "graph"; /* kinds of the store */
enum { MAX_OUTLINE_BYTES = 32 << 20 };

static enum ww_rc key_of(
	struct ww_outliner *worker, const struct ww_task *task, char key[WW_HASH_HEX], struct ww_err *err)
{
	const struct ww_ref_info *i;
	char bridge[WW_HASH_HEX];
	WW_CHECK(ww_outliner_info(worker, &i, err));
	WW_CHECK(ww_bridge_id(bridge, err));
	struct ww_hash_part parts[] = { { bridge, strlen(bridge) }, { i->torch, strlen(i->torch) },
		{ i->python, strlen(i->python) }, { task->id, strlen(task->id) } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), key);
	return WW_OK;
}

static json_t *look_up(struct ww_store *s, const char *kind, const char *key)
{
	ww_auto_str text = WW_STR_INIT(MAX_OUTLINE_BYTES);
	struct ww_err err = WW_ERR_INIT;
	json_t *body = NULL;
	int found;
	if (ww_store_get(s, kind, key, &text, &found, &err) == WW_OK && found &&
		ww_json_parse(text.p, text.len, "a cached outline", &body, &err) != WW_OK)
		ww_log(WW_LOG_WARN, "%s", err.msg);
	return body;
}

static enum ww_rc keep(struct ww_store *s, const char *kind, const char *key, const json_t *body, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_OUTLINE_BYTES);
	ww_json_add(&text, body);
	return text.cut ? WW_OK : ww_store_put(s, kind, key, text.p, text.len, err);
}

enum ww_rc ww_synth_outline(struct ww_store *s, struct ww_outliner *worker, const struct ww_task *task,
	struct ww_outline *out, struct ww_err *err)
{
	char key[WW_HASH_HEX];
	json_t *body;
	if (!s)
		return ww_outline(worker, task, 0, out, err);
	WW_CHECK(key_of(worker, task, key, err));
	if ((body = look_up(s, WHOLE, key))) {
		ww_outline_of(body, out);
		return WW_OK;
	}
	WW_CHECK(ww_outline(worker, task, 0, out, err));
	return out->tokens && out->graph ? keep(s, WHOLE, key, out->body, err) : WW_OK;
}

enum ww_rc ww_synth_graph(struct ww_store *s, struct ww_outliner *worker, const struct ww_task *task,
	struct ww_outline *out, struct ww_err *err)
{
	char key[WW_HASH_HEX];
	json_t *body;
	WW_CHECK(key_of(worker, task, key, err));
	if ((body = look_up(s, WHOLE, key)) || (body = look_up(s, GRAPH, key))) {
		ww_outline_of(body, out);
		return WW_OK;
	}
	WW_CHECK(ww_outline(worker, task, 0, out, err));
	return out->graph ? keep(s, GRAPH, key, out->body, err) : WW_OK;
}
