/* tool_call.c - see tool_call.h.
 *
 * A command is the tool: its options are the members of the schema, and it goes through ww_tools_call() like a call of
 * the policy, with the same checks, budgets and records.  What differs is where the solution comes from (the tree that
 * the process sees, not the workspace, which is behind until the command ends) and the call's id, the one of the tool
 * of the shell and a number: a verdict that was recorded before a kill is found again by it, so nothing is judged
 * twice.
 *
 * Exit codes: 0 good, 1 a negative verdict, 2 not valid or nothing to judge, 3 no answer.
 */
#include "agent/tool_call.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_GOOD, CODE_NEGATIVE, CODE_NOT_VALID, CODE_NO_ANSWER };

/* ---- Words ------------------------------------------------------------------------------------------------------- */

/* The value of an option by its type in the schema; a value of another type stays a string, which the check of
 * arguments refuses. */
static json_t *value_of(const char *type, const char *text)
{
	char *end;
	if (!strcmp(type, "boolean") && (!strcmp(text, "true") || !strcmp(text, "false")))
		return json_boolean(*text == 't');
	if (!strcmp(type, "integer")) {
		long long n = strtoll(text, &end, 10);
		if (*text && !*end)
			return json_integer(n);
	}
	return json_string(text);
}

/* --name, --no-name, --name=value; 0 where it is none of them. */
static int add_option(json_t *args, const json_t *properties, const char *word)
{
	char name[64];
	const char *value = strchr(word, '=');
	size_t n = value ? (size_t)(value - word) : strlen(word);
	if (strncmp(word, "--", 2) || n < 3 || n - 2 >= sizeof(name))
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)(n - 2), word + 2);
	int no = !value && !strncmp(name, "no-", 3);
	const char *key = no ? name + 3 : name;
	const char *type = ww_json_str(json_object_get(properties, key), "type", "");
	json_t *v = value ? value_of(type, value + 1) : json_boolean(!no);
	return v && json_object_set_new(args, key, v) == 0;
}

static void usage(const struct ww_tool *t, const json_t *properties, struct ww_str *out)
{
	const char *key;
	json_t *p;
	ww_str_addf(out, "%s: %s\n", t->spec.name, t->spec.description);
	json_object_foreach((json_t *)properties, key, p) {
		int is_bool = !strcmp(ww_json_str(p, "type", ""), "boolean");
		ww_str_addf(out, is_bool ? "  --%s, --no-%s  %s\n" : "  --%s=%s  %s\n", key, is_bool ? key : "VALUE",
			ww_json_str(p, "description", ""));
	}
}

/* The arguments of a call as JSON text; NULL: `text` has the error, or with code good the help. */
static char *arguments_of(const struct ww_tool *t, char *words, struct ww_str *text, unsigned *code)
{
	json_auto_t *schema = json_loads(t->spec.schema, 0, NULL), *args = json_object();
	json_t *properties = json_object_get(schema, "properties");
	char *save = NULL;
	for (char *w = strtok_r(words, "\t", &save); w; w = strtok_r(NULL, "\t", &save)) {
		int help = !strcmp(w, "-h") || !strcmp(w, "--help");
		if (!help && add_option(args, properties, w))
			continue;
		if (!help)
			ww_str_addf(text, "%s: an option is --NAME, --no-NAME or --NAME=VALUE\n", t->spec.name);
		*code = help ? CODE_GOOD : CODE_NOT_VALID;
		usage(t, properties, text);
		return NULL;
	}
	return json_dumps(args, JSON_COMPACT);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static unsigned code_of(const struct ww_tool *t, const struct ww_tool_result *r)
{
	if (r->is_error)
		return CODE_NOT_VALID;
	if (strcmp(ww_json_str(r->data, "status", "ok"), "ok"))
		return CODE_NEGATIVE;
	return t == &ww_tool_verify && !ww_json_bool(r->data, "correct", 0) ? CODE_NEGATIVE : CODE_GOOD;
}

/* Record the call for readers, and for a resumed run the time that the device was held. */
static void note(
	struct ww_tool_calls *c, const struct ww_tool_call *call, const struct ww_tool_result *r, unsigned code)
{
	json_t *one = json_pack(
		"{s:s, s:s, s:s, s:i}", "id", call->id, "name", call->name, "arguments", call->arguments, "code", (int)code);
	const json_t *device_s = r ? json_object_get(r->data, "device_seconds") : NULL;
	if (device_s)
		json_object_set(one, "device_seconds", (json_t *)device_s);
	if (!c->list)
		c->list = json_array();
	json_array_append_new(c->list, one);
}

static enum ww_rc carry_out(struct ww_tool_calls *c, const struct ww_tool *t, char *arguments, struct ww_str *text,
	unsigned *code, struct ww_err *err)
{
	char id[96];
	struct ww_tool_env env = *c->env;
	struct ww_tool_call call = { id, (char *)(uintptr_t)t->spec.name, arguments };
	WW_AUTO(ww_tool_result_release) struct ww_tool_result r;
	snprintf(id, sizeof(id), "%.64s.%d", c->env->call_id, ++c->n);
	env.workspace = &c->env->shell->tree;
	enum ww_rc rc = ww_tools_call(&env, &call, &r, err);
	*code = code_of(t, &r);
	if (rc == WW_ERR_LIMIT) {
		ww_str_reset(&r.text);
		ww_str_adds(&r.text, "the budget of seconds on the device is used up");
		*code = CODE_NO_ANSWER;
		*err = (struct ww_err)WW_ERR_INIT;
		rc = WW_OK;
	}
	ww_str_add(text, r.text.p, r.text.len);
	if (r.text.len && r.text.p[r.text.len - 1] != '\n')
		ww_str_addc(text, '\n');
	if (rc == WW_OK)
		note(c, &call, &r, *code);
	return rc;
}

enum ww_rc ww_tool_call_run(void *ctx, const char *words, struct ww_str *text, unsigned *code, struct ww_err *err)
{
	struct ww_tool_calls *c = ctx;
	char *copy = strdup(words), *rest = copy, *name = copy ? strsep(&rest, "\t") : NULL;
	const struct ww_tool *t = name ? ww_tools_find(name) : NULL;
	const char *used_up = c->env->out_of ? c->env->out_of(c->env) : NULL;
	enum ww_rc rc = WW_OK;
	char *arguments = NULL;
	*code = CODE_NO_ANSWER;
	if (!copy)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a call");
	if (!t || !ww_tools_in_shell(t))
		ww_str_adds(text, "there is no such tool here\n");
	else if (!(arguments = arguments_of(t, rest ? rest : copy + strlen(copy), text, code)))
		;
	else if (used_up)
		ww_str_addf(text, "a budget is used up: %s\n", used_up);
	else if (c->n >= WW_TOOL_CALLS_MAX)
		ww_str_addf(text, "a command may call tools %d times\n", (int)WW_TOOL_CALLS_MAX);
	else
		rc = carry_out(c, t, arguments, text, code, err);
	free(arguments);
	free(copy);
	return rc;
}
