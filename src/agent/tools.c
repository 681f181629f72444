/* tools.c - the list of tools, and how a call of one is checked against its schema (base/schema.h) and carried out.
 *
 * The schema that a model is told is the schema that its calls are checked against, so they cannot drift apart.
 */
#include "agent/tools.h"

#include "base/json.h"
#include "base/schema.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#define ROW_NO(name)
#define ROW_LOOP(name) &ww_tool_##name,
#define ROW_SHELL(name) &ww_tool_##name,
static const struct ww_tool *const tools[] = {
#define TOOL(name, loop, shell, mcp) ROW_##loop(name)
#include "agent/tools.def"
#undef TOOL
};
static const struct ww_tool *const shell_tools[] = {
#define TOOL(name, loop, shell, mcp) ROW_##shell(name)
#include "agent/tools.def"
#undef TOOL
};

static struct ww_tool_spec specs[WW_ARRAY_LEN(tools)];
static pthread_once_t specs_once = PTHREAD_ONCE_INIT; /* episodes run in threads of one process */

static void fill_specs(void)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++)
		specs[i] = tools[i]->spec;
}

const struct ww_tool_spec *ww_tools_specs(size_t *n)
{
	pthread_once(&specs_once, fill_specs);
	*n = WW_ARRAY_LEN(tools);
	return specs;
}

json_t *ww_tools_json(void)
{
	json_t *list = json_array();
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++) {
		const struct ww_tool_spec *t = &tools[i]->spec;
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:o}", "name", t->name, "description", t->description, "parameters",
				json_loads(t->schema, 0, NULL)));
	}
	return list;
}

void ww_tool_result_release(struct ww_tool_result *r)
{
	ww_str_release(&r->text);
	json_decref(r->data);
	r->data = NULL;
}

void ww_tool_malformed(struct ww_tool_result *r, const char *fmt, ...)
{
	ww_auto_str line = WW_STR_INIT(2048);
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&line, fmt, ap);
	va_end(ap);
	ww_str_add_bounded(&r->text, line.p, line.len, 1024);
	r->is_error = r->malformed = 1;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* The arguments as an object, or NULL and the answer in r.  An empty text counts as {}. */
static json_t *parse_args(const struct ww_tool *t, const char *text, struct ww_tool_result *r)
{
	struct ww_err e = WW_ERR_INIT;
	json_t *args = NULL, *schema = NULL;
	if (!text[strspn(text, " \t\r\n")])
		text = "{}";
	if (ww_json_parse_message(text, strlen(text), "arguments", &args, &e) != WW_OK) {
		ww_tool_malformed(r, "%s: %s", t->spec.name, e.msg);
		return NULL;
	}
	WW_BUG(ww_json_parse(t->spec.schema, strlen(t->spec.schema), t->spec.name, &schema, &e) != WW_OK);
	ww_auto_str why = WW_STR_INIT(2048);
	int ok = ww_schema_fits(schema, args, &why);
	if (!ok)
		ww_tool_malformed(r, "%s: %s", t->spec.name, why.p);
	json_decref(schema);
	if (!ok) {
		json_decref(args);
		return NULL;
	}
	return args;
}

const struct ww_tool *ww_tools_find(const char *name)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++)
		if (!strcmp(tools[i]->spec.name, name))
			return tools[i];
	return NULL;
}

int ww_tools_in_shell(const struct ww_tool *t)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(shell_tools); i++)
		if (shell_tools[i] == t)
			return 1;
	return 0;
}

static void unknown_tool(const char *name, struct ww_tool_result *r)
{
	ww_auto_str list = WW_STR_INIT(256);
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++)
		ww_str_addf(&list, "%s%s", i ? ", " : "", tools[i]->spec.name);
	ww_tool_malformed(r, "there is no tool \"%.64s\"; the tools are %s", name, list.p);
}

enum ww_rc ww_tools_call(
	struct ww_tool_env *env, const struct ww_tool_call *call, struct ww_tool_result *r, struct ww_err *err)
{
	*r = (struct ww_tool_result){ .data = NULL };
	ww_str_init(&r->text, WW_TOOL_TEXT_MAX_BYTES + 1024);
	const struct ww_tool *t = ww_tools_find(call->name);
	if (!t) {
		unknown_tool(call->name, r);
		return WW_OK;
	}
	json_auto_t *args = parse_args(t, call->arguments, r);
	if (!args)
		return WW_OK;
	env->call_id = call->id;
	return t->run(env, args, r, err);
}

enum ww_rc ww_tools_redo(struct ww_tool_env *env, const struct ww_tool_call *call, const char *data, struct ww_err *err)
{
	const struct ww_tool *t = ww_tools_find(call->name);
	if (t && t->changes_files) {
		WW_AUTO(ww_tool_result_release) struct ww_tool_result r;
		return ww_tools_call(env, call, &r, err);
	} else if (t && t->redo && data) {
		json_auto_t *j = NULL;
		WW_CHECK(ww_json_parse(data, strlen(data), "a recorded answer", &j, err));
		return t->redo(env, j, err);
	}
	return WW_OK;
}
