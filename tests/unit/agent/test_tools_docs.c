/* Each tool has a page in docs/tools/, and its table of arguments is that of the schema: names, types, which are
 * needed. */
#include "unit.h"

#include "agent/tools.h"
#include "base/fs.h"
#include "base/json.h"

static void read_doc(const char *name, struct ww_str *out)
{
	struct ww_err err = WW_ERR_INIT;
	char path[512];
	snprintf(path, sizeof(path), "%s/docs/%s.md", getenv("WARPWRIGHT_HOME"), name);
	ww_str_reset(out);
	if (ww_fs_read(path, 1 << 20, out, &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static void test_pages(void **state)
{
	struct ww_str doc = WW_STR_INIT(1 << 20);
	static const struct ww_tool *const tools[] = {
#define TOOL(name, loop, shell, mcp) &ww_tool_##name,
#include "agent/tools.def"
#undef TOOL
	};
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(tools); i++) {
		const struct ww_tool_spec *spec = &tools[i]->spec;
		char line[160];
		json_t *schema = json_loads(spec->schema, 0, NULL), *p, *needed = json_object_get(schema, "required"), *one;
		const char *key;
		size_t k, rows = 0, arguments = json_object_size(json_object_get(schema, "properties"));
		snprintf(line, sizeof(line), "tools/%s", spec->name);
		read_doc(line, &doc);
		json_object_foreach(json_object_get(schema, "properties"), key, p) {
			int is_needed = 0;
			json_array_foreach(needed, k, one)
				is_needed |= !strcmp(json_string_value(one), key);
			snprintf(
				line, sizeof(line), "\n| `%s` | %s | %s | ", key, ww_json_str(p, "type", ""), is_needed ? "yes" : "no");
			if (!strstr(doc.p, line))
				fail_msg("docs/tools/%s.md lacks:%s", spec->name, line);
		}
		for (const char *at = doc.p; (at = strstr(at, "\n| `")); at++)
			rows++;
		if (rows != arguments || (!arguments && !strstr(doc.p, "\nNo arguments.\n")))
			fail_msg("docs/tools/%s.md has %zu rows of arguments for %zu (0: \"No arguments.\")", spec->name, rows,
				arguments);
		snprintf(line, sizeof(line), "command of the shell: `%s`", spec->name);
		if ((strstr(doc.p, line) != NULL) != ww_tools_in_shell(tools[i]))
			fail_msg("docs/tools/%s.md must say \"%s\" where tools.def has SHELL, and only there", spec->name, line);
		json_decref(schema);
	}
	ww_str_release(&doc);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_pages) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
