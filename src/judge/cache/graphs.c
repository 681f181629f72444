/* graphs.c - see graphs.h. */
#include "judge/cache/graphs.h"

#include "base/json.h"
#include "base/log.h"
#include "judge/cache/answers.h"
#include "task/graph/check.h"

#include <string.h>

enum { MAX_GRAPH_BYTES = 16 << 20 };

/* 0: without a name for what makes graphs nothing can be kept. */
static int key_of(const struct ww_ref *r, const struct ww_task *task, char key[WW_HASH_HEX])
{
	const struct ww_ref_info *i = ww_ref_info(r);
	char bridge[WW_HASH_HEX], target = (char)('0' + i->device.target);
	struct ww_err err = WW_ERR_INIT;
	if (ww_bridge_id(bridge, &err) != WW_OK) {
		ww_log(WW_LOG_WARN, "the graph is not written to the cache: %s", err.msg);
		return 0;
	}
	int cuda = i->device.target == WW_TARGET_CUDA;
	const char *device = cuda ? i->device_name : "", *cudnn = cuda ? i->cudnn : "";
	struct ww_hash_part parts[] = { { bridge, strlen(bridge) }, { i->torch, strlen(i->torch) },
		{ i->python, strlen(i->python) }, { &target, 1 }, { device, strlen(device) }, { cudnn, strlen(cudnn) },
		{ task->name, strlen(task->name) }, { task->id, strlen(task->id) } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), key);
	return 1;
}

static json_t *look_up(struct ww_store *s, const char *key)
{
	ww_auto_str text = WW_STR_INIT(MAX_GRAPH_BYTES);
	struct ww_err err = WW_ERR_INIT;
	json_t *graph = NULL;
	int found;
	if (ww_store_get(s, "graph", key, &text, &found, &err) == WW_OK && found &&
		ww_json_parse(text.p, text.len, "a cached graph", &graph, &err) != WW_OK)
		ww_log(WW_LOG_WARN, "%s", err.msg);
	if (graph && ww_graph_check(graph, &err) != WW_OK) { /* kept by an earlier version */
		json_decref(graph);
		graph = NULL;
	}
	return graph;
}

static enum ww_rc keep(struct ww_store *s, const char *key, const json_t *graph, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_GRAPH_BYTES);
	ww_json_add(&text, graph);
	return text.cut ? WW_OK : ww_store_put(s, "graph", key, text.p, text.len, err);
}

enum ww_rc ww_graphs_load(struct ww_cached_graph *k, struct ww_store *s, struct ww_ref *r, const struct ww_task *task,
	uint64_t seed, struct ww_err *err)
{
	int used;
	if (!s || !key_of(r, task, k->key))
		k->key[0] = 0;
	json_t *cached = k->graph ? json_incref(k->graph) : k->key[0] ? look_up(s, k->key) : NULL;
	enum ww_rc rc = ww_ref_load_with_graph(r, task, seed, cached, &used, err);
	if (rc == WW_OK && used && !k->graph)
		k->graph = json_incref(cached);
	json_decref(cached);
	return rc;
}

enum ww_rc ww_graphs_graph(struct ww_cached_graph *k, struct ww_ref *r, struct ww_err *err)
{
	if (k->graph)
		return WW_OK;
	WW_CHECK(ww_ref_graph(r, &k->graph, err));
	k->made = 1;
	return WW_OK;
}

/* What could not be asked now may be answered another time: then nothing is kept. */
enum ww_rc ww_graphs_keep(struct ww_cached_graph *k, struct ww_store *s, struct ww_ref *r, struct ww_err *err)
{
	int all = 1;
	if (!k->made)
		return WW_OK;
	if (ww_ref_info(r)->device.target == WW_TARGET_CUDA)
		WW_CHECK(ww_ref_tf32(r, k->graph, &all, err));
	k->made = 0;
	return k->key[0] && all ? keep(s, k->key, k->graph, err) : WW_OK;
}
