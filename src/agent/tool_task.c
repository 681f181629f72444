/* tool_task.c - inspect, todo and submit: the beginning, the middle and the end of an episode.
 *
 * todo keeps no list of its own: each call states the whole list, so the newest call is the list, is in the record, and
 * stays when old outputs of tools are removed from a full context (what a policy wrote itself does).
 */
#include "agent/tools.h"

#include "base/json.h"
#include "base/target.h"

#include <string.h>

static json_t *device_json(const struct ww_device *d)
{
	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "target",
		ww_target_name(d->target), "threads", d->threads, "vector_bytes", d->vector_bytes, "cc", d->cc, "sm_count",
		d->sm_count, "warp_size", d->warp_size, "max_threads_per_block", d->max_threads_per_block, "max_threads_per_sm",
		d->max_threads_per_sm, "regs_per_sm", d->regs_per_sm, "shared_per_block_bytes",
		(json_int_t)d->shared_per_block_bytes, "shared_per_sm_bytes", (json_int_t)d->shared_per_sm_bytes, "l1_bytes",
		(json_int_t)d->l1_bytes, "l2_bytes", (json_int_t)d->l2_bytes, "l3_bytes", (json_int_t)d->l3_bytes,
		"memory_bytes", (json_int_t)d->memory_bytes, "memory_bytes_per_s", d->memory_bytes_per_s);
}

json_t *ww_tool_inspect_data(enum ww_target target, const struct ww_device *d, const json_t *graph)
{
	return json_pack("{s:s, s:o, s:O}", "target", ww_target_name(target), "device", device_json(d), "graph", graph);
}

static enum ww_rc inspect_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(64 << 20);
	WW_CHECK(env->inspect(env, &r->data, err));
	if (!r->data)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for the answer of inspect");
	ww_json_add(&text, r->data);
	ww_str_add_bounded(&r->text, text.p, text.len, WW_TOOL_TEXT_MAX_BYTES);
	return WW_OK;
}

const struct ww_tool ww_tool_inspect = {
	{ "inspect", "The task's ATen graph with shapes, dtypes and parameters, and the facts of the device.",
		WW_TOOL_NO_ARGS },
	.run = inspect_run,
	.mcp = { "Inspect a task",
		"{\"type\":\"object\",\"properties\":{\"target\":{\"type\":\"string\"},\"device\":{\"type\":\"object\"},"
		"\"graph\":{\"type\":\"object\"}},\"required\":[\"target\",\"device\",\"graph\"]}",
		WW_TOOL_TASK, .changes_nothing = 1 }
};

enum { TODO_TEXT_MAX_BYTES = 400 };

/* "[x] text" for one item. */
static void add_item(struct ww_str *out, const json_t *item, int *open)
{
	const char *state = ww_json_str(item, "state", ""), *text = ww_json_str(item, "text", "");
	const char *mark = !strcmp(state, "open") ? "[ ] " : !strcmp(state, "doing") ? "[>] " : "[x] ";
	*open += strcmp(state, "done") != 0;
	ww_str_adds(out, mark);
	ww_str_add_bounded(out, text, strcspn(text, "\r\n"), TODO_TEXT_MAX_BYTES);
	ww_str_addc(out, '\n');
}

static enum ww_rc todo_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const json_t *items = json_object_get(args, "items");
	ww_auto_str list = WW_STR_INIT(1 << 20);
	json_t *item;
	size_t i;
	int open = 0;
	json_array_foreach(items, i, item)
		add_item(&list, item, &open);
	ww_str_adds(&r->text, list.p);
	ww_str_addf(&r->text, "%d of %zu to do", open, json_array_size(items));
	r->data = json_pack("{s:b}", "ok", 1);
	return WW_OK;
}

const struct ww_tool ww_tool_todo = {
	{ "todo", "Your list of what to do, for yourself; each call replaces the whole list.",
		"{\"type\":\"object\",\"properties\":{\"items\":{\"type\":\"array\",\"maxItems\":64,\"description\":\"the whole list\",\"items\":{"
		"\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"description\":\"one line\"},\"state\":{\"type\":"
		"\"string\",\"enum\":[\"open\",\"doing\",\"done\"],\"description\":\"open, doing or done\"}},\"required\":[\"text\",\"state\"],\"additionalProperties\":false}}},"
		"\"required\":[\"items\"],\"additionalProperties\":false}" },
	.run = todo_run
};

static enum ww_rc submit_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	ww_str_adds(&r->text, "submitted; the solution in the workspace is judged once more from scratch");
	r->data = json_pack("{s:b}", "ok", 1);
	return WW_OK;
}

const struct ww_tool ww_tool_submit = {
	{ "submit", "End the episode with the solution that is in the workspace.", WW_TOOL_NO_ARGS }, .run = submit_run
};
